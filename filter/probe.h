/* SPDX-License-Identifier: MIT
 *
 * filter/probe.h -- from a 64-bit hash to lines and bits: the derivations that are part of the disk
 * format.
 *
 *   H (64 bits)      bit i of a body is byte i >> 3, bit i & 7; a line is 64 bytes, 512 bits
 *
 *   standard  bit_i = mulhi(H + i * H2, m)          H2 = (H * C) | 1, m = 512 * lines, i = 0..k-1
 *   blk512    line  = mulhi(H, lines)               h = low 32 bits of H; per probe: bit = h >> 23,
 *                                                   then h = h * G
 *   pair512   line A = mulhi(H, lines_a)            the same stream of bits: the first k1 in A,
 *             line B = mulhi(H * C, lines_b)        the other k2 in B
 *
 * mulhi(x, n), the high half of the 128-bit product, maps x onto 0..n-1 by its upper bits without a
 * division; the stream of bits uses the lower half of H, so line and bits are independent.
 *
 * Invariants
 *   P1  Whoever sets, asks, prefetches or explains takes positions from here, or proves in a test
 *       that it takes the same ones (the SIMD kernels).
 *   P2  For every H a line index is below its line count, so no check of H is needed anywhere.
 *
 * Threads  pure functions.
 */
#ifndef TM_FILTER_PROBE_H
#define TM_FILTER_PROBE_H

#include <stdint.h>

#include <tamis/filter.h>

enum {
    TM_LINE_BYTES = 64, // a cache line
    TM_LINE_BITS = 512,
    TM_BIT_SHIFT = 23, // the top nine bits of a 32-bit stream value choose one bit of 512
};

#define TM_HASH_MULTIPLIER   UINT64_C(0xc2b2ae3d27d4eb4f) // C: odd, dense; a second view of H
#define TM_STREAM_MULTIPLIER UINT32_C(0x9e3779b9)         // G: 2^32 divided by the golden ratio

static inline uint64_t
tm_mulhi64(uint64_t x, uint64_t n)
{
    return (uint64_t)(((unsigned __int128)x * n) >> 64);
}

/** Step between the probes of a standard filter; odd, so that it is never 0. */
static inline uint64_t
tm_standard_step(uint64_t hash)
{
    return hash * TM_HASH_MULTIPLIER | 1;
}

/** Line of blk512 and of part A of pair512. */
static inline uint64_t
tm_line_a(uint64_t hash, uint64_t lines)
{
    return tm_mulhi64(hash, lines);
}

/** Line of part B of pair512, counted from the start of part B. */
static inline uint64_t
tm_line_b(uint64_t hash, uint64_t lines)
{
    return tm_mulhi64(hash * TM_HASH_MULTIPLIER, lines);
}

#endif
