//! A corpus and a quick run of `cloze pretrain` on it.

use std::fs;
use std::path::{Path, PathBuf};

use super::text;

/// Writes eight documents of regular sentences.
pub fn corpus(folder: &Path) -> PathBuf {
    let animals = ["cat", "dog", "owl", "fox", "hen", "cow", "pig", "rat"];
    let places = ["mat", "log", "oak", "den", "nest", "barn", "sty", "hole"];
    let mut corpus = String::new();
    for (animal, place) in animals.iter().zip(places) {
        for day in ["Monday", "Tuesday", "Friday", "Sunday"] {
            corpus += &format!("On {day} the {animal} sat in the {place}.\n");
            corpus += &format!("The {place} was warm, and the {animal} was glad of the {place}.\n");
        }
        corpus.push('\n');
    }
    let path = folder.join("animals.txt");
    fs::write(&path, corpus).unwrap();
    path
}

/// Returns the arguments of a small, quick run.
pub fn run<'a>(corpus: &'a Path, out: &'a Path, steps: &'a str) -> Vec<&'a str> {
    let mut args = vec!["pretrain", "--text", text(corpus), "--out", text(out)];
    args.extend(["--steps", steps, "--seq", "32", "--first-seq", "24"]);
    args.extend(["--batch", "8", "--vocab-size", "200", "--seed", "5", "--json"]);
    args
}
