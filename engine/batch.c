/* SPDX-License-Identifier: MIT
 *
 * engine/batch.c -- make a batch, and take apart bytes that say they are one.
 *
 *     tamis_batch:  count | bytes, as drawn in batch.h
 *
 * Invariants
 *   A1  A batch holds whole operations only: the room for one is there before its first byte is written.
 *   A2  What tm_batch_next() accepts, tamis_batch_put() could have made: one form for each operation.
 *
 * Threads  one owner of a batch or cursor at a time.
 * Not here: the order of batches and their sequences (write.c), their frame in the log (wal.h).
 */
#include "engine/batch.h"

#include <assert.h>

#include "filter/bytes.h"

struct tamis_batch {
    struct tm_env env;        // its allocator is all that is used
    struct tm_buf operations; // owned
    size_t count;             // operations in it
    size_t range_count;       // of them, those that delete a range
    size_t user_bytes;        // of their keys and values
    bool asked_for_range;     // one was given, if only an empty one
};

tamis_status
tm_check_key(tamis_slice key, tamis_error *err)
{
    if (key.length > TAMIS_KEY_BYTES_MAX)
        return TM_FAIL(err, TAMIS_TOO_LARGE, "key of %zu bytes; the limit is %zu", key.length,
                       TAMIS_KEY_BYTES_MAX);
    return TAMIS_OK;
}

tamis_status
tm_check_value(tamis_slice value, tamis_error *err)
{
    if (value.length > TAMIS_VALUE_BYTES_MAX)
        return TM_FAIL(err, TAMIS_TOO_LARGE, "value of %zu bytes; the limit is %zu", value.length,
                       TAMIS_VALUE_BYTES_MAX);
    return TAMIS_OK;
}

size_t
tm_operation_head(uint8_t head[TM_OPERATION_HEADER_BYTES_MAX], enum tm_kind kind, size_t key_length)
{
    head[0] = (uint8_t)kind;
    return (size_t)(tm_put_varint64(head + 1, key_length) - head);
}

size_t
tm_operation_middle(uint8_t middle[TM_OPERATION_HEADER_BYTES_MAX], size_t value_length)
{
    return (size_t)(tm_put_varint64(middle, value_length) - middle);
}

tamis_status
tamis_batch_create(const tamis_allocator *allocator, tamis_batch **batch_out, tamis_error *err)
{
    struct tm_env env = {0};
    tamis_batch *batch;

    *batch_out = NULL;
    env.allocator = allocator != NULL ? *allocator : tm_allocator_default();
    batch = tm_alloc_zeroed(&env, sizeof *batch);
    if (batch == NULL)
        return TM_NO_MEMORY(err, sizeof *batch);
    batch->env = env;
    *batch_out = batch;
    return TAMIS_OK;
}

void
tamis_batch_destroy(tamis_batch *batch)
{
    struct tm_env env;

    if (batch == NULL)
        return;
    env = batch->env; // outlives the memory it lies in
    tm_buf_release(&env, &batch->operations);
    tm_release(&env, batch, sizeof *batch);
}

void
tamis_batch_clear(tamis_batch *batch)
{
    batch->operations.length = 0;
    batch->count = 0;
    batch->range_count = 0;
    batch->asked_for_range = false;
    batch->user_bytes = 0;
}

static void
append_piece(struct tm_buf *buf, const void *data, size_t length)
{
    assert(length <= buf->capacity - buf->length); // A1
    if (length != 0)
        memcpy(buf->data + buf->length, data, length);
    buf->length += length;
}

/* Whether `length` bytes of `count` operations more are within the limits of a batch. */
static tamis_status
check_room(const tamis_batch *batch, size_t length, size_t count, tamis_error *err)
{
    if (length > TAMIS_BATCH_BYTES_MAX - batch->operations.length)
        return TM_FAIL(err, TAMIS_TOO_LARGE, "batch of %zu bytes and %zu more; the limit is %zu",
                       batch->operations.length, length, TAMIS_BATCH_BYTES_MAX);
    if (count > TAMIS_BATCH_COUNT_MAX - batch->count)
        return TM_FAIL(err, TAMIS_TOO_LARGE,
                       "batch of %zu operations and %zu more; the limit is %zu", batch->count,
                       count, TAMIS_BATCH_COUNT_MAX);
    return TAMIS_OK;
}

static tamis_status
batch_add(tamis_batch *batch, enum tm_kind kind, tamis_slice key, tamis_slice value,
          tamis_error *err)
{
    uint8_t head[TM_OPERATION_HEADER_BYTES_MAX];
    uint8_t middle[TM_OPERATION_HEADER_BYTES_MAX];
    size_t head_length;
    size_t middle_length;
    size_t length;
    tamis_status status = tm_check_key(key, err);

    if (status == TAMIS_OK)
        status = tm_check_value(value, err);
    if (status != TAMIS_OK)
        return status;
    head_length = tm_operation_head(head, kind, key.length);
    middle_length = tm_operation_has_value(kind) ? tm_operation_middle(middle, value.length) : 0;
    length = head_length + key.length + middle_length + value.length;
    status = check_room(batch, length, 1, err);
    if (status == TAMIS_OK)
        status = tm_buf_reserve(&batch->env, &batch->operations, length, err); // A1
    if (status != TAMIS_OK)
        return status;
    append_piece(&batch->operations, head, head_length);
    append_piece(&batch->operations, key.data, key.length);
    append_piece(&batch->operations, middle, middle_length);
    append_piece(&batch->operations, value.data, value.length);
    batch->count++;
    batch->range_count += kind == TM_KIND_DELETE_RANGE;
    batch->user_bytes += key.length + value.length;
    return TAMIS_OK;
}

tamis_status
tamis_batch_put(tamis_batch *batch, tamis_slice key, tamis_slice value, tamis_error *err)
{
    return batch_add(batch, TM_KIND_PUT, key, value, err);
}

tamis_status
tamis_batch_delete(tamis_batch *batch, tamis_slice key, tamis_error *err)
{
    return batch_add(batch, TM_KIND_DELETE, key, tm_slice(NULL, 0), err);
}

tamis_status
tamis_batch_delete_range(tamis_batch *batch, tamis_slice from, tamis_slice to, tamis_error *err)
{
    tamis_status status = tm_check_key(to, err);

    if (status == TAMIS_OK)
        status = tm_check_key(from, err);
    if (status != TAMIS_OK)
        return status;
    batch->asked_for_range = true;
    if (tm_slice_compare(from, to) >= 0)
        return TAMIS_OK;
    return batch_add(batch, TM_KIND_DELETE_RANGE, from, to, err);
}

tamis_status
tamis_batch_append(tamis_batch *batch, const tamis_batch *more, tamis_error *err)
{
    size_t length = more->operations.length; // `more` may be `batch`
    size_t count = more->count;
    size_t range_count = more->range_count;
    size_t user_bytes = more->user_bytes;
    tamis_status status = check_room(batch, length, count, err);

    if (status == TAMIS_OK)
        status = tm_buf_reserve(&batch->env, &batch->operations, length, err); // A1
    if (status != TAMIS_OK)
        return status;
    append_piece(&batch->operations, more->operations.data, length);
    batch->count += count;
    batch->range_count += range_count;
    batch->asked_for_range |= more->asked_for_range;
    batch->user_bytes += user_bytes;
    return TAMIS_OK;
}

void
tamis_batch_visit(const tamis_batch *batch,
                  bool (*visit)(void *arg, const tamis_operation *operation), void *arg)
{
    tamis_slice operations = tm_batch_operations(batch);
    struct tm_batch_cursor cursor = {operations.data,
                                     (const uint8_t *)operations.data + operations.length};
    struct tm_entry entry;

    while (tm_batch_next(&cursor, &entry) == 1) {
        tamis_operation operation = {
            entry.kind == TM_KIND_PUT      ? TAMIS_OPERATION_PUT
            : entry.kind == TM_KIND_DELETE ? TAMIS_OPERATION_DELETE
                                           : TAMIS_OPERATION_DELETE_RANGE,
            entry.key,
            entry.value,
        };

        if (!visit(arg, &operation))
            return;
    }
}

size_t
tamis_batch_count(const tamis_batch *batch)
{
    return batch->count;
}

size_t
tamis_batch_bytes(const tamis_batch *batch)
{
    return batch->operations.length;
}

size_t
tm_batch_user_bytes(const tamis_batch *batch)
{
    return batch->user_bytes;
}

size_t
tm_batch_range_count(const tamis_batch *batch)
{
    return batch->range_count;
}

bool
tm_batch_asked_for_range(const tamis_batch *batch)
{
    return batch->asked_for_range;
}

tamis_slice
tm_batch_operations(const tamis_batch *batch)
{
    return tm_slice(batch->operations.data, batch->operations.length);
}

/* A length and as many bytes; false when the bytes are not there or are more than `length_max`. */
static bool
take_bytes(struct tm_cursor *bytes, size_t length_max, tamis_slice *slice)
{
    uint64_t length = tm_cursor_varint(bytes);
    const uint8_t *data;

    if (bytes->failed || length > length_max)
        return false;
    data = tm_cursor_bytes(bytes, length);
    *slice = tm_slice(data, (size_t)length);
    return !bytes->failed;
}

int
tm_batch_next(struct tm_batch_cursor *cursor, struct tm_entry *entry)
{
    struct tm_cursor bytes = {cursor->next, cursor->end, false};
    tamis_slice key;
    tamis_slice value = {NULL, 0};
    uint8_t kind;

    if (cursor->next == cursor->end)
        return 0;
    kind = tm_cursor_u8(&bytes);
    if (kind > TM_KIND_DELETE_RANGE || !take_bytes(&bytes, TAMIS_KEY_BYTES_MAX, &key))
        return -1;
    if (kind == TM_KIND_PUT && !take_bytes(&bytes, TAMIS_VALUE_BYTES_MAX, &value))
        return -1;
    if (kind == TM_KIND_DELETE_RANGE &&
        (!take_bytes(&bytes, TAMIS_KEY_BYTES_MAX, &value) || tm_slice_compare(key, value) >= 0))
        return -1;
    entry->key = key;
    entry->value = value;
    entry->kind = (enum tm_kind)kind;
    cursor->next = bytes.next;
    return 1;
}
