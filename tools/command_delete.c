/* SPDX-License-Identifier: MIT
 *
 * tools/command_delete.c -- `tamis delete`: one key or many, all or none of them.
 *
 * Not here: removing a whole store (command_destroy.c).
 */
#include "cli.h"

static int
run(const struct cli_arguments *arguments)
{
    tamis_write_options options;
    tamis_batch *batch = NULL;
    tamis_error err;
    tamis_db *db;
    int code = cli_open(arguments, false, &db);

    if (code != CLI_OK)
        return code;
    tamis_write_options_init(&options);
    options.sync = arguments->sync;
    if (tamis_batch_create(NULL, &batch, &err) != TAMIS_OK)
        code = cli_fail("%s", err.message);
    for (int i = 1; i < arguments->operand_count && code == CLI_OK; i++) {
        if (tamis_batch_delete(batch, arguments->operands[i], &err) != TAMIS_OK)
            code = cli_fail("%s", err.message);
    }
    if (code == CLI_OK && tamis_write(db, &options, batch, &err) != TAMIS_OK)
        code = cli_fail("%s", err.message);
    tamis_batch_destroy(batch);
    return cli_close(db, code);
}

static const enum cli_option options_taken[] = {CLI_OPTION_SYNC, CLI_OPTION_ESCAPED,
                                                CLI_STORE_OPTIONS, CLI_OPTION_END};

const struct cli_command command_delete = {
    .name = "delete",
    .operands = "DB KEY...",
    .summary = "remove keys, all of them or none; a key that is not there is no error",
    .options = options_taken,
    .operand_count_min = 2,
    .operand_count_max = -1,
    .run = run,
};
