/* SPDX-License-Identifier: MIT
 *
 * engine/memtable.h -- the newest writes, sorted, in memory.
 *
 * Threads: one writer at a time (the leader of the write queue), any number of readers beside it, which
 * never wait. Entries are never changed or removed; the whole goes when the last reference does.
 *
 * Invariants
 *   M1  An entry is complete before it is published (release store), so a reader (acquire load) sees all of it.
 *   M2  tm_memtable_add() after a successful tm_memtable_reserve() for it cannot fail: a write that
 *       is in the log is never refused by memory.
 *   M3  Range tombstones stand in sets linked from newer to older. The k-th one makes a set of 2^z ranges, z the zeros at the
 *       end of k in binary, out of itself and the sets of 1, 2, 4, ... ranges: there are never more than log2(k) sets,
 *       none ever changes, and a range is copied log2(k) times.
 *   M4  A key's bits are in the filter before the key can be met, so "no" is certain for all that a reader may see.
 */
#ifndef TM_ENGINE_MEMTABLE_H
#define TM_ENGINE_MEMTABLE_H

#include "sstable/iter.h"
#include "sstable/range_set.h"

struct tm_memtable;

struct tm_memtable_found {
    enum tm_lookup lookup;
    uint64_t sequence;
    tamis_slice value; // TM_FOUND: valid as long as a reference to the memtable is held
};

/**
 * One reference. NULL when there is no memory.
 *
 * @param env         borrowed; outlives the memtable
 * @param hash_seed   of the hashes that lookups bring
 * @param size_bytes  what it is expected to hold: plans the filter. More than that is held, too, with more "maybe"
 */
struct tm_memtable *tm_memtable_create(const struct tm_env *env, uint64_t hash_seed,
                                       uint64_t size_bytes);
void tm_memtable_ref(struct tm_memtable *memtable);
void tm_memtable_unref(struct tm_memtable *memtable); // any thread; NULL allowed; the last one frees

/**
 * Make sure that `entry_count` entries, `range_count` of them range tombstones, with `bytes` of keys and values in all can be
 * added, in any split, without allocating. A reservation replaces the one before, used up or not: reserve once for a whole group of writes.
 *
 * @return TAMIS_OK; TAMIS_NO_MEMORY: nothing has changed
 *
 * Threads  the one writer.
 * Cost     mostly none; else one or two allocations: of a chunk or of a block as large as the reservation, and of nodes for the
 *          worst that can happen to the tree.
 */
TAMIS_NODISCARD tamis_status tm_memtable_reserve(struct tm_memtable *memtable, size_t entry_count,
                                                 size_t range_count, size_t bytes,
                                                 tamis_error *err);
/** Copy the entry in; a TM_KIND_DELETE_RANGE goes to the range tombstones. Reserved for before (M2, asserted). Sequences ascend (asserted). The one writer. */
void tm_memtable_add(struct tm_memtable *memtable, const struct tm_entry *entry);

/** Start loading the line of the filter that a lookup will ask. Any thread. */
void tm_memtable_prefetch(const struct tm_memtable *memtable, uint64_t hash);

/** What the filter says: false is certain. Range tombstones are not in it. Any thread. */
bool tm_memtable_may_contain(const struct tm_memtable *memtable, uint64_t hash);

/**
 * Newest version of `key` not newer than `sequence`; TM_DELETED when a range tombstone is newer still. `hash` is that of the
 * key under the memtable's seed. Any thread.
 */
void tm_memtable_get(const struct tm_memtable *memtable, tamis_slice key, uint64_t hash,
                     uint64_t sequence, struct tm_memtable_found *found);

/** The range tombstones: a list of sets, NULL when there are none. Valid as long as the memtable. Any thread. */
const struct tm_range_set *tm_memtable_ranges(const struct tm_memtable *memtable);

/**
 * Keys and values of the versions from `from` (NULL: the first) to before `to` (NULL: the last), in bytes: exact for a thousand,
 * else judged by some of its leaves. Any thread. Cost: some thousand entries, and a visit to one node in 22 x 22 keys.
 */
uint64_t tm_memtable_approximate_bytes(const struct tm_memtable *memtable, const tamis_slice *from,
                                       const tamis_slice *to);

/** Walks every version in entry order; holds a reference. Stable under adds: newer entries may or may not appear. */
TAMIS_NODISCARD tamis_status tm_memtable_iter(struct tm_memtable *memtable,
                                              struct tm_iter **iter_out, tamis_error *err);

uint64_t tm_memtable_bytes(const struct tm_memtable *memtable);       // what it took from the allocator
uint64_t tm_memtable_used_bytes(const struct tm_memtable *memtable);  // of these, in use: decides when it is full
uint64_t tm_memtable_entry_count(const struct tm_memtable *memtable);

#endif
