//! The result of a check, as the learner sees it.

use super::Exercise;
use crate::view::display::{Content, Show};
use crate::view::style::escape;

/// How a check ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Right { checks: usize },
    Unsolved { id: String },
    Wrong { fault: String },
    Panicked { message: String },
}

/// A verdict with its exercise, to be shown.
pub(super) struct Report {
    pub exercise: Exercise,
    pub verdict: Verdict,
    /// The day on which the exercise was passed in an earlier run of its check.
    pub before: Option<String>,
}

impl Report {
    /// Returns the sign, the colour and the text.
    fn parts(&self) -> (&'static str, &'static str, String) {
        let Exercise { id, hints, .. } = &self.exercise;
        let first_hint = match hints.first() {
            Some(hint) => format!("\nHint 1 of {}: {hint}", hints.len()),
            None => String::new(),
        };
        let help = match hints.is_empty() {
            true => String::new(),
            false => format!("\nNext hint: cloze::hint!(\"{id}\")"),
        };
        // An exercise stays passed, whatever the learner tries later.
        let before = match &self.before {
            Some(day) => format!(" (passed before, on {day})"),
            None => String::new(),
        };
        const WRONG: (&str, &str) = ("✗", "218,112,32");
        let ((sign, color), text) = match &self.verdict {
            Verdict::Right { checks } => {
                (("✓", "46,160,67"), format!("right ({checks} checks){before}"))
            }
            Verdict::Unsolved { id: open } => {
                let text = match open == id {
                    true => format!("not solved yet{before}{first_hint}"),
                    false => {
                        format!("needs exercise {open} first, which is not solved yet{before}")
                    }
                };
                (("○", "122,128,136"), text)
            }
            Verdict::Wrong { fault } => (WRONG, format!("not right yet{before}\n{fault}{help}")),
            Verdict::Panicked { message } => {
                (WRONG, format!("your code panicked{before}\n  {message}{help}"))
            }
        };
        (sign, color, format!("{} {text}", self.exercise.heading()))
    }
}

impl Show for Report {
    fn content(&self) -> Content {
        let (sign, color, text) = self.parts();
        let (head, rest) = text.split_once('\n').unwrap_or((&text, ""));
        let rest = match rest {
            "" => String::new(),
            rest => format!(
                "<pre style=\"margin:4px 0 0;white-space:pre-wrap;background:none;color:inherit\">{}</pre>",
                escape(rest)
            ),
        };
        Content::html(format!(
            "<div style=\"border-left:4px solid rgb({color});background:rgba({color},.12);\
             padding:6px 12px;margin:4px 0;border-radius:3px\"><b>{sign} {}</b>{rest}</div>",
            escape(head)
        ))
        .with_text(format!("{sign} {text}").replace('\n', "\n  "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_verdict_mentions_that_the_exercise_was_passed_before() {
        let text = || "f()".to_owned();
        for verdict in [
            Verdict::Right { checks: 3 },
            Verdict::Unsolved { id: "01.1".into() },
            Verdict::Unsolved { id: "01.2".into() },
            Verdict::Wrong { fault: text() },
            Verdict::Panicked { message: text() },
        ] {
            let report = Report {
                exercise: crate::lessons::find("01").unwrap().exercises.remove(0),
                verdict,
                before: Some("2026-01-31".into()),
            };
            let text = report.content().plain();
            let first = text.lines().next().unwrap();
            assert!(first.ends_with("(passed before, on 2026-01-31)"), "{text}");
        }
    }
}
