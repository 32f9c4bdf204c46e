//! `cloze nsp`: does the second text follow the first?

use std::path::PathBuf;

use serde_json::json;

use crate::cli::print::say;
use crate::error::Result;
use crate::eval::softmax;
use crate::hub;
use crate::lessons::data::MODEL;
use crate::model::Part;

use super::model::Loaded;

#[derive(clap::Args)]
pub struct Args {
    /// Model folder with a next-sentence head, or the name of one on the Hub
    #[arg(long, default_value = MODEL, value_name = "DIR|NAME")]
    model: PathBuf,
    /// The first text
    a: String,
    /// The text that may follow it
    b: String,
    /// Print one JSON object on stdout
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args) -> Result<()> {
    let parts = [Part::Encoder, Part::Pooler, Part::NextSentence];
    let mut model = Loaded::read(&hub::folder_of(&args.model)?, &parts)?;
    let (encoding, segments) = model.wordpiece.encode_pair(&args.a, &args.b);
    let batch = model.batch(&encoding.ids, &segments)?;
    let is_next = softmax(&model.engine.next_sentence_logits(&batch)?[0])[0];
    if args.json {
        say!("{}", json!({ "is_next": is_next }))?;
    } else {
        say!("B follows A with probability {is_next:.4}")?;
    }
    Ok(())
}
