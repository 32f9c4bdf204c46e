//! Data sets of the Hub by name: the files of their parts, stored in the same cache as models.

mod parts;

use std::path::PathBuf;

use crate::data::labels::listed;
use crate::data::table::pattern_of;
use crate::error::{Error, Result};
use crate::note;

use super::cached::Cached;
use super::remote::{Description, Remote};
use super::{Hub, Id, Kind};
use parts::Files;

/// A data set's name, for messages that ask for one.
const EXAMPLE: &str = "stanfordnlp/imdb";

/// A part of a data set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// Rows to train on.
    Train,
    /// Rows to measure on during development.
    Validation,
    /// Rows to measure on at the end.
    Test,
}

/// A data set of the Hub at a commit.
#[derive(Debug)]
pub struct DataSet {
    hub: Hub,
    id: Id,
    description: Description,
    files: Files,
    /// Why the Hub is not asked for files, as the start of a sentence.
    unreachable: Option<String>,
}

impl DataSet {
    /// Finds the data set `name`, which is `org/name`, with `@revision` and `:configuration` behind it if need
    /// be.
    ///
    /// # Errors
    /// If the name is none, or the data set has no files that can be read.
    pub fn find(name: &str) -> Result<Self> {
        let (set, configuration) = match name.split_once(':') {
            Some((set, configuration)) => (set, Some(configuration)),
            None => (name, None),
        };
        let Some(id) = Id::parse(Kind::DataSet, set) else {
            return Err(Error::Usage(format!(
                "{name:?} is no name of a data set on the Hub, such as {EXAMPLE}, {EXAMPLE}@main or \
                 {EXAMPLE}:plain_text"
            )));
        };
        let hub = Hub::from_environment()?;
        let cached = Cached::new(&hub.cache, &id);
        let remote = Remote { hub: &hub, id: &id, cached: &cached };
        let (description, unreachable) = match hub.ask(&remote)? {
            Ok(answer) => {
                let description = remote.described(&answer)?;
                cached.describe(&description.sha, &answer)?;
                (description, None)
            }
            Err(why) => {
                let stored = cached.description();
                let stored =
                    stored.map_err(|missing| Error::Failed(format!("{why}, and {missing}")))?;
                if !hub.offline {
                    note!("{why}: {id} is taken from the cache as it is");
                }
                (remote.described(&stored)?, Some(why))
            }
        };
        let files = Files::find(&description.names(), &description.card, configuration)
            .map_err(|message| remote.failed(message))?;
        Ok(Self { hub, id, description, files, unreachable })
    }

    /// Returns the name, `org/name`.
    pub fn name(&self) -> &str {
        &self.id.name
    }

    /// Returns whether the data set has this part.
    pub fn has(&self, part: Part) -> bool {
        !self.files.of(part).is_empty()
    }

    /// Downloads the files of a part that the cache lacks. Returns the file, or a pattern that all of them match.
    ///
    /// # Errors
    /// If the data set does not have the part, or a file can't be downloaded.
    pub fn get(&self, part: Part) -> Result<PathBuf> {
        let cached = Cached::new(&self.hub.cache, &self.id);
        let remote = Remote { hub: &self.hub, id: &self.id, cached: &cached };
        let names: Vec<&str> = self.files.of(part).iter().map(String::as_str).collect();
        let part = match part {
            Part::Train => "training",
            Part::Validation => "validation",
            Part::Test => "test",
        };
        if names.is_empty() {
            return Err(remote.failed(format!("it has no {part} files that Cloze reads")));
        }
        note!("{}: {part} files: {}", self.id, listed(&names));
        let commit = &self.description.sha;
        let folder = cached.commit(commit);
        for name in &names {
            match &self.unreachable {
                None => remote.get(name, commit, &folder)?,
                Some(_) if folder.join(name).exists() => {}
                Some(why) => {
                    let missing = cached.lacks(name);
                    return Err(Error::Failed(format!("{why}, and {missing}")));
                }
            }
        }
        cached.refer(commit)?;
        let all = self.description.names();
        let others = all.iter().map(String::as_str).filter(|name| !names.contains(name));
        pattern_of(&folder, &names, others).ok_or_else(|| {
            let names = names.join(", ");
            remote.failed(format!(
                "no one pattern names {names}: give their files to --train or --dev"
            ))
        })
    }
}
