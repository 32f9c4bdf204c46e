//! `cloze tokenize`: one line of tokens for each line of text on stdin.

use std::fmt::Write as _;
use std::io::{self, BufReader, Stdin, Write};
use std::path::{Path, PathBuf};

use rayon::prelude::*;

use crate::error::{Error, Result};
use crate::text::files::Lines;
use crate::text::{Casing, WordPiece};

/// Bytes of input that are read, and so tokenised, together.
const BUFFER_BYTES: usize = 1 << 20;

#[derive(clap::Args)]
pub struct Args {
    /// A vocab.txt, a tokenizer.json or a model folder
    #[arg(long, value_name = "FILE")]
    vocab: PathBuf,
    /// Tell upper from lower case and keep accents (for a cased vocab.txt)
    #[arg(long)]
    cased: bool,
    /// Print ids instead of tokens
    #[arg(long)]
    ids: bool,
    /// Print each token's start and end in the line, in Unicode code points
    #[arg(long, conflicts_with = "ids")]
    offsets: bool,
    /// Print one JSON object a line: ids, offsets and tokens
    #[arg(long, conflicts_with_all = ["ids", "offsets"])]
    json: bool,
}

/// Runs the subcommand.
pub fn run(args: Args) -> Result<()> {
    let wordpiece = WordPiece::from_file(&args.vocab, args.cased.then_some(Casing::Cased))?;
    let stdin = Path::new("stdin");
    let mut lines = Lines::new(BufReader::with_capacity(BUFFER_BYTES, io::stdin()), stdin);
    let mut out = io::stdout().lock();
    loop {
        let (batch, fault) = next_batch(&mut lines);
        let answers: Vec<String> = batch
            .par_iter()
            .with_min_len(16)
            .map(|line| answer(&args, &wordpiece, line))
            .collect();
        for answer in &answers {
            match out.write_all(answer.as_bytes()) {
                Ok(()) => {}
                // The reader has enough, as in `cloze tokenize … | head`.
                Err(e) if e.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
                Err(e) => return Err(Error::io("stdout", e)),
            }
        }
        if let Some(error) = fault {
            return Err(error);
        }
        if batch.is_empty() {
            return Ok(());
        }
    }
}

/// The lines that can be had without waiting, at least one unless the input is at its end: so a
/// program that sends one line and waits for the answer gets it. An error comes after the lines
/// before it.
fn next_batch(lines: &mut Lines<BufReader<Stdin>>) -> (Vec<String>, Option<Error>) {
    let mut batch = Vec::new();
    loop {
        match lines.next() {
            None => return (batch, None),
            Some(Err(error)) => return (batch, Some(error)),
            Some(Ok(line)) => batch.push(line),
        }
        if !lines.reader().buffer().contains(&b'\n') {
            return (batch, None);
        }
    }
}

/// The line of output for one line of input.
fn answer(args: &Args, wordpiece: &WordPiece, line: &str) -> String {
    let mut text = if args.ids {
        let special = wordpiece.special();
        let mut ids = vec![special.cls];
        wordpiece.encode_ids(line, &mut ids);
        ids.push(special.sep);
        joined(ids.iter())
    } else {
        let encoding = wordpiece.encode_with_special(line);
        if args.json {
            serde_json::json!({
                "ids": encoding.ids,
                "offsets": encoding.offsets,
                "tokens": encoding.tokens,
            })
            .to_string()
        } else if args.offsets {
            joined(
                encoding
                    .offsets
                    .iter()
                    .map(|(start, end)| format!("{start}-{end}")),
            )
        } else {
            joined(encoding.tokens.iter())
        }
    };
    text.push('\n');
    text
}

/// The items with blanks between them.
fn joined<T: std::fmt::Display>(items: impl Iterator<Item = T>) -> String {
    let mut text = String::new();
    for item in items {
        if !text.is_empty() {
            text.push(' ');
        }
        // Writing to a String cannot fail.
        let _ = write!(text, "{item}");
    }
    text
}
