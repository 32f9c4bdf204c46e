//! Renders the errors of a cell with the cell's own lines and ANSI colours.
//!
//! rustc itself would show the lines of the generated crate. Columns are counted in characters, so that
//! non-ASCII cells are right. If `explain` has a plain sentence for an error, it comes first.

use std::collections::BTreeMap;

use evcxr::CompilationError;
use serde_json::Value;

use super::CellError;
use super::channel::Panic;
use super::excerpt::{BLUE, OFF, RED, changed, marks, numbered, place, without_colours};
use super::explain::{self, Diagnostic, Explanation, Gone, entries};
use super::{crash, source};

/// How many errors are shown: the others mostly follow from the first ones.
const SHOWN: usize = 5;

/// Returns the error of a cell that `?` ended with this message.
pub fn user_error(message: &str) -> CellError {
    let empty = message.trim().is_empty();
    CellError::new("error", if empty { "the cell ended early: `?` met an error" } else { message })
}

/// Returns the error of a cell that evcxr would mistake for another: it begins with a closing bracket, or
/// returns from no function.
pub fn misplaced(cell: &str) -> Option<CellError> {
    if let Some(bracket) = source::stray_closer(cell) {
        let message = format!("the cell begins with `{bracket}`, which closes nothing");
        return Some(CellError::new("error", &message));
    }
    source::stray_return(cell).map(|line| stray_return(cell, line))
}

/// Returns the error of a `return` outside functions in line `line` of the cell.
fn stray_return(cell: &str, line: usize) -> CellError {
    let mut error =
        CellError::new("error[E0572]", "`return` leaves a function, and a cell is none");
    error.traceback.extend(placed(line, cell));
    error.traceback.push(attributed(
        "hint",
        "the last expression of a cell, without `;`, is its value; a part that may end early can be \
         a function of its own",
    ));
    error
}

/// Returns the error of a panic, with the cell's line if it happened in the cell. `compiled` is the cell
/// with the session's insertions, `source` the generated crate.
pub fn panic(panic: Option<Panic>, cell: &str, compiled: &str, source: &str) -> CellError {
    let Some(panic) = panic else {
        return CellError::new("panic", "the cell panicked");
    };
    let explanation = explain::panic(&panic);
    let mut error = explained("panic", &panic.message, &explanation);
    if panic.file.ends_with("src/lib.rs") {
        if let Some(line) = cell_line(panic.line as usize, compiled, source) {
            error.traceback.extend(placed(line, cell));
        }
    } else if !panic.file.is_empty() {
        error.traceback.push(elsewhere(&panic.file, panic.line, cell));
    }
    if explanation.sentence.is_some() {
        // Only dfdx's panics have a sentence.
        error.traceback.push(attributed("dfdx", &shortened(&panic.message)));
    }
    error.traceback.extend(hint(&explanation));
    error
}

/// Returns line `line` of the cell, which it has, below its heading.
fn placed(line: usize, cell: &str) -> [String; 2] {
    let text = cell.lines().nth(line - 1).unwrap_or_default();
    [place(line), numbered(line, text)]
}

/// Returns a place in a library, and the cell's line that called it, if only one line can have.
fn elsewhere(file: &str, line: u32, cell: &str) -> String {
    // In cargo's registry, the path after its folder begins with the crate's name.
    let short = file
        .split_once("/registry/src/")
        .and_then(|(_, path)| Some(path.split_once('/')?.1))
        .unwrap_or(file);
    let calls = cloze::lessons::panics::callers(file);
    let mut lines =
        cell.lines().enumerate().filter(|(_, text)| calls.iter().any(|call| text.contains(call)));
    let at = format!("{short}:{line}");
    match (lines.next(), lines.next()) {
        (Some((index, text)), None) => {
            format!("{}, most likely, in {at}\n{}", place(index + 1), numbered(index + 1, text))
        }
        _ => format!("{BLUE}  -->{OFF} {at}"),
    }
}

/// Returns an error whose first line is the explanation's sentence, or the message if there is none.
fn explained(name: &str, message: &str, explanation: &Explanation) -> CellError {
    CellError::new(name, explanation.sentence.as_deref().unwrap_or(message))
}

fn hint(explanation: &Explanation) -> Option<String> {
    let hint = explanation.hint.as_deref();
    hint.map(|text| attributed("hint", text))
}

/// Cuts a message, which may contain the thousands of numbers of a tensor.
fn shortened(message: &str) -> String {
    const MOST: usize = 240;
    match message.char_indices().nth(MOST) {
        Some((end, _)) => format!("{} …", message[..end].trim_end()),
        None => message.to_owned(),
    }
}

/// Returns a text after its origin: `hint: …`, `rustc: …`.
fn attributed(origin: &str, text: &str) -> String {
    let indent = " ".repeat(origin.len() + 2);
    let text = text.trim_end().replace('\n', &format!("\n{indent}"));
    format!("{BLUE}{origin}:{OFF} {text}")
}

/// Returns the line of `cell` that is line `line` of the generated `source`, both from 1.
///
/// The crate contains the cell line by line, the first possibly after other code, and earlier cells come
/// before it. So if the cell has a line twice, they are counted from the end.
fn cell_line(line: usize, cell: &str, source: &str) -> Option<usize> {
    let at = |line: usize| source.lines().nth(line.checked_sub(1)?).map(str::trim);
    // The cell's last expression follows the call that shows it.
    let shows = |text: &str| text.starts_with("evcxr_") && text.ends_with('(');
    let line = if shows(at(line)?) { line + 1 } else { line };
    let wanted = at(line)?;
    let later = source.lines().skip(line).filter(|text| text.trim() == wanted).count();
    let lines = || (1..).zip(cell.lines().map(str::trim));
    let same: Vec<usize> =
        lines().filter(|(_, text)| *text == wanted).map(|(number, _)| number).collect();
    match same.len() {
        0 => {
            let (number, first) = lines().find(|(_, text)| !text.is_empty())?;
            wanted.ends_with(first).then_some(number)
        }
        count => same.get(count.checked_sub(1 + later)?).copied(),
    }
}

/// Returns the error that evcxr reports; `stderr` is the end of the cell's standard error, `gone` the
/// variables that earlier cells have lost.
pub fn from_evcxr(
    error: evcxr::Error,
    cell: &str,
    interrupted: bool,
    stderr: &str,
    gone: &BTreeMap<String, Gone>,
) -> CellError {
    match error {
        evcxr::Error::CompilationErrors(errors) => compilation(&errors, cell, gone),
        evcxr::Error::SubprocessTerminated(_) if interrupted => CellError::new(
            "interrupted",
            &format!(
                "the cell did not stop by itself, so its process was killed. {}",
                crash::AFTERWARDS
            ),
        ),
        evcxr::Error::SubprocessTerminated(status) => crash::explain(&status, stderr),
        evcxr::Error::TypeRedefinedVariablesLost(names) => CellError::new(
            "redefined",
            &format!(
                "a type was defined anew, which loses the variables that had the old one: {}",
                names.join(", ")
            ),
        ),
        evcxr::Error::Message(message) => {
            let explanation = explain::message(&message).unwrap_or_default();
            let mut error = explained("error", &message, &explanation);
            error.traceback.extend(hint(&explanation));
            error
        }
    }
}

fn compilation(
    errors: &[CompilationError],
    cell: &str,
    gone: &BTreeMap<String, Gone>,
) -> CellError {
    let mut all: Option<CellError> = None;
    // Notes follow from errors. A warning never is the reason.
    let has_error = errors.iter().any(|error| error.level() == "error");
    let mut seen = Vec::new();
    let mut unknown = Vec::new();
    let mut left = 0;
    let diagnostics = errors.iter().map(|error| Diagnostic {
        gone: unknown_name(error).and_then(|name| gone.get(&name).cloned()),
        ..Diagnostic::new(error, cell)
    });
    let diagnostics: Vec<Diagnostic> = diagnostics.collect();
    for (error, diagnostic) in errors.iter().zip(&diagnostics) {
        // Of an unknown type rustc reports each place that needs it.
        let primary = diagnostic.marks.iter().filter(|mark| mark.primary);
        let same = (diagnostic.message.clone(), primary.cloned().collect::<Vec<_>>());
        let follows = errors.iter().any(|cause| follows_from(error, cause))
            || diagnostics.iter().any(|other| diagnostic.is_covered_by(other));
        let name = unknown_name(error);
        let repeats = name.is_some() && unknown.contains(&name) || seen.contains(&same);
        let is_minor = error.level() == "warning" || (has_error && error.level() != "error");
        if is_minor || follows || repeats {
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
        return CellError::new("error", "the cell does not compile");
    };
    if left > 0 {
        all.traceback.push(String::new());
        all.traceback.push(format!("and {left} more: begin with the first"));
    }
    all
}

/// Returns the lines of the warnings about a cell, with an empty line after each warning. It leaves out a warning about
/// the cell's value, which begins at byte `value`, because the session shows the value.
pub fn warnings(found: &[CompilationError], cell: &str, value: usize) -> Vec<String> {
    let before = &cell[..value];
    let line = before.rsplit('\n').next().unwrap_or_default();
    let value = (before.matches('\n').count() + 1, line.chars().count() + 1);
    // By their places. Of several warnings about one, the first is the most important.
    let mut shown = BTreeMap::new();
    for warning in found {
        let mut places = warning.spanned_messages().iter().filter(|message| message.is_primary);
        // Without a place it is about an earlier cell, or about evcxr's own code.
        let Some(place) = places.find_map(|message| message.span) else {
            continue;
        };
        let place = (place.start_line, place.start_column);
        let is_wanted = warning.code() != Some(explain::RESULTS)
            || explain::tensor(&warning.message()).is_some();
        if is_wanted && place != value {
            shown
                .entry(place)
                .or_insert_with(|| one(warning, &Diagnostic::new(warning, cell), cell));
        }
    }
    let lines = shown
        .into_values()
        .flat_map(|warning| warning.traceback.into_iter().chain([String::new()]));
    lines.map(|line| without_colours(&line)).collect()
}

/// Returns the name that rustc cannot find. It reports each use, twice in `let t: T = T::zeros();`.
fn unknown_name(error: &CompilationError) -> Option<String> {
    let unresolved = matches!(error.code(), Some("E0405" | "E0412" | "E0425" | "E0433"));
    let message = error.message();
    let name = message.split('`').nth(1)?;
    unresolved.then(|| name.to_owned())
}

/// Returns whether a wrong type follows from a failed operation on tensors inside the value: rustc then
/// continues with the type of its left side.
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

/// Renders one error: the explanation, the cell's lines, the compiler's message and advice, the hint.
fn one(error: &CompilationError, diagnostic: &Diagnostic, cell: &str) -> CellError {
    let explanation = explain::compilation(diagnostic);
    let mut rendered = explained(&title(error, diagnostic), &diagnostic.message, &explanation);
    let out = &mut rendered.traceback;
    excerpt(error, explanation.complete, cell, out);
    // evcxr's own errors have no JSON, and the sentence repeats them.
    if explanation.sentence.is_some()
        && !error.json.is_null()
        && !diagnostic.is_instantiation()
        && error.level() == "error"
    {
        out.push(attributed("rustc", &diagnostic.message));
    }
    if !explanation.complete {
        helps(error, cell, out);
    }
    out.extend(hint(&explanation));
    rendered
}

fn title(error: &CompilationError, diagnostic: &Diagnostic) -> String {
    match error.code().filter(|_| error.level() == "error") {
        Some(code) => format!("{}[{code}]", error.level()),
        // Of a constant that fails after type checking (E0080) evcxr passes on only the last note.
        None if diagnostic.is_instantiation() => "error[E0080]".to_owned(),
        None => error.level().to_owned(),
    }
}

fn excerpt(error: &CompilationError, complete: bool, cell: &str, out: &mut Vec<String>) {
    let mut spans: Vec<_> = error
        .spanned_messages()
        .iter()
        .filter_map(|message| {
            Some((message.span?, label(&message.label, complete), message.is_primary))
        })
        .collect();
    spans.sort_by_key(|(span, ..)| (span.start_line, span.start_column));
    let first = spans.iter().find(|(.., primary)| *primary).or(spans.first());
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

/// Finds the line of an error that evcxr could not place because it moves `use` lines and last
/// expressions: the cell's only line that is part of the generated one.
fn by_text(error: &CompilationError, cell: &str) -> Vec<String> {
    let mut spans = entries(&error.json["spans"]);
    let Some(span) = spans.find(|span| span["is_primary"] == Value::Bool(true)) else {
        return Vec::new();
    };
    let generated: Vec<&str> =
        entries(&span["text"]).filter_map(|line| line["text"].as_str()).collect();
    let mut lines = cell.lines().enumerate().filter(|(_, line)| {
        // Short lines (`}`) are part of too many others.
        let line = line.trim();
        line.len() > 3 && generated.iter().any(|text| text.contains(line))
    });
    let mut out = Vec::new();
    if let (Some((index, _)), None) = (lines.next(), lines.next()) {
        out.extend(placed(index + 1, cell));
    }
    if let Some(label) = span["label"].as_str() {
        out.push(attributed("rustc", &explain::short(label)));
    }
    out
}

/// Renders the compiler's advice: a changed line of the cell if it suggests one.
fn helps(error: &CompilationError, cell: &str, out: &mut Vec<String>) {
    // evcxr gives one place for each child with one span, in order.
    let mut places = error.help_spanned().iter();
    for child in entries(&error.json["children"]) {
        let single = child["spans"].as_array().is_some_and(|spans| spans.len() == 1);
        let span = single.then(|| places.next()).flatten().and_then(|place| place.span);
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
            let (from, to) = (span.start_column.checked_sub(1)?, span.end_column.checked_sub(1)?);
            (span.start_line == span.end_line)
                .then(|| changed(span.start_line, text, from, to, new))?
        });
        let message = explain::short(message);
        match (fixed, new) {
            (Some(lines), _) => {
                out.push(attributed("help", &message));
                out.extend(lines);
            }
            (None, Some(new)) if new.starts_with("use ") => {
                out.push(attributed("help", &format!("{message}: `{}`", new.trim())));
            }
            // A change of a line that the cell does not have.
            (None, Some(_)) if single => {}
            (None, _) => out.push(attributed("help", &message)),
        }
    }
}

/// Returns whether advice is pages long or useless in a notebook.
fn is_noise(help: &str) -> bool {
    const NOISE: [&str; 7] = [
        // `None`, for any unknown name.
        "a unit variant with a similar name exists",
        "the following other types implement trait",
        "the following types implement trait",
        "items from traits can only be used",
        "use the fully qualified path",
        "you might be missing a type parameter",
        // A notebook has no `Cargo.toml`; the hint mentions `:dep`.
        "if you wanted to use a crate named",
    ];
    let repeats = help.starts_with("the trait `") && help.contains("is not implemented for");
    repeats || NOISE.iter().any(|noise| help.starts_with(noise))
}

/// Returns a span's label. If rustc gives none, evcxr repeats the title, which is shown already.
fn label(label: &str, complete: bool) -> &str {
    const TRAITS: [&str; 4] = [
        "unsatisfied trait bound",
        "required by a bound introduced by this call",
        "the trait `",
        "method cannot be called",
    ];
    let repeats = ["error: ", "warning: ", "note: "].iter().any(|level| label.starts_with(level));
    if repeats || (complete && TRAITS.iter().any(|of| label.starts_with(of))) { "" } else { label }
}

#[cfg(test)]
mod tests {
    use super::super::without_colours;
    use super::*;

    const CELL: &str = "let a = 1;\nassert!(a == 2);\nlet b = 3;\nassert!(a == 2);";

    #[test]
    fn a_panic_names_the_cell_s_line_or_another_file() {
        let source = format!("fn earlier() {{}}\nprefix {CELL}\nsuffix\n");
        for (file, line, expected) in [
            ("src/lib.rs", 3, "this cell, line 2"),
            ("src/lib.rs", 5, "this cell, line 4"),
            ("/x/dfdx/src/shapes.rs", 7, "/x/dfdx/src/shapes.rs:7"),
        ] {
            let at = Panic { message: "no".into(), file: file.into(), line };
            let error = panic(Some(at), CELL, CELL, &source);
            assert_eq!((error.name.as_str(), error.value.as_str()), ("panic", "no"));
            let text = without_colours(&error.traceback.join("\n"));
            assert!(text.contains(expected), "{text}");
        }
    }

    #[test]
    fn a_panic_in_the_last_expression_is_placed() {
        let cell = "let zero = 0;\n10 / zero";
        let source =
            "let zero = 0;\nevcxr_send_text_CellError::new(&format!(\"{:?}\",&(\n10 / zero\n)));";
        assert_eq!(cell_line(2, cell, source), Some(2));
    }

    #[test]
    fn a_panic_is_placed_in_the_line_itself_and_not_in_one_that_is_its_end() {
        let cell = "x[7];\nlet y = x[7];\nx[7];\n}";
        let source = format!("let x = 1;{cell}\nlater();");
        let lines = [1, 2, 3, 4, 5].map(|line| cell_line(line, cell, &source));
        assert_eq!(lines, [Some(1), Some(2), Some(3), Some(4), None]);
    }

    #[test]
    fn a_panic_in_dfdx_is_placed_if_one_line_can_have_called_it() {
        let file = "/r/registry/src/index/dfdx-0.13.0/src/tensor_ops/reshape_to/mod.rs";
        let one = without_colours(&elsewhere(file, 88, "let n = 4;\nx.reshape_like(&(n,));"));
        assert!(one.contains("this cell, line 2, most likely, in dfdx-0.13.0/src"), "{one}");
        let calls = "x.reshape_like(&n);\ny.reshape_like(&n);";
        let two = without_colours(&elsewhere(file, 88, calls));
        assert_eq!(two, "  --> dfdx-0.13.0/src/tensor_ops/reshape_to/mod.rs:88");
    }

    #[test]
    fn a_long_message_is_shortened_between_letters() {
        assert_eq!(shortened("left: 2×3"), "left: 2×3");
        let long = shortened(&"×".repeat(10_000));
        assert_eq!(long.chars().count(), 242);
        assert!(long.ends_with("× …"));
    }
}
