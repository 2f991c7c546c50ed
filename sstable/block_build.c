/* SPDX-License-Identifier: MIT
 *
 * sstable/block_build.c -- lay out one data block.
 */
#include "sstable/block_build.h"

#include "filter/bytes.h"
#include "sstable/format.h"

struct item {
    size_t raw_offset; // of the key in raw; the value follows it
    size_t key_length;
    size_t value_length;
    uint64_t sequence;
    uint8_t kind;
    uint8_t tag;
};

static uint64_t
meta_of(uint64_t sequence, uint64_t base, unsigned kind)
{
    return (sequence - base) << TM_ENTRY_KIND_BITS | kind;
}

static void
put_header(uint8_t *p, size_t count, size_t prefix_length, bool wide, uint64_t base_sequence)
{
    tm_put_u32(p + TM_DATA_COUNT_AT, (uint32_t)count);
    tm_put_u32(p + TM_DATA_PREFIX_BYTES_AT,
               (uint32_t)prefix_length | (wide ? (uint32_t)TM_DATA_FLAG_WIDE << 24 : 0));
    tm_put_u64(p + TM_DATA_BASE_SEQUENCE_AT, base_sequence);
}

static tamis_slice
first_key(const struct tm_block_builder *builder)
{
    const struct item *first = (const struct item *)builder->items.data;

    return tm_slice(builder->raw.data, first->key_length);
}

size_t
tm_block_builder_bytes(const struct tm_block_builder *builder, const struct tm_entry *entry)
{
    size_t count = builder->count;
    size_t prefix = builder->prefix_length;
    size_t raw = builder->raw.length;
    size_t key_length_max = builder->key_length_max;
    uint64_t sequence_min = builder->sequence_min;
    uint64_t sequence_max = builder->sequence_max;
    size_t entries;

    if (entry != NULL) {
        if (count == 0) {
            prefix = builder->whole_keys ? 0 : entry->key.length;
            sequence_min = sequence_max = entry->sequence;
        } else {
            size_t shared = tm_slice_shared(first_key(builder), entry->key);

            prefix = shared < prefix ? shared : prefix;
            sequence_min = entry->sequence < sequence_min ? entry->sequence : sequence_min;
            sequence_max = entry->sequence > sequence_max ? entry->sequence : sequence_max;
        }
        key_length_max = entry->key.length > key_length_max ? entry->key.length : key_length_max;
        raw += entry->key.length + entry->value.length;
        count++;
    }
    entries = raw - count * prefix +
              count * (tm_varint64_bytes(meta_of(sequence_max, sequence_min, 3)) +
                       tm_varint64_bytes(key_length_max - prefix));
    return TM_DATA_HEADER_BYTES + prefix + count * (entries > TM_NARROW_ENTRIES_BYTES_MAX ? 5 : 3) +
           entries;
}

tamis_status
tm_block_builder_add(const struct tm_env *env, struct tm_block_builder *builder,
                     const struct tm_entry *entry, uint8_t tag, tamis_error *err)
{
    struct item item = {
        .raw_offset = builder->raw.length,
        .key_length = entry->key.length,
        .value_length = entry->value.length,
        .sequence = entry->sequence,
        .kind = (uint8_t)entry->kind,
        .tag = tag,
    };
    tamis_status status;

    status = tm_buf_reserve(env, &builder->raw, entry->key.length + entry->value.length, err);
    if (status != TAMIS_OK)
        return status;
    status = tm_buf_append(env, &builder->items, &item, sizeof item, err);
    if (status != TAMIS_OK)
        return status;

    if (builder->count == 0) {
        builder->prefix_length = builder->whole_keys ? 0 : entry->key.length;
        builder->sequence_min = builder->sequence_max = entry->sequence;
        builder->key_length_max = 0;
    } else {
        size_t shared = tm_slice_shared(first_key(builder), entry->key);

        if (shared < builder->prefix_length) // BB1
            builder->prefix_length = shared;
        if (entry->sequence < builder->sequence_min)
            builder->sequence_min = entry->sequence;
        if (entry->sequence > builder->sequence_max)
            builder->sequence_max = entry->sequence;
    }
    if (entry->key.length > builder->key_length_max)
        builder->key_length_max = entry->key.length;
    if (entry->key.length > 0)
        memcpy(builder->raw.data + builder->raw.length, entry->key.data, entry->key.length);
    builder->raw.length += entry->key.length;
    if (entry->value.length > 0)
        memcpy(builder->raw.data + builder->raw.length, entry->value.data, entry->value.length);
    builder->raw.length += entry->value.length;
    builder->count++;
    return TAMIS_OK;
}

tamis_status
tm_block_builder_finish(const struct tm_env *env, struct tm_block_builder *builder,
                        struct tm_buf *out, tamis_error *err)
{
    const struct item *items = (const struct item *)builder->items.data;
    size_t prefix = builder->prefix_length;
    size_t entries_bytes = 0;
    tamis_status status;
    uint8_t *tags;
    uint8_t *offsets;
    uint8_t *entries;
    uint8_t *p;
    bool wide;

    assert(builder->count > 0 && prefix <= TAMIS_KEY_BYTES_MAX);
    for (size_t i = 0; i < builder->count; i++)
        entries_bytes +=
            tm_varint64_bytes(meta_of(items[i].sequence, builder->sequence_min, items[i].kind)) +
            tm_varint64_bytes(items[i].key_length - prefix) + items[i].key_length - prefix +
            items[i].value_length;
    wide = entries_bytes > TM_NARROW_ENTRIES_BYTES_MAX;

    out->length = 0;
    status = tm_buf_reserve(env, out,
                            TM_DATA_HEADER_BYTES + prefix + builder->count * (wide ? 5 : 3) +
                                entries_bytes + TM_TRAILER_BYTES,
                            err);
    if (status != TAMIS_OK)
        return status;

    put_header(out->data, builder->count, prefix, wide, builder->sequence_min);
    p = out->data + TM_DATA_HEADER_BYTES;
    if (prefix > 0)
        memcpy(p, builder->raw.data, prefix);
    tags = p + prefix;
    offsets = tags + builder->count;
    entries = p = offsets + builder->count * (wide ? 4 : 2);
    for (size_t i = 0; i < builder->count; i++) {
        const struct item *item = &items[i];
        size_t suffix_length = item->key_length - prefix;
        size_t rest = suffix_length + item->value_length;

        tags[i] = item->tag;
        if (wide) // BB2
            tm_put_u32(offsets + 4 * i, (uint32_t)(p - entries));
        else
            tm_put_u16(offsets + 2 * i, (uint16_t)(p - entries));
        p = tm_put_varint64(p, meta_of(item->sequence, builder->sequence_min, item->kind));
        p = tm_put_varint64(p, suffix_length);
        if (rest > 0) // suffix and value stand side by side in raw too
            memcpy(p, builder->raw.data + item->raw_offset + prefix, rest);
        p += rest;
    }
    out->length = (size_t)(p - out->data);
    assert((size_t)(p - entries) == entries_bytes);
    builder->raw.length = 0;
    builder->items.length = 0;
    builder->count = 0;
    return TAMIS_OK;
}

tamis_status
tm_block_build_single(const struct tm_env *env, const struct tm_entry *entry, uint8_t tag,
                      struct tm_buf *out, tamis_error *err)
{
    size_t prefix = tm_order_is_bytewise(&env->order) ? entry->key.length : 0;
    tamis_status status;
    uint8_t *p;

    out->length = 0;
    status = tm_buf_reserve(env, out,
                            TM_DATA_HEADER_BYTES + entry->key.length + 3 + 2 +
                                TM_VARINT64_BYTES_MAX + entry->value.length + TM_TRAILER_BYTES,
                            err);
    if (status != TAMIS_OK)
        return status;
    // BB1: the prefix of one key is all of it. Its one offset is 0, which needs no width.
    put_header(out->data, 1, prefix, false, entry->sequence);
    p = out->data + TM_DATA_HEADER_BYTES;
    if (prefix > 0)
        memcpy(p, entry->key.data, prefix);
    p += prefix;
    *p++ = tag;
    tm_put_u16(p, 0);
    p += 2;
    p = tm_put_varint64(p, meta_of(entry->sequence, entry->sequence, entry->kind));
    p = tm_put_varint64(p, entry->key.length - prefix);
    if (entry->key.length > prefix)
        memcpy(p, entry->key.data, entry->key.length);
    p += entry->key.length - prefix;
    if (entry->value.length > 0)
        memcpy(p, entry->value.data, entry->value.length);
    out->length = (size_t)(p - out->data) + entry->value.length;
    return TAMIS_OK;
}

void
tm_block_builder_release(const struct tm_env *env, struct tm_block_builder *builder)
{
    tm_buf_release(env, &builder->raw);
    tm_buf_release(env, &builder->items);
}
