/* SPDX-License-Identifier: MIT
 *
 * tools/cli_records.c -- the records of a store in the order of their keys, one a line: what scan
 * and dump print.
 *
 * Not here: the escapes (cli_text.c).
 */
#include "cli.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

/* The first key after all that begin with `prefix`, in `buffer` (prefix.length bytes). false:
 * there is none. */
static bool
prefix_end(tamis_slice prefix, unsigned char *buffer, tamis_slice *end_out)
{
    size_t length = prefix.length;

    memcpy(buffer, prefix.data, prefix.length);
    while (length > 0 && buffer[length - 1] == 0xff)
        length--;
    if (length == 0)
        return false;
    buffer[length - 1]++;
    *end_out = (tamis_slice){buffer, length};
    return true;
}

int
cli_write_records(tamis_db *db, const struct cli_arguments *arguments, FILE *out,
                  const char *out_name)
{
    const tamis_slice *lower = arguments->has_from ? &arguments->from : NULL;
    const tamis_slice *upper = arguments->has_to ? &arguments->to : NULL;
    unsigned char *end_bytes = malloc(arguments->prefix.length + 1);
    tamis_slice end;
    tamis_iter_options options;
    tamis_iter *iter = NULL;
    tamis_error err;
    uint64_t count = 0;
    int code = CLI_OK;

    if (end_bytes == NULL)
        return cli_fail("no memory");
    if (arguments->has_prefix) {
        if (lower == NULL || cli_compare(*lower, arguments->prefix) < 0)
            lower = &arguments->prefix;
        if (prefix_end(arguments->prefix, end_bytes, &end) &&
            (upper == NULL || cli_compare(end, *upper) < 0))
            upper = &end;
    }
    tamis_iter_options_init(&options);
    options.lower = lower;
    options.upper = upper;
    if (tamis_iter_open(db, &options, &iter, &err) != TAMIS_OK) {
        code = cli_fail("%s", err.message);
        goto out;
    }
    for (tamis_iter_first(iter); tamis_iter_valid(iter); tamis_iter_next(iter)) {
        if (arguments->has_limit && count == arguments->limit)
            break;
        count++;
        if (arguments->count)
            continue;
        cli_write_escaped(out, tamis_iter_key(iter));
        if (!arguments->keys_only) {
            putc('\t', out);
            cli_write_escaped(out, tamis_iter_value(iter));
        }
        putc('\n', out);
        if (ferror(out))
            break;
    }
    if (ferror(out))
        code = cli_fail("%s was cut short: %s", out_name, strerror(errno));
    else if (tamis_iter_status(iter, &err) != TAMIS_OK)
        code = cli_fail("after %" PRIu64 " records: %s", count, err.message);
    else if (arguments->count)
        fprintf(out, "%" PRIu64 "\n", count);
out:
    tamis_iter_close(iter);
    free(end_bytes);
    return code;
}
