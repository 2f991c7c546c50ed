/* SPDX-License-Identifier: MIT
 *
 * tests/filter/test_kernels.c -- every kernel that this machine can run sets the same bits and
 * gives the same answers as the scalar one, which in turn does what the positions say
 * (filter/kernel.h, K1..K3).
 */
#include "filter/kernel.h"

#include "filter/geometry.h"
#include "tests/filter/filter_test.h"

/* Hashes whose parts are all zeros or all ones, then random ones. */
static uint64_t
awkward_hash(uint64_t *state, uint64_t index)
{
    static const uint64_t corners[] = {
        0,
        UINT64_MAX,
        UINT64_C(0x8000000000000000),
        UINT64_C(0x00000000ffffffff),
        UINT64_C(0xffffffff00000000),
        UINT64_C(0x0000000080000000),
        UINT64_C(0xffffffff80000000),
        UINT64_C(0x7fffffffffffffff),
        1,
    };

    if (index < sizeof corners / sizeof corners[0])
        return corners[index];
    return random_next(state);
}

static tamis_filter
filter_over(const tamis_filter_geometry *geometry, const uint8_t *body)
{
    tamis_filter filter = {
        .body = body,
        .lines_a = geometry->lines_a,
        .lines_b = geometry->lines_b,
        .kind = (uint8_t)geometry->kind,
        .probes_a = (uint8_t)geometry->probes_a,
        .probes_b = (uint8_t)geometry->probes_b,
    };

    return filter;
}

static bool
all_positions_are_set(const tamis_filter *filter, uint64_t hash)
{
    uint64_t positions[TAMIS_FILTER_POSITIONS_MAX];
    uint32_t count = tamis_filter_positions(filter, hash, positions);
    bool all = true;

    for (uint32_t i = 0; i < count; i++)
        all &= filter->body[positions[i] / 8] >> (positions[i] % 8) & 1;
    return all;
}

static void
assert_kernels_agree(const tamis_filter_geometry *geometry, uint64_t *state)
{
    enum { GUARD = 64, QUERIES = 300 };
    uint64_t count = geometry->key_count;
    size_t body_bytes = geometry->body_bytes;
    uint64_t *hashes = memory_or_abort(count * sizeof(uint64_t));
    uint64_t queries[QUERIES];
    uint8_t *expected = memory_or_abort(body_bytes);
    uint8_t *guarded = memory_or_abort(body_bytes + 2 * GUARD);
    uint64_t expected_maybe = 0;
    uint64_t outside = 0; // checks are counted in loops: each ck_assert is a write to the parent
    tamis_filter reference = filter_over(geometry, expected);

    for (uint64_t i = 0; i < count; i++)
        hashes[i] = awkward_hash(state, i);
    for (uint64_t i = 0; i < QUERIES; i++)
        queries[i] = i < 10 ? awkward_hash(state, i) : random_next(state);

    // The definition: the bits that the positions name, and no others.
    memset(expected, 0, body_bytes);
    for (uint64_t i = 0; i < count; i++) {
        uint64_t positions[TAMIS_FILTER_POSITIONS_MAX];
        uint32_t probes = tamis_filter_positions(&reference, hashes[i], positions);

        outside += probes != geometry->probes_a + geometry->probes_b;
        for (uint32_t j = 0; j < probes; j++) {
            if (positions[j] < 8 * body_bytes)
                expected[positions[j] / 8] |= (uint8_t)(1u << (positions[j] % 8));
            else
                outside++;
        }
    }
    ck_assert_uint_eq(outside, 0);
    for (uint64_t i = 0; i < QUERIES; i++)
        expected_maybe += all_positions_are_set(&reference, queries[i]);

    for (size_t index = 0; tm_kernel_usable(index) != NULL; index++) {
        const struct tm_kernel *kernel = tm_kernel_usable(index);
        tamis_filter filter = filter_over(geometry, guarded + GUARD);
        uint64_t overwritten = 0;

        memset(guarded, 0xa5, body_bytes + 2 * GUARD);
        memset(guarded + GUARD, 0, body_bytes);
        kernel->insert(&filter, guarded + GUARD, hashes, count);
        ck_assert_msg(memcmp(guarded + GUARD, expected, body_bytes) == 0,
                      "%s sets other bits: kind %d, %u+%u probes, %" PRIu64 "+%" PRIu64 " lines",
                      kernel->name, (int)geometry->kind, geometry->probes_a, geometry->probes_b,
                      geometry->lines_a, geometry->lines_b);
        for (size_t i = 0; i < GUARD; i++) { // K2
            overwritten += guarded[i] != 0xa5;
            overwritten += guarded[GUARD + body_bytes + i] != 0xa5;
        }
        ck_assert_uint_eq(overwritten, 0);
        ck_assert_uint_eq(kernel->count_maybe(&filter, hashes, count), count);
        ck_assert_uint_eq(kernel->count_maybe(&filter, queries, QUERIES), expected_maybe);
        for (uint64_t i = 0; i < QUERIES; i++) {
            if (kernel->may_contain(&filter, queries[i]) !=
                all_positions_are_set(&filter, queries[i]))
                ck_abort_msg("%s answers otherwise: kind %d, %u+%u probes, hash %016" PRIx64,
                             kernel->name, (int)geometry->kind, geometry->probes_a,
                             geometry->probes_b, queries[i]);
        }
    }
    free(hashes);
    free(expected);
    free(guarded);
}

START_TEST(kernels_agree_for_every_number_of_probes)
{
    uint64_t state = test_seed;

    for (uint32_t probes = 1; probes <= TAMIS_FILTER_PROBES_MAX; probes++) {
        for (uint64_t lines = 1; lines <= 40; lines += 13) {
            tamis_filter_geometry geometry;

            ck_assert(
                tm_geometry_explicit(TAMIS_FILTER_STANDARD, 300, lines, probes, 0, &geometry));
            assert_kernels_agree(&geometry, &state);
            ck_assert(tm_geometry_explicit(TAMIS_FILTER_BLK512, 300, lines, probes, 0, &geometry));
            assert_kernels_agree(&geometry, &state);
        }
        for (uint32_t probes_b = 1; probes_b <= TAMIS_FILTER_PROBES_MAX; probes_b++) {
            tamis_filter_geometry geometry;

            ck_assert(tm_geometry_explicit(TAMIS_FILTER_PAIR512, 200, 2 + probes_b % 30, probes,
                                           probes_b, &geometry));
            assert_kernels_agree(&geometry, &state);
        }
    }
}
END_TEST

START_TEST(kernels_agree_on_random_plans)
{
    uint64_t state = test_seed + 1;
    int rounds = SLOW_BUILD ? 60 : 400;

    for (int round = 0; round < rounds; round++) {
        tamis_filter_kind kind = (tamis_filter_kind)(1 + random_below(&state, 3));
        uint64_t count = 1 + random_below(&state, round % 20 == 0 ? 20000 : 500);
        double bits = (double)(1 + random_below(&state, 32000)) / 1000;
        tamis_filter_geometry geometry;

        ck_assert(tamis_filter_plan(kind, count, bits, &geometry));
        assert_kernels_agree(&geometry, &state);
    }
}
END_TEST

START_TEST(kernels_agree_where_they_prefetch)
{
    // Bodies just below and above half a MiB, where the loops change, and one well above.
    static const uint64_t line_counts[] = {8191, 8192, 8193, 20000};
    uint64_t state = test_seed + 2;

    for (size_t i = 0; i < sizeof line_counts / sizeof line_counts[0]; i++) {
        for (int kind = TAMIS_FILTER_STANDARD; kind <= TAMIS_FILTER_PAIR512; kind++) {
            for (uint64_t count = 1; count < 3000; count = count * 3 + 7) { // below and above 16
                tamis_filter_geometry geometry;

                ck_assert(tm_geometry_explicit((tamis_filter_kind)kind, count, line_counts[i], 3,
                                               kind == TAMIS_FILTER_PAIR512 ? 4 : 0, &geometry));
                assert_kernels_agree(&geometry, &state);
            }
        }
    }
}
END_TEST

START_TEST(filters_without_a_body_need_none_in_any_kernel)
{
    static const uint64_t hashes[3] = {0, 1, UINT64_MAX};
    tamis_filter empty = {.kind = TAMIS_FILTER_EMPTY_SET};
    tamis_filter always = tamis_filter_always_true();
    tamis_filter unknown = {.kind = 77};

    for (size_t index = 0; tm_kernel_usable(index) != NULL; index++) {
        const struct tm_kernel *kernel = tm_kernel_usable(index);

        kernel->insert(&empty, NULL, hashes, 3);
        kernel->insert(&always, NULL, hashes, 3);
        kernel->insert(&unknown, NULL, hashes, 3);
        ck_assert_uint_eq(kernel->count_maybe(&empty, hashes, 3), 0);
        ck_assert_uint_eq(kernel->count_maybe(&always, hashes, 3), 3);
        ck_assert_uint_eq(kernel->count_maybe(&unknown, hashes, 3), 3);
        for (int i = 0; i < 3; i++) {
            ck_assert(!kernel->may_contain(&empty, hashes[i]));
            ck_assert(kernel->may_contain(&always, hashes[i]));
            ck_assert(kernel->may_contain(&unknown, hashes[i]));
        }
    }
}
END_TEST

START_TEST(chosen_kernel_is_the_last_usable_one)
{
    size_t count = 0;

    while (tm_kernel_usable(count) != NULL)
        count++;
    ck_assert_ptr_eq(tm_kernel_usable(0), &tm_kernel_scalar);
    ck_assert_ptr_eq(tm_kernel_chosen(), tm_kernel_usable(count - 1));
    ck_assert_str_eq(tamis_filter_kernel_name(), tm_kernel_chosen()->name);
    for (size_t i = 0; i < count; i++)
        printf("kernel %s\n", tm_kernel_usable(i)->name);
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("kernels");
    TCase *tcase = suite_case(suite, "kernels", 300);

    tcase_add_test(tcase, chosen_kernel_is_the_last_usable_one);
    tcase_add_test(tcase, filters_without_a_body_need_none_in_any_kernel);
    tcase_add_test(tcase, kernels_agree_for_every_number_of_probes);
    tcase_add_test(tcase, kernels_agree_on_random_plans);
    tcase_add_test(tcase, kernels_agree_where_they_prefetch);
    return run_suite(suite);
}
