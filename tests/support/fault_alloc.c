/* SPDX-License-Identifier: MIT
 *
 * tests/support/fault_alloc.c -- the allocator that fault_alloc.h describes.
 */
#include "tests/support/fault_alloc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAGIC_LIVE     0x6c697665u
#define MAGIC_RELEASED 0x64656164u

struct header {
    _Alignas(max_align_t) size_t size;
    uint64_t magic;
};

static struct header *
checked_header(void *p, size_t size, const char *what)
{
    struct header *header = (struct header *)p - 1;

    if (header->magic != MAGIC_LIVE) {
        fprintf(stderr, "fault_alloc: %s of a block that is %s\n", what,
                header->magic == MAGIC_RELEASED ? "released already" : "not ours, or overrun");
        abort();
    }
    if (header->size != size) {
        fprintf(stderr, "fault_alloc: %s with size %zu of a block of %zu\n", what, size,
                header->size);
        abort();
    }
    return header;
}

static bool
refuse(struct fault_alloc *fault, uint64_t growth_bytes)
{
    uint64_t call = atomic_fetch_add(&fault->call_count, 1) + 1;
    uint64_t fail_at = atomic_load(&fault->fail_at);
    uint64_t limit = atomic_load(&fault->limit_bytes);
    bool refused =
        (fail_at != 0 && (call == fail_at || (call > fail_at && atomic_load(&fault->sticky)))) ||
        (limit != 0 && atomic_load(&fault->live_bytes) + growth_bytes > limit);

    if (refused)
        atomic_fetch_add(&fault->failure_count, 1);
    return refused;
}

static void
count_live(struct fault_alloc *fault, uint64_t added, uint64_t removed)
{
    uint64_t live = atomic_fetch_add(&fault->live_bytes, added - removed) + added - removed;
    uint64_t peak = atomic_load(&fault->peak_bytes);

    while (live > peak && !atomic_compare_exchange_weak(&fault->peak_bytes, &peak, live))
        continue;
}

static void *
fault_take(void *ctx, size_t size)
{
    struct fault_alloc *fault = ctx;
    struct header *header;

    if (refuse(fault, size) || size > SIZE_MAX - sizeof *header)
        return NULL;
    header = malloc(sizeof *header + size);
    if (header == NULL)
        return NULL;
    header->size = size;
    header->magic = MAGIC_LIVE;
    memset(header + 1, 0xa5, size); // nobody may count on zeros
    atomic_fetch_add(&fault->live_count, 1);
    count_live(fault, size, 0);
    return header + 1;
}

static void
fault_release(void *ctx, void *p, size_t size)
{
    struct fault_alloc *fault = ctx;
    struct header *header = checked_header(p, size, "release");

    header->magic = MAGIC_RELEASED;
    memset(p, 0x5a, size);
    free(header);
    atomic_fetch_sub(&fault->live_count, 1);
    count_live(fault, 0, size);
}

/* Always moves the block, so that a pointer kept from before is wrong at once. */
static void *
fault_resize(void *ctx, void *p, size_t size_old, size_t size_new)
{
    struct header *header = checked_header(p, size_old, "resize");
    void *moved = fault_take(ctx, size_new);

    if (moved == NULL)
        return NULL;
    memcpy(moved, header + 1, size_old < size_new ? size_old : size_new);
    fault_release(ctx, p, size_old);
    return moved;
}

void
fault_alloc_init(struct fault_alloc *fault)
{
    memset(fault, 0, sizeof *fault);
}

tamis_allocator
fault_alloc_allocator(struct fault_alloc *fault)
{
    tamis_allocator allocator = {fault, fault_take, fault_resize, fault_release};

    return allocator;
}

void
fault_alloc_fail_after(struct fault_alloc *fault, uint64_t nth, bool sticky)
{
    atomic_store(&fault->sticky, sticky);
    atomic_store(&fault->fail_at, nth == 0 ? 0 : atomic_load(&fault->call_count) + nth);
}
