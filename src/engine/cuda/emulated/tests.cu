// Correct and wrong kernels, to test the emulator itself.

extern "C" __global__ void __launch_bounds__(64) test_sums(const float* x, float* y, unsigned n,
                                                           float scale) {
    __shared__ float parts[2];
    const unsigned warp = threadIdx.x / 32;
    float sum = 0.0f;
    for (unsigned i = threadIdx.x; i < n; i += blockDim.x) sum += x[blockIdx.x * n + i];
    for (unsigned by = 16; by > 0; by /= 2) sum += __shfl_xor_sync(0xFFFFFFFF, sum, by);
    if (threadIdx.x % 32 == 0) parts[warp] = sum;
    __syncthreads();
    if (threadIdx.x == 0) y[blockIdx.x] = (parts[0] + parts[1]) * scale;
}

// Lacks the barrier: sums values that were never written.
extern "C" __global__ void test_race(float* y) {
    __shared__ float parts[64];
    DYNAMIC_SHARED(bytes);
    float* more = reinterpret_cast<float*>(bytes);
    parts[threadIdx.x] = 1.0f;
    more[threadIdx.x] = 1.0f;
    const float sum = parts[(threadIdx.x + 32) % 64] + more[(threadIdx.x + 32) % 64];
    y[blockIdx.x * 64 + threadIdx.x] = sum;
}

extern "C" __global__ void test_diverging(float* y) {
    if (threadIdx.x < 40) {
        __syncthreads();
    } else {
        __syncthreads();
    }
    y[threadIdx.x] = 1.0f;
}

extern "C" __global__ void test_missing_lanes(float* y) {
    if (threadIdx.x < 10) y[threadIdx.x] = __shfl_sync(0xFFFFFFFF, 1.0f, 0);
}

// Threads that have returned are not waited for.
extern "C" __global__ void test_early_return(float* y) {
    if (threadIdx.x >= 40) return;
    __syncthreads();
    if (threadIdx.x < 32) y[threadIdx.x] = __any_sync(0xFFFFFFFF, threadIdx.x == 3) ? 1.0f : 0.0f;
}

extern "C" __global__ void test_behind_shared(float* y) {
    DYNAMIC_SHARED(bytes);
    bytes[threadIdx.x + 1] = 0;
    y[threadIdx.x] = 1.0f;
}

extern "C" __global__ void test_beside(float* y, unsigned at) { y[at] = 1.0f; }

// Converts numbers to each half-precision format and back.
extern "C" __global__ void test_rounding(const float* x, float* y, unsigned n) {
    for (unsigned i = threadIdx.x; i < n; i += blockDim.x) {
        y[2 * i] = cloze::bf16_to_float(cloze::float_to_bf16(x[i]));
        y[2 * i + 1] = cloze::f16_to_float(cloze::float_to_f16(x[i]));
    }
}
