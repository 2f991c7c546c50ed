/* SPDX-License-Identifier: MIT
 *
 * tools/command_get.c -- `tamis get`: one value; many keys from a file; or the story of one lookup.
 *
 * The story (--trace) is told by the store's own counters, read for every table before and after
 * that one lookup.
 *
 * Not here: the description of the store (tamis_describe()).
 */
#include "cli.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

/* ---- One value ------------------------------------------------------------------------------ */

static int
get_one(tamis_db *db, tamis_slice key, bool hex)
{
    tamis_pinned pinned;
    tamis_error err;
    tamis_status status = tamis_get_pinned(db, NULL, key, &pinned, &err);

    if (status == TAMIS_NOT_FOUND)
        return CLI_NOT_FOUND;
    if (status != TAMIS_OK)
        return cli_fail("%s", err.message);
    if (hex)
        cli_write_hex(stdout, pinned.value);
    else
        cli_write_bytes(stdout, pinned.value);
    putchar('\n');
    tamis_pinned_release(&pinned);
    return CLI_OK;
}

/* ---- Many keys ------------------------------------------------------------------------------ */

struct lookups {
    uint64_t count;
    uint64_t found;
    double seconds;
};

/* Look up every line of `input`; print what is found unless only the count is wanted. */
static int
look_up_lines(tamis_db *db, FILE *input, const struct cli_arguments *arguments,
              struct lookups *lookups)
{
    const char *name = cli_input_name(arguments->keys_from);
    char *line = NULL;
    size_t capacity = 0;
    ssize_t line_length;
    double start = cli_now_seconds();
    int code = CLI_OK;

    errno = 0;
    while (code == CLI_OK && (line_length = getline(&line, &capacity, input)) >= 0) {
        size_t length = (size_t)line_length;
        tamis_pinned pinned;
        tamis_error err;
        tamis_status status;
        size_t error_at;

        if (length > 0 && line[length - 1] == '\n')
            length--;
        lookups->count++;
        if (!(arguments->hex ? cli_unhex : cli_unescape)(line, &length, &error_at)) {
            code =
                cli_fail("%s:%" PRIu64 ": expected %s at byte %zu", name, lookups->count,
                         arguments->hex ? "pairs of hexadecimal digits" : "\\t, \\n, \\\\ or \\xHH",
                         error_at + 1);
            break;
        }
        status = tamis_get_pinned(db, NULL, (tamis_slice){line, length}, &pinned, &err);
        if (status == TAMIS_OK) {
            lookups->found++;
            if (!arguments->count && !arguments->json)
                cli_write_record(stdout, arguments, (tamis_slice){line, length}, pinned.value);
            tamis_pinned_release(&pinned);
            if (ferror(stdout))
                break;
        } else if (status != TAMIS_NOT_FOUND) {
            code = cli_fail("%s:%" PRIu64 ": %s", name, lookups->count, err.message);
        }
        errno = 0;
    }
    if (code == CLI_OK && ferror(input))
        code = cli_fail("%s: %s", name, strerror(errno));
    lookups->seconds = cli_now_seconds() - start;
    free(line);
    return code;
}

static int
report_lookups(tamis_db *db, const struct lookups *lookups, bool json)
{
    tamis_stats stats;
    tamis_error err;
    uint64_t missing = lookups->count - lookups->found;
    double per_key;
    double false_reads;

    tamis_stats_init(&stats);
    if (tamis_get_stats(db, &stats, &err) != TAMIS_OK)
        return cli_fail("%s", err.message);
    per_key = lookups->count > 0 ? (double)stats.tables_read / (double)lookups->count : 0;
    false_reads = missing > 0 ? (double)stats.total.filter_false_positives / (double)missing : 0;
    if (json) {
        cli_json_start();
        cli_json_count("keys", lookups->count);
        cli_json_count("found", lookups->found);
        cli_json_count("not_found", missing);
        cli_json_number("seconds", lookups->seconds);
        cli_json_count("memtable_hits", stats.memtable_hits);
        cli_json_count("tables_skipped_by_range", stats.tables_skipped_by_range);
        cli_json_count("tables_read", stats.tables_read);
        cli_json_number("tables_read_per_key", per_key);
        cli_json_count("cache_hits", stats.cache_hits);
        cli_json_count("cache_misses", stats.cache_misses);
        cli_json_count("memory_filters_bytes", stats.memory_filters_bytes);
        for (int i = 0; i < TAMIS_LEVEL_COUNT; i++) {
            char prefix[16];

            snprintf(prefix, sizeof prefix, "level_%d_", i);
            cli_json_level(prefix, &stats.level[i]);
        }
        cli_json_level("total_", &stats.total);
        cli_json_end();
        return CLI_OK;
    }
    printf("keys looked up           %12" PRIu64 "\n", lookups->count);
    printf("found                    %12" PRIu64 "\n", lookups->found);
    printf("not found                %12" PRIu64 "\n", missing);
    printf("files skipped by range   %12" PRIu64 "\n", stats.tables_skipped_by_range);
    printf("files skipped by filter  %12" PRIu64 "\n", stats.total.filter_negatives);
    printf("files read               %12" PRIu64 "   %.4f a key\n", stats.tables_read, per_key);
    printf("files read in vain       %12" PRIu64
           "   %.4f a missing key (at most; found keys share in them)\n",
           stats.total.filter_false_positives, false_reads);
    printf("seconds                  %12.3f   %.0f ns a key\n\n", lookups->seconds,
           lookups->count > 0 ? lookups->seconds * 1e9 / (double)lookups->count : 0);
    return cli_report_store(db, false);
}

static int
get_many(tamis_db *db, FILE *input, const struct cli_arguments *arguments)
{
    struct lookups lookups = {0};
    int code = look_up_lines(db, input, arguments, &lookups);

    if (code == CLI_OK && (arguments->count || arguments->json))
        code = report_lookups(db, &lookups, arguments->json);
    if (code == CLI_OK && lookups.found < lookups.count)
        code = CLI_NOT_FOUND;
    return code;
}

/* ---- The story of one lookup ---------------------------------------------------------------- */

struct trace_table {
    uint64_t number;
    uint64_t probes, negatives, true_positives, false_positives; // before the lookup
};

struct trace {
    struct trace_table *tables;
    size_t count;
    size_t capacity;
    bool out_of_memory;
    tamis_slice key;
    uint64_t skipped_by_range, skipped_by_filter, read, not_asked;
};

static bool
note_before(void *arg, const tamis_table_stats *table)
{
    struct trace *trace = arg;

    if (trace->count == trace->capacity) {
        size_t capacity = trace->capacity == 0 ? 64 : trace->capacity * 2;
        struct trace_table *larger = realloc(trace->tables, capacity * sizeof *larger);

        if (larger == NULL) {
            trace->out_of_memory = true;
            return false;
        }
        trace->tables = larger;
        trace->capacity = capacity;
    }
    trace->tables[trace->count++] = (struct trace_table){
        table->number,
        table->filter_probes,
        table->filter_negatives,
        table->filter_true_positives,
        table->filter_false_positives,
    };
    return true;
}

static bool
print_after(void *arg, const tamis_table_stats *table)
{
    struct trace *trace = arg;
    struct trace_table before = {0};
    bool filtered = table->filter.geometry.kind != TAMIS_FILTER_ALWAYS_TRUE;
    const char *verdict;

    for (size_t i = 0; i < trace->count; i++) {
        if (trace->tables[i].number == table->number)
            before = trace->tables[i];
    }
    if (table->filter_negatives > before.negatives) {
        verdict = "filter said no: skipped";
        trace->skipped_by_filter++;
    } else if (table->filter_true_positives > before.true_positives) {
        verdict =
            filtered ? "filter said maybe, block read: found" : "no filter, block read: found";
        trace->read++;
    } else if (table->filter_false_positives > before.false_positives) {
        verdict = filtered ? "filter said maybe, block read: false positive"
                           : "no filter, block read: not there";
        trace->read++;
    } else if (table->filter_probes > before.probes) {
        verdict = "filter said maybe, reading failed";
    } else if (cli_compare(trace->key, table->smallest) < 0 ||
               cli_compare(trace->key, table->largest) > 0) {
        verdict = "outside its range: skipped";
        trace->skipped_by_range++;
    } else {
        verdict = "not asked: the answer was found before";
        trace->not_asked++;
    }
    printf("  level %u  %06" PRIu64 ".sst  %-45s  %8" PRIu64 " keys  ", (unsigned)table->level,
           table->number, verdict, table->key_count);
    cli_write_escaped_short(stdout, table->smallest, 20);
    fputs(" .. ", stdout);
    cli_write_escaped_short(stdout, table->largest, 20);
    putchar('\n');
    return true;
}

static int
get_traced(tamis_db *db, tamis_slice key)
{
    struct trace trace = {.key = key};
    tamis_pinned pinned = {0};
    tamis_stats before;
    tamis_stats after;
    tamis_status status;
    tamis_error err;
    int code = CLI_OK;

    tamis_stats_init(&before);
    tamis_stats_init(&after);
    // Quiet first: a compaction between the two looks would replace the tables.
    if (tamis_wait_idle(db, &err) != TAMIS_OK || tamis_get_stats(db, &before, &err) != TAMIS_OK ||
        tamis_visit_tables(db, note_before, &trace, &err) != TAMIS_OK) {
        code = cli_fail("%s", err.message);
        goto out;
    }
    if (trace.out_of_memory) {
        code = cli_fail("no memory");
        goto out;
    }
    status = tamis_get_pinned(db, NULL, key, &pinned, &err);
    if (status != TAMIS_OK && status != TAMIS_NOT_FOUND)
        code = cli_fail("%s", err.message);
    fputs("lookup of ", stdout);
    cli_write_escaped(stdout, key);
    fputs("\n", stdout);
    if (tamis_get_stats(db, &after, NULL) != TAMIS_OK)
        goto out;
    printf("  memtables: %s\n",
           after.memtable_hits > before.memtable_hits ? "the answer is there" : "nothing there");
    if (tamis_visit_tables(db, print_after, &trace, NULL) != TAMIS_OK)
        goto out;
    printf("  %" PRIu64 " files: %" PRIu64 " skipped by range, %" PRIu64
           " skipped by filter, %" PRIu64 " read, %" PRIu64 " not asked; %" PRIu64
           " blocks from the cache, %" PRIu64 " from disk\n",
           trace.skipped_by_range + trace.skipped_by_filter + trace.read + trace.not_asked,
           trace.skipped_by_range, trace.skipped_by_filter, trace.read, trace.not_asked,
           after.cache_hits - before.cache_hits, after.cache_misses - before.cache_misses);
    if (code == CLI_OK && status == TAMIS_OK)
        printf("  answer: found, %zu bytes\n", pinned.value.length);
    if (code == CLI_OK && status == TAMIS_NOT_FOUND) {
        printf("  answer: not found\n");
        code = CLI_NOT_FOUND;
    }
out:
    tamis_pinned_release(&pinned);
    free(trace.tables);
    return code;
}

/* ---- The command ---------------------------------------------------------------------------- */

static int
run(const struct cli_arguments *arguments)
{
    FILE *input = NULL;
    tamis_db *db;
    int code;

    if ((arguments->keys_from != NULL) == (arguments->operand_count == 2))
        return cli_fail_usage("expected DB KEY, or DB with --keys-from=FILE");
    if (arguments->keys_from != NULL && arguments->trace)
        return cli_fail_usage("--trace takes one KEY, not --keys-from");
    if (arguments->keys_from == NULL &&
        (arguments->count || arguments->json || arguments->keys_only))
        return cli_fail_usage("--count, --json and --keys-only go with --keys-from");
    if (arguments->keys_from != NULL) {
        input = cli_open_input(arguments->keys_from);
        if (input == NULL)
            return CLI_FAILED;
    }
    code = cli_open(arguments, arguments->trace ? CLI_SHOWS : CLI_READS, &db);
    if (code == CLI_OK) {
        if (input != NULL)
            code = get_many(db, input, arguments);
        else if (arguments->trace)
            code = get_traced(db, arguments->operands[1]);
        else
            code = get_one(db, arguments->operands[1], arguments->hex);
        code = cli_close(db, code);
    }
    if (input != NULL && input != stdin)
        fclose(input);
    return code;
}

static const enum cli_option options_taken[] = {
    CLI_OPTION_KEYS_FROM, CLI_OPTION_KEYS_ONLY, CLI_OPTION_COUNT,
    CLI_OPTION_JSON,      CLI_OPTION_TRACE,     CLI_OPTION_ESCAPED,
    CLI_OPTION_HEX,       CLI_STORE_OPTIONS,    CLI_OPTION_END};

const struct cli_command command_get = {
    .name = "get",
    .operands = "DB [KEY]",
    .summary = "print the value of a key, byte for byte, and a newline",
    .not_found = "the key, or with --keys-from one of the keys, is not there",
    .examples = "  tamis get fruit.db apple\n"
                "  tamis get --hex fruit.db 00ff\n"
                "  tamis get --trace fruit.db pear\n"
                "  tamis get --keys-from=words.txt --count fruit.db\n",
    .details =
        "Nothing is printed and the exit code is 1 when the key is not there. With --hex the "
        "key is given and the\n"
        "value printed in hexadecimal; so are the keys of --keys-from.\n"
        "\n"
        "--keys-from looks up many keys, one a line, and prints those that are there as "
        "scan would; the exit\n"
        "code is 1 when one of them is not. With --count or --json it prints numbers "
        "instead: found, not found,\n"
        "files skipped and files read, and for each level the measured rate of false "
        "positives beside theory.\n"
        "\n"
        "--trace names every file and what became of it in this one lookup, by the store's "
        "own counters.\n",
    .options = options_taken,
    .operand_count_min = 1,
    .operand_count_max = 2,
    .run = run,
};
