//! Models of the Hugging Face Hub by their names, kept in the cache that Python's `huggingface_hub`
//! uses too.
//!
//! The crate `hf-hub` speaks the protocol. Around it stands what it leaves open: which files a model
//! needs, whether what arrived is what was announced, work without a network, and what to do about
//! pickle files.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use hf_hub::api::sync::{Api, ApiBuilder, ApiError, ApiRepo, Metadata};
use hf_hub::{Cache, CacheRepo, Repo, RepoType};

use crate::download::{Digest, FRUITLESS, TransferBar, told, unreachable};
use crate::error::{Error, Result};
use crate::files::create_folder;
use crate::lessons::data;
use crate::model::weights::{self, CONFIG, INDEX, WEIGHTS};
use crate::note;

/// A model's name, for sentences that ask for one.
const EXAMPLE: &str = "google-bert/bert-base-uncased";
/// Files that are fetched where a repository has them, beside the configuration and the weights.
const COMPANIONS: [&str; 7] = [
    "head.safetensors",
    "vocab.txt",
    "tokenizer.json",
    "tokenizer_config.json",
    "modules.json",
    "sentence_bert_config.json",
    "1_Pooling/config.json",
];

/// The folder of a model: `model` itself where that is one, else that of [our own](data::MODEL), else
/// the Hub's model of that name, `org/name` or `org/name@revision`, which is downloaded where the cache
/// hasn't got it.
pub fn folder_of(model: &Path) -> Result<PathBuf> {
    if model.is_dir() {
        return Ok(model.to_path_buf());
    }
    if model == Path::new(data::MODEL) {
        return data::folder(data::MODEL);
    }
    let shown = model.display();
    if model.exists() {
        return Err(Error::Failed(format!(
            "{shown} is a file, but the folder of a model or the name of one on the Hub, such as {EXAMPLE}, is needed"
        )));
    }
    match model.to_str().and_then(Id::parse) {
        Some(id) => Hub::from_environment()?.folder(&id),
        None => Err(Error::Failed(format!(
            "{shown} is neither a folder nor the name of a model on the Hub, such as {EXAMPLE} or {EXAMPLE}@main"
        ))),
    }
}

/// The name of a model on the Hub.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Id {
    /// `org/name`.
    name: String,
    /// A branch, a tag or a commit.
    revision: String,
}

impl Id {
    fn parse(text: &str) -> Option<Self> {
        let (name, revision) = match text.split_once('@') {
            Some((name, revision)) => (name, revision),
            None => (text, "main"),
        };
        let (org, model) = name.split_once('/')?;
        let good = |part: &str, more: &str| {
            part.starts_with(|c: char| c.is_ascii_alphanumeric())
                && !part.contains("..")
                && part
                    .chars()
                    .all(|c| c.is_ascii_alphanumeric() || more.contains(c))
        };
        (good(org, "-_.") && good(model, "-_.") && good(revision, "-_./")).then(|| Self {
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

/// Where the Hub is, who asks, and where its files are kept: the variables that Python's
/// `huggingface_hub` reads.
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
        if !["http://", "https://"]
            .iter()
            .any(|s| endpoint.starts_with(s))
        {
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

    /// The folder with the model's files, all of them.
    fn folder(&self, id: &Id) -> Result<PathBuf> {
        let repo = Repo::with_revision(id.name.clone(), RepoType::Model, id.revision.clone());
        let cached = Cached {
            id,
            folder: self.cache.join(repo.folder_name()),
        };
        if self.offline {
            return cached
                .snapshot()
                .map_err(|missing| Error::Failed(format!("HF_HUB_OFFLINE is set, and {missing}")));
        }
        let cache = Cache::new(self.cache.clone());
        let api = ApiBuilder::from_cache(cache.clone())
            .with_endpoint(self.endpoint.clone())
            .with_token(self.token.clone())
            .build()
            .map_err(|e| Error::Failed(format!("the Hub's client: {e}")))?;
        let remote = Remote {
            hub: self,
            id,
            folder: cached.folder.clone(),
            repo: api.repo(repo.clone()),
            api,
            cache: cache.repo(repo),
        };
        match remote.repo.info() {
            Ok(info) => {
                let names = info.siblings.into_iter().map(|file| file.rfilename);
                remote.download(&info.sha, names.collect())
            }
            Err(ApiError::RequestError(error)) if unreachable(&error) => {
                let why = format!("{} can't be reached ({})", self.endpoint, told(&error));
                let folder = cached
                    .snapshot()
                    .map_err(|missing| Error::Failed(format!("{why}, and {missing}")))?;
                note!("{why}: {id} is taken from the cache as it is");
                Ok(folder)
            }
            Err(error) => Err(remote.refused(&error)),
        }
    }
}

/// What the cache has of a model.
struct Cached<'a> {
    id: &'a Id,
    /// The model's folder in the cache.
    folder: PathBuf,
}

impl Cached<'_> {
    /// The folder of the revision's files, or what is missing, as the end of a sentence.
    fn snapshot(&self) -> std::result::Result<PathBuf, String> {
        let reference = self.folder.join("refs").join(&self.id.revision);
        let commit = match std::fs::read_to_string(reference) {
            Ok(commit) => commit.trim().to_owned(),
            Err(_) => self.id.revision.clone(),
        };
        let folder = self.folder.join("snapshots").join(commit);
        let missing = |what: &str| {
            let place = self.folder.display();
            Err(format!("the cache has no {what} of {} ({place})", self.id))
        };
        if !folder.join(CONFIG).exists() {
            return missing(CONFIG);
        }
        if folder.join(WEIGHTS).exists() {
            return Ok(folder);
        }
        let Ok(index) = std::fs::read_to_string(folder.join(INDEX)) else {
            return missing(WEIGHTS);
        };
        let shards = weights::files_of(&index).map_err(|message| format!("{INDEX} {message}"))?;
        match shards.iter().find(|shard| !folder.join(shard).exists()) {
            Some(shard) => missing(shard),
            None => Ok(folder),
        }
    }
}

/// A model on the Hub.
struct Remote<'a> {
    hub: &'a Hub,
    id: &'a Id,
    /// The model's folder in the cache.
    folder: PathBuf,
    api: Api,
    repo: ApiRepo,
    cache: CacheRepo,
}

impl Remote<'_> {
    /// Fetches what the cache lacks of the files `names` at `commit`; gives the folder.
    fn download(&self, commit: &str, names: BTreeSet<String>) -> Result<PathBuf> {
        if !is_hex(commit) {
            return Err(self.failed(format!("its commit is said to be {commit:?}")));
        }
        let folder = self.cache.pointer_path(commit);
        let get = |name: &str| self.get(name, commit, &folder);
        if !names.contains(CONFIG) {
            return Err(self.failed(format!(
                "it has no {CONFIG}: it is no model of transformers"
            )));
        }
        get(CONFIG)?;
        if names.contains(WEIGHTS) {
            get(WEIGHTS)?;
        } else if names.contains(INDEX) {
            get(INDEX)?;
            let index = read(&folder.join(INDEX))?;
            let shards = weights::files_of(&index)
                .map_err(|message| Error::file(folder.join(INDEX), message))?;
            for shard in &shards {
                get(shard)?;
            }
        } else {
            let class = weights::class_of(&read(&folder.join(CONFIG))?);
            let class = class.as_deref().unwrap_or("BertForPreTraining");
            let names = names.iter().map(String::as_str);
            let why = weights::refusal(names, &self.id.name, class);
            return Err(self.failed(why.unwrap_or_else(|| format!("it has no {WEIGHTS}"))));
        }
        for name in COMPANIONS.into_iter().filter(|&name| names.contains(name)) {
            get(name)?;
        }
        Ok(folder)
    }

    /// Sees to it that `folder` has the file as it is at `commit`.
    fn get(&self, name: &str, commit: &str, folder: &Path) -> Result<()> {
        let path = folder.join(name);
        if path.exists() {
            return Ok(());
        }
        // A link whose file was taken away would be in the way of a new one.
        if path.is_symlink() {
            std::fs::remove_file(&path).map_err(|e| Error::io(&path, e))?;
        }
        let url = self.repo.url(name);
        let announced = self.api.metadata(&url).map_err(|e| self.broken(name, &e))?;
        if announced.commit_hash() != commit {
            return Err(self.failed("it changed while it was downloaded: run this again".into()));
        }
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
        let etag = bare(announced.etag());
        if etag.is_empty() || !etag.chars().all(plain) {
            let message = format!("{name} has the ETag {etag:?}, not a checksum");
            return Err(self.failed(message));
        }
        let blob = self.cache.blob_path(announced.etag());
        if blob.exists() && fault(&blob, &announced)?.is_none() {
            return self.link(&blob, &path);
        }
        self.fetch(name, &blob, &announced)?;
        if let Some(fault) = fault(&blob, &announced)? {
            for wrong in [&blob, &path] {
                std::fs::remove_file(wrong).map_err(|e| Error::io(wrong, e))?;
            }
            return Err(self.failed(format!("{name} {fault}; what came was thrown away")));
        }
        Ok(())
    }

    /// Transfers the file into the cache, taking it up again where it broke off.
    fn fetch(&self, name: &str, blob: &Path, announced: &Metadata) -> Result<()> {
        let part = blob.with_extension("part");
        let there = || part.metadata().map_or(0, |file| file.len());
        let (mut best, mut fruitless) = (there(), 0);
        loop {
            // As much as there should be can't be continued, only fetched anew.
            if part.exists() && there() >= announced.size() as u64 {
                std::fs::remove_file(&part).map_err(|e| Error::io(&part, e))?;
            }
            let bar = TransferBar::new(name, Some(announced.size() as u64));
            let error = match self.repo.download_with_progress(name, bar) {
                Ok(_) => return Ok(()),
                Err(error) => error,
            };
            fruitless = if there() > best { 0 } else { fruitless + 1 };
            best = best.max(there());
            if fruitless == FRUITLESS {
                return Err(self.broken(name, &error));
            }
            note!("{name}: {}; trying again", self.words(&error));
        }
    }

    /// Puts a file that the cache has already into a snapshot, at `path`.
    fn link(&self, blob: &Path, path: &Path) -> Result<()> {
        if let Some(folder) = path.parent() {
            create_folder(folder)?;
        }
        #[cfg(unix)]
        {
            // Relative, as Python's links are: a cache may move. Both paths begin with the model's
            // folder in the cache.
            let below = |path: &Path| {
                path.strip_prefix(&self.folder)
                    .unwrap_or(path)
                    .to_path_buf()
            };
            let up = "../".repeat(below(path).components().count().saturating_sub(1));
            let target = Path::new(&up).join(below(blob));
            std::os::unix::fs::symlink(target, path).map_err(|e| Error::io(path, e))
        }
        #[cfg(not(unix))]
        {
            std::fs::copy(blob, path)
                .map(|_| ())
                .map_err(|e| Error::io(path, e))
        }
    }

    fn words(&self, error: &ApiError) -> String {
        match error {
            ApiError::RequestError(error) => told(error),
            ApiError::IoError(error) => error.to_string(),
            other => other.to_string(),
        }
    }

    fn broken(&self, name: &str, error: &ApiError) -> Error {
        self.failed(format!("{name}: {}", self.words(error)))
    }

    fn failed(&self, message: String) -> Error {
        Error::Failed(format!("{} on {}: {message}", self.id, self.hub.endpoint))
    }

    /// Why the Hub has nothing to tell about the model.
    fn refused(&self, error: &ApiError) -> Error {
        let (id, endpoint) = (self.id, &self.hub.endpoint);
        match error {
            // To who isn't logged in, a model that isn't there looks like a private one.
            ApiError::RequestError(e)
                if matches!(**e, ureq::Error::StatusCode(401 | 403 | 404)) =>
            {
                let rights = match self.hub.token {
                    Some(_) => "that the token may see",
                    None => "that all may see (a private or gated one needs HF_TOKEN)",
                };
                Error::Failed(format!(
                    "there is no folder {id}, and {endpoint} has no model of that name {rights}"
                ))
            }
            error => self.failed(self.words(error)),
        }
    }
}

/// What is wrong with the file that arrived, beside what was announced.
fn fault(path: &Path, announced: &Metadata) -> Result<Option<String>> {
    let length = path.metadata().map_err(|e| Error::io(path, e))?.len();
    if length != announced.size() as u64 {
        let size = announced.size();
        return Ok(Some(format!(
            "came with {length} bytes, but {size} were announced"
        )));
    }
    let etag = bare(announced.etag());
    // The Hub's ETags are Git's names of small files and the SHA-256 of large ones.
    let digest = match etag.len() {
        64 if is_hex(etag) => Digest::Sha256(etag),
        40 if is_hex(etag) => Digest::GitBlob(etag),
        _ => return Ok(None),
    };
    let found = digest.of(path)?;
    Ok((found != digest.hex()).then(|| format!("came with checksum {found}, not {etag}")))
}

/// An ETag without the mark of those that stand for several encodings of a file.
fn bare(etag: &str) -> &str {
    etag.strip_prefix("W/").unwrap_or(etag)
}

fn is_hex(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_hexdigit())
}

fn read(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).map_err(|e| Error::io(path, e))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_the_hub_are_told_from_paths() {
        let id = |text: &str| Id::parse(text).map(|id| (id.name, id.revision));
        let some = |name: &str, revision: &str| Some((name.to_owned(), revision.to_owned()));
        assert_eq!(
            id("google-bert/bert-base"),
            some("google-bert/bert-base", "main")
        );
        assert_eq!(id("a/b.c_d@refs/pr/1"), some("a/b.c_d", "refs/pr/1"));
        for path in [
            "model", "./a/b", "../b", "/a/b", "a/b/c", "a/..", "a/b@../c", "~/x", "a\\b", "a/",
            "a/b@",
        ] {
            assert_eq!(id(path), None, "{path}");
        }
    }

    #[test]
    fn what_is_no_folder_and_no_name_is_refused_with_both_possibilities() {
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
