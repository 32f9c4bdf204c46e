//! Pre-training: masked LM and next sentence, step by step.

use std::panic::resume_unwind;
use std::path::Path;
use std::time::Instant;

use serde::{Deserialize, Serialize};

use crate::data::{PretrainingBatch, PretrainingData};
use crate::engine::{LossWeights, Numerics, PretrainingEngine, PretrainingScores};
use crate::error::{Error, Result};
use crate::features::frozen;
use crate::model::Dropout;
use crate::model::weights::{self, NumberFormat};
use crate::text::WordPiece;

use super::checkpoint;
use super::distill::Teacher;
use super::guard::{Guard, GuardSettings};
use super::identity::{Changeable, ORDER, PretrainingIdentity, checksum};
use super::phases::{self, FirstPhase, phase_at};
use super::report::{EvalReport, History, Report, StepReport};
use super::schedule::Schedule;
use super::step::{self, Counts, Step, micro_batches};
use super::stop::Stop;
use crate::engine::optimizer::{Optimizer, Update};

/// The hyperparameters and options of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// Sequences a step, of all ranks together.
    pub batch: usize,
    /// Upper limit of the sequences that are computed at once: gradient accumulation over the parts of a
    /// batch. 0 for no limit.
    pub micro_batch: usize,
    /// Learning rate by step.
    pub schedule: Schedule,
    /// The optimizer and its constants.
    pub optimizer: Optimizer,
    /// Upper limit of the gradients' global norm; BERT's is 1.
    pub max_norm: f64,
    /// Steps between two checkpoints; 0 for only the one at the end.
    pub save_every: u64,
    /// Steps between two evaluations. The model is also evaluated before the first step and after the last.
    pub evaluate_every: u64,
    /// Upper limit of held-out sequences in an evaluation.
    pub evaluate_on: usize,
    /// What to do with a bad step.
    pub guard: GuardSettings,
    /// What computes the run; stored in its checkpoints.
    pub numerics: Option<Numerics>,
}

/// What a pre-training run keeps beside its numbers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PretrainingRun {
    /// The settings that may not change when the run is resumed.
    pub identity: PretrainingIdentity,
    /// Those that may.
    pub changeable: Changeable,
    /// All reports so far.
    pub history: History,
}

/// A pre-training run at a step boundary.
pub type State = checkpoint::State<PretrainingRun>;

impl Settings {
    /// BERT's AdamW with RoBERTa's second beta, 0.98 (Liu et al., arXiv 1907.11692, section 3.1), which forgets the
    /// large early gradients sooner. After 1,200 steps of 16 short sequences, a tiny model predicted 42 % of held-out
    /// masked tokens with it, and 35 % with 0.999 (one seed, our own corpus).
    pub const OPTIMIZER: Optimizer = Optimizer { beta2: 0.98, ..Optimizer::BERT };

    /// Returns settings for `steps` steps of `batch` sequences: warm-up over the first tenth, ten evaluations, and
    /// [`OPTIMIZER`](Self::OPTIMIZER).
    pub fn new(steps: u64, batch: usize, peak: f64) -> Self {
        Self {
            batch,
            micro_batch: 0,
            schedule: Schedule::linear(peak, steps / 10, steps),
            optimizer: Self::OPTIMIZER,
            max_norm: 1.0,
            save_every: 0,
            evaluate_every: (steps / 10).max(1),
            evaluate_on: 512,
            guard: GuardSettings::default(),
            numerics: None,
        }
    }
}

/// A run of pre-training.
pub struct Pretrainer {
    engine: Box<dyn PretrainingEngine>,
    teacher: Option<Teacher>,
    first_phase: Option<FirstPhase>,
    vocabulary: Option<WordPiece>,
    data: PretrainingData,
    held_out: PretrainingData,
    settings: Settings,
    step: u64,
    /// The next batch, prepared while the engine computed the last one, with the number of steps before it.
    next: Option<(u64, Result<PretrainingBatch>)>,
    history: History,
    guard: Guard,
}

impl Pretrainer {
    /// Creates a run that trains on `data` and evaluates on `held_out`.
    pub fn new(
        engine: Box<dyn PretrainingEngine>,
        data: PretrainingData,
        held_out: PretrainingData,
        settings: Settings,
    ) -> Self {
        Self {
            engine,
            teacher: None,
            first_phase: None,
            vocabulary: None,
            data,
            held_out,
            guard: Guard::new(settings.guard),
            settings,
            step: 0,
            next: None,
            history: History::default(),
        }
    }

    /// Uses other data for the first steps.
    pub fn with_first_phase(mut self, phase: FirstPhase) -> Self {
        self.first_phase = Some(phase);
        self
    }

    /// Saves this vocabulary with the model.
    pub fn with_vocabulary(mut self, wordpiece: WordPiece) -> Self {
        self.vocabulary = Some(wordpiece);
        self
    }

    /// Learns the teacher's predictions beside the masked tokens, without next-sentence prediction.
    pub fn with_teacher(mut self, teacher: Teacher) -> Self {
        self.teacher = Some(teacher);
        self
    }

    /// Returns the number of steps done.
    pub fn step(&self) -> u64 {
        self.step
    }

    /// Returns all reports so far.
    pub fn history(&self) -> &History {
        &self.history
    }

    /// Returns the settings of the run.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Returns the last phase's data to train on and its held-out data.
    pub fn data(&self) -> (&PretrainingData, &PretrainingData) {
        (&self.data, &self.held_out)
    }

    /// Returns the evaluation after the last step, and evaluates if there is none.
    pub fn latest(&mut self) -> Result<EvalReport> {
        match self.history.evaluations.last() {
            Some(last) if last.step == self.step => Ok(*last),
            _ => self.evaluate(),
        }
    }

    /// Returns the engine with the trained parameters.
    pub fn engine(&mut self) -> &mut dyn PretrainingEngine {
        self.engine.as_mut()
    }

    /// Returns the settings that may not change when the run is resumed.
    pub fn identity(&self) -> PretrainingIdentity {
        let options = self.data.options();
        PretrainingIdentity {
            seed: options.seed,
            batch: self.settings.batch,
            max_len: options.max_len,
            first_max_len: match &self.first_phase {
                Some(phase) => phase.data.options().max_len,
                None => options.max_len,
            },
            whole_word: options.whole_word,
            mask_probability: options.mask_probability,
            short_probability: options.short_probability,
            packing: options.packing,
            left_to_right: options.left_to_right,
            vocab_size: self.engine.config().vocab_size,
            model: self.engine.config().into(),
            distilled: self.teacher.as_ref().map(Teacher::identity),
            tokens: self.data.tokens(),
            checksum: self.data.checksum(),
            optimizer: self.settings.optimizer.rule,
            order: ORDER,
        }
    }

    /// Returns the settings that may change when the run is resumed.
    pub fn changeable(&self) -> Changeable {
        Changeable {
            schedule: self.settings.schedule,
            first_until: self.first_phase.as_ref().map_or(0, |phase| phase.until),
            optimizer: self.settings.optimizer,
            max_norm: self.settings.max_norm,
            guard: self.settings.guard,
            dropout: self.engine.config().hidden_dropout_prob,
            precision: self.engine.precision(),
        }
    }

    /// Returns what computes the run, if the settings describe it.
    pub fn numerics(&self) -> Option<&Numerics> {
        self.settings.numerics.as_ref()
    }

    /// Continues where `state` was saved.
    pub fn resume(&mut self, state: State) -> Result<()> {
        let (step, run) = state.restore(self.engine.as_mut(), &mut self.guard)?;
        if let Some(phase) = &mut self.first_phase {
            phase.resume(step, run.changeable.first_until);
        }
        (self.step, self.history) = (step, run.history);
        Ok(())
    }

    /// Writes the model, its vocabulary if the run has one, and the trainer's state into `folder`.
    ///
    /// # Errors
    /// If a parameter is not finite or a file cannot be written. What was saved before stays.
    pub fn save(&self, folder: &Path) -> Result<()> {
        let (engine, snapshot) = (self.engine.as_ref(), self.engine.snapshot()?);
        let run = PretrainingRun {
            identity: self.identity(),
            changeable: self.changeable(),
            history: self.history.clone(),
        };
        let (files, _) = weights::stage(
            folder,
            engine.config(),
            engine.layout(),
            &snapshot.parameters,
            self.vocabulary.as_ref(),
            NumberFormat::F32,
        )?;
        // First: the head of an earlier model would be read with this encoder.
        frozen::remove(folder)?;
        let (run, snapshot, guard) = (&run, &snapshot, &self.guard);
        let (step, numerics) = (self.step, self.settings.numerics.as_ref());
        checkpoint::Save { step, run, engine, snapshot, guard, numerics }.place(folder, files)
    }

    /// Trains until the schedule ends or a stop is requested. Checkpoints go to `folder`. Evaluates before
    /// the first step, at intervals, and at the end.
    pub fn run(
        &mut self,
        folder: Option<&Path>,
        report: &mut dyn Report,
        stop: &Stop,
    ) -> Result<()> {
        self.agree()?;
        let ranks = self.engine.ranks().clone();
        // One rank writes the files.
        let folder = folder.filter(|_| ranks.is_first());
        if self.step == 0 {
            self.evaluate_and_report(report)?;
        }
        while self.step < self.settings.schedule.total && !ranks.any(stop.requested())? {
            crate::interrupt::poll();
            match self.train_step()? {
                Step::Done(done) => {
                    self.history.steps.push(done);
                    report.step(&done);
                }
                Step::Skipped(why) => report.skipped(self.step, &why),
            }
            let every = |interval: u64| interval > 0 && self.step.is_multiple_of(interval);
            let last = self.step == self.settings.schedule.total;
            let save = every(self.settings.save_every);
            if every(self.settings.evaluate_every) || last {
                self.evaluate_and_report(report)?;
            }
            if let Some(folder) = folder
                && save
                && !last
            {
                self.save(folder)?;
                report.saved(self.step);
            }
        }
        if let Some(folder) = folder {
            self.save(folder)?;
            report.saved(self.step);
        }
        Ok(())
    }

    /// Checks that all ranks train the same model with the same data and settings.
    fn agree(&self) -> Result<()> {
        let ranks = self.engine.ranks();
        if ranks.size() == 1 {
            return Ok(());
        }
        ranks.agree("the step", &self.step.to_string())?;
        ranks.agree("the run", &format!("{:?}", self.identity()))?;
        ranks.agree("the settings", &format!("{:?}", self.changeable()))?;
        let parameters = checksum(&self.engine.snapshot()?.parameters);
        ranks.agree("the parameters (by checksum)", &format!("{parameters:08x}"))
    }

    fn train_step(&mut self) -> Result<Step<StepReport>> {
        let started = Instant::now();
        phases::between(&self.first_phase, self.step, self.engine.as_mut())?;
        let step = self.step + 1;
        let (data, first_phase, settings) = (&self.data, &self.first_phase, &self.settings);
        let ranks = self.engine.ranks().clone();
        let share = ranks.share(settings.batch);
        // Batch k of a run depends only on the seed and k.
        let batch_after = |done: u64| {
            let phase = phase_at(first_phase, done + 1);
            let data = phase.map_or(data, |phase| &phase.data);
            let start = done * settings.batch as u64;
            data.examples(start + share.start as u64..start + share.end as u64)
        };
        let batch = match self.next.take() {
            Some((done, batch)) if done == self.step => batch,
            _ => batch_after(self.step),
        }?;
        let dropout = Dropout { seed: data.options().seed, step: step as u32 };
        let (engine, teacher) = (self.engine.as_mut(), self.teacher.as_mut());
        let (computed, next) = std::thread::scope(|scope| {
            let ahead = (step < settings.schedule.total).then(|| scope.spawn(|| batch_after(step)));
            let computed = gradients(engine, teacher, &batch, settings.micro_batch, dropout);
            let next = ahead.map(|batch| batch.join().unwrap_or_else(|p| resume_unwind(p)));
            (computed, next)
        });
        self.next = next.map(|batch| (step, batch));
        let (loss, scores, tokens) = computed?;
        let update = Update {
            optimizer: self.settings.optimizer,
            learning_rate: self.settings.schedule.rate(step),
            step,
            max_norm: self.settings.max_norm,
        };
        let updated = step::update(self.engine.as_mut(), &mut self.guard, loss, &update)?;
        self.step = step;
        Ok(match updated {
            Step::Skipped(why) => Step::Skipped(why),
            Step::Done(norm) => Step::Done(StepReport {
                step,
                loss,
                mlm_loss: scores.mean_mlm_loss(),
                nsp_loss: scores.mean_nsp_loss(),
                learning_rate: update.learning_rate,
                norm,
                tokens_per_s: tokens / started.elapsed().as_secs_f64(),
            }),
        })
    }

    fn evaluate_and_report(&mut self, report: &mut dyn Report) -> Result<()> {
        let evaluation = self.evaluate()?;
        report.evaluated(&evaluation);
        if !evaluation.mlm_loss.is_finite() {
            return Err(Error::Failed(format!(
                "after step {}: the loss on held-out documents is not a number: the run has diverged \
                 and is not saved; a lower learning rate helps",
                self.step
            )));
        }
        self.history.evaluations.push(evaluation);
        Ok(())
    }

    /// Evaluates the model on held-out documents, with the same masks every time in a phase.
    pub fn evaluate(&mut self) -> Result<EvalReport> {
        let phase = phase_at(&self.first_phase, self.step);
        let held_out = phase.map_or(&self.held_out, |phase| &phase.held_out);
        measure(self.engine.as_mut(), held_out, &self.settings, self.step)
    }

    /// Evaluates the teacher in the same way, if there is one.
    pub fn evaluate_teacher(&mut self) -> Result<Option<EvalReport>> {
        let phase = phase_at(&self.first_phase, self.step);
        let held_out = phase.map_or(&self.held_out, |phase| &phase.held_out);
        let teacher = self.teacher.as_mut();
        teacher
            .map(|teacher| measure(teacher.engine(), held_out, &self.settings, self.step))
            .transpose()
    }
}

/// Adds the gradients of this rank's share of a batch, part by part. Returns the loss, the scores and the number of
/// tokens of the whole batch.
fn gradients(
    engine: &mut dyn PretrainingEngine,
    teacher: Option<&mut Teacher>,
    share: &PretrainingBatch,
    micro_batch: usize,
    dropout: Dropout,
) -> Result<(f64, PretrainingScores, f64)> {
    let ranks = engine.ranks().clone();
    let counts = [share.packed.rows(), share.masked_rows.len(), share.next_labels.len()];
    let [rows, masked, pairs] = ranks.sum(counts.map(|count| count as f64))?;
    let counts = Counts { rows: rows as usize, masked: masked as usize, pairs: pairs as usize };
    let (loss, scores) = match teacher {
        Some(teacher) => teacher.gradients(engine, share, &counts, micro_batch, dropout)?,
        None => {
            let weights = LossWeights::of_counts(counts.masked, counts.pairs);
            let mut scores = PretrainingScores::default();
            for (part, is_last) in micro_batches(share, micro_batch) {
                if is_last {
                    engine.last_part();
                }
                scores += engine.pretraining_gradients_of_part(&part, weights, dropout)?;
            }
            engine.start_sums()?;
            let scores = scores.of_all(&ranks)?;
            (scores.loss(), scores)
        }
    };
    Ok((loss, scores, rows))
}

fn measure(
    engine: &mut dyn PretrainingEngine,
    held_out: &PretrainingData,
    settings: &Settings,
    step: u64,
) -> Result<EvalReport> {
    let available = held_out.examples_per_epoch() as usize;
    let wanted = available.min(settings.evaluate_on);
    let ranks = engine.ranks().clone();
    // No more at once than in a training step, for which there is memory.
    let size = match settings.micro_batch {
        0 => settings.batch,
        part => settings.batch.min(part * ranks.size()),
    };
    let mut scores = PretrainingScores::default();
    for start in (0..wanted).step_by(size) {
        crate::interrupt::poll();
        let share = ranks.share(size.min(wanted - start));
        if !share.is_empty() {
            let batch = (start + share.start) as u64..(start + share.end) as u64;
            scores += engine.pretraining_scores(&held_out.examples(batch)?)?;
        }
    }
    let scores = scores.of_all(&ranks)?;
    Ok(EvalReport::of(step, &scores))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::PretrainingOptions;
    use crate::engine::CpuEngine;
    use crate::engine::Engine;
    use crate::model::{Config, Layout, PRETRAINING};
    use crate::ranks::{Ranks, threads};
    use crate::text::{Casing, embedded};
    use crate::train::Silent;

    fn data(wordpiece: &WordPiece, max_len: usize) -> (PretrainingData, PretrainingData) {
        let options = PretrainingOptions { max_len, ..PretrainingOptions::default() };
        let paragraphs = embedded::paragraphs().take(60).map(Ok);
        PretrainingData::build_split(paragraphs, wordpiece, &options, None, 4).unwrap()
    }

    /// The parameters after four steps on sequences of 48, or of 24 until step `until`.
    fn trained(
        wordpiece: &WordPiece,
        max_len: usize,
        until: Option<u64>,
        of_new_model: bool,
    ) -> (Vec<f32>, History) {
        let config = Config::new(1, 8, 2, 12, wordpiece.vocab_size());
        let layout = Layout::new(&config, &PRETRAINING);
        let engine = CpuEngine::new(&config, &layout, layout.initialise(1)).unwrap();
        let (train, held_out) = data(wordpiece, max_len);
        let settings = Settings::new(4, 6, 1e-2);
        let mut trainer = Pretrainer::new(Box::new(engine), train, held_out, settings);
        if let Some(until) = until {
            let (data, held_out) = data(wordpiece, 24);
            let phase = FirstPhase { data, held_out, until, of_new_model };
            trainer = trainer.with_first_phase(phase);
        }
        trainer.run(None, &mut Silent, &Stop::default()).unwrap();
        let history = trainer.history().clone();
        (trainer.engine().parameters().unwrap(), history)
    }

    /// The parameters and losses after three steps with dropout, of a rank with these parts of a batch of 6.
    fn of_rank(ranks: &Ranks, micro_batch: usize) -> (Vec<f32>, History) {
        let texts = embedded::paragraphs().take(60).map(|p| Ok(p.text));
        let wordpiece = WordPiece::train(texts, 300, Casing::Uncased).unwrap();
        let mut config = Config::new(2, 8, 2, 12, wordpiece.vocab_size());
        config.hidden_dropout_prob = 0.1;
        let layout = Layout::new(&config, &PRETRAINING);
        let engine = CpuEngine::new(&config, &layout, layout.initialise(1)).unwrap();
        let mut engine = engine.with_fixed_order(true);
        engine.join(ranks).unwrap();
        let (train, held_out) = data(&wordpiece, 24);
        let settings = Settings { micro_batch, ..Settings::new(3, 6, 1e-2) };
        let mut trainer = Pretrainer::new(Box::new(engine), train, held_out, settings);
        trainer.run(None, &mut Silent, &Stop::default()).unwrap();
        let history = trainer.history().clone();
        (trainer.engine().parameters().unwrap(), history)
    }

    #[test]
    fn ranks_train_as_one_process_that_takes_their_shares_in_turn() {
        let (parameters, history) = of_rank(Ranks::ALONE, 2);
        let losses = |history: &History| history.steps.iter().map(|s| s.loss).collect::<Vec<_>>();
        std::thread::scope(|scope| {
            let ranks = threads::group(3);
            let rank = |ranks: Ranks| scope.spawn(move || of_rank(&ranks, 0));
            let all: Vec<_> = ranks.into_iter().map(rank).collect();
            for rank in all {
                let (own, of_rank) = rank.join().unwrap();
                assert!(own == parameters);
                assert_eq!(losses(&of_rank), losses(&history));
            }
        });
    }

    #[test]
    fn a_stop_on_one_rank_stops_all_and_other_settings_are_refused() {
        let run = |ranks: &Ranks, seed: u64, stop: &Stop| {
            let texts = embedded::paragraphs().take(60).map(|p| Ok(p.text));
            let wordpiece = WordPiece::train(texts, 300, Casing::Uncased).unwrap();
            let config = Config::new(1, 8, 2, 12, wordpiece.vocab_size());
            let layout = Layout::new(&config, &PRETRAINING);
            let mut engine = CpuEngine::new(&config, &layout, layout.initialise(seed)).unwrap();
            engine.join(ranks).unwrap();
            let (train, held_out) = data(&wordpiece, 24);
            let settings = Settings::new(3, 6, 1e-2);
            let mut trainer = Pretrainer::new(Box::new(engine), train, held_out, settings);
            trainer.run(None, &mut Silent, stop).map(|()| trainer.step())
        };
        std::thread::scope(|scope| {
            for ranks in threads::group(2) {
                scope.spawn(move || {
                    let stop = Stop::default();
                    if ranks.rank() == 1 {
                        stop.request();
                    }
                    assert_eq!(run(&ranks, 1, &stop).unwrap(), 0);
                    let message = run(&ranks, ranks.rank() as u64, &stop).unwrap_err().to_string();
                    let expected =
                        "the ranks disagree about the parameters (by checksum): rank 0 has ";
                    assert!(message.starts_with(expected), "{message}");
                });
            }
        });
    }

    #[test]
    fn an_evaluation_reads_the_first_sequences_once_each() {
        let texts = embedded::paragraphs().take(60).map(|p| Ok(p.text));
        let wordpiece = WordPiece::train(texts, 300, Casing::Uncased).unwrap();
        let config = Config::new(1, 8, 2, 12, wordpiece.vocab_size());
        let layout = Layout::new(&config, &PRETRAINING);
        let mut engine = CpuEngine::new(&config, &layout, layout.initialise(1)).unwrap();
        let (_, held_out) = data(&wordpiece, 24);
        assert!(held_out.examples_per_epoch() > 12);
        let together = held_out.examples(0..12).unwrap();
        let expected = EvalReport::of(7, &engine.pretraining_scores(&together).unwrap());
        for (batch, micro_batch) in [(4, 0), (5, 0), (32, 0), (12, 5)] {
            let settings = Settings::new(3, batch, 1e-2);
            let settings = Settings { evaluate_on: 12, micro_batch, ..settings };
            let report = measure(&mut engine, &held_out, &settings, 7).unwrap();
            // The sums are those of several batches.
            assert!((report.mlm_loss - expected.mlm_loss).abs() < 1e-6, "{batch} {micro_batch}");
            assert_eq!(report.mlm_accuracy, expected.mlm_accuracy, "{batch} {micro_batch}");
        }
    }

    #[test]
    fn the_first_phase_trains_and_measures_on_its_own_data_and_ends() {
        let texts = embedded::paragraphs().take(60).map(|p| Ok(p.text));
        let wordpiece = WordPiece::train(texts, 300, Casing::Uncased).unwrap();
        let (short, long) =
            (trained(&wordpiece, 24, None, true), trained(&wordpiece, 48, None, true));
        let always = trained(&wordpiece, 48, Some(4), true);
        let twice = trained(&wordpiece, 48, Some(2), true);
        assert!(always.0 == short.0 && always.1.evaluations == short.1.evaluations);
        assert!(twice.0 != short.0 && twice.0 != long.0);
        assert_eq!(twice.1.evaluations[..3], short.1.evaluations[..3]);
        assert_ne!(twice.1.evaluations[3], short.1.evaluations[3]);
        assert!(trained(&wordpiece, 48, Some(0), true).0 == long.0);

        // Rows of the position table that no sequence reaches repeat the first phase's, every 23 of its 24.
        let layout = Layout::new(&Config::new(1, 8, 2, 12, wordpiece.vocab_size()), &PRETRAINING);
        let (_, table) = layout.find("embeddings.position_embeddings.weight").unwrap();
        let row = |values: &[f32], at: usize| values[table.start + at * 8..][..8].to_vec();
        assert!(row(&twice.0, 60) == row(&twice.0, 83) && row(&twice.0, 60) != row(&twice.0, 61));
        let continued = trained(&wordpiece, 48, Some(2), false);
        for values in [&long.0, &continued.0] {
            assert!(row(values, 60) != row(values, 83));
        }
    }
}
