/* SPDX-License-Identifier: MIT
 *
 * tools/command_load.c -- `tamis load`: records from a file.
 *
 * What precedes a bad record is loaded and stays; the message says how many records that are.
 *
 * Not here: the formats (cli_reader.c).
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
    struct cli_reader reader;
    uint64_t record_count; // applied
    uint64_t record_bytes; // keys and values applied
    uint64_t batch_record_bytes;
};

static int
apply_batch(struct loading *loading)
{
    tamis_error err;

    if (tamis_write(loading->db, NULL, loading->batch, &err) != TAMIS_OK)
        return cli_fail("after %" PRIu64 " records: %s", loading->record_count, err.message);
    loading->record_count += tamis_batch_count(loading->batch);
    loading->record_bytes += loading->batch_record_bytes;
    loading->batch_record_bytes = 0;
    tamis_batch_clear(loading->batch);
    return CLI_OK;
}

/* Add a record to the batch; `problem` of the reader says what is wrong with it. */
static bool
add_record(struct loading *loading, tamis_slice key, tamis_slice value)
{
    struct cli_reader *reader = &loading->reader;
    tamis_error err;

    if (tamis_batch_put(loading->batch, key, value, &err) == TAMIS_OK) {
        loading->batch_record_bytes += key.length + value.length;
        return true;
    }
    snprintf(reader->problem, sizeof reader->problem, "%s", err.message);
    return false;
}

/* Read records into batches until one is bad, the input ends or something fails; the last batch is left
 * to be applied. */
static enum cli_read
load_batches(struct loading *loading, struct cli_progress *progress, int *code)
{
    enum cli_read result = CLI_READ_RECORD;

    while (*code == CLI_OK && result == CLI_READ_RECORD) {
        tamis_slice key;
        tamis_slice value;

        result = cli_read_record(&loading->reader, &key, &value);
        if (result == CLI_READ_RECORD && !add_record(loading, key, value))
            result = CLI_READ_BAD_RECORD;
        if (tamis_batch_bytes(loading->batch) >= batch_bytes)
            *code = apply_batch(loading);
        cli_progress_show(progress, loading->reader.byte_count);
    }
    return result;
}

static int
load_records(struct loading *loading)
{
    struct cli_reader *reader = &loading->reader;
    struct cli_progress progress;
    struct stat info;
    enum cli_read result;
    int read_error;
    int code = CLI_OK;

    cli_progress_start(&progress, "loading",
                       fstat(fileno(reader->input), &info) == 0 && S_ISREG(info.st_mode)
                           ? (uint64_t)info.st_size
                           : 0);
    result = load_batches(loading, &progress, &code);
    read_error = errno;
    if (code == CLI_OK && tamis_batch_count(loading->batch) > 0)
        code = apply_batch(loading);
    cli_progress_end(&progress);
    if (code == CLI_OK && result == CLI_READ_FAILED)
        code = cli_fail("%s: %s", reader->path,
                        read_error != 0 ? strerror(read_error) : "cannot be read");
    if (code == CLI_OK && result == CLI_READ_BAD_RECORD)
        code = cli_fail("%s:%" PRIu64 ": %s; the %" PRIu64 " records before this line are loaded",
                        reader->path, reader->line, reader->problem, loading->record_count);
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
load_store(struct loading *loading)
{
    tamis_error err;
    double start = cli_now_seconds();
    int code = CLI_OK;

    if (tamis_batch_create(NULL, &loading->batch, &err) != TAMIS_OK)
        return cli_fail("%s", err.message);
    code = load_records(loading);
    if (code == CLI_OK && (tamis_flush(loading->db, &err) != TAMIS_OK ||
                           tamis_wait_idle(loading->db, &err) != TAMIS_OK))
        code = cli_fail("%s", err.message);
    if (code == CLI_OK)
        report(loading, cli_now_seconds() - start);
    tamis_batch_destroy(loading->batch);
    return code;
}

static int
run(const struct cli_arguments *arguments)
{
    struct loading loading = {
        .reader = {.path = cli_input_name(arguments->operands[1].data),
                   .format = arguments->format,
                   .hex = arguments->hex},
    };
    int code;

    if (arguments->format == CLI_FORMAT_JSONL && arguments->hex)
        return cli_fail_usage(
            "--hex goes with tsv and csv; the names in jsonl say what is hexadecimal");
    if (arguments->format == CLI_FORMAT_JSONL && !cli_json_is_built())
        return cli_fail_usage(
            "--format=jsonl: this build reads no JSON, since Jansson was missing; tsv or csv");
    // The input first: a wrong name must not leave an empty store behind.
    loading.reader.input = cli_open_input(arguments->operands[1].data);
    if (loading.reader.input == NULL)
        return CLI_FAILED;
    code = cli_open(arguments, CLI_MAKES, &loading.db);
    if (code == CLI_OK)
        code = cli_close(loading.db, load_store(&loading));
    cli_reader_release(&loading.reader);
    if (loading.reader.input != stdin)
        fclose(loading.reader.input);
    return code;
}

static const enum cli_option options_taken[] = {CLI_OPTION_FORMAT, CLI_OPTION_HEX,
                                                CLI_STORE_OPTIONS, CLI_OPTION_END};

const struct cli_command command_load = {
    .name = "load",
    .operands = "DB FILE",
    .summary = "store the records of a file; makes the store if it is missing",
    .details =
        "FILE - is standard input. Formats, as dump writes them:\n"
        "\n"
        "  tsv    one record a line: key, tab, value, with \\t, \\n, \\\\ and \\xHH\n"
        "  csv    RFC 4180: two fields, no header; lines end with newline, or carriage return and "
        "newline\n"
        "  jsonl  an object a line with \"key\" or \"key_hex\", and \"value\" or \"value_hex\"\n"
        "\n"
        "The first bad record ends the load with exit code 3; the message names the line, what was "
        "expected there, and\n"
        "how many records before it are loaded (all of them are). Of equal keys the last one "
        "counts. "
        "When load returns 0,\n"
        "the records are in tables, background work is done and a power cut loses nothing.\n",
    .examples = "  tamis load fruit.db fruit.tsv\n"
                "  tamis load --format=csv fruit.db - <fruit.csv\n"
                "  tamis load --hex --bits-per-key=14 fruit.db fruit.hex\n",
    .has_file_operand = true,
    .options = options_taken,
    .operand_count_min = 2,
    .operand_count_max = 2,
    .run = run,
};
