//! The masked-LM head: picked rows of the hidden states, their loss and its gradients.

use crate::engine::DistillationWeights;
use crate::error::Result;
use crate::model::Part;

use super::arena::{Plan, Span};
use super::device::{Address, Device, Element, Matrix};
use super::kernels::{
    CrossEntropy, DistillationLoss, NormBackward, NormForward, add_picked, bias_gelu,
    bias_gradient, cross_entropy, distillation, gelu_backward, norm_backward, norm_forward,
    partials, pick,
};
use super::linear::{Linear, NormOffsets, multiply, multiply_with_bias};
use super::pass::Pass;
use super::shape::{MaskedLmMode, Shape};
use super::state::{Offsets, padded_vocabulary};

/// Predicts the token at a row: dense layer, GELU, LayerNorm, then the token embedding as output
/// matrix and a bias per token.
pub struct MaskedLm {
    words: usize,
    bias: usize,
    dense: Linear,
    norm: NormOffsets,
}

/// Activations and gradients of the head, (picked rows, width of the embeddings) unless noted.
#[derive(Debug, Clone, Copy)]
pub struct Buffers {
    /// Number of picked rows.
    n: usize,
    /// (picked rows, hidden)
    picked: Address,
    dense: Address,
    activated: Address,
    statistics: Address,
    normed: Address,
    /// As wide as the wider of the two.
    d: Address,
    d_dense: Address,
    /// (picked rows, padded vocabulary), later their gradients.
    pub logits: Address,
    partials: Address,
    /// A teacher's logits, (picked rows, vocabulary) in f32.
    pub teacher: Address,
}

impl Buffers {
    pub fn take(plan: &mut Plan, shape: &Shape<'_>) -> Self {
        let (n, c, element) = (shape.picked, shape.config, shape.element);
        let rows = |width: usize| (n * width) as u64 * element.bytes();
        let (h, e) = (c.hidden_size, c.embedding_width());
        let (logits, teacher) = match shape.masked {
            MaskedLmMode::Scores => (element.bytes(), 0),
            MaskedLmMode::Distilled => (element.bytes(), 4),
            MaskedLmMode::Logits => (4, 0),
        };
        let if_trains = |bytes: u64| if shape.trains() { bytes } else { 0 };
        let sums = if_trains(partials(shape.classes() as u32));
        let mut take = |bytes: u64| plan.take(Span::Heads, bytes);
        Self {
            n,
            picked: take(rows(h)),
            dense: take(rows(e)),
            activated: take(rows(e)),
            statistics: take(8 * n as u64),
            normed: take(rows(e)),
            d: take(if_trains(rows(h.max(e)))),
            d_dense: take(if_trains(rows(e))),
            logits: take(logits * (n * shape.classes()) as u64),
            partials: take(sums),
            // Uploaded before the pass begins.
            teacher: plan.take(Span::Step, teacher * (n * c.vocab_size) as u64),
        }
    }
}

/// The targets of the predictions.
#[derive(Debug, Clone, Copy)]
pub enum Loss {
    /// Labels, with the weight of each; 0 without a backward pass.
    Labels(f32),
    /// Labels and a teacher's logits.
    Teacher(DistillationWeights),
}

impl MaskedLm {
    /// Returns None if the model has no such head.
    pub fn find(offsets: &Offsets) -> Option<Self> {
        let has = offsets.layout().parts().contains(&Part::MaskedLm);
        has.then(|| Self {
            words: offsets.find("embeddings.word_embeddings.weight").start,
            bias: offsets.find("cls.predictions.bias").start,
            dense: Linear::find(offsets, "cls.predictions.transform.dense"),
            norm: NormOffsets::find(offsets, "cls.predictions.transform.LayerNorm"),
        })
    }

    fn words(&self, pass: Pass<'_>) -> Matrix {
        let c = pass.config;
        let at = pass.weight(self.words, pass.element());
        let rows = padded_vocabulary(c.vocab_size);
        Matrix::new(at, pass.element(), rows, c.embedding_width())
    }

    /// Computes everything up to the last product and returns that product's factor.
    fn forward(
        &self,
        device: &mut dyn Device,
        pass: Pass<'_>,
        hidden: Address,
        b: &Buffers,
    ) -> Result<Matrix> {
        let element = pass.element();
        let (size, all) = ((b.n as u32, pass.embedding_width()), (b.n, element));
        let rows = pass.device_batch.rows;
        let picked = (size.0, pass.width());
        pick(device, element, picked, hidden, rows, (b.picked, element))?;
        self.dense.forward(device, pass, all, b.picked, (b.dense, element))?;
        let bias = pass.value(self.dense.bias);
        bias_gelu(device, element, size, b.dense, bias, b.activated)?;
        let norm = NormForward {
            n: size.0,
            width: size.1,
            x: b.activated,
            norm: self.norm.of(pass),
            statistics: b.statistics,
            out: b.normed,
            ..NormForward::default()
        };
        norm_forward(device, element, &norm)?;
        Ok(Matrix::new(b.normed, element, b.n, pass.config.embedding_width()))
    }

    /// Computes the logits of the uploaded rows in f32: (rows, padded vocabulary).
    pub fn logits(
        &self,
        device: &mut dyn Device,
        pass: Pass<'_>,
        hidden: Address,
        b: &Buffers,
    ) -> Result<()> {
        let normed = self.forward(device, pass, hidden, b)?;
        let words = self.words(pass);
        let logits = Matrix::new(b.logits, Element::F32, b.n, words.rows);
        let bias = (pass.value(self.bias), Element::F32);
        multiply_with_bias(device, pass, normed, words.t(), logits, bias)
    }

    /// Scores the predictions of the uploaded rows into `scored`. With `d_hidden`, adds the
    /// gradients of the parameters and of the hidden states.
    #[expect(clippy::too_many_arguments, reason = "each is another buffer of the pass")]
    pub fn score(
        &self,
        device: &mut dyn Device,
        pass: Pass<'_>,
        hidden: Address,
        loss: Loss,
        scored: Address,
        d_hidden: Option<Address>,
        b: &Buffers,
    ) -> Result<()> {
        let element = pass.element();
        let normed = self.forward(device, pass, hidden, b)?;
        let words = self.words(pass);
        let products = Matrix::new(b.logits, element, b.n, words.rows);
        multiply(device, pass, normed, words.t(), products, false)?;
        let classes = pass.config.vocab_size as u32;
        let stride = padded_vocabulary(pass.config.vocab_size) as u32;
        let (n, logits, labels) = (b.n as u32, b.logits, pass.device_batch.labels);
        let bias = pass.value(self.bias);
        match loss {
            Loss::Labels(weight) => {
                let loss =
                    CrossEntropy { n, classes, stride, logits, bias, labels, weight, scored };
                cross_entropy(device, element, &loss)?;
            }
            Loss::Teacher(weights) => {
                let loss = DistillationLoss {
                    n,
                    classes,
                    stride,
                    logits,
                    bias,
                    labels,
                    teacher: b.teacher,
                    weights,
                    scored,
                };
                distillation(device, element, &loss)?;
            }
        }
        match d_hidden {
            None => Ok(()),
            Some(d_hidden) => self.backward(device, pass, d_hidden, b),
        }
    }

    /// Runs backward from the gradient of the logits in `b.logits`.
    fn backward(
        &self,
        device: &mut dyn Device,
        pass: Pass<'_>,
        d_hidden: Address,
        b: &Buffers,
    ) -> Result<()> {
        let (element, e) = (pass.element(), pass.config.embedding_width());
        let (size, all) = ((b.n as u32, e as u32), (b.n, element));
        let words = self.words(pass);
        let columns = words.rows as u32;
        let into = pass.gradient(self.bias);
        let shape = (size.0, columns, columns);
        bias_gradient(device, element, shape, b.logits, into, b.partials)?;
        let d_logits = Matrix::new(b.logits, element, b.n, words.rows);
        let normed = Matrix::new(b.normed, element, b.n, e);
        let d_words = Matrix::new(pass.gradient(self.words), Element::F32, words.rows, e);
        multiply(device, pass, d_logits.t(), normed, d_words, true)?;
        let d = Matrix::new(b.d, element, b.n, e);
        multiply(device, pass, d_logits, words, d, false)?;
        let norm = NormBackward {
            n: size.0,
            width: size.1,
            gain: pass.value(self.norm.weight),
            sums: b.activated,
            statistics: b.statistics,
            d_out: b.d,
            d_residual: b.d_dense,
            gain_gradient: pass.gradient(self.norm.weight),
            bias_gradient: pass.gradient(self.norm.bias),
            partials: b.partials,
            ..NormBackward::default()
        };
        norm_backward(device, element, &norm)?;
        gelu_backward(
            device,
            element,
            size,
            b.dense,
            pass.value(self.dense.bias),
            b.d_dense,
            pass.gradient(self.dense.bias),
            b.partials,
        )?;
        self.dense.add_weight_gradient(device, pass, all, b.picked, b.d_dense)?;
        self.dense.backward(device, pass, all, b.d_dense, b.d, false)?;
        let (size, rows) = ((size.0, pass.width()), pass.device_batch.rows);
        add_picked(device, element, size, (b.d, element), rows, d_hidden)
    }
}
