/* SPDX-License-Identifier: MIT
 *
 * tests/engine/test_iterator.c -- walks: every key and gap, bounds, what was written behind the walker, and snapshots.
 */
#include "tests/engine/one_store.h"

#include "sstable/env.h"

static tamis_iter *
open_iter(const tamis_slice *lower, const tamis_slice *upper, const tamis_snapshot *snapshot)
{
    tamis_iter_options options;
    tamis_iter *iter = NULL;

    tamis_iter_options_init(&options);
    options.lower = lower;
    options.upper = upper;
    options.snapshot = snapshot;
    check_ok(tamis_iter_open(one.db, &options, &iter, &one.err), one.err);
    return iter;
}

/* The iterator stands on `key` (NULL: nowhere). */
static void
check_at(const tamis_iter *iter, const char *key)
{
    check_ok(tamis_iter_status(iter, &one.err), one.err);
    ck_assert_int_eq(tamis_iter_valid(iter), key != NULL);
    if (key != NULL)
        ck_assert_msg(tm_slice_equal(tamis_iter_key(iter), tamis_text(key)),
                      "expected %s, found %.*s", key, (int)tamis_iter_key(iter).length,
                      (const char *)tamis_iter_key(iter).data);
}

START_TEST(an_iterator_stands_nowhere_until_it_is_told_where)
{
    tamis_iter *iter;

    one_put(tamis_text("a"), tamis_text("1"));
    iter = open_iter(NULL, NULL, NULL);
    check_at(iter, NULL);
    tamis_iter_next(iter); // nothing happens
    check_at(iter, NULL);
    tamis_iter_first(iter);
    check_at(iter, "a");
    tamis_iter_next(iter);
    check_at(iter, NULL);
    tamis_iter_next(iter);
    check_at(iter, NULL);
    tamis_iter_seek(iter, tamis_text(""));
    check_at(iter, "a");
    tamis_iter_close(iter);
    tamis_iter_close(NULL);
}
END_TEST

START_TEST(a_walk_sees_nothing_that_was_written_behind_it)
{
    tamis_iter *iter;
    char text[32];

    one_put(tamis_text("m10"), tamis_text("a"));
    one_put(tamis_text("m30"), tamis_text("c"));
    iter = open_iter(NULL, NULL, NULL);
    tamis_iter_seek(iter, tamis_text("m10"));
    one_put(tamis_text("m20"), tamis_text("b"));
    one_put(tamis_text("m30"), tamis_text("c2"));
    one_delete(tamis_text("m10"));
    for (int i = 0; i < 100; i++) {
        snprintf(text, sizeof text, "m2%d", i);
        one_put(tamis_text(text), tamis_text("x"));
        if (i == 50)
            one_compact();
        tamis_iter_first(iter);
        check_at(iter, "m10");
        tamis_iter_next(iter);
        check_at(iter, "m30");
        ck_assert(tm_slice_equal(tamis_iter_value(iter), tamis_text("c")));
        tamis_iter_next(iter);
        check_at(iter, NULL);
    }
    tamis_iter_close(iter);
    iter = open_iter(NULL, NULL, NULL);
    tamis_iter_first(iter);
    check_at(iter, "m20");
    tamis_iter_seek(iter, tamis_text("m3"));
    check_at(iter, "m30");
    ck_assert(tm_slice_equal(tamis_iter_value(iter), tamis_text("c2")));
    tamis_iter_close(iter);
}
END_TEST

START_TEST(deleted_keys_are_stepped_over)
{
    for (int round = 0; round < 3; round++) {
        tamis_iter *iter;

        if (round == 0) {
            for (const char *key = "a\0b\0c\0d\0e\0"; *key != 0; key += 2)
                one_put(tamis_text(key), tamis_text("1"));
            one_flush();
            one_delete(tamis_text("b"));
            one_delete(tamis_text("d"));
            one_put(tamis_text("c"), tamis_text("33"));
        } else if (round == 1) {
            one_flush();
        } else {
            one_compact();
        }
        iter = open_iter(NULL, NULL, NULL);
        tamis_iter_seek(iter, tamis_text("b"));
        check_at(iter, "c");
        ck_assert(tm_slice_equal(tamis_iter_value(iter), tamis_text("33")));
        tamis_iter_next(iter);
        check_at(iter, "e");
        tamis_iter_next(iter);
        check_at(iter, NULL);
        tamis_iter_seek(iter, tamis_text("d"));
        check_at(iter, "e");
        tamis_iter_first(iter);
        check_at(iter, "a");
        tamis_iter_next(iter);
        check_at(iter, "c");
        tamis_iter_close(iter);
    }
}
END_TEST

START_TEST(a_seek_to_a_prefix_that_is_no_key_asks_no_filter_and_finds_the_next)
{
    const char *keys[] = {"ki", "kilo", "kilt"};
    const struct {
        const char *key, *found;
    } seeks[] = {{"k", "ki"}, {"ki", "ki"}, {"kil", "kilo"}, {"kilp", "kilt"}, {"kim", NULL}};
    tamis_iter *iter;

    for (size_t i = 0; i < 3; i++) {
        one_put(tamis_text(keys[i]), tamis_text("1"));
        one_flush();
    }
    iter = open_iter(NULL, NULL, NULL);
    for (size_t i = 0; i < sizeof seeks / sizeof seeks[0]; i++) {
        tamis_iter_seek(iter, tamis_text(seeks[i].key));
        check_at(iter, seeks[i].found);
    }
    tamis_iter_close(iter);
    ck_assert_uint_eq(one_count_keys(), 3);
    ck_assert_uint_eq(one_stats().total.filter_probes, 0);
}
END_TEST

START_TEST(bounds_hold_for_first_seek_and_next)
{
    char lower_text[32], upper_text[32], text[32];
    tamis_slice lower = one_key(lower_text, 20);
    tamis_slice upper = one_key(upper_text, 40);
    tamis_iter *iter;

    for (unsigned i = 0; i < 100; i++) {
        one_put_number(i, 0, 100);
        if (i % 20 == 19 && i != 99)
            one_flush(); // the rest stays in the memtable
    }
    iter = open_iter(&lower, &upper, NULL);
    memset(lower_text, 'z', sizeof lower_text); // bounds were copied
    memset(upper_text, 'a', sizeof upper_text);
    tamis_iter_first(iter);
    for (unsigned i = 20; i < 40; i++) {
        check_at(iter, one_key(text, i).data);
        tamis_iter_next(iter);
    }
    check_at(iter, NULL);
    tamis_iter_seek(iter, one_key(text, 5));
    check_at(iter, one_key(text, 20).data);
    tamis_iter_seek(iter, one_key(text, 39));
    check_at(iter, text);
    tamis_iter_seek(iter, one_key(text, 40));
    check_at(iter, NULL);
    tamis_iter_close(iter);
    lower = one_key(lower_text, 30);
    iter = open_iter(&lower, &lower, NULL); // empty
    tamis_iter_first(iter);
    check_at(iter, NULL);
    tamis_iter_close(iter);
    upper = one_key(upper_text, 10);
    iter = open_iter(&lower, &upper, NULL); // backwards: empty
    tamis_iter_first(iter);
    check_at(iter, NULL);
    tamis_iter_seek(iter, one_key(text, 15));
    check_at(iter, NULL);
    tamis_iter_close(iter);
}
END_TEST

START_TEST(every_key_and_every_gap_is_found_at_the_edges_of_blocks)
{
    const size_t value_bytes[] = {20, 1000}; // many a block, and one a block
    const uint32_t block_bytes[] = {64, 256};

    for (size_t set = 0; set < 4; set++) {
        tamis_iter *iter;
        char text[32];

        one_store_close();
        check_ok(tamis_destroy(one.path, NULL, &one.err), one.err);
        one.options.block_bytes = block_bytes[set / 2];
        one_store_open();
        for (unsigned i = 0; i < 1000; i++)
            one_put_number(2 * i, 0, value_bytes[set % 2]);
        one_compact();
        iter = open_iter(NULL, NULL, NULL);
        for (unsigned i = 0; i < 1000; i++) {
            tamis_iter_seek(iter, one_key(text, 2 * i));
            check_at(iter, text);
            tamis_iter_seek(iter, one_key(text, 2 * i + 1));
            check_at(iter, i == 999 ? NULL : one_key(text, 2 * i + 2).data);
        }
        tamis_iter_seek(iter, tamis_text("a"));
        check_at(iter, one_key(text, 0).data);
        tamis_iter_seek(iter, tamis_text("z"));
        check_at(iter, NULL);
        tamis_iter_close(iter);
    }
}
END_TEST

START_TEST(keys_with_a_long_common_prefix_are_told_apart)
{
    char text[256];
    tamis_iter *iter;

    one_store_close();
    one.options.block_bytes = 1024;
    one_store_open();
    memset(text, 'p', 200);
    for (unsigned i = 0; i < 5000; i++) {
        snprintf(text + 200, sizeof text - 200, "%05u", i * 1237 % 5000);
        one_put(tamis_text(text), tamis_text(text + 200));
        if (i % 1700 == 1699)
            one_flush();
    }
    for (int round = 0; round < 3; round++) {
        unsigned count = 0;

        for (unsigned i = 0; i < 5000; i++) {
            char value[8];
            size_t length;

            snprintf(text + 200, sizeof text - 200, "%05u", i);
            check_ok(
                tamis_get(one.db, NULL, tamis_text(text), value, sizeof value, &length, &one.err),
                one.err);
            ck_assert_uint_eq(length, 5);
            ck_assert_mem_eq(value, text + 200, 5);
        }
        iter = open_iter(NULL, NULL, NULL);
        for (tamis_iter_first(iter); tamis_iter_valid(iter); tamis_iter_next(iter)) {
            snprintf(text + 200, sizeof text - 200, "%05u", count++);
            check_at(iter, text);
        }
        tamis_iter_close(iter);
        ck_assert_uint_eq(count, 5000);
        if (round == 0)
            one_compact();
        else
            one_store_reopen();
    }
}
END_TEST

START_TEST(what_is_deleted_after_a_snapshot_walk_stays_deleted)
{
    unsigned round_count = 200 / ONE_STORE_DIVISOR;
    tamis_batch *batch = NULL;

    check_ok(tamis_batch_create(NULL, &batch, &one.err), one.err);
    for (unsigned round = 0; round < round_count; round++) {
        tamis_snapshot *snapshot = NULL;
        tamis_iter *iter;
        unsigned count = 0;

        tamis_batch_clear(batch);
        for (unsigned i = 0; i < 50; i++) {
            char text[32];

            snprintf(text, sizeof text, "r%u-%u", round, i);
            check_ok(tamis_batch_put(batch, tamis_text(text), tamis_text("value"), &one.err),
                     one.err);
        }
        check_ok(tamis_write(one.db, NULL, batch, &one.err), one.err);
        check_ok(tamis_snapshot_take(one.db, &snapshot, &one.err), one.err);
        tamis_batch_clear(batch);
        iter = open_iter(NULL, NULL, snapshot);
        for (tamis_iter_first(iter); tamis_iter_valid(iter); tamis_iter_next(iter), count++)
            check_ok(tamis_batch_delete(batch, tamis_iter_key(iter), &one.err), one.err);
        tamis_iter_close(iter);
        ck_assert_uint_eq(count, 50);
        check_ok(tamis_write(one.db, NULL, batch, &one.err), one.err);
        tamis_snapshot_release(one.db, snapshot);
        ck_assert_uint_eq(one_count_keys(), 0);
        if (round % 2 == 1)
            one_compact();
        if (round % 20 == 19)
            one_store_reopen();
    }
    tamis_batch_destroy(batch);
}
END_TEST

static void
check_duplicates(const tamis_snapshot *before)
{
    char value[8];
    size_t length;
    tamis_iter *iter;

    check_ok(tamis_get(one.db, NULL, tamis_text("x"), value, sizeof value, &length, &one.err),
             one.err);
    ck_assert_uint_eq(length, 1);
    ck_assert_int_eq(value[0], '2');
    check_status(tamis_get(one.db, NULL, tamis_text("y"), value, sizeof value, &length, &one.err),
                 TAMIS_NOT_FOUND, one.err);
    ck_assert_uint_eq(one_count_keys(), 1);
    if (before != NULL) {
        iter = open_iter(NULL, NULL, before);
        tamis_iter_first(iter);
        check_at(iter, NULL);
        tamis_iter_close(iter);
    }
}

START_TEST(the_last_operation_of_a_batch_on_a_key_counts)
{
    tamis_snapshot *before = NULL;
    tamis_batch *batch = NULL;

    check_ok(tamis_snapshot_take(one.db, &before, &one.err), one.err);
    check_ok(tamis_batch_create(NULL, &batch, &one.err), one.err);
    check_ok(tamis_batch_put(batch, tamis_text("x"), tamis_text("1"), &one.err), one.err);
    check_ok(tamis_batch_delete(batch, tamis_text("x"), &one.err), one.err);
    check_ok(tamis_batch_put(batch, tamis_text("x"), tamis_text("2"), &one.err), one.err);
    check_ok(tamis_batch_put(batch, tamis_text("y"), tamis_text("1"), &one.err), one.err);
    check_ok(tamis_batch_delete(batch, tamis_text("y"), &one.err), one.err);
    check_ok(tamis_batch_put(batch, tamis_text("x"), tamis_text("2"), &one.err), one.err);
    check_ok(tamis_write(one.db, NULL, batch, &one.err), one.err);
    ck_assert_uint_eq(tamis_batch_count(batch), 6); // unchanged
    tamis_batch_destroy(batch);
    check_duplicates(before);
    one_flush();
    check_duplicates(before);
    one_compact();
    check_duplicates(before);
    tamis_snapshot_release(one.db, before);
    one_compact();
    ck_assert_uint_eq(one_stats().total.entry_count, 1);
    one_store_reopen();
    check_duplicates(NULL);
}
END_TEST

START_TEST(one_batch_serves_many_large_writes)
{
    unsigned write_count = 40 / ONE_STORE_DIVISOR;
    tamis_batch *batch = NULL;
    char text[32];

    one_store_close();
    one.options.write_buffer_bytes = 4 << 20;
    one_store_open();
    check_ok(tamis_batch_create(NULL, &batch, &one.err), one.err);
    for (unsigned round = 0; round < write_count; round++) {
        char value[100];

        memset(value, 'v', sizeof value);
        tamis_batch_clear(batch);
        ck_assert_uint_eq(tamis_batch_count(batch), 0);
        for (unsigned i = 0; i < 9000; i++)
            check_ok(tamis_batch_put(batch, one_key(text, round * 9000 + i),
                                     (tamis_slice){value, sizeof value}, &one.err),
                     one.err);
        check_ok(tamis_write(one.db, NULL, batch, &one.err), one.err);
    }
    tamis_batch_clear(batch);
    ck_assert_uint_eq(tamis_batch_count(batch), 0);
    tamis_batch_destroy(batch);
    ck_assert_uint_eq(one_count_keys(), write_count * 9000);
    ck_assert_uint_le(one_stats().memory_memtables_bytes, 4 * one.options.write_buffer_bytes);
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("iterator");
    TCase *tests = tcase_create("iterator");

    tcase_set_timeout(tests, 0);
    tcase_add_checked_fixture(tests, one_store_begin, one_store_end);
    tcase_add_test(tests, an_iterator_stands_nowhere_until_it_is_told_where);
    tcase_add_test(tests, a_walk_sees_nothing_that_was_written_behind_it);
    tcase_add_test(tests, deleted_keys_are_stepped_over);
    tcase_add_test(tests, a_seek_to_a_prefix_that_is_no_key_asks_no_filter_and_finds_the_next);
    tcase_add_test(tests, bounds_hold_for_first_seek_and_next);
    tcase_add_test(tests, every_key_and_every_gap_is_found_at_the_edges_of_blocks);
    tcase_add_test(tests, keys_with_a_long_common_prefix_are_told_apart);
    tcase_add_test(tests, what_is_deleted_after_a_snapshot_walk_stays_deleted);
    tcase_add_test(tests, the_last_operation_of_a_batch_on_a_key_counts);
    tcase_add_test(tests, one_batch_serves_many_large_writes);
    suite_add_tcase(suite, tests);
    return check_run(suite);
}
