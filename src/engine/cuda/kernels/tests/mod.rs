//! What launches refuse, and how kernels are found. That they compute what the CPU engine computes is
//! tested where the self-test's checks are ([`crate::engine::cuda::selftest`]).

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
    // As many as there are functions that a GPU starts.
    let declared = |s: &Source| s.text.matches("__global__").count();
    assert_eq!(names.len(), SOURCES.iter().map(declared).sum::<usize>());
    assert_eq!(Source::of("adamw").map(|s| s.name), Some("optimizer.cu"));
    assert_eq!(Source::of("adam"), None);
}

#[test]
fn a_width_beyond_all_threads_is_refused() {
    let Some(mut device) = for_tests() else {
        return;
    };
    let none = Address::NONE;
    let at = NormBackward {
        n: 1,
        width: 5200,
        gain: none,
        sums: none,
        statistics: none,
        dropout: None,
        d_out: none,
        d_residual: none,
        d_linear: none,
        gain_gradient: none,
        bias_gradient: none,
        linear_bias_gradient: none,
        partials: none,
    };
    let error = norm_backward(&mut device, Element::Bf16, &at).unwrap_err();
    assert_eq!(
        error.to_string(),
        "a LayerNorm 5200 wide is more than the CUDA engine can train: at most 5120"
    );
}

#[test]
fn what_attention_cannot_do_it_says() {
    let Some(mut device) = for_tests() else {
        return;
    };
    let none = Address::NONE;
    let batch = Batch {
        rows: 5000,
        sequences: 1,
        longest: 5000,
        ids: none,
        segments: none,
        positions: none,
        cu_seqlens: none,
        sequence_of_row: none,
        examples: none,
        word_order: none,
        word_starts: none,
        words: 0,
    };
    let mut said = |batch: &Batch, size| {
        let heads = Heads {
            count: 1,
            size,
            causal: false,
        };
        let element = Element::F32;
        attention_forward(&mut device, element, batch, heads, None, none, none, none)
            .unwrap_err()
            .to_string()
    };
    assert!(said(&batch, 64).contains("4096"));
    assert!(said(&batch, 129).contains("128"));
}
