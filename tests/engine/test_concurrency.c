/* SPDX-License-Identifier: MIT
 *
 * tests/engine/test_concurrency.c -- many threads on one store: what each reads is a state that was really there.
 *
 * Runs on real threads; under the thread sanitizer it is also the search for races. Work is counted, not timed.
 */
#include <check.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include <tamis/tamis.h>

#include "tests/support/check_status.h"
#include "tests/support/rng.h"
#include "tests/support/temp_dir.h"

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
enum { SCALE = 1 };
#else
enum { SCALE = 5 };
#endif

enum {
    WRITE_BUFFER_BYTES = 64 << 10,
    ACCOUNT_COUNT = 100,
    ACCOUNT_START = 100,
    TRANSFER_COUNT = 1500 * SCALE,
    COUNTER_STEPS = 6000 * SCALE,
    SYNC_WRITER_COUNT = 6,
    SYNC_WRITE_COUNT = 40 * SCALE,
};

static char *directory;
static tamis_db *db;
static _Atomic bool writers_done;

static void
open_store(void)
{
    tamis_options options;
    tamis_error err;

    tamis_options_init(&options);
    options.create_if_missing = true;
    options.write_buffer_bytes = WRITE_BUFFER_BYTES;
    options.background_threads = 4;
    options.block_cache_bytes = 256 << 10; // small enough to evict all the time
    check_ok(tamis_open(directory, &options, &db, &err), err);
}

static void
setup(void)
{
    directory = temp_dir_make();
    atomic_store(&writers_done, false);
    open_store();
}

static void
teardown(void)
{
    tamis_error err;

    check_ok(tamis_close(db, &err), err);
    temp_dir_remove(directory);
}

static tamis_slice
key_text(char text[32], const char *kind, unsigned number)
{
    snprintf(text, 32, "%s-%06u", kind, number);
    return tamis_text(text);
}

static void
put_number(tamis_batch *batch, tamis_slice key, uint64_t number)
{
    char value[512]; // large enough to fill memtables while the test runs
    tamis_error err;

    memset(value, 'x', sizeof value);
    memcpy(value, &number, sizeof number);
    check_ok(tamis_batch_put(batch, key, (tamis_slice){value, sizeof value}, &err), err);
}

static uint64_t
number_of(tamis_slice value)
{
    uint64_t number;

    ck_assert_uint_eq(value.length, 512);
    memcpy(&number, value.data, sizeof number);
    return number;
}

static uint64_t
get_number(const tamis_read_options *options, tamis_slice key)
{
    tamis_pinned pinned;
    tamis_error err;
    uint64_t number;

    check_ok(tamis_get_pinned(db, options, key, &pinned, &err), err);
    number = number_of(pinned.value);
    tamis_pinned_release(&pinned);
    return number;
}

/* ---- Transfers between accounts -------------------------------------------------------------------- */

static pthread_mutex_t bank_mutex =
    PTHREAD_MUTEX_INITIALIZER; // transfers read and write as one step

static void
transfer(tamis_batch *batch, unsigned from, unsigned to)
{
    char text[32];
    uint64_t from_balance, to_balance;
    tamis_error err;

    pthread_mutex_lock(&bank_mutex);
    from_balance = get_number(NULL, key_text(text, "account", from));
    to_balance = get_number(NULL, key_text(text, "account", to));
    tamis_batch_clear(batch);
    if (from != to && from_balance > 0) {
        put_number(batch, key_text(text, "account", from), from_balance - 1);
        put_number(batch, key_text(text, "account", to), to_balance + 1);
        check_ok(tamis_write(db, NULL, batch, &err), err);
    }
    pthread_mutex_unlock(&bank_mutex);
}

static void *
make_transfers(void *arg)
{
    struct rng rng = rng_from((uint64_t)(uintptr_t)arg);
    tamis_batch *batch;
    tamis_error err;

    check_ok(tamis_batch_create(NULL, &batch, &err), err);
    for (int i = 0; i < TRANSFER_COUNT; i++)
        transfer(batch, (unsigned)rng_below(&rng, ACCOUNT_COUNT),
                 (unsigned)rng_below(&rng, ACCOUNT_COUNT));
    tamis_batch_destroy(batch);
    return NULL;
}

static uint64_t
sum_by_iterator(const tamis_snapshot *snapshot)
{
    tamis_slice lower = tamis_text("account");
    tamis_slice upper = tamis_text("accounu");
    tamis_iter_options options;
    tamis_iter *iter;
    tamis_error err;
    uint64_t sum = 0;
    int count = 0;

    tamis_iter_options_init(&options);
    options.snapshot = snapshot;
    options.lower = &lower;
    options.upper = &upper;
    check_ok(tamis_iter_open(db, &options, &iter, &err), err);
    for (tamis_iter_first(iter); tamis_iter_valid(iter); tamis_iter_next(iter)) {
        sum += number_of(tamis_iter_value(iter));
        count++;
    }
    check_ok(tamis_iter_status(iter, &err), err);
    tamis_iter_close(iter);
    ck_assert_int_eq(count, ACCOUNT_COUNT);
    return sum;
}

static uint64_t
sum_by_snapshot(const tamis_snapshot *snapshot)
{
    tamis_read_options options;
    uint64_t sum = 0;

    tamis_read_options_init(&options);
    options.snapshot = snapshot;
    for (unsigned i = 0; i < ACCOUNT_COUNT; i++) {
        char text[32];

        sum += get_number(&options, key_text(text, "account", i));
    }
    return sum;
}

static void *
add_up(void *arg)
{
    uint64_t *rounds = arg;
    tamis_error err;

    while (!atomic_load(&writers_done)) {
        tamis_snapshot *snapshot;

        ck_assert_uint_eq(sum_by_iterator(NULL), ACCOUNT_COUNT * ACCOUNT_START);
        check_ok(tamis_snapshot_take(db, &snapshot, &err), err);
        ck_assert_uint_eq(sum_by_snapshot(snapshot), ACCOUNT_COUNT * ACCOUNT_START);
        ck_assert_uint_eq(sum_by_iterator(snapshot), ACCOUNT_COUNT * ACCOUNT_START);
        tamis_snapshot_release(db, snapshot);
        ++*rounds;
    }
    return NULL;
}

static void *
flush_and_compact(void *arg)
{
    tamis_error err;

    (void)arg;
    while (!atomic_load(&writers_done)) {
        check_ok(tamis_flush(db, &err), err);
        check_ok(tamis_compact_range(db, NULL, NULL, &err), err);
    }
    return NULL;
}

START_TEST(sums_of_accounts_are_constant_under_transfers_flushes_and_compactions)
{
    uint64_t seed = rng_seed("accounts", 7);
    pthread_t writers[2], readers[2], maintenance;
    uint64_t rounds[2] = {0, 0};
    tamis_batch *batch;
    tamis_error err;
    tamis_stats stats;

    check_ok(tamis_batch_create(NULL, &batch, &err), err);
    for (unsigned i = 0; i < ACCOUNT_COUNT; i++) {
        char text[32];

        put_number(batch, key_text(text, "account", i), ACCOUNT_START);
    }
    check_ok(tamis_write(db, NULL, batch, &err), err);
    tamis_batch_destroy(batch);

    for (int i = 0; i < 2; i++) {
        pthread_create(&readers[i], NULL, add_up, &rounds[i]);
        pthread_create(&writers[i], NULL, make_transfers, (void *)(uintptr_t)(seed + (uint64_t)i));
    }
    pthread_create(&maintenance, NULL, flush_and_compact, NULL);
    for (int i = 0; i < 2; i++)
        pthread_join(writers[i], NULL);
    atomic_store(&writers_done, true);
    for (int i = 0; i < 2; i++)
        pthread_join(readers[i], NULL);
    pthread_join(maintenance, NULL);

    tamis_stats_init(&stats);
    check_ok(tamis_get_stats(db, &stats, &err), err);
    printf("accounts: %llu and %llu rounds of sums, %llu flushes, %llu compactions\n",
           (unsigned long long)rounds[0], (unsigned long long)rounds[1],
           (unsigned long long)stats.flush_count, (unsigned long long)stats.compaction_count);
    ck_assert_uint_gt(rounds[0] + rounds[1], 0);
    ck_assert_uint_gt(stats.flush_count, 0);
    ck_assert_uint_eq(sum_by_iterator(NULL), ACCOUNT_COUNT * ACCOUNT_START);
    check_ok(tamis_close(db, &err), err);
    open_store();
    ck_assert_uint_eq(sum_by_iterator(NULL), ACCOUNT_COUNT * ACCOUNT_START);
}
END_TEST

/* ---- A counter that only grows ---------------------------------------------------------------------- */

static _Atomic uint64_t counter_acked;

static void *
count_up(void *arg)
{
    struct rng rng = rng_from((uint64_t)(uintptr_t)arg);
    tamis_batch *batch;
    tamis_error err;

    check_ok(tamis_batch_create(NULL, &batch, &err), err);
    for (uint64_t i = 1; i <= COUNTER_STEPS; i++) {
        char text[32];

        tamis_batch_clear(batch);
        put_number(batch, tamis_text("counter"), i);
        put_number(batch, key_text(text, "noise", (unsigned)rng_below(&rng, 500)), i);
        check_ok(tamis_write(db, NULL, batch, &err), err);
        atomic_store(&counter_acked, i);
    }
    tamis_batch_destroy(batch);
    return NULL;
}

static void *
watch_counter(void *arg)
{
    uint64_t *reads = arg;
    uint64_t last = 0;

    while (!atomic_load(&writers_done)) {
        uint64_t acked = atomic_load(&counter_acked);
        uint64_t seen = get_number(NULL, tamis_text("counter"));

        ck_assert_uint_ge(seen, acked); // what was acknowledged before the read began
        ck_assert_uint_ge(seen, last);  // and never backwards
        last = seen;
        ++*reads;
    }
    return NULL;
}

START_TEST(a_counter_is_always_found_and_never_falls_while_memtables_change)
{
    uint64_t seed = rng_seed("counter", 11);
    pthread_t writer, readers[4];
    uint64_t reads[4] = {0};
    tamis_batch *batch;
    tamis_error err;

    check_ok(tamis_batch_create(NULL, &batch, &err), err);
    put_number(batch, tamis_text("counter"), 0);
    check_ok(tamis_write(db, NULL, batch, &err), err);
    tamis_batch_destroy(batch);
    atomic_store(&counter_acked, 0);

    for (int i = 0; i < 4; i++)
        pthread_create(&readers[i], NULL, watch_counter, &reads[i]);
    pthread_create(&writer, NULL, count_up, (void *)(uintptr_t)seed);
    pthread_join(writer, NULL);
    atomic_store(&writers_done, true);
    for (int i = 0; i < 4; i++) {
        pthread_join(readers[i], NULL);
        ck_assert_uint_gt(reads[i], 0);
    }
    ck_assert_uint_eq(get_number(NULL, tamis_text("counter")), COUNTER_STEPS);
}
END_TEST

/* ---- Group commit ------------------------------------------------------------------------------------ */

static void *
write_synced(void *arg)
{
    unsigned writer = (unsigned)(uintptr_t)arg;
    tamis_write_options options;
    tamis_error err;

    tamis_write_options_init(&options);
    for (unsigned i = 0; i < SYNC_WRITE_COUNT; i++) {
        char text[32];

        options.sync = i % 3 != 0; // some of a group ask, some do not
        snprintf(text, sizeof text, "writer-%u-%06u", writer, i);
        check_ok(tamis_put(db, &options, tamis_text(text), tamis_text(text), &err), err);
    }
    return NULL;
}

START_TEST(writes_of_many_threads_share_groups_and_none_is_lost)
{
    pthread_t writers[SYNC_WRITER_COUNT];
    tamis_error err;

    for (uintptr_t i = 0; i < SYNC_WRITER_COUNT; i++)
        pthread_create(&writers[i], NULL, write_synced, (void *)i);
    for (int i = 0; i < SYNC_WRITER_COUNT; i++)
        pthread_join(writers[i], NULL);
    check_ok(tamis_close(db, &err), err);
    open_store();
    for (unsigned writer = 0; writer < SYNC_WRITER_COUNT; writer++)
        for (unsigned i = 0; i < SYNC_WRITE_COUNT; i++) {
            char text[32], value[32];
            size_t length;

            snprintf(text, sizeof text, "writer-%u-%06u", writer, i);
            check_ok(tamis_get(db, NULL, tamis_text(text), value, sizeof value, &length, &err),
                     err);
            ck_assert_uint_eq(length, strlen(text));
            ck_assert_mem_eq(value, text, length);
        }
}
END_TEST

/* ---- Closing while somebody works --------------------------------------------------------------------- */

static void *
compact_once(void *arg)
{
    tamis_error err;

    (void)arg;
    check_ok(tamis_compact_range(db, NULL, NULL, &err), err);
    atomic_store(&writers_done, true);
    return NULL;
}

START_TEST(close_during_a_manual_compaction_is_busy_or_waits_for_its_end)
{
    pthread_t compactor;
    tamis_error err;
    tamis_batch *batch;
    uint64_t refused = 0;

    check_ok(tamis_batch_create(NULL, &batch, &err), err);
    for (unsigned i = 0; i < 2000; i++) {
        char text[32];

        tamis_batch_clear(batch);
        put_number(batch, key_text(text, "noise", i * 7919 % 2000), i);
        check_ok(tamis_write(db, NULL, batch, &err), err);
    }
    tamis_batch_destroy(batch);
    pthread_create(&compactor, NULL, compact_once, NULL);
    while (!atomic_load(&writers_done)) {
        tamis_iter *iter;

        // An iterator alone makes it BUSY as well, so that the store surely stays open under the compaction.
        check_ok(tamis_iter_open(db, NULL, &iter, &err), err);
        check_status(tamis_close(db, &err), TAMIS_BUSY, err);
        tamis_iter_close(iter);
        refused++;
    }
    pthread_join(compactor, NULL);
    printf("close was refused %llu times\n", (unsigned long long)refused);
    check_ok(tamis_close(db, &err), err);
    open_store();
    for (unsigned i = 0; i < 2000; i++) {
        char text[32];

        ck_assert_uint_eq(get_number(NULL, key_text(text, "noise", i * 7919 % 2000)), i);
    }
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("concurrency");
    TCase *tcase = tcase_create("concurrency");

    tcase_set_timeout(tcase, 0);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, sums_of_accounts_are_constant_under_transfers_flushes_and_compactions);
    tcase_add_test(tcase, a_counter_is_always_found_and_never_falls_while_memtables_change);
    tcase_add_test(tcase, writes_of_many_threads_share_groups_and_none_is_lost);
    tcase_add_test(tcase, close_during_a_manual_compaction_is_busy_or_waits_for_its_end);
    suite_add_tcase(suite, tcase);
    return check_run(suite);
}
