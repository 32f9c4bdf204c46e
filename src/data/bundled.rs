//! The small labelled data sets of the lessons and two small models, `cloze-tiny` and `cloze-small`, all made for
//! Cloze. They are part of the library, so an installed `cloze` has them without a checkout or a network. Commands
//! take folders, so the files are written to the user's cache.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use flate2::Crc;

use crate::error::{Error, Result};
use crate::files::{create_folder, write_atomic};

/// The model of most lessons, which is fine-tuned within seconds.
pub const TINY: &str = "cloze-tiny";

/// The model that commands use if none is named.
pub const SMALL: &str = "cloze-small";

/// A file's name and its bytes.
type File = (&'static str, &'static [u8]);

macro_rules! folder {
    ($name:literal: $($file:literal)*) => {
        ($name, &[$((
            $file,
            include_bytes!(concat!("../../lessons/data/", $name, "/", $file)),
        )),*])
    };
}

/// Every folder of `lessons/data` with its files.
const FOLDERS: [(&str, &[File]); 7] = [
    folder!("spam": "train.tsv" "dev.tsv"),
    folder!("answerable": "train.tsv" "dev.tsv"),
    folder!("endings": "train.csv" "val.csv"),
    folder!("names": "train.txt" "valid.txt"),
    folder!("questions": "train-v2.0.json" "dev-v2.0.json"),
    folder!("cloze-tiny": "config.json" "model.safetensors" "vocab.txt" "tokenizer_config.json" "README.md"),
    folder!("cloze-small": "config.json" "model.safetensors" "vocab.txt" "tokenizer_config.json" "README.md"),
];

/// Returns the folder of a model if `name` is [`TINY`] or [`SMALL`].
///
/// # Errors
/// If the cache can't be written.
pub fn model(name: &Path) -> Option<Result<PathBuf>> {
    [TINY, SMALL].into_iter().find(|known| name == Path::new(known)).map(folder)
}

/// Returns the folder of a data set or of a model in the user's cache: `spam`, `answerable`, `endings`, `names`,
/// `questions`, `cloze-tiny` or `cloze-small`. Writes files that are missing there.
///
/// # Errors
/// If there is no such set, or the cache can't be written.
pub fn folder(name: &str) -> Result<PathBuf> {
    let cache = dirs::cache_dir().unwrap_or_else(std::env::temp_dir);
    lay_out(&cache.join("cloze").join("lessons").join(version()), name)
}

fn lay_out(root: &Path, name: &str) -> Result<PathBuf> {
    let Some((_, files)) = FOLDERS.iter().find(|(known, _)| *known == name) else {
        let all = FOLDERS.map(|(name, _)| name).join(", ");
        return Err(Error::Usage(format!(
            "the lessons have no data called {name:?}; they have {all}"
        )));
    };
    let folder = root.join(name);
    create_folder(&folder)?;
    for (file, bytes) in *files {
        let path = folder.join(file);
        // Files are written completely or not at all, so comparing the length is enough.
        let there = std::fs::metadata(&path).is_ok_and(|found| found.len() == bytes.len() as u64);
        if !there {
            write_atomic(&path, bytes)?;
        }
    }
    Ok(folder)
}

/// Returns a checksum of the data, because programs of several versions share the cache.
fn version() -> &'static str {
    static VERSION: OnceLock<String> = OnceLock::new();
    VERSION.get_or_init(|| {
        let mut sum = Crc::new();
        for (_, bytes) in FOLDERS.iter().flat_map(|(_, files)| *files) {
            sum.update(bytes);
        }
        format!("{:08x}", sum.sum())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The names of a folder's files, sorted.
    fn listing(folder: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(folder).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn every_folder_of_the_checkout_is_written_unchanged() {
        let root = tempfile::tempdir().unwrap();
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("lessons/data");
        for name in listing(&source) {
            if name.ends_with(".md") {
                continue;
            }
            let folder = lay_out(root.path(), &name).unwrap();
            assert_eq!(listing(&folder), listing(&source.join(&name)), "{name}");
            for file in listing(&folder) {
                let [got, wanted] = [&folder, &source.join(&name)]
                    .map(|folder| std::fs::read(folder.join(&file)).unwrap());
                assert!(got == wanted, "{name}/{file}");
            }
        }
    }

    #[test]
    fn truncated_files_are_written_again_and_whole_ones_left_alone() {
        let root = tempfile::tempdir().unwrap();
        let folder = lay_out(root.path(), "spam").unwrap();
        let (train, dev) = (folder.join("train.tsv"), folder.join("dev.tsv"));
        let whole = std::fs::read(&train).unwrap();
        std::fs::write(&train, &whole[..100]).unwrap();
        let modified = |path: &Path| std::fs::metadata(path).unwrap().modified().unwrap();
        let before = modified(&dev);
        assert_eq!(lay_out(root.path(), "spam").unwrap(), folder);
        assert_eq!(std::fs::read(&train).unwrap(), whole);
        assert_eq!(modified(&dev), before);
        let message = lay_out(root.path(), "spma").unwrap_err().to_string();
        assert!(message.contains("cloze-tiny"), "{message}");
    }
}
