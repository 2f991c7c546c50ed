/* SPDX-License-Identifier: MIT
 *
 * tests/sstable/test_status.c -- codes, their names, and the birth of an error.
 */
#include <check.h>
#include <errno.h>
#include <string.h>

#include "sstable/status.h"
#include "tests/support/check_status.h"

/* The values are part of the library's binary interface. */
START_TEST(values_and_names_never_change)
{
    static const struct {
        tamis_status status;
        int value;
        const char *name;
    } pinned[] = {
        {TAMIS_OK, 0, "OK"},
        {TAMIS_NOT_FOUND, 1, "NOT_FOUND"},
        {TAMIS_IO, 2, "IO"},
        {TAMIS_NO_SPACE, 3, "NO_SPACE"},
        {TAMIS_NO_MEMORY, 4, "NO_MEMORY"},
        {TAMIS_CORRUPT, 5, "CORRUPT"},
        {TAMIS_INVALID, 6, "INVALID"},
        {TAMIS_TOO_LARGE, 7, "TOO_LARGE"},
        {TAMIS_BUSY, 8, "BUSY"},
        {TAMIS_READ_ONLY, 9, "READ_ONLY"},
        {TAMIS_UNSUPPORTED, 10, "UNSUPPORTED"},
        {TAMIS_STALE, 11, "STALE"},
        {TAMIS_FENCED, 12, "FENCED"},
    };

    ck_assert_uint_eq(sizeof pinned / sizeof pinned[0], TAMIS_STATUS_COUNT);
    for (size_t i = 0; i < sizeof pinned / sizeof pinned[0]; i++) {
        ck_assert_int_eq(pinned[i].status, pinned[i].value);
        ck_assert_str_eq(tamis_status_name(pinned[i].status), pinned[i].name);
    }
}
END_TEST

START_TEST(unknown_values_have_a_name_too)
{
    ck_assert_str_eq(tamis_status_name((tamis_status)TAMIS_STATUS_COUNT), "UNKNOWN");
    ck_assert_str_eq(tamis_status_name((tamis_status)-1), "UNKNOWN");
}
END_TEST

START_TEST(an_error_tells_code_place_message_and_errno)
{
    tamis_error err = {0};
    tamis_status status = TM_FAIL_OS(&err, TAMIS_IO, ENOSPC, "file %d", 12);

    ck_assert_int_eq(status, TAMIS_IO);
    ck_assert_int_eq(err.code, TAMIS_IO);
    ck_assert_int_eq(err.os_error, ENOSPC);
    ck_assert_str_eq(err.message, "file 12: No space left on device");
    ck_assert_ptr_nonnull(strstr(err.where, "test_status.c:"));
}
END_TEST

START_TEST(an_error_without_errno_has_no_system_text)
{
    tamis_error err = {0};

    ck_assert_int_eq(TM_FAIL(&err, TAMIS_CORRUPT, "bad byte"), TAMIS_CORRUPT);
    ck_assert_int_eq(err.os_error, 0);
    ck_assert_str_eq(err.message, "bad byte");
}
END_TEST

START_TEST(nobody_needs_to_listen)
{
    ck_assert_int_eq(TM_FAIL(NULL, TAMIS_INVALID, "unheard"), TAMIS_INVALID);
}
END_TEST

START_TEST(a_long_message_is_cut_and_ends)
{
    tamis_error err;
    char text[1000];

    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    for (int length = 0; length < 999; length++) {
        memset(&err, 0x55, sizeof err);
        ck_assert_int_eq(TM_FAIL_OS(&err, TAMIS_IO, EIO, "%.*s", length, text), TAMIS_IO);
        ck_assert_ptr_nonnull(memchr(err.message, '\0', sizeof err.message));
    }
}
END_TEST

START_TEST(errno_values_become_what_a_caller_acts_on)
{
    ck_assert_int_eq(tm_status_of_errno(ENOSPC), TAMIS_NO_SPACE);
    ck_assert_int_eq(tm_status_of_errno(EDQUOT), TAMIS_NO_SPACE);
    ck_assert_int_eq(tm_status_of_errno(EFBIG), TAMIS_NO_SPACE);
    ck_assert_int_eq(tm_status_of_errno(ENOMEM), TAMIS_NO_MEMORY);
    ck_assert_int_eq(tm_status_of_errno(EIO), TAMIS_IO);
    ck_assert_int_eq(tm_status_of_errno(EROFS), TAMIS_IO);
    ck_assert_int_eq(tm_status_of_errno(EACCES), TAMIS_IO);
    ck_assert_int_eq(tm_status_of_errno(EMFILE), TAMIS_IO);
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("status");
    TCase *tests = tcase_create("status");

    tcase_add_test(tests, values_and_names_never_change);
    tcase_add_test(tests, unknown_values_have_a_name_too);
    tcase_add_test(tests, an_error_tells_code_place_message_and_errno);
    tcase_add_test(tests, an_error_without_errno_has_no_system_text);
    tcase_add_test(tests, nobody_needs_to_listen);
    tcase_add_test(tests, a_long_message_is_cut_and_ends);
    tcase_add_test(tests, errno_values_become_what_a_caller_acts_on);
    suite_add_tcase(suite, tests);
    return check_run(suite);
}
