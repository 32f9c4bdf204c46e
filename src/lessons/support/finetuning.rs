//! Helpers of the lessons on fine-tuning, 12 to 15: they read labelled texts, measure models, draw, fetch a larger
//! model, and compute the runs with which an answer is compared. Those on spans are in
//! [`spans`](super::spans). [`run_live`] is for lessons 16 to 18.

use std::collections::BTreeSet;
use std::fmt::{self, Write as _};
use std::path::{Path, PathBuf};

use dfdx::nn::modules::Linear;
use dfdx::prelude::{Const, Cpu, NoneTape, TensorFromVec};

use crate::data::bad::BadRows;
use crate::data::glue;
use crate::data::{Examples, Packed, Sequences, Targets, bundled};
use crate::engine::optimizer::Update;
use crate::engine::{CpuEngine, Engine, TaskEngine, inference, objective};
use crate::error::{Error, Result};
use crate::eval::{Metric, Scores, best, softmax};
use crate::hub;
use crate::model::weights::Model;
use crate::model::{Bert, Dropout, Rows};
use crate::tasks::{self, Reading, Role};
use crate::text::WordPiece;
use crate::train::finetune::{Settings, TaskReport, TaskStep, gradients};
use crate::train::{Finetuner, Finetuning, Progress, Schedule, Stop};
use crate::view::{LineChart, LiveChart};

/// The larger model of the optional cells, by its name on the Hugging Face Hub: 6 layers, 384 wide, 22 million
/// parameters, 91 MB.
pub const LARGER: &str = "sentence-transformers/all-MiniLM-L6-v2";

/// Longest sequence of labelled texts, in tokens.
const MAX_LEN: usize = 128;

/// A pre-trained encoder.
#[derive(Debug, Clone)]
pub struct Pretrained {
    /// Its folder.
    pub folder: PathBuf,
    /// Its tokenizer.
    pub wordpiece: WordPiece,
    /// Whether it is [`LARGER`], not cloze-small.
    pub fetched: bool,
    /// Which model it is, and why, in a sentence.
    pub note: String,
}

/// Returns [`LARGER`] if `download` is true and the model is in the cache or can be fetched, otherwise cloze-small.
///
/// # Errors
/// If the files of the model can't be read.
pub fn larger_model(download: bool) -> Result<Pretrained> {
    if !download {
        return pretrained(None, "This is cloze-small: `DOWNLOAD` is false.".into());
    }
    match hub::folder_of(Path::new(LARGER)) {
        Ok(folder) => pretrained(Some(folder), format!("This is {LARGER}.")),
        Err(error) => {
            pretrained(None, format!("This is cloze-small, because {LARGER} is not here: {error}."))
        }
    }
}

fn pretrained(folder: Option<PathBuf>, note: String) -> Result<Pretrained> {
    let fetched = folder.is_some();
    let folder = folder.map_or_else(|| bundled::folder(bundled::SMALL), Ok)?;
    let wordpiece = WordPiece::from_file(&WordPiece::file_in(&folder), None)?;
    Ok(Pretrained { folder, wordpiece, fetched, note })
}

/// Returns the linear layer of a model with the parameters `name.weight`, (`O`, `I`), and `name.bias`, (`O`,).
///
/// # Errors
/// If the model has no parameters of these names and sizes.
pub fn linear<const I: usize, const O: usize>(
    model: &Model,
    name: &str,
) -> Result<Linear<I, O, f32, Cpu>> {
    let take = |part: &str, size: usize| {
        let name = format!("{name}.{part}");
        let values = model.parameter(&name)?.to_vec();
        match values.len() == size {
            true => Ok(values),
            false => Err(Error::Failed(format!("{name} has {} numbers, not {size}", values.len()))),
        }
    };
    let dev = Cpu::default();
    Ok(Linear {
        weight: dev.tensor_from_vec(take("weight", O * I)?, (Const::<O>, Const::<I>)),
        bias: dev.tensor_from_vec(take("bias", O)?, (Const::<O>,)),
    })
}

/// Width of cloze-tiny.
const H: usize = 128;

/// Texts that have passed the encoder of a model of the size of cloze-tiny, the layers of its head for two classes, and
/// the logits that are right.
pub struct HeadCase {
    /// The last hidden states, (tokens, H).
    pub rows: Rows<H, f32, Cpu>,
    /// The rows of the texts' first tokens.
    pub firsts: Vec<u32>,
    /// The rows of the texts' last tokens.
    pub lasts: Vec<u32>,
    /// The pooler's layer.
    pub pooler: Linear<H, H, f32, Cpu>,
    /// The layer of the classes.
    pub classifier: Linear<H, 2, f32, Cpu>,
    /// The engine's logits, two for each text.
    pub logits: Vec<f32>,
}

impl HeadCase {
    /// Runs a model over texts.
    ///
    /// # Errors
    /// If the model has another size or another head.
    pub fn new(model: &Model, wordpiece: &WordPiece, texts: &[&str]) -> Result<Self> {
        let batch = packed(wordpiece, texts);
        let Model { config, layout, values, .. } = model;
        let bert = Bert::<H, 2, 64, 512, f32, Cpu>::build(config, layout, values, &Cpu::default())?;
        Ok(Self {
            rows: bert.encode::<NoneTape>(&batch, None, &mut |_, _| {}),
            firsts: batch.pooled_rows(false).collect(),
            lasts: batch.ranges().map(|range| range.end as u32 - 1).collect(),
            pooler: linear(model, "pooler.dense")?,
            classifier: linear(model, "classifier")?,
            logits: CpuEngine::new(config, layout, values.clone())?.task_logits(&batch)?,
        })
    }
}

/// Returns texts as one batch, each between `[CLS]` and `[SEP]`.
fn packed(wordpiece: &WordPiece, texts: &[&str]) -> Packed {
    let mut batch = Packed::default();
    for (number, text) in (0..).zip(texts) {
        let ids = wordpiece.encode_with_special(text).ids;
        batch.push(number, &ids, &vec![0; ids.len()]);
    }
    batch
}

/// Reads at most `limit` rows of a file with a header. `columns` names the columns of the text, of a second text if
/// there is one, and of the label: `text,label`. The classes are those of the file `train`, in alphabetical order.
///
/// # Errors
/// If a file can't be read, a column is missing, or a row is malformed.
pub fn read_texts(
    columns: &str,
    train: &Path,
    file: &Path,
    wordpiece: &WordPiece,
    limit: usize,
) -> Result<Examples> {
    let reading = Reading {
        wordpiece,
        max_len: MAX_LEN,
        limit: Some(limit),
        split: None,
        bad: &mut BadRows::refused(),
        notes: &mut Vec::new(),
    };
    let rows = tasks::your_own(columns, train)?.read(file, Role::Dev, reading)?;
    Ok(rows.examples().clone())
}

/// Labelled texts to train on, and held-out texts to measure on.
#[derive(Debug, Clone)]
pub struct Split {
    /// The texts to train on.
    pub train: Examples,
    /// The held-out texts.
    pub held_out: Examples,
}

impl Split {
    /// Reads at most `limit` rows of `train.tsv` in `folder`, and `dev.tsv`. For `columns` see [`read_texts`].
    ///
    /// # Errors
    /// As for [`read_texts`].
    pub fn read(columns: &str, folder: &Path, wordpiece: &WordPiece, limit: usize) -> Result<Self> {
        let [train, dev] = ["train.tsv", "dev.tsv"].map(|file| folder.join(file));
        Ok(Self {
            train: read_texts(columns, &train, &train, wordpiece, limit)?,
            held_out: read_texts(columns, &train, &dev, wordpiece, usize::MAX)?,
        })
    }
}

/// Returns the learning rates of a whole run over `data`: their peak, the steps of warm-up and all steps.
pub fn schedule(data: &Examples, settings: &Settings) -> Schedule {
    let Settings { seed, batch, .. } = *settings;
    let batches = |epoch| data.sequences.epoch(seed, epoch, batch).len() as u64;
    let total: u64 = (0..settings.epochs).map(batches).sum();
    let warmup = (total as f64 * settings.warmup) as u64;
    Schedule::linear(settings.learning_rate, warmup, total)
}

fn classes(data: &Examples) -> Result<&[u32]> {
    match &data.targets {
        Targets::Classes(gold) => Ok(gold),
        _ => Err(Error::Failed("these texts have no classes".into())),
    }
}

/// Returns the class that a model gives to each text, and the right one.
///
/// # Errors
/// If the texts have no classes, or an output of the model is not finite.
pub fn answers(engine: &mut dyn TaskEngine, data: &Examples) -> Result<(Vec<u32>, Vec<u32>)> {
    let logits = inference::logits(engine, &data.sequences)?;
    let predicted = logits.values().chunks(logits.outputs).map(best).collect();
    Ok((predicted, classes(data)?.to_vec()))
}

/// Returns the mean cross-entropy of a classifier, in nats, and its accuracy in percent.
///
/// # Errors
/// If the texts have no classes, or an output of the model is not finite.
pub fn measure(engine: &mut dyn TaskEngine, data: &Examples) -> Result<(f64, f64)> {
    let gold = classes(data)?;
    let logits = inference::logits(engine, &data.sequences)?;
    let mut values = logits.values().to_vec();
    let scored = objective::cross_entropy(&mut values, logits.outputs, gold, 1.0);
    let rows = gold.len().max(1) as f64;
    Ok((scored.loss / rows, 100.0 * scored.correct as f64 / rows))
}

/// Returns a line for every task of GLUE: its name, its classes, its metrics.
pub fn glue_table() -> String {
    let mut table = String::new();
    for task in &glue::TASKS {
        let answers =
            task.classes().map_or("a number from 0 to 5".into(), |names| names.join(", "));
        let metrics: Vec<&str> = Metric::of_glue(task).iter().map(|metric| metric.name()).collect();
        let _ = writeln!(table, "{:>6}: {answers:<42} by {}", task.name, metrics.join(" and "));
    }
    table
}

/// Returns the texts that got a wrong class, each after the name of that class. Row by row, `predicted` and `gold` are
/// the classes of the texts in the first column of `file`.
///
/// # Errors
/// If the file can't be read.
pub fn mistakes(
    file: &Path,
    names: &[&str],
    predicted: &[u32],
    gold: &[u32],
) -> Result<Vec<String>> {
    let text = std::fs::read_to_string(file).map_err(|e| Error::io(file, e))?;
    let rows = text.lines().skip(1).zip(predicted.iter().zip(gold));
    let wrong = rows.filter(|(_, (predicted, gold))| predicted != gold);
    let mistake = |(line, (predicted, _)): (&str, (&u32, &u32))| {
        let name = names.get(*predicted as usize).copied().unwrap_or("?");
        let text = line.split('\t').next().unwrap_or_default().replace(". ", ".\n    ");
        format!("called {name}:\n    {text}")
    };
    Ok(wrong.map(mistake).collect())
}

/// Returns each text's probability of the second class, in percent.
///
/// # Errors
/// If a text can't be tokenised, or an output of the model is not finite.
pub fn second_class(
    engine: &mut dyn TaskEngine,
    wordpiece: &WordPiece,
    texts: &[&str],
) -> Result<Vec<f64>> {
    let texts: Vec<(&str, Option<&str>)> = texts.iter().map(|&text| (text, None)).collect();
    let sequences = Sequences::tokenise(wordpiece, &texts, MAX_LEN)?;
    let logits = inference::logits(engine, &sequences)?;
    let rows = logits.values().chunks(logits.outputs);
    Ok(rows.map(|row| 100.0 * softmax(row)[1]).collect())
}

/// The state of a run after an epoch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Epoch {
    /// The epoch's number, from 1.
    pub number: f64,
    /// Mean loss of its batches, in nats.
    pub train_loss: f64,
    /// Mean loss on the held-out texts, in nats.
    pub loss: f64,
    /// Accuracy on the held-out texts, in percent.
    pub accuracy: f64,
}

impl Epoch {
    /// Measures a model after an epoch, counted from 0, whose batches had these losses.
    fn end(
        epoch: u32,
        losses: &[f64],
        engine: &mut dyn TaskEngine,
        held_out: &Examples,
    ) -> Result<Self> {
        let (loss, accuracy) = measure(engine, held_out)?;
        let train_loss = losses.iter().sum::<f64>() / losses.len().max(1) as f64;
        Ok(Self { number: f64::from(epoch + 1), train_loss, loss, accuracy })
    }
}

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { number, train_loss, loss, accuracy } = self;
        write!(f, "epoch {number}: loss {train_loss:.3} in training, {loss:.3} held out; ")?;
        write!(f, "{accuracy:.0} % right")
    }
}

/// A function that trains for one epoch, counted from 0, and returns the loss of every batch.
pub type TrainEpoch = fn(&mut CpuEngine, &Examples, &Settings, &Schedule, u32) -> Result<Vec<f64>>;

/// Fine-tunes a copy of `model`, epoch by epoch with `train_epoch`. Returns it, and its state after each epoch.
///
/// # Errors
/// If `train_epoch` fails, the texts have no classes, or an output of the model is not finite.
pub fn fine_tune(
    model: &Model,
    texts: &Split,
    settings: &Settings,
    train_epoch: TrainEpoch,
) -> Result<(CpuEngine, Vec<Epoch>)> {
    let mut engine = CpuEngine::new(&model.config, &model.layout, model.values.clone())?;
    let schedule = schedule(&texts.train, settings);
    let mut epochs = Vec::new();
    for epoch in 0..settings.epochs {
        let losses = train_epoch(&mut engine, &texts.train, settings, &schedule, epoch)?;
        epochs.push(Epoch::end(epoch, &losses, &mut engine, &texts.held_out)?);
    }
    Ok((engine, epochs))
}

/// Returns the chart of the two losses over a run.
pub fn losses(title: &str, epochs: &[Epoch]) -> LineChart {
    let line = |value: fn(&Epoch) -> f64| -> Vec<(f64, f64)> {
        epochs.iter().map(|epoch| (epoch.number, value(epoch))).collect()
    };
    LineChart::new(title)
        .axes("epoch", "cross-entropy (nats)")
        .line("training", &line(|epoch| epoch.train_loss))
        .line("held out", &line(|epoch| epoch.loss))
        .reference("ln 2", 2f64.ln())
}

/// Draws the loss of every step, if it has a chart; ignores everything else.
struct Curve(Option<LiveChart>);

impl TaskReport for Curve {
    fn step(&mut self, step: &TaskStep) {
        if let Some(chart) = &mut self.0 {
            chart.push("training batch", step.step as f64, step.loss);
        }
    }

    fn skipped(&mut self, _: u64, _: &str) {}

    fn epoch(&mut self, _: u32, _: u64, _: &mut dyn TaskEngine) -> Result<()> {
        Ok(())
    }
}

/// Fine-tunes a copy of `model` by the crate's [`Finetuner`] while `chart` shows the loss, if there is one. Returns
/// the parameters and the loss of every step.
///
/// # Errors
/// If the examples don't fit the model's head, or the run diverges.
pub fn finetune(
    model: &Model,
    examples: &Examples,
    settings: &Settings,
    chart: Option<LineChart>,
) -> Result<(Vec<f32>, Vec<f64>)> {
    let engine = CpuEngine::new(&model.config, &model.layout, model.values.clone())?;
    let mut run = Finetuner::new(Box::new(engine), examples, settings.clone())?;
    run.run(None, &mut Curve(chart.map(LiveChart::new)), &Stop::default())?;
    let losses = run.outcome().steps.iter().map(|step| step.loss).collect();
    Ok((run.engine().parameters()?, losses))
}

/// A mistake in a loop of fine-tuning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Slip {
    ConstantRate,
    LateSchedule,
    RestartedSteps,
    SameOrder,
    NoClipping,
}

/// The mistakes, each with the advice for it.
const SLIPS: [(Slip, &str); 5] = [
    (
        Slip::ConstantRate,
        "Your learning rate is the same in every step: ask `schedule.rate(step)`.",
    ),
    (Slip::LateSchedule, "Your schedule is one step late: steps count from 1."),
    (
        Slip::RestartedSteps,
        "Your steps begin again at 1 in the second epoch, and so does the warm-up. They continue through all \
         epochs.",
    ),
    (
        Slip::SameOrder,
        "Your second epoch has the order of the first: pass `epoch` to `sequences.epoch`.",
    ),
    (Slip::NoClipping, "Your gradients are not clipped: set `max_norm: recipe.max_norm`."),
];

/// Returns the advice for the mistake whose run has these losses, if it is a known one.
///
/// # Errors
/// If the examples don't fit the model's head.
pub fn slip(
    losses: &[f64],
    model: &Model,
    data: &Examples,
    settings: &Settings,
) -> Result<Option<&'static str>> {
    for (slip, advice) in SLIPS {
        let with = slipped(model, data, settings, slip)?;
        if losses.len() == with.len() && losses.iter().zip(with).all(|(a, b)| (a - b).abs() < 1e-6)
        {
            return Ok(Some(advice));
        }
    }
    Ok(None)
}

/// Returns the losses of a run with a mistake.
fn slipped(model: &Model, data: &Examples, settings: &Settings, slip: Slip) -> Result<Vec<f64>> {
    let mut engine = CpuEngine::new(&model.config, &model.layout, model.values.clone())?;
    let schedule = schedule(data, settings);
    let (mut losses, mut done) = (Vec::new(), 0);
    for epoch in 0..settings.epochs {
        let order = if slip == Slip::SameOrder { 0 } else { epoch };
        if slip == Slip::RestartedSteps {
            done = 0;
        }
        for batch in data.sequences.epoch(settings.seed, order, settings.batch) {
            done += 1;
            let dropout = Dropout { seed: settings.seed, step: done as u32 };
            losses.push(gradients(&mut engine, data, &batch, 0, dropout)?.0);
            let learning_rate = match slip {
                Slip::ConstantRate => schedule.peak,
                Slip::LateSchedule => schedule.rate(done - 1),
                _ => schedule.rate(done),
            };
            let max_norm = match slip {
                Slip::NoClipping => f64::INFINITY,
                _ => settings.max_norm,
            };
            let optimizer = settings.optimizer;
            engine.update(&Update { optimizer, learning_rate, step: done, max_norm })?;
        }
    }
    Ok(losses)
}

/// Writes `train.tsv` in `folder`: messages, each in a line `label: text`, followed by the rows of the same file in
/// `others`. Copies `dev.tsv` from there. Returns the number of messages.
///
/// # Errors
/// If a line has no label, or a file can't be read or written.
pub fn write_messages(folder: &Path, messages: &str, others: &Path) -> Result<usize> {
    let mut rows = String::from("text\tlabel\n");
    let lines = messages.lines().map(str::trim).filter(|line| !line.is_empty());
    let mut count = 0;
    for line in lines {
        let Some((label, text)) = line.split_once(": ") else {
            return Err(Error::Failed(format!("{line:?} has no label: expected `ham: …`")));
        };
        let _ = writeln!(rows, "{text}\t{label}");
        count += 1;
    }
    let read = |file: PathBuf| std::fs::read_to_string(&file).map_err(|e| Error::io(&file, e));
    for line in read(others.join("train.tsv"))?.lines().skip(1) {
        let _ = writeln!(rows, "{line}");
    }
    std::fs::create_dir_all(folder).map_err(|e| Error::io(folder, e))?;
    for (name, text) in [("train.tsv", rows), ("dev.tsv", read(others.join("dev.tsv"))?)] {
        let file = folder.join(name);
        std::fs::write(&file, text).map_err(|e| Error::io(&file, e))?;
    }
    Ok(count)
}

/// Returns the same texts with the number of words of the file's first column, in tens, as the answer.
///
/// # Errors
/// If the file can't be read.
pub fn word_counts(file: &Path, examples: &Examples) -> Result<Examples> {
    let text = std::fs::read_to_string(file).map_err(|e| Error::io(file, e))?;
    let words = text.lines().skip(1).take(examples.len()).map(|line| {
        let message = line.split('\t').next().unwrap_or_default();
        message.split_whitespace().count() as f32 / 10.0
    });
    let targets = Targets::Values(words.collect());
    Ok(Examples { sequences: examples.sequences.clone(), targets })
}

/// Returns the accuracy in percent, on the file `dev`, of a rule that says "entailment" where a large enough share of
/// the question's words stands in the sentence. The share is the one that is best on the file `train`. Both files have
/// the columns of QNLI: index, question, sentence, label.
///
/// # Errors
/// If a file can't be read.
pub fn overlap_accuracy(train: &Path, dev: &Path) -> Result<f64> {
    let (train, dev) = (overlaps(train)?, overlaps(dev)?);
    let right = |rows: &[(f64, bool)], least: f64| {
        rows.iter().filter(|(share, answers)| (*share >= least) == *answers).count()
    };
    let mut best = (0, f64::INFINITY);
    for &(share, _) in &train {
        let count = right(&train, share);
        if count > best.0 || (count == best.0 && share < best.1) {
            best = (count, share);
        }
    }
    Ok(100.0 * right(&dev, best.1) as f64 / dev.len().max(1) as f64)
}

/// Returns the share of the question's words that the sentence has, and whether it answers, for each row.
fn overlaps(file: &Path) -> Result<Vec<(f64, bool)>> {
    let text = std::fs::read_to_string(file).map_err(|e| Error::io(file, e))?;
    let rows = text.lines().skip(1).map(|line| {
        let fields: Vec<&str> = line.split('\t').collect();
        let field = |index: usize| fields.get(index).copied().unwrap_or_default();
        (overlap(field(1), field(2)), field(3) == "entailment")
    });
    Ok(rows.collect())
}

/// Returns the share of the different words of `question` that `sentence` has, in any case.
fn overlap(question: &str, sentence: &str) -> f64 {
    let (asked, said) = (words(question), words(sentence));
    asked.intersection(&said).count() as f64 / asked.len().max(1) as f64
}

/// Returns the different words of a text, in lower case.
pub fn words(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !c.is_alphanumeric() && c != '\'');
    words.filter(|word| !word.is_empty()).map(str::to_lowercase).collect()
}

/// Runs a fine-tuning, and draws a live chart of its loss. Returns the scores on its development file by name.
///
/// # Errors
/// If the training diverges.
pub fn run_live(name: &str, run: &mut Finetuning) -> Result<Scores> {
    let mut live = LiveChart::new(LineChart::new(name).axes("step", "loss"));
    run.run(|progress| {
        if let Progress::Step { step, loss, .. } = progress {
            live.push("loss of the batch", *step as f64, *loss);
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::sequences::BatchSize;
    use crate::model::Part;
    use crate::tasks::{Labels, Options};
    use dfdx::nn::Module;

    fn tiny(part: Part) -> (Model, WordPiece) {
        let folder = bundled::folder(bundled::TINY).unwrap();
        let wordpiece = WordPiece::from_file(&WordPiece::file_in(&folder), None).unwrap();
        (Model::read(&folder, &part.with_encoder(), Some(1)).unwrap(), wordpiece)
    }

    #[test]
    fn the_larger_model_is_cloze_small_if_nothing_may_be_fetched() {
        let Pretrained { folder, wordpiece, fetched, note } = larger_model(false).unwrap();
        assert!(!fetched && note.contains("cloze-small"), "{note}");
        let model = Model::read(&folder, &Part::SequenceClassifier(2).with_encoder(), Some(1));
        let config = model.unwrap().config;
        assert!(config.hidden_size > H);
        assert_eq!(config.vocab_size, wordpiece.vocab_size());
    }

    fn engine(model: &Model) -> CpuEngine {
        CpuEngine::new(&model.config, &model.layout, model.values.clone()).unwrap()
    }

    fn set(name: &str, file: &str) -> PathBuf {
        bundled::folder(name).unwrap().join(file)
    }

    fn spam(wordpiece: &WordPiece, limit: usize) -> Examples {
        let train = set("spam", "train.tsv");
        read_texts("text,label", &train, &train, wordpiece, limit).unwrap()
    }

    #[test]
    fn layers_are_read_with_their_sizes() {
        let (model, wordpiece) = tiny(Part::SequenceClassifier(2));
        let layer = linear::<128, 2>(&model, "classifier").unwrap();
        assert_eq!(layer.weight.as_vec(), model.parameter("classifier.weight").unwrap());
        let error = linear::<128, 3>(&model, "classifier").err().unwrap().to_string();
        assert!(error.contains("has 256 numbers, not 384"), "{error}");
        let batch = packed(&wordpiece, &["A door.", "Two open doors."]);
        assert_eq!(batch.pooled_rows(false).collect::<Vec<_>>(), [0, batch.cu_seqlens[1]]);
    }

    #[test]
    fn a_head_has_a_case() {
        let (model, wordpiece) = tiny(Part::SequenceClassifier(2));
        let case = HeadCase::new(&model, &wordpiece, &["A door.", "Two open doors."]).unwrap();
        assert_eq!((case.firsts[0], case.firsts[1]), (0, case.lasts[0] + 1));
        let first = case.rows.as_vec()[..H].to_vec();
        let row = Cpu::default().tensor_from_vec(first, (1, Const::<H>));
        let logits = case.classifier.forward(case.pooler.forward(row).tanh()).as_vec();
        assert_eq!(case.logits.len(), 4);
        assert!(logits.iter().zip(case.logits).all(|(a, b)| (a - b).abs() < 1e-4));
    }

    #[test]
    fn a_run_calls_the_epoch_function() {
        let (model, wordpiece) = tiny(Part::SequenceClassifier(2));
        let folder = bundled::folder("spam").unwrap();
        let texts = Split::read("text,label", &folder, &wordpiece, 32).unwrap();
        assert_eq!((texts.train.len(), texts.held_out.len()), (32, 100));
        let settings =
            Settings { epochs: 2, batch: BatchSize::Examples(16), ..Settings::default() };
        let (mut engine, epochs) =
            fine_tune(&model, &texts, &settings, |engine, _, _, rates, epoch| {
                assert_eq!(rates.total, 4);
                let zeros = vec![0.0; engine.parameters()?.len()];
                engine.set_parameters(&zeros)?;
                Ok(vec![f64::from(epoch), 3.0])
            })
            .unwrap();
        assert_eq!(epochs.iter().map(|epoch| epoch.train_loss).collect::<Vec<_>>(), [1.5, 2.0]);
        assert!((epochs[1].loss - 2f64.ln()).abs() < 1e-6, "{}", epochs[1]);
        assert_eq!(measure(&mut engine, &texts.held_out).unwrap().0, epochs[1].loss);
    }

    #[test]
    fn pairs_and_single_texts_are_read_from_the_same_file() {
        let (_, wordpiece) = tiny(Part::SequenceClassifier(2));
        let train = set("answerable", "train.tsv");
        let read = |columns: &str| read_texts(columns, &train, &train, &wordpiece, 20).unwrap();
        let (pairs, sentences) = (read("question,sentence,label"), read("sentence,label"));
        assert_eq!((pairs.len(), &pairs.targets), (20, &sentences.targets));
        assert!(pairs.sequences.tokens() > sentences.sequences.tokens());
    }

    #[test]
    fn a_classifier_is_measured() {
        let (model, wordpiece) = tiny(Part::SequenceClassifier(2));
        let (data, mut engine) = (spam(&wordpiece, 12), engine(&model));
        let (predicted, gold) = answers(&mut engine, &data).unwrap();
        let (loss, accuracy) = measure(&mut engine, &data).unwrap();
        assert!((accuracy - 100.0 * crate::eval::accuracy(&predicted, &gold)).abs() < 1e-9);
        assert!((loss - 2f64.ln()).abs() < 0.2, "{loss}");
        let epoch = Epoch::end(3, &[1.0, 2.0], &mut engine, &data).unwrap();
        assert_eq!((epoch.number, epoch.train_loss), (4.0, 1.5));
        assert_eq!((epoch.loss, epoch.accuracy), (loss, accuracy));
        assert!(epoch.to_string().starts_with("epoch 4: loss 1.500 in training, "), "{epoch}");
        assert!(losses("Losses", &[epoch]).text().contains("held out"));
        let percent = second_class(&mut engine, &wordpiece, &["You won!"]).unwrap();
        // The head is untrained.
        assert!((20.0..80.0).contains(&percent[0]), "{percent:?}");
        let counts = word_counts(&set("spam", "train.tsv"), &data).unwrap();
        assert!(matches!(&counts.targets, Targets::Values(v) if v.len() == 12 && v[0] > 0.0));
        assert!(measure(&mut engine, &counts).is_err());
    }

    #[test]
    fn tasks_and_mistakes_are_listed() {
        assert!(glue_table().contains("cola: "), "{}", glue_table());
        let file = set("spam", "dev.tsv");
        let wrong = mistakes(&file, &["ham", "spam"], &[0, 1, 0], &[0, 0, 0]).unwrap();
        assert_eq!(wrong.len(), 1);
        assert!(wrong[0].starts_with("called spam:\n    "), "{wrong:?}");
    }

    #[test]
    fn every_slip_is_recognised_and_a_right_run_is_none() {
        let (model, wordpiece) = tiny(Part::SequenceClassifier(2));
        let data = spam(&wordpiece, 40);
        let settings = Settings {
            epochs: 2,
            batch: BatchSize::Examples(16),
            learning_rate: 1e-3,
            warmup: 0.4,
            seed: 1,
            ..Settings::default()
        };
        let plan = schedule(&data, &settings);
        assert_eq!((plan.warmup, plan.total), (2, 6));
        let (parameters, right) = finetune(&model, &data, &settings, None).unwrap();
        assert_eq!((parameters.len(), right.len()), (model.values.len(), 6));
        assert_eq!(slip(&right, &model, &data, &settings).unwrap(), None);
        for (wrong, advice) in SLIPS {
            let losses = slipped(&model, &data, &settings, wrong).unwrap();
            assert_eq!(slip(&losses, &model, &data, &settings).unwrap(), Some(advice));
        }
    }

    #[test]
    fn messages_stand_in_front_of_the_other_rows() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("new");
        let others = bundled::folder("spam").unwrap();
        let messages = "\n    ham: Dear member: pay.\n    spam: You won!\n";
        assert_eq!(write_messages(&folder, messages, &others).unwrap(), 2);
        let text = std::fs::read_to_string(folder.join("train.tsv")).unwrap();
        assert!(text.starts_with("text\tlabel\nDear member: pay.\tham\nYou won!\tspam\n"));
        assert_eq!(text.lines().count(), 303);
        let dev = |folder: &Path| std::fs::read_to_string(folder.join("dev.tsv")).unwrap();
        assert_eq!(dev(&folder), dev(&others));
        assert!(write_messages(&folder, "no label", &others).is_err());
    }

    #[test]
    fn words_in_common_are_a_weak_rule() {
        assert_eq!(overlap("Who drives the van?", "The van is green."), 0.5);
        assert_eq!(overlap("", "The van."), 0.0);
        assert!(words("Isn't the RED, red van?").iter().eq(["isn't", "red", "the", "van"]));
        let [train, dev] = ["train.tsv", "dev.tsv"].map(|file| set("answerable", file));
        let accuracy = overlap_accuracy(&train, &dev).unwrap();
        assert!((50.0..65.0).contains(&accuracy), "{accuracy}");
    }

    #[test]
    fn a_live_run_returns_its_scores() {
        let file = bundled::folder("endings").unwrap().join("val.csv");
        let task = tasks::open("swag", &Options::default(), Labels::Training(&file)).unwrap();
        let folder = bundled::folder(bundled::TINY).unwrap();
        let builder = Finetuning::builder(task, folder).train(&file).dev(&file).epochs(1);
        let mut run = builder.learning_rate(1e-9).build().unwrap();
        let scores = run_live("a test", &mut run).unwrap();
        assert!((0.0..=1.0).contains(&scores["accuracy"].as_f64().unwrap()));
    }
}
