/* SPDX-License-Identifier: MIT
 *
 * tests/filter/test_filter.c -- plans, and the one promise that is certain: a key that was put in
 * is never answered "no" (filter/geometry.h G1 and G2, filter/build.c U1).
 */
#include <math.h>

#include "filter/geometry.h"
#include "tests/filter/filter_test.h"

START_TEST(no_key_that_was_put_in_is_ever_denied)
{
    static const uint64_t key_counts[] = {1,  2,   3,    15,   16,    17,     51,
                                          52, 100, 1000, 4096, 10000, 100000, 1000000};
    static const double bits[] = {0.01, 1, 4, 10, 14.5, 20, 32};
    size_t sizes = sizeof key_counts / sizeof key_counts[0];

    for (int kind = TAMIS_FILTER_STANDARD; kind <= TAMIS_FILTER_PAIR512; kind++) {
        for (size_t i = 0; i < sizes - SLOW_BUILD; i++) {
            for (size_t j = 0; j < sizeof bits / sizeof bits[0]; j++) {
                uint64_t n = key_counts[i];
                struct built built = build_planned((tamis_filter_kind)kind, n, bits[j], 7);
                uint64_t denied = 0;

                for (uint64_t key = 0; key < n; key++)
                    denied += !tamis_filter_may_contain(&built.filter, present_hash(key, 7));
                ck_assert_uint_eq(denied, 0);
                ck_assert_uint_eq(tamis_filter_count_maybe(&built.filter, built.hashes, n), n);
                built_free(&built);
            }
        }
    }
}
END_TEST

START_TEST(build_may_reorder_hashes_but_keeps_the_set)
{
    enum { COUNT = 5000 };
    struct built built = build_planned(TAMIS_FILTER_PAIR512, COUNT, 10, 3);
    uint64_t sum = 0, expected = 0;

    for (uint64_t i = 0; i < COUNT; i++) {
        sum += built.hashes[i];
        expected += present_hash(i, 3);
    }
    ck_assert_uint_eq(sum, expected);
    built_free(&built);
}
END_TEST

START_TEST(repeated_keys_do_no_harm)
{
    enum { COUNT = 1000 };
    tamis_filter_geometry geometry;
    tamis_filter filter;
    uint64_t hashes[COUNT];
    uint8_t trailer[TAMIS_FILTER_TRAILER_BYTES];
    uint8_t *body;

    ck_assert(tamis_filter_plan(TAMIS_FILTER_PAIR512, COUNT, 10, &geometry));
    body = memory_or_abort(geometry.body_bytes);
    for (uint64_t i = 0; i < COUNT; i++)
        hashes[i] = present_hash(i / 10, 0);
    ck_assert(tamis_filter_build(&geometry, hashes, 0, 10, 0, 0, body, trailer));
    tamis_filter_open(body, geometry.body_bytes, trailer, 0, &filter, NULL);
    ck_assert_uint_eq(tamis_filter_count_maybe(&filter, hashes, COUNT), COUNT);
    free(body);
}
END_TEST

START_TEST(prefetch_changes_no_answer)
{
    for (int kind = TAMIS_FILTER_STANDARD; kind <= TAMIS_FILTER_PAIR512; kind++) {
        struct built built = build_planned((tamis_filter_kind)kind, 1000, 10, 1);
        int changed = 0;

        for (uint64_t i = 0; i < 2000; i++) {
            uint64_t hash = absent_hash(i, 1);
            bool before = tamis_filter_may_contain(&built.filter, hash);

            tamis_filter_prefetch(&built.filter, hash);
            changed += tamis_filter_may_contain(&built.filter, hash) != before;
        }
        ck_assert_int_eq(changed, 0);
        built_free(&built);
    }
}
END_TEST

START_TEST(plan_refuses_bits_that_are_no_number_between_0_and_32)
{
    static const double refused[] = {-0.001, -1, 32.0001, 33, 1e300, -INFINITY, INFINITY, NAN};
    tamis_filter_geometry geometry = {.key_count = 77};

    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        for (int kind = TAMIS_FILTER_STANDARD; kind <= TAMIS_FILTER_PAIR512; kind++)
            ck_assert(!tamis_filter_plan((tamis_filter_kind)kind, 1000, refused[i], &geometry));
        ck_assert(!tamis_filter_plan(TAMIS_FILTER_ALWAYS_TRUE, 1000, refused[i], &geometry));
    }
    ck_assert_uint_eq(geometry.key_count, 77); // untouched
    ck_assert(tamis_filter_plan(TAMIS_FILTER_PAIR512, 1000, 32, &geometry));
}
END_TEST

START_TEST(plan_refuses_kinds_that_cannot_be_built)
{
    tamis_filter_geometry geometry;

    ck_assert(!tamis_filter_plan((tamis_filter_kind)4, 1000, 10, &geometry));
    ck_assert(!tamis_filter_plan((tamis_filter_kind)128, 1000, 10, &geometry));
    ck_assert(!tamis_filter_plan((tamis_filter_kind)-1, 1000, 10, &geometry));
    ck_assert(!tamis_filter_plan(TAMIS_FILTER_EMPTY_SET, 1, 10, &geometry));
    ck_assert(tamis_filter_plan(TAMIS_FILTER_EMPTY_SET, 0, 10, &geometry));
    ck_assert_int_eq(geometry.kind, TAMIS_FILTER_EMPTY_SET);
    ck_assert(tamis_filter_plan(TAMIS_FILTER_ALWAYS_TRUE, 1000, 10, &geometry));
    ck_assert_int_eq(geometry.kind, TAMIS_FILTER_ALWAYS_TRUE);
    ck_assert_uint_eq(geometry.body_bytes, 0);
}
END_TEST

START_TEST(no_bits_are_no_filter_and_no_keys_are_an_empty_set)
{
    for (int kind = TAMIS_FILTER_STANDARD; kind <= TAMIS_FILTER_PAIR512; kind++) {
        tamis_filter_geometry geometry;

        ck_assert(tamis_filter_plan((tamis_filter_kind)kind, 1000, 0, &geometry));
        ck_assert_int_eq(geometry.kind, TAMIS_FILTER_ALWAYS_TRUE);
        ck_assert_uint_eq(geometry.key_count, 1000);
        ck_assert_uint_eq(geometry.body_bytes, 0);
        ck_assert(tamis_filter_plan((tamis_filter_kind)kind, 0, 10, &geometry));
        ck_assert_int_eq(geometry.kind, TAMIS_FILTER_EMPTY_SET);
        ck_assert_uint_eq(geometry.body_bytes, 0);
        ck_assert(tamis_filter_plan((tamis_filter_kind)kind, 0, 0, &geometry));
        ck_assert_int_eq(geometry.kind, TAMIS_FILTER_ALWAYS_TRUE);
        ck_assert(tamis_filter_plan((tamis_filter_kind)kind, 1000, 1e-9, &geometry)); // not none
        ck_assert_uint_eq(geometry.body_bytes, 64);
    }
}
END_TEST

START_TEST(plan_rounds_up_to_whole_lines)
{
    static const struct {
        uint64_t key_count;
        double bits;
        uint64_t lines;
    } rows[] = {
        {1, 10, 1},   {51, 10, 1},    {52, 10, 2},          {512, 1, 1},       {513, 1, 2},
        {100, 10, 2}, {1000, 10, 20}, {1000000, 10, 19532}, {1000, 10.24, 20}, {1000, 10.241, 21},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        for (int kind = TAMIS_FILTER_STANDARD; kind <= TAMIS_FILTER_PAIR512; kind++) {
            tamis_filter_geometry geometry;

            ck_assert(tamis_filter_plan((tamis_filter_kind)kind, rows[i].key_count, rows[i].bits,
                                        &geometry));
            ck_assert_uint_eq(geometry.body_bytes, 64 * rows[i].lines);
            ck_assert_uint_eq(geometry.lines_a + geometry.lines_b, rows[i].lines);
            ck_assert_uint_eq(geometry.key_count, rows[i].key_count);
            ck_assert(tm_geometry_is_valid(&geometry));
        }
    }
}
END_TEST

START_TEST(pair_of_one_line_becomes_a_blk512)
{
    tamis_filter_geometry geometry, blk;

    ck_assert(tamis_filter_plan(TAMIS_FILTER_PAIR512, 51, 10, &geometry));
    ck_assert(tamis_filter_plan(TAMIS_FILTER_BLK512, 51, 10, &blk));
    ck_assert_int_eq(geometry.kind, TAMIS_FILTER_BLK512);
    ck_assert_uint_eq(geometry.probes_a, blk.probes_a);
    ck_assert(tamis_filter_plan(TAMIS_FILTER_PAIR512, 52, 10, &geometry));
    ck_assert_int_eq(geometry.kind, TAMIS_FILTER_PAIR512);
    ck_assert_uint_eq(geometry.lines_a, 1);
    ck_assert_uint_eq(geometry.lines_b, 1);
}
END_TEST

START_TEST(probes_follow_the_bits)
{
    static const struct {
        double bits;
        uint32_t standard, blk, pair_a, pair_b;
    } rows[] = {
        {1, 1, 1, 1, 1},    {4, 3, 3, 1, 2},     {6, 4, 4, 2, 2},    {8, 6, 5, 3, 3},
        {10, 7, 6, 3, 4},   {12, 8, 8, 4, 4},    {15, 10, 9, 5, 5},  {16, 11, 9, 5, 5},
        {20, 14, 11, 6, 7}, {24, 17, 12, 7, 8},  {28, 19, 14, 8, 9}, {32, 22, 15, 9, 10},
        {9.5, 7, 6, 3, 3},  {13.25, 9, 8, 4, 5},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        tamis_filter_geometry geometry;

        ck_assert(tamis_filter_plan(TAMIS_FILTER_STANDARD, 1000000, rows[i].bits, &geometry));
        ck_assert_uint_eq(geometry.probes_a, rows[i].standard);
        ck_assert(tamis_filter_plan(TAMIS_FILTER_BLK512, 1000000, rows[i].bits, &geometry));
        ck_assert_uint_eq(geometry.probes_a, rows[i].blk);
        ck_assert(tamis_filter_plan(TAMIS_FILTER_PAIR512, 1000000, rows[i].bits, &geometry));
        ck_assert_uint_eq(geometry.probes_a, rows[i].pair_a);
        ck_assert_uint_eq(geometry.probes_b, rows[i].pair_b);
    }
}
END_TEST

START_TEST(lines_of_a_pair_are_shared_as_its_probes_are)
{
    tamis_filter_geometry geometry;

    ck_assert(tamis_filter_plan(TAMIS_FILTER_PAIR512, 1000000, 10, &geometry));
    ck_assert_uint_eq(geometry.lines_a, 8371); // 19532 * 3 / 7 = 8370.9
    ck_assert_uint_eq(geometry.lines_b, 11161);
    ck_assert(tm_geometry_explicit(TAMIS_FILTER_PAIR512, 9, 2, 30, 1, &geometry)); // clamped
    ck_assert_uint_eq(geometry.lines_a, 1);
    ck_assert_uint_eq(geometry.lines_b, 1);
}
END_TEST

START_TEST(sizes_beyond_32_and_40_bits_are_exact)
{
    static const struct {
        uint64_t key_count;
        uint32_t millibits;
    } rows[] = {
        {429497, 10000},                       // keys * millibits just above 2^32
        {429496730, 10000},                    // keys * bits just above 2^32
        {UINT64_C(109951162778), 10000},       // ... 2^40
        {UINT64_C(1000000000000), 32000},      // 2^45 bits
        {UINT64_C(100000000000000), 31999},    // keys * millibits above 2^61
        {UINT64_C(100000000000000000), 10001}, // ... above 2^64: a 64-bit product would wrap
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        unsigned __int128 product = (unsigned __int128)rows[i].key_count * rows[i].millibits;
        uint64_t lines = (uint64_t)((product + 511999) / 512000);

        for (int kind = TAMIS_FILTER_STANDARD; kind <= TAMIS_FILTER_PAIR512; kind++) {
            tamis_filter_geometry geometry;

            ck_assert(tamis_filter_plan((tamis_filter_kind)kind, rows[i].key_count,
                                        rows[i].millibits / 1000.0, &geometry));
            ck_assert_uint_eq(geometry.lines_a + geometry.lines_b, lines);
            ck_assert_uint_eq(geometry.body_bytes, 64 * lines);
            if (kind == TAMIS_FILTER_PAIR512) {
                long double share = (long double)lines * geometry.probes_a /
                                    (geometry.probes_a + geometry.probes_b);

                ck_assert(fabsl(share - (long double)geometry.lines_a) <= 0.51L);
            }
        }
    }
}
END_TEST

START_TEST(bodies_beyond_all_memory_are_refused)
{
    tamis_filter_geometry geometry = {.key_count = 77};

    for (int kind = TAMIS_FILTER_STANDARD; kind <= TAMIS_FILTER_PAIR512; kind++) {
        ck_assert(!tamis_filter_plan((tamis_filter_kind)kind, UINT64_MAX, 32, &geometry));
        ck_assert(!tamis_filter_plan((tamis_filter_kind)kind, UINT64_MAX, 10, &geometry));
        ck_assert(!tamis_filter_plan((tamis_filter_kind)kind, UINT64_C(1) << 63, 1.001, &geometry));
    }
    ck_assert_uint_eq(geometry.key_count, 77);
    ck_assert(tamis_filter_plan(TAMIS_FILTER_PAIR512, UINT64_MAX, 0.001, &geometry));
}
END_TEST

START_TEST(plan_is_the_same_for_neighbouring_doubles)
{
    // 10.1 is no exact double; thousandths make it one number on every machine.
    tamis_filter_geometry plain, below, above;

    ck_assert(tamis_filter_plan(TAMIS_FILTER_PAIR512, 512000, 10.1, &plain));
    ck_assert(tamis_filter_plan(TAMIS_FILTER_PAIR512, 512000, nextafter(10.1, 0), &below));
    ck_assert(tamis_filter_plan(TAMIS_FILTER_PAIR512, 512000, nextafter(10.1, 32), &above));
    ck_assert_uint_eq(plain.body_bytes, 64 * 10100);
    ck_assert_uint_eq(below.body_bytes, plain.body_bytes);
    ck_assert_uint_eq(above.body_bytes, plain.body_bytes);
}
END_TEST

START_TEST(explicit_geometries_are_checked)
{
    tamis_filter_geometry geometry;

    ck_assert(!tm_geometry_explicit(TAMIS_FILTER_STANDARD, 10, 1, 0, 0, &geometry));
    ck_assert(!tm_geometry_explicit(TAMIS_FILTER_STANDARD, 10, 1, 31, 0, &geometry));
    ck_assert(!tm_geometry_explicit(TAMIS_FILTER_STANDARD, 10, 1, 7, 1, &geometry));
    ck_assert(!tm_geometry_explicit(TAMIS_FILTER_BLK512, 10, 0, 6, 0, &geometry));
    ck_assert(!tm_geometry_explicit(TAMIS_FILTER_BLK512, 0, 1, 6, 0, &geometry));
    ck_assert(!tm_geometry_explicit(TAMIS_FILTER_BLK512, 10, TM_LINES_MAX + 1, 6, 0, &geometry));
    ck_assert(tm_geometry_explicit(TAMIS_FILTER_BLK512, 10, TM_LINES_MAX, 6, 0, &geometry));
    ck_assert(!tm_geometry_explicit(TAMIS_FILTER_PAIR512, 10, 1, 3, 4, &geometry));
    ck_assert(!tm_geometry_explicit(TAMIS_FILTER_PAIR512, 10, 2, 0, 0, &geometry));
    ck_assert(!tm_geometry_explicit(TAMIS_FILTER_PAIR512, 10, 2, 3, 0, &geometry));
    ck_assert(!tm_geometry_explicit(TAMIS_FILTER_PAIR512, 10, 2, 3, 31, &geometry));
    ck_assert(!tm_geometry_explicit(TAMIS_FILTER_EMPTY_SET, 0, 1, 1, 0, &geometry));
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("filter");
    TCase *tcase = suite_case(suite, "filter", 300);

    tcase_add_test(tcase, no_key_that_was_put_in_is_ever_denied);
    tcase_add_test(tcase, build_may_reorder_hashes_but_keeps_the_set);
    tcase_add_test(tcase, repeated_keys_do_no_harm);
    tcase_add_test(tcase, prefetch_changes_no_answer);
    tcase_add_test(tcase, plan_refuses_bits_that_are_no_number_between_0_and_32);
    tcase_add_test(tcase, plan_refuses_kinds_that_cannot_be_built);
    tcase_add_test(tcase, no_bits_are_no_filter_and_no_keys_are_an_empty_set);
    tcase_add_test(tcase, plan_rounds_up_to_whole_lines);
    tcase_add_test(tcase, pair_of_one_line_becomes_a_blk512);
    tcase_add_test(tcase, probes_follow_the_bits);
    tcase_add_test(tcase, lines_of_a_pair_are_shared_as_its_probes_are);
    tcase_add_test(tcase, sizes_beyond_32_and_40_bits_are_exact);
    tcase_add_test(tcase, bodies_beyond_all_memory_are_refused);
    tcase_add_test(tcase, plan_is_the_same_for_neighbouring_doubles);
    tcase_add_test(tcase, explicit_geometries_are_checked);
    return run_suite(suite);
}
