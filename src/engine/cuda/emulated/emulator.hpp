// Runs CUDA kernels on the processor, thread by thread, so that they are tested without a GPU.
//
// Every thread of a block is a fiber on one host thread; the blocks of a grid are distributed over
// host threads. A fiber runs until it waits for others: at __syncthreads for the block, at
// shuffles, votes, __syncwarp and tensor instructions for the lanes of its warp. Errors that depend
// on chance on a GPU become visible: warps and lanes start in an order that differs between blocks,
// shared memory is NaN (all bits set) before each block, and threads that wait at different places
// or write past the dynamic shared memory are errors.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

#include <atomic>

#include "launch.hpp"
#include "machine.hpp"
#include "numbers.hpp"
#include "types.hpp"
#include "warp.hpp"

// CUDA's names.

#define threadIdx (cloze::machine->running->thread)
#define blockIdx (cloze::machine->block)
#define blockDim (cloze::machine->block_size)
#define gridDim (cloze::machine->blocks)

// The location of a call, as the default of its last argument.
#define CLOZE_HERE cloze::Place place = {__builtin_FILE(), __builtin_LINE()}
inline void __syncthreads(CLOZE_HERE) { cloze::machine->barrier(place); }
inline void __syncwarp(unsigned mask = 0xFFFFFFFF, CLOZE_HERE) {
    cloze::machine->warp(mask, cloze::nothing, nullptr, place);
}
template <class V>
V __shfl_sync(unsigned mask, V value, unsigned lane, unsigned width = 32, CLOZE_HERE) {
    return cloze::shuffle(mask, value, cloze::source(cloze::INDEX, lane, width), place);
}
template <class V>
V __shfl_up_sync(unsigned mask, V value, unsigned by, unsigned width = 32, CLOZE_HERE) {
    return cloze::shuffle(mask, value, cloze::source(cloze::UP, by, width), place);
}
template <class V>
V __shfl_down_sync(unsigned mask, V value, unsigned by, unsigned width = 32, CLOZE_HERE) {
    return cloze::shuffle(mask, value, cloze::source(cloze::DOWN, by, width), place);
}
template <class V>
V __shfl_xor_sync(unsigned mask, V value, unsigned by, unsigned width = 32, CLOZE_HERE) {
    return cloze::shuffle(mask, value, cloze::source(cloze::XOR, by, width), place);
}
inline unsigned __ballot_sync(unsigned mask, bool yes, CLOZE_HERE) {
    return cloze::vote(mask, yes, place);
}
inline bool __any_sync(unsigned mask, bool yes, CLOZE_HERE) {
    return cloze::vote(mask, yes, place) != 0;
}
inline bool __all_sync(unsigned mask, bool yes, CLOZE_HERE) {
    return cloze::vote(mask, !yes, place) == 0;
}

inline void __threadfence() { std::atomic_thread_fence(std::memory_order_seq_cst); }
inline void __threadfence_block() {}
inline unsigned atomicAdd(unsigned* at, unsigned by) {
    return __atomic_fetch_add(at, by, __ATOMIC_SEQ_CST);
}
inline unsigned atomicExch(unsigned* at, unsigned value) {
    return __atomic_exchange_n(at, value, __ATOMIC_SEQ_CST);
}
inline unsigned atomicCAS(unsigned* at, unsigned expected, unsigned value) {
    __atomic_compare_exchange_n(at, &expected, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
    return expected;
}

using std::isfinite;
using std::isinf;
using std::isnan;
inline float __uint_as_float(unsigned bits) { return cloze::from_bits(bits); }
inline unsigned __float_as_uint(float value) { return cloze::to_bits(value); }
inline float __int_as_float(int bits) { return cloze::from_bits(unsigned(bits)); }
inline int __float_as_int(float value) { return int(cloze::to_bits(value)); }
inline unsigned __umulhi(unsigned a, unsigned b) { return unsigned(uint64_t(a) * b >> 32); }
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __clz(int x) { return x ? __builtin_clz(unsigned(x)) : 32; }
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned by) {
    return unsigned((uint64_t(high) << 32 | low) >> (by & 31));
}
inline float __expf(float x) { return expf(x); }
inline float __logf(float x) { return logf(x); }
inline float __fdividef(float a, float b) { return a / b; }
inline float __frcp_rn(float x) { return 1.0f / x; }
inline float __fsqrt_rn(float x) { return sqrtf(x); }
inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
template <class V> V __ldg(const V* at) { return *at; }
template <class V> constexpr V min(V a, V b) { return b < a ? b : a; }
template <class V> constexpr V max(V a, V b) { return a < b ? b : a; }
inline float min(float a, float b) { return fminf(a, b); }
inline float max(float a, float b) { return fmaxf(a, b); }
