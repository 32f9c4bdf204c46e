//! Errors of a cell in the cell's own lines, with ANSI colours.
//!
//! rustc's messages are rendered here and not by rustc, whose lines are those of the generated
//! crate; columns are counted in characters, so that non-ASCII cells are right.

use evcxr::CompilationError;

use super::CellError;
use super::channel::Panic;

const RED: &str = "\x1b[1;31m";
const BLUE: &str = "\x1b[1;34m";
const BOLD: &str = "\x1b[1m";
const OFF: &str = "\x1b[0m";

/// An error that is one sentence.
pub fn plain(name: &str, value: &str) -> CellError {
    CellError {
        name: name.to_owned(),
        value: value.to_owned(),
        traceback: vec![format!("{RED}{name}{OFF}{BOLD}: {value}{OFF}")],
    }
}

/// The cell stopped at a poll: nothing from before it is lost.
pub fn interrupted() -> CellError {
    plain(
        "interrupted",
        "the cell was stopped; variables of earlier cells are kept",
    )
}

/// `?` gave an error back; `printed` is what it wrote.
pub fn user_error(printed: String) -> CellError {
    let value = if printed.is_empty() {
        "the cell ended early: `?` met an error".to_owned()
    } else {
        printed
    };
    plain("error", &value)
}

/// A panic, with the cell's line where it happened in the cell; `source` is the generated crate.
pub fn panic(panic: Option<Panic>, cell: &str, source: &str) -> CellError {
    let Some(panic) = panic else {
        return plain("panic", "the cell panicked");
    };
    let mut error = plain("panic", &panic.message);
    let in_cell = panic
        .file
        .ends_with("src/lib.rs")
        .then(|| cell_line(panic.line as usize, cell, source))
        .flatten();
    if let Some(line) = in_cell {
        error.traceback.push(place(line));
        // `cell_line` only gives lines that the cell has.
        let text = cell.lines().nth(line - 1).unwrap_or_default();
        error.traceback.push(numbered(line, text));
    } else if !panic.file.ends_with("src/lib.rs") && !panic.file.is_empty() {
        error
            .traceback
            .push(format!("{BLUE}  -->{OFF} {}:{}", panic.file, panic.line));
    }
    error
}

/// The line of `cell` that stands in line `line` of the generated `source`, both from 1.
///
/// Cells are copied into the crate line by line, the first possibly with something before it; a
/// text that the cell has twice is told apart by counting, from the last line on, because the code
/// of earlier cells stands first.
fn cell_line(line: usize, cell: &str, source: &str) -> Option<usize> {
    let wanted = source.lines().nth(line.checked_sub(1)?)?.trim();
    let same = |text: &&str| !text.trim().is_empty() && wanted.ends_with(text.trim());
    let later = source
        .lines()
        .skip(line)
        .filter(|text| text.trim() == wanted)
        .count();
    let candidates: Vec<usize> = cell
        .lines()
        .enumerate()
        .filter(|(_, text)| same(text))
        .map(|(index, _)| index + 1)
        .collect();
    candidates.iter().rev().nth(later).copied()
}

/// Whatever evcxr itself reports.
pub fn from_evcxr(error: evcxr::Error, cell: &str, interrupted: bool) -> CellError {
    match error {
        evcxr::Error::CompilationErrors(errors) => compilation(&errors, cell),
        evcxr::Error::SubprocessTerminated(_) if interrupted => plain(
            "interrupted",
            "the cell did not stop by itself, so its process was ended: all variables are lost, \
             a fresh process is ready",
        ),
        evcxr::Error::SubprocessTerminated(message) => plain("crash", &crash(&message)),
        evcxr::Error::TypeRedefinedVariablesLost(names) => plain(
            "redefined",
            &format!(
                "a type was defined anew, which loses the variables that had the old one: {}",
                names.join(", ")
            ),
        ),
        evcxr::Error::Message(message) => plain("error", &message),
    }
}

fn crash(message: &str) -> String {
    let status = message
        .rsplit_once("status: ")
        .map_or(message, |(_, status)| status)
        .trim();
    format!(
        "the cell ended its process ({status}): all variables are lost, a fresh process is ready"
    )
}

fn compilation(errors: &[CompilationError], cell: &str) -> CellError {
    let (mut name, mut value) = ("error".to_owned(), String::new());
    let mut traceback = Vec::new();
    // rustc warns of what follows from the error, unreachable code for one.
    let worst = errors.iter().any(|error| error.level() == "error");
    let told = errors
        .iter()
        .filter(|error| !worst || error.level() == "error");
    for (index, error) in told.enumerate() {
        let title = match error.code() {
            Some(code) => format!("{}[{code}]", error.level()),
            None => error.level().to_owned(),
        };
        if index == 0 {
            name.clone_from(&title);
            value = error.message();
        } else {
            traceback.push(String::new());
        }
        traceback.push(format!("{RED}{title}{OFF}{BOLD}: {}{OFF}", error.message()));
        render_spans(error, cell, &mut traceback);
    }
    if traceback.is_empty() {
        return plain("error", "the cell does not compile");
    }
    CellError {
        name,
        value,
        traceback,
    }
}

fn render_spans(error: &CompilationError, cell: &str, out: &mut Vec<String>) {
    let mut spans: Vec<_> = error
        .spanned_messages()
        .iter()
        .filter_map(|message| Some((message.span?, label(&message.label), message.is_primary)))
        .collect();
    spans.sort_by_key(|(span, ..)| (span.start_line, span.start_column));
    let first = spans
        .iter()
        .find(|(.., primary)| *primary)
        .or(spans.first());
    if let Some((span, ..)) = first {
        out.push(place(span.start_line));
    }
    let mut shown = 0;
    for (span, label, primary) in &spans {
        let Some(text) = cell.lines().nth(span.start_line.saturating_sub(1)) else {
            continue;
        };
        if shown != span.start_line {
            out.push(numbered(span.start_line, text));
            shown = span.start_line;
        }
        let length = if span.end_line == span.start_line {
            span.end_column.saturating_sub(span.start_column)
        } else {
            text.chars().count().saturating_sub(span.start_column - 1)
        };
        let (mark, colour) = if *primary { ("^", RED) } else { ("-", BLUE) };
        out.push(format!(
            "     {BLUE}|{OFF} {}{colour}{} {label}{OFF}",
            " ".repeat(span.start_column.saturating_sub(1)),
            mark.repeat(length.max(1)),
        ));
    }
    for help in error.help() {
        for (index, line) in help.trim_end().lines().enumerate() {
            let lead = if index == 0 { "help:" } else { "     " };
            out.push(format!("{BLUE}{lead}{OFF} {line}"));
        }
    }
    if let Some(hint) = error.evcxr_extra_hint() {
        out.push(format!("{BLUE}note:{OFF} {hint}"));
    }
}

/// A span's label; where rustc gives none evcxr repeats the title, which stands above already.
fn label(label: &str) -> &str {
    if label.starts_with("error: ") {
        ""
    } else {
        label
    }
}

fn place(line: usize) -> String {
    format!("{BLUE}  -->{OFF} this cell, line {line}")
}

fn numbered(line: usize, text: &str) -> String {
    format!("{BLUE}{line:>4} |{OFF} {text}")
}

/// A text without ANSI colours, for places that show none.
pub fn without_colours(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("\x1b[") {
        out.push_str(before);
        rest = after.split_once('m').map_or("", |(_, rest)| rest);
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    const CELL: &str = "let a = 1;\nassert!(a == 2);\nlet b = 3;\nassert!(a == 2);";

    #[test]
    fn a_panic_names_the_cell_s_line() {
        let source = format!("fn earlier() {{}}\nprefix {CELL}\nsuffix\n");
        for (line, expected) in [(3, 2), (5, 4)] {
            let error = panic(
                Some(Panic {
                    message: "no".into(),
                    file: "src/lib.rs".into(),
                    line,
                }),
                CELL,
                &source,
            );
            assert_eq!((error.name.as_str(), error.value.as_str()), ("panic", "no"));
            let text = without_colours(&error.traceback.join("\n"));
            assert!(
                text.contains(&format!("this cell, line {expected}")),
                "{text}"
            );
        }
    }

    #[test]
    fn a_panic_elsewhere_names_its_file() {
        let error = panic(
            Some(Panic {
                message: "no".into(),
                file: "/x/dfdx/src/shapes.rs".into(),
                line: 7,
            }),
            CELL,
            "",
        );
        assert!(
            error
                .traceback
                .join("\n")
                .contains("/x/dfdx/src/shapes.rs:7")
        );
    }

    #[test]
    fn a_crash_says_what_is_lost_and_why() {
        let error = from_evcxr(
            evcxr::Error::SubprocessTerminated(
                "Subprocess terminated with status: signal: 11 (SIGSEGV)".into(),
            ),
            "",
            false,
        );
        assert_eq!(error.name, "crash");
        assert!(error.value.contains("SIGSEGV") && error.value.contains("lost"));
    }

    #[test]
    fn colours_can_be_taken_off() {
        assert_eq!(without_colours(&format!("{RED}a{OFF}b")), "ab");
    }
}
