// Tensor core operations and their loads: mma.sync, ldmatrix and cp.async, as PTX on a GPU and lane
// by lane in emulation, with the same fragments (PTX ISA, "Matrix fragments for mma.m16n8k16" and
// "ldmatrix"). Lane l of a warp has g = l / 4 and t = l % 4:
//
//   A, 16 × 16: a[0] row g, columns 2t and 2t + 1; a[1] row g + 8; a[2] and a[3] columns 8 farther on
//   B, 16 × 8:  b0 column g, rows 2t and 2t + 1; b1 rows 8 farther on
//   C, 16 × 8:  c[0], c[1] row g, columns 2t and 2t + 1; c[2], c[3] row g + 8
//
// and in TF32 ("m16n8k8"):
//
//   A, 16 × 8:  a[0] row g, column t; a[1] row g + 8; a[2] and a[3] column t + 4
//   B, 8 × 8:   b0 column g, row t; b1 row t + 4

// Dynamic shared memory as bytes.
#ifndef CLOZE_EMULATED
#define DYNAMIC_SHARED(name) extern __shared__ __align__(128) unsigned char name[]
#endif

#ifdef CLOZE_EMULATED
namespace cloze {

template <class E> float element(u32 word, u32 half) {
    return half ? Pair<E>::high(word) : Pair<E>::low(word);
}

struct MmaArguments {
    float *c;
    const u32 *a;
    u32 b0, b1;
};

template <class E> void mma(void *const *lanes, unsigned) {
    float a[16][16], b[16][8];
    for (u32 lane = 0; lane < 32; lane++) {
        const auto *own = static_cast<const MmaArguments *>(lanes[lane]);
        const u32 g = lane / 4, t = lane % 4;
        for (u32 half = 0; half < 2; half++) {
            for (u32 i = 0; i < 4; i++) {
                a[g + i % 2 * 8][2 * t + half + i / 2 * 8] = element<E>(own->a[i], half);
            }
            b[2 * t + half][g] = element<E>(own->b0, half);
            b[2 * t + half + 8][g] = element<E>(own->b1, half);
        }
    }
    for (u32 lane = 0; lane < 32; lane++) {
        const auto *own = static_cast<const MmaArguments *>(lanes[lane]);
        for (u32 i = 0; i < 4; i++) {
            const u32 row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
            float sum = 0.0f;
            for (u32 k = 0; k < 16; k++) {
                sum += a[row][k] * b[k][column];
            }
            own->c[i] += sum;
        }
    }
}

// Factors in TF32 keep their upper 19 bits.
inline float tf32(u32 word) { return __uint_as_float(word & 0xffffe000u); }

inline void mma_tf32(void *const *lanes, unsigned) {
    float a[16][8], b[8][8];
    for (u32 lane = 0; lane < 32; lane++) {
        const auto *own = static_cast<const MmaArguments *>(lanes[lane]);
        const u32 g = lane / 4, t = lane % 4;
        for (u32 i = 0; i < 4; i++) {
            a[g + i % 2 * 8][t + i / 2 * 4] = tf32(own->a[i]);
        }
        b[t][g] = tf32(own->b0);
        b[t + 4][g] = tf32(own->b1);
    }
    for (u32 lane = 0; lane < 32; lane++) {
        const auto *own = static_cast<const MmaArguments *>(lanes[lane]);
        for (u32 i = 0; i < 4; i++) {
            const u32 row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
            float sum = 0.0f;
            for (u32 k = 0; k < 8; k++) {
                sum += a[row][k] * b[k][column];
            }
            own->c[i] += sum;
        }
    }
}

struct LoadArguments {
    u32 *to;
    const void *row;
};

template <bool transposed> void load_matrices(void *const *lanes, unsigned) {
    for (u32 matrix = 0; matrix < 4; matrix++) {
        u16 values[8][8];
        for (u32 row = 0; row < 8; row++) {
            const auto *own = static_cast<const LoadArguments *>(lanes[matrix * 8 + row]);
            memcpy(values[row], own->row, 16);
        }
        for (u32 lane = 0; lane < 32; lane++) {
            const u32 g = lane / 4, t = lane % 4;
            const u32 low = transposed ? values[2 * t][g] : values[g][2 * t];
            const u32 high = transposed ? values[2 * t + 1][g] : values[g][2 * t + 1];
            static_cast<LoadArguments *>(lanes[lane])->to[matrix] = low | high << 16;
        }
    }
}

template <bool transposed> void load_matrices(u32 (&to)[4], const void *row, Place place) {
    LoadArguments arguments{to, row};
    if ((u64)row % 16 != 0) {
        machine->fail("ldmatrix of a row that is not aligned to 16 bytes", machine->running, nullptr);
    }
    machine->warp(ALL, load_matrices<transposed>, &arguments, place);
}

} // namespace cloze

template <class E>
inline void mma(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1, CLOZE_HERE) {
    cloze::MmaArguments arguments{c, a, b0, b1};
    cloze::machine->warp(ALL, cloze::mma<E>, &arguments, place);
}
inline void mma_tf32(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1, CLOZE_HERE) {
    cloze::MmaArguments arguments{c, a, b0, b1};
    cloze::machine->warp(ALL, cloze::mma_tf32, &arguments, place);
}
inline u32 to_tf32(float x) {
    const u32 bits = __float_as_uint(x);
    return (bits & 0x7f800000u) == 0x7f800000u ? bits : bits + 0x1000 & 0xffffe000u;
}
inline void load_matrices(u32 (&to)[4], const void *row, CLOZE_HERE) {
    cloze::load_matrices<false>(to, row, place);
}
inline void load_matrices_transposed(u32 (&to)[4], const void *row, CLOZE_HERE) {
    cloze::load_matrices<true>(to, row, place);
}
template <u32 BYTES> inline void copy(void *to, const void *from, bool there) {
    if ((u64)to % BYTES != 0 || (u64)from % BYTES != 0) {
        cloze::machine->fail("cp.async of bytes that are not aligned", cloze::machine->running, nullptr);
    }
    cloze::copy_begin(to, there ? from : nullptr, BYTES);
}
inline void commit_copies() { cloze::copy_commit(); }
template <u32 LEFT> inline void wait_for_copies() { cloze::copy_wait(LEFT); }

#else

__device__ __forceinline__ u32 shared_address(const void *at) {
    return (u32)__cvta_generic_to_shared(at);
}

// c += a b with factors in bf16 or f16 and sums in f32.
template <class E> __device__ __forceinline__ void mma(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1);

#define MMA(E, name)                                                                                \
    template <>                                                                                    \
    __device__ __forceinline__ void mma<E>(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {      \
        asm("mma.sync.aligned.m16n8k16.row.col.f32." name "." name ".f32 "                         \
            "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"              \
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])                                       \
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));                       \
    }
MMA(Bf16, "bf16")
MMA(F16, "f16")
#undef MMA

// The same with factors in TF32, of which the tensor cores ignore the lower 13 bits.
__device__ __forceinline__ void mma_tf32(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Returns the nearest number in TF32, the one farther from zero if there are two.
__device__ __forceinline__ u32 to_tf32(float x) {
    u32 word;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(word) : "f"(x));
    return word;
}

// Loads four 8 × 8 matrices of two-byte elements, whose rows are 16 bytes of shared memory: lane l
// gives the address of row l % 8 of matrix l / 8, and gets row g, columns 2t and 2t + 1 of each
// matrix; if elements have four bytes, row g and column t of 8 × 4. "memory": cp.async and other threads have stored the rows.
__device__ __forceinline__ void load_matrices(u32 (&to)[4], const void *row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(shared_address(row))
                 : "memory");
}

// The same, but column g, rows 2t and 2t + 1 of each matrix.
__device__ __forceinline__ void load_matrices_transposed(u32 (&to)[4], const void *row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(shared_address(row))
                 : "memory");
}

// Starts a copy of 8 or 16 bytes from global to shared memory, or writes zeros if there is no
// source; `from` must be a valid address in either case.
template <u32 BYTES> __device__ __forceinline__ void copy(void *to, const void *from, bool there) {
    static_assert(BYTES == 8 || BYTES == 16, "bytes of a copy");
    if (BYTES == 16) {
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                     :
                     : "r"(shared_address(to)), "l"(from), "r"(there ? 16 : 0)
                     : "memory");
    } else {
        asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;"
                     :
                     : "r"(shared_address(to)), "l"(from), "r"(there ? 8 : 0)
                     : "memory");
    }
}

// Ends a group of copies.
__device__ __forceinline__ void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Waits until all but the last LEFT groups of this thread's copies are complete; other threads see
// them after a barrier.
template <u32 LEFT> __device__ __forceinline__ void wait_for_copies() {
    asm volatile("cp.async.wait_group %0;" : : "n"(LEFT) : "memory");
}

#endif
