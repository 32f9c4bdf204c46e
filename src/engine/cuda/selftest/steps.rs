//! Compares training steps with the CPU engine's: losses, gradients of every parameter,
//! recomputation, recordings, evaluation and features.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use serde_json::{Value, json};

use crate::data::pretraining::PretrainingBatch;
use crate::engine::cuda::device::Element;
use crate::engine::cuda::{CudaEngine, Settings};
use crate::engine::optimizer::{Optimizer, Update};
use crate::engine::{CpuEngine, Engine, PretrainingEngine, Recompute};
use crate::error::{Error, Result};
use crate::model::{Config, Dropout, Layout, PRETRAINING, Size};
use crate::random::{Site, Stream};

use super::test_case::{deviation, differences, name_of};
use super::{Check, Outcome, Scale, Session};

/// A model and its batches.
#[derive(Debug, Clone, Copy)]
struct Case {
    name: &'static str,
    size: Option<Size>,
    /// Lengths of a step's sequences; every third step has them in reverse order.
    lengths: &'static [usize],
    /// Interval of steps whose gradients are stored: those of large models take much memory.
    gradients_every: u64,
    steps: u64,
    /// None for all of the size's.
    layers: Option<usize>,
}

const CASES: [Case; 4] = [
    Case {
        name: "small",
        size: None,
        lengths: &[33, 2, 17, 1],
        gradients_every: 1,
        steps: 10,
        layers: None,
    },
    Case {
        name: "tiny",
        size: Some(Size::Tiny),
        lengths: &[128, 1, 33, 384, 127, 2, 31, 512],
        gradients_every: 1,
        steps: 10,
        layers: None,
    },
    Case {
        name: "base",
        size: Some(Size::Base),
        lengths: &[128, 31, 65],
        gradients_every: 9,
        steps: 10,
        layers: None,
    },
    // As many rows as in training, where kernels take several passes over them.
    Case {
        name: "one layer of base, 64×384",
        size: Some(Size::Base),
        lengths: &[384; 64],
        gradients_every: 1,
        steps: 1,
        layers: Some(1),
    },
];

/// The tested number formats; true for TF32.
const FORMATS: [(Element, bool); 4] =
    [(Element::F32, false), (Element::F32, true), (Element::Bf16, false), (Element::F16, false)];

fn name(element: Element, tf32: bool) -> &'static str {
    if tf32 { "tf32" } else { name_of(element) }
}

/// Returns the relative errors that rounding may cause in losses, and in gradients for equal
/// parameters. After updates, runs in short formats drift apart: these bounds hold for ten steps.
/// They are four to nine times the largest errors of all cases on an H100.
fn bounds(element: Element, tf32: bool) -> Bounds {
    match (element, tf32) {
        (Element::F32, false) => Bounds { loss: 1e-6, gradient: 8e-5, drifted: 3e-4 },
        (Element::F32, true) => Bounds { loss: 2e-4, gradient: 1.5e-2, drifted: 1.5e-2 },
        (Element::F16, _) => Bounds { loss: 2e-4, gradient: 1e-2, drifted: 1.5e-2 },
        (Element::Bf16, _) => Bounds { loss: 3e-3, gradient: 7e-2, drifted: 1e-1 },
    }
}

struct Bounds {
    loss: f64,
    gradient: f64,
    /// Of gradients after the first step.
    drifted: f64,
}

pub fn checks(scale: Scale) -> Vec<Check> {
    let cases: &[Case] = match scale {
        Scale::Full => &CASES,
        Scale::Small => &CASES[..1],
        Scale::Short => &[],
    };
    let mut checks = Vec::new();
    for &case in cases {
        for (element, tf32) in FORMATS {
            let name = format!("{}, {} steps, {}", case.name, case.steps, name(element, tf32));
            checks.push(Check::new(name, move |s| several_steps(s, case, element, tf32)));
        }
    }
    // The remaining checks use the largest model that is fast enough.
    let case = cases.get(1).or(cases.first()).copied().unwrap_or(CASES[0]);
    for element in [Element::F32, Element::Bf16] {
        if scale == Scale::Short && element == Element::Bf16 {
            continue;
        }
        let named = |what: &str| format!("{what}, {}", name(element, false));
        checks.push(Check::new(named("recomputation"), move |s| recomputation(s, case, element)));
        checks.push(Check::new(named("recordings"), move |s| recordings(s, case, element)));
        checks.push(Check::new(named("evaluation and features"), move |s| {
            evaluation(s, case, element)
        }));
    }
    checks
}

impl Case {
    fn config(&self) -> Config {
        match self.size {
            Some(size) => {
                let config = size.config(30522);
                let num_hidden_layers = self.layers.unwrap_or(config.num_hidden_layers);
                Config { num_hidden_layers, ..config }
            }
            None => {
                let mut config = Config::new(2, 64, 2, 100, 203);
                config.max_position_embeddings = 160;
                config
            }
        }
    }

    /// Returns the batch of a step, with every seventh token to predict.
    fn batch(&self, config: &Config, step: u64) -> PretrainingBatch {
        let mut draws = Stream::new(step, 0, Site::Other(3), 0).draws();
        let mut batch = PretrainingBatch::default();
        let mut lengths = self.lengths.to_vec();
        if step.is_multiple_of(3) {
            lengths.reverse();
        }
        let vocabulary = config.vocab_size as u32;
        for (index, &length) in lengths.iter().enumerate() {
            let first = batch.packed.rows() as u32;
            let ids: Vec<u32> = (0..length).map(|_| draws.below(vocabulary)).collect();
            let segments: Vec<u32> = (0..length).map(|i| u32::from(2 * i > length)).collect();
            // Examples beyond 32 bits.
            let example = (7 << 33) + step * 64 + index as u64;
            batch.packed.push(example, &ids, &segments);
            for row in (first..first + length as u32).step_by(7) {
                batch.masked_rows.push(row);
                batch.masked_labels.push(draws.below(vocabulary));
            }
            batch.next_labels.push(draws.below(2));
        }
        batch
    }
}

/// Returns parameters with curvature everywhere: initial biases and LayerNorms alone are constant.
fn parameters(layout: &Layout) -> Vec<f32> {
    let noise = super::test_case::numbers(layout.total(), 11);
    let values = layout.initialise(3);
    let pairs = values.iter().zip(noise);
    pairs.map(|(value, noise)| value + 0.01 * noise).collect()
}

/// The CPU engine's results.
struct Reference {
    layout: Arc<Layout>,
    losses: Vec<f64>,
    norms: Vec<f64>,
    /// By step.
    gradients: HashMap<u64, Vec<f32>>,
    seconds: f64,
}

/// The results of each case, computed once.
#[derive(Default)]
pub struct References(HashMap<&'static str, Arc<Reference>>);

impl References {
    fn of(&mut self, case: Case) -> Result<Arc<Reference>> {
        if let Some(known) = self.0.get(case.name) {
            return Ok(known.clone());
        }
        let config = case.config();
        let layout = Layout::new(&config, &PRETRAINING);
        let mut engine = CpuEngine::new(&config, &layout, parameters(&layout))?;
        let mut reference = Reference {
            layout,
            losses: Vec::new(),
            norms: Vec::new(),
            gradients: HashMap::new(),
            seconds: 0.0,
        };
        let started = Instant::now();
        run(case, &mut engine, |step, loss, gradients, norm| {
            reference.losses.push(loss);
            reference.norms.push(norm);
            reference.gradients.extend(gradients.map(|g| (step, g)));
        })?;
        reference.seconds = started.elapsed().as_secs_f64();
        // Only one is kept: those of base take a gigabyte.
        self.0.clear();
        let reference = Arc::new(reference);
        self.0.insert(case.name, reference.clone());
        Ok(reference)
    }
}

/// Runs the steps of a case with an engine; `see` gets each step's number, loss, gradients if they are stored,
/// and their norm.
fn run(
    case: Case,
    engine: &mut dyn PretrainingEngine,
    mut see: impl FnMut(u64, f64, Option<Vec<f32>>, f64),
) -> Result<()> {
    let config = engine.config().clone();
    for step in 1..=case.steps {
        let batch = case.batch(&config, step);
        let dropout = Dropout { seed: 5 | 3 << 32, step: step as u32 };
        let scores = engine.pretraining_gradients(&batch, dropout)?;
        let wanted = (step - 1).is_multiple_of(case.gradients_every);
        let gradients = wanted.then(|| engine.gradients()).transpose()?;
        let norm = engine.update(&Update {
            optimizer: Optimizer::default(),
            learning_rate: 1e-4,
            step,
            max_norm: 1.0,
        })?;
        see(step, scores.loss(), gradients, norm);
    }
    Ok(())
}

fn settings(element: Element, tf32: bool) -> Settings {
    Settings { element, tf32, recompute: Recompute::Nothing }
}

fn engine(session: &Session<'_>, config: &Config, settings: Settings) -> Result<CudaEngine> {
    let layout = Layout::new(config, &PRETRAINING);
    let values = parameters(&layout);
    CudaEngine::new(session.another()?, config, &layout, values, settings)
}

/// Returns the largest error of a parameter's gradient relative to its norm, the parameter and its place.
/// Norms below `floor` times the whole norm count as that: with one token, queries and keys have
/// only rounding errors as gradients.
fn farthest(
    layout: &Layout,
    got: &[f32],
    expected: &[f32],
    floor: f64,
) -> (f64, String, Range<usize>) {
    let whole: f64 = expected.iter().map(|&e| f64::from(e).powi(2)).sum();
    let mut worst = (0.0, String::new(), 0..0);
    for (parameter, range) in layout.iter() {
        // A key's bias shifts all scores of a query equally: its gradient is only rounding.
        if parameter.name.ends_with("key.bias") {
            continue;
        }
        let (mut squared, mut norm) = (0.0, 0.0);
        for (&g, &e) in got[range.clone()].iter().zip(&expected[range.clone()]) {
            squared += (f64::from(g) - f64::from(e)).powi(2);
            norm += f64::from(e).powi(2);
        }
        let error = (squared / norm.max(floor * floor * whole)).sqrt();
        if error.is_nan() || error > worst.0 {
            let error = if error.is_nan() { f64::MAX } else { error };
            worst = (error, parameter.name.clone(), range);
        }
    }
    worst
}

fn several_steps(
    session: &mut Session<'_>,
    case: Case,
    element: Element,
    tf32: bool,
) -> Result<Outcome> {
    let reference = session.measured.steps.of(case)?;
    let mut cuda = engine(session, &case.config(), settings(element, tf32))?;
    let bounds = bounds(element, tf32);
    let floor = if element == Element::F32 && !tf32 { 1e-4 } else { 1e-2 };
    let mut complaints = Vec::new();
    let (mut loss_error, mut norm_error) = (0.0f64, 0.0f64);
    let mut worst = Vec::new();
    let mut losses = Vec::new();
    let started = Instant::now();
    run(case, &mut cuda, |step, loss, gradients, norm| {
        let index = step as usize - 1;
        losses.push(loss);
        let error = relative(loss, reference.losses[index]);
        loss_error = loss_error.max(error);
        norm_error = norm_error.max(relative(norm, reference.norms[index]));
        if error > bounds.loss {
            let expected = reference.losses[index];
            complaints.push(format!("step {step}: loss {loss}, expected {expected}"));
        }
        let expected = reference.gradients.get(&step);
        if let Some((got, expected)) = gradients.as_ref().zip(expected) {
            let (error, name, range) = farthest(&reference.layout, got, expected, floor);
            let bound = if step == 1 { bounds.gradient } else { bounds.drifted };
            if error > bound {
                let columns = reference.layout.iter().find(|(parameter, _)| parameter.name == name);
                let columns = columns.and_then(|(parameter, _)| parameter.shape.last().copied());
                let (got, expected) = (&got[range.clone()], &expected[range]);
                let places = differences(got, expected, bound, columns.unwrap_or(0));
                complaints.push(format!(
                    "step {step}: the gradient of {name} is {error:.1e} off, more than {bound:.0e}: {places}"
                ));
            }
            worst.push((step, error, name));
        }
    })?;
    let seconds = started.elapsed().as_secs_f64();
    let replayed = cuda.replayed();
    let first = worst.first().map_or((0.0, ""), |w| (w.1, w.2.as_str()));
    let last = worst.last().map_or(0.0, |w| w.1);
    let mut line = format!(
        "losses off by {loss_error:.1e} at most (bound {:.0e}), gradients by {:.1e} at first (bound {:.0e}, {}), \
         {last:.1e} in the end (bound {:.0e}), norms by {norm_error:.1e}; loss {:.4} to {:.4}; {replayed} replays",
        bounds.loss,
        first.0,
        bounds.gradient,
        first.1,
        bounds.drifted,
        losses.first().copied().unwrap_or(f64::NAN),
        losses.last().copied().unwrap_or(f64::NAN),
    );
    // Every step compares all gradients; a few complaints are enough to find the first.
    for complaint in complaints.iter().take(6) {
        line += &format!("\n    {complaint}");
    }
    let gradients: Vec<Value> = worst
        .iter()
        .map(|(step, error, name)| json!({"step": step, "error": error, "parameter": name}))
        .collect();
    let passed = complaints.is_empty() && losses.len() == case.steps as usize;
    Ok(Outcome::new(
        passed,
        line,
        json!({
            "losses": losses,
            "expected_losses": reference.losses,
            "loss_error": super::finite(loss_error),
            "norm_error": super::finite(norm_error),
            "gradients": gradients,
            "bounds": {"loss": bounds.loss, "gradient": bounds.gradient, "later": bounds.drifted},
            "replayed": replayed,
            "seconds": seconds,
            "cpu_seconds": reference.seconds,
            "complaints": complaints,
        }),
    ))
}

fn relative(got: f64, expected: f64) -> f64 {
    let error = (got / expected - 1.0).abs();
    if error.is_nan() { f64::INFINITY } else { error }
}

/// Returns the losses of three steps on one batch, and their accumulated gradients.
fn three_passes(cuda: &mut CudaEngine, batch: &PretrainingBatch) -> Result<(Vec<f64>, Vec<f32>)> {
    let mut losses = Vec::new();
    for _ in 0..3 {
        let dropout = Dropout { seed: 1, step: 4 };
        losses.push(cuda.pretraining_gradients(batch, dropout)?.loss());
    }
    Ok((losses, cuda.gradients()?))
}

/// Checks that every level of recomputing gives the same bits in less memory.
fn recomputation(session: &mut Session<'_>, case: Case, element: Element) -> Result<Outcome> {
    let mut config = case.config();
    // Two layers have little to save.
    config.num_hidden_layers = 3;
    let batch = case.batch(&config, 1);
    let mut all = Vec::new();
    for recompute in [Recompute::Nothing, Recompute::Cheap, Recompute::Layers] {
        let settings = Settings { recompute, ..settings(element, false) };
        let mut cuda = engine(session, &config, settings)?;
        let (losses, gradients) = three_passes(&mut cuda, &batch)?;
        all.push((losses, gradients, cuda.activation_bytes()));
    }
    let same = all[1..].iter().all(|x| x.0 == all[0].0 && x.1 == all[0].1);
    let less = all.windows(2).all(|pair| pair[1].2 < pair[0].2);
    let bytes: Vec<u64> = all.iter().map(|x| x.2).collect();
    let line = format!("the same bits: {same}; bytes of activations: {bytes:?}");
    let data = json!({"same_bits": same, "activation_bytes": bytes});
    Ok(Outcome::new(same && less, line, data))
}

/// Checks that launched, recorded and replayed steps give the same bits.
fn recordings(session: &mut Session<'_>, case: Case, element: Element) -> Result<Outcome> {
    let config = case.config();
    let mut cuda = engine(session, &config, settings(element, false))?;
    let batch = case.batch(&config, 1);
    let mut all = Vec::new();
    for pass in 0..5 {
        let scores = cuda.pretraining_gradients(&batch, Dropout { seed: 2, step: 9 })?;
        let gradients = cuda.gradients()?;
        cuda.discard()?;
        if pass == 3 {
            // The last step is launched kernel by kernel again.
            cuda.graphs.clear(cuda.device.get_mut().as_mut());
        }
        all.push((scores, gradients));
    }
    let replayed = cuda.replayed();
    let same = all[1..].iter().all(|x| *x == all[0]);
    Ok(Outcome::new(
        same && replayed == 2,
        format!("launched, recorded and replayed ({replayed} times): the same bits: {same}"),
        json!({"same_bits": same, "replayed": replayed}),
    ))
}

/// Compares inference with the CPU engine's.
fn evaluation(session: &mut Session<'_>, case: Case, element: Element) -> Result<Outcome> {
    let config = case.config();
    let mut cuda = engine(session, &config, settings(element, false))?;
    let layout = cuda.layout().clone();
    let mut cpu = CpuEngine::new(&config, &layout, parameters(&layout))?;
    let batch = case.batch(&config, 2);
    let packed = &batch.packed;
    let bound = match element {
        Element::F32 => 1e-4,
        Element::Bf16 | Element::F16 => 3e-2,
    };
    let layers = config.num_hidden_layers + 1;
    let (got, expected) =
        (cuda.hidden_states(packed, 0..layers)?, cpu.hidden_states(packed, 0..layers)?);
    let mut errors = Vec::new();
    let states = got.layers.iter().zip(&expected.layers).enumerate();
    errors.extend(states.map(|(i, (g, e))| (format!("hidden states {i}"), deviation(g, e))));
    let missing = || Error::Failed("a pooler's output is missing".into());
    let (got, expected) = (got.pooled.ok_or_else(missing)?, expected.pooled.ok_or_else(missing)?);
    errors.push(("the pooler's output".into(), deviation(&got, &expected)));
    let rows = &batch.masked_rows;
    let (got, expected) =
        (cuda.masked_lm_logits(packed, rows)?, cpu.masked_lm_logits(packed, rows)?);
    errors.push(("masked tokens' logits".into(), deviation(&got, &expected)));
    let (got, expected) =
        (cuda.next_sentence_logits(packed)?.concat(), cpu.next_sentence_logits(packed)?.concat());
    errors.push(("pairs' logits".into(), deviation(&got, &expected)));
    let (got, expected) = (cuda.pretraining_scores(&batch)?, cpu.pretraining_scores(&batch)?);
    errors.push(("the loss".into(), relative(got.loss(), expected.loss())));
    let worst = errors.iter().fold(0.0f64, |most, (_, error)| most.max(*error));
    let lines: Vec<String> = errors.iter().map(|(what, e)| format!("{what} {e:.1e}")).collect();
    let data: serde_json::Map<String, Value> =
        errors.iter().map(|(what, error)| (what.clone(), json!(super::finite(*error)))).collect();
    Ok(Outcome::new(
        worst <= bound,
        format!("off by (bound {bound:.0e}): {}", lines.join(", ")),
        json!({"errors": data, "bound": bound}),
    ))
}
