//! Going through a lesson by commands: its next step, checks, hints, solutions.

use std::collections::BTreeSet;

use cloze::display::Content;
use cloze::lessons::format::{Cell, CellKind};
use cloze::lessons::{self, Exercise, Lesson, Progress};

use super::{put, say_text, wrong};
use crate::session::evaluator::Evaluator;
use crate::session::{CellError, Outcome, Sink};

/// Where a learner stands.
#[derive(Debug, Default)]
pub struct Course {
    lesson: Option<Lesson>,
    /// The lesson's next cell.
    at: usize,
    /// The exercise that was looked at last.
    current: Option<String>,
    /// What was passed in this session: its functions are there to be used. What was passed ever is
    /// kept in [`Progress`].
    passed: BTreeSet<String>,
}

impl Course {
    /// Notes how a check ended.
    pub fn checked(&mut self, id: &str, passed: bool) {
        if passed {
            self.passed.insert(id.to_owned());
        } else {
            self.passed.remove(id);
        }
        self.current = Some(id.to_owned());
    }

    /// The exercise that is meant: the one named, or the one looked at last.
    fn meant(&self, command: &str, named: &str) -> Result<(Lesson, Exercise), CellError> {
        let id = match (named, &self.current) {
            ("", None) => {
                return Err(wrong(&format!(
                    "which exercise? Name one, as in `{command} 01.2`"
                )));
            }
            ("", Some(current)) => current,
            (named, _) => named,
        };
        let number = id.split('.').next().unwrap_or_default();
        let lesson = lessons::find(number).map_err(|error| wrong(&error.to_string()))?;
        let found = lesson.exercises.iter().find(|exercise| exercise.id == id);
        match found.cloned() {
            Some(exercise) => Ok((lesson, exercise)),
            None => {
                let ids: Vec<&str> = lesson.exercises.iter().map(|one| &*one.id).collect();
                Err(wrong(&format!(
                    "lesson {} has no exercise `{id}`; it has {}",
                    lesson.name,
                    ids.join(", ")
                )))
            }
        }
    }
}

/// Runs one of the lessons' commands.
pub fn run(evaluator: &mut Evaluator, command: &str, argument: &str, sink: &Sink) -> Outcome {
    let done = match command {
        ":lesson" => lesson(evaluator, argument, sink),
        ":next" => next(evaluator, sink),
        _ => exercise(evaluator, command, argument, sink),
    };
    done.unwrap_or_else(|error| Outcome {
        error: Some(error),
        pages: Vec::new(),
    })
}

fn lesson(evaluator: &mut Evaluator, name: &str, sink: &Sink) -> Result<Outcome, CellError> {
    // A file that can't be read takes nothing away from the lessons.
    let (progress, trouble) = match Progress::load() {
        Ok(progress) => (progress, None),
        Err(error) => (Progress::default(), Some(error.to_string())),
    };
    if name.is_empty() {
        let all = lessons::all().map_err(|error| wrong(&error.to_string()))?;
        let mut lines: Vec<String> = all.iter().map(|one| listed(one, &progress)).collect();
        lines.push("Begin one with `:lesson 01`.".to_owned());
        lines.extend(trouble);
        put(sink, paragraphs(&lines));
        return Ok(Outcome::default());
    }
    let lesson = lessons::find(name).map_err(|error| wrong(&error.to_string()))?;
    let mut about = vec![
        format!("Lesson {}: {}", lesson.number(), lesson.title),
        lesson.summary.clone(),
        format!(
            "About {} minutes, {} exercises. `:next` goes on, step by step.",
            lesson.minutes,
            lesson.exercises.len()
        ),
    ];
    let days = lesson.exercises.iter().filter_map(|exercise| {
        let day = progress.day(&exercise.id)?;
        Some(format!("{} on {day}", exercise.id))
    });
    let days: Vec<String> = days.collect();
    if !days.is_empty() {
        about.push(format!("You passed {}.", days.join(", ")));
    }
    about.extend(trouble);
    put(sink, paragraphs(&about));
    evaluator.course.at = 0;
    evaluator.course.current = None;
    evaluator.course.lesson = Some(lesson);
    Ok(Outcome::default())
}

/// A lesson in the list: its length and how far the learner has come.
fn listed(lesson: &Lesson, progress: &Progress) -> String {
    let exercises = lesson.exercises.iter();
    let days: Vec<&str> = exercises.filter_map(|one| progress.day(&one.id)).collect();
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

/// Shows texts up to the next code and deals with that.
fn next(evaluator: &mut Evaluator, sink: &Sink) -> Result<Outcome, CellError> {
    let Some(lesson) = evaluator.course.lesson.clone() else {
        return Err(wrong(
            "no lesson was begun: `:lesson` lists them, `:lesson 01` begins one",
        ));
    };
    let mut at = evaluator.course.at;
    while let Some(cell) = lesson
        .cells
        .get(at)
        .filter(|cell| cell.kind == CellKind::Markdown)
    {
        put(sink, markdown(&cell.solution()));
        at += 1;
    }
    evaluator.course.at = at;
    let Some(cell) = lesson.cells.get(at) else {
        say_text(
            sink,
            "That was the last step of the lesson. `:lesson` lists them all.",
        );
        return Ok(Outcome::default());
    };
    if let Some(id) = cell.exercise() {
        evaluator.course.at = at + 1;
        evaluator.course.current = Some(id.to_owned());
        put(sink, code(&cell.stub()));
        let task = format!(
            "Exercise {id}: write this function as a cell of your own, then `:next` checks it. \
             `:hint` helps."
        );
        put(sink, markdown(&task));
        return Ok(Outcome::default());
    }
    put(sink, code(&cell.solution()));
    let outcome = judged(cell, evaluator.cell(&cell.solution(), sink));
    let open = cell
        .check()
        .filter(|id| !evaluator.course.passed.contains(*id));
    if outcome.error.is_none() && open.is_none() {
        evaluator.course.at = at + 1;
    }
    Ok(outcome)
}

fn exercise(
    evaluator: &mut Evaluator,
    command: &str,
    named: &str,
    sink: &Sink,
) -> Result<Outcome, CellError> {
    let (lesson, exercise) = evaluator.course.meant(command, named)?;
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
            Some(cell) => Ok(judged(cell, evaluator.cell(&cell.solution(), sink))),
            None => Err(wrong(&format!("exercise {} has no check", exercise.id))),
        },
        _ => match with(Cell::exercise) {
            Some(cell) => {
                put(sink, code(&cell.solution()));
                Ok(Outcome::default())
            }
            None => Err(wrong(&format!("exercise {} has no solution", exercise.id))),
        },
    }
}

/// The outcome of a cell that may be a check: one that does not find what it checks says so instead
/// of naming every place.
fn judged(cell: &Cell, outcome: Outcome) -> Outcome {
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

/// Lines of text, each a paragraph where markdown is shown.
fn paragraphs(lines: &[String]) -> Content {
    Content::text(lines.join("\n")).with("text/markdown", lines.join("\n\n"))
}

fn markdown(text: &str) -> Content {
    Content::text(text).with("text/markdown", text)
}

fn code(text: &str) -> Content {
    Content::text(text).with("text/markdown", format!("```rust\n{text}\n```"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exercise_is_named_or_the_one_looked_at_last() {
        let mut course = Course::default();
        let told = course.meant(":hint", "").unwrap_err().value;
        assert!(told.contains(":hint 01.2"), "{told}");
        assert_eq!(course.meant(":hint", "01.2").unwrap().1.id, "01.2");
        course.checked("01.3", false);
        assert_eq!(course.meant(":hint", "").unwrap().1.id, "01.3");
        let told = course.meant(":hint", "01.99").unwrap_err().value;
        assert!(told.contains("01.1, 01.2"), "{told}");
        assert!(course.meant(":hint", "77.1").is_err());
    }

    #[test]
    fn the_list_tells_how_far_the_learner_has_come() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("progress.jsonl");
        let line = "{\"exercise\":\"01.2\",\"passed\":\"2026-01-31T10:00:00Z\"}\n";
        std::fs::write(&path, line).unwrap();
        let lesson = lessons::find("01").unwrap();
        let told = listed(&lesson, &Progress::read(&path).unwrap());
        assert!(
            told.contains("1 of 4 exercises passed, last on 2026-01-31"),
            "{told}"
        );
        let none = listed(&lesson, &Progress::default());
        assert!(none.ends_with("0 of 4 exercises passed)"), "{none}");
    }

    #[test]
    fn every_exercise_has_a_stub_a_solution_and_a_check() {
        for lesson in lessons::all().unwrap() {
            for exercise in &lesson.exercises {
                let count = |wanted: fn(&Cell) -> Option<&str>| {
                    let cells = lesson.cells.iter();
                    cells
                        .filter(|cell| wanted(cell) == Some(&exercise.id))
                        .count()
                };
                assert_eq!(
                    (count(Cell::exercise), count(Cell::check)),
                    (1, 1),
                    "{}",
                    exercise.id
                );
            }
        }
    }
}
