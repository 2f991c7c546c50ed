/* SPDX-License-Identifier: MIT
 *
 * filter/dispatch.c -- one kernel for this machine, chosen when the program starts.
 *
 *   load time   chosen = scalar (static initialiser)
 *   constructor chosen = best that cpuid and the operating system allow
 *   afterwards  never changes
 *
 * The pointer is the only global of the folder. It is atomic, so a thread that another library
 * started in its own constructor may ask while ours runs: it sees one kernel or the other, and all
 * give the same answers (K1, K3).
 */
#include <stdatomic.h>

#include "filter/kernel.h"
#include "filter/probe.h"

static const struct tm_kernel *_Atomic chosen = &tm_kernel_scalar;

const struct tm_kernel *
tm_kernel_chosen(void)
{
    return atomic_load_explicit(&chosen, memory_order_relaxed); // points to constants only
}

const struct tm_kernel *
tm_kernel_usable(size_t index)
{
    const struct tm_kernel *usable[4] = {&tm_kernel_scalar};
    size_t count = 1;

#ifdef TM_SIMD_X86
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi2"))
        usable[count++] = &tm_kernel_avx2;
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("bmi2"))
        usable[count++] = &tm_kernel_avx512;
#endif
    return index < count ? usable[index] : NULL;
}

__attribute__((constructor)) static void
choose(void)
{
    const struct tm_kernel *best = &tm_kernel_scalar;

    for (size_t i = 1; tm_kernel_usable(i) != NULL; i++)
        best = tm_kernel_usable(i);
    atomic_store_explicit(&chosen, best, memory_order_relaxed);
}

const char *
tamis_filter_kernel_name(void)
{
    return tm_kernel_chosen()->name;
}

bool
tamis_filter_may_contain(const tamis_filter *filter, uint64_t hash)
{
    return tm_kernel_chosen()->may_contain(filter, hash);
}

uint64_t
tamis_filter_count_maybe(const tamis_filter *filter, const uint64_t *hashes, uint64_t count)
{
    return tm_kernel_chosen()->count_maybe(filter, hashes, count);
}
