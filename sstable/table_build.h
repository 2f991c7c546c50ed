/* SPDX-License-Identifier: MIT
 *
 * sstable/table_build.h -- write one table file: entries in, a sealed file and its facts out.
 *
 * May include: filter/, sstable/.   Bytes: sstable/format.h, drawn in sstable/README.md.   Reader: sstable/table_read.h.
 */
#ifndef TM_SSTABLE_TABLE_BUILD_H
#define TM_SSTABLE_TABLE_BUILD_H

#include <tamis/filter.h>

#include "sstable/range_set.h"

struct tm_table_options {
    uint32_t block_bytes;                // target of an unpacked data block, 64..16 MiB; one entry is never split
    bool compress;                       // LZ4 where it saves an eighth
    tamis_filter_kind filter_kind;       // STANDARD, BLK512 or PAIR512
    double filter_bits_per_key;          // 0..32; 0 writes none
    double filter_false_positive_rate;   // 0: unset; else decides the bits
    uint64_t hash_seed;                  // of filters and tags
};

/* The facts of a sealed table; what the manifest keeps about it. */
struct tm_table_facts {
    uint64_t file_bytes;
    uint64_t unique_id;  // of this file
    uint64_t data_id;    // of its data and index blocks; survives a rewrite of the filter alone
    uint64_t checksum;   // XXH3 over the ordered list of section checksums
    uint64_t entry_count;
    uint64_t key_count;  // distinct user keys
    uint64_t tombstone_count;
    uint64_t sequence_min;
    uint64_t sequence_max;
    uint64_t raw_bytes;  // keys and values as given
    uint64_t filter_bytes;
    uint64_t range_count; // range tombstones
    uint8_t *
        smallest; // of keys and starts of ranges, in memory of the env: release with tm_table_facts_release()
    uint8_t *largest; // of keys and reaches of ranges
    uint32_t smallest_length;
    uint32_t largest_length;
};

void tm_table_facts_release(const struct tm_env *env, struct tm_table_facts *facts);

struct tm_table_builder;

/**
 * Create the file `name` and start writing.
 *
 * @param env      borrowed; outlives the builder
 * @param options  copied
 * @return         TAMIS_OK, TAMIS_IO, TAMIS_NO_SPACE, TAMIS_NO_MEMORY
 */
TAMIS_NODISCARD tamis_status tm_table_builder_create(const struct tm_env *env, tamis_dir *dir,
                                                     const char *name,
                                                     const struct tm_table_options *options,
                                                     struct tm_table_builder **builder_out,
                                                     tamis_error *err);
/**
 * Add an entry; entries come in strictly ascending entry order (asserted: the order is ours).
 *
 * @return TAMIS_OK, TAMIS_IO, TAMIS_NO_SPACE, TAMIS_NO_MEMORY; after a failure only tm_table_builder_abandon() is allowed
 */
TAMIS_NODISCARD tamis_status tm_table_builder_add(struct tm_table_builder *builder,
                                                  const struct tm_entry *entry,
                                                  tamis_error *err);
/**
 * Add a range tombstone (copied); ranges come in ascending order (asserted), beside the entries. TAMIS_OK or
 * TAMIS_NO_MEMORY; then as for tm_table_builder_add().
 */
TAMIS_NODISCARD tamis_status tm_table_builder_add_range(struct tm_table_builder *builder,
                                                        const struct tm_range *range,
                                                        tamis_error *err);
/** Bytes written so far plus the block in the making; an estimate of the file's size. */
uint64_t tm_table_builder_bytes(const struct tm_table_builder *builder);
uint64_t tm_table_builder_entries(const struct tm_table_builder *builder);
/**
 * Write index, filter, properties and footer, and seal the file. At least one entry must have been added.
 *
 * @param facts_out [out] on OK only; release with tm_table_facts_release()
 * @return as add; the builder is gone whatever is returned. On failure the file is removed if that is possible.
 * Durable: contents and name, on OK.
 */
TAMIS_NODISCARD tamis_status tm_table_builder_finish(struct tm_table_builder *builder,
                                                     struct tm_table_facts *facts_out,
                                                     tamis_error *err);
/** Give up: close and remove the file. NULL allowed. */
void tm_table_builder_abandon(struct tm_table_builder *builder);

#endif
