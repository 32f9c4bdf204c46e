// Biases, GELU, tanh, ReLU, sums and number formats, which act on each value separately, and the sums over
// rows that are the gradients of biases. In most kernels a thread handles a vector of columns and every gridDim.y-th
// row.

// Rows that a thread loads ahead.
static constexpr u32 ROWS = 4;

// The first column of this thread.
__device__ __forceinline__ u32 own_column() { return (blockIdx.x * blockDim.x + threadIdx.x) * V; }

// Half of 1 - erf(|x| / sqrt(2)), and exp(-x^2 / 2). Formula 7.1.26 of Abramowitz and Stegun,
// "Handbook of mathematical functions", with an error below 1e-7.
__device__ __forceinline__ float tail_of_normal(float x, float &e) {
    float t = reciprocal(1.0f + 0.231641888f * fabsf(x));
    e = power_of_two(x * x * (-0.5f * LOG2_E));
    float p = 0.5f * 1.061405429f;
    p = p * t - 0.5f * 1.453152027f;
    p = p * t + 0.5f * 1.421413741f;
    p = p * t - 0.5f * 0.284496736f;
    p = p * t + 0.5f * 0.254829592f;
    return p * t * e;
}

// Calls `fetch(r, row, columns)` for the r-th of ROWS rows, then `work` with the same, until all of this
// thread's rows are done; a row past the end has no columns.
template <typename Fetch, typename Work>
__device__ __forceinline__ void over_rows(u32 n, u32 width, Fetch fetch, Work work) {
    for (u32 first = blockIdx.y; first < n; first += gridDim.y * ROWS) {
#pragma unroll
        for (u32 r = 0; r < ROWS; r++) {
            u64 row = first + (u64)r * gridDim.y;
            fetch(r, row, row < n ? width : 0);
        }
#pragma unroll
        for (u32 r = 0; r < ROWS; r++) {
            u64 row = first + (u64)r * gridDim.y;
            work(r, row, row < n ? width : 0);
        }
    }
}

// out = function(x + bias)
template <typename Function>
__device__ __forceinline__ void of_sum(u32 n, u32 width, const T *x, const float *bias, T *out,
                                       Function function) {
    u32 column = own_column();
    if (column >= width) {
        return;
    }
    bool whole = width % V == 0 && aligned(x) && aligned(out);
    float b[V];
    load_floats<V>(bias, column, width, b);
    Packed<T> in[ROWS];
    over_rows(
        n, width,
        [&](u32 r, u64 row, u32 columns) { in[r] = load(x + row * width, column, columns, whole); },
        [&](u32 r, u64 row, u32 columns) {
            float y[V];
#pragma unroll
            for (u32 j = 0; j < V; j++) {
                y[j] = function(in[r].get(j) + b[j]);
            }
            Packed<T> packed;
            packed.put(y);
            store(out + row * width, column, columns, whole, packed);
        });
}

// out = GELU(x + bias), the exact GELU (arXiv 1606.08415).
extern "C" __global__ void __launch_bounds__(128)
    bias_gelu(u32 n, u32 width, const T *x, const float *bias, T *out) {
    of_sum(n, width, x, bias, out, [](float v) {
        float e;
        return fmaxf(v, 0.0f) - fabsf(v) * tail_of_normal(v, e);
    });
}

// d *= the slope of GELU at x + bias; a block writes a row of sums of d to `partials`.
extern "C" __global__ void __launch_bounds__(128)
    gelu_backward(u32 n, u32 width, const T *x, const float *bias, T *d, float *partials) {
    u32 column = own_column();
    if (column >= width) {
        return;
    }
    bool whole = width % V == 0 && aligned(x) && aligned(d);
    float b[V], added[V];
    load_floats<V>(bias, column, width, b);
#pragma unroll
    for (u32 j = 0; j < V; j++) {
        added[j] = 0.0f;
    }
    Packed<T> in[ROWS], slope[ROWS];
    over_rows(
        n, width,
        [&](u32 r, u64 row, u32 columns) {
            in[r] = load(x + row * width, column, columns, whole);
            slope[r] = load(d + row * width, column, columns, whole);
        },
        [&](u32 r, u64 row, u32 columns) {
            float y[V];
#pragma unroll
            for (u32 j = 0; j < V; j++) {
                float v = in[r].get(j) + b[j], e;
                float tail = tail_of_normal(v, e);
                float below = v < 0.0f ? tail : 1.0f - tail;
                y[j] = slope[r].get(j) * (below + v * (e * 0.398942280f));
                added[j] += y[j];
            }
            Packed<T> packed;
            packed.put(y);
            store(d + row * width, column, columns, whole, packed);
        });
    store_floats<V>(partials + (u64)blockIdx.y * width, column, width, added);
}

// x += bias
extern "C" __global__ void __launch_bounds__(128)
    add_bias(u32 n, u32 width, T *x, const float *bias) {
    of_sum(n, width, x, bias, x, [](float v) { return v; });
}

// A block writes a row of sums over its rows of d to `partials`.
extern "C" __global__ void __launch_bounds__(128)
    column_sums(u32 n, u32 width, u32 stride, const T *d, float *partials) {
    u32 column = own_column();
    if (column >= width) {
        return;
    }
    // A row may end within a vector; values past its end are read, but ignored.
    bool whole = stride % V == 0 && aligned(d);
    float added[V];
#pragma unroll
    for (u32 j = 0; j < V; j++) {
        added[j] = 0.0f;
    }
    Packed<T> in[ROWS];
    over_rows(
        n, width,
        [&](u32 r, u64 row, u32 columns) { in[r] = load(d + row * stride, column, columns, whole); },
        [&](u32 r, u64, u32) {
#pragma unroll
            for (u32 j = 0; j < V; j++) {
                added[j] += in[r].get(j);
            }
        });
    store_floats<V>(partials + (u64)blockIdx.y * width, column, width, added);
}

// Adds `partials`, (stripes, kinds, width), to `kinds` rows of sums, 32 columns per block: 32
// threads share the stripes of a column.
extern "C" __global__ void __launch_bounds__(1024)
    finish_sums(const float *partials, u32 stripes, u32 width, u32 kinds, float *into0, float *into1,
                float *into2) {
    __shared__ float parts[32][33];
    u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    float *into = blockIdx.y == 0 ? into0 : blockIdx.y == 1 ? into1 : into2;
    if (!into) {
        return;
    }
    u32 column = blockIdx.x * 32 + lane;
    float sum = 0.0f;
    if (column < width) {
#pragma unroll 4
        for (u32 stripe = warp; stripe < stripes; stripe += 32) {
            sum += partials[((u64)stripe * kinds + blockIdx.y) * width + column];
        }
    }
    parts[warp][lane] = sum;
    __syncthreads();
    sum = warp_sum(parts[lane][warp]);
    column = blockIdx.x * 32 + warp;
    if (lane == 0 && column < width) {
        into[column] += sum;
    }
}

// x = tanh(x + bias), or with `relu` max(x + bias, 0)
extern "C" __global__ void __launch_bounds__(256)
    activation_bias(u32 n, u32 width, u32 relu, float *x, const float *bias) {
    u64 count = (u64)n * width;
    for (u64 i = blockIdx.x * 256 + threadIdx.x; i < count; i += gridDim.x * 256) {
        float sum = x[i] + bias[i % width];
        x[i] = relu ? fmaxf(sum, 0.0f) : tanhf(sum);
    }
}

// d *= 1 - y^2, or with `relu` 0 where y is 0
extern "C" __global__ void __launch_bounds__(256)
    activation_backward(u32 n, u32 width, u32 relu, const float *y, float *d) {
    u64 count = (u64)n * width;
    for (u64 i = blockIdx.x * 256 + threadIdx.x; i < count; i += gridDim.x * 256) {
        d[i] *= relu ? (y[i] > 0.0f ? 1.0f : 0.0f) : 1.0f - y[i] * y[i];
    }
}

// x += y over `count` numbers.
template <typename E> __device__ __forceinline__ void add_all(u64 count, T *x, const E *y) {
    bool whole = aligned(x) && aligned(y);
    for (u64 i = (u64)(blockIdx.x * 256 + threadIdx.x) * V; i < count; i += (u64)gridDim.x * 256 * V) {
        u32 left = count - i < V ? (u32)(count - i) : V;
        Packed<T> a = load(x + i, 0, left, whole && left == V);
        float b[V], sum[V];
        if constexpr (sizeof(E) == 4) {
            load_floats<V>((const float *)y + i, 0, left, b);
        } else {
            Packed<T> packed = load((const T *)y + i, 0, left, whole && left == V);
#pragma unroll
            for (u32 j = 0; j < V; j++) {
                b[j] = packed.get(j);
            }
        }
#pragma unroll
        for (u32 j = 0; j < V; j++) {
            sum[j] = a.get(j) + b[j];
        }
        a.put(sum);
        store(x + i, 0, left, whole && left == V, a);
    }
}

extern "C" __global__ void __launch_bounds__(256) add(u32 n, u32 width, T *x, const T *y) {
    add_all((u64)n * width, x, y);
}

extern "C" __global__ void __launch_bounds__(256) add_f32(u32 n, u32 width, T *x, const float *y) {
    add_all((u64)n * width, x, y);
}

// to = from for a count of values, given as low and high half.
extern "C" __global__ void __launch_bounds__(256)
    narrow(u32 low, u32 high, const float *from, T *to) {
    u64 count = (u64)high << 32 | low;
    for (u64 i = ((u64)blockIdx.x * 256 + threadIdx.x) * V; i < count; i += (u64)gridDim.x * 256 * V) {
        u32 left = count - i < V ? (u32)(count - i) : V;
        float x[V];
        load_floats<V>(from + i, 0, left, x);
        Packed<T> packed;
        packed.put(x);
        store(to + i, 0, left, left == V && aligned(to), packed);
    }
}

extern "C" __global__ void __launch_bounds__(256)
    widen(u32 low, u32 high, const T *from, float *to) {
    u64 count = (u64)high << 32 | low;
    for (u64 i = ((u64)blockIdx.x * 256 + threadIdx.x) * V; i < count; i += (u64)gridDim.x * 256 * V) {
        u32 left = count - i < V ? (u32)(count - i) : V;
        float x[V];
        widened(from + i, 0, left, left == V && aligned(from), x);
        store_floats<V>(to + i, 0, left, x);
    }
}
