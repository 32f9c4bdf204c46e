use super::*;
use crate::engine::cpu::elementwise::Partials;
use crate::engine::cpu::norm::{Norm as CpuNorm, Statistics};
use crate::engine::cpu::{embedding as cpu, norm as cpu_norm};
use crate::engine::cuda::kernels::{
    EmbeddingBackward, EmbeddingForward, Norm, Tables, embedding_backward, embedding_forward,
    partials,
};
use crate::engine::simd::Simd;

const EPSILON: f32 = 1e-5;
const WORDS: usize = 13;
const POSITIONS: usize = 41;

const SIZES: [(usize, usize); 6] = [
    (1, 7),
    (31, 33),
    (127, 128),
    (383, 40),
    (33, 768),
    (20, 1027),
];

#[test]
fn embeddings_are_the_cpu_engines() {
    let simd = Simd::detect();
    for mut bench in Bench::all() {
        let (element, e) = (bench.element, tolerance(bench.element));
        for (n, width) in SIZES {
            let packed = ragged(n);
            let batch = bench.batch(&packed);
            let site = Site::EmbeddingDropout;
            let (mask, rows) = mask_of(&packed, site);
            let dropping = bench.dropping(site);
            let words = wave(WORDS * width, 0.77);
            let positions = wave(POSITIONS * width, 0.37);
            let (gain, shift) = (wave(width, 0.11), wave(width, 0.5));
            let norm = CpuNorm {
                weight: &gain,
                bias: &shift,
                epsilon: EPSILON,
            };
            let dy = rounded(&wave(n * width, 0.31), element);
            // One segment more than a pass over them takes, and none but one.
            for (dropped, segment_entries) in [(true, 3), (false, 2)] {
                let what = format!("{element:?} {n} × {width} {dropped} {}", bench.shift);
                let segments = wave(segment_entries * width, 0.57);
                let tables = cpu::Tables {
                    words: &words,
                    positions: &positions,
                    segments: &segments,
                };
                let dropout = dropped.then_some((mask, &rows));
                let (mut sums, mut y) = (vec![0.0; n * width], vec![0.0; n * width]);
                let mut statistics = vec![Statistics::default(); n];
                cpu::forward(
                    simd,
                    &packed,
                    tables,
                    norm,
                    dropout,
                    &mut sums,
                    &mut statistics,
                    &mut y,
                );
                let at = EmbeddingForward {
                    batch: &batch,
                    width: width as u32,
                    tables: Tables {
                        words: bench.single(&words),
                        positions: bench.single(&positions),
                        segments: bench.single(&segments),
                        segment_entries: segment_entries as u32,
                    },
                    norm: Norm {
                        gain: bench.single(&gain),
                        bias: bench.single(&shift),
                        epsilon: EPSILON,
                    },
                    dropping: dropped.then_some(&dropping),
                    sums: bench.out(n * width, element),
                    statistics: bench.out(2 * n, Element::F32),
                    out: bench.out(n * width, element),
                };
                embedding_forward(&mut bench.device, element, &at).unwrap();
                let got = bench.taken(at.sums, n * width);
                assert_close(&got, &sums, e, &what);
                assert_close(&bench.taken(at.out, n * width), &y, 2.0 * e, &what);

                // Backward from what the device has stored.
                for ((x, statistics), y) in got
                    .chunks(width)
                    .zip(&mut statistics)
                    .zip(y.chunks_mut(width))
                {
                    *statistics = norm.row(x, y);
                }
                let flat: Vec<f32> = statistics.iter().flat_map(|s| [s.mean, s.rstd]).collect();
                let stored = bench.taken_single(at.statistics, 2 * n);
                assert_close(&stored, &flat, 1e-4, &what);
                let (mut dy_cpu, mut d_sums) = (dy.clone(), vec![0.0; n * width]);
                let saved = (&got[..], &statistics[..]);
                cpu::backward(simd, norm, dropout, saved, &mut dy_cpu, &mut d_sums);
                let (mut d_gain, mut d_shift) = (vec![1.0; width], vec![2.0; width]);
                let mut scratch = Partials::default();
                cpu_norm::add_parameter_gradients(
                    simd,
                    saved,
                    &dy_cpu,
                    &mut d_gain,
                    &mut d_shift,
                    &mut scratch,
                );
                let gradients = Tables {
                    words: bench.single(&vec![1.0; WORDS * width]),
                    positions: bench.single(&vec![2.0; POSITIONS * width]),
                    segments: bench.single(&vec![3.0; segment_entries * width]),
                    segment_entries: segment_entries as u32,
                };
                let back = EmbeddingBackward {
                    batch: &batch,
                    width: width as u32,
                    gain: at.norm.gain,
                    dropping: dropped.then_some(&dropping),
                    sums: at.sums,
                    statistics: at.statistics,
                    d_out: bench.activations(&dy),
                    d_sums: bench.out(n * width, element),
                    gain_gradient: bench.single(&vec![1.0; width]),
                    bias_gradient: bench.single(&vec![2.0; width]),
                    tables: gradients,
                    partials: bench.scratch(partials(width as u32)),
                };
                embedding_backward(&mut bench.device, element, &back).unwrap();
                let d_got = bench.taken(back.d_sums, n * width);
                assert_close(&d_got, &d_sums, e, &what);
                let got = bench.taken_single(back.gain_gradient, width);
                assert_close(&got, &d_gain, 2e-4, &what);
                let got = bench.taken_single(back.bias_gradient, width);
                assert_close(&got, &d_shift, 2e-4, &what);
                // The tables take what is stored.
                for (at, index, entries, old) in [
                    (gradients.words, &packed.ids, WORDS, 1.0),
                    (gradients.positions, &packed.positions, POSITIONS, 2.0),
                    (gradients.segments, &packed.segments, segment_entries, 3.0),
                ] {
                    let mut table = vec![old; entries * width];
                    cpu::add_to_table(simd, index, &d_got, width, &mut table);
                    let got = bench.taken_single(at, entries * width);
                    assert_close(&got, &table, 2e-4, &format!("{what}, table of {entries}"));
                }
            }
        }
    }
}
