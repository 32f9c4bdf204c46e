//! Helpers of the lessons about pre-training (09 to 11): pairs of sentences and their batches, the
//! crate's training loop with and without faults, and the means of its curves.

use std::ops::Range;
use std::sync::Arc;

use dfdx::nn::{builders, modules::Linear};
use dfdx::optim::{Adam, AdamConfig};
use dfdx::prelude::{Const, Cpu, DeviceBuildExt, TensorFromVec};

use crate::data::{Packed, PretrainingBatch, PretrainingData};
use crate::engine::optimizer::{Moments, Optimizer, Update};
use crate::engine::{CpuEngine, Engine, LossWeights, PretrainingEngine, PretrainingScores};
use crate::error::Result;
use crate::lessons::{largest_gap, measured, steps};
use crate::model::{Config, Dropout, Layout, Rows};
use crate::random::{Draws, Site, Stream};
use crate::text::{WordPiece, embedded, sentences};
use crate::train::Schedule;
use crate::view::{LineChart, LiveChart, TokenStrip};

/// The place of a sentence: its document, and its number in the document, both from 0.
pub type Place = (usize, usize);

/// Two sentences; the label is 0 where B follows A and 1 where it does not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pair {
    /// Where the first sentence stands.
    pub a: Place,
    /// Where the second sentence stands.
    pub b: Place,
    /// 0 if B follows A, otherwise 1.
    pub label: u32,
}

/// The second sentence of the pairs of label 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wrong {
    /// From another document, as in the paper.
    Random,
    /// From the same document, but not the sentence that follows.
    Elsewhere,
    /// The sentence before: two neighbours in the wrong order.
    Swapped,
}

impl Wrong {
    /// All of them, with their names.
    pub const ALL: [(Self, &'static str); 3] =
        [(Self::Random, "random"), (Self::Elsewhere, "elsewhere"), (Self::Swapped, "swapped")];
}

/// Returns the stories of the bundled text, each as a list of sentences.
pub fn documents() -> Vec<Vec<String>> {
    let cut = |paragraphs: Vec<String>| {
        let cut = paragraphs.iter().flat_map(|text| sentences(text));
        cut.map(str::to_owned).collect()
    };
    embedded::documents().into_iter().map(cut).collect()
}

/// Returns every fifth document, which is held out, and the others, to train on.
pub fn hold_out(documents: &[Vec<String>]) -> (Vec<Vec<String>>, Vec<Vec<String>>) {
    let numbered = documents.iter().cloned().enumerate();
    let (held_out, training): (Vec<_>, Vec<_>) = numbered.partition(|(i, _)| i % 5 == 1);
    let texts = |of: Vec<(usize, Vec<String>)>| of.into_iter().map(|(_, text)| text).collect();
    (texts(held_out), texts(training))
}

/// Returns the random numbers that pair the sentences of one pass through the text.
pub fn pairing_draws(pass: u32) -> Draws {
    Stream::new(6, pass, Site::Pairing, 0).draws()
}

/// Returns the pairs of one pass in a random order.
pub fn shuffled(mut pairs: Vec<Pair>, pass: u32) -> Vec<Pair> {
    let mut draws = Stream::new(6, pass, Site::Order, 0).draws();
    for place in (1..pairs.len()).rev() {
        pairs.swap(place, draws.below(place as u32 + 1) as usize);
    }
    pairs
}

/// Replaces B in the pairs of label 1. `lengths` counts the sentences of each document.
pub fn with_wrong(mut pairs: Vec<Pair>, lengths: &[usize], wrong: Wrong, pass: u32) -> Vec<Pair> {
    let mut draws = Stream::new(66, pass, Site::Pairing, 1).draws();
    for pair in pairs.iter_mut().filter(|pair| pair.label == 1) {
        let (document, place) = pair.a;
        match wrong {
            Wrong::Random => {}
            // Neither A itself nor the next sentence; of two sentences, A is the only one left.
            Wrong::Elsewhere => {
                let others = lengths[document].saturating_sub(2).max(1) as u32;
                let step = draws.below(others) as usize;
                pair.b = (document, (place + 2 + step) % lengths[document]);
            }
            Wrong::Swapped => (pair.a, pair.b) = ((document, place + 1), (document, place)),
        }
    }
    pairs
}

/// Returns the number of sentences of each document.
pub fn lengths(documents: &[Vec<String>]) -> Vec<usize> {
    documents.iter().map(Vec::len).collect()
}

/// Returns pairs as the model reads them, one after the other, with their labels.
pub fn pair_batch(
    tokenizer: &WordPiece,
    documents: &[Vec<String>],
    pairs: &[Pair],
) -> PretrainingBatch {
    let mut batch = PretrainingBatch::default();
    let text = |(document, sentence): Place| &documents[document][sentence];
    for (number, pair) in (0..).zip(pairs) {
        let (encoding, segments) = tokenizer.encode_pair(text(pair.a), text(pair.b));
        batch.packed.push(number, &encoding.ids, &segments);
        batch.next_labels.push(pair.label);
    }
    batch
}

/// Draws the first pair of a batch with a label, with its segments.
pub fn pair_strip(tokenizer: &WordPiece, batch: &PretrainingBatch, label: u32) -> TokenStrip {
    let title = if label == 0 { "Label 0: B follows A" } else { "Label 1: B is random" };
    let number = batch.next_labels.iter().position(|&its| its == label).unwrap_or_default();
    let rows = batch.packed.rows_of(number);
    let ids = batch.packed.ids[rows.clone()].iter();
    let tokens: Vec<&str> = ids.map(|&id| tokenizer.token(id).unwrap_or("?")).collect();
    let segments = &batch.packed.segments[rows];
    TokenStrip::new(title, &tokens).row("segment", segments).colored(segments)
}

/// Returns for each pair the share of B's tokens that occur in A, and the label.
pub fn shared_tokens(
    tokenizer: &WordPiece,
    documents: &[Vec<String>],
    pairs: &[Pair],
) -> Vec<(f64, u32)> {
    let ids = |(document, sentence): Place| tokenizer.encode(&documents[document][sentence]).ids;
    let share = |pair: &Pair| {
        let (a, b) = (ids(pair.a), ids(pair.b));
        let shared = b.iter().filter(|id| a.contains(id)).count();
        (shared as f64 / b.len().max(1) as f64, pair.label)
    };
    pairs.iter().map(share).collect()
}

/// Counts the answers that are right if a score above `limit` means label 0. `scored` holds scores and
/// labels.
pub fn right_above(scored: &[(f64, u32)], limit: f64) -> usize {
    scored.iter().filter(|(score, label)| (*score > limit) == (*label == 0)).count()
}

/// Returns the limit in steps of 5 % from 0 to 95 % with the most right answers.
pub fn best_limit(scored: &[(f64, u32)]) -> f64 {
    let limits = (0..20).map(|twentieth| f64::from(twentieth) / 20.0);
    limits.max_by_key(|&limit| right_above(scored, limit)).unwrap_or_default()
}

/// Returns batches of the pairs of `documents`, one for each kind of wrong pairs; `pairs_of` makes the pairs
/// of a pass.
pub fn tests_of(
    tokenizer: &WordPiece,
    documents: &[Vec<String>],
    pairs_of: impl Fn(&[Vec<String>], Wrong, u32) -> Vec<Pair>,
) -> Vec<PretrainingBatch> {
    let batch = |(wrong, _)| {
        let pairs = pairs_of(documents, wrong, 0);
        pair_batch(tokenizer, documents, &pairs[..measured(pairs.len())])
    };
    Wrong::ALL.map(batch).to_vec()
}

/// The pooler's linear layer, and a classifier with two outputs.
pub type PairHead<const H: usize> = (Linear<H, H, f32, Cpu>, Linear<H, 2, f32, Cpu>);

/// Returns a head with random weights, and the optimizer that trains it.
pub fn new_head<const H: usize>() -> (PairHead<H>, Adam<PairHead<H>, f32, Cpu>) {
    let dev = Cpu::default();
    let head = (
        dev.build_module::<builders::Linear<H, H>, f32>(),
        dev.build_module::<builders::Linear<H, 2>, f32>(),
    );
    let adam = Adam::new(&head, AdamConfig { lr: 3e-4, ..AdamConfig::default() });
    (head, adam)
}

/// Counts the rows of logits, two numbers each, whose larger number stands at the label.
pub fn count_right(logits: &[f32], labels: &[u32]) -> usize {
    let answers = logits.chunks(2).map(|z| u32::from(z[1] > z[0]));
    answers.zip(labels).filter(|(answer, label)| answer == *label).count()
}

/// Returns the encoder's last hidden states of all tokens, (rows, `H`).
///
/// # Panics
/// If the model's hidden size is not `H`.
pub fn last_states<const H: usize>(
    model: &mut CpuEngine,
    batch: &Packed,
) -> Result<Rows<H, f32, Cpu>> {
    let last = model.config().num_hidden_layers;
    let states = model.hidden_states(batch, last..last + 1)?.layers.swap_remove(0);
    Ok(Cpu::default().tensor_from_vec(states, (batch.rows(), Const::<H>)))
}

/// Returns the accuracy of the next-sentence head on each batch, in percent.
pub fn pair_accuracies(model: &mut CpuEngine, tests: &[PretrainingBatch]) -> Result<Vec<f64>> {
    let of = |test| Ok(100.0 * model.pretraining_scores(test)?.nsp_accuracy());
    tests.iter().map(of).collect()
}

/// Returns a chart of accuracies on pairs.
pub fn accuracy_chart(title: &str) -> LiveChart {
    let chart = LineChart::new(title).axes("step", "% of the pairs right");
    LiveChart::new(chart.reference("guessing", 50.0))
}

/// Trains all parameters on pairs of sentences of `documents`, 400 steps of 32 pairs. `pairs_of` makes the
/// pairs of a pass. The chart gets the accuracy on `test` before the first step, every 50 steps and at the
/// end.
pub fn train_on_pairs(
    model: &mut CpuEngine,
    (tokenizer, documents): (&WordPiece, &[Vec<String>]),
    pairs_of: impl Fn(u32) -> Vec<Pair>,
    test: &PretrainingBatch,
    (chart, name): (&mut LiveChart, &str),
) -> Result<()> {
    let steps = steps(400);
    let mut report = |step: u64, model: &mut CpuEngine| -> Result<()> {
        let scores = model.pretraining_scores(test)?;
        chart.push(name, step as f64, 100.0 * scores.nsp_accuracy());
        Ok(())
    };
    report(0, model)?;
    let schedule = Schedule::linear(1e-3, steps / 10, steps);
    let (mut waiting, mut pass) = (Vec::new(), 0);
    for step in 1..=steps {
        if waiting.len() < 32 {
            pass += 1;
            waiting = shuffled(pairs_of(pass), pass);
        }
        let part = waiting.split_off(waiting.len().saturating_sub(32));
        model.pretraining_gradients(&pair_batch(tokenizer, documents, &part), dropout(step))?;
        model.update(&update(schedule.rate(step), step))?;
        if step % 50 == 0 || step == steps {
            report(step, model)?;
        }
    }
    Ok(())
}

/// Returns AdamW with the constants of lesson 10: the second beta is 0.98.
pub fn optimizer() -> Optimizer {
    Optimizer { beta2: 0.98, ..Optimizer::default() }
}

/// Returns the update of a step at a rate, with clipping to 1.
fn update(learning_rate: f64, step: u64) -> Update {
    Update { optimizer: optimizer(), learning_rate, step, max_norm: 1.0 }
}

fn dropout(step: u64) -> Dropout {
    Dropout { seed: 1, step: step as u32 }
}

/// Returns for each parameter whether AdamW decays it: weights are, biases and LayerNorms are not.
pub fn decayed(layout: &Layout) -> Vec<bool> {
    let mut decayed = vec![false; layout.total()];
    for (parameter, range) in layout.iter() {
        decayed[range].fill(parameter.decay);
    }
    decayed
}

/// Does step `step` of a run, counted from 1, on a batch of 16 pairs with the crate's parts.
pub fn crate_step(
    model: &mut CpuEngine,
    data: &PretrainingData,
    schedule: Schedule,
    step: u64,
) -> Result<PretrainingScores> {
    let scores = model.pretraining_gradients(&data.batch(step - 1, 16)?, dropout(step))?;
    model.update(&update(schedule.rate(step), step))?;
    Ok(scores)
}

/// Scores a model on one pass through held-out text, at most 512 sequences.
pub fn held_out_scores(
    model: &mut dyn PretrainingEngine,
    held_out: &PretrainingData,
) -> Result<PretrainingScores> {
    let count = held_out.examples_per_epoch().min(512) as usize;
    model.pretraining_scores(&held_out.batch(0, count)?)
}

/// A slip in a training loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Slip {
    /// None: the loop is right.
    None,
    /// The parameters never change.
    Frozen,
    /// The gradients of a step are added to those of the steps before.
    NotZeroed,
    /// Only the last part of each batch has gradients.
    LastPartOnly,
    /// The parameters are updated after each part.
    UpdatedEachPart,
    /// The gradients are not clipped, or only after the update.
    Unclipped,
    /// The rate is that of the step before.
    RateBefore,
    /// The rate is that of the step after.
    RateAfter,
    /// The batch is that of the step after: `batch(step)` instead of `batch(step - 1)`.
    BatchAfter,
    /// AdamW corrects the means for the step after.
    CorrectedAfter,
}

/// A short run of the crate's loop, with which a learner's loop is compared.
#[derive(Debug, Clone, Copy)]
pub struct Run<'a> {
    /// The model's hyperparameters.
    pub config: &'a Config,
    /// The layout of its parameters.
    pub layout: &'a Arc<Layout>,
    /// The parameters before the first step.
    pub start: &'a [f32],
    /// The text.
    pub data: &'a PretrainingData,
    /// The rate of each step.
    pub schedule: Schedule,
    /// The pairs of each part of a batch, in order; the last ends at the size of a batch.
    pub parts: &'a [Range<usize>],
}

impl Run<'_> {
    /// Trains for `steps` steps with a slip. Returns the joint loss of each step, and the parameters.
    pub fn with(&self, slip: Slip, steps: u64) -> Result<(Vec<f64>, Vec<f32>)> {
        let mut model = CpuEngine::new(self.config, self.layout, self.start.to_vec())?;
        let (mut values, mut partials) = (self.start.to_vec(), Vec::new());
        let mut moments = Moments::zeros(values.len());
        let mut losses = Vec::new();
        let size = self.parts.last().map_or(0, |part| part.end);
        for step in 1..=steps {
            let number = if slip == Slip::BatchAfter { step } else { step - 1 };
            let batch = self.data.batch(number, size)?;
            let weights = LossWeights::of(&batch);
            let mut scores = PretrainingScores::default();
            for (at, part) in self.parts.iter().enumerate() {
                if slip == Slip::LastPartOnly {
                    model.discard()?;
                }
                let part = batch.slice(part.clone());
                scores += model.pretraining_gradients_of_part(&part, weights, dropout(step))?;
                if at + 1 < self.parts.len() && slip != Slip::UpdatedEachPart {
                    continue;
                }
                let mut gradients = model.gradients()?;
                if slip != Slip::NotZeroed {
                    model.discard()?;
                }
                let update = self.update(slip, step);
                update.apply(self.layout, &mut values, &mut gradients, &mut moments, &mut partials);
                model.set_parameters(&values)?;
            }
            losses.push(scores.loss());
        }
        Ok((losses, values))
    }

    fn update(&self, slip: Slip, step: u64) -> Update {
        let rate = match slip {
            Slip::Frozen => 0.0,
            Slip::RateBefore => self.schedule.rate(step - 1),
            Slip::RateAfter => self.schedule.rate(step + 1),
            _ => self.schedule.rate(step),
        };
        let mut update = update(rate, step);
        match slip {
            Slip::Unclipped => update.max_norm = f64::INFINITY,
            Slip::CorrectedAfter => update.step += 1,
            _ => {}
        }
        update
    }

    /// Returns the slip whose losses are those of `losses`, within the rounding of f32.
    pub fn slip_of(&self, losses: &[f64]) -> Result<Option<Slip>> {
        const SLIPS: [Slip; 9] = [
            Slip::Frozen,
            Slip::NotZeroed,
            Slip::LastPartOnly,
            Slip::UpdatedEachPart,
            Slip::Unclipped,
            Slip::RateBefore,
            Slip::RateAfter,
            Slip::BatchAfter,
            Slip::CorrectedAfter,
        ];
        for slip in SLIPS {
            let (its, _) = self.with(slip, losses.len() as u64)?;
            if largest_gap(losses, &its) < SAME_LOSS {
                return Ok(Some(slip));
            }
        }
        Ok(None)
    }
}

/// Losses that differ by less than this are the same but for the order of additions in f32.
pub const SAME_LOSS: f64 = 2e-5;

/// Counts the numbers that differ between two lists of equal length.
pub fn differing(a: &[f32], b: &[f32]) -> usize {
    a.iter().zip(b).filter(|(a, b)| a != b).count()
}

/// A fault that is built into a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// None: the run is healthy.
    None,
    /// Every rate is 0.
    Over,
    /// Each label belongs to another masked token, half a batch away.
    Shifted,
    /// The tokens that are asked for stand in the input.
    Visible,
    /// The rate is thirty times as high.
    Fast,
    /// Every token has position 0.
    Placeless,
}

/// The faults of six runs, with the runs' names.
pub const FAULTS: [(&str, Fault); 6] = [
    ("A", Fault::None),
    ("B", Fault::Over),
    ("C", Fault::Shifted),
    ("D", Fault::Visible),
    ("E", Fault::Fast),
    ("F", Fault::Placeless),
];

impl Fault {
    fn spoil(self, batch: &mut PretrainingBatch) {
        match self {
            Self::Shifted => {
                let half = batch.masked_labels.len() / 2;
                batch.masked_labels.rotate_right(half);
            }
            Self::Visible => {
                for (row, label) in batch.masked_rows.iter().zip(&batch.masked_labels) {
                    batch.packed.ids[*row as usize] = *label;
                }
            }
            Self::Placeless => batch.packed.positions.fill(0),
            Self::None | Self::Over | Self::Fast => {}
        }
    }
}

/// A curve: steps and values.
pub type Curve = Vec<(f64, f64)>;

/// Trains a model from random weights with a fault. Returns the loss of each step: nats a masked token,
/// and nats a pair.
pub fn sick_run(
    fault: Fault,
    data: &PretrainingData,
    config: &Config,
    steps: u64,
) -> Result<(Curve, Curve)> {
    let layout = Layout::new(config, &crate::model::PRETRAINING);
    let mut model = CpuEngine::new(config, &layout, layout.initialise(1))?;
    let peak = match fault {
        Fault::Over => 0.0,
        Fault::Fast => 6e-2,
        _ => 2e-3,
    };
    let schedule = Schedule::linear(peak, steps / 10, steps);
    let (mut tokens, mut pairs) = (Vec::new(), Vec::new());
    for step in 1..=steps {
        let mut batch = data.batch(step - 1, 16)?;
        fault.spoil(&mut batch);
        let scores = model.pretraining_gradients(&batch, dropout(step))?;
        model.update(&update(schedule.rate(step), step))?;
        tokens.push((step as f64, scores.mean_mlm_loss()));
        pairs.push((step as f64, scores.mean_nsp_loss()));
    }
    Ok((tokens, pairs))
}

/// Returns the mean of the last tenth of a curve; 0 for an empty one.
pub fn late_mean(curve: &[(f64, f64)]) -> f64 {
    let last = &curve[curve.len() - curve.len().div_ceil(10)..];
    last.iter().map(|point| point.1).sum::<f64>() / last.len().max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::PretrainingOptions;
    use crate::model::PRETRAINING;
    use crate::text::Casing;

    #[test]
    fn every_fifth_document_is_held_out() {
        let all = documents();
        assert_eq!(all.len(), 480);
        let (held_out, training) = hold_out(&all);
        assert_eq!((held_out.len(), training.len()), (96, 384));
        assert_eq!((&held_out[1], &training[1]), (&all[6], &all[2]));
    }

    #[test]
    fn wrong_pairs_are_of_the_kind_asked_for() {
        let lengths = [4, 2];
        let pair = |a, b, label| Pair { a, b, label };
        let pairs = vec![
            pair((0, 0), (0, 1), 0),
            pair((0, 1), (1, 0), 1),
            pair((0, 2), (1, 1), 1),
            pair((1, 0), (0, 3), 1),
        ];
        assert_eq!(with_wrong(pairs.clone(), &lengths, Wrong::Random, 0), pairs);
        let swapped = with_wrong(pairs.clone(), &lengths, Wrong::Swapped, 0);
        assert_eq!(swapped[0], pairs[0]);
        assert_eq!(swapped[1], pair((0, 2), (0, 1), 1));
        for pass in 0..50 {
            let elsewhere = with_wrong(pairs.clone(), &lengths, Wrong::Elsewhere, pass);
            assert_eq!(elsewhere[0], pairs[0]);
            for pair in &elsewhere[1..3] {
                assert_eq!(pair.b.0, 0);
                assert!(pair.b.1 < 4 && pair.b.1 != pair.a.1 && pair.b.1 != pair.a.1 + 1);
            }
            assert_eq!(elsewhere[3].b, (1, 0));
        }
        let mut mixed = shuffled(pairs.clone(), 1);
        mixed.sort_by_key(|pair| pair.a);
        assert_eq!(mixed, pairs);
    }

    #[test]
    fn pairs_become_batches_and_shares() {
        let texts =
            || ["the mill stands.", "the river runs."].map(|t| Ok(t.to_owned())).into_iter();
        let tokenizer = WordPiece::train(texts(), 60, Casing::Uncased).unwrap();
        let documents = [vec!["the mill".to_owned()], vec!["the river".to_owned()]];
        assert_eq!(lengths(&documents), [1, 1]);
        let pairs = [Pair { a: (0, 0), b: (1, 0), label: 1 }];
        let batch = pair_batch(&tokenizer, &documents, &pairs);
        let (encoding, segments) = tokenizer.encode_pair("the mill", "the river");
        assert_eq!((&batch.packed.ids, &batch.packed.segments), (&encoding.ids, &segments));
        assert_eq!(batch.next_labels, [1]);
        let b = tokenizer.encode("the river").ids;
        let [(share, label)] = shared_tokens(&tokenizer, &documents, &pairs)[..] else { panic!() };
        assert!((share * b.len() as f64).round() >= 1.0 && share < 1.0 && label == 1);
        assert!(pair_strip(&tokenizer, &batch, 1).text().starts_with("Label 1"));
    }

    #[test]
    fn answers_are_counted() {
        let scored = [(0.5, 0), (0.3, 1), (0.1, 0), (0.0, 1)];
        assert_eq!(right_above(&scored, 0.4), 3);
        assert_eq!(right_above(&scored, best_limit(&scored)), 3);
        assert_eq!(count_right(&[1.0, 2.0, 3.0, 0.0], &[1, 1]), 1);
    }

    #[test]
    fn the_end_of_a_curve_is_its_last_tenth() {
        let curve: Curve = (1..=20).map(|step| (f64::from(step), f64::from(step))).collect();
        assert!((late_mean(&curve) - 19.5).abs() < 1e-9);
        assert_eq!(differing(&[1.0, 2.0, 3.0], &[1.0, 2.5, 4.0]), 2);
        assert!(late_mean(&[]).abs() < 1e-9);
    }

    #[test]
    fn each_slip_shows_in_the_losses() {
        let paragraphs = || embedded::paragraphs().take(300);
        let texts = paragraphs().map(|p| Ok(p.text));
        let tokenizer = WordPiece::train(texts, 300, Casing::Uncased).unwrap();
        let options = PretrainingOptions { max_len: 40, ..PretrainingOptions::default() };
        let data = PretrainingData::build(paragraphs().map(Ok), &tokenizer, &options, None);
        let data = data.unwrap();
        let mut config = Config::new(1, 32, 2, 64, tokenizer.vocab_size());
        (config.hidden_dropout_prob, config.attention_probs_dropout_prob) = (0.0, 0.0);
        let layout = Layout::new(&config, &PRETRAINING);
        let start = layout.initialise(1);
        let schedule = Schedule::linear(5e-3, 4, 8);
        let (config, layout, start) = (&config, &layout, &start[..]);
        let run = Run { config, layout, start, data: &data, schedule, parts: &[0..10, 10..16] };
        let (right, values) = run.with(Slip::None, 8).unwrap();
        let mut model = CpuEngine::new(config, layout, start.to_vec()).unwrap();
        for (step, loss) in (1..).zip(&right) {
            let its = crate_step(&mut model, &data, schedule, step).unwrap();
            assert!((its.loss() - loss).abs() < SAME_LOSS, "step {step}");
        }
        let its = model.parameters().unwrap();
        let gaps = its.iter().zip(&values).map(|(a, b)| (a - b).abs());
        assert!(gaps.fold(0.0, f32::max) < 1e-4);
        assert_eq!(run.slip_of(&right).unwrap(), None);
        let (loss, _) = run.with(Slip::NotZeroed, 8).unwrap();
        assert_eq!(run.slip_of(&loss).unwrap(), Some(Slip::NotZeroed));
    }
}
