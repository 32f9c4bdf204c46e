//! Options and checks of the commands that train: `pretrain`, `distill`, `finetune`.

use std::path::{Path, PathBuf};

use serde::{Serialize, de::DeserializeOwned};

use super::checks::{at_least_one, from_zero, option_name, positive, refuse, same_place, share};
use super::engine::TrainingEngineArgs;
use crate::cli::shared::run_folder::Intent;
use crate::engine::optimizer::{Optimizer, Rule};
use crate::error::Result;
use crate::model::Config;
use crate::note;
use crate::train::checkpoint::State;
use crate::train::guard::{BadSteps, GuardSettings};
use crate::train::schedule::Decay;

#[derive(clap::Args)]
pub(crate) struct TrainingArgs {
    /// Sequences or rows that go through the model at once; the gradients of a step's parts are added up
    #[arg(long, value_name = "N")]
    micro_batch: Option<usize>,
    /// Share of the steps in which the learning rate rises [default: 0.1; when pre-training, that of the recipe]
    #[arg(long, value_name = "SHARE")]
    warmup: Option<f64>,
    /// How the learning rate falls after the warm-up [default: linear; when pre-training, that of the recipe]
    #[arg(long, value_enum)]
    schedule: Option<Decay>,
    /// How gradients become updates [default: adamw; when pre-training, that of the recipe]
    #[arg(long, value_enum)]
    optimizer: Option<Rule>,
    /// Added to the root of the mean squared gradient: Google's BERT has 1e-6, PyTorch and
    /// transformers' scripts 1e-8
    #[arg(long, default_value = "1e-6", value_name = "X")]
    adam_epsilon: f64,
    /// How much of the mean squared gradient each step keeps [default: 0.999, as in the paper; when
    /// pre-training, that of the recipe]
    #[arg(long, value_name = "X")]
    adam_beta2: Option<f64>,
    /// How much of itself a weight loses in a step, as a multiple of the learning rate; biases and
    /// LayerNorms lose nothing [default: 0.01; when pre-training, that of the recipe]
    #[arg(long, value_name = "X")]
    weight_decay: Option<f64>,
    /// Dropout in the encoder [default: as the model's configuration says; for new models as in the
    /// recipe]
    #[arg(long, value_name = "P")]
    dropout: Option<f64>,
    /// What to do when a step's loss or gradient is NaN or infinite, or its loss spikes
    #[arg(long, value_enum, default_value_t = BadSteps::Stop)]
    bad_steps: BadSteps,
    /// Loss above which a step is bad too, as a multiple of the running mean
    #[arg(long, value_name = "X")]
    spike: Option<f64>,
    /// Continue the run in --out; `finetune` prints the results of a run that has finished
    #[arg(long)]
    pub(crate) resume: bool,
    /// Start again in a folder that already holds a run or a model
    #[arg(long, conflicts_with = "resume")]
    overwrite: bool,
    #[command(flatten)]
    pub(crate) engine: TrainingEngineArgs,
    /// Print one JSON object on stdout
    #[arg(long)]
    pub(crate) json: bool,
}

impl TrainingArgs {
    pub(crate) fn check(&self) -> Result<()> {
        at_least_one([("--micro-batch", self.micro_batch.unwrap_or(1) as u64)])?;
        positive("--spike", self.spike.unwrap_or(2.0))?;
        share("--warmup", self.warmup.unwrap_or(0.0))?;
        share("--dropout", self.dropout.unwrap_or(0.0))?;
        positive("--adam-epsilon", self.adam_epsilon)?;
        share("--adam-beta2", self.adam_beta2.unwrap_or(0.0))?;
        from_zero("--weight-decay", self.weight_decay.unwrap_or(0.0))
    }

    /// Returns an error if the run would overwrite the model that it starts from, or a run or a model
    /// that is not to be overwritten.
    pub(crate) fn check_out(
        &self,
        out: &Path,
        from: Option<&Path>,
        unfinished: &[PathBuf],
        done: &[PathBuf],
    ) -> Result<()> {
        if out.is_file() {
            refuse!("--out {}: is a file; expected a folder", out.display());
        }
        if from.is_some_and(|from| same_place(from, out)) {
            let out = out.display();
            refuse!(
                "--out {out}: that is the model to start from, which would be lost: give another folder"
            );
        }
        Intent::of(self.resume, self.overwrite).check(out, unfinished, done)
    }

    /// Returns how many examples go through the model at once; 0 for all of a step.
    pub(crate) fn micro_batch(&self) -> usize {
        self.micro_batch.unwrap_or(0)
    }

    pub(crate) fn guard(&self) -> GuardSettings {
        GuardSettings { bad_steps: self.bad_steps, spike: self.spike }
    }

    /// Returns the share of the steps in which the learning rate rises, by default `usual`.
    pub(crate) fn warmup(&self, usual: f64) -> f64 {
        self.warmup.unwrap_or(usual)
    }

    /// Returns how the learning rate falls after the warm-up, by default as in `usual`.
    pub(crate) fn decay(&self, usual: Decay) -> Decay {
        self.schedule.unwrap_or(usual)
    }

    /// Returns `usual` with the given options.
    pub(crate) fn optimizer(&self, usual: Optimizer) -> Optimizer {
        Optimizer {
            rule: self.optimizer.unwrap_or(usual.rule),
            epsilon: self.adam_epsilon,
            beta2: self.adam_beta2.unwrap_or(usual.beta2),
            weight_decay: self.weight_decay.unwrap_or(usual.weight_decay),
            ..usual
        }
    }

    /// Sets the model's dropout if one was given.
    pub(crate) fn set_dropout(&self, config: &mut Config) {
        if let Some(p) = self.dropout {
            config.hidden_dropout_prob = p;
            config.attention_probs_dropout_prob = p;
        }
    }
}

/// Describes an optimizer for the records.
pub(crate) fn describe(optimizer: Optimizer) -> String {
    let o = optimizer;
    let (rule, epsilon, decay) = (option_name(o.rule), o.epsilon, o.weight_decay);
    let betas = format!("betas {} and {}", o.beta1, o.beta2);
    format!("{rule}, {betas}, epsilon {epsilon:e}, weight decay {decay}")
}

/// Reads the state of the run in `out`; prints a note if there is none.
pub(crate) fn read_state<R: Serialize + DeserializeOwned>(out: &Path) -> Result<Option<State<R>>> {
    let state = State::read(out)?;
    if state.is_none() {
        let out = out.display();
        note!("{out} holds no checkpoint: starting a fresh run");
    }
    Ok(state)
}

/// Formats a setting that may be absent.
pub(crate) fn or_empty(value: Option<impl ToString>) -> String {
    value.map_or_else(String::new, |value| value.to_string())
}

/// Formats the limit of `--spike`.
pub(crate) fn spike(guard: GuardSettings) -> String {
    guard.spike.map_or("none".into(), |x| x.to_string())
}

/// Prints on stderr how to continue a stopped run.
pub(crate) fn note_stopped(done: u64, planned: u64, which: &str) {
    note!(
        "stopped after step {done} of {planned}{which}: the same command with --resume continues it"
    );
}
