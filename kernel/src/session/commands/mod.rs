//! The session's own commands (`:vars`, `:check`, `:replay`, …), the same in notebooks and in the
//! REPL. All other lines that begin with a colon go to evcxr.

mod check;
mod lessons;
mod words;

use std::time::Instant;

use cloze::display::Content;
use cloze::view::style::escape;
use evcxr::CommandContext;

use super::completion::{Completions, Detail};
use super::evaluator::Evaluator;
use super::{CellError, Event, Outcome, Sink, inspection, types};

/// Commands as a user writes them, and what they do.
type Table = [(&'static str, &'static str)];

const CELLS: &Table = &[
    (":vars", "the variables and their types"),
    (":shapes", "the shapes of all tensors"),
    (":type EXPR", "the type of an expression, which is not run"),
    (
        ":time [CODE]",
        "runs code (or the cell below), shows how long; alone: how long the cell runs",
    ),
    (":time 10 CODE", "runs it ten times, and shows the median, the minimum and the maximum"),
    (":queue", "in a subshell of a notebook: the cells that wait for the running one"),
    (":cancel N", "in a subshell: removes a cell from that queue"),
    (":check CODE", "errors, warnings and types of code (or of the cell below), which is not run"),
    (":doc NAME", "the documentation of a function, type or method"),
    (":dep NAME = \"1\"", "adds a crate for the next cells"),
    (":replay", "runs the cells again that defined something: after a loss of all variables"),
    (":clear", "forgets all variables, items and added crates"),
    (":help [all]", "this list; with the word all, the commands of evcxr too"),
];

const LESSONS: &Table = &[
    (":lesson [01]", "lists the lessons; with a number, begins that lesson"),
    (":next", "the lesson's next step: text, code that is run, or an exercise"),
    (":check [01.2]", "checks your solution of an exercise; `:check 01.2 code` shows the check"),
    (":hint [01.2]", "the exercise's next hint"),
    (":solution [01.2]", "a solution of the exercise"),
    (":yours 01.2 …", "your code of exercises of earlier lessons, or the solutions"),
    (":review [01]", "asks what is due; with a number, five questions about that lesson"),
    (":review before 01", "asks three to five questions about the lessons before that one"),
];

const SHELL: &Table = &[("!ls", "the shell runs whatever follows the !")];

/// A command that the user has entered.
struct Call<'a> {
    name: &'static str,
    argument: &'a str,
    /// The lines below.
    rest: &'a str,
}

impl Call<'_> {
    /// Returns whether it checks code, and not an exercise.
    fn is_check_of_code(&self) -> bool {
        self.name == ":check"
            && (!self.rest.trim().is_empty() || !check::names_exercise(self.argument))
    }
}

fn parse(code: &str) -> Option<Call<'_>> {
    let code = code.trim();
    let (line, rest) = code.split_once('\n').unwrap_or((code, ""));
    let (word, argument) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let name = names().find(|name| *name == word)?;
    // evcxr handles `:dep`, and commands with code below them.
    let alone = rest.trim().is_empty() || matches!(name, ":time" | ":check");
    (alone && name != ":dep").then_some(Call { name, argument: argument.trim(), rest })
}

/// The names of the session's own commands.
fn names() -> impl Iterator<Item = &'static str> {
    const AGAIN: [&str; 3] = [":time 10 CODE", ":check CODE", ":review before 01"];
    let all = CELLS.iter().chain(LESSONS).filter(|(call, _)| !AGAIN.contains(call));
    all.filter_map(|(call, _)| call.split(' ').next())
}

/// Completes a command and its argument. Returns `None` if the text before `position` is not a command.
pub fn complete(context: &mut CommandContext, code: &str, position: usize) -> Option<Completions> {
    let (start, mut matches) = own_matches(code.get(..position)?)?;
    // evcxr's own commands follow Cloze's.
    let others = context.completions(code, position).ok();
    for other in others.into_iter().flat_map(|found| found.completions) {
        if other.kind == "magic" && !matches.contains(&other.code) {
            matches.push(other.code);
        }
    }
    let detail = Detail { kind: "magic".to_owned(), text: String::new() };
    Some(Completions { details: vec![detail; matches.len()], matches, start, end: position })
}

/// Returns the session's own commands, or lessons or exercises, that complete the text `before`, and
/// where the completed word begins.
fn own_matches(before: &str) -> Option<(usize, Vec<String>)> {
    let line = before.rsplit('\n').next()?.trim_start();
    let start_of = |word: &str| before.len() - word.len();
    if !line.starts_with(':') || line.starts_with("::") {
        return None;
    }
    let Some((name, word)) = line.split_once(' ') else {
        let matching = names().filter(|name| name.starts_with(line));
        return Some((start_of(line), matching.map(str::to_owned).collect()));
    };
    let lessons = cloze::lessons::all().ok()?.into_iter();
    let all: Vec<String> = match name {
        ":lesson" | ":review" => lessons.map(|lesson| lesson.name[..2].to_owned()).collect(),
        ":check" | ":hint" | ":solution" | ":yours" => {
            let exercises = lessons.flat_map(|lesson| lesson.exercises);
            exercises.map(|exercise| exercise.id).collect()
        }
        _ => return None,
    };
    let matching = all.into_iter().filter(|one| one.starts_with(word));
    Some((start_of(word), matching.collect()))
}

/// Returns whether `code` is a command that runs no cell. One that would run a cell when none runs, `:shapes`,
/// answers from the types instead.
pub fn needs_no_cell(code: &str) -> bool {
    const OF_LESSONS: [&str; 2] = [":hint", ":solution"];
    const OTHERS: [&str; 5] = [":help", ":vars", ":shapes", ":type", ":doc"];
    parse(code).is_some_and(|call| {
        let Call { name, argument, rest } = call;
        call.is_check_of_code()
            || OF_LESSONS.contains(&name)
            || (OTHERS.contains(&name) && argument != "all")
            || (name == ":time" && argument.is_empty() && rest.trim().is_empty())
    })
}

/// Returns whether `code` asks the questions of a lesson: they may stay open.
pub fn is_review(code: &str) -> bool {
    parse(code).is_some_and(|call| call.name == ":review")
}

/// Runs `code` if it is one of the commands above.
pub fn run(evaluator: &mut Evaluator, code: &str, sink: &Sink) -> Option<Outcome> {
    let Some(call) = parse(code) else {
        return words::advice(evaluator, code).map(Outcome::from);
    };
    let Call { name, argument, rest } = call;
    let done = match name {
        ":check" if call.is_check_of_code() => check::run(evaluator, code, sink),
        ":help" if argument == "all" => Ok(evaluator.cell(":help", sink)),
        ":help" => Ok(show(sink, help())),
        ":vars" => Ok(show(sink, variables(evaluator))),
        ":shapes" => Ok(shapes(evaluator, sink)),
        ":type" => type_of(evaluator, argument).map(|text| show_text(sink, &text)),
        ":doc" => documentation(evaluator, argument).map(|content| show(sink, content)),
        ":queue" | ":cancel" => {
            Err(wrong("only a notebook has a queue of cells: the terminal runs one at a time"))
        }
        ":time" if argument.is_empty() && rest.trim().is_empty() => {
            Ok(show_text(sink, &time(evaluator)))
        }
        ":time" => Ok(timed(evaluator, &format!("{argument}\n{rest}"), sink)),
        ":replay" => Ok(replay(evaluator, sink)),
        ":clear" => Ok(evaluator.clear(sink)),
        _ => lessons::run(evaluator, name, argument, sink),
    };
    Some(done.unwrap_or_else(Outcome::from))
}

fn show(sink: &Sink, content: Content) -> Outcome {
    sink(Event::Display { content, id: None });
    Outcome::default()
}

fn show_text(sink: &Sink, text: &str) -> Outcome {
    show(sink, Content::text(text))
}

fn wrong(message: &str) -> CellError {
    CellError::new("command", message)
}

fn help() -> Content {
    let mut text = String::new();
    let mut html = String::new();
    for (title, entries) in [("Cells", CELLS), ("Lessons", LESSONS), ("The shell", SHELL)] {
        text += &format!("{title}\n");
        html += &format!("<tr><th colspan=\"2\" style=\"text-align:left\">{title}</th></tr>");
        for (call, what) in entries {
            text += &format!("  {call:<18}  {what}\n");
            html += &row(&format!("<code>{}</code>", escape(call)), &escape(what));
        }
    }
    Content::html(format!("<table>{html}</table>")).with_text(text.trim_end())
}

/// Returns a row of an HTML table.
fn row(left: &str, right: &str) -> String {
    const CELL: &str = "<td style=\"text-align:left\">";
    format!("<tr>{CELL}{left}</td>{CELL}{right}</td></tr>")
}

fn variables(evaluator: &Evaluator) -> Content {
    let mut variables: Vec<_> = evaluator.variables().collect();
    variables.sort_unstable();
    if variables.is_empty() {
        return Content::text("There are no variables yet.");
    }
    let short = variables.into_iter().map(|(name, kind)| (name.to_owned(), types::short(kind)));
    let variables: Vec<_> = short.collect();
    let rows = variables.iter();
    let html: String = rows
        .map(|(name, kind)| row(&escape(name), &format!("<code>{}</code>", escape(kind))))
        .collect();
    Content::html(format!("<table>{html}</table>")).with_text(aligned(variables).join("\n"))
}

/// Returns lines of names and types, in two columns.
fn aligned(rows: impl IntoIterator<Item = (String, String)>) -> Vec<String> {
    let rows: Vec<_> = rows.into_iter().collect();
    let width = rows.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
    rows.into_iter().map(|(name, kind)| format!("{name:<width$}  {kind}")).collect()
}

/// Shows every tensor's shape: by a cell, or by the types while another cell runs.
fn shapes(evaluator: &mut Evaluator, sink: &Sink) -> Outcome {
    let is_tensor = |kind: &str| {
        (kind.starts_with("Tensor<") || kind.contains("::Tensor<"))
            && !kind.starts_with("Vec<")
            && !kind.starts_with('(')
    };
    let tensors = evaluator.variables().filter(|(_, kind)| is_tensor(kind));
    if evaluator.runs {
        let mut rows: Vec<_> =
            tensors.map(|(name, kind)| format!("{name}  {}", types::short(kind))).collect();
        rows.sort();
        rows.push("(A cell runs: these are the shapes in the types.)".to_owned());
        return show_text(sink, &rows.join("\n"));
    }
    let mut rows: Vec<String> =
        tensors.map(|(name, _)| format!("cloze::view::tensor::row({name:?}, &{name})")).collect();
    if rows.is_empty() {
        return show_text(sink, "No variable is a tensor.");
    }
    rows.sort();
    let cell = format!("cloze::view::tensor::shapes(&[{}]);", rows.join(", "));
    evaluator.cell(&cell, sink)
}

fn type_of(evaluator: &mut Evaluator, expression: &str) -> Result<String, CellError> {
    if expression.is_empty() {
        return Err(wrong("`:type` needs an expression: `:type x.len()`"));
    }
    let name = "the_type_of_this";
    let code = format!("let {name} = {expression};\n{name}");
    let found = inspection::inspect(&mut evaluator.context, &code, code.len());
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
        return Err(wrong("`:doc` needs a name: `:doc Vec::new`"));
    }
    let context = &mut evaluator.context;
    let content = inspection::inspect(context, name, name.len())
        .ok_or_else(|| wrong(&format!("there is no documentation of `{name}`")))?;
    let text = content.plain();
    let methods = inspection::methods(context, name, &text);
    if methods.is_empty() {
        return Ok(content);
    }
    let html = content.get("text/html").unwrap_or_default();
    let marked = escape(&methods.join("\n"));
    let title = format!("Functions and methods of {name}");
    Ok(Content::html(format!("{html}<h4>{}</h4><pre>{marked}</pre>", escape(&title)))
        .with_text(format!("{}\n\n{title}\n  {}", text.trim_end(), methods.join("\n  "))))
}

/// Returns how long the running cell has run, or how long the last one ran.
fn time(evaluator: &Evaluator) -> String {
    if let Some(runs) = evaluator.running_for() {
        return format!("the cell has run for {:.1} s", runs.as_secs_f64());
    }
    match evaluator.last_run {
        Some(ran) => format!("the last cell ran {:.3} s", ran.as_secs_f64()),
        None => "no cell has run yet".to_owned(),
    }
}

/// Splits `10 f(x)` into the number of runs and the code, with spaces in place of the number. `10 - 3` is code.
fn repeats(code: &str) -> Option<(u32, String)> {
    let (number, rest) = code.trim().split_once(char::is_whitespace)?;
    let begins = |first: char| first.is_alphanumeric() || "_&({[\"'|".contains(first);
    let rest = rest.trim_start();
    let count = number.parse().ok().filter(|count| *count > 0)?;
    (rest.starts_with(begins) && !rest.starts_with("as "))
        .then(|| (count, code.replacen(number, &" ".repeat(number.len()), 1)))
}

/// Returns a cell that runs `code` repeatedly and prints how long the runs took. The code keeps its lines.
fn repeated(count: u32, code: &str) -> String {
    format!(
        "for _ in cloze::view::runs::Runs::new({count}) {{ std::hint::black_box({{ {code}\n}}); }}"
    )
}

fn timed(evaluator: &mut Evaluator, code: &str, sink: &Sink) -> Outcome {
    if let Some((count, code)) = repeats(code) {
        return evaluator.cell(&repeated(count, &code), sink);
    }
    let start = Instant::now();
    let outcome = evaluator.cell(code.trim_end(), sink);
    let total = start.elapsed();
    if outcome.error.is_none() {
        let ran = evaluator.last_run.unwrap_or_default();
        let compiled = total.saturating_sub(ran);
        let (ran, compiled) = (ran.as_secs_f64(), compiled.as_secs_f64());
        show_text(sink, &format!("ran {ran:.3} s, compiled {compiled:.3} s"));
    }
    outcome
}

/// Runs the cells again that defined something, up to the first that fails.
fn replay(evaluator: &mut Evaluator, sink: &Sink) -> Outcome {
    let cells = std::mem::take(&mut evaluator.definitions).0;
    if cells.is_empty() {
        return show_text(sink, "No cell has defined anything yet.");
    }
    let mut pages = Vec::new();
    for (index, code) in cells.iter().enumerate() {
        let mut outcome = evaluator.cell(code, sink);
        pages.append(&mut outcome.pages);
        if outcome.error.is_some() {
            // The next `:replay` runs the rest.
            for kept in &cells[index..] {
                evaluator.definitions.keep(kept);
            }
            let count = cells.len();
            let first_line = code.trim().lines().next().unwrap_or_default();
            show_text(
                sink,
                &format!("{index} of {count} cells were run again; this one failed:\n{first_line}"),
            );
            return Outcome { pages, ..outcome };
        }
    }
    let count = match cells.len() {
        1 => "1 cell was".to_owned(),
        count => format!("{count} cells were"),
    };
    show_text(sink, &format!("{count} run again."));
    Outcome { error: None, pages }
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
        for code in [":opt 2", ":dep a = \"1\"", ":vars\n:vars", "a", "", ":typed x", "::std::f()"]
        {
            assert!(parse(code).is_none(), "{code}");
        }
    }

    #[test]
    fn a_number_before_the_timed_code_is_the_number_of_runs() {
        assert_eq!(repeats("10 f(&x)"), Some((10, "   f(&x)".into())));
        assert_eq!(repeats("3 \n{ a; b }"), Some((3, "  \n{ a; b }".into())));
        assert_eq!(repeats("\n2 a\n+ 1\n"), Some((2, "\n  a\n+ 1\n".into())));
        for code in ["10", "10 - 3", "0 f()", "f() 10", "10 as f32", "", "10.5 f()"] {
            assert_eq!(repeats(code), None, "{code}");
        }
    }

    #[test]
    fn commands_and_their_arguments_are_completed() {
        let found = |before: &str| own_matches(before).map(|(start, all)| (start, all.join(" ")));
        assert_eq!(found(":sha"), Some((0, ":shapes".into())));
        assert_eq!(found("let a = 1;\n  :he"), Some((13, ":help".into())));
        assert_eq!(found(":hint 01.2"), Some((6, "01.2".into())));
        assert_eq!(found(":lesson 0").map(|(start, _)| start), Some(8));
        assert_eq!(found(":review 04"), Some((8, "04".into())));
        assert_eq!(found(":opt"), Some((0, String::new())));
        for before in ["", "a", "::std", ":opt 2", "let a = b"] {
            assert_eq!(found(before), None, "{before}");
        }
    }

    #[test]
    fn commands_that_run_no_cell_are_known() {
        for code in [
            ":vars",
            ":shapes",
            ":type a + 1",
            ":doc Vec",
            ":time",
            ":help",
            ":hint 01.1",
            ":check a",
            ":check\nlet a = 1;",
        ] {
            assert!(needs_no_cell(code), "{code}");
        }
        for code in
            [":time f()", ":time\nf()", ":help all", ":check 01.1", ":check", ":dep a", "a", ""]
        {
            assert!(!needs_no_cell(code), "{code}");
        }
    }

    #[test]
    fn every_command_is_in_the_help() {
        let text = help().plain();
        assert!(names().all(|name| text.contains(name)));
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    }
}
