//! `cloze data`: lists the known data sets and downloads them from their official addresses.

use std::path::PathBuf;

use clap::builder::PossibleValuesParser;
use indicatif::HumanBytes;
use serde_json::{Value, json};

use crate::cli::shared::stdio::say;
use crate::data::catalogue::{self, GLUE, Obtained, SETS, Set};
use crate::error::Result;

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// List the data sets: sizes, licences, addresses
    List {
        /// Print one JSON object for each set on stdout, with addresses and checksums
        #[arg(long)]
        json: bool,
    },
    /// Download sets, check and unpack them, and name their files as the other commands expect
    Get(Get),
}

#[derive(clap::Args)]
struct Get {
    /// Names of sets, or glue for all sets of GLUE
    #[arg(required = true, value_name = "NAME", value_parser = names())]
    names: Vec<String>,
    /// Folder that gets a folder for each set
    #[arg(long, default_value = "data", value_name = "DIR")]
    dir: PathBuf,
    /// Address or folder with the files under their official names, instead of the official addresses
    #[arg(long, value_name = "URL|DIR")]
    mirror: Option<String>,
    /// Print one JSON object for each set on stdout
    #[arg(long)]
    json: bool,
}

fn names() -> PossibleValuesParser {
    let names = SETS.iter().map(|set| set.name.as_str());
    PossibleValuesParser::new(names.chain([GLUE]))
}

pub(crate) fn run(args: Args) -> Result<()> {
    match args.command {
        Command::List { json } => list(json),
        Command::Get(get) => {
            for set in get.sets() {
                let obtained = catalogue::get(set, &get.dir, get.mirror.as_deref())?;
                get.print(set, &obtained)?;
            }
            Ok(())
        }
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
            None if set.closed.is_some() => "cannot be downloaded".into(),
            None => "size not published".into(),
        };
        say!("{:<13} {}", set.name, set.what)?;
        let (licence, homepage) = (&set.licence, &set.homepage);
        say!("{:<13} {size}; licence: {licence}; {homepage}", "")?;
    }
    Ok(())
}

fn described(set: &Set) -> Value {
    let files = set.sources.iter().map(
        |source| json!({"address": source.address, "bytes": source.size, "sha256": source.sha256}),
    );
    json!({
        "name": set.name,
        "what": set.what,
        "licence": set.licence,
        "homepage": set.homepage,
        "folder": set.folder,
        "bytes": set.size(),
        "sources": files.collect::<Vec<_>>(),
        "closed": set.closed,
    })
}

impl Get {
    /// Returns the named sets, each once.
    fn sets(&self) -> Vec<&'static Set> {
        let mut sets: Vec<&'static Set> = Vec::new();
        for name in &self.names {
            let named = |set: &&Set| set.name == *name || set.glue && name == GLUE;
            for set in SETS.iter().filter(named) {
                if !sets.iter().any(|known| known.name == set.name) {
                    sets.push(set);
                }
            }
        }
        sets
    }

    fn print(&self, set: &Set, obtained: &Obtained) -> Result<()> {
        let files = obtained.files.iter();
        if self.json {
            let files = files.map(|(name, sha256)| json!({"name": name, "sha256": sha256}));
            let object = json!({
                "name": set.name,
                "folder": obtained.folder,
                "files": files.collect::<Vec<_>>(),
                "licence": set.licence,
                "fresh": obtained.fresh,
            });
            return say!("{object}");
        }
        let names: Vec<&str> = files.map(|(name, _)| name.as_str()).collect();
        let state = match obtained.fresh {
            true => "",
            false => " (there already, unchanged)",
        };
        let folder = obtained.folder.display();
        say!("{}: {} in {folder}{state}", set.name, names.join(", "))?;
        say!("licence: {}; {}", set.licence, set.homepage)
    }
}
