/* SPDX-License-Identifier: MIT
 *
 * sstable/table_inspect.c -- a table as text that diffs well: one fact a line, nothing that changes by itself.
 *
 * Keys and values: printable ASCII as it is, backslash doubled, every other byte as \xHH.
 */
#include <inttypes.h>

#include "sstable/table.h"
#include "sstable/text.h"

static void
show_footer(struct tm_text *out, const struct tm_table *table)
{
    const struct tm_footer *footer = &table->footer;

    tm_text_emit(out, "table %s\nbytes %" PRIu64 "\n", table->name, footer->file_bytes);
    tm_text_emit(out, "unique id %016" PRIx64 "\ndata id %016" PRIx64 "\n", footer->unique_id,
                 footer->data_id);
    tm_text_emit(out, "features required %" PRIx64 " compatible %" PRIx64 "\n",
                 footer->features_required, footer->features_compatible);
    tm_text_emit(out, "section data 0 +%" PRIu64 " checksum %016" PRIx64 "\n", footer->data_bytes,
                 footer->data_checksum);
    tm_text_emit(out, "section index %" PRIu64 " +%" PRIu64 " checksum %016" PRIx64 "\n",
                 footer->index_offset, footer->index_bytes, footer->index_checksum);
    tm_text_emit(out, "section filter %" PRIu64 " +%" PRIu64 " checksum %016" PRIx64 "\n",
                 footer->filter_offset, footer->filter_bytes, footer->filter_checksum);
    tm_text_emit(out, "section properties %" PRIu64 " +%" PRIu64 " checksum %016" PRIx64 "\n",
                 footer->properties_offset, footer->properties_bytes, footer->properties_checksum);
    tm_text_emit(out, "table checksum %016" PRIx64 "\n", footer->table_checksum);
}

static void
show_properties(struct tm_text *out, const struct tm_table *table)
{
    const struct tm_properties *properties = &table->properties;

    tm_text_emit(out, "entries %" PRIu64 "\nkeys %" PRIu64 "\ntombstones %" PRIu64 "\n",
                 properties->entry_count, properties->key_count, properties->tombstone_count);
    tm_text_emit(out,
                 "key bytes %" PRIu64 "\nvalue bytes %" PRIu64 "\nunpacked bytes %" PRIu64 "\n",
                 properties->key_bytes, properties->value_bytes, properties->unpacked_bytes);
    tm_text_emit(out, "sequences %" PRIu64 "..%" PRIu64 "\n", properties->sequence_min,
                 properties->sequence_max);
    tm_text_emit(out, "data blocks %" PRIu64 " of about %" PRIu32 " bytes, %s\n",
                 properties->data_block_count, properties->block_bytes,
                 properties->compress ? "lz4 where it pays" : "raw");
    tm_text_emit(out, "hash %u seed %016" PRIx64 "\nsmallest ", properties->hash_id,
                 properties->hash_seed);
    tm_text_bytes(out, properties->smallest);
    tm_text_emit(out, "\nlargest ");
    tm_text_bytes(out, properties->largest);
    tm_text_emit(out, "\n");
}

static void
show_filter(struct tm_text *out, const struct tm_table *table)
{
    const tamis_filter_info *info = &table->filter_info;
    const tamis_filter_geometry *geometry = &info->geometry;

    if (table->filter_damage != TAMIS_FILTER_SOUND) {
        tm_text_emit(out, "filter damaged: %s; it answers maybe\n",
                     tamis_filter_damage_name(table->filter_damage));
        return;
    }
    if (table->footer.filter_bytes == 0) {
        tm_text_emit(out, "filter none\n");
        return;
    }
    tm_text_emit(out, "filter %s, %" PRIu64 " keys, %" PRIu64 " bytes\n",
                 tamis_filter_kind_name(geometry->kind), geometry->key_count, geometry->body_bytes);
    tm_text_emit(out,
                 "filter lines %" PRIu64 " and %" PRIu64 ", probes %" PRIu32 " and %" PRIu32 "\n",
                 geometry->lines_a, geometry->lines_b, geometry->probes_a, geometry->probes_b);
    tm_text_emit(out, "filter bits per key requested %.3f delivered %.3f\n",
                 info->bits_per_key_requested, info->bits_per_key_delivered);
    tm_text_emit(out, "filter false positive rate by theory %.9f\n",
                 tamis_theory_false_positive_rate(geometry));
}

static void
show_ranges(struct tm_text *out, const struct tm_range_set *set)
{
    for (size_t i = 0; set != NULL && i < set->count && !out->stopped; i++) {
        tm_text_emit(out, "delete_range %" PRIu64 " ", set->ranges[i].sequence);
        tm_text_bytes(out, set->ranges[i].from);
        tm_text_emit(out, "\t");
        tm_text_bytes(out, set->ranges[i].to);
        tm_text_emit(out, "\n");
    }
}

static tamis_status
show_entries(struct tm_text *out, struct tm_table *table, size_t number, tamis_error *err)
{
    struct tm_block *block;
    struct tm_block_view view;
    struct tm_block_entry entry;
    tamis_status status = tm_table_load_block(table, number, false, NULL, &block, &view, err);

    if (status != TAMIS_OK)
        return status;
    for (uint32_t i = 0; status == TAMIS_OK && !out->stopped && i < view.count; i++) {
        status = tm_block_entry_at(&view, i, &entry, err);
        if (status != TAMIS_OK)
            break;
        tm_text_emit(out, "  %" PRIu64 " %s ", entry.sequence,
                     entry.kind == TM_KIND_PUT ? "put" : "delete");
        tm_text_bytes(out, tm_slice(view.prefix, view.prefix_length));
        tm_text_bytes(out, entry.suffix);
        if (entry.kind == TM_KIND_PUT) {
            tm_text_emit(out, "\t");
            tm_text_bytes(out, entry.value);
        }
        tm_text_emit(out, "\n");
    }
    tm_block_unref(block);
    return status;
}

tamis_status
tm_table_inspect(struct tm_table *table, bool entries,
                 bool (*sink)(void *arg, const char *text, size_t length), void *arg,
                 tamis_error *err)
{
    struct tm_text out = {sink, arg, false};
    const struct tm_index *index = &table->index;
    tamis_status status = TAMIS_OK;

    show_footer(&out, table);
    show_properties(&out, table);
    show_filter(&out, table);
    show_ranges(&out, table->ranges);
    tm_text_emit(&out, "index leaves %zu\n", index->leaf_count);
    for (size_t i = 0; status == TAMIS_OK && !out.stopped && i < index->count; i++) {
        tm_text_emit(&out, "block %" PRIu64 " +%" PRIu64 " up to ", index->offsets[i],
                     index->offsets[i + 1] - index->offsets[i]);
        tm_text_bytes(&out, index->prefix);
        tm_text_bytes(&out, tm_index_separator_rest(index, i));
        tm_text_emit(&out, "\n");
        if (entries)
            status = show_entries(&out, table, i, err);
    }
    return status;
}
