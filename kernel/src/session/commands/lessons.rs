//! The commands for lessons: the next step, checks, hints, solutions.

use cloze::display::Content;
use cloze::lessons::format::{Cell, CellKind};
use cloze::lessons::review::{self, Scope};
use cloze::lessons::{self, Lesson, Progress, answers};

use cloze::view::style::escape;

use super::{show, show_text, wrong};
use crate::session::evaluator::Evaluator;
use crate::session::{CellError, Outcome, Sink};

/// Runs one of the lessons' commands.
pub fn run(
    evaluator: &mut Evaluator,
    command: &str,
    argument: &str,
    sink: &Sink,
) -> Result<Outcome, CellError> {
    match command {
        ":lesson" => lesson(evaluator, argument, sink),
        ":next" => next(evaluator, sink),
        ":yours" => yours(evaluator, argument, sink),
        ":review" => review(evaluator, argument, sink),
        _ => exercise(evaluator, command, argument, sink),
    }
}

fn lesson(evaluator: &mut Evaluator, name: &str, sink: &Sink) -> Result<Outcome, CellError> {
    // The lessons work without the progress file.
    let (progress, problem) = match Progress::load() {
        Ok(progress) => (progress, None),
        Err(error) => (Progress::default(), Some(error.to_string())),
    };
    if name.is_empty() {
        let all = lessons::all().map_err(|error| wrong(&error.to_string()))?;
        let mut lines: Vec<String> = all.iter().map(|one| listed(one, &progress)).collect();
        lines.push("Begin one with `:lesson 01`.".to_owned());
        lines.extend(problem);
        show(sink, text_lines(&lines));
        return Ok(Outcome::default());
    }
    let lesson = lessons::find(name).map_err(|error| wrong(&error.to_string()))?;
    let mut about = vec![
        format!("Lesson {}: {}", lesson.number(), lesson.title),
        lesson.summary.clone(),
        format!(
            "About {} minutes, {} exercises. `:next` continues, step by step.",
            lesson.minutes,
            lesson.exercises.len()
        ),
    ];
    let days = lesson.exercises.iter().filter_map(|exercise| {
        let day = progress.day(exercise)?;
        Some(format!("{} on {day}", exercise.id))
    });
    let days: Vec<String> = days.collect();
    if !days.is_empty() {
        about.push(format!("You passed {}.", days.join(", ")));
    }
    let opening = review::opening(&lesson);
    about.extend(opening.map(|it| format!("`{it}` asks what you remember of earlier lessons.")));
    about.extend(problem);
    show(sink, text_lines(&about));
    evaluator.course.next_cell = 0;
    evaluator.course.current = None;
    evaluator.course.lesson = Some(lesson);
    Ok(Outcome::default())
}

/// Describes a lesson in one line: its length and the learner's progress.
fn listed(lesson: &Lesson, progress: &Progress) -> String {
    let exercises = lesson.exercises.iter();
    let days: Vec<&str> = exercises.filter_map(|one| progress.day(one)).collect();
    let last = match days.iter().max() {
        Some(day) => format!(", last on {day}"),
        None => String::new(),
    };
    format!(
        "{}  {} ({} minutes; {} of {} exercises passed{last})",
        lesson.number(),
        lesson.title,
        lesson.minutes,
        days.len(),
        lesson.exercises.len()
    )
}

/// Shows the texts up to the next code, and runs that or sets the exercise.
fn next(evaluator: &mut Evaluator, sink: &Sink) -> Result<Outcome, CellError> {
    let Some(lesson) = evaluator.course.lesson.clone() else {
        return Err(wrong("no lesson has begun: `:lesson` lists them, `:lesson 01` begins one"));
    };
    let mut at = evaluator.course.next_cell;
    while let Some(cell) = lesson.cells.get(at).filter(|cell| cell.kind == CellKind::Markdown) {
        show(sink, markdown(&cell.solution()));
        at += 1;
    }
    evaluator.course.next_cell = at;
    let Some(cell) = lesson.cells.get(at) else {
        let text = format!(
            "That was the last step of the lesson. `{}` asks five questions about it; `:lesson` lists all \
             lessons.",
            review::closing(&lesson)
        );
        show_text(sink, &text);
        return Ok(Outcome::default());
    };
    if let Some(id) = cell.exercise() {
        evaluator.course.next_cell = at + 1;
        evaluator.course.current = Some(id.to_owned());
        show(sink, code(&cell.stub()));
        let task = format!(
            "Exercise {id}: write this function as a cell of your own, then `:next` checks it. \
             `:hint` helps."
        );
        show(sink, markdown(&task));
        return Ok(Outcome::default());
    }
    if let Some(command) = cell.command() {
        show(sink, code(&command));
        let outcome = yours(evaluator, &cell.exercises.join(" "), sink)?;
        if outcome.error.is_none() {
            evaluator.course.next_cell = at + 1;
        }
        return Ok(outcome);
    }
    // The verdict comes first: nobody has to read a check.
    if cell.check().is_none() {
        show(sink, code(&cell.solution()));
    }
    let outcome = check_outcome(cell, evaluator.cell(&cell.solution(), sink));
    if let Some(id) = cell.check().filter(|_| outcome.error.is_none()) {
        show(sink, folded(id, &cell.solution()));
    }
    let open = cell.check().filter(|id| !evaluator.course.passed.contains(*id));
    if outcome.error.is_none() && open.is_none() {
        evaluator.course.next_cell = at + 1;
    }
    Ok(outcome)
}

/// Asks questions in a cell, which asks the front end for the answers.
fn review(evaluator: &mut Evaluator, argument: &str, sink: &Sink) -> Result<Outcome, CellError> {
    Scope::parse(argument).map_err(|error| wrong(&error.to_string()))?;
    Ok(evaluator.cell(&format!("cloze::lessons::review::cell({argument:?})?;"), sink))
}

/// Runs the code of earlier exercises: the learner's answer to each, or the solution if there is none.
fn yours(evaluator: &mut Evaluator, ids: &str, sink: &Sink) -> Result<Outcome, CellError> {
    let ids: Vec<String> = ids.split_whitespace().map(str::to_owned).collect();
    if ids.is_empty() {
        return Err(wrong("which exercises? Name them, as in `:yours 05.3 06.2`"));
    }
    let found = answers::gather(&ids, answers::kept).map_err(|error| wrong(&error.to_string()))?;
    show_text(sink, &found.summary());
    let outcome = evaluator.cell(&found.cell(), sink);
    if outcome.error.is_some() && !found.yours().is_empty() {
        let folder = answers::folder().unwrap_or_default();
        let text = format!(
            "This is the code of your answers, which are kept in {}. Pass the exercise again, or remove \
             its file: then `:yours` takes the lesson's solution.",
            folder.display()
        );
        show_text(sink, &text);
    }
    Ok(outcome)
}

fn exercise(
    evaluator: &mut Evaluator,
    command: &str,
    named: &str,
    sink: &Sink,
) -> Result<Outcome, CellError> {
    let (named, wants_code) = match (command, named.strip_suffix("code")) {
        (":check", Some(named)) => (named.trim(), true),
        _ => (named, false),
    };
    let (lesson, exercise) = evaluator.course.exercise(command, named)?;
    evaluator.course.current = Some(exercise.id.clone());
    let with = |wanted: fn(&Cell) -> Option<&str>| {
        let mut cells = lesson.cells.iter();
        cells.find(|cell| wanted(cell) == Some(&exercise.id))
    };
    match command {
        ":hint" => {
            let call = format!("cloze::lessons::exercise::hint({:?});", exercise.id);
            Ok(evaluator.cell(&call, sink))
        }
        ":check" => match with(Cell::check) {
            Some(cell) if wants_code => {
                show(sink, code(&cell.solution()));
                Ok(Outcome::default())
            }
            Some(cell) => Ok(check_outcome(cell, evaluator.cell(&cell.solution(), sink))),
            None => Err(wrong(&format!("exercise {} has no check", exercise.id))),
        },
        _ => match with(Cell::exercise) {
            Some(cell) => {
                show(sink, code(&cell.solution()));
                Ok(Outcome::default())
            }
            None => Err(wrong(&format!("exercise {} has no solution", exercise.id))),
        },
    }
}

/// Rewords the outcome of a check that does not find what it checks, instead of listing every place.
fn check_outcome(cell: &Cell, outcome: Outcome) -> Outcome {
    const UNKNOWN_NAME: &str = "error[E0425]";
    match (&outcome.error, cell.check()) {
        (Some(error), Some(id)) if error.name == UNKNOWN_NAME => Outcome {
            error: Some(wrong(&format!(
                "the check of {id} does not find what it checks: write the exercise's code as a \
                 cell and run that first ({})",
                error.value
            ))),
            ..outcome
        },
        _ => outcome,
    }
}

/// Returns lines of text, which end in Markdown too.
fn text_lines(lines: &[String]) -> Content {
    Content::text(lines.join("\n")).with("text/markdown", lines.join("  \n"))
}

fn markdown(text: &str) -> Content {
    Content::text(text).with("text/markdown", text)
}

/// Returns a check's code, folded: the terminal names the command that shows it.
fn folded(id: &str, text: &str) -> Content {
    const WHAT: &str = "the check's code";
    Content::html(format!(
        "<details><summary>{WHAT}</summary><pre>{}</pre></details>",
        escape(text)
    ))
    .with_text(format!("({WHAT}: `:check {id} code`)"))
}

fn code(text: &str) -> Content {
    Content::text(text).with("text/markdown", format!("```rust\n{text}\n```"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_shows_the_learner_s_progress() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("progress.jsonl");
        let line = "{\"exercise\":\"01.2\",\"passed\":\"2026-01-31T10:00:00Z\"}\n";
        std::fs::write(&path, line).unwrap();
        let lesson = lessons::find("02").unwrap();
        let line = listed(&lesson, &Progress::read(&path).unwrap());
        let all = lesson.exercises.len();
        let one = format!("1 of {all} exercises passed, last on 2026-01-31");
        assert!(line.contains(&one), "{line}");
        let none = listed(&lesson, &Progress::default());
        assert!(none.ends_with(&format!("0 of {all} exercises passed)")), "{none}");
    }

    #[test]
    fn every_exercise_has_a_stub_a_solution_and_a_check() {
        for lesson in lessons::all().unwrap() {
            for exercise in &lesson.exercises {
                let count = |wanted: fn(&Cell) -> Option<&str>| {
                    let cells = lesson.cells.iter();
                    cells.filter(|cell| wanted(cell) == Some(&exercise.id)).count()
                };
                assert_eq!((count(Cell::exercise), count(Cell::check)), (1, 1), "{}", exercise.id);
            }
        }
    }
}
