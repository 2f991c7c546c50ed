/* SPDX-License-Identifier: MIT
 *
 * tools/cli_text.c -- bytes as text and back, messages, and the ends of a command (opening,
 * closing, last flush).
 *
 * Escapes, the same in scan, dump, load and messages:
 *
 *     \t  \n  \\      tab, newline, backslash
 *     \xHH            other bytes below 0x20, 0x7f, U+0080..U+009F, and bytes that are no UTF-8
 *     anything else   as it is
 *
 * Not here: arguments (cli_arguments.c).
 */
#include "cli.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>

const char *cli_command_name;

/* Bytes of the UTF-8 character at `at`; 0 when there is none. */
static size_t
utf8_length(const unsigned char *at, size_t left)
{
    unsigned lead = at[0];
    unsigned low = 0x80; // allowed range of the second byte: no overlong forms, no surrogates
    unsigned high = 0xbf;
    size_t length;

    if (lead < 0x80)
        return 1;
    if (lead >= 0xc2 && lead <= 0xdf) {
        length = 2;
    } else if (lead >= 0xe0 && lead <= 0xef) {
        length = 3;
        if (lead == 0xe0)
            low = 0xa0;
        if (lead == 0xed)
            high = 0x9f;
    } else if (lead >= 0xf0 && lead <= 0xf4) {
        length = 4;
        if (lead == 0xf0)
            low = 0x90;
        if (lead == 0xf4)
            high = 0x8f;
    } else {
        return 0;
    }
    if (left < length || at[1] < low || at[1] > high)
        return 0;
    for (size_t i = 2; i < length; i++) {
        if ((at[i] & 0xc0) != 0x80)
            return 0;
    }
    return length;
}

/* A control character: below 0x20, 0x7f, U+0080..U+009F. `at` begins a character. */
static bool
is_control(const unsigned char *at)
{
    return at[0] < 0x20 || at[0] == 0x7f || (at[0] == 0xc2 && at[1] < 0xa0);
}

/* Bytes of the UTF-8 character at `at` that may be shown as it is; 0 when it may not. */
static size_t
printable_length(const unsigned char *at, size_t left)
{
    size_t length = utf8_length(at, left);

    return length > 0 && is_control(at) ? 0 : length;
}

/* Bytes at `at` that stand for themselves: the common case, written in one piece. */
static size_t
plain_length(const unsigned char *at, size_t left)
{
    size_t length = 0;

    while (length < left && at[length] >= 0x20 && at[length] < 0x7f && at[length] != '\\')
        length++;
    return length;
}

bool
cli_is_utf8(tamis_slice bytes)
{
    const unsigned char *at = bytes.data;
    size_t left = bytes.length;

    while (left > 0) {
        size_t length = plain_length(at, left);

        if (length == 0)
            length = utf8_length(at, left);
        if (length == 0)
            return false;
        at += length;
        left -= length;
    }
    return true;
}

static void
write_escaped(FILE *out, tamis_slice bytes, bool backslash_too, size_t width_max)
{
    const unsigned char *at = bytes.data;
    size_t left = bytes.length;
    size_t width = 0;

    while (left > 0) {
        size_t length = plain_length(at, left);

        if (width == width_max) {
            fputs("...", out);
            return;
        }
        if (length > 0) {
            if (length > width_max - width)
                length = width_max - width;
            fwrite(at, 1, length, out);
            width += length;
            at += length;
            left -= length;
            continue;
        }
        length = printable_length(at, left);
        if (*at == '\\' && backslash_too) {
            fputs("\\\\", out);
        } else if (length > 0) {
            fwrite(at, 1, length, out);
        } else {
            length = 1;
            if (*at == '\t')
                fputs("\\t", out);
            else if (*at == '\n')
                fputs("\\n", out);
            else
                fprintf(out, "\\x%02x", *at);
        }
        width++;
        at += length;
        left -= length;
    }
}

void
cli_write_escaped(FILE *out, tamis_slice bytes)
{
    write_escaped(out, bytes, true, SIZE_MAX);
}

void
cli_write_escaped_short(FILE *out, tamis_slice bytes, size_t width_max)
{
    write_escaped(out, bytes, true, width_max);
}

static int
hex_digit(char digit)
{
    if (digit >= '0' && digit <= '9')
        return digit - '0';
    if (digit >= 'a' && digit <= 'f')
        return digit - 'a' + 10;
    if (digit >= 'A' && digit <= 'F')
        return digit - 'A' + 10;
    return -1;
}

bool
cli_unescape(char *text, size_t *length, size_t *error_at)
{
    char *first = memchr(text, '\\', *length);
    size_t read = first != NULL ? (size_t)(first - text) : *length;
    size_t written = read;

    while (read < *length) {
        size_t left = *length - read;

        if (text[read] != '\\') {
            text[written++] = text[read++];
        } else if (left >= 2 && text[read + 1] == 't') {
            text[written++] = '\t';
            read += 2;
        } else if (left >= 2 && text[read + 1] == 'n') {
            text[written++] = '\n';
            read += 2;
        } else if (left >= 2 && text[read + 1] == '\\') {
            text[written++] = '\\';
            read += 2;
        } else if (left >= 4 && text[read + 1] == 'x' && hex_digit(text[read + 2]) >= 0 &&
                   hex_digit(text[read + 3]) >= 0) {
            text[written++] = (char)(hex_digit(text[read + 2]) * 16 + hex_digit(text[read + 3]));
            read += 4;
        } else {
            *error_at = read;
            return false;
        }
    }
    *length = written;
    return true;
}

bool
cli_unhex(char *text, size_t *length, size_t *error_at)
{
    for (size_t i = 0; i < *length; i += 2) {
        int high = hex_digit(text[i]);
        int low = i + 1 < *length ? hex_digit(text[i + 1]) : -1;

        if (high < 0 || low < 0) {
            *error_at = high < 0 ? i : i + 1;
            return false;
        }
        text[i / 2] = (char)(high * 16 + low);
    }
    *length /= 2;
    return true;
}

void
cli_write_bytes(FILE *out, tamis_slice bytes)
{
    if (bytes.length > 0)
        fwrite(bytes.data, 1, bytes.length, out);
}

void
cli_write_hex(FILE *out, tamis_slice bytes)
{
    static const char digits[] = "0123456789abcdef";
    const unsigned char *at = bytes.data;

    for (size_t i = 0; i < bytes.length; i++) {
        putc(digits[at[i] >> 4], out);
        putc(digits[at[i] & 15], out);
    }
}

void
cli_write_json_string(FILE *out, tamis_slice text)
{
    const unsigned char *at = text.data;
    const unsigned char *end = at + text.length;

    putc('"', out);
    while (at < end) {
        size_t length = plain_length(at, (size_t)(end - at)); // a run, in one piece but for quotes
        const unsigned char *quote = length > 0 ? memchr(at, '"', length) : NULL;

        if (quote != NULL)
            length = (size_t)(quote - at);
        if (length > 0) {
            fwrite(at, 1, length, out);
            at += length;
            continue;
        }
        length = utf8_length(at, (size_t)(end - at));
        if (length == 0) {
            fputs("\\ufffd", out);
            length = 1;
        } else if (is_control(at)) {
            fprintf(out, "\\u%04x", at[0] == 0xc2 ? at[1] : at[0]);
        } else if (*at == '"' || *at == '\\') {
            fprintf(out, "\\%c", *at);
        } else {
            fwrite(at, 1, length, out);
        }
        at += length;
    }
    putc('"', out);
}

int
cli_compare(tamis_slice a, tamis_slice b)
{
    size_t shorter = a.length < b.length ? a.length : b.length;
    int order = shorter > 0 ? memcmp(a.data, b.data, shorter) : 0;

    return order != 0 ? order : (a.length > b.length) - (a.length < b.length);
}

const char *
cli_format_bytes(uint64_t bytes, char buffer[32])
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    double value = (double)bytes;
    int unit = 0;

    while (value >= 1024.0 && unit < 4) {
        value /= 1024.0;
        unit++;
    }
    snprintf(buffer, 32, unit == 0 ? "%.0f %s" : "%.1f %s", value, units[unit]);
    return buffer;
}

static void
print_message(const char *format, va_list arguments)
{
    char *text = NULL;
    int length = vasprintf(&text, format, arguments);

    fprintf(stderr, "tamis%s%s: ", cli_command_name != NULL ? " " : "",
            cli_command_name != NULL ? cli_command_name : "");
    if (length >= 0)
        write_escaped(stderr, (tamis_slice){text, (size_t)length}, false, SIZE_MAX);
    fputc('\n', stderr);
    free(length >= 0 ? text : NULL);
}

int
cli_fail(const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    print_message(format, arguments);
    va_end(arguments);
    return CLI_FAILED;
}

int
cli_fail_usage(const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    print_message(format, arguments);
    va_end(arguments);
    if (cli_command_name != NULL)
        fprintf(stderr, "help: tamis %s --help\n", cli_command_name);
    else
        fputs("help: tamis help\n", stderr);
    return CLI_USAGE;
}

/* What the store does not tell by the status of a call: damaged filters, files that stay, compaction that
 * stands still. Any thread. */
static void
hear(void *ctx, tamis_log_level level, const char *message)
{
    (void)ctx;
    flockfile(stderr);
    fprintf(stderr, "tamis %s: %s: ", cli_command_name,
            level == TAMIS_LOG_ERROR ? "error" : "warning");
    write_escaped(stderr, tamis_text(message), false, SIZE_MAX);
    fputc('\n', stderr);
    funlockfile(stderr);
}

int
cli_fail_at(const char *path, const char *message)
{
    const char *slash = strrchr(path, '/');
    const char *name = slash != NULL && slash[1] != 0 ? slash + 1 : path;
    size_t length = strlen(name);

    if (strncmp(message, name, length) == 0 && message[length] == ':')
        return cli_fail("%.*s%s", (int)(name - path), path, message);
    return cli_fail("%s: %s", path, message);
}

/* Opening it failed because something would have been written, or another one writes. */
static bool
may_be_read_all_the_same(tamis_status status, const tamis_error *err)
{
    return status == TAMIS_BUSY || status == TAMIS_NO_SPACE ||
           (status == TAMIS_IO &&
            (err->os_error == EROFS || err->os_error == EACCES || err->os_error == EPERM));
}

int
cli_open(const struct cli_arguments *arguments, enum cli_access access, tamis_db **db_out)
{
    const tamis_logger logger = {NULL, hear, TAMIS_LOG_WARNING};
    tamis_options options = arguments->store;
    tamis_error err;
    tamis_status status;

    options.create_if_missing = access == CLI_MAKES;
    options.read_only = access == CLI_READS;
    options.logger = &logger;
    status = tamis_open(cli_path(arguments), &options, db_out, &err);
    if (access == CLI_SHOWS && may_be_read_all_the_same(status, &err)) {
        options.read_only = true;
        status = tamis_open(cli_path(arguments), &options, db_out, &err);
    }
    switch (status) {
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

int
cli_close(tamis_db *db, int code)
{
    tamis_error err;

    if (tamis_close(db, &err) != TAMIS_OK && (code == CLI_OK || code == CLI_NOT_FOUND))
        return cli_fail("closing: %s", err.message);
    return code;
}

int
cli_finish_output(int code)
{
    if ((fflush(stdout) != 0 || ferror(stdout)) && code != CLI_FAILED)
        return cli_fail("standard output was cut short: %s", strerror(errno));
    return code;
}

static bool
is_standard(const char *path)
{
    return strcmp(path, "-") == 0;
}

const char *
cli_input_name(const char *path)
{
    return is_standard(path) ? "standard input" : path;
}

FILE *
cli_open_input(const char *path)
{
    FILE *input = is_standard(path) ? stdin : fopen(path, "re");

    if (input == NULL)
        (void)cli_fail("%s: %s", path, strerror(errno));
    return input;
}
