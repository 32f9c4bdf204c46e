//! Compares attention with the CPU engine's, and at small sizes with its definition in f64.

use crate::engine::Precision;
use crate::engine::cpu::attention::{Heads as CpuHeads, Queries, Scratch};
use crate::engine::cuda::device::Element;
use crate::engine::cuda::kernels::{
    AttentionBackward, AttentionForward, Heads, attention_backward, attention_forward,
    attention_kept, attention_scratch,
};
use crate::engine::simd::Simd;
use crate::error::Result;
use crate::model::{ATTENTION_STRIDE, threshold};
use crate::random::{Site, Stream};

use super::test_case::{DROPOUT, TestBatch, TestCase, bound, numbers, rounded};
use super::{Scale, TestCases};

const SITE: Site = Site::AttentionDropout(3);

/// The bound of results whose factors are rounded to TF32, as in products.
const TF32_BOUND: f64 = 3e-3;

/// Tests every shape of heads: 64 and 32 wide, for which there are tensor-core kernels, and others.
pub fn plain_and_flash(cases: &mut TestCases<'_>) {
    all_cases(cases, false);
}

/// Tests heads 64 and 32 wide with factors in TF32.
pub fn tf32(cases: &mut TestCases<'_>) {
    all_cases(cases, true);
}

fn all_cases(cases: &mut TestCases<'_>, tf32: bool) {
    let (heads, lengths): (&[(u32, u32)], &[&[usize]]) = match cases.scale {
        Scale::Full => (
            &[(2, 64), (3, 32), (2, 20), (1, 128), (1, 17), (12, 64)],
            &[
                &[1],
                &[2],
                &[31],
                &[33],
                &[64],
                &[127],
                &[128],
                &[383],
                &[512],
                &[512, 1, 33, 127, 2, 383, 31, 65],
            ],
        ),
        Scale::Small => (
            &[(2, 64), (3, 32), (2, 20), (1, 17)],
            &[&[1], &[2], &[31], &[33], &[64], &[1, 7, 35, 2], &[130, 65]],
        ),
        Scale::Short => (&[(1, 64), (2, 17)], &[&[1], &[7, 35]]),
    };
    // Many tiles, which are slow if threads run one by one.
    let many: &[(u32, u32, &[usize])] = match cases.scale {
        Scale::Full => &[(16, 64, &[512, 384, 512])],
        Scale::Small => &[(1, 64, &[383]), (1, 32, &[257])],
        Scale::Short => &[],
    };
    let pairs =
        heads.iter().flat_map(|&(count, size)| lengths.iter().map(move |&l| (count, size, l)));
    let all = pairs.chain(many.iter().copied());
    for (count, size, lengths) in all.filter(|(_, size, _)| !tf32 || matches!(size, 32 | 64)) {
        for (causal, p) in [(false, 0.0), (false, 0.1), (true, 0.0), (true, 0.4)] {
            let heads = Heads { count, size, causal, tf32 };
            let name =
                format!("{count} heads of {size}, {lengths:?}, causal {causal}, dropout {p}");
            cases.test_aligned(&name, |case| run_case(case, heads, lengths, p));
        }
    }
    let (width, lengths) = cases.scale.measured();
    let size = if cases.scale == Scale::Short { 16 } else { 64 };
    let heads = Heads { count: width as u32 / size, size, causal: false, tf32 };
    for p in [0.0, 0.1] {
        let name = format!("{}×{}, dropout {p}", lengths.len(), lengths[0]);
        cases.measure(&name, |case| run_case(case, heads, lengths, p));
    }
}

/// The inputs.
struct Inputs {
    sample: TestBatch,
    heads: Heads,
    p: f64,
    /// (rows, 3 · hidden)
    qkv: Vec<f32>,
    /// (rows, hidden)
    d_context: Vec<f32>,
}

/// The outputs: the context, the log-sum-exps, the gradient of `qkv`.
struct Results {
    context: Vec<f32>,
    log_sums: Vec<f32>,
    d_qkv: Vec<f32>,
}

fn run_case(case: &mut TestCase<'_>, heads: Heads, lengths: &[usize], p: f64) -> Result<()> {
    let element = case.element;
    let sample = case.sample(lengths)?;
    let (rows, hidden) = (sample.packed.rows(), (heads.count * heads.size) as usize);
    case.columns = hidden;
    let inputs = Inputs {
        sample,
        heads,
        p,
        qkv: rounded(element, &numbers(3 * rows * hidden, 1)),
        d_context: rounded(element, &numbers(rows * hidden, 2)),
    };
    let (dropout, _) = inputs.sample.dropout(SITE, p);
    let batch = &inputs.sample.on_device.batch;
    let sums = rows * heads.count as usize;
    let longest = lengths.iter().copied().max().unwrap_or_default();
    let kept = attention_kept(element, (rows, lengths.len(), longest), heads);
    let pass = AttentionBackward {
        qkv: case.constant(element, &inputs.qkv)?,
        context: case.empty(element, rows * hidden)?,
        log_sums: case.empty(Element::F32, sums)?,
        kept: case.empty(Element::F32, kept as usize / 4)?,
        d_context: case.constant(element, &inputs.d_context)?,
        d_qkv: case.empty(element, 3 * rows * hidden)?,
        scratch: case.empty(Element::F32, attention_scratch(batch.rows, heads))?,
    };
    let (drops, device) = (dropout.as_ref(), &mut *case.device);
    let AttentionBackward { qkv, context, log_sums, kept, .. } = pass;
    let forward = AttentionForward { qkv, context, log_sums, kept };
    attention_forward(device, element, batch, heads, drops, &forward)?;
    attention_backward(device, element, batch, heads, drops, &pass)?;
    let got = case.outputs([
        (pass.context, element, rows * hidden),
        (pass.log_sums, Element::F32, sums),
        (pass.d_qkv, element, 3 * rows * hidden),
    ])?;
    let Some([context, log_sums, d_qkv]) = got else {
        return Ok(());
    };
    let got = Results { context, log_sums, d_qkv };
    let bound = if heads.tf32 { TF32_BOUND } else { bound(element) };
    compare(case, "", &got, &inputs.on_cpu(), (hidden, bound));
    if rows < 80 {
        compare(case, " against f64", &got, &inputs.defined(), (hidden, bound));
    }
    Ok(())
}

fn compare(
    case: &mut TestCase<'_>,
    against: &str,
    got: &Results,
    expected: &Results,
    (hidden, bound): (usize, f64),
) {
    let context = (&got.context, &expected.context);
    case.within(&format!("the context{against}"), context.0, context.1, bound);
    let sums = (&got.log_sums, &expected.log_sums);
    let of_sums = if bound == TF32_BOUND { bound } else { 1e-4 };
    case.within(&format!("sums' logarithms{against}"), sums.0, sums.1, of_sums);
    let part = |all: &[f32], which: usize| -> Vec<f32> {
        let rows = all.chunks_exact(3 * hidden);
        let own = which * hidden..(which + 1) * hidden;
        rows.flat_map(|row| row[own.clone()].to_vec()).collect()
    };
    for (which, what) in ["queries'", "keys'", "values'"].iter().enumerate() {
        let what = format!("{what} gradient{against}");
        // Gradients of scores are differences; for a sequence of one token they are only rounding
        // errors. They are compared together with the values' gradients if those are larger.
        let (values, expected_values) = (part(&got.d_qkv, 2), part(&expected.d_qkv, 2));
        let (of_got, of_expected) = (part(&got.d_qkv, which), part(&expected.d_qkv, which));
        if norm(&of_expected) < norm(&expected_values) {
            let (all, expected) =
                ([of_got, values].concat(), [of_expected, expected_values].concat());
            case.within(&what, &all, &expected, bound);
        } else {
            case.within(&what, &of_got, &of_expected, bound);
        }
    }
}

fn norm(values: &[f32]) -> f64 {
    let squares = values.iter().map(|&x| f64::from(x) * f64::from(x));
    squares.sum::<f64>().sqrt()
}

impl Inputs {
    /// Computes the results with the CPU engine in f32.
    fn on_cpu(&self) -> Results {
        let packed = &self.sample.packed;
        let heads = CpuHeads {
            count: self.heads.count as usize,
            size: self.heads.size as usize,
            causal: self.heads.causal,
            dropout: self.sample.dropout(SITE, self.p).1,
            precision: Precision::F32,
        };
        let (simd, mut scratch) = (Simd::detect(), Scratch::default());
        let (qkv, d_context) = (&self.qkv, &self.d_context);
        let mut context = vec![0.0; d_context.len()];
        let mut log_sums = vec![0.0; packed.rows() * heads.count];
        let mut d_qkv = vec![0.0; qkv.len()];
        let (c, l, s) = (&mut context, &mut log_sums, &mut scratch);
        let queries = Queries { batch: packed, selection: None };
        heads.forward(simd, queries, qkv, c, l, s);
        heads.backward(simd, queries, qkv, l, c, d_context, &mut d_qkv, s);
        Results { context, log_sums, d_qkv }
    }

    /// Computes the results by definition, in f64.
    fn defined(&self) -> Results {
        let packed = &self.sample.packed;
        let (count, size) = (self.heads.count as usize, self.heads.size as usize);
        let mut results = Results {
            context: vec![0.0; self.d_context.len()],
            log_sums: vec![0.0; packed.rows() * count],
            d_qkv: vec![0.0; self.qkv.len()],
        };
        for (rows, &example) in packed.ranges().zip(&packed.examples) {
            for head in 0..count {
                let one = Head {
                    inputs: self,
                    first: rows.start,
                    rows: rows.len(),
                    head,
                    stream: Stream::new(DROPOUT.seed, DROPOUT.step, SITE, example),
                };
                one.defined(size, &mut results);
            }
        }
        results
    }
}

/// One head of one sequence.
struct Head<'a> {
    inputs: &'a Inputs,
    first: usize,
    rows: usize,
    head: usize,
    stream: Stream,
}

impl Head<'_> {
    /// Returns the factor of a probability.
    fn factor(&self, query: usize, key: usize) -> f64 {
        let element = (self.head as u32 * ATTENTION_STRIDE + query as u32) * ATTENTION_STRIDE;
        let p = self.inputs.p;
        let kept = self.stream.bits(element + key as u32) >= threshold(p);
        if kept { 1.0 / (1.0 - p) } else { 0.0 }
    }

    fn defined(&self, size: usize, results: &mut Results) {
        let (inputs, rows) = (self.inputs, self.rows);
        let (count, hidden) =
            (inputs.heads.count as usize, (inputs.heads.count * inputs.heads.size) as usize);
        let at = |which: usize, row: usize, i: usize| {
            (self.first + row) * 3 * hidden + which * hidden + self.head * size + i
        };
        let of = |which, row, i| f64::from(inputs.qkv[at(which, row, i)]);
        let root = (size as f64).sqrt();
        let mut sums = vec![0.0; 3 * rows * size];
        for query in 0..rows {
            let seen = if inputs.heads.causal { query + 1 } else { rows };
            let out = (self.first + query) * hidden + self.head * size;
            let d = |i: usize| f64::from(inputs.d_context[out + i]);
            let score = |key: usize| -> f64 {
                (0..size).map(|i| of(0, query, i) * of(1, key, i)).sum::<f64>() / root
            };
            let scores: Vec<f64> = (0..seen).map(score).collect();
            let total: f64 = scores.iter().map(|x| x.exp()).sum();
            results.log_sums[(self.first + query) * count + self.head] = total.ln() as f32;
            let p: Vec<f64> = scores.iter().map(|x| x.exp() / total).collect();
            let factors: Vec<f64> = (0..seen).map(|key| self.factor(query, key)).collect();
            let d_p = |key: usize| -> f64 {
                factors[key] * (0..size).map(|i| d(i) * of(2, key, i)).sum::<f64>()
            };
            let d_p: Vec<f64> = (0..seen).map(d_p).collect();
            let slope: f64 = p.iter().zip(&d_p).map(|(p, d)| p * d).sum();
            for i in 0..size {
                let sum: f64 = (0..seen).map(|k| p[k] * factors[k] * of(2, k, i)).sum();
                results.context[out + i] = sum as f32;
            }
            for key in 0..seen {
                let d_score = p[key] * (d_p[key] - slope) / root;
                for i in 0..size {
                    sums[query * size + i] += d_score * of(1, key, i);
                    sums[(rows + key) * size + i] += d_score * of(0, query, i);
                    sums[(2 * rows + key) * size + i] += p[key] * factors[key] * d(i);
                }
            }
        }
        for which in 0..3 {
            for row in 0..rows {
                for i in 0..size {
                    let sum = sums[(which * rows + row) * size + i];
                    results.d_qkv[at(which, row, i)] = sum as f32;
                }
            }
        }
    }
}
