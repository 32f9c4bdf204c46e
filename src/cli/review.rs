//! `cloze lessons review`: asks the questions that are due, in the terminal, and the test before and after
//! the core.

use std::collections::BTreeMap;
use std::io::{self, BufRead, IsTerminal, Write};
use std::time::SystemTime;

use clap::Parser;

use crate::cli::shared::checks::refuse;
use crate::error::{Error, Result};
use crate::lessons;
use crate::lessons::questions::{self, Question};
use crate::lessons::recall::{self, Recall};
use crate::lessons::review::{self, Place, Review, Scope};
use crate::view::display::Content;

#[derive(Debug, Parser)]
pub(crate) struct Args {
    /// Ask about this lesson only [default: the lessons that you have begun].
    #[arg(long, value_name = "NN", conflicts_with_all = ["pretest", "posttest"])]
    lesson: Option<String>,
    /// Ask so many questions at most.
    #[arg(long, value_name = "N", default_value_t = review::COUNT, conflicts_with_all = ["pretest", "posttest"])]
    count: usize,
    /// Take the test of 20 questions before the course.
    #[arg(long, conflicts_with = "posttest")]
    pretest: bool,
    /// Take the same test after the core, and see what you gained.
    #[arg(long)]
    posttest: bool,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    if recall::path().is_none() {
        refuse!(
            "review keeps your answers in your data folder, which is unknown: set HOME or CLOZE_DATA"
        );
    }
    let breaks = io::stdout().is_terminal();
    let mut terminal = Terminal { input: io::stdin().lock(), output: io::stdout().lock(), breaks };
    match (args.pretest, args.posttest) {
        (true, _) => take(&mut terminal, Test::Pre),
        (_, true) => take(&mut terminal, Test::Post),
        _ => review(&mut terminal, args.lesson.as_deref(), args.count),
    }
}

fn review(
    terminal: &mut Terminal<impl BufRead, impl Write>,
    lesson: Option<&str>,
    count: usize,
) -> Result<()> {
    let now = SystemTime::now();
    let scope = lesson.map_or(Ok(Scope::Begun), |name| lessons::find(name).map(Scope::Of))?;
    let review = Review::load(&scope, now)?;
    let asked = review.draw(count, now);
    if asked.is_empty() {
        return terminal.say(&review.nothing(now));
    }
    let keep = |it: &Question, right| recall::note(it, right, None, SystemTime::now());
    let ended = review::ask(terminal, &asked, true, keep)?;
    terminal.say(&format!("\n{}", ended.summary(asked.len())))
}

/// The width of the texts in a terminal, in characters.
const WIDTH: usize = 80;

/// The terminal, or what stands for it in a test.
struct Terminal<I, O> {
    input: I,
    output: O,
    /// Whether lines are broken at spaces.
    breaks: bool,
}

impl<I, O: Write> Terminal<I, O> {
    fn say(&mut self, line: &str) -> Result<()> {
        writeln!(self.output, "{line}").map_err(|e| Error::io("the terminal", e))
    }
}

impl<I: BufRead, O: Write> Place for Terminal<I, O> {
    fn show(&mut self, content: Content) -> io::Result<()> {
        let text = content.plain();
        if !self.breaks {
            return writeln!(self.output, "{text}");
        }
        text.lines().try_for_each(|line| writeln!(self.output, "{}", broken(line)))
    }

    fn ask(&mut self, prompt: &str) -> io::Result<Option<String>> {
        write!(self.output, "{prompt}")?;
        self.output.flush()?;
        let mut line = String::new();
        if self.input.read_line(&mut line)? == 0 {
            // The prompt's line is ended.
            writeln!(self.output)?;
            return Ok(None);
        }
        Ok(Some(line))
    }
}

/// Breaks a line at spaces; the rest is indented like its beginning. A line of code stays as it is.
fn broken(line: &str) -> String {
    const CODE: &str = "    ";
    let text = line.trim_start();
    let indent = &line[..line.len() - text.len()];
    if indent.starts_with(CODE) {
        return line.to_owned();
    }
    let (mut out, mut column) = (String::new(), 0);
    for word in text.split(' ') {
        let length = word.chars().count();
        let start = match column {
            0 => indent.to_owned(),
            _ if column + 1 + length > WIDTH => format!("\n{indent}"),
            _ => " ".to_owned(),
        };
        column = length + if start == " " { column + 1 } else { indent.len() };
        out += &format!("{start}{word}");
    }
    out
}

/// The test, before the course or after the core.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Test {
    Pre,
    Post,
}

impl Test {
    /// Its name in the learner's file.
    fn name(self) -> &'static str {
        match self {
            Self::Pre => "pre",
            Self::Post => "post",
        }
    }
}

/// Asks the questions of the test that are open, and reports the result. The test before the course explains
/// nothing, since it is taken again.
fn take(terminal: &mut Terminal<impl BufRead, impl Write>, test: Test) -> Result<()> {
    let before = Recall::load(SystemTime::now())?;
    let all = questions::test()?;
    let open = |it: &&Question| before.of_test(test.name(), it).is_none();
    let asked: Vec<Question> = all.iter().filter(open).cloned().collect();
    if asked.is_empty() {
        terminal.say("You have taken this test already; it is taken once.")?;
    }
    let keep = |it: &Question, right| recall::note(it, right, Some(test.name()), SystemTime::now());
    review::ask(terminal, &asked, test == Test::Post, keep)?;
    terminal.say(&format!("\n{}", report(test, &all, &Recall::load(SystemTime::now())?)))
}

/// Returns the result of a test, and after the second what was gained, by topic.
fn report(test: Test, all: &[Question], recall: &Recall) -> String {
    let all: Vec<&Question> = all.iter().collect();
    let count = |test: Test, of: &[&Question], wanted: fn(Option<bool>) -> bool| {
        of.iter().filter(|it| wanted(recall.of_test(test.name(), it))).count()
    };
    let right = |test, of: &[&Question]| count(test, of, |answer| answer == Some(true));
    let answered = |test| count(test, &all, |answer| answer.is_some());
    let now = right(test, &all);
    if answered(test) == 0 {
        return format!(
            "Your test: all {} questions are open. The same command asks them.",
            all.len()
        );
    }
    if answered(test) < all.len() {
        return format!(
            "Your test: {now} of {} answers right so far; {} questions are open. The same command goes on.",
            answered(test),
            all.len() - answered(test)
        );
    }
    let mut text = format!("Your test: {now} of {} right", all.len());
    if test == Test::Pre {
        return text + ". After the core, `cloze lessons review --posttest` shows what you gained.";
    }
    if answered(Test::Pre) < all.len() {
        return text + "; there is no complete test from before the course to compare with.";
    }
    text += &format!(", {} before the course", right(Test::Pre, &all));
    let mut topics: BTreeMap<&str, Vec<&Question>> = BTreeMap::new();
    for question in all {
        topics.entry(question.topic.as_deref().unwrap_or_default()).or_default().push(question);
    }
    for (topic, of) in topics {
        let (before, after) = (right(Test::Pre, &of), right(Test::Post, &of));
        text += &format!("\n  {topic}: {before} of {} before, {after} now", of.len());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_asks_with_a_prompt_until_its_input_ends() {
        let mut terminal = Terminal { input: &b"2\n"[..], output: Vec::new(), breaks: true };
        assert_eq!(terminal.ask("? ").unwrap().as_deref(), Some("2\n"));
        assert_eq!(terminal.ask("? ").unwrap(), None);
        assert_eq!(terminal.output, b"? ? \n");
    }

    #[test]
    fn a_long_line_is_broken_at_spaces_and_code_is_not() {
        let words = ["word"; 30].join(" ");
        let shown = broken(&format!("  {words}"));
        let lines: Vec<&str> = shown.lines().collect();
        assert_eq!(lines.len(), 2);
        assert!(lines.iter().all(|line| line.starts_with("  w") && line.len() <= WIDTH));
        assert_eq!(shown.split_whitespace().collect::<Vec<_>>().join(" "), words);
        let code = format!("    {words}");
        assert_eq!(broken(&code), code);
        assert_eq!(broken(""), "");
    }
}
