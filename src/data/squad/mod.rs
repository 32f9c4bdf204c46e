//! SQuAD 1.1 and 2.0 (Rajpurkar et al., arXiv 1606.05250 and 1806.03822): questions about paragraphs of
//! Wikipedia, each answered by a span of its paragraph or, in 2.0, possibly unanswerable.
//!
//! An article has paragraphs, a paragraph a context and its questions, a question its answers. The start
//! of an answer is counted in Unicode code points of the context. Some copies of the data count
//! differently, so [`Squad::read`] compares every answer with its context.

mod flat;
mod windows;

use std::collections::HashSet;
use std::ops::Range;
use std::path::Path;

use serde::{Deserialize, Deserializer};

use crate::error::{Error, Result};
use crate::text::reader::{first_line, open_or_stdin, read_json};

use super::labels::shortened;
use super::split::Split;

pub use windows::{WindowOptions, Windows};

/// A file of SQuAD.
#[derive(Debug, Clone, PartialEq)]
pub struct Squad {
    /// Its articles.
    pub articles: Vec<Article>,
    /// Number of answers that were skipped because they are not at their stated position.
    pub misplaced: usize,
}

/// An article of Wikipedia.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Article {
    /// Its title.
    #[serde(default)]
    pub title: String,
    /// Its paragraphs.
    pub paragraphs: Vec<Paragraph>,
}

/// A paragraph with questions about it.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Paragraph {
    /// Its text.
    pub context: String,
    /// The questions.
    #[serde(rename = "qas")]
    pub questions: Vec<Question>,
}

/// A question about a paragraph.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Question {
    /// Its id.
    #[serde(deserialize_with = "text_or_number")]
    pub id: String,
    /// Its text.
    #[serde(rename = "question")]
    pub text: String,
    /// The answers, in development files those of several people; empty if the context has no answer;
    /// `None` if they are withheld, as in test files.
    #[serde(default)]
    pub answers: Option<Vec<Answer>>,
    /// Whether the context has no answer.
    #[serde(default, rename = "is_impossible")]
    pub impossible: bool,
}

/// An answer to a question.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Answer {
    /// Its text.
    pub text: String,
    /// Its start in the context, in code points.
    #[serde(default, rename = "answer_start")]
    pub start: Option<i64>,
}

/// What to do with answers that are not at their stated position in the context.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Misplaced {
    /// Return an error. For training.
    Refuse,
    /// Skip and count them, and skip questions that have no other answer.
    Skip,
    /// Keep them, and questions without answers too: scoring compares texts, not positions.
    Keep,
}

impl Squad {
    /// Reads a file in the official layout or one of JSON lines, each a question with its context, `.gz` or
    /// not; `-` is standard input. Errors name the file and the position in it.
    pub fn read(path: &Path, misplaced: Misplaced) -> Result<Self> {
        #[derive(Deserialize)]
        struct File {
            data: Vec<Article>,
        }
        let (first, input) = first_line(open_or_stdin(path)?, path)?;
        let squad = if flat::is_question(&first) {
            let squad = flat::read(input, path, misplaced)?;
            squad.refuse_doubles(path)?;
            squad
        } else {
            let expected =
                "SQuAD's JSON: data, paragraphs, qas; or JSON lines of question, context, answers";
            let file: File = read_json(input, path, expected)?;
            let mut squad = Self { articles: file.data, misplaced: 0 };
            squad.refuse_doubles(path)?;
            if misplaced != Misplaced::Keep {
                squad.check(path, misplaced)?;
            }
            squad
        };
        if squad.questions().next().is_none() {
            return Err(Error::file(path, "holds no question"));
        }
        Ok(squad)
    }

    /// Makes a file of questions, each with its id, its context, its text and its answers.
    pub(crate) fn of_questions<'a>(
        questions: impl IntoIterator<Item = (String, &'a str, &'a str, Option<Vec<Answer>>)>,
    ) -> Self {
        let paragraph = |(id, context, text, answers): (_, &str, &str, _)| Paragraph {
            context: context.to_owned(),
            questions: vec![Question { id, text: text.to_owned(), answers, impossible: false }],
        };
        Self {
            articles: vec![Article {
                title: String::new(),
                paragraphs: questions.into_iter().map(paragraph).collect(),
            }],
            misplaced: 0,
        }
    }

    /// Iterates over all paragraphs.
    pub fn paragraphs(&self) -> impl Iterator<Item = &Paragraph> {
        self.articles.iter().flat_map(|article| &article.paragraphs)
    }

    /// Iterates over all questions, each with its paragraph.
    pub fn questions(&self) -> impl Iterator<Item = (&Paragraph, &Question)> {
        self.paragraphs().flat_map(|paragraph| {
            let questions = paragraph.questions.iter();
            questions.map(move |question| (paragraph, question))
        })
    }

    /// Keeps the paragraphs that are held out, or the others: questions on one paragraph stay together.
    pub fn part(&mut self, split: Split, held_out: bool) {
        let all = (0..self.paragraphs().count()).collect();
        let kept = split.part(all, held_out, |_| ());
        let mut index = 0;
        for article in &mut self.articles {
            article.paragraphs.retain(|_| {
                index += 1;
                kept.binary_search(&(index - 1)).is_ok()
            });
        }
        self.articles.retain(|article| !article.paragraphs.is_empty());
    }

    /// Keeps the first `limit` questions.
    pub fn truncate(&mut self, limit: usize) {
        let mut left = limit;
        for article in &mut self.articles {
            for paragraph in &mut article.paragraphs {
                paragraph.questions.truncate(left);
                left -= paragraph.questions.len();
            }
            article.paragraphs.retain(|p| !p.questions.is_empty());
        }
        self.articles.retain(|a| !a.paragraphs.is_empty());
    }

    /// Returns an error if two questions have the same id: files of answers have one entry for both.
    fn refuse_doubles(&self, path: &Path) -> Result<()> {
        let mut seen = HashSet::new();
        match self.questions().find(|(_, q)| !seen.insert(&q.id)) {
            None => Ok(()),
            Some((_, Question { id, .. })) => {
                let message = format!("two questions have the id {id:?}; expected one of each");
                Err(Error::file(path, message))
            }
        }
    }

    /// Compares every answer with its context.
    fn check(&mut self, path: &Path, misplaced: Misplaced) -> Result<()> {
        for article in &mut self.articles {
            for Paragraph { context, questions } in &mut article.paragraphs {
                let mut fault = None;
                questions.retain_mut(|question| {
                    match question.check(context, misplaced, &mut self.misplaced) {
                        Ok(kept) => kept,
                        Err(wrong) => {
                            fault.get_or_insert(wrong);
                            false
                        }
                    }
                });
                if let Some(fault) = fault {
                    let message = format!("article {:?}, {fault}", article.title);
                    return Err(Error::file(path, message));
                }
            }
        }
        Ok(())
    }
}

impl Question {
    /// Returns whether the context has an answer, if known.
    pub fn answerable(&self) -> Option<bool> {
        let answers = self.answers.as_ref()?;
        Some(!self.impossible && !answers.is_empty())
    }

    /// Compares the answers with the context, and removes and counts those that are elsewhere. Returns
    /// whether the question is of use for training, or what is wrong with it.
    fn check(
        &mut self,
        context: &str,
        misplaced: Misplaced,
        count: &mut usize,
    ) -> std::result::Result<bool, String> {
        let Some(answers) = &mut self.answers else {
            return Err(format!("question {:?} has no answers", self.id));
        };
        let mut faults = answers.iter().filter_map(|answer| answer.fault(context));
        if let (Misplaced::Refuse, Some(wrong)) = (misplaced, faults.next()) {
            return Err(format!("question {:?}: {wrong}", self.id));
        }
        let before = answers.len();
        answers.retain(|answer| answer.place(context).is_some());
        *count += before - answers.len();
        Ok(before == answers.len() || !answers.is_empty())
    }
}

impl Answer {
    /// Returns the answer's range in the context, in code points; `None` if it isn't at its stated position
    /// or none is stated.
    pub fn place(&self, context: &str) -> Option<Range<usize>> {
        let start = usize::try_from(self.start?).ok()?;
        let length = self.text.chars().count();
        let found = after(context, start)?.starts_with(&self.text);
        (found && length > 0).then_some(start..start + length)
    }

    /// Describes what is wrong with the answer's position, if anything.
    fn fault(&self, context: &str) -> Option<String> {
        if self.place(context).is_some() {
            return None;
        }
        let text = shortened(&self.text);
        Some(match (self.start, context.find(&self.text)) {
            (None, Some(_)) => format!("the answer {text:?} has no answer_start"),
            (None, None) => format!("the answer {text:?} is nowhere in the context"),
            _ if self.text.is_empty() => "an answer is empty".to_owned(),
            (Some(start), None) => {
                format!("the answer {text:?} (answer_start {start}) is nowhere in the context")
            }
            (Some(start), Some(byte)) => format!(
                "the answer {text:?} is not at answer_start {start} of the context, but at {} \
                 (counted in Unicode code points)",
                context[..byte].chars().count()
            ),
        })
    }
}

/// Returns the text after the first `skip` code points.
fn after(text: &str, skip: usize) -> Option<&str> {
    let mut rest = text.chars();
    if skip > 0 {
        rest.nth(skip - 1)?;
    }
    Some(rest.as_str())
}

/// Reads an id: a text in SQuAD, a number in some data sets of the same layout.
fn text_or_number<'de, D: Deserializer<'de>>(from: D) -> std::result::Result<String, D::Error> {
    Id::deserialize(from).map(Id::text)
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "a text or a whole number")]
enum Id {
    Text(String),
    Number(i64),
}

impl Id {
    fn text(self) -> String {
        match self {
            Self::Text(text) => text,
            Self::Number(number) => number.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::test_file;

    fn read(text: &str, misplaced: Misplaced) -> Result<Squad> {
        let (_folder, path) = test_file("squad.json", text);
        Squad::read(&path, misplaced)
    }

    /// A file with one paragraph and these questions.
    fn file(context: &str, questions: &str) -> String {
        format!(
            r#"{{"version": "v2.0", "data": [{{"title": "T", "paragraphs":
                [{{"context": {context:?}, "qas": [{questions}]}}]}}]}}"#
        )
    }

    fn question(id: &str, answers: &str) -> String {
        format!(r#"{{"id": {id}, "question": "Who?", "answers": [{answers}]}}"#)
    }

    fn answer(text: &str, start: i64) -> String {
        format!(r#"{{"text": {text:?}, "answer_start": {start}}}"#)
    }

    #[test]
    fn positions_are_counted_in_code_points() {
        let context = "Ωmega 𝛼 São Tomé";
        let good = answer("São", 8);
        let squad = read(&file(context, &question("\"q\"", &good)), Misplaced::Refuse).unwrap();
        let (paragraph, q) = squad.questions().next().unwrap();
        let answers = q.answers.as_ref().unwrap();
        assert_eq!(answers[0].place(&paragraph.context), Some(8..11));
        // As counted in bytes or in UTF-16.
        for start in [9, 12, -1, 99] {
            let text = file(context, &question("7", &answer("São", start)));
            let message = read(&text, Misplaced::Refuse).unwrap_err().to_string();
            let expected = format!(
                "article \"T\", question \"7\": the answer \"São\" is not at answer_start {start} \
                 of the context, but at 8"
            );
            assert!(message.contains(&expected), "{message}");
            assert!(message.contains("squad.json"), "{message}");
        }
        let gone = file(context, &question("7", &answer("Rio", 2)));
        let message = read(&gone, Misplaced::Refuse).unwrap_err().to_string();
        assert!(message.contains("nowhere in the context"), "{message}");
    }

    #[test]
    fn misplaced_answers_are_skipped_with_questions_that_have_no_other() {
        let bad = answer("Rome", 4);
        let good = answer("Oslo", 0);
        let questions =
            [question("1", &bad), question("2", &format!("{bad}, {good}")), question("3", "")];
        let text = file("Oslo, Norway", &questions.join(","));
        let squad = read(&text, Misplaced::Skip).unwrap();
        let ids: Vec<&str> = squad.questions().map(|(_, q)| q.id.as_str()).collect();
        assert_eq!((ids, squad.misplaced), (vec!["2", "3"], 2));
        let mut squad = read(&text, Misplaced::Keep).unwrap();
        assert_eq!((squad.questions().count(), squad.misplaced), (3, 0));
        squad.truncate(2);
        assert_eq!(squad.questions().count(), 2);
        squad.truncate(0);
        assert!(squad.articles.is_empty());
    }

    #[test]
    fn two_questions_with_the_same_id_are_refused() {
        let one = question("\"7\"", &answer("Oslo", 0));
        let other = question("8", "");
        let number = question("7", "");
        let text = file("Oslo", &[&*one, &other, &number].join(","));
        for misplaced in [Misplaced::Refuse, Misplaced::Skip, Misplaced::Keep] {
            let message = read(&text, misplaced).unwrap_err().to_string();
            let expected = "squad.json: two questions have the id \"7\"; expected one of each";
            assert!(message.ends_with(expected), "{message}");
        }
        assert!(read(&file("Oslo", &[one, other].join(",")), Misplaced::Keep).is_ok());
    }

    #[test]
    fn test_files_have_no_answers_and_cannot_be_trained_on() {
        let text = file("Oslo", r#"{"id": "a", "question": "Where?"}"#);
        let squad = read(&text, Misplaced::Keep).unwrap();
        assert_eq!(squad.questions().next().unwrap().1.answerable(), None);
        let message = read(&text, Misplaced::Skip).unwrap_err().to_string();
        assert!(message.contains("question \"a\" has no answers"));
        let question = r#"{"id": "a", "question": "Where?", "answers": [{"text": "Oslo"}]}"#;
        let text = file("Oslo", question);
        assert!(read(&text, Misplaced::Keep).is_ok());
        let message = read(&text, Misplaced::Refuse).unwrap_err().to_string();
        assert!(message.contains("\"Oslo\" has no answer_start"));
    }

    #[test]
    fn other_json_is_refused_with_its_position() {
        let message = |text: &str| read(text, Misplaced::Keep).unwrap_err().to_string();
        let got = message(&file("x", r#"{"id": "a", "answers": []}"#));
        let expected = "data[0].paragraphs[0].qas[0]: missing field `question` at line";
        assert!(got.contains(expected), "{got}");
        let got = message(&file("x", r#"{"id": 1.5, "question": "?"}"#));
        assert!(got.contains("qas[0].id: a text or a whole number"), "{got}");
        let got = message(r#"{"data": [{"title": "T"}]}"#);
        assert!(got.contains("data[0]: missing field `paragraphs`"), "{got}");
        let cut = file("x", &question("1", ""));
        let got = message(&cut[..cut.len() - 9]);
        assert!(got.contains("EOF while parsing"), "{got}");
        assert!(message(&format!("{cut} x")).contains("trailing characters"));
        assert!(message(r#"{"data": []}"#).contains("holds no question"));
        assert!(message("").contains("EOF"), "{}", message(""));
    }
}
