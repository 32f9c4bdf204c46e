//! Pre-training steps of the reference model and of the CPU engine: forward, backward, clipping and
//! AdamW, with dropout, on batches of the embedded corpus.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};

use cloze::data::{PretrainingBatch, PretrainingData, PretrainingOptions};
use cloze::engine::Backend;
use cloze::engine::optimizer::{Optimizer, Update};
use cloze::model::{Dropout, Layout, PRETRAINING, Size};
use cloze::text::{Casing, WordPiece, embedded};

fn batch(sequences: usize, max_len: usize) -> (PretrainingBatch, usize) {
    let texts = embedded::paragraphs().map(|p| Ok(p.text));
    let wordpiece = WordPiece::train(texts, 2000, Casing::Uncased).unwrap();
    let options = PretrainingOptions { max_len, ..PretrainingOptions::default() };
    let paragraphs = embedded::paragraphs().map(Ok);
    let data = PretrainingData::build(paragraphs, &wordpiece, &options, None).unwrap();
    (data.batch(0, sequences).unwrap(), wordpiece.vocab_size())
}

fn step(c: &mut Criterion, size: Size, backend: Backend) {
    let (batch, vocab_size) = batch(16, 128);
    let config = size.config(vocab_size);
    let layout = Layout::new(&config, &PRETRAINING);
    let values = layout.initialise(1);
    let mut engine = backend.engine(&config, &layout, values).unwrap();
    let mut count = 0;
    let mut group = c.benchmark_group(format!("{backend:?} training step, 16 sequences"));
    group.sample_size(10);
    group.throughput(Throughput::Elements(batch.packed.rows() as u64));
    group.bench_function(size.name(), |b| {
        b.iter(|| {
            count += 1;
            let dropout = Dropout { seed: 1, step: count };
            engine.pretraining_gradients(&batch, dropout).unwrap();
            let update = Update {
                optimizer: Optimizer::default(),
                learning_rate: 1e-4,
                step: u64::from(count),
                max_norm: 1.0,
            };
            black_box(engine.update(&update).unwrap())
        });
    });
    group.finish();
}

fn steps(c: &mut Criterion) {
    for size in [Size::Tiny, Size::Minilm] {
        step(c, size, Backend::Reference);
        step(c, size, Backend::Cpu);
    }
}

criterion_group!(benches, steps);
criterion_main!(benches);
