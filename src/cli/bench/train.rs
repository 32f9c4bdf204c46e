//! `cloze bench train`: tokens a second of whole training steps, and those of a peer beside them.
//! The work is that of [`crate::train::speed`].

use std::process::Command as Process;

use serde_json::{Value, json};

use crate::engine::memory::Work;
use crate::engine::{Engine, measured_peak};
use crate::error::{Error, Result};
use crate::memory::{peak, told};
use crate::model::{Config, Layout, Part, Size};
use crate::train::budget::flops_per_token;
use crate::train::speed::step_seconds;

use super::super::engine::TrainingEngineArgs;
use super::super::memory;

/// BERT's uncased vocabulary.
const VOCABULARY: usize = 30522;
const WARM_UP: u64 = 3;

#[derive(clap::Args)]
pub struct Args {
    /// tiny, mini, small, medium, minilm, base or large
    #[arg(long, default_value = "base")]
    size: Size,
    /// Sequences a step
    #[arg(long, default_value_t = 32, value_name = "N")]
    batch: usize,
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
    /// Print one JSON object on stdout
    #[arg(long)]
    json: bool,
}

/// One measured run.
struct Measured {
    tokens_per_s: f64,
    peak_bytes: Option<u64>,
}

pub fn run(args: Args) -> Result<()> {
    args.check()?;
    let setup = args.engine.setup()?;
    let config = args.size.config(VOCABULARY);
    let layout = Layout::new(&config, &Part::Span.with_encoder());
    let work = Work {
        rows: args.batch * args.seq,
        sequences: args.batch,
        longest: args.seq,
    };
    memory::tell(&memory::Run {
        config: &config,
        layout: &layout,
        setup,
        work,
        teacher: None,
        option: "--batch",
    })?;
    let mut engine = setup.engine(&config, &layout, layout.initialise(0))?;
    let rounds = if args.peer.is_some() { args.rounds } else { 1 };
    let (mut own, mut peers) = (Vec::new(), Vec::new());
    for round in 1..=rounds {
        let measured = Measured {
            tokens_per_s: args.measure(engine.as_mut())?,
            peak_bytes: peak(),
        };
        if let Some(peer) = &args.peer {
            eprintln!("round {round}: {:.0} tokens/s", measured.tokens_per_s);
            let theirs = args.run_peer(peer)?;
            eprintln!(
                "round {round}: {:.0} tokens/s of the peer",
                theirs.tokens_per_s
            );
            peers.push(theirs);
        }
        own.push(measured);
    }
    args.print(&config, &own, &peers, measured_peak(setup.precision));
    Ok(())
}

impl Args {
    fn check(&self) -> Result<()> {
        for (name, value) in [
            ("--batch", self.batch),
            ("--seq", self.seq),
            ("--steps", self.steps as usize),
            ("--rounds", self.rounds),
        ] {
            if value == 0 {
                return Err(Error::Usage(format!("{name} 0: at least 1 is needed")));
            }
        }
        let positions = self.size.config(VOCABULARY).max_position_embeddings;
        if self.seq > positions {
            return Err(Error::Usage(format!(
                "--seq {}: the model has only {positions} positions",
                self.seq
            )));
        }
        Ok(())
    }

    /// Tokens a second: the median over the timed steps.
    fn measure(&self, engine: &mut dyn Engine) -> Result<f64> {
        let mut seconds = step_seconds(engine, (self.batch, self.seq), WARM_UP, self.steps)?;
        Ok((self.batch * self.seq) as f64 / median(&mut seconds))
    }

    fn run_peer(&self, command: &str) -> Result<Measured> {
        let mut words = command.split_whitespace();
        let program = words
            .next()
            .ok_or_else(|| Error::Usage("--peer is empty: expected a program".into()))?;
        let threads = rayon::current_num_threads();
        let output = Process::new(program)
            .args(words)
            .args(["--size", self.size.name(), "--dtype", self.engine.dtype()])
            .args(["--batch", &self.batch.to_string()])
            .args(["--seq", &self.seq.to_string()])
            .args(["--threads", &threads.to_string()])
            .output()
            .map_err(|e| Error::io(program, e))?;
        let failed = |what: &str| {
            let said = String::from_utf8_lossy(&output.stderr);
            let last = said.lines().last().unwrap_or_default();
            Error::Failed(format!("the peer {command:?} {what}: {last}"))
        };
        if !output.status.success() {
            return Err(failed("failed"));
        }
        let text = String::from_utf8_lossy(&output.stdout);
        let object: Option<Value> = text
            .lines()
            .rev()
            .find_map(|line| serde_json::from_str(line).ok());
        let number = |key: &str| object.as_ref()?.get(key)?.as_f64();
        Ok(Measured {
            tokens_per_s: number("tokens_per_s")
                .ok_or_else(|| failed("printed no JSON object with tokens_per_s"))?,
            peak_bytes: number("peak_GiB").map(|gibibytes| (gibibytes * 1.073_741_824e9) as u64),
        })
    }

    fn print(&self, config: &Config, own: &[Measured], peers: &[Measured], peak_flops: f64) {
        let speed = |runs: &[Measured]| {
            median(&mut runs.iter().map(|m| m.tokens_per_s).collect::<Vec<_>>())
        };
        let tokens_per_s = speed(own);
        let flops = flops_per_token(config, self.seq) * tokens_per_s;
        let peak_bytes = own.iter().find_map(|m| m.peak_bytes);
        let ratio = (!peers.is_empty()).then(|| tokens_per_s / speed(peers));
        if self.json {
            let mut object = json!({
                "size": self.size.name(),
                "batch": self.batch,
                "seq": self.seq,
                "dtype": self.engine.dtype(),
                "backend": self.engine.backend(),
                "threads": rayon::current_num_threads(),
                "tokens_per_s": tokens_per_s,
                "model_tflops": flops / 1e12,
                "peak_bytes": peak_bytes,
                "mfu": flops / peak_flops,
            });
            if let Some(ratio) = ratio {
                object["peer_tokens_per_s"] = speed(peers).into();
                object["peer_peak_bytes"] = peers.iter().find_map(|m| m.peak_bytes).into();
                object["ratio"] = ratio.into();
            }
            println!("{object}");
            return;
        }
        println!(
            "{} {}×{} {}: {tokens_per_s:.0} tokens/s, {:.3} TFLOP/s of the model ({:.0} % of the {:.3} that matrix products reach here), peak memory {}",
            self.size.name(),
            self.batch,
            self.seq,
            self.engine.dtype(),
            flops / 1e12,
            100.0 * flops / peak_flops,
            peak_flops / 1e12,
            peak_bytes.map_or("unknown".into(), told),
        );
        if let Some(ratio) = ratio {
            println!(
                "peer: {:.0} tokens/s, peak memory {}; ratio {ratio:.2}",
                speed(peers),
                peers
                    .iter()
                    .find_map(|m| m.peak_bytes)
                    .map_or("unknown".into(), told),
            );
        }
    }
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
