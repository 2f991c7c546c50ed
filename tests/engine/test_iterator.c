/* SPDX-License-Identifier: MIT
 *
 * tests/engine/test_iterator.c -- walks: where they stand, bounds over several tables, deleted keys, and what was written behind the walker.
 */
#include "tests/engine/one_store.h"

#include "sstable/env.h"

static tamis_iter *
open_iter(const tamis_slice *lower, const tamis_slice *upper)
{
    tamis_iter_options options;
    tamis_iter *iter = NULL;

    tamis_iter_options_init(&options);
    options.lower = lower;
    options.upper = upper;
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
    iter = open_iter(NULL, NULL);
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
    iter = open_iter(NULL, NULL);
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
    iter = open_iter(NULL, NULL);
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
        iter = open_iter(NULL, NULL);
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
    iter = open_iter(NULL, NULL);
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
    iter = open_iter(&lower, &upper);
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
    iter = open_iter(&lower, &lower); // empty
    tamis_iter_first(iter);
    check_at(iter, NULL);
    tamis_iter_close(iter);
    upper = one_key(upper_text, 10);
    iter = open_iter(&lower, &upper); // backwards: empty
    tamis_iter_first(iter);
    check_at(iter, NULL);
    tamis_iter_seek(iter, one_key(text, 15));
    check_at(iter, NULL);
    tamis_iter_close(iter);
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
    suite_add_tcase(suite, tests);
    return check_run(suite);
}
