// AdamW and LAMB over flat buffers; see src/engine/optimizer.rs for the sources. A block handles
// one chunk of one parameter.

static constexpr u32 THREADS = 256;

// Returns the sum over the block, in the first thread. `parts` must not be used by other calls.
__device__ __forceinline__ double block_sum(double x, double *parts) {
    x = warp_sum(x);
    if (threadIdx.x % 32 == 0) {
        parts[threadIdx.x / 32] = x;
    }
    __syncthreads();
    double sum = 0.0;
    if (threadIdx.x == 0) {
        for (u32 warp = 0; warp < THREADS / 32; warp++) {
            sum += parts[warp];
        }
    }
    return sum;
}

__device__ __forceinline__ double square(float x) { return (double)x * (double)x; }

// Writes a sum of squares per block to `partials`, over a count of values given as low and high
// half. In f64: the squares of gradients may be outside the range of f32.
extern "C" __global__ void __launch_bounds__(THREADS)
    squares(u32 low, u32 high, const float *x, double *partials) {
    __shared__ double parts[THREADS / 32];
    u64 count = (u64)high << 32 | low;
    double sum = 0.0;
#pragma unroll 4
    for (u64 i = ((u64)blockIdx.x * THREADS + threadIdx.x) * 4; i < count;
         i += (u64)gridDim.x * THREADS * 4) {
        float four[4];
        load_floats<4>(x + i, 0, count - i < 4 ? (u32)(count - i) : 4, four);
#pragma unroll
        for (u32 j = 0; j < 4; j++) {
            sum += square(four[j]);
        }
    }
    sum = block_sum(sum, parts);
    if (threadIdx.x == 0) {
        partials[blockIdx.x] = sum;
    }
}

extern "C" __global__ void __launch_bounds__(THREADS)
    finish_squares(u32 blocks, const double *partials, double *into) {
    __shared__ double parts[THREADS / 32];
    double sum = 0.0;
    for (u32 i = threadIdx.x; i < blocks; i += THREADS) {
        sum += partials[i];
    }
    sum = block_sum(sum, parts);
    if (threadIdx.x == 0) {
        *into = sum;
    }
}

// `Step` of optimizer.rs.
struct Step {
    float rate, shrink, decay, beta1, beta2, epsilon, first_scale, second_scale, unscale, padding;
    double max_norm;

    // Updates the running means with a gradient.
    __device__ __forceinline__ void take(float gradient, float &m, float &v) const {
        m = beta1 * m + (1.0f - beta1) * gradient;
        v = beta2 * v + (1.0f - beta2) * gradient * gradient;
    }

    // Returns Adam's direction.
    __device__ __forceinline__ float direction(float m, float v) const {
        return m * first_scale / (sqrtf(v) * second_scale + epsilon);
    }
};

static_assert(sizeof(Step) == 48, "the step's bytes");

// Returns the factor of gradients that removes the loss scale and clips; NaN if their norm is not
// finite.
__device__ __forceinline__ float factor_of(const Step &step, double squares) {
    double norm = sqrt(squares) * step.unscale;
    if (!(norm - norm == 0.0)) {
        return __uint_as_float(0x7fffffffu);
    }
    double clip = norm > step.max_norm ? step.max_norm / norm : 1.0;
    return (float)(clip * step.unscale);
}

// The same for all threads of the block; one computes it.
__device__ __forceinline__ float shared_factor(const Step *step, const double *squares) {
    __shared__ float factor;
    if (threadIdx.x == 0) {
        factor = factor_of(*step, *squares);
    }
    __syncthreads();
    return factor;
}

// A chunk of a parameter, as in `Chunks` of optimizer.rs.
struct Chunk {
    u32 start, length, decay, parameter;
    // Factor of the learning rate; 0 for a frozen parameter, whose gradients are 0.
    float rate;
};

static_assert(sizeof(Chunk) == 20, "the chunk's bytes");

// N consecutive values, 1 or 4; four start at a multiple of 16 bytes.
template <u32 N> __device__ __forceinline__ void get(const float *at, float *x) {
    if constexpr (N == 4) {
        Words words = *(const Words *)at;
#pragma unroll
        for (u32 j = 0; j < 4; j++) {
            x[j] = __uint_as_float(words.word[j]);
        }
    } else {
        *x = *at;
    }
}

template <u32 N> __device__ __forceinline__ void put(float *at, const float *x) {
    if constexpr (N == 4) {
        Words words;
#pragma unroll
        for (u32 j = 0; j < 4; j++) {
            words.word[j] = __float_as_uint(x[j]);
        }
        *(Words *)at = words;
    } else {
        *at = *x;
    }
}

// The copy of the parameters for matrix products.
template <u32 N> __device__ __forceinline__ void put_copy(T *at, const float *x) {
#if ELEMENT == 0
    put<N>(at, x);
#else
    if constexpr (N == 4) {
        *(TwoWords *)at = {{Pair<T>::of(x[0], x[1]), Pair<T>::of(x[2], x[3])}};
    } else {
        set(*at, *x);
    }
#endif
}

// Calls `work(Count<N>, index)` for all values of the chunk: for four at once from a multiple of
// four, with `fours`, and one by one for the few before and after.
template <typename Work>
__device__ __forceinline__ void over_chunk(const Chunk &chunk, bool fours, Work work) {
    u32 before = fours ? (4 - chunk.start % 4) % 4 : chunk.length;
    before = before < chunk.length ? before : chunk.length;
    u32 whole = (chunk.length - before) / 4, behind = before + 4 * whole;
    for (u32 i = threadIdx.x; i < before; i += THREADS) {
        work(Count<1>(), (u64)chunk.start + i);
    }
    if (behind + threadIdx.x < chunk.length) {
        work(Count<1>(), (u64)chunk.start + behind + threadIdx.x);
    }
    for (u32 i = threadIdx.x; i < whole; i += THREADS) {
        work(Count<4>(), (u64)chunk.start + before + 4 * i);
    }
}

// Zeroes the chunk's gradients.
__device__ __forceinline__ void clear(const Chunk &chunk, bool fours, float *gradients) {
    over_chunk(chunk, fours, [&](auto count, u64 i) {
        float zero[4] = {0.0f, 0.0f, 0.0f, 0.0f};
        put<decltype(count)::N>(gradients + i, zero);
    });
}

extern "C" __global__ void __launch_bounds__(THREADS)
    adamw(const Chunk *chunks, const Step *steps, const double *squares, float *values,
          float *gradients, float *first, float *second, T *copy) {
    Chunk chunk = chunks[blockIdx.x];
    Step step = *steps;
    float factor = shared_factor(steps, squares);
    bool fours = aligned(values) && aligned(gradients) && aligned(first) && aligned(second) &&
                 aligned(copy);
    if (factor != factor) {
        clear(chunk, fours, gradients);
        return;
    }
    float rate = step.rate * chunk.rate;
    float shrink = chunk.decay ? 1.0f - chunk.rate * (1.0f - step.shrink) : 1.0f;
    over_chunk(chunk, fours, [&](auto count, u64 i) {
        constexpr u32 N = decltype(count)::N;
        float p[N], g[N], m[N], v[N];
        get<N>(values + i, p);
        get<N>(gradients + i, g);
        get<N>(first + i, m);
        get<N>(second + i, v);
#pragma unroll
        for (u32 j = 0; j < N; j++) {
            step.take(g[j] * factor, m[j], v[j]);
            p[j] = p[j] * shrink - rate * step.direction(m[j], v[j]);
            g[j] = 0.0f;
        }
        put<N>(values + i, p);
        put<N>(gradients + i, g);
        put<N>(first + i, m);
        put<N>(second + i, v);
        if (copy) {
            put_copy<N>(copy + i, p);
        }
    });
}

// The first of LAMB's three kernels: updates the means with the gradients and zeroes these; writes
// two sums of squares per chunk, of the parameters and of their updates.
extern "C" __global__ void __launch_bounds__(THREADS)
    lamb_moments(const Chunk *chunks, const Step *steps, const double *squares, const float *values,
                 float *gradients, float *first, float *second, double *partials) {
    __shared__ double parts[2][THREADS / 32];
    Chunk chunk = chunks[blockIdx.x];
    Step step = *steps;
    float factor = shared_factor(steps, squares);
    bool fours = aligned(values) && aligned(gradients) && aligned(first) && aligned(second);
    double of_values = 0.0, of_updates = 0.0;
    if (factor != factor) {
        clear(chunk, fours, gradients);
    } else {
        float decay = chunk.decay ? step.decay : 0.0f;
        over_chunk(chunk, fours, [&](auto count, u64 i) {
            constexpr u32 N = decltype(count)::N;
            float p[N], g[N], m[N], v[N];
            get<N>(values + i, p);
            get<N>(gradients + i, g);
            get<N>(first + i, m);
            get<N>(second + i, v);
#pragma unroll
            for (u32 j = 0; j < N; j++) {
                step.take(g[j] * factor, m[j], v[j]);
                of_values += square(p[j]);
                of_updates += square(step.direction(m[j], v[j]) + decay * p[j]);
                g[j] = 0.0f;
            }
            put<N>(gradients + i, g);
            put<N>(first + i, m);
            put<N>(second + i, v);
        });
    }
    of_values = block_sum(of_values, parts[0]);
    of_updates = block_sum(of_updates, parts[1]);
    if (threadIdx.x == 0) {
        partials[2 * blockIdx.x] = of_values;
        partials[2 * blockIdx.x + 1] = of_updates;
    }
}

// The second: the factor that scales each parameter's update to the norm of the parameter, one warp
// each. Biases and LayerNorms are not scaled, as in google-research/albert, lamb_optimizer.py.
extern "C" __global__ void __launch_bounds__(32)
    lamb_ratios(const Chunk *chunks, const u32 *firsts, const double *partials, float *ratios) {
    u32 first = firsts[blockIdx.x], end = firsts[blockIdx.x + 1];
    double of_values = 0.0, of_updates = 0.0;
    for (u32 i = first + threadIdx.x; i < end; i += 32) {
        of_values += partials[2 * i];
        of_updates += partials[2 * i + 1];
    }
    of_values = warp_sum(of_values);
    of_updates = warp_sum(of_updates);
    if (threadIdx.x == 0) {
        bool stretched = chunks[first].decay && of_values > 0.0 && of_updates > 0.0;
        ratios[blockIdx.x] = stretched ? (float)(sqrt(of_values) / sqrt(of_updates)) : 1.0f;
    }
}

// The third: updates the parameters.
extern "C" __global__ void __launch_bounds__(THREADS)
    lamb_update(const Chunk *chunks, const Step *steps, const double *squares, float *values,
                const float *first, const float *second, const float *ratios, T *copy) {
    Chunk chunk = chunks[blockIdx.x];
    Step step = *steps;
    float factor = shared_factor(steps, squares);
    if (factor != factor) {
        return;
    }
    bool fours = aligned(values) && aligned(first) && aligned(second) && aligned(copy);
    float decay = chunk.decay ? step.decay : 0.0f;
    float rate = step.rate * chunk.rate * ratios[chunk.parameter];
    over_chunk(chunk, fours, [&](auto count, u64 i) {
        constexpr u32 N = decltype(count)::N;
        float p[N], m[N], v[N];
        get<N>(values + i, p);
        get<N>(first + i, m);
        get<N>(second + i, v);
#pragma unroll
        for (u32 j = 0; j < N; j++) {
            p[j] -= rate * (step.direction(m[j], v[j]) + decay * p[j]);
        }
        put<N>(values + i, p);
        if (copy) {
            put_copy<N>(copy + i, p);
        }
    });
}
