//! Documentation of names and the methods of types, through evcxr's rust-analyzer.

use cloze::display::Content;
use evcxr::CommandContext;

use super::completion::{complete, hover, titled};
use super::usage::Usage;
use super::{signature, types};

/// Returns the documentation of the name at `position`, or the signature of the function in whose
/// arguments it is.
pub fn inspect(context: &mut CommandContext, code: &str, position: usize) -> Option<Content> {
    let end = end_of_word(code, position);
    let code = &code[..end];
    let word = code.rsplit(|character| !types::is_name(character)).next().unwrap_or_default();
    if !word.starts_with(|first: char| first.is_alphabetic() || first == '_')
        && let Some(call) = signature::of_call(context, code)
    {
        return Some(call);
    }
    match hover(context, code) {
        Some((text, html)) => Some(match headline(&text) {
            Some(short) => titled(&short, &text, &html),
            None => Content::html(html).with_text(text),
        }),
        None => signature::of_call(context, code),
    }
}

/// Methods of every type, which say nothing about one.
const OF_ALL: [&str; 9] = [
    "borrow",
    "borrow_mut",
    "clone_into",
    "from",
    "into",
    "to_owned",
    "try_from",
    "try_into",
    "type_id",
];

/// Returns the signatures of a type's functions and methods, one a line, or none if `text`, the documentation
/// of `name`, is not that of a type.
pub fn methods(context: &mut CommandContext, name: &str, text: &str) -> Vec<String> {
    let declares = |line: &str| {
        let line = line.trim_start_matches("pub ");
        ["struct ", "enum ", "union ", "type ", "trait "].iter().any(|word| line.starts_with(word))
    };
    if !text.lines().any(declares) {
        return Vec::new();
    }
    let code = format!("{name}::");
    let found = complete(context, &Usage::default(), &code, code.len());
    let all = found.matches.iter().zip(&found.details);
    all.filter(|(name, detail)| detail.kind == "function" && !OF_ALL.contains(&name.as_str()))
        .map(|(name, detail)| format!("{name}{}", without_unknown(&detail.text)))
        .collect()
}

/// Removes lists of type parameters of which nothing is known: `Bert<_, _>`.
fn without_unknown(signature: &str) -> String {
    let lists = (1..=8).map(|count| format!("<{}>", vec!["_"; count].join(", ")));
    lists.fold(signature.to_owned(), |short, list| short.replace(&list, ""))
}

/// Returns a function's signature with its known types, or the first line about a tensor, with its type
/// shortened.
fn headline(text: &str) -> Option<String> {
    if let Some(signature) = signature::read(text) {
        return signature.is_specific.then(|| signature.to_string());
    }
    text.lines()
        // The type of an `impl` block has no sizes, only parameters.
        .filter(|line| !line.trim_start().starts_with("impl"))
        .map(|line| (line, types::short_tensors(line)))
        .find(|(line, short)| line != short)
        .map(|(_, short)| short)
}

/// Returns the end of the identifier at or before `position`.
fn end_of_word(code: &str, position: usize) -> usize {
    let mut position = position.min(code.len());
    while !code.is_char_boundary(position) {
        position -= 1;
    }
    let rest = code[position..]
        .find(|character: char| !character.is_alphanumeric() && character != '_')
        .unwrap_or(code.len() - position);
    position + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_type_parameters_are_left_out_of_signatures() {
        let short = without_unknown("(a) -> Result<Bert<_, _, _>, Error>");
        assert_eq!(short, "(a) -> Result<Bert, Error>");
        assert_eq!(without_unknown("() -> Vec<u8>"), "() -> Vec<u8>");
    }

    #[test]
    fn a_tensor_has_a_short_headline() {
        assert_eq!(
            headline("dfdx\n\na: Tensor<(Const<2>, Const<3>), f32, Cpu>").as_deref(),
            Some("a: (2, 3) f32 cpu")
        );
        assert_eq!(headline("names: Vec<String>"), None);
    }

    #[test]
    fn the_end_of_the_word_at_the_cursor_is_found() {
        assert_eq!(end_of_word("let x = Vec::new();", 9), 11);
        assert_eq!(end_of_word("größe", 3), "größe".len());
        assert_eq!(end_of_word("ab", 99), 2);
    }
}
