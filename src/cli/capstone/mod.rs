//! `cloze lessons capstone`: the learner's own model, the crate's defaults and ablations, each trained for the same
//! time on the same text, examined alike, and compared in one report.

mod log;
mod options;
mod plan;
mod report;
mod work;

use std::path::PathBuf;
use std::time::Instant;

use self::log::{Chosen, Log};
use self::work::Work;
use crate::cli::shared::checks::{at_least_one, positive, refuse};
use crate::cli::shared::records;
use crate::cli::shared::run_folder::Lock;
use crate::cli::shared::stdio::say;
use crate::engine::{Backend, Setup};
use crate::error::Result;
use crate::note;
use crate::notes::silently;
use crate::text::{Casing, WordPiece};
use crate::train::Stop;
use crate::train::exam::Exam;
use crate::train::pretraining::{usual_pieces, vocabulary_of};

/// The folder of the runs.
const RUNS: &str = "runs";

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The text: files and folders as `cloze pretrain` reads them [default: a small corpus of our own]
    #[arg(long, num_args = 1.., value_name = "PATH")]
    text: Vec<PathBuf>,
    /// Minutes for all runs together; 10 to 60 suit 2 cores and small models
    #[arg(long, default_value_t = 30.0, value_name = "MINUTES")]
    minutes: f64,
    /// Train no run for more steps than this, even if there is time: for a first try, or to compare after equal steps
    #[arg(long, value_name = "N")]
    max_steps: Option<u64>,
    /// Folder for the runs, their log capstone.json and report.html
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// What you do differently from the crate's defaults: options of `cloze pretrain` in quotes, such as
    /// "--mask-prob 0.3 --no-nsp"
    #[arg(long, value_name = "OPTIONS", allow_hyphen_values = true)]
    pretrain: String,
    /// What every model is then fine-tuned for: a task and options of `cloze finetune` in quotes [default: the spam
    /// filter of lesson 12, with three seeds]
    #[arg(long, value_name = "TASK OPTIONS")]
    finetune: Option<String>,
    /// One change to your run, for a run of its own: options in quotes that replace yours or are added to them, or
    /// "without --OPTION"; may be repeated [default: up to three of your options, each left out in turn]
    #[arg(long = "ablation", value_name = "CHANGE", allow_hyphen_values = true)]
    ablations: Vec<String>,
    /// Continue the capstone in --out, which was stopped
    #[arg(long)]
    resume: bool,
    /// Print the log as JSON on stdout
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    positive("--minutes", args.minutes)?;
    at_least_one([("--max-steps", args.max_steps.unwrap_or(1))])?;
    let out = &args.out;
    if out.is_file() {
        refuse!("--out {}: is a file; expected a folder", out.display());
    }
    let runs = options::choices(&args.pretrain, &args.ablations)?;
    let task = options::task(args.finetune.as_deref())?;
    let finetune = args.finetune.clone().unwrap_or_else(|| options::USUAL_TASK.to_owned());
    let text = args.text.clone();
    let (minutes, max_steps) = (args.minutes, args.max_steps);
    let chosen = Chosen { text, minutes, max_steps, finetune, runs };
    let _lock = Lock::take(&out.join("lock"), out)?;
    let (mut log, begun) = match Log::read(out)? {
        Some(_) if !args.resume => refuse!(
            "{} already holds a capstone: give --resume to continue it, or another --out",
            out.display()
        ),
        Some(log) => {
            log.continues(&chosen, out)?;
            (log, true)
        }
        None => {
            if args.resume {
                note!("{} holds no capstone: starting a new one", out.display());
            }
            let machine = records::machine(Setup::from(Backend::Auto));
            (Log::new(chosen, records::command(), machine.rows), false)
        }
    };
    let started = Instant::now();
    let wordpiece = vocabulary(args, begun)?;
    let exam = Exam::new(&args.text, &wordpiece)?;
    let vocabulary = out.join("vocab.txt");
    let work = Work { text: &args.text, vocabulary: &vocabulary, task: &task, exam: &exam };
    if !begun {
        log.held_out_tokens = exam.tokens();
        log.vocabulary_seconds = started.elapsed().as_secs_f64();
    }
    if !(begun || plan(args, &mut log, &work)?) || !train(args, &mut log, &work)? {
        note!("stopped: the same command with --resume continues the capstone");
        return Ok(());
    }
    if log.seconds() > 60.0 * log.minutes {
        note!(
            "the capstone took longer than planned: its steps were slower than those of the trials"
        );
    }
    match args.json {
        true => say!("{}", log.json()),
        false => {
            say!("{}", report::text(&log))?;
            say!("report in {}", out.join(report::REPORT).display())
        }
    }
}

/// Returns the vocabulary of all runs: that of the capstone that has begun, or a new one.
fn vocabulary(args: &Args, begun: bool) -> Result<WordPiece> {
    let path = args.out.join("vocab.txt");
    if begun && path.is_file() {
        return WordPiece::from_file(&path, None);
    }
    let pieces = usual_pieces(!args.text.is_empty());
    note!("training a vocabulary of up to {pieces} pieces for all runs");
    let wordpiece = vocabulary_of(&args.text, pieces, Casing::Uncased)?;
    wordpiece.save(&args.out)?;
    Ok(wordpiece)
}

/// Plans the steps of all runs and writes the first log: a refusal leaves none. Returns false if a stop was requested.
fn plan(args: &Args, log: &mut Log, work: &Work<'_>) -> Result<bool> {
    let stop = Stop::on_signals()?;
    let (share, most) = (log.share(), log.max_steps.unwrap_or(u64::MAX));
    for run in &mut log.runs {
        let (title, words) = (&run.choice.title, &run.choice.words);
        note!("{title}: measuring the speed");
        let pace = silently(|| plan::measure(work, words, (share, most), &args.out))?;
        let Some(pace) = pace.filter(|_| !stop.requested()) else {
            return Ok(false);
        };
        let steps = pace.plan(title, share, most)?;
        let (step, beside) = (1e3 * pace.step, pace.beside);
        note!("{title}: {steps} steps of {step:.1} ms, and {beside:.1} s beside them");
        (run.steps, run.trial_seconds) = (steps, pace.trial);
    }
    log.write(&args.out)?;
    Ok(true)
}

/// Does all runs that are not done. Returns false if a stop was requested.
fn train(args: &Args, log: &mut Log, work: &Work<'_>) -> Result<bool> {
    let count = log.runs.len();
    for index in 0..count {
        let run = &mut log.runs[index];
        if run.results.is_some() {
            continue;
        }
        note!("run {} of {count}: {}", index + 1, run.choice.title);
        let began = Instant::now();
        let folder = args.out.join(RUNS).join(&run.choice.name);
        let results = work.run(&run.choice.words, run.steps, &folder)?;
        run.seconds += began.elapsed().as_secs_f64();
        let stopped = results.is_none();
        run.results = results;
        log.write(&args.out)?;
        report::write(log, &args.out, index + 1 < count && !stopped)?;
        if stopped {
            return Ok(false);
        }
    }
    Ok(true)
}
