//! `cloze evaluate`: a fine-tuned model measured on labelled data.

use std::path::PathBuf;

use serde_json::json;

use crate::error::Result;
use crate::hub;
use crate::train::finetune;

use super::engine::EngineArgs;
use super::glue;
use super::model::Loaded;

#[derive(clap::Args)]
pub struct Args {
    /// The task
    #[arg(value_parser = glue::names())]
    task: String,
    /// File of labelled rows in the task's official layout
    #[arg(long, value_name = "FILE")]
    data: PathBuf,
    /// Model folder that `cloze finetune` or transformers wrote for the task, or the name
    /// of one on the Hub
    #[arg(long, value_name = "DIR|NAME")]
    model: PathBuf,
    /// Longest sequence in tokens; longer texts are cut
    #[arg(long, default_value_t = 128, value_name = "N")]
    max_len: usize,
    #[command(flatten)]
    engine: EngineArgs,
    /// Print one JSON object on stdout
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args) -> Result<()> {
    let task = glue::task(&args.task)?;
    let folder = hub::folder_of(&args.model)?;
    let mut model = Loaded::read_with(&folder, &glue::parts(task), args.engine.setup()?)?;
    let max_len = glue::max_len(model.engine.config(), args.max_len)?;
    let data = glue::labelled(task, &args.data, &model.wordpiece, max_len, None)?;
    let metrics = finetune::evaluate(model.engine.as_mut(), &data, task.metrics)?;
    if args.json {
        let object = json!({
            "task": task.name,
            "rows": data.targets.len(),
            "dev": glue::json(&metrics),
        });
        println!("{object}");
    } else {
        println!("{} rows: {}", data.targets.len(), glue::line(&metrics));
    }
    Ok(())
}
