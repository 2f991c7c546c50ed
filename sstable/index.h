/* SPDX-License-Identifier: MIT
 *
 * sstable/index.h -- from a key to the data block that may hold it: written in two levels, resident in one.
 *
 *   in the file    leaf  leaf  ...  top          every child: separator -> stored length; offsets add up
 *   in memory      pieces  offsets  ends  bytes  one allocation; i-th separator = prefix + bytes of i
 *
 * Invariants
 *   I1  A separator is at least every key of its block and below the first key of the next block, or equal
 *       to it when versions of that key go on there. So the first separator >= key names the first block to read.
 *   I2  Separators ascend; equal ones follow each other only for blocks that hold versions of one key.
 *   I3  Children lie side by side: the first at the stated offset, each next one where the last one ends.
 *   I4  Searches compare 8-byte big-endian pieces, taken after the prefix that all separators share; whole
 *       separators only where pieces are equal. Under an order that is not bytewise the prefix is empty and all pieces are 0.
 *
 * Threads  a loaded index does not change; any number of readers. A builder has one owner.
 * Not here: data blocks (block_read.h), the place of the section (table_meta.h).
 */
#ifndef TM_SSTABLE_INDEX_H
#define TM_SSTABLE_INDEX_H

#include "sstable/env.h"

/* ---- Writing --------------------------------------------------------------------------------------- */

/* Zeroed is empty. */
struct tm_index_builder {
    struct tm_buf children; // struct child (index.c) and separator, one after the other
    uint64_t count;
};

/**
 * The shortest key that is at least `last` and below `next`; `last` itself when they are equal, or ordered other than bytewise (I1).
 *
 * @param out  contents replaced
 * @return     TAMIS_OK or TAMIS_NO_MEMORY
 */
TAMIS_NODISCARD tamis_status tm_index_separator(const struct tm_env *env, tamis_slice last,
                                                tamis_slice next, struct tm_buf *out,
                                                tamis_error *err);

/** Add a data block. TAMIS_OK or TAMIS_NO_MEMORY. */
TAMIS_NODISCARD tamis_status tm_index_builder_add(const struct tm_env *env,
                                                  struct tm_index_builder *builder,
                                                  tamis_slice separator, uint64_t stored_bytes,
                                                  tamis_error *err);

/**
 * Seal leaves and top into one section.
 *
 * @param section_offset  in the file; the data section ends there and begins at 0
 * @param section         [out] appended to
 * @param top_bytes_out   [out] stored length of the top, the last block of the section
 * @param checksum_out    [out] over the checksums of all blocks of the section, in order
 * @return                TAMIS_OK or TAMIS_NO_MEMORY
 */
TAMIS_NODISCARD tamis_status tm_index_builder_finish(const struct tm_env *env,
                                                     const struct tm_index_builder *builder,
                                                     uint64_t data_id, uint64_t section_offset,
                                                     bool compress, struct tm_buf *section,
                                                     uint64_t *top_bytes_out,
                                                     uint64_t *checksum_out, tamis_error *err);

void tm_index_builder_release(const struct tm_env *env, struct tm_index_builder *builder);

/* ---- Reading --------------------------------------------------------------------------------------- */

/* Where the section stands, from the footer. */
struct tm_index_place {
    const char *file; // name, for messages
    uint64_t data_id;
    uint64_t data_bytes; // of the data section, which begins at 0
    uint64_t offset;
    uint64_t bytes;
    uint64_t top_bytes;
    uint64_t checksum; // expected
};

/* Zeroed is empty. The arrays lie in one allocation. */
struct tm_index {
    const struct tm_order *order; // of keys; borrowed
    size_t count;            // data blocks
    size_t leaf_count;       // index leaves in the file
    const uint64_t *pieces;  // count; of each separator behind the prefix
    const uint64_t *offsets; // count + 1; block i is at offsets[i] .. offsets[i + 1]
    const uint64_t *ends;    // count + 1; separator i is bytes[ends[i]] .. bytes[ends[i + 1]]
    const uint8_t *bytes;    // separators, the prefix left out
    tamis_slice prefix; // of every separator
    void *memory;
    size_t memory_bytes;
};

/**
 * Read the section and make it resident.
 *
 * @param index  [out] on OK; tm_index_release()
 * @return       TAMIS_OK, TAMIS_CORRUPT, TAMIS_IO, TAMIS_NO_MEMORY
 */
TAMIS_NODISCARD tamis_status tm_index_load(const struct tm_env *env, tamis_file *file,
                                           const struct tm_index_place *place,
                                           struct tm_index *index, tamis_error *err);

/** Number of the first block whose separator is at least `key`; `count` if there is none. */
size_t tm_index_find(const struct tm_index *index, tamis_slice key);

/** Is the separator of block `i` exactly `key`? */
bool tm_index_separator_is(const struct tm_index *index, size_t i, tamis_slice key);

/** Order of the separator of block `i` and `key`: <0, 0, >0. */
int tm_index_compare(const struct tm_index *index, size_t i, tamis_slice key);

/** The bytes of the separator of block `i` behind index->prefix. */
tamis_slice tm_index_separator_rest(const struct tm_index *index, size_t i);

void tm_index_release(const struct tm_env *env, struct tm_index *index);

#endif
