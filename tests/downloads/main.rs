//! Downloads from a server in the test that misbehaves on request, and uploads to one.

#[path = "../common/mod.rs"]
mod common;

mod data_sets;
mod hub;
mod hub_data_sets;
mod push;
mod server;
