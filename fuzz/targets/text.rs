//! Any text through the sentence splitter, the words of tagged texts, and the tokenizers.

#![no_main]

use std::sync::LazyLock;

use cloze::text::words::Text;
use cloze::text::{Casing, WordPiece, sentences};
use cloze_fuzz::{file, wordpiece};
use libfuzzer_sys::fuzz_target;

static WORDPIECES: LazyLock<[WordPiece; 2]> =
    LazyLock::new(|| [Casing::Cased, Casing::Uncased].map(wordpiece));

/// Byte-level BPE with a token for each byte, a few merges, and RoBERTa's special tokens.
static BYTE_LEVEL: LazyLock<WordPiece> = LazyLock::new(|| {
    let path = file("tokenizer.json", include_bytes!("byte_level.json"));
    WordPiece::from_file(&path, None).expect("this is RoBERTa's kind of tokenizer")
});

fuzz_target!(|text: &str| {
    whole_sentences(text);
    for wordpiece in &*WORDPIECES {
        pieces(wordpiece, text);
    }
    pieces(&BYTE_LEVEL, text);
    // A special token's name in the text becomes that token.
    if !BYTE_LEVEL.tokens().iter().any(|token| token.starts_with('<') && text.contains(token)) {
        let ids = BYTE_LEVEL.encode(text).ids;
        assert_eq!(BYTE_LEVEL.decode(&ids), text, "every byte has a token");
    }
    let words = Text::new(text);
    let mut end = 0;
    for place in words.places() {
        assert!(end <= place.start && place.start < place.end && place.end <= words.len());
        assert!(!words.cut(place.clone()).contains(char::is_whitespace));
        end = place.end;
    }
});

/// Sentences are consecutive slices of the text, and between them is nothing but white space.
fn whole_sentences(text: &str) {
    let mut rest = text;
    for sentence in sentences(text) {
        assert!(!sentence.is_empty() && sentence.trim() == sentence);
        let start = sentence.as_ptr() as usize - rest.as_ptr() as usize;
        assert!(rest[..start].trim().is_empty());
        rest = &rest[start + sentence.len()..];
    }
    assert!(rest.trim().is_empty());
}

fn pieces(wordpiece: &WordPiece, text: &str) {
    let encoding = wordpiece.encode(text);
    let length = text.chars().count();
    let mut before = (0, 0);
    for &(start, end) in &encoding.offsets {
        assert!(start <= end && end <= length);
        assert!(before.0 <= start && before.1 <= end, "{:?}", encoding.offsets);
        before = (start, end);
    }
    assert!(encoding.words.is_sorted());
    let tokens = encoding.ids.iter().map(|&id| wordpiece.token(id));
    assert!(tokens.eq(encoding.tokens.iter().map(|token| Some(token.as_str()))));
    let mut ids = Vec::new();
    wordpiece.encode_ids(text, &mut ids);
    assert_eq!(ids, encoding.ids);
    let (pair, segments) = wordpiece.encode_pair(text, text);
    assert_eq!(pair.len(), segments.len());
    assert_eq!(pair.len(), 2 * ids.len() + 2 + wordpiece.between().len());
    wordpiece.decode(&ids);
}
