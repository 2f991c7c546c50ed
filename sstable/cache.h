/* SPDX-License-Identifier: MIT
 *
 * sstable/cache.h -- the block cache: unpacked blocks, keyed by (data id, offset), bounded in bytes.
 *
 * A block is reference counted: the cache holds one reference while it keeps the block, each user one while
 * it reads. Values handed to users without a copy are such references.
 */
#ifndef TM_SSTABLE_CACHE_H
#define TM_SSTABLE_CACHE_H

#include <stdatomic.h>

#include "sstable/env.h"

struct tm_cache;

struct tm_block {
    const struct tm_env *env; // where `data` goes back to
    _Atomic uint32_t references;
    uint32_t length; // bytes in data
    uint8_t data[];  // unpacked, checksum verified
};

/** A block with room for `length` bytes and one reference; NULL when there is no memory. */
struct tm_block *tm_block_create(const struct tm_env *env, size_t length);
void tm_block_ref(struct tm_block *block);
void tm_block_unref(struct tm_block *block); // NULL allowed; the last one frees

/** capacity_bytes 0: keeps nothing. NULL when there is no memory. `env` is borrowed and outlives the cache. */
struct tm_cache *tm_cache_create(const struct tm_env *env, uint64_t capacity_bytes);
/** Every block must have been let go by its users. NULL allowed. */
void tm_cache_destroy(struct tm_cache *cache);
/** A reference to the block, or NULL. Any thread. */
struct tm_block *tm_cache_get(struct tm_cache *cache, uint64_t data_id, uint64_t offset);
/** Offer a block (borrowed; the cache takes a reference of its own if it keeps it; refusing is no failure). Any thread. */
void tm_cache_put(struct tm_cache *cache, uint64_t data_id, uint64_t offset,
                  struct tm_block *block);
/** Bytes that count against the capacity, bookkeeping included. */
uint64_t tm_cache_bytes(const struct tm_cache *cache);
uint64_t tm_cache_hits(const struct tm_cache *cache);
uint64_t tm_cache_misses(const struct tm_cache *cache);

#endif
