// Attention in f32 on tensor cores, forward: see flash32.cuh.

// A block handles 128 queries, a warp 32 of them: tiles of 16, which share the right factors.
template <bool EXACT, u32 D, bool DROP>
__device__ __forceinline__ void forward(const float *qkv, float *context, float *log_sums, CALL) {
    constexpr u32 QUERIES = 128, TILE_BYTES = TILE * Rows<D>::BYTES;
    DYNAMIC_SHARED(memory);
    unsigned char *const queries = memory, *const stages = memory + QUERIES * Rows<D>::BYTES;
    const Part part(cu_seqlens, heads, blocks, QUERIES);
    if (part.first >= part.length) {
        return;
    }
    const Lane lane;
    const Readers<D> readers(lane);
    const u32 warp = threadIdx.x / 32, hidden = heads * D, stride = 3 * hidden;
    const u32 own = part.first + warp * 32;
    const float *q = qkv + (u64)part.start * stride + part.head * D;
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
    commit_copies();
    fetch_stage(0);

    float out[2][D / 8][4];
    clear(out[0]);
    clear(out[1]);
    Softmax softmax(scale);
    // Draws for the lane's first query and keys 4t to 4t + 3.
    const u32 call = (part.head * STRIDE + own + lane.g) * CALLS + lane.t;

    wait_for_copies<1>();
    round<EXACT, D, QUERIES>(queries);
    for (u32 tile = 0; tile * TILE < end; tile++) {
        unsigned char *const keys = stages + tile % 2 * 2 * TILE_BYTES, *const values = keys + TILE_BYTES;
        wait_for_copies<0>();
        round<EXACT, D, TILE>(keys);
        round<EXACT, D, TILE>(values);
        // All warps have this tile, and none reads the previous one any more.
        __syncthreads();
        if ((tile + 1) * TILE < end) {
            fetch_stage(tile + 1);
        }
        const u32 first = tile * TILE;
        if (own >= part.length || (causal && first > own + 31)) {
            continue;
        }
        float s[2][TILE / 8][4];
        products<EXACT, D, 2>(s, queries + warp * 32 * Rows<D>::BYTES, readers.ordered, keys, readers.right);
        if (first + TILE > part.length || (causal && first + TILE > own + 1)) {
#pragma unroll
            for (u32 m = 0; m < 2; m++) {
                mask_keys(s[m], own + m * 16, first, part.length, causal, lane);
            }
        }
        softmax.adapt(s, out);
#pragma unroll
        for (u32 m = 0; m < 2; m++) {
            softmax.apply(s[m], m);
            if (DROP) {
                u32 drawn[TILE / 8][4];
                draw_for(drawn, call + m * 16 * CALLS + first / 4, stream);
#pragma unroll
                for (u32 n = 0; n < TILE / 8; n++) {
#pragma unroll
                    for (u32 i = 0; i < 4; i++) {
                        s[m][n][i] = drawn[n][i] >= threshold ? s[m][n][i] : 0.0f;
                    }
                }
            }
        }
        add_rows<EXACT, D, 2>(out, s, values, readers.inner);
    }

    if (own >= part.length) {
        return;
    }
    float *const to = context + (u64)part.start * hidden + part.head * D;
#pragma unroll
    for (u32 m = 0; m < 2; m++) {
        float factor[2];
#pragma unroll
        for (u32 half = 0; half < 2; half++) {
            const float sum = softmax.sum(m, half);
            factor[half] = (DROP ? kept_scale : 1.0f) / sum;
            const u32 query = own + m * 16 + lane.g + half * 8;
            if (lane.t == 0 && query < part.length) {
                log_sums[(u64)(part.start + query) * heads + part.head] =
                    softmax.top[m][half] * LN_2 + logf(sum);
            }
        }
        const u32 rows[2] = {lane.g, lane.g + 8};
        store<D>(to, hidden, own + m * 16, part.length, out[m], factor, rows, lane);
    }
}

#define FORWARD const float *qkv, float *context, float *log_sums, CALL

extern "C" __global__ void __launch_bounds__(128, 2) flash_exact_forward_64(FORWARD) {
    forward<true, 64, false>(qkv, context, log_sums, SHARED_ARGUMENTS);
}
extern "C" __global__ void __launch_bounds__(128, 2) flash_exact_forward_64_dropout(FORWARD) {
    forward<true, 64, true>(qkv, context, log_sums, SHARED_ARGUMENTS);
}
extern "C" __global__ void __launch_bounds__(128, 3) flash_exact_forward_32(FORWARD) {
    forward<true, 32, false>(qkv, context, log_sums, SHARED_ARGUMENTS);
}
extern "C" __global__ void __launch_bounds__(128, 2) flash_exact_forward_32_dropout(FORWARD) {
    forward<true, 32, true>(qkv, context, log_sums, SHARED_ARGUMENTS);
}
extern "C" __global__ void __launch_bounds__(128, 3) flash_tf32_forward_64(FORWARD) {
    forward<false, 64, false>(qkv, context, log_sums, SHARED_ARGUMENTS);
}
extern "C" __global__ void __launch_bounds__(128, 3) flash_tf32_forward_64_dropout(FORWARD) {
    forward<false, 64, true>(qkv, context, log_sums, SHARED_ARGUMENTS);
}
extern "C" __global__ void __launch_bounds__(128, 4) flash_tf32_forward_32(FORWARD) {
    forward<false, 32, false>(qkv, context, log_sums, SHARED_ARGUMENTS);
}
extern "C" __global__ void __launch_bounds__(128, 3) flash_tf32_forward_32_dropout(FORWARD) {
    forward<false, 32, true>(qkv, context, log_sums, SHARED_ARGUMENTS);
}
