//! `cloze bench scale`: estimates how data-parallel training grows with the number of GPUs.

use std::path::PathBuf;
use std::str::FromStr;

use serde_json::{Value, json};

use super::budget::{Phase, Work};
use super::scaling::{Cluster, Step, buckets};
use crate::cli::shared::checks::{at_least_one, from_zero, positions, positive, refuse, require};
use crate::cli::shared::size::config_of;
use crate::cli::shared::stdio::say;
use crate::error::Result;
use crate::lessons::support::speed::PUBLISHED;
use crate::model::{Config, Size, flops_per_token};
use crate::note;
use crate::view::style::{grouped, number};
use crate::view::{LineChart, picture};

/// Size of BERT's uncased vocabulary.
const VOCABULARY: usize = 30522;
/// Length of the sequences of [`PUBLISHED`].
const PUBLISHED_LENGTH: usize = 384;
/// The GPU of [`PUBLISHED`] that stands for one that was not measured.
const GPU: &str = "H100";

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Numbers of GPUs: A..B doubles from A to B, commas separate several
    #[arg(long, default_value = "8..1024", value_name = "A..B|N,N..")]
    gpus: Gpus,
    /// Speed of a link between hosts, in each direction: Gb/s (bits) or GB/s (bytes)
    #[arg(long, default_value = "400Gb/s", value_name = "SPEED")]
    link: Speed,
    /// Such links of one host
    #[arg(long, default_value_t = 1, value_name = "N")]
    links: u64,
    /// Speed between a GPU and the others of its host, in each direction; the default is NVLink's of an H100
    #[arg(long, default_value = "450GB/s", value_name = "SPEED")]
    inside: Speed,
    /// GPUs of one host
    #[arg(long, default_value_t = 8, value_name = "N")]
    host_gpus: u64,
    /// Time of a message from one GPU to the next, in microseconds
    #[arg(long, default_value_t = 5.0, value_name = "X")]
    latency: f64,
    /// tiny, mini, small, medium, minilm, base, large, or the path of a config.json; several are estimated one after
    /// another
    #[arg(long, value_delimiter = ',', default_value = "base,large", value_name = "SIZE|CONFIG")]
    model: Vec<String>,
    /// Tokens a sequence; several lengths are estimated one after another
    #[arg(long, value_delimiter = ',', default_value = "128,512", value_name = "N")]
    seq: Vec<usize>,
    /// Sequences a step of one GPU
    #[arg(long, default_value_t = 32, value_name = "N")]
    batch: u64,
    /// Measured time of a step of one GPU, in milliseconds
    #[arg(long, conflicts_with = "tflops", value_name = "X")]
    step_ms: Option<f64>,
    /// Speed of one GPU in 10^12 floating-point operations of the model a second, from which the time of a step is
    /// computed [default: from published speeds of an H100]
    #[arg(long, value_name = "X")]
    tflops: Option<f64>,
    /// Numbers in which gradients are sent; Cloze sends f32
    #[arg(long, default_value = "f32", value_name = "TYPE")]
    gradients: Width,
    /// Send gradients after the backward pass, not during it
    #[arg(long)]
    no_overlap: bool,
    /// File for a chart of the efficiencies
    #[arg(long, value_name = "FILE.svg|FILE.png")]
    chart: Option<PathBuf>,
    /// Print a JSON object on stdout, one on each line for several models or lengths
    #[arg(long)]
    json: bool,
}

/// Numbers of GPUs.
#[derive(Debug, Clone, PartialEq)]
struct Gpus(Vec<u64>);

impl FromStr for Gpus {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let number = |text: &str| text.parse().ok().filter(|n: &u64| *n > 0);
        let list = |part: &str| match part.split_once("..") {
            None => Some(vec![number(part)?]),
            Some((first, last)) => {
                let (first, last) = (number(first)?, number(last)?);
                let doubled = std::iter::successors(Some(first), |n| n.checked_mul(2));
                let below = doubled.take_while(|n| *n < last);
                (first <= last).then(|| below.chain([last]).collect())
            }
        };
        let all: Option<Vec<Vec<u64>>> = text.split(',').map(list).collect();
        all.map(|all| Self(all.concat())).ok_or("expected numbers such as 8..1024 or 8,64".into())
    }
}

/// Bytes a second.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Speed(f64);

impl FromStr for Speed {
    type Err = &'static str;

    fn from_str(text: &str) -> std::result::Result<Self, Self::Err> {
        let bits = text.strip_suffix("Gb/s").map(|number| (number, 1e9 / 8.0));
        let parts = bits.or_else(|| text.strip_suffix("GB/s").map(|number| (number, 1e9)));
        let value =
            parts.and_then(|(number, unit)| Some(number.trim().parse::<f64>().ok()? * unit));
        let value = value.filter(|speed| *speed > 0.0 && speed.is_finite());
        value.map(Self).ok_or("expected a speed such as 400Gb/s or 50GB/s")
    }
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Width {
    F32,
    Bf16,
}

pub(crate) fn run(args: Args) -> Result<()> {
    args.check()?;
    let mut curves = Vec::new();
    for model in &args.model {
        let config = config_of(model, VOCABULARY)?;
        for &seq in &args.seq {
            positions("--seq", seq, config.positions())?;
            let estimate = Estimate::of(&args, model, &config, seq)?;
            match args.json {
                true => say!("{}", estimate.json())?,
                false => say!("{}", estimate.table())?,
            }
            let points = estimate.points.iter().map(|p| (p.gpus as f64, 100.0 * p.efficiency));
            curves.push((estimate.title(), points.collect::<Vec<_>>()));
        }
    }
    if !args.json {
        say!("{}", lines(&args.assumptions()).trim_end())?;
    }
    if let Some(path) = &args.chart {
        let link = grouped(args.cluster().between * 8e-9, 0);
        let title = format!("Estimated scaling, {link} Gb/s between hosts");
        let chart = LineChart::new(title).axes("GPUs", "share of their single speeds, %");
        let add = |chart: LineChart, (name, points): &(String, Vec<_>)| chart.line(name, points);
        curves.iter().fold(chart, add).save(path)?;
        note!("{}", path.display());
    }
    Ok(())
}

impl Args {
    fn check(&self) -> Result<()> {
        at_least_one(self.seq.iter().map(|&seq| ("--seq", seq as u64)))?;
        at_least_one([
            ("--links", self.links),
            ("--host-gpus", self.host_gpus),
            ("--batch", self.batch),
        ])?;
        for (name, value) in [("--step-ms", self.step_ms), ("--tflops", self.tflops)] {
            positive(name, value.unwrap_or(1.0))?;
        }
        from_zero("--latency", self.latency)?;
        for &gpus in &self.gpus.0 {
            let whole = gpus < self.host_gpus || gpus.is_multiple_of(self.host_gpus);
            let hosts = format!("a multiple of the {} GPUs of a host", self.host_gpus);
            require("--gpus", gpus, whole, &hosts)?;
        }
        if self.step_ms.is_some() && (self.model.len() > 1 || self.seq.len() > 1) {
            refuse!(
                "--step-ms is the time of one model and length: give one --model and one --seq"
            );
        }
        match &self.chart {
            Some(path) => picture::kind(path).map(drop),
            None => Ok(()),
        }
    }

    fn cluster(&self) -> Cluster {
        Cluster {
            host_gpus: self.host_gpus,
            inside: self.inside.0,
            between: self.link.0 * self.links as f64,
            latency: self.latency * 1e-6,
        }
    }

    /// Returns what all estimates assume.
    fn assumptions(&self) -> [(&'static str, String); 6] {
        let cluster = self.cluster();
        let gigabytes = |speed: f64| number(speed / 1e9);
        let (inside, between) = (gigabytes(cluster.inside), gigabytes(cluster.between));
        let overlap = match self.no_overlap {
            true => "none: gradients are sent after the backward pass",
            false => {
                "the backward pass, 2/3 of the step, finishes layers evenly; a layer is sent when finished, the embeddings at the end"
            }
        };
        [
            ("inside a host", format!("{} GPUs, {inside} GB/s each way for a GPU", self.host_gpus)),
            ("between hosts", format!("{between} GB/s each way for a host")),
            ("a message", format!("{} µs from one GPU to the next", self.latency)),
            (
                "sum of gradients",
                "ring inside a host; between hosts ring or double tree".to_owned(),
            ),
            ("overlap", overlap.to_owned()),
            ("left out", "reading data, slower GPUs, other traffic on the links".to_owned()),
        ]
    }

    /// Returns the seconds of a step of one GPU, and where they come from.
    fn step(&self, model: &str, config: &Config, seq: usize) -> Result<(f64, String)> {
        if let Some(ms) = self.step_ms {
            return Ok((ms / 1e3, format!("{ms} ms (--step-ms)")));
        }
        let (tflops, source) = match (self.tflops, published(model, config)) {
            (Some(tflops), _) => (tflops, "--tflops".to_owned()),
            (None, Some(tflops)) => {
                (tflops, format!("published for an {GPU} with another program, length 384"))
            }
            _ => {
                refuse!("--model {model}: no speed is published for it; give --step-ms or --tflops")
            }
        };
        let phase = Phase { steps: 1, batch: self.batch, length: seq as u64 };
        let seconds = Work::of(config, &[phase]).flops / (tflops * 1e12);
        let (ms, tflops) = (number(seconds * 1e3), number(tflops));
        Ok((seconds, format!("{ms} ms, an estimate: {tflops} TFLOP/s of the model ({source})")))
    }
}

/// Returns the 10^12 operations a second of a GPU that published speeds of base and large amount to.
fn published(model: &str, config: &Config) -> Option<f64> {
    let column = match model.parse() {
        Ok(Size::Base) => 0,
        Ok(Size::Large) => 1,
        _ => return None,
    };
    let (_, figures) = PUBLISHED.iter().find(|(gpu, _)| *gpu == GPU)?;
    let tokens_per_s = figures[column] * PUBLISHED_LENGTH as f64;
    Some(tokens_per_s * flops_per_token(config, PUBLISHED_LENGTH) / 1e12)
}

/// Returns a line for each assumption.
fn lines(assumptions: &[(&str, String)]) -> String {
    assumptions.iter().map(|(what, text)| format!("{what:<16}  {text}\n")).collect()
}

/// What is estimated for a number of GPUs.
struct Point {
    gpus: u64,
    seconds: f64,
    exposed: f64,
    tokens_per_s: f64,
    efficiency: f64,
}

/// An estimate and what it rests on.
struct Estimate<'a> {
    args: &'a Args,
    model: &'a str,
    seq: usize,
    gradient_bytes: f64,
    points: Vec<Point>,
    /// What only this estimate assumes.
    assumptions: Vec<(&'static str, String)>,
}

impl<'a> Estimate<'a> {
    fn of(args: &'a Args, model: &'a str, config: &Config, seq: usize) -> Result<Self> {
        let (seconds, source) = args.step(model, config, seq)?;
        let (width, name) = match args.gradients {
            Width::F32 => (4.0, "f32"),
            Width::Bf16 => (2.0, "bf16"),
        };
        let step = Step { seconds, buckets: buckets(config, width), overlap: !args.no_overlap };
        let gradient_bytes = step.buckets.iter().sum();
        let cluster = args.cluster();
        let point = |&gpus: &u64| {
            let exposed = step.exposed(&cluster, gpus);
            let tokens = gpus as f64 * args.batch as f64 * seq as f64;
            Point {
                gpus,
                seconds: seconds + exposed,
                exposed,
                tokens_per_s: tokens / (seconds + exposed),
                efficiency: seconds / (seconds + exposed),
            }
        };
        let assumptions = vec![
            ("step of one GPU", source),
            ("gradients", format!("{} MB a step in {name}", grouped(gradient_bytes / 1e6, 0))),
        ];
        let points = args.gpus.0.iter().map(point).collect();
        Ok(Self { args, model, seq, gradient_bytes, points, assumptions })
    }

    fn title(&self) -> String {
        format!("{}, {} × {} tokens a GPU", self.model, self.args.batch, self.seq)
    }

    fn json(&self) -> Value {
        let point = |p: &Point| {
            json!({
                "gpus": p.gpus,
                "step_ms": p.seconds * 1e3,
                "exposed_ms": p.exposed * 1e3,
                "tokens_per_s": p.tokens_per_s,
                "efficiency": p.efficiency,
            })
        };
        let assumptions = self.assumptions.iter().cloned().chain(self.args.assumptions());
        let assumptions = assumptions.map(|(what, text)| format!("{what}: {text}"));
        json!({
            "model": self.model,
            "seq": self.seq,
            "batch": self.args.batch,
            "gradient_bytes": self.gradient_bytes,
            "measured_step": self.args.step_ms.is_some(),
            "points": self.points.iter().map(point).collect::<Vec<_>>(),
            "assumptions": assumptions.collect::<Vec<_>>(),
        })
    }

    fn table(&self) -> String {
        let mut lines = format!("{} (computed, not measured)\n", self.title());
        lines += "  GPUs     step ms  exposed ms       tokens/s  efficiency\n";
        for p in &self.points {
            let (ms, exposed) = (p.seconds * 1e3, p.exposed * 1e3);
            let (speed, share) = (grouped(p.tokens_per_s, 0), 100.0 * p.efficiency);
            lines += &format!(
                "{:>6}  {ms:>10.2}  {exposed:>10.2}  {speed:>13}  {share:>8.1} %\n",
                p.gpus
            );
        }
        lines + &self::lines(&self.assumptions)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_gpus_double_up_to_the_last() {
        let read = |text: &str| text.parse::<Gpus>().map(|gpus| gpus.0);
        assert_eq!(read("8..64"), Ok(vec![8, 16, 32, 64]));
        assert_eq!(read("8..24,512"), Ok(vec![8, 16, 24, 512]));
        assert_eq!(read("1..1"), Ok(vec![1]));
        for wrong in ["", "0", "8..", "64..8", "8,,9", "eight", "-8"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn speeds_are_in_bits_or_bytes() {
        let read = |text: &str| text.parse::<Speed>().map(|speed| speed.0);
        assert_eq!(read("400Gb/s"), Ok(50e9));
        assert_eq!(read("450 GB/s"), Ok(450e9));
        for wrong in ["400", "0Gb/s", "-1GB/s", "xGb/s", "infGb/s"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }

    /// By hand: 877 sequences of 384 tokens a second, 6 operations for each of 12 × 7,077,888 weights and
    /// 12 × 12 × 768 × 384 for attention.
    #[test]
    fn the_published_speed_becomes_operations() {
        let tflops = |model: &str, size: Size| published(model, &size.config(VOCABULARY));
        let base = 877.0 * 384.0 * (6.0 * 12.0 * 7_077_888.0 + 12.0 * 12.0 * 768.0 * 384.0) / 1e12;
        assert!((tflops("base", Size::Base).unwrap() / base - 1.0).abs() < 1e-12);
        assert_eq!(tflops("tiny", Size::Tiny), None);
    }
}
