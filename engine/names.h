/* SPDX-License-Identifier: MIT
 *
 * engine/names.h -- the names of a store's files.
 *
 *     LOCK               held by the one writer
 *     CURRENT            "MANIFEST-000007\n": which manifest counts; CURRENT.tmp while it is replaced
 *     MANIFEST-000007    which tables and logs make up the store
 *     000012.sst         a table
 *     000013.wal         a log
 *
 * Numbers are decimal, zero-padded to six digits, without limit above; a name that would not be written so by us is not ours.
 */
#ifndef TM_ENGINE_NAMES_H
#define TM_ENGINE_NAMES_H

#include <stdbool.h>
#include <stdint.h>

enum tm_name_kind {
    TM_NAME_FOREIGN = 0, // not ours: never touched
    TM_NAME_LOCK,
    TM_NAME_CURRENT,
    TM_NAME_TEMPORARY, // CURRENT.tmp
    TM_NAME_MANIFEST,
    TM_NAME_TABLE,
    TM_NAME_LOG,
};

enum { TM_NAME_BYTES_MAX = 40 };

/** The name of a MANIFEST, TABLE or LOG. Returns `name`. */
const char *tm_name_make(enum tm_name_kind kind, uint64_t number, char name[TM_NAME_BYTES_MAX]);
/** *number_out is set for MANIFEST, TABLE and LOG, else 0. */
enum tm_name_kind tm_name_parse(const char *name, uint64_t *number_out);

#endif
