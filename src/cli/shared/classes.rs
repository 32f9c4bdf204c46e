//! The report on a classifier's classes: as text, as tables and as pictures.

use crate::eval::{Calibration, ClassReport};
use crate::view::page::Table;
use crate::view::{HeatMap, LineChart};

/// More classes than this are not listed in a terminal,
const MOST_LISTED: usize = 40;
/// and of more than this the confusion matrix is neither written nor drawn.
const MOST_CONFUSED: usize = 12;
const MOST_DRAWN: usize = 40;
/// Wrongly classified texts in the page.
const ERRORS: usize = 20;
/// Characters of a text that a table shows.
const SHOWN: usize = 300;

/// Formats the classes and the confusion matrix for a terminal.
pub(crate) fn text(report: &ClassReport) -> String {
    let classes = &report.classes;
    let name_width = classes.iter().map(|class| width(&class.name)).max().unwrap_or(0).max(5);
    let mut lines =
        vec![format!("{}  precision  recall      f1  rows", padded("class", name_width))];
    for class in classes.iter().take(MOST_LISTED) {
        lines.push(format!(
            "{}  {:9.4}  {:6.4}  {:6.4}  {:4}",
            padded(&class.name, name_width),
            class.precision,
            class.recall,
            class.f1,
            class.support
        ));
    }
    if classes.len() > MOST_LISTED {
        lines.push(format!("… and {} more, all in --json", classes.len() - MOST_LISTED));
    }
    if !report.confusion.is_empty() && report.confusion.len() <= MOST_CONFUSED {
        lines.extend(confusion(report));
    }
    if let Some(calibration) = &report.calibration {
        lines.push(format!("calibration error (ECE): {:.4}", calibration.ece));
    }
    lines.join("\n")
}

/// Returns the lines of the confusion matrix, whose classes are numbered if their names would not fit.
fn confusion(report: &ClassReport) -> Vec<String> {
    let names = &report.labels;
    let widest = report.confusion.iter().flatten().max().copied().unwrap_or(0);
    let name_width = names.iter().map(|name| width(name)).max().unwrap_or(0);
    let cell = widest.to_string().len().max(name_width.min(8));
    let short = |name: &String| padded_left(&name.chars().take(8).collect::<String>(), cell);
    let head: Vec<String> = names.iter().map(short).collect();
    let mut lines = vec![
        "rows: the true class; columns: the predicted one".to_owned(),
        format!("{}  {}", " ".repeat(name_width), head.join("  ")),
    ];
    for (name, row) in names.iter().zip(&report.confusion) {
        let counts: Vec<String> =
            row.iter().map(|count| padded_left(&count.to_string(), cell)).collect();
        lines.push(format!("{}  {}", padded(name, name_width), counts.join("  ")));
    }
    lines
}

fn width(text: &str) -> usize {
    text.chars().count()
}

fn padded(text: &str, to: usize) -> String {
    format!("{text}{}", " ".repeat(to.saturating_sub(width(text))))
}

fn padded_left(text: &str, to: usize) -> String {
    format!("{}{text}", " ".repeat(to.saturating_sub(width(text))))
}

/// Draws the confusion matrix and the calibration as SVG.
pub(crate) fn pictures(report: &ClassReport) -> Vec<String> {
    let confusion = (!report.confusion.is_empty() && report.confusion.len() <= MOST_DRAWN)
        .then(|| confusion_map(report).svg());
    let calibration = report.calibration.as_ref().map(|calibration| reliability(calibration).svg());
    confusion.into_iter().chain(calibration).collect()
}

fn confusion_map(report: &ClassReport) -> HeatMap {
    let names = &report.labels;
    let counts: Vec<f32> = report.confusion.iter().flatten().map(|&count| count as f32).collect();
    HeatMap::new("Confusion: true class (rows), predicted class (columns)", &counts, names.len())
        .labels(names, names)
}

fn reliability(calibration: &Calibration) -> LineChart {
    let bins = calibration.bins.iter();
    let points: Vec<(f64, f64)> = bins.map(|bin| (bin.probability, bin.accuracy)).collect();
    LineChart::new(format!("Reliability (calibration error {:.3})", calibration.ece))
        .axes("probability of the prediction", "share of correct predictions")
        .line("if probabilities were right", &[(0.0, 0.0), (1.0, 1.0)])
        .points("this model", &points)
}

/// Returns the classes' scores and the surest errors as tables of the page.
pub(crate) fn tables(report: &ClassReport) -> Vec<Table> {
    let mut scores = Table::new("Classes");
    for class in &report.classes {
        let value = format!(
            "precision {:.3}, recall {:.3}, F1 {:.3}, {} rows",
            class.precision, class.recall, class.f1, class.support
        );
        scores = scores.row(&class.name, value);
    }
    let mut errors = Table::new("Errors of which the model is surest");
    for error in report.errors.iter().take(ERRORS) {
        let pair = error.pair.as_ref().map(|pair| format!(" | {pair}")).unwrap_or_default();
        let text: String = format!("{}{pair}", error.text).chars().take(SHOWN).collect();
        let (label, prediction, probability) = (&error.label, &error.prediction, error.probability);
        errors = errors.row(text, format!("{label}, predicted as {prediction} ({probability:.3})"));
    }
    vec![scores, errors]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_a_line_for_each_class_and_the_matrix() {
        let names = ["ham", "spam mail"].map(str::to_owned);
        let rows = [vec![0.9, 0.1], vec![0.2, 0.8], vec![0.7, 0.3]];
        let report = ClassReport::of_probabilities(&names, &rows, &[0, 1, 1]);
        let expected = "\
class      precision  recall      f1  rows
ham           0.5000  1.0000  0.6667     1
spam mail     1.0000  0.5000  0.6667     2
rows: the true class; columns: the predicted one
                ham  spam mai
ham               1         0
spam mail         1         1
calibration error (ECE): 0.3333";
        assert_eq!(text(&report), expected);
        let pictures = pictures(&report);
        assert!(pictures.len() == 2 && pictures.iter().all(|svg| svg.starts_with("<svg")));
        let tables = tables(&report);
        assert_eq!(tables[1].rows[0].1, "spam mail, predicted as ham (0.700)");
    }

    #[test]
    fn many_classes_are_cut_in_the_terminal() {
        let names: Vec<String> = (0..50).map(|class| format!("class {class}")).collect();
        let classes: Vec<u32> = (0..50).collect();
        let text = text(&ClassReport::of_classes(&names, &classes, &classes));
        assert!(text.contains("… and 10 more") && !text.contains("columns"), "{text}");
    }
}
