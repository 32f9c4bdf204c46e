//! Helpers of lessons 19 and 20: sentences to measure on, the geometry of vectors, linear probes, models without
//! a head, and what a blank depends on.

use std::array;

use dfdx::nn::modules::Linear;
use dfdx::optim::Adam;
use dfdx::prelude::*;

use crate::data::Packed;
use crate::data::bad::BadRows;
use crate::data::bundled;
use crate::data::conll;
use crate::data::pretraining::masking::Masker;
use crate::data::squad::{Misplaced, Squad};
use crate::engine::{CpuEngine, Engine, PretrainingEngine};
use crate::error::{Error, Result};
use crate::eval::{best, spearman};
use crate::model::weights::Model;
use crate::model::{SequenceAttention, cross_entropy};
use crate::random::{Site, Stream};
use crate::text::sentences::sentences;
use crate::text::{SpecialIds, WordPiece};

/// The kinds of place that [`habits`] distinguishes, in its order.
pub const HABITS: [&str; 6] = ["[CLS]", "[SEP]", "itself", "left", "right", "rest"];

/// Encodes the sentences of the bundled data set `questions` that have 8 to 64 tokens, with `[CLS]` and `[SEP]`.
///
/// # Errors
/// If the data set can't be written to the user's cache or read.
pub fn sentences_of_questions(tokenizer: &WordPiece) -> Result<Vec<Vec<u32>>> {
    let path = bundled::folder("questions")?.join("train-v2.0.json");
    let questions = Squad::read(&path, Misplaced::Refuse)?;
    let encoded = questions
        .paragraphs()
        .flat_map(|paragraph| sentences(&paragraph.context))
        .map(|sentence| tokenizer.encode_with_special(sentence).ids);
    Ok(encoded.filter(|ids| (8..=64).contains(&ids.len())).collect())
}

/// Packs texts into one batch, each as a single segment.
pub fn pack(texts: &[Vec<u32>]) -> Packed {
    let mut batch = Packed::default();
    for ids in texts {
        push(&mut batch, ids);
    }
    batch
}

fn push(batch: &mut Packed, ids: &[u32]) {
    batch.push(batch.sequences() as u64, ids, &vec![0; ids.len()]);
}

/// Computes which share of the attention of ordinary tokens goes to each kind of place in [`HABITS`], from the
/// attention weights of one head, (tokens, tokens). A special token counts as special also where it is a neighbour.
pub fn habits(weights: &[f32], ids: &[u32], special: SpecialIds) -> [f64; 6] {
    let n = ids.len();
    let mut shares = [0.0; 6];
    let mut rows = 0.0;
    for i in (0..n).filter(|&i| !special.contains(ids[i])) {
        rows += 1.0;
        for (j, &id) in ids.iter().enumerate() {
            let habit = match id {
                id if id == special.cls => 0,
                id if id == special.sep => 1,
                _ if i == j => 2,
                _ if j + 1 == i => 3,
                _ if j == i + 1 => 4,
                _ => 5,
            };
            shares[habit] += f64::from(weights[i * n + j]);
        }
    }
    shares.map(|share| share / rows)
}

/// Returns the mean of [`habits`] over all texts as named rows: one row for each head, and a last one for a head
/// that gives every token the same weight.
pub fn habit_table(
    texts: &[Vec<u32>],
    seen: &[SequenceAttention],
    special: SpecialIds,
) -> Vec<(String, [f64; 6])> {
    let mean = |weights: &dyn Fn(usize) -> Vec<f32>| {
        let all = texts.iter().enumerate().map(|(at, ids)| habits(&weights(at), ids, special));
        let sum = all.fold([0.0; 6], |sum, shares| array::from_fn(|i| sum[i] + shares[i]));
        sum.map(|share| share / texts.len() as f64)
    };
    let (layers, heads) = seen.first().map_or((0, 0), |seen| (seen.layers.len(), seen.heads));
    let mut table = Vec::new();
    for (layer, head) in (0..layers).flat_map(|layer| (0..heads).map(move |head| (layer, head))) {
        let shares = mean(&|at| seen[at].weights(layer, head).to_vec());
        table.push((format!("layer {layer}, head {head}"), shares));
    }
    let equal = mean(&|at| {
        let n = texts[at].len();
        vec![1.0 / n as f32; n * n]
    });
    table.push(("equal weights".into(), equal));
    table
}

/// Computes the dot product of two vectors.
pub fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// Scales a vector to length 1. A vector of zeros becomes NaN.
pub fn unit(vector: &[f64]) -> Vec<f64> {
    let length = dot(vector, vector).sqrt();
    vector.iter().map(|x| x / length).collect()
}

/// Returns the cosine of the angle between two vectors.
pub fn cosine(a: &[f64], b: &[f64]) -> f64 {
    dot(a, b) / (dot(a, a) * dot(b, b)).sqrt()
}

/// Subtracts the mean of all rows from each.
pub fn centred(rows: &[Vec<f64>]) -> Vec<Vec<f64>> {
    let count = rows.len() as f64;
    let width = rows.first().map_or(0, Vec::len);
    let mean: Vec<f64> =
        (0..width).map(|i| rows.iter().map(|row| row[i]).sum::<f64>() / count).collect();
    rows.iter().map(|row| row.iter().zip(&mean).map(|(x, m)| x - m).collect()).collect()
}

/// Subtracts from each row its part along an axis of length 1.
pub fn without_axis(rows: &[Vec<f64>], axis: &[f64]) -> Vec<Vec<f64>> {
    let less = |row: &Vec<f64>| {
        let along = dot(row, axis);
        row.iter().zip(axis).map(|(x, a)| x - along * a).collect()
    };
    rows.iter().map(less).collect()
}

/// Returns the spread of centred rows along an axis of length 1: the sum of their squared places along it.
pub fn spread(rows: &[Vec<f64>], axis: &[f64]) -> f64 {
    rows.iter().map(|row| dot(row, axis).powi(2)).sum()
}

/// Returns the vectors of some word pieces in the model's embedding table.
///
/// # Errors
/// If the model has no such table, or an id is not in it.
pub fn word_vectors(model: &Model, ids: &[u32]) -> Result<Vec<Vec<f64>>> {
    let name = "embeddings.word_embeddings.weight";
    let range = model.layout.find(name).map(|(_, range)| range);
    let table = &model.values[range.ok_or_else(|| missing(name))?];
    let width = model.config.hidden_size;
    let row = |&id: &u32| {
        let row = table.chunks_exact(width).nth(id as usize);
        row.map(doubles).ok_or_else(|| Error::Usage(format!("the table has no row {id}")))
    };
    ids.iter().map(row).collect()
}

fn missing(name: &str) -> Error {
    Error::Failed(format!("the model has no parameter {name}"))
}

fn doubles(row: &[f32]) -> Vec<f64> {
    row.iter().map(|&x| f64::from(x)).collect()
}

/// Returns the vectors of `word` in some texts: for the embeddings and for each layer, one vector a text.
///
/// # Errors
/// If a text doesn't contain the word as one piece, or is longer than the model allows.
pub fn in_context(
    engine: &mut CpuEngine,
    tokenizer: &WordPiece,
    word: &str,
    texts: &[&str],
) -> Result<Vec<Vec<Vec<f64>>>> {
    let id = tokenizer.id(word);
    let mut batch = Packed::default();
    let mut rows = Vec::new();
    for text in texts {
        let ids = tokenizer.encode_with_special(text).ids;
        let place = ids.iter().position(|&other| Some(other) == id);
        let place = place.ok_or_else(|| Error::Usage(format!("{text:?} has no piece {word:?}")))?;
        rows.push(batch.rows() + place);
        push(&mut batch, &ids);
    }
    let (layers, width) = (engine.config().num_hidden_layers, engine.config().hidden_size);
    let states = engine.hidden_states(&batch, 0..layers + 1)?.layers;
    let vectors = |layer: &Vec<f32>| {
        rows.iter().map(|&row| doubles(&layer[row * width..][..width])).collect()
    };
    Ok(states.iter().map(vectors).collect())
}

/// Returns the word with the words before and after it.
pub fn surroundings(text: &str, word: &str) -> String {
    let words: Vec<&str> = text.trim_end_matches('.').split(' ').collect();
    let at = words.iter().position(|&other| other == word).unwrap_or_default();
    words[at.saturating_sub(1)..words.len().min(at + 2)].join(" ")
}

/// Returns the share of vectors whose nearest other vector, by the angle, is of the same group.
pub fn nearest_alike(vectors: &[Vec<f64>], groups: &[&str]) -> f64 {
    let alike = (0..vectors.len()).filter(|&i| {
        let to = |j: usize| cosine(&vectors[i], &vectors[j]);
        let others = (0..vectors.len()).filter(|&j| j != i);
        let nearest = others.max_by(|&a, &b| to(a).total_cmp(&to(b)));
        nearest.is_some_and(|j| groups[j] == groups[i])
    });
    alike.count() as f64 / vectors.len() as f64
}

/// Vectors with a class each.
#[derive(Debug, Default, Clone)]
pub struct Labelled {
    /// The vectors, one after the other.
    pub rows: Vec<f32>,
    /// Their classes.
    pub classes: Vec<u32>,
}

impl Labelled {
    /// Adds a vector.
    pub fn push(&mut self, row: &[f32], class: u32) {
        self.rows.extend_from_slice(row);
        self.classes.push(class);
    }

    fn tensor<const H: usize>(&self) -> Tensor<(usize, Const<H>), f32, Cpu> {
        Cpu::default().tensor_from_vec(self.rows.clone(), (self.classes.len(), Const::<H>))
    }
}

/// Trains a linear layer from `H` numbers to `C` classes on `train`, 150 steps over all of it with AdamW, and
/// returns its accuracy on `test`.
///
/// # Errors
/// If dfdx finds a parameter without a gradient.
///
/// # Panics
/// If a vector doesn't have `H` numbers, or a class is not below `C`.
pub fn probe<const H: usize, const C: usize>(train: &Labelled, test: &Labelled) -> Result<f64> {
    let dev = Cpu::default();
    let mut head: Linear<H, C, f32, Cpu> = Linear { weight: dev.zeros(), bias: dev.zeros() };
    let config = AdamConfig {
        lr: 1e-2,
        weight_decay: Some(WeightDecay::Decoupled(0.01)),
        ..AdamConfig::default()
    };
    let mut adam = Adam::new(&head, config);
    let x = train.tensor::<H>();
    for _ in 0..crate::lessons::steps(150) {
        let logits = head.forward(x.leaky_trace());
        let loss = cross_entropy(logits, &train.classes) / train.classes.len() as f32;
        let updated = adam.update(&mut head, &loss.backward());
        updated.map_err(|e| Error::Failed(format!("the probe's update failed: {e:?}")))?;
    }
    let logits = head.forward(test.tensor::<H>()).as_vec();
    let pairs = logits.chunks_exact(C).map(best).zip(&test.classes);
    let right = pairs.filter(|(best, class)| best == *class).count();
    Ok(right as f64 / test.classes.len() as f64)
}

/// The words of a file of tagged sentences, without the first word of each sentence.
#[derive(Debug, Clone)]
pub struct Words {
    /// The first piece of each word.
    pub ids: Vec<u32>,
    /// 1 where the word begins with a capital letter, else 0.
    pub capitals: Vec<u32>,
    /// Their vectors after the embeddings and after each layer, one after the other.
    pub layers: Vec<Vec<f32>>,
}

impl Words {
    /// Reads the words of a file of the bundled data set `names` and computes their vectors.
    ///
    /// # Errors
    /// If the file can't be read, or a sentence is longer than the model allows.
    pub fn read(file: &str, tokenizer: &WordPiece, engine: &mut CpuEngine) -> Result<Self> {
        let path = bundled::folder("names")?.join(file);
        let special = tokenizer.special();
        let mut batch = Packed::default();
        let (mut rows, mut capitals) = (Vec::new(), Vec::new());
        for sentence in conll::read(&path, true, &mut BadRows::refused())? {
            let mut ids = vec![special.cls];
            for (place, word) in sentence.words.iter().enumerate() {
                if place > 0 && word.starts_with(char::is_alphabetic) {
                    rows.push(batch.rows() + ids.len());
                    capitals.push(u32::from(word.starts_with(char::is_uppercase)));
                }
                ids.extend(tokenizer.encode(word).ids);
            }
            ids.push(special.sep);
            push(&mut batch, &ids);
        }
        let (layers, width) = (engine.config().num_hidden_layers, engine.config().hidden_size);
        let states = engine.hidden_states(&batch, 0..layers + 1)?.layers;
        let of_layer = |layer: &Vec<f32>| -> Vec<f32> {
            rows.iter().flat_map(|&row| layer[row * width..][..width].to_vec()).collect()
        };
        Ok(Self {
            ids: rows.iter().map(|&row| batch.ids[row]).collect(),
            layers: states.iter().map(of_layer).collect(),
            capitals,
        })
    }

    /// Returns their vectors at a layer (0: the embeddings) with classes.
    ///
    /// # Panics
    /// If there is no such layer.
    pub fn labelled(&self, layer: usize, classes: Vec<u32>) -> Labelled {
        Labelled { rows: self.layers[layer].clone(), classes }
    }

    /// Returns the share of words with a capital letter.
    pub fn share_of_capitals(&self) -> f64 {
        f64::from(self.capitals.iter().sum::<u32>()) / self.capitals.len() as f64
    }
}

/// Texts with blanks to fill.
#[derive(Debug, Default, Clone)]
pub struct Blanks {
    /// The texts, with their blanks masked.
    pub batch: Packed,
    /// The rows of the blanks in the batch.
    pub rows: Vec<u32>,
    /// What stood there.
    pub answers: Vec<u32>,
}

impl Blanks {
    /// Masks 15 % of the tokens of each text.
    pub fn new(texts: &[Vec<u32>], tokenizer: &WordPiece) -> Self {
        let masker = Masker::new(tokenizer, 0.15, false, 12);
        let mut blanks = Self::default();
        for (number, text) in texts.iter().enumerate() {
            let mut ids = text.clone();
            let start = blanks.batch.rows() as u32;
            for target in masker.mask(number as u64, &mut ids) {
                blanks.rows.push(start + target.position);
                blanks.answers.push(target.label);
            }
            push(&mut blanks.batch, &ids);
        }
        blanks
    }

    /// Returns the loss at each blank, in nats, of `model` with `values` in place of its parameters.
    ///
    /// # Errors
    /// If the values don't fit the model, or a text is longer than it allows.
    pub fn losses(&self, model: &Model, values: Vec<f32>) -> Result<Vec<f64>> {
        let mut engine = CpuEngine::new(&model.config, &model.layout, values)?;
        let logits = engine.masked_lm_logits(&self.batch, &self.rows)?;
        let rows = logits.chunks_exact(model.config.vocab_size);
        let loss = |(row, &answer): (&[f32], &u32)| {
            let top = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let sum: f64 = row.iter().map(|&z| f64::from(z - top).exp()).sum();
            sum.ln() + f64::from(top - row[answer as usize])
        };
        Ok(rows.zip(&self.answers).map(loss).collect())
    }
}

/// Returns the mean, NaN of nothing.
pub fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Returns the model's parameters with one head's `query`, `key` or `value` projection set to 0: the rows of its
/// weight and the entries of its bias.
pub fn zeroed(model: &Model, layer: usize, head: usize, projection: &str) -> Vec<f32> {
    let mut values = model.values.clone();
    let (width, size) = (model.config.hidden_size, model.config.head_size());
    for (kind, columns) in [("weight", width), ("bias", 1)] {
        let name = format!("encoder.layer.{layer}.attention.self.{projection}.{kind}");
        if let Some((_, range)) = model.layout.find(&name) {
            values[range][head * size * columns..(head + 1) * size * columns].fill(0.0);
        }
    }
    values
}

/// Measurements of one blank, each with one number for every other ordinary token of the text.
#[derive(Debug, Clone)]
pub struct Effects {
    /// For each head, layer by layer: the attention weight that the blank gives to the token.
    pub weights: Vec<Vec<f64>>,
    /// Minus the distance from the blank.
    pub nearness: Vec<f64>,
    /// How much the loss at the blank grows when the token is masked too.
    pub cost: Vec<f64>,
}

impl Effects {
    /// Measures one blank, at a random place, in each of `count` texts of 10 to 24 tokens.
    ///
    /// # Errors
    /// If the engine fails.
    pub fn measure(
        model: &Model,
        special: SpecialIds,
        texts: &[Vec<u32>],
        count: usize,
    ) -> Result<Vec<Self>> {
        let mut engine = CpuEngine::new(&model.config, &model.layout, model.values.clone())?;
        let short = texts.iter().filter(|text| (10..=24).contains(&text.len()));
        let measured = short.take(count).enumerate().map(|(number, text)| {
            let mut draws = Stream::new(12, 0, Site::Other(1), number as u64).draws();
            let at = 1 + draws.below(text.len() as u32 - 2) as usize;
            Self::of(model, &mut engine, text, at, special)
        });
        measured.collect()
    }

    fn of(
        model: &Model,
        engine: &mut CpuEngine,
        text: &[u32],
        at: usize,
        special: SpecialIds,
    ) -> Result<Self> {
        let mut ids = text.to_vec();
        ids[at] = special.mask;
        let others: Vec<usize> =
            (0..text.len()).filter(|&j| j != at && !special.contains(text[j])).collect();
        let mut blanks = Blanks::default();
        push(&mut blanks.batch, &ids);
        let seen = engine.attention(&blanks.batch)?.swap_remove(0);
        for &j in &others {
            let mut more = ids.clone();
            more[j] = special.mask;
            push(&mut blanks.batch, &more);
        }
        blanks.rows = blanks.batch.ranges().map(|range| (range.start + at) as u32).collect();
        blanks.answers = vec![text[at]; blanks.rows.len()];
        let losses = blanks.losses(model, model.values.clone())?;
        let heads = (0..seen.layers.len() * seen.heads).map(|number| {
            let row = &seen.weights(number / seen.heads, number % seen.heads)[at * text.len()..];
            others.iter().map(|&j| f64::from(row[j])).collect()
        });
        Ok(Self {
            weights: heads.collect(),
            nearness: others.iter().map(|&j| -(j.abs_diff(at) as f64)).collect(),
            cost: losses[1..].iter().map(|loss| loss - losses[0]).collect(),
        })
    }

    /// Returns the weights of all heads added up, for each token.
    pub fn weights_together(&self) -> Vec<f64> {
        let sum = |token: usize| self.weights.iter().map(|head| head[token]).sum();
        (0..self.cost.len()).map(sum).collect()
    }
}

/// Returns the mean over all blanks of the rank correlation (Spearman's) of a quantity with the cost.
pub fn rank_correlation(all: &[Effects], quantity: impl Fn(&Effects) -> Vec<f64>) -> f64 {
    let each: Vec<f64> = all.iter().map(|one| spearman(&quantity(one), &one.cost)).collect();
    mean(&each)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tiny() -> (Model, WordPiece) {
        let folder = bundled::folder(bundled::TINY).unwrap();
        let tokenizer = WordPiece::from_file(&WordPiece::file_in(&folder), None).unwrap();
        (Model::read_all(&folder).unwrap(), tokenizer)
    }

    #[test]
    fn the_shares_of_a_head_by_place() {
        let (_, tokenizer) = tiny();
        let special = tokenizer.special();
        let ids = [special.cls, 1000, 1001, special.sep];
        let mut weights = [0.25; 16];
        weights[4..8].copy_from_slice(&[0.5, 0.125, 0.25, 0.125]);
        weights[8..12].copy_from_slice(&[0.0, 0.75, 0.25, 0.0]);
        assert_eq!(habits(&weights, &ids, special), [0.25, 0.0625, 0.1875, 0.375, 0.125, 0.0]);
    }

    #[test]
    fn the_table_of_habits_ends_with_equal_weights() {
        let (model, tokenizer) = tiny();
        let texts = vec![tokenizer.encode_with_special("the river was wide.").ids];
        let mut engine = CpuEngine::new(&model.config, &model.layout, model.values).unwrap();
        let seen = engine.attention(&pack(&texts)).unwrap();
        let table = habit_table(&texts, &seen, tokenizer.special());
        assert_eq!(table.len(), 5);
        assert_eq!(table[4].0, "equal weights");
        for (name, shares) in table {
            assert!((shares.iter().sum::<f64>() - 1.0).abs() < 1e-5, "{name}");
        }
    }

    #[test]
    fn vectors_are_centred_projected_and_compared() {
        let rows = centred(&[vec![1.0, 2.0], vec![5.0, 4.0]]);
        assert_eq!(rows, [[-2.0, -1.0], [2.0, 1.0]]);
        assert_eq!(spread(&rows, &[1.0, 0.0]), 8.0);
        assert_eq!(without_axis(&rows, &[1.0, 0.0]), [[0.0, -1.0], [0.0, 1.0]]);
        assert_eq!(unit(&[3.0, 4.0]), [0.6, 0.8]);
        let vectors = [vec![1.0, 0.0], vec![1.0, 0.1], vec![0.0, 1.0]];
        assert_eq!(nearest_alike(&vectors, &["a", "a", "b"]), 2.0 / 3.0);
    }

    #[test]
    fn vectors_of_words_come_from_the_table_and_from_the_layers() {
        let (model, tokenizer) = tiny();
        let id = tokenizer.id("river").unwrap();
        assert_eq!(word_vectors(&model, &[id]).unwrap()[0].len(), model.config.hidden_size);
        assert!(word_vectors(&model, &[u32::MAX]).is_err());
        let mut engine =
            CpuEngine::new(&model.config, &model.layout, model.values.clone()).unwrap();
        let texts = ["the river was wide.", "a river."];
        let states = in_context(&mut engine, &tokenizer, "river", &texts).unwrap();
        assert_eq!((states.len(), states[0].len()), (3, 2));
        let error = in_context(&mut engine, &tokenizer, "river", &["a lake."]).unwrap_err();
        assert!(error.to_string().contains("river"), "{error}");
        assert_eq!(surroundings("the river was wide.", "river"), "the river was");
    }

    #[test]
    fn a_probe_learns_a_separable_class() {
        let mut set = Labelled::default();
        for i in 0..20 {
            let side = if i % 2 == 0 { 1.0 } else { -1.0 };
            set.push(&[side, i as f32 / 20.0], u32::from(side > 0.0));
        }
        assert_eq!(probe::<2, 2>(&set, &set).unwrap(), 1.0);
    }

    #[test]
    fn words_of_the_names_have_vectors_at_every_layer() {
        let (model, tokenizer) = tiny();
        let width = model.config.hidden_size;
        let mut engine = CpuEngine::new(&model.config, &model.layout, model.values).unwrap();
        let words = Words::read("valid.txt", &tokenizer, &mut engine).unwrap();
        assert_eq!(words.layers.len(), 3);
        assert_eq!(words.layers[0].len(), words.ids.len() * width);
        assert!((0.1..0.5).contains(&words.share_of_capitals()));
        assert_eq!(words.labelled(1, words.capitals.clone()).classes.len(), words.ids.len());
    }

    #[test]
    fn a_head_without_values_changes_the_loss_and_effects_have_one_number_a_token() {
        let (model, tokenizer) = tiny();
        let texts = sentences_of_questions(&tokenizer).unwrap();
        let blanks = Blanks::new(&texts[..20], &tokenizer);
        let whole = mean(&blanks.losses(&model, model.values.clone()).unwrap());
        let less = mean(&blanks.losses(&model, zeroed(&model, 0, 1, "value")).unwrap());
        assert!(less > whole, "{less} {whole}");
        let effects = Effects::measure(&model, tokenizer.special(), &texts, 2).unwrap();
        assert_eq!(effects.len(), 2);
        assert_eq!(effects[0].weights.len(), 4);
        assert_eq!(effects[0].weights_together().len(), effects[0].cost.len());
        let itself = rank_correlation(&effects, |one| one.cost.clone());
        assert!((itself - 1.0).abs() < 1e-9);
    }
}
