/* SPDX-License-Identifier: MIT
 *
 * engine/stats.c -- what a store says of itself, and reading all of it to see whether it is sound.
 */
#include <math.h>

#include "engine/db_internal.h"

/* Weighted sums, to be divided in the end. */
struct level_sums {
    double requested_bits; // bits per key times keys
    double theory;         // rate times keys
};

static struct tm_file_counts
count_file(tamis_db *db, const struct tm_file *file)
{
    struct tm_file_counts counts;

    tm_lock(db);
    tm_slots_sum_file(&db->slots, file, &counts);
    tm_unlock(db);
    return counts;
}

static void
add_file(const struct tm_file *file, const struct tm_file_counts *counts, tamis_level_stats *stats,
         struct level_sums *sums)
{
    const tamis_filter_info *info = tm_table_filter_info(file->table);
    double keys = (double)file->facts.key_count;
    uint64_t negatives = tm_counted(&counts->negatives);
    uint64_t true_positives = tm_counted(&counts->true_positives);
    uint64_t false_positives = tm_counted(&counts->false_positives);

    stats->file_count++;
    stats->file_bytes += file->facts.file_bytes;
    stats->entry_count += file->facts.entry_count;
    stats->tombstone_count += file->facts.tombstone_count;
    stats->range_tombstone_count += file->facts.range_count;
    stats->key_count += file->facts.key_count;
    stats->filter_bytes += info->geometry.body_bytes;
    stats->filter_probes += negatives + true_positives + false_positives;
    stats->filter_negatives += negatives;
    stats->filter_true_positives += true_positives;
    stats->filter_false_positives += false_positives;
    sums->requested_bits += info->bits_per_key_requested * keys;
    sums->theory += file->false_positive_rate_theory * keys;
}

static void
finish_level(tamis_level_stats *stats, const struct level_sums *sums)
{
    double keys = (double)stats->key_count;
    double asked = (double)(stats->filter_false_positives + stats->filter_negatives);

    stats->false_positive_rate_measured =
        asked != 0 ? (double)stats->filter_false_positives / asked : (double)NAN;
    if (keys == 0)
        return;
    stats->bits_per_key_requested = sums->requested_bits / keys;
    stats->bits_per_key_delivered = 8.0 * (double)stats->filter_bytes / keys;
    stats->false_positive_rate_theory = sums->theory / keys;
}

static void
fill_levels(tamis_db *db, const struct tm_version *version, tamis_stats *stats)
{
    struct level_sums total = {0};

    for (uint32_t level = 0; level < TAMIS_LEVEL_COUNT; level++) {
        struct level_sums sums = {0};

        for (uint32_t i = 0; i < version->level[level].file_count; i++) {
            const struct tm_file *file = version->level[level].files[i];
            struct tm_file_counts counts = count_file(db, file);

            add_file(file, &counts, &stats->level[level], &sums);
            add_file(file, &counts, &stats->total, &total);
            stats->memory_filters_bytes += tm_table_filter_bytes(file->table);
            stats->memory_indexes_bytes += tm_table_index_bytes(file->table);
            if (tm_table_filter_damage(file->table) != TAMIS_FILTER_SOUND)
                stats->filters_damaged++;
        }
        finish_level(&stats->level[level], &sums);
    }
    finish_level(&stats->total, &total);
}

static void
fill_counters(tamis_db *db, tamis_stats *stats)
{
    const struct tm_counters *counters = &db->counters;
    struct tm_read_counts reads;

    tm_slots_sum_reads(&db->slots, &counters->reads, &reads);
    stats->gets = tm_counted(&reads.gets);
    stats->gets_found = tm_counted(&reads.gets_found);
    stats->memtable_hits = tm_counted(&reads.memtable_hits);
    stats->tables_skipped_by_range = tm_counted(&reads.tables_skipped_by_range);
    stats->tables_read = tm_counted(&reads.tables_read);
    stats->cache_hits = tm_cache_hits(db->cache);
    stats->cache_misses = tm_cache_misses(db->cache);
    stats->user_bytes_written = tm_counted(&counters->user_bytes_written);
    stats->log_bytes_written = tm_counted(&counters->log_bytes_written);
    stats->flush_bytes_written = tm_counted(&counters->flush_bytes_written);
    stats->compaction_bytes_written = tm_counted(&counters->compaction_bytes_written);
    stats->compaction_bytes_read = tm_counted(&counters->compaction_bytes_read);
    stats->flush_count = tm_counted(&counters->flush_count);
    stats->compaction_count = tm_counted(&counters->compaction_count);
    stats->move_count = tm_counted(&counters->move_count);
    stats->slowdown_count = tm_counted(&counters->slowdown_count);
    stats->slowdown_ns = tm_counted(&counters->slowdown_ns);
    stats->stall_count = tm_counted(&counters->stall_count);
    stats->stall_ns = tm_counted(&counters->stall_ns);
    stats->stall_longest_ns = tm_counted(&counters->stall_longest_ns);
    stats->background_error_count = tm_counted(&counters->background_error_count);
    stats->unremoved_file_count = tm_counted(&counters->unremoved_file_count);
}

static double
ratio(uint64_t part, uint64_t whole)
{
    return whole != 0 ? (double)part / (double)whole : (double)NAN;
}

static void
fill_amplification(tamis_stats *stats)
{
    uint64_t deepest_bytes = 0;

    for (uint32_t level = 0; level < TAMIS_LEVEL_COUNT; level++)
        if (stats->level[level].file_count != 0)
            deepest_bytes = stats->level[level].file_bytes;
    stats->read_amplification = ratio(stats->tables_read, stats->gets);
    stats->write_amplification = ratio(stats->log_bytes_written + stats->flush_bytes_written +
                                           stats->compaction_bytes_written,
                                       stats->user_bytes_written);
    stats->space_amplification = ratio(stats->total.file_bytes, deepest_bytes);
}

static void
fill_memory(tamis_db *db, const struct tm_view *view, tamis_stats *stats)
{
    uint64_t known_bytes;

    stats->memory_memtables_bytes = tm_memtable_bytes(view->mem);
    if (view->imm != NULL)
        stats->memory_memtables_bytes += tm_memtable_bytes(view->imm);
    stats->memory_cache_bytes = tm_cache_bytes(db->cache);
    stats->memory_total_bytes = tm_counted(&db->allocated_bytes);
    known_bytes = stats->memory_memtables_bytes + stats->memory_cache_bytes +
                  stats->memory_filters_bytes + stats->memory_indexes_bytes;
    // The kinds are read one after the other while others allocate and free.
    if (stats->memory_total_bytes < known_bytes)
        stats->memory_total_bytes = known_bytes;
    stats->memory_other_bytes = stats->memory_total_bytes - known_bytes;
}

tamis_status
tamis_get_stats(tamis_db *db, tamis_stats *stats, tamis_error *err)
{
    struct tm_view *view;
    uint64_t sequence;
    tamis_status status = tm_check_process(db, err);

    if (status != TAMIS_OK)
        return status;
    if (stats->struct_size != sizeof *stats)
        return TM_FAIL(err, TAMIS_INVALID,
                       "stats: expected struct_size %zu, found %u: use tamis_stats_init()",
                       sizeof *stats, (unsigned)stats->struct_size);
    tamis_stats_init(stats);
    view = tm_view_pin(db, NULL, &sequence);
    fill_levels(db, view->version, stats);
    fill_counters(db, stats);
    stats->last_sequence = sequence;
    fill_memory(db, view, stats);
    fill_amplification(stats);
    tm_view_unref(db, view);

    tm_lock(db);
    stats->background_error = db->failure.code != TAMIS_OK       ? db->failure
                              : db->flush_error.code != TAMIS_OK ? db->flush_error
                                                                 : db->compact_error;
    stats->reader_files_kept = db->kept_count;
    for (size_t i = 0; i < db->kept_count; i++)
        stats->reader_bytes_kept += db->kept[i].bytes;
    tm_unlock(db);
    stats->background_status = stats->background_error.code;
    return TAMIS_OK;
}

/* ---- Sizes ---------------------------------------------------------------------------------------- */

static uint64_t
approximate_file_bytes(const struct tm_file *file, const tamis_slice *from, const tamis_slice *to)
{
    uint64_t begin = from != NULL ? tm_table_approximate_offset(file->table, *from) : 0;
    uint64_t end =
        to != NULL ? tm_table_approximate_offset(file->table, *to) : file->facts.file_bytes;

    return end - begin;
}

tamis_status
tamis_approximate_size(tamis_db *db, const tamis_slice *from, const tamis_slice *to,
                       uint64_t *bytes_out, tamis_error *err)
{
    struct tm_view *view;
    uint64_t sequence;
    uint64_t bytes = 0;
    tamis_status status = TAMIS_OK;

    if (from != NULL)
        status = tm_check_key(*from, err);
    if (status == TAMIS_OK && to != NULL)
        status = tm_check_key(*to, err);
    if (status == TAMIS_OK)
        status = tm_check_process(db, err);
    if (status != TAMIS_OK)
        return status;
    *bytes_out = 0;
    if (from != NULL && to != NULL && tm_order_compare(&db->env.order, *from, *to) >= 0)
        return TAMIS_OK;
    view = tm_view_pin(db, NULL, &sequence);
    bytes += tm_memtable_approximate_bytes(view->mem, from, to);
    if (view->imm != NULL)
        bytes += tm_memtable_approximate_bytes(view->imm, from, to);
    for (uint32_t level = 0; level < TAMIS_LEVEL_COUNT; level++)
        for (uint32_t i = 0; i < view->version->level[level].file_count; i++)
            bytes += approximate_file_bytes(view->version->level[level].files[i], from, to);
    tm_view_unref(db, view);
    *bytes_out = bytes;
    return TAMIS_OK;
}

/* ---- Tables --------------------------------------------------------------------------------------- */

static void
describe_file(tamis_db *db, const struct tm_file *file, uint32_t level, tamis_table_stats *table)
{
    struct tm_file_counts counts = count_file(db, file);

    table->level = level;
    table->number = file->number;
    table->file_bytes = file->facts.file_bytes;
    table->entry_count = file->facts.entry_count;
    table->tombstone_count = file->facts.tombstone_count;
    table->range_tombstone_count = file->facts.range_count;
    table->key_count = file->facts.key_count;
    table->smallest = tm_file_smallest(file);
    table->largest = tm_file_largest(file);
    table->filter = *tm_table_filter_info(file->table);
    table->filter_damage = tm_table_filter_damage(file->table);
    table->false_positive_rate_theory = file->false_positive_rate_theory;
    table->filter_negatives = tm_counted(&counts.negatives);
    table->filter_true_positives = tm_counted(&counts.true_positives);
    table->filter_false_positives = tm_counted(&counts.false_positives);
    table->filter_probes =
        table->filter_negatives + table->filter_true_positives + table->filter_false_positives;
}

tamis_status
tamis_visit_tables(tamis_db *db, bool (*visit)(void *arg, const tamis_table_stats *table),
                   void *arg, tamis_error *err)
{
    struct tm_view *view;
    uint64_t sequence;
    bool go_on = true;
    tamis_status status = tm_check_process(db, err);

    if (status != TAMIS_OK)
        return status;
    view = tm_view_pin(db, NULL, &sequence);
    for (uint32_t level = 0; go_on && level < TAMIS_LEVEL_COUNT; level++)
        for (uint32_t i = 0; go_on && i < view->version->level[level].file_count; i++) {
            tamis_table_stats table;

            describe_file(db, view->version->level[level].files[i], level, &table);
            go_on = visit(arg, &table);
        }
    tm_view_unref(db, view);
    return TAMIS_OK;
}

/* ---- Verify --------------------------------------------------------------------------------------- */

struct verify_progress {
    tamis_progress progress;
    void *arg;
    uint64_t before_bytes; // of the files that are done
    uint64_t total_bytes;
    bool stopped;
};

static bool
report_progress(void *arg, uint64_t bytes_done)
{
    struct verify_progress *walk = arg;

    if (walk->progress != NULL &&
        !walk->progress(walk->arg, walk->before_bytes + bytes_done, walk->total_bytes))
        walk->stopped = true;
    return !walk->stopped;
}

tamis_status
tamis_verify(tamis_db *db, tamis_progress progress, void *arg, tamis_error *err)
{
    struct verify_progress walk = {.progress = progress, .arg = arg};
    struct tm_view *view;
    uint64_t sequence;
    tamis_status status = tm_check_process(db, err);

    if (status != TAMIS_OK)
        return status;
    view = tm_view_pin(db, NULL, &sequence);
    for (uint32_t level = 0; level < TAMIS_LEVEL_COUNT; level++)
        walk.total_bytes += view->version->level[level].file_bytes;
    for (uint32_t level = 0; status == TAMIS_OK && level < TAMIS_LEVEL_COUNT; level++)
        for (uint32_t i = 0;
             status == TAMIS_OK && !walk.stopped && i < view->version->level[level].file_count;
             i++) {
            const struct tm_file *file = view->version->level[level].files[i];

            status = tm_table_verify(file->table, report_progress, &walk, err);
            walk.before_bytes += file->facts.file_bytes;
        }
    tm_view_unref(db, view);
    return status;
}
