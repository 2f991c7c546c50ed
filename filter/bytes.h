/* SPDX-License-Identifier: MIT
 *
 * filter/bytes.h -- integers as little-endian bytes, varints, and a cursor that cannot run past its
 * end.
 *
 *   u32 0x11223344   ->  44 33 22 11
 *   varint 300       ->  ac 02           seven bits a byte, low ones first; bit 7 set: more follow
 *
 * Invariants
 *   B1  No function depends on the byte order or the alignment of the machine.
 *   B2  A decoder reads nothing at or beyond `end`.
 *   B3  A number has exactly one varint: overlong forms are refused, so decode and encode
 *       round-trip.
 *   B4  A cursor that has failed stays failed and gives zeros; one check after many reads is
 *       enough.
 *
 * Threads  plain functions on the caller's memory.
 * Not here: checksums and the key hash (hash.h).
 */
#ifndef TM_FILTER_BYTES_H
#define TM_FILTER_BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum {
    TM_VARINT32_BYTES_MAX = 5,  // ceil(32 / 7)
    TM_VARINT64_BYTES_MAX = 10, // ceil(64 / 7)
};

/* B1: the shifts below are what compilers turn into one move (and a byte swap where needed). */

static inline void
tm_put_u16(uint8_t *p, uint16_t v)
{
    p[0] = (uint8_t)v;
    p[1] = (uint8_t)(v >> 8);
}

static inline void
tm_put_u32(uint8_t *p, uint32_t v)
{
    p[0] = (uint8_t)v;
    p[1] = (uint8_t)(v >> 8);
    p[2] = (uint8_t)(v >> 16);
    p[3] = (uint8_t)(v >> 24);
}

static inline void
tm_put_u64(uint8_t *p, uint64_t v)
{
    p[0] = (uint8_t)v;
    p[1] = (uint8_t)(v >> 8);
    p[2] = (uint8_t)(v >> 16);
    p[3] = (uint8_t)(v >> 24);
    p[4] = (uint8_t)(v >> 32);
    p[5] = (uint8_t)(v >> 40);
    p[6] = (uint8_t)(v >> 48);
    p[7] = (uint8_t)(v >> 56);
}

static inline uint16_t
tm_get_u16(const uint8_t *p)
{
    return (uint16_t)(p[0] | (uint32_t)p[1] << 8);
}

static inline uint32_t
tm_get_u32(const uint8_t *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static inline uint64_t
tm_get_u64(const uint8_t *p)
{
    return (uint64_t)p[0] | (uint64_t)p[1] << 8 | (uint64_t)p[2] << 16 | (uint64_t)p[3] << 24 |
           (uint64_t)p[4] << 32 | (uint64_t)p[5] << 40 | (uint64_t)p[6] << 48 |
           (uint64_t)p[7] << 56;
}

/**
 * Write `v` as a varint.
 *
 * @param p  room for TM_VARINT64_BYTES_MAX bytes, or for tm_varint64_bytes(v)
 * @return   the byte after the last one written
 */
static inline uint8_t *
tm_put_varint64(uint8_t *p, uint64_t v)
{
    while (v >= 0x80) {
        *p++ = (uint8_t)(v | 0x80);
        v >>= 7;
    }
    *p++ = (uint8_t)v;
    return p;
}

/**
 * As tm_put_varint64(); at most TM_VARINT32_BYTES_MAX bytes, and the same bytes for the same
 * number.
 */
static inline uint8_t *
tm_put_varint32(uint8_t *p, uint32_t v)
{
    return tm_put_varint64(p, v);
}

/** How many bytes tm_put_varint64() writes for `v`: 1..10. */
static inline size_t
tm_varint64_bytes(uint64_t v)
{
    size_t bytes = 1;

    while (v >= 0x80) {
        v >>= 7;
        bytes++;
    }
    return bytes;
}

/**
 * Read a varint from p..end-1.
 *
 * @param v  [out] the number; untouched on failure
 * @return   the byte after the varint, or NULL: cut short, more than 64 bits, or overlong (B2, B3)
 */
static inline const uint8_t *
tm_get_varint64(const uint8_t *p, const uint8_t *end, uint64_t *v)
{
    uint64_t value = 0;

    if (p < end && *p < 0x80) { // most lengths are below 128
        *v = *p;
        return p + 1;
    }
    for (uint32_t shift = 0; shift < 64 && p < end; shift += 7) {
        uint8_t byte = *p++;

        if (shift == 63 && byte > 1)
            return NULL; // the tenth byte holds one bit
        value |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) {
            if (byte == 0 && shift > 0)
                return NULL; // B3
            *v = value;
            return p;
        }
    }
    return NULL;
}

/** As tm_get_varint64() for a number below 2^32; NULL also for one that is larger. */
static inline const uint8_t *
tm_get_varint32(const uint8_t *p, const uint8_t *end, uint32_t *v)
{
    uint64_t value;
    const uint8_t *next = tm_get_varint64(p, end, &value);

    if (next == NULL || value > UINT32_MAX)
        return NULL;
    *v = (uint32_t)value;
    return next;
}

/** A place in bytes that are not trusted. */
struct tm_cursor {
    const uint8_t *next; // first byte not yet read
    const uint8_t *end;  // one past the last byte
    bool failed;         // some read wanted more, or found no valid number (B4)
};

/** A cursor over `length` bytes; `bytes` may be NULL when `length` is 0. */
static inline struct tm_cursor
tm_cursor_over(const uint8_t *bytes, size_t length)
{
    struct tm_cursor cursor = {bytes, length == 0 ? bytes : bytes + length, false};

    return cursor;
}

/** Bytes not yet read; 0 after a failure. */
static inline size_t
tm_cursor_left(const struct tm_cursor *cursor)
{
    return cursor->failed ? 0 : (size_t)(cursor->end - cursor->next);
}

/**
 * `count` bytes in place, or NULL past the end (then the cursor has failed). NULL too for 0 bytes
 * at NULL.
 */
static inline const uint8_t *
tm_cursor_bytes(struct tm_cursor *cursor, uint64_t count)
{
    const uint8_t *bytes = cursor->next;

    if (count > tm_cursor_left(cursor)) { // by comparison of lengths: a sum could wrap (B2)
        cursor->failed = true;
        return NULL;
    }
    if (cursor->failed)
        return NULL;
    if (count > 0)
        cursor->next += count;
    return bytes;
}

static inline uint8_t
tm_cursor_u8(struct tm_cursor *cursor)
{
    const uint8_t *bytes = tm_cursor_bytes(cursor, 1);

    return bytes == NULL ? 0 : bytes[0];
}

static inline uint16_t
tm_cursor_u16(struct tm_cursor *cursor)
{
    const uint8_t *bytes = tm_cursor_bytes(cursor, 2);

    return bytes == NULL ? 0 : tm_get_u16(bytes);
}

static inline uint32_t
tm_cursor_u32(struct tm_cursor *cursor)
{
    const uint8_t *bytes = tm_cursor_bytes(cursor, 4);

    return bytes == NULL ? 0 : tm_get_u32(bytes);
}

static inline uint64_t
tm_cursor_u64(struct tm_cursor *cursor)
{
    const uint8_t *bytes = tm_cursor_bytes(cursor, 8);

    return bytes == NULL ? 0 : tm_get_u64(bytes);
}

/** A varint of up to 64 bits, or 0 and failed. */
static inline uint64_t
tm_cursor_varint(struct tm_cursor *cursor)
{
    uint64_t value = 0;
    const uint8_t *next =
        cursor->failed ? NULL : tm_get_varint64(cursor->next, cursor->end, &value);

    if (next == NULL) {
        cursor->failed = true;
        return 0;
    }
    cursor->next = next;
    return value;
}

#endif
