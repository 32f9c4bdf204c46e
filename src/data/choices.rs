//! Questions with four answers to choose from: SWAG (Zellers et al., arXiv 1808.05326) as its CSV
//! files have them, and CODAH (Chen et al., arXiv 1904.04365) as its TSV file has them.

use std::path::Path;

use crate::error::{Error, Result};
use crate::text::files::{Lines, open_or_stdin};

use super::bad::BadRows;

/// Endings of a question.
pub const CHOICES: usize = 4;

/// A beginning and what may follow it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question {
    pub context: String,
    /// What each ending begins with in segment B: SWAG's second sentence up to its verb; empty in
    /// CODAH.
    pub start: String,
    pub endings: [String; CHOICES],
    /// The right one, counted from 0, where it is known.
    pub right: Option<u32>,
}

impl Question {
    /// Segments A and B of every choice.
    pub fn pairs(&self) -> [(String, String); CHOICES] {
        let second = |ending: &String| match self.start.as_str() {
            "" => ending.clone(),
            start => format!("{start} {ending}"),
        };
        self.endings
            .each_ref()
            .map(|ending| (self.context.clone(), second(ending)))
    }
}

/// SWAG's `train.csv`, `val.csv` or, without labels, `test.csv`.
pub fn read_swag(path: &Path, bad: &mut BadRows) -> Result<Vec<Question>> {
    let mut reader = csv::Reader::from_reader(open_or_stdin(path)?);
    let header = reader.headers().map_err(|e| malformed(path, &e))?.clone();
    let find = |name: &str| header.iter().position(|column| column == name);
    let need = |name: &str| {
        find(name).ok_or_else(|| {
            let message = format!(
                "the header has no column {name}; expected SWAG's: sent1, sent2, ending0 to ending3, label"
            );
            Error::line(path, 1, message)
        })
    };
    let (context, start) = (need("sent1")?, need("sent2")?);
    let endings = [
        need("ending0")?,
        need("ending1")?,
        need("ending2")?,
        need("ending3")?,
    ];
    let label = find("label");
    let mut questions = Vec::new();
    for record in reader.records() {
        let row = record.map_err(|e| malformed(path, &e)).and_then(|record| {
            let line = record.position().map_or(0, |p| p.line() as usize);
            let field = |column: usize| record.get(column).unwrap_or_default().to_owned();
            Ok(Question {
                context: field(context),
                start: field(start),
                endings: endings.map(field),
                right: match label {
                    None => None,
                    Some(column) => Some(number(path, line, &field(column))?),
                },
            })
        });
        questions.extend(bad.keep(row)?);
    }
    some(path, questions)
}

/// CODAH's `full_data.tsv`: category, beginning, four endings, the right one; no header.
pub fn read_codah(path: &Path, bad: &mut BadRows) -> Result<Vec<Question>> {
    let mut questions = Vec::new();
    for (index, line) in Lines::new(open_or_stdin(path)?, path).enumerate() {
        let line = line?;
        if !line.is_empty() {
            questions.extend(bad.keep(codah_row(path, index + 1, &line))?);
        }
    }
    some(path, questions)
}

fn codah_row(path: &Path, number_of_line: usize, line: &str) -> Result<Question> {
    let fields: Vec<&str> = line.split('\t').collect();
    let [_category, context, a, b, c, d, rest @ ..] = fields.as_slice() else {
        let message = format!(
            "the row has {} columns (tab-separated); expected CODAH's 7: category, beginning, four endings, label",
            fields.len()
        );
        return Err(Error::line(path, number_of_line, message));
    };
    Ok(Question {
        context: (*context).to_owned(),
        start: String::new(),
        endings: [a, b, c, d].map(|ending| (*ending).to_owned()),
        right: match rest {
            [] => None,
            [label, ..] => Some(number(path, number_of_line, label)?),
        },
    })
}

fn number(path: &Path, line: usize, label: &str) -> Result<u32> {
    match label.trim().parse::<u32>() {
        Ok(right) if (right as usize) < CHOICES => Ok(right),
        _ => {
            let message = format!("the label is {label:?}; expected 0, 1, 2 or 3");
            Err(Error::line(path, line, message))
        }
    }
}

fn malformed(path: &Path, error: &csv::Error) -> Error {
    super::table::malformed(path, error)
}

fn some(path: &Path, questions: Vec<Question>) -> Result<Vec<Question>> {
    if questions.is_empty() {
        return Err(Error::file(path, "holds no question that could be used"));
    }
    Ok(questions)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(text: &str) -> (tempfile::TempDir, std::path::PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rows");
        std::fs::write(&path, text).unwrap();
        (folder, path)
    }

    const HEADER: &str =
        "video-id,startphrase,sent1,sent2,gold-source,ending0,ending1,ending2,ending3";

    #[test]
    fn swag_is_read_by_its_header_with_quotes() {
        let text = format!(
            "{HEADER},label\nv,x,\"He sat, then stood.\",He,gold,ran.,sat.,\"said \"\"no\"\".\",ate.,2\n"
        );
        let (_folder, path) = file(&text);
        let questions = read_swag(&path, &mut BadRows::refused()).unwrap();
        assert_eq!(questions[0].right, Some(2));
        let pairs = questions[0].pairs();
        assert_eq!(
            pairs[2],
            ("He sat, then stood.".into(), "He said \"no\".".into())
        );
        let (_folder, path) = file(&format!("{HEADER}\nv,x,A.,B,gold,c,d,e,f\n"));
        assert_eq!(
            read_swag(&path, &mut BadRows::refused()).unwrap()[0].right,
            None
        );
    }

    #[test]
    fn codah_is_read_without_header() {
        let (_folder, path) = file("o\tI am hungry. I\teat.\tfly.\tsing.\t\"sleep\".\t0\n");
        let questions = read_codah(&path, &mut BadRows::refused()).unwrap();
        assert_eq!(questions[0].pairs()[3].1, "\"sleep\".");
        assert_eq!(questions[0].right, Some(0));
    }

    #[test]
    fn bad_rows_are_named() {
        let message = |text: &str, swag: bool| {
            let (_folder, path) = file(text);
            let read = if swag { read_swag } else { read_codah };
            read(&path, &mut BadRows::refused())
                .unwrap_err()
                .to_string()
        };
        assert!(message("a,b\n1,2\n", true).contains(":1: the header has no column sent1"));
        let text = format!("{HEADER},label\nv,x,A.,B,gold,c,d,e,f,4\n");
        assert!(message(&text, true).contains(":2: the label is \"4\"; expected 0, 1, 2 or 3"));
        let text = format!("{HEADER},label\nv,x,A.,B\n");
        assert!(message(&text, true).contains(":2: the row has 4 columns"));
        assert!(message("o\tA\tb\tc\n", false).contains(":1: the row has 4 columns"));
        assert!(message("\n", false).contains("holds no question"));
    }
}
