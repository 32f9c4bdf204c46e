//! Models and data sets of the Hugging Face Hub by name, stored in the cache that Python's `huggingface_hub`
//! uses, and models that are sent there.

#[cfg(test)]
pub mod absent;
mod cached;
mod data_set;
mod push;
mod remote;

use std::path::{Path, PathBuf};

use crate::data::bundled;
use crate::download::{describe, is_address, unreachable};
use crate::error::{Error, Result};
use crate::note;

use cached::Cached;
use remote::Remote;

pub use data_set::{DataSet, Part};
pub use push::{ModelFile, Push, Pushed, files_of_model, push};

/// What a model of sentence vectors says about them, in the files of sentence-transformers.
pub const SENTENCE_FILES: [&str; 4] = [
    "modules.json",
    "sentence_bert_config.json",
    "config_sentence_transformers.json",
    "1_Pooling/config.json",
];

/// A model's name, for messages that ask for one.
const EXAMPLE: &str = "google-bert/bert-base-uncased";

/// Returns the folder of a model. `model` is a folder, the name of a [bundled model](bundled::model),
/// or a model's name on the Hub, `org/name` or `org/name@revision`; files that the cache lacks are
/// downloaded.
pub fn folder_of(model: &Path) -> Result<PathBuf> {
    if model.is_dir() {
        return Ok(model.to_path_buf());
    }
    if let Some(folder) = bundled::model(model) {
        return folder;
    }
    let shown = model.display();
    if model.exists() {
        return Err(Error::Failed(format!(
            "{shown} is a file, but the folder of a model or the name of one on the Hub, such as {EXAMPLE}, is needed"
        )));
    }
    match model.to_str().and_then(|name| Id::parse(Kind::Model, name)) {
        Some(id) => Hub::from_environment()?.folder(&id),
        None => Err(Error::Failed(format!(
            "{shown} is neither a folder nor the name of a model on the Hub, such as {EXAMPLE} or {EXAMPLE}@main"
        ))),
    }
}

/// What a repository of the Hub holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Model,
    DataSet,
}

impl Kind {
    /// Returns its name in addresses of the Hub's API and in the cache.
    fn plural(self) -> &'static str {
        match self {
            Self::Model => "models",
            Self::DataSet => "datasets",
        }
    }
}

/// The name of a repository on the Hub.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Id {
    kind: Kind,
    /// `org/name`.
    name: String,
    /// A branch, a tag or a commit.
    revision: String,
}

impl Id {
    fn parse(kind: Kind, text: &str) -> Option<Self> {
        let (name, revision) = match text.split_once('@') {
            Some((name, revision)) => (name, revision),
            None => (text, "main"),
        };
        let (org, model) = name.split_once('/')?;
        let good = |part: &str, more: &str| {
            part.starts_with(|c: char| c.is_ascii_alphanumeric())
                && !part.contains("..")
                && part.chars().all(|c| c.is_ascii_alphanumeric() || more.contains(c))
        };
        (good(org, "-_.") && good(model, "-_.") && good(revision, "-_./")).then(|| Self {
            kind,
            name: name.into(),
            revision: revision.into(),
        })
    }
}

impl std::fmt::Display for Id {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.revision == "main" {
            write!(f, "{}", self.name)
        } else {
            write!(f, "{}@{}", self.name, self.revision)
        }
    }
}

/// Settings of the Hub, read from the same environment variables as in Python's `huggingface_hub`.
#[derive(Debug, Clone)]
struct Hub {
    endpoint: String,
    cache: PathBuf,
    token: Option<String>,
    offline: bool,
}

impl Hub {
    fn from_environment() -> Result<Self> {
        let text = |name: &str| {
            let value = std::env::var(name).ok()?;
            Some(value.trim().to_owned()).filter(|value| !value.is_empty())
        };
        let path = |name: &str| text(name).map(PathBuf::from);
        let home = path("HF_HOME")
            .or_else(|| Some(path("XDG_CACHE_HOME")?.join("huggingface")))
            .or_else(|| Some(dirs::home_dir()?.join(".cache/huggingface")));
        let in_home = |name: &str| home.as_ref().map(|home| home.join(name));
        let cache = path("HF_HUB_CACHE").or_else(|| in_home("hub"));
        let cache = cache.ok_or_else(|| {
            let message = "there is no home folder to keep the Hub's models in: set HF_HOME";
            Error::Failed(message.into())
        })?;
        let endpoint = text("HF_ENDPOINT").unwrap_or_else(|| "https://huggingface.co".into());
        if !is_address(&endpoint) {
            return Err(Error::Usage(format!(
                "HF_ENDPOINT is {endpoint:?}, but an address with http:// or https:// is needed"
            )));
        }
        let token_file = path("HF_TOKEN_PATH").or_else(|| in_home("token"));
        let stored = || {
            let text = std::fs::read_to_string(token_file?).ok()?;
            Some(text.trim().to_owned()).filter(|token| !token.is_empty())
        };
        let on = ["1", "on", "yes", "true"];
        Ok(Self {
            endpoint: endpoint.trim_end_matches('/').to_owned(),
            cache,
            token: text("HF_TOKEN").or_else(stored),
            offline: text("HF_HUB_OFFLINE")
                .is_some_and(|value| on.contains(&value.to_lowercase().as_str())),
        })
    }

    /// Returns the folder with all files of the model.
    fn folder(&self, id: &Id) -> Result<PathBuf> {
        let cached = Cached::new(&self.cache, id);
        let remote = Remote { hub: self, id, cached: &cached };
        let why = match self.ask(&remote)? {
            Ok(description) => return remote.download(&description),
            Err(why) => why,
        };
        let folder =
            cached.snapshot().map_err(|missing| Error::Failed(format!("{why}, and {missing}")))?;
        if !self.offline {
            note!("{why}: {id} is taken from the cache as it is");
        }
        Ok(folder)
    }

    /// Asks the Hub for the description of a revision. If the cache is to be used instead, returns why, as the
    /// start of a sentence.
    fn ask(&self, remote: &Remote) -> Result<std::result::Result<Vec<u8>, String>> {
        if self.offline {
            return Ok(Err("HF_HUB_OFFLINE is set".into()));
        }
        match remote.description() {
            Ok(description) => Ok(Ok(description)),
            Err(error) if unreachable(&error) => {
                Ok(Err(format!("{} can't be reached ({})", self.endpoint, describe(&error))))
            }
            Err(error) => Err(remote.refused(&error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_on_the_hub_are_distinguished_from_paths() {
        let id = |text: &str| Id::parse(Kind::Model, text).map(|id| (id.name, id.revision));
        let some = |name: &str, revision: &str| Some((name.to_owned(), revision.to_owned()));
        assert_eq!(id("google-bert/bert-base"), some("google-bert/bert-base", "main"));
        assert_eq!(id("a/b.c_d@refs/pr/1"), some("a/b.c_d", "refs/pr/1"));
        for path in [
            "model", "./a/b", "../b", "/a/b", "a/b/c", "a/..", "a/b@../c", "~/x", "a\\b", "a/",
            "a/b@",
        ] {
            assert_eq!(id(path), None, "{path}");
        }
    }

    #[test]
    fn an_error_names_both_possibilities() {
        let message = folder_of(Path::new("no/such/folder")).unwrap_err();
        assert_eq!(message.exit_code(), 1);
        let message = message.to_string();
        let expected = "no/such/folder is neither a folder nor the name of a model on the Hub";
        assert!(message.contains(expected), "{message}");
        let file = tempfile::NamedTempFile::new().unwrap();
        let message = folder_of(file.path()).unwrap_err();
        assert!(message.to_string().contains("is a file, but"), "{message}");
    }
}
