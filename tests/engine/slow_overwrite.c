/* SPDX-License-Identifier: MIT
 *
 * tests/engine/slow_overwrite.c -- a million keys overwritten at random as fast as it goes, for minutes: level 0 stays within
 * its limit, no writer is stopped for long, and the files stay near the size of what is alive.
 *
 * What is held to 100 ms is how long the store makes a writer wait. The longest put is printed: it has in it what the disk and
 * the scheduler take, which is more on a machine that does other work.
 *
 * Not part of the default run: ctest -C slow -L slow. TAMIS_TEST_SECONDS is how long each run writes (180).
 * TMPDIR where.
 */
#include <check.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <tamis/tamis.h>

#include "tests/support/check_status.h"
#include "tests/support/rng.h"
#include "tests/support/temp_dir.h"

enum {
    KEY_COUNT = 1000000,
    KEY_BYTES = 16,
    VALUE_BYTES = 100,
    WRITERS_MAX = 2,
    LEVEL0_STOP = 20,
    LONG_NS = 100 * 1000 * 1000, // no writer may be stopped longer
};

struct overwrite {
    tamis_db *db;
    uint64_t end_ns;
};

struct writer {
    struct overwrite *overwrite;
    struct rng rng;
    pthread_t thread;
    uint64_t put_count;
    uint64_t longest_ns;
    uint64_t long_count; // puts above LONG_NS
};

static uint64_t
now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void
put_random(struct writer *writer, uint64_t number)
{
    char key[KEY_BYTES + 1];
    uint8_t value[VALUE_BYTES];
    tamis_error err;

    snprintf(key, sizeof key, "%016" PRIu64, number);
    rng_fill(&writer->rng, value, sizeof value);
    if (tamis_put(writer->overwrite->db, NULL, (tamis_slice){key, KEY_BYTES},
                  (tamis_slice){value, sizeof value}, &err) != TAMIS_OK) {
        fprintf(stderr, "%s\n", err.message);
        abort();
    }
}

static void *
write_on(void *arg)
{
    struct writer *writer = arg;
    uint64_t before_ns = now_ns();

    while (before_ns < writer->overwrite->end_ns) {
        uint64_t after_ns;

        put_random(writer, rng_below(&writer->rng, KEY_COUNT));
        after_ns = now_ns();
        if (after_ns - before_ns > writer->longest_ns)
            writer->longest_ns = after_ns - before_ns;
        writer->long_count += after_ns - before_ns > LONG_NS;
        writer->put_count++;
        before_ns = after_ns;
    }
    return NULL;
}

static tamis_stats
get_stats(tamis_db *db)
{
    tamis_stats stats;
    tamis_error err;

    tamis_stats_init(&stats);
    check_ok(tamis_get_stats(db, &stats, &err), err);
    return stats;
}

static void
say(const struct writer *writers, size_t writer_count, double seconds, const tamis_stats *stats)
{
    uint64_t put_count = 0;

    for (size_t i = 0; i < writer_count; i++)
        put_count += writers[i].put_count;
    printf("%zu writers, %.0f s: %.0f puts a second, write amplification %.1f\n", writer_count,
           seconds, (double)put_count / seconds,
           (double)(stats->flush_bytes_written + stats->compaction_bytes_written) /
               (double)stats->flush_bytes_written);
    for (size_t i = 0; i < writer_count; i++)
        printf("  writer %zu: longest put %.1f ms, %" PRIu64 " above 100 ms\n", i,
               1e-6 * (double)writers[i].longest_ns, writers[i].long_count);
    printf("  slowed %" PRIu64 " times, %.1f s; stopped %" PRIu64
           " times, %.3f s, longest %.1f ms\n",
           stats->slowdown_count, 1e-9 * (double)stats->slowdown_ns, stats->stall_count,
           1e-9 * (double)stats->stall_ns, 1e-6 * (double)stats->stall_longest_ns);
    for (int level = 0; level < TAMIS_LEVEL_COUNT; level++)
        if (stats->level[level].file_count != 0)
            printf("  level %d: %" PRIu64 " tables, %" PRIu64 " MB\n", level,
                   stats->level[level].file_count, stats->level[level].file_bytes >> 20);
    fflush(stdout);
}

static void
overwrite_with(size_t writer_count)
{
    const char *text = getenv("TAMIS_TEST_SECONDS");
    uint64_t seconds = text != NULL ? strtoull(text, NULL, 10) : 180;
    uint64_t seed = rng_seed("slow_overwrite", 77);
    char *scratch = temp_dir_make();
    char *path = temp_dir_path(scratch, "db");
    struct overwrite overwrite = {0};
    struct writer writers[WRITERS_MAX] = {0};
    tamis_options options;
    tamis_stats stats;
    tamis_error err;
    uint64_t begin_ns;

    tamis_options_init(&options);
    options.create_if_missing = true;
    check_ok(tamis_open(path, &options, &overwrite.db, &err), err);
    for (size_t i = 0; i < writer_count; i++) {
        writers[i].overwrite = &overwrite;
        writers[i].rng = rng_from(seed + i);
    }
    for (uint64_t i = 0; i < KEY_COUNT; i++)
        put_random(&writers[0], i);
    begin_ns = now_ns();
    overwrite.end_ns = begin_ns + seconds * 1000000000u;
    for (size_t i = 0; i < writer_count; i++)
        ck_assert_int_eq(pthread_create(&writers[i].thread, NULL, write_on, &writers[i]), 0);
    for (size_t i = 0; i < writer_count; i++)
        pthread_join(writers[i].thread, NULL);
    stats = get_stats(overwrite.db);
    say(writers, writer_count, 1e-9 * (double)(now_ns() - begin_ns), &stats);
    ck_assert_uint_lt(stats.level[0].file_count, LEVEL0_STOP);
    ck_assert_uint_le(stats.stall_longest_ns, LONG_NS);
    check_ok(tamis_wait_idle(overwrite.db, &err), err);
    check_ok(tamis_close(overwrite.db, &err), err);
    free(path);
    temp_dir_remove(scratch);
}

START_TEST(one_writer_at_full_speed_is_never_stopped_for_long)
{
    overwrite_with(1);
}
END_TEST

START_TEST(two_writers_at_full_speed_are_never_stopped_for_long)
{
    overwrite_with(2);
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("slow overwrite");
    TCase *tests = tcase_create("slow overwrite");

    tcase_set_timeout(tests, 0);
    tcase_add_test(tests, one_writer_at_full_speed_is_never_stopped_for_long);
    tcase_add_test(tests, two_writers_at_full_speed_are_never_stopped_for_long);
    suite_add_tcase(suite, tests);
    return check_run(suite);
}
