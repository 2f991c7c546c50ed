/* SPDX-License-Identifier: MIT
 *
 * tests/engine/test_delete_range.c -- a deleted range hides what is older, wherever it lies, and nothing else; and gives its
 * space back.
 */
#include "tests/engine/one_store.h"

#include "sstable/env.h"
#include "tests/support/child.h"
#include "tests/support/rng.h"

static void
delete_numbers(unsigned from, unsigned to)
{
    char from_text[32], to_text[32];

    check_ok(
        tamis_delete_range(one.db, NULL, one_key(from_text, from), one_key(to_text, to), &one.err),
        one.err);
}

/* Keys of from..to - 1 have `version` (-1: none) by lookups, and by walks both ways. */
static void
check_numbers_at(const tamis_snapshot *snapshot, unsigned from, unsigned to, long version)
{
    char from_text[32], to_text[32];
    tamis_slice lower = one_key(from_text, from);
    tamis_slice upper = one_key(to_text, to);
    tamis_iter_options options;
    tamis_iter *iter = NULL;
    unsigned count = 0;

    for (unsigned i = from; i < to; i++)
        ck_assert_int_eq(one_version_at(snapshot, i), version);
    tamis_iter_options_init(&options);
    options.snapshot = snapshot;
    options.lower = &lower;
    options.upper = &upper;
    check_ok(tamis_iter_open(one.db, &options, &iter, &one.err), one.err);
    for (tamis_iter_first(iter); tamis_iter_valid(iter); tamis_iter_next(iter))
        count++;
    for (tamis_iter_last(iter); tamis_iter_valid(iter); tamis_iter_prev(iter))
        count++;
    check_ok(tamis_iter_status(iter, &one.err), one.err);
    tamis_iter_close(iter);
    ck_assert_uint_eq(count, version < 0 ? 0 : 2 * (to - from));
}

static void
check_numbers(unsigned from, unsigned to, long version)
{
    check_numbers_at(NULL, from, to, version);
}

static void
put_numbers(unsigned from, unsigned to, unsigned version)
{
    for (unsigned i = from; i < to; i++)
        one_put_number(i, version, 100);
}

/* Where the older versions lie, and where the range does: each by a step of the test's _i. */
static void
settle(int where)
{
    if (where == 1)
        one_flush();
    else if (where == 2)
        one_compact();
    else if (where == 3)
        one_store_reopen();
}

START_TEST(a_range_hides_older_versions_in_every_place_and_newer_ones_in_none)
{
    put_numbers(0, 300, 1);
    settle(_i % 4);
    delete_numbers(100, 200);
    settle(_i / 4 % 4);
    put_numbers(150, 160, 2);
    for (int round = 0; round < 4; round++) {
        check_numbers(0, 100, 1);
        check_numbers(100, 150, -1);
        check_numbers(150, 160, 2);
        check_numbers(160, 200, -1);
        check_numbers(200, 300, 1);
        settle(round + 1);
    }
    ck_assert_uint_eq(one_count_keys(), 210);
    check_ok(tamis_verify(one.db, NULL, NULL, &one.err), one.err);
}
END_TEST

START_TEST(a_range_is_consulted_though_the_filter_of_its_table_says_no)
{
    tamis_stats before, after;
    tamis_snapshot *snapshot = NULL;

    put_numbers(0, 1000, 1);
    one_compact();
    check_ok(tamis_snapshot_take(one.db, &snapshot, &one.err),
             one.err); // it keeps the keys, and the range above
    delete_numbers(0, 1000);
    one_flush(); // a table with one entry, whose filter denies the other 999 keys
    ck_assert_uint_eq(one_stats().level[0].key_count, 1);
    ck_assert_uint_eq(one_stats().level[0].range_tombstone_count, 1);
    before = one_stats();
    for (unsigned i = 1; i < 1000; i++)
        ck_assert_int_eq(one_version(i), -1);
    after = one_stats();
    ck_assert_uint_ge(after.total.filter_negatives - before.total.filter_negatives, 900);
    ck_assert_uint_eq(after.tables_read - before.tables_read,
                      after.total.filter_false_positives - before.total.filter_false_positives);
    tamis_snapshot_release(one.db, snapshot);
}
END_TEST

START_TEST(a_snapshot_sees_what_was_there_before_the_range_whatever_is_compacted)
{
    tamis_snapshot *before = NULL, *between = NULL;

    put_numbers(0, 200, 1);
    check_ok(tamis_snapshot_take(one.db, &before, &one.err), one.err);
    delete_numbers(50, 150);
    check_ok(tamis_snapshot_take(one.db, &between, &one.err), one.err);
    put_numbers(100, 110, 3);
    for (int round = 0; round < 3; round++) {
        check_numbers_at(before, 0, 200, 1);
        check_numbers_at(between, 0, 50, 1);
        check_numbers_at(between, 50, 150, -1);
        check_numbers(100, 110, 3);
        check_numbers(110, 150, -1);
        settle(round + 1 == 3 ? 2 : round + 1);
    }
    tamis_snapshot_release(one.db, before);
    one_compact();
    check_numbers_at(between, 50, 150, -1);
    check_numbers(50, 100, -1);
    tamis_snapshot_release(one.db, between);
    one_compact();
    ck_assert_uint_eq(one_stats().total.entry_count, 110);
}
END_TEST

START_TEST(operations_of_a_batch_take_effect_in_their_order)
{
    tamis_batch *batch = NULL;
    char text[32], from_text[32], to_text[32];

    put_numbers(0, 20, 1);
    check_ok(tamis_batch_create(NULL, &batch, &one.err), one.err);
    check_ok(tamis_batch_put(batch, one_key(text, 5), tamis_text("gone"), &one.err), one.err);
    check_ok(tamis_batch_delete_range(batch, one_key(from_text, 0), one_key(to_text, 10), &one.err),
             one.err);
    check_ok(tamis_batch_put(batch, one_key(text, 6), tamis_text("\6\0\0\0\2\0\0"), &one.err),
             one.err);
    ck_assert_uint_eq(tamis_batch_count(batch), 3);
    check_ok(tamis_write(one.db, NULL, batch, &one.err), one.err);
    tamis_batch_destroy(batch);
    for (int round = 0; round < 4; round++) {
        bool exists = false;

        check_numbers(0, 6, -1);
        check_ok(tamis_exists(one.db, NULL, one_key(text, 6), &exists, &one.err), one.err);
        ck_assert(exists);
        check_numbers(7, 10, -1);
        check_numbers(10, 20, 1);
        settle(round);
    }
}
END_TEST

START_TEST(an_empty_or_backward_range_deletes_nothing_and_too_long_bounds_are_refused)
{
    char *bytes = calloc(1, TAMIS_KEY_BYTES_MAX + 1);
    tamis_slice longest = {bytes, TAMIS_KEY_BYTES_MAX};
    tamis_slice too_long = {bytes, TAMIS_KEY_BYTES_MAX + 1};
    uint64_t log_bytes;

    put_numbers(0, 10, 1);
    log_bytes = one_stats().log_bytes_written;
    delete_numbers(5, 5);
    delete_numbers(7, 3);
    check_status(tamis_delete_range(one.db, NULL, tamis_text(""), too_long, &one.err),
                 TAMIS_TOO_LARGE, one.err);
    check_status(tamis_delete_range(one.db, NULL, too_long, tamis_text("z"), &one.err),
                 TAMIS_TOO_LARGE, one.err);
    ck_assert_uint_eq(one_stats().log_bytes_written, log_bytes);
    check_numbers(0, 10, 1);
    check_ok(tamis_delete_range(one.db, NULL, tamis_text(""), longest, &one.err), one.err);
    check_numbers(0, 10, 1); // they begin with k, the bounds end below
    memset(bytes, 0xff, TAMIS_KEY_BYTES_MAX);
    check_ok(tamis_delete_range(one.db, NULL, tamis_text(""), longest, &one.err), one.err);
    check_numbers(0, 10, -1);
    one_flush();
    one_store_reopen();
    check_numbers(0, 10, -1);
    one_compact();
    ck_assert_uint_eq(one_stats().total.file_count, 0);
    free(bytes);
}
END_TEST

START_TEST(a_deleted_range_gives_its_space_back)
{
    uint64_t bytes;

    put_numbers(0, 5000, 1);
    one_compact();
    bytes = one_stats().total.file_bytes;
    delete_numbers(0, 5000);
    ck_assert_uint_eq(one_count_keys(), 0);
    one_compact();
    ck_assert_uint_eq(one_stats().total.file_count, 0);
    put_numbers(0, 5000, 2);
    one_compact();
    delete_numbers(1000, 4000);
    one_compact();
    ck_assert_uint_eq(one_stats().total.entry_count, 2000);
    ck_assert_uint_le(one_stats().total.file_bytes * 2, bytes);
    check_numbers(1000, 4000, -1);
    check_numbers(0, 1000, 2);
}
END_TEST

START_TEST(tables_that_lie_below_a_deleted_range_are_dropped_without_being_read)
{
    tamis_snapshot *snapshot = NULL;
    uint64_t bytes, bytes_read;

    put_numbers(0, 6000, 1);
    one_compact();
    delete_numbers(0, 10); // a table within the range that has a range of its own, and newer keys
    put_numbers(5, 10, 2);
    one_flush();
    delete_numbers(0, 5990);
    put_numbers(3000, 3010, 3);
    check_ok(tamis_snapshot_take(one.db, &snapshot, &one.err),
             one.err); // sees the range: no hindrance
    put_numbers(0, 5, 4);
    bytes = one_stats().total.file_bytes;
    bytes_read = one_stats().compaction_bytes_read;
    ck_assert_uint_ge(one_stats().total.file_count, 8);
    one_compact();
    ck_assert_uint_le(4 * (one_stats().compaction_bytes_read - bytes_read), bytes);
    ck_assert_uint_le(20 * one_stats().total.file_bytes, bytes);
    check_numbers(0, 5, 4);
    check_numbers(5, 3000, -1);
    check_numbers(3000, 3010, 3);
    check_numbers(3010, 5990, -1);
    check_numbers(5990, 6000, 1);
    check_numbers_at(snapshot, 0, 3000, -1);
    check_numbers_at(snapshot, 5990, 6000, 1);
    check_ok(tamis_verify(one.db, NULL, NULL, &one.err), one.err);
    tamis_snapshot_release(one.db, snapshot);
}
END_TEST

/* Tables hold what an old snapshot sees beside what is newer: releasing the newer one must not cost the old one anything. */
START_TEST(tables_below_a_deleted_range_stay_while_a_snapshot_sees_into_them)
{
    const unsigned count = 3000 / ONE_STORE_DIVISOR;
    tamis_snapshot *before = NULL, *between = NULL;

    put_numbers(0, count, 1);
    check_ok(tamis_snapshot_take(one.db, &before, &one.err), one.err);
    put_numbers(0, count, 2);
    check_ok(tamis_snapshot_take(one.db, &between, &one.err), one.err);
    one_compact();
    delete_numbers(0, count);
    one_compact();
    check_numbers_at(before, 0, count, 1);
    check_numbers_at(between, 0, count, 2);
    check_numbers(0, count, -1);
    delete_numbers(0, count);
    tamis_snapshot_release(one.db, between);
    one_compact();
    check_numbers_at(before, 0, count, 1);
    check_numbers(0, count, -1);
    tamis_snapshot_release(one.db, before);
    one_compact();
    ck_assert_uint_eq(one_stats().total.file_count, 0);
}
END_TEST

START_TEST(a_table_of_mostly_ranges_is_compacted_without_being_asked)
{
    put_numbers(0, 5000, 1);
    one_compact();
    delete_numbers(10, 4990);
    one_flush();
    one_wait_idle();
    ck_assert_uint_eq(one_stats().total.range_tombstone_count, 0);
    ck_assert_uint_eq(one_stats().total.entry_count, 20);
    check_numbers(10, 4990, -1);
    check_numbers(0, 10, 1);
}
END_TEST

START_TEST(ranges_over_many_tables_are_cut_with_them_and_hide_the_same)
{
    struct rng rng = rng_from(rng_seed("ranges_over_many_tables", 61));
    unsigned key_count = 8000 / ONE_STORE_DIVISOR;
    long *expected = calloc(key_count, sizeof *expected);
    tamis_snapshot *snapshot = NULL;

    for (unsigned i = 0; i < key_count; i++)
        expected[i] = -1;
    check_ok(tamis_snapshot_take(one.db, &snapshot, &one.err),
             one.err); // so that nothing may be dropped
    for (unsigned round = 1; round <= 40; round++) {
        for (unsigned i = 0; i < key_count / 10; i++) {
            unsigned number = (unsigned)rng_below(&rng, key_count);

            one_put_number(number, round, 100);
            expected[number] = round;
        }
        for (unsigned i = 0; i < 3; i++) {
            unsigned from = (unsigned)rng_below(&rng, key_count);
            unsigned to = from + (unsigned)rng_below(&rng, i == 0 ? key_count : 50);

            to = to < key_count ? to : key_count;
            delete_numbers(from, to);
            for (unsigned number = from; number < to; number++)
                expected[number] = -1;
        }
        if (round % 8 == 0)
            one_compact();
        if (round == 20) {
            tamis_snapshot_release(one.db, snapshot);
            snapshot = NULL;
        }
        if (round % 10 == 0) {
            uint64_t there = 0;

            for (unsigned i = 0; i < key_count; i++) {
                ck_assert_int_eq(one_version(i), expected[i]);
                there += expected[i] >= 0;
            }
            ck_assert_uint_eq(one_count_keys(), there);
            check_ok(tamis_verify(one.db, NULL, NULL, &one.err), one.err);
        }
    }
    free(expected);
}
END_TEST

/* ---- Walks over deleted ranges ---------------------------------------------------------------------- */

static void
check_stands_on(const tamis_iter *iter, unsigned number, long version)
{
    const unsigned head[2] = {number, (unsigned)version};
    char text[32];

    check_ok(tamis_iter_status(iter, &one.err), one.err);
    ck_assert(tamis_iter_valid(iter));
    ck_assert(tm_slice_equal(tamis_iter_key(iter), one_key(text, number)));
    ck_assert_mem_eq(tamis_iter_value(iter).data, head, sizeof head);
}

/* Blocks that walks have asked for, cached or not. */
static uint64_t
blocks_asked_for(void)
{
    return one_stats().cache_hits + one_stats().cache_misses;
}

/* The keys `shown` and no others, there and back. */
static void
check_walks_over(const unsigned *shown, size_t count)
{
    tamis_iter *iter = NULL;

    check_ok(tamis_iter_open(one.db, NULL, &iter, &one.err), one.err);
    tamis_iter_first(iter);
    for (size_t i = 0; i < count; i++, tamis_iter_next(iter))
        check_stands_on(iter, shown[i], one_version(shown[i]));
    ck_assert(!tamis_iter_valid(iter));
    tamis_iter_last(iter);
    for (size_t i = count; i-- > 0; tamis_iter_prev(iter))
        check_stands_on(iter, shown[i], one_version(shown[i]));
    ck_assert(!tamis_iter_valid(iter));
    tamis_iter_close(iter);
}

/* The range lies in the memtable, there with a newer key at its start, or in a table of level 0 with no key before it. */
START_TEST(a_walk_asks_for_few_of_the_blocks_that_lie_below_a_deleted_range)
{
    enum { COUNT = 6000 };
    static const unsigned shown[] = {0, COUNT / 2, COUNT - 1};
    tamis_snapshot *snapshot = NULL;
    uint64_t blocks;

    put_numbers(0, COUNT, 1);
    one_compact();
    for (unsigned i = 0; i < COUNT; i += 30)
        one_put_number(i, 2, 100);
    one_flush();
    check_ok(tamis_snapshot_take(one.db, &snapshot, &one.err), one.err); // nothing may be dropped
    delete_numbers(_i == 0 ? 1 : 0, COUNT - 1);
    if (_i == 1)
        one_put_number(0, 3, 100);
    one_put_number(COUNT / 2, 3, 100);
    if (_i == 2)
        one_flush();
    one_wait_idle();
    ck_assert_uint_ge(one_stats().total.file_count, 8);
    ck_assert_uint_ge(one_stats().total.entry_count, COUNT);
    blocks = blocks_asked_for();
    check_walks_over(&shown[_i == 2], 3 - (_i == 2));
    ck_assert_uint_le(blocks_asked_for() - blocks, 30); // of about 170, each way
    check_numbers_at(snapshot, 1, 3, 1);
    tamis_snapshot_release(one.db, snapshot);
}
END_TEST

enum { WALK_KEYS = 600 };

/* Keys of some rounds of writes, as a reader of now and one of each round sees them. */
struct walk_case {
    tamis_snapshot *snapshot; // NULL: now
    long version[WALK_KEYS];  // -1: not there
};

static void
write_round(struct rng *rng, unsigned round, long *version)
{
    for (unsigned i = 0; i < WALK_KEYS / 2; i++) {
        unsigned number = (unsigned)rng_below(rng, WALK_KEYS);

        one_put_number(number, round, 100);
        version[number] = round;
    }
    for (unsigned i = 0; i < 3; i++) {
        unsigned from = (unsigned)rng_below(rng, WALK_KEYS);
        unsigned to = from + 1 + (unsigned)rng_below(rng, WALK_KEYS - from);

        delete_numbers(from, to);
        for (unsigned number = from; number < to; number++)
            version[number] = -1;
        if (rng_chance(rng, 1, 2)) {
            one_put_number(from, round, 100);
            version[from] = round;
        }
    }
}

static long
nearest(const long *version, long at, long step)
{
    while (at >= 0 && at < WALK_KEYS && version[at] < 0)
        at += step;
    return at >= 0 && at < WALK_KEYS ? at : -1;
}

static void
walk_at_random(struct rng *rng, const struct walk_case *it, unsigned moves)
{
    tamis_iter_options options;
    tamis_iter *iter = NULL;
    long at = -1;

    tamis_iter_options_init(&options);
    options.snapshot = it->snapshot;
    check_ok(tamis_iter_open(one.db, &options, &iter, &one.err), one.err);
    for (unsigned i = 0; i < moves; i++) {
        long target = (long)rng_below(rng, WALK_KEYS);
        char text[32];

        if (at < 0 && rng_chance(rng, 1, 2)) {
            tamis_iter_seek(iter, one_key(text, (unsigned)target));
            at = nearest(it->version, target, 1);
        } else if (at < 0) {
            tamis_iter_seek_for_prev(iter, one_key(text, (unsigned)target));
            at = nearest(it->version, target, -1);
        } else if (rng_chance(rng, 1, 2)) {
            tamis_iter_next(iter);
            at = nearest(it->version, at + 1, 1);
        } else {
            tamis_iter_prev(iter);
            at = nearest(it->version, at - 1, -1);
        }
        if (at >= 0)
            check_stands_on(iter, (unsigned)at, it->version[at]);
        else
            ck_assert(!tamis_iter_valid(iter));
    }
    tamis_iter_close(iter);
}

START_TEST(walks_that_turn_over_ranges_in_all_places_stand_where_an_array_does)
{
    enum { ROUNDS = 6 };
    struct rng rng = rng_from(rng_seed("walks_that_turn", 62));
    static struct walk_case cases[ROUNDS + 1];
    struct walk_case *now = &cases[ROUNDS];

    for (unsigned i = 0; i < WALK_KEYS; i++)
        now->version[i] = -1;
    for (unsigned round = 0; round < ROUNDS; round++) {
        write_round(&rng, round, now->version);
        cases[round] = *now;
        check_ok(tamis_snapshot_take(one.db, &cases[round].snapshot, &one.err), one.err);
        settle((int)rng_below(&rng, 3));
        for (unsigned i = 0; i <= round; i++)
            walk_at_random(&rng, &cases[i], 1000 / ONE_STORE_DIVISOR);
        walk_at_random(&rng, now, 1000 / ONE_STORE_DIVISOR);
    }
    for (unsigned round = 0; round < ROUNDS; round++)
        tamis_snapshot_release(one.db, cases[round].snapshot);
}
END_TEST

/* ---- Crashes and numbers ------------------------------------------------------------------------------ */

static int
delete_and_die(void *arg)
{
    tamis_write_options options;
    char from_text[32], to_text[32];

    (void)arg;
    one_store_open();
    tamis_write_options_init(&options);
    options.sync = true;
    put_numbers(0, 100, 1);
    check_ok(tamis_delete_range(one.db, &options, one_key(from_text, 10), one_key(to_text, 90),
                                &one.err),
             one.err);
    put_numbers(50, 51, 2);
    return 0; // without closing
}

START_TEST(a_range_is_there_after_a_kill)
{
    one_store_close();
    ck_assert_int_eq(child_run(delete_and_die, NULL, NULL, 0), 0);
    one_store_open();
    check_numbers(0, 10, 1);
    check_numbers(10, 50, -1);
    check_numbers(50, 51, 2);
    check_numbers(51, 90, -1);
    check_numbers(90, 100, 1);
}
END_TEST

START_TEST(many_ranges_in_one_memtable_are_all_found)
{
    unsigned range_count = 20000 / ONE_STORE_DIVISOR;

    one_store_close();
    one.options.write_buffer_bytes = 64 << 20;
    one_store_open();
    put_numbers(0, 3 * 100, 1);
    for (unsigned i = 0; i < range_count; i++)
        delete_numbers(3 * i, 3 * i + 2); // every third key stays
    for (int round = 0; round < 3; round++) {
        for (unsigned i = 0; i < 100; i++) {
            ck_assert_int_eq(one_version(3 * i), -1);
            ck_assert_int_eq(one_version(3 * i + 1), -1);
            ck_assert_int_eq(one_version(3 * i + 2), 1);
        }
        ck_assert_uint_eq(one_count_keys(), 100);
        settle(round + 1);
    }
    ck_assert_uint_eq(one_stats().total.entry_count, 100);
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("delete range");
    TCase *tests = tcase_create("delete range");

    tcase_set_timeout(tests, 0);
    tcase_add_checked_fixture(tests, one_store_begin, one_store_end);
    tcase_add_loop_test(tests, a_range_hides_older_versions_in_every_place_and_newer_ones_in_none,
                        0, 16);
    tcase_add_test(tests, a_range_is_consulted_though_the_filter_of_its_table_says_no);
    tcase_add_test(tests, a_snapshot_sees_what_was_there_before_the_range_whatever_is_compacted);
    tcase_add_test(tests, operations_of_a_batch_take_effect_in_their_order);
    tcase_add_test(tests,
                   an_empty_or_backward_range_deletes_nothing_and_too_long_bounds_are_refused);
    tcase_add_test(tests, a_deleted_range_gives_its_space_back);
    tcase_add_test(tests, tables_that_lie_below_a_deleted_range_are_dropped_without_being_read);
    tcase_add_test(tests, tables_below_a_deleted_range_stay_while_a_snapshot_sees_into_them);
    tcase_add_test(tests, a_table_of_mostly_ranges_is_compacted_without_being_asked);
    tcase_add_test(tests, ranges_over_many_tables_are_cut_with_them_and_hide_the_same);
    tcase_add_test(tests, a_range_is_there_after_a_kill);
    tcase_add_test(tests, many_ranges_in_one_memtable_are_all_found);
    tcase_add_loop_test(tests, a_walk_asks_for_few_of_the_blocks_that_lie_below_a_deleted_range, 0,
                        3);
    tcase_add_test(tests, walks_that_turn_over_ranges_in_all_places_stand_where_an_array_does);
    suite_add_tcase(suite, tests);
    return check_run(suite);
}
