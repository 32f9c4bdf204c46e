//! The same training step from the slowest to the fastest way, rung by rung.
//!
//!     cargo bench --bench ladder [-- --size minilm --rounds 5]
//!
//! Prints a table: real tokens per second, the ratio to the rung before, and the share of what f32 matrix products
//! reach on this machine. The step is a two-class fine-tuning step (forward, backward and AdamW, with dropout) on 16
//! sequences with the lengths of sentence pairs.

use std::sync::Arc;
use std::time::Instant;

use clap::Parser;
use dfdx::prelude::*;

use cloze::data::Packed;
use cloze::engine::optimizer::{Optimizer, Update};
use cloze::engine::timing::median;
use cloze::engine::{
    CpuEngine, Encoder, Engine, Precision, Reference, TaskEngine, measured_peak, objective,
};
use cloze::model::{Config, Dropout, Layout, Part, Size, cross_entropy, pick};
use cloze::random::{Site, Stream};

/// BERT's uncased vocabulary.
const VOCABULARY: usize = 30522;
/// Token counts of pairs in MRPC, in their order; the mean is 53.
const LENGTHS: [usize; 16] = [50, 59, 53, 54, 46, 41, 72, 60, 39, 62, 66, 37, 48, 57, 80, 45];

#[derive(Parser)]
struct Args {
    /// tiny or minilm
    #[arg(long, default_value = "minilm")]
    size: Size,
    /// How often each rung is timed; the median counts
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Given by cargo
    #[arg(long, hide = true)]
    bench: bool,
}

/// Returns sequences of the given lengths, or all of the longest one, as with padding.
fn batch(padded: bool) -> Packed {
    let mut draws = Stream::new(1, 0, Site::Other(6), 0).draws();
    let longest = LENGTHS.iter().copied().max().unwrap_or(0);
    let mut batch = Packed::default();
    for (example, &length) in LENGTHS.iter().enumerate() {
        let length = if padded { longest } else { length };
        let ids: Vec<u32> = (0..length).map(|_| draws.below(VOCABULARY as u32)).collect();
        batch.push(example as u64, &ids, &vec![0; length]);
    }
    batch
}

const LABELS: [u32; 16] = [0, 1, 1, 0, 1, 0, 0, 1, 1, 0, 1, 0, 0, 1, 0, 1];

fn update(step: u32) -> Update {
    Update {
        optimizer: Optimizer::default(),
        learning_rate: 1e-5,
        step: u64::from(step),
        max_norm: 1.0,
    }
}

/// Runs a step of an engine with its own head.
fn step(engine: &mut dyn TaskEngine, batch: &Packed, step: u32) {
    let dropout = Dropout { seed: 1, step };
    let mut loss = |logits: &mut [f32]| {
        objective::cross_entropy(logits, 2, &LABELS, 1.0 / 16.0);
    };
    // The batch fits the model and the model has the head.
    engine.task_gradients(batch, dropout, &mut loss).unwrap();
    engine.update(&update(step)).unwrap();
}

/// Runs a step in which the encoder is one operation of dfdx and the head is written in dfdx.
fn step_of_dfdx_head<const H: usize>(encoder: &Encoder, batch: &Arc<Packed>, step: u32) {
    let dev = Cpu::default();
    let hidden = encoder.encode::<H>(batch, Dropout { seed: 1, step }).unwrap();
    let first: Vec<u32> = batch.ranges().map(|range| range.start as u32).collect();
    let weight: Tensor<Rank2<2, H>, f32, _> = dev.sample_normal();
    let logits = pick(hidden, &first).matmul(weight.retaped::<OwnedTape<f32, Cpu>>().permute());
    (cross_entropy(logits, &LABELS) / 16.0).backward();
    encoder.engine().update(&update(step)).unwrap();
}

/// A name and a function that runs the step of a given number.
type Rung = (&'static str, Box<dyn FnMut(u32)>);

fn rungs<const H: usize>(config: &Config) -> Vec<Rung> {
    let layout = Layout::new(config, &Part::SequenceClassifier(2).with_encoder());
    let values = || layout.initialise(1);
    let cpu = |precision| {
        let engine = CpuEngine::new(config, &layout, values()).unwrap();
        engine.with_precision(precision)
    };
    let one_thread = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
    let mut alone = one_thread.install(|| Reference::new(config, &layout, values())).unwrap();
    let mut reference = Reference::new(config, &layout, values()).unwrap();
    let encoder = Encoder::new(cpu(Precision::F32));
    let (mut padded, mut packed) = (cpu(Precision::F32), cpu(Precision::F32));
    let mut bf16 = cpu(Precision::Bf16);
    let (ragged, full) = (Arc::new(batch(false)), batch(true));
    let of = |batch: &Arc<Packed>| batch.clone();
    let (a, b, c, d, e) = (of(&ragged), of(&ragged), of(&ragged), of(&ragged), of(&ragged));
    vec![
        ("dfdx, one thread", Box::new(move |n| one_thread.install(|| step(&mut alone, &a, n)))),
        ("dfdx, a part of the batch a thread", Box::new(move |n| step(&mut reference, &b, n))),
        ("engine f32, padded to the longest", Box::new(move |n| step(&mut padded, &full, n))),
        (
            "engine f32, packed, under a dfdx head",
            Box::new(move |n| step_of_dfdx_head::<H>(&encoder, &c, n)),
        ),
        ("engine f32, packed", Box::new(move |n| step(&mut packed, &d, n))),
        ("engine bf16, packed", Box::new(move |n| step(&mut bf16, &e, n))),
    ]
}

fn main() {
    let args = Args::parse();
    let config = args.size.config(VOCABULARY);
    let mut rungs = match args.size {
        Size::Tiny => rungs::<128>(&config),
        Size::Minilm => rungs::<384>(&config),
        other => {
            eprintln!("--size {}: the ladder is for tiny and minilm", other.name());
            std::process::exit(2);
        }
    };
    let mut seconds = vec![Vec::new(); rungs.len()];
    // In turns, so that a busy moment of the machine affects all rungs.
    for round in 0..=args.rounds as u32 {
        for ((_, run), seconds) in rungs.iter_mut().zip(&mut seconds) {
            let started = Instant::now();
            run(round + 1);
            if round > 0 {
                seconds.push(started.elapsed().as_secs_f64());
            }
        }
    }
    let tokens: usize = LENGTHS.iter().sum();
    let (h, i) = (config.hidden_size as f64, config.intermediate_size as f64);
    let weights = config.num_hidden_layers as f64 * (4.0 * h * h + 2.0 * h * i);
    let peak = measured_peak(Precision::F32);
    println!(
        "{}, {tokens} real tokens a step, {} threads; f32 products reach {:.0} GFLOP/s here\n",
        args.size.name(),
        rayon::current_num_threads(),
        peak / 1e9
    );
    println!("| | tokens/s | times the first | share of f32 products |\n|---|---:|---:|---:|");
    let mut first = None;
    for ((name, _), seconds) in rungs.iter().zip(&mut seconds) {
        let speed = tokens as f64 / median(seconds);
        let base = *first.get_or_insert(speed);
        println!(
            "| {name} | {speed:.0} | {:.1} | {:.0} % |",
            speed / base,
            100.0 * 6.0 * weights * speed / peak
        );
    }
}
