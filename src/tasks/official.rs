//! The official names of the tasks' files.

use std::path::{Path, PathBuf};

use crate::data::glue;
use crate::error::{Error, Result};

/// The official names of a task's files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Files {
    /// Possible names of the training file.
    pub train: &'static [&'static str],
    /// For each file to measure on, the name of its results and its possible names. Only the first file is
    /// required.
    pub dev: &'static [(&'static str, &'static [&'static str])],
}

/// Returns the official files of a task, or None if it has no training file.
pub fn files(name: &str) -> Option<Files> {
    const GLUE: &[&str] = &[glue::TRAIN];
    const CODAH: &[&str] = &["full_data.tsv"];
    const OWN_TRAIN: &[&str] = &["train.tsv", "train.csv", "train.jsonl", "train.parquet"];
    const OWN_DEV: &[&str] = &["dev.tsv", "dev.csv", "dev.jsonl", "dev.parquet"];
    Some(match name {
        "ax" => return None,
        "mnli" => Files {
            train: GLUE,
            dev: &[("dev", &["dev_matched.tsv"]), ("dev_mismatched", &["dev_mismatched.tsv"])],
        },
        "squad" => Files {
            train: &["train-v1.1.json", "train.jsonl"],
            dev: &[("dev", &["dev-v1.1.json", "dev.jsonl"])],
        },
        "squad2" => Files {
            train: &["train-v2.0.json", "train.jsonl"],
            dev: &[("dev", &["dev-v2.0.json", "dev.jsonl"])],
        },
        "swag" => Files { train: &["train.csv"], dev: &[("dev", &["val.csv"])] },
        "codah" => Files { train: CODAH, dev: &[("dev", CODAH)] },
        "ner" => Files {
            train: &["eng.train", "train.txt"],
            dev: &[
                ("dev", &["eng.testa", "valid.txt", "dev.txt"]),
                ("test", &["eng.testb", "test.txt"]),
            ],
        },
        "custom" => Files { train: OWN_TRAIN, dev: &[("dev", OWN_DEV)] },
        _ => Files { train: GLUE, dev: &[("dev", &["dev.tsv"])] },
    })
}

impl Files {
    /// Finds the training file in a folder.
    pub fn train_in(&self, folder: &Path) -> Result<PathBuf> {
        found(folder, self.train).ok_or_else(|| missing(folder, self.train))
    }

    /// Finds the files to measure on in a folder, each with the name of its results.
    pub fn dev_in(&self, folder: &Path) -> Result<Vec<(&'static str, PathBuf)>> {
        let mut all = Vec::new();
        for (index, (name, names)) in self.dev.iter().enumerate() {
            match found(folder, names) {
                Some(path) => all.push((*name, path)),
                None if index == 0 => return Err(missing(folder, names)),
                None => {}
            }
        }
        Ok(all)
    }
}

/// Finds the first of these files that the folder has, packed (.gz) or not.
fn found(folder: &Path, names: &[&str]) -> Option<PathBuf> {
    let both = |name: &&str| [(*name).to_owned(), format!("{name}.gz")];
    let mut paths = names.iter().flat_map(both).map(|name| folder.join(name));
    paths.find(|path| path.is_file())
}

/// The error for a folder that has none of these files.
fn missing(folder: &Path, names: &[&str]) -> Error {
    let holds = match names {
        _ if !folder.exists() => return Error::file(folder, "there is no such folder"),
        [name] => format!("holds no {name}"),
        names => format!("holds none of {}", names.join(", ")),
    };
    Error::file(folder, format!("{holds}, packed (.gz) or not"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_lists_all_names_of_a_missing_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let error = |found: Result<PathBuf>| found.unwrap_err().to_string();
        let own = files("custom").unwrap();
        let message = error(own.train_in(folder.path()));
        let expected =
            ": holds none of train.tsv, train.csv, train.jsonl, train.parquet, packed (.gz) or not";
        assert!(message.ends_with(expected), "{message}");
        let message = error(files("rte").unwrap().train_in(folder.path()));
        assert!(message.ends_with(": holds no train.tsv, packed (.gz) or not"));
        let message = error(own.train_in(&path("nowhere")));
        assert!(message.ends_with("nowhere: there is no such folder"));

        for name in ["train.csv.gz", "eng.testb", "test.txt"] {
            std::fs::write(path(name), "").unwrap();
        }
        assert_eq!(own.train_in(folder.path()).unwrap(), path("train.csv.gz"));
        let ner = files("ner").unwrap();
        let message = ner.dev_in(folder.path()).unwrap_err().to_string();
        assert!(message.contains("eng.testa, valid.txt, dev.txt"));
        std::fs::write(path("valid.txt"), "").unwrap();
        let expected = [("dev", path("valid.txt")), ("test", path("eng.testb"))];
        assert_eq!(ner.dev_in(folder.path()).unwrap(), expected);
    }
}
