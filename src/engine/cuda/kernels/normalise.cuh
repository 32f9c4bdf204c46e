// The normalisation of LayerNorm, one warp per row.

// Vectors of a row that a lane keeps between passes over it: all of a row of up to 1024.
static constexpr u32 KEPT = 32 / V;

// Calls `work(column, vector)` for the vectors of this lane: the kept ones, and the remaining ones
// read from `row`.
template <typename Work>
__device__ __forceinline__ void over(const Packed<T> *kept, const T *row, u32 width, bool whole,
                                     Work work) {
    u32 lane = threadIdx.x % 32;
#pragma unroll
    for (u32 i = 0; i < KEPT; i++) {
        u32 column = (i * 32 + lane) * V;
        if (column < width) {
            work(column, kept[i]);
        }
    }
    for (u32 column = (KEPT * 32 + lane) * V; column < width; column += 32 * V) {
        work(column, load(row, column, width, whole));
    }
}

// Normalises a row and calls `put(column, result)` for each vector of this lane. Mean and variance
// are those of the stored values, so that the backward pass sees the same. `row` is read for
// vectors that are not kept.
template <typename Put>
__device__ __forceinline__ void normalise(const Packed<T> *kept, const T *row, u32 width, bool whole,
                                          const float *gain, const float *bias, float epsilon,
                                          float *statistics, Put put) {
    float sum = 0.0f;
    over(kept, row, width, whole, [&](u32, const Packed<T> &x) {
#pragma unroll
        for (u32 j = 0; j < V; j++) {
            sum += x.get(j);
        }
    });
    float mean = warp_sum(sum) / (float)width;
    float squares = 0.0f;
    over(kept, row, width, whole, [&](u32 column, const Packed<T> &x) {
#pragma unroll
        for (u32 j = 0; j < V; j++) {
            // Values past the end of the row don't count.
            float apart = column + j < width ? x.get(j) - mean : 0.0f;
            squares += apart * apart;
        }
    });
    float rstd = 1.0f / sqrtf(warp_sum(squares) / (float)width + epsilon);
    if (threadIdx.x % 32 == 0) {
        statistics[0] = mean;
        statistics[1] = rstd;
    }
    over(kept, row, width, whole, [&](u32 column, const Packed<T> &x) {
        float g[V], b[V], y[V];
        load_floats<V>(gain, column, width, g);
        load_floats<V>(bias, column, width, b);
#pragma unroll
        for (u32 j = 0; j < V; j++) {
            y[j] = (x.get(j) - mean) * rstd * g[j] + b[j];
        }
        put(column, y);
    });
}
