//! The official scores of SQuAD: exact match and F1 of words, as evaluate-v2.0.py finds them, sums in
//! the same order so that they agree to the last digit. Where every question has an answer, as in
//! SQuAD 1.1, they are those of evaluate-v1.1.py.
//!
//! A question without a prediction scores 0, as in evaluate-v1.1.py (evaluate-v2.0.py stops there).

mod answers;
mod normalise;
mod report;

use std::collections::HashMap;

use serde_json::{Map, Value};

use crate::data::squad::{Question, Squad};
use crate::error::{Error, Result};

pub use answers::{AnswerOptions, Answers, Ranked, answer, threshold};
pub use normalise::{f1, normalise};
pub use report::{files, predictions, read_numbers, read_texts};

/// Predicted answers by question id; the empty one says that there is no answer.
pub type Predictions = HashMap<String, String>;

/// How sure a model is that a question has no answer.
#[derive(Debug, Clone, PartialEq)]
pub struct NoAnswer {
    /// By question id, in the order of their file, which decides between equals in the sweep for
    /// the best threshold. A probability, or any number that grows with it.
    pub scores: Vec<(String, f64)>,
    /// Predictions are taken as empty where the score exceeds this.
    pub threshold: f64,
}

/// Shares of questions, in percent.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Figures {
    /// Predictions that equal an answer, both normalised.
    pub exact: f64,
    /// Mean F1 of the words of a prediction and the answer that fits it best.
    pub f1: f64,
    /// Number of questions.
    pub total: usize,
}

/// The best score that a threshold gives, in percent, and that threshold.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Best {
    pub score: f64,
    /// `None` where it is best to answer nothing; the official script then says 0.
    pub threshold: Option<f64>,
}

/// The scores of a file of predictions.
#[derive(Debug, Clone, PartialEq)]
pub struct Scores {
    pub all: Figures,
    /// Of the questions that have an answer; none if there is no such question.
    pub has_answer: Option<Figures>,
    /// Of those that have none.
    pub no_answer: Option<Figures>,
    /// The best exact match and F1 over all thresholds, where no-answer scores are given.
    pub best: Option<[Best; 2]>,
    /// Questions without a prediction.
    pub missing: Vec<String>,
}

/// One question's scores, before any threshold.
struct Raw<'d> {
    id: &'d str,
    exact: f64,
    f1: f64,
    has_answer: bool,
    /// The prediction is not empty; `None` without a prediction.
    answered: Option<bool>,
}

/// Scores predictions. Fails where a question has no answers to compare with, or a prediction but no
/// no-answer score.
pub fn score(
    squad: &Squad,
    predictions: &Predictions,
    no_answer: Option<&NoAnswer>,
) -> Result<Scores> {
    let raw = raw(squad, predictions, no_answer.is_some())?;
    let scores: Option<HashMap<&str, f64>> =
        no_answer.map(|no_answer| pairs(&no_answer.scores).collect());
    let mut judged = Vec::with_capacity(raw.len());
    for question in &raw {
        let empty = match (no_answer, &scores, question.answered) {
            (Some(NoAnswer { threshold, .. }), Some(scores), Some(_)) => {
                let score = scores.get(question.id).ok_or_else(|| {
                    let id = question.id;
                    Error::Failed(format!(
                        "question {id:?} has a prediction, but no score here"
                    ))
                })?;
                score > threshold
            }
            _ => false,
        };
        judged.push(if empty {
            let right = f64::from(!question.has_answer);
            (right, right)
        } else {
            (question.exact, question.f1)
        });
    }
    let figures = |wanted: Option<bool>| {
        let chosen = raw.iter().zip(&judged);
        figures(
            chosen
                .filter(|(question, _)| wanted.is_none_or(|has| has == question.has_answer))
                .map(|(_, judged)| *judged),
        )
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

/// Scores of all questions in the order of the file. Of questions with the same id the last counts,
/// at the place of the first, as in the script's dictionaries. With `some_unanswered`, or where the
/// file has such questions, the rules are evaluate-v2.0.py's.
fn raw<'d>(
    squad: &'d Squad,
    predictions: &Predictions,
    some_unanswered: bool,
) -> Result<Vec<Raw<'d>>> {
    // The scripts differ where an answer is nothing but articles and punctuation. For the older one it is
    // an answer as any other, equal to another such one, with which it has no word in common.
    let unanswered = |q: &Question| q.impossible || q.answers.as_ref().is_some_and(Vec::is_empty);
    let newer = some_unanswered || squad.questions().any(|(_, question)| unanswered(question));
    let f1 = |gold: &str, text: &str| {
        if newer || !gold.is_empty() {
            f1(gold, text)
        } else {
            0.0
        }
    };
    let mut all: Vec<Raw<'d>> = Vec::new();
    let mut places: HashMap<&str, usize> = HashMap::new();
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
        match places.get(id) {
            Some(&place) => all[place] = scored,
            None => {
                places.insert(id, all.len());
                all.push(scored);
            }
        }
    }
    Ok(all)
}

fn pairs(scores: &[(String, f64)]) -> impl Iterator<Item = (&str, f64)> {
    scores.iter().map(|(id, score)| (id.as_str(), *score))
}

/// Sums from first to last, as Python did until 3.11; None of no question.
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

/// The best threshold: questions are answered one after the other, the surest first
/// (`find_best_thresh`).
fn sweep(raw: &[Raw], no_answer: &[(String, f64)], measure: impl Fn(&Raw) -> f64) -> Best {
    let known = raw.iter().filter(|question| question.answered.is_some());
    let by_id: HashMap<&str, &Raw> = known.map(|question| (question.id, question)).collect();
    let mut order: Vec<(&str, f64)> = pairs(no_answer).collect();
    // Adding 0 makes a zero of either sign the same number.
    order.sort_by(|a, b| (a.1 + 0.0).total_cmp(&(b.1 + 0.0)));
    // Without any answer, all questions that have none are right.
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
    Best {
        score: 100.0 * best.0 / raw.len() as f64,
        threshold: best.1,
    }
}

impl Scores {
    /// The official keys in the official order.
    pub fn json(&self) -> Map<String, Value> {
        let mut keys = Map::new();
        let groups = [
            ("", Some(self.all)),
            ("HasAns_", self.has_answer),
            ("NoAns_", self.no_answer),
        ];
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
