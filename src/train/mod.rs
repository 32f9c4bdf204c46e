//! Training: the loops of pre-training and fine-tuning, schedules, checkpoints, records, and the cost of a
//! run.

pub mod best;
#[cfg(feature = "charts")]
pub mod card;
#[cfg(feature = "charts")]
mod chart;
pub mod checkpoint;
mod corpus;
pub mod distill;
pub mod exam;
pub mod finetune;
pub mod finetuning;
pub mod guard;
pub mod identity;
pub mod loss;
pub mod parallel;
mod phases;
pub mod pretrain;
pub mod pretraining;
pub mod progress;
pub mod recipe;
#[cfg(feature = "charts")]
pub mod record;
pub mod report;
pub mod schedule;
pub mod series;
pub mod step;
pub mod stop;
mod stored;
pub mod task;

#[cfg(feature = "charts")]
pub use chart::pretraining_chart;
pub use distill::Teacher;
pub use finetune::Finetuner;
pub use finetuning::Finetuning;
pub use phases::FirstPhase;
pub use pretrain::{Pretrainer, Settings};
pub use pretraining::Pretraining;
pub use progress::Progress;
pub use recipe::Recipe;
#[cfg(feature = "charts")]
pub use record::Records;
pub use report::{EvalReport, History, Report, Silent, StepReport};
pub use schedule::Schedule;
pub use stop::Stop;
