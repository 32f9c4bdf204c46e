//! Tests what launches reject, and how kernels are found. The self-test's checks compare kernels
//! with the CPU engine ([`crate::engine::cuda::selftest`]).

mod compiled;

use super::*;
use crate::engine::cuda::emulated::for_tests;

const ELEMENTS: [Element; 3] = [Element::F32, Element::Bf16, Element::F16];

#[test]
fn every_kernel_is_found_by_its_name() {
    let names: Vec<&str> = SOURCES.iter().flat_map(|s| s.kernels()).collect();
    assert!(SOURCES.iter().all(|s| s.kernels().count() > 0));
    for (i, name) in names.iter().enumerate() {
        let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        assert!(!name.is_empty() && name.chars().all(word), "{name}");
        assert!(!names[..i].contains(name), "two kernels are called {name}");
    }
    // As many as there are `__global__` functions.
    let declared = |s: &Source| s.text.matches("__global__").count();
    assert_eq!(names.len(), SOURCES.iter().map(declared).sum::<usize>());
    assert_eq!(Source::of("adamw").map(|s| s.name), Some("optimizer.cu"));
    assert_eq!(Source::of("adam"), None);
}

#[test]
fn a_layer_norm_wider_than_all_threads_is_rejected() {
    let Some(mut device) = for_tests() else {
        return;
    };
    let at = NormBackward { n: 1, width: 5200, ..NormBackward::default() };
    let error = norm_backward(&mut device, Element::Bf16, &at).unwrap_err();
    assert_eq!(
        error.to_string(),
        "a LayerNorm 5200 wide is more than the CUDA engine can train: at most 5120"
    );
}

#[test]
fn attention_rejects_long_sequences_and_wide_heads() {
    let Some(mut device) = for_tests() else {
        return;
    };
    let batch = Batch { rows: 5000, sequences: 1, longest: 5000, ..Batch::default() };
    let mut message = |batch: &Batch, size| {
        let heads = Heads { count: 1, size, causal: false, tf32: false };
        let (element, none) = (Element::F32, Address::NONE);
        let pass = AttentionForward { qkv: none, context: none, log_sums: none, kept: none };
        let error = attention_forward(&mut device, element, batch, heads, None, &pass);
        error.unwrap_err().to_string()
    };
    assert!(message(&batch, 64).contains("4096"));
    assert!(message(&batch, 129).contains("128"));
}
