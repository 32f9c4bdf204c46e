//! The reference model behind the [`Engine`] trait: the dfdx model in f32, on the CPU, or with the
//! cargo feature `dfdx-cuda` on a GPU.
//!
//! dfdx's elementwise kernels use one thread, so on the CPU a batch is divided into one part per
//! thread; each part has its own tape, and the parts' gradients are added in order.

mod modules;
mod own;
mod placement;

use std::ops::{AddAssign, Range};
use std::sync::Arc;

use crate::data::Packed;
use crate::data::pretraining::PretrainingBatch;
use crate::engine::optimizer::{Moments, Update};
use crate::error::{Error, Result};
use crate::model::{Config, Dropout, Family, Layout, SequenceAttention};

pub use self::own::{MaskedLogits, OwnParts, PairLogits, Recorded, TinyBert};

use self::modules::Modules;
use self::placement::Placement;
use super::state::{Snapshot, State};
use super::{
    DistillationScores, DistillationWeights, Engine, HiddenStates, LossWeights, Precision,
    PretrainingEngine, PretrainingScores, SoftTargets, TaskEngine, check_targets,
};

/// The dfdx model with the flat buffers that it is built from.
pub struct Reference {
    config: Config,
    state: State,
    /// The modules; rebuilt after the parameters have changed.
    placement: Placement,
    /// What takes the place of the modules in a step of pre-training.
    own: Option<OwnParts>,
}

impl Reference {
    /// Builds a model with these parameters on the CPU. Returns an error for sizes that have no
    /// type.
    pub fn new(config: &Config, layout: &Arc<Layout>, values: Vec<f32>) -> Result<Self> {
        Self::at(Placement::cpu(rayon::current_num_threads())?, config, layout, values)
    }

    /// Builds the model on the first GPU, with dfdx's own kernels. Also returns an error if there
    /// is none.
    #[cfg(feature = "dfdx-cuda")]
    pub fn on_gpu(config: &Config, layout: &Arc<Layout>, values: Vec<f32>) -> Result<Self> {
        Self::at(Placement::gpu()?, config, layout, values)
    }

    fn at(
        placement: Placement,
        config: &Config,
        layout: &Arc<Layout>,
        values: Vec<f32>,
    ) -> Result<Self> {
        let lacks = match config.model_type {
            Family::Bert | Family::Roberta | Family::XlmRoberta => None,
            Family::DistilBert => Some("adds segment embeddings, which they don't have"),
            Family::Electra => Some("has neither their GELU pooler nor a projection of embeddings"),
        };
        if let Some(lacks) = lacks {
            return Err(Error::Usage(format!(
                "the reference doesn't run models of model_type {:?}, because it {lacks}: take --backend cpu",
                config.model_type.name()
            )));
        }
        let mut reference = Self {
            config: config.clone(),
            state: State::new(layout, values)?,
            placement,
            own: None,
        };
        reference.filled()?;
        Ok(reference)
    }

    /// Uses this many threads on the CPU: a batch is divided into as many parts.
    pub fn with_threads(mut self, threads: usize) -> Result<Self> {
        self.placement = self.placement.with_threads(threads.max(1))?;
        Ok(self)
    }

    /// Pre-trains with these functions in the place of the model's own. They have no dropout.
    ///
    /// # Errors
    /// If the model has dropout or is not of the size `tiny`.
    pub fn with_own_parts(mut self, parts: OwnParts) -> Result<Self> {
        OwnParts::check(&self.config)?;
        self.own = Some(parts);
        Ok(self)
    }

    /// Returns the placement with its modules built.
    fn filled(&mut self) -> Result<&Placement> {
        let state = &self.state;
        self.placement.fill(&self.config, &state.layout, &state.values)?;
        Ok(&self.placement)
    }

    fn check(&self, batch: &Packed) -> Result<()> {
        let c = &self.config;
        batch.check(c.vocab_size, c.positions(), c.type_vocab_size)
    }

    /// Runs `work` on the parts of a batch and returns the results in order.
    fn in_parts<R: Send>(
        &mut self,
        batch: &Packed,
        work: impl Fn(&dyn Modules, Range<usize>) -> Result<R> + Sync,
    ) -> Result<Vec<R>> {
        self.check(batch)?;
        self.filled()?.in_parts(batch, work)
    }

    /// Adds up the scores of a batch's parts, and their gradients to the accumulated ones.
    fn add_parts<S: Default + AddAssign>(&mut self, parts: Vec<(S, Vec<f32>)>) -> S {
        let mut scores = S::default();
        for (part, gradients) in parts {
            scores += part;
            self.state.add(&gradients);
        }
        scores
    }
}

/// Splits `values` into parts of the given lengths.
fn split<'a>(mut values: &'a [f32], lengths: &[usize]) -> Vec<&'a [f32]> {
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

    fn precision(&self) -> Precision {
        Precision::F32
    }

    fn parameters(&self) -> Result<Vec<f32>> {
        Ok(self.state.values.clone())
    }

    fn set_parameters(&mut self, values: &[f32]) -> Result<()> {
        self.state.set_values(values)?;
        self.placement.clear();
        Ok(())
    }

    fn moments(&self) -> Result<Moments> {
        Ok(self.state.moments.clone())
    }

    fn set_moments(&mut self, moments: Moments) -> Result<()> {
        self.state.set_moments(moments)
    }

    fn snapshot(&self) -> Result<Snapshot<'_>> {
        Ok(self.state.snapshot())
    }

    fn update(&mut self, update: &Update) -> Result<f64> {
        self.placement.clear();
        Ok(self.state.update(update, Precision::F32))
    }

    fn discard(&mut self) -> Result<()> {
        self.state.gradients.fill(0.0);
        Ok(())
    }

    fn gradients(&self) -> Result<Vec<f32>> {
        Ok(self.state.gradients.clone())
    }

    fn hidden_states(&mut self, batch: &Packed, layers: Range<usize>) -> Result<HiddenStates> {
        let parts = self.in_parts(batch, |model, which| {
            Ok(model.hidden_states(&batch.slice(which), layers.clone()))
        })?;
        let mut parts = parts.into_iter();
        let mut all = parts
            .next()
            .unwrap_or(HiddenStates { layers: vec![Vec::new(); layers.len()], pooled: None });
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
        let parts =
            self.in_parts(batch, |model, which| Ok(model.attention(&batch.slice(which))))?;
        Ok(parts.into_iter().flatten().collect())
    }
}

impl PretrainingEngine for Reference {
    fn pretraining_gradients_of_part(
        &mut self,
        batch: &PretrainingBatch,
        weights: LossWeights,
        dropout: Dropout,
    ) -> Result<PretrainingScores> {
        dropout.check(&self.config, &batch.packed)?;
        let layout = self.state.layout.clone();
        let own = self.own;
        let parts = self.in_parts(&batch.packed, |model, which| {
            let part = batch.slice(which);
            match own {
                Some(own) => own.gradients(model, &layout, &part, weights),
                None => model.pretraining_gradients(&layout, &part, weights, dropout),
            }
        })?;
        Ok(self.add_parts(parts))
    }

    fn distillation_gradients_of_part(
        &mut self,
        batch: &PretrainingBatch,
        targets: &SoftTargets,
        weights: DistillationWeights,
        dropout: Dropout,
    ) -> Result<DistillationScores> {
        check_targets(&self.config, batch, targets)?;
        dropout.check(&self.config, &batch.packed)?;
        let layout = self.state.layout.clone();
        let parts = self.in_parts(&batch.packed, |model, which| {
            let part = batch.slice(which.clone());
            let targets = targets.slice(batch, which);
            model.distillation_gradients(&layout, &part, targets, weights, dropout)
        })?;
        Ok(self.add_parts(parts))
    }

    fn soft_targets(&mut self, batch: &Packed, rows: &[u32], into: &mut SoftTargets) -> Result<()> {
        into.logits = self.masked_lm_logits(batch, rows)?;
        let last = self.config.num_hidden_layers;
        into.hidden = self.hidden_states(batch, last..last + 1)?.layers.concat();
        Ok(())
    }

    fn pretraining_scores(&mut self, batch: &PretrainingBatch) -> Result<PretrainingScores> {
        let parts = self.in_parts(&batch.packed, |model, which| {
            model.pretraining_scores(&batch.slice(which))
        })?;
        let mut scores = PretrainingScores::default();
        parts.into_iter().for_each(|part| scores += part);
        Ok(scores)
    }

    fn masked_lm_logits(&mut self, batch: &Packed, rows: &[u32]) -> Result<Vec<f32>> {
        self.check(batch)?;
        self.filled()?.whole(|model| model.masked_lm_logits(batch, rows))
    }

    fn next_sentence_logits(&mut self, batch: &Packed) -> Result<Vec<[f32; 2]>> {
        self.check(batch)?;
        self.filled()?.whole(|model| model.next_sentence_logits(batch))
    }
}

impl TaskEngine for Reference {
    fn task_gradients(
        &mut self,
        batch: &Packed,
        dropout: Dropout,
        loss: &mut (dyn FnMut(&mut [f32]) + Send),
    ) -> Result<()> {
        dropout.check(&self.config, batch)?;
        let layout = self.state.layout.clone();
        // The loss covers all parts of the batch: a first pass computes their logits.
        let logits = self.in_parts(batch, |model, which| {
            model.task_logits(&batch.slice(which), Some(dropout))
        })?;
        let lengths: Vec<usize> = logits.iter().map(Vec::len).collect();
        let mut logits = logits.concat();
        loss(&mut logits);
        let starts = batch.balanced(self.placement.parts());
        let slopes: Vec<_> = starts
            .iter()
            .zip(split(&logits, &lengths))
            .map(|(part, slopes)| (part.start, slopes))
            .collect();
        let parts = self.in_parts(batch, |model, which| {
            let slopes = slopes.iter().find(|(start, _)| *start == which.start);
            // `in_parts` divides a batch the same way each time.
            let (_, slopes) = slopes.expect("logits of the same part");
            model.task_gradients(&layout, &batch.slice(which), dropout, slopes)
        })?;
        for gradients in parts {
            self.state.add(&gradients);
        }
        Ok(())
    }

    fn task_logits(&mut self, batch: &Packed) -> Result<Vec<f32>> {
        let parts =
            self.in_parts(batch, |model, which| model.task_logits(&batch.slice(which), None))?;
        Ok(parts.concat())
    }
}
