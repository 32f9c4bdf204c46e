//! Stores of tokens: the same examples as from the text itself, however the text is divided among shards and ranks,
//! and what is said of a store that is incomplete or damaged.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::common::{assert_contains, text};
use cloze::data::pretraining::store::prepare::{Preparation, Progress, Size};
use cloze::data::{Packing, PretrainingData, PretrainingOptions, TokenStore};
use cloze::text::{Casing, Paragraphs, WordPiece};

/// Words of one piece and of several, in sentences of 2 to 60 words and documents of 1 to 40 sentences.
fn book(documents: usize) -> String {
    let words = ["oak", "owls", "nest", "in", "barns", "the", "sleeping", "a"];
    let mut book = String::new();
    let mut state = 1usize;
    let mut draw = |n: usize| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % n
    };
    for _ in 0..documents {
        for _ in 0..1 + draw(40) {
            for _ in 0..1 + draw(4) {
                let length = if draw(5) == 0 { 60 } else { 2 + draw(12) };
                let sentence: Vec<&str> = (0..length).map(|_| words[draw(words.len())]).collect();
                book += &format!("The {}. ", sentence.join(" "));
            }
            book.push('\n');
        }
        book.push('\n');
    }
    book
}

fn wordpiece() -> WordPiece {
    let names = "[PAD] [UNK] [CLS] [SEP] [MASK] . oak owl ##s nest in barn the sleep ##ing a";
    let vocab = names.split(' ').map(str::to_owned).collect();
    WordPiece::from_vocab(vocab, Casing::Uncased).unwrap()
}

struct Case {
    folder: tempfile::TempDir,
    text: PathBuf,
    wordpiece: WordPiece,
}

impl Case {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let text = folder.path().join("text");
        fs::create_dir(&text).unwrap();
        fs::write(text.join("a.txt"), book(60)).unwrap();
        fs::write(text.join("b.txt"), "One line of the oak.\nAnd the owl.").unwrap();
        fs::write(text.join("c.txt"), &book(90)[7..]).unwrap();
        Self { folder, text, wordpiece: wordpiece() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn begin(&self, name: &str, shard_bytes: u64) -> Preparation {
        let files = [self.text.clone()];
        Preparation::begin(&self.path(name), &files, &self.wordpiece, Some(shard_bytes)).unwrap()
    }

    fn prepare(&self, name: &str, shard_bytes: u64) -> Size {
        let preparation = self.begin(name, shard_bytes);
        let files = fs::read_dir(&self.text).unwrap();
        let sizes = files.map(|file| file.unwrap().metadata().unwrap().len());
        assert_eq!(preparation.bytes(), sizes.sum::<u64>());
        assert!(preparation.write((0, 1), &Progress::default(), &|| false).unwrap());
        preparation.finish().unwrap()
    }

    fn fault(&self, name: &str) -> String {
        TokenStore::open(&self.path(name)).unwrap_err().to_string()
    }
}

/// Returns the names and contents of a store's files.
fn files(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let mut files: Vec<(String, Vec<u8>)> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .map(|path| (text(&path).rsplit('/').next().unwrap().to_owned(), fs::read(path).unwrap()))
        .collect();
    files.sort();
    files
}

#[test]
fn examples_are_those_of_the_text_itself() {
    let case = Case::new();
    for (name, bytes) in [("one", 1 << 30), ("some", 20_000), ("many", 1)] {
        let size = case.prepare(name, bytes);
        assert_eq!(size.shards == 1, name == "one");
        let (store, vocabulary) = TokenStore::open(&case.path(name)).unwrap();
        assert_eq!(vocabulary.tokens(), case.wordpiece.tokens());
        store.check().unwrap();
        let store = Arc::new(store);
        for (packing, max_len, short_probability) in [
            (Packing::Pairs, 40, 0.1),
            (Packing::Pairs, 128, 0.1),
            (Packing::Document, 24, 0.5),
            (Packing::Full, 64, 0.0),
            (Packing::Full, 16, 0.3),
        ] {
            let options = PretrainingOptions {
                packing,
                max_len,
                short_probability,
                seed: 3,
                ..PretrainingOptions::default()
            };
            let paragraphs = || Paragraphs::new(&[&case.text]).unwrap();
            let whole =
                PretrainingData::build(paragraphs(), &case.wordpiece, &options, None).unwrap();
            let stored = PretrainingData::of(&store, &vocabulary, &options).unwrap();
            let (train, held_out) =
                PretrainingData::build_split(paragraphs(), &case.wordpiece, &options, None, 10)
                    .unwrap();
            let (stored_train, stored_held_out) =
                PretrainingData::split(&store, &vocabulary, &options, 10).unwrap();
            assert_eq!(train.documents() + held_out.documents(), whole.documents());
            for (direct, stored) in
                [(&whole, &stored), (&train, &stored_train), (&held_out, &stored_held_out)]
            {
                assert_eq!(direct.examples_per_epoch(), stored.examples_per_epoch());
                assert_eq!(direct.tokens(), stored.tokens());
                assert_eq!(direct.documents(), stored.documents());
                assert_eq!(direct.checksum(), stored.checksum());
                assert_eq!(direct.unigram_entropy(), stored.unigram_entropy());
                let batches = direct.examples_per_epoch() / 8 + 2;
                for k in 0..batches {
                    assert_eq!(direct.batch(k, 8).unwrap(), stored.batch(k, 8).unwrap());
                }
            }
        }
    }
}

#[test]
fn ranks_and_stops_leave_the_same_files() {
    let case = Case::new();
    let size = case.prepare("whole", 4_000);
    assert!(
        size.shards > 10 && size.sentences > size.documents && size.tokens > 20_000,
        "{size:?}"
    );

    let ranks = case.begin("ranks", 4_000);
    assert!(ranks.write((1, 3), &Progress::default(), &|| false).unwrap());
    assert!(ranks.write((2, 3), &Progress::default(), &|| false).unwrap());
    let message = case.begin("ranks", 4_000).finish().unwrap_err().to_string();
    assert_contains(&message, "shard-00000.bin");
    assert_contains(&case.fault("ranks"), "is not finished");
    assert!(ranks.write((0, 3), &Progress::default(), &|| false).unwrap());
    assert_eq!(ranks.finish().unwrap(), size);
    assert!(files(&case.path("ranks")) == files(&case.path("whole")));

    let stopped = case.begin("stopped", 4_000);
    let progress = Progress::default();
    let later = || progress.shards.load(std::sync::atomic::Ordering::Relaxed) > 2;
    assert!(!stopped.write((0, 1), &progress, &later).unwrap());
    let done = progress.shards.into_inner();
    assert!((3..size.shards).contains(&done));
    let again = Progress::default();
    let stopped = case.begin("stopped", 4_000);
    assert!(stopped.write((0, 1), &again, &|| false).unwrap());
    assert_eq!((again.kept.into_inner(), again.shards.into_inner()), (done, size.shards));
    assert_eq!(stopped.finish().unwrap(), size);
    assert!(files(&case.path("stopped")) == files(&case.path("whole")));
}

#[test]
fn a_store_of_another_text_or_with_other_options_is_refused() {
    let case = Case::new();
    case.prepare("store", 4_000);
    let begin = |wordpiece: &WordPiece, text: &[PathBuf], bytes| {
        Preparation::begin(&case.path("store"), text, wordpiece, Some(bytes)).err()
    };
    let refused = |wordpiece: &WordPiece, text: &[PathBuf], bytes| {
        let error = begin(wordpiece, text, bytes).unwrap();
        assert_eq!(error.exit_code(), 2);
        error.to_string()
    };
    let folder = [case.text.clone()];
    assert!(begin(&case.wordpiece, &folder, 4_000).is_none());
    assert_contains(&refused(&case.wordpiece, &folder, 4_001), "was 4000 bytes and is 4001 bytes");
    let tokens = case.wordpiece.tokens().to_vec();
    let cased = WordPiece::from_vocab(tokens, Casing::Cased).unwrap();
    assert_contains(&refused(&cased, &folder, 4_000), "the vocabulary was one of 16 tokens");
    let one = [case.text.join("a.txt")];
    let message = refused(&case.wordpiece, &one, 4_000);
    assert_contains(&message, "file 2 of the text was");
    assert_contains(&message, "b.txt of 33 bytes and is none");

    // The same size, other words.
    let changed = fs::read_to_string(&one[0]).unwrap().replacen("oak", "owl", 1);
    fs::write(&one[0], changed).unwrap();
    let preparation = case.begin("store", 4_000);
    let error = preparation.write((0, 1), &Progress::default(), &|| false).unwrap_err();
    assert_contains(&error.to_string(), "a.txt: the text of");
    assert_contains(&error.to_string(), "shard-00000.bin has changed: its checksum was");
}

#[test]
fn a_damaged_or_incomplete_store_is_named() {
    let case = Case::new();
    case.prepare("store", 20_000);
    let shard = case.path("store").join("shard-00001.bin");
    let good = fs::read(&shard).unwrap();
    for place in [0, good.len() / 3, good.len() - 300, good.len() - 70, good.len() - 50] {
        let mut bad = good.clone();
        bad[place] ^= 4;
        fs::write(&shard, bad).unwrap();
        let message = case.fault("store");
        assert_contains(&message, "shard-00001.bin: the shard is ");
        assert_contains(&message, "damaged");
    }
    for length in [0, 10, good.len() - 1, good.len() / 2] {
        fs::write(&shard, &good[..length]).unwrap();
        assert_contains(&case.fault("store"), "shard-00001.bin: the shard is cut off");
    }
    // A shard of the same size and with the right checksums, but of another text.
    let other = Case::new();
    let path = other.text.join("a.txt");
    fs::write(&path, fs::read_to_string(&path).unwrap().replace("nest", "barn")).unwrap();
    other.prepare("store", 20_000);
    fs::copy(other.path("store").join("shard-00001.bin"), &shard).unwrap();
    assert_contains(&case.fault("store"), "shard-00001.bin: this is not the shard of the manifest");
    fs::remove_file(&shard).unwrap();
    assert_contains(&case.fault("store"), "shard-00001.bin: No such file");
    fs::write(&shard, &good).unwrap();
    TokenStore::open(&case.path("store")).unwrap();

    let manifest = case.path("store").join("manifest.json");
    let text = fs::read_to_string(&manifest).unwrap();
    fs::write(&manifest, text.replace("\"version\": 1", "\"version\": 2")).unwrap();
    let message = case.fault("store");
    assert_contains(&message, "manifest.json: the store is a `cloze token store` of version 2");
    assert_contains(&message, "reads a `cloze token store` of version 1");
    fs::write(&manifest, &text[..text.len() / 2]).unwrap();
    assert_contains(&case.fault("store"), "manifest.json: ");
    fs::write(&manifest, &text).unwrap();

    let vocabulary = case.path("store").join("tokenizer.json");
    let json = fs::read_to_string(&vocabulary).unwrap();
    fs::write(&vocabulary, json.replace("barn", "born")).unwrap();
    assert_contains(&case.fault("store"), "tokenizer.json: this is not the vocabulary");
    fs::remove_file(&vocabulary).unwrap();
    assert_contains(&case.fault("store"), "tokenizer.json: No such file");
    fs::remove_file(&manifest).unwrap();
    assert_contains(&case.fault("store"), "store: this is no store: it has no manifest.json");
}
