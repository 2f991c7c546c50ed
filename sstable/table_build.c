/* SPDX-License-Identifier: MIT
 *
 * sstable/table_build.c -- write one table file, front to back.
 *
 *   add()     entry -> block in the making -> sealed block -> out -> file
 *                |          separator, length -> index builder (memory)
 *                |          checksum -> list (memory)
 *                `- hash of each distinct key -> list (memory)
 *   finish()  index, filter, properties, footer; seal
 *
 * Memory  8 bytes a distinct key, 8 a block, the separators, and a few buffers as large as the largest block.
 * Not here: block layout (block_build.c), index layout (index.c), footer and properties (table_meta.c).
 */
#include "sstable/table_build.h"

#include <math.h>

#include "filter/bytes.h"
#include "filter/hash.h"
#include "sstable/block_build.h"
#include "sstable/index.h"
#include "sstable/table_meta.h"

// Handed to the file system in pieces of this size: a write costs about a microsecond, so that 256 KiB make it
// vanish, and still fit the second-level cache together with what is being built.
enum { OUT_BYTES = 256 * 1024 };
// Buffers that one huge entry has grown beyond this are given back after it.
enum { KEEP_BYTES_MAX = 32 * 1024 * 1024 };

struct tm_table_builder {
    const struct tm_env *env;
    tamis_dir *dir;
    tamis_file *file;
    char *name;
    size_t name_bytes;
    struct tm_table_options options;
    uint64_t unique_id;
    uint64_t data_id;

    struct tm_block_builder block; // entries not yet laid out
    struct tm_buf unpacked;        // one block, laid out
    struct tm_buf packed;          // one block, compressed
    struct tm_buf out;             // sealed bytes not yet handed to the file system
    uint64_t offset;               // sealed bytes so far: where the next block will stand

    struct tm_index_builder index;
    struct tm_buf separator;
    uint64_t
        separator_due; // stored length of the last block while its separator is undecided; 0: none
    struct tm_buf checksums; // of data blocks, 8 bytes each, little-endian
    struct tm_buf hashes;    // u64 each, of distinct user keys; empty without a filter

    struct tm_buf smallest; // key
    struct tm_buf last_key;
    uint64_t last_sequence;
    struct tm_buf ranges;            // encoded
    struct tm_buf ranges_first;      // where the first one begins
    struct tm_buf ranges_furthest;   // where the one that reaches furthest ends
    struct tm_properties properties; // counts so far
};

/* ---- Life ------------------------------------------------------------------------------------------ */

static void
free_builder(struct tm_table_builder *builder)
{
    const struct tm_env *env = builder->env;

    tm_block_builder_release(env, &builder->block);
    tm_buf_release(env, &builder->unpacked);
    tm_buf_release(env, &builder->packed);
    tm_buf_release(env, &builder->out);
    tm_index_builder_release(env, &builder->index);
    tm_buf_release(env, &builder->separator);
    tm_buf_release(env, &builder->checksums);
    tm_buf_release(env, &builder->hashes);
    tm_buf_release(env, &builder->smallest);
    tm_buf_release(env, &builder->last_key);
    tm_buf_release(env, &builder->ranges);
    tm_buf_release(env, &builder->ranges_first);
    tm_buf_release(env, &builder->ranges_furthest);
    tm_release(env, builder->name, builder->name_bytes);
    tm_release(env, builder, sizeof *builder);
}

static bool
wants_filter(const struct tm_table_options *options)
{
    return options->filter_bits_per_key > 0 || options->filter_false_positive_rate > 0;
}

tamis_status
tm_table_builder_create(const struct tm_env *env, tamis_dir *dir, const char *name,
                        const struct tm_table_options *options,
                        struct tm_table_builder **builder_out, tamis_error *err)
{
    struct tm_table_builder *builder;
    tamis_status status;
    uint8_t random[16];
    int os_error;

    builder = tm_alloc_zeroed(env, sizeof *builder);
    if (builder == NULL)
        return TM_NO_MEMORY(err, sizeof *builder);
    builder->env = env;
    builder->dir = dir;
    builder->options = *options;
    builder->block.whole_keys = !tm_order_is_bytewise(&env->order);
    if (tm_order_merges_keys(&env->order)) // equal keys have unequal hashes
        builder->options.filter_bits_per_key = builder->options.filter_false_positive_rate = 0;
    builder->name_bytes = strlen(name) + 1;
    builder->name = tm_alloc(env, builder->name_bytes);
    if (builder->name == NULL) {
        status = TM_NO_MEMORY(err, builder->name_bytes);
        goto out;
    }
    memcpy(builder->name, name, builder->name_bytes);
    status = tm_buf_reserve(env, &builder->out, OUT_BYTES, err);
    if (status != TAMIS_OK)
        goto out;
    os_error = env->runtime->random(env->runtime->ctx, random, sizeof random);
    if (os_error != 0) {
        status = TM_FAIL_OS(err, TAMIS_IO, os_error, "%s: no random bytes for its identity", name);
        goto out;
    }
    builder->unique_id = tm_get_u64(random);
    builder->data_id = tm_get_u64(random + 8);
    builder->properties = (struct tm_properties){
        .hash_id = TM_HASH_ID_XXH3_64,
        .filter_kind = (uint8_t)options->filter_kind,
        .compress = options->compress,
        .block_bytes = options->block_bytes,
        .filter_millibits = builder->options.filter_false_positive_rate > 0
                                ? 0
                                : (uint32_t)lrint(builder->options.filter_bits_per_key * 1000),
        .filter_rate_ppb = (uint32_t)llrint(builder->options.filter_false_positive_rate * 1e9),
        .hash_seed = options->hash_seed,
        .sequence_min = UINT64_MAX,
    };
    status = env->fs->create(env->fs->ctx, dir, name, TAMIS_FILE_TABLE, &builder->file, err);
    if (status != TAMIS_OK)
        goto out;
    *builder_out = builder;
    builder = NULL;

out:
    if (builder != NULL)
        free_builder(builder);
    return status;
}

/* Close and remove the file. The first failure is what the caller reports; these can add nothing to it. */
static void
discard_file(struct tm_table_builder *builder)
{
    const tamis_fs *fs = builder->env->fs;

    if (builder->file != NULL)
        (void)fs->close(fs->ctx, builder->file, NULL);
    builder->file = NULL;
    (void)fs->remove(fs->ctx, builder->dir, builder->name, NULL);
}

void
tm_table_builder_abandon(struct tm_table_builder *builder)
{
    if (builder == NULL)
        return;
    discard_file(builder);
    free_builder(builder);
}

/* ---- Bytes to the file ----------------------------------------------------------------------------- */

static tamis_status
flush_out(struct tm_table_builder *builder, tamis_slice more, tamis_error *err)
{
    const tamis_fs *fs = builder->env->fs;
    tamis_slice pieces[2] = {tm_slice(builder->out.data, builder->out.length), more};
    tamis_status status;

    if (pieces[0].length + more.length == 0)
        return TAMIS_OK;
    status = fs->append(fs->ctx, builder->file, pieces, more.length > 0 ? 2 : 1, err);
    builder->out.length = 0;
    return status;
}

static tamis_status
emit(struct tm_table_builder *builder, tamis_slice bytes, tamis_error *err)
{
    builder->offset += bytes.length;
    if (bytes.length > builder->out.capacity - builder->out.length)
        return flush_out(builder, bytes, err);
    return tm_buf_append(builder->env, &builder->out, bytes.data, bytes.length, err);
}

static void
trim(const struct tm_env *env, struct tm_buf *buf)
{
    if (buf->capacity > KEEP_BYTES_MAX)
        tm_buf_release(env, buf);
}

/* Seal builder->unpacked as the next data block. */
static tamis_status
emit_data_block(struct tm_table_builder *builder, tamis_error *err)
{
    const struct tm_env *env = builder->env;
    struct tm_place place = {builder->name, builder->data_id, builder->offset, TM_BLOCK_DATA};
    tamis_slice stored;
    uint64_t checksum;
    uint8_t bytes[8];
    tamis_status status;

    assert(builder->separator_due == 0);
    builder->properties.unpacked_bytes += builder->unpacked.length;
    builder->properties.data_block_count++;
    status = tm_block_seal(env, &place, &builder->unpacked, &builder->packed,
                           builder->options.compress, &stored, &checksum, err);
    if (status != TAMIS_OK)
        return status;
    tm_put_u64(bytes, checksum);
    status = tm_buf_append(env, &builder->checksums, bytes, sizeof bytes, err);
    if (status != TAMIS_OK)
        return status;
    status = emit(builder, stored, err);
    builder->separator_due = stored.length;
    trim(env, &builder->unpacked);
    trim(env, &builder->packed);
    trim(env, &builder->block.raw);
    return status;
}

static tamis_status
finish_block(struct tm_table_builder *builder, tamis_error *err)
{
    tamis_status status;

    status = tm_block_builder_finish(builder->env, &builder->block, &builder->unpacked, err);
    if (status != TAMIS_OK)
        return status;
    return emit_data_block(builder, err);
}

/* ---- Entries --------------------------------------------------------------------------------------- */

static tamis_slice
buf_slice(const struct tm_buf *buf)
{
    return tm_slice(buf->data, buf->length);
}

static tamis_slice
last_key(const struct tm_table_builder *builder)
{
    return buf_slice(&builder->last_key);
}

static tamis_status
assign(const struct tm_env *env, struct tm_buf *buf, tamis_slice bytes, tamis_error *err)
{
    buf->length = 0;
    return tm_buf_append(env, buf, bytes.data, bytes.length, err);
}

/* Count a key that differs from the one before it. */
static tamis_status
note_key(struct tm_table_builder *builder, tamis_slice key, uint64_t hash, tamis_error *err)
{
    tamis_status status = TAMIS_OK;

    if (wants_filter(&builder->options))
        status = tm_buf_append(builder->env, &builder->hashes, &hash, sizeof hash, err);
    if (status == TAMIS_OK && builder->properties.key_count == 0)
        status = assign(builder->env, &builder->smallest, key, err);
    builder->properties.key_count++;
    return status;
}

static void
note_sequence(struct tm_properties *properties, uint64_t sequence)
{
    if (sequence < properties->sequence_min)
        properties->sequence_min = sequence;
    if (sequence > properties->sequence_max)
        properties->sequence_max = sequence;
}

/* The block before is complete, and the first key after it known: decide what separates them. */
static tamis_status
settle_separator(struct tm_table_builder *builder, tamis_slice next, tamis_error *err)
{
    uint64_t stored_bytes = builder->separator_due;
    tamis_status status;

    status = tm_index_separator(builder->env, last_key(builder), next, &builder->separator, err);
    if (status != TAMIS_OK)
        return status;
    builder->separator_due = 0;
    return tm_index_builder_add(builder->env, &builder->index,
                                tm_slice(builder->separator.data, builder->separator.length),
                                stored_bytes, err);
}

tamis_status
tm_table_builder_add(struct tm_table_builder *builder, const struct tm_entry *entry,
                     tamis_error *err)
{
    const struct tm_env *env = builder->env;
    struct tm_properties *properties = &builder->properties;
    size_t block_bytes = builder->options.block_bytes;
    uint64_t hash = tm_hash64(entry->key.data, entry->key.length, builder->options.hash_seed);
    uint8_t tag = tm_order_merges_keys(&env->order) ? 0 : tm_tag_of_hash(hash);
    int order = 1; // of this key and the last one
    tamis_status status;

    assert(entry->key.length <= TAMIS_KEY_BYTES_MAX && entry->sequence <= TM_SEQUENCE_MAX &&
           entry->value.length <= TAMIS_VALUE_BYTES_MAX);
    assert(entry->kind == TM_KIND_PUT ||
           (entry->kind == TM_KIND_DELETE && entry->value.length == 0));
    if (properties->entry_count > 0) {
        order = tm_order_compare(&env->order, entry->key, last_key(builder));
        assert(order > 0 || (order == 0 && entry->sequence < builder->last_sequence));
    }

    if (builder->block.count > 0 && tm_block_builder_bytes(&builder->block, entry) > block_bytes) {
        status = finish_block(builder, err);
        if (status != TAMIS_OK)
            return status;
    }
    if (builder->separator_due > 0) {
        status = settle_separator(builder, entry->key, err);
        if (status != TAMIS_OK)
            return status;
    }
    if (order > 0) {
        status = note_key(builder, entry->key, hash, err);
        if (status != TAMIS_OK)
            return status;
        status = assign(env, &builder->last_key, entry->key, err);
        if (status != TAMIS_OK)
            return status;
    }
    builder->last_sequence = entry->sequence;
    note_sequence(properties, entry->sequence);
    properties->entry_count++;
    properties->tombstone_count += entry->kind == TM_KIND_DELETE;
    properties->key_bytes += entry->key.length;
    properties->value_bytes += entry->value.length;

    if (builder->block.count == 0 && entry->key.length + entry->value.length >= block_bytes) {
        status = tm_block_build_single(env, entry, tag, &builder->unpacked, err);
        if (status != TAMIS_OK)
            return status;
        return emit_data_block(builder, err);
    }
    return tm_block_builder_add(env, &builder->block, entry, tag, err);
}

tamis_status
tm_table_builder_add_range(struct tm_table_builder *builder, const struct tm_range *range,
                           tamis_error *err)
{
    struct tm_properties *properties = &builder->properties;
    tamis_status status = TAMIS_OK;

    assert(tm_slice_compare(range->from, range->to) < 0);
    if (properties->range_count == 0)
        status = assign(builder->env, &builder->ranges_first, range->from, err);
    if (status == TAMIS_OK &&
        (properties->range_count == 0 ||
         tm_slice_compare(range->to, buf_slice(&builder->ranges_furthest)) > 0))
        status = assign(builder->env, &builder->ranges_furthest, range->to, err);
    if (status == TAMIS_OK)
        status = tm_range_encode(builder->env, range, &builder->ranges, err);
    if (status != TAMIS_OK)
        return status;
    properties->range_count++;
    note_sequence(properties, range->sequence);
    return TAMIS_OK;
}

uint64_t
tm_table_builder_bytes(const struct tm_table_builder *builder)
{
    uint64_t bytes = builder->offset;

    if (builder->block.count > 0)
        bytes += tm_block_builder_bytes(&builder->block, NULL) + TM_TRAILER_BYTES;
    return bytes;
}

uint64_t
tm_table_builder_entries(const struct tm_table_builder *builder)
{
    return builder->properties.entry_count;
}

/* ---- The end of the file --------------------------------------------------------------------------- */

static tamis_status
write_index(struct tm_table_builder *builder, struct tm_footer *footer, tamis_error *err)
{
    struct tm_buf section = {0};
    tamis_status status;

    footer->data_bytes = footer->index_offset = builder->offset;
    footer->data_checksum = tm_hash64(builder->checksums.data, builder->checksums.length, 0);
    status = tm_index_builder_finish(builder->env, &builder->index, builder->data_id,
                                     builder->offset, builder->options.compress, &section,
                                     &footer->index_top_bytes, &footer->index_checksum, err);
    if (status == TAMIS_OK) {
        footer->index_bytes = section.length;
        status = emit(builder, tm_slice(section.data, section.length), err);
    }
    tm_buf_release(builder->env, &section);
    return status;
}

/* Zeros up to the alignment, body, trailer. No bytes at all if no filter is wanted. */
static tamis_status
write_filter(struct tm_table_builder *builder, struct tm_footer *footer, tamis_error *err)
{
    static const uint8_t zeros[TAMIS_FILTER_ALIGN_BYTES];
    const struct tm_env *env = builder->env;
    const struct tm_table_options *options = &builder->options;
    const struct tm_properties *properties = &builder->properties;
    uint64_t offset = tm_filter_offset_after(builder->offset);
    double rate = options->filter_false_positive_rate;
    double bits = options->filter_bits_per_key;
    tamis_filter_geometry geometry;
    uint8_t trailer[TAMIS_FILTER_TRAILER_BYTES];
    uint8_t *memory = NULL;
    uint8_t *body;
    size_t memory_bytes;
    uint64_t body_bytes;
    tamis_status status;

    if (!wants_filter(options))
        return TAMIS_OK;
    if (rate > 0)
        bits = tamis_theory_bits_for_rate(options->filter_kind, properties->key_count, rate);
    if (!tamis_filter_plan(options->filter_kind, properties->key_count, bits, &geometry))
        return TM_FAIL(err, TAMIS_INVALID,
                       "%s: no filter of kind %d can be planned for %g bits per key", builder->name,
                       (int)options->filter_kind, bits);
    if (geometry.kind == TAMIS_FILTER_ALWAYS_TRUE)
        return TAMIS_OK; // fewer than half a thousandth of a bit, or a rate that needs none
    if (rate <= 0)
        rate = tamis_theory_false_positive_rate(&geometry);

    memory_bytes = (size_t)geometry.body_bytes + TAMIS_FILTER_ALIGN_BYTES;
    memory = tm_alloc(env, memory_bytes);
    if (memory == NULL)
        return TM_NO_MEMORY(err, memory_bytes);
    body = memory + (-(uintptr_t)memory & (TAMIS_FILTER_ALIGN_BYTES - 1));
    body_bytes = geometry.body_bytes;
    // A filter that denies one of its own keys is replaced by a trailer that says "maybe" to everything.
    if (!tamis_filter_build(&geometry, (uint64_t *)builder->hashes.data, options->hash_seed,
                            options->filter_false_positive_rate > 0 ? 0 : bits, rate,
                            tm_place_seed(builder->unique_id, offset), body, trailer))
        body_bytes = 0;
    footer->filter_offset = offset;
    footer->filter_bytes = body_bytes + TAMIS_FILTER_TRAILER_BYTES;
    footer->filter_checksum = tm_filter_section_checksum(trailer);
    status = emit(builder, tm_slice(zeros, (size_t)(offset - builder->offset)), err);
    if (status == TAMIS_OK)
        status = emit(builder, tm_slice(body, (size_t)body_bytes), err);
    if (status == TAMIS_OK)
        status = emit(builder, tm_slice(trailer, sizeof trailer), err);
    tm_release(env, memory, memory_bytes);
    return status;
}

/* What the table reaches over: its keys and its ranges. */
static void
set_bounds(struct tm_table_builder *builder)
{
    struct tm_properties *properties = &builder->properties;
    tamis_slice first = buf_slice(&builder->ranges_first);
    tamis_slice furthest = tm_range_reach(buf_slice(&builder->ranges_furthest));

    properties->smallest = buf_slice(&builder->smallest);
    properties->largest = last_key(builder);
    if (properties->range_count == 0)
        return;
    if (tm_slice_compare(first, properties->smallest) < 0)
        properties->smallest = first;
    if (tm_slice_compare(furthest, properties->largest) > 0)
        properties->largest = furthest;
}

static tamis_status
write_properties(struct tm_table_builder *builder, struct tm_footer *footer, tamis_error *err)
{
    struct tm_place place = {builder->name, builder->unique_id, builder->offset,
                             TM_BLOCK_PROPERTIES};
    tamis_slice stored;
    tamis_status status;

    set_bounds(builder);
    builder->properties.ranges = buf_slice(&builder->ranges);
    builder->unpacked.length = 0;
    status = tm_properties_encode(builder->env, &builder->properties, &builder->unpacked, err);
    if (status != TAMIS_OK)
        return status;
    status = tm_block_seal(builder->env, &place, &builder->unpacked, &builder->packed, false,
                           &stored, &footer->properties_checksum, err);
    if (status != TAMIS_OK)
        return status;
    footer->properties_offset = builder->offset;
    footer->properties_bytes = stored.length;
    return emit(builder, stored, err);
}

static tamis_status
write_footer(struct tm_table_builder *builder, struct tm_footer *footer, tamis_error *err)
{
    uint8_t bytes[TM_FOOTER_BYTES];
    tamis_status status;

    footer->features_required = (builder->properties.range_count != 0 ? TM_FEATURE_RANGES : 0) |
                                (tm_order_is_bytewise(&builder->env->order) ? 0 : TM_FEATURE_ORDER);
    footer->unique_id = builder->unique_id;
    footer->data_id = builder->data_id;
    footer->file_bytes = builder->offset + TM_FOOTER_BYTES;
    tm_footer_encode(footer, bytes);
    status = emit(builder, tm_slice(bytes, sizeof bytes), err);
    if (status != TAMIS_OK)
        return status;
    return flush_out(builder, tm_slice(NULL, 0), err);
}

static uint8_t *
copy_of(const struct tm_env *env, tamis_slice bytes)
{
    uint8_t *copy = tm_alloc(env, bytes.length);

    if (copy != NULL && bytes.length > 0)
        memcpy(copy, bytes.data, bytes.length);
    return copy;
}

/* The facts, with copies of the two keys. */
static tamis_status
take_facts(struct tm_table_builder *builder, const struct tm_footer *footer,
           struct tm_table_facts *facts, tamis_error *err)
{
    const struct tm_env *env = builder->env;
    const struct tm_properties *properties = &builder->properties;
    uint8_t *smallest = copy_of(env, properties->smallest);
    uint8_t *largest = copy_of(env, properties->largest);

    if (smallest == NULL || largest == NULL) {
        tm_release(env, smallest, properties->smallest.length);
        tm_release(env, largest, properties->largest.length);
        return TM_NO_MEMORY(err, properties->smallest.length + properties->largest.length);
    }
    *facts = (struct tm_table_facts){
        .file_bytes = footer->file_bytes,
        .unique_id = footer->unique_id,
        .data_id = footer->data_id,
        .checksum = footer->table_checksum,
        .entry_count = properties->entry_count,
        .key_count = properties->key_count,
        .tombstone_count = properties->tombstone_count,
        .sequence_min = properties->sequence_min,
        .sequence_max = properties->sequence_max,
        .raw_bytes = properties->key_bytes + properties->value_bytes,
        .filter_bytes = footer->filter_bytes,
        .range_count = properties->range_count,
        .smallest = smallest,
        .largest = largest,
        .smallest_length = (uint32_t)properties->smallest.length,
        .largest_length = (uint32_t)properties->largest.length,
    };
    return TAMIS_OK;
}

void
tm_table_facts_release(const struct tm_env *env, struct tm_table_facts *facts)
{
    tm_release(env, facts->smallest, facts->smallest_length);
    tm_release(env, facts->largest, facts->largest_length);
    facts->smallest = NULL;
    facts->largest = NULL;
}

tamis_status
tm_table_builder_finish(struct tm_table_builder *builder, struct tm_table_facts *facts_out,
                        tamis_error *err)
{
    const struct tm_env *env = builder->env;
    struct tm_footer footer = {0};
    struct tm_table_facts facts = {0};
    tamis_file *file;
    tamis_status status = TAMIS_OK;

    assert(builder->properties.entry_count > 0);
    if (builder->block.count > 0)
        status = finish_block(builder, err);
    if (status == TAMIS_OK) // nothing follows the last block: its largest key bounds it
        status = settle_separator(builder, last_key(builder), err);
    if (status == TAMIS_OK)
        status = write_index(builder, &footer, err);
    if (status == TAMIS_OK)
        status = write_filter(builder, &footer, err);
    if (status == TAMIS_OK)
        status = write_properties(builder, &footer, err);
    if (status == TAMIS_OK)
        status = write_footer(builder, &footer, err);
    if (status == TAMIS_OK)
        status = take_facts(builder, &footer, &facts, err);
    if (status == TAMIS_OK)
        status = env->fs->seal(env->fs->ctx, builder->file, err);
    if (status == TAMIS_OK) {
        file = builder->file;
        builder->file = NULL;
        status = env->fs->close(env->fs->ctx, file, err);
    }
    if (status == TAMIS_OK) {
        *facts_out = facts;
        free_builder(builder);
        return TAMIS_OK;
    }
    tm_table_facts_release(env, &facts);
    tm_table_builder_abandon(builder);
    return status;
}
