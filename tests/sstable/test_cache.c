/* SPDX-License-Identifier: MIT
 *
 * tests/sstable/test_cache.c -- the block cache: what it keeps, what it lets go, and many threads at once.
 */
#include <pthread.h>

#include "filter/bytes.h"
#include "sstable/cache.h"
#include "tests/support/check_status.h"
#include "tests/support/fault_alloc.h"
#include "tests/support/rng.h"

static struct fault_alloc fault;
static struct tm_env env;
static struct tm_cache *cache;

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
    tm_cache_destroy(cache);
    cache = NULL;
    ck_assert_uint_eq(fault.live_count, 0);
    ck_assert_uint_eq(fault.live_bytes, 0);
}

static void
create(uint64_t capacity_bytes)
{
    cache = tm_cache_create(&env, capacity_bytes);
    ck_assert_ptr_nonnull(cache);
}

/* A block that says whose it is. */
static struct tm_block *
block_of(uint64_t id, uint64_t offset, size_t length)
{
    struct tm_block *block = tm_block_create(&env, length);

    if (block == NULL)
        return NULL;
    memset(block->data, 0, length);
    tm_put_u64(block->data, id);
    tm_put_u64(block->data + 8, offset);
    return block;
}

static void
offer(uint64_t id, uint64_t offset, size_t length)
{
    struct tm_block *block = block_of(id, offset, length);

    ck_assert_ptr_nonnull(block);
    tm_cache_put(cache, id, offset, block);
    tm_block_unref(block);
}

/* Is it there? If so, it is the right one. */
static bool
holds(uint64_t id, uint64_t offset)
{
    struct tm_block *block = tm_cache_get(cache, id, offset);
    bool held = block != NULL;

    if (held) {
        ck_assert_uint_eq(tm_get_u64(block->data), id);
        ck_assert_uint_eq(tm_get_u64(block->data + 8), offset);
    }
    tm_block_unref(block);
    return held;
}

START_TEST(what_was_put_is_got_and_hits_and_misses_are_counted)
{
    create(1 << 20);
    ck_assert(!holds(1, 0));
    offer(1, 0, 4096);
    offer(1, 4096, 100);
    offer(2, 0, 50);
    ck_assert(holds(1, 0) && holds(1, 4096) && holds(2, 0));
    ck_assert(!holds(2, 4096) && !holds(0, 1) && !holds(4096, 1));
    ck_assert_uint_eq(tm_cache_hits(cache), 3);
    ck_assert_uint_eq(tm_cache_misses(cache), 4);
}
END_TEST

START_TEST(a_block_put_twice_is_kept_once)
{
    uint64_t bytes;

    create(1 << 20);
    offer(1, 0, 4096);
    bytes = tm_cache_bytes(cache);
    offer(1, 0, 4096);
    ck_assert_uint_eq(tm_cache_bytes(cache), bytes);
    ck_assert(holds(1, 0));
}
END_TEST

START_TEST(bytes_never_pass_the_capacity_and_real_memory_neither)
{
    static const uint64_t capacities[] = {0,     1,      100,     1000,    5000,
                                          10000, 100000, 1000000, 5000000, 20000000};
    struct rng rng = rng_from(rng_seed("cache", 1));

    for (size_t i = 0; i < sizeof capacities / sizeof *capacities; i++) {
        uint64_t capacity = capacities[i];

        create(capacity);
        for (size_t round = 0; round < 20000; round++) {
            uint64_t offset = rng_below(&rng, 5000);

            offer(1 + rng_below(&rng, 3), offset, 16 + (size_t)rng_below(&rng, 5000));
            if (round % 100 == 0)
                ck_assert_uint_le(tm_cache_bytes(cache), capacity);
        }
        ck_assert_uint_le(tm_cache_bytes(cache), capacity);
        if (capacity >= 100000) {
            ck_assert_uint_gt(tm_cache_bytes(cache), capacity / 2); // it is used, too
            ck_assert_uint_le(fault.live_bytes, capacity);
        }
        tm_cache_destroy(cache);
        cache = NULL;
        ck_assert_uint_eq(fault.live_count, 0);
    }
}
END_TEST

START_TEST(a_cache_without_capacity_keeps_nothing_and_counts_misses)
{
    create(0);
    offer(1, 0, 100);
    ck_assert(!holds(1, 0));
    ck_assert_uint_eq(tm_cache_bytes(cache), 0);
    ck_assert_uint_eq(tm_cache_misses(cache), 1);
}
END_TEST

START_TEST(a_block_larger_than_its_share_is_refused_and_evicts_nothing)
{
    create(100000);
    offer(1, 0, 4096);
    offer(1, 1, 200000);
    offer(1, 2, 100000);
    ck_assert(holds(1, 0) && !holds(1, 1) && !holds(1, 2));
}
END_TEST

START_TEST(a_block_in_use_outlives_its_eviction)
{
    struct tm_block *block;

    create(100000);
    block = block_of(7, 7, 4096);
    ck_assert_ptr_nonnull(block);
    tm_cache_put(cache, 7, 7, block);
    for (uint64_t i = 0; i < 1000; i++)
        offer(1, i, 4096);
    ck_assert(!holds(7, 7));
    ck_assert_uint_eq(tm_get_u64(block->data), 7);
    tm_cache_destroy(cache);
    cache = NULL;
    ck_assert_uint_eq(tm_get_u64(block->data + 8), 7);
    tm_block_unref(block);
}
END_TEST

START_TEST(what_is_read_again_survives_a_scan)
{
    size_t kept = 0;

    create(1 << 20);
    for (uint64_t i = 0; i < 100; i++)
        offer(1, i, 4000);
    for (uint64_t i = 0; i < 100; i++)
        (void)holds(1, i);
    for (uint64_t i = 0; i < 5000;
         i++) { // twenty times the capacity, each block once; the hundred go on being read
        offer(2, i, 4000);
        if (i % 50 == 0)
            for (uint64_t hot = 0; hot < 100; hot++)
                (void)holds(1, hot);
    }
    for (uint64_t i = 0; i < 100; i++)
        kept += holds(1, i);
    ck_assert_uint_ge(kept, 95);
}
END_TEST

START_TEST(without_memory_blocks_are_refused_and_nothing_else_happens)
{
    struct tm_block *block;

    for (uint64_t nth = 1; nth <= 6; nth++) { // creation
        fault_alloc_fail_after(&fault, nth, false);
        cache = tm_cache_create(&env, 1 << 20);
        if (cache != NULL)
            tm_cache_destroy(cache);
        fault_alloc_fail_after(&fault, 0, false);
        ck_assert_uint_eq(fault.live_count, 0);
    }
    create(10 << 20);
    fault_alloc_fail_after(&fault, 1, false);
    ck_assert_ptr_null(tm_block_create(&env, 100));
    ck_assert_ptr_null(tm_block_create(&env, (size_t)UINT32_MAX + 1));
    block = block_of(1, 0, 100);
    fault_alloc_fail_after(&fault, 1, false);
    tm_cache_put(cache, 1, 0, block); // no memory for the entry
    ck_assert(!holds(1, 0));
    tm_cache_put(cache, 1, 0, block);
    ck_assert(holds(1, 0));
    tm_block_unref(block);
    for (uint64_t i = 0; i < 3000; i++) { // every second time no memory, buckets included
        block = block_of(3, i, 16);
        fault_alloc_fail_after(&fault, 2 - i % 2, false);
        tm_cache_put(cache, 3, i, block);
        fault_alloc_fail_after(&fault, 0, false);
        tm_block_unref(block);
        ck_assert(holds(3, i) == (i % 2 == 0));
    }
    for (uint64_t i = 0; i < 3000; i++)
        ck_assert(holds(3, i) == (i % 2 == 0));
}
END_TEST

enum { THREAD_COUNT = 4 };

static void *
use(void *arg)
{
    struct rng rng = rng_from((uint64_t)(uintptr_t)arg);
    struct tm_block *held[8] = {NULL};

    for (size_t i = 0; i < 60000; i++) {
        uint64_t offset = rng_below(&rng, 300) * (1 + rng_below(&rng, 2));
        struct tm_block *block = tm_cache_get(cache, 5, offset);

        if (block == NULL) {
            block = block_of(5, offset, 16 + (size_t)rng_below(&rng, 3000));
            if (block == NULL)
                abort();
            tm_cache_put(cache, 5, offset, block);
        }
        if (tm_get_u64(block->data + 8) != offset)
            abort();
        tm_block_unref(held[i % 8]); // some are held for a while
        held[i % 8] = block;
        if (i % 1000 == 0 && tm_cache_bytes(cache) > 300000)
            abort();
    }
    for (size_t i = 0; i < 8; i++)
        tm_block_unref(held[i]);
    return NULL;
}

START_TEST(threads_that_get_and_put_see_the_right_blocks)
{
    pthread_t threads[THREAD_COUNT];

    create(300000);
    for (uintptr_t i = 0; i < THREAD_COUNT; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, use, (void *)(i + 1)), 0);
    for (size_t i = 0; i < THREAD_COUNT; i++)
        pthread_join(threads[i], NULL);
    ck_assert_uint_eq(tm_cache_hits(cache) + tm_cache_misses(cache), THREAD_COUNT * 60000);
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("cache");
    TCase *tests = tcase_create("cache");

    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_set_timeout(tests, 0);
    tcase_add_test(tests, what_was_put_is_got_and_hits_and_misses_are_counted);
    tcase_add_test(tests, a_block_put_twice_is_kept_once);
    tcase_add_test(tests, bytes_never_pass_the_capacity_and_real_memory_neither);
    tcase_add_test(tests, a_cache_without_capacity_keeps_nothing_and_counts_misses);
    tcase_add_test(tests, a_block_larger_than_its_share_is_refused_and_evicts_nothing);
    tcase_add_test(tests, a_block_in_use_outlives_its_eviction);
    tcase_add_test(tests, what_is_read_again_survives_a_scan);
    tcase_add_test(tests, without_memory_blocks_are_refused_and_nothing_else_happens);
    tcase_add_test(tests, threads_that_get_and_put_see_the_right_blocks);
    suite_add_tcase(suite, tests);
    return check_run(suite);
}
