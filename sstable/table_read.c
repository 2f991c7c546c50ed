/* SPDX-License-Identifier: MIT
 *
 * sstable/table_read.c -- open a table file, and find one key in it.
 *
 * Order of opening: footer (is it a table, is it this table?), properties, index, filter. Each is verified before the
 * next is asked for; only a damaged filter does not end the opening (T4).
 */
#include "sstable/table_read.h"

#include <inttypes.h>

#include "filter/hash.h"
#include "sstable/table.h"

/* ---- Opening --------------------------------------------------------------------------------------- */

static tamis_status
read_footer(struct tm_table *table, uint64_t file_bytes, tamis_error *err)
{
    const tamis_fs *fs = table->env->fs;
    uint8_t bytes[TM_FOOTER_BYTES];
    tamis_status status;

    if (file_bytes < TM_FOOTER_BYTES)
        return TM_FAIL(err, TAMIS_CORRUPT,
                       "%s: expected at least the %d bytes of a footer, found %" PRIu64,
                       table->name, TM_FOOTER_BYTES, file_bytes);
    status = fs->read_at(fs->ctx, table->descriptor.file, file_bytes - TM_FOOTER_BYTES, bytes,
                         sizeof bytes, err);
    if (status != TAMIS_OK)
        return status;
    return tm_footer_decode(table->name, file_bytes, bytes, &table->footer, err);
}

/* Searches by another order than that of the keys would miss some of them. */
static tamis_status
check_order(const struct tm_table *table, tamis_error *err)
{
    const struct tm_order *order = &table->env->order;
    bool has_own_order = (table->footer.features_required & TM_FEATURE_ORDER) != 0;

    if (has_own_order == !tm_order_is_bytewise(order))
        return TAMIS_OK;
    return TM_FAIL(err, has_own_order ? TAMIS_UNSUPPORTED : TAMIS_CORRUPT,
                   "%s: expected keys in the order %s, found them in %s", table->name,
                   tm_order_name(order), has_own_order ? "one of their own" : "the bytewise one");
}

/* Is this the file that the manifest means? A sound table in the wrong place is as bad as a broken one. */
static tamis_status
check_identity(const struct tm_table *table, const struct tm_table_identity *identity,
               tamis_error *err)
{
    const struct tm_footer *footer = &table->footer;

    if (footer->file_bytes == identity->file_bytes && footer->unique_id == identity->unique_id &&
        footer->data_id == identity->data_id && footer->table_checksum == identity->checksum)
        return TAMIS_OK;
    return TM_FAIL(err, TAMIS_CORRUPT,
                   "%s: another table in its place: expected %" PRIu64 " bytes, ids %016" PRIx64
                   " %016" PRIx64 ", checksum %016" PRIx64 "; found %" PRIu64 ", %016" PRIx64
                   " %016" PRIx64 ", %016" PRIx64,
                   table->name, identity->file_bytes, identity->unique_id, identity->data_id,
                   identity->checksum, footer->file_bytes, footer->unique_id, footer->data_id,
                   footer->table_checksum);
}

static tamis_status
take_ranges(struct tm_table *table, const struct tm_place *place, tamis_error *err)
{
    size_t count = (size_t)table->properties.range_count;
    struct tm_range *ranges = tm_alloc(table->env, count * sizeof *ranges);
    tamis_status status;

    if (ranges == NULL)
        return TM_NO_MEMORY(err, count * sizeof *ranges);
    status = tm_ranges_decode(place, &table->properties, ranges, err);
    if (status == TAMIS_OK) {
        const struct tm_range_set set = {.count = count, .ranges = ranges};
        void *memory = tm_alloc(table->env, tm_range_set_bytes(count));

        if (memory != NULL)
            table->ranges = tm_range_set_merge(memory, (const struct tm_range_set *[]){&set}, 1);
        else
            status = TM_NO_MEMORY(err, tm_range_set_bytes(count));
    }
    tm_release(table->env, ranges, count * sizeof *ranges);
    return status;
}

static tamis_status
read_properties(struct tm_table *table, tamis_error *err)
{
    const struct tm_footer *footer = &table->footer;
    struct tm_properties *properties = &table->properties;
    struct tm_place place = {table->name, footer->unique_id, footer->properties_offset,
                             TM_BLOCK_PROPERTIES};
    uint64_t checksum;
    tamis_status status;

    status = tm_block_load(table->env, table->descriptor.file, &place, footer->properties_bytes,
                           &table->properties_block, &checksum, err);
    if (status != TAMIS_OK)
        return status;
    if (checksum != footer->properties_checksum)
        return TM_FAIL(err, TAMIS_CORRUPT,
                       "%s: properties at %" PRIu64 ": section checksum expected %016" PRIx64
                       ", found %016" PRIx64,
                       table->name, place.offset, footer->properties_checksum, checksum);
    status =
        tm_properties_decode(&place, &table->env->order, table->properties_block,
                             (footer->features_required & TM_FEATURE_RANGES) != 0, properties, err);
    if (status == TAMIS_OK && properties->range_count != 0)
        status = take_ranges(table, &place, err);
    if (status != TAMIS_OK)
        return status;
    table->facts = (struct tm_table_facts){
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
        .smallest = (uint8_t *)properties->smallest.data,
        .largest = (uint8_t *)properties->largest.data,
        .smallest_length = (uint32_t)properties->smallest.length,
        .largest_length = (uint32_t)properties->largest.length,
    };
    return TAMIS_OK;
}

struct tm_index_place
tm_table_index_place(const struct tm_table *table)
{
    const struct tm_footer *footer = &table->footer;
    struct tm_index_place place = {
        .file = table->name,
        .data_id = footer->data_id,
        .data_bytes = footer->data_bytes,
        .offset = footer->index_offset,
        .bytes = footer->index_bytes,
        .top_bytes = footer->index_top_bytes,
        .checksum = footer->index_checksum,
    };

    return place;
}

static tamis_status
read_index(struct tm_table *table, tamis_error *err)
{
    struct tm_index_place place = tm_table_index_place(table);
    tamis_status status;

    status = tm_index_load(table->env, table->descriptor.file, &place, &table->index, err);
    if (status != TAMIS_OK)
        return status;
    if (table->index.count != table->properties.data_block_count)
        return TM_FAIL(err, TAMIS_CORRUPT,
                       "%s: index at %" PRIu64 ": expected %" PRIu64 " data blocks, found %zu",
                       table->name, place.offset, table->properties.data_block_count,
                       table->index.count);
    return TAMIS_OK;
}

tamis_status
tm_table_load_filter(const struct tm_table *table, tamis_filter *filter_out,
                     tamis_filter_info *info_out, tamis_filter_damage *damage_out,
                     uint8_t **memory_out, size_t *memory_bytes_out, tamis_error *err)
{
    const tamis_fs *fs = table->env->fs;
    const struct tm_footer *footer = &table->footer;
    uint64_t body_bytes = footer->filter_bytes - TAMIS_FILTER_TRAILER_BYTES;
    size_t memory_bytes = (size_t)footer->filter_bytes + TAMIS_FILTER_ALIGN_BYTES;
    uint8_t *memory = NULL;
    const uint8_t *trailer;
    uint8_t *body;
    tamis_status status;

    *filter_out = tamis_filter_always_true();
    memset(info_out, 0, sizeof *info_out);
    info_out->geometry.kind = TAMIS_FILTER_ALWAYS_TRUE;
    *damage_out = TAMIS_FILTER_SOUND;
    *memory_out = NULL;
    *memory_bytes_out = 0;
    if (footer->filter_bytes == 0)
        return TAMIS_OK;

    memory = tm_alloc(table->env, memory_bytes);
    if (memory == NULL)
        return TM_NO_MEMORY(err, memory_bytes);
    body = memory + (-(uintptr_t)memory & (TAMIS_FILTER_ALIGN_BYTES - 1));
    trailer = body + body_bytes;
    status = fs->read_at(fs->ctx, table->descriptor.file, footer->filter_offset, body,
                         (size_t)footer->filter_bytes, err);
    if (status != TAMIS_OK)
        goto out;
    *damage_out = tamis_filter_open(body, body_bytes, trailer,
                                    tm_place_seed(footer->unique_id, footer->filter_offset),
                                    filter_out, info_out);
    // Sound in itself is not enough: it must be the one that this footer means, for exactly these keys.
    if (*damage_out == TAMIS_FILTER_SOUND &&
        tm_filter_section_checksum(trailer) != footer->filter_checksum)
        *damage_out = TAMIS_FILTER_BAD_TRAILER_CHECKSUM;
    if (*damage_out == TAMIS_FILTER_SOUND && filter_out->kind != TAMIS_FILTER_ALWAYS_TRUE &&
        (info_out->geometry.key_count != table->properties.key_count ||
         info_out->hash_seed != table->properties.hash_seed))
        *damage_out = TAMIS_FILTER_BAD_FIELD;
    if (*damage_out != TAMIS_FILTER_SOUND) { // T4
        *filter_out = tamis_filter_always_true();
        memset(info_out, 0, sizeof *info_out);
        info_out->geometry.kind = TAMIS_FILTER_ALWAYS_TRUE;
    }
    if (filter_out->kind != TAMIS_FILTER_ALWAYS_TRUE) {
        *memory_out = memory;
        *memory_bytes_out = memory_bytes;
        memory = NULL;
    }

out:
    tm_release(table->env, memory, memory_bytes);
    return status;
}

/* All that stays in memory, from the file, which is open. */
static tamis_status
read_table(struct tm_table *table, const struct tm_table_identity *identity, tamis_error *err)
{
    uint64_t file_bytes = table->descriptor.file_bytes;
    tamis_status status;

    if (identity != NULL && file_bytes != identity->file_bytes)
        return TM_FAIL(err, TAMIS_CORRUPT,
                       "%s: expected a table of %" PRIu64 " bytes (id %016" PRIx64
                       "), found a file of %" PRIu64,
                       table->name, identity->file_bytes, identity->unique_id, file_bytes);
    status = read_footer(table, file_bytes, err);
    if (status == TAMIS_OK)
        status = check_order(table, err);
    if (status == TAMIS_OK && identity != NULL)
        status = check_identity(table, identity, err);
    if (status == TAMIS_OK)
        status = read_properties(table, err);
    if (status == TAMIS_OK)
        status = read_index(table, err);
    if (status == TAMIS_OK)
        status =
            tm_table_load_filter(table, &table->filter, &table->filter_info, &table->filter_damage,
                                 &table->filter_memory, &table->filter_memory_bytes, err);
    return status;
}

tamis_status
tm_table_open(const struct tm_env *env, tamis_dir *dir, const char *name,
              const struct tm_table_identity *identity, struct tm_cache *cache,
              struct tm_descriptors *descriptors, struct tm_table **table_out, tamis_error *err)
{
    struct tm_table *table;
    tamis_file *file;
    tamis_status status;

    table = tm_alloc_zeroed(env, sizeof *table);
    if (table == NULL)
        return TM_NO_MEMORY(err, sizeof *table);
    table->env = env;
    table->cache = cache;
    table->name_bytes = strlen(name) + 1;
    table->name = tm_alloc(env, table->name_bytes);
    if (table->name == NULL) {
        status = TM_NO_MEMORY(err, table->name_bytes);
        goto out;
    }
    memcpy(table->name, name, table->name_bytes);
    tm_descriptor_init(&table->descriptor, env, descriptors, dir, table->name);

    status = tm_descriptor_acquire(&table->descriptor, &file, err);
    if (status != TAMIS_OK)
        goto out;
    status = read_table(table, identity, err);
    tm_descriptor_release(&table->descriptor);
    if (status != TAMIS_OK)
        goto out;
    *table_out = table;
    table = NULL;

out:
    tm_table_close(table);
    return status;
}

void
tm_table_close(struct tm_table *table)
{
    const struct tm_env *env;

    if (table == NULL)
        return;
    env = table->env;
    if (table->name != NULL)
        tm_descriptor_close(&table->descriptor);
    tm_block_unref(table->properties_block);
    if (table->ranges != NULL)
        tm_release(env, table->ranges, tm_range_set_bytes(table->ranges->count));
    tm_index_release(env, &table->index);
    tm_release(env, table->filter_memory, table->filter_memory_bytes);
    tm_release(env, table->name, table->name_bytes);
    tm_release(env, table, sizeof *table);
}

/* ---- Facts ----------------------------------------------------------------------------------------- */

const tamis_filter *
tm_table_filter(const struct tm_table *table)
{
    return &table->filter;
}

const tamis_filter_info *
tm_table_filter_info(const struct tm_table *table)
{
    return &table->filter_info;
}

tamis_filter_damage
tm_table_filter_damage(const struct tm_table *table)
{
    return table->filter_damage;
}

const struct tm_range_set *
tm_table_ranges(const struct tm_table *table)
{
    return table->ranges;
}

uint64_t
tm_table_hash_seed(const struct tm_table *table)
{
    return table->properties.hash_seed;
}

const struct tm_table_facts *
tm_table_facts(const struct tm_table *table)
{
    return &table->facts;
}

uint64_t
tm_table_index_bytes(const struct tm_table *table)
{
    return sizeof *table + table->name_bytes + table->index.memory_bytes +
           sizeof *table->properties_block + table->properties_block->allocated +
           (table->ranges != NULL ? tm_range_set_bytes(table->ranges->count) : 0);
}

size_t
tm_table_block_count(const struct tm_table *table)
{
    return table->index.count;
}

tamis_status
tm_table_separator(const struct tm_table *table, size_t number, struct tm_buf *out,
                   tamis_error *err)
{
    const tamis_slice *prefix = &table->index.prefix;
    tamis_slice rest = tm_index_separator_rest(&table->index, number);
    tamis_status status;

    out->length = 0;
    status = tm_buf_append(table->env, out, prefix->data, prefix->length, err);
    if (status == TAMIS_OK)
        status = tm_buf_append(table->env, out, rest.data, rest.length, err);
    return status;
}

uint64_t
tm_table_filter_bytes(const struct tm_table *table)
{
    return table->filter_memory_bytes;
}

uint64_t
tm_table_approximate_offset(const struct tm_table *table, tamis_slice key)
{
    uint64_t file_bytes = table->footer.file_bytes;
    uint64_t data_bytes = table->footer.data_bytes;
    const struct tm_order *order = &table->env->order;

    if (tm_order_compare(order, key, table->properties.smallest) <= 0)
        return 0;
    if (tm_order_compare(order, key, table->properties.largest) > 0)
        return file_bytes;
    return (uint64_t)((double)table->index.offsets[tm_index_find(&table->index, key)] /
                      (double)data_bytes * (double)file_bytes);
}

/* ---- Searching ------------------------------------------------------------------------------------- */

static tamis_status
read_block(struct tm_table *table, const struct tm_place *place, uint64_t stored_bytes,
           struct tm_block **block_out, tamis_error *err)
{
    tamis_file *file;
    tamis_status status = tm_descriptor_acquire(&table->descriptor, &file, err);

    if (status != TAMIS_OK)
        return status;
    status = tm_block_load(table->env, file, place, stored_bytes, block_out, NULL, err);
    tm_descriptor_release(&table->descriptor);
    return status;
}

tamis_status
tm_table_load_block(struct tm_table *table, size_t number, bool fill_cache,
                    struct tm_read_ahead *ahead, struct tm_block **block_out,
                    struct tm_block_view *view, tamis_error *err)
{
    uint64_t offset = table->index.offsets[number];
    uint64_t stored_bytes = table->index.offsets[number + 1] - offset;
    struct tm_place place = {table->name, table->footer.data_id, offset, TM_BLOCK_DATA};
    struct tm_block *block = NULL;
    bool cached = false;
    tamis_status status;

    if (table->cache != NULL) {
        block = tm_cache_get(table->cache, table->footer.data_id, offset);
        cached = block != NULL;
    }
    if (block == NULL) {
        const uint8_t *stored = ahead != NULL ? tm_read_ahead_get(ahead, table, number) : NULL;

        status = stored != NULL
                     ? tm_block_take(table->env, &place, stored, stored_bytes, &block, err)
                     : read_block(table, &place, stored_bytes, &block, err);
        if (status != TAMIS_OK)
            return status;
    }
    status = tm_block_view_init(view, block, table->name, offset, err);
    if (status != TAMIS_OK) {
        tm_block_unref(block);
        return status;
    }
    if (!cached && fill_cache && table->cache != NULL)
        tm_cache_put(table->cache, table->footer.data_id, offset, block);
    *block_out = block;
    return TAMIS_OK;
}

size_t
tm_table_prefetch_place(const struct tm_table *table, tamis_slice key)
{
    size_t number = tm_index_find(&table->index, key);

    if (table->cache != NULL && number < table->index.count)
        tm_cache_prefetch_place(table->cache, table->footer.data_id, table->index.offsets[number]);
    return number;
}

void
tm_table_prefetch_block(const struct tm_table *table, size_t number)
{
    if (table->cache != NULL && number < table->index.count)
        tm_cache_prefetch_block(table->cache, table->footer.data_id, table->index.offsets[number]);
}

/* READ PATH 6/8   from the candidates whose filter said "maybe" (engine/read.c)
 *                 next tm_block_search (sstable/block_read.c) */
tamis_status
tm_table_search(struct tm_table *table, tamis_slice key, uint64_t hash, uint64_t sequence,
                struct tm_found *found, tamis_error *err)
{
    size_t number = tm_index_find(&table->index, key);
    struct tm_block *block;
    struct tm_block_view view;
    struct tm_block_entry entry;
    enum tm_block_verdict verdict;
    tamis_status status;

    *found = (struct tm_found){.lookup = TM_ABSENT};
    // More than one round only where versions of one key span blocks: each round takes the next block.
    for (; number < table->index.count; number++) {
        status = tm_table_load_block(table, number, true, NULL, &block, &view, err);
        if (status != TAMIS_OK)
            return status;
        status =
            tm_block_search(&view, &table->env->order, key, hash, sequence, &entry, &verdict, err);
        found->key_present |= status == TAMIS_OK && verdict != TM_BLOCK_ABSENT;
        if (status == TAMIS_OK && verdict == TM_BLOCK_HIT) {
            found->sequence = entry.sequence;
            if (entry.kind == TM_KIND_DELETE) {
                found->lookup = TM_DELETED; // shadows older places: the caller stops here
                break;
            }
            found->lookup = TM_FOUND;
            found->value = entry.value;
            found->block = block; // the reference goes to the caller
            return TAMIS_OK;
        }
        // Older versions can only follow if the block is bounded by the key itself (I1).
        if (status != TAMIS_OK || verdict != TM_BLOCK_GO_ON ||
            !tm_index_separator_is(&table->index, number, key))
            break;
        tm_block_unref(block);
    }
    if (number < table->index.count)
        tm_block_unref(block);
    else
        status = TAMIS_OK;
    return status;
}
