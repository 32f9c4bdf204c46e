//! What the learner has answered, and which questions come again when.
//!
//! A file in the user's data folder has one line of JSON for each answer, as the passed exercises have in
//! theirs. A question that was answered rightly comes again after 1, 7 and 30 days, a missed one the next day.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use super::progress::append;
use super::questions::{self, Question};
use crate::error::{Error, Result};
use crate::files;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// The days until a question comes again, after one, two, and more right answers.
const DAYS: [u32; 3] = [1, 7, 30];
/// A question is due this much earlier: who learns each evening is not always as late.
const EARLY: Duration = Duration::from_secs(12 * 60 * 60);

/// A line of the file.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Line {
    question: String,
    /// RFC 3339, in UTC.
    answered: String,
    right: bool,
    /// Which test it belongs to: `pre` or `post`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    test: Option<String>,
}

/// What is known about one question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct State {
    /// Right answers in a row, each on a day when the question was due.
    row: usize,
    due: SystemTime,
    right: bool,
}

/// How the questions of a lesson stand.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Tally {
    /// All questions of the lesson.
    pub questions: usize,
    /// Those that were answered, rightly or not.
    pub answered: usize,
    /// Those of which the last answer was wrong.
    pub missed: usize,
    /// Those that were answered and are due.
    pub due: usize,
    /// Those that were missed or are due.
    pub shaky: usize,
}

/// The learner's answers.
#[derive(Debug, Clone, Default)]
pub struct Recall {
    states: BTreeMap<String, State>,
    tests: BTreeMap<(String, String), bool>,
}

/// Returns the path of the file; `None` if the user has no data folder.
pub fn path() -> Option<PathBuf> {
    files::data_folder().map(|folder| folder.join("answers.jsonl"))
}

/// Returns the state of each lesson's questions at `now`, by the lesson's number.
///
/// # Errors
/// If the user's file exists and can't be read.
pub fn tallies(now: SystemTime) -> Result<BTreeMap<String, Tally>> {
    let recall = Recall::load(now)?;
    let mut tallies: BTreeMap<String, Tally> = BTreeMap::new();
    for question in questions::all()? {
        let tally = tallies.entry(question.lesson.clone()).or_default();
        let (missed, due) = (recall.missed(&question), recall.due(&question, now));
        tally.questions += 1;
        tally.answered += usize::from(recall.seen(&question));
        tally.missed += usize::from(missed);
        tally.due += usize::from(due);
        tally.shaky += usize::from(missed || due);
    }
    Ok(tallies)
}

impl Recall {
    /// Reads the user's answers as they stand at the time `now`; none if the user has no data folder.
    ///
    /// # Errors
    /// If the file exists and can't be read.
    pub fn load(now: SystemTime) -> Result<Self> {
        path().map_or_else(|| Ok(Self::default()), |path| Self::read(&path, now))
    }

    /// Reads the answers in a file as they stand at the time `now`; none if it doesn't exist. Damaged lines
    /// are skipped.
    ///
    /// # Errors
    /// If the file exists and can't be read.
    pub fn read(path: &Path, now: SystemTime) -> Result<Self> {
        let bytes = match std::fs::read(path) {
            Ok(bytes) => bytes,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Vec::new(),
            Err(e) => return Err(Error::io(path, e)),
        };
        let mut recall = Self::default();
        for line in bytes.split(|byte| *byte == b'\n') {
            let Ok(line) = serde_json::from_slice::<Line>(line) else {
                continue;
            };
            let Ok(at) = humantime::parse_rfc3339(&line.answered) else {
                continue;
            };
            match line.test {
                // The first answer counts: a test is taken once.
                Some(test) => {
                    recall.tests.entry((test, line.question)).or_insert(line.right);
                }
                // An answer from the future was given before the clock was set back.
                None => recall.count(line.question, line.right, at.min(now)),
            }
        }
        Ok(recall)
    }

    fn count(&mut self, question: String, right: bool, at: SystemTime) {
        let before = self.states.get(&question);
        let row = match before {
            _ if !right => 0,
            // A right answer before its day says little: it moves nothing.
            Some(state) if state.right && at < state.due => return,
            Some(state) => state.row + 1,
            None => 1,
        };
        let due = at + DAY * DAYS[row.saturating_sub(1).min(DAYS.len() - 1)] - EARLY;
        self.states.insert(question, State { row, due, right });
    }

    /// Returns whether the question was answered before.
    pub fn seen(&self, question: &Question) -> bool {
        self.states.contains_key(&question.key)
    }

    /// Returns whether the question was answered before and is due at `now`.
    pub fn due(&self, question: &Question, now: SystemTime) -> bool {
        self.states.get(&question.key).is_some_and(|state| state.due <= now)
    }

    /// Returns whether the last answer was wrong.
    pub fn missed(&self, question: &Question) -> bool {
        self.states.get(&question.key).is_some_and(|state| !state.right)
    }

    /// Returns when the next of these questions comes again; `None` if none was answered.
    pub fn next(&self, of: &[Question]) -> Option<SystemTime> {
        of.iter().filter_map(|question| self.states.get(&question.key)).map(|it| it.due).min()
    }

    /// Returns the questions to ask at `now`, at most `count`: missed ones that are due, then the others that
    /// are due, the longest due first, then those that were never asked.
    pub fn draw(&self, from: &[Question], count: usize, now: SystemTime) -> Vec<Question> {
        let asked = |question: &&Question| self.due(question, now) || !self.seen(question);
        let mut drawn: Vec<&Question> = from.iter().filter(asked).collect();
        // The sort is stable: new questions stay in the order of the course.
        drawn.sort_by_key(|question| match self.states.get(&question.key) {
            Some(state) => (u8::from(state.right), Some(state.due)),
            None => (2, None),
        });
        drawn.into_iter().take(count).cloned().collect()
    }

    /// Returns the answer to a question of the test `pre` or `post`: whether it was right.
    pub fn of_test(&self, test: &str, question: &Question) -> Option<bool> {
        self.tests.get(&(test.to_owned(), question.key.clone())).copied()
    }
}

/// Appends an answer of the time `now` to the user's file; `test` is `pre` or `post` in a test. Does nothing if
/// the user has no data folder.
///
/// # Errors
/// If the file can't be written.
pub fn note(question: &Question, right: bool, test: Option<&str>, now: SystemTime) -> Result<()> {
    match path() {
        Some(path) => note_in(&path, question, right, test, now),
        None => Ok(()),
    }
}

/// Appends an answer to a file.
pub(super) fn note_in(
    path: &Path,
    question: &Question,
    right: bool,
    test: Option<&str>,
    now: SystemTime,
) -> Result<()> {
    let line = Line {
        question: question.key.clone(),
        answered: humantime::format_rfc3339_seconds(now).to_string(),
        right,
        test: test.map(str::to_owned),
    };
    append(path, &line)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns whether the question is due at each of these days, after answers (day, right).
    fn due(answers: &[(u32, bool)], days: &[u32]) -> Vec<bool> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("answers.jsonl");
        let question = &questions::all().unwrap()[0];
        let day = |day: u32| SystemTime::UNIX_EPOCH + DAY * (10_000 + day);
        for (at, right) in answers {
            note_in(&path, question, *right, None, day(*at)).unwrap();
        }
        let due = |now: &u32| Recall::read(&path, day(*now)).unwrap().due(question, day(*now));
        days.iter().map(due).collect()
    }

    #[test]
    fn right_answers_come_again_after_1_7_and_30_days() {
        assert_eq!(due(&[(0, true)], &[0, 1]), [false, true]);
        assert_eq!(due(&[(0, true), (1, true)], &[7, 8]), [false, true]);
        assert_eq!(due(&[(0, true), (1, true), (8, true)], &[37, 38]), [false, true]);
        assert_eq!(due(&[(0, true), (1, true), (8, true), (38, true)], &[67, 68]), [false, true]);
    }

    #[test]
    fn a_missed_question_comes_the_next_day_and_starts_anew() {
        assert_eq!(due(&[(0, true), (1, true), (8, false)], &[8, 9]), [false, true]);
        assert_eq!(due(&[(0, true), (1, false), (2, true)], &[2, 3]), [false, true]);
        // Two right answers on one day are one.
        assert_eq!(due(&[(0, true), (0, true)], &[1]), [true]);
    }

    #[test]
    fn the_next_day_may_begin_at_an_earlier_hour() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("answers.jsonl");
        let question = &questions::all().unwrap()[0];
        let evening = SystemTime::UNIX_EPOCH + DAY * 10_000;
        note_in(&path, question, true, None, evening).unwrap();
        let due = |hours: u32| {
            let now = evening + Duration::from_secs(3600) * hours;
            Recall::read(&path, now).unwrap().due(question, now)
        };
        assert_eq!([3, 11, 13, 23].map(due), [false, false, true, true]);
    }

    #[test]
    fn a_clock_that_was_set_back_delays_a_question_by_its_days_at_most() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("answers.jsonl");
        let question = &questions::all().unwrap()[0];
        let now = SystemTime::UNIX_EPOCH + DAY * 10_000;
        note_in(&path, question, true, None, now + DAY * 5_000).unwrap();
        assert!(!Recall::read(&path, now).unwrap().due(question, now));
        assert!(Recall::read(&path, now).unwrap().due(question, now + DAY));
    }

    #[test]
    fn missed_ones_are_drawn_first_and_a_torn_line_is_skipped() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("answers.jsonl");
        let all = questions::all().unwrap();
        let now = SystemTime::UNIX_EPOCH + DAY * 10_000;
        note_in(&path, &all[2], true, None, now - DAY * 9).unwrap();
        note_in(&path, &all[1], false, None, now - DAY * 2).unwrap();
        note_in(&path, &all[0], true, None, now).unwrap();
        let torn = [std::fs::read(&path).unwrap(), b"{\"quest".to_vec()].concat();
        std::fs::write(&path, torn).unwrap();
        let drawn = Recall::read(&path, now).unwrap().draw(&all, 3, now);
        let keys: Vec<_> = drawn.iter().map(|question| &question.key).collect();
        assert_eq!(keys, [&all[1].key, &all[2].key, &all[3].key]);
        note_in(&path, &all[3], false, None, now).unwrap();
        assert!(Recall::read(&path, now).unwrap().missed(&all[3]));
    }
}
