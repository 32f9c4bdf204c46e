//! Commands that train nothing, as a user runs them.

#[path = "../common/mod.rs"]
mod common;

mod attention;
mod bench_estimate;
mod bench_launches;
mod bench_scale;
mod bench_train;
mod convert;
mod features;
mod gpu_selftest;
mod output;
mod records;
mod review;
