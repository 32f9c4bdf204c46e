//! The text of the pre-training speedrun shares no sentence with what its models are measured on.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;
use std::process::Command;

use crate::common::{read_json, real_data};
use cloze::text::{Paragraphs, reader, sentences};
use serde_json::Value;

/// Shorter sentences ("He said nothing.") are in every book.
const WORDS: usize = 8;

/// The hashes of the text's sentences: of their letters and digits.
fn hashes(text: &str) -> impl Iterator<Item = u64> {
    sentences(text).into_iter().filter_map(|sentence| {
        let sentence = sentence.to_lowercase();
        let words = sentence.split(|c: char| !c.is_ascii_alphanumeric()).filter(|w| !w.is_empty());
        let words: Vec<_> = words.collect();
        let mut hasher = DefaultHasher::new();
        words.hash(&mut hasher);
        (words.len() >= WORDS).then(|| hasher.finish())
    })
}

fn of_paragraphs(files: &[&Path]) -> HashSet<u64> {
    let paragraphs = Paragraphs::new(files).unwrap();
    paragraphs.flat_map(|p| hashes(&p.unwrap().text).collect::<Vec<_>>()).collect()
}

fn of_rows(path: &Path) -> HashSet<u64> {
    let text = reader::read_to_string(path).unwrap();
    text.lines().flat_map(|line| line.split('\t')).flat_map(hashes).collect()
}

fn of_questions(path: &Path) -> HashSet<u64> {
    let json: Value = if path.extension().is_some_and(|e| e == "gz") {
        serde_json::from_str(&reader::read_to_string(path).unwrap()).unwrap()
    } else {
        read_json(path)
    };
    let mut found = HashSet::new();
    for article in json["data"].as_array().unwrap() {
        for paragraph in article["paragraphs"].as_array().unwrap() {
            found.extend(hashes(paragraph["context"].as_str().unwrap()));
            for question in paragraph["qas"].as_array().unwrap() {
                found.extend(hashes(question["question"].as_str().unwrap()));
            }
        }
    }
    found
}

#[test]
fn the_speedruns_text_has_no_sentence_of_a_set_to_measure_on() {
    let Some(data) = real_data() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let made = Command::new("python3")
        .arg(root.join("benches/speedrun/corpus.py"))
        .args([Path::new("--data"), &data, Path::new("--out"), folder.path()])
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let [train, held_out] = ["train.txt", "held-out.txt"].map(|name| folder.path().join(name));
    let text = of_paragraphs(&[&train, &held_out]);
    let articles = data.join("text/wikipedia-squad-paragraphs.txt.gz");
    let articles = of_paragraphs(&[&articles]);
    assert!(text.len() > 500_000, "{} sentences", text.len());

    let lessons = root.join("lessons/data");
    let squad = data.join("squad/dev-v1.1.json.gz");
    let squads = [squad.clone(), lessons.join("questions/dev-v2.0.json")];
    let sets = ["CoLA", "MRPC", "QNLI", "RTE", "SST-2", "STS-B", "WNLI"];
    let rows = sets.map(|set| data.join("glue").join(set).join("dev.tsv"));
    let own = ["spam", "answerable"].map(|set| lessons.join(set).join("dev.tsv"));
    let sets = squads.iter().map(|path| (path, of_questions(path)));
    for (path, measured) in sets.chain(rows.iter().chain(&own).map(|path| (path, of_rows(path)))) {
        assert!(measured.len() > 20, "{} has {} sentences", path.display(), measured.len());
        let shared = measured.intersection(&text).count();
        assert_eq!(shared, 0, "{} sentences of {}", shared, path.display());
        // They were there before.
        assert!(*path != squad || measured.intersection(&articles).count() > 5_000);
    }
    assert!(text.intersection(&articles).count() > 50_000);
    assert!(of_paragraphs(&[&train]).len() > 30 * of_paragraphs(&[&held_out]).len());
}
