//! GLUE's nine tasks (Wang et al., arXiv 1804.07461): their files, columns and labels, in one table.
//!
//! The official files are tab-separated with a header and no quoting: a `"` is a character of the
//! text. CoLA has no header in train.tsv and dev.tsv; some copies start with a byte-order mark.

use std::path::Path;

use crate::error::{Error, Result};
use crate::eval::Metric;
use crate::text::files::{Lines, open};

/// A text or a pair of texts, with what is to be told of it where that is known.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    pub a: String,
    pub b: Option<String>,
    pub target: Option<Target>,
}

/// What a model is to answer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Target {
    /// A class, counted from 0.
    Class(u32),
    Value(f32),
}

/// What the labels of a task look like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Labels {
    /// The class names in the order of their ids.
    Classes(&'static [&'static str]),
    /// A number from 0 to 5.
    Score,
}

/// One of GLUE's tasks.
#[derive(Debug, PartialEq)]
pub struct Task {
    /// As on the command line.
    pub name: &'static str,
    /// Names of the columns that hold the text, the second text and the label.
    a: &'static str,
    b: Option<&'static str>,
    label: &'static str,
    /// Where the columns are in files that have no header.
    without_header: Option<[usize; 2]>,
    pub labels: Labels,
    /// The official name of the development file.
    pub dev: &'static str,
    /// What the task is judged by, the first above all.
    pub metrics: &'static [Metric],
}

/// The official name of every task's training file.
pub const TRAIN: &str = "train.tsv";

const YES_NO: Labels = Labels::Classes(&["0", "1"]);
const ENTAILMENT: Labels = Labels::Classes(&["entailment", "not_entailment"]);

/// What most tasks have.
const PAIRS: Task = Task {
    name: "",
    a: "sentence1",
    b: Some("sentence2"),
    label: "label",
    without_header: None,
    labels: YES_NO,
    dev: "dev.tsv",
    metrics: &[Metric::Accuracy],
};

/// All nine.
pub const TASKS: [Task; 9] = [
    Task {
        name: "cola",
        a: "sentence",
        b: None,
        without_header: Some([3, 1]),
        metrics: &[Metric::Mcc, Metric::Accuracy],
        ..PAIRS
    },
    Task {
        name: "sst-2",
        a: "sentence",
        b: None,
        ..PAIRS
    },
    Task {
        name: "mrpc",
        a: "#1 String",
        b: Some("#2 String"),
        label: "Quality",
        metrics: &[Metric::Accuracy, Metric::F1],
        ..PAIRS
    },
    Task {
        name: "sts-b",
        label: "score",
        labels: Labels::Score,
        metrics: &[Metric::Pearson, Metric::Spearman],
        ..PAIRS
    },
    Task {
        name: "qqp",
        a: "question1",
        b: Some("question2"),
        label: "is_duplicate",
        metrics: &[Metric::Accuracy, Metric::F1],
        ..PAIRS
    },
    Task {
        name: "mnli",
        label: "gold_label",
        labels: Labels::Classes(&["contradiction", "entailment", "neutral"]),
        dev: "dev_matched.tsv",
        ..PAIRS
    },
    Task {
        name: "qnli",
        a: "question",
        b: Some("sentence"),
        labels: ENTAILMENT,
        ..PAIRS
    },
    Task {
        name: "rte",
        labels: ENTAILMENT,
        ..PAIRS
    },
    Task {
        name: "wnli",
        ..PAIRS
    },
];

/// Where the columns are in a file.
struct Columns {
    a: usize,
    b: Option<usize>,
    label: Option<usize>,
}

impl Task {
    /// The task of that name.
    pub fn find(name: &str) -> Option<&'static Self> {
        TASKS.iter().find(|task| task.name == name)
    }

    /// How many numbers a model gives for a row.
    pub fn outputs(&self) -> usize {
        match self.labels {
            Labels::Classes(names) => names.len(),
            Labels::Score => 1,
        }
    }

    /// Reads a file in the official layout, `.gz` or not. A file without a label column, as the
    /// official test files are, gives rows without targets.
    pub fn read(&self, path: &Path) -> Result<Vec<Row>> {
        let mut lines = Lines::new(open(path)?, path);
        let first = match lines.next() {
            None => return Err(Error::file(path, "is empty; expected rows of GLUE")),
            Some(line) => line?,
        };
        let mut rows = Vec::new();
        let columns = match self.columns(&first) {
            Some(columns) => columns,
            None => match self.without_header {
                Some([text, label]) => {
                    let columns = Columns {
                        a: text,
                        b: None,
                        label: Some(label),
                    };
                    rows.push(self.row(path, 1, &first, &columns)?);
                    columns
                }
                None => return Err(Error::line(path, 1, self.expected(&first))),
            },
        };
        for (index, line) in lines.enumerate() {
            let line = line?;
            if !line.is_empty() {
                rows.push(self.row(path, index + 2, &line, &columns)?);
            }
        }
        if rows.is_empty() {
            return Err(Error::file(path, "holds a header and no row"));
        }
        Ok(rows)
    }

    /// The columns that a header names; None when it isn't this task's header.
    fn columns(&self, header: &str) -> Option<Columns> {
        let names: Vec<&str> = header.split('\t').collect();
        let find = |name: &str| names.iter().position(|&n| n == name);
        Some(Columns {
            a: find(self.a)?,
            b: match self.b {
                Some(b) => Some(find(b)?),
                None => None,
            },
            label: find(self.label),
        })
    }

    fn expected(&self, header: &str) -> String {
        let names: Vec<&str> = [Some(self.a), self.b, Some(self.label)]
            .into_iter()
            .flatten()
            .collect();
        format!(
            "this header has no columns {} (tab-separated), as {} has; it is {:?}",
            names.join(", "),
            self.name,
            shortened(header)
        )
    }

    fn row(&self, path: &Path, number: usize, line: &str, columns: &Columns) -> Result<Row> {
        let fields: Vec<&str> = line.split('\t').collect();
        let field = |column: usize| {
            fields.get(column).copied().ok_or_else(|| {
                let message = format!(
                    "the row has {} columns (tab-separated), but column {} is needed",
                    fields.len(),
                    column + 1
                );
                Error::line(path, number, message)
            })
        };
        let target = match columns.label {
            None => None,
            Some(column) => {
                let label = field(column)?;
                let target = self.target(label);
                Some(target.map_err(|message| Error::line(path, number, message))?)
            }
        };
        Ok(Row {
            a: field(columns.a)?.to_owned(),
            b: match columns.b {
                Some(column) => Some(field(column)?.to_owned()),
                None => None,
            },
            target,
        })
    }

    fn target(&self, label: &str) -> std::result::Result<Target, String> {
        match self.labels {
            Labels::Classes(names) => names
                .iter()
                .position(|&name| name == label)
                .map(|class| Target::Class(class as u32))
                .ok_or_else(|| {
                    let label = shortened(label);
                    format!("unknown label {label:?}; expected {}", names.join(" or "))
                }),
            Labels::Score => match label.parse::<f32>() {
                Ok(value) if value.is_finite() => Ok(Target::Value(value)),
                _ => Err(format!(
                    "the score is {:?}; expected a number",
                    shortened(label)
                )),
            },
        }
    }
}

/// The start of a long text, for messages.
pub(super) fn shortened(text: &str) -> String {
    const MOST: usize = 60;
    match text.char_indices().nth(MOST) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(task: &str, text: &str) -> Result<Vec<Row>> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rows.tsv");
        std::fs::write(&path, text).unwrap();
        Task::find(task).unwrap().read(&path)
    }

    #[test]
    fn columns_are_found_by_name_and_quotes_are_text() {
        let text = "\u{feff}Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\r\n\
                    1\t7\t8\t\" He said\tHe said \"\r\n\r\n0\t9\t10\tA\tB\n";
        let rows = read("mrpc", text).unwrap();
        assert_eq!(rows.len(), 2);
        assert_eq!(rows[0].a, "\" He said");
        assert_eq!(rows[0].b.as_deref(), Some("He said \""));
        assert_eq!(rows[0].target, Some(Target::Class(1)));
        let rows = read("sts-b", "sentence1\tscore\tsentence2\nA\t3.8\tB\n").unwrap();
        assert_eq!(rows[0].target, Some(Target::Value(3.8)));
    }

    #[test]
    fn cola_needs_no_header_and_tests_have_no_labels() {
        let rows = read("cola", "gj04\t0\t*\tThe boat sank.\n").unwrap();
        assert_eq!((rows.len(), rows[0].a.as_str()), (1, "The boat sank."));
        assert_eq!(rows[0].target, Some(Target::Class(0)));
        let rows = read("cola", "index\tsentence\n0\tIt sank.\n").unwrap();
        assert_eq!((rows.len(), rows[0].target), (1, None));
    }

    #[test]
    fn bad_files_are_named_with_their_line() {
        let message = |task: &str, text: &str| read(task, text).unwrap_err().to_string();
        assert!(message("rte", "").contains("is empty"));
        let header = message("rte", "a\tb\n1\t2\n");
        assert!(header.contains(":1: this header has no columns sentence1, sentence2, label"));
        let start = "index\tsentence1\tsentence2\tlabel\n0\tA\tB\tentailment\n";
        let short = message("rte", &format!("{start}1\tA\n"));
        assert!(short.contains(":3: the row has 2 columns"), "{short}");
        let label = message("rte", &format!("{start}1\tA\tB\tmaybe\n"));
        let expected = ":3: unknown label \"maybe\"; expected entailment or not_entailment";
        assert!(label.contains(expected), "{label}");
        let score = message("sts-b", "sentence1\tsentence2\tscore\nA\tB\thigh\n");
        assert!(score.contains("the score is \"high\""), "{score}");
        assert!(message("rte", "index\tsentence1\tsentence2\tlabel\n").contains("no row"));
    }
}
