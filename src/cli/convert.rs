//! `cloze convert`: a model folder in, the same model out in the layout and names of today's
//! transformers.

use std::path::PathBuf;

use serde_json::json;

use crate::error::{Error, Result};
use crate::model::weights::{self, Model};
use crate::text::WordPiece;

#[derive(clap::Args)]
pub struct Args {
    /// Model folder: config.json, model.safetensors, vocab.txt or tokenizer.json
    #[arg(value_name = "DIR")]
    input: PathBuf,
    /// Folder to write
    #[arg(value_name = "OUT")]
    output: PathBuf,
    /// Print one JSON object on stdout
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args) -> Result<()> {
    if args.output.join(weights::WEIGHTS).exists() {
        return Err(Error::Usage(format!(
            "{} already holds a model: give another folder",
            args.output.display()
        )));
    }
    let model = Model::read_all(&args.input)?;
    let wordpiece = WordPiece::from_file(&args.input, None)?;
    wordpiece.save(&args.output)?;
    model.write(&args.output)?;
    let parameters = model.layout.total();
    if args.json {
        let object = json!({"parameters": parameters, "tensors": model.layout.parameters().len()});
        println!("{object}");
    } else {
        println!(
            "{} parameters in {} tensors written to {}",
            parameters,
            model.layout.parameters().len(),
            args.output.display()
        );
    }
    Ok(())
}
