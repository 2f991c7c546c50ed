/* SPDX-License-Identifier: MIT
 *
 * sstable/text.h -- text that goes to somebody's sink in pieces: what the inspection of files writes with.
 */
#ifndef TM_SSTABLE_TEXT_H
#define TM_SSTABLE_TEXT_H

#include <tamis/types.h>

struct tm_text {
    bool (*sink)(void *arg, const char *text, size_t length); // false: stop
    void *arg;
    bool stopped; // the sink has said so; nothing is written any more
};

/** Up to 511 bytes of formatted text. */
void tm_text_emit(struct tm_text *out, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/** Any bytes: printable ASCII as it is, backslash doubled, every other byte as \xHH. */
void tm_text_bytes(struct tm_text *out, tamis_slice bytes);

#endif
