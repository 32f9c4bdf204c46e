//! Downloads from a server in the test that misbehaves on request.

#[path = "../common/mod.rs"]
mod common;

mod data_sets;
mod hub;
mod server;
