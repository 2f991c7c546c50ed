/* SPDX-License-Identifier: MIT
 *
 * sstable/entry.h -- one version of one key, and the order in which versions stand.
 *
 * Order: user keys ascending (order.h); versions of one key newest first, that is by descending sequence.
 * A sequence number belongs to one entry only, so that no two entries are equal.
 */
#ifndef TM_SSTABLE_ENTRY_H
#define TM_SSTABLE_ENTRY_H

#include "sstable/env.h"

enum { TM_SEQUENCE_BITS = 56 };
#define TM_SEQUENCE_MAX (((uint64_t)1 << TM_SEQUENCE_BITS) - 1)

// On disk: DO NOT CHANGE.
enum tm_kind {
    TM_KIND_DELETE = 0,
    TM_KIND_PUT = 1,
    TM_KIND_DELETE_RANGE = 2, // in batches and logs; in tables ranges stand apart (range_set.h)
};

struct tm_entry {
    tamis_slice key;
    tamis_slice value; // empty for TM_KIND_DELETE; of TM_KIND_DELETE_RANGE the end of the range
    uint64_t sequence;
    enum tm_kind kind;
};

// What a search in one place answers. DELETED stops the search in older places.
enum tm_lookup {
    TM_ABSENT = 0,
    TM_FOUND = 1,
    TM_DELETED = 2,
};

static inline int
tm_entry_compare(const struct tm_order *key_order, tamis_slice key_a, uint64_t sequence_a,
                 tamis_slice key_b, uint64_t sequence_b)
{
    int order = tm_order_compare(key_order, key_a, key_b);
    if (order != 0)
        return order;
    return (sequence_a < sequence_b) - (sequence_a > sequence_b);
}

/** How many bytes `a` and `b` share at their start. */
static inline size_t
tm_slice_shared(tamis_slice a, tamis_slice b)
{
    const uint8_t *p = a.data;
    const uint8_t *q = b.data;
    size_t limit = a.length < b.length ? a.length : b.length;
    size_t shared = 0;

    // Eight at a time: keys with prefixes of hundreds of bytes are common, and builders ask for every entry.
    while (limit - shared >= 8 && memcmp(p + shared, q + shared, 8) == 0)
        shared += 8;
    while (shared < limit && p[shared] == q[shared])
        shared++;
    return shared;
}

#endif
