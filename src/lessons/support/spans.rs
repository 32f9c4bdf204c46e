//! Helpers of the lessons on questions, 14 and 15: windows, spans and their scores.

use std::ops::Range;

use crate::data::squad::{Squad, Windows};
use crate::engine::{TaskEngine, inference};
use crate::error::Result;
use crate::eval::squad::{self, AnswerOptions, Answers, Figures};
use crate::text::WordPiece;
use crate::view::{HeatMap, LineChart, TokenStrip};

/// Returns the tokens of a window up to a few behind its answer, colored by question, paragraph and answer.
pub fn window_strip(wordpiece: &WordPiece, windows: &Windows, window: usize) -> TokenStrip {
    let tokens = window_tokens(wordpiece, windows, window);
    let [first, last] = windows.target(window).unwrap_or_default().map(|row| row as usize);
    let end = (last + 8).min(tokens.len());
    let rows: Vec<usize> = (0..end).collect();
    let color = |row: &usize| match *row {
        row if last > 0 && (first..=last).contains(&row) => 1,
        row if row < windows.first_row(window) => 0,
        _ => TokenStrip::PLAIN,
    };
    let colors: Vec<u32> = rows.iter().map(color).collect();
    TokenStrip::new("The question, the paragraph and the answer", &tokens[..end])
        .row("row", &rows)
        .colored(&colors)
}

/// Returns the tokens of a window.
pub fn window_tokens(wordpiece: &WordPiece, windows: &Windows, window: usize) -> Vec<String> {
    let sequences = windows.sequences();
    let token = |&id: &u32| wordpiece.token(id).unwrap_or("?").to_owned();
    sequences.ids(window).iter().map(token).collect()
}

/// Returns a picture of windows over a number of pieces, a row for each. A piece is dark in the window that shows most
/// of its context: where the shorter side is longest.
pub fn window_map(windows: &[Range<usize>], pieces: usize) -> HeatMap {
    let values = window_values(windows, pieces);
    let rows: Vec<String> = windows.iter().map(|window| format!("{window:?}")).collect();
    let columns: Vec<usize> = (0..pieces).collect();
    HeatMap::new(format!("Windows over a paragraph of {pieces} pieces"), &values, pieces)
        .labels(&rows, &columns.iter().map(usize::to_string).collect::<Vec<_>>())
}

/// Returns 1 for a piece in the window that shows most of its context, 0.35 in another one, 0 outside.
fn window_values(windows: &[Range<usize>], pieces: usize) -> Vec<f32> {
    let context = |window: &Range<usize>, piece: usize| {
        window.contains(&piece).then(|| (piece - window.start).min(window.end - 1 - piece))
    };
    let mut values = Vec::with_capacity(windows.len() * pieces);
    for window in windows {
        for piece in 0..pieces {
            let most = windows.iter().filter_map(|other| context(other, piece)).max();
            values.push(match context(window, piece) {
                None => 0.0,
                own if own == most => 1.0,
                _ => 0.35,
            });
        }
    }
    values
}

/// Returns the scores of starts and those of ends from a span head's output: start, end, start, end, …
pub fn starts_and_ends(logits: &[f32]) -> (Vec<f32>, Vec<f32>) {
    let (pairs, _) = logits.as_chunks::<2>();
    pairs.iter().map(|pair| (pair[0], pair[1])).unzip()
}

/// Returns a picture of the score of each span within `rows`, counted from the lowest. Spans that end before they
/// start are left empty.
pub fn span_map(
    title: &str,
    tokens: &[String],
    starts: &[f32],
    ends: &[f32],
    rows: Range<usize>,
) -> HeatMap {
    let labels = &tokens[rows.clone()];
    let score = |i: usize, j: usize| if j < i { f32::NAN } else { starts[i] + ends[j] };
    let scores: Vec<f32> =
        rows.clone().flat_map(|i| rows.clone().map(move |j| score(i, j))).collect();
    let lowest = scores.iter().copied().filter(|s| !s.is_nan()).fold(f32::INFINITY, f32::min);
    let scores: Vec<f32> = scores.iter().map(|score| score - lowest).collect();
    HeatMap::new(title, &scores, rows.len()).labels(labels, labels)
}

/// Answers all questions of a file, read through these windows, with null odds.
///
/// # Errors
/// If the windows are longer than the model can read, or an output of the model is not finite.
pub fn answer_all(
    engine: &mut dyn TaskEngine,
    file: &Squad,
    windows: &Windows,
) -> Result<Vec<Answers>> {
    let logits = inference::logits(engine, &windows.sequences())?;
    let options = AnswerOptions { may_be_empty: true, ..AnswerOptions::default() };
    squad::answer(file, windows, logits.values(), options)
}

/// Returns exact match and F1 in percent where nothing is answered above this threshold of the null odds.
///
/// # Errors
/// If a question has no answers to compare with.
pub fn figures(file: &Squad, answers: &[Answers], threshold: f64) -> Result<Figures> {
    Ok(squad::score(file, &squad::predictions(answers, threshold), None)?.all)
}

/// Returns the chart of F1 over the threshold of the lead, which is the opposite of the null odds: of all questions, of
/// those with an answer, and of those without.
///
/// # Errors
/// If a question has no answers to compare with.
pub fn threshold_chart(file: &Squad, answers: &[Answers]) -> Result<LineChart> {
    let mut odds: Vec<f64> = answers.iter().filter_map(|each| each.null_odds).collect();
    odds.sort_by(f64::total_cmp);
    let mut lines: [Vec<(f64, f64)>; 3] = Default::default();
    for &threshold in odds.iter().rev().step_by(3) {
        let scores = squad::score(file, &squad::predictions(answers, threshold), None)?;
        let parts = [Some(scores.all), scores.has_answer, scores.no_answer];
        for (line, figures) in lines.iter_mut().zip(parts) {
            line.extend(figures.map(|figures| (-threshold, figures.f1)));
        }
    }
    Ok(LineChart::new("F1 on the held-out questions by the threshold of the lead")
        .axes("threshold", "F1, %")
        .line("all questions", &lines[0])
        .line("with an answer", &lines[1])
        .line("without", &lines[2]))
}

/// Returns the same file, with each question asked in the words of the next one on its paragraph.
pub fn rotated(file: &Squad) -> Squad {
    let mut file = file.clone();
    for paragraph in file.articles.iter_mut().flat_map(|article| &mut article.paragraphs) {
        let questions = &mut paragraph.questions;
        let mut texts: Vec<String> = questions.iter().map(|each| each.text.clone()).collect();
        if !texts.is_empty() {
            texts.rotate_left(1);
        }
        for (question, text) in questions.iter_mut().zip(texts) {
            question.text = text;
        }
    }
    file
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::bundled;
    use crate::data::squad::{Misplaced, WindowOptions};
    use crate::engine::CpuEngine;
    use crate::model::Part;
    use crate::model::weights::Model;

    #[test]
    fn a_piece_is_dark_where_its_shorter_side_is_longest() {
        let values = window_values(&[0..4, 2..6], 6);
        let rows = [[1.0, 1.0, 1.0, 0.35, 0.0, 0.0], [0.0, 0.0, 0.35, 1.0, 1.0, 1.0]];
        assert_eq!(values, rows.concat());
        assert!(window_map(&[0..4, 2..6], 6).text().contains("2..6"));
    }

    #[test]
    fn questions_are_answered_scored_and_exchanged() {
        let folder = bundled::folder(bundled::TINY).unwrap();
        let wordpiece = WordPiece::from_file(&WordPiece::file_in(&folder), None).unwrap();
        let model = Model::read(&folder, &Part::Span.with_encoder(), Some(1)).unwrap();
        let mut engine = CpuEngine::new(&model.config, &model.layout, model.values).unwrap();
        let file = bundled::folder("questions").unwrap().join("dev-v2.0.json");
        let mut file = Squad::read(&file, Misplaced::Refuse).unwrap();
        file.truncate(6);
        let options = WindowOptions { max_len: 128, stride: 64, max_question: 32 };
        let windows = Windows::cut(&file, &wordpiece, options).unwrap();
        let tokens = window_tokens(&wordpiece, &windows, 0);
        assert_eq!((tokens[0].as_str(), tokens.len()), ("[CLS]", windows.tokens(0)));
        assert!(window_strip(&wordpiece, &windows, 0).text().contains("row"));
        let answers = answer_all(&mut engine, &file, &windows).unwrap();
        assert_eq!(answers.len(), 6);
        let silent = figures(&file, &answers, f64::NEG_INFINITY).unwrap();
        let without = file.questions().filter(|(_, q)| q.answerable() == Some(false)).count();
        assert!((silent.f1 - 100.0 * without as f64 / 6.0).abs() < 1e-9);
        assert!(threshold_chart(&file, &answers).unwrap().text().contains("with an answer"));
        let (before, after) = (file.clone(), rotated(&file));
        let texts = |file: &Squad| -> Vec<String> {
            file.articles[0].paragraphs[0].questions.iter().map(|q| q.text.clone()).collect()
        };
        let mut expected = texts(&before);
        expected.rotate_left(1);
        assert_eq!(texts(&after), expected);
    }

    #[test]
    fn spans_are_drawn_from_their_scores() {
        let (starts, ends) = starts_and_ends(&[1.0, 2.0, 3.0, 4.0]);
        assert_eq!((&starts[..], &ends[..]), (&[1.0, 3.0][..], &[2.0, 4.0][..]));
        let tokens = ["a", "b"].map(str::to_owned);
        assert!(span_map("Spans", &tokens, &starts, &ends, 0..2).text().contains('b'));
    }
}
