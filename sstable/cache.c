/* SPDX-License-Identifier: MIT
 *
 * sstable/cache.c -- the block cache: shards, each a hash table and a SIEVE queue under a short lock.
 *
 *   shard   buckets -> entry -> entry              newest <-> ... <-> hand <-> ... <-> oldest
 *
 * SIEVE: a hit only marks its entry. When room is needed, the hand walks from the oldest entry towards the newest, takes
 * marks away, and evicts the first entry without one. Entries never move, so a hit writes one byte, and one scan
 * over a large range cannot push out what is read again and again.
 *
 * Threads  everything of a shard is guarded by its mutex, except counters that others read (atomic).
 * Memory of evicted blocks is given back after the lock is released.
 */
#include "sstable/cache.h"

#include "filter/bytes.h"
#include "filter/hash.h"

// Enough that two threads rarely meet at a lock, and that the largest common block is a small part of a shard.
enum { SHARDS_MAX = 16 };
// Below this a shard would hold too few 4 KiB blocks for its replacement to mean anything.
enum { SHARD_BYTES_MIN = 256 * 1024 };
enum { BUCKETS_MIN = 16 };
// What a general-purpose allocator adds to a block of memory; counted so that the bound is about real memory.
enum { ALLOCATION_OVERHEAD_BYTES = 16 };
// Blocks from 2 KiB on are rounded up to a multiple of this, with what malloc adds: 3 per cent of 4 KiB on average.
enum { ROUNDING_BYTES = 256, ROUNDED_BYTES_MIN = 2048 };

struct entry {
    uint64_t data_id;
    uint64_t offset;
    struct tm_block *block;
    struct entry *next_in_bucket;
    struct entry *newer;
    struct entry *older; // also links evicted entries until they are freed
    size_t charge_bytes;
    bool visited;
};

struct shard {
    struct tm_mutex mutex;

    // Guarded by mutex
    struct entry **buckets;
    size_t bucket_count; // a power of two
    size_t entry_count;
    struct entry *newest;
    struct entry *oldest;
    struct entry *hand; // NULL: start at the oldest
    uint64_t hits;
    uint64_t misses;
    uint64_t bytes_used; // of entries, blocks and buckets
};

struct tm_cache {
    // Immutable after creation
    const struct tm_env *env;
    uint64_t shard_bytes; // capacity of each; 0: keeps nothing
    size_t shard_count;   // a power of two
    size_t memory_bytes;  // of this struct with its shards
    struct shard shards[];
};

/* ---- Blocks ---------------------------------------------------------------------------------------- */

/* Data blocks end where the next entry would not fit, each with another length. In a cache that replaces one by another, malloc would
 * be left with a remainder each time; a few sizes fit one another's holes. */
static size_t
bytes_to_allocate(size_t length)
{
    size_t whole = sizeof(struct tm_block) + length;

    if (whole < ROUNDED_BYTES_MIN || length > UINT32_MAX - ROUNDING_BYTES)
        return length;
    return (whole + ROUNDING_BYTES - 1) / ROUNDING_BYTES * ROUNDING_BYTES - sizeof(struct tm_block);
}

struct tm_block *
tm_block_create(const struct tm_env *env, size_t length)
{
    size_t allocated = bytes_to_allocate(length);
    struct tm_block *block;

    if (length > UINT32_MAX)
        return NULL;
    block = tm_alloc(env, sizeof *block + allocated);
    if (block == NULL)
        return NULL;
    block->env = env;
    atomic_init(&block->references, 1);
    block->length = (uint32_t)length;
    block->allocated = (uint32_t)allocated;
    return block;
}

void
tm_block_unref(struct tm_block *block)
{
    if (block == NULL)
        return;
    // Release: our reads come before the free. Acquire by the last: so do everybody else's.
    if (atomic_fetch_sub_explicit(&block->references, 1, memory_order_acq_rel) == 1)
        tm_release(block->env, block, sizeof *block + block->allocated);
}

/* ---- Shards ---------------------------------------------------------------------------------------- */

static uint64_t
hash_of(uint64_t data_id, uint64_t offset)
{
    uint8_t bytes[16];

    tm_put_u64(bytes, data_id);
    tm_put_u64(bytes + 8, offset);
    return tm_hash64(bytes, sizeof bytes, 0);
}

/* Shards by the upper bits, buckets by the lower ones. */
static struct shard *
shard_of(struct tm_cache *cache, uint64_t hash)
{
    return &cache->shards[(hash >> 32) & (cache->shard_count - 1)];
}

static void
lock(const struct tm_cache *cache, struct shard *shard)
{
    cache->env->runtime->lock(cache->env->runtime->ctx, &shard->mutex);
}

static void
unlock(const struct tm_cache *cache, struct shard *shard)
{
    cache->env->runtime->unlock(cache->env->runtime->ctx, &shard->mutex);
}

static struct entry **
find_link(struct shard *shard, uint64_t hash, uint64_t data_id, uint64_t offset)
{
    struct entry **link = &shard->buckets[hash & (shard->bucket_count - 1)];

    while (*link != NULL && ((*link)->offset != offset || (*link)->data_id != data_id))
        link = &(*link)->next_in_bucket;
    return link;
}

/* Take the entry out of bucket and queue. */
static void
detach(struct shard *shard, struct entry *entry)
{
    struct entry **link =
        find_link(shard, hash_of(entry->data_id, entry->offset), entry->data_id, entry->offset);

    *link = entry->next_in_bucket;
    if (entry->newer != NULL)
        entry->newer->older = entry->older;
    else
        shard->newest = entry->older;
    if (entry->older != NULL)
        entry->older->newer = entry->newer;
    else
        shard->oldest = entry->newer;
    if (shard->hand == entry)
        shard->hand = entry->newer;
    shard->entry_count--;
    shard->bytes_used -= entry->charge_bytes;
}

/* The next victim; there is at least one entry. Ends within two rounds: the first takes all marks away. */
static struct entry *
choose_victim(struct shard *shard)
{
    struct entry *entry = shard->hand != NULL ? shard->hand : shard->oldest;

    while (entry->visited) {
        entry->visited = false;
        entry = entry->newer != NULL ? entry->newer : shard->oldest;
    }
    shard->hand = entry;
    return entry;
}

/* Twice the buckets once there are more entries than buckets. Without room or memory chains grow longer instead. */
static void
grow(const struct tm_cache *cache, struct shard *shard)
{
    const struct tm_env *env = cache->env;
    size_t count = shard->bucket_count * 2;
    uint64_t more = shard->bucket_count * sizeof(struct entry *);
    struct entry **buckets;

    if (shard->entry_count <= shard->bucket_count || more > cache->shard_bytes - shard->bytes_used)
        return;
    buckets = tm_alloc_zeroed(env, count * sizeof *buckets);
    if (buckets == NULL)
        return;
    for (struct entry *entry = shard->oldest; entry != NULL; entry = entry->newer) {
        struct entry **bucket = &buckets[hash_of(entry->data_id, entry->offset) & (count - 1)];

        entry->next_in_bucket = *bucket;
        *bucket = entry;
    }
    tm_release(env, shard->buckets, shard->bucket_count * sizeof *shard->buckets);
    shard->buckets = buckets;
    shard->bucket_count = count;
    shard->bytes_used += more;
}

static void
free_chain(const struct tm_cache *cache, struct entry *entry)
{
    while (entry != NULL) {
        struct entry *next = entry->older;

        tm_block_unref(entry->block);
        tm_release(cache->env, entry, sizeof *entry);
        entry = next;
    }
}

/* ---- The cache ------------------------------------------------------------------------------------- */

struct tm_cache *
tm_cache_create(const struct tm_env *env, uint64_t capacity_bytes)
{
    const uint64_t buckets_bytes = BUCKETS_MIN * sizeof(struct entry *);
    size_t shard_count = 1;
    size_t memory_bytes;
    uint64_t fixed;
    struct tm_cache *cache;

    while (shard_count < SHARDS_MAX && capacity_bytes / (shard_count * 2) >= SHARD_BYTES_MIN)
        shard_count *= 2;
    memory_bytes = sizeof *cache + shard_count * sizeof(struct shard);
    cache = tm_alloc_zeroed(env, memory_bytes);
    if (cache == NULL)
        return NULL;
    cache->env = env;
    cache->shard_count = shard_count;
    cache->memory_bytes = memory_bytes;
    for (size_t i = 0; i < shard_count; i++)
        env->runtime->mutex_init(env->runtime->ctx, &cache->shards[i].mutex);

    fixed = memory_bytes + shard_count * buckets_bytes;
    if (capacity_bytes <= fixed)
        return cache; // keeps nothing, and nothing is all that it may keep
    cache->shard_bytes = (capacity_bytes - memory_bytes) / shard_count;
    for (size_t i = 0; i < shard_count; i++) {
        struct shard *shard = &cache->shards[i];

        shard->buckets = tm_alloc_zeroed(env, (size_t)buckets_bytes);
        if (shard->buckets == NULL) {
            tm_cache_destroy(cache);
            return NULL;
        }
        shard->bucket_count = BUCKETS_MIN;
        shard->bytes_used = buckets_bytes;
    }
    return cache;
}

void
tm_cache_destroy(struct tm_cache *cache)
{
    if (cache == NULL)
        return;
    for (size_t i = 0; i < cache->shard_count; i++) {
        struct shard *shard = &cache->shards[i];

        free_chain(cache, shard->newest);
        tm_release(cache->env, shard->buckets, shard->bucket_count * sizeof *shard->buckets);
        cache->env->runtime->mutex_deinit(cache->env->runtime->ctx, &shard->mutex);
    }
    tm_release(cache->env, cache, cache->memory_bytes);
}

struct tm_block *
tm_cache_get(struct tm_cache *cache, uint64_t data_id, uint64_t offset)
{
    uint64_t hash = hash_of(data_id, offset);
    struct shard *shard = shard_of(cache, hash);
    struct tm_block *block = NULL;

    lock(cache, shard);
    if (cache->shard_bytes > 0) {
        struct entry *entry = *find_link(shard, hash, data_id, offset);

        if (entry != NULL) {
            entry->visited = true;
            block = entry->block;
            tm_block_ref(block);
        }
    }
    if (block != NULL)
        shard->hits++;
    else
        shard->misses++;
    unlock(cache, shard);
    return block;
}

void
tm_cache_put(struct tm_cache *cache, uint64_t data_id, uint64_t offset, struct tm_block *block)
{
    uint64_t hash = hash_of(data_id, offset);
    struct shard *shard = shard_of(cache, hash);
    struct entry *evicted = NULL;
    struct entry *entry;
    size_t charge_bytes;

    charge_bytes = sizeof *entry + sizeof *block + block->allocated + 2 * ALLOCATION_OVERHEAD_BYTES;
    if (charge_bytes > cache->shard_bytes)
        return;
    entry = tm_alloc_zeroed(cache->env, sizeof *entry);
    if (entry == NULL)
        return;
    entry->data_id = data_id;
    entry->offset = offset;
    entry->block = block;
    entry->charge_bytes = charge_bytes;
    tm_block_ref(block);

    lock(cache, shard);
    // K1. Buckets are never given back, so a block that is as large as the shard may still not fit.
    while (shard->entry_count > 0 && charge_bytes > cache->shard_bytes - shard->bytes_used) {
        struct entry *victim = choose_victim(shard);

        detach(shard, victim);
        victim->older = evicted;
        evicted = victim;
    }
    if (charge_bytes > cache->shard_bytes - shard->bytes_used ||
        *find_link(shard, hash, data_id, offset) != NULL) {
        entry->older = evicted; // too large, or another thread was first
        evicted = entry;
    } else {
        struct entry **bucket = &shard->buckets[hash & (shard->bucket_count - 1)];

        entry->next_in_bucket = *bucket;
        *bucket = entry;
        entry->older = shard->newest;
        if (shard->newest != NULL)
            shard->newest->newer = entry;
        else
            shard->oldest = entry;
        shard->newest = entry;
        shard->entry_count++;
        shard->bytes_used += charge_bytes;
        grow(cache, shard);
    }
    unlock(cache, shard);
    free_chain(cache, evicted);
}

/* Add up one counter of all shards. The locks are the readers' own: `const` is about what a caller can see. */
static uint64_t
sum(const struct tm_cache *cache, size_t counter_at)
{
    struct tm_cache *mutable_cache = (struct tm_cache *)cache;
    uint64_t total = 0;

    for (size_t i = 0; i < cache->shard_count; i++) {
        struct shard *shard = &mutable_cache->shards[i];

        lock(cache, shard);
        total += *(const uint64_t *)((const char *)shard + counter_at);
        unlock(cache, shard);
    }
    return total;
}

uint64_t
tm_cache_bytes(const struct tm_cache *cache)
{
    return cache->shard_bytes == 0
               ? 0
               : cache->memory_bytes + sum(cache, offsetof(struct shard, bytes_used));
}

uint64_t
tm_cache_hits(const struct tm_cache *cache)
{
    return sum(cache, offsetof(struct shard, hits));
}

uint64_t
tm_cache_misses(const struct tm_cache *cache)
{
    return sum(cache, offsetof(struct shard, misses));
}
