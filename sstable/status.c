/* SPDX-License-Identifier: MIT
 *
 * sstable/status.c -- names of codes, and the birth place of every error.
 */
#include "sstable/status.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const char *
tamis_status_name(tamis_status status)
{
    static const char *const names[TAMIS_STATUS_COUNT] = {
        "OK",        "NOT_FOUND", "IO",   "NO_SPACE",  "NO_MEMORY",   "CORRUPT", "INVALID",
        "TOO_LARGE", "BUSY",      "READ_ONLY", "UNSUPPORTED", "STALE", "FENCED",
    };
    if ((unsigned)status >= TAMIS_STATUS_COUNT)
        return "UNKNOWN";
    return names[status];
}

tamis_status
tm_fail(tamis_error *err, tamis_status code, int os_error, const char *where, const char *format,
        ...)
{
    va_list arguments;
    int used;

    if (err == NULL)
        return code;
    err->code = code;
    err->os_error = os_error;
    err->where = where;
    va_start(arguments, format);
    used = vsnprintf(err->message, sizeof err->message, format, arguments);
    va_end(arguments);
    if (os_error != 0 && used >= 0 && (size_t)used + 3 < sizeof err->message) {
        char text[96];
        const char *shown = strerror_r(os_error, text, sizeof text);
        snprintf(err->message + used, sizeof err->message - (size_t)used, ": %s", shown);
    }
    // What a path or a file holds must not break a line of a log or reach a terminal.
    for (char *byte = err->message; *byte != '\0'; byte++)
        if ((unsigned char)*byte < 0x20 || *byte == 0x7f)
            *byte = '?';
    return code;
}

tamis_status
tm_status_of_errno(int os_error)
{
    switch (os_error) {
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
        return TAMIS_NO_SPACE;
    case ENOMEM:
        return TAMIS_NO_MEMORY;
    default:
        return TAMIS_IO;
    }
}
