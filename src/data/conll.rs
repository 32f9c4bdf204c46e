//! Columns of words and tags, as the CoNLL shared tasks have them: a word a line, its columns
//! separated by blanks, the word first and its tag last, an empty line between sentences.
//! `-DOCSTART-` lines separate documents and are no words. Tags are those of entities.

use std::path::Path;

use crate::error::{Error, Result};
use crate::text::reader::{Lines, open_or_stdin};

use super::bad::BadRows;
use super::tags::{Tags, in_iob2};

/// A sentence; the two lists are equally long.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sentence {
    pub words: Vec<String>,
    /// Entities' tags in IOB2 whatever the file's scheme was; as they stand where they aren't read and
    /// some are none. Empty where the file has one column only.
    pub tags: Vec<String>,
}

/// Reads a file of columns; `labelled` says whether it must have tags, which are then entities'. A
/// sentence with a bad line is a bad row.
pub fn read(path: &Path, labelled: bool, bad: &mut BadRows) -> Result<Vec<Sentence>> {
    let tags = if labelled {
        Tags::Entities(None)
    } else {
        Tags::Unread
    };
    read_tagged(path, &tags, bad)
}

/// The same, where it is told what the tags may be.
pub fn read_tagged(path: &Path, tags: &Tags<'_>, bad: &mut BadRows) -> Result<Vec<Sentence>> {
    let mut sentences = Vec::new();
    let mut reader = Reader {
        path,
        tags,
        columns: None,
        open: Sentence::default(),
        fault: None,
    };
    for (number, line) in (1..).zip(Lines::new(open_or_stdin(path)?, path)) {
        match line {
            Ok(line) => match line.trim_end() {
                "" => sentences.extend(bad.keep(reader.close())?.flatten()),
                line if line.starts_with("-DOCSTART-") => {}
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
    /// Of the first word's line; all others must have as many.
    columns: Option<usize>,
    open: Sentence,
    fault: Option<Error>,
}

impl Reader<'_> {
    fn word(&mut self, number: usize, line: &str) {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let expected = *self.columns.get_or_insert(fields.len());
        let complaint = if fields.len() != expected {
            Some(format!(
                "the line has {} columns, but those before it have {expected}",
                fields.len()
            ))
        } else if *self.tags == Tags::Unread {
            None
        } else if let [_, .., tag] = fields.as_slice() {
            self.tags.complaint(tag)
        } else {
            Some(
                "the line has one column; expected a word and its tag, separated by a blank".into(),
            )
        };
        if let Some(complaint) = complaint {
            self.fault
                .get_or_insert(Error::line(self.path, number, complaint));
        }
        let mut fields = fields.into_iter();
        self.open.words.extend(fields.next().map(str::to_owned));
        self.open.tags.extend(fields.next_back().map(str::to_owned));
    }

    /// The sentence that ends here; None where there is none.
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

    fn parse(text: &str, labelled: bool, bad: &mut BadRows) -> Result<Vec<Sentence>> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("words.txt");
        std::fs::write(&path, text).unwrap();
        read(&path, labelled, bad)
    }

    #[test]
    fn sentences_are_read_and_their_tags_made_iob2() {
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
    fn a_bad_line_is_named_or_its_sentence_left_out() {
        let text = "a O\nb O\n\nc\nd O\n\ne O\n";
        let message = parse(text, true, &mut BadRows::refused())
            .unwrap_err()
            .to_string();
        assert!(
            message.contains("words.txt:4: the line has 1 columns"),
            "{message}"
        );
        let mut bad = BadRows::skipped();
        let sentences = parse(text, true, &mut bad).unwrap();
        assert_eq!(sentences.len(), 2);
        assert!(bad.report().unwrap().contains(":4:"));
        let message = parse("a\n", true, &mut BadRows::refused())
            .unwrap_err()
            .to_string();
        assert!(message.contains("expected a word and its tag"), "{message}");
        assert!(
            parse("\n\n", true, &mut bad)
                .unwrap_err()
                .to_string()
                .contains("no sentence")
        );
    }

    #[test]
    fn a_tag_that_is_no_entity_s_is_named_or_its_sentence_left_out() {
        let text = "EU B-ORG\nsaid O\n\nA B-PER\nand o\nB I-PER\n\nin O\nC B-LOX\n";
        let error = parse(text, true, &mut BadRows::refused()).unwrap_err();
        let expected = "words.txt:5: the tag \"o\" is no entity's";
        assert!(error.to_string().contains(expected), "{error}");
        let mut bad = BadRows::skipped();
        assert_eq!(parse(text, true, &mut bad).unwrap().len(), 2);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("words.txt");
        std::fs::write(&path, text).unwrap();
        let known = Tags::Entities(Some(vec!["ORG", "PER"]));
        let mut bad = BadRows::skipped();
        assert_eq!(read_tagged(&path, &known, &mut bad).unwrap().len(), 1);
        let told = bad.report().unwrap();
        assert!(told.starts_with("2 bad rows left out, the first: ") && told.contains(":5: "));
        // Tags that aren't read may be anything.
        assert_eq!(
            parse(text, false, &mut BadRows::refused()).unwrap().len(),
            3
        );
    }

    /// The lines stay as many as the words: a word of them alone is one that no piece spells.
    #[test]
    fn zero_bytes_are_characters_of_words() {
        let text = "E\0U B-ORG\n\0\0 O\nsaid O\n\nso O\n";
        let sentences = parse(text, true, &mut BadRows::refused()).unwrap();
        assert_eq!(sentences[0].words, ["E\0U", "\0\0", "said"]);
        assert_eq!((sentences[0].tags.len(), sentences.len()), (3, 2));
    }

    #[test]
    fn a_line_that_is_no_text_costs_its_sentence() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("words.txt");
        std::fs::write(&path, b"a O\n\nb O\n\xff O\nc O\n\nd\xff O\n\ne O\n").unwrap();
        let error = read(&path, true, &mut BadRows::refused()).unwrap_err();
        assert!(error.to_string().contains("words.txt:4: byte 1"), "{error}");
        let mut bad = BadRows::skipped();
        let sentences = read(&path, true, &mut bad).unwrap();
        let words: Vec<&str> = sentences.iter().map(|s| s.words[0].as_str()).collect();
        assert_eq!(words, ["a", "e"]);
        assert!(bad.report().unwrap().starts_with("2 bad rows left out"));
    }
}
