//! Heads of one linear layer, over the pooler or over every row: next sentence and the tasks. A
//! head over the pooler is small and always f32; one over every row reads the hidden states in
//! their format and returns f32.

use crate::error::Result;
use crate::model::{Activation, HeadInput, Part, TaskHead};
use crate::random::Site;

use super::arena::{Plan, Span};
use super::device::{Address, Device, Element};
use super::kernels::{
    CrossEntropy, DropoutRows, SiteDropout, SpanLoss, activation_backward, activation_bias,
    add_picked, bias_gelu, bias_gradient, cast, cross_entropy, drop_rows, gelu_backward, partials,
    pick, span_loss,
};
use super::linear::Linear;
use super::pass::Pass;
use super::shape::Shape;
use super::state::{Offsets, padded_outputs};

/// The next-sentence head as a task head: two classes over the pooler.
pub const NEXT_SENTENCE: TaskHead = TaskHead {
    part: Part::NextSentence,
    name: "cls.seq_relationship",
    input: HeadInput::Pooled,
    outputs: 2,
    dropout: false,
};

/// Activations and gradients of a head, for (sequences, …) or (rows, …).
#[derive(Debug, Clone, Copy)]
pub struct Buffers {
    /// The pooler's input, later its gradient: (sequences, hidden) in f32, like the next two.
    picked: Address,
    /// The input of a GELU pooler's activation without the bias.
    inner: Address,
    pub pooled: Address,
    d: Address,
    /// The linear layer's input after dropout, in f32 over the pooler.
    input: Address,
    /// In f32 with padding columns, later their gradients.
    pub logits: Address,
    /// The gradients of the logits of a head over rows, in the format of activations.
    d_logits: Address,
    partials: Address,
}

impl Buffers {
    pub fn take(plan: &mut Plan, shape: &Shape<'_>) -> Self {
        let h = shape.config.hidden_size;
        let over = shape.head.map_or(HeadInput::Pooled, |head| head.input);
        let drops = |head| shape.config.head_dropout(head) > 0.0;
        let dropped = shape.trains() && shape.head.is_some_and(drops);
        let (pooled, input, n) = match over {
            HeadInput::Pooled => {
                let bytes = 4 * (shape.sequences * h) as u64;
                (bytes, bytes, shape.sequences)
            }
            HeadInput::Rows => (0, shape.hidden(), shape.rows),
        };
        let outputs = shape.head.map_or(0, |head| padded_outputs(head.outputs));
        let logits = (n * outputs) as u64;
        let narrow = over == HeadInput::Rows && shape.trains() && shape.element != Element::F32;
        let gelu = shape.config.model_type.pooler_activation() == Activation::Gelu;
        let if_trains = |bytes: u64| if shape.trains() { bytes } else { 0 };
        let mut take = |bytes: u64| plan.take(Span::Heads, bytes);
        Self {
            picked: take(pooled),
            inner: take(if gelu { pooled } else { 0 }),
            pooled: take(pooled),
            d: take(if_trains(pooled)),
            input: take(if dropped { input } else { 0 }),
            logits: take(4 * logits),
            d_logits: take(if narrow { shape.element.bytes() * logits } else { 0 }),
            partials: take(if_trains(partials(h.max(outputs) as u32))),
        }
    }
}

/// `tanh(W h[CLS] + b)`, or of the last token in a left-to-right model; the family says whether the
/// activation is tanh.
#[derive(Clone)]
pub struct Pooler(Linear);

impl Pooler {
    /// Returns None if the model has no pooler.
    pub fn find(offsets: &Offsets) -> Option<Self> {
        let has = offsets.layout().parts().contains(&Part::Pooler);
        has.then(|| Self(Linear::find(offsets, "pooler.dense")))
    }

    /// Writes the output to `b.pooled`; `drops` is the dropout of the input.
    pub fn forward(
        &self,
        device: &mut dyn Device,
        pass: Pass<'_>,
        hidden: Address,
        drops: Option<SiteDropout>,
        b: &Buffers,
    ) -> Result<()> {
        let (n, single) = (pass.sequences(), Element::F32);
        let size = (n as u32, pass.width());
        let rows = pass.device_batch.pooled;
        pick(device, pass.element(), size, hidden, rows, (b.picked, single))?;
        drop_pooler(device, pass, b.picked, drops)?;
        let bias = pass.value(self.0.bias);
        let activation = pass.config.model_type.pooler_activation();
        let inner = if activation == Activation::Gelu { b.inner } else { b.pooled };
        self.0.forward(device, pass, (n, single), b.picked, (inner, single))?;
        match activation {
            Activation::Gelu => bias_gelu(device, single, size, inner, bias, b.pooled),
            Activation::Tanh | Activation::Relu => {
                let relu = activation == Activation::Relu;
                activation_bias(device, pass.element(), size, relu, inner, bias)
            }
        }
    }

    /// Runs backward from the gradient of the pooler's output in `b.d`.
    fn backward(
        &self,
        device: &mut dyn Device,
        pass: Pass<'_>,
        drops: Option<SiteDropout>,
        b: &Buffers,
        d_hidden: Address,
    ) -> Result<()> {
        let (n, h, single) = (pass.sequences(), pass.width(), Element::F32);
        let size = (n as u32, h);
        let activation = pass.config.model_type.pooler_activation();
        let (bias, into) = (pass.value(self.0.bias), pass.gradient(self.0.bias));
        match activation {
            Activation::Gelu => {
                gelu_backward(device, single, size, b.inner, bias, b.d, into, b.partials)?;
            }
            Activation::Tanh | Activation::Relu => {
                let relu = activation == Activation::Relu;
                activation_backward(device, pass.element(), size, relu, b.pooled, b.d)?;
                bias_gradient(device, single, (size.0, h, h), b.d, into, b.partials)?;
            }
        }
        self.0.add_weight_gradient(device, pass, (n, single), b.picked, b.d)?;
        // The picked rows are not needed any more: their buffer takes their gradients.
        self.0.backward(device, pass, (n, single), b.d, b.picked, false)?;
        drop_pooler(device, pass, b.picked, drops)?;
        let from = (b.picked, single);
        let rows = pass.device_batch.pooled;
        add_picked(device, pass.element(), size, from, rows, d_hidden)
    }
}

/// Applies dropout to the pooler's input or to its gradient, a row for each sequence in f32.
fn drop_pooler(
    device: &mut dyn Device,
    pass: Pass<'_>,
    x: Address,
    drops: Option<SiteDropout>,
) -> Result<()> {
    let Some(drops) = drops else {
        return Ok(());
    };
    let rows = DropoutRows::Sequences(*pass.batch());
    drop_rows(device, Element::F32, rows, pass.width(), x, drops)
}

/// The loss of a head, with its weight.
#[derive(Debug, Clone, Copy)]
pub enum HeadLoss {
    /// Cross-entropy with a label for each row of logits.
    Classes(f32),
    /// Cross-entropy of the first and the last token of an answer with the tokens of its sequence.
    Spans(f32),
}

/// A linear layer over the pooler's output or over every row.
pub struct Head {
    pub shape: TaskHead,
    linear: Linear,
    /// None for a head over every row.
    pooler: Option<Pooler>,
}

impl Head {
    /// Returns None if the model lacks the pooler that the head reads.
    fn find(offsets: &Offsets, shape: TaskHead) -> Option<Self> {
        let linear = Linear::find(offsets, shape.name);
        let outputs = padded_outputs(linear.outputs);
        Some(Self {
            linear: linear.padded(outputs),
            pooler: match shape.input {
                HeadInput::Pooled => Some(Pooler::find(offsets)?),
                HeadInput::Rows => None,
            },
            shape,
        })
    }

    /// Returns None if the model has no such head.
    pub fn next_sentence(offsets: &Offsets) -> Option<Self> {
        let has = offsets.layout().parts().contains(&Part::NextSentence);
        has.then(|| Self::find(offsets, NEXT_SENTENCE)).flatten()
    }

    /// Returns None if the model has no task head.
    pub fn task(offsets: &Offsets) -> Option<Self> {
        Self::find(offsets, offsets.layout().task_head()?)
    }

    /// Returns the columns of the logits, including padding.
    pub fn columns(&self) -> usize {
        self.linear.outputs
    }

    /// Returns the rows of the logits.
    pub fn rows(&self, pass: Pass<'_>) -> usize {
        match self.shape.input {
            HeadInput::Pooled => pass.sequences(),
            HeadInput::Rows => pass.rows(),
        }
    }

    /// Returns the format of the linear layer's factors.
    fn element(&self, pass: Pass<'_>) -> Element {
        match self.shape.input {
            HeadInput::Pooled => Element::F32,
            HeadInput::Rows => pass.element(),
        }
    }

    /// Computes the linear layer's input and returns its address.
    fn read(
        &self,
        device: &mut dyn Device,
        pass: Pass<'_>,
        hidden: Address,
        b: &Buffers,
    ) -> Result<Address> {
        if let Some(pooler) = &self.pooler {
            pooler.forward(device, pass, hidden, self.pooler_dropout(pass), b)?;
        }
        let (n, element) = (self.rows(pass), self.element(pass));
        let input = self.input(pass, hidden, b);
        if let Some(drops) = self.dropout(pass) {
            let bytes = (n * pass.config.hidden_size) as u64 * element.bytes();
            device.copy(self.reads(hidden, b), input, bytes)?;
            let rows = self.dropped_rows(pass);
            drop_rows(device, element, rows, pass.width(), input, drops)?;
        }
        Ok(input)
    }

    /// Computes the logits in f32, (sequences or rows, columns).
    pub fn forward(
        &self,
        device: &mut dyn Device,
        pass: Pass<'_>,
        hidden: Address,
        b: &Buffers,
    ) -> Result<()> {
        let input = self.read(device, pass, hidden, b)?;
        let all = (self.rows(pass), self.element(pass));
        let logits = (b.logits, Element::F32);
        self.linear.forward_with_bias(device, pass, all, input, logits)
    }

    /// Scores by cross-entropy with the uploaded labels into `scored`, and overwrites the logits with the weighted
    /// gradient.
    pub fn score(
        &self,
        device: &mut dyn Device,
        pass: Pass<'_>,
        hidden: Address,
        loss: HeadLoss,
        scored: Address,
        b: &Buffers,
    ) -> Result<()> {
        let input = self.read(device, pass, hidden, b)?;
        let all = (self.rows(pass), self.element(pass));
        let logits = (b.logits, Element::F32);
        self.linear.forward(device, pass, all, input, logits)?;
        let (stride, labels) = (self.columns() as u32, pass.device_batch.head_labels);
        match loss {
            HeadLoss::Classes(weight) => {
                let loss = CrossEntropy {
                    n: self.rows(pass) as u32,
                    classes: self.shape.outputs as u32,
                    stride,
                    logits: b.logits,
                    bias: pass.value(self.linear.bias),
                    labels,
                    weight,
                    scored,
                };
                cross_entropy(device, Element::F32, &loss)
            }
            HeadLoss::Spans(weight) => {
                let batch = *pass.batch();
                let loss = SpanLoss { batch, stride, logits: b.logits, labels, weight, scored };
                span_loss(device, &loss)
            }
        }
    }

    /// Runs backward from the gradient of the logits in `b.logits`; adds the gradient of the hidden
    /// states to `d_hidden`.
    pub fn backward(
        &self,
        device: &mut dyn Device,
        pass: Pass<'_>,
        hidden: Address,
        d_hidden: Address,
        b: &Buffers,
    ) -> Result<()> {
        let (n, element) = (self.rows(pass), self.element(pass));
        let (rows, columns) = (n as u32, self.columns() as u32);
        let into = pass.gradient(self.linear.bias);
        let size = (rows, columns, columns);
        bias_gradient(device, Element::F32, size, b.logits, into, b.partials)?;
        let dy = if element == Element::F32 {
            b.logits
        } else {
            let count = (n * self.columns()) as u64;
            let from = (b.logits, Element::F32);
            cast(device, count, from, (b.d_logits, element))?;
            b.d_logits
        };
        let input = self.input(pass, hidden, b);
        self.linear.add_weight_gradient(device, pass, (n, element), input, dy)?;
        // A head over rows is the only one, so it overwrites the gradient of the hidden states.
        let d = match &self.pooler {
            Some(_) => b.d,
            None => d_hidden,
        };
        self.linear.backward(device, pass, (n, element), dy, d, false)?;
        if let Some(drops) = self.dropout(pass) {
            let rows = self.dropped_rows(pass);
            drop_rows(device, element, rows, pass.width(), d, drops)?;
        }
        match &self.pooler {
            Some(pooler) => pooler.backward(device, pass, self.pooler_dropout(pass), b, d_hidden),
            None => Ok(()),
        }
    }

    /// Returns the linear layer's input before dropout.
    fn reads(&self, hidden: Address, b: &Buffers) -> Address {
        match self.shape.input {
            HeadInput::Pooled => b.pooled,
            HeadInput::Rows => hidden,
        }
    }

    /// Returns the linear layer's input.
    fn input(&self, pass: Pass<'_>, hidden: Address, b: &Buffers) -> Address {
        match self.dropout(pass) {
            Some(_) => b.input,
            None => self.reads(hidden, b),
        }
    }

    fn dropout(&self, pass: Pass<'_>) -> Option<SiteDropout> {
        pass.site_dropout(Site::HeadDropout, pass.config.head_dropout(self.shape))
    }

    fn pooler_dropout(&self, pass: Pass<'_>) -> Option<SiteDropout> {
        pass.site_dropout(Site::PoolerDropout, pass.config.pooler_dropout(self.shape))
    }

    fn dropped_rows(&self, pass: Pass<'_>) -> DropoutRows {
        match self.shape.input {
            HeadInput::Pooled => DropoutRows::Sequences(*pass.batch()),
            HeadInput::Rows => DropoutRows::Rows(*pass.batch()),
        }
    }
}
