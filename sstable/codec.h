/* SPDX-License-Identifier: MIT
 *
 * sstable/codec.h -- seal a block for the file, load one back: compression, checksum, trailer.
 *
 *   stored   +----------------------+-------------+-------+------+---+----------+
 *            | payload, raw or LZ4  | unpacked u32| codec | kind | 0 | checksum |
 *            +----------------------+-------------+-------+------+---+----------+
 *
 * Invariants
 *   C1  The checksum covers payload and trailer and is seeded with (id, file offset): bytes that are right but stand
 *       in the wrong place, or belong to another table, do not match.
 *   C2  Nothing is interpreted before the checksum has matched, the codec and the lengths included.
 *
 * Threads  plain functions on the caller's memory.
 * Not here: what the unpacked bytes mean (block_read.h, index.h, table_meta.h).
 */
#ifndef TM_SSTABLE_CODEC_H
#define TM_SSTABLE_CODEC_H

#include "sstable/cache.h"
#include "sstable/env.h"
#include "sstable/format.h"

/* Where a block stands. */
struct tm_place {
    const char *file; // name, for messages
    uint64_t id;      // data id (data and index blocks) or unique id (properties)
    uint64_t offset;  // in the file
    enum tm_block_kind kind;
};

/** The seed of a checksum or filter at `offset` of the file `id`: XXH3-64 of both as 16 bytes. On disk. */
uint64_t tm_place_seed(uint64_t id, uint64_t offset);

/** "data block", "index leaf", ... for messages. */
const char *tm_block_kind_name(enum tm_block_kind kind);

/**
 * Turn an unpacked block into its stored form.
 *
 * @param block       unpacked bytes, at most TM_BLOCK_BYTES_MAX; if it is stored raw the trailer is appended in place
 * @param scratch     used if it is stored compressed; contents replaced
 * @param compress    LZ4, kept only if it saves at least an eighth
 * @param stored_out  [out] points into `block` or `scratch`
 * @return            TAMIS_OK or TAMIS_NO_MEMORY
 */
TAMIS_NODISCARD tamis_status tm_block_seal(const struct tm_env *env, const struct tm_place *place,
                                           struct tm_buf *block, struct tm_buf *scratch,
                                           bool compress, tamis_slice *stored_out,
                                           uint64_t *checksum_out, tamis_error *err);

/**
 * Read `stored_bytes` at the place, verify, unpack.
 *
 * @param block_out     [out] on OK one reference for the caller
 * @param checksum_out  [out] NULL allowed; the block's checksum, which has matched
 * @return              TAMIS_OK, TAMIS_CORRUPT, TAMIS_IO, TAMIS_NO_MEMORY
 *
 * Cost  one read; one allocation, two if the block is compressed (one of them freed again).
 */
TAMIS_NODISCARD tamis_status tm_block_load(const struct tm_env *env, tamis_file *file,
                                           const struct tm_place *place, uint64_t stored_bytes,
                                           struct tm_block **block_out, uint64_t *checksum_out,
                                           tamis_error *err);

/**
 * The same of bytes that were read before: verify, unpack.
 *
 * @param stored  the bytes at the place; borrowed, and not needed afterwards
 * @return        TAMIS_OK, TAMIS_CORRUPT, TAMIS_NO_MEMORY
 *
 * Cost  one allocation; a copy if the block is stored raw.
 */
TAMIS_NODISCARD tamis_status tm_block_take(const struct tm_env *env, const struct tm_place *place,
                                           const uint8_t *stored, uint64_t stored_bytes,
                                           struct tm_block **block_out, tamis_error *err);

#endif
