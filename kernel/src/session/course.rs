//! A learner's place in the lessons during a session.

use std::collections::BTreeSet;

use cloze::lessons::{self, Exercise, Lesson, answers};

use super::CellError;

#[derive(Debug, Default)]
pub struct Course {
    pub lesson: Option<Lesson>,
    /// The lesson's next cell.
    pub next_cell: usize,
    /// The exercise of the last command.
    pub current: Option<String>,
    /// The exercises passed in this session, whose functions therefore exist. The learner's progress file
    /// has those ever passed.
    pub passed: BTreeSet<String>,
}

impl Course {
    /// Records the result of a check.
    pub fn checked(&mut self, id: &str, passed: bool) {
        if passed {
            self.passed.insert(id.to_owned());
        } else {
            self.passed.remove(id);
        }
        self.current = Some(id.to_owned());
    }

    /// Returns the passed exercises whose functions `code` defines in another way than the last of
    /// `cells` that defines them.
    pub fn changed(&self, cells: &[String], code: &str) -> Vec<String> {
        let new = if self.passed.is_empty() { Vec::new() } else { answers::items(code) };
        let differs = |id: &&String| {
            let lesson = lessons::lesson_of(id);
            let functions = lesson.map(|lesson| answers::functions(&lesson, id));
            functions.into_iter().flatten().any(|name| {
                let Some(now) = new.iter().find(|item| item.name == name) else {
                    return false;
                };
                let mut before = cells.iter().rev().flat_map(|cell| answers::items(cell));
                before.find(|item| item.name == name).is_some_and(|old| old.code != now.code)
            })
        };
        self.passed.iter().filter(|_| !new.is_empty()).filter(differs).cloned().collect()
    }

    /// Returns the exercise `named`, or that of the last command if the name is empty.
    pub fn exercise(&self, command: &str, named: &str) -> Result<(Lesson, Exercise), CellError> {
        let wrong = |message: &str| CellError::new("command", message);
        let id = match (named, &self.current) {
            ("", None) => {
                return Err(wrong(&format!("which exercise? Name one, as in `{command} 01.2`")));
            }
            ("", Some(current)) => current,
            (named, _) => named,
        };
        let lesson = lessons::lesson_of(id).map_err(|error| wrong(&error.to_string()))?;
        let found = lesson.exercises.iter().find(|exercise| exercise.id == id);
        match found.cloned() {
            Some(exercise) => Ok((lesson, exercise)),
            None => {
                let ids: Vec<&str> = lesson.exercises.iter().map(|one| &*one.id).collect();
                Err(wrong(&format!(
                    "lesson {} has no exercise `{id}`; it has {}",
                    lesson.name,
                    ids.join(", ")
                )))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exercise_is_named_or_that_of_the_last_command() {
        let mut course = Course::default();
        let error = course.exercise(":hint", "").unwrap_err().value;
        assert!(error.contains(":hint 01.2"), "{error}");
        assert_eq!(course.exercise(":hint", "02.2").unwrap().1.id, "02.2");
        course.checked("02.3", false);
        assert_eq!(course.exercise(":hint", "").unwrap().1.id, "02.3");
        let error = course.exercise(":hint", "02.99").unwrap_err().value;
        assert!(error.contains("02.1, 02.2"), "{error}");
        assert!(course.exercise(":hint", "77.1").is_err());
    }

    #[test]
    fn a_changed_answer_is_noticed_only_if_it_had_passed() {
        let mut course = Course::default();
        let cells = ["fn scores() { 1 }".to_owned(), "fn other() {}".to_owned()];
        assert!(course.changed(&cells, "fn scores() { 2 }").is_empty());
        course.checked("04.1", true);
        assert!(course.changed(&cells, "fn scores() { 1 }").is_empty());
        assert!(course.changed(&cells, "fn other() { 2 }").is_empty());
        assert_eq!(course.changed(&cells, "fn scores() { 2 }"), ["04.1"]);
    }
}
