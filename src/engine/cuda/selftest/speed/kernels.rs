//! The kernels and products of a training step at the sizes of base and large.

use crate::data::Packed;
use crate::engine::cuda::batch::{DeviceBatch, HeadInputs, Staging};
use crate::engine::cuda::device::{Address, Device, Element, Epilogue, Matrix, Product};
use crate::engine::cuda::kernels::{
    self, AttentionBackward, Chunks, CrossEntropy, EmbeddingBackward, EmbeddingForward, Heads,
    Norm, NormBackward, NormForward, Parameters, SCORED, SiteDropout, Step, Tables, partials,
    squares_partials,
};
use crate::engine::cuda::peak::Buffers;
use crate::engine::cuda::state::{Offsets, padded_vocabulary};
use crate::engine::optimizer::{Optimizer, Rule, Update};
use crate::error::Result;
use crate::model::{Config, Dropout, Layout, PRETRAINING, Size, threshold};
use crate::random::Site;

use super::super::test_case::indices;
use super::super::{Check, Outcome, Session};
use super::{Work, timed};

const ELEMENT: Element = Element::Bf16;
const VOCABULARY: usize = 30522;
const DROPPED: f64 = 0.1;

/// The size of a step.
#[derive(Debug, Clone, Copy)]
struct Shape {
    size: Size,
    sequences: usize,
    length: usize,
}

type Prepare = fn(&mut Buffers<'_>, &Set) -> Result<Work>;

/// The batch on the device, shared by all kernels.
struct Set {
    shape: Shape,
    config: Config,
    on_device: DeviceBatch,
    dropout: SiteDropout,
}

const KERNELS: &[(&str, Prepare)] = &[
    ("embedding_forward", embedding_forward),
    ("embedding_backward", embedding_backward),
    ("norm_forward", norm_forward),
    ("norm_backward", norm_backward),
    ("add_bias", add_bias),
    ("bias_gelu", bias_gelu),
    ("gelu_backward", gelu_backward),
    ("bias_gradient", bias_gradient),
    ("cross_entropy", cross_entropy),
    ("cast", cast),
    ("sum_of_squares", sum_of_squares),
    ("adamw", adamw),
    ("lamb", lamb),
];

const SHAPES: [Shape; 2] = [
    Shape { size: Size::Base, sequences: 64, length: 384 },
    Shape { size: Size::Large, sequences: 32, length: 384 },
];

pub fn checks() -> Vec<Check> {
    let mut checks = Vec::new();
    for shape in SHAPES {
        let name = shape.size.name();
        for &(kernel, prepare) in KERNELS {
            checks.push(Check::new(format!("{name} {kernel}"), move |session| {
                time(session, shape, prepare)
            }));
        }
        for length in [128, 384, 512] {
            // The number of tokens stays the same.
            let shape =
                Shape { sequences: shape.sequences * shape.length / length, length, ..shape };
            for (what, prepare) in
                [("forward", attention_forward as Prepare), ("backward", attention_backward)]
            {
                checks.push(Check::new(
                    format!("{name} attention {what} {length}"),
                    move |session| time(session, shape, prepare),
                ));
            }
        }
        for (what, inputs, outputs, picked) in products(shape) {
            for kind in ["forward", "input", "weight"] {
                checks.push(Check::new(format!("{name} product {what} {kind}"), move |session| {
                    time_product(session, shape, kind, [inputs, outputs], picked)
                }));
            }
        }
    }
    checks
}

/// Returns linear layers: name, inputs, outputs, and whether they process only masked tokens.
fn products(shape: Shape) -> [(&'static str, usize, usize, bool); 5] {
    let (_, h, _, i) = shape.size.dimensions();
    [
        ("queries-keys-values", h, 3 * h, false),
        ("attention's output", h, h, false),
        ("intermediate", h, i, false),
        ("output", i, h, false),
        ("vocabulary", h, padded_vocabulary(VOCABULARY), true),
    ]
}

fn time(session: &mut Session<'_>, shape: Shape, prepare: Prepare) -> Result<Outcome> {
    let name = format!("{}×{}", shape.sequences, shape.length);
    timed(session, &name, |buffers| {
        let set = Set::new(buffers, shape)?;
        prepare(buffers, &set)
    })
}

impl Shape {
    fn rows(self) -> usize {
        self.sequences * self.length
    }

    /// Returns the number of predicted tokens.
    fn masked(self) -> usize {
        self.rows() * 15 / 100
    }
}

impl Set {
    fn new(buffers: &mut Buffers<'_>, shape: Shape) -> Result<Self> {
        let mut packed = Packed::default();
        for example in 0..shape.sequences as u64 {
            let ids = indices(shape.length, VOCABULARY as u32, example);
            packed.push(example, &ids, &vec![0; shape.length]);
        }
        let mut staging = Staging::default();
        let dropout = Some(Dropout { seed: 1, step: 1 });
        let inputs = HeadInputs::default();
        let (on_device, _) = staging.send(buffers.device, &packed, inputs, dropout, VOCABULARY)?;
        // The staging's memory is released with the buffers.
        buffers.allocated.push(staging.into_memory());
        Ok(Self {
            shape,
            config: shape.size.config(VOCABULARY),
            on_device,
            dropout: SiteDropout {
                state: on_device.state,
                site: Site::FeedForwardDropout(0).number(),
                threshold: threshold(DROPPED),
                scale: (1.0 / (1.0 - DROPPED)) as f32,
            },
        })
    }

    fn rows(&self) -> usize {
        self.shape.rows()
    }

    fn width(&self) -> usize {
        self.config.hidden_size
    }

    /// Returns the number of values of (rows, hidden).
    fn hidden(&self) -> usize {
        self.rows() * self.width()
    }

    /// Returns the bytes of `each` values per element of (rows, hidden).
    fn bytes(&self, each: f64) -> f64 {
        each * ELEMENT.bytes() as f64 * self.hidden() as f64
    }

    fn norm(&self, buffers: &mut Buffers<'_>) -> Result<Norm> {
        Ok(Norm {
            gain: buffers.numbers(Element::F32, self.width())?,
            bias: buffers.numbers(Element::F32, self.width())?,
            epsilon: 1e-12,
        })
    }

    fn tables(&self, buffers: &mut Buffers<'_>) -> Result<Tables> {
        let width = self.width();
        Ok(Tables {
            words: buffers.numbers(Element::F32, VOCABULARY * width)?,
            positions: buffers.numbers(Element::F32, 512 * width)?,
            segments: buffers.numbers(Element::F32, 2 * width)?,
            segment_entries: 2,
        })
    }
}

/// Describes a kernel without products.
fn memory_bound(
    bytes: f64,
    run: impl FnMut(&mut dyn Device) -> Result<()> + 'static,
) -> Result<Work> {
    Ok(Work { bytes, flops: 0.0, run: Box::new(run) })
}

fn embedding_forward(buffers: &mut Buffers<'_>, set: &Set) -> Result<Work> {
    let [sums, out] = buffers.several(ELEMENT, set.hidden())?;
    let a = EmbeddingForward {
        batch: set.on_device.batch,
        width: set.width() as u32,
        tables: set.tables(buffers)?,
        norm: set.norm(buffers)?,
        dropout: Some(set.dropout),
        sums,
        statistics: buffers.numbers(Element::F32, 2 * set.rows())?,
        out,
    };
    let bytes = set.bytes(2.0) + 4.0 * (set.hidden() + set.shape.length * set.width()) as f64;
    memory_bound(bytes, move |device| kernels::embedding_forward(device, ELEMENT, &a))
}

fn embedding_backward(buffers: &mut Buffers<'_>, set: &Set) -> Result<Work> {
    let [sums, d_out, d_sums] = buffers.several(ELEMENT, set.hidden())?;
    let (width, norm) = (set.width(), set.norm(buffers)?);
    let a = EmbeddingBackward {
        batch: set.on_device.batch,
        width: width as u32,
        gain: norm.gain,
        dropout: Some(set.dropout),
        sums,
        statistics: buffers.numbers(Element::F32, 2 * set.rows())?,
        d_out,
        d_sums,
        gain_gradient: norm.gain,
        bias_gradient: norm.bias,
        tables: set.tables(buffers)?,
        partials: buffers.take(partials(width as u32))?,
    };
    // The gradient of the sums is written once and read for each table, whose entries are read and
    // written.
    let entries = VOCABULARY.min(set.rows());
    let bytes = set.bytes(6.0) + 8.0 * ((entries + set.shape.length) * width) as f64;
    memory_bound(bytes, move |device| kernels::embedding_backward(device, ELEMENT, &a))
}

fn norm_forward(buffers: &mut Buffers<'_>, set: &Set) -> Result<Work> {
    let [x, residual, out] = buffers.several(ELEMENT, set.hidden())?;
    let a = NormForward {
        n: set.rows() as u32,
        width: set.width() as u32,
        x,
        bias: buffers.numbers(Element::F32, set.width())?,
        dropout: Some((set.on_device.batch, set.dropout)),
        residual,
        norm: set.norm(buffers)?,
        statistics: buffers.numbers(Element::F32, 2 * set.rows())?,
        out,
    };
    memory_bound(set.bytes(4.0), move |device| kernels::norm_forward(device, ELEMENT, &a))
}

fn norm_backward(buffers: &mut Buffers<'_>, set: &Set) -> Result<Work> {
    let [sums, d_out, d_residual, d_linear] = buffers.several(ELEMENT, set.hidden())?;
    let norm = set.norm(buffers)?;
    let a = NormBackward {
        n: set.rows() as u32,
        width: set.width() as u32,
        gain: norm.gain,
        sums,
        statistics: buffers.numbers(Element::F32, 2 * set.rows())?,
        dropout: Some((set.on_device.batch, set.dropout)),
        d_out,
        d_residual,
        d_linear,
        gain_gradient: norm.gain,
        bias_gradient: norm.bias,
        linear_bias_gradient: buffers.numbers(Element::F32, set.width())?,
        partials: buffers.take(partials(set.width() as u32))?,
    };
    memory_bound(set.bytes(4.0), move |device| kernels::norm_backward(device, ELEMENT, &a))
}

fn add_bias(buffers: &mut Buffers<'_>, set: &Set) -> Result<Work> {
    let size = (set.rows() as u32, 3 * set.width() as u32);
    let x = buffers.numbers(ELEMENT, 3 * set.hidden())?;
    let bias = buffers.numbers(Element::F32, 3 * set.width())?;
    memory_bound(set.bytes(6.0), move |device| kernels::add_bias(device, ELEMENT, size, x, bias))
}

fn bias_gelu(buffers: &mut Buffers<'_>, set: &Set) -> Result<Work> {
    let inner = set.config.intermediate_size;
    let count = set.rows() * inner;
    let [x, out] = buffers.several(ELEMENT, count)?;
    let bias = buffers.numbers(Element::F32, inner)?;
    let size = (set.rows() as u32, inner as u32);
    memory_bound((2 * ELEMENT.bytes()) as f64 * count as f64, move |device| {
        kernels::bias_gelu(device, ELEMENT, size, x, bias, out)
    })
}

fn gelu_backward(buffers: &mut Buffers<'_>, set: &Set) -> Result<Work> {
    let inner = set.config.intermediate_size;
    let count = set.rows() * inner;
    let [x, d] = buffers.several(ELEMENT, count)?;
    let [bias, into] = buffers.several(Element::F32, inner)?;
    let scratch = buffers.take(partials(inner as u32))?;
    let size = (set.rows() as u32, inner as u32);
    memory_bound((3 * ELEMENT.bytes()) as f64 * count as f64, move |device| {
        kernels::gelu_backward(device, ELEMENT, size, x, bias, d, into, scratch)
    })
}

fn bias_gradient(buffers: &mut Buffers<'_>, set: &Set) -> Result<Work> {
    let width = 3 * set.width() as u32;
    let d = buffers.numbers(ELEMENT, 3 * set.hidden())?;
    let into = buffers.numbers(Element::F32, width as usize)?;
    let scratch = buffers.take(partials(width))?;
    let size = (set.rows() as u32, width, width);
    memory_bound(set.bytes(3.0), move |device| {
        kernels::bias_gradient(device, ELEMENT, size, d, into, scratch)
    })
}

fn cross_entropy(buffers: &mut Buffers<'_>, set: &Set) -> Result<Work> {
    let (n, stride) = (set.shape.masked(), padded_vocabulary(VOCABULARY));
    let labels = indices(n, VOCABULARY as u32, 3);
    let a = CrossEntropy {
        n: n as u32,
        classes: VOCABULARY as u32,
        stride: stride as u32,
        logits: buffers.numbers(ELEMENT, n * stride)?,
        bias: buffers.numbers(Element::F32, VOCABULARY)?,
        labels: buffers.words(&labels)?,
        weight: 1.0 / n as f32,
        scored: buffers.take(SCORED * n as u64)?,
    };
    memory_bound((2 * ELEMENT.bytes()) as f64 * (n * VOCABULARY) as f64, move |device| {
        kernels::cross_entropy(device, ELEMENT, &a)
    })
}

/// Allocates the flat buffers of a model.
fn flat(buffers: &mut Buffers<'_>, set: &Set) -> Result<(usize, [Address; 4])> {
    let layout = Layout::new(&set.config, &PRETRAINING);
    let total = Offsets::new(&layout).total();
    let parts: [Address; 4] = buffers.several(Element::F32, total)?;
    // Means of squares are not negative.
    buffers.device.fill(parts[3], 0, 4 * total as u64)?;
    Ok((total, parts))
}

fn cast(buffers: &mut Buffers<'_>, set: &Set) -> Result<Work> {
    let (total, [from, ..]) = flat(buffers, set)?;
    let to = buffers.numbers(ELEMENT, total)?;
    memory_bound((4 + ELEMENT.bytes()) as f64 * total as f64, move |device| {
        kernels::cast(device, total as u64, (from, Element::F32), (to, ELEMENT))
    })
}

fn sum_of_squares(buffers: &mut Buffers<'_>, set: &Set) -> Result<Work> {
    let (total, [_, gradients, ..]) = flat(buffers, set)?;
    let scratch = buffers.take(squares_partials())?;
    let into = buffers.take(8)?;
    memory_bound(4.0 * total as f64, move |device| {
        kernels::sum_of_squares(device, ELEMENT, total as u64, gradients, scratch, into)
    })
}

fn adamw(buffers: &mut Buffers<'_>, set: &Set) -> Result<Work> {
    optimizer(buffers, set, Rule::Adamw)
}

fn lamb(buffers: &mut Buffers<'_>, set: &Set) -> Result<Work> {
    optimizer(buffers, set, Rule::Lamb)
}

fn optimizer(buffers: &mut Buffers<'_>, set: &Set, rule: Rule) -> Result<Work> {
    let layout = Layout::new(&set.config, &PRETRAINING);
    let offsets = Offsets::new(&layout);
    let chunks = Chunks::of(offsets.iter());
    let (total, [values, gradients, first, second]) = flat(buffers, set)?;
    let update = Update {
        optimizer: Optimizer { rule, ..Optimizer::default() },
        learning_rate: 1e-5,
        step: 10,
        max_norm: 1.0,
    };
    let step = buffers.take(Step::BYTES as u64)?;
    buffers.device.upload(step, &Step::new(&update, 1.0).bytes())?;
    let squares = buffers.take(8)?;
    buffers.device.upload(squares, &1f64.to_ne_bytes())?;
    let chunks_at = buffers.words(chunks.words())?;
    let copy = buffers.numbers(ELEMENT, total)?;
    let scratch = buffers.take(chunks.partials())?;
    // LAMB reads parameters and means again once it knows its ratios.
    let numbers = if rule == Rule::Lamb { 11.0 } else { 8.0 };
    memory_bound((4.0 * numbers + ELEMENT.bytes() as f64) * total as f64, move |device| {
        let a = Parameters {
            chunks: &chunks,
            chunks_at,
            step,
            squares,
            values,
            gradients,
            first,
            second,
            copy,
        };
        if rule == Rule::Lamb {
            return kernels::lamb(device, ELEMENT, &a, scratch);
        }
        kernels::adamw(device, ELEMENT, &a)
    })
}

/// Returns the heads and the buffers of both passes.
fn attention(buffers: &mut Buffers<'_>, set: &Set) -> Result<(Heads, AttentionBackward)> {
    let heads = Heads {
        count: set.config.num_attention_heads as u32,
        size: set.config.head_size() as u32,
        causal: false,
    };
    let scratch = kernels::attention_scratch(set.on_device.batch.rows, heads);
    let pass = AttentionBackward {
        qkv: buffers.numbers(ELEMENT, 3 * set.hidden())?,
        context: buffers.numbers(ELEMENT, set.hidden())?,
        log_sums: buffers.numbers(Element::F32, set.rows() * heads.count as usize)?,
        d_context: buffers.numbers(ELEMENT, set.hidden())?,
        d_qkv: buffers.numbers(ELEMENT, 3 * set.hidden())?,
        scratch: buffers.take(4 * scratch as u64)?,
    };
    Ok((heads, pass))
}

fn forward(
    device: &mut dyn Device,
    set: (kernels::Batch, SiteDropout),
    heads: Heads,
    pass: &AttentionBackward,
) -> Result<()> {
    let (batch, dropout) = (&set.0, Some(&set.1));
    let (qkv, context, sums) = (pass.qkv, pass.context, pass.log_sums);
    kernels::attention_forward(device, ELEMENT, batch, heads, dropout, qkv, context, sums)
}

fn attention_forward(buffers: &mut Buffers<'_>, set: &Set) -> Result<Work> {
    let (heads, pass) = attention(buffers, set)?;
    let with = (set.on_device.batch, set.dropout);
    Ok(Work {
        bytes: set.bytes(4.0),
        // Two products of (length, length, size) per head.
        flops: 4.0 * set.hidden() as f64 * set.shape.length as f64,
        run: Box::new(move |device| forward(device, with, heads, &pass)),
    })
}

fn attention_backward(buffers: &mut Buffers<'_>, set: &Set) -> Result<Work> {
    let (heads, pass) = attention(buffers, set)?;
    let with = (set.on_device.batch, set.dropout);
    // Provides the log-sum-exps of these scores.
    forward(buffers.device, with, heads, &pass)?;
    Ok(Work {
        bytes: set.bytes(8.0),
        // Five such products, one of which recomputes the forward pass's scores.
        flops: 10.0 * set.hidden() as f64 * set.shape.length as f64,
        run: Box::new(move |device| {
            let (batch, dropout) = (&with.0, Some(&with.1));
            kernels::attention_backward(device, ELEMENT, batch, heads, dropout, &pass)
        }),
    })
}

fn time_product(
    session: &mut Session<'_>,
    shape: Shape,
    kind: &'static str,
    [inputs, outputs]: [usize; 2],
    picked: bool,
) -> Result<Outcome> {
    let rows = if picked { shape.masked() } else { shape.rows() };
    timed(session, &format!("{rows}×{inputs}×{outputs}"), |buffers| {
        let mut matrix = |element, rows, columns| -> Result<Matrix> {
            let at = buffers.numbers(element, rows * columns)?;
            Ok(Matrix::new(at, element, rows, columns))
        };
        let x = matrix(ELEMENT, rows, inputs)?;
        let y = matrix(ELEMENT, rows, outputs)?;
        let (a, b, c, add) = match kind {
            "forward" => (x, matrix(ELEMENT, outputs, inputs)?.t(), y, false),
            "input" => (y, matrix(ELEMENT, outputs, inputs)?, x, false),
            _ => (y.t(), x, matrix(Element::F32, outputs, inputs)?, true),
        };
        let bytes = |m: Matrix| m.element.bytes() as f64 * (m.rows * m.columns) as f64;
        let product =
            Product { a, b, c, alpha: 1.0, add, tf32: false, epilogue: Epilogue::Nothing };
        Ok(Work {
            bytes: bytes(a) + bytes(b) + bytes(c) * if add { 2.0 } else { 1.0 },
            flops: 2.0 * rows as f64 * inputs as f64 * outputs as f64,
            run: Box::new(move |device| device.multiply(&product)),
        })
    })
}
