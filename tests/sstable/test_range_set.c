/* SPDX-License-Identifier: MIT
 *
 * tests/sstable/test_range_set.c -- which range covers a key: what looking at each of them gives.
 */
#include <check.h>
#include <stdlib.h>

#include "sstable/range_set.h"
#include "tests/support/check_status.h"
#include "tests/support/rng.h"

enum { RANGES_MAX = 60, SETS_MAX = 6 };

static char texts[RANGES_MAX * 2][4];
static struct tm_range ranges[RANGES_MAX];
static size_t range_count;

static tamis_slice
random_bound(struct rng *rng, char text[4])
{
    size_t length = (size_t)rng_below(rng, 4);

    for (size_t i = 0; i < length; i++)
        text[i] = (char)("\0abc"[rng_below(rng, 4)]);
    return tm_slice(text, length);
}

/* Some overlap, some lie within others, some begin together. */
static void
make_ranges(struct rng *rng, size_t count)
{
    range_count = 0;
    while (range_count < count) {
        struct tm_range *range = &ranges[range_count];

        range->from = random_bound(rng, texts[2 * range_count]);
        range->to = random_bound(rng, texts[2 * range_count + 1]);
        range->sequence = 10 + 2 * range_count;
        if (tm_slice_compare(range->from, range->to) < 0)
            range_count++;
    }
}

static struct tm_range
around_by_looking(tamis_slice key, uint64_t above, uint64_t sequence)
{
    struct tm_range around = {.sequence = 0};

    for (size_t i = 0; i < range_count; i++) {
        const struct tm_range *range = &ranges[i];

        if (tm_slice_compare(range->from, key) > 0 || tm_slice_compare(range->to, key) <= 0 ||
            range->sequence <= above || range->sequence > sequence)
            continue;
        if (around.sequence == 0 || tm_slice_compare(range->from, around.from) < 0)
            around.from = range->from;
        if (around.sequence == 0 || tm_slice_compare(range->to, around.to) > 0)
            around.to = range->to;
        around.sequence = range->sequence; // they ascend
    }
    return around;
}

static bool
contains_by_looking(const struct tm_range *range, uint64_t sequence)
{
    for (size_t i = 0; i < range_count; i++)
        if (tm_slice_compare(ranges[i].from, range->from) <= 0 &&
            tm_slice_compare(ranges[i].to, range->to) >= 0 &&
            ranges[i].sequence > range->sequence && ranges[i].sequence <= sequence)
            return true;
    return false;
}

/* All ranges as one set, made of up to `set_count` sets, each sorted. */
static struct tm_range_set *
make_set(struct rng *rng, size_t set_count)
{
    struct tm_range part[SETS_MAX][RANGES_MAX];
    struct tm_range_set sets[SETS_MAX] = {0};
    const struct tm_range_set *list[SETS_MAX];

    for (size_t i = 0; i < range_count; i++) {
        size_t set = (size_t)rng_below(rng, set_count);

        part[set][sets[set].count++] = ranges[i];
    }
    for (size_t i = 0; i < set_count; i++) {
        tm_range_sort(part[i], sets[i].count);
        sets[i].ranges = part[i];
        list[i] = &sets[i];
    }
    return tm_range_set_merge(malloc(tm_range_set_bytes(range_count)), list, set_count);
}

static void
check_around(const struct tm_range_set *set, tamis_slice key, uint64_t above, uint64_t sequence)
{
    struct tm_range found = tm_range_set_around(set, key, above, sequence);
    struct tm_range expected = around_by_looking(key, above, sequence);

    ck_assert_uint_eq(found.sequence, expected.sequence);
    ck_assert(tm_slice_equal(found.from, expected.from) && tm_slice_equal(found.to, expected.to));
    if (above == 0)
        ck_assert_uint_eq(tm_range_set_cover(set, key, sequence), expected.sequence);
}

START_TEST(around_cover_and_contains_are_what_looking_at_each_range_gives)
{
    struct rng rng = rng_from(rng_seed("cover_and_contains", 51));

    for (unsigned round = 0; round < 3000; round++) {
        struct tm_range_set *set;

        make_ranges(&rng, 1 + (size_t)rng_below(&rng, round % 2 ? 5 : RANGES_MAX));
        set = make_set(&rng, 1 + (size_t)rng_below(&rng, SETS_MAX));
        ck_assert_uint_eq(set->count, range_count);
        for (size_t i = 1; i < set->count; i++)
            ck_assert_int_lt(tm_range_compare(&set->ranges[i - 1], &set->ranges[i]), 0);
        for (unsigned i = 0; i < 60; i++) {
            char text[4];
            tamis_slice key = random_bound(&rng, text);
            uint64_t sequence = rng_below(&rng, 2 * RANGES_MAX + 20);
            const struct tm_range *range = &ranges[rng_below(&rng, range_count)];

            check_around(set, key, rng_chance(&rng, 1, 2) ? 0 : rng_below(&rng, sequence + 1),
                         sequence);
            ck_assert_int_eq(tm_range_set_contains(set, range, sequence),
                             contains_by_looking(range, sequence));
        }
        free(set);
    }
}
END_TEST

START_TEST(the_newest_of_several_sets_counts_and_no_set_covers_nothing)
{
    const struct tm_range old = {tm_slice("a", 1), tm_slice("m", 1), 7};
    const struct tm_range new = {tm_slice("c", 1), tm_slice("z", 1), 9};
    const uint32_t first = 0;
    const struct tm_range_set older = {NULL, 1, &old, &first};
    const struct tm_range_set newer = {&older, 1, &new, &first};

    ck_assert_uint_eq(tm_range_set_cover(NULL, tm_slice("d", 1), UINT64_MAX), 0);
    ck_assert_uint_eq(tm_range_set_cover(&newer, tm_slice("b", 1), UINT64_MAX), 7);
    ck_assert_uint_eq(tm_range_set_cover(&newer, tm_slice("d", 1), UINT64_MAX), 9);
    ck_assert_uint_eq(tm_range_set_cover(&newer, tm_slice("d", 1), 8), 7);
    ck_assert_uint_eq(tm_range_set_cover(&newer, tm_slice("d", 1), 6), 0);
    ck_assert_uint_eq(tm_range_set_cover(&newer, tm_slice("m", 1), UINT64_MAX), 9);
    ck_assert_uint_eq(tm_range_set_cover(&newer, tm_slice("z", 1), UINT64_MAX), 0);
}
END_TEST

START_TEST(a_reach_is_behind_every_key_of_the_range_and_grows_with_the_end)
{
    struct rng rng = rng_from(rng_seed("reach", 52));

    for (unsigned i = 0; i < 20000; i++) {
        char key_text[4], to_text[4], other_text[4];
        tamis_slice key = random_bound(&rng, key_text);
        tamis_slice to = random_bound(&rng, to_text);
        tamis_slice other = random_bound(&rng, other_text);

        if (tm_slice_compare(key, to) < 0)
            ck_assert_int_le(tm_slice_compare(key, tm_range_reach(to)), 0);
        if (tm_slice_compare(to, other) <= 0)
            ck_assert_int_le(tm_slice_compare(tm_range_reach(to), tm_range_reach(other)), 0);
    }
    ck_assert(tm_slice_equal(tm_range_reach(tm_slice("x\0", 2)), tm_slice("x", 1)));
    ck_assert(tm_slice_equal(tm_range_reach(tm_slice("x", 1)), tm_slice("x", 1)));
    ck_assert(tm_slice_equal(tm_range_reach(tm_slice("", 0)), tm_slice("", 0)));
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("range set");
    TCase *tests = tcase_create("range set");

    tcase_add_test(tests, around_cover_and_contains_are_what_looking_at_each_range_gives);
    tcase_add_test(tests, the_newest_of_several_sets_counts_and_no_set_covers_nothing);
    tcase_add_test(tests, a_reach_is_behind_every_key_of_the_range_and_grows_with_the_end);
    suite_add_tcase(suite, tests);
    return check_run(suite);
}
