//! Notebooks (nbformat 4.5) of lessons. Those that a learner changed are never overwritten.
//!
//! Format: <https://nbformat.readthedocs.io/en/latest/format_description.html>.

use std::path::Path;

use serde_json::{Value, json};

use super::course;
use super::format::{CellKind, Lesson};
use super::review;
use crate::error::{Error, Result};
use crate::files::write_atomic;

/// What happened to a notebook.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Built {
    /// It was written.
    Written,
    /// It existed with these cells, with or without outputs.
    Unchanged,
    /// It existed with other changes, so it was left alone.
    Kept,
}

/// The texts above the questions with which a lesson opens and ends.
const OPENING: &str = "**Do you remember?** The next cell asks three to five questions from earlier lessons: those \
    that you missed, and those that are due. Type the number of your answer; Enter alone \
    goes on. A notebook that runs as a whole does not wait for answers.";
const CLOSING: &str = "## Five questions to close\n\n\
    Answer as in an interview, without looking back. What you miss comes again tomorrow, the rest after 1, 7 and \
    30 days; `:review` asks what is due.";

/// Returns the notebook of a lesson, with solutions or stubs. Questions come behind its first cell, which names
/// it, and at its end.
pub fn notebook(lesson: &Lesson, solutions: bool) -> Value {
    let cells = lesson.cells.iter().map(|cell| {
        let source = match (cell.command(), solutions) {
            (Some(command), _) => command,
            (None, true) => cell.given(),
            (None, false) => cell.stub(),
        };
        match cell.kind {
            CellKind::Markdown => {
                json!({ "cell_type": "markdown", "source": linked(&source) })
            }
            CellKind::Code | CellKind::Yours => json!({
                "cell_type": "code",
                "source": source,
                "metadata": folded(&source),
            }),
        }
    });
    let mut cells: Vec<Value> = cells.collect();
    if let Some(command) = review::opening(lesson) {
        cells.splice(1..1, questions(OPENING, &command));
    }
    cells.extend(questions(CLOSING, &review::closing(lesson)));
    of_cells(&lesson.name, cells)
}

/// Returns a text and the command below it as cells.
fn questions(text: &str, command: &str) -> [Value; 2] {
    [
        json!({ "cell_type": "markdown", "source": text }),
        json!({ "cell_type": "code", "source": command }),
    ]
}

/// Returns the notebook that opens the course.
pub fn index(lessons: &[Lesson]) -> Value {
    of_cells(course::INDEX, course::index_cells(lessons))
}

/// Returns the metadata of a code cell. A cell that is only a check is folded: it is long and reveals the
/// answer. Later cells may use what precedes a check in its cell, so such cells stay visible.
fn folded(source: &str) -> Value {
    match source.trim_start().starts_with("check!(") {
        true => json!({ "jupyter": { "source_hidden": true } }),
        false => json!({}),
    }
}

/// Replaces links to other lessons' sources by links to their notebooks.
fn linked(text: &str) -> String {
    let mut parts = text.split("](");
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (target, rest) = part.split_at(part.find(')').unwrap_or(part.len()));
        out += &match target.strip_suffix(".rs") {
            Some(name) if !name.contains(['/', ':']) => format!("]({name}.ipynb{rest}"),
            _ => format!("]({part}"),
        };
    }
    out
}

/// Returns a notebook of cells that have a type and a source, which is a text.
fn of_cells(name: &str, mut cells: Vec<Value>) -> Value {
    let slug = name.replace('_', "-");
    for (index, cell) in cells.iter_mut().enumerate() {
        let source = cell["source"].as_str().unwrap_or_default().to_owned();
        // As a list of lines, which keeps diffs small.
        cell["source"] = json!(source.split_inclusive('\n').collect::<Vec<_>>());
        // Ids are numbers, so that building again gives the same file.
        cell["id"] = json!(format!("{slug}-{index:03}"));
        if cell["metadata"].is_null() {
            cell["metadata"] = json!({});
        }
        if cell["cell_type"] == "code" {
            cell["execution_count"] = Value::Null;
            cell["outputs"] = json!([]);
        }
    }
    let checksum = checksum(&cells);
    json!({
        "cells": cells,
        "metadata": {
            "cloze": { "lesson": name, "checksum": checksum },
            "kernelspec": { "display_name": "Cloze (Rust)", "language": "rust", "name": "cloze" },
            "language_info": {
                "codemirror_mode": "rust",
                "file_extension": ".rs",
                "mimetype": "text/rust",
                "name": "rust",
                "pygments_lexer": "rust",
            },
        },
        "nbformat": 4,
        "nbformat_minor": 5,
    })
}

/// Returns a checksum of the cells' types and sources: of what a learner changes, not of outputs.
fn checksum(cells: &[Value]) -> String {
    let mut crc = flate2::Crc::new();
    for cell in cells {
        crc.update(cell["cell_type"].as_str().unwrap_or_default().as_bytes());
        match &cell["source"] {
            Value::String(text) => crc.update(text.as_bytes()),
            Value::Array(lines) => {
                for line in lines {
                    crc.update(line.as_str().unwrap_or_default().as_bytes());
                }
            }
            _ => {}
        }
        crc.update(&[0]);
    }
    format!("{:08x}", crc.sum())
}

/// Writes a notebook to `path`, unless there is one that was changed since it was built, or that Cloze did
/// not build.
pub fn write(notebook: &Value, path: &Path) -> Result<Built> {
    match std::fs::read(path) {
        Ok(bytes) => {
            // A file that Cloze did not build has no checksums.
            let unchanged = checksums(&bytes).filter(|(built, now)| built == now);
            let Some((built, _)) = unchanged else {
                return Ok(Built::Kept);
            };
            if notebook["metadata"]["cloze"]["checksum"] == built.as_str() {
                return Ok(Built::Unchanged);
            }
        }
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
        Err(e) => return Err(Error::io(path, e)),
    }
    let mut text = serde_json::to_string_pretty(notebook)
        .map_err(|e| Error::file(path, format!("the notebook can't be written: {e}")))?;
    text.push('\n');
    write_atomic(path, text.as_bytes())?;
    Ok(Built::Written)
}

/// Returns the checksum with which a notebook was built and that of its cells now; `None` if Cloze did not
/// build it.
fn checksums(bytes: &[u8]) -> Option<(String, String)> {
    let notebook: Value = serde_json::from_slice(bytes).ok()?;
    let built = notebook["metadata"]["cloze"]["checksum"].as_str()?;
    let cells = notebook["cells"].as_array()?;
    Some((built.to_owned(), checksum(cells)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lessons;

    fn edit(path: &Path, change: impl FnOnce(&mut Value)) {
        let mut notebook: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
        change(&mut notebook);
        std::fs::write(path, notebook.to_string()).unwrap();
    }

    #[test]
    fn checks_are_folded_and_exercises_are_not() {
        for lesson in lessons::all().unwrap() {
            let notebook = notebook(&lesson, false);
            let cells = notebook["cells"].as_array().unwrap();
            let folded = |cell: &Value| cell["metadata"]["jupyter"]["source_hidden"] == true;
            assert!(cells.iter().any(folded), "{}", lesson.name);
            let is_review =
                |cell: &&Value| cell["source"][0].as_str().unwrap().starts_with(":review");
            let reviews: Vec<usize> = (0..cells.len()).filter(|i| is_review(&&cells[*i])).collect();
            let opens = usize::from(!lesson.needs.is_empty());
            assert_eq!(reviews, [2, cells.len() - 1][1 - opens..], "{}", lesson.name);
            let mut own = cells[..cells.len() - 2].to_vec();
            own.drain(1..1 + 2 * opens);
            assert_eq!(own.len(), lesson.cells.len());
            for (cell, source) in own.iter().zip(&lesson.cells) {
                let first = cell["source"][0].as_str().unwrap_or_default();
                assert_eq!(folded(cell), first.starts_with("check!("), "{first}");
                assert!(!folded(cell) || source.exercise().is_none(), "{first}");
            }
        }
    }

    #[test]
    fn a_changed_notebook_is_never_overwritten() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lesson.ipynb");
        let lesson = &lessons::all().unwrap()[0];
        let build = |solutions| write(&notebook(lesson, solutions), &path).unwrap();
        assert_eq!(build(false), Built::Written);
        assert_eq!(build(false), Built::Unchanged);
        edit(&path, |n| {
            let code = n["cells"].as_array_mut().unwrap();
            let code = code.iter_mut().find(|c| c["cell_type"] == "code").unwrap();
            code["source"] = json!("let mine = 1;");
        });
        assert_eq!(build(true), Built::Kept);
        assert!(std::fs::read_to_string(&path).unwrap().contains("let mine"));
    }

    #[test]
    fn running_a_notebook_does_not_count_as_a_change() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lesson.ipynb");
        let lesson = &lessons::all().unwrap()[0];
        let build = |solutions| write(&notebook(lesson, solutions), &path).unwrap();
        build(false);
        edit(&path, |n| {
            for cell in n["cells"].as_array_mut().unwrap() {
                // Front ends may join the lines, and they add outputs.
                let lines = cell["source"].as_array().unwrap();
                let joined: String = lines.iter().map(|l| l.as_str().unwrap()).collect();
                cell["source"] = json!(joined);
                cell["outputs"] = json!([{ "output_type": "stream" }]);
            }
        });
        assert_eq!(build(false), Built::Unchanged);
        assert!(std::fs::read_to_string(&path).unwrap().contains("stream"));
        assert_eq!(build(true), Built::Written);
    }

    #[test]
    fn links_to_lessons_lead_to_their_notebooks() {
        let text = "[a](07_masked_lm.rs), [b](https://docs.rs/x.rs) and [c](05_x.rs";
        let linked = linked(text);
        assert!(linked.starts_with("[a](07_masked_lm.ipynb), [b](https://docs.rs/x.rs)"));
        assert_eq!(super::linked("no link (at all) ]"), "no link (at all) ]");
    }

    #[test]
    fn a_file_that_cloze_did_not_build_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let lesson = &lessons::all().unwrap()[0];
        for text in ["", "not json", "{\"cells\":[]}"] {
            let path = dir.path().join("other.ipynb");
            std::fs::write(&path, text).unwrap();
            assert_eq!(write(&notebook(lesson, false), &path).unwrap(), Built::Kept);
            assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
        }
    }
}
