/* SPDX-License-Identifier: MIT
 *
 * sstable/pieces_avx2.c -- four pieces at a time. Lanes at or behind `count` are not loaded (P2).
 */
#include "sstable/pieces.h"

#ifdef TM_SIMD_X86

#include <immintrin.h>

/* Pieces 4 * at .. 4 * at + 3, zeros for those that are not there. */
static inline __m256i
load(const uint64_t *pieces, uint32_t at, uint32_t count)
{
    const __m256i lanes = _mm256_set_epi64x(3, 2, 1, 0);
    __m256i there =
        _mm256_cmpgt_epi64(_mm256_set1_epi64x((long long)count - 4 * (long long)at), lanes);

    return _mm256_maskload_epi64((const long long *)(pieces + 4 * (size_t)at), there);
}

static inline uint32_t
mask_of(__m256i lanes)
{
    return (uint32_t)_mm256_movemask_pd(_mm256_castsi256_pd(lanes));
}

static inline uint32_t
mask_of_count(uint32_t count)
{
    return count < 32 ? ((uint32_t)1 << count) - 1 : UINT32_MAX;
}

static uint32_t
equal(const uint64_t *pieces, uint32_t count, uint64_t piece)
{
    const __m256i wanted = _mm256_set1_epi64x((long long)piece);
    uint32_t mask = 0;

    for (uint32_t at = 0; 4 * at < count; at++)
        mask |= mask_of(_mm256_cmpeq_epi64(load(pieces, at, count), wanted)) << (4 * at);
    return mask & mask_of_count(count);
}

/* Comparisons are of signed numbers: the highest bit turned, order is that of unsigned ones. */
static uint32_t
at_most(const uint64_t *pieces, uint32_t count, uint64_t piece)
{
    const __m256i turn = _mm256_set1_epi64x(INT64_MIN);
    const __m256i bound = _mm256_xor_si256(_mm256_set1_epi64x((long long)piece), turn);
    uint32_t above = 0;

    for (uint32_t at = 0; 4 * at < count; at++)
        above |= mask_of(_mm256_cmpgt_epi64(_mm256_xor_si256(load(pieces, at, count), turn), bound))
                 << (4 * at);
    return ~above & mask_of_count(count);
}

const struct tm_pieces_kernel tm_pieces_avx2 = {"avx2", equal, at_most};

#endif
