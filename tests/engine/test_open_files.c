/* SPDX-License-Identifier: MIT
 *
 * tests/engine/test_open_files.c -- max_open_files: a store of many tables lives with few descriptors, and nothing but
 * descriptors is given up.
 */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <unistd.h>

#include "tests/engine/one_store.h"
#include "tests/support/child.h"
#include "tests/support/rng.h"

enum {
    KEYS = 24000 / ONE_STORE_DIVISOR,
    TABLES_MIN = 24 / ONE_STORE_DIVISOR,
    READERS = 4,
    VALUE_BYTES = 100,
};

/* Descriptors of this process whose file's name ends so. */
static unsigned
count_descriptors(const char *end)
{
    DIR *directory = opendir("/proc/self/fd");
    struct dirent *entry;
    unsigned count = 0;

    ck_assert_ptr_nonnull(directory);
    while ((entry = readdir(directory)) != NULL) {
        char target[4096];
        ssize_t length = readlinkat(dirfd(directory), entry->d_name, target, sizeof target - 1);

        if (length < 0)
            continue;
        target[length] = '\0';
        count += one_ends_with(target, end);
    }
    closedir(directory);
    return count;
}

static void
open_with(uint32_t max_open_files)
{
    one_store_close();
    one.options.max_open_files = max_open_files;
    one_store_open();
}

static void
setup(void)
{
    one_store_begin();
    open_with(4);
    for (unsigned i = 0; i < KEYS; i++)
        one_put_number(i, 1, VALUE_BYTES);
    one_compact();
    ck_assert_uint_ge(one_stats().total.file_count, TABLES_MIN);
    one.options.block_cache_bytes = 0; // every read goes to its file
    open_with(4);
}

static void
check_all_there(void)
{
    for (unsigned i = 0; i < KEYS; i++)
        ck_assert_int_eq(one_version((i * 7919u) % KEYS), 1);
    ck_assert_uint_eq(one_count_keys(), KEYS);
}

START_TEST(a_store_of_many_tables_is_read_with_few_descriptors)
{
    ck_assert_uint_le(count_descriptors(".sst"), 4);
    for (unsigned i = 0; i < KEYS; i++) {
        ck_assert_int_eq(one_version((i * 7919u) % KEYS), 1);
        if (i % 500 == 0)
            ck_assert_uint_le(count_descriptors(".sst"), 4);
    }
    ck_assert_uint_eq(one_count_keys(), KEYS);
    ck_assert_uint_eq(count_descriptors(".sst"), 4);
    check_ok(tamis_verify(one.db, NULL, NULL, &one.err), one.err);
    open_with(0);
    check_all_there();
    ck_assert_uint_eq(count_descriptors(".sst"), one_stats().total.file_count);
    open_with(1);
    check_all_there();
    ck_assert_uint_eq(count_descriptors(".sst"), 1);
}
END_TEST

START_TEST(filters_answer_without_a_descriptor)
{
    tamis_stats before = one_stats();

    ck_assert_uint_ge(before.total.filter_bytes, KEYS); // 10 bits a key, all resident
    ck_assert_uint_ge(before.memory_filters_bytes, before.total.filter_bytes);
    ck_assert_int_eq(one_version(0), 1);
    for (unsigned i = 0; i < 1000; i++) {
        char text[64];
        bool may_exist = true;

        snprintf(text, sizeof text, "k%08u!", i * (KEYS / 1000));
        check_ok(tamis_may_exist(one.db, tamis_text(text), &may_exist, &one.err), one.err);
    }
    ck_assert_uint_eq(one_stats().cache_misses, before.cache_misses + 1);
}
END_TEST

static void
set_descriptor_limit(rlim_t limit)
{
    struct rlimit wanted;

    ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &wanted), 0);
    wanted.rlim_cur = limit;
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &wanted), 0);
}

/* In a process with few descriptors left: without the bound the store does not open, with it everything works. */
static int
live_with_few_descriptors(void *arg)
{
    int next = dup(0);

    (void)arg;
    close(next);
    set_descriptor_limit((rlim_t)next + 14);
    one.options.max_open_files = 0;
    check_status(tamis_open(one.path, &one.options, &one.db, &one.err), TAMIS_IO, one.err);
    ck_assert_int_eq(one.err.os_error, EMFILE);
    one.options.max_open_files = 4;
    one_store_open();
    check_all_there();
    for (unsigned i = 0; i < KEYS; i++)
        one_put_number(i, 2, VALUE_BYTES);
    one_compact();
    ck_assert_int_eq(one_version(KEYS / 2), 2);
    ck_assert_uint_eq(one_count_keys(), KEYS);
    one_store_close();
    return 0;
}

START_TEST(a_small_limit_of_the_process_is_no_trouble_with_the_bound_and_is_told_without)
{
    if (ONE_STORE_DIVISOR != 1)
        return; // a sanitizer takes descriptors of its own, and there are fewer tables
    one_store_close();
    ck_assert_int_eq(child_run(live_with_few_descriptors, NULL, NULL, 0), 0);
    one_store_open();
    ck_assert_int_eq(one_version(1), 2);
}
END_TEST

static void *
read_at_random(void *arg)
{
    struct rng rng = rng_from(*(const uint64_t *)arg);
    tamis_error err = {0};

    for (unsigned i = 0; i < KEYS / 4; i++) {
        unsigned number = (unsigned)rng_below(&rng, KEYS);
        unsigned head[2] = {0};
        size_t length = 0;
        char text[32];
        tamis_status status =
            tamis_get(one.db, NULL, one_key(text, number), head, sizeof head, &length, &err);

        ck_assert_msg(status == TAMIS_OK, "%s", err.message);
        ck_assert_uint_eq(head[0], number);
    }
    return NULL;
}

START_TEST(threads_that_read_more_tables_than_may_be_open_get_right_answers)
{
    uint64_t seed = rng_seed("threads", 7);
    uint64_t seeds[READERS];
    pthread_t readers[READERS];

    open_with(2);
    for (int i = 0; i < READERS; i++) {
        seeds[i] = seed + (uint64_t)i;
        ck_assert_int_eq(pthread_create(&readers[i], NULL, read_at_random, &seeds[i]), 0);
    }
    for (int i = 0; i < READERS; i++)
        pthread_join(readers[i], NULL);
    ck_assert_uint_le(count_descriptors(".sst"), 2 + READERS);
    check_all_there();
}
END_TEST

static bool
note_name(void *arg, const tamis_table_stats *table)
{
    uint64_t *number = arg;

    if (table->number > *number)
        *number = table->number;
    return true;
}

START_TEST(a_table_that_is_gone_when_it_is_opened_again_is_told_by_name)
{
    uint64_t number = 0;
    char name[32];
    char *file;
    char *aside;
    tamis_iter *iter;

    open_with(1);
    ck_assert_int_eq(one_version(0), 1); // the first table is the one that is open
    check_ok(tamis_visit_tables(one.db, note_name, &number, &one.err), one.err);
    snprintf(name, sizeof name, "%06u.sst", (unsigned)number);
    file = temp_dir_path(one.path, name);
    aside = temp_dir_path(one.scratch, "aside");
    ck_assert_int_eq(rename(file, aside), 0);
    check_ok(tamis_iter_open(one.db, NULL, &iter, &one.err), one.err);
    for (tamis_iter_first(iter); tamis_iter_valid(iter); tamis_iter_next(iter))
        ;
    check_status(tamis_iter_status(iter, &one.err), TAMIS_CORRUPT, one.err);
    ck_assert_ptr_nonnull(strstr(one.err.message, name));
    tamis_iter_close(iter);
    ck_assert_int_eq(rename(aside, file), 0);
    check_all_there();
    free(aside);
    free(file);
}
END_TEST

START_TEST(a_bound_out_of_range_is_invalid)
{
    tamis_db *none = NULL;

    one_store_close();
    one.options.max_open_files = (1 << 20) + 1;
    check_status(tamis_open(one.path, &one.options, &none, &one.err), TAMIS_INVALID, one.err);
    ck_assert_str_eq(one.err.message, "max_open_files: expected 0..1048576, found 1048577");
    one.options.max_open_files = 1 << 20;
    one_store_open();
}
END_TEST

/* Descriptors of this process that are not those of tables, when no background work runs. */
static unsigned
count_others(void)
{
    one_wait_idle();
    return count_descriptors("") - count_descriptors(".sst");
}

/* basho/leveldb #30: descriptors leak when a store is opened again and again. */
START_TEST(opening_again_and_again_leaks_no_descriptor)
{
    enum { ROUNDS = 120 / ONE_STORE_DIVISOR };
    unsigned before;
    tamis_db *none = NULL;
    char *current = temp_dir_path(one.path, "CURRENT");
    char *aside = temp_dir_path(one.scratch, "CURRENT");
    tamis_options options = one.options;

    before = count_others();
    for (unsigned i = 0; i < ROUNDS; i++) {
        tamis_iter *iter;

        one_put_number(i % 7, i, 20);
        check_ok(tamis_iter_open(one.db, NULL, &iter, &one.err), one.err);
        tamis_iter_first(iter);
        ck_assert(tamis_iter_valid(iter));
        tamis_iter_close(iter);
        if (i % 4 == 0)
            check_status(tamis_open(one.path, &options, &none, &one.err), TAMIS_BUSY, one.err);
        one_store_reopen();
    }
    one_store_close();
    ck_assert_int_eq(rename(current, aside), 0);
    for (unsigned i = 0; i < ROUNDS / 4; i++)
        check_status(tamis_open(one.path, &options, &none, &one.err), TAMIS_CORRUPT, one.err);
    ck_assert_int_eq(rename(aside, current), 0);
    one_store_open();
    ck_assert_uint_eq(count_others(), before);
    ck_assert_uint_eq(one_count_keys(), KEYS);
    free(current);
    free(aside);
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("open_files");
    TCase *tests = tcase_create("open_files");

    tcase_set_timeout(tests, 0);
    tcase_add_checked_fixture(tests, setup, one_store_end);
    tcase_add_test(tests, a_store_of_many_tables_is_read_with_few_descriptors);
    tcase_add_test(tests, filters_answer_without_a_descriptor);
    tcase_add_test(tests,
                   a_small_limit_of_the_process_is_no_trouble_with_the_bound_and_is_told_without);
    tcase_add_test(tests, threads_that_read_more_tables_than_may_be_open_get_right_answers);
    tcase_add_test(tests, a_table_that_is_gone_when_it_is_opened_again_is_told_by_name);
    tcase_add_test(tests, a_bound_out_of_range_is_invalid);
    tcase_add_test(tests, opening_again_and_again_leaks_no_descriptor);
    suite_add_tcase(suite, tests);
    return check_run(suite);
}
