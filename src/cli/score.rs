//! `cloze score`: scores files of predictions as the official scripts do, whatever program wrote them.

use std::path::{Path, PathBuf};

use crate::cli::print::say;
use crate::data::squad::{Misplaced, Squad};
use crate::error::{Error, Result};
use crate::eval::squad::{self, Figures, NoAnswer, Predictions, Scores};
use crate::files::write_atomic;
use crate::note;

#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    set: Set,
}

#[derive(clap::Subcommand)]
enum Set {
    /// SQuAD 1.1 and 2.0: exact match and F1
    Squad(SquadArgs),
}

#[derive(clap::Args)]
struct SquadArgs {
    /// Questions with their answers, such as dev-v1.1.json
    #[arg(long, value_name = "FILE")]
    data: PathBuf,
    /// Predicted answers: {"question id": "text"}
    #[arg(long, value_name = "FILE")]
    predictions: PathBuf,
    /// Scores of having no answer, such as null_odds.json; the best threshold is searched for
    #[arg(long, value_name = "FILE")]
    na_prob: Option<PathBuf>,
    /// Take a prediction as empty if its score is larger
    #[arg(long, requires = "na_prob", default_value_t = 1.0, value_name = "X")]
    na_prob_thresh: f64,
    /// Also write the scores as JSON to a file
    #[arg(long, value_name = "FILE")]
    out_file: Option<PathBuf>,
    /// Print one JSON object on stdout: the official script's keys
    #[arg(long)]
    json: bool,
}

/// Runs the subcommand.
pub fn run(args: Args) -> Result<()> {
    match args.set {
        Set::Squad(args) => run_squad(&args),
    }
}

fn run_squad(args: &SquadArgs) -> Result<()> {
    let data = Squad::read(&args.data, Misplaced::Keep)?;
    if let Some((_, question)) = data.questions().find(|(_, q)| q.answers.is_none()) {
        let message = format!("question {:?} has no answers to compare with", question.id);
        return Err(Error::file(&args.data, message));
    }
    let predictions = squad::read_texts(&args.predictions)?;
    let no_answer = match &args.na_prob {
        None => None,
        Some(path) => {
            Some(NoAnswer { scores: squad::read_numbers(path)?, threshold: args.na_prob_thresh })
        }
    };
    unknown(&data, &predictions, args)?;
    let scores = squad::score(&data, &predictions, no_answer.as_ref()).map_err(|error| {
        // The data has its answers, so a number is missing.
        let path: &Path = args.na_prob.as_deref().unwrap_or(&args.data);
        Error::file(path, error.to_string())
    })?;
    if let Some(first) = scores.missing.first() {
        note!(
            "{}: {} of {} questions have no prediction and score 0, the first is {first:?}",
            args.predictions.display(),
            scores.missing.len(),
            scores.all.total
        );
    }
    let json = serde_json::Value::from(scores.json()).to_string();
    if let Some(path) = &args.out_file {
        write_atomic(path, format!("{json}\n").as_bytes())?;
    }
    if args.json {
        say!("{json}")?;
    } else {
        say!("{}", table(&scores).trim_end())?;
    }
    Ok(())
}

/// Reports predictions for other questions, which are ignored.
///
/// # Errors
/// If no prediction is for a question of the data: the two files don't belong together.
fn unknown(data: &Squad, predictions: &Predictions, args: &SquadArgs) -> Result<()> {
    let ids: std::collections::HashSet<&str> =
        data.questions().map(|(_, q)| q.id.as_str()).collect();
    let mut unknown: Vec<&str> =
        predictions.keys().map(String::as_str).filter(|id| !ids.contains(id)).collect();
    unknown.sort_unstable();
    let Some(first) = unknown.first() else {
        return Ok(());
    };
    let data = args.data.display();
    if unknown.len() == predictions.len() {
        let message = format!("not one of its question ids is in {data}; one is {first:?}");
        return Err(Error::file(&args.predictions, message));
    }
    note!(
        "{}: {} predictions for questions that {data} doesn't have are ignored, one is {first:?}",
        args.predictions.display(),
        unknown.len()
    );
    Ok(())
}

fn table(scores: &Scores) -> String {
    let mut text = format!("{:<16}{:>9}{:>9}{:>9}\n", "", "questions", "exact", "F1");
    let rows = [
        ("all", Some(scores.all)),
        ("with answer", scores.has_answer),
        ("without", scores.no_answer),
    ];
    for (name, figures) in rows {
        if let Some(Figures { exact, f1, total }) = figures {
            text += &format!("{name:<16}{total:>9}{exact:>9.2}{f1:>9.2}\n");
        }
    }
    if let Some([exact, f1]) = scores.best {
        let (e, f) = (exact.score, f1.score);
        text += &format!("{:<25}{e:>9.2}{f:>9.2}\n", "at best threshold");
        let shown = [exact, f1].map(|best| match best.threshold {
            Some(threshold) => format!("{threshold:.4}"),
            None => "none".to_owned(),
        });
        text += &format!("{:<25}{:>9}{:>9}\n", "which is", shown[0], shown[1]);
    }
    text
}
