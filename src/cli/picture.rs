//! `cloze lessons picture`: lists the explorable pictures, and writes one as a page.

use std::path::PathBuf;

use crate::cli::shared::checks::refuse;
use crate::cli::shared::stdio::say;
use crate::error::Result;
use crate::files::write_atomic;
use crate::lessons::data::TINY;
use crate::lessons::{FollowToken, Picture};

/// The name of the page that follows a token.
const TOKEN: &str = "token";

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The picture's name, or `token` for the page that follows a token through a model [default: list them]
    name: Option<String>,
    /// HTML file to write; the page needs no network [default: the name with .html]
    #[arg(long, value_name = "FILE", requires = "name")]
    out: Option<PathBuf>,
    #[command(flatten)]
    token: Token,
}

/// What only the page that follows a token needs.
#[derive(Debug, clap::Args)]
struct Token {
    /// With `token`: model folder, or the name of one on the Hub [default: cloze-tiny]
    #[arg(long, value_name = "DIR|NAME")]
    model: Option<PathBuf>,
    /// With `token`: text with a [MASK] [default: "He opened the [MASK]."]
    #[arg(long)]
    text: Option<String>,
    /// With `token`: the piece that is missing [default: the model's best guess]
    #[arg(long, value_name = "PIECE")]
    answer: Option<String>,
    /// With `token`: the last core lesson whose stage is shown [default: all]
    #[arg(long, value_name = "LESSON", value_parser = clap::value_parser!(u32).range(..=12))]
    after: Option<u32>,
}

pub(crate) fn run(args: Args) -> Result<()> {
    let Some(name) = args.name else {
        for picture in Picture::ALL {
            say!("{:<10}  lesson {}  {}", picture.name(), picture.lesson(), picture.title())?;
        }
        return say!("{TOKEN:<10}  all core    Follow this token: from a string to its loss");
    };
    let page = if name == TOKEN { args.token.page()? } else { args.token.unused(&name)?.page() };
    let out = args.out.unwrap_or_else(|| format!("{name}.html").into());
    write_atomic(&out, page.as_bytes())?;
    say!("{}", out.display())
}

impl Token {
    fn page(&self) -> Result<String> {
        let model = self.model.clone().unwrap_or_else(|| TINY.into());
        let text = self.text.as_deref().unwrap_or("He opened the [MASK].");
        let page = FollowToken::load(model, text, self.answer.as_deref())?;
        Ok(match self.after {
            Some(lesson) => page.after(lesson),
            None => page,
        }
        .page())
    }

    /// Returns the picture of that name, which takes none of these options.
    fn unused(&self, name: &str) -> Result<Picture> {
        let picture = Picture::named(name)?;
        let given = [
            ("--model", self.model.is_some()),
            ("--text", self.text.is_some()),
            ("--answer", self.answer.is_some()),
            ("--after", self.after.is_some()),
        ];
        match given.into_iter().find(|(_, given)| *given) {
            Some((option, _)) => refuse!("{option}: only the picture {TOKEN} takes it, not {name}"),
            None => Ok(picture),
        }
    }
}
