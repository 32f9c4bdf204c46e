//! The cost of a run: its tokens and floating-point operations, and for a given speed its days, device-hours
//! and price. Nothing here measures.

use crate::model::{Config, Layout, PRETRAINING, flops_per_token, head_flops_per_token};

/// Steps with sequences of one length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Phase {
    /// Number of steps.
    pub steps: u64,
    /// Sequences a step.
    pub batch: u64,
    /// Tokens a sequence.
    pub length: u64,
}

impl Phase {
    /// Returns the tokens of all steps.
    pub fn tokens(&self) -> f64 {
        (self.steps * self.batch) as f64 * self.length as f64
    }
}

/// The work of a pre-training run.
#[derive(Debug, Clone, PartialEq)]
pub struct Work {
    /// Parameters of the model with both heads.
    pub parameters: usize,
    /// Tokens to train on.
    pub tokens: f64,
    /// Floating-point operations of the model, forward and backward.
    pub flops: f64,
}

impl Work {
    /// Returns the work of pre-training a model of this configuration.
    pub fn of(config: &Config, phases: &[Phase]) -> Self {
        let head = head_flops_per_token(config);
        let flops = |p: &Phase| p.tokens() * (flops_per_token(config, p.length as usize) + head);
        Self {
            parameters: Layout::new(config, &PRETRAINING).total(),
            tokens: phases.iter().map(Phase::tokens).sum(),
            flops: phases.iter().map(flops).sum(),
        }
    }
}

/// The known speed of a run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Pace {
    /// Tokens a second of one device.
    Tokens(f64),
    /// The model's floating-point operations a second of one device.
    Flops(f64),
    /// Seconds of the whole run.
    Seconds(f64),
}

/// Time and price of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Budget {
    /// Time of the run, in seconds.
    pub seconds: f64,
    /// Hours times devices.
    pub device_hours: f64,
    /// Tokens a second of one device within the run.
    pub tokens_per_s: f64,
    /// The model's floating-point operations a second of one device.
    pub flops_per_s: f64,
    /// None if no price is known.
    pub price: Option<f64>,
}

impl Budget {
    /// Returns the cost of `work` on `devices` devices that together reach `efficiency` of the sum of their
    /// speeds, at a price for a device and hour.
    pub fn of(
        work: &Work,
        pace: Pace,
        devices: u64,
        efficiency: f64,
        price_per_hour: Option<f64>,
    ) -> Self {
        let useful = devices as f64 * efficiency;
        let seconds = match pace {
            Pace::Tokens(speed) => work.tokens / (speed * useful),
            Pace::Flops(speed) => work.flops / (speed * useful),
            Pace::Seconds(seconds) => seconds,
        };
        let device_seconds = seconds * devices as f64;
        let device_hours = device_seconds / 3600.0;
        Self {
            seconds,
            device_hours,
            tokens_per_s: work.tokens / device_seconds,
            flops_per_s: work.flops / device_seconds,
            price: price_per_hour.map(|price| price * device_hours),
        }
    }
}

/// How a model of the paper was pre-trained (Devlin et al., A.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Published {
    /// TPU chips: 4 Cloud TPUs in Pod configuration are 16, 16 Cloud TPUs are 64.
    pub chips: u64,
    /// Days of training.
    pub days: u64,
}

impl Published {
    /// BERT base.
    pub const BASE: Self = Self { chips: 16, days: 4 };
    /// BERT large.
    pub const LARGE: Self = Self { chips: 64, days: 4 };

    /// Returns chips times hours.
    pub fn chip_hours(&self) -> u64 {
        self.chips * self.days * 24
    }
}

/// The paper's steps (Devlin et al., A.2).
pub const PAPER_STEPS: u64 = 1_000_000;
/// The paper's sequences a step.
pub const PAPER_BATCH: u64 = 256;
/// The paper's lengths: nine tenths of the steps have sequences of 128 tokens, the rest of 512.
pub const PAPER_LENGTHS: [u64; 2] = [128, 512];

/// Returns a plan of `steps` steps, nine tenths with `first` tokens a sequence, the rest with `length`.
pub fn plan(steps: u64, batch: u64, first: u64, length: u64) -> Vec<Phase> {
    let phase = |steps, length| Phase { steps, batch, length };
    if first == length {
        return vec![phase(steps, length)];
    }
    let early = steps * 9 / 10;
    vec![phase(early, first), phase(steps - early, length)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Size;

    fn paper() -> Vec<Phase> {
        let [first, length] = PAPER_LENGTHS;
        plan(PAPER_STEPS, PAPER_BATCH, first, length)
    }

    fn close(got: f64, expected: f64) {
        assert!((got / expected - 1.0).abs() < 1e-9, "{got}, {expected}");
    }

    #[test]
    fn the_papers_plan_has_the_papers_tokens() {
        let tokens: f64 = paper().iter().map(Phase::tokens).sum();
        // 0.9e6 × 256 × 128 + 0.1e6 × 256 × 512.
        close(tokens, 29.4912e9 + 13.1072e9);
        // "256 sequences * 512 tokens = 128,000 tokens/batch".
        close(plan(1, 256, 512, 512)[0].tokens(), 131_072.0);
        assert_eq!(plan(7, 1, 128, 512)[0].steps + plan(7, 1, 128, 512)[1].steps, 7);
    }

    #[test]
    fn the_papers_chips_and_days_are_its_chip_hours() {
        assert_eq!(Published::BASE.chip_hours(), 1536);
        assert_eq!(Published::LARGE.chip_hours(), 6144);
        let work = Work::of(&Size::Base.config(30522), &paper());
        let budget = Budget::of(&work, Pace::Seconds(4.0 * 86400.0), 16, 1.0, Some(2.5));
        close(budget.device_hours, 1536.0);
        close(budget.price.unwrap(), 3840.0);
        close(budget.tokens_per_s, 42.5984e9 / (1536.0 * 3600.0));
    }

    /// By hand: 12 layers of 768 with 3072 between.
    #[test]
    fn operations_are_six_for_each_weight_and_the_attentions() {
        let config = Size::Base.config(30522);
        let layers = 6.0 * 12.0 * (4.0 * 589_824.0 + 2.0 * 768.0 * 3072.0);
        close(flops_per_token(&config, 128), layers + 12.0 * 12.0 * 768.0 * 128.0);
        let head = 0.15 * 6.0 * (589_824.0 + 768.0 * 30522.0);
        let work = Work::of(&config, &plan(10, 4, 128, 128));
        close(work.tokens, 5120.0);
        close(work.flops, 5120.0 * (flops_per_token(&config, 128) + head));
        assert_eq!(work.parameters, 110_106_428);
    }

    #[test]
    fn speed_days_and_devices_agree_with_each_other() {
        let work = Work::of(&Size::Base.config(30522), &paper());
        let by_tokens = Budget::of(&work, Pace::Tokens(10_000.0), 8, 0.5, None);
        close(by_tokens.seconds, 42.5984e9 / 40_000.0);
        close(by_tokens.tokens_per_s, 5_000.0);
        assert_eq!(by_tokens.price, None);
        let again = Budget::of(&work, Pace::Seconds(by_tokens.seconds), 8, 0.5, None);
        assert_eq!(again, by_tokens);
        let by_flops = Budget::of(&work, Pace::Flops(by_tokens.flops_per_s), 8, 1.0, None);
        close(by_flops.seconds, by_tokens.seconds);
        // Twice the devices halve the days and leave the device-hours.
        let twice = Budget::of(&work, Pace::Tokens(10_000.0), 16, 0.5, None);
        close(twice.seconds * 2.0, by_tokens.seconds);
        close(twice.device_hours, by_tokens.device_hours);
    }
}
