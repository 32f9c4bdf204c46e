// Picks rows and adds them back, and drops values. A block handles a row, each of its threads vectors
// of columns.

// Calls `work(column)` for the vectors of this thread.
template <typename Work> __device__ __forceinline__ void over_row(u32 width, Work work) {
    for (u32 column = threadIdx.x * V; column < width; column += blockDim.x * V) {
        work(column);
    }
}

// to[i] = from[rows[i]]
extern "C" __global__ void __launch_bounds__(128)
    pick(u32 width, const T *from, const u32 *rows, T *to) {
    bool whole = width % V == 0 && aligned(from) && aligned(to);
    from += (u64)rows[blockIdx.x] * width;
    to += (u64)blockIdx.x * width;
    over_row(width, [&](u32 column) {
        store(to, column, width, whole, load(from, column, width, whole));
    });
}

extern "C" __global__ void __launch_bounds__(128)
    pick_f32(u32 width, const T *from, const u32 *rows, float *to) {
    bool whole = width % V == 0 && aligned(from);
    from += (u64)rows[blockIdx.x] * width;
    to += (u64)blockIdx.x * width;
    over_row(width, [&](u32 column) {
        float x[V];
        widened(from, column, width, whole, x);
        store_floats<V>(to, column, width, x);
    });
}

// to[row] += y, a vector
__device__ __forceinline__ void add_vector(T *to, u32 column, u32 width, bool whole, const float *y) {
    float x[V];
    widened(to, column, width, whole, x);
#pragma unroll
    for (u32 j = 0; j < V; j++) {
        x[j] += y[j];
    }
    Packed<T> packed;
    packed.put(x);
    store(to, column, width, whole, packed);
}

// to[rows[i]] += from[i] for distinct rows
extern "C" __global__ void __launch_bounds__(128)
    add_picked(u32 width, const T *from, const u32 *rows, T *to) {
    bool whole = width % V == 0 && aligned(from) && aligned(to);
    from += (u64)blockIdx.x * width;
    to += (u64)rows[blockIdx.x] * width;
    over_row(width, [&](u32 column) {
        float y[V];
        widened(from, column, width, whole, y);
        add_vector(to, column, width, whole, y);
    });
}

extern "C" __global__ void __launch_bounds__(128)
    add_picked_f32(u32 width, const float *from, const u32 *rows, T *to) {
    bool whole = width % V == 0 && aligned(to);
    from += (u64)blockIdx.x * width;
    to += (u64)rows[blockIdx.x] * width;
    over_row(width, [&](u32 column) {
        float y[V];
        load_floats<V>(from, column, width, y);
        add_vector(to, column, width, whole, y);
    });
}

// Dropout in place.
extern "C" __global__ void __launch_bounds__(128) drop_rows(u32 width, T *x, DROPOUT) {
    u32 row = blockIdx.x;
    bool whole = width % V == 0 && aligned(x);
    RowDropout dropping(row, width, DROPPED);
    x += (u64)row * width;
    over_row(width, [&](u32 column) {
        u32 bits = dropping.kept_bits<V>(column, whole);
        float y[V];
        widened(x, column, width, whole, y);
#pragma unroll
        for (u32 j = 0; j < V; j++) {
            y[j] = drop(y[j], bits, j, kept_scale);
        }
        Packed<T> packed;
        packed.put(y);
        store(x, column, width, whole, packed);
    });
}
