/* SPDX-License-Identifier: MIT
 *
 * sstable/block_read.c -- search and walk one unpacked data block.
 */
#include "sstable/block_read.h"

#include <inttypes.h>

#include "filter/bytes.h"
#include "sstable/format.h"

tamis_status
tm_block_view_init(struct tm_block_view *view, const struct tm_block *block, const char *file,
                   uint64_t block_offset, tamis_error *err)
{
    uint32_t left = block->length;
    uint32_t word;
    uint64_t table; // bytes of tags and offsets

    view->file = file;
    view->block_offset = block_offset;
    if (left < TM_DATA_HEADER_BYTES)
        return TM_FAIL(err, TAMIS_CORRUPT,
                       "%s: data block at %" PRIu64
                       ": expected a header of %d bytes, found %" PRIu32,
                       file, block_offset, TM_DATA_HEADER_BYTES, left);
    left -= TM_DATA_HEADER_BYTES;
    word = tm_get_u32(block->data + TM_DATA_PREFIX_BYTES_AT);
    view->count = tm_get_u32(block->data + TM_DATA_COUNT_AT);
    view->base_sequence = tm_get_u64(block->data + TM_DATA_BASE_SEQUENCE_AT);
    view->prefix_length = word & 0xffffff;
    view->wide = (word >> 24 & TM_DATA_FLAG_WIDE) != 0;
    if (word >> 24 > TM_DATA_FLAG_WIDE || view->count == 0 ||
        view->prefix_length > TAMIS_KEY_BYTES_MAX || view->base_sequence > TM_SEQUENCE_MAX ||
        view->prefix_length > left)
        return TM_FAIL(err, TAMIS_CORRUPT,
                       "%s: data block at %" PRIu64 ", %" PRIu32
                       " bytes: found a header of %" PRIu32 " entries, prefix %" PRIu32
                       ", flags %" PRIu32 ", base sequence %" PRIu64,
                       file, block_offset, block->length, view->count, view->prefix_length,
                       word >> 24, view->base_sequence);
    left -= view->prefix_length;
    table = (uint64_t)view->count * (view->wide ? 5 : 3);
    if (table > left)
        return TM_FAIL(err, TAMIS_CORRUPT,
                       "%s: data block at %" PRIu64 ": expected %" PRIu64
                       " bytes of tags and offsets, found %" PRIu32,
                       file, block_offset, table, left);
    view->prefix = block->data + TM_DATA_HEADER_BYTES;
    view->tags = view->prefix + view->prefix_length;
    view->offsets = view->tags + view->count;
    view->entries = view->tags + table;
    view->entries_length = left - (uint32_t)table;
    return TAMIS_OK;
}

static inline uint32_t
offset_of(const struct tm_block_view *view, uint32_t index)
{
    return view->wide ? tm_get_u32(view->offsets + 4 * (size_t)index)
                      : tm_get_u16(view->offsets + 2 * (size_t)index);
}

static tamis_status __attribute__((noinline, cold))
bad_entry(const struct tm_block_view *view, uint32_t index, tamis_error *err)
{
    return TM_FAIL(err, TAMIS_CORRUPT,
                   "%s: data block at %" PRIu64 ": entry %" PRIu32 " of %" PRIu32 " at %" PRIu32
                   " is not within %" PRIu32 " bytes, or malformed",
                   view->file, view->block_offset, index, view->count, offset_of(view, index),
                   view->entries_length);
}

/* The body of tm_block_entry_at(), inlined into the searches. */
static inline bool
decode(const struct tm_block_view *view, uint32_t index, struct tm_block_entry *entry)
{
    uint32_t begin = offset_of(view, index);
    uint32_t end = index + 1 < view->count ? offset_of(view, index + 1) : view->entries_length;
    const uint8_t *limit;
    const uint8_t *p;
    uint64_t meta;
    uint32_t suffix_length;

    if (begin > end || end > view->entries_length) // BR1
        return false;
    limit = view->entries + end;
    p = tm_get_varint64(view->entries + begin, limit, &meta);
    if (p == NULL)
        return false;
    p = tm_get_varint32(p, limit, &suffix_length);
    if (p == NULL || suffix_length > (size_t)(limit - p) ||
        suffix_length > TAMIS_KEY_BYTES_MAX - view->prefix_length)
        return false;
    entry->kind = (enum tm_kind)(meta & ((1u << TM_ENTRY_KIND_BITS) - 1));
    meta >>= TM_ENTRY_KIND_BITS;
    if (entry->kind > TM_KIND_PUT || meta > TM_SEQUENCE_MAX - view->base_sequence)
        return false;
    entry->sequence = view->base_sequence + meta;
    entry->suffix = tm_slice(p, suffix_length);
    entry->value = tm_slice(p + suffix_length, (size_t)(limit - p) - suffix_length);
    return entry->kind == TM_KIND_PUT || entry->value.length == 0;
}

tamis_status
tm_block_entry_at(const struct tm_block_view *view, uint32_t index, struct tm_block_entry *entry,
                  tamis_error *err)
{
    assert(index < view->count);
    return decode(view, index, entry) ? TAMIS_OK : bad_entry(view, index, err);
}

/*
 * The next entry at or after `index` whose tag is `tag`; `count` if there is none. Eight tags a step: a byte of
 * x is zero exactly where the tag matches, and the sum below sets bit 7 of every byte that is not zero.
 */
static inline uint32_t
next_with_tag(const struct tm_block_view *view, uint32_t index, uint8_t tag)
{
    const uint64_t low_bits = UINT64_C(0x7f7f7f7f7f7f7f7f);
    uint64_t pattern = UINT64_C(0x0101010101010101) * tag;

    while (view->count - index >= 8) {
        uint64_t x = tm_get_u64(view->tags + index) ^ pattern;
        uint64_t zeros = ~(((x & low_bits) + low_bits) | x | low_bits);

        if (zeros != 0)
            return index + (uint32_t)(__builtin_ctzll(zeros) >> 3);
        index += 8;
    }
    while (index < view->count && view->tags[index] != tag)
        index++;
    return index;
}

/* Where keys of different bytes can be equal, tags tell nothing. */
static tamis_status
search_by_order(const struct tm_block_view *view, const struct tm_order *order, tamis_slice key,
                uint64_t sequence, struct tm_block_entry *entry, enum tm_block_verdict *verdict,
                tamis_error *err)
{
    uint32_t index;
    tamis_status status = tm_block_seek(view, order, key, sequence, &index, err);

    *verdict = TM_BLOCK_ABSENT;
    if (status == TAMIS_OK && index < view->count) {
        status = tm_block_entry_at(view, index, entry, err);
        if (status == TAMIS_OK && tm_order_equal(order, entry->suffix, key)) {
            *verdict = TM_BLOCK_HIT;
            return TAMIS_OK;
        }
    }
    if (status != TAMIS_OK || index == 0)
        return status;
    status =
        tm_block_entry_at(view, index - 1, entry, err); // a newer version than the reader sees?
    if (status == TAMIS_OK && tm_order_equal(order, entry->suffix, key))
        *verdict = index == view->count ? TM_BLOCK_GO_ON : TM_BLOCK_TOO_NEW;
    return status;
}

/* READ PATH 7/8   from tm_table_search (sstable/table_read.c): the block is here, verified; find the key in it
 *                 next the result, FOUND, DELETED or ABSENT (engine/read.c) */
tamis_status
tm_block_search(const struct tm_block_view *view, const struct tm_order *order, tamis_slice key,
                uint64_t hash, uint64_t sequence, struct tm_block_entry *entry,
                enum tm_block_verdict *verdict, tamis_error *err)
{
    uint8_t tag = tm_tag_of_hash(hash);
    uint32_t last_seen = view->count; // the last entry found to be a version of the key
    tamis_slice suffix;

    if (tm_order_merges_keys(order))
        return search_by_order(view, order, key, sequence, entry, verdict, err);
    *verdict = TM_BLOCK_ABSENT;
    if (key.length < view->prefix_length ||
        (view->prefix_length > 0 && memcmp(key.data, view->prefix, view->prefix_length) != 0))
        return TAMIS_OK;
    suffix = key.length > 0 ? tm_slice((const uint8_t *)key.data + view->prefix_length,
                                       key.length - view->prefix_length)
                            : key;

    // Versions of the key stand side by side, newest first, all with its tag; another key's tag may equal it.
    for (uint32_t i = next_with_tag(view, 0, tag); i < view->count;
         i = next_with_tag(view, i + 1, tag)) {
        if (!decode(view, i, entry))
            return bad_entry(view, i, err);
        if (!tm_slice_equal(entry->suffix, suffix))
            continue;
        if (entry->sequence <= sequence) {
            *verdict = TM_BLOCK_HIT;
            return TAMIS_OK;
        }
        last_seen = i;
    }
    if (last_seen < view->count)
        *verdict = last_seen == view->count - 1 ? TM_BLOCK_GO_ON : TM_BLOCK_TOO_NEW;
    return TAMIS_OK;
}

tamis_status
tm_block_seek(const struct tm_block_view *view, const struct tm_order *key_order, tamis_slice key,
              uint64_t sequence, uint32_t *index_out, tamis_error *err)
{
    size_t shared = key.length < view->prefix_length ? key.length : view->prefix_length;
    int order = shared > 0 ? memcmp(key.data, view->prefix, shared) : 0;
    uint32_t low = 0;
    uint32_t high = view->count;
    tamis_slice suffix;

    if (!tm_order_is_bytewise(key_order) && view->prefix_length != 0)
        return TM_FAIL(
            err, TAMIS_CORRUPT,
            "%s: data block at %llu: expected whole keys, as their order is not bytewise; "
            "found a prefix of %u bytes",
            view->file, (unsigned long long)view->block_offset, (unsigned)view->prefix_length);
    if (order < 0 || (order == 0 && key.length < view->prefix_length)) {
        *index_out = 0;
        return TAMIS_OK;
    }
    if (order > 0) {
        *index_out = view->count;
        return TAMIS_OK;
    }
    suffix =
        key.length > 0 ? tm_slice((const uint8_t *)key.data + shared, key.length - shared) : key;
    // All entries below `low` are before (key, sequence); all from `high` on are not.
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        struct tm_block_entry entry;

        if (!decode(view, middle, &entry))
            return bad_entry(view, middle, err);
        if (tm_entry_compare(key_order, entry.suffix, entry.sequence, suffix, sequence) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    *index_out = low;
    return TAMIS_OK;
}
