/* SPDX-License-Identifier: MIT
 *
 * sstable/range_set.h -- range tombstones: which deletion covers a key.
 *
 *     from  a        c    e         k         sorted by start, newer first among equal starts
 *           |---7----|    |----9----|
 *              |---------4---------------|
 *              b                         m
 *     furthest: of the ranges up to here, the one that ends last. Walking back from the last range that begins at or before
 *     a key, the walk is over when even the furthest one ends before the key.
 *
 * A range holds `from` and not `to`. It hides versions of its keys that are older than itself.
 *
 * Threads  immutable once made; any number of readers.
 * Not here: where sets live (a memtable's arena, a table's memory), and what they mean to a merge (engine/merge_write.c).
 */
#ifndef TM_SSTABLE_RANGE_SET_H
#define TM_SSTABLE_RANGE_SET_H

#include "sstable/entry.h"

struct tm_range {
    tamis_slice from; // inclusive
    tamis_slice to;   // exclusive, above from
    uint64_t sequence;
};

struct tm_range_set {
    const struct tm_range_set *next; // an older set beside this one, or NULL; as whoever made it wants
    size_t count;
    const struct tm_range *ranges;
    const uint32_t *furthest; // an index for each range
};

/** In entry order: by start, then newer first. */
static inline int
tm_range_compare(const struct tm_range *a, const struct tm_range *b)
{
    return tm_entry_compare(NULL, a->from, a->sequence, b->from, b->sequence);
}

/**
 * A key that no key of the range is behind, from where its end stands: the end itself, or, as nothing stands between x and
 * x with a zero byte, that x. Grows with the end.
 */
static inline tamis_slice
tm_range_reach(tamis_slice to)
{
    bool is_next = to.length != 0 && ((const uint8_t *)to.data)[to.length - 1] == 0;

    return tm_slice(to.data, to.length - is_next);
}

/** Into that order. */
void tm_range_sort(struct tm_range *ranges, size_t count);

/** Memory for a set of `count` ranges, aligned as a pointer. */
size_t tm_range_set_bytes(size_t count);

/**
 * Make one set of several, in `memory` of tm_range_set_bytes(sum of their counts). Keys are borrowed. `next` of the sets
 * is not followed.
 *
 * Cost  a comparison for each range and set.
 */
struct tm_range_set *tm_range_set_merge(void *memory, const struct tm_range_set *const *sets,
                                        size_t set_count);

/**
 * The stretch of keys around `key` that the ranges over it cover together, of those newer than `above` and not newer than
 * `sequence`; its sequence is that of the newest of them, 0: there are none. NULL is the empty set; `next` is followed.
 *
 * Cost  a binary search, and a step for each range that begins at or before the key since the last gap.
 */
struct tm_range tm_range_set_around(const struct tm_range_set *set, tamis_slice key, uint64_t above,
                                    uint64_t sequence);

/** The newest range over `key` that is not newer than `sequence`; 0: none. As tm_range_set_around(). */
static inline uint64_t
tm_range_set_cover(const struct tm_range_set *set, tamis_slice key, uint64_t sequence)
{
    return set == NULL ? 0 : tm_range_set_around(set, key, 0, sequence).sequence;
}

/** Is there a range over all of `range` that is newer, but not newer than `sequence`? The set alone, without `next`. */
bool tm_range_set_contains(const struct tm_range_set *set, const struct tm_range *range,
                           uint64_t sequence);

#endif
