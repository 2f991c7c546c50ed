/* SPDX-License-Identifier: MIT
 *
 * tests/sstable/test_env.c -- memory of an env, growable bytes, slices; and the allocator that tests them.
 */
#include <check.h>
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>

#include "sstable/env.h"
#include "tests/support/check_status.h"
#include "tests/support/child.h"
#include "tests/support/fault_alloc.h"

static struct fault_alloc fault;
static struct tm_env env;

static void
setup(void)
{
    fault_alloc_init(&fault);
    memset(&env, 0, sizeof env);
    env.allocator = fault_alloc_allocator(&fault);
}

static void
teardown(void)
{
    ck_assert_uint_eq(fault.live_count, 0);
    ck_assert_uint_eq(fault.live_bytes, 0);
}

START_TEST(no_bytes_are_a_block_too)
{
    void *p = tm_alloc(&env, 0);

    ck_assert_ptr_nonnull(p);
    p = tm_resize(&env, p, 0, 100);
    ck_assert_ptr_nonnull(p);
    p = tm_resize(&env, p, 100, 0);
    ck_assert_ptr_nonnull(p);
    tm_release(&env, p, 0);
    tm_release(&env, NULL, 0);
}
END_TEST

START_TEST(zeroed_memory_is_zero)
{
    uint8_t *p = tm_alloc_zeroed(&env, 100);

    for (size_t i = 0; i < 100; i++)
        ck_assert_uint_eq(p[i], 0);
    tm_release(&env, p, 100);
}
END_TEST

START_TEST(resize_keeps_bytes_and_survives_refusal)
{
    uint8_t *p = tm_resize(&env, NULL, 0, 10);

    memset(p, 7, 10);
    p = tm_resize(&env, p, 10, 1000);
    fault_alloc_fail_after(&fault, 1, false);
    ck_assert_ptr_null(tm_resize(&env, p, 1000, 2000));
    ck_assert_uint_eq(fault.failure_count, 1);
    for (size_t i = 0; i < 10; i++)
        ck_assert_uint_eq(p[i], 7);
    tm_release(&env, p, 1000);
}
END_TEST

START_TEST(a_buffer_holds_what_was_appended)
{
    struct tm_buf buf = {0};
    tamis_error err;

    for (unsigned i = 0; i < 10000; i++) {
        uint8_t byte = (uint8_t)i;

        check_ok(tm_buf_append(&env, &buf, &byte, 1, &err), err);
    }
    check_ok(tm_buf_append(&env, &buf, NULL, 0, &err), err);
    ck_assert_uint_eq(buf.length, 10000);
    for (unsigned i = 0; i < 10000; i++)
        ck_assert_uint_eq(buf.data[i], (uint8_t)i);
    ck_assert_uint_lt(fault.call_count, 20); // it doubles
    tm_buf_release(&env, &buf);
    ck_assert_uint_eq(buf.capacity, 0);
}
END_TEST

START_TEST(a_buffer_without_memory_is_unchanged)
{
    struct tm_buf buf = {0};
    tamis_error err;

    check_ok(tm_buf_append(&env, &buf, "abc", 3, &err), err);
    fault_alloc_fail_after(&fault, 1, true);
    check_status(tm_buf_reserve(&env, &buf, 1000, &err), TAMIS_NO_MEMORY, err);
    ck_assert_uint_ge(fault.failure_count, 1);
    ck_assert_uint_eq(buf.length, 3);
    ck_assert_mem_eq(buf.data, "abc", 3);
    fault_alloc_fail_after(&fault, 0, false);
    check_ok(tm_buf_reserve(&env, &buf, 1000, &err), err);
    tm_buf_release(&env, &buf);
}
END_TEST

START_TEST(a_buffer_refuses_lengths_that_would_wrap)
{
    struct tm_buf buf = {0};
    tamis_error err;

    check_ok(tm_buf_append(&env, &buf, "abc", 3, &err), err);
    check_status(tm_buf_reserve(&env, &buf, SIZE_MAX, &err), TAMIS_NO_MEMORY, err);
    check_status(tm_buf_reserve(&env, &buf, SIZE_MAX - 2, &err), TAMIS_NO_MEMORY, err);
    tm_buf_release(&env, &buf);
}
END_TEST

START_TEST(slices_are_ordered_by_bytes_and_prefixes_come_first)
{
    tamis_slice empty = tm_slice(NULL, 0);
    tamis_slice a = tm_slice("a", 1);
    tamis_slice ab = tm_slice("ab", 2);
    tamis_slice high = tm_slice("\xff", 1);

    ck_assert_int_eq(tm_slice_compare(empty, empty), 0);
    ck_assert_int_lt(tm_slice_compare(empty, a), 0);
    ck_assert_int_lt(tm_slice_compare(a, ab), 0);
    ck_assert_int_gt(tm_slice_compare(high, ab), 0);
    ck_assert(tm_slice_equal(empty, empty));
    ck_assert(!tm_slice_equal(a, ab));
    ck_assert(tm_slice_equal(ab, tm_slice("abc", 2)));
}
END_TEST

START_TEST(the_default_allocator_gives_and_takes)
{
    tamis_allocator allocator = tm_allocator_default();
    void *p = allocator.alloc(allocator.ctx, 10);

    p = allocator.resize(allocator.ctx, p, 10, 20);
    ck_assert_ptr_nonnull(p);
    allocator.release(allocator.ctx, p, 20);
}
END_TEST

START_TEST(the_default_allocator_keeps_the_bytes_of_a_block_that_grows_and_shrinks)
{
    const size_t sizes[] = {1 << 10, 200 << 10, 300 << 10, 3 << 20, 400 << 10, 100 << 10, 10};
    tamis_allocator allocator = tm_allocator_default();
    uint8_t *p = NULL;
    size_t size = 0;

    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        size_t kept = size < sizes[i] ? size : sizes[i];
        size_t changed = 0;

        p = allocator.resize(allocator.ctx, p, size, sizes[i]);
        ck_assert_ptr_nonnull(p);
        for (size_t at = 0; at < kept; at++)
            changed += p[at] != (uint8_t)(at * 31 >> 3);
        ck_assert_uint_eq(changed, 0);
        size = sizes[i];
        for (size_t at = 0; at < size; at++)
            p[at] = (uint8_t)(at * 31 >> 3);
    }
    allocator.release(allocator.ctx, p, size);
    allocator.release(allocator.ctx, NULL, 1 << 20);
    ck_assert_ptr_null(allocator.alloc(allocator.ctx, SIZE_MAX / 2));
    p = allocator.alloc(allocator.ctx, 1 << 20);
    ck_assert_ptr_null(allocator.resize(allocator.ctx, p, 1 << 20, SIZE_MAX / 2));
    p[(1 << 20) - 1] = 1;
    allocator.release(allocator.ctx, p, 1 << 20);
}
END_TEST

START_TEST(large_blocks_go_back_to_the_system)
{
    tamis_allocator allocator = tm_allocator_default();
    unsigned char resident;
    void *p = allocator.alloc(allocator.ctx, 1 << 20);

    ck_assert_int_eq(mincore(p, 1 << 20, (unsigned char[256]){0}), 0);
    allocator.release(allocator.ctx, p, 1 << 20);
    ck_assert_int_eq(mincore(p, 4096, &resident), -1); // nothing is mapped there
    ck_assert_int_eq(errno, ENOMEM);
}
END_TEST

START_TEST(the_fault_allocator_refuses_once_or_from_then_on)
{
    for (int sticky = 0; sticky < 2; sticky++) {
        void *p[4];

        fault_alloc_fail_after(&fault, 2, sticky);
        for (size_t i = 0; i < 4; i++)
            p[i] = tm_alloc(&env, 8);
        ck_assert_ptr_nonnull(p[0]);
        ck_assert_ptr_null(p[1]);
        ck_assert((p[2] == NULL) == (sticky != 0));
        fault_alloc_fail_after(&fault, 0, false);
        for (size_t i = 0; i < 4; i++)
            tm_release(&env, p[i], 8);
    }
}
END_TEST

START_TEST(the_fault_allocator_keeps_a_budget)
{
    void *p;

    atomic_store(&fault.limit_bytes, 100);
    p = tm_alloc(&env, 60);
    ck_assert_ptr_nonnull(p);
    ck_assert_ptr_null(tm_alloc(&env, 60));
    ck_assert_uint_eq(fault.peak_bytes, 60);
    tm_release(&env, p, 60);
}
END_TEST

static int
release_with_wrong_size(void *arg)
{
    void *p = tm_alloc(&env, 10);

    (void)arg;
    tm_release(&env, p, 11);
    return 0;
}

START_TEST(the_fault_allocator_notices_a_wrong_size)
{
    char text[200];

    ck_assert_int_eq(child_run(release_with_wrong_size, NULL, text, sizeof text), -SIGABRT);
    ck_assert_ptr_nonnull(strstr(text, "release with size 11 of a block of 10"));
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("env");
    TCase *tests = tcase_create("env");

    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_test(tests, no_bytes_are_a_block_too);
    tcase_add_test(tests, zeroed_memory_is_zero);
    tcase_add_test(tests, resize_keeps_bytes_and_survives_refusal);
    tcase_add_test(tests, a_buffer_holds_what_was_appended);
    tcase_add_test(tests, a_buffer_without_memory_is_unchanged);
    tcase_add_test(tests, a_buffer_refuses_lengths_that_would_wrap);
    tcase_add_test(tests, slices_are_ordered_by_bytes_and_prefixes_come_first);
    tcase_add_test(tests, the_default_allocator_gives_and_takes);
    tcase_add_test(tests, the_default_allocator_keeps_the_bytes_of_a_block_that_grows_and_shrinks);
    tcase_add_test(tests, large_blocks_go_back_to_the_system);
    tcase_add_test(tests, the_fault_allocator_refuses_once_or_from_then_on);
    tcase_add_test(tests, the_fault_allocator_keeps_a_budget);
    tcase_add_test(tests, the_fault_allocator_notices_a_wrong_size);
    suite_add_tcase(suite, tests);
    return check_run(suite);
}
