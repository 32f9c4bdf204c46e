//! `cloze evaluate`: a fine-tuned model measured on labelled data.

use std::path::PathBuf;

use serde_json::json;

use crate::error::Result;
use crate::hub;
use crate::model::{Config, weights};
use crate::tasks::{self, Labels, Role};

use super::engine::EngineArgs;
use super::model::Loaded;
use super::task::{TaskArgs, line};

#[derive(clap::Args)]
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
    #[command(flatten)]
    engine: EngineArgs,
    /// Print one JSON object on stdout
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args) -> Result<()> {
    let folder = hub::folder_of(&args.model)?;
    let config = Config::read(&folder.join(weights::CONFIG))?;
    let task = args.task.open(Labels::Model(&config))?;
    let mut model = Loaded::read_task(&folder, task.part(), args.engine.setup()?)?;
    let wordpiece = &model.wordpiece;
    let data = args.task.read(
        task.as_ref(),
        &args.data,
        Role::Dev,
        &config,
        wordpiece,
        None,
    )?;
    let scores = tasks::measure(model.engine.as_mut(), data.as_ref())?;
    if args.json {
        let object = json!({"task": task.name(), "rows": data.rows(), "dev": scores});
        println!("{object}");
    } else {
        println!("{} rows: {}", data.rows(), line(&scores));
    }
    Ok(())
}
