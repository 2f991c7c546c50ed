/* SPDX-License-Identifier: MIT
 *
 * tests/filter/filter_test.h -- what the filter tests share: seed, random numbers, keys, memory,
 * main.
 *
 * Every random choice starts from one seed, printed at the start; TAMIS_SEED=n sets it.
 */
#ifndef TM_TESTS_FILTER_TEST_H
#define TM_TESTS_FILTER_TEST_H

#include <check.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tamis/filter.h>

#include "filter/hash.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SLOW_BUILD = 1 }; // about ten times slower: loops are shortened, and bands widened to match
#else
enum { SLOW_BUILD = 0 };
#endif

static uint64_t test_seed;

/* A full-period mixer: one call, one number. */
static inline uint64_t
random_next(uint64_t *state)
{
    uint64_t x = *state += UINT64_C(0x9e3779b97f4a7c15);

    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

static inline uint64_t
random_below(uint64_t *state, uint64_t limit)
{
    return random_next(state) % limit;
}

/* Key `index` of the set that is put into filters, as 8 bytes, little-endian. */
static inline uint64_t
present_hash(uint64_t index, uint64_t seed)
{
    return tm_hash64(&index, sizeof index, seed);
}

/* Key `index` of a set that has no key in common with the first. */
static inline uint64_t
absent_hash(uint64_t index, uint64_t seed)
{
    return present_hash(index | UINT64_C(1) << 62, seed);
}

static inline void *
memory_or_abort(size_t bytes)
{
    void *memory = aligned_alloc(64, (bytes + 63) / 64 * 64 + 64);

    if (memory == NULL)
        abort();
    return memory;
}

/* A filter with all that belongs to it. */
struct built {
    tamis_filter_geometry geometry;
    uint64_t *hashes; // as given; build may have reordered them
    uint8_t *body;
    uint8_t trailer[TAMIS_FILTER_TRAILER_BYTES];
    tamis_filter filter;
};

static inline struct built
build_geometry(tamis_filter_geometry geometry, uint64_t seed)
{
    struct built built = {.geometry = geometry};

    built.hashes = memory_or_abort(geometry.key_count * sizeof(uint64_t));
    built.body = memory_or_abort(geometry.body_bytes);
    for (uint64_t i = 0; i < geometry.key_count; i++)
        built.hashes[i] = present_hash(i, seed);
    ck_assert(
        tamis_filter_build(&geometry, built.hashes, seed, 0, 0, 0, built.body, built.trailer));
    ck_assert_int_eq(
        tamis_filter_open(built.body, geometry.body_bytes, built.trailer, 0, &built.filter, NULL),
        TAMIS_FILTER_SOUND);
    return built;
}

static inline struct built
build_planned(tamis_filter_kind kind, uint64_t key_count, double bits, uint64_t seed)
{
    tamis_filter_geometry geometry;

    ck_assert(tamis_filter_plan(kind, key_count, bits, &geometry));
    return build_geometry(geometry, seed);
}

static inline void
built_free(struct built *built)
{
    free(built->hashes);
    free(built->body);
}

/* How many of `queries` keys that are not in the set get a "maybe". */
static inline uint64_t
count_false_positives(const tamis_filter *filter, uint64_t queries, uint64_t seed)
{
    enum { BATCH = 4096 };
    uint64_t hashes[BATCH];
    uint64_t maybe = 0;

    for (uint64_t start = 0; start < queries; start += BATCH) {
        uint64_t batch = queries - start < BATCH ? queries - start : BATCH;

        for (uint64_t i = 0; i < batch; i++)
            hashes[i] = absent_hash(start + i, seed);
        maybe += tamis_filter_count_maybe(filter, hashes, batch);
    }
    return maybe;
}

static inline int
run_suite(Suite *suite)
{
    const char *text = getenv("TAMIS_SEED");
    SRunner *runner;
    int failed;

    test_seed = text != NULL ? strtoull(text, NULL, 0) : 20240229; // any number would do
    printf("TAMIS_SEED=%" PRIu64 " kernel=%s\n", test_seed, tamis_filter_kernel_name());
    fflush(stdout);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

/* A suite of one case; `timeout_s` because Check gives a test only 4 s by itself. */
static inline TCase *
suite_case(Suite *suite, const char *name, double timeout_s)
{
    TCase *tcase = tcase_create(name);

    tcase_set_timeout(tcase, timeout_s);
    suite_add_tcase(suite, tcase);
    return tcase;
}

#endif
