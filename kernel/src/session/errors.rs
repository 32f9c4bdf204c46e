//! Errors of a cell in the cell's own lines, with ANSI colours.
//!
//! rustc's messages are rendered here and not by rustc, whose lines are those of the generated
//! crate; columns are counted in characters, so that non-ASCII cells are right. `explain` says in
//! a plain sentence what they mean; that sentence stands first.

use evcxr::CompilationError;
use serde_json::Value;

use super::CellError;
use super::channel::Panic;
use super::crash;
use super::excerpt::{BLUE, BOLD, OFF, RED, changed, marks, numbered, place};
use super::explain::{self, Diagnostic, Explanation};

/// More errors than this mostly follow from the first ones.
const SHOWN: usize = 5;

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

/// A `return` in line `line` of the cell that leaves nothing.
pub fn stray_return(cell: &str, line: usize) -> CellError {
    let mut error = plain(
        "error[E0572]",
        "`return` leaves a function, and a cell is none",
    );
    error.traceback.push(place(line));
    let text = cell.lines().nth(line - 1).unwrap_or_default();
    error.traceback.push(numbered(line, text));
    error.traceback.push(words(
        "hint",
        "the last expression of a cell, without `;`, is its value; a part that may end early can be \
         a function of its own",
    ));
    error
}

/// A panic, with the cell's line where it happened in the cell; `compiled` is the cell with what
/// the session put into its lines, `source` the generated crate.
pub fn panic(panic: Option<Panic>, cell: &str, compiled: &str, source: &str) -> CellError {
    let Some(panic) = panic else {
        return plain("panic", "the cell panicked");
    };
    let said = explain::panic(&panic);
    let mut error = explained("panic", &panic.message, &said);
    let in_cell = panic
        .file
        .ends_with("src/lib.rs")
        .then(|| cell_line(panic.line as usize, compiled, source))
        .flatten();
    if let Some(line) = in_cell {
        error.traceback.push(place(line));
        // `cell_line` only gives lines that the cell has; nothing put in has a line end.
        let text = cell.lines().nth(line - 1).unwrap_or_default();
        error.traceback.push(numbered(line, text));
    } else if !panic.file.ends_with("src/lib.rs") && !panic.file.is_empty() {
        error
            .traceback
            .push(elsewhere(&panic.file, panic.line, cell));
    }
    if said.sentence.is_some() {
        // Only dfdx's panics need a sentence.
        error
            .traceback
            .push(words("dfdx", &shortened(&panic.message)));
    }
    error.traceback.extend(hint(&said));
    error
}

/// A place in a library, and the cell's line that called it where only one can have.
fn elsewhere(file: &str, line: u32, cell: &str) -> String {
    // Below the registry's folder the crate's own name comes first.
    let short = file
        .split_once("/registry/src/")
        .and_then(|(_, path)| Some(path.split_once('/')?.1))
        .unwrap_or(file);
    let calls = cloze::lessons::panics::callers(file);
    let mut lines = cell
        .lines()
        .enumerate()
        .filter(|(_, text)| calls.iter().any(|call| text.contains(call)));
    let at = format!("{short}:{line}");
    match (lines.next(), lines.next()) {
        (Some((index, text)), None) => format!(
            "{}, most likely, in {at}\n{}",
            place(index + 1),
            numbered(index + 1, text)
        ),
        _ => format!("{BLUE}  -->{OFF} {at}"),
    }
}

/// An error whose first line is the explanation's sentence, or the message where there is none.
fn explained(name: &str, message: &str, said: &Explanation) -> CellError {
    plain(name, said.sentence.as_deref().unwrap_or(message))
}

fn hint(said: &Explanation) -> Option<String> {
    said.hint.as_deref().map(|text| words("hint", text))
}

/// A message without the thousands of numbers of a tensor that stands in it.
fn shortened(message: &str) -> String {
    const MOST: usize = 240;
    match message.char_indices().nth(MOST) {
        Some((end, _)) => format!("{} …", message[..end].trim_end()),
        None => message.to_owned(),
    }
}

/// A text after the word that says whose it is.
fn words(who: &str, text: &str) -> String {
    let indent = " ".repeat(who.len() + 2);
    let text = text.trim_end().replace('\n', &format!("\n{indent}"));
    format!("{BLUE}{who}:{OFF} {text}")
}

/// The line of `cell` that stands in line `line` of the generated `source`, both from 1.
///
/// Cells are copied into the crate line by line, the first possibly with something before it; a
/// text that the cell has twice is told apart by counting, from the last line on, because the code
/// of earlier cells stands first.
fn cell_line(line: usize, cell: &str, source: &str) -> Option<usize> {
    let at = |line: usize| source.lines().nth(line.checked_sub(1)?).map(str::trim);
    // The cell's last expression stands below the call that shows it.
    let shows = |text: &str| text.starts_with("evcxr_") && text.ends_with('(');
    let line = if shows(at(line)?) { line + 1 } else { line };
    let wanted = at(line)?;
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
pub fn from_evcxr(error: evcxr::Error, cell: &str, interrupted: bool, said: &str) -> CellError {
    match error {
        evcxr::Error::CompilationErrors(errors) => compilation(&errors, cell),
        evcxr::Error::SubprocessTerminated(_) if interrupted => plain(
            "interrupted",
            &format!(
                "the cell did not stop by itself, so its process was ended. {}",
                crash::AFTERWARDS
            ),
        ),
        evcxr::Error::SubprocessTerminated(status) => crash::explain(&status, said),
        evcxr::Error::TypeRedefinedVariablesLost(names) => plain(
            "redefined",
            &format!(
                "a type was defined anew, which loses the variables that had the old one: {}",
                names.join(", ")
            ),
        ),
        evcxr::Error::Message(message) => {
            let said = explain::message(&message).unwrap_or_default();
            let mut error = explained("error", &message, &said);
            error.traceback.extend(hint(&said));
            error
        }
    }
}

fn compilation(errors: &[CompilationError], cell: &str) -> CellError {
    let mut all: Option<CellError> = None;
    // rustc warns of what follows from the error, unreachable code for one.
    let worst = errors.iter().any(|error| error.level() == "error");
    let mut seen = Vec::new();
    let mut unknown = Vec::new();
    let mut left = 0;
    let diagnostics: Vec<Diagnostic> = errors
        .iter()
        .map(|error| Diagnostic::new(error, cell))
        .collect();
    for (error, diagnostic) in errors.iter().zip(&diagnostics) {
        let same = (diagnostic.message.clone(), diagnostic.marks.clone());
        let follows = errors.iter().any(|cause| follows_from(error, cause))
            || diagnostics.iter().any(|other| diagnostic.is_told_by(other));
        let name = unknown_name(error);
        let again = name.is_some() && unknown.contains(&name);
        if (worst && error.level() != "error") || seen.contains(&same) || follows || again {
            continue;
        }
        unknown.push(name);
        if seen.len() == SHOWN {
            left += 1;
            continue;
        }
        seen.push(same);
        let next = one(error, diagnostic, cell);
        match &mut all {
            None => all = Some(next),
            Some(all) => {
                all.traceback.push(String::new());
                all.traceback.extend(next.traceback);
            }
        }
    }
    let Some(mut all) = all else {
        return plain("error", "the cell does not compile");
    };
    if left > 0 {
        all.traceback.push(String::new());
        all.traceback
            .push(format!("and {left} more: the first is the one to look at"));
    }
    all
}

/// The name that rustc cannot find; it reports it at each place, twice in `let t: T = T::zeros();`.
fn unknown_name(error: &CompilationError) -> Option<String> {
    let unresolved = matches!(error.code(), Some("E0405" | "E0412" | "E0425" | "E0433"));
    let message = error.message();
    let name = message.split('`').nth(1)?;
    unresolved.then(|| name.to_owned())
}

/// Whether a wrong type is that of a value in which an operation of tensors has failed: rustc goes on
/// with the type of its left side.
fn follows_from(error: &CompilationError, cause: &CompilationError) -> bool {
    const OPERATIONS: [&str; 4] = ["TryAdd<", "TrySub<", "TryMul<", "TryDiv<"];
    let place = |of: &CompilationError| of.primary_spanned_message()?.span;
    let failed = cause.message();
    let failed = OPERATIONS.iter().any(|name| failed.contains(name)) || failed.contains(": Merge<");
    let (Some(outer), Some(inner)) = (place(error), place(cause)) else {
        return false;
    };
    error.code() == Some("E0308")
        && cause.code() == Some("E0277")
        && failed
        && (outer.start_line, outer.start_column) <= (inner.start_line, inner.start_column)
        && (inner.end_line, inner.end_column) <= (outer.end_line, outer.end_column)
}

/// The explanation first, then the cell's lines, then what the compiler says.
fn one(error: &CompilationError, diagnostic: &Diagnostic, cell: &str) -> CellError {
    let said = explain::compilation(diagnostic);
    let mut whole = explained(&title(error, diagnostic), &diagnostic.message, &said);
    let out = &mut whole.traceback;
    excerpt(error, said.complete, cell, out);
    // What evcxr found has no JSON, and its words are those of the sentence.
    if said.sentence.is_some() && !error.json.is_null() && !diagnostic.is_instantiation() {
        out.push(words("rustc", &diagnostic.message));
    }
    if !said.complete {
        helps(error, cell, out);
    }
    out.extend(hint(&said));
    whole
}

fn title(error: &CompilationError, diagnostic: &Diagnostic) -> String {
    match error.code() {
        Some(code) => format!("{}[{code}]", error.level()),
        // A constant that fails after type checking: evcxr passes the last note of E0080 on.
        None if diagnostic.is_instantiation() => "error[E0080]".to_owned(),
        None => error.level().to_owned(),
    }
}

fn excerpt(error: &CompilationError, complete: bool, cell: &str, out: &mut Vec<String>) {
    let mut spans: Vec<_> = error
        .spanned_messages()
        .iter()
        .filter_map(|message| {
            Some((
                message.span?,
                label(&message.label, complete),
                message.is_primary,
            ))
        })
        .collect();
    spans.sort_by_key(|(span, ..)| (span.start_line, span.start_column));
    let first = spans
        .iter()
        .find(|(.., primary)| *primary)
        .or(spans.first());
    match first {
        Some((span, ..)) => out.push(place(span.start_line)),
        None => out.extend(by_text(error, cell)),
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
        let from = span.start_column.saturating_sub(1);
        let to = if span.end_line == span.start_line {
            span.end_column.saturating_sub(1)
        } else {
            text.chars().count()
        };
        let (mark, colour) = if *primary { ("^", RED) } else { ("-", BLUE) };
        out.push(marks(text, from, to, mark, colour, &explain::short(label)));
    }
}

/// The line of an error that evcxr could not place, as it moves `use` lines and last expressions:
/// the cell's line that is part of the generated one, where there is only one such.
fn by_text(error: &CompilationError, cell: &str) -> Vec<String> {
    let spans = error.json["spans"].as_array().map(Vec::as_slice);
    let mut primary = spans
        .unwrap_or_default()
        .iter()
        .filter(|span| span["is_primary"] == Value::Bool(true));
    let Some(span) = primary.next() else {
        return Vec::new();
    };
    let generated = span["text"].as_array().map(Vec::as_slice);
    let generated: Vec<&str> = generated
        .unwrap_or_default()
        .iter()
        .filter_map(|line| line["text"].as_str())
        .collect();
    let mut lines = cell.lines().enumerate().filter(|(_, line)| {
        // Short lines (`}`) are part of too many.
        let line = line.trim();
        line.len() > 3 && generated.iter().any(|text| text.contains(line))
    });
    let mut out = Vec::new();
    if let (Some((index, text)), None) = (lines.next(), lines.next()) {
        out.extend([place(index + 1), numbered(index + 1, text)]);
    }
    if let Some(label) = span["label"].as_str() {
        out.push(words("rustc", &explain::short(label)));
    }
    out
}

/// What the compiler advises: a changed line of the cell where it knows one.
fn helps(error: &CompilationError, cell: &str, out: &mut Vec<String>) {
    let children = error.json["children"].as_array().map(Vec::as_slice);
    // evcxr gives one place for each child with one span, in order.
    let mut places = error.help_spanned().iter();
    for child in children.unwrap_or_default() {
        let single = child["spans"]
            .as_array()
            .is_some_and(|spans| spans.len() == 1);
        let span = single
            .then(|| places.next())
            .flatten()
            .and_then(|place| place.span);
        let Some(message) = child["message"].as_str() else {
            continue;
        };
        if child["level"] != "help" || is_noise(message) {
            continue;
        }
        let new = child["spans"][0]["suggested_replacement"].as_str();
        // An import must keep its path.
        let new = new.map(|new| match new.trim_start().starts_with("use ") {
            true => new.replace("cloze_session", "cloze"),
            false => explain::short(new),
        });
        let new = new.as_deref();
        let fixed = span.zip(new).and_then(|(span, new)| {
            let text = cell.lines().nth(span.start_line.checked_sub(1)?)?;
            let (from, to) = (
                span.start_column.checked_sub(1)?,
                span.end_column.checked_sub(1)?,
            );
            (span.start_line == span.end_line)
                .then(|| changed(span.start_line, text, from, to, new))?
        });
        let message = explain::short(message);
        match (fixed, new) {
            (Some(lines), _) => {
                out.push(words("help", &message));
                out.extend(lines);
            }
            (None, Some(new)) if new.starts_with("use ") => {
                out.push(words("help", &format!("{message}: `{}`", new.trim())));
            }
            // A change of a line that the cell has not.
            (None, Some(_)) if single => {}
            (None, _) => out.push(words("help", &message)),
        }
    }
}

/// Advice that is pages long or of no use in a notebook.
fn is_noise(help: &str) -> bool {
    const NOISE: [&str; 7] = [
        // `None`, for any name unknown.
        "a unit variant with a similar name exists",
        "the following other types implement trait",
        "the following types implement trait",
        "items from traits can only be used",
        "use the fully qualified path",
        "you might be missing a type parameter",
        // A notebook has no `Cargo.toml`; the hint tells of `:dep`.
        "if you wanted to use a crate named",
    ];
    let repeats = help.starts_with("the trait `") && help.contains("is not implemented for");
    repeats || NOISE.iter().any(|noise| help.starts_with(noise))
}

/// A span's label; where rustc gives none evcxr repeats the title, which stands above already.
fn label(label: &str, complete: bool) -> &str {
    const TRAITS: [&str; 4] = [
        "unsatisfied trait bound",
        "required by a bound introduced by this call",
        "the trait `",
        "method cannot be called",
    ];
    let repeats = label.starts_with("error: ") || label.starts_with("note: ");
    if repeats || (complete && TRAITS.iter().any(|of| label.starts_with(of))) {
        ""
    } else {
        label
    }
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
    fn a_panic_in_the_last_expression_is_placed() {
        let cell = "let zero = 0;\n10 / zero";
        let source = "let zero = 0;\nevcxr_send_text_plain(&format!(\"{:?}\",&(\n10 / zero\n)));";
        assert_eq!(cell_line(2, cell, source), Some(2));
    }

    #[test]
    fn a_panic_in_dfdx_is_placed_where_one_line_can_have_called_it() {
        let file = "/r/registry/src/index/dfdx-0.13.0/src/tensor_ops/reshape_to/mod.rs";
        let one = without_colours(&elsewhere(file, 88, "let n = 4;\nx.reshape_like(&(n,));"));
        assert!(
            one.contains("this cell, line 2, most likely, in dfdx-0.13.0/src"),
            "{one}"
        );
        let two = without_colours(&elsewhere(
            file,
            88,
            "x.reshape_like(&n);\ny.reshape_like(&n);",
        ));
        assert_eq!(two, "  --> dfdx-0.13.0/src/tensor_ops/reshape_to/mod.rs:88");
    }

    #[test]
    fn a_long_message_is_shortened_between_letters() {
        assert_eq!(shortened("left: 2×3"), "left: 2×3");
        let long = shortened(&"×".repeat(10_000));
        assert_eq!(long.chars().count(), 242);
        assert!(long.ends_with("× …"));
    }

    #[test]
    fn colours_can_be_taken_off() {
        assert_eq!(without_colours(&format!("{RED}a{OFF}b")), "ab");
    }
}
