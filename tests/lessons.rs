//! The lessons as a learner meets them: notebooks that hold together, stubs that get help,
//! solutions that pass.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use cloze::lessons::{self, Lesson};
use serde_json::Value;

/// A lesson's program, which `cargo test` builds beside the tests.
fn program(lesson: &Lesson) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let path = test
        .parent()
        .unwrap()
        .parent()
        .unwrap()
        .join("examples")
        .join(&lesson.name);
    assert!(
        path.is_file(),
        "{} is missing: run `cargo build --examples`, or all of `cargo test`",
        path.display()
    );
    path
}

/// Runs a lesson with the given exercises (`all`, or ids with commas) left unsolved, its training
/// shortened.
fn run(lesson: &Lesson, unsolved: &str) -> (Output, String) {
    let output = Command::new(program(lesson))
        .env("CLOZE_EXERCISE_STUB", unsolved)
        .env("CLOZE_LESSON_QUICK", "1")
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    (output, text)
}

#[test]
fn every_solution_passes_its_check() {
    for lesson in lessons::all().unwrap() {
        let (output, text) = run(&lesson, "");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}: {text}\n{errors}", lesson.name);
        for exercise in &lesson.exercises {
            let passed = format!("✓ {} {}: right", exercise.id, exercise.title);
            assert!(text.contains(&passed), "{passed:?} is missing in\n{text}");
        }
    }
}

#[test]
fn each_stub_gets_its_first_hint_and_breaks_nothing_else() {
    for lesson in lessons::all().unwrap() {
        for exercise in &lesson.exercises {
            let (output, text) = run(&lesson, &exercise.id);
            let errors = String::from_utf8_lossy(&output.stderr);
            let answer = format!("○ {} {}: not solved yet", exercise.id, exercise.title);
            assert!(
                text.contains(&answer),
                "{answer:?} is missing in\n{text}\n{errors}"
            );
            assert!(text.contains(&exercise.hints[0]), "no hint in\n{text}");
            // The run ends with the exercise named as open, and only this one.
            assert_eq!(output.status.code(), Some(1));
            assert!(!errors.contains("panicked"), "{errors}");
            for other in lesson.exercises.iter().filter(|e| e.id != exercise.id) {
                let passed = format!("✓ {}", other.id);
                assert!(text.contains(&passed), "{passed:?} is missing in\n{text}");
            }
        }
    }
}

#[test]
fn a_lesson_without_any_answer_runs_to_its_end() {
    for lesson in lessons::all().unwrap() {
        let (_, text) = run(&lesson, "all");
        for exercise in &lesson.exercises {
            let answer = format!("○ {}", exercise.id);
            assert!(text.contains(&answer), "{answer:?} is missing in\n{text}");
        }
        assert!(!text.contains('✓'), "{text}");
    }
}

#[test]
fn notebooks_are_valid_nbformat_with_stable_ids() {
    let (dir, again) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    for solutions in [false, true] {
        let out = dir.path().join(solutions.to_string());
        let paths = lessons::build(&out, solutions).unwrap();
        let twin = lessons::build(&again.path().join(solutions.to_string()), solutions).unwrap();
        assert_eq!(paths.len(), lessons::all().unwrap().len());
        for (path, twin) in paths.iter().zip(&twin) {
            let bytes = std::fs::read(path).unwrap();
            assert_eq!(
                bytes,
                std::fs::read(twin).unwrap(),
                "built twice, the same file"
            );
            check_notebook(&serde_json::from_slice(&bytes).unwrap());
        }
    }
}

/// The rules of the nbformat 4.5 schema that a notebook of ours could break.
fn check_notebook(notebook: &Value) {
    assert_eq!(
        (&notebook["nbformat"], &notebook["nbformat_minor"]),
        (&4.into(), &5.into())
    );
    assert_eq!(notebook["metadata"]["kernelspec"]["name"], "cloze");
    assert_eq!(notebook["metadata"]["language_info"]["name"], "rust");
    let mut ids = HashSet::new();
    let cells = notebook["cells"].as_array().unwrap();
    assert!(cells.len() > 10);
    for cell in cells {
        let id = cell["id"].as_str().unwrap();
        assert!(
            (1..=64).contains(&id.len()) && ids.insert(id.to_owned()),
            "{id}"
        );
        assert!(
            id.chars()
                .all(|c| c.is_ascii_alphanumeric() || "-_".contains(c)),
            "{id}"
        );
        assert!(cell["metadata"].is_object());
        let lines = cell["source"].as_array().unwrap();
        assert!(!lines.is_empty(), "an empty cell");
        match cell["cell_type"].as_str().unwrap() {
            "markdown" => assert!(cell.get("outputs").is_none()),
            "code" => {
                assert!(cell["outputs"].as_array().unwrap().is_empty());
                assert!(cell["execution_count"].is_null());
            }
            other => panic!("unknown cell type {other}"),
        }
    }
}

#[test]
fn a_learner_s_notebook_holds_stubs_and_never_a_solution() {
    let dir = tempfile::tempdir().unwrap();
    let learner = lessons::build(&dir.path().join("learner"), false).unwrap();
    let solved = lessons::build(&dir.path().join("solved"), true).unwrap();
    for (lesson, (learner, solved)) in lessons::all()
        .unwrap()
        .iter()
        .zip(learner.iter().zip(&solved))
    {
        let code = |path: &Path| {
            let notebook: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
            let cells = notebook["cells"].as_array().unwrap().clone();
            let code = cells.iter().filter(|c| c["cell_type"] == "code");
            code.flat_map(|c| c["source"].as_array().unwrap().clone())
                .map(|line| line.as_str().unwrap().to_owned())
                .collect::<String>()
        };
        let (learner, solved) = (code(learner), code(solved));
        for exercise in &lesson.exercises {
            let stub = format!("cloze::exercise!(\"{}\")", exercise.id);
            assert_eq!(learner.matches(&stub).count(), 1, "{stub}");
            assert!(!solved.contains(&stub));
        }
        for text in [&learner, &solved] {
            for mark in [
                "BEGIN SOLUTION",
                "END SOLUTION",
                "cloze::solution!",
                "fn main",
                "finish(",
            ] {
                assert!(!text.contains(mark), "{mark:?} in {}", lesson.name);
            }
        }
    }
}

#[test]
fn every_lesson_file_is_listed_and_is_an_example() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    lessons::check_folder(&root.join("lessons")).unwrap();
    let manifest = std::fs::read_to_string(root.join("Cargo.toml")).unwrap();
    let manifest: toml::Table = manifest.parse().unwrap();
    let examples: HashSet<(String, String)> = manifest["example"]
        .as_array()
        .unwrap()
        .iter()
        .map(|e| {
            (
                e["name"].as_str().unwrap().into(),
                e["path"].as_str().unwrap().into(),
            )
        })
        .collect();
    let expected: HashSet<(String, String)> = lessons::all()
        .unwrap()
        .into_iter()
        .map(|l| (l.name.clone(), format!("lessons/{}.rs", l.name)))
        .collect();
    assert_eq!(examples, expected);
    for (_, path) in expected {
        assert!(root.join(&path).is_file(), "{path}");
    }
}

#[test]
fn the_command_lists_builds_and_checks() {
    let cloze = || Command::new(env!("CARGO_BIN_EXE_cloze"));
    let dir = tempfile::tempdir().unwrap();
    let list = cloze().args(["lessons", "list"]).output().unwrap();
    let list = String::from_utf8(list.stdout).unwrap();
    let out = dir.path().join("notebooks");
    let build = cloze()
        .args(["lessons", "build", "--out"])
        .arg(&out)
        .output()
        .unwrap();
    assert!(build.status.success());
    for lesson in lessons::all().unwrap() {
        assert!(list.contains(&lesson.title), "{list}");
        assert!(out.join(format!("{}.ipynb", lesson.name)).is_file());
    }
    let check = cloze()
        .args(["lessons", "check"])
        .current_dir(dir.path())
        .output()
        .unwrap();
    assert!(check.status.success());
    let unknown = cloze().args(["lessons", "check", "77"]).output().unwrap();
    assert_eq!(unknown.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&unknown.stderr).contains("there is no lesson \"77\""));
}
