/* SPDX-License-Identifier: MIT
 *
 * tests/filter/test_positions.c -- golden positions and golden bytes: what is on disk stays as it
 * is, on every machine (filter/probe.h, P1 and P2).
 */
#include "filter/geometry.h"

#include "tests/filter/filter_test.h"

static const uint64_t golden_hashes[4] = {
    UINT64_C(0x0123456789abcdef),
    UINT64_C(0xfedcba9876543210),
    UINT64_C(0x9e3779b97f4a7c15),
    UINT64_C(0xffffffffffffffff),
};

START_TEST(standard_positions_are_the_golden_ones)
{
    static const uint64_t golden[4][7] = {
        {4, 886, 743, 601, 458, 316, 174},
        {1019, 383, 770, 134, 521, 909, 273},
        {632, 591, 549, 507, 465, 423, 382},
        {1023, 245, 490, 735, 980, 202, 447},
    };
    tamis_filter filter = {.kind = TAMIS_FILTER_STANDARD, .lines_a = 2, .probes_a = 7};

    for (int i = 0; i < 4; i++) {
        uint64_t positions[TAMIS_FILTER_POSITIONS_MAX];

        ck_assert_uint_eq(tamis_filter_positions(&filter, golden_hashes[i], positions), 7);
        for (int j = 0; j < 7; j++)
            ck_assert_uint_eq(positions[j], golden[i][j]);
    }
}
END_TEST

START_TEST(blk512_positions_are_the_golden_ones)
{
    static const uint64_t lines[4] = {0, 19, 12, 19};
    static const uint64_t golden[4][6] = {
        {275, 227, 436, 48, 130, 237},
        {236, 479, 132, 232, 273, 341},
        {254, 415, 82, 108, 378, 123},
        {511, 195, 57, 281, 404, 66},
    };
    tamis_filter filter = {.kind = TAMIS_FILTER_BLK512, .lines_a = 20, .probes_a = 6};

    for (int i = 0; i < 4; i++) {
        uint64_t positions[TAMIS_FILTER_POSITIONS_MAX];

        ck_assert_uint_eq(tamis_filter_positions(&filter, golden_hashes[i], positions), 6);
        for (int j = 0; j < 6; j++)
            ck_assert_uint_eq(positions[j], 512 * lines[i] + golden[i][j]);
    }
}
END_TEST

START_TEST(pair512_positions_are_the_golden_ones)
{
    static const uint64_t lines[4][2] = {{0, 8}, {9, 3}, {6, 9}, {9, 2}};
    static const uint64_t golden[4][7] = {
        {275, 227, 436, 48, 130, 237, 129},
        {236, 479, 132, 232, 273, 341, 373},
        {254, 415, 82, 108, 378, 123, 240},
        {511, 195, 57, 281, 404, 66, 503},
    };
    tamis_filter filter = {
        .kind = TAMIS_FILTER_PAIR512,
        .lines_a = 10,
        .lines_b = 10,
        .probes_a = 3,
        .probes_b = 4,
    };

    for (int i = 0; i < 4; i++) {
        uint64_t positions[TAMIS_FILTER_POSITIONS_MAX];

        ck_assert_uint_eq(tamis_filter_positions(&filter, golden_hashes[i], positions), 7);
        for (int j = 0; j < 7; j++) {
            uint64_t line = j < 3 ? lines[i][0] : 10 + lines[i][1];

            ck_assert_uint_eq(positions[j], 512 * line + golden[i][j]);
        }
    }
}
END_TEST

START_TEST(filters_without_a_body_have_no_positions)
{
    tamis_filter empty = {.kind = TAMIS_FILTER_EMPTY_SET};
    tamis_filter always = tamis_filter_always_true();
    uint64_t positions[TAMIS_FILTER_POSITIONS_MAX];

    ck_assert_uint_eq(tamis_filter_positions(&empty, 1, positions), 0);
    ck_assert_uint_eq(tamis_filter_positions(&always, 1, positions), 0);
}
END_TEST

/* Keys are the numbers 0.. as eight bytes, seed 0. The bodies were computed by
 * another program in another language, from the drawing in filter/probe.h alone. */
static const struct {
    tamis_filter_kind kind;
    uint64_t key_count;
    double bits;
    uint64_t body_hash; // XXH3-64 of the body, seed 0
} golden_bodies[] = {
    {TAMIS_FILTER_STANDARD, 1, 6.5, UINT64_C(0x77375b60fc0cb663)},
    {TAMIS_FILTER_STANDARD, 2, 6.5, UINT64_C(0x9b9b68b1b8db70ba)},
    {TAMIS_FILTER_STANDARD, 51, 6.5, UINT64_C(0xcfd1b72e06eea6e2)},
    {TAMIS_FILTER_STANDARD, 52, 6.5, UINT64_C(0xd229ba2cc89eb6b0)},
    {TAMIS_FILTER_STANDARD, 1000, 6.5, UINT64_C(0xfa632a1da54b04ac)},
    {TAMIS_FILTER_STANDARD, 10000, 6.5, UINT64_C(0x81626662f8b28db0)},
    {TAMIS_FILTER_STANDARD, 1, 10, UINT64_C(0x8688ccdd203e2294)},
    {TAMIS_FILTER_STANDARD, 2, 10, UINT64_C(0xe72daea11769b5d9)},
    {TAMIS_FILTER_STANDARD, 51, 10, UINT64_C(0xb506a44e60a3f8e1)},
    {TAMIS_FILTER_STANDARD, 52, 10, UINT64_C(0xf7d7f7a1bc019429)},
    {TAMIS_FILTER_STANDARD, 1000, 10, UINT64_C(0x04a86c3060461aee)},
    {TAMIS_FILTER_STANDARD, 10000, 10, UINT64_C(0x503a2ea342a15b09)},
    {TAMIS_FILTER_STANDARD, 1, 28, UINT64_C(0xc797ad544eaaf81e)},
    {TAMIS_FILTER_STANDARD, 2, 28, UINT64_C(0x90b7dcc2d146fdfb)},
    {TAMIS_FILTER_STANDARD, 51, 28, UINT64_C(0x41eacd8ddbac122f)},
    {TAMIS_FILTER_STANDARD, 52, 28, UINT64_C(0x2d3d1d9d381da9c9)},
    {TAMIS_FILTER_STANDARD, 1000, 28, UINT64_C(0x0679a415dd60266f)},
    {TAMIS_FILTER_STANDARD, 10000, 28, UINT64_C(0x549fa1bbb6b9a926)},
    {TAMIS_FILTER_BLK512, 1, 6.5, UINT64_C(0xe4d007f14c159976)},
    {TAMIS_FILTER_BLK512, 2, 6.5, UINT64_C(0x3192a663e0a92474)},
    {TAMIS_FILTER_BLK512, 51, 6.5, UINT64_C(0x7dbf082544083c20)},
    {TAMIS_FILTER_BLK512, 52, 6.5, UINT64_C(0x91b151ab58826364)},
    {TAMIS_FILTER_BLK512, 1000, 6.5, UINT64_C(0x02634f62d3f885d5)},
    {TAMIS_FILTER_BLK512, 10000, 6.5, UINT64_C(0xa8c2b0532a83eb4d)},
    {TAMIS_FILTER_BLK512, 1, 10, UINT64_C(0xcae520c5e6e97a2f)},
    {TAMIS_FILTER_BLK512, 2, 10, UINT64_C(0x0d84215e7c0fc710)},
    {TAMIS_FILTER_BLK512, 51, 10, UINT64_C(0xd3347d2891f53397)},
    {TAMIS_FILTER_BLK512, 52, 10, UINT64_C(0xdbc6b6146c97a794)},
    {TAMIS_FILTER_BLK512, 1000, 10, UINT64_C(0x053bcb49b51f8824)},
    {TAMIS_FILTER_BLK512, 10000, 10, UINT64_C(0xc9a49e0aed5b5ed8)},
    {TAMIS_FILTER_BLK512, 1, 28, UINT64_C(0x4a10f2ad29a2feb4)},
    {TAMIS_FILTER_BLK512, 2, 28, UINT64_C(0xc48e9fe2a571228c)},
    {TAMIS_FILTER_BLK512, 51, 28, UINT64_C(0xafbc4689004e3a24)},
    {TAMIS_FILTER_BLK512, 52, 28, UINT64_C(0x32302f659a270f1b)},
    {TAMIS_FILTER_BLK512, 1000, 28, UINT64_C(0xfcd7e655d9557b49)},
    {TAMIS_FILTER_BLK512, 10000, 28, UINT64_C(0xdb9da7b2d89ef41a)},
    {TAMIS_FILTER_PAIR512, 1, 6.5, UINT64_C(0xe4d007f14c159976)},
    {TAMIS_FILTER_PAIR512, 2, 6.5, UINT64_C(0x3192a663e0a92474)},
    {TAMIS_FILTER_PAIR512, 51, 6.5, UINT64_C(0x7dbf082544083c20)},
    {TAMIS_FILTER_PAIR512, 52, 6.5, UINT64_C(0x91b151ab58826364)},
    {TAMIS_FILTER_PAIR512, 1000, 6.5, UINT64_C(0xdf009a2c3a6b5ece)},
    {TAMIS_FILTER_PAIR512, 10000, 6.5, UINT64_C(0x270de4a1b54a31ef)},
    {TAMIS_FILTER_PAIR512, 1, 10, UINT64_C(0xcae520c5e6e97a2f)},
    {TAMIS_FILTER_PAIR512, 2, 10, UINT64_C(0x0d84215e7c0fc710)},
    {TAMIS_FILTER_PAIR512, 51, 10, UINT64_C(0xd3347d2891f53397)},
    {TAMIS_FILTER_PAIR512, 52, 10, UINT64_C(0xcb43c86fa688ba76)},
    {TAMIS_FILTER_PAIR512, 1000, 10, UINT64_C(0xf93c100235f9a79f)},
    {TAMIS_FILTER_PAIR512, 10000, 10, UINT64_C(0xd9e8127a90c3792e)},
    {TAMIS_FILTER_PAIR512, 1, 28, UINT64_C(0x4a10f2ad29a2feb4)},
    {TAMIS_FILTER_PAIR512, 2, 28, UINT64_C(0xc48e9fe2a571228c)},
    {TAMIS_FILTER_PAIR512, 51, 28, UINT64_C(0xa136b2db8cefc895)},
    {TAMIS_FILTER_PAIR512, 52, 28, UINT64_C(0x789b4a8e7a98ff99)},
    {TAMIS_FILTER_PAIR512, 1000, 28, UINT64_C(0x4861824614af322b)},
    {TAMIS_FILTER_PAIR512, 10000, 28, UINT64_C(0xb1c1ca599c79c4b8)},
};

START_TEST(bytes_of_filters_are_the_golden_ones)
{
    for (size_t i = 0; i < sizeof golden_bodies / sizeof golden_bodies[0]; i++) {
        struct built built = build_planned(golden_bodies[i].kind, golden_bodies[i].key_count,
                                           golden_bodies[i].bits, 0);
        uint64_t hash = tm_hash64(built.body, built.geometry.body_bytes, 0);

        ck_assert_msg(hash == golden_bodies[i].body_hash,
                      "%s of %" PRIu64 " keys, %g bits: 0x%016" PRIx64,
                      tamis_filter_kind_name(golden_bodies[i].kind), golden_bodies[i].key_count,
                      golden_bodies[i].bits, hash);
        built_free(&built);
    }
}
END_TEST

START_TEST(bytes_depend_on_the_set_and_not_on_the_order)
{
    enum { COUNT = 20000 };
    uint64_t state = test_seed;

    for (int kind = TAMIS_FILTER_STANDARD; kind <= TAMIS_FILTER_PAIR512; kind++) {
        struct built built = build_planned((tamis_filter_kind)kind, COUNT, 10, 0);
        uint8_t *again = memory_or_abort(built.geometry.body_bytes);
        uint8_t trailer[TAMIS_FILTER_TRAILER_BYTES];

        for (uint64_t i = COUNT - 1; i > 0; i--) {
            uint64_t other = random_below(&state, i + 1);
            uint64_t swap = built.hashes[i];

            built.hashes[i] = built.hashes[other];
            built.hashes[other] = swap;
        }
        memset(again, 0xff, built.geometry.body_bytes); // what was there does not matter
        ck_assert(tamis_filter_build(&built.geometry, built.hashes, 0, 0, 0, 0, again, trailer));
        ck_assert_mem_eq(again, built.body, built.geometry.body_bytes);
        ck_assert_mem_eq(trailer, built.trailer, sizeof trailer);
        free(again);
        built_free(&built);
    }
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("positions");
    TCase *tcase = suite_case(suite, "positions", 60);

    tcase_add_test(tcase, standard_positions_are_the_golden_ones);
    tcase_add_test(tcase, blk512_positions_are_the_golden_ones);
    tcase_add_test(tcase, pair512_positions_are_the_golden_ones);
    tcase_add_test(tcase, filters_without_a_body_have_no_positions);
    tcase_add_test(tcase, bytes_of_filters_are_the_golden_ones);
    tcase_add_test(tcase, bytes_depend_on_the_set_and_not_on_the_order);
    return run_suite(suite);
}
