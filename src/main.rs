//! The `cloze` command.

fn main() {}
