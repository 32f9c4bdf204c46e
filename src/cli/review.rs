//! `cloze lessons review`: asks the questions that are due, in the terminal, and the test before and after
//! the core.

use std::collections::BTreeMap;
use std::io::{BufRead, Write};
use std::path::Path;
use std::time::SystemTime;

use clap::Parser;

use crate::cli::shared::checks::refuse;
use crate::cli::shared::stdio::say;
use crate::error::{Error, Result};
use crate::lessons::questions::{self, Question};
use crate::lessons::recall::{self, Recall};
use crate::lessons::{self, Progress};

#[derive(Debug, Parser)]
pub(crate) struct Args {
    /// Ask about this lesson only [default: the lessons that you have begun].
    #[arg(long, value_name = "NN", conflicts_with_all = ["pretest", "posttest"])]
    lesson: Option<String>,
    /// Ask so many questions at most.
    #[arg(long, value_name = "N", default_value_t = 5, conflicts_with_all = ["pretest", "posttest"])]
    count: usize,
    /// Take the test of 20 questions before the course.
    #[arg(long, conflicts_with = "posttest")]
    pretest: bool,
    /// Take the same test after the core, and see what you gained.
    #[arg(long)]
    posttest: bool,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let Some(path) = recall::path() else {
        refuse!("review keeps your answers in your data folder, and there is none: set HOME");
    };
    let (input, output) = (std::io::stdin().lock(), std::io::stdout().lock());
    let mut dialogue = Dialogue { input, output };
    let test = match (args.pretest, args.posttest) {
        (true, _) => Some("pre"),
        (_, true) => Some("post"),
        _ => None,
    };
    let now = SystemTime::now();
    let before = Recall::read(&path, now)?;
    let asked = match test {
        Some(test) => {
            let open = |question: &Question| before.of_test(test, question).is_none();
            questions::test()?.into_iter().filter(open).collect()
        }
        None => before.draw(&candidates(args.lesson.as_deref(), &before)?, args.count, now),
    };
    if asked.is_empty() && test.is_none() {
        return say!("Nothing is due. `--lesson NN` asks about a lesson that you have not begun.");
    }
    dialogue.ask_all(&asked, test, &path)?;
    match test {
        Some(test) => report(test, &Recall::read(&path, SystemTime::now())?, &mut dialogue.output),
        None => Ok(()),
    }
}

/// Returns the questions of a lesson, or of the lessons that were begun.
fn candidates(lesson: Option<&str>, recall: &Recall) -> Result<Vec<Question>> {
    let all = questions::all()?;
    if let Some(lesson) = lesson {
        let lesson = lessons::find(lesson)?;
        return Ok(all.into_iter().filter(|it| it.lesson == lesson.number()).collect());
    }
    let progress = Progress::load()?;
    let lessons = lessons::all()?.into_iter();
    let begun: Vec<_> = lessons
        .filter(|lesson| lesson.exercises.iter().any(|it| progress.moment(it).is_some()))
        .collect();
    let of_begun = |question: &Question| {
        recall.seen(question) || begun.iter().any(|lesson| lesson.number() == question.lesson)
    };
    Ok(all.into_iter().filter(of_begun).collect())
}

/// The terminal, or what stands for it in a test.
struct Dialogue<I, O> {
    input: I,
    output: O,
}

impl<I: BufRead, O: Write> Dialogue<I, O> {
    /// Asks the questions and keeps the answers; stops at the end of the input.
    fn ask_all(&mut self, asked: &[Question], test: Option<&str>, path: &Path) -> Result<()> {
        let mut right = 0;
        for (index, question) in asked.iter().enumerate() {
            let head = format!("\n{} of {}", index + 1, asked.len());
            match self.ask(&head, question, test.is_none()).map_err(terminal)? {
                Some(correct) => {
                    recall::note(path, question, correct, test, SystemTime::now())?;
                    right += usize::from(correct);
                }
                None => {
                    let rest = format!("\nYou stopped after {index}; the others stay open.");
                    return writeln!(self.output, "{rest}").map_err(terminal);
                }
            }
        }
        writeln!(self.output, "\n{right} of {} right.", asked.len()).map_err(terminal)
    }

    /// Asks one question and returns whether the answer is right; `None` at the end of the input. A test
    /// explains nothing, since it is taken again.
    fn ask(&mut self, head: &str, it: &Question, explain: bool) -> std::io::Result<Option<bool>> {
        let lesson = match it.lesson.is_empty() {
            true => String::new(),
            false => format!(" (lesson {})", it.lesson),
        };
        writeln!(self.output, "{head}{lesson}\n{}", it.text.trim())?;
        if let Some(code) = &it.code {
            writeln!(self.output)?;
            for line in code.trim().lines() {
                writeln!(self.output, "    {line}")?;
            }
        }
        let options = it.options();
        writeln!(self.output)?;
        for (index, (choice, _)) in options.iter().enumerate() {
            writeln!(self.output, "  {}. {}", index + 1, choice.0)?;
        }
        loop {
            write!(self.output, "Your answer (1 to {}): ", options.len())?;
            self.output.flush()?;
            let mut line = String::new();
            if self.input.read_line(&mut line)? == 0 {
                return Ok(None);
            }
            let number = line.trim().parse::<usize>().ok().and_then(|n| n.checked_sub(1));
            let Some((chosen, right)) = number.and_then(|n| options.get(n)) else {
                continue;
            };
            if explain {
                let verdict = if *right { "Right." } else { "Not this one." };
                writeln!(self.output, "{verdict} {}", chosen.1)?;
                if !right {
                    writeln!(self.output, "Right is: {}\n{}", it.right.0, it.right.1)?;
                }
            }
            return Ok(Some(*right));
        }
    }
}

fn terminal(error: std::io::Error) -> Error {
    Error::io("the terminal", error)
}

/// Writes the result of a test, and after the second what was gained, by topic.
fn report(test: &str, recall: &Recall, output: &mut impl Write) -> Result<()> {
    let questions = questions::test()?;
    let right = |test: &str, of: &[&Question]| {
        of.iter().filter(|question| recall.of_test(test, question) == Some(true)).count()
    };
    let all: Vec<&Question> = questions.iter().collect();
    let taken = all.iter().all(|question| recall.of_test("pre", question).is_some());
    let mut text = format!("{} of {} right", right(test, &all), all.len());
    if test == "post" && taken {
        text += &format!(", {} before the course\n", right("pre", &all));
        let mut topics: BTreeMap<&str, Vec<&Question>> = BTreeMap::new();
        for question in &all {
            topics.entry(question.topic.as_deref().unwrap_or("")).or_default().push(question);
        }
        for (topic, of) in topics {
            let (before, after) = (right("pre", &of), right("post", &of));
            text += &format!("  {topic}: {before} of {n} before, {after} now\n", n = of.len());
        }
    } else if test == "post" {
        text += "; there is no complete test from before the course to compare with";
    }
    writeln!(output, "Your test: {}", text.trim_end()).map_err(terminal)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(input: &str, explain: bool) -> (Option<bool>, String) {
        let question = &questions::all().unwrap()[0];
        let mut dialogue = Dialogue { input: input.as_bytes(), output: Vec::new() };
        let answer = dialogue.ask("1 of 1", question, explain).unwrap();
        (answer, String::from_utf8(dialogue.output).unwrap())
    }

    #[test]
    fn a_wrong_answer_explains_itself_and_the_right_one() {
        let question = &questions::all().unwrap()[0];
        let wrong = question.options().iter().position(|(_, right)| !right).unwrap();
        let (answer, text) = asked(&format!("{}\n", wrong + 1), true);
        assert_eq!(answer, Some(false));
        assert!(text.contains(&question.options()[wrong].0.1) && text.contains(&question.right.1));
        let (_, text) = asked(&format!("{}\n", wrong + 1), false);
        assert!(!text.contains(&question.right.1), "{text}");
    }

    #[test]
    fn bad_input_asks_again_and_the_end_of_input_ends_it() {
        let right = questions::all().unwrap()[0].options().iter().position(|it| it.1).unwrap() + 1;
        let (answer, text) = asked(&format!("x\n0\n9\n{right}\n"), true);
        assert_eq!((answer, text.matches("Your answer").count()), (Some(true), 4));
        assert_eq!(asked("x\n", true).0, None);
    }
}
