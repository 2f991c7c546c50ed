/* SPDX-License-Identifier: MIT
 *
 * sstable/table.h -- what an open table is made of; for the files that read tables (table_read.c, table_iter.c,
 * table_verify.c, table_inspect.c), and nobody else.
 */
#ifndef TM_SSTABLE_TABLE_H
#define TM_SSTABLE_TABLE_H

#include "sstable/block_read.h"
#include "sstable/descriptors.h"
#include "sstable/index.h"
#include "sstable/read_ahead.h"
#include "sstable/table_meta.h"
#include "sstable/table_read.h"

struct tm_table {
    // Immutable after open (T1)
    const struct tm_env *env;
    struct tm_cache *cache; // NULL: none
    struct tm_descriptor
        descriptor; // its file is there while it is acquired: in tm_table_load_block(), open and verify
    char *name;
    size_t name_bytes;
    struct tm_footer footer;
    struct tm_block *properties_block; // the keys of properties point into it
    struct tm_properties properties;
    struct tm_table_facts facts; // keys borrowed from properties_block
    struct tm_index index;
    struct tm_range_set *ranges; // NULL: none; keys point into properties_block

    tamis_filter filter; // ALWAYS_TRUE when there is none or it is damaged (T4)
    tamis_filter_info filter_info;
    tamis_filter_damage filter_damage;
    uint8_t *filter_memory; // NULL: none
    size_t filter_memory_bytes;
};

/**
 * Get data block `number` < index.count: from the cache, or from the file.
 *
 * @param fill_cache  offer it to the cache if it was not there
 * @param ahead       of a walk from block to block; NULL: read what is asked for
 * @param block_out   [out] a reference for the caller
 * @param view        [out] of the block
 * @return            TAMIS_OK, TAMIS_CORRUPT, TAMIS_IO, TAMIS_NO_MEMORY
 */
TAMIS_NODISCARD tamis_status tm_table_load_block(struct tm_table *table, size_t number,
                                                 bool fill_cache, struct tm_read_ahead *ahead,
                                                 struct tm_block **block_out,
                                                 struct tm_block_view *view, tamis_error *err);

/**
 * Read the filter section and open it.
 *
 * @param memory_out  [out] NULL, or what tm_release() takes with *memory_bytes_out; the filter points into it
 * @param damage_out  [out] what is wrong with it; then the filter says "maybe" and there is no memory
 * @return            TAMIS_OK (damage included), TAMIS_IO, TAMIS_NO_MEMORY, TAMIS_CORRUPT (the file ends before)
 */
TAMIS_NODISCARD tamis_status tm_table_load_filter(const struct tm_table *table,
                                                  tamis_filter *filter_out,
                                                  tamis_filter_info *info_out,
                                                  tamis_filter_damage *damage_out,
                                                  uint8_t **memory_out, size_t *memory_bytes_out,
                                                  tamis_error *err);

/** Where the index stands. */
struct tm_index_place tm_table_index_place(const struct tm_table *table);

#endif
