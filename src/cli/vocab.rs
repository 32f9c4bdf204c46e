//! `cloze vocab`: trains a WordPiece vocabulary from text.

use std::path::PathBuf;

use crate::cli::print::say;
use crate::error::Result;
use crate::files::write_atomic;
use crate::note;
use crate::text::{Casing, Paragraphs, WordPiece};

#[derive(clap::Args)]
pub struct Args {
    /// Text files, .gz files or folders of .txt and .txt.gz files
    #[arg(long, required = true, num_args = 1.., value_name = "PATH")]
    text: Vec<PathBuf>,
    /// Number of tokens, special tokens included
    #[arg(long, value_name = "N")]
    size: usize,
    /// File to write, with one token on each line
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// Keep upper case and accents
    #[arg(long)]
    cased: bool,
    /// Print one JSON object on stdout
    #[arg(long)]
    json: bool,
}

/// Runs the subcommand.
pub fn run(args: Args) -> Result<()> {
    let casing = if args.cased { Casing::Cased } else { Casing::Uncased };
    let texts = Paragraphs::new(&args.text)?.map(|paragraph| paragraph.map(|p| p.text));
    let wordpiece = WordPiece::train(texts, args.size, casing)?;
    write_atomic(&args.out, wordpiece.vocab_text().as_bytes())?;
    let size = wordpiece.vocab_size();
    if args.json {
        say!("{}", serde_json::json!({ "size": size, "out": args.out }))?;
    } else if size < args.size {
        note!(
            "{}: {size} tokens; the text has no more pairs of pieces that occur twice",
            args.out.display()
        );
    } else {
        note!("{}: {size} tokens", args.out.display());
    }
    Ok(())
}
