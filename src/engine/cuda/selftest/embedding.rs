//! Compares embeddings and the gradients of their tables with the CPU engine's.

use crate::engine::cpu::elementwise::Partials;
use crate::engine::cpu::embedding as cpu;
use crate::engine::cpu::norm::{Norm, Statistics, add_parameter_gradients, forward_alone};
use crate::engine::cuda::device::Element;
use crate::engine::cuda::kernels::{
    self, EmbeddingBackward, EmbeddingForward, Tables, embedding_backward, embedding_forward,
};
use crate::engine::simd::Simd;
use crate::error::Result;
use crate::random::Site;

use super::TestCases;
use super::norm::{EPSILON, flat, scale_and_shift};
use super::test_case::{TestCase, VOCABULARY, numbers, rounded};

const SITE: Site = Site::EmbeddingDropout;
/// Entries of the tables of words, positions and segments. Three segments, of which batches have
/// two: kernels process them in pairs.
const ENTRIES: [usize; 3] = [VOCABULARY as usize, 512, 3];

pub fn forward(cases: &mut TestCases<'_>) {
    cases.over_batches(&[0.0, 0.1], forward_case);
}

pub fn backward(cases: &mut TestCases<'_>) {
    cases.over_batches(&[0.0, 0.1], backward_case);
}

fn forward_case(case: &mut TestCase<'_>, width: usize, lengths: &[usize], p: f64) -> Result<()> {
    let element = case.element;
    let sample = case.sample(lengths)?;
    let n = sample.packed.rows();
    let tables = [0, 1, 2].map(|i| numbers(ENTRIES[i] * width, i));
    let [gain, shift] = scale_and_shift(width);
    let (dropout, mask) = sample.dropout(SITE, p);
    let a = EmbeddingForward {
        batch: sample.on_device.batch,
        width: width as u32,
        tables: Tables {
            words: case.constant(Element::F32, &tables[0])?,
            positions: case.constant(Element::F32, &tables[1])?,
            segments: case.constant(Element::F32, &tables[2])?,
            segment_entries: 3,
        },
        norm: kernels::Norm {
            gain: case.constant(Element::F32, &gain)?,
            bias: case.constant(Element::F32, &shift)?,
            epsilon: EPSILON,
        },
        dropout,
        sums: case.empty(element, n * width)?,
        statistics: case.empty(Element::F32, 2 * n)?,
        out: case.empty(element, n * width)?,
    };
    embedding_forward(case.device, element, &a)?;
    let got = case.outputs([
        (a.sums, element, n * width),
        (a.statistics, Element::F32, 2 * n),
        (a.out, element, n * width),
    ])?;
    let Some([sums, statistics, out]) = got else {
        return Ok(());
    };
    let [mut expected, mut y] = [(); 2].map(|()| vec![0.0; n * width]);
    let mut of_rows = vec![Statistics::default(); n];
    cpu::forward(
        Simd::detect(),
        &sample.packed,
        cpu::Tables { words: &tables[0], positions: &tables[1], segments: Some(&tables[2]) },
        Norm { weight: &gain, bias: &shift, epsilon: EPSILON },
        mask.map(|mask| (mask, &sample.rows)),
        &mut expected,
        &mut of_rows,
        &mut y,
    );
    case.near("the sum", &sums, &expected);
    case.near("statistics", &statistics, &flat(&of_rows));
    case.near("the output", &out, &y);
    Ok(())
}

fn backward_case(case: &mut TestCase<'_>, width: usize, lengths: &[usize], p: f64) -> Result<()> {
    let element = case.element;
    let sample = case.sample(lengths)?;
    let (n, simd) = (sample.packed.rows(), Simd::detect());
    let x = rounded(element, &numbers(n * width, 1));
    let mut d_out = rounded(element, &numbers(n * width, 2));
    let [gain, shift] = scale_and_shift(width);
    let norm = Norm { weight: &gain, bias: &shift, epsilon: EPSILON };
    let (mut statistics, mut y) = (vec![Statistics::default(); n], vec![0.0; n * width]);
    forward_alone(simd, norm, &x, &mut statistics, &mut y);
    let (dropout, mask) = sample.dropout(SITE, p);
    let mut tables = [0, 1, 2].map(|i| numbers(ENTRIES[i] * width, i));
    let mut sums = [5, 6].map(|key| numbers(width, key));
    let a = EmbeddingBackward {
        batch: sample.on_device.batch,
        width: width as u32,
        gain: case.constant(Element::F32, &gain)?,
        dropout,
        sums: case.constant(element, &x)?,
        statistics: case.constant(Element::F32, &flat(&statistics))?,
        d_out: case.constant(element, &d_out)?,
        d_sums: case.empty(element, n * width)?,
        gain_gradient: case.changing(Element::F32, &sums[0])?,
        bias_gradient: case.changing(Element::F32, &sums[1])?,
        tables: Tables {
            words: case.changing(Element::F32, &tables[0])?,
            positions: case.changing(Element::F32, &tables[1])?,
            segments: case.changing(Element::F32, &tables[2])?,
            segment_entries: 3,
        },
        partials: case.scratch(kernels::partials(width as u32))?,
    };
    embedding_backward(case.device, element, &a)?;
    let single = Element::F32;
    let got = case.outputs([
        (a.d_sums, element, n * width),
        (a.gain_gradient, single, width),
        (a.bias_gradient, single, width),
        (a.tables.words, single, ENTRIES[0] * width),
        (a.tables.positions, single, ENTRIES[1] * width),
        (a.tables.segments, single, ENTRIES[2] * width),
    ])?;
    let Some([d_sums, d_gain, d_shift, words, positions, segments]) = got else {
        return Ok(());
    };
    let mut expected = vec![0.0; n * width];
    let saved = (&x[..], &statistics[..]);
    let dropout = mask.map(|mask| (mask, &sample.rows));
    cpu::backward(simd, norm, dropout, saved, &mut d_out, &mut expected);
    let [weight, bias] = &mut sums;
    add_parameter_gradients(simd, saved, &d_out, weight, bias, &mut Partials::default());
    let packed = &sample.packed;
    for (table, index) in tables.iter_mut().zip([&packed.ids, &packed.positions, &packed.segments])
    {
        cpu::add_to_table(simd, index, &expected, width, table);
    }
    case.near("the sum's gradient", &d_sums, &expected);
    case.near("the scale's gradient", &d_gain, &sums[0]);
    case.near("the shift's gradient", &d_shift, &sums[1]);
    case.near("the words' gradients", &words, &tables[0]);
    case.near("the positions' gradients", &positions, &tables[1]);
    case.near("the segments' gradients", &segments, &tables[2]);
    Ok(())
}
