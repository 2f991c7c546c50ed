/* SPDX-License-Identifier: MIT
 *
 * tests/engine/test_reads.c -- lookups, pinned values, iterators and snapshots, as <tamis/tamis.h> promises them.
 */
#include "tests/engine/one_store.h"

#include "sstable/env.h"

static bool
key_is(const tamis_iter *iter, const char *text)
{
    return tamis_iter_valid(iter) && tm_slice_equal(tamis_iter_key(iter), tamis_text(text));
}

/* a1, a3, a5, a7 in a deep table, b1, b3 in one of level 0, c1 in the memtable; a5 and b3 deleted later. */
static void
make_layers(void)
{
    static const char *const keys[] = {"a1", "a3", "a5", "a7", "b1", "b3", "c1"};

    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        one_put(tamis_text(keys[i]), tamis_text(keys[i]));
        if (i == 3)
            one_compact();
        if (i == 5)
            one_flush();
    }
    one_delete(tamis_text("a5"));
    one_delete(tamis_text("b3"));
}

/* ---- Lookups -------------------------------------------------------------------------------------- */

static void
get_into_small_buffers(void)
{
    for (size_t capacity = 0; capacity <= 12; capacity++) {
        char buffer[16];
        size_t length = 0;
        size_t copied = capacity < 10 ? capacity : 10;

        memset(buffer, '#', sizeof buffer);
        check_ok(tamis_get(one.db, NULL, tamis_text("k"), buffer, capacity, &length, &one.err),
                 one.err);
        ck_assert_uint_eq(length, 10);
        ck_assert_mem_eq(buffer, "0123456789", copied);
        ck_assert_mem_eq(buffer + copied, "################", sizeof buffer - copied);
    }
}

START_TEST(get_fills_what_it_was_given_and_tells_the_whole_length)
{
    size_t length = 0;

    one_put(tamis_text("k"), tamis_text("0123456789"));
    get_into_small_buffers();
    one_compact();
    get_into_small_buffers();
    check_ok(tamis_get(one.db, NULL, tamis_text("k"), NULL, 0, &length, &one.err), one.err);
    ck_assert_uint_eq(length, 10);
}
END_TEST

START_TEST(the_newest_version_counts_wherever_it_is)
{
    one_put_number(1, 1, 100);
    one_compact();
    ck_assert_int_eq(one_version(1), 1);
    one_put_number(1, 2, 100);
    one_flush();
    ck_assert_int_eq(one_version(1), 2);
    one_put_number(1, 3, 100);
    ck_assert_int_eq(one_version(1), 3);
    one_delete_number(1);
    ck_assert_int_eq(one_version(1), -1);
    one_flush();
    ck_assert_int_eq(one_version(1), -1);
    one_compact();
    ck_assert_int_eq(one_version(1), -1);
    one_put_number(1, 4, 100);
    ck_assert_int_eq(one_version(1), 4);
}
END_TEST

START_TEST(may_exist_never_denies_what_is_there_and_asks_no_file)
{
    tamis_stats before;
    tamis_stats after;
    unsigned maybe_count = 0;
    char text[32];
    bool answer;

    for (unsigned i = 0; i < 2000; i++)
        one_put_number(i, 1, 100);
    one_delete_number(7);
    one_wait_idle();
    before = one_stats();
    for (unsigned i = 0; i < 4000; i++) {
        check_ok(tamis_may_exist(one.db, one_key(text, i), &answer, &one.err), one.err);
        ck_assert(i >= 2000 || i == 7 || answer);
        maybe_count += i >= 2000 && answer;
    }
    after = one_stats();
    ck_assert_uint_le(maybe_count, 200); // those few that the filters let through
    ck_assert_uint_eq(after.cache_hits + after.cache_misses,
                      before.cache_hits + before.cache_misses);
    ck_assert_uint_eq(after.tables_read, before.tables_read);
    ck_assert_uint_eq(after.gets, before.gets);
}
END_TEST

START_TEST(a_pinned_value_outlives_overwriting_flush_and_compaction)
{
    tamis_pinned in_memory;
    tamis_pinned in_table;
    char text[32];

    one.options.block_cache_bytes = 0;
    one_store_reopen();
    one_put(tamis_text("table"), tamis_text("old value in a table"));
    one_compact();
    one_put(tamis_text("memory"), tamis_text("old value in memory"));
    check_ok(tamis_get_pinned(one.db, NULL, tamis_text("table"), &in_table, &one.err), one.err);
    check_ok(tamis_get_pinned(one.db, NULL, tamis_text("memory"), &in_memory, &one.err), one.err);
    for (unsigned round = 0; round < 3; round++) {
        one_put(tamis_text("table"), tamis_text("new"));
        one_delete(tamis_text("memory"));
        for (unsigned i = 0; i < 1000; i++)
            one_put_number(i, round, 200);
        one_flush();
        one_compact();
        one_wait_idle();
        check_ok(tamis_verify(one.db, NULL, NULL, &one.err), one.err);
        ck_assert(tm_slice_equal(in_table.value, tamis_text("old value in a table")));
        ck_assert(tm_slice_equal(in_memory.value, tamis_text("old value in memory")));
        check_status(tamis_get(one.db, NULL, one_key(text, 1000), NULL, 0, &(size_t){0}, &one.err),
                     TAMIS_NOT_FOUND, one.err);
    }
    tamis_pinned_release(&in_table);
    tamis_pinned_release(&in_memory);
    ck_assert_uint_eq(in_table.value.length, 0);
}
END_TEST

/* ---- Iterators ------------------------------------------------------------------------------------ */

START_TEST(an_iterator_stands_nowhere_until_it_is_moved)
{
    tamis_iter *iter = NULL;

    make_layers();
    check_ok(tamis_iter_open(one.db, NULL, &iter, &one.err), one.err);
    ck_assert(!tamis_iter_valid(iter));
    tamis_iter_next(iter); // nothing happens
    ck_assert(!tamis_iter_valid(iter));
    check_ok(tamis_iter_status(iter, &one.err), one.err);
    tamis_iter_first(iter);
    ck_assert(key_is(iter, "a1"));
    tamis_iter_close(iter);
}
END_TEST

START_TEST(a_walk_gives_each_key_once_in_order_and_can_begin_again)
{
    static const char *const expected[] = {"a1", "a3", "a7", "b1", "c1"};
    tamis_iter *iter = NULL;

    make_layers();
    check_ok(tamis_iter_open(one.db, NULL, &iter, &one.err), one.err);
    for (int round = 0; round < 2; round++) {
        tamis_iter_first(iter);
        for (size_t i = 0; i < 5; i++, tamis_iter_next(iter)) {
            ck_assert(key_is(iter, expected[i]));
            ck_assert(tm_slice_equal(tamis_iter_value(iter), tamis_text(expected[i])));
        }
        for (int beyond = 0; beyond < 3; beyond++, tamis_iter_next(iter))
            ck_assert(!tamis_iter_valid(iter));
        check_ok(tamis_iter_status(iter, &one.err), one.err);
    }
    tamis_iter_seek(iter, tamis_text("a7"));
    ck_assert(key_is(iter, "a7"));
    tamis_iter_close(iter);
}
END_TEST

/* Seek to each key, and to just before and just after it. */
static void
seek_to_keys_and_gaps(unsigned key_count)
{
    tamis_iter *iter = NULL;

    check_ok(tamis_iter_open(one.db, NULL, &iter, &one.err), one.err);
    for (unsigned i = 0; i < key_count; i++) {
        char text[32];
        char after[40];
        tamis_slice key = one_key(text, 2 * i);

        tamis_iter_seek(iter, key);
        ck_assert(key_is(iter, text));
        one_key(after, 2 * i);
        strcat(after, "x");
        tamis_iter_seek(iter, tamis_text(after));
        if (i + 1 == key_count) {
            ck_assert(!tamis_iter_valid(iter));
        } else {
            ck_assert(key_is(iter, (one_key(text, 2 * i + 2), text)));
            tamis_iter_seek(iter, one_key(after, 2 * i + 1));
            ck_assert(key_is(iter, text));
        }
    }
    tamis_iter_seek(iter, tamis_text(""));
    ck_assert(key_is(iter, "k00000000"));
    tamis_iter_seek(iter, tamis_text("\xff\xff"));
    ck_assert(!tamis_iter_valid(iter));
    check_ok(tamis_iter_status(iter, &one.err), one.err);
    tamis_iter_close(iter);
}

START_TEST(a_seek_finds_every_key_and_every_gap)
{
    const unsigned key_count = 2000;

    one.options.block_bytes = 256; // many borders
    one_store_reopen();
    for (unsigned i = 0; i < key_count; i++)
        one_put_number(2 * i, 1, 20);
    seek_to_keys_and_gaps(key_count);
    one_flush();
    seek_to_keys_and_gaps(key_count);
    one_compact();
    seek_to_keys_and_gaps(key_count);
    for (unsigned i = 0; i < key_count; i += 3)
        one_put_number(2 * i, 2, 20);
    seek_to_keys_and_gaps(key_count);
}
END_TEST

struct walk {
    const char *lower; // NULL: unbounded
    const char *upper;
    const char *seek;     // NULL: first
    const char *expected; // keys with a blank behind each
};

static void
check_walk(const struct walk *walk)
{
    tamis_slice lower = tamis_text(walk->lower != NULL ? walk->lower : "");
    tamis_slice upper = tamis_text(walk->upper != NULL ? walk->upper : "");
    tamis_iter_options options;
    tamis_iter *iter = NULL;
    char found[256] = "";
    size_t length = 0;

    tamis_iter_options_init(&options);
    options.lower = walk->lower != NULL ? &lower : NULL;
    options.upper = walk->upper != NULL ? &upper : NULL;
    check_ok(tamis_iter_open(one.db, &options, &iter, &one.err), one.err);
    lower = upper = tamis_text("zzz"); // copied at opening
    if (walk->seek != NULL)
        tamis_iter_seek(iter, tamis_text(walk->seek));
    else
        tamis_iter_first(iter);
    for (; tamis_iter_valid(iter); tamis_iter_next(iter)) {
        tamis_slice key = tamis_iter_key(iter);

        length += (size_t)snprintf(found + length, sizeof found - length, "%.*s ", (int)key.length,
                                   (const char *)key.data);
    }
    check_ok(tamis_iter_status(iter, &one.err), one.err);
    tamis_iter_close(iter);
    ck_assert_msg(strcmp(found, walk->expected) == 0, "%s..%s from %s: expected %s, found %s",
                  walk->lower, walk->upper, walk->seek, walk->expected, found);
}

START_TEST(bounds_are_inclusive_below_and_exclusive_above)
{
    static const struct walk walks[] = {
        {NULL, NULL, NULL, "a1 a3 a7 b1 c1 "},
        {"a3", NULL, NULL, "a3 a7 b1 c1 "},
        {NULL, "b1", NULL, "a1 a3 a7 "},
        {"a3", "b1", NULL, "a3 a7 "},
        {"a2", "a8", NULL, "a3 a7 "},
        {"a5", "a6", NULL, ""}, // a deleted key alone
        {"a5", "b2", NULL, "a7 b1 "},
        {"", "", NULL, ""}, // nothing is below the empty key
        {"a3", "a3", NULL, ""},
        {"b", "a", NULL, ""}, // upside down
        {"c2", NULL, NULL, ""},
        {NULL, "a1", NULL, ""},
        {NULL, "0", NULL, ""},
        {"z", "zz", NULL, ""},
        {"a3", "b1", "a", "a3 a7 "}, // a seek before the bounds begins with the first
        {"a3", "b1", "a4", "a7 "},
        {"a3", "b1", "b1", ""}, // a seek behind them ends the walk
        {"a3", "b1", "c", ""},
        {"b", "a", "a1", ""},
        {NULL, NULL, "a5", "a7 b1 c1 "},
        {NULL, NULL, "zzz", ""},
    };

    make_layers();
    for (size_t i = 0; i < sizeof walks / sizeof walks[0]; i++)
        check_walk(&walks[i]);
    one_flush();
    for (size_t i = 0; i < sizeof walks / sizeof walks[0]; i++)
        check_walk(&walks[i]);
    one_compact();
    for (size_t i = 0; i < sizeof walks / sizeof walks[0]; i++)
        check_walk(&walks[i]);
}
END_TEST

START_TEST(a_walk_over_nothing_is_empty_and_ok)
{
    static const struct walk walks[] = {
        {NULL, NULL, NULL, ""}, {NULL, NULL, "k", ""}, {"a", "b", NULL, ""}, {"", "z", "", ""}};

    for (size_t i = 0; i < 4; i++)
        check_walk(&walks[i]);
    one_put(tamis_text("k"), tamis_text("v"));
    one_delete(tamis_text("k"));
    for (size_t i = 0; i < 4; i++)
        check_walk(&walks[i]);
    one_flush();
    for (size_t i = 0; i < 4; i++)
        check_walk(&walks[i]);
}
END_TEST

START_TEST(a_walk_sees_the_store_as_it_was_when_it_was_opened)
{
    const unsigned key_count = 1000;
    tamis_iter *iter = NULL;
    unsigned count = 0;

    for (unsigned i = 0; i < key_count; i++)
        one_put_number(i, 1, 100);
    check_ok(tamis_iter_open(one.db, NULL, &iter, &one.err), one.err);
    tamis_iter_first(iter);
    for (; tamis_iter_valid(iter); tamis_iter_next(iter), count++) {
        unsigned head[2];
        char text[32];

        ck_assert(key_is(iter, (one_key(text, count), text)));
        memcpy(head, tamis_iter_value(iter).data, sizeof head);
        ck_assert_uint_eq(head[1], 1);
        // Ahead of the walk: overwritten, deleted, new.
        one_put_number(count + 1, 2, 100);
        one_delete_number(count + 2);
        one_put_number(key_count + count, 2, 100);
        if (count % 250 == 100)
            one_flush();
        if (count % 250 == 200)
            one_compact();
    }
    check_ok(tamis_iter_status(iter, &one.err), one.err);
    ck_assert_uint_eq(count, key_count);
    tamis_iter_seek(iter, tamis_text("k00000500"));
    ck_assert(key_is(iter, "k00000500"));
    tamis_iter_close(iter);
}
END_TEST

START_TEST(many_iterators_at_once_do_not_disturb_one_another)
{
    enum { COUNT = 100 };
    tamis_iter *iters[COUNT];

    for (unsigned i = 0; i < COUNT; i++) {
        one_put_number(i, i, 1000);
        check_ok(tamis_iter_open(one.db, NULL, &iters[i], &one.err), one.err);
        tamis_iter_first(iters[i]);
    }
    one_compact();
    for (unsigned i = 0; i < COUNT; i++) {
        unsigned count = 0;

        for (; tamis_iter_valid(iters[i]); tamis_iter_next(iters[i]))
            count++;
        check_ok(tamis_iter_status(iters[i], &one.err), one.err);
        ck_assert_uint_eq(count, i + 1);
        tamis_iter_close(iters[i]);
    }
}
END_TEST

/* ---- Snapshots ------------------------------------------------------------------------------------ */

START_TEST(a_snapshot_sees_what_was_there_when_it_was_taken)
{
    enum { COUNT = 20 };
    tamis_snapshot *snapshots[COUNT];

    for (unsigned version = 0; version < COUNT; version++) {
        for (unsigned number = 0; number < 50; number++)
            one_put_number(number, version, 100);
        one_delete_number(version); // from this version on until the next
        check_ok(tamis_snapshot_take(one.db, &snapshots[version], &one.err), one.err);
        if (version % 3 == 0)
            one_flush();
        if (version % 7 == 0)
            one_compact();
    }
    one_compact();
    for (unsigned round = 0; round < 2; round++) {
        for (unsigned version = round; version < COUNT; version += 1 + round)
            for (unsigned number = 0; number < 50; number++)
                ck_assert_int_eq(one_version_at(snapshots[version], number),
                                 number == version ? -1 : (long)version);
        // Those in between go, out of their order; the others see what they saw.
        for (unsigned version = 0; round == 0 && version < COUNT; version += 2)
            tamis_snapshot_release(one.db, snapshots[version]);
        one_compact();
    }
    for (unsigned version = 1; version < COUNT; version += 2)
        tamis_snapshot_release(one.db, snapshots[version]);
    one_compact();
    ck_assert_uint_eq(one_stats().total.entry_count, 49); // nothing is kept for nobody
}
END_TEST

START_TEST(a_tombstone_at_the_bottom_hides_and_goes_with_the_snapshot)
{
    tamis_snapshot *snapshot = NULL;

    one_put_number(1, 1, 100);
    one_compact();
    check_ok(tamis_snapshot_take(one.db, &snapshot, &one.err), one.err);
    one_delete_number(1);
    one_flush();
    one_compact();
    ck_assert_int_eq(one_version_at(snapshot, 1), 1);
    ck_assert_int_eq(one_version(1), -1);
    tamis_snapshot_release(one.db, snapshot);
    one_compact();
    ck_assert_int_eq(one_version(1), -1);
    one_store_reopen();
    ck_assert_int_eq(one_version(1), -1);
    ck_assert_uint_eq(one_stats().total.entry_count, 0);
    ck_assert_uint_eq(one_stats().total.file_count, 0);
}
END_TEST

/* Delete all that a walk at a snapshot finds, in one batch; returns how many. */
static unsigned
delete_what_is_seen(void)
{
    tamis_snapshot *snapshot = NULL;
    tamis_batch *batch = NULL;
    tamis_iter *iter = NULL;
    tamis_iter_options options;
    unsigned count = 0;

    check_ok(tamis_snapshot_take(one.db, &snapshot, &one.err), one.err);
    check_ok(tamis_batch_create(NULL, &batch, &one.err), one.err);
    tamis_iter_options_init(&options);
    options.snapshot = snapshot;
    check_ok(tamis_iter_open(one.db, &options, &iter, &one.err), one.err);
    for (tamis_iter_first(iter); tamis_iter_valid(iter); tamis_iter_next(iter), count++)
        check_ok(tamis_batch_delete(batch, tamis_iter_key(iter), &one.err), one.err);
    check_ok(tamis_iter_status(iter, &one.err), one.err);
    tamis_iter_close(iter);
    check_ok(tamis_write(one.db, NULL, batch, &one.err), one.err);
    tamis_snapshot_release(one.db, snapshot);
    tamis_batch_destroy(batch);
    return count;
}

START_TEST(what_was_seen_at_a_snapshot_and_deleted_is_not_seen_again)
{
    tamis_batch *batch = NULL;

    check_ok(tamis_batch_create(NULL, &batch, &one.err), one.err);
    for (unsigned round = 0; round < 200 / ONE_STORE_DIVISOR; round++) {
        tamis_batch_clear(batch);
        for (unsigned i = 0; i < 50; i++) {
            char text[32];

            snprintf(text, sizeof text, "r%u-%u", round, i);
            check_ok(tamis_batch_put(batch, tamis_text(text), tamis_text(text), &one.err), one.err);
        }
        check_ok(tamis_write(one.db, NULL, batch, &one.err), one.err);
        ck_assert_uint_eq(delete_what_is_seen(), 50);
        ck_assert_uint_eq(one_count_keys(), 0);
        if (round % 2 == 1)
            one_compact();
        if (round % 20 == 19)
            one_store_reopen();
        ck_assert_uint_eq(one_count_keys(), 0);
    }
    tamis_batch_destroy(batch);
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("reads");
    TCase *tests = tcase_create("reads");

    tcase_set_timeout(tests, 0);
    tcase_add_checked_fixture(tests, one_store_begin, one_store_end);
    tcase_add_test(tests, get_fills_what_it_was_given_and_tells_the_whole_length);
    tcase_add_test(tests, the_newest_version_counts_wherever_it_is);
    tcase_add_test(tests, may_exist_never_denies_what_is_there_and_asks_no_file);
    tcase_add_test(tests, a_pinned_value_outlives_overwriting_flush_and_compaction);
    tcase_add_test(tests, an_iterator_stands_nowhere_until_it_is_moved);
    tcase_add_test(tests, a_walk_gives_each_key_once_in_order_and_can_begin_again);
    tcase_add_test(tests, a_seek_finds_every_key_and_every_gap);
    tcase_add_test(tests, bounds_are_inclusive_below_and_exclusive_above);
    tcase_add_test(tests, a_walk_over_nothing_is_empty_and_ok);
    tcase_add_test(tests, a_walk_sees_the_store_as_it_was_when_it_was_opened);
    tcase_add_test(tests, many_iterators_at_once_do_not_disturb_one_another);
    tcase_add_test(tests, a_snapshot_sees_what_was_there_when_it_was_taken);
    tcase_add_test(tests, a_tombstone_at_the_bottom_hides_and_goes_with_the_snapshot);
    tcase_add_test(tests, what_was_seen_at_a_snapshot_and_deleted_is_not_seen_again);
    suite_add_tcase(suite, tests);
    return check_run(suite);
}
