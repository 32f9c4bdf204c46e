//! The course as a whole: the map of its lessons with the learner's progress, their table, and the notebook
//! that opens the course.

use serde_json::{Value, json};

use super::format::Lesson;
use super::progress::Progress;
use crate::error::Result;
use crate::view::{Step, StepMap, style};

/// The name of the notebook that opens the course.
pub const INDEX: &str = "00_index";

/// The lines before and after the generated table in the README of the lessons.
const TABLE_BEGINS: &str = "<!-- The table is made by `cloze lessons check --fix`. -->";
const TABLE_ENDS: &str = "<!-- End of the table. -->";

/// Returns the map of the course with the learner's progress.
///
/// # Errors
/// If the progress can't be read.
pub fn map() -> Result<StepMap> {
    Ok(map_of(&super::all()?, &Progress::load()?))
}

/// Returns the map of `lessons`.
pub fn map_of(lessons: &[Lesson], progress: &Progress) -> StepMap {
    let empty = StepMap::new("The course: what builds on what");
    lessons.iter().fold(empty, |map, lesson| {
        map.step(Step {
            key: lesson.number().to_owned(),
            title: lesson.title.clone(),
            note: format!("{} min", lesson.minutes),
            needs: lesson.needs.clone(),
            tasks: lesson
                .exercises
                .iter()
                .map(|exercise| progress.moment(&exercise.id).is_some())
                .collect(),
        })
    })
}

/// Returns the table of the lessons in Markdown; linked files have this ending.
pub fn table(lessons: &[Lesson], ending: &str) -> String {
    let mut out = "| lesson | minutes | what you build | needs |\n|---|---:|---|---|\n".to_owned();
    for lesson in lessons {
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
    let minutes: u32 = lessons.iter().map(|lesson| lesson.minutes).sum();
    let exercises: usize = lessons.iter().map(|lesson| lesson.exercises.len()).sum();
    let text = |lines: &[&str]| json!({ "cell_type": "markdown", "source": lines.join("\n") });
    vec![
        text(&[
            "# Cloze: BERT, built piece by piece",
            "",
            &format!(
                "{} lessons, {exercises} exercises, about {} minutes in all. Each lesson builds one part \
                 of BERT and ends with what the crate ships: its checks compare your part with the \
                 crate's. You need some Rust and no deep learning.",
                lessons.len(),
                style::number(f64::from(minutes))
            ),
            "",
            "Run the next cell (Shift+Enter). It draws the map: a line goes from each lesson to those \
             that build on it, and a dot is an exercise, filled once you have passed it. Run it again \
             whenever you come back.",
        ]),
        json!({ "cell_type": "code", "source": "cloze::show!(cloze::lessons::course::map()?);" }),
        text(&["## The lessons", "", table(lessons, ".ipynb").trim_end()]),
        text(&[
            "## How to take them",
            "",
            "- Run the cells from the top. The first one of a session takes some seconds, the others \
             well under one.",
            "- An exercise is a function whose body is `cloze::exercise!(\"01.2\")`. Write your own in \
             its place, run the cell, then run the check below it. A check says what is not right yet \
             and what to think about.",
            "- Stuck? `:hint` in a cell of its own gives the next hint, `:solution` one way to solve it.",
            "- What you have passed is kept, with the day, whatever you try later: `:lesson` lists it \
             here, `cloze lessons progress` in a terminal.",
            "- The notebooks are yours: one that you changed is never overwritten.",
        ]),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lessons;

    #[test]
    fn the_map_and_the_table_name_every_lesson() {
        let all = lessons::all().unwrap();
        let svg = map_of(&all, &Progress::default()).svg();
        let table = table(&all, ".rs");
        for lesson in &all {
            assert!(svg.contains(&format!("{}  ", lesson.number())));
            assert!(table.contains(&format!("]({}.rs) | {} |", lesson.name, lesson.minutes)));
        }
        assert_eq!(table.lines().count(), 2 + all.len());
    }

    #[test]
    fn only_the_table_of_a_readme_is_updated() {
        let all = lessons::all().unwrap();
        let readme = format!("# A\n{TABLE_BEGINS}\nold\n{TABLE_ENDS}\n\nB\n");
        let renewed = with_table(&readme, &all).unwrap();
        assert!(renewed.starts_with("# A\n") && renewed.ends_with("\n\nB\n"));
        assert!(!renewed.contains("old") && renewed.contains(&all[0].title));
        assert_eq!(with_table(&renewed, &all).unwrap(), renewed);
        assert_eq!(with_table("# A\n", &all), None);
    }
}
