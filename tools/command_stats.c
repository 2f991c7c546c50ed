/* SPDX-License-Identifier: MIT
 *
 * tools/command_stats.c -- `tamis stats`: levels, filters, memory and amplification of a store.
 *
 * Counters start at zero when a store is opened, so what this command shows of them is what opening
 * did; get --count shows what lookups did.
 *
 * Not here: the text, which is that of tamis_describe().
 */
#include "cli.h"

#include <inttypes.h>

struct reads {
    uint64_t filters_asked_max; // by one lookup: the tables of level 0, and one of each other level
    double false_reads;         // files that a lookup of a missing key reads by mistake, by theory
};

/* Ranges are left out: a key outside a table's range costs less than this says. */
static struct reads
expect_reads(const tamis_stats *stats)
{
    struct reads reads = {0};

    for (int i = 0; i < TAMIS_LEVEL_COUNT; i++) {
        uint64_t asked = i == 0 ? stats->level[i].file_count : stats->level[i].file_count > 0;

        reads.filters_asked_max += asked;
        reads.false_reads += (double)asked * stats->level[i].false_positive_rate_theory;
    }
    return reads;
}

static void
print_json(const tamis_stats *stats)
{
    const struct {
        const char *name;
        uint64_t value;
    } counts[] = {
        {"gets", stats->gets},
        {"gets_found", stats->gets_found},
        {"memtable_hits", stats->memtable_hits},
        {"tables_skipped_by_range", stats->tables_skipped_by_range},
        {"tables_read", stats->tables_read},
        {"cache_hits", stats->cache_hits},
        {"cache_misses", stats->cache_misses},
        {"filters_damaged", stats->filters_damaged},
        {"user_bytes_written", stats->user_bytes_written},
        {"log_bytes_written", stats->log_bytes_written},
        {"flush_bytes_written", stats->flush_bytes_written},
        {"compaction_bytes_written", stats->compaction_bytes_written},
        {"compaction_bytes_read", stats->compaction_bytes_read},
        {"flush_count", stats->flush_count},
        {"compaction_count", stats->compaction_count},
        {"move_count", stats->move_count},
        {"slowdown_count", stats->slowdown_count},
        {"slowdown_ns", stats->slowdown_ns},
        {"stall_count", stats->stall_count},
        {"stall_ns", stats->stall_ns},
        {"stall_longest_ns", stats->stall_longest_ns},
        {"memory_memtables_bytes", stats->memory_memtables_bytes},
        {"memory_cache_bytes", stats->memory_cache_bytes},
        {"memory_filters_bytes", stats->memory_filters_bytes},
        {"memory_indexes_bytes", stats->memory_indexes_bytes},
        {"memory_other_bytes", stats->memory_other_bytes},
        {"memory_total_bytes", stats->memory_total_bytes},
        {"background_error_count", stats->background_error_count},
        {"unremoved_file_count", stats->unremoved_file_count},
        {"last_sequence", stats->last_sequence},
    };

    cli_json_start();
    for (int i = 0; i < TAMIS_LEVEL_COUNT; i++) {
        char prefix[16];

        snprintf(prefix, sizeof prefix, "level_%d_", i);
        cli_json_level(prefix, &stats->level[i]);
    }
    cli_json_level("total_", &stats->total);
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++)
        cli_json_count(counts[i].name, counts[i].value);
    cli_json_count("filters_asked_max", expect_reads(stats).filters_asked_max);
    cli_json_number("files_read_per_missing_key_theory", expect_reads(stats).false_reads);
    cli_json_number("read_amplification", stats->read_amplification);
    cli_json_number("write_amplification", stats->write_amplification);
    cli_json_number("space_amplification", stats->space_amplification);
    cli_json_text("background_status", tamis_status_name(stats->background_status));
    cli_json_text("background_error", stats->background_error.message);
    cli_json_end();
}

static int
run(const struct cli_arguments *arguments)
{
    tamis_stats stats;
    tamis_error err;
    tamis_db *db;
    int code;

    if (arguments->json && arguments->files)
        return cli_fail_usage("--json or --files, not both");
    code = cli_open(arguments, CLI_SHOWS, &db);
    if (code != CLI_OK)
        return code;
    tamis_stats_init(&stats);
    if (!arguments->json)
        code = cli_report_store(db, arguments->files);
    else if (tamis_get_stats(db, &stats, &err) != TAMIS_OK)
        code = cli_fail("%s", err.message);
    else
        print_json(&stats);
    return cli_close(db, code);
}

static const enum cli_option options_taken[] = {CLI_OPTION_JSON, CLI_OPTION_FILES,
                                                CLI_STORE_OPTIONS, CLI_OPTION_END};

const struct cli_command command_stats = {
    .name = "stats",
    .operands = "DB",
    .summary = "print levels, filters beside their theory, memory, amplification",
    .details =
        "Columns: bits/k is bits per key as delivered; then filters asked, answers \"no\" "
        "(file skipped), \"maybe\"\n"
        "that were right and that were wrong, and the rate of wrong ones among keys that "
        "are not there,\n"
        "measured and by theory. Counters start at zero when a store is opened; for "
        "measured rates see\n"
        "tamis get --keys-from=FILE --count. --files adds a line for every table with the same "
        "columns and its range of\n"
        "keys. --json has the same figures and more; its names stay, the text changes between "
        "versions.\n",
    .examples = "  tamis stats fruit.db\n"
                "  tamis stats --files fruit.db\n"
                "  tamis stats --json fruit.db | jq .space_amplification\n",
    .options = options_taken,
    .operand_count_min = 1,
    .operand_count_max = 1,
    .run = run,
};
