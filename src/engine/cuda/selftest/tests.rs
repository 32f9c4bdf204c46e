//! Runs the checks on the emulated device: they pass, and they find errors.

use std::cell::Cell;

use super::test_case::{bound, deviation, differences, numbers, rounded};
use super::*;
use crate::engine::cuda::emulated::{Emulated, for_tests};
use crate::engine::cuda::kernels;

/// Tests a kernel in every element type; see [`KERNELS`].
fn agrees_with_the_cpu(name: &str) {
    let Some(mut device) = for_tests() else {
        return;
    };
    let kernel = KERNELS.iter().find(|kernel| kernel.0 == name);
    let (_, cases) = kernel.unwrap_or_else(|| panic!("{name} is no kernel"));
    for element in [Element::F32, Element::Bf16, Element::F16] {
        let outcome = run_cases(&mut device, element, Scale::Small, cases).outcome();
        eprintln!("{name} {element:?}: {}", outcome.line);
        assert!(outcome.passed, "{name} {element:?}: {}", outcome.line);
    }
}

macro_rules! kernels {
    ($($name:ident),* $(,)?) => {
        $(#[test]
        fn $name() {
            agrees_with_the_cpu(stringify!($name));
        })*

        #[test]
        fn every_kernel_has_a_test() {
            let names: Vec<&str> = KERNELS.iter().map(|kernel| kernel.0).collect();
            assert_eq!(names, [$(stringify!($name)),*]);
        }
    };
}

kernels! {
    attention,
    embedding_forward,
    embedding_backward,
    norm_forward,
    norm_backward,
    add_bias,
    bias_gelu,
    gelu_backward,
    bias_gradient,
    stream,
    tanh,
    relu,
    add,
    pick,
    add_picked,
    drop_rows,
    cast,
    cross_entropy,
    span_loss,
    distillation,
    cosine,
    sum_of_squares,
    adamw,
    lamb,
}

#[test]
fn attention_in_tf32() {
    let Some(mut device) = for_tests() else {
        return;
    };
    let outcome =
        run_cases(&mut device, Element::F32, Scale::Small, super::attention::tf32).outcome();
    eprintln!("{}", outcome.line);
    assert!(outcome.passed, "{}", outcome.line);
}

/// A check's name, whether it passed, and its line.
type Line = (String, bool, String);

/// Runs checks on the emulated device.
fn results_of(checks: &[Check]) -> Option<(Vec<Line>, Ended)> {
    for_tests()?;
    let open = || -> Result<Box<dyn Device>> { Ok(Box::new(Emulated::new()?)) };
    let mut session = Session::new(&open, Scale::Short);
    let mut all = Vec::new();
    let ended = run(checks, &mut session, &mut |name, outcome| {
        all.extend(outcome.map(|outcome| (name.to_owned(), outcome.passed, outcome.line)));
    });
    Some((all, ended))
}

#[test]
fn products_agree() {
    let Some((all, _)) = results_of(&products::checks()) else {
        return;
    };
    assert_eq!(all.len(), 12);
    for (name, passed, line) in all {
        assert!(passed, "{name}: {line}");
    }
}

/// Adds a bias to two rows of four; `change` may introduce an error.
fn biases(
    name: &str,
    change: impl Fn(&mut TestCase<'_>, &mut [f32]) -> Result<()> + 'static,
) -> Check {
    Check::new(name, move |session| {
        let cases = |cases: &mut TestCases<'_>| {
            cases.test("the only case", |case| {
                let element = case.element;
                let mut x = rounded(element, &numbers(8, 1));
                let bias = numbers(4, 2);
                let at = case.changing(element, &x)?;
                let bias_at = case.constant(Element::F32, &bias)?;
                kernels::add_bias(case.device, element, (2, 4), at, bias_at)?;
                change(case, &mut x)?;
                let Some([got]) = case.outputs([(at, element, 8)])? else {
                    return Ok(());
                };
                for row in x.chunks_exact_mut(4) {
                    row.iter_mut().zip(&bias).for_each(|(x, b)| *x += b);
                }
                case.near("the sum", &got, &x);
                Ok(())
            });
        };
        let device = session.device()?;
        Ok(run_cases(device, Element::F32, Scale::Full, cases).outcome())
    })
}

/// Every failure is reported, and later checks run.
#[test]
fn every_failure_is_reported() {
    let runs = Cell::new(0u32);
    let checks = [
        biases("right", |_, _| Ok(())),
        biases("one number is off", |_, x| {
            x[5] += 0.01;
            Ok(())
        }),
        biases("never written", |case, _| {
            let at = case.empty(Element::F32, 8)?;
            if let Some([got]) = case.outputs([(at, Element::F32, 8)])? {
                case.near("nothing", &got, &[0.0f32; 8]);
            }
            Ok(())
        }),
        biases("outside a buffer", |case, _| {
            let from = case.constant(Element::F32, &[1.0; 12])?;
            let to = case.empty(Element::F32, 8)?;
            // Shifted buffers are not aligned for vectors.
            let vectors = if to.0.is_multiple_of(16) { 3 } else { 0 };
            kernels::stream_copy(case.device, vectors, from, to)
        }),
        biases("into an input", |case, _| {
            let at = case.constant(Element::F32, &[1.0; 8])?;
            let bias = case.constant(Element::F32, &[1.0; 4])?;
            kernels::add_bias(case.device, Element::F32, (2, 4), at, bias)
        }),
        biases("other bits", move |case, _| {
            runs.set(runs.get() + 1);
            let at = case.changing(Element::F32, &[runs.get() as f32])?;
            case.outputs([(at, Element::F32, 1)]).map(|_| ())
        }),
        biases("a panic", |_, x| panic!("{} numbers", x.len())),
        Check::new("an error", |_| Err(Error::Failed("no such device".into()))),
        biases("right again", |_, _| Ok(())),
    ];
    let Some((all, ended)) = results_of(&checks) else {
        return;
    };
    assert_eq!(ended, Ended::Whole);
    let expected = [
        ("right", true, "2 cases, 0 failed"),
        (
            "one number is off",
            false,
            "1 of 8 values are wrong, 0 of them not finite; first, value 5 is ",
        ),
        (
            "never written",
            false,
            "nothing is inf off, more than 1e-4: 8 of 8 values are wrong, 8 of them not finite",
        ),
        ("outside a buffer", false, "a kernel wrote after a buffer of 32 bytes"),
        ("into an input", false, "a kernel changed an input of 32 bytes"),
        ("other bits", false, "other bits in the second run"),
        ("a panic", false, "a panic: 8 numbers"),
        ("an error", false, "no such device"),
        ("right again", true, "2 cases, 0 failed"),
    ];
    assert_eq!(all.len(), expected.len());
    for ((name, passed, line), (expected, good, what)) in all.iter().zip(expected) {
        assert_eq!((name.as_str(), *passed), (expected, good), "{line}");
        assert!(line.contains(what), "{name}: {line}");
    }
}

#[test]
fn a_deviation_is_the_larger_of_all_and_of_one() {
    let expected = [3.0f32, -4.0, 0.0, 0.0];
    assert_eq!(deviation(&expected, &expected), 0.0);
    // One relative to a norm of five; half of one relative to four.
    assert!((deviation(&[3.0, -3.0, 0.0, 0.0], &expected) - 0.2).abs() < 1e-9);
    let mut many = vec![1.0f32; 10_000];
    let all = many.clone();
    many[7] = 1.1;
    assert!((deviation(&many, &all) - 0.05).abs() < 1e-6);
    for wrong in [f32::NAN, f32::INFINITY] {
        assert_eq!(deviation(&[wrong], &[1.0f32]), f64::INFINITY);
    }
    assert_eq!(deviation(&[1.0], &[1.0f32, 1.0]), f64::INFINITY);
    assert_eq!(deviation(&[0.0], &[0.0f32]), 0.0);
    assert!(bound(Element::F32) < bound(Element::Bf16));
}

#[test]
fn the_first_and_the_worst_difference_are_located() {
    let expected: Vec<f32> = (0..20).map(|i| i as f32).collect();
    let mut got = expected.clone();
    got[7] = 8.0;
    got[13] = f32::NAN;
    got[18] = 12.0;
    let text = differences(&got, &expected, 1e-2, 5);
    assert_eq!(
        text,
        "3 of 20 values are wrong, 1 of them not finite; first, value 7 (row 1, column 2) is 8e0 instead of 7e0; \
         at worst, value 13 (row 2, column 3) is NaN instead of 1.3e1"
    );
    // Each is within the bound, but all are off.
    let got: Vec<f32> = expected.iter().map(|x| x * 1.015).collect();
    let text = differences(&got, &expected, 1e-2, 0);
    assert!(text.starts_with("no single value is far off; at worst, value 19 is 1.92"), "{text}");
    assert_eq!(differences(&[1.0], &[1.0f32, 2.0], 0.0, 0), "1 values instead of 2");
}

#[test]
fn numbers_have_no_pattern() {
    let all = numbers(1 << 18, 0);
    let mean = all.iter().map(|&x| f64::from(x)).sum::<f64>() / all.len() as f64;
    assert!(mean.abs() < 0.02, "{mean}");
    assert!(all.iter().all(|x| (-2.0..2.0).contains(x)));
    for width in [128, 768, 1024] {
        assert_ne!(all[..width], all[width..2 * width]);
    }
    assert_ne!(numbers(100, 1), numbers(100, 2));
}

/// A GPU has all sections, the emulated device those without timing; the names of a section's
/// checks are unique.
#[test]
fn sections_have_their_checks() {
    for (scale, emulated) in [(Scale::Full, false), (Scale::Small, true), (Scale::Short, true)] {
        for section in Section::ALL {
            let mut names: Vec<String> =
                checks(section, scale, emulated).into_iter().map(|check| check.name).collect();
            let timed = [Section::Speed, Section::Training].contains(&section);
            assert_eq!(names.is_empty(), timed && emulated, "{section:?}");
            let count = names.len();
            names.sort();
            names.dedup();
            assert_eq!(names.len(), count, "{section:?}");
        }
    }
}
