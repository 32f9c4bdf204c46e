//! The session's own commands (`:vars`, `:check`, `:replay`, …), the same in notebooks and in the
//! REPL. Whatever begins with a colon and is not in this table goes to evcxr.

mod course;
mod log;

use std::time::Instant;

use cloze::display::Content;
use cloze::lessons;
use cloze::view::style::escape;

pub use course::Course;
pub use log::Log;

use super::evaluator::Evaluator;
use super::{CellError, Event, Outcome, Sink, completion, errors};

/// A command: its name, what may follow it, and what it does.
struct Entry(&'static str, &'static str, &'static str);

const CELLS: [Entry; 9] = [
    Entry(":vars", "", "the variables and their types"),
    Entry(":shapes", "", "the shapes of all tensors"),
    Entry(
        ":type",
        "EXPR",
        "the type of an expression, which is not run",
    ),
    Entry(
        ":time",
        "CODE",
        "runs the code (or the cell below) and says how long it took",
    ),
    Entry(
        ":doc",
        "NAME",
        "the documentation of a function, type or method",
    ),
    Entry(":dep", "NAME = \"1\"", "another crate for the next cells"),
    Entry(
        ":replay",
        "",
        "runs the cells again that defined things: after all variables were lost",
    ),
    Entry(":clear", "", "forgets all variables and items"),
    Entry(
        ":help",
        "[all]",
        "this list; with the word all, the commands of evcxr too",
    ),
];

const LESSONS: [Entry; 5] = [
    Entry(
        ":lesson",
        "[01]",
        "the lessons; with a number, goes to the beginning of that one",
    ),
    Entry(
        ":next",
        "",
        "the lesson's next step: text, code that is run, or an exercise",
    ),
    Entry(":check", "[01.2]", "judges your solution of an exercise"),
    Entry(":hint", "[01.2]", "the exercise's next hint"),
    Entry(":solution", "[01.2]", "one way to solve the exercise"),
];

const OTHERS: [Entry; 1] = [Entry(
    "!ls",
    "",
    "whatever stands behind the ! is run by the shell",
)];

/// A command as it was written.
struct Call<'a> {
    name: &'static str,
    argument: &'a str,
    /// The lines below.
    rest: &'a str,
}

fn parse(code: &str) -> Option<Call<'_>> {
    let code = code.trim();
    let (line, rest) = code.split_once('\n').unwrap_or((code, ""));
    let (word, argument) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let entry = names().find(|name| *name == word)?;
    // Cargo and evcxr know what to make of it; only the way to the registry is opened here.
    let alone = rest.trim().is_empty() || entry == ":time";
    (alone && entry != ":dep").then_some(Call {
        name: entry,
        argument: argument.trim(),
        rest,
    })
}

/// The names of the session's own commands.
fn names() -> impl Iterator<Item = &'static str> {
    CELLS.iter().chain(&LESSONS).map(|entry| entry.0)
}

/// What a command that ends in `before` may go on with, and where that begins: its name, or the
/// lesson or exercise that it wants. `None` where it is no command.
pub fn completions(before: &str) -> Option<(usize, Vec<String>)> {
    let line = before.rsplit('\n').next()?.trim_start();
    let start_of = |word: &str| before.len() - word.len();
    if !line.starts_with(':') || line.starts_with("::") {
        return None;
    }
    let Some((name, word)) = line.split_once(' ') else {
        let matching = names().filter(|name| name.starts_with(line));
        return Some((start_of(line), matching.map(str::to_owned).collect()));
    };
    let lessons = lessons::all().ok()?;
    let all: Vec<String> = match name {
        ":lesson" => lessons
            .iter()
            .map(|lesson| lesson.name[..2].to_owned())
            .collect(),
        ":check" | ":hint" | ":solution" => {
            let exercises = lessons.into_iter().flat_map(|lesson| lesson.exercises);
            exercises.map(|exercise| exercise.id).collect()
        }
        _ => return None,
    };
    let matching = all.into_iter().filter(|one| one.starts_with(word));
    Some((start_of(word), matching.collect()))
}

/// Runs `code` where it is one of the commands above.
pub fn run(evaluator: &mut Evaluator, code: &str, sink: &Sink) -> Option<Outcome> {
    let call = parse(code)?;
    let done = match call.name {
        ":help" if call.argument == "all" => return Some(evaluator.cell(":help", sink)),
        ":help" => show(sink, help()),
        ":vars" => show(sink, variables(evaluator)),
        ":shapes" => match shapes(evaluator) {
            Some(cell) => return Some(evaluator.cell(&cell, sink)),
            None => say(sink, "No variable is a tensor."),
        },
        ":type" => type_of(evaluator, call.argument).map(|text| say_text(sink, &text)),
        ":doc" => documentation(evaluator, call.argument).map(|content| put(sink, content)),
        ":time" => return Some(timed(evaluator, &call, sink)),
        ":replay" => return Some(log::replay(evaluator, sink)),
        ":clear" => {
            evaluator.log = Log::default();
            return Some(evaluator.cell(":clear", sink));
        }
        _ => return Some(course::run(evaluator, call.name, call.argument, sink)),
    };
    Some(Outcome {
        error: done.err(),
        pages: Vec::new(),
    })
}

/// A command's outcome: shown already, or the reason why not.
type Done = Result<(), CellError>;

fn show(sink: &Sink, content: Content) -> Done {
    put(sink, content);
    Ok(())
}

fn say(sink: &Sink, text: &str) -> Done {
    say_text(sink, text);
    Ok(())
}

fn put(sink: &Sink, content: Content) {
    sink(Event::Display { content, id: None });
}

fn say_text(sink: &Sink, text: &str) {
    put(sink, Content::text(text));
}

fn wrong(message: &str) -> CellError {
    errors::plain("command", message)
}

fn help() -> Content {
    let mut text = String::new();
    let mut html = String::new();
    let groups = [
        ("Cells", &CELLS[..]),
        ("Lessons", &LESSONS[..]),
        ("The shell", &OTHERS[..]),
    ];
    for (title, entries) in groups {
        text += &format!("{title}\n");
        html += &format!("<tr><th colspan=\"2\" style=\"text-align:left\">{title}</th></tr>");
        for Entry(name, argument, what) in entries {
            let call = format!("{name} {argument}");
            text += &format!("  {call:<18}  {what}\n");
            html += &format!(
                "<tr><td style=\"text-align:left\"><code>{}</code></td>\
                 <td style=\"text-align:left\">{}</td></tr>",
                escape(call.trim_end()),
                escape(what)
            );
        }
    }
    Content::html(format!("<table>{html}</table>")).with_text(text.trim_end())
}

fn variables(evaluator: &Evaluator) -> Content {
    let mut variables = evaluator.variables();
    variables.sort();
    if variables.is_empty() {
        return Content::text("There are no variables yet.");
    }
    let width = variables.iter().map(|(name, _)| name.chars().count()).max();
    let width = width.unwrap_or(0);
    let mut text = Vec::new();
    let mut html = String::new();
    for (name, kind) in &variables {
        text.push(format!("{name:<width$}  {kind}"));
        html += &format!(
            "<tr><td style=\"text-align:left\">{}</td>\
             <td style=\"text-align:left\"><code>{}</code></td></tr>",
            escape(name),
            escape(kind)
        );
    }
    Content::html(format!("<table>{html}</table>")).with_text(text.join("\n"))
}

/// The cell that shows every tensor's shape.
fn shapes(evaluator: &Evaluator) -> Option<String> {
    let mut tensors: Vec<String> = evaluator
        .variables_as_written()
        .into_iter()
        .filter(|(_, kind)| kind.starts_with("Tensor<") || kind.contains("::Tensor<"))
        .filter(|(_, kind)| !kind.starts_with("Vec<") && !kind.starts_with('('))
        .map(|(name, _)| format!("cloze::view::tensor::row({name:?}, &{name})"))
        .collect();
    tensors.sort();
    let rows = tensors.join(", ");
    (!tensors.is_empty()).then(|| format!("cloze::view::tensor::shapes(&[{rows}]);"))
}

fn type_of(evaluator: &mut Evaluator, expression: &str) -> Result<String, CellError> {
    if expression.is_empty() {
        return Err(wrong("`:type` wants an expression: `:type x.len()`"));
    }
    let name = "the_type_of_this";
    let code = format!("let {name} = {expression};\n{name}");
    let found = completion::inspect(&mut evaluator.context, &code, code.len());
    let text = found.map(|content| content.plain()).unwrap_or_default();
    text.lines()
        .find_map(|line| line.split_once(&format!("{name}: ")).map(|(_, kind)| kind))
        .filter(|kind| !kind.contains("{unknown}"))
        .map(str::to_owned)
        .ok_or_else(|| {
            wrong(&format!(
                "the type of `{expression}` is not known: is it complete, and does it compile?"
            ))
        })
}

fn documentation(evaluator: &mut Evaluator, name: &str) -> Result<Content, CellError> {
    if name.is_empty() {
        return Err(wrong("`:doc` wants a name: `:doc Vec::new`"));
    }
    completion::inspect(&mut evaluator.context, name, name.len())
        .ok_or_else(|| wrong(&format!("there is no documentation of `{name}`")))
}

fn timed(evaluator: &mut Evaluator, call: &Call<'_>, sink: &Sink) -> Outcome {
    let code = format!("{}\n{}", call.argument, call.rest);
    let start = Instant::now();
    let outcome = evaluator.cell(code.trim(), sink);
    let all = start.elapsed();
    if outcome.error.is_none() {
        let ran = evaluator.last_run.unwrap_or_default();
        say_text(
            sink,
            &format!(
                "ran {:.3} s, compiled {:.3} s",
                ran.as_secs_f64(),
                all.saturating_sub(ran).as_secs_f64()
            ),
        );
    }
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_known_by_their_first_word() {
        let call = parse("  :type x + 1 \n").unwrap();
        assert_eq!((call.name, call.argument), (":type", "x + 1"));
        let call = parse(":time\nlet a = 1;\na").unwrap();
        assert_eq!((call.name, call.rest), (":time", "let a = 1;\na"));
        // evcxr's own, several at once, and what is no command.
        for code in [
            ":opt 2",
            ":dep a = \"1\"",
            ":vars\n:vars",
            "a",
            "",
            ":typed x",
            "::std::f()",
        ] {
            assert!(parse(code).is_none(), "{code}");
        }
    }

    #[test]
    fn commands_and_what_they_want_are_completed() {
        let found = |before: &str| completions(before).map(|(start, all)| (start, all.join(" ")));
        assert_eq!(found(":sha"), Some((0, ":shapes".into())));
        assert_eq!(found("let a = 1;\n  :he"), Some((13, ":help".into())));
        assert_eq!(found(":hint 01.2"), Some((6, "01.2".into())));
        assert_eq!(found(":lesson 0").map(|(start, _)| start), Some(8));
        assert_eq!(found(":opt"), Some((0, String::new())));
        for before in ["", "a", "::std", ":opt 2", "let a = b"] {
            assert_eq!(found(before), None, "{before}");
        }
    }

    #[test]
    fn every_command_is_in_the_help() {
        let text = help().plain();
        assert!(names().all(|name| text.contains(name)));
        assert!(
            text.lines().all(|line| line.chars().count() <= 100),
            "{text}"
        );
    }
}
