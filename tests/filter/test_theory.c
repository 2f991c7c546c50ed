/* SPDX-License-Identifier: MIT
 *
 * tests/filter/test_theory.c -- the mathematics against figures that were computed elsewhere with
 * 70 digits, against another formula, and against its own limits; and the tables of probes against
 * it (G3).
 */
#include "filter/theory.h"

#include <math.h>
#include <time.h>

#include "filter/geometry.h"
#include "tests/filter/filter_test.h"

#define MILLION UINT64_C(1000000)

static void
assert_close(double measured, double expected, double relative)
{
    ck_assert_msg(fabs(measured - expected) <= relative * expected, "%.10g is not %.10g", measured,
                  expected);
}

static uint64_t
lines_for(double bits)
{
    return (uint64_t)ceil(1e6 * bits / 512);
}

static tamis_filter_geometry
explicit_geometry(tamis_filter_kind kind, uint64_t key_count, uint64_t lines, uint32_t probes_a,
                  uint32_t probes_b)
{
    tamis_filter_geometry geometry;

    ck_assert(tm_geometry_explicit(kind, key_count, lines, probes_a, probes_b, &geometry));
    return geometry;
}

START_TEST(standard_rates_and_fills_are_the_exact_ones)
{
    static const struct {
        uint64_t bits;
        uint32_t probes;
        double percent, fill;
    } rows[] = {
        {4, 3, 14.68917, 0.5276},   {6, 4, 5.60567, 0.4866},    {8, 6, 2.15772, 0.5276},
        {10, 7, 0.819373, 0.5034},  {12, 8, 0.314235, 0.4866},  {15, 10, 0.074399, 0.4866},
        {16, 11, 0.045871, 0.4972}, {20, 14, 0.006714, 0.5034},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        tamis_filter_geometry geometry = explicit_geometry(
            TAMIS_FILTER_STANDARD, MILLION, lines_for((double)rows[i].bits), rows[i].probes, 0);

        assert_close(100 * tm_theory_standard_rate(MILLION, rows[i].bits * MILLION, rows[i].probes,
                                                   rows[i].probes),
                     rows[i].percent, 1e-4);
        // Whole lines: a little more than the bits asked for.
        assert_close(100 * tamis_theory_false_positive_rate(&geometry), rows[i].percent, 1e-3);
        ck_assert_double_le(fabs(tamis_theory_fill(&geometry) - rows[i].fill), 1e-4);
        ck_assert_double_eq(tamis_theory_rate_variance(&geometry), 0);
    }
}
END_TEST

static const struct {
    double bits;
    uint32_t probes_a, probes_b;
    double percent, low, high, fill; // the band is 5 deviations of ten million queries
} line_rows[] = {
    {4, 3, 0, 14.80966, 14.6403, 14.9790, 0.5269},  {6, 4, 0, 5.77389, 5.6817, 5.8661, 0.4856},
    {8, 5, 0, 2.32633, 2.2772, 2.3755, 0.4634},     {10, 6, 0, 0.966315, 0.9397, 0.9929, 0.4496},
    {12, 8, 0, 0.413442, 0.3977, 0.4292, 0.4842},   {15, 9, 0, 0.123219, 0.1162, 0.1302, 0.4486},
    {16, 9, 0, 0.084390, 0.0789, 0.0899, 0.4277},   {20, 11, 0, 0.019781, 0.0174, 0.0222, 0.4200},
    {4, 1, 2, 14.71095, 14.5736, 14.8483, 0.5274},  {6, 2, 2, 5.62931, 5.5579, 5.7008, 0.4862},
    {8, 3, 3, 2.19382, 2.1531, 2.2345, 0.5269},     {10, 3, 4, 0.849719, 0.8286, 0.8709, 0.5025},
    {10, 4, 4, 0.880441, 0.8578, 0.9031, 0.5496},   {12, 4, 4, 0.333378, 0.3219, 0.3448, 0.4856},
    {15, 5, 5, 0.084326, 0.0793, 0.0894, 0.4852},   {16, 5, 6, 0.054138, 0.0502, 0.0581, 0.4956},
    {20, 6, 7, 0.009253, 0.00770, 0.01081, 0.4761},
};

START_TEST(line_rates_fills_and_bands_are_the_exact_ones)
{
    for (size_t i = 0; i < sizeof line_rows / sizeof line_rows[0]; i++) {
        tamis_filter_kind kind =
            line_rows[i].probes_b == 0 ? TAMIS_FILTER_BLK512 : TAMIS_FILTER_PAIR512;
        tamis_filter_geometry geometry =
            explicit_geometry(kind, MILLION, lines_for(line_rows[i].bits), line_rows[i].probes_a,
                              line_rows[i].probes_b);
        double rate = tamis_theory_false_positive_rate(&geometry);
        double deviation = sqrt(rate * (1 - rate) / 1e7 + tamis_theory_rate_variance(&geometry));

        assert_close(100 * rate, line_rows[i].percent, 1e-4);
        assert_close(100 * (rate - 5 * deviation), line_rows[i].low, 3e-3);
        assert_close(100 * (rate + 5 * deviation), line_rows[i].high, 3e-3);
        ck_assert_double_le(fabs(tamis_theory_fill(&geometry) - line_rows[i].fill), 1e-4);
    }
}
END_TEST

START_TEST(rates_over_the_number_of_probes_are_the_exact_ones)
{
    // Ten bits a key, in percent: standard, blk512, pair512.
    static const double rows[20][3] = {
        {9.51626, 9.51591, 0},       {3.28585, 3.33494, 3.28563}, {1.74106, 1.81119, 1.75601},
        {1.18133, 1.26681, 1.19447}, {0.94309, 1.04517, 0.96396}, {0.84362, 0.96632, 0.86592},
        {0.81937, 0.96843, 0.84972}, {0.84555, 1.02820, 0.88044}, {0.91270, 1.13765, 0.95830},
        {1.01859, 1.29600, 1.07253}, {1.16495, 1.50641, 1.23372}, {1.35606, 1.77441, 1.43774},
        {1.59802, 2.10708, 1.69961}, {1.89838, 2.51249, 2.01779}, {2.26582, 2.99929, 2.41022},
        {2.70987, 3.57628, 2.87626}, {3.24067, 4.25208, 3.43571}, {3.86864, 5.03475, 4.08748},
        {4.60413, 5.93145, 4.85195}, {5.45702, 6.94815, 5.72628},
    };

    for (uint32_t k = 1; k <= 20; k++) {
        tamis_filter_geometry blk =
            explicit_geometry(TAMIS_FILTER_BLK512, MILLION, lines_for(10), k, 0);

        assert_close(100 * tm_theory_standard_rate(MILLION, 10 * MILLION, k, k), rows[k - 1][0],
                     1e-5);
        assert_close(100 * tamis_theory_false_positive_rate(&blk), rows[k - 1][1], 1e-5);
        if (k > 1) {
            tamis_filter_geometry pair =
                explicit_geometry(TAMIS_FILTER_PAIR512, MILLION, lines_for(10), k / 2, k - k / 2);

            assert_close(100 * tamis_theory_false_positive_rate(&pair), rows[k - 1][2], 1e-5);
        }
    }
}
END_TEST

START_TEST(rates_of_small_filters_are_the_exact_ones)
{
    // Ten bits a key, in percent: blk512 with 6 probes, standard with max(64, 10 n) | 1 bits and 7.
    static const struct {
        uint64_t key_count;
        double blk, standard;
    } rows[] = {
        {5, 0, 0.251},        {10, 0.0002, 0.851},     {25, 0.027, 0.832},
        {50, 0.771, 0.826},   {51, 0.841, 0.826},      {100, 0.823, 0.823},
        {1000, 0.870, 0.820}, {10000, 0.9519, 0.8194}, {100000, 0.9646, 0.8194},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        uint64_t n = rows[i].key_count;
        uint64_t bits = (10 * n < 64 ? 64 : 10 * n) | 1;

        ck_assert_double_le(
            fabs(100 * tm_theory_line_rate(n, (10 * n + 511) / 512, 6, 6) - rows[i].blk), 6e-4);
        ck_assert_double_le(fabs(100 * tm_theory_standard_rate(n, bits, 7, 7) - rows[i].standard),
                            6e-4);
    }
}
END_TEST

START_TEST(rates_agree_with_inclusion_and_exclusion_where_that_does_not_cancel)
{
    // For one and two query probes the closed forms are short: the chance that one, or that both of
    // two bits are set.
    for (uint64_t n = 1; n <= 20000; n = n * 3 + 1) {
        for (uint64_t lines = 1; lines <= 300; lines = lines * 4 + 1) {
            for (uint32_t k = 1; k <= 30; k += 7) {
                double miss_1 = pow(511 / 512.0, k); // a key of the line misses one bit
                double miss_2 = pow(510 / 512.0, k); // ... misses two given bits
                double empty_1 = pow(1 - (1 - miss_1) / (double)lines, (double)n);
                double empty_2 = pow(1 - (1 - miss_2) / (double)lines, (double)n);
                double both = 1 - 2 * empty_1 + empty_2;
                double two = (1 - empty_1) / 512 + both * 511 / 512;

                ck_assert_double_le(fabs(tm_theory_line_rate(n, lines, k, 1) - (1 - empty_1)),
                                    1e-12);
                ck_assert_double_le(fabs(tm_theory_line_rate(n, lines, k, 2) - two), 1e-12);
            }
        }
    }
}
END_TEST

START_TEST(expansion_for_large_standard_filters_continues_the_exact_sum)
{
    // 100 000 probes are the last that are summed; the rate must not jump there.
    static const uint32_t probes[] = {1, 5, 10, 20, 25};

    for (size_t i = 0; i < sizeof probes / sizeof probes[0]; i++) {
        uint32_t k = probes[i];
        uint64_t n = 100000 / k;
        double summed = tm_theory_standard_rate(n, 10 * n, k, k);
        double expanded = tm_theory_standard_rate(n + 1, 10 * (n + 1), k, k);

        assert_close(expanded, summed, k <= 10 ? 3e-6 : 2e-4);
    }
}
END_TEST

START_TEST(rates_are_sane_from_one_key_to_a_million_million)
{
    for (int exponent = 0; exponent <= 12; exponent++) {
        uint64_t n = (uint64_t)pow(10, exponent);

        for (uint32_t k = 1; k <= TAMIS_FILTER_PROBES_MAX; k += 29) {
            const uint64_t line_counts[3] = {1, n / 512 + 1, n / 51 + 1};
            double before = 1;

            for (int i = 0; i < 3; i++) { // more lines, fewer false positives
                tamis_filter_geometry geometry =
                    explicit_geometry(TAMIS_FILTER_BLK512, n, line_counts[i], k, 0);
                struct timespec start, end;
                double rate, variance, milliseconds;

                clock_gettime(CLOCK_MONOTONIC, &start);
                rate = tamis_theory_false_positive_rate(&geometry);
                clock_gettime(CLOCK_MONOTONIC, &end);
                variance = tamis_theory_rate_variance(&geometry);
                milliseconds = 1e3 * (double)(end.tv_sec - start.tv_sec) +
                               1e-6 * (double)(end.tv_nsec - start.tv_nsec);
                ck_assert(rate > 0 && rate <= 1 + 1e-12);
                ck_assert(variance >= 0 && variance <= 0.25);
                ck_assert_double_le(rate, before * (1 + 1e-9));
                ck_assert_double_le(milliseconds, SLOW_BUILD ? 2000 : 100); // 4 when idle
                before = rate;
            }
        }
    }
}
END_TEST

START_TEST(filters_without_a_body_have_rates_of_nought_and_one)
{
    tamis_filter_geometry empty = {.kind = TAMIS_FILTER_EMPTY_SET};
    tamis_filter_geometry always = {.kind = TAMIS_FILTER_ALWAYS_TRUE, .key_count = 9};

    ck_assert_double_eq(tamis_theory_false_positive_rate(&empty), 0);
    ck_assert_double_eq(tamis_theory_fill(&empty), 0);
    ck_assert_double_eq(tamis_theory_rate_variance(&empty), 0);
    ck_assert_double_eq(tamis_theory_false_positive_rate(&always), 1);
    ck_assert_double_eq(tamis_theory_fill(&always), 1);
    ck_assert_double_eq(tamis_theory_rate_variance(&always), 0);
}
END_TEST

START_TEST(bits_for_a_rate_are_the_known_ones)
{
    static const struct {
        double rate, standard, blk, pair;
    } rows[] = {
        {0.05, 6.247, 6.32, 6.26},     {0.02, 8.152, 8.35, 8.19},
        {0.01, 9.593, 9.92, 9.66},     {0.005, 11.035, 11.54, 11.14},
        {0.001, 14.378, 15.55, 14.63}, {0.0001, 19.173, 22.03, 19.82},
    }; // standard: -k / ln(1 - rate^(1/k)) for the best whole k

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        double rate = rows[i].rate;

        ck_assert_double_le(fabs(tamis_theory_bits_for_rate(TAMIS_FILTER_STANDARD, MILLION, rate) -
                                 rows[i].standard),
                            0.0015);
        ck_assert_double_le(
            fabs(tamis_theory_bits_for_rate(TAMIS_FILTER_BLK512, MILLION, rate) - rows[i].blk),
            0.006);
        ck_assert_double_le(
            fabs(tamis_theory_bits_for_rate(TAMIS_FILTER_PAIR512, MILLION, rate) - rows[i].pair),
            0.006);
    }
}
END_TEST

START_TEST(bits_for_a_rate_reach_it_and_a_thousandth_less_does_not)
{
    uint64_t state = test_seed;

    for (int round = 0; round < 40; round++) {
        tamis_filter_kind kind = (tamis_filter_kind)(1 + round % 3);
        double rate = pow(10, -1 - 4.0 * (double)random_below(&state, 1000) / 1000);
        uint64_t n = 50000 + random_below(&state, 5000000);
        double bits = tamis_theory_bits_for_rate(kind, n, rate);
        tamis_filter_geometry geometry;

        ck_assert(tamis_filter_plan(kind, n, bits, &geometry));
        ck_assert_double_le(tamis_theory_false_positive_rate(&geometry), rate);
        ck_assert(tamis_filter_plan(kind, n, bits - 0.001, &geometry));
        ck_assert_double_gt(tamis_theory_false_positive_rate(&geometry), rate * (1 - 1e-9));
    }
}
END_TEST

START_TEST(bits_for_a_rate_stay_between_none_and_thirty_two)
{
    ck_assert_double_eq(tamis_theory_bits_for_rate(TAMIS_FILTER_PAIR512, MILLION, 1e-12), 32);
    ck_assert_double_eq(tamis_theory_bits_for_rate(TAMIS_FILTER_PAIR512, MILLION, 0), 32);
    ck_assert_double_eq(tamis_theory_bits_for_rate(TAMIS_FILTER_PAIR512, MILLION, NAN), 32);
    ck_assert_double_eq(tamis_theory_bits_for_rate(TAMIS_FILTER_PAIR512, MILLION, 1), 0);
    ck_assert_double_eq(tamis_theory_bits_for_rate(TAMIS_FILTER_PAIR512, 0, 0.01), 0);
    ck_assert_double_eq(tamis_theory_bits_for_rate(TAMIS_FILTER_ALWAYS_TRUE, MILLION, 0.01), 0);
    ck_assert_double_eq(tamis_theory_bits_for_rate(TAMIS_FILTER_EMPTY_SET, MILLION, 0.01), 0);
}
END_TEST

/* The rate of `kind` with `probes` in all, at a thousandth of bits, in a large filter of exactly so
 * many bits: 512 000 * 100 keys have 100 lines a thousandth. */
static double
rate_with_probes(tamis_filter_kind kind, uint32_t millibits, uint32_t probes)
{
    uint32_t probes_a = kind == TAMIS_FILTER_PAIR512 ? probes / 2 : probes;
    tamis_filter_geometry geometry =
        explicit_geometry(kind, 51200000, UINT64_C(100) * millibits, probes_a, probes - probes_a);

    return tamis_theory_false_positive_rate(&geometry);
}

START_TEST(tables_choose_the_best_whole_number_of_probes_at_every_tenth_of_a_bit)
{
    for (int kind = TAMIS_FILTER_STANDARD; kind <= TAMIS_FILTER_PAIR512; kind++) {
        for (uint32_t millibits = 100; millibits <= 32000; millibits += SLOW_BUILD ? 1100 : 100) {
            uint32_t probes = tm_geometry_probes((tamis_filter_kind)kind, millibits);
            double rate = rate_with_probes((tamis_filter_kind)kind, millibits, probes);
            uint32_t least = kind == TAMIS_FILTER_PAIR512 ? 2 : 1;

            if (probes > least)
                ck_assert_double_le(
                    rate, rate_with_probes((tamis_filter_kind)kind, millibits, probes - 1));
            ck_assert_double_le(rate,
                                rate_with_probes((tamis_filter_kind)kind, millibits, probes + 1));
        }
    }
}
END_TEST

START_TEST(pair_splits_its_probes_as_evenly_as_it_can_and_no_other_split_is_better)
{
    for (double bits = 2; bits <= 32; bits += SLOW_BUILD ? 5 : 1) {
        tamis_filter_geometry planned;
        double best;

        ck_assert(tamis_filter_plan(TAMIS_FILTER_PAIR512, 51200000, bits, &planned));
        best = tamis_theory_false_positive_rate(&planned);
        ck_assert_uint_eq(planned.probes_a, (planned.probes_a + planned.probes_b) / 2);
        for (uint32_t a = 1; a <= 14; a++) {
            for (uint32_t b = 1; b <= 14; b++) {
                tamis_filter_geometry other = explicit_geometry(
                    TAMIS_FILTER_PAIR512, 51200000, planned.lines_a + planned.lines_b, a, b);

                ck_assert_double_ge(tamis_theory_false_positive_rate(&other), best * (1 - 1e-12));
            }
        }
    }
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("theory");
    TCase *tcase = suite_case(suite, "theory", 300);

    tcase_add_test(tcase, standard_rates_and_fills_are_the_exact_ones);
    tcase_add_test(tcase, line_rates_fills_and_bands_are_the_exact_ones);
    tcase_add_test(tcase, rates_over_the_number_of_probes_are_the_exact_ones);
    tcase_add_test(tcase, rates_of_small_filters_are_the_exact_ones);
    tcase_add_test(tcase, rates_agree_with_inclusion_and_exclusion_where_that_does_not_cancel);
    tcase_add_test(tcase, expansion_for_large_standard_filters_continues_the_exact_sum);
    tcase_add_test(tcase, rates_are_sane_from_one_key_to_a_million_million);
    tcase_add_test(tcase, filters_without_a_body_have_rates_of_nought_and_one);
    tcase_add_test(tcase, bits_for_a_rate_are_the_known_ones);
    tcase_add_test(tcase, bits_for_a_rate_reach_it_and_a_thousandth_less_does_not);
    tcase_add_test(tcase, bits_for_a_rate_stay_between_none_and_thirty_two);
    tcase_add_test(tcase, tables_choose_the_best_whole_number_of_probes_at_every_tenth_of_a_bit);
    tcase_add_test(tcase, pair_splits_its_probes_as_evenly_as_it_can_and_no_other_split_is_better);
    return run_suite(suite);
}
