// LayerNorm, fused with the operations before it: bias, dropout and skip connection.

// x = dropout(x + bias) + residual, out = LayerNorm(x). One warp per row.
extern "C" __global__ void __launch_bounds__(256)
    norm_forward(u32 n, u32 width, T *x, const float *bias, const T *residual, const float *gain,
                 const float *shift, float epsilon, float *statistics, T *out, DROPOUT) {
    u32 row = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (row >= n) {
        return;
    }
    bool whole = width % V == 0 && aligned(x) && aligned(residual) && aligned(out);
    bool changes = bias || residual || state;
    x += (u64)row * width;
    residual += residual ? (u64)row * width : 0;
    out += (u64)row * width;

    // All loads first, because they take longest.
    Packed<T> kept[KEPT], other[KEPT];
#pragma unroll
    for (u32 i = 0; i < KEPT; i++) {
        u32 column = (i * 32 + lane) * V;
        kept[i] = load(x, column, width, whole);
        if (residual) {
            other[i] = load(residual, column, width, whole);
        }
    }
    if (changes) {
        u32 bits[KEPT];
        RowDropout dropping(row, width, DROPPED);
#pragma unroll
        for (u32 i = 0; i < KEPT; i++) {
            u32 column = (i * 32 + lane) * V;
            bits[i] = column < width ? dropping.kept_bits<V>(column, whole) : 0;
        }
        auto sum = [&](u32 column, u32 bits, Packed<T> &own, const Packed<T> &other) {
            float y[V], b[V];
#pragma unroll
            for (u32 j = 0; j < V; j++) {
                b[j] = 0.0f;
            }
            if (bias) {
                load_floats<V>(bias, column, width, b);
            }
#pragma unroll
            for (u32 j = 0; j < V; j++) {
                y[j] = drop(own.get(j) + b[j], bits, j, kept_scale);
                y[j] += residual ? other.get(j) : 0.0f;
            }
            own.put(y);
            store(x, column, width, whole, own);
        };
#pragma unroll
        for (u32 i = 0; i < KEPT; i++) {
            u32 column = (i * 32 + lane) * V;
            if (column < width) {
                sum(column, bits[i], kept[i], other[i]);
            }
        }
        for (u32 column = (KEPT * 32 + lane) * V; column < width; column += 32 * V) {
            Packed<T> own = load(x, column, width, whole), other;
            if (residual) {
                other = load(residual, column, width, whole);
            }
            sum(column, dropping.kept_bits<V>(column, whole), own, other);
        }
    }
    // Vectors that are not kept are read back where this lane wrote them.
    normalise(kept, x, width, whole, gain, shift, epsilon, statistics + 2 * (u64)row,
              [&](u32 column, const float *y) {
                  Packed<T> packed;
                  packed.put(y);
                  store(out, column, width, whole, packed);
              });
}

// Rows that a group of threads handles at a time.
static constexpr u32 ROWS = 2;
// Maximum threads per block.
static constexpr u32 THREADS = 640;

// Sums N values over the warp, with N 2, 4, .. 32, at little more than the cost of one: lane l gets
// the sum of value l / (32 / N).
template <u32 N> __device__ __forceinline__ float warp_sums(float *x) {
#pragma unroll
    for (u32 far = 16, half = N / 2; half > 0; far /= 2, half /= 2) {
        bool upper = threadIdx.x % 32 & far;
#pragma unroll
        for (u32 i = 0; i < half; i++) {
            // Each side passes on the values that the other continues with.
            float given = upper ? x[i] : x[half + i], own = upper ? x[half + i] : x[i];
            x[i] = own + __shfl_xor_sync(ALL, given, far);
        }
    }
#pragma unroll
    for (u32 far = 16 / N; far > 0; far /= 2) {
        x[0] += __shfl_xor_sync(ALL, x[0], far);
    }
    return x[0];
}

// The gradient of norm_forward, or with `drop_out` of a LayerNorm followed by dropout. Groups of
// `lanes` threads share rows, each thread a vector of columns, so that sums over rows stay in its
// registers. A block writes three rows of sums to `partials`: of the gradients of gain, shift and
// linear bias.
extern "C" __global__ void __launch_bounds__(THREADS)
    norm_backward(u32 n, u32 width, u32 lanes, const float *gain, const T *sums,
                  const float *statistics, const T *d_out, T *d_residual, T *d_linear,
                  float *partials, u32 drop_out, DROPOUT) {
    __shared__ __align__(16) float exchange[2][THREADS / 32][2 * ROWS];
    __shared__ __align__(16) float others[THREADS * V];
    u32 group = threadIdx.x / lanes, groups = blockDim.x / lanes;
    u32 column = threadIdx.x % lanes * V, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    bool whole = width % V == 0 && aligned(sums) && aligned(d_out) && aligned(d_residual) &&
                 aligned(d_linear);
    float g[V], added[3][V];
    load_floats<V>(gain, column, width, g);
#pragma unroll
    for (u32 j = 0; j < V; j++) {
        added[0][j] = added[1][j] = added[2][j] = 0.0f;
    }
    float inverse_width = 1.0f / (float)width;
    u32 turn = 0;
    for (u32 base = blockIdx.x * groups * ROWS; base < n; base += gridDim.x * groups * ROWS) {
        u32 first = base + group * ROWS;
        Packed<T> x[ROWS], dy[ROWS];
        float mean[ROWS], rstd[ROWS];
#pragma unroll
        for (u32 r = 0; r < ROWS; r++) {
            // A row past the end has no columns.
            u32 columns = first + r < n ? width : 0;
            u64 row = first + r;
            x[r] = load(sums + row * width, column, columns, whole);
            dy[r] = load(d_out + row * width, column, columns, whole);
            mean[r] = columns ? statistics[2 * row] : 0.0f;
            rstd[r] = columns ? statistics[2 * row + 1] : 0.0f;
        }
        // One bit per value of these rows, drawn while the loads are in progress.
        u32 bits = ALL;
        if (state) {
            bits = 0;
            // Row by row: all at once would need too many registers.
#pragma unroll 1
            for (u32 r = 0; r < ROWS; r++) {
                if (first + r < n && column < width) {
                    RowDropout dropping(first + r, width, DROPPED);
                    bits |= dropping.kept_bits<V>(column, whole) << (r * V);
                }
            }
        }
        u32 out_bits = drop_out ? bits : ALL, linear_bits = drop_out ? ALL : bits;
        float out_scale = drop_out ? kept_scale : 1.0f, linear_scale = drop_out ? 1.0f : kept_scale;
        // Sums over the row of the gradient of the normalised values, and of its product with them.
        float both[2 * ROWS];
#pragma unroll
        for (u32 r = 0; r < ROWS; r++) {
            float alone = 0.0f, times = 0.0f;
#pragma unroll
            for (u32 j = 0; j < V; j++) {
                float d = drop(dy[r].get(j), out_bits, r * V + j, out_scale) * g[j];
                alone += d;
                times += d * ((x[r].get(j) - mean[r]) * rstd[r]);
            }
            both[2 * r] = alone;
            both[2 * r + 1] = times;
        }
        constexpr u32 SHARE = 32 / (2 * ROWS);
        float sum = warp_sums<2 * ROWS>(both);
        if (lane % SHARE == 0) {
            exchange[turn][warp][lane / SHARE] = sum;
        }
        // The next iteration writes the other half, so one barrier is enough.
        __syncthreads();
#pragma unroll
        for (u32 r = 0; r < 2 * ROWS; r++) {
            both[r] = 0.0f;
        }
        for (u32 w = group * (lanes / 32); w < (group + 1) * (lanes / 32); w++) {
#pragma unroll
            for (u32 r = 0; r < 2 * ROWS; r++) {
                both[r] += exchange[turn][w][r];
            }
        }
#pragma unroll
        for (u32 r = 0; r < 2 * ROWS; r++) {
            both[r] *= inverse_width;
        }
        turn ^= 1;
#pragma unroll
        for (u32 r = 0; r < ROWS; r++) {
            forget(x[r]);
            forget(dy[r]);
        }
#pragma unroll
        for (u32 r = 0; r < ROWS; r++) {
            u32 columns = first + r < n ? width : 0;
            u64 at = (u64)(first + r) * width;
            float residual[V], linear[V];
#pragma unroll
            for (u32 j = 0; j < V; j++) {
                float d = drop(dy[r].get(j), out_bits, r * V + j, out_scale);
                float normalised = (x[r].get(j) - mean[r]) * rstd[r];
                residual[j] = rstd[r] * (d * g[j] - both[2 * r] - normalised * both[2 * r + 1]);
                linear[j] = drop(residual[j], linear_bits, r * V + j, linear_scale);
                added[0][j] += d * normalised;
                added[1][j] += d;
                // Rows past the end contribute nothing: their rstd is 0.
                added[2][j] += linear[j];
            }
            Packed<T> packed;
            packed.put(residual);
            store(d_residual + at, column, columns, whole, packed);
            if (d_linear) {
                packed.put(linear);
                store(d_linear + at, column, columns, whole, packed);
            }
        }
    }
    partials += (u64)blockIdx.x * 3 * width;
#pragma unroll
    for (u32 k = 0; k < 3; k++) {
        __syncthreads();
        store_floats<V>(others + threadIdx.x * V, 0, V, added[k]);
        __syncthreads();
        if (group == 0 && column < width) {
            for (u32 other = 1; other < groups; other++) {
#pragma unroll
                for (u32 j = 0; j < V; j++) {
                    added[k][j] += others[(other * lanes + threadIdx.x) * V + j];
                }
            }
            store_floats<V>(partials + k * width, column, width, added[k]);
        }
    }
}
