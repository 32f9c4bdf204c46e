//! What several commands share: groups of options, checks of values, and output.

pub(super) mod checks;
pub(super) mod classes;
pub(super) mod engine;
pub(super) mod memory;
pub(super) mod pretraining;
pub(super) mod programs;
pub(super) mod progress;
pub(super) mod ranks;
pub(super) mod records;
pub(super) mod run_folder;
pub(super) mod size;
pub(super) mod stdio;
pub(super) mod task;
pub(super) mod training;
