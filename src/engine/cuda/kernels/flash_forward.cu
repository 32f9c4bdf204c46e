// Attention on tensor cores, forward: see flash.cuh.

#if ELEMENT != 0

// A block handles 128 queries, a warp 32 of them: tiles of 16, which share the right factors.
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
    const u32 kept = Kept(all_kept, key_blocks, part, heads).block(own, 0) + 8 * lane.t + lane.g;
    const u32 end = causal ? min(part.length, part.first + QUERIES) : part.length;

    fetch<D, QUERIES>(queries, q, stride, part.first, part.length);
    fetch<D, TILE>(stages, q + hidden, stride, 0, part.length);
    fetch<D, TILE>(stages + TILE_BYTES, q + 2 * hidden, stride, 0, part.length);
    commit_copies();

    float out[2][D / 8][4];
    clear(out[0]);
    clear(out[1]);
    Softmax softmax(scale);
    // Draws for the lane's first query and keys 4t to 4t + 3.
    const u32 call = (part.head * STRIDE + own + lane.g) * CALLS + lane.t;

    for (u32 tile = 0; tile * TILE < end; tile++) {
        const unsigned char *const keys = stages + tile % 2 * 2 * TILE_BYTES;
        const unsigned char *const values = keys + TILE_BYTES;
        wait_for_copies<0>();
        // All warps have this tile, and none reads the previous one any more.
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
                // Read again at each step, because registers are scarcer.
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
                    mask_keys(s[m], own + m * 16, first, part.length, causal, lane);
                }
            }
            softmax.adapt(s, out);
            u32 p[2][STEP / 16][4];
#pragma unroll
            for (u32 m = 0; m < 2; m++) {
                softmax.apply(s[m], m);
                if (DROP) {
                    u32 drawn[STEP / 8][4];
                    draw_for(drawn, call + m * 16 * CALLS + first / 4, stream);
#pragma unroll
                    for (u32 n = 0; n < STEP / 8; n++) {
#pragma unroll
                        for (u32 i = 0; i < 4; i++) {
                            s[m][n][i] = drawn[n][i] >= threshold ? s[m][n][i] : -0.0f;
                        }
                    }
                }
#pragma unroll
                for (u32 j = 0; j < STEP / 16; j++) {
                    as_left(p[m][j], s[m][2 * j], s[m][2 * j + 1]);
                }
                if (DROP) {
                    // The sign of what was dropped.
                    u32 bits = 0;
#pragma unroll
                    for (u32 j = 0; j < STEP / 16; j++) {
#pragma unroll
                        for (u32 i = 0; i < 4; i++) {
                            const u32 signs = ~p[m][j][i] & 0x80008000u;
                            bits |= (signs >> 15 | signs >> 30) << place_of(0, 2 * j + i / 2, i % 2 * 2);
                        }
                    }
                    ((u16 *)(all_kept + kept + first))[m] = bits;
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
            const float sum = softmax.sum(m, half);
            factor[half] = (DROP ? kept_scale : 1.0f) / sum;
            const u32 query = own + m * 16 + lane.g + half * 8;
            if (lane.t == 0 && query < part.length) {
                log_sums[(u64)(part.start + query) * heads + part.head] =
                    softmax.top[m][half] * LN_2 + logf(sum);
            }
        }
        const u32 rows[2] = {lane.g, lane.g + 8};
        unsigned char *const through = queries + (warp * 32 + m * 16) * Rows<D>::BYTES;
        store<D>(through, to, hidden, own + m * 16, part.length, out[m], factor, rows, lane);
    }
}

#define FORWARD const T *qkv, T *context, float *log_sums, CALL

extern "C" __global__ void __launch_bounds__(128, 3) flash_forward_64(FORWARD) {
    forward<64, false>(qkv, context, log_sums, SHARED_ARGUMENTS);
}
extern "C" __global__ void __launch_bounds__(128, 3) flash_forward_64_dropout(FORWARD) {
    forward<64, true>(qkv, context, log_sums, SHARED_ARGUMENTS);
}
extern "C" __global__ void __launch_bounds__(128, 4) flash_forward_32(FORWARD) {
    forward<32, false>(qkv, context, log_sums, SHARED_ARGUMENTS);
}
extern "C" __global__ void __launch_bounds__(128, 3) flash_forward_32_dropout(FORWARD) {
    forward<32, true>(qkv, context, log_sums, SHARED_ARGUMENTS);
}

#endif
