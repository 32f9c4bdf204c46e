//! The pages for teachers and the leaderboard say what the lessons, the library and the logs say.

use std::path::Path;

use cloze::lessons::{self, Lesson};
use cloze::model::{Layout, PRETRAINING, Part, Size};
use serde_json::Value;

fn read(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// Returns the cells of the rows of all tables in Markdown.
fn rows(markdown: &str) -> Vec<Vec<&str>> {
    let lines = markdown.lines().filter_map(|line| line.strip_prefix('|')?.strip_suffix('|'));
    lines.map(|line| line.split('|').map(str::trim).collect()).collect()
}

/// Returns a whole number with commas between thousands.
fn grouped(number: usize) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[test]
fn the_schedules_have_the_lessons_minutes_and_their_order() {
    let all = lessons::all().unwrap();
    let find = |number: &str| -> &Lesson {
        all.iter().find(|lesson| lesson.number() == number).unwrap_or_else(|| panic!("{number}"))
    };
    let page = read("docs/teaching.md");
    let schedules = page.split("\n### ").skip(1).filter(|part| part.contains("weeks"));
    let mut lengths = Vec::new();
    for schedule in schedules {
        let weeks: Vec<_> =
            rows(schedule).into_iter().filter(|row| row[0].parse::<u32>().is_ok()).collect();
        lengths.push(weeks.len());
        assert!(schedule.starts_with(&format!("{} weeks", weeks.len())), "{schedule}");
        let mut taken: Vec<&str> = Vec::new();
        for week in weeks {
            let numbers: Vec<&str> = week[1].split(", ").collect();
            let minutes: u32 = numbers.iter().map(|number| find(number).minutes).sum();
            assert_eq!(week[2], minutes.to_string(), "{week:?}");
            for number in numbers {
                let missing = find(number).needs.iter().find(|it| !taken.contains(&it.as_str()));
                assert_eq!(missing, None, "lesson {number} in {week:?}");
                taken.push(number);
            }
        }
    }
    assert_eq!(lengths, [4, 8, 12]);
}

#[test]
fn every_misconception_names_exercises_of_the_course() {
    let all = lessons::all().unwrap();
    let known: Vec<&str> =
        all.iter().flat_map(|lesson| &lesson.exercises).map(|it| it.id.as_str()).collect();
    let page = read("docs/teaching.md");
    let (_, table) = page.split_once("## What students get wrong").unwrap();
    let table = rows(table.split("\n## ").next().unwrap());
    assert!(table.len() > 20);
    for row in &table[2..] {
        for id in row[2].split(", ") {
            assert!(known.contains(&id), "{id} in {row:?}");
        }
    }
}

#[test]
fn the_counts_on_the_page_about_bert_are_the_library_s() {
    let page = read("docs/bert-on-one-page.html");
    let sizes = [Size::Tiny, Size::Base, Size::Large];
    let layouts = sizes.map(|size| Layout::new(&size.config(30_522), &PRETRAINING));
    let row = |heading: &str, count: &dyn Fn(&str, Part) -> bool| {
        let cells = layouts.iter().map(|layout| {
            let counted = layout.iter().filter(|(it, _)| count(&it.name, it.part));
            format!("<td>{}</td>", grouped(counted.map(|(_, range)| range.len()).sum()))
        });
        format!("<th>{heading}</th>{}</tr>", cells.collect::<String>())
    };
    for expected in [
        row("embeddings", &|name, _| name.starts_with("embeddings.")),
        row("one encoder layer", &|name, _| name.starts_with("encoder.layer.0.")),
        row("all encoder layers", &|name, _| name.starts_with("encoder.layer.")),
        row("pooler", &|_, part| part == Part::Pooler),
        row("BERT: embeddings, layers, pooler", &|_, part| {
            matches!(part, Part::Encoder | Part::Pooler)
        }),
        row("masked-LM head, without the tied table", &|_, part| part == Part::MaskedLm),
        row("next-sentence head", &|_, part| part == Part::NextSentence),
        row("with both heads of pre-training", &|_, _| true),
    ] {
        assert!(page.contains(&expected), "the page lacks {expected}");
    }
    let dimensions = sizes.map(|size| {
        let (l, h, a, f) = size.dimensions();
        format!("<td>{l}, {h}, {a}, {f}</td>")
    });
    assert!(page.contains(&dimensions.concat()));
}

#[test]
fn the_leaderboard_has_the_numbers_of_its_logs_best_first() {
    let page = read("lessons/capstone/leaderboard.md");
    let entries: Vec<_> = rows(&page).into_iter().filter(|row| row.len() == 8).skip(2).collect();
    let logs = Path::new(env!("CARGO_MANIFEST_DIR")).join("lessons/capstone/logs");
    assert_eq!(entries.len(), std::fs::read_dir(logs).unwrap().count());
    let mut before = 1.0;
    for entry in entries {
        let link = entry[7].split(['(', ')']).nth(1).unwrap();
        let log: Value = serde_json::from_str(&read(&format!("lessons/capstone/{link}"))).unwrap();
        let runs = log["runs"].as_array().unwrap();
        let exam = |run: usize, name: &str| runs[run]["results"]["exam"][name].as_f64().unwrap();
        let [yours, defaults] = [0, 1].map(|run| exam(run, "mlm_accuracy"));
        let words: Vec<&str> = runs[0]["words"]
            .as_array()
            .unwrap()
            .iter()
            .map(|word| word.as_str().unwrap())
            .collect();
        let shown = [
            format!("{:.1} %", 100.0 * yours),
            format!("{:.3}", exam(0, "mlm_loss")),
            format!("{:.1} %", 100.0 * defaults),
            format!("`{}`", words.join(" ")),
            runs[0]["steps"].to_string(),
        ];
        assert_eq!(entry[2..7], shown, "{entry:?}");
        assert!(runs.len() >= 5, "{link} has fewer than three ablations");
        assert!(log["minutes"] == 10.0 && log["text"] == serde_json::json!([]));
        let seconds =
            |run: &Value| run["seconds"].as_f64().unwrap() + run["trial_seconds"].as_f64().unwrap();
        assert!(runs.iter().map(seconds).sum::<f64>() <= 600.0, "{link} took too long");
        assert!(yours <= before, "the entries are not in order");
        before = yours;
    }
}
