/* SPDX-License-Identifier: MIT
 *
 * tests/engine/test_back_pressure.c -- writers are slowed while compaction is behind, a little at a time, so that they need not
 * be stopped; and it shows. A compaction that cannot go on holds up nobody.
 *
 * Threads take turns by a seed and time is virtual. Each read of a table costs its reader many turns, so compaction, which
 * reads, is slower than writing; by how much is up to the test.
 */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "tests/engine/store_oracle.h"

enum {
    KEY_COUNT = 400,
    VALUE_BYTES = 1000,
    WRITE_BUFFER_BYTES = 64 << 10,
    LEVEL0_STOP = 20,
    WAIT_NS_MAX = 5 * 1000 * 1000, // 4 ms, and turns of others
};

static struct world *world;
static tamis_fs slow_fs;
static unsigned turns_per_read;
static bool is_full; // a merge finds no space
static unsigned full_count;
static tamis_db *db;
static tamis_error err;

static tamis_status
slow_read_at(void *ctx, tamis_file *file, uint64_t offset, void *buffer, size_t length,
             tamis_error *error)
{
    for (unsigned i = 0; i < turns_per_read; i++)
        baton_pass(world->baton);
    if (is_full && offset == 0) { // the first block of a table: nobody but a merge reads it here
        full_count++;
        return TM_FAIL(error, TAMIS_NO_SPACE, "no space for a merge");
    }
    return world->env.fs->read_at(ctx, file, offset, buffer, length, error);
}

static void
begin(uint64_t seed, unsigned turns)
{
    tamis_options options;

    world = world_create(seed, WORLD_BATON);
    slow_fs = *world->env.fs;
    slow_fs.read_at = slow_read_at;
    turns_per_read = turns;
    is_full = false;
    full_count = 0;
    options = oracle_options(world);
    options.fs = &slow_fs;
    options.compression = TAMIS_COMPRESSION_NONE;
    check_ok(tm_open(ORACLE_DIR, &options, world->env.runtime, &db, &err), err);
}

static void
end(void)
{
    check_ok(tamis_close(db, &err), err);
    world_destroy(world);
}

static tamis_stats
get_stats(void)
{
    tamis_stats stats;

    tamis_stats_init(&stats);
    check_ok(tamis_get_stats(db, &stats, &err), err);
    return stats;
}

/* Overwrite at random. The longest put in virtual time. */
static uint64_t
overwrite(struct rng *rng, unsigned count, bool sync)
{
    static char value[VALUE_BYTES];
    const struct tm_runtime *runtime = world->env.runtime;
    tamis_write_options options;
    uint64_t longest_ns = 0;

    tamis_write_options_init(&options);
    options.sync = sync;
    for (unsigned i = 0; i < count; i++) {
        uint64_t begin_ns = runtime->now_ns(runtime->ctx);
        uint64_t waited_ns;
        char key[24];

        snprintf(key, sizeof key, "key%05u", (unsigned)rng_below(rng, KEY_COUNT));
        check_ok(tamis_put(db, &options, tamis_text(key), (tamis_slice){value, sizeof value}, &err),
                 err);
        waited_ns = runtime->now_ns(runtime->ctx) - begin_ns;
        if (waited_ns > longest_ns)
            longest_ns = waited_ns;
    }
    return longest_ns;
}

START_TEST(writers_ahead_of_compaction_are_slowed_and_not_stopped)
{
    uint64_t seed = rng_seed("writers_ahead_of_compaction_are_slowed_and_not_stopped", 31);

    for (uint64_t life = 0; life < 4; life++) {
        struct rng rng = rng_from(seed + life);
        uint64_t longest_ns;
        tamis_stats stats;

        begin(seed + life, 40);
        longest_ns = overwrite(&rng, 10000, life % 2 != 0);
        stats = get_stats();
        printf("%llu flushes, %llu compactions; slowed %llu times, %llu ms; stopped %llu times, "
               "%llu ms; longest put %llu us\n",
               (unsigned long long)stats.flush_count, (unsigned long long)stats.compaction_count,
               (unsigned long long)stats.slowdown_count,
               (unsigned long long)stats.slowdown_ns / 1000000,
               (unsigned long long)stats.stall_count, (unsigned long long)stats.stall_ns / 1000000,
               (unsigned long long)longest_ns / 1000);
        ck_assert_uint_gt(stats.slowdown_count, 10);
        ck_assert_uint_gt(stats.compaction_count, 5);
        ck_assert_uint_lt(stats.level[0].file_count, LEVEL0_STOP);
        ck_assert_uint_le(stats.slowdown_ns, stats.slowdown_count * WAIT_NS_MAX);
        ck_assert_uint_eq(stats.stall_count, 0);
        ck_assert_uint_eq(stats.stall_longest_ns, 0);
        ck_assert_uint_le(longest_ns, WAIT_NS_MAX);
        end();
    }
}
END_TEST

START_TEST(large_writes_that_fill_level_0_all_the_same_are_stopped_and_counted)
{
    uint64_t seed = rng_seed("large_writes_that_fill_level_0_all_the_same_are_stopped", 32);
    static char value[WRITE_BUFFER_BYTES];
    struct rng rng = rng_from(seed);
    tamis_stats stats;

    begin(seed, 4000);
    for (int i = 0; i < 200; i++) {
        char key[24];

        snprintf(key, sizeof key, "key%05u", (unsigned)rng_below(&rng, KEY_COUNT));
        check_ok(tamis_put(db, NULL, tamis_text(key), (tamis_slice){value, sizeof value}, &err),
                 err);
        ck_assert_uint_le(get_stats().level[0].file_count, LEVEL0_STOP);
    }
    stats = get_stats();
    ck_assert_uint_gt(stats.stall_count, 0);
    ck_assert_uint_le(stats.stall_longest_ns, stats.stall_ns);
    ck_assert_uint_ge(stats.stall_longest_ns * stats.stall_count, stats.stall_ns);
    ck_assert_uint_gt(stats.slowdown_count, 0);
    ck_assert_uint_le(stats.slowdown_ns, stats.slowdown_count * WAIT_NS_MAX);
    end();
}
END_TEST

/* Overwrite until compaction has found no space, and stands still. */
static void
overwrite_until_full(struct rng *rng)
{
    is_full = true;
    while (full_count == 0) {
        (void)overwrite(rng, 50, false);
        check_ok(tamis_flush(db, &err), err);
        (void)tamis_wait_idle(db, &err);
    }
    check_status(tamis_wait_idle(db, &err), TAMIS_NO_SPACE, err);
    ck_assert_int_eq(get_stats().background_status, TAMIS_NO_SPACE);
    ck_assert_str_eq(get_stats().background_error.message, "no space for a merge");
}

START_TEST(a_compaction_without_space_neither_slows_nor_stops_writers_and_goes_on_when_asked)
{
    struct rng rng = rng_from(34);
    tamis_stats stats;

    begin(34, 0);
    overwrite_until_full(&rng);
    for (int i = 0; i < 30; i++) {
        (void)overwrite(&rng, 50, false);
        check_ok(tamis_flush(db, &err), err);
        check_status(tamis_wait_idle(db, &err), TAMIS_NO_SPACE,
                     err); // tried again after each flush
    }
    stats = get_stats();
    ck_assert_uint_ge(full_count, 30);
    ck_assert_uint_gt(stats.level[0].file_count, LEVEL0_STOP);
    ck_assert_uint_eq(stats.slowdown_count, 0);
    ck_assert_uint_eq(stats.stall_count, 0);
    check_status(tamis_compact_range(db, NULL, NULL, &err), TAMIS_NO_SPACE, err);
    is_full = false;
    check_ok(tamis_compact_range(db, NULL, NULL, &err), err);
    check_ok(tamis_wait_idle(db, &err), err);
    stats = get_stats();
    ck_assert_int_eq(stats.background_status, TAMIS_OK);
    ck_assert_str_eq(stats.background_error.message, "");
    ck_assert_uint_eq(stats.level[0].file_count, 0);
    end();
}
END_TEST

START_TEST(a_compaction_without_space_goes_on_when_files_are_removed)
{
    struct rng rng = rng_from(35);
    tamis_iter *iter = NULL;
    unsigned count;

    begin(35, 0);
    (void)overwrite(&rng, 200, false);
    check_ok(tamis_flush(db, &err), err);
    check_ok(tamis_iter_open(db, NULL, &iter, &err), err); // holds the table
    (void)overwrite(&rng, 200, false);
    check_ok(tamis_compact_range(db, NULL, NULL, &err), err);
    overwrite_until_full(&rng);
    count = full_count;
    check_status(tamis_wait_idle(db, &err), TAMIS_NO_SPACE, err);
    ck_assert_uint_eq(full_count, count); // not tried again for nothing
    is_full = false;
    tamis_iter_close(iter);
    check_ok(tamis_wait_idle(db, &err), err);
    ck_assert_uint_lt(get_stats().level[0].file_count, 4);
    end();
}
END_TEST

START_TEST(a_writer_that_is_not_ahead_waits_for_nothing)
{
    struct rng rng = rng_from(33);
    tamis_stats stats;

    begin(33, 0);
    for (int i = 0; i < 60; i++) {
        (void)overwrite(&rng, 50, false);
        check_ok(tamis_flush(db, &err), err);
        check_ok(tamis_wait_idle(db, &err), err);
    }
    stats = get_stats();
    ck_assert_uint_gt(stats.compaction_count, 5);
    ck_assert_uint_eq(stats.slowdown_count, 0);
    ck_assert_uint_eq(stats.stall_count, 0);
    end();
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("back pressure");
    TCase *tests = tcase_create("back pressure");

    tcase_set_timeout(tests, 0);
    tcase_add_test(tests, writers_ahead_of_compaction_are_slowed_and_not_stopped);
    tcase_add_test(tests, large_writes_that_fill_level_0_all_the_same_are_stopped_and_counted);
    tcase_add_test(
        tests, a_compaction_without_space_neither_slows_nor_stops_writers_and_goes_on_when_asked);
    tcase_add_test(tests, a_compaction_without_space_goes_on_when_files_are_removed);
    tcase_add_test(tests, a_writer_that_is_not_ahead_waits_for_nothing);
    suite_add_tcase(suite, tests);
    return check_run(suite);
}
