//! The most probable of several continuations.

use std::path::Path;

use serde::Serialize;

use crate::engine::TaskEngine;
use crate::error::{Error, Result};
use crate::eval::{best, softmax};
use crate::model::Part;

use super::loaded::Shared;
use super::{Builder, Open, loading};

/// A model that was fine-tuned to choose between texts that may follow another, as in SWAG.
///
/// Longer pairs of a context and a choice are cut to the [longest sequence](Builder::max_len).
///
/// ```no_run
/// use cloze::MultipleChoice;
///
/// let model = MultipleChoice::load("endings")?;
/// let endings = ["She pushes off and sprints.", "She looks for a socket to charge it."];
/// let choices = model.choose(&[("The runner hears the shot.", endings.as_slice())])?;
/// println!("{}", endings[choices[0].index]);
/// # Ok::<(), cloze::Error>(())
/// ```
pub struct MultipleChoice {
    model: Shared<dyn TaskEngine>,
}

/// What a model chose.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Choice {
    /// Which of the texts is the most probable, counted from 0.
    pub index: usize,
    /// The probabilities of all, which add up to 1.
    pub scores: Vec<f32>,
}

loading!(MultipleChoice);

impl Open for MultipleChoice {
    fn open(folder: &Path, settings: &Builder<Self>) -> Result<Self> {
        let model = Shared::read_task(folder, Part::MultipleChoice, settings)?;
        Ok(Self { model })
    }
}

impl MultipleChoice {
    /// Chooses for each context one of the texts that may follow it: `(context, texts)`.
    ///
    /// # Errors
    /// If a context has no text to choose from, or an output of the model is not a finite number.
    pub fn choose(&self, questions: &[(&str, &[&str])]) -> Result<Vec<Choice>> {
        if let Some((context, _)) = questions.iter().find(|(_, texts)| texts.is_empty()) {
            return Err(Error::Usage(format!("{context:?} has no text to choose from")));
        }
        let pairs = questions
            .iter()
            .flat_map(|&(context, texts)| texts.iter().map(move |&text| (context, Some(text))));
        let sequences = self.model.cut(&pairs.collect::<Vec<_>>())?;
        let logits = self.model.logits(&sequences)?;
        let mut rest = logits.values();
        let choice = |(_, texts): &(&str, &[&str])| {
            let (own, others) = rest.split_at(texts.len());
            rest = others;
            Choice {
                index: best(own) as usize,
                scores: softmax(own).into_iter().map(|p| p as f32).collect(),
            }
        };
        Ok(questions.iter().map(choice).collect())
    }
}
