//! Text and data: tokenization, pre-training examples, SQuAD's windows, answers and scores.

#[path = "../common/mod.rs"]
mod common;

mod pretraining_examples;
mod pretraining_store;
mod speedrun_text;
mod squad;
mod tokenizer;
