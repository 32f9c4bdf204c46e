//! What holds the lessons true beyond their form: links that lead somewhere, minutes that fit the text,
//! a README and a map that agree with the front matter, times that were measured.

use std::collections::BTreeMap;
use std::path::Path;

use super::course;
use super::format::{CellKind, Lesson};
use super::progress::Progress;
use crate::engine::timing::median;
use crate::error::{Error, Result};

/// A learner's pace: words of text and lines of code read a minute, minutes to begin an exercise, and
/// lines written a minute.
const WORDS: f64 = 130.0;
const LINES_READ: f64 = 25.0;
const EXERCISE: f64 = 3.0;
const LINES_WRITTEN: f64 = 4.0;
/// How far a stated time may be from the estimated or the measured one.
const FACTOR: f64 = 2.0;
/// Seconds that are too few to be compared: starting a session varies by as much.
const SHORT: f64 = 5.0;

/// The folders of the repository whose files lessons name.
const FOLDERS: [&str; 6] = ["src/", "kernel/", "lessons/", "tests/", "benches/", ".ci/"];

/// Checks the links of a lesson: web addresses are whole, other lessons exist, and every file that it
/// names in backticks is there. `root` is the checkout; without one, files are not looked for.
pub fn links(lesson: &Lesson, lessons: &[Lesson], root: Option<&Path>) -> Result<()> {
    for cell in lesson.cells.iter().filter(|c| c.kind == CellKind::Markdown) {
        let text = cell.solution();
        for (offset, line) in outside_of_fences(&text) {
            // The cell's mark stands one line above its text.
            let at = cell.line + 1 + offset;
            let fault =
                |message: String| Error::line(format!("lessons/{}.rs", lesson.name), at, message);
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

/// The lines of Markdown that are not code, with their numbers from 0.
fn outside_of_fences(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut inside = false;
    text.lines().enumerate().filter(move |(_, line)| {
        let fence = line.trim_start().starts_with("```");
        inside ^= fence;
        !inside && !fence
    })
}

/// What the Markdown links of a line lead to.
fn link_targets(line: &str) -> impl Iterator<Item = &str> {
    let after = line.split("](").skip(1);
    after.filter_map(|rest| rest.split_once(')').map(|(target, _)| target))
}

/// The files of the repository that a line names in backticks.
fn named_files(line: &str) -> impl Iterator<Item = &str> {
    let quoted = line.split('`').skip(1).step_by(2);
    quoted.filter(|text| {
        FOLDERS.iter().any(|folder| text.starts_with(folder))
            && text
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || "/._-".contains(c))
    })
}

/// About how many minutes a learner takes for the lesson, from its length.
pub fn estimated_minutes(lesson: &Lesson) -> f64 {
    let (mut words, mut read, mut written) = (0, 0, 0);
    for cell in &lesson.cells {
        let lines = |text: &str| text.lines().filter(|l| !l.trim().is_empty()).count();
        match cell.kind {
            CellKind::Markdown => words += cell.solution().split_whitespace().count(),
            CellKind::Code if cell.exercise().is_some() => {
                let (solution, stub) = (lines(&cell.solution()), lines(&cell.stub()));
                read += stub;
                written += solution.saturating_sub(stub);
            }
            CellKind::Code => read += lines(&cell.solution()),
        }
    }
    words as f64 / WORDS
        + read as f64 / LINES_READ
        + written as f64 / LINES_WRITTEN
        + EXERCISE * lesson.exercises.len() as f64
}

/// Checks that the stated minutes are within a factor of two of the estimate.
pub fn minutes(lesson: &Lesson) -> Result<()> {
    let estimated = estimated_minutes(lesson);
    let ratio = f64::from(lesson.minutes) / estimated;
    if (1.0 / FACTOR..=FACTOR).contains(&ratio) {
        return Ok(());
    }
    Err(Error::Failed(format!(
        "lessons/{}.rs states {} minutes, but by its text, code and exercises it takes about \
         {estimated:.0}",
        lesson.name, lesson.minutes
    )))
}

/// Checks that each lesson needs only lessons of the course.
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

/// Checks that the folder's README has the table and `map.svg` the map that follow from the front
/// matter, or, where `fix` is asked for, writes both anew.
pub fn generated(dir: &Path, lessons: &[Lesson], fix: bool) -> Result<()> {
    let readme = dir.join("README.md");
    let text = std::fs::read_to_string(&readme).map_err(|e| Error::io(&readme, e))?;
    let renewed = course::with_table(&text, lessons).ok_or_else(|| {
        Error::file(
            &readme,
            "the lines that frame the table of the lessons are missing",
        )
    })?;
    let map = course::map_of(lessons, &Progress::default()).svg();
    for (path, wanted) in [(readme, renewed), (dir.join("map.svg"), map)] {
        let found = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => String::new(),
            Err(e) => return Err(Error::io(&path, e)),
        };
        if found == wanted {
            continue;
        }
        if !fix {
            let message = "does not agree with the lessons: run `cloze lessons check --fix`";
            return Err(Error::file(&path, message));
        }
        std::fs::write(&path, wanted).map_err(|e| Error::io(&path, e))?;
    }
    Ok(())
}

/// Checks the stated seconds of the lessons against measured ones, given as a JSON object from names to
/// seconds. Machines differ and are shared, so the machine's own pace, the median of measured by stated,
/// is divided out first; what is left must be within a factor of two.
pub fn seconds(lessons: &[Lesson], measured: &Path) -> Result<Vec<String>> {
    let text = std::fs::read_to_string(measured).map_err(|e| Error::io(measured, e))?;
    let times: BTreeMap<String, f64> =
        serde_json::from_str(&text).map_err(|e| Error::file(measured, e.to_string()))?;
    let both: Vec<(&Lesson, f64, f64)> = lessons
        .iter()
        .filter_map(|lesson| {
            let stated = f64::from(lesson.seconds?);
            Some((lesson, stated, *times.get(&lesson.name)?))
        })
        .collect();
    let mut ratios: Vec<f64> = both
        .iter()
        .filter(|(_, stated, _)| *stated > SHORT)
        .map(|(_, stated, measured)| measured / stated)
        .collect();
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
        lines.push(format!(
            "{}: {stated:.0} s stated, {measured:.0} s measured",
            lesson.name
        ));
    }
    lines.push(format!(
        "this machine's pace: {pace:.2} of the stated times"
    ));
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lessons::format;

    fn lesson(text: &str) -> Lesson {
        let text = text.replace('\n', "\n    // ");
        let source = format!(
            "// ---\n// title = \"A\"\n// summary = \"B\"\n// minutes = 10\n// seconds = 20\n// ---\n\n\
             fn main() -> cloze::lessons::LessonResult {{\n    // %% [markdown]\n    // {text}\n\n    \
             // %% [end]\n    cloze::lessons::finish(\"01_x\")\n}}\n"
        );
        format::parse("01_x", &source).unwrap()
    }

    fn told(text: &str) -> String {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let lesson = lesson(text);
        match links(&lesson, std::slice::from_ref(&lesson), Some(root)) {
            Ok(()) => String::new(),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn links_and_named_files_that_lead_somewhere_pass() {
        for good in [
            "[a](https://arxiv.org/abs/1810.04805), [b](01_x.rs) and [c](#d)",
            "`src/lib.rs`, `src/model` and `src/text.rs:12 is code`",
            "```\n[a](nowhere) `src/none.rs`\n```",
        ] {
            assert_eq!(told(good), "", "{good}");
        }
    }

    #[test]
    fn those_that_lead_nowhere_are_named_with_their_line() {
        for (bad, message) in [
            ("a\n[b](http://x.org)", "11: the link \"http://x.org\""),
            ("[b](02_none.rs)", "10: the link \"02_none.rs\""),
            ("[b](../src/lib.rs)", "10: the link \"../src/lib.rs\""),
            ("a\n\n`src/none.rs`", "12: there is no src/none.rs"),
        ] {
            let told = told(bad);
            assert!(
                told.starts_with(&format!("lessons/01_x.rs:{message}")),
                "{told}"
            );
        }
    }

    #[test]
    fn minutes_follow_the_length() {
        let fits = "word ".repeat(1300);
        assert!(minutes(&lesson(&fits)).is_ok());
        for count in [300, 5000] {
            let told = minutes(&lesson(&"word ".repeat(count))).unwrap_err();
            assert!(told.to_string().contains("states 10 minutes"), "{told}");
        }
    }

    #[test]
    fn measured_seconds_are_compared_at_the_machine_s_own_pace() {
        let names = ["01_a", "01_b", "01_c"];
        let lessons: Vec<Lesson> = names
            .iter()
            .map(|name| Lesson {
                name: (*name).to_owned(),
                ..lesson("a")
            })
            .collect();
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("times.json");
        let told = |times: [f64; 3]| {
            let times: BTreeMap<_, _> = names.iter().zip(times).collect();
            std::fs::write(&file, serde_json::to_string(&times).unwrap()).unwrap();
            seconds(&lessons, &file).map_err(|error| error.to_string())
        };
        assert_eq!(told([20.0, 22.0, 18.0]).unwrap().len(), 4);
        // Three times as slow, all of them.
        assert!(told([60.0, 66.0, 54.0]).is_ok());
        assert!(told([20.0, 22.0, 70.0]).unwrap_err().contains("01_c.rs"));
        assert!(told([20.0, 22.0, 6.0]).unwrap_err().contains("01_c.rs"));
        assert!(seconds(&lessons, &dir.path().join("none")).is_err());
        // Of two lessons neither alone sets the pace; of none there is one.
        let two = |times: &str| {
            std::fs::write(&file, times).unwrap();
            seconds(&lessons, &file).unwrap().pop().unwrap()
        };
        let pace = two(r#"{"01_a": 20.0, "01_b": 30.0}"#);
        assert!(pace.contains("pace: 1.25"), "{pace}");
        assert!(two("{}").contains("pace: 1.00"));
    }

    #[test]
    fn a_need_of_a_lesson_that_is_not_there_is_named() {
        let alone = Lesson {
            needs: vec!["00".into()],
            ..lesson("a")
        };
        let told = needs(&[alone]).unwrap_err().to_string();
        assert!(told.contains("needs lesson 00"), "{told}");
    }
}
