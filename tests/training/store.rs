//! `cloze prepare`, and `cloze pretrain --store`.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use crate::common::pretraining::{corpus, run};
use crate::common::{
    Folder, assert_contains, fails, interrupted, json, killed, stderr, succeeds, text, words,
};

/// A text and its vocabulary.
fn with_vocabulary() -> (Folder, PathBuf, PathBuf) {
    let folder = Folder::new();
    let (corpus, vocab) = (corpus(folder.0.path()), folder.path("vocab.txt"));
    let line = format!("vocab --text {} --size 200 --out {}", text(&corpus), text(&vocab));
    succeeds(words(&line));
    (folder, corpus, vocab)
}

fn prepare(corpus: &Path, vocab: &Path, store: &Path) -> Vec<String> {
    let [corpus, vocab, store] = [corpus, vocab, store].map(text);
    words(&format!("prepare --text {corpus} --vocab {vocab} --out {store} --json"))
}

#[test]
fn a_store_trains_the_same_model_as_its_text() {
    let (folder, corpus, vocab) = with_vocabulary();
    let (direct, stored, store) =
        (folder.path("direct"), folder.path("stored"), folder.path("store"));
    let prepared = json(&succeeds(prepare(&corpus, &vocab, &store)));
    assert_eq!((&prepared["documents"], &prepared["shards"]), (&8.into(), &1.into()));
    assert!(prepared["tokens"].as_u64().unwrap() > 500 && prepared["mb_per_s"].is_number());
    let checked = json(&succeeds(["prepare", "--check", text(&store), "--json"]));
    for key in ["documents", "tokens", "shards"] {
        assert_eq!(checked[key], prepared[key], "{key}");
    }

    let mut args = run(&corpus, &direct, "30");
    let at = args.iter().position(|arg| *arg == "--vocab-size").unwrap();
    args.splice(at..at + 2, ["--vocab", text(&vocab)]);
    let of_text = json(&succeeds(&args));
    // The text is not needed any more.
    fs::remove_file(&corpus).unwrap();
    let mut args = run(&store, &stored, "30");
    args.splice(at..at + 2, []);
    args[1] = "--store";
    let of_store = json(&succeeds(&args));
    for key in ["loss_first", "loss_last", "eval", "unigram_entropy"] {
        assert_eq!(of_store[key], of_text[key], "{key}");
    }
    let read = |out: &Path, file| fs::read(out.join(file)).unwrap();
    for file in ["model.safetensors", "vocab.txt", "tokenizer.json"] {
        assert!(read(&direct, file) == read(&stored, file), "{file} differs");
    }

    // Another store is another run.
    args.push("--resume");
    let at = args.iter().position(|arg| *arg == "30").unwrap();
    args[at] = "31";
    succeeds(&args);
    args[at] = "32";
    let other = folder.path("other.txt");
    fs::write(&other, "The cat sat.\n\nThe dog sat.\n\nThe owl sat.\n\nThe fox sat.\n").unwrap();
    let another = folder.path("another");
    succeeds(prepare(&other, &vocab, &another));
    args[2] = text(&another);
    assert_contains(&fails(&args, 2), "the number of tokens in the text");
    // A model's vocabulary must be the store's.
    let line = format!("--init {} --store {}", text(&stored), text(&store));
    let line = format!("pretrain {line} --out {} --steps 1 --seq 32", text(&folder.path("more")));
    succeeds(words(&line));
    let line = line.replace(text(&stored), text(crate::common::tiny())).replace("/more", "/most");
    assert_contains(&fails(words(&line), 2), "with another vocabulary than the model's");
}

/// Writes about 12 MB of text.
fn large(path: &Path) {
    let mut all = String::new();
    for n in 0..120_000_u64 {
        let (a, b) = (n * 7919 % 1009, n * 104_729 % 997);
        write!(
            all,
            "On day {a} the cat number {b} sat in the barn and was glad of it. It was warm.\n{}",
            if n % 9 == 0 { "\n" } else { "" }
        )
        .unwrap();
    }
    fs::write(path, all).unwrap();
}

#[test]
fn a_stopped_preparation_continues_with_the_next_shard() {
    let (folder, _, vocab) = with_vocabulary();
    let corpus = folder.path("large.txt");
    large(&corpus);
    let (whole, stopped) = (folder.path("whole"), folder.path("stopped"));
    let shards = ["--shard-mb", "1"].map(str::to_owned);
    let args = |store: &Path| [prepare(&corpus, &vocab, store), shards.to_vec()].concat();
    let one = ["--threads".to_owned(), "1".to_owned()];
    let all = json(&succeeds([args(&whole), one.to_vec()].concat()))["shards"].as_u64().unwrap();
    assert!(all > 8, "{all}");

    let first = |store: &Path| store.join("shard-00000.bin").exists();
    let output = interrupted([args(&stopped), one.to_vec()].concat(), || first(&stopped));
    let done = json(&output)["shards"].as_u64().unwrap();
    assert!(json(&output)["stopped"] == true && (1..all).contains(&done), "{done}");
    assert_contains(&stderr(&output), &format!("stopped: {done} of {all} shards"));
    let store = text(&stopped);
    let line = format!("pretrain --store {store} --out {} --steps 1", text(&folder.path("out")));
    assert_contains(&fails(words(&line), 1), &format!("{done} of {all} shards are written"));

    let resumed = json(&succeeds(args(&stopped)));
    assert_eq!(resumed["kept_shards"], done);
    let killed_store = folder.path("killed");
    killed(args(&killed_store), || first(&killed_store));
    succeeds(args(&killed_store));
    for name in ["manifest.json", "shard-00000.bin", "shard-00003.bin", "shard-00007.bin"] {
        let read = |store: &Path| fs::read(store.join(name)).unwrap();
        assert!(read(&stopped) == read(&whole) && read(&killed_store) == read(&whole), "{name}");
    }
    let left = fs::read_dir(&killed_store).unwrap().filter(|entry| {
        let name = entry.as_ref().unwrap().file_name();
        name.to_string_lossy().starts_with(".cloze-")
    });
    assert_eq!(left.count(), 0, "temporary files are left");
}

#[test]
fn wrong_input_gets_one_sentence() {
    let (folder, corpus, vocab) = with_vocabulary();
    let store = folder.path("store");
    let empty = folder.path("empty.txt");
    fs::write(&empty, " \n\n").unwrap();
    assert_contains(&fails(prepare(&empty, &vocab, &store), 1), "empty.txt: there is no text here");
    let nowhere = folder.path("nowhere.txt");
    assert_contains(&fails(prepare(&corpus, &nowhere, &store), 1), "nowhere.txt: ");
    let line = format!("prepare --text {} --out {}", text(&corpus), text(&store));
    let output = crate::common::cloze().args(words(&line)).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert_contains(&stderr(&output), "--vocab <FILE>");
    let model = crate::common::tiny();
    let message = fails(prepare(&corpus, &vocab, model), 2);
    assert_contains(&message, "which is not of a store: give a new or an empty folder");
    assert!(!model.join("lock").exists());
    let zero = [prepare(&corpus, &vocab, &store), words("--shard-mb 0")].concat();
    assert_contains(&fails(zero, 2), "--shard-mb 0: at least 1 is needed");
    assert!(!store.join("manifest.json").exists());

    succeeds(prepare(&corpus, &vocab, &store));
    let args = prepare(&empty, &vocab, &store);
    fs::write(&empty, "Now there is text.\n").unwrap();
    assert_contains(&fails(args, 2), "holds another store: file 1 of the text was");
    let shard = store.join("shard-00000.bin");
    let mut bytes = fs::read(&shard).unwrap();
    bytes[100] ^= 1;
    fs::write(&shard, bytes).unwrap();
    let out = folder.path("out");
    let train = format!("pretrain --store {} --out {} --steps 1", text(&store), text(&out));
    for line in [train, format!("prepare --check {}", text(&store))] {
        let message = fails(words(&line), 1);
        assert_contains(&message, "shard-00000.bin: the shard is damaged: its tokens have");
    }
    assert!(!out.exists(), "the run has not begun");
    let line = format!("pretrain --store {} --out {} --steps 1", text(&out), text(&out));
    assert_contains(&fails(words(&line), 1), "this is no store");
}
