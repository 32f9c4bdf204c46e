//! Warnings of `:check`: results and variables that nothing uses.

use super::{Diagnostic, Explanation};
use crate::session::types::{self, Tensor};

/// The lint about values of all other types.
pub const RESULTS: &str = "unused_results";

const OF_TENSOR: &str =
    "an operation gives a new tensor and does not change the old one; `let y = …;` keeps it";
const OF_RESULT: &str = "it may be an error: `?` ends the cell with it, `.unwrap()` with a panic";
const OF_VARIABLE: &str = "a name that begins with `_` says that this is intended";

pub fn explain(diagnostic: &Diagnostic) -> Option<Explanation> {
    let message = diagnostic.message.as_str();
    let complete = |text: String, hint: &str| Explanation {
        complete: true,
        hint: Some(hint).filter(|hint| !hint.is_empty()).map(str::to_owned),
        ..Explanation::sentence(text)
    };
    Some(match diagnostic.code.as_str() {
        RESULTS => complete(
            format!("nothing uses this tensor, {}", types::short(tensor(message)?)),
            OF_TENSOR,
        ),
        "unused_must_use" => {
            let what = message.strip_prefix("unused ")?.split(" that must be used").next()?;
            // Of the path of a function its name.
            let what = match what.split_once('`') {
                Some((before, path)) => {
                    format!("{before}`{}`", super::last_name(path.trim_end_matches('`')))
                }
                None => what.to_owned(),
            };
            let hint = if what == "`Result`" { OF_RESULT } else { "" };
            complete(format!("nothing uses this {what}"), hint)
        }
        "unused_variables" => {
            let name = message.split('`').nth(1)?;
            complete(format!("nothing uses the variable `{name}`"), OF_VARIABLE)
        }
        "path_statements" => complete("this line only names a value".to_owned(), ""),
        _ => return None,
    })
}

/// Returns the type in the message of [`RESULTS`], if it is a tensor. Other results are often dropped on purpose.
pub fn tensor(message: &str) -> Option<&str> {
    let of = message.split('`').nth(1)?;
    types::read(of).filter(|ty| Tensor::of(ty).is_some()).map(|_| of)
}

#[cfg(test)]
mod tests {
    use super::super::tests::{diagnostic, text};
    use super::*;

    #[test]
    fn what_nothing_uses_is_named() {
        for (code, message, expected) in [
            (
                RESULTS,
                "unused result of type `dfdx::tensor::Tensor<(Const<2>, Const<3>), f32, Cpu>`",
                "nothing uses this tensor, (2, 3) f32 cpu / an operation gives",
            ),
            (RESULTS, "unused result of type `usize`", ""),
            (
                "unused_must_use",
                "unused comparison that must be used",
                "nothing uses this comparison",
            ),
            (
                "unused_must_use",
                "unused `Result` that must be used",
                "nothing uses this `Result` / it may",
            ),
            (
                "unused_must_use",
                "unused return value of `std::clone::Clone::clone` that must be used",
                "nothing uses this return value of `clone`",
            ),
            ("unused_variables", "unused variable: `x`", "nothing uses the variable `x` / a name"),
            ("unused_variables", "", ""),
            ("unreachable_code", "unreachable statement", ""),
        ] {
            let found = text(explain(&diagnostic(code, message, "", &[])));
            assert!(
                found.starts_with(expected) && found.is_empty() == expected.is_empty(),
                "{found}"
            );
        }
    }
}
