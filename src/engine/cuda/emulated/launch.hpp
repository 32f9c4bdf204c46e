// Launches a kernel on host threads; the entry points of a library of kernels.
#pragma once

#include "machine.hpp"

#include <atomic>
#include <mutex>
#include <thread>
#include <type_traits>
#include <utility>

#ifdef __linux__
#include <link.h>
#endif

namespace cloze {

// A kernel's entry: the kinds of its arguments are p (pointer), u (unsigned 32 bits), f (float).
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

// Finds this library's static shared memory of the calling thread.
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

// The library's entry points for the kernels `ENTRIES` of the source.
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
