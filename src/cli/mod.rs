//! The subcommands of `cloze`, one file each.

pub mod lessons;
pub mod tokenize;
pub mod vocab;

use crate::error::Result;

/// Learn BERT by building it; train and use it.
#[derive(clap::Parser)]
#[command(name = "cloze", version, about)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(clap::Subcommand)]
pub enum Command {
    /// List the lessons, build their notebooks, check their sources
    Lessons(lessons::Args),
    /// Cut lines of text into word pieces
    Tokenize(tokenize::Args),
    /// Train a WordPiece vocabulary from text
    Vocab(vocab::Args),
}

impl Command {
    /// Runs the subcommand.
    pub fn run(self) -> Result<()> {
        match self {
            Self::Lessons(args) => lessons::run(args),
            Self::Tokenize(args) => tokenize::run(args),
            Self::Vocab(args) => vocab::run(args),
        }
    }
}
