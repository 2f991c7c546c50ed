/* SPDX-License-Identifier: MIT
 *
 * engine/describe.c -- the statistics as text for people.
 *
 * Not here: counting; every figure is one of tamis_get_stats() or tamis_visit_tables().
 */
#include <math.h>
#include <stdio.h>

#include "engine/db_internal.h"
#include "sstable/text.h"

enum { KEY_SHOWN_BYTES = 24 };

/* "12.3 MiB", in a buffer of the caller's that is returned. */
static const char *
format_bytes(uint64_t bytes, char buffer[32])
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    double value = (double)bytes;
    int unit = 0;

    while (value >= 1024.0 && unit < 4) {
        value /= 1024.0;
        unit++;
    }
    snprintf(buffer, 32, unit == 0 ? "%.0f %s" : "%.1f %s", value, units[unit]);
    return buffer;
}

/* ---- Levels --------------------------------------------------------------------------------------- */

static void
show_rate(struct tm_text *out, double rate)
{
    if (isfinite(rate))
        tm_text_emit(out, " %9.4f%%", rate * 100);
    else
        tm_text_emit(out, " %10s", "-");
}

static void
show_level(struct tm_text *out, const char *name, const tamis_level_stats *level)
{
    char size[32];
    char filter[32];

    tm_text_emit(out, "%-6s %6llu %10s %10llu %8llu %10s %6.2f", name,
                 (unsigned long long)level->file_count, format_bytes(level->file_bytes, size),
                 (unsigned long long)level->entry_count, (unsigned long long)level->tombstone_count,
                 format_bytes(level->filter_bytes, filter), level->bits_per_key_delivered);
    tm_text_emit(out, " %10llu %10llu %9llu %9llu", (unsigned long long)level->filter_probes,
                 (unsigned long long)level->filter_negatives,
                 (unsigned long long)level->filter_true_positives,
                 (unsigned long long)level->filter_false_positives);
    show_rate(out, level->false_positive_rate_measured);
    show_rate(out, level->false_positive_rate_theory);
    tm_text_emit(out, "\n");
}

static void
show_levels(struct tm_text *out, const tamis_stats *stats)
{
    tm_text_emit(out, "%-6s %6s %10s %10s %8s %10s %6s %10s %10s %9s %9s %10s %10s\n", "level",
                 "files", "size", "entries", "deleted", "filters", "bits/k", "asked", "said no",
                 "yes+there", "yes+not", "measured", "theory");
    for (int i = 0; i < TAMIS_LEVEL_COUNT; i++) {
        char name[16];

        if (stats->level[i].file_count == 0 && stats->level[i].filter_probes == 0)
            continue;
        snprintf(name, sizeof name, "%d", i);
        show_level(out, name, &stats->level[i]);
    }
    show_level(out, "total", &stats->total);
}

/* ---- Memory, amplification, work ------------------------------------------------------------------ */

static void
show_bytes(struct tm_text *out, const char *name, uint64_t bytes)
{
    char text[32];

    tm_text_emit(out, "  %-22s %12s\n", name, format_bytes(bytes, text));
}

static void
show_memory(struct tm_text *out, const tamis_stats *stats)
{
    tm_text_emit(out, "\nmemory\n");
    show_bytes(out, "memtables", stats->memory_memtables_bytes);
    show_bytes(out, "block cache", stats->memory_cache_bytes);
    show_bytes(out, "filters", stats->memory_filters_bytes);
    show_bytes(out, "indexes", stats->memory_indexes_bytes);
    show_bytes(out, "other", stats->memory_other_bytes);
    show_bytes(out, "in all", stats->memory_total_bytes);
}

/* Files that a lookup of a missing key reads by mistake, by theory: the tables of level 0, and one of each other level. Ranges are
 * left out: a key outside a table's range costs less than this says. */
static double
expected_false_reads(const tamis_stats *stats, uint64_t *asked_max)
{
    double reads = 0;

    *asked_max = 0;
    for (int i = 0; i < TAMIS_LEVEL_COUNT; i++) {
        uint64_t asked = i == 0 ? stats->level[i].file_count : stats->level[i].file_count > 0;

        *asked_max += asked;
        reads += (double)asked * stats->level[i].false_positive_rate_theory;
    }
    return reads;
}

static void
show_ratio(struct tm_text *out, const char *name, double ratio, const char *meaning)
{
    if (isfinite(ratio))
        tm_text_emit(out, "  %-22s %12.3f  %s\n", name, ratio, meaning);
    else
        tm_text_emit(out, "  %-22s %12s  %s\n", name, "-", meaning);
}

static void
show_amplification(struct tm_text *out, const tamis_stats *stats)
{
    uint64_t asked_max;
    double false_reads = expected_false_reads(stats, &asked_max);

    tm_text_emit(out, "\namplification\n");
    show_ratio(out, "read", stats->read_amplification, "files searched for each lookup");
    show_ratio(out, "write", stats->write_amplification, "bytes written for each byte given");
    show_ratio(out, "space", stats->space_amplification,
               "bytes of tables for each byte of the deepest level");
    tm_text_emit(out,
                 "  a lookup asks at most %llu filters; for a missing key they let %.4f file reads "
                 "through (theory)\n",
                 (unsigned long long)asked_max, false_reads);
}

static void
show_work(struct tm_text *out, const tamis_stats *stats)
{
    tm_text_emit(out, "\nsince opening\n");
    tm_text_emit(out,
                 "  %-22s %12llu  %llu found; %llu answered by memtables, %llu files skipped by "
                 "range, %llu read\n",
                 "lookups", (unsigned long long)stats->gets, (unsigned long long)stats->gets_found,
                 (unsigned long long)stats->memtable_hits,
                 (unsigned long long)stats->tables_skipped_by_range,
                 (unsigned long long)stats->tables_read);
    tm_text_emit(out, "  %-22s %12llu  and %llu from disk\n", "blocks from the cache",
                 (unsigned long long)stats->cache_hits, (unsigned long long)stats->cache_misses);
    show_bytes(out, "given to write", stats->user_bytes_written);
    show_bytes(out, "written to the log", stats->log_bytes_written);
    show_bytes(out, "written by flushes", stats->flush_bytes_written);
    show_bytes(out, "written by compactions", stats->compaction_bytes_written);
    tm_text_emit(out, "  %-22s %12llu  and %llu compactions, %llu moves\n", "flushes",
                 (unsigned long long)stats->flush_count,
                 (unsigned long long)stats->compaction_count,
                 (unsigned long long)stats->move_count);
    tm_text_emit(out, "  %-22s %12llu  %.3f s in all\n", "writes that waited",
                 (unsigned long long)stats->stall_count, 1e-9 * (double)stats->stall_ns);
}

static void
show_troubles(struct tm_text *out, const tamis_stats *stats)
{
    if (stats->filters_damaged > 0)
        tm_text_emit(out, "\n%llu filters are damaged and answer \"maybe\"; verify names them\n",
                     (unsigned long long)stats->filters_damaged);
    if (stats->unremoved_file_count > 0)
        tm_text_emit(out,
                     "\n%llu files that nothing needs could not be removed; the next open tries "
                     "again\n",
                     (unsigned long long)stats->unremoved_file_count);
    if (stats->background_error_count > 0)
        tm_text_emit(out, "\n%llu failures of background work since opening\n",
                     (unsigned long long)stats->background_error_count);
    if (stats->background_status != TAMIS_OK)
        tm_text_emit(out, "\nbackground work stopped: %s: %s\n",
                     tamis_status_name(stats->background_status), stats->background_error.message);
}

/* ---- Files ---------------------------------------------------------------------------------------- */

/* The beginning of a key, in as many columns as fit. */
static void
show_key(struct tm_text *out, tamis_slice key)
{
    bool is_long = key.length > KEY_SHOWN_BYTES;

    tm_text_bytes(out, tm_slice(key.data, is_long ? KEY_SHOWN_BYTES : key.length));
    tm_text_emit(out, is_long ? "..." : "");
}

static bool
show_file(void *arg, const tamis_table_stats *table)
{
    struct tm_text *out = arg;
    char size[32];
    double keys = (double)table->key_count;

    tm_text_emit(out, "%-6u %06llu %10s %10llu %8llu %-11s %6.2f", (unsigned)table->level,
                 (unsigned long long)table->number, format_bytes(table->file_bytes, size),
                 (unsigned long long)table->entry_count, (unsigned long long)table->tombstone_count,
                 table->filter_damage == TAMIS_FILTER_SOUND
                     ? tamis_filter_kind_name(table->filter.geometry.kind)
                     : "damaged",
                 keys > 0 ? 8.0 * (double)table->filter.geometry.body_bytes / keys : 0.0);
    tm_text_emit(out, " %10llu %10llu %9llu %9llu", (unsigned long long)table->filter_probes,
                 (unsigned long long)table->filter_negatives,
                 (unsigned long long)table->filter_true_positives,
                 (unsigned long long)table->filter_false_positives);
    show_rate(out, table->false_positive_rate_theory);
    tm_text_emit(out, "  ");
    show_key(out, table->smallest);
    tm_text_emit(out, " .. ");
    show_key(out, table->largest);
    tm_text_emit(out, "\n");
    return !out->stopped;
}

static tamis_status
show_files(struct tm_text *out, tamis_db *db, tamis_error *err)
{
    tm_text_emit(out, "\n%-6s %6s %10s %10s %8s %-11s %6s %10s %10s %9s %9s %10s  %s\n", "level",
                 "file", "size", "entries", "deleted", "filter", "bits/k", "asked", "said no",
                 "yes+there", "yes+not", "theory", "keys");
    return tamis_visit_tables(db, show_file, out, err);
}

tamis_status
tamis_describe(tamis_db *db, bool files, bool (*sink)(void *arg, const char *text, size_t length),
               void *arg, tamis_error *err)
{
    struct tm_text out = {sink, arg, false};
    tamis_stats stats;
    tamis_status status;

    if (sink == NULL)
        return TM_FAIL(err, TAMIS_INVALID, "sink: expected a function, found NULL");
    tamis_stats_init(&stats);
    status = tamis_get_stats(db, &stats, err);
    if (status != TAMIS_OK)
        return status;
    show_levels(&out, &stats);
    show_memory(&out, &stats);
    show_amplification(&out, &stats);
    show_work(&out, &stats);
    show_troubles(&out, &stats);
    return files ? show_files(&out, db, err) : TAMIS_OK;
}
