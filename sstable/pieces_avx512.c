/* SPDX-License-Identifier: MIT
 *
 * sstable/pieces_avx512.c -- eight pieces at a time. Lanes at or behind `count` are not loaded (P2).
 */
#include "sstable/pieces.h"

#ifdef TM_SIMD_X86

#include <immintrin.h>

/* Which of pieces 8 * at .. 8 * at + 7 are there. */
static inline __mmask8
there(uint32_t at, uint32_t count)
{
    uint32_t left = count > 8 * at ? count - 8 * at : 0;

    return left < 8 ? (__mmask8)((1U << left) - 1) : (__mmask8)0xff;
}

/* `predicate` is known when this is compiled: it is part of the instruction. */
static inline __attribute__((always_inline)) uint32_t
compare(const uint64_t *pieces, uint32_t count, uint64_t piece, const int predicate)
{
    const __m512i wanted = _mm512_set1_epi64((long long)piece);
    uint32_t mask = 0;

    for (uint32_t at = 0; at < TM_NODE_PIECES / 8; at++) {
        __mmask8 lanes = there(at, count);
        __m512i eight = _mm512_maskz_loadu_epi64(lanes, pieces + 8 * (size_t)at);

        mask |= (uint32_t)_mm512_mask_cmp_epu64_mask(lanes, eight, wanted, predicate) << (8 * at);
    }
    return mask;
}

static uint32_t
equal(const uint64_t *pieces, uint32_t count, uint64_t piece)
{
    return compare(pieces, count, piece, _MM_CMPINT_EQ);
}

static uint32_t
at_most(const uint64_t *pieces, uint32_t count, uint64_t piece)
{
    return compare(pieces, count, piece, _MM_CMPINT_LE);
}

const struct tm_pieces_kernel tm_pieces_avx512 = {"avx512", equal, at_most};

#endif
