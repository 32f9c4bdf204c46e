//! `cloze bench train` and `infer`: measure the tokens a second of whole training steps or of forward passes,
//! and those of a peer.

use std::path::PathBuf;

use serde_json::json;

use super::kernels::Kernels;
use super::peer::{self, Measured};
use crate::cli::shared::checks::{at_least_one, positions, refuse};
use crate::cli::shared::engine::TrainingEngineArgs;
use crate::cli::shared::memory;
use crate::cli::shared::size::config_of;
use crate::cli::shared::stdio::say;
use crate::engine::TaskEngine;
use crate::engine::timing::{Pass, median, pass_seconds};
use crate::error::Result;
use crate::memory::{format_bytes, peak};
use crate::model::{Layout, Part, flops_per_token};
use crate::note;
use crate::view::{BarChart, picture};

/// Size of BERT's uncased vocabulary.
const VOCABULARY: usize = 30522;
const WARM_UP: u64 = 3;
/// More sequences than any memory holds.
const TOO_MANY: usize = 1 << 20;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// tiny, mini, small, medium, minilm, base, large, or the path of a config.json
    #[arg(long, default_value = "base", value_name = "SIZE|CONFIG")]
    size: String,
    /// Sequences a step; several numbers are measured one after another
    #[arg(long, value_delimiter = ',', default_value = "32", value_name = "N[,N..]")]
    batch: Vec<usize>,
    /// Measure the largest batch that fits into memory
    #[arg(long, conflicts_with = "batch")]
    find_batch: bool,
    /// Tokens a sequence
    #[arg(long, default_value_t = 384, value_name = "N")]
    seq: usize,
    /// Timed steps, after three untimed ones
    #[arg(long, default_value_t = 10, value_name = "N")]
    steps: u64,
    #[command(flatten)]
    engine: TrainingEngineArgs,
    /// A program to run in turn with this one: it gets --size, --batch, --seq, --dtype and --threads, and
    /// prints a JSON object with tokens_per_s
    #[arg(long, value_name = "COMMAND")]
    peer: Option<String>,
    /// Runs of each program
    #[arg(long, default_value_t = 3, requires = "peer", value_name = "N")]
    rounds: usize,
    /// File for a chart of the tokens a second of every batch, and of the peer's
    #[arg(long, value_name = "FILE.svg|FILE.png")]
    chart: Option<PathBuf>,
    /// Also time each kernel of a step on the CPU, list them, and draw them below the limits of memory and arithmetic
    /// into this file
    #[arg(long, value_name = "FILE.svg|FILE.png")]
    roofline: Option<PathBuf>,
    /// Print a JSON object on stdout, one on each line for several batches
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: Args, pass: Pass) -> Result<()> {
    args.check(pass)?;
    let setup = match pass {
        Pass::Train => args.engine.setup()?,
        Pass::Infer => args.engine.run.setup()?,
    };
    if args.roofline.is_some() {
        Kernels::check(setup)?;
    }
    let config = config_of(&args.size, VOCABULARY)?;
    positions("--seq", args.seq, config.positions())?;
    let layout = Layout::new(&config, &Part::Span.with_encoder());
    memory::parameters_fit(&layout)?;
    let memory = |batch| memory::Run::new(&config, &layout, setup, (batch, args.seq), "--batch");
    let batches = if args.find_batch {
        let batch = memory(TOO_MANY).largest()?;
        note!("the largest batch that fits: {batch}");
        vec![batch]
    } else {
        args.batch.clone()
    };
    let peak_flops = setup.measured_peak()?;
    let mut rows = Vec::new();
    for batch in batches {
        if pass == Pass::Train {
            memory(batch).check()?;
        }
        let mut engine = setup.engine(&config, &layout, layout.initialise(0))?;
        let (own, peer) = args.alternate(engine.as_mut(), batch, pass)?;
        // A backward pass has twice the operations of a forward pass.
        let share = if pass == Pass::Train { 1.0 } else { 3.0 };
        let flops = flops_per_token(&config, args.seq) / share * own.tokens_per_s;
        let kernels = match &args.roofline {
            None => None,
            Some(path) => {
                let work = (batch, args.seq);
                let kernels = Kernels::measure(engine.as_mut(), work, args.steps, peak_flops)?;
                let (size, seq, dtype) = (&args.size, args.seq, args.engine.dtype());
                let title =
                    format!("Kernels of a training step, {size}, {batch} × {seq} tokens, {dtype}");
                kernels.draw(&title, path)?;
                Some(kernels)
            }
        };
        args.print(batch, (&own, flops, peak_flops), peer.as_ref(), kernels.as_ref())?;
        rows.push((batch, own.tokens_per_s, peer.map(|peer| peer.tokens_per_s)));
    }
    if let Some(path) = &args.chart {
        args.draw(&rows, pass).save(path)?;
        note!("{}", path.display());
    }
    Ok(())
}

impl Args {
    fn check(&self, pass: Pass) -> Result<()> {
        if self.find_batch && pass == Pass::Infer {
            refuse!("--find-batch measures the room for a training step: use it with bench train");
        }
        if self.roofline.is_some() && pass == Pass::Infer {
            refuse!("--roofline times the kernels of a training step: use it with bench train");
        }
        if self.roofline.is_some() && self.batch.len() > 1 {
            refuse!(
                "--roofline draws the steps of one batch, not of {}: give --batch one number",
                self.batch.len()
            );
        }
        for path in self.chart.iter().chain(&self.roofline) {
            picture::kind(path)?;
        }
        at_least_one(self.batch.iter().map(|&batch| ("--batch", batch as u64)))?;
        at_least_one([
            ("--seq", self.seq as u64),
            ("--steps", self.steps),
            ("--rounds", self.rounds as u64),
        ])
    }

    /// Runs this program and the peer in turn. Returns the medians of their speeds.
    fn alternate(
        &self,
        engine: &mut dyn TaskEngine,
        batch: usize,
        pass: Pass,
    ) -> Result<(Measured, Option<Measured>)> {
        let peer = self.peer.as_deref();
        let work = [
            ("--size", self.size.clone()),
            ("--dtype", self.engine.dtype()),
            ("--batch", batch.to_string()),
            ("--seq", self.seq.to_string()),
        ];
        let rounds = if peer.is_some() { self.rounds } else { 1 };
        let (mut own, mut theirs) = (Vec::new(), Vec::new());
        for round in 1..=rounds {
            let size = (batch, self.seq);
            let mut seconds = pass_seconds(engine, pass, size, WARM_UP, self.steps)?;
            own.push(Measured {
                tokens_per_s: (batch * self.seq) as f64 / median(&mut seconds),
                peak_bytes: engine.device_bytes().or_else(peak),
            });
            if let (Some(peer), Some(own)) = (peer, own.last()) {
                let measured = peer::run(peer, &work)?;
                let (speed, peers) = (own.tokens_per_s, measured.tokens_per_s);
                note!("round {round}: {speed:.0} tokens/s; the peer {peers:.0}");
                theirs.push(measured);
            }
        }
        Ok((middle(own), peer.map(|_| middle(theirs))))
    }

    fn print(
        &self,
        batch: usize,
        (own, flops, peak_flops): (&Measured, f64, f64),
        peer: Option<&Measured>,
        kernels: Option<&Kernels>,
    ) -> Result<()> {
        let (size, seq, dtype) = (&self.size, self.seq, self.engine.dtype());
        let speed = own.tokens_per_s;
        if self.json {
            let mut object = json!({
                "size": size,
                "batch": batch,
                "seq": seq,
                "dtype": dtype,
                "backend": self.engine.backend(),
                "threads": rayon::current_num_threads(),
                "tokens_per_s": speed,
                "sequences_per_s": speed / seq as f64,
                "model_tflops": flops / 1e12,
                "peak_bytes": own.peak_bytes,
                "mfu": flops / peak_flops,
            });
            if let Some(peer) = peer {
                object["peer_tokens_per_s"] = peer.tokens_per_s.into();
                object["peer_peak_bytes"] = peer.peak_bytes.into();
                object["ratio"] = (speed / peer.tokens_per_s).into();
            }
            if let Some(kernels) = kernels {
                object["roofline"] = kernels.json();
            }
            return say!("{object}");
        }
        let memory = |run: &Measured| run.peak_bytes.map_or("unknown".into(), format_bytes);
        say!(
            "{size} {batch}×{seq} {dtype}: {speed:.0} tokens/s, {:.3} TFLOP/s of the model ({:.0} % of the {:.3} that matrix products reach here), peak memory {}",
            flops / 1e12,
            100.0 * flops / peak_flops,
            peak_flops / 1e12,
            memory(own),
        )?;
        if let Some(peer) = peer {
            let (theirs, memory) = (peer.tokens_per_s, memory(peer));
            let ratio = speed / theirs;
            say!("peer: {theirs:.0} tokens/s, peak memory {memory}; ratio {ratio:.2}")?;
        }
        kernels.map_or(Ok(()), Kernels::print)
    }

    /// Draws batch sizes, speeds, and the speeds of the peer.
    fn draw(&self, rows: &[(usize, f64, Option<f64>)], pass: Pass) -> BarChart {
        let what = match pass {
            Pass::Train => "Training steps",
            Pass::Infer => "Forward passes",
        };
        let (size, seq, dtype) = (&self.size, self.seq, self.engine.dtype());
        let title = format!("{what}, {size}, {seq} tokens a sequence, {dtype}");
        let mut chart = BarChart::new(title).unit("tokens/s");
        for &(batch, speed, peer) in rows {
            chart = chart.bar(format!("batch {batch}"), speed);
            if let Some(speed) = peer {
                chart = chart.beside("peer", speed);
            }
        }
        chart
    }
}

/// Returns the median speed and the first known peak memory.
fn middle(runs: Vec<Measured>) -> Measured {
    let mut speeds: Vec<f64> = runs.iter().map(|run| run.tokens_per_s).collect();
    Measured {
        tokens_per_s: median(&mut speeds),
        peak_bytes: runs.iter().find_map(|run| run.peak_bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_runs_count_equally() {
        let run = |tokens_per_s, peak_bytes| Measured { tokens_per_s, peak_bytes };
        let both = middle(vec![run(300.0, None), run(100.0, Some(7))]);
        assert_eq!((both.tokens_per_s, both.peak_bytes), (200.0, Some(7)));
    }
}
