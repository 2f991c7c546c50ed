/* SPDX-License-Identifier: MIT
 *
 * tests/engine/test_iterator.c -- walks: where they stand, bounds over several tables, deleted keys, what was written behind the
 * walker, and damage.
 */
#include <unistd.h>

#include "sstable/env.h"
#include "tests/engine/one_store.h"

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

/* ---- Walks that went wrong in other stores, by public reports (tests/CASES.md) ------------------------- */

static void
check_at_number(const tamis_iter *iter, unsigned number)
{
    char text[32];

    one_key(text, number);
    check_at(iter, text);
}

/* google/leveldb #206: Prev and Next repeat or stick. */
START_TEST(stepping_back_and_on_ignores_what_was_put_behind_the_iterator)
{
    tamis_iter *iter;
    char text[32];

    one_put(tamis_text("m10"), tamis_text("a"));
    one_put(tamis_text("m30"), tamis_text("c"));
    iter = open_iter(NULL, NULL);
    tamis_iter_seek(iter, tamis_text("m30"));
    one_put(tamis_text("m20"), tamis_text("b"));
    one_put(tamis_text("m30"), tamis_text("c2"));
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < 50; i++) {
            tamis_iter_prev(iter);
            check_at(iter, "m10");
            tamis_iter_next(iter);
            check_at(iter, "m30");
            ck_assert(tm_slice_equal(tamis_iter_value(iter), tamis_text("c")));
            snprintf(text, sizeof text, "m2%02dx%d", i, round);
            one_put(tamis_text(text), tamis_text("x"));
        }
        one_flush();
    }
    tamis_iter_close(iter);
    iter = open_iter(NULL, NULL);
    tamis_iter_first(iter);
    check_at(iter, "m10");
    tamis_iter_next(iter);
    check_at(iter, "m20");
    tamis_iter_last(iter);
    check_at(iter, "m30");
    ck_assert(tm_slice_equal(tamis_iter_value(iter), tamis_text("c2")));
    tamis_iter_close(iter);
    ck_assert_uint_eq(one_count_keys(), 103);
}
END_TEST

/* google/leveldb #35: Prev lands wrongly beside deletions. */
START_TEST(stepping_back_passes_over_deleted_keys)
{
    for (int round = 0; round < 3; round++) {
        tamis_iter *iter;

        for (const char *key = "a\0b\0c\0d\0e\0"; *key != 0; key += 2)
            one_put(tamis_text(key), tamis_text("1"));
        one_flush();
        one_delete(tamis_text("b"));
        one_delete(tamis_text("d"));
        one_put(tamis_text("c"), tamis_text("33"));
        if (round == 1)
            one_flush();
        else if (round == 2)
            one_compact();
        iter = open_iter(NULL, NULL);
        tamis_iter_last(iter);
        check_at(iter, "e");
        tamis_iter_prev(iter);
        check_at(iter, "c");
        ck_assert(tm_slice_equal(tamis_iter_value(iter), tamis_text("33")));
        tamis_iter_prev(iter);
        check_at(iter, "a");
        tamis_iter_prev(iter);
        check_at(iter, NULL);
        tamis_iter_seek(iter, tamis_text("b"));
        check_at(iter, "c");
        tamis_iter_prev(iter);
        check_at(iter, "a");
        tamis_iter_next(iter);
        check_at(iter, "c");
        tamis_iter_next(iter);
        check_at(iter, "e");
        tamis_iter_next(iter);
        check_at(iter, NULL);
        tamis_iter_seek(iter, tamis_text("d"));
        check_at(iter, "e");
        tamis_iter_prev(iter);
        check_at(iter, "c");
        tamis_iter_close(iter);
        one_delete(tamis_text("a"));
        one_delete(tamis_text("e"));
        iter = open_iter(NULL, NULL);
        tamis_iter_first(iter);
        check_at(iter, "c");
        tamis_iter_last(iter);
        check_at(iter, "c");
        tamis_iter_close(iter);
    }
}
END_TEST

/* facebook/rocksdb #9904, #3199, #544: SeekToLast and Prev with an upper bound. */
START_TEST(bounds_hold_for_last_and_prev_over_tables_and_memtable)
{
    char from_text[32], to_text[32], longer[40], text[32];
    tamis_slice from = one_key(from_text, 20);
    tamis_slice to = one_key(to_text, 40);
    tamis_slice beyond_39;
    tamis_iter *iter;

    for (unsigned i = 0; i < 100; i++) {
        one_put_number(i * 37 % 100, 1, 20);
        if (i % 20 == 19 && i < 90)
            one_flush();
    }
    iter = open_iter(&from, &to);
    tamis_iter_last(iter);
    check_at_number(iter, 39);
    tamis_iter_first(iter);
    check_at_number(iter, 20);
    tamis_iter_seek(iter, one_key(text, 5));
    check_at_number(iter, 20);
    tamis_iter_seek(iter, to);
    check_at(iter, NULL);
    tamis_iter_last(iter);
    for (unsigned i = 0; i < 19; i++)
        tamis_iter_prev(iter);
    check_at_number(iter, 20);
    tamis_iter_prev(iter);
    check_at(iter, NULL);
    tamis_iter_close(iter);

    one_delete_number(39);
    iter = open_iter(&from, &to);
    tamis_iter_last(iter);
    check_at_number(iter, 38);
    tamis_iter_close(iter);
    (void)one_key(text, 39);
    snprintf(longer, sizeof longer, "%sx", text);
    beyond_39 = tamis_text(longer);
    iter = open_iter(&from, &beyond_39);
    tamis_iter_last(iter);
    check_at_number(iter, 38);
    tamis_iter_close(iter);
    for (int i = 0; i < 2; i++) { // a range of nothing, and one that ends before it begins
        iter = open_iter(&to, i == 0 ? &to : &from);
        tamis_iter_first(iter);
        check_at(iter, NULL);
        tamis_iter_last(iter);
        check_at(iter, NULL);
        tamis_iter_seek(iter, one_key(text, 30));
        check_at(iter, NULL);
        tamis_iter_close(iter);
    }
}
END_TEST

/* fjall-rs/lsm-tree #165, #166: keys missed at the edges of blocks. */
START_TEST(a_step_back_from_every_key_and_gap_gives_the_neighbour)
{
    enum { COUNT = 1000 / ONE_STORE_DIVISOR };
    const size_t value_bytes[2] = {20, 1000}; // many in a block; one in a block
    tamis_iter *iter;
    char text[32];

    one.options.block_bytes = 256;
    one_store_reopen();
    for (unsigned i = 0; i < COUNT; i++)
        one_put_number(2 * i, 1, value_bytes[_i]);
    one_compact();
    iter = open_iter(NULL, NULL);
    for (unsigned i = 0; i < 2 * COUNT; i++) {
        unsigned found = (i + 1) / 2 * 2;

        tamis_iter_seek(iter, one_key(text, i));
        if (found == 2 * COUNT) {
            check_at(iter, NULL);
            continue;
        }
        check_at_number(iter, found);
        tamis_iter_prev(iter);
        if (found == 0)
            check_at(iter, NULL);
        else
            check_at_number(iter, found - 2);
    }
    tamis_iter_seek(iter, tamis_text(""));
    check_at_number(iter, 0);
    tamis_iter_seek(iter, tamis_text("z"));
    check_at(iter, NULL);
    tamis_iter_close(iter);
}
END_TEST

/* ---- Damage --------------------------------------------------------------------------------------- */

static void
flip_byte_of_the_table(void)
{
    DIR *directory = opendir(one.path);
    struct dirent *entry;
    unsigned flipped = 0;

    ck_assert_ptr_nonnull(directory);
    while ((entry = readdir(directory)) != NULL)
        if (one_ends_with(entry->d_name, ".sst")) {
            int fd = openat(dirfd(directory), entry->d_name, O_RDWR);
            struct stat found;
            uint8_t byte;

            ck_assert_int_eq(fstat(fd, &found), 0);
            ck_assert_int_eq(pread(fd, &byte, 1, found.st_size / 3), 1); // in its data
            byte ^= 4;
            ck_assert_int_eq(pwrite(fd, &byte, 1, found.st_size / 3), 1);
            close(fd);
            flipped++;
        }
    closedir(directory);
    ck_assert_uint_eq(flipped, 1);
}

/* The walk goes on until it is told of the damage; never is it valid with an error. */
static unsigned
walk_into_damage(bool backward)
{
    tamis_iter *iter = open_iter(NULL, NULL);
    unsigned count = 0;

    if (backward)
        tamis_iter_last(iter);
    else
        tamis_iter_first(iter);
    while (tamis_iter_valid(iter)) {
        check_ok(tamis_iter_status(iter, &one.err), one.err);
        count++;
        if (backward)
            tamis_iter_prev(iter);
        else
            tamis_iter_next(iter);
    }
    check_status(tamis_iter_status(iter, &one.err), TAMIS_CORRUPT, one.err);
    tamis_iter_next(iter); // nothing happens
    tamis_iter_prev(iter);
    ck_assert(!tamis_iter_valid(iter));
    check_status(tamis_iter_status(iter, &one.err), TAMIS_CORRUPT, one.err);
    if (backward)
        tamis_iter_first(iter);
    else
        tamis_iter_last(iter);
    ck_assert(tamis_iter_valid(iter)); // positioned anew, away from the damage
    check_ok(tamis_iter_status(iter, &one.err), one.err);
    tamis_iter_close(iter);
    return count;
}

/* facebook/rocksdb #3558, yugabyte/yugabyte-db #27279: valid, and yet an error. */
START_TEST(a_walk_is_never_valid_with_an_error)
{
    enum { COUNT = 2000 };
    unsigned forward, backward;

    one.options.block_bytes = 512;
    one.options.write_buffer_bytes = 1 << 20; // one table
    one.options.block_cache_bytes =
        _i == 0 ? one.options.block_cache_bytes : 100; // less than a block
    one_store_reopen();
    for (unsigned i = 0; i < COUNT; i++)
        one_put_number(i, 1, 30);
    one_compact();
    ck_assert_uint_eq(one_count_keys(), COUNT);
    one_store_close();
    flip_byte_of_the_table();
    one_store_open();
    forward = walk_into_damage(false);
    backward = walk_into_damage(true);
    ck_assert_uint_gt(forward, COUNT / 10);
    ck_assert_uint_gt(backward, COUNT / 10);
    ck_assert_uint_lt(forward + backward, COUNT);
    ck_assert_uint_gt(forward + backward, COUNT - 20); // all but the block
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
    tcase_add_test(tests, stepping_back_and_on_ignores_what_was_put_behind_the_iterator);
    tcase_add_test(tests, stepping_back_passes_over_deleted_keys);
    tcase_add_test(tests, bounds_hold_for_last_and_prev_over_tables_and_memtable);
    tcase_add_loop_test(tests, a_step_back_from_every_key_and_gap_gives_the_neighbour, 0, 2);
    tcase_add_loop_test(tests, a_walk_is_never_valid_with_an_error, 0, 2);
    suite_add_tcase(suite, tests);
    return check_run(suite);
}
