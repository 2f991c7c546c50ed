/* SPDX-License-Identifier: MIT
 *
 * filter/kernel_inline.h -- pieces that every kernel compiles for itself, with its own flags.
 *
 * All functions are static, so each file that includes this has its own copy and no instruction set
 * leaks from one file into another.
 *
 * Invariants K1, K2: kernel.h. Derivations: probe.h.
 */
#ifndef TM_FILTER_KERNEL_INLINE_H
#define TM_FILTER_KERNEL_INLINE_H

#include "filter/kernel.h"
#include "filter/probe.h"

enum {
    /* Keys between the prefetch of a line and its use. With two lines a key this asks for as many
     * misses at once as a core keeps in flight (some 24 to 48); 8, 16 and 32 measured alike. */
    TM_KEYS_AHEAD = 16,

    /* Probes of a standard filter that are tested without a branch in between. A stranger passes
     * two probes on average; guessing where it stops costs a mispredicted branch, more than two
     * probes. */
    TM_PROBES_UNBRANCHED = 4,
};

/* Beyond so many bytes of body a loop over many keys prefetches: half of a usual second-level
 * cache. In a smaller body the prefetch costs more than it saves (1.8 against 1.1 ns a query). */
#define TM_PREFETCH_FROM_BYTES (UINT64_C(512) << 10)

/** Forces a loop to be compiled once for each function it is given. */
#define TM_INLINE static inline __attribute__((always_inline))

static inline const uint8_t *
tm_line_a_address(const tamis_filter *filter, const uint8_t *body, uint64_t hash)
{
    return body + TM_LINE_BYTES * tm_line_a(hash, filter->lines_a);
}

static inline const uint8_t *
tm_line_b_address(const tamis_filter *filter, const uint8_t *body, uint64_t hash)
{
    return body + TM_LINE_BYTES * (filter->lines_a + tm_line_b(hash, filter->lines_b));
}

/** G^n: what a stream is multiplied by on its way past n probes. */
static inline uint32_t
tm_stream_power(uint32_t n)
{
    uint32_t power = 1;

    for (uint32_t i = 0; i < n; i++)
        power *= TM_STREAM_MULTIPLIER;
    return power;
}

/** Set `probes` bits of one line, beginning at `stream`. */
static inline void
tm_line_set(uint8_t *line, uint32_t stream, uint32_t probes)
{
    for (uint32_t i = 0; i < probes; i++) {
        uint32_t bit = stream >> TM_BIT_SHIFT;

        line[bit >> 3] |= (uint8_t)(1u << (bit & 7));
        stream *= TM_STREAM_MULTIPLIER;
    }
}

/**
 * Bit 0 of the result: are `probes` bits of one line all set? `stream` moves on to where the next
 * line goes on. No branch on a bit: where a stranger's first unset bit comes cannot be predicted,
 * and a wrong guess costs more than all probes of a line that is in the cache.
 */
static inline uint32_t
tm_line_ask(const uint8_t *line, uint32_t *stream, uint32_t probes)
{
    uint32_t all = 1;

    for (uint32_t i = 0; i < probes; i++) {
        uint32_t bit = *stream >> TM_BIT_SHIFT;

        all &= (uint32_t)line[bit >> 3] >> (bit & 7);
        *stream *= TM_STREAM_MULTIPLIER;
    }
    return all;
}

static inline bool
tm_standard_may_contain(const tamis_filter *filter, uint64_t hash)
{
    uint64_t bits = filter->lines_a * TM_LINE_BITS;
    uint64_t step = tm_standard_step(hash);
    uint32_t left = filter->probes_a;

    while (left > 0) {
        uint32_t batch = left < TM_PROBES_UNBRANCHED ? left : TM_PROBES_UNBRANCHED;
        uint32_t all = 1;

        for (uint32_t i = 0; i < batch; i++) {
            uint64_t bit = tm_mulhi64(hash, bits);

            all &= (uint32_t)filter->body[bit >> 3] >> (bit & 7);
            hash += step;
        }
        if (all == 0)
            return false;
        left -= batch;
    }
    return true;
}

static inline void
tm_standard_insert(const tamis_filter *filter, uint8_t *body, const uint64_t *hashes,
                   uint64_t count)
{
    uint64_t bits = filter->lines_a * TM_LINE_BITS;
    uint64_t positions[TM_KEYS_AHEAD * TAMIS_FILTER_PROBES_MAX];

    for (uint64_t start = 0; start < count; start += TM_KEYS_AHEAD) {
        uint64_t batch = count - start < TM_KEYS_AHEAD ? count - start : TM_KEYS_AHEAD;
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
            body[positions[i] >> 3] |= (uint8_t)(1u << (positions[i] & 7));
    }
}

/** Start loading what asking for `hash` will read. */
static inline void
tm_ask_prefetch(const tamis_filter *filter, uint64_t hash)
{
    switch (filter->kind) {
    case TAMIS_FILTER_PAIR512:
        tm_prefetch_read(tm_line_a_address(filter, filter->body, hash));
        tm_prefetch_read(tm_line_b_address(filter, filter->body, hash));
        break;
    case TAMIS_FILTER_BLK512:
        tm_prefetch_read(tm_line_a_address(filter, filter->body, hash));
        break;
    case TAMIS_FILTER_STANDARD: {
        // What is tested before the first branch. The rest is needed by keys that are there and by
        // one stranger in sixteen.
        uint64_t bits = filter->lines_a * TM_LINE_BITS;
        uint64_t step = tm_standard_step(hash);

        for (uint32_t i = 0; i < TM_PROBES_UNBRANCHED && i < filter->probes_a; i++) {
            tm_prefetch_read(filter->body + (tm_mulhi64(hash, bits) >> 3));
            hash += step;
        }
        break;
    }
    default:
        break; // no body
    }
}

typedef bool tm_ask_function(const tamis_filter *filter, uint64_t hash);

/** How many of `count` hashes `ask` answers "maybe". */
TM_INLINE uint64_t
tm_count_maybe(const tamis_filter *filter, const uint64_t *hashes, uint64_t count,
               tm_ask_function *ask)
{
    uint64_t body_bytes = (filter->lines_a + filter->lines_b) * TM_LINE_BYTES;
    uint64_t maybe = 0;
    uint64_t i = 0;

    if (body_bytes >= TM_PREFETCH_FROM_BYTES) {
        for (; i + TM_KEYS_AHEAD < count; i++) {
            tm_ask_prefetch(filter, hashes[i + TM_KEYS_AHEAD]);
            maybe += ask(filter, hashes[i]);
        }
    }
    for (; i < count; i++)
        maybe += ask(filter, hashes[i]);
    return maybe;
}

/** Set the bits of one hash, bit by bit. */
TM_INLINE void
tm_blk512_set(const tamis_filter *filter, uint8_t *body, uint64_t hash, uint32_t past_a)
{
    (void)past_a; // there is no part B
    tm_line_set(body + TM_LINE_BYTES * tm_line_a(hash, filter->lines_a), (uint32_t)hash,
                filter->probes_a);
}

TM_INLINE void
tm_pair512_set(const tamis_filter *filter, uint8_t *body, uint64_t hash, uint32_t past_a)
{
    uint64_t line_b = filter->lines_a + tm_line_b(hash, filter->lines_b);

    tm_line_set(body + TM_LINE_BYTES * tm_line_a(hash, filter->lines_a), (uint32_t)hash,
                filter->probes_a);
    tm_line_set(body + TM_LINE_BYTES * line_b, (uint32_t)hash * past_a, filter->probes_b);
}

/** Set the bits of one hash; `past_a` is tm_stream_power(probes_a), the same for all. */
typedef void tm_set_function(const tamis_filter *filter, uint8_t *body, uint64_t hash,
                             uint32_t past_a);

/** Set the bits of `count` hashes in a filter of lines, prefetching where it pays. */
TM_INLINE void
tm_insert_lines(const tamis_filter *filter, uint8_t *body, const uint64_t *hashes, uint64_t count,
                tm_set_function *set)
{
    bool pair = filter->kind == TAMIS_FILTER_PAIR512;
    uint32_t past_a = tm_stream_power(filter->probes_a);
    uint64_t body_bytes = (filter->lines_a + filter->lines_b) * TM_LINE_BYTES;
    uint64_t i = 0;

    if (body_bytes >= TM_PREFETCH_FROM_BYTES) {
        for (; i + TM_KEYS_AHEAD < count; i++) {
            uint64_t later = hashes[i + TM_KEYS_AHEAD];

            tm_prefetch_write(tm_line_a_address(filter, body, later));
            if (pair)
                tm_prefetch_write(tm_line_b_address(filter, body, later));
            set(filter, body, hashes[i], past_a);
        }
    }
    for (; i < count; i++)
        set(filter, body, hashes[i], past_a);
}

#endif
