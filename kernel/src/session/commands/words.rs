//! What users of other programs type for a command: `exit`, `help`, `?name`, and commands that don't exist.

use super::{names, wrong};
use crate::session::CellError;
use crate::session::evaluator::Evaluator;
use crate::session::source::command_lines;

/// Commands of the terminal, which the session itself does not know.
const OF_TERMINAL: [&str; 2] = [":quit", ":edit"];

const EXIT: &str =
    "in the terminal `:quit` or Ctrl-D exits; in a notebook, the menu Kernel has Shut Down";
const HELP: &str =
    "`:help` lists the commands, `:doc Vec` shows documentation, `:lesson` lists the lessons";

/// Returns the advice for a cell that is such a word.
pub fn advice(evaluator: &mut Evaluator, code: &str) -> Option<CellError> {
    if let Some((_, line)) = command_lines(code).next() {
        let word = line.trim().split(char::is_whitespace).next()?;
        let commands = commands(evaluator);
        let unknown = word.starts_with(':') && !commands.iter().any(|known| known == word);
        return unknown.then(|| wrong(&no_command(word, &commands)));
    }
    let word = code.trim();
    let text = advice_on(word)?;
    // A variable or a function of that name comes first.
    let name = word.split(['(', '?', '.']).next().unwrap_or_default();
    let defined = evaluator.variables().any(|(known, _)| known == name)
        || evaluator.context.defined_item_names().any(|known| known == name);
    (!defined).then(|| wrong(&text))
}

/// All commands except [`OF_TERMINAL`].
fn commands(evaluator: &mut Evaluator) -> Vec<String> {
    // evcxr lists its commands only as completions.
    let of_evcxr = evaluator.context.completions(":", 1).map(|found| found.completions);
    let of_evcxr = of_evcxr.into_iter().flatten().map(|found| found.code);
    names().map(str::to_owned).chain(of_evcxr).collect()
}

fn no_command(word: &str, commands: &[String]) -> String {
    if OF_TERMINAL.contains(&word) {
        return format!("`{word}` is a command of the terminal, at its prompt");
    }
    let meant = match word {
        ":q" | ":exit" | ":bye" => Some(":quit"),
        ":h" | ":?" | ":commands" => Some(":help"),
        _ => {
            let all = commands.iter().map(String::as_str).chain(OF_TERMINAL);
            let distance = |name: &str| match name.starts_with(word) {
                true => 1,
                false => strsim::damerau_levenshtein(name, word),
            };
            let near = if word.len() < 5 { 1 } else { 2 };
            all.filter(|name| distance(name) <= near).min_by_key(|name| distance(name))
        }
    };
    let meant = meant.map(|name| format!(": do you mean `{name}`?")).unwrap_or_default();
    match meant.as_str() {
        "" => format!("there is no command `{word}`; `:help` lists them"),
        _ => format!("there is no command `{word}`{meant} `:help` lists them all"),
    }
}

fn advice_on(word: &str) -> Option<String> {
    match word.trim_end_matches("()") {
        "exit" | "quit" => return Some(format!("`{word}` is no command: {EXIT}")),
        "help" => return Some(format!("`{word}` is no command: {HELP}")),
        _ => {}
    }
    let asked = word.strip_prefix("help(").and_then(|rest| rest.strip_suffix(')'));
    let name = asked.unwrap_or_else(|| word.trim_matches('?')).trim();
    let is_path = name.chars().all(|c| c.is_alphanumeric() || "_:.!".contains(c));
    let asks = word.len() > name.len() && !name.is_empty() && is_path;
    asks.then(|| {
        format!("`:doc {name}` shows the documentation of `{name}`, `:type {name}` its type")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_other_programs_have_advice() {
        let has = |word: &str, part: &str| {
            assert!(advice_on(word).is_some_and(|text| text.contains(part)), "{word}");
        };
        for word in ["exit", "quit", "exit()", "quit()"] {
            has(word, "`:quit`");
        }
        has("help", "`:help`");
        for word in ["?Vec::new", "??Vec::new", "Vec::new?", "help(Vec::new)", "? Vec::new"] {
            has(word, "`:doc Vec::new`");
        }
        for word in
            ["x", "f()?", "exit(1)", "a ? b", "?", "", "let a = f?", "std::process::exit(0)"]
        {
            assert_eq!(advice_on(word), None, "{word}");
        }
    }

    #[test]
    fn an_unknown_command_has_a_similar_one() {
        let commands: Vec<String> = names().map(str::to_owned).collect();
        for (word, part) in [
            (":lessons", "`:lesson`"),
            (":sol", "`:solution`"),
            (":exit", "`:quit`"),
            (":hlep", "`:help`"),
            (":edit", "the terminal"),
            (":xylophone", "no command `:xylophone`; `:help`"),
        ] {
            let text = no_command(word, &commands);
            assert!(text.contains(part), "{text}");
        }
    }
}
