//! The speed of tokenization in bytes per second, for lines of Wikipedia (or of the embedded corpus if
//! `CLOZE_TEST_DATA` is unset), on one thread and on all, with and without offsets.
//! `benches/peers/tokenizers_peer.py` times the Python package on the same lines.

use std::hint::black_box;
use std::path::PathBuf;

use cloze::text::{Casing, Paragraphs, WordPiece, embedded};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use rayon::prelude::*;

/// Returns the lines of the text and a tokenizer.
fn text() -> (Vec<String>, WordPiece) {
    match std::env::var_os("CLOZE_TEST_DATA").map(PathBuf::from) {
        Some(data) => {
            let path = data.join("text/wikipedia-squad-paragraphs.txt.gz");
            let lines = Paragraphs::new(&[path]).unwrap().map(|p| p.unwrap().text);
            let vocab = data.join("vocab/bert-base-uncased-vocab.txt");
            let wordpiece = WordPiece::from_vocab_file(&vocab, Casing::Uncased).unwrap();
            (lines.collect(), wordpiece)
        }
        None => {
            let lines: Vec<String> = embedded::paragraphs().map(|p| p.text).collect();
            let texts = lines.iter().cloned().map(Ok);
            let wordpiece = WordPiece::train(texts, 8_000, Casing::Uncased).unwrap();
            (lines, wordpiece)
        }
    }
}

fn tokenization(c: &mut Criterion) {
    let (lines, wordpiece) = text();
    let bytes: usize = lines.iter().map(String::len).sum();
    let count = |line: &String| {
        let mut ids = Vec::new();
        wordpiece.encode_ids(line, &mut ids);
        ids.len()
    };
    let tokens: usize = lines.iter().map(count).sum();
    println!("{} lines, {bytes} bytes, {tokens} tokens", lines.len());

    let mut group = c.benchmark_group("tokenization");
    group.sample_size(10);
    group.throughput(Throughput::Bytes(bytes as u64));
    group.bench_function("ids, one thread", |b| {
        b.iter(|| lines.iter().map(count).sum::<usize>());
    });
    group.bench_function("ids, all threads", |b| {
        b.iter(|| lines.par_iter().map(count).sum::<usize>());
    });
    group.bench_function("ids, tokens and offsets, all threads", |b| {
        b.iter(|| {
            lines.par_iter().for_each(|line| {
                black_box(wordpiece.encode_with_special(line));
            })
        });
    });
    group.finish();
}

criterion_group!(benches, tokenization);
criterion_main!(benches);
