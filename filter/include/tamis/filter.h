/* SPDX-License-Identifier: MIT
 *
 * <tamis/filter.h> -- approximate membership filters and their theory, usable without the store.
 *
 * A filter answers "may this key be in the set?" from a few bits per key. "No" is certain; "maybe"
 * is wrong with a known probability. Filters take 64-bit hashes, not keys: hash once with
 * tamis_hash64() and ask as many filters as you like.
 *
 *     tamis_filter_geometry geometry;
 *     tamis_filter filter;
 *     uint8_t trailer[TAMIS_FILTER_TRAILER_BYTES];
 *
 *     for (size_t i = 0; i < count; i++)
 *         hashes[i] = tamis_hash64(keys[i].data, keys[i].length, seed);
 *     tamis_filter_plan(TAMIS_FILTER_PAIR512, count, 10.0, &geometry);
 *     uint8_t *body = aligned_alloc(TAMIS_FILTER_ALIGN_BYTES, geometry.body_bytes);
 *     tamis_filter_build(&geometry, hashes, seed, 10.0, 0, 0, body, trailer);
 *     tamis_filter_open(body, geometry.body_bytes, trailer, 0, &filter, NULL);
 *     if (!tamis_filter_may_contain(&filter, tamis_hash64("kiwi", 4, seed)))
 *         puts("certainly no kiwi");
 *
 * Caveats
 *   - There is no call that removes a key: its bits may be another key's too, and clearing them
 *     would turn that key's "maybe" into a false "no". Build a new filter from the keys that are
 *     left.
 *   - A filter is sized for the distinct keys you say it will hold. Count them; do not guess.
 *   - Asking with another hash or seed than the one built with gives wrong "no"s. The seed stands
 *     in the trailer: read it from tamis_filter_info.
 *
 * PURE: hashes and memory in, bytes and answers out. Nothing here allocates, blocks, logs or fails
 * for lack of anything but the memory that you hand in. There is no state but the choice of kernel,
 * made once when the program starts; so every function may be called from any thread at any time,
 * as long as no other thread writes to the memory that it is given.
 */
#ifndef TAMIS_FILTER_H
#define TAMIS_FILTER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifndef TAMIS_API
#define TAMIS_API __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
extern "C" {
#endif

/** The kinds. Values are on disk (trailer byte 5) and never change. */
typedef enum tamis_filter_kind {
    TAMIS_FILTER_EMPTY_SET = 0,     // holds no key: "no" to everything
    TAMIS_FILTER_STANDARD = 1,      // classic Bloom filter, k 1..30
    TAMIS_FILTER_BLK512 = 2,        // all probes in one 64-byte line
    TAMIS_FILTER_PAIR512 = 3,       // probes split over two independent lines; the default
    TAMIS_FILTER_ALWAYS_TRUE = 255, // "maybe" to everything: not built, damaged or not loaded
} tamis_filter_kind;

enum {
    TAMIS_FILTER_TRAILER_BYTES = 128,
    TAMIS_FILTER_ALIGN_BYTES = 64,   // of a body, in memory and in a file: a line of the cache
    TAMIS_FILTER_PROBES_MAX = 30,    // of a standard or blk512 filter, of each line of a pair512
    TAMIS_FILTER_POSITIONS_MAX = 60, // 2 * TAMIS_FILTER_PROBES_MAX
};
#define TAMIS_FILTER_BITS_PER_KEY_MAX 32.0

/**
 * XXH3-64 of `length` bytes: the one hash of filters and of tags in blocks.
 *
 * @param bytes  borrowed; may be NULL when length is 0
 * @param seed   any value; keys of one filter share one
 * @return       the hash; the same on every machine and in every version (hash id 1)
 *
 * Cost     about 1 ns for 16 bytes, 50 ns a KiB
 */
TAMIS_API uint64_t tamis_hash64(const void *bytes, size_t length, uint64_t seed);

/** What a filter of a given kind, key count and size looks like. Plain value. */
typedef struct tamis_filter_geometry {
    tamis_filter_kind kind;
    uint64_t key_count;  // distinct keys
    uint64_t body_bytes; // multiple of 64
    uint64_t lines_a;    // standard: N (m = 512 N bits); blk512: N; pair512: NA
    uint64_t lines_b;    // pair512: NB; else 0
    uint32_t probes_a;   // standard k, blk512 k, pair512 k1
    uint32_t probes_b;   // pair512 k2; else 0
} tamis_filter_geometry;

/**
 * Plan a filter: the geometry that `build` will use for exactly `key_count` distinct keys.
 *
 * Bits 0 mean "no filter" and give ALWAYS_TRUE; otherwise 0 keys give EMPTY_SET. A pair512 of one
 * line becomes a blk512. Bits are taken to the thousandth and rounded up to whole lines of 512
 * bits, so a small filter gets more than it asked for; the probes are the best whole number for the
 * bits asked for.
 *
 * @param kind          what to build; EMPTY_SET only for 0 keys, ALWAYS_TRUE for any number
 * @param key_count     distinct keys, any number whose body fits in 2^60 bytes
 * @param bits_per_key  0..32, fractions honoured
 * @param geometry_out  [out] untouched on false
 * @return              false: bits_per_key is not in 0..32 or not a number, the kind cannot be
 *                      built (unknown, or EMPTY_SET with keys), or the body would be too large
 */
TAMIS_API bool tamis_filter_plan(tamis_filter_kind kind, uint64_t key_count, double bits_per_key,
                                 tamis_filter_geometry *geometry_out);

/**
 * An opened filter: 32 bytes, plain value, may be copied; points into the caller's memory,
 * which must stay as it is while the filter is asked.
 */
typedef struct tamis_filter {
    const uint8_t *body; // lines A, then lines B; NULL for EMPTY_SET and ALWAYS_TRUE
    uint64_t lines_a;
    uint64_t lines_b;
    uint8_t kind;
    uint8_t probes_a;
    uint8_t probes_b;
    uint8_t reserved[5];
} tamis_filter;

/** Facts that stand in the trailer. */
typedef struct tamis_filter_info {
    tamis_filter_geometry geometry;
    uint64_t hash_seed;                // what the keys were hashed with
    double bits_per_key_requested;     // to the thousandth; 0 when a rate was asked for
    double bits_per_key_delivered;     // 8 * body_bytes / key_count; 0 without keys
    double false_positive_rate_target; // to 10^-9; 0 when none was given
} tamis_filter_info;

/**
 * Build: fill `body` and `trailer` from `hashes`. Every hash is asked back; if one is answered "no"
 * the trailer written is that of ALWAYS_TRUE for an empty body, and false is returned: store no
 * body then.
 *
 * The bytes depend on the set of hashes only: not on their order, not on the machine.
 *
 * @param geometry   from tamis_filter_plan(), or put together by hand within the limits above
 * @param hashes     geometry->key_count of them, of distinct keys (a repeated one is harmless);
 *                   borrowed; may be reordered in place
 * @param hash_seed  written into the trailer
 * @param bits_per_key_requested, false_positive_rate_target
 *                   written into the trailer, for statistics; 0 if unset
 * @param context    seeds both checksums: the caller's identity of the place where the filter
 *                   stands
 * @param body       [out] geometry->body_bytes bytes, 64-byte aligned for speed; NULL when there
 *                   are none
 * @param trailer    [out] TAMIS_FILTER_TRAILER_BYTES bytes; always a trailer that can be opened
 * @return           true: the filter is as planned
 *
 * Threads  one owner of hashes, body and trailer
 * Cost     about 5 ns a key for pair512 and 3 for blk512 at a million keys (AVX-512), 10 in plain
 *          C; no allocation
 */
TAMIS_API bool tamis_filter_build(const tamis_filter_geometry *geometry, uint64_t *hashes,
                                  uint64_t hash_seed, double bits_per_key_requested,
                                  double false_positive_rate_target, uint64_t context,
                                  uint8_t *body, uint8_t *trailer);

/** What tamis_filter_open() found, in the order in which it looks. Not on disk. */
typedef enum tamis_filter_damage {
    TAMIS_FILTER_SOUND = 0,
    TAMIS_FILTER_BAD_MAGIC,            // these are not the bytes of a trailer
    TAMIS_FILTER_BAD_TRAILER_CHECKSUM, // damaged, or the trailer of another place (context)
    TAMIS_FILTER_BAD_VERSION,          // from here on the checksum is right: a later version
    TAMIS_FILTER_BAD_KIND,
    TAMIS_FILTER_BAD_HASH_ID,
    TAMIS_FILTER_BAD_FIELD,         // reserved bytes, domain, rate or bits out of range
    TAMIS_FILTER_BAD_GEOMETRY,      // lines, probes, key count and body length do not fit together
    TAMIS_FILTER_BAD_BODY_CHECKSUM, // damaged, or the body of another filter
} tamis_filter_damage;

/**
 * Open body + trailer as read from disk. Anything odd gives a filter that answers "maybe" to
 * everything and says what was wrong: never "no" by mistake.
 *
 * @param body        body_bytes bytes, borrowed until the filter is no longer asked; 64-byte
 *                    aligned for speed; NULL allowed when there are none
 * @param body_bytes  what lies before the trailer, as the caller found it
 * @param trailer     TAMIS_FILTER_TRAILER_BYTES bytes; borrowed for the call
 * @param context     as given to tamis_filter_build()
 * @param filter_out  [out] always usable
 * @param info_out    [out] may be NULL; on damage all zero but for the kind ALWAYS_TRUE
 * @return            TAMIS_FILTER_SOUND or the first damage found
 *
 * Cost     one pass over the body for its checksum
 */
TAMIS_API tamis_filter_damage tamis_filter_open(const uint8_t *body, uint64_t body_bytes,
                                                const uint8_t *trailer, uint64_t context,
                                                tamis_filter *filter_out,
                                                tamis_filter_info *info_out);

/** A damage in words, "bad magic"; static storage; "unknown damage" for a number that is none. */
TAMIS_API const char *tamis_filter_damage_name(tamis_filter_damage damage);

/** "pair512", "always-true" ...; static storage; "unknown" for a number that names no kind. */
TAMIS_API const char *tamis_filter_kind_name(tamis_filter_kind kind);

/**
 * The kind that tamis_filter_kind_name() calls `name`; false, and nothing written, if there is
 * none.
 */
TAMIS_API bool tamis_filter_kind_from_name(const char *name, tamis_filter_kind *kind_out);

/** A filter that says "maybe" to everything. */
TAMIS_API tamis_filter tamis_filter_always_true(void);

/**
 * Start loading the lines that may_contain will read. Prefetch for all filters of a lookup first,
 * then ask them: their cache misses overlap.
 */
TAMIS_API void tamis_filter_prefetch(const tamis_filter *filter, uint64_t hash);

/**
 * May the key of `hash` be in the set? "No" (false) is certain; "maybe" (true) is not.
 *
 * Threads  any number at once, on one filter or many
 * Cost     one cache miss (pair512: two at once; standard: about two for a key that is not there);
 *          2.5 ns in cache with AVX-512
 */
TAMIS_API bool tamis_filter_may_contain(const tamis_filter *filter, uint64_t hash);

/**
 * How many of `count` hashes are answered "maybe"? The same answers as may_contain; about twice as
 * fast a hash, since the misses of later ones overlap with the work on earlier ones.
 */
TAMIS_API uint64_t tamis_filter_count_maybe(const tamis_filter *filter, const uint64_t *hashes,
                                            uint64_t count);

/**
 * The bit positions (within the body) that a key probes, in order; bit i is byte i / 8, bit i % 8
 * of it. may_contain says "maybe" exactly if all of them are set. For explanation and tests.
 *
 * @param positions  [out] room for TAMIS_FILTER_POSITIONS_MAX
 * @return           how many were written; 0 for EMPTY_SET and ALWAYS_TRUE, which probe nothing
 */
TAMIS_API uint32_t tamis_filter_positions(const tamis_filter *filter, uint64_t hash,
                                          uint64_t positions[60]);

/** Name of the kernel in use: "scalar", "avx2", "avx512". All give the same answers and bytes. */
TAMIS_API const char *tamis_filter_kernel_name(void);

/**
 * Exact false-positive rate of a filter of this geometry holding geometry->key_count keys: expected
 * over random hashes, right for any number of keys and probes. EMPTY_SET 0, ALWAYS_TRUE 1.
 *
 * Cost     0.05 ms at ten bits, at most a few ms
 * Source   filter/theory.c
 */
TAMIS_API double tamis_theory_false_positive_rate(const tamis_filter_geometry *geometry);

/** Expected share of set bits. EMPTY_SET 0, ALWAYS_TRUE 1. */
TAMIS_API double tamis_theory_fill(const tamis_filter_geometry *geometry);

/**
 * Variance of the rate from filter to filter (0 for standard: negligible). A rate measured with q
 * queries on one filter has the variance rate * (1 - rate) / q plus this.
 */
TAMIS_API double tamis_theory_rate_variance(const tamis_filter_geometry *geometry);

/**
 * Fewest bits per key, to the thousandth, at which `kind` reaches `rate` for key_count keys.
 *
 * @param rate  0 < rate < 1
 * @return      0..32; 32 if that many do not reach it; 0 where no bits are needed (rate 1 or more,
 *              no keys, a kind without a body)
 *
 * Cost     fifteen times tamis_theory_false_positive_rate()
 */
TAMIS_API double tamis_theory_bits_for_rate(tamis_filter_kind kind, uint64_t key_count,
                                            double rate);

#ifdef __cplusplus
}
#endif
#endif
