//! Heap memory of the CPU engine: a step allocates nothing once the buffers exist, and the total is as forecast.
//!
//! A program of its own, because it replaces the allocator.

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

/// Counts the allocations of all threads.
struct CountingAllocator;

/// Whether allocations are counted, and how many were the engine's own.
static COUNTING: AtomicBool = AtomicBool::new(false);
static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);
static IN_USE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// Set while a backtrace is taken, which allocates too.
    static IN_BACKTRACE: Cell<bool> = const { Cell::new(false) };
}

fn count(size: usize) {
    if COUNTING.load(Relaxed) && !IN_BACKTRACE.replace(true) {
        // The `gemm` crate, which computes the f32 products, allocates a list of tasks for each.
        let trace = Backtrace::force_capture().to_string();
        if !trace.contains("gemm_") {
            ALLOCATIONS.fetch_add(1, Relaxed);
            eprintln!("{size} bytes were allocated:\n{trace}");
        }
        IN_BACKTRACE.set(false);
    }
    let in_use = IN_USE.fetch_add(size, Relaxed) + size;
    PEAK.fetch_max(in_use, Relaxed);
}

// SAFETY: every call is passed on to the system's allocator unchanged.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, block: Block) -> *mut u8 {
        count(block.size());
        // SAFETY: the caller's promises are those that the system's allocator needs.
        unsafe { System.alloc(block) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, block: Block) {
        IN_USE.fetch_sub(block.size(), Relaxed);
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, block) }
    }
}

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

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
        optimizer: Optimizer { rule, ..Optimizer::default() },
        learning_rate: 1e-4,
        step: 1,
        max_norm: 1.0,
    }
}

const DROPOUT: Dropout = Dropout { seed: 1, step: 1 };

/// Runs `step` ten times, in which each thread fills its buffers, then counts the allocations of two more.
fn allocations(mut step: impl FnMut() + Send) -> usize {
    // On a thread of the pool, because handing work to the pool sometimes allocates.
    rayon::scope(|_| {
        (0..10).for_each(|_| step());
        COUNTING.store(true, Relaxed);
        (0..2).for_each(|_| step());
        COUNTING.store(false, Relaxed);
        ALLOCATIONS.swap(0, Relaxed)
    })
}

/// A single test, because all threads of the program share the counters.
#[test]
fn steps_allocate_nothing_and_memory_is_as_forecast() {
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
    for rule in [Rule::Adamw, Rule::Lamb, Rule::Muon] {
        let allocated = allocations(|| {
            engine.pretraining_gradients(&pretraining, DROPOUT).unwrap();
            engine.update(&update(rule)).unwrap();
        });
        assert_eq!(allocated, 0, "allocations in a step of pre-training, {rule:?}");
    }
    let mut teacher = CpuEngine::new(&config, &layout, layout.initialise(2)).unwrap();
    let mut targets = SoftTargets::default();
    let weights = Distillation::default().weights(&pretraining);
    let allocated = allocations(|| {
        let rows = &pretraining.masked_rows;
        teacher.soft_targets(&packed, rows, &mut targets).unwrap();
        engine.distillation_gradients_of_part(&pretraining, &targets, weights, DROPOUT).unwrap();
    });
    assert_eq!(allocated, 0, "allocations in a step of distillation");
    drop((engine, teacher));

    let wide = batch(&[128; 12], 500);
    for (part, recompute) in
        [(Part::SequenceClassifier(2), false), (Part::Span, false), (Part::Span, true)]
    {
        let layout = Layout::new(&config, &part.with_encoder());
        let before = IN_USE.load(Relaxed);
        PEAK.store(before, Relaxed);
        let engine = CpuEngine::new(&config, &layout, layout.initialise(1)).unwrap();
        let mut engine = engine.with_recompute(recompute);
        let labels: Vec<u32> = vec![0; wide.rows()];
        let allocated = allocations(|| {
            let mut loss = |logits: &mut [f32]| {
                objective::cross_entropy(logits, 2, &labels, 0.1);
            };
            engine.task_gradients(&wide, DROPOUT, &mut loss).unwrap();
            engine.update(&update(Rule::Adamw)).unwrap();
        });
        assert_eq!(allocated, 0, "allocations in a step, {part:?}");
        let peak = (PEAK.load(Relaxed) - before) as f64;
        let (rows, sequences) = (wide.rows(), wide.sequences());
        let work = Work { rows, sequences, longest: 128, predicted: 0 };
        let forecast = Forecast::of(&config, &layout, work, recompute).total() as f64;
        // The products pack their operands into a few MiB per thread, for any model.
        let difference = peak - forecast;
        assert!(
            (-0.01 * forecast..8e6).contains(&difference),
            "{part:?}: {forecast} bytes forecast, {peak} used"
        );
    }
}
