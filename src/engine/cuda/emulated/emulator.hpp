// Runs CUDA kernels on the processor, thread by thread, so that they are tested without a GPU.
//
// Every thread of a block is a fiber on one host thread; the blocks of a grid are spread over host
// threads. A fiber runs until it waits for others: at __syncthreads for the block, at shuffles,
// votes, __syncwarp and tensor instructions for the lanes of its warp. What a GPU leaves to chance
// is made visible here: warps and lanes start in an order that differs from block to block, shared
// memory is NaN (all bits set) before each block, threads that wait at different places are an
// error, and so is writing behind the dynamic shared memory.
#pragma once

#include <csetjmp>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <atomic>
#include <cmath>
#include <mutex>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include <sys/mman.h>
#include <ucontext.h>
#ifdef __linux__
#include <link.h>
#endif

#define __global__
#define __device__
#define __host__
#define __constant__ static const
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))
// One block at a time runs on a host thread.
#define __shared__ static thread_local
// Dynamic shared memory as bytes: `DYNAMIC_SHARED(name);` stands for CUDA's
// `extern __shared__ __align__(128) unsigned char name[];`.
#define DYNAMIC_SHARED(name) unsigned char* const name = cloze::machine->dynamic

struct uint2 { unsigned x, y; };
struct uint3 { unsigned x, y, z; };
struct __align__(16) uint4 { unsigned x, y, z, w; };
struct int2 { int x, y; };
struct __align__(16) int4 { int x, y, z, w; };
struct __align__(8) float2 { float x, y; };
struct __align__(16) float4 { float x, y, z, w; };
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
inline int2 make_int2(int x, int y) { return {x, y}; }
inline int4 make_int4(int x, int y, int z, int w) { return {x, y, z, w}; }
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }

namespace cloze {

constexpr size_t STACK = 96 << 10;
constexpr unsigned WARP = 32, MOST_THREADS = 1024, GUARD = 256;

struct Place {
    const char* file;
    int line;
    bool operator!=(const Place& o) const { return line != o.line || strcmp(file, o.file) != 0; }
};

// What a collective of a warp does, done once by the lane that comes last: `lanes[i]` is what lane
// i of the mask came with, and takes its result.
typedef void (*Collective)(void* const* lanes, unsigned mask);

// A copy that is under way.
struct Copy {
    void* to;
    const void* from;
    unsigned bytes, group;
};

struct Machine;

struct Fiber {
    enum State { READY, BLOCK_WAIT, WARP_WAIT, DONE };
    Machine* machine = nullptr;
    ucontext_t start;
    jmp_buf at;
    bool started = false;
    State state = READY;
    uint3 thread{};
    unsigned lane = 0, warp = 0;
    Place place{};
    unsigned mask = 0;
    Collective collective = nullptr;
    void* argument = nullptr;
    std::vector<Copy> copies;
    unsigned group = 0;
};

// What runs the blocks of one host thread.
struct Machine {
    Fiber fibers[MOST_THREADS];
    char* stacks = nullptr;
    Fiber* queue[MOST_THREADS];
    unsigned head = 0, queued = 0;
    Fiber* running = nullptr;
    jmp_buf home;
    unsigned threads = 0, live = 0, at_barrier = 0;
    uint3 block{}, blocks{}, block_size{};
    void (*entry)(void**) = nullptr;
    void** arguments = nullptr;
    const char* name = "";
    unsigned char* dynamic = nullptr;
    size_t dynamic_size = 0, dynamic_capacity = 0;
    void* static_shared = nullptr;
    size_t static_size = 0;
    char message[512];

    Machine() {
        void* at = mmap(nullptr, STACK * MOST_THREADS, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANON
#ifdef MAP_NORESERVE
                            | MAP_NORESERVE
#endif
                        ,
                        -1, 0);
        if (at == MAP_FAILED) abort();
        stacks = static_cast<char*>(at);
    }
    ~Machine() {
        munmap(stacks, STACK * MOST_THREADS);
        free(dynamic);
    }
    Machine(const Machine&) = delete;

    void push(Fiber* fiber) {
        fiber->state = Fiber::READY;
        queue[(head + queued++) % MOST_THREADS] = fiber;
    }
    Fiber* pop() {
        if (queued == 0) return nullptr;
        Fiber* fiber = queue[head];
        head = (head + 1) % MOST_THREADS;
        queued--;
        return fiber;
    }

    [[noreturn]] void resume(Fiber* fiber);
    void wait();
    void barrier(Place place);
    void warp(unsigned mask, Collective collective, void* argument, Place place);
    [[noreturn]] void finish();
    [[noreturn]] void fail(const char* what, const Fiber* a, const Fiber* b);
    [[noreturn]] void stuck();
    bool run_block();
};

extern thread_local Machine* machine;

inline void fiber_main(unsigned high, unsigned low) {
    Fiber* self = reinterpret_cast<Fiber*>(uintptr_t(uint64_t(high) << 32 | low));
    // The machine may serve another host thread at the next block: nothing here is thread-local.
    for (;;) {
        self->machine->entry(self->machine->arguments);
        if (_setjmp(self->at) == 0) self->machine->finish();
    }
}

inline void Machine::resume(Fiber* fiber) {
    running = fiber;
    if (fiber->started) _longjmp(fiber->at, 1);
    fiber->started = true;
    getcontext(&fiber->start);
    fiber->start.uc_stack.ss_sp = stacks + STACK * size_t(fiber - fibers);
    fiber->start.uc_stack.ss_size = STACK;
    fiber->start.uc_link = nullptr;
    const uint64_t self = reinterpret_cast<uintptr_t>(fiber);
    makecontext(&fiber->start, reinterpret_cast<void (*)()>(fiber_main), 2, unsigned(self >> 32),
                unsigned(self));
    setcontext(&fiber->start);
    abort();
}

inline __attribute__((noinline)) void Machine::wait() {
    Fiber* self = running;
    Fiber* next = pop();
    if (!next) stuck();
    if (_setjmp(self->at) == 0) resume(next);
}

// All threads that have not returned meet.
inline __attribute__((noinline)) void Machine::barrier(Place place) {
    running->place = place;
    running->state = Fiber::BLOCK_WAIT;
    at_barrier++;
    if (at_barrier < live) return wait();
    Fiber* last = running;
    for (unsigned i = 0; i < threads; i++) {
        Fiber* other = &fibers[i];
        if (other->state == Fiber::BLOCK_WAIT && other->place != place)
            fail("threads meet at different __syncthreads", last, other);
    }
    at_barrier = 0;
    // From another end each time, so that order can't stand in for a barrier.
    const bool forward = (place.line ^ block.x) & 1;
    for (unsigned i = 0; i < threads; i++) {
        Fiber* other = &fibers[forward ? i : threads - 1 - i];
        if (other->state == Fiber::BLOCK_WAIT) push(other);
    }
    wait();
}

inline __attribute__((noinline)) void Machine::warp(unsigned mask, Collective collective,
                                                    void* argument, Place place) {
    Fiber* self = running;
    Fiber* first = &fibers[self->warp * WARP];
    const unsigned width = threads - self->warp * WARP < WARP ? threads - self->warp * WARP : WARP;
    if (width < WARP) mask &= (1u << width) - 1;
    if (!(mask >> self->lane & 1)) fail("a lane is not in its own mask", self, nullptr);
    self->place = place;
    self->mask = mask;
    self->collective = collective;
    self->argument = argument;
    self->state = Fiber::WARP_WAIT;
    for (unsigned lane = 0; lane < width; lane++)
        if (mask >> lane & 1 && first[lane].state != Fiber::WARP_WAIT) return wait();
    void* lanes[WARP] = {};
    for (unsigned lane = 0; lane < width; lane++) {
        if (!(mask >> lane & 1)) continue;
        Fiber* other = &first[lane];
        if (other->mask != mask || other->collective != collective || other->place != place)
            fail("lanes of a warp meet at different places", self, other);
        lanes[lane] = other->argument;
    }
    collective(lanes, mask);
    for (unsigned lane = 0; lane < width; lane++)
        if (mask >> lane & 1 && &first[lane] != self) push(&first[lane]);
    self->state = Fiber::READY;
}

inline void Machine::finish() {
    running->state = Fiber::DONE;
    live--;
    if (live == 0) _longjmp(home, 1);
    if (at_barrier == live) {
        // The last one that was waited for has returned.
        Fiber* some = nullptr;
        for (unsigned i = 0; i < threads; i++) {
            Fiber* other = &fibers[i];
            if (other->state != Fiber::BLOCK_WAIT) continue;
            if (some && some->place != other->place)
                fail("threads meet at different __syncthreads", some, other);
            some = other;
        }
        at_barrier = 0;
        for (unsigned i = 0; i < threads; i++)
            if (fibers[i].state == Fiber::BLOCK_WAIT) push(&fibers[i]);
    }
    Fiber* next = pop();
    if (!next) stuck();
    resume(next);
}

inline void Machine::fail(const char* what, const Fiber* a, const Fiber* b) {
    int n = snprintf(message, sizeof message, "kernel %s, block (%u, %u, %u): %s", name, block.x,
                     block.y, block.z, what);
    for (const Fiber* fiber : {a, b}) {
        if (!fiber || n < 0 || size_t(n) >= sizeof message) continue;
        n += snprintf(message + n, sizeof message - n, "; thread %u at %s:%d", fiber->thread.x,
                      fiber->place.file, fiber->place.line);
    }
    _longjmp(home, 2);
}

inline void Machine::stuck() {
    const Fiber* a = nullptr;
    const Fiber* b = nullptr;
    for (unsigned i = 0; i < threads; i++) {
        const Fiber* fiber = &fibers[i];
        if (fiber->state == Fiber::DONE) continue;
        if (!a) a = fiber;
        else if (!b && (fiber->place != a->place || fiber->state != a->state)) b = fiber;
    }
    fail("threads wait for others that never come", a, b);
}

// False where the kernel did wrong: `message` says what.
inline bool Machine::run_block() {
    memset(dynamic, 0xFF, dynamic_size + GUARD);
    if (static_size) {
        Machine* self = this;
        memset(static_shared, 0xFF, static_size);
        machine = self;
    }
    head = queued = at_barrier = 0;
    live = threads;
    const unsigned warps = (threads + WARP - 1) / WARP;
    const unsigned turn = (block.x * 7 + block.y * 3 + block.z * 5);
    for (unsigned w = 0; w < warps; w++) {
        const unsigned warp = turn & 1 ? (warps - 1 - w + turn) % warps : (w + turn) % warps;
        for (unsigned l = 0; l < WARP; l++) {
            const unsigned lane = (turn & 2 ? l : WARP - 1 - l);
            const unsigned i = warp * WARP + lane;
            if (i >= threads) continue;
            Fiber* fiber = &fibers[i];
            fiber->machine = this;
            fiber->thread = {i, 0, 0};
            fiber->lane = lane;
            fiber->warp = warp;
            fiber->place = {"its start", 0};
            fiber->copies.clear();
            fiber->group = 0;
            push(fiber);
        }
    }
    switch (_setjmp(home)) {
    case 0:
        resume(pop());
    case 1:
        for (unsigned i = 0; i < GUARD; i++) {
            if (dynamic[dynamic_size + i] == 0xFF) continue;
            snprintf(message, sizeof message,
                     "kernel %s, block (%u, %u, %u): written behind its dynamic shared memory",
                     name, block.x, block.y, block.z);
            return false;
        }
        return true;
    default:
        for (Fiber& fiber : fibers) fiber.started = false;
        return false;
    }
}

// ---- Of one warp ----

struct Exchange {
    uint64_t value, result;
    unsigned lane;
};

inline void exchange(void* const* lanes, unsigned mask) {
    for (unsigned i = 0; i < WARP; i++) {
        if (!(mask >> i & 1)) continue;
        auto* mine = static_cast<Exchange*>(lanes[i]);
        // A lane that is not there gives nothing that may be used.
        auto* other = mask >> mine->lane & 1 ? static_cast<Exchange*>(lanes[mine->lane]) : nullptr;
        mine->result = other ? other->value : ~uint64_t(0);
    }
}

inline void ballot(void* const* lanes, unsigned mask) {
    unsigned votes = 0;
    for (unsigned i = 0; i < WARP; i++)
        if (mask >> i & 1 && static_cast<Exchange*>(lanes[i])->value) votes |= 1u << i;
    for (unsigned i = 0; i < WARP; i++)
        if (mask >> i & 1) static_cast<Exchange*>(lanes[i])->result = votes;
}

inline void nothing(void* const*, unsigned) {}

template <class V> V shuffle(unsigned mask, V value, unsigned lane, Place place) {
    static_assert(sizeof(V) <= 8, "shuffles move up to 8 bytes");
    Exchange e{0, 0, lane};
    memcpy(&e.value, &value, sizeof(V));
    machine->warp(mask, exchange, &e, place);
    memcpy(&value, &e.result, sizeof(V));
    return value;
}

// The lane to read from; one outside its group of `width` stays where it is.
enum Move { INDEX, UP, DOWN, XOR };
inline unsigned source(Move move, unsigned by, unsigned width) {
    const unsigned lane = machine->running->lane, first = lane & ~(width - 1);
    switch (move) {
    case INDEX: return first + (by & (width - 1));
    case UP: return lane - first < by ? lane : lane - by;
    case DOWN: return lane - first + by >= width ? lane : lane + by;
    default: return (lane ^ by) < first + width ? lane ^ by : lane;
    }
}

inline unsigned vote(unsigned mask, bool yes, Place place) {
    Exchange e{yes, 0, 0};
    machine->warp(mask, ballot, &e, place);
    return unsigned(e.result);
}

// ---- Copies beside the work ----

// Begins a copy that takes effect when it is waited for; until then the place holds NaN.
inline void copy_begin(void* to, const void* from, unsigned bytes) {
    Fiber* self = machine->running;
    memset(to, 0xFF, bytes);
    self->copies.push_back({to, from, bytes, self->group});
}
inline void copy_commit() { machine->running->group++; }
// Waits for all groups but the `left` last ones.
inline void copy_wait(unsigned left) {
    Fiber* self = machine->running;
    size_t kept = 0;
    for (const Copy& copy : self->copies) {
        if (copy.group + left < self->group) {
            if (copy.from) memcpy(copy.to, copy.from, copy.bytes);
            else memset(copy.to, 0, copy.bytes);
        } else {
            self->copies[kept++] = copy;
        }
    }
    self->copies.resize(kept);
}

// ---- Numbers ----

inline float from_bits(uint32_t bits) {
    float value;
    memcpy(&value, &bits, 4);
    return value;
}
inline uint32_t to_bits(float value) {
    uint32_t bits;
    memcpy(&bits, &value, 4);
    return bits;
}
inline float bf16_to_float(uint16_t bits) { return from_bits(uint32_t(bits) << 16); }
// To the nearest, ties to even.
inline uint16_t float_to_bf16(float value) {
    const uint32_t bits = to_bits(value);
    if (value != value) return 0x7FFF;
    return uint16_t((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}
inline float f16_to_float(uint16_t bits) {
    const uint32_t sign = uint32_t(bits & 0x8000) << 16, exponent = bits >> 10 & 31;
    const uint32_t fraction = bits & 0x3FF;
    if (exponent == 31) return from_bits(sign | 0x7F800000 | fraction << 13);
    if (exponent != 0) return from_bits(sign | (exponent + 112) << 23 | fraction << 13);
    const float small = float(fraction) * (1.0f / 16777216.0f);
    return sign ? -small : small;
}
inline uint16_t float_to_f16(float value) {
    const uint32_t bits = to_bits(value), sign = bits >> 16 & 0x8000, magnitude = bits & 0x7FFFFFFF;
    if (magnitude > 0x7F800000) return 0x7FFF;
    // From 65520 on the nearest is infinity.
    if (magnitude >= 0x477FF000) return uint16_t(sign | 0x7C00);
    // Subnormal: adding 1/2 puts the last place where it belongs, and rounds.
    if (magnitude < 0x38800000)
        return uint16_t(sign | (to_bits(from_bits(magnitude) + 0.5f) - 0x3F000000));
    const uint32_t odd = magnitude >> 13 & 1;
    return uint16_t(sign | ((magnitude - 0x38000000 + 0xFFF + odd) >> 13));
}

// ---- Launching ----

// How a kernel is reached: its arguments' kinds are p (pointer), u (32 bits unsigned), f (float).
struct Entry {
    const char* name;
    const char* kinds;
    void (*call)(void**);
};

template <class A> constexpr char kind() {
    if (std::is_pointer<A>::value) return 'p';
    if (std::is_same<A, unsigned>::value) return 'u';
    if (std::is_same<A, float>::value) return 'f';
    return '?';
}
template <auto function> struct Trampoline;
template <class... A, void (*function)(A...)> struct Trampoline<function> {
    static constexpr char kinds[] = {kind<A>()..., 0};
    template <size_t... I> static void spread(void** a, std::index_sequence<I...>) {
        function(*static_cast<std::remove_const_t<A>*>(a[I])...);
    }
    static void call(void** a) { spread(a, std::index_sequence_for<A...>()); }
};

// Where this library's static shared memory of the calling thread lies.
inline void find_static(Machine& m) {
    m.static_size = 0;
#ifdef __linux__
    struct Search {
        uintptr_t inside;
        Machine* m;
    } search{reinterpret_cast<uintptr_t>(&machine), &m};
    dl_iterate_phdr(
        [](dl_phdr_info* info, size_t, void* data) {
            auto* s = static_cast<Search*>(data);
            for (unsigned i = 0; i < info->dlpi_phnum; i++) {
                const auto& header = info->dlpi_phdr[i];
                const auto at = reinterpret_cast<uintptr_t>(info->dlpi_tls_data);
                if (header.p_type != PT_TLS || at == 0) continue;
                if (s->inside < at || s->inside >= at + header.p_memsz) continue;
                s->m->static_shared = info->dlpi_tls_data;
                s->m->static_size = header.p_memsz;
                return 1;
            }
            return 0;
        },
        &search);
#endif
}

inline std::mutex idle_lock;
inline std::vector<Machine*> idle;

inline Machine* take_machine() {
    std::lock_guard<std::mutex> held(idle_lock);
    if (idle.empty()) return new Machine();
    Machine* m = idle.back();
    idle.pop_back();
    return m;
}

struct Launch {
    const Entry* entry;
    uint3 blocks;
    unsigned threads, shared;
    void** arguments;
    std::atomic<uint64_t> next{0};
    std::atomic<bool> failed{false};
    std::mutex lock;
    char* message;
    size_t size;

    void work() {
        Machine* m = take_machine();
        machine = m;
        find_static(*m);
        m->entry = entry->call;
        m->name = entry->name;
        m->arguments = arguments;
        m->threads = threads;
        m->blocks = blocks;
        m->block_size = {threads, 1, 1};
        m->dynamic_size = shared;
        if (m->dynamic_capacity < shared + GUARD) {
            free(m->dynamic);
            m->dynamic_capacity = (shared + GUARD + 1023) / 1024 * 1024;
            m->dynamic = static_cast<unsigned char*>(aligned_alloc(1024, m->dynamic_capacity));
            if (!m->dynamic) abort();
        }
        const uint64_t count = uint64_t(blocks.x) * blocks.y * blocks.z;
        for (uint64_t i; !failed && (i = next++) < count;) {
            m->block = {unsigned(i % blocks.x), unsigned(i / blocks.x % blocks.y),
                        unsigned(i / blocks.x / blocks.y)};
            if (m->run_block()) continue;
            std::lock_guard<std::mutex> held(lock);
            if (!failed) snprintf(message, size, "%s", m->message);
            failed = true;
        }
        machine = nullptr;
        std::lock_guard<std::mutex> held(idle_lock);
        idle.push_back(m);
    }
};

} // namespace cloze

// ---- CUDA's names ----

#define threadIdx (cloze::machine->running->thread)
#define blockIdx (cloze::machine->block)
#define blockDim (cloze::machine->block_size)
#define gridDim (cloze::machine->blocks)

// Where a call stands, as the default of its last argument.
#define CLOZE_HERE cloze::Place place = {__builtin_FILE(), __builtin_LINE()}
inline void __syncthreads(CLOZE_HERE) { cloze::machine->barrier(place); }
inline void __syncwarp(unsigned mask = 0xFFFFFFFF, CLOZE_HERE) {
    cloze::machine->warp(mask, cloze::nothing, nullptr, place);
}
template <class V>
V __shfl_sync(unsigned mask, V value, unsigned lane, unsigned width = 32, CLOZE_HERE) {
    return cloze::shuffle(mask, value, cloze::source(cloze::INDEX, lane, width), place);
}
template <class V>
V __shfl_up_sync(unsigned mask, V value, unsigned by, unsigned width = 32, CLOZE_HERE) {
    return cloze::shuffle(mask, value, cloze::source(cloze::UP, by, width), place);
}
template <class V>
V __shfl_down_sync(unsigned mask, V value, unsigned by, unsigned width = 32, CLOZE_HERE) {
    return cloze::shuffle(mask, value, cloze::source(cloze::DOWN, by, width), place);
}
template <class V>
V __shfl_xor_sync(unsigned mask, V value, unsigned by, unsigned width = 32, CLOZE_HERE) {
    return cloze::shuffle(mask, value, cloze::source(cloze::XOR, by, width), place);
}
inline unsigned __ballot_sync(unsigned mask, bool yes, CLOZE_HERE) {
    return cloze::vote(mask, yes, place);
}
inline bool __any_sync(unsigned mask, bool yes, CLOZE_HERE) {
    return cloze::vote(mask, yes, place) != 0;
}
inline bool __all_sync(unsigned mask, bool yes, CLOZE_HERE) {
    return cloze::vote(mask, !yes, place) == 0;
}

inline void __threadfence() { std::atomic_thread_fence(std::memory_order_seq_cst); }
inline void __threadfence_block() {}
inline unsigned atomicAdd(unsigned* at, unsigned by) {
    return __atomic_fetch_add(at, by, __ATOMIC_SEQ_CST);
}
inline unsigned atomicExch(unsigned* at, unsigned value) {
    return __atomic_exchange_n(at, value, __ATOMIC_SEQ_CST);
}
inline unsigned atomicCAS(unsigned* at, unsigned expected, unsigned value) {
    __atomic_compare_exchange_n(at, &expected, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
    return expected;
}

using std::isfinite;
using std::isinf;
using std::isnan;
inline float __uint_as_float(unsigned bits) { return cloze::from_bits(bits); }
inline unsigned __float_as_uint(float value) { return cloze::to_bits(value); }
inline float __int_as_float(int bits) { return cloze::from_bits(unsigned(bits)); }
inline int __float_as_int(float value) { return int(cloze::to_bits(value)); }
inline unsigned __umulhi(unsigned a, unsigned b) { return unsigned(uint64_t(a) * b >> 32); }
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __clz(int x) { return x ? __builtin_clz(unsigned(x)) : 32; }
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned by) {
    return unsigned((uint64_t(high) << 32 | low) >> (by & 31));
}
inline float __expf(float x) { return expf(x); }
inline float __logf(float x) { return logf(x); }
inline float __fdividef(float a, float b) { return a / b; }
inline float __frcp_rn(float x) { return 1.0f / x; }
inline float __fsqrt_rn(float x) { return sqrtf(x); }
inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
template <class V> V __ldg(const V* at) { return *at; }
template <class V> constexpr V min(V a, V b) { return b < a ? b : a; }
template <class V> constexpr V max(V a, V b) { return a < b ? b : a; }
inline float min(float a, float b) { return fminf(a, b); }
inline float max(float a, float b) { return fmaxf(a, b); }

// The library's door: `ENTRIES` is what the kernels of the source are.
#define CLOZE_EMULATED_LIBRARY(...)                                                                \
    thread_local cloze::Machine* cloze::machine = nullptr;                                         \
    extern "C" __attribute__((visibility("default"))) const cloze::Entry cloze_entries[] = {       \
        __VA_ARGS__, {nullptr, nullptr, nullptr}};                                                 \
    extern "C" __attribute__((visibility("default"))) int cloze_launch(                            \
        unsigned index, const unsigned* blocks, unsigned threads,                                  \
                                unsigned shared, void** arguments, unsigned workers,               \
                                char* message, size_t size) {                                      \
        cloze::Launch launch;                                                                      \
        launch.entry = &cloze_entries[index];                                                      \
        launch.blocks = {blocks[0], blocks[1], blocks[2]};                                         \
        launch.threads = threads;                                                                  \
        launch.shared = shared;                                                                    \
        launch.arguments = arguments;                                                              \
        launch.message = message;                                                                  \
        launch.size = size;                                                                        \
        std::vector<std::thread> others;                                                           \
        for (unsigned i = 1; i < workers; i++) others.emplace_back([&] { launch.work(); });        \
        launch.work();                                                                             \
        for (auto& other : others) other.join();                                                   \
        return launch.failed;                                                                      \
    }
#define CLOZE_ENTRY(name) {#name, cloze::Trampoline<&name>::kinds, cloze::Trampoline<&name>::call}
