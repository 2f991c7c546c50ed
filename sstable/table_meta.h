/* SPDX-License-Identifier: MIT
 *
 * sstable/table_meta.h -- footer and properties of a table: encode, decode, check.
 *
 * Invariants
 *   M1  A decoded footer describes sections that follow each other without gaps and end at the footer (F2).
 *   M2  The table checksum is that of the four section checksums, in the order data, index, filter, properties.
 *
 * Threads  plain functions.
 * Not here: reading the file (table_read.c), the meaning of the filter's bytes (filter/).
 */
#ifndef TM_SSTABLE_TABLE_META_H
#define TM_SSTABLE_TABLE_META_H

#include "sstable/codec.h"
#include "sstable/env.h"
#include "sstable/format.h"
#include "sstable/range_set.h"

struct tm_footer {
    uint64_t unique_id;
    uint64_t data_id;
    uint64_t file_bytes;
    uint64_t features_required;
    uint64_t features_compatible;
    uint64_t data_bytes;
    uint64_t index_offset;
    uint64_t index_bytes;
    uint64_t index_top_bytes;
    uint64_t filter_offset; // 0 without a filter
    uint64_t filter_bytes;  // 0 without a filter
    uint64_t properties_offset;
    uint64_t properties_bytes;
    uint64_t data_checksum;
    uint64_t index_checksum;
    uint64_t filter_checksum;
    uint64_t properties_checksum;
    uint64_t table_checksum; // filled by tm_footer_encode() and tm_footer_decode()
};

/** Fill the table checksum and write TM_FOOTER_BYTES bytes that stand at file_bytes - TM_FOOTER_BYTES. */
void tm_footer_encode(struct tm_footer *footer, uint8_t *bytes);

/**
 * Check and decode the last bytes of a file.
 *
 * @param file        its name, for messages
 * @param file_bytes  its length as the file system says it
 * @return            TAMIS_OK, TAMIS_CORRUPT, TAMIS_UNSUPPORTED
 */
TAMIS_NODISCARD tamis_status tm_footer_decode(const char *file, uint64_t file_bytes,
                                              const uint8_t *bytes, struct tm_footer *footer,
                                              tamis_error *err);

/** Where a section of `bytes` bytes that must be aligned begins, if the one before ends at `end`. */
static inline uint64_t
tm_filter_offset_after(uint64_t end)
{
    return (end + TAMIS_FILTER_ALIGN_BYTES - 1) & ~(uint64_t)(TAMIS_FILTER_ALIGN_BYTES - 1);
}

/** Checksum of the filter section: over the two checksums at the end of its trailer. */
uint64_t tm_filter_section_checksum(const uint8_t *trailer);

struct tm_properties {
    uint8_t hash_id;
    uint8_t filter_kind; // as asked for
    bool compress;
    uint32_t block_bytes;
    uint32_t filter_millibits; // asked for; 0: a rate was, or none
    uint32_t filter_rate_ppb;  // asked for; 0: none was
    uint64_t hash_seed;
    uint64_t entry_count;
    uint64_t key_count;
    uint64_t tombstone_count;
    uint64_t key_bytes;
    uint64_t value_bytes;
    uint64_t sequence_min;
    uint64_t sequence_max;
    uint64_t data_block_count;
    uint64_t unpacked_bytes;
    tamis_slice smallest; // of keys and of starts of ranges
    tamis_slice largest;  // of keys and of reaches of ranges
    uint64_t range_count;
    tamis_slice ranges; // encoded
};

/** Append the unpacked properties to `out`. TAMIS_OK or TAMIS_NO_MEMORY. */
TAMIS_NODISCARD tamis_status tm_properties_encode(const struct tm_env *env,
                                                  const struct tm_properties *properties,
                                                  struct tm_buf *out, tamis_error *err);

/** Decode; keys and ranges point into `block`. TAMIS_OK, TAMIS_CORRUPT, TAMIS_UNSUPPORTED (hash). */
TAMIS_NODISCARD tamis_status tm_properties_decode(const struct tm_place *place,
                                                  const struct tm_order *order,
                                                  const struct tm_block *block, bool has_ranges,
                                                  struct tm_properties *properties,
                                                  tamis_error *err);

/** Append one range to an encoded list. TAMIS_OK or TAMIS_NO_MEMORY. */
TAMIS_NODISCARD tamis_status tm_range_encode(const struct tm_env *env, const struct tm_range *range,
                                             struct tm_buf *out, tamis_error *err);

/**
 * Decode and check all ranges of `properties`.
 *
 * @param ranges_out  [out] room for range_count; keys point where properties->ranges does
 * @return            TAMIS_OK or TAMIS_CORRUPT
 */
TAMIS_NODISCARD tamis_status tm_ranges_decode(const struct tm_place *place,
                                              const struct tm_properties *properties,
                                              struct tm_range *ranges_out, tamis_error *err);

#endif
