//! `cloze lessons`: lists the lessons, builds their notebooks, checks their sources, shows the exercises that
//! were passed.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use clap::{Parser, Subcommand};
use serde_json::json;

use crate::cli::picture;
use crate::cli::review;
use crate::cli::shared::checks::refuse;
use crate::cli::shared::programs;
use crate::cli::shared::stdio::say;
use crate::error::{Error, Result};
use crate::lessons::format::Track;
use crate::lessons::recall::{self, Tally};
use crate::lessons::{self, Lesson, Progress, checks, course, progress};

#[derive(Debug, Parser)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List the lessons with their length and their exercises.
    List {
        /// Print a JSON object for each lesson, one a line, on stdout.
        #[arg(long)]
        json: bool,
    },
    /// Run a lesson in a session of the notebook kernel, with your own answers, or the solution of an exercise
    /// that you have not passed.
    Run {
        /// The lesson's number or name.
        lesson: String,
    },
    /// Write the lessons as notebooks; those that you changed are kept.
    Build {
        /// Write the solutions instead of stubs.
        #[arg(long)]
        solutions: bool,
        /// The folder that receives the notebooks.
        #[arg(long, value_name = "DIR", default_value = "notebooks")]
        out: PathBuf,
    },
    /// Check the lessons: solutions, checks, hints, links, minutes, and in a checkout stray files, the
    /// README's table and the map.
    Check {
        /// The lesson's number or name [default: all lessons].
        lesson: Option<String>,
        /// The folder of the sources; not checked if it does not exist.
        #[arg(long, value_name = "DIR", default_value = "lessons")]
        dir: PathBuf,
        /// Rewrite the README's table and the map if they don't agree with the lessons.
        #[arg(long)]
        fix: bool,
        /// Compare the stated seconds with measured ones: a JSON object from lessons to seconds, as
        /// tests/jupyter/run_notebooks.py --timed writes it.
        #[arg(long, value_name = "FILE")]
        times: Option<PathBuf>,
    },
    /// Train your own model, the crate's defaults and ablations for the same time each, and compare them in a report.
    Capstone(Box<super::capstone::Args>),
    /// Write your BERT as a crate of its own: your answers to the core lessons, with the lessons' solutions where
    /// you have none.
    Mine {
        /// The folder that receives it; it must not exist or be empty.
        #[arg(long, value_name = "DIR", default_value = "my-bert")]
        out: PathBuf,
    },
    /// List the explorable pictures, or write one as a page for a browser.
    Picture(picture::Args),
    /// Ask the questions that are due: missed ones the next day, the others after 1, 7 and 30 days.
    Review(review::Args),
    /// Show which exercises you have passed, and when, and which questions are due or were missed.
    Progress {
        /// Print a JSON object on stdout.
        #[arg(long)]
        json: bool,
    },
}

pub(crate) fn run(args: Args) -> Result<()> {
    match args.command {
        Command::List { json: true } => list_as_json(),
        Command::List { json: false } => list(),
        Command::Run { lesson } => run_lesson(&lesson),
        Command::Build { solutions, out } => {
            let built = lessons::build(&out, solutions)?;
            for path in [built.index].iter().chain(&built.lessons) {
                say!("{}", path.display())?;
            }
            Ok(())
        }
        Command::Check { lesson, dir, fix, times } => {
            check(lesson.as_deref(), &dir, fix)?;
            if let Some(file) = times {
                for line in checks::seconds(&lessons::all()?, &file)? {
                    say!("{line}")?;
                }
            }
            Ok(())
        }
        Command::Capstone(args) => super::capstone::run(&args),
        Command::Mine { out } => {
            let mine = lessons::mine::write(&out)?;
            for path in &mine.files {
                say!("{}", path.display())?;
            }
            say!("{}\n`cargo run` in {} trains it.", mine.summary, out.display())
        }
        Command::Picture(args) => picture::run(args),
        Command::Review(args) => review::run(&args),
        Command::Progress { json: true } => progress_as_json(),
        Command::Progress { json: false } => progress_as_table(),
    }
}

fn list() -> Result<()> {
    let tallies = recall::tallies(SystemTime::now())?;
    let (all, progress) = (lessons::all()?, Progress::load()?);
    for (track, of_track) in tracks(&all) {
        say!("{}\n", course::heading(track, &of_track, &progress))?;
        for lesson in of_track {
            let (name, title, minutes) = (&lesson.name, &lesson.title, lesson.minutes);
            let summary = &lesson.summary;
            let due = due(tallies[lesson.number()].due, ", ");
            say!("{name}  {title} ({minutes} minutes{due})\n    {summary}")?;
            for exercise in &lesson.exercises {
                say!("    {} {}", exercise.id, exercise.title)?;
            }
        }
        say!("")?;
    }
    Ok(())
}

/// Returns the lessons by tracks, in the order of the course.
fn tracks(all: &[Lesson]) -> impl Iterator<Item = (Track, Vec<&Lesson>)> {
    let of = |track| (track, all.iter().filter(|lesson| lesson.track == track).collect());
    Track::ALL.into_iter().map(of)
}

/// Returns `before` and how many questions are due; an empty text if no question is due.
fn due(count: usize, before: &str) -> String {
    match count {
        0 => String::new(),
        1 => format!("{before}1 question due"),
        _ => format!("{before}{count} questions due"),
    }
}

fn list_as_json() -> Result<()> {
    let tallies = recall::tallies(SystemTime::now())?;
    for lesson in lessons::all()? {
        let exercises = lesson.exercises.iter();
        let exercises: Vec<_> = exercises.map(|e| json!({"id": e.id, "title": e.title})).collect();
        say!(
            "{}",
            json!({
                "name": lesson.name,
                "title": lesson.title,
                "summary": lesson.summary,
                "track": lesson.track,
                "minutes": lesson.minutes,
                "needs": lesson.needs,
                "exercises": exercises,
                "questions": tallies[lesson.number()],
            })
        )?;
    }
    Ok(())
}

/// Runs a lesson's cells in a session.
fn run_lesson(name: &str) -> Result<()> {
    let lesson = lessons::find(name)?;
    let mut script = tempfile::Builder::new()
        .prefix(&lesson.name)
        .suffix(".rs")
        .tempfile()
        .map_err(|e| Error::io("a temporary file", e))?;
    script
        .write_all(lessons::answers::script(&lesson, std::io::stdin().is_terminal())?.as_bytes())
        .map_err(|e| Error::io(script.path(), e))?;
    let kernel = programs::find("cloze-kernel")?;
    let status = std::process::Command::new(&kernel)
        .arg("repl")
        .arg(script.path())
        .status()
        .map_err(|e| Error::io(&kernel, e))?;
    match status.success() {
        true => Ok(()),
        false => Err(Error::Failed(format!("lesson {} did not run to its end", lesson.name))),
    }
}

fn check(lesson: Option<&str>, dir: &Path, fix: bool) -> Result<()> {
    let all = lessons::all()?;
    let checked = match lesson {
        Some(name) => vec![lessons::find(name)?],
        None => all.clone(),
    };
    // The folder exists only in a checkout.
    let root = dir.is_dir().then(|| dir.join(".."));
    for lesson in &checked {
        checks::links(lesson, &all, root.as_deref())?;
        checks::minutes(dir, lesson, fix)?;
        checks::form(lesson)?;
    }
    if lesson.is_none() {
        checks::needs(&all)?;
        checks::core(&all)?;
    }
    if root.is_some() {
        lessons::check_folder(dir)?;
        checks::yours(dir, &checked, fix)?;
        checks::generated(dir, &all, fix)?;
    } else if fix {
        refuse!("--fix: there is no folder {} to write to", dir.display());
    }
    for lesson in checked {
        let (cells, exercises) = (lesson.cells.len(), lesson.exercises.len());
        let (name, minutes) = (&lesson.name, lesson.minutes);
        let counted = checks::counted_minutes(&lesson);
        say!(
            "{name}: {cells} cells, {exercises} exercises, {minutes} minutes ({counted:.0} counted)"
        )?;
    }
    Ok(())
}

fn progress_as_json() -> Result<()> {
    let (all, progress) = (lessons::all()?, Progress::load()?);
    let tallies = recall::tallies(SystemTime::now())?;
    let (mut passed, mut total) = (0, 0);
    let mut described = Vec::new();
    for lesson in &all {
        let exercises = lesson.exercises.iter().map(|exercise| {
            let moment = progress.moment(exercise);
            json!({
                "id": exercise.id,
                "title": exercise.title,
                "passed": moment.is_some(),
                "date": progress.day(exercise),
                "time": moment,
            })
        });
        let exercises: Vec<_> = exercises.collect();
        let done = exercises.iter().filter(|e| e["passed"] == true).count();
        passed += done;
        total += exercises.len();
        described.push(json!({
            "name": lesson.name,
            "title": lesson.title,
            "track": lesson.track,
            "minutes": lesson.minutes,
            "passed": done == exercises.len(),
            "exercises": exercises,
            "questions": tallies[lesson.number()],
        }));
    }
    let file = progress::path();
    let object = json!({"passed": passed, "total": total, "file": file, "lessons": described});
    say!("{object}")
}

fn progress_as_table() -> Result<()> {
    let (all, progress) = (lessons::all()?, Progress::load()?);
    let tallies = recall::tallies(SystemTime::now())?;
    let (mut passed, mut total) = (0, 0);
    let mut next = None;
    let widest = all.iter().map(|lesson| lesson.title.chars().count()).max();
    let widest = widest.unwrap_or(0);
    for (track, of_track) in tracks(&all) {
        say!("{}", course::heading(track, &of_track, &progress))?;
        for lesson in of_track {
            let exercises = lesson.exercises.iter();
            let days: Vec<_> = exercises.map(|e| progress.day(e)).collect();
            let done = days.iter().flatten().count();
            let dot = |day: &Option<_>| if day.is_some() { '●' } else { '○' };
            let dots: String = days.iter().map(dot).collect();
            let last = match days.iter().flatten().max() {
                Some(day) => format!("  last on {day}"),
                None => String::new(),
            };
            let due = due(tallies[lesson.number()].due, "  ");
            say!(
                "{}  {:<widest$}  {done} of {}  {dots}{last}{due}",
                lesson.number(),
                lesson.title,
                days.len()
            )?;
            passed += done;
            total += days.len();
            if next.is_none() {
                let open = days.iter().position(Option::is_none);
                next = open.map(|index| &lesson.exercises[index]);
            }
        }
        say!("")?;
    }
    let next = match next {
        Some(exercise) => format!("; the next is {} {}", exercise.id, exercise.title),
        None => ": all of them".to_owned(),
    };
    say!("{passed} of {total} exercises passed{next}")?;
    shaky(&all, &tallies)
}

/// Prints the lessons of which questions were missed or are due, the one with the largest share first.
fn shaky(all: &[Lesson], tallies: &BTreeMap<String, Tally>) -> Result<()> {
    let of = all.iter().map(|lesson| (lesson, tallies[lesson.number()]));
    let mut found: Vec<_> = of.filter(|(_, tally)| tally.shaky > 0).collect();
    found.sort_by_key(|(_, tally)| Reverse(100 * tally.shaky / tally.answered));
    if !found.is_empty() {
        say!("\nShaky (`cloze lessons review` asks what is due):")?;
    }
    for (lesson, Tally { answered, missed, due, .. }) in found {
        let (number, title) = (lesson.number(), &lesson.title);
        say!("{number}  {title}: of {answered} questions {missed} missed, {due} due")?;
    }
    Ok(())
}
