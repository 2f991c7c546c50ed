/* SPDX-License-Identifier: MIT
 *
 * sstable/range_set.c -- sorted ranges with the furthest end so far.
 *
 *     one piece of memory:  struct tm_range_set | ranges | furthest
 */
#include "sstable/range_set.h"

#include <stdlib.h>

size_t
tm_range_set_bytes(size_t count)
{
    return sizeof(struct tm_range_set) + count * (sizeof(struct tm_range) + sizeof(uint32_t));
}

static int
compare_ranges(const void *a, const void *b)
{
    return tm_range_compare(a, b);
}

void
tm_range_sort(struct tm_range *ranges, size_t count)
{
    if (count > 1)
        qsort(ranges, count, sizeof *ranges, compare_ranges);
}

struct tm_range_set *
tm_range_set_merge(void *memory, const struct tm_range_set *const *sets, size_t set_count)
{
    struct tm_range_set *set = memory;
    struct tm_range *ranges = (struct tm_range *)(set + 1);
    uint32_t *furthest;
    size_t count = 0;

    for (size_t i = 0; i < set_count; i++) {
        if (sets[i]->count != 0)
            memcpy(ranges + count, sets[i]->ranges, sets[i]->count * sizeof *ranges);
        count += sets[i]->count;
    }
    if (set_count > 1)
        tm_range_sort(ranges, count);
    furthest = (uint32_t *)(ranges + count);
    for (uint32_t i = 0, best = 0; i < count; i++) {
        if (tm_slice_compare(ranges[i].to, ranges[best].to) > 0)
            best = i;
        furthest[i] = best;
    }
    *set = (struct tm_range_set){NULL, count, ranges, furthest};
    return set;
}

/* How many ranges begin at or before `key`. */
static size_t
count_begun(const struct tm_range_set *set, tamis_slice key)
{
    size_t low = 0;
    size_t high = set->count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (tm_slice_compare(set->ranges[middle].from, key) <= 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool
ends_behind(const struct tm_range_set *set, size_t index, tamis_slice key)
{
    return tm_slice_compare(set->ranges[set->furthest[index]].to, key) > 0;
}

/* Make the stretch reach over `range` as well; both hold one key. */
static void
reach_over(struct tm_range *stretch, const struct tm_range *range)
{
    if (stretch->sequence == 0) {
        *stretch = *range;
        return;
    }
    if (tm_slice_compare(range->from, stretch->from) < 0)
        stretch->from = range->from;
    if (tm_slice_compare(range->to, stretch->to) > 0)
        stretch->to = range->to;
    if (range->sequence > stretch->sequence)
        stretch->sequence = range->sequence;
}

struct tm_range
tm_range_set_around(const struct tm_range_set *set, tamis_slice key, uint64_t above,
                    uint64_t sequence)
{
    struct tm_range stretch = {.sequence = 0};

    for (; set != NULL; set = set->next)
        for (size_t i = count_begun(set, key); i-- > 0 && ends_behind(set, i, key);) {
            const struct tm_range *range = &set->ranges[i];

            if (range->sequence > above && range->sequence <= sequence &&
                tm_slice_compare(range->to, key) > 0)
                reach_over(&stretch, range);
        }
    return stretch;
}

bool
tm_range_set_contains(const struct tm_range_set *set, const struct tm_range *range,
                      uint64_t sequence)
{
    // The last byte of a range is not known, so that its end is compared with ends.
    for (size_t i = count_begun(set, range->from);
         i-- > 0 && tm_slice_compare(set->ranges[set->furthest[i]].to, range->to) >= 0;) {
        const struct tm_range *other = &set->ranges[i];

        if (other->sequence > range->sequence && other->sequence <= sequence &&
            tm_slice_compare(other->to, range->to) >= 0)
            return true;
    }
    return false;
}
