/* SPDX-License-Identifier: MIT
 *
 * filter/theory.h -- exact false positive rates, for the folder and its tests.
 *
 * Threads  pure functions.
 */
#ifndef TM_FILTER_THEORY_H
#define TM_FILTER_THEORY_H

#include <stdint.h>

/**
 * Rate of a standard filter: chance that `query_probes` uniform independent probes all hit bits
 * that `key_count * insert_probes` uniform independent probes have set among `bits`.
 *
 * @param query_probes  1..60; equal to insert_probes for a rate
 */
double tm_theory_standard_rate(uint64_t key_count, uint64_t bits, uint32_t insert_probes,
                               uint32_t query_probes);

/**
 * The same for a filter of `lines` lines of 512 bits, each key in one line. With twice as many
 * query as insert probes this is the mean square of a line's own rate.
 */
double tm_theory_line_rate(uint64_t key_count, uint64_t lines, uint32_t insert_probes,
                           uint32_t query_probes);

#endif
