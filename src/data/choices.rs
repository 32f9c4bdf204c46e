//! Questions with four answers to choose from: SWAG (Zellers et al., arXiv 1808.05326) from its CSV files,
//! and CODAH (Chen et al., arXiv 1904.04365) from its TSV file.

use std::path::Path;

use crate::error::{Error, Result};
use crate::text::reader::{Lines, open_or_stdin};

use super::bad::{BadRows, NO_TABS, QUOTES, Width};
use super::csv::{self, Record};

/// Number of endings of a question.
pub const CHOICES: usize = 4;

/// A beginning and its possible endings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question {
    /// Index of its row in the file, counted from 0, including bad rows.
    pub place: usize,
    /// The beginning: segment A.
    pub context: String,
    /// The start of segment B, before each ending: SWAG's second sentence up to its verb; empty in CODAH.
    pub start: String,
    /// The endings.
    pub endings: [String; CHOICES],
    /// Whether the file has a label for it, read or not.
    pub labelled: bool,
    /// The index of the correct ending, if the label was read.
    pub right: Option<u32>,
}

impl Question {
    /// Returns segments A and B of every choice.
    pub fn pairs(&self) -> [(String, String); CHOICES] {
        let second = |ending: &String| match self.start.as_str() {
            "" => ending.clone(),
            start => format!("{start} {ending}"),
        };
        self.endings.each_ref().map(|ending| (self.context.clone(), second(ending)))
    }
}

/// Reads SWAG's `train.csv`, `val.csv` or, without labels, `test.csv`.
pub fn read_swag(path: &Path, bad: &mut BadRows) -> Result<Vec<Question>> {
    read_swag_rows(path, true, bad)
}

/// Reads a file of SWAG; `labels` says whether to read labels.
pub fn read_swag_rows(path: &Path, labels: bool, bad: &mut BadRows) -> Result<Vec<Question>> {
    let mut records = csv::read(open_or_stdin(path)?, path, b',')?.into_iter();
    let Some(header) = records.next().transpose()? else {
        return bad.some(path, Vec::new(), "question");
    };
    let columns = SwagColumns::find(path, &header)?;
    let mut questions = Vec::new();
    for (place, record) in records.enumerate() {
        let row = record.and_then(|record| columns.question(path, place, record, labels));
        questions.extend(bad.keep(row)?);
    }
    bad.some(path, questions, "question")
}

/// Indices of the columns in a file of SWAG.
struct SwagColumns {
    context: usize,
    start: usize,
    endings: [usize; CHOICES],
    label: Option<usize>,
    width: Width,
}

impl SwagColumns {
    fn find(path: &Path, header: &Record) -> Result<Self> {
        let find = |name: &str| header.fields.iter().position(|column| column == name);
        let need = |name: &str| {
            find(name).ok_or_else(|| {
                let message = format!(
                    "the header has no column {name}; expected SWAG's: sent1, sent2, ending0 to ending3, label"
                );
                Error::line(path, header.line, message)
            })
        };
        Ok(Self {
            context: need("sent1")?,
            start: need("sent2")?,
            endings: [need("ending0")?, need("ending1")?, need("ending2")?, need("ending3")?],
            label: find("label"),
            width: Width(header.fields.len(), "the header", QUOTES),
        })
    }

    fn question(&self, path: &Path, place: usize, row: Record, labels: bool) -> Result<Question> {
        let Record { line, fields } = row;
        self.width.check(path, line, fields.len())?;
        if fields.len() < self.width.0 {
            let message = format!(
                "the row has {} columns (comma-separated), but the header has {}",
                fields.len(),
                self.width.0
            );
            return Err(Error::line(path, line, message));
        }
        let field = |column: usize| fields[column].clone();
        let label = self.label.filter(|_| labels);
        Ok(Question {
            place,
            context: field(self.context),
            start: field(self.start),
            endings: self.endings.map(field),
            labelled: self.label.is_some(),
            right: label.map(|column| number(path, line, &fields[column])).transpose()?,
        })
    }
}

/// The columns of CODAH.
const CODAH: Width = Width(7, "CODAH's layout", NO_TABS);

/// Reads CODAH's `full_data.tsv`, which has no header: category, beginning, four endings, label. `labels`
/// says whether to read labels.
pub fn read_codah(path: &Path, labels: bool, bad: &mut BadRows) -> Result<Vec<Question>> {
    let rows = Lines::new(open_or_stdin(path)?, path).filled();
    let mut questions = Vec::new();
    for (place, (number, line)) in rows.enumerate() {
        let row = line.and_then(|line| codah_row(path, number, place, &line, labels));
        questions.extend(bad.keep(row)?);
    }
    bad.some(path, questions, "question")
}

fn codah_row(path: &Path, line: usize, place: usize, row: &str, labels: bool) -> Result<Question> {
    let fields: Vec<&str> = row.split('\t').collect();
    CODAH.check(path, line, fields.len())?;
    let [_category, context, a, b, c, d, rest @ ..] = fields.as_slice() else {
        let message = format!(
            "the row has {} columns (tab-separated); expected CODAH's 7: category, beginning, four endings, label",
            fields.len()
        );
        return Err(Error::line(path, line, message));
    };
    let label = rest.first().filter(|_| labels);
    Ok(Question {
        place,
        context: (*context).to_owned(),
        start: String::new(),
        endings: [a, b, c, d].map(|ending| (*ending).to_owned()),
        labelled: !rest.is_empty(),
        right: label.map(|label| number(path, line, label)).transpose()?,
    })
}

/// Parses a label.
fn number(path: &Path, line: usize, label: &str) -> Result<u32> {
    match label.trim().parse::<u32>() {
        Ok(right) if (right as usize) < CHOICES => Ok(right),
        _ => {
            let message = format!("the label is {label:?}; expected 0, 1, 2 or 3");
            Err(Error::line(path, line, message))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::test_file;

    /// Reads a file of SWAG, or else of CODAH.
    fn read(text: &str, swag: bool, labels: bool, bad: &mut BadRows) -> Result<Vec<Question>> {
        let (_folder, path) = test_file("rows", text);
        let read = if swag { read_swag_rows } else { read_codah };
        read(&path, labels, bad)
    }

    fn good(text: &str, swag: bool, labels: bool) -> Vec<Question> {
        read(text, swag, labels, &mut BadRows::refused()).unwrap()
    }

    const HEADER: &str =
        "video-id,startphrase,sent1,sent2,gold-source,ending0,ending1,ending2,ending3";

    #[test]
    fn swag_is_read_by_its_header_with_quotes() {
        let text = format!(
            "{HEADER},label\nv,x,\"He sat, then stood.\",He,gold,ran.,sat.,\"said \"\"no\"\".\",ate.,2\n"
        );
        let questions = good(&text, true, true);
        assert_eq!(questions[0].right, Some(2));
        let expected = ("He sat, then stood.".into(), "He said \"no\".".into());
        assert_eq!(questions[0].pairs()[2], expected);
        let unlabelled = good(&format!("{HEADER}\nv,x,A.,B,gold,c,d,e,f\n"), true, true);
        assert_eq!(unlabelled[0].right, None);
    }

    #[test]
    fn codah_is_read_without_header() {
        let questions = good("o\tI am hungry. I\teat.\tfly.\tsing.\t\"sleep\".\t0\n", false, true);
        assert_eq!(questions[0].pairs()[3].1, "\"sleep\".");
        assert_eq!(questions[0].right, Some(0));
    }

    #[test]
    fn bad_rows_are_named() {
        let message = |text: &str, swag: bool| {
            let error = read(text, swag, true, &mut BadRows::refused());
            error.unwrap_err().to_string()
        };
        assert!(message("a,b\n1,2\n", true).contains(":1: the header has no column sent1"));
        let text = format!("{HEADER},label\nv,x,A.,B,gold,c,d,e,f,4\n");
        assert!(message(&text, true).contains(":2: the label is \"4\"; expected 0, 1, 2 or 3"));
        let text = format!("{HEADER},label\nv,x,A.,B\n");
        assert!(message(&text, true).contains(":2: the row has 4 columns"));
        assert!(message("o\tA\tb\tc\n", false).contains(":1: the row has 4 columns"));
        let text = format!("{HEADER}\nv,x,A, then,B,gold,c,d,e,f\n");
        let expected = ":2: the row has 10 columns, but the header has 9: a text with commas";
        assert!(message(&text, true).contains(expected));
        let expected = ":1: the row has 8 columns, but CODAH's layout has 7: a text must not";
        assert!(message("o\tA\tb\tc\td\te\tf\t0\n", false).contains(expected));
        assert!(message("\n", false).contains("holds no question"));
    }

    #[test]
    fn labels_that_are_not_requested_are_not_read() {
        let text = format!("{HEADER},label\nv,x,A.,B,gold,c,d,e,f,-1\n");
        let questions = good(&text, true, false);
        assert_eq!((questions[0].labelled, questions[0].right), (true, None));
        let questions = good("o\tA\tb\tc\td\te\t?\no\tA\tb\tc\td\te\n", false, false);
        let labelled = questions.iter().map(|q| (q.labelled, q.right));
        assert!(labelled.eq([(true, None), (false, None)]));
    }

    #[test]
    fn bad_rows_are_skipped_and_still_counted() {
        let start = format!("{HEADER}\nv,x,A.,B,gold,c,d,e,f\n").into_bytes();
        let end = b"v\n\xff,x,A.,B,gold,c,d,e,f\nv,x,A.,B,gold,c,d,e,f\n";
        let codah = b"o\tA\tb\tc\td\te\no\n\xff\tA\tb\tc\td\te\no\tA\tb\tc\td\te\n";
        for (text, swag) in [([&start[..], end].concat(), true), (codah.to_vec(), false)] {
            let (_folder, path) = test_file("rows", text);
            let read = if swag { read_swag_rows } else { read_codah };
            let mut bad = BadRows::skipped();
            let questions = read(&path, true, &mut bad).unwrap();
            assert!(questions.iter().map(|q| q.place).eq([0, 3]));
            assert!(bad.report().unwrap().starts_with("2 bad rows left out"));
        }
    }
}
