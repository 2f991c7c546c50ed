/* SPDX-License-Identifier: MIT
 *
 * tools/command_delete.c -- `tamis delete`: keys by name, all or none of them; or every key of a range.
 *
 * Not here: removing a whole store (command_destroy.c).
 */
#include "cli.h"

#include <inttypes.h>

/* ---- Keys by name --------------------------------------------------------------------------- */

static int
delete_keys(tamis_db *db, const tamis_write_options *options, const struct cli_arguments *arguments)
{
    tamis_batch *batch = NULL;
    tamis_error err;
    int code = CLI_OK;

    if (tamis_batch_create(NULL, &batch, &err) != TAMIS_OK)
        return cli_fail("%s", err.message);
    for (int i = 1; i < arguments->operand_count && code == CLI_OK; i++) {
        if (tamis_batch_delete(batch, arguments->operands[i], &err) != TAMIS_OK)
            code = cli_fail("%s", err.message);
    }
    if (code == CLI_OK && tamis_write(db, options, batch, &err) != TAMIS_OK)
        code = cli_fail("%s", err.message);
    tamis_batch_destroy(batch);
    return code;
}

/* ---- A range -------------------------------------------------------------------------------- */

/* Count what the walk gives; it ends behind the last key. */
static int
count_keys(tamis_iter *iter, uint64_t *count)
{
    tamis_error err;

    for (tamis_iter_first(iter); tamis_iter_valid(iter); tamis_iter_next(iter))
        ++*count;
    if (tamis_iter_status(iter, &err) != TAMIS_OK)
        return cli_fail("after %" PRIu64 " keys: %s", *count, err.message);
    return CLI_OK;
}

/* From the first key up to the last one, and that one: a range need not have an end. */
static int
delete_to_last(tamis_db *db, const tamis_write_options *options, tamis_slice lower,
               tamis_iter *iter)
{
    tamis_batch *batch = NULL;
    tamis_error err;
    int code = CLI_OK;

    tamis_iter_last(iter);
    if (tamis_iter_status(iter, &err) != TAMIS_OK ||
        tamis_batch_create(NULL, &batch, &err) != TAMIS_OK)
        return cli_fail("%s", err.message);
    if (tamis_batch_delete_range(batch, lower, tamis_iter_key(iter), &err) != TAMIS_OK ||
        tamis_batch_delete(batch, tamis_iter_key(iter), &err) != TAMIS_OK ||
        tamis_write(db, options, batch, &err) != TAMIS_OK)
        code = cli_fail("%s", err.message);
    tamis_batch_destroy(batch);
    return code;
}

/* Delete every key of the range at once, and say how many there were. */
static int
delete_range(tamis_db *db, const tamis_write_options *options, const struct cli_range *range)
{
    tamis_slice lower = range->has_lower ? range->lower : tamis_text("");
    tamis_iter *iter = NULL;
    uint64_t count = 0;
    int code = cli_range_open(db, range, &iter);

    if (code == CLI_OK)
        code = count_keys(iter, &count);
    if (code == CLI_OK && count > 0)
        code = delete_to_last(db, options, lower, iter);
    if (code == CLI_OK)
        fprintf(stderr, "deleted %" PRIu64 " records\n", count);
    tamis_iter_close(iter);
    return code;
}

/* ---- The command ---------------------------------------------------------------------------- */

static int
run(const struct cli_arguments *arguments)
{
    bool has_range = arguments->has_from || arguments->has_to || arguments->has_prefix;
    tamis_write_options options;
    struct cli_range range = {0};
    tamis_db *db;
    int code;

    if (has_range == (arguments->operand_count > 1))
        return cli_fail_usage("expected DB KEY..., or DB with --from, --to or --prefix");
    code = cli_open(arguments, CLI_WRITES, &db);
    if (code != CLI_OK)
        return code;
    tamis_write_options_init(&options);
    options.sync = arguments->sync;
    if (!has_range)
        return cli_close(db, delete_keys(db, &options, arguments));
    code = cli_range_make(arguments, &range);
    if (code == CLI_OK)
        code = delete_range(db, &options, &range);
    cli_range_release(&range);
    return cli_close(db, code);
}

static const enum cli_option options_taken[] = {
    CLI_OPTION_FROM,    CLI_OPTION_TO,  CLI_OPTION_PREFIX, CLI_OPTION_SYNC,
    CLI_OPTION_ESCAPED, CLI_OPTION_HEX, CLI_STORE_OPTIONS, CLI_OPTION_END};

const struct cli_command command_delete = {
    .name = "delete",
    .operands = "DB [KEY...]",
    .summary = "remove keys by name, or every key of a range",
    .details =
        "Of the keys that are named all are removed, or none; one that is not there is no "
        "error.\n"
        "\n"
        "With --from, --to or --prefix the keys of that range are removed, and their number is "
        "said on standard error.\n"
        "All of them are removed at once, or none.\n",
    .examples = "  tamis delete fruit.db apple pear\n"
                "  tamis delete --prefix=session: fruit.db\n"
                "  tamis delete --from=2020 --to=2021 --sync log.db\n"
                "  tamis delete --hex fruit.db 00ff\n",
    .options = options_taken,
    .operand_count_min = 1,
    .operand_count_max = -1,
    .run = run,
};
