//! `cloze evaluate`: measures a fine-tuned model on labelled data.

use std::path::PathBuf;

use serde_json::json;

use crate::cli::print::say;
use crate::error::Result;
use crate::tasks::{self, Role};

use super::checks::at_least_one;
use super::engine::EngineArgs;
use super::task::{Opened, TaskArgs, line, with_negative_numbers};

#[derive(clap::Args)]
#[command(mut_args(with_negative_numbers))]
pub struct Args {
    #[command(flatten)]
    task: TaskArgs,
    /// File of labelled rows in the task's official layout
    #[arg(long, value_name = "FILE")]
    data: PathBuf,
    /// Model folder that `cloze finetune` or transformers wrote for the task, or the name
    /// of one on the Hub
    #[arg(long, value_name = "DIR|NAME")]
    model: PathBuf,
    /// Measure on the first N rows only
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    #[command(flatten)]
    engine: EngineArgs,
    /// Print one JSON object on stdout
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args) -> Result<()> {
    at_least_one("--limit", args.limit.unwrap_or(1) as u64)?;
    let setup = args.engine.setup()?;
    let Opened { task, mut engine, data } =
        args.task.open_model(&args.model, &args.data, Role::Dev, args.limit, setup)?;
    let scores = tasks::measure(engine.as_mut(), data.as_ref())?;
    if args.json {
        let object = json!({"task": task.name(), "rows": data.rows(), "dev": scores});
        say!("{object}")?;
    } else {
        say!("{} rows: {}", data.rows(), line(&scores))?;
    }
    Ok(())
}
