//! Columns of words and tags, as the CoNLL shared tasks have them: a word a line, its columns
//! separated by blanks, the word first and its tag last, an empty line between sentences.
//! `-DOCSTART-` lines separate documents and are no words.

use std::path::Path;

use crate::error::{Error, Result};
use crate::eval::entities::{iob2, is_entity_tag};
use crate::text::files::{Lines, open_or_stdin};

use super::bad::BadRows;

/// A sentence; the two lists are equally long.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sentence {
    pub words: Vec<String>,
    /// Entity tags in IOB2 whatever the file's scheme was, other tags as they stand. Empty where the
    /// file has one column only.
    pub tags: Vec<String>,
}

/// Reads a file of columns; `labelled` says whether it must have tags. A sentence with a bad line is
/// a bad row.
pub fn read(path: &Path, labelled: bool, bad: &mut BadRows) -> Result<Vec<Sentence>> {
    let mut sentences = Vec::new();
    let mut reader = Reader {
        path,
        labelled,
        columns: None,
        open: Sentence::default(),
        fault: None,
    };
    let mut lines = Lines::new(open_or_stdin(path)?, path);
    let mut number = 0;
    loop {
        let line = lines.next().transpose()?;
        number += 1;
        match line.as_deref().map(str::trim_end) {
            None | Some("") => sentences.extend(bad.keep(reader.close())?.flatten()),
            Some(line) if line.starts_with("-DOCSTART-") => {}
            Some(line) => reader.word(number, line),
        }
        if line.is_none() {
            break;
        }
    }
    if sentences.is_empty() {
        return Err(Error::file(
            path,
            "holds no sentence; expected lines of a word and its tag",
        ));
    }
    Ok(sentences)
}

struct Reader<'a> {
    path: &'a Path,
    labelled: bool,
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
        } else if self.labelled && expected < 2 {
            Some(
                "the line has one column; expected a word and its tag, separated by a blank".into(),
            )
        } else {
            None
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

/// Tags as they stand, but entities' in IOB2.
pub fn in_iob2(tags: Vec<String>) -> Vec<String> {
    let all: Vec<&str> = tags.iter().map(String::as_str).collect();
    if all.iter().all(|tag| is_entity_tag(tag)) {
        iob2(&all)
    } else {
        tags
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
        let tags = parse("a NOUN\nb VERB\n", true, &mut BadRows::refused()).unwrap();
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
        assert!(bad.told().unwrap().contains(":4:"));
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
}
