/* SPDX-License-Identifier: MIT
 *
 * tests/engine/test_names.c -- file names are made and recognised, and nothing else is taken for ours.
 */
#include <check.h>
#include <inttypes.h>
#include <string.h>

#include "engine/names.h"
#include "tests/support/check_status.h"
#include "tests/support/rng.h"

static const enum tm_name_kind numbered[] = {TM_NAME_MANIFEST, TM_NAME_TABLE, TM_NAME_LOG};

enum { NUMBERED_COUNT = sizeof numbered / sizeof numbered[0], RANDOM_NAMES = 200000 };

START_TEST(names_come_back_as_kind_and_number)
{
    static const uint64_t numbers[] = {0,       1,       9,           10,
                                       99999,   999999,  1000000,     UINT32_MAX,
                                       1234567, 7654321, 99999999999, UINT64_C(1) << 62};
    char name[TM_NAME_BYTES_MAX];
    uint64_t number;

    for (size_t kind = 0; kind < NUMBERED_COUNT; kind++)
        for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
            ck_assert_ptr_eq(tm_name_make(numbered[kind], numbers[i], name), name);
            ck_assert_int_eq(tm_name_parse(name, &number), numbered[kind]);
            ck_assert_uint_eq(number, numbers[i]);
        }
    ck_assert_str_eq(tm_name_make(TM_NAME_MANIFEST, 7, name), "MANIFEST-000007");
    ck_assert_str_eq(tm_name_make(TM_NAME_TABLE, 12, name), "000012.sst");
    ck_assert_str_eq(tm_name_make(TM_NAME_LOG, 12345678, name), "12345678.wal");
}
END_TEST

START_TEST(names_without_a_number_are_known_letter_by_letter)
{
    static const struct {
        const char *name;
        enum tm_name_kind kind;
    } names[] = {
        {"LOCK", TM_NAME_LOCK}, {"CURRENT", TM_NAME_CURRENT}, {"CURRENT.tmp", TM_NAME_TEMPORARY}};

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        uint64_t number = 5;
        char changed[TM_NAME_BYTES_MAX];

        ck_assert_int_eq(tm_name_parse(names[i].name, &number), names[i].kind);
        ck_assert_uint_eq(number, 0);
        for (size_t at = 0; at < strlen(names[i].name); at++) {
            strcpy(changed, names[i].name);
            changed[at] ^= 0x20; // the other case
            ck_assert_int_eq(tm_name_parse(changed, &number), TM_NAME_FOREIGN);
        }
    }
}
END_TEST

START_TEST(names_that_would_not_be_written_so_are_foreign)
{
    static const char *const names[] = {"",
                                        ".",
                                        "..",
                                        "CURRENT.",
                                        "CURRENT.tmp.tmp",
                                        "CURRENT.bak",
                                        "LOCK.tmp",
                                        "LOCKED",
                                        "LOG",
                                        "MANIFEST",
                                        "MANIFEST-",
                                        "MANIFEST-1",
                                        "MANIFEST-00001",
                                        "MANIFEST-0000001",
                                        "MANIFEST-000001.tmp",
                                        "MANIFEST-000001 ",
                                        "MANIFEST--00001",
                                        "MANIFEST-+00001",
                                        "MANIFEST-000001.sst",
                                        "manifest-000001",
                                        "1.sst",
                                        "00001.sst",
                                        "0000001.sst",
                                        "000001.SST",
                                        "000001.ss",
                                        "000001.sstt",
                                        "000001.sst~",
                                        "000001.sst.tmp",
                                        "000001",
                                        "000001.",
                                        "000001.ldb",
                                        "000003.log",
                                        "-00001.sst",
                                        "+00001.sst",
                                        " 000001.sst",
                                        "000001 .sst",
                                        "000001.sst ",
                                        "0x0001.sst",
                                        "._000012.sst",
                                        "foo.sst",
                                        ".sst",
                                        ".wal",
                                        "-1.log",
                                        "99999999999999999999999.sst",
                                        "18446744073709551616.sst",
                                        "18446744073709551615000000.wal",
                                        "MANIFEST-99999999999999999999",
                                        "000012.sst\n",
                                        "\xd9\xa0\xd9\xa1.sst"};

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        uint64_t number = 5;

        ck_assert_msg(tm_name_parse(names[i], &number) == TM_NAME_FOREIGN, "'%s' is ours",
                      names[i]);
        ck_assert_uint_eq(number, 0);
    }
}
END_TEST

START_TEST(whatever_is_recognised_is_written_the_same_way)
{
    uint64_t seed = rng_seed("whatever_is_recognised_is_written_the_same_way", 1);
    static const char alphabet[] = "0000123456789MANIFEST-.sstwalCURRENTLOCKtmp \n/";
    struct rng rng = rng_from(seed);
    size_t recognised = 0;

    for (size_t i = 0; i < RANDOM_NAMES; i++) {
        char name[TM_NAME_BYTES_MAX] = {0};
        char written[TM_NAME_BYTES_MAX];
        uint64_t number;
        enum tm_name_kind kind;

        // Half of them are names of ours with a few letters changed.
        if (rng_chance(&rng, 1, 2)) {
            for (size_t at = 0, length = rng_below(&rng, 20); at < length; at++)
                name[at] = alphabet[rng_below(&rng, sizeof alphabet - 1)];
        } else {
            (void)tm_name_make(numbered[rng_below(&rng, NUMBERED_COUNT)],
                               rng_next(&rng) >> rng_below(&rng, 64), name);
            for (size_t changes = rng_below(&rng, 3); changes > 0; changes--)
                name[rng_below(&rng, strlen(name))] =
                    alphabet[rng_below(&rng, sizeof alphabet - 1)];
        }
        kind = tm_name_parse(name, &number);
        if (kind != TM_NAME_MANIFEST && kind != TM_NAME_TABLE && kind != TM_NAME_LOG)
            continue;
        ck_assert_str_eq(tm_name_make(kind, number, written), name);
        recognised++;
    }
    ck_assert_uint_gt(recognised, RANDOM_NAMES / 10);
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("names");
    TCase *tests = tcase_create("names");

    tcase_add_test(tests, names_come_back_as_kind_and_number);
    tcase_add_test(tests, names_without_a_number_are_known_letter_by_letter);
    tcase_add_test(tests, names_that_would_not_be_written_so_are_foreign);
    tcase_add_test(tests, whatever_is_recognised_is_written_the_same_way);
    suite_add_tcase(suite, tests);
    return check_run(suite);
}
