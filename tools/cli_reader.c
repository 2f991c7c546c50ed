/* SPDX-License-Identifier: MIT
 *
 * tools/cli_reader.c -- records from a file: TSV and CSV, and the lines that JSON comes in.
 *
 *     text    the lines of one record without their end; key and value are decoded in place
 *
 * Not here: JSON (cli_reader_json.c), what is done with a record (command_load.c).
 */
#include "cli.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>

static bool __attribute__((format(printf, 2, 3)))
complain(struct cli_reader *reader, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(reader->problem, sizeof reader->problem, format, arguments);
    va_end(arguments);
    return false;
}

/* ---- Lines ---------------------------------------------------------------------------------- */

/* Put a line behind the text, which doubles when it has no room. */
static bool
join_line(struct cli_reader *reader, const char *line, size_t length)
{
    size_t needed = reader->length + length;

    if (needed > reader->capacity) {
        char *larger = realloc(reader->text, 2 * needed);

        if (larger == NULL)
            return false;
        reader->text = larger;
        reader->capacity = 2 * needed;
    }
    memcpy(reader->text + reader->length, line, length);
    reader->length = needed;
    return true;
}

/* Add the next line to the text, with its newline. false: the end of the input, or a failure. */
static bool
add_line(struct cli_reader *reader)
{
    char *line = NULL;
    size_t capacity = 0;
    ssize_t length;
    bool joined;

    errno = 0;
    if (reader->length == 0) { // the usual case needs no copy
        length = getline(&reader->text, &reader->capacity, reader->input);
        if (length < 0)
            return false;
        reader->length = (size_t)length;
    } else {
        length = getline(&line, &capacity, reader->input);
        joined = length >= 0 && join_line(reader, line, (size_t)length);
        free(line);
        if (!joined)
            return false;
    }
    reader->line_count++;
    reader->byte_count += (uint64_t)length;
    return true;
}

static size_t
count_quotes(const char *text, size_t length)
{
    size_t count = 0;

    for (size_t i = 0; i < length; i++)
        count += text[i] == '"';
    return count;
}

/* The lines of one record: more than one where a CSV field holds newlines, which is while a quote is
 * open. */
static enum cli_read
read_text(struct cli_reader *reader)
{
    size_t quotes = 0;
    size_t looked_at = 0;

    reader->length = 0;
    reader->line = reader->line_count + 1;
    do {
        if (!add_line(reader)) {
            if (!feof(reader->input))
                return CLI_READ_FAILED;
            if (reader->length == 0)
                return CLI_READ_END;
            complain(reader, "a quote is open to the end of the file");
            return CLI_READ_BAD_RECORD;
        }
        if (reader->format == CLI_FORMAT_CSV)
            quotes += count_quotes(reader->text + looked_at, reader->length - looked_at);
        looked_at = reader->length;
    } while (quotes % 2 != 0);
    if (reader->text[reader->length - 1] == '\n')
        reader->length--;
    return CLI_READ_RECORD;
}

/* ---- TSV ------------------------------------------------------------------------------------ */

/* Decode a field in place; `offset` is where it begins in the text. */
static bool
decode(struct cli_reader *reader, size_t offset, tamis_slice *field)
{
    char *text = reader->text + offset;
    size_t error_at;

    if (reader->hex && !cli_unhex(text, &field->length, &error_at))
        return complain(reader, "expected pairs of hexadecimal digits at byte %zu",
                        offset + error_at + 1);
    if (!reader->hex && reader->format == CLI_FORMAT_TSV &&
        !cli_unescape(text, &field->length, &error_at))
        return complain(
            reader, "expected \\t, \\n, \\\\ or \\xHH at byte %zu (a backslash is written \\\\)",
            offset + error_at + 1);
    field->data = text;
    return true;
}

static bool
parse_tsv(struct cli_reader *reader, tamis_slice *key, tamis_slice *value)
{
    char *tab = memchr(reader->text, '\t', reader->length);
    size_t value_offset;

    if (tab == NULL)
        return complain(reader, "expected key, tab, value; found no tab");
    key->length = (size_t)(tab - reader->text);
    value_offset = key->length + 1;
    value->length = reader->length - value_offset;
    tab = memchr(reader->text + value_offset, '\t', value->length);
    if (tab != NULL)
        return complain(reader,
                        "expected one tab; found a second one at byte %zu (a tab inside a value "
                        "is written \\t)",
                        (size_t)(tab - reader->text) + 1);
    return decode(reader, value_offset, value) && decode(reader, 0, key);
}

/* ---- CSV ------------------------------------------------------------------------------------ */

/* A quoted field that begins behind *at; its bytes move to where it began. */
static bool
take_quoted(struct cli_reader *reader, size_t *at, tamis_slice *field)
{
    char *text = reader->text;
    size_t begin = *at;
    size_t written = begin;
    size_t read = begin + 1;

    while (read < reader->length) {
        if (text[read] == '"' && (read + 1 == reader->length || text[read + 1] != '"'))
            break;
        read += text[read] == '"'; // two stand for one
        text[written++] = text[read++];
    }
    if (read >= reader->length)
        return complain(reader, "the quote at byte %zu is not closed", begin + 1);
    *field = (tamis_slice){text + begin, written - begin};
    *at = read + 1;
    return true;
}

static bool
take_plain(struct cli_reader *reader, size_t *at, tamis_slice *field)
{
    size_t begin = *at;

    while (*at < reader->length && reader->text[*at] != ',') {
        if (reader->text[*at] == '"')
            return complain(
                reader,
                "a quote inside a field at byte %zu (a field with quotes is quoted, and "
                "its quotes doubled)",
                *at + 1);
        ++*at;
    }
    *field = (tamis_slice){reader->text + begin, *at - begin};
    return true;
}

/* A field, and what must follow it: a comma, or the end. */
static bool
take_field(struct cli_reader *reader, size_t *at, bool is_last, tamis_slice *field)
{
    bool quoted = *at < reader->length && reader->text[*at] == '"';
    size_t begin = *at;

    if (!(quoted ? take_quoted(reader, at, field) : take_plain(reader, at, field)))
        return false;
    if (is_last ? *at != reader->length : *at == reader->length || reader->text[*at] != ',')
        return complain(reader, "expected two fields, key and value; found %s at byte %zu",
                        *at == reader->length      ? "the end"
                        : reader->text[*at] == ',' ? "a third one"
                                                   : "more behind a quote",
                        *at + 1);
    ++*at;
    return decode(reader, begin, field);
}

static bool
parse_csv(struct cli_reader *reader, tamis_slice *key, tamis_slice *value)
{
    size_t at = 0;

    // Lines may end with carriage return and newline; a field that ends with one is quoted.
    if (reader->length > 0 && reader->text[reader->length - 1] == '\r')
        reader->length--;
    return take_field(reader, &at, false, key) && take_field(reader, &at, true, value);
}

/* ---- Any format ----------------------------------------------------------------------------- */

enum cli_read
cli_read_record(struct cli_reader *reader, tamis_slice *key, tamis_slice *value)
{
    enum cli_read result;
    bool good = false;

    cli_release_json(reader);
    result = read_text(reader);
    if (result != CLI_READ_RECORD)
        return result;
    switch (reader->format) {
    case CLI_FORMAT_TSV:
        good = parse_tsv(reader, key, value);
        break;
    case CLI_FORMAT_CSV:
        good = parse_csv(reader, key, value);
        break;
    case CLI_FORMAT_JSONL:
        good = cli_parse_json(reader, key, value);
        break;
    }
    return good ? CLI_READ_RECORD : CLI_READ_BAD_RECORD;
}

void
cli_reader_release(struct cli_reader *reader)
{
    cli_release_json(reader);
    free(reader->text);
    reader->text = NULL;
}
