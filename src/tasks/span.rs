//! An answer cut out of a paragraph: SQuAD 1.1 and 2.0. Long paragraphs are read through several
//! windows; the head gives every token a score as the first and one as the last of the answer
//! (Devlin et al., sections 4.2 and 4.3).

use std::path::Path;

use serde_json::{Value, json};

use super::{Answers, Dataset, Labels, Reading, Role, Task};
use crate::data::squad::{Misplaced, Squad, WindowOptions, Windows};
use crate::data::{Examples, Targets};
use crate::engine::inference::Logits;
use crate::error::{Error, Result};
use crate::eval::{Scores, squad};
use crate::model::{Config, Part};
use crate::train::task::stored;

/// Where a model's configuration keeps the threshold that was chosen for it.
const THRESHOLD: &str = "null_score_threshold";

/// How paragraphs are read and answers chosen. The defaults are those of google-research/bert.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SpanOptions {
    /// Pieces by which a window is farther on than the one before.
    pub stride: usize,
    /// Most pieces of a question.
    pub max_question: usize,
    /// Most pieces of an answer.
    pub max_answer: usize,
    /// How many answers are told for each question.
    pub n_best: usize,
    /// SQuAD 2.0: nothing is answered where the score of no answer exceeds that of the best by more
    /// than this. None for what the model's configuration says, or else in measuring for what is best
    /// on the data and in answering for 0.
    pub threshold: Option<f64>,
}

impl Default for SpanOptions {
    fn default() -> Self {
        Self {
            stride: 128,
            max_question: 64,
            max_answer: 30,
            n_best: 20,
            threshold: None,
        }
    }
}

impl SpanOptions {
    /// Returns the options that a model was fine-tuned with, and the threshold that was chosen for it.
    pub fn stored(config: &Config) -> Self {
        let number = |key| stored(config, key);
        let usual = Self::default();
        Self {
            stride: number("doc_stride").unwrap_or(usual.stride),
            max_question: number("max_query_len").unwrap_or(usual.max_question),
            max_answer: number("max_answer_len").unwrap_or(usual.max_answer),
            threshold: config.other.get(THRESHOLD).and_then(Value::as_f64),
            ..usual
        }
    }
}

/// SQuAD 1.1, or 2.0, in which questions may have no answer.
pub struct Spans {
    name: &'static str,
    may_be_empty: bool,
    options: SpanOptions,
}

impl Spans {
    pub fn new(may_be_empty: bool, options: SpanOptions, labels: Labels<'_>) -> Result<Self> {
        for (option, value) in [
            ("the longest question", options.max_question),
            ("the longest answer", options.max_answer),
            ("the number of answers", options.n_best),
        ] {
            if value == 0 {
                return Err(Error::Usage(format!("{option} 0: at least 1 is needed")));
            }
        }
        let stored = match labels {
            Labels::Model(config) => SpanOptions::stored(config).threshold,
            Labels::Training(_) => None,
        };
        Ok(Self {
            name: if may_be_empty { "squad2" } else { "squad" },
            may_be_empty,
            options: SpanOptions {
                threshold: options.threshold.or(stored),
                ..options
            },
        })
    }

    fn file(&self, path: &Path, role: Role, reading: &Reading<'_>) -> Result<Squad> {
        let misplaced = match role {
            Role::Train if reading.bad.skips() => Misplaced::Skip,
            Role::Train => Misplaced::Refuse,
            Role::Dev | Role::Test => Misplaced::Keep,
        };
        let mut squad = Squad::read(path, misplaced)?;
        squad.truncate(reading.limit.unwrap_or(usize::MAX));
        if !self.may_be_empty && role != Role::Test {
            let empty = |asked: &crate::data::squad::Question| asked.answerable() == Some(false);
            if let Some((_, asked)) = squad.questions().find(|(_, asked)| empty(asked)) {
                let message = format!(
                    "question {:?} has no answer: this is a file for squad2, not for squad",
                    asked.id
                );
                return Err(Error::file(path, message));
            }
        }
        Ok(squad)
    }
}

impl Task for Spans {
    fn name(&self) -> &str {
        self.name
    }

    fn part(&self) -> Part {
        Part::Span
    }

    fn describe(&self, _: &mut Config) {}

    fn options(&self) -> Vec<(&'static str, Value)> {
        vec![
            ("doc_stride", self.options.stride.into()),
            ("max_query_len", self.options.max_question.into()),
            ("max_answer_len", self.options.max_answer.into()),
        ]
    }

    fn remember(&self, scores: &Scores, config: &mut Config) {
        if let Some(threshold) = scores.get(THRESHOLD) {
            config.other.insert(THRESHOLD.into(), threshold.clone());
        }
    }

    fn metric(&self) -> &'static str {
        "f1"
    }

    fn read(&self, path: &Path, role: Role, reading: Reading<'_>) -> Result<Box<dyn Dataset>> {
        let file = self.file(path, role, &reading)?;
        let options = WindowOptions {
            max_len: reading.max_len,
            stride: self.options.stride,
            max_question: self.options.max_question,
        };
        let windows = Windows::cut(&file, reading.wordpiece, options)?;
        let questions = windows.questions();
        if role == Role::Train {
            if file.misplaced > 0 {
                let count = file.misplaced;
                let note = format!("answers that don't stand where they should, left out: {count}");
                reading.notes.push(format!("{}: {note}", path.display()));
            }
            if windows.dropped() > 0 {
                let count = windows.dropped();
                let note =
                    format!("questions whose answer no word piece covers, left out: {count}");
                reading.notes.push(format!("{}: {note}", path.display()));
            }
            let (sequences, spans) = windows.training();
            let spans = reading.bad.some(path, spans, "question")?;
            let targets = Targets::Spans(spans);
            return Ok(Box::new(Read {
                examples: Examples { sequences, targets },
                questions,
                asked: None,
            }));
        }
        let known = file
            .questions()
            .all(|(_, asked)| asked.answerable().is_some());
        Ok(Box::new(Read {
            examples: Examples {
                sequences: windows.sequences(),
                targets: Targets::Unknown,
            },
            questions,
            asked: Some(Asked {
                known,
                file,
                windows,
                options: self.options,
                may_be_empty: self.may_be_empty,
            }),
        }))
    }
}

/// A file of questions.
struct Read {
    examples: Examples,
    questions: usize,
    /// What answering needs; none of a file that is only trained on.
    asked: Option<Asked>,
}

struct Asked {
    file: Squad,
    windows: Windows,
    options: SpanOptions,
    may_be_empty: bool,
    /// Whether all answers are known.
    known: bool,
}

impl Asked {
    fn answers(&self, logits: &Logits) -> Result<Vec<squad::Answers>> {
        let options = squad::AnswerOptions {
            n_best: self.options.n_best,
            max_answer: self.options.max_answer,
            may_be_empty: self.may_be_empty,
        };
        squad::answer(&self.file, &self.windows, logits.values(), options)
    }
}

impl Read {
    fn asked(&self) -> Result<&Asked> {
        self.asked.as_ref().ok_or_else(super::nothing_to_measure)
    }
}

impl Dataset for Read {
    fn rows(&self) -> usize {
        self.questions
    }

    fn examples(&self) -> &Examples {
        &self.examples
    }

    fn measure(&self, logits: &Logits) -> Result<Scores> {
        let asked = self.asked()?;
        if !asked.known {
            return Err(super::nothing_to_measure());
        }
        let answers = asked.answers(logits)?;
        if !asked.may_be_empty {
            let texts = squad::predictions(&answers, f64::INFINITY);
            return Ok(squad::score(&asked.file, &texts, None)?.json());
        }
        let threshold = match asked.options.threshold {
            Some(threshold) => threshold,
            // Where all is answered best, no odds exceed the threshold.
            None => squad::threshold(&asked.file, &answers)?
                .threshold
                .unwrap_or(f64::MAX),
        };
        let texts = squad::predictions(&answers, threshold);
        let mut scores = squad::score(&asked.file, &texts, None)?.json();
        scores.insert(THRESHOLD.into(), threshold.into());
        Ok(scores)
    }

    fn answers(&self, logits: &Logits) -> Result<Answers> {
        let asked = self.asked()?;
        let answers = asked.answers(logits)?;
        let threshold = asked.options.threshold.unwrap_or(0.0);
        let files = squad::files(&answers, threshold);
        let line = |answers: &squad::Answers| {
            let best = answers
                .n_best
                .iter()
                .find(|ranked| ranked.text == answers.best);
            let mut line = json!({
                "id": answers.id,
                "prediction": answers.text(threshold),
                "best": answers.best,
                "probability": best.map(|ranked| ranked.probability),
            });
            if let Some(odds) = answers.null_odds {
                line["null_odds"] = odds.into();
            }
            line
        };
        Ok(Answers {
            documents: files
                .into_iter()
                .map(|(name, text)| (name.to_owned(), text))
                .collect(),
            lines: answers.iter().map(line).collect(),
        })
    }
}
