//! Philox in ARM64 instructions: draws 64 numbers at a time and returns only whether each is kept.

use std::arch::aarch64::*;

use crate::random::{MULTIPLIER, Stream, WEYL};

/// Returns the upper and lower halves of the products of 4 numbers with `m`.
#[inline]
#[target_feature(enable = "neon")]
fn halves(x: uint32x4_t, m: uint32x4_t) -> (uint32x4_t, uint32x4_t) {
    let first = vreinterpretq_u32_u64(vmull_u32(vget_low_u32(x), vget_low_u32(m)));
    let last = vreinterpretq_u32_u64(vmull_high_u32(x, m));
    (vuzp2q_u32(first, last), vuzp1q_u32(first, last))
}

/// Returns whether element `64 · group + i` of the stream is at least `threshold`, as bit i.
#[inline]
#[target_feature(enable = "neon")]
pub fn kept(stream: &Stream, group: u32, threshold: u32) -> u64 {
    let (key, words) = stream.key_and_counter();
    let (m0, m1) = (vdupq_n_u32(MULTIPLIER[0]), vdupq_n_u32(MULTIPLIER[1]));
    let threshold = vdupq_n_u32(threshold);
    let [lanes, nibbles] = [[0, 1, 2, 3], [1, 1 << 4, 1 << 8, 1 << 12]].map(|four: [u32; 4]| {
        // SAFETY: the array has the size of the register.
        unsafe { vld1q_u32(four.as_ptr()) }
    });
    let mut bits = 0;
    // Draw `4 · block + word` is bit `word` of nibble `block`.
    for quarter in 0..4 {
        let (mut key0, mut key1) = (key as u32, (key >> 32) as u32);
        let first = group.wrapping_mul(16).wrapping_add(4 * quarter);
        let mut c0 = vaddq_u32(vdupq_n_u32(first), lanes);
        let mut c1 = vdupq_n_u32(words[0]);
        let mut c2 = vdupq_n_u32(words[1]);
        let mut c3 = vdupq_n_u32(words[2]);
        for _ in 0..10 {
            let (high0, low0) = halves(c0, m0);
            let (high1, low1) = halves(c2, m1);
            c0 = veorq_u32(veorq_u32(high1, c1), vdupq_n_u32(key0));
            c1 = low1;
            c2 = veorq_u32(veorq_u32(high0, c3), vdupq_n_u32(key1));
            c3 = low0;
            key0 = key0.wrapping_add(WEYL[0]);
            key1 = key1.wrapping_add(WEYL[1]);
        }
        let word0 = vandq_u32(vcgeq_u32(c0, threshold), nibbles);
        let word1 = vandq_u32(vcgeq_u32(c1, threshold), vshlq_n_u32::<1>(nibbles));
        let word2 = vandq_u32(vcgeq_u32(c2, threshold), vshlq_n_u32::<2>(nibbles));
        let word3 = vandq_u32(vcgeq_u32(c3, threshold), vshlq_n_u32::<3>(nibbles));
        let all = vorrq_u32(vorrq_u32(word0, word1), vorrq_u32(word2, word3));
        bits |= u64::from(vaddvq_u32(all)) << (16 * quarter);
    }
    bits
}
