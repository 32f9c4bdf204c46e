// Self-attention over packed sequences on tensor cores (Dao, "FlashAttention-2", arXiv 2307.08691),
// for heads 32 or 64 wide. Scores are never stored. This is what elements of two bytes and f32 have
// in common; flash32.cuh says what differs in f32.
//
// Forward and the gradient of queries assign queries to each warp and loop over keys; the gradient
// of keys and values assigns keys to each warp and loops over queries, with the scores transposed.
// So the accumulators of one product are, in the same registers, the left factor of the next: only
// the four matrices go through shared memory, warps synchronise only to load a tile, and no sum is
// shared, which makes results reproducible. The price is that the backward pass computes scores
// and their gradients twice (seven products instead of five). Arithmetic is cheap here; the
// alternative is to write and read the gradient of queries for every tile of keys.
//
// Dropout uses four consecutive keys of a query from one call of the generator. The calls take about
// as long as the products of forward, so forward stores which probabilities it kept, a bit for each
// (see Kept), and the backward pass reads them. Because of these calls, sixteen
// rows that are the columns of two tiles (and the inner dimension of the next product) are assigned
// so that a lane has rows 4t to 4t + 3 of them, instead of 2t, 2t + 1, 2t + 8 and 2t + 9: rows of
// shared memory are read in that order, at no cost.

static constexpr u32 THREADS = 128;
// Rows of a tile of the looped matrix.
static constexpr u32 TILE = 128 / sizeof(T);
// Rows of it whose scores are computed together.
static constexpr u32 STEP = 32;
// The stride of queries in calls of the generator, of four numbers each.
static constexpr u32 CALLS = STRIDE / 4;
static constexpr float LN_2 = 0.693147180559945309f;

// The lane's position in fragments, see tensor.cuh.
struct Lane {
    u32 l, g, t;

    __device__ __forceinline__ Lane() : l(threadIdx.x % 32), g(l / 4), t(l % 4) {}
};

// The layout of rows of D elements in shared memory: the 16-byte pieces of a row are permuted so
// that the eight rows of a matrix that ldmatrix reads lie in different banks, whether they are
// adjacent, as in left factors, or dealt, as in right ones (see below).
template <u32 D> struct Rows {
    static constexpr u32 PIECES = D / V, BYTES = sizeof(T) * D;

    static constexpr __device__ __forceinline__ u32 swizzle(u32 row) {
        const u32 second = (row >> 1 ^ row >> 3) & 1;
        return PIECES >= 8 ? (row & 1) | (row >> 1 & 2) | second << 2 : (row >> 2 & 1) | second << 1;
    }
    static constexpr __device__ __forceinline__ u32 at(u32 row, u32 piece) {
        return row * BYTES + (piece ^ swizzle(row)) * 16;
    }
};

// Returns the row at position `i` of eight in the `tile`-th of two tiles.
constexpr __device__ __forceinline__ u32 dealt(u32 tile, u32 i) { return 4 * (i / 2) + 2 * tile + i % 2; }

// Whether the first pieces of the eight rows of each of two tiles lie in different banks.
template <u32 D> constexpr __device__ bool apart(bool are_dealt) {
    for (u32 tile = 0; tile < 2; tile++) {
        u32 banks = 0;
        for (u32 i = 0; i < 8; i++) {
            const u32 row = are_dealt ? dealt(tile, i) : 8 * tile + i;
            banks |= 1u << Rows<D>::at(row, 0) / 16 % 8;
        }
        if (banks != 255) {
            return false;
        }
    }
    return true;
}
static_assert(apart<64>(false) && apart<64>(true) && apart<32>(false) && apart<32>(true), "");

// The addresses at which a lane reads matrices in shared memory. Sixteen rows further don't change
// the swizzle, and two pieces further are two bits of the address, so every address is one of the
// lane's own with constants added or xor-ed.
__device__ __forceinline__ const unsigned char *place(const unsigned char *rows, u32 bytes, u32 own, u32 k) {
    return rows + bytes + (own ^ 32 * k);
}

// Reads right factors.
template <u32 D> struct Right {
    u32 across, down;

    __device__ __forceinline__ explicit Right(const Lane &lane) {
        const u32 i = lane.l % 8, low = lane.l / 8 % 2, high = lane.l / 16;
        across = Rows<D>::at(dealt(high, i), low);
        down = Rows<D>::at(dealt(low, i), high);
    }

    // Rows as columns: elements 16 k to 16 k + 15 of 16 rows from `first`; b0 and b1 of the first
    // tile, then of the second.
    __device__ __forceinline__ void columns(u32 (&b)[4], const unsigned char *rows, u32 first, u32 k) const {
        load_matrices(b, place(rows, first * Rows<D>::BYTES, across, k));
    }
    // Rows as the inner dimension: b0 and b1 of elements 16 n to 16 n + 7, then of the next eight.
    __device__ __forceinline__ void inner(u32 (&b)[4], const unsigned char *rows, u32 first, u32 n) const {
        load_matrices_transposed(b, place(rows, first * Rows<D>::BYTES, down, n));
    }
};

// Reads a left factor: elements 16 k to 16 k + 15 of 16 rows in order from `first`, a multiple of
// 16.
template <u32 D>
__device__ __forceinline__ void left(u32 (&a)[4], const unsigned char *rows, u32 first, u32 k, const Lane &lane) {
    load_matrices(a, place(rows, first * Rows<D>::BYTES, Rows<D>::at(lane.l % 16, lane.l / 16), k));
}

// Starts loading ROWS rows from `first`, with zeros past the end of the sequence.
template <u32 D, u32 ROWS>
__device__ __forceinline__ void fetch(unsigned char *to, const T *from, u32 stride, u32 first, u32 length) {
    constexpr u32 PIECES = Rows<D>::PIECES, AT_ONCE = THREADS / PIECES;
    const u32 piece = threadIdx.x % PIECES, row = threadIdx.x / PIECES;
    const u32 own = Rows<D>::at(row, piece);
#pragma unroll
    for (u32 i = 0; i < ROWS; i += AT_ONCE) {
        const bool there = first + row + i < length;
        // Fits into 32 bits: 4096 rows of 2^20 elements.
        const T *source = from + ((there ? first + row + i : 0) * stride + piece * V);
        copy<16>(to + i * Rows<D>::BYTES + (own ^ Rows<D>::swizzle(i) * 16), source, there);
    }
}

#if ELEMENT != 0

// Stores a warp's 16 rows of sums times `scale`, up to the end of the sequence, through the warp's
// own shared memory. `row_of[0]` and [1] are the rows of c[0], c[1] and of c[2], c[3].
template <u32 D>
__device__ __forceinline__ void store(unsigned char *own, T *to, u32 stride, u32 first, u32 length,
                                      const float (&c)[D / 8][4], const float (&scale)[2],
                                      const u32 (&row_of)[2], const Lane &lane) {
    __syncwarp();
#pragma unroll
    for (u32 n = 0; n < D / 8; n++) {
#pragma unroll
        for (u32 half = 0; half < 2; half++) {
            *(u32 *)(own + Rows<D>::at(row_of[half], n) + lane.t * 4) =
                Pair<T>::of(c[n][2 * half] * scale[half], c[n][2 * half + 1] * scale[half]);
        }
    }
    __syncwarp();
    constexpr u32 PIECES = Rows<D>::PIECES;
    const u32 piece = lane.l % PIECES;
#pragma unroll
    for (u32 i = 0; i < 16; i += 32 / PIECES) {
        const u32 row = i + lane.l / PIECES;
        if (first + row < length) {
            *(Words *)(to + (u64)(first + row) * stride + piece * 8) =
                *(const Words *)(own + Rows<D>::at(row, piece));
        }
    }
}

// Which probabilities forward kept, in blocks of 32 queries and 32 keys. A block has a word for each
// lane, at 8 t + g: that lane of the warp that computed it drew for its queries g and g + 8 of each
// 16 (m, half) and its keys 4t to 4t + 3 of each 16 (j), and its word's bit 16 m + 8 j + 4 half + i
// is that of the i-th of these keys.
struct Kept {
    static constexpr u32 BLOCK = 32, WORDS = 32;

    u32 *all;
    // The first word of the head of the sequence, and the words of a row of blocks.
    u32 begin, row;

    // A sequence has at most one block of 64 rows more than its rows fill.
    __device__ __forceinline__ Kept(u32 *all, u32 key_blocks, const Part &part, u32 heads)
        : all(all), row(key_blocks * WORDS) {
        const u32 before = (part.start / 64 + part.sequence) * heads, own = (part.length + 63) / 64;
        begin = (before + part.head * own) * 2 * row;
    }
    // Returns the first word of the block of these; blocks have as many words as keys.
    __device__ __forceinline__ u32 block(u32 query, u32 key) const { return begin + query / BLOCK * row + key; }
    // Starts loading the four blocks of 64 queries and 64 keys.
    __device__ __forceinline__ void fetch(unsigned char *to, u32 query, u32 key) const {
        if (threadIdx.x < 32) {
            const u32 line = threadIdx.x / 16 * BLOCK, piece = threadIdx.x % 16;
            copy<16>(to + threadIdx.x * 16, all + block(query + line, key) + piece * 4, true);
        }
    }
};

// Returns the bit of the accumulator c[i] of the n-th tile of 8 keys, of the m-th 16 queries.
constexpr __device__ __forceinline__ u32 place_of(u32 m, u32 n, u32 i) {
    return 16 * m + n / 2 * 8 + i / 2 * 4 + n % 2 * 2 + i % 2;
}

static constexpr u32 KEPT_BYTES = 4 * Kept::WORDS * 4;

#endif

// Makes N calls of the generator at once, which share the keys of the rounds.
template <u32 N>
__device__ __forceinline__ void draw(u32 (&to)[N][4], const u32 (&calls)[N], const Stream &stream) {
    u32 key0 = stream.key0, key1 = stream.key1;
#pragma unroll
    for (u32 i = 0; i < N; i++) {
        to[i][0] = calls[i];
        to[i][1] = stream.step;
        to[i][2] = stream.site;
        to[i][3] = stream.example;
    }
#pragma unroll
    for (u32 round = 0; round < 10; round++) {
#pragma unroll
        for (u32 i = 0; i < N; i++) {
            const u64 p0 = (u64)0xD2511F53u * to[i][0], p1 = (u64)0xCD9E8D57u * to[i][2];
            to[i][0] = (u32)(p1 >> 32) ^ to[i][1] ^ key0;
            to[i][1] = (u32)p1;
            to[i][2] = (u32)(p0 >> 32) ^ to[i][3] ^ key1;
            to[i][3] = (u32)p0;
        }
        key0 += 0x9E3779B9u;
        key1 += 0xBB67AE85u;
    }
}

#if ELEMENT != 0

// Accumulators of two adjacent tiles as a left factor.
__device__ __forceinline__ void as_left(u32 (&a)[4], const float (&first)[4], const float (&second)[4]) {
    a[0] = Pair<T>::of(first[0], first[1]);
    a[1] = Pair<T>::of(first[2], first[3]);
    a[2] = Pair<T>::of(second[0], second[1]);
    a[3] = Pair<T>::of(second[2], second[3]);
}

#endif

template <u32 N> __device__ __forceinline__ void clear(float (&c)[N][4]) {
#pragma unroll
    for (u32 n = 0; n < N; n++) {
        c[n][0] = c[n][1] = c[n][2] = c[n][3] = 0.0f;
    }
}

// The parameters of all of these kernels after their buffers.
#define CALL                                                                                       \
    const u32 *cu_seqlens, u32 heads, u32 size, u32 blocks, u32 causal, float scale,               \
        const u32 *state, const u32 *examples, u32 site, u32 threshold, float kept_scale,          \
        u32 *all_kept, u32 key_blocks
#define SHARED_ARGUMENTS                                                                           \
    cu_seqlens, heads, size, blocks, causal, scale, state, examples, site, threshold, kept_scale,  \
        all_kept, key_blocks
