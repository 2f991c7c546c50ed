/* SPDX-License-Identifier: MIT
 *
 * sstable/table_meta.c -- footer and properties of a table.
 */
#include "sstable/table_meta.h"

#include <inttypes.h>

#include "filter/bytes.h"
#include "filter/hash.h"
#include "sstable/entry.h"

/* ---- Footer ---------------------------------------------------------------------------------------- */

/* Each field once, for both directions: where it stands, and which member it is. */
static const struct {
    uint8_t at;
    uint8_t member_at;
} footer_fields[] = {
    {TM_FOOTER_UNIQUE_ID_AT, offsetof(struct tm_footer, unique_id)},
    {TM_FOOTER_DATA_ID_AT, offsetof(struct tm_footer, data_id)},
    {TM_FOOTER_FILE_BYTES_AT, offsetof(struct tm_footer, file_bytes)},
    {TM_FOOTER_REQUIRED_AT, offsetof(struct tm_footer, features_required)},
    {TM_FOOTER_COMPATIBLE_AT, offsetof(struct tm_footer, features_compatible)},
    {TM_FOOTER_DATA_BYTES_AT, offsetof(struct tm_footer, data_bytes)},
    {TM_FOOTER_INDEX_AT, offsetof(struct tm_footer, index_offset)},
    {TM_FOOTER_INDEX_BYTES_AT, offsetof(struct tm_footer, index_bytes)},
    {TM_FOOTER_INDEX_TOP_BYTES_AT, offsetof(struct tm_footer, index_top_bytes)},
    {TM_FOOTER_FILTER_AT, offsetof(struct tm_footer, filter_offset)},
    {TM_FOOTER_FILTER_BYTES_AT, offsetof(struct tm_footer, filter_bytes)},
    {TM_FOOTER_PROPERTIES_AT, offsetof(struct tm_footer, properties_offset)},
    {TM_FOOTER_PROPERTIES_BYTES_AT, offsetof(struct tm_footer, properties_bytes)},
    {TM_FOOTER_DATA_CHECKSUM_AT, offsetof(struct tm_footer, data_checksum)},
    {TM_FOOTER_INDEX_CHECKSUM_AT, offsetof(struct tm_footer, index_checksum)},
    {TM_FOOTER_FILTER_CHECKSUM_AT, offsetof(struct tm_footer, filter_checksum)},
    {TM_FOOTER_PROPERTIES_CHECKSUM_AT, offsetof(struct tm_footer, properties_checksum)},
    {TM_FOOTER_TABLE_CHECKSUM_AT, offsetof(struct tm_footer, table_checksum)},
};
enum { FOOTER_FIELD_COUNT = sizeof footer_fields / sizeof *footer_fields };
static_assert(FOOTER_FIELD_COUNT * 8 == sizeof(struct tm_footer), "every member is a field");
static_assert(FOOTER_FIELD_COUNT * 8 == TM_FOOTER_VERSION_AT,
              "fields fill the footer up to the version");

static uint64_t *
footer_member(struct tm_footer *footer, size_t i)
{
    return (uint64_t *)((char *)footer + footer_fields[i].member_at);
}

static uint64_t
own_checksum(const uint8_t *bytes, uint64_t unique_id, uint64_t offset)
{
    return tm_hash64(bytes, TM_FOOTER_CHECKSUM_AT, tm_place_seed(unique_id, offset));
}

static uint64_t
table_checksum(const uint8_t *bytes)
{
    return tm_hash64(bytes + TM_FOOTER_DATA_CHECKSUM_AT, 4 * 8, 0); // M2
}

uint64_t
tm_filter_section_checksum(const uint8_t *trailer)
{
    return tm_hash64(trailer + TAMIS_FILTER_TRAILER_BYTES - 16, 16, 0);
}

void
tm_footer_encode(struct tm_footer *footer, uint8_t *bytes)
{
    for (size_t i = 0; i < FOOTER_FIELD_COUNT; i++)
        tm_put_u64(bytes + footer_fields[i].at, *footer_member(footer, i));
    footer->table_checksum = table_checksum(bytes);
    tm_put_u64(bytes + TM_FOOTER_TABLE_CHECKSUM_AT, footer->table_checksum);
    tm_put_u32(bytes + TM_FOOTER_VERSION_AT, TM_FORMAT_VERSION);
    tm_put_u32(bytes + TM_FOOTER_OWN_BYTES_AT, TM_FOOTER_BYTES);
    tm_put_u64(bytes + TM_FOOTER_CHECKSUM_AT,
               own_checksum(bytes, footer->unique_id, footer->file_bytes - TM_FOOTER_BYTES));
    memcpy(bytes + TM_FOOTER_MAGIC_AT, TM_TABLE_MAGIC, sizeof TM_TABLE_MAGIC - 1);
}

/* M1. Sums cannot wrap: each part was compared with what is left before it is added. */
static bool
sections_fit(const struct tm_footer *footer)
{
    uint64_t end = footer->file_bytes - TM_FOOTER_BYTES;
    uint64_t at = footer->data_bytes;

    if (at > end || footer->index_offset != at || footer->index_bytes > end - at)
        return false;
    at += footer->index_bytes;
    if (footer->filter_bytes == 0) {
        if (footer->filter_offset != 0 || footer->filter_checksum != 0)
            return false;
    } else {
        uint64_t body = tm_filter_offset_after(at);

        if (footer->filter_offset != body || body > end ||
            footer->filter_bytes < TAMIS_FILTER_TRAILER_BYTES ||
            footer->filter_bytes % TAMIS_FILTER_ALIGN_BYTES != 0 ||
            footer->filter_bytes > end - body)
            return false;
        at = body + footer->filter_bytes;
    }
    return footer->properties_offset == at && footer->properties_bytes == end - at &&
           footer->index_top_bytes <= footer->index_bytes;
}

tamis_status
tm_footer_decode(const char *file, uint64_t file_bytes, const uint8_t *bytes,
                 struct tm_footer *footer, tamis_error *err)
{
    uint64_t offset = file_bytes - TM_FOOTER_BYTES;
    uint64_t expected = tm_get_u64(bytes + TM_FOOTER_CHECKSUM_AT);
    uint64_t found = own_checksum(bytes, tm_get_u64(bytes + TM_FOOTER_UNIQUE_ID_AT), offset);
    uint32_t version = tm_get_u32(bytes + TM_FOOTER_VERSION_AT);
    uint32_t own_bytes = tm_get_u32(bytes + TM_FOOTER_OWN_BYTES_AT);

    if (memcmp(bytes + TM_FOOTER_MAGIC_AT, TM_TABLE_MAGIC, sizeof TM_TABLE_MAGIC - 1) != 0)
        return TM_FAIL(err, TAMIS_CORRUPT,
                       "%s: footer at %" PRIu64 ": expected the magic \"" TM_TABLE_MAGIC
                       "\", found %016" PRIx64,
                       file, offset, tm_get_u64(bytes + TM_FOOTER_MAGIC_AT));
    if (found != expected)
        return TM_FAIL(err, TAMIS_CORRUPT,
                       "%s: footer at %" PRIu64 ": checksum expected %016" PRIx64
                       ", found %016" PRIx64,
                       file, offset, expected, found);
    if (version != TM_FORMAT_VERSION)
        return TM_FAIL(err, version > TM_FORMAT_VERSION ? TAMIS_UNSUPPORTED : TAMIS_CORRUPT,
                       "%s: footer at %" PRIu64 ": format version expected %d, found %" PRIu32,
                       file, offset, TM_FORMAT_VERSION, version);
    for (size_t i = 0; i < FOOTER_FIELD_COUNT; i++)
        *footer_member(footer, i) = tm_get_u64(bytes + footer_fields[i].at);
    if ((footer->features_required & ~TM_FEATURES_REQUIRED_KNOWN) != 0)
        return TM_FAIL(err, TAMIS_UNSUPPORTED,
                       "%s: footer at %" PRIu64 ": required features known %016" PRIx64
                       ", found %016" PRIx64,
                       file, offset, TM_FEATURES_REQUIRED_KNOWN, footer->features_required);
    if (footer->file_bytes != file_bytes)
        return TM_FAIL(err, TAMIS_CORRUPT,
                       "%s: footer at %" PRIu64 ": a file of %" PRIu64
                       " bytes expected, found %" PRIu64,
                       file, offset, footer->file_bytes, file_bytes);
    if (own_bytes != TM_FOOTER_BYTES || footer->table_checksum != table_checksum(bytes) ||
        !sections_fit(footer))
        return TM_FAIL(err, TAMIS_CORRUPT,
                       "%s: footer at %" PRIu64 ": sections do not fit: data %" PRIu64
                       ", index %" PRIu64 "+%" PRIu64 ", filter %" PRIu64 "+%" PRIu64
                       ", properties %" PRIu64 "+%" PRIu64,
                       file, offset, footer->data_bytes, footer->index_offset, footer->index_bytes,
                       footer->filter_offset, footer->filter_bytes, footer->properties_offset,
                       footer->properties_bytes);
    return TAMIS_OK;
}

/* ---- Properties ------------------------------------------------------------------------------------ */

tamis_status
tm_properties_encode(const struct tm_env *env, const struct tm_properties *properties,
                     struct tm_buf *out, tamis_error *err)
{
    uint32_t fixed = properties->range_count != 0 ? TM_PROPERTIES_FIXED_BYTES_WITH_RANGES
                                                  : TM_PROPERTIES_FIXED_BYTES;
    tamis_status status;
    uint8_t *p;

    status = tm_buf_reserve(env, out,
                            fixed + properties->smallest.length + properties->largest.length +
                                properties->ranges.length,
                            err);
    if (status != TAMIS_OK)
        return status;
    p = out->data + out->length;
    memset(p, 0, fixed);
    tm_put_u32(p + TM_PROPERTIES_FIXED_BYTES_AT, fixed);
    p[TM_PROPERTIES_HASH_ID_AT] = properties->hash_id;
    p[TM_PROPERTIES_FILTER_KIND_AT] = properties->filter_kind;
    p[TM_PROPERTIES_COMPRESSION_AT] = properties->compress ? 1 : 0;
    tm_put_u32(p + TM_PROPERTIES_BLOCK_BYTES_AT, properties->block_bytes);
    tm_put_u32(p + TM_PROPERTIES_FILTER_MILLIBITS_AT, properties->filter_millibits);
    tm_put_u32(p + TM_PROPERTIES_FILTER_RATE_PPB_AT, properties->filter_rate_ppb);
    tm_put_u32(p + TM_PROPERTIES_SMALLEST_BYTES_AT, (uint32_t)properties->smallest.length);
    tm_put_u32(p + TM_PROPERTIES_LARGEST_BYTES_AT, (uint32_t)properties->largest.length);
    tm_put_u64(p + TM_PROPERTIES_HASH_SEED_AT, properties->hash_seed);
    tm_put_u64(p + TM_PROPERTIES_ENTRIES_AT, properties->entry_count);
    tm_put_u64(p + TM_PROPERTIES_KEYS_AT, properties->key_count);
    tm_put_u64(p + TM_PROPERTIES_TOMBSTONES_AT, properties->tombstone_count);
    tm_put_u64(p + TM_PROPERTIES_KEY_BYTES_AT, properties->key_bytes);
    tm_put_u64(p + TM_PROPERTIES_VALUE_BYTES_AT, properties->value_bytes);
    tm_put_u64(p + TM_PROPERTIES_SEQUENCE_MIN_AT, properties->sequence_min);
    tm_put_u64(p + TM_PROPERTIES_SEQUENCE_MAX_AT, properties->sequence_max);
    tm_put_u64(p + TM_PROPERTIES_DATA_BLOCKS_AT, properties->data_block_count);
    tm_put_u64(p + TM_PROPERTIES_UNPACKED_BYTES_AT, properties->unpacked_bytes);
    if (properties->range_count != 0)
        tm_put_u64(p + TM_PROPERTIES_RANGES_AT, properties->range_count);
    out->length += fixed;
    status = tm_buf_append(env, out, properties->smallest.data, properties->smallest.length, err);
    if (status == TAMIS_OK)
        status = tm_buf_append(env, out, properties->largest.data, properties->largest.length, err);
    if (status == TAMIS_OK)
        status = tm_buf_append(env, out, properties->ranges.data, properties->ranges.length, err);
    return status;
}

tamis_status
tm_properties_decode(const struct tm_place *place, const struct tm_order *order,
                     const struct tm_block *block, bool has_ranges,
                     struct tm_properties *properties, tamis_error *err)
{
    uint32_t fixed_min =
        has_ranges ? TM_PROPERTIES_FIXED_BYTES_WITH_RANGES : TM_PROPERTIES_FIXED_BYTES;
    const uint8_t *p = block->data;
    uint32_t fixed = block->length >= 4 ? tm_get_u32(p + TM_PROPERTIES_FIXED_BYTES_AT) : 0;
    uint64_t smallest;
    uint64_t largest;
    uint64_t rest; // behind the keys

    if (fixed < fixed_min || fixed > block->length)
        return TM_FAIL(err, TAMIS_CORRUPT,
                       "%s: properties at %" PRIu64 ": expected a fixed part of at least %d"
                       " bytes in %" PRIu32 ", found %" PRIu32,
                       place->file, place->offset, (int)fixed_min, block->length, fixed);
    smallest = tm_get_u32(p + TM_PROPERTIES_SMALLEST_BYTES_AT);
    largest = tm_get_u32(p + TM_PROPERTIES_LARGEST_BYTES_AT);
    rest = block->length - fixed - (smallest + largest); // wraps around when they do not fit
    if (smallest > TAMIS_KEY_BYTES_MAX || largest > TAMIS_KEY_BYTES_MAX ||
        smallest + largest > block->length - fixed || (rest != 0) != has_ranges)
        return TM_FAIL(err, TAMIS_CORRUPT,
                       "%s: properties at %" PRIu64 ": keys of %" PRIu64 " and %" PRIu64
                       " bytes expected, found %" PRIu32 " bytes",
                       place->file, place->offset, smallest, largest, block->length - fixed);
    *properties = (struct tm_properties){
        .hash_id = p[TM_PROPERTIES_HASH_ID_AT],
        .filter_kind = p[TM_PROPERTIES_FILTER_KIND_AT],
        .compress = p[TM_PROPERTIES_COMPRESSION_AT] != 0,
        .block_bytes = tm_get_u32(p + TM_PROPERTIES_BLOCK_BYTES_AT),
        .filter_millibits = tm_get_u32(p + TM_PROPERTIES_FILTER_MILLIBITS_AT),
        .filter_rate_ppb = tm_get_u32(p + TM_PROPERTIES_FILTER_RATE_PPB_AT),
        .hash_seed = tm_get_u64(p + TM_PROPERTIES_HASH_SEED_AT),
        .entry_count = tm_get_u64(p + TM_PROPERTIES_ENTRIES_AT),
        .key_count = tm_get_u64(p + TM_PROPERTIES_KEYS_AT),
        .tombstone_count = tm_get_u64(p + TM_PROPERTIES_TOMBSTONES_AT),
        .key_bytes = tm_get_u64(p + TM_PROPERTIES_KEY_BYTES_AT),
        .value_bytes = tm_get_u64(p + TM_PROPERTIES_VALUE_BYTES_AT),
        .sequence_min = tm_get_u64(p + TM_PROPERTIES_SEQUENCE_MIN_AT),
        .sequence_max = tm_get_u64(p + TM_PROPERTIES_SEQUENCE_MAX_AT),
        .data_block_count = tm_get_u64(p + TM_PROPERTIES_DATA_BLOCKS_AT),
        .unpacked_bytes = tm_get_u64(p + TM_PROPERTIES_UNPACKED_BYTES_AT),
        .smallest = tm_slice(p + fixed, (size_t)smallest),
        .largest = tm_slice(p + fixed + smallest, (size_t)largest),
        .range_count = has_ranges ? tm_get_u64(p + TM_PROPERTIES_RANGES_AT) : 0,
        .ranges = tm_slice(p + fixed + smallest + largest, (size_t)rest),
    };
    if (properties->hash_id != TM_HASH_ID_XXH3_64)
        return TM_FAIL(err, TAMIS_UNSUPPORTED,
                       "%s: properties at %" PRIu64 ": hash expected %d (XXH3-64), found %u",
                       place->file, place->offset, TM_HASH_ID_XXH3_64, properties->hash_id);
    if (properties->entry_count == 0 || properties->key_count == 0 ||
        properties->key_count > properties->entry_count ||
        properties->tombstone_count > properties->entry_count ||
        properties->sequence_min > properties->sequence_max ||
        properties->sequence_max > TM_SEQUENCE_MAX ||
        tm_order_compare(order, properties->smallest, properties->largest) > 0 ||
        (properties->range_count != 0) != has_ranges || properties->range_count > rest)
        return TM_FAIL(err, TAMIS_CORRUPT,
                       "%s: properties at %" PRIu64 ": found %" PRIu64 " entries, %" PRIu64
                       " keys, %" PRIu64 " tombstones, sequences %" PRIu64 " to %" PRIu64
                       ", %" PRIu64 " ranges",
                       place->file, place->offset, properties->entry_count, properties->key_count,
                       properties->tombstone_count, properties->sequence_min,
                       properties->sequence_max, properties->range_count);
    return TAMIS_OK;
}

/* ---- Ranges ---------------------------------------------------------------------------------------- */

static tamis_status
encode_bound(const struct tm_env *env, tamis_slice bound, struct tm_buf *out, tamis_error *err)
{
    uint8_t length[TM_VARINT64_BYTES_MAX];
    tamis_status status;

    status = tm_buf_append(env, out, length,
                           (size_t)(tm_put_varint64(length, bound.length) - length), err);
    if (status != TAMIS_OK)
        return status;
    return tm_buf_append(env, out, bound.data, bound.length, err);
}

tamis_status
tm_range_encode(const struct tm_env *env, const struct tm_range *range, struct tm_buf *out,
                tamis_error *err)
{
    uint8_t sequence[TM_VARINT64_BYTES_MAX];
    tamis_status status;

    status = tm_buf_append(env, out, sequence,
                           (size_t)(tm_put_varint64(sequence, range->sequence) - sequence), err);
    if (status == TAMIS_OK)
        status = encode_bound(env, range->from, out, err);
    if (status == TAMIS_OK)
        status = encode_bound(env, range->to, out, err);
    return status;
}

static tamis_slice
take_bound(struct tm_cursor *cursor)
{
    uint64_t length = tm_cursor_varint(cursor);

    if (length > TAMIS_KEY_BYTES_MAX)
        cursor->failed = true;
    return tm_slice(tm_cursor_bytes(cursor, length), (size_t)length);
}

/* NULL, or what is wrong with a range that follows `last` (NULL: the first). */
static const char *
wrong_range(const struct tm_properties *properties, const struct tm_range *last,
            const struct tm_range *range)
{
    if (tm_slice_compare(range->from, range->to) >= 0)
        return "it ends before it begins";
    if (range->sequence < properties->sequence_min || range->sequence > properties->sequence_max)
        return "its sequence is outside those of the table";
    if (tm_slice_compare(range->from, properties->smallest) < 0 ||
        tm_slice_compare(tm_range_reach(range->to), properties->largest) > 0)
        return "it reaches beyond the keys of the table";
    if (last != NULL && tm_range_compare(last, range) >= 0)
        return "it is out of order";
    return NULL;
}

tamis_status
tm_ranges_decode(const struct tm_place *place, const struct tm_properties *properties,
                 struct tm_range *ranges_out, tamis_error *err)
{
    struct tm_cursor cursor = tm_cursor_over(properties->ranges.data, properties->ranges.length);

    for (uint64_t i = 0; i < properties->range_count; i++) {
        struct tm_range *range = &ranges_out[i];
        const char *wrong;

        range->sequence = tm_cursor_varint(&cursor);
        range->from = take_bound(&cursor);
        range->to = take_bound(&cursor);
        wrong = cursor.failed ? "it ends too early"
                              : wrong_range(properties, i > 0 ? range - 1 : NULL, range);
        if (wrong != NULL)
            return TM_FAIL(err, TAMIS_CORRUPT,
                           "%s: properties at %" PRIu64 ": range %" PRIu64 ": %s", place->file,
                           place->offset, i, wrong);
    }
    if (tm_cursor_left(&cursor) != 0)
        return TM_FAIL(err, TAMIS_CORRUPT,
                       "%s: properties at %" PRIu64 ": expected the end behind %" PRIu64
                       " ranges, found %zu bytes more",
                       place->file, place->offset, properties->range_count,
                       tm_cursor_left(&cursor));
    return TAMIS_OK;
}
