//! The reference run behind the [`Engine`] trait: the dfdx model, f32, on the CPU, or with the cargo
//! feature `dfdx-cuda` on a GPU.
//!
//! dfdx's elementwise kernels use one thread, so on the CPU a batch is cut into one part a thread; each
//! part has a tape of its own and the parts' gradients are added in order.

mod home;
mod modules;

use std::ops::Range;
use std::sync::Arc;

use crate::data::Packed;
use crate::data::pretraining::PretrainingBatch;
use crate::engine::optimizer::{Moments, Update};
use crate::error::Result;
use crate::model::{Config, Dropout, Layout, SequenceAttention};

use self::home::Home;
use self::modules::Modules;
use super::state::{Snapshot, State};
use super::{
    DistillationScores, DistillationWeights, Engine, HiddenStates, LossWeights, Precision,
    PretrainingEngine, PretrainingScores, SoftTargets, TaskEngine, check_targets,
};

/// The dfdx model with the flat buffers that it is built from.
pub struct Reference {
    config: Config,
    state: State,
    /// The modules; rebuilt when the parameters have changed.
    home: Home,
}

impl Reference {
    /// A model with these parameters, on the CPU. Fails for sizes that have no type of their own.
    pub fn new(config: &Config, layout: &Arc<Layout>, values: Vec<f32>) -> Result<Self> {
        Self::at(
            Home::cpu(rayon::current_num_threads())?,
            config,
            layout,
            values,
        )
    }

    /// The same on the first GPU, by dfdx's own kernels. Fails also where there is none.
    #[cfg(feature = "dfdx-cuda")]
    pub fn on_gpu(config: &Config, layout: &Arc<Layout>, values: Vec<f32>) -> Result<Self> {
        Self::at(Home::gpu()?, config, layout, values)
    }

    fn at(home: Home, config: &Config, layout: &Arc<Layout>, values: Vec<f32>) -> Result<Self> {
        let mut reference = Self {
            config: config.clone(),
            state: State::new(layout, values)?,
            home,
        };
        reference.home()?;
        Ok(reference)
    }

    /// The same on so many threads, where the CPU computes: a batch is cut into as many parts.
    pub fn with_threads(mut self, threads: usize) -> Result<Self> {
        self.home = self.home.with_threads(threads.max(1))?;
        Ok(self)
    }

    /// Where the modules are, with them there.
    fn home(&mut self) -> Result<&Home> {
        let state = &self.state;
        self.home.fill(&self.config, &state.layout, &state.values)?;
        Ok(&self.home)
    }

    fn check(&self, batch: &Packed) -> Result<()> {
        let c = &self.config;
        batch.check(c.vocab_size, c.max_position_embeddings, c.type_vocab_size)
    }

    /// Runs `work` on the parts of a batch and gives the results in order.
    fn in_parts<R: Send>(
        &mut self,
        batch: &Packed,
        work: impl Fn(&dyn Modules, Range<usize>) -> Result<R> + Sync,
    ) -> Result<Vec<R>> {
        self.check(batch)?;
        self.home()?.in_parts(batch, work)
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

    fn precision(&self) -> Precision {
        Precision::F32
    }

    fn parameters(&self) -> Result<Vec<f32>> {
        Ok(self.state.values.clone())
    }

    fn set_parameters(&mut self, values: &[f32]) -> Result<()> {
        self.state.set_values(values)?;
        self.home.clear();
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
        self.home.clear();
        Ok(self.state.update(update))
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
        let parts = self.in_parts(&batch.packed, |model, which| {
            let part = batch.slice(which);
            let mut gradients = vec![0.0; layout.total()];
            let scores =
                model.pretraining_gradients(&layout, &part, weights, dropout, &mut gradients)?;
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
        dropout.check(&self.config, &batch.packed)?;
        let layout = self.state.layout.clone();
        let parts = self.in_parts(&batch.packed, |model, which| {
            let part = batch.slice(which.clone());
            let targets = targets.slice(batch, which);
            let mut gradients = vec![0.0; layout.total()];
            let scores = model.distillation_gradients(
                &layout,
                &part,
                targets,
                weights,
                dropout,
                &mut gradients,
            )?;
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
        self.home()?
            .whole(|model| model.masked_lm_logits(batch, rows))
    }

    fn next_sentence_logits(&mut self, batch: &Packed) -> Result<Vec<[f32; 2]>> {
        self.check(batch)?;
        self.home()?
            .whole(|model| model.next_sentence_logits(batch))
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
        // The loss is one over all parts of the batch: a first pass gives it their logits.
        let logits = self.in_parts(batch, |model, which| {
            model.task_logits(&batch.slice(which), Some(dropout))
        })?;
        let lengths: Vec<usize> = logits.iter().map(Vec::len).collect();
        let mut logits = logits.concat();
        loss(&mut logits);
        let starts = batch.balanced(self.home.parts());
        let slopes: Vec<_> = starts
            .iter()
            .zip(cut(&logits, &lengths))
            .map(|(part, slopes)| (part.start, slopes))
            .collect();
        let parts = self.in_parts(batch, |model, which| {
            let slopes = slopes.iter().find(|(start, _)| *start == which.start);
            let (_, slopes) = slopes.expect("the batch is cut as before");
            let mut gradients = vec![0.0; layout.total()];
            model.task_gradients(
                &layout,
                &batch.slice(which),
                dropout,
                slopes,
                &mut gradients,
            )?;
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
}
