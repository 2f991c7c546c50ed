/* SPDX-License-Identifier: MIT
 *
 * sstable/block_build.h -- collect sorted entries, then lay them out as one unpacked data block.
 *
 *   +--------+--------+--------+---------+-------+-------+-----+
 *   | header | prefix | tags   | offsets | entry | entry | ... |      format.h, drawn in README.md
 *   +--------+--------+--------+---------+-------+-------+-----+
 *
 * Invariants
 *   BB1  The prefix is the longest one that all keys of the block share: that of its first and its last key.
 *   BB2  Offsets count from the first entry and ascend; an entry ends where the next one begins.
 *
 * Threads  one owner.
 * Not here: when a block is full (table_build.c), compression and checksum (codec.h).
 */
#ifndef TM_SSTABLE_BLOCK_BUILD_H
#define TM_SSTABLE_BLOCK_BUILD_H

#include "sstable/entry.h"

struct tm_block_builder {
    struct tm_buf raw;     // key, value, key, value, ... of the entries so far
    struct tm_buf items;   // one struct item (block_build.c) each
    size_t count;          // entries so far
    size_t prefix_length;  // shared by all keys so far; 0 with whole_keys
    bool whole_keys;       // their order is not bytewise: each stands as it is
    size_t key_length_max; // longest key so far
    uint64_t sequence_min;
    uint64_t sequence_max;
};

/** Bytes of the block, if `entry` (NULL: nothing) is added as well; exact or a little more. */
size_t tm_block_builder_bytes(const struct tm_block_builder *builder, const struct tm_entry *entry);

/** Add an entry (copied), in entry order. TAMIS_OK or TAMIS_NO_MEMORY (nothing added). */
TAMIS_NODISCARD tamis_status tm_block_builder_add(const struct tm_env *env,
                                                  struct tm_block_builder *builder,
                                                  const struct tm_entry *entry, uint8_t tag,
                                                  tamis_error *err);

/** Lay the block out into `out` (contents replaced) and become empty. TAMIS_OK or TAMIS_NO_MEMORY (unchanged). */
TAMIS_NODISCARD tamis_status tm_block_builder_finish(const struct tm_env *env,
                                                     struct tm_block_builder *builder,
                                                     struct tm_buf *out, tamis_error *err);

/** A block of one entry, without the copy that collecting would take. TAMIS_OK or TAMIS_NO_MEMORY. */
TAMIS_NODISCARD tamis_status tm_block_build_single(const struct tm_env *env,
                                                   const struct tm_entry *entry, uint8_t tag,
                                                   struct tm_buf *out, tamis_error *err);

void tm_block_builder_release(const struct tm_env *env, struct tm_block_builder *builder);

#endif
