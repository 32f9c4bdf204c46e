//! Finds the weight files of a model folder: one safetensors file, or the shards of an index. For
//! formats that only Python reads, the error explains how to convert them.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::error::{Error, Result};

use super::{CONFIG, WEIGHTS};

/// The file that maps tensors to shards.
pub const INDEX: &str = "model.safetensors.index.json";

/// The index of shards; its other fields are not needed.
#[derive(Deserialize)]
struct Index {
    /// Maps tensor names to shard names.
    weight_map: BTreeMap<String, String>,
}

/// The files of a model's weights.
pub(super) struct WeightFiles {
    /// The file to name in errors about the whole: the single file, or the index.
    pub main: PathBuf,
    /// The safetensors files.
    pub paths: Vec<PathBuf>,
    /// The tensors that the index lists for each file; empty without an index.
    pub promised: Vec<Vec<String>>,
}

impl WeightFiles {
    /// Finds the weights in `folder`; returns an error if no safetensors file holds them.
    pub fn find(folder: &Path) -> Result<Self> {
        let (whole, index) = (folder.join(WEIGHTS), folder.join(INDEX));
        if whole.exists() {
            return Ok(Self {
                main: whole.clone(),
                paths: vec![whole],
                promised: vec![Vec::new()],
            });
        }
        if !index.exists() {
            return Err(no_safetensors(folder));
        }
        let text = std::fs::read_to_string(&index).map_err(|e| Error::io(&index, e))?;
        let names = shards(&text).map_err(|message| Error::file(&index, message))?;
        let (paths, promised) =
            names.into_iter().map(|(shard, tensors)| (folder.join(shard), tensors)).unzip();
        Ok(Self { main: index, paths, promised })
    }

    /// Reads the bytes of each file.
    pub fn read(&self) -> Result<Vec<Vec<u8>>> {
        let read = |path: &PathBuf| std::fs::read(path).map_err(|e| Error::io(path, e));
        self.paths.iter().map(read).collect()
    }
}

/// Returns the names of the shards in the text of an index.
pub fn files_of(index: &str) -> std::result::Result<BTreeSet<String>, String> {
    Ok(shards(index)?.into_keys().collect())
}

/// Returns the shards with their tensors. A shard is a file in the folder of the index: any other
/// path is an error.
fn shards(index: &str) -> std::result::Result<BTreeMap<String, Vec<String>>, String> {
    let index: Index = serde_json::from_str(index)
        .map_err(|e| format!("is not an index of safetensors shards: {e}"))?;
    let mut shards = BTreeMap::<String, Vec<String>>::new();
    for (tensor, shard) in index.weight_map {
        let plain = Path::new(&shard).file_name() == Some(OsStr::new(&shard))
            && shard.ends_with(".safetensors");
        if !plain {
            return Err(format!(
                "maps tensor {tensor} to {shard:?}, which is not the name of a safetensors file beside the index"
            ));
        }
        shards.entry(shard).or_default().push(tensor);
    }
    if shards.is_empty() {
        return Err("lists no tensors in weight_map".into());
    }
    Ok(shards)
}

/// Describes a weight format that Cloze doesn't read: what it is, what converts it, and the arguments that
/// `from_pretrained` takes for it. None if the file holds no such weights.
fn foreign(name: &str, model: &str) -> Option<(&'static str, &'static str, String)> {
    let pickle = [".bin", ".bin.index.json", ".pt", ".pth"];
    let tensorflow = "TensorFlow, PyTorch and transformers 4";
    Some(if pickle.iter().any(|end| name.ends_with(end)) {
        let what =
            "a pickle file, which can run any program when it is read and is never read here";
        (what, "PyTorch and transformers", format!("'{model}'"))
    } else if name.ends_with(".h5") {
        let from = format!("'{model}', from_tf=True");
        ("TensorFlow's format", tensorflow, from)
    } else if let Some((stem, _)) = name.split_once(".ckpt") {
        let index = format!("{model}/{stem}.ckpt.index");
        let from = format!("'{index}', from_tf=True, config='{model}/bert_config.json'");
        ("a checkpoint of TensorFlow", tensorflow, from)
    } else if name.ends_with(".msgpack") {
        let from = format!("'{model}', from_flax=True");
        ("Flax's format", "Flax, PyTorch and transformers 4", from)
    } else {
        return None;
    })
}

/// Returns why none of the files `names` can be read, and the line of Python that converts them;
/// None if there are no weights among them. `model` is the name or path for transformers, `class`
/// the model's class.
pub fn refusal<'a>(
    names: impl IntoIterator<Item = &'a str>,
    model: &str,
    class: &str,
) -> Option<String> {
    let mut names: Vec<&str> = names.into_iter().collect();
    names.sort_unstable();
    let found = names.iter().map(|name| (name, foreign(name, model)));
    let (name, (what, with, from)) = found.filter_map(|(name, kind)| Some((name, kind?))).next()?;
    Some(format!(
        "there is no {WEIGHTS}, but {name}, {what}; convert it where {with} are installed: \
         python -c \"from transformers import {class} as M; M.from_pretrained({from}).save_pretrained('converted')\""
    ))
}

/// Returns whether a folder holds weights in any format, also in one that is never read here.
pub fn any_weights_in(folder: &Path) -> bool {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let files = entries.filter(|entry| entry.path().is_file());
    let mut names = files.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.any(|name| {
        let own = [WEIGHTS, INDEX].contains(&name.as_str()) || name.ends_with(".onnx");
        own || foreign(&name, "").is_some()
    })
}

/// Returns the model class that a configuration names, if it can be read.
pub fn class_of(config: &str) -> Option<String> {
    let config: serde_json::Value = serde_json::from_str(config).ok()?;
    Some(config["architectures"][0].as_str()?.to_owned())
}

fn no_safetensors(folder: &Path) -> Error {
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(e) => return Error::io(folder, e),
    };
    let names = entries.flatten().map(|entry| entry.file_name().into_string());
    let names: Vec<String> = names.flatten().collect();
    let class = std::fs::read_to_string(folder.join(CONFIG))
        .ok()
        .and_then(|text| class_of(&text))
        .unwrap_or_else(|| "BertForPreTraining".into());
    let model = folder.display().to_string();
    let message = refusal(names.iter().map(String::as_str), &model, &class)
        .unwrap_or_else(|| format!("the folder holds no model: neither {WEIGHTS} nor {INDEX}"));
    Error::file(folder, message)
}
