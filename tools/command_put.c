/* SPDX-License-Identifier: MIT
 *
 * tools/command_put.c -- `tamis put`: one record. Not here: many records (command_load.c).
 */
#include "cli.h"

#include <errno.h>
#include <stdlib.h>

/* The whole of standard input; *bytes_out is the caller's to free. */
static int
read_standard_input(char **bytes_out, size_t *length_out)
{
    size_t capacity = 1 << 16;
    size_t length = 0;
    char *bytes = malloc(capacity);

    while (bytes != NULL) {
        size_t count = fread(bytes + length, 1, capacity - length, stdin);
        char *larger;

        length += count;
        if (count == 0)
            break;
        if (length > TAMIS_VALUE_BYTES_MAX) {
            free(bytes);
            return cli_fail("the value on standard input is longer than %zu bytes",
                            TAMIS_VALUE_BYTES_MAX);
        }
        if (length < capacity)
            continue;
        larger = realloc(bytes, capacity * 2);
        if (larger == NULL)
            free(bytes);
        bytes = larger;
        capacity *= 2;
    }
    if (bytes == NULL)
        return cli_fail("no memory");
    if (ferror(stdin)) {
        free(bytes);
        return cli_fail("standard input: %s", strerror(errno));
    }
    *bytes_out = bytes;
    *length_out = length;
    return CLI_OK;
}

static int
run(const struct cli_arguments *arguments)
{
    tamis_slice value = arguments->operands[2];
    tamis_write_options options;
    tamis_error err;
    tamis_db *db;
    char *input = NULL;
    int code;

    if (value.length == 1 && *(const char *)value.data == '-') {
        code = read_standard_input(&input, &value.length);
        if (code != CLI_OK)
            return code;
        value.data = input;
    }
    tamis_write_options_init(&options);
    options.sync = arguments->sync;
    code = cli_open(arguments, CLI_MAKES, &db);
    if (code == CLI_OK) {
        if (tamis_put(db, &options, arguments->operands[1], value, &err) != TAMIS_OK)
            code = cli_fail("%s", err.message);
        code = cli_close(db, code);
    }
    free(input);
    return code;
}

static const enum cli_option options_taken[] = {CLI_OPTION_SYNC, CLI_OPTION_ESCAPED, CLI_OPTION_HEX,
                                                CLI_STORE_OPTIONS, CLI_OPTION_END};

const struct cli_command command_put = {
    .name = "put",
    .operands = "DB KEY VALUE",
    .summary = "store a value under a key; makes the store if it is missing",
    .details = "VALUE - is all of standard input, byte for byte, whatever the encoding of KEY.\n"
               "When put returns, the record survives a killed process; a power cut as well with "
               "--sync. A key holds\n"
               "0..1048576 bytes, a value 0..1073741824.\n",
    .examples = "  tamis put fruit.db apple red\n"
                "  tamis put fruit.db photo - <photo.jpg\n"
                "  tamis put --hex fruit.db 00ff 0a0d\n"
                "  tamis put fruit.db -- -key --value\n",
    .input_operand = 2,
    .options = options_taken,
    .operand_count_min = 3,
    .operand_count_max = 3,
    .run = run,
};
