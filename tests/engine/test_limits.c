/* SPDX-License-Identifier: MIT
 *
 * tests/engine/test_limits.c -- keys and values up to their limits are kept; beyond them nothing is written.
 *
 * What is too large is never touched, so that addresses without memory behind them will do.
 */
#include "tests/engine/one_store.h"

#include <sys/mman.h>
#include <sys/resource.h>

#include "sstable/env.h"
#include "tests/support/child.h"

/* Addresses for 4 GiB and more; pages appear when they are looked at. */
static const uint8_t *
make_area(size_t length)
{
    void *area = mmap(NULL, length, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    ck_assert_ptr_ne(area, MAP_FAILED);
    return area;
}

/* The value of `key` is `value`: by get, without a copy, and by a walk. */
static void
check_value(tamis_slice key, tamis_slice value)
{
    tamis_pinned pinned;
    tamis_iter *iter = NULL;
    char head[16];
    size_t length = 0;
    bool there = false;

    check_ok(tamis_get(one.db, NULL, key, head, sizeof head, &length, &one.err), one.err);
    ck_assert_uint_eq(length, value.length);
    check_ok(tamis_get_pinned(one.db, NULL, key, &pinned, &one.err), one.err);
    ck_assert(tm_slice_equal(pinned.value, value));
    tamis_pinned_release(&pinned);
    check_ok(tamis_exists(one.db, NULL, key, &there, &one.err), one.err);
    ck_assert(there);
    check_ok(tamis_iter_open(one.db, NULL, &iter, &one.err), one.err);
    tamis_iter_seek(iter, key);
    ck_assert(tamis_iter_valid(iter));
    ck_assert(tm_slice_equal(tamis_iter_key(iter), key));
    ck_assert(tm_slice_equal(tamis_iter_value(iter), value));
    tamis_iter_close(iter);
}

/* Run `check` on the memtable, on tables, after compaction and after reopening. */
static void
check_everywhere(void (*check)(void))
{
    check();
    one_flush();
    check();
    one_compact();
    check();
    one_store_reopen();
    check();
}

/* ---- Empty ---------------------------------------------------------------------------------------- */

static void
check_empty_ones(void)
{
    tamis_iter *iter = NULL;

    check_value(tm_slice(NULL, 0), tamis_text("e"));
    check_value(tamis_text("a"), tm_slice(NULL, 0));
    check_ok(tamis_iter_open(one.db, NULL, &iter, &one.err), one.err);
    tamis_iter_first(iter);
    ck_assert(tamis_iter_valid(iter));
    ck_assert_uint_eq(tamis_iter_key(iter).length, 0);
    tamis_iter_next(iter);
    ck_assert(tamis_iter_valid(iter));
    ck_assert_uint_eq(tamis_iter_key(iter).length, 1);
    ck_assert_uint_eq(tamis_iter_value(iter).length, 0);
    tamis_iter_next(iter);
    ck_assert(!tamis_iter_valid(iter));
    tamis_iter_close(iter);
}

START_TEST(empty_keys_and_empty_values_are_keys_and_values)
{
    bool there = true;

    one_put(tm_slice(NULL, 0), tamis_text("e"));
    one_put(tamis_text("a"), tm_slice(NULL, 0));
    check_everywhere(check_empty_ones);
    one_delete(tamis_text(""));
    check_ok(tamis_exists(one.db, NULL, tamis_text(""), &there, &one.err), one.err);
    ck_assert(!there);
    ck_assert_uint_eq(one_count_keys(), 1);
    one_compact();
    one_store_reopen();
    ck_assert_uint_eq(one_count_keys(), 1);
    check_value(tamis_text("a"), tm_slice(NULL, 0));
}
END_TEST

/* ---- Keys ----------------------------------------------------------------------------------------- */

enum { LONG_KEY_COUNT = 3 };
static char *long_keys[LONG_KEY_COUNT];

static void
check_long_keys(void)
{
    tamis_iter *iter = NULL;
    tamis_iter_options options;
    tamis_slice lower = {long_keys[1], TAMIS_KEY_BYTES_MAX};
    tamis_slice upper = {long_keys[2], TAMIS_KEY_BYTES_MAX};

    for (int i = 0; i < LONG_KEY_COUNT; i++)
        check_value(tm_slice(long_keys[i], TAMIS_KEY_BYTES_MAX), tamis_text("v"));
    tamis_iter_options_init(&options);
    options.lower = &lower;
    options.upper = &upper;
    check_ok(tamis_iter_open(one.db, &options, &iter, &one.err), one.err);
    tamis_iter_first(iter);
    ck_assert(tamis_iter_valid(iter));
    ck_assert(tm_slice_equal(tamis_iter_key(iter), lower));
    tamis_iter_next(iter);
    ck_assert(!tamis_iter_valid(iter));
    check_ok(tamis_iter_status(iter, &one.err), one.err);
    tamis_iter_close(iter);
}

#if !defined __SANITIZE_ADDRESS__ &&                                                               \
    !defined __SANITIZE_THREAD__ // which need more stack themselves
static int
use_long_keys(void *arg)
{
    const struct rlimit stack = {256 << 10, 256 << 10};

    (void)arg;
    if (setrlimit(RLIMIT_STACK, &stack) != 0) // threads that are started from here on have no more
        return CHILD_SKIPPED;
    one_store_open();
    check_everywhere(check_long_keys);
    one_store_close();
    return 0;
}
#endif

START_TEST(keys_of_a_mebibyte_are_kept_in_order_with_a_small_stack)
{
    tamis_snapshot *snapshot = NULL;
    tamis_batch *batch = NULL;

    for (int i = 0; i < LONG_KEY_COUNT; i++) {
        long_keys[i] = malloc(TAMIS_KEY_BYTES_MAX + 1);
        memset(long_keys[i], 'a', TAMIS_KEY_BYTES_MAX + 1);
        long_keys[i][TAMIS_KEY_BYTES_MAX - 1] = (char)('0' + i);
    }
    check_ok(tamis_batch_create(NULL, &batch, &one.err), one.err);
    for (int i = LONG_KEY_COUNT - 1; i > 0; i--)
        check_ok(tamis_batch_put(batch, tm_slice(long_keys[i], TAMIS_KEY_BYTES_MAX),
                                 tamis_text("v"), &one.err),
                 one.err);
    check_ok(tamis_write(one.db, NULL, batch, &one.err), one.err);
    tamis_batch_destroy(batch);
    one_put(tm_slice(long_keys[0], TAMIS_KEY_BYTES_MAX), tamis_text("w"));
    check_ok(tamis_snapshot_take(one.db, &snapshot, &one.err), one.err);
    one_put(tm_slice(long_keys[0], TAMIS_KEY_BYTES_MAX), tamis_text("v"));
    tamis_snapshot_release(one.db, snapshot);
    check_everywhere(check_long_keys);
#if !defined __SANITIZE_ADDRESS__ && !defined __SANITIZE_THREAD__
    one_store_close();
    ck_assert_int_eq(child_run(use_long_keys, NULL, NULL, 0), 0);
    one_store_open();
#endif
    for (int i = 0; i < LONG_KEY_COUNT; i++)
        free(long_keys[i]);
}
END_TEST

START_TEST(every_call_refuses_a_key_beyond_the_limit_and_changes_nothing)
{
    tamis_slice key = tm_slice(make_area(TAMIS_KEY_BYTES_MAX + 1), TAMIS_KEY_BYTES_MAX + 1);
    uint64_t sequence = one_stats().last_sequence;
    tamis_iter_options options;
    tamis_iter *iter = NULL;
    tamis_batch *batch = NULL;
    tamis_pinned pinned;
    char buffer[8];
    size_t length;
    bool there;

    check_status(tamis_put(one.db, NULL, key, tamis_text("v"), &one.err), TAMIS_TOO_LARGE, one.err);
    check_status(tamis_delete(one.db, NULL, key, &one.err), TAMIS_TOO_LARGE, one.err);
    check_status(tamis_get(one.db, NULL, key, buffer, sizeof buffer, &length, &one.err),
                 TAMIS_TOO_LARGE, one.err);
    check_status(tamis_get_pinned(one.db, NULL, key, &pinned, &one.err), TAMIS_TOO_LARGE, one.err);
    tamis_pinned_release(&pinned); // as after any failure
    check_status(tamis_exists(one.db, NULL, key, &there, &one.err), TAMIS_TOO_LARGE, one.err);
    check_status(tamis_may_exist(one.db, key, &there, &one.err), TAMIS_TOO_LARGE, one.err);
    check_ok(tamis_batch_create(NULL, &batch, &one.err), one.err);
    check_status(tamis_batch_put(batch, key, tamis_text("v"), &one.err), TAMIS_TOO_LARGE, one.err);
    check_status(tamis_batch_delete(batch, key, &one.err), TAMIS_TOO_LARGE, one.err);
    ck_assert_uint_eq(tamis_batch_count(batch), 0);
    ck_assert_uint_eq(tamis_batch_bytes(batch), 0);
    tamis_batch_destroy(batch);
    tamis_iter_options_init(&options);
    options.lower = &key;
    check_status(tamis_iter_open(one.db, &options, &iter, &one.err), TAMIS_TOO_LARGE, one.err);
    ck_assert_ptr_null(iter);
    options.lower = NULL;
    options.upper = &key;
    check_status(tamis_iter_open(one.db, &options, &iter, &one.err), TAMIS_TOO_LARGE, one.err);
    ck_assert_ptr_null(iter);
    ck_assert_uint_eq(one_stats().last_sequence, sequence);
    ck_assert_uint_eq(one_count_keys(), 0);
    munmap((void *)key.data, key.length);
}
END_TEST

/* ---- Values --------------------------------------------------------------------------------------- */

START_TEST(lengths_beyond_32_bits_are_refused_without_a_look_at_the_bytes)
{
    const size_t four_gibibytes = (size_t)1 << 32;
    const uint8_t *area = make_area(four_gibibytes + 32);
    const size_t lengths[] = {TAMIS_VALUE_BYTES_MAX + 1, four_gibibytes - 1, four_gibibytes,
                              four_gibibytes + 16, SIZE_MAX};
    struct one_listing before = one_list(one.path);
    tamis_batch *batch = NULL;
    size_t bytes;

    check_ok(tamis_batch_create(NULL, &batch, &one.err), one.err);
    check_ok(tamis_batch_put(batch, tamis_text("b"), tamis_text("2"), &one.err), one.err);
    bytes = tamis_batch_bytes(batch);
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        tamis_slice huge = {area, lengths[i]};

        check_status(tamis_put(one.db, NULL, tamis_text("k"), huge, &one.err), TAMIS_TOO_LARGE,
                     one.err);
        check_status(tamis_put(one.db, NULL, huge, tamis_text("v"), &one.err), TAMIS_TOO_LARGE,
                     one.err);
        check_status(tamis_delete(one.db, NULL, huge, &one.err), TAMIS_TOO_LARGE, one.err);
        check_status(tamis_batch_put(batch, tamis_text("k"), huge, &one.err), TAMIS_TOO_LARGE,
                     one.err);
        check_status(tamis_batch_put(batch, huge, tamis_text("v"), &one.err), TAMIS_TOO_LARGE,
                     one.err);
        check_status(tamis_batch_delete(batch, huge, &one.err), TAMIS_TOO_LARGE, one.err);
    }
    munmap((void *)area, four_gibibytes + 32);
    ck_assert_uint_eq(tamis_batch_count(batch), 1);
    ck_assert_uint_eq(tamis_batch_bytes(batch), bytes);
    ck_assert_uint_eq(one_stats().log_bytes_written, 0);
    ck_assert_uint_eq(one_list(one.path).digest, before.digest);
    check_ok(tamis_write(one.db, NULL, batch, &one.err), one.err);
    tamis_batch_destroy(batch);
    one_put(tamis_text("s"), tamis_text("1"));
    one_store_reopen();
    ck_assert_uint_eq(one_count_keys(), 2);
    check_value(tamis_text("s"), tamis_text("1"));
}
END_TEST

enum { LARGE_BYTES = 5 << 20 };
static uint8_t large[LARGE_BYTES];

static void
check_large_values(void)
{
    check_value(tamis_text("large"), tm_slice(large, LARGE_BYTES));
    check_value(tamis_text("larger"), tm_slice(large, LARGE_BYTES - 1));
    check_value(tamis_text("small"), tamis_text("v"));
}

START_TEST(values_larger_than_the_write_buffer_are_kept)
{
    for (size_t i = 0; i < LARGE_BYTES; i++)
        large[i] = (uint8_t)(i * i >> 7);
    one_put(tamis_text("large"), tm_slice(large, LARGE_BYTES));
    one_put(tamis_text("small"), tamis_text("v"));
    one_put(tamis_text("larger"), tm_slice(large, LARGE_BYTES - 1));
    check_everywhere(check_large_values);
    one.options.compression = TAMIS_COMPRESSION_LZ4;
    one.options.block_cache_bytes = 0;
    one_store_reopen();
    check_everywhere(check_large_values);
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("limits");
    TCase *tests = tcase_create("limits");

    tcase_set_timeout(tests, 0);
    tcase_add_checked_fixture(tests, one_store_begin, one_store_end);
    tcase_add_test(tests, empty_keys_and_empty_values_are_keys_and_values);
    tcase_add_test(tests, keys_of_a_mebibyte_are_kept_in_order_with_a_small_stack);
    tcase_add_test(tests, every_call_refuses_a_key_beyond_the_limit_and_changes_nothing);
    tcase_add_test(tests, lengths_beyond_32_bits_are_refused_without_a_look_at_the_bytes);
    tcase_add_test(tests, values_larger_than_the_write_buffer_are_kept);
    suite_add_tcase(suite, tests);
    return check_run(suite);
}
