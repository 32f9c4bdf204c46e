//! `cloze lessons`: list the lessons, build their notebooks, check their sources.

use std::path::{Path, PathBuf};

use clap::{Parser, Subcommand};

use crate::error::Result;
use crate::lessons;

/// Lists the lessons, builds their notebooks, or checks their sources.
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
    /// Check that the lessons are well formed: every exercise with a solution, a check and a hint.
    Check {
        /// The lesson's number or name; all of them where it is left away.
        lesson: Option<String>,
        /// The folder of the sources, searched for stray files where it is there.
        #[arg(long, value_name = "DIR", default_value = "lessons")]
        dir: PathBuf,
    },
}

/// Runs the subcommand.
pub fn run(args: Args) -> Result<()> {
    match args.command {
        Command::List => list(),
        Command::Build { solutions, out } => {
            for path in lessons::build(&out, solutions)? {
                println!("{}", path.display());
            }
            Ok(())
        }
        Command::Check { lesson, dir } => check(lesson.as_deref(), &dir),
    }
}

fn list() -> Result<()> {
    for lesson in lessons::all()? {
        println!(
            "{}  {} ({} minutes)\n    {}",
            lesson.name, lesson.title, lesson.minutes, lesson.summary
        );
        for exercise in &lesson.exercises {
            println!("    {} {}", exercise.id, exercise.title);
        }
    }
    Ok(())
}

fn check(lesson: Option<&str>, dir: &Path) -> Result<()> {
    let checked = match lesson {
        Some(name) => vec![lessons::find(name)?],
        None => lessons::all()?,
    };
    if dir.is_dir() {
        lessons::check_folder(dir)?;
    }
    for lesson in checked {
        println!(
            "{}: {} cells, {} exercises",
            lesson.name,
            lesson.cells.len(),
            lesson.exercises.len()
        );
    }
    Ok(())
}
