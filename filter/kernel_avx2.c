/* SPDX-License-Identifier: MIT
 *
 * filter/kernel_avx2.c -- eight probes at once.
 *
 *   stream   h  h*G ... h*G^7                   eight lanes of 32 bits; the next pass is at h*G^8
 *   word     top 4 bits: the first says which half of the line, three which word of the half
 *   fetch    a permute of each half, and the top bit of the lane chooses between them
 *   pair     the same for line B, and lanes from k1 on take it
 *
 * Compiled with AVX2 and BMI2; runs only where dispatch.c has found them.
 */
#ifdef TM_SIMD_X86
#include <immintrin.h>

#include "filter/kernel.h"
#include "filter/kernel_inline.h"
#include "filter/probe.h"

enum { LANES = 8 };

#define STREAM_POWER_8 UINT32_C(0xab25f4c1) // G^8

/* h * G^0 .. h * G^7. */
static inline __m256i
stream_lanes(uint32_t stream)
{
    const __m256i powers =
        _mm256_setr_epi32(0x00000001, (int)0x9e3779b9, (int)0xe35e67b1, 0x734297e9, 0x35fbe861,
                          (int)0xdeb7c719, 0x0448b211, 0x3459b749);

    return _mm256_mullo_epi32(_mm256_set1_epi32((int)stream), powers);
}

/* All ones in lanes below `count`; a count beyond 0..8 gives none or all. */
static inline __m256i
lanes_below(int count)
{
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(count), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

/* For each lane the word of the line that its stream value names. */
static inline __m256i
line_words(const uint8_t *line, __m256i stream)
{
    const __m256i low = _mm256_loadu_si256((const __m256i *)(const void *)line);
    const __m256i high = _mm256_loadu_si256((const __m256i *)(const void *)(line + 32));
    const __m256i word = _mm256_srli_epi32(stream, 28); // the permute looks at three bits

    return _mm256_castps_si256(
        _mm256_blendv_ps(_mm256_castsi256_ps(_mm256_permutevar8x32_epi32(low, word)),
                         _mm256_castsi256_ps(_mm256_permutevar8x32_epi32(high, word)),
                         _mm256_castsi256_ps(stream))); // its top bit is the word's
}

static inline __m256i
word_bits(__m256i stream)
{
    const __m256i shift =
        _mm256_and_si256(_mm256_srli_epi32(stream, TM_BIT_SHIFT), _mm256_set1_epi32(31));

    return _mm256_sllv_epi32(_mm256_set1_epi32(1), shift);
}

TM_INLINE bool
ask_blk512(const tamis_filter *filter, uint64_t hash)
{
    const uint8_t *line = tm_line_a_address(filter, filter->body, hash);
    uint32_t h = (uint32_t)hash;
    int left = filter->probes_a;

    for (;;) {
        const __m256i stream = stream_lanes(h);
        const __m256i bits = _mm256_and_si256(word_bits(stream), lanes_below(left));

        if (!_mm256_testc_si256(line_words(line, stream), bits))
            return false;
        if (left <= LANES)
            return true;
        left -= LANES;
        h *= STREAM_POWER_8;
    }
}

TM_INLINE bool
ask_pair512(const tamis_filter *filter, uint64_t hash)
{
    const uint8_t *line_a = tm_line_a_address(filter, filter->body, hash);
    const uint8_t *line_b = tm_line_b_address(filter, filter->body, hash);
    uint32_t h = (uint32_t)hash;
    int left_a = filter->probes_a;
    int left = filter->probes_a + filter->probes_b;

    for (;;) {
        const __m256i stream = stream_lanes(h);
        const __m256i bits = _mm256_and_si256(word_bits(stream), lanes_below(left));
        const __m256i words = _mm256_blendv_epi8(line_words(line_b, stream),
                                                 line_words(line_a, stream), lanes_below(left_a));

        if (!_mm256_testc_si256(words, bits))
            return false;
        if (left <= LANES)
            return true;
        left_a -= LANES;
        left -= LANES;
        h *= STREAM_POWER_8;
    }
}

static bool
avx2_may_contain(const tamis_filter *filter, uint64_t hash)
{
    if (filter->kind == TAMIS_FILTER_PAIR512)
        return ask_pair512(filter, hash);
    if (filter->kind == TAMIS_FILTER_BLK512)
        return ask_blk512(filter, hash);
    if (filter->kind == TAMIS_FILTER_STANDARD)
        return tm_standard_may_contain(filter, hash);
    return tm_kernel_scalar.may_contain(filter, hash);
}

static uint64_t
avx2_count_maybe(const tamis_filter *filter, const uint64_t *hashes, uint64_t count)
{
    if (filter->kind == TAMIS_FILTER_PAIR512)
        return tm_count_maybe(filter, hashes, count, ask_pair512);
    if (filter->kind == TAMIS_FILTER_BLK512)
        return tm_count_maybe(filter, hashes, count, ask_blk512);
    if (filter->kind == TAMIS_FILTER_STANDARD)
        return tm_count_maybe(filter, hashes, count, tm_standard_may_contain);
    return tm_kernel_scalar.count_maybe(filter, hashes, count);
}

/* Building gains nothing from eight lanes over the plain loop with the shifts of BMI2. */
static void
avx2_insert(const tamis_filter *filter, uint8_t *body, const uint64_t *hashes, uint64_t count)
{
    switch (filter->kind) {
    case TAMIS_FILTER_PAIR512:
        tm_insert_lines(filter, body, hashes, count, tm_pair512_set);
        break;
    case TAMIS_FILTER_BLK512:
        tm_insert_lines(filter, body, hashes, count, tm_blk512_set);
        break;
    case TAMIS_FILTER_STANDARD:
        tm_standard_insert(filter, body, hashes, count);
        break;
    default:
        break; // no bits
    }
}

const struct tm_kernel tm_kernel_avx2 = {
    .name = "avx2",
    .may_contain = avx2_may_contain,
    .insert = avx2_insert,
    .count_maybe = avx2_count_maybe,
};
#endif
