/* SPDX-License-Identifier: MIT
 *
 * tests/engine/test_version.c -- versions are made, ordered, checked and let go; files go with the last of them.
 */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "engine/version.h"
#include "tests/support/check_status.h"
#include "tests/support/fault_alloc.h"
#include "tests/support/rng.h"

static tamis_error err;
static struct fault_alloc fault;
static struct tm_env env;

static void
set_up(void)
{
    fault_alloc_init(&fault);
    memset(&env, 0, sizeof env);
    env.allocator = fault_alloc_allocator(&fault);
}

static void
tear_down(void)
{
    ck_assert_uint_eq(atomic_load(&fault.live_count), 0);
}

static uint8_t *
copy_text(const char *text, uint32_t *length)
{
    uint8_t *copy;

    *length = (uint32_t)strlen(text);
    copy = tm_alloc(&env, *length);
    ck_assert_ptr_nonnull(copy);
    memcpy(copy, text, *length);
    return copy;
}

static struct tm_file *
make_file(uint64_t number, const char *smallest, const char *largest, uint64_t bytes)
{
    struct tm_file *file = tm_alloc_zeroed(&env, sizeof *file);

    ck_assert_ptr_nonnull(file);
    file->number = number;
    file->facts.file_bytes = bytes;
    file->facts.smallest = copy_text(smallest, &file->facts.smallest_length);
    file->facts.largest = copy_text(largest, &file->facts.largest_length);
    return file;
}

static struct tm_version *
make_version(const struct tm_version *base, struct tm_file *const *removed, size_t removed_count,
             const struct tm_file_add *added, size_t added_count)
{
    struct tm_version *version = NULL;

    check_ok(
        tm_version_create(&env, base, removed, removed_count, added, added_count, &version, &err),
        err);
    return version;
}

/* Returns how many files it took from the trash. */
static size_t
destroy_trash(struct tm_file *trash)
{
    size_t count = 0;

    while (trash != NULL) {
        struct tm_file *next = trash->trash_next;
        tm_file_destroy(&env, trash);
        trash = next;
        count++;
    }
    return count;
}

static size_t
unref(struct tm_version *version)
{
    struct tm_file *trash = NULL;

    tm_version_unref(&env, version, &trash);
    return destroy_trash(trash);
}

static void
check_numbers(const struct tm_level *level, const uint64_t *numbers, uint32_t count)
{
    ck_assert_uint_eq(level->file_count, count);
    for (uint32_t i = 0; i < count; i++)
        ck_assert_uint_eq(level->files[i]->number, numbers[i]);
}

START_TEST(an_empty_version_has_empty_levels)
{
    struct tm_version *version = make_version(NULL, NULL, 0, NULL, 0);

    ck_assert_uint_eq(version->references, 1);
    for (uint32_t i = 0; i < TAMIS_LEVEL_COUNT; i++) {
        check_numbers(&version->level[i], NULL, 0);
        ck_assert_uint_eq(version->level[i].file_bytes, 0);
        ck_assert_ptr_null(tm_level_find(&version->level[i], tm_slice("a", 1)));
        ck_assert_uint_eq(tm_level_lower_bound(&version->level[i], tm_slice("a", 1)), 0);
    }
    ck_assert_uint_eq(unref(version), 0);
    tm_file_destroy(&env, NULL);
}
END_TEST

START_TEST(level_0_stands_newest_first_and_deeper_levels_by_key)
{
    const struct tm_file_add first[] = {
        {0, make_file(4, "a", "z", 1)},  {0, make_file(9, "c", "d", 2)},
        {0, make_file(6, "b", "y", 4)},  {1, make_file(1, "m", "p", 8)},
        {1, make_file(2, "a", "c", 16)},
    };
    const struct tm_file_add second[] = {
        {0, make_file(7, "a", "z", 32)},
        {1, make_file(3, "d", "l", 64)},
        {6, make_file(5, "", "\xff", 128)},
    };
    struct tm_version *old = make_version(NULL, NULL, 0, first, 5);
    struct tm_version *new = make_version(old, NULL, 0, second, 3);

    check_numbers(&old->level[0], (uint64_t[]){9, 6, 4}, 3);
    check_numbers(&old->level[1], (uint64_t[]){2, 1}, 2);
    ck_assert_uint_eq(old->level[0].file_bytes, 7);
    check_numbers(&new->level[0], (uint64_t[]){9, 7, 6, 4}, 4);
    check_numbers(&new->level[1], (uint64_t[]){2, 3, 1}, 3);
    check_numbers(&new->level[6], (uint64_t[]){5}, 1);
    ck_assert_uint_eq(new->level[0].file_bytes, 39);
    ck_assert_uint_eq(new->level[1].file_bytes, 88);
    ck_assert_uint_eq(new->level[6].file_bytes, 128);
    ck_assert_uint_eq(unref(old), 0); // the new one holds all of its files
    ck_assert_uint_eq(unref(new), 8);
}
END_TEST

START_TEST(a_file_lives_as_long_as_a_version_holds_it)
{
    struct tm_file *a = make_file(1, "a", "b", 1);
    struct tm_file *b = make_file(2, "c", "d", 1);
    const struct tm_file_add adds[] = {{1, a}, {1, b}};
    struct tm_version *both = make_version(NULL, NULL, 0, adds, 2);
    struct tm_version *one = make_version(both, &a, 1, NULL, 0);

    ck_assert_uint_eq(a->version_count, 1);
    ck_assert_uint_eq(b->version_count, 2);
    both->references++; // a reader
    ck_assert_uint_eq(unref(both), 0);
    ck_assert_uint_eq(a->version_count, 1);
    ck_assert_uint_eq(unref(both), 1);
    ck_assert_uint_eq(b->version_count, 1);
    ck_assert_uint_eq(unref(one), 1);
}
END_TEST

START_TEST(trash_is_added_to_what_is_there)
{
    const struct tm_file_add add_a = {1, make_file(1, "a", "b", 1)};
    const struct tm_file_add add_b = {1, make_file(2, "a", "b", 1)};
    struct tm_version *first = make_version(NULL, NULL, 0, &add_a, 1);
    struct tm_version *second = make_version(NULL, NULL, 0, &add_b, 1);
    struct tm_file *trash = NULL;

    tm_version_unref(&env, first, &trash);
    tm_version_unref(&env, second, &trash);
    ck_assert_uint_eq(destroy_trash(trash), 2);
}
END_TEST

START_TEST(a_file_can_be_moved_to_another_level)
{
    struct tm_file *file = make_file(1, "a", "b", 10);
    const struct tm_file_add add = {0, file};
    const struct tm_file_add move = {1, file};
    struct tm_version *before = make_version(NULL, NULL, 0, &add, 1);
    struct tm_version *after = make_version(before, &file, 1, &move, 1);

    check_numbers(&after->level[0], NULL, 0);
    check_numbers(&after->level[1], (uint64_t[]){1}, 1);
    ck_assert_uint_eq(after->level[0].file_bytes, 0);
    ck_assert_uint_eq(after->level[1].file_bytes, 10);
    ck_assert_uint_eq(unref(before), 0);
    ck_assert_uint_eq(unref(after), 1);
}
END_TEST

/* `adds` onto an empty version is CORRUPT with this message; no count has changed. */
static void
check_refused(const struct tm_file_add *adds, size_t count, const char *message)
{
    struct tm_version *version = (struct tm_version *)&env;

    memset(&err, 0, sizeof err);
    check_status(tm_version_create(&env, NULL, NULL, 0, adds, count, &version, &err), TAMIS_CORRUPT,
                 err);
    ck_assert_ptr_null(version);
    ck_assert_str_eq(err.message, message);
    for (size_t i = 0; i < count; i++) {
        ck_assert_uint_eq(adds[i].file->version_count, 0);
        tm_file_destroy(&env, adds[i].file);
    }
}

START_TEST(files_that_share_a_key_are_refused_below_level_0)
{
    const struct tm_file_add touching[] = {{3, make_file(8, "f", "k", 1)},
                                           {3, make_file(7, "a", "f", 1)}};
    const struct tm_file_add nested[] = {{1, make_file(12, "a", "z", 1)},
                                         {1, make_file(13, "m", "n", 1)}};
    const struct tm_file_add equal[] = {{6, make_file(1, "", "", 1)}, {6, make_file(2, "", "", 1)}};

    check_refused(touching, 2, "tables 000007 and 000008 overlap in level 3");
    check_refused(nested, 2, "tables 000012 and 000013 overlap in level 1");
    check_refused(equal, 2, "tables 000002 and 000001 overlap in level 6");
}
END_TEST

START_TEST(files_that_share_a_prefix_only_are_accepted)
{
    const struct tm_file_add adds[] = {{1, make_file(1, "a", "ab", 1)},
                                       {1, make_file(2, "ab\x01", "abc", 1)}};
    struct tm_version *version = make_version(NULL, NULL, 0, adds, 2);

    ck_assert_uint_eq(unref(version), 2);
}
END_TEST

START_TEST(two_files_of_one_number_are_refused_in_level_0)
{
    const struct tm_file_add adds[] = {{0, make_file(5, "a", "b", 1)},
                                       {0, make_file(5, "x", "y", 1)}};

    check_refused(adds, 2, "two tables in level 0 have number 000005");
}
END_TEST

START_TEST(a_reversed_range_and_a_level_too_deep_are_refused)
{
    const struct tm_file_add reversed[] = {{2, make_file(5, "b", "a", 1)}};
    const struct tm_file_add too_deep[] = {{7, make_file(6, "a", "b", 1)}};

    check_refused(reversed, 1, "table 000005 in level 2 ends before it begins");
    check_refused(too_deep, 1, "table 000006 in level 7 of 7");
}
END_TEST

START_TEST(without_memory_no_count_changes)
{
    const struct tm_file_add add = {0, make_file(1, "a", "b", 1)};
    struct tm_version *version = NULL;

    fault_alloc_fail_after(&fault, 1, false);
    check_status(tm_version_create(&env, NULL, NULL, 0, &add, 1, &version, &err), TAMIS_NO_MEMORY,
                 err);
    ck_assert_ptr_null(version);
    ck_assert_uint_eq(add.file->version_count, 0);
    version = make_version(NULL, NULL, 0, &add, 1);
    ck_assert_uint_eq(unref(version), 1);
}
END_TEST

START_TEST(searches_in_a_level_agree_with_a_walk)
{
    struct rng rng = rng_from(rng_seed("searches_in_a_level_agree_with_a_walk", 3));

    for (int round = 0; round < 50; round++) {
        struct tm_file_add adds[20];
        size_t count = 0;
        struct tm_version *version;

        // Two-letter keys; each file covers two to five letters, with gaps between some.
        for (unsigned at = (unsigned)rng_below(&rng, 4); at < 60 && count < 20; count++) {
            unsigned to = at + (unsigned)rng_below(&rng, 4);
            char smallest[3] = {(char)('A' + at / 8), (char)('A' + at % 8), 0};
            char largest[3] = {(char)('A' + to / 8), (char)('A' + to % 8), 0};

            adds[count].level = 2;
            adds[count].file = make_file(count + 1, smallest, largest, 1);
            at = to + 1 + (unsigned)rng_below(&rng, 3);
        }
        version = make_version(NULL, NULL, 0, adds, count);
        for (unsigned at = 0; at < 70; at++) {
            char text[4] = {(char)('A' + at / 8), (char)('A' + at % 8), '!', 0};

            for (size_t length = 0; length <= 3; length++) {
                tamis_slice key = tm_slice(text, length);
                const struct tm_file *expected = NULL;
                uint32_t bound = 0;

                while (bound < count &&
                       tm_slice_compare(tm_file_largest(adds[bound].file), key) < 0)
                    bound++;
                if (bound < count && tm_file_overlaps(adds[bound].file, &key, &key))
                    expected = adds[bound].file;
                ck_assert_uint_eq(tm_level_lower_bound(&version->level[2], key), bound);
                ck_assert_ptr_eq(tm_level_find(&version->level[2], key), expected);
            }
        }
        ck_assert_uint_eq(unref(version), count);
    }
}
END_TEST

START_TEST(a_random_life_of_versions_leaks_and_loses_no_file)
{
    enum { KEPT = 5 };
    struct rng rng = rng_from(rng_seed("a_random_life_of_versions_leaks_and_loses_no_file", 4));
    struct tm_version *kept[KEPT] = {NULL}; // readers hold old versions
    struct tm_version *current = make_version(NULL, NULL, 0, NULL, 0);
    uint64_t number = 0;
    size_t destroyed_count = 0;

    for (int step = 0; step < 2000; step++) {
        struct tm_file_add adds[2];
        struct tm_file *removed[8];
        size_t removed_count = 0;
        size_t slot = rng_below(&rng, KEPT);
        struct tm_version *next;

        for (uint32_t level = 0; level < 2; level++) {
            adds[level].level = level;
            adds[level].file = make_file(++number, "a", "z", 1);
        }
        for (uint32_t i = 0; i < current->level[0].file_count && removed_count < 7; i++) {
            if (rng_chance(&rng, 1, 2))
                removed[removed_count++] = current->level[0].files[i];
        }
        if (current->level[1].file_count > 0) // level 1 has room for one
            removed[removed_count++] = current->level[1].files[0];
        next = make_version(current, removed, removed_count, adds, 2);
        ck_assert_uint_eq(next->level[1].file_count, 1);
        if (kept[slot] != NULL)
            destroyed_count += unref(kept[slot]);
        kept[slot] = current;
        current = next;
    }
    for (size_t i = 0; i < KEPT; i++)
        destroyed_count += kept[i] != NULL ? unref(kept[i]) : 0;
    destroyed_count += unref(current);
    ck_assert_uint_eq(destroyed_count, number);
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("version");
    TCase *tests = tcase_create("version");

    tcase_set_timeout(tests, 0);
    tcase_add_checked_fixture(tests, set_up, tear_down);
    tcase_add_test(tests, an_empty_version_has_empty_levels);
    tcase_add_test(tests, level_0_stands_newest_first_and_deeper_levels_by_key);
    tcase_add_test(tests, a_file_lives_as_long_as_a_version_holds_it);
    tcase_add_test(tests, trash_is_added_to_what_is_there);
    tcase_add_test(tests, a_file_can_be_moved_to_another_level);
    tcase_add_test(tests, files_that_share_a_key_are_refused_below_level_0);
    tcase_add_test(tests, files_that_share_a_prefix_only_are_accepted);
    tcase_add_test(tests, two_files_of_one_number_are_refused_in_level_0);
    tcase_add_test(tests, a_reversed_range_and_a_level_too_deep_are_refused);
    tcase_add_test(tests, without_memory_no_count_changes);
    tcase_add_test(tests, searches_in_a_level_agree_with_a_walk);
    tcase_add_test(tests, a_random_life_of_versions_leaks_and_loses_no_file);
    suite_add_tcase(suite, tests);
    return check_run(suite);
}
