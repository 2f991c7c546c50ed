/* SPDX-License-Identifier: MIT
 *
 * engine/memtable.c -- a skiplist of entries in an arena.
 *
 *     head  links  3 ------------------------------> d ----------> NULL
 *                  2 ------------> b --------------> d ----------> NULL
 *                  0 ----> a ----> b -----> c -----> d ----> e --> NULL
 *
 *     node  | piece | sequence, kind, height | lengths | links[height] | key | value | to a multiple of 8
 *
 *     ranges ---> set of 1 ---> set of 4 ---> set of 8 --> NULL       (after 13 range tombstones, M3)
 *
 *     arena  chunks of 64 KiB doubling to 1 MiB; a reservation that would leave much of a chunk unused gets a block of
 *            its own. Adds come out of `current`; `aside` is the other piece of chunk that still has room.
 *
 * Invariants: M1 to M3 of memtable.h, and
 *   N1  A node is linked from the lowest level up, so that whoever meets it on one level meets it below as well.
 *   N2  What a reader may see of a node never changes but for its links.
 *   N3  The height of the n-th entry is a function of n: a reservation knows what its nodes will take.
 *
 * Threads  reserve and add: the one writer. Everything else: any thread, beside it, without waiting.
 * Not here: the log (wal.h), when a memtable is full and what then (worker).
 */
#include "engine/memtable.h"

#include <assert.h>
#include <stdatomic.h>

enum {
    // One node in two rises a level: two links a node, and a search touches the fewest nodes. One in four
    // takes 5 bytes an entry less and was slower by 15 % at 480,000 random entries of 116 bytes. 2^20 entries
    // are one node wide at the top; a memtable of 4 GiB with the smallest of entries is some 60 wide.
    HEIGHT_MAX = 20,
    // A small store takes little; a large one asks the allocator once a mebibyte.
    CHUNK_BYTES_MIN = 64 << 10,
    CHUNK_BYTES_MAX = 1 << 20,
    // A reservation larger than this part of a chunk has a block of its own, so no more than this part is wasted.
    CHUNK_PART_MAX = 4,
    NODE_ALIGNMENT = 8,
    // Nodes by which a range's size is judged: an error of some 3 per cent (1/32) where values are alike.
    SAMPLE_COUNT_MIN = 1024,
};

struct node;

struct link {
    _Atomic(struct node *) node;
};

struct node {
    uint64_t
        piece; // first 8 key bytes as a big-endian number, zeros behind a shorter key; 0 unless ordered bytewise
    uint64_t sequence : TM_SEQUENCE_BITS;
    uint64_t kind : 3;
    uint64_t height : 5;
    uint32_t key_length;
    uint32_t value_length;
    struct link links[]; // height of them; key and value follow
};

_Static_assert(HEIGHT_MAX < 32, "node.height");
_Static_assert(TM_KIND_PUT < 8, "node.kind");
_Static_assert(TAMIS_VALUE_BYTES_MAX <= UINT32_MAX, "node.value_length");

struct chunk {
    struct chunk *next;
    size_t size; // as allocated
};

/* A piece of chunk that is not used yet. */
struct room {
    uint8_t *next;
    uint8_t *end;
};

struct tm_memtable {
    // Immutable after creation
    const struct tm_env *env;
    bool is_bytewise; // the order of keys

    // Owned by the writer
    struct chunk *chunks;          // all of them
    struct room current;           // where adds go
    struct room aside;             // the other place with room
    size_t chunk_bytes;            // size of the next ordinary chunk
    struct link *last[HEIGHT_MAX]; // on each level the links of the last node, or of the head
    uint64_t sequence_last;        // of the newest entry
    uint64_t range_count;

    // Atomic
    _Atomic uint32_t references;
    _Atomic uint32_t height; // levels in use; at least 1
    _Atomic uint64_t bytes;
    _Atomic uint64_t used_bytes;
    _Atomic uint64_t entry_count;
    _Atomic(const struct tm_range_set *) ranges;
    struct link head[HEIGHT_MAX];
};

/* What a search looks for. */
struct target {
    uint64_t piece;
    tamis_slice key;
    uint64_t sequence;
};

static uint64_t
piece_of_key(const struct tm_memtable *memtable, tamis_slice key)
{
    uint64_t piece = 0;

    if (!memtable->is_bytewise)
        return 0;
    if (key.length >= 8) {
        const uint8_t *p = key.data;
        for (int i = 0; i < 8; i++) // compilers make one load and a byte swap of it
            piece = piece << 8 | p[i];
        return piece;
    }
    for (size_t i = 0; i < key.length; i++)
        piece |= (uint64_t)((const uint8_t *)key.data)[i] << (56 - 8 * i);
    return piece;
}

static const uint8_t *
node_key_data(const struct node *node)
{
    return (const uint8_t *)(node->links + node->height);
}

static tamis_slice
node_key(const struct node *node)
{
    return tm_slice(node_key_data(node), node->key_length);
}

static tamis_slice
node_value(const struct node *node)
{
    return tm_slice(node_key_data(node) + node->key_length, node->value_length);
}

/* Pieces are equal. Where both keys go beyond them the rest decides; a shorter one equals the start of the
 * other, so that lengths decide. */
static bool
node_stands_before_tie(const struct tm_memtable *memtable, const struct node *node,
                       const struct target *target)
{
    size_t shared = node->key_length < target->key.length ? node->key_length : target->key.length;
    int order = 0;

    if (!memtable->is_bytewise)
        return tm_entry_compare(&memtable->env->order, node_key(node), node->sequence, target->key,
                                target->sequence) < 0;
    if (shared > 8)
        order = memcmp(node_key_data(node) + 8, (const uint8_t *)target->key.data + 8, shared - 8);
    if (order == 0)
        order = (node->key_length > target->key.length) - (node->key_length < target->key.length);
    return order != 0 ? order < 0 : node->sequence > target->sequence;
}

static inline bool
node_stands_before(const struct tm_memtable *memtable, const struct node *node,
                   const struct target *target)
{
    return node->piece != target->piece ? node->piece < target->piece
                                        : node_stands_before_tie(memtable, node, target);
}

static inline struct node *
link_load(const struct link *link)
{
    return atomic_load_explicit(&link->node, memory_order_acquire); // M1
}

static inline void
prefetch_below(const struct link *links, uint32_t level)
{
    if (level > 0)
        __builtin_prefetch(atomic_load_explicit(&links[level - 1].node, memory_order_relaxed));
    if (level > 1)
        __builtin_prefetch(atomic_load_explicit(&links[level - 2].node, memory_order_relaxed));
}

/* The first node at or after the target; NULL when there is none. `before`, unless NULL: on each level in use
 * the links of the last node that stands before the target. */
static inline struct node *
search(const struct tm_memtable *memtable, const struct target *target, const struct link **before)
{
    const struct link *links = memtable->head;
    struct node *bound = NULL; // stands at or after the target

    for (uint32_t level = atomic_load_explicit(&memtable->height, memory_order_relaxed);
         level-- > 0;) {
        for (;;) {
            struct node *next = link_load(&links[level]);

            // The ways down come into the cache while `next` is looked at: a third less time a search.
            prefetch_below(links, level);
            // A level ends at the bound of the level above (N1), NULL included.
            if (next == bound || !node_stands_before(memtable, next, target)) {
                bound = next;
                break;
            }
            links = next->links;
        }
        if (before != NULL)
            before[level] = links;
    }
    return bound;
}

/* N3: splitmix64 of the entry's place, one bit a level. */
static uint32_t
height_of_entry(uint64_t index)
{
    uint64_t bits = (index + 1) * UINT64_C(0x9e3779b97f4a7c15);
    uint32_t height;

    bits = (bits ^ bits >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    bits = (bits ^ bits >> 27) * UINT64_C(0x94d049bb133111eb);
    bits ^= bits >> 31;
    height = 1 + (uint32_t)__builtin_ctzll(bits | (uint64_t)1 << 63);
    return height < HEIGHT_MAX ? height : HEIGHT_MAX;
}

static void
count_up(_Atomic uint64_t *counter, uint64_t more)
{
    // One writer: no read-modify-write is needed.
    atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + more,
                          memory_order_relaxed);
}

struct tm_memtable *
tm_memtable_create(const struct tm_env *env)
{
    struct tm_memtable *memtable = tm_alloc_zeroed(env, sizeof *memtable);

    if (memtable == NULL)
        return NULL;
    memtable->env = env;
    memtable->is_bytewise = tm_order_is_bytewise(&env->order);
    memtable->chunk_bytes = CHUNK_BYTES_MIN;
    atomic_init(&memtable->references, 1);
    atomic_init(&memtable->height, 1);
    atomic_init(&memtable->bytes, sizeof *memtable);
    atomic_init(&memtable->ranges, NULL);
    for (uint32_t i = 0; i < HEIGHT_MAX; i++) {
        atomic_init(&memtable->head[i].node, NULL);
        memtable->last[i] = memtable->head;
    }
    return memtable;
}

void
tm_memtable_ref(struct tm_memtable *memtable)
{
    atomic_fetch_add_explicit(&memtable->references, 1, memory_order_relaxed);
}

void
tm_memtable_unref(struct tm_memtable *memtable)
{
    struct chunk *chunk;

    if (memtable == NULL)
        return;
    // Release what this thread has read; acquire what all others have, before it goes.
    if (atomic_fetch_sub_explicit(&memtable->references, 1, memory_order_acq_rel) > 1)
        return;
    chunk = memtable->chunks;
    while (chunk != NULL) {
        struct chunk *next = chunk->next;
        tm_release(memtable->env, chunk, chunk->size);
        chunk = next;
    }
    tm_release(memtable->env, memtable, sizeof *memtable);
}

static size_t
room_left(const struct room *room)
{
    return (size_t)(room->end - room->next);
}

static size_t
aligned(size_t bytes)
{
    return (bytes + NODE_ALIGNMENT - 1) & ~(size_t)(NODE_ALIGNMENT - 1);
}

static size_t
node_bytes(uint32_t height, size_t entry_bytes)
{
    return aligned(sizeof(struct node) + height * sizeof(struct link) + entry_bytes);
}

/* How many sets the range tombstone after the first `count` ones takes into its own, which has 2 to that power of them (M3). */
static uint32_t
merged_set_count(uint64_t count)
{
    return (uint32_t)__builtin_ctzll(count + 1);
}

/* What the sets of the next `range_count` range tombstones take. */
static size_t
range_set_bytes(const struct tm_memtable *memtable, size_t range_count)
{
    size_t bytes = 0;

    for (uint64_t i = 0; i < range_count; i++)
        bytes +=
            aligned(tm_range_set_bytes((size_t)1 << merged_set_count(memtable->range_count + i)));
    return bytes;
}

/* What the next `entry_count` nodes take at most (N3); false when that is no number. */
static bool
bytes_to_reserve(const struct tm_memtable *memtable, size_t entry_count, size_t range_count,
                 size_t bytes, size_t *total)
{
    uint64_t index = atomic_load_explicit(&memtable->entry_count, memory_order_relaxed);
    size_t nodes = 0;

    if (entry_count > SIZE_MAX / 2 / node_bytes(HEIGHT_MAX, 0) || bytes > SIZE_MAX / 4)
        return false;
    for (size_t i = 0; i < entry_count; i++)
        nodes += node_bytes(height_of_entry(index + i), 0) + NODE_ALIGNMENT - 1;
    *total = nodes + bytes + range_set_bytes(memtable, range_count);
    return true;
}

tamis_status
tm_memtable_reserve(struct tm_memtable *memtable, size_t entry_count, size_t range_count,
                    size_t bytes, tamis_error *err)
{
    bool own_block;
    size_t total;
    size_t size;
    struct chunk *chunk;

    if (!bytes_to_reserve(memtable, entry_count, range_count, bytes, &total))
        return TM_NO_MEMORY(err, bytes);
    if (room_left(&memtable->aside) > room_left(&memtable->current)) {
        struct room aside = memtable->aside;
        memtable->aside = memtable->current;
        memtable->current = aside;
    }
    if (total <= room_left(&memtable->current))
        return TAMIS_OK;
    own_block = total > memtable->chunk_bytes / CHUNK_PART_MAX;
    size = sizeof *chunk + (own_block ? total : memtable->chunk_bytes);
    chunk = tm_alloc(memtable->env, size);
    if (chunk == NULL)
        return TM_NO_MEMORY(err, size);
    chunk->next = memtable->chunks;
    chunk->size = size;
    memtable->chunks = chunk;
    memtable->aside = memtable->current;
    memtable->current.next = (uint8_t *)(chunk + 1);
    memtable->current.end = (uint8_t *)chunk + size;
    if (!own_block && memtable->chunk_bytes < CHUNK_BYTES_MAX)
        memtable->chunk_bytes *= 2;
    count_up(&memtable->bytes, size);
    return TAMIS_OK;
}

static void *
take_room(struct tm_memtable *memtable, size_t bytes)
{
    void *room = memtable->current.next;

    assert(bytes == aligned(bytes) &&
           bytes <= room_left(&memtable->current)); // M2: it was reserved for
    memtable->current.next += bytes;
    count_up(&memtable->used_bytes, bytes);
    return room;
}

static struct node *
node_create(struct tm_memtable *memtable, const struct tm_entry *entry, uint64_t piece,
            uint32_t height)
{
    struct node *node =
        take_room(memtable, node_bytes(height, entry->key.length + entry->value.length));
    uint8_t *data = (uint8_t *)(node->links + height);

    node->piece = piece;
    node->sequence = entry->sequence;
    node->kind = entry->kind;
    node->height = height;
    node->key_length = (uint32_t)entry->key.length;
    node->value_length = (uint32_t)entry->value.length;
    if (entry->key.length != 0)
        memcpy(data, entry->key.data, entry->key.length);
    if (entry->value.length != 0)
        memcpy(data + entry->key.length, entry->value.data, entry->value.length);
    return node;
}

/* The node whose links these are; NULL for the head's. */
static const struct node *
node_of_links(const struct tm_memtable *memtable, const struct link *links)
{
    if (links == memtable->head)
        return NULL;
    return (const struct node *)((const uint8_t *)links - offsetof(struct node, links));
}

/* Fill before[0..height-1]. Behind the last node no search is needed: keys often come in ascending order. */
static void
find_place(struct tm_memtable *memtable, const struct target *target, uint32_t height,
           struct link **before)
{
    uint32_t height_old = atomic_load_explicit(&memtable->height, memory_order_relaxed);
    const struct link *found[HEIGHT_MAX];
    const struct node *last;

    last = node_of_links(memtable, memtable->last[0]);
    if (last != NULL && node_stands_before(memtable, last, target)) {
        memcpy(before, memtable->last, height * sizeof *before);
        return;
    }
    search(memtable, target, found);
    for (uint32_t i = 0; i < height; i++)
        before[i] = i < height_old ? (struct link *)found[i] : memtable->head;
}

static void
add_range(struct tm_memtable *memtable, const struct tm_entry *entry)
{
    size_t from_length = entry->key.length;
    uint8_t *bounds = take_room(memtable, aligned(from_length + entry->value.length));
    const struct tm_range range = {tm_slice(bounds, from_length),
                                   tm_slice(bounds + from_length, entry->value.length),
                                   entry->sequence};
    const struct tm_range_set alone = {.count = 1, .ranges = &range};
    const struct tm_range_set *sets[64] = {&alone};
    uint32_t merged_count = merged_set_count(memtable->range_count);
    const struct tm_range_set *older =
        atomic_load_explicit(&memtable->ranges, memory_order_relaxed);
    struct tm_range_set *set;

    if (from_length != 0)
        memcpy(bounds, entry->key.data, from_length);
    memcpy(bounds + from_length, entry->value.data, entry->value.length);
    for (uint32_t i = 1; i <= merged_count; i++, older = older->next)
        sets[i] = older;
    set = tm_range_set_merge(
        take_room(memtable, aligned(tm_range_set_bytes((size_t)1 << merged_count))), sets,
        merged_count + 1);
    set->next = older;
    memtable->range_count++;
    atomic_store_explicit(&memtable->ranges, set, memory_order_release); // M1
}

static void
add_node(struct tm_memtable *memtable, const struct tm_entry *entry, uint64_t index)
{
    struct target target = {piece_of_key(memtable, entry->key), entry->key, entry->sequence};
    uint32_t height = height_of_entry(index);
    struct link *before[HEIGHT_MAX];
    struct node *node;

    find_place(memtable, &target, height, before);
    node = node_create(memtable, entry, target.piece, height);
    for (uint32_t i = 0; i < height; i++) {
        struct node *next = atomic_load_explicit(&before[i][i].node, memory_order_relaxed);

        atomic_init(&node->links[i].node, next);
        if (next == NULL)
            memtable->last[i] = node->links;
    }
    // From below (N1), and complete (M1).
    for (uint32_t i = 0; i < height; i++)
        atomic_store_explicit(&before[i][i].node, node, memory_order_release);
    // A reader with the old height starts lower and finds the same.
    if (height > atomic_load_explicit(&memtable->height, memory_order_relaxed))
        atomic_store_explicit(&memtable->height, height, memory_order_relaxed);
}

void
tm_memtable_add(struct tm_memtable *memtable, const struct tm_entry *entry)
{
    uint64_t index = atomic_load_explicit(&memtable->entry_count, memory_order_relaxed);

    assert(index == 0 || entry->sequence > memtable->sequence_last);
    assert(entry->key.length <= TAMIS_KEY_BYTES_MAX);
    assert(entry->value.length <= TAMIS_VALUE_BYTES_MAX);
    if (entry->kind == TM_KIND_DELETE_RANGE)
        add_range(memtable, entry);
    else
        add_node(memtable, entry, index);
    memtable->sequence_last = entry->sequence;
    count_up(&memtable->entry_count, 1);
}

const struct tm_range_set *
tm_memtable_ranges(const struct tm_memtable *memtable)
{
    return atomic_load_explicit(&memtable->ranges, memory_order_acquire); // M1
}

void
tm_memtable_get(const struct tm_memtable *memtable, tamis_slice key, uint64_t sequence,
                struct tm_memtable_found *found)
{
    struct target target = {piece_of_key(memtable, key), key, sequence};
    const struct node *node = search(memtable, &target, NULL);
    uint64_t cover = tm_range_set_cover(tm_memtable_ranges(memtable), key, sequence);

    memset(found, 0, sizeof *found);
    if (node != NULL && (node->piece != target.piece ||
                         !tm_order_equal(&memtable->env->order, node_key(node), key)))
        node = NULL;
    if (cover > (node != NULL ? node->sequence : 0)) {
        found->sequence = cover;
        found->lookup = TM_DELETED;
        return;
    }
    if (node == NULL)
        return; // TM_ABSENT
    found->sequence = node->sequence;
    found->lookup = node->kind == TM_KIND_PUT ? TM_FOUND : TM_DELETED;
    if (node->kind == TM_KIND_PUT)
        found->value = node_value(node);
}

/* ---- Sizes ---------------------------------------------------------------------------------------- */

/* On each level the links of the last node before the first version of `key` (NULL: before all); the head's where there is none. */
static void
find_before(const struct tm_memtable *memtable, const tamis_slice *key,
            const struct link *before[HEIGHT_MAX])
{
    struct target target;

    for (uint32_t level = 0; level < HEIGHT_MAX; level++)
        before[level] = memtable->head;
    if (key == NULL)
        return;
    target = (struct target){piece_of_key(memtable, *key), *key, TM_SEQUENCE_MAX};
    (void)search(memtable, &target, before);
}

uint64_t
tm_memtable_approximate_bytes(const struct tm_memtable *memtable, const tamis_slice *from,
                              const tamis_slice *to)
{
    struct target end = {0};
    const struct link *before[HEIGHT_MAX];
    uint64_t bytes = 0;

    find_before(memtable, from, before);
    if (to != NULL)
        end = (struct target){piece_of_key(memtable, *to), *to, TM_SEQUENCE_MAX};
    // One node in two stands on the next level: the highest one with enough nodes of the range speaks for all.
    for (uint32_t level = HEIGHT_MAX; level-- > 0;) {
        uint64_t count = 0;

        bytes = 0;
        for (const struct node *node = link_load(&before[level][level]);
             node != NULL && (to == NULL || node_stands_before(memtable, node, &end));
             node = link_load(&node->links[level])) {
            count++;
            bytes += (uint64_t)node->key_length + node->value_length;
        }
        if (count >= SAMPLE_COUNT_MIN)
            return bytes << level;
    }
    return bytes;
}

/* ---- Iterator ------------------------------------------------------------------------------------- */

struct memtable_iter {
    struct tm_iter iter;          // first: it is what others see
    struct tm_memtable *memtable; // one reference
    const struct node *node;
};

static void
iter_stand_on(struct memtable_iter *iter, const struct node *node)
{
    iter->node = node;
    iter->iter.valid = node != NULL;
    if (node == NULL)
        return;
    iter->iter.entry.key = node_key(node);
    iter->iter.entry.value = node_value(node);
    iter->iter.entry.sequence = node->sequence;
    iter->iter.entry.kind = (enum tm_kind)node->kind;
}

static void
iter_first(struct tm_iter *base)
{
    struct memtable_iter *iter = (struct memtable_iter *)base;

    iter_stand_on(iter, link_load(&iter->memtable->head[0]));
}

static void
iter_last(struct tm_iter *base)
{
    struct memtable_iter *iter = (struct memtable_iter *)base;
    const struct tm_memtable *memtable = iter->memtable;
    const struct link *links = memtable->head;
    const struct node *next;

    for (uint32_t level = atomic_load_explicit(&memtable->height, memory_order_relaxed);
         level-- > 0;)
        while ((next = link_load(&links[level])) != NULL)
            links = next->links;
    iter_stand_on(iter, node_of_links(memtable, links));
}

static void
iter_seek(struct tm_iter *base, tamis_slice key, uint64_t sequence)
{
    struct memtable_iter *iter = (struct memtable_iter *)base;
    struct target target = {piece_of_key(iter->memtable, key), key, sequence};

    iter_stand_on(iter, search(iter->memtable, &target, NULL));
}

static void
iter_next(struct tm_iter *base)
{
    struct memtable_iter *iter = (struct memtable_iter *)base;

    assert(base->valid);
    iter_stand_on(iter, link_load(&iter->node->links[0]));
}

/* Nodes do not know who stands before them: a search. */
static void
iter_prev(struct tm_iter *base)
{
    struct memtable_iter *iter = (struct memtable_iter *)base;
    const struct node *node = iter->node;
    struct target target = {node->piece, node_key(node), node->sequence};
    const struct link *before[HEIGHT_MAX];

    assert(base->valid);
    (void)search(iter->memtable, &target, before);
    iter_stand_on(iter, node_of_links(iter->memtable, before[0]));
}

static void
iter_close(struct tm_iter *base)
{
    struct memtable_iter *iter = (struct memtable_iter *)base;
    struct tm_memtable *memtable = iter->memtable;

    tm_release(memtable->env, iter, sizeof *iter);
    tm_memtable_unref(memtable);
}

static const struct tm_iter_vtable iter_vtable = {
    .first = iter_first,
    .last = iter_last,
    .seek = iter_seek,
    .seek_for_prev = tm_iter_seek_and_step_back,
    .next = iter_next,
    .prev = iter_prev,
    .close = iter_close,
};

tamis_status
tm_memtable_iter(struct tm_memtable *memtable, struct tm_iter **iter_out, tamis_error *err)
{
    struct memtable_iter *iter = tm_alloc_zeroed(memtable->env, sizeof *iter);

    *iter_out = NULL;
    if (iter == NULL)
        return TM_NO_MEMORY(err, sizeof *iter);
    tm_memtable_ref(memtable);
    iter->iter.vtable = &iter_vtable;
    iter->iter.order = &memtable->env->order;
    iter->memtable = memtable;
    *iter_out = &iter->iter;
    return TAMIS_OK;
}

uint64_t
tm_memtable_bytes(const struct tm_memtable *memtable)
{
    return atomic_load_explicit(&memtable->bytes, memory_order_relaxed);
}

uint64_t
tm_memtable_used_bytes(const struct tm_memtable *memtable)
{
    return atomic_load_explicit(&memtable->used_bytes, memory_order_relaxed);
}

uint64_t
tm_memtable_entry_count(const struct tm_memtable *memtable)
{
    return atomic_load_explicit(&memtable->entry_count, memory_order_relaxed);
}
