/* SPDX-License-Identifier: MIT
 *
 * <tamis/filter.h> -- approximate membership filters and their theory, usable without the store.
 *
 * A filter answers "may this key be in the set?" from a few bits per key. "No" is certain; "maybe" is
 * wrong with a known probability. Filters take 64-bit hashes, not keys: hash once with
 * tamis_hash64() and ask as many filters as you like.
 *
 * PURE: hashes and memory in, bytes and answers out. Nothing here allocates, blocks, logs or fails
 * for lack of anything but the memory that you hand in.
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
    TAMIS_FILTER_ALIGN_BYTES = 64,
    TAMIS_FILTER_PROBES_MAX = 30,
};
#define TAMIS_FILTER_BITS_PER_KEY_MAX 32.0

/** XXH3-64 of `length` bytes: the one hash of filters and of tags in blocks. */
TAMIS_API uint64_t tamis_hash64(const void *bytes, size_t length, uint64_t seed);

/** What a filter of a given kind, key count and size looks like. Plain value. */
typedef struct tamis_filter_geometry {
    tamis_filter_kind kind;
    uint64_t key_count;
    uint64_t body_bytes; // multiple of 64
    uint64_t lines_a;    // standard: N (m = 512 N bits); blk512: N; pair512: NA
    uint64_t lines_b;    // pair512: NB; else 0
    uint32_t probes_a;   // standard k, blk512 k, pair512 k1
    uint32_t probes_b;   // pair512 k2; else 0
} tamis_filter_geometry;

/**
 * Plan a filter: the geometry that `build` will use for exactly `key_count` distinct keys.
 * bits_per_key 0 or key_count 0 give ALWAYS_TRUE (no filter) and EMPTY_SET. A pair512 of one line becomes a
 * blk512. false: bits_per_key is not in 0..32 or not a number, or the kind cannot be built.
 */
TAMIS_API bool tamis_filter_plan(tamis_filter_kind kind, uint64_t key_count, double bits_per_key,
                                 tamis_filter_geometry *geometry_out);

/** An opened filter: 32 bytes, plain value, points into caller's memory (64-byte aligned body). */
typedef struct tamis_filter {
    const uint8_t *body;  // lines A, then lines B; NULL for EMPTY_SET and ALWAYS_TRUE
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
    uint64_t hash_seed;
    double bits_per_key_requested;  // 0 when a rate was asked for
    double bits_per_key_delivered;  // 8 * body_bytes / key_count
    double false_positive_rate_target;
} tamis_filter_info;

/**
 * Build: fill `body` (geometry->body_bytes, 64-byte aligned) and `trailer` (128 bytes) from `hashes`
 * (geometry->key_count of them, of distinct keys; may be reordered in place to build faster). Every hash is
 * asked back; if one is answered "no" the trailer written is that of ALWAYS_TRUE with an empty body and false is returned.
 * `context` seeds both checksums: the caller's identity of the place where the filter stands.
 */
TAMIS_API bool tamis_filter_build(const tamis_filter_geometry *geometry, uint64_t *hashes,
                                  uint64_t hash_seed, double bits_per_key_requested,
                                  double false_positive_rate_target, uint64_t context,
                                  uint8_t *body, uint8_t *trailer);

typedef enum tamis_filter_damage {
    TAMIS_FILTER_SOUND = 0,
    TAMIS_FILTER_BAD_MAGIC,
    TAMIS_FILTER_BAD_TRAILER_CHECKSUM,
    TAMIS_FILTER_BAD_VERSION,
    TAMIS_FILTER_BAD_KIND,
    TAMIS_FILTER_BAD_HASH_ID,
    TAMIS_FILTER_BAD_FIELD,
    TAMIS_FILTER_BAD_GEOMETRY,
    TAMIS_FILTER_BAD_BODY_CHECKSUM,
} tamis_filter_damage;

/**
 * Open body + trailer as read from disk. Anything odd gives a filter that answers "maybe" to everything
 * and says what was wrong: never "no" by mistake. `info_out` may be NULL.
 */
TAMIS_API tamis_filter_damage tamis_filter_open(const uint8_t *body, uint64_t body_bytes,
                                                const uint8_t *trailer, uint64_t context,
                                                tamis_filter *filter_out,
                                                tamis_filter_info *info_out);
TAMIS_API const char *tamis_filter_damage_name(tamis_filter_damage damage);
TAMIS_API const char *tamis_filter_kind_name(tamis_filter_kind kind);
TAMIS_API bool tamis_filter_kind_from_name(const char *name, tamis_filter_kind *kind_out);

/** A filter that says "maybe" to everything. */
TAMIS_API tamis_filter tamis_filter_always_true(void);

/** Start loading the lines that may_contain will read. */
TAMIS_API void tamis_filter_prefetch(const tamis_filter *filter, uint64_t hash);

/** "no" is certain; "maybe" is not. Dispatches once per process to the best kernel of this machine. */
TAMIS_API bool tamis_filter_may_contain(const tamis_filter *filter, uint64_t hash);

/** The bit positions (within the body) that a key probes, in order; returns how many (<= 60). Same derivation as the
 *  scalar kernel; for explanation and tests. */
TAMIS_API uint32_t tamis_filter_positions(const tamis_filter *filter, uint64_t hash,
                                          uint64_t positions[60]);

/** Name of the kernel in use: "scalar", "avx2", "avx512". */
TAMIS_API const char *tamis_filter_kernel_name(void);

/** Exact false-positive rate of a filter of this geometry holding geometry->key_count keys. */
TAMIS_API double tamis_theory_false_positive_rate(const tamis_filter_geometry *geometry);
/** Expected share of set bits. */
TAMIS_API double tamis_theory_fill(const tamis_filter_geometry *geometry);
/** Variance of the rate from filter to filter (0 for standard: negligible). */
TAMIS_API double tamis_theory_rate_variance(const tamis_filter_geometry *geometry);
/** Bits per key (<= 32) at which `kind` reaches `rate` (0 < rate < 1) for key_count keys. */
TAMIS_API double tamis_theory_bits_for_rate(tamis_filter_kind kind, uint64_t key_count, double rate);

#ifdef __cplusplus
}
#endif
#endif
