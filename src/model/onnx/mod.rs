//! Models as ONNX files, which onnxruntime and other programs run without Cloze or Python.
//!
//! A folder has the layout that Hugging Face's optimum exports: `model.onnx`, `config.json` and the
//! tokenizer. The graph's inputs are `input_ids`, `attention_mask` and, in models with several segments,
//! `token_type_ids`; its outputs are named as in transformers, and batch size and sequence length are
//! free. `bert.rs` is the model, `graph.rs` builds and writes graphs, `proto.rs` has the file's messages.

mod bert;
mod graph;
mod proto;

use std::path::Path;

use crate::error::{Error, Result};
use crate::files::{Staged, stage};
use crate::text::WordPiece;

use super::weights::{NumberFormat, check_finite, described, stage_beside};
use super::{Config, Layout};

/// The file of the model.
const MODEL: &str = "model.onnx";
/// Upper limit of the weights in bytes. A protobuf message takes 2 GiB; the graph takes less than the rest.
const MOST_BYTES: usize = (1 << 31) - (16 << 20);

/// Writes a model folder in ONNX, in f32, completely or not at all.
///
/// # Errors
/// If a weight is not finite, or the model is too large for one file.
pub fn write(
    folder: &Path,
    config: &Config,
    layout: &Layout,
    values: &[f32],
    wordpiece: &WordPiece,
) -> Result<()> {
    let path = folder.join(MODEL);
    let bytes = layout.total().saturating_mul(4);
    if bytes > MOST_BYTES {
        let size = bytes as f64 / (1_u64 << 30) as f64;
        let message = format!(
            "the weights need {size:.1} GiB in f32, but an ONNX file holds less than 2 GiB"
        );
        return Err(Error::file(&path, message));
    }
    for (parameter, range) in layout.iter() {
        check_finite(&parameter.name, &values[range]).map_err(|m| Error::file(&path, m))?;
    }
    let config = described(config, layout, NumberFormat::F32);
    let mut files = stage_beside(folder, &config, Some(wordpiece))?;
    let graph = bert::graph(&config, layout, values);
    files.push(stage(&path, |file| graph.write(file).map_err(|e| Error::io(&path, e)))?);
    Staged::place(files)
}

#[cfg(test)]
mod tests;
