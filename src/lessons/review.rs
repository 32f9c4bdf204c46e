//! A review: draws questions, asks them one after the other, explains each answer, and hands it on to be kept.
//!
//! The same dialogue is held in a terminal and in a cell of a session. A notebook that runs as a whole has nobody to
//! answer: there a review shows the questions with their answers folded.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::io;
use std::time::SystemTime;

use super::Lesson;
use super::progress::Progress;
use super::questions::{self, Choice, Kind, Question};
use super::recall::{self, Recall};
use crate::error::{Error, Result};
use crate::view::display::{self, Content};
use crate::view::input;
use crate::view::style::escape;

/// How many questions a review asks by default.
pub const COUNT: usize = 5;

/// How many questions a lesson opens with, if fewer are due.
const LEAST: usize = 3;

/// What follows a wrong prediction.
const RUN: &str = " Run the code to see it.";

/// What a review says where nobody answers.
const ALONE: &str =
    "Nobody was asked, because the notebook runs as a whole. Run this cell alone to answer.";

const RIGHT: (&str, &str) = ("✓ Right.", "rgb(46,160,67)");
const WRONG: (&str, &str) = ("✗ Not this one.", "rgb(218,112,32)");

/// What a review asks about.
#[derive(Debug, Clone, PartialEq)]
pub enum Scope {
    /// The lessons that the learner has begun.
    Begun,
    /// The lessons before this one, which opens with them.
    Before(Lesson),
    /// This lesson, which ends with them.
    Of(Lesson),
}

impl Scope {
    /// Reads what stands behind `:review`: nothing, `before 05`, or `05`.
    ///
    /// # Errors
    /// If there is no such lesson.
    pub fn parse(text: &str) -> Result<Self> {
        let text = text.trim();
        match text.strip_prefix("before ") {
            _ if text.is_empty() => Ok(Self::Begun),
            Some(name) => super::find(name.trim()).map(Self::Before),
            None => super::find(text).map(Self::Of),
        }
    }
}

/// Returns the command with which a lesson opens; `None` for the first lesson.
pub fn opening(lesson: &Lesson) -> Option<String> {
    (!lesson.needs.is_empty()).then(|| format!(":review before {}", lesson.number()))
}

/// Returns the command with which a lesson ends.
pub fn closing(lesson: &Lesson) -> String {
    format!(":review {}", lesson.number())
}

/// The questions from which a review draws, with the learner's answers.
pub struct Review {
    questions: Vec<Question>,
    recall: Recall,
    /// Whether a lesson opens with it.
    opens: bool,
}

impl Review {
    /// Reads the user's answers and progress as they stand at `now`.
    ///
    /// # Errors
    /// If a file exists and can't be read.
    pub fn load(scope: &Scope, now: SystemTime) -> Result<Self> {
        Self::new(scope, &Progress::load()?, Recall::load(now)?)
    }

    fn new(scope: &Scope, progress: &Progress, recall: Recall) -> Result<Self> {
        let all = questions::all()?;
        let passed =
            |lesson: &Lesson| lesson.exercises.iter().any(|it| progress.moment(it).is_some());
        let passed = super::all()?.into_iter().filter(passed).map(|it| it.number().to_owned());
        let answered = all.iter().filter(|it| recall.seen(it)).map(|it| it.lesson.clone());
        let begun: BTreeSet<String> = passed.chain(answered).collect();
        let mut questions = all;
        match scope {
            Scope::Of(lesson) => questions.retain(|it| it.lesson == lesson.number()),
            Scope::Begun => questions.retain(|it| begun.contains(&it.lesson)),
            Scope::Before(lesson) => {
                let earlier = |number: &String| **number < *lesson.number();
                // Whoever starts here is taken to know what the lesson builds on.
                let known = match begun.iter().any(earlier) {
                    true => begun.iter().filter(|it| earlier(it)).collect(),
                    false => lesson.needs.iter().collect::<BTreeSet<_>>(),
                };
                questions.retain(|it| known.contains(&it.lesson));
                // Of questions that were never asked, those of the latest lesson come first.
                questions.sort_by_key(|it| Reverse(it.lesson.clone()));
            }
        }
        Ok(Self { questions, recall, opens: matches!(scope, Scope::Before(_)) })
    }

    /// Returns the questions to ask at `now`, `count` at most. For the opening of a lesson three are enough if
    /// no more are due.
    pub fn draw(&self, count: usize, now: SystemTime) -> Vec<Question> {
        let mut drawn = self.recall.draw(&self.questions, count, now);
        if self.opens {
            let due = drawn.iter().filter(|question| self.recall.due(question, now)).count();
            drawn.truncate(due.max(LEAST));
        }
        drawn
    }

    /// Returns a sentence for a review that has no question to ask at `now`.
    pub fn nothing(&self, now: SystemTime) -> String {
        match self.recall.next(&self.questions) {
            Some(next) => {
                let seconds = next.duration_since(now).unwrap_or_default().as_secs();
                let wait = match seconds.div_ceil(60 * 60) {
                    0 | 1 => "within an hour".to_owned(),
                    hours @ 2..48 => format!("in {hours} hours"),
                    hours => format!("in {} days", hours / 24),
                };
                format!("Nothing is due. The next question comes {wait}.")
            }
            None => "There is nothing to ask yet: begin a lesson first.".to_owned(),
        }
    }
}

/// Where questions are asked.
pub trait Place {
    /// Shows a content.
    ///
    /// # Errors
    /// If it can't be written.
    fn show(&mut self, content: Content) -> io::Result<()>;

    /// Asks for a line; `None` if nobody answers.
    ///
    /// # Errors
    /// If the prompt can't be written, or the line can't be read.
    fn ask(&mut self, prompt: &str) -> io::Result<Option<String>>;
}

/// How a review ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ended {
    /// How many questions were answered.
    pub answered: usize,
    /// How many answers were right.
    pub right: usize,
    /// Whether there was nobody to answer.
    pub alone: bool,
}

/// Asks the questions in order, until an answer is empty or nobody answers. `keep` gets each answer: whether
/// it is right. Without `explain` no answer is explained.
///
/// # Errors
/// If the place can't be used, or `keep` fails.
pub fn ask(
    place: &mut impl Place,
    asked: &[Question],
    explain: bool,
    mut keep: impl FnMut(&Question, bool) -> Result<()>,
) -> Result<Ended> {
    let lost = |e| Error::io("the terminal", e);
    let mut ended = Ended { answered: 0, right: 0, alone: false };
    for (index, question) in asked.iter().enumerate() {
        let options = question.options();
        let head = format!("Question {} of {}", index + 1, asked.len());
        place.show(shown(&head, question, &options)).map_err(lost)?;
        let prompt = format!("Your answer (1 to {}, or only Enter to stop): ", options.len());
        let chosen = loop {
            let Some(line) = place.ask(&prompt).map_err(lost)? else {
                return Ok(Ended { alone: true, ..ended });
            };
            if line.trim().is_empty() {
                return Ok(ended);
            }
            let number = line.trim().trim_end_matches('.').parse::<usize>().unwrap_or(0);
            if (1..=options.len()).contains(&number) {
                break number - 1;
            }
        };
        let right = options[chosen].1;
        keep(question, right)?;
        ended.answered += 1;
        ended.right += usize::from(right);
        if explain {
            place.show(explained(question.kind, &options, chosen)).map_err(lost)?;
        }
    }
    Ok(ended)
}

/// Reviews in a cell of a session, as the command `:review` with this argument asks, and keeps the answers.
///
/// # Errors
/// If there is no such lesson, or a file can't be read or written.
pub fn cell(argument: &str) -> Result<()> {
    let (scope, now) = (Scope::parse(argument)?, SystemTime::now());
    let review = Review::load(&scope, now)?;
    let asked = review.draw(COUNT, now);
    if asked.is_empty() {
        display::text(review.nothing(now));
        return Ok(());
    }
    let keep = |it: &Question, right| recall::note(it, right, None, SystemTime::now());
    let ended = ask(&mut Session, &asked, true, keep)?;
    if ended.alone && ended.answered == 0 {
        // The first question is shown already.
        display::put(folded(&asked[0].options()));
        for (index, question) in asked.iter().enumerate().skip(1) {
            let (head, options) =
                (format!("Question {} of {}", index + 1, asked.len()), question.options());
            display::put(shown(&head, question, &options));
            display::put(folded(&options));
        }
        display::text(ALONE);
        return Ok(());
    }
    display::text(ended.summary(asked.len()));
    Ok(())
}

impl Ended {
    /// Returns the result of a review of so many questions as a sentence.
    pub fn summary(&self, asked: usize) -> String {
        let Self { answered, right, .. } = self;
        match asked - answered {
            0 => format!("{right} of {asked} right."),
            _ if *answered == 0 => format!("You left all {asked} open."),
            open => format!("{right} of {answered} right; you left {open} open."),
        }
    }
}

/// The cell that runs.
struct Session;

impl Place for Session {
    fn show(&mut self, content: Content) -> io::Result<()> {
        display::put(content);
        Ok(())
    }

    fn ask(&mut self, prompt: &str) -> io::Result<Option<String>> {
        match input::ask(prompt) {
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
            answer => answer.map(Some),
        }
    }
}

/// An option, and whether it is right.
type Options<'a> = [(&'a Choice, bool)];

/// Returns a question with its options.
fn shown(head: &str, question: &Question, options: &Options<'_>) -> Content {
    let head = match &*question.lesson {
        "" => head.to_owned(),
        lesson => format!("{head} (lesson {lesson})"),
    };
    let asks = question.text.trim();
    let mut text = format!("\n{head}\n{asks}\n");
    let mut html = format!("<p><b>{head}</b><br>{}</p>", marked(asks));
    if let Some(code) = question.code.as_deref().map(str::trim) {
        text += "\n";
        text.extend(code.lines().map(|line| format!("    {line}\n")));
        html += &format!("<pre>{}</pre>", escape(code));
    }
    html += "<ol>";
    for (number, (Choice(option, _), _)) in (1..).zip(options) {
        text += &format!("\n  {number}. {option}");
        html += &format!("<li>{}</li>", marked(option));
    }
    Content::html(format!("{html}</ol>")).with_text(text)
}

/// Returns what is said about the chosen option: the explanation, and the right option if it is another.
fn explained(kind: Kind, options: &Options<'_>, chosen: usize) -> Content {
    let (Choice(_, why), right) = options[chosen];
    let (sign, colour) = if right { RIGHT } else { WRONG };
    let mut text = format!("{sign} {why}");
    let mut html = format!("<b style=\"color:{colour}\">{sign}</b> {}", marked(why));
    let others = (1..).zip(options).filter(|(_, (_, is_right))| *is_right && !right);
    for (number, (Choice(option, why), _)) in others {
        text += &format!("\n  Right is {number}. {option}\n  {why}");
        html += &format!("<br><b>Right is {number}. {}</b> {}", marked(option), marked(why));
    }
    if kind == Kind::Predict && !right {
        text += RUN;
        html += RUN;
    }
    Content::html(format!("<p>{html}</p>")).with_text(text)
}

/// Returns the explanations of all options, to be unfolded.
fn folded(options: &Options<'_>) -> Content {
    let (mut text, mut html) = (String::new(), String::new());
    for (number, (Choice(_, why), right)) in (1..).zip(options) {
        let sign = if *right { "✓" } else { "✗" };
        text += &format!("\n  {sign} {number}. {why}");
        html += &format!("<p>{sign} {number}. {}</p>", marked(why));
    }
    Content::html(format!("<details><summary>The answer</summary>{html}</details>"))
        .with_text(format!("The answer:{text}"))
}

/// Returns a text as HTML, with code in backquotes.
fn marked(text: &str) -> String {
    let parts = text.split('`').enumerate();
    let parts = parts.map(|(place, part)| match place % 2 {
        0 => escape(part),
        _ => format!("<code>{}</code>", escape(part)),
    });
    parts.collect()
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::time::Duration;

    use super::*;

    /// Answers from a list; then nobody answers.
    #[derive(Default)]
    struct Script {
        answers: VecDeque<String>,
        prompts: usize,
        shown: Vec<Content>,
    }

    impl Place for Script {
        fn show(&mut self, content: Content) -> io::Result<()> {
            self.shown.push(content);
            Ok(())
        }

        fn ask(&mut self, _: &str) -> io::Result<Option<String>> {
            self.prompts += 1;
            Ok(self.answers.pop_front())
        }
    }

    fn held(answers: &[&str], explain: bool) -> (Ended, Vec<bool>, Script) {
        let asked = &questions::all().unwrap()[..2];
        let answers = answers.iter().map(|answer| (*answer).to_owned()).collect();
        let mut place = Script { answers, ..Script::default() };
        let mut kept = Vec::new();
        let keep = |_: &Question, right| {
            kept.push(right);
            Ok(())
        };
        let ended = ask(&mut place, asked, explain, keep).unwrap();
        (ended, kept, place)
    }

    /// Returns the number of an option of the first question, right or wrong.
    fn number(right: bool) -> String {
        let question = &questions::all().unwrap()[0];
        let place = question.options().iter().position(|option| option.1 == right).unwrap();
        (place + 1).to_string()
    }

    #[test]
    fn a_wrong_answer_explains_itself_and_the_right_one() {
        let question = &questions::all().unwrap()[0];
        let wrong = number(false);
        let (ended, kept, place) = held(&[&wrong], true);
        assert_eq!((ended.answered, ended.right, ended.alone), (1, 0, true));
        assert_eq!(kept, [false]);
        let text = place.shown[1].plain();
        let chosen = question.options()[wrong.parse::<usize>().unwrap() - 1].0;
        assert!(text.contains(&chosen.1) && text.contains(&question.right.1), "{text}");
        let (_, _, place) = held(&[&wrong], false);
        assert!(place.shown.iter().all(|it| !it.plain().contains(&question.right.1)));
    }

    #[test]
    fn bad_input_asks_again_and_an_empty_answer_stops() {
        let right = number(true);
        let (ended, kept, place) = held(&["x", "0", "9", &right, ""], true);
        assert_eq!(ended, Ended { answered: 1, right: 1, alone: false });
        assert_eq!((kept, place.prompts), (vec![true], 5));
        assert_eq!(ended.summary(2), "1 of 1 right; you left 1 open.");
        assert_eq!(held(&[""], true).0.summary(2), "You left all 2 open.");
    }

    #[test]
    fn markup_in_a_question_is_escaped() {
        assert_eq!(marked("a < `b<c>` & d"), "a &lt; <code>b&lt;c&gt;</code> &amp; d");
    }

    #[test]
    fn a_scope_is_nothing_a_lesson_or_what_is_before_it() {
        let name = |scope| match scope {
            Scope::Begun => "begun".to_owned(),
            Scope::Before(lesson) => format!("before {}", lesson.name),
            Scope::Of(lesson) => lesson.name,
        };
        for (text, wanted) in
            [(" ", "begun"), ("before 2", "before 02_tokens"), ("02", "02_tokens")]
        {
            assert_eq!(name(Scope::parse(text).unwrap()), wanted);
        }
        assert!(Scope::parse("before 99").unwrap_err().to_string().contains("\"99\""));
    }

    #[test]
    fn a_review_without_questions_says_when_the_next_one_comes() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(10_000 * 24 * 60 * 60);
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("answers.jsonl");
        let question = questions::all().unwrap().remove(0);
        let after = |seconds: u64| {
            let recall = Recall::read(&path, now).unwrap();
            let review = Review { questions: vec![question.clone()], recall, opens: false };
            let said = review.nothing(now + Duration::from_secs(seconds));
            said.trim_start_matches("Nothing is due. The next question comes ").to_owned()
        };
        assert_eq!(after(0), "There is nothing to ask yet: begin a lesson first.");
        recall::note_in(&path, &question, true, None, now).unwrap();
        assert_eq!(after(0), "in 12 hours.");
        assert_eq!(after(11 * 3600 + 1), "within an hour.");
        let next_day = now + Duration::from_secs(24 * 60 * 60);
        recall::note_in(&path, &question, true, None, next_day).unwrap();
        let recall = Recall::read(&path, next_day).unwrap();
        let review = Review { questions: vec![question.clone()], recall, opens: false };
        assert!(review.nothing(next_day).ends_with("in 6 days."));
    }

    #[test]
    fn a_lesson_opens_with_earlier_questions_at_least_three_and_with_all_that_are_due() {
        let day = Duration::from_secs(24 * 60 * 60);
        let now = SystemTime::UNIX_EPOCH + day * 10_000;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("answers.jsonl");
        let before = Scope::Before(super::super::find("03").unwrap());
        let drawn = |now| {
            let recall = Recall::read(&path, now).unwrap();
            Review::new(&before, &Progress::default(), recall).unwrap().draw(COUNT, now)
        };
        let all = questions::all().unwrap();
        let of = |lesson: &str, count| {
            let of = all.iter().filter(|it| it.lesson == lesson).take(count);
            of.cloned().collect::<Vec<_>>()
        };
        assert_eq!(drawn(now), of("02", LEAST), "lesson 03 builds on 01 and 02");
        for question in of("01", 4).iter().chain(&of("05", 1)) {
            recall::note_in(&path, question, true, None, now).unwrap();
        }
        let first = drawn(now);
        assert_eq!(first.len(), LEAST);
        assert!(first.iter().all(|it| it.lesson == "01" && !of("01", 4).contains(it)));
        assert_eq!(drawn(now + day), of("01", 4));
    }
}
