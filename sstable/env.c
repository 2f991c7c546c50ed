/* SPDX-License-Identifier: MIT
 *
 * sstable/env.c -- growable bytes.
 */
#include "sstable/env.h"

tamis_status
tm_no_memory(tamis_error *err, size_t size, const char *where)
{
    return tm_fail(err, TAMIS_NO_MEMORY, 0, where, "no memory for %zu bytes", size);
}

tamis_status
tm_buf_reserve(const struct tm_env *env, struct tm_buf *buf, size_t more, tamis_error *err)
{
    size_t needed;
    size_t capacity;
    uint8_t *data;

    if (more <= buf->capacity - buf->length)
        return TAMIS_OK;
    if (more > SIZE_MAX / 2 - buf->length)
        return TM_NO_MEMORY(err, more);
    needed = buf->length + more;
    // Doubling keeps appending linear; beyond 64 MiB a quarter more is enough and wastes less.
    capacity = buf->capacity < ((size_t)64 << 20) ? buf->capacity * 2
                                                  : buf->capacity + buf->capacity / 4;
    if (capacity < needed)
        capacity = needed < 64 ? 64 : needed;
    data = tm_resize(env, buf->data, buf->capacity, capacity);
    if (data == NULL)
        return TM_NO_MEMORY(err, capacity);
    buf->data = data;
    buf->capacity = capacity;
    return TAMIS_OK;
}

tamis_status
tm_buf_append(const struct tm_env *env, struct tm_buf *buf, const void *data, size_t length,
              tamis_error *err)
{
    tamis_status status = tm_buf_reserve(env, buf, length, err);
    if (status != TAMIS_OK)
        return status;
    if (length != 0)
        memcpy(buf->data + buf->length, data, length);
    buf->length += length;
    return TAMIS_OK;
}

void
tm_buf_release(const struct tm_env *env, struct tm_buf *buf)
{
    tm_release(env, buf->data, buf->capacity);
    memset(buf, 0, sizeof *buf);
}
