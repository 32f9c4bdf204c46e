//! The course as a whole: the map of its lessons with the learner's progress, their table, and the notebook
//! that opens the course.

use std::time::SystemTime;

use serde_json::{Value, json};

use super::format::{Exercise, Lesson, Track};
use super::progress::Progress;
use super::recall;
use crate::error::Result;
use crate::view::{Step, StepMap};

/// The name of the notebook that opens the course.
pub const INDEX: &str = "00_index";

/// The lines before and after the generated table in the README of the lessons.
const TABLE_BEGINS: &str = "<!-- The table is made by `cloze lessons check --fix`. -->";
const TABLE_ENDS: &str = "<!-- End of the table. -->";

/// Returns the map of the course with the learner's progress and the questions that are due.
///
/// # Errors
/// If the progress or the answers can't be read.
pub fn map() -> Result<StepMap> {
    let tallies = recall::tallies(SystemTime::now())?;
    let due = |lesson: &Lesson| tallies[lesson.number()].due;
    Ok(map_of(&super::all()?, &Progress::load()?, due))
}

/// Returns the map of `lessons`; `due` returns how many questions of a lesson are due.
pub fn map_of(lessons: &[Lesson], progress: &Progress, due: impl Fn(&Lesson) -> usize) -> StepMap {
    let passed = |exercise: &Exercise| progress.moment(exercise).is_some();
    let mut map = StepMap::new("The course: what builds on what");
    for track in Track::ALL {
        let of_track: Vec<&Lesson> =
            lessons.iter().filter(|lesson| lesson.track == track).collect();
        map = map.heading(heading(track, &of_track, progress));
        for lesson in of_track {
            map = map.step(Step {
                key: lesson.number().to_owned(),
                title: lesson.title.clone(),
                note: format!("{} min", lesson.minutes),
                due: due(lesson),
                needs: lesson.needs.clone(),
                tasks: lesson.exercises.iter().map(passed).collect(),
            });
        }
    }
    map
}

/// Returns the heading of a track with its lessons: its length, and once something is passed, how much.
pub fn heading(track: Track, lessons: &[&Lesson], progress: &Progress) -> String {
    let exercises = lessons.iter().flat_map(|lesson| &lesson.exercises);
    let (passed, all) = exercises.fold((0, 0), |(passed, all), exercise| {
        (passed + usize::from(progress.moment(exercise).is_some()), all + 1)
    });
    let passed = match passed {
        0 => String::new(),
        _ => format!(", {passed} of {all} exercises passed"),
    };
    format!("{} ({} hours{passed})", track.title(), hours(lessons))
}

/// Returns the length of these lessons in hours, rounded.
fn hours(lessons: &[&Lesson]) -> u32 {
    (lessons.iter().map(|lesson| lesson.minutes).sum::<u32>() + 30) / 60
}

/// Returns the table of the lessons in Markdown; linked files have this ending.
pub fn table(lessons: &[Lesson], ending: &str) -> String {
    let mut out = "| lesson | minutes | what you build | needs |\n|---|---:|---|---|\n".to_owned();
    let mut before = None;
    for lesson in lessons {
        if before.replace(lesson.track) != Some(lesson.track) {
            let of_track: Vec<&Lesson> =
                lessons.iter().filter(|other| other.track == lesson.track).collect();
            let (title, minutes) =
                (lesson.track.title(), of_track.iter().map(|it| it.minutes).sum::<u32>());
            out += &format!("| **{title}** | {minutes} | | |\n");
        }
        let needs = match lesson.needs.is_empty() {
            true => "-".to_owned(),
            false => lesson.needs.join(", "),
        };
        let (number, title, name) = (lesson.number(), &lesson.title, &lesson.name);
        let (minutes, summary) = (lesson.minutes, &lesson.summary);
        out +=
            &format!("| [{number} {title}]({name}{ending}) | {minutes} | {summary} | {needs} |\n");
    }
    out
}

/// Returns the README of the lessons with its table updated; `None` if the lines that frame the table are
/// missing.
pub fn with_table(readme: &str, lessons: &[Lesson]) -> Option<String> {
    let (before, rest) = readme.split_once(TABLE_BEGINS)?;
    let (_, after) = rest.split_once(TABLE_ENDS)?;
    let table = table(lessons, ".rs");
    Some(format!("{before}{TABLE_BEGINS}\n{table}{TABLE_ENDS}{after}"))
}

/// Returns the cells of the notebook that opens the course, with their types and sources.
pub(super) fn index_cells(lessons: &[Lesson]) -> Vec<Value> {
    let all: Vec<&Lesson> = lessons.iter().collect();
    let exercises: usize = lessons.iter().map(|lesson| lesson.exercises.len()).sum();
    let text = include_str!("index.md")
        .replace("{lessons}", &lessons.len().to_string())
        .replace("{exercises}", &exercises.to_string())
        .replace("{hours}", &hours(&all).to_string())
        .replace("{table}", table(lessons, ".ipynb").trim_end());
    let cell = |text: &str| match text.strip_prefix("// %%\n") {
        Some(code) => json!({ "cell_type": "code", "source": code }),
        None => json!({ "cell_type": "markdown", "source": text }),
    };
    text.trim_end().split("\n\n\n").map(cell).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lessons;

    #[test]
    fn the_map_has_the_tracks_what_is_passed_and_what_is_due() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("progress.jsonl");
        let all = lessons::all().unwrap();
        let passed = &all[4].exercises[0];
        let line = format!(r#"{{"exercise":"{}","passed":"2026-01-31T10:00:00Z"}}"#, passed.key);
        std::fs::write(&path, line).unwrap();
        let progress = Progress::read(&path).unwrap();
        let map = map_of(&all, &progress, |lesson| 3 * usize::from(lesson.number() == "04"));
        let text = map.text();
        assert_eq!((text.matches("due").count(), text.matches('●').count()), (1, 1), "{text}");
        let lesson = text.lines().find(|line| line.starts_with("04")).unwrap();
        assert!(lesson.contains('●') && lesson.ends_with(" 3 due"), "{lesson}");
        for track in Track::ALL {
            assert!(text.contains(&format!("\n\n{} (", track.title())), "{text}");
        }
        assert_eq!(text.matches(" hours, 1 of ").count(), 1, "{text}");
        assert!(map.svg().contains("3 due"));
    }

    #[test]
    fn only_the_table_of_a_readme_is_updated() {
        let all = lessons::all().unwrap();
        let readme = format!("# A\n{TABLE_BEGINS}\n| x |\n{TABLE_ENDS}\n\nB\n");
        let renewed = with_table(&readme, &all).unwrap();
        assert!(renewed.starts_with("# A\n") && renewed.ends_with("\n\nB\n"));
        assert!(!renewed.contains("| x |") && renewed.contains(&all[0].title));
        assert_eq!(with_table(&renewed, &all).unwrap(), renewed);
        assert_eq!(with_table("# A\n", &all), None);
    }
}
