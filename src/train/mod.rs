//! Training: optimizer, schedule, checkpoints, the loop, and what a run costs.

pub mod best;
pub mod budget;
pub mod card;
pub mod checkpoint;
pub mod distill;
pub mod finetune;
pub mod folder;
pub mod guard;
mod loss_scale;
pub mod optimizer;
pub mod pretrain;
pub mod record;
pub mod report;
pub mod schedule;
pub mod series;
pub mod speed;
pub mod stop;

pub use distill::Teacher;
pub use finetune::Finetuner;
pub use loss_scale::LossScale;
pub use pretrain::{FirstPhase, Pretrainer, Settings};
pub use record::Records;
pub use report::{EvalReport, History, Report, Silent, StepReport};
pub use schedule::Schedule;
pub use stop::Stop;
