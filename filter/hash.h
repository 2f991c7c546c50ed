/* SPDX-License-Identifier: MIT
 *
 * filter/hash.h -- the one 64-bit hash of keys and checksums: XXH3-64 with a seed.
 *
 * The only file that includes xxHash. It is compiled into its users, because for a key of 16 bytes
 * a call into the shared library costs more than the hash.
 *
 * Invariants
 *   H1  The function is part of the disk contract (hash_id 1): filters, tags in blocks and
 *       checksums hold its values. The golden vectors in tests/filter/test_hash.c pin it.
 *   H2  A stream digest equals the digest of the joined pieces.
 *
 * Threads  plain functions; a stream has one owner.
 * Not here: what is hashed under which seed (the table layer decides), probe positions (probe.h).
 */
#ifndef TM_FILTER_HASH_H
#define TM_FILTER_HASH_H

#include <stddef.h>
#include <stdint.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

enum {
    TM_HASH_ID_XXH3_64 = 1, // on disk, see H1
};

/** XXH3-64 of `length` bytes under `seed`. `bytes` may be NULL when `length` is 0. */
static inline uint64_t
tm_hash64(const void *bytes, size_t length, uint64_t seed)
{
    return XXH3_64bits_withSeed(bytes, length, seed);
}

/**
 * The same hash over bytes that come in pieces. About 600 bytes, aligned to 64 (so not for plain
 * malloc); no allocation, nothing to release.
 */
struct tm_hash_stream {
    XXH3_state_t state;
};

static inline void
tm_hash_stream_init(struct tm_hash_stream *stream, uint64_t seed)
{
    XXH3_INITSTATE(&stream->state);
    (void)XXH3_64bits_reset_withSeed(&stream->state, seed); // fails only for a NULL state
}

static inline void
tm_hash_stream_update(struct tm_hash_stream *stream, const void *bytes, size_t length)
{
    if (length > 0)
        (void)XXH3_64bits_update(&stream->state, bytes, length); // fails only for a NULL input
}

/** The hash of all bytes so far (H2); the stream may go on afterwards. */
static inline uint64_t
tm_hash_stream_digest(const struct tm_hash_stream *stream)
{
    return XXH3_64bits_digest(&stream->state);
}

#endif
