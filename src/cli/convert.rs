//! `cloze convert`: rewrites a model folder in the layout and with the names of current transformers.

use std::path::PathBuf;

use serde_json::json;

use crate::cli::shared::checks::refuse;
use crate::cli::shared::stdio::say;
use crate::error::Result;
use crate::files::Staged;
use crate::hub;
use crate::model::Part;
use crate::model::weights::{self, Model, NumberFormat, any_wordpiece_of};
use crate::note;

#[derive(clap::Args)]
pub(crate) struct Args {
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

pub(crate) fn run(args: Args) -> Result<()> {
    if args.output.join(weights::WEIGHTS).exists() {
        let out = args.output.display();
        refuse!("{out} already holds a model: give another folder");
    }
    let folder = hub::folder_of(&args.input)?;
    let model = Model::read_changed(&folder)?;
    let wordpiece = any_wordpiece_of(&folder, &model.config)?;
    if !args.accept_changes {
        model.check_config()?;
        model.check_vocabulary(&wordpiece)?;
    }
    let (out, layout, values) = (&args.output, &model.layout, &model.values);
    let vocabulary = Some(&wordpiece);
    let (files, _) = weights::stage(out, &model.config, layout, values, vocabulary, args.dtype)?;
    Staged::place(files)?;
    let left_out = model.left_out.iter().map(|&part| weights::describe(part));
    for part in left_out.clone() {
        note!("left out: the {part}, which the class of this model does not have");
    }
    if layout.parts() == [Part::Encoder] {
        note!(
            "there is no pooler: if transformers' BertModel needs one, it initialises it randomly"
        );
    }
    let (parameters, tensors) = (layout.total(), layout.parameters().len());
    if args.json {
        let object = json!({
            "parameters": parameters,
            "tensors": tensors,
            "dtype": args.dtype.name(),
            "left_out": left_out.collect::<Vec<_>>(),
        });
        return say!("{object}");
    }
    let out = out.display();
    say!("{parameters} parameters in {tensors} tensors written to {out}")
}
