//! Training: optimizer, schedule, checkpoints, the loop.

pub mod optimizer;
pub mod schedule;
