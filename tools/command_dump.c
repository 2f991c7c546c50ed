/* SPDX-License-Identifier: MIT
 *
 * tools/command_dump.c -- `tamis dump`: all records into a file. Not here: the walk
 * (cli_records.c).
 */
#include "cli.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static bool
ends_with(const char *name, const char *end)
{
    size_t length = strlen(name);

    return length >= strlen(end) && strcmp(name + length - strlen(end), end) == 0;
}

/* Would a file at `path`, or what a link there leads to, take the place of one of the store's own? */
static bool
is_of_store(const char *path, const char *store)
{
    char *resolved = realpath(path, NULL); // NULL: there is none yet
    const char *target = resolved != NULL ? resolved : path;
    const char *slash = strrchr(target, '/');
    const char *name = slash != NULL ? slash + 1 : target;
    char *parent = slash != NULL ? strndup(target, (size_t)(slash - target) + 1) : strdup(".");
    struct stat of_parent;
    struct stat of_store;
    bool found =
        parent != NULL && stat(parent, &of_parent) == 0 && stat(store, &of_store) == 0 &&
        of_parent.st_dev == of_store.st_dev && of_parent.st_ino == of_store.st_ino &&
        (strcmp(name, "CURRENT") == 0 || strcmp(name, "LOCK") == 0 ||
         strncmp(name, "MANIFEST-", 9) == 0 || ends_with(name, ".sst") || ends_with(name, ".wal"));

    free(parent);
    free(resolved);
    return found;
}

static int
run(const struct cli_arguments *arguments)
{
    const char *path = arguments->operand_count > 1 ? arguments->operands[1].data : "-";
    bool to_file = strcmp(path, "-") != 0;
    FILE *out = stdout;
    tamis_db *db;
    int code;

    if (to_file && is_of_store(path, cli_path(arguments)))
        return cli_fail_usage("%s is a file of the store itself", path);
    code = cli_open(arguments, CLI_READS, &db);
    if (code != CLI_OK)
        return code;
    if (to_file) {
        out = fopen(path, "we");
        if (out == NULL)
            return cli_close(db, cli_fail("%s: %s", path, strerror(errno)));
    }
    code = cli_write_records(db, arguments, out, to_file ? path : "standard output");
    if (out != stdout) {
        bool kept = fflush(out) == 0 && (fsync(fileno(out)) == 0 || errno == EINVAL);

        kept = fclose(out) == 0 && kept;
        if (!kept && code == CLI_OK)
            code = cli_fail("%s was cut short: %s", path, strerror(errno));
    }
    return cli_close(db, code);
}

static const enum cli_option options_taken[] = {CLI_OPTION_FORMAT, CLI_OPTION_HEX,
                                                CLI_STORE_OPTIONS, CLI_OPTION_END};

const struct cli_command command_dump = {
    .name = "dump",
    .operands = "DB [FILE]",
    .summary = "write all records to a file that load reads",
    .details =
        "Without FILE, or with -, to standard output. An existing FILE is replaced, but none of "
        "the store's own. load\n"
        "reads back exactly the bytes that were dumped, whatever they are, in every format:\n"
        "\n"
        "  tsv    key, tab, value, with \\t, \\n, \\\\ and \\xHH, as scan prints\n"
        "  csv    RFC 4180: key,value without a header; bytes as they are, quoted where they "
        "hold a comma, a quote,\n"
        "         a newline or a carriage return; lines end with a newline. Control bytes pass "
        "as they are: with --hex\n"
        "         they do not\n"
        "  jsonl  an object a line, {\"key\": ..., \"value\": ...}; what is no UTF-8 is "
        "hexadecimal under \"key_hex\" or\n"
        "         \"value_hex\"\n"
        "\n"
        "With --hex every key and value is hexadecimal.\n",
    .examples = "  tamis dump fruit.db fruit.tsv\n"
                "  tamis dump --format=jsonl fruit.db | jq .value\n"
                "  tamis dump --format=csv --hex fruit.db fruit.csv\n",
    .has_file_operand = true,
    .options = options_taken,
    .operand_count_min = 1,
    .operand_count_max = 2,
    .run = run,
};
