/* SPDX-License-Identifier: MIT
 *
 * sstable/os_memory.c -- the default allocator: small blocks from malloc, large ones as pages of their own.
 *
 * A memtable is freed as a whole, and so are the buffers of a flush. malloc keeps such memory for later once it has seen large
 * blocks come and go, so that a store held several times what it used. Pages of their own go back to the system when they are
 * released, and grow without a copy.
 *
 * Threads  any; nothing is shared.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "sstable/env.h"

enum {
    // From here on a block is pages: what is lost at its end is 1.5 per cent at most, and a call is little beside its first use.
    LARGE_BYTES = 256 << 10,
};

static bool
is_large(size_t size)
{
    return size >= LARGE_BYTES;
}

static void *
take_pages(size_t size)
{
    void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    return p != MAP_FAILED ? p : NULL;
}

static void *
default_alloc(void *ctx, size_t size)
{
    (void)ctx;
    return is_large(size) ? take_pages(size) : malloc(size);
}

static void
default_release(void *ctx, void *p, size_t size)
{
    (void)ctx;
    if (p != NULL && is_large(size))
        (void)munmap(p, size); // fails for no block of ours
    else
        free(p);
}

static void *
default_resize(void *ctx, void *p, size_t size_old, size_t size_new)
{
    void *moved;

    if (p == NULL)
        return default_alloc(ctx, size_new);
    if (!is_large(size_old) && !is_large(size_new))
        return realloc(p, size_new);
    if (is_large(size_old) && is_large(size_new)) {
        moved = mremap(p, size_old, size_new, MREMAP_MAYMOVE);
        return moved != MAP_FAILED ? moved : NULL;
    }
    moved = default_alloc(ctx, size_new);
    if (moved == NULL)
        return NULL;
    memcpy(moved, p, size_old < size_new ? size_old : size_new);
    default_release(ctx, p, size_old);
    return moved;
}

tamis_allocator
tm_allocator_default(void)
{
    tamis_allocator allocator = {NULL, default_alloc, default_resize, default_release};
    return allocator;
}
