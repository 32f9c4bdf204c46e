//! Which model is the best: the score that compares epochs and runs, and what is done with it.

use crate::cli::shared::checks::{at_least_one, refuse};
use crate::error::Result;
use crate::eval::Scores;
use crate::tasks::Task;
use crate::train::task::LOSS;

#[derive(clap::Args)]
pub(super) struct SelectionArgs {
    /// Score by which epochs, seeds and learning rates are compared, such as macro_f1 or loss
    /// [default: the task's first]
    #[arg(long, value_name = "NAME")]
    metric: Option<String>,
    /// Measure after every epoch, not only at the end
    #[arg(long)]
    eval_epochs: bool,
    /// Measure after every epoch and keep the model of the best one, not of the last
    #[arg(long)]
    keep_best: bool,
    /// Keep the best epoch's model and end the run when N epochs in a row were no better
    #[arg(long, value_name = "N")]
    patience: Option<u32>,
}

/// How models are compared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Selection {
    /// The name of the score.
    pub(super) metric: String,
    pub(super) keep_best: bool,
    /// Whether the model is measured after every epoch.
    pub(super) every_epoch: bool,
    pub(super) patience: Option<u32>,
}

/// Less than every score. JSON, in which the best epoch's score is stored, has no minus infinity.
pub(super) const NO_SCORE: f64 = f64::MIN;

impl SelectionArgs {
    /// Returns how models of `task` are compared; `measures` is whether there is anything to measure on.
    pub(super) fn of(&self, task: &dyn Task, measures: bool) -> Result<Selection> {
        at_least_one([("--patience", u64::from(self.patience.unwrap_or(1)))])?;
        for (option, given) in [
            ("--metric", self.metric.is_some()),
            ("--eval-epochs", self.eval_epochs),
            ("--keep-best", self.keep_best),
            ("--patience", self.patience.is_some()),
        ] {
            if given && !measures {
                refuse!("{option} needs development data, and --split 0 holds none out");
            }
        }
        let known = task.metrics();
        let metric = self.metric.clone().unwrap_or_else(|| task.metric().to_owned());
        if self.metric.is_some() && !known.contains(&metric.as_str()) {
            refuse!("--metric {metric}: {} has {}", task.name(), known.join(", "));
        }
        let keep_best = self.keep_best || self.patience.is_some();
        let every_epoch = keep_best || self.eval_epochs;
        Ok(Selection { metric, keep_best, every_epoch, patience: self.patience })
    }
}

impl Selection {
    /// Returns the score to compare by: more is better.
    pub(super) fn score(&self, scores: &Scores) -> f64 {
        let value = self.value(scores);
        let sign = if self.metric == LOSS { -1.0 } else { 1.0 };
        value.map_or(NO_SCORE, |value| sign * value)
    }

    /// Returns the score as it was measured.
    pub(super) fn value(&self, scores: &Scores) -> Option<f64> {
        scores.get(&self.metric)?.as_f64().filter(|value| value.is_finite())
    }

    /// Returns whether as many epochs as `--patience` allows were no better than the best before them.
    pub(super) fn is_over(&self, epochs: &[(u32, Scores)]) -> bool {
        let Some(patience) = self.patience else {
            return false;
        };
        let scores = epochs.iter().map(|(_, scores)| self.score(scores));
        let (mut best, mut since) = (f64::NEG_INFINITY, 0);
        for score in scores {
            if score > best {
                (best, since) = (score, 0);
            } else {
                since += 1;
            }
        }
        since >= patience
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selection(metric: &str, patience: Option<u32>) -> Selection {
        Selection { metric: metric.into(), keep_best: true, every_epoch: true, patience }
    }

    fn epochs(metric: &str, values: &[f64]) -> Vec<(u32, Scores)> {
        let scores = |value: &f64| [(metric.to_owned(), (*value).into())].into_iter().collect();
        (1..).zip(values.iter().map(scores)).collect()
    }

    #[test]
    fn a_run_is_over_when_no_epoch_was_better_for_long_enough() {
        for (values, over) in [
            (&[0.5, 0.4][..], false),
            (&[0.5, 0.4, 0.5], true),
            (&[0.5, 0.4, 0.6, 0.6], false),
            (&[0.5, 0.4, 0.6, 0.6, 0.1], true),
        ] {
            assert_eq!(selection("f1", Some(2)).is_over(&epochs("f1", values)), over, "{values:?}");
            assert!(!selection("f1", None).is_over(&epochs("f1", values)));
        }
    }

    #[test]
    fn less_loss_is_better_and_an_epoch_without_a_score_is_the_worst() {
        let loss = selection(LOSS, Some(1));
        let all = epochs(LOSS, &[0.7, 0.6]);
        assert!(loss.score(&all[1].1) > loss.score(&all[0].1) && !loss.is_over(&all));
        assert!(loss.is_over(&epochs(LOSS, &[0.6, 0.7])));
        assert_eq!(loss.score(&Scores::new()), NO_SCORE);
        let stored = serde_json::to_string(&NO_SCORE).unwrap();
        assert_eq!(serde_json::from_str::<f64>(&stored).unwrap(), NO_SCORE);
    }
}
