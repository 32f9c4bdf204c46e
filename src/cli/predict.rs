//! `cloze predict`: prints a fine-tuned model's answers in the task's official layout or as JSON lines.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::cli::shared::stdio::still_read;
use crate::cli::shared::task::{FinetunedArgs, with_negative_numbers};
use crate::engine::inference::logits;
use crate::error::Result;
use crate::files::{create_folder, write_atomic};
use crate::note;
use crate::tasks::{Answers, Role};

#[derive(clap::Args)]
#[command(mut_args(with_negative_numbers))]
pub(crate) struct Args {
    #[command(flatten)]
    model: FinetunedArgs,
    /// File in the task's official layout, with or without labels; - for standard input (the first line
    /// then decides whether your own data is JSONL, CSV or TSV)
    #[arg(long, value_name = "FILE")]
    input: PathBuf,
    /// Folder for the submission files under their official names [default: print the main file on
    /// stdout]
    #[arg(long, value_name = "DIR", conflicts_with = "json")]
    out: Option<PathBuf>,
    /// Print one JSON object for each row on stdout, with probabilities
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: Args) -> Result<()> {
    let mut opened = args.model.open(&args.input, Role::Test, None)?;
    let sequences = &opened.data.examples().sequences;
    let answers = opened.data.answers(&logits(opened.engine.as_mut(), sequences)?)?;
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
        let mut lines = answers.lines.iter();
        lines.try_for_each(|line| writeln!(out, "{line}"))
    } else {
        let main = answers.documents.first();
        main.map_or(Ok(()), |(_, text)| out.write_all(text.as_bytes()))
    };
    still_read(written).map(|_| ())
}
