//! The lesson format: a Rust program whose comments mark the cells of a notebook.
//!
//! The front matter is TOML in comments; a text cell is Markdown in comments.
//!
#![doc = concat!("```text\n", include_str!("example.txt"), "```\n")]
//!
//! The cell marks are those of jupytext's percent format, and `[yours] 03.1 03.2`: a cell with the code of
//! these exercises, which `cloze lessons check --fix` writes from their solutions. In a notebook it is the
//! command `:yours 03.1 03.2`, which brings the learner's own code, see [`super::answers`].
//! Notebooks omit the wrapper (the front matter,
//! `main` and its indentation, the `[end]` cell). A solution ends the body of a function with an explicit
//! return type, so that the stub in its place, which never returns, always compiles; [`parse`] checks
//! that.

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

const FENCE: &str = "// ---";
const MAIN: &str = "fn main() -> cloze::lessons::LessonResult {";
const CELL: &str = "// %%";
const BEGIN: &str = "// BEGIN SOLUTION";
const END: &str = "// END SOLUTION";
const YOURS: &str = "[yours]";
const INDENT: &str = "    ";
const NO_END: &str = "expected \"// %% [end]\" before main ends";

/// A parsed lesson.
#[derive(Debug, Clone, PartialEq)]
pub struct Lesson {
    /// The file name without `.rs`: `01_tokens`.
    pub name: String,
    /// The title, without the number.
    pub title: String,
    /// One sentence: what the lesson builds.
    pub summary: String,
    /// Where it belongs in the course.
    pub track: Track,
    /// How long a learner needs, in minutes.
    pub minutes: u32,
    /// How long a notebook with solutions takes on two cores, in seconds, including compilation; none if
    /// it was not measured.
    pub seconds: Option<u32>,
    /// The numbers of the lessons that it builds on: `01`.
    pub needs: Vec<String>,
    /// The exercises in order.
    pub exercises: Vec<Exercise>,
    /// The cells in order.
    pub cells: Vec<Cell>,
}

impl Lesson {
    /// Returns its number, with which its name begins: `01`.
    pub fn number(&self) -> &str {
        self.name.split('_').next().unwrap_or_default()
    }

    /// Returns its name without the number: `tokens`.
    pub fn slug(&self) -> &str {
        self.name.split_once('_').map_or(&*self.name, |(_, slug)| slug)
    }
}

/// A part of the course.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Track {
    /// BERT, from its parts to a fine-tuned model; the other tracks build on it.
    Core,
    /// The tasks of the paper, a look inside, and a program.
    Use,
    /// How it is made fast, and which of its decisions mattered.
    Systems,
}

impl Track {
    /// All tracks, in the order of the course.
    pub const ALL: [Self; 3] = [Self::Core, Self::Use, Self::Systems];

    /// Returns its title.
    pub fn title(self) -> &'static str {
        match self {
            Self::Core => "Core: your BERT",
            Self::Use => "Use: tasks, insight, shipping",
            Self::Systems => "Systems and research",
        }
    }
}

/// An exercise as the front matter declares it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Exercise {
    /// The lesson's number and the exercise's: `01.2`. It changes if the course is renumbered.
    pub id: String,
    /// Its name in files: never changed, and different for all exercises.
    pub key: String,
    /// Its id in the first edition of the course, which old progress files and answers have.
    pub was: Option<String>,
    /// Its subject in a few words.
    pub title: String,
    /// At least one hint, each revealing more than the one before.
    pub hints: Vec<String>,
}

impl Exercise {
    /// Returns number and title, followed by a colon unless the title is a question.
    pub fn heading(&self) -> String {
        let colon = if self.title.ends_with('?') { "" } else { ":" };
        format!("{} {}{colon}", self.id, self.title)
    }
}

/// The kind of a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CellKind {
    /// A text.
    Markdown,
    /// Rust code.
    Code,
    /// Code of exercises of earlier lessons: the learner's, or in the file the solutions.
    Yours,
}

/// A cell, without the wrapper's indentation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cell {
    /// Its kind.
    pub kind: CellKind,
    /// Markdown, or code including its solution marks.
    source: String,
    /// The exercises of a cell of the kind [`CellKind::Yours`], of which a lesson has at most one.
    pub exercises: Vec<String>,
    /// The line of the cell's mark in the file, counted from 1.
    pub line: usize,
}

impl Cell {
    /// Returns the command for a notebook's session in place of a cell of the kind [`CellKind::Yours`].
    pub fn command(&self) -> Option<String> {
        (self.kind == CellKind::Yours).then(|| format!(":yours {}", self.exercises.join(" ")))
    }

    /// Returns the cell with its solution, without the marks.
    pub fn solution(&self) -> String {
        self.lines(|line| line != BEGIN && line != END && gate(line).is_none())
    }

    /// Returns the cell with its solution, which records when it runs that it isn't the learner's answer.
    pub fn given(&self) -> String {
        self.lines(|line| line != BEGIN && line != END)
    }

    fn lines(&self, keeps: impl Fn(&str) -> bool) -> String {
        let kept = self.source.lines().filter(|line| keeps(line.trim()));
        kept.collect::<Vec<_>>().join("\n")
    }

    /// Returns the cell with a stub in place of each solution.
    pub fn stub(&self) -> String {
        let mut out: Vec<String> = Vec::new();
        let mut inside = false;
        for line in self.source.lines() {
            let indent = &line[..line.len() - line.trim_start().len()];
            match line.trim() {
                BEGIN => inside = true,
                END => inside = false,
                other if inside => {
                    if let Some(id) = gate(other) {
                        out.push(format!(
                            "{indent}// Your code goes here. Stuck? cloze::hint!(\"{id}\")"
                        ));
                        out.push(format!("{indent}cloze::exercise!(\"{id}\")"));
                    }
                }
                _ => out.push(line.to_owned()),
            }
        }
        out.join("\n")
    }

    /// Returns the exercise whose solution the cell contains.
    pub fn exercise(&self) -> Option<&str> {
        self.source.lines().find_map(gate)
    }

    /// Returns the exercise that the cell checks.
    pub fn check(&self) -> Option<&str> {
        let rest = self.source.split_once("check!(\"")?.1;
        rest.split_once('"').map(|(id, _)| id)
    }
}

/// Returns the exercise of a line `cloze::solution!("01.2");`, or `cloze::answer!("01.2");`, by which a
/// learner replaces it.
fn gate(line: &str) -> Option<&str> {
    let call = line.trim().strip_prefix("cloze::")?;
    let id = call.strip_prefix("solution!(\"").or_else(|| call.strip_prefix("answer!(\""))?;
    id.strip_suffix("\");")
}

/// The front matter in TOML.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FrontMatter {
    title: String,
    summary: String,
    track: Track,
    minutes: u32,
    seconds: Option<u32>,
    #[serde(default)]
    needs: Vec<String>,
    #[serde(default, rename = "exercise")]
    exercises: Vec<Exercise>,
}

/// Parses the lesson `name` (its file name without `.rs`). Errors name the file and the line.
pub fn parse(name: &str, source: &str) -> Result<Lesson> {
    let parser = Parser { path: format!("lessons/{name}.rs"), lines: source.lines().collect() };
    parser.lesson(name)
}

struct Parser<'a> {
    path: String,
    lines: Vec<&'a str>,
}

impl Parser<'_> {
    /// Returns an error about line `index`, counted from 0.
    fn error(&self, index: usize, message: impl Into<String>) -> Error {
        Error::line(&self.path, index + 1, message)
    }

    fn lesson(&self, name: &str) -> Result<Lesson> {
        let number = name.split('_').next().unwrap_or_default();
        let (front, after) = self.front_matter()?;
        self.check_needs(number, &front.needs)?;
        self.check_exercises(number, &front.exercises)?;
        let cells = self.cells(name, after)?;
        self.check_solutions(&front.exercises, &cells)?;
        Ok(Lesson {
            name: name.to_owned(),
            title: front.title,
            summary: front.summary,
            track: front.track,
            minutes: front.minutes,
            seconds: front.seconds,
            needs: front.needs,
            exercises: front.exercises,
            cells,
        })
    }

    /// Returns the front matter and the index of the line after it.
    fn front_matter(&self) -> Result<(FrontMatter, usize)> {
        if self.lines.first() != Some(&FENCE) {
            return Err(self.error(0, format!("expected the front matter's {FENCE:?}")));
        }
        let mut toml = String::new();
        for (index, line) in self.lines.iter().enumerate().skip(1) {
            if *line == FENCE {
                let front = toml::from_str(&toml).map_err(|e| self.toml_error(&toml, &e))?;
                return Ok((front, index + 1));
            }
            let Some(text) = comment(line) else {
                return Err(self.error(index, "front matter lines start with \"// \""));
            };
            toml += text;
            toml.push('\n');
        }
        Err(self.error(0, format!("the front matter has no closing {FENCE:?}")))
    }

    fn toml_error(&self, toml: &str, error: &toml::de::Error) -> Error {
        let before = error.span().map_or("", |span| &toml[..span.start]);
        // Line 1 is the fence.
        self.error(1 + before.matches('\n').count(), error.message())
    }

    /// Checks that a lesson needs earlier lessons, each named once, in order.
    fn check_needs(&self, number: &str, needs: &[String]) -> Result<()> {
        let line = self.line_with("// needs = ");
        for (index, need) in needs.iter().enumerate() {
            let two_digits = need.len() == 2 && need.bytes().all(|b| b.is_ascii_digit());
            if !two_digits || need.as_str() >= number {
                let message = format!("needs {need:?}: expected the number of an earlier lesson");
                return Err(self.error(line, message));
            }
            if index > 0 && needs[index - 1] >= *need {
                let message = format!("needs {need:?}: each lesson must be named once, in order");
                return Err(self.error(line, message));
            }
        }
        Ok(())
    }

    fn check_exercises(&self, number: &str, exercises: &[Exercise]) -> Result<()> {
        for (index, exercise) in exercises.iter().enumerate() {
            let line = self.line_with(&format!("id = \"{}\"", exercise.id));
            let expected = format!("{number}.{}", index + 1);
            if exercise.id != expected {
                let message = format!("exercise {:?} should be {expected:?}", exercise.id);
                return Err(self.error(line, message));
            }
            let in_key = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
            let named = exercise.key.starts_with(|c: char| c.is_ascii_lowercase());
            if !named || !exercise.key.chars().all(in_key) {
                let message = format!("the key of {expected} should be like a function's name");
                return Err(self.error(line, message));
            }
            if exercise.hints.is_empty() {
                return Err(self.error(line, format!("exercise {expected} has no hint")));
            }
        }
        Ok(())
    }

    /// Returns the index of the first line that contains `text`, or 0.
    fn line_with(&self, text: &str) -> usize {
        let found = self.lines.iter().position(|line| line.contains(text));
        found.unwrap_or_default()
    }

    fn cells(&self, name: &str, after: usize) -> Result<Vec<Cell>> {
        let main = (after..self.lines.len()).find(|&i| !self.lines[i].is_empty()).unwrap_or(after);
        if self.lines.get(main) != Some(&MAIN) {
            return Err(self.error(main, format!("expected {MAIN:?}")));
        }
        let mut cells: Vec<Cell> = Vec::new();
        let mut body = (main + 1..self.lines.len()).peekable();
        while let Some(index) = body.next() {
            let line = self.lines[index];
            if line.is_empty() {
                if let Some(cell) = cells.last_mut() {
                    cell.source.push('\n');
                }
                continue;
            }
            if line == "}" {
                return Err(self.error(index, NO_END));
            }
            let Some(line) = line.strip_prefix(INDENT) else {
                return Err(self.error(index, "expected a line inside of main, indented by four"));
            };
            let mut exercises = Vec::new();
            let kind = match line.strip_prefix(CELL).map(str::trim) {
                Some("[end]") => {
                    self.check_end(name, body)?;
                    for cell in &mut cells {
                        cell.source.truncate(cell.source.trim_end().len());
                    }
                    return Ok(cells);
                }
                Some("[markdown]") => CellKind::Markdown,
                Some("") => CellKind::Code,
                Some(yours) if yours.starts_with(YOURS) => {
                    let ids = yours[YOURS.len()..].split_whitespace();
                    exercises = ids.map(str::to_owned).collect();
                    if exercises.is_empty() {
                        let message = format!("{YOURS} names no exercise");
                        return Err(self.error(index, message));
                    }
                    CellKind::Yours
                }
                Some(other) => {
                    let message = format!(
                        "unknown cell mark {other:?}: expected [markdown], [yours] or [end]"
                    );
                    return Err(self.error(index, message));
                }
                None => {
                    let Some(cell) = cells.last_mut() else {
                        return Err(self.error(index, format!("expected a cell mark {CELL:?}")));
                    };
                    let text = match cell.kind {
                        CellKind::Code | CellKind::Yours => line,
                        CellKind::Markdown => comment(line).ok_or_else(|| {
                            self.error(index, "lines of a text cell start with \"// \"")
                        })?,
                    };
                    cell.source += text;
                    cell.source.push('\n');
                    continue;
                }
            };
            cells.push(Cell { kind, source: String::new(), exercises, line: index + 1 });
        }
        Err(self.error(self.lines.len(), NO_END))
    }

    /// Checks that only the call of `finish` and the end of `main` follow the `[end]` mark.
    fn check_end(&self, name: &str, rest: impl Iterator<Item = usize>) -> Result<()> {
        let finish = format!("{INDENT}cloze::lessons::finish(\"{name}\")");
        let mut expected = [finish.as_str(), "}"].into_iter();
        let mut last = 0;
        for index in rest.filter(|&i| !self.lines[i].trim().is_empty()) {
            match expected.next() {
                Some(text) if text == self.lines[index] => last = index,
                Some(text) => return Err(self.error(index, format!("expected {text:?}"))),
                None => return Err(self.error(index, "nothing may follow main")),
            }
        }
        match expected.next() {
            None => Ok(()),
            Some(text) => Err(self.error(last, format!("expected {text:?} before the end"))),
        }
    }

    /// Checks that every exercise has one complete solution and, in a later cell, one check, and that there
    /// are no other solutions.
    fn check_solutions(&self, exercises: &[Exercise], cells: &[Cell]) -> Result<()> {
        let mut solved: Vec<(String, usize)> = Vec::new();
        for (at, cell) in cells.iter().enumerate() {
            let lines: Vec<&str> = cell.source.lines().collect();
            let mut open: Option<usize> = None;
            for (offset, line) in lines.iter().enumerate() {
                let here = cell.line + offset;
                let next = lines.get(offset + 1).map_or("", |l| l.trim());
                match line.trim() {
                    BEGIN if open.is_some() => {
                        return Err(self.error(here, "a solution begins inside of a solution"));
                    }
                    BEGIN => {
                        let Some(id) = gate(next) else {
                            let message =
                                format!("{BEGIN:?} is followed by cloze::solution!(\"…\");");
                            return Err(self.error(here, message));
                        };
                        if !exercises.iter().any(|e| e.id == id) {
                            let message = format!("the front matter has no exercise {id:?}");
                            return Err(self.error(here + 1, message));
                        }
                        if solved.iter().any(|s| s.0 == id) {
                            let message = format!("a second solution of exercise {id}");
                            return Err(self.error(here, message));
                        }
                        solved.push((id.to_owned(), at));
                        open = Some(here);
                    }
                    END => {
                        if open.take().is_none() {
                            return Err(self.error(here, "a solution ends that never began"));
                        }
                        if next != "}" {
                            let message = "a solution must end the body of its function";
                            return Err(self.error(here, message));
                        }
                    }
                    other if open.is_none() && gate(other).is_some() => {
                        let message = format!("cloze::solution! stands behind {BEGIN:?}");
                        return Err(self.error(here, message));
                    }
                    _ => {}
                }
            }
            if let Some(begin) = open {
                return Err(self.error(begin, format!("the solution has no {END:?} in its cell")));
            }
        }
        for exercise in exercises {
            let id = &exercise.id;
            let line = self.line_with(&format!("id = \"{id}\""));
            let Some((_, cell)) = solved.iter().find(|s| s.0 == *id) else {
                return Err(self.error(line, format!("exercise {id} has no solution")));
            };
            let check = format!("check!(\"{id}\"");
            let later = cells[cell + 1..].iter().filter(|c| c.kind == CellKind::Code);
            let checks = later.filter(|c| c.source.replace(['\n', ' '], "").contains(&check));
            let count = checks.count();
            if count != 1 {
                let message =
                    format!("exercise {id} has {count} checks after its cell, expected 1");
                return Err(self.error(line, message));
            }
        }
        Ok(())
    }
}

/// Returns the text of a comment line.
fn comment(line: &str) -> Option<&str> {
    match line {
        "//" => Some(""),
        line => line.strip_prefix("// "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_heading_ends_in_a_colon_unless_it_asks() {
        let mut exercise = parse("01_x", GOOD).unwrap().exercises.remove(0);
        assert_eq!(exercise.heading(), "01.1 Lower:");
        exercise.title = "How many heads?".into();
        assert_eq!(exercise.heading(), "01.1 How many heads?");
    }

    const GOOD: &str = include_str!("example.txt");

    #[test]
    fn a_lesson_parses_to_its_cells_without_the_wrapper() {
        let lesson = parse("01_x", GOOD).unwrap();
        assert_eq!((lesson.title.as_str(), lesson.minutes), ("Tokens", 30));
        assert_eq!(lesson.exercises[0].hints.len(), 1);
        let exercises: Vec<_> = lesson.cells.iter().map(Cell::exercise).collect();
        assert_eq!(exercises, [None, Some("01.1"), None]);
        let checks: Vec<_> = lesson.cells.iter().map(Cell::check).collect();
        assert_eq!(checks, [None, None, Some("01.1")]);
        let kinds: Vec<CellKind> = lesson.cells.iter().map(|c| c.kind).collect();
        assert_eq!(kinds, [CellKind::Markdown, CellKind::Code, CellKind::Code]);
        assert_eq!(lesson.cells[0].stub(), "# Tokens\n\nText.");
        let expected = "fn lower(text: &str) -> String {\n    text.to_lowercase()\n}";
        assert_eq!(lesson.cells[1].solution(), expected);
        assert_eq!(
            lesson.cells[1].stub(),
            "fn lower(text: &str) -> String {\n    \
             // Your code goes here. Stuck? cloze::hint!(\"01.1\")\n    cloze::exercise!(\"01.1\")\n}"
        );
    }

    #[test]
    fn the_front_matter_has_the_needed_lessons_and_the_seconds() {
        let lesson = parse("01_x", GOOD).unwrap();
        assert_eq!((lesson.needs.len(), lesson.seconds), (0, None));
        let more = "// minutes = 30\n// seconds = 12\n// needs = [\"00\"]\n";
        let lesson = parse("01_x", &GOOD.replace("// minutes = 30\n", more)).unwrap();
        assert_eq!((&*lesson.needs[0], lesson.seconds), ("00", Some(12)));
        for wrong in ["[\"01\"]", "[\"0\"]", "[\"x1\"]", "[\"00\", \"00\"]"] {
            let more = format!("// minutes = 30\n// needs = {wrong}\n");
            let source = GOOD.replace("// minutes = 30\n", &more);
            let error = parse("01_x", &source).unwrap_err().to_string();
            assert!(error.starts_with("lessons/01_x.rs:6: needs "), "{error}");
        }
    }

    #[test]
    fn a_learner_s_answer_may_replace_the_solution() {
        let answered = GOOD.replace("cloze::solution!", "cloze::answer!");
        let [one, other] = [GOOD, &answered].map(|source| parse("01_x", source).unwrap());
        assert_eq!(one.cells[1].stub(), other.cells[1].stub());
        assert_eq!(one.cells[1].solution(), other.cells[1].solution());
    }

    #[test]
    fn each_fault_is_named_with_its_line() {
        // What is replaced by what, and the error; ⏎ is a line end.
        let faults = r#"
            // title = "Tokens"⏎ =>  => 2: missing field `title`
            // minutes = 30 => // minutes = x => 5: 
            // minutes = 30 => minutes = 30 => 5: front matter lines start
            fn main() => fn man() => 14: expected "fn main()
            // %% [markdown] => 1; => 15: expected a cell mark
            // %% [markdown] => // %% [md] => 15: unknown cell mark "[md]"
            // Text. => Text. => 18: lines of a text cell
            ⏎    // %%⏎    check => ⏎// %%⏎    check => 28: expected a line inside of main
            id = "01.1" => id = "01.2" => 8: exercise "01.2" should be "01.1"
            hints = ["Look at str's methods."] => hints = [] => 8: exercise 01.1 has no hint
            // END SOLUTION⏎ =>  => 22: the solution has no
            // BEGIN SOLUTION⏎ =>  => 22: cloze::solution! stands behind
            cloze::solution!("01.1");⏎ =>  => 22: "// BEGIN SOLUTION" is followed by
            solution!("01.1") => solution!("01.7") => 23: the front matter has no exercise
            // END SOLUTION⏎ => // END SOLUTION⏎        ;⏎ => 25: a solution must end
            check!("01.1" => check!("01.3" => 8: exercise 01.1 has 0 checks
            finish("01_x") => finish("01_y") => 32: expected "    cloze::lessons::finish
            // %% [end]⏎ =>  => 32: expected "// %% [end]"
        "#;
        for fault in faults.trim().lines() {
            let fault = fault.trim_start().replace('⏎', "\n");
            let [from, to, message] = fault.split(" => ").collect::<Vec<_>>()[..] else {
                panic!("{fault}")
            };
            let broken = GOOD.replacen(from, to, 1);
            assert_ne!(broken, GOOD, "{from:?} changes nothing");
            let error = parse("01_x", &broken).unwrap_err().to_string();
            let expected = format!("lessons/01_x.rs:{message}");
            assert!(error.starts_with(&expected), "{from:?}: {error:?}");
        }
        let error = parse("01_x", &format!("{GOOD}fn more() {{}}\n")).unwrap_err();
        assert!(error.to_string().contains("34: nothing may follow main"));
    }
}
