//! Prints how much memory a run needs before it starts, and refuses one that can't fit.

use super::checks::refuse;
use crate::data::Sequences;
use crate::data::sequences::BatchSize;
use crate::engine::memory::{Forecast, Work, largest as largest_part};
use crate::engine::optimizer::Rule;
use crate::engine::{Backend, CpuEngine, Precision, Recompute, Setup, cuda};
use crate::error::{Error, Result};
use crate::memory::{format_bytes, free};
use crate::model::{Config, Layout};
use crate::note;

/// Returns the size of the largest batch that a run can meet, with at most `micro_batch` examples at once
/// (0 for no limit).
pub(crate) fn largest(sequences: &Sequences, size: BatchSize, micro_batch: usize) -> Work {
    let largest_first = sequences.by_length(BatchSize::Examples(1)).concat();
    let most_tokens = largest_first.first().map_or(0, |&i| sequences.tokens_of(i));
    let most = match size {
        BatchSize::Examples(count) => count,
        BatchSize::Tokens(_) => sequences.examples(),
    };
    let most = most.min(if micro_batch == 0 { most } else { micro_batch });
    let lengths = (0..sequences.len()).map(|i| sequences.length(i));
    let mut work = Work { longest: lengths.max().unwrap_or(0), ..Work::default() };
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

/// Returns an error, before any memory is allocated, if a model's parameters alone don't fit.
pub(crate) fn parameters_fit(layout: &Layout) -> Result<()> {
    let (parameters, free) = (layout.total(), free().unwrap_or(u64::MAX));
    let needs = 4 * parameters as u64;
    if needs > free {
        let (needs, free) = (format_bytes(needs), format_bytes(free));
        refuse!(
            "a model of {parameters} parameters needs {needs} for these alone, but {free} are free"
        );
    }
    Ok(())
}

/// What decides how much memory a training run needs.
pub(crate) struct Run<'a> {
    pub(crate) config: &'a Config,
    pub(crate) layout: &'a Layout,
    pub(crate) setup: Setup,
    /// The largest batch that it can meet.
    pub(crate) work: Work,
    /// How gradients become updates.
    pub(crate) rule: Rule,
    /// The teacher of a distillation, which computes its outputs for every batch first.
    pub(crate) teacher: Option<(&'a Config, &'a Layout)>,
    /// The command's option for fewer sequences at once.
    pub(crate) option: &'static str,
}

impl<'a> Run<'a> {
    /// Describes a run without a teacher on `sequences` sequences of the same length.
    pub(crate) fn new(
        config: &'a Config,
        layout: &'a Layout,
        setup: Setup,
        (sequences, longest): (usize, usize),
        option: &'static str,
    ) -> Self {
        Self {
            config,
            layout,
            setup,
            work: Work { rows: sequences * longest, sequences, longest, predicted: 0 },
            rule: Rule::default(),
            teacher: None,
            option,
        }
    }

    /// Prints on stderr what the run needs; returns an error if there is less.
    pub(crate) fn check(&self) -> Result<()> {
        let Self { setup, work, .. } = *self;
        let backend = setup.backend.resolve().0;
        // Nobody can forecast how dfdx's tape grows.
        if backend == Backend::Reference {
            return Ok(());
        }
        let forecast = self.forecast(work, setup.recompute);
        let teacher = match self.teacher_needs(work) {
            0 => String::new(),
            bytes => format!("; the teacher's outputs {}", format_bytes(bytes)),
        };
        note!(
            "{} parameters: {} with gradients and optimizer; activations {} for {} tokens in {} sequences{teacher}",
            self.layout.total(),
            format_bytes(forecast.state),
            format_bytes(forecast.activations),
            work.rows,
            work.sequences,
        );
        if backend != Backend::Cuda {
            let unit = CpuEngine::unit(setup.precision);
            match setup.precision {
                Precision::F32 | Precision::F16 | Precision::Int8 => {}
                Precision::Bf16 if unit == "f32" => note!(
                    "this processor has no bf16 instructions: factors are rounded to bf16, but no time is saved"
                ),
                Precision::Bf16x3 if unit == "f32" => note!(
                    "--matmul fast: this processor has no matrix unit (AMX), so products are plain f32"
                ),
                Precision::Bf16 | Precision::Bf16x3 => note!("matrix products on {unit}"),
            }
        }
        self.free()?.map_or(Ok(()), |free| self.fits(free))
    }

    /// Returns how many of the sequences fit into the free memory.
    pub(crate) fn largest(&self) -> Result<usize> {
        let Some(free) = self.free()? else {
            if self.setup.backend.resolve().0 == Backend::Reference {
                refuse!("the reference engine's memory can't be forecast: give a --batch");
            }
            let message = "this system doesn't report how much memory is free";
            return Err(Error::Failed(message.into()));
        };
        match self.most(free.0, self.setup.recompute) {
            0 => Err(self.too_large(1, free)),
            most => Ok(most),
        }
    }

    /// Returns the free bytes and whose they are; None if that is unknown or no forecast can use it.
    fn free(&self) -> Result<Option<(u64, &'static str)>> {
        Ok(match self.setup.backend.resolve().0 {
            Backend::Reference => None,
            Backend::Cuda => Some((cuda::free_memory()?, " of the GPU's memory")),
            Backend::Cpu | Backend::Auto => free().map(|bytes| (bytes, "")),
        })
    }

    fn forecast(&self, work: Work, recompute: Recompute) -> Forecast {
        let setup = Setup { recompute, ..self.setup };
        let forecast = setup.forecast(self.config, self.layout, work, self.teacher.is_some());
        forecast.with_rule(self.rule, self.layout)
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

    /// Returns an error that says what would fit if a step needs more than `free` bytes.
    fn fits(&self, free: (u64, &str)) -> Result<()> {
        if self.needs(self.work, self.setup.recompute) <= free.0 {
            return Ok(());
        }
        Err(self.too_large(self.work.sequences, free))
    }

    fn too_large(&self, sequences: usize, (free, of): (u64, &str)) -> Error {
        let (recompute, option) = (self.setup.recompute, self.option);
        let again = self.most(free, Recompute::Layers);
        let advice = match self.most(free, recompute) {
            0 if again == 0 => "not even one such sequence fits".to_owned(),
            0 => format!("with --recompute {again} at once fit ({option} {again})"),
            fit if recompute == Recompute::Layers || again == fit => {
                format!("{fit} at once fit ({option} {fit})")
            }
            fit => format!("{fit} at once fit ({option} {fit}), with --recompute {again}"),
        };
        Error::Usage(format!(
            "a step of {sequences} sequences of up to {} tokens needs {}, but {}{of} are free: {advice}",
            self.work.longest,
            format_bytes(self.needs(self.work.part(sequences), recompute)),
            format_bytes(free),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Part, Size};

    fn run<'a>(config: &'a Config, layout: &'a Layout, size: (usize, usize)) -> Run<'a> {
        Run::new(config, layout, Backend::Cpu.into(), size, "--micro-batch")
    }

    #[test]
    fn a_run_that_cannot_fit_is_refused_with_advice() {
        let config = Size::Base.config(30522);
        let layout = Layout::new(&config, &Part::Span.with_encoder());
        let mut run = run(&config, &layout, (32, 384));
        assert!(run.fits((64 << 30, "")).is_ok());
        let message = run.fits((4 << 30, "")).unwrap_err().to_string();
        let number = |after: &str| -> usize {
            let rest = message.split(after).nth(1).unwrap();
            let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
            digits.parse().unwrap()
        };
        let (fit, again) = (number("--micro-batch "), number("--recompute "));
        assert!(fit >= 1 && fit < again && again <= 32, "{message}");
        let of = |sequences, recompute| {
            Forecast::of(&config, &layout, run.work.part(sequences), recompute).total()
        };
        assert!(of(fit, false) <= 4 << 30 && of(fit + 1, false) > 4 << 30);
        assert!(again == 32 || of(again + 1, true) > 4 << 30);
        run.setup.recompute = Recompute::Layers;
        let message = run.fits((1 << 30, "")).unwrap_err().to_string();
        assert!(message.contains("not even one"), "{message}");
    }

    #[test]
    fn the_largest_batch_is_the_last_that_fits() {
        let config = Size::Mini.config(30522);
        let layout = Layout::new(&config, &Part::Span.with_encoder());
        let run = run(&config, &layout, (1 << 20, 384));
        let (nothing, layers) = (Recompute::Nothing, Recompute::Layers);
        for (free, recompute) in [(1 << 30, nothing), (1 << 30, layers), (5 << 30, nothing)] {
            let most = run.most(free, recompute);
            assert!(most > 0 && run.needs(run.work.part(most), recompute) <= free);
            assert!(run.needs(run.work.part(most + 1), recompute) > free);
        }
        assert_eq!(run.most(1 << 20, layers), 0);
    }

    #[test]
    fn predicted_tokens_and_muon_need_room_too() {
        let config = Size::Mini.config(30522);
        let layout = Layout::new(&config, &Part::MaskedLm.with_encoder());
        let mut run = run(&config, &layout, (64, 128));
        let needs = |run: &Run<'_>| run.needs(run.work, Recompute::Nothing);
        let none = needs(&run);
        run.work.predicted = 2458;
        let with_logits = needs(&run);
        assert_eq!(with_logits - none, 4 * 2458 * (30522 + 6 * 256));
        run.rule = Rule::Muon;
        let threads = rayon::current_num_threads().min(4 * 6) as u64;
        assert_eq!(needs(&run) - with_logits, threads * 4 * 2 * (256 * 1024 + 256 * 256));
    }

    #[test]
    fn a_teacher_needs_room_too() {
        let (large, small) = (Size::Base.config(30522), Size::Mini.config(30522));
        let parts = Part::MaskedLm.with_encoder();
        let layouts = [&large, &small].map(|config| Layout::new(config, &parts));
        let mut run = run(&small, &layouts[1], (64, 128));
        run.work.predicted = 1228;
        let alone = Forecast::of(&small, &layouts[1], run.work, false).total();
        assert!(run.fits((alone, "")).is_ok());
        run.teacher = Some((&large, &layouts[0]));
        let message = run.fits((alone, "")).unwrap_err().to_string();
        assert!(message.contains("at once fit (--micro-batch"), "{message}");
        // The logits of 15 % of 8,192 tokens, and the last hidden states of all.
        let answers = 4 * (1228 * 30522 + 8192 * 768);
        assert!(run.teacher_needs(run.work) > answers);
    }
}
