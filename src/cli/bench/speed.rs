//! `cloze bench train` and `infer`: tokens a second of whole training steps or of forward passes, and
//! those of a peer beside them.
//!
//! The work is that of [`crate::engine::timing`].

use std::path::PathBuf;

use serde_json::json;

use crate::cli::model::config_of;
use crate::cli::print::say;
use crate::engine::memory::Work;
use crate::engine::timing::{Pass, median, pass_seconds};
use crate::engine::{Setup, TaskEngine};
use crate::error::{Error, Result};
use crate::memory::{format_bytes, peak};
use crate::model::flops_per_token;
use crate::model::{Config, Layout, Part};
use crate::note;
use crate::view::{BarChart, picture};

use super::super::checks::at_least_one;
use super::super::engine::TrainingEngineArgs;
use super::super::memory;
use super::peer::{Measured, Peer};

/// BERT's uncased vocabulary.
const VOCABULARY: usize = 30522;
const WARM_UP: u64 = 3;
/// More sequences than any memory holds.
const TOO_MANY: usize = 1 << 20;

#[derive(clap::Args)]
pub struct Args {
    /// tiny, mini, small, medium, minilm, base, large, or the path of a config.json
    #[arg(long, default_value = "base", value_name = "SIZE|CONFIG")]
    size: String,
    /// Sequences a step; several numbers are measured one after the other
    #[arg(long, value_delimiter = ',', default_value = "32", value_name = "N[,N..]")]
    batch: Vec<usize>,
    /// Measure the largest batch that fits into memory
    #[arg(long, conflicts_with = "batch")]
    find_batch: bool,
    /// Tokens of every sequence
    #[arg(long, default_value_t = 384, value_name = "N")]
    seq: usize,
    /// Timed steps, after three that are not
    #[arg(long, default_value_t = 10, value_name = "N")]
    steps: u64,
    #[command(flatten)]
    engine: TrainingEngineArgs,
    /// A program to run alternately, which is given --size, --batch, --seq, --dtype and --threads and
    /// prints a JSON object with tokens_per_s
    #[arg(long, value_name = "COMMAND")]
    peer: Option<String>,
    /// Runs of each, alternating
    #[arg(long, default_value_t = 3, requires = "peer", value_name = "N")]
    rounds: usize,
    /// Draw the tokens a second of every batch, and the peer's
    #[arg(long, value_name = "FILE.svg|FILE.png")]
    chart: Option<PathBuf>,
    /// Print a JSON object on stdout, one a line for several batches
    #[arg(long)]
    json: bool,
}

/// What was measured of one batch size.
struct Row {
    batch: usize,
    tokens_per_s: f64,
    peak_bytes: Option<u64>,
    /// Floating-point operations of the model a second.
    flops: f64,
    /// Those of large matrix products on this machine.
    peak_flops: f64,
    peer: Option<Measured>,
}

pub fn run(args: Args, pass: Pass) -> Result<()> {
    args.check(pass)?;
    let setup = args.engine.setup()?;
    let config = config_of(&args.size, VOCABULARY)?;
    let layout = Layout::new(&config, &Part::Span.with_encoder());
    memory::parameters_fit(&layout)?;
    let batches = if args.find_batch {
        let batch = args.memory(&config, &layout, setup, TOO_MANY).largest()?;
        note!("the largest batch that fits: {batch}");
        vec![batch]
    } else {
        args.batch.clone()
    };
    let peak_flops = setup.measured_peak()?;
    let mut rows = Vec::new();
    for batch in batches {
        if pass == Pass::Train {
            memory::check(&args.memory(&config, &layout, setup, batch))?;
        }
        let mut engine = setup.engine(&config, &layout, layout.initialise(0))?;
        let (own, peer) = args.alternate(engine.as_mut(), batch, pass)?;
        let row = Row {
            batch,
            flops: flops(&config, args.seq, pass) * own.tokens_per_s,
            tokens_per_s: own.tokens_per_s,
            peak_bytes: own.peak_bytes,
            peak_flops,
            peer,
        };
        args.print(&row)?;
        rows.push(row);
    }
    if let Some(path) = &args.chart {
        args.draw(&rows, pass).save(path)?;
        note!("{}", path.display());
    }
    Ok(())
}

/// Floating-point operations of a token: a backward pass has twice those of the forward pass.
fn flops(config: &Config, seq: usize, pass: Pass) -> f64 {
    let all = flops_per_token(config, seq);
    match pass {
        Pass::Train => all,
        Pass::Infer => all / 3.0,
    }
}

impl Args {
    fn check(&self, pass: Pass) -> Result<()> {
        if self.find_batch && pass == Pass::Infer {
            return Err(Error::Usage(
                "--find-batch looks for room for a training step: use it with bench train".into(),
            ));
        }
        if let Some(path) = &self.chart {
            picture::kind(path)?;
        }
        let batches = self.batch.iter().map(|&batch| ("--batch", batch));
        for (name, value) in batches.chain([
            ("--seq", self.seq),
            ("--steps", self.steps as usize),
            ("--rounds", self.rounds),
        ]) {
            at_least_one(name, value as u64)?;
        }
        let positions = config_of(&self.size, VOCABULARY)?.max_position_embeddings;
        if self.seq > positions {
            return Err(Error::Usage(format!(
                "--seq {}: the model has only {positions} positions",
                self.seq
            )));
        }
        Ok(())
    }

    fn memory<'a>(
        &self,
        config: &'a Config,
        layout: &'a Layout,
        setup: Setup,
        batch: usize,
    ) -> memory::Run<'a> {
        memory::Run {
            config,
            layout,
            setup,
            work: Work { rows: batch * self.seq, sequences: batch, longest: self.seq },
            teacher: None,
            option: "--batch",
        }
    }

    /// Our runs and the peer's, one after the other; the medians of their speeds.
    fn alternate(
        &self,
        engine: &mut dyn TaskEngine,
        batch: usize,
        pass: Pass,
    ) -> Result<(Measured, Option<Measured>)> {
        let peer = self.peer.as_deref().map(|command| Peer {
            command,
            size: self.size.as_str(),
            dtype: self.engine.dtype(),
            batch,
            seq: self.seq,
        });
        let rounds = if peer.is_some() { self.rounds } else { 1 };
        let (mut own, mut theirs) = (Vec::new(), Vec::new());
        for round in 1..=rounds {
            own.push(Measured {
                tokens_per_s: self.measure(engine, batch, pass)?,
                peak_bytes: engine.device_bytes().or_else(peak),
            });
            if let (Some(peer), Some(own)) = (&peer, own.last()) {
                let measured = peer.run()?;
                note!(
                    "round {round}: {:.0} tokens/s, {:.0} of the peer",
                    own.tokens_per_s,
                    measured.tokens_per_s
                );
                theirs.push(measured);
            }
        }
        Ok((middle(own), peer.map(|_| middle(theirs))))
    }

    /// Tokens a second: the median over the timed steps.
    fn measure(&self, engine: &mut dyn TaskEngine, batch: usize, pass: Pass) -> Result<f64> {
        let size = (batch, self.seq);
        let mut seconds = pass_seconds(engine, pass, size, WARM_UP, self.steps)?;
        Ok((batch * self.seq) as f64 / median(&mut seconds))
    }

    fn print(&self, row: &Row) -> Result<()> {
        let Row { batch, tokens_per_s, peak_bytes, flops, peak_flops, ref peer } = *row;
        if self.json {
            let mut object = json!({
                "size": self.size.as_str(),
                "batch": batch,
                "seq": self.seq,
                "dtype": self.engine.dtype(),
                "backend": self.engine.backend(),
                "threads": rayon::current_num_threads(),
                "tokens_per_s": tokens_per_s,
                "sequences_per_s": tokens_per_s / self.seq as f64,
                "model_tflops": flops / 1e12,
                "peak_bytes": peak_bytes,
                "mfu": flops / peak_flops,
            });
            if let Some(peer) = peer {
                object["peer_tokens_per_s"] = peer.tokens_per_s.into();
                object["peer_peak_bytes"] = peer.peak_bytes.into();
                object["ratio"] = (tokens_per_s / peer.tokens_per_s).into();
            }
            return say!("{object}");
        }
        say!(
            "{} {batch}×{} {}: {tokens_per_s:.0} tokens/s, {:.3} TFLOP/s of the model ({:.0} % of the {:.3} that matrix products reach here), peak memory {}",
            self.size.as_str(),
            self.seq,
            self.engine.dtype(),
            flops / 1e12,
            100.0 * flops / peak_flops,
            peak_flops / 1e12,
            peak_bytes.map_or("unknown".into(), format_bytes),
        )?;
        if let Some(peer) = peer {
            say!(
                "peer: {:.0} tokens/s, peak memory {}; ratio {:.2}",
                peer.tokens_per_s,
                peer.peak_bytes.map_or("unknown".into(), format_bytes),
                tokens_per_s / peer.tokens_per_s
            )?;
        }
        Ok(())
    }

    fn draw(&self, rows: &[Row], pass: Pass) -> BarChart {
        let what = match pass {
            Pass::Train => "Training steps",
            Pass::Infer => "Forward passes",
        };
        let title = format!(
            "{what}, {}, {} tokens a sequence, {}",
            self.size.as_str(),
            self.seq,
            self.engine.dtype()
        );
        let mut chart = BarChart::new(title).unit("tokens/s");
        for row in rows {
            chart = chart.bar(format!("batch {}", row.batch), row.tokens_per_s);
            if let Some(peer) = &row.peer {
                chart = chart.beside("peer", peer.tokens_per_s);
            }
        }
        chart
    }
}

/// Returns the median speed and the first reported memory.
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
    fn two_runs_count_alike() {
        let run = |tokens_per_s, peak_bytes| Measured { tokens_per_s, peak_bytes };
        let both = middle(vec![run(300.0, None), run(100.0, Some(7))]);
        assert_eq!((both.tokens_per_s, both.peak_bytes), (200.0, Some(7)));
    }
}
