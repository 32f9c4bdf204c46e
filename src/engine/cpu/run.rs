//! The steps after a forward pass: the heads' losses, and the backward pass to the embedding
//! tables.

use crate::data::pretraining::PretrainingBatch;
use crate::engine::reduction::Reduction;
use crate::engine::{
    DistillationScores, DistillationWeights, LossWeights, PretrainingScores, SoftTargets,
    check_targets, objective,
};
use crate::error::Result;
use crate::model::Layout;
use crate::random::Site;

use super::attention::Scratch;
use super::floats::Floats;
use super::layer::{Gradients, Pass, Saved};
use super::loss::{cosine, cross_entropy, distillation};
use super::masked_lm::MaskedLmBuffers;
use super::norm::{self, Statistics};
use super::{Model, embedding, heads, parts};

/// A completed forward pass through the encoder, with the buffers that heads and backward pass
/// need.
pub struct Run<'a> {
    pub pass: Pass<'a>,
    pub model: &'a Model,
    pub layout: &'a Layout,
    pub values: &'a [f32],
    pub parameter_gradients: &'a mut [f32],
    pub reduction: &'a mut Reduction,
    pub embedding_sums: &'a [f32],
    pub embedding_statistics: &'a [Statistics],
    /// The embeddings before their projection, if there is one.
    pub embedded: &'a [f32],
    pub hidden: &'a mut [Floats],
    /// Index of the last layer's hidden states.
    pub last: usize,
    pub saved: &'a mut [Saved],
    pub recompute: bool,
    pub gradients: &'a mut Gradients,
    pub scratch: &'a mut Scratch,
    pub masked_lm: &'a mut MaskedLmBuffers,
    pub head: &'a mut heads::Buffers,
}

impl Run<'_> {
    pub fn len(&self) -> usize {
        self.pass.batch.rows() * self.pass.config.hidden_size
    }

    /// Scores masked tokens and pairs. With `weights`, also computes the gradients of the weighted
    /// loss down to the embedding tables.
    pub fn pretraining(
        &mut self,
        batch: &PretrainingBatch,
        weights: Option<LossWeights>,
    ) -> Result<PretrainingScores> {
        let (pass, values) = (self.pass, self.values);
        let hidden = &self.hidden[self.last][..self.len()];
        let mut scores = PretrainingScores::default();
        if weights.is_some() {
            self.gradients.start(batch.packed.rows(), pass.config);
        }
        if !batch.masked_rows.is_empty() {
            let head = self.model.masked_lm()?;
            let (rows, labels) = (&batch.masked_rows, &batch.masked_labels);
            let into = weights.map(|_| {
                let hidden = &mut self.gradients.hidden[..];
                (&mut *self.parameter_gradients, hidden)
            });
            let weight = weights.map_or(0.0, |w| w.masked);
            let buffers = &mut *self.masked_lm;
            let scored = head.score(
                pass,
                values,
                hidden,
                rows,
                buffers,
                into,
                |simd, logits, bias, parts| {
                    cross_entropy(simd, logits, bias, labels, weight, &mut parts.scored)
                },
            );
            scores.mlm_loss = scored.loss;
            scores.mlm_correct = scored.correct;
            scores.mlm_total = batch.masked_rows.len() as u64;
        }
        if !batch.next_labels.is_empty() {
            let head = self.model.next_sentence()?;
            let logits = head.forward(pass, values, hidden, self.head);
            let weight = weights.map_or(0.0, |w| w.pair);
            let scored = objective::cross_entropy(logits, 2, &batch.next_labels, weight);
            scores.nsp_loss = scored.loss;
            scores.nsp_correct = scored.correct;
            scores.nsp_total = batch.next_labels.len() as u64;
            if weights.is_some() {
                let (gradients, d) = (&mut *self.parameter_gradients, &mut self.gradients.hidden);
                head.backward(pass, values, hidden, self.head, gradients, d);
            }
        }
        if weights.is_some() {
            self.backward();
        }
        Ok(scores)
    }

    /// Scores masked tokens and hidden states against a teacher's, and computes the gradients of
    /// the weighted loss down to the embedding tables.
    pub fn distillation(
        &mut self,
        batch: &PretrainingBatch,
        targets: &SoftTargets,
        weights: DistillationWeights,
    ) -> Result<DistillationScores> {
        let (pass, values) = (self.pass, self.values);
        check_targets(pass.config, batch, targets)?;
        let hidden = &self.hidden[self.last][..self.len()];
        let (rows, labels) = (&batch.masked_rows, &batch.masked_labels);
        self.gradients.start(batch.packed.rows(), pass.config);
        let d_hidden = &mut self.gradients.hidden[..];
        let mut scores = DistillationScores {
            rows: batch.packed.rows() as u64,
            cosine: cosine(
                pass.simd,
                (hidden, &targets.hidden),
                pass.config.hidden_size,
                weights.cosine,
                d_hidden,
                &mut self.masked_lm.parts().cosines,
            ),
            ..DistillationScores::default()
        };
        if !rows.is_empty() {
            let head = self.model.masked_lm()?;
            let into = Some((&mut *self.parameter_gradients, d_hidden));
            let buffers = &mut *self.masked_lm;
            let scored = head.score(
                pass,
                values,
                hidden,
                rows,
                buffers,
                into,
                |simd, logits, bias, parts| {
                    let beside = (&labels[..], &targets.logits[..]);
                    distillation(simd, logits, bias, beside, weights, &mut parts.distilled)
                },
            );
            scores.soft = scored.soft;
            scores.hard.mlm_loss = scored.hard.loss;
            scores.hard.mlm_correct = scored.hard.correct;
            scores.hard.mlm_total = rows.len() as u64;
        }
        self.backward();
        Ok(scores)
    }

    /// Runs forward and backward of the task's head, then backward through the encoder.
    pub fn task(&mut self, loss: &mut (dyn FnMut(&mut [f32]) + Send)) -> Result<()> {
        let (pass, values) = (self.pass, self.values);
        let hidden = &self.hidden[self.last][..self.len()];
        let head = self.model.task()?;
        self.gradients.start(pass.batch.rows(), pass.config);
        loss(head.forward(pass, values, hidden, self.head));
        let (gradients, d) = (&mut *self.parameter_gradients, &mut self.gradients.hidden);
        head.backward(pass, values, hidden, self.head, gradients, d);
        self.backward();
        Ok(())
    }

    /// Computes the gradients of all encoder parameters that are trained from that of the last hidden
    /// states.
    pub fn backward(&mut self) {
        let (pass, values, len) = (self.pass, self.values, self.len());
        let first = self.layout.first_trained();
        for (index, layer) in self.model.layers.iter().enumerate().rev() {
            if Some(index) < first {
                return;
            }
            let [x, y] =
                self.hidden.get_disjoint_mut([index, index + 1]).expect("different indices");
            let (x, y) = (&x[..len], &mut y[..len]);
            let saved = if self.recompute {
                layer.forward(pass, values, x, &mut self.saved[0], y, self.scratch);
                &self.saved[0]
            } else {
                &self.saved[index]
            };
            let (gradients, d) = (&mut *self.parameter_gradients, &mut *self.gradients);
            layer.backward(pass, values, x, saved, gradients, d, self.scratch);
            let layers = self.model.layers.len();
            self.reduction.finished(layers - index, self.parameter_gradients);
        }
        if first.is_some() {
            return;
        }
        let (simd, batch, width) = (pass.simd, pass.batch, pass.config.embedding_width());
        let len = batch.rows() * width;
        if let Some(projection) = &self.model.projection {
            let (x, gradients) = (&self.embedded[..len], &mut *self.parameter_gradients);
            self.gradients.project(projection, pass, values, x, gradients);
        }
        let (dy, d_sums, partials) = self.gradients.for_embeddings(len);
        let mask = pass.hidden_mask(Site::EmbeddingDropout);
        let norm = &self.model.embedding_norm;
        let saved = (&self.embedding_sums[..len], &self.embedding_statistics[..batch.rows()]);
        embedding::backward(
            simd,
            norm.of(values, pass.epsilon()),
            mask.map(|mask| (mask, pass.rows)),
            saved,
            dy,
            d_sums,
        );
        let gradients = &mut *self.parameter_gradients;
        let [dw, db] = parts(gradients, [&norm.weight, &norm.bias]);
        norm::add_parameter_gradients(simd, saved, dy, dw, db, partials);
        let segments = self.model.segments.as_ref();
        let tables = [(&self.model.words, &batch.ids), (&self.model.positions, &batch.positions)];
        for (table, index) in
            tables.into_iter().chain(segments.map(|table| (table, &batch.segments)))
        {
            let table = &mut gradients[table.clone()];
            embedding::add_to_table(simd, index, d_sums, width, table);
        }
    }
}
