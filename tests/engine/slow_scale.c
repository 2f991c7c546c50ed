/* SPDX-License-Identifier: MIT
 *
 * tests/engine/slow_scale.c -- ten million keys: all of them are read back and scanned, again after reopening and again
 * after compaction, and memory stays within what the options allow.
 *
 * Not part of the default run: ctest -C slow -L slow. TAMIS_TEST_SCALE is the share of the keys in per cent.
 */
#include <check.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <tamis/tamis.h>

#include "tests/support/check_status.h"
#include "tests/support/temp_dir.h"

#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
enum { KEY_COUNT = 100000 };
#else
enum { KEY_COUNT = 10000000 };
#endif

enum {
    KEY_BYTES = 16,
    VALUE_BYTES = 100,
    SAMPLE_EVERY = 4096, // operations between two looks at the memory
    ALLOWANCE_BYTES = 32 << 20,
};

static tamis_error err;

struct scale {
    char *scratch;
    char *path;
    tamis_options options;
    tamis_db *db;
    uint64_t key_count;
    uint64_t checksum;     // of all keys and values, in any order
    int64_t highest_bytes; // anonymous memory above what the test had before the store was opened
    int64_t nearest_bytes; // least distance from the limit
    int64_t before_bytes;
};

/* ---- Keys and values ------------------------------------------------------------------------------ */

/* One to one, so that different numbers give different keys, in no order. */
static uint64_t
scramble(uint64_t z)
{
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static tamis_slice
make_key(char text[KEY_BYTES + 1], uint64_t number)
{
    snprintf(text, KEY_BYTES + 1, "%016" PRIx64, scramble(number));
    return (tamis_slice){text, KEY_BYTES};
}

static tamis_slice
make_value(uint8_t bytes[VALUE_BYTES], uint64_t number)
{
    uint64_t state = scramble(~number);

    for (size_t i = 0; i < VALUE_BYTES; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        bytes[i] = (uint8_t)(state >> 56);
    }
    return (tamis_slice){bytes, VALUE_BYTES};
}

static uint64_t
checksum_of(tamis_slice key, tamis_slice value)
{
    return tamis_hash64(value.data, value.length, tamis_hash64(key.data, key.length, 1));
}

/* ---- Memory --------------------------------------------------------------------------------------- */

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

static void
look_at_memory(struct scale *scale)
{
    tamis_stats stats;
    int64_t used = anonymous_bytes() - scale->before_bytes;
    int64_t limit;

    tamis_stats_init(&stats);
    check_ok(tamis_get_stats(scale->db, &stats, &err), err);
    limit = (int64_t)(2 * scale->options.write_buffer_bytes + scale->options.block_cache_bytes +
                      stats.memory_filters_bytes + stats.memory_indexes_bytes + ALLOWANCE_BYTES +
                      3 * VALUE_BYTES);
    if (used > scale->highest_bytes)
        scale->highest_bytes = used;
    if (limit - used < scale->nearest_bytes)
        scale->nearest_bytes = limit - used;
}

/* ---- Steps ---------------------------------------------------------------------------------------- */

static double
now_seconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void
say(const struct scale *scale, const char *what, double seconds)
{
    printf("%-24s %7.1f s %8.2f us a key\n", what, seconds,
           1e6 * seconds / (double)scale->key_count);
    fflush(stdout);
}

static void
load(struct scale *scale)
{
    double begin = now_seconds();
    char text[KEY_BYTES + 1];
    uint8_t bytes[VALUE_BYTES];

    for (uint64_t i = 0; i < scale->key_count; i++) {
        tamis_slice key = make_key(text, i);
        tamis_slice value = make_value(bytes, i);

        check_ok(tamis_put(scale->db, NULL, key, value, &err), err);
        scale->checksum += checksum_of(key, value);
        if (i % SAMPLE_EVERY == 0)
            look_at_memory(scale);
    }
    say(scale, "loaded", now_seconds() - begin);
}

static void
read_all(struct scale *scale)
{
    double begin = now_seconds();
    char text[KEY_BYTES + 1];
    uint8_t bytes[VALUE_BYTES];
    uint8_t found[VALUE_BYTES];

    for (uint64_t i = 0; i < scale->key_count; i++) {
        tamis_slice value = make_value(bytes, i);
        size_t length = 0;

        check_ok(tamis_get(scale->db, NULL, make_key(text, i), found, sizeof found, &length, &err),
                 err);
        ck_assert(length == value.length && memcmp(found, value.data, length) == 0);
        if (i % SAMPLE_EVERY == 0)
            look_at_memory(scale);
    }
    say(scale, "read", now_seconds() - begin);
}

static void
scan_all(struct scale *scale)
{
    double begin = now_seconds();
    uint64_t count = 0;
    uint64_t checksum = 0;
    char last[KEY_BYTES] = {0};
    tamis_iter *iter = NULL;

    check_ok(tamis_iter_open(scale->db, NULL, &iter, &err), err);
    for (tamis_iter_first(iter); tamis_iter_valid(iter); tamis_iter_next(iter), count++) {
        tamis_slice key = tamis_iter_key(iter);

        ck_assert_uint_eq(key.length, KEY_BYTES);
        ck_assert(memcmp(last, key.data, KEY_BYTES) < 0);
        memcpy(last, key.data, KEY_BYTES);
        checksum += checksum_of(key, tamis_iter_value(iter));
        if (count % SAMPLE_EVERY == 0)
            look_at_memory(scale);
    }
    check_ok(tamis_iter_status(iter, &err), err);
    tamis_iter_close(iter);
    ck_assert_uint_eq(count, scale->key_count);
    ck_assert_uint_eq(checksum, scale->checksum);
    say(scale, "scanned", now_seconds() - begin);
}

static void
reopen(struct scale *scale)
{
    double begin = now_seconds();

    if (scale->db != NULL)
        check_ok(tamis_close(scale->db, &err), err);
    check_ok(tamis_open(scale->path, &scale->options, &scale->db, &err), err);
    say(scale, "closed and opened", now_seconds() - begin);
}

static void
show_tree(const struct scale *scale)
{
    tamis_stats stats;

    tamis_stats_init(&stats);
    check_ok(tamis_get_stats(scale->db, &stats, &err), err);
    for (int level = 0; level < TAMIS_LEVEL_COUNT; level++)
        if (stats.level[level].file_count != 0)
            printf("  level %d: %" PRIu64 " tables, %" PRIu64 " MiB\n", level,
                   stats.level[level].file_count, stats.level[level].file_bytes >> 20);
    printf("  filters %" PRIu64 " KiB, indexes %" PRIu64 " KiB, user wrote %" PRIu64
           " MiB, log %" PRIu64 ", flushes %" PRIu64 ", compactions %" PRIu64 " MiB\n",
           stats.memory_filters_bytes >> 10, stats.memory_indexes_bytes >> 10,
           stats.user_bytes_written >> 20, stats.log_bytes_written >> 20,
           stats.flush_bytes_written >> 20, stats.compaction_bytes_written >> 20);
    ck_assert_uint_eq(stats.background_status, TAMIS_OK);
}

START_TEST(ten_million_keys_are_kept_and_memory_stays_within_its_limits)
{
    const char *share = getenv("TAMIS_TEST_SCALE");
    struct scale scale = {.key_count = KEY_COUNT, .nearest_bytes = INT64_MAX};
    double begin;

    if (share != NULL)
        scale.key_count = (uint64_t)((double)scale.key_count * strtod(share, NULL) / 100);
    scale.scratch = temp_dir_make();
    scale.path = temp_dir_path(scale.scratch, "db");
    scale.before_bytes = anonymous_bytes();
    tamis_options_init(&scale.options);
    scale.options.create_if_missing = true;

    reopen(&scale);
    load(&scale);
    show_tree(&scale);
    read_all(&scale);
    scan_all(&scale);
    reopen(&scale);
    read_all(&scale);
    scan_all(&scale);
    begin = now_seconds();
    check_ok(tamis_compact_range(scale.db, NULL, NULL, &err), err);
    look_at_memory(&scale);
    say(&scale, "compacted", now_seconds() - begin);
    show_tree(&scale);
    read_all(&scale);
    scan_all(&scale);
    check_ok(tamis_close(scale.db, &err), err);
    printf("%" PRIu64 " keys: anonymous memory at most %.1f MiB, never closer than %.1f MiB to its "
           "limit\n",
           scale.key_count, (double)scale.highest_bytes / (1 << 20),
           (double)scale.nearest_bytes / (1 << 20));
#if !defined __SANITIZE_ADDRESS__ && !defined __SANITIZE_THREAD__
    ck_assert_int_ge(scale.nearest_bytes, 0); // sanitizers have shadows of their own
#endif
    free(scale.path);
    temp_dir_remove(scale.scratch);
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("scale");
    TCase *tests = tcase_create("scale");

    tcase_set_timeout(tests, 0);
    tcase_add_test(tests, ten_million_keys_are_kept_and_memory_stays_within_its_limits);
    suite_add_tcase(suite, tests);
    return check_run(suite);
}
