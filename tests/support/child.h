/* SPDX-License-Identifier: MIT
 *
 * tests/support/child.h -- run a function in a forked process and see how it ended.
 *
 * For what cannot be undone or survived in the test itself: forks, aborts, other users, other mounts.
 */
#ifndef TAMIS_TESTS_SUPPORT_CHILD_H
#define TAMIS_TESTS_SUPPORT_CHILD_H

#include <stddef.h>

enum {
    CHILD_SKIPPED = 77, // exit code of a child that could not try
};

/**
 * Fork, run `run` there, and wait.
 *
 * @param run   its return value is the exit code
 * @param text  [out] what the child wrote to its standard error, cut to `size` with its 0; NULL: shown instead
 * @return      the exit code, or minus the number of the signal that ended it
 */
int child_run(int (*run)(void *arg), void *arg, char *text, size_t size);

#endif
