/* SPDX-License-Identifier: MIT
 *
 * sstable/table_verify.c -- read a whole table from the file, past the cache, and compare everything with everything.
 *
 *     footer, properties again   as they were opened
 *     index section again        its checksum; as many data blocks as the properties say
 *     padding                    zeros
 *     data blocks, in order      checksum, layout, order of entries, tags, separators; the list of checksums
 *     what was counted           entries, keys, tombstones, bytes, sequences, smallest and largest key, with the ranges
 *     filter again               sound, of exactly these keys, and "maybe" to every one of them
 *
 * Not here: how bytes are checked one by one (codec.c, block_read.c, index.c, filter/).
 */
#include <inttypes.h>

#include "filter/bytes.h"
#include "filter/hash.h"
#include "sstable/table.h"

struct verification {
    struct tm_table *table;
    struct tm_buf key; // of the entry before, then of the one at hand
    struct tm_buf previous;
    struct tm_buf first;     // key
    struct tm_buf checksums; // of data blocks
    uint64_t previous_sequence;
    uint64_t block_offset;
    tamis_filter filter; // read anew
    struct tm_properties counted;
};

static tamis_status
wrong_count(const struct verification *verification, const char *what, uint64_t expected,
            uint64_t found, tamis_error *err)
{
    if (expected == found)
        return TAMIS_OK;
    return TM_FAIL(err, TAMIS_CORRUPT, "%s: %s: expected %" PRIu64 ", found %" PRIu64,
                   verification->table->name, what, expected, found);
}

static tamis_status
wrong_entry(const struct verification *verification, uint32_t index, const char *what,
            tamis_error *err)
{
    return TM_FAIL(err, TAMIS_CORRUPT, "%s: data block at %" PRIu64 ": entry %" PRIu32 ": %s",
                   verification->table->name, verification->block_offset, index, what);
}

/* Order against the entry before, and what both share in the counts. */
static tamis_status
check_order(struct verification *verification, uint32_t index, uint64_t sequence, bool *new_key,
            tamis_error *err)
{
    int order;

    *new_key = true;
    if (verification->counted.entry_count == 0)
        return TAMIS_OK;
    order = tm_order_compare(&verification->table->env->order,
                             tm_slice(verification->key.data, verification->key.length),
                             tm_slice(verification->previous.data, verification->previous.length));
    *new_key = order > 0;
    if (order < 0 || (order == 0 && sequence >= verification->previous_sequence))
        return wrong_entry(verification, index, "expected ascending order, found a smaller one",
                           err);
    return TAMIS_OK;
}

static void
count_entry(struct verification *verification, const struct tm_block_entry *entry, bool new_key)
{
    struct tm_properties *counted = &verification->counted;

    counted->entry_count++;
    counted->key_count += new_key;
    counted->tombstone_count += entry->kind == TM_KIND_DELETE;
    counted->key_bytes += verification->key.length;
    counted->value_bytes += entry->value.length;
    if (entry->sequence < counted->sequence_min)
        counted->sequence_min = entry->sequence;
    if (entry->sequence > counted->sequence_max)
        counted->sequence_max = entry->sequence;
}

static tamis_status
check_entry(struct verification *verification, const struct tm_block_view *view, uint32_t index,
            size_t number, tamis_error *err)
{
    struct tm_table *table = verification->table;
    const struct tm_env *env = table->env;
    struct tm_block_entry entry;
    struct tm_buf swap;
    tamis_slice key;
    uint64_t hash;
    bool new_key;
    tamis_status status;

    status = tm_block_entry_at(view, index, &entry, err);
    if (status != TAMIS_OK)
        return status;
    verification->key.length = 0;
    status = tm_buf_append(env, &verification->key, view->prefix, view->prefix_length, err);
    if (status == TAMIS_OK)
        status =
            tm_buf_append(env, &verification->key, entry.suffix.data, entry.suffix.length, err);
    if (status == TAMIS_OK)
        status = check_order(verification, index, entry.sequence, &new_key, err);
    if (status != TAMIS_OK)
        return status;
    key = tm_slice(verification->key.data, verification->key.length);
    hash = tm_hash64(key.data, key.length, table->properties.hash_seed);
    if (view->tags[index] != (tm_order_merges_keys(&env->order) ? 0 : tm_tag_of_hash(hash)))
        return wrong_entry(verification, index, "the tag is not that of its key", err);
    if (tm_index_compare(&table->index, number, key) < 0)
        return wrong_entry(verification, index, "the key is beyond the block's separator", err);
    // A key that begins in this block must lie above the separator before it: a search takes the first block whose
    // separator is not below the key. Only later versions of a key may be equal to it.
    if (number > 0) {
        int order = tm_index_compare(&table->index, number - 1, key);

        if (order > 0 || (order == 0 && new_key))
            return wrong_entry(verification, index, "the key is not above the separator before it",
                               err);
    }
    if (new_key && !tamis_filter_may_contain(&verification->filter, hash))
        return wrong_entry(verification, index, "the filter denies the key", err);
    if (verification->counted.entry_count == 0) {
        status = tm_buf_append(env, &verification->first, key.data, key.length, err);
        if (status != TAMIS_OK)
            return status;
    }
    count_entry(verification, &entry, new_key);
    verification->previous_sequence = entry.sequence;
    swap = verification->previous;
    verification->previous = verification->key;
    verification->key = swap;
    return TAMIS_OK;
}

static tamis_status
check_block(struct verification *verification, size_t number, tamis_error *err)
{
    struct tm_table *table = verification->table;
    uint64_t offset = table->index.offsets[number];
    struct tm_place place = {table->name, table->footer.data_id, offset, TM_BLOCK_DATA};
    struct tm_block *block;
    struct tm_block_view view;
    uint64_t checksum;
    uint8_t bytes[8];
    tamis_status status;

    verification->block_offset = offset;
    status = tm_block_load(table->env, table->descriptor.file, &place,
                           table->index.offsets[number + 1] - offset, &block, &checksum, err);
    if (status != TAMIS_OK)
        return status;
    verification->counted.unpacked_bytes += block->length;
    tm_put_u64(bytes, checksum);
    status = tm_buf_append(table->env, &verification->checksums, bytes, sizeof bytes, err);
    if (status == TAMIS_OK)
        status = tm_block_view_init(&view, block, table->name, offset, err);
    for (uint32_t i = 0; status == TAMIS_OK && i < view.count; i++)
        status = check_entry(verification, &view, i, number, err);
    tm_block_unref(block);
    return status;
}

/* Read the index section once more, and drop it again. */
static tamis_status
check_index(struct verification *verification, tamis_error *err)
{
    struct tm_table *table = verification->table;
    struct tm_index_place place = tm_table_index_place(table);
    struct tm_index index = {0};
    tamis_status status = tm_index_load(table->env, table->descriptor.file, &place, &index, err);

    if (status != TAMIS_OK)
        return status;
    status = wrong_count(verification, "data blocks in the index",
                         table->properties.data_block_count, index.count, err);
    tm_index_release(table->env, &index);
    return status;
}

/* The bytes that were read once, at open: are they still there? */
static tamis_status
check_footer(const struct verification *verification, tamis_error *err)
{
    const struct tm_table *table = verification->table;
    const tamis_fs *fs = table->env->fs;
    uint64_t offset = table->footer.file_bytes - TM_FOOTER_BYTES;
    struct tm_footer footer;
    uint8_t bytes[TM_FOOTER_BYTES];
    tamis_status status;

    status = fs->read_at(fs->ctx, table->descriptor.file, offset, bytes, sizeof bytes, err);
    if (status != TAMIS_OK)
        return status;
    status = tm_footer_decode(table->name, table->footer.file_bytes, bytes, &footer, err);
    if (status == TAMIS_OK && memcmp(&footer, &table->footer, sizeof footer) != 0)
        status = TM_FAIL(err, TAMIS_CORRUPT,
                         "%s: footer at %" PRIu64 ": expected that of table %016" PRIx64
                         ", as opened; found another, of %016" PRIx64,
                         table->name, offset, table->footer.unique_id, footer.unique_id);
    return status;
}

static tamis_status
check_properties(const struct verification *verification, tamis_error *err)
{
    const struct tm_table *table = verification->table;
    struct tm_place place = {table->name, table->footer.unique_id, table->footer.properties_offset,
                             TM_BLOCK_PROPERTIES};
    struct tm_block *block;
    uint64_t checksum;
    tamis_status status;

    status = tm_block_load(table->env, table->descriptor.file, &place,
                           table->footer.properties_bytes, &block, &checksum, err);
    if (status != TAMIS_OK)
        return status;
    tm_block_unref(block);
    return wrong_count(verification, "checksum of the properties section",
                       table->footer.properties_checksum, checksum, err);
}

/* Between index and filter: no answer depends on these bytes, but somebody changed them. */
static tamis_status
check_padding(const struct verification *verification, tamis_error *err)
{
    const struct tm_table *table = verification->table;
    const tamis_fs *fs = table->env->fs;
    uint64_t offset = table->footer.index_offset + table->footer.index_bytes;
    uint8_t bytes[TAMIS_FILTER_ALIGN_BYTES];
    size_t length;
    tamis_status status;

    if (table->footer.filter_bytes == 0)
        return TAMIS_OK;
    length = (size_t)(table->footer.filter_offset - offset); // below the alignment (M1)
    status = fs->read_at(fs->ctx, table->descriptor.file, offset, bytes, length, err);
    for (size_t i = 0; status == TAMIS_OK && i < length; i++) {
        if (bytes[i] != 0)
            status = TM_FAIL(err, TAMIS_CORRUPT, "%s: padding at %" PRIu64 ": expected 0, found %u",
                             table->name, offset + i, bytes[i]);
    }
    return status;
}

/* Entries and ranges together reach from the smallest to the largest key of the properties. */
static tamis_status
check_bounds(const struct verification *verification, tamis_error *err)
{
    const struct tm_table *table = verification->table;
    const struct tm_order *order = &table->env->order;
    tamis_slice smallest = tm_slice(verification->first.data, verification->first.length);
    tamis_slice largest = tm_slice(verification->previous.data, verification->previous.length);

    if (table->ranges != NULL) {
        const struct tm_range_set *set = table->ranges;
        tamis_slice from = set->ranges[0].from;
        tamis_slice to = tm_range_reach(set->ranges[set->furthest[set->count - 1]].to);

        if (tm_slice_compare(from, smallest) < 0)
            smallest = from;
        if (tm_slice_compare(to, largest) > 0)
            largest = to;
    }
    if (!tm_order_equal(order, smallest, table->properties.smallest))
        return TM_FAIL(err, TAMIS_CORRUPT,
                       "%s: the first key is not the smallest key of the properties", table->name);
    if (!tm_order_equal(order, largest, table->properties.largest))
        return TM_FAIL(err, TAMIS_CORRUPT,
                       "%s: the last key is not the largest key of the properties", table->name);
    return TAMIS_OK;
}

static void
count_ranges(struct verification *verification)
{
    const struct tm_range_set *set = verification->table->ranges;
    struct tm_properties *counted = &verification->counted;

    for (size_t i = 0; set != NULL && i < set->count; i++) {
        if (set->ranges[i].sequence < counted->sequence_min)
            counted->sequence_min = set->ranges[i].sequence;
        if (set->ranges[i].sequence > counted->sequence_max)
            counted->sequence_max = set->ranges[i].sequence;
    }
}

static tamis_status
check_counts(const struct verification *verification, tamis_error *err)
{
    const struct tm_properties *stated = &verification->table->properties;
    const struct tm_properties *counted = &verification->counted;
    const struct {
        const char *what;
        uint64_t expected;
        uint64_t found;
    } rows[] = {
        {"entries", stated->entry_count, counted->entry_count},
        {"distinct keys", stated->key_count, counted->key_count},
        {"tombstones", stated->tombstone_count, counted->tombstone_count},
        {"bytes of keys", stated->key_bytes, counted->key_bytes},
        {"bytes of values", stated->value_bytes, counted->value_bytes},
        {"smallest sequence", stated->sequence_min, counted->sequence_min},
        {"largest sequence", stated->sequence_max, counted->sequence_max},
        {"unpacked bytes", stated->unpacked_bytes, counted->unpacked_bytes},
        {"checksum of the data section", verification->table->footer.data_checksum,
         tm_hash64(verification->checksums.data, verification->checksums.length, 0)},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        tamis_status status =
            wrong_count(verification, rows[i].what, rows[i].expected, rows[i].found, err);

        if (status != TAMIS_OK)
            return status;
    }
    return check_bounds(verification, err);
}

static tamis_status
verify(struct tm_table *table, bool (*progress)(void *arg, uint64_t bytes_done), void *arg,
       tamis_error *err)
{
    struct verification verification = {.table = table, .counted = {.sequence_min = UINT64_MAX}};
    const struct tm_env *env = table->env;
    tamis_filter_info info;
    tamis_filter_damage damage;
    uint8_t *filter_memory = NULL;
    size_t filter_memory_bytes = 0;
    bool go_on = true;
    tamis_status status;

    count_ranges(&verification);
    status = check_footer(&verification, err);
    if (status == TAMIS_OK)
        status = check_properties(&verification, err);
    if (status == TAMIS_OK)
        status = check_padding(&verification, err);
    if (status == TAMIS_OK)
        status = tm_table_load_filter(table, &verification.filter, &info, &damage, &filter_memory,
                                      &filter_memory_bytes, err);
    if (status == TAMIS_OK && damage != TAMIS_FILTER_SOUND)
        status = TM_FAIL(err, TAMIS_CORRUPT, "%s: filter at %" PRIu64 ": %s", table->name,
                         table->footer.filter_offset, tamis_filter_damage_name(damage));
    if (status == TAMIS_OK)
        status = check_index(&verification, err);
    for (size_t i = 0; status == TAMIS_OK && go_on && i < table->index.count; i++) {
        status = check_block(&verification, i, err);
        if (status == TAMIS_OK && progress != NULL)
            go_on = progress(arg, table->index.offsets[i + 1]);
    }
    if (status == TAMIS_OK && go_on)
        status = check_counts(&verification, err);
    tm_release(env, filter_memory, filter_memory_bytes);
    tm_buf_release(env, &verification.key);
    tm_buf_release(env, &verification.previous);
    tm_buf_release(env, &verification.first);
    tm_buf_release(env, &verification.checksums);
    return status;
}

tamis_status
tm_table_verify(struct tm_table *table, bool (*progress)(void *arg, uint64_t bytes_done), void *arg,
                tamis_error *err)
{
    tamis_file *file;
    tamis_status status = tm_descriptor_acquire(&table->descriptor, &file, err);

    if (status != TAMIS_OK)
        return status;
    status = verify(table, progress, arg, err);
    tm_descriptor_release(&table->descriptor);
    return status;
}
