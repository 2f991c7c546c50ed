/* SPDX-License-Identifier: MIT
 *
 * engine/arena.h -- memory for what one memtable holds: taken piece by piece, given back as a whole.
 *
 *     entries   chunks of 64 KiB doubling to 1 MiB; a reservation that would leave much of a chunk unused gets a chunk of its own.
 *               Adds come out of `current`; `aside` is the other piece of chunk that still has room.
 *     nodes     lines of 64 bytes from chunks of their own. What is reserved for nodes is the worst that can happen, far more than what
 *               happens, so it stays in stock for the reservations that follow.
 *
 * Invariants
 *   A1  What was reserved can be taken without allocating.
 *   A2  A reservation that fails changes nothing.
 *
 * Threads  one writer; tm_arena_bytes() and tm_arena_used_bytes(): any thread.
 */
#ifndef TM_ENGINE_ARENA_H
#define TM_ENGINE_ARENA_H

#include <stdatomic.h>

#include "sstable/env.h"

enum {
    TM_ARENA_ALIGNMENT = 8,
    TM_ARENA_LINE_BYTES = 64, // a cache line; nodes take whole ones
    TM_ARENA_NODE_BYTES_MAX = 1408,
};

struct tm_chunk;

/* A piece of chunk that is not used yet. */
struct tm_room {
    uint8_t *next;
    uint8_t *end;
};

/* Zeroed, with `env` set, is empty. */
struct tm_arena {
    const struct tm_env *env; // borrowed
    struct tm_chunk *chunks;  // all of them
    struct tm_room current;
    struct tm_room aside;
    struct tm_room nodes;         // where nodes come from
    struct tm_chunk *stock_first; // chunks for nodes that are not begun yet, in the order of use
    struct tm_chunk *stock_last;
    size_t chunk_bytes; // size of the last ordinary chunk; 0: there is none
    _Atomic uint64_t bytes;
    _Atomic uint64_t used_bytes;
};

static inline size_t
tm_arena_aligned(size_t bytes)
{
    return (bytes + TM_ARENA_ALIGNMENT - 1) & ~(size_t)(TM_ARENA_ALIGNMENT - 1);
}

/**
 * Make sure that `entry_bytes` of entries, each of an aligned size, and `node_bytes` of nodes can be taken, in any order.
 * A reservation replaces the one before, used up or not.
 *
 * @return TAMIS_OK or TAMIS_NO_MEMORY (A2)
 */
TAMIS_NODISCARD tamis_status tm_arena_reserve(struct tm_arena *arena, size_t entry_bytes,
                                              size_t node_bytes, tamis_error *err);

/** `bytes` is aligned and was reserved (A1, asserted). */
void *tm_arena_take(struct tm_arena *arena, size_t bytes);

/** For a node: `bytes` is of whole lines, at most TM_ARENA_NODE_BYTES_MAX, and was reserved (A1, asserted). Begins with a line. */
void *tm_arena_take_node(struct tm_arena *arena, size_t bytes);

void tm_arena_release(struct tm_arena *arena);

static inline uint64_t
tm_arena_bytes(const struct tm_arena *arena)
{
    return atomic_load_explicit(&arena->bytes, memory_order_relaxed);
}

static inline uint64_t
tm_arena_used_bytes(const struct tm_arena *arena)
{
    return atomic_load_explicit(&arena->used_bytes, memory_order_relaxed);
}

#endif
