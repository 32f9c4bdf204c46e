// What all kernels of attention share.

// Strides of queries and heads in the stream of random numbers.
static constexpr u32 STRIDE = 4096;

#define MINUS_INFINITY __uint_as_float(0xff800000u)

// Returns the block's sequence, head and rows: blocks of rows change fastest, so that blocks with
// the same tiles run at the same time.
struct Part {
    u32 sequence, head, first, start, length;

    __device__ __forceinline__ Part(const u32 *cu_seqlens, u32 heads, u32 blocks, u32 rows) {
        const u32 index = blockIdx.x / blocks;
        first = blockIdx.x % blocks * rows;
        head = index % heads;
        sequence = index / heads;
        start = cu_seqlens[sequence];
        length = cu_seqlens[sequence + 1] - start;
    }
};
