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
 *            32  8  hash seed of the store: a log of another store is told by it
 *
 *     batch   0  1  kind 2
 *             1  7  0
 *             8  8  sequence of its first operation; the others follow one by one
 *            16  4  number of operations
 *            20     operations (batch.h)
 *
 *     skip    0  1  kind 4
 *             1  7  0
 *             8  8  first sequence of the writes before the next batch that asked for no log
 *            16  8  how many sequences those are; they are in no log
 *
 *     end     0  1  kind 3
 *             1  7  0
 *             8  8  number of the log after this one
 *
 * The final length of a log, as its successor knows it, is without the end record: that is written once the successor stands.
 *
 * Invariants
 *   W1  The first record of a log is its start record.
 *   W2  Sequences have no gap, within a log or from one to the next, but for those that a skip record names: any other gap
 *       is damage. What was skipped is told before the next batch, and before the log ends.
 *   W3  No sync of a log is acknowledged before its predecessor is synced to its final length, end record included.
 *   W4  A log is named in its predecessor's end record after its own name is durable, and in a manifest after its start
 *       record is: one that is missing, or without a beginning, is damage.
 */
#ifndef TM_ENGINE_WAL_H
#define TM_ENGINE_WAL_H

#include "engine/record_log.h"

enum {
    TM_WAL_START = 1,
    TM_WAL_BATCH = 2,
    TM_WAL_END = 3,
    TM_WAL_SKIP = 4,
    TM_WAL_START_BYTES = 40,
    TM_WAL_BATCH_HEADER_BYTES = 20,
    TM_WAL_END_BYTES = 16,
    TM_WAL_SKIP_BYTES = 24,
    TM_WAL_FORMAT_VERSION = 1,
};

struct tm_wal_start {
    uint64_t predecessor_number;
    uint64_t predecessor_bytes;
    uint64_t last_sequence;
    uint64_t hash_seed;
};

void tm_wal_encode_start(uint8_t bytes[TM_WAL_START_BYTES], const struct tm_wal_start *start);
void tm_wal_encode_batch_header(uint8_t bytes[TM_WAL_BATCH_HEADER_BYTES], uint64_t sequence,
                                uint32_t operation_count);
void tm_wal_encode_end(uint8_t bytes[TM_WAL_END_BYTES], uint64_t next_number);
void tm_wal_encode_skip(uint8_t bytes[TM_WAL_SKIP_BYTES], uint64_t sequence, uint64_t count);

/* A decoded record of any kind. */
struct tm_wal_record {
    uint8_t kind;
    struct tm_wal_start start;
    uint64_t sequence;      // the first one, of a batch or a skip
    uint64_t skipped_count; // of a skip
    uint32_t operation_count;
    tamis_slice operations;
    uint64_t next_number; // of an end
};

/** NULL, or what is wrong. *unsupported_out: written by a newer version. */
const char *tm_wal_decode(tamis_slice record, struct tm_wal_record *out, bool *unsupported_out);

#endif
