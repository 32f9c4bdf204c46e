//! Explorable pictures: web pages in which the reader changes something and sees the computation follow, each with a
//! question that it answers. The scripts compute with the formulas of the crate, which the tests compare.

mod follow;
#[cfg(test)]
mod runs;
#[cfg(test)]
mod tests;
mod trace;

use std::path::Path;

use serde_json::{Value, json};

use crate::error::{Error, Result};
use crate::files::write_atomic;
use crate::text::{Casing, WordPiece};
use crate::view::display::{Content, Show};
use crate::view::document::{Document, framed};

pub use follow::FollowToken;

const BODY: &str = include_str!("page.html");
const STYLE: &str = include_str!("page.css");
const PARTS: &str = include_str!("parts.js");
const RANDOM: &str = include_str!("random.js");
/// The curves of real runs; `runs.rs` makes them.
const RUNS: &str = include_str!("runs.json");

/// The height of a picture's frame in a notebook, in CSS pixels, until it has measured itself.
const FRAME: usize = 800;

/// The sentence of the picture of masking, and the words of its vocabulary.
const SENTENCE: &str = "The miller carried a sack of flour to the bakery, and the baker baked bread for the whole village.";
const WORDS: &str = "the a miller carried sack of flour to bake ##ry and ##r baked bread for whole village in river \
                     mill old man woman went home . , he she it was house door opened dog cat sat wind water grain \
                     cart horse road town market sold bought morning evening king forest";

/// A page in which an idea of the course can be explored.
///
/// As the last expression of a notebook's cell it is shown in a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Picture {
    /// Dot products in a plane, and the softmax at a temperature.
    Softmax,
    /// LayerNorm of eight numbers.
    LayerNorm,
    /// Heads split and joined again.
    Heads,
    /// Gradients through stacks with and without residual connections.
    Residual,
    /// The tokens that masked language modelling chooses, and what replaces them.
    Masking,
    /// Learning-rate schedules with their runs, and sick runs.
    Schedule,
}

impl Picture {
    /// All pictures, in the order of the lessons that they belong to.
    pub const ALL: [Self; 6] = [
        Self::LayerNorm,
        Self::Softmax,
        Self::Heads,
        Self::Residual,
        Self::Masking,
        Self::Schedule,
    ];

    /// Returns its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Softmax => "softmax",
            Self::LayerNorm => "layer-norm",
            Self::Heads => "heads",
            Self::Residual => "residual",
            Self::Masking => "masking",
            Self::Schedule => "schedule",
        }
    }

    /// Returns the picture of that name.
    ///
    /// # Errors
    /// If no picture has this name.
    pub fn named(name: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|picture| picture.name() == name).ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            Error::Usage(format!(
                "there is no picture {name:?}; the pictures are {names} and token"
            ))
        })
    }

    /// Returns its heading.
    pub fn title(self) -> &'static str {
        match self {
            Self::Softmax => "Dot product and softmax",
            Self::LayerNorm => "LayerNorm",
            Self::Heads => "Heads: split and joined",
            Self::Residual => "Gradients through a residual connection",
            Self::Masking => "Masking: the 80/10/10 rule",
            Self::Schedule => "Learning-rate schedules and sick runs",
        }
    }

    /// Returns the number of the lesson that explains the idea.
    pub fn lesson(self) -> &'static str {
        match self {
            Self::LayerNorm => "03",
            Self::Softmax => "04",
            Self::Heads => "05",
            Self::Residual => "06",
            Self::Masking => "07",
            Self::Schedule => "10",
        }
    }

    /// Returns the page, a complete HTML document.
    pub fn page(self) -> String {
        let script = match self {
            Self::Softmax => include_str!("softmax.js"),
            Self::LayerNorm => include_str!("layer_norm.js"),
            Self::Heads => include_str!("heads.js"),
            Self::Residual => include_str!("residual.js"),
            Self::Masking => include_str!("masking.js"),
            Self::Schedule => include_str!("schedule.js"),
        };
        let title = self.title();
        let mut data =
            json!({ "title": title, "about": format!("A picture of lesson {}", self.lesson()) });
        match self {
            Self::Masking => data["sentence"] = sentence(),
            Self::Schedule => data["runs"] = serde_json::from_str(RUNS).unwrap_or_default(),
            _ => {}
        }
        let scripts = [PARTS, RANDOM, script];
        Document { title, body: BODY, style: STYLE, scripts: &scripts, data }.html()
    }

    /// Writes the page to a file.
    ///
    /// # Errors
    /// If the file can't be written.
    pub fn save(self, path: impl AsRef<Path>) -> Result<()> {
        write_atomic(path.as_ref(), self.page().as_bytes())
    }
}

/// Returns the tokenizer of the picture of masking: the special tokens, then the words.
fn words() -> Result<WordPiece> {
    let special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"];
    let all = special.into_iter().chain(WORDS.split_whitespace()).map(str::to_owned);
    WordPiece::from_vocab(all.collect(), Casing::Uncased)
}

/// Returns the sentence of the picture of masking with its vocabulary.
fn sentence() -> Value {
    // The unit tests build it, so it can't fail.
    words().map_or(Value::Null, |words| {
        let ids = words.encode_with_special(SENTENCE).ids;
        json!({ "vocabulary": words.tokens(), "ids": ids, "mask": words.special().mask })
    })
}

impl Show for Picture {
    fn content(&self) -> Content {
        let title = self.title();
        let text = format!(
            "{title}: a page to play with\n(a notebook shows it; `cloze lessons picture {}` writes it for a browser)",
            self.name()
        );
        framed(title, &self.page(), FRAME, text)
    }
}
