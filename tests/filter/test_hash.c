/* SPDX-License-Identifier: MIT
 *
 * tests/filter/test_hash.c -- the hash is XXH3-64 and stays it (filter/hash.h, H1 and H2), and
 * filters keep their rates on keys that look alike.
 */
#include "filter/hash.h"

#include <math.h>

#include "filter/bytes.h"
#include "tests/filter/filter_test.h"

START_TEST(hash_gives_the_published_values_of_xxh3)
{
    static const struct {
        const char *text;
        uint64_t hash, hash_seed_1;
    } vectors[] = {
        {"", UINT64_C(0x2d06800538d394c2), UINT64_C(0x4dc5b0cc826f6703)},
        {"a", UINT64_C(0xe6c632b61e964e1f), UINT64_C(0xd2f6d0996f37a720)},
        {"abc", UINT64_C(0x78af5f94892f3950), UINT64_C(0x6b4467b443c76228)},
        {"kiwi", UINT64_C(0xdfed6e7b19f6132e), UINT64_C(0x1db3e996b13d684b)},
        {"0000000000123456", UINT64_C(0x25375b40546cb0cd), UINT64_C(0xe72a4ec0531139ce)},
        {"The quick brown fox jumps over the lazy dog", UINT64_C(0xce7d19a5418fb365),
         UINT64_C(0x1e098210b55fad4a)},
    };

    for (size_t i = 0; i < sizeof vectors / sizeof vectors[0]; i++) {
        size_t length = strlen(vectors[i].text);

        ck_assert_uint_eq(tm_hash64(vectors[i].text, length, 0), vectors[i].hash);
        ck_assert_uint_eq(tamis_hash64(vectors[i].text, length, 1), vectors[i].hash_seed_1);
    }
    ck_assert_uint_eq(tamis_hash64(NULL, 0, 0), vectors[0].hash);
}
END_TEST

/* Bytes that take all values; any fixed sequence would do. */
static void
fill_pattern(uint8_t *bytes, size_t length)
{
    for (size_t i = 0; i < length; i++)
        bytes[i] = (uint8_t)(i * 167 + 13);
}

START_TEST(hash_of_every_length_to_256_is_frozen)
{
    // FNV-1a over the 257 hashes, low bytes first: a fold that shares nothing with XXH3.
    static const uint64_t folds[2] = {UINT64_C(0x80902ed0ffefbf85), UINT64_C(0xf195f76c53875502)};
    uint8_t bytes[256];

    fill_pattern(bytes, sizeof bytes);
    for (uint64_t seed = 0; seed < 2; seed++) {
        uint64_t fold = UINT64_C(0xcbf29ce484222325);

        for (size_t length = 0; length <= sizeof bytes; length++) {
            uint8_t digits[8];

            tm_put_u64(digits, tm_hash64(bytes, length, seed));
            for (int i = 0; i < 8; i++)
                fold = (fold ^ digits[i]) * UINT64_C(0x100000001b3);
        }
        ck_assert_uint_eq(fold, folds[seed]);
    }
}
END_TEST

START_TEST(hash_at_the_borders_of_its_length_classes_is_frozen)
{
    static const struct {
        size_t length;
        uint64_t hash[2];
    } vectors[] = {
        {1, {UINT64_C(0x8a21d78b1538b1c0), UINT64_C(0x089c497151651e75)}},
        {3, {UINT64_C(0x5f1fa6d2a3aa5a3b), UINT64_C(0xe66a21c39b3f96e0)}},
        {4, {UINT64_C(0xa8a9b82c81542a43), UINT64_C(0xc5e810670b343358)}},
        {8, {UINT64_C(0x67b8f67a80d308a6), UINT64_C(0xfa317f24b58d9c5c)}},
        {9, {UINT64_C(0x7df166798fe37670), UINT64_C(0x2661ef88d507d8a0)}},
        {16, {UINT64_C(0xc0967fee676a5837), UINT64_C(0xd04d86a958cd6bff)}},
        {17, {UINT64_C(0xbc307578d06e9d93), UINT64_C(0xbc59ef0e43d589c8)}},
        {128, {UINT64_C(0xa45617bfe9bb88d6), UINT64_C(0x0499cb21936db594)}},
        {129, {UINT64_C(0x4ca31f6b2cfd9a3e), UINT64_C(0x064a7aab2104a762)}},
        {240, {UINT64_C(0x2817ed3cdf9547e7), UINT64_C(0xc926a1face4b25c4)}},
        {241, {UINT64_C(0x02f838dd48200ee8), UINT64_C(0xca87a9a7c6ad37fb)}},
        {256, {UINT64_C(0xc67d143ec3572269), UINT64_C(0x9574629a2c5117bc)}},
    };
    uint8_t bytes[256];

    fill_pattern(bytes, sizeof bytes);
    for (size_t i = 0; i < sizeof vectors / sizeof vectors[0]; i++)
        for (uint64_t seed = 0; seed < 2; seed++)
            ck_assert_uint_eq(tm_hash64(bytes, vectors[i].length, seed), vectors[i].hash[seed]);
}
END_TEST

START_TEST(stream_digest_equals_the_hash_of_the_joined_pieces)
{
    enum { LENGTH = 5000 };
    uint8_t *bytes = memory_or_abort(LENGTH);
    uint64_t state = test_seed;

    fill_pattern(bytes, LENGTH);
    for (int round = 0; round < 500; round++) {
        size_t length = random_below(&state, LENGTH + 1);
        uint64_t seed = random_next(&state);
        struct tm_hash_stream stream;
        size_t done = 0;

        tm_hash_stream_init(&stream, seed);
        while (done < length) {
            size_t piece = random_below(&state, 700);

            if (piece > length - done)
                piece = length - done;
            tm_hash_stream_update(&stream, bytes + done, piece);
            done += piece;
        }
        tm_hash_stream_update(&stream, NULL, 0);
        ck_assert_uint_eq(tm_hash_stream_digest(&stream), tm_hash64(bytes, length, seed)); // H2
    }
    free(bytes);
}
END_TEST

/* Makes key `index` of a family in `key`; `absent` ones share no key with the others. Returns
 * the length. */
typedef size_t make_key(uint8_t *key, uint64_t index, bool absent);

static size_t
make_little_endian(uint8_t *key, uint64_t index, bool absent)
{
    tm_put_u64(key, index + (absent ? UINT64_C(1) << 40 : 0));
    return 8;
}

static size_t
make_big_endian(uint8_t *key, uint64_t index, bool absent)
{
    tm_put_u64(key, __builtin_bswap64(index + (absent ? UINT64_C(1) << 40 : 0)));
    return 8;
}

static size_t
make_four_bytes(uint8_t *key, uint64_t index, bool absent)
{
    tm_put_u32(key, (uint32_t)index + (absent ? UINT32_C(1) << 31 : 0));
    return 4;
}

static size_t
make_long_prefix(uint8_t *key, uint64_t index, bool absent)
{
    memcpy(key, "user:profile:settings:000000000:", 32);
    tm_put_u64(key + 32, index + (absent ? UINT64_C(1) << 40 : 0));
    return 40;
}

static size_t
make_decimal(uint8_t *key, uint64_t index, bool absent)
{
    return (size_t)snprintf((char *)key, 64, "%s%016" PRIu64, absent ? "k" : "", index);
}

enum { ONE_BIT_BYTES = 4096 };

/* A zero key of 4096 bytes with one bit set; the absent ones have one more, the last. */
static size_t
make_one_bit(uint8_t *key, uint64_t index, bool absent)
{
    memset(key, 0, ONE_BIT_BYTES);
    key[index >> 3] |= (uint8_t)(1u << (index & 7));
    key[ONE_BIT_BYTES - 1] |= absent ? 0x80 : 0;
    return ONE_BIT_BYTES;
}

static void
assert_family_keeps_rate(const char *name, make_key *make, uint64_t key_count, double bits)
{
    uint64_t queries = key_count;
    uint8_t *key = memory_or_abort(ONE_BIT_BYTES);
    uint64_t *hashes = memory_or_abort(key_count * sizeof(uint64_t));
    tamis_filter_geometry geometry;
    tamis_filter filter;
    uint8_t trailer[TAMIS_FILTER_TRAILER_BYTES];
    uint8_t *body;
    uint64_t maybe = 0;
    double expected, deviation, measured;

    ck_assert(tamis_filter_plan(TAMIS_FILTER_PAIR512, key_count, bits, &geometry));
    body = memory_or_abort(geometry.body_bytes);
    for (uint64_t i = 0; i < key_count; i++)
        hashes[i] = tm_hash64(key, make(key, i, false), test_seed);
    ck_assert(tamis_filter_build(&geometry, hashes, test_seed, bits, 0, 0, body, trailer));
    ck_assert_int_eq(tamis_filter_open(body, geometry.body_bytes, trailer, 0, &filter, NULL),
                     TAMIS_FILTER_SOUND);
    for (uint64_t i = 0; i < queries; i++)
        hashes[i] = tm_hash64(key, make(key, i, true), test_seed);
    maybe = tamis_filter_count_maybe(&filter, hashes, queries);
    expected = tamis_theory_false_positive_rate(&geometry);
    deviation =
        sqrt(expected * (1 - expected) / (double)queries + tamis_theory_rate_variance(&geometry));
    measured = (double)maybe / (double)queries;
    printf("%-16s %8" PRIu64 " keys  measured %.4f %%  expected %.4f %%\n", name, key_count,
           100 * measured, 100 * expected);
    ck_assert_double_le(fabs(measured - expected), 5 * deviation);
    free(body);
    free(hashes);
    free(key);
}

START_TEST(keys_that_look_alike_keep_the_rate)
{
    uint64_t count = SLOW_BUILD ? 100000 : 1000000;

    for (int round = 0; round < 2; round++) {
        double bits = round == 0 ? 10 : 20;

        assert_family_keeps_rate("little-endian", make_little_endian, count, bits);
        assert_family_keeps_rate("big-endian", make_big_endian, count, bits);
        assert_family_keeps_rate("four bytes", make_four_bytes, count, bits);
        assert_family_keeps_rate("long prefix", make_long_prefix, count, bits);
        assert_family_keeps_rate("decimal", make_decimal, count, bits);
        assert_family_keeps_rate("one bit", make_one_bit, ONE_BIT_BYTES * 8 - 1, bits);
    }
}
END_TEST

START_TEST(empty_key_is_a_key_like_any_other)
{
    uint64_t hash = tm_hash64("", 0, 5);
    uint64_t hashes[1] = {hash};
    uint64_t strangers = 0;
    tamis_filter_geometry geometry;
    tamis_filter filter;
    uint8_t trailer[TAMIS_FILTER_TRAILER_BYTES];
    uint8_t *body;

    ck_assert(tamis_filter_plan(TAMIS_FILTER_PAIR512, 1, 10, &geometry));
    body = memory_or_abort(geometry.body_bytes);
    ck_assert(tamis_filter_build(&geometry, hashes, 5, 10, 0, 0, body, trailer));
    tamis_filter_open(body, geometry.body_bytes, trailer, 0, &filter, NULL);
    ck_assert(tamis_filter_may_contain(&filter, hash));
    for (uint64_t i = 0; i < 1000; i++)
        strangers += tamis_filter_may_contain(&filter, present_hash(i, 5));
    ck_assert_uint_eq(strangers, 0); // expected 1000 * 1e-13
    free(body);
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("hash");
    TCase *tcase = suite_case(suite, "hash", 300);

    tcase_add_test(tcase, hash_gives_the_published_values_of_xxh3);
    tcase_add_test(tcase, hash_of_every_length_to_256_is_frozen);
    tcase_add_test(tcase, hash_at_the_borders_of_its_length_classes_is_frozen);
    tcase_add_test(tcase, stream_digest_equals_the_hash_of_the_joined_pieces);
    tcase_add_test(tcase, keys_that_look_alike_keep_the_rate);
    tcase_add_test(tcase, empty_key_is_a_key_like_any_other);
    return run_suite(suite);
}
