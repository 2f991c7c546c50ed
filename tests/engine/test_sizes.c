/* SPDX-License-Identifier: MIT
 *
 * tests/engine/test_sizes.c -- approximate sizes of ranges, amplification, and the description for people.
 */
#include "tests/engine/one_store.h"

#include <math.h>

#include "engine/db_internal.h"
#include "tests/support/rng.h"

enum { KEY_COUNT = 10000, VALUE_BYTES = 1000 };

static tamis_fs counting;
static uint64_t read_count;

static tamis_status
count_read(void *ctx, tamis_file *file, uint64_t offset, void *buffer, size_t length,
           tamis_error *err)
{
    read_count++;
    return tamis_fs_posix()->read_at(ctx, file, offset, buffer, length, err);
}

/* A store of one large memtable, whose reads are counted, with 10 MB that no compression shrinks. */
static void
fill(void)
{
    struct rng rng = rng_from(rng_seed("fill", 1));

    one_store_close();
    counting = *tamis_fs_posix();
    counting.read_at = count_read;
    one.options.fs = &counting;
    one.options.write_buffer_bytes = 64 << 20;
    one_store_open();
    for (unsigned i = 0; i < KEY_COUNT; i++) {
        static uint8_t value[VALUE_BYTES];
        char text[32];

        rng_fill(&rng, value, sizeof value);
        one_put(one_key(text, i * 7919 % KEY_COUNT), (tamis_slice){value, sizeof value});
    }
}

/* The keys with these numbers; -1: unbounded. */
static uint64_t
size_of(int from, int to)
{
    char from_text[32];
    char to_text[32];
    tamis_slice from_key = {0};
    tamis_slice to_key = {0};
    uint64_t bytes = 1;

    if (from >= 0)
        from_key = one_key(from_text, (unsigned)from);
    if (to >= 0)
        to_key = one_key(to_text, (unsigned)to);
    check_ok(tamis_approximate_size(one.db, from >= 0 ? &from_key : NULL, to >= 0 ? &to_key : NULL,
                                    &bytes, &one.err),
             one.err);
    return bytes;
}

static void
expect_sizes(double tolerance)
{
    const double whole = (double)KEY_COUNT * VALUE_BYTES;
    uint64_t reads_before = read_count;
    uint64_t sum = 0;

    ck_assert_double_eq_tol((double)size_of(-1, -1), whole, tolerance * whole);
    for (int i = 0; i < 10; i++) {
        int from = i * (KEY_COUNT / 10);
        uint64_t bytes = size_of(from, i < 9 ? from + KEY_COUNT / 10 : -1);

        ck_assert_double_eq_tol((double)bytes, whole / 10, 0.2 * whole / 10);
        sum += bytes;
    }
    ck_assert_double_eq_tol((double)sum, (double)size_of(-1, -1), tolerance * whole);
    ck_assert_double_eq_tol((double)size_of(-1, KEY_COUNT / 2), whole / 2, tolerance * whole);
    ck_assert_double_eq_tol((double)size_of(KEY_COUNT / 2, -1), whole / 2, tolerance * whole);
    ck_assert_uint_eq(size_of(5000, 5000), 0);
    ck_assert_uint_eq(size_of(5001, 5000), 0);
    ck_assert_uint_eq(size_of(KEY_COUNT, -1), 0);
    ck_assert_uint_eq(size_of(KEY_COUNT + 1, KEY_COUNT + 2), 0);
    ck_assert_uint_eq(read_count, reads_before);
}

START_TEST(sizes_are_near_in_memory_in_tables_and_after_reopening)
{
    fill();
    expect_sizes(0.1);
    one_flush();
    ck_assert_uint_eq(one_stats().memtable_hits, 0);
    expect_sizes(0.05);
    ck_assert_uint_eq(size_of(-1, -1), one_stats().total.file_bytes);
    one_store_reopen();
    expect_sizes(0.05);
    one_compact();
    expect_sizes(0.05);
    for (unsigned i = 0; i < KEY_COUNT / 10; i++) // in tables and in memory
        one_put_number(KEY_COUNT + i, 1, VALUE_BYTES);
    ck_assert_double_eq_tol((double)size_of(-1, -1), 1.1 * KEY_COUNT * VALUE_BYTES,
                            0.05 * KEY_COUNT * VALUE_BYTES);
    ck_assert_uint_gt(size_of(KEY_COUNT, -1), 0);
}
END_TEST

START_TEST(small_ranges_of_a_memtable_are_exact)
{
    uint64_t bytes = 0;

    for (unsigned i = 0; i < 300; i++)
        one_put_number(i * 37 % 300, 1, 8 + i % 5);
    ck_assert_uint_eq(one_stats().total.file_count, 0);
    for (unsigned i = 0; i < 300; i++)
        if (i * 37 % 300 >= 100 && i * 37 % 300 < 200)
            bytes += 9 + 8 + i % 5;
    ck_assert_uint_eq(size_of(100, 200), bytes);
}
END_TEST

START_TEST(a_bound_beyond_the_limit_of_keys_is_refused)
{
    static char key[TAMIS_KEY_BYTES_MAX + 1];
    tamis_slice bound = {key, sizeof key};
    uint64_t bytes = 17;

    check_status(tamis_approximate_size(one.db, &bound, NULL, &bytes, &one.err), TAMIS_TOO_LARGE,
                 one.err);
    check_status(tamis_approximate_size(one.db, NULL, &bound, &bytes, &one.err), TAMIS_TOO_LARGE,
                 one.err);
    ck_assert_uint_eq(bytes, 17);
}
END_TEST

/* ---- Amplification -------------------------------------------------------------------------------- */

START_TEST(amplification_is_what_was_read_and_written)
{
    tamis_stats stats = one_stats();

    ck_assert(isnan(stats.read_amplification) && isnan(stats.write_amplification) &&
              isnan(stats.space_amplification));
    for (unsigned round = 0; round < 2; round++) {
        for (unsigned i = 0; i < 500; i++)
            one_put_number(i, round, 1000);
        if (round == 0)
            one_compact();
    }
    one_flush();
    one_wait_idle();
    for (unsigned i = 0; i < 500; i++)
        ck_assert_int_eq(one_version(i), 1);
    stats = one_stats();
    ck_assert_double_eq(stats.read_amplification, (double)stats.tables_read / 500);
    ck_assert_double_eq(stats.write_amplification,
                        (double)(stats.log_bytes_written + stats.flush_bytes_written +
                                 stats.compaction_bytes_written) /
                            (double)stats.user_bytes_written);
    ck_assert_double_gt(stats.write_amplification, 2.0); // log and table
    ck_assert_double_gt(stats.space_amplification, 1.0);
    one_compact();
    one_wait_idle();
    stats = one_stats();
    ck_assert_double_eq(stats.space_amplification, 1.0);
}
END_TEST

START_TEST(kinds_of_memory_add_up_to_the_whole)
{
    tamis_stats stats;
    tamis_iter *iters[50];

    for (unsigned i = 0; i < 2000; i++)
        one_put_number(i, 1, 1000);
    one_wait_idle();
    ck_assert_int_eq(one_version(0), 1);
    stats = one_stats();
    ck_assert_uint_eq(stats.memory_memtables_bytes + stats.memory_cache_bytes +
                          stats.memory_filters_bytes + stats.memory_indexes_bytes +
                          stats.memory_other_bytes,
                      stats.memory_total_bytes);
    ck_assert_uint_gt(stats.memory_cache_bytes, 0);
    ck_assert_uint_gt(stats.memory_filters_bytes, 0);
    for (size_t i = 0; i < 50; i++)
        check_ok(tamis_iter_open(one.db, NULL, &iters[i], &one.err), one.err);
    ck_assert_uint_gt(one_stats().memory_other_bytes, stats.memory_other_bytes + 50 * 100);
    for (size_t i = 0; i < 50; i++)
        tamis_iter_close(iters[i]);
    ck_assert_uint_eq(one_stats().memory_other_bytes, stats.memory_other_bytes);
}
END_TEST

/* ---- The description ------------------------------------------------------------------------------ */

struct text {
    char bytes[1 << 16];
    size_t length;
    size_t stop_after; // pieces
    size_t piece_count;
};

static bool
collect(void *arg, const char *bytes, size_t length)
{
    struct text *text = arg;

    ck_assert_uint_lt(text->length + length, sizeof text->bytes);
    memcpy(text->bytes + text->length, bytes, length);
    text->length += length;
    return ++text->piece_count < text->stop_after;
}

static size_t
count_lines(const char *text)
{
    size_t count = 0;

    for (; *text != '\0'; text++)
        count += *text == '\n';
    return count;
}

START_TEST(the_description_shows_levels_memory_and_every_file)
{
    static struct text text;
    static struct text with_files;
    tamis_stats stats;

    text.stop_after = with_files.stop_after = SIZE_MAX;
    for (unsigned i = 0; i < 500; i++)
        one_put_number(i, 1, 1000);
    one_put(tamis_text("\x1b[31m\n"), tamis_text("red"));
    one_compact();
    one_wait_idle();
    stats = one_stats();
    ck_assert_uint_gt(stats.total.file_count, 3);
    check_ok(tamis_describe(one.db, false, collect, &text, &one.err), one.err);
    ck_assert_ptr_nonnull(strstr(text.bytes, "\nmemory\n"));
    ck_assert_ptr_nonnull(strstr(text.bytes, "\namplification\n"));
    ck_assert_ptr_nonnull(strstr(text.bytes, "\nsince opening\n"));
    ck_assert_ptr_null(strstr(text.bytes, "background"));
    check_ok(tamis_describe(one.db, true, collect, &with_files, &one.err), one.err);
    ck_assert_uint_eq(count_lines(with_files.bytes),
                      count_lines(text.bytes) + 2 + stats.total.file_count);
    ck_assert_ptr_nonnull(strstr(with_files.bytes, "\\x1b[31m\\x0a .. "));
    for (size_t i = 0; i < with_files.length; i++)
        ck_assert((with_files.bytes[i] >= ' ' && with_files.bytes[i] <= '~') ||
                  with_files.bytes[i] == '\n');
}
END_TEST

START_TEST(a_sink_that_has_enough_is_left_alone)
{
    static struct text text;

    for (unsigned i = 0; i < 500; i++)
        one_put_number(i, 1, 1000);
    one_flush();
    for (text.stop_after = 1; text.stop_after < 30; text.stop_after++) {
        text.length = text.piece_count = 0;
        check_ok(tamis_describe(one.db, true, collect, &text, &one.err), one.err);
        ck_assert_uint_eq(text.piece_count, text.stop_after);
    }
    check_status(tamis_describe(one.db, true, NULL, NULL, &one.err), TAMIS_INVALID, one.err);
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("sizes");
    TCase *tests = tcase_create("sizes");

    tcase_set_timeout(tests, 0);
    tcase_add_checked_fixture(tests, one_store_begin, one_store_end);
    tcase_add_test(tests, sizes_are_near_in_memory_in_tables_and_after_reopening);
    tcase_add_test(tests, small_ranges_of_a_memtable_are_exact);
    tcase_add_test(tests, a_bound_beyond_the_limit_of_keys_is_refused);
    tcase_add_test(tests, amplification_is_what_was_read_and_written);
    tcase_add_test(tests, kinds_of_memory_add_up_to_the_whole);
    tcase_add_test(tests, the_description_shows_levels_memory_and_every_file);
    tcase_add_test(tests, a_sink_that_has_enough_is_left_alone);
    suite_add_tcase(suite, tests);
    return check_run(suite);
}
