//! Attention on the emulated device against the CPU engine's, and where it is small against its
//! definition in f64.

use half::{bf16, f16};

use super::*;
use crate::data::Packed;
use crate::engine::Precision;
use crate::engine::cpu::Mask;
use crate::engine::cpu::attention::{Heads as CpuHeads, Scratch};
use crate::engine::cuda::emulated::{Emulated, for_tests};
use crate::engine::simd::Simd;
use crate::model::{Dropout, threshold};
use crate::random::{Site, Stream};

const SITE: Site = Site::AttentionDropout(3);
const DROPOUT: Dropout = Dropout {
    seed: 0x1234_5678_9ABC,
    step: 6,
};

/// One call to try.
#[derive(Debug, Clone)]
struct Case {
    element: Element,
    lengths: Vec<usize>,
    heads: Heads,
    /// Probability to drop.
    p: f64,
}

/// What a pass gives: context, sums' logarithms, and the gradient of queries, keys and values.
struct Results {
    context: Vec<f32>,
    log_sums: Vec<f32>,
    d_qkv: Vec<f32>,
}

fn round(element: Element, values: &mut [f32]) {
    for x in values {
        *x = match element {
            Element::F32 => *x,
            Element::Bf16 => bf16::from_f32(*x).to_f32(),
            Element::F16 => f16::from_f32(*x).to_f32(),
        };
    }
}

fn encode(element: Element, values: &[f32]) -> Vec<u8> {
    let bytes = |x: &f32| match element {
        Element::F32 => x.to_ne_bytes().to_vec(),
        Element::Bf16 => bf16::from_f32(*x).to_ne_bytes().to_vec(),
        Element::F16 => f16::from_f32(*x).to_ne_bytes().to_vec(),
    };
    values.iter().flat_map(bytes).collect()
}

fn decode(element: Element, bytes: &[u8]) -> Vec<f32> {
    let short = || bytes.as_chunks::<2>().0.iter().copied();
    match element {
        Element::F32 => {
            let words = bytes.as_chunks::<4>().0.iter().copied();
            words.map(f32::from_ne_bytes).collect()
        }
        Element::Bf16 => short().map(|b| bf16::from_ne_bytes(b).to_f32()).collect(),
        Element::F16 => short().map(|b| f16::from_ne_bytes(b).to_f32()).collect(),
    }
}

fn upload(device: &mut Emulated, bytes: &[u8]) -> Address {
    let at = device.allocate(bytes.len() as u64).unwrap();
    device.upload(at, bytes).unwrap();
    at
}

fn download(device: &mut Emulated, element: Element, at: Address, count: usize) -> Vec<f32> {
    let mut bytes = vec![0; count * element.bytes() as usize];
    device.download(at, &mut bytes).unwrap();
    decode(element, &bytes)
}

/// Numbers without a pattern, spread as much as a model's are.
fn numbers(element: Element, count: usize, example: u64) -> Vec<f32> {
    let stream = Stream::new(7, 0, Site::Other(0), example);
    let one = |i: usize| (stream.uniform(i as u32) * 4.0 - 2.0) as f32;
    let mut values: Vec<f32> = (0..count).map(one).collect();
    round(element, &mut values);
    values
}

impl Case {
    fn hidden(&self) -> usize {
        (self.heads.count * self.heads.size) as usize
    }

    fn packed(&self) -> Packed {
        let mut packed = Packed::default();
        for (index, &length) in self.lengths.iter().enumerate() {
            // Some examples have more than 32 bits.
            let example = (index as u64 * 5 + 1) << (index % 3 * 20);
            packed.push(example, &vec![1; length], &vec![0; length]);
        }
        packed
    }

    fn qkv(&self) -> Vec<f32> {
        let rows: usize = self.lengths.iter().sum();
        numbers(self.element, rows * 3 * self.hidden(), 1)
    }

    fn d_context(&self) -> Vec<f32> {
        let rows: usize = self.lengths.iter().sum();
        numbers(self.element, rows * self.hidden(), 2)
    }

    /// On the emulated device.
    fn emulated(&self, device: &mut Emulated) -> Results {
        let packed = self.packed();
        let (rows, element) = (packed.rows(), self.element);
        let words = |words: &[u32]| -> Vec<u8> {
            words.iter().flat_map(|word| word.to_ne_bytes()).collect()
        };
        let examples: Vec<u32> = packed
            .examples
            .iter()
            .flat_map(|&example| [example as u32, (example >> 32) as u32])
            .collect();
        let batch = Batch {
            rows: rows as u32,
            sequences: packed.sequences() as u32,
            longest: packed.longest() as u32,
            ids: Address::NONE,
            segments: Address::NONE,
            positions: Address::NONE,
            cu_seqlens: upload(device, &words(&packed.cu_seqlens)),
            sequence_of_row: Address::NONE,
            examples: upload(device, &words(&examples)),
            word_order: Address::NONE,
            word_starts: Address::NONE,
            words: 0,
        };
        let seed = DROPOUT.seed;
        let state = [seed as u32, (seed >> 32) as u32, DROPOUT.step];
        let dropping = Dropping {
            state: upload(device, &words(&state)),
            site: SITE.number(),
            threshold: threshold(self.p),
            kept: (1.0 / (1.0 - self.p)) as f32,
        };
        let dropping = (self.p > 0.0).then_some(&dropping);
        let bytes = rows as u64 * self.hidden() as u64 * element.bytes();
        let qkv = upload(device, &encode(element, &self.qkv()));
        let d_context = upload(device, &encode(element, &self.d_context()));
        let context = device.allocate(bytes).unwrap();
        let log_sums = device
            .allocate(4 * rows as u64 * u64::from(self.heads.count))
            .unwrap();
        let d_qkv = device.allocate(3 * bytes).unwrap();
        let scratch = attention_scratch(batch.rows, self.heads);
        let pass = AttentionBackward {
            qkv,
            context,
            log_sums,
            d_context,
            d_qkv,
            scratch: device.allocate(4 * scratch as u64).unwrap(),
        };
        let heads = self.heads;
        attention_forward(
            device, element, &batch, heads, dropping, qkv, context, log_sums,
        )
        .unwrap();
        attention_backward(device, element, &batch, heads, dropping, &pass).unwrap();
        device.synchronize().unwrap();
        let count = rows * self.hidden();
        let results = Results {
            context: download(device, element, context, count),
            log_sums: download(device, Element::F32, log_sums, rows * heads.count as usize),
            d_qkv: download(device, element, d_qkv, 3 * count),
        };
        // Nothing that goes in may have been changed.
        assert_eq!(
            download(device, element, qkv, 3 * count),
            self.qkv(),
            "{self:?}"
        );
        results
    }

    /// By the CPU engine in f32.
    fn on_cpu(&self) -> Results {
        let packed = self.packed();
        let heads = CpuHeads {
            count: self.heads.count as usize,
            size: self.heads.size as usize,
            causal: self.heads.causal,
            dropout: Mask::new(Some(DROPOUT), SITE, self.p),
            precision: Precision::F32,
        };
        let (simd, mut scratch) = (Simd::detect(), Scratch::default());
        let (qkv, d_context) = (self.qkv(), self.d_context());
        let mut context = vec![0.0; d_context.len()];
        let mut log_sums = vec![0.0; packed.rows() * heads.count];
        let mut d_qkv = vec![0.0; qkv.len()];
        heads.forward(
            simd,
            &packed,
            &qkv,
            &mut context,
            &mut log_sums,
            &mut scratch,
        );
        heads.backward(
            simd,
            &packed,
            &qkv,
            &log_sums,
            &context,
            &d_context,
            &mut d_qkv,
            &mut scratch,
        );
        Results {
            context,
            log_sums,
            d_qkv,
        }
    }

    /// By the definition, in f64.
    fn defined(&self) -> Results {
        let packed = self.packed();
        let (hidden, size) = (self.hidden(), self.heads.size as usize);
        let count = self.heads.count as usize;
        let (qkv, d_context) = (self.qkv(), self.d_context());
        let mut context = vec![0.0; d_context.len()];
        let mut log_sums = vec![0.0; packed.rows() * count];
        let mut d_qkv = vec![0.0; qkv.len()];
        for (rows, &example) in packed.ranges().zip(&packed.examples) {
            let stream = Stream::new(DROPOUT.seed, DROPOUT.step, SITE, example);
            for head in 0..count {
                let at = |which: usize, row: usize, i: usize| {
                    (rows.start + row) * 3 * hidden + which * hidden + head * size + i
                };
                let of = |which, row, i| f64::from(qkv[at(which, row, i)]);
                let mut sums = vec![0.0; 3 * rows.len() * size];
                for query in 0..rows.len() {
                    let seen = if self.heads.causal {
                        query + 1
                    } else {
                        rows.len()
                    };
                    let out = (rows.start + query) * hidden + head * size;
                    let scores: Vec<f64> = (0..seen)
                        .map(|key| {
                            let dot: f64 = (0..size).map(|i| of(0, query, i) * of(1, key, i)).sum();
                            dot / (size as f64).sqrt()
                        })
                        .collect();
                    let total: f64 = scores.iter().map(|x| x.exp()).sum();
                    log_sums[(rows.start + query) * count + head] = total.ln() as f32;
                    let factor = |key: usize| {
                        let element =
                            (head as u32 * ATTENTION_STRIDE + query as u32) * ATTENTION_STRIDE;
                        let kept = stream.bits(element + key as u32) >= threshold(self.p);
                        if kept { 1.0 / (1.0 - self.p) } else { 0.0 }
                    };
                    let p: Vec<f64> = scores.iter().map(|x| x.exp() / total).collect();
                    let d: Vec<f64> = (0..seen)
                        .map(|key| {
                            let dot: f64 = (0..size)
                                .map(|i| f64::from(d_context[out + i]) * of(2, key, i))
                                .sum();
                            dot * factor(key)
                        })
                        .collect();
                    let slope: f64 = p.iter().zip(&d).map(|(p, d)| p * d).sum();
                    for i in 0..size {
                        let sum: f64 = (0..seen).map(|k| p[k] * factor(k) * of(2, k, i)).sum();
                        context[out + i] = sum as f32;
                    }
                    for key in 0..seen {
                        let d_score = p[key] * (d[key] - slope) / (size as f64).sqrt();
                        for i in 0..size {
                            sums[query * size + i] += d_score * of(1, key, i);
                            sums[(rows.len() + key) * size + i] += d_score * of(0, query, i);
                            sums[(2 * rows.len() + key) * size + i] +=
                                p[key] * factor(key) * f64::from(d_context[out + i]);
                        }
                    }
                }
                for which in 0..3 {
                    for row in 0..rows.len() {
                        for i in 0..size {
                            d_qkv[at(which, row, i)] =
                                sums[(which * rows.len() + row) * size + i] as f32;
                        }
                    }
                }
            }
        }
        Results {
            context,
            log_sums,
            d_qkv,
        }
    }

    /// Compares with what should be.
    fn check(&self, got: &Results, expected: &Results) {
        let tolerance = match self.element {
            Element::F32 => 1e-4,
            Element::Bf16 => 1e-2,
            Element::F16 => 2e-3,
        };
        // Root of the squares' sum, and the largest.
        let sizes = |values: &mut dyn Iterator<Item = f64>| -> (f64, f64) {
            let (squares, most) = values.fold((0.0, 0.0f64), |(squares, most), x| {
                (squares + x * x, most.max(x.abs()))
            });
            (squares.sqrt(), most)
        };
        let near = |what: &str, got: &[f32], expected: &[f32], scale: &[f32], tolerance: f64| {
            assert_eq!(got.len(), expected.len());
            let pairs = got.iter().zip(expected);
            let apart = sizes(&mut pairs.map(|(a, b)| f64::from(a - b)));
            let size = sizes(&mut expected.iter().map(|&x| f64::from(x)));
            let scale = sizes(&mut scale.iter().map(|&x| f64::from(x)));
            let bound = (
                tolerance * size.0.max(scale.0),
                3.0 * tolerance * size.1.max(scale.1),
            );
            assert!(
                apart.0 <= bound.0 && apart.1 <= bound.1,
                "{what} of {self:?}: {apart:?} apart, allowed is {bound:?}"
            );
        };
        near("context", &got.context, &expected.context, &[], tolerance);
        near("log-sums", &got.log_sums, &expected.log_sums, &[1.0], 1e-4);
        let hidden = self.hidden();
        let part = |all: &[f32], which: usize| -> Vec<f32> {
            let rows = all.chunks_exact(3 * hidden);
            rows.flat_map(|row| row[which * hidden..(which + 1) * hidden].to_vec())
                .collect()
        };
        // Gradients of scores are differences: those of a sequence of one token are nothing but
        // what rounding leaves of them.
        let d_values = part(&expected.d_qkv, 2);
        for (which, what) in ["d queries", "d keys", "d values"].iter().enumerate() {
            let (got, expected) = (part(&got.d_qkv, which), part(&expected.d_qkv, which));
            near(what, &got, &expected, &d_values, tolerance);
        }
    }
}

/// Runs all cases of these sizes.
fn try_all(element: Element, sizes: &[(u32, u32)], lengths: &[&[usize]]) {
    let Some(mut device) = for_tests() else {
        return;
    };
    for &(count, size) in sizes {
        for &lengths in lengths {
            for (causal, p) in [(false, 0.0), (false, 0.1), (true, 0.0), (true, 0.4)] {
                let case = Case {
                    element,
                    lengths: lengths.to_vec(),
                    heads: Heads {
                        count,
                        size,
                        causal,
                    },
                    p,
                };
                let got = case.emulated(&mut device);
                case.check(&got, &case.on_cpu());
                if lengths.iter().sum::<usize>() < 80 {
                    case.check(&got, &case.defined());
                }
            }
        }
    }
}

const SHORT: &[&[usize]] = &[&[1], &[2], &[31], &[33], &[64], &[1, 7, 35, 2]];

#[test]
fn plain_attention_is_the_cpu_engines() {
    try_all(Element::F32, &[(2, 64), (3, 32), (2, 20), (1, 128)], SHORT);
    try_all(Element::F32, &[(1, 17)], &[&[127, 3, 50]]);
    try_all(Element::Bf16, &[(2, 20)], &[&[33, 1, 40]]);
    try_all(Element::F16, &[(2, 48)], &[&[33, 1, 40]]);
}

#[test]
fn flash_attention_is_the_cpu_engines_in_bf16() {
    try_all(Element::Bf16, &[(2, 64), (3, 32)], SHORT);
    try_all(Element::Bf16, &[(1, 64), (1, 32)], &[&[127], &[130, 65]]);
}

#[test]
fn flash_attention_is_the_cpu_engines_in_f16() {
    try_all(Element::F16, &[(2, 64), (1, 32)], &[&[33], &[1, 67, 40]]);
}

#[test]
fn flash_attention_is_the_cpu_engines_over_many_tiles() {
    try_all(Element::Bf16, &[(2, 64), (1, 32)], &[&[383]]);
}

#[test]
fn what_attention_cannot_do_it_says() {
    let Some(mut device) = for_tests() else {
        return;
    };
    let batch = Batch {
        rows: 5000,
        sequences: 1,
        longest: 5000,
        ids: Address::NONE,
        segments: Address::NONE,
        positions: Address::NONE,
        cu_seqlens: Address::NONE,
        sequence_of_row: Address::NONE,
        examples: Address::NONE,
        word_order: Address::NONE,
        word_starts: Address::NONE,
        words: 0,
    };
    let none = Address::NONE;
    let mut said = |batch: &Batch, size| {
        let heads = Heads {
            count: 1,
            size,
            causal: false,
        };
        let element = Element::F32;
        attention_forward(&mut device, element, batch, heads, None, none, none, none)
            .unwrap_err()
            .to_string()
    };
    assert!(said(&batch, 64).contains("4096"));
    assert!(said(&batch, 129).contains("128"));
}
