/* SPDX-License-Identifier: MIT
 *
 * tools/command_dump.c -- `tamis dump`: all records into a file. Not here: the walk
 * (cli_records.c).
 */
#include "cli.h"

#include <errno.h>
#include <unistd.h>

static int
run(const struct cli_arguments *arguments)
{
    const char *path = arguments->operand_count > 1 ? arguments->operands[1].data : "-";
    FILE *out = stdout;
    tamis_db *db;
    int code = cli_open(arguments, false, &db);

    if (code != CLI_OK)
        return code;
    if (strcmp(path, "-") != 0) {
        out = fopen(path, "we");
        if (out == NULL)
            return cli_close(db, cli_fail("%s: %s", path, strerror(errno)));
    }
    code = cli_write_records(db, arguments, out, path);
    if (out != stdout) {
        bool kept = fflush(out) == 0 && (fsync(fileno(out)) == 0 || errno == EINVAL);

        kept = fclose(out) == 0 && kept;
        if (!kept && code == CLI_OK)
            code = cli_fail("%s was cut short: %s", path, strerror(errno));
    }
    return cli_close(db, code);
}

static const enum cli_option options_taken[] = {CLI_OPTION_FORMAT, CLI_STORE_OPTIONS,
                                                CLI_OPTION_END};

const struct cli_command command_dump = {
    .name = "dump",
    .operands = "DB [FILE]",
    .summary = "write all records to a file that load reads",
    .details = "One record a line as in scan: key, tab, value, with \\t, \\n, \\\\ and \\xHH. "
               "Without FILE, or\n"
               "with -, to standard output. An existing FILE is replaced.\n",
    .options = options_taken,
    .operand_count_min = 1,
    .operand_count_max = 2,
    .run = run,
};
