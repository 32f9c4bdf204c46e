//! Explains evcxr's own messages, in the wording of evcxr 0.22.

use super::{Explanation, types};

/// A part of a message, a sentence, and a hint. `{name}` stands for the first name in the message.
const TEXTS: &[(&str, &str, &str)] = &[
    (
        "is a closure, which cannot be persisted",
        "`{name}` is a closure, whose type has no name, so it cannot outlive the cell",
        "write it as a `fn {name}(…) { … }`, or box it: `let {name}: Box<dyn Fn(i32) -> i32> = Box::new(…);`",
    ),
    (
        "Couldn't automatically determine type",
        "the notebook cannot infer the type of `{name}`, which it needs to keep the variable",
        "name it, as in `let {name}: Vec<f32> = …;`, or for a whole pattern: `let [a, b]: [f32; 2] = …;`",
    ),
    (
        "Failed to determine type of variable",
        "the type of `{name}` is private to its crate",
        "name a public type for it, or use it within the cell, between `{` and `}`",
    ),
    ("missing a semicolon", "a `;` is missing, most likely before a `let`", ""),
    (
        "no matching package named `",
        "no crate `{name}` is available here",
        "check the spelling; a crate that was never downloaded needs the network",
    ),
];

/// Explains a message of evcxr.
pub fn message(text: &str) -> Option<Explanation> {
    let name = types::quoted(text).next().unwrap_or_default();
    if let Some((_, sentence, hint)) = TEXTS.iter().find(|(part, ..)| text.contains(part)) {
        return Some(Explanation::filled(sentence, hint, name));
    }
    if !text.contains("which cannot be persisted") {
        return None;
    }
    let of = types::quoted(text).nth(1).unwrap_or("impl …");
    let how = if of.contains("Future<") {
        "write `.await` to get its value".to_owned()
    } else if of.contains("Iterator<") || of.starts_with("std::iter::") {
        "collect it: `.collect::<Vec<_>>()`".to_owned()
    } else {
        let boxed = of.replace("impl ", "dyn ");
        format!("box it: `let {name}: Box<{boxed}> = Box::new(…);`")
    };
    Some(
        Explanation::sentence(format!(
            "`{name}` is an `{of}`, a type without a name, so it cannot outlive the cell"
        ))
        .and_hint(format!("{how}; or use it within the cell, between `{{` and `}}`")),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn evcxr_s_messages_are_replaced_and_others_kept() {
        for (text, part) in [
            ("The variable `f` is a closure, which cannot be persisted.", "`fn f(…) { … }`"),
            (
                "The variable `x` has type `impl Future<Output = i32>` which cannot be persisted.",
                "`.await`",
            ),
            (
                "The variable `x` has type `std::iter::Rev<impl FnMut(u8)>` which cannot be persisted.",
                "`.collect::<Vec<_>>()`",
            ),
            ("Couldn't automatically determine type of variable `v`.", "`let v: Vec<f32> = …;`"),
            ("error: no matching package named `nothere` found", "needs the network"),
        ] {
            let hint = message(text).unwrap().hint.unwrap();
            assert!(hint.contains(part), "{hint}");
        }
        for text in ["", "`", "Something else"] {
            assert_eq!(message(text), None, "{text}");
        }
    }
}
