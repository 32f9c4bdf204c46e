//! The learner's BERT as a crate of its own: their answers to the core lessons in one module for each lesson,
//! and a program that pre-trains the model that they make.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use super::answers::{self, Gathered, LessonCode};
use crate::error::{Error, Result};
use crate::files::{SOURCES, create_folder, write_atomic};

/// The exercises that make up a BERT and its training; what they use comes with them.
const EXERCISES: [&str; 19] = [
    "02.1", "02.2", "02.3", "03.2", "03.3", "05.3", "06.2", "06.3", "07.1", "07.2", "07.3", "08.2",
    "08.3", "09.3", "10.1", "10.2", "10.3", "11.1", "11.3",
];

/// The program that joins them.
const MAIN: &str = include_str!("mine.txt");

/// What was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mine {
    /// The files.
    pub files: Vec<PathBuf>,
    /// Which parts are the learner's and which the lessons'.
    pub summary: String,
}

/// Writes the crate to `out`, which must not exist or be empty.
///
/// # Errors
/// If the folder holds something, or can't be written.
pub fn write(out: &Path) -> Result<Mine> {
    let filled = std::fs::read_dir(out).is_ok_and(|mut entries| entries.next().is_some());
    if filled {
        let message = "is not empty: name a new folder, so that nothing of yours is overwritten";
        return Err(Error::file(out, message));
    }
    let ids = EXERCISES.map(str::to_owned);
    let found = answers::gather(&ids, answers::kept)?;
    create_folder(&out.join("src"))?;
    let mut files = Vec::new();
    for (name, text) in texts(&found) {
        let path = out.join(name);
        write_atomic(&path, text.as_bytes())?;
        files.push(path);
    }
    Ok(Mine { files, summary: found.summary() })
}

/// Returns the files of the crate with their texts.
fn texts(found: &Gathered) -> Vec<(String, String)> {
    let modules: String =
        found.modules.iter().map(|module| format!("mod {};\n", module.lesson.slug())).collect();
    let mut texts = vec![
        ("Cargo.toml".to_owned(), manifest()),
        ("src/main.rs".to_owned(), MAIN.replace("// The modules.\n", &modules)),
    ];
    texts.extend(found.modules.iter().map(|module| {
        (
            format!("src/{}.rs", module.lesson.slug()),
            format!("{}\n{}\n", heading(module), module.code),
        )
    }));
    texts
}

fn manifest() -> String {
    let cloze = match Path::new(SOURCES).join("Cargo.toml").is_file() {
        true => format!("path = {SOURCES:?}"),
        false => format!("version = \"{}\"", env!("CARGO_PKG_VERSION")),
    };
    format!(
        "[package]\nname = \"my-bert\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\n[dependencies]\ncloze = {{ \
         {cloze}, default-features = false, features = [\"charts\"] }}\n\n# Without optimisation dfdx trains \
         a hundred times more slowly.\n[profile.dev]\nopt-level = 3\n\n# It stands alone, also inside of \
         another workspace.\n[workspace]\n"
    )
}

/// Returns the module's documentation: the lesson, and whose its parts are.
fn heading(module: &LessonCode) -> String {
    let lesson = &module.lesson;
    let functions = |ids: &[String]| {
        let all = ids.iter().flat_map(|id| answers::functions(lesson, id));
        all.map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
    };
    let mut text = format!("//! Lesson {}: {}.\n", lesson.number(), lesson.title);
    for (whose, ids) in [
        ("Yours", &module.yours),
        ("The lesson's solution, because you have not passed the exercise", &module.given),
    ] {
        if !ids.is_empty() {
            // Writing to a text can't fail.
            let _ = writeln!(text, "//!\n//! {whose}: {}.", functions(ids));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_crate_is_small_and_says_whose_its_parts_are() {
        let mine = "fn cross_entropy(logits: &[f32], label: usize) -> f64 { 0.0 }";
        let ids = EXERCISES.map(str::to_owned);
        let found =
            answers::gather(&ids, |id| Ok((id == "07.2").then(|| mine.to_owned()))).unwrap();
        let texts = texts(&found);
        let is_code = |line: &&str| !line.trim().is_empty() && !line.trim().starts_with("//");
        let code = |text: &str| text.lines().filter(is_code).count();
        let lines: usize = texts.iter().map(|(_, text)| code(text)).sum();
        assert!((300..=420).contains(&lines), "{lines} lines");
        for (name, text) in texts.iter().filter(|(name, _)| name.ends_with(".rs")) {
            assert!(syn::parse_file(text).is_ok(), "{name}: {text}");
        }
        let (_, masked) = texts.iter().find(|(name, _)| name == "src/masked_lm.rs").unwrap();
        assert!(masked.contains("//! Yours: `cross_entropy`."), "{masked}");
        assert!(masked.contains("passed the exercise: `disguise`, `masked_head`."), "{masked}");
    }

    #[test]
    fn a_folder_that_holds_something_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("mine.txt"), "").unwrap();
        let error = write(dir.path()).unwrap_err().to_string();
        assert!(error.contains("is not empty"), "{error}");
    }
}
