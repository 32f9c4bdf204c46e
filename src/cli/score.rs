//! `cloze score`: scores files of predictions as the official scripts do.

use std::path::PathBuf;

use crate::cli::shared::checks::not_an_input;
use crate::cli::shared::stdio::say;
use crate::data::squad::{Misplaced, Squad};
use crate::error::{Error, Result};
use crate::eval::squad::{self, Figures, NoAnswer, Predictions, Scores};
use crate::files::write_atomic;
use crate::note;

#[derive(clap::Args)]
pub(crate) struct Args {
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
    /// Probability or score of having no answer for each question, such as null_odds.json; the best
    /// threshold is found
    #[arg(long, value_name = "FILE")]
    na_prob: Option<PathBuf>,
    /// Treat a prediction as empty if its question's score is larger
    #[arg(long, requires = "na_prob", default_value_t = 1.0, value_name = "X")]
    na_prob_thresh: f64,
    /// File for the scores as JSON
    #[arg(long, value_name = "FILE")]
    out_file: Option<PathBuf>,
    /// Print one JSON object on stdout: the official script's keys
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: Args) -> Result<()> {
    let Set::Squad(args) = &args.set;
    if let Some(out) = &args.out_file {
        let inputs = [("--data", &args.data), ("--predictions", &args.predictions)];
        let inputs = inputs.into_iter().chain(args.na_prob.iter().map(|path| ("--na-prob", path)));
        not_an_input("--out-file", out, inputs.map(|(name, path)| (name, path.as_path())))?;
    }
    let data = Squad::read(&args.data, Misplaced::Keep)?;
    if let Some((_, question)) = data.questions().find(|(_, q)| q.answers.is_none()) {
        let message = format!("question {:?} has no answers to compare with", question.id);
        return Err(Error::file(&args.data, message));
    }
    let predictions = squad::read_texts(&args.predictions)?;
    let scores = args.na_prob.as_deref().map(squad::read_numbers);
    let no_answer =
        scores.transpose()?.map(|scores| NoAnswer { scores, threshold: args.na_prob_thresh });
    check_ids(&data, &predictions, args)?;
    let scores = squad::score(&data, &predictions, no_answer.as_ref()).map_err(|error| {
        // All questions have answers, so a score is missing.
        Error::file(args.na_prob.as_ref().unwrap_or(&args.data), error.to_string())
    })?;
    if let Some(first) = scores.missing.first() {
        let (file, missing) = (args.predictions.display(), scores.missing.len());
        let total = scores.all.total;
        note!(
            "{file}: {missing} of {total} questions have no prediction and score 0, the first is {first:?}"
        );
    }
    let json = serde_json::Value::from(scores.json()).to_string();
    if let Some(path) = &args.out_file {
        write_atomic(path, format!("{json}\n").as_bytes())?;
    }
    match args.json {
        true => say!("{json}"),
        false => say!("{}", table(&scores).trim_end()),
    }
}

/// Prints how many predictions are for other questions; returns an error if all of them are.
fn check_ids(data: &Squad, predictions: &Predictions, args: &SquadArgs) -> Result<()> {
    let ids: std::collections::HashSet<&str> =
        data.questions().map(|(_, q)| q.id.as_str()).collect();
    let all = predictions.keys().map(String::as_str);
    let unknown: Vec<&str> = all.filter(|id| !ids.contains(id)).collect();
    let Some(first) = unknown.iter().min() else {
        return Ok(());
    };
    let data = args.data.display();
    if unknown.len() == predictions.len() {
        let message = format!("not one of its question ids is in {data}; one is {first:?}");
        return Err(Error::file(&args.predictions, message));
    }
    note!(
        "{}: {} predictions for questions that {data} doesn't have are left out, one is {first:?}",
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
