//! `cloze bench estimate`: days, device-hours and price of a pre-training run, from a measured or given
//! speed.

use std::io::Read;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::budget::{
    Budget, PAPER_BATCH, PAPER_LENGTHS, PAPER_STEPS, Pace, Phase, Published, Work, plan,
};
use crate::cli::checks::{at_least_one, positive};
use crate::cli::model::config_of;
use crate::cli::print::say;
use crate::error::{Error, Result};
use crate::model::{Config, Size};
use crate::view::style;

/// The entries of the published English vocabulary.
const VOCABULARY: usize = 30522;

#[derive(clap::Args)]
#[command(group = clap::ArgGroup::new("pace").required(true))]
pub struct Args {
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
    /// Tokens a sequence in the first nine tenths; --seq for one length throughout [default: 128, or --seq
    /// if that is less]
    #[arg(long, value_name = "N")]
    first_seq: Option<u64>,
    /// Speed of one device in tokens a second
    #[arg(long, group = "pace", value_name = "X")]
    tokens_per_s: Option<f64>,
    /// Speed of one device in TFLOP/s of the model
    #[arg(long, group = "pace", value_name = "X")]
    tflops: Option<f64>,
    /// Measured speed: the output of `cloze bench train --json`, - for stdin
    #[arg(long, group = "pace", value_name = "FILE|-")]
    from: Option<PathBuf>,
    /// Duration of the run; the needed speed is computed
    #[arg(long, group = "pace", value_name = "X")]
    days: Option<f64>,
    /// The paper's chips and days, for base and large
    #[arg(long, group = "pace", conflicts_with = "devices")]
    paper: bool,
    /// Number of devices
    #[arg(long, default_value_t = 1, value_name = "N")]
    devices: u64,
    /// Share of their speeds that the devices reach together
    #[arg(long, default_value_t = 1.0, value_name = "X")]
    efficiency: f64,
    /// Price of one device for an hour, in any currency
    #[arg(long, value_name = "X")]
    price_per_hour: Option<f64>,
    /// Print one JSON object on stdout
    #[arg(long)]
    json: bool,
}

/// Runs the subcommand.
pub fn run(args: Args) -> Result<()> {
    args.check()?;
    let config = args.config()?;
    let phases = args.phases();
    let longest = phases.iter().map(|p| p.length).max().unwrap_or(0);
    if longest > config.max_position_embeddings as u64 {
        let positions = config.max_position_embeddings;
        let message = format!("--seq {longest}: the model has only {positions} positions");
        return Err(Error::Usage(message));
    }
    let work = Work::of(&config, &phases);
    let published = args.published();
    let (pace, devices) = args.pace(published)?;
    let budget = Budget::of(&work, pace, devices, args.efficiency, args.price_per_hour);
    // The paper's hours are those of the paper's plan.
    let [first, last] = PAPER_LENGTHS;
    let papers_plan = phases == plan(PAPER_STEPS, PAPER_BATCH, first, last);
    let published = published.filter(|_| papers_plan);
    if args.json {
        say!("{}", args.object(&phases, &work, devices, &budget, published))?;
    } else {
        let table = args.table(&phases, &work, devices, &budget, published);
        say!("{}", table.trim_end())?;
    }
    Ok(())
}

impl Args {
    fn check(&self) -> Result<()> {
        for (name, value) in [
            ("--steps", self.steps),
            ("--batch", self.batch),
            ("--seq", self.seq),
            ("--first-seq", self.first_seq.unwrap_or(1)),
            ("--devices", self.devices),
        ] {
            at_least_one(name, value)?;
        }
        for (name, value) in [
            ("--tokens-per-s", self.tokens_per_s),
            ("--tflops", self.tflops),
            ("--days", self.days),
            ("--price-per-hour", self.price_per_hour),
        ] {
            positive(name, value.unwrap_or(1.0))?;
        }
        if !(self.efficiency > 0.0 && self.efficiency <= 1.0) {
            return Err(Error::Usage(format!(
                "--efficiency {}: a number above 0 and at most 1 is needed",
                self.efficiency
            )));
        }
        Ok(())
    }

    fn config(&self) -> Result<Config> {
        config_of(&self.size, VOCABULARY)
    }

    fn phases(&self) -> Vec<Phase> {
        let first = self.first_seq.unwrap_or(PAPER_LENGTHS[0].min(self.seq));
        plan(self.steps, self.batch, first, self.seq)
    }

    /// Returns what the paper reports for this size.
    fn published(&self) -> Option<Published> {
        match self.size.parse() {
            Ok(Size::Base) => Some(Published::BASE),
            Ok(Size::Large) => Some(Published::LARGE),
            _ => None,
        }
    }

    /// Returns the speed and the number of devices.
    fn pace(&self, published: Option<Published>) -> Result<(Pace, u64)> {
        let days = |days: f64| Pace::Seconds(days * 86400.0);
        if self.paper {
            let published = published.ok_or_else(|| {
                let message = format!("--paper: it reports base and large, not {}", self.size);
                Error::Usage(message)
            })?;
            return Ok((days(published.days as f64), published.chips));
        }
        let pace = match (self.tokens_per_s, self.tflops, self.days, &self.from) {
            (Some(speed), ..) => Pace::Tokens(speed),
            (_, Some(speed), ..) => Pace::Flops(speed * 1e12),
            (_, _, Some(given), _) => days(given),
            (.., Some(file)) => Pace::Flops(measured(file)? * 1e12),
            // The parser asks for one of them.
            _ => return Err(Error::Usage("a speed is needed, or --days".into())),
        };
        Ok((pace, self.devices))
    }

    fn object(
        &self,
        phases: &[Phase],
        work: &Work,
        devices: u64,
        budget: &Budget,
        published: Option<Published>,
    ) -> Value {
        let phases: Vec<Value> = phases
            .iter()
            .map(|p| json!({"steps": p.steps, "batch": p.batch, "seq": p.length}))
            .collect();
        let paper = published.map(|paper| {
            json!({
                "chips": paper.chips,
                "days": paper.days,
                "device_hours": paper.chip_hours(),
                "price": self.price_per_hour.map(|price| price * paper.chip_hours() as f64),
            })
        });
        json!({
            "size": self.size,
            "parameters": work.parameters,
            "phases": phases,
            "tokens": work.tokens,
            "flops": work.flops,
            "flops_per_token": work.flops / work.tokens,
            "devices": devices,
            "efficiency": self.efficiency,
            "tokens_per_s_device": budget.tokens_per_s,
            "tflops_device": budget.flops_per_s / 1e12,
            "seconds": budget.seconds,
            "days": budget.seconds / 86400.0,
            "device_hours": budget.device_hours,
            "price_per_hour": self.price_per_hour,
            "price": budget.price,
            "paper": paper,
        })
    }

    fn table(
        &self,
        phases: &[Phase],
        work: &Work,
        devices: u64,
        budget: &Budget,
        published: Option<Published>,
    ) -> String {
        let mut lines = String::new();
        let mut row = |name: &str, value: String| lines += &format!("{name:<14} {value}\n");
        let plan: Vec<String> = phases
            .iter()
            .map(|p| {
                let steps = grouped(p.steps as f64);
                format!("{steps} steps of {} × {} tokens", p.batch, p.length)
            })
            .collect();
        row("model", format!("{}, {} parameters", self.size, grouped(work.parameters as f64)));
        row("run", plan.join(", then "));
        row("tokens", format!("{:.3} billion", work.tokens / 1e9));
        row("operations", format!("{:.3e}, {:.3e} a token", work.flops, work.flops / work.tokens));
        row("devices", devices.to_string());
        row(
            "each of them",
            format!(
                "{} tokens/s, {:.3} TFLOP/s of the model",
                grouped(budget.tokens_per_s),
                budget.flops_per_s / 1e12
            ),
        );
        row("time", format!("{:.2} days", budget.seconds / 86400.0));
        row("device-hours", grouped(budget.device_hours));
        let price = |hours: f64| match self.price_per_hour {
            Some(price) => format!(", at {price} an hour {}", grouped(price * hours)),
            None => String::new(),
        };
        if let Some(total) = budget.price {
            row("price", grouped(total));
        }
        if let Some(paper) = published {
            row(
                "the paper",
                format!(
                    "{} TPU chips for {} days: {} chip-hours{}",
                    paper.chips,
                    paper.days,
                    grouped(paper.chip_hours() as f64),
                    price(paper.chip_hours() as f64),
                ),
            );
        }
        lines
    }
}

/// Reads the speed from the output of `cloze bench train --json`, in TFLOP/s.
fn measured(file: &Path) -> Result<f64> {
    let mut text = String::new();
    let read = if file == Path::new("-") {
        std::io::stdin().read_to_string(&mut text).map(|_| ())
    } else {
        std::fs::read_to_string(file).map(|read| text = read)
    };
    read.map_err(|e| Error::io(file, e))?;
    let speed = text
        .lines()
        .rev()
        .find_map(|line| serde_json::from_str::<Value>(line).ok()?.get("model_tflops")?.as_f64())
        .filter(|speed| *speed > 0.0);
    speed.ok_or_else(|| {
        let message =
            "holds no JSON object with model_tflops, as `cloze bench train --json` prints it";
        Error::file(file, message)
    })
}

/// Formats a number with separated thousands, and from ten on without decimals.
fn grouped(value: f64) -> String {
    style::grouped(value, if value < 10.0 { 2 } else { 0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_set_apart() {
        for (value, expected) in [
            (0.125, "0.12"),
            (9.999, "10.00"),
            (12.4, "12"),
            (999.6, "1,000"),
            (6144.0, "6,144"),
            (110_106_428.0, "110,106,428"),
        ] {
            assert_eq!(grouped(value), expected);
        }
    }
}
