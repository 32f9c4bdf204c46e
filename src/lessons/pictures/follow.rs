//! The page that follows a token from the string to the loss, with the real numbers of a model.

use std::path::Path;

use serde_json::{Value, json};

use super::trace::{Blank, Traced};
use super::{BODY, FRAME, PARTS, STYLE};
use crate::error::{Error, Result};
use crate::files::write_atomic;
use crate::hub;
use crate::model::weights::{Model, wordpiece_of};
use crate::text::WordPiece;
use crate::view::display::{Content, Show};
use crate::view::document::{Document, framed};

const SCRIPTS: [&str; 3] = [PARTS, include_str!("follow.js"), include_str!("stages.js")];

/// The last lesson of the core, with which the last stage comes.
const LAST: u32 = 12;
/// The lesson of the first stage that shows the layers' numbers.
const LAYERS: u32 = 4;

/// A page that follows a token through a model: from the string to the loss of a blank. It has a stage for each core
/// lesson.
///
/// As the last expression of a notebook's cell it is shown in a frame.
///
/// ```
/// use cloze::prelude::*;
///
/// let page = FollowToken::load("cloze-tiny", "He opened the [MASK].", "door")?.after(4);
/// assert!(page.page().starts_with("<!doctype html>"));
/// # Ok::<(), cloze::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct FollowToken {
    text: String,
    model: String,
    numbers: Value,
    after: u32,
}

impl FollowToken {
    /// Computes what a model does with a text with a `[MASK]`. `model` is its folder, `cloze-tiny`, or a model's
    /// name on the Hub; `answer` is the piece that is missing, by default the model's best guess.
    ///
    /// # Errors
    /// If the model can't be read or is no BERT with a masked-LM head, the text has no `[MASK]` or is too long, or
    /// the answer is not one piece.
    pub fn load<'a>(
        model: impl AsRef<Path>,
        text: &str,
        answer: impl Into<Option<&'a str>>,
    ) -> Result<Self> {
        let folder = hub::folder_of(model.as_ref())?;
        let mut read = Model::read_all(&folder)?;
        let wordpiece = wordpiece_of(&folder, &read)?;
        let blank = Blank::of(&wordpiece, text)?;
        let answer = answer.into().map(|answer| piece(&wordpiece, answer)).transpose()?;
        // With dropout the gradients would be random.
        (read.config.hidden_dropout_prob, read.config.attention_probs_dropout_prob) = (0.0, 0.0);
        let numbers = Traced::new(&read)?.numbers(&wordpiece, &blank, answer)?;
        let name = model.as_ref().file_name().unwrap_or(model.as_ref().as_os_str());
        let model = name.to_string_lossy().into_owned();
        Ok(Self { text: text.to_owned(), model, numbers, after: LAST })
    }

    /// Shows only the stages up to that of a core lesson, counted from 0.
    pub fn after(mut self, lesson: u32) -> Self {
        self.after = lesson;
        self
    }

    /// Returns the page, a complete HTML document.
    pub fn page(&self) -> String {
        let mut data = self.numbers.clone();
        if self.after < LAYERS {
            data["layers"] = json!([]);
        }
        data["title"] = "Follow this token".into();
        data["about"] = format!("{}: from a string to its loss", self.model).into();
        data["text"] = self.text.as_str().into();
        data["after"] = self.after.into();
        let title = format!("Follow this token: {}", self.text);
        Document { title: &title, body: BODY, style: STYLE, scripts: &SCRIPTS, data }.html()
    }

    /// Writes the page to a file.
    ///
    /// # Errors
    /// If the file can't be written.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        write_atomic(path.as_ref(), self.page().as_bytes())
    }
}

/// Returns the number of an answer, which must be one piece.
fn piece(wordpiece: &WordPiece, answer: &str) -> Result<u32> {
    // A piece as it stands in the vocabulary, such as ##ing.
    if let Some(id) = wordpiece.id(answer) {
        return Ok(id);
    }
    let encoding = wordpiece.encode(answer);
    match encoding.ids[..] {
        [id] if id != wordpiece.special().unk => Ok(id),
        _ => Err(Error::Usage(format!(
            "the answer {answer:?} is not one piece of the vocabulary but {:?}: a [MASK] stands for one piece",
            encoding.tokens
        ))),
    }
}

impl Show for FollowToken {
    fn content(&self) -> Content {
        let text = format!(
            "{}: {} step by step\n(a notebook shows it; `.save(\"token.html\")` writes the page for a browser)",
            self.model, self.text
        );
        framed("Follow this token", &self.page(), FRAME, text)
    }
}
