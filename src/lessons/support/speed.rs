//! Helpers of lessons 24 to 26: engines to time, what the machine can do, published figures, and an encoder that runs
//! on a learner's own functions.

use std::fmt::{self, Display, Formatter};
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use crate::data::Packed;
use crate::engine::cpu::{Matrix, MatrixMut, Output, Threads, product};
use crate::engine::memory::{Forecast, Work};
use crate::engine::objective::Labels;
use crate::engine::optimizer::{Optimizer, Update};
pub use crate::engine::timing::measured_bandwidth;
use crate::engine::timing::median;
use crate::engine::{Backend, CpuEngine, Engine, Precision, Reference, Setup, TaskEngine};
use crate::error::{Error, Result};
use crate::model::{Config, Dropout, Layout, Part, Real, Size, flops_per_token};
use crate::view::BarChart;
use crate::view::style::number;

/// Builds the fastest engine of this machine for a model of random parameters with a head that points at an answer.
///
/// # Errors
/// If this machine has no engine for the configuration in this precision.
pub fn span_engine(config: &Config, precision: Precision) -> Result<Box<dyn TaskEngine>> {
    let layout = Layout::new(config, &Part::Span.with_encoder());
    let setup = Setup { precision, ..Setup::from(Backend::Auto) };
    Ok(setup.engine(config, &layout, layout.initialise(0))?)
}

/// Returns how many bytes a training step of a model with a task's head holds, on `sequences` sequences of `length`
/// tokens.
pub fn training_bytes(config: &Config, layout: &Layout, sequences: usize, length: usize) -> u64 {
    let work = Work { rows: length * sequences, sequences, longest: length, predicted: 0 };
    Forecast::of(config, layout, work, false).total()
}

/// Returns the roofline from 0.1 to 1,000 operations a byte as points (operations a byte, GFLOP/s), for `peak`
/// operations and `bandwidth` bytes a second.
pub fn roofline(peak: f64, bandwidth: f64) -> Vec<(f64, f64)> {
    let intensities = (0..=40).map(|i| 10f64.powf(-1.0 + f64::from(i) / 10.0));
    intensities.map(|at| (at, peak.min(at * bandwidth) / 1e9)).collect()
}

/// One measured training run.
#[derive(Debug, Clone)]
pub struct Run {
    /// The model.
    pub size: Size,
    /// The precision of its products.
    pub precision: Precision,
    /// Tokens a second.
    pub tokens_per_s: f64,
    /// Operations of the model a second.
    pub flops: f64,
    /// The share of the machine's peak.
    pub mfu: f64,
}

impl Run {
    /// Returns the model and its precision.
    pub fn name(&self) -> String {
        format!("{} {}", self.size.name(), self.precision)
    }
}

/// Name, tokens a second, TFLOP/s and MFU as a row of a table.
impl Display for Run {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let (name, speed) = (self.name(), self.tokens_per_s);
        write!(f, "{name:<12} {speed:>9.0} {:>9.3} {:>6.0} %", self.flops / 1e12, 100.0 * self.mfu)
    }
}

/// Published sequences of 384 tokens a second in training on SQuAD with NVIDIA's PyTorch program on one GPU: base in
/// mixed precision, large in mixed precision, base in 32 bits, large in 32 bits. "32 bits" is TF32, on the V100 f32.
///
/// Source: <https://github.com/lambdal/deeplearning-benchmark>, `pytorch/pytorch-train-throughput-*.csv`, rows "1CC H100
/// 80GB SXM5", "A100 80GB SXM4" and "LambdaCloud V100 16GB"; `…-v2-*.csv`, both rows of one H200 (base in mixed
/// precision 932 and 928, large 350 and 351, base in 32 bits 514 and 517, large 181 and 181).
pub const PUBLISHED: [(&str, [f64; 4]); 4] = [
    ("H200", [930.0, 350.0, 517.0, 181.0]),
    ("H100", [877.0, 311.0, 436.0, 148.0]),
    ("A100 80 GB", [443.0, 152.0, 239.0, 75.0]),
    ("V100 16 GB", [189.0, 57.0, 42.0, 12.0]),
];

/// What Cloze reached on one H100, with batches of 64 (base) and 32 (large), in the charts of [`PUBLISHED`]: see
/// `docs/gpu.md`. Large was not measured in TF32.
const MEASURED: [Option<f64>; 4] = [Some(1753.0), Some(544.0), Some(795.0), None];

/// Makes the four charts of a benchmark page from [`PUBLISHED`], what Cloze reached on a GPU, and one's own runs. What was
/// not measured is computed from the operations a second of the last run in that precision, and the bar says so.
pub fn benchmark_page(runs: &[Run], vocabulary: usize) -> Vec<BarChart> {
    let charts = [
        ("BERT-base, mixed precision", Size::Base, Precision::Bf16),
        ("BERT-large, mixed precision", Size::Large, Precision::Bf16),
        ("BERT-base, 32 bits", Size::Base, Precision::F32),
        ("BERT-large, 32 bits", Size::Large, Precision::F32),
    ];
    let chart = |(column, (title, size, precision)): (usize, (&str, Size, Precision))| {
        let figures = PUBLISHED.iter().map(|(gpu, figures)| (*gpu, figures[column]));
        let measured = MEASURED[column].map(|figure| ("H100, Cloze", figure));
        let chart = BarChart::new(title).unit("sequences/s").bars(figures.chain(measured));
        let mut own = runs.iter().rev().filter(|run| run.precision == precision);
        match own.clone().find(|run| run.size == size).or(own.next()) {
            None => chart,
            Some(run) if run.size == size => chart.bar("this machine", run.tokens_per_s / 384.0),
            Some(run) => {
                let tokens = run.flops / flops_per_token(&size.config(vocabulary), 384);
                chart.bar("this machine, computed", tokens / 384.0)
            }
        }
    };
    charts.into_iter().enumerate().map(chart).collect()
}

/// Returns the median time in seconds of `rounds` runs of `work`; if there are several, after one that does not count.
///
/// # Errors
/// If `work` fails.
pub fn median_seconds(rounds: u64, mut work: impl FnMut() -> Result<()>) -> Result<f64> {
    if rounds > 1 {
        work()?;
    }
    let mut seconds = Vec::new();
    for _ in 0..rounds {
        let begun = Instant::now();
        work()?;
        seconds.push(begun.elapsed().as_secs_f64());
    }
    Ok(median(&mut seconds))
}

/// Takes one training step of a classifier with two classes, with dropout and AdamW, and returns its loss in nats.
///
/// # Errors
/// If the engine fails.
pub fn training_step(
    engine: &mut dyn TaskEngine,
    batch: &Packed,
    labels: &[u32],
    number: u32,
) -> Result<f64> {
    let weight = 1.0 / labels.len() as f32;
    let dropout = Dropout { seed: 1, step: number };
    let labels = Labels::Classes(labels);
    let scored = engine.labelled_gradients(batch, dropout, labels, weight)?;
    engine.update(&Update {
        optimizer: Optimizer::default(),
        learning_rate: 1e-4,
        step: u64::from(number),
        max_norm: 1.0,
    })?;
    Ok(f64::from(weight) * scored.loss)
}

/// Rounds of a measurement.
fn rounds() -> u64 {
    crate::lessons::steps(50) / 10
}

/// Measures training steps on a batch with `real` tokens that are not padding: these tokens a second.
///
/// # Errors
/// If the engine fails.
pub fn of_training(engine: &mut dyn TaskEngine, batch: &Packed, real: usize) -> Result<f64> {
    let labels: Vec<u32> = (0..batch.sequences() as u32).map(|i| i % 2).collect();
    let mut number = 0;
    let seconds = median_seconds(rounds(), || {
        number += 1;
        training_step(engine, batch, &labels, number).map(drop)
    })?;
    Ok(real as f64 / seconds)
}

/// Measures forward passes on a batch with `real` tokens that are not padding: these tokens a second.
///
/// # Errors
/// If the engine fails.
pub fn of_forward(engine: &mut dyn TaskEngine, batch: &Packed, real: usize) -> Result<f64> {
    let seconds = median_seconds(rounds(), || engine.task_logits(batch).map(drop))?;
    Ok(real as f64 / seconds)
}

/// Measures forward passes of the dfdx model with one part of the batch a thread: its tokens a second.
///
/// # Errors
/// If a model fails.
pub fn of_parts(
    config: &Config,
    layout: &Arc<Layout>,
    batch: &Packed,
    runs: &[Range<usize>],
) -> Result<f64> {
    let build = |run: &Range<usize>| {
        let model = Reference::new(config, layout, layout.initialise(1))?.with_threads(1)?;
        Ok((model, batch.slice(run.clone())))
    };
    let mut parts = runs.iter().map(build).collect::<Result<Vec<(Reference, Packed)>>>()?;
    let seconds = median_seconds(rounds(), || {
        std::thread::scope(|scope| {
            let work = |(model, part): &mut (Reference, Packed)| model.task_logits(part).map(drop);
            let threads = parts.iter_mut().map(|part| scope.spawn(move || work(part)));
            let threads: Vec<_> = threads.collect();
            threads.into_iter().try_for_each(|thread| {
                let stopped =
                    |_| Error::Failed("a thread that ran a part of the batch panicked".into());
                thread.join().map_err(stopped)?
            })
        })
    })?;
    Ok(batch.rows() as f64 / seconds)
}

/// Speeds in tokens a second, each of them of a further idea.
#[derive(Debug, Clone, Default)]
pub struct Ladder {
    rungs: Vec<(String, f64, Option<f64>)>,
}

impl Ladder {
    /// Adds a rung and returns a sentence about it.
    pub fn add(&mut self, name: &str, speed: f64) -> String {
        let gain = match self.rungs.last() {
            Some((_, before, _)) => format!(", {:.2} times the rung before", speed / before),
            None => String::new(),
        };
        self.rungs.push((name.into(), speed, None));
        format!("{name}: {} tokens/s{gain}", number(speed.round()))
    }

    /// Notes the speed of one's own functions beside the last rung, and returns a sentence about it.
    pub fn yours(&mut self, speed: f64) -> String {
        match self.rungs.last_mut() {
            None => format!("yours: {} tokens/s", number(speed.round())),
            Some((name, crates, yours)) => {
                *yours = Some(speed);
                let share = speed / *crates;
                format!("yours: {} tokens/s, {share:.2} times {name}", number(speed.round()))
            }
        }
    }

    /// Returns the rungs as bars.
    pub fn chart(&self, title: impl Into<String>) -> BarChart {
        let chart = BarChart::new(title).unit("tokens/s");
        self.rungs.iter().fold(chart, |chart, (name, speed, yours)| {
            let chart = chart.bar(name.as_str(), *speed);
            match yours {
                Some(yours) => chart.beside("yours", *yours),
                None => chart,
            }
        })
    }

    /// Returns the rungs as a table: the speed, as multiples of the rung before and of the first, and the share of
    /// `peak` operations a second that the model's `flops` operations a token amount to.
    pub fn table(&self, flops: f64, peak: f64) -> String {
        let mut text =
            "                         tokens/s   × before   × first   of f32 products".to_owned();
        for (index, (name, speed, _)) in self.rungs.iter().enumerate() {
            let before = speed / self.rungs[index.saturating_sub(1)].1;
            let first = speed / self.rungs[0].1;
            let share = 100.0 * flops * speed / peak;
            text +=
                &format!("\n{name:<22} {speed:>10.0} {before:>10.2} {first:>9.1} {share:>15.0} %");
        }
        text
    }
}

/// Adds a residual and a bias to rows of numbers and normalises each row: rows, residual, bias, gain, shift.
pub type AddNorm = fn(&mut [f32], &[f32], &[f32], &[f32], &[f32]);

/// Computes attention of one query: query, keys, values, scores at a time.
pub type Attend = fn(&[f32], &[f32], &[f32], usize) -> Vec<f32>;

/// BERT's encoder without dropout, on a learner's own functions. Matrix products are the crate's.
pub struct Encoder {
    config: Config,
    layout: Arc<Layout>,
    values: Vec<f32>,
    add_norm: AddNorm,
    attend: Attend,
}

impl Encoder {
    /// Creates the encoder from parameters.
    pub fn new(
        config: &Config,
        layout: &Arc<Layout>,
        values: Vec<f32>,
        add_norm: AddNorm,
        attend: Attend,
    ) -> Self {
        Self { config: config.clone(), layout: layout.clone(), values, add_norm, attend }
    }

    /// Measures forward passes on a batch with `real` tokens that are not padding, one thread for each of `runs`:
    /// these tokens a second.
    ///
    /// # Errors
    /// As [`Encoder::forward`].
    pub fn speed(&self, batch: &Packed, runs: &[Range<usize>], real: usize) -> Result<f64> {
        let seconds = median_seconds(rounds(), || self.forward(batch, runs).map(drop))?;
        Ok(real as f64 / seconds)
    }

    /// Returns the hidden states after the last layer, (tokens, hidden size), with one thread for each of `runs`.
    ///
    /// # Errors
    /// If a parameter is missing, or a thread panics.
    pub fn forward(&self, batch: &Packed, runs: &[Range<usize>]) -> Result<Vec<f32>> {
        std::thread::scope(|scope| {
            let threads =
                runs.iter().map(|run| scope.spawn(move || self.part(&batch.slice(run.clone()))));
            let threads: Vec<_> = threads.collect();
            let mut hidden = Vec::with_capacity(batch.rows() * self.config.hidden_size);
            for thread in threads {
                let stopped = |_| Error::Failed("a thread of the encoder panicked".into());
                hidden.extend(thread.join().map_err(stopped)??);
            }
            Ok(hidden)
        })
    }

    /// Returns the largest difference of the hidden states from those of the CPU engine with the same parameters.
    ///
    /// # Errors
    /// As [`Encoder::forward`], and if the engine fails.
    pub fn difference(&self, batch: &Packed) -> Result<f32> {
        let yours = self.forward(batch, &batch.balanced(1))?;
        let mut engine = CpuEngine::new(&self.config, &self.layout, self.values.clone())?;
        let last = self.config.num_hidden_layers;
        let theirs = engine.hidden_states(batch, last..last + 1)?.layers;
        let pairs = yours.iter().zip(theirs.iter().flatten());
        Ok(pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f32::max))
    }

    fn part(&self, batch: &Packed) -> Result<Vec<f32>> {
        let mut x = self.embedded(batch)?;
        for layer in 0..self.config.num_hidden_layers {
            let name = |rest: &str| format!("encoder.layer.{layer}.{rest}");
            let context = self.attention(batch, &x, &name("attention.self"))?;
            x = self.projected_and_added(&context, &x, &name("attention.output"))?;
            let inner = self.config.intermediate_size;
            let mut hidden = self.linear(&x, &name("intermediate.dense"), inner, true)?;
            for h in &mut hidden {
                *h *= 0.5 * (1.0 + Real::erf(*h * std::f32::consts::FRAC_1_SQRT_2));
            }
            x = self.projected_and_added(&hidden, &x, &name("output"))?;
        }
        Ok(x)
    }

    fn find(&self, name: &str) -> Result<&[f32]> {
        let found = self.layout.find(name);
        let (_, range) =
            found.ok_or_else(|| Error::Failed(format!("the model has no parameter {name}")))?;
        Ok(&self.values[range])
    }

    /// Words, positions and the first segment, added up and normalised.
    fn embedded(&self, batch: &Packed) -> Result<Vec<f32>> {
        let width = self.config.hidden_size;
        let rows = |table: &str, ids: &[u32]| -> Result<Vec<f32>> {
            let table = self.find(&format!("embeddings.{table}_embeddings.weight"))?;
            Ok(ids.iter().flat_map(|&id| table[id as usize * width..][..width].to_vec()).collect())
        };
        let mut x = rows("word", &batch.ids)?;
        let positions = rows("position", &batch.positions)?;
        let segment = rows("token_type", &[0])?;
        self.normalised(&mut x, &positions, &segment, "embeddings.LayerNorm")?;
        Ok(x)
    }

    fn normalised(&self, x: &mut [f32], residual: &[f32], bias: &[f32], name: &str) -> Result<()> {
        let gain = self.find(&format!("{name}.weight"))?;
        let shift = self.find(&format!("{name}.bias"))?;
        (self.add_norm)(x, residual, bias, gain, shift);
        Ok(())
    }

    /// A linear layer back to the hidden size, the residual, and LayerNorm.
    fn projected_and_added(&self, x: &[f32], residual: &[f32], name: &str) -> Result<Vec<f32>> {
        let dense = format!("{name}.dense");
        let mut y = self.linear(x, &dense, self.config.hidden_size, false)?;
        let bias = self.find(&format!("{dense}.bias"))?;
        self.normalised(&mut y, residual, bias, &format!("{name}.LayerNorm"))?;
        Ok(y)
    }

    /// A linear layer to `width` numbers.
    fn linear(&self, x: &[f32], name: &str, width: usize, add_bias: bool) -> Result<Vec<f32>> {
        let weight = self.find(&format!("{name}.weight"))?;
        let inputs = weight.len() / width;
        let rows = x.len() / inputs;
        let mut y = vec![0.0; rows * width];
        product(
            MatrixMut::new(&mut y, rows, width),
            Output::Overwrite,
            1.0,
            Matrix::new(x, rows, inputs),
            Matrix::new(weight, width, inputs).t(),
            Threads::One,
            Precision::F32,
        );
        if add_bias {
            let bias = self.find(&format!("{name}.bias"))?;
            for row in y.chunks_exact_mut(width) {
                row.iter_mut().zip(bias).for_each(|(y, b)| *y += b);
            }
        }
        Ok(y)
    }

    /// The heads' outputs side by side, (tokens, hidden size).
    fn attention(&self, batch: &Packed, x: &[f32], name: &str) -> Result<Vec<f32>> {
        const SCORES: usize = 64;
        let (width, size) = (self.config.hidden_size, self.config.head_size());
        let projected = |which: &str| self.linear(x, &format!("{name}.{which}"), width, true);
        let (queries, keys, values) = (projected("query")?, projected("key")?, projected("value")?);
        let mut context = vec![0.0; x.len()];
        for rows in batch.ranges() {
            for head in 0..self.config.num_attention_heads {
                let of =
                    |all: &[f32], row: usize| all[row * width + head * size..][..size].to_vec();
                let keys: Vec<f32> = rows.clone().flat_map(|row| of(&keys, row)).collect();
                let values: Vec<f32> = rows.clone().flat_map(|row| of(&values, row)).collect();
                for row in rows.clone() {
                    let out = (self.attend)(&of(&queries, row), &keys, &values, SCORES);
                    context[row * width + head * size..][..size].copy_from_slice(&out);
                }
            }
        }
        Ok(context)
    }
}

/// Computes a dot product on the unit that the CPU engine uses for matrix products in this precision.
pub fn dot_on_unit(a: &[f32], b: &[f32], precision: Precision) -> f32 {
    let mut c = [0.0];
    product(
        MatrixMut::new(&mut c, 1, 1),
        Output::Overwrite,
        1.0,
        Matrix::new(a, 1, a.len()),
        Matrix::new(b, b.len(), 1),
        Threads::One,
        precision,
    );
    c[0]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add_norm(x: &mut [f32], residual: &[f32], bias: &[f32], gain: &[f32], shift: &[f32]) {
        let width = bias.len();
        for (x, residual) in x.chunks_exact_mut(width).zip(residual.chunks_exact(width)) {
            for ((x, r), b) in x.iter_mut().zip(residual).zip(bias) {
                *x += r + b;
            }
            let mean = x.iter().sum::<f32>() / width as f32;
            let squares = x.iter().map(|x| (x - mean) * (x - mean)).sum::<f32>();
            let deviation = (squares / width as f32 + 1e-12).sqrt();
            for ((x, g), s) in x.iter_mut().zip(gain).zip(shift) {
                *x = (*x - mean) / deviation * g + s;
            }
        }
    }

    fn attend(query: &[f32], keys: &[f32], values: &[f32], _: usize) -> Vec<f32> {
        let width = query.len();
        let score = |key: &[f32]| {
            let dot: f32 = query.iter().zip(key).map(|(q, k)| q * k).sum();
            (dot / (width as f32).sqrt()).exp()
        };
        let powers: Vec<f32> = keys.chunks(width).map(score).collect();
        let sum: f32 = powers.iter().sum();
        let mut out = vec![0.0; width];
        for (power, value) in powers.iter().zip(values.chunks(width)) {
            out.iter_mut().zip(value).for_each(|(o, v)| *o += power / sum * v);
        }
        out
    }

    fn tiny() -> (Config, Arc<Layout>, Packed) {
        let config = Size::Tiny.config(50);
        let layout = Layout::new(&config, &Part::SequenceClassifier(2).with_encoder());
        let mut batch = Packed::default();
        for (example, length) in (0..).zip([7, 3, 5]) {
            let ids: Vec<u32> = (0..length).map(|i| 5 + i).collect();
            batch.push(example, &ids, &vec![0; ids.len()]);
        }
        (config, layout, batch)
    }

    #[test]
    fn the_encoder_agrees_with_the_engine_on_one_thread_and_on_several() {
        let (config, layout, batch) = tiny();
        let values = layout.initialise(1);
        let encoder = Encoder::new(&config, &layout, values, add_norm, attend);
        let difference = encoder.difference(&batch).unwrap();
        assert!(difference < 1e-4, "{difference}");
        let (one, two) = (batch.balanced(1), batch.balanced(2));
        assert_eq!(encoder.forward(&batch, &one).unwrap(), encoder.forward(&batch, &two).unwrap());
        assert!(encoder.speed(&batch, &two, 15).unwrap() > 0.0);
    }

    #[test]
    fn speeds_of_engines_are_positive_and_a_step_returns_its_loss() {
        let (config, layout, batch) = tiny();
        let mut engine = CpuEngine::new(&config, &layout, layout.initialise(1)).unwrap();
        let loss = training_step(&mut engine, &batch, &[0, 1, 0], 1).unwrap();
        assert!((loss - 2f64.ln()).abs() < 0.2, "{loss}");
        assert!(of_training(&mut engine, &batch, 15).unwrap() > 0.0);
        assert!(of_forward(&mut engine, &batch, 15).unwrap() > 0.0);
        assert!(of_parts(&config, &layout, &batch, &batch.balanced(2)).unwrap() > 0.0);
    }

    #[test]
    fn a_ladder_compares_each_rung_with_the_one_before() {
        let mut ladder = Ladder::default();
        assert_eq!(ladder.add("one", 100.0), "one: 100 tokens/s");
        assert_eq!(ladder.add("two", 250.0), "two: 250 tokens/s, 2.50 times the rung before");
        assert_eq!(ladder.yours(125.0), "yours: 125 tokens/s, 0.50 times two");
        let table = ladder.table(2.0, 1000.0);
        assert!(table.lines().nth(2).unwrap().ends_with("50 %"), "{table}");
        assert!(ladder.chart("Ladder").svg().contains("yours"));
    }

    #[test]
    fn the_page_says_which_of_its_bars_are_computed() {
        let flops = 930.0 * 384.0 * flops_per_token(&Size::Base.config(30_522), 384);
        let size = Size::Base;
        let run = Run { size, precision: Precision::Bf16, tokens_per_s: 384.0, flops, mfu: 0.2 };
        assert!(run.to_string().starts_with("base bf16"), "{run}");
        let page = benchmark_page(&[run], 30_522);
        assert_eq!(page.len(), 4);
        let says = |chart: usize, text: &str| page[chart].svg().contains(text);
        assert!(says(0, "this machine") && !says(0, "computed"));
        assert!(says(2, "H100, Cloze") && !says(3, "H100, Cloze"));
        assert!(says(1, "this machine, computed"));
        assert!(!says(2, "this machine"));
    }

    #[test]
    fn the_roof_bends_where_memory_and_arithmetic_agree() {
        let roof = roofline(4e11, 4e10);
        assert_eq!(roof.first().unwrap().1, 4.0);
        assert_eq!(roof.last().unwrap().1, 400.0);
        assert!(measured_bandwidth(1) > 0.0);
    }

    #[test]
    fn memory_grows_with_the_batch_and_a_unit_multiplies() {
        let (config, layout, _) = tiny();
        let bytes = |sequences| training_bytes(&config, &layout, sequences, 64);
        assert!(bytes(2) > bytes(1));
        assert_eq!(dot_on_unit(&[1.0, 2.0], &[3.0, 4.0], Precision::F32), 11.0);
        assert!((dot_on_unit(&[1.003], &[1000.0], Precision::Bf16) - 1000.0).abs() < 3.5);
        let mut engine = span_engine(&config, Precision::F32).unwrap();
        let batch = {
            let mut b = Packed::default();
            b.push(0, &[1, 2], &[0, 0]);
            b
        };
        assert_eq!(engine.task_logits(&batch).unwrap().len(), 4);
    }
}
