//! Says what a run will need before it starts, and refuses what can't fit.

use crate::data::Sequences;
use crate::data::sequences::BatchSize;
use crate::engine::memory::{Forecast, Work};
use crate::engine::{Backend, CpuEngine, Precision, Setup};
use crate::error::{Error, Result};
use crate::memory::{free, told};
use crate::model::{Config, Layout};

/// The largest batch that a run can meet, `micro_batch` examples at once (0 for no such limit).
pub fn largest(sequences: &Sequences, size: BatchSize, micro_batch: usize) -> Work {
    let largest_first = sequences.by_length(BatchSize::Examples(1)).concat();
    let most_tokens = largest_first.first().map_or(0, |&i| sequences.tokens_of(i));
    let most = match size {
        BatchSize::Examples(count) => count,
        BatchSize::Tokens(_) => sequences.examples(),
    };
    let most = if micro_batch == 0 {
        most
    } else {
        most.min(micro_batch)
    };
    let mut work = Work {
        rows: 0,
        sequences: 0,
        longest: (0..sequences.len())
            .map(|i| sequences.length(i))
            .max()
            .unwrap_or(0),
    };
    for &index in largest_first.iter().take(most) {
        let tokens = sequences.tokens_of(index);
        if let BatchSize::Tokens(budget) = size
            && work.rows + tokens > budget.max(most_tokens)
        {
            break;
        }
        work.rows += tokens;
        work.sequences += sequences.of_example(index).len();
    }
    work
}

/// Says on stderr what a training run needs; refuses one that needs more than there is. `option` is
/// the command's own for fewer sequences at once.
pub fn tell(
    config: &Config,
    layout: &Layout,
    setup: Setup,
    work: Work,
    option: &str,
) -> Result<()> {
    // The reference's tape grows as dfdx sees fit: nothing is promised for it.
    if setup.backend == Backend::Reference {
        return Ok(());
    }
    let forecast = Forecast::of(config, layout, work, setup.recompute);
    eprintln!(
        "{} parameters: {} with gradients and optimizer; activations {} for {} tokens in {} sequences",
        layout.total(),
        told(forecast.state),
        told(forecast.activations),
        work.rows,
        work.sequences,
    );
    let unit = CpuEngine::unit(setup.precision);
    match setup.precision {
        Precision::F32 => {}
        Precision::Bf16 if unit == "f32" => eprintln!(
            "this processor has no bf16 instructions: factors are rounded to bf16, but no time is saved"
        ),
        Precision::Bf16x3 if unit == "f32" => eprintln!(
            "--matmul fast: this processor has no matrix unit (AMX), so products are plain f32"
        ),
        Precision::Bf16 | Precision::Bf16x3 => eprintln!("matrix products on {unit}"),
    }
    match free() {
        Some(free) => fits(config, layout, setup, work, free, option),
        None => Ok(()),
    }
}

/// Refuses what needs more than `free` bytes and says what would fit.
fn fits(
    config: &Config,
    layout: &Layout,
    setup: Setup,
    work: Work,
    free: u64,
    option: &str,
) -> Result<()> {
    let needs = |sequences: usize, recompute: bool| {
        let part = Work {
            rows: (work.rows * sequences).div_ceil(work.sequences.max(1)),
            sequences,
            longest: work.longest,
        };
        Forecast::of(config, layout, part, recompute).total()
    };
    let all = needs(work.sequences, setup.recompute);
    if all <= free {
        return Ok(());
    }
    // Halves the span between what fits and what doesn't.
    let largest = |recompute| {
        let (mut fit, mut not) = (0, work.sequences + 1);
        while not - fit > 1 {
            let middle = fit + (not - fit) / 2;
            if needs(middle, recompute) <= free {
                fit = middle;
            } else {
                not = middle;
            }
        }
        fit
    };
    let advice = match (largest(setup.recompute), largest(true)) {
        (0, 0) => "not even one such sequence fits".to_owned(),
        (0, again) => format!("with --recompute {again} at once do ({option} {again})"),
        (fit, again) if setup.recompute || again == fit => {
            format!("{fit} at once do ({option} {fit})")
        }
        (fit, again) => {
            format!("{fit} at once do ({option} {fit}), with --recompute {again}")
        }
    };
    Err(Error::Usage(format!(
        "a step of {} sequences of up to {} tokens needs {}, but {} are free: {advice}",
        work.sequences,
        work.longest,
        told(all),
        told(free),
    )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Part, Size};

    #[test]
    fn what_cannot_fit_is_refused_with_what_does() {
        let config = Size::Base.config(30522);
        let layout = Layout::new(&config, &Part::Span.with_encoder());
        let setup = Setup::from(Backend::Cpu);
        let work = Work {
            rows: 32 * 384,
            sequences: 32,
            longest: 384,
        };
        let check = |gibibytes: u64, recompute: bool| {
            let setup = Setup { recompute, ..setup };
            fits(
                &config,
                &layout,
                setup,
                work,
                gibibytes << 30,
                "--micro-batch",
            )
        };
        assert!(check(64, false).is_ok());
        let message = check(4, false).unwrap_err().to_string();
        let number = |after: &str| -> usize {
            let rest = message.split(after).nth(1).unwrap();
            let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
            digits.parse().unwrap()
        };
        let (fit, again) = (number("--micro-batch "), number("--recompute "));
        assert!(fit >= 1 && fit < again && again <= 32, "{message}");
        let of = |sequences, recompute| {
            let work = Work {
                rows: sequences * 384,
                sequences,
                longest: 384,
            };
            Forecast::of(&config, &layout, work, recompute).total()
        };
        assert!(of(fit, false) <= 4 << 30 && of(fit + 1, false) > 4 << 30);
        assert!(again == 32 || of(again + 1, true) > 4 << 30);
        assert!(
            check(1, true)
                .unwrap_err()
                .to_string()
                .contains("not even one")
        );
    }
}
