//! The report of a capstone: the curves of all runs, their scores side by side, and what the differences can say.

use std::path::Path;

use serde_json::Value;

use super::RUNS;
use super::log::{Log, Results, Run};
use crate::error::Result;
use crate::files::replace;
use crate::train::exam::Mark;
pub(super) use crate::train::record::REPORT;
use crate::train::record::lines_in;
use crate::view::page::{Page, Table};
use crate::view::style::number;
use crate::view::{BarChart, LineChart};

/// Writes the report of the runs so far; `running` is whether more follow.
pub(super) fn write(log: &Log, folder: &Path, running: bool) -> Result<()> {
    let page = page(log, folder, running)?;
    replace(&folder.join(REPORT), page.html().as_bytes())
}

fn page(log: &Log, folder: &Path, running: bool) -> Result<Page> {
    let (done, planned) = (log.done().count(), log.runs.len());
    let state = match (done < planned, running) {
        (true, true) => "the next one is training",
        (true, false) => "stopped",
        (false, _) => "finished",
    };
    let minutes = log.seconds() / 60.0;
    Ok(Page {
        title: "Capstone: my BERT and the crate's".into(),
        status: format!(
            "{done} of {planned} runs, {state}; {minutes:.1} of {} minutes (begun {})",
            log.minutes, log.date
        ),
        running,
        done: done as f64 / planned as f64,
        figures: figures(log),
        charts: if done > 0 { vec![curves(log, folder)?] } else { Vec::new() },
        pictures: bars(log),
        tables: tables(log),
        command: log.command.clone(),
    })
}

/// Returns the curves of the held-out loss while the models trained.
fn curves(log: &Log, folder: &Path) -> Result<LineChart> {
    let chart = LineChart::new("Held-out loss during training, each run on its own masks")
        .axes("step", "cross-entropy (nats a predicted token)");
    log.done().try_fold(chart, |chart, (run, _)| {
        let lines = lines_in(&folder.join(RUNS).join(&run.choice.name).join("trainer"))?;
        let point = |line: &serde_json::Map<String, Value>| {
            Some((line.get("step")?.as_f64()?, line.get("eval")?.get("mlm_loss")?.as_f64()?))
        };
        let points: Vec<(f64, f64)> = lines.iter().filter_map(point).collect();
        Ok(chart.line(&run.choice.title, &points))
    })
}

/// Returns the scores as bars, the learner's in the colour of its curve.
fn bars(log: &Log) -> Vec<String> {
    let chart = |title: &str, unit: &str, value: fn(&Results) -> Option<f64>| {
        let bars = log.done().filter_map(|(run, results)| Some((run, value(results)?)));
        let bars: Vec<(&Run, f64)> = bars.collect();
        if bars.is_empty() {
            return None;
        }
        let chart =
            bars.into_iter().fold(BarChart::new(title).unit(unit), |chart, (run, value)| {
                match run.choice.name == "yours" {
                    true => chart.bar(&run.choice.title, value),
                    false => chart.beside(&run.choice.title, value),
                }
            });
        Some(chart.svg())
    };
    let metric = metric(log).unwrap_or_default();
    let exam = chart("Exam: masked tokens predicted", "%", |it| {
        it.exam.map(|mark| (1000.0 * mark.mlm_accuracy).round() / 10.0)
    });
    let title = format!("Fine-tuned: {metric}");
    let task = chart(&title, "", |it| score(it).map(|(score, _)| (1e4 * score).round() / 1e4));
    exam.into_iter().chain(task).collect()
}

fn metric(log: &Log) -> Option<&str> {
    log.done().next().map(|(_, results)| results.metric.as_str())
}

/// Returns the score that counts in fine-tuning, with its deviation over several seeds.
fn score(results: &Results) -> Option<(f64, Option<f64>)> {
    let of = |scores: &crate::eval::Scores| scores.get(&results.metric).and_then(Value::as_f64);
    Some((of(&results.task)?, results.deviation.as_ref().and_then(of)))
}

/// Formats the score that counts in fine-tuning.
fn score_text(results: &Results) -> String {
    match score(results) {
        Some((score, Some(deviation))) => format!("{score:.4} ± {deviation:.4}"),
        Some((score, None)) => format!("{score:.4}"),
        None => "not measured".into(),
    }
}

fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

/// Formats the masked tokens of an exam.
fn masked_text(exam: Option<&Mark>) -> String {
    match exam {
        Some(mark) => format!("{}, loss {:.3}", percent(mark.mlm_accuracy), mark.mlm_loss),
        None => "no exam: it reads from left to right".into(),
    }
}

/// Formats the pairs of an exam.
fn pairs_text(exam: Option<&Mark>) -> String {
    exam.and_then(|mark| mark.nsp_accuracy).map_or_else(|| "not learned".into(), percent)
}

fn figures(log: &Log) -> Vec<(String, String)> {
    let mut figures = Vec::new();
    for (run, results) in log.done().take(2) {
        let title = &run.choice.title;
        if let Some(mark) = &results.exam {
            figures.push((format!("{title}: masked tokens"), percent(mark.mlm_accuracy)));
        }
        if let Some((score, _)) = score(results) {
            figures.push((format!("{title}: {}", results.metric), format!("{score:.3}")));
        }
    }
    figures
}

/// Compares the learner's exam with another run's.
fn compared(yours: &Mark, other: &Mark) -> String {
    let points = 100.0 * (yours.mlm_accuracy - other.mlm_accuracy);
    let errors = 200.0 * yours.standard_error().hypot(other.standard_error());
    let verdict = match points.abs() > errors {
        true if points > 0.0 => "yours predicts more",
        true => "yours predicts less",
        false => "too close to tell with this exam",
    };
    format!("{points:+.1} points; two standard errors are {errors:.1}: {verdict}")
}

fn tables(log: &Log) -> Vec<Table> {
    let table = |heading: &str, value: &dyn Fn(&Run, &Results) -> Option<String>| {
        log.done().fold(Table::new(heading), |table, (run, results)| match value(run, results) {
            Some(value) => table.row(&run.choice.title, value),
            None => table,
        })
    };
    let yours = log.done().find(|(run, _)| run.choice.name == "yours");
    let yours = yours.and_then(|(_, results)| results.exam);
    let heading = format!("Fine-tuned: {}", metric(log).unwrap_or_default());
    let machine = log.machine.iter();
    let machine = machine.fold(Table::new("Machine"), |t, (name, value)| t.row(name, value));
    vec![
        table("Exam: masked tokens", &|_, it| Some(masked_text(it.exam.as_ref()))),
        table("Exam: yours beside the others", &|run, it| match (&yours, &it.exam) {
            (Some(yours), Some(other)) if run.choice.name != "yours" => {
                Some(compared(yours, other))
            }
            _ => None,
        }),
        table("Exam: next sentences", &|_, it| Some(pairs_text(it.exam.as_ref()))),
        table(&heading, &|_, it| Some(score_text(it))),
        table("Work", &|run, it| {
            let (steps, seconds) = (run.steps, run.seconds);
            let [steps, speed, parameters] =
                [steps as f64, it.tokens_per_s.round(), it.parameters as f64].map(number);
            Some(format!(
                "{steps} steps in {seconds:.0} s, {speed} tokens/s, {parameters} parameters"
            ))
        }),
        table("Options of pretrain", &|run, _| {
            let words = run.choice.words.join(" ");
            Some(if words.is_empty() { "none".into() } else { words })
        }),
        conditions(log, yours.as_ref()),
        machine,
    ]
}

/// Describes what all runs share, and what the comparison can't say.
fn conditions(log: &Log, mark: Option<&Mark>) -> Table {
    let files: Vec<String> = log.text.iter().map(|path| path.display().to_string()).collect();
    let text = if files.is_empty() { "Cloze's own small corpus".into() } else { files.join(", ") };
    let trials: f64 = log.runs.iter().map(|run| run.trial_seconds).sum();
    let mut table = Table::new("Conditions of all runs")
        .row("text", text)
        .row(
            "held out",
            format!("{} tokens, which no run trains on", number(log.held_out_tokens as f64)),
        )
        .row("time of a run", format!("{:.0} s with its trial", log.share()))
        .row("time of all trials", format!("{trials:.0} s"))
        .row("task", &log.finetune);
    if let Some(mark) = mark {
        table = table.row(
            "exam",
            format!(
                "the same {} masked tokens and the same sequences for all models, with 15 % of the tokens masked",
                mark.masked
            ),
        );
    }
    table.row(
        "not said",
        "each model was pre-trained once: another seed would move its scores too, often by more than the standard error",
    )
}

/// Returns the scores for a terminal.
pub(super) fn text(log: &Log) -> String {
    let mut lines = vec![format!("{:.1} of {} minutes", log.seconds() / 60.0, log.minutes)];
    for (run, results) in log.done() {
        lines.push(format!(
            "{}: {} steps; masked tokens {}; next sentences {}; {} {}",
            run.choice.title,
            run.steps,
            masked_text(results.exam.as_ref()),
            pairs_text(results.exam.as_ref()),
            results.metric,
            score_text(results),
        ));
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(mlm_accuracy: f64) -> Mark {
        Mark { masked: 2500, mlm_accuracy, mlm_loss: 3.0, nsp_accuracy: Some(0.625), pairs: 100 }
    }

    #[test]
    fn a_difference_counts_only_beyond_two_standard_errors() {
        // 2,500 tokens of which a half is predicted: a standard error of 1 point each, 1.41 of the difference.
        let compare = |yours, other| compared(&mark(yours), &mark(other));
        assert_eq!(
            compare(0.51, 0.5),
            "+1.0 points; two standard errors are 2.8: too close to tell with this exam"
        );
        assert!(compare(0.55, 0.5).ends_with("yours predicts more"));
        assert!(compare(0.45, 0.5).starts_with("-5.0 points"));
        assert!(compare(0.45, 0.5).ends_with("yours predicts less"));
    }

    #[test]
    fn what_a_model_has_not_learned_is_said() {
        assert_eq!(masked_text(Some(&mark(0.25))), "25.0 %, loss 3.000");
        assert_eq!(pairs_text(Some(&mark(0.25))), "62.5 %");
        let alone = Mark { nsp_accuracy: None, ..mark(0.25) };
        assert_eq!(pairs_text(Some(&alone)), "not learned");
        assert!(masked_text(None).contains("left to right"));
        assert_eq!(pairs_text(None), "not learned");
    }
}
