//! Completion and documentation by evcxr's rust-analyzer, with positions in bytes.

use cloze::display::Content;
use evcxr::CommandContext;

/// What may stand in place of the bytes `start..end`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Completions {
    /// Bare names: no arguments, no snippets.
    pub matches: Vec<String>,
    pub start: usize,
    pub end: usize,
}

pub fn complete(context: &mut CommandContext, code: &str, position: usize) -> Completions {
    // rust-analyzer has no answer in half-written code now and then: then there is nothing to offer.
    let Ok(found) = context.completions(code, position) else {
        return Completions {
            matches: Vec::new(),
            start: position,
            end: position,
        };
    };
    let mut matches: Vec<String> = found
        .completions
        .iter()
        .map(|completion| bare_name(&completion.code).to_owned())
        .filter(|name| !name.is_empty())
        .collect();
    matches.sort();
    matches.dedup();
    Completions {
        matches,
        start: found.start_offset,
        end: found.end_offset,
    }
}

/// A call's or a macro's name without what rust-analyzer adds for an editor with snippets.
fn bare_name(code: &str) -> &str {
    let end = code
        .find(['(', '{', '[', '<', ' ', ';'])
        .unwrap_or(code.len());
    let name = code[..end].trim_end_matches("::");
    if name.is_empty() { code } else { name }
}

pub fn inspect(context: &mut CommandContext, code: &str, position: usize) -> Option<Content> {
    let end = end_of_word(code, position);
    let (text, html) = context.hover_at(&code[..end], end).ok()?;
    (text != "No documentation found").then(|| Content::html(html).with_text(text))
}

/// The end of the identifier at or before `position`.
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
    fn a_completion_is_a_bare_name() {
        assert_eq!(bare_name("push(value)"), "push");
        assert_eq!(bare_name("println!(\"$1\")"), "println!");
        assert_eq!(bare_name("collections::"), "collections");
        assert_eq!(bare_name("Vec"), "Vec");
        assert_eq!(bare_name(":vars"), ":vars");
    }

    #[test]
    fn the_word_under_the_cursor_is_taken_whole() {
        assert_eq!(end_of_word("let x = Vec::new();", 9), 11);
        assert_eq!(end_of_word("größe", 3), "größe".len());
        assert_eq!(end_of_word("ab", 99), 2);
    }
}
