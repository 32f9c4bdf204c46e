//! The official scores of SQuAD: exact match and F1 of words, as in evaluate-v2.0.py, with sums in the same
//! order so that they agree to the last digit. If every question has an answer, as in SQuAD 1.1, they are
//! those of evaluate-v1.1.py.
//!
//! A question without a prediction scores 0, as in evaluate-v1.1.py (evaluate-v2.0.py exits).

mod answers;
mod files;
mod normalise;

use std::collections::HashMap;

use serde_json::{Map, Value};

use crate::data::squad::{Question, Squad};
use crate::error::{Error, Result};

pub use answers::{AnswerOptions, Answers, Ranked, answer, threshold};
pub use files::{files, predictions, read_numbers, read_texts};
pub use normalise::{f1, normalise};

/// Predicted answers by question id; an empty text means that there is no answer.
pub type Predictions = HashMap<String, String>;

/// A model's scores for questions having no answer.
#[derive(Debug, Clone, PartialEq)]
pub struct NoAnswer {
    /// A score for each question id: a probability, or any number that grows with it. Their order decides
    /// between equals in the search for the best threshold.
    pub scores: Vec<(String, f64)>,
    /// A prediction counts as empty if its score exceeds this.
    pub threshold: f64,
}

/// Mean scores of questions, in percent.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Figures {
    /// Share of predictions that equal an answer, both normalised.
    pub exact: f64,
    /// Mean F1 of the words of each prediction and the answer most similar to it.
    pub f1: f64,
    /// Number of questions.
    pub total: usize,
}

/// The best score over all thresholds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Best {
    /// The score in percent.
    pub score: f64,
    /// The threshold; `None` if it is best to answer nothing, for which the official script prints 0.
    pub threshold: Option<f64>,
}

/// The scores of a file of predictions.
#[derive(Debug, Clone, PartialEq)]
pub struct Scores {
    /// Scores of all questions.
    pub all: Figures,
    /// Scores of the questions that have an answer, if there are any.
    pub has_answer: Option<Figures>,
    /// Scores of the questions that have none, if there are any.
    pub no_answer: Option<Figures>,
    /// The best exact match and F1 over all thresholds, if no-answer scores are given.
    pub best: Option<[Best; 2]>,
    /// Questions without a prediction.
    pub missing: Vec<String>,
}

/// A question's scores, before any threshold.
struct Raw<'d> {
    id: &'d str,
    exact: f64,
    f1: f64,
    has_answer: bool,
    /// Whether the prediction is not empty; `None` without a prediction.
    answered: Option<bool>,
}

/// Scores predictions. Fails if a question has no answers to compare with, or a prediction but no no-answer
/// score.
pub fn score(
    squad: &Squad,
    predictions: &Predictions,
    no_answer: Option<&NoAnswer>,
) -> Result<Scores> {
    let raw = raw(squad, predictions, no_answer.is_some())?;
    let scores: Option<HashMap<&str, f64>> =
        no_answer.map(|no_answer| pairs(&no_answer.scores).collect());
    let mut scored = Vec::with_capacity(raw.len());
    for question in &raw {
        let empty = match (no_answer, &scores, question.answered) {
            (Some(NoAnswer { threshold, .. }), Some(scores), Some(_)) => {
                let score = scores.get(question.id).ok_or_else(|| {
                    let id = question.id;
                    Error::Failed(format!(
                        "question {id:?} has a prediction, but no no-answer score"
                    ))
                })?;
                score > threshold
            }
            _ => false,
        };
        scored.push(if empty {
            let right = f64::from(!question.has_answer);
            (right, right)
        } else {
            (question.exact, question.f1)
        });
    }
    let figures = |wanted: Option<bool>| {
        let chosen = raw.iter().zip(&scored);
        let chosen = chosen.filter(|(q, _)| wanted.is_none_or(|has| has == q.has_answer));
        figures(chosen.map(|(_, scores)| *scores))
    };
    let missing = raw.iter().filter(|question| question.answered.is_none());
    Ok(Scores {
        all: figures(None).ok_or_else(|| Error::Failed("there is no question".to_owned()))?,
        has_answer: figures(Some(true)),
        no_answer: figures(Some(false)),
        best: no_answer.map(|no_answer| {
            [
                sweep(&raw, &no_answer.scores, |question| question.exact),
                sweep(&raw, &no_answer.scores, |question| question.f1),
            ]
        }),
        missing: missing.map(|question| question.id.to_owned()).collect(),
    })
}

/// Scores all questions in the order of the file. Of questions with the same id the last one counts, at the
/// position of the first, as in the script's dictionaries. With `some_unanswered`, or if the file has such
/// questions, the rules are those of evaluate-v2.0.py.
fn raw<'d>(
    squad: &'d Squad,
    predictions: &Predictions,
    some_unanswered: bool,
) -> Result<Vec<Raw<'d>>> {
    // The scripts differ in answers of only articles and punctuation. To the older one they are answers like
    // any other: equal to each other, but without a common word.
    let unanswered = |q: &Question| q.impossible || q.answers.as_ref().is_some_and(Vec::is_empty);
    let newer = some_unanswered || squad.questions().any(|(_, question)| unanswered(question));
    let f1 = |gold: &str, text: &str| {
        if newer || !gold.is_empty() { f1(gold, text) } else { 0.0 }
    };
    let mut all: Vec<Raw<'d>> = Vec::new();
    let mut indices: HashMap<&str, usize> = HashMap::new();
    for (_, question) in squad.questions() {
        let id = question.id.as_str();
        let answers = question.answers.as_ref().ok_or_else(|| {
            Error::Failed(format!("question {id:?} has no answers to compare with"))
        })?;
        let mut gold: Vec<String> = answers.iter().map(|a| normalise(&a.text)).collect();
        if newer {
            gold.retain(|answer| !answer.is_empty());
            if gold.is_empty() {
                gold.push(String::new());
            }
        }
        let predicted = predictions.get(id).map(|text| (text, normalise(text)));
        let most = |measure: &dyn Fn(&str, &str) -> f64| match &predicted {
            None => 0.0,
            Some((_, text)) => gold.iter().map(|g| measure(g, text)).fold(0.0, f64::max),
        };
        let scored = Raw {
            id,
            exact: most(&|gold, text| f64::from(gold == text)),
            f1: most(&f1),
            has_answer: !answers.is_empty(),
            answered: predicted.as_ref().map(|(text, _)| !text.is_empty()),
        };
        match indices.get(id) {
            Some(&index) => all[index] = scored,
            None => {
                indices.insert(id, all.len());
                all.push(scored);
            }
        }
    }
    Ok(all)
}

fn pairs(scores: &[(String, f64)]) -> impl Iterator<Item = (&str, f64)> {
    scores.iter().map(|(id, score)| (id.as_str(), *score))
}

/// Averages scores, summing from first to last as Python did until 3.11; `None` if there are none.
fn figures(scores: impl Iterator<Item = (f64, f64)>) -> Option<Figures> {
    let (mut exact, mut f1, mut total) = (0.0, 0.0, 0);
    for (e, f) in scores {
        exact += e;
        f1 += f;
        total += 1;
    }
    (total > 0).then(|| Figures {
        exact: 100.0 * exact / total as f64,
        f1: 100.0 * f1 / total as f64,
        total,
    })
}

/// Finds the best threshold: answers one more question at a time, the most certain first
/// (`find_best_thresh`).
fn sweep(raw: &[Raw], no_answer: &[(String, f64)], measure: impl Fn(&Raw) -> f64) -> Best {
    let known = raw.iter().filter(|question| question.answered.is_some());
    let by_id: HashMap<&str, &Raw> = known.map(|question| (question.id, question)).collect();
    let mut order: Vec<(&str, f64)> = pairs(no_answer).collect();
    // Adding 0 makes both zeros the same number.
    order.sort_by(|a, b| (a.1 + 0.0).total_cmp(&(b.1 + 0.0)));
    // If nothing is answered, exactly the questions without an answer are right.
    let mut sum = by_id.values().filter(|q| !q.has_answer).count() as f64;
    let mut best = (sum, None);
    for (id, score) in order {
        let Some(question) = by_id.get(id) else {
            continue;
        };
        sum += match (question.has_answer, question.answered) {
            (true, _) => measure(question),
            (false, Some(true)) => -1.0,
            (false, _) => 0.0,
        };
        if sum > best.0 {
            best = (sum, Some(score));
        }
    }
    Best { score: 100.0 * best.0 / raw.len() as f64, threshold: best.1 }
}

impl Scores {
    /// Returns the scores as JSON, with the official keys in the official order.
    pub fn json(&self) -> Map<String, Value> {
        let mut keys = Map::new();
        let groups =
            [("", Some(self.all)), ("HasAns_", self.has_answer), ("NoAns_", self.no_answer)];
        for (prefix, figures) in groups {
            if let Some(figures) = figures {
                keys.insert(format!("{prefix}exact"), figures.exact.into());
                keys.insert(format!("{prefix}f1"), figures.f1.into());
                keys.insert(format!("{prefix}total"), figures.total.into());
            }
        }
        for (name, best) in ["exact", "f1"].iter().zip(self.best.iter().flatten()) {
            let threshold = best.threshold.unwrap_or(0.0);
            keys.insert(format!("best_{name}"), best.score.into());
            keys.insert(format!("best_{name}_thresh"), threshold.into());
        }
        keys
    }
}
