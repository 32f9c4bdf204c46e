//! `cloze fill-mask`: what the model puts into a blank.

use std::path::PathBuf;

use serde_json::json;

use crate::cli::print::say;
use crate::error::{Error, Result};
use crate::eval::softmax;
use crate::hub;
use crate::lessons::data::MODEL;
use crate::model::Part;

use super::checks::at_least_one;
use super::model::Loaded;

#[derive(clap::Args)]
pub struct Args {
    /// Model folder with a masked-LM head, or the name of one on the Hub
    #[arg(long, default_value = MODEL, value_name = "DIR|NAME")]
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

pub fn run(args: Args) -> Result<()> {
    at_least_one("--top-k", args.top_k as u64)?;
    let folder = hub::folder_of(&args.model)?;
    let mut model = Loaded::read(&folder, &[Part::Encoder, Part::MaskedLm])?;
    if model.engine.config().is_decoder {
        return Err(Error::file(
            &folder,
            "reads from left to right (is_decoder in its config.json): it predicts the next word \
             and sees nothing behind a blank; take a model that was pre-trained without \
             --left-to-right",
        ));
    }
    let encoding = model.wordpiece.encode_with_special(&args.text);
    let mask = model.wordpiece.special().mask;
    let rows: Vec<u32> = (0u32..)
        .zip(&encoding.ids)
        .filter(|(_, id)| **id == mask)
        .map(|(row, _)| row)
        .collect();
    if rows.is_empty() {
        return Err(Error::Usage(format!(
            "{:?} has no [MASK]: write one where a word is missing",
            args.text
        )));
    }
    let batch = model.batch(&encoding.ids, &vec![0; encoding.ids.len()])?;
    let logits = model.engine.masked_lm_logits(&batch, &rows)?;
    let masks: Vec<Vec<(u32, f64)>> = logits
        .chunks(model.engine.config().vocab_size)
        .map(|logits| best(&softmax(logits), args.top_k))
        .collect();

    let token = |id: u32| model.wordpiece.token(id).unwrap_or("[UNK]");
    if args.json {
        let masks: Vec<Vec<_>> = masks
            .iter()
            .map(|mask| {
                mask.iter()
                    .map(|&(id, p)| json!({"token": token(id), "id": id, "probability": p}))
                    .collect()
            })
            .collect();
        say!("{}", json!({ "masks": masks }))?;
    } else {
        for (i, mask) in masks.iter().enumerate() {
            if masks.len() > 1 {
                say!("blank {}:", i + 1)?;
            }
            for &(id, p) in mask {
                say!("{:6.2} %  {}", 100.0 * p, token(id))?;
            }
        }
    }
    Ok(())
}

/// The `k` most probable tokens, best first; of equal ones the smaller id.
fn best(probabilities: &[f64], k: usize) -> Vec<(u32, f64)> {
    let mut all: Vec<(u32, f64)> = (0u32..).zip(probabilities.iter().copied()).collect();
    all.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    all.truncate(k);
    all
}
