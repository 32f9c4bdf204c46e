//! What an error means, in a sentence for somebody who learns: which shapes do not fit and what
//! would, or what to do in a notebook. `errors` renders it above what the compiler said.

mod axes;
mod matmul;
mod notebook;
mod shapes;
mod tensors;
mod types;
mod untold;

use cloze::lessons::panics::{self, Meaning};
use evcxr::CompilationError;
use serde_json::Value;

use crate::session::channel::Panic;
use types::Shape;

pub use notebook::message;
pub use types::short;

/// What is said besides the compiler's own words.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Explanation {
    /// What is wrong: stands first, in place of the compiler's title.
    pub sentence: Option<String>,
    /// What to do about it: stands last.
    pub hint: Option<String>,
    /// The compiler's own advice is about traits that a learner has not met: it is left out.
    pub complete: bool,
}

impl Explanation {
    fn sentence(text: impl Into<String>) -> Self {
        Self {
            sentence: Some(text.into()),
            ..Self::default()
        }
    }

    fn hint(text: impl Into<String>) -> Self {
        Self {
            hint: Some(text.into()),
            ..Self::default()
        }
    }

    fn and_hint(mut self, text: impl Into<String>) -> Self {
        self.hint = Some(text.into());
        self
    }
}

/// A place in the cell that the compiler points at.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Mark {
    pub line: usize,
    /// What stands there; the first line of it where it has several.
    pub text: String,
    pub label: String,
    pub primary: bool,
}

/// A compiler's message, as far as explaining needs it.
#[derive(Debug, Clone, Default)]
pub struct Diagnostic {
    pub code: String,
    pub message: String,
    /// Its helps and notes.
    pub notes: Vec<String>,
    pub marks: Vec<Mark>,
    /// The cell that it is about.
    pub cell: String,
}

impl Diagnostic {
    pub fn new(error: &CompilationError, cell: &str) -> Self {
        let marks = error.spanned_messages().iter().filter_map(|message| {
            let span = message.span?;
            let line = cell.lines().nth(span.start_line.checked_sub(1)?)?;
            let from = span.start_column.saturating_sub(1);
            let rest = line.chars().skip(from);
            let text = if span.end_line == span.start_line {
                rest.take(span.end_column.saturating_sub(span.start_column))
                    .collect()
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
        let children = error.json["children"].as_array().map(Vec::as_slice);
        let notes = children.unwrap_or_default().iter();
        let mut diagnostic = Self {
            code: error.code().unwrap_or_default().to_owned(),
            message: short(&untruncated(error)),
            notes: notes
                .filter_map(|child| child["message"].as_str().map(short))
                .collect(),
            marks: marks.collect(),
            cell: cell.to_owned(),
        };
        // rustc cuts long types out of the title and gives them in full below.
        let full = diagnostic
            .missing()
            .filter(|_| diagnostic.message.contains("..."))
            .map(|(of, wanted)| format!("the trait bound `{of}: {wanted}` is not satisfied"));
        if let Some(full) = full {
            diagnostic.message = full;
        }
        diagnostic
    }

    /// The cell's line that the compiler points at first.
    fn line(&self) -> &str {
        let line = self.marked_line();
        line.and_then(|line| self.cell.lines().nth(line - 1))
            .unwrap_or_default()
    }

    /// The number of that line, from 1.
    fn marked_line(&self) -> Option<usize> {
        let mark = self.primary().or(self.marks.first())?;
        (mark.line > 0).then_some(mark.line)
    }

    /// Whether this is the note that names the function whose constant failed.
    pub fn is_instantiation(&self) -> bool {
        self.message
            .starts_with("the above error was encountered while instantiating")
    }

    fn primary(&self) -> Option<&Mark> {
        self.marks.iter().find(|mark| mark.primary)
    }

    fn labelled(&self, words: &str) -> Option<&Mark> {
        self.marks.iter().find(|mark| mark.label.contains(words))
    }

    /// Everything said, the fullest texts first.
    fn texts(&self) -> impl Iterator<Item = &str> {
        let notes = self.notes.iter().map(String::as_str);
        let labels = self.marks.iter().map(|mark| mark.label.as_str());
        notes.chain(labels).chain([self.message.as_str()])
    }

    /// The operation as the learner wrote it: a method, a function or an operator.
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

    /// Where several axes would do: the shape that has them, and the other, where that is told.
    fn several(&self) -> Option<(Shape, Option<Shape>)> {
        self.notes.iter().find_map(|note| {
            let (_, rest) = note.split_once("multiple `impl`s satisfying `")?;
            let (of, wanted) = types::bound(rest.split_once('`')?.0)?;
            let (_, arguments) = types::generic(wanted)?;
            let other = arguments.first().and_then(|other| types::shape(other));
            Some((types::shape(of)?, other))
        })
    }

    /// Whether `other` is about the same place and names the shapes too: what rustc cannot infer it
    /// says first of the type parameter alone and then of the operation.
    pub fn is_told_by(&self, other: &Self) -> bool {
        let place = |of: &Self| of.primary().map(|mark| (mark.line, mark.text.clone()));
        self.code == "E0283"
            && other.code == self.code
            && place(self) == place(other)
            && self.several().is_none()
            && other.several().is_some()
    }

    /// The type and the trait that it lacks.
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

/// The last name of a path or a chain of calls, whose arguments are no part of it.
fn last_name(text: &str) -> &str {
    let (mut name, mut start, mut depth) = ("", 0, 0usize);
    let ends = text.char_indices().chain([(text.len(), '.')]);
    for (at, character) in ends {
        let opens = matches!(character, '(' | '<' | '[');
        if depth == 0 && (opens || matches!(character, '.' | ':')) {
            let part = text[start..at].trim();
            // An operator by itself is its own name.
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

/// The message, where rustc cut it off and wrote its type to a file with that type.
fn untruncated(error: &CompilationError) -> String {
    let message = error.message();
    let cut = "::<...>`";
    if !message.ends_with(cut) {
        return message;
    }
    let children = error.json["children"].as_array().map(Vec::as_slice);
    let full = children
        .unwrap_or_default()
        .iter()
        .find_map(|child: &Value| {
            let (_, path) = child["message"]
                .as_str()?
                .split_once("has been written to '")?;
            std::fs::read_to_string(path.strip_suffix('\'')?).ok()
        });
    let (Some(full), Some((before, _))) = (full, message.split_once('`')) else {
        return message;
    };
    format!("{before}`{}`", full.trim())
}

/// Explains a panic by its message and the place that it happened at.
pub fn panic(panic: &Panic) -> Explanation {
    match panics::meaning(&panic.message, &panic.file, panic.line) {
        Some(Meaning::Sentence(text)) => Explanation::sentence(text),
        Some(Meaning::Hint(text)) => Explanation::hint(text),
        None => Explanation::default(),
    }
}

/// Explains what the compiler said, where there is something to say.
pub fn compilation(diagnostic: &Diagnostic) -> Explanation {
    let of_tensors = matmul::explain(diagnostic)
        .or_else(|| shapes::explain(diagnostic))
        .or_else(|| tensors::explain(diagnostic))
        .or_else(|| untold::explain(diagnostic));
    match of_tensors {
        Some(said) => Explanation {
            complete: true,
            ..said
        },
        None => notebook::explain(diagnostic).unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A message with one mark, as most have.
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
        }
    }

    #[test]
    fn the_operation_is_what_the_learner_wrote() {
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
            let of = diagnostic("E0277", "", written, &[]);
            let got = of.operation();
            assert_eq!(got, operation, "{written}");
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
                    let notes = [
                        message,
                        "expected struct `Tensor<`\n found struct `Tensor<>`",
                    ];
                    let said = compilation(&diagnostic(code, message, written, &notes));
                    assert!(said.sentence.is_none_or(|said| !said.is_empty()));
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
