// Attention on tensor cores, backward: see flash.cuh.

#if ELEMENT != 0

// A block handles 64 queries, a warp 16 of them. Also writes to `statistics`, see query_statistics.
template <u32 D, bool DROP>
__device__ __forceinline__ void d_queries(const T *qkv, const T *context, const T *d_context,
                                          const float *log_sums, float *statistics, T *d_qkv, CALL) {
    constexpr u32 QUERIES = 64, TILE_BYTES = TILE * Rows<D>::BYTES;
    DYNAMIC_SHARED(memory);
    unsigned char *const queries = memory, *const above = memory + TILE_BYTES;
    unsigned char *const stages = memory + 2 * TILE_BYTES;
    float2 *const of_query = (float2 *)(memory + 6 * TILE_BYTES);
    unsigned char *const kept_of_tiles = memory + 6 * TILE_BYTES + QUERIES * 8;
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
    const Kept kept(all_kept, key_blocks, part, heads);
    const u32 end = causal ? min(part.length, part.first + QUERIES) : part.length;

    fetch<D, QUERIES>(queries, q, stride, part.first, part.length);
    fetch<D, QUERIES>(above, d_context + in_context, hidden, part.first, part.length);
    commit_copies();
    const auto fetch_stage = [&](u32 tile) {
        unsigned char *const to = stages + tile % 2 * 2 * TILE_BYTES;
        fetch<D, TILE>(to, q + hidden, stride, tile * TILE, part.length);
        fetch<D, TILE>(to + TILE_BYTES, q + 2 * hidden, stride, tile * TILE, part.length);
        if (DROP) {
            kept.fetch(kept_of_tiles + tile % 2 * KEPT_BYTES, part.first, tile * TILE);
        }
        commit_copies();
    };
    fetch_stage(0);

    u32 a[D / 16][4], da[D / 16][4];
    float sums[D / 8][4];
    clear(sums);
    query_statistics<D, DROP>(context, above, log_sums, of_query, statistics, part, heads, kept_scale, [] {
        wait_for_copies<1>();
        __syncthreads();
    });
    const float2 of_rows[2] = {of_query[warp * 16 + lane.g], of_query[warp * 16 + lane.g + 8]};
#pragma unroll
    for (u32 i = 0; i < D / 16; i++) {
        left<D>(a[i], queries, warp * 16, i, lane);
        left<D>(da[i], above, warp * 16, i, lane);
    }
    const float log2_scale = scale * LOG2_E;
    for (u32 tile = 0; tile * TILE < end; tile++) {
        const unsigned char *const keys = stages + tile % 2 * 2 * TILE_BYTES;
        const unsigned char *const values = keys + TILE_BYTES;
        wait_for_copies<0>();
        __syncthreads();
        if ((tile + 1) * TILE < end) {
            fetch_stage(tile + 1);
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
                mask_keys(s, own, first, part.length, causal, lane);
            }
            u32 bits = 0;
            if (DROP) {
                const u32 *const of_tile = (const u32 *)(kept_of_tiles + tile % 2 * KEPT_BYTES);
                const u32 block = warp / 2 * 2 + step / Kept::BLOCK;
                bits = of_tile[block * Kept::WORDS + 8 * lane.t + lane.g] >> 16 * (warp % 2);
            }
            d_scores_of_queries(s, d, of_rows, log2_scale,
                                [&](u32 n, u32 i) { return !DROP || bits >> place_of(0, n, i) & 1; });
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
    const float all = DROP ? scale * kept_scale : scale;
    const float factor[2] = {all, all};
    T *const to = d_qkv + (u64)part.start * stride + part.head * D;
    unsigned char *const through = queries + warp * 16 * Rows<D>::BYTES;
    store<D>(through, to, stride, own, part.length, sums, factor, rows, lane);
}

// A block handles 64 keys, a warp 16 of them, and their values; needs the output of d_queries.
template <u32 D, bool DROP>
__device__ __forceinline__ void d_keys(const T *qkv, const T *d_context, const float *statistics,
                                       T *d_qkv, CALL) {
    constexpr u32 STEP = 16;
    constexpr u32 KEYS = 64, TILE_BYTES = TILE * Rows<D>::BYTES;
    // Two tiles, the statistics of their queries, and what was kept.
    constexpr u32 STAGE_BYTES = 2 * TILE_BYTES + TILE * 8 + (DROP ? KEPT_BYTES : 0);
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
    const Kept kept(all_kept, key_blocks, part, heads);
    // Queries before the first key don't attend to it.
    const u32 begin = causal ? part.first / TILE : 0;

    const auto fetch_stage = [&](u32 tile) {
        unsigned char *const stage = stages + tile % 2 * STAGE_BYTES;
        fetch<D, TILE>(stage, q, stride, tile * TILE, part.length);
        fetch<D, TILE>(stage + TILE_BYTES, d_out, hidden, tile * TILE, part.length);
        fetch_statistics(stage + 2 * TILE_BYTES, statistics, tile, part, heads);
        if (DROP) {
            kept.fetch(stage + 2 * TILE_BYTES + TILE * 8, tile * TILE, part.first);
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
        // Position i of the upper eight rows and of the lower eight: neighbouring keys.
        const u32 i = lane.l % 8, row = i / 2 * 4 + i % 2 * 2 + lane.l / 8 % 2;
        const u32 of_warp = warp * 16 * Rows<D>::BYTES, of_lane = Rows<D>::at(row, lane.l / 16);
#pragma unroll
        for (u32 k = 0; k < D / 16; k++) {
            load_matrices(a[k], place(keys, of_warp, of_lane, k));
            load_matrices(va[k], place(values, of_warp, of_lane, k));
        }
    }
    float to_keys[D / 8][4], to_values[D / 8][4];
    clear(to_keys);
    clear(to_values);
    const float log2_scale = scale * LOG2_E;
    const bool odd = lane.g % 2 != 0;
    // The lane's keys are this one and the next.
    const u32 key_of_lane = lane.g / 2 * 4 + (odd ? 2 : 0);
    // The place of its first key in the words of its queries, and that of its first query's word.
    const u32 place_of_keys = 8 * (warp % 2) + 4 * (lane.t / 2) + (odd ? 2 : 0);
    const u32 word_of_queries = 8 * (lane.g / 2) + 4 * (lane.t % 2);

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
                mask_queries(s, first, own + key_of_lane, 1, lane);
            }
            // Those of the lane's four queries of the step.
            u32 bits[4] = {0, 0, 0, 0};
            if (DROP) {
                const u32 *const of_blocks = (const u32 *)((const unsigned char *)of_tile + TILE * 8);
                const u32 block = step / Kept::BLOCK * 2 + warp / 2;
                const uint4 words = *(const uint4 *)(of_blocks + block * Kept::WORDS + word_of_queries);
                const u32 place = place_of_keys + step / 16 % 2 * 16;
                bits[0] = words.x >> place;
                bits[1] = words.y >> place;
                bits[2] = words.z >> place;
                bits[3] = words.w >> place;
            }
            d_scores_of_keys(s, d, of_tile + step, log2_scale, lane, [&](u32 n, u32 i) {
                return !DROP || bits[2 * n + i % 2] >> (i / 2) & 1;
            });
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
    const float to_all = DROP ? kept_scale : 1.0f;
    const float of_keys[2] = {scale * to_all, scale * to_all}, of_values[2] = {to_all, to_all};
    T *const to = d_qkv + (u64)part.start * stride + hidden + part.head * D;
    unsigned char *const through = keys + warp * 16 * Rows<D>::BYTES;
    store<D>(through, to, stride, own, part.length, to_keys, of_keys, rows, lane);
    store<D>(through, to + hidden, stride, own, part.length, to_values, of_values, rows, lane);
}

#define D_QUERIES                                                                                  \
    const T *qkv, const T *context, const T *d_context, const float *log_sums, float *statistics,  \
        T *d_qkv, CALL

extern "C" __global__ void __launch_bounds__(128, 3) flash_d_queries_64(D_QUERIES) {
    d_queries<64, false>(qkv, context, d_context, log_sums, statistics, d_qkv, SHARED_ARGUMENTS);
}
extern "C" __global__ void __launch_bounds__(128, 3) flash_d_queries_64_dropout(D_QUERIES) {
    d_queries<64, true>(qkv, context, d_context, log_sums, statistics, d_qkv, SHARED_ARGUMENTS);
}
extern "C" __global__ void __launch_bounds__(128, 4) flash_d_queries_32(D_QUERIES) {
    d_queries<32, false>(qkv, context, d_context, log_sums, statistics, d_qkv, SHARED_ARGUMENTS);
}
extern "C" __global__ void __launch_bounds__(128, 4) flash_d_queries_32_dropout(D_QUERIES) {
    d_queries<32, true>(qkv, context, d_context, log_sums, statistics, d_qkv, SHARED_ARGUMENTS);
}

#define D_KEYS const T *qkv, const T *d_context, const float *statistics, T *d_qkv, CALL

extern "C" __global__ void __launch_bounds__(128, 3) flash_d_keys_64(D_KEYS) {
    d_keys<64, false>(qkv, d_context, statistics, d_qkv, SHARED_ARGUMENTS);
}
extern "C" __global__ void __launch_bounds__(128, 3) flash_d_keys_64_dropout(D_KEYS) {
    d_keys<64, true>(qkv, d_context, statistics, d_qkv, SHARED_ARGUMENTS);
}
extern "C" __global__ void __launch_bounds__(128, 4) flash_d_keys_32(D_KEYS) {
    d_keys<32, false>(qkv, d_context, statistics, d_qkv, SHARED_ARGUMENTS);
}
extern "C" __global__ void __launch_bounds__(128, 4) flash_d_keys_32_dropout(D_KEYS) {
    d_keys<32, true>(qkv, d_context, statistics, d_qkv, SHARED_ARGUMENTS);
}

#endif
