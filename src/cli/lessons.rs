//! `cloze lessons`: lists the lessons, builds their notebooks, checks their sources, shows the exercises that
//! were passed.

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::{Parser, Subcommand};
use serde_json::json;

use crate::cli::shared::checks::refuse;
use crate::cli::shared::programs;
use crate::cli::shared::stdio::say;
use crate::error::{Error, Result};
use crate::lessons::{self, Progress, checks, progress};

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
        /// tests/jupyter/run_notebooks.py writes it.
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
    /// Show which exercises you have passed, and when.
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
        Command::Progress { json: true } => progress_as_json(),
        Command::Progress { json: false } => progress_as_table(),
    }
}

fn list() -> Result<()> {
    for lesson in lessons::all()? {
        let (name, title, minutes) = (&lesson.name, &lesson.title, lesson.minutes);
        let summary = &lesson.summary;
        say!("{name}  {title} ({minutes} minutes)\n    {summary}")?;
        for exercise in &lesson.exercises {
            say!("    {} {}", exercise.id, exercise.title)?;
        }
    }
    Ok(())
}

fn list_as_json() -> Result<()> {
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
        .write_all(lessons::answers::script(&lesson)?.as_bytes())
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
            "minutes": lesson.minutes,
            "passed": done == exercises.len(),
            "exercises": exercises,
        }));
    }
    let file = progress::path();
    let object = json!({"passed": passed, "total": total, "file": file, "lessons": described});
    say!("{object}")
}

fn progress_as_table() -> Result<()> {
    let (all, progress) = (lessons::all()?, Progress::load()?);
    let (mut passed, mut total) = (0, 0);
    let mut next = None;
    let widest = all.iter().map(|lesson| lesson.title.chars().count()).max();
    let widest = widest.unwrap_or(0);
    for lesson in &all {
        let exercises = lesson.exercises.iter();
        let days: Vec<_> = exercises.map(|e| progress.day(e)).collect();
        let done = days.iter().flatten().count();
        let dot = |day: &Option<_>| if day.is_some() { '●' } else { '○' };
        let dots: String = days.iter().map(dot).collect();
        let last = match days.iter().flatten().max() {
            Some(day) => format!("  last on {day}"),
            None => String::new(),
        };
        say!(
            "{}  {:<widest$}  {done} of {}  {dots}{last}",
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
    let next = match next {
        Some(exercise) => format!("; the next is {} {}", exercise.id, exercise.title),
        None => ": all of them".to_owned(),
    };
    say!("\n{passed} of {total} exercises passed{next}")
}
