//! The classes of texts: the labels in your own training file, and which of a model's outputs stands for
//! which class.

use std::path::Path;

use crate::data::bad::BadRows;
use crate::data::glue;
use crate::data::labels::{complaint, listed};
use crate::data::table::{Columns, Field, Row};
use crate::error::{Error, Result};
use crate::model::Config;
use crate::text::reader::check_readable_twice;

/// More different labels than this, if all are numbers, are not classes.
const MAX_NUMERIC_CLASSES: usize = 20;

/// In a training file with at most so many rows, a label that occurs only once means nothing.
const FEW_ROWS: usize = 10;

/// Returns the label of a row of your own data without white space around it, or None if it has none.
///
/// # Errors
/// If the label is a list.
pub fn label<'r>(path: &Path, row: &'r Row) -> Result<Option<&'r str>> {
    match row.fields.last().and_then(Option::as_ref) {
        None => Ok(None),
        Some(Field::Text(text)) => Ok(Some(text.trim())),
        Some(Field::List(_)) => {
            let message = "the label is a list; expected one label";
            Err(Error::line(path, row.line, message))
        }
    }
}

/// Returns the labels of a row of your own data that can have several: those of a list, or of a text with `|`
/// between them. None if the file has no labels.
pub fn labels(row: &Row) -> Option<Vec<&str>> {
    let labels: Vec<&str> = match row.fields.last()?.as_ref()? {
        Field::Text(text) => text.split('|').collect(),
        Field::List(all) => all.iter().map(String::as_str).collect(),
    };
    Some(labels.into_iter().map(str::trim).filter(|label| !label.is_empty()).collect())
}

/// Returns the classes in a training file, sorted by name. With `several`, a row can have any number of them.
pub fn discovered(
    columns: &Columns,
    path: &Path,
    several: bool,
    bad: &mut BadRows,
) -> Result<Vec<String>> {
    check_readable_twice(path)?;
    let rows = columns.read_as(path, columns.len(), bad, |file, row| {
        let found = match several {
            true => labels(&row).unwrap_or_default(),
            false => vec![label(file, &row)?.unwrap_or_default()],
        };
        match found.iter().find_map(|label| complaint(label)) {
            Some(complaint) => Err(Error::line(file, row.line, complaint)),
            None => Ok(found.into_iter().map(str::to_owned).collect::<Vec<String>>()),
        }
    })?;
    let mut names = rows.concat();
    names.sort();
    names.dedup();
    if names.len() > MAX_NUMERIC_CLASSES
        && names.iter().all(|name| name.trim().parse::<f64>().is_ok())
    {
        return Err(Error::Usage(format!(
            "the column {} of {} has {} different numbers: to predict a number, set the kind to number",
            columns.names().last().map_or("", String::as_str),
            path.display(),
            names.len()
        )));
    }
    if let ([name], false) = (names.as_slice(), several) {
        let skipped = bad.report().map(|report| format!(" ({report})"));
        let message = format!(
            "has only the label {name}: there is nothing to learn{}",
            skipped.unwrap_or_default()
        );
        return Err(Error::file(path, message));
    }
    if names.is_empty() {
        return Err(Error::file(path, "has no label in any row: there is nothing to learn"));
    }
    Ok(names)
}

/// Returns a remark on a training file without a header if its first row looks like one, because no other row
/// has its class.
pub fn header_note(path: &Path, rows: &[glue::Row], names: &[String]) -> Option<String> {
    let (first, rest) = rows.split_first()?;
    let Some(glue::Target::Class(class)) = first.target else {
        return None;
    };
    let alone = rest.iter().all(|row| row.target != first.target);
    (alone && rows.len() > FEW_ROWS).then(|| {
        format!(
            "{}:{}: the label {} occurs nowhere else: is this a header? Then give the columns by name",
            path.display(),
            first.line,
            names[class as usize]
        )
    })
}

/// Returns which of a model's outputs stands for each class of a task. They are matched by name if the model
/// names its classes as the task or the Hub does, and by position if it has no names of its own.
pub fn outputs_of(task: &glue::Task, names: &[&str], config: &Config) -> Result<Vec<u32>> {
    let in_order = || (0..names.len() as u32).collect();
    let Some(stored) = config.labels() else {
        return Ok(in_order());
    };
    let unnamed = stored.iter().all(|name| name.starts_with("LABEL_"));
    if unnamed && stored.len() == names.len() {
        return Ok(in_order());
    }
    let output = |name: &&str| {
        let same = |stored: &&str| stored.eq_ignore_ascii_case(name);
        stored.iter().position(same).map(|output| output as u32)
    };
    let mut namings = [Some(names), task.hub_classes].into_iter().flatten();
    let found = namings.find_map(|names| names.iter().map(output).collect::<Option<Vec<u32>>>());
    found.filter(|_| stored.len() == names.len()).ok_or_else(|| {
        Error::Failed(format!(
            "the model's classes are {}, but those of {} are {}",
            listed(&stored),
            task.name,
            names.join(", ")
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outputs(task: &str, stored: &[&str]) -> Result<Vec<u32>> {
        let mut config = Config::new(2, 128, 2, 512, 1000);
        config.set_labels(stored);
        let task = glue::Task::find(task).unwrap();
        outputs_of(task, task.classes().unwrap(), &config)
    }

    #[test]
    fn outputs_are_matched_by_the_task_s_names_or_the_hub_s() {
        assert_eq!(outputs("mrpc", &["0", "1"]).unwrap(), [0, 1]);
        assert_eq!(outputs("mrpc", &["1", "0"]).unwrap(), [1, 0]);
        for (task, stored) in [
            ("cola", ["unacceptable", "acceptable"]),
            ("sst-2", ["NEGATIVE", "POSITIVE"]),
            ("mrpc", ["not_equivalent", "equivalent"]),
            ("qqp", ["not_duplicate", "duplicate"]),
            ("wnli", ["not_entailment", "entailment"]),
        ] {
            assert_eq!(outputs(task, &stored).unwrap(), [0, 1], "{task}");
            let reversed = [stored[1], stored[0]];
            assert_eq!(outputs(task, &reversed).unwrap(), [1, 0], "{task}");
            let message = outputs("qnli", &["0", stored[1]]).unwrap_err().to_string();
            assert!(message.contains("but those of qnli are entailment, not_entailment"));
        }
        assert_eq!(outputs("qnli", &["not_entailment", "entailment"]).unwrap(), [1, 0]);
        assert_eq!(outputs("rte", &["LABEL_0", "LABEL_1"]).unwrap(), [0, 1]);
        for stored in [&["equivalent"][..], &["not_equivalent", "equivalent", "neither"]] {
            assert!(outputs("mrpc", stored).is_err());
        }
        for task in &glue::TASKS {
            let lengths = task.hub_classes.map(<[_]>::len);
            assert!(lengths.is_none_or(|length| Some(length) == task.classes().map(<[_]>::len)));
        }
    }

    fn discovered_in(name: &str, text: &str, bad: &mut BadRows) -> Result<Vec<String>> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        discovered(&Columns::parse("text,label")?, &path, false, bad)
    }

    #[test]
    fn several_labels_stand_in_a_list_or_between_bars() {
        let row = |field| Row { line: 1, place: 0, fields: vec![None, Some(field)] };
        let (text, none) = (Field::Text("b | a".into()), Field::Text(" ".into()));
        assert_eq!(labels(&row(text)).unwrap(), ["b", "a"]);
        assert_eq!(labels(&row(Field::List(vec!["x|y".into()]))).unwrap(), ["x|y"]);
        assert_eq!(labels(&row(none)).unwrap(), [] as [&str; 0]);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.csv");
        std::fs::write(&path, "text,label\nx,b|a\ny,\nz,c|a\n").unwrap();
        let columns = Columns::parse("text,label").unwrap();
        let found = discovered(&columns, &path, true, &mut BadRows::refused()).unwrap();
        assert_eq!(found, ["a", "b", "c"]);
        std::fs::write(&path, "text,label\nx,\n").unwrap();
        let error = discovered(&columns, &path, true, &mut BadRows::refused()).unwrap_err();
        assert!(error.to_string().contains("no label in any row"), "{error}");
    }

    #[test]
    fn a_row_whose_label_cannot_be_a_class_is_bad() {
        for (name, text, expected) in [
            ("a.tsv", "text\tlabel\na\tx\nb\t\nc\ty\n", "a.tsv:3: the label is empty"),
            ("a.tsv", "text\tlabel\na\tx\nb\nc\ty\n", "a.tsv:3: the row has 1 columns"),
            (
                "a.csv",
                "text,label\na,x\nb,\"t\tz\"\nc,y\n",
                "a.csv:3: the label \"t\\tz\" holds a tab",
            ),
            (
                "a.jsonl",
                "{\"text\":\"a\",\"label\":\"x\"}\n{\"text\":\"b\",\"label\":[\"x\",\"y\"]}\n{\"text\":\"c\",\"label\":\"y\"}\n",
                "a.jsonl:2: the label is a list",
            ),
        ] {
            let error = discovered_in(name, text, &mut BadRows::refused()).unwrap_err();
            assert!(error.to_string().contains(expected), "{error}");
            let mut bad = BadRows::skipped();
            assert_eq!(discovered_in(name, text, &mut bad).unwrap(), ["x", "y"]);
            assert!(bad.report().unwrap().contains(expected));
        }
        let one = "text\tlabel\na\tx\nb\n";
        let error = discovered_in("a.tsv", one, &mut BadRows::skipped()).unwrap_err();
        let message = error.to_string();
        assert!(
            message.contains("has only the label x") && message.contains("a.tsv:3: "),
            "{message}"
        );
    }
}
