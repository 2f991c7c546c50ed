/* SPDX-License-Identifier: MIT
 *
 * engine/wal.h -- what the records of a log say. Their framing is record_log.h.
 *
 *     start   0  1  kind 1
 *             1  1  format version 1
 *             2  2  0
 *             4  4  required features: bits that a reader must know; none yet
 *             8  8  number of the log before this one, 0: none that is still needed
 *            16  8  its final length in bytes
 *            24  8  last sequence given out before this log
 *
 *     batch   0  1  kind 2
 *             1  7  0
 *             8  8  sequence of its first operation; the others follow one by one
 *            16  4  number of operations
 *            20     operations (batch.h)
 *
 * Invariants
 *   W1  The first record of a log is its start record.
 *   W2  Sequences have no gap, within a log or from one to the next: a gap is damage.
 *   W3  No sync of a log is acknowledged before its predecessor is synced to its final length.
 */
#ifndef TM_ENGINE_WAL_H
#define TM_ENGINE_WAL_H

#include "engine/record_log.h"

enum {
    TM_WAL_START = 1,
    TM_WAL_BATCH = 2,
    TM_WAL_START_BYTES = 32,
    TM_WAL_BATCH_HEADER_BYTES = 20,
    TM_WAL_FORMAT_VERSION = 1,
};

struct tm_wal_start {
    uint64_t predecessor_number;
    uint64_t predecessor_bytes;
    uint64_t last_sequence;
};

void tm_wal_encode_start(uint8_t bytes[TM_WAL_START_BYTES], const struct tm_wal_start *start);
void tm_wal_encode_batch_header(uint8_t bytes[TM_WAL_BATCH_HEADER_BYTES], uint64_t sequence,
                                uint32_t operation_count);

/* A decoded record of either kind. */
struct tm_wal_record {
    uint8_t kind;
    struct tm_wal_start start;
    uint64_t sequence;
    uint32_t operation_count;
    tamis_slice operations;
};

/** NULL, or what is wrong. *unsupported_out: written by a newer version. */
const char *tm_wal_decode(tamis_slice record, struct tm_wal_record *out, bool *unsupported_out);

#endif
