/* SPDX-License-Identifier: MIT
 *
 * tests/filter/test_envelope.c -- the trailer, byte by byte, and every way in which it can be
 * wrong: damage gives "maybe" and a name, never "no" (filter/envelope.h, F1..F4).
 */
#include "filter/envelope.h"

#include "filter/bytes.h"
#include "filter/geometry.h"
#include "tests/filter/filter_test.h"

#define CONTEXT UINT64_C(0x7461626c65203132)
#define SEED    UINT64_C(0x1122334455667788)

/* A small sound filter and its trailer. */
struct sealed {
    tamis_filter_geometry geometry;
    uint8_t *body;
    uint8_t trailer[TAMIS_FILTER_TRAILER_BYTES];
};

static struct sealed
seal(tamis_filter_kind kind, uint64_t key_count, double bits, uint64_t first_key)
{
    struct sealed sealed;
    uint64_t *hashes = memory_or_abort(key_count * sizeof(uint64_t));

    ck_assert(tamis_filter_plan(kind, key_count, bits, &sealed.geometry));
    sealed.body = memory_or_abort(sealed.geometry.body_bytes);
    for (uint64_t i = 0; i < key_count; i++)
        hashes[i] = present_hash(first_key + i, SEED);
    ck_assert(tamis_filter_build(&sealed.geometry, hashes, SEED, bits, 0.0085, CONTEXT, sealed.body,
                                 sealed.trailer));
    free(hashes);
    return sealed;
}

/* Open and demand: this damage, and "maybe" to all. With SOUND, that the filter is in use. */
static void
assert_opens_as(tamis_filter_damage expected, const uint8_t *body, uint64_t body_bytes,
                const uint8_t *trailer, uint64_t context)
{
    tamis_filter filter;
    tamis_filter_info info;
    tamis_filter_damage damage =
        tamis_filter_open(body, body_bytes, trailer, context, &filter, &info);
    int noes = 0;

    ck_assert_msg(damage == expected, "%s, not %s", tamis_filter_damage_name(damage),
                  tamis_filter_damage_name(expected));
    for (uint64_t i = 0; i < 50; i++)
        noes += !tamis_filter_may_contain(&filter, absent_hash(i, SEED));
    if (expected == TAMIS_FILTER_SOUND) {
        ck_assert_int_gt(noes, 0);
        return;
    }
    ck_assert_int_eq(noes, 0); // F2
    ck_assert_int_eq(filter.kind, TAMIS_FILTER_ALWAYS_TRUE);
    ck_assert_ptr_null(filter.body);
    ck_assert_int_eq(info.geometry.kind, TAMIS_FILTER_ALWAYS_TRUE);
    ck_assert_uint_eq(info.geometry.key_count, 0);
    ck_assert_uint_eq(info.hash_seed, 0);
}

/* Make the checksum right again after a change, as a later version or a malicious writer would. */
static void
reseal(uint8_t *trailer)
{
    tm_put_u64(trailer + 120, tm_hash64(trailer, 120, CONTEXT));
}

START_TEST(trailer_has_every_field_at_its_place)
{
    struct sealed sealed = seal(TAMIS_FILTER_PAIR512, 200, 10.5, 0);
    const uint8_t *trailer = sealed.trailer;

    ck_assert_mem_eq(trailer, "TMF1", 4);
    ck_assert_uint_eq(trailer[4], 1); // version
    ck_assert_uint_eq(trailer[5], 3); // pair512
    ck_assert_uint_eq(trailer[6], 1); // XXH3-64
    ck_assert_uint_eq(trailer[7], 1); // whole key
    ck_assert_uint_eq(tm_get_u64(trailer + 8), SEED);
    ck_assert_uint_eq(tm_get_u64(trailer + 16), 200);
    ck_assert_uint_eq(tm_get_u64(trailer + 24), 5 * 64); // 200 * 10.5 / 512 = 4.1
    ck_assert_uint_eq(tm_get_u64(trailer + 32), 2);      // 5 * 3 / 7 = 2.1
    ck_assert_uint_eq(tm_get_u64(trailer + 40), 3);
    ck_assert_uint_eq(trailer[48], 3);
    ck_assert_uint_eq(trailer[49], 4);
    ck_assert_uint_eq(tm_get_u16(trailer + 50), 0);
    ck_assert_uint_eq(tm_get_u32(trailer + 52), 8500000); // 0.0085
    ck_assert_uint_eq(tm_get_u32(trailer + 56), 10500);
    for (size_t i = 60; i < 112; i++)
        ck_assert_uint_eq(trailer[i], 0);
    ck_assert_uint_eq(tm_get_u64(trailer + 112), tm_hash64(sealed.body, 5 * 64, CONTEXT));
    ck_assert_uint_eq(tm_get_u64(trailer + 120), tm_hash64(trailer, 120, CONTEXT));
    free(sealed.body);
}
END_TEST

START_TEST(numbers_on_disk_are_pinned)
{
    ck_assert_int_eq(TAMIS_FILTER_EMPTY_SET, 0);
    ck_assert_int_eq(TAMIS_FILTER_STANDARD, 1);
    ck_assert_int_eq(TAMIS_FILTER_BLK512, 2);
    ck_assert_int_eq(TAMIS_FILTER_PAIR512, 3);
    ck_assert_int_eq(TAMIS_FILTER_ALWAYS_TRUE, 255);
    ck_assert_int_eq(TAMIS_FILTER_TRAILER_BYTES, 128);
    ck_assert_int_eq(TAMIS_FILTER_ALIGN_BYTES, 64);
    ck_assert_int_eq(TM_FILTER_FORMAT_VERSION, 1);
    ck_assert_int_eq(TM_HASH_ID_XXH3_64, 1);
    ck_assert_int_eq(TM_FILTER_DOMAIN_WHOLE_KEY, 1);
    ck_assert_uint_eq(TM_FILTER_MAGIC, 0x31464d54);
}
END_TEST

START_TEST(open_returns_the_facts_that_build_was_given)
{
    struct sealed sealed = seal(TAMIS_FILTER_PAIR512, 1000, 12.345, 0);
    tamis_filter filter;
    tamis_filter_info info;

    ck_assert_int_eq(tamis_filter_open(sealed.body, sealed.geometry.body_bytes, sealed.trailer,
                                       CONTEXT, &filter, &info),
                     TAMIS_FILTER_SOUND);
    ck_assert_int_eq(info.geometry.kind, TAMIS_FILTER_PAIR512);
    ck_assert_uint_eq(info.geometry.key_count, 1000);
    ck_assert_uint_eq(info.geometry.body_bytes, sealed.geometry.body_bytes);
    ck_assert_uint_eq(info.geometry.lines_a, sealed.geometry.lines_a);
    ck_assert_uint_eq(info.geometry.lines_b, sealed.geometry.lines_b);
    ck_assert_uint_eq(info.geometry.probes_a, sealed.geometry.probes_a);
    ck_assert_uint_eq(info.geometry.probes_b, sealed.geometry.probes_b);
    ck_assert_uint_eq(info.hash_seed, SEED);
    ck_assert_double_eq_tol(info.bits_per_key_requested, 12.345, 1e-9);
    ck_assert_double_eq_tol(info.bits_per_key_delivered,
                            8.0 * (double)sealed.geometry.body_bytes / 1000, 1e-9);
    ck_assert_double_eq_tol(info.false_positive_rate_target, 0.0085, 1e-12);
    ck_assert_ptr_eq(filter.body, sealed.body);
    for (uint64_t i = 0; i < 1000; i++)
        ck_assert(tamis_filter_may_contain(&filter, present_hash(i, SEED)));
    free(sealed.body);
}
END_TEST

START_TEST(empty_set_says_no_and_always_true_says_maybe_after_reopening)
{
    static const tamis_filter_kind kinds[] = {TAMIS_FILTER_EMPTY_SET, TAMIS_FILTER_ALWAYS_TRUE};

    for (int i = 0; i < 2; i++) {
        tamis_filter_geometry geometry;
        tamis_filter filter;
        tamis_filter_info info;
        uint8_t trailer[TAMIS_FILTER_TRAILER_BYTES];

        ck_assert(tamis_filter_plan(kinds[i], i == 0 ? 0 : 12, 10, &geometry));
        ck_assert(tamis_filter_build(&geometry, NULL, SEED, 10, 0, CONTEXT, NULL, trailer));
        ck_assert_int_eq(tamis_filter_open(NULL, 0, trailer, CONTEXT, &filter, &info),
                         TAMIS_FILTER_SOUND);
        ck_assert_int_eq(info.geometry.kind, kinds[i]);
        ck_assert_uint_eq(info.geometry.key_count, i == 0 ? 0 : 12);
        ck_assert_double_eq(info.bits_per_key_delivered, 0);
        ck_assert_int_eq(tamis_filter_may_contain(&filter, 42), i == 1);
        tamis_filter_prefetch(&filter, 42);
    }
}
END_TEST

START_TEST(every_flipped_bit_of_a_trailer_is_damage)
{
    struct sealed sealed = seal(TAMIS_FILTER_PAIR512, 100, 10, 0);

    assert_opens_as(TAMIS_FILTER_SOUND, sealed.body, sealed.geometry.body_bytes, sealed.trailer,
                    CONTEXT);
    for (size_t bit = 0; bit < 8 * TAMIS_FILTER_TRAILER_BYTES; bit++) {
        uint8_t flipped[TAMIS_FILTER_TRAILER_BYTES];

        memcpy(flipped, sealed.trailer, sizeof flipped);
        flipped[bit / 8] ^= (uint8_t)(1u << (bit % 8));
        assert_opens_as(bit < 32 ? TAMIS_FILTER_BAD_MAGIC : TAMIS_FILTER_BAD_TRAILER_CHECKSUM,
                        sealed.body, sealed.geometry.body_bytes, flipped, CONTEXT);
    }
    free(sealed.body);
}
END_TEST

START_TEST(every_flipped_bit_of_a_body_is_damage)
{
    for (int kind = TAMIS_FILTER_STANDARD; kind <= TAMIS_FILTER_PAIR512; kind++) {
        struct sealed sealed = seal((tamis_filter_kind)kind, 100, 10, 0);

        for (size_t bit = 0; bit < 8 * sealed.geometry.body_bytes; bit++) {
            sealed.body[bit / 8] ^= (uint8_t)(1u << (bit % 8));
            assert_opens_as(TAMIS_FILTER_BAD_BODY_CHECKSUM, sealed.body, sealed.geometry.body_bytes,
                            sealed.trailer, CONTEXT);
            sealed.body[bit / 8] ^= (uint8_t)(1u << (bit % 8));
        }
        assert_opens_as(TAMIS_FILTER_SOUND, sealed.body, sealed.geometry.body_bytes, sealed.trailer,
                        CONTEXT);
        free(sealed.body);
    }
}
END_TEST

START_TEST(body_of_another_length_is_damage)
{
    struct sealed sealed = seal(TAMIS_FILTER_BLK512, 300, 10, 0);

    for (uint64_t bytes = 0; bytes < sealed.geometry.body_bytes; bytes += bytes < 70 ? 1 : 64)
        assert_opens_as(TAMIS_FILTER_BAD_GEOMETRY, sealed.body, bytes, sealed.trailer, CONTEXT);
    free(sealed.body);
}
END_TEST

START_TEST(zeroed_shifted_and_foreign_trailers_are_damage)
{
    struct sealed sealed = seal(TAMIS_FILTER_PAIR512, 100, 10, 0);
    uint64_t body_bytes = sealed.geometry.body_bytes;
    uint8_t trailer[TAMIS_FILTER_TRAILER_BYTES + 8] = {0};

    assert_opens_as(TAMIS_FILTER_BAD_MAGIC, sealed.body, body_bytes, trailer, CONTEXT);
    assert_opens_as(TAMIS_FILTER_BAD_MAGIC, NULL, 0, trailer, CONTEXT); // F2: not an empty set
    memset(trailer, 0xff, sizeof trailer);
    assert_opens_as(TAMIS_FILTER_BAD_MAGIC, sealed.body, body_bytes, trailer, CONTEXT);
    memset(trailer, 0, sizeof trailer);
    memcpy(trailer, sealed.trailer + 8, TAMIS_FILTER_TRAILER_BYTES - 8);
    assert_opens_as(TAMIS_FILTER_BAD_MAGIC, sealed.body, body_bytes, trailer, CONTEXT);
    for (size_t kept = 4; kept < TAMIS_FILTER_TRAILER_BYTES; kept++) { // the rest never written
        memset(trailer, 0, sizeof trailer);
        memcpy(trailer, sealed.trailer, kept);
        assert_opens_as(TAMIS_FILTER_BAD_TRAILER_CHECKSUM, sealed.body, body_bytes, trailer,
                        CONTEXT);
    }
    free(sealed.body);
}
END_TEST

START_TEST(filters_of_two_places_cannot_be_swapped)
{
    struct sealed one = seal(TAMIS_FILTER_PAIR512, 100, 10, 0);
    struct sealed other = seal(TAMIS_FILTER_PAIR512, 100, 10, 5000);

    // Body and trailer moved together to another place, then one of them alone within a place.
    assert_opens_as(TAMIS_FILTER_BAD_TRAILER_CHECKSUM, one.body, one.geometry.body_bytes,
                    one.trailer, CONTEXT + 1);
    assert_opens_as(TAMIS_FILTER_BAD_TRAILER_CHECKSUM, one.body, one.geometry.body_bytes,
                    one.trailer, 0);
    assert_opens_as(TAMIS_FILTER_BAD_BODY_CHECKSUM, other.body, other.geometry.body_bytes,
                    one.trailer, CONTEXT);
    free(one.body);
    free(other.body);
}
END_TEST

START_TEST(fields_that_are_out_of_range_are_named_even_under_a_right_checksum)
{
    struct sealed sealed = seal(TAMIS_FILTER_PAIR512, 100, 10, 0);
    static const struct {
        size_t offset;
        uint8_t value;
        tamis_filter_damage damage;
    } changes[] = {
        {4, 0, TAMIS_FILTER_BAD_VERSION},
        {4, 2, TAMIS_FILTER_BAD_VERSION},
        {5, 4, TAMIS_FILTER_BAD_KIND},
        {5, 5, TAMIS_FILTER_BAD_KIND},
        {5, 64, TAMIS_FILTER_BAD_KIND},
        {5, 128, TAMIS_FILTER_BAD_KIND},
        {5, 254, TAMIS_FILTER_BAD_KIND},
        {6, 0, TAMIS_FILTER_BAD_HASH_ID},
        {6, 2, TAMIS_FILTER_BAD_HASH_ID},
        {7, 0, TAMIS_FILTER_BAD_FIELD},
        {7, 2, TAMIS_FILTER_BAD_FIELD},
        {7, 3, TAMIS_FILTER_BAD_FIELD},
        {50, 1, TAMIS_FILTER_BAD_FIELD},
        {51, 1, TAMIS_FILTER_BAD_FIELD},
        {55, 0x80, TAMIS_FILTER_BAD_FIELD}, // a rate above one
        {58, 1, TAMIS_FILTER_BAD_FIELD},    // more than 65 bits a key
        {5, 0, TAMIS_FILTER_BAD_GEOMETRY},  // an empty set with a body
        {5, 1, TAMIS_FILTER_BAD_GEOMETRY},  // one line array, and probes for two
        {5, 2, TAMIS_FILTER_BAD_GEOMETRY},
        {5, 255, TAMIS_FILTER_BAD_GEOMETRY},
        {16, 0, TAMIS_FILTER_BAD_GEOMETRY}, // no keys
        {24, 64, TAMIS_FILTER_BAD_GEOMETRY},
        {32, 0, TAMIS_FILTER_BAD_GEOMETRY},
        {32, 2, TAMIS_FILTER_BAD_GEOMETRY},
        {40, 0, TAMIS_FILTER_BAD_GEOMETRY},
        {48, 0, TAMIS_FILTER_BAD_GEOMETRY},
        {48, 31, TAMIS_FILTER_BAD_GEOMETRY},
        {49, 0, TAMIS_FILTER_BAD_GEOMETRY},
        {49, 255, TAMIS_FILTER_BAD_GEOMETRY},
        {112, 0, TAMIS_FILTER_BAD_BODY_CHECKSUM},
    };

    ck_assert_uint_eq(sealed.geometry.lines_a, 1); // so that every change below is one
    ck_assert_uint_eq(sealed.geometry.lines_b, 1);
    for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++) {
        uint8_t trailer[TAMIS_FILTER_TRAILER_BYTES];

        memcpy(trailer, sealed.trailer, sizeof trailer);
        if (trailer[changes[i].offset] == changes[i].value)
            trailer[changes[i].offset] ^= 1; // a checksum byte that happened to be 0
        else
            trailer[changes[i].offset] = changes[i].value;
        reseal(trailer);
        assert_opens_as(changes[i].damage, sealed.body, sealed.geometry.body_bytes, trailer,
                        CONTEXT);
    }
    for (size_t offset = 60; offset < 112; offset++) { // F4
        uint8_t trailer[TAMIS_FILTER_TRAILER_BYTES];

        memcpy(trailer, sealed.trailer, sizeof trailer);
        trailer[offset] = 1;
        reseal(trailer);
        assert_opens_as(TAMIS_FILTER_BAD_FIELD, sealed.body, sealed.geometry.body_bytes, trailer,
                        CONTEXT);
    }
    free(sealed.body);
}
END_TEST

START_TEST(lines_whose_bytes_wrap_around_are_refused)
{
    // 64 * 2^58 is 0 modulo 2^64: a reader that only multiplies would find the body complete.
    static const uint64_t line_counts[][2] = {
        {UINT64_C(1) << 58, 0}, {(UINT64_C(1) << 58) + 2, 0},
        {UINT64_C(1) << 58, 2}, {UINT64_C(1) << 57, (UINT64_C(1) << 57) + 2},
        {UINT64_MAX, 3},        {UINT64_C(1) << 55, 1},
    };
    struct sealed sealed = seal(TAMIS_FILTER_PAIR512, 100, 10, 0);

    for (size_t i = 0; i < sizeof line_counts / sizeof line_counts[0]; i++) {
        uint8_t trailer[TAMIS_FILTER_TRAILER_BYTES];

        memcpy(trailer, sealed.trailer, sizeof trailer);
        if (line_counts[i][1] == 0) {
            trailer[5] = TAMIS_FILTER_BLK512;
            trailer[49] = 0;
        }
        tm_put_u64(trailer + 24, 64 * (line_counts[i][0] + line_counts[i][1]));
        tm_put_u64(trailer + 32, line_counts[i][0]);
        tm_put_u64(trailer + 40, line_counts[i][1]);
        reseal(trailer);
        assert_opens_as(TAMIS_FILTER_BAD_GEOMETRY, sealed.body, tm_get_u64(trailer + 24) % 1024,
                        trailer, CONTEXT);
    }
    free(sealed.body);
}
END_TEST

START_TEST(random_bytes_never_open)
{
    uint64_t state = test_seed;
    struct sealed sealed = seal(TAMIS_FILTER_PAIR512, 100, 10, 0);
    int rounds = SLOW_BUILD ? 20000 : 200000;
    int wrong = 0;

    for (int round = 0; round < rounds; round++) {
        uint8_t trailer[TAMIS_FILTER_TRAILER_BYTES];
        uint64_t body_bytes = 64 * random_below(&state, 3);
        tamis_filter filter;

        memcpy(trailer, sealed.trailer, sizeof trailer);
        for (uint64_t i = 1 + random_below(&state, 4); i > 0; i--)
            trailer[4 + random_below(&state, 116)] = (uint8_t)random_next(&state);
        reseal(trailer);
        // Random values in fields that only inform, like the key count, are sound and rightly so.
        if (tamis_filter_open(sealed.body, body_bytes, trailer, CONTEXT, &filter, NULL) ==
            TAMIS_FILTER_SOUND)
            wrong += tm_get_u64(trailer + 24) != body_bytes;
        else
            wrong += filter.kind != TAMIS_FILTER_ALWAYS_TRUE ||
                     !tamis_filter_may_contain(&filter, random_next(&state));
    }
    ck_assert_int_eq(wrong, 0);
    free(sealed.body);
}
END_TEST

START_TEST(build_that_cannot_confirm_its_keys_writes_always_true)
{
    // The body lies on the first of the hashes, so that setting bits changes them under the
    // builder: the first one ends as another hash than the one that was inserted.
    enum { COUNT = 64 };

    for (int kind = TAMIS_FILTER_STANDARD; kind <= TAMIS_FILTER_PAIR512; kind++) {
        tamis_filter_geometry geometry;
        tamis_filter filter;
        uint8_t trailer[TAMIS_FILTER_TRAILER_BYTES];
        uint64_t *memory;

        ck_assert(tamis_filter_plan((tamis_filter_kind)kind, COUNT, 32, &geometry));
        memory = memory_or_abort(COUNT * sizeof(uint64_t)); // twice the body
        memset(memory, 0, COUNT * sizeof(uint64_t));
        ck_assert(!tamis_filter_build(&geometry, memory, SEED, 32, 0, CONTEXT, (uint8_t *)memory,
                                      trailer));
        ck_assert_uint_eq(trailer[5], TAMIS_FILTER_ALWAYS_TRUE);
        ck_assert_int_eq(tamis_filter_open(NULL, 0, trailer, CONTEXT, &filter, NULL),
                         TAMIS_FILTER_SOUND);
        ck_assert(tamis_filter_may_contain(&filter, present_hash(0, SEED)));
        free(memory);
    }
}
END_TEST

START_TEST(every_damage_and_kind_has_a_name_of_its_own)
{
    tamis_filter_kind kind = TAMIS_FILTER_STANDARD;
    static const tamis_filter_kind kinds[] = {TAMIS_FILTER_EMPTY_SET, TAMIS_FILTER_STANDARD,
                                              TAMIS_FILTER_BLK512, TAMIS_FILTER_PAIR512,
                                              TAMIS_FILTER_ALWAYS_TRUE};

    for (int i = TAMIS_FILTER_SOUND; i <= TAMIS_FILTER_BAD_BODY_CHECKSUM; i++)
        for (int j = 0; j < i; j++)
            ck_assert_str_ne(tamis_filter_damage_name((tamis_filter_damage)i),
                             tamis_filter_damage_name((tamis_filter_damage)j));
    ck_assert_str_eq(tamis_filter_damage_name((tamis_filter_damage)99), "unknown damage");
    for (size_t i = 0; i < 5; i++) {
        ck_assert(tamis_filter_kind_from_name(tamis_filter_kind_name(kinds[i]), &kind));
        ck_assert_int_eq(kind, kinds[i]);
    }
    ck_assert_str_eq(tamis_filter_kind_name((tamis_filter_kind)4), "unknown");
    ck_assert(!tamis_filter_kind_from_name("unknown", &kind));
    ck_assert(!tamis_filter_kind_from_name("", &kind));
    ck_assert(!tamis_filter_kind_from_name("PAIR512", &kind));
    ck_assert_int_eq(kind, TAMIS_FILTER_ALWAYS_TRUE); // untouched
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("envelope");
    TCase *tcase = suite_case(suite, "envelope", 300);

    tcase_add_test(tcase, trailer_has_every_field_at_its_place);
    tcase_add_test(tcase, numbers_on_disk_are_pinned);
    tcase_add_test(tcase, open_returns_the_facts_that_build_was_given);
    tcase_add_test(tcase, empty_set_says_no_and_always_true_says_maybe_after_reopening);
    tcase_add_test(tcase, every_flipped_bit_of_a_trailer_is_damage);
    tcase_add_test(tcase, every_flipped_bit_of_a_body_is_damage);
    tcase_add_test(tcase, body_of_another_length_is_damage);
    tcase_add_test(tcase, zeroed_shifted_and_foreign_trailers_are_damage);
    tcase_add_test(tcase, filters_of_two_places_cannot_be_swapped);
    tcase_add_test(tcase, fields_that_are_out_of_range_are_named_even_under_a_right_checksum);
    tcase_add_test(tcase, lines_whose_bytes_wrap_around_are_refused);
    tcase_add_test(tcase, random_bytes_never_open);
    tcase_add_test(tcase, build_that_cannot_confirm_its_keys_writes_always_true);
    tcase_add_test(tcase, every_damage_and_kind_has_a_name_of_its_own);
    return run_suite(suite);
}
