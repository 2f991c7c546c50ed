/* SPDX-License-Identifier: MIT
 *
 * tools/command_destroy.c -- `tamis destroy`: removes a store's own files.
 *
 * Not here: removing keys (command_delete.c).
 */
#include "cli.h"

static int
run(const struct cli_arguments *arguments)
{
    tamis_error err;

    if (!arguments->yes)
        return cli_fail_usage("this removes the store in %s; say so with --yes",
                              cli_path(arguments));
    switch (tamis_destroy(cli_path(arguments), NULL, &err)) {
    case TAMIS_OK:
        return CLI_OK;
    case TAMIS_NOT_FOUND:
        return cli_fail("there is no store at %s", cli_path(arguments));
    case TAMIS_BUSY:
        return cli_fail("%s is open elsewhere", cli_path(arguments));
    default:
        return cli_fail_at(cli_path(arguments), err.message);
    }
}

static const enum cli_option options_taken[] = {CLI_OPTION_YES, CLI_OPTION_END};

const struct cli_command command_destroy = {
    .name = "destroy",
    .operands = "DB",
    .summary = "remove a store: its own files, and the directory if that leaves it empty",
    .details = "Nothing is removed without --yes. Files that are not the store's stay, and so does "
               "the directory\n"
               "then. A store that is open elsewhere is refused.\n",
    .examples = "  tamis destroy --yes fruit.db\n",
    .options = options_taken,
    .operand_count_min = 1,
    .operand_count_max = 1,
    .run = run,
};
