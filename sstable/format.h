/* SPDX-License-Identifier: MIT
 *
 * sstable/format.h -- every number of the table file: offsets, sizes, limits. Drawn in sstable/README.md.
 *
 *   file     data block* | leaf index block* top index block | zeros | filter | properties block | footer
 *   block    payload | trailer
 *
 * All integers are little-endian. Offsets named _AT are bytes from the start of the structure they belong to.
 *
 * Invariants
 *   F1  A number in this file that is marked "on disk" never changes; a new meaning takes a new feature bit
 *       or format version. tests/golden/ holds files of every version.
 *   F2  Sections follow each other without gaps; only the filter is preceded by zeros, up to its alignment.
 *
 * Not here: the filter's own bytes (filter/), the order of entries (entry.h).
 */
#ifndef TM_SSTABLE_FORMAT_H
#define TM_SSTABLE_FORMAT_H

#include <assert.h>
#include <stdint.h>

#include <tamis/filter.h>
#include <tamis/types.h>

enum { TM_FORMAT_VERSION = 1 }; // on disk

/* ---- Footer: the last bytes of the file. On disk. -------------------------------------------------- */

#define TM_TABLE_MAGIC "tamisSST" // 8 bytes, without the terminator

enum {
    TM_FOOTER_UNIQUE_ID_AT = 0,            // u64
    TM_FOOTER_DATA_ID_AT = 8,              // u64
    TM_FOOTER_FILE_BYTES_AT = 16,          // u64, the footer included
    TM_FOOTER_REQUIRED_AT = 24,            // u64, feature bits
    TM_FOOTER_COMPATIBLE_AT = 32,          // u64, feature bits
    TM_FOOTER_DATA_BYTES_AT = 40,          // u64; the data section starts at 0
    TM_FOOTER_INDEX_AT = 48,               // u64 offset
    TM_FOOTER_INDEX_BYTES_AT = 56,         // u64, leaves and top
    TM_FOOTER_INDEX_TOP_BYTES_AT = 64,     // u64, the top alone: the last block of the section
    TM_FOOTER_FILTER_AT = 72,              // u64 offset of the body; 0 without a filter
    TM_FOOTER_FILTER_BYTES_AT = 80,        // u64, body and trailer; 0 without a filter
    TM_FOOTER_PROPERTIES_AT = 88,          // u64 offset
    TM_FOOTER_PROPERTIES_BYTES_AT = 96,    // u64
    TM_FOOTER_DATA_CHECKSUM_AT = 104,      // u64, over the block checksums in order
    TM_FOOTER_INDEX_CHECKSUM_AT = 112,     // u64, over the block checksums in order
    TM_FOOTER_FILTER_CHECKSUM_AT = 120,    // u64, over the two checksums of its trailer; 0 without one
    TM_FOOTER_PROPERTIES_CHECKSUM_AT = 128, // u64, that of its block
    TM_FOOTER_TABLE_CHECKSUM_AT = 136,     // u64, over the four section checksums
    TM_FOOTER_VERSION_AT = 144,            // u32
    TM_FOOTER_OWN_BYTES_AT = 148,          // u32, TM_FOOTER_BYTES
    TM_FOOTER_CHECKSUM_AT = 152,           // u64, over bytes 0..151, seeded with (unique id, offset)
    TM_FOOTER_MAGIC_AT = 160,              // 8 bytes
    TM_FOOTER_BYTES = 168,
};
static_assert(TM_FOOTER_TABLE_CHECKSUM_AT - TM_FOOTER_DATA_CHECKSUM_AT == 4 * 8,
              "the section checksums are one list of four, hashed in place");
static_assert(sizeof TM_TABLE_MAGIC - 1 == TM_FOOTER_BYTES - TM_FOOTER_MAGIC_AT, "magic is 8 bytes");

// Feature bits that this version understands. A required bit outside of these: UNSUPPORTED.
#define TM_FEATURE_RANGES          UINT64_C(1) // the properties hold range tombstones
#define TM_FEATURE_ORDER           UINT64_C(2) // keys are not ordered bytewise; the manifest names the order
#define TM_FEATURES_REQUIRED_KNOWN (TM_FEATURE_RANGES | TM_FEATURE_ORDER)

/* ---- Stored block: payload and trailer. On disk. --------------------------------------------------- */

enum {
    TM_TRAILER_UNPACKED_AT = 0, // u32, bytes of the block once unpacked
    TM_TRAILER_CODEC_AT = 4,    // u8, enum tm_codec
    TM_TRAILER_KIND_AT = 5,     // u8, enum tm_block_kind
    TM_TRAILER_ZERO_AT = 6,     // u16, 0
    TM_TRAILER_CHECKSUM_AT = 8, // u64, over the payload and the 8 bytes above
    TM_TRAILER_BYTES = 16,
};

enum tm_codec {
    TM_CODEC_RAW = 0,
    TM_CODEC_LZ4 = 1,
};

enum tm_block_kind {
    TM_BLOCK_DATA = 1,
    TM_BLOCK_INDEX_LEAF = 2,
    TM_BLOCK_INDEX_TOP = 3,
    TM_BLOCK_PROPERTIES = 4,
};

// A block holds at least one whole entry: the largest key and value and a little that describes them.
#define TM_BLOCK_BYTES_MAX ((uint64_t)TAMIS_KEY_BYTES_MAX + TAMIS_VALUE_BYTES_MAX + 4096)
static_assert(TM_BLOCK_BYTES_MAX + TM_TRAILER_BYTES < UINT32_MAX, "lengths of blocks are u32");
static_assert(TM_BLOCK_BYTES_MAX < 0x7e000000, "LZ4 takes no larger input");

/* ---- Data block, unpacked. On disk. ---------------------------------------------------------------- */

enum {
    TM_DATA_COUNT_AT = 0,         // u32, entries, at least 1
    TM_DATA_PREFIX_BYTES_AT = 4,  // u24, length of the prefix that all keys share
    TM_DATA_FLAGS_AT = 7,         // u8
    TM_DATA_BASE_SEQUENCE_AT = 8, // u64, the smallest of the block
    TM_DATA_HEADER_BYTES = 16,    // then: prefix, tags (u8 each), offsets (u16 or u32 each), entries
};
enum { TM_DATA_FLAG_WIDE = 1 }; // offsets are u32
static_assert(TAMIS_KEY_BYTES_MAX < (1 << 24), "a prefix length has 24 bits");

// Entry: varint (sequence - base) << 2 | kind, varint suffix length, suffix, value up to the next entry.
enum { TM_ENTRY_KIND_BITS = 2 };
// u16 offsets reach this far into the entries.
enum { TM_NARROW_ENTRIES_BYTES_MAX = 65536 };

/** Bits 32..39 of a hash: filters use the upper and lower bits for lines and the lower 32 for bits within them. */
static inline uint8_t
tm_tag_of_hash(uint64_t hash)
{
    return (uint8_t)(hash >> 32);
}

/* ---- Index block, leaf and top alike, unpacked. On disk. ------------------------------------------- */

enum {
    TM_INDEX_COUNT_AT = 0,    // u32, children, at least 1
    TM_INDEX_ZERO_AT = 4,     // u32, 0
    TM_INDEX_FIRST_AT = 8,    // u64, file offset of the first child; each child begins where the last one ends
    TM_INDEX_HEADER_BYTES = 16,
};
// Child: varint bytes shared with the separator before (0 for the first), varint suffix length, suffix, varint stored length.

// Leaves of this size are read in one go at open and could be cached one by one; a table of 64 MiB has about 15.
enum { TM_INDEX_LEAF_BYTES = 16384 };

/* ---- Properties block, unpacked. On disk. ---------------------------------------------------------- */

enum {
    TM_PROPERTIES_FIXED_BYTES_AT = 0, // u32, length of this part; later versions may append to it
    TM_PROPERTIES_HASH_ID_AT = 4,     // u8, of filter and tags
    TM_PROPERTIES_FILTER_KIND_AT = 5, // u8, as asked for
    TM_PROPERTIES_COMPRESSION_AT = 6, // u8, 1: LZ4 where it pays
    TM_PROPERTIES_ZERO_AT = 7,        // u8, 0
    TM_PROPERTIES_BLOCK_BYTES_AT = 8, // u32, target of a data block
    TM_PROPERTIES_FILTER_MILLIBITS_AT =
        12, // u32, bits per key asked for in thousandths; 0: a rate was, or none
    TM_PROPERTIES_FILTER_RATE_PPB_AT =
        16, // u32, false-positive rate asked for in parts per billion; 0: none was
    TM_PROPERTIES_SMALLEST_BYTES_AT = 20,  // u32
    TM_PROPERTIES_LARGEST_BYTES_AT = 24,   // u32
    TM_PROPERTIES_ZERO2_AT = 28,           // u32, 0
    TM_PROPERTIES_HASH_SEED_AT = 32,       // u64
    TM_PROPERTIES_ENTRIES_AT = 40,         // u64
    TM_PROPERTIES_KEYS_AT = 48,            // u64, distinct user keys
    TM_PROPERTIES_TOMBSTONES_AT = 56,      // u64
    TM_PROPERTIES_KEY_BYTES_AT = 64,       // u64, keys of all entries as given
    TM_PROPERTIES_VALUE_BYTES_AT = 72,     // u64
    TM_PROPERTIES_SEQUENCE_MIN_AT = 80,    // u64
    TM_PROPERTIES_SEQUENCE_MAX_AT = 88,    // u64
    TM_PROPERTIES_DATA_BLOCKS_AT = 96,     // u64
    TM_PROPERTIES_UNPACKED_BYTES_AT = 104, // u64, all data blocks before compression
    TM_PROPERTIES_FIXED_BYTES = 112,       // then: smallest user key, largest user key
    // With TM_FEATURE_RANGES the fixed part goes on, and the ranges follow the two keys:
    TM_PROPERTIES_RANGES_AT = 112, // u64, range tombstones, at least 1
    TM_PROPERTIES_FIXED_BYTES_WITH_RANGES = 120,
};

// Range: varint sequence, varint length of its start, start, varint length of its end, end. Sorted as range_set.h says.

#endif
