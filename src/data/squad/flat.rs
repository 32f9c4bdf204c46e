//! Questions as JSON lines, one object a question with its context, as the data sets `squad` and `squad_v2` of the
//! Hub are written.
//!
//! Answers are `{"text": [...], "answer_start": [...]}`, a list of `{"text", "answer_start"}`, or a list of texts.
//! An answer without a start is searched in the context. No answer means that the context has none.

use std::path::Path;

use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::error::{Error, Result};
use crate::text::reader::{Input, Lines};

use super::{Answer, Article, Id, Misplaced, Paragraph, Question, Squad};

/// A line of a file.
#[derive(Deserialize)]
struct Line {
    id: Option<Id>,
    question: String,
    context: String,
    answers: Option<Answers>,
    #[serde(default)]
    is_impossible: bool,
}

#[derive(Deserialize)]
#[serde(
    untagged,
    expecting = "answers are {\"text\": [...], \"answer_start\": [...]}, a list of objects with text and answer_start, or \
                 a list of texts"
)]
enum Answers {
    Columns { text: Vec<String>, answer_start: Option<Vec<i64>> },
    Objects(Vec<Answer>),
    Texts(Vec<String>),
}

/// Returns whether a line is a question with its context, which SQuAD's own files have nowhere in one line.
pub(super) fn is_question(line: &str) -> bool {
    #[derive(Deserialize)]
    struct Asked {
        #[serde(rename = "question")]
        _question: IgnoredAny,
        #[serde(rename = "context")]
        _context: IgnoredAny,
    }
    serde_json::from_str::<Asked>(line).is_ok()
}

/// Reads all questions. Those of neighbouring lines with the same context make a paragraph.
pub(super) fn read(input: Input, path: &Path, misplaced: Misplaced) -> Result<Squad> {
    let mut paragraphs: Vec<Paragraph> = Vec::new();
    let mut count = 0;
    let lines = Lines::new(input, path).filled();
    let lines = lines.filter(|(_, line)| !matches!(line, Ok(line) if line.trim().is_empty()));
    for (place, (number, line)) in lines.enumerate() {
        let wrong = |message: String| Error::line(path, number, message);
        let line: Line = serde_json::from_str(&line?)
            .map_err(|e| wrong(format!("is no question with context and answers: {e}")))?;
        let context = line.context;
        let answers = line.answers.map(|answers| answers.placed(&context)).transpose();
        let mut question = Question {
            id: line.id.map_or_else(|| place.to_string(), Id::text),
            text: line.question,
            answers: answers.map_err(wrong)?,
            impossible: line.is_impossible,
        };
        let kept = match misplaced {
            Misplaced::Keep => true,
            _ => question.check(&context, misplaced, &mut count).map_err(wrong)?,
        };
        if !kept {
            continue;
        }
        match paragraphs.last_mut() {
            Some(last) if last.context == context => last.questions.push(question),
            _ => paragraphs.push(Paragraph { context, questions: vec![question] }),
        }
    }
    let article = Article { title: String::new(), paragraphs };
    Ok(Squad { articles: vec![article], misplaced: count })
}

impl Answers {
    /// Returns the answers with their starts in the context, as far as it has them, or what is wrong with them.
    fn placed(self, context: &str) -> std::result::Result<Vec<Answer>, String> {
        let unplaced = |text| Answer { text, start: None };
        let mut answers = match self {
            Self::Columns { text, answer_start: Some(starts) } => {
                if text.len() != starts.len() {
                    let (texts, starts) = (text.len(), starts.len());
                    return Err(format!(
                        "the answers have {texts} texts, but {starts} numbers in answer_start"
                    ));
                }
                let answer = |(text, start)| Answer { text, start: Some(start) };
                text.into_iter().zip(starts).map(answer).collect()
            }
            Self::Columns { text: texts, answer_start: None } | Self::Texts(texts) => {
                texts.into_iter().map(unplaced).collect()
            }
            Self::Objects(answers) => answers,
        };
        for answer in answers.iter_mut().filter(|answer| answer.start.is_none()) {
            let found = context.find(&answer.text);
            answer.start = found.map(|byte| context[..byte].chars().count() as i64);
        }
        Ok(answers)
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

    fn line(answers: &str) -> String {
        format!(
            r#"{{"id": "a", "title": "T", "context": "São Tomé, 1470", "question": "When?"{answers}}}"#
        )
    }

    fn message(text: &str, misplaced: Misplaced) -> String {
        read(text, misplaced).unwrap_err().to_string()
    }

    #[test]
    fn every_layout_of_answers_gives_the_same_question() {
        for answers in [
            r#"{"text": ["1470", "Tomé"], "answer_start": [10, 4]}"#,
            r#"{"answer_start": [10, 4], "text": ["1470", "Tomé"]}"#,
            r#"[{"text": "1470", "answer_start": 10}, {"text": "Tomé"}]"#,
            r#"["1470", "Tomé"]"#,
            r#"{"text": ["1470", "Tomé"]}"#,
        ] {
            let text = format!("\n{}\n", line(&format!(", \"answers\": {answers}")));
            let squad = read(&text, Misplaced::Refuse).unwrap();
            let (paragraph, question) = squad.questions().next().unwrap();
            let places = question.answers.iter().flatten().map(|a| a.place(&paragraph.context));
            assert!(places.eq([Some(10..14), Some(4..8)]), "{answers}");
            assert_eq!((question.id.as_str(), question.answerable()), ("a", Some(true)));
        }
    }

    #[test]
    fn questions_need_no_id_and_no_answer() {
        let asked =
            |answers: &str| format!("{{\"question\": \"?\", \"context\": \"Oslo\"{answers}}}\n");
        let text = [
            asked(r#", "answers": {"text": [], "answer_start": []}"#),
            asked(r#", "answers": []"#),
            asked(r#", "id": 7"#),
            asked(r#", "answers": null"#).replace("Oslo", "Rome"),
        ];
        let squad = read(&text.concat(), Misplaced::Keep).unwrap();
        let questions: Vec<_> =
            squad.questions().map(|(_, q)| (q.id.as_str(), q.answerable())).collect();
        let expected = [("0", Some(false)), ("1", Some(false)), ("7", None), ("3", None)];
        assert_eq!(questions, expected);
        assert_eq!(squad.paragraphs().count(), 2);
        let error = message(&text.concat(), Misplaced::Refuse);
        assert!(error.ends_with("squad.json:3: question \"7\" has no answers"), "{error}");
        let twice = asked(r#", "id": "1""#).repeat(2);
        assert!(message(&twice, Misplaced::Keep).contains("two questions have the id"));
    }

    #[test]
    fn a_bad_line_is_named() {
        let good = line(r#", "answers": ["1470"]"#).replace("\"a\"", "\"b\"");
        for case in [
            r#", "answers": {"text": ["1470"], "answer_start": []}|the answers have 1 texts, but 0 numbers"#,
            r#", "answers": ["1471"]|question "a": the answer "1471" is nowhere in the context"#,
            r#", "answers": {"text": ["1470"], "answer_start": [9]}|"1470" is not at answer_start 9 of the context, but at 10"#,
            r#", "answers": 5|is no question with context and answers: answers are {"text""#,
            r#", "question": |is no question"#,
        ] {
            let (answers, expected) = case.split_once('|').unwrap();
            let error = message(&format!("{good}\n{}", line(answers)), Misplaced::Refuse);
            assert!(error.contains("squad.json:2: ") && error.contains(expected), "{error}");
        }
        let gone = line(r#", "answers": ["1471"]"#);
        let squad = read(&format!("{good}\n{gone}"), Misplaced::Skip).unwrap();
        assert_eq!((squad.questions().count(), squad.misplaced), (1, 1));
        assert!(message(&gone, Misplaced::Skip).contains("holds no question"));
    }
}
