/* SPDX-License-Identifier: MIT
 *
 * engine/memtable.c -- a tree of records (memtable_tree.h) and a list of range tombstones, in one arena, and a filter of the keys.
 *
 *     ranges ---> set of 1 ---> set of 4 ---> set of 8 --> NULL       (after 13 range tombstones, M3)
 *
 * Threads  reserve and add: the one writer. Everything else: any thread, beside it, without waiting.
 * Not here: the log (wal.h), when a memtable is full and what then (worker).
 */
#include "engine/memtable.h"

#include <assert.h>
#include <stdatomic.h>

#include <tamis/filter.h>

#include "engine/memtable_tree.h"
#include "filter/hash.h"

enum {
    // The filter is planned for entries of this size, nodes included, at so many bits a key. It is to stay in the cache: 64 MiB
    // get 420 KB. Entries a quarter as large give a rate of some 10 per cent.
    PLANNED_ENTRY_BYTES = 200,
    FILTER_BITS_PER_KEY = 10,
    WORD_BITS = 64,
};

struct tm_memtable {
    // Immutable after creation
    const struct tm_env *env;
    uint64_t hash_seed;
    tamis_filter filter; // its body is the words below
    void *filter_memory;
    uint64_t filter_bytes; // as allocated

    // Owned by the writer
    uint64_t sequence_last; // of the newest entry
    uint64_t range_count;

    // Written by the writer, read by all
    struct tm_arena arena;
    struct tm_tree tree;
    _Atomic uint64_t *filter_words; // a line of the cache, 64 bytes, holds all of a key
    _Atomic uint64_t entry_count;
    _Atomic(const struct tm_range_set *) ranges;

    _Atomic uint32_t references;
};

/* A blk512 filter without keys. False: no memory. */
static bool
make_filter(struct tm_memtable *memtable, uint64_t size_bytes)
{
    tamis_filter_geometry geometry;
    uint8_t *memory;

    if (!tamis_filter_plan(TAMIS_FILTER_BLK512, 1 + size_bytes / PLANNED_ENTRY_BYTES,
                           FILTER_BITS_PER_KEY, &geometry))
        return false;
    memtable->filter_bytes = geometry.body_bytes + TM_ARENA_LINE_BYTES;
    memory = tm_alloc_zeroed(memtable->env, (size_t)memtable->filter_bytes);
    if (memory == NULL)
        return false;
    memtable->filter_memory = memory;
    memory += -(uintptr_t)memory % TM_ARENA_LINE_BYTES;
    memtable->filter_words = (_Atomic uint64_t *)(void *)memory;
    memtable->filter = (tamis_filter){
        .body = memory,
        .lines_a = geometry.lines_a,
        .kind = TAMIS_FILTER_BLK512,
        .probes_a = (uint8_t)geometry.probes_a,
    };
    return true;
}

struct tm_memtable *
tm_memtable_create(const struct tm_env *env, uint64_t hash_seed, uint64_t size_bytes)
{
    struct tm_memtable *memtable = tm_alloc_zeroed(env, sizeof *memtable);

    if (memtable == NULL)
        return NULL;
    memtable->env = env;
    memtable->hash_seed = hash_seed;
    memtable->arena.env = env;
    memtable->tree.order = &env->order;
    memtable->tree.arena = &memtable->arena;
    atomic_init(&memtable->references, 1);
    if (!make_filter(memtable, size_bytes)) {
        tm_release(env, memtable, sizeof *memtable);
        return NULL;
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
    if (memtable == NULL)
        return;
    // Release what this thread has read; acquire what all others have, before it goes.
    if (atomic_fetch_sub_explicit(&memtable->references, 1, memory_order_acq_rel) > 1)
        return;
    tm_arena_release(&memtable->arena);
    tm_release(memtable->env, memtable->filter_memory, (size_t)memtable->filter_bytes);
    tm_release(memtable->env, memtable, sizeof *memtable);
}

/* ---- Filter ---------------------------------------------------------------------------------------- */

/* Where the bits of a key are is for filter/ to say; that they are set and asked word by word is because a reader may ask
 * for other keys of the same line meanwhile. */

static void
filter_add(struct tm_memtable *memtable, uint64_t hash)
{
    uint64_t positions[TAMIS_FILTER_POSITIONS_MAX];
    uint32_t count = tamis_filter_positions(&memtable->filter, hash, positions);

    for (uint32_t i = 0; i < count; i++) {
        _Atomic uint64_t *word = &memtable->filter_words[positions[i] / WORD_BITS];

        atomic_store_explicit(word,
                              atomic_load_explicit(word, memory_order_relaxed) |
                                  (uint64_t)1 << positions[i] % WORD_BITS,
                              memory_order_relaxed); // one writer
    }
}

/* Keys of different bytes that are equal have different hashes: nothing is known then. */
bool
tm_memtable_may_contain(const struct tm_memtable *memtable, uint64_t hash)
{
    uint64_t positions[TAMIS_FILTER_POSITIONS_MAX];
    uint32_t count;

    if (atomic_load_explicit(&memtable->tree.root, memory_order_relaxed) == NULL)
        return false; // no line is touched for a memtable that is empty
    if (tm_order_merges_keys(&memtable->env->order))
        return true;
    count = tamis_filter_positions(&memtable->filter, hash, positions);
    for (uint32_t i = 0; i < count; i++)
        if ((atomic_load_explicit(&memtable->filter_words[positions[i] / WORD_BITS],
                                  memory_order_relaxed) >>
                 positions[i] % WORD_BITS &
             1) == 0)
            return false;
    return true;
}

void
tm_memtable_prefetch(const struct tm_memtable *memtable, uint64_t hash)
{
    tamis_filter_prefetch(&memtable->filter, hash);
}

/* ---- Writing --------------------------------------------------------------------------------------- */

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
        bytes += tm_arena_aligned(
            tm_range_set_bytes((size_t)1 << merged_set_count(memtable->range_count + i)));
    return bytes;
}

tamis_status
tm_memtable_reserve(struct tm_memtable *memtable, size_t entry_count, size_t range_count,
                    size_t bytes, tamis_error *err)
{
    size_t record_bytes;

    if (!tm_tree_record_bytes_max(entry_count, bytes, &record_bytes))
        return TM_NO_MEMORY(err, bytes);
    return tm_arena_reserve(&memtable->arena, record_bytes + range_set_bytes(memtable, range_count),
                            tm_tree_node_bytes_max(&memtable->tree, entry_count - range_count),
                            err);
}

static void
add_range(struct tm_memtable *memtable, const struct tm_entry *entry)
{
    size_t from_length = entry->key.length;
    uint8_t *bounds =
        tm_arena_take(&memtable->arena, tm_arena_aligned(from_length + entry->value.length));
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
    set = tm_range_set_merge(tm_arena_take(&memtable->arena, tm_arena_aligned(tm_range_set_bytes(
                                                                 (size_t)1 << merged_count))),
                             sets, merged_count + 1);
    set->next = older;
    memtable->range_count++;
    atomic_store_explicit(&memtable->ranges, set, memory_order_release); // M1
}

void
tm_memtable_add(struct tm_memtable *memtable, const struct tm_entry *entry)
{
    uint64_t count = atomic_load_explicit(&memtable->entry_count, memory_order_relaxed);

    assert(count == 0 || entry->sequence > memtable->sequence_last);
    assert(entry->key.length <= TAMIS_KEY_BYTES_MAX);
    assert(entry->value.length <= TAMIS_VALUE_BYTES_MAX);
    if (entry->kind == TM_KIND_DELETE_RANGE) {
        add_range(memtable, entry);
    } else {
        filter_add(memtable,
                   tm_hash64(entry->key.data, entry->key.length, memtable->hash_seed)); // M4
        tm_tree_add(&memtable->tree, entry);
    }
    memtable->sequence_last = entry->sequence;
    atomic_store_explicit(&memtable->entry_count, count + 1, memory_order_relaxed);
}

/* ---- Reading --------------------------------------------------------------------------------------- */

const struct tm_range_set *
tm_memtable_ranges(const struct tm_memtable *memtable)
{
    return atomic_load_explicit(&memtable->ranges, memory_order_acquire); // M1
}

void
tm_memtable_get(const struct tm_memtable *memtable, tamis_slice key, uint64_t hash,
                uint64_t sequence, struct tm_memtable_found *found)
{
    uint64_t cover = tm_range_set_cover(tm_memtable_ranges(memtable), key, sequence);
    const struct tm_record *record =
        tm_memtable_may_contain(memtable, hash) ? tm_tree_find(&memtable->tree, key) : NULL; // M4

    memset(found, 0, sizeof *found);
    if (record != NULL)
        record = tm_record_at(record, sequence);
    if (cover > (record != NULL ? record->sequence : 0)) {
        found->sequence = cover;
        found->lookup = TM_DELETED;
        return;
    }
    if (record == NULL)
        return; // TM_ABSENT
    found->sequence = record->sequence;
    found->lookup = record->kind == TM_KIND_PUT ? TM_FOUND : TM_DELETED;
    if (record->kind == TM_KIND_PUT)
        found->value = tm_record_value(record);
}

uint64_t
tm_memtable_approximate_bytes(const struct tm_memtable *memtable, const tamis_slice *from,
                              const tamis_slice *to)
{
    return tm_tree_approximate_bytes(&memtable->tree, from, to);
}

uint64_t
tm_memtable_bytes(const struct tm_memtable *memtable)
{
    return sizeof *memtable + memtable->filter_bytes + tm_arena_bytes(&memtable->arena);
}

uint64_t
tm_memtable_used_bytes(const struct tm_memtable *memtable)
{
    return tm_arena_used_bytes(&memtable->arena);
}

uint64_t
tm_memtable_entry_count(const struct tm_memtable *memtable)
{
    return atomic_load_explicit(&memtable->entry_count, memory_order_relaxed);
}

/* ---- Iterator ------------------------------------------------------------------------------------- */

/* Stands on a version of the key at a place of a leaf, which is as it was when the iterator came into it. */
struct memtable_iter {
    struct tm_iter iter;          // first: it is what others see
    struct tm_memtable *memtable; // one reference
    const struct tm_record *record;
    uint32_t at;
    struct tm_leaf leaf;
};

/* NULL: beyond all. */
static void
iter_stand_on(struct memtable_iter *iter, const struct tm_record *record)
{
    iter->record = record;
    iter->iter.valid = record != NULL;
    if (record == NULL)
        return;
    iter->iter.entry.key = tm_record_key(record);
    iter->iter.entry.value = tm_record_value(record);
    iter->iter.entry.sequence = record->sequence;
    iter->iter.entry.kind = (enum tm_kind)record->kind;
}

/* On the newest version of the key at the place; behind the last place lies the next leaf. */
static void
iter_stand_at(struct memtable_iter *iter, uint32_t at)
{
    if (at == iter->leaf.count) {
        if (!tm_leaf_enter_next(&iter->leaf, &iter->memtable->tree)) {
            iter_stand_on(iter, NULL);
            return;
        }
        at = 0;
    }
    iter->at = at;
    iter_stand_on(iter, iter->leaf.records[at]);
}

/* On the oldest version of the key before the place; before the first place lies the previous leaf. */
static void
iter_stand_before(struct memtable_iter *iter, uint32_t at)
{
    if (at == 0) {
        if (!tm_leaf_enter_previous(&iter->leaf, &iter->memtable->tree)) {
            iter_stand_on(iter, NULL);
            return;
        }
        at = iter->leaf.count;
    }
    iter->at = at - 1;
    iter_stand_on(iter, tm_record_oldest(iter->leaf.records[at - 1]));
}

static void
iter_first(struct tm_iter *base)
{
    struct memtable_iter *iter = (struct memtable_iter *)base;

    if (tm_leaf_enter_first(&iter->leaf, &iter->memtable->tree))
        iter_stand_at(iter, 0);
    else
        iter_stand_on(iter, NULL);
}

static void
iter_last(struct tm_iter *base)
{
    struct memtable_iter *iter = (struct memtable_iter *)base;

    if (tm_leaf_enter_last(&iter->leaf, &iter->memtable->tree))
        iter_stand_before(iter, iter->leaf.count);
    else
        iter_stand_on(iter, NULL);
}

static void
iter_seek(struct tm_iter *base, tamis_slice key, uint64_t sequence)
{
    struct memtable_iter *iter = (struct memtable_iter *)base;
    const struct tm_tree *tree = &iter->memtable->tree;
    const struct tm_record *record;
    uint32_t at;

    if (!tm_leaf_enter_at(&iter->leaf, tree, key)) {
        iter_stand_on(iter, NULL);
        return;
    }
    at = tm_leaf_seek(&iter->leaf, tree, key);
    if (at == iter->leaf.count ||
        !tm_order_equal(tree->order, tm_record_key(iter->leaf.records[at]), key)) {
        iter_stand_at(iter, at);
        return;
    }
    record = tm_record_at(iter->leaf.records[at], sequence);
    if (record == NULL) {
        iter_stand_at(iter, at + 1);
        return;
    }
    iter->at = at;
    iter_stand_on(iter, record);
}

static void
iter_next(struct tm_iter *base)
{
    struct memtable_iter *iter = (struct memtable_iter *)base;
    const struct tm_record *older = tm_record_older(iter->record);

    assert(base->valid);
    if (older != NULL)
        iter_stand_on(iter, older);
    else
        iter_stand_at(iter, iter->at + 1);
}

static void
iter_prev(struct tm_iter *base)
{
    struct memtable_iter *iter = (struct memtable_iter *)base;
    const struct tm_record *newer =
        atomic_load_explicit(&iter->record->newer, memory_order_acquire);

    assert(base->valid);
    if (newer != NULL)
        iter_stand_on(iter, newer);
    else
        iter_stand_before(iter, iter->at);
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
