//! Options of the update rule, the same wherever a model is trained.

use crate::engine::optimizer::{Optimizer, Rule};
use crate::error::Result;

use super::checks::{from_zero, option_name, positive, share};

#[derive(clap::Args)]
pub struct OptimizerArgs {
    /// What turns gradients into updates
    #[arg(long, value_enum, default_value_t = Rule::Adamw)]
    optimizer: Rule,
    /// Added to the root of the mean squared gradient: Google's BERT has 1e-6, PyTorch and
    /// transformers' scripts 1e-8
    #[arg(long, default_value = "1e-6", value_name = "X")]
    adam_epsilon: f64,
    /// How much of the mean squared gradient stays from step to step [default: 0.98 to pre-train, 0.999,
    /// as the paper, to fine-tune]
    #[arg(long, value_name = "X")]
    adam_beta2: Option<f64>,
    /// What weights lose in a step, as a share of themselves times the learning rate; biases and
    /// LayerNorms lose nothing
    #[arg(long, default_value_t = 0.01, value_name = "X")]
    weight_decay: f64,
}

impl OptimizerArgs {
    pub fn check(&self) -> Result<()> {
        positive("--adam-epsilon", self.adam_epsilon)?;
        share("--adam-beta2", self.adam_beta2.unwrap_or(0.0))?;
        from_zero("--weight-decay", self.weight_decay)
    }

    /// `usual` with what the command line says.
    pub fn over(&self, usual: Optimizer) -> Optimizer {
        Optimizer {
            rule: self.optimizer,
            epsilon: self.adam_epsilon,
            beta2: self.adam_beta2.unwrap_or(usual.beta2),
            weight_decay: self.weight_decay,
            ..usual
        }
    }

    /// In words, for the records.
    pub fn told(&self, usual: Optimizer) -> String {
        let Optimizer {
            rule,
            beta1,
            beta2,
            epsilon,
            weight_decay,
        } = self.over(usual);
        format!(
            "{}, betas {beta1} and {beta2}, epsilon {epsilon:e}, weight decay {weight_decay}",
            option_name(rule)
        )
    }
}
