/* SPDX-License-Identifier: MIT
 *
 * tests/engine/test_no_log.c -- writes that leave out the log: seen at once, lost whole by a crash unless flushed, and never in the
 * way of what is in the log.
 */
#include <check.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/open.h"
#include "sstable/env.h"
#include "tests/support/check_status.h"
#include "tests/support/rng.h"
#include "tests/support/world.h"

enum {
    PAIR_COUNT = 12, // of keys that are always written together, with one version
    VALUE_BYTES_MAX = 3000,
};

static struct world *world;
static tamis_db *db;
static tamis_error err;
static tamis_batch *batch;

/* ---- The store ------------------------------------------------------------------------------------ */

static tamis_status
try_open(void)
{
    tamis_options options;

    tamis_options_init(&options);
    options.create_if_missing = true;
    options.write_buffer_bytes = 64 << 10;
    options.allocator = &world->env.allocator;
    options.fs = world->env.fs;
    return tm_open("db", &options, world->env.runtime, &db, &err);
}

static void
begin(uint64_t seed)
{
    world = world_create(seed, WORLD_BATON | (seed % 2 != 0 ? WORLD_MAP_LOGS : 0));
    check_ok(try_open(), err);
    check_ok(tamis_batch_create(NULL, &batch, &err), err);
}

static void
close_store(void)
{
    check_ok(tamis_close(db, &err), err);
    db = NULL;
}

static void
end(void)
{
    close_store();
    tamis_batch_destroy(batch);
    world_destroy(world);
}

static tamis_slice
key_of(char text[16], size_t number)
{
    snprintf(text, 16, "k%06zu", number);
    return tamis_text(text);
}

/* The two keys of the pair get this version. */
static tamis_status
write_pair(size_t pair, uint64_t version, size_t length, bool no_log, bool sync)
{
    static uint8_t value[VALUE_BYTES_MAX];
    tamis_write_options options;
    char text[16];

    tamis_write_options_init(&options);
    options.no_log = no_log;
    options.sync = sync;
    ck_assert(length >= sizeof version && length <= sizeof value);
    memcpy(value, &version, sizeof version);
    tamis_batch_clear(batch);
    for (size_t i = 0; i < 2; i++)
        check_ok(
            tamis_batch_put(batch, key_of(text, 2 * pair + i), (tamis_slice){value, length}, &err),
            err);
    return tamis_write(db, &options, batch, &err);
}

static void
write_pair_ok(size_t pair, uint64_t version, bool no_log)
{
    check_ok(write_pair(pair, version, 100, no_log, false), err);
}

/* The version of both keys; 0: neither is there. */
static uint64_t
version_of_pair(size_t pair)
{
    uint64_t versions[2] = {0, 0};

    for (size_t i = 0; i < 2; i++) {
        char text[16];
        size_t length;
        tamis_status status = tamis_get(db, NULL, key_of(text, 2 * pair + i), &versions[i],
                                        sizeof versions[i], &length, &err);

        if (status != TAMIS_NOT_FOUND)
            check_ok(status, err);
    }
    ck_assert_uint_eq(versions[0], versions[1]); // a batch is whole
    return versions[0];
}

static void
crash(enum sim_policy policy, uint64_t seed)
{
    if (!sim_stopped(world->sim))
        sim_stop_at(world->sim, sim_call_count(world->sim) + 1);
    if (db != NULL)
        (void)tamis_close(db, NULL);
    db = NULL;
    world_crash(world, policy, seed);
}

static tamis_stats
get_stats(void)
{
    tamis_stats stats;

    tamis_stats_init(&stats);
    check_ok(tamis_get_stats(db, &stats, &err), err);
    return stats;
}

/* ---- One promise each ----------------------------------------------------------------------------- */

START_TEST(sync_and_no_log_together_are_refused)
{
    tamis_write_options options;

    begin(1);
    tamis_write_options_init(&options);
    ck_assert(!options.no_log);
    options.sync = options.no_log = true;
    check_status(tamis_put(db, &options, tamis_text("k"), tamis_text("v"), &err), TAMIS_INVALID,
                 err);
    check_status(tamis_delete(db, &options, tamis_text("k"), &err), TAMIS_INVALID, err);
    check_status(write_pair(0, 1, 100, true, true), TAMIS_INVALID, err);
    ck_assert_uint_eq(get_stats().last_sequence, 0);
    end();
}
END_TEST

START_TEST(a_write_without_log_is_seen_at_once_and_adds_nothing_to_the_log)
{
    tamis_stats before;

    begin(1);
    write_pair_ok(0, 1, false);
    before = get_stats();
    write_pair_ok(0, 2, true);
    ck_assert_uint_eq(version_of_pair(0), 2);
    ck_assert_uint_eq(get_stats().log_bytes_written, before.log_bytes_written);
    ck_assert_uint_eq(get_stats().user_bytes_written, 2 * before.user_bytes_written);
    ck_assert_uint_eq(get_stats().last_sequence, 4);
    end();
}
END_TEST

START_TEST(a_kill_loses_what_is_in_no_log_and_nothing_else)
{
    begin(1);
    write_pair_ok(0, 1, false);
    write_pair_ok(0, 2, true);
    write_pair_ok(1, 3, true);
    write_pair_ok(2, 4, false);
    write_pair_ok(2, 5, true);
    crash(SIM_P1_ALL, 1);
    check_ok(try_open(), err);
    ck_assert_uint_eq(version_of_pair(0), 1);
    ck_assert_uint_eq(version_of_pair(1), 0);
    ck_assert_uint_eq(version_of_pair(2), 4);
    end();
}
END_TEST

START_TEST(a_flush_keeps_what_is_in_no_log)
{
    begin(1);
    write_pair_ok(0, 1, true);
    check_ok(tamis_flush(db, &err), err);
    write_pair_ok(1, 2, true);
    crash(SIM_P0_STRICT, 1);
    check_ok(try_open(), err);
    ck_assert_uint_eq(version_of_pair(0), 1);
    ck_assert_uint_eq(version_of_pair(1), 0);
    end();
}
END_TEST

START_TEST(closing_keeps_what_is_in_no_log)
{
    begin(1);
    write_pair_ok(0, 1, true);
    write_pair_ok(1, 2, false);
    write_pair_ok(2, 3, true);
    close_store();
    crash(SIM_P0_STRICT, 1);
    check_ok(try_open(), err);
    for (size_t pair = 0; pair < 3; pair++)
        ck_assert_uint_eq(version_of_pair(pair), pair + 1);
    end();
}
END_TEST

START_TEST(closing_tries_a_failed_flush_again)
{
    begin(1);
    write_pair_ok(0, 1, true);
    (void)sim_fault_add(
        world->sim, (struct sim_fault){SIM_PWRITE, TM_OS_CLASS_TABLE, 1, SIM_ERROR, ENOSPC, false});
    check_status(tamis_flush(db, &err), TAMIS_NO_SPACE, err);
    write_pair_ok(1, 2, true);
    close_store();
    check_ok(try_open(), err);
    ck_assert_uint_eq(version_of_pair(0), 1);
    ck_assert_uint_eq(version_of_pair(1), 2);
    end();
}
END_TEST

START_TEST(closing_flushes_although_a_flush_failed_that_nobody_was_told_of)
{
    begin(1);
    (void)sim_fault_add(
        world->sim, (struct sim_fault){SIM_PWRITE, TM_OS_CLASS_TABLE, 1, SIM_ERROR, ENOSPC, false});
    for (size_t pair = 0; pair < PAIR_COUNT; pair++) // more than a memtable
        check_ok(write_pair(pair, pair + 1, VALUE_BYTES_MAX, true, false), err);
    check_status(tamis_wait_idle(db, &err), TAMIS_NO_SPACE, err);
    ck_assert_uint_eq(get_stats().flush_count, 0);
    close_store();
    check_ok(try_open(), err);
    for (size_t pair = 0; pair < PAIR_COUNT; pair++)
        ck_assert_uint_eq(version_of_pair(pair), pair + 1);
    end();
}
END_TEST

START_TEST(closing_says_when_what_is_in_no_log_could_not_be_kept)
{
    begin(1);
    write_pair_ok(0, 1, false);
    write_pair_ok(1, 2, true);
    (void)sim_fault_add(
        world->sim, (struct sim_fault){SIM_PWRITE, TM_OS_CLASS_TABLE, 1, SIM_ERROR, ENOSPC, true});
    check_status(tamis_close(db, &err), TAMIS_NO_SPACE, err);
    db = NULL;
    sim_fault_clear(world->sim);
    check_ok(try_open(), err);
    ck_assert_uint_eq(version_of_pair(0), 1);
    ck_assert_uint_eq(version_of_pair(1), 0);
    end();
}
END_TEST

static bool
collect(void *arg, const char *text, size_t length)
{
    strncat(arg, text, length);
    return true;
}

START_TEST(the_log_tells_which_sequences_it_does_not_hold)
{
    static char text[10000];

    begin(1);
    for (uint64_t version = 1; version <= 3; version++)
        write_pair_ok(0, version, true);
    write_pair_ok(0, 4, false);
    check_ok(tamis_inspect("db/000002.wal", false, collect, text, world->env.fs, &err), err);
    ck_assert_ptr_nonnull(strstr(text, ": skip, sequence 1, 6 operations that are in no log\n"));
    ck_assert_ptr_nonnull(strstr(text, ": batch, sequence 7, 2 operations"));
    end();
}
END_TEST

/* ---- Writers of both kinds at once ---------------------------------------------------------------- */

struct writer {
    bool no_log;
    size_t first_key;
};

enum { WRITER_COUNT = 4, WRITES_EACH = 50 };

static void
write_keys(void *arg)
{
    const struct writer *writer = arg;
    tamis_write_options options;
    tamis_error failure;

    tamis_write_options_init(&options);
    options.no_log = writer->no_log;
    for (size_t i = 0; i < WRITES_EACH; i++) {
        char text[16];

        check_ok(
            tamis_put(db, &options, key_of(text, writer->first_key + i), tamis_text("v"), &failure),
            failure);
    }
}

START_TEST(writers_of_both_kinds_at_once_get_what_each_was_promised)
{
    const struct tm_runtime *runtime;
    size_t lost_count = 0;

    for (uint64_t seed = 1; seed <= 10; seed++) {
        struct tm_thread threads[WRITER_COUNT];
        struct writer writers[WRITER_COUNT];

        begin(seed);
        runtime = world->env.runtime;
        for (size_t i = 0; i < WRITER_COUNT; i++) {
            writers[i] = (struct writer){i % 2 != 0, i * WRITES_EACH};
            ck_assert_int_eq(
                runtime->thread_start(runtime->ctx, &threads[i], write_keys, &writers[i]), 0);
        }
        for (size_t i = 0; i < WRITER_COUNT; i++)
            runtime->thread_join(runtime->ctx, &threads[i]);
        crash(SIM_P1_ALL, seed);
        check_ok(try_open(), err);
        for (size_t key = 0; key < WRITER_COUNT * WRITES_EACH; key++) {
            char text[16];
            bool there;

            check_ok(tamis_exists(db, NULL, key_of(text, key), &there, &err), err);
            ck_assert(there || writers[key / WRITES_EACH].no_log);
            lost_count += !there;
        }
        end();
    }
    ck_assert_uint_eq(lost_count, 10 * WRITER_COUNT / 2 * WRITES_EACH);
}
END_TEST

/* ---- Any order of writes, any crash --------------------------------------------------------------- */

struct promise {
    uint64_t issued[PAIR_COUNT]; // newest version given to a write
    uint64_t killed[PAIR_COUNT]; // newest that a killed process keeps
    uint64_t power[PAIR_COUNT];  // newest that a power cut keeps
};

static void
promise_flushed(struct promise *promise, const uint64_t acked[PAIR_COUNT])
{
    memcpy(promise->killed, acked, sizeof promise->killed);
    memcpy(promise->power, acked, sizeof promise->power);
}

/* Writes of both kinds until the machine stops. */
static void
drive(struct rng *rng, struct promise *promise)
{
    uint64_t acked[PAIR_COUNT] = {0};
    uint64_t logged[PAIR_COUNT] = {0}; // newest in a log
    uint64_t version = 0;

    for (int step = 0; step < 150; step++) {
        size_t pair = rng_below(rng, PAIR_COUNT);
        bool no_log = rng_chance(rng, 1, 2);
        bool sync = !no_log && rng_chance(rng, 1, 5);
        tamis_status status;

        if (rng_chance(rng, 1, 30)) {
            status = tamis_flush(db, &err);
            if (sim_stopped(world->sim))
                return;
            check_ok(status, err);
            promise_flushed(promise, acked);
        }
        promise->issued[pair] = ++version;
        status = write_pair(pair, version, 8 + rng_below(rng, VALUE_BYTES_MAX - 8), no_log, sync);
        if (sim_stopped(world->sim))
            return;
        check_ok(status, err);
        acked[pair] = version;
        if (!no_log)
            promise->killed[pair] = logged[pair] = version;
        for (size_t i = 0; sync && i < PAIR_COUNT; i++)
            if (logged[i] > promise->power[i])
                promise->power[i] = logged[i];
    }
}

START_TEST(no_crash_breaks_what_is_in_the_log_or_leaves_half_of_what_is_not)
{
    const int crash_count = 400;
    uint64_t seed = rng_seed("no_crash_breaks_what_is_in_the_log_or_leaves_half_of_what_is_not", 1);
    uint64_t kept_count = 0;

    for (int i = 0; i < crash_count; i++) {
        struct rng rng = rng_from(seed + (uint64_t)i);
        enum sim_policy policy = (enum sim_policy)(i % SIM_POLICY_COUNT);
        struct promise promise = {0};
        const uint64_t *kept;

        begin(seed + (uint64_t)i);
        sim_stop_at(world->sim, sim_call_count(world->sim) + 1 + rng_below(&rng, 1200));
        drive(&rng, &promise);
        crash(policy, seed + (uint64_t)i);
        ck_assert_msg(try_open() == TAMIS_OK, "crash %d, policy %s: %s", i, sim_policy_name(policy),
                      err.message);
        kept =
            policy == SIM_P1_ALL || policy == SIM_P7_UNLINK_UNDONE ? promise.killed : promise.power;
        for (size_t pair = 0; pair < PAIR_COUNT; pair++) {
            uint64_t version = version_of_pair(pair);

            ck_assert_msg(version >= kept[pair] && version <= promise.issued[pair],
                          "crash %d, policy %s: pair %zu has version %" PRIu64 ", promised %" PRIu64
                          "..%" PRIu64,
                          i, sim_policy_name(policy), pair, version, kept[pair],
                          promise.issued[pair]);
            kept_count += kept[pair] != 0;
        }
        write_pair_ok(0, 1000, true); // and it goes on
        write_pair_ok(1, 1001, false);
        close_store();
        check_ok(try_open(), err);
        ck_assert_uint_eq(version_of_pair(0), 1000);
        ck_assert_uint_eq(version_of_pair(1), 1001);
        end();
    }
    ck_assert_uint_gt(kept_count, (uint64_t)crash_count);
    printf("%d crashes, %" PRIu64 " promises.\n", crash_count, kept_count);
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("no_log");
    TCase *tests = tcase_create("no_log");

    tcase_set_timeout(tests, 0);
    tcase_add_test(tests, sync_and_no_log_together_are_refused);
    tcase_add_test(tests, a_write_without_log_is_seen_at_once_and_adds_nothing_to_the_log);
    tcase_add_test(tests, a_kill_loses_what_is_in_no_log_and_nothing_else);
    tcase_add_test(tests, a_flush_keeps_what_is_in_no_log);
    tcase_add_test(tests, closing_keeps_what_is_in_no_log);
    tcase_add_test(tests, closing_tries_a_failed_flush_again);
    tcase_add_test(tests, closing_flushes_although_a_flush_failed_that_nobody_was_told_of);
    tcase_add_test(tests, closing_says_when_what_is_in_no_log_could_not_be_kept);
    tcase_add_test(tests, the_log_tells_which_sequences_it_does_not_hold);
    tcase_add_test(tests, writers_of_both_kinds_at_once_get_what_each_was_promised);
    tcase_add_test(tests, no_crash_breaks_what_is_in_the_log_or_leaves_half_of_what_is_not);
    suite_add_tcase(suite, tests);
    return check_run(suite);
}
