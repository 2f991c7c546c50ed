/* SPDX-License-Identifier: MIT
 *
 * tests/engine/slow_memory.c -- what the statistics say of memory adds up to what the process holds.
 *
 * Anonymous resident memory, less that before opening, beside memory_total_bytes: with full memtables, a full cache, after
 * reopening, after compaction. Not part of the default run: ctest -C slow -L slow.
 */
#include <check.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tamis/tamis.h>

#include "tests/support/check_status.h"
#include "tests/support/temp_dir.h"

enum { KEY_COUNT = 1000000, VALUE_BYTES = 100 };

static tamis_error err;
static tamis_db *db;
static int64_t before_bytes;

static int64_t
anonymous_bytes(void)
{
    FILE *file = fopen("/proc/self/status", "r");
    char line[256];
    long long kilobytes = -1;

    ck_assert_ptr_nonnull(file);
    while (kilobytes < 0 && fgets(line, sizeof line, file) != NULL)
        if (sscanf(line, "RssAnon: %lld kB", &kilobytes) != 1)
            kilobytes = -1;
    fclose(file);
    ck_assert_int_ge(kilobytes, 0);
    return (int64_t)kilobytes * 1024;
}

/* Nothing runs in the background. */
static void
compare(const char *when)
{
    tamis_stats stats;
    double held; // MiB
    double told;

    check_ok(tamis_wait_idle(db, &err), err);
    tamis_stats_init(&stats);
    check_ok(tamis_get_stats(db, &stats, &err), err);
    held = (double)(anonymous_bytes() - before_bytes) / (1 << 20);
    told = (double)stats.memory_total_bytes / (1 << 20);
    printf("%-24s held %7.1f MiB, told %7.1f (%+.1f %%): memtables %.1f, cache %.1f, filters %.1f, "
           "indexes "
           "%.1f, other %.1f\n",
           when, held, told, 100 * (told - held) / held,
           (double)stats.memory_memtables_bytes / (1 << 20),
           (double)stats.memory_cache_bytes / (1 << 20),
           (double)stats.memory_filters_bytes / (1 << 20),
           (double)stats.memory_indexes_bytes / (1 << 20),
           (double)stats.memory_other_bytes / (1 << 20));
    fflush(stdout);
#if !defined __SANITIZE_ADDRESS__ && !defined __SANITIZE_THREAD__
    ck_assert_double_le(told, 1.1 * held); // sanitizers have shadows of their own
    ck_assert_double_ge(told, 0.9 * held);
#endif
}

static tamis_slice
make_key(char text[17], uint64_t number)
{
    snprintf(text, 17, "%016" PRIx64, number * 0x9e3779b97f4a7c15u);
    return (tamis_slice){text, 16};
}

static void
load(uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        char text[17];
        uint64_t value[(VALUE_BYTES + 7) / 8];

        for (size_t word = 0; word < sizeof value / sizeof value[0]; word++)
            value[word] = (i + word) * 0xbf58476d1ce4e5b9u;
        check_ok(tamis_put(db, NULL, make_key(text, i), (tamis_slice){value, VALUE_BYTES}, &err),
                 err);
    }
}

static void
read_all(void)
{
    for (uint64_t i = 0; i < KEY_COUNT; i++) {
        char text[17];
        char value[VALUE_BYTES];
        size_t length;

        check_ok(tamis_get(db, NULL, make_key(text, i), value, sizeof value, &length, &err), err);
    }
}

START_TEST(the_kinds_of_memory_are_what_the_process_holds)
{
    char *scratch = temp_dir_make();
    char *path = temp_dir_path(scratch, "db");
    tamis_options options;

    tamis_options_init(&options);
    options.create_if_missing = true;
    before_bytes = anonymous_bytes();
    check_ok(tamis_open(path, &options, &db, &err), err);
    load(KEY_COUNT / 8);
    compare("one memtable");
    load(KEY_COUNT);
    compare("loaded");
    read_all();
    compare("read, the cache is full");
    check_ok(tamis_compact_range(db, NULL, NULL, &err), err);
    compare("compacted");
    read_all();
    compare("read again");
    check_ok(tamis_close(db, &err), err);
    check_ok(tamis_open(path, &options, &db, &err), err);
    read_all();
    compare("reopened and read");
    check_ok(tamis_close(db, &err), err);
    free(path);
    temp_dir_remove(scratch);
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("memory");
    TCase *tests = tcase_create("memory");

    tcase_set_timeout(tests, 0);
    tcase_add_test(tests, the_kinds_of_memory_are_what_the_process_holds);
    suite_add_tcase(suite, tests);
    return check_run(suite);
}
