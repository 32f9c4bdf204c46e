// What attention on tensor cores (flash.cuh) does differently in f32. Factors are TF32 numbers, which
// have eleven bits, in one of two accuracies:
//
//   exact: each factor is the sum of two TF32 numbers, and three products of these are added up;
//          the fourth and what the second number lacks are about 2^-21 of the whole
//   fast:  each factor is rounded
//
// Rows in shared memory take twice as many bytes as those of 16-bit elements, so tiles have half as
// many rows, and left factors are read again for every tile.
//
// ldmatrix treats eight rows of four f32 values as an 8 × 8 matrix of halves, and a lane gets one of
// the values. It can't transpose those, so that rows as the inner dimension are read as vectors: a
// lane has four neighbouring columns of a row, which are columns g of four tiles. The inner dimension
// is permuted, so that accumulators are left factors in the same registers: the products' t is
// column 2t of a tile of scores, and their t + 4 is column 2t + 1.

static_assert(TILE == STEP, "a tile's scores are computed together");

// Numbers as factors: `rest` is what `rounded` lacks, only if products are exact. The tensor cores cut
// off the bits of `rest` that TF32 lacks.
template <bool EXACT> struct Factors {
    u32 rounded[4], rest[4];

    // `x` is rounded already unless products are exact.
    __device__ __forceinline__ void set(const u32 (&x)[4]) {
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            rounded[i] = x[i];
            if (EXACT) {
                // If `x` isn't finite, `rest` is NaN.
                rounded[i] = (x[i] + 0x1000u) & 0xffffe000u;
                rest[i] = __float_as_uint(__uint_as_float(x[i]) - __uint_as_float(rounded[i]));
            }
        }
    }
    // Accumulators of a tile as a left factor.
    __device__ __forceinline__ void set(const float (&c)[4]) {
        u32 x[4];
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            const float value = c[i % 2 * 2 + i / 2];
            x[i] = EXACT ? __float_as_uint(value) : to_tf32(value);
        }
        set(x);
    }
};

// c += a b, where b0 and b1 are the i-th of `low` and the j-th of `high`.
template <bool EXACT>
__device__ __forceinline__ void multiply(float (&c)[4], const Factors<EXACT> &a, const Factors<EXACT> &low,
                                         u32 i, const Factors<EXACT> &high, u32 j) {
    if (EXACT) {
        mma_tf32(c, a.rest, low.rounded[i], high.rounded[j]);
        mma_tf32(c, a.rounded, low.rest[i], high.rest[j]);
    }
    mma_tf32(c, a.rounded, low.rounded[i], high.rounded[j]);
}

// Rounds what this thread has fetched (see fetch), unless products are exact: before the barrier,
// once instead of in every warp.
template <bool EXACT, u32 D, u32 ROWS> __device__ __forceinline__ void round(unsigned char *rows) {
    if (EXACT) {
        return;
    }
    constexpr u32 PIECES = Rows<D>::PIECES;
    const u32 own = Rows<D>::at(threadIdx.x / PIECES, threadIdx.x % PIECES);
#pragma unroll
    for (u32 i = 0; i < ROWS; i += THREADS / PIECES) {
        Words &words = *(Words *)(rows + i * Rows<D>::BYTES + (own ^ Rows<D>::swizzle(i) * 16));
        Words rounded = words;
#pragma unroll
        for (u32 e = 0; e < 4; e++) {
            rounded.word[e] = to_tf32(__uint_as_float(rounded.word[e]));
        }
        words = rounded;
    }
}

// The addresses at which a lane reads, see `place`.
template <u32 D> struct Readers {
    // Left factors with rows in order; with rows dealt, the upper eight first; right factors with rows
    // as the inner dimension.
    u32 ordered, sorted, inner;
    Right<D> right;

    __device__ __forceinline__ explicit Readers(const Lane &lane)
        : ordered(Rows<D>::at(lane.l % 16, lane.l / 16)),
          sorted(Rows<D>::at(dealt(lane.l / 8 % 2, lane.l % 8), lane.l / 16)),
          inner(Rows<D>::at(4 * lane.t, lane.g)), right(lane) {}
};

// Whether the vectors that a quarter of a warp reads at once lie in different banks.
template <u32 D> constexpr __device__ bool vectors_apart() {
    for (u32 first = 0; first < 32; first += 8) {
        u32 banks = 0;
        for (u32 l = first; l < first + 8; l++) {
            banks |= 1u << Rows<D>::at(l % 4 * 4, l / 4) / 16 % 8;
        }
        if (banks != 255) {
            return false;
        }
    }
    return true;
}
static_assert(vectors_apart<64>() && vectors_apart<32>(), "");

// Computes the products of 16 M rows, from `lefts` on and at the lane's address `at`, with the rows of
// a tile.
template <bool EXACT, u32 D, u32 M>
__device__ __forceinline__ void products(float (&c)[M][TILE / 8][4], const unsigned char *lefts, u32 at,
                                         const unsigned char *tile, const Right<D> &right) {
#pragma unroll
    for (u32 m = 0; m < M; m++) {
        clear(c[m]);
    }
#pragma unroll
    for (u32 i = 0; i < D / 8; i++) {
        Factors<EXACT> a[M], b;
        u32 words[4];
#pragma unroll
        for (u32 m = 0; m < M; m++) {
            load_matrices(words, place(lefts, m * 16 * Rows<D>::BYTES, at, i));
            a[m].set(words);
        }
#pragma unroll
        for (u32 j = 0; j < TILE / 16; j++) {
            right.columns(words, tile, j * 16, i);
            b.set(words);
#pragma unroll
            for (u32 m = 0; m < M; m++) {
                multiply(c[m][2 * j], a[m], b, 0, b, 1);
                multiply(c[m][2 * j + 1], a[m], b, 2, b, 3);
            }
        }
    }
}

// Adds the products of accumulators, whose columns are the rows of a tile, with these rows. Columns
// 2t and 2t + 1 of the x-th of each four tiles of `sums` are values 8t + x and 8t + 4 + x of 32.
template <bool EXACT, u32 D, u32 M>
__device__ __forceinline__ void add_rows(float (&sums)[M][D / 8][4], const float (&factors)[M][TILE / 8][4],
                                         const unsigned char *tile, u32 inner) {
#pragma unroll
    for (u32 n = 0; n < TILE / 8; n++) {
        Factors<EXACT> a[M];
#pragma unroll
        for (u32 m = 0; m < M; m++) {
            a[m].set(factors[m][n]);
        }
        // The rows of columns 2t and 2t + 1, less 4t.
        const u32 low = n / 2 * 16 + n % 2 * 2, high = low + 1;
#pragma unroll
        for (u32 half = 0; half < D / 32; half++) {
            const unsigned char *const of_half = tile + half * 128;
            Factors<EXACT> b0, b1;
            b0.set(((const Words *)(of_half + low * Rows<D>::BYTES + (inner ^ Rows<D>::swizzle(low) * 16)))->word);
            b1.set(((const Words *)(of_half + high * Rows<D>::BYTES + (inner ^ Rows<D>::swizzle(high) * 16)))->word);
#pragma unroll
            for (u32 x = 0; x < 4; x++) {
#pragma unroll
                for (u32 m = 0; m < M; m++) {
                    multiply(sums[m][4 * half + x], a[m], b0, x, b1, x);
                }
            }
        }
    }
}

// Stores a warp's sums of [add_rows] times `scale`, up to the end of the sequence. `row_of[0]` and [1]
// are the rows of c[0], c[1] and of c[2], c[3].
template <u32 D>
__device__ __forceinline__ void store(float *to, u32 stride, u32 first, u32 length, const float (&c)[D / 8][4],
                                      const float (&scale)[2], const u32 (&row_of)[2], const Lane &lane) {
#pragma unroll
    for (u32 i = 0; i < 4; i++) {
        const u32 row = first + row_of[i / 2];
        if (row < length) {
            float *const own = to + (u64)row * stride + 8 * lane.t + i % 2 * 4;
#pragma unroll
            for (u32 n = 0; n < D / 8; n += 4) {
                Words words;
#pragma unroll
                for (u32 x = 0; x < 4; x++) {
                    words.word[x] = __float_as_uint(c[n + x][i] * scale[i / 2]);
                }
                *(Words *)(own + n * 8) = words;
            }
        }
    }
}
