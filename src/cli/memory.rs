//! Reports the memory that a run will need before it starts, and refuses a run that can't fit.

use crate::data::Sequences;
use crate::data::sequences::BatchSize;
use crate::engine::memory::{Forecast, Work, largest as largest_part};
use crate::engine::{Backend, CpuEngine, Precision, Recompute, Setup, cuda};
use crate::error::{Error, Result};
use crate::memory::{format_bytes, free};
use crate::model::{Config, Layout};
use crate::note;

/// Returns the largest batch that a run can meet, `micro_batch` examples at once (0 for no limit).
pub fn largest(sequences: &Sequences, size: BatchSize, micro_batch: usize) -> Work {
    let largest_first = sequences.by_length(BatchSize::Examples(1)).concat();
    let most_tokens = largest_first.first().map_or(0, |&i| sequences.tokens_of(i));
    let most = match size {
        BatchSize::Examples(count) => count,
        BatchSize::Tokens(_) => sequences.examples(),
    };
    let most = if micro_batch == 0 { most } else { most.min(micro_batch) };
    let mut work = Work {
        rows: 0,
        sequences: 0,
        longest: (0..sequences.len()).map(|i| sequences.length(i)).max().unwrap_or(0),
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

/// Checks that a model's parameters alone fit into memory, before any is allocated.
pub fn parameters_fit(layout: &Layout) -> Result<()> {
    let (parameters, free) = (layout.total(), free().unwrap_or(u64::MAX));
    let needs = 4 * parameters as u64;
    if needs <= free {
        return Ok(());
    }
    Err(Error::Usage(format!(
        "a model of {parameters} parameters needs {} for these alone, but {} are free",
        format_bytes(needs),
        format_bytes(free)
    )))
}

/// The properties of a training run that decide its memory.
pub struct Run<'a> {
    pub config: &'a Config,
    pub layout: &'a Layout,
    pub setup: Setup,
    /// The largest batch that it can meet.
    pub work: Work,
    /// The teacher of a distillation.
    pub teacher: Option<(&'a Config, &'a Layout)>,
    /// The command's option for fewer sequences at once.
    pub option: &'static str,
}

/// Reports on stderr what a run needs.
///
/// # Errors
/// If it needs more memory than is free.
pub fn check(run: &Run<'_>) -> Result<()> {
    let Run { setup, work, .. } = *run;
    let backend = setup.backend.resolve().0;
    // dfdx decides how its tape grows, so there is no forecast.
    if backend == Backend::Reference {
        return Ok(());
    }
    let forecast = run.forecast(work, setup.recompute);
    let teacher = match run.teacher_needs(work) {
        0 => String::new(),
        bytes => format!("; the teacher's predictions {}", format_bytes(bytes)),
    };
    note!(
        "{} parameters: {} with gradients and optimizer; activations {} for {} tokens in {} sequences{teacher}",
        run.layout.total(),
        format_bytes(forecast.state),
        format_bytes(forecast.activations),
        work.rows,
        work.sequences,
    );
    if backend == Backend::Cuda {
        return run.fits(Place::Gpu, cuda::free_memory()?);
    }
    let unit = CpuEngine::unit(setup.precision);
    match setup.precision {
        Precision::F32 | Precision::F16 => {}
        Precision::Bf16 if unit == "f32" => note!(
            "this processor has no bf16 instructions: factors are rounded to bf16, but no time is saved"
        ),
        Precision::Bf16x3 if unit == "f32" => note!(
            "--matmul fast: this processor has no matrix unit (AMX), so products are plain f32"
        ),
        Precision::Bf16 | Precision::Bf16x3 => note!("matrix products on {unit}"),
    }
    free().map_or(Ok(()), |free| run.fits(Place::Machine, free))
}

/// The memory that a run needs.
#[derive(Clone, Copy)]
enum Place {
    Machine,
    Gpu,
}

impl Run<'_> {
    fn forecast(&self, work: Work, recompute: Recompute) -> Forecast {
        let setup = Setup { recompute, ..self.setup };
        let teacher = self.teacher.is_some();
        setup.forecast(self.config, self.layout, work, teacher)
    }

    fn teacher_needs(&self, work: Work) -> u64 {
        let of = |(config, layout)| Forecast::teacher(config, layout, work);
        self.teacher.map_or(0, of)
    }

    /// Returns the bytes that a step needs in all.
    fn needs(&self, work: Work, recompute: Recompute) -> u64 {
        self.forecast(work, recompute).total() + self.teacher_needs(work)
    }

    /// Returns how many of the sequences fit into `free` bytes.
    fn most(&self, free: u64, recompute: Recompute) -> usize {
        largest_part(self.work, free, |part| self.needs(part, recompute))
    }

    /// Returns how many of the sequences fit into the free memory.
    pub fn largest(&self) -> Result<usize> {
        let (place, free) = match self.setup.backend.resolve().0 {
            Backend::Reference => {
                return Err(Error::Usage(
                    "the reference engine's memory can't be predicted: give a --batch".into(),
                ));
            }
            Backend::Cuda => (Place::Gpu, cuda::free_memory()?),
            Backend::Cpu | Backend::Auto => {
                let free = free().ok_or_else(|| {
                    Error::Failed("this system doesn't report how much memory is free".into())
                })?;
                (Place::Machine, free)
            }
        };
        match self.most(free, self.setup.recompute) {
            0 => Err(self.too_large(1, place, free)),
            most => Ok(most),
        }
    }

    /// Checks that a step fits into `free` bytes; the error names what would fit.
    fn fits(&self, place: Place, free: u64) -> Result<()> {
        if self.needs(self.work, self.setup.recompute) <= free {
            return Ok(());
        }
        Err(self.too_large(self.work.sequences, place, free))
    }

    fn too_large(&self, sequences: usize, place: Place, free: u64) -> Error {
        let (recompute, option) = (self.setup.recompute, self.option);
        let again = self.most(free, Recompute::Layers);
        let advice = match (self.most(free, recompute), again) {
            (0, 0) => "not even one such sequence fits".to_owned(),
            (0, again) => format!("with --recompute {again} at once fit ({option} {again})"),
            (fit, again) if recompute == Recompute::Layers || again == fit => {
                format!("{fit} at once fit ({option} {fit})")
            }
            (fit, again) => {
                format!("{fit} at once fit ({option} {fit}), with --recompute {again}")
            }
        };
        let needs = self.needs(self.work.part(sequences), recompute);
        let free = match place {
            Place::Machine => format!("{} are free", format_bytes(free)),
            Place::Gpu => format!("{} of the GPU's memory are free", format_bytes(free)),
        };
        Error::Usage(format!(
            "a step of {sequences} sequences of up to {} tokens needs {}, but {free}: {advice}",
            self.work.longest,
            format_bytes(needs),
        ))
    }
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
        let work = Work { rows: 32 * 384, sequences: 32, longest: 384 };
        let check = |gibibytes: u64, recompute: bool| {
            let run = Run {
                config: &config,
                layout: &layout,
                setup: Setup {
                    recompute: if recompute { Recompute::Layers } else { Recompute::Nothing },
                    ..setup
                },
                work,
                teacher: None,
                option: "--micro-batch",
            };
            run.fits(Place::Machine, gibibytes << 30)
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
            let work = Work { rows: sequences * 384, sequences, longest: 384 };
            Forecast::of(&config, &layout, work, recompute).total()
        };
        assert!(of(fit, false) <= 4 << 30 && of(fit + 1, false) > 4 << 30);
        assert!(again == 32 || of(again + 1, true) > 4 << 30);
        assert!(check(1, true).unwrap_err().to_string().contains("not even one"));
    }

    #[test]
    fn the_largest_batch_is_the_last_that_fits() {
        let config = Size::Mini.config(30522);
        let layout = Layout::new(&config, &Part::Span.with_encoder());
        let run = Run {
            config: &config,
            layout: &layout,
            setup: Setup::from(Backend::Cpu),
            work: Work { rows: (1 << 20) * 384, sequences: 1 << 20, longest: 384 },
            teacher: None,
            option: "--batch",
        };
        let (nothing, layers) = (Recompute::Nothing, Recompute::Layers);
        for (free, recompute) in [(1 << 30, nothing), (1 << 30, layers), (5 << 30, nothing)] {
            let most = run.most(free, recompute);
            assert!(most > 0 && run.needs(run.work.part(most), recompute) <= free);
            assert!(run.needs(run.work.part(most + 1), recompute) > free);
        }
        assert_eq!(run.most(1 << 20, layers), 0);
    }

    #[test]
    fn a_teacher_needs_room_too() {
        let (large, small) = (Size::Base.config(30522), Size::Mini.config(30522));
        let parts = Part::MaskedLm.with_encoder();
        let layouts = [&large, &small].map(|config| Layout::new(config, &parts));
        let mut run = Run {
            config: &small,
            layout: &layouts[1],
            setup: Setup::from(Backend::Cpu),
            work: Work { rows: 64 * 128, sequences: 64, longest: 128 },
            teacher: None,
            option: "--micro-batch",
        };
        let alone = Forecast::of(&small, &layouts[1], run.work, false).total();
        assert!(run.fits(Place::Machine, alone).is_ok());
        run.teacher = Some((&large, &layouts[0]));
        let message = run.fits(Place::Machine, alone).unwrap_err().to_string();
        assert!(message.contains("at once fit (--micro-batch"), "{message}");
        // 15 % of 8,192 tokens over the vocabulary, and 768 numbers of each.
        let answers = 4 * (1228 * 30522 + 8192 * 768);
        assert!(run.teacher_needs(run.work) > answers);
    }
}
