//! Questions about texts (SQuAD's JSON and JSON lines), words with tags (CoNLL), and entities as spans.

#![no_main]

use std::sync::LazyLock;

use cloze::data::bad::BadRows;
use cloze::data::conll::{self, Sentence};
use cloze::data::spans;
use cloze::data::squad::{Misplaced, Squad, WindowOptions, Windows};
use cloze::text::words::Text;
use cloze::text::{Casing, WordPiece};
use cloze_fuzz::{file, parts, wordpiece};
use libfuzzer_sys::fuzz_target;

// The first byte of an input chooses the reader.
fuzz_target!(|data: &[u8]| {
    match data.split_first() {
        Some((b'q', rest)) => questions(rest),
        Some((b'w', rest)) => words(rest),
        Some((b's', rest)) => entities(rest),
        _ => {}
    }
});

fn questions(data: &[u8]) {
    static WORDPIECE: LazyLock<WordPiece> = LazyLock::new(|| wordpiece(Casing::Uncased));
    let path = file("questions.json", data);
    let all = Squad::read(&path, Misplaced::Keep);
    for misplaced in [Misplaced::Refuse, Misplaced::Skip] {
        let Ok(squad) = Squad::read(&path, misplaced) else {
            continue;
        };
        // Two questions with one id are refused, but the check may have left one of them out.
        if let Ok(all) = &all {
            assert!(squad.questions().count() <= all.questions().count());
        }
        for (paragraph, question) in squad.questions() {
            for answer in question.answers.iter().flatten() {
                let place = answer.place(&paragraph.context).expect("answers were checked");
                let found: String =
                    paragraph.context.chars().skip(place.start).take(place.len()).collect();
                assert_eq!(found, answer.text);
            }
        }
    }
    let Ok(squad) = all else {
        return;
    };
    let options = WindowOptions { max_len: 16, stride: 3, max_question: 6 };
    let windows = Windows::cut(&squad, &WORDPIECE, options).expect("the options leave room");
    assert_eq!(windows.questions(), squad.questions().count());
    for (index, (paragraph, _)) in squad.questions().enumerate() {
        let length = paragraph.context.chars().count();
        for window in windows.of_question(index) {
            assert!(windows.tokens(window) <= options.max_len);
            let pieces = windows.pieces(window);
            if !pieces.is_empty() {
                assert!(windows.text_range(index, pieces).end <= length);
            }
        }
    }
}

fn words(data: &[u8]) {
    let path = file("words.txt", data);
    let read = |labelled, mut bad| conll::read(&path, labelled, &mut bad);
    for labelled in [true, false] {
        let strict = read(labelled, BadRows::refused());
        let lenient = read(labelled, BadRows::skipped());
        if let Ok(strict) = &strict {
            assert_eq!(Some(strict), lenient.as_ref().ok(), "without bad rows");
        }
        for Sentence { words, tags } in lenient.iter().flatten() {
            assert!(!words.is_empty());
            assert!(tags.is_empty() || tags.len() == words.len());
        }
    }
    let Ok(sentences) = read(true, BadRows::refused()) else {
        return;
    };
    let mut text = String::new();
    for Sentence { words, tags } in &sentences {
        for (word, tag) in words.iter().zip(tags) {
            text += &format!("{word} {tag}\n");
        }
        text.push('\n');
    }
    // A first word that marks a document would be left out, and a text with too many control characters refused.
    if !text.contains("-DOCSTART-") && !text.contains(|c: char| c.is_control() && c != '\n') {
        let path = file("written.txt", text.as_bytes());
        let again = conll::read(&path, true, &mut BadRows::refused());
        assert_eq!(again.expect("we wrote it"), sentences);
    }
}

fn entities(data: &[u8]) {
    let [text, json] = parts(data).map(String::from_utf8_lossy);
    let Some(Ok(spans)) = spans::parse(&json) else {
        return;
    };
    let text = Text::new(&text);
    if let Ok(tagged) = spans::tags(&text, spans) {
        assert_eq!(tagged.tags.len(), text.places().len());
    }
}
