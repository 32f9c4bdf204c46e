//! `:check` with code: compiles a cell without running it.

use super::{aligned, show_text};
use crate::session::evaluator::Evaluator;
use crate::session::{CellError, Outcome, Sink, completion, errors, source};

/// What stands for the name of the cell's own value.
const VALUE: &str = "(the value)";

/// Returns whether `:check` is asked for an exercise: by its number, with the word `code`, or by nothing.
pub fn names_exercise(argument: &str) -> bool {
    let number = argument.strip_suffix("code").unwrap_or(argument).trim();
    number.chars().all(|character| character.is_ascii_digit() || character == '.')
}

/// Shows the cell's errors, or its warnings and the types of its variables and of its value.
pub fn run(evaluator: &mut Evaluator, code: &str, sink: &Sink) -> Result<Outcome, CellError> {
    // Lines for the session, `!ls` and the like, would run. Positions stay as in the cell.
    let rust = source::without_commands(&code.replacen(":check", "      ", 1));
    if let Some(error) = errors::misplaced(&rust) {
        return Err(error);
    }
    let found = evaluator.check(&rust).and_then(|(errors, warnings)| match errors.is_empty() {
        true => Ok(warnings),
        false => Err(evcxr::Error::CompilationErrors(errors)),
    });
    let warnings =
        found.map_err(|error| errors::from_evcxr(error, &rust, false, "", &evaluator.gone))?;
    let value = source::value(&rust).map(|node| source::place(&node));
    let statements = value.as_ref().map_or(rust.as_str(), |value| &rust[..value.start]);
    let mut lines = errors::warnings(&warnings, &rust, statements.len());
    lines.push("no errors; nothing was run".to_owned());
    let mut names = source::let_names(&rust);
    let mut values = names.clone();
    if let Some(value) = value.clone() {
        names.push(VALUE.to_owned());
        values.push(format!("{{{}}}", &rust[value]));
    }
    if let Some(types) = completion::types_of(&mut evaluator.context, statements, &values) {
        lines.extend(aligned(names.into_iter().zip(types).filter(|(_, ty)| ty != "()")));
    }
    Ok(show_text(sink, &lines.join("\n")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_names_an_exercise_and_all_else_is_code() {
        for argument in ["", "01.2", "01.2 code", "code", "77.1"] {
            assert!(names_exercise(argument), "{argument}");
        }
        for argument in ["x", "let a = 1;", "1 + 1", "decode", "f(1.0)"] {
            assert!(!names_exercise(argument), "{argument}");
        }
    }
}
