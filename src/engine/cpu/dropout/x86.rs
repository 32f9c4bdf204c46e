//! Philox in x86-64 instructions: draws 64 numbers at a time and returns only whether each is kept.

use std::arch::x86_64::*;

use crate::random::{MULTIPLIER, Stream, WEYL};

/// The target bits of the mask of word 0: draw `4 · block + word` is bit `word` of nibble `block`.
const NIBBLES: u64 = 0x1111_1111_1111_1111;

/// Returns the upper and lower halves of the products of 16 numbers with `m`.
#[inline]
#[target_feature(enable = "avx512f")]
fn halves_512(x: __m512i, m: __m512i) -> (__m512i, __m512i) {
    let even = _mm512_mul_epu32(x, m);
    let odd = _mm512_mul_epu32(_mm512_srli_epi64::<32>(x), m);
    let high = _mm512_mask_blend_epi32(0xAAAA, _mm512_srli_epi64::<32>(even), odd);
    let low = _mm512_mask_blend_epi32(0xAAAA, even, _mm512_slli_epi64::<32>(odd));
    (high, low)
}

/// Returns whether element `64 · group + i` of the stream is at least `threshold`, as bit i.
#[inline]
#[target_feature(enable = "avx512f,bmi2")]
pub fn kept_512(stream: &Stream, group: u32, threshold: u32) -> u64 {
    let (key, words) = stream.key_and_counter();
    let (mut key0, mut key1) = (key as u32, (key >> 32) as u32);
    let m0 = _mm512_set1_epi32(MULTIPLIER[0] as i32);
    let m1 = _mm512_set1_epi32(MULTIPLIER[1] as i32);
    let lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    let first = _mm512_set1_epi32(group.wrapping_mul(16) as i32);
    let mut c0 = _mm512_add_epi32(first, lanes);
    let mut c1 = _mm512_set1_epi32(words[0] as i32);
    let mut c2 = _mm512_set1_epi32(words[1] as i32);
    let mut c3 = _mm512_set1_epi32(words[2] as i32);
    // 0x96 is the truth table of a ^ b ^ c.
    for _ in 0..10 {
        let (high0, low0) = halves_512(c0, m0);
        let (high1, low1) = halves_512(c2, m1);
        c0 = _mm512_ternarylogic_epi32::<0x96>(high1, c1, _mm512_set1_epi32(key0 as i32));
        c1 = low1;
        c2 = _mm512_ternarylogic_epi32::<0x96>(high0, c3, _mm512_set1_epi32(key1 as i32));
        c3 = low0;
        key0 = key0.wrapping_add(WEYL[0]);
        key1 = key1.wrapping_add(WEYL[1]);
    }
    let threshold = _mm512_set1_epi32(threshold as i32);
    let mut bits = 0;
    for (word, draws) in [c0, c1, c2, c3].into_iter().enumerate() {
        let kept = _mm512_cmpge_epu32_mask(draws, threshold);
        bits |= _pdep_u64(u64::from(kept), NIBBLES << word);
    }
    bits
}

/// Like [`halves_512`] for 8 numbers.
#[inline]
#[target_feature(enable = "avx2")]
fn halves_256(x: __m256i, m: __m256i) -> (__m256i, __m256i) {
    let even = _mm256_mul_epu32(x, m);
    let odd = _mm256_mul_epu32(_mm256_srli_epi64::<32>(x), m);
    let high = _mm256_blend_epi32::<0xAA>(_mm256_srli_epi64::<32>(even), odd);
    let low = _mm256_blend_epi32::<0xAA>(even, _mm256_slli_epi64::<32>(odd));
    (high, low)
}

/// Like [`kept_512`], in two halves.
#[inline]
#[target_feature(enable = "avx2,bmi2")]
pub fn kept_256(stream: &Stream, group: u32, threshold: u32) -> u64 {
    let (key, words) = stream.key_and_counter();
    let m0 = _mm256_set1_epi32(MULTIPLIER[0] as i32);
    let m1 = _mm256_set1_epi32(MULTIPLIER[1] as i32);
    let lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    let mut bits = 0;
    for half in 0..2 {
        let (mut key0, mut key1) = (key as u32, (key >> 32) as u32);
        let first = group.wrapping_mul(16).wrapping_add(8 * half);
        let mut c0 = _mm256_add_epi32(_mm256_set1_epi32(first as i32), lanes);
        let mut c1 = _mm256_set1_epi32(words[0] as i32);
        let mut c2 = _mm256_set1_epi32(words[1] as i32);
        let mut c3 = _mm256_set1_epi32(words[2] as i32);
        for _ in 0..10 {
            let (high0, low0) = halves_256(c0, m0);
            let (high1, low1) = halves_256(c2, m1);
            let (k0, k1) = (_mm256_set1_epi32(key0 as i32), _mm256_set1_epi32(key1 as i32));
            c0 = _mm256_xor_si256(_mm256_xor_si256(high1, c1), k0);
            c1 = low1;
            c2 = _mm256_xor_si256(_mm256_xor_si256(high0, c3), k1);
            c3 = low0;
            key0 = key0.wrapping_add(WEYL[0]);
            key1 = key1.wrapping_add(WEYL[1]);
        }
        let threshold = _mm256_set1_epi32(threshold as i32);
        for (word, draws) in [c0, c1, c2, c3].into_iter().enumerate() {
            // The larger of both is the draw if draw >= threshold, unsigned.
            let kept = _mm256_cmpeq_epi32(_mm256_max_epu32(draws, threshold), draws);
            let kept = _mm256_movemask_ps(_mm256_castsi256_ps(kept)) as u64;
            bits |= _pdep_u64(kept, NIBBLES << word) << (32 * half);
        }
    }
    bits
}
