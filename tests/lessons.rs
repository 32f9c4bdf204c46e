//! The lessons: notebooks are valid, stubs get hints, solutions pass, and the spelling is right.

mod common;

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use cloze::lessons::format::CellKind;
use cloze::lessons::{self, Lesson, checks};
use common::{assert_contains, cloze, stdout};
use serde_json::Value;
use unicase::UniCase;

/// Returns a lesson's program, which `cargo test` has built.
fn program(lesson: &Lesson) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let path = test.parent().unwrap().parent().unwrap().join("examples").join(&lesson.name);
    assert!(
        path.is_file(),
        "{} is missing: run `cargo build --examples`, or all of `cargo test`",
        path.display()
    );
    path
}

/// Runs a lesson with shortened training. These exercises (`all`, or ids with commas) are left unsolved.
fn run(lesson: &Lesson, unsolved: &str) -> (Output, String) {
    let output = Command::new(program(lesson))
        .env("CLOZE_EXERCISE_STUB", unsolved)
        .env("CLOZE_LESSON_QUICK", "1")
        .env("CLOZE_DATA", env!("CARGO_TARGET_TMPDIR"))
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
            let passed = format!("✓ {} right", exercise.heading());
            assert!(text.contains(&passed), "{passed:?} is missing in\n{text}");
        }
    }
    let data = Path::new(env!("CARGO_TARGET_TMPDIR"));
    assert!(data.join("lesson-bert/model.safetensors").is_file());
    assert!(!data.join("your-bert").exists(), "a solution must not replace the learner's model");
}

#[test]
fn an_open_exercise_breaks_no_other() {
    for (number, lesson) in lessons::all().unwrap().iter().enumerate() {
        // Every second exercise is open, in one lesson those with even places, in the next the others.
        let (open, solved): (Vec<_>, Vec<_>) =
            lesson.exercises.iter().enumerate().partition(|(place, _)| place % 2 == number % 2);
        let ids: Vec<&str> = open.iter().map(|(_, each)| each.id.as_str()).collect();
        let (output, text) = run(lesson, &ids.join(","));
        let errors = String::from_utf8_lossy(&output.stderr);
        for (_, exercise) in open {
            let answer = format!("○ {} not solved yet", exercise.heading());
            assert!(text.contains(&answer), "{answer:?} is missing in\n{text}\n{errors}");
        }
        for (_, exercise) in solved {
            let passed = format!("✓ {}", exercise.id);
            // An exercise may use the functions of another one.
            let waits = format!("○ {} needs exercise", exercise.heading());
            let found = text.contains(&passed) || text.contains(&waits);
            assert!(found, "{passed:?} is missing in\n{text}");
        }
        assert_eq!(output.status.code(), Some(1));
        assert!(!errors.contains("panicked"), "{errors}");
    }
}

#[test]
fn a_lesson_without_any_answer_runs_to_its_end_and_each_stub_gets_its_first_hint() {
    for lesson in lessons::all().unwrap() {
        let (_, text) = run(&lesson, "all");
        for exercise in &lesson.exercises {
            let heading = exercise.heading();
            let answer = format!("○ {heading} not solved yet");
            let waits = text.contains(&format!("○ {heading} needs exercise"));
            assert!(waits || text.contains(&answer), "{answer:?} is missing in\n{text}");
            assert!(waits || text.contains(&exercise.hints[0]), "no hint in\n{text}");
        }
        assert!(!text.contains('✓'), "{text}");
    }
}

#[test]
fn notebooks_are_valid_nbformat_with_stable_ids() {
    let (dir, again) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    for solutions in [false, true] {
        let out = dir.path().join(solutions.to_string());
        let built = lessons::build(&out, solutions).unwrap();
        let twin = lessons::build(&again.path().join(solutions.to_string()), solutions).unwrap();
        assert_eq!(built.lessons.len(), lessons::all().unwrap().len());
        let paths = [&built.index].into_iter().chain(&built.lessons);
        for (path, twin) in paths.zip([&twin.index].into_iter().chain(&twin.lessons)) {
            let bytes = std::fs::read(path).unwrap();
            assert_eq!(bytes, std::fs::read(twin).unwrap(), "built twice, the same file");
            check_notebook(&serde_json::from_slice(&bytes).unwrap());
        }
    }
}

/// Checks the rules of the nbformat 4.5 schema that our notebooks could break.
fn check_notebook(notebook: &Value) {
    assert_eq!((&notebook["nbformat"], &notebook["nbformat_minor"]), (&4.into(), &5.into()));
    assert_eq!(notebook["metadata"]["kernelspec"]["name"], "cloze");
    assert_eq!(notebook["metadata"]["language_info"]["name"], "rust");
    let mut ids = HashSet::new();
    let cells = notebook["cells"].as_array().unwrap();
    assert!(cells.len() > 3);
    for cell in cells {
        let id = cell["id"].as_str().unwrap();
        assert!((1..=64).contains(&id.len()) && ids.insert(id.to_owned()), "{id}");
        assert!(id.chars().all(|c| c.is_ascii_alphanumeric() || "-_".contains(c)), "{id}");
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
    let learner = lessons::build(&dir.path().join("learner"), false).unwrap().lessons;
    let solved = lessons::build(&dir.path().join("solved"), true).unwrap().lessons;
    for (lesson, (learner, solved)) in
        lessons::all().unwrap().iter().zip(learner.iter().zip(&solved))
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
            for mark in ["BEGIN SOLUTION", "END SOLUTION", "fn main", "finish("] {
                assert!(!text.contains(mark), "{mark:?} in {}", lesson.name);
            }
        }
        // A solution that runs records that it isn't the learner's answer.
        let solutions = |text: &str| text.matches("cloze::solution!(").count();
        assert_eq!((solutions(&learner), solutions(&solved)), (0, lesson.exercises.len()));
    }
}

#[test]
fn every_lesson_file_is_listed_and_is_an_example() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    lessons::check_folder(&root.join("lessons")).unwrap();
    checks::generated(&root.join("lessons"), &lessons::all().unwrap(), false).unwrap();
    let manifest = std::fs::read_to_string(root.join("Cargo.toml")).unwrap();
    let manifest: toml::Table = manifest.parse().unwrap();
    let examples: HashSet<(String, String)> = manifest["example"]
        .as_array()
        .unwrap()
        .iter()
        .map(|e| (e["name"].as_str().unwrap().into(), e["path"].as_str().unwrap().into()))
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
fn links_needs_and_minutes_hold() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let all = lessons::all().unwrap();
    checks::needs(&all).unwrap();
    checks::core(&all).unwrap();
    for lesson in &all {
        checks::links(lesson, &all, Some(root)).unwrap();
        checks::minutes(&root.join("lessons"), lesson, false).unwrap();
        checks::form(lesson).unwrap();
    }
}

/// Returns the words that the spelling test would wrongly report.
fn accepted_words() -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("lessons/words.txt");
    let text = std::fs::read_to_string(path).unwrap();
    let words = text.lines().filter(|l| !l.is_empty() && !l.starts_with('#'));
    words.map(str::to_lowercase).collect()
}

/// Returns the British spellings of a word that is spelled otherwise.
fn british(word: &UniCase<&str>) -> Option<&'static [&'static str]> {
    let variants = *typos_vars::VARS.find(word)?;
    let home = typos_vars::Category::BritishIse;
    let fits =
        |bits: u8| typos_vars::CategorySet::from_bits(bits).is_ok_and(|set| set.contains(home));
    if variants.iter().any(|(bits, _)| fits(*bits)) {
        return None;
    }
    let first = variants.first()?;
    Some(typos_vars::corrections(home, *first.1))
}

/// Returns the misspelled words of a text with their corrections. Only `prose` must be British.
fn misspelled(text: &str, prose: bool) -> Vec<(String, String)> {
    let tokenizer = typos::tokens::Tokenizer::new();
    let words = tokenizer.parse_str(text).flat_map(|name| name.split());
    let words: Vec<String> = words.map(|word| word.token().to_owned()).collect();
    let wrong = words.into_iter().filter_map(|word| {
        let key = UniCase::new(word.as_str());
        let meant = typos_dict::WORD.find(&key).copied();
        let meant = meant.or_else(|| british(&key).filter(|_| prose))?;
        Some((word.to_lowercase(), meant.join(" or ")))
    });
    wrong.collect()
}

/// Removes code, formulas and links from Markdown.
fn without_code(text: &str) -> String {
    let outside = |text: &str, mark: &str| -> String {
        let parts: Vec<&str> = text.split(mark).step_by(2).collect();
        parts.join(" ")
    };
    let links = |text: &str| -> String {
        let cut = |part: &str| part.split_once(')').map_or("", |rest| rest.1).to_owned();
        let mut parts = text.split("](");
        let first = parts.next().unwrap_or_default().to_owned();
        parts.fold(first, |whole, part| whole + " " + &cut(part))
    };
    ["```", "`", "$$", "$"].iter().fold(links(text), |text, mark| outside(&text, mark))
}

#[test]
fn spelling_is_british() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("lessons");
    let accepted = accepted_words();
    let mut met = HashSet::new();
    let mut complaints = Vec::new();
    let mut look = |place: &str, text: &str, prose: bool| {
        for (word, meant) in misspelled(text, prose) {
            if accepted.contains(&word) {
                met.insert(word);
            } else {
                complaints.push(format!("{place}: {word:?} should be {meant:?}"));
            }
        }
    };
    for lesson in lessons::all().unwrap() {
        let place = format!("lessons/{}.rs", lesson.name);
        let titles = [&lesson.title, &lesson.summary];
        let exercises = lesson.exercises.iter();
        let texts = exercises.flat_map(|e| e.hints.iter().chain([&e.title]));
        for text in titles.into_iter().chain(texts) {
            look(&place, &without_code(text), true);
        }
        for cell in &lesson.cells {
            let text = cell.solution();
            let place = format!("{place}:{}", cell.line);
            match cell.kind {
                CellKind::Markdown => {
                    look(&place, &without_code(&text), true);
                    look(&place, &text, false);
                }
                CellKind::Code | CellKind::Yours => look(&place, &text, false),
            }
        }
    }
    for name in ["README.md", "data/README.md"] {
        let text = std::fs::read_to_string(root.join(name)).unwrap();
        look(&format!("lessons/{name}"), &without_code(&text), true);
    }
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
    // Words that are no longer needed must go.
    let idle: Vec<_> = accepted.iter().filter(|word| !met.contains(*word)).collect();
    assert!(idle.is_empty(), "lessons/words.txt has words that no lesson needs: {idle:?}");
}

#[test]
fn the_spelling_test_finds_mistakes() {
    let words = |text: &str, prose| -> Vec<String> {
        let found = misspelled(text, prose).into_iter();
        found.map(|(word, _)| word).collect()
    };
    assert_eq!(words("teh color of attention", true), ["teh", "color"]);
    assert_eq!(words("let color = recieve(softmax);", false), ["recieve"]);
    assert_eq!(words("normalize the colour", true), ["normalize"]);
    let text = "A `color` and $color$ in [color](https://a.b/color)\n```\ncolor\n``` colour";
    assert_eq!(words(&without_code(text), true), ["color"]);
}

#[test]
fn the_readme_of_the_data_lists_every_folder() {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("lessons/data");
    let readme = std::fs::read_to_string(data.join("README.md")).unwrap();
    for entry in std::fs::read_dir(&data).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(
            name == "README.md" || readme.contains(&format!("`{name}")),
            "lessons/data/{name} is not listed in lessons/data/README.md"
        );
    }
}

/// Returns the progress that the command reads from `data`.
fn progress(data: &Path) -> Value {
    let output =
        cloze().args(["lessons", "progress", "--json"]).env("CLOZE_DATA", data).output().unwrap();
    assert!(output.status.success());
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn progress_is_saved_and_shown_and_the_lessons_own_solutions_do_not_count() {
    let dir = tempfile::tempdir().unwrap();
    let first = &lessons::all().unwrap()[0];
    let id = &first.exercises[0].id;
    let run = |unsolved: &str| {
        let output = Command::new(program(first))
            .env("CLOZE_EXERCISE_STUB", unsolved)
            .env("CLOZE_LESSON_QUICK", "1")
            .env("CLOZE_DATA", dir.path())
            .output()
            .unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    assert!(run("").contains("don't count as yours"));
    assert_eq!(progress(dir.path())["passed"], 0);

    let line = format!("{{\"exercise\":\"{id}\",\"passed\":\"2026-01-31T10:00:00Z\"}}\n");
    std::fs::write(dir.path().join("progress.jsonl"), line).unwrap();
    let kept = progress(dir.path());
    assert_eq!(kept["passed"], 1);
    assert_eq!(kept["lessons"][0]["exercises"][0]["date"], "2026-01-31");
    // A check that fails later changes nothing.
    let failed = run(id);
    let heading = first.exercises[0].heading();
    let expected = format!("○ {heading} not solved yet (passed before, on 2026-01-31)");
    assert_contains(&failed, &expected);
    assert_eq!(progress(dir.path()), kept);

    let table =
        cloze().args(["lessons", "progress"]).env("CLOZE_DATA", dir.path()).output().unwrap();
    let table = stdout(&table);
    assert_contains(&table, "●○");
    assert_contains(&table, "last on 2026-01-31");
    assert_contains(&table, "the next is");
}

#[test]
fn the_command_lists_builds_and_checks() {
    let dir = tempfile::tempdir().unwrap();
    let list = cloze().args(["lessons", "list"]).output().unwrap();
    let list = stdout(&list);
    let out = dir.path().join("notebooks");
    let build = cloze().args(["lessons", "build", "--out"]).arg(&out).output().unwrap();
    assert!(build.status.success());
    for lesson in lessons::all().unwrap() {
        assert_contains(&list, &lesson.title);
        assert!(out.join(format!("{}.ipynb", lesson.name)).is_file());
    }
    let check = cloze().args(["lessons", "check"]).current_dir(dir.path()).output().unwrap();
    assert!(check.status.success());
    let unknown = cloze().args(["lessons", "check", "77"]).output().unwrap();
    assert_eq!(unknown.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&unknown.stderr).contains("there is no lesson \"77\""));
}
