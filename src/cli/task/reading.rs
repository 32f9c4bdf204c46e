//! How the files of a task are read: what would make a fine-tuned model answer something else if it
//! were forgotten. `finetune` keeps it in the model's `config.json`, beside `finetuning_task`;
//! `evaluate` and `predict` take it from there where nothing else is asked for.

use std::path::Path;

use serde::Deserialize;

use crate::data::table::Columns;
use crate::error::{Error, Result};
use crate::model::Config;
use crate::tasks::{self, Role, SpanOptions};
use crate::train::task::OPTIONS;

/// The fifth of CODAH that is measured on.
const FOLD: u32 = 1;

// What is kept has the options' names.
#[derive(clap::Args, Debug, Clone, Default, Deserialize)]
pub struct ReadingArgs {
    /// Longest sequence in tokens; longer texts are cut [default: as the model was fine-tuned; to
    /// fine-tune, 128, for squad and squad2 384, for swag and codah 80]
    #[arg(long, alias = "max-seq-length", value_name = "N")]
    max_len: Option<usize>,
    /// Columns of your own data, by name or, in files without a header, by number: text[,pair],label,
    /// or words,labels; to predict, the label's may be left out [default: as the model was fine-tuned]
    #[arg(long, value_name = "A[,B],LABEL")]
    columns: Option<String>,
    /// Which fifth of codah is kept for measuring [default: as the model was fine-tuned; to
    /// fine-tune, 1]
    #[arg(long, value_name = "1..5")]
    fold: Option<u32>,
    /// SQuAD: pieces by which a window is farther on than the one before [default: as the model was
    /// fine-tuned; to fine-tune, 128]
    #[arg(long, value_name = "N")]
    doc_stride: Option<usize>,
    /// SQuAD: most pieces of a question [default: as the model was fine-tuned; to fine-tune, 64]
    #[arg(long, value_name = "N")]
    max_query_len: Option<usize>,
    /// SQuAD: most pieces of an answer [default: as the model was fine-tuned; to fine-tune, 30]
    #[arg(long, value_name = "N")]
    max_answer_len: Option<usize>,
}

impl ReadingArgs {
    /// What the configuration of a fine-tuned model keeps: nothing where another program, or an
    /// earlier Cloze, wrote it. `path` stands in error messages.
    pub fn kept(config: &Config, path: &Path) -> Result<Self> {
        match config.other.get(OPTIONS) {
            None => Ok(Self::default()),
            Some(kept) => serde_json::from_value(kept.clone())
                .map_err(|e| Error::file(path, format!("{OPTIONS}: {e}"))),
        }
    }

    /// The same, with what is `kept` where nothing is said.
    pub fn over(&self, kept: &Self) -> Self {
        Self {
            max_len: self.max_len.or(kept.max_len),
            columns: self.columns.clone().or_else(|| kept.columns.clone()),
            fold: self.fold.or(kept.fold),
            doc_stride: self.doc_stride.or(kept.doc_stride),
            max_query_len: self.max_query_len.or(kept.max_query_len),
            max_answer_len: self.max_answer_len.or(kept.max_answer_len),
        }
    }

    /// The longest sequence, refused where the model has fewer positions.
    pub fn max_len(&self, task: &str, config: &Config) -> Result<usize> {
        let usual = tasks::usual_max_len(task).min(config.max_position_embeddings);
        max_len(config, self.max_len.unwrap_or(usual))
    }

    pub fn fold(&self) -> u32 {
        self.fold.unwrap_or(FOLD)
    }

    /// What is said where another fifth of CODAH is measured on than was kept from training.
    pub fn fold_note(&self, kept: &Self) -> Option<String> {
        let (asked, kept) = (self.fold?, kept.fold?);
        (asked != kept).then(|| {
            format!(
                "--fold {asked}: the model was fine-tuned with --fold {kept}, so it was trained on what \
                 it is measured on here"
            )
        })
    }

    /// The columns of your own data.
    pub fn columns(&self) -> Result<Option<Columns>> {
        self.columns.as_deref().map(Columns::parse).transpose()
    }

    /// Whether the columns are those of the texts alone, as they may be where the data is only to be
    /// answered. `kept` tells how many texts there are; another number is refused.
    pub fn unlabelled(&self, kept: &Self, role: Role) -> Result<bool> {
        let (Some(asked), kept) = (self.columns()?, kept.columns()?) else {
            return Ok(false);
        };
        let answering = role == Role::Test;
        let Some(kept) = kept else {
            return Ok(answering && asked.len() == 1);
        };
        if asked.len() == kept.len() {
            return Ok(false);
        }
        let texts = kept.len() - 1;
        if answering && asked.len() == texts {
            return Ok(true);
        }
        let expected = match (texts, answering) {
            (1, false) => "expected a column of text and one of labels",
            (1, true) => "expected a column of text, with or without one of labels",
            (_, false) => "expected two columns of text and one of labels",
            (_, true) => "expected two columns of text, with or without one of labels",
        };
        Err(Error::Usage(format!(
            "--columns {asked}: {expected}, as the model was fine-tuned on {kept}"
        )))
    }

    /// How SQuAD's paragraphs are read.
    pub fn spans(&self) -> SpanOptions {
        let usual = SpanOptions::default();
        SpanOptions {
            stride: self.doc_stride.unwrap_or(usual.stride),
            max_question: self.max_query_len.unwrap_or(usual.max_question),
            max_answer: self.max_answer_len.unwrap_or(usual.max_answer),
            ..usual
        }
    }
}

/// The longest sequence asked for, refused where the model has fewer positions.
pub fn max_len(config: &Config, asked: usize) -> Result<usize> {
    if asked > config.max_position_embeddings {
        return Err(Error::Usage(format!(
            "--max-len {asked}: the model has only {} positions",
            config.max_position_embeddings
        )));
    }
    Ok(asked)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept_again(task: &str, options: &tasks::Options) -> ReadingArgs {
        let mut config = Config::new(2, 128, 2, 512, 1000);
        let task = tasks::open(task, options, tasks::Labels::Training(Path::new("-"))).unwrap();
        let max_len = ReadingArgs::default()
            .max_len(task.name(), &config)
            .unwrap();
        crate::train::task::describe(task.as_ref(), max_len, &mut config);
        ReadingArgs::kept(&config, Path::new("config.json")).unwrap()
    }

    #[test]
    fn a_model_keeps_what_its_task_reads_by() {
        let options = tasks::Options {
            spans: SpanOptions {
                stride: 64,
                ..SpanOptions::default()
            },
            fold: 1,
            ..tasks::Options::default()
        };
        let kept = kept_again("squad", &options);
        assert_eq!((kept.max_len, kept.fold), (Some(384), None));
        assert_eq!(kept.columns, None, "squad has none");
        let spans = kept.spans();
        assert_eq!((spans.stride, spans.max_question), (64, 64));
        assert_eq!(kept.max_query_len, Some(64), "what nobody asked for too");
        let again = ReadingArgs {
            doc_stride: Some(32),
            ..ReadingArgs::default()
        };
        let over = again.over(&kept);
        assert_eq!((over.doc_stride, over.max_len), (Some(32), Some(384)));
        let kept = kept_again("codah", &options);
        assert_eq!((kept.fold, kept.max_len), (Some(1), Some(80)));
    }

    #[test]
    fn another_number_of_texts_than_in_training_is_refused() {
        let columns = |columns: &str| ReadingArgs {
            columns: Some(columns.into()),
            ..ReadingArgs::default()
        };
        let (one, two) = (columns("x,y"), columns("x,y,z"));
        let none = ReadingArgs::default();
        for (asked, kept, role, expected) in [
            ("text", &one, Role::Test, Some(true)),
            ("text,label", &one, Role::Test, Some(false)),
            ("text,label", &one, Role::Dev, Some(false)),
            ("text", &one, Role::Dev, None),
            ("a,b,label", &one, Role::Test, None),
            ("a,b", &two, Role::Test, Some(true)),
            ("a,b", &two, Role::Dev, None),
            ("a,b,label", &two, Role::Test, Some(false)),
            ("a", &two, Role::Test, None),
            ("text", &none, Role::Test, Some(true)),
            ("text,label", &none, Role::Test, Some(false)),
        ] {
            let found = columns(asked).unlabelled(kept, role);
            assert_eq!(found.ok(), expected, "{asked} {role:?}");
        }
    }
}
