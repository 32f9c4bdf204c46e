//! `cloze nsp`: the probability that one text follows another.

use std::path::PathBuf;

use serde_json::json;

use crate::cli::shared::stdio::say;
use crate::engine::Backend;
use crate::error::Result;
use crate::lessons::data::SMALL;
use crate::predict::NextSentence;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Model folder with a next-sentence head, or the name of one on the Hub
    #[arg(long, default_value = SMALL, value_name = "DIR|NAME")]
    model: PathBuf,
    /// The first text
    a: String,
    /// The text that may follow it
    b: String,
    /// Print one JSON object on stdout
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: Args) -> Result<()> {
    // The CPU answers one pair before a GPU is ready.
    let model = NextSentence::builder(&args.model).backend(Backend::Cpu).load()?;
    let is_next = model.in_f64(&[(&args.a, &args.b)])?[0];
    if args.json {
        say!("{}", json!({ "is_next": is_next }))
    } else {
        say!("B follows A with probability {is_next:.4}")
    }
}
