/* SPDX-License-Identifier: MIT
 *
 * tools/command_checkpoint.c -- `tamis checkpoint`: a copy of a store that is a store of its own.
 *
 * Not here: how it shares the tables (engine/checkpoint.c).
 */
#include "cli.h"

static int
run(const struct cli_arguments *arguments)
{
    const char *target = arguments->operands[1].data; // of the command line, so it ends with NUL
    tamis_db *db;
    tamis_error err;
    int code = cli_open(arguments, CLI_WRITES, &db);

    if (code != CLI_OK)
        return code;
    if (tamis_checkpoint(db, target, &err) != TAMIS_OK)
        code = cli_fail("%s", err.message);
    return cli_close(db, code);
}

static const enum cli_option options_taken[] = {CLI_STORE_OPTIONS, CLI_OPTION_END};

const struct cli_command command_checkpoint = {
    .name = "checkpoint",
    .operands = "DB DIRECTORY",
    .summary = "copy a store as it is now, by hard links where that is possible",
    .details =
        "DIRECTORY is missing or empty; its parent must exist. The copy is a store of its own: the "
        "two share the bytes of\n"
        "tables that neither has rewritten yet. On another file system the tables are copied.\n",
    .examples = "  tamis checkpoint fruit.db fruit-2026-12-01.db\n",
    .options = options_taken,
    .operand_count_min = 2,
    .operand_count_max = 2,
    .has_file_operand = true,
    .run = run,
};
