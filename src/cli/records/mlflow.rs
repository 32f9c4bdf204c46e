//! MLflow's file store: a folder for each experiment, in it one for each run, and in that a file for each
//! setting, each tag and each series of numbers, with lines "time value step"
//! (mlflow/store/tracking/file_store.py).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use ring::digest::{SHA256, digest};
use serde_json::{Value, json};

use crate::error::{Error, Result};
use crate::files::{create_folder, disk, write_atomic};

use super::Run;

/// The file that describes an experiment or a run.
const META: &str = "meta.yaml";
/// `RunStatus.FINISHED` and `SourceType.LOCAL`.
const FINISHED: u8 = 3;
const LOCAL: u8 = 4;

/// An experiment in a store.
pub struct Store {
    /// The experiment's folder.
    folder: PathBuf,
    id: String,
}

impl Store {
    /// Finds or creates the experiment of this name.
    pub fn open(root: &Path, experiment: &str) -> Result<Self> {
        create_folder(root)?;
        let root = root.canonicalize().map_err(|e| Error::io(root, e))?;
        for entry in std::fs::read_dir(&root).map_err(|e| Error::io(&root, e))? {
            let entry = entry.map_err(|e| Error::io(&root, e))?;
            let meta = std::fs::read_to_string(entry.path().join(META)).unwrap_or_default();
            if meta.lines().any(|line| is_name(line, experiment)) {
                let id = entry.file_name().to_string_lossy().into_owned();
                return Ok(Self { folder: entry.path(), id });
            }
        }
        // MLflow's own numbers have 18 digits too.
        let id = u64::from_str_radix(&hash(experiment)[..15], 16).unwrap_or_default();
        let id = format!("{:018}", id % 10_u64.pow(18));
        let folder = root.join(&id);
        let meta = [
            ("artifact_location", json!(folder.display().to_string())),
            ("experiment_id", json!(id)),
            ("lifecycle_stage", json!("active")),
            ("name", json!(experiment)),
        ];
        write_atomic(&folder.join(META), yaml(&meta).as_bytes())?;
        Ok(Self { folder, id })
    }

    /// Writes a run and its settings, in place of what was written of the same run before; returns the
    /// run's id.
    pub fn add(&self, run: &Run, settings: &BTreeMap<String, String>) -> Result<String> {
        let metrics = run.metrics.canonicalize().map_err(|e| Error::io(&run.metrics, e))?;
        let id = hash(&metrics.to_string_lossy())[..32].to_owned();
        let folder = self.folder.join(&id);
        if folder.exists() {
            disk::remove_tree(&folder).map_err(|e| Error::io(&folder, e))?;
        }
        let artifacts = folder.join("artifacts");
        create_folder(&artifacts)?;
        for (name, points) in &run.series {
            let lines = points.iter().map(|point| {
                // Python reads "nan" and "inf", as Rust writes them.
                let value = format!("{}", point.value).to_lowercase();
                format!("{} {value} {}\n", point.time, point.step)
            });
            let lines: String = lines.collect();
            write_atomic(&folder.join("metrics").join(name), lines.as_bytes())?;
        }
        for (name, value) in settings {
            write_atomic(&folder.join("params").join(name), value.as_bytes())?;
        }
        write_atomic(&folder.join("tags/mlflow.runName"), run.name.as_bytes())?;
        let (start, end) = run.times;
        let meta = [
            ("artifact_uri", json!(artifacts.display().to_string())),
            ("end_time", json!(end)),
            ("entry_point_name", json!("")),
            ("experiment_id", json!(self.id)),
            ("lifecycle_stage", json!("active")),
            ("run_id", json!(id)),
            // The name of older versions.
            ("run_uuid", json!(id)),
            ("run_name", json!(run.name)),
            ("source_name", json!("")),
            ("source_type", json!(LOCAL)),
            ("source_version", json!("")),
            ("start_time", json!(start.min(end))),
            ("status", json!(FINISHED)),
            ("tags", json!([])),
            ("user_id", json!("")),
        ];
        // Last, because MLflow takes a folder with this file for a run.
        write_atomic(&folder.join(META), yaml(&meta).as_bytes())?;
        Ok(id)
    }
}

/// Returns whether a line of a description gives this name, with or without quotes.
fn is_name(line: &str, name: &str) -> bool {
    let value = line.strip_prefix("name: ").map(str::trim);
    value.is_some_and(|value| value == name || value.trim_matches(['\'', '"']) == name)
}

/// Returns a file of entries. JSON's values are YAML.
fn yaml(entries: &[(&str, Value)]) -> String {
    entries.iter().map(|(name, value)| format!("{name}: {value}\n")).collect()
}

/// Returns the SHA-256 of a text in hexadecimal digits.
fn hash(text: &str) -> String {
    let bytes = digest(&SHA256, text.as_bytes());
    bytes.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}
