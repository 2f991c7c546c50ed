/* SPDX-License-Identifier: MIT
 *
 * tools/command_scan.c -- `tamis scan`: records of a range on standard output. Not here: the walk
 * (cli_records.c).
 */
#include "cli.h"

static int
run(const struct cli_arguments *arguments)
{
    tamis_db *db;
    int code = cli_open(arguments, CLI_READS, &db);

    if (code != CLI_OK)
        return code;
    return cli_close(db, cli_write_records(db, arguments, stdout, "standard output"));
}

static const enum cli_option options_taken[] = {
    CLI_OPTION_FROM,  CLI_OPTION_TO,        CLI_OPTION_PREFIX, CLI_OPTION_REVERSE,
    CLI_OPTION_LIMIT, CLI_OPTION_KEYS_ONLY, CLI_OPTION_COUNT,  CLI_OPTION_ESCAPED,
    CLI_OPTION_HEX,   CLI_STORE_OPTIONS,    CLI_OPTION_END};

const struct cli_command command_scan = {
    .name = "scan",
    .operands = "DB",
    .summary = "print records in the order of their keys",
    .details = "One record a line: key, tab, value. Tab, newline and backslash are written \\t, "
               "\\n and \\\\,\n"
               "other control bytes and what is no UTF-8 \\xHH; with --hex all is hexadecimal. "
               "--count prints the number\n"
               "alone. --reverse walks from the last key of the range to the first; --limit counts "
               "from where the walk begins.\n",
    .examples = "  tamis scan --from=a --to=c fruit.db\n"
                "  tamis scan --prefix=user: --reverse --limit=10 fruit.db\n"
                "  tamis scan --hex --from=00 --to=80 fruit.db\n",
    .options = options_taken,
    .operand_count_min = 1,
    .operand_count_max = 1,
    .run = run,
};
