use super::*;
use crate::engine::cuda::kernels::{
    Chunks, Parameters, Step, adamw, lamb, squares_partials, sum_of_squares,
};
use crate::model::{Config, Layout, Part};
use crate::train::optimizer::{Moments, Optimizer, Rule, Update};

/// Parameters of all sizes, most of which start where no vector may; one is several parts long.
fn layout() -> std::sync::Arc<Layout> {
    let mut config = Config::new(1, 9, 3, 11, 4001);
    config.max_position_embeddings = 3;
    Layout::new(&config, &[Part::Encoder])
}

fn squares_of(bench: &mut Bench, x: Address, count: usize) -> (Address, f64) {
    let partials = bench.scratch(squares_partials());
    let into = bench.scratch(8);
    let (device, element) = (&mut bench.device, bench.element);
    sum_of_squares(device, element, count as u64, x, partials, into).unwrap();
    let words = bench.taken_numbers(into, 2);
    let bits = u64::from(words[1]) << 32 | u64::from(words[0]);
    (into, f64::from_bits(bits))
}

#[test]
fn sums_of_squares_hold_what_f32_does_not() {
    for mut bench in Bench::all() {
        for n in [0, 1, 3, 1000, 70_001] {
            for scale in [1e-25, 1.0, 1e25f32] {
                let x: Vec<f32> = wave(n, 0.7).iter().map(|x| x * scale).collect();
                let exact: f64 = x.iter().map(|&x| f64::from(x) * f64::from(x)).sum();
                let at = bench.single(&x);
                let (_, got) = squares_of(&mut bench, at, n);
                assert!(
                    (got - exact).abs() <= 1e-12 * exact,
                    "{n} {scale}: {got} {exact}"
                );
            }
        }
        let at = bench.single(&[1.0, f32::NAN, 1.0]);
        assert!(squares_of(&mut bench, at, 3).1.is_nan());
    }
}

/// Steps beside [`Update::apply`]: clipped and not, with loss scales, and one that is refused.
#[test]
fn updates_are_the_cpu_engines() {
    let layout = layout();
    let total = layout.total();
    for rule in [Rule::Adamw, Rule::Lamb] {
        for mut bench in Bench::all() {
            let element = bench.element;
            let chunks = Chunks::of(layout.iter());
            let mut values = layout.initialise(2);
            let mut moments = Moments::zeros(total);
            let chunks_at = bench.numbers(chunks.words());
            let [values_at, first, second] =
                [&values, &moments.first, &moments.second].map(|x| bench.single(x));
            let copies = element != Element::F32;
            let copy = if copies {
                bench.out(total, element)
            } else {
                Address::NONE
            };
            let scratch = bench.scratch(chunks.partials());
            for step in 1..=5 {
                let what = format!("{rule:?} {element:?} {} step {step}", bench.shift);
                let scale = [1.0, 1024.0, 1.0, 65536.0, 8.0][step as usize - 1];
                let mut gradients = wave(total, 0.37 * step as f64);
                if step == 3 {
                    gradients[total / 2] = f32::INFINITY;
                }
                let scaled: Vec<f32> = gradients.iter().map(|g| g * scale as f32).collect();
                let update = Update {
                    optimizer: Optimizer {
                        rule,
                        weight_decay: 0.1,
                        ..Optimizer::default()
                    },
                    learning_rate: 0.02,
                    step,
                    max_norm: if step % 2 == 0 { 1.0 } else { f64::INFINITY },
                };
                let before = values.clone();
                let norm = update.apply(
                    &layout,
                    &mut values,
                    &mut gradients,
                    &mut moments,
                    &mut Vec::new(),
                );
                let gradients_at = bench.single(&scaled);
                let (squares, sum) = squares_of(&mut bench, gradients_at, total);
                assert_eq!(norm.is_finite(), sum.is_finite(), "{what}");
                let at = Parameters {
                    chunks: &chunks,
                    chunks_at,
                    step: bench.bytes(&Step::new(&update, scale).bytes()),
                    squares,
                    values: values_at,
                    gradients: gradients_at,
                    first,
                    second,
                    copy,
                };
                match rule {
                    Rule::Adamw => adamw(&mut bench.device, element, &at).unwrap(),
                    Rule::Lamb => lamb(&mut bench.device, element, &at, scratch).unwrap(),
                }
                let got = bench.taken_single(values_at, total);
                let change = got.iter().zip(&before).map(|(a, b)| (a - b).abs());
                assert_eq!(change.fold(0.0, f32::max) > 1e-3, step != 3, "{what}");
                assert_close(&got, &values, 1e-6, &what);
                for (at, expected) in [(first, &moments.first), (second, &moments.second)] {
                    assert_close(&bench.taken_single(at, total), expected, 1e-6, &what);
                }
                assert_eq!(
                    bench.taken_single(gradients_at, total),
                    vec![0.0; total],
                    "{what}"
                );
                if copies {
                    assert_eq!(bench.taken(copy, total), rounded(&got, element), "{what}");
                }
            }
        }
    }
}
