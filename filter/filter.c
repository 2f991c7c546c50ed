/* SPDX-License-Identifier: MIT
 *
 * filter/filter.c -- what one opened filter can tell without a kernel: names, positions, prefetch.
 *
 * Reading order of the folder: probe.h, geometry.c, kernel_scalar.c, build.c, envelope.c, theory.c.
 *
 * Not here: answers (dispatch.c and the kernels).
 */
#include <tamis/filter.h>

#include <string.h>

#include "filter/kernel_inline.h"
#include "filter/probe.h"

_Static_assert(sizeof(tamis_filter) == 32, "two descriptors share a cache line");

static const struct {
    tamis_filter_kind kind;
    const char *name;
} kinds[] = {
    {TAMIS_FILTER_EMPTY_SET, "empty-set"},     {TAMIS_FILTER_STANDARD, "standard"},
    {TAMIS_FILTER_BLK512, "blk512"},           {TAMIS_FILTER_PAIR512, "pair512"},
    {TAMIS_FILTER_ALWAYS_TRUE, "always-true"},
};

const char *
tamis_filter_kind_name(tamis_filter_kind kind)
{
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        if (kinds[i].kind == kind)
            return kinds[i].name;
    }
    return "unknown";
}

bool
tamis_filter_kind_from_name(const char *name, tamis_filter_kind *kind_out)
{
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        if (strcmp(kinds[i].name, name) == 0) {
            *kind_out = kinds[i].kind;
            return true;
        }
    }
    return false;
}

tamis_filter
tamis_filter_always_true(void)
{
    tamis_filter filter = {.kind = TAMIS_FILTER_ALWAYS_TRUE};

    return filter;
}

void
tamis_filter_prefetch(const tamis_filter *filter, uint64_t hash)
{
    tm_ask_prefetch(filter, hash);
}

static uint32_t
line_positions(uint64_t line, uint32_t *stream, uint32_t probes, uint64_t *positions)
{
    for (uint32_t i = 0; i < probes; i++) {
        positions[i] = line * TM_LINE_BITS + (*stream >> TM_BIT_SHIFT);
        *stream *= TM_STREAM_MULTIPLIER;
    }
    return probes;
}

uint32_t
tamis_filter_positions(const tamis_filter *filter, uint64_t hash, uint64_t positions[60])
{
    uint32_t stream = (uint32_t)hash;
    uint32_t count;

    switch (filter->kind) {
    case TAMIS_FILTER_STANDARD: {
        uint64_t bits = filter->lines_a * TM_LINE_BITS;
        uint64_t step = tm_standard_step(hash);

        for (uint32_t i = 0; i < filter->probes_a; i++)
            positions[i] = tm_mulhi64(hash + i * step, bits);
        return filter->probes_a;
    }
    case TAMIS_FILTER_BLK512:
        return line_positions(tm_line_a(hash, filter->lines_a), &stream, filter->probes_a,
                              positions);
    case TAMIS_FILTER_PAIR512:
        count =
            line_positions(tm_line_a(hash, filter->lines_a), &stream, filter->probes_a, positions);
        return count + line_positions(filter->lines_a + tm_line_b(hash, filter->lines_b), &stream,
                                      filter->probes_b, positions + count);
    default:
        return 0;
    }
}
