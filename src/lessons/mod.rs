//! The guided lessons: their sources, exercises and notebooks.
//!
//! A lesson is one Rust file in `lessons/`, at once a program (`cargo run --example 01_tokens`), a
//! test and the source of a notebook. Its front matter is the one place that names its title, its
//! minutes, its exercises and their hints: `format` reads it, and everything here asks there.
//! The sources are part of the library, so an installed `cloze` has them without a checkout.

pub mod checks;
pub mod course;
pub mod exercise;
pub mod format;
mod judge;
pub mod notebook;
pub mod panics;
pub mod progress;
mod verdict;

use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::files::create_folder;
use crate::note;

/// The data and the model that the lessons use.
pub use crate::data::bundled as data;
pub use format::{Exercise, Lesson};
pub use judge::Judge;
pub use notebook::Built;
pub use progress::Progress;

/// What the `main` of a lesson gives back.
pub type LessonResult = std::result::Result<(), Box<dyn std::error::Error>>;

/// Every lesson in the order of the course: its name and its source.
const SOURCES: [(&str, &str); 17] = [
    (
        "00_orientation",
        include_str!("../../lessons/00_orientation.rs"),
    ),
    ("01_tokens", include_str!("../../lessons/01_tokens.rs")),
    (
        "02_embeddings",
        include_str!("../../lessons/02_embeddings.rs"),
    ),
    (
        "03_attention",
        include_str!("../../lessons/03_attention.rs"),
    ),
    ("04_encoder", include_str!("../../lessons/04_encoder.rs")),
    (
        "05_masked_lm",
        include_str!("../../lessons/05_masked_lm.rs"),
    ),
    (
        "06_next_sentence",
        include_str!("../../lessons/06_next_sentence.rs"),
    ),
    (
        "07_pretraining",
        include_str!("../../lessons/07_pretraining.rs"),
    ),
    ("08_glue", include_str!("../../lessons/08_glue.rs")),
    ("09_squad", include_str!("../../lessons/09_squad.rs")),
    ("10_swag", include_str!("../../lessons/10_swag.rs")),
    ("11_ner", include_str!("../../lessons/11_ner.rs")),
    ("12_inside", include_str!("../../lessons/12_inside.rs")),
    (
        "13_gpu_benchmarks",
        include_str!("../../lessons/13_gpu_benchmarks.rs"),
    ),
    (
        "14_making_it_fast",
        include_str!("../../lessons/14_making_it_fast.rs"),
    ),
    (
        "15_beyond_bert",
        include_str!("../../lessons/15_beyond_bert.rs"),
    ),
    ("16_ship_it", include_str!("../../lessons/16_ship_it.rs")),
];

/// All lessons in order.
pub fn all() -> Result<Vec<Lesson>> {
    SOURCES
        .iter()
        .map(|(name, source)| format::parse(name, source))
        .collect()
}

/// The lesson called `name`: `01_tokens`, or by its number, `01` or `1`.
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

/// The paths of the notebooks that were built.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notebooks {
    /// The one that opens the course.
    pub index: PathBuf,
    /// Those of the lessons, in order.
    pub lessons: Vec<PathBuf>,
}

/// Writes every lesson as a notebook into `out` (made where it is missing), with the solutions or
/// with stubs in their place, and the notebook that opens the course.
///
/// A notebook that was changed since it was written is kept, and standard error says so.
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
    let lessons = all
        .iter()
        .map(|lesson| put(&lesson.name, &notebook::notebook(lesson, solutions)))
        .collect::<Result<_>>()?;
    Ok(Notebooks { index, lessons })
}

/// The environment variable that shortens a lesson's training to a few steps; the tests set it.
pub const QUICK_VARIABLE: &str = "CLOZE_LESSON_QUICK";

/// How many steps a lesson trains: `full`, or a few where only the way through it is tested.
pub fn steps(full: u64) -> u64 {
    match std::env::var_os(QUICK_VARIABLE) {
        Some(_) => full.min(10),
        None => full,
    }
}

/// The folder that holds the lessons' sources in a checkout: every file in it must be a lesson of
/// the course, with the source that this program was built from, or one of the few named here.
pub fn check_folder(dir: &Path) -> Result<()> {
    const OTHERS: [&str; 4] = ["README.md", "data", "map.svg", "words.txt"];
    let entries = std::fs::read_dir(dir).map_err(|e| Error::io(dir, e))?;
    for entry in entries {
        let path = entry.map_err(|e| Error::io(dir, e))?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if OTHERS.contains(&&*name) {
            continue;
        }
        let listed = SOURCES
            .iter()
            .find(|(lesson, _)| name.strip_suffix(".rs") == Some(lesson));
        let Some((_, built_from)) = listed else {
            return Err(Error::file(&path, "is no lesson of the course"));
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

/// Ends a lesson run as a program: an error names the exercises whose check was not passed.
pub fn finish(name: &str) -> LessonResult {
    let lesson = find(name)?;
    let open: Vec<&str> = lesson
        .exercises
        .iter()
        .map(|e| e.id.as_str())
        .filter(|id| !exercise::passed(id))
        .collect();
    if open.is_empty() {
        let given = |exercise: &Exercise| exercise::was_given(&exercise.id);
        if lesson.exercises.iter().any(given) {
            println!(
                "The solutions were the lesson's own, so they don't count as yours: lessons/README.md \
                 says how to put yours in their place."
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
        for name in ["01_tokens", "01", "1"] {
            assert_eq!(find(name).unwrap().name, "01_tokens");
        }
        let error = find("99").unwrap_err();
        assert_eq!(error.exit_code(), 2);
        assert!(error.to_string().contains("01_tokens"));
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
    }
}
