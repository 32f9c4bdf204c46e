//! How the files of a task are read. `finetune` stores these options in the model's `config.json`, because a model
//! answers differently if its files are read differently; they are the defaults of `evaluate` and `predict`.

use std::path::Path;

use serde::Deserialize;

use crate::cli::shared::checks::{positions, refuse};
use crate::data::table::Columns;
use crate::error::{Error, Result};
use crate::model::Config;
use crate::tasks::{self, LongText, Role, SpanOptions};
use crate::train::task::OPTIONS;

/// An option, whether it was given, and the tasks that have it.
pub(crate) type OfSomeTasks = (&'static str, bool, &'static [&'static str]);
/// The task of your own data.
pub(crate) const OWN: &[&str] = &["custom"];
/// The tasks with SQuAD's files.
pub(crate) const SQUAD: &[&str] = &["squad", "squad2"];

/// The fifth of CODAH that is held out by default.
const FOLD: u32 = 1;

// The stored options have the names of these fields.
#[derive(clap::Args, Debug, Clone, Default, Deserialize)]
pub(crate) struct ReadingArgs {
    /// Longest sequence in tokens; longer texts are cut [default: as the model was fine-tuned; to
    /// fine-tune, 128, for squad and squad2 384, for swag and codah 80]
    #[arg(long, alias = "max-seq-length", value_name = "N")]
    max_len: Option<usize>,
    /// Columns of your own data, by name or, in files without a header, by number: text[,pair],label,
    /// or words,labels; to predict, the label's may be left out [default: as the model was fine-tuned]
    #[arg(long, value_name = "A[,B],LABEL")]
    columns: Option<String>,
    /// Your own texts that are longer than --max-len: cut them, or read them in windows and average the
    /// windows' logits [default: as the model was fine-tuned; to fine-tune, cut]
    #[arg(long, value_enum)]
    long_text: Option<LongText>,
    /// What separates the columns of your own data: one character, or the word tab [default: as the model
    /// was fine-tuned; else that of comma, semicolon, tab and | under which the header has the columns]
    #[arg(long, value_name = "C", allow_hyphen_values = true)]
    delimiter: Option<String>,
    /// Which fifth of codah is held out for measuring [default: as the model was fine-tuned; to
    /// fine-tune, 1]
    #[arg(long, value_name = "1..5")]
    fold: Option<u32>,
    /// SQuAD: pieces between the starts of two windows [default: as the model was fine-tuned; to
    /// fine-tune, 128]
    #[arg(long, value_name = "N")]
    doc_stride: Option<usize>,
    /// SQuAD: longest question in pieces [default: as the model was fine-tuned; to fine-tune, 64]
    #[arg(long, value_name = "N")]
    max_query_len: Option<usize>,
    /// SQuAD: longest answer in pieces [default: as the model was fine-tuned; to fine-tune, 30]
    #[arg(long, value_name = "N")]
    max_answer_len: Option<usize>,
}

impl ReadingArgs {
    /// Returns the options that a model's configuration stores; none if another program wrote it. `path` is for
    /// error messages.
    pub(crate) fn stored(config: &Config, path: &Path) -> Result<Self> {
        match config.other.get(OPTIONS) {
            None => Ok(Self::default()),
            Some(stored) => serde_json::from_value(stored.clone())
                .map_err(|e| Error::file(path, format!("{OPTIONS}: {e}"))),
        }
    }

    /// Returns the options that not every task has: whether each was given, and which tasks have it.
    pub(crate) fn of_some_tasks(&self) -> [OfSomeTasks; 7] {
        [
            ("--columns", self.columns.is_some(), OWN),
            ("--long-text", self.long_text.is_some(), OWN),
            ("--delimiter", self.delimiter.is_some(), OWN),
            ("--fold", self.fold.is_some(), &["codah"]),
            ("--doc-stride", self.doc_stride.is_some(), SQUAD),
            ("--max-query-len", self.max_query_len.is_some(), SQUAD),
            ("--max-answer-len", self.max_answer_len.is_some(), SQUAD),
        ]
    }

    /// Fills in the `stored` options for those that were not given.
    pub(crate) fn or(&self, stored: &Self) -> Self {
        Self {
            max_len: self.max_len.or(stored.max_len),
            columns: self.columns.clone().or_else(|| stored.columns.clone()),
            long_text: self.long_text.or(stored.long_text),
            delimiter: self.delimiter.clone().or_else(|| stored.delimiter.clone()),
            fold: self.fold.or(stored.fold),
            doc_stride: self.doc_stride.or(stored.doc_stride),
            max_query_len: self.max_query_len.or(stored.max_query_len),
            max_answer_len: self.max_answer_len.or(stored.max_answer_len),
        }
    }

    /// Returns the longest sequence, in tokens.
    ///
    /// # Errors
    /// If the model has fewer positions.
    pub(crate) fn max_len(&self, task: &str, config: &Config) -> Result<usize> {
        let most = config.positions();
        let usual = || tasks::usual_max_len(task).min(most);
        let max_len = self.max_len.unwrap_or_else(usual);
        positions("--max-len", max_len, most)?;
        Ok(max_len)
    }

    pub(crate) fn long_text(&self) -> LongText {
        self.long_text.unwrap_or_default()
    }

    pub(crate) fn fold(&self) -> u32 {
        self.fold.unwrap_or(FOLD)
    }

    /// Returns a warning if another fifth of CODAH is measured than was held out in training.
    pub(crate) fn fold_note(&self, stored: &Self) -> Option<String> {
        let (given, stored) = (self.fold?, stored.fold?);
        (given != stored).then(|| {
            format!(
                "--fold {given}: the model was fine-tuned with --fold {stored}, so it was trained on the rows \
                 that it is measured on here"
            )
        })
    }

    /// Returns the columns of your own data.
    pub(crate) fn columns(&self) -> Result<Option<Columns>> {
        let Some(columns) = &self.columns else {
            return Ok(None);
        };
        let columns = Columns::parse(columns)?;
        Ok(Some(match &self.delimiter {
            Some(delimiter) => columns.with_delimiter(delimiter)?,
            None => columns,
        }))
    }

    /// Returns whether the columns are those of the texts alone, which is allowed for prediction.
    ///
    /// # Errors
    /// If there are not as many texts as in the `stored` columns.
    pub(crate) fn unlabelled(&self, stored: &Self, role: Role) -> Result<bool> {
        let (Some(given), stored) = (self.columns()?, stored.columns()?) else {
            return Ok(false);
        };
        let answering = role == Role::Test;
        let Some(stored) = stored else {
            return Ok(answering && given.len() == 1);
        };
        if given.len() == stored.len() {
            return Ok(false);
        }
        let texts = stored.len() - 1;
        if answering && given.len() == texts {
            return Ok(true);
        }
        let expected = match (texts, answering) {
            (1, false) => "expected a column of text and one of labels",
            (1, true) => "expected a column of text, with or without one of labels",
            (_, false) => "expected two columns of text and one of labels",
            (_, true) => "expected two columns of text, with or without one of labels",
        };
        refuse!("--columns {given}: {expected}, as the model was fine-tuned on {stored}")
    }

    /// Returns how SQuAD's paragraphs are read.
    pub(crate) fn spans(&self) -> SpanOptions {
        let usual = SpanOptions::default();
        SpanOptions {
            stride: self.doc_stride.unwrap_or(usual.stride),
            max_question: self.max_query_len.unwrap_or(usual.max_question),
            max_answer: self.max_answer_len.unwrap_or(usual.max_answer),
            ..usual
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored_options(task: &str) -> ReadingArgs {
        let mut options = tasks::Options::default();
        (options.spans.stride, options.fold) = (64, 1);
        let mut config = Config::new(2, 128, 2, 512, 1000);
        let labels = tasks::Labels::Training(Path::new("-"));
        let task = tasks::open(task, &options, labels).unwrap();
        let max_len = ReadingArgs::default().max_len(task.name(), &config);
        crate::train::task::describe(task.as_ref(), max_len.unwrap(), &mut config);
        ReadingArgs::stored(&config, Path::new("config.json")).unwrap()
    }

    #[test]
    fn a_model_stores_how_its_files_are_read() {
        let stored = stored_options("squad");
        assert_eq!((stored.max_len, stored.fold), (Some(384), None));
        assert_eq!(stored.columns, None, "squad has none");
        let spans = stored.spans();
        assert_eq!((spans.stride, spans.max_question), (64, 64));
        assert_eq!(stored.max_query_len, Some(64), "defaults are stored too");
        let given = ReadingArgs { doc_stride: Some(32), ..ReadingArgs::default() };
        let both = given.or(&stored);
        assert_eq!((both.doc_stride, both.max_len), (Some(32), Some(384)));
        let stored = stored_options("codah");
        assert_eq!((stored.fold, stored.max_len), (Some(1), Some(80)));
    }

    #[test]
    fn one_text_in_training_means_one_text_later() {
        let columns =
            |columns: &str| ReadingArgs { columns: Some(columns.into()), ..ReadingArgs::default() };
        let refused = |given, role| columns(given).unlabelled(&columns("x,y"), role).is_err();
        assert!(refused("text", Role::Dev) && refused("a,b,label", Role::Test));
        assert!(!refused("text", Role::Test) && !refused("text,label", Role::Dev));
    }
}
