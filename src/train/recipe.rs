//! Recipes of pre-training: what a run uses where no option sets it.

use super::pretrain::Settings;
use super::schedule::{Decay, Schedule};
use crate::engine::optimizer::{Optimizer, Rule};
use crate::engine::{Backend, Setup};
use crate::model::{Config, Layout, Size};

/// Models of at least this hidden size are trained by the paper's recipe, unless another one is chosen.
const PAPER_WIDTH: usize = 768;
/// A model that was trained before continues at this share of a new one's learning rate
/// (google-research/bert's README: 2e-5 in place of 1e-4).
const CONTINUED: f64 = 0.2;
/// The hour's factor of the initial weights of each block's last linear layer. The less the blocks add at first, the
/// sooner a model with LayerNorm after the sum learns (Zhang et al., arXiv 1908.11365; Wang et al., DeepNet,
/// arXiv 2203.00555). After 1,500 steps, a mini model's held-out loss was 6.02 with 1, and 5.32 with 0.25.
const BLOCKS: f32 = 0.25;
/// Batches with fewer sequences are updated by AdamW, because Muon's work per step is the same for any batch. With 32,
/// ten minutes of training end at 3.51 with Muon and at 3.57 with AdamW (benches/speedrun); with 16, a tiny model on our
/// own corpus needs twice the time for the same loss.
const MUON_BATCH: usize = 32;
/// How the names of those weights end: attention's and the feed-forward block's.
const LAST_OF_BLOCK: &str = "output.dense.weight";

/// How a new model is trained.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
pub enum Recipe {
    /// For small models and about an hour on two processor cores: Muon for the layers' matrices, if a step has at least
    /// 32 sequences and no GPU computes it, AdamW for the other parameters, learning rate 0.256 / hidden size, warm-up
    /// 0.1, second beta 0.98, a first phase of 64 tokens for 0.8 of the steps, 30 % of the tokens masked, no dropout,
    /// initial weights of 0.9 / the root of the hidden size, a quarter of it in each block's last layer
    Hour,
    /// The paper's, for large models and days on accelerators: learning rate 1e-4, warm-up 0.01, second beta 0.999, a
    /// first phase of 128 tokens for 0.9 of the steps, 15 % of the tokens masked, dropout 0.1, initial weights of 0.02
    Paper,
}

/// What a recipe sets, besides how the first weights are drawn.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Hyperparameters {
    /// The highest learning rate.
    pub learning_rate: f64,
    /// The share of the steps in which the learning rate rises.
    pub warmup: f64,
    /// How the learning rate falls after that.
    pub decay: Decay,
    /// The optimizer and its constants.
    pub optimizer: Optimizer,
    /// The longest sequence of the first phase, in tokens. A run has no first phase if its own sequences are not longer.
    pub first_seq: Option<usize>,
    /// The first phase's share of the steps.
    pub phase_share: f64,
    /// The share of the tokens that the model must predict.
    pub mask_probability: f64,
}

/// What the recipes share: the paper's masks, and a warm-up and an optimizer for shorter runs than the paper's.
const SHORT: Hyperparameters = Hyperparameters {
    learning_rate: 1e-4,
    warmup: 0.1,
    decay: Decay::Linear,
    optimizer: Settings::OPTIMIZER,
    first_seq: None,
    phase_share: 0.8,
    mask_probability: 0.15,
};

impl Recipe {
    /// Returns the usual recipe of a model with this hidden size.
    pub fn of_width(hidden_size: usize) -> Self {
        if hidden_size < PAPER_WIDTH { Self::Hour } else { Self::Paper }
    }

    /// Returns the configuration of a new model of this size; the vocabulary's size is still 0.
    pub fn config(self, size: Size) -> Config {
        let mut config = size.config(0);
        if self == Self::Hour {
            // 0.02 suits the base model. Narrower ones hardly learn for hundreds of steps with it: after 800
            // steps, a tiny one predicted 46 % of held-out masked tokens with 0.08, and 27 % with 0.02.
            config.initializer_range = 0.9 / (config.hidden_size as f64).sqrt();
            // Dropout slows learning. Without it the held-out loss of a tiny model on one novel was
            // still falling after 9,600 steps.
            config.hidden_dropout_prob = 0.0;
            config.attention_probs_dropout_prob = 0.0;
        }
        config
    }

    /// Returns the initial values of a new model, a pure function of the seed and the layout.
    pub fn initialise(self, layout: &Layout, seed: u64) -> Vec<f32> {
        let mut values = layout.initialise(seed);
        if self == Self::Hour {
            for (_, range) in layout.iter().filter(|(p, _)| p.name.ends_with(LAST_OF_BLOCK)) {
                values[range].iter_mut().for_each(|value| *value *= BLOCKS);
            }
        }
        values
    }

    /// Returns the hyperparameters of a new model with this hidden size.
    pub fn hyperparameters(self, hidden_size: usize) -> Hyperparameters {
        match self {
            Self::Hour => Hyperparameters {
                // Held-out losses after 1,500 to 2,000 steps (benches/speedrun): tiny 5.17 with 2e-3 and 5.74 with
                // 1.5e-3; mini 5.32 with 1e-3 and 5.98 with 2e-3.
                learning_rate: 0.256 / hidden_size as f64,
                // After an hour with batches of 64: 2.78; with AdamW and batches of 32: 2.96 (benches/speedrun).
                optimizer: Optimizer { rule: Rule::Muon, ..Settings::OPTIMIZER },
                first_seq: Some(64),
                // More to learn from in each step (Wettig et al., arXiv 2202.08005). In equal time, the held-out loss
                // with 15 % masked was 4.77 after training with 30 % and 5.03 with 15 % (benches/speedrun).
                mask_probability: 0.3,
                ..SHORT
            },
            Self::Paper => Hyperparameters {
                warmup: 0.01,
                optimizer: Optimizer::BERT,
                first_seq: Some(128),
                phase_share: 0.9,
                ..SHORT
            },
        }
    }
}

impl Hyperparameters {
    /// Returns those of a student that starts from its teacher's weights. It has learned to use positions.
    pub fn of_student(hidden_size: usize) -> Self {
        let usual = Recipe::of_width(hidden_size).hyperparameters(hidden_size);
        Self { learning_rate: usual.learning_rate, ..SHORT }
    }

    /// Returns those of a model that was trained before.
    pub fn of_trained(hidden_size: usize) -> Self {
        let student = Self::of_student(hidden_size);
        Self { learning_rate: CONTINUED * student.learning_rate, ..student }
    }

    /// Returns them for steps of `batch` sequences with this setup: in place of Muon they have AdamW if the batches are
    /// small, or if the engine is the GPU's, which has no Muon.
    pub fn on(mut self, setup: Setup, batch: usize) -> Self {
        let worth_it = batch >= MUON_BATCH && setup.backend.resolve().0 != Backend::Cuda;
        if self.optimizer.rule == Rule::Muon && !worth_it {
            self.optimizer.rule = Rule::Adamw;
        }
        self
    }

    /// Returns the settings of a run of `steps` steps of `batch` sequences.
    pub fn settings(&self, steps: u64, batch: usize) -> Settings {
        let warmup = (steps as f64 * self.warmup) as u64;
        let schedule =
            Schedule { peak: self.learning_rate, warmup, total: steps, decay: self.decay };
        Settings {
            schedule,
            optimizer: self.optimizer,
            ..Settings::new(steps, batch, self.learning_rate)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::PRETRAINING;

    #[test]
    fn narrow_models_start_with_wider_weights_and_no_dropout() {
        let tiny = Recipe::Hour.config(Size::Tiny);
        assert_eq!(tiny.hidden_size, 128);
        assert!((tiny.initializer_range - 0.9 / 128f64.sqrt()).abs() < 1e-9);
        assert_eq!((tiny.hidden_dropout_prob, tiny.attention_probs_dropout_prob), (0.0, 0.0));
        let paper = Recipe::Paper.config(Size::Tiny);
        assert_eq!((paper.initializer_range, paper.hidden_dropout_prob), (0.02, 0.1));
        assert_eq!(Recipe::of_width(384), Recipe::Hour);
        assert_eq!(Recipe::of_width(768), Recipe::Paper);
    }

    #[test]
    fn blocks_of_narrow_models_add_little_at_first() {
        let config = Recipe::Hour.config(Size::Tiny);
        let layout = Layout::new(&config, &PRETRAINING);
        let (hour, paper) =
            (Recipe::Hour.initialise(&layout, 1), Recipe::Paper.initialise(&layout, 1));
        let mut smaller = Vec::new();
        for (parameter, range) in layout.iter() {
            let (hour, paper) = (&hour[range.clone()], &paper[range]);
            if hour != paper {
                assert!(hour.iter().zip(paper).all(|(hour, paper)| *hour == 0.25 * paper));
                smaller.push(parameter.name.as_str());
            }
        }
        let of = |layer: usize| {
            ["attention.output", "output"]
                .map(|block| format!("encoder.layer.{layer}.{block}.dense.weight"))
        };
        assert_eq!(smaller, [of(0), of(1)].concat());
    }

    #[test]
    fn trained_models_continue_slowly() {
        let of = |size: usize| Recipe::of_width(size).hyperparameters(size);
        assert_eq!((of(128).learning_rate, of(128).first_seq), (0.002, Some(64)));
        assert_eq!((of(768).learning_rate, of(768).first_seq), (1e-4, Some(128)));
        let trained = Hyperparameters::of_trained(128);
        assert!((trained.learning_rate - 0.0004).abs() < 1e-12);
        assert_eq!(trained.first_seq, None);
        assert_eq!((of(128).optimizer.rule, trained.optimizer.rule), (Rule::Muon, Rule::Adamw));
        for (backend, batch, rule) in [
            (Backend::Cpu, 32, Rule::Muon),
            (Backend::Cpu, 31, Rule::Adamw),
            (Backend::Cuda, 32, Rule::Adamw),
        ] {
            let optimizer = of(128).on(backend.into(), batch).optimizer;
            assert_eq!(optimizer, Optimizer { rule, ..of(128).optimizer });
        }
        let settings = of(768).settings(1000, 32);
        assert_eq!((settings.schedule.warmup, settings.batch), (10, 32));
        assert_eq!(settings.optimizer.beta2, 0.999);
    }
}
