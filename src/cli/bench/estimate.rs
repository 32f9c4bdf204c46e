//! `cloze bench estimate`: estimates the days, device-hours and cost of a pre-training run from a measured or
//! given speed.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::budget::{
    Budget, PAPER_BATCH, PAPER_LENGTHS, PAPER_STEPS, Pace, Phase, Published, Work, plan,
};
use crate::cli::shared::checks::{at_least_one, positions, positive, refuse, require};
use crate::cli::shared::size::config_of;
use crate::cli::shared::stdio::say;
use crate::error::{Error, Result};
use crate::model::Size;
use crate::view::style;

/// Size of the published English vocabulary.
const VOCABULARY: usize = 30522;

#[derive(clap::Args)]
#[command(group = clap::ArgGroup::new("pace").required(true))]
pub(crate) struct Args {
    /// tiny, mini, small, medium, minilm, base, large, or the path of a config.json
    #[arg(long, default_value = "base", value_name = "SIZE|CONFIG")]
    size: String,
    /// Optimizer steps
    #[arg(long, default_value_t = PAPER_STEPS, value_name = "N")]
    steps: u64,
    /// Sequences a step
    #[arg(long, default_value_t = PAPER_BATCH, value_name = "N")]
    batch: u64,
    /// Tokens a sequence in the last tenth of the steps
    #[arg(long, default_value_t = PAPER_LENGTHS[1], value_name = "N")]
    seq: u64,
    /// Tokens a sequence in the first nine tenths; the value of --seq for one length throughout
    /// [default: 128, or --seq if that is less]
    #[arg(long, value_name = "N")]
    first_seq: Option<u64>,
    /// Speed of one device in tokens a second
    #[arg(long, group = "pace", value_name = "X")]
    tokens_per_s: Option<f64>,
    /// Speed of one device in 10^12 floating-point operations of the model a second
    #[arg(long, group = "pace", value_name = "X")]
    tflops: Option<f64>,
    /// File with a measured speed: the output of `cloze bench train --json`; - for stdin
    #[arg(long, group = "pace", value_name = "FILE|-")]
    from: Option<PathBuf>,
    /// Days that the run takes; the needed speed is computed from them
    #[arg(long, group = "pace", value_name = "X")]
    days: Option<f64>,
    /// Use the paper's chips and days (base and large only)
    #[arg(long, group = "pace", conflicts_with = "devices")]
    paper: bool,
    /// Number of devices that work on the run
    #[arg(long, default_value_t = 1, value_name = "N")]
    devices: u64,
    /// Share of their single speeds that the devices reach together
    #[arg(long, default_value_t = 1.0, value_name = "X")]
    efficiency: f64,
    /// Price of one device for an hour, in any currency
    #[arg(long, value_name = "X")]
    price_per_hour: Option<f64>,
    /// Print one JSON object on stdout
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: Args) -> Result<()> {
    args.check()?;
    let config = config_of(&args.size, VOCABULARY)?;
    let first = args.first_seq.unwrap_or(PAPER_LENGTHS[0].min(args.seq));
    let phases = plan(args.steps, args.batch, first, args.seq);
    let longest = phases.iter().map(|p| p.length).max().unwrap_or(0);
    positions("--seq", longest as usize, config.positions())?;
    let work = Work::of(&config, &phases);
    let published = args.published();
    let (pace, devices) = args.pace(published)?;
    let budget = Budget::of(&work, pace, devices, args.efficiency, args.price_per_hour);
    // The paper's hours are those of the paper's plan alone.
    let [first, last] = PAPER_LENGTHS;
    let papers_plan = phases == plan(PAPER_STEPS, PAPER_BATCH, first, last);
    let estimate = Estimate {
        published: published.filter(|_| papers_plan),
        args,
        phases,
        work,
        devices,
        budget,
    };
    match estimate.args.json {
        true => say!("{}", estimate.json()),
        false => say!("{}", estimate.table().trim_end()),
    }
}

impl Args {
    fn check(&self) -> Result<()> {
        at_least_one([
            ("--steps", self.steps),
            ("--batch", self.batch),
            ("--seq", self.seq),
            ("--first-seq", self.first_seq.unwrap_or(1)),
            ("--devices", self.devices),
        ])?;
        for (name, value) in [
            ("--tokens-per-s", self.tokens_per_s),
            ("--tflops", self.tflops),
            ("--days", self.days),
            ("--price-per-hour", self.price_per_hour),
        ] {
            positive(name, value.unwrap_or(1.0))?;
        }
        let efficiency = self.efficiency;
        let fits = efficiency > 0.0 && efficiency <= 1.0;
        let needed = "a number above 0 and at most 1";
        require("--efficiency", efficiency, fits, needed)
    }

    /// Returns the paper's numbers for this size.
    fn published(&self) -> Option<Published> {
        match self.size.parse() {
            Ok(Size::Base) => Some(Published::BASE),
            Ok(Size::Large) => Some(Published::LARGE),
            _ => None,
        }
    }

    /// Returns the speed of a device and the number of devices.
    fn pace(&self, published: Option<Published>) -> Result<(Pace, u64)> {
        let days = |days: f64| Pace::Seconds(days * 86400.0);
        if self.paper {
            let Some(published) = published else {
                refuse!(
                    "--paper: the paper states the cost of base and large, not of {}",
                    self.size
                );
            };
            return Ok((days(published.days as f64), published.chips));
        }
        let pace = match (self.tokens_per_s, self.tflops, self.days, &self.from) {
            (Some(speed), ..) => Pace::Tokens(speed),
            (_, Some(speed), ..) => Pace::Flops(speed * 1e12),
            (_, _, Some(given), _) => days(given),
            (.., Some(file)) => Pace::Flops(measured(file)? * 1e12),
            // The parser requires one of them.
            _ => refuse!("a speed is needed, or --days"),
        };
        Ok((pace, self.devices))
    }
}

/// An estimate and what it rests on.
struct Estimate {
    args: Args,
    phases: Vec<Phase>,
    work: Work,
    devices: u64,
    budget: Budget,
    /// The paper's run, if it is the same.
    published: Option<Published>,
}

impl Estimate {
    fn json(&self) -> Value {
        let Self { args, work, budget, .. } = self;
        let phases = self.phases.iter();
        let phases = phases.map(|p| json!({"steps": p.steps, "batch": p.batch, "seq": p.length}));
        let paper = self.published.map(|paper| {
            json!({
                "chips": paper.chips,
                "days": paper.days,
                "device_hours": paper.chip_hours(),
                "price": args.price_per_hour.map(|price| price * paper.chip_hours() as f64),
            })
        });
        json!({
            "size": args.size,
            "parameters": work.parameters,
            "phases": phases.collect::<Vec<_>>(),
            "tokens": work.tokens,
            "flops": work.flops,
            "flops_per_token": work.flops / work.tokens,
            "devices": self.devices,
            "efficiency": args.efficiency,
            "tokens_per_s_device": budget.tokens_per_s,
            "tflops_device": budget.flops_per_s / 1e12,
            "seconds": budget.seconds,
            "days": budget.seconds / 86400.0,
            "device_hours": budget.device_hours,
            "price_per_hour": args.price_per_hour,
            "price": budget.price,
            "paper": paper,
        })
    }

    fn table(&self) -> String {
        let Self { args, work, budget, .. } = self;
        let phases = self.phases.iter().map(|p| {
            let steps = grouped(p.steps as f64);
            format!("{steps} steps of {} × {} tokens", p.batch, p.length)
        });
        let phases = phases.collect::<Vec<_>>().join(", then ");
        let (size, parameters) = (&args.size, grouped(work.parameters as f64));
        let (billions, flops) = (work.tokens / 1e9, work.flops);
        let a_token = work.flops / work.tokens;
        let (speed, tflops) = (grouped(budget.tokens_per_s), budget.flops_per_s / 1e12);
        let (devices, days) = (self.devices, budget.seconds / 86400.0);
        let hours = grouped(budget.device_hours);
        let mut lines = format!(
            "model          {size}, {parameters} parameters\n\
             run            {phases}\n\
             tokens         {billions:.3} billion\n\
             operations     {flops:.3e}, {a_token:.3e} a token\n\
             devices        {devices}\n\
             each of them   {speed} tokens/s, {tflops:.3} TFLOP/s of the model\n\
             time           {days:.2} days\n\
             device-hours   {hours}\n"
        );
        if let Some(total) = budget.price {
            lines += &format!("price          {}\n", grouped(total));
        }
        if let Some(paper) = self.published {
            let (chips, days) = (paper.chips, paper.days);
            let hours = paper.chip_hours() as f64;
            let price = match args.price_per_hour {
                Some(price) => format!(", at {price} an hour {}", grouped(price * hours)),
                None => String::new(),
            };
            let hours = grouped(hours);
            lines += &format!(
                "the paper      {chips} TPU chips for {days} days: {hours} chip-hours{price}\n"
            );
        }
        lines
    }
}

/// Returns the speed that `cloze bench train --json` printed, in 10^12 operations a second.
fn measured(file: &Path) -> Result<f64> {
    let text = if file == Path::new("-") {
        std::io::read_to_string(std::io::stdin())
    } else {
        std::fs::read_to_string(file)
    };
    let text = text.map_err(|e| Error::io(file, e))?;
    let object = |line| serde_json::from_str::<Value>(line).ok();
    let speed = |line| object(line)?.get("model_tflops")?.as_f64();
    let found = text.lines().rev().find_map(speed);
    let found = found.filter(|speed| *speed > 0.0);
    found.ok_or_else(|| {
        let message =
            "holds no JSON object with model_tflops, as `cloze bench train --json` prints it";
        Error::file(file, message)
    })
}

/// Formats a number with separated thousands, and with decimals only below ten.
fn grouped(value: f64) -> String {
    style::grouped(value, if value < 10.0 { 2 } else { 0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_separated() {
        let values = [0.125, 9.999, 12.4, 999.6, 6144.0, 110_106_428.0];
        let expected = ["0.12", "10.00", "12", "1,000", "6,144", "110,106,428"];
        assert_eq!(values.map(grouped), expected);
    }
}
