//! SQuAD 1.1 and 2.0: the answer to a question is a part of a paragraph. Long paragraphs are read through
//! several windows; the head scores every token as the first and as the last of the answer (Devlin et al.,
//! sections 4.2 and 4.3).

use std::path::Path;

use serde_json::{Value, json};

use super::{Answers, Dataset, Labels, Measurement, Reading, Role, Task};
use crate::data::squad::{Misplaced, Paragraph, Question, Squad, WindowOptions, Windows};
use crate::data::{Examples, Sequences, Targets};
use crate::engine::inference::Logits;
use crate::error::{Error, Result};
use crate::eval::{Scores, squad};
use crate::model::{Config, Part};
use crate::text::WordPiece;
use crate::train::task::stored;

/// The key of the null threshold in a model's configuration and in scores.
const THRESHOLD: &str = "null_score_threshold";

/// How paragraphs are read and answers chosen. The defaults are those of google-research/bert.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SpanOptions {
    /// Pieces between the starts of two windows.
    pub stride: usize,
    /// Longest question in pieces; longer ones are cut.
    pub max_question: usize,
    /// Longest answer in pieces.
    pub max_answer: usize,
    /// How many answers to a question are listed.
    pub n_best: usize,
    /// SQuAD 2.0: a question gets no answer if the score of no answer exceeds that of the best answer by more
    /// than this. The default is the model's own threshold; without one, measuring takes the best on its data,
    /// and prediction takes 0.
    pub threshold: Option<f64>,
}

impl Default for SpanOptions {
    fn default() -> Self {
        Self { stride: 128, max_question: 64, max_answer: 30, n_best: 20, threshold: None }
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
            options: SpanOptions { threshold: options.threshold.or(stored), ..options },
        })
    }

    fn file(&self, path: &Path, role: Role, reading: &Reading<'_>) -> Result<Squad> {
        let misplaced = match role {
            Role::Train if reading.bad.skips() => Misplaced::Skip,
            Role::Train => Misplaced::Refuse,
            Role::Dev | Role::Test => Misplaced::Keep,
        };
        let mut squad = Squad::read(path, misplaced)?;
        if let Some(split) = reading.split {
            squad.part(split, role == Role::Dev);
        }
        squad.truncate(reading.limit.unwrap_or(usize::MAX));
        if !self.may_be_empty && role != Role::Test {
            let mut questions = squad.questions().map(|(_, question)| question);
            if let Some(empty) = questions.find(|each| each.answerable() == Some(false)) {
                let message = format!(
                    "question {:?} has no answer: this is a file for squad2, not for squad",
                    empty.id
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

    fn metrics(&self) -> Vec<&'static str> {
        vec![self.metric(), "exact"]
    }

    fn read(&self, path: &Path, role: Role, reading: Reading<'_>) -> Result<Box<dyn Dataset>> {
        let file = self.file(path, role, &reading)?;
        let (may_be_empty, max_len) = (self.may_be_empty, reading.max_len);
        let cut =
            QuestionWindows::cut(file, may_be_empty, max_len, self.options, reading.wordpiece)?;
        let QuestionWindows { file, windows, .. } = &cut;
        let questions = windows.questions();
        if role == Role::Train {
            for (count, what) in [
                (file.misplaced, "answers that are not at their place"),
                (windows.dropped(), "questions whose answer no word piece covers"),
            ] {
                if count > 0 {
                    let note = format!("{}: {what}, skipped: {count}", path.display());
                    reading.notes.push(note);
                }
            }
            let (sequences, spans) = windows.training();
            let spans = reading.bad.some(path, spans, "question")?;
            let targets = Targets::Spans(spans);
            return Ok(Box::new(Read {
                examples: Examples { sequences, targets },
                questions,
                windows: None,
            }));
        }
        Ok(Box::new(Read {
            examples: Examples { sequences: windows.sequences(), targets: Targets::Unknown },
            questions,
            windows: Some(cut),
        }))
    }
}

/// A file of questions.
struct Read {
    examples: Examples,
    questions: usize,
    /// What is needed for answers; None for a training file.
    windows: Option<QuestionWindows>,
}

/// Questions with the windows through which their paragraphs are read.
pub struct QuestionWindows {
    file: Squad,
    windows: Windows,
    options: SpanOptions,
    may_be_empty: bool,
}

impl QuestionWindows {
    /// Cuts the paragraphs of `file` into windows of at most `max_len` tokens.
    ///
    /// # Errors
    /// If the options leave no room for a paragraph.
    pub fn cut(
        file: Squad,
        may_be_empty: bool,
        max_len: usize,
        options: SpanOptions,
        wordpiece: &WordPiece,
    ) -> Result<Self> {
        let how =
            WindowOptions { max_len, stride: options.stride, max_question: options.max_question };
        Ok(Self { windows: Windows::cut(&file, wordpiece, how)?, file, options, may_be_empty })
    }

    /// Returns all windows.
    pub fn sequences(&self) -> Sequences {
        self.windows.sequences()
    }

    /// Returns the answers to all questions from the logits of the windows.
    pub fn answers(&self, logits: &Logits) -> Result<Vec<squad::Answers>> {
        let options = squad::AnswerOptions {
            n_best: self.options.n_best,
            max_answer: self.options.max_answer,
            may_be_empty: self.may_be_empty,
        };
        squad::answer(&self.file, &self.windows, logits.values(), options)
    }
}

impl Read {
    fn windows(&self) -> Result<&QuestionWindows> {
        self.windows.as_ref().ok_or_else(super::nothing_to_measure)
    }
}

impl Dataset for Read {
    fn rows(&self) -> usize {
        self.questions
    }

    fn examples(&self) -> &Examples {
        &self.examples
    }

    fn measure(&self, logits: &Logits) -> Result<Measurement> {
        let questions = self.windows()?;
        let mut all = questions.file.questions();
        if all.any(|(_, question)| question.answerable().is_none()) {
            return Err(super::nothing_to_measure());
        }
        let answers = questions.answers(logits)?;
        if !questions.may_be_empty {
            let texts = squad::predictions(&answers, f64::INFINITY);
            return Ok((squad::score(&questions.file, &texts, None)?.json(), None));
        }
        let threshold = match questions.options.threshold {
            Some(threshold) => threshold,
            // Without a threshold it is best to answer everything.
            None => squad::threshold(&questions.file, &answers)?.threshold.unwrap_or(f64::MAX),
        };
        let texts = squad::predictions(&answers, threshold);
        let mut scores = squad::score(&questions.file, &texts, None)?.json();
        scores.insert(THRESHOLD.into(), threshold.into());
        Ok((scores, None))
    }

    fn answers(&self, logits: &Logits) -> Result<Answers> {
        let questions = self.windows()?;
        let answers = questions.answers(logits)?;
        let threshold = questions.options.threshold.unwrap_or(0.0);
        let files = squad::files(&answers, threshold);
        let line =
            |(answers, (paragraph, question)): (&squad::Answers, (&Paragraph, &Question))| {
                let ranked = |text: &str| answers.n_best.iter().find(|ranked| ranked.text == text);
                let prediction = answers.text(threshold);
                let given = ranked(prediction);
                let place = given.map(|ranked| &ranked.place).filter(|place| !place.is_empty());
                let n_best = answers.n_best.iter();
                let mut line = json!({
                    "id": answers.id,
                    "question": question.text,
                    "context": paragraph.context,
                    "prediction": prediction,
                    "score": given.map(|ranked| ranked.probability),
                    "start": place.map(|place| place.start),
                    "end": place.map(|place| place.end),
                    "best": answers.best,
                    "probability": ranked(&answers.best).map(|ranked| ranked.probability),
                    "n_best": n_best.clone().map(|ranked| json!({
                        "text": ranked.text,
                        "start": ranked.place.start,
                        "end": ranked.place.end,
                        "score": ranked.probability,
                    })).collect::<Vec<_>>(),
                    "logits": n_best.map(|ranked| json!({
                        "start": ranked.start_logit,
                        "end": ranked.end_logit,
                    })).collect::<Vec<_>>(),
                });
                if let Some(odds) = answers.null_odds {
                    line["null_odds"] = odds.into();
                }
                line
            };
        Ok(Answers {
            documents: files.into_iter().map(|(name, text)| (name.to_owned(), text)).collect(),
            lines: answers.iter().zip(questions.file.questions()).map(line).collect(),
        })
    }
}
