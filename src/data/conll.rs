//! Reads columns of words and tags in the format of the CoNLL shared tasks: one word a line, columns
//! separated by blanks, the word first and its tag last, an empty line between sentences. Lines that
//! start with `-DOCSTART-` separate documents.

use std::path::Path;

use crate::error::{Error, Result};
use crate::text::reader::{Lines, open_or_stdin};

use super::bad::BadRows;
use super::tags::{Tags, in_iob2};

/// A sentence.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sentence {
    /// Its words.
    pub words: Vec<String>,
    /// A tag for each word: entity tags in IOB2, whatever the file's scheme, and other tags unchanged.
    /// Empty if the file has only one column.
    pub tags: Vec<String>,
}

/// Reads a file of columns; if `labelled`, it must have entity tags. A sentence with a bad line is a bad
/// row.
pub fn read(path: &Path, labelled: bool, bad: &mut BadRows) -> Result<Vec<Sentence>> {
    let tags = match labelled {
        true => Tags::Entities(None),
        false => Tags::Unread,
    };
    read_tagged(path, &tags, bad)
}

/// Reads a file of columns with the tags that it may hold.
pub fn read_tagged(path: &Path, tags: &Tags<'_>, bad: &mut BadRows) -> Result<Vec<Sentence>> {
    let mut sentences = Vec::new();
    let mut reader = Reader { path, tags, columns: None, open: Sentence::default(), fault: None };
    for (number, line) in (1..).zip(Lines::new(open_or_stdin(path)?, path)) {
        match line {
            // Other blanks, such as no-break spaces, are characters of words.
            Ok(line) => match line.trim_ascii_end() {
                // A document ends a sentence too, as in conlleval.
                line if line.is_empty() || line.starts_with("-DOCSTART-") => {
                    sentences.extend(bad.keep(reader.close())?.flatten())
                }
                line => reader.word(number, line),
            },
            Err(error @ Error::Line { .. }) => {
                reader.fault.get_or_insert(error);
            }
            Err(error) => return Err(error),
        }
    }
    sentences.extend(bad.keep(reader.close())?.flatten());
    bad.some(path, sentences, "sentence, lines of a word and its tag,")
}

struct Reader<'a> {
    path: &'a Path,
    tags: &'a Tags<'a>,
    /// Number of columns of the first word's line, which all others must have.
    columns: Option<usize>,
    open: Sentence,
    fault: Option<Error>,
}

impl Reader<'_> {
    fn word(&mut self, number: usize, line: &str) {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let expected = *self.columns.get_or_insert(fields.len());
        let complaint = if fields.len() != expected {
            let found = fields.len();
            Some(format!(
                "the line has {found} columns, but those before it have {expected}; expected a word a line, its \
                 tag in the last column, and an empty line between sentences"
            ))
        } else if *self.tags == Tags::Unread {
            None
        } else if let [_, .., tag] = fields.as_slice() {
            self.tags.complaint(tag)
        } else {
            let one = "the line has one column; expected a word and its tag, separated by a blank";
            Some(one.to_owned())
        };
        if let Some(complaint) = complaint {
            let fault = Error::line(self.path, number, complaint);
            self.fault.get_or_insert(fault);
        }
        let mut fields = fields.into_iter();
        self.open.words.extend(fields.next().map(str::to_owned));
        self.open.tags.extend(fields.next_back().map(str::to_owned));
    }

    /// Ends the current sentence and returns it, if there is one.
    fn close(&mut self) -> Result<Option<Sentence>> {
        let mut sentence = std::mem::take(&mut self.open);
        if let Some(fault) = self.fault.take() {
            return Err(fault);
        }
        if sentence.words.is_empty() {
            return Ok(None);
        }
        sentence.tags = in_iob2(sentence.tags);
        Ok(Some(sentence))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::test_file;

    fn parse(text: impl AsRef<[u8]>, labelled: bool, bad: &mut BadRows) -> Result<Vec<Sentence>> {
        let (_folder, path) = test_file("words.txt", text);
        read(&path, labelled, bad)
    }

    fn message(text: impl AsRef<[u8]>) -> String {
        let error = parse(text, true, &mut BadRows::refused());
        error.unwrap_err().to_string()
    }

    #[test]
    fn sentences_are_read_with_tags_in_iob2() {
        let text = "-DOCSTART- -X- O O\n\nEU NNP I-NP I-ORG\nrejects VBZ I-VP O\n\n\nPeter NNP I-NP I-PER\nBlackburn NNP I-NP I-PER\nX NNP I-NP B-PER";
        let sentences = parse(text, true, &mut BadRows::refused()).unwrap();
        assert_eq!(sentences.len(), 2);
        assert_eq!(sentences[0].words, ["EU", "rejects"]);
        assert_eq!(sentences[0].tags, ["B-ORG", "O"]);
        assert_eq!(sentences[1].tags, ["B-PER", "I-PER", "B-PER"]);
        let tags = parse("a NOUN\nb VERB\n", false, &mut BadRows::refused()).unwrap();
        assert_eq!(tags[0].tags, ["NOUN", "VERB"]);
        let words = parse("a\nb\n", false, &mut BadRows::refused()).unwrap();
        assert_eq!((words[0].words.len(), words[0].tags.len()), (2, 0));
    }

    #[test]
    fn a_document_ends_a_sentence() {
        let text = "EU B-ORG\nsaid O\n-DOCSTART- O\nBob B-PER\n";
        let sentences = parse(text, true, &mut BadRows::refused()).unwrap();
        let words: Vec<_> = sentences.iter().map(|it| it.words.join(" ")).collect();
        assert_eq!(words, ["EU said", "Bob"]);
    }

    #[test]
    fn a_no_break_space_is_part_of_a_word() {
        let text = "z.\u{a0}B. O\n\u{a0} O\n10\u{202f}km\tO\n";
        let sentences = parse(text, true, &mut BadRows::refused()).unwrap();
        assert_eq!(sentences[0].words, ["z.\u{a0}B.", "\u{a0}", "10\u{202f}km"]);
    }

    #[test]
    fn a_bad_line_is_named_or_its_sentence_skipped() {
        let text = "a O\nb O\n\nc\nd O\n\ne O\n";
        assert!(message(text).contains("words.txt:4: the line has 1 columns"));
        let mut bad = BadRows::skipped();
        let sentences = parse(text, true, &mut bad).unwrap();
        assert_eq!(sentences.len(), 2);
        assert!(bad.report().unwrap().contains(":4:"));
        assert!(message("a\n").contains("expected a word and its tag"));
        assert!(message("\n\n").contains("no sentence"));
    }

    #[test]
    fn a_tag_that_marks_no_entity_is_named_or_its_sentence_skipped() {
        let text = "EU B-ORG\nsaid O\n\nA B-PER\nand o\nB I-PER\n\nin O\nC B-LOX\n";
        assert!(message(text).contains("words.txt:5: the tag \"o\" is no entity's"));
        let mut bad = BadRows::skipped();
        assert_eq!(parse(text, true, &mut bad).unwrap().len(), 2);
        let (_folder, path) = test_file("words.txt", text);
        let known = Tags::Entities(Some(vec!["ORG", "PER"]));
        let mut bad = BadRows::skipped();
        assert_eq!(read_tagged(&path, &known, &mut bad).unwrap().len(), 1);
        let report = bad.report().unwrap();
        assert!(report.starts_with("2 bad rows left out, the first: ") && report.contains(":5: "));
        // Tags that aren't read may be anything.
        let unread = parse(text, false, &mut BadRows::refused()).unwrap();
        assert_eq!(unread.len(), 3);
    }

    /// So there are as many words as lines; no piece spells a word of zero bytes alone.
    #[test]
    fn zero_bytes_are_characters_of_words() {
        let text = "E\0U B-ORG\n\0\0 O\nsaid O\n\nso O\n";
        let sentences = parse(text, true, &mut BadRows::refused()).unwrap();
        assert_eq!(sentences[0].words, ["E\0U", "\0\0", "said"]);
        assert_eq!((sentences[0].tags.len(), sentences.len()), (3, 2));
    }

    #[test]
    fn a_line_that_is_not_utf_8_makes_its_sentence_bad() {
        let text = b"a O\n\nb O\n\xff O\nc O\n\nd\xff O\n\ne O\n";
        assert!(message(text).contains("words.txt:4: byte 1"));
        let mut bad = BadRows::skipped();
        let sentences = parse(text, true, &mut bad).unwrap();
        let words: Vec<&str> = sentences.iter().map(|s| s.words[0].as_str()).collect();
        assert_eq!(words, ["a", "e"]);
        assert!(bad.report().unwrap().starts_with("2 bad rows left out"));
    }
}
