//! `cloze convert`: rewrites a model folder in the layout and with the names of current transformers,
//! or as an ONNX file.

use std::path::PathBuf;

use serde_json::json;

use crate::cli::shared::checks::{option_name, refuse};
use crate::cli::shared::stdio::say;
use crate::error::{Error, Result};
use crate::features::frozen;
use crate::files::{Staged, create_folder, stage_bytes, sweep};
use crate::hub::{self, SENTENCE_FILES};
use crate::model::weights::{self, Model, NumberFormat, any_wordpiece_of};
use crate::model::{Part, onnx};
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
    /// What to write: the files of transformers, or model.onnx for onnxruntime and the like
    #[arg(long, value_enum, default_value_t = Format::Hf)]
    format: Format,
    /// Number format of the weights; f16 and bf16 need half the space. ONNX files are written in f32
    #[arg(long, value_enum, default_value_t = NumberFormat::F32)]
    dtype: NumberFormat,
    /// Accept a folder whose configuration or vocabulary was changed after the weights were saved
    #[arg(long)]
    accept_changes: bool,
    /// Print one JSON object on stdout
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// config.json, model.safetensors and the tokenizer
    Hf,
    /// config.json, model.onnx and the tokenizer
    Onnx,
}

pub(crate) fn run(args: Args) -> Result<()> {
    if weights::any_weights_in(&args.output) {
        let out = args.output.display();
        refuse!("{out} already holds a model: give another folder");
    }
    if args.format == Format::Onnx && args.dtype != NumberFormat::F32 {
        refuse!("--dtype {}: --format onnx writes f32 only", option_name(args.dtype));
    }
    let folder = hub::folder_of(&args.input)?;
    if args.format == Format::Onnx && frozen::holds(&folder) {
        let message = "its head stands on a frozen encoder (head.safetensors), which --format onnx can't write";
        return Err(Error::file(&folder, message));
    }
    let model = Model::read_changed(&folder)?;
    let mut left_out = Vec::new();
    if frozen::holds(&folder) {
        let head = "head on a frozen encoder (head.safetensors)";
        note!("left out: the {head}, which only Cloze reads");
        left_out.push(head.to_owned());
    }
    let wordpiece = any_wordpiece_of(&folder, &model.config)?;
    if !args.accept_changes {
        model.check_config()?;
        model.check_vocabulary(&wordpiece)?;
    }
    let (out, layout, values) = (&args.output, &model.layout, &model.values);
    create_folder(out)?;
    // A command that was killed may have left its temporary files.
    sweep(out)?;
    let of_sentences = SENTENCE_FILES.into_iter().filter(|name| folder.join(name).is_file());
    match args.format {
        Format::Hf => {
            let (config, vocabulary) = (&model.config, Some(&wordpiece));
            let mut files = Vec::new();
            for name in of_sentences {
                let from = folder.join(name);
                let bytes = std::fs::read(&from).map_err(|e| Error::io(&from, e))?;
                files.push(stage_bytes(&out.join(name), &bytes)?);
            }
            // Last, because the weights vouch for all other files.
            files.extend(weights::stage(out, config, layout, values, vocabulary, args.dtype)?.0);
            Staged::place(files)?;
        }
        Format::Onnx => {
            onnx::write(out, &model.config, layout, values, &wordpiece)?;
            for name in of_sentences {
                note!("left out: {name}: an ONNX file has the vectors of tokens, not of sentences");
                left_out.push(name.to_owned());
            }
        }
    }
    let family = model.config.model_type;
    for &part in &model.left_out {
        let part = weights::describe(family, part);
        note!("left out: the {part}, which the class of this model does not have");
        left_out.push(part);
    }
    if args.format == Format::Hf && family.has_pooler() && layout.parts() == [Part::Encoder] {
        note!(
            "there is no pooler: if transformers' {} needs one, it initialises it randomly",
            family.class("Model")
        );
    }
    let (parameters, tensors) = (layout.total(), layout.parameters().len());
    if args.json {
        let object = json!({
            "parameters": parameters,
            "tensors": tensors,
            "format": option_name(args.format),
            "dtype": args.dtype.name(),
            "left_out": left_out,
        });
        return say!("{object}");
    }
    let out = out.display();
    say!("{parameters} parameters in {tensors} tensors written to {out}")
}
