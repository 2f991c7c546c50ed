/* SPDX-License-Identifier: MIT
 *
 * tests/engine/test_filter_rate.c -- the filters of a real tree: no key is denied, absent keys pass as often as theory says,
 * and every counter adds up.
 */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tamis/tamis.h>

#include "tests/support/check_status.h"
#include "tests/support/rng.h"
#include "tests/support/temp_dir.h"

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
enum { KEY_COUNT = 40000, ABSENT_COUNT = 50000 };
#else
enum { KEY_COUNT = 300000, ABSENT_COUNT = 1000000 };
#endif

static char *scratch;
static char *directory; // of the store, in scratch
static tamis_db *db;

static void
open_store(double bits_per_key, tamis_filter_kind kind, double rate)
{
    tamis_options options;
    tamis_error err;

    tamis_options_init(&options);
    options.create_if_missing = true;
    options.write_buffer_bytes = 1 << 20;
    options.filter_bits_per_key = bits_per_key;
    options.filter_kind = kind;
    options.filter_false_positive_rate = rate;
    check_ok(tamis_open(directory, &options, &db, &err), err);
}

static void
close_store(void)
{
    tamis_error err;

    check_ok(tamis_close(db, &err), err);
}

static void
setup(void)
{
    scratch = temp_dir_make();
    directory = temp_dir_path(scratch, "store");
}

static void
teardown(void)
{
    free(directory);
    temp_dir_remove(scratch);
}

/* Stored keys are even, absent ones odd: every absent key lies inside the key range. */
static tamis_slice
make_key(char text[32], uint64_t number)
{
    snprintf(text, 32, "%016llu", (unsigned long long)number);
    return tamis_text(text);
}

static void
load(uint64_t first, uint64_t count)
{
    tamis_error err;
    char value[64];

    memset(value, 'v', sizeof value);
    for (uint64_t i = 0; i < count; i++) {
        char text[32];
        uint64_t at = first + i * 1000003 % count; // every number once, in no order

        check_ok(
            tamis_put(db, NULL, make_key(text, at * 2), (tamis_slice){value, sizeof value}, &err),
            err);
    }
    check_ok(tamis_flush(db, &err), err);
    check_ok(tamis_wait_idle(db, &err), err);
}

static void
ask_absent(uint64_t key_count, uint64_t ask_count, uint64_t seed)
{
    struct rng rng = rng_from(seed);
    tamis_error err;

    for (uint64_t i = 0; i < ask_count; i++) {
        char text[32];
        bool there;

        check_ok(tamis_exists(db, NULL, make_key(text, rng_below(&rng, key_count) * 2 + 1), &there,
                              &err),
                 err);
        ck_assert(!there);
    }
}

struct expectation {
    double false_positives; // sum over files of probes times exact rate
    double variance;
    uint64_t found;
    uint64_t probes;
    uint64_t files;
};

static bool
add_expectation(void *arg, const tamis_table_stats *table)
{
    struct expectation *sum = arg;
    double probes = (double)table->filter_probes;
    double rate = tamis_theory_false_positive_rate(&table->filter.geometry);

    ck_assert_double_eq(rate, table->false_positive_rate_theory);
    ck_assert_uint_eq(table->filter_probes, table->filter_negatives + table->filter_true_positives +
                                                table->filter_false_positives);
    ck_assert_uint_eq(table->filter_true_positives, 0);
    sum->false_positives += probes * rate;
    sum->variance += probes * rate * (1 - rate) +
                     probes * probes * tamis_theory_rate_variance(&table->filter.geometry);
    sum->found += table->filter_false_positives;
    sum->probes += table->filter_probes;
    sum->files++;
    return true;
}

START_TEST(absent_keys_pass_the_filters_as_often_as_the_theory_of_each_file_says)
{
    uint64_t seed = rng_seed("absent keys", 3);
    struct expectation sum = {0};
    tamis_error err;
    double deviation;

    open_store(10.0, TAMIS_FILTER_PAIR512, 0);
    load(0, KEY_COUNT);
    ask_absent(KEY_COUNT, ABSENT_COUNT, seed);
    check_ok(tamis_visit_tables(db, add_expectation, &sum, &err), err);
    deviation = sqrt(sum.variance);
    printf("%d absent keys, %llu files, %llu probes: %llu false positives, expected %.0f +- %.0f\n",
           ABSENT_COUNT, (unsigned long long)sum.files, (unsigned long long)sum.probes,
           (unsigned long long)sum.found, sum.false_positives, 5 * deviation);
    ck_assert_uint_gt(sum.files, 1);
    // All but those between the last key of one table and the first of the next, where no other level has a table.
    ck_assert_uint_ge(sum.probes, ABSENT_COUNT - ABSENT_COUNT / 1000);
    ck_assert_double_lt(fabs((double)sum.found - sum.false_positives), 5 * deviation);
    close_store();
}
END_TEST

static tamis_stats
get_stats(void)
{
    tamis_stats stats;
    tamis_error err;

    tamis_stats_init(&stats);
    check_ok(tamis_get_stats(db, &stats, &err), err);
    return stats;
}

START_TEST(no_present_key_is_denied_and_every_probe_is_accounted_for)
{
    tamis_stats stats;
    tamis_error err;

    open_store(10.0, TAMIS_FILTER_PAIR512, 0);
    load(0, KEY_COUNT / 4);
    for (uint64_t i = 0; i < KEY_COUNT / 4; i++) {
        char text[32];
        bool there;

        check_ok(tamis_exists(db, NULL, make_key(text, i * 2), &there, &err), err);
        ck_assert(there);
    }
    stats = get_stats();
    ck_assert_uint_eq(stats.total.filter_true_positives, KEY_COUNT / 4);
    ck_assert_uint_eq(stats.total.filter_probes, stats.total.filter_negatives +
                                                     stats.total.filter_true_positives +
                                                     stats.total.filter_false_positives);
    ck_assert_uint_eq(stats.tables_read,
                      stats.total.filter_true_positives + stats.total.filter_false_positives);
    ck_assert_uint_eq(stats.gets, KEY_COUNT / 4);
    ck_assert_uint_eq(stats.gets_found, KEY_COUNT / 4);
    ck_assert_uint_eq(stats.total.key_count, KEY_COUNT / 4);
    close_store();
}
END_TEST

START_TEST(scans_and_seeks_never_ask_a_filter)
{
    tamis_iter *iter;
    tamis_error err;
    char text[32];

    open_store(10.0, TAMIS_FILTER_PAIR512, 0);
    load(0, KEY_COUNT / 4);
    check_ok(tamis_iter_open(db, NULL, &iter, &err), err);
    for (tamis_iter_first(iter); tamis_iter_valid(iter); tamis_iter_next(iter))
        ;
    check_ok(tamis_iter_status(iter, &err), err);
    tamis_iter_seek(iter, make_key(text, 77)); // no key: the next one
    ck_assert(tamis_iter_valid(iter));
    ck_assert_mem_eq(tamis_iter_key(iter).data, make_key(text, 78).data, 16);
    tamis_iter_close(iter);
    ck_assert_uint_eq(get_stats().total.filter_probes, 0);
    close_store();
}
END_TEST

START_TEST(a_filter_decides_nothing_when_none_was_asked_for)
{
    tamis_stats stats;

    open_store(0.0, TAMIS_FILTER_PAIR512, 0);
    load(0, 5000);
    ask_absent(5000, 1000, 5);
    stats = get_stats();
    ck_assert_uint_eq(stats.total.filter_bytes, 0);
    ck_assert_uint_eq(stats.total.filter_negatives, 0);
    ck_assert_uint_eq(stats.tables_read, stats.total.filter_probes);
    ck_assert_double_eq(stats.total.false_positive_rate_theory, 1.0);
    close_store();
}
END_TEST

static bool
check_setting(void *arg, const tamis_table_stats *table)
{
    const tamis_filter_info *wanted = arg;

    ck_assert_int_eq(table->filter.geometry.kind, wanted->geometry.kind);
    ck_assert_double_eq(table->filter.bits_per_key_requested, wanted->bits_per_key_requested);
    ck_assert_uint_eq(table->filter.geometry.key_count, table->key_count);
    // Rounded up to whole lines of 512 bits, never down.
    ck_assert_double_ge(table->filter.bits_per_key_delivered, wanted->bits_per_key_requested);
    ck_assert_double_lt(table->filter.bits_per_key_delivered,
                        wanted->bits_per_key_requested + 2 * 512.0 / (double)table->key_count +
                            1e-9);
    return true;
}

START_TEST(fractions_of_bits_and_kinds_are_honoured)
{
    const struct {
        double bits;
        tamis_filter_kind kind;
    } settings[] = {
        {2.5, TAMIS_FILTER_PAIR512}, {9.9, TAMIS_FILTER_BLK512}, {13.7, TAMIS_FILTER_STANDARD}};

    for (size_t i = 0; i < sizeof settings / sizeof settings[0]; i++) {
        tamis_filter_info wanted = {.geometry = {.kind = settings[i].kind},
                                    .bits_per_key_requested = settings[i].bits};
        tamis_error err;

        open_store(settings[i].bits, settings[i].kind, 0);
        load(0, 20000);
        check_ok(tamis_compact_range(db, NULL, NULL, &err), err);
        check_ok(tamis_visit_tables(db, check_setting, &wanted, &err), err);
        close_store();
        check_ok(tamis_destroy(directory, NULL, &err), err);
    }
}
END_TEST

START_TEST(a_rate_decides_the_bits)
{
    tamis_stats stats;

    open_store(10.0, TAMIS_FILTER_PAIR512, 0.001);
    load(0, 40000);
    stats = get_stats();
    ck_assert_double_le(stats.total.false_positive_rate_theory, 0.00101);
    ck_assert_double_ge(stats.total.false_positive_rate_theory, 0.0008);
    ck_assert_double_gt(stats.total.bits_per_key_delivered, 14.0);
    close_store();
}
END_TEST

START_TEST(files_keep_the_filter_they_were_written_with_when_the_setting_changes)
{
    const double bits[] = {10.0, 0.0, 20.0};
    tamis_error err;

    for (uint64_t generation = 0; generation < 3; generation++) {
        open_store(bits[generation], generation == 2 ? TAMIS_FILTER_BLK512 : TAMIS_FILTER_PAIR512,
                   0);
        load(generation * 1000, 1000);
        for (uint64_t i = 0; i < (generation + 1) * 1000; i++) {
            char text[32];
            bool there;

            check_ok(tamis_exists(db, NULL, make_key(text, i * 2), &there, &err), err);
            ck_assert(there);
        }
        ask_absent((generation + 1) * 1000, 1000, generation);
        close_store();
    }
    open_store(20.0, TAMIS_FILTER_BLK512, 0);
    check_ok(tamis_compact_range(db, NULL, NULL, &err), err);
    ask_absent(3000, 1000, 9);
    close_store();
}
END_TEST

START_TEST(versions_and_tombstones_of_a_key_count_once)
{
    tamis_snapshot *snapshot;
    tamis_error err;
    tamis_stats stats;

    open_store(10.0, TAMIS_FILTER_PAIR512, 0);
    for (int round = 0; round < 3; round++) {
        for (uint64_t i = 0; i < 100; i++) {
            char text[32];
            tamis_slice key = make_key(text, i * 2);

            if (round < 2)
                check_ok(tamis_put(db, NULL, key, tamis_text("v"), &err), err);
            else
                check_ok(tamis_delete(db, NULL, key, &err), err);
        }
        if (round < 2)
            check_ok(tamis_snapshot_take(db, &snapshot, &err), err);
        if (round == 0)
            tamis_snapshot_release(db, snapshot);
    }
    check_ok(tamis_flush(db, &err), err);
    stats = get_stats();
    ck_assert_uint_eq(stats.total.entry_count, 200); // what the snapshot sees, and the tombstones
    ck_assert_uint_eq(stats.total.tombstone_count, 100);
    ck_assert_uint_eq(stats.total.key_count, 100);
    tamis_snapshot_release(db, snapshot);
    close_store();
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("filter rate");
    TCase *tcase = tcase_create("filter rate");

    tcase_set_timeout(tcase, 0);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, absent_keys_pass_the_filters_as_often_as_the_theory_of_each_file_says);
    tcase_add_test(tcase, no_present_key_is_denied_and_every_probe_is_accounted_for);
    tcase_add_test(tcase, scans_and_seeks_never_ask_a_filter);
    tcase_add_test(tcase, a_filter_decides_nothing_when_none_was_asked_for);
    tcase_add_test(tcase, fractions_of_bits_and_kinds_are_honoured);
    tcase_add_test(tcase, a_rate_decides_the_bits);
    tcase_add_test(tcase, files_keep_the_filter_they_were_written_with_when_the_setting_changes);
    tcase_add_test(tcase, versions_and_tombstones_of_a_key_count_once);
    suite_add_tcase(suite, tcase);
    return check_run(suite);
}
