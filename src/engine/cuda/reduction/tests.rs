//! Ranks on emulated devices that the fake of NCCL connects train as one process does.

use std::sync::{Arc, Mutex, OnceLock};

use super::*;
use crate::engine::cuda::device::Element;
use crate::engine::cuda::driver::fake::Fake;
use crate::engine::cuda::driver::nccl::{Gpus, Nccl};
use crate::engine::cuda::emulated::for_tests;
use crate::engine::cuda::state::download;
use crate::engine::cuda::tests::{DROPOUT, batch, configs, parameters, settings, update};
use crate::engine::cuda::{CudaEngine, Settings};
use crate::engine::optimizer::Rule;
use crate::engine::{Engine, LossWeights, PretrainingEngine, Recompute, TaskEngine};
use crate::model::{Config, Layout, PRETRAINING, Part, Tuning};
use crate::ranks::threads;

const LENGTHS: &[usize] = &[9, 2, 17, 1, 5, 12];

/// What a rank knows in the end: the losses of its shares and the norms of all steps, its parameters, and the reasons
/// of overflows.
#[derive(Debug, PartialEq)]
struct Run {
    losses: Vec<f64>,
    norms: Vec<f64>,
    parameters: Vec<f32>,
    overflows: Vec<Option<String>>,
}

fn config() -> Config {
    let [config, _] = configs();
    config
}

/// Trains for some steps on a rank's share of the same batches, in parts of two sequences at most.
fn train(
    ranks: &Ranks,
    element: Element,
    share: impl Fn(&Ranks) -> Range<usize>,
    scale: Option<&str>,
) -> Option<Run> {
    let (config, layout) = (config(), Layout::new(&config(), &PRETRAINING));
    let values = parameters(&layout);
    let device = Box::new(for_tests()?);
    let mut engine = CudaEngine::new(device, &config, &layout, values, settings(element)).unwrap();
    engine.join(ranks).unwrap();
    if let Some(scale) = scale {
        engine.set_loss_scale(serde_json::from_str(scale).unwrap());
    }
    let mut run = Run { losses: vec![], norms: vec![], parameters: vec![], overflows: vec![] };
    // The same batch again and again, so that steps are launched, recorded and replayed.
    let batch = batch(1, LENGTHS);
    for step in 1..=4 {
        let own = share(ranks);
        let mut loss = 0.0;
        for start in own.clone().step_by(2) {
            let part = batch.slice(start..own.end.min(start + 2));
            if start + 2 >= own.end {
                engine.last_part();
            }
            let weights = LossWeights::of(&batch);
            let scores = engine.pretraining_gradients_of_part(&part, weights, DROPOUT).unwrap();
            loss += scores.mlm_loss;
        }
        // As training does: for a rank without a share, the sums of gradients come first too.
        engine.start_sums().unwrap();
        let [loss] = ranks.sum([loss]).unwrap();
        run.losses.push(loss);
        run.norms.push(engine.update(&update(step, Rule::Adamw)).unwrap());
        run.overflows.push(engine.overflow());
    }
    run.parameters = engine.parameters().unwrap();
    Some(run)
}

/// Runs `work` on ranks, which are threads, each with a fake of NCCL; None without compilers.
fn on_ranks<T: Send>(size: usize, work: impl Fn(&Ranks) -> Option<T> + Sync) -> Option<Vec<T>> {
    let first = Fake::new(&[])?;
    for_tests()?;
    let id = Nccl::find_in(&first.paths()).unwrap().fresh_id().unwrap();
    let results = std::thread::scope(|scope| {
        let ranks = (0..size).map(|rank| {
            let (id, work) = (&id, &work);
            scope.spawn(move || {
                let fake = Fake::new(&[]).unwrap();
                let nccl = Nccl::find_in(&fake.paths()).unwrap();
                let gpus = Gpus::connect(&nccl, &fake.found(), rank, size, id).unwrap();
                let result = work(&Ranks::of(Arc::new(gpus))).unwrap();
                fake.assert_clean();
                result
            })
        });
        let ranks: Vec<_> = ranks.collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    });
    Some(results)
}

fn close(a: f64, b: f64) {
    assert!((a - b).abs() < 1e-6 * b.abs(), "{a} and {b}");
}

/// Gives everything to the second rank.
fn second(ranks: &Ranks) -> Range<usize> {
    if ranks.rank() == 1 { 0..LENGTHS.len() } else { 0..0 }
}

fn fair(ranks: &Ranks) -> Range<usize> {
    ranks.share(LENGTHS.len())
}

#[test]
fn several_ranks_train_as_one_process() {
    let Some(one) = train(Ranks::ALONE, Element::F32, fair, None) else {
        return;
    };
    for size in [2, 3] {
        let Some(runs) = on_ranks(size, |ranks| train(ranks, Element::F32, fair, None)) else {
            return;
        };
        for step in 0..one.losses.len() {
            close(runs[0].losses[step], one.losses[step]);
            close(runs[0].norms[step], one.norms[step]);
        }
        for run in &runs {
            assert_eq!(run.losses, runs[0].losses, "every rank must have the same bits");
            assert_eq!(run.norms, runs[0].norms, "every rank must have the same bits");
            assert!(run.parameters == runs[0].parameters, "every rank must have the same bits");
        }
    }
}

/// Adding zeros changes no bits.
#[test]
fn ranks_without_a_share_train_along_to_the_same_bits() {
    let Some(one) = train(Ranks::ALONE, Element::F32, fair, None) else {
        return;
    };
    let Some(runs) = on_ranks(2, |ranks| train(ranks, Element::F32, second, None)) else {
        return;
    };
    assert!(runs[0] == one && runs[1] == one);
}

/// Only the second rank's own gradients leave the range.
#[test]
fn all_ranks_skip_a_step_that_overflows_on_one() {
    let largest = r#"{"scale":16777216.0,"good":0}"#;
    let run = |ranks: &Ranks| train(ranks, Element::F16, second, Some(largest));
    let Some(runs) = on_ranks(2, run) else {
        return;
    };
    assert!(runs[0].overflows[0].is_some(), "the first step must overflow");
    assert_eq!(runs[0].overflows, runs[1].overflows);
    assert!(runs[0].parameters == runs[1].parameters);
}

/// Then some or all points come after the backward pass.
#[test]
fn with_frozen_layers_ranks_train_as_one_process() {
    let layout = Layout::new(&config(), &Part::SequenceClassifier(3).with_encoder());
    for freeze in [0, 1, 2] {
        let layout = layout.tuned(Tuning { freeze: Some(freeze), ..Tuning::default() }, 2);
        let norm = |ranks: &Ranks| {
            let (device, values) = (Box::new(for_tests()?), parameters(&layout));
            let settings = settings(Element::F32);
            let mut engine = CudaEngine::new(device, &config(), &layout, values, settings).unwrap();
            engine.join(ranks).unwrap();
            engine.last_part();
            let share = batch(1, LENGTHS).slice(fair(ranks)).packed;
            let mut loss = |logits: &mut [f32]| logits.iter_mut().for_each(|x| *x *= 0.1);
            engine.task_gradients(&share, DROPOUT, &mut loss).unwrap();
            Some(engine.update(&update(1, Rule::Adamw)).unwrap())
        };
        let Some(norms) = norm(Ranks::ALONE).zip(on_ranks(2, norm)) else {
            return;
        };
        assert_eq!(norms.1[0], norms.1[1]);
        close(norms.1[0], norms.0);
    }
}

/// What a bucket holds at its point is what it holds in the end: a sum that begins there misses nothing.
#[test]
fn gradients_do_not_change_behind_their_points() {
    let layout = Layout::new(&config(), &PRETRAINING);
    for recompute in [Recompute::Nothing, Recompute::Cheap, Recompute::Layers] {
        let Some(mut device) = for_tests() else {
            return;
        };
        let place = Arc::new(OnceLock::new());
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (at, gradients) = (place.clone(), seen.clone());
        device.at_point = Some(Box::new(move |device, point| {
            let &(at, count) = at.get().unwrap();
            let now: Vec<f32> = download(device, at, count).unwrap();
            gradients.lock().unwrap().push((point, now));
        }));
        let settings = Settings { recompute, ..settings(Element::F32) };
        let values = parameters(&layout);
        let mut engine =
            CudaEngine::new(Box::new(device), &config(), &layout, values, settings).unwrap();
        engine.join(&threads::group(2)[0]).unwrap();
        let (at, count) = (engine.state.gradients, engine.state.offsets.total());
        place.set((at, count)).unwrap();
        engine.pretraining_gradients(&batch(1, LENGTHS), DROPOUT).unwrap();
        let end: Vec<f32> = engine.download(at, count).unwrap();
        let seen = std::mem::take(&mut *seen.lock().unwrap());
        assert_eq!(seen.iter().map(|(point, _)| *point).collect::<Vec<_>>(), [0, 1, 2]);
        for (point, then) in &seen {
            for (bucket, ranges) in engine.reduction.buckets.iter().enumerate() {
                let same = ranges.iter().all(|range| then[range.clone()] == end[range.clone()]);
                assert_eq!(same, bucket <= *point, "bucket {bucket} at point {point}");
            }
        }
    }
}

#[test]
fn every_gradient_that_is_trained_is_in_one_bucket_at_its_offset() {
    let layout = Layout::new(&config(), &PRETRAINING);
    for freeze in [None, Some(0), Some(1), Some(2)] {
        let layout = layout.tuned(Tuning { freeze, ..Tuning::default() }, 2);
        let offsets = Offsets::new(&layout);
        let reduction = Reduction::new(Ranks::ALONE, &offsets);
        assert_eq!(reduction.buckets.len(), 3);
        let mut all: Vec<_> = reduction.buckets.iter().flatten().cloned().collect();
        all.sort_by_key(|range| range.start);
        assert!(all.windows(2).all(|pair| pair[0].end <= pair[1].start), "{all:?}");
        for (parameter, range) in offsets.iter() {
            let inside = all.iter().any(|all| all.start <= range.start && range.end <= all.end);
            assert!(inside || parameter.rate == 0.0, "{}", parameter.name);
        }
        // Fewer sums than parameters.
        assert!(all.len() <= 10, "{all:?}");
    }
}
