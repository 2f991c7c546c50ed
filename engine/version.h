/* SPDX-License-Identifier: MIT
 *
 * engine/version.h -- the immutable set of tables at one moment.
 *
 *     level 0   files overlap; newest (highest number) first
 *     level 1+  files disjoint, ascending by smallest key
 *
 * Invariants
 *   V1  A version never changes once it is made; a change makes the next one.
 *   V2  A file lives as long as a version holds it. A file that no version holds is garbage and goes to the
 *       trash list, from which the worker closes and removes it, after the manifest that dropped it is durable.
 *   V3  Within level >= 1 no two files share a user key; in level 0 the file with the higher number is newer.
 *       For one key, level i holds newer versions than level i + 1. Range tombstones count as versions of all their
 *       keys: a file reaches from its first key or start of a range to its last key or end of a range.
 */
#ifndef TM_ENGINE_VERSION_H
#define TM_ENGINE_VERSION_H

#include <stdatomic.h>

#include <tamis/tamis.h>

#include "sstable/table_read.h"

/* How probes of a file's filter ended: its rate of false positives is FP / (FP + TN). */
struct tm_file_counts {
    _Atomic uint64_t true_positives, false_positives, negatives;
};

/* One table of the store. */
struct tm_file {
    // Immutable after creation
    uint64_t number;
    struct tm_table_facts facts; // owned
    struct tm_table *table;      // owned; NULL in tests of the picker
    const struct tm_range_set *ranges; // range tombstones, of the table; NULL: none
    double false_positive_rate_theory;
    uint32_t count_index; // slots.h; 0 in tests of the picker
    const struct tm_order *order; // of keys; borrowed. NULL: bytewise

    // Guarded by the store's mutex
    uint32_t version_count;  // versions that hold it
    bool compacting;         // input of a running job
    struct tm_file *trash_next;

    // Atomic, relaxed
    struct tm_file_counts counts; // of reads that had no slot, or one without room
};

struct tm_level {
    struct tm_file **files;
    uint32_t file_count;
    uint64_t file_bytes; // sum
};

struct tm_version {
    uint32_t references; // guarded by the store's mutex
    uint32_t range_file_count; // files with range tombstones
    uint32_t count_index_end;  // beyond those of all files
    struct tm_level level[TAMIS_LEVEL_COUNT];
};

static inline tamis_slice
tm_file_smallest(const struct tm_file *file)
{
    return tm_slice(file->facts.smallest, file->facts.smallest_length);
}

static inline tamis_slice
tm_file_largest(const struct tm_file *file)
{
    return tm_slice(file->facts.largest, file->facts.largest_length);
}

static inline bool
tm_file_overlaps(const struct tm_file *file, const tamis_slice *from, const tamis_slice *to)
{
    return (from == NULL || tm_order_compare(file->order, tm_file_largest(file), *from) >= 0) &&
           (to == NULL || tm_order_compare(file->order, tm_file_smallest(file), *to) <= 0);
}

/** In a level >= 1: the one file whose range holds `key`, or NULL. */
struct tm_file *tm_level_find(const struct tm_level *level, tamis_slice key);
/** In a level >= 1: index of the first file whose largest key is >= `key` (file_count when none). */
uint32_t tm_level_lower_bound(const struct tm_level *level, tamis_slice key);

/** What changes from one version to the next. */
struct tm_file_add {
    uint32_t level;
    struct tm_file *file;
};

/**
 * The version after `base` (NULL: empty) without the `removed` files and with the `added` ones. Files gain a
 * version_count each. One reference.
 *
 * @return TAMIS_OK, TAMIS_NO_MEMORY, or TAMIS_CORRUPT when the result would break V3 (said with both files)
 */
TAMIS_NODISCARD tamis_status tm_version_create(const struct tm_env *env,
                                               const struct tm_version *base,
                                               struct tm_file *const *removed,
                                               size_t removed_count,
                                               const struct tm_file_add *added,
                                               size_t added_count,
                                               struct tm_version **version_out, tamis_error *err);
/** Drop a reference; of the last one the files go to *trash (linked by trash_next) when no version holds them. */
void tm_version_unref(const struct tm_env *env, struct tm_version *version, struct tm_file **trash);

/** Close its table and free it. NULL allowed. */
void tm_file_destroy(const struct tm_env *env, struct tm_file *file);

#endif
