/* SPDX-License-Identifier: MIT
 *
 * sstable/env.h -- the world as one store sees it: memory, files, threads, the order of keys. Passed explicitly; nothing is global.
 */
#ifndef TM_SSTABLE_ENV_H
#define TM_SSTABLE_ENV_H

#include <string.h>

#include "sstable/order.h"
#include "sstable/runtime.h"
#include "sstable/status.h"

struct tm_env {
    tamis_allocator allocator;
    const tamis_fs *fs;
    const struct tm_runtime *runtime;
    struct tm_order order; // of keys
};

/** malloc for small blocks, pages that go back to the system for large ones (os_memory.c). */
tamis_allocator tm_allocator_default(void);

/** NULL when there is no memory; never for size 0 (one byte is asked for). */
static inline void *
tm_alloc(const struct tm_env *env, size_t size)
{
    return env->allocator.alloc(env->allocator.ctx, size != 0 ? size : 1);
}

static inline void *
tm_alloc_zeroed(const struct tm_env *env, size_t size)
{
    void *p = tm_alloc(env, size);
    if (p != NULL)
        memset(p, 0, size);
    return p;
}

/** NULL: no memory, `p` (may be NULL with size_old 0) is still valid. */
static inline void *
tm_resize(const struct tm_env *env, void *p, size_t size_old, size_t size_new)
{
    if (p == NULL)
        return tm_alloc(env, size_new);
    return env->allocator.resize(env->allocator.ctx, p, size_old != 0 ? size_old : 1,
                                 size_new != 0 ? size_new : 1);
}

/** `p` may be NULL; `size` is that of the allocation. */
static inline void
tm_release(const struct tm_env *env, void *p, size_t size)
{
    if (p != NULL)
        env->allocator.release(env->allocator.ctx, p, size != 0 ? size : 1);
}

/** Growable bytes that belong to an env. Zeroed is empty. */
struct tm_buf {
    uint8_t *data;
    size_t length;
    size_t capacity;
};

/** Room for `more` bytes behind length. TAMIS_OK or TAMIS_NO_MEMORY (contents unchanged). */
TAMIS_NODISCARD tamis_status tm_buf_reserve(const struct tm_env *env, struct tm_buf *buf,
                                            size_t more, tamis_error *err);
/** Append bytes. TAMIS_OK or TAMIS_NO_MEMORY (contents unchanged). */
TAMIS_NODISCARD tamis_status tm_buf_append(const struct tm_env *env, struct tm_buf *buf,
                                           const void *data, size_t length, tamis_error *err);
void tm_buf_release(const struct tm_env *env, struct tm_buf *buf);

/** The one complaint about memory. */
tamis_status tm_no_memory(tamis_error *err, size_t size, const char *where);
#define TM_NO_MEMORY(err, size) tm_no_memory((err), (size), TM_HERE)

#endif
