//! `cloze pretrain`: from text to a trained BERT.

mod told;

use std::path::{Path, PathBuf};

use clap::ValueEnum;
use serde_json::json;

use crate::data::{PretrainingData, PretrainingOptions};
use crate::engine::memory::Work;
use crate::error::{Error, Result};
use crate::model::{Config, Layout, PRETRAINING, Size};
use crate::text::{Casing, Paragraph, Paragraphs, WordPiece, embedded};
use crate::train::checkpoint::{self, Identity};
use crate::train::optimizer::Rule;
use crate::train::pretrain::State;
use crate::train::{EvalReport, FirstPhase, Pretrainer, Records, Report, Settings, Stop};
use crate::view::pretraining_chart;

use super::engine::TrainingEngineArgs;
use super::memory;
use super::progress::TrainingBar;

/// One document in this many is held out for evaluation.
const HELD_OUT: u64 = 10;

#[derive(clap::Args)]
pub struct Args {
    /// Text files (.txt, .txt.gz) and folders of them; without, a small corpus of our own is used
    #[arg(long, num_args = 1.., value_name = "PATH")]
    text: Vec<PathBuf>,
    /// Folder for the model, its vocabulary and the checkpoints
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// tiny, mini, small, medium, minilm, base, large, or the path of a config.json
    #[arg(long, default_value = "tiny", value_name = "SIZE|CONFIG")]
    size: String,
    /// vocab.txt or tokenizer.json; without, a vocabulary is trained from the text
    #[arg(long, value_name = "FILE")]
    vocab: Option<PathBuf>,
    /// Entries of the vocabulary that is trained where none is given [default: 8000; without
    /// --text 2000]
    #[arg(long, value_name = "N", conflicts_with = "vocab")]
    vocab_size: Option<usize>,
    /// Keep case and accents
    #[arg(long)]
    cased: bool,
    /// Optimizer steps
    #[arg(long, default_value_t = 12000)]
    steps: u64,
    /// Longest sequence in tokens [default: 128; without --text 40]
    #[arg(long)]
    seq: Option<usize>,
    /// Longest sequence in the first four fifths of the steps; as --seq for no such phase
    /// [default: 40 for models narrower than 768, else as --seq]
    #[arg(long, value_name = "SEQ")]
    first_seq: Option<usize>,
    /// Sequences a step
    #[arg(long, default_value_t = 16)]
    batch: usize,
    /// Sequences that go through the model at once; the gradients of a step's parts are added up
    #[arg(long, value_name = "N")]
    micro_batch: Option<usize>,
    /// What turns gradients into updates
    #[arg(long, value_enum, default_value_t = Rule::Adamw)]
    optimizer: Rule,
    /// Highest learning rate, reached after a tenth of the steps [default: 1e-4 from 768 wide on,
    /// 0.192 / H for narrower models: 1.5e-3 for tiny]
    #[arg(long)]
    lr: Option<f64>,
    /// Dropout in the encoder [default: 0.1, for models narrower than 768 0, as a configuration
    /// file says]
    #[arg(long, value_name = "P")]
    dropout: Option<f64>,
    /// Standard deviation of the initial weights [default: 0.02 from 768 wide on, 0.9 / sqrt(H) for
    /// narrower models, as a configuration file says]
    #[arg(long, value_name = "SIGMA")]
    initializer_range: Option<f64>,
    #[command(flatten)]
    engine: TrainingEngineArgs,
    /// Mask all pieces of a word together
    #[arg(long)]
    whole_word: bool,
    /// Key of every random choice of the run
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Steps between two checkpoints; one is always written at the end
    #[arg(long, default_value_t = 500, value_name = "N")]
    save_every: u64,
    /// Steps between two evaluations on held-out documents
    #[arg(long, value_name = "N")]
    eval_every: Option<u64>,
    /// Continue the run in DIR
    #[arg(long)]
    resume: bool,
    /// Start anew in a folder that already holds a run
    #[arg(long, conflicts_with = "resume")]
    overwrite: bool,
    /// Print one JSON object on stdout
    #[arg(long)]
    json: bool,
}

/// Defaults that depend on the text. Our own corpus is small and regular: short sequences are all
/// it needs.
struct Recipe {
    vocab_size: usize,
    seq: usize,
}

const FOR_TEXT: Recipe = Recipe {
    vocab_size: 8000,
    seq: 128,
};

const FOR_EMBEDDED: Recipe = Recipe {
    vocab_size: 2000,
    seq: 40,
};

/// The width from which models are started and trained as the paper's; narrower ones learn sooner
/// with other settings.
const PAPER_WIDTH: usize = 768;
/// Longest sequence of the first phase of narrow models.
const FIRST_SEQ: usize = 40;

pub fn run(args: Args) -> Result<()> {
    args.check()?;
    let seq = args.seq.unwrap_or(args.recipe().seq);
    let started = std::time::Instant::now();
    let state = args.previous_state()?;
    let wordpiece = args.wordpiece(state.is_some())?;
    let options = PretrainingOptions {
        max_len: seq,
        whole_word: args.whole_word,
        seed: args.seed,
        ..PretrainingOptions::default()
    };
    let config = args.config(&wordpiece, seq)?;
    let narrow = config.hidden_size < PAPER_WIDTH;
    let lr = args.lr.unwrap_or(if narrow {
        0.192 / config.hidden_size as f64
    } else {
        1e-4
    });
    let first_seq = args
        .first_seq
        .unwrap_or(if narrow { FIRST_SEQ } else { seq });
    // The token files live in a folder that goes away with this value.
    let cache = tempfile::tempdir_in(&args.out).map_err(|e| Error::io(&args.out, e))?;
    let paragraphs = args.paragraphs()?;
    let (data, held_out) = PretrainingData::build_split(
        paragraphs,
        &wordpiece,
        &options,
        Some(cache.path()),
        HELD_OUT,
    )?;
    eprintln!(
        "{} tokens in {} documents to train on, {} tokens in {} documents held out; {} examples an epoch",
        data.tokens(),
        data.documents(),
        held_out.tokens(),
        held_out.documents(),
        data.examples_per_epoch(),
    );
    let uniform = (wordpiece.vocab_size() as f64).ln();
    // Of the text that is trained on: a few held-out documents repeat themselves more and would give
    // a smaller figure, which no model that knows only the text's word counts could reach.
    let unigram = data.unigram_entropy();
    eprintln!(
        "loss of a uniform guess: ln({}) = {uniform:.3}; of a guess from the text's token counts alone (unigram entropy): {unigram:.3}",
        wordpiece.vocab_size(),
    );

    let layout = Layout::new(&config, &PRETRAINING);
    let sequences = args.micro_batch.map_or(args.batch, |n| n.min(args.batch));
    let work = Work {
        rows: sequences * seq,
        sequences,
        longest: seq,
    };
    memory::tell(
        &config,
        &layout,
        args.engine.setup()?,
        work,
        "--micro-batch",
    )?;
    let mut about = args.about(&config, &layout, lr, seq, first_seq)?;
    about
        .tables
        .insert(1, told::text(&args.text, &data, &held_out));
    about.charts = told::charts(uniform, unigram);
    let engine = args
        .engine
        .engine(&config, &layout, layout.initialise(args.seed))?;
    let mut settings = Settings::new(args.steps, args.batch, lr);
    settings.save_every = args.save_every;
    settings.micro_batch = args.micro_batch.unwrap_or(0);
    settings.optimizer.rule = args.optimizer;
    if let Some(every) = args.eval_every {
        settings.evaluate_every = every;
    }
    let mut trainer = Pretrainer::new(engine, data, held_out, settings);
    if first_seq < seq {
        let options = PretrainingOptions {
            max_len: first_seq,
            ..options
        };
        let folder = cache.path().join("first");
        std::fs::create_dir(&folder).map_err(|e| Error::io(&folder, e))?;
        let (data, held_out) = PretrainingData::build_split(
            args.paragraphs()?,
            &wordpiece,
            &options,
            Some(&folder),
            HELD_OUT,
        )?;
        trainer = trainer.with_first_phase(FirstPhase {
            data,
            held_out,
            until: args.steps * 4 / 5,
        });
    }
    let resumed = state.as_ref().map(|state| state.step);
    if let Some(state) = state {
        args.continue_from(&mut trainer, state)?;
    }

    let stop = Stop::on_signals()?;
    let mut records = Records::new(args.out.join("trainer"), about.clone());
    records.begin(None, args.steps, resumed);
    let mut bar = TrainingBar::new(args.steps, trainer.step());
    let trained = trainer.run(Some(&args.out), &mut (&mut bar, &mut records), &stop);
    bar.finish();
    trained?;
    let evaluation = match trainer.history().evaluations.last() {
        Some(last) if last.step == trainer.step() => *last,
        _ => trainer.evaluate()?,
    };
    records.evaluated(&evaluation);
    records.end();
    args.card(about, &trainer, &evaluation).write(&args.out)?;
    args.summary(
        &mut trainer,
        &evaluation,
        uniform,
        unigram,
        started.elapsed().as_secs_f64(),
    )
}

impl Args {
    fn check(&self) -> Result<()> {
        for (name, value) in [
            ("--steps", self.steps),
            ("--batch", self.batch as u64),
            ("--micro-batch", self.micro_batch.unwrap_or(1) as u64),
        ] {
            if value == 0 {
                return Err(Error::Usage(format!("{name} 0: at least 1 is needed")));
            }
        }
        for (name, value) in [
            ("--lr", self.lr),
            ("--initializer-range", self.initializer_range),
        ] {
            if let Some(value) = value
                && !(value > 0.0 && value.is_finite())
            {
                return Err(Error::Usage(format!(
                    "{name} {value}: a positive number is needed"
                )));
            }
        }
        if let (Some(seq), Some(first)) = (self.seq, self.first_seq)
            && first > seq
        {
            return Err(Error::Usage(format!(
                "--first-seq {first}: at most the length of --seq, {seq}, is needed"
            )));
        }
        if let Some(p) = self.dropout
            && !(0.0..1.0).contains(&p)
        {
            return Err(Error::Usage(format!(
                "--dropout {p}: a number from 0 to below 1 is needed"
            )));
        }
        std::fs::create_dir_all(&self.out).map_err(|e| Error::io(&self.out, e))
    }

    /// The state of the run that `--out` holds, where it is to be continued.
    fn previous_state(&self) -> Result<Option<State>> {
        if self.resume {
            let state = State::read(&self.out)?;
            if state.is_none() {
                eprintln!(
                    "{} holds no checkpoint: starting a fresh run",
                    self.out.display()
                );
            }
            return Ok(state);
        }
        if !self.overwrite && checkpoint::path(&self.out).exists() {
            return Err(Error::Usage(format!(
                "{} already holds a run: give --resume to continue it, --overwrite to start anew, or another --out",
                self.out.display()
            )));
        }
        Ok(None)
    }

    fn paragraphs(&self) -> Result<Box<dyn Iterator<Item = Result<Paragraph>>>> {
        Ok(if self.text.is_empty() {
            Box::new(embedded::paragraphs().map(Ok))
        } else {
            Box::new(Paragraphs::new(&self.text)?)
        })
    }

    /// The vocabulary: given, left by the run that is continued, or trained; kept in `--out`.
    fn wordpiece(&self, continued: bool) -> Result<WordPiece> {
        let casing = if self.cased {
            Casing::Cased
        } else {
            Casing::Uncased
        };
        let wordpiece = match &self.vocab {
            Some(path) => WordPiece::from_file(path, self.cased.then_some(Casing::Cased))?,
            None if continued => return WordPiece::from_file(&self.out, None),
            None => {
                let size = self.vocab_size.unwrap_or(self.recipe().vocab_size);
                eprintln!("training a vocabulary of up to {size} pieces");
                let texts = self.paragraphs()?.map(|p| p.map(|p| p.text));
                WordPiece::train(texts, size, casing)?
            }
        };
        wordpiece.save(&self.out)?;
        Ok(wordpiece)
    }

    fn recipe(&self) -> &'static Recipe {
        if self.text.is_empty() {
            &FOR_EMBEDDED
        } else {
            &FOR_TEXT
        }
    }

    fn config(&self, wordpiece: &WordPiece, seq: usize) -> Result<Config> {
        let path = Path::new(&self.size);
        let mut config = if self.size.ends_with(".json") {
            Config::read(path)?
        } else {
            let mut config = self.size.parse::<Size>()?.config(wordpiece.vocab_size());
            // 0.02 suits the base model. Narrower ones hardly move for hundreds of steps with it:
            // 800 steps of a tiny one filled 46 % of held-out blanks with 0.08, and 27 % with 0.02.
            if config.hidden_size < PAPER_WIDTH {
                config.initializer_range = 0.9 / (config.hidden_size as f64).sqrt();
            }
            // Dropout slows learning; without it the held-out loss of a tiny model on one novel was
            // still falling after 9,600 steps.
            if config.hidden_size < PAPER_WIDTH {
                (
                    config.hidden_dropout_prob,
                    config.attention_probs_dropout_prob,
                ) = (0.0, 0.0);
            }
            config
        };
        if let Some(p) = self.dropout {
            (
                config.hidden_dropout_prob,
                config.attention_probs_dropout_prob,
            ) = (p, p);
        }
        if let Some(deviation) = self.initializer_range {
            config.initializer_range = deviation;
        }
        config.vocab_size = wordpiece.vocab_size();
        config.pad_token_id = wordpiece.special().pad;
        if seq > config.max_position_embeddings {
            return Err(Error::Usage(format!(
                "--seq {seq}: the model has only {} positions",
                config.max_position_embeddings
            )));
        }
        Ok(config)
    }

    fn continue_from(&self, trainer: &mut Pretrainer, state: State) -> Result<()> {
        let (was, now) = (said(&state.run.identity), said(&trainer.identity()));
        let mut differences = was.iter().zip(&now).filter(|(was, now)| was != now);
        if let Some(((what, was), (_, now))) = differences.next() {
            return Err(Error::Usage(format!(
                "the run in {} can't be continued: {what} was {was} and is {now} now",
                self.out.display()
            )));
        }
        let expected = trainer.engine().layout().total();
        if state.parameters.len() != expected {
            return Err(Error::Usage(format!(
                "the run in {} can't be continued: its model has {} parameters, this --size {expected}",
                self.out.display(),
                state.parameters.len()
            )));
        }
        eprintln!("continuing after step {}", state.step);
        trainer.resume(state)
    }

    fn summary(
        &self,
        trainer: &mut Pretrainer,
        evaluation: &EvalReport,
        uniform: f64,
        unigram: f64,
        seconds: f64,
    ) -> Result<()> {
        let stopped = trainer.step() < self.steps;
        let history = trainer.history();
        let chart = pretraining_chart(history, uniform, unigram);
        chart.save(self.out.join("trainer").join("loss.svg"))?;
        let mean = |values: &mut dyn Iterator<Item = f64>| {
            let values: Vec<f64> = values.collect();
            values.iter().sum::<f64>() / values.len().max(1) as f64
        };
        let loss_first = history.steps.first().map_or(0.0, |s| s.loss);
        // One batch is noisy: the last loss is the mean of the last ten.
        let loss_last = mean(&mut history.steps.iter().rev().take(10).map(|s| s.loss));
        let tokens_per_s = mean(&mut history.steps.iter().map(|s| s.tokens_per_s));
        if self.json {
            let object = json!({
                "steps": trainer.step(),
                "stopped": stopped,
                "loss_first": loss_first,
                "loss_last": loss_last,
                "tokens_per_s": tokens_per_s,
                "seconds": seconds,
                "uniform_loss": uniform,
                "unigram_entropy": unigram,
                "eval": {
                    "mlm_accuracy": evaluation.mlm_accuracy,
                    "mlm_loss": evaluation.mlm_loss,
                    "nsp_accuracy": evaluation.nsp_accuracy,
                    "nsp_loss": evaluation.nsp_loss,
                },
            });
            println!("{object}");
        } else {
            println!(
                "{} steps in {seconds:.0} s, {tokens_per_s:.0} tokens/s; loss {loss_first:.3} -> {loss_last:.3}",
                trainer.step()
            );
            println!(
                "held out: masked LM loss {:.3} (uniform {uniform:.3}, unigram {unigram:.3}), accuracy {:.1} %; next sentence accuracy {:.1} %",
                evaluation.mlm_loss,
                100.0 * evaluation.mlm_accuracy,
                100.0 * evaluation.nsp_accuracy,
            );
            println!(
                "model in {0}, its curves in {0}/trainer/report.html",
                self.out.display()
            );
        }
        if stopped {
            eprintln!(
                "stopped after step {} of {}: the same command with --resume goes on from there",
                trainer.step(),
                self.steps
            );
        }
        Ok(())
    }
}

/// A value of an option as it is given.
fn option_name(value: impl ValueEnum) -> String {
    let value = value.to_possible_value();
    value.map_or_else(String::new, |value| value.get_name().to_owned())
}

/// What makes a run this run, in the words of the command line.
fn said(identity: &Identity) -> [(&'static str, String); 9] {
    [
        ("--seed", identity.seed.to_string()),
        ("--batch", identity.batch.to_string()),
        ("--seq", identity.max_len.to_string()),
        ("--first-seq", identity.first_max_len.to_string()),
        ("--whole-word", identity.whole_word.to_string()),
        ("the vocabulary's size", identity.vocab_size.to_string()),
        (
            "the number of tokens in the text",
            identity.tokens.to_string(),
        ),
        (
            "the order of the parameters in memory",
            identity.order.to_string(),
        ),
        ("--optimizer", option_name(identity.optimizer)),
    ]
}
