/* SPDX-License-Identifier: MIT
 *
 * engine/wal.c -- encode and decode the records of a log, drawn in wal.h.
 */
#include "engine/wal.h"

#include "filter/bytes.h"

void
tm_wal_encode_start(uint8_t bytes[TM_WAL_START_BYTES], const struct tm_wal_start *start)
{
    memset(bytes, 0, TM_WAL_START_BYTES);
    bytes[0] = TM_WAL_START;
    bytes[1] = TM_WAL_FORMAT_VERSION;
    tm_put_u64(bytes + 8, start->predecessor_number);
    tm_put_u64(bytes + 16, start->predecessor_bytes);
    tm_put_u64(bytes + 24, start->last_sequence);
    tm_put_u64(bytes + 32, start->hash_seed);
}

void
tm_wal_encode_batch_header(uint8_t bytes[TM_WAL_BATCH_HEADER_BYTES], uint64_t sequence,
                           uint32_t operation_count)
{
    memset(bytes, 0, TM_WAL_BATCH_HEADER_BYTES);
    bytes[0] = TM_WAL_BATCH;
    tm_put_u64(bytes + 8, sequence);
    tm_put_u32(bytes + 16, operation_count);
}

void
tm_wal_encode_end(uint8_t bytes[TM_WAL_END_BYTES], uint64_t next_number)
{
    memset(bytes, 0, TM_WAL_END_BYTES);
    bytes[0] = TM_WAL_END;
    tm_put_u64(bytes + 8, next_number);
}

void
tm_wal_encode_skip(uint8_t bytes[TM_WAL_SKIP_BYTES], uint64_t sequence, uint64_t count)
{
    memset(bytes, 0, TM_WAL_SKIP_BYTES);
    bytes[0] = TM_WAL_SKIP;
    tm_put_u64(bytes + 8, sequence);
    tm_put_u64(bytes + 16, count);
}

const char *
tm_wal_decode(tamis_slice record, struct tm_wal_record *out, bool *unsupported_out)
{
    const uint8_t *bytes = record.data;

    memset(out, 0, sizeof *out);
    *unsupported_out = false;
    if (record.length < 1)
        return "an empty record";
    out->kind = bytes[0];
    if (out->kind == TM_WAL_START) {
        if (record.length != TM_WAL_START_BYTES)
            return "a start record of the wrong length";
        if (bytes[1] != TM_WAL_FORMAT_VERSION || tm_get_u32(bytes + 4) != 0) {
            *unsupported_out = true;
            return "a format version or feature that this version does not know";
        }
        out->start.predecessor_number = tm_get_u64(bytes + 8);
        out->start.predecessor_bytes = tm_get_u64(bytes + 16);
        out->start.last_sequence = tm_get_u64(bytes + 24);
        out->start.hash_seed = tm_get_u64(bytes + 32);
        return NULL;
    }
    if (out->kind == TM_WAL_BATCH) {
        if (record.length < TM_WAL_BATCH_HEADER_BYTES)
            return "a batch record that is too short";
        out->sequence = tm_get_u64(bytes + 8);
        out->operation_count = tm_get_u32(bytes + 16);
        out->operations = tm_slice(bytes + TM_WAL_BATCH_HEADER_BYTES,
                                   record.length - TM_WAL_BATCH_HEADER_BYTES);
        return NULL;
    }
    if (out->kind == TM_WAL_END) {
        if (record.length != TM_WAL_END_BYTES)
            return "an end record of the wrong length";
        out->next_number = tm_get_u64(bytes + 8);
        return NULL;
    }
    if (out->kind == TM_WAL_SKIP) {
        if (record.length != TM_WAL_SKIP_BYTES)
            return "a skip record of the wrong length";
        out->sequence = tm_get_u64(bytes + 8);
        out->skipped_count = tm_get_u64(bytes + 16);
        return NULL;
    }
    *unsupported_out = true;
    return "a record of an unknown kind";
}
