//! `cloze evaluate`: measures a fine-tuned model on labelled data.

use std::path::PathBuf;

use serde_json::{Value, json};

use crate::cli::shared::checks::at_least_one;
use crate::cli::shared::classes;
use crate::cli::shared::ranks::Shareable;
use crate::cli::shared::stdio::say;
use crate::cli::shared::task::{FinetunedArgs, line, with_negative_numbers};
use crate::error::Result;
use crate::eval::Mistake;
use crate::hub::Part;
use crate::tasks::Role;
use crate::train::task::measure_classes;

#[derive(clap::Args)]
#[command(mut_args(with_negative_numbers))]
pub(crate) struct Args {
    #[command(flatten)]
    model: FinetunedArgs,
    /// File of labelled rows in the task's official layout; for your own data also hub:USER/NAME, a data set
    /// of the Hub, of which the test files are read, or else the validation files
    #[arg(long, value_name = "FILE|hub:NAME")]
    data: PathBuf,
    /// Measure on the first N rows only
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    /// List the N wrongly classified rows of which the model is surest, at most 20
    #[arg(long, default_value_t = 0, value_name = "N")]
    errors: usize,
    /// Print one JSON object on stdout
    #[arg(long)]
    json: bool,
}

impl Args {
    pub(crate) fn shareable(&mut self) -> Shareable<'_> {
        Shareable { engine: self.model.engine, out: None }
    }
}

pub(crate) fn run(args: Args) -> Result<()> {
    at_least_one([("--limit", args.limit.unwrap_or(1) as u64)])?;
    let data = match args.model.task.data_set("--data", &args.data)? {
        Some(set) if set.has(Part::Test) => set.get(Part::Test)?,
        Some(set) => set.get(Part::Validation)?,
        None => args.data,
    };
    let mut opened = args.model.open(&data, Role::Dev, args.limit)?;
    let (scores, report) = measure_classes(opened.engine.as_mut(), opened.data.as_ref())?;
    let (task, rows) = (opened.task.name(), opened.data.rows());
    if args.json {
        let mut object = json!({"task": task, "rows": rows, "dev": scores});
        if let (Some(report), Value::Object(object)) = (&report, &mut object) {
            object.extend(report.to_json());
        }
        return say!("{object}");
    }
    say!("{rows} rows: {}", line(&scores))?;
    let Some(report) = report else {
        return Ok(());
    };
    say!("{}", classes::text(&report))?;
    for error in report.errors.iter().take(args.errors) {
        let Mistake { index, label, prediction, probability, text, pair } = error;
        let pair = pair.as_ref().map(|pair| format!(" | {pair}")).unwrap_or_default();
        say!("row {index}: {label}, predicted as {prediction} ({probability:.4}): {text}{pair}")?;
    }
    Ok(())
}
