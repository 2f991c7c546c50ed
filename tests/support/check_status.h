/* SPDX-License-Identifier: MIT
 *
 * tests/support/check_status.h -- what every test with Check needs: a status with its message, and main().
 */
#ifndef TAMIS_TESTS_SUPPORT_CHECK_STATUS_H
#define TAMIS_TESTS_SUPPORT_CHECK_STATUS_H

#include <check.h>
#include <stdlib.h>

#include <tamis/types.h>

/** The call (which was given `err`, a tamis_error) succeeds; otherwise its message is shown. */
#define check_ok(call, err) check_status((call), TAMIS_OK, (err))

/** The call gives `expected`. */
#define check_status(call, expected, err)                                                          \
    do {                                                                                           \
        tamis_status got_ = (call);                                                                \
        ck_assert_msg(got_ == (expected), "%s gives %s, expected %s: %s", #call,                   \
                      tamis_status_name(got_), tamis_status_name(expected),                        \
                      got_ == TAMIS_OK ? "no error" : (err).message);                              \
    } while (0)

/** Run the suite, show what failed, and return what main() returns. Takes the suite. */
static inline int
check_run(Suite *suite)
{
    SRunner *runner = srunner_create(suite);
    int failed;

    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

#endif
