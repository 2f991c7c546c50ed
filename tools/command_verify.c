/* SPDX-License-Identifier: MIT
 *
 * tools/command_verify.c -- `tamis verify`: reads every table in full and says whether all is
 * sound.
 *
 * Not here: what is checked; that is tamis_verify().
 */
#include "cli.h"

#include <inttypes.h>

static bool
show_progress(void *arg, uint64_t done_bytes, uint64_t total_bytes)
{
    struct cli_progress *progress = arg;

    progress->total = total_bytes;
    cli_progress_show(progress, done_bytes);
    return true;
}

static int
run(const struct cli_arguments *arguments)
{
    struct cli_progress progress;
    tamis_stats stats;
    tamis_error err;
    tamis_status status;
    tamis_db *db;
    char size[32];
    int code = cli_open(arguments, CLI_SHOWS, &db);

    if (code != CLI_OK)
        return code;
    cli_progress_start(&progress, "verifying", 0);
    status = tamis_verify(db, show_progress, &progress, &err);
    cli_progress_end(&progress);
    if (status != TAMIS_OK) {
        code = cli_fail("%s", err.message);
    } else {
        tamis_stats_init(&stats);
        if (tamis_get_stats(db, &stats, &err) != TAMIS_OK)
            code = cli_fail("%s", err.message);
        else
            printf("sound: %" PRIu64 " tables, %s, %" PRIu64 " entries\n", stats.total.file_count,
                   cli_format_bytes(stats.total.file_bytes, size), stats.total.entry_count);
    }
    return cli_close(db, code);
}

static const enum cli_option options_taken[] = {CLI_STORE_OPTIONS, CLI_OPTION_END};

const struct cli_command command_verify = {
    .name = "verify",
    .operands = "DB",
    .summary = "read every table in full: checksums, order, counts, filters",
    .details = "The first fault is named with its file and offset, and the exit code is 3. Opening "
               "the store\n"
               "checks the manifest and the log, and finishes what a crash left, unless somebody "
               "writes to it.\n",
    .examples = "  tamis verify fruit.db && echo sound\n",
    .options = options_taken,
    .operand_count_min = 1,
    .operand_count_max = 1,
    .run = run,
};
