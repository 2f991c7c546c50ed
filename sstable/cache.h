/* SPDX-License-Identifier: MIT
 *
 * sstable/cache.h -- the block cache: unpacked blocks, keyed by (data id, offset), bounded in bytes.
 *
 * A block is reference counted: the cache holds one reference while it keeps the block, each user one while
 * it reads. Values handed to users without a copy are such references.
 *
 * Invariants
 *   K1  tm_cache_bytes() never passes the capacity, bookkeeping included. Blocks that users still hold after
 *       their eviction are theirs, and no longer counted here.
 *   K2  A block never changes once it has been offered, so whoever holds a reference reads without a lock.
 *   K3  A hit takes no lock, allocates nothing, and writes only where the block stands and in the counts of its thread.
 *
 * Threads  every function of a cache may run beside every other, tm_cache_destroy() excepted.
 * Not here: reading and verifying (codec.h).
 */
#ifndef TM_SSTABLE_CACHE_H
#define TM_SSTABLE_CACHE_H

#include <stdatomic.h>

#include "sstable/env.h"

struct tm_cache;

struct tm_block {
    const struct tm_env *env; // where the memory goes back to
    struct tm_block *next_evicted; // the cache's own, on the way out
    _Atomic uint32_t references;
    uint32_t length;    // bytes in data
    uint32_t allocated; // bytes of data as allocated; a block stored raw has its trailer behind length
    uint8_t data[];     // unpacked, checksum verified
};

/** A block with room for `length` bytes and one reference; NULL when there is no memory. */
struct tm_block *tm_block_create(const struct tm_env *env, size_t length);

static inline void
tm_block_ref(struct tm_block *block)
{
    // Whoever refs has a reference already, or keeps the cache from giving up its own (K4): nothing to order.
    atomic_fetch_add_explicit(&block->references, 1, memory_order_relaxed);
}

/** NULL allowed; the last one frees. */
void tm_block_unref(struct tm_block *block);

/**
 * Create a cache.
 *
 * @param env             borrowed; outlives the cache
 * @param capacity_bytes  bound of blocks and bookkeeping together; too little for one block: keeps nothing
 * @param block_bytes     what most blocks have: it decides how many places there are. Where blocks are much smaller, places run out
 *                        before bytes do
 * @return                NULL when there is no memory
 */
struct tm_cache *tm_cache_create(const struct tm_env *env, uint64_t capacity_bytes,
                                 size_t block_bytes);
/** Every block must have been let go by its users. NULL allowed. */
void tm_cache_destroy(struct tm_cache *cache);
/* What a tm_cache_get() to come will look at, on its way into the processor's cache: first where blocks are found, then what a
 * search in the block looks at first. Nothing is counted, no mark is set. */
void tm_cache_prefetch_place(struct tm_cache *cache, uint64_t data_id, uint64_t offset);
void tm_cache_prefetch_block(struct tm_cache *cache, uint64_t data_id, uint64_t offset);

/** A reference to the block, or NULL. */
struct tm_block *tm_cache_get(struct tm_cache *cache, uint64_t data_id, uint64_t offset);
/**
 * Offer a block (borrowed; the cache takes a reference of its own if it keeps it). Refusing is no failure: the block
 * is larger than a shard, there is no memory for bookkeeping, or another thread was first.
 */
void tm_cache_put(struct tm_cache *cache, uint64_t data_id, uint64_t offset,
                  struct tm_block *block);
/** Bytes that count against the capacity, bookkeeping included. */
uint64_t tm_cache_bytes(const struct tm_cache *cache);
uint64_t tm_cache_hits(const struct tm_cache *cache);
uint64_t tm_cache_misses(const struct tm_cache *cache);

#endif
