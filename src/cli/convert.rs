//! `cloze convert`: rewrites a model folder in the layout and with the names of current transformers.

use std::path::PathBuf;

use serde_json::json;

use crate::cli::print::say;
use crate::error::{Error, Result};
use crate::files::Staged;
use crate::hub;
use crate::model::Part;
use crate::model::weights::{self, Model, NumberFormat};
use crate::note;

use crate::model::weights::any_wordpiece_of;

#[derive(clap::Args)]
pub struct Args {
    /// Model folder (config.json, model.safetensors, vocab.txt or tokenizer.json), or the name of one
    /// on the Hub
    #[arg(value_name = "DIR|NAME")]
    input: PathBuf,
    /// Folder to write
    #[arg(value_name = "OUT")]
    output: PathBuf,
    /// Number format of the weights; f16 and bf16 need half the space
    #[arg(long, value_enum, default_value_t = NumberFormat::F32)]
    dtype: NumberFormat,
    /// Accept a folder whose configuration or vocabulary was changed after the weights were saved
    #[arg(long)]
    accept_changes: bool,
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
    let folder = hub::folder_of(&args.input)?;
    let model = Model::read_changed(&folder)?;
    let wordpiece = any_wordpiece_of(&folder, &model.config)?;
    if !args.accept_changes {
        model.check_config()?;
        model.check_vocabulary(&wordpiece)?;
    }
    let (config, layout) = (&model.config, &model.layout);
    let (files, _) =
        weights::stage(&args.output, config, layout, &model.values, Some(&wordpiece), args.dtype)?;
    Staged::place(files)?;
    for &part in &model.left_out {
        note!(
            "left out: the {}, which the class of this model does not have",
            weights::describe(part)
        );
    }
    if layout.parts() == [Part::Encoder] {
        note!(
            "there is no pooler: if transformers' BertModel needs one, it initialises it randomly"
        );
    }
    let parameters = layout.total();
    if args.json {
        let object = json!({
            "parameters": parameters,
            "tensors": layout.parameters().len(),
            "dtype": args.dtype.name(),
            "left_out": model.left_out.iter().map(|&part| weights::describe(part)).collect::<Vec<_>>(),
        });
        say!("{object}")?;
    } else {
        say!(
            "{} parameters in {} tensors written to {}",
            parameters,
            layout.parameters().len(),
            args.output.display()
        )?;
    }
    Ok(())
}
