// Operations of a warp's lanes: exchanges, votes, and asynchronous copies.
#pragma once

#include "machine.hpp"

namespace cloze {

struct Exchange {
    uint64_t value, result;
    unsigned lane;
};

inline void exchange(void* const* lanes, unsigned mask) {
    for (unsigned i = 0; i < WARP; i++) {
        if (!(mask >> i & 1)) continue;
        auto* mine = static_cast<Exchange*>(lanes[i]);
        // A missing lane returns nothing usable.
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

// Returns the lane to read from; if it is outside its group of `width`, the lane itself.
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

// ---- Asynchronous copies ----

// Starts a copy that takes effect when it is waited for; until then the target holds NaN.
inline void copy_begin(void* to, const void* from, unsigned bytes) {
    Fiber* self = machine->running;
    memset(to, 0xFF, bytes);
    self->copies.push_back({to, from, bytes, self->group});
}
inline void copy_commit() { machine->running->group++; }
// Waits for all groups but the last `left`.
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

} // namespace cloze
