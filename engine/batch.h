/* SPDX-License-Identifier: MIT
 *
 * engine/batch.h -- a batch as bytes: what tamis_batch_put() makes, what the log stores, what recovery reads.
 *
 *     operation:  kind 1 byte (enum tm_kind) | key length varint | key | value length varint | value (not DELETE)
 *                 DELETE_RANGE: the key is where the range begins, the value where it ends, above the key
 *     batch:      operations one after the other; their count stands beside (log record, struct tamis_batch)
 */
#ifndef TM_ENGINE_BATCH_H
#define TM_ENGINE_BATCH_H

#include <tamis/tamis.h>

#include "sstable/entry.h"

enum { TM_OPERATION_HEADER_BYTES_MAX = 1 + 10 + 10 };

/** The operations of a batch, as bytes; borrowed until the next change of the batch. */
tamis_slice tm_batch_operations(const tamis_batch *batch);
/** Keys and values alone, in bytes. */
size_t tm_batch_user_bytes(const tamis_batch *batch);
/** How many of its operations delete a range. */
size_t tm_batch_range_count(const tamis_batch *batch);
/** Was it asked to delete one, if only one that is empty bytewise? */
bool tm_batch_asked_for_range(const tamis_batch *batch);

/** Check key and value against the limits: TAMIS_OK or TAMIS_TOO_LARGE. */
TAMIS_NODISCARD tamis_status tm_check_key(tamis_slice key, tamis_error *err);
TAMIS_NODISCARD tamis_status tm_check_value(tamis_slice value, tamis_error *err);

/** Walk operations that may come from disk: bounds-checked. */
struct tm_batch_cursor {
    const uint8_t *next;
    const uint8_t *end;
};

/**
 * Take the next operation. Its sequence is not set.
 *
 * @return 1: entry filled; 0: the end; -1: malformed (unknown kind, length beyond the end or the limits)
 */
int tm_batch_next(struct tm_batch_cursor *cursor, struct tm_entry *entry);

/** Whether an operation of this kind is followed by a value, or by what stands in its place. */
static inline bool
tm_operation_has_value(enum tm_kind kind)
{
    return kind != TM_KIND_DELETE;
}

/** Encode the head of an operation (all but key and value bytes) as two pieces: before the key, before the value. */
size_t tm_operation_head(uint8_t head[TM_OPERATION_HEADER_BYTES_MAX], enum tm_kind kind,
                         size_t key_length);
size_t tm_operation_middle(uint8_t middle[TM_OPERATION_HEADER_BYTES_MAX], size_t value_length);

#endif
