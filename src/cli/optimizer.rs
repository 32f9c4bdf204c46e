//! The options of the optimizer, for all commands that train.

use crate::engine::optimizer::{Optimizer, Rule};
use crate::error::Result;

use super::checks::{from_zero, option_name, positive, share};

#[derive(clap::Args)]
pub struct OptimizerArgs {
    /// Optimizer
    #[arg(long, value_enum, default_value_t = Rule::Adamw)]
    optimizer: Rule,
    /// Adam's epsilon: Google's BERT has 1e-6, PyTorch and transformers' scripts 1e-8
    #[arg(long, default_value = "1e-6", value_name = "X")]
    adam_epsilon: f64,
    /// Adam's second beta, the decay of the mean squared gradient [default: 0.98 to pre-train; to
    /// fine-tune 0.999, as in the paper]
    #[arg(long, value_name = "X")]
    adam_beta2: Option<f64>,
    /// Decoupled weight decay; biases and LayerNorms have none
    #[arg(long, default_value_t = 0.01, value_name = "X")]
    weight_decay: f64,
}

impl OptimizerArgs {
    pub fn check(&self) -> Result<()> {
        positive("--adam-epsilon", self.adam_epsilon)?;
        share("--adam-beta2", self.adam_beta2.unwrap_or(0.0))?;
        from_zero("--weight-decay", self.weight_decay)
    }

    /// Returns `usual` with the options of the command line.
    pub fn over(&self, usual: Optimizer) -> Optimizer {
        Optimizer {
            rule: self.optimizer,
            epsilon: self.adam_epsilon,
            beta2: self.adam_beta2.unwrap_or(usual.beta2),
            weight_decay: self.weight_decay,
            ..usual
        }
    }

    /// Describes the optimizer for the records.
    pub fn describe(&self, usual: Optimizer) -> String {
        let Optimizer { rule, beta1, beta2, epsilon, weight_decay } = self.over(usual);
        format!(
            "{}, betas {beta1} and {beta2}, epsilon {epsilon:e}, weight decay {weight_decay}",
            option_name(rule)
        )
    }
}
