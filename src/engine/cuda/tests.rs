//! The engine on the emulated device against the CPU engine: the same batch, parameters and dropout
//! give the same losses, the same gradient of every parameter, and the same run.

use std::sync::Arc;

use super::device::{Device, Element};
use super::emulated::{Emulated, for_tests};
use super::{CudaEngine, Settings};
use crate::data::Packed;
use crate::data::pretraining::PretrainingBatch;
use crate::engine::objective::Labels;
use crate::engine::optimizer::{Optimizer, Rule, Update};
use crate::engine::{
    CpuEngine, Distillation, Engine, LossWeights, PretrainingEngine, Recompute, SoftTargets,
    TaskEngine,
};
use crate::model::{Config, Dropout, Family, HeadInput, Layout, PRETRAINING, Part};
use crate::random::{Site, Stream};

const VOCABULARY: u32 = 203;
pub(super) const DROPOUT: Dropout = Dropout { seed: 5 | 3 << 32, step: 9 };

/// Heads of 32, which attention on tensor cores takes, and of 24, which it doesn't.
pub(super) fn configs() -> [Config; 2] {
    [(64, 2, 128), (48, 2, 100)].map(|(width, heads, inner)| {
        let mut config = Config::new(2, width, heads, inner, VOCABULARY as usize);
        config.max_position_embeddings = 160;
        config.hidden_dropout_prob = 0.2;
        config.attention_probs_dropout_prob = 0.3;
        config
    })
}

/// A RoBERTa, whose positions begin later and whose classifier drops the pooler's input too, a DistilBERT,
/// without segments and with ReLU, and two ELECTRAs with GELU and embeddings of other widths than the layers.
fn families() -> [Config; 4] {
    let [mut roberta, mut distilbert] = configs();
    roberta.model_type = Family::Roberta;
    roberta.pad_token_id = 1;
    distilbert.model_type = Family::DistilBert;
    distilbert.type_vocab_size = 0;
    let [mut narrow, mut wide] = configs();
    for (electra, width) in [(&mut narrow, 20), (&mut wide, 56)] {
        electra.model_type = Family::Electra;
        electra.embedding_size = Some(width);
    }
    [roberta, distilbert, narrow, wide]
}

/// Sequences of these lengths with every fifth token to predict; ids and labels drawn from `key`.
pub(super) fn batch(key: u64, lengths: &[usize]) -> PretrainingBatch {
    let mut draws = Stream::new(key, 0, Site::Other(3), 0).draws();
    let mut batch = PretrainingBatch::default();
    for (index, &length) in lengths.iter().enumerate() {
        let first = batch.packed.rows() as u32;
        let ids: Vec<u32> = (0..length).map(|_| draws.below(VOCABULARY)).collect();
        let segments: Vec<u32> = (0..length).map(|i| u32::from(2 * i > length)).collect();
        // Examples beyond 32 bits: the random numbers' streams know them.
        batch.packed.push((7 << 33) + index as u64, &ids, &segments);
        for row in (first..first + length as u32).step_by(5) {
            batch.masked_rows.push(row);
            batch.masked_labels.push(draws.below(VOCABULARY));
        }
        batch.next_labels.push(draws.below(2));
    }
    batch
}

const RAGGED: &[usize] = &[33, 2, 17, 1, 70];

/// Parameters with curvature everywhere: initial values alone leave biases and LayerNorms flat.
pub(super) fn parameters(layout: &Layout) -> Vec<f32> {
    let stream = Stream::new(7, 0, Site::Other(4), 0);
    let mut values = layout.initialise(3);
    for (i, value) in values.iter_mut().enumerate() {
        *value += 0.1 * (stream.uniform(i as u32) as f32 - 0.5);
    }
    values
}

pub(super) fn settings(element: Element) -> Settings {
    Settings { element, tf32: false, recompute: Recompute::Nothing }
}

/// Both engines with the same parameters, the CPU's in f32; None where there is no C++ compiler.
fn engines(
    config: &Config,
    parts: &[Part],
    settings: Settings,
) -> Option<(Arc<Layout>, CudaEngine, CpuEngine)> {
    let layout = Layout::new(config, parts);
    let values = parameters(&layout);
    let device: Box<dyn Device> = Box::new(for_tests()?);
    let cuda = CudaEngine::new(device, config, &layout, values.clone(), settings).unwrap();
    let cpu = CpuEngine::new(config, &layout, values).unwrap();
    Some((layout, cuda, cpu))
}

/// Fails where two buffers differ by more than `bound` of a parameter's own norm. A norm below a
/// ten-thousandth of the whole counts as that much (a hundredth where numbers are short): queries
/// and keys of a sequence of one token have no gradient but rounding.
fn compare(layout: &Layout, got: &[f32], expected: &[f32], bound: f64) {
    let floor = if bound > 1e-3 { 1e-4 } else { 1e-8 };
    let whole: f64 = expected.iter().map(|&e| f64::from(e).powi(2)).sum();
    let mut worst = (0.0, "");
    for (parameter, range) in layout.iter() {
        // A key's bias moves all scores of a query alike, and a span's those of a sequence: their gradients are
        // rounding alone.
        if parameter.name.ends_with("key.bias") || parameter.name == "qa_outputs.bias" {
            continue;
        }
        let (mut difference, mut norm) = (0.0, 0.0);
        for (g, e) in got[range.clone()].iter().zip(&expected[range]) {
            difference += f64::from(g - e).powi(2);
            norm += f64::from(*e).powi(2);
        }
        let relative = (difference / norm.max(floor * whole)).sqrt();
        if relative.is_nan() || relative > worst.0 {
            worst = (relative, parameter.name.as_str());
        }
    }
    eprintln!("largest difference {:.1e}: {}", worst.0, worst.1);
    assert!(worst.0 < bound, "{}: {:.1e}", worst.1, worst.0);
}

fn close(got: f64, expected: f64, bound: f64) {
    assert!((got / expected - 1.0).abs() < bound, "{got} {expected}");
}

/// What an element's rounding may do to a loss and to a parameter's gradient, in relation to it.
fn bounds(element: Element) -> (f64, f64) {
    match element {
        Element::F32 => (1e-5, 1e-4),
        // Eight bits of each activation, through two layers and back.
        Element::Bf16 => (5e-3, 2e-2),
        Element::F16 => (1e-3, 4e-3),
    }
}

/// Lowers the scale of the loss until the gradients of a batch are in the range of f16.
fn find_scale(cuda: &mut CudaEngine, batch: &PretrainingBatch) {
    let before = cuda.parameters().unwrap();
    let still = Update { learning_rate: 0.0, ..update(1, Rule::Adamw) };
    loop {
        cuda.pretraining_gradients(batch, DROPOUT).unwrap();
        if cuda.update(&still).unwrap().is_finite() {
            break;
        }
        assert!(cuda.overflow().is_some());
    }
    assert_eq!(cuda.parameters().unwrap(), before);
}

fn pretraining_agrees(config: &Config, element: Element) {
    let Some((layout, mut cuda, mut cpu)) = engines(config, &PRETRAINING, settings(element)) else {
        return;
    };
    let (loss_bound, bound) = bounds(element);
    for lengths in [&[1][..], RAGGED, &[127, 31]] {
        let batch = batch(1, lengths);
        if element == Element::F16 {
            find_scale(&mut cuda, &batch);
        }
        let got = cuda.pretraining_gradients(&batch, DROPOUT).unwrap();
        let expected = cpu.pretraining_gradients(&batch, DROPOUT).unwrap();
        close(got.mean_mlm_loss(), expected.mean_mlm_loss(), loss_bound);
        close(got.mean_nsp_loss(), expected.mean_nsp_loss(), loss_bound);
        assert_eq!((got.mlm_total, got.nsp_total), (expected.mlm_total, expected.nsp_total));
        if element == Element::F32 {
            assert_eq!(
                (got.mlm_correct, got.nsp_correct),
                (expected.mlm_correct, expected.nsp_correct)
            );
        }
        let (got, expected) = (cuda.gradients().unwrap(), cpu.gradients().unwrap());
        compare(&layout, &got, &expected, bound);
        cuda.discard().unwrap();
        cpu.discard().unwrap();
        assert!(cuda.gradients().unwrap().iter().all(|&g| g == 0.0));
        let got = cuda.pretraining_scores(&batch).unwrap();
        let expected = cpu.pretraining_scores(&batch).unwrap();
        close(got.loss(), expected.loss(), loss_bound);
    }
}

#[test]
fn pretraining_losses_and_every_gradient_are_the_cpus() {
    for config in configs() {
        pretraining_agrees(&config, Element::F32);
    }
}

#[test]
fn so_they_are_from_left_to_right() {
    let [mut config, _] = configs();
    config.is_decoder = true;
    pretraining_agrees(&config, Element::F32);
}

#[test]
fn so_they_are_with_projected_embeddings() {
    for config in &families()[2..] {
        pretraining_agrees(config, Element::F32);
    }
}

#[test]
fn in_bf16_they_are_the_cpus_within_its_rounding() {
    for config in [&configs()[..], &families()[2..3]].concat() {
        pretraining_agrees(&config, Element::Bf16);
    }
}

#[test]
fn in_f16_they_are_the_cpus_within_its_rounding() {
    for config in configs() {
        pretraining_agrees(&config, Element::F16);
    }
}

pub(super) fn update(step: u64, rule: Rule) -> Update {
    Update {
        optimizer: Optimizer { rule, ..Optimizer::default() },
        learning_rate: 1e-3,
        step,
        max_norm: 1.0,
    }
}

#[test]
fn muon_is_refused_before_anything_changes() {
    let [config, _] = configs();
    let made = engines(&config, &PRETRAINING, settings(Element::F32));
    let Some((_, mut cuda, _)) = made else {
        return;
    };
    let before = cuda.parameters().unwrap();
    let refused = cuda.update(&update(1, Rule::Muon)).unwrap_err();
    assert_eq!(refused.exit_code(), 2);
    assert!(refused.to_string().contains("--backend cpu"), "{refused}");
    assert_eq!(cuda.parameters().unwrap(), before);
}

/// Ten steps: lengths change from step to step and come again, so that recordings are made, replayed
/// and not mistaken for each other.
#[test]
fn ten_steps_of_pretraining_stay_together() {
    let [mut config, _] = configs();
    config.attention_probs_dropout_prob = 0.1;
    for rule in [Rule::Adamw, Rule::Lamb] {
        let Some((layout, mut cuda, mut cpu)) =
            engines(&config, &PRETRAINING, settings(Element::F32))
        else {
            return;
        };
        for step in 1..=10 {
            let lengths: &[usize] = if step % 3 == 0 { &[9, 40] } else { &[20, 7, 33, 12] };
            let batch = batch(step, lengths);
            let dropout = Dropout { seed: 1, step: step as u32 };
            let got = cuda.pretraining_gradients(&batch, dropout).unwrap();
            let expected = cpu.pretraining_gradients(&batch, dropout).unwrap();
            close(got.loss(), expected.loss(), 1e-4);
            let update = update(step, rule);
            close(cuda.update(&update).unwrap(), cpu.update(&update).unwrap(), 1e-4);
        }
        // Of each shape the first was launched and the second recorded.
        assert_eq!(cuda.replayed(), (7 - 2) + (3 - 2));
        let (got, expected) = (cuda.parameters().unwrap(), cpu.parameters().unwrap());
        compare(&layout, &got, &expected, 1e-3);
        let (got, expected) = (cuda.moments().unwrap(), cpu.moments().unwrap());
        compare(&layout, &got.first, &expected.first, 1e-3);
        compare(&layout, &got.second, &expected.second, 1e-3);
    }
}

/// A recording gives what launches give, to the bit.
#[test]
fn replays_are_launches() {
    let [config, _] = configs();
    let Some((_, mut cuda, _)) = engines(&config, &PRETRAINING, settings(Element::Bf16)) else {
        return;
    };
    let run = |cuda: &mut CudaEngine, key: u64| {
        let (batch, dropout) = (batch(key, RAGGED), Dropout { seed: key, step: 3 });
        let scores = cuda.pretraining_gradients(&batch, dropout).unwrap();
        let gradients = cuda.gradients().unwrap();
        cuda.discard().unwrap();
        (scores, gradients)
    };
    let launched: Vec<_> = (0..3)
        .map(|key| {
            cuda.graphs.clear(cuda.device.get_mut().as_mut());
            run(&mut cuda, key)
        })
        .collect();
    assert_eq!(cuda.replayed(), 0);
    for round in 0..2 {
        for (key, launched) in launched.iter().enumerate() {
            assert!(run(&mut cuda, key as u64) == *launched, "{round} {key}");
        }
    }
    assert!(cuda.replayed() >= 4);
}

/// The gradient of some loss of a head's logits.
#[test]
fn ragged_batches_share_recordings_and_their_gradients_stay() {
    let [config, _] = configs();
    let Some((layout, mut cuda, _)) = engines(&config, &PRETRAINING, settings(Element::F32)) else {
        return;
    };
    let device: Box<dyn Device> = Box::new(for_tests().unwrap());
    let values = parameters(&layout);
    let mut plain =
        CudaEngine::new(device, &config, &layout, values, settings(Element::F32)).unwrap();
    plain.ways.buckets = false;
    // Of 123, 122, 122 and 121 rows, with 27 masked ones each.
    let all = [[33, 2, 17, 1, 70], [32, 2, 17, 1, 70], [33, 3, 16, 1, 69], [31, 3, 17, 1, 69]];
    for (step, lengths) in all.iter().enumerate() {
        let batch = batch(step as u64, lengths);
        let dropout = Dropout { seed: 3, step: step as u32 };
        let got = cuda.pretraining_gradients(&batch, dropout).unwrap();
        let expected = plain.pretraining_gradients(&batch, dropout).unwrap();
        close(got.loss(), expected.loss(), 1e-6);
        assert_eq!(
            (got.mlm_correct, got.nsp_correct),
            (expected.mlm_correct, expected.nsp_correct)
        );
        assert_eq!((got.mlm_total, got.nsp_total), (expected.mlm_total, expected.nsp_total));
        compare(&layout, &cuda.gradients().unwrap(), &plain.gradients().unwrap(), 1e-5);
        cuda.discard().unwrap();
        plain.discard().unwrap();
    }
    assert_eq!((cuda.replayed(), plain.replayed()), (2, 0));
}

fn loss(logits: &mut [f32]) {
    for (i, x) in logits.iter_mut().enumerate() {
        *x = 0.1 * *x + 0.01 * (i as f32).sin();
    }
}

#[test]
fn task_heads_over_texts_and_over_tokens_are_the_cpus() {
    let heads =
        [Part::SequenceClassifier(3), Part::MultipleChoice, Part::TokenClassifier(9), Part::Span];
    let all = [&configs()[..], &families()].concat();
    let elements = [Element::F32, Element::Bf16].into_iter().cycle();
    for (config, element) in all.iter().zip(elements) {
        let bound = bounds(element).1;
        for head in heads {
            let parts = head.with_encoder();
            let Some((layout, mut cuda, mut cpu)) = engines(config, &parts, settings(element))
            else {
                return;
            };
            let batch = batch(2, RAGGED).packed;
            for round in 0..3 {
                let mut seen = [Vec::new(), Vec::new()];
                let [first, second] = &mut seen;
                cuda.task_gradients(&batch, DROPOUT, &mut |logits| {
                    first.extend_from_slice(logits);
                    loss(logits);
                })
                .unwrap();
                cpu.task_gradients(&batch, DROPOUT, &mut |logits| {
                    second.extend_from_slice(logits);
                    loss(logits);
                })
                .unwrap();
                near(&seen[0], &seen[1], bound);
                assert_eq!(cuda.replayed() > 0, round == 2);
            }
            let (got, expected) = (cuda.gradients().unwrap(), cpu.gradients().unwrap());
            compare(&layout, &got, &expected, bound);
            let (got, expected) = (cuda.task_logits(&batch), cpu.task_logits(&batch));
            near(&got.unwrap(), &expected.unwrap(), bound);
            let over_rows = head.task_head().is_some_and(|head| head.input == HeadInput::Rows);
            let states = cuda.hidden_states(&batch, 0..1).unwrap();
            assert_eq!(states.pooled.is_none(), over_rows);
        }
    }
}

#[test]
fn losses_of_labels_on_the_device_are_the_cpus() {
    let heads = [Part::SequenceClassifier(3), Part::TokenClassifier(9), Part::Span];
    for (config, element) in configs().iter().zip([Element::F32, Element::F16]) {
        let bound = bounds(element).1;
        for head in heads {
            let parts = head.with_encoder();
            let Some((layout, mut cuda, mut cpu)) = engines(config, &parts, settings(element))
            else {
                return;
            };
            let batch = batch(2, RAGGED).packed;
            let classes: Vec<u32> = (0..batch.sequences() as u32).map(|i| i % 3).collect();
            let rows: Vec<Option<u32>> =
                (0..batch.rows() as u32).map(|row| (row % 5 > 0).then_some(row % 9)).collect();
            let last = |range: std::ops::Range<usize>| range.len() as u32 - 1;
            let spans: Vec<[u32; 2]> =
                batch.ranges().map(|range| [last(range.clone()) / 2, last(range)]).collect();
            let labels = match head {
                Part::SequenceClassifier(_) => Labels::Classes(&classes),
                Part::TokenClassifier(_) => Labels::Rows(&rows),
                _ => Labels::Spans(&spans),
            };
            for round in 0..3 {
                let got = cuda.labelled_gradients(&batch, DROPOUT, labels, 0.25).unwrap();
                let expected = cpu.labelled_gradients(&batch, DROPOUT, labels, 0.25).unwrap();
                close(got.loss, expected.loss, bound);
                assert_eq!(got.correct, expected.correct);
                assert_eq!(cuda.replayed() > 0, round == 2);
            }
            let (got, expected) = (cuda.gradients().unwrap(), cpu.gradients().unwrap());
            compare(&layout, &got, &expected, bound);
            let few = Labels::Classes(&[0]);
            let error = cuda.labelled_gradients(&batch, DROPOUT, few, 1.0).unwrap_err().to_string();
            assert!(error.contains("labels for this batch, not 1"), "{error}");
        }
    }
}

/// Fails where two vectors are farther apart than `bound` of their norm.
fn near(got: &[f32], expected: &[f32], bound: f64) {
    assert_eq!(got.len(), expected.len());
    let norm = |values: &mut dyn Iterator<Item = f32>| -> f64 {
        values.map(|x| f64::from(x).powi(2)).sum::<f64>().sqrt()
    };
    let apart = norm(&mut got.iter().zip(expected).map(|(g, e)| g - e));
    let whole = norm(&mut expected.iter().copied());
    assert!(apart <= bound * whole, "{apart} of {whole}");
}

#[test]
fn what_is_asked_of_a_trained_model_is_the_cpus() {
    for element in [Element::F32, Element::Bf16] {
        let bound = bounds(element).1;
        for config in configs() {
            let Some((_, mut cuda, mut cpu)) = engines(&config, &PRETRAINING, settings(element))
            else {
                return;
            };
            let batch = batch(3, RAGGED);
            let packed = &batch.packed;
            let (got, expected) = (
                cuda.hidden_states(packed, 0..3).unwrap(),
                cpu.hidden_states(packed, 0..3).unwrap(),
            );
            for (got, expected) in got.layers.iter().zip(&expected.layers) {
                near(got, expected, bound);
            }
            assert_eq!(got.layers.len(), 3);
            near(&got.pooled.unwrap(), &expected.pooled.unwrap(), bound);
            let rows = [5, 0, 121, 5];
            let got = cuda.masked_lm_logits(packed, &rows).unwrap();
            near(&got, &cpu.masked_lm_logits(packed, &rows).unwrap(), bound);
            assert!(cuda.masked_lm_logits(packed, &[]).unwrap().is_empty());
            let flat = |logits: Vec<[f32; 2]>| logits.concat();
            let got = flat(cuda.next_sentence_logits(packed).unwrap());
            let expected = flat(cpu.next_sentence_logits(packed).unwrap());
            near(&got, &expected, bound);
            let (got, expected) = (cuda.attention(packed).unwrap(), cpu.attention(packed).unwrap());
            assert_eq!(got.len(), expected.len());
            let refused = cuda.task_logits(packed).unwrap_err().to_string();
            assert_eq!(refused, "the model has no task head");
        }
    }
}

#[test]
fn distillation_is_the_cpus() {
    for element in [Element::F32, Element::Bf16, Element::F16] {
        let (loss_bound, bound) = bounds(element);
        let [config, _] = configs();
        let Some((layout, mut cuda, mut cpu)) = engines(&config, &PRETRAINING, settings(element))
        else {
            return;
        };
        let batch = batch(4, RAGGED);
        let mut teacher = parameters(&layout);
        teacher.iter_mut().for_each(|value| *value *= 1.3);
        let mut teacher = CpuEngine::new(&config, &layout, teacher).unwrap();
        let mut targets = SoftTargets::default();
        let rows = &batch.masked_rows;
        teacher.soft_targets(&batch.packed, rows, &mut targets).unwrap();
        let recipe = Distillation::default();
        let weights = recipe.weights(&batch);
        for _ in 0..3 {
            let run = |engine: &mut dyn PretrainingEngine| {
                engine.distillation_gradients_of_part(&batch, &targets, weights, DROPOUT).unwrap()
            };
            let (got, expected) = (run(&mut cuda), run(&mut cpu));
            close(got.loss(&recipe), expected.loss(&recipe), loss_bound);
            close(got.cosine, expected.cosine, loss_bound);
            close(got.soft, expected.soft, 10.0 * loss_bound);
            close(got.hard.mlm_loss, expected.hard.mlm_loss, loss_bound);
            assert_eq!(got.rows, expected.rows);
        }
        compare(&layout, &cuda.gradients().unwrap(), &cpu.gradients().unwrap(), bound);
        let mut own = SoftTargets::default();
        cuda.soft_targets(&batch.packed, rows, &mut own).unwrap();
        cpu.soft_targets(&batch.packed, rows, &mut targets).unwrap();
        near(&own.logits, &targets.logits, bound);
        near(&own.hidden, &targets.hidden, bound);
    }
}

/// Every level of recomputation gives the same bits, in less memory.
#[test]
fn what_is_computed_again_is_what_was_kept() {
    for element in [Element::F32, Element::Bf16] {
        let [mut config, _] = configs();
        config.num_hidden_layers = 3;
        let run = |recompute: Recompute| {
            let settings = Settings { recompute, ..settings(element) };
            let (_, mut cuda, _) = engines(&config, &PRETRAINING, settings)?;
            let batch = batch(5, &[60, 1, 90]);
            let weights = LossWeights::of(&batch);
            let mut losses = Vec::new();
            for _ in 0..3 {
                let scores = cuda.pretraining_gradients_of_part(&batch, weights, DROPOUT).unwrap();
                losses.push(scores.loss());
            }
            Some((losses, cuda.gradients().unwrap(), cuda.activation_bytes()))
        };
        let Some((losses, gradients, bytes)) = run(Recompute::Nothing) else {
            return;
        };
        let mut last = bytes;
        for recompute in [Recompute::Cheap, Recompute::Layers] {
            let (again, other, bytes) = run(recompute).unwrap();
            assert_eq!(losses, again, "{recompute:?}");
            assert!(gradients == other, "{recompute:?} {element:?}");
            assert!(bytes < last, "{recompute:?}");
            last = bytes;
        }
    }
}

/// A run that moves from one engine to the other and back goes on as if it had not.
#[test]
fn a_checkpoint_moves_between_engines() {
    let [config, _] = configs();
    let Some((_, mut cuda, mut cpu)) = engines(&config, &PRETRAINING, settings(Element::F32))
    else {
        return;
    };
    let step = |engine: &mut dyn PretrainingEngine, step: u64| {
        let batch = batch(step, &[20, 7, 1, 12]);
        let dropout = Dropout { seed: 1, step: step as u32 };
        let scores = engine.pretraining_gradients(&batch, dropout).unwrap();
        engine.update(&update(step, Rule::Adamw)).unwrap();
        scores.loss()
    };
    let layout = cpu.layout().clone();
    let mut alone = CpuEngine::new(&config, &layout, cpu.parameters().unwrap()).unwrap();
    let whole: Vec<f64> = (1..=9).map(|i| step(&mut alone, i)).collect();
    let mut losses: Vec<f64> = (1..=3).map(|i| step(&mut cpu, i)).collect();
    fn hand_over(from: &dyn Engine, to: &mut dyn Engine) {
        to.set_parameters(&from.parameters().unwrap()).unwrap();
        to.set_moments(from.moments().unwrap()).unwrap();
        assert_eq!(from.parameters().unwrap(), to.parameters().unwrap());
        assert_eq!(from.moments().unwrap(), to.moments().unwrap());
    }
    hand_over(&cpu, &mut cuda);
    losses.extend((4..=6).map(|i| step(&mut cuda, i)));
    hand_over(&cuda, &mut cpu);
    losses.extend((7..=9).map(|i| step(&mut cpu, i)));
    for (got, expected) in losses.iter().zip(&whole) {
        close(*got, *expected, 1e-4);
    }
    assert!(cuda.set_parameters(&[0.0]).is_err());
}

/// Ten steps resumed after five are the ten steps, to the bit.
#[test]
fn a_run_that_is_resumed_is_the_run() {
    let [config, _] = configs();
    let step = |engine: &mut CudaEngine, step: u64| {
        let batch = batch(step, &[20, 7, 1, 12]);
        let dropout = Dropout { seed: 1, step: step as u32 };
        let scores = engine.pretraining_gradients(&batch, dropout).unwrap();
        (scores.loss(), engine.update(&update(step, Rule::Adamw)).unwrap())
    };
    let Some((_, mut whole, _)) = engines(&config, &PRETRAINING, settings(Element::Bf16)) else {
        return;
    };
    let losses: Vec<_> = (1..=6).map(|i| step(&mut whole, i)).collect();
    let (_, mut first, _) = engines(&config, &PRETRAINING, settings(Element::Bf16)).unwrap();
    let mut again: Vec<_> = (1..=3).map(|i| step(&mut first, i)).collect();
    let (_, mut second, _) = engines(&config, &PRETRAINING, settings(Element::Bf16)).unwrap();
    second.set_parameters(&first.parameters().unwrap()).unwrap();
    second.set_moments(first.moments().unwrap()).unwrap();
    again.extend((4..=6).map(|i| step(&mut second, i)));
    assert_eq!(losses, again);
    assert_eq!(whole.parameters().unwrap(), second.parameters().unwrap());
}

#[test]
fn gradients_that_are_no_numbers_change_nothing_and_lower_the_scale() {
    for element in [Element::F32, Element::F16] {
        let [config, _] = configs();
        let parts = Part::Span.with_encoder();
        let Some((_, mut cuda, _)) = engines(&config, &parts, settings(element)) else {
            return;
        };
        let before = cuda.parameters().unwrap();
        let packed = batch(6, &[12, 5]).packed;
        let spoil = |cuda: &mut CudaEngine, value: f32| {
            cuda.task_gradients(&packed, DROPOUT, &mut |logits| logits.fill(value)).unwrap();
            cuda.update(&update(1, Rule::Adamw)).unwrap()
        };
        assert!(!spoil(&mut cuda, f32::NAN).is_finite());
        assert_eq!(cuda.parameters().unwrap(), before);
        assert_eq!(cuda.moments().unwrap().first, vec![0.0; before.len()]);
        assert!(cuda.gradients().unwrap().iter().all(|&g| g == 0.0));
        let message = cuda.overflow();
        assert_eq!(message.is_some(), element == Element::F16);
        if let Some(message) = message {
            assert!(message.contains("now it is 32768"), "{message}");
            // 8 is in the range of f16, and not what 32768 times 8 would be.
            assert!(!spoil(&mut cuda, 8.0).is_finite());
            assert!(cuda.overflow().is_some());
        }
        assert!(spoil(&mut cuda, 1e-3).is_finite());
        assert_eq!(cuda.overflow(), None);
        assert_ne!(cuda.parameters().unwrap(), before);
        // A run that goes on takes the scale over; where there is none, it is left alone.
        let kept = cuda.loss_scale().cloned();
        let Some((_, mut resumed, _)) = engines(&config, &parts, settings(element)) else {
            return;
        };
        resumed.set_loss_scale(kept.clone().unwrap_or_default());
        assert_eq!(resumed.loss_scale().cloned(), kept);
    }
}

/// Hidden states that are no numbers reach the padding of a head's weights too, which no parameter shows.
#[test]
fn a_skipped_update_leaves_no_gradient_in_padding() {
    let [config, _] = configs();
    let parts = Part::TokenClassifier(5).with_encoder();
    let Some((layout, mut cuda, _)) = engines(&config, &parts, settings(Element::F32)) else {
        return;
    };
    let good = cuda.parameters().unwrap();
    let (_, bias) = layout.find("encoder.layer.0.output.dense.bias").unwrap();
    let mut bad = good.clone();
    bad[bias.start] = f32::NAN;
    cuda.set_parameters(&bad).unwrap();
    let packed = batch(6, &[12, 5]).packed;
    let mut fill = |logits: &mut [f32]| logits.fill(1e-3);
    cuda.task_gradients(&packed, DROPOUT, &mut fill).unwrap();
    assert!(!cuda.update(&update(1, Rule::Adamw)).unwrap().is_finite());
    cuda.set_parameters(&good).unwrap();
    cuda.task_gradients(&packed, DROPOUT, &mut fill).unwrap();
    assert!(cuda.update(&update(1, Rule::Adamw)).unwrap().is_finite());
}

/// The largest batch that the sentence names does fit, and one more doesn't.
#[test]
fn a_batch_that_does_not_fit_is_refused_with_one_that_does() {
    let [config, _] = configs();
    let layout = Layout::new(&config, &PRETRAINING);
    if for_tests().is_none() {
        return;
    }
    let device = Emulated::with_memory(24 << 20).unwrap();
    let values = parameters(&layout);
    let device = Box::new(device);
    let mut cuda =
        CudaEngine::new(device, &config, &layout, values, settings(Element::F32)).unwrap();
    let sequences = |n: usize| batch(7, &vec![60; n]);
    let bare = cuda.device_bytes().unwrap();
    cuda.pretraining_gradients(&sequences(1), DROPOUT).unwrap();
    assert!(cuda.device_bytes().unwrap() > bare && bare > 12 * layout.total() as u64);
    let refused = cuda.pretraining_gradients(&sequences(400), DROPOUT);
    let message = refused.unwrap_err().to_string();
    assert!(message.starts_with("400 sequences of up to 60 tokens need "), "{message}");
    assert!(message.contains("of the GPU's memory, but "), "{message}");
    let number = message.split("(micro-batch ").nth(1).unwrap();
    let digits: String = number.chars().take_while(char::is_ascii_digit).collect();
    let fit: usize = digits.parse().unwrap();
    assert!(cuda.pretraining_gradients(&sequences(fit + 1), DROPOUT).is_err());
    cuda.pretraining_gradients(&sequences(fit), DROPOUT).unwrap();
    let mut empty = Packed::default();
    empty.ids.clear();
    assert!(cuda.hidden_states(&empty, 0..1).unwrap().layers[0].is_empty());
}

/// What is forecast is what a step of that size takes.
#[test]
fn the_forecast_is_the_plan() {
    use crate::engine::memory::Work;
    let [config, _] = configs();
    for recompute in [Recompute::Nothing, Recompute::Cheap, Recompute::Layers] {
        let settings = Settings { recompute, ..settings(Element::Bf16) };
        let parts = Part::TokenClassifier(5).with_encoder();
        let Some((layout, mut cuda, _)) = engines(&config, &parts, settings) else {
            return;
        };
        let packed = batch(8, RAGGED).packed;
        // What fills a batch takes more, if there is room.
        cuda.ways.buckets = false;
        let labels = vec![Some(1); packed.rows()];
        cuda.labelled_gradients(&packed, DROPOUT, Labels::Rows(&labels), 1.0).unwrap();
        let (rows, sequences) = (packed.rows(), packed.sequences());
        let work = Work { rows, sequences, longest: packed.longest(), predicted: 0 };
        let forecast = super::forecast(&config, &layout, work, settings, false);
        assert_eq!(forecast.activations, cuda.activation_bytes());
        assert!(forecast.state > 18 * layout.total() as u64);
    }
}

/// Losses stay those of the definition when the tokens of a batch are many of one word.
#[test]
fn spans_train_as_on_the_cpu() {
    let [_, config] = configs();
    let parts = Part::Span.with_encoder();
    let Some((layout, mut cuda, mut cpu)) = engines(&config, &parts, settings(Element::F32)) else {
        return;
    };
    let mut packed = Packed::default();
    packed.push(1, &[9; 40], &[0; 40]);
    packed.push(2, &[9, 4, 9], &[0, 1, 1]);
    for step in 1..=3 {
        let dropout = Dropout { seed: 2, step };
        let run = |engine: &mut dyn TaskEngine| {
            let labels = Labels::Spans(&[[3, 7], [0, 2]]);
            let scored = engine.labelled_gradients(&packed, dropout, labels, 0.5).unwrap();
            let norm = engine.update(&update(u64::from(step), Rule::Adamw)).unwrap();
            (scored.loss, norm)
        };
        let (got, expected) = (run(&mut cuda), run(&mut cpu));
        close(got.0, expected.0, 1e-4);
        close(got.1, expected.1, 1e-4);
    }
    compare(&layout, &cuda.parameters().unwrap(), &cpu.parameters().unwrap(), 1e-3);
}

#[test]
fn what_is_chosen_is_said_where_there_is_something_to_say() {
    use super::driver::Missing;
    use crate::engine::Backend;
    let (backend, said) = super::choice(Ok("NVIDIA H200".into()));
    assert_eq!((backend, said.unwrap().as_str()), (Backend::Cuda, "computing on NVIDIA H200"));
    let none = Missing::Device { visible: None };
    assert_eq!(super::choice(Err(none)), (Backend::Cpu, None));
    let old = Missing::OldDriver { driver: (11, 4) };
    let (backend, said) = super::choice(Err(old));
    assert_eq!(backend, Backend::Cpu);
    assert!(said.unwrap().starts_with("computing on the CPU: NVIDIA's driver is too old"));
}
