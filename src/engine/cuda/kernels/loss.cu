// Softmax cross-entropy over rows of logits, with or without a teacher's, and the cosine between
// hidden states. Logits are overwritten with their gradients; a block handles a row of them.

static constexpr u32 THREADS = 512;

// Returns the sum over the block in every thread, in a fixed order. `parts` must not be used by
// other calls.
__device__ __forceinline__ float block_sum(float x, float *parts) {
    x = warp_sum(x);
    if (threadIdx.x % 32 == 0) {
        parts[threadIdx.x / 32] = x;
    }
    __syncthreads();
    float sum = 0.0f;
#pragma unroll
    for (u32 warp = 0; warp < THREADS / 32; warp++) {
        sum += parts[warp];
    }
    return sum;
}

__device__ __forceinline__ float block_max(float x, float *parts) {
    x = warp_max(x);
    if (threadIdx.x % 32 == 0) {
        parts[threadIdx.x / 32] = x;
    }
    __syncthreads();
    float most = parts[0];
#pragma unroll
    for (u32 warp = 1; warp < THREADS / 32; warp++) {
        most = fmaxf(most, parts[warp]);
    }
    return most;
}

// A group of W values that are loaded at once: a vector if rows start at multiples of 16 bytes, a
// word of two short values if they start at multiples of four, else a single value. Loads bypass
// the L1 cache, which should hold the bias for all rows.
template <u32 W> struct Group;

template <> struct Group<1> {
    T one;
    __device__ __forceinline__ void load(const T *at) { one = *at; }
    __device__ __forceinline__ void store(T *at) const { *at = one; }
    __device__ __forceinline__ float get(u32) const { return to_float(one); }
    __device__ __forceinline__ void put(const float *x) { set(one, *x); }
};

#if ELEMENT != 0
template <> struct Group<2> {
    u32 word;
    __device__ __forceinline__ void load(const T *at) {
#ifdef CLOZE_EMULATED
        word = *(const u32 *)at;
#else
        asm volatile("ld.global.L1::no_allocate.u32 %0, [%1];" : "=r"(word) : "l"(at));
#endif
    }
    __device__ __forceinline__ void store(T *at) const { *(u32 *)at = word; }
    __device__ __forceinline__ float get(u32 i) const { return i ? Pair<T>::high(word) : Pair<T>::low(word); }
    __device__ __forceinline__ void put(const float *x) { word = Pair<T>::of(x[0], x[1]); }
};
#endif

template <> struct Group<V> {
    Packed<T> packed;
    __device__ __forceinline__ void load(const T *at) {
#ifdef CLOZE_EMULATED
        packed.words = *(const Words *)at;
#else
        u32 *w = packed.words.word;
        asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(w[0]), "=r"(w[1]), "=r"(w[2]), "=r"(w[3])
                     : "l"(at));
#endif
    }
    __device__ __forceinline__ void store(T *at) const { *(Words *)at = packed.words; }
    __device__ __forceinline__ float get(u32 i) const { return packed.get(i); }
    __device__ __forceinline__ void put(const float *x) { packed.put(x); }
};

// Loads W values of the bias, from a multiple of W.
template <u32 W>
__device__ __forceinline__ void load_bias(const float *bias, bool whole, float *x) {
    if constexpr (W >= 4) {
        if (whole) {
            load_floats<W>(bias, 0, W, x);
            return;
        }
    }
#pragma unroll
    for (u32 j = 0; j < W; j++) {
        x[j] = bias[j];
    }
}

// Calls `work(Count<N>, column, group of N)` for this thread's groups of a row: groups of W, U of
// which are loaded ahead, then single values after the last whole group.
template <u32 W, u32 U, typename Work>
__device__ __forceinline__ void over_groups(const T *row, u32 classes, Work work) {
    u32 whole = classes - classes % W;
    for (u32 first = threadIdx.x * W; first < whole; first += THREADS * W * U) {
        Group<W> groups[U];
#pragma unroll
        for (u32 u = 0; u < U; u++) {
            if (first + u * THREADS * W < whole) {
                groups[u].load(row + first + u * THREADS * W);
            }
        }
#pragma unroll
        for (u32 u = 0; u < U; u++) {
            if (first + u * THREADS * W < whole) {
                work(Count<W>(), first + u * THREADS * W, groups[u]);
            }
        }
    }
    if constexpr (W > 1) {
        if (whole + threadIdx.x < classes) {
            Group<1> group;
            group.load(row + whole + threadIdx.x);
            work(Count<1>(), whole + threadIdx.x, group);
        }
    }
}

// The largest value so far, at first minus infinity, and the sum of e^(x - largest) over the
// values.
struct Softmax {
    float top = __uint_as_float(0xff800000u), sum = 0.0f;

    // Adds N values.
    template <u32 N> __device__ __forceinline__ void take(const float *x) {
        float most = x[0];
#pragma unroll
        for (u32 j = 1; j < N; j++) {
            most = fmaxf(most, x[j]);
        }
        if (most > top) {
            sum *= fast_exp(top - most);
            top = most;
        }
        float shift = -top * LOG2_E;
#pragma unroll
        for (u32 j = 0; j < N; j++) {
            sum += power_of_two(x[j] * LOG2_E + shift);
        }
    }

    // Returns that of the whole block.
    __device__ __forceinline__ void join(float *parts) {
        float most = block_max(top, parts);
        sum = block_sum(sum * fast_exp(top - most), parts + THREADS / 32);
        top = most;
    }
};

template <u32 W>
__device__ __forceinline__ void cross_entropy_of_row(u32 classes, T *row, const float *bias, u32 label,
                                                     float weight, float *loss, u32 *correct,
                                                     float *parts) {
    constexpr u32 U = W == V ? 2 : 4;
    bool whole = aligned(bias);
    Softmax softmax;
    over_groups<W, U>(row, classes, [&](auto count, u32 column, const auto &group) {
        constexpr u32 N = decltype(count)::N;
        float x[N], b[N];
        load_bias<N>(bias + column, whole, b);
#pragma unroll
        for (u32 j = 0; j < N; j++) {
            x[j] = group.get(j) + b[j];
        }
        softmax.template take<N>(x);
    });
    if (threadIdx.x == 0) {
        // Read before the row is overwritten: a barrier follows.
        parts[2 * THREADS / 32] = to_float(row[label]) + bias[label];
    }
    softmax.join(parts);
    if (threadIdx.x == 0) {
        float logit = parts[2 * THREADS / 32];
        *loss = softmax.top + logf(softmax.sum) - logit;
        *correct = logit == softmax.top;
    }
    if (weight == 0.0f) {
        return;
    }
    float scale = weight / softmax.sum, shift = -softmax.top * LOG2_E;
    over_groups<W, U>(row, classes, [&](auto count, u32 column, const auto &group) {
        constexpr u32 N = decltype(count)::N;
        float x[N], b[N];
        load_bias<N>(bias + column, whole, b);
#pragma unroll
        for (u32 j = 0; j < N; j++) {
            x[j] = scale * power_of_two((group.get(j) + b[j]) * LOG2_E + shift);
            x[j] -= column + j == label ? weight : 0.0f;
        }
        Group<N> gradient;
        gradient.put(x);
        gradient.store(row + column);
    });
}

// `scored`: the loss, and 1 if the label has the largest logit, of each row; zeros, also as the
// gradient, for a row whose label is no class.
extern "C" __global__ void __launch_bounds__(THREADS)
    cross_entropy(u32 classes, u32 stride, T *logits, const float *bias, const u32 *labels,
                  float weight, float *scored) {
    __shared__ float parts[2 * THREADS / 32 + 1];
    T *row = logits + (u64)blockIdx.x * stride;
    u32 label = labels[blockIdx.x];
    float *loss = scored + 2 * (u64)blockIdx.x;
    u32 *correct = (u32 *)loss + 1;
    if (label >= classes) {
        if (threadIdx.x == 0) {
            *loss = 0.0f;
            *correct = 0;
        }
        if (weight != 0.0f) {
            for (u32 column = threadIdx.x; column < classes; column += THREADS) {
                set(row[column], 0.0f);
            }
        }
        return;
    }
    if (stride % V == 0 && aligned(logits)) {
        cross_entropy_of_row<V>(classes, row, bias, label, weight, loss, correct, parts);
#if ELEMENT != 0
    } else if (stride % 2 == 0 && (u64)logits % 4 == 0) {
        cross_entropy_of_row<2>(classes, row, bias, label, weight, loss, correct, parts);
#endif
    } else {
        cross_entropy_of_row<1>(classes, row, bias, label, weight, loss, correct, parts);
    }
}

// Calls `work(column)` for this thread's values of a row.
template <typename Work> __device__ __forceinline__ void over_numbers(u32 classes, Work work) {
#pragma unroll 4
    for (u32 column = threadIdx.x; column < classes; column += THREADS) {
        work(column);
    }
}

// The cross-entropy of one of an answer's two tokens over its sequence's tokens; blockIdx.y is its column of logits.
extern "C" __global__ void __launch_bounds__(THREADS)
    span_loss(u32 stride, T *logits, const u32 *cu_seqlens, const u32 *labels, float weight, float *scored) {
    __shared__ float parts[2 * THREADS / 32];
    u32 first = cu_seqlens[blockIdx.x], length = cu_seqlens[blockIdx.x + 1] - first;
    u64 place = 2 * (u64)blockIdx.x + blockIdx.y;
    T *column = logits + (u64)first * stride + blockIdx.y;
    u32 label = labels[place];
    float *loss = scored + 2 * place;
    u32 *correct = (u32 *)loss + 1;
    if (label >= length) {
        if (threadIdx.x == 0) {
            *loss = 0.0f;
            *correct = 0;
        }
        over_numbers(length, [&](u32 row) { set(column[(u64)row * stride], 0.0f); });
        return;
    }
    Softmax softmax;
    over_numbers(length, [&](u32 row) {
        float x = to_float(column[(u64)row * stride]);
        softmax.take<1>(&x);
    });
    // Read before the column is overwritten: a barrier follows.
    float logit = to_float(column[(u64)label * stride]);
    softmax.join(parts);
    if (threadIdx.x == 0) {
        *loss = softmax.top + logf(softmax.sum) - logit;
        *correct = logit == softmax.top;
    }
    float scale = weight / softmax.sum, shift = -softmax.top * LOG2_E;
    over_numbers(length, [&](u32 row) {
        T *x = column + (u64)row * stride;
        float gradient = scale * power_of_two(to_float(*x) * LOG2_E + shift);
        set(*x, gradient - (row == label ? weight : 0.0f));
    });
}

// The weighted loss of distillation at a temperature (Hinton et al., arXiv 1503.02531). `scored`:
// the cross-entropy, 1 if the label has the largest logit, and T^2 times the divergence from the
// teacher's distribution, of each row; a fourth value is left unchanged.
extern "C" __global__ void __launch_bounds__(THREADS)
    distillation(u32 classes, u32 stride, T *logits, const float *bias, const u32 *labels,
                 const float *teacher, float temperature, float soft, float hard, float *scored) {
    __shared__ float parts[6][THREADS / 32];
    __shared__ float at_label;
    T *row = logits + (u64)blockIdx.x * stride;
    teacher += (u64)blockIdx.x * classes;
    u32 label = labels[blockIdx.x];
    float t = 1.0f / temperature;
    auto own = [&](u32 column) { return to_float(row[column]) + bias[column]; };

    float top = Softmax().top, their_top = top;
    over_numbers(classes, [&](u32 column) {
        top = fmaxf(top, own(column));
        their_top = fmaxf(their_top, teacher[column]);
    });
    top = block_max(top, parts[0]);
    their_top = block_max(their_top, parts[1]);

    // `apart` is the sum of p (ln p - ln q) without the logarithms of the totals, with p the
    // teacher's and q the student's probabilities.
    float total = 0.0f, soft_total = 0.0f, their_total = 0.0f, apart = 0.0f;
    over_numbers(classes, [&](u32 column) {
        float x = own(column) - top, y = (teacher[column] - their_top) * t, p = fast_exp(y);
        total += fast_exp(x);
        soft_total += fast_exp(x * t);
        their_total += p;
        apart += p * (y - x * t);
    });
    if (threadIdx.x == 0) {
        // Read before the row is overwritten: a barrier follows.
        at_label = own(label);
    }
    total = block_sum(total, parts[2]);
    soft_total = block_sum(soft_total, parts[3]);
    their_total = block_sum(their_total, parts[4]);
    apart = block_sum(apart, parts[5]);
    if (threadIdx.x == 0) {
        float *row_scored = scored + 4 * (u64)blockIdx.x;
        row_scored[0] = top + logf(total) - at_label;
        ((u32 *)row_scored)[1] = at_label == top;
        row_scored[2] = temperature * temperature *
                        (apart / their_total + logf(soft_total) - logf(their_total));
    }
    // T^2 comes from the loss, 1 / T from dividing the logits by T.
    float a = hard / total, b = soft * temperature / soft_total, c = soft * temperature / their_total;
    over_numbers(classes, [&](u32 column) {
        float x = own(column) - top, y = (teacher[column] - their_top) * t;
        float gradient = a * fast_exp(x) + b * fast_exp(x * t) - c * fast_exp(y);
        set(row[column], gradient - (column == label ? hard : 0.0f));
    });
}

// Added to squared norms, as in PyTorch's cosine embedding loss.
static constexpr float EPSILON = 1e-12f;

// One minus the cosine between rows; adds `weight` times its gradient to d. One warp per row.
extern "C" __global__ void __launch_bounds__(256)
    cosine(u32 n, u32 width, const T *own, const float *theirs, float weight, T *d, float *scored) {
    u32 row = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (row >= n) {
        return;
    }
    bool whole = width % V == 0 && aligned(own) && aligned(d);
    own += (u64)row * width;
    theirs += (u64)row * width;
    d += (u64)row * width;
    float own_square = 0.0f, their_square = 0.0f, product = 0.0f;
    for (u32 column = lane * V; column < width; column += 32 * V) {
        Packed<T> x = load(own, column, width, whole);
        float y[V];
        load_floats<V>(theirs, column, width, y);
#pragma unroll
        for (u32 j = 0; j < V; j++) {
            own_square += x.get(j) * x.get(j);
            their_square += y[j] * y[j];
            product += x.get(j) * y[j];
        }
    }
    own_square = warp_sum(own_square) + EPSILON;
    their_square = warp_sum(their_square) + EPSILON;
    float norms = sqrtf(own_square) * sqrtf(their_square);
    float similarity = warp_sum(product) / norms;
    if (lane == 0) {
        scored[row] = 1.0f - similarity;
    }
    float towards = weight / norms, away = weight * similarity / own_square;
    for (u32 column = lane * V; column < width; column += 32 * V) {
        Packed<T> x = load(own, column, width, whole), old = load(d, column, width, whole);
        float y[V], sum[V];
        load_floats<V>(theirs, column, width, y);
#pragma unroll
        for (u32 j = 0; j < V; j++) {
            sum[j] = old.get(j) + away * x.get(j) - towards * y[j];
        }
        old.put(sum);
        store(d, column, width, whole, old);
    }
}
