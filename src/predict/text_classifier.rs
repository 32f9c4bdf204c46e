//! A class or a number for a text.

use std::path::Path;

use serde::Serialize;

use crate::engine::TaskEngine;
use crate::error::Result;
use crate::eval::{best, sets, softmax};
use crate::model::weights::CONFIG;
use crate::model::{Config, Part};
use crate::tasks;

use super::loaded::{Shared, labels_of, task_of};
use super::{Builder, Open, loading};

/// A model that was fine-tuned to sort texts or pairs of texts into classes, or to give them a number.
///
/// Longer texts are cut to the [longest sequence](Builder::max_len); of a pair the longer one is cut. A model that
/// was fine-tuned on windows of long texts reads them in windows here too.
///
/// ```no_run
/// use cloze::TextClassifier;
///
/// let model = TextClassifier::load("spam")?;
/// for prediction in model.predict(&["Dear friend, I write with tears.", "The bus is late."])? {
///     println!("{} ({:.0} %)", prediction.label, 100.0 * prediction.score);
/// }
/// # Ok::<(), cloze::Error>(())
/// ```
pub struct TextClassifier {
    model: Shared<dyn TaskEngine>,
    labels: Vec<String>,
    /// With classes that do not exclude each other: the probabilities above which they count as predicted.
    thresholds: Option<Vec<f64>>,
    windows: bool,
    /// Limits of a regression model's numbers.
    limits: Option<[f32; 2]>,
}

/// The class of a text.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Prediction {
    /// The name of the most probable class; empty for a regression model.
    pub label: String,
    /// Its probability, or the number of a regression model.
    pub score: f32,
    /// The probabilities of all classes in the order of [`TextClassifier::labels`], which add up to 1 unless a
    /// text can have several classes; of a regression model its number alone.
    pub scores: Vec<f32>,
    /// All classes of the text: the label, or of a model for several classes a text those that reach their
    /// thresholds. None of a regression model.
    pub labels: Vec<String>,
}

loading!(TextClassifier);

impl Open for TextClassifier {
    fn open(folder: &Path, settings: &Builder<Self>) -> Result<Self> {
        let mut labels = labels_of(&Config::read(&folder.join(CONFIG))?);
        let head = Part::SequenceClassifier(labels.len());
        let model = Shared::read_task(folder, head, settings)?;
        // One class would have the probability 1 for every text.
        let kind = tasks::Kind::of(&model.config);
        let several = kind == tasks::Kind::Classes;
        if labels.len() == 1 && !several || kind == tasks::Kind::Number {
            labels.clear();
        }
        let thresholds = several.then(|| tasks::stored_thresholds(&model.config));
        let windows = tasks::LongText::of(&model.config) == tasks::LongText::Windows;
        let limits = task_of(&model.config).and_then(tasks::limits);
        Ok(Self { model, labels, thresholds, windows, limits })
    }
}

impl TextClassifier {
    /// Returns the names of the classes; none if this is a regression model.
    pub fn labels(&self) -> &[String] {
        &self.labels
    }

    /// Classifies texts.
    ///
    /// # Errors
    /// If an output of the model is not a finite number.
    pub fn predict(&self, texts: &[&str]) -> Result<Vec<Prediction>> {
        let singles: Vec<_> = texts.iter().map(|&text| (text, None)).collect();
        self.classify(&singles)
    }

    /// Classifies pairs of texts.
    ///
    /// # Errors
    /// If an output of the model is not a finite number.
    pub fn predict_pairs(&self, pairs: &[(&str, &str)]) -> Result<Vec<Prediction>> {
        let pairs: Vec<_> = pairs.iter().map(|&(a, b)| (a, Some(b))).collect();
        self.classify(&pairs)
    }

    fn classify(&self, texts: &[(&str, Option<&str>)]) -> Result<Vec<Prediction>> {
        let single = texts.iter().all(|(_, pair)| pair.is_none());
        let sequences = match self.windows && single {
            true => {
                self.model.in_windows(&texts.iter().map(|&(text, _)| text).collect::<Vec<_>>())?
            }
            false => self.model.cut(texts)?,
        };
        let logits = self.model.logits(&sequences)?;
        let rows = logits.values().chunks_exact(logits.outputs);
        Ok(rows.map(|row| self.prediction(row)).collect())
    }

    fn prediction(&self, logits: &[f32]) -> Prediction {
        if self.labels.is_empty() {
            let score = tasks::limited(logits[0], self.limits);
            let (label, labels) = (String::new(), Vec::new());
            return Prediction { label, score, scores: vec![score], labels };
        }
        let class = best(logits) as usize;
        let (classes, probabilities) = match &self.thresholds {
            None => (vec![class as u32], softmax(logits)),
            Some(thresholds) => {
                let probabilities = logits.iter().map(|&logit| sets::sigmoid(logit)).collect();
                (sets::predicted(logits, thresholds), probabilities)
            }
        };
        let scores: Vec<f32> = probabilities.into_iter().map(|p| p as f32).collect();
        let name = |class: usize| self.labels[class].clone();
        let labels = classes.into_iter().map(|class| name(class as usize)).collect();
        Prediction { label: name(class), score: scores[class], scores, labels }
    }
}
