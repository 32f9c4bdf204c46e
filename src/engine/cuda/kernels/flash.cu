// Self-attention over packed sequences on the tensor cores (Dao, "FlashAttention-2", arXiv
// 2307.08691), for elements of two bytes and heads 32 or 64 wide. No score is ever stored.
//
// Forward and the queries' gradient give each warp queries and go over the keys; the gradient of keys
// and values gives each warp keys and goes over the queries, with the scores transposed. So whatever
// a warp computes in the accumulators of one product is, in the same registers, the left factor of
// the next: nothing but the four matrices goes through shared memory, warps meet only where a tile is
// loaded, and no sum is shared, which makes the result the same in every run. The price is that the
// backward pass computes scores, their gradients and the random numbers twice (seven products instead
// of five): it is paid in arithmetic, of which there is plenty where the queries' gradient would
// otherwise go to memory and back for every tile of keys.
//
// Dropout takes four consecutive keys of a query from one call of the generator. Sixteen rows that
// are the columns of two tiles (and the inner dimension of the next product) are therefore dealt out
// so that a lane has rows 4t to 4t + 3 of them, instead of 2t, 2t + 1, 2t + 8 and 2t + 9: rows of
// shared memory are read in that order, which costs nothing.

#if ELEMENT != 0

static constexpr u32 THREADS = 128;
// Rows of a tile of what is gone over.
static constexpr u32 TILE = 64;
// Rows of it whose scores are computed together.
static constexpr u32 STEP = 32;
// From query to query and head to head in the stream of random numbers, in calls of four.
static constexpr u32 STRIDE = 4096, CALLS = STRIDE / 4;
static constexpr float LN_2 = 0.693147180559945309f;

#define MINUS_INFINITY __uint_as_float(0xff800000u)

// What lane l is among the lanes of a fragment, see tensor.cuh.
struct Lane {
    u32 l, g, t;

    __device__ __forceinline__ Lane() : l(threadIdx.x % 32), g(l / 4), t(l % 4) {}
};

// Where rows of D elements lie in shared memory: 16-byte pieces of a row change places so that the
// eight rows of a matrix that ldmatrix reads, in the order dealt out above, lie in different banks.
template <u32 D> struct Rows {
    static constexpr u32 PIECES = D / 8, BYTES = 2 * D;

    static __device__ __forceinline__ u32 swizzle(u32 row) {
        return D == 64 ? (row & 1) | (row >> 1 & 6) : row >> 2 & 3;
    }
    static __device__ __forceinline__ u32 at(u32 row, u32 piece) {
        return row * BYTES + (piece ^ swizzle(row)) * 16;
    }
};

// The row that stands at place `i` of eight in the `tile`-th of two tiles.
__device__ __forceinline__ u32 dealt(u32 tile, u32 i) { return 4 * (i / 2) + 2 * tile + i % 2; }

// Reads right factors from rows in shared memory. Sixteen rows further on change no swizzle, so an
// address is the lane's own plus a constant, but for the piece.
template <u32 D> struct Right {
    u32 across, across_piece, down, down_piece;

    __device__ __forceinline__ explicit Right(const Lane &lane) {
        const u32 i = lane.l % 8, low = lane.l / 8 % 2, high = lane.l / 16;
        across = dealt(high, i) * Rows<D>::BYTES;
        across_piece = low ^ Rows<D>::swizzle(dealt(high, i));
        down = dealt(low, i) * Rows<D>::BYTES;
        down_piece = high ^ Rows<D>::swizzle(dealt(low, i));
    }

    // Rows as columns: of 16 rows from `first` on, elements 16 k to 16 k + 15; b0 and b1 of the first
    // tile, then of the second.
    __device__ __forceinline__ void columns(u32 (&b)[4], const unsigned char *rows, u32 first, u32 k) const {
        load_matrices(b, rows + first * Rows<D>::BYTES + across + (across_piece ^ 2 * k) * 16);
    }
    // Rows as the inner dimension: b0 and b1 of elements 16 n to 16 n + 7, then of the next eight.
    __device__ __forceinline__ void inner(u32 (&b)[4], const unsigned char *rows, u32 first, u32 n) const {
        load_matrices_transposed(b, rows + first * Rows<D>::BYTES + down + (down_piece ^ 2 * n) * 16);
    }
};

// Reads a left factor: 16 rows from `first`, a multiple of 16, in their order, elements 16 k to
// 16 k + 15.
template <u32 D>
__device__ __forceinline__ void left(u32 (&a)[4], const unsigned char *rows, u32 first, u32 k, const Lane &lane) {
    load_matrices(a, rows + first * Rows<D>::BYTES + Rows<D>::at(lane.l % 16, 2 * k + lane.l / 16));
}

// Begins to load ROWS rows from `first` on, zeros where the sequence has ended.
template <u32 D, u32 ROWS>
__device__ __forceinline__ void fetch(unsigned char *to, const T *from, u32 stride, u32 first, u32 length) {
    constexpr u32 PIECES = Rows<D>::PIECES, AT_ONCE = THREADS / PIECES;
    static_assert(AT_ONCE % 16 == 0, "the swizzle of a thread's rows is the same");
    const u32 piece = threadIdx.x % PIECES, row = threadIdx.x / PIECES;
    unsigned char *const own = to + Rows<D>::at(row, piece);
#pragma unroll
    for (u32 i = 0; i < ROWS; i += AT_ONCE) {
        const bool there = first + row + i < length;
        // Fits 32 bits: 4096 rows of 2^20 elements.
        const T *source = from + ((there ? first + row + i : 0) * stride + piece * 8);
        copy<16>(own + i * Rows<D>::BYTES, source, there);
    }
}

// Stores a warp's 16 rows of sums times `scale`, where the sequence has not ended, through memory of
// the warp's own. `row_of[0]` and [1] are the rows of c[0], c[1] and of c[2], c[3].
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

// N calls of the generator side by side, so that they share the keys of the rounds.
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

// Accumulators of two neighbouring tiles as a left factor.
__device__ __forceinline__ void as_left(u32 (&a)[4], const float (&first)[4], const float (&second)[4]) {
    a[0] = Pair<T>::of(first[0], first[1]);
    a[1] = Pair<T>::of(first[2], first[3]);
    a[2] = Pair<T>::of(second[0], second[1]);
    a[3] = Pair<T>::of(second[2], second[3]);
}

template <u32 N> __device__ __forceinline__ void clear(float (&c)[N][4]) {
#pragma unroll
    for (u32 n = 0; n < N; n++) {
        c[n][0] = c[n][1] = c[n][2] = c[n][3] = 0.0f;
    }
}

// Which sequence, head and rows a block has: blocks of rows are the fastest, so that those that go
// over the same tiles run at the same time.
struct Part {
    u32 sequence, head, first, start, length;

    __device__ __forceinline__ Part(const u32 *cu_seqlens, u32 heads, u32 blocks, u32 rows) {
        const u32 index = blockIdx.x / blocks;
        first = blockIdx.x % blocks * rows;
        head = index % heads;
        sequence = index / heads;
        start = cu_seqlens[sequence];
        length = cu_seqlens[sequence + 1] - start;
    }
};

// What all of these kernels are told, after their buffers.
#define CALL                                                                                       \
    const u32 *cu_seqlens, u32 heads, u32 size, u32 blocks, u32 causal, float scale,               \
        const u32 *state, const u32 *examples, u32 site, u32 threshold, float kept_scale
#define TOLD cu_seqlens, heads, size, blocks, causal, scale, state, examples, site, threshold, kept_scale

// Scores under the greatest so far by this power of two or less need no new reference: numbers to
// 2^8 are as exact as those to 1, and the sum is divided out in the end.
static constexpr float SLACK = 8.0f;

// A block has 128 queries, a warp 32 of them: tiles of 16, which share the right factors.
template <u32 D, bool DROP>
__device__ __forceinline__ void forward(const T *qkv, T *context, float *log_sums, CALL) {
    constexpr u32 QUERIES = 128, TILE_BYTES = TILE * Rows<D>::BYTES;
    DYNAMIC_SHARED(memory);
    unsigned char *const queries = memory, *const stages = memory + QUERIES * Rows<D>::BYTES;
    const Part part(cu_seqlens, heads, blocks, QUERIES);
    if (part.first >= part.length) {
        return;
    }
    const Lane lane;
    const Right<D> right(lane);
    const u32 warp = threadIdx.x / 32, hidden = heads * D, stride = 3 * hidden;
    const u32 own = part.first + warp * 32;
    const T *q = qkv + (u64)part.start * stride + part.head * D;
    Stream stream;
    if (DROP) {
        stream = Stream(state, examples, site, part.sequence);
    }
    const u32 end = causal ? min(part.length, part.first + QUERIES) : part.length;

    fetch<D, QUERIES>(queries, q, stride, part.first, part.length);
    fetch<D, TILE>(stages, q + hidden, stride, 0, part.length);
    fetch<D, TILE>(stages + TILE_BYTES, q + 2 * hidden, stride, 0, part.length);
    commit_copies();

    float out[2][D / 8][4], top[2][2], total[2][2];
#pragma unroll
    for (u32 m = 0; m < 2; m++) {
        clear(out[m]);
        top[m][0] = top[m][1] = MINUS_INFINITY;
        total[m][0] = total[m][1] = 0.0f;
    }
    const float log2_scale = scale * LOG2_E;
    // Draws for the lane's first query and keys 4t to 4t + 3.
    const u32 call = (part.head * STRIDE + own + lane.g) * CALLS + lane.t;

    for (u32 tile = 0; tile * TILE < end; tile++) {
        const unsigned char *const keys = stages + tile % 2 * 2 * TILE_BYTES;
        const unsigned char *const values = keys + TILE_BYTES;
        wait_for_copies<0>();
        // This tile is there for all warps, and the one before it is no longer read.
        __syncthreads();
        if ((tile + 1) * TILE < end) {
            unsigned char *const next = stages + (tile + 1) % 2 * 2 * TILE_BYTES;
            fetch<D, TILE>(next, q + hidden, stride, (tile + 1) * TILE, part.length);
            fetch<D, TILE>(next + TILE_BYTES, q + 2 * hidden, stride, (tile + 1) * TILE, part.length);
            commit_copies();
        }
        if (own >= part.length) {
            continue;
        }
#pragma unroll 1
        for (u32 step = 0; step < TILE; step += STEP) {
            const u32 first = tile * TILE + step;
            if (first >= end || (causal && first > own + 31)) {
                break;
            }
            float s[2][STEP / 8][4];
            clear(s[0]);
            clear(s[1]);
#pragma unroll
            for (u32 i = 0; i < D / 16; i++) {
                // Read again at each step: registers are scarcer than this.
                u32 a[2][4];
                left<D>(a[0], queries, warp * 32, i, lane);
                left<D>(a[1], queries, warp * 32 + 16, i, lane);
#pragma unroll
                for (u32 j = 0; j < STEP / 16; j++) {
                    u32 b[4];
                    right.columns(b, keys, step + j * 16, i);
#pragma unroll
                    for (u32 m = 0; m < 2; m++) {
                        mma<T>(s[m][2 * j], a[m], b[0], b[1]);
                        mma<T>(s[m][2 * j + 1], a[m], b[2], b[3]);
                    }
                }
            }
            if (first + STEP > part.length || (causal && first + STEP > own + 1)) {
#pragma unroll
                for (u32 m = 0; m < 2; m++) {
#pragma unroll
                    for (u32 n = 0; n < STEP / 8; n++) {
#pragma unroll
                        for (u32 i = 0; i < 4; i++) {
                            const u32 key = first + n / 2 * 16 + 4 * lane.t + n % 2 * 2 + i % 2;
                            const u32 query = own + m * 16 + lane.g + i / 2 * 8;
                            if (key >= part.length || (causal && key > query)) {
                                s[m][n][i] = MINUS_INFINITY;
                            }
                        }
                    }
                }
            }
            bool higher = false;
            float highest[2][2];
#pragma unroll
            for (u32 m = 0; m < 2; m++) {
#pragma unroll
                for (u32 half = 0; half < 2; half++) {
                    float x = MINUS_INFINITY;
#pragma unroll
                    for (u32 n = 0; n < STEP / 8; n++) {
                        x = fmaxf(x, fmaxf(s[m][n][2 * half], s[m][n][2 * half + 1]));
                    }
                    highest[m][half] = x * log2_scale;
                    higher = higher || highest[m][half] > top[m][half] + SLACK;
                }
            }
            // At the first step always, seldom after it.
            if (__any_sync(ALL, higher)) {
#pragma unroll
                for (u32 m = 0; m < 2; m++) {
#pragma unroll
                    for (u32 half = 0; half < 2; half++) {
                        float x = highest[m][half];
                        x = fmaxf(x, __shfl_xor_sync(ALL, x, 1));
                        x = fmaxf(x, __shfl_xor_sync(ALL, x, 2));
                        // Finite: every query sees a key at the first step.
                        x = fmaxf(x, top[m][half]);
                        const float correction = power_of_two(top[m][half] - x);
                        top[m][half] = x;
                        total[m][half] *= correction;
#pragma unroll
                        for (u32 n = 0; n < D / 8; n++) {
                            out[m][n][2 * half] *= correction;
                            out[m][n][2 * half + 1] *= correction;
                        }
                    }
                }
            }
            u32 p[2][STEP / 16][4];
#pragma unroll
            for (u32 m = 0; m < 2; m++) {
#pragma unroll
                for (u32 n = 0; n < STEP / 8; n++) {
#pragma unroll
                    for (u32 i = 0; i < 4; i++) {
                        s[m][n][i] = power_of_two(s[m][n][i] * log2_scale - top[m][i / 2]);
                        total[m][i / 2] += s[m][n][i];
                    }
                }
                if (DROP) {
                    // Of each 16 keys, the four of this lane for its two queries.
                    u32 calls[STEP / 8], draws[STEP / 8][4];
#pragma unroll
                    for (u32 n = 0; n < STEP / 8; n++) {
                        calls[n] = call + (m * 16 + n % 2 * 8) * CALLS + first / 4 + n / 2 * 4;
                    }
                    draw(draws, calls, stream);
#pragma unroll
                    for (u32 n = 0; n < STEP / 8; n++) {
#pragma unroll
                        for (u32 i = 0; i < 4; i++) {
                            const u32 drawn = draws[n / 2 * 2 + i / 2][n % 2 * 2 + i % 2];
                            s[m][n][i] = drawn >= threshold ? s[m][n][i] : 0.0f;
                        }
                    }
                }
#pragma unroll
                for (u32 j = 0; j < STEP / 16; j++) {
                    as_left(p[m][j], s[m][2 * j], s[m][2 * j + 1]);
                }
            }
#pragma unroll
            for (u32 j = 0; j < STEP / 16; j++) {
#pragma unroll
                for (u32 n = 0; n < D / 16; n++) {
                    u32 b[4];
                    right.inner(b, values, step + j * 16, n);
#pragma unroll
                    for (u32 m = 0; m < 2; m++) {
                        mma<T>(out[m][2 * n], p[m][j], b[0], b[1]);
                        mma<T>(out[m][2 * n + 1], p[m][j], b[2], b[3]);
                    }
                }
            }
        }
    }

    if (own >= part.length) {
        return;
    }
    T *const to = context + (u64)part.start * hidden + part.head * D;
#pragma unroll
    for (u32 m = 0; m < 2; m++) {
        float factor[2];
#pragma unroll
        for (u32 half = 0; half < 2; half++) {
            float sum = total[m][half];
            sum += __shfl_xor_sync(ALL, sum, 1);
            sum += __shfl_xor_sync(ALL, sum, 2);
            factor[half] = (DROP ? kept_scale : 1.0f) / sum;
            const u32 query = own + m * 16 + lane.g + half * 8;
            if (lane.t == 0 && query < part.length) {
                log_sums[(u64)(part.start + query) * heads + part.head] =
                    top[m][half] * LN_2 + logf(sum);
            }
        }
        const u32 rows[2] = {lane.g, lane.g + 8};
        unsigned char *const through = queries + (warp * 32 + m * 16) * Rows<D>::BYTES;
        store<D>(through, to, hidden, own + m * 16, part.length, out[m], factor, rows, lane);
    }
}

// A block has 64 queries, a warp 16 of them. Also leaves in `statistics`, for each head of each
// sequence and each query, the sum's logarithm to the base 2 and the slope: the sum over the keys of
// probability times its gradient, which is that over the head of context times its gradient.
template <u32 D, bool DROP>
__device__ __forceinline__ void d_queries(const T *qkv, const T *context, const T *d_context,
                                          const float *log_sums, float *statistics, T *d_qkv, CALL) {
    constexpr u32 QUERIES = 64, TILE_BYTES = TILE * Rows<D>::BYTES;
    DYNAMIC_SHARED(memory);
    unsigned char *const queries = memory, *const above = memory + TILE_BYTES;
    unsigned char *const stages = memory + 2 * TILE_BYTES;
    __shared__ float2 of_query[QUERIES];
    const Part part(cu_seqlens, heads, blocks, QUERIES);
    if (part.first >= part.length) {
        return;
    }
    const Lane lane;
    const Right<D> right(lane);
    const u32 warp = threadIdx.x / 32, hidden = heads * D, stride = 3 * hidden;
    const u32 own = part.first + warp * 16;
    const T *q = qkv + (u64)part.start * stride + part.head * D;
    const u64 in_context = (u64)part.start * hidden + part.head * D;
    Stream stream;
    if (DROP) {
        stream = Stream(state, examples, site, part.sequence);
    }
    const u32 end = causal ? min(part.length, part.first + QUERIES) : part.length;

    fetch<D, QUERIES>(queries, q, stride, part.first, part.length);
    fetch<D, QUERIES>(above, d_context + in_context, hidden, part.first, part.length);
    commit_copies();
    fetch<D, TILE>(stages, q + hidden, stride, 0, part.length);
    fetch<D, TILE>(stages + TILE_BYTES, q + 2 * hidden, stride, 0, part.length);
    commit_copies();

    u32 a[D / 16][4], da[D / 16][4];
    float sums[D / 8][4];
    clear(sums);
    {
        // Two threads a query.
        constexpr u32 PIECES = Rows<D>::PIECES / 2;
        const u32 row = threadIdx.x / 2, half = threadIdx.x % 2, query = part.first + row;
        const bool there = query < part.length;
        const u64 at = (u64)(part.start + (there ? query : 0));
        const T *out = context + at * hidden + part.head * D + half * (D / 2);
        const float log_sum = log_sums[at * heads + part.head] * LOG2_E;
        Packed<T> of_out[PIECES];
#pragma unroll
        for (u32 i = 0; i < PIECES; i++) {
            of_out[i].words = *(const Words *)(out + i * 8);
        }
        wait_for_copies<1>();
        __syncthreads();
        float slope = 0.0f;
#pragma unroll
        for (u32 i = 0; i < PIECES; i++) {
            Packed<T> d;
            d.words = *(const Words *)(above + Rows<D>::at(row, half * PIECES + i));
#pragma unroll
            for (u32 e = 0; e < 8; e++) {
                slope += of_out[i].get(e) * d.get(e);
            }
        }
        slope += __shfl_xor_sync(ALL, slope, 1);
        if (half == 0) {
            of_query[row] = make_float2(log_sum, slope);
            if (there) {
                const u32 to = part.start * heads + part.head * part.length + query;
                ((float2 *)statistics)[to] = make_float2(log_sum, slope);
            }
        }
        // The statistics of a warp's queries are written by its own lanes.
        __syncwarp();
    }
    const float2 of_rows[2] = {of_query[warp * 16 + lane.g], of_query[warp * 16 + lane.g + 8]};
#pragma unroll
    for (u32 i = 0; i < D / 16; i++) {
        left<D>(a[i], queries, warp * 16, i, lane);
        left<D>(da[i], above, warp * 16, i, lane);
    }
    const float log2_scale = scale * LOG2_E;
    // Draws for the lane's first query and keys 4t to 4t + 3.
    const u32 call = (part.head * STRIDE + own + lane.g) * CALLS + lane.t;

    for (u32 tile = 0; tile * TILE < end; tile++) {
        const unsigned char *const keys = stages + tile % 2 * 2 * TILE_BYTES;
        const unsigned char *const values = keys + TILE_BYTES;
        wait_for_copies<0>();
        __syncthreads();
        if ((tile + 1) * TILE < end) {
            unsigned char *const next = stages + (tile + 1) % 2 * 2 * TILE_BYTES;
            fetch<D, TILE>(next, q + hidden, stride, (tile + 1) * TILE, part.length);
            fetch<D, TILE>(next + TILE_BYTES, q + 2 * hidden, stride, (tile + 1) * TILE, part.length);
            commit_copies();
        }
        if (own >= part.length) {
            continue;
        }
#pragma unroll 1
        for (u32 step = 0; step < TILE; step += STEP) {
            const u32 first = tile * TILE + step;
            if (first >= end || (causal && first > own + 15)) {
                break;
            }
            float s[STEP / 8][4], d[STEP / 8][4];
            clear(s);
            clear(d);
#pragma unroll
            for (u32 j = 0; j < STEP / 16; j++) {
#pragma unroll
                for (u32 i = 0; i < D / 16; i++) {
                    u32 b[4];
                    right.columns(b, keys, step + j * 16, i);
                    mma<T>(s[2 * j], a[i], b[0], b[1]);
                    mma<T>(s[2 * j + 1], a[i], b[2], b[3]);
                    right.columns(b, values, step + j * 16, i);
                    mma<T>(d[2 * j], da[i], b[0], b[1]);
                    mma<T>(d[2 * j + 1], da[i], b[2], b[3]);
                }
            }
            if (first + STEP > part.length || (causal && first + STEP > own + 1)) {
#pragma unroll
                for (u32 n = 0; n < STEP / 8; n++) {
#pragma unroll
                    for (u32 i = 0; i < 4; i++) {
                        const u32 key = first + n / 2 * 16 + 4 * lane.t + n % 2 * 2 + i % 2;
                        const u32 query = own + lane.g + i / 2 * 8;
                        if (key >= part.length || (causal && key > query)) {
                            s[n][i] = MINUS_INFINITY;
                        }
                    }
                }
            }
            u32 draws[STEP / 8][4];
            if (DROP) {
                u32 calls[STEP / 8];
#pragma unroll
                for (u32 n = 0; n < STEP / 8; n++) {
                    calls[n] = call + n % 2 * 8 * CALLS + first / 4 + n / 2 * 4;
                }
                draw(draws, calls, stream);
            }
#pragma unroll
            for (u32 n = 0; n < STEP / 8; n++) {
#pragma unroll
                for (u32 i = 0; i < 4; i++) {
                    const float2 of_row = of_rows[i / 2];
                    const float p = power_of_two(s[n][i] * log2_scale - of_row.x);
                    float factor = 1.0f;
                    if (DROP) {
                        const u32 drawn = draws[n / 2 * 2 + i / 2][n % 2 * 2 + i % 2];
                        factor = drawn >= threshold ? kept_scale : 0.0f;
                    }
                    s[n][i] = p * (d[n][i] * factor - of_row.y);
                }
            }
#pragma unroll
            for (u32 j = 0; j < STEP / 16; j++) {
                u32 d_scores[4];
                as_left(d_scores, s[2 * j], s[2 * j + 1]);
#pragma unroll
                for (u32 n = 0; n < D / 16; n++) {
                    u32 b[4];
                    right.inner(b, keys, step + j * 16, n);
                    mma<T>(sums[2 * n], d_scores, b[0], b[1]);
                    mma<T>(sums[2 * n + 1], d_scores, b[2], b[3]);
                }
            }
        }
    }
    if (own >= part.length) {
        return;
    }
    const u32 rows[2] = {lane.g, lane.g + 8};
    const float factor[2] = {scale, scale};
    T *const to = d_qkv + (u64)part.start * stride + part.head * D;
    unsigned char *const through = queries + warp * 16 * Rows<D>::BYTES;
    store<D>(through, to, stride, own, part.length, sums, factor, rows, lane);
}

// A block has 64 keys, a warp 16 of them, and their values; needs what d_queries leaves. Lanes 4 apart
// have two each of four consecutive keys: each draws for one of two queries, and gives the other its
// half.
template <u32 D, bool DROP>
__device__ __forceinline__ void d_keys(const T *qkv, const T *d_context, const float *statistics,
                                       T *d_qkv, CALL) {
    // The generator's calls are worth making four at a time; without them registers run short.
    constexpr u32 STEP = DROP ? 32 : 16;
    constexpr u32 KEYS = 64, TILE_BYTES = TILE * Rows<D>::BYTES;
    // Two tiles and the statistics of their queries.
    constexpr u32 STAGE_BYTES = 2 * TILE_BYTES + TILE * 8;
    DYNAMIC_SHARED(memory);
    unsigned char *const keys = memory, *const values = memory + TILE_BYTES;
    unsigned char *const stages = memory + 2 * TILE_BYTES;
    const Part part(cu_seqlens, heads, blocks, KEYS);
    if (part.first >= part.length) {
        return;
    }
    const Lane lane;
    const Right<D> right(lane);
    const u32 warp = threadIdx.x / 32, hidden = heads * D, stride = 3 * hidden;
    const u32 own = part.first + warp * 16;
    const T *q = qkv + (u64)part.start * stride + part.head * D;
    const T *d_out = d_context + (u64)part.start * hidden + part.head * D;
    const u32 of_queries = part.start * heads + part.head * part.length;
    Stream stream;
    if (DROP) {
        stream = Stream(state, examples, site, part.sequence);
    }
    // Queries before the first key do not see it.
    const u32 begin = causal ? part.first / TILE : 0;

    auto fetch_stage = [&](u32 tile) {
        unsigned char *const stage = stages + tile % 2 * STAGE_BYTES;
        fetch<D, TILE>(stage, q, stride, tile * TILE, part.length);
        fetch<D, TILE>(stage + TILE_BYTES, d_out, hidden, tile * TILE, part.length);
        // Queries behind the end: with zeros for all they have, they add nothing.
        if (threadIdx.x < TILE) {
            const u32 query = tile * TILE + threadIdx.x;
            const bool there = query < part.length;
            const float2 *source = (const float2 *)statistics + of_queries + (there ? query : 0);
            copy<8>(stage + 2 * TILE_BYTES + threadIdx.x * 8, source, there);
        }
        commit_copies();
    };
    fetch<D, KEYS>(keys, q + hidden, stride, part.first, part.length);
    fetch<D, KEYS>(values, q + 2 * hidden, stride, part.first, part.length);
    commit_copies();
    fetch_stage(begin);

    u32 a[D / 16][4], va[D / 16][4];
    wait_for_copies<1>();
    __syncthreads();
    {
        // Place i of the upper eight rows and of the lower eight: neighbouring keys.
        const u32 i = lane.l % 8;
        const u32 row = i / 2 * 4 + i % 2 * 2 + lane.l / 8 % 2;
        const u32 first = warp * 16 * Rows<D>::BYTES;
#pragma unroll
        for (u32 k = 0; k < D / 16; k++) {
            load_matrices(a[k], keys + first + Rows<D>::at(row, 2 * k + lane.l / 16));
            load_matrices(va[k], values + first + Rows<D>::at(row, 2 * k + lane.l / 16));
        }
    }
    float to_keys[D / 8][4], to_values[D / 8][4];
    clear(to_keys);
    clear(to_values);
    const float log2_scale = scale * LOG2_E;
    const bool odd = lane.g % 2 != 0;
    // The lane's keys are this one and the next.
    const u32 key_of_lane = lane.g / 2 * 4 + (odd ? 2 : 0);
    // Draws for its four keys and the query in its first column, or its second.
    const u32 call =
        (part.head * STRIDE + 4 * lane.t + (odd ? 1 : 0)) * CALLS + own / 4 + lane.g / 2;

    for (u32 tile = begin; tile * TILE < part.length; tile++) {
        const unsigned char *const queries = stages + tile % 2 * STAGE_BYTES;
        const unsigned char *const above = queries + TILE_BYTES;
        const float2 *const of_tile = (const float2 *)(above + TILE_BYTES);
        wait_for_copies<0>();
        __syncthreads();
        if ((tile + 1) * TILE < part.length) {
            fetch_stage(tile + 1);
        }
        if (own >= part.length) {
            continue;
        }
#pragma unroll 1
        for (u32 step = 0; step < TILE; step += STEP) {
            const u32 first = tile * TILE + step;
            if (first >= part.length) {
                break;
            }
            if (causal && first + STEP <= own) {
                continue;
            }
            float s[STEP / 8][4], d[STEP / 8][4];
            clear(s);
            clear(d);
#pragma unroll
            for (u32 j = 0; j < STEP / 16; j++) {
#pragma unroll
                for (u32 i = 0; i < D / 16; i++) {
                    u32 b[4];
                    right.columns(b, queries, step + j * 16, i);
                    mma<T>(s[2 * j], a[i], b[0], b[1]);
                    mma<T>(s[2 * j + 1], a[i], b[2], b[3]);
                    right.columns(b, above, step + j * 16, i);
                    mma<T>(d[2 * j], va[i], b[0], b[1]);
                    mma<T>(d[2 * j + 1], va[i], b[2], b[3]);
                }
            }
            if (causal && first < own + 15) {
#pragma unroll
                for (u32 n = 0; n < STEP / 8; n++) {
#pragma unroll
                    for (u32 i = 0; i < 4; i++) {
                        const u32 query = first + n / 2 * 16 + 4 * lane.t + n % 2 * 2 + i % 2;
                        if (own + key_of_lane + i / 2 > query) {
                            s[n][i] = MINUS_INFINITY;
                        }
                    }
                }
            }
            // For each of a lane's two queries in a tile, bit 4 n and the next: whether it keeps the
            // lane's two keys in tile n.
            u32 kept_of[2] = {0, 0};
            if (DROP) {
                u32 calls[STEP / 8], draws[STEP / 8][4], kept = 0;
#pragma unroll
                for (u32 n = 0; n < STEP / 8; n++) {
                    calls[n] = call + (first + n / 2 * 16 + n % 2 * 2) * CALLS;
                }
                draw(draws, calls, stream);
#pragma unroll
                for (u32 n = 0; n < STEP / 8; n++) {
#pragma unroll
                    for (u32 i = 0; i < 4; i++) {
                        kept |= draws[n][i] >= threshold ? 1u << (4 * n + i) : 0;
                    }
                }
                const u32 given = __shfl_xor_sync(ALL, kept, 4);
                kept_of[0] = odd ? given >> 2 : kept;
                kept_of[1] = odd ? kept >> 2 : given;
            }
#pragma unroll
            for (u32 n = 0; n < STEP / 8; n++) {
                const float2 *of_query = of_tile + step + n / 2 * 16 + 4 * lane.t + n % 2 * 2;
                const float4 of_two = *(const float4 *)of_query;
#pragma unroll
                for (u32 i = 0; i < 4; i++) {
                    const float log_sum = i % 2 ? of_two.z : of_two.x;
                    const float slope = i % 2 ? of_two.w : of_two.y;
                    const float p = power_of_two(s[n][i] * log2_scale - log_sum);
                    if (DROP) {
                        const bool kept = kept_of[i % 2] >> (4 * n + i / 2) & 1;
                        s[n][i] = kept ? p : 0.0f;
                        d[n][i] = p * (d[n][i] * (kept ? kept_scale : 0.0f) - slope);
                    } else {
                        s[n][i] = p;
                        d[n][i] = p * (d[n][i] - slope);
                    }
                }
            }
#pragma unroll
            for (u32 j = 0; j < STEP / 16; j++) {
                u32 p[4], d_scores[4];
                as_left(p, s[2 * j], s[2 * j + 1]);
                as_left(d_scores, d[2 * j], d[2 * j + 1]);
#pragma unroll
                for (u32 n = 0; n < D / 16; n++) {
                    u32 b[4];
                    right.inner(b, above, step + j * 16, n);
                    mma<T>(to_values[2 * n], p, b[0], b[1]);
                    mma<T>(to_values[2 * n + 1], p, b[2], b[3]);
                    right.inner(b, queries, step + j * 16, n);
                    mma<T>(to_keys[2 * n], d_scores, b[0], b[1]);
                    mma<T>(to_keys[2 * n + 1], d_scores, b[2], b[3]);
                }
            }
        }
    }
    if (own >= part.length) {
        return;
    }
    const u32 rows[2] = {key_of_lane, key_of_lane + 1};
    const float of_keys[2] = {scale, scale};
    const float of_values[2] = {DROP ? kept_scale : 1.0f, DROP ? kept_scale : 1.0f};
    T *const to = d_qkv + (u64)part.start * stride + hidden + part.head * D;
    unsigned char *const through = keys + warp * 16 * Rows<D>::BYTES;
    store<D>(through, to, stride, own, part.length, to_keys, of_keys, rows, lane);
    store<D>(through, to + hidden, stride, own, part.length, to_values, of_values, rows, lane);
}

#define FORWARD const T *qkv, T *context, float *log_sums, CALL

extern "C" __global__ void __launch_bounds__(128, 3) flash_forward_64(FORWARD) {
    forward<64, false>(qkv, context, log_sums, TOLD);
}
extern "C" __global__ void __launch_bounds__(128, 3) flash_forward_64_dropout(FORWARD) {
    forward<64, true>(qkv, context, log_sums, TOLD);
}
extern "C" __global__ void __launch_bounds__(128, 4) flash_forward_32(FORWARD) {
    forward<32, false>(qkv, context, log_sums, TOLD);
}
extern "C" __global__ void __launch_bounds__(128, 3) flash_forward_32_dropout(FORWARD) {
    forward<32, true>(qkv, context, log_sums, TOLD);
}

#define D_QUERIES                                                                                  \
    const T *qkv, const T *context, const T *d_context, const float *log_sums, float *statistics,  \
        T *d_qkv, CALL

extern "C" __global__ void __launch_bounds__(128, 3) flash_d_queries_64(D_QUERIES) {
    d_queries<64, false>(qkv, context, d_context, log_sums, statistics, d_qkv, TOLD);
}
extern "C" __global__ void __launch_bounds__(128, 3) flash_d_queries_64_dropout(D_QUERIES) {
    d_queries<64, true>(qkv, context, d_context, log_sums, statistics, d_qkv, TOLD);
}
extern "C" __global__ void __launch_bounds__(128, 4) flash_d_queries_32(D_QUERIES) {
    d_queries<32, false>(qkv, context, d_context, log_sums, statistics, d_qkv, TOLD);
}
extern "C" __global__ void __launch_bounds__(128, 4) flash_d_queries_32_dropout(D_QUERIES) {
    d_queries<32, true>(qkv, context, d_context, log_sums, statistics, d_qkv, TOLD);
}

#define D_KEYS const T *qkv, const T *d_context, const float *statistics, T *d_qkv, CALL

extern "C" __global__ void __launch_bounds__(128, 3) flash_d_keys_64(D_KEYS) {
    d_keys<64, false>(qkv, d_context, statistics, d_qkv, TOLD);
}
extern "C" __global__ void __launch_bounds__(128, 3) flash_d_keys_64_dropout(D_KEYS) {
    d_keys<64, true>(qkv, d_context, statistics, d_qkv, TOLD);
}
extern "C" __global__ void __launch_bounds__(128, 4) flash_d_keys_32(D_KEYS) {
    d_keys<32, false>(qkv, d_context, statistics, d_qkv, TOLD);
}
extern "C" __global__ void __launch_bounds__(128, 4) flash_d_keys_32_dropout(D_KEYS) {
    d_keys<32, true>(qkv, d_context, statistics, d_qkv, TOLD);
}

#endif
