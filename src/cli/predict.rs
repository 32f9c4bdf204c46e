//! `cloze predict`: prints a fine-tuned model's answers in the task's official layout or as JSON lines.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::engine::inference::logits;
use crate::error::Result;
use crate::files::{create_folder, write_atomic};
use crate::note;
use crate::tasks::{Answers, Role};

use super::engine::EngineArgs;
use super::print::still_read;
use super::task::{Opened, TaskArgs, with_negative_numbers};

#[derive(clap::Args)]
#[command(mut_args(with_negative_numbers))]
pub struct Args {
    #[command(flatten)]
    task: TaskArgs,
    /// File in the task's official layout, with or without labels; - for standard input, where the first
    /// line decides whether your own data is JSONL, CSV or TSV
    #[arg(long, value_name = "FILE")]
    input: PathBuf,
    /// Model folder that `cloze finetune` or transformers wrote for the task, or the name
    /// of one on the Hub
    #[arg(long, value_name = "DIR|NAME")]
    model: PathBuf,
    /// Folder for the submission files under their official names [default: print the main file on
    /// stdout]
    #[arg(long, value_name = "DIR", conflicts_with = "json")]
    out: Option<PathBuf>,
    #[command(flatten)]
    engine: EngineArgs,
    /// Print one JSON object for each row on stdout, with probabilities
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args) -> Result<()> {
    let setup = args.engine.setup()?;
    let Opened { mut engine, data, .. } =
        args.task.open_model(&args.model, &args.input, Role::Test, None, setup)?;
    let logits = logits(engine.as_mut(), &data.examples().sequences)?;
    let answers = data.answers(&logits)?;
    match &args.out {
        Some(folder) => save(&answers, folder),
        None => print(&answers, args.json),
    }
}

fn save(answers: &Answers, folder: &Path) -> Result<()> {
    create_folder(folder)?;
    for (name, text) in &answers.documents {
        let path = folder.join(name);
        write_atomic(&path, text.as_bytes())?;
        note!("{}", path.display());
    }
    Ok(())
}

fn print(answers: &Answers, json: bool) -> Result<()> {
    let mut out = io::stdout().lock();
    let written = if json {
        answers.lines.iter().try_for_each(|line| writeln!(out, "{line}"))
    } else {
        let main = answers.documents.first();
        main.map_or(Ok(()), |(_, text)| out.write_all(text.as_bytes()))
    };
    still_read(written).map(|_| ())
}
