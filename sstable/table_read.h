/* SPDX-License-Identifier: MIT
 *
 * sstable/table_read.h -- point lookups and scans over one sealed table file.
 *
 * May include: filter/, sstable/.   Bytes: sstable/format.h.   Writer: sstable/table_build.h.
 *
 * Invariants
 *   T1  A table never changes after tm_table_open() succeeds, so readers take no lock. (Its descriptor comes and goes: descriptors.h.)
 *   T2  Footer, properties, index and filter stay in memory; data blocks are read on demand, through the cache.
 *   T3  No byte from the file is interpreted before its checksum has matched; and no length or offset is
 *       used before it was compared with the bytes that are there, checksum or not.
 *   T4  A filter that is damaged or missing means "maybe", never "no".
 */
#ifndef TM_SSTABLE_TABLE_READ_H
#define TM_SSTABLE_TABLE_READ_H

#include <tamis/filter.h>

#include "sstable/cache.h"
#include "sstable/iter.h"
#include "sstable/table_build.h"

struct tm_table; // one open table file; opaque outside sstable/
struct tm_descriptors;

/* Who the manifest says the file is. */
struct tm_table_identity {
    uint64_t file_bytes;
    uint64_t unique_id;
    uint64_t data_id;
    uint64_t checksum;
};

/* What a search found. */
struct tm_found {
    enum tm_lookup lookup;
    bool key_present; // the table holds the key, in whatever version: true also if all of them are too new
    uint64_t sequence;
    tamis_slice value;      // TM_FOUND: points into `block`
    struct tm_block *block; // TM_FOUND: a reference for the caller, tm_block_unref(); else NULL
};

/**
 * Open the table `name`: read and verify footer, properties, index and filter.
 *
 * @param env       borrowed; outlives the table
 * @param identity  what the file must be, from the manifest; NULL: accept what it says it is (tools)
 * @param cache     borrowed; NULL: none
 * @param descriptors  bounds the descriptors that tables hold; borrowed; NULL: this one keeps its own
 * @param table_out [out] on OK; close with tm_table_close()
 * @return          TAMIS_OK; TAMIS_CORRUPT (missing, unless `descriptors` have another word for it; wrong identity, damaged:
 *                  names file, offset, expected, found);
 *                  TAMIS_UNSUPPORTED (unknown required feature); TAMIS_IO, TAMIS_NO_MEMORY. A damaged filter is OK (T4).
 */
TAMIS_NODISCARD tamis_status tm_table_open(const struct tm_env *env, tamis_dir *dir,
                                           const char *name,
                                           const struct tm_table_identity *identity,
                                           struct tm_cache *cache,
                                           struct tm_descriptors *descriptors,
                                           struct tm_table **table_out, tamis_error *err);
/** NULL allowed. No iterator may be open on it; blocks handed out may live on. */
void tm_table_close(struct tm_table *table);

/** The filter, always answering; "maybe" when there is none or it is damaged. Borrowed, as long as the table. */
const tamis_filter *tm_table_filter(const struct tm_table *table);
/** Facts of the filter as its trailer states them; kind ALWAYS_TRUE when there is none or it is damaged. */
const tamis_filter_info *tm_table_filter_info(const struct tm_table *table);
/** TAMIS_FILTER_SOUND, or what is wrong with the filter. */
tamis_filter_damage tm_table_filter_damage(const struct tm_table *table);
/** Range tombstones; NULL: none. As long as the table. */
const struct tm_range_set *tm_table_ranges(const struct tm_table *table);
/** The seed with which keys are hashed for this table's filter and tags. */
uint64_t tm_table_hash_seed(const struct tm_table *table);
/** Facts; keys borrowed, as long as the table. */
const struct tm_table_facts *tm_table_facts(const struct tm_table *table);
/** Resident bytes of index and bookkeeping; of the filter. */
uint64_t tm_table_index_bytes(const struct tm_table *table);
uint64_t tm_table_filter_bytes(const struct tm_table *table);

/** Data blocks; and the separator of block `number` (index.h, I1), copied into *out, which is replaced. OK or NO_MEMORY. */
size_t tm_table_block_count(const struct tm_table *table);
TAMIS_NODISCARD tamis_status tm_table_separator(const struct tm_table *table, size_t number,
                                                struct tm_buf *out, tamis_error *err);

/**
 * Bytes of the file that belong to keys before `key`, by the resident index: to a block, and filter and index spread over the blocks.
 * 0 up to the smallest key, the whole file beyond the largest. Any thread; no I/O.
 */
uint64_t tm_table_approximate_offset(const struct tm_table *table, tamis_slice key);

/**
 * Start loading what tm_table_search() will look at, if it is cached: first the place in the cache of the block that may have
 * `key`, whose number is returned; then, when that is there, the head of block `number`. Numbers beyond the last block are
 * allowed. Nothing is counted.
 */
size_t tm_table_prefetch_place(const struct tm_table *table, tamis_slice key);
void tm_table_prefetch_block(const struct tm_table *table, size_t number);

/**
 * Find the newest version of `key` that is not newer than `sequence`. Does not ask the filter: the caller has.
 *
 * @param hash   of `key` under tm_table_hash_seed()
 * @param found  [out] on OK
 * @return       TAMIS_OK, TAMIS_IO, TAMIS_CORRUPT, TAMIS_NO_MEMORY
 *
 * Threads  any number at once (T1).
 * Cost     one block, from the cache or the file (one more per block that versions of the key span).
 */
TAMIS_NODISCARD tamis_status tm_table_search(struct tm_table *table, tamis_slice key,
                                             uint64_t hash, uint64_t sequence,
                                             struct tm_found *found, tamis_error *err);

/**
 * Walk the entries. Never asks the filter.
 *
 * @param fill_cache  offer the blocks read to the cache (scans of users) or not (compaction)
 */
TAMIS_NODISCARD tamis_status tm_table_iter(struct tm_table *table, bool fill_cache,
                                           struct tm_iter **iter_out, tamis_error *err);

/**
 * Read everything: every block's checksum, the order of all entries, counts, key range, sequence range, section
 * checksums against the table's checksum; recount the filter's keys and ask it for every one of them.
 *
 * @param progress  called now and then with bytes done so far; a false return stops (TAMIS_OK). NULL allowed.
 * @return          TAMIS_OK, TAMIS_CORRUPT (the first fault, with file, offset, expected and found), TAMIS_IO, TAMIS_NO_MEMORY
 */
TAMIS_NODISCARD tamis_status tm_table_verify(struct tm_table *table,
                                             bool (*progress)(void *arg, uint64_t bytes_done),
                                             void *arg, tamis_error *err);

/**
 * Write the file as text that diffs well: footer, properties, filter, index, and with `entries` each block and
 * entry, keys and values escaped (printable ASCII as is, everything else \xHH, backslash doubled).
 *
 * @param sink  receives pieces of text; a false return stops
 */
TAMIS_NODISCARD tamis_status tm_table_inspect(struct tm_table *table, bool entries,
                                              bool (*sink)(void *arg, const char *text,
                                                           size_t length),
                                              void *arg, tamis_error *err);

#endif
