/* SPDX-License-Identifier: MIT
 *
 * filter/kernel.h -- the inner loops of setting and asking, once for each instruction set.
 *
 *   kernel_scalar.c   any machine
 *   kernel_avx2.c     x86-64 with AVX2         compiled with their own flags, so that none of their
 *   kernel_avx512.c   x86-64 with AVX-512      instructions gets into what all machines run
 *        |
 *   dispatch.c        chooses one when the program starts
 *
 * Invariants
 *   K1  All kernels set the same bits and give the same answers (tests/filter/test_kernels.c).
 *   K2  A kernel reads and writes only inside the body that the filter describes.
 *   K3  The choice is made before main(); whoever asks earlier gets the scalar kernel, which is
 *       right too.
 *
 * Threads  asking: any number at once. Setting: one owner of the body.
 * Not here: order of insertion (build.c), geometry, bytes on disk.
 */
#ifndef TM_FILTER_KERNEL_H
#define TM_FILTER_KERNEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <tamis/filter.h>

struct tm_kernel {
    const char *name;

    /** The answer; EMPTY_SET says no, every kind that is not known says maybe. */
    bool (*may_contain)(const tamis_filter *filter, uint64_t hash);

    /** Set the bits of `count` hashes in `body`, the body that the filter describes. */
    void (*insert)(const tamis_filter *filter, uint8_t *body, const uint64_t *hashes,
                   uint64_t count);

    /** How many of `count` hashes are answered "maybe". */
    uint64_t (*count_maybe)(const tamis_filter *filter, const uint64_t *hashes, uint64_t count);
};

extern const struct tm_kernel tm_kernel_scalar;
#ifdef TM_SIMD_X86
extern const struct tm_kernel tm_kernel_avx2;
extern const struct tm_kernel tm_kernel_avx512;
#endif

/** The kernel in use. */
const struct tm_kernel *tm_kernel_chosen(void);

/** Kernels that this machine can run, scalar first, best last; NULL when `index` is past them. */
const struct tm_kernel *tm_kernel_usable(size_t index);

/** Start loading a line that will be read (written). */
static inline void
tm_prefetch_read(const void *address)
{
    __builtin_prefetch(address, 0, 3);
}

static inline void
tm_prefetch_write(const void *address)
{
    __builtin_prefetch(address, 1, 3);
}

#endif
