//! Splits a paragraph into sentences.
//!
//! The rules are those of the crate `sentencex` (abbreviations, initials, numbers, ellipses), with
//! three corrections for prose with dialogue:
//!
//! - `sentencex` never splits inside quotations and brackets, so a speech of a page would be one
//!   sentence. It therefore gets the paragraph with these marks blanked out.
//! - A piece that starts with a small letter continues the sentence: “Why?” he asked.
//! - Each cut is then corrected on the real text: closing quotation marks and brackets stay with the
//!   sentence that they touch, opening ones go with the next, and a piece without any letter or digit
//!   joins its neighbour.
//!
//! The sentences are consecutive slices of the paragraph: nothing is lost or doubled.

use sentencex::languages::{English, Language};

/// Splits a paragraph of English prose into sentences, without outer white space.
pub fn sentences(paragraph: &str) -> Vec<&str> {
    let blanked = blank_marks(paragraph);
    let mut cuts = vec![0];
    let mut end = 0;
    // How far the text behind the last cut was searched for words, and whether it has any.
    let (mut searched, mut words) = (0, false);
    for piece in (English {}).segment(&blanked) {
        end += piece.len();
        let cut = settle(paragraph, end);
        words = words || has_words(&paragraph[searched.min(cut)..cut]);
        searched = searched.max(cut);
        let rest = paragraph[cut..].trim_start();
        if words && !rest.starts_with(char::is_lowercase) {
            cuts.push(cut);
            words = false;
        }
    }
    if cuts.len() > 1 && !has_words(&paragraph[cuts[cuts.len() - 1]..]) {
        cuts.pop();
    }
    cuts.push(paragraph.len());
    cuts.windows(2)
        .map(|pair| paragraph[pair[0]..pair[1]].trim())
        .filter(|sentence| !sentence.is_empty())
        .collect()
}

/// Returns whether a piece is more than punctuation.
fn has_words(text: &str) -> bool {
    text.chars().any(char::is_alphanumeric)
}

/// Replaces each quotation mark and bracket by as many spaces as it has bytes, so that positions stay
/// the same. Apostrophes inside a word are kept.
fn blank_marks(paragraph: &str) -> String {
    let mut blanked = String::with_capacity(paragraph.len());
    let mut before = ' ';
    for c in paragraph.chars() {
        let blank = match c {
            '"' | '“' | '”' | '„' | '«' | '»' | '‘' | '(' | ')' | '[' | ']' => true,
            // After punctuation it closes a quotation; after a letter it is an apostrophe.
            '’' | '\'' => matches!(before, '.' | '!' | '?' | '…' | ',' | '—' | ' '),
            _ => false,
        };
        if blank {
            blanked.extend(std::iter::repeat_n(' ', c.len_utf8()));
        } else {
            blanked.push(c);
        }
        before = c;
    }
    blanked
}

/// Moves a cut between two sentences to just after the marks that touch the end of the first one.
fn settle(paragraph: &str, cut: usize) -> usize {
    let between = |c: char| c.is_whitespace() || is_mark(c);
    let end = paragraph[..cut].trim_end_matches(between).len();
    let rest = &paragraph[end..];
    let touching = rest.find(|c| !is_mark(c)).unwrap_or(rest.len());
    end + touching
}

/// Returns whether a character is a quotation mark or a closing bracket.
fn is_mark(c: char) -> bool {
    matches!(c, '"' | '“' | '”' | '„' | '«' | '»' | '‘' | '’' | '\'' | ')' | ']' | '}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prose_with_dialogue_is_split_where_a_reader_would() {
        for expected in [
            "“My dear Mr. Bennet,” said his lady to him one day, “have you heard that Netherfield Park is let at last?”",
            "“Oh! single, my dear, to be sure!|A single man of large fortune; four or five thousand a year.|\
             What a fine thing for our girls!”",
            "“How so? how can it affect them?”|“So.”",
            "“Is he married or single?” asked Mr. and Mrs. Long.|He was not.",
            "“I see no occasion for that.|You and the girls may go.”",
            "He stopped.|“Why?” he asked.|“Because—” she began.|It was 3.14 metres off.",
            "Dr. J. R. Watson lived at 221 Baker St. in London.|He liked it.",
            "\"Stop!\" he cried.|\"Who goes there?\"",
            "(He had seen it.)|She had not (or so she said).",
            "She waited… and waited.|Nobody came.",
            "‘Never,’ said I.|‘Not once.’|It wasn’t so.",
            "One sentence without an end",
            "What?!|No…",
        ] {
            assert_eq!(sentences(&expected.replace('|', " ")).join("|"), expected);
        }
    }

    #[test]
    fn marks_alone_join_their_neighbour() {
        let expected = ["“Go.”", "— “…” — He went. ”"];
        assert_eq!(sentences("“Go.” — “…” — He went. ”"), expected);
        assert_eq!(sentences("* * *"), ["* * *"]);
        assert!(sentences("  ").is_empty());
    }

    proptest::proptest! {
        /// Whatever the text, every character that is not white space stands in one sentence.
        #[test]
        fn nothing_is_lost_or_doubled(text in "[a-cA-C .!?…“”\"'’‘()—\u{0}\u{e9}\u{4e2d}]{0,80}") {
            let all: String = sentences(&text).concat();
            let solid = |s: &str| s.chars().filter(|c| !c.is_whitespace()).collect::<String>();
            proptest::prop_assert_eq!(solid(&all), solid(&text));
        }
    }
}
