/* SPDX-License-Identifier: MIT
 *
 * sstable/cache.c -- the block cache: shards, each a table of sets that readers search without a lock, and a SIEVE queue.
 *
 *   hash     32 bits fingerprint, 4 of them: shard | 32 bits: set
 *   set      8 words | 8 data ids | 8 offsets | 8 blocks         a line of memory each, fetched together
 *   word     fingerprint, 32 bits | visited | open | readers, 16 bits
 *   queue    newest <-> ... <-> hand <-> ... <-> oldest          places by number
 *
 * SIEVE: a hit only marks its place. When room is needed, the hand walks from the oldest place towards the newest, takes
 * marks away, and evicts the first block without one. Places never move in the queue, so one scan over a large range cannot
 * push out what is read again and again.
 *
 * Invariants
 *   K4  Id, offset and block of a place change only while its word is not open. It is closed only while nobody reads it (one
 *       compare-and-swap of the whole word), and who reads counts itself first and then looks whether it is open.
 *   K5  Words are opened and closed, and the queue is changed, under the mutex of the shard.
 *
 * Memory of evicted blocks is given back after the lock is released. A shard has its table from its first block on.
 */
#include "sstable/cache.h"

#include <stdalign.h>

#include "filter/bytes.h"
#include "filter/hash.h"

enum {
    // Enough that two threads rarely meet at a lock, and that the largest common block is a small part of a shard.
    SHARDS_MAX = 16,
    // Below this a shard would hold too few 4 KiB blocks for its replacement to mean anything.
    SHARD_BYTES_MIN = 256 * 1024,
    // What a general-purpose allocator adds to a block of memory; counted so that the bound is about real memory.
    ALLOCATION_OVERHEAD_BYTES = 16,
    // Blocks from 2 KiB on are rounded up to a multiple of this, with what malloc adds: 3 per cent of 4 KiB on average.
    ROUNDING_BYTES = 256,
    ROUNDED_BYTES_MIN = 2048,
    LINE_BYTES = 64,
    PLACES = 8, // of a set
    // Blocks that a set has on average in a full cache: one set in 300 gets more than it has places for, and evicts early.
    BLOCKS_A_SET = 3,
    // Threads that count in different lines; more share one.
    STRIPES = 16,
};

#define READER      UINT64_C(1)
#define READERS     UINT64_C(0xffff)
#define OPEN        UINT64_C(0x10000)
#define VISITED     UINT64_C(0x20000)
#define FINGERPRINT UINT64_C(0xffffffff00000000)

struct set {
    alignas(LINE_BYTES) _Atomic uint64_t words[PLACES];
    // K4
    uint64_t data_ids[PLACES];
    uint64_t offsets[PLACES];
    _Atomic(struct tm_block *) blocks[PLACES]; // atomic, since prefetching looks at them without K4
};

_Static_assert(sizeof(struct set) == 4 * LINE_BYTES, "four lines");

/* Places are numbered: set * PLACES + place. */
#define NOWHERE UINT32_MAX

struct links {
    uint32_t newer;
    uint32_t older;
};

/* One allocation: this, the links of all places, and the sets, which begin with a line. */
struct table {
    struct set *sets;
    struct links *links;
    uint32_t set_count;
    size_t bytes; // as allocated
};

struct shard {
    alignas(LINE_BYTES) struct tm_mutex mutex;
    _Atomic(struct table *) table; // NULL until there is a block; then it stays

    // Guarded by mutex
    uint32_t newest;
    uint32_t oldest;
    uint32_t hand; // NOWHERE: start at the oldest
    uint32_t block_count;
    uint64_t bytes_used; // of blocks and table
};

/* Counts of some threads. */
struct stripe {
    alignas(LINE_BYTES) _Atomic uint64_t hits;
    _Atomic uint64_t misses;
};

struct tm_cache {
    // Immutable after creation
    const struct tm_env *env;
    uint64_t shard_bytes;  // capacity of each; 0: keeps nothing
    uint32_t shard_count;  // a power of two
    uint32_t sets_a_shard; // of a table
    void *memory;          // as allocated; this struct begins with a line
    size_t memory_bytes;

    struct stripe stripes[STRIPES];
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

static struct shard *
shard_of(struct tm_cache *cache, uint64_t hash)
{
    return &cache->shards[(hash >> 32) & (cache->shard_count - 1)];
}

static uint32_t
set_of(const struct table *table, uint64_t hash)
{
    return (uint32_t)((hash & UINT32_MAX) * table->set_count >> 32);
}

/* Threads have their own addresses for the same thing. */
static _Thread_local char this_thread __attribute__((tls_model("initial-exec")));

static struct stripe *
stripe_of(struct tm_cache *cache)
{
    return &cache->stripes[(uintptr_t)&this_thread * UINT64_C(0x9e3779b97f4a7c15) >> 60];
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

static uint8_t *
next_line(void *p)
{
    return (uint8_t *)(((uintptr_t)p + LINE_BYTES - 1) & ~(uintptr_t)(LINE_BYTES - 1));
}

static size_t
table_bytes(const struct tm_cache *cache)
{
    size_t place_count = (size_t)cache->sets_a_shard * PLACES;

    return sizeof(struct table) + place_count * sizeof(struct links) +
           cache->sets_a_shard * sizeof(struct set) + LINE_BYTES;
}

/* The shard's table; NULL when there is no memory for one. Under the mutex. */
static struct table *
need_table(const struct tm_cache *cache, struct shard *shard)
{
    struct table *table = atomic_load_explicit(&shard->table, memory_order_relaxed);
    size_t bytes = table_bytes(cache);

    if (table != NULL)
        return table;
    table = tm_alloc_zeroed(cache->env, bytes);
    if (table == NULL)
        return NULL;
    table->links = (struct links *)(table + 1);
    table->sets = (struct set *)next_line(table->links + (size_t)cache->sets_a_shard * PLACES);
    table->set_count = cache->sets_a_shard;
    table->bytes = bytes;
    shard->bytes_used += bytes;
    atomic_store_explicit(&shard->table, table, memory_order_release);
    return table;
}

/* ---- Places ---------------------------------------------------------------------------------------- */

static _Atomic uint64_t *
word_of(const struct table *table, uint32_t number)
{
    return &table->sets[number / PLACES].words[number % PLACES];
}

static struct tm_block *
block_of(const struct table *table, uint32_t number)
{
    return atomic_load_explicit(&table->sets[number / PLACES].blocks[number % PLACES],
                                memory_order_relaxed);
}

static bool
is_open(const struct table *table, uint32_t number)
{
    return (atomic_load_explicit(word_of(table, number), memory_order_relaxed) & OPEN) != 0;
}

static size_t
charge_of(const struct tm_block *block)
{
    return sizeof *block + block->allocated + ALLOCATION_OVERHEAD_BYTES;
}

/* Put a block into a place that is not open, and at the new end of the queue. */
static void
open_place(struct shard *shard, struct table *table, uint32_t number, uint64_t hash,
           uint64_t data_id, uint64_t offset, struct tm_block *block)
{
    struct set *set = &table->sets[number / PLACES];

    set->data_ids[number % PLACES] = data_id;
    set->offsets[number % PLACES] = offset;
    atomic_store_explicit(&set->blocks[number % PLACES], block, memory_order_relaxed);
    table->links[number] = (struct links){NOWHERE, shard->newest};
    if (shard->newest != NOWHERE)
        table->links[shard->newest].newer = number;
    else
        shard->oldest = number;
    shard->newest = number;
    shard->block_count++;
    shard->bytes_used += charge_of(block);
    // Added, as readers may be counting themselves in a place that they will find closed (K4).
    atomic_fetch_add_explicit(word_of(table, number), (hash & FINGERPRINT) | OPEN,
                              memory_order_release);
}

/* Take the block out of an open place, unless somebody is reading there (K4). */
static struct tm_block *
close_place(struct shard *shard, struct table *table, uint32_t number)
{
    _Atomic uint64_t *word = word_of(table, number);
    uint64_t expected = atomic_load_explicit(word, memory_order_relaxed) & ~READERS;
    const struct links *links = &table->links[number];
    struct tm_block *block = block_of(table, number);

    if (!atomic_compare_exchange_strong_explicit(word, &expected, 0, memory_order_acquire,
                                                 memory_order_relaxed))
        return NULL;
    if (links->newer != NOWHERE)
        table->links[links->newer].older = links->older;
    else
        shard->newest = links->older;
    if (links->older != NOWHERE)
        table->links[links->older].newer = links->newer;
    else
        shard->oldest = links->newer;
    if (shard->hand == number)
        shard->hand = links->newer;
    shard->block_count--;
    shard->bytes_used -= charge_of(block);
    return block;
}

/* Was it asked for since this was asked last? */
static bool
take_mark(const struct table *table, uint32_t number)
{
    _Atomic uint64_t *word = word_of(table, number);

    return (atomic_load_explicit(word, memory_order_relaxed) & VISITED) != 0 &&
           (atomic_fetch_and_explicit(word, ~VISITED, memory_order_relaxed) & VISITED) != 0;
}

/* Evict the next block; NULL when there is none, or all are being read. Of two rounds the first takes all marks away. */
static struct tm_block *
evict(struct shard *shard, struct table *table)
{
    for (uint64_t step = 0; step < 2 * (uint64_t)shard->block_count; step++) {
        uint32_t number = shard->hand != NOWHERE ? shard->hand : shard->oldest;
        struct tm_block *block = NULL;

        if (!take_mark(table, number))
            block = close_place(shard, table, number);
        if (block != NULL)
            return block;
        shard->hand = table->links[number].newer;
    }
    return NULL;
}

/* A place of the set that is not open; NOWHERE: there is none, unless one of the blocks there goes into `evicted`. */
static uint32_t
need_place(struct shard *shard, struct table *table, uint32_t set, struct tm_block **evicted)
{
    uint32_t begin = set * PLACES;

    for (uint32_t number = begin; number < begin + PLACES; number++)
        if (!is_open(table, number))
            return number;
    for (uint32_t step = 0; step < 2 * PLACES; step++) {
        uint32_t number = begin + step % PLACES;
        struct tm_block *block = NULL;

        if (!take_mark(table, number))
            block = close_place(shard, table, number);
        if (block == NULL)
            continue;
        block->next_evicted = *evicted;
        *evicted = block;
        return number;
    }
    return NOWHERE;
}

/* Under the mutex, under which alone places change (K5). */
static bool
has(const struct table *table, uint32_t set, uint64_t data_id, uint64_t offset)
{
    for (uint32_t i = 0; i < PLACES; i++)
        if (is_open(table, set * PLACES + i) && table->sets[set].data_ids[i] == data_id &&
            table->sets[set].offsets[i] == offset)
            return true;
    return false;
}

static void
unref_chain(struct tm_block *block)
{
    while (block != NULL) {
        struct tm_block *next = block->next_evicted;

        tm_block_unref(block);
        block = next;
    }
}

/* ---- The cache ------------------------------------------------------------------------------------- */

struct tm_cache *
tm_cache_create(const struct tm_env *env, uint64_t capacity_bytes, size_t block_bytes)
{
    uint64_t block_charge_bytes = sizeof(struct tm_block) + block_bytes + ALLOCATION_OVERHEAD_BYTES;
    uint32_t shard_count = 1;
    size_t memory_bytes;
    struct tm_cache *cache;
    uint64_t set_count;
    void *memory;

    while (shard_count < SHARDS_MAX && capacity_bytes / (shard_count * 2) >= SHARD_BYTES_MIN)
        shard_count *= 2;
    memory_bytes = sizeof *cache + shard_count * sizeof(struct shard) + LINE_BYTES;
    memory = tm_alloc_zeroed(env, memory_bytes);
    if (memory == NULL)
        return NULL;
    cache = (struct tm_cache *)next_line(memory);
    cache->env = env;
    cache->memory = memory;
    cache->memory_bytes = memory_bytes;
    cache->shard_count = shard_count;
    for (uint32_t i = 0; i < shard_count; i++) {
        struct shard *shard = &cache->shards[i];

        env->runtime->mutex_init(env->runtime->ctx, &shard->mutex);
        shard->newest = shard->oldest = shard->hand = NOWHERE;
    }
    if (capacity_bytes <= memory_bytes)
        return cache; // keeps nothing, and nothing is all that it may keep
    cache->shard_bytes = (capacity_bytes - memory_bytes) / shard_count;
    set_count = 1 + cache->shard_bytes / (BLOCKS_A_SET * block_charge_bytes);
    cache->sets_a_shard =
        set_count < UINT32_MAX / PLACES ? (uint32_t)set_count : UINT32_MAX / PLACES;
    if (cache->shard_bytes <= table_bytes(cache))
        cache->shard_bytes = 0;
    return cache;
}

void
tm_cache_destroy(struct tm_cache *cache)
{
    if (cache == NULL)
        return;
    for (uint32_t i = 0; i < cache->shard_count; i++) {
        struct shard *shard = &cache->shards[i];
        struct table *table = atomic_load_explicit(&shard->table, memory_order_relaxed);

        while (shard->oldest != NOWHERE)
            tm_block_unref(close_place(shard, table, shard->oldest));
        if (table != NULL)
            tm_release(cache->env, table, table->bytes);
        cache->env->runtime->mutex_deinit(cache->env->runtime->ctx, &shard->mutex);
    }
    tm_release(cache->env, cache->memory, cache->memory_bytes);
}

static void
prefetch_set(const struct set *set)
{
    for (size_t line = 0; line < sizeof *set; line += LINE_BYTES)
        __builtin_prefetch((const uint8_t *)set + line);
}

/* Its head, tags and offsets: what a search looks at before it looks at an entry. */
static void
prefetch_block(const struct tm_block *block)
{
    for (size_t line = 0; line < 4; line++)
        __builtin_prefetch((const uint8_t *)block + line * LINE_BYTES);
}

/* Take a reference to the block of a place, if it is the one that is looked for. */
static struct tm_block *
read_place(struct set *set, uint32_t place, uint64_t fingerprint, uint64_t data_id, uint64_t offset)
{
    uint64_t word = atomic_fetch_add_explicit(&set->words[place], READER, memory_order_acquire);
    struct tm_block *block = NULL;

    if ((word & OPEN) != 0 && (word & FINGERPRINT) == fingerprint &&
        set->data_ids[place] == data_id && set->offsets[place] == offset) {
        block = atomic_load_explicit(&set->blocks[place], memory_order_relaxed);
        prefetch_block(block);
        tm_block_ref(block);
        if ((word & VISITED) == 0)
            atomic_fetch_or_explicit(&set->words[place], VISITED, memory_order_relaxed);
    }
    atomic_fetch_sub_explicit(&set->words[place], READER, memory_order_release);
    return block;
}

static struct tm_block *
find(struct set *set, uint64_t hash, uint64_t data_id, uint64_t offset)
{
    struct tm_block *block = NULL;

    prefetch_set(set);
    for (uint32_t i = 0; i < PLACES && block == NULL; i++) {
        uint64_t word = atomic_load_explicit(&set->words[i], memory_order_relaxed);

        if ((word & FINGERPRINT) == (hash & FINGERPRINT) && (word & OPEN) != 0)
            block = read_place(set, i, hash & FINGERPRINT, data_id, offset);
    }
    return block;
}

/* Where a block would be; NULL: the shard has none. */
static struct set *
set_for(struct tm_cache *cache, uint64_t hash)
{
    const struct table *table =
        atomic_load_explicit(&shard_of(cache, hash)->table, memory_order_acquire);

    return table != NULL ? &table->sets[set_of(table, hash)] : NULL;
}

void
tm_cache_prefetch_place(struct tm_cache *cache, uint64_t data_id, uint64_t offset)
{
    const struct set *set = set_for(cache, hash_of(data_id, offset));

    if (set != NULL)
        prefetch_set(set);
}

void
tm_cache_prefetch_block(struct tm_cache *cache, uint64_t data_id, uint64_t offset)
{
    uint64_t hash = hash_of(data_id, offset);
    struct set *set = set_for(cache, hash);

    for (uint32_t i = 0; set != NULL && i < PLACES; i++)
        if ((atomic_load_explicit(&set->words[i], memory_order_relaxed) & FINGERPRINT) ==
            (hash & FINGERPRINT))
            prefetch_block(atomic_load_explicit(&set->blocks[i], memory_order_relaxed));
}

struct tm_block *
tm_cache_get(struct tm_cache *cache, uint64_t data_id, uint64_t offset)
{
    uint64_t hash = hash_of(data_id, offset);
    struct set *set = set_for(cache, hash);
    struct tm_block *block = set != NULL ? find(set, hash, data_id, offset) : NULL;
    struct stripe *stripe = stripe_of(cache);

    atomic_fetch_add_explicit(block != NULL ? &stripe->hits : &stripe->misses, 1,
                              memory_order_relaxed);
    return block;
}

/* Under the mutex. Blocks that make room go into `evicted`. */
static bool
keep(struct tm_cache *cache, struct shard *shard, uint64_t hash, uint64_t data_id, uint64_t offset,
     struct tm_block *block, struct tm_block **evicted)
{
    size_t charge_bytes = charge_of(block);
    struct table *table;
    uint32_t number;

    if (charge_bytes > cache->shard_bytes - (cache->shard_bytes > 0 ? table_bytes(cache) : 0))
        return false;
    table = need_table(cache, shard);
    if (table == NULL || has(table, set_of(table, hash), data_id, offset))
        return false;
    while (charge_bytes > cache->shard_bytes - shard->bytes_used) { // K1
        struct tm_block *victim = evict(shard, table);

        if (victim == NULL)
            return false;
        victim->next_evicted = *evicted;
        *evicted = victim;
    }
    number = need_place(shard, table, set_of(table, hash), evicted);
    if (number == NOWHERE)
        return false;
    open_place(shard, table, number, hash, data_id, offset, block);
    return true;
}

void
tm_cache_put(struct tm_cache *cache, uint64_t data_id, uint64_t offset, struct tm_block *block)
{
    uint64_t hash = hash_of(data_id, offset);
    struct shard *shard = shard_of(cache, hash);
    struct tm_block *evicted = NULL;

    bool is_kept;

    tm_block_ref(block);
    lock(cache, shard);
    is_kept = keep(cache, shard, hash, data_id, offset, block, &evicted);
    unlock(cache, shard);
    if (!is_kept)
        tm_block_unref(block);
    unref_chain(evicted);
}

uint64_t
tm_cache_bytes(const struct tm_cache *cache)
{
    struct tm_cache *mutable_cache = (struct tm_cache *)cache; // the locks are the readers' own
    uint64_t bytes = cache->memory_bytes;

    if (cache->shard_bytes == 0)
        return 0;
    for (uint32_t i = 0; i < cache->shard_count; i++) {
        lock(cache, &mutable_cache->shards[i]);
        bytes += cache->shards[i].bytes_used;
        unlock(cache, &mutable_cache->shards[i]);
    }
    return bytes;
}

uint64_t
tm_cache_hits(const struct tm_cache *cache)
{
    uint64_t hits = 0;

    for (size_t i = 0; i < STRIPES; i++)
        hits += atomic_load_explicit(&cache->stripes[i].hits, memory_order_relaxed);
    return hits;
}

uint64_t
tm_cache_misses(const struct tm_cache *cache)
{
    uint64_t misses = 0;

    for (size_t i = 0; i < STRIPES; i++)
        misses += atomic_load_explicit(&cache->stripes[i].misses, memory_order_relaxed);
    return misses;
}
