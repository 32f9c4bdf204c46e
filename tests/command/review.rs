//! `cloze lessons review` as a learner uses it: answers at a prompt, what comes again, and the two tests.

use std::io::Write as _;
use std::process::Stdio;

use cloze::lessons::questions::{self, Question};
use serde_json::Value;

use crate::common::{Folder, assert_contains, cloze, stderr, stdout, text};

/// A learner with an empty data folder.
struct Learner(Folder);

impl Learner {
    fn lessons(&self, arguments: &[&str], input: &str) -> String {
        let mut command = cloze();
        command.arg("lessons").args(arguments).env("CLOZE_DATA", text(&self.0.path("data")));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        // A command that asks nothing ends without reading.
        let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", stderr(&output));
        stdout(&output)
    }

    fn kept(&self) -> usize {
        let file = std::fs::read_to_string(self.0.path("data").join("answers.jsonl"));
        file.map_or(0, |text| text.lines().count())
    }
}

/// Returns answers to these questions, each right or wrong as `right` says.
fn answers(questions: &[Question], right: impl Fn(usize) -> bool) -> String {
    let number = |(index, question): (usize, &Question)| {
        let place = question.options().iter().position(|option| option.1 == right(index)).unwrap();
        format!("{}\n", place + 1)
    };
    questions.iter().enumerate().map(number).collect()
}

fn of_lesson(lesson: &str) -> Vec<Question> {
    questions::all().unwrap().into_iter().filter(|question| question.lesson == lesson).collect()
}

#[test]
fn answers_are_explained_and_kept_and_a_missed_one_makes_its_lesson_shaky() {
    let learner = Learner(Folder::new());
    assert_contains(&learner.lessons(&["review"], ""), "nothing to ask yet");
    let asked = &of_lesson("04")[..5];
    let shown = learner.lessons(&["review", "--lesson", "04"], &answers(asked, |index| index != 1));
    assert_contains(&shown, "4 of 5 right.");
    for question in asked {
        assert_contains(&shown, &question.right.1);
    }
    assert_eq!(
        (shown.matches("✓ Right.").count(), shown.matches("✗ Not this one.").count()),
        (4, 1)
    );
    assert_eq!(learner.kept(), 5);
    assert_contains(&learner.lessons(&["progress"], ""), "of 5 questions 1 missed, 0 due");

    // Years later all are due again, and the missed one is asked first.
    let file = learner.0.path("data").join("answers.jsonl");
    let kept = std::fs::read_to_string(&file).unwrap();
    let old = kept.lines().map(|line| {
        let mut line: Value = serde_json::from_str(line).unwrap();
        line["answered"] = "2001-01-31T10:00:00Z".into();
        format!("{line}\n")
    });
    std::fs::write(&file, old.collect::<String>()).unwrap();
    let listed = learner.lessons(&["list", "--json"], "");
    let lesson: Value = serde_json::from_str(listed.lines().nth(4).unwrap()).unwrap();
    let all = of_lesson("04").len();
    let expected = serde_json::json!(
        {"questions": all, "answered": 5, "missed": 1, "due": 5, "shaky": 5}
    );
    assert_eq!(lesson["questions"], expected);
    assert_contains(&learner.lessons(&["list"], ""), "5 questions due)");
    let progress = learner.lessons(&["progress"], "");
    let lesson = progress.lines().find(|line| line.starts_with("04")).unwrap();
    assert!(lesson.ends_with("  5 questions due"), "{progress}");
    let shown = learner.lessons(&["review"], "\n");
    assert_contains(&shown, asked[1].text.trim());
    assert_contains(&shown, "You left all 5 open.");
}

#[test]
fn a_test_is_taken_once_and_the_second_reports_the_gain() {
    let learner = Learner(Folder::new());
    let questions = questions::test().unwrap();
    let before = answers(&questions, |index| index < 8);
    let half: String = before.split_inclusive('\n').take(10).collect();
    assert_contains(&learner.lessons(&["review", "--pretest"], ""), "all 20 questions are open");
    let shown = learner.lessons(&["review", "--pretest"], &half);
    assert_contains(&shown, "8 of 10 answers right so far; 10 questions are open");
    assert!(!shown.contains("Right"), "the first test explains nothing: {shown}");
    let rest: String = before.split_inclusive('\n').skip(10).collect();
    assert_contains(&learner.lessons(&["review", "--pretest"], &rest), "Your test: 8 of 20 right");
    let again = learner.lessons(&["review", "--pretest"], &rest);
    assert_contains(&again, "taken this test already");
    assert!(!again.contains("0 of 0"), "{again}");
    assert_eq!(learner.kept(), 20);

    let shown =
        learner.lessons(&["review", "--posttest"], &answers(&questions, |index| index != 3));
    assert_contains(&shown, "19 of 20 right, 8 before the course");
    assert_contains(&shown, &questions[3].right.1);
    let topic = questions[3].topic.as_deref().unwrap();
    let of = questions.iter().filter(|it| it.topic.as_deref() == Some(topic)).count();
    assert_contains(&shown, &format!("{topic}: 4 of {of} before, {} now", of - 1));
}
