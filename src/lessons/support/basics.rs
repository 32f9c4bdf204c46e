//! For lessons 01, 02 and 22: the best line through points, and words with their counts and pieces.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use crate::text::WordPiece;
use crate::text::wordpiece::SPECIAL_TOKENS;
use crate::view::LineChart;

/// A word as a list of pieces, with the number of its occurrences in a text.
pub type Word = (Vec<String>, u64);

/// Returns slope and offset of the line with the least mean squared error through the points (`x`, `y`). Both
/// are NaN if the points have fewer than two different `x`.
pub fn best_line(x: &[f32], y: &[f32]) -> (f64, f64) {
    let mean = |v: &[f32]| v.iter().map(|&v| f64::from(v)).sum::<f64>() / v.len() as f64;
    let (mean_x, mean_y) = (mean(x), mean(y));
    let (mut covariance, mut variance) = (0.0, 0.0);
    for (&x, &y) in x.iter().zip(y) {
        covariance += (f64::from(x) - mean_x) * (f64::from(y) - mean_y);
        variance += (f64::from(x) - mean_x).powi(2);
    }
    let slope = covariance / variance;
    (slope, mean_y - slope * mean_x)
}

/// Draws texts by their length: `hundreds` of characters across, `tens` of words up, and for each name the line
/// that turns hundreds of characters into tens of words, given by slope and offset.
pub fn words_by_characters(
    hundreds: &[f32],
    tens: &[f32],
    lines: &[(&str, (f64, f64))],
) -> LineChart {
    let points: Vec<(f64, f64)> = hundreds
        .iter()
        .zip(tens)
        .map(|(&x, &y)| (100.0 * f64::from(x), 10.0 * f64::from(y)))
        .collect();
    let most = points.iter().map(|point| point.0).fold(0.0, f64::max);
    let chart = LineChart::new("Words by characters")
        .axes("characters", "words")
        .points("paragraphs", &points);
    lines.iter().fold(chart, |chart, (name, (slope, offset))| {
        let words = |characters: f64| 10.0 * (slope * characters / 100.0 + offset);
        chart.line(*name, &[(0.0, words(0.0)), (most, words(most))])
    })
}

/// Splits a text into words as `tokenizer` does, by joining the pieces of each word. A word that the tokenizer
/// can't cut becomes `[UNK]`.
pub fn words(tokenizer: &WordPiece, text: &str) -> Vec<String> {
    let encoding = tokenizer.encode(text);
    let mut words: BTreeMap<u32, String> = BTreeMap::new();
    for (token, word) in encoding.tokens.iter().zip(encoding.words.iter().flatten()) {
        let piece = token.strip_prefix("##").unwrap_or(token);
        words.entry(*word).or_default().push_str(piece);
    }
    words.into_values().collect()
}

/// Counts words: the most frequent first, equally frequent ones in alphabetical order.
pub fn count(words: impl IntoIterator<Item = String>) -> Vec<(String, u64)> {
    let mut counts: HashMap<String, u64> = HashMap::new();
    for word in words {
        *counts.entry(word).or_default() += 1;
    }
    let mut counts: Vec<(String, u64)> = counts.into_iter().collect();
    counts.sort_unstable_by(|a, b| (Reverse(a.1), &a.0).cmp(&(Reverse(b.1), &b.0)));
    counts
}

/// Returns for each rank, counted from 1, how often the word of this rank occurs in 10,000 words. `counts` begins
/// with the most frequent word.
pub fn frequencies(counts: &[(String, u64)]) -> Vec<(f64, f64)> {
    let total: u64 = counts.iter().map(|entry| entry.1).sum();
    let per_ten_thousand = |count: u64| 1e4 * count as f64 / total as f64;
    let ranked = counts.iter().zip(1..);
    ranked.map(|(entry, rank)| (f64::from(rank), per_ten_thousand(entry.1))).collect()
}

/// Cuts each word into its characters, of which all but the first get the mark `##`.
pub fn spelled(counts: &[(String, u64)]) -> Vec<Word> {
    let piece = |(at, c): (usize, char)| match at {
        0 => c.to_string(),
        _ => format!("##{c}"),
    };
    let spell = |word: &str| word.chars().enumerate().map(piece).collect();
    counts.iter().map(|(word, count)| (spell(word), *count)).collect()
}

/// Returns the number of tokens of a text with these words.
pub fn token_count(words: &[Word]) -> u64 {
    words.iter().map(|(pieces, count)| pieces.len() as u64 * count).sum()
}

/// Returns the most frequent pair of neighbouring pieces; of equally frequent pairs the first in alphabetical
/// order.
pub fn most_frequent_pair(words: &[Word]) -> Option<(String, String)> {
    let mut counts: BTreeMap<(&str, &str), u64> = BTreeMap::new();
    for (pieces, count) in words {
        for pair in pieces.windows(2) {
            *counts.entry((&pair[0], &pair[1])).or_default() += count;
        }
    }
    let best = counts.into_iter().max_by_key(|&(pair, count)| (count, Reverse(pair)));
    best.map(|((left, right), _)| (left.to_owned(), right.to_owned()))
}

/// Returns a vocabulary: the special tokens, then the characters of the words, then `merged` in its order. Each
/// piece occurs once, though two merges may spell the same piece.
pub fn vocabulary(counts: &[(String, u64)], merged: &[String]) -> Vec<String> {
    let alphabet: BTreeSet<String> = spelled(counts).into_iter().flat_map(|word| word.0).collect();
    let special = SPECIAL_TOKENS.map(str::to_owned);
    let pieces = special.into_iter().chain(alphabet).chain(merged.iter().cloned());
    let mut known = HashSet::new();
    pieces.filter(|piece| known.insert(piece.clone())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::Casing;

    fn counts(text: &str) -> Vec<(String, u64)> {
        count(text.split(' ').map(str::to_owned))
    }

    #[test]
    fn the_best_line_meets_points_on_a_line() {
        assert_eq!(best_line(&[1.0, 2.0, 4.0], &[5.0, 7.0, 11.0]), (2.0, 3.0));
        assert!(best_line(&[1.0, 1.0], &[0.0, 2.0]).0.is_nan());
        let chart = words_by_characters(&[1.0, 2.0], &[1.5, 3.0], &[("best", (1.5, 0.0))]);
        assert!(chart.svg().contains("best"));
    }

    #[test]
    fn words_are_those_of_the_tokenizer() {
        let text = || "The mill's wheel, the mill.".to_owned();
        let tokenizer = WordPiece::train([Ok(text())], 30, Casing::Uncased).unwrap();
        let expected = ["the", "mill", "'", "s", "wheel", ",", "the", "mill", "."];
        assert_eq!(words(&tokenizer, &text()), expected);
    }

    #[test]
    fn frequent_words_come_first() {
        let counts = counts("b a c a");
        let expected = [("a", 2), ("b", 1), ("c", 1)].map(|(word, n)| (word.to_owned(), n));
        assert_eq!(counts, expected);
        assert_eq!(frequencies(&counts), [(1.0, 5e3), (2.0, 2.5e3), (3.0, 2.5e3)]);
    }

    #[test]
    fn words_become_pieces_and_a_vocabulary() {
        let counts = counts("to top to");
        let words = spelled(&counts);
        assert_eq!(words[0], (vec!["t".to_owned(), "##o".to_owned()], 2));
        assert_eq!(token_count(&words), 7);
        let pair = most_frequent_pair(&words).unwrap();
        assert_eq!((pair.0.as_str(), pair.1.as_str()), ("t", "##o"));
        assert_eq!(most_frequent_pair(&[]), None);
        let pieces = vocabulary(&counts, &["to".to_owned(), "to".to_owned()]);
        assert_eq!(pieces[5..], ["##o", "##p", "t", "to"]);
        assert!(WordPiece::from_vocab(pieces, Casing::Uncased).is_ok());
    }
}
