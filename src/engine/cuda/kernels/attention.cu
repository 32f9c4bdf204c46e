// Self-attention over packed sequences for every element type and heads up to 128 wide, with all
// arithmetic in f32. Used where the tensor-core kernels of flash.cuh can't run, and to check them.
//
// Scores are never stored. A block handles eight rows of one head of one sequence, two per warp,
// and processes the other rows in chunks of 32 in shared memory: a lane computes the score of each
// of its warp's rows with one row of the chunk, then a part of the columns of the sum. Forward and
// the gradient of queries hold queries and loop over keys; the gradient of keys and values holds
// keys and loops over queries.

static constexpr u32 WIDEST = 128;
static constexpr u32 WARPS = 4;
// Rows that a warp holds.
static constexpr u32 KEPT = 2;
static constexpr u32 ROWS = WARPS * KEPT;
// Rows of a chunk: one per lane.
static constexpr u32 CHUNK = 32;
// Columns per lane.
static constexpr u32 PARTS = WIDEST / 32;
// Two matrices of a chunk, (CHUNK, size), with a row stride that is one off a multiple of 32, so
// that 32 rows of a column lie in 32 banks.
struct Chunk {
    float a[CHUNK * (WIDEST + 1)], b[CHUNK * (WIDEST + 1)];
};

// Copies `count` rows of `size` values to rows of `stride`, with zeros for rows past `length`.
__device__ __forceinline__ void fetch(float *to, u32 stride, const T *from, u64 step, u32 first,
                                      u32 count, u32 length, u32 size) {
    for (u32 i = threadIdx.x; i < count * size; i += WARPS * 32) {
        u32 row = i / size, column = i % size;
        to[row * stride + column] =
            first + row < length ? to_float(from[(first + row) * step + column]) : 0.0f;
    }
}

__device__ __forceinline__ float dot(const float *a, const float *b, u32 size) {
    float sum = 0.0f;
    for (u32 i = 0; i < size; i++) {
        sum += a[i] * b[i];
    }
    return sum;
}

// Returns the factor of a probability: 0 or `kept_scale` with dropout, 1 without.
__device__ __forceinline__ float factor(const Stream &stream, bool dropping, u32 threshold,
                                        float kept_scale, u32 head, u32 query, u32 key) {
    if (!dropping) {
        return 1.0f;
    }
    Draws draws = stream.block((head * STRIDE + query) * (STRIDE / 4) + key / 4);
    u32 low = key & 1 ? draws.draw[1] : draws.draw[0], high = key & 1 ? draws.draw[3] : draws.draw[2];
    return (key & 2 ? high : low) >= threshold ? kept_scale : 0.0f;
}

// Adds `weights` times rows of a chunk to a lane's columns.
__device__ __forceinline__ void add_rows(float (&sums)[PARTS], float weight, const float *rows,
                                         u32 size) {
    u32 lane = threadIdx.x % 32;
    for (u32 i = 0; i < CHUNK; i++) {
        float of_row = __shfl_sync(ALL, weight, i);
#pragma unroll
        for (u32 part = 0; part < PARTS; part++) {
            u32 column = part * 32 + lane;
            if (column < size) {
                sums[part] += of_row * rows[i * (size + 1) + column];
            }
        }
    }
}

__device__ __forceinline__ void store_columns(T *row, const float (&sums)[PARTS], float scale, u32 size) {
#pragma unroll
    for (u32 part = 0; part < PARTS; part++) {
        u32 column = part * 32 + threadIdx.x % 32;
        if (column < size) {
            set(row[column], sums[part] * scale);
        }
    }
}

extern "C" __global__ void __launch_bounds__(128)
attention_forward(const T *qkv, T *context, float *log_sums, const u32 *cu_seqlens, u32 heads, u32 size,
                  u32 blocks, u32 causal, float scale, const u32 *state, const u32 *examples, u32 site,
                  u32 threshold, float kept_scale) {
    __shared__ Chunk chunk;
    __shared__ float queries[ROWS * WIDEST];
    Part part(cu_seqlens, heads, blocks, ROWS);
    if (part.first >= part.length) {
        return;
    }
    const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32, hidden = heads * size;
    const bool dropping = state != nullptr;
    Stream stream;
    if (dropping) {
        stream = Stream(state, examples, site, part.sequence);
    }
    const T *q = qkv + (u64)part.start * 3 * hidden + part.head * size;
    fetch(queries, size, q, 3 * hidden, part.first, ROWS, part.length, size);

    float top[KEPT], total[KEPT], sums[KEPT][PARTS];
#pragma unroll
    for (u32 r = 0; r < KEPT; r++) {
        top[r] = MINUS_INFINITY;
        total[r] = 0.0f;
#pragma unroll
        for (u32 i = 0; i < PARTS; i++) {
            sums[r][i] = 0.0f;
        }
    }
    const u32 end = causal ? min(part.length, part.first + ROWS) : part.length;
    for (u32 key0 = 0; key0 < end; key0 += CHUNK) {
        __syncthreads();
        fetch(chunk.a, size + 1, q + hidden, 3 * hidden, key0, CHUNK, part.length, size);
        fetch(chunk.b, size + 1, q + 2 * hidden, 3 * hidden, key0, CHUNK, part.length, size);
        __syncthreads();
        const u32 key = key0 + lane;
#pragma unroll
        for (u32 r = 0; r < KEPT; r++) {
            const u32 row = warp * KEPT + r, query = part.first + row;
            const bool seen = key < part.length && (!causal || key <= query);
            float score = scale * dot(queries + row * size, chunk.a + lane * (size + 1), size);
            score = seen ? score : MINUS_INFINITY;
            const float highest = fmaxf(top[r], warp_max(score));
            // A chunk that is masked for this query changes nothing.
            const float correction = highest == top[r] ? 1.0f : expf(top[r] - highest);
            float p = seen ? expf(score - highest) : 0.0f;
            top[r] = highest;
            total[r] = total[r] * correction + warp_sum(p);
#pragma unroll
            for (u32 i = 0; i < PARTS; i++) {
                sums[r][i] *= correction;
            }
            if (seen) {
                p *= factor(stream, dropping, threshold, kept_scale, part.head, query, key);
            }
            add_rows(sums[r], p, chunk.b, size);
        }
    }
#pragma unroll
    for (u32 r = 0; r < KEPT; r++) {
        const u32 query = part.first + warp * KEPT + r;
        if (query < part.length) {
            const u64 row = part.start + query;
            store_columns(context + row * hidden + part.head * size, sums[r], 1.0f / total[r], size);
            if (lane == 0) {
                log_sums[row * heads + part.head] = top[r] + logf(total[r]);
            }
        }
    }
}

// For every row and head, the sum over the keys of probability times its gradient, which equals the
// sum over the head's columns of context times its gradient: (rows, heads).
extern "C" __global__ void __launch_bounds__(128)
attention_slopes(const T *context, const T *d_context, float *slopes, u32 count, u32 size) {
    const u32 index = blockIdx.x * WARPS + threadIdx.x / 32;
    if (index >= count) {
        return;
    }
    float sum = 0.0f;
    for (u32 i = threadIdx.x % 32; i < size; i += 32) {
        const u64 at = (u64)index * size + i;
        sum += to_float(context[at]) * to_float(d_context[at]);
    }
    sum = warp_sum(sum);
    if (threadIdx.x % 32 == 0) {
        slopes[index] = sum;
    }
}

extern "C" __global__ void __launch_bounds__(128)
attention_d_queries(const T *qkv, const T *d_context, const float *log_sums, const float *slopes,
                    T *d_qkv, const u32 *cu_seqlens, u32 heads, u32 size, u32 blocks, u32 causal,
                    float scale, const u32 *state, const u32 *examples, u32 site, u32 threshold,
                    float kept_scale) {
    __shared__ Chunk chunk;
    __shared__ float queries[ROWS * WIDEST], above[ROWS * WIDEST];
    Part part(cu_seqlens, heads, blocks, ROWS);
    if (part.first >= part.length) {
        return;
    }
    const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32, hidden = heads * size;
    const bool dropping = state != nullptr;
    Stream stream;
    if (dropping) {
        stream = Stream(state, examples, site, part.sequence);
    }
    const T *q = qkv + (u64)part.start * 3 * hidden + part.head * size;
    const T *d_out = d_context + (u64)part.start * hidden + part.head * size;
    fetch(queries, size, q, 3 * hidden, part.first, ROWS, part.length, size);
    fetch(above, size, d_out, hidden, part.first, ROWS, part.length, size);

    float log_sum[KEPT], slope[KEPT], sums[KEPT][PARTS];
#pragma unroll
    for (u32 r = 0; r < KEPT; r++) {
        const u32 query = min(part.first + warp * KEPT + r, part.length - 1);
        const u64 at = (u64)(part.start + query) * heads + part.head;
        log_sum[r] = log_sums[at];
        slope[r] = slopes[at];
#pragma unroll
        for (u32 i = 0; i < PARTS; i++) {
            sums[r][i] = 0.0f;
        }
    }
    const u32 end = causal ? min(part.length, part.first + ROWS) : part.length;
    for (u32 key0 = 0; key0 < end; key0 += CHUNK) {
        __syncthreads();
        fetch(chunk.a, size + 1, q + hidden, 3 * hidden, key0, CHUNK, part.length, size);
        fetch(chunk.b, size + 1, q + 2 * hidden, 3 * hidden, key0, CHUNK, part.length, size);
        __syncthreads();
        const u32 key = key0 + lane;
#pragma unroll
        for (u32 r = 0; r < KEPT; r++) {
            const u32 row = warp * KEPT + r, query = part.first + row;
            float d_score = 0.0f;
            if (key < part.length && query < part.length && (!causal || key <= query)) {
                const float score = scale * dot(queries + row * size, chunk.a + lane * (size + 1), size);
                const float kept =
                    factor(stream, dropping, threshold, kept_scale, part.head, query, key);
                const float d = kept * dot(above + row * size, chunk.b + lane * (size + 1), size);
                d_score = expf(score - log_sum[r]) * (d - slope[r]);
            }
            add_rows(sums[r], d_score, chunk.a, size);
        }
    }
#pragma unroll
    for (u32 r = 0; r < KEPT; r++) {
        const u32 query = part.first + warp * KEPT + r;
        if (query < part.length) {
            T *row = d_qkv + (u64)(part.start + query) * 3 * hidden + part.head * size;
            store_columns(row, sums[r], scale, size);
        }
    }
}

extern "C" __global__ void __launch_bounds__(128)
attention_d_keys(const T *qkv, const T *d_context, const float *log_sums, const float *slopes, T *d_qkv,
                 const u32 *cu_seqlens, u32 heads, u32 size, u32 blocks, u32 causal, float scale,
                 const u32 *state, const u32 *examples, u32 site, u32 threshold, float kept_scale) {
    __shared__ Chunk chunk;
    __shared__ float keys[ROWS * WIDEST], values[ROWS * WIDEST];
    Part part(cu_seqlens, heads, blocks, ROWS);
    if (part.first >= part.length) {
        return;
    }
    const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32, hidden = heads * size;
    const bool dropping = state != nullptr;
    Stream stream;
    if (dropping) {
        stream = Stream(state, examples, site, part.sequence);
    }
    const T *q = qkv + (u64)part.start * 3 * hidden + part.head * size;
    const T *d_out = d_context + (u64)part.start * hidden + part.head * size;
    fetch(keys, size, q + hidden, 3 * hidden, part.first, ROWS, part.length, size);
    fetch(values, size, q + 2 * hidden, 3 * hidden, part.first, ROWS, part.length, size);

    float d_keys[KEPT][PARTS], d_values[KEPT][PARTS];
#pragma unroll
    for (u32 r = 0; r < KEPT; r++) {
#pragma unroll
        for (u32 i = 0; i < PARTS; i++) {
            d_keys[r][i] = d_values[r][i] = 0.0f;
        }
    }
    for (u32 query0 = causal ? part.first / CHUNK * CHUNK : 0; query0 < part.length; query0 += CHUNK) {
        __syncthreads();
        fetch(chunk.a, size + 1, q, 3 * hidden, query0, CHUNK, part.length, size);
        fetch(chunk.b, size + 1, d_out, hidden, query0, CHUNK, part.length, size);
        __syncthreads();
        const u32 query = query0 + lane;
        const u64 at = (u64)(part.start + min(query, part.length - 1)) * heads + part.head;
        const float log_sum = log_sums[at], slope = slopes[at];
#pragma unroll
        for (u32 r = 0; r < KEPT; r++) {
            const u32 row = warp * KEPT + r, key = part.first + row;
            float p = 0.0f, d_score = 0.0f;
            if (key < part.length && query < part.length && (!causal || key <= query)) {
                p = expf(scale * dot(keys + row * size, chunk.a + lane * (size + 1), size) - log_sum);
                const float kept =
                    factor(stream, dropping, threshold, kept_scale, part.head, query, key);
                const float d = kept * dot(values + row * size, chunk.b + lane * (size + 1), size);
                d_score = p * (d - slope);
                p *= kept;
            }
            add_rows(d_keys[r], d_score, chunk.a, size);
            add_rows(d_values[r], p, chunk.b, size);
        }
    }
#pragma unroll
    for (u32 r = 0; r < KEPT; r++) {
        const u32 key = part.first + warp * KEPT + r;
        if (key < part.length) {
            T *row = d_qkv + (u64)(part.start + key) * 3 * hidden + part.head * size;
            store_columns(row + hidden, d_keys[r], scale, size);
            store_columns(row + 2 * hidden, d_values[r], 1.0f, size);
        }
    }
}
