//! Compares the norm of the gradients and the two optimizers with the CPU engine's.

use std::sync::Arc;

use crate::engine::cuda::device::{Address, Element};
use crate::engine::cuda::kernels::{self, Chunks, Parameters, Step, squares_partials};
use crate::engine::cuda::state::Offsets;
use crate::engine::optimizer::{Moments, Optimizer, Rule, Update};
use crate::error::Result;
use crate::model::{Config, Layout, PRETRAINING};

use super::test_case::{TestCase, numbers, rounded};
use super::{Scale, TestCases};

pub fn sum_of_squares(cases: &mut TestCases<'_>) {
    let counts: &[usize] = match cases.scale {
        Scale::Full => &[1, 31, 4096, 100_003, 5_000_001],
        Scale::Small | Scale::Short => &[1, 31, 4096, 70_001],
    };
    for &count in counts {
        for (factor, invalid) in [
            (1.0, None),
            // Their squares are outside the range of f32.
            (1e-25, None),
            (1e25, None),
            (1.0, Some(f32::NAN)),
            (1.0, Some(f32::INFINITY)),
        ] {
            let name = format!("{count} numbers times {factor}, one {invalid:?}");
            cases.test(&name, |case| squares_case(case, count, factor, invalid));
        }
    }
    let count = match cases.scale {
        Scale::Full => 110_000_000,
        Scale::Small | Scale::Short => 70_001,
    };
    cases.measure(&format!("{count} numbers"), |case| squares_case(case, count, 1.0, None));
}

/// Tests the sum for numbers times a factor, one of which may be invalid.
fn squares_case(
    case: &mut TestCase<'_>,
    count: usize,
    factor: f32,
    invalid: Option<f32>,
) -> Result<()> {
    let mut x = numbers(count, 1);
    x.iter_mut().for_each(|x| *x *= factor);
    if let Some(value) = invalid {
        x[count / 2] = value;
    }
    let at = case.constant(Element::F32, &x)?;
    let sum = norm_on_device(case, count, at)?;
    if case.is_again() {
        return Ok(());
    }
    if invalid.is_some() {
        let finite = f32::from(u8::from(sum.is_finite()));
        case.same("a non-finite sum", &[finite], &[0.0]);
    } else {
        let exact: f64 = x.iter().map(|&x| f64::from(x).powi(2)).sum();
        case.within("the sum against f64", &[(sum / exact) as f32], &[1.0], 1e-6);
    }
    Ok(())
}

fn norm_on_device(case: &mut TestCase<'_>, count: usize, x: Address) -> Result<f64> {
    let partials = case.scratch(squares_partials())?;
    let into = case.scratch(8)?;
    let element = case.element;
    kernels::sum_of_squares(case.device, element, count as u64, x, partials, into)?;
    let bytes = case.bytes(into, 8)?;
    let mut word = [0; 8];
    word.copy_from_slice(&bytes);
    Ok(f64::from_ne_bytes(word))
}

pub fn adamw(cases: &mut TestCases<'_>) {
    updates(cases, Rule::Adamw);
}

pub fn lamb(cases: &mut TestCases<'_>) {
    updates(cases, Rule::Lamb);
}

fn updates(cases: &mut TestCases<'_>, rule: Rule) {
    let (hidden, vocabulary) = match cases.scale {
        Scale::Full => (128, 3001),
        Scale::Small | Scale::Short => (48, 203),
    };
    let config = Config::new(2, hidden, 4, 2 * hidden + 4, vocabulary);
    let layout = Layout::new(&config, &PRETRAINING);
    for (step, max_norm, scale) in
        [(1, f64::INFINITY, 1.0), (2, 1.0, 1.0), (1000, 0.5, 1024.0), (100_000, 1e9, 65536.0)]
    {
        let update = Update {
            optimizer: Optimizer { rule, ..Optimizer::default() },
            learning_rate: 1e-2,
            step,
            max_norm,
        };
        for invalid in [false, true] {
            let name = format!("step {step}, norm cut to {max_norm}, invalid: {invalid}");
            cases.test(&name, |case| run_case(case, &layout, &update, scale, invalid));
        }
    }
    // The tables and one layer of the base model.
    let config = match cases.scale {
        Scale::Full => Config::new(1, 768, 12, 3072, 30_522),
        Scale::Small | Scale::Short => config,
    };
    let layout = Layout::new(&config, &PRETRAINING);
    let update = Update {
        optimizer: Optimizer { rule, ..Optimizer::default() },
        learning_rate: 1e-2,
        step: 2,
        max_norm: 1.0,
    };
    let name = format!("{} parameters", layout.total());
    cases.measure(&name, |case| run_case(case, &layout, &update, 1024.0, false));
}

/// Tests one update of all parameters of a model.
fn run_case(
    case: &mut TestCase<'_>,
    layout: &Arc<Layout>,
    update: &Update,
    scale: f64,
    invalid: bool,
) -> Result<()> {
    let (element, single) = (case.element, Element::F32);
    let offsets = Offsets::new(layout);
    let total = offsets.total();
    let chunks = Chunks::of(offsets.iter());
    let mut values = numbers(layout.total(), 1);
    let mut gradients = numbers(layout.total(), 2);
    if invalid {
        gradients[layout.total() / 3] = f32::NAN;
    }
    let mut moments = Moments {
        first: numbers(layout.total(), 3).iter().map(|x| 0.1 * x).collect(),
        second: numbers(layout.total(), 4).iter().map(|x| x * x).collect(),
    };
    let put = |case: &mut TestCase<'_>, values: &[f32], factor: f32| -> Result<Address> {
        let mut spread = offsets.spread(values);
        spread.iter_mut().for_each(|x| *x *= factor);
        case.changing(single, &spread)
    };
    // A power of two: exact.
    let gradients_at = put(case, &gradients, scale as f32)?;
    let squares = case.scratch(8)?;
    let partials = case.scratch(squares_partials())?;
    let count = total as u64;
    kernels::sum_of_squares(case.device, element, count, gradients_at, partials, squares)?;
    let copy = match element {
        Element::F32 => Address::NONE,
        Element::Bf16 | Element::F16 => case.changing(element, &vec![0.0; total])?,
    };
    let a = Parameters {
        chunks: &chunks,
        chunks_at: case.words(chunks.words())?,
        step: case.constant_bytes(Step::new(update, scale).bytes())?,
        squares,
        values: put(case, &values, 1.0)?,
        gradients: gradients_at,
        first: put(case, &moments.first, 1.0)?,
        second: put(case, &moments.second, 1.0)?,
        copy,
    };
    if update.optimizer.rule == Rule::Lamb {
        let partials = case.scratch(chunks.partials())?;
        kernels::lamb(case.device, element, &a, partials)?;
    } else {
        kernels::adamw(case.device, element, &a)?;
    }
    let at = [a.values, a.gradients, a.first, a.second].map(|at| (at, single, total));
    let copied = if copy == Address::NONE { 0 } else { total };
    let [v, g, m, s] = at;
    let got = case.outputs([v, g, m, s, (copy, element, copied)])?;
    let Some([got_values, got_gradients, first, second, copied]) = got else {
        return Ok(());
    };
    let before = values.clone();
    update.apply(layout, &mut values, &mut gradients, &mut moments, &mut Vec::new());
    let change = |values: &[f32]| -> Vec<f32> {
        let pairs = values.iter().zip(&before);
        pairs.map(|(after, before)| after - before).collect()
    };
    let got = offsets.gather(&got_values);
    if invalid {
        case.same("parameters", &got, &before);
    } else {
        case.within("parameters", &got, &values, 1e-6);
        case.within("the change of parameters", &change(&got), &change(&values), 1e-4);
        if copy != Address::NONE {
            let rounded = rounded(element, &got_values);
            case.same("the copy", &offsets.gather(&copied), &offsets.gather(&rounded));
        }
    }
    case.same("gradients", &offsets.gather(&got_gradients), &vec![0.0; layout.total()]);
    case.within("first means", &offsets.gather(&first), &moments.first, 1e-5);
    case.within("second means", &offsets.gather(&second), &moments.second, 1e-5);
    Ok(())
}
