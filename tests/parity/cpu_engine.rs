//! The CPU engine against the reference: with the same batch, parameters and dropout both compute the same loss
//! and gradients, and stay together over several steps.

use std::sync::Arc;

use crate::common::assert_contains;
use cloze::data::{Packed, pretraining::PretrainingBatch};
use cloze::engine::optimizer::{Optimizer, Update};
use cloze::engine::{
    BertEngine, CpuEngine, Distillation, Encoder, Engine, LossWeights, Precision,
    PretrainingEngine, Reference, SoftTargets, TaskEngine, objective,
};
use cloze::model::{
    Bert, Config, Dropout, Family, Layout, PRETRAINING, Part, Size, cross_entropy, pick,
};
use cloze::random::{Site, Stream};
use dfdx::prelude::*;

/// Returns sequences of these lengths. Every fifth token is to be predicted; ids and labels are drawn from `key`.
fn batch(key: u64, lengths: &[usize], vocabulary: u32) -> PretrainingBatch {
    let mut draws = Stream::new(key, 0, Site::Other(3), 0).draws();
    let mut batch = PretrainingBatch::default();
    for (index, &length) in lengths.iter().enumerate() {
        let first = batch.packed.rows() as u32;
        let ids: Vec<u32> = (0..length).map(|_| draws.below(vocabulary)).collect();
        let segments: Vec<u32> = (0..length).map(|i| u32::from(2 * i > length)).collect();
        batch.packed.push(100 + index as u64, &ids, &segments);
        for row in (first..first + length as u32).step_by(5) {
            batch.masked_rows.push(row);
            batch.masked_labels.push(draws.below(vocabulary));
        }
        batch.next_labels.push(draws.below(2));
    }
    batch
}

/// Returns parameters with curvature everywhere: initial values would leave biases and LayerNorms flat.
fn parameters(layout: &Layout) -> Vec<f32> {
    let stream = Stream::new(7, 0, Site::Other(4), 0);
    let mut values = layout.initialise(3);
    for (i, value) in values.iter_mut().enumerate() {
        *value += 0.1 * (stream.uniform(i as u32) as f32 - 0.5);
    }
    values
}

/// Fails if a parameter's values differ by more than `bound` of their norm. A norm below a ten-thousandth of the
/// whole counts as that much: for a sequence of one token, gradients of queries and keys are only rounding errors.
fn compare(layout: &Layout, got: &[f32], expected: &[f32], bound: f64) {
    let whole: f64 = expected.iter().map(|&e| f64::from(e).powi(2)).sum();
    for (parameter, range) in layout.iter() {
        // A key's bias moves all scores of a query equally: its gradient is only rounding errors.
        if parameter.name.ends_with("key.bias") {
            continue;
        }
        let (mut difference, mut norm) = (0.0, 0.0);
        for (g, e) in got[range.clone()].iter().zip(&expected[range]) {
            difference += f64::from(g - e).powi(2);
            norm += f64::from(*e).powi(2);
        }
        let relative = (difference / norm.max(1e-8 * whole)).sqrt();
        assert!(relative < bound, "{}: {relative:.1e}", parameter.name);
    }
}

fn engines(config: &Config) -> (Arc<Layout>, CpuEngine, Reference) {
    let layout = Layout::new(config, &PRETRAINING);
    let values = parameters(&layout);
    let cpu = CpuEngine::new(config, &layout, values.clone()).unwrap();
    let reference = Reference::new(config, &layout, values).unwrap();
    (layout, cpu, reference)
}

#[test]
fn loss_and_every_gradient_are_the_references_with_dropout() {
    loss_and_gradients_agree(Size::Tiny.config(203));
}

#[test]
fn left_to_right_loss_and_gradients_are_the_references() {
    let mut config = Size::Tiny.config(203);
    config.is_decoder = true;
    loss_and_gradients_agree(config);
}

/// A later token changes no earlier hidden state, in any block of queries.
#[test]
fn left_to_right_attention_sees_no_later_token() {
    let mut config = Size::Tiny.config(203);
    config.is_decoder = true;
    let (_, mut cpu, _) = engines(&config);
    let hidden = |cpu: &mut CpuEngine, ids: &[u32]| {
        let mut batch = Packed::default();
        batch.push(0, ids, &vec![0; ids.len()]);
        cpu.hidden_states(&batch, 2..3).unwrap().layers.remove(0)
    };
    let ids: Vec<u32> = (0..150).map(|i| i * 7 % 203).collect();
    let before = hidden(&mut cpu, &ids);
    for changed in [149, 130, 128, 127, 70, 64, 63, 1] {
        let mut other = ids.clone();
        other[changed] = 202;
        let after = hidden(&mut cpu, &other);
        let same = |row: usize| before[row * 128..][..128] == after[row * 128..][..128];
        assert!((0..changed).all(same), "{changed}");
        assert!((changed..150).all(|row| !same(row)), "{changed}");
    }
}

fn loss_and_gradients_agree(mut config: Config) {
    config.hidden_dropout_prob = 0.2;
    config.attention_probs_dropout_prob = 0.3;
    for lengths in [&[1][..], &[33, 2, 17, 127, 31, 1, 64], &[383, 40]] {
        let (layout, mut cpu, mut reference) = engines(&config);
        let batch = batch(1, lengths, 203);
        let dropout = Dropout { seed: 5, step: 9 };
        let got = cpu.pretraining_gradients(&batch, dropout).unwrap();
        let expected = reference.pretraining_gradients(&batch, dropout).unwrap();
        assert!((got.loss() / expected.loss() - 1.0).abs() < 1e-5, "{got:?} {expected:?}");
        assert_eq!(got.mlm_correct, expected.mlm_correct);
        assert_eq!(got.nsp_correct, expected.nsp_correct);
        let (got, expected) = (cpu.gradients().unwrap(), reference.gradients().unwrap());
        compare(&layout, &got, &expected, 1e-4);
    }
}

#[test]
fn ten_training_steps_agree() {
    let mut config = Size::Tiny.config(97);
    config.hidden_dropout_prob = 0.1;
    let (layout, mut cpu, mut reference) = engines(&config);
    for step in 1..=10 {
        let batch = batch(step, &[20, 7, 33, 12], 97);
        let dropout = Dropout { seed: 1, step: step as u32 };
        let update =
            Update { optimizer: Optimizer::default(), learning_rate: 1e-4, step, max_norm: 1.0 };
        let run = |engine: &mut dyn BertEngine| {
            let scores = engine.pretraining_gradients(&batch, dropout).unwrap();
            (scores.loss(), engine.update(&update).unwrap())
        };
        let (got, expected) = (run(&mut cpu), run(&mut reference));
        assert!((got.0 / expected.0 - 1.0).abs() < 1e-4, "{got:?} {expected:?}");
        assert!((got.1 / expected.1 - 1.0).abs() < 1e-4, "{got:?} {expected:?}");
    }
    let (got, expected) = (cpu.parameters().unwrap(), reference.parameters().unwrap());
    compare(&layout, &got, &expected, 1e-4);
}

#[test]
fn hidden_states_and_logits_are_the_references() {
    let (_, mut cpu, mut reference) = engines(&Size::Tiny.config(61));
    let batch = batch(4, &[5, 31, 1, 18], 61).packed;
    let close = |a: &[f32], b: &[f32]| {
        assert_eq!(a.len(), b.len());
        let worst = a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(worst < 2e-5, "{worst}");
    };
    let (a, b) =
        (cpu.hidden_states(&batch, 0..3).unwrap(), reference.hidden_states(&batch, 0..3).unwrap());
    assert_eq!(a.layers.len(), b.layers.len());
    a.layers.iter().zip(&b.layers).for_each(|(a, b)| close(a, b));
    close(&a.pooled.unwrap(), &b.pooled.unwrap());
    let rows = [40, 0, 7];
    close(
        &cpu.masked_lm_logits(&batch, &rows).unwrap(),
        &reference.masked_lm_logits(&batch, &rows).unwrap(),
    );
    let (a, b) = (
        cpu.next_sentence_logits(&batch).unwrap(),
        reference.next_sentence_logits(&batch).unwrap(),
    );
    close(a.as_flattened(), b.as_flattened());
}

/// Heads of 5, a hidden size of 15 and an intermediate size of 23: none fills vector registers evenly.
#[test]
fn odd_sizes_have_the_gradients_of_the_model_in_f64() {
    odd_sizes(false);
    odd_sizes(true);
}

fn odd_sizes(left_to_right: bool) {
    let mut config = Config::new(3, 15, 3, 23, 29);
    config.is_decoder = left_to_right;
    config.max_position_embeddings = 40;
    config.hidden_dropout_prob = 0.2;
    config.attention_probs_dropout_prob = 0.1;
    let layout = Layout::new(&config, &PRETRAINING);
    let values = parameters(&layout);
    let batch = batch(8, &[33, 1, 17, 2], 29);
    let dropout = Dropout { seed: 2, step: 1 };
    let mut cpu = CpuEngine::new(&config, &layout, values.clone()).unwrap();
    let scores = cpu.pretraining_gradients(&batch, dropout).unwrap();

    let exact: Vec<f64> = values.iter().map(|&v| f64::from(v)).collect();
    let bert =
        Bert::<15, 3, 5, 23, f64, Cpu>::build(&config, &layout, &exact, &Cpu::default()).unwrap();
    let hidden = bert.encode::<OwnedTape<f64, Cpu>>(&batch.packed, Some(dropout), &mut |_, _| {});
    let words = bert.masked_lm.as_ref().unwrap().forward(
        pick(hidden.retaped::<OwnedTape<f64, Cpu>>(), &batch.masked_rows),
        &bert.embeddings.words,
    );
    let pooled = bert.pool(hidden.retaped::<OwnedTape<f64, Cpu>>(), &batch.packed).unwrap();
    let pairs = bert.next_sentence.as_ref().unwrap().forward(pooled);
    let loss = cross_entropy(words, &batch.masked_labels) / batch.masked_rows.len() as f64
        + cross_entropy(pairs, &batch.next_labels) / batch.next_labels.len() as f64;
    let (loss, heads) = loss.split_tape();
    let (_, encoder) = hidden.split_tape();
    assert!((scores.loss() / loss.array() - 1.0).abs() < 1e-5);
    let mut tape = loss.put_tape(heads.merge(encoder)).backward();
    let mut expected = vec![0.0; layout.total()];
    bert.add_gradients(&mut tape, &layout, &mut expected);
    let expected: Vec<f32> = expected.into_iter().map(|g| g as f32).collect();
    compare(&layout, &cpu.gradients().unwrap(), &expected, 1e-4);
}

/// Every task head, with its dropout.
#[test]
fn tasks_have_the_logits_and_gradients_of_the_reference() {
    tasks_agree(Size::Tiny.config(71));
}

#[test]
fn left_to_right_tasks_have_the_logits_and_gradients_of_the_reference() {
    let mut config = Size::Tiny.config(71);
    config.is_decoder = true;
    tasks_agree(config);
}

/// RoBERTa's positions begin later, and its classifier has dropout before the pooler too.
#[test]
fn robertas_tasks_have_the_logits_and_gradients_of_the_reference() {
    let mut config = Size::Tiny.config(71);
    config.model_type = Family::Roberta;
    config.pad_token_id = 1;
    config.other.insert("classifier_dropout".into(), 0.3.into());
    tasks_agree(config);
}

fn tasks_agree(mut config: Config) {
    config.hidden_dropout_prob = 0.2;
    let batch = batch(6, &[33, 2, 17, 1, 64], 71).packed;
    let dropout = Dropout { seed: 3, step: 2 };
    for part in [
        Part::SequenceClassifier(3),
        Part::SequenceClassifier(1),
        Part::MultipleChoice,
        Part::TokenClassifier(5),
        Part::Span,
    ] {
        let layout = Layout::new(&config, &part.with_encoder());
        let values = parameters(&layout);
        let mut cpu = CpuEngine::new(&config, &layout, values.clone()).unwrap();
        let mut reference = Reference::new(&config, &layout, values).unwrap();
        let (got, expected) =
            (cpu.task_logits(&batch).unwrap(), reference.task_logits(&batch).unwrap());
        let outputs = layout.task_head().unwrap().outputs;
        assert_eq!(got.len(), expected.len(), "{part:?}");
        for (got, expected) in got.iter().zip(&expected) {
            assert!((got - expected).abs() < 2e-5, "{part:?}");
        }
        let run = |engine: &mut dyn BertEngine| {
            let mut total = 0.0;
            let mut loss = |logits: &mut [f32]| {
                let rows = logits.len() / outputs;
                let weight = 1.0 / rows as f32;
                total = if outputs == 1 {
                    let targets: Vec<f32> = (0..rows).map(|r| r as f32 - 1.0).collect();
                    objective::squared_error(logits, &targets, weight).loss
                } else {
                    let labels: Vec<u32> = (0..rows).map(|r| (r % outputs) as u32).collect();
                    objective::cross_entropy(logits, outputs, &labels, weight).loss
                };
            };
            engine.task_gradients(&batch, dropout, &mut loss).unwrap();
            (total, engine.gradients().unwrap())
        };
        let (got, expected) = (run(&mut cpu), run(&mut reference));
        assert!((got.0 / expected.0 - 1.0).abs() < 1e-5, "{part:?}");
        compare(&layout, &got.1, &expected.1, 1e-4);
    }
}

/// A student's losses and gradients, for a whole batch and for its parts.
#[test]
fn distillation_has_the_losses_and_gradients_of_the_reference() {
    let mut config = Size::Tiny.config(203);
    config.hidden_dropout_prob = 0.2;
    config.attention_probs_dropout_prob = 0.3;
    let (layout, mut cpu, mut reference) = engines(&config);
    let batch = batch(1, &[33, 2, 17, 70, 31, 1], 203);
    let rows = &batch.masked_rows;
    let mut wider = config.clone();
    wider.num_hidden_layers = 3;
    let theirs = Layout::new(&wider, &PRETRAINING);
    let values = parameters(&theirs);
    let mut teachers: [Box<dyn BertEngine>; 2] = [
        Box::new(CpuEngine::new(&wider, &theirs, values.clone()).unwrap()),
        Box::new(Reference::new(&wider, &theirs, values).unwrap()),
    ];
    let answers = teachers.each_mut().map(|teacher| {
        let mut targets = SoftTargets::default();
        teacher.soft_targets(&batch.packed, rows, &mut targets).unwrap();
        targets
    });
    for (a, b) in
        [(&answers[0].logits, &answers[1].logits), (&answers[0].hidden, &answers[1].hidden)]
    {
        assert!(a.len() == b.len() && a.iter().zip(b).all(|(a, b)| (a - b).abs() < 5e-5));
    }

    let recipe = Distillation::default();
    let (weights, dropout) = (recipe.weights(&batch), Dropout { seed: 5, step: 9 });
    let targets = &answers[1];
    let run = |engine: &mut dyn BertEngine| {
        let scores =
            engine.distillation_gradients_of_part(&batch, targets, weights, dropout).unwrap();
        (scores, engine.gradients().unwrap())
    };
    let (got, expected) = (run(&mut cpu), run(&mut reference));
    for (a, b) in [
        (got.0.soft, expected.0.soft),
        (got.0.cosine, expected.0.cosine),
        (got.0.hard.mlm_loss, expected.0.hard.mlm_loss),
        (got.0.loss(&recipe), expected.0.loss(&recipe)),
    ] {
        assert!((a / b - 1.0).abs() < 1e-5, "{:?} {:?}", got.0, expected.0);
    }
    assert_eq!(got.0.rows, expected.0.rows);
    compare(&layout, &got.1, &expected.1, 1e-4);

    cpu.discard().unwrap();
    for which in [0..2, 2..6] {
        let part = batch.slice(which);
        let mut targets = SoftTargets::default();
        let (packed, rows) = (&part.packed, &part.masked_rows);
        teachers[0].soft_targets(packed, rows, &mut targets).unwrap();
        cpu.distillation_gradients_of_part(&part, &targets, weights, dropout).unwrap();
    }
    compare(&layout, &cpu.gradients().unwrap(), &got.1, 1e-4);
}

#[test]
fn recomputed_layers_give_the_same_gradients() {
    let mut config = Size::Tiny.config(50);
    config.num_hidden_layers = 3;
    config.hidden_dropout_prob = 0.2;
    config.attention_probs_dropout_prob = 0.3;
    let layout = Layout::new(&config, &PRETRAINING);
    let batch = batch(3, &[33, 5, 64], 50);
    let dropout = Dropout { seed: 1, step: 1 };
    let run = |recompute: bool| {
        let mut engine = CpuEngine::new(&config, &layout, parameters(&layout))
            .unwrap()
            .with_recompute(recompute);
        engine.pretraining_gradients(&batch, dropout).unwrap();
        engine.gradients().unwrap()
    };
    assert!(run(true) == run(false));
}

#[test]
fn parts_of_a_batch_add_up_to_the_whole() {
    let mut config = Size::Tiny.config(50);
    config.hidden_dropout_prob = 0.2;
    let layout = Layout::new(&config, &PRETRAINING);
    let whole = batch(3, &[33, 5, 64, 17], 50);
    let dropout = Dropout { seed: 1, step: 1 };
    let run = |parts: &[PretrainingBatch]| {
        let mut engine = CpuEngine::new(&config, &layout, parameters(&layout)).unwrap();
        for part in parts {
            let weights = LossWeights::of(&whole);
            engine.pretraining_gradients_of_part(part, weights, dropout).unwrap();
        }
        engine.gradients().unwrap()
    };
    let parts: Vec<_> = [0..1, 1..3, 3..4].map(|part| whole.slice(part)).into();
    compare(&layout, &run(&parts), &run(std::slice::from_ref(&whole)), 1e-5);
}

/// bf16 has a precision of 8 bits, so loss and gradients change a little; three products of split factors
/// (bf16x3) lose almost nothing.
#[test]
fn rounded_factors_change_loss_and_gradients_little() {
    let mut config = Size::Mini.config(203);
    config.hidden_dropout_prob = 0.1;
    config.attention_probs_dropout_prob = 0.1;
    let layout = Layout::new(&config, &PRETRAINING);
    let batch = batch(2, &[65, 128, 17, 200], 203);
    let dropout = Dropout { seed: 5, step: 9 };
    let run = |precision: Precision| {
        let engine = CpuEngine::new(&config, &layout, layout.initialise(4)).unwrap();
        let mut engine = engine.with_precision(precision);
        let scores = engine.pretraining_gradients(&batch, dropout).unwrap();
        (scores.loss(), engine.gradients().unwrap())
    };
    let exact = run(Precision::F32);
    let rounded = run(Precision::Bf16);
    assert!((rounded.0 / exact.0 - 1.0).abs() < 1e-2);
    assert!(rounded.1 != exact.1, "nothing was rounded");
    compare(&layout, &rounded.1, &exact.1, 5e-2);
    let split = run(Precision::Bf16x3);
    assert!((split.0 / exact.0 - 1.0).abs() < 1e-5);
    compare(&layout, &split.1, &exact.1, 1e-4);
}

/// Weights of 8 bits change hidden states a little; they follow the parameters, and do not learn.
#[test]
fn weights_of_8_bits_are_for_inference() {
    let config = Size::Mini.config(203);
    let layout = Layout::new(&config, &PRETRAINING);
    let batch = batch(2, &[65, 128, 17, 200], 203);
    let engine = |seed, precision| {
        let engine = CpuEngine::new(&config, &layout, layout.initialise(seed)).unwrap();
        engine.with_precision(precision)
    };
    let last = |engine: &mut CpuEngine| {
        let states = engine.hidden_states(&batch.packed, 4..5).unwrap();
        states.layers.into_iter().next().unwrap()
    };
    let exact = last(&mut engine(4, Precision::F32));
    let mut int8 = engine(4, Precision::Int8);
    let rounded = last(&mut int8);
    let size = |values: &[f32]| values.iter().map(|x| f64::from(x * x)).sum::<f64>().sqrt();
    let difference: Vec<f32> = rounded.iter().zip(&exact).map(|(a, b)| a - b).collect();
    let relative = size(&difference) / size(&exact);
    assert!(relative > 1e-4 && relative < 5e-2, "{relative}");

    int8.set_parameters(&layout.initialise(5)).unwrap();
    assert!(last(&mut int8) == last(&mut engine(5, Precision::Int8)));

    let dropout = Dropout { seed: 5, step: 9 };
    let refused = int8.pretraining_gradients(&batch, dropout).err().unwrap().to_string();
    assert!(refused.contains("dtype int8 is for inference"), "{refused}");
}

/// Weights are packed for inference, unless the engine trains. Its answers are the same either way.
#[test]
fn packed_weights_follow_the_parameters() {
    let mut config = Size::Mini.config(203);
    config.hidden_dropout_prob = 0.1;
    let layout = Layout::new(&config, &PRETRAINING);
    let batch = batch(2, &[65, 128, 17, 200, 300], 203);
    let last = |engine: &mut CpuEngine| {
        let states = engine.hidden_states(&batch.packed, 4..5).unwrap();
        states.layers.into_iter().next().unwrap()
    };
    let update =
        Update { optimizer: Optimizer::default(), learning_rate: 1e-2, step: 1, max_norm: 1.0 };
    for precision in [Precision::Bf16, Precision::Bf16x3] {
        let engine = |seed| {
            let engine = CpuEngine::new(&config, &layout, layout.initialise(seed)).unwrap();
            engine.with_precision(precision)
        };
        let train = |engine: &mut CpuEngine| {
            engine.pretraining_gradients(&batch, Dropout { seed: 5, step: 9 }).unwrap();
            engine.update(&update).unwrap();
        };
        let (mut packed, mut other) = (engine(4), engine(4));
        let before = last(&mut packed);
        train(&mut packed);
        train(&mut other);
        let after = last(&mut packed);
        assert!(after != before && after == last(&mut other), "{precision}");
        let mut fresh = engine(5);
        fresh.set_parameters(&packed.parameters().unwrap()).unwrap();
        assert!(after == last(&mut fresh), "{precision}");
        fresh.set_parameters(&layout.initialise(4)).unwrap();
        assert!(before == last(&mut fresh), "{precision}");
        packed.set_parameters(&layout.initialise(4)).unwrap();
        assert!(before == last(&mut packed), "{precision}");
    }
}

/// A token classifier written in dfdx trains on the engine as the engine's own head does.
#[test]
fn heads_of_dfdx_train_on_the_engine() {
    let mut config = Size::Tiny.config(71);
    config.hidden_dropout_prob = 0.2;
    let part = Part::TokenClassifier(3);
    let layout = Layout::new(&config, &part.with_encoder());
    let values = parameters(&layout);
    let packed = Arc::new(batch(6, &[33, 2, 64], 71).packed);
    let labels: Vec<u32> = (0..packed.rows() as u32).map(|row| row % 3).collect();
    let dropout = Dropout { seed: 3, step: 2 };
    let dev = Cpu::default();

    // The engine's head applies dropout to its input; so does the one of dfdx below.
    let mut own = CpuEngine::new(&config, &layout, values.clone()).unwrap();
    let mut loss = 0.0;
    own.task_gradients(&packed, dropout, &mut |logits| {
        let weight = 1.0 / labels.len() as f32;
        loss = objective::cross_entropy(logits, 3, &labels, weight).loss / labels.len() as f64;
    })
    .unwrap();

    let shared = CpuEngine::new(&config, &layout, values.clone()).unwrap();
    let encoder = Encoder::new(shared);
    let hidden = encoder.encode::<128>(&packed, dropout).unwrap();
    let places: Vec<(u64, u32)> = packed.examples_and_positions().collect();
    let hidden = dropout.rows(hidden, &places, Site::HeadDropout, 0.2);
    let range = |name| layout.find(name).unwrap().1;
    let weight: Tensor<Rank2<3, 128>, f32, _> =
        dev.tensor_from_vec(values[range("classifier.weight")].to_vec(), (Const, Const));
    let bias: Tensor<Rank1<3>, f32, _> =
        dev.tensor_from_vec(values[range("classifier.bias")].to_vec(), (Const,));
    let logits = hidden.matmul(weight.retaped::<OwnedTape<f32, Cpu>>().permute());
    let shape = *logits.shape();
    let logits = logits + bias.retaped::<OwnedTape<f32, Cpu>>().broadcast_like(&shape);
    let got = cross_entropy(logits, &labels) / labels.len() as f32;
    assert!((f64::from(got.array()) / loss - 1.0).abs() < 1e-5);
    let gradients = got.backward();

    let mut all = encoder.engine().gradients().unwrap();
    for (name, gradient) in [
        ("classifier.weight", gradients.get(&weight).as_vec()),
        ("classifier.bias", gradients.get(&bias).as_vec()),
    ] {
        all[range(name)].copy_from_slice(&gradient);
    }
    compare(&layout, &all, &own.gradients().unwrap(), 1e-4);

    // Inference returns the engine's rows, and another width is refused.
    let states = own.hidden_states(&packed, 2..3).unwrap();
    let rows = encoder.infer::<128>(&packed).unwrap();
    assert_eq!(rows.as_vec(), states.layers[0]);
    let message = encoder.infer::<64>(&packed).unwrap_err().to_string();
    assert_contains(&message, "128 wide, but rows of 64");
}

#[test]
#[should_panic(expected = "has run another batch since")]
fn a_tape_of_an_older_batch_is_refused() {
    let config = Size::Tiny.config(71);
    let layout = Layout::new(&config, &[Part::Encoder]);
    let engine = CpuEngine::new(&config, &layout, layout.initialise(1)).unwrap();
    let encoder = Encoder::new(engine);
    let packed = Arc::new(batch(6, &[7, 2], 71).packed);
    let dropout = Dropout { seed: 3, step: 2 };
    let hidden = encoder.encode::<128>(&packed, dropout).unwrap();
    encoder.infer::<128>(&packed).unwrap();
    hidden.sum::<Rank0, _>().backward();
}

#[test]
fn parameters_survive_the_way_to_dfdx_and_back() {
    let config = Size::Tiny.config(71);
    let mut parts = PRETRAINING.to_vec();
    parts.push(Part::Span);
    let layout = Layout::new(&config, &parts);
    let engine = CpuEngine::new(&config, &layout, parameters(&layout)).unwrap();
    let values = engine.parameters().unwrap();
    let bert = Bert::<128, 2, 64, 512, f32, Cpu>::build(&config, &layout, &values, &Cpu::default())
        .unwrap();
    assert!(bert.parameters(&layout) == values);
}

#[test]
fn gradients_of_two_batches_add_up_and_do_not_depend_on_their_order() {
    let config = Size::Tiny.config(50);
    let layout = Layout::new(&config, &PRETRAINING);
    let values = parameters(&layout);
    let (long, short) = (batch(1, &[90, 90, 90], 50), batch(2, &[3], 50));
    let dropout = Dropout { seed: 1, step: 1 };
    let run = |batches: [&PretrainingBatch; 2]| {
        let mut engine = CpuEngine::new(&config, &layout, values.clone()).unwrap();
        for batch in batches {
            engine.pretraining_gradients(batch, dropout).unwrap();
        }
        engine.gradients().unwrap()
    };
    // Old values in a buffer that is larger than the batch must not be used.
    compare(&layout, &run([&long, &short]), &run([&short, &long]), 1e-6);
}

/// Beyond 4,096 tokens, different queries would draw the same random numbers for dropout.
#[test]
fn sequences_too_long_for_dropouts_random_numbers_are_refused() {
    let mut config = Size::Tiny.config(203);
    config.max_position_embeddings = 5000;
    let dropout = Dropout { seed: 1, step: 0 };
    let long = batch(3, &[4097], 203);
    let (_, mut cpu, mut reference) = engines(&config);
    let both: [&mut dyn BertEngine; 2] = [&mut cpu, &mut reference];
    for engine in both {
        let error = engine.pretraining_gradients(&long, dropout).unwrap_err();
        let expected = "attention takes sequences of up to 4096 tokens, not 4097";
        assert_eq!(error.to_string(), expected);
    }
    // Without dropout nothing is drawn.
    config.attention_probs_dropout_prob = 0.0;
    let (_, mut cpu, _) = engines(&config);
    cpu.pretraining_gradients(&long, dropout).unwrap();
}

#[test]
fn input_that_the_model_cannot_take_is_refused() {
    let config = Size::Tiny.config(10);
    let layout = Layout::new(&config, &[Part::Encoder]);
    assert!(CpuEngine::new(&config, &layout, vec![0.0; 3]).is_err());
    let mut engine = CpuEngine::new(&config, &layout, layout.initialise(0)).unwrap();
    let mut packed = Packed::default();
    packed.push(0, &[11], &[0]);
    let text = engine.hidden_states(&packed, 0..3).unwrap_err().to_string();
    assert_contains(&text, "token id 11");
    let mut packed = Packed::default();
    packed.push(0, &[1], &[0]);
    assert!(engine.hidden_states(&packed, 0..3).unwrap().pooled.is_none());
    let text = engine.masked_lm_logits(&packed, &[0]).unwrap_err().to_string();
    assert_contains(&text, "no masked-LM head");
}
