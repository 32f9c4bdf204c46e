//! A repository on the Hub: which files of a model are needed, and the download of files into the cache.
//!
//! A file's path in the cache is made of names that were checked: its checksum, from the answer to one `HEAD`
//! request, and its own name, which is a known one, that of a shard, or that of a data set's file. Later
//! answers don't change either.

use std::collections::BTreeSet;
use std::io::Read;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::Value;
use ureq::http::Method;

use crate::download::{Digest, Limits, STALL, Steady, Wanted, ask, describe, fetch, number, send};
use crate::error::{Error, Result};
use crate::files::{create_folder, remove_if_there};
use crate::model::weights::{self, CONFIG, INDEX, WEIGHTS};
use crate::text::other_vocabulary;

use super::cached::Cached;
use super::{Hub, Id, Kind, SENTENCE_FILES};

/// Files that are fetched if the repository has them, besides the configuration and the weights.
const COMPANIONS: [&str; 4] =
    ["head.safetensors", "vocab.txt", "tokenizer.json", "tokenizer_config.json"];
/// Largest accepted description of a repository, in bytes: some ten thousand file names.
const DESCRIPTION: u64 = 4 << 20;
/// The header with the checksum of the file behind a redirect.
const LINKED_ETAG: &str = "x-linked-etag";

/// A repository on the Hub.
pub(super) struct Remote<'a> {
    pub(super) hub: &'a Hub,
    pub(super) id: &'a Id,
    pub(super) cached: &'a Cached<'a>,
}

/// The Hub's description of a revision.
#[derive(Debug, Deserialize)]
pub(super) struct Description {
    /// The commit.
    pub(super) sha: String,
    siblings: Vec<Sibling>,
    /// The front matter of the README.
    #[serde(default, rename = "cardData")]
    pub(super) card: Value,
}

impl Description {
    /// Returns the names of the files.
    pub(super) fn names(&self) -> BTreeSet<String> {
        self.siblings.iter().map(|file| file.rfilename.clone()).collect()
    }
}

/// A file of the repository.
#[derive(Debug, Deserialize)]
struct Sibling {
    rfilename: String,
}

impl Remote<'_> {
    /// Requests the description of the revision, as JSON.
    pub(super) fn description(&self) -> std::result::Result<Vec<u8>, ureq::Error> {
        let Id { kind, name, revision } = self.id;
        let (endpoint, kind) = (&self.hub.endpoint, kind.plural());
        let url = format!("{endpoint}/api/{kind}/{name}/revision/{}", segment(revision));
        let response = send(ask(Method::GET, &url, self.token()), |_| false)?;
        let mut text = Vec::new();
        Steady::new(response.into_body(), STALL)?.take(DESCRIPTION + 1).read_to_end(&mut text)?;
        if text.len() as u64 > DESCRIPTION {
            return Err(ureq::Error::BodyExceedsLimit(DESCRIPTION));
        }
        Ok(text)
    }

    /// Parses a description.
    pub(super) fn described(&self, description: &[u8]) -> Result<Description> {
        let description: Description = serde_json::from_slice(description)
            .map_err(|e| self.failed(format!("its description is not the Hub's: {e}")))?;
        match is_hex(&description.sha) {
            true => Ok(description),
            false => Err(self.failed(format!("its commit {:?} is not a hash", description.sha))),
        }
    }

    /// Downloads the needed files of a model that the cache lacks; returns their folder.
    pub(super) fn download(&self, description: &[u8]) -> Result<PathBuf> {
        let description = self.described(description)?;
        let (sha, names) = (&description.sha, description.names());
        let folder = self.cached.commit(sha);
        let get = |name: &str| self.get(name, sha, &folder);
        if !names.contains(CONFIG) {
            return Err(self.failed(format!("it has no {CONFIG}: it is no model of transformers")));
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
        if !names.contains("tokenizer.json")
            && let Some(advice) = other_vocabulary(|name| names.contains(name), &self.id.name)
        {
            return Err(self.failed(advice));
        }
        let companions = COMPANIONS.into_iter().chain(SENTENCE_FILES);
        for name in companions.filter(|&name| names.contains(name)) {
            get(name)?;
        }
        self.cached.refer(sha)?;
        Ok(folder)
    }

    /// Fetches a file as it is at `commit` into `folder`, unless it is there.
    pub(super) fn get(&self, name: &str, commit: &str, folder: &Path) -> Result<()> {
        let path = folder.join(name);
        if path.exists() {
            return Ok(());
        }
        // A dangling link would block the new one.
        if path.is_symlink() {
            remove_if_there(&path)?;
        }
        let (endpoint, repository) = (&self.hub.endpoint, &self.id.name);
        let below = match self.id.kind {
            Kind::Model => "",
            Kind::DataSet => "datasets/",
        };
        let url = format!("{endpoint}/{below}{repository}/resolve/{commit}/{}", escaped(name));
        let head = send(ask(Method::HEAD, &url, self.token()), |headers| {
            headers.contains_key(LINKED_ETAG)
        })
        .map_err(|e| self.failed(format!("{name}: {}", describe(&e))))?;
        let text = |header: &str| head.headers().get(header)?.to_str().ok();
        match text("x-repo-commit") {
            Some(found) if found == commit => {}
            Some(_) => {
                let message = "it changed while it was downloaded: run this again";
                return Err(self.failed(message.into()));
            }
            None => {
                let message = format!("{name} came without X-Repo-Commit, which the Hub sends");
                return Err(self.failed(message));
            }
        }
        let etag = text(LINKED_ETAG).or_else(|| text("etag"));
        let etag = bare(etag.unwrap_or_default());
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
        if etag.is_empty() || !etag.chars().all(plain) {
            let message = format!("{name} has the ETag {etag:?}, not a checksum");
            return Err(self.failed(message));
        }
        let size = match head.status().is_redirection() {
            true => number(head.headers(), "x-linked-size"),
            false => number(head.headers(), "content-length"),
        };
        // The Hub's ETags are Git blob hashes for small files and SHA-256 for large ones.
        let digest = match etag.len() {
            64 if is_hex(etag) => Some(Digest::Sha256(etag)),
            40 if is_hex(etag) => Some(Digest::GitBlob(etag)),
            _ => None,
        };
        let blob = self.cached.blob(etag);
        if let Some(folder) = blob.parent() {
            create_folder(folder)?;
        }
        let _lock = self.cached.lock(etag, name)?;
        fetch(&Wanted {
            from: &url,
            token: self.token(),
            to: &blob,
            size: size.map(|size| (size, "were announced")),
            digest: digest.map(|digest| (digest, "announced")),
            advice: "",
            limits: Limits::default(),
        })?;
        self.cached.link(&blob, &path)
    }

    fn token(&self) -> Option<&str> {
        self.hub.token.as_deref()
    }

    pub(super) fn failed(&self, message: String) -> Error {
        Error::Failed(format!("{} on {}: {message}", self.id, self.hub.endpoint))
    }

    /// Returns the error for a repository that the Hub did not describe.
    pub(super) fn refused(&self, error: &ureq::Error) -> Error {
        let (id, endpoint) = (self.id, &self.hub.endpoint);
        match error {
            // Without a login, a private model looks like one that doesn't exist.
            ureq::Error::StatusCode(401 | 403 | 404) => {
                let rights = match self.hub.token {
                    Some(_) => "that the token may see",
                    None => "that is public (a private or gated one needs HF_TOKEN)",
                };
                Error::Failed(match id.kind {
                    Kind::Model => format!(
                        "there is no folder {id}, and {endpoint} has no model of that name {rights}"
                    ),
                    Kind::DataSet => format!("{endpoint} has no data set {id} {rights}"),
                })
            }
            error => self.failed(describe(error)),
        }
    }
}

/// Returns an ETag without its quotes and the mark of weak ETags.
fn bare(etag: &str) -> &str {
    etag.strip_prefix("W/").unwrap_or(etag).trim_matches('"')
}

/// Percent-encodes a revision as one segment of an address.
pub(super) fn segment(revision: &str) -> String {
    escaped(revision).replace('/', "%2F")
}

/// Percent-encodes a path for an address.
fn escaped(path: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/-_.~".contains(&byte);
    path.bytes()
        .map(|byte| match plain(byte) {
            true => char::from(byte).to_string(),
            false => format!("%{byte:02X}"),
        })
        .collect()
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

    /// A shard's name comes from a server: it must not end the path of an address.
    #[test]
    fn file_names_are_percent_encoded() {
        assert_eq!(escaped("1_Pooling/a-b.json"), "1_Pooling/a-b.json");
        assert_eq!(escaped("a b?#%\\ü"), "a%20b%3F%23%25%5C%C3%BC");
    }
}
