/* SPDX-License-Identifier: MIT
 *
 * sstable/block_read.h -- search and walk one unpacked data block, in place.
 *
 * Invariants
 *   BR1  The checksum of the block has matched, and still no length or offset in it is used before it was
 *        compared with the bytes that are there: a forged block is CORRUPT, never a read outside of it.
 *   BR2  Every loop here is bounded by the entry count, which is bounded by the block's length.
 *
 * Threads  a view is a plain value over memory that does not change; any number of readers.
 * Not here: where the block comes from (codec.h, cache.h), what follows it (table_read.c, table_iter.c).
 */
#ifndef TM_SSTABLE_BLOCK_READ_H
#define TM_SSTABLE_BLOCK_READ_H

#include "sstable/cache.h"
#include "sstable/entry.h"

/* The parts of a data block; points into it. */
struct tm_block_view {
    const uint8_t *prefix;  // of every key
    const uint8_t *tags;    // one byte an entry
    const uint8_t *offsets; // u16 or u32 an entry
    const uint8_t *entries;
    uint64_t base_sequence;
    uint32_t count; // at least 1
    uint32_t prefix_length;
    uint32_t entries_length;
    bool wide;             // offsets are u32
    const char *file;      // for messages
    uint64_t block_offset; // for messages
};

/* One entry of a block: its key is the block's prefix and then the suffix. */
struct tm_block_entry {
    tamis_slice suffix;
    tamis_slice value;
    uint64_t sequence;
    enum tm_kind kind;
};

enum tm_block_verdict {
    TM_BLOCK_ABSENT, // no version here, and none in the block after it
    TM_BLOCK_HIT,
    TM_BLOCK_TOO_NEW, // versions are here, all of them too new, and none is in the block after it
    TM_BLOCK_GO_ON, // every version here is too new, and the last of them ends the block: older ones may follow
};

/** Find the parts. `file` is borrowed. TAMIS_OK or TAMIS_CORRUPT. */
TAMIS_NODISCARD tamis_status tm_block_view_init(struct tm_block_view *view,
                                                const struct tm_block *block, const char *file,
                                                uint64_t block_offset, tamis_error *err);

/** Decode entry `index` < count. TAMIS_OK or TAMIS_CORRUPT. */
TAMIS_NODISCARD tamis_status tm_block_entry_at(const struct tm_block_view *view, uint32_t index,
                                               struct tm_block_entry *entry, tamis_error *err);

/**
 * Find the newest version of `key` not above `sequence`, by tag.
 *
 * @param order  of keys; where it merges keys the block is searched by it, without tags. NULL: bytewise
 * @param hash   of `key` under the table's seed
 * @param entry  [out] on TM_BLOCK_HIT
 * @return       TAMIS_OK or TAMIS_CORRUPT
 *
 * Cost  one pass over the tags; about one key comparison, plus one in 256 other entries.
 */
TAMIS_NODISCARD tamis_status tm_block_search(const struct tm_block_view *view,
                                             const struct tm_order *order, tamis_slice key,
                                             uint64_t hash, uint64_t sequence,
                                             struct tm_block_entry *entry,
                                             enum tm_block_verdict *verdict, tamis_error *err);

/** Number of the first entry at or after (key, sequence) in entry order; `count` if there is none. TAMIS_OK or TAMIS_CORRUPT. */
TAMIS_NODISCARD tamis_status tm_block_seek(const struct tm_block_view *view,
                                           const struct tm_order *order, tamis_slice key,
                                           uint64_t sequence, uint32_t *index_out,
                                           tamis_error *err);

#endif
