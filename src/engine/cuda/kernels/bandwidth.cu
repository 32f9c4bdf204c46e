// Measures the memory's bandwidth, as a reference for other kernels. (J. McCalpin, "Memory
// bandwidth and machine balance in current high performance computers", 1995: copy and triad.)

// Vectors are what other kernels load at once, for every element type.
static_assert(V * sizeof(T) == sizeof(Words), "a vector");

static constexpr u32 THREADS = 512;
static constexpr u32 UNROLL = 4;

// Calls `work(i)` for this thread's vectors, UNROLL of them.
template <typename Work> __device__ __forceinline__ void over_vectors(u32 vectors, Work work) {
    u64 first = (u64)blockIdx.x * THREADS * UNROLL + threadIdx.x;
#pragma unroll
    for (u32 u = 0; u < UNROLL; u++) {
        u64 i = first + u * THREADS;
        if (i < vectors) {
            work(i);
        }
    }
}

extern "C" __global__ void __launch_bounds__(512)
    stream_copy(u32 vectors, const Words *__restrict__ from, Words *__restrict__ to) {
    over_vectors(vectors, [&](u64 i) { to[i] = from[i]; });
}

// a = b + factor · c
extern "C" __global__ void __launch_bounds__(512)
    stream_triad(u32 vectors, float factor, const Words *__restrict__ b, const Words *__restrict__ c,
                 Words *__restrict__ a) {
    over_vectors(vectors, [&](u64 i) {
        Words left = b[i], right = c[i], sum;
#pragma unroll
        for (u32 j = 0; j < 4; j++) {
            float x = __uint_as_float(left.word[j]) + factor * __uint_as_float(right.word[j]);
            sum.word[j] = __float_as_uint(x);
        }
        a[i] = sum;
    });
}
