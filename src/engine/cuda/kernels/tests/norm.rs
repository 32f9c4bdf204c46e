use super::*;
use crate::engine::cpu::elementwise::Partials;
use crate::engine::cpu::norm::{self as cpu, Before, Statistics};
use crate::engine::cuda::kernels::{
    Norm, NormBackward, NormForward, norm_backward, norm_forward, partials,
};
use crate::engine::simd::Simd;

const EPSILON: f32 = 1e-5;

/// Rows and widths: odd ones, ones of whole vectors, and ones that no warp keeps in registers.
const SIZES: [(usize, usize); 9] = [
    (1, 7),
    (2, 33),
    (31, 8),
    (33, 127),
    (127, 128),
    (66, 384),
    (40, 768),
    (17, 1032),
    (9, 1027),
];

fn flat(statistics: &[Statistics]) -> Vec<f32> {
    statistics.iter().flat_map(|s| [s.mean, s.rstd]).collect()
}

#[test]
fn the_forward_pass_is_the_cpu_engines() {
    let simd = Simd::detect();
    for mut bench in Bench::all() {
        let (element, e) = (bench.element, tolerance(bench.element));
        for (n, width) in SIZES {
            let packed = ragged(n);
            let batch = bench.batch(&packed);
            let site = Site::FeedForwardDropout(3);
            let (mask, rows) = mask_of(&packed, site);
            let dropping = bench.dropping(site);
            let x = rounded(&wave(n * width, 0.7), element);
            let residual = rounded(&wave(n * width, 0.31), element);
            let [bias, gain, shift] = [0.9, 0.11, 0.5].map(|step| wave(width, step));
            let norm = cpu::Norm {
                weight: &gain,
                bias: &shift,
                epsilon: EPSILON,
            };
            for (dropped, fused) in [(true, true), (false, true), (false, false)] {
                let what = format!(
                    "{element:?} {n} × {width} {dropped} {fused} {}",
                    bench.shift
                );
                let before = Before {
                    bias: &bias,
                    dropout: dropped.then_some(mask),
                    rows: &rows,
                    residual: &residual,
                };
                let (mut sums, mut y) = (x.clone(), vec![0.0; n * width]);
                let mut statistics = vec![Statistics::default(); n];
                if fused {
                    cpu::forward(simd, before, norm, &mut sums, &mut statistics, &mut y);
                } else {
                    cpu::forward_alone(simd, norm, &x, &mut statistics, &mut y);
                }
                let places = [&bias, &gain, &shift].map(|values| bench.single(values));
                let at = NormForward {
                    n: n as u32,
                    width: width as u32,
                    x: bench.activations(&x),
                    bias: if fused { places[0] } else { Address::NONE },
                    dropping: dropped.then_some((&batch, &dropping)),
                    residual: if fused {
                        bench.activations(&residual)
                    } else {
                        Address::NONE
                    },
                    norm: Norm {
                        gain: places[1],
                        bias: places[2],
                        epsilon: EPSILON,
                    },
                    statistics: bench.out(2 * n, Element::F32),
                    out: bench.out(n * width, element),
                };
                norm_forward(&mut bench.device, element, &at).unwrap();
                assert_close(&bench.taken(at.x, n * width), &sums, e, &what);
                assert_close(
                    &bench.taken_single(at.statistics, 2 * n),
                    &flat(&statistics),
                    e,
                    &what,
                );
                assert_close(&bench.taken(at.out, n * width), &y, 2.0 * e, &what);
            }
        }
    }
}

#[test]
fn the_backward_pass_is_the_cpu_engines() {
    let simd = Simd::detect();
    for mut bench in Bench::all() {
        let (element, e) = (bench.element, tolerance(bench.element));
        for (n, width) in SIZES {
            let packed = ragged(n);
            let batch = bench.batch(&packed);
            let site = Site::AttentionOutputDropout(1);
            let (mask, rows) = mask_of(&packed, site);
            let dropping = bench.dropping(site);
            let x = rounded(&wave(n * width, 0.7), element);
            let dy = rounded(&wave(n * width, 0.31), element);
            let (gain, shift) = (wave(width, 0.11), vec![0.0; width]);
            let norm = cpu::Norm {
                weight: &gain,
                bias: &shift,
                epsilon: EPSILON,
            };
            let (mut statistics, mut y) = (vec![Statistics::default(); n], vec![0.0; n * width]);
            cpu::forward_alone(simd, norm, &x, &mut statistics, &mut y);
            for (dropped, linear) in [(true, true), (false, true), (false, false)] {
                let what = format!(
                    "{element:?} {n} × {width} {dropped} {linear} {}",
                    bench.shift
                );
                let (mut d_residual, mut d_linear) = (y.clone(), y.clone());
                let mut sums = [vec![1.0; width], vec![2.0; width], vec![3.0; width]];
                let mut scratch = Partials::default();
                let [weight, bias, linear_bias] = &mut sums;
                cpu::backward_through_dropout(
                    simd,
                    dropped.then_some((mask, &rows)),
                    norm,
                    (&x, &statistics),
                    &dy,
                    &mut d_residual,
                    &mut d_linear,
                    cpu::Sums {
                        weight,
                        bias,
                        linear_bias,
                        partials: &mut scratch,
                    },
                );
                let places = [1.0, 2.0, 3.0].map(|old| bench.single(&vec![old; width]));
                let d_out = bench.activations(&dy);
                let at = NormBackward {
                    n: n as u32,
                    width: width as u32,
                    gain: bench.single(&gain),
                    sums: bench.activations(&x),
                    statistics: bench.single(&flat(&statistics)),
                    dropping: dropped.then_some((&batch, &dropping)),
                    d_out,
                    // In place, where nothing else is written.
                    d_residual: if linear {
                        bench.out(n * width, element)
                    } else {
                        d_out
                    },
                    d_linear: if linear {
                        bench.out(n * width, element)
                    } else {
                        Address::NONE
                    },
                    gain_gradient: places[0],
                    bias_gradient: places[1],
                    linear_bias_gradient: if linear { places[2] } else { Address::NONE },
                    partials: bench.scratch(partials(width as u32)),
                };
                norm_backward(&mut bench.device, element, &at).unwrap();
                assert_close(
                    &bench.taken(at.d_residual, n * width),
                    &d_residual,
                    e,
                    &what,
                );
                for (which, (sums, place)) in sums.iter().zip(places).enumerate() {
                    // Sums over the rows are f32 whatever the element.
                    let got = bench.taken_single(place, width);
                    if which < 2 || linear {
                        assert_close(&got, sums, 2e-4, &format!("{what}, sums {which}"));
                    } else {
                        assert_eq!(got, vec![3.0; width], "{what}");
                    }
                }
                if linear {
                    let got = bench.taken(at.d_linear, n * width);
                    assert_close(&got, &d_linear, e, &what);
                    let zeros = |values: &[f32]| values.iter().filter(|&&x| x == 0.0).count();
                    assert!(dropped == (zeros(&got) > 0) || n * width < 16, "{what}");
                }
            }
        }
    }
}

#[test]
fn a_width_beyond_all_threads_is_refused() {
    let Some(mut device) = for_tests() else {
        return;
    };
    let none = Address::NONE;
    let at = NormBackward {
        n: 1,
        width: 5200,
        gain: none,
        sums: none,
        statistics: none,
        dropping: None,
        d_out: none,
        d_residual: none,
        d_linear: none,
        gain_gradient: none,
        bias_gradient: none,
        linear_bias_gradient: none,
        partials: none,
    };
    let error = norm_backward(&mut device, Element::Bf16, &at).unwrap_err();
    assert_eq!(
        error.to_string(),
        "a LayerNorm 5200 wide is more than the CUDA engine can train: at most 5120"
    );
}
