//! The bank of questions with which the course is remembered: a file of TOML for each lesson, and one for the
//! test that is taken before and after the core.

use serde::Deserialize;

use super::SOURCES;
use crate::error::{Error, Result};

/// How a question is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Choose the right statement.
    Choose,
    /// Predict what a program prints.
    Predict,
    /// Say why a cell compiles or does not.
    Compiles,
}

/// An option with its explanation: why it is right, or what leads to it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Choice(pub String, pub String);

/// A question with exactly one right option.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Question {
    /// Its name in the learner's file; it never changes.
    pub key: String,
    /// The number of its lesson; empty in the test before and after the core.
    #[serde(skip)]
    pub lesson: String,
    /// How it is asked.
    pub kind: Kind,
    /// The question.
    pub text: String,
    /// The program that it is about.
    pub code: Option<String>,
    /// Whether the program compiles, in a question of that kind.
    pub compiles: Option<bool>,
    /// The topic, in the test before and after the core.
    pub topic: Option<String>,
    /// The right option.
    pub right: Choice,
    /// The wrong options.
    pub wrong: Vec<Choice>,
}

/// A file of questions.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Bank {
    question: Vec<Question>,
}

macro_rules! banks {
    ($($name:literal)*) => {
        [$(($name, include_str!(concat!("../../lessons/questions/", $name, ".toml")))),*]
    };
}

/// The files: one for each lesson, by the lesson's number, and last that of the test before and after the core.
pub(super) const FILES: [(&str, &str); SOURCES.len() + 1] = banks! {
    "00" "01" "02" "03" "04" "05" "06" "07" "08" "09" "10" "11" "12" "13" "14" "15" "16" "17" "18" "19"
    "20" "21" "22" "23" "24" "25" "26" "27" "28" "test"
};

impl Question {
    /// Returns the options in the order in which they are shown, each with whether it is right. The order
    /// depends on the key alone.
    pub fn options(&self) -> Vec<(&Choice, bool)> {
        let mut options: Vec<_> = self.wrong.iter().map(|choice| (choice, false)).collect();
        let sum = self.key.bytes().fold(7_usize, |sum, byte| (sum * 31 + byte as usize) % 10_007);
        options.insert(sum % (options.len() + 1), (&self.right, true));
        options
    }
}

/// Returns the questions of all lessons, in the order of the course.
///
/// # Errors
/// If a file of the bank is not valid.
pub fn all() -> Result<Vec<Question>> {
    let mut all = Vec::new();
    for (lesson, text) in &FILES[..SOURCES.len()] {
        all.extend(read(lesson, text)?.into_iter().map(|mut question| {
            question.lesson = (*lesson).to_owned();
            question
        }));
    }
    Ok(all)
}

/// Returns the questions of the test before and after the core. No lesson asks them.
///
/// # Errors
/// If the file is not valid.
pub fn test() -> Result<Vec<Question>> {
    let (name, text) = FILES[SOURCES.len()];
    read(name, text)
}

fn read(name: &str, text: &str) -> Result<Vec<Question>> {
    let bank = toml::from_str::<Bank>(text);
    let path = format!("lessons/questions/{name}.toml");
    bank.map(|bank| bank.question).map_err(|e| Error::file(path, e.to_string()))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_question_is_complete_and_gives_nothing_away() {
        let (mut keys, mut longest) = (HashSet::new(), 0);
        let questions = [all().unwrap(), test().unwrap()].concat();
        for question in &questions {
            let key = &question.key;
            assert!(keys.insert(key.clone()), "{key} is there twice");
            let options = question.options();
            assert!((3..=4).contains(&options.len()), "{key}");
            let texts: HashSet<_> = options.iter().map(|(choice, _)| choice.0.trim()).collect();
            assert_eq!(texts.len(), options.len(), "{key} has two equal options");
            for (Choice(text, why), _) in options {
                assert!((1..=160).contains(&text.chars().count()), "{key}: {text}");
                assert!((8..=400).contains(&why.chars().count()), "{key}: {why}");
            }
            assert!((10..=500).contains(&question.text.chars().count()), "{key}");
            assert_eq!(question.compiles.is_some(), question.kind == Kind::Compiles, "{key}");
            assert!(question.code.is_some() || question.kind == Kind::Choose, "{key}");
            let length = |choice: &Choice| choice.0.chars().count();
            let longer = question.wrong.iter().all(|wrong| length(wrong) < length(&question.right));
            longest += usize::from(longer);
        }
        let share = longest as f64 / questions.len() as f64;
        assert!(share < 0.4, "the right option is the longest in {share:.2} of the questions");
    }

    #[test]
    fn every_lesson_can_end_with_five_and_the_first_leaves_three_for_the_second() {
        let all = all().unwrap();
        for (lesson, _) in &FILES[..SOURCES.len()] {
            let count = all.iter().filter(|question| question.lesson == *lesson).count();
            assert!(count >= if *lesson == "00" { 8 } else { 5 }, "{lesson} has {count}");
        }
    }

    #[test]
    fn the_test_has_twenty_questions_with_topics_and_the_lessons_have_none() {
        let test = test().unwrap();
        assert_eq!(test.len(), 20);
        assert!(test.iter().all(|question| question.topic.is_some()));
        assert!(all().unwrap().iter().all(|question| question.topic.is_none()));
    }
}
