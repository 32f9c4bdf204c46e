//! `cloze bench --gpu-selftest` as a user runs it; what it reports is tested in src/cli/bench/selftest.

use crate::common::{cloze, fails, stderr, words};

#[cfg(not(feature = "emulator"))]
#[test]
fn the_emulated_device_needs_a_feature() {
    let message = fails(["bench", "--gpu-selftest", "--emulate"], 2);
    assert!(message.contains("--features emulator"), "{message}");
}

#[test]
fn without_a_gpu_one_sentence_names_what_is_missing() {
    let output = cloze()
        .args(["bench", "--gpu-selftest"])
        // Hides any GPU of this machine.
        .env("CUDA_VISIBLE_DEVICES", "-1")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(output.stdout.is_empty());
    let message = stderr(&output);
    assert_eq!(message.trim_end().lines().count(), 1, "{message}");
    assert!(message.starts_with("error: ") && !message.contains("panicked"), "{message}");
}

#[test]
fn wrong_usage_is_refused() {
    for more in [
        "",
        " --emulate",
        " --gpu-selftest train",
        " --gpu-selftest --only everything",
        " --gpu-selftest --minutes -3",
    ] {
        fails(words(&format!("bench{more}")), 2);
    }
}
