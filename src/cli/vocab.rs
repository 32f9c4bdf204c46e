//! `cloze vocab`: train a WordPiece vocabulary from text.

use std::path::PathBuf;

use crate::cli::shared::checks::not_an_input;
use crate::cli::shared::stdio::say;
use crate::error::Result;
use crate::files::write_atomic;
use crate::note;
use crate::text::reader::text_files;
use crate::text::{Casing, Paragraphs, WordPiece};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Text files, .gz files or folders of .txt and .txt.gz files
    #[arg(long, required = true, num_args = 1.., value_name = "PATH")]
    text: Vec<PathBuf>,
    /// Number of tokens, special tokens included
    #[arg(long, value_name = "N")]
    size: usize,
    /// File for the vocabulary, one token a line
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// Keep upper case and accents
    #[arg(long)]
    cased: bool,
    /// Print one JSON object on stdout
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: Args) -> Result<()> {
    for path in &args.text {
        let files = text_files(path)?;
        not_an_input("--out", &args.out, files.iter().map(|file| ("--text", file.as_path())))?;
    }
    let casing = args.cased.then_some(Casing::Cased);
    let casing = casing.unwrap_or(Casing::Uncased);
    let texts = Paragraphs::new(&args.text)?.map(|paragraph| paragraph.map(|p| p.text));
    let wordpiece = WordPiece::train(texts, args.size, casing)?;
    write_atomic(&args.out, wordpiece.vocab_text().as_bytes())?;
    let size = wordpiece.vocab_size();
    if args.json {
        return say!("{}", serde_json::json!({ "size": size, "out": args.out }));
    }
    let reason = match size < args.size {
        true => "; the text has no more pairs of pieces that occur twice",
        false => "",
    };
    note!("{}: {size} tokens{reason}", args.out.display());
    Ok(())
}
