//! GLUE's nine tasks (Wang et al., arXiv 1804.07461) and its diagnostic set AX: a table of their files,
//! columns and labels, and the reading of their files.
//!
//! The official files are tab-separated with a header and no quoting: a `"` is a character of the
//! text. CoLA's train.tsv and dev.tsv have no header; some copies start with a byte-order mark.

use std::io::BufRead;
use std::path::Path;

use crate::error::{Error, Result};
use crate::text::reader::{Lines, first_line, open_or_stdin};

use super::bad::{BadRows, NO_TABS, Width};
use super::labels::shortened;
use super::table;

/// A text or a pair of texts, with its target if known.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// Its name in a submission: the file's index column, or else its index, counted from 0 and including
    /// bad rows.
    pub index: String,
    /// Its line, counted from 1.
    pub line: usize,
    /// The text, or the first of two.
    pub a: String,
    /// The second text.
    pub b: Option<String>,
    /// Whether the file has a label for it, read or not.
    pub labelled: bool,
    /// Its label, if read.
    pub target: Option<Target>,
}

/// What a model is to predict.
#[derive(Debug, Clone, PartialEq)]
pub enum Target {
    /// A class, counted from 0.
    Class(u32),
    /// Any number of classes, in ascending order.
    Classes(Vec<u32>),
    /// A number.
    Value(f32),
}

/// The kind of a task's labels.
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
    /// The name on the command line.
    pub name: &'static str,
    /// Names of the columns with the text, the second text and the label.
    a: &'static str,
    b: Option<&'static str>,
    label: &'static str,
    /// In files without a header: the columns of text and label, and the number of columns.
    without_header: Option<[usize; 3]>,
    /// The kind of its labels.
    pub labels: Labels,
    /// The names of the classes in the Hub's data set `glue`, in the same order, if they differ: models
    /// trained on it use them.
    pub hub_classes: Option<&'static [&'static str]>,
    /// For each development file the name of its results and its official name. Only the first file must
    /// exist.
    pub dev: &'static [(&'static str, &'static str)],
    /// The name of the task's file in a submission (gluebenchmark.com/faq).
    submission: &'static str,
    /// The same for the test file with texts of other genres than the training file's, if there is one.
    submission_mismatched: Option<&'static str>,
}

/// The official name of the training files.
pub const TRAIN: &str = "train.tsv";

const NLI: Labels = Labels::Classes(&["contradiction", "entailment", "neutral"]);

const YES_NO: Labels = Labels::Classes(&["0", "1"]);
const ENTAILMENT: Labels = Labels::Classes(&["entailment", "not_entailment"]);

/// The usual properties of a task.
const PAIRS: Task = Task {
    name: "",
    a: "sentence1",
    b: Some("sentence2"),
    label: "label",
    without_header: None,
    labels: YES_NO,
    hub_classes: None,
    dev: &[("dev", "dev.tsv")],
    submission: "",
    submission_mismatched: None,
};

/// Lists tasks by their names, the names of their submissions, and what differs from [`PAIRS`].
macro_rules! tasks {
    ($($name:literal $submission:literal { $($field:tt)* })*) => {
        [$(Task { name: $name, submission: $submission, $($field)* ..PAIRS }),*]
    };
}

/// The nine tasks and AX, which has no training data of its own and tests models of MNLI.
pub const TASKS: [Task; 10] = tasks! {
    "cola" "CoLA.tsv" {
        a: "sentence", b: None, without_header: Some([3, 1, 4]),
        hub_classes: Some(&["unacceptable", "acceptable"]),
    }
    "sst-2" "SST-2.tsv" { a: "sentence", b: None, hub_classes: Some(&["negative", "positive"]), }
    "mrpc" "MRPC.tsv" {
        a: "#1 String", b: Some("#2 String"), label: "Quality",
        hub_classes: Some(&["not_equivalent", "equivalent"]),
    }
    "sts-b" "STS-B.tsv" { label: "score", labels: Labels::Score, }
    "qqp" "QQP.tsv" {
        a: "question1", b: Some("question2"), label: "is_duplicate",
        hub_classes: Some(&["not_duplicate", "duplicate"]),
    }
    "mnli" "MNLI-m.tsv" {
        submission_mismatched: Some("MNLI-mm.tsv"), label: "gold_label", labels: NLI,
        dev: &[("dev", "dev_matched.tsv"), ("dev_mismatched", "dev_mismatched.tsv")],
    }
    "qnli" "QNLI.tsv" { a: "question", b: Some("sentence"), labels: ENTAILMENT, }
    "rte" "RTE.tsv" { labels: ENTAILMENT, }
    "wnli" "WNLI.tsv" { hub_classes: Some(&["not_entailment", "entailment"]), }
    "ax" "AX.tsv" { labels: NLI, dev: &[], }
};

/// Indices of the columns in a file.
struct Columns {
    index: Option<usize>,
    a: usize,
    b: Option<usize>,
    label: Option<usize>,
    width: Width,
}

impl Task {
    /// Returns the task of that name.
    pub fn find(name: &str) -> Option<&'static Self> {
        TASKS.iter().find(|task| task.name == name)
    }

    /// Returns the name of the submission file with the predictions for `input`.
    pub fn submission(&self, input: &Path) -> &'static str {
        let name = input.file_name().unwrap_or_default().to_string_lossy();
        match self.submission_mismatched {
            Some(mismatched) if name.contains("mismatched") => mismatched,
            _ => self.submission,
        }
    }

    /// Reads a file in the official layout, `.gz` or not. `labels` says whether to read labels; a file
    /// without a label column, such as the official test files, gives rows without targets.
    pub fn read(&self, path: &Path, labels: bool, bad: &mut BadRows) -> Result<Vec<Row>> {
        self.read_from(open_or_stdin(path)?, path, labels, bad)
    }

    /// Reads a file without its labels. If the task has one text and `path` is standard input in another
    /// layout than the official one, each line is a text, or a JSON object with the text's column; `notes`
    /// receives a remark on the layout.
    pub fn read_texts(
        &self,
        path: &Path,
        bad: &mut BadRows,
        notes: &mut Vec<String>,
    ) -> Result<Vec<Row>> {
        if self.b.is_some() || path != Path::new("-") {
            return self.read(path, false, bad);
        }
        let (first, input) = first_line(open_or_stdin(path)?, path)?;
        let fields = first.split('\t').count();
        if self.columns(&first).is_some() || self.without_header.is_some_and(|at| at[2] == fields) {
            notes.push(format!("standard input: read as a file of {}", self.name));
            return self.read_from(input, path, false, bad);
        }
        let columns = table::Columns::named(vec![self.a.to_owned()]);
        let table = columns.open_texts_from(input, path)?;
        notes.extend(table.note());
        table.read(bad, |_, row| {
            Ok(Row {
                index: row.place.to_string(),
                line: row.line,
                a: row.fields[0].as_ref().map(table::Field::text).unwrap_or_default(),
                b: None,
                labelled: false,
                target: None,
            })
        })
    }

    fn read_from(
        &self,
        input: impl BufRead,
        path: &Path,
        labels: bool,
        bad: &mut BadRows,
    ) -> Result<Vec<Row>> {
        let mut lines = Lines::new(input, path).filled();
        let Some((number, first)) = lines.next() else {
            return Err(Error::file(path, "is empty; expected rows of GLUE"));
        };
        let first = first?;
        let (columns, row) = match (self.columns(&first), self.without_header) {
            (Some(columns), _) => (columns, None),
            (None, Some([text, label, columns])) => {
                let width = Width(columns, "the layout without a header", NO_TABS);
                let columns = Columns { index: None, a: text, b: None, label: Some(label), width };
                (columns, Some((number, Ok(first))))
            }
            (None, None) => return Err(Error::line(path, number, self.expected(&first))),
        };
        let mut rows = Vec::new();
        for (place, (number, line)) in row.into_iter().chain(lines).enumerate() {
            let row = line.and_then(|line| self.row(path, number, place, &line, &columns, labels));
            rows.extend(bad.keep(row)?);
        }
        bad.some(path, rows, "row")
    }

    /// Finds the columns in a header; returns `None` if it isn't this task's header.
    fn columns(&self, header: &str) -> Option<Columns> {
        let names: Vec<&str> = header.split('\t').collect();
        let find = |name: &str| names.iter().position(|&n| n == name);
        Some(Columns {
            index: find("index").or_else(|| find("id")),
            a: find(self.a)?,
            b: match self.b {
                Some(b) => Some(find(b)?),
                None => None,
            },
            label: find(self.label),
            width: Width(names.len(), "the header", NO_TABS),
        })
    }

    /// Describes the header that was expected instead of `header`.
    fn expected(&self, header: &str) -> String {
        let names = [Some(self.a), self.b, Some(self.label)];
        let names: Vec<&str> = names.into_iter().flatten().collect();
        format!(
            "this header has no columns {} (tab-separated), as {} has; it is {:?}",
            names.join(", "),
            self.name,
            shortened(header)
        )
    }

    fn row(
        &self,
        path: &Path,
        number: usize,
        place: usize,
        line: &str,
        columns: &Columns,
        labels: bool,
    ) -> Result<Row> {
        let fields: Vec<&str> = line.split('\t').collect();
        columns.width.check(path, number, fields.len())?;
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
        let target = |column| {
            let target = self.target(field(column)?);
            target.map_err(|message| Error::line(path, number, message))
        };
        let owned = |column| field(column).map(str::to_owned);
        let index = columns.index.map(owned).transpose()?;
        Ok(Row {
            target: columns.label.filter(|_| labels).map(target).transpose()?,
            index: index.unwrap_or_else(|| place.to_string()),
            line: number,
            a: owned(columns.a)?,
            b: columns.b.map(owned).transpose()?,
            labelled: columns.label.is_some(),
        })
    }

    /// Returns the names of the classes; none for a score.
    pub fn classes(&self) -> Option<&'static [&'static str]> {
        match self.labels {
            Labels::Classes(names) => Some(names),
            Labels::Score => None,
        }
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
                _ => {
                    let label = shortened(label);
                    Err(format!("the score is {label:?}; expected a number"))
                }
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::test_file;

    fn read(task: &str, text: &str) -> Result<Vec<Row>> {
        let (_folder, path) = test_file("rows.tsv", text);
        let task = Task::find(task).unwrap();
        task.read(&path, true, &mut BadRows::refused())
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
        assert_eq!((rows.len(), &rows[0].target), (1, &None));
        assert_eq!(rows[0].index, "0");
        let rows = read("qqp", "id\tquestion1\tquestion2\n7\tA?\tB?\n").unwrap();
        assert_eq!(rows[0].index, "7");
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
        assert!(message("rte", "index\tsentence1\tsentence2\tlabel\n").contains("holds no row"));
        let more = message("rte", &format!("{start}1\tA\ta\tB\tentailment\n"));
        let expected = ":3: the row has 5 columns, but the header has 4: a text must not hold tabs";
        assert!(more.contains(expected), "{more}");
        let more = message("cola", "gj04\t0\t*\tThe boat\tsank.\n");
        let expected = ":1: the row has 5 columns, but the layout without a header has 4";
        assert!(more.contains(expected), "{more}");
    }

    #[test]
    fn labels_that_are_not_requested_are_not_read() {
        let text = "sentence1\tsentence2\tlabel\nA\tB\t-1\nC\tD\n";
        let (_folder, path) = test_file("test.tsv", text);
        let task = Task::find("wnli").unwrap();
        let rows = task.read(&path, false, &mut BadRows::refused()).unwrap();
        assert_eq!(rows.len(), 2);
        assert!(rows.iter().all(|row| row.labelled && row.target.is_none()));
        let error = task.read(&path, true, &mut BadRows::refused()).unwrap_err();
        assert!(error.to_string().contains(":2: unknown label \"-1\""));
    }

    #[test]
    fn bad_rows_are_skipped_and_still_counted() {
        let (_folder, path) = test_file("test.tsv", b"sentence\nA\n\xff\n\nB\tb\nC\0\n");
        let task = Task::find("sst-2").unwrap();
        let mut bad = BadRows::skipped();
        let rows = task.read(&path, true, &mut bad).unwrap();
        let rows = rows.iter().map(|row| (row.index.as_str(), row.line));
        assert!(rows.eq([("0", 2), ("3", 6)]));
        assert!(bad.report().unwrap().starts_with("2 bad rows left out"));
    }

    #[test]
    fn a_submission_s_name_depends_on_the_file() {
        let name = |task: &str, path: &str| {
            let task = Task::find(task).unwrap();
            task.submission(Path::new(path))
        };
        assert_eq!(name("mnli", "mismatched/test_matched.tsv"), "MNLI-m.tsv");
        assert_eq!(name("mnli", "MNLI/test_mismatched.tsv.gz"), "MNLI-mm.tsv");
        assert_eq!(name("rte", "mismatched.tsv"), "RTE.tsv");
    }
}
