/* SPDX-License-Identifier: MIT
 *
 * tests/sstable/test_cache.c -- the block cache: bounded, keeping what is asked for again, shared by threads.
 */
#include "sstable/cache.h"
#include "tests/sstable/table_test.h"

static struct fault_alloc fault;
static struct tm_env env;

static void
setup(void)
{
    fault_alloc_init(&fault);
    memset(&env, 0, sizeof env);
    env.allocator = fault_alloc_allocator(&fault);
    env.runtime = tm_runtime_posix();
}

static void
teardown(void)
{
    ck_assert_uint_eq(fault.live_count, 0);
}

/* A block of `length` bytes that say whose they are. */
static struct tm_block *
block_for(uint64_t data_id, uint64_t offset, size_t length)
{
    struct tm_block *block = tm_block_create(&env, length);

    expect(block != NULL && length >= 16);
    memset(block->data, (int)(offset & 0xff), length);
    tm_put_u64(block->data, data_id);
    tm_put_u64(block->data + 8, offset);
    return block;
}

static bool
is_for(const struct tm_block *block, uint64_t data_id, uint64_t offset)
{
    return tm_get_u64(block->data) == data_id && tm_get_u64(block->data + 8) == offset;
}

static void
offer(struct tm_cache *cache, uint64_t data_id, uint64_t offset, size_t length)
{
    struct tm_block *block = block_for(data_id, offset, length);

    tm_cache_put(cache, data_id, offset, block);
    tm_block_unref(block);
}

/* Is the block there? If it is, it is the right one. */
static bool
ask(struct tm_cache *cache, uint64_t data_id, uint64_t offset)
{
    struct tm_block *block = tm_cache_get(cache, data_id, offset);
    bool found = block != NULL;

    if (found)
        expect(is_for(block, data_id, offset));
    tm_block_unref(block);
    return found;
}

START_TEST(what_is_offered_is_found_by_its_id_and_offset)
{
    struct tm_cache *cache = tm_cache_create(&env, 4 << 20, 1000);

    for (uint64_t id = 0; id < 10; id++)
        for (uint64_t offset = 0; offset < 20; offset++)
            offer(cache, id, offset * 100, 100);
    for (uint64_t id = 0; id < 10; id++)
        for (uint64_t offset = 0; offset < 20; offset++)
            expect(ask(cache, id, offset * 100));
    ck_assert(!ask(cache, 10, 0));
    ck_assert(!ask(cache, 0, 50));
    ck_assert_uint_eq(tm_cache_hits(cache), 200);
    ck_assert_uint_eq(tm_cache_misses(cache), 2);
    tm_cache_destroy(cache);
}
END_TEST

START_TEST(the_cache_never_passes_its_capacity)
{
    struct rng rng = rng_from(rng_seed("capacities", 81));
    static const uint64_t capacities[] = {0,    1,      100,     1000,    2000,    4096,
                                          5000, 100000, 1 << 18, 1 << 20, 3 << 20, 20 << 20};

    for (size_t c = 0; c < sizeof capacities / sizeof *capacities; c++) {
        struct tm_cache *cache = tm_cache_create(&env, capacities[c], 1000);
        bool kept = false;

        for (unsigned i = 0; i < 5000; i++) {
            uint64_t offset = rng_below(&rng, 3000);

            if (rng_chance(&rng, 1, 2))
                offer(cache, 1, offset, 16 + (size_t)rng_below(&rng, 2000));
            else
                kept |= ask(cache, 1, offset);
            expect(tm_cache_bytes(cache) <= capacities[c]);
            // And the memory is what is counted: nobody holds a block here.
            expect(capacities[c] < 4096 || fault.live_bytes <= capacities[c]);
        }
        if (capacities[c] >= 100000)
            ck_assert(kept);
        if (capacities[c] >= 100000 && capacities[c] <= 1 << 20) // more is not offered
            ck_assert_uint_gt(tm_cache_bytes(cache), capacities[c] / 2);
        tm_cache_destroy(cache);
        ck_assert_uint_eq(fault.live_bytes, 0);
    }
}
END_TEST

START_TEST(a_cache_without_capacity_keeps_nothing_and_counts_misses)
{
    struct tm_cache *cache = tm_cache_create(&env, 0, 1000);

    offer(cache, 1, 0, 100);
    ck_assert(!ask(cache, 1, 0));
    ck_assert_uint_eq(tm_cache_bytes(cache), 0);
    ck_assert_uint_eq(tm_cache_misses(cache), 1);
    tm_cache_destroy(cache);
}
END_TEST

START_TEST(a_block_larger_than_a_shard_is_refused_and_stays_its_users)
{
    struct tm_cache *cache = tm_cache_create(&env, 100000, 1000);
    struct tm_block *block = block_for(1, 2, 200000);
    uint64_t before = tm_cache_bytes(cache);

    offer(cache, 1, 1, 100);
    tm_cache_put(cache, 1, 2, block);
    offer(cache, 1, 3, 100000); // as large as the capacity, without its bookkeeping
    ck_assert(!ask(cache, 1, 2) && !ask(cache, 1, 3));
    ck_assert(ask(cache, 1, 1)); // nothing was evicted for them
    ck_assert(is_for(block, 1, 2));
    tm_block_unref(block);
    ck_assert_uint_gt(tm_cache_bytes(cache), before);
    tm_cache_destroy(cache);
}
END_TEST

START_TEST(what_is_asked_for_again_survives_a_scan)
{
    struct tm_cache *cache = tm_cache_create(&env, 200000, 1000); // one shard
    unsigned survivors = 0;

    for (uint64_t offset = 0; offset < 20; offset++)
        offer(cache, 1, offset, 1000);
    for (uint64_t offset = 0; offset < 2000; offset++) {
        offer(cache, 2, offset, 1000);
        if (offset % 20 == 0)
            for (uint64_t hot = 0; hot < 20; hot++)
                ask(cache, 1, hot);
    }
    for (uint64_t offset = 0; offset < 20; offset++)
        survivors += ask(cache, 1, offset);
    ck_assert_uint_eq(survivors, 20);
    for (uint64_t offset = 0; offset < 1000; offset++)
        expect(!ask(cache, 2, offset)); // of the scan, the old part is gone
    tm_cache_destroy(cache);
}
END_TEST

START_TEST(what_nobody_asks_for_is_evicted_oldest_first)
{
    struct tm_cache *cache = tm_cache_create(&env, 200000, 1000);
    uint64_t first = 0;
    unsigned early = 0; // a set that had no place left gave up one of its own

    for (uint64_t offset = 0; offset < 1000; offset++)
        offer(cache, 1, offset, 1000);
    while (!ask(cache, 1, first))
        first++;
    ck_assert_uint_gt(first, 800);
    ck_assert_uint_lt(first, 900); // about 185 of 1000 bytes and their bookkeeping have room
    for (uint64_t offset = first; offset < 1000; offset++)
        early += !ask(cache, 1, offset);
    ck_assert_uint_le(early, 4);
    tm_cache_destroy(cache);
}
END_TEST

START_TEST(a_block_in_use_outlives_its_eviction_and_the_cache)
{
    struct tm_cache *cache = tm_cache_create(&env, 100000, 1000);
    struct tm_block *held;

    offer(cache, 1, 1, 1000);
    held = tm_cache_get(cache, 1, 1);
    for (uint64_t offset = 2; offset < 500;
         offset++) { // asked for, all of them, so that the hand goes round
        offer(cache, 1, offset, 1000);
        ask(cache, 1, offset);
    }
    ck_assert(!ask(cache, 1, 1));
    ck_assert(is_for(held, 1, 1));
    tm_cache_destroy(cache);
    ck_assert(is_for(held, 1, 1));
    tm_block_unref(held);
    tm_block_unref(NULL);
    tm_cache_destroy(NULL);
}
END_TEST

START_TEST(the_first_of_two_offers_for_one_place_stays)
{
    struct tm_cache *cache = tm_cache_create(&env, 100000, 1000);
    struct tm_block *first = block_for(1, 1, 100);
    struct tm_block *second = block_for(1, 1, 100);
    struct tm_block *found;
    uint64_t bytes;

    tm_cache_put(cache, 1, 1, first);
    bytes = tm_cache_bytes(cache);
    tm_cache_put(cache, 1, 1, second);
    ck_assert_uint_eq(tm_cache_bytes(cache), bytes);
    found = tm_cache_get(cache, 1, 1);
    ck_assert_ptr_eq(found, first);
    tm_block_unref(found);
    tm_block_unref(first);
    tm_block_unref(second);
    tm_cache_destroy(cache);
}
END_TEST

START_TEST(without_memory_the_cache_does_without)
{
    struct tm_cache *cache;
    struct tm_block *block = block_for(1, 1, 100);

    fault_alloc_fail_after(&fault, 1, false);
    ck_assert_ptr_null(tm_cache_create(&env, 64 << 20, 1000));
    fault_alloc_fail_after(&fault, 0, false);
    cache = tm_cache_create(&env, 64 << 20, 1000);
    fault_alloc_fail_after(&fault, 1, true);
    tm_cache_put(cache, 1, 1, block);
    ck_assert(!ask(cache, 1, 1));
    fault_alloc_fail_after(&fault, 0, false);
    tm_cache_put(cache, 1, 1, block);
    ck_assert(ask(cache, 1, 1));
    tm_block_unref(block);
    for (uint64_t offset = 2; offset < 5000; offset++) // a shard that has its table needs no more
        if (offset % 2 == 0)
            offer(cache, 1, offset, 100);
    fault_alloc_fail_after(&fault, 2, true); // a block is all that is allocated
    offer(cache, 1, 5000, 100);
    fault_alloc_fail_after(&fault, 0, false);
    for (uint64_t offset = 2; offset <= 5000; offset += 2)
        expect(ask(cache, 1, offset));
    ck_assert_ptr_null(tm_block_create(&env, (size_t)UINT32_MAX + 1));
    tm_cache_destroy(cache);
}
END_TEST

/* ---- What a hit costs -------------------------------------------------------------------------------- */

static unsigned lock_count;

static void
count_lock(void *ctx, struct tm_mutex *mutex)
{
    lock_count++;
    tm_runtime_posix()->lock(ctx, mutex);
}

START_TEST(a_hit_takes_no_lock_and_no_memory)
{
    struct tm_runtime counting = *tm_runtime_posix();
    struct tm_cache *cache;

    counting.lock = count_lock;
    env.runtime = &counting;
    cache = tm_cache_create(&env, 1 << 20, 1000);
    for (uint64_t offset = 0; offset < 100; offset++)
        offer(cache, 1, offset, 1000);
    ck_assert_uint_eq(lock_count, 100); // the count is alive: one an offer
    fault_alloc_fail_after(&fault, 1, true);
    for (uint64_t offset = 0; offset < 200; offset++)
        expect(ask(cache, 1, offset) == (offset < 100)); // nor does a miss
    fault_alloc_fail_after(&fault, 0, false);
    ck_assert_uint_eq(lock_count, 100);
    tm_cache_destroy(cache);
}
END_TEST

/* ---- Threads ------------------------------------------------------------------------------------------ */

struct worker {
    struct tm_thread thread;
    struct tm_cache *cache;
    uint64_t seed;
    uint64_t asked;
    uint64_t found;
    bool wrong;
};

static void
use_cache(void *arg)
{
    struct worker *worker = arg;
    struct rng rng = rng_from(worker->seed);
    struct tm_block *held[8] = {0};
    uint64_t held_offsets[8] = {0};

    for (unsigned i = 0; i < (SLOW_BUILD ? 20000 : 100000); i++) {
        uint64_t offset = rng_below(&rng, 400);
        size_t slot = (size_t)rng_below(&rng, 8);
        struct tm_block *block = tm_cache_get(worker->cache, 1, offset);

        worker->asked++;
        worker->found += block != NULL;
        if (block == NULL) {
            block = tm_block_create(&env, 16 + (size_t)rng_below(&rng, 3000));
            tm_put_u64(block->data, 1);
            tm_put_u64(block->data + 8, offset);
            tm_cache_put(worker->cache, 1, offset, block);
        }
        if (held[slot] != NULL) // read long after others may have pushed it out
            worker->wrong |= !is_for(held[slot], 1, held_offsets[slot]);
        tm_block_unref(held[slot]);
        held[slot] = block;
        held_offsets[slot] = offset;
        if (i % 1000 == 0)
            worker->wrong |= tm_cache_bytes(worker->cache) > 600000;
    }
    for (size_t slot = 0; slot < 8; slot++)
        tm_block_unref(held[slot]);
}

START_TEST(threads_share_the_cache_and_see_the_right_blocks)
{
    struct tm_cache *cache =
        tm_cache_create(&env, 600000, 1000); // two shards, smaller than what is asked for
    const struct tm_runtime *runtime = env.runtime;
    struct worker workers[4];
    uint64_t asked = 0;
    uint64_t found = 0;

    memset(workers, 0, sizeof workers);
    for (size_t i = 0; i < 4; i++) {
        workers[i].cache = cache;
        workers[i].seed = i;
        ck_assert_int_eq(
            runtime->thread_start(runtime->ctx, &workers[i].thread, use_cache, &workers[i]), 0);
    }
    for (size_t i = 0; i < 4; i++) {
        runtime->thread_join(runtime->ctx, &workers[i].thread);
        ck_assert(!workers[i].wrong);
        asked += workers[i].asked;
        found += workers[i].found;
    }
    ck_assert_uint_eq(tm_cache_hits(cache), found);
    ck_assert_uint_eq(tm_cache_misses(cache), asked - found);
    ck_assert_uint_gt(found, asked / 2);
    tm_cache_destroy(cache);
}
END_TEST

/* One set of places, room for three blocks, eight that are asked for: nearly every step meets somebody else's. */
static void
meet_in_one_set(void *arg)
{
    struct worker *worker = arg;
    struct rng rng = rng_from(worker->seed);

    for (unsigned i = 0; i < (SLOW_BUILD ? 50000 : 300000) && !worker->wrong; i++) {
        uint64_t offset = rng_below(&rng, 8);
        struct tm_block *block = tm_cache_get(worker->cache, 1, offset);

        worker->asked++;
        worker->found += block != NULL;
        if (block != NULL) {
            worker->wrong |= !is_for(block, 1, offset);
        } else {
            block = tm_block_create(&env, 1000);
            tm_put_u64(block->data, 1);
            tm_put_u64(block->data + 8, offset);
            tm_cache_put(worker->cache, 1, offset, block);
        }
        tm_block_unref(block);
        worker->wrong |= i % 64 == 0 && tm_cache_bytes(worker->cache) > 6000;
    }
}

START_TEST(threads_that_meet_in_one_set_see_the_right_blocks)
{
    struct tm_cache *cache = tm_cache_create(&env, 6000, 100000);
    const struct tm_runtime *runtime = env.runtime;
    struct worker workers[4];
    uint64_t asked = 0;
    uint64_t found = 0;

    memset(workers, 0, sizeof workers);
    for (size_t i = 0; i < 4; i++) {
        workers[i].cache = cache;
        workers[i].seed = i;
        ck_assert_int_eq(
            runtime->thread_start(runtime->ctx, &workers[i].thread, meet_in_one_set, &workers[i]),
            0);
    }
    for (size_t i = 0; i < 4; i++) {
        runtime->thread_join(runtime->ctx, &workers[i].thread);
        ck_assert(!workers[i].wrong);
        asked += workers[i].asked;
        found += workers[i].found;
    }
    ck_assert_uint_eq(tm_cache_hits(cache), found);
    ck_assert_uint_eq(tm_cache_misses(cache), asked - found);
    ck_assert_uint_gt(found, 0);
    ck_assert_uint_lt(found, asked);
    tm_cache_destroy(cache);
}
END_TEST

struct reader {
    struct tm_thread thread;
    struct tm_table *table;
    const struct entries *entries;
    uint64_t seed;
    bool wrong;
};

static void
read_table(void *arg)
{
    struct reader *reader = arg;
    struct rng rng = rng_from(reader->seed);

    for (unsigned i = 0; i < (SLOW_BUILD ? 3000 : 20000); i++) {
        const struct tm_entry *entry =
            &reader->entries->list[rng_below(&rng, reader->entries->count)];
        struct tm_found found;

        if (table_get(reader->table, entry->key, TM_SEQUENCE_MAX, &found, NULL) != TAMIS_OK ||
            found.lookup != TM_FOUND || !tm_slice_equal(found.value, entry->value))
            reader->wrong = true;
        tm_block_unref(found.block);
    }
}

START_TEST(threads_read_one_table_through_one_small_cache)
{
    struct shelf shelf;
    struct entries entries = {0};
    struct rng rng = rng_from(82);
    struct tm_table_options options = shelf_options(512);
    struct tm_cache *cache;
    struct reader readers[4];
    struct tm_table *table;
    tamis_error err;

    shelf_open(&shelf);
    cache = tm_cache_create(&shelf.env, 20000, 512);
    entries_fill(&entries, &rng, 1000, 1, true);
    shelf_write(&shelf, "t.sst", &options, &entries);
    expect_ok(tm_table_open(&shelf.env, shelf.dir, "t.sst", NULL, cache, NULL, &table, &err), err);
    memset(readers, 0, sizeof readers);
    for (size_t i = 0; i < 4; i++) {
        readers[i].table = table;
        readers[i].entries = &entries;
        readers[i].seed = i;
        ck_assert_int_eq(shelf.env.runtime->thread_start(shelf.env.runtime->ctx, &readers[i].thread,
                                                         read_table, &readers[i]),
                         0);
    }
    for (size_t i = 0; i < 4; i++) {
        shelf.env.runtime->thread_join(shelf.env.runtime->ctx, &readers[i].thread);
        ck_assert(!readers[i].wrong);
    }
    ck_assert_uint_gt(tm_cache_hits(cache), 0);
    tm_table_close(table);
    tm_cache_destroy(cache);
    entries_free(&entries);
    shelf_close(&shelf);
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("cache");
    TCase *tests = tcase_create("cache");

    tcase_set_timeout(tests, 0);
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_test(tests, what_is_offered_is_found_by_its_id_and_offset);
    tcase_add_test(tests, the_cache_never_passes_its_capacity);
    tcase_add_test(tests, a_cache_without_capacity_keeps_nothing_and_counts_misses);
    tcase_add_test(tests, a_block_larger_than_a_shard_is_refused_and_stays_its_users);
    tcase_add_test(tests, what_is_asked_for_again_survives_a_scan);
    tcase_add_test(tests, what_nobody_asks_for_is_evicted_oldest_first);
    tcase_add_test(tests, a_block_in_use_outlives_its_eviction_and_the_cache);
    tcase_add_test(tests, the_first_of_two_offers_for_one_place_stays);
    tcase_add_test(tests, without_memory_the_cache_does_without);
    tcase_add_test(tests, a_hit_takes_no_lock_and_no_memory);
    tcase_add_test(tests, threads_share_the_cache_and_see_the_right_blocks);
    tcase_add_test(tests, threads_that_meet_in_one_set_see_the_right_blocks);
    tcase_add_test(tests, threads_read_one_table_through_one_small_cache);
    suite_add_tcase(suite, tests);
    return check_run(suite);
}
