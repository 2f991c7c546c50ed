/* SPDX-License-Identifier: MIT
 *
 * tests/engine/test_logger.c -- what the store does by itself reaches the logger, what fails of it the statistics too; reads say
 * nothing.
 *
 * The logger takes the store's locks: threads take turns here, so that a call under a lock is found as a deadlock.
 */
#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/db_internal.h"
#include "engine/open.h"
#include "tests/support/check_status.h"
#include "tests/support/world.h"

enum { LINES_MAX = 400, VALUE_BYTES = 3000 };

static struct world *world;
static tamis_db *db;
static tamis_error err;
static tamis_logger logger;
static struct {
    tamis_log_level level;
    char text[TM_REPORT_BYTES_MAX];
} lines[LINES_MAX];
static size_t line_count;

static void
hear(void *ctx, tamis_log_level level, const char *message)
{
    tamis_db *told = db; // another thread may close it meanwhile, and waits for this one then

    ck_assert_ptr_eq(ctx, &line_count);
    ck_assert_uint_lt(strlen(message), TM_REPORT_BYTES_MAX);
    ck_assert_ptr_null(strchr(message, '\n'));
    if (told != NULL) {
        const struct tm_runtime *runtime = told->env.runtime;

        runtime->lock(runtime->ctx, &told->mutex);
        runtime->unlock(runtime->ctx, &told->mutex);
    }
    ck_assert_uint_lt(line_count, LINES_MAX);
    lines[line_count].level = level;
    strcpy(lines[line_count].text, message);
    line_count++;
}

/* Lines of a level that begin like this. */
static size_t
count_lines(tamis_log_level level, const char *beginning)
{
    size_t count = 0;

    for (size_t i = 0; i < line_count; i++)
        count +=
            lines[i].level == level && strncmp(lines[i].text, beginning, strlen(beginning)) == 0;
    return count;
}

/* ---- The store ------------------------------------------------------------------------------------ */

static void
open_store(void)
{
    tamis_options options;

    tamis_options_init(&options);
    options.create_if_missing = true;
    options.write_buffer_bytes = 64 << 10;
    options.allocator = &world->env.allocator;
    options.fs = world->env.fs;
    options.logger = &logger;
    check_ok(tm_open("db", &options, world->env.runtime, &db, &err), err);
}

static void
close_store(void)
{
    tamis_db *closing = db;

    db = NULL; // the locks are gone before the last word
    check_ok(tamis_close(closing, &err), err);
}

static void
begin(void)
{
    world = world_create(1, WORLD_BATON);
    logger = (tamis_logger){&line_count, hear, TAMIS_LOG_DEBUG};
    line_count = 0;
    open_store();
}

static void
end(void)
{
    close_store();
    world_destroy(world);
}

static void
put(unsigned number)
{
    static uint8_t value[VALUE_BYTES];
    char key[16];

    for (size_t i = 0; i < sizeof value; i++)
        value[i] = (uint8_t)((number * 31 + i) * 2654435761u >> 24);
    snprintf(key, sizeof key, "k%06u", number);
    check_ok(tamis_put(db, NULL, tamis_text(key), (tamis_slice){value, sizeof value}, &err), err);
}

static void
fill(unsigned first, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        put(first + i);
}

static void
flush(void)
{
    check_ok(tamis_flush(db, &err), err);
    check_ok(tamis_wait_idle(db, &err), err); // and the logger has heard of it
}

static size_t
add_fault(enum sim_op op, enum tm_os_class file_class, int os_error, bool sticky)
{
    return sim_fault_add(world->sim,
                         (struct sim_fault){op, file_class, 1, SIM_ERROR, os_error, sticky});
}

static tamis_stats
get_stats(void)
{
    tamis_stats stats;

    tamis_stats_init(&stats);
    check_ok(tamis_get_stats(db, &stats, &err), err);
    return stats;
}

/* ---- What goes well ------------------------------------------------------------------------------- */

START_TEST(openings_flushes_compactions_and_closing_are_told)
{
    begin();
    ck_assert_uint_eq(line_count, 1);
    ck_assert_str_eq(lines[0].text, "created db: 0 tables, 0 bytes, last sequence 0, 0.000 s");
    ck_assert_int_eq(lines[0].level, TAMIS_LOG_INFO);
    fill(0, 5);
    flush();
    ck_assert_uint_eq(count_lines(TAMIS_LOG_INFO, "flush: 5 entries, a table of "), 1);
    fill(3, 5);
    check_ok(tamis_compact_range(db, NULL, NULL, &err), err);
    ck_assert_uint_eq(count_lines(TAMIS_LOG_INFO, "flush: "), get_stats().flush_count);
    ck_assert_uint_eq(count_lines(TAMIS_LOG_INFO, "compaction: "), get_stats().compaction_count);
    ck_assert_uint_gt(get_stats().compaction_count, 0);
    close_store();
    ck_assert_uint_eq(count_lines(TAMIS_LOG_INFO, "closed db"), 1);
    open_store();
    ck_assert_uint_eq(count_lines(TAMIS_LOG_INFO, "opened db: 1 tables, "), 1);
    ck_assert_uint_eq(count_lines(TAMIS_LOG_ERROR, "") + count_lines(TAMIS_LOG_WARNING, ""), 0);
    end();
}
END_TEST

/* The power goes, or the process is killed. */
static void
crash(enum sim_policy policy, uint64_t seed)
{
    tamis_db *dying = db;

    sim_stop_at(world->sim, sim_call_count(world->sim) + 1);
    db = NULL;
    (void)tamis_close(dying, NULL);
    world_crash(world, policy, seed);
    line_count = 0;
}

START_TEST(a_recovery_tells_what_it_brought_back)
{
    begin();
    fill(0, 7);
    crash(SIM_P1_ALL, 1);
    open_store();
    ck_assert_uint_eq(
        count_lines(TAMIS_LOG_INFO, "recovery: 1 logs with 7 operations became 1 tables of "), 1);
    ck_assert_uint_eq(count_lines(TAMIS_LOG_INFO, "opened db: 1 tables, "), 1);
    ck_assert_uint_eq(line_count, 2);
    end();
}
END_TEST

START_TEST(a_recovery_tells_where_the_crash_cut)
{
    size_t cut_count = 0;

    for (uint64_t seed = 1; seed <= 20; seed++) {
        begin();
        fill(0, 7);
        crash(SIM_P2_PREFIX, seed);
        open_store();
        if (line_count == 3) {
            ck_assert_ptr_nonnull(strstr(lines[0].text, ".wal: offset "));
            ck_assert_ptr_nonnull(strstr(lines[0].text, "the crash cut here ("));
            cut_count++;
        }
        end();
    }
    ck_assert_uint_gt(cut_count, 5);
}
END_TEST

START_TEST(a_logger_hears_its_least_level_and_what_matters_more)
{
    size_t counts[TAMIS_LOG_DEBUG + 1];

    for (int least = TAMIS_LOG_ERROR; least <= TAMIS_LOG_DEBUG; least++) {
        begin();
        close_store();
        logger.least = (tamis_log_level)least;
        line_count = 0;
        open_store();
        fill(0, 3);
        (void)add_fault(SIM_REMOVE, 0, EIO, false);
        flush();
        check_ok(tamis_wait_idle(db, &err), err);
        (void)add_fault(SIM_PWRITE, TM_OS_CLASS_TABLE, EIO, false);
        put(1);
        check_status(tamis_flush(db, &err), TAMIS_IO, err);
        check_ok(tamis_wait_idle(db, &err), err); // tried again, and all is told
        for (size_t i = 0; i < line_count; i++)
            ck_assert_int_le((int)lines[i].level, least);
        counts[least] = line_count;
        end();
        if (least > 0)
            ck_assert_uint_gt(counts[least], counts[least - 1]);
        else
            ck_assert_uint_eq(counts[least], 1);
    }
}
END_TEST

START_TEST(reads_tell_nothing)
{
    tamis_iter *iter = NULL;
    tamis_snapshot *snapshot = NULL;
    size_t before;

    begin();
    fill(0, 60);
    flush();
    check_ok(tamis_wait_idle(db, &err), err);
    before = line_count;
    for (unsigned i = 0; i < 120; i++) {
        char key[16];
        size_t length;
        bool there;

        snprintf(key, sizeof key, "k%06u", i);
        check_status(tamis_get(db, NULL, tamis_text(key), NULL, 0, &length, &err),
                     i < 60 ? TAMIS_OK : TAMIS_NOT_FOUND, err);
        check_ok(tamis_exists(db, NULL, tamis_text(key), &there, &err), err);
        check_ok(tamis_may_exist(db, tamis_text(key), &there, &err), err);
    }
    check_ok(tamis_snapshot_take(db, &snapshot, &err), err);
    check_ok(tamis_iter_open(db, NULL, &iter, &err), err);
    for (tamis_iter_first(iter); tamis_iter_valid(iter); tamis_iter_next(iter))
        ;
    tamis_iter_close(iter);
    tamis_snapshot_release(db, snapshot);
    (void)get_stats();
    check_ok(tamis_verify(db, NULL, NULL, &err), err);
    ck_assert_uint_eq(line_count, before);
    end();
}
END_TEST

/* ---- What fails ----------------------------------------------------------------------------------- */

START_TEST(a_failure_that_ends_writing_is_told_once_and_stands_in_the_statistics)
{
    tamis_write_options sync;
    tamis_stats stats;

    tamis_write_options_init(&sync);
    sync.sync = true;
    begin();
    put(1);
    (void)add_fault(SIM_SYNC, TM_OS_CLASS_LOG, EIO, false);
    for (int i = 0; i < 3; i++)
        check_status(tamis_put(db, &sync, tamis_text("k"), tamis_text("v"), &err), TAMIS_IO, err);
    ck_assert_uint_eq(count_lines(TAMIS_LOG_ERROR, "writes fail until the store is opened again: "),
                      1);
    ck_assert_ptr_nonnull(strstr(lines[line_count - 1].text, ".wal"));
    stats = get_stats();
    ck_assert_int_eq(stats.background_status, TAMIS_IO);
    ck_assert_int_eq(stats.background_error.code, TAMIS_IO);
    ck_assert_str_eq(stats.background_error.message, err.message);
    ck_assert_uint_eq(stats.background_error_count, 1);
    {
        tamis_db *closing = db;

        db = NULL;
        check_status(tamis_close(closing, &err), TAMIS_IO, err);
    }
    ck_assert_uint_eq(count_lines(TAMIS_LOG_ERROR, "closed db, but "), 1);
    world_destroy(world);
}
END_TEST

START_TEST(a_failed_flush_is_told_and_counted_also_when_the_next_one_passes)
{
    tamis_stats stats;

    begin();
    put(1);
    (void)add_fault(SIM_PWRITE, TM_OS_CLASS_TABLE, ENOSPC, false);
    check_status(tamis_flush(db, &err), TAMIS_NO_SPACE, err);
    flush();
    ck_assert_uint_eq(count_lines(TAMIS_LOG_ERROR, "flush failed: NO_SPACE: "), 1);
    ck_assert_uint_eq(count_lines(TAMIS_LOG_ERROR, ""), 1);
    stats = get_stats();
    ck_assert_int_eq(stats.background_status, TAMIS_OK);
    ck_assert_str_eq(stats.background_error.message, "");
    ck_assert_uint_eq(stats.background_error_count, 1);
    end();
}
END_TEST

START_TEST(a_failed_compaction_is_told_and_stands_in_the_statistics)
{
    tamis_stats stats;

    begin();
    for (unsigned i = 0; i < 4; i++) {
        fill(0, 3);
        if (i < 3)
            flush();
    }
    check_ok(tamis_wait_idle(db, &err), err);
    (void)sim_fault_add(world->sim, (struct sim_fault){SIM_PWRITE, TM_OS_CLASS_TABLE, 2, SIM_ERROR,
                                                       EIO, true}); // the first one is the flush
    (void)tamis_flush(db, &err);
    check_status(tamis_wait_idle(db, &err), TAMIS_IO, err);
    stats = get_stats();
    ck_assert_int_eq(stats.background_error.code, TAMIS_IO);
    ck_assert_uint_ge(count_lines(TAMIS_LOG_ERROR, "compaction failed: IO: "), 1);
    ck_assert_uint_eq(stats.background_error_count, count_lines(TAMIS_LOG_ERROR, ""));
    sim_fault_clear(world->sim);
    end();
}
END_TEST

START_TEST(a_file_that_cannot_be_removed_is_told_and_counted)
{
    tamis_stats stats;
    size_t rule;

    begin();
    rule = add_fault(SIM_REMOVE, 0, EACCES, true);
    for (unsigned i = 0; i < 3; i++) {
        fill(0, 3);
        flush();
    }
    check_ok(tamis_compact_range(db, NULL, NULL, &err), err);
    check_ok(tamis_wait_idle(db, &err), err);
    stats = get_stats();
    ck_assert_uint_gt(sim_fault_fired(world->sim, rule), 3);
    ck_assert_uint_eq(stats.unremoved_file_count, sim_fault_fired(world->sim, rule));
    ck_assert_uint_eq(count_lines(TAMIS_LOG_WARNING, "0000"), stats.unremoved_file_count);
    ck_assert_int_eq(stats.background_status, TAMIS_OK);
    sim_fault_clear(world->sim);
    end();
}
END_TEST

/* Flip bits of the only table until one lies in its filter. */
START_TEST(a_damaged_filter_is_told_at_open)
{
    char table[16] = "000003.sst";
    uint8_t *bytes;
    size_t size;
    bool found = false;

    begin();
    for (unsigned i = 0; i < 15; i++)
        put(i);
    flush();
    close_store();
    bytes = sim_file_get(world->sim, "db", table, &size);
    for (unsigned number = 1; bytes == NULL && number < 20; number++) {
        snprintf(table, sizeof table, "%06u.sst", number);
        bytes = sim_file_get(world->sim, "db", table, &size);
    }
    ck_assert_ptr_nonnull(bytes);
    for (size_t at = size; !found && at-- > size / 2;) {
        tamis_options options;

        bytes[at] ^= 1;
        sim_file_put(world->sim, "db", table, bytes, size);
        bytes[at] ^= 1;
        tamis_options_init(&options);
        options.allocator = &world->env.allocator;
        options.fs = world->env.fs;
        options.logger = &logger;
        line_count = 0;
        if (tm_open("db", &options, world->env.runtime, &db, &err) != TAMIS_OK)
            continue;
        found = get_stats().filters_damaged == 1;
        if (found) {
            ck_assert_uint_eq(count_lines(TAMIS_LOG_WARNING, table), 1);
            ck_assert_ptr_nonnull(strstr(lines[0].text, "filter"));
        } else {
            ck_assert_uint_eq(count_lines(TAMIS_LOG_WARNING, ""), 0);
        }
        close_store();
    }
    free(bytes);
    ck_assert(found);
    world_destroy(world);
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("logger");
    TCase *tests = tcase_create("logger");

    tcase_set_timeout(tests, 0);
    tcase_add_test(tests, openings_flushes_compactions_and_closing_are_told);
    tcase_add_test(tests, a_recovery_tells_what_it_brought_back);
    tcase_add_test(tests, a_recovery_tells_where_the_crash_cut);
    tcase_add_test(tests, a_logger_hears_its_least_level_and_what_matters_more);
    tcase_add_test(tests, reads_tell_nothing);
    tcase_add_test(tests, a_failure_that_ends_writing_is_told_once_and_stands_in_the_statistics);
    tcase_add_test(tests, a_failed_flush_is_told_and_counted_also_when_the_next_one_passes);
    tcase_add_test(tests, a_failed_compaction_is_told_and_stands_in_the_statistics);
    tcase_add_test(tests, a_file_that_cannot_be_removed_is_told_and_counted);
    tcase_add_test(tests, a_damaged_filter_is_told_at_open);
    suite_add_tcase(suite, tests);
    return check_run(suite);
}
