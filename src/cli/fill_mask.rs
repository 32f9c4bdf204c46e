//! `cloze fill-mask`: the most probable words for the blanks in a text.

use std::path::PathBuf;

use serde_json::{Value, json};

use crate::cli::shared::checks::at_least_one;
use crate::cli::shared::stdio::say;
use crate::engine::Backend;
use crate::error::Result;
use crate::lessons::data::SMALL;
use crate::predict::FillMask;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Model folder with a masked-LM head, or the name of one on the Hub
    #[arg(long, default_value = SMALL, value_name = "DIR|NAME")]
    model: PathBuf,
    /// Text with one or more [MASK]
    text: String,
    /// How many words to show for each blank
    #[arg(long, default_value_t = 5, value_name = "K")]
    top_k: usize,
    /// Print one JSON object on stdout
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: Args) -> Result<()> {
    at_least_one([("--top-k", args.top_k as u64)])?;
    // The CPU answers one text before a GPU is ready.
    let model = FillMask::builder(&args.model).backend(Backend::Cpu).load()?;
    let masks = model.top_ids(&[&args.text], args.top_k)?.concat();
    if args.json {
        let guess =
            |(id, p): (u32, f64)| json!({"token": model.token(id), "id": id, "probability": p});
        let guesses = |mask: Vec<(u32, f64)>| mask.into_iter().map(guess).collect();
        let masks: Vec<Value> = masks.into_iter().map(guesses).collect();
        return say!("{}", json!({ "masks": masks }));
    }
    for (i, mask) in masks.iter().enumerate() {
        if masks.len() > 1 {
            say!("blank {}:", i + 1)?;
        }
        for &(id, p) in mask {
            say!("{:6.2} %  {}", 100.0 * p, model.token(id))?;
        }
    }
    Ok(())
}
