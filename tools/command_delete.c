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

/* Large enough that the cost of a batch is spread thin, small beside any write buffer. */
static const size_t batch_bytes = 256 << 10;

struct deletion {
    tamis_db *db;
    const tamis_write_options *options;
    tamis_batch *batch;
    uint64_t count; // deleted
};

static int
apply_batch(struct deletion *deletion)
{
    tamis_error err;

    if (tamis_write(deletion->db, deletion->options, deletion->batch, &err) != TAMIS_OK)
        return cli_fail("after %" PRIu64 " records: %s", deletion->count, err.message);
    deletion->count += tamis_batch_count(deletion->batch);
    tamis_batch_clear(deletion->batch);
    return CLI_OK;
}

static int
walk(struct deletion *deletion, tamis_iter *iter)
{
    tamis_error err;
    int code = CLI_OK;

    for (tamis_iter_first(iter); tamis_iter_valid(iter) && code == CLI_OK; tamis_iter_next(iter)) {
        if (tamis_batch_delete(deletion->batch, tamis_iter_key(iter), &err) != TAMIS_OK)
            code = cli_fail("%s", err.message);
        else if (tamis_batch_bytes(deletion->batch) >= batch_bytes)
            code = apply_batch(deletion);
    }
    if (code == CLI_OK && tamis_iter_status(iter, &err) != TAMIS_OK)
        code = cli_fail("after %" PRIu64 " records: %s", deletion->count, err.message);
    return code == CLI_OK ? apply_batch(deletion) : code;
}

/* Delete every key of the range, in batches. */
static int
delete_range(tamis_db *db, const tamis_write_options *options, const struct cli_range *range)
{
    struct deletion deletion = {.db = db, .options = options};
    tamis_iter *iter = NULL;
    tamis_error err;
    int code = cli_range_open(db, range, &iter);

    if (code == CLI_OK && tamis_batch_create(NULL, &deletion.batch, &err) != TAMIS_OK)
        code = cli_fail("%s", err.message);
    if (code == CLI_OK)
        code = walk(&deletion, iter);
    if (code == CLI_OK)
        fprintf(stderr, "deleted %" PRIu64 " records\n", deletion.count);
    tamis_batch_destroy(deletion.batch);
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
    code = cli_open(arguments, false, &db);
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
        "That goes in batches: when it fails, those before the failure are gone, and the same "
        "command removes the rest.\n",
    .examples = "  tamis delete fruit.db apple pear\n"
                "  tamis delete --prefix=session: fruit.db\n"
                "  tamis delete --from=2020 --to=2021 --sync log.db\n"
                "  tamis delete --hex fruit.db 00ff\n",
    .options = options_taken,
    .operand_count_min = 1,
    .operand_count_max = -1,
    .run = run,
};
