/* SPDX-License-Identifier: MIT
 *
 * sstable/text.c -- format and escape into a sink.
 */
#include "sstable/text.h"

#include <stdarg.h>
#include <stdio.h>

static void
pass_on(struct tm_text *out, const char *text, size_t length)
{
    if (!out->stopped && length != 0)
        out->stopped = !out->sink(out->arg, text, length);
}

void
tm_text_emit(struct tm_text *out, const char *format, ...)
{
    char line[512];
    va_list arguments;
    int length;

    va_start(arguments, format);
    length = vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    if (length > (int)sizeof line - 1)
        length = (int)sizeof line - 1;
    pass_on(out, line, length > 0 ? (size_t)length : 0);
}

void
tm_text_bytes(struct tm_text *out, tamis_slice bytes)
{
    static const char digits[] = "0123456789abcdef";
    char text[256];
    size_t used = 0;

    for (size_t i = 0; i < bytes.length && !out->stopped; i++) {
        uint8_t byte = ((const uint8_t *)bytes.data)[i];

        if (used + 4 > sizeof text) { // the longest escape
            pass_on(out, text, used);
            used = 0;
        }
        if (byte == '\\') {
            text[used++] = '\\';
            text[used++] = '\\';
        } else if (byte >= 0x20 && byte <= 0x7e) {
            text[used++] = (char)byte;
        } else {
            text[used++] = '\\';
            text[used++] = 'x';
            text[used++] = digits[byte >> 4];
            text[used++] = digits[byte & 15];
        }
    }
    pass_on(out, text, used);
}
