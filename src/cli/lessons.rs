//! `cloze lessons`: lists the lessons, builds their notebooks, checks their sources, shows what was passed.

use std::path::{Path, PathBuf};

use clap::{Parser, Subcommand};

use serde_json::json;

use crate::cli::print::say;
use crate::error::{Error, Result};
use crate::lessons::{self, Progress, checks, progress};

/// Lists the lessons, builds their notebooks, checks their sources, or shows what you have passed.
#[derive(Debug, Parser)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List the lessons with their length and their exercises.
    List,
    /// Write the lessons as notebooks; one that you changed is kept.
    Build {
        /// Write the solutions where a learner gets stubs.
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
        /// The folder of the sources, which is checked if it exists.
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
    /// Show which exercises you have passed, and when.
    Progress {
        /// Print a JSON object on stdout.
        #[arg(long)]
        json: bool,
    },
}

/// Runs the subcommand.
pub fn run(args: Args) -> Result<()> {
    match args.command {
        Command::List => list(),
        Command::Build { solutions, out } => {
            let built = lessons::build(&out, solutions)?;
            for path in [built.index].iter().chain(&built.lessons) {
                say!("{}", path.display())?;
            }
            Ok(())
        }
        Command::Check { lesson, dir, fix, times } => {
            check(lesson.as_deref(), &dir, fix)?;
            match times {
                Some(file) => print_times(&file),
                None => Ok(()),
            }
        }
        Command::Progress { json: true } => progress_as_json(),
        Command::Progress { json: false } => progress_as_table(),
    }
}

fn list() -> Result<()> {
    for lesson in lessons::all()? {
        say!(
            "{}  {} ({} minutes)\n    {}",
            lesson.name,
            lesson.title,
            lesson.minutes,
            lesson.summary
        )?;
        for exercise in &lesson.exercises {
            say!("    {} {}", exercise.id, exercise.title)?;
        }
    }
    Ok(())
}

fn check(lesson: Option<&str>, dir: &Path, fix: bool) -> Result<()> {
    let all = lessons::all()?;
    let checked = match lesson {
        Some(name) => vec![lessons::find(name)?],
        None => all.clone(),
    };
    // The folder is part of a checkout.
    let root = dir.is_dir().then(|| dir.join(".."));
    for lesson in &checked {
        checks::links(lesson, &all, root.as_deref())?;
        checks::minutes(lesson)?;
    }
    if lesson.is_none() {
        checks::needs(&all)?;
    }
    if root.is_some() {
        lessons::check_folder(dir)?;
        checks::generated(dir, &all, fix)?;
    } else if fix {
        let message = format!("--fix: there is no folder {} to write to", dir.display());
        return Err(Error::Usage(message));
    }
    for lesson in checked {
        say!(
            "{}: {} cells, {} exercises, {} minutes ({:.0} by its length)",
            lesson.name,
            lesson.cells.len(),
            lesson.exercises.len(),
            lesson.minutes,
            checks::estimated_minutes(&lesson)
        )?;
    }
    Ok(())
}

fn print_times(file: &Path) -> Result<()> {
    for line in checks::seconds(&lessons::all()?, file)? {
        say!("{line}")?;
    }
    Ok(())
}

fn progress_as_json() -> Result<()> {
    let (all, progress) = (lessons::all()?, Progress::load()?);
    let (mut passed, mut total) = (0, 0);
    let mut listed = Vec::new();
    for lesson in &all {
        let mut exercises = Vec::new();
        for exercise in &lesson.exercises {
            let moment = progress.moment(&exercise.id);
            total += 1;
            passed += usize::from(moment.is_some());
            exercises.push(json!({
                "id": exercise.id,
                "title": exercise.title,
                "passed": moment.is_some(),
                "date": progress.day(&exercise.id),
                "time": moment,
            }));
        }
        let all_passed = exercises.iter().all(|exercise| exercise["passed"] == true);
        listed.push(json!({
            "name": lesson.name,
            "title": lesson.title,
            "minutes": lesson.minutes,
            "passed": all_passed,
            "exercises": exercises,
        }));
    }
    let object = json!({
        "passed": passed,
        "total": total,
        "file": progress::path(),
        "lessons": listed,
    });
    say!("{object}")?;
    Ok(())
}

fn progress_as_table() -> Result<()> {
    let (all, progress) = (lessons::all()?, Progress::load()?);
    let (mut passed, mut total) = (0, 0);
    let mut next = None;
    let widest = all.iter().map(|lesson| lesson.title.chars().count()).max();
    let widest = widest.unwrap_or(0);
    for lesson in &all {
        let days: Vec<Option<&str>> =
            lesson.exercises.iter().map(|exercise| progress.day(&exercise.id)).collect();
        let done = days.iter().flatten().count();
        let dots: String = days.iter().map(|day| if day.is_some() { '●' } else { '○' }).collect();
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
