//! The words of a text, as sets with a label for every word count them: between blanks, punctuation apart; and
//! their places in the text.

use std::ops::Range;

use unicode_general_category::get_general_category;

/// A text with the places of its words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Text {
    chars: Vec<char>,
    /// In characters.
    words: Vec<Range<usize>>,
}

impl Text {
    /// Splits a text into words.
    pub fn new(text: &str) -> Self {
        let chars: Vec<char> = text.chars().collect();
        Self { words: words(&chars), chars }
    }

    /// Joins words by blanks.
    pub fn of_words(all: &[String]) -> Self {
        let (mut chars, mut words) = (Vec::new(), Vec::new());
        for word in all {
            if !words.is_empty() {
                chars.push(' ');
            }
            let start = chars.len();
            chars.extend(word.chars());
            words.push(start..chars.len());
        }
        Self { chars, words }
    }

    /// Returns the number of characters.
    pub fn len(&self) -> usize {
        self.chars.len()
    }

    /// Returns whether there is no character.
    pub fn is_empty(&self) -> bool {
        self.chars.is_empty()
    }

    /// Returns the words' places, in characters.
    pub fn places(&self) -> &[Range<usize>] {
        &self.words
    }

    /// Returns the words.
    pub fn words(&self) -> Vec<String> {
        self.words.iter().map(|word| self.cut(word.clone())).collect()
    }

    /// Returns the characters from the first to the last of these words, which must not be none.
    pub fn span(&self, words: Range<usize>) -> Range<usize> {
        self.words[words.start].start..self.words[words.end - 1].end
    }

    /// Returns a part of the text, given in characters.
    pub fn cut(&self, chars: Range<usize>) -> String {
        self.chars[chars].iter().collect()
    }
}

/// Returns where the words of a text are, in characters. A Chinese character is a word, and so is a punctuation
/// mark, unless it stands inside a word, as in `O'Neill`, `e-mail` or `U.S.A`.
fn words(text: &[char]) -> Vec<Range<usize>> {
    let mut words: Vec<Range<usize>> = Vec::new();
    let letter = |at: Option<&char>| at.is_some_and(|c| c.is_alphanumeric() && !is_chinese(*c));
    let mut open = false;
    for (at, &c) in text.iter().enumerate() {
        if c.is_whitespace() {
            open = false;
            continue;
        }
        let before = at.checked_sub(1).and_then(|before| text.get(before));
        let inside =
            matches!(c, '\'' | '’' | '-' | '.' | '&') && letter(before) && letter(text.get(at + 1));
        let alone = is_chinese(c) || (is_punctuation(c) && !inside);
        match words.last_mut() {
            Some(word) if open && !alone => word.end = at + 1,
            _ => words.push(at..at + 1),
        }
        open = !alone;
    }
    words
}

/// Punctuation as BERT counts it: all of ASCII that is neither letter, digit nor blank, and Unicode's.
fn is_punctuation(c: char) -> bool {
    c.is_ascii_punctuation() || get_general_category(c).abbreviation().starts_with('P')
}

/// The characters that BERT's tokenizer takes for words.
fn is_chinese(c: char) -> bool {
    matches!(c, '\u{4E00}'..='\u{9FFF}' | '\u{3400}'..='\u{4DBF}' | '\u{20000}'..='\u{2A6DF}'
        | '\u{2A700}'..='\u{2B81F}' | '\u{2B920}'..='\u{2CEAF}' | '\u{F900}'..='\u{FAFF}'
        | '\u{2F800}'..='\u{2FA1F}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn punctuation_is_a_word_unless_it_stands_inside_one() {
        for case in [
            "Ann O'Neill, e-mailed the U.S.A. → Ann|O'Neill|,|e-mailed|the|U.S.A|.",
            "(Zoe\u{301} sagt: „Nein“) → (|Zoe\u{301}|sagt|:|„|Nein|“|)",
            "我在北京,你 in\tParis → 我|在|北|京|,|你|in|Paris",
            "a-b-  - 5.5% → a-b|-|-|5.5|%",
            " → ",
        ] {
            let (text, expected) = case.split_once(" → ").unwrap();
            assert_eq!(Text::new(text).words().join("|"), expected);
        }
    }

    #[test]
    fn places_are_counted_in_characters() {
        let text = Text::new("Zoë,  東 to 🙂x");
        assert_eq!(text.places(), [0..3, 3..4, 6..7, 8..10, 11..13]);
        assert_eq!((text.span(0..3), text.len()), (0..7, 13));
        assert_eq!(text.cut(6..10), "東 to");
        let joined = Text::of_words(&["Zoë", "is", "🙂"].map(str::to_owned));
        assert_eq!(joined.cut(0..joined.len()), "Zoë is 🙂");
        assert_eq!(joined.places(), [0..3, 4..6, 7..8]);
    }
}
