// Runs the blocks of a kernel on one host thread: a fiber for every thread of a block, and the
// places where fibers wait for each other.
#pragma once

#include "types.hpp"

#include <csetjmp>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <vector>

#include <sys/mman.h>
#include <ucontext.h>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/common_interface_defs.h>
#endif

namespace cloze {

constexpr size_t STACK = 96 << 10;
constexpr unsigned WARP = 32, MOST_THREADS = 1024, GUARD = 256;

struct Place {
    const char* file;
    int line;
    bool operator!=(const Place& o) const { return line != o.line || strcmp(file, o.file) != 0; }
};

// A collective operation of a warp, run once by the last lane to arrive: `lanes[i]` is the input of
// lane i of the mask, and receives its result.
typedef void (*Collective)(void* const* lanes, unsigned mask);

// A copy in progress.
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

// Runs the blocks of one host thread.
struct Machine {
    Fiber fibers[MOST_THREADS];
    char* stacks = nullptr;
    Fiber* queue[MOST_THREADS];
    unsigned head = 0, queued = 0;
    Fiber* running = nullptr;
    jmp_buf home;
    // The host thread's stack, if a sanitizer must know it.
    const void* home_stack = nullptr;
    size_t home_size = 0;
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

    // AddressSanitizer must be informed when execution moves to another stack and has arrived there.
    void moves_to(const void* stack, size_t size) {
#ifdef __SANITIZE_ADDRESS__
        __sanitizer_start_switch_fiber(nullptr, stack, size);
#else
        (void)stack, (void)size;
#endif
    }
    void arrived() {
#ifdef __SANITIZE_ADDRESS__
        const void* from = nullptr;
        size_t size = 0;
        __sanitizer_finish_switch_fiber(nullptr, &from, &size);
        const char* const at = static_cast<const char*>(from);
        if (at < stacks || at >= stacks + STACK * MOST_THREADS) home_stack = from, home_size = size;
#endif
    }
    [[noreturn]] void go_home(int why) {
        moves_to(home_stack, home_size);
        _longjmp(home, why);
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
    // The machine may run on another host thread at the next block: nothing here is thread-local.
    self->machine->arrived();
    for (;;) {
        self->machine->entry(self->machine->arguments);
        if (_setjmp(self->at) == 0) self->machine->finish();
        self->machine->arrived();
    }
}

inline void Machine::resume(Fiber* fiber) {
    running = fiber;
    char* const stack = stacks + STACK * size_t(fiber - fibers);
    moves_to(stack, STACK);
    if (fiber->started) _longjmp(fiber->at, 1);
    fiber->started = true;
    getcontext(&fiber->start);
    fiber->start.uc_stack.ss_sp = stack;
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
    arrived();
}

// Waits for all threads that have not returned.
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
    // From alternating ends, so that order can't replace a barrier.
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
    if (live == 0) go_home(1);
    if (at_barrier == live) {
        // The last thread that others waited for has returned.
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
    go_home(2);
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

// Returns false if the kernel made an error, which `message` describes.
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
        arrived();
        for (unsigned i = 0; i < GUARD; i++) {
            if (dynamic[dynamic_size + i] == 0xFF) continue;
            snprintf(message, sizeof message,
                     "kernel %s, block (%u, %u, %u): it wrote past its dynamic shared memory",
                     name, block.x, block.y, block.z);
            return false;
        }
        return true;
    default:
        arrived();
        for (Fiber& fiber : fibers) fiber.started = false;
        return false;
    }
}

} // namespace cloze
