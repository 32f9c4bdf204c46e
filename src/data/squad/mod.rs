//! SQuAD 1.1 and 2.0 (Rajpurkar et al., arXiv 1606.05250 and 1806.03822): questions about Wikipedia's
//! paragraphs, each answered by a span of its paragraph or, in 2.0, by nothing in it.
//!
//! Articles hold paragraphs, paragraphs a context and its questions, questions their answers. Where an
//! answer starts is counted in Unicode code points of the context. Copies of the data differ in how
//! well that count was kept, so [`Squad::read`] holds every answer against its context.

mod windows;

use std::collections::HashSet;
use std::ops::Range;
use std::path::Path;

use serde::{Deserialize, Deserializer};

use crate::error::{Error, Result};
use crate::text::reader::read_json;

use super::labels::shortened;

pub use windows::{WindowOptions, Windows};

/// A file of SQuAD.
#[derive(Debug, Clone, PartialEq)]
pub struct Squad {
    pub articles: Vec<Article>,
    /// Answers that were left out because they don't stand where they should.
    pub misplaced: usize,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Article {
    #[serde(default)]
    pub title: String,
    pub paragraphs: Vec<Paragraph>,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Paragraph {
    pub context: String,
    #[serde(rename = "qas")]
    pub questions: Vec<Question>,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Question {
    #[serde(deserialize_with = "text_or_number")]
    pub id: String,
    #[serde(rename = "question")]
    pub text: String,
    /// Several people's answers in development files; none where nothing in the context answers;
    /// `None` where they are kept back, as in test files.
    #[serde(default)]
    pub answers: Option<Vec<Answer>>,
    #[serde(default, rename = "is_impossible")]
    pub impossible: bool,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Answer {
    pub text: String,
    /// Where the answer starts in the context, in code points.
    #[serde(default, rename = "answer_start")]
    pub start: Option<i64>,
}

/// What becomes of answers that don't stand in their context where they should.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Misplaced {
    /// The file is refused. For training.
    Refuse,
    /// They are left out and counted, and with them questions that have no other answer.
    Skip,
    /// They stay: scoring compares texts and looks at no place. Questions need no answers then.
    Keep,
}

/// The whole file.
#[derive(Deserialize)]
struct File {
    data: Vec<Article>,
}

impl Squad {
    /// Reads a file in the official layout, `.gz` or not; `-` is standard input. Errors name the
    /// file and the place in it.
    pub fn read(path: &Path, misplaced: Misplaced) -> Result<Self> {
        let file: File = read_json(path, "SQuAD's JSON: data, paragraphs, qas")?;
        let mut squad = Self {
            articles: file.data,
            misplaced: 0,
        };
        squad.refuse_doubles(path)?;
        if misplaced != Misplaced::Keep {
            squad.check(path, misplaced)?;
        }
        if squad.questions().next().is_none() {
            return Err(Error::file(path, "holds no question"));
        }
        Ok(squad)
    }

    /// All paragraphs in order.
    pub fn paragraphs(&self) -> impl Iterator<Item = &Paragraph> {
        self.articles.iter().flat_map(|article| &article.paragraphs)
    }

    /// All questions in order, each with its paragraph.
    pub fn questions(&self) -> impl Iterator<Item = (&Paragraph, &Question)> {
        self.paragraphs().flat_map(|paragraph| {
            let questions = paragraph.questions.iter();
            questions.map(move |question| (paragraph, question))
        })
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

    /// Refuses two questions of one id: files of answers have one place for both.
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

    /// Holds every answer against its context.
    fn check(&mut self, path: &Path, misplaced: Misplaced) -> Result<()> {
        for article in &mut self.articles {
            for Paragraph { context, questions } in &mut article.paragraphs {
                let mut fault = None;
                questions.retain_mut(|question| {
                    let Some(answers) = &mut question.answers else {
                        fault.get_or_insert(format!("question {:?} has no answers", question.id));
                        return false;
                    };
                    let before = answers.len();
                    answers.retain(|answer| {
                        let wrong = answer.fault(context);
                        if let (Some(wrong), Misplaced::Refuse) = (&wrong, misplaced) {
                            fault.get_or_insert(format!("question {:?}: {wrong}", question.id));
                        }
                        wrong.is_none()
                    });
                    self.misplaced += before - answers.len();
                    before == answers.len() || !answers.is_empty()
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
    /// Whether it is known that the context answers it, or that it doesn't.
    pub fn answerable(&self) -> Option<bool> {
        let answers = self.answers.as_ref()?;
        Some(!self.impossible && !answers.is_empty())
    }
}

impl Answer {
    /// The code points of the context that are the answer; `None` where it stands elsewhere or it
    /// isn't said where.
    pub fn place(&self, context: &str) -> Option<Range<usize>> {
        let start = usize::try_from(self.start?).ok()?;
        let length = self.text.chars().count();
        let found = after(context, start)?.starts_with(&self.text);
        (found && length > 0).then_some(start..start + length)
    }

    /// What is wrong with the answer's place.
    fn fault(&self, context: &str) -> Option<String> {
        if self.place(context).is_some() {
            return None;
        }
        let text = shortened(&self.text);
        Some(match (self.start, context.find(&self.text)) {
            (None, _) => format!("the answer {text:?} has no answer_start"),
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

/// The text behind the first `skip` code points.
fn after(text: &str, skip: usize) -> Option<&str> {
    let mut rest = text.chars();
    if skip > 0 {
        rest.nth(skip - 1)?;
    }
    Some(rest.as_str())
}

/// Ids are texts in SQuAD, numbers in some sets that took over its layout.
fn text_or_number<'de, D: Deserializer<'de>>(from: D) -> std::result::Result<String, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "a text or a whole number")]
    enum Id {
        Text(String),
        Number(i64),
    }
    Ok(match Id::deserialize(from)? {
        Id::Text(text) => text,
        Id::Number(number) => number.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, misplaced: Misplaced) -> Result<Squad> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("squad.json");
        std::fs::write(&path, text).unwrap();
        Squad::read(&path, misplaced)
    }

    /// One paragraph with these questions.
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
    fn places_are_counted_in_code_points() {
        let context = "Ωmega 𝛼 São Tomé";
        let good = answer("São", 8);
        let squad = read(&file(context, &question("\"q\"", &good)), Misplaced::Refuse).unwrap();
        let (paragraph, q) = squad.questions().next().unwrap();
        let answers = q.answers.as_ref().unwrap();
        assert_eq!(answers[0].place(&paragraph.context), Some(8..11));
        // As bytes or as UTF-16 would count it.
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
    fn misplaced_answers_are_left_out_with_questions_that_have_no_other() {
        let bad = answer("Rome", 4);
        let good = answer("Oslo", 0);
        let questions = [
            question("1", &bad),
            question("2", &format!("{bad}, {good}")),
            question("3", ""),
        ];
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

    /// Whatever is done with the questions: trained on, answered or scored.
    #[test]
    fn two_questions_of_one_id_are_refused() {
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
    fn tests_have_no_answers_and_can_not_be_trained_on() {
        let text = file("Oslo", r#"{"id": "a", "question": "Where?"}"#);
        let squad = read(&text, Misplaced::Keep).unwrap();
        assert_eq!(squad.questions().next().unwrap().1.answerable(), None);
        let message = read(&text, Misplaced::Skip).unwrap_err().to_string();
        assert!(
            message.contains("question \"a\" has no answers"),
            "{message}"
        );
        let text = file(
            "Oslo",
            r#"{"id": "a", "question": "Where?", "answers": [{"text": "Oslo"}]}"#,
        );
        assert!(read(&text, Misplaced::Keep).is_ok());
        let message = read(&text, Misplaced::Refuse).unwrap_err().to_string();
        assert!(
            message.contains("\"Oslo\" has no answer_start"),
            "{message}"
        );
    }

    #[test]
    fn what_is_no_squad_is_refused_with_its_place() {
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
