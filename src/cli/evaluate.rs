//! `cloze evaluate`: measures a fine-tuned model on labelled data.

use std::path::PathBuf;

use serde_json::json;

use crate::cli::shared::checks::at_least_one;
use crate::cli::shared::stdio::say;
use crate::cli::shared::task::{FinetunedArgs, line, with_negative_numbers};
use crate::error::Result;
use crate::tasks::{self, Role};

#[derive(clap::Args)]
#[command(mut_args(with_negative_numbers))]
pub(crate) struct Args {
    #[command(flatten)]
    model: FinetunedArgs,
    /// File of labelled rows in the task's official layout
    #[arg(long, value_name = "FILE")]
    data: PathBuf,
    /// Measure on the first N rows only
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    /// Print one JSON object on stdout
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: Args) -> Result<()> {
    at_least_one([("--limit", args.limit.unwrap_or(1) as u64)])?;
    let mut opened = args.model.open(&args.data, Role::Dev, args.limit)?;
    let scores = tasks::measure(opened.engine.as_mut(), opened.data.as_ref())?;
    let (task, rows) = (opened.task.name(), opened.data.rows());
    if args.json {
        return say!("{}", json!({"task": task, "rows": rows, "dev": scores}));
    }
    say!("{rows} rows: {}", line(&scores))
}
