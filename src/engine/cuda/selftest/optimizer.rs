//! The norm of the gradients and the two optimizers, beside the trainer's own.

use std::sync::Arc;

use crate::engine::cuda::device::{Address, Element};
use crate::engine::cuda::kernels::{self, Chunks, Parameters, Step, squares_partials};
use crate::engine::cuda::state::Offsets;
use crate::engine::optimizer::{Moments, Optimizer, Rule, Update};
use crate::error::Result;
use crate::model::{Config, Layout, PRETRAINING};

use super::trial::{Trial, numbers, rounded};
use super::{Scale, Suite};

pub fn sum_of_squares(suite: &mut Suite<'_>) {
    let counts: &[usize] = match suite.scale {
        Scale::Full => &[1, 31, 4096, 100_003, 5_000_001],
        Scale::Small | Scale::Short => &[1, 31, 4096, 70_001],
    };
    for &count in counts {
        for (factor, spoilt) in [
            (1.0, None),
            // Their squares are out of the range of f32.
            (1e-25, None),
            (1e25, None),
            (1.0, Some(f32::NAN)),
            (1.0, Some(f32::INFINITY)),
        ] {
            let name = format!("{count} numbers times {factor}, one {spoilt:?}");
            suite.case(&name, |trial| {
                let mut x = numbers(count, 1);
                x.iter_mut().for_each(|x| *x *= factor);
                if let Some(value) = spoilt {
                    x[count / 2] = value;
                }
                let at = trial.constant(Element::F32, &x)?;
                let sum = norm_on_device(trial, count, at)?;
                let exact: f64 = x.iter().map(|&x| f64::from(x).powi(2)).sum();
                if trial.is_again() {
                    return Ok(());
                }
                if spoilt.is_some() {
                    let finite = f32::from(u8::from(sum.is_finite()));
                    trial.same("what is no number", &[finite], &[0.0]);
                } else {
                    let got = [(sum / exact) as f32];
                    trial.within("the sum, beside f64,", &got, &[1.0], 1e-6);
                }
                Ok(())
            });
        }
    }
}

fn norm_on_device(trial: &mut Trial<'_>, count: usize, x: Address) -> Result<f64> {
    let partials = trial.scratch(squares_partials())?;
    let into = trial.scratch(8)?;
    let element = trial.element;
    kernels::sum_of_squares(trial.device, element, count as u64, x, partials, into)?;
    let bytes = trial.bytes(into, 8)?;
    let mut word = [0; 8];
    word.copy_from_slice(&bytes);
    Ok(f64::from_ne_bytes(word))
}

pub fn adamw(suite: &mut Suite<'_>) {
    updates(suite, Rule::Adamw);
}

pub fn lamb(suite: &mut Suite<'_>) {
    updates(suite, Rule::Lamb);
}

fn updates(suite: &mut Suite<'_>, rule: Rule) {
    let (hidden, vocabulary) = match suite.scale {
        Scale::Full => (128, 3001),
        Scale::Small | Scale::Short => (48, 203),
    };
    let config = Config::new(2, hidden, 4, 2 * hidden + 4, vocabulary);
    let layout = Layout::new(&config, &PRETRAINING);
    for (step, max_norm, scale) in [
        (1, f64::INFINITY, 1.0),
        (2, 1.0, 1.0),
        (1000, 0.5, 1024.0),
        (100_000, 1e9, 65536.0),
    ] {
        let update = Update {
            optimizer: Optimizer {
                rule,
                ..Optimizer::default()
            },
            learning_rate: 1e-2,
            step,
            max_norm,
        };
        for spoilt in [false, true] {
            let name = format!("step {step}, norm cut to {max_norm}, spoilt: {spoilt}");
            suite.case(&name, |trial| case(trial, &layout, &update, scale, spoilt));
        }
    }
}

/// One update of all parameters of a model.
fn case(
    trial: &mut Trial<'_>,
    layout: &Arc<Layout>,
    update: &Update,
    scale: f64,
    spoilt: bool,
) -> Result<()> {
    let (element, single) = (trial.element, Element::F32);
    let offsets = Offsets::new(layout);
    let total = offsets.total();
    let chunks = Chunks::of(offsets.iter());
    let mut values = numbers(layout.total(), 1);
    let mut gradients = numbers(layout.total(), 2);
    if spoilt {
        gradients[layout.total() / 3] = f32::NAN;
    }
    let mut moments = Moments {
        first: numbers(layout.total(), 3).iter().map(|x| 0.1 * x).collect(),
        second: numbers(layout.total(), 4).iter().map(|x| x * x).collect(),
    };
    let put = |trial: &mut Trial<'_>, values: &[f32], factor: f32| -> Result<Address> {
        let mut spread = offsets.spread(values);
        spread.iter_mut().for_each(|x| *x *= factor);
        trial.changing(single, &spread)
    };
    // A power of two: nothing is rounded.
    let gradients_at = put(trial, &gradients, scale as f32)?;
    let squares = trial.scratch(8)?;
    let partials = trial.scratch(squares_partials())?;
    let count = total as u64;
    kernels::sum_of_squares(
        trial.device,
        element,
        count,
        gradients_at,
        partials,
        squares,
    )?;
    let copy = match element {
        Element::F32 => Address::NONE,
        Element::Bf16 | Element::F16 => trial.changing(element, &vec![0.0; total])?,
    };
    let a = Parameters {
        chunks: &chunks,
        chunks_at: trial.words(chunks.words())?,
        step: trial.constant_bytes(Step::new(update, scale).bytes())?,
        squares,
        values: put(trial, &values, 1.0)?,
        gradients: gradients_at,
        first: put(trial, &moments.first, 1.0)?,
        second: put(trial, &moments.second, 1.0)?,
        copy,
    };
    match update.optimizer.rule {
        Rule::Adamw => kernels::adamw(trial.device, element, &a)?,
        Rule::Lamb => {
            let partials = trial.scratch(chunks.partials())?;
            kernels::lamb(trial.device, element, &a, partials)?;
        }
    }
    let at = [a.values, a.gradients, a.first, a.second].map(|at| (at, single, total));
    let copied = if copy == Address::NONE { 0 } else { total };
    let [v, g, m, s] = at;
    let got = trial.outputs([v, g, m, s, (copy, element, copied)])?;
    let Some([got_values, got_gradients, first, second, copied]) = got else {
        return Ok(());
    };
    let before = values.clone();
    update.apply(
        layout,
        &mut values,
        &mut gradients,
        &mut moments,
        &mut Vec::new(),
    );
    let change = |values: &[f32]| -> Vec<f32> {
        let pairs = values.iter().zip(&before);
        pairs.map(|(after, before)| after - before).collect()
    };
    let got = offsets.gather(&got_values);
    if spoilt {
        trial.same("parameters", &got, &before);
    } else {
        trial.within("parameters", &got, &values, 1e-6);
        trial.within("their change", &change(&got), &change(&values), 1e-4);
        if copy != Address::NONE {
            let rounded = rounded(element, &got_values);
            trial.same(
                "the copy",
                &offsets.gather(&copied),
                &offsets.gather(&rounded),
            );
        }
    }
    trial.same(
        "gradients",
        &offsets.gather(&got_gradients),
        &vec![0.0; layout.total()],
    );
    trial.within("first means", &offsets.gather(&first), &moments.first, 1e-5);
    trial.within(
        "second means",
        &offsets.gather(&second),
        &moments.second,
        1e-5,
    );
    Ok(())
}
