//! The entities in a text.

use std::ops::Range;
use std::path::Path;

use serde::Serialize;

use crate::data::conll::Sentence;
use crate::data::tags::is_entity_tag;
use crate::engine::TaskEngine;
use crate::error::Result;
use crate::eval::entities::entities;
use crate::eval::{best, softmax};
use crate::model::weights::CONFIG;
use crate::model::{Config, Part};
use crate::tasks::WordSequences;
use crate::text::words::Text;

use super::loaded::{Shared, labels_of};
use super::{Builder, Open, loading};

/// A model that was fine-tuned to label the words of a text, such as the names of people and places.
///
/// A word gets the label of its first piece; what counts as a word is what labelled data counts: `O'Neill`, but a
/// full stop apart. A text that is longer than the [longest sequence](Builder::max_len) goes on in another one.
///
/// ```no_run
/// use cloze::TokenClassifier;
///
/// let model = TokenClassifier::load("names")?;
/// for entity in &model.entities(&["Alma Reyes has left for Zürich."])?[0] {
///     println!("{} {} ({}..{})", entity.label, entity.text, entity.start, entity.end);
/// }
/// # Ok::<(), cloze::Error>(())
/// ```
pub struct TokenClassifier {
    model: Shared<dyn TaskEngine>,
    labels: Vec<String>,
}

/// Words of a text that belong together.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Entity {
    /// What it is, such as `PER`. If the model's labels are not those of entities (`B-PER`, `I-PER`, `O`), every
    /// word is an entity with its label.
    pub label: String,
    /// The entity as it stands in the text.
    pub text: String,
    /// Where it begins in the text, in characters.
    pub start: usize,
    /// The character behind its last one.
    pub end: usize,
    /// The probability of its words' labels, between 0 and 1: their mean.
    pub score: f32,
}

loading!(TokenClassifier);

impl Open for TokenClassifier {
    fn open(folder: &Path, settings: &Builder<Self>) -> Result<Self> {
        let labels = labels_of(&Config::read(&folder.join(CONFIG))?);
        let head = Part::TokenClassifier(labels.len());
        let model = Shared::read_task(folder, head, settings)?;
        Ok(Self { model, labels })
    }
}

impl TokenClassifier {
    /// Returns the names of the model's labels, such as `B-PER`.
    pub fn labels(&self) -> &[String] {
        &self.labels
    }

    /// Returns the entities in each text, in their order.
    ///
    /// # Errors
    /// If an output of the model is not a finite number.
    pub fn entities(&self, texts: &[&str]) -> Result<Vec<Vec<Entity>>> {
        let texts: Vec<Text> = texts.iter().map(|text| Text::new(text)).collect();
        let sentence = |text: &Text| Sentence { words: text.words(), tags: Vec::new() };
        let sentences: Vec<Sentence> = texts.iter().map(sentence).collect();
        let cut = WordSequences::new(&sentences, &self.model.wordpiece, self.model.max_len)?;
        let logits = self.model.logits(&cut.sequences)?;
        let row = |row: &usize| &logits.values()[row * logits.outputs..][..logits.outputs];
        let mut rows = cut.first_rows.iter().map(row);
        let found = texts.iter().map(|text| {
            let tags = rows.by_ref().take(text.places().len()).map(|row| {
                let label = best(row) as usize;
                (self.labels[label].as_str(), softmax(row)[label])
            });
            let (tags, scores): (Vec<&str>, Vec<f64>) = tags.unzip();
            let found_at = |(label, words): (&str, Range<usize>)| {
                entity(text, label, words.clone(), &scores[words])
            };
            if self.labels.iter().all(|label| is_entity_tag(label)) {
                let entities = entities(&tags).into_iter();
                entities.map(|found| found_at((found.kind, found.start..found.end))).collect()
            } else {
                let single = |(word, label)| found_at((label, word..word + 1));
                tags.iter().copied().enumerate().map(single).collect()
            }
        });
        Ok(found.collect())
    }
}

fn entity(text: &Text, label: &str, words: Range<usize>, scores: &[f64]) -> Entity {
    let place = text.span(words);
    Entity {
        label: label.to_owned(),
        text: text.cut(place.clone()),
        start: place.start,
        end: place.end,
        score: (scores.iter().sum::<f64>() / scores.len() as f64) as f32,
    }
}
