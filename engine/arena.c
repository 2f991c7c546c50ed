/* SPDX-License-Identifier: MIT
 *
 * engine/arena.c -- reserve, take, release.
 */
#include "engine/arena.h"

#include <assert.h>

enum {
    // A small store takes little; a large one asks the allocator once a mebibyte.
    CHUNK_BYTES_MIN = 64 << 10,
    CHUNK_BYTES_MAX = 1 << 20,
    // A reservation larger than this part of a chunk has a chunk of its own, so no more than this part is wasted.
    CHUNK_PART_MAX = 4,
    // A chunk for nodes is this part of what is in use: nodes take a fifth of a memtable of small entries.
    STOCK_PART = 8,
    STOCK_BYTES_MIN = 8 << 10,
    STOCK_BYTES_MAX = 256 << 10,
};

struct tm_chunk {
    struct tm_chunk *next; // of all
    struct tm_chunk *next_in_stock;
    size_t size; // as allocated
};

static void
count(_Atomic uint64_t *counter, uint64_t value)
{
    // One writer: no read-modify-write is needed.
    atomic_store_explicit(counter, value, memory_order_relaxed);
}

static size_t
room_left(const struct tm_room *room)
{
    return (size_t)(room->end - room->next);
}

/* What is sure to come out of so much room for nodes: its end may be too small for one. */
static size_t
sure_node_bytes(size_t room_bytes)
{
    size_t lost = TM_ARENA_NODE_BYTES_MAX - TM_ARENA_LINE_BYTES;

    return room_bytes > lost ? room_bytes - lost : 0;
}

static struct tm_room
node_room(struct tm_chunk *chunk)
{
    uintptr_t line = (uintptr_t)(chunk + 1) + TM_ARENA_LINE_BYTES - 1;

    return (struct tm_room){
        (uint8_t *)(line & ~(uintptr_t)(TM_ARENA_LINE_BYTES - 1)),
        (uint8_t *)chunk + chunk->size,
    };
}

static struct tm_chunk *
chunk_create(struct tm_arena *arena, size_t size, tamis_error *err)
{
    struct tm_chunk *chunk = tm_alloc(arena->env, size);

    if (chunk == NULL) {
        (void)TM_NO_MEMORY(err, size);
        return NULL;
    }
    chunk->next_in_stock = NULL;
    chunk->size = size;
    return chunk;
}

static void
keep_chunk(struct tm_arena *arena, struct tm_chunk *chunk)
{
    chunk->next = arena->chunks;
    arena->chunks = chunk;
    count(&arena->bytes, tm_arena_bytes(arena) + chunk->size);
}

static size_t
stock_bytes(const struct tm_arena *arena)
{
    size_t bytes = sure_node_bytes(room_left(&arena->nodes));

    for (struct tm_chunk *chunk = arena->stock_first; chunk != NULL; chunk = chunk->next_in_stock) {
        struct tm_room room = node_room(chunk);

        bytes += sure_node_bytes(room_left(&room));
    }
    return bytes;
}

/* The size of a chunk that adds as much to the stock, or more. */
static size_t
stock_chunk_bytes(const struct tm_arena *arena, size_t missing_bytes)
{
    size_t needed_bytes =
        sizeof(struct tm_chunk) + TM_ARENA_LINE_BYTES + missing_bytes + TM_ARENA_NODE_BYTES_MAX;
    uint64_t bytes = tm_arena_used_bytes(arena) / STOCK_PART;

    bytes = bytes < STOCK_BYTES_MIN ? STOCK_BYTES_MIN : bytes;
    bytes = bytes > STOCK_BYTES_MAX ? STOCK_BYTES_MAX : bytes;
    return bytes < needed_bytes ? needed_bytes : (size_t)bytes;
}

static void
add_to_stock(struct tm_arena *arena, struct tm_chunk *chunk)
{
    keep_chunk(arena, chunk);
    if (arena->stock_first == NULL)
        arena->stock_first = chunk;
    else
        arena->stock_last->next_in_stock = chunk;
    arena->stock_last = chunk;
}

/* The next ordinary chunk's size. */
static size_t
grown_chunk_bytes(const struct tm_arena *arena)
{
    if (arena->chunk_bytes == 0)
        return CHUNK_BYTES_MIN;
    return arena->chunk_bytes < CHUNK_BYTES_MAX ? 2 * arena->chunk_bytes : CHUNK_BYTES_MAX;
}

static void
swap_rooms(struct tm_arena *arena)
{
    struct tm_room aside = arena->aside;

    arena->aside = arena->current;
    arena->current = aside;
}

tamis_status
tm_arena_reserve(struct tm_arena *arena, size_t entry_bytes, size_t node_bytes, tamis_error *err)
{
    size_t stock = stock_bytes(arena);
    size_t chunk_bytes = grown_chunk_bytes(arena);
    bool has_own_chunk = entry_bytes > chunk_bytes / CHUNK_PART_MAX;
    struct tm_chunk *node_chunk = NULL;
    struct tm_chunk *chunk = NULL;

    if (room_left(&arena->aside) > room_left(&arena->current))
        swap_rooms(arena);
    if (node_bytes > stock) {
        node_chunk = chunk_create(arena, stock_chunk_bytes(arena, node_bytes - stock), err);
        if (node_chunk == NULL)
            return TAMIS_NO_MEMORY;
    }
    if (entry_bytes > room_left(&arena->current)) {
        chunk = chunk_create(
            arena, has_own_chunk ? sizeof(struct tm_chunk) + entry_bytes : chunk_bytes, err);
        if (chunk == NULL) {
            if (node_chunk != NULL)
                tm_release(arena->env, node_chunk, node_chunk->size);
            return TAMIS_NO_MEMORY; // A2
        }
    }
    if (node_chunk != NULL)
        add_to_stock(arena, node_chunk);
    if (chunk != NULL) {
        keep_chunk(arena, chunk);
        arena->aside = arena->current;
        arena->current.next = (uint8_t *)(chunk + 1);
        arena->current.end = (uint8_t *)chunk + chunk->size;
        if (!has_own_chunk)
            arena->chunk_bytes = chunk_bytes;
    }
    return TAMIS_OK;
}

static void *
take(struct tm_arena *arena, struct tm_room *room, size_t bytes)
{
    void *taken = room->next;

    assert(bytes <= room_left(room)); // A1
    room->next += bytes;
    count(&arena->used_bytes, tm_arena_used_bytes(arena) + bytes);
    return taken;
}

void *
tm_arena_take(struct tm_arena *arena, size_t bytes)
{
    assert(bytes == tm_arena_aligned(bytes));
    return take(arena, &arena->current, bytes);
}

void *
tm_arena_take_node(struct tm_arena *arena, size_t bytes)
{
    assert(bytes % TM_ARENA_LINE_BYTES == 0 && bytes <= TM_ARENA_NODE_BYTES_MAX);
    while (room_left(&arena->nodes) < bytes) {
        struct tm_chunk *chunk = arena->stock_first;

        assert(chunk != NULL); // A1
        arena->stock_first = chunk->next_in_stock;
        arena->nodes = node_room(chunk);
    }
    return take(arena, &arena->nodes, bytes);
}

void
tm_arena_release(struct tm_arena *arena)
{
    struct tm_chunk *chunk = arena->chunks;

    while (chunk != NULL) {
        struct tm_chunk *next = chunk->next;

        tm_release(arena->env, chunk, chunk->size);
        chunk = next;
    }
}
