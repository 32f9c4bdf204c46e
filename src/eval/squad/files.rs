//! The files of SQuAD's tools: predictions.json, nbest_predictions.json, null_odds.json.

use std::path::Path;

use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::error::{Error, Result};
use crate::text::reader::{open_or_stdin, read_json};

use super::{Answers, Predictions, Ranked};

/// Reads answers by question id: `{"id": "text"}`, `.gz` or not.
pub fn read_texts(path: &Path) -> Result<Predictions> {
    read_json(open_or_stdin(path)?, path, "an answer for each question id: {\"id\": \"text\"}")
}

/// Reads numbers by question id, in the order of the file: `{"id": 0.5}`, `.gz` or not.
pub fn read_numbers(path: &Path) -> Result<Vec<(String, f64)>> {
    const EXPECTED: &str = "a number for each question id: {\"id\": 0.5}";
    let numbers: Map<String, Value> = read_json(open_or_stdin(path)?, path, EXPECTED)?;
    numbers
        .into_iter()
        .map(|(id, value)| match value.as_f64() {
            Some(number) => Ok((id, number)),
            None => {
                let message = format!("question {id:?} has {value}; expected {EXPECTED}");
                Err(Error::file(path, message))
            }
        })
        .collect()
}

/// Returns the answers by question id: the best, or the empty one if the null odds exceed `threshold`.
pub fn predictions(answers: &[Answers], threshold: f64) -> Predictions {
    let text = |answers: &Answers| (answers.id.clone(), answers.text(threshold).to_owned());
    answers.iter().map(text).collect()
}

impl Answers {
    /// Returns the best answer, or the empty one if the null odds exceed `threshold`.
    pub fn text(&self, threshold: f64) -> &str {
        match self.null_odds {
            Some(odds) if odds > threshold => "",
            _ => &self.best,
        }
    }
}

/// Returns the names and contents of the official files: predictions.json, nbest_predictions.json and, if
/// questions may have no answer, null_odds.json.
pub fn files(answers: &[Answers], threshold: f64) -> Vec<(&'static str, String)> {
    let by_id = |value: &dyn Fn(&Answers) -> Value| {
        let entries = answers.iter();
        indented(&entries.map(|a| (a.id.clone(), value(a))).collect())
    };
    let ranked = |ranked: &Ranked| {
        json!({
            "text": ranked.text,
            "probability": ranked.probability,
            "start_logit": f64::from(ranked.start_logit),
            "end_logit": f64::from(ranked.end_logit),
        })
    };
    let best = by_id(&|answers| answers.text(threshold).into());
    let n_best = by_id(&|answers| answers.n_best.iter().map(ranked).collect());
    let mut files = vec![("predictions.json", best), ("nbest_predictions.json", n_best)];
    if answers.iter().any(|answers| answers.null_odds.is_some()) {
        files.push(("null_odds.json", by_id(&|answers| answers.null_odds.into())));
    }
    files
}

/// Formats JSON as run_squad.py does: indented by four blanks, with a final line end.
fn indented(value: &Map<String, Value>) -> String {
    let mut bytes = Vec::new();
    let indent = serde_json::ser::PrettyFormatter::with_indent(b"    ");
    let mut json = serde_json::Serializer::with_formatter(&mut bytes, indent);
    // Texts, numbers and lists can't fail to serialise, and JSON is UTF-8.
    value.serialize(&mut json).expect("plain data");
    bytes.push(b'\n');
    String::from_utf8(bytes).expect("JSON is UTF-8")
}
