/* SPDX-License-Identifier: MIT
 *
 * tests/engine/test_multi_get.c -- many keys at once: as single lookups answer them, all of one moment, each with a status of its own.
 */
#include "tests/engine/one_store.h"

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "sstable/env.h"
#include "tests/support/rng.h"

enum { KEYS = 4000, LOOKUPS_MAX = 150 };

/* Keys 0 .. KEYS-1 over memtable, level 0 and deeper levels; some overwritten, some deleted, a range of them too. */
static void
make_layers(struct rng *rng)
{
    char from[32];
    char to[32];

    for (unsigned version = 1; version <= 4; version++) {
        for (unsigned i = 0; i < KEYS / 2; i++)
            one_put_number((unsigned)rng_below(rng, KEYS), version, 100);
        for (unsigned i = 0; i < KEYS / 10; i++)
            one_delete_number((unsigned)rng_below(rng, KEYS));
        check_ok(tamis_delete_range(one.db, NULL, one_key(from, version * 500),
                                    one_key(to, version * 500 + 60), &one.err),
                 one.err);
        if (version == 1)
            one_compact();
    }
}

static void
release_all(tamis_lookup *lookups, size_t count)
{
    for (size_t i = 0; i < count; i++)
        tamis_pinned_release(&lookups[i].value);
}

/* Random numbers of keys, some of them twice, some beyond all, at once and one by one. */
static void
check_against_single_lookups(struct rng *rng, const tamis_snapshot *snapshot)
{
    char texts[LOOKUPS_MAX][32];
    unsigned numbers[LOOKUPS_MAX];
    tamis_lookup lookups[LOOKUPS_MAX];
    size_t count = (size_t)rng_below(rng, LOOKUPS_MAX + 1);
    tamis_read_options options;

    tamis_read_options_init(&options);
    options.snapshot = snapshot;
    memset(lookups, 0x55, sizeof lookups); // what stands there does not matter
    for (size_t i = 0; i < count; i++) {
        numbers[i] = (unsigned)rng_below(rng, KEYS + KEYS / 10);
        lookups[i].key = one_key(texts[i], numbers[i]);
    }
    check_ok(tamis_multi_get(one.db, &options, lookups, count, &one.err), one.err);
    for (size_t i = 0; i < count; i++) {
        long version = one_version_at(snapshot, numbers[i]);
        unsigned head[2];

        if (lookups[i].status != (version < 0 ? TAMIS_NOT_FOUND : TAMIS_OK))
            ck_abort_msg("key %u: %s", numbers[i], tamis_status_name(lookups[i].status));
        if (version < 0) {
            ck_assert_ptr_null(lookups[i].value.value.data);
            continue;
        }
        ck_assert_uint_eq(lookups[i].value.value.length, 100);
        memcpy(head, lookups[i].value.value.data, sizeof head);
        if (head[0] != numbers[i] || head[1] != (unsigned)version)
            ck_abort_msg("key %u: that of %u, version %u", numbers[i], head[0], head[1]);
    }
    release_all(lookups, count);
}

START_TEST(many_keys_are_answered_as_each_alone)
{
    struct rng rng = rng_from(rng_seed("many_keys_are_answered_as_each_alone", 51));
    tamis_snapshot *snapshot = NULL;

    make_layers(&rng);
    check_ok(tamis_snapshot_take(one.db, &snapshot, &one.err), one.err);
    make_layers(&rng);
    for (unsigned round = 0; round < 60; round++)
        check_against_single_lookups(&rng, round % 3 == 0 ? snapshot : NULL);
    tamis_snapshot_release(one.db, snapshot);
    one_compact();
    one_store_reopen();
    for (unsigned round = 0; round < 60; round++)
        check_against_single_lookups(&rng, NULL);
}
END_TEST

START_TEST(a_key_that_cannot_be_is_told_alone)
{
    static char large[TAMIS_KEY_BYTES_MAX + 1];
    tamis_lookup lookups[3] = {
        {.key = {"here", 4}}, {.key = {large, sizeof large}}, {.key = {"nowhere", 7}}};
    tamis_read_options options = {0};

    one_put(tamis_text("here"), tamis_text("value"));
    ck_assert_int_eq(tamis_multi_get(one.db, NULL, lookups, 3, &one.err), TAMIS_TOO_LARGE);
    ck_assert_int_eq(one.err.code, TAMIS_TOO_LARGE);
    ck_assert_int_eq(lookups[0].status, TAMIS_OK);
    ck_assert(tm_slice_equal(lookups[0].value.value, tamis_text("value")));
    ck_assert_int_eq(lookups[1].status, TAMIS_TOO_LARGE);
    ck_assert_int_eq(lookups[2].status, TAMIS_NOT_FOUND);
    ck_assert_int_eq(tamis_close(one.db, &one.err), TAMIS_BUSY); // one value is held
    release_all(lookups, 3);
    check_ok(tamis_multi_get(one.db, NULL, NULL, 0, &one.err), one.err);
    ck_assert_int_eq(tamis_multi_get(one.db, &options, lookups, 3, &one.err), TAMIS_INVALID);
    for (size_t i = 0; i < 3; i++)
        ck_assert_int_eq(lookups[i].status, TAMIS_INVALID);
    release_all(lookups, 3); // nothing to let go
}
END_TEST

/* Flip a byte in the middle of each table. */
static void
damage_tables(void)
{
    DIR *directory = opendir(one.path);
    struct dirent *entry;

    ck_assert_ptr_nonnull(directory);
    while ((entry = readdir(directory)) != NULL) {
        char path[1024];
        uint8_t byte;
        int fd;

        if (!one_ends_with(entry->d_name, ".sst"))
            continue;
        snprintf(path, sizeof path, "%s/%s", one.path, entry->d_name);
        fd = open(path, O_RDWR);
        ck_assert_int_ge(fd, 0);
        ck_assert_int_eq(pread(fd, &byte, 1, 30000), 1);
        byte ^= 1;
        ck_assert_int_eq(pwrite(fd, &byte, 1, 30000), 1);
        close(fd);
    }
    closedir(directory);
}

START_TEST(damage_is_told_for_the_keys_it_concerns)
{
    enum { COUNT = 400 };
    char texts[COUNT][32];
    tamis_lookup lookups[COUNT];
    unsigned corrupt_count = 0;

    for (unsigned i = 0; i < COUNT; i++)
        one_put_number(i, 1, 100);
    one_compact();
    one_store_close();
    damage_tables();
    one_store_open();
    for (unsigned i = 0; i < COUNT; i++)
        lookups[i].key = one_key(texts[i], i);
    ck_assert_int_eq(tamis_multi_get(one.db, NULL, lookups, COUNT, &one.err), TAMIS_CORRUPT);
    ck_assert_ptr_nonnull(strstr(one.err.message, ".sst"));
    for (unsigned i = 0; i < COUNT; i++) {
        ck_assert(lookups[i].status == TAMIS_OK || lookups[i].status == TAMIS_CORRUPT);
        corrupt_count += lookups[i].status == TAMIS_CORRUPT;
    }
    printf("%u keys of %d in damaged blocks\n", corrupt_count, COUNT);
    ck_assert_uint_ge(corrupt_count, 1);
    ck_assert_uint_le(corrupt_count, COUNT / 4);
    release_all(lookups, COUNT);
}
END_TEST

START_TEST(each_key_is_counted_once)
{
    enum { COUNT = 100 };
    char texts[COUNT][32];
    tamis_lookup lookups[COUNT];
    tamis_stats before;
    tamis_stats after;
    tamis_stats single;

    for (unsigned i = 0; i < 2000; i++)
        one_put_number(i, 1, 100);
    one_compact();
    for (unsigned i = 0; i < COUNT; i++)
        lookups[i].key = one_key(texts[i], i * 30); // a third of them is there not
    before = one_stats();
    check_ok(tamis_multi_get(one.db, NULL, lookups, COUNT, &one.err), one.err);
    release_all(lookups, COUNT);
    after = one_stats();
    for (unsigned i = 0; i < COUNT; i++)
        (void)one_version(i * 30);
    single = one_stats();
    ck_assert_uint_eq(after.gets - before.gets, COUNT);
    ck_assert_uint_eq(after.gets_found - before.gets_found, 67);
    ck_assert_uint_eq(single.tables_read - after.tables_read,
                      after.tables_read - before.tables_read);
    ck_assert_uint_eq(
        single.cache_hits + single.cache_misses - after.cache_hits - after.cache_misses,
        after.cache_hits + after.cache_misses - before.cache_hits - before.cache_misses);
}
END_TEST

/* ---- Beside a writer ------------------------------------------------------------------------------ */

/* A batch puts the same number under all accounts; every reader must see one number. */
enum { ACCOUNTS = 70, BATCHES = 3000 / ONE_STORE_DIVISOR };

static _Atomic bool is_over;
static _Atomic unsigned torn_count;
static _Atomic unsigned long read_count;

static void *
read_accounts(void *arg)
{
    char texts[ACCOUNTS][32];
    tamis_lookup lookups[ACCOUNTS];

    (void)arg;
    for (unsigned i = 0; i < ACCOUNTS; i++)
        lookups[i].key = one_key(texts[i], i * 37 % ACCOUNTS);
    do {
        tamis_error err;
        unsigned first = 0;
        unsigned number = 0;

        if (tamis_multi_get(one.db, NULL, lookups, ACCOUNTS, &err) != TAMIS_OK)
            atomic_fetch_add(&torn_count, 1);
        for (unsigned i = 0; i < ACCOUNTS; i++) {
            if (lookups[i].status == TAMIS_OK)
                memcpy(&number, lookups[i].value.value.data, sizeof number);
            if (i == 0)
                first = number;
            if (lookups[i].status != TAMIS_OK || number != first)
                atomic_fetch_add(&torn_count, 1);
        }
        release_all(lookups, ACCOUNTS);
        atomic_fetch_add(&read_count, 1);
    } while (!atomic_load(&is_over));
    return NULL;
}

START_TEST(all_keys_are_seen_at_one_moment_beside_a_writer)
{
    static char value[200];
    pthread_t readers[2];
    tamis_batch *batch = NULL;
    char text[32];

    check_ok(tamis_batch_create(NULL, &batch, &one.err), one.err);
    for (unsigned number = 0; number < BATCHES; number++) {
        tamis_batch_clear(batch);
        memcpy(value, &number, sizeof number);
        for (unsigned i = 0; i < ACCOUNTS; i++)
            check_ok(tamis_batch_put(batch, one_key(text, i), (tamis_slice){value, sizeof value},
                                     &one.err),
                     one.err);
        check_ok(tamis_write(one.db, NULL, batch, &one.err), one.err);
        for (int i = 0; number == 0 && i < 2; i++)
            ck_assert_int_eq(pthread_create(&readers[i], NULL, read_accounts, NULL), 0);
    }
    atomic_store(&is_over, true);
    for (int i = 0; i < 2; i++)
        pthread_join(readers[i], NULL);
    printf("%lu times %d accounts\n", atomic_load(&read_count), ACCOUNTS);
    ck_assert_uint_eq(atomic_load(&torn_count), 0);
    tamis_batch_destroy(batch);
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("multi_get");
    TCase *tests = tcase_create("multi_get");

    tcase_set_timeout(tests, 0);
    tcase_add_checked_fixture(tests, one_store_begin, one_store_end);
    tcase_add_test(tests, many_keys_are_answered_as_each_alone);
    tcase_add_test(tests, a_key_that_cannot_be_is_told_alone);
    tcase_add_test(tests, damage_is_told_for_the_keys_it_concerns);
    tcase_add_test(tests, each_key_is_counted_once);
    tcase_add_test(tests, all_keys_are_seen_at_one_moment_beside_a_writer);
    suite_add_tcase(suite, tests);
    return check_run(suite);
}
