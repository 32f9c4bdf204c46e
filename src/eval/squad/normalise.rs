//! Normalises answers exactly as SQuAD's Python scorers do.

use std::collections::HashMap;

use unicode_general_category::get_general_category;

/// Lower-cases an answer, removes ASCII punctuation and English articles, and separates words by one blank
/// (`normalize_answer` of evaluate-v2.0.py).
pub fn normalise(text: &str) -> String {
    let mut text = text.to_lowercase();
    text.retain(|c| !c.is_ascii_punctuation());
    let text = without_articles(&text);
    let words: Vec<&str> = text.split(is_space).filter(|w| !w.is_empty()).collect();
    words.join(" ")
}

/// Replaces articles by a blank: `\b(a|an|the)\b` matches whole runs of letters and digits.
fn without_articles(text: &str) -> String {
    let mut kept = String::with_capacity(text.len());
    let mut rest = text;
    while !rest.is_empty() {
        let word = rest.find(|c| !in_word(c)).unwrap_or(rest.len());
        let (run, after) = rest.split_at(word);
        kept.push_str(if matches!(run, "a" | "an" | "the") { " " } else { run });
        let between = after.find(in_word).unwrap_or(after.len());
        kept.push_str(&after[..between]);
        rest = &after[between..];
    }
    kept
}

/// Returns whether `\w` of Python's `re` matches: letters and numbers, but not the marks that Rust's
/// `is_alphanumeric` and other regular expressions include. (The underscore has been removed as
/// punctuation.)
fn in_word(c: char) -> bool {
    match c.is_ascii() {
        true => c.is_ascii_alphanumeric(),
        false => get_general_category(c).abbreviation().starts_with(['L', 'N']),
    }
}

/// Returns whether Python's `str.split()` splits here: at Unicode white space and the four ASCII separators.
fn is_space(c: char) -> bool {
    c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&c)
}

/// Returns the F1 of the words that two normalised answers have in common, counting repetitions; if one has
/// no word, 1 if both have none, else 0 (`compute_f1`).
pub fn f1(gold: &str, predicted: &str) -> f64 {
    let words = |text| -> Vec<&str> { str::split(text, ' ').filter(|w| !w.is_empty()).collect() };
    let (gold, predicted) = (words(gold), words(predicted));
    if gold.is_empty() || predicted.is_empty() {
        return f64::from(gold.is_empty() && predicted.is_empty());
    }
    let mut left: HashMap<&str, usize> = HashMap::new();
    for &word in &gold {
        *left.entry(word).or_default() += 1;
    }
    let mut common = 0;
    for word in &predicted {
        if let Some(count) = left.get_mut(word).filter(|count| **count > 0) {
            *count -= 1;
            common += 1;
        }
    }
    if common == 0 {
        return 0.0;
    }
    let precision = f64::from(common) / predicted.len() as f64;
    let recall = f64::from(common) / gold.len() as f64;
    (2.0 * precision * recall) / (precision + recall)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_words_are_articles() {
        for (text, expected) in [
            ("The a-b of AN  end.", "ab of end"),
            ("a", ""),
            ("an\u{00a0}a\u{1f}the\u{85}x", "x"),
            ("theatre a1 1a á the-", "theatre a1 1a á"),
            // A vowel sign is a mark: Python takes the letter before it for an article.
            ("a\u{93f}b", "\u{93f}b"),
            ("中the文 中 the 文", "中the文 中 文"),
            ("ΟΔΟΣ İ", "οδος i\u{307}"),
        ] {
            assert_eq!(normalise(text), expected, "{text:?}");
        }
    }

    #[test]
    fn common_words_count_as_often_as_both_answers_have_them() {
        let expected = 2.0 * (2.0 / 3.0) * (2.0 / 3.0) / (4.0 / 3.0);
        assert_eq!(f1("x x y", "x x x"), expected);
        assert_eq!((f1("", ""), f1("x", ""), f1("", "x"), f1("x", "y")), (1.0, 0.0, 0.0, 0.0));
    }
}
