/* SPDX-License-Identifier: MIT
 *
 * tools/cli_records.c -- ranges of keys, and the records in them in the order of their keys: what
 * scan and dump print, what delete removes.
 *
 * Not here: the escapes (cli_text.c), reading records (cli_reader.c).
 */
#include "cli.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

/* ---- Ranges --------------------------------------------------------------------------------- */

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
cli_range_make(const struct cli_arguments *arguments, struct cli_range *range)
{
    tamis_slice end;

    range->lower = arguments->from;
    range->has_lower = arguments->has_from;
    range->upper = arguments->to;
    range->has_upper = arguments->has_to;
    range->end_bytes = malloc(arguments->prefix.length + 1);
    if (range->end_bytes == NULL)
        return cli_fail("no memory");
    if (!arguments->has_prefix)
        return CLI_OK;
    if (!range->has_lower || cli_compare(range->lower, arguments->prefix) < 0)
        range->lower = arguments->prefix;
    range->has_lower = true;
    if (prefix_end(arguments->prefix, range->end_bytes, &end) &&
        (!range->has_upper || cli_compare(end, range->upper) < 0)) {
        range->upper = end;
        range->has_upper = true;
    }
    return CLI_OK;
}

void
cli_range_release(struct cli_range *range)
{
    free(range->end_bytes);
    range->end_bytes = NULL;
}

int
cli_range_open(tamis_db *db, const struct cli_range *range, tamis_iter **iter_out)
{
    tamis_iter_options options;
    tamis_error err;

    tamis_iter_options_init(&options);
    options.lower = range->has_lower ? &range->lower : NULL;
    options.upper = range->has_upper ? &range->upper : NULL;
    if (tamis_iter_open(db, &options, iter_out, &err) != TAMIS_OK)
        return cli_fail("%s", err.message);
    return CLI_OK;
}

/* ---- Records -------------------------------------------------------------------------------- */

static void
write_tsv(FILE *out, bool hex, tamis_slice bytes)
{
    if (hex)
        cli_write_hex(out, bytes);
    else
        cli_write_escaped(out, bytes);
}

/* RFC 4180. A carriage return is quoted too, so that one before the newline is never in doubt. */
static void
write_csv(FILE *out, bool hex, tamis_slice bytes)
{
    const char *at = bytes.data;
    const char *end = at + bytes.length;
    bool quoted = false;

    if (hex) {
        cli_write_hex(out, bytes);
        return;
    }
    for (const char *c = at; c < end && !quoted; c++)
        quoted = *c == ',' || *c == '"' || *c == '\n' || *c == '\r';
    if (!quoted) {
        cli_write_bytes(out, bytes);
        return;
    }
    putc('"', out);
    while (at < end) { // in runs, each but the last with the quote that ends it
        const char *quote = memchr(at, '"', (size_t)(end - at));
        size_t length = quote != NULL ? (size_t)(quote - at) + 1 : (size_t)(end - at);

        fwrite(at, 1, length, out);
        if (quote != NULL)
            putc('"', out);
        at += length;
    }
    putc('"', out);
}

/* A member; what is no UTF-8 becomes hexadecimal, and its name says so. */
static void
write_json(FILE *out, const char *name, bool hex, tamis_slice bytes)
{
    if (!hex && cli_is_utf8(bytes)) {
        fprintf(out, "\"%s\": ", name);
        cli_write_json_string(out, bytes);
        return;
    }
    fprintf(out, "\"%s_hex\": \"", name);
    cli_write_hex(out, bytes);
    putc('"', out);
}

void
cli_write_record(FILE *out, const struct cli_arguments *arguments, tamis_slice key,
                 tamis_slice value)
{
    bool hex = arguments->hex;

    switch (arguments->format) {
    case CLI_FORMAT_TSV:
        write_tsv(out, hex, key);
        if (!arguments->keys_only) {
            putc('\t', out);
            write_tsv(out, hex, value);
        }
        break;
    case CLI_FORMAT_CSV:
        write_csv(out, hex, key);
        putc(',', out);
        write_csv(out, hex, value);
        break;
    case CLI_FORMAT_JSONL:
        putc('{', out);
        write_json(out, "key", hex, key);
        fputs(", ", out);
        write_json(out, "value", hex, value);
        putc('}', out);
        break;
    }
    putc('\n', out);
}

int
cli_write_records(tamis_db *db, const struct cli_arguments *arguments, FILE *out,
                  const char *out_name)
{
    struct cli_range range;
    tamis_iter *iter = NULL;
    tamis_error err;
    uint64_t count = 0;
    int code = cli_range_make(arguments, &range);

    if (code == CLI_OK)
        code = cli_range_open(db, &range, &iter);
    if (code != CLI_OK)
        goto out;
    (arguments->reverse ? tamis_iter_last : tamis_iter_first)(iter);
    while (tamis_iter_valid(iter) && (!arguments->has_limit || count < arguments->limit)) {
        count++;
        if (!arguments->count)
            cli_write_record(out, arguments, tamis_iter_key(iter), tamis_iter_value(iter));
        if (ferror(out))
            break;
        (arguments->reverse ? tamis_iter_prev : tamis_iter_next)(iter);
    }
    if (ferror(out))
        code = cli_fail("%s was cut short: %s", out_name, strerror(errno));
    else if (tamis_iter_status(iter, &err) != TAMIS_OK)
        code = cli_fail("after %" PRIu64 " records: %s", count, err.message);
    else if (arguments->count)
        fprintf(out, "%" PRIu64 "\n", count);
out:
    tamis_iter_close(iter);
    cli_range_release(&range);
    return code;
}
