/* SPDX-License-Identifier: MIT
 *
 * tools/command_inspect.c -- `tamis inspect`: one file of a store as text.
 *
 * Not here: reading the file; that is tamis_inspect().
 */
#include "cli.h"

static bool
write_piece(void *arg, const char *text, size_t length)
{
    (void)arg;
    return fwrite(text, 1, length, stdout) == length;
}

static int
run(const struct cli_arguments *arguments)
{
    tamis_error err;
    tamis_status status =
        tamis_inspect(cli_path(arguments), arguments->entries, write_piece, NULL, NULL, &err);

    if (status == TAMIS_NOT_FOUND)
        return cli_fail("there is no file %s", cli_path(arguments));
    if (status == TAMIS_INVALID)
        return cli_fail("%s", err.message); // it begins with the path
    if (status != TAMIS_OK)
        return cli_fail_at(cli_path(arguments), err.message);
    return CLI_OK;
}

static const enum cli_option options_taken[] = {CLI_OPTION_ENTRIES, CLI_OPTION_END};

const struct cli_command command_inspect = {
    .name = "inspect",
    .operands = "FILE",
    .summary = "print what a table, a log, a manifest or CURRENT holds",
    .details =
        "FILE is a file of a store (000012.sst, 000013.wal, MANIFEST-000007, CURRENT); the store "
        "may be\n"
        "open elsewhere. Of a damaged file, what could be read is printed before exit code 3.\n",
    .examples = "  tamis inspect fruit.db/CURRENT\n"
                "  tamis inspect --entries fruit.db/000012.sst | less\n",
    .options = options_taken,
    .operand_count_min = 1,
    .operand_count_max = 1,
    .run = run,
};
