//! The guided lessons: their sources, exercises and notebooks.
//!
//! A lesson is a Rust file in `lessons/` that is a program (`cargo run --example 02_tokens`), a test and
//! the source of a notebook. Its front matter, which `format` reads, declares its title, minutes,
//! exercises and hints. The sources are part of the library, so an installed `cloze` has them without a
//! checkout.

pub mod answers;
pub mod checks;
pub mod course;
pub mod exercise;
pub mod format;
mod judge;
pub mod mine;
pub mod notebook;
pub mod panics;
pub mod pictures;
pub mod progress;
pub mod questions;
pub mod recall;
pub mod review;
pub mod support;
mod verdict;

use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::files::{create_folder, write_atomic};
use crate::note;

/// The data and the model that the lessons use.
pub use crate::data::bundled as data;
pub use format::{Exercise, Lesson};
pub use judge::{Judge, largest_gap};
pub use notebook::Built;
pub use pictures::{FollowToken, Picture};
pub use progress::Progress;

/// The result of a lesson's `main`.
pub type LessonResult = std::result::Result<(), Box<dyn std::error::Error>>;

macro_rules! sources {
    ($($name:literal)*) => {
        [$(($name, include_str!(concat!("../../lessons/", $name, ".rs")))),*]
    };
}

/// The name and the source of every lesson, in the order of the course.
const SOURCES: [(&str, &str); 29] = sources! {
    "00_orientation" "01_gradients" "02_tokens" "03_embeddings"
    "04_attention" "05_heads" "06_encoder" "07_masked_lm"
    "08_fill_blanks" "09_next_sentence" "10_optimizer" "11_pretraining"
    "12_fine_tuning" "13_pairs" "14_questions" "15_answers"
    "16_endings" "17_names" "18_features" "19_attention_maps"
    "20_probes" "21_ship_it" "22_vocabulary" "23_parameters"
    "24_gpu_benchmarks" "25_making_it_fast" "26_packing" "27_masks"
    "28_students"
};

/// Returns all lessons in order.
pub fn all() -> Result<Vec<Lesson>> {
    let lessons = SOURCES.iter().map(|(name, source)| format::parse(name, source));
    lessons.collect()
}

/// Returns the lesson called `name`: `02_tokens`, or its number, `01` or `1`.
pub fn find(name: &str) -> Result<Lesson> {
    let number = |n: &str| n.parse::<u32>().ok();
    let found = SOURCES.iter().find(|(full, _)| {
        *full == name || number(name).is_some_and(|n| number(&full[..2]) == Some(n))
    });
    match found {
        Some((full, source)) => format::parse(full, source),
        None => {
            let names: Vec<&str> = SOURCES.iter().map(|s| s.0).collect();
            Err(Error::Usage(format!(
                "there is no lesson {name:?}; the lessons are {}",
                names.join(", ")
            )))
        }
    }
}

/// Returns the lesson of the exercise `id`: `01.2` is in lesson 01.
pub fn lesson_of(id: &str) -> Result<Lesson> {
    find(id.split('.').next().unwrap_or_default())
}

/// Returns the exercise as its lesson declares it. An unknown id (in a learner's own cell) has no title and
/// no hints.
pub(crate) fn declared(id: &str) -> Exercise {
    let known = lesson_of(id).ok().and_then(|l| l.exercises.into_iter().find(|e| e.id == id));
    known.unwrap_or_else(|| Exercise {
        id: id.to_owned(),
        key: id.to_owned(),
        was: None,
        title: "an exercise of no lesson".to_owned(),
        hints: Vec::new(),
    })
}

/// The paths of the notebooks that were built.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notebooks {
    /// The notebook that opens the course.
    pub index: PathBuf,
    /// The notebooks of the lessons, in order.
    pub lessons: Vec<PathBuf>,
}

/// Writes every lesson as a notebook into `out`, with solutions or stubs, the notebook that opens the course,
/// and the glossary. Creates `out` if it is missing.
///
/// A notebook that was changed since it was written is kept, with a note on standard error.
pub fn build(out: &Path, solutions: bool) -> Result<Notebooks> {
    create_folder(out)?;
    let all = all()?;
    let put = |name: &str, notebook: &serde_json::Value| {
        let path = out.join(format!("{name}.ipynb"));
        if notebook::write(notebook, &path)? == Built::Kept {
            note!(
                "{} was changed since it was built and is kept; move it away to have it built anew",
                path.display()
            );
        }
        Ok(path)
    };
    let index = put(course::INDEX, &notebook::index(&all))?;
    write_atomic(&out.join("glossary.md"), include_bytes!("../../lessons/glossary.md"))?;
    let lessons = all
        .iter()
        .map(|lesson| put(&lesson.name, &notebook::notebook(lesson, solutions)))
        .collect::<Result<_>>()?;
    Ok(Notebooks { index, lessons })
}

/// The environment variable that shortens a lesson's training to a few steps; the tests set it.
pub const QUICK_VARIABLE: &str = "CLOZE_LESSON_QUICK";

/// Returns how many steps a lesson trains: `full`, or at most 10 in a quick test.
pub fn steps(full: u64) -> u64 {
    match std::env::var_os(QUICK_VARIABLE) {
        Some(_) => full.min(10),
        None => full,
    }
}

/// Returns how many epochs a lesson trains: `full`, or one in a quick test.
pub fn epochs(full: u32) -> u32 {
    match std::env::var_os(QUICK_VARIABLE) {
        Some(_) => full.min(1),
        None => full,
    }
}

/// Returns on how many held-out examples a lesson measures: `full`, or at most 20 in a quick test.
pub(crate) fn measured(full: usize) -> usize {
    match std::env::var_os(QUICK_VARIABLE) {
        Some(_) => full.min(20),
        None => full,
    }
}

/// Checks the folder with the lessons' sources in a checkout: every file must be a lesson of the course, with
/// the source that this program was built from, or one of a few others. The folder `questions` is checked in the
/// same way.
pub fn check_folder(dir: &Path) -> Result<()> {
    const OTHERS: [&str; 8] = [
        "README.md",
        "capstone",
        "data",
        "glossary.md",
        "map.svg",
        "questions",
        "rustfmt.toml",
        "words.txt",
    ];
    compare(dir, ".rs", &OTHERS, &SOURCES, "is no lesson of the course")?;
    let questions = dir.join("questions");
    match questions.is_dir() {
        true => compare(
            &questions,
            ".toml",
            &[],
            &questions::FILES,
            "belongs to no lesson of the course",
        ),
        false => Ok(()),
    }
}

/// Checks that each file in a folder is one of the `known`, by name without its ending and with the same text, or
/// one of the `others`.
fn compare(
    dir: &Path,
    ending: &str,
    others: &[&str],
    known: &[(&str, &str)],
    stray: &str,
) -> Result<()> {
    let entries = std::fs::read_dir(dir).map_err(|e| Error::io(dir, e))?;
    for entry in entries {
        let path = entry.map_err(|e| Error::io(dir, e))?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if others.contains(&&*name) {
            continue;
        }
        let listed = known.iter().find(|(known, _)| name.strip_suffix(ending) == Some(known));
        let Some((_, built_from)) = listed else {
            return Err(Error::file(&path, stray));
        };
        let source = std::fs::read_to_string(&path).map_err(|e| Error::io(&path, e))?;
        if source != *built_from {
            return Err(Error::file(
                &path,
                "differs from the source that this program was built from: build it again",
            ));
        }
    }
    Ok(())
}

/// Ends a lesson that runs as a program; an error names the exercises whose check was not passed.
pub fn finish(name: &str) -> LessonResult {
    let lesson = find(name)?;
    let ids = lesson.exercises.iter().map(|e| e.id.as_str());
    let open: Vec<&str> = ids.filter(|id| !exercise::passed(id)).collect();
    if open.is_empty() {
        let given = |exercise: &Exercise| exercise::was_given(&exercise.id);
        if lesson.exercises.iter().any(given) {
            println!(
                "These were the lesson's own solutions, so they don't count as yours: lessons/README.md \
                 says how to replace them by yours."
            );
        }
        return Ok(());
    }
    let message = format!("lesson {name}: not passed yet: {}", open.join(", "));
    Err(Error::Failed(message).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lessons_are_found_by_name_and_by_number() {
        for name in ["02_tokens", "02", "2"] {
            assert_eq!(find(name).unwrap().name, "02_tokens");
        }
        let error = find("99").unwrap_err();
        assert_eq!(error.exit_code(), 2);
        assert!(error.to_string().contains("02_tokens"));
    }

    #[test]
    fn keys_and_old_numbers_are_different_for_all_exercises() {
        let mut known = std::collections::HashSet::new();
        for exercise in all().unwrap().into_iter().flat_map(|lesson| lesson.exercises) {
            for name in [Some(exercise.key), exercise.was].into_iter().flatten() {
                assert!(known.insert(name.clone()), "{name} twice");
            }
        }
    }

    #[test]
    fn a_stray_file_among_the_lessons_is_named() {
        let dir = tempfile::tempdir().unwrap();
        assert!(check_folder(dir.path()).is_ok());
        let (name, source) = SOURCES[0];
        let lesson = dir.path().join(format!("{name}.rs"));
        std::fs::write(&lesson, source).unwrap();
        assert!(check_folder(dir.path()).is_ok());
        std::fs::write(&lesson, "fn main() {}").unwrap();
        let error = check_folder(dir.path()).unwrap_err().to_string();
        assert!(error.contains("differs"), "{error}");
        std::fs::write(&lesson, source).unwrap();
        std::fs::write(dir.path().join("99_draft.rs"), "").unwrap();
        let error = check_folder(dir.path()).unwrap_err().to_string();
        assert!(error.contains("99_draft.rs: is no lesson"), "{error}");
        std::fs::remove_file(dir.path().join("99_draft.rs")).unwrap();
        let questions = dir.path().join("questions");
        std::fs::create_dir(&questions).unwrap();
        for (name, expected) in [("00.toml", "differs"), ("98.toml", "belongs to no lesson")] {
            std::fs::write(questions.join(name), "question = []").unwrap();
            let error = check_folder(dir.path()).unwrap_err().to_string();
            assert!(error.contains(&format!("{name}: {expected}")), "{error}");
            std::fs::remove_file(questions.join(name)).unwrap();
        }
        assert!(check_folder(dir.path()).is_ok());
    }
}
