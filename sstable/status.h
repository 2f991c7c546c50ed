/* SPDX-License-Identifier: MIT
 *
 * sstable/status.h -- where errors are born.
 *
 * Every error of tamis starts in tm_fail(): `break tm_fail` stops at the origin of any of them. Callers pass an
 * error on unchanged; whoever knows more (a file name, say) may add context once.
 */
#ifndef TM_SSTABLE_STATUS_H
#define TM_SSTABLE_STATUS_H

#include <tamis/types.h>

#define TM_TEXT_OF_(x) #x
#define TM_TEXT_OF(x)  TM_TEXT_OF_(x)
#define TM_HERE        __FILE__ ":" TM_TEXT_OF(__LINE__) // from the root: see CMakeLists.txt

/**
 * Fill `err` (NULL allowed) and return `code`.
 *
 * @param os_error  errno value behind the failure, or 0; its text is appended to the message
 * @param where     static storage, from TM_HERE
 */
tamis_status tm_fail(tamis_error *err, tamis_status code, int os_error, const char *where,
                     const char *format, ...) __attribute__((format(printf, 5, 6), cold));

#define TM_FAIL(err, code, ...)              tm_fail((err), (code), 0, TM_HERE, __VA_ARGS__)
#define TM_FAIL_OS(err, code, os_error, ...) tm_fail((err), (code), (os_error), TM_HERE, __VA_ARGS__)

/** The status for an errno value: ENOSPC, EDQUOT, EFBIG -> NO_SPACE; ENOMEM -> NO_MEMORY; else IO. */
tamis_status tm_status_of_errno(int os_error);

#endif
