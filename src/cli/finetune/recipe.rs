//! The options of the recipe: how long and how fast a model learns, and from what. What suits depends on the
//! model's width and on the number of rows.

use clap::ValueEnum;

use crate::cli::shared::checks::{at_least_one, positive, refuse, share};
use crate::data::sequences::BatchSize;
use crate::data::{Examples, Sequences};
use crate::error::Result;
use crate::model::{Config, Tuning};
use crate::note;
use crate::ranks::Ranks;
use crate::train::loss::{Loss, balanced};

/// The learning rates that the paper chooses from (Devlin et al., appendix A.3).
const RATES: [f64; 4] = [5e-5, 4e-5, 3e-5, 2e-5];
/// The learning rate of a head on a frozen encoder.
const FROZEN_RATE: f64 = 1e-3;
/// The paper's number of epochs, and that of a head on a frozen encoder.
const EPOCHS: u32 = 3;
const FROZEN_EPOCHS: u32 = 20;
/// With few rows, a run has so many more epochs that it has this many steps,
const FEW_STEPS: u64 = 150;
/// but not more than these.
const MOST_EPOCHS: u64 = 10;
/// A learning rate that differs from the usual one by more than this factor is questioned.
const UNUSUAL: f64 = 30.0;

#[derive(clap::Args)]
pub(super) struct RecipeArgs {
    /// Passes over the training rows [default: 3, or for few rows as many as give 150 steps, at most 10;
    /// with --frozen 20]
    #[arg(long, value_name = "N", value_parser = whole_epochs)]
    epochs: Option<u32>,
    /// Steps of the run, in the place of a number of epochs
    #[arg(long, value_name = "N", conflicts_with = "epochs")]
    max_steps: Option<u64>,
    /// Rows a step
    #[arg(long, default_value_t = 32, value_name = "N")]
    batch: usize,
    /// Tokens a step, instead of a number of rows
    #[arg(long, value_name = "N", conflicts_with = "batch")]
    batch_tokens: Option<usize>,
    /// Highest learning rate, reached after the warm-up [default: by the model's width: 1e-3 below 160,
    /// 5e-4 below 256, 1e-4 below 512, 5e-5 below 1024, else 2e-5; with --frozen 1e-3]
    #[arg(long, value_name = "RATE")]
    lr: Option<f64>,
    /// Try several learning rates and use the best on the development data: those given, or four that
    /// suit the model; for base models these are the paper's, 5e-5, 4e-5, 3e-5 and 2e-5
    #[arg(
        long,
        value_name = "RATES",
        value_delimiter = ',',
        num_args = 0..=1,
        conflicts_with_all = ["lr", "frozen"]
    )]
    lr_search: Option<Vec<f64>>,
    /// Factor of the learning rate from each layer to the one below, such as 0.9
    #[arg(long, default_value_t = 1.0, value_name = "X", conflicts_with = "frozen")]
    layer_decay: f64,
    /// Freeze the embeddings and the first N layers
    #[arg(long, value_name = "N", conflicts_with = "frozen")]
    freeze: Option<usize>,
    /// Weights of the classes in the loss: balanced gives rare classes more
    #[arg(long, value_enum)]
    class_weights: Option<ClassWeights>,
    /// How an epoch draws its rows: balanced takes as many from each class as from any other
    #[arg(long, value_enum, default_value_t = Sampling::Shuffled)]
    sampling: Sampling,
    /// Share of each label that is spread over all classes, such as 0.1
    #[arg(long, default_value_t = 0.0, value_name = "SHARE")]
    label_smoothing: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ClassWeights {
    /// The fewer rows a class has, the more each counts.
    Balanced,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Sampling {
    /// Every row once, in a shuffled order.
    Shuffled,
    /// The same number of rows from each class; those of rare classes several times.
    Balanced,
}

fn whole_epochs(text: &str) -> std::result::Result<u32, String> {
    text.parse().map_err(|_| match text.parse::<f64>() {
        Ok(number) if number > 0.0 => {
            "epochs are whole numbers; --max-steps N ends a run within an epoch".to_owned()
        }
        _ => "expected a whole number of epochs".to_owned(),
    })
}

/// Returns the learning rate that suits a model of this width.
fn usual_rate(width: usize) -> f64 {
    match width {
        0..160 => 1e-3,
        160..256 => 5e-4,
        256..512 => 1e-4,
        512..1024 => 5e-5,
        _ => 2e-5,
    }
}

/// Returns the four learning rates that a search tries for a model of this width.
fn usual_rates(width: usize) -> [f64; 4] {
    match width {
        0..512 => [2.0, 1.0, 0.5, 0.25].map(|factor| factor * usual_rate(width)),
        _ => RATES,
    }
}

/// The recipe of a command, with defaults that suit its model and its data.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Recipe {
    pub(super) epochs: u32,
    pub(super) max_steps: Option<u64>,
    pub(super) batch: BatchSize,
    /// The learning rates to try.
    pub(super) rates: Vec<f64>,
    /// The learning rate that suits the model.
    pub(super) usual_rate: f64,
    pub(super) tuning: Tuning,
    pub(super) loss: Loss,
    pub(super) balanced: bool,
}

impl RecipeArgs {
    pub(super) fn check(&self) -> Result<()> {
        at_least_one([
            ("--epochs", u64::from(self.epochs.unwrap_or(1))),
            ("--max-steps", self.max_steps.unwrap_or(1)),
            ("--batch", self.batch as u64),
            ("--batch-tokens", self.batch_tokens.unwrap_or(1) as u64),
        ])?;
        positive("--lr", self.lr.unwrap_or(1.0))?;
        let rates = self.lr_search.as_deref().unwrap_or_default();
        for (index, &rate) in rates.iter().enumerate() {
            positive("--lr-search", rate)?;
            if rates[..index].contains(&rate) {
                refuse!("--lr-search: {rate:e} is given twice; expected different learning rates");
            }
        }
        share("--label-smoothing", self.label_smoothing)?;
        if !(self.layer_decay > 0.0 && self.layer_decay <= 1.0) {
            refuse!("--layer-decay {}: a number above 0 and up to 1 is needed", self.layer_decay);
        }
        Ok(())
    }

    /// Returns whether several learning rates are tried.
    pub(super) fn searches(&self) -> bool {
        self.lr_search.is_some()
    }

    /// Returns the size of one rank's share of a batch.
    pub(super) fn batch(&self) -> BatchSize {
        match self.batch_tokens {
            Some(tokens) => BatchSize::Tokens(tokens),
            None => BatchSize::Examples(self.batch),
        }
    }

    /// Returns how much of the learning rate each layer gets.
    pub(super) fn tuning(&self, config: &Config) -> Result<Tuning> {
        let layers = config.num_hidden_layers;
        if let Some(frozen) = self.freeze.filter(|&frozen| frozen > layers) {
            refuse!("--freeze {frozen}: the model has only {layers} layers");
        }
        Ok(Tuning { layer_decay: self.layer_decay, freeze: self.freeze })
    }

    /// Fills in what suits the model and its training data, and reports it on stderr.
    pub(super) fn resolve(
        &self,
        config: &Config,
        train: &Examples,
        frozen: bool,
    ) -> Result<Recipe> {
        let (width, ranks) = (config.hidden_size, Ranks::of_process().size());
        let usual_rate = if frozen { FROZEN_RATE } else { usual_rate(width) };
        let rates = match (&self.lr_search, self.lr) {
            (Some(given), _) if given.is_empty() => usual_rates(width).to_vec(),
            (Some(given), _) => given.clone(),
            (None, lr) => vec![lr.unwrap_or(usual_rate)],
        };
        let epochs = self.epochs.unwrap_or_else(|| match frozen {
            true => FROZEN_EPOCHS,
            false => usual_epochs(steps_of_an_epoch(&train.sequences, self.batch().times(ranks))),
        });
        self.report(&rates, usual_rate, epochs, width);
        let classes = config.classes();
        let class_weights = match self.class_weights {
            Some(ClassWeights::Balanced) => balanced(&train.targets, classes)?,
            None => Vec::new(),
        };
        let loss = Loss { class_weights, label_smoothing: self.label_smoothing };
        loss.check(&train.targets)?;
        Ok(Recipe {
            epochs,
            max_steps: self.max_steps,
            batch: self.batch().times(ranks),
            rates,
            usual_rate,
            tuning: self.tuning(config)?,
            loss,
            balanced: self.sampling == Sampling::Balanced,
        })
    }

    fn report(&self, rates: &[f64], usual_rate: f64, epochs: u32, width: usize) {
        let rate = (self.lr.is_none() && self.lr_search.is_none()).then(|| {
            format!("learning rate {usual_rate:e}, which suits a width of {width} (--lr)")
        });
        let epochs = (self.epochs.is_none() && self.max_steps.is_none())
            .then(|| format!("{epochs} epochs (--epochs)"));
        let chosen: Vec<String> = rate.into_iter().chain(epochs).collect();
        if !chosen.is_empty() {
            note!("{}", chosen.join(", "));
        }
        for &rate in rates {
            let unusual = match rate / usual_rate {
                ratio if ratio > UNUSUAL => "high: the loss will probably not fall",
                ratio if ratio < 1.0 / UNUSUAL => "low: the model will hardly change",
                _ => continue,
            };
            note!("a learning rate of {rate} is {unusual}; {usual_rate:e} is usual for this model");
        }
    }
}

/// Returns the number of epochs for this many steps an epoch.
fn usual_epochs(steps: u64) -> u32 {
    let enough = FEW_STEPS.div_ceil(steps.max(1)).min(MOST_EPOCHS);
    EPOCHS.max(enough as u32)
}

fn steps_of_an_epoch(sequences: &Sequences, batch: BatchSize) -> u64 {
    let (all, size) = match batch {
        BatchSize::Examples(count) => (sequences.examples(), count),
        BatchSize::Tokens(count) => (sequences.tokens(), count),
    };
    all.div_ceil(size) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn narrow_models_learn_faster_and_few_rows_are_read_more_often() {
        assert_eq!([128, 384, 768, 1024].map(usual_rate), [1e-3, 1e-4, 5e-5, 2e-5]);
        assert_eq!(usual_rates(768), RATES);
        assert_eq!(usual_rates(128), [2e-3, 1e-3, 5e-4, 2.5e-4]);
        assert_eq!([1, 10, 20, 49, 50, 5000].map(usual_epochs), [10, 10, 8, 4, 3, 3]);
    }

    #[test]
    fn part_of_an_epoch_is_refused_with_what_to_do() {
        assert_eq!(whole_epochs("3"), Ok(3));
        assert!(whole_epochs("1.5").unwrap_err().contains("--max-steps"));
        assert!(whole_epochs("many").unwrap_err().contains("whole number"));
    }
}
