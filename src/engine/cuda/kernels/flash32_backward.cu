// Attention in f32 on tensor cores, backward: see flash32.cuh, and flash_backward.cu for what is
// computed.

// A block handles 64 queries, a warp 16 of them. Also writes to `statistics`.
template <bool EXACT, u32 D, bool DROP>
__device__ __forceinline__ void d_queries(const float *qkv, const float *context, const float *d_context,
                                          const float *log_sums, float *statistics, float *d_qkv, CALL) {
    constexpr u32 QUERIES = 64, BLOCK_BYTES = QUERIES * Rows<D>::BYTES, TILE_BYTES = TILE * Rows<D>::BYTES;
    DYNAMIC_SHARED(memory);
    unsigned char *const queries = memory, *const above = memory + BLOCK_BYTES;
    unsigned char *const stages = memory + 2 * BLOCK_BYTES;
    float2 *const of_query = (float2 *)(stages + 4 * TILE_BYTES);
    const Part part(cu_seqlens, heads, blocks, QUERIES);
    if (part.first >= part.length) {
        return;
    }
    const Lane lane;
    const Readers<D> readers(lane);
    const u32 warp = threadIdx.x / 32, hidden = heads * D, stride = 3 * hidden;
    const u32 own = part.first + warp * 16, of_warp = warp * 16 * Rows<D>::BYTES;
    const float *q = qkv + (u64)part.start * stride + part.head * D;
    const u64 in_context = (u64)part.start * hidden + part.head * D;
    Stream stream;
    if (DROP) {
        stream = Stream(state, examples, site, part.sequence);
    }
    const u32 end = causal ? min(part.length, part.first + QUERIES) : part.length;

    const auto fetch_stage = [&](u32 tile) {
        unsigned char *const to = stages + tile % 2 * 2 * TILE_BYTES;
        fetch<D, TILE>(to, q + hidden, stride, tile * TILE, part.length);
        fetch<D, TILE>(to + TILE_BYTES, q + 2 * hidden, stride, tile * TILE, part.length);
        commit_copies();
    };
    fetch<D, QUERIES>(queries, q, stride, part.first, part.length);
    fetch<D, QUERIES>(above, d_context + in_context, hidden, part.first, part.length);
    commit_copies();
    fetch_stage(0);

    query_statistics<D, DROP>(context, above, log_sums, of_query, statistics, part, heads, kept_scale, [&] {
        wait_for_copies<1>();
        round<EXACT, D, QUERIES>(queries);
        round<EXACT, D, QUERIES>(above);
        __syncthreads();
    });
    const float2 of_rows[2] = {of_query[warp * 16 + lane.g], of_query[warp * 16 + lane.g + 8]};
    float sums[1][D / 8][4];
    clear(sums[0]);
    const float log2_scale = scale * LOG2_E;
    // Draws for the lane's first query and keys 4t to 4t + 3.
    const u32 call = (part.head * STRIDE + own + lane.g) * CALLS + lane.t;

    for (u32 tile = 0; tile * TILE < end; tile++) {
        unsigned char *const keys = stages + tile % 2 * 2 * TILE_BYTES, *const values = keys + TILE_BYTES;
        wait_for_copies<0>();
        round<EXACT, D, TILE>(keys);
        round<EXACT, D, TILE>(values);
        __syncthreads();
        if ((tile + 1) * TILE < end) {
            fetch_stage(tile + 1);
        }
        const u32 first = tile * TILE;
        if (own >= part.length || (causal && first > own + 15)) {
            continue;
        }
        float s[1][TILE / 8][4], d[1][TILE / 8][4];
        products<EXACT, D, 1>(s, queries + of_warp, readers.ordered, keys, readers.right);
        products<EXACT, D, 1>(d, above + of_warp, readers.ordered, values, readers.right);
        if (first + TILE > part.length || (causal && first + TILE > own + 1)) {
            mask_keys(s[0], own, first, part.length, causal, lane);
        }
        u32 drawn[TILE / 8][4];
        if (DROP) {
            draw_for(drawn, call + first / 4, stream);
        }
        d_scores_of_queries(s[0], d[0], of_rows, log2_scale,
                            [&](u32 n, u32 i) { return !DROP || drawn[n][i] >= threshold; });
        add_rows<EXACT, D, 1>(sums, s, keys, readers.inner);
    }
    if (own >= part.length) {
        return;
    }
    const u32 rows[2] = {lane.g, lane.g + 8};
    const float all = DROP ? scale * kept_scale : scale;
    const float factor[2] = {all, all};
    float *const to = d_qkv + (u64)part.start * stride + part.head * D;
    store<D>(to, stride, own, part.length, sums[0], factor, rows, lane);
}

// A block handles 64 keys, a warp 16 of them, and their values; needs the output of d_queries.
// Lanes 4 apart hold two each of four consecutive keys: each draws for one of two queries, and
// passes the other its half.
template <bool EXACT, u32 D, bool DROP>
__device__ __forceinline__ void d_keys(const float *qkv, const float *d_context, const float *statistics,
                                       float *d_qkv, CALL) {
    constexpr u32 KEYS = 64, BLOCK_BYTES = KEYS * Rows<D>::BYTES, TILE_BYTES = TILE * Rows<D>::BYTES;
    // Two tiles and the statistics of their queries.
    constexpr u32 STAGE_BYTES = 2 * TILE_BYTES + TILE * 8;
    DYNAMIC_SHARED(memory);
    unsigned char *const keys = memory, *const values = memory + BLOCK_BYTES;
    unsigned char *const stages = memory + 2 * BLOCK_BYTES;
    const Part part(cu_seqlens, heads, blocks, KEYS);
    if (part.first >= part.length) {
        return;
    }
    const Lane lane;
    const Readers<D> readers(lane);
    const u32 warp = threadIdx.x / 32, hidden = heads * D, stride = 3 * hidden;
    const u32 own = part.first + warp * 16, of_warp = warp * 16 * Rows<D>::BYTES;
    const float *q = qkv + (u64)part.start * stride + part.head * D;
    const float *d_out = d_context + (u64)part.start * hidden + part.head * D;
    Stream stream;
    if (DROP) {
        stream = Stream(state, examples, site, part.sequence);
    }
    // Queries before the first key don't attend to it.
    const u32 begin = causal ? part.first / TILE : 0;

    const auto fetch_stage = [&](u32 tile) {
        unsigned char *const stage = stages + tile % 2 * STAGE_BYTES;
        fetch<D, TILE>(stage, q, stride, tile * TILE, part.length);
        fetch<D, TILE>(stage + TILE_BYTES, d_out, hidden, tile * TILE, part.length);
        fetch_statistics(stage + 2 * TILE_BYTES, statistics, tile, part, heads);
        commit_copies();
    };
    fetch<D, KEYS>(keys, q + hidden, stride, part.first, part.length);
    fetch<D, KEYS>(values, q + 2 * hidden, stride, part.first, part.length);
    commit_copies();
    fetch_stage(begin);

    float to_keys[1][D / 8][4], to_values[1][D / 8][4];
    clear(to_keys[0]);
    clear(to_values[0]);
    const float log2_scale = scale * LOG2_E;
    const u32 odd = lane.g % 2;
    // The lane's keys are this one and the second after it.
    const u32 key_of_lane = dealt(0, lane.g);
    // Draws for its four keys and the query in its first column, or its second.
    const u32 call = (part.head * STRIDE + 4 * lane.t + odd) * CALLS + own / 4 + lane.g / 2;

    wait_for_copies<1>();
    round<EXACT, D, KEYS>(keys);
    round<EXACT, D, KEYS>(values);
    for (u32 tile = begin; tile * TILE < part.length; tile++) {
        unsigned char *const queries = stages + tile % 2 * STAGE_BYTES, *const above = queries + TILE_BYTES;
        const float2 *const of_tile = (const float2 *)(above + TILE_BYTES);
        wait_for_copies<0>();
        round<EXACT, D, TILE>(queries);
        round<EXACT, D, TILE>(above);
        __syncthreads();
        if ((tile + 1) * TILE < part.length) {
            fetch_stage(tile + 1);
        }
        const u32 first = tile * TILE;
        if (own >= part.length || (causal && first + TILE <= own)) {
            continue;
        }
        float s[1][TILE / 8][4], d[1][TILE / 8][4];
        products<EXACT, D, 1>(s, keys + of_warp, readers.sorted, queries, readers.right);
        products<EXACT, D, 1>(d, values + of_warp, readers.sorted, above, readers.right);
        if (causal && first < own + 15) {
            mask_queries(s[0], first, own + key_of_lane, 2, lane);
        }
        // For each of a lane's two queries in a tile, bits 4 n and 4 n + 2: whether it keeps the
        // lane's two keys in tile n.
        u32 kept_of[2] = {0, 0};
        if (DROP) {
            u32 kept = 0;
#pragma unroll
            for (u32 j = 0; j < TILE / 16; j++) {
                const u32 first_call = call + (first + j * 16) * CALLS;
                const u32 calls[2] = {first_call, first_call + 2 * CALLS};
                u32 draws[2][4];
                draw(draws, calls, stream);
#pragma unroll
                for (u32 i = 0; i < 8; i++) {
                    kept |= draws[i / 4][i % 4] >= threshold ? 1u << (8 * j + i) : 0;
                }
            }
            const u32 given = __shfl_xor_sync(ALL, kept, 4);
            kept_of[0] = odd ? given >> 1 : kept;
            kept_of[1] = odd ? kept >> 1 : given;
        }
        d_scores_of_keys(s[0], d[0], of_tile, log2_scale, lane, [&](u32 n, u32 i) {
            return !DROP || kept_of[i % 2] >> (4 * n + i / 2 * 2) & 1;
        });
        add_rows<EXACT, D, 1>(to_values, s, above, readers.inner);
        add_rows<EXACT, D, 1>(to_keys, d, queries, readers.inner);
    }
    if (own >= part.length) {
        return;
    }
    const u32 rows[2] = {key_of_lane, key_of_lane + 2};
    const float to_all = DROP ? kept_scale : 1.0f;
    const float of_keys[2] = {scale * to_all, scale * to_all}, of_values[2] = {to_all, to_all};
    float *const to = d_qkv + (u64)part.start * stride + hidden + part.head * D;
    store<D>(to, stride, own, part.length, to_keys[0], of_keys, rows, lane);
    store<D>(to + hidden, stride, own, part.length, to_values[0], of_values, rows, lane);
}

#define D_QUERIES                                                                                  \
    const float *qkv, const float *context, const float *d_context, const float *log_sums,         \
        float *statistics, float *d_qkv, CALL

extern "C" __global__ void __launch_bounds__(128, 3) flash_exact_d_queries_64(D_QUERIES) {
    d_queries<true, 64, false>(qkv, context, d_context, log_sums, statistics, d_qkv, SHARED_ARGUMENTS);
}
extern "C" __global__ void __launch_bounds__(128, 3) flash_exact_d_queries_64_dropout(D_QUERIES) {
    d_queries<true, 64, true>(qkv, context, d_context, log_sums, statistics, d_qkv, SHARED_ARGUMENTS);
}
extern "C" __global__ void __launch_bounds__(128, 3) flash_exact_d_queries_32(D_QUERIES) {
    d_queries<true, 32, false>(qkv, context, d_context, log_sums, statistics, d_qkv, SHARED_ARGUMENTS);
}
extern "C" __global__ void __launch_bounds__(128, 3) flash_exact_d_queries_32_dropout(D_QUERIES) {
    d_queries<true, 32, true>(qkv, context, d_context, log_sums, statistics, d_qkv, SHARED_ARGUMENTS);
}
extern "C" __global__ void __launch_bounds__(128, 3) flash_tf32_d_queries_64(D_QUERIES) {
    d_queries<false, 64, false>(qkv, context, d_context, log_sums, statistics, d_qkv, SHARED_ARGUMENTS);
}
extern "C" __global__ void __launch_bounds__(128, 3) flash_tf32_d_queries_64_dropout(D_QUERIES) {
    d_queries<false, 64, true>(qkv, context, d_context, log_sums, statistics, d_qkv, SHARED_ARGUMENTS);
}
extern "C" __global__ void __launch_bounds__(128, 3) flash_tf32_d_queries_32(D_QUERIES) {
    d_queries<false, 32, false>(qkv, context, d_context, log_sums, statistics, d_qkv, SHARED_ARGUMENTS);
}
extern "C" __global__ void __launch_bounds__(128, 3) flash_tf32_d_queries_32_dropout(D_QUERIES) {
    d_queries<false, 32, true>(qkv, context, d_context, log_sums, statistics, d_qkv, SHARED_ARGUMENTS);
}

#define D_KEYS const float *qkv, const float *d_context, const float *statistics, float *d_qkv, CALL

extern "C" __global__ void __launch_bounds__(128, 2) flash_exact_d_keys_64(D_KEYS) {
    d_keys<true, 64, false>(qkv, d_context, statistics, d_qkv, SHARED_ARGUMENTS);
}
extern "C" __global__ void __launch_bounds__(128, 2) flash_exact_d_keys_64_dropout(D_KEYS) {
    d_keys<true, 64, true>(qkv, d_context, statistics, d_qkv, SHARED_ARGUMENTS);
}
extern "C" __global__ void __launch_bounds__(128, 3) flash_exact_d_keys_32(D_KEYS) {
    d_keys<true, 32, false>(qkv, d_context, statistics, d_qkv, SHARED_ARGUMENTS);
}
extern "C" __global__ void __launch_bounds__(128, 2) flash_exact_d_keys_32_dropout(D_KEYS) {
    d_keys<true, 32, true>(qkv, d_context, statistics, d_qkv, SHARED_ARGUMENTS);
}
extern "C" __global__ void __launch_bounds__(128, 3) flash_tf32_d_keys_64(D_KEYS) {
    d_keys<false, 64, false>(qkv, d_context, statistics, d_qkv, SHARED_ARGUMENTS);
}
extern "C" __global__ void __launch_bounds__(128, 3) flash_tf32_d_keys_64_dropout(D_KEYS) {
    d_keys<false, 64, true>(qkv, d_context, statistics, d_qkv, SHARED_ARGUMENTS);
}
extern "C" __global__ void __launch_bounds__(128, 3) flash_tf32_d_keys_32(D_KEYS) {
    d_keys<false, 32, false>(qkv, d_context, statistics, d_qkv, SHARED_ARGUMENTS);
}
extern "C" __global__ void __launch_bounds__(128, 3) flash_tf32_d_keys_32_dropout(D_KEYS) {
    d_keys<false, 32, true>(qkv, d_context, statistics, d_qkv, SHARED_ARGUMENTS);
}
