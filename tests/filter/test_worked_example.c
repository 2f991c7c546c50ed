/* SPDX-License-Identifier: MIT
 *
 * tests/filter/test_worked_example.c -- a filter small enough to do by hand, and the same story
 * with a real one.
 *
 *   bit        0  1  2  3  4  5  6  7  8  9 10 11 12 13 14 15
 *   apple            2              7           11
 *   mango                  4        7                   14
 *   set        .  .  x  .  x  .  .  x  .  .  .  x  .  .  x  .
 *
 *   kiwi  asks 2, 8, 11: 8 is not set                  -> certainly not there
 *   pear  asks 4, 7, 14: all set, by mango             -> "maybe", and wrong: a false positive
 *   take mango out by clearing 4, 7, 14, and apple's 7 is gone: apple, which is there, gets a "no".
 *   That would be a lost key, so no call that clears bits exists.
 */
#include "filter/geometry.h"

#include "tests/filter/filter_test.h"

/* Sixteen bits, and fruit whose three hashes are given. */
struct toy {
    uint16_t bits;
};

static const uint8_t apple[3] = {2, 7, 11};
static const uint8_t mango[3] = {4, 7, 14};
static const uint8_t kiwi[3] = {2, 8, 11};
static const uint8_t pear[3] = {4, 7, 14};

static uint16_t
toy_mask(const uint8_t positions[3])
{
    return (uint16_t)(1u << positions[0] | 1u << positions[1] | 1u << positions[2]);
}

static bool
toy_may_contain(const struct toy *toy, const uint8_t positions[3])
{
    return (toy->bits & toy_mask(positions)) == toy_mask(positions);
}

START_TEST(sixteen_bits_tell_absent_from_maybe)
{
    struct toy toy = {0};

    toy.bits |= toy_mask(apple);
    toy.bits |= toy_mask(mango);
    ck_assert_uint_eq(toy.bits, 1u << 2 | 1u << 4 | 1u << 7 | 1u << 11 | 1u << 14);
    ck_assert(toy_may_contain(&toy, apple));
    ck_assert(toy_may_contain(&toy, mango));
    ck_assert(!toy_may_contain(&toy, kiwi));
    ck_assert(toy_may_contain(&toy, pear)); // a false positive
}
END_TEST

START_TEST(clearing_a_key_of_sixteen_bits_would_lose_another)
{
    struct toy toy = {0};

    toy.bits |= toy_mask(apple);
    toy.bits |= toy_mask(mango);
    toy.bits &= (uint16_t)~toy_mask(mango);
    ck_assert(!toy_may_contain(&toy, apple)); // a false negative: bit 7 was shared
}
END_TEST

/* A real filter of one line and three probes, with two keys in it. */
struct real {
    tamis_filter filter;
    uint8_t *body;
};

static struct real
build_real(uint64_t first, uint64_t second)
{
    struct real real;
    uint64_t hashes[2] = {first, second};
    uint8_t trailer[TAMIS_FILTER_TRAILER_BYTES];
    tamis_filter_geometry geometry;

    ck_assert(tm_geometry_explicit(TAMIS_FILTER_BLK512, 2, 1, 3, 0, &geometry));
    real.body = memory_or_abort(geometry.body_bytes);
    ck_assert(tamis_filter_build(&geometry, hashes, 0, 0, 0, 0, real.body, trailer));
    ck_assert_int_eq(
        tamis_filter_open(real.body, geometry.body_bytes, trailer, 0, &real.filter, NULL),
        TAMIS_FILTER_SOUND);
    return real;
}

/* A fruit whose probes share a bit with apple's: as mango does. */
static uint64_t
find_mango(uint64_t apple_hash)
{
    tamis_filter line = {.kind = TAMIS_FILTER_BLK512, .lines_a = 1, .probes_a = 3};
    uint64_t ours[TAMIS_FILTER_POSITIONS_MAX], theirs[TAMIS_FILTER_POSITIONS_MAX];

    tamis_filter_positions(&line, apple_hash, ours);
    for (uint64_t i = 0;; i++) {
        uint64_t hash = present_hash(i, 0);

        tamis_filter_positions(&line, hash, theirs);
        for (int j = 0; j < 9; j++)
            if (ours[j / 3] == theirs[j % 3])
                return hash;
    }
}

START_TEST(real_filter_tells_absent_from_maybe_and_has_a_pear)
{
    uint64_t apple_hash = tamis_hash64("apple", 5, 0);
    uint64_t mango_hash = find_mango(apple_hash);
    struct real real = build_real(apple_hash, mango_hash);
    uint64_t pear_index = 0;

    ck_assert(tamis_filter_may_contain(&real.filter, apple_hash));
    ck_assert(tamis_filter_may_contain(&real.filter, mango_hash));
    ck_assert(!tamis_filter_may_contain(&real.filter, tamis_hash64("kiwi", 4, 0)));
    // About one stranger in a million is a pear: five bits of 512 are set, and it asks three.
    while (!tamis_filter_may_contain(&real.filter, absent_hash(pear_index, 0)))
        pear_index++;
    ck_assert(absent_hash(pear_index, 0) != apple_hash);
    ck_assert(absent_hash(pear_index, 0) != mango_hash);
    printf("the first pear is stranger %" PRIu64 "\n", pear_index);
    free(real.body);
}
END_TEST

START_TEST(clearing_a_key_of_a_real_filter_would_lose_another)
{
    uint64_t apple_hash = tamis_hash64("apple", 5, 0);
    uint64_t mango_hash = find_mango(apple_hash);
    struct real real = build_real(apple_hash, mango_hash);
    uint64_t positions[TAMIS_FILTER_POSITIONS_MAX];
    uint32_t count = tamis_filter_positions(&real.filter, mango_hash, positions);

    for (uint32_t i = 0; i < count; i++)
        real.body[positions[i] / 8] &= (uint8_t) ~(1u << (positions[i] % 8));
    ck_assert(!tamis_filter_may_contain(&real.filter, mango_hash));
    ck_assert(!tamis_filter_may_contain(&real.filter, apple_hash)); // a lost key
    free(real.body);
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("worked example");
    TCase *tcase = suite_case(suite, "worked example", 60);

    tcase_add_test(tcase, sixteen_bits_tell_absent_from_maybe);
    tcase_add_test(tcase, clearing_a_key_of_sixteen_bits_would_lose_another);
    tcase_add_test(tcase, real_filter_tells_absent_from_maybe_and_has_a_pear);
    tcase_add_test(tcase, clearing_a_key_of_a_real_filter_would_lose_another);
    return run_suite(suite);
}
