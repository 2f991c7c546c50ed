/* SPDX-License-Identifier: MIT
 *
 * filter/geometry.h -- how large a filter is and how many probes it has.
 *
 * Invariants
 *   G1  All sizes are 64-bit and checked; n keys * bits may pass 2^40 and more.
 *   G2  A body has at least one line and at most TM_LINES_MAX, so 512 * lines fits in 63 bits.
 *   G3  The probes of the tables are the best integers for the bits asked for; tests/filter/
 *       test_theory.c finds them again from the exact rates.
 *
 * Threads  pure functions.
 */
#ifndef TM_FILTER_GEOMETRY_H
#define TM_FILTER_GEOMETRY_H

#include <tamis/filter.h>

#define TM_LINES_MAX (UINT64_C(1) << 54) // G2; 2^60 bytes, beyond any memory

/**
 * Is this a geometry that tamis_filter_build() and a reader can use? Checks every field, for values
 * that come from disk as well.
 */
bool tm_geometry_is_valid(const tamis_filter_geometry *geometry);

/**
 * Geometry of `lines` 64-byte lines with explicit probes, for sweeps and tests.
 *
 * @param kind      STANDARD, BLK512 or PAIR512
 * @param probes_b  pair512: probes in part B; otherwise 0
 * @return          false, and nothing written, if the result would not be valid
 */
bool tm_geometry_explicit(tamis_filter_kind kind, uint64_t key_count, uint64_t lines,
                          uint32_t probes_a, uint32_t probes_b,
                          tamis_filter_geometry *geometry_out);

/**
 * All probes (pair512: of both lines) for a kind at a thousandth of bits per key, from the tables.
 */
uint32_t tm_geometry_probes(tamis_filter_kind kind, uint32_t millibits_per_key);

/** Bits per key as the thousandths that decide everything; 0..32000. `bits` is in 0..32. */
uint32_t tm_geometry_millibits(double bits);

#endif
