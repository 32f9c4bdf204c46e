//! What the fuzz targets share: files for the readers that read only files, the parts of an input, a small tokenizer.

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use cloze::text::{Casing, WordPiece};

/// The folder of this process below the temporary one, which `.ci/deep fuzz` puts into memory and removes.
static SCRATCH: LazyLock<PathBuf> = LazyLock::new(|| {
    let folder = std::env::temp_dir().join(format!("target-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("the temporary folder can be written");
    folder
});

/// Returns an empty folder of this name, or the one of the last input without its files.
pub fn folder(name: &str) -> PathBuf {
    let folder = SCRATCH.join(name);
    if folder.exists() {
        std::fs::remove_dir_all(&folder).expect("the folder is ours");
    }
    std::fs::create_dir(&folder).expect("the temporary folder can be written");
    folder
}

/// Writes a file into the scratch folder and returns its path.
pub fn file(name: &str, content: &[u8]) -> PathBuf {
    let path = SCRATCH.join(name);
    write(&path, content);
    path
}

/// Writes a file.
pub fn write(path: &Path, content: &[u8]) {
    std::fs::write(path, content).expect("the temporary folder can be written");
}

/// Separates the parts of an input, so that the seeds can be read: it is in no text.
const SEPARATOR: u8 = 0x1c;

/// Splits an input into parts. The last part may contain separators.
pub fn parts<const N: usize>(data: &[u8]) -> [&[u8]; N] {
    let mut parts = data.splitn(N, |&byte| byte == SEPARATOR);
    std::array::from_fn(|_| parts.next().unwrap_or_default())
}

/// Splits an input into any number of parts.
pub fn all_parts(data: &[u8]) -> impl Iterator<Item = &[u8]> {
    data.split(|&byte| byte == SEPARATOR)
}

/// Returns a tokenizer of a few words, pieces and letters.
pub fn wordpiece(casing: Casing) -> WordPiece {
    let words = "[PAD] [UNK] [CLS] [SEP] [MASK] the lamp ##s ##post was out ##er . , ' - a b c d e ##a ##b ##c ##d \
                 ##e é ##é 中 ß ##ß The Lamp É";
    let words = words.split_whitespace().map(str::to_owned).collect();
    WordPiece::from_vocab(words, casing)
        .expect("the words differ, and the special tokens are there")
}
