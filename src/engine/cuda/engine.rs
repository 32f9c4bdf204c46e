//! The engine traits of [`CudaEngine`].

use std::ops::Range;
use std::sync::Arc;

use crate::data::Packed;
use crate::data::pretraining::PretrainingBatch;
use crate::engine::LossScale;
use crate::engine::objective::{Labels, Scored};
use crate::engine::optimizer::{Moments, Update};
use crate::engine::{
    DistillationScores, DistillationWeights, Engine, HiddenStates, LossWeights, Precision,
    PretrainingEngine, PretrainingScores, SoftTargets, TaskEngine, check_targets, missing_head,
};
use crate::error::{Error, Result};
use crate::model::{Config, Dropout, HeadInput, Layout};
use crate::ranks::Ranks;

use super::batch::HeadInputs;
use super::buckets::NO_LABEL;
use super::graphs::{Key, Work};
use super::heads::HeadLoss;
use super::kernels::{DISTILLED, SCORED};
use super::reduction::Reduction;
use super::run::Model;
use super::shape::MaskedLmMode;
use super::state::download;
use super::{CudaEngine, Request, head_rows, read_states};
use crate::bytes::bytes_of;

impl Engine for CudaEngine {
    fn config(&self) -> &Config {
        &self.config
    }

    fn layout(&self) -> &Arc<Layout> {
        self.state.offsets.layout()
    }

    fn precision(&self) -> Precision {
        self.settings.precision()
    }

    fn parameters(&self) -> Result<Vec<f32>> {
        self.state.values(self.device.borrow_mut().as_mut())
    }

    fn set_parameters(&mut self, values: &[f32]) -> Result<()> {
        self.state.set_values(self.device.get_mut().as_mut(), values)?;
        self.copy_weights()
    }

    fn moments(&self) -> Result<Moments> {
        self.state.moments(self.device.borrow_mut().as_mut())
    }

    fn set_moments(&mut self, moments: Moments) -> Result<()> {
        let device = self.device.get_mut().as_mut();
        self.state.set_moments(device, &moments)
    }

    fn join(&mut self, ranks: &Ranks) -> Result<()> {
        self.reduction = Reduction::new(ranks, &self.state.offsets);
        // What was recorded before marks no points.
        self.graphs.clear(self.device.get_mut().as_mut());
        Ok(())
    }

    fn ranks(&self) -> &Ranks {
        self.reduction.ranks()
    }

    fn last_part(&mut self) {
        self.reduction.last_part();
    }

    fn start_sums(&mut self) -> Result<()> {
        let device = self.device.get_mut().as_mut();
        self.reduction.start_rest(device, self.state.gradients)
    }

    fn update(&mut self, update: &Update) -> Result<f64> {
        let device = self.device.get_mut().as_mut();
        self.reduction.complete(device, self.state.gradients)?;
        self.updater.update(device, &self.state, update)
    }

    fn device_bytes(&self) -> Option<u64> {
        let device = self.device.borrow();
        let free = device.free_memory().ok()?;
        Some(device.properties().memory.saturating_sub(free))
    }

    fn loss_scale(&self) -> Option<&LossScale> {
        self.updater.loss_scale()
    }

    fn set_loss_scale(&mut self, scale: LossScale) {
        self.updater.set_loss_scale(scale);
    }

    fn discard(&mut self) -> Result<()> {
        let device = self.device.get_mut().as_mut();
        // The other ranks wait for the sums that have been started.
        self.reduction.complete(device, self.state.gradients)?;
        self.state.clear_gradients(device)
    }

    fn gradients(&self) -> Result<Vec<f32>> {
        let mut gradients = self.state.gradients(self.device.borrow_mut().as_mut())?;
        let scale = self.updater.scale();
        if scale != 1.0 {
            // A power of two: exact.
            let factor = (1.0 / scale) as f32;
            gradients.iter_mut().for_each(|gradient| *gradient *= factor);
        }
        Ok(gradients)
    }

    fn hidden_states(&mut self, batch: &Packed, layers: Range<usize>) -> Result<HiddenStates> {
        let mut copies = Vec::with_capacity(layers.len());
        if batch.rows() == 0 {
            copies.resize(layers.len(), Vec::new());
            return Ok(HiddenStates {
                layers: copies,
                pooled: self.model.pooler.as_ref().map(|_| Vec::new()),
            });
        }
        let request = Request { states: true, ..Request::default() };
        let prepared = self.prepare(batch, None, request)?;
        let width = self.config.hidden_size;
        let mut pooled = None;
        self.launch(&prepared, None, false, |device, run| {
            run.encode(device, &mut |device, layer, hidden| {
                if layers.contains(&layer) {
                    copies.push(read_states(device, run, hidden)?);
                }
                Ok(())
            })?;
            if let Some(pooler) = &run.model.pooler {
                let buffers = run.head_buffers();
                pooler.forward(device, run.pass, run.last(), None, buffers)?;
                let count = batch.sequences() * width;
                pooled = Some(download(device, buffers.pooled, count)?);
            }
            Ok(())
        })?;
        Ok(HiddenStates { layers: copies, pooled })
    }
}

impl PretrainingEngine for CudaEngine {
    fn pretraining_gradients_of_part(
        &mut self,
        batch: &PretrainingBatch,
        weights: LossWeights,
        dropout: Dropout,
    ) -> Result<PretrainingScores> {
        self.pretraining(batch, Some((weights, dropout)))
    }

    fn distillation_gradients_of_part(
        &mut self,
        batch: &PretrainingBatch,
        targets: &SoftTargets,
        weights: DistillationWeights,
        dropout: Dropout,
    ) -> Result<DistillationScores> {
        check_targets(&self.config, batch, targets)?;
        let (rows, masked) = (batch.packed.rows(), batch.masked_rows.len());
        if rows == 0 {
            return Ok(DistillationScores::default());
        }
        if masked > 0 {
            self.model.masked_lm()?;
        }
        let request = Request {
            head_inputs: HeadInputs {
                rows: &batch.masked_rows,
                labels: &batch.masked_labels,
                ..HeadInputs::default()
            },
            masked: MaskedLmMode::Distilled,
            ..Request::default()
        };
        let prepared = self.prepare(&batch.packed, Some(dropout), request)?;
        let device = self.device.get_mut().as_mut();
        let a = &prepared.activations;
        device.upload(a.teacher, bytes_of(&targets.hidden))?;
        if let Some(buffers) = &a.masked_lm {
            device.upload(buffers.teacher, bytes_of(&targets.logits))?;
        }
        let scale = self.updater.scale() as f32;
        let weights = DistillationWeights {
            temperature: weights.temperature,
            soft: weights.soft * scale,
            hard: weights.hard * scale,
            cosine: weights.cosine * scale,
        };
        let key = Key {
            work: Work::Distillation,
            sizes: prepared.sizes,
            numbers: [weights.temperature, weights.soft, weights.hard, weights.cosine]
                .map(f32::to_bits),
        };
        self.launch(&prepared, Some(key), true, |device, run| run.distillation(device, weights))?;
        self.launched()?;
        let at = prepared.activations.scores;
        let mut scores = DistillationScores { rows: rows as u64, ..DistillationScores::default() };
        let hard = &mut scores.hard;
        (hard.mlm_loss, hard.mlm_correct, scores.soft) = self.scored(at, masked, DISTILLED)?;
        hard.mlm_total = masked as u64;
        let at = at.offset(prepared.scores.masked + prepared.scores.labels);
        let cosines: Vec<f32> = self.download(at, rows)?;
        scores.cosine = cosines.iter().map(|&one| f64::from(one)).sum();
        Ok(scores)
    }

    fn soft_targets(&mut self, batch: &Packed, rows: &[u32], into: &mut SoftTargets) -> Result<()> {
        (into.logits, into.hidden) = self.masked_lm(batch, rows, true)?;
        Ok(())
    }

    fn pretraining_scores(&mut self, batch: &PretrainingBatch) -> Result<PretrainingScores> {
        self.pretraining(batch, None)
    }

    fn masked_lm_logits(&mut self, batch: &Packed, rows: &[u32]) -> Result<Vec<f32>> {
        Ok(self.masked_lm(batch, rows, false)?.0)
    }

    fn next_sentence_logits(&mut self, batch: &Packed) -> Result<Vec<[f32; 2]>> {
        let logits = self.head_logits(batch, Model::next_sentence)?;
        Ok(logits.as_chunks().0.to_vec())
    }
}

impl TaskEngine for CudaEngine {
    fn task_gradients(
        &mut self,
        batch: &Packed,
        dropout: Dropout,
        loss: &mut (dyn FnMut(&mut [f32]) + Send),
    ) -> Result<()> {
        let head = self.model.task()?;
        let (shape, columns) = (head.shape, head.columns());
        if batch.rows() == 0 {
            loss(&mut []);
            return Ok(());
        }
        let request = Request { head: Some(shape), ..Request::default() };
        let prepared = self.prepare(batch, Some(dropout), request)?;
        // The loss on the host separates two recordings.
        let key = |work: Work| Key { work, sizes: prepared.sizes, numbers: [0; 4] };
        let forward = Some(key(Work::TaskForward));
        self.launch(&prepared, forward, true, |device, run| run.logits(device, run.model.task()?))?;
        let buffers = prepared.activations.head.as_ref();
        let at = buffers.ok_or_else(|| missing_head("task"))?.logits;
        let rows = head_rows(shape, batch);
        let mut logits = self.download_rows(at, rows, shape.outputs, columns)?;
        loss(&mut logits);
        let scale = self.updater.scale() as f32;
        // Zeros for what fills the batch.
        let all = match shape.input {
            HeadInput::Pooled => prepared.sequences,
            HeadInput::Rows => prepared.rows,
        };
        let mut d_logits = vec![0.0; all * columns];
        let rows = d_logits.chunks_exact_mut(columns);
        for (to, from) in rows.zip(logits.chunks_exact(shape.outputs)) {
            for (to, from) in to.iter_mut().zip(from) {
                *to = scale * from;
            }
        }
        let device = self.device.get_mut().as_mut();
        device.upload(at, bytes_of(&d_logits))?;
        let backward = Some(key(Work::TaskBackward));
        self.launch(&prepared, backward, true, |device, run| {
            run.task_backward(device, run.model.task()?)
        })?;
        self.launched()
    }

    fn labelled_gradients(
        &mut self,
        batch: &Packed,
        dropout: Dropout,
        labels: Labels<'_>,
        weight: f32,
    ) -> Result<Scored> {
        let shape = self.model.task()?.shape;
        if batch.rows() == 0 {
            return Ok(Scored::default());
        }
        let weight = self.updater.scale() as f32 * weight;
        let (labels, needed, loss) = match labels {
            Labels::Classes(all) => {
                (all.to_vec(), head_rows(shape, batch), HeadLoss::Classes(weight))
            }
            Labels::Rows(all) => {
                let all = all.iter().map(|label| label.unwrap_or(NO_LABEL)).collect();
                (all, head_rows(shape, batch), HeadLoss::Classes(weight))
            }
            Labels::Spans(all) => {
                let loss = HeadLoss::Spans(0.5 * weight);
                (all.as_flattened().to_vec(), 2 * batch.sequences(), loss)
            }
        };
        let spans = matches!(loss, HeadLoss::Spans(_));
        if labels.len() != needed || spans && (shape.input, shape.outputs) != (HeadInput::Rows, 2) {
            return Err(Error::Failed(format!(
                "the head {} needs {needed} labels for this batch, not {}",
                shape.name,
                labels.len()
            )));
        }
        let of_rows = !spans && shape.input == HeadInput::Rows;
        let head_inputs = HeadInputs { head_labels: &labels, of_rows, ..HeadInputs::default() };
        let request = Request { head: Some(shape), head_inputs, ..Request::default() };
        let prepared = self.prepare(batch, Some(dropout), request)?;
        let numbers = [weight.to_bits(), u32::from(spans), 0, 0];
        let key = Key { work: Work::Task, sizes: prepared.sizes, numbers };
        self.launch(&prepared, Some(key), true, |device, run| {
            run.labelled_task(device, run.model.task()?, loss)
        })?;
        self.launched()?;
        let at = prepared.activations.scores;
        let (loss, correct, _) = self.scored(at, labels.len(), SCORED)?;
        // Both tokens of a span count half.
        Ok(Scored { loss: if spans { 0.5 * loss } else { loss }, correct })
    }

    fn task_logits(&mut self, batch: &Packed) -> Result<Vec<f32>> {
        self.head_logits(batch, Model::task)
    }
}
