/* SPDX-License-Identifier: MIT
 *
 * sstable/order.h -- the order of keys: bytewise, unless a store was made with a comparator.
 *
 * What searches know of bytes alone holds for the bytewise order only: that keys between two share their common prefix, that
 * 8 bytes as a number decide, that a key can be shortened and still separate, that x with a zero byte is next to x. Under
 * another order prefixes are empty, pieces are zero, separators are whole keys, and the same code comes down to whole
 * comparisons. Where keys of different bytes can be equal there are no filters and no tags either.
 */
#ifndef TM_SSTABLE_ORDER_H
#define TM_SSTABLE_ORDER_H

#include <string.h>

#include <tamis/types.h>

/* Zeroed is bytewise. */
struct tm_order {
    const char *name;                                        // NULL: TM_ORDER_BYTEWISE_NAME
    int (*compare)(void *ctx, tamis_slice a, tamis_slice b); // NULL: bytewise
    void *ctx;
    bool merges_keys; // keys of different bytes may be equal
};

#define TM_ORDER_BYTEWISE_NAME "tamis.bytewise"
enum { TM_ORDER_NAME_BYTES_MAX = 64 }; // TAMIS_COMPARATOR_NAME_BYTES_MAX

static inline tamis_slice
tm_slice(const void *data, size_t length)
{
    tamis_slice slice = {data, length};
    return slice;
}

/** Bytewise order; a prefix comes first. <0, 0, >0. */
static inline int
tm_slice_compare(tamis_slice a, tamis_slice b)
{
    size_t shared = a.length < b.length ? a.length : b.length;
    int order = shared != 0 ? memcmp(a.data, b.data, shared) : 0;
    if (order != 0)
        return order;
    return (a.length > b.length) - (a.length < b.length);
}

static inline bool
tm_slice_equal(tamis_slice a, tamis_slice b)
{
    return a.length == b.length && (a.length == 0 || memcmp(a.data, b.data, a.length) == 0);
}

/** 1 to 64 printable ASCII characters without spaces. */
static inline bool
tm_order_name_is_valid(const char *name)
{
    size_t length = strnlen(name, TM_ORDER_NAME_BYTES_MAX + 1);

    for (size_t i = 0; i < length; i++)
        if (name[i] <= ' ' || name[i] > '~')
            return false;
    return length >= 1 && length <= TM_ORDER_NAME_BYTES_MAX;
}

/** NULL is bytewise. */
static inline bool
tm_order_is_bytewise(const struct tm_order *order)
{
    return order == NULL || order->compare == NULL;
}

static inline bool
tm_order_merges_keys(const struct tm_order *order)
{
    return order != NULL && order->merges_keys;
}

static inline const char *
tm_order_name(const struct tm_order *order)
{
    return order == NULL || order->name == NULL ? TM_ORDER_BYTEWISE_NAME : order->name;
}

/** <0, 0, >0. */
static inline int
tm_order_compare(const struct tm_order *order, tamis_slice a, tamis_slice b)
{
    return tm_order_is_bytewise(order) ? tm_slice_compare(a, b) : order->compare(order->ctx, a, b);
}

static inline bool
tm_order_equal(const struct tm_order *order, tamis_slice a, tamis_slice b)
{
    return tm_order_merges_keys(order) ? order->compare(order->ctx, a, b) == 0
                                       : tm_slice_equal(a, b);
}

#endif
