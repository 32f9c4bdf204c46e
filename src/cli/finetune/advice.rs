//! What to try after a run that has not learned.

use super::recipe::Recipe;
use super::run::Run;
use crate::eval::ClassReport;
use crate::note;

/// A loss that has fallen by less than this share has not fallen.
const FALLEN: f64 = 0.03;
/// Fewer steps than this say nothing.
const FEW_STEPS: u64 = 20;
/// A report on fewer rows than this says nothing.
const FEW_ROWS: u64 = 20;

/// Prints what to try on stderr, if the run has not learned.
pub(super) fn print(run: &Run, recipe: &Recipe) {
    let (first, last) = (run.outcome.first_loss(), run.outcome.last_loss());
    let stuck = run.outcome.steps.len() >= FEW_STEPS && last > (1.0 - FALLEN) * first;
    if stuck {
        note!(
            "the loss has not fallen: {first:.3} in the first steps, {last:.3} in the last ones; try {}",
            advice(run.learning_rate, recipe.usual_rate)
        );
    }
    if let Some(class) = run.report.as_ref().and_then(only_class) {
        note!(
            "every row was predicted as {class}: the model has learned nothing that separates the classes; \
             more epochs, another learning rate (--lr-search) or --class-weights balanced may help"
        );
    }
}

fn advice(rate: f64, usual: f64) -> String {
    if rate < usual / 2.0 {
        format!("a higher learning rate (--lr {usual:e})")
    } else if rate > usual * 2.0 {
        format!("a lower learning rate (--lr {usual:e})")
    } else {
        "--lr-search, which tries several learning rates, or more epochs".to_owned()
    }
}

/// Returns the class that was predicted for every row, if there are rows of others too.
fn only_class(report: &ClassReport) -> Option<&str> {
    let rows: u64 = report.classes.iter().map(|class| class.support).sum();
    let classes = report.classes.iter().filter(|class| class.support > 0).count();
    if rows < FEW_ROWS || classes < 2 || report.confusion.is_empty() {
        return None;
    }
    let predicted = |class: &usize| report.confusion.iter().any(|row| row[*class] > 0);
    let all: Vec<usize> = (0..report.labels.len()).filter(predicted).collect();
    match all[..] {
        [class] => Some(&report.labels[class]),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_depends_on_the_learning_rate() {
        assert_eq!(advice(5e-5, 1e-3), "a higher learning rate (--lr 1e-3)");
        assert_eq!(advice(1e-2, 1e-3), "a lower learning rate (--lr 1e-3)");
        assert!(advice(1e-3, 1e-3).starts_with("--lr-search"));
    }

    #[test]
    fn a_model_that_predicts_one_class_only_is_noticed() {
        let names = ["ham", "spam"].map(str::to_owned);
        let gold: Vec<u32> = (0..30).map(|row| row % 2).collect();
        let report = |predicted: &[u32]| ClassReport::of_classes(&names, predicted, &gold);
        assert_eq!(only_class(&report(&[1; 30])), Some("spam"));
        let mut mixed = [1; 30];
        mixed[3] = 0;
        assert_eq!(only_class(&report(&mixed)), None);
        let few = ClassReport::of_classes(&names, &[1; 4], &gold[..4]);
        assert_eq!(only_class(&few), None);
    }
}
