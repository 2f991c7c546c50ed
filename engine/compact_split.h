/* SPDX-License-Identifier: MIT
 *
 * engine/compact_split.h -- where to cut a large job, so that several threads can share it.
 *
 *     inputs    [....|....|....|....]      each table says where its bytes lie: index separators, evenly spaced
 *               [..|..|..|..]
 *     sorted     . . .. . : . .. . . : . . . .        every separator stands for its share of the table's bytes
 *     parts     [         )[         )[        ]      cut where the next share of all bytes is full
 *
 * A cut is a user key: all versions of a key lie in one part (G2), and parts are ascending and disjoint. It is the next key
 * to a separator, so that a range tombstone that is cut there reaches to the separator, and the parts' tables do not meet. (Under
 * an order that is not bytewise there are no such keys, and no ranges: a cut is a separator.)
 */
#ifndef TM_ENGINE_COMPACT_SPLIT_H
#define TM_ENGINE_COMPACT_SPLIT_H

#include "engine/compact_pick.h"

/* Keys that begin the second part and each one after it. Zeroed is empty: one part. */
struct tm_compact_cuts {
    struct tm_buf *keys;
    size_t count;
    size_t capacity;
};

/**
 * Cut a job into at most `part_count_max` parts of about equal size, none meant to be smaller than `part_bytes_min`.
 *
 * @param cuts_out [out] on OK, ascending; tm_compact_cuts_release()
 * @return         TAMIS_OK, TAMIS_NO_MEMORY
 *
 * Cost  copies a few hundred separators; no I/O.
 */
TAMIS_NODISCARD tamis_status tm_compact_split(const struct tm_env *env,
                                              const struct tm_compact_job *job,
                                              size_t part_count_max, uint64_t part_bytes_min,
                                              struct tm_compact_cuts *cuts_out, tamis_error *err);
void tm_compact_cuts_release(const struct tm_env *env, struct tm_compact_cuts *cuts);

#endif
