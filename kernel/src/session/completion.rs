//! Completion through evcxr's rust-analyzer, with positions in bytes.

use std::collections::{HashMap, HashSet};

use cloze::display::Content;
use evcxr::CommandContext;

use super::completeness::{self, Completeness};
use super::usage::Usage;
use super::{documentation, types};

/// The possible replacements of the bytes `start..end`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Completions {
    /// Bare names: no arguments, no snippets.
    pub matches: Vec<String>,
    /// The details of each match.
    pub details: Vec<Detail>,
    pub start: usize,
    pub end: usize,
}

/// The kind and the type of a completion.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Detail {
    /// As JupyterLab names it: `function`, `class`, `instance`, `module`, `keyword`, `magic`, …
    pub kind: String,
    /// Its type or its arguments, if they are known.
    pub text: String,
}

impl Completions {
    /// Returns no completions.
    pub fn none(position: usize) -> Self {
        Self { start: position, end: position, ..Self::default() }
    }
}

/// Types are inferred for the first matches only: nobody reads a longer list, and 180 took 0.4 s.
const TYPED: usize = 50;

/// Completes the Rust code before `position`: the names first that the session uses most.
pub fn complete(
    context: &mut CommandContext,
    usage: &Usage,
    code: &str,
    position: usize,
) -> Completions {
    // rust-analyzer sometimes fails in incomplete code.
    let Ok(found) = context.completions(code, position) else {
        return Completions::none(position);
    };
    let typed = code.get(found.start_offset..position).unwrap_or_default();
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
        // Without its arguments `iter().len` does not complete `le`.
        .filter(|(name, _)| !name.is_empty() && name.starts_with(typed))
        .collect();
    // If a field and a method have the same name, the field is private: the method comes first.
    let order = |(name, detail): &(String, Detail)| (name.clone(), detail.kind != "function");
    named.sort_by_key(order);
    named.dedup_by(|one, other| one.0 == other.0);
    let (start, end) = (found.start_offset, found.end_offset);
    // The names in this cell are the latest ones.
    let mut usage = usage.clone();
    let before = code.get(..start).unwrap_or_default();
    usage.note(before);
    // The session's variables come before equally used items.
    let variables: HashSet<&str> = context.variables_and_types().map(|(name, _)| name).collect();
    named.sort_by_key(|(name, _)| !variables.contains(name.as_str()));
    usage.sort(&mut named, before.ends_with('.'), |(name, _)| name);
    let (matches, mut details): (Vec<String>, Vec<Detail>) = named.into_iter().unzip();
    add_types(context, before, &matches, &mut details);
    Completions { matches, details, start, end }
}

/// Returns the name of a function or macro without the arguments that rust-analyzer adds for editors.
fn bare_name(code: &str) -> &str {
    let end = code.find(['(', '{', '[', '<', ' ', ';']).unwrap_or(code.len());
    let name = code[..end].trim_end_matches("::");
    if name.is_empty() { code } else { name }
}

/// Returns the arguments of a call, as rust-analyzer would fill them in.
fn arguments(code: &str, name: &str) -> String {
    let rest = code[name.len()..].trim_end_matches(';');
    match rest.starts_with('(') {
        true => rest.to_owned(),
        false => String::new(),
    }
}

/// Adds the types that rust-analyzer infers: of variables and fields, and of the results of calls.
fn add_types(
    context: &mut CommandContext,
    before: &str,
    matches: &[String],
    details: &mut [Detail],
) {
    let place = Place::before(before);
    let first = matches.len().min(TYPED);
    let inferred = inferred(context, &place, &matches[..first], &details[..first]);
    let inferred = inferred.unwrap_or_default();
    for (detail, ty) in details.iter_mut().zip(inferred) {
        match detail.kind.as_str() {
            _ if ty == types::UNKNOWN => {}
            "function" if ty != "()" => detail.text = format!("{} -> {ty}", detail.text),
            "instance" => detail.text = ty,
            _ => {}
        }
    }
    if place.receiver.is_empty() {
        let variables: HashMap<&str, &str> = context.variables_and_types().collect();
        for (name, detail) in matches.iter().zip(details) {
            if let Some(ty) = variables.get(name.as_str())
                && detail.text.is_empty()
            {
                detail.text = types::short(ty);
            }
        }
    }
}

/// Infers the types of all matches. The calls have no arguments, on which their types seldom depend.
fn inferred(
    context: &mut CommandContext,
    place: &Place,
    matches: &[String],
    details: &[Detail],
) -> Option<Vec<String>> {
    let receiver = place.receiver;
    let value = |(name, detail): (&String, &Detail)| match detail.kind.as_str() {
        "function" => format!("{receiver}{name}()"),
        "instance" => format!("{receiver}{name}"),
        _ => "()".to_owned(),
    };
    let values: Vec<String> = matches.iter().zip(details).map(value).collect();
    types_of(context, place.statements, &values)
}

/// Infers the types of values after some statements at once, through a tuple of them, because every query
/// runs the analysis again.
pub fn types_of(
    context: &mut CommandContext,
    statements: &str,
    values: &[String],
) -> Option<Vec<String>> {
    let code = format!("{statements}\nlet cloze_types = ({},);\ncloze_types", values.join(", "));
    let (text, _) = hover(context, &code)?;
    let tuple = text.strip_prefix("let cloze_types: ")?;
    types::parts(tuple).filter(|types| types.len() == values.len())
}

/// The code before a word: whole statements, and the expression whose member the word is.
#[derive(Debug, PartialEq, Eq)]
pub struct Place<'a> {
    pub statements: &'a str,
    receiver: &'a str,
}

impl<'a> Place<'a> {
    pub fn before(code: &'a str) -> Self {
        let (rest, receiver) = code.split_at(receiver_start(code));
        let end = rest.rfind([';', '}']).map_or(0, |index| index + 1);
        let statements = &rest[..end];
        // Inside a block the statements before are not complete by themselves.
        let whole = completeness::judge(statements) == Completeness::Complete;
        Self { statements: if whole { statements } else { "" }, receiver }
    }
}

/// Returns where the expression begins whose member is completed at the end of `code`.
fn receiver_start(code: &str) -> usize {
    if !code.ends_with('.') && !code.ends_with("::") {
        return code.len();
    }
    let mut open = 0;
    let mut start = code.len();
    for (index, character) in code.char_indices().rev() {
        let belongs = match character {
            ')' | ']' => {
                open += 1;
                true
            }
            '(' | '[' if open > 0 => {
                open -= 1;
                true
            }
            _ if open > 0 => true,
            // A chain of calls on several lines.
            ' ' | '\n' => code[start..].trim_start().starts_with('.'),
            _ => character.is_alphanumeric() || "_.:?".contains(character),
        };
        if !belongs {
            break;
        }
        start = index;
    }
    start
}

/// Returns rust-analyzer's description of the name at the end of `code`, as text and as HTML.
pub fn hover(context: &mut CommandContext, code: &str) -> Option<(String, String)> {
    let (text, html) = context.hover_at(code, code.len()).ok()?;
    let found = (text != "No documentation found").then_some((text, html));
    found.map(|(text, html)| documentation::shown(&text, &html))
}

/// Returns a documentation below a title of one or more lines.
pub fn titled(title: &str, text: &str, html: &str) -> Content {
    let marked = cloze::view::style::escape(title);
    Content::html(format!("<pre><b>{marked}</b></pre>\n{html}"))
        .with_text(format!("{title}\n\n{text}"))
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
    fn the_arguments_of_a_call_are_separate() {
        let arguments = |code| arguments(code, bare_name(code));
        assert_eq!(arguments("push(value)"), "(value)");
        assert_eq!(arguments("clear();"), "()");
        assert_eq!(arguments("println!(\"$1\")"), "(\"$1\")");
        assert_eq!(arguments("Vec"), "");
    }

    #[test]
    fn a_member_belongs_to_the_whole_expression_before_it() {
        for (code, statements, receiver) in [
            ("names.", "", "names."),
            ("let n = names.iter().", "", "names.iter()."),
            ("f(a[0].", "", "a[0]."),
            ("let v = vec![1]; v.", "let v = vec![1];", "v."),
            ("fn f() { let v = 1; v.", "", "v."),
            ("let x = a\n    .b()\n    .", "", "a\n    .b()\n    ."),
            ("std::fs::", "", "std::fs::"),
            ("1 + ", "", ""),
            ("größe.", "", "größe."),
            (")))).", "", "))))."),
            ("", "", ""),
        ] {
            let place = Place { statements, receiver };
            assert_eq!(Place::before(code), place, "{code}");
        }
    }
}
