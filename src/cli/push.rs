//! `cloze push`: sends a model folder to the Hugging Face Hub.

use std::path::PathBuf;

use indicatif::HumanBytes;
use serde_json::json;

use crate::cli::shared::stdio::say;
use crate::error::Result;
use crate::hub::{self, ModelFile, Push};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Model folder
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// Name on the Hub: your name or that of an organisation, and the model's. The access token is
    /// read from HF_TOKEN
    #[arg(value_name = "NAME")]
    name: String,
    /// Let only the owners see the repository, if it is created
    #[arg(long)]
    private: bool,
    /// Branch, which must exist
    #[arg(long, default_value = "main", value_name = "BRANCH")]
    revision: String,
    /// Message of the commit
    #[arg(long, default_value = "Upload a model", value_name = "TEXT")]
    message: String,
    /// List the files that would be sent, and send nothing
    #[arg(long)]
    dry_run: bool,
    /// Print one JSON object on stdout
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: Args) -> Result<()> {
    let files = hub::files_of_model(&args.folder)?;
    let push = Push {
        files: &files,
        name: &args.name,
        revision: &args.revision,
        private: args.private,
        message: &args.message,
    };
    if args.dry_run {
        push.check()?;
        return list(&files, args.json);
    }
    let pushed = hub::push(&push)?;
    if args.json {
        let object = json!({
            "address": pushed.address,
            "commit": pushed.commit,
            "sent": pushed.sent,
            "unchanged": pushed.unchanged,
        });
        return say!("{object}");
    }
    let address = pushed.address;
    match pushed.commit {
        Some(commit) => say!("files sent to {address}: {}, commit {commit}", pushed.sent.len()),
        None => say!("{address} has every file already"),
    }
}

/// Prints the files of a model with their sizes.
fn list(files: &[ModelFile], as_json: bool) -> Result<()> {
    if as_json {
        let files = files.iter().map(|file| json!({"name": file.name, "bytes": file.size}));
        return say!("{}", json!({"files": files.collect::<Vec<_>>()}));
    }
    files.iter().try_for_each(|file| say!("{}  {}", file.name, HumanBytes(file.size)))
}
