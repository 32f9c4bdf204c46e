//! The speed of pre-training data: building it from text (sentences, word pieces, chunks), and drawing batches, in
//! memory and from files.

use std::hint::black_box;
use std::path::PathBuf;

use cloze::data::{PretrainingData, PretrainingOptions};
use cloze::text::{Casing, Paragraph, Paragraphs, WordPiece, embedded};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};

const BATCH: usize = 32;

/// Returns a book (or the embedded corpus if `CLOZE_TEST_DATA` is unset) and a vocabulary.
fn text() -> (Vec<Paragraph>, WordPiece) {
    match std::env::var_os("CLOZE_TEST_DATA").map(PathBuf::from) {
        Some(data) => {
            let book = data.join("text/standard-ebooks/charles-dickens_david-copperfield.txt.gz");
            let paragraphs = Paragraphs::new(&[book]).unwrap().map(|p| p.unwrap());
            let vocab = data.join("vocab/bert-base-uncased-vocab.txt");
            let wordpiece = WordPiece::from_vocab_file(&vocab, Casing::Uncased).unwrap();
            (paragraphs.collect(), wordpiece)
        }
        None => {
            let paragraphs: Vec<Paragraph> = embedded::paragraphs().collect();
            let texts = paragraphs.iter().map(|p| Ok(p.text.clone()));
            let wordpiece = WordPiece::train(texts, 8_000, Casing::Uncased).unwrap();
            (paragraphs, wordpiece)
        }
    }
}

fn pretraining_data(c: &mut Criterion) {
    let (paragraphs, wordpiece) = text();
    let folder = tempfile::tempdir().unwrap();
    let build = |cache| {
        let paragraphs = paragraphs.iter().cloned().map(Ok);
        let options = PretrainingOptions::default();
        PretrainingData::build(paragraphs, &wordpiece, &options, cache).unwrap()
    };
    let (in_memory, in_files) = (build(None), build(Some(folder.path())));
    println!("{} tokens, {} examples", in_memory.tokens(), in_memory.examples_per_epoch());

    let mut group = c.benchmark_group("pretraining data");
    group.sample_size(10);
    group.throughput(Throughput::Elements(in_memory.tokens()));
    group.bench_function("build (tokens)", |b| b.iter(|| black_box(build(None)).tokens()));
    let batches = in_memory.examples_per_epoch() / BATCH as u64;
    let rows = |data: &PretrainingData| {
        let rows = (0..batches).map(|k| data.batch(k, BATCH).unwrap().packed.rows());
        rows.sum::<usize>()
    };
    group.throughput(Throughput::Elements(rows(&in_memory) as u64));
    group.bench_function("an epoch of batches from memory (tokens)", |b| {
        b.iter(|| rows(&in_memory))
    });
    group.bench_function("an epoch of batches from files (tokens)", |b| b.iter(|| rows(&in_files)));
    group.finish();
}

criterion_group!(benches, pretraining_data);
criterion_main!(benches);
