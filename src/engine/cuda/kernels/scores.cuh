// What attention on tensor cores does with scores between its products, on accumulators, the same in
// every format: masks, the softmax, the draws of dropout, and the gradient of scores. A lane's tile
// of scores has keys 4t to 4t + 3 of each 16, see flash.cuh.

// Scores that exceed the reference by at most this power of two need no new reference: values to
// 2^8 are as exact as those to 1, and the sum is divided out in the end.
static constexpr float SLACK = 8.0f;

// Returns which of the rows from `first`, which are the columns of tiles, is that of c[i] of the n-th.
__device__ __forceinline__ u32 row_of(u32 first, u32 n, u32 i, const Lane &lane) {
    return first + n / 2 * 16 + 4 * lane.t + n % 2 * 2 + i % 2;
}

// Removes keys past the end, and with `causal` those after their query: keys from `key`, for 16
// queries from `query`.
template <u32 N>
__device__ __forceinline__ void mask_keys(float (&s)[N][4], u32 query, u32 key, u32 length, u32 causal,
                                          const Lane &lane) {
#pragma unroll
    for (u32 n = 0; n < N; n++) {
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            const u32 own = row_of(key, n, i, lane);
            // With || and &&, which are branches, numbers were spilled.
            const bool after_end = own >= length, after_query = own > query + lane.g + i / 2 * 8;
            if (after_end | (after_query & (causal != 0))) {
                s[n][i] = MINUS_INFINITY;
            }
        }
    }
}

// Removes queries before their key: queries from `query`, for the lane's keys `key` and `key + apart`.
template <u32 N>
__device__ __forceinline__ void mask_queries(float (&s)[N][4], u32 query, u32 key, u32 apart,
                                             const Lane &lane) {
#pragma unroll
    for (u32 n = 0; n < N; n++) {
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            if (key + i / 2 * apart > row_of(query, n, i, lane)) {
                s[n][i] = MINUS_INFINITY;
            }
        }
    }
}

// Draws for the lane's keys of each 16 and its two queries: `call` is the call for the first of both.
template <u32 N>
__device__ __forceinline__ void draw_for(u32 (&drawn)[N][4], u32 call, const Stream &stream) {
    u32 calls[N], draws[N][4];
#pragma unroll
    for (u32 n = 0; n < N; n++) {
        calls[n] = call + n % 2 * 8 * CALLS + n / 2 * 4;
    }
    draw(draws, calls, stream);
#pragma unroll
    for (u32 n = 0; n < N; n++) {
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            drawn[n][i] = draws[n / 2 * 2 + i / 2][n % 2 * 2 + i % 2];
        }
    }
}

// The softmax of a warp's 32 queries, in two tiles, over the keys so far: the reference that is
// subtracted from scores, in powers of two, and the lane's share of the sums.
struct Softmax {
    float log2_scale, top[2][2], total[2][2];

    __device__ __forceinline__ explicit Softmax(float scale) : log2_scale(scale * LOG2_E) {
#pragma unroll
        for (u32 m = 0; m < 2; m++) {
            top[m][0] = top[m][1] = MINUS_INFINITY;
            total[m][0] = total[m][1] = 0.0f;
        }
    }

    // Takes a new reference if scores exceed the old one by too much, and adapts the sums to it.
    template <u32 N, u32 COLUMNS>
    __device__ __forceinline__ void adapt(const float (&s)[2][N][4], float (&out)[2][COLUMNS][4]) {
        bool higher = false;
        float highest[2][2];
#pragma unroll
        for (u32 m = 0; m < 2; m++) {
#pragma unroll
            for (u32 half = 0; half < 2; half++) {
                float x = MINUS_INFINITY;
#pragma unroll
                for (u32 n = 0; n < N; n++) {
                    x = fmaxf(x, fmaxf(s[m][n][2 * half], s[m][n][2 * half + 1]));
                }
                highest[m][half] = x * log2_scale;
                higher = higher || highest[m][half] > top[m][half] + SLACK;
            }
        }
        // Always at the first keys, rarely later.
        if (__any_sync(ALL, higher)) {
#pragma unroll
            for (u32 m = 0; m < 2; m++) {
#pragma unroll
                for (u32 half = 0; half < 2; half++) {
                    float x = highest[m][half];
                    x = fmaxf(x, __shfl_xor_sync(ALL, x, 1));
                    x = fmaxf(x, __shfl_xor_sync(ALL, x, 2));
                    // Finite: every query has a key among the first.
                    x = fmaxf(x, top[m][half]);
                    const float correction = power_of_two(top[m][half] - x);
                    top[m][half] = x;
                    total[m][half] *= correction;
#pragma unroll
                    for (u32 n = 0; n < COLUMNS; n++) {
                        out[m][n][2 * half] *= correction;
                        out[m][n][2 * half + 1] *= correction;
                    }
                }
            }
        }
    }

    // Turns the scores of the m-th tile into probabilities, without the division by their sum.
    template <u32 N> __device__ __forceinline__ void apply(float (&s)[N][4], u32 m) {
#pragma unroll
        for (u32 n = 0; n < N; n++) {
#pragma unroll
            for (u32 i = 0; i < 4; i++) {
                s[n][i] = power_of_two(s[n][i] * log2_scale - top[m][i / 2]);
                total[m][i / 2] += s[n][i];
            }
        }
    }

    // Returns the sum of all lanes for the m-th tile's query g or g + 8.
    __device__ __forceinline__ float sum(u32 m, u32 half) const {
        float sum = total[m][half];
        sum += __shfl_xor_sync(ALL, sum, 1);
        return sum + __shfl_xor_sync(ALL, sum, 2);
    }
};

// Computes what the backward pass needs of each of 64 queries, with two threads for one: the base-2
// logarithm of the sum and the slope, which is the sum over the keys of probability times its
// gradient, and equals the sum over the head of context times its gradient. Writes both to `to`, and
// for d_keys to `statistics`. `wait` returns when `d_context` is in shared memory.
template <u32 D, bool DROP, typename Wait>
__device__ __forceinline__ void query_statistics(const T *context, const unsigned char *d_context,
                                                 const float *log_sums, float2 *to, float *statistics,
                                                 const Part &part, u32 heads, float kept_scale, Wait wait) {
    constexpr u32 PIECES = Rows<D>::PIECES / 2;
    const u32 row = threadIdx.x / 2, half = threadIdx.x % 2, query = part.first + row;
    const bool there = query < part.length;
    const u64 at = (u64)(part.start + (there ? query : 0));
    const T *out = context + at * (heads * D) + part.head * D + half * (D / 2);
    const float log_sum = log_sums[at * heads + part.head] * LOG2_E;
    Packed<T> of_out[PIECES];
#pragma unroll
    for (u32 i = 0; i < PIECES; i++) {
        of_out[i].words = *(const Words *)(out + i * V);
    }
    wait();
    float slope = 0.0f;
#pragma unroll
    for (u32 i = 0; i < PIECES; i++) {
        Packed<T> d;
        d.words = *(const Words *)(d_context + Rows<D>::at(row, half * PIECES + i));
#pragma unroll
        for (u32 e = 0; e < V; e++) {
            slope += of_out[i].get(e) * d.get(e);
        }
    }
    slope += __shfl_xor_sync(ALL, slope, 1);
    // The scale of kept values stays out of the sums: results are multiplied by it.
    slope = DROP ? slope / kept_scale : slope;
    if (half == 0) {
        to[row] = make_float2(log_sum, slope);
        if (there) {
            const u32 place = part.start * heads + part.head * part.length + query;
            ((float2 *)statistics)[place] = make_float2(log_sum, slope);
        }
    }
    // The warp's own lanes write the statistics of its queries.
    __syncwarp();
}

// Starts loading the statistics of a tile of queries. Those past the end add nothing: all of their
// values are zero.
__device__ __forceinline__ void fetch_statistics(unsigned char *to, const float *statistics, u32 tile,
                                                 const Part &part, u32 heads) {
    if (threadIdx.x < TILE) {
        const u32 query = tile * TILE + threadIdx.x, of_head = part.start * heads + part.head * part.length;
        const bool there = query < part.length;
        copy<8>(to + threadIdx.x * 8, (const float2 *)statistics + of_head + (there ? query : 0), there);
    }
}

// Computes the gradients of scores for 16 queries and some keys from the scores and the gradients of
// probabilities; `kept(n, i)` is whether dropout kept c[i] of the n-th tile.
template <u32 N, typename IsKept>
__device__ __forceinline__ void d_scores_of_queries(float (&s)[N][4], const float (&d)[N][4],
                                                    const float2 (&of_rows)[2], float log2_scale,
                                                    IsKept kept) {
#pragma unroll
    for (u32 n = 0; n < N; n++) {
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            const float2 of_row = of_rows[i / 2];
            const float p = power_of_two(s[n][i] * log2_scale - of_row.x);
            s[n][i] = (kept(n, i) ? p : 0.0f) * d[n][i] - p * of_row.y;
        }
    }
}

// The same for 16 keys and queries with these statistics: gradients replace those of probabilities,
// and probabilities after dropout the scores.
template <u32 N, typename IsKept>
__device__ __forceinline__ void d_scores_of_keys(float (&s)[N][4], float (&d)[N][4], const float2 *statistics,
                                                 float log2_scale, const Lane &lane, IsKept kept) {
#pragma unroll
    for (u32 n = 0; n < N; n++) {
        const float4 of_two = *(const float4 *)(statistics + row_of(0, n, 0, lane));
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            // Column i % 2 is one of the queries, row i / 2 one of the keys.
            const float log_sum = i % 2 ? of_two.z : of_two.x;
            const float slope = i % 2 ? of_two.w : of_two.y;
            const float p = power_of_two(s[n][i] * log2_scale - log_sum);
            s[n][i] = kept(n, i) ? p : 0.0f;
            d[n][i] = s[n][i] * d[n][i] - p * slope;
        }
    }
}
