//! `cloze bench launches`: lists what a training step launches on a GPU, and how long that is expected to take there;
//! beside what a self-test measured, if there is one. It needs no GPU.

use std::path::PathBuf;

use serde_json::{Value, json};

use crate::cli::shared::checks::{at_least_one, positions, refuse};
use crate::cli::shared::size::config_of;
use crate::cli::shared::stdio::say;
use crate::engine::Recompute;
use crate::engine::cuda::Settings;
use crate::engine::cuda::device::Element;
use crate::engine::cuda::expected::{Limits, step};
use crate::error::Result;
use crate::text::reader::{open, read_json};

/// Size of BERT's uncased vocabulary.
const VOCABULARY: usize = 30522;

/// The number format of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    Bf16,
    F16,
    Tf32,
    F32,
}

#[derive(clap::Args)]
pub(crate) struct Args {
    /// a100, h100 or h200
    #[arg(long, default_value = "h200", value_name = "GPU")]
    gpu: String,
    /// tiny, mini, small, medium, minilm, base, large, or the path of a config.json
    #[arg(long, default_value = "base", value_name = "SIZE|CONFIG")]
    size: String,
    /// Sequences a step
    #[arg(long, default_value_t = 64, value_name = "N")]
    batch: usize,
    /// Tokens a sequence
    #[arg(long, default_value_t = 384, value_name = "N")]
    seq: usize,
    /// Number format of products and activations
    #[arg(long, value_enum, default_value = "bf16")]
    dtype: Format,
    /// The report.json of a self-test that measured the launches of this step, to compare with
    #[arg(long, value_name = "FILE")]
    measured: Option<PathBuf>,
    /// Print one JSON object on stdout
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: Args) -> Result<()> {
    at_least_one([("--batch", args.batch as u64), ("--seq", args.seq as u64)])?;
    let gpu = Limits::named(&args.gpu)?;
    let config = config_of(&args.size, VOCABULARY)?;
    positions("--seq", args.seq, config.positions())?;
    let element = match args.dtype {
        Format::Bf16 => Element::Bf16,
        Format::F16 => Element::F16,
        Format::Tf32 | Format::F32 => Element::F32,
    };
    let tf32 = args.dtype == Format::Tf32;
    let settings = Settings { element, tf32, recompute: Recompute::Nothing };
    let measured = args.measured()?;
    let seconds_of = |what: &str| -> Option<f64> {
        let launches = measured.as_ref()?.get("launches")?.as_array()?;
        launches.iter().find(|l| l["what"] == what)?["seconds"].as_f64()
    };
    let groups = step(&config, settings, (args.batch, args.seq), &gpu)?;
    let seconds: f64 = groups.iter().map(|group| group.seconds).sum();
    let tokens_per_s = (args.batch * args.seq) as f64 / seconds;
    if args.json {
        let launches: Vec<Value> = groups
            .iter()
            .map(|group| {
                let mut data = group.data();
                data["measured_seconds"] = seconds_of(&group.what).into();
                data
            })
            .collect();
        let object = json!({
            "gpu": gpu.name,
            "size": args.size,
            "batch": args.batch,
            "seq": args.seq,
            "seconds": seconds,
            "tokens_per_s": tokens_per_s,
            "measured_seconds": measured.as_ref().map(|step| step["seconds"].clone()),
            "launches": launches,
        });
        return say!("{object}");
    }
    for group in &groups {
        let line = group.line();
        match seconds_of(&group.what) {
            Some(seconds) => {
                let (measured, ratio) = (seconds * 1e3, seconds / group.seconds);
                say!("{line}; measured {measured:.2} ms ({ratio:.2})")?;
            }
            None => say!("{line}")?,
        }
    }
    let (size, batch, seq, name) = (&args.size, args.batch, args.seq, gpu.name);
    say!(
        "{size} {batch}×{seq} on one {name}: {:.1} ms, {tokens_per_s:.0} tokens/s are expected",
        seconds * 1e3
    )
}

impl Args {
    /// Returns the self-test's measurement of this step.
    fn measured(&self) -> Result<Option<Value>> {
        let Some(path) = &self.measured else {
            return Ok(None);
        };
        let report: Value = read_json(open(path)?, path, "a self-test's report.json")?;
        let steps = report["sections"]["speed"].as_array().cloned().unwrap_or_default();
        let step = steps.into_iter().find(|step| {
            step["size"] == self.size.as_str()
                && step["batch"] == self.batch
                && step["seq"] == self.seq
        });
        match step {
            Some(step) if self.dtype == Format::Bf16 => Ok(Some(step)),
            _ => {
                let (size, batch, seq) = (&self.size, self.batch, self.seq);
                let dtype = clap::ValueEnum::to_possible_value(&self.dtype);
                let dtype = dtype.map(|value| value.get_name().to_owned()).unwrap_or_default();
                refuse!(
                    "{}: it measured no step of {size} {batch}×{seq} in {dtype}",
                    path.display()
                )
            }
        }
    }
}
