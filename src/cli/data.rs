//! `cloze data`: lists the known data sets and downloads them from their official addresses.

use std::path::PathBuf;

use clap::builder::PossibleValuesParser;
use indicatif::HumanBytes;
use serde_json::{Value, json};

use crate::cli::print::say;
use crate::data::catalogue::{self, GLUE, Obtained, SETS, Set};
use crate::error::{Error, Result};

#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// List the sets with their sizes, licences and addresses
    List {
        /// Print one JSON object a set on stdout, with addresses and checksums
        #[arg(long)]
        json: bool,
    },
    /// Download sets, checked and unpacked, under the file names that the other commands read
    Get(Get),
}

#[derive(clap::Args)]
struct Get {
    /// Names of sets, or glue for all of GLUE's
    #[arg(required = true, value_name = "NAME", value_parser = names())]
    names: Vec<String>,
    /// Folder in which each set gets a folder of its own
    #[arg(long, default_value = "data", value_name = "DIR")]
    dir: PathBuf,
    /// Address or folder with the files, instead of the official addresses
    #[arg(long, value_name = "URL|DIR")]
    mirror: Option<String>,
    /// Print one JSON object a set on stdout
    #[arg(long)]
    json: bool,
}

fn names() -> PossibleValuesParser {
    let names = SETS.iter().map(|set| set.name.as_str());
    PossibleValuesParser::new(names.chain([GLUE]))
}

/// Runs the subcommand.
pub fn run(args: Args) -> Result<()> {
    match args.command {
        Command::List { json } => list(json),
        Command::Get(get) => get.run(),
    }
}

fn list(json: bool) -> Result<()> {
    for set in SETS.iter() {
        if json {
            say!("{}", described(set))?;
            continue;
        }
        let size = match set.size() {
            Some(bytes) => HumanBytes(bytes).to_string(),
            None if set.closed.is_some() => "not to be downloaded".into(),
            None => "size not published".into(),
        };
        say!("{:<13} {}", set.name, set.what)?;
        say!("{:<13} {size}; licence: {}; {}", "", set.licence, set.homepage)?;
    }
    Ok(())
}

fn described(set: &Set) -> Value {
    let files: Vec<Value> = set
        .sources
        .iter()
        .map(|source| {
            json!({
                "address": source.address,
                "bytes": source.size,
                "sha256": source.sha256,
            })
        })
        .collect();
    json!({
        "name": set.name,
        "what": set.what,
        "licence": set.licence,
        "homepage": set.homepage,
        "folder": set.folder,
        "bytes": set.size(),
        "sources": files,
        "closed": set.closed,
    })
}

impl Get {
    fn run(self) -> Result<()> {
        for set in self.sets()? {
            let obtained = catalogue::get(set, &self.dir, self.mirror.as_deref())?;
            self.print(set, &obtained)?;
        }
        Ok(())
    }

    /// Returns the requested sets, each once.
    fn sets(&self) -> Result<Vec<&'static Set>> {
        let mut sets: Vec<&'static Set> = Vec::new();
        let mut add = |set: &'static Set| {
            if !sets.iter().any(|known| known.name == set.name) {
                sets.push(set);
            }
        };
        for name in &self.names {
            match Set::find(name) {
                Some(set) => add(set),
                None if name == GLUE => SETS.iter().filter(|set| set.glue).for_each(&mut add),
                None => return Err(Error::Usage(format!("{name:?} is not a known data set"))),
            }
        }
        Ok(sets)
    }

    fn print(&self, set: &Set, obtained: &Obtained) -> Result<()> {
        let folder = obtained.folder.display();
        if self.json {
            let files: Vec<Value> = obtained
                .files
                .iter()
                .map(|(name, sha256)| json!({"name": name, "sha256": sha256}))
                .collect();
            let object = json!({
                "name": set.name,
                "folder": obtained.folder,
                "files": files,
                "licence": set.licence,
                "fresh": obtained.fresh,
            });
            say!("{object}")
        } else {
            let names: Vec<&str> = obtained.files.iter().map(|(name, _)| name.as_str()).collect();
            let state = if obtained.fresh { "" } else { " (already there, unchanged)" };
            say!("{}: {} in {folder}{state}", set.name, names.join(", "))?;
            say!("licence: {}; {}", set.licence, set.homepage)
        }
    }
}
