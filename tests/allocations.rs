//! What the CPU engine takes from the heap: nothing in a step once the buffers are there, and no more
//! in all than was said beforehand.

use std::alloc::{GlobalAlloc, Layout as Block, System};
use std::backtrace::Backtrace;
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use cloze::data::Packed;
use cloze::data::pretraining::PretrainingBatch;
use cloze::engine::memory::{Forecast, Work};
use cloze::engine::optimizer::{Optimizer, Rule, Update};
use cloze::engine::{
    CpuEngine, Distillation, Engine, PretrainingEngine, SoftTargets, TaskEngine, objective,
};
use cloze::model::{Dropout, Layout, PRETRAINING, Part, Size};
use cloze::random::{Site, Stream};

/// Counts what every thread asks of the system's allocator.
struct Counting;

/// Whether allocations are looked at, and how many were the engine's own.
static LOOKING: AtomicBool = AtomicBool::new(false);
static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);
static HELD: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// Looking takes memory too.
    static WITHIN: Cell<bool> = const { Cell::new(false) };
}

fn took(size: usize) {
    if LOOKING.load(Relaxed) && !WITHIN.replace(true) {
        // The f32 products are the `gemm` crate's, which lists its tasks anew for each.
        let trace = Backtrace::force_capture().to_string();
        if !trace.contains("gemm_") {
            ALLOCATIONS.fetch_add(1, Relaxed);
            eprintln!("{size} bytes were allocated:\n{trace}");
        }
        WITHIN.set(false);
    }
    let held = HELD.fetch_add(size, Relaxed) + size;
    MOST.fetch_max(held, Relaxed);
}

// SAFETY: every call is passed on to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, block: Block) -> *mut u8 {
        took(block.size());
        // SAFETY: the caller's promises are the system allocator's.
        unsafe { System.alloc(block) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, block: Block) {
        HELD.fetch_sub(block.size(), Relaxed);
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, block) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn batch(lengths: &[usize], vocabulary: u32) -> Packed {
    let mut draws = Stream::new(1, 0, Site::Other(3), 0).draws();
    let mut batch = Packed::default();
    for (example, &length) in lengths.iter().enumerate() {
        let ids: Vec<u32> = (0..length).map(|_| draws.below(vocabulary)).collect();
        batch.push(example as u64, &ids, &vec![0; length]);
    }
    batch
}

fn update(rule: Rule) -> Update {
    Update {
        optimizer: Optimizer {
            rule,
            ..Optimizer::default()
        },
        learning_rate: 1e-4,
        step: 1,
        max_norm: 1.0,
    }
}

const DROPOUT: Dropout = Dropout { seed: 1, step: 1 };

/// Runs `step` until the buffers are there, then counts what two more take from the heap.
fn allocations(mut step: impl FnMut() + Send) -> usize {
    // On a thread of the pool: handing work to the pool takes a little memory now and then, which is
    // not the engine's.
    rayon::scope(|_| {
        (0..3).for_each(|_| step());
        LOOKING.store(true, Relaxed);
        (0..2).for_each(|_| step());
        LOOKING.store(false, Relaxed);
        ALLOCATIONS.swap(0, Relaxed)
    })
}

/// One test, because the counters are shared by all threads of the program.
#[test]
fn steps_allocate_nothing_and_runs_hold_what_was_forecast() {
    let config = Size::Tiny.config(500);

    let layout = Layout::new(&config, &PRETRAINING);
    let mut engine = CpuEngine::new(&config, &layout, layout.initialise(1)).unwrap();
    let packed = batch(&[33, 64, 7, 128, 90], 500);
    let pretraining = PretrainingBatch {
        masked_rows: (0..packed.rows() as u32).step_by(7).collect(),
        masked_labels: (0..packed.rows() as u32).step_by(7).collect(),
        next_labels: vec![0, 1, 0, 0, 1],
        packed: packed.clone(),
    };
    for rule in [Rule::Adamw, Rule::Lamb] {
        let taken = allocations(|| {
            engine.pretraining_gradients(&pretraining, DROPOUT).unwrap();
            engine.update(&update(rule)).unwrap();
        });
        assert_eq!(taken, 0, "allocations in a step of pre-training, {rule:?}");
    }
    let mut teacher = CpuEngine::new(&config, &layout, layout.initialise(2)).unwrap();
    let mut targets = SoftTargets::default();
    let weights = Distillation::default().weights(&pretraining);
    let taken = allocations(|| {
        let rows = &pretraining.masked_rows;
        teacher.soft_targets(&packed, rows, &mut targets).unwrap();
        engine
            .distillation_gradients_of_part(&pretraining, &targets, weights, DROPOUT)
            .unwrap();
    });
    assert_eq!(taken, 0, "allocations in a step of distillation");
    drop((engine, teacher));

    let wide = batch(&[128; 12], 500);
    for (part, recompute) in [
        (Part::SequenceClassifier(2), false),
        (Part::Span, false),
        (Part::Span, true),
    ] {
        let layout = Layout::new(&config, &part.with_encoder());
        let before = HELD.load(Relaxed);
        MOST.store(before, Relaxed);
        let engine = CpuEngine::new(&config, &layout, layout.initialise(1)).unwrap();
        let mut engine = engine.with_recompute(recompute);
        let labels: Vec<u32> = vec![0; wide.rows()];
        let taken = allocations(|| {
            let mut loss = |logits: &mut [f32]| {
                objective::cross_entropy(logits, 2, &labels, 0.1);
            };
            engine.task_gradients(&wide, DROPOUT, &mut loss).unwrap();
            engine.update(&update(Rule::Adamw)).unwrap();
        });
        assert_eq!(taken, 0, "allocations in a step, {part:?}");
        let held = (MOST.load(Relaxed) - before) as f64;
        let work = Work {
            rows: wide.rows(),
            sequences: wide.sequences(),
            longest: 128,
        };
        let said = Forecast::of(&config, &layout, work, recompute).total() as f64;
        // What the products pack their operands into is a few MiB a thread, whatever the model.
        let spare = held - said;
        assert!(
            (-0.01 * said..8e6).contains(&spare),
            "{part:?}: {said} bytes forecast, {held} held"
        );
    }
}
