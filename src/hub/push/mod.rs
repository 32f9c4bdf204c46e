//! Sends a model folder to the Hub: creates the repository, asks how each file is to be sent, stores large
//! files, and commits all files that changed in one commit.

mod files;
mod store;

use std::io::Read;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use ureq::http::{Method, header};

use crate::download::{Answer, Digest, ask, describe, same_server, send, upload};
use crate::error::{Error, Result};
use crate::note;

use super::remote::segment;
use super::{Hub, Id, Kind};

pub use files::{ModelFile, files_of_model};

/// Bytes at a file's start from which the Hub decides how the file is sent.
const SAMPLE: u64 = 512;
/// The longest message of a server that is shown, in characters.
const MESSAGE: usize = 300;
const JSON: &str = "application/json";

/// A folder to send, and where to.
#[derive(Debug)]
pub struct Push<'a> {
    /// The files.
    pub files: &'a [ModelFile],
    /// `org/name`, where `org` is a user or an organisation.
    pub name: &'a str,
    /// A branch that exists.
    pub revision: &'a str,
    /// Whether only its owners see a new repository.
    pub private: bool,
    /// The commit's message.
    pub message: &'a str,
}

impl Push<'_> {
    /// Returns an error if the Hub can have no repository of this name or no such branch.
    pub fn check(&self) -> Result<()> {
        self.id().map(drop)
    }

    fn id(&self) -> Result<Id> {
        let Self { name, revision, .. } = self;
        let id = Id::parse(Kind::Model, &format!("{name}@{revision}"));
        id.filter(|id| id.name == *name).ok_or_else(|| {
            Error::Usage(format!(
                "{name} and the branch {revision}: a name on the Hub is needed, such as your-name/your-model"
            ))
        })
    }
}

/// What was sent.
#[derive(Debug)]
pub struct Pushed {
    /// The model's page.
    pub address: String,
    /// The new commit; None if nothing had changed.
    pub commit: Option<String>,
    /// Names of the files in the commit.
    pub sent: Vec<String>,
    /// Names of the files that the Hub had already.
    pub unchanged: Vec<String>,
}

/// A repository that files are sent to.
struct Target<'a> {
    hub: &'a Hub,
    id: Id,
    token: &'a str,
}

/// How a file is sent, with the hash by which the Hub knows its content.
enum Content {
    /// In the commit, by Git's blob hash.
    Inline(String),
    /// In the large file storage, by its SHA-256.
    Large(String),
}

impl Content {
    fn hash(&self) -> &str {
        match self {
            Self::Inline(hash) | Self::Large(hash) => hash,
        }
    }
}

/// A file that differs from the Hub's.
type Changed<'f> = (&'f ModelFile, Content);

/// The Hub's plan for the files.
#[derive(Deserialize)]
struct Plan {
    files: Vec<PlannedFile>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PlannedFile {
    path: String,
    /// `regular` or `lfs`.
    upload_mode: String,
    /// Whether the repository's .gitignore names the file.
    #[serde(default)]
    should_ignore: bool,
    /// The hash of the file that the Hub has under this name.
    oid: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Committed {
    commit_oid: String,
}

/// Sends files to the Hub of the environment's `HF_ENDPOINT` with the token in `HF_TOKEN`. If it fails,
/// the large files that were stored need not be sent again.
///
/// # Errors
/// If the name is none, there is no token, or the Hub refuses it or can't be reached.
pub fn push(push: &Push) -> Result<Pushed> {
    let id = push.id()?;
    let hub = Hub::from_environment()?;
    if hub.offline {
        return Err(Error::Failed("HF_HUB_OFFLINE is set: nothing can be sent".into()));
    }
    let Some(token) = hub.token.as_deref() else {
        return Err(Error::Failed(format!(
            "HF_TOKEN is not set: {} takes models only with an access token that may write",
            hub.endpoint
        )));
    };
    let target = Target { hub: &hub, id, token };
    target.create(push.private)?;
    let (changed, unchanged) = target.compare(push.files)?;
    let (large, small): (Vec<_>, Vec<_>) =
        changed.into_iter().partition(|(_, content)| matches!(content, Content::Large(_)));
    if !large.is_empty() {
        target.store(&large)?;
    }
    let changed: Vec<_> = large.into_iter().chain(small).collect();
    let commit = match changed.is_empty() {
        true => None,
        false => Some(target.commit(&changed, push.message)?),
    };
    let mut sent: Vec<String> = changed.iter().map(|(file, _)| file.name.clone()).collect();
    sent.sort_unstable();
    let address = format!("{}/{}", hub.endpoint, push.name);
    Ok(Pushed { address, commit, sent, unchanged })
}

impl Target<'_> {
    /// Creates the repository unless it is there.
    fn create(&self, private: bool) -> Result<()> {
        let (endpoint, name) = (&self.hub.endpoint, &self.id.name);
        let there = ask(Method::GET, &format!("{endpoint}/api/models/{name}"), Some(self.token));
        match send(there, |_| false) {
            Ok(_) => {
                if private {
                    note!("{name} exists already: --private does not change who sees it");
                }
                return Ok(());
            }
            Err(ureq::Error::StatusCode(404)) => {}
            Err(ureq::Error::StatusCode(status)) => return Err(self.refused(status, "")),
            Err(error) => return Err(self.failed(&describe(&error))),
        }
        // An `Id`'s name has exactly one slash.
        let (organisation, own) = name.split_once('/').unwrap_or_default();
        let mut request = json!({"type": "model", "name": own, "organization": organisation});
        // Without either, the Hub takes the organisation's default, which is usually public.
        if private {
            // The name of today's huggingface_hub, and the earlier one, which other servers may know alone.
            request["visibility"] = "private".into();
            request["private"] = true.into();
        }
        let _: Value = self.post_json(&format!("{endpoint}/api/repos/create"), JSON, &request)?;
        Ok(())
    }

    /// Returns the files that differ from the Hub's, and the names of those that don't.
    fn compare<'f>(&self, files: &'f [ModelFile]) -> Result<(Vec<Changed<'f>>, Vec<String>)> {
        let mut described = Vec::new();
        for file in files {
            let sample = file.sample()?;
            described.push(json!({"path": file.name, "size": file.size, "sample": sample}));
        }
        let url = self.api("preupload");
        let plan: Plan = self.post_json(&url, JSON, &json!({"files": described}))?;
        let (mut changed, mut unchanged) = (Vec::new(), Vec::new());
        for file in files {
            let planned = plan.files.iter().find(|planned| planned.path == file.name);
            let Some(planned) = planned else {
                return Err(self.failed(&format!("its plan lacks {}", file.name)));
            };
            if planned.should_ignore {
                note!("{}: not sent, because the repository's .gitignore names it", file.name);
                continue;
            }
            // An empty file can't be stored.
            let content = match planned.upload_mode == "lfs" && file.size > 0 {
                true => Content::Large(Digest::Sha256("").of(&file.path)?),
                false => Content::Inline(Digest::GitBlob("").of(&file.path)?),
            };
            match planned.oid.as_deref() == Some(content.hash()) {
                true => unchanged.push(file.name.clone()),
                false => changed.push((file, content)),
            }
        }
        Ok((changed, unchanged))
    }

    /// Commits files, of which the large ones are stored; returns the commit.
    fn commit(&self, files: &[Changed], message: &str) -> Result<String> {
        let header = json!({"summary": message, "description": ""});
        let mut lines = json!({"key": "header", "value": header}).to_string();
        for (file, content) in files {
            let line = match content {
                Content::Large(hash) => json!({"key": "lfsFile", "value": {
                    "path": file.name, "algo": "sha256", "oid": hash, "size": file.size,
                }}),
                Content::Inline(_) => {
                    let bytes = std::fs::read(&file.path).map_err(|e| Error::io(&file.path, e))?;
                    json!({"key": "file", "value": {
                        "path": file.name, "encoding": "base64", "content": BASE64_STANDARD.encode(bytes),
                    }})
                }
            };
            lines += &format!("\n{line}");
        }
        let answer = self.post(&self.api("commit"), "application/x-ndjson", lines.as_bytes())?;
        Ok(self.parsed::<Committed>(&answer)?.commit_oid)
    }

    /// Returns the address of an operation on the branch.
    fn api(&self, what: &str) -> String {
        let Id { name, revision, .. } = &self.id;
        format!("{}/api/models/{name}/{what}/{}", self.hub.endpoint, segment(revision))
    }

    fn post_json<T: DeserializeOwned>(&self, url: &str, kind: &str, body: &Value) -> Result<T> {
        let answer = self.post(url, kind, body.to_string().as_bytes())?;
        self.parsed(&answer)
    }

    /// Sends a body, to the Hub with the token and to other servers without it.
    fn post(&self, url: &str, kind: &str, body: &[u8]) -> Result<Answer> {
        let own = same_server(url, &self.hub.endpoint);
        let request = ask(Method::POST, url, own.then_some(self.token));
        let request = request.header(header::CONTENT_TYPE, kind).header(header::ACCEPT, kind);
        let answer = upload(request, &mut &body[..], body.len() as u64)
            .map_err(|error| self.failed(&describe(&error)))?;
        match answer.status.is_success() {
            true => Ok(answer),
            false => Err(self.refused(answer.status.as_u16(), &answer.text)),
        }
    }

    /// Parses an answer; an empty one is null.
    fn parsed<T: DeserializeOwned>(&self, answer: &Answer) -> Result<T> {
        let text = if answer.text.trim().is_empty() { "null" } else { &answer.text };
        serde_json::from_str(text)
            .map_err(|e| self.failed(&format!("its answer is not the Hub's: {e}")))
    }

    fn failed(&self, message: &str) -> Error {
        Error::Failed(format!("{} on {}: {message}", self.id, self.hub.endpoint))
    }

    /// Returns the error for an answer with this status and text.
    fn refused(&self, status: u16, text: &str) -> Error {
        let why = match status {
            401 => "the token in HF_TOKEN is not accepted".to_owned(),
            403 => "the token in HF_TOKEN may not write there".to_owned(),
            404 => "there is no such model or branch that the token may see".to_owned(),
            409 => "it exists already, or another change is under way: run this again".to_owned(),
            412 => "it was changed at the same time: run this again".to_owned(),
            status => describe(&ureq::Error::StatusCode(status)),
        };
        // The Hub explains itself in `error`.
        let text: Option<Value> = serde_json::from_str(text).ok();
        let text = text.as_ref().and_then(|text| text["error"].as_str());
        let said = text.map(|text| text.split_whitespace().collect::<Vec<_>>().join(" "));
        let said = said.filter(|said| !said.is_empty()).map(|said| {
            let short: String = said.chars().take(MESSAGE).collect();
            format!(" ({short})")
        });
        self.failed(&(why + &said.unwrap_or_default()))
    }
}

impl ModelFile {
    /// Returns the first bytes of the file, in base64.
    fn sample(&self) -> Result<String> {
        let failed = |e| Error::io(&self.path, e);
        let mut bytes = Vec::new();
        let file = std::fs::File::open(&self.path).map_err(failed)?;
        file.take(SAMPLE).read_to_end(&mut bytes).map_err(failed)?;
        Ok(BASE64_STANDARD.encode(bytes))
    }
}
