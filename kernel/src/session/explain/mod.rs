//! Explains an error in a sentence for learners: which shapes do not fit and which would, or what to do
//! in a notebook. `errors` shows it above the compiler's message.
//!
//! The explanations recognise errors by their codes and by the wording of rustc 1.95 and evcxr 0.22. With
//! another wording the compiler's message stands alone; `tests/jupyter/mistakes.toml` detects that.

mod ambiguous;
mod axes;
mod evcxr_messages;
mod expected;
mod matmul;
mod names;
mod notebook;
mod numbers;
mod shapes;
mod tensors;
mod types;
mod unused;

use cloze::lessons::panics::{self, Meaning};
use evcxr::CompilationError;
use serde_json::Value;

use crate::session::channel::Panic;
use types::Shape;

pub use evcxr_messages::message;
pub use types::short;
pub use unused::{RESULTS, tensor};

/// What the kernel adds to the compiler's message.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Explanation {
    /// What is wrong: comes first, in place of the compiler's title.
    pub sentence: Option<String>,
    /// What to do about it: comes last.
    pub hint: Option<String>,
    /// Whether to omit the compiler's own advice, which is about traits that learners do not know.
    pub complete: bool,
}

impl Explanation {
    fn sentence(text: impl Into<String>) -> Self {
        Self { sentence: Some(text.into()), ..Self::default() }
    }

    fn hint(text: impl Into<String>) -> Self {
        Self { hint: Some(text.into()), ..Self::default() }
    }

    fn and_hint(mut self, text: impl Into<String>) -> Self {
        self.hint = Some(text.into());
        self
    }

    /// Returns an explanation with `name` in place of `{name}`; an empty text is none.
    fn filled(sentence: &str, hint: &str, name: &str) -> Self {
        let fill = |text: &str| (!text.is_empty()).then(|| text.replace("{name}", name));
        Self { sentence: fill(sentence), hint: fill(hint), complete: false }
    }
}

/// A place in the cell that the compiler points at.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Mark {
    pub line: usize,
    /// The marked text, or its first line.
    pub text: String,
    pub label: String,
    pub primary: bool,
}

/// The parts of a compiler's message that explanations need.
#[derive(Debug, Clone, Default)]
pub struct Diagnostic {
    pub code: String,
    pub message: String,
    /// Its helps and notes.
    pub notes: Vec<String>,
    pub marks: Vec<Mark>,
    pub cell: String,
    /// Why the unknown variable is no longer there.
    pub gone: Option<Gone>,
}

/// Why a variable is no longer there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Gone {
    /// The cell with this first line has moved its value away.
    Moved(String),
    /// Its type was defined anew.
    Redefined,
}

/// Returns the entries of a JSON list; none if it is not a list.
pub fn entries(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

impl Diagnostic {
    pub fn new(error: &CompilationError, cell: &str) -> Self {
        let marks = error.spanned_messages().iter().filter_map(|message| {
            let span = message.span?;
            let line = cell.lines().nth(span.start_line.checked_sub(1)?)?;
            let from = span.start_column.saturating_sub(1);
            let rest = line.chars().skip(from);
            let text = if span.end_line == span.start_line {
                rest.take(span.end_column.saturating_sub(span.start_column)).collect()
            } else {
                rest.collect()
            };
            Some(Mark {
                line: span.start_line,
                text,
                label: short(&message.label),
                primary: message.is_primary,
            })
        });
        let mut diagnostic = Self {
            code: error.code().unwrap_or_default().to_owned(),
            message: short(&untruncated(error)),
            notes: entries(&error.json["children"])
                .filter_map(|child| child["message"].as_str().map(short))
                .collect(),
            marks: marks.collect(),
            cell: cell.to_owned(),
            gone: None,
        };
        // rustc shortens long types in the title and gives them in full below.
        let full = diagnostic
            .missing()
            .filter(|_| diagnostic.message.contains("..."))
            .map(|(of, wanted)| format!("the trait bound `{of}: {wanted}` is not satisfied"));
        if let Some(full) = full {
            diagnostic.message = full;
        }
        diagnostic
    }

    /// Returns the cell's line that the compiler points at first.
    fn line(&self) -> &str {
        let line = self.marked_line();
        line.and_then(|line| self.cell.lines().nth(line - 1)).unwrap_or_default()
    }

    /// Returns the number of that line, from 1.
    fn marked_line(&self) -> Option<usize> {
        let mark = self.primary().or(self.marks.first())?;
        (mark.line > 0).then_some(mark.line)
    }

    /// Returns whether this is the note that names the function whose constant failed.
    pub fn is_instantiation(&self) -> bool {
        self.message.starts_with("the above error was encountered while instantiating")
    }

    fn primary(&self) -> Option<&Mark> {
        self.marks.iter().find(|mark| mark.primary)
    }

    fn labelled(&self, words: &str) -> Option<&Mark> {
        self.marks.iter().find(|mark| mark.label.contains(words))
    }

    /// Returns all texts, the most complete ones first.
    fn texts(&self) -> impl Iterator<Item = &str> {
        let notes = self.notes.iter().map(String::as_str);
        let labels = self.marks.iter().map(|mark| mark.label.as_str());
        notes.chain(labels).chain([self.message.as_str()])
    }

    /// Returns the operation as the learner wrote it: a method, a function or an operator.
    fn operation(&self) -> &str {
        let called = self
            .labelled("required by a bound introduced by this call")
            .or_else(|| self.labelled("are incorrect"))
            .or_else(|| self.primary());
        match called.map_or("", |mark| last_name(&mark.text)) {
            "" => "here",
            operation => operation,
        }
    }

    /// Returns what the marked method is called on: `x.y()` of `x.y().sqrt()`. `None` if the line does not say
    /// it, or calls the method twice.
    fn receiver(&self) -> Option<&str> {
        let call = format!(".{}(", self.primary()?.text);
        let (before, rest) = self.line().split_once(&call)?;
        let mut depth = 0usize;
        let belongs = |c: &char| {
            match c {
                ')' | ']' => depth += 1,
                '(' | '[' if depth == 0 => return false,
                '(' | '[' => depth -= 1,
                _ => {}
            }
            depth > 0 || c.is_alphanumeric() || "_.:([".contains(*c)
        };
        let length = before.chars().rev().take_while(belongs).map(char::len_utf8).sum::<usize>();
        let (outer, receiver) = before.split_at(before.len() - length);
        // A receiver is only a part of one after the end of `f::<A>()`, `vec![1]` or `x?.y`.
        let whole =
            !outer.ends_with(['>', '!', '?', '"', '\'', '}']) && !receiver.starts_with(['.', ':']);
        (whole && !receiver.is_empty() && !rest.contains(&call)).then_some(receiver)
    }

    /// If several axes fit, returns the shape that has them, and the other shape, if it is known.
    fn several_axes(&self) -> Option<(Shape, Option<Shape>)> {
        self.notes.iter().find_map(|note| {
            let (_, rest) = note.split_once("multiple `impl`s satisfying `")?;
            let (of, wanted) = types::bound(rest.split_once('`')?.0)?;
            let (_, arguments) = types::generic(wanted)?;
            let other = arguments.first().and_then(|other| types::shape(other));
            Some((types::shape(of)?, other))
        })
    }

    /// Returns whether `other` is about the same place and names the shapes too: rustc reports what it
    /// cannot infer first for the type parameter alone and then for the operation. Of a `collect()` into `[T]`
    /// it also reports that a variable cannot be one.
    pub fn is_covered_by(&self, other: &Self) -> bool {
        if let Some(rest) = self.message.strip_prefix("the size for values of type ") {
            let built =
                rest.split_once("` ").map(|(of, _)| format!("of type {of}` cannot be built"));
            return built.is_some_and(|built| other.message.contains(&built));
        }
        let place = |of: &Self| of.primary().map(|mark| (mark.line, mark.text.clone()));
        self.code == "E0283"
            && other.code == self.code
            && place(self) == place(other)
            && self.several_axes().is_none()
            && other.several_axes().is_some()
    }

    /// Returns the type and the trait that it lacks.
    fn missing(&self) -> Option<(&str, &str)> {
        let full = self.texts().find_map(|text| {
            let (_, rest) = text.split_once("the trait `")?;
            let (wanted, rest) = rest.split_once("` is not implemented for `")?;
            let (of, _) = rest.split_once('`')?;
            Some((of, wanted))
        });
        full.or_else(|| {
            let (_, rest) = self.message.split_once("the trait bound `")?;
            types::bound(rest.split_once('`')?.0)
        })
    }
}

/// Returns the last name of a path or a chain of calls, without arguments.
fn last_name(text: &str) -> &str {
    let (mut name, mut start, mut depth) = ("", 0, 0usize);
    let ends = text.char_indices().chain([(text.len(), '.')]);
    for (at, character) in ends {
        let opens = matches!(character, '(' | '<' | '[');
        if depth == 0 && (opens || matches!(character, '.' | ':')) {
            let part = text[start..at].trim();
            // A lone operator counts as a name.
            if !part.is_empty() && (name.is_empty() || part.starts_with(char::is_alphabetic)) {
                name = part;
            }
            start = at + character.len_utf8();
        }
        if opens {
            depth += 1;
        } else if matches!(character, ')' | '>' | ']') {
            depth = depth.saturating_sub(1);
            start = at + 1;
        }
    }
    name
}

/// Returns the message with its whole type, which rustc may have written to a file.
fn untruncated(error: &CompilationError) -> String {
    let message = error.message();
    if !message.ends_with("::<...>`") {
        return message;
    }
    let full = entries(&error.json["children"]).find_map(|child| {
        let message = child["message"].as_str()?;
        let (_, path) = message.split_once("has been written to '")?;
        std::fs::read_to_string(path.strip_suffix('\'')?).ok()
    });
    let (Some(full), Some((before, _))) = (full, message.split_once('`')) else {
        return message;
    };
    format!("{before}`{}`", full.trim())
}

/// Explains a panic by its message and its place.
pub fn panic(panic: &Panic) -> Explanation {
    match panics::meaning(&panic.message, &panic.file, panic.line) {
        Some(Meaning::Sentence(text)) => Explanation::sentence(text),
        Some(Meaning::Hint(text)) => Explanation::hint(text),
        None => Explanation::default(),
    }
}

/// Explains an error of the compiler. The explanation may be empty.
pub fn compilation(diagnostic: &Diagnostic) -> Explanation {
    let complete = matmul::explain(diagnostic)
        .or_else(|| shapes::explain(diagnostic))
        .or_else(|| tensors::explain(diagnostic))
        .or_else(|| ambiguous::explain(diagnostic))
        .or_else(|| numbers::explain(diagnostic))
        .or_else(|| unused::explain(diagnostic));
    match complete {
        Some(explanation) => Explanation { complete: true, ..explanation },
        None => notebook::explain(diagnostic).unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the sentence and the hint of an explanation.
    pub fn text(explanation: Option<Explanation>) -> String {
        let explanation = explanation.unwrap_or_default();
        let parts = [explanation.sentence, explanation.hint].into_iter().flatten();
        parts.collect::<Vec<_>>().join(" / ")
    }

    /// Returns the rows of a table, whose columns are separated by ` | `.
    pub fn rows<const COLUMNS: usize>(table: &str) -> impl Iterator<Item = [&str; COLUMNS]> {
        let lines = table.lines().map(str::trim).filter(|line| !line.is_empty());
        lines.map(|line| {
            let columns: Vec<&str> = line.split(" | ").collect();
            columns.try_into().expect("a row with as many columns as the others")
        })
    }

    /// Returns a message with one mark, like most messages.
    pub fn diagnostic(code: &str, message: &str, written: &str, notes: &[&str]) -> Diagnostic {
        Diagnostic {
            code: code.to_owned(),
            message: message.to_owned(),
            notes: notes.iter().map(|note| (*note).to_owned()).collect(),
            marks: vec![Mark {
                line: 1,
                text: written.to_owned(),
                label: String::new(),
                primary: true,
            }],
            cell: written.to_owned(),
            gone: None,
        }
    }

    #[test]
    fn the_operation_is_named_as_the_learner_wrote_it() {
        for (written, operation) in [
            ("matmul", "matmul"),
            ("+", "+"),
            ("v.clone().broadcast::<Rank2<5, 3>, _>()", "broadcast"),
            ("Axes2::<1, 0>::default()", "default"),
            ("load(&[\"a.b\"])?", "load"),
            ("a.clone()", "clone"),
            ("", "here"),
            ("日本", "日本"),
        ] {
            let error = diagnostic("E0277", "", written, &[]);
            assert_eq!(error.operation(), operation, "{written}");
        }
    }

    #[test]
    fn odd_messages_have_no_explanation_and_never_panic() {
        const CODES: [&str; 16] = [
            "", "E0277", "E0308", "E0599", "E0369", "E0283", "E0107", "E0061", "E0382", "E0425",
            "E0432", "E0433", "E0384", "E0596", "E0597", "E0502",
        ];
        const MESSAGES: [&str; 12] = [
            "",
            "`",
            "``",
            "the trait bound `",
            "the trait bound `:` is",
            "the trait bound `A: TryMatMul<...>` is not satisfied",
            "the trait bound `Tensor<(..., ...), f32, Cpu>: TryAdd<Tensor<>>` is not satisfied",
            "the trait bound `(): ReduceShapeTo<(), Axis<-9>>` is not satisfied",
            "the above error was encountered while instantiating `fn <>::reshape::<>`",
            "cannot add `日本` to `",
            "no method named `",
            "expected `;`, found",
        ];
        for code in CODES {
            for message in MESSAGES {
                for written in ["", "`", "matmul", "日本語", "+", "&"] {
                    let notes = [message, "expected struct `Tensor<`\n found struct `Tensor<>`"];
                    let explanation = compilation(&diagnostic(code, message, written, &notes));
                    assert!(explanation.sentence.is_none_or(|text| !text.is_empty()));
                    let _ = compilation(&Diagnostic {
                        code: code.to_owned(),
                        message: message.to_owned(),
                        ..Diagnostic::default()
                    });
                }
            }
        }
    }
}
