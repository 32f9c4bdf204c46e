//! Checks of the lessons beyond their format: that links work, that stated times fit, and that the README
//! and the map agree with the front matter.

use std::collections::BTreeMap;
use std::path::Path;

use super::format::{CellKind, Lesson, Track};
use super::progress::Progress;
use super::{answers, course};
use crate::engine::timing::median;
use crate::error::{Error, Result};

/// A learner's pace: words of text and lines of given code read a minute, and minutes for an exercise.
const WORDS: f64 = 150.0;
const LINES: f64 = 10.0;
const EXERCISE: f64 = 10.0;
/// Accepted difference between the stated and the counted minutes of a lesson.
const ROUNDING: f64 = 3.0;
/// The most minutes of a lesson, and of all lessons of the core.
const LONGEST: f64 = 60.0;
const CORE: u32 = 720;
/// The least number of exercises of a lesson.
const EXERCISES: usize = 3;
/// The most lines of given code in a cell.
const CELL: usize = 25;
/// Accepted ratio of stated to measured seconds, or the inverse.
const FACTOR: f64 = 2.0;
/// Times up to this many seconds are not compared: starting a session varies by as much.
const SHORT: f64 = 5.0;

/// The folders of the repository whose files lessons mention.
const FOLDERS: [&str; 6] = ["src/", "kernel/", "lessons/", "tests/", "benches/", ".ci/"];

/// Checks the links of a lesson: web addresses must be complete, linked lessons must exist, and so must
/// every file in backticks. `root` is the checkout; without one, files are not checked.
pub fn links(lesson: &Lesson, lessons: &[Lesson], root: Option<&Path>) -> Result<()> {
    for cell in lesson.cells.iter().filter(|c| c.kind == CellKind::Markdown) {
        let text = cell.solution();
        for (offset, line) in outside_of_fences(&text) {
            // The cell's mark stands one line above its text.
            let at = cell.line + 1 + offset;
            let path = format!("lessons/{}.rs", lesson.name);
            let fault = |message: String| Error::line(&path, at, message);
            for target in link_targets(line) {
                let known = |name: &str| lessons.iter().any(|l| l.name == name);
                let whole = target.starts_with("https://") && target.len() > "https://".len();
                let other = target.strip_suffix(".rs").is_some_and(known);
                if target.contains(' ') || !(whole || other || target.starts_with('#')) {
                    return Err(fault(format!(
                        "the link {target:?} leads nowhere: expected https://…, or another lesson's \
                         file; files of the repository are named in backticks"
                    )));
                }
            }
            for path in named_files(line) {
                if let Some(root) = root
                    && !root.join(path).exists()
                {
                    return Err(fault(format!("there is no {path}")));
                }
            }
        }
    }
    Ok(())
}

/// Iterates over the lines of Markdown outside code blocks, with their numbers from 0.
fn outside_of_fences(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut inside = false;
    text.lines().enumerate().filter(move |(_, line)| {
        let fence = line.trim_start().starts_with("```");
        inside ^= fence;
        !inside && !fence
    })
}

/// Iterates over the targets of a line's Markdown links.
fn link_targets(line: &str) -> impl Iterator<Item = &str> {
    let after = line.split("](").skip(1);
    after.filter_map(|rest| rest.split_once(')').map(|(target, _)| target))
}

/// Iterates over the files of the repository that a line mentions in backticks.
fn named_files(line: &str) -> impl Iterator<Item = &str> {
    let quoted = line.split('`').skip(1).step_by(2);
    let in_path = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
    quoted.filter(move |text| {
        FOLDERS.iter().any(|folder| text.starts_with(folder)) && text.chars().all(in_path)
    })
}

/// Counts how many minutes a learner takes for the lesson. Checks are folded, so nobody has to read them.
pub fn counted_minutes(lesson: &Lesson) -> f64 {
    let (mut words, mut given) = (0, 0);
    for cell in &lesson.cells {
        let lines = |text: &str| text.lines().filter(|l| !l.trim().is_empty()).count();
        let text = cell.solution();
        match cell.kind {
            CellKind::Markdown => words += text.split_whitespace().count(),
            CellKind::Code if text.starts_with("check!(") => {}
            // Two lines of a stub are the place for the learner's code.
            CellKind::Code if cell.exercise().is_some() => given += lines(&cell.stub()) - 2,
            CellKind::Code => given += lines(&text),
            // A command in the notebook.
            CellKind::Yours => {}
        }
    }
    words as f64 / WORDS + given as f64 / LINES + EXERCISE * lesson.exercises.len() as f64
}

/// Checks that the stated minutes are the counted ones, rounded, and that they are not too many; with `fix`,
/// writes them into the lesson's file in `dir`.
pub fn minutes(dir: &Path, lesson: &Lesson, fix: bool) -> Result<()> {
    let counted = counted_minutes(lesson);
    if counted > LONGEST {
        return Err(Error::Failed(format!(
            "lessons/{}.rs takes {counted:.0} minutes; {LONGEST} are the most",
            lesson.name
        )));
    }
    if (f64::from(lesson.minutes) - counted).abs() <= ROUNDING {
        return Ok(());
    }
    if !fix {
        return Err(Error::Failed(format!(
            "lessons/{}.rs states {} minutes, but by its text, code and exercises it takes {counted:.0}: run \
             `cloze lessons check --fix`",
            lesson.name, lesson.minutes
        )));
    }
    let path = dir.join(format!("{}.rs", lesson.name));
    let text = std::fs::read_to_string(&path).map_err(|e| Error::io(&path, e))?;
    let (stated, counted) = (lesson.minutes, counted.round());
    let text = text
        .replacen(&format!("// minutes = {stated}\n"), &format!("// minutes = {counted}\n"), 1)
        .replacen(&format!("About {stated} minutes"), &format!("About {counted} minutes"), 1);
    std::fs::write(&path, text).map_err(|e| Error::io(&path, e))
}

/// Checks the form of a lesson: at least three exercises, no long cells of given code, and checks alone in
/// their cells, which a notebook then folds.
pub fn form(lesson: &Lesson) -> Result<()> {
    let path = format!("lessons/{}.rs", lesson.name);
    if lesson.exercises.len() < EXERCISES {
        let message =
            format!("has {} exercises; {EXERCISES} are the least", lesson.exercises.len());
        return Err(Error::file(&path, message));
    }
    for cell in lesson.cells.iter().filter(|cell| cell.kind == CellKind::Code) {
        let text = cell.stub();
        if text.trim_start().starts_with("check!(") {
            continue;
        }
        if cell.check().is_some() {
            let message = "a check stands alone in its cell, so that a notebook folds it";
            return Err(Error::line(&path, cell.line, message));
        }
        let lines = text.lines().filter(|line| !line.trim().is_empty()).count();
        if lines > CELL {
            let message = format!("a cell of {lines} lines of given code; {CELL} are the most");
            return Err(Error::line(&path, cell.line, message));
        }
    }
    Ok(())
}

/// Checks that the core of the course is not too long.
pub fn core(lessons: &[Lesson]) -> Result<()> {
    let core = lessons.iter().filter(|lesson| lesson.track == Track::Core);
    let minutes: u32 = core.map(|lesson| lesson.minutes).sum();
    match minutes <= CORE {
        true => Ok(()),
        false => {
            Err(Error::Failed(format!("the core takes {minutes} minutes; {CORE} are the most")))
        }
    }
}

/// Checks that lessons need only lessons of the course.
pub fn needs(lessons: &[Lesson]) -> Result<()> {
    for lesson in lessons {
        for need in &lesson.needs {
            if !lessons.iter().any(|other| other.number() == need) {
                return Err(Error::Failed(format!(
                    "lessons/{}.rs needs lesson {need}, which is not there",
                    lesson.name
                )));
            }
        }
    }
    Ok(())
}

/// Checks that the cells `[yours]` of the lessons in `dir` hold the solutions of the exercises that they
/// name; with `fix`, writes them anew.
pub fn yours(dir: &Path, lessons: &[Lesson], fix: bool) -> Result<()> {
    for lesson in lessons {
        let path = dir.join(format!("{}.rs", lesson.name));
        for cell in lesson.cells.iter().filter(|cell| cell.kind == CellKind::Yours) {
            let wanted = answers::gather(&cell.exercises, |_| Ok(None))?.cell();
            if cell.solution() == wanted {
                continue;
            }
            if !fix {
                let message = "is not the code of these exercises: run `cloze lessons check --fix`";
                return Err(Error::line(&path, cell.line, message));
            }
            let text = std::fs::read_to_string(&path).map_err(|e| Error::io(&path, e))?;
            // A line may have moved if an earlier cell was written anew.
            let mark = format!("    // %% [yours] {}", cell.exercises.join(" "));
            let Some((before, after)) = text.split_once(&format!("{mark}\n")) else {
                return Err(Error::line(&path, cell.line, format!("expected {mark:?}")));
            };
            let rest = after.find("    // %%").map_or("", |next| &after[next..]);
            let code: String = wanted
                .lines()
                .map(|line| if line.is_empty() { "\n".into() } else { format!("    {line}\n") })
                .collect();
            std::fs::write(&path, format!("{before}{mark}\n{code}\n{rest}"))
                .map_err(|e| Error::io(&path, e))?;
        }
    }
    Ok(())
}

/// Checks that the table in the folder's README and the map in `map.svg` agree with the front matter; with
/// `fix`, updates both.
pub fn generated(dir: &Path, lessons: &[Lesson], fix: bool) -> Result<()> {
    let readme = dir.join("README.md");
    let text = std::fs::read_to_string(&readme).map_err(|e| Error::io(&readme, e))?;
    let renewed = course::with_table(&text, lessons).ok_or_else(|| {
        let message = "the lines that frame the table of the lessons are missing";
        Error::file(&readme, message)
    })?;
    let map = course::map_of(lessons, &Progress::default(), |_| 0).svg();
    for (path, wanted) in [(readme, renewed), (dir.join("map.svg"), map)] {
        let found = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => String::new(),
            Err(e) => return Err(Error::io(&path, e)),
        };
        if found != wanted && !fix {
            let message = "does not agree with the lessons: run `cloze lessons check --fix`";
            return Err(Error::file(&path, message));
        } else if found != wanted {
            std::fs::write(&path, wanted).map_err(|e| Error::io(&path, e))?;
        }
    }
    Ok(())
}

/// Compares the stated seconds of the lessons with measured ones, given as a JSON object from names to
/// seconds. Machines differ, so the measured times are first divided by the machine's pace, the median
/// ratio of measured to stated times; then they must agree up to a factor of two. Returns the comparison
/// as lines of text.
pub fn seconds(lessons: &[Lesson], measured: &Path) -> Result<Vec<String>> {
    let text = std::fs::read_to_string(measured).map_err(|e| Error::io(measured, e))?;
    let times: BTreeMap<String, f64> =
        serde_json::from_str(&text).map_err(|e| Error::file(measured, e.to_string()))?;
    let both = lessons.iter().filter_map(|lesson| {
        let stated = f64::from(lesson.seconds?);
        Some((lesson, stated, *times.get(&lesson.name)?))
    });
    let both: Vec<(&Lesson, f64, f64)> = both.collect();
    let long = both.iter().filter(|(_, stated, _)| *stated > SHORT);
    let mut ratios: Vec<f64> = long.map(|(_, stated, measured)| measured / stated).collect();
    let pace = match ratios.len() {
        0 => 1.0,
        _ => median(&mut ratios),
    };
    let mut lines = Vec::new();
    for (lesson, stated, measured) in both {
        let expected = stated * pace;
        let ratio = measured / expected;
        if (expected.max(measured) > SHORT) && !(1.0 / FACTOR..=FACTOR).contains(&ratio) {
            return Err(Error::Failed(format!(
                "lessons/{}.rs states {stated:.0} s for its cells, {expected:.0} s at this machine's \
                 pace, but they took {measured:.0} s",
                lesson.name
            )));
        }
        let name = &lesson.name;
        lines.push(format!("{name}: {stated:.0} s stated, {measured:.0} s measured"));
    }
    let line = format!("this machine's pace: {pace:.2} of the stated times");
    lines.push(line);
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lessons::format;

    fn lesson(text: &str) -> Lesson {
        let text = text.replace('\n', "\n    // ");
        let source = format!(
            "// ---\n// title = \"A\"\n// summary = \"B\"\n// track = \"core\"\n// minutes = 10\n// seconds = 20\n// ---\n\n\
             fn main() -> cloze::lessons::LessonResult {{\n    // %% [markdown]\n    // {text}\n\n    \
             // %% [end]\n    cloze::lessons::finish(\"01_x\")\n}}\n"
        );
        format::parse("01_x", &source).unwrap()
    }

    fn check_links(text: &str) -> Option<String> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let lesson = lesson(text);
        let checked = links(&lesson, std::slice::from_ref(&lesson), Some(root));
        checked.err().map(|error| error.to_string())
    }

    #[test]
    fn working_links_and_existing_files_pass() {
        for good in [
            "[a](https://arxiv.org/abs/1810.04805), [b](01_x.rs) and [c](#d)",
            "`src/lib.rs`, `src/model` and `src/text.rs:12 is code`",
            "```\n[a](nowhere) `src/none.rs`\n```",
        ] {
            assert_eq!(check_links(good), None, "{good}");
        }
    }

    #[test]
    fn broken_links_are_named_with_their_line() {
        for (bad, message) in [
            ("a\n[b](http://x.org)", "12: the link \"http://x.org\""),
            ("[b](02_none.rs)", "11: the link \"02_none.rs\""),
            ("[b](../src/lib.rs)", "11: the link \"../src/lib.rs\""),
            ("a\n\n`src/none.rs`", "13: there is no src/none.rs"),
        ] {
            let error = check_links(bad).unwrap();
            let expected = format!("lessons/01_x.rs:{message}");
            assert!(error.starts_with(&expected), "{error}");
        }
    }

    #[test]
    fn minutes_must_fit_the_length_and_are_mended() {
        let dir = tempfile::tempdir().unwrap();
        let counted = |words: usize, fix| {
            minutes(dir.path(), &lesson(&"word ".repeat(words)), fix).map_err(|e| e.to_string())
        };
        assert!(counted(1500, false).is_ok());
        for count in [900, 2100] {
            let error = counted(count, false).unwrap_err();
            assert!(error.contains("states 10 minutes"), "{error}");
        }
        let file = dir.path().join("01_x.rs");
        std::fs::write(&file, "// minutes = 10\n*About 10 minutes.* 10 minutes").unwrap();
        counted(2100, true).unwrap();
        let text = std::fs::read_to_string(&file).unwrap();
        assert_eq!(text, "// minutes = 14\n*About 14 minutes.* 10 minutes");
        let error = counted(9300, true).unwrap_err();
        assert!(error.contains("takes 62 minutes; 60 are the most"), "{error}");
    }

    #[test]
    fn long_cells_and_checks_beside_other_code_are_named() {
        let code = |source: &str| {
            let text = include_str!("example.txt");
            let cell = format!("    // %%\n{source}\n    // %% [end]");
            let mut lesson =
                format::parse("01_x", &text.replace("    // %% [end]", &cell)).unwrap();
            let one = lesson.exercises[0].clone();
            lesson.exercises.extend([one.clone(), one]);
            form(&lesson).map_err(|error| error.to_string())
        };
        assert_eq!(code(&"    let x = 1;\n".repeat(25)), Ok(()));
        let error = code(&"    let x = 1;\n".repeat(26)).unwrap_err();
        assert!(error.contains("a cell of 26 lines"), "{error}");
        let error = code("    let x = 1;\n    check!(\"01.2\", |judge| {});").unwrap_err();
        assert!(error.contains("stands alone"), "{error}");
        let few = form(&format::parse("01_x", include_str!("example.txt")).unwrap()).unwrap_err();
        assert!(few.to_string().contains("has 1 exercises; 3 are the least"), "{few}");
    }

    #[test]
    fn measured_seconds_are_compared_at_the_machine_s_own_pace() {
        let names = ["01_a", "01_b", "01_c"];
        let lessons = names.map(|name| Lesson { name: name.to_owned(), ..lesson("a") });
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("times.json");
        let check = |times: [f64; 3]| {
            let times: BTreeMap<_, _> = names.iter().zip(times).collect();
            std::fs::write(&file, serde_json::to_string(&times).unwrap()).unwrap();
            seconds(&lessons, &file).map_err(|error| error.to_string())
        };
        assert_eq!(check([20.0, 22.0, 18.0]).unwrap().len(), 4);
        // All three times as slow.
        assert!(check([60.0, 66.0, 54.0]).is_ok());
        assert!(check([20.0, 22.0, 70.0]).unwrap_err().contains("01_c.rs"));
        assert!(check([20.0, 22.0, 6.0]).unwrap_err().contains("01_c.rs"));
        assert!(seconds(&lessons, &dir.path().join("none")).is_err());
        // The pace of two lessons is their mean; that of none is 1.
        let two = |times: &str| {
            std::fs::write(&file, times).unwrap();
            seconds(&lessons, &file).unwrap().pop().unwrap()
        };
        let pace = two(r#"{"01_a": 20.0, "01_b": 30.0}"#);
        assert!(pace.contains("pace: 1.25"), "{pace}");
        assert!(two("{}").contains("pace: 1.00"));
    }

    #[test]
    fn a_needed_lesson_that_does_not_exist_is_named() {
        let alone = Lesson { needs: vec!["00".into()], ..lesson("a") };
        let error = needs(&[alone]).unwrap_err().to_string();
        assert!(error.contains("needs lesson 00"), "{error}");
    }
}
