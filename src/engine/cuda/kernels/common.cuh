// Shared by all kernels: element types, loads and stores of 16 bytes, sums over warps and blocks,
// and the random numbers of dropout. Needs no CUDA header. If CLOZE_EMULATED is defined, a C++
// compiler reads it, with emulator.hpp in place of the GPU.

#ifdef CLOZE_EMULATED
#include "emulator.hpp"
#endif

typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

static_assert(sizeof(u16) == 2 && sizeof(u32) == 4 && sizeof(u64) == 8, "sizes of integers");

// Elements: 0 for f32, 1 for bf16, 2 for f16. The two short ones are stored as bits.
#ifndef ELEMENT
#error "ELEMENT says what activations are stored as"
#endif

struct Bf16 {
    u16 bits;
};
struct F16 {
    u16 bits;
};

#if ELEMENT == 0
typedef float T;
#elif ELEMENT == 1
typedef Bf16 T;
#else
typedef F16 T;
#endif

// Elements of T in 16 bytes.
static constexpr u32 V = 16 / sizeof(T);

#define ALL 0xffffffffu

// A number as a type, for function templates.
template <u32 W> struct Count {
    static constexpr u32 N = W;
};

// The two values of the short type E in a word, the first in the low half.
template <typename E> struct Pair;

template <> struct Pair<Bf16> {
    static __device__ __forceinline__ float low(u32 word) { return __uint_as_float(word << 16); }
    static __device__ __forceinline__ float high(u32 word) { return __uint_as_float(word & 0xffff0000u); }
    // Rounds to nearest even.
    static __device__ __forceinline__ u32 of(float low, float high) {
#ifdef CLOZE_EMULATED
        return cloze::float_to_bf16(low) | (u32)cloze::float_to_bf16(high) << 16;
#else
        u32 word;
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
        return word;
#endif
    }
};

template <> struct Pair<F16> {
#ifdef CLOZE_EMULATED
    static float low(u32 word) { return cloze::f16_to_float((u16)word); }
    static float high(u32 word) { return cloze::f16_to_float((u16)(word >> 16)); }
    static u32 of(float low, float high) {
        return cloze::float_to_f16(low) | (u32)cloze::float_to_f16(high) << 16;
    }
#else
    static __device__ __forceinline__ float low(u32 word) {
        float x;
        asm("{.reg .b16 l, h; mov.b32 {l, h}, %1; cvt.f32.f16 %0, l;}" : "=f"(x) : "r"(word));
        return x;
    }
    static __device__ __forceinline__ float high(u32 word) {
        float x;
        asm("{.reg .b16 l, h; mov.b32 {l, h}, %1; cvt.f32.f16 %0, h;}" : "=f"(x) : "r"(word));
        return x;
    }
    static __device__ __forceinline__ u32 of(float low, float high) {
        u32 word;
        asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
        return word;
    }
#endif
};

__device__ __forceinline__ float to_float(float x) { return x; }
__device__ __forceinline__ float to_float(Bf16 x) { return Pair<Bf16>::low(x.bits); }
__device__ __forceinline__ float to_float(F16 x) { return Pair<F16>::low(x.bits); }

__device__ __forceinline__ void set(float &to, float x) { to = x; }
__device__ __forceinline__ void set(Bf16 &to, float x) { to.bits = (u16)Pair<Bf16>::of(x, 0.0f); }
__device__ __forceinline__ void set(F16 &to, float x) { to.bits = (u16)Pair<F16>::of(x, 0.0f); }

// 16 bytes that are loaded or stored at once.
struct alignas(16) Words {
    u32 word[4];
};
struct alignas(8) TwoWords {
    u32 word[2];
};

__device__ __forceinline__ bool aligned(const void *at) { return ((u64)at & 15) == 0; }

// A vector of elements E as loaded, to be widened where it is used.
template <typename E> struct Packed;

template <> struct Packed<float> {
    static constexpr u32 N = 4;
    Words words;
    __device__ __forceinline__ float get(u32 i) const { return __uint_as_float(words.word[i]); }
    __device__ __forceinline__ void put(const float *x) {
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            words.word[i] = __float_as_uint(x[i]);
        }
    }
};

template <typename E> struct Packed {
    static constexpr u32 N = 8;
    Words words;
    __device__ __forceinline__ float get(u32 i) const {
        u32 word = words.word[i / 2];
        return i % 2 ? Pair<E>::high(word) : Pair<E>::low(word);
    }
    __device__ __forceinline__ void put(const float *x) {
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            words.word[i] = Pair<E>::of(x[2 * i], x[2 * i + 1]);
        }
    }
};

// Hides a vector's contents from the compiler, so that values derived from it are recomputed
// instead of kept in registers.
template <typename E> __device__ __forceinline__ void forget(Packed<E> &x) {
#ifndef CLOZE_EMULATED
    u32 *w = x.words.word;
    asm volatile("" : "+r"(w[0]), "+r"(w[1]), "+r"(w[2]), "+r"(w[3]));
#endif
}

// Loads elements `first` to `first + N - 1` of a row of `width`, with zeros past its end. `whole`
// means that all vectors of all rows are complete and aligned.
template <typename E>
__device__ __forceinline__ Packed<E> load(const E *row, u32 first, u32 width, bool whole) {
    Packed<E> packed;
    if (whole && first < width) {
        packed.words = *(const Words *)(row + first);
    } else {
        float x[Packed<E>::N];
#pragma unroll
        for (u32 i = 0; i < Packed<E>::N; i++) {
            x[i] = !whole && first + i < width ? to_float(row[first + i]) : 0.0f;
        }
        packed.put(x);
    }
    return packed;
}

// Stores what [load] loads.
template <typename E>
__device__ __forceinline__ void store(E *row, u32 first, u32 width, bool whole, const Packed<E> &x) {
    if (!whole) {
#pragma unroll
        for (u32 i = 0; i < Packed<E>::N; i++) {
            if (first + i < width) {
                set(row[first + i], x.get(i));
            }
        }
    } else if (first < width) {
        *(Words *)(row + first) = x.words;
    }
}

// Loads N values of a row of parameters (f32) at any multiple of four bytes, with zeros past the
// end.
template <u32 N>
__device__ __forceinline__ void load_floats(const float *row, u32 first, u32 width, float *x) {
    if (first + N <= width && aligned(row + first)) {
#pragma unroll
        for (u32 i = 0; i < N; i += 4) {
            Words words = *(const Words *)(row + first + i);
#pragma unroll
            for (u32 j = 0; j < 4; j++) {
                x[i + j] = __uint_as_float(words.word[j]);
            }
        }
    } else {
#pragma unroll
        for (u32 i = 0; i < N; i++) {
            x[i] = first + i < width ? row[first + i] : 0.0f;
        }
    }
}

// Stores what [load_floats] loads.
template <u32 N>
__device__ __forceinline__ void store_floats(float *row, u32 first, u32 width, const float *x) {
    if (first + N <= width && aligned(row + first)) {
#pragma unroll
        for (u32 i = 0; i < N; i += 4) {
            Words words;
#pragma unroll
            for (u32 j = 0; j < 4; j++) {
                words.word[j] = __float_as_uint(x[i + j]);
            }
            *(Words *)(row + first + i) = words;
        }
    } else {
#pragma unroll
        for (u32 i = 0; i < N; i++) {
            if (first + i < width) {
                row[first + i] = x[i];
            }
        }
    }
}

// Returns the sum over the warp, in every lane.
__device__ __forceinline__ float warp_sum(float x) {
#pragma unroll
    for (int lane = 16; lane > 0; lane /= 2) {
        x += __shfl_xor_sync(ALL, x, lane);
    }
    return x;
}

__device__ __forceinline__ double warp_sum(double x) {
#pragma unroll
    for (int lane = 16; lane > 0; lane /= 2) {
        x += __shfl_xor_sync(ALL, x, lane);
    }
    return x;
}

__device__ __forceinline__ float warp_max(float x) {
#pragma unroll
    for (int lane = 16; lane > 0; lane /= 2) {
        x = fmaxf(x, __shfl_xor_sync(ALL, x, lane));
    }
    return x;
}

// 2^x and 1 / x to a relative error of about 2^-22, one instruction each.
__device__ __forceinline__ float power_of_two(float x) {
#ifdef CLOZE_EMULATED
    return exp2f(x);
#else
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
#endif
}

__device__ __forceinline__ float reciprocal(float x) {
#ifdef CLOZE_EMULATED
    return 1.0f / x;
#else
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
#endif
}

static constexpr float LOG2_E = 1.44269504088896341f;

__device__ __forceinline__ float fast_exp(float x) { return power_of_two(x * LOG2_E); }

// Dropout: the generator is Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1,
// 2, 3", SC 2011), with keys and counters as in src/random.rs.

#define DROPOUT                                                                                   \
    const u32 *state, const u32 *sequence_of_row, const u32 *positions, const u32 *examples,       \
        u32 site, u32 threshold, float kept_scale

struct Draws {
    u32 draw[4];
};

__device__ __forceinline__ Draws philox(u32 key0, u32 key1, u32 c0, u32 c1, u32 c2, u32 c3) {
#pragma unroll
    for (int round = 0; round < 10; round++) {
        u64 p0 = (u64)0xD2511F53u * c0, p1 = (u64)0xCD9E8D57u * c2;
        c0 = (u32)(p1 >> 32) ^ c1 ^ key0;
        c1 = (u32)p1;
        c2 = (u32)(p0 >> 32) ^ c3 ^ key1;
        c3 = (u32)p0;
        key0 += 0x9E3779B9u;
        key1 += 0xBB67AE85u;
    }
    return {{c0, c1, c2, c3}};
}

// Returns `x`, scaled, or 0, as bit `index` of `kept_bits` says.
__device__ __forceinline__ float drop(float x, u32 kept_bits, u32 index, float scale) {
    return kept_bits >> index & 1 ? x * scale : 0.0f;
}

// The random numbers of one example at one site and step.
struct Stream {
    u32 key0 = 0, key1 = 0, step = 0, site = 0, example = 0;

    __device__ __forceinline__ Stream() {}
    __device__ __forceinline__ Stream(const u32 *state, const u32 *examples, u32 site, u32 sequence)
        : key0(state[0]), key1(state[1]), step(state[2] ^ examples[2 * sequence + 1] * 0x9E3779B1u),
          site(site), example(examples[2 * sequence]) {}

    __device__ __forceinline__ Draws block(u32 block) const {
        return philox(key0, key1, block, step, site, example);
    }

    // Returns whether element `first + i` is kept, as bit i, for i under N, a multiple of 4. With
    // `whole`, `first` is a multiple of 4.
    template <u32 N> __device__ __forceinline__ u32 kept_bits(u32 first, u32 threshold, bool whole) const {
        u32 bits = 0;
        if (whole) {
#pragma unroll
            for (u32 i = 0; i < N; i += 4) {
                Draws draws = block((first + i) / 4);
#pragma unroll
                for (u32 j = 0; j < 4; j++) {
                    bits |= (u32)(draws.draw[j] >= threshold) << (i + j);
                }
            }
            return bits;
        }
        // The blocks that contain the elements, the first and the last in part.
        u32 skip = first % 4;
        u64 wide = 0;
#pragma unroll 1
        for (u32 i = 0; i < N + 4; i += 4) {
            Draws draws = block(first / 4 + i / 4);
#pragma unroll
            for (u32 j = 0; j < 4; j++) {
                wide |= (u64)(draws.draw[j] >= threshold) << (i + j);
            }
        }
        return (u32)(wide >> skip) & (N == 32 ? ALL : (1u << (N % 32)) - 1);
    }
};

// Dropout of one row of hidden states, or none without `state`. Without `sequence_of_row` a row is
// a sequence; without `positions` its position is 0.
struct RowDropout {
    Stream stream;
    u32 start = 0, threshold = 0;
    bool on = false;

    __device__ __forceinline__ RowDropout(u32 row, u32 width, DROPOUT) {
        if (state) {
            u32 sequence = sequence_of_row ? sequence_of_row[row] : row;
            stream = Stream(state, examples, site, sequence);
            start = positions ? positions[row] * width : 0;
            this->threshold = threshold;
            on = true;
        }
    }

    template <u32 N> __device__ __forceinline__ u32 kept_bits(u32 column, bool whole) const {
        return on ? stream.kept_bits<N>(start + column, threshold, whole) : ALL;
    }
};

// The arguments of RowDropout.
#define DROPPED state, sequence_of_row, positions, examples, site, threshold, kept_scale

// Loads a vector as f32.
__device__ __forceinline__ void widened(const T *row, u32 column, u32 width, bool whole, float *x) {
    Packed<T> packed = load(row, column, width, whole);
#pragma unroll
    for (u32 j = 0; j < V; j++) {
        x[j] = packed.get(j);
    }
}
