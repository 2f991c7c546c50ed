/* SPDX-License-Identifier: MIT
 *
 * filter/kernel_avx512.c -- sixteen probes at once; both lines of a pair in one instruction.
 *
 *   stream   h  h*G  h*G^2 ... h*G^15           sixteen lanes of 32 bits
 *   word     top 4 bits: which of 16 words      + 16 in the lanes of part B
 *   bit      next 5 bits: which of 32 bits
 *   fetch    one permute picks a word for each lane from the 16 words of A and the 16 of B
 *   answer   no lane whose bit is 0
 *
 * Compiled with AVX-512 F, BW, DQ, VL and BMI2; runs only where dispatch.c has found them.
 * Filters of more than sixteen probes take the plain loops: the tables give as many only beyond 27
 * bits a key.
 */
#ifdef TM_SIMD_X86
#include <immintrin.h>

#include "filter/kernel.h"
#include "filter/kernel_inline.h"
#include "filter/probe.h"

enum { LANES = 16 };

/* h * G^0 .. h * G^15. */
static inline __m512i
stream_lanes(uint32_t stream)
{
    const __m512i powers = _mm512_setr_epi32(
        0x00000001, (int)0x9e3779b9, (int)0xe35e67b1, 0x734297e9, 0x35fbe861, (int)0xdeb7c719,
        0x0448b211, 0x3459b749, (int)0xab25f4c1, 0x52941879, (int)0x9c95e071, (int)0xf5ab9aa9,
        0x2d6ba521, (int)0x8bededd9, (int)0x9bfb72d1, 0x3ae1c209);

    return _mm512_mullo_epi32(_mm512_set1_epi32((int)stream), powers);
}

/* Sixteen lanes, `first` in those below `count` (0..16), `rest` in the others: read from the middle
 * of a table. A constant broadcast or a lane mask would each be a transfer from an integer
 * register, which costs more than a load; this alone took a query of a pair from 2.7 to 2.5 ns. */
static inline __m512i
lanes_split(const uint8_t table[2 * LANES], uint32_t count)
{
    return _mm512_cvtepu8_epi32(
        _mm_loadu_si128((const __m128i *)(const void *)(table + LANES - count)));
}

static const uint8_t one_then_zero[2 * LANES] __attribute__((aligned(2 * LANES))) = {
    1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
};
static const uint8_t zero_then_lanes[2 * LANES] __attribute__((aligned(2 * LANES))) = {
    0,     0,     0,     0,     0,     0,     0,     0,     0,     0,     0,
    0,     0,     0,     0,     0,     LANES, LANES, LANES, LANES, LANES, LANES,
    LANES, LANES, LANES, LANES, LANES, LANES, LANES, LANES, LANES, LANES,
};

/* In the first `probes` lanes the bit that the stream names, in the others nothing. */
static inline __m512i
probe_bits(__m512i stream, uint32_t probes)
{
    // Rotating takes the count modulo 32, so the four bits of the word need no mask.
    return _mm512_rolv_epi32(lanes_split(one_then_zero, probes),
                             _mm512_srli_epi32(stream, TM_BIT_SHIFT));
}

static inline bool
all_set(__m512i words, __m512i bits)
{
    return _mm512_cmpneq_epi32_mask(_mm512_and_si512(words, bits), bits) == 0;
}

TM_INLINE bool
ask_blk512(const tamis_filter *filter, uint64_t hash)
{
    const __m512i line = _mm512_loadu_si512(tm_line_a_address(filter, filter->body, hash));
    const __m512i stream = stream_lanes((uint32_t)hash);
    const __m512i words = _mm512_permutexvar_epi32(_mm512_srli_epi32(stream, 28), line);

    return all_set(words, probe_bits(stream, filter->probes_a));
}

TM_INLINE bool
ask_pair512(const tamis_filter *filter, uint64_t hash)
{
    const __m512i line_a = _mm512_loadu_si512(tm_line_a_address(filter, filter->body, hash));
    const __m512i line_b = _mm512_loadu_si512(tm_line_b_address(filter, filter->body, hash));
    const __m512i stream = stream_lanes((uint32_t)hash);
    const __m512i word = _mm512_or_si512(_mm512_srli_epi32(stream, 28),
                                         lanes_split(zero_then_lanes, filter->probes_a));
    const __m512i words = _mm512_permutex2var_epi32(line_a, word, line_b);

    return all_set(words, probe_bits(stream, (uint32_t)filter->probes_a + filter->probes_b));
}

/* Can the probes of a filter of lines be one vector? */
static inline bool
fits_lanes(const tamis_filter *filter)
{
    return filter->probes_a + filter->probes_b <= LANES;
}

static bool
avx512_may_contain(const tamis_filter *filter, uint64_t hash)
{
    if (filter->kind == TAMIS_FILTER_PAIR512 && fits_lanes(filter))
        return ask_pair512(filter, hash);
    if (filter->kind == TAMIS_FILTER_BLK512 && fits_lanes(filter))
        return ask_blk512(filter, hash);
    if (filter->kind == TAMIS_FILTER_STANDARD)
        return tm_standard_may_contain(filter, hash);
    return tm_kernel_scalar.may_contain(filter, hash);
}

static uint64_t
avx512_count_maybe(const tamis_filter *filter, const uint64_t *hashes, uint64_t count)
{
    if (filter->kind == TAMIS_FILTER_PAIR512 && fits_lanes(filter))
        return tm_count_maybe(filter, hashes, count, ask_pair512);
    if (filter->kind == TAMIS_FILTER_BLK512 && fits_lanes(filter))
        return tm_count_maybe(filter, hashes, count, ask_blk512);
    if (filter->kind == TAMIS_FILTER_STANDARD)
        return tm_count_maybe(filter, hashes, count, tm_standard_may_contain);
    return tm_kernel_scalar.count_maybe(filter, hashes, count);
}

/* Add to a line the bits of `probes` lanes of `positions`, from lane `first`. Both are constants
 * where this is used.
 *
 * One probe: its position in each of the eight lanes of 64 bits, less the position where the lane
 * starts; a one shifted by that. A shift by 64 or more (or below 0) gives 0, so only the right lane
 * gets its bit. */
TM_INLINE void
add_to_line(uint8_t *line, __m512i positions, uint32_t first, uint32_t probes)
{
    const __m512i starts = _mm512_setr_epi64(0, 64, 128, 192, 256, 320, 384, 448);
    const __m512i one = _mm512_set1_epi64(1);
    const __mmask16 low_halves = 0x5555;
    __m512i bits = _mm512_setzero_si512();

#pragma GCC unroll 16
    for (uint32_t i = 0; i < probes; i++) {
        __m512i position = _mm512_maskz_permutexvar_epi32(
            low_halves, _mm512_set1_epi32((int)(first + i)), positions);

        bits = _mm512_or_si512(bits, _mm512_sllv_epi64(one, _mm512_sub_epi64(position, starts)));
    }
    _mm512_storeu_si512(line, _mm512_or_si512(_mm512_loadu_si512(line), bits));
}

static inline __m512i
stream_positions(uint64_t hash)
{
    return _mm512_srli_epi32(stream_lanes((uint32_t)hash), TM_BIT_SHIFT);
}

TM_INLINE void
insert_blk512(const tamis_filter *filter, uint8_t *body, const uint64_t *hashes, uint64_t count,
              uint32_t probes)
{
    const uint64_t lines = filter->lines_a;

    for (uint64_t i = 0; i < count; i++) {
        uint64_t later = hashes[i + TM_KEYS_AHEAD < count ? i + TM_KEYS_AHEAD : i];

        tm_prefetch_write(body + TM_LINE_BYTES * tm_line_a(later, lines));
        add_to_line(body + TM_LINE_BYTES * tm_line_a(hashes[i], lines), stream_positions(hashes[i]),
                    0, probes);
    }
}

TM_INLINE void
insert_pair512(const tamis_filter *filter, uint8_t *body, const uint64_t *hashes, uint64_t count,
               uint32_t probes_a, uint32_t probes_b)
{
    const uint64_t lines_a = filter->lines_a;
    const uint64_t lines_b = filter->lines_b;
    uint8_t *const body_b = body + TM_LINE_BYTES * lines_a;

    for (uint64_t i = 0; i < count; i++) {
        uint64_t later = hashes[i + TM_KEYS_AHEAD < count ? i + TM_KEYS_AHEAD : i];
        __m512i positions = stream_positions(hashes[i]);

        tm_prefetch_write(body + TM_LINE_BYTES * tm_line_a(later, lines_a));
        tm_prefetch_write(body_b + TM_LINE_BYTES * tm_line_b(later, lines_b));
        add_to_line(body + TM_LINE_BYTES * tm_line_a(hashes[i], lines_a), positions, 0, probes_a);
        add_to_line(body_b + TM_LINE_BYTES * tm_line_b(hashes[i], lines_b), positions, probes_a,
                    probes_b);
    }
}

/* The loops below are compiled once for each number of probes that the tables choose: with the
 * number in a register a key of a pair of ten bits costs 4.2 ns, with a constant 2.7. */

static void
insert_blk512_any(const tamis_filter *filter, uint8_t *body, const uint64_t *hashes, uint64_t count)
{
    switch (filter->probes_a) {
    case 1:
        insert_blk512(filter, body, hashes, count, 1);
        break;
    case 2:
        insert_blk512(filter, body, hashes, count, 2);
        break;
    case 3:
        insert_blk512(filter, body, hashes, count, 3);
        break;
    case 4:
        insert_blk512(filter, body, hashes, count, 4);
        break;
    case 5:
        insert_blk512(filter, body, hashes, count, 5);
        break;
    case 6:
        insert_blk512(filter, body, hashes, count, 6);
        break;
    case 7:
        insert_blk512(filter, body, hashes, count, 7);
        break;
    case 8:
        insert_blk512(filter, body, hashes, count, 8);
        break;
    case 9:
        insert_blk512(filter, body, hashes, count, 9);
        break;
    case 10:
        insert_blk512(filter, body, hashes, count, 10);
        break;
    case 11:
        insert_blk512(filter, body, hashes, count, 11);
        break;
    case 12:
        insert_blk512(filter, body, hashes, count, 12);
        break;
    case 13:
        insert_blk512(filter, body, hashes, count, 13);
        break;
    case 14:
        insert_blk512(filter, body, hashes, count, 14);
        break;
    case 15:
        insert_blk512(filter, body, hashes, count, 15);
        break;
    case 16:
        insert_blk512(filter, body, hashes, count, 16);
        break;
    default:
        tm_kernel_scalar.insert(filter, body, hashes, count);
    }
}

static void
insert_pair512_any(const tamis_filter *filter, uint8_t *body, const uint64_t *hashes,
                   uint64_t count)
{
    uint32_t probes = (uint32_t)filter->probes_a + filter->probes_b;

    switch (filter->probes_a == probes / 2 ? probes : 0) {
    case 2:
        insert_pair512(filter, body, hashes, count, 1, 1);
        break;
    case 3:
        insert_pair512(filter, body, hashes, count, 1, 2);
        break;
    case 4:
        insert_pair512(filter, body, hashes, count, 2, 2);
        break;
    case 5:
        insert_pair512(filter, body, hashes, count, 2, 3);
        break;
    case 6:
        insert_pair512(filter, body, hashes, count, 3, 3);
        break;
    case 7:
        insert_pair512(filter, body, hashes, count, 3, 4);
        break;
    case 8:
        insert_pair512(filter, body, hashes, count, 4, 4);
        break;
    case 9:
        insert_pair512(filter, body, hashes, count, 4, 5);
        break;
    case 10:
        insert_pair512(filter, body, hashes, count, 5, 5);
        break;
    case 11:
        insert_pair512(filter, body, hashes, count, 5, 6);
        break;
    case 12:
        insert_pair512(filter, body, hashes, count, 6, 6);
        break;
    case 13:
        insert_pair512(filter, body, hashes, count, 6, 7);
        break;
    case 14:
        insert_pair512(filter, body, hashes, count, 7, 7);
        break;
    case 15:
        insert_pair512(filter, body, hashes, count, 7, 8);
        break;
    case 16:
        insert_pair512(filter, body, hashes, count, 8, 8);
        break;
    default:
        tm_kernel_scalar.insert(filter, body, hashes, count);
    }
}

static void
avx512_insert(const tamis_filter *filter, uint8_t *body, const uint64_t *hashes, uint64_t count)
{
    if (filter->kind == TAMIS_FILTER_PAIR512)
        insert_pair512_any(filter, body, hashes, count);
    else if (filter->kind == TAMIS_FILTER_BLK512)
        insert_blk512_any(filter, body, hashes, count);
    else if (filter->kind == TAMIS_FILTER_STANDARD)
        tm_standard_insert(filter, body, hashes, count);
    else
        tm_kernel_scalar.insert(filter, body, hashes, count);
}

const struct tm_kernel tm_kernel_avx512 = {
    .name = "avx512",
    .may_contain = avx512_may_contain,
    .insert = avx512_insert,
    .count_maybe = avx512_count_maybe,
};
#endif
