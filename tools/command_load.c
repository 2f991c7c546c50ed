/* SPDX-License-Identifier: MIT
 *
 * tools/command_load.c -- `tamis load`: records from a file, one a line: key, tab, value, escaped
 * as scan prints them.
 *
 * What precedes a bad line is loaded and stays; the message says how many records that are.
 *
 * Not here: the escapes (cli_text.c).
 */
#include "cli.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <sys/stat.h>

/* Large enough that the cost of a batch is spread thin, small beside any write buffer. */
static const size_t batch_bytes = 256 << 10;

struct loading {
    tamis_db *db;
    tamis_batch *batch;
    FILE *input;
    const char *path;
    uint64_t input_bytes;  // read so far
    uint64_t record_count; // applied
    uint64_t record_bytes; // keys and values applied
    uint64_t batch_record_bytes;
};

static int
apply_batch(struct loading *loading, const tamis_write_options *options)
{
    tamis_error err;

    if (tamis_write(loading->db, options, loading->batch, &err) != TAMIS_OK)
        return cli_fail("after %" PRIu64 " records: %s", loading->record_count, err.message);
    loading->record_count += tamis_batch_count(loading->batch);
    loading->record_bytes += loading->batch_record_bytes;
    loading->batch_record_bytes = 0;
    tamis_batch_clear(loading->batch);
    return CLI_OK;
}

/* Take one line apart and add it to the batch; `problem` receives what is wrong with it. */
static bool
add_line(struct loading *loading, char *line, size_t length, char *problem, size_t problem_bytes)
{
    char *tab = memchr(line, '\t', length);
    char *value;
    size_t key_length;
    size_t value_length;
    size_t error_at;
    tamis_error err;

    if (tab == NULL) {
        snprintf(problem, problem_bytes, "expected key, tab, value; found no tab");
        return false;
    }
    key_length = (size_t)(tab - line);
    value = tab + 1;
    value_length = length - key_length - 1;
    tab = memchr(value, '\t', value_length);
    if (tab != NULL) {
        snprintf(problem, problem_bytes,
                 "expected one tab; found a second one at byte %zu (a tab inside a value is "
                 "written \\t)",
                 (size_t)(tab - line) + 1);
        return false;
    }
    if (!cli_unescape(value, &value_length, &error_at)) {
        error_at += key_length + 1;
    } else if (cli_unescape(line, &key_length, &error_at)) {
        if (tamis_batch_put(loading->batch, (tamis_slice){line, key_length},
                            (tamis_slice){value, value_length}, &err) == TAMIS_OK) {
            loading->batch_record_bytes += key_length + value_length;
            return true;
        }
        snprintf(problem, problem_bytes, "%s", err.message);
        return false;
    }
    snprintf(problem, problem_bytes,
             "expected \\t, \\n, \\\\ or \\xHH at byte %zu (a backslash is written \\\\)",
             error_at + 1);
    return false;
}

static int
load_lines(struct loading *loading)
{
    struct cli_progress progress;
    struct stat info;
    char *line = NULL;
    size_t capacity = 0;
    uint64_t line_number = 0;
    ssize_t length;
    char problem[400];
    bool good = true;
    int code = CLI_OK;

    cli_progress_start(&progress, "loading",
                       fstat(fileno(loading->input), &info) == 0 && S_ISREG(info.st_mode)
                           ? (uint64_t)info.st_size
                           : 0);
    errno = 0;
    while (code == CLI_OK && (length = getline(&line, &capacity, loading->input)) >= 0) {
        line_number++;
        loading->input_bytes += (uint64_t)length;
        if (length > 0 && line[length - 1] == '\n')
            length--;
        good = add_line(loading, line, (size_t)length, problem, sizeof problem);
        if (!good)
            break;
        if (tamis_batch_bytes(loading->batch) >= batch_bytes)
            code = apply_batch(loading, NULL);
        cli_progress_show(&progress, loading->input_bytes);
        errno = 0;
    }
    if (code == CLI_OK && good && !feof(loading->input))
        code = cli_fail("%s: %s", loading->path, errno != 0 ? strerror(errno) : "cannot be read");
    if (tamis_batch_count(loading->batch) > 0 && (code == CLI_OK || !good)) {
        int applied = apply_batch(loading, NULL);

        code = code == CLI_OK ? applied : code;
    }
    cli_progress_end(&progress);
    if (!good && code == CLI_OK)
        code = cli_fail("%s:%" PRIu64 ": %s; the %" PRIu64 " records before this line are loaded",
                        loading->path, line_number, problem, loading->record_count);
    free(line);
    return code;
}

static void
report(const struct loading *loading, double seconds)
{
    tamis_stats stats;
    tamis_error err;
    char size[32];

    fprintf(stderr,
            "loaded %" PRIu64 " records, %s of keys and values, in %.2f s (%.0f records/s)\n",
            loading->record_count, cli_format_bytes(loading->record_bytes, size), seconds,
            seconds > 0 ? (double)loading->record_count / seconds : 0.0);
    tamis_stats_init(&stats);
    if (tamis_get_stats(loading->db, &stats, &err) != TAMIS_OK || stats.user_bytes_written == 0)
        return;
    fprintf(stderr,
            "written for each byte: log %.2f, flushes %.2f, compactions %.2f (%" PRIu64
            " flushes, %" PRIu64 " compactions, %" PRIu64 " moves)\n",
            (double)stats.log_bytes_written / (double)stats.user_bytes_written,
            (double)stats.flush_bytes_written / (double)stats.user_bytes_written,
            (double)stats.compaction_bytes_written / (double)stats.user_bytes_written,
            stats.flush_count, stats.compaction_count, stats.move_count);
}

static int
run(const struct cli_arguments *arguments)
{
    struct loading loading = {.path = arguments->operands[1].data};
    tamis_error err;
    double start = cli_now_seconds();
    int code;

    // The input first: a wrong name must not leave an empty store behind.
    loading.input = cli_open_input(loading.path);
    if (loading.input == NULL)
        return CLI_FAILED;
    code = cli_open(arguments, true, &loading.db);
    if (code != CLI_OK)
        goto out;
    if (tamis_batch_create(NULL, &loading.batch, &err) != TAMIS_OK)
        code = cli_fail("%s", err.message);
    if (code == CLI_OK)
        code = load_lines(&loading);
    if (code == CLI_OK && (tamis_flush(loading.db, &err) != TAMIS_OK ||
                           tamis_wait_idle(loading.db, &err) != TAMIS_OK))
        code = cli_fail("%s", err.message);
    if (code == CLI_OK)
        report(&loading, cli_now_seconds() - start);
    tamis_batch_destroy(loading.batch);
    code = cli_close(loading.db, code);
out:
    if (loading.input != stdin)
        fclose(loading.input);
    return code;
}

static const enum cli_option options_taken[] = {CLI_OPTION_FORMAT, CLI_STORE_OPTIONS,
                                                CLI_OPTION_END};

const struct cli_command command_load = {
    .name = "load",
    .operands = "DB FILE",
    .summary = "store the records of a file; makes the store if it is missing",
    .details =
        "One record a line: key, tab, value, with \\t, \\n, \\\\ and \\xHH as scan and dump write "
        "them. FILE - is\n"
        "standard input. The first bad line ends the load with exit code 3; the message names the "
        "line,\n"
        "what was expected there, and how many records before it are loaded (all of them are).\n"
        "When load returns, the records are in tables, background work is done and a power cut "
        "loses nothing.\n",
    .options = options_taken,
    .operand_count_min = 2,
    .operand_count_max = 2,
    .run = run,
};
