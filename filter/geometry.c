/* SPDX-License-Identifier: MIT
 *
 * filter/geometry.c -- planning a filter: lines from keys and bits, probes from bits.
 *
 *   lines = ceil(keys * millibits / 512000), at least 1
 *   standard, blk512:  all lines, probes k
 *   pair512:           lines_a : lines_b as k1 : k2, k1 = floor(k / 2), k2 = k - k1
 *
 * Probes depend on the bits asked for, not on the rounding up to whole lines: a small filter gets
 * more bits than asked for and is only better than promised.
 *
 * Not here: rates (theory.c), bytes (envelope.c).
 */
#include "filter/geometry.h"

#include <assert.h>
#include <math.h>

#include "filter/probe.h"

/* Row i: up to this many thousandths of a bit per key, i + 1 probes are best (pair512: i + 2, as
 * each line has at least one). Beyond the last row: one more.
 *
 * The bounds are where the exact rates of theory.c for k and k + 1 probes cross in a large filter
 * (G3). For pair512 no other split of the two lines is better at any whole number of bits. The
 * numbers are not on disk: a trailer says how many probes its filter has. */
static const uint16_t standard_bounds[] = {
    2078,  3556,  5013,  6464,  7912,  9358,  10803, 12248, 13692, 15136, 16580,
    18023, 19467, 20910, 22353, 23796, 25240, 26683, 28126, 29569, 31012,
};
static const uint16_t blk512_bounds[] = {
    2081, 3584, 5103, 6673, 8317, 10057, 11920, 13932, 16123, 18527, 21184, 24139, 27444, 31161,
};
static const uint16_t pair512_bounds[] = {
    3566,  5014,  6530,  7948,  9561,  10946, 12708, 14049, 16014,
    17299, 19524, 20740, 23285, 24420, 27353, 28391, 31788,
};

static uint32_t
probes_from_table(const uint16_t *bounds, uint32_t bound_count, uint32_t millibits)
{
    uint32_t row = 0;

    while (row < bound_count && millibits > bounds[row])
        row++;
    return row + 1;
}

uint32_t
tm_geometry_probes(tamis_filter_kind kind, uint32_t millibits_per_key)
{
    switch (kind) {
    case TAMIS_FILTER_STANDARD:
        return probes_from_table(standard_bounds, sizeof standard_bounds / sizeof(uint16_t),
                                 millibits_per_key);
    case TAMIS_FILTER_BLK512:
        return probes_from_table(blk512_bounds, sizeof blk512_bounds / sizeof(uint16_t),
                                 millibits_per_key);
    case TAMIS_FILTER_PAIR512:
        return 1 + probes_from_table(pair512_bounds, sizeof pair512_bounds / sizeof(uint16_t),
                                     millibits_per_key);
    default:
        return 0;
    }
}

uint32_t
tm_geometry_millibits(double bits)
{
    return (uint32_t)lround(bits * 1000);
}

static tamis_filter_geometry
geometry_without_body(tamis_filter_kind kind, uint64_t key_count)
{
    tamis_filter_geometry geometry = {.kind = kind, .key_count = key_count};

    return geometry;
}

bool
tm_geometry_is_valid(const tamis_filter_geometry *geometry)
{
    bool probes_a_good = geometry->probes_a >= 1 && geometry->probes_a <= TAMIS_FILTER_PROBES_MAX;
    bool probes_b_good = geometry->probes_b >= 1 && geometry->probes_b <= TAMIS_FILTER_PROBES_MAX;
    bool lines_a_good = geometry->lines_a >= 1 && geometry->lines_a <= TM_LINES_MAX;
    bool lines_b_good = geometry->lines_b >= 1 && geometry->lines_b <= TM_LINES_MAX;
    bool without_b = geometry->lines_b == 0 && geometry->probes_b == 0;
    bool without_body =
        geometry->body_bytes == 0 && geometry->lines_a == 0 && geometry->probes_a == 0 && without_b;

    switch (geometry->kind) {
    case TAMIS_FILTER_EMPTY_SET:
        return without_body && geometry->key_count == 0;
    case TAMIS_FILTER_ALWAYS_TRUE:
        return without_body;
    case TAMIS_FILTER_STANDARD:
    case TAMIS_FILTER_BLK512:
        return geometry->key_count >= 1 && lines_a_good && probes_a_good && without_b &&
               geometry->body_bytes == geometry->lines_a * TM_LINE_BYTES;
    case TAMIS_FILTER_PAIR512:
        return geometry->key_count >= 1 && lines_a_good && lines_b_good && probes_a_good &&
               probes_b_good && geometry->lines_a + geometry->lines_b <= TM_LINES_MAX &&
               geometry->body_bytes == (geometry->lines_a + geometry->lines_b) * TM_LINE_BYTES;
    }
    return false; // a number from disk that names no kind of ours
}

bool
tm_geometry_explicit(tamis_filter_kind kind, uint64_t key_count, uint64_t lines, uint32_t probes_a,
                     uint32_t probes_b, tamis_filter_geometry *geometry_out)
{
    tamis_filter_geometry geometry = {
        .kind = kind,
        .key_count = key_count,
        .lines_a = lines,
        .probes_a = probes_a,
        .probes_b = probes_b,
    };

    if (lines < 1 || lines > TM_LINES_MAX)
        return false;
    if (kind == TAMIS_FILTER_PAIR512) {
        uint64_t probes = (uint64_t)probes_a + probes_b;
        uint64_t lines_a;

        if (lines < 2 || probes == 0)
            return false;
        // Nearest to lines * k1 / k; 128 bits as the product may pass 64 (G1).
        lines_a = (uint64_t)(((unsigned __int128)lines * probes_a * 2 + probes) / (2 * probes));
        if (lines_a < 1)
            lines_a = 1;
        if (lines_a > lines - 1)
            lines_a = lines - 1;
        geometry.lines_a = lines_a;
        geometry.lines_b = lines - lines_a;
    }
    geometry.body_bytes = lines * TM_LINE_BYTES;
    if (!tm_geometry_is_valid(&geometry))
        return false;
    *geometry_out = geometry;
    return true;
}

bool
tamis_filter_plan(tamis_filter_kind kind, uint64_t key_count, double bits_per_key,
                  tamis_filter_geometry *geometry_out)
{
    uint32_t millibits;
    uint32_t probes;
    uint64_t lines;
    unsigned __int128 lines_wide;

    if (!(bits_per_key >= 0 && bits_per_key <= TAMIS_FILTER_BITS_PER_KEY_MAX))
        return false; // NaN compares false, so it ends here too
    switch (kind) {
    case TAMIS_FILTER_ALWAYS_TRUE:
        *geometry_out = geometry_without_body(kind, key_count);
        return true;
    case TAMIS_FILTER_EMPTY_SET:
        if (key_count > 0)
            return false;
        *geometry_out = geometry_without_body(kind, 0);
        return true;
    case TAMIS_FILTER_STANDARD:
    case TAMIS_FILTER_BLK512:
    case TAMIS_FILTER_PAIR512:
        break;
    default:
        return false;
    }
    if (bits_per_key == 0) { // "no filter", even for no keys: it was asked for
        *geometry_out = geometry_without_body(TAMIS_FILTER_ALWAYS_TRUE, key_count);
        return true;
    }
    if (key_count == 0) {
        *geometry_out = geometry_without_body(TAMIS_FILTER_EMPTY_SET, 0);
        return true;
    }

    millibits = tm_geometry_millibits(bits_per_key);
    if (millibits == 0)
        millibits = 1; // less than half a thousandth, yet not none
    lines_wide = ((unsigned __int128)key_count * millibits + (TM_LINE_BITS * 1000 - 1)) /
                 (TM_LINE_BITS * 1000); // G1
    if (lines_wide > TM_LINES_MAX)
        return false;
    lines = (uint64_t)lines_wide;
    if (kind == TAMIS_FILTER_PAIR512 && lines == 1)
        kind = TAMIS_FILTER_BLK512; // one line cannot be two
    probes = tm_geometry_probes(kind, millibits);
    if (kind == TAMIS_FILTER_PAIR512)
        return tm_geometry_explicit(kind, key_count, lines, probes / 2, probes - probes / 2,
                                    geometry_out);
    return tm_geometry_explicit(kind, key_count, lines, probes, 0, geometry_out);
}
