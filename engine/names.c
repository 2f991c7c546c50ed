/* SPDX-License-Identifier: MIT
 *
 * engine/names.c -- make and recognise file names.
 */
#include "engine/names.h"

#include <stdio.h>
#include <string.h>

const char *
tm_name_make(enum tm_name_kind kind, uint64_t number, char name[TM_NAME_BYTES_MAX])
{
    const char *format = kind == TM_NAME_MANIFEST ? "MANIFEST-%06llu"
                         : kind == TM_NAME_TABLE  ? "%06llu.sst"
                                                  : "%06llu.wal";
    snprintf(name, TM_NAME_BYTES_MAX, format, (unsigned long long)number);
    return name;
}

/* Digits at `text`, up to the first other character; false when there is none or the number does not fit. */
static bool
parse_number(const char **text, uint64_t *number_out)
{
    const char *p = *text;
    uint64_t number = 0;

    for (; *p >= '0' && *p <= '9'; p++) {
        if (number > (UINT64_MAX - 9) / 10)
            return false;
        number = number * 10 + (uint64_t)(*p - '0');
    }
    if (p == *text)
        return false;
    *text = p;
    *number_out = number;
    return true;
}

enum tm_name_kind
tm_name_parse(const char *name, uint64_t *number_out)
{
    static const char manifest_prefix[] = "MANIFEST-";
    enum tm_name_kind kind = TM_NAME_FOREIGN;
    char canonical[TM_NAME_BYTES_MAX];
    const char *text = name;
    uint64_t number;

    *number_out = 0;
    if (strcmp(name, "LOCK") == 0)
        return TM_NAME_LOCK;
    if (strcmp(name, "CURRENT") == 0)
        return TM_NAME_CURRENT;
    if (strcmp(name, "CURRENT.tmp") == 0)
        return TM_NAME_TEMPORARY;
    if (strncmp(name, manifest_prefix, sizeof manifest_prefix - 1) == 0) {
        text += sizeof manifest_prefix - 1;
        kind = TM_NAME_MANIFEST;
    }
    if (!parse_number(&text, &number))
        return TM_NAME_FOREIGN;
    if (kind == TM_NAME_FOREIGN) {
        if (strcmp(text, ".sst") == 0)
            kind = TM_NAME_TABLE;
        else if (strcmp(text, ".wal") == 0)
            kind = TM_NAME_LOG;
        else
            return TM_NAME_FOREIGN;
    }
    if (strcmp(tm_name_make(kind, number, canonical), name) != 0)
        return TM_NAME_FOREIGN;
    *number_out = number;
    return kind;
}
