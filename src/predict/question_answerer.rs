//! The part of a text that answers a question.

use std::path::Path;

use serde::Serialize;

use crate::data::squad::{Squad, WindowOptions};
use crate::engine::TaskEngine;
use crate::engine::inference;
use crate::error::Result;
use crate::eval::squad::Answers;
use crate::model::Part;
use crate::tasks::{QuestionWindows, SpanOptions};
use crate::train::task::stored;

use super::loaded::{Loaded, Shared, task_of};
use super::{Builder, Open, loading};

/// A model that was fine-tuned to find the answer to a question in a text, as in SQuAD.
///
/// A long text is read through overlapping windows of the [longest sequence](Builder::max_len); a long question is
/// cut.
///
/// ```no_run
/// use cloze::QuestionAnswerer;
///
/// let model = QuestionAnswerer::load("questions")?;
/// let answers = model.answer(&[("Where does Clara work?", "Clara lights the oven in Mill Lane at two.")])?;
/// println!("{} ({}..{})", answers[0].text, answers[0].start, answers[0].end);
/// # Ok::<(), cloze::Error>(())
/// ```
pub struct QuestionAnswerer {
    model: Shared<dyn TaskEngine>,
    options: SpanOptions,
    /// Whether the model knows questions without an answer.
    may_be_empty: bool,
}

/// The answer to a question.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Answer {
    /// The part of the text that answers; empty if nothing in it does, which only models of SQuAD 2.0 say.
    pub text: String,
    /// Where it begins in the text, in characters.
    pub start: usize,
    /// The character behind its last one.
    pub end: usize,
    /// Its probability among the 20 best answers.
    pub score: f32,
}

loading!(QuestionAnswerer);

impl Open for QuestionAnswerer {
    fn open(folder: &Path, settings: &Builder<Self>) -> Result<Self> {
        let loaded = Loaded::read_task(folder, Part::Span, settings.setup)?;
        let config = loaded.engine.config();
        let options = SpanOptions::stored(config);
        let usual = stored(config, "max_len").unwrap_or(WindowOptions::default().max_len);
        let model = Shared::new(loaded, Some(usual), settings)?;
        Ok(Self {
            may_be_empty: task_of(&model.config) == Some("squad2") || options.threshold.is_some(),
            options,
            model,
        })
    }
}

impl QuestionAnswerer {
    /// Answers questions, each from its text: `(question, text)`.
    ///
    /// # Errors
    /// If the longest sequence leaves no room for a text beside a question, or an output of the model is not a
    /// finite number.
    pub fn answer(&self, questions: &[(&str, &str)]) -> Result<Vec<Answer>> {
        let questions = (0..).zip(questions);
        let file =
            questions.map(|(id, &(text, context)): (u32, _)| (id.to_string(), context, text, None));
        let file = Squad::of_questions(file);
        let answers = self.model.run(|engine| {
            let Shared { wordpiece, max_len, .. } = &self.model;
            let windows =
                QuestionWindows::cut(file, self.may_be_empty, *max_len, self.options, wordpiece)?;
            windows.answers(&inference::logits(engine, &windows.sequences())?)
        })?;
        Ok(answers.iter().map(|answers| self.best(answers)).collect())
    }

    fn best(&self, answers: &Answers) -> Answer {
        let text = answers.text(self.options.threshold.unwrap_or(0.0));
        let ranked = answers.n_best.iter().find(|ranked| ranked.text == text);
        let place = ranked.map_or(0..0, |ranked| ranked.place.clone());
        Answer {
            text: text.to_owned(),
            start: place.start,
            end: place.end,
            score: ranked.map_or(0.0, |ranked| ranked.probability as f32),
        }
    }
}
