/* SPDX-License-Identifier: MIT
 *
 * filter/kernel_scalar.c -- the kernel in plain C: the definition that the others are held to.
 *
 * Not here: the derivations (probe.h), one line and the standard filter (kernel_inline.h).
 */
#include "filter/kernel.h"
#include "filter/kernel_inline.h"
#include "filter/probe.h"

TM_INLINE bool
ask_blk512(const tamis_filter *filter, uint64_t hash)
{
    uint32_t stream = (uint32_t)hash;

    return tm_line_ask(tm_line_a_address(filter, filter->body, hash), &stream, filter->probes_a) !=
           0;
}

TM_INLINE bool
ask_pair512(const tamis_filter *filter, uint64_t hash)
{
    uint32_t stream = (uint32_t)hash;
    uint32_t all;

    all = tm_line_ask(tm_line_a_address(filter, filter->body, hash), &stream, filter->probes_a);
    all &= tm_line_ask(tm_line_b_address(filter, filter->body, hash), &stream, filter->probes_b);
    return all != 0;
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
        return tm_standard_may_contain(filter, hash);
    case TAMIS_FILTER_EMPTY_SET:
        return false;
    default:
        return true;
    }
}

static uint64_t
scalar_count_maybe(const tamis_filter *filter, const uint64_t *hashes, uint64_t count)
{
    switch (filter->kind) {
    case TAMIS_FILTER_PAIR512:
        return tm_count_maybe(filter, hashes, count, ask_pair512);
    case TAMIS_FILTER_BLK512:
        return tm_count_maybe(filter, hashes, count, ask_blk512);
    case TAMIS_FILTER_STANDARD:
        return tm_count_maybe(filter, hashes, count, tm_standard_may_contain);
    case TAMIS_FILTER_EMPTY_SET:
        return 0;
    default:
        return count;
    }
}

static void
scalar_insert(const tamis_filter *filter, uint8_t *body, const uint64_t *hashes, uint64_t count)
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

const struct tm_kernel tm_kernel_scalar = {
    .name = "scalar",
    .may_contain = scalar_may_contain,
    .insert = scalar_insert,
    .count_maybe = scalar_count_maybe,
};
