//! The official files of the tasks: what they are called, and where they are in a folder.

use std::path::{Path, PathBuf};

use crate::data::glue;
use crate::error::{Error, Result};

/// The official names of a task's files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Files {
    /// Names that the training file may have.
    pub train: &'static [&'static str],
    /// What the results on a file are called, and names that it may have. Only the first is needed.
    pub dev: &'static [(&'static str, &'static [&'static str])],
}

/// The official files of a task; None where it has none to train on.
pub fn files(name: &str) -> Option<Files> {
    const GLUE: &[&str] = &[glue::TRAIN];
    const CODAH: &[&str] = &["full_data.tsv"];
    const OWN_TRAIN: &[&str] = &["train.tsv", "train.csv", "train.jsonl"];
    const OWN_DEV: &[&str] = &["dev.tsv", "dev.csv", "dev.jsonl"];
    Some(match name {
        "ax" => return None,
        "mnli" => Files {
            train: GLUE,
            dev: &[
                ("dev", &["dev_matched.tsv"]),
                ("dev_mismatched", &["dev_mismatched.tsv"]),
            ],
        },
        "squad" => Files {
            train: &["train-v1.1.json"],
            dev: &[("dev", &["dev-v1.1.json"])],
        },
        "squad2" => Files {
            train: &["train-v2.0.json"],
            dev: &[("dev", &["dev-v2.0.json"])],
        },
        "swag" => Files {
            train: &["train.csv"],
            dev: &[("dev", &["val.csv"])],
        },
        "codah" => Files {
            train: CODAH,
            dev: &[("dev", CODAH)],
        },
        "ner" => Files {
            train: &["eng.train", "train.txt"],
            dev: &[
                ("dev", &["eng.testa", "valid.txt", "dev.txt"]),
                ("test", &["eng.testb", "test.txt"]),
            ],
        },
        "custom" => Files {
            train: OWN_TRAIN,
            dev: &[("dev", OWN_DEV)],
        },
        _ => Files {
            train: GLUE,
            dev: &[("dev", &["dev.tsv"])],
        },
    })
}

impl Files {
    /// The training file in a folder.
    pub fn train_in(&self, folder: &Path) -> Result<PathBuf> {
        found(folder, self.train).ok_or_else(|| missing(folder, self.train))
    }

    /// The names of results with the files in a folder that they are measured on.
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

/// The first of these files that is in the folder, packed or not.
fn found(folder: &Path, names: &[&str]) -> Option<PathBuf> {
    let both = |name: &&str| [(*name).to_owned(), format!("{name}.gz")];
    let mut paths = names.iter().flat_map(both).map(|name| folder.join(name));
    paths.find(|path| path.is_file())
}

/// What is said of a folder that has none of these files.
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
    fn what_a_folder_lacks_is_told_by_all_its_names() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let said = |message: Result<PathBuf>| message.unwrap_err().to_string();
        let own = files("custom").unwrap();
        let message = said(own.train_in(folder.path()));
        let expected = ": holds none of train.tsv, train.csv, train.jsonl, packed (.gz) or not";
        assert!(message.ends_with(expected), "{message}");
        let message = said(files("rte").unwrap().train_in(folder.path()));
        assert!(message.ends_with(": holds no train.tsv, packed (.gz) or not"));
        let message = said(own.train_in(&path("nowhere")));
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
