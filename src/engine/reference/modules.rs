//! The dfdx model of any size and device behind one object-safe trait, and its losses.

use std::any::Any;
use std::ops::Range;

use dfdx::prelude::*;

use crate::data::Packed;
use crate::data::pretraining::PretrainingBatch;
use crate::engine::distillation::EPSILON;
use crate::engine::{
    DistillationScores, DistillationWeights, HiddenStates, LossWeights, PretrainingScores,
    SoftTargets, missing_head,
};
use crate::error::{Error, Result};
use crate::model::{
    Bert, BertDevice, Config, Dropout, Layout, Rows, SequenceAttention, Size, cross_entropy, pick,
};

/// The model without its size in the type.
pub(super) trait Modules {
    /// Returns the model itself, whose type has its size.
    fn as_any(&self) -> &dyn Any;
    fn pretraining_gradients(
        &self,
        layout: &Layout,
        batch: &PretrainingBatch,
        weights: LossWeights,
        dropout: Dropout,
    ) -> Result<(PretrainingScores, Vec<f32>)>;
    fn pretraining_scores(&self, batch: &PretrainingBatch) -> Result<PretrainingScores>;
    fn distillation_gradients(
        &self,
        layout: &Layout,
        batch: &PretrainingBatch,
        targets: SoftTargets,
        weights: DistillationWeights,
        dropout: Dropout,
    ) -> Result<(DistillationScores, Vec<f32>)>;
    /// Returns the gradients of the parameters that follow from those of the logits, `slopes`.
    fn task_gradients(
        &self,
        layout: &Layout,
        batch: &Packed,
        dropout: Dropout,
        slopes: &[f32],
    ) -> Result<Vec<f32>>;
    fn task_logits(&self, batch: &Packed, dropout: Option<Dropout>) -> Result<Vec<f32>>;
    fn hidden_states(&self, batch: &Packed, layers: Range<usize>) -> HiddenStates;
    fn attention(&self, batch: &Packed) -> Vec<SequenceAttention>;
    fn masked_lm_logits(&self, batch: &Packed, rows: &[u32]) -> Result<Vec<f32>>;
    fn next_sentence_logits(&self, batch: &Packed) -> Result<Vec<[f32; 2]>>;
}

/// Builds a boxed model of the size in the configuration.
macro_rules! build {
    ($device:expr, $config:expr, $layout:expr, $values:expr) => {{
        let c = $config;
        match (c.hidden_size, c.num_attention_heads, c.intermediate_size) {
            (128, 2, 512) => build!(128, 2, 64, 512; $device, c, $layout, $values),
            (256, 4, 1024) => build!(256, 4, 64, 1024; $device, c, $layout, $values),
            (512, 8, 2048) => build!(512, 8, 64, 2048; $device, c, $layout, $values),
            (384, 12, 1536) => build!(384, 12, 32, 1536; $device, c, $layout, $values),
            (768, 12, 3072) => build!(768, 12, 64, 3072; $device, c, $layout, $values),
            (1024, 16, 4096) => build!(1024, 16, 64, 4096; $device, c, $layout, $values),
            width => Err(unknown(width)),
        }
    }};
    ($h:literal, $a:literal, $k:literal, $i:literal;
     $device:expr, $config:expr, $layout:expr, $values:expr) => {
        Ok(Box::new(Bert::<$h, $a, $k, $i, f32, _>::build(
            $config, $layout, $values, $device,
        )?))
    };
}

/// Builds the modules on the CPU, for any thread.
pub(super) fn on_cpu(
    config: &Config,
    layout: &Layout,
    values: &[f32],
) -> Result<Box<dyn Modules + Send + Sync>> {
    build!(&Cpu::default(), config, layout, values)
}

/// Builds the modules on a GPU. Like dfdx's device, they must not leave their thread.
#[cfg(feature = "dfdx-cuda")]
pub(super) fn on_gpu(
    device: &Cuda,
    config: &Config,
    layout: &Layout,
    values: &[f32],
) -> Result<Box<dyn Modules>> {
    build!(device, config, layout, values)
}

fn unknown((hidden, heads, intermediate): (usize, usize, usize)) -> Error {
    let known: Vec<_> = Size::ALL
        .iter()
        .map(|size| {
            let (_, h, a, i) = size.dimensions();
            format!("{h}/{a}/{i} ({})", size.name())
        })
        .collect();
    Error::Failed(format!(
        "the reference model has no type for hidden/heads/intermediate sizes {hidden}/{heads}/{intermediate}; it has {}",
        known.join(", ")
    ))
}

impl<const H: usize, const A: usize, const K: usize, const I: usize, D: BertDevice<f32>> Modules
    for Bert<H, A, K, I, f32, D>
{
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn pretraining_gradients(
        &self,
        layout: &Layout,
        batch: &PretrainingBatch,
        weights: LossWeights,
        dropout: Dropout,
    ) -> Result<(PretrainingScores, Vec<f32>)> {
        let (loss, scores) = pretraining_loss::<H, A, K, I, D, OwnedTape<f32, D>>(
            self,
            batch,
            weights,
            Some(dropout),
        )?;
        Ok((scores, backward(self, loss, layout)))
    }

    fn pretraining_scores(&self, batch: &PretrainingBatch) -> Result<PretrainingScores> {
        let weights = LossWeights::of(batch);
        Ok(pretraining_loss::<H, A, K, I, D, NoneTape>(self, batch, weights, None)?.1)
    }

    fn distillation_gradients(
        &self,
        layout: &Layout,
        batch: &PretrainingBatch,
        targets: SoftTargets,
        weights: DistillationWeights,
        dropout: Dropout,
    ) -> Result<(DistillationScores, Vec<f32>)> {
        let (loss, scores) = distillation_loss(self, batch, targets, weights, dropout)?;
        Ok((scores, backward(self, loss, layout)))
    }

    fn task_gradients(
        &self,
        layout: &Layout,
        batch: &Packed,
        dropout: Dropout,
        slopes: &[f32],
    ) -> Result<Vec<f32>> {
        let hidden = self.encode::<OwnedTape<f32, D>>(batch, Some(dropout), &mut |_, _| {});
        let logits =
            self.task_logits(hidden, batch, Some(dropout)).ok_or_else(|| missing_head("task"))?;
        // The gradient of Σ logits · slopes is `slopes`: backpropagation continues from there.
        let slopes = logits.device().tensor_from_vec(slopes.to_vec(), *logits.shape());
        Ok(backward(self, (logits * slopes).sum(), layout))
    }

    fn task_logits(&self, batch: &Packed, dropout: Option<Dropout>) -> Result<Vec<f32>> {
        let hidden = self.encode::<NoneTape>(batch, dropout, &mut |_, _| {});
        let logits = self.task_logits(hidden, batch, dropout);
        Ok(logits.ok_or_else(|| missing_head("task"))?.as_vec())
    }

    fn hidden_states(&self, batch: &Packed, range: Range<usize>) -> HiddenStates {
        let mut layers = Vec::with_capacity(range.len());
        let rows = self.encode::<NoneTape>(batch, None, &mut |layer, hidden| {
            if range.contains(&layer) {
                layers.push(crate::model::real_rows(hidden, batch).as_vec());
            }
        });
        HiddenStates { layers, pooled: self.pool(rows, batch).map(|pooled| pooled.as_vec()) }
    }

    fn attention(&self, batch: &Packed) -> Vec<SequenceAttention> {
        Bert::attention(self, batch)
    }

    fn masked_lm_logits(&self, batch: &Packed, rows: &[u32]) -> Result<Vec<f32>> {
        let hidden = self.encode::<NoneTape>(batch, None, &mut |_, _| {});
        Ok(masked_logits(self, hidden, rows)?.as_vec())
    }

    fn next_sentence_logits(&self, batch: &Packed) -> Result<Vec<[f32; 2]>> {
        let hidden = self.encode::<NoneTape>(batch, None, &mut |_, _| {});
        let logits = pair_logits(self, hidden, batch)?.as_vec();
        Ok(logits.as_chunks().0.to_vec())
    }
}

/// Returns the gradients of all parameters, laid out as `layout` describes.
fn backward<const H: usize, const A: usize, const K: usize, const I: usize, D: BertDevice<f32>>(
    bert: &Bert<H, A, K, I, f32, D>,
    loss: Loss<D>,
    layout: &Layout,
) -> Vec<f32> {
    let mut gradients = vec![0.0; layout.total()];
    bert.add_gradients(&mut loss.backward(), layout, &mut gradients);
    gradients
}

fn masked_logits<const H: usize, const A: usize, const K: usize, const I: usize, D, T>(
    bert: &Bert<H, A, K, I, f32, D>,
    hidden: Rows<H, f32, D, T>,
    rows: &[u32],
) -> Result<Tensor<(usize, usize), f32, D, T>>
where
    D: BertDevice<f32>,
    T: Tape<f32, D> + Merge<T>,
{
    let head = bert.masked_lm.as_ref().ok_or_else(|| missing_head("masked-LM"))?;
    Ok(head.forward(pick(hidden, rows), &bert.embeddings.words))
}

fn pair_logits<const H: usize, const A: usize, const K: usize, const I: usize, D, T>(
    bert: &Bert<H, A, K, I, f32, D>,
    hidden: Rows<H, f32, D, T>,
    batch: &Packed,
) -> Result<Tensor<(usize, Const<2>), f32, D, T>>
where
    D: BertDevice<f32>,
    T: Tape<f32, D> + Merge<T>,
{
    let head = bert.next_sentence.as_ref().ok_or_else(|| missing_head("next-sentence"))?;
    let pooled = bert.pool(hidden, batch).ok_or_else(|| missing_head("pooler"))?;
    Ok(head.forward(pooled))
}

/// Returns the weighted loss of pre-training with its tape, and the scores.
fn pretraining_loss<const H: usize, const A: usize, const K: usize, const I: usize, D, T>(
    bert: &Bert<H, A, K, I, f32, D>,
    batch: &PretrainingBatch,
    weights: LossWeights,
    dropout: Option<Dropout>,
) -> Result<(Tensor<Rank0, f32, D, T>, PretrainingScores)>
where
    D: BertDevice<f32>,
    T: Tape<f32, D> + Merge<T>,
{
    let hidden = bert.encode::<T>(&batch.packed, dropout, &mut |_, _| {});
    let dev = bert.embeddings.words.device();
    let mut scores = PretrainingScores::default();
    let mut loss: Tensor<Rank0, f32, D, T> = dev.zeros().put_tape(T::default());
    if !batch.masked_rows.is_empty() {
        let logits = masked_logits(bert, hidden.retaped::<T>(), &batch.masked_rows)?;
        let vocabulary = logits.shape().1;
        scores.mlm_correct = correct(&logits.as_vec(), vocabulary, &batch.masked_labels);
        scores.mlm_total = batch.masked_rows.len() as u64;
        let sum = cross_entropy(logits, &batch.masked_labels);
        scores.mlm_loss = number(&sum);
        loss = loss + sum * weights.masked;
    }
    if !batch.next_labels.is_empty() {
        let logits = pair_logits(bert, hidden.retaped::<T>(), &batch.packed)?;
        scores.nsp_correct = correct(&logits.as_vec(), 2, &batch.next_labels);
        scores.nsp_total = batch.next_labels.len() as u64;
        let sum = cross_entropy(logits, &batch.next_labels);
        scores.nsp_loss = number(&sum);
        loss = loss + sum * weights.pair;
    }
    // The encoder's tape continues where the heads' gradients end.
    let (_, tape) = hidden.split_tape();
    let (loss, head_tapes) = loss.split_tape();
    Ok((loss.put_tape(head_tapes.merge(tape)), scores))
}

/// A loss with its tape.
type Loss<D> = Tensor<Rank0, f32, D, OwnedTape<f32, D>>;

/// Returns the weighted loss of distillation with its tape, and the scores.
fn distillation_loss<
    const H: usize,
    const A: usize,
    const K: usize,
    const I: usize,
    D: BertDevice<f32>,
>(
    bert: &Bert<H, A, K, I, f32, D>,
    batch: &PretrainingBatch,
    targets: SoftTargets,
    weights: DistillationWeights,
    dropout: Dropout,
) -> Result<(Loss<D>, DistillationScores)> {
    let dev = bert.embeddings.words.device();
    let hidden = bert.encode::<OwnedTape<f32, D>>(&batch.packed, Some(dropout), &mut |_, _| {});
    let rows = batch.packed.rows();

    // cos = own · theirs / (|own| |theirs|) per row.
    let theirs: Rows<H, f32, D> = dev.tensor_from_vec(targets.hidden, (rows, Const));
    let own = hidden.retaped::<OwnedTape<f32, D>>().square();
    let own = (own.sum::<(usize,), Axis<1>>() + EPSILON).sqrt();
    let norms = (theirs.clone().square().sum::<(usize,), Axis<1>>() + EPSILON).sqrt();
    let products = (hidden.retaped::<OwnedTape<f32, D>>() * theirs).sum::<(usize,), Axis<1>>();
    let cosine = (-(products / (own * norms)) + 1.0).sum::<Rank0, Axis<0>>();
    let mut scores = DistillationScores {
        cosine: number(&cosine),
        rows: rows as u64,
        ..DistillationScores::default()
    };
    let mut loss = cosine * weights.cosine;

    if !batch.masked_rows.is_empty() {
        let logits =
            masked_logits(bert, hidden.retaped::<OwnedTape<f32, D>>(), &batch.masked_rows)?;
        let shape = *logits.shape();
        scores.hard.mlm_correct = correct(&logits.as_vec(), shape.1, &batch.masked_labels);
        scores.hard.mlm_total = batch.masked_rows.len() as u64;
        let hard = cross_entropy(logits.retaped::<OwnedTape<f32, D>>(), &batch.masked_labels);
        scores.hard.mlm_loss = number(&hard);

        // Σ p (ln p - ln q) with p the teacher's and q the student's probabilities.
        let t = weights.temperature;
        let theirs: Tensor<(usize, usize), f32, D> = dev.tensor_from_vec(targets.logits, shape);
        let theirs = (theirs / t).log_softmax::<Axis<1>>();
        let own = (logits / t).log_softmax::<Axis<1>>();
        let divergence = (-own + theirs.clone()) * theirs.exp();
        let soft = divergence.sum::<Rank0, Axes2<0, 1>>() * (t * t);
        scores.soft = number(&soft);
        loss = loss + hard * weights.hard + soft * weights.soft;
    }
    // The encoder's tape continues where the heads' gradients end.
    let (_, tape) = hidden.split_tape();
    let (loss, head_tapes) = loss.split_tape();
    Ok((loss.put_tape(head_tapes.merge(tape)), scores))
}

/// Returns the value of a scalar tensor.
fn number<D: BertDevice<f32>, T>(tensor: &Tensor<Rank0, f32, D, T>) -> f64 {
    tensor.as_vec().into_iter().map(f64::from).sum()
}

/// Counts the rows of (rows, classes) whose largest value is that of the label.
pub(super) fn correct(logits: &[f32], classes: usize, labels: &[u32]) -> u64 {
    logits
        .chunks_exact(classes)
        .zip(labels)
        .filter(|(row, label)| {
            let best = row.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1));
            best.is_some_and(|(class, _)| class as u32 == **label)
        })
        .count() as u64
}
