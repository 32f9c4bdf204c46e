//! The pre-training heads: rows picked from the hidden states, their losses and gradients.

use crate::data::Packed;
use crate::model::{Layout, Part};

use super::elementwise::{add_bias, bias_gelu, gelu_backward};
use super::gemm::{Matrix, MatrixMut, Old, Threads, product};
use super::layer::Pass;
use super::linear::{Linear, NormAt, place};
use super::loss::{Scored, cross_entropy};
use super::norm::{self, Statistics};
use super::{grow, two};

/// `to[i] = from[rows[i]]`, rows of `width` values.
fn pick(from: &[f32], rows: &[u32], width: usize, to: &mut [f32]) {
    for (to, &row) in to.chunks_exact_mut(width).zip(rows) {
        let first = row as usize * width;
        to.copy_from_slice(&from[first..first + width]);
    }
}

/// `to[rows[i]] += from[i]`, the gradient of [`pick`].
fn add_picked(from: &[f32], rows: &[u32], width: usize, to: &mut [f32]) {
    for (from, &row) in from.chunks_exact(width).zip(rows) {
        let first = row as usize * width;
        for (to, from) in to[first..first + width].iter_mut().zip(from) {
            *to += from;
        }
    }
}

/// The first row, `[CLS]`, of every sequence.
fn first_rows(batch: &Packed) -> &[u32] {
    &batch.cu_seqlens[..batch.sequences()]
}

/// Predicts the token at a row: dense, GELU, LayerNorm, then the token embedding as output matrix
/// and a bias for each token.
pub struct MaskedLm {
    words: std::ops::Range<usize>,
    bias: std::ops::Range<usize>,
    dense: Linear,
    norm: NormAt,
}

/// Activations and gradients of the masked-LM head, for (picked rows, …).
#[derive(Default)]
pub struct MaskedLmBuffers {
    picked: Vec<f32>,
    dense: Vec<f32>,
    activated: Vec<f32>,
    statistics: Vec<Statistics>,
    normed: Vec<f32>,
    d: Vec<f32>,
    d_dense: Vec<f32>,
    logits: Vec<f32>,
}

impl MaskedLm {
    /// None when the model has no such head.
    pub fn find(layout: &Layout) -> Option<Self> {
        layout.parts().contains(&Part::MaskedLm).then(|| Self {
            words: place(layout, "embeddings.word_embeddings.weight"),
            bias: place(layout, "cls.predictions.bias"),
            dense: Linear::find(layout, "cls.predictions.transform.dense"),
            norm: NormAt::find(layout, "cls.predictions.transform.LayerNorm"),
        })
    }

    /// Logits without their bias, (rows, vocabulary), in `b.logits`.
    fn forward(
        &self,
        pass: Pass<'_>,
        values: &[f32],
        hidden: &[f32],
        rows: &[u32],
        b: &mut MaskedLmBuffers,
    ) {
        let (n, h, v) = (rows.len(), pass.config.hidden_size, self.bias.len());
        for buffer in [
            &mut b.picked,
            &mut b.dense,
            &mut b.activated,
            &mut b.normed,
            &mut b.d,
            &mut b.d_dense,
        ] {
            grow(buffer, n * h);
        }
        grow(&mut b.statistics, n);
        grow(&mut b.logits, n * v);
        pick(hidden, rows, h, &mut b.picked[..n * h]);
        let dense = &mut b.dense[..n * h];
        self.dense.forward(
            values,
            Matrix::new(&b.picked, n, h),
            MatrixMut::new(dense, n, h),
        );
        let bias = &values[self.dense.bias.clone()];
        bias_gelu(pass.simd, dense, bias, &mut b.activated[..n * h]);
        let norm = self.norm.of(values, pass.epsilon());
        norm::forward_alone(
            pass.simd,
            norm,
            &b.activated[..n * h],
            &mut b.statistics[..n],
            &mut b.normed[..n * h],
        );
        product(
            MatrixMut::new(&mut b.logits, n, v),
            Old::Overwrite,
            1.0,
            Matrix::new(&b.normed, n, h),
            Matrix::new(&values[self.words.clone()], v, h).t(),
            Threads::All,
        );
    }

    /// Logits of the given rows of the hidden states.
    pub fn logits(
        &self,
        pass: Pass<'_>,
        values: &[f32],
        hidden: &[f32],
        rows: &[u32],
        b: &mut MaskedLmBuffers,
    ) -> Vec<f32> {
        self.forward(pass, values, hidden, rows, b);
        let logits = &mut b.logits[..rows.len() * self.bias.len()];
        add_bias(pass.simd, logits, &values[self.bias.clone()]);
        logits.to_vec()
    }

    /// Scores the predictions of `rows`; with `training`, (parameters' gradients, hidden states'
    /// gradients), adds to both those of the mean loss.
    pub fn score(
        &self,
        pass: Pass<'_>,
        values: &[f32],
        hidden: &[f32],
        (rows, labels): (&[u32], &[u32]),
        b: &mut MaskedLmBuffers,
        training: Option<(&mut [f32], &mut [f32])>,
    ) -> Scored {
        if rows.is_empty() {
            return Scored::default();
        }
        self.forward(pass, values, hidden, rows, b);
        let (n, h, v) = (rows.len(), pass.config.hidden_size, self.bias.len());
        let simd = pass.simd;
        let logits = &mut b.logits[..n * v];
        let bias = &values[self.bias.clone()];
        let scored = cross_entropy(simd, logits, bias, labels, 1.0 / n as f32);
        let Some((gradients, d_hidden)) = training else {
            return scored;
        };
        let d_logits = Matrix::new(logits, n, v);
        let bias = &mut gradients[self.bias.clone()];
        super::elementwise::add_column_sums(simd, logits, v, 0, bias);
        let words = MatrixMut::new(&mut gradients[self.words.clone()], v, h);
        let normed = Matrix::new(&b.normed, n, h);
        product(words, Old::Add, 1.0, d_logits.t(), normed, Threads::All);
        let d = &mut b.d[..n * h];
        let words = Matrix::new(&values[self.words.clone()], v, h);
        let into = MatrixMut::new(d, n, h);
        product(into, Old::Overwrite, 1.0, d_logits, words, Threads::All);
        let saved = (&b.activated[..n * h], &b.statistics[..n]);
        let (dw, db) = two(gradients, &self.norm.weight, &self.norm.bias);
        norm::add_parameter_gradients(simd, saved, d, dw, db);
        let norm = self.norm.of(values, pass.epsilon());
        let d_dense = &mut b.d_dense[..n * h];
        norm::backward(simd, norm, saved, d, d_dense);
        gelu_backward(simd, &b.dense[..n * h], d_dense);
        self.dense.add_bias_gradient(simd, gradients, d_dense, h, 0);
        let dy = Matrix::new(d_dense, n, h);
        let picked = Matrix::new(&b.picked, n, h);
        self.dense.add_weight_gradient(gradients, picked, dy);
        self.dense
            .backward(values, dy, MatrixMut::new(d, n, h), Old::Overwrite);
        add_picked(d, rows, h, d_hidden);
        scored
    }
}

/// `tanh(W h[CLS] + b)` and the classifier "does B follow A" over it.
pub struct Pooled {
    pooler: Linear,
    next: Option<Linear>,
}

/// Activations and gradients of the pooled heads, for (sequences, …).
#[derive(Default)]
pub struct PooledBuffers {
    picked: Vec<f32>,
    pooled: Vec<f32>,
    d: Vec<f32>,
    logits: Vec<f32>,
}

impl Pooled {
    /// None when the model has no pooler.
    pub fn find(layout: &Layout) -> Option<Self> {
        let has = |part| layout.parts().contains(&part);
        has(Part::Pooler).then(|| Self {
            pooler: Linear::find(layout, "pooler.dense"),
            next: has(Part::NextSentence).then(|| Linear::find(layout, "cls.seq_relationship")),
        })
    }

    /// The pooler's output, (sequences, hidden).
    pub fn pool<'b>(
        &self,
        pass: Pass<'_>,
        values: &[f32],
        hidden: &[f32],
        b: &'b mut PooledBuffers,
    ) -> &'b [f32] {
        let (n, h) = (pass.batch.sequences(), pass.config.hidden_size);
        grow(&mut b.picked, n * h);
        grow(&mut b.pooled, n * h);
        pick(hidden, first_rows(pass.batch), h, &mut b.picked[..n * h]);
        let pooled = &mut b.pooled[..n * h];
        self.pooler.forward(
            values,
            Matrix::new(&b.picked, n, h),
            MatrixMut::new(pooled, n, h),
        );
        for row in pooled.chunks_exact_mut(h) {
            for (x, bias) in row.iter_mut().zip(&values[self.pooler.bias.clone()]) {
                *x = (*x + bias).tanh();
            }
        }
        pooled
    }

    /// Logits of "B follows A" and "B is random" without their bias. None without such a head.
    fn next_forward<'b>(
        &self,
        pass: Pass<'_>,
        values: &[f32],
        hidden: &[f32],
        b: &'b mut PooledBuffers,
    ) -> Option<(&Linear, &'b mut [f32])> {
        let next = self.next.as_ref()?;
        self.pool(pass, values, hidden, b);
        let (n, h) = (pass.batch.sequences(), pass.config.hidden_size);
        grow(&mut b.logits, 2 * n);
        let logits = &mut b.logits[..2 * n];
        let pooled = Matrix::new(&b.pooled, n, h);
        next.forward(values, pooled, MatrixMut::new(logits, n, 2));
        Some((next, logits))
    }

    /// Logits of every pair.
    pub fn next_logits(
        &self,
        pass: Pass<'_>,
        values: &[f32],
        hidden: &[f32],
        b: &mut PooledBuffers,
    ) -> Option<Vec<[f32; 2]>> {
        let (next, logits) = self.next_forward(pass, values, hidden, b)?;
        add_bias(pass.simd, logits, &values[next.bias.clone()]);
        Some(logits.as_chunks().0.to_vec())
    }

    /// Scores the pairs; `training` as in [`MaskedLm::score`]. None without such a head.
    pub fn score(
        &self,
        pass: Pass<'_>,
        values: &[f32],
        hidden: &[f32],
        labels: &[u32],
        b: &mut PooledBuffers,
        training: Option<(&mut [f32], &mut [f32])>,
    ) -> Option<Scored> {
        let (n, h, simd) = (pass.batch.sequences(), pass.config.hidden_size, pass.simd);
        let (next, logits) = self.next_forward(pass, values, hidden, b)?;
        let bias = &values[next.bias.clone()];
        let scored = cross_entropy(simd, logits, bias, labels, 1.0 / n as f32);
        let Some((gradients, d_hidden)) = training else {
            return Some(scored);
        };
        next.add_bias_gradient(simd, gradients, &b.logits[..2 * n], 2, 0);
        let dy = Matrix::new(&b.logits, n, 2);
        next.add_weight_gradient(gradients, Matrix::new(&b.pooled, n, h), dy);
        grow(&mut b.d, n * h);
        let d = &mut b.d[..n * h];
        next.backward(values, dy, MatrixMut::new(d, n, h), Old::Overwrite);
        for (d, y) in d.iter_mut().zip(&b.pooled) {
            *d *= 1.0 - y * y;
        }
        self.pooler.add_bias_gradient(simd, gradients, d, h, 0);
        let dy = Matrix::new(d, n, h);
        let picked = Matrix::new(&b.picked, n, h);
        self.pooler.add_weight_gradient(gradients, picked, dy);
        // What was picked is not needed any more: its place takes its gradient.
        let into = MatrixMut::new(&mut b.picked, n, h);
        self.pooler.backward(values, dy, into, Old::Overwrite);
        add_picked(&b.picked[..n * h], first_rows(pass.batch), h, d_hidden);
        Some(scored)
    }
}
