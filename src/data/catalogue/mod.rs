//! The catalogue of data sets: their official addresses, licences and checksums, and their download.

mod corpora;
mod mrpc;
mod obtain;

pub use obtain::{Obtained, get};

use std::sync::LazyLock;

use serde::Deserialize;

use crate::download::Archive;

/// A data set.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Set {
    /// The name on the command line: that of the task if there is one.
    pub name: String,
    /// One line about the content.
    pub what: String,
    /// The licence as far as the origin states it.
    #[serde(default = "not_stated")]
    pub licence: String,
    /// The address of the set's home page.
    pub homepage: String,
    /// Name of the folder with its files.
    pub folder: String,
    /// The files to download.
    #[serde(rename = "source")]
    pub sources: Vec<Source>,
    /// Whether the set belongs to GLUE.
    #[serde(default)]
    pub glue: bool,
    /// For a set that can't be downloaded officially: why, and how to get it.
    pub closed: Option<String>,
}

fn not_stated() -> String {
    "not stated".to_owned()
}

/// A file to download.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Source {
    /// The official address, or only the file's name if the set is closed.
    pub address: String,
    /// The published size in bytes.
    pub size: Option<u64>,
    /// The published SHA-256.
    pub sha256: Option<String>,
    /// The kind of archive that the file is; none for a file that is used as it is.
    archive: Option<Archive>,
    /// The complete names of the archive's members that are extracted.
    #[serde(default)]
    members: Vec<String>,
    /// The member's name in the set's folder if it is not the last part of its name in the archive.
    member_name: Option<String>,
    #[serde(default)]
    form: Form,
}

/// How the members of an archive are converted.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Form {
    /// Not at all.
    #[default]
    Same,
    /// WikiText to one paragraph a line, with blank lines between articles.
    WikiText,
    /// The Children's Book Test's books to one sentence a line, with blank lines between books.
    Books,
}

impl Set {
    /// Returns the set of that name.
    pub fn find(name: &str) -> Option<&'static Self> {
        SETS.iter().find(|set| set.name == name)
    }

    /// Returns the number of bytes to download, if all sizes are published.
    pub fn size(&self) -> Option<u64> {
        self.sources.iter().map(|source| source.size).sum()
    }
}

impl Source {
    /// Returns the name that the address ends in.
    pub fn name(&self) -> &str {
        last_part(&self.address)
    }

    /// Returns a member's name in the set's folder.
    fn name_of<'a>(&'a self, member: &'a str) -> &'a str {
        self.member_name.as_deref().unwrap_or(last_part(member))
    }
}

fn last_part(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// The name that stands for all sets of GLUE.
pub const GLUE: &str = "glue";

/// All sets, GLUE's first.
pub static SETS: LazyLock<Vec<Set>> = LazyLock::new(|| {
    #[derive(Deserialize)]
    struct File {
        set: Vec<Set>,
    }
    // A constant, which a test parses.
    let file: File = toml::from_str(include_str!("sets.toml")).expect("the catalogue is valid");
    file.set
});

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn the_catalogue_is_well_formed() {
        let mut seen = HashSet::new();
        for set in SETS.iter() {
            let name = &set.name;
            assert!(seen.insert(name) && seen.insert(&set.folder), "{name}");
            assert!(set.homepage.starts_with("http"), "{name}");
            assert!(!set.what.is_empty() && !set.sources.is_empty(), "{name}");
            for source in &set.sources {
                let address = crate::download::is_address(&source.address);
                assert_eq!(set.closed.is_none(), address);
                assert_eq!(source.archive.is_none(), source.members.is_empty());
                if let Some(sha256) = &source.sha256 {
                    let hex = |c: char| c.is_ascii_digit() || ('a'..='f').contains(&c);
                    assert!(sha256.len() == 64 && sha256.chars().all(hex), "{sha256}");
                }
            }
        }
        for task in &crate::data::glue::TASKS {
            assert!(Set::find(task.name).is_some(), "{}", task.name);
        }
    }
}
