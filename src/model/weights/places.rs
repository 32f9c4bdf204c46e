//! Where a model folder keeps its weights: one safetensors file, or shards that an index lists. What
//! only Python reads is refused with the way to convert it.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::error::{Error, Result};

use super::{CONFIG, WEIGHTS};

/// The file that says which shard holds which tensor.
pub const INDEX: &str = "model.safetensors.index.json";

/// The index of shards; what else it says is not needed.
#[derive(Deserialize)]
struct Index {
    /// Names of tensors, and of the shards that hold them.
    weight_map: BTreeMap<String, String>,
}

/// The files that hold a model's weights.
pub(super) struct Places {
    /// The file to name where the whole is at fault: the single one, or the index.
    pub main: PathBuf,
    pub files: Vec<PathBuf>,
    /// For each file the tensors that the index promises; none without an index.
    pub promised: Vec<Vec<String>>,
}

impl Places {
    /// Looks for weights in `folder`; refuses what no safetensors file holds.
    pub fn find(folder: &Path) -> Result<Self> {
        let (whole, index) = (folder.join(WEIGHTS), folder.join(INDEX));
        if whole.exists() {
            return Ok(Self {
                main: whole.clone(),
                files: vec![whole],
                promised: vec![Vec::new()],
            });
        }
        if !index.exists() {
            return Err(no_safetensors(folder));
        }
        let text = std::fs::read_to_string(&index).map_err(|e| Error::io(&index, e))?;
        let names = shards(&text).map_err(|message| Error::file(&index, message))?;
        let (files, promised) = names
            .into_iter()
            .map(|(shard, tensors)| (folder.join(shard), tensors))
            .unzip();
        Ok(Self {
            main: index,
            files,
            promised,
        })
    }

    /// The bytes of each file.
    pub fn read(&self) -> Result<Vec<Vec<u8>>> {
        self.files
            .iter()
            .map(|path| std::fs::read(path).map_err(|e| Error::io(path, e)))
            .collect()
    }
}

/// The names of the shards that the text of an index lists.
pub fn files_of(index: &str) -> std::result::Result<BTreeSet<String>, String> {
    Ok(shards(index)?.into_keys().collect())
}

/// Shards with their tensors. A shard is a file beside the index: any other path is refused.
fn shards(index: &str) -> std::result::Result<BTreeMap<String, Vec<String>>, String> {
    let index: Index = serde_json::from_str(index)
        .map_err(|e| format!("is no index of safetensors shards: {e}"))?;
    let mut shards = BTreeMap::<String, Vec<String>>::new();
    for (tensor, shard) in index.weight_map {
        let plain = Path::new(&shard).file_name() == Some(OsStr::new(&shard))
            && shard.ends_with(".safetensors");
        if !plain {
            return Err(format!(
                "tensor {tensor} is said to be in {shard:?}, which is not the name of a safetensors file beside the index"
            ));
        }
        shards.entry(shard).or_default().push(tensor);
    }
    if shards.is_empty() {
        return Err("lists no tensors in weight_map".into());
    }
    Ok(shards)
}

/// Formats of weights that are not read, as the end of a file's name, what reads them, and what to
/// call the class with.
enum Foreign {
    Pickle,
    TensorFlow,
    Checkpoint,
    Flax,
}

impl Foreign {
    fn of(name: &str) -> Option<Self> {
        if [".bin", ".bin.index.json", ".pt", ".pth"]
            .iter()
            .any(|end| name.ends_with(end))
        {
            Some(Self::Pickle)
        } else if name.ends_with(".h5") {
            Some(Self::TensorFlow)
        } else if name.contains(".ckpt") {
            Some(Self::Checkpoint)
        } else if name.ends_with(".msgpack") {
            Some(Self::Flax)
        } else {
            None
        }
    }
}

/// Why the files of `names`, none of them safetensors, are not read, and the line of Python that
/// converts them; None when there are no weights among them at all. `model` is what transformers
/// finds the model by, `class` its class.
pub fn refusal<'a>(
    names: impl IntoIterator<Item = &'a str>,
    model: &str,
    class: &str,
) -> Option<String> {
    let mut names: Vec<&str> = names.into_iter().collect();
    names.sort_unstable();
    let (name, kind) = names
        .iter()
        .find_map(|name| Some((*name, Foreign::of(name)?)))?;
    let (what, with, from) = match kind {
        Foreign::Pickle => (
            "a pickle file, which can run any program when it is read and is never read here",
            "PyTorch and transformers",
            format!("'{model}'"),
        ),
        Foreign::TensorFlow => (
            "TensorFlow's format",
            "TensorFlow, PyTorch and transformers 4",
            format!("'{model}', from_tf=True"),
        ),
        Foreign::Checkpoint => {
            let stem = name.split(".ckpt").next().unwrap_or_default();
            (
                "a checkpoint of TensorFlow",
                "TensorFlow, PyTorch and transformers 4",
                format!(
                    "'{model}/{stem}.ckpt.index', from_tf=True, config='{model}/bert_config.json'"
                ),
            )
        }
        Foreign::Flax => (
            "Flax's format",
            "Flax, PyTorch and transformers 4",
            format!("'{model}', from_flax=True"),
        ),
    };
    Some(format!(
        "there is no {WEIGHTS}, but {name}, {what}; convert it where {with} are installed: \
         python -c \"from transformers import {class} as M; M.from_pretrained({from}).save_pretrained('converted')\""
    ))
}

/// The class that a configuration names, as far as one is to be read.
pub fn class_of(config: &str) -> Option<String> {
    let config: serde_json::Value = serde_json::from_str(config).ok()?;
    Some(config["architectures"][0].as_str()?.to_owned())
}

fn no_safetensors(folder: &Path) -> Error {
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(e) => return Error::io(folder, e),
    };
    let names: Vec<String> = entries
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    let class = std::fs::read_to_string(folder.join(CONFIG))
        .ok()
        .and_then(|text| class_of(&text))
        .unwrap_or_else(|| "BertForPreTraining".into());
    let model = folder.display().to_string();
    let message = refusal(names.iter().map(String::as_str), &model, &class)
        .unwrap_or_else(|| format!("the folder holds no model: neither {WEIGHTS} nor {INDEX}"));
    Error::file(folder, message)
}
