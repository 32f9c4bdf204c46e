//! Heads of one linear layer, over the pooler or over every row: next sentence and the tasks. Their
//! products are small and always f32.

use crate::engine::Precision;
use crate::model::{HeadInput, Layout, Part, TaskHead};
use crate::random::Site;

use super::dropout::Mask;
use super::elementwise::{Partials, add_bias};
use super::floats::Floats;
use super::gemm::Output;
use super::layer::Pass;
use super::linear::Linear;
use super::selection::{add_picked, pick};

/// `tanh(W h[CLS] + b)`, or of the last token in a left-to-right model; the family says whether the
/// activation is tanh.
#[derive(Clone)]
struct Pooler(Linear);

/// Activations and gradients of a head, for sequences or rows.
#[derive(Default)]
pub struct Buffers {
    /// The rows that the pooler reads.
    rows: Vec<u32>,
    /// Their hidden states, later the gradients of these.
    picked: Floats,
    /// The input of the pooler's activation.
    inner: Floats,
    pooled: Floats,
    /// The linear layer's input after dropout.
    input: Floats,
    d: Floats,
    logits: Floats,
    partials: Partials,
}

impl Pooler {
    fn find(layout: &Layout) -> Option<Self> {
        let has = layout.parts().contains(&Part::Pooler);
        has.then(|| Self(Linear::find(layout, "pooler.dense")))
    }

    /// Writes the output to `b.pooled`; `mask` drops values of the input.
    fn forward(
        &self,
        pass: Pass<'_>,
        values: &[f32],
        hidden: &[f32],
        mask: Option<Mask>,
        b: &mut Buffers,
    ) {
        let (n, h) = (pass.batch.sequences(), pass.config.hidden_size);
        for buffer in [&mut b.picked, &mut b.inner, &mut b.pooled] {
            buffer.grow(n * h);
        }
        b.rows.clear();
        b.rows.extend(pass.batch.pooled_rows(pass.config.is_decoder));
        pick(hidden, &b.rows, h, &mut b.picked[..n * h]);
        if let Some(mask) = mask {
            drop_sequences(pass, mask, &mut b.picked[..n * h]);
        }
        let inner = &mut b.inner[..n * h];
        let activation = pass.config.model_type.pooler_activation();
        self.0.forward(Precision::F32, values, &b.picked[..n * h], inner);
        add_bias(pass.simd, inner, &values[self.0.bias.clone()]);
        for (y, x) in b.pooled.iter_mut().zip(inner) {
            *y = activation.of(*x);
        }
    }

    /// Runs backward from the gradient of the pooler's output in `b.d`.
    fn backward(
        &self,
        pass: Pass<'_>,
        values: &[f32],
        mask: Option<Mask>,
        b: &mut Buffers,
        gradients: &mut [f32],
        d_hidden: &mut [f32],
    ) {
        let (n, h) = (pass.batch.sequences(), pass.config.hidden_size);
        let d = &mut b.d[..n * h];
        let activation = pass.config.model_type.pooler_activation();
        for (d, x) in d.iter_mut().zip(&*b.inner) {
            *d *= activation.slope(*x);
        }
        self.0.add_bias_gradient(pass.simd, gradients, d, &mut b.partials);
        let picked = &mut b.picked[..n * h];
        self.0.add_weight_gradient(Precision::F32, gradients, picked, d);
        // The picked rows are not needed any more: their buffer takes their gradients.
        self.0.backward(Precision::F32, values, d, picked, Output::Overwrite);
        if let Some(mask) = mask {
            drop_sequences(pass, mask, picked);
        }
        add_picked(picked, &b.rows, h, d_hidden);
    }
}

/// Returns the pooler's output, (sequences, hidden). None if the model has no pooler.
pub fn pooled<'b>(
    pass: Pass<'_>,
    layout: &Layout,
    values: &[f32],
    hidden: &[f32],
    b: &'b mut Buffers,
) -> Option<&'b [f32]> {
    let pooler = Pooler::find(layout)?;
    pooler.forward(pass, values, hidden, None, b);
    Some(&b.pooled[..pass.batch.sequences() * pass.config.hidden_size])
}

/// A linear layer over the pooler's output or over every row.
pub struct Head {
    linear: Linear,
    /// None for a head over every row.
    pooler: Option<Pooler>,
    /// None for the next-sentence head, which has no dropout.
    task: Option<TaskHead>,
}

impl Head {
    /// Returns None if the model has no such head or lacks the pooler that it reads.
    pub fn next_sentence(layout: &Layout) -> Option<Self> {
        let has = layout.parts().contains(&Part::NextSentence);
        has.then_some(())?;
        Some(Self {
            linear: Linear::find(layout, "cls.seq_relationship"),
            pooler: Some(Pooler::find(layout)?),
            task: None,
        })
    }

    /// Returns None if the model has no such head or lacks the pooler that it reads.
    pub fn task(layout: &Layout) -> Option<Self> {
        let task = layout.task_head()?;
        Some(Self {
            linear: Linear::find(layout, task.name),
            pooler: match task.input {
                HeadInput::Pooled => Some(Pooler::find(layout)?),
                HeadInput::Rows => None,
            },
            task: Some(task),
        })
    }

    /// Returns the logits, (sequences or rows, outputs).
    pub fn forward<'b>(
        &self,
        pass: Pass<'_>,
        values: &[f32],
        hidden: &[f32],
        b: &'b mut Buffers,
    ) -> &'b mut [f32] {
        let h = pass.config.hidden_size;
        if let Some(pooler) = &self.pooler {
            pooler.forward(pass, values, hidden, self.pooler_mask(pass), b);
        }
        let n = self.rows(pass);
        b.logits.grow(n * self.linear.outputs);
        let from = self.reads(pass, hidden, &b.pooled);
        let input = match self.mask(pass) {
            None => from,
            Some(mask) => {
                b.input.grow(n * h);
                b.input[..n * h].copy_from_slice(from);
                self.drop(pass, mask, &mut b.input[..n * h]);
                &b.input[..n * h]
            }
        };
        let logits = &mut b.logits[..n * self.linear.outputs];
        self.linear.forward(Precision::F32, values, input, logits);
        add_bias(pass.simd, logits, &values[self.linear.bias.clone()]);
        logits
    }

    /// Runs backward from the gradient of the logits in `b.logits`; adds the gradient of the hidden
    /// states to `d_hidden`.
    pub fn backward(
        &self,
        pass: Pass<'_>,
        values: &[f32],
        hidden: &[f32],
        b: &mut Buffers,
        gradients: &mut [f32],
        d_hidden: &mut [f32],
    ) {
        let (n, h, outputs) = (self.rows(pass), pass.config.hidden_size, self.linear.outputs);
        let d_logits = &b.logits[..n * outputs];
        self.linear.add_bias_gradient(pass.simd, gradients, d_logits, &mut b.partials);
        let mask = self.mask(pass);
        let input = match mask {
            None => self.reads(pass, hidden, &b.pooled),
            Some(_) => &b.input[..n * h],
        };
        self.linear.add_weight_gradient(Precision::F32, gradients, input, d_logits);
        b.d.grow(n * h);
        let d = &mut b.d[..n * h];
        self.linear.backward(Precision::F32, values, d_logits, d, Output::Overwrite);
        if let Some(mask) = mask {
            self.drop(pass, mask, d);
        }
        match &self.pooler {
            Some(pooler) => {
                pooler.backward(pass, values, self.pooler_mask(pass), b, gradients, d_hidden);
            }
            None => {
                for (sum, d) in d_hidden.iter_mut().zip(&*d) {
                    *sum += d;
                }
            }
        }
    }

    /// Returns whether the head reads only what the pooler does: a row for each sequence.
    pub fn is_pooled(&self) -> bool {
        self.pooler.is_some()
    }

    fn rows(&self, pass: Pass<'_>) -> usize {
        match self.pooler {
            Some(_) => pass.batch.sequences(),
            None => pass.batch.rows(),
        }
    }

    /// Returns the input of the linear layer before dropout.
    fn reads<'b>(&self, pass: Pass<'_>, hidden: &'b [f32], pooled: &'b [f32]) -> &'b [f32] {
        let from = if self.pooler.is_some() { pooled } else { hidden };
        &from[..self.rows(pass) * pass.config.hidden_size]
    }

    fn mask(&self, pass: Pass<'_>) -> Option<Mask> {
        Mask::new(pass.dropout, Site::HeadDropout, pass.config.head_dropout(self.task?))
    }

    fn pooler_mask(&self, pass: Pass<'_>) -> Option<Mask> {
        Mask::new(pass.dropout, Site::PoolerDropout, pass.config.pooler_dropout(self.task?))
    }

    fn drop(&self, pass: Pass<'_>, mask: Mask, x: &mut [f32]) {
        if self.pooler.is_some() {
            return drop_sequences(pass, mask, x);
        }
        let h = pass.config.hidden_size;
        pass.simd.run(
            #[inline(always)]
            || {
                for (row, x) in x.chunks_exact_mut(h).enumerate() {
                    mask.apply_to_row(pass.simd, pass.rows, row, x);
                }
            },
        );
    }
}

/// Applies dropout to one row for each sequence.
fn drop_sequences(pass: Pass<'_>, mask: Mask, x: &mut [f32]) {
    let rows = x.chunks_exact_mut(pass.config.hidden_size).zip(&pass.batch.examples);
    pass.simd.run(
        #[inline(always)]
        || rows.for_each(|(x, &example)| mask.apply(pass.simd, example, 0, x)),
    );
}
