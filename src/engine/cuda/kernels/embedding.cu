// Token, segment and position embeddings, the LayerNorm of their sum, and the gradients of the
// tables.

// sums = words[id] + segments[s] + positions[p], out = dropout(LayerNorm(sums)). One warp per row.
// A model without segments has no table of them.
extern "C" __global__ void __launch_bounds__(256)
    embedding_forward(u32 n, u32 width, const u32 *ids, const u32 *segments, const u32 *places,
                      const float *words, const float *segment_table, const float *position_table,
                      const float *gain, const float *shift, float epsilon, T *sums,
                      float *statistics, T *out, DROPOUT) {
    u32 row = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (row >= n) {
        return;
    }
    bool whole = width % V == 0 && aligned(sums) && aligned(out);
    words += (u64)ids[row] * width;
    u32 segment_width = segment_table == nullptr ? 0 : width;
    segment_table += (u64)segments[row] * segment_width;
    position_table += (u64)places[row] * width;
    sums += (u64)row * width;
    out += (u64)row * width;
    auto sum = [&](u32 column) {
        float w[V], s[V], p[V];
        load_floats<V>(words, column, width, w);
        load_floats<V>(segment_table, column, segment_width, s);
        load_floats<V>(position_table, column, width, p);
#pragma unroll
        for (u32 j = 0; j < V; j++) {
            w[j] += s[j] + p[j];
        }
        Packed<T> packed;
        packed.put(w);
        store(sums, column, width, whole, packed);
        return packed;
    };
    Packed<T> kept[KEPT];
#pragma unroll
    for (u32 i = 0; i < KEPT; i++) {
        kept[i] = sum((i * 32 + lane) * V);
    }
    for (u32 column = (KEPT * 32 + lane) * V; column < width; column += 32 * V) {
        sum(column);
    }
    RowDropout dropping(row, width, DROPPED);
    normalise(kept, sums, width, whole, gain, shift, epsilon, statistics + 2 * (u64)row,
              [&](u32 column, float *y) {
                  u32 bits = dropping.kept_bits<V>(column, whole);
#pragma unroll
                  for (u32 j = 0; j < V; j++) {
                      y[j] = drop(y[j], bits, j, kept_scale);
                  }
                  Packed<T> packed;
                  packed.put(y);
                  store(out, column, width, whole, packed);
              });
}

static constexpr u32 WARPS = 8;

// Adds rows of d to an entry of a table: `row(k)` for k from 0 to `count` - 1, unless it is NO_ROW.
// The block's warps share the rows; each lane handles a vector of columns.
#define NO_ROW ALL

template <typename Row>
__device__ __forceinline__ void add_rows(u32 count, u32 width, const T *d, float *entry, Row row) {
    __shared__ __align__(16) float parts[WARPS][32][V];
    u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    u32 column = (blockIdx.y * 32 + lane) * V;
    bool whole = width % V == 0 && aligned(d);
    float sum[V];
#pragma unroll
    for (u32 j = 0; j < V; j++) {
        sum[j] = 0.0f;
    }
#pragma unroll 4
    for (u32 k = warp; k < count; k += WARPS) {
        u32 from = row(k);
        Packed<T> x = load(d + (u64)from * width, column, from == NO_ROW ? 0 : width, whole);
#pragma unroll
        for (u32 j = 0; j < V; j++) {
            sum[j] += x.get(j);
        }
    }
    // Most words occur in a batch once.
    if (count > 1) {
        store_floats<V>(parts[warp][lane], 0, V, sum);
        __syncthreads();
    }
    if (warp != 0 || column >= width) {
        return;
    }
    float old[V];
    load_floats<V>(entry, column, width, old);
#pragma unroll
    for (u32 j = 0; j < V; j++) {
        for (u32 w = 1; w < WARPS && w < count; w++) {
            sum[j] += parts[w][lane][j];
        }
        old[j] += sum[j];
    }
    store_floats<V>(entry, column, width, old);
}

// A row of blocks handles one of the batch's distinct ids.
extern "C" __global__ void __launch_bounds__(256)
    word_gradients(u32 width, const u32 *order, const u32 *starts, const u32 *ids, const T *d,
                   float *table) {
    u32 first = starts[blockIdx.x], count = starts[blockIdx.x + 1] - first;
    // More entries than distinct ids, so that a recording serves other batches of the same size.
    if (count == 0) {
        return;
    }
    float *entry = table + (u64)ids[order[first]] * width;
    add_rows(count, width, d, entry, [&](u32 k) { return order[first + k]; });
}

// A row of blocks handles one position, for which each sequence has a row or none.
extern "C" __global__ void __launch_bounds__(256)
    position_gradients(u32 width, u32 sequences, const u32 *cu_seqlens, const T *d, float *table) {
    u32 position = blockIdx.x;
    add_rows(sequences, width, d, table + (u64)position * width, [&](u32 k) {
        u32 row = cu_seqlens[k] + position;
        return row < cu_seqlens[k + 1] ? row : NO_ROW;
    });
}

// Rows that a thread loads ahead.
static constexpr u32 ROWS = 4;

// Sums the rows of d of segment `entry` and of the next; a thread handles a vector of columns and
// every gridDim.y-th row. A block writes two rows of sums to `partials`.
extern "C" __global__ void __launch_bounds__(128)
    segment_sums(u32 n, u32 width, const u32 *segments, u32 entry, const T *d, float *partials) {
    u32 column = (blockIdx.x * blockDim.x + threadIdx.x) * V;
    if (column >= width) {
        return;
    }
    bool whole = width % V == 0 && aligned(d);
    float added[2][V];
#pragma unroll
    for (u32 j = 0; j < V; j++) {
        added[0][j] = added[1][j] = 0.0f;
    }
    for (u32 first = blockIdx.y; first < n; first += gridDim.y * ROWS) {
        Packed<T> x[ROWS];
        u32 segment[ROWS];
#pragma unroll
        for (u32 r = 0; r < ROWS; r++) {
            u64 row = first + (u64)r * gridDim.y;
            x[r] = load(d + row * width, column, row < n ? width : 0, whole);
            segment[r] = row < n ? segments[row] : entry;
        }
#pragma unroll
        for (u32 r = 0; r < ROWS; r++) {
#pragma unroll
            for (u32 j = 0; j < V; j++) {
                added[0][j] += segment[r] == entry ? x[r].get(j) : 0.0f;
                added[1][j] += segment[r] == entry + 1 ? x[r].get(j) : 0.0f;
            }
        }
    }
    partials += (u64)blockIdx.y * 2 * width;
    store_floats<V>(partials, column, width, added[0]);
    store_floats<V>(partials + width, column, width, added[1]);
}
