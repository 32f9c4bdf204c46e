//! The reference run behind the [`Engine`] trait: the dfdx model, f32, on the CPU.
//!
//! dfdx's elementwise kernels use one thread, so a batch is cut into one part a thread; each part
//! has a tape of its own and the parts' gradients are added in order.

use std::ops::Range;
use std::sync::Arc;

use dfdx::prelude::*;

use crate::data::Packed;
use crate::data::pretraining::PretrainingBatch;
use crate::error::{Error, Result};
use crate::model::{
    Bert, Config, Dropout, Layout, Rows, SequenceAttention, Size, cross_entropy, pick,
};
use crate::train::optimizer::{Moments, Update};

use super::distillation::EPSILON;
use super::state::State;
use super::{
    DistillationScores, DistillationWeights, Engine, HiddenStates, LossWeights, PretrainingScores,
    SoftTargets, check_targets, lacks,
};

/// The dfdx model with the flat buffers that it is built from.
pub struct Reference {
    config: Config,
    state: State,
    /// The modules; rebuilt when the parameters have changed.
    model: Option<Box<dyn Modules>>,
    /// A pool of one thread for each part of a batch, so that dfdx's matrix products, which ask
    /// for all threads of the pool they run in, don't contend with the other parts.
    pools: Vec<rayon::ThreadPool>,
}

/// Pools of one thread each.
fn pools(count: usize) -> Result<Vec<rayon::ThreadPool>> {
    (0..count)
        .map(|_| rayon::ThreadPoolBuilder::new().num_threads(1).build())
        .collect::<std::result::Result<_, _>>()
        .map_err(|e| Error::Failed(format!("no thread could be started: {e}")))
}

impl Reference {
    /// A model with these parameters. Fails for sizes that have no type of their own.
    pub fn new(config: &Config, layout: &Arc<Layout>, values: Vec<f32>) -> Result<Self> {
        let mut reference = Self {
            config: config.clone(),
            state: State::new(layout, values)?,
            model: None,
            pools: pools(rayon::current_num_threads())?,
        };
        reference.modules()?;
        Ok(reference)
    }

    /// The same on so many threads: a batch is cut into as many parts.
    pub fn with_threads(mut self, threads: usize) -> Result<Self> {
        self.pools = pools(threads.max(1))?;
        Ok(self)
    }

    fn modules(&mut self) -> Result<&dyn Modules> {
        let model = match self.model.take() {
            Some(model) => model,
            None => build(&self.config, &self.state.layout, &self.state.values)?,
        };
        Ok(&**self.model.insert(model))
    }

    fn check(&self, batch: &Packed) -> Result<()> {
        let c = &self.config;
        batch.check(c.vocab_size, c.max_position_embeddings, c.type_vocab_size)
    }

    /// Runs `work` on the parts of a batch, a thread each, and returns the results in order.
    fn in_parts<R: Send>(
        &mut self,
        batch: &Packed,
        work: impl Fn(&dyn Modules, std::ops::Range<usize>) -> Result<R> + Sync,
    ) -> Result<Vec<R>> {
        self.check(batch)?;
        let parts = batch.balanced(self.pools.len());
        self.modules()?;
        let model = self
            .model
            .as_deref()
            .expect("modules() has just put it there");
        std::thread::scope(|scope| {
            let running: Vec<_> = parts
                .into_iter()
                .zip(&self.pools)
                .map(|(part, pool)| scope.spawn(|| pool.install(|| work(model, part))))
                .collect();
            running
                .into_iter()
                .map(|part| {
                    part.join()
                        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
                })
                .collect()
        })
    }
}

/// Cuts `values` into parts of the given lengths.
fn cut<'a>(mut values: &'a [f32], lengths: &[usize]) -> Vec<&'a [f32]> {
    let mut parts = Vec::with_capacity(lengths.len());
    for &length in lengths {
        let (part, rest) = values.split_at(length);
        parts.push(part);
        values = rest;
    }
    parts
}

impl Engine for Reference {
    fn config(&self) -> &Config {
        &self.config
    }

    fn layout(&self) -> &Arc<Layout> {
        &self.state.layout
    }

    fn parameters(&self) -> Result<Vec<f32>> {
        Ok(self.state.values.clone())
    }

    fn set_parameters(&mut self, values: &[f32]) -> Result<()> {
        self.state.values.copy_from_slice(values);
        self.model = None;
        Ok(())
    }

    fn moments(&self) -> Result<Moments> {
        Ok(self.state.moments.clone())
    }

    fn set_moments(&mut self, moments: Moments) -> Result<()> {
        self.state.moments = moments;
        Ok(())
    }

    fn pretraining_gradients_of_part(
        &mut self,
        batch: &PretrainingBatch,
        weights: LossWeights,
        dropout: Dropout,
    ) -> Result<PretrainingScores> {
        let total = self.state.layout.total();
        let parts = self.in_parts(&batch.packed, |model, which| {
            let part = batch.slice(which);
            let mut gradients = vec![0.0; total];
            let scores = model.pretraining_gradients(&part, weights, dropout, &mut gradients)?;
            Ok((scores, gradients))
        })?;
        let mut scores = PretrainingScores::default();
        for (part, gradients) in parts {
            scores += part;
            self.state.add(&gradients);
        }
        Ok(scores)
    }

    fn distillation_gradients_of_part(
        &mut self,
        batch: &PretrainingBatch,
        targets: &SoftTargets,
        weights: DistillationWeights,
        dropout: Dropout,
    ) -> Result<DistillationScores> {
        check_targets(&self.config, batch, targets)?;
        let total = self.state.layout.total();
        let parts = self.in_parts(&batch.packed, |model, which| {
            let part = batch.slice(which.clone());
            let targets = targets.slice(batch, which);
            let mut gradients = vec![0.0; total];
            let scores =
                model.distillation_gradients(&part, targets, weights, dropout, &mut gradients)?;
            Ok((scores, gradients))
        })?;
        let mut scores = DistillationScores::default();
        for (part, gradients) in parts {
            scores += part;
            self.state.add(&gradients);
        }
        Ok(scores)
    }

    fn soft_targets(&mut self, batch: &Packed, rows: &[u32], into: &mut SoftTargets) -> Result<()> {
        into.logits = self.masked_lm_logits(batch, rows)?;
        let last = self.config.num_hidden_layers;
        into.hidden = self.hidden_states(batch, last..last + 1)?.layers.concat();
        Ok(())
    }

    fn update(&mut self, update: &Update) -> Result<f64> {
        self.model = None;
        Ok(self.state.update(update))
    }

    fn discard(&mut self) -> Result<()> {
        self.state.gradients.fill(0.0);
        Ok(())
    }

    fn gradients(&self) -> Result<Vec<f32>> {
        Ok(self.state.gradients.clone())
    }

    fn pretraining_scores(&mut self, batch: &PretrainingBatch) -> Result<PretrainingScores> {
        let parts = self.in_parts(&batch.packed, |model, which| {
            model.pretraining_scores(&batch.slice(which))
        })?;
        let mut scores = PretrainingScores::default();
        parts.into_iter().for_each(|part| scores += part);
        Ok(scores)
    }

    fn task_gradients(
        &mut self,
        batch: &Packed,
        dropout: Dropout,
        loss: &mut (dyn FnMut(&mut [f32]) + Send),
    ) -> Result<()> {
        let total = self.state.layout.total();
        // The loss is one over all parts of the batch: a first pass gives it their logits.
        let logits = self.in_parts(batch, |model, which| {
            model.task_logits(&batch.slice(which), Some(dropout))
        })?;
        let lengths: Vec<usize> = logits.iter().map(Vec::len).collect();
        let mut logits = logits.concat();
        loss(&mut logits);
        let starts = batch.balanced(self.pools.len());
        let slopes: Vec<_> = starts
            .iter()
            .zip(cut(&logits, &lengths))
            .map(|(part, slopes)| (part.start, slopes))
            .collect();
        let parts = self.in_parts(batch, |model, which| {
            let slopes = slopes.iter().find(|(start, _)| *start == which.start);
            let (_, slopes) = slopes.expect("the batch is cut as before");
            let mut gradients = vec![0.0; total];
            model.task_gradients(&batch.slice(which), dropout, slopes, &mut gradients)?;
            Ok(gradients)
        })?;
        for gradients in parts {
            self.state.add(&gradients);
        }
        Ok(())
    }

    fn task_logits(&mut self, batch: &Packed) -> Result<Vec<f32>> {
        let parts = self.in_parts(batch, |model, which| {
            model.task_logits(&batch.slice(which), None)
        })?;
        Ok(parts.concat())
    }

    fn hidden_states(&mut self, batch: &Packed, layers: Range<usize>) -> Result<HiddenStates> {
        let parts = self.in_parts(batch, |model, which| {
            Ok(model.hidden_states(&batch.slice(which), layers.clone()))
        })?;
        let mut parts = parts.into_iter();
        let mut all = parts.next().unwrap_or(HiddenStates {
            layers: vec![Vec::new(); layers.len()],
            pooled: None,
        });
        for part in parts {
            for (layer, more) in all.layers.iter_mut().zip(part.layers) {
                layer.extend(more);
            }
            if let (Some(pooled), Some(more)) = (&mut all.pooled, part.pooled) {
                pooled.extend(more);
            }
        }
        Ok(all)
    }

    fn attention(&mut self, batch: &Packed) -> Result<Vec<SequenceAttention>> {
        let parts = self.in_parts(batch, |model, which| {
            Ok(model.attention(&batch.slice(which)))
        })?;
        Ok(parts.into_iter().flatten().collect())
    }

    fn masked_lm_logits(&mut self, batch: &Packed, rows: &[u32]) -> Result<Vec<f32>> {
        self.check(batch)?;
        self.modules()?.masked_lm_logits(batch, rows)
    }

    fn next_sentence_logits(&mut self, batch: &Packed) -> Result<Vec<[f32; 2]>> {
        self.check(batch)?;
        self.modules()?.next_sentence_logits(batch)
    }
}

/// The model with its size erased.
trait Modules: Send + Sync {
    fn pretraining_gradients(
        &self,
        batch: &PretrainingBatch,
        weights: LossWeights,
        dropout: Dropout,
        gradients: &mut [f32],
    ) -> Result<PretrainingScores>;
    fn pretraining_scores(&self, batch: &PretrainingBatch) -> Result<PretrainingScores>;
    fn distillation_gradients(
        &self,
        batch: &PretrainingBatch,
        targets: SoftTargets,
        weights: DistillationWeights,
        dropout: Dropout,
        gradients: &mut [f32],
    ) -> Result<DistillationScores>;
    /// Adds the gradients that follow from those of the logits, `slopes`.
    fn task_gradients(
        &self,
        batch: &Packed,
        dropout: Dropout,
        slopes: &[f32],
        gradients: &mut [f32],
    ) -> Result<()>;
    fn task_logits(&self, batch: &Packed, dropout: Option<Dropout>) -> Result<Vec<f32>>;
    fn hidden_states(&self, batch: &Packed, layers: Range<usize>) -> HiddenStates;
    fn attention(&self, batch: &Packed) -> Vec<SequenceAttention>;
    fn masked_lm_logits(&self, batch: &Packed, rows: &[u32]) -> Result<Vec<f32>>;
    fn next_sentence_logits(&self, batch: &Packed) -> Result<Vec<[f32; 2]>>;
}

/// Builds the modules of the size that the configuration asks for.
fn build(config: &Config, layout: &Layout, values: &[f32]) -> Result<Box<dyn Modules>> {
    fn of<const H: usize, const A: usize, const K: usize, const I: usize>(
        config: &Config,
        layout: &Layout,
        values: &[f32],
    ) -> Result<Box<dyn Modules>> {
        let bert = Bert::<H, A, K, I, f32, Cpu>::build(config, layout, values, &Cpu::default())?;
        Ok(Box::new(bert))
    }
    let width = (
        config.hidden_size,
        config.num_attention_heads,
        config.intermediate_size,
    );
    match width {
        (128, 2, 512) => of::<128, 2, 64, 512>(config, layout, values),
        (256, 4, 1024) => of::<256, 4, 64, 1024>(config, layout, values),
        (512, 8, 2048) => of::<512, 8, 64, 2048>(config, layout, values),
        (384, 12, 1536) => of::<384, 12, 32, 1536>(config, layout, values),
        (768, 12, 3072) => of::<768, 12, 64, 3072>(config, layout, values),
        (1024, 16, 4096) => of::<1024, 16, 64, 4096>(config, layout, values),
        (hidden, heads, intermediate) => {
            let known: Vec<_> = Size::ALL
                .iter()
                .map(|size| {
                    let (_, h, a, i) = size.dimensions();
                    format!("{h}/{a}/{i} ({})", size.name())
                })
                .collect();
            Err(Error::Failed(format!(
                "the reference model has no type for hidden/heads/intermediate sizes {hidden}/{heads}/{intermediate}; it has {}",
                known.join(", ")
            )))
        }
    }
}

impl<const H: usize, const A: usize, const K: usize, const I: usize> Modules
    for Bert<H, A, K, I, f32, Cpu>
{
    fn pretraining_gradients(
        &self,
        batch: &PretrainingBatch,
        weights: LossWeights,
        dropout: Dropout,
        gradients: &mut [f32],
    ) -> Result<PretrainingScores> {
        let (loss, scores) = pretraining_loss::<H, A, K, I, OwnedTape<f32, Cpu>>(
            self,
            batch,
            weights,
            Some(dropout),
        )?;
        let mut tape = loss.backward();
        self.gradients.add_to(&mut tape, gradients);
        Ok(scores)
    }

    fn pretraining_scores(&self, batch: &PretrainingBatch) -> Result<PretrainingScores> {
        let weights = LossWeights::of(batch);
        Ok(pretraining_loss::<H, A, K, I, NoneTape>(self, batch, weights, None)?.1)
    }

    fn distillation_gradients(
        &self,
        batch: &PretrainingBatch,
        targets: SoftTargets,
        weights: DistillationWeights,
        dropout: Dropout,
        gradients: &mut [f32],
    ) -> Result<DistillationScores> {
        let (loss, scores) = distillation_loss(self, batch, targets, weights, dropout)?;
        let mut tape = loss.backward();
        self.gradients.add_to(&mut tape, gradients);
        Ok(scores)
    }

    fn task_gradients(
        &self,
        batch: &Packed,
        dropout: Dropout,
        slopes: &[f32],
        gradients: &mut [f32],
    ) -> Result<()> {
        let hidden = self.encode::<OwnedTape<f32, Cpu>>(batch, Some(dropout), &mut |_, _| {});
        let logits = self
            .task_logits(hidden, batch, Some(dropout))
            .ok_or_else(|| lacks("task"))?;
        // The gradient of Σ logits · slopes is `slopes`: the chain goes on from there.
        let slopes = Cpu::default().tensor_from_vec(slopes.to_vec(), *logits.shape());
        let mut tape = (logits * slopes).sum::<Rank0, _>().backward();
        self.gradients.add_to(&mut tape, gradients);
        Ok(())
    }

    fn task_logits(&self, batch: &Packed, dropout: Option<Dropout>) -> Result<Vec<f32>> {
        let hidden = self.encode::<NoneTape>(batch, dropout, &mut |_, _| {});
        let logits = self.task_logits(hidden, batch, dropout);
        Ok(logits.ok_or_else(|| lacks("task"))?.as_vec())
    }

    fn hidden_states(&self, batch: &Packed, wanted: Range<usize>) -> HiddenStates {
        let mut layers = Vec::with_capacity(wanted.len());
        let rows = self.encode::<NoneTape>(batch, None, &mut |layer, hidden| {
            if wanted.contains(&layer) {
                layers.push(crate::model::real_rows(hidden, batch).as_vec());
            }
        });
        HiddenStates {
            layers,
            pooled: self.pool(rows, batch).map(|pooled| pooled.as_vec()),
        }
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

fn masked_logits<const H: usize, const A: usize, const K: usize, const I: usize, T>(
    bert: &Bert<H, A, K, I, f32, Cpu>,
    hidden: Rows<H, f32, Cpu, T>,
    rows: &[u32],
) -> Result<Tensor<(usize, usize), f32, Cpu, T>>
where
    T: Tape<f32, Cpu> + Merge<T>,
{
    let head = bert.masked_lm.as_ref().ok_or_else(|| lacks("masked-LM"))?;
    Ok(head.forward(pick(hidden, rows), &bert.embeddings.words))
}

fn pair_logits<const H: usize, const A: usize, const K: usize, const I: usize, T>(
    bert: &Bert<H, A, K, I, f32, Cpu>,
    hidden: Rows<H, f32, Cpu, T>,
    batch: &Packed,
) -> Result<Tensor<(usize, Const<2>), f32, Cpu, T>>
where
    T: Tape<f32, Cpu> + Merge<T>,
{
    let head = bert
        .next_sentence
        .as_ref()
        .ok_or_else(|| lacks("next-sentence"))?;
    let pooled = bert.pool(hidden, batch).ok_or_else(|| lacks("pooler"))?;
    Ok(head.forward(pooled))
}

/// The weighted loss of pre-training with its tape, and what was measured on the way.
fn pretraining_loss<const H: usize, const A: usize, const K: usize, const I: usize, T>(
    bert: &Bert<H, A, K, I, f32, Cpu>,
    batch: &PretrainingBatch,
    weights: LossWeights,
    dropout: Option<Dropout>,
) -> Result<(Tensor<Rank0, f32, Cpu, T>, PretrainingScores)>
where
    T: Tape<f32, Cpu> + Merge<T>,
{
    let hidden = bert.encode::<T>(&batch.packed, dropout, &mut |_, _| {});
    let mut scores = PretrainingScores::default();
    let mut loss: Tensor<Rank0, f32, Cpu, T> = Cpu::default().zeros().put_tape(T::default());
    if !batch.masked_rows.is_empty() {
        let logits = masked_logits(bert, hidden.retaped::<T>(), &batch.masked_rows)?;
        let vocabulary = logits.shape().1;
        scores.mlm_correct = correct(&logits.as_vec(), vocabulary, &batch.masked_labels);
        scores.mlm_total = batch.masked_rows.len() as u64;
        let sum = cross_entropy(logits, &batch.masked_labels);
        scores.mlm_loss = f64::from(sum.array());
        loss = loss + sum * weights.masked;
    }
    if !batch.next_labels.is_empty() {
        let logits = pair_logits(bert, hidden.retaped::<T>(), &batch.packed)?;
        scores.nsp_correct = correct(&logits.as_vec(), 2, &batch.next_labels);
        scores.nsp_total = batch.next_labels.len() as u64;
        let sum = cross_entropy(logits, &batch.next_labels);
        scores.nsp_loss = f64::from(sum.array());
        loss = loss + sum * weights.pair;
    }
    // The encoder's own tape is where the heads' gradients arrive.
    let (_, tape) = hidden.split_tape();
    let (loss, head_tapes) = loss.split_tape();
    Ok((loss.put_tape(head_tapes.merge(tape)), scores))
}

/// A loss with the tape that leads back from it.
type Loss = Tensor<Rank0, f32, Cpu, OwnedTape<f32, Cpu>>;

/// The weighted loss of distillation with its tape, and what was measured on the way.
fn distillation_loss<const H: usize, const A: usize, const K: usize, const I: usize>(
    bert: &Bert<H, A, K, I, f32, Cpu>,
    batch: &PretrainingBatch,
    targets: SoftTargets,
    weights: DistillationWeights,
    dropout: Dropout,
) -> Result<(Loss, DistillationScores)> {
    type Tape = OwnedTape<f32, Cpu>;
    let dev = Cpu::default();
    let hidden = bert.encode::<Tape>(&batch.packed, Some(dropout), &mut |_, _| {});
    let rows = batch.packed.rows();

    // cos = own · theirs / (|own| |theirs|), a row each.
    let theirs: Rows<H, f32, Cpu> = dev.tensor_from_vec(targets.hidden, (rows, Const));
    let own = hidden.retaped::<Tape>().square();
    let own = (own.sum::<(usize,), Axis<1>>() + EPSILON).sqrt();
    let norms = (theirs.clone().square().sum::<(usize,), Axis<1>>() + EPSILON).sqrt();
    let products = (hidden.retaped::<Tape>() * theirs).sum::<(usize,), Axis<1>>();
    let cosine = (-(products / (own * norms)) + 1.0).sum::<Rank0, Axis<0>>();
    let mut scores = DistillationScores {
        cosine: f64::from(cosine.array()),
        rows: rows as u64,
        ..DistillationScores::default()
    };
    let mut loss = cosine * weights.cosine;

    if !batch.masked_rows.is_empty() {
        let logits = masked_logits(bert, hidden.retaped::<Tape>(), &batch.masked_rows)?;
        let shape = *logits.shape();
        scores.hard.mlm_correct = correct(&logits.as_vec(), shape.1, &batch.masked_labels);
        scores.hard.mlm_total = batch.masked_rows.len() as u64;
        let hard = cross_entropy(logits.retaped::<Tape>(), &batch.masked_labels);
        scores.hard.mlm_loss = f64::from(hard.array());

        // Σ p (ln p - ln q), p the teacher's, q the student's probabilities.
        let t = weights.temperature;
        let theirs: Tensor<(usize, usize), f32, Cpu> = dev.tensor_from_vec(targets.logits, shape);
        let theirs = (theirs / t).log_softmax::<Axis<1>>();
        let own = (logits / t).log_softmax::<Axis<1>>();
        let apart = -own + theirs.clone();
        let soft = (apart * theirs.exp()).sum::<Rank0, Axes2<0, 1>>() * (t * t);
        scores.soft = f64::from(soft.array());
        loss = loss + hard * weights.hard + soft * weights.soft;
    }
    // The encoder's own tape is where the heads' gradients arrive.
    let (_, tape) = hidden.split_tape();
    let (loss, head_tapes) = loss.split_tape();
    Ok((loss.put_tape(head_tapes.merge(tape)), scores))
}

/// How many rows of (rows, classes) have their largest value at the label.
fn correct(logits: &[f32], classes: usize, labels: &[u32]) -> u64 {
    logits
        .chunks_exact(classes)
        .zip(labels)
        .filter(|(row, label)| {
            let best = row.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1));
            best.is_some_and(|(class, _)| class as u32 == **label)
        })
        .count() as u64
}
