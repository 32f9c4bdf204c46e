//! Turns the logits of a span head into answers.
//!
//! The score of a span is the logit of its start plus that of its end. Of all spans of up to `max_answer`
//! pieces, over all windows of a question, the best few with different texts are kept; a span counts only
//! in the window that shows most of its first piece's surroundings. If a question may have no answer, the
//! sum of the logits of `[CLS]` scores that, in the window where it is lowest (google-research/bert,
//! run_squad.py, `write_predictions`).
//!
//! Unlike run_squad.py, which considers the 20 best starts and the 20 best ends of a window, the search
//! considers all pairs; and an answer is cut out of the context by the offsets of its pieces, so it is
//! not reconstructed from lower-cased pieces.

use std::cmp::Ordering;
use std::ops::Range;

use rayon::prelude::*;

use crate::data::squad::{Squad, Windows};
use crate::error::{Error, Result};

use super::{Best, Predictions, raw, sweep};

/// Limits of the answers. The defaults are those of run_squad.py for SQuAD 1.1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AnswerOptions {
    /// Number of answers to keep, at least 1.
    pub n_best: usize,
    /// Longest answer in pieces.
    pub max_answer: usize,
    /// Whether a question may have no answer, as in SQuAD 2.0.
    pub may_be_empty: bool,
}

impl Default for AnswerOptions {
    fn default() -> Self {
        Self { n_best: 20, max_answer: 30, may_be_empty: false }
    }
}

/// A model's answers to a question.
#[derive(Debug, Clone, PartialEq)]
pub struct Answers {
    /// The question's id.
    pub id: String,
    /// The best answer that is not empty; empty only if the context has no piece.
    pub best: String,
    /// The best answers with different texts, best first, including the empty one if questions may have no
    /// answer.
    pub n_best: Vec<Ranked>,
    /// The score of no answer minus that of the best answer; `None` if every question has an answer.
    pub null_odds: Option<f64>,
}

/// One of the best answers.
#[derive(Debug, Clone, PartialEq)]
pub struct Ranked {
    /// Its text.
    pub text: String,
    /// Its place in the context, in code points; empty if it is no answer.
    pub place: Range<usize>,
    /// Its probability among the best answers.
    pub probability: f64,
    /// The logit of its start.
    pub start_logit: f32,
    /// The logit of its end.
    pub end_logit: f32,
}

/// A span of a context with its logits in a window.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Span {
    first: usize,
    last: usize,
    start_logit: f32,
    end_logit: f32,
}

impl Span {
    fn score(&self) -> f64 {
        f64::from(self.start_logit) + f64::from(self.end_logit)
    }

    /// Orders better spans first, of equals the earlier, then the shorter.
    fn order(&self, other: &Self) -> Ordering {
        let score = other.score().total_cmp(&self.score());
        score.then((self.first, self.last).cmp(&(other.first, other.last)))
    }
}

/// Answers all questions of a file from the logits of its windows, end to end: for each token that of a
/// start and that of an end.
pub fn answer(
    squad: &Squad,
    windows: &Windows,
    logits: &[f32],
    options: AnswerOptions,
) -> Result<Vec<Answers>> {
    let mut starts = Vec::with_capacity(windows.len() + 1);
    starts.push(0);
    for window in 0..windows.len() {
        starts.push(starts[window] + 2 * windows.tokens(window));
    }
    let questions: Vec<_> = squad.questions().collect();
    if logits.len() != starts[windows.len()] || questions.len() != windows.questions() {
        return Err(Error::Failed(format!(
            "{} logits for the {} questions of a file do not fit the {} tokens of windows that were \
             cut for {} questions",
            logits.len(),
            questions.len(),
            starts[windows.len()] / 2,
            windows.questions()
        )));
    }
    let logits = |window: usize| &logits[starts[window]..starts[window + 1]];
    questions
        .par_iter()
        .enumerate()
        .map(|(question, (paragraph, asked))| {
            let texts = Texts::new(&paragraph.context);
            let id = &asked.id;
            rank(windows, question, id, &logits, &texts, options).ok_or_else(|| {
                Error::Failed(format!(
                    "the model's logits for question {id:?} are not finite numbers: its training has diverged"
                ))
            })
        })
        .collect()
}

/// Ranks the answers to a question; returns `None` if a logit is not finite.
fn rank<'l>(
    windows: &Windows,
    question: usize,
    id: &str,
    logits: &impl Fn(usize) -> &'l [f32],
    texts: &Texts,
    options: AnswerOptions,
) -> Option<Answers> {
    let mut spans = Vec::new();
    let mut null: Option<Span> = None;
    for window in windows.of_question(question) {
        let logits = logits(window);
        if !logits.iter().all(|x| x.is_finite()) {
            return None;
        }
        let nothing = Span { first: 0, last: 0, start_logit: logits[0], end_logit: logits[1] };
        if null.is_none_or(|least| nothing.score() < least.score()) {
            null = Some(nothing);
        }
        collect(windows, window, logits, options.max_answer, &mut spans);
    }
    let place = |span: &Span| windows.text_range(question, span.first..span.last + 1);
    let mut ranked = distinct(&mut spans, options.n_best, |span| texts.cut(place(span)));
    let best = ranked.first().cloned();
    let null = null.filter(|_| options.may_be_empty);
    if let Some(null) = null {
        let rank = ranked.partition_point(|(_, span)| span.score() >= null.score());
        ranked.insert(rank, (String::new(), null));
        if rank < options.n_best {
            // The best answer stays: a threshold may prefer it to none.
            ranked.truncate(options.n_best.max(2));
        }
    }
    let top = ranked.first().map_or(0.0, |(_, span)| span.score());
    let weight = |span: &Span| (span.score() - top).exp();
    let total: f64 = ranked.iter().map(|(_, span)| weight(span)).sum();
    // Without any span the score to compare with is 0, that of an untrained head.
    let rival = best.as_ref().map_or(0.0, |(_, span)| span.score());
    Some(Answers {
        id: id.to_owned(),
        null_odds: null.map(|null| null.score() - rival),
        best: best.map(|(text, _)| text).unwrap_or_default(),
        n_best: ranked
            .into_iter()
            .map(|(text, span)| Ranked {
                place: if text.is_empty() { 0..0 } else { place(&span) },
                text,
                probability: weight(&span) / total,
                start_logit: span.start_logit,
                end_logit: span.end_logit,
            })
            .collect(),
    })
}

/// Appends all spans of a window that may be answers.
fn collect(
    windows: &Windows,
    window: usize,
    logits: &[f32],
    max_answer: usize,
    spans: &mut Vec<Span>,
) {
    let pieces = windows.pieces(window);
    let row = |piece: usize| 2 * (windows.first_row(window) + piece - pieces.start);
    for first in pieces.clone() {
        if !windows.is_best_window(window, first) {
            continue;
        }
        let start_logit = logits[row(first)];
        let ends = first..pieces.end.min(first.saturating_add(max_answer));
        spans.extend(ends.map(|last| Span {
            first,
            last,
            start_logit,
            end_logit: logits[row(last) + 1],
        }));
    }
}

/// Returns the best `count` spans with different texts, best first.
///
/// To avoid sorting all spans, moves only some of the best to the front, and more of them if too many texts
/// are equal.
fn distinct(
    spans: &mut [Span],
    count: usize,
    text: impl Fn(&Span) -> String,
) -> Vec<(String, Span)> {
    let count = count.min(spans.len());
    let mut front = 2 * count;
    loop {
        front = front.min(spans.len());
        if 0 < front && front < spans.len() {
            spans.select_nth_unstable_by(front - 1, Span::order);
        }
        spans[..front].sort_unstable_by(Span::order);
        let mut found: Vec<(String, Span)> = Vec::with_capacity(count);
        for span in &spans[..front] {
            if found.len() == count {
                break;
            }
            let text = text(span);
            if found.iter().all(|(other, _)| *other != text) {
                found.push((text, *span));
            }
        }
        if found.len() == count || front == spans.len() {
            return found;
        }
        front *= 4;
    }
}

/// A text that is sliced by code points.
struct Texts<'t> {
    text: &'t str,
    /// The byte index of each code point, and the text's length; empty if the text is ASCII.
    bytes: Vec<usize>,
}

impl<'t> Texts<'t> {
    fn new(text: &'t str) -> Self {
        let mut bytes = Vec::new();
        if !text.is_ascii() {
            bytes.extend(text.char_indices().map(|(byte, _)| byte));
            bytes.push(text.len());
        }
        Self { text, bytes }
    }

    fn cut(&self, range: std::ops::Range<usize>) -> String {
        let byte = |point: usize| *self.bytes.get(point).unwrap_or(&point);
        self.text[byte(range.start)..byte(range.end)].to_owned()
    }
}

/// Finds the null odds above which it is best, by F1 on these questions, to answer nothing: the scorer's
/// threshold for the best answers that are not empty. Fails if a question has no answers to compare with.
pub fn threshold(squad: &Squad, answers: &[Answers]) -> Result<Best> {
    let best = answers.iter().map(|answers| (answers.id.clone(), answers.best.clone()));
    let best: Predictions = best.collect();
    let odds: Vec<(String, f64)> = answers
        .iter()
        .filter_map(|answers| Some((answers.id.clone(), answers.null_odds?)))
        .collect();
    let swept = sweep(&raw(squad, &best, true)?, &odds, |question| question.f1);
    let lowest = odds.iter().map(|(_, odds)| *odds).reduce(f64::min);
    Ok(Best {
        // If nothing should be answered, the threshold is below all odds.
        threshold: swept.threshold.or(lowest.map(|lowest| lowest - 1.0)),
        ..swept
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::data::squad::{Answer, WindowOptions};
    use crate::text::{Casing, WordPiece};

    /// A question about repeated words, read through several windows.
    fn asked(context: &str) -> (Squad, Windows) {
        let answer = Answer { text: "a".to_owned(), start: None };
        let squad = Squad::of_questions([("q".into(), context, "b a", Some(vec![answer]))]);
        let vocab = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "c"];
        let wordpiece = WordPiece::from_vocab(vocab.map(String::from).into(), Casing::Uncased);
        let options = WindowOptions { max_len: 14, stride: 4, max_question: 4 };
        let windows = Windows::cut(&squad, &wordpiece.unwrap(), options).unwrap();
        (squad, windows)
    }

    const CONTEXT: &str = "á b c a b á b c c a b c a a b c b a c";

    fn tokens(windows: &Windows) -> usize {
        let tokens = (0..windows.len()).map(|window| windows.tokens(window));
        tokens.sum()
    }

    /// Answers the question with the `n_best` best texts, the empty one included if it is allowed.
    fn ask(
        (squad, windows): &(Squad, Windows),
        logits: &[f32],
        n_best: usize,
        may_be_empty: bool,
    ) -> Result<Answers> {
        let options = AnswerOptions { n_best, may_be_empty, ..AnswerOptions::default() };
        answer(squad, windows, logits, options).map(|mut all| all.remove(0))
    }

    /// Ranks all pairs of rows of all windows, each text once.
    fn brute_force(
        windows: &Windows,
        logits: &[f32],
        options: AnswerOptions,
    ) -> Vec<(String, f64)> {
        let chars: Vec<char> = CONTEXT.chars().collect();
        let mut all = Vec::new();
        let mut before = 0;
        for window in 0..windows.len() {
            for i in 0..windows.tokens(window) {
                for j in 0..windows.tokens(window) {
                    let context = windows.first_row(window)..windows.tokens(window) - 1;
                    if i > j || j - i >= options.max_answer {
                        continue;
                    }
                    if !context.contains(&i) || !context.contains(&j) {
                        continue;
                    }
                    let piece = |row: usize| windows.pieces(window).start + row - context.start;
                    if !windows.is_best_window(window, piece(i)) {
                        continue;
                    }
                    let range = windows.text_range(0, piece(i)..piece(j) + 1);
                    let text: String = chars[range].iter().collect();
                    let start = logits[2 * (before + i)];
                    let end = logits[2 * (before + j) + 1];
                    let score = f64::from(start) + f64::from(end);
                    all.push((score, piece(i), piece(j), text));
                }
            }
            before += windows.tokens(window);
        }
        all.sort_by(|a, b| b.0.total_cmp(&a.0).then((a.1, a.2).cmp(&(b.1, b.2))));
        let mut found: Vec<(String, f64)> = Vec::new();
        for (score, _, _, text) in all {
            if found.len() < options.n_best && found.iter().all(|(other, _)| *other != text) {
                found.push((text, score));
            }
        }
        found
    }

    proptest! {
        #[test]
        fn the_search_finds_what_trying_all_pairs_finds(
            // There are few different values, so that many scores are equal.
            values in prop::collection::vec(-6i8..6, 200),
            n_best in 1usize..40,
            max_answer in 1usize..8,
        ) {
            let (squad, windows) = asked(CONTEXT);
            let rows = 2 * tokens(&windows);
            let logits: Vec<f32> = (0..rows).map(|i| f32::from(values[i % 200]) * 0.37).collect();
            let options = AnswerOptions { n_best, max_answer, may_be_empty: false };
            let answers = answer(&squad, &windows, &logits, options).unwrap();
            let got: Vec<(String, f64)> = answers[0]
                .n_best
                .iter()
                .map(|r| (r.text.clone(), f64::from(r.start_logit) + f64::from(r.end_logit)))
                .collect();
            prop_assert_eq!(got, brute_force(&windows, &logits, options));
            let total: f64 = answers[0].n_best.iter().map(|r| r.probability).sum();
            prop_assert!((total - 1.0).abs() < 1e-12);
        }
    }

    #[test]
    fn no_answer_is_ranked_if_it_is_allowed() {
        let asked = asked("a b c");
        let windows = &asked.1;
        assert_eq!((windows.len(), windows.tokens(0)), (1, 8));
        let mut logits = vec![-9.0; 16];
        (logits[0], logits[1]) = (1.0, 2.5);
        // "b c" scores 3, "b" 2.
        (logits[2 * 5], logits[2 * 6 + 1], logits[2 * 5 + 1]) = (2.0, 1.0, 0.0);
        let texts = |answers: &Answers| -> Vec<String> {
            answers.n_best.iter().map(|r| r.text.clone()).collect()
        };
        let answers = ask(&asked, &logits, 2, true).unwrap();
        assert_eq!(texts(&answers), ["", "b c"]);
        assert_eq!((&*answers.best, answers.null_odds), ("b c", Some(0.5)));
        assert_eq!((answers.text(0.0), answers.text(0.5)), ("", "b c"));
        let ratio = answers.n_best[0].probability / answers.n_best[1].probability;
        assert!((ratio - 0.5f64.exp()).abs() < 1e-12);
        let only = ask(&asked, &logits, 1, true).unwrap();
        // A threshold of 0.5 prefers "b c", which is therefore ranked too.
        assert_eq!((texts(&only), only.text(0.5)), (vec!["".into(), "b c".into()], "b c"));
        let answers = ask(&asked, &logits, 2, false).unwrap();
        assert_eq!(texts(&answers), ["b c", "b"]);
        assert_eq!(answers.null_odds, None);
        // If it is worse than all others, it is added to them.
        (logits[0], logits[1]) = (-5.0, -5.0);
        let answers = ask(&asked, &logits, 2, true).unwrap();
        assert_eq!(texts(&answers), ["b c", "b", ""]);
    }

    #[test]
    fn the_window_with_the_lowest_score_decides_about_no_answer() {
        let asked = asked(CONTEXT);
        let windows = &asked.1;
        assert!(windows.len() > 2);
        let mut logits = vec![0.0; 2 * tokens(windows)];
        let mut row = 0;
        for window in 0..windows.len() {
            logits[2 * row] = [7.0, -3.0, 5.0][window % 3];
            row += windows.tokens(window);
        }
        let answers = ask(&asked, &logits, 20, true).unwrap();
        assert_eq!(answers.null_odds, Some(-3.0));
    }

    #[test]
    fn an_empty_context_has_no_answer_and_a_diverged_model_is_an_error() {
        let asked = asked("");
        let logits = [1.0; 10];
        let answers = ask(&asked, &logits, 20, true).unwrap();
        assert_eq!((answers.text(9.0), answers.null_odds), ("", Some(2.0)));
        let answers = ask(&asked, &logits, 20, false).unwrap();
        assert_eq!((answers.text(0.0), answers.n_best.len()), ("", 0));
        let error = ask(&asked, &[f32::NAN; 10], 20, true).unwrap_err().to_string();
        assert!(error.contains("question \"q\" are not finite"), "{error}");
        let error = ask(&asked, &logits[2..], 20, true).unwrap_err().to_string();
        assert!(error.contains("do not fit the 5 tokens"), "{error}");
    }

    #[test]
    fn where_nothing_should_be_answered_the_threshold_is_below_all_odds() {
        let squad = Squad::of_questions([("q".into(), "a b", "b a", Some(Vec::new()))]);
        let answers =
            Answers { id: "q".into(), null_odds: Some(-2.0), best: "a".into(), n_best: Vec::new() };
        let found = threshold(&squad, &[answers]).unwrap();
        assert_eq!((found.score, found.threshold), (100.0, Some(-3.0)));
    }
}
