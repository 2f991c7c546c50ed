/* SPDX-License-Identifier: MIT
 *
 * filter/kernel_scalar.c -- the kernel in plain C: the definition that the others are held to.
 *
 * Not here: the derivations (probe.h).
 */
#include "filter/kernel.h"
#include "filter/probe.h"

/* Keys between the prefetch of a line and its use. Building touches one or two lines a key; 16 keys
 * keep as many misses in flight as current cores track, more did not measure faster. */
enum { AHEAD = 16 };

static inline void
set_bit(uint8_t *bytes, uint64_t bit)
{
    bytes[bit >> 3] |= (uint8_t)(1u << (bit & 7));
}

static inline bool
get_bit(const uint8_t *bytes, uint64_t bit)
{
    return bytes[bit >> 3] >> (bit & 7) & 1;
}

/* Set `probes` bits of one line; returns the stream where the next line goes on. */
static inline uint32_t
set_line(uint8_t *line, uint32_t stream, uint32_t probes)
{
    for (uint32_t i = 0; i < probes; i++) {
        set_bit(line, stream >> TM_BIT_SHIFT);
        stream *= TM_STREAM_MULTIPLIER;
    }
    return stream;
}

static inline bool
ask_line(const uint8_t *line, uint32_t *stream, uint32_t probes)
{
    uint32_t h = *stream;

    for (uint32_t i = 0; i < probes; i++) {
        if (!get_bit(line, h >> TM_BIT_SHIFT))
            return false;
        h *= TM_STREAM_MULTIPLIER;
    }
    *stream = h;
    return true;
}

static inline bool
ask_standard(const tamis_filter *filter, uint64_t hash)
{
    uint64_t bits = filter->lines_a * TM_LINE_BITS;
    uint64_t step = tm_standard_step(hash);

    for (uint32_t i = 0; i < filter->probes_a; i++) {
        if (!get_bit(filter->body, tm_mulhi64(hash, bits)))
            return false;
        hash += step;
    }
    return true;
}

static inline bool
ask_blk512(const tamis_filter *filter, uint64_t hash)
{
    uint32_t stream = (uint32_t)hash;

    return ask_line(filter->body + TM_LINE_BYTES * tm_line_a(hash, filter->lines_a), &stream,
                    filter->probes_a);
}

static inline bool
ask_pair512(const tamis_filter *filter, uint64_t hash)
{
    const uint8_t *line_a = filter->body + TM_LINE_BYTES * tm_line_a(hash, filter->lines_a);
    const uint8_t *line_b =
        filter->body + TM_LINE_BYTES * (filter->lines_a + tm_line_b(hash, filter->lines_b));
    uint32_t stream = (uint32_t)hash;

    tm_prefetch_read(line_b); // part A says no to most strangers, but a friend needs both
    return ask_line(line_a, &stream, filter->probes_a) &&
           ask_line(line_b, &stream, filter->probes_b);
}

static bool
scalar_may_contain(const tamis_filter *filter, uint64_t hash)
{
    switch (filter->kind) {
    case TAMIS_FILTER_PAIR512:
        return ask_pair512(filter, hash);
    case TAMIS_FILTER_BLK512:
        return ask_blk512(filter, hash);
    case TAMIS_FILTER_STANDARD:
        return ask_standard(filter, hash);
    case TAMIS_FILTER_EMPTY_SET:
        return false;
    default:
        return true;
    }
}

static void
insert_standard(const tamis_filter *filter, uint8_t *body, const uint64_t *hashes, uint64_t count)
{
    uint64_t bits = filter->lines_a * TM_LINE_BITS;

    for (uint64_t start = 0; start < count; start += AHEAD) {
        uint64_t batch = count - start < AHEAD ? count - start : AHEAD;
        uint64_t positions[AHEAD * TAMIS_FILTER_PROBES_MAX];
        uint64_t used = 0;

        for (uint64_t i = 0; i < batch; i++) {
            uint64_t hash = hashes[start + i];
            uint64_t step = tm_standard_step(hash);

            for (uint32_t probe = 0; probe < filter->probes_a; probe++) {
                uint64_t position = tm_mulhi64(hash, bits);

                positions[used++] = position;
                tm_prefetch_write(body + (position >> 3));
                hash += step;
            }
        }
        for (uint64_t i = 0; i < used; i++)
            set_bit(body, positions[i]);
    }
}

static inline void
prefetch_lines(const tamis_filter *filter, const uint8_t *body, uint64_t hash,
               enum tm_filter_part part)
{
    if (part & TM_FILTER_PART_A)
        tm_prefetch_write(body + TM_LINE_BYTES * tm_line_a(hash, filter->lines_a));
    if (part & TM_FILTER_PART_B)
        tm_prefetch_write(body + TM_LINE_BYTES *
                                     (filter->lines_a + tm_line_b(hash, filter->lines_b)));
}

static inline void
insert_lines(const tamis_filter *filter, uint8_t *body, uint64_t hash, enum tm_filter_part part)
{
    uint32_t stream = (uint32_t)hash;

    if (part & TM_FILTER_PART_A) {
        stream = set_line(body + TM_LINE_BYTES * tm_line_a(hash, filter->lines_a), stream,
                          filter->probes_a);
    } else {
        for (uint32_t i = 0; i < filter->probes_a; i++)
            stream *= TM_STREAM_MULTIPLIER;
    }
    if (part & TM_FILTER_PART_B)
        set_line(body + TM_LINE_BYTES * (filter->lines_a + tm_line_b(hash, filter->lines_b)),
                 stream, filter->probes_b);
}

static void
scalar_insert(const tamis_filter *filter, uint8_t *body, const uint64_t *hashes, uint64_t count,
              enum tm_filter_part part)
{
    if (filter->kind == TAMIS_FILTER_STANDARD) {
        insert_standard(filter, body, hashes, count);
        return;
    }
    if (filter->kind == TAMIS_FILTER_BLK512)
        part = TM_FILTER_PART_A; // one line only
    else if (filter->kind != TAMIS_FILTER_PAIR512)
        return; // no bits
    for (uint64_t i = 0; i < count; i++) {
        if (i + AHEAD < count)
            prefetch_lines(filter, body, hashes[i + AHEAD], part);
        insert_lines(filter, body, hashes[i], part);
    }
}

static bool
scalar_holds_all(const tamis_filter *filter, const uint64_t *hashes, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        if (i + AHEAD < count)
            tamis_filter_prefetch(filter, hashes[i + AHEAD]);
        if (!scalar_may_contain(filter, hashes[i]))
            return false;
    }
    return true;
}

const struct tm_kernel tm_kernel_scalar = {
    .name = "scalar",
    .may_contain = scalar_may_contain,
    .insert = scalar_insert,
    .holds_all = scalar_holds_all,
};
