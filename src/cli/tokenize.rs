//! `cloze tokenize`: prints one line of tokens for each line of text on stdin.

use std::fmt::{Display, Write as _};
use std::path::PathBuf;

use rayon::prelude::*;

use crate::cli::shared::stdio::answer_lines;
use crate::error::Result;
use crate::text::{Casing, WordPiece};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// A vocab.txt, a tokenizer.json or a model folder
    #[arg(long, value_name = "FILE")]
    vocab: PathBuf,
    /// Keep upper case and accents (for a cased vocab.txt)
    #[arg(long)]
    cased: bool,
    /// Print ids instead of tokens
    #[arg(long)]
    ids: bool,
    /// Print each token's start and end in the line, in Unicode code points
    #[arg(long, conflicts_with = "ids")]
    offsets: bool,
    /// Print one JSON object for each line: ids, offsets and tokens
    #[arg(long, conflicts_with_all = ["ids", "offsets"])]
    json: bool,
}

pub(crate) fn run(args: Args) -> Result<()> {
    let wordpiece = WordPiece::from_file(&args.vocab, args.cased.then_some(Casing::Cased))?;
    answer_lines(|batch| {
        Ok(batch.par_iter().with_min_len(16).map(|line| answer(&args, &wordpiece, line)).collect())
    })
}

/// Returns the line of output for a line of input.
fn answer(args: &Args, wordpiece: &WordPiece, line: &str) -> String {
    if args.ids {
        let special = wordpiece.special();
        let mut ids = vec![special.cls];
        wordpiece.encode_ids(line, &mut ids);
        ids.push(special.sep);
        return joined(ids.iter());
    }
    let encoding = wordpiece.encode_with_special(line);
    if args.json {
        return serde_json::json!({
            "ids": encoding.ids,
            "offsets": encoding.offsets,
            "tokens": encoding.tokens,
        })
        .to_string();
    }
    if args.offsets {
        let offsets = encoding.offsets.iter();
        return joined(offsets.map(|(start, end)| format!("{start}-{end}")));
    }
    joined(encoding.tokens.iter())
}

/// Joins the items with blanks.
fn joined<T: Display>(items: impl Iterator<Item = T>) -> String {
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
