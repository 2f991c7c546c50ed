/* SPDX-License-Identifier: MIT
 *
 * sstable/pieces.c -- the kernel for any machine, and which one this machine uses.
 */
#include "sstable/pieces.h"

#include <stdatomic.h>

static uint32_t
equal(const uint64_t *pieces, uint32_t count, uint64_t piece)
{
    uint32_t mask = 0;

    for (uint32_t i = 0; i < count; i++)
        mask |= (uint32_t)(pieces[i] == piece) << i;
    return mask;
}

static uint32_t
at_most(const uint64_t *pieces, uint32_t count, uint64_t piece)
{
    uint32_t mask = 0;

    for (uint32_t i = 0; i < count; i++)
        mask |= (uint32_t)(pieces[i] <= piece) << i;
    return mask;
}

const struct tm_pieces_kernel tm_pieces_scalar = {"scalar", equal, at_most};

/* Atomic, so that a thread that another library started in its own constructor may ask while ours runs: all kernels give
 * the same answers (P2). */
static const struct tm_pieces_kernel *_Atomic chosen = &tm_pieces_scalar;

const struct tm_pieces_kernel *
tm_pieces_chosen(void)
{
    return atomic_load_explicit(&chosen, memory_order_relaxed); // points to constants only
}

const struct tm_pieces_kernel *
tm_pieces_usable(size_t index)
{
    const struct tm_pieces_kernel *usable[4] = {&tm_pieces_scalar};
    size_t count = 1;

#ifdef TM_SIMD_X86
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2"))
        usable[count++] = &tm_pieces_avx2;
    if (__builtin_cpu_supports("avx512f"))
        usable[count++] = &tm_pieces_avx512;
#endif
    return index < count ? usable[index] : NULL;
}

__attribute__((constructor)) static void
choose(void)
{
    const struct tm_pieces_kernel *best = &tm_pieces_scalar;

    for (size_t i = 1; tm_pieces_usable(i) != NULL; i++)
        best = tm_pieces_usable(i);
    atomic_store_explicit(&chosen, best, memory_order_relaxed);
}
