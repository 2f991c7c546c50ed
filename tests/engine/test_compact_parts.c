/* SPDX-License-Identifier: MIT
 *
 * tests/engine/test_compact_parts.c -- a large job is cut into parts of about equal size that threads share; what comes out is one
 * change, or none.
 *
 * Threads take turns by a seed. The file system counts the tables that are being written at the same time, and fails on demand.
 */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "engine/compact_split.h"
#include "engine/names.h"
#include "tests/engine/store_oracle.h"

enum {
    KEY_COUNT = 600,
    VALUE_BYTES = 1000,
    WRITTEN_MAX = 64,
    TABLES_MAX = 400,
};

static struct world *world;
static tamis_fs counting_fs;
static tamis_file *written[WRITTEN_MAX]; // tables that are open for writing
static size_t written_count;
static size_t written_most;
static uint64_t table_count;   // made so far
static uint64_t failing_table; // which finds no space; 0: none
static tamis_db *db;
static tamis_error err;

static tamis_status
counting_create(void *ctx, tamis_dir *dir, const char *name, tamis_file_kind kind,
                tamis_file **file_out, tamis_error *error)
{
    tamis_status status;

    if (kind == TAMIS_FILE_TABLE && ++table_count == failing_table)
        return TM_FAIL(error, TAMIS_NO_SPACE, "no space for a table");
    status = world->env.fs->create(ctx, dir, name, kind, file_out, error);
    if (status == TAMIS_OK && kind == TAMIS_FILE_TABLE) {
        ck_assert_uint_lt(written_count, WRITTEN_MAX);
        written[written_count++] = *file_out;
        if (written_count > written_most)
            written_most = written_count;
    }
    return status;
}

static tamis_status
counting_close(void *ctx, tamis_file *file, tamis_error *error)
{
    for (size_t i = 0; i < written_count; i++)
        if (written[i] == file)
            written[i] = written[--written_count];
    return world->env.fs->close(ctx, file, error);
}

static void
begin(uint64_t seed, uint32_t threads)
{
    tamis_options options;

    world = world_create(seed, WORLD_BATON);
    counting_fs = *world->env.fs;
    counting_fs.create = counting_create;
    counting_fs.close = counting_close;
    written_count = written_most = 0;
    table_count = failing_table = 0;
    options = oracle_options(world);
    options.fs = &counting_fs;
    options.compression = TAMIS_COMPRESSION_NONE;
    options.background_threads = threads;
    check_ok(tm_open(ORACLE_DIR, &options, world->env.runtime, &db, &err), err);
}

static void
end(void)
{
    check_ok(tamis_close(db, &err), err);
    world_destroy(world);
}

/* ---- What is in the store ------------------------------------------------------------------------- */

static unsigned versions[KEY_COUNT]; // that each key was put with last; 0: not there

static tamis_slice
key_of(char text[24], unsigned number)
{
    snprintf(text, 24, "key%05u", number);
    return tamis_text(text);
}

static void
put_all(unsigned version)
{
    static char value[VALUE_BYTES];
    char text[24];

    for (unsigned i = 0; i < KEY_COUNT; i++) {
        unsigned number = i * 7 % KEY_COUNT; // 7 shares no factor with it

        memcpy(value, &version, sizeof version);
        check_ok(
            tamis_put(db, NULL, key_of(text, number), (tamis_slice){value, sizeof value}, &err),
            err);
        versions[number] = version;
    }
    check_ok(tamis_flush(db, &err), err);
}

static void
delete_numbers(unsigned from, unsigned to)
{
    char from_text[24], to_text[24];

    check_ok(tamis_delete_range(db, NULL, key_of(from_text, from), key_of(to_text, to), &err), err);
    for (unsigned number = from; number < to; number++)
        versions[number] = 0;
}

static void
check_key(const tamis_snapshot *snapshot, unsigned number, unsigned expected)
{
    tamis_read_options options;
    unsigned version = 0;
    size_t length;
    char text[24];
    tamis_status status;

    tamis_read_options_init(&options);
    options.snapshot = snapshot;
    status = tamis_get(db, &options, key_of(text, number), &version, sizeof version, &length, &err);
    if (expected != 0)
        check_ok(status, err);
    else
        ck_assert_int_eq(status, TAMIS_NOT_FOUND);
    ck_assert_uint_eq(version, expected);
}

static void
check_all(void)
{
    for (unsigned number = 0; number < KEY_COUNT; number++)
        check_key(NULL, number, versions[number]);
}

struct tables {
    unsigned count;
    char largest[32]; // key of the table before, in the same level
    size_t largest_length;
    uint32_t level;
};

/* Deeper than level 0 no two tables share a key. */
static bool
see_table(void *arg, const tamis_table_stats *table)
{
    struct tables *tables = arg;

    ck_assert_uint_lt(table->largest.length, sizeof tables->largest);
    if (tables->count > 0 && table->level > 0 && table->level == tables->level)
        ck_assert_int_lt(
            tm_slice_compare(tm_slice(tables->largest, tables->largest_length), table->smallest),
            0);
    tables->largest_length = table->largest.length;
    memcpy(tables->largest, table->largest.data, table->largest.length);
    tables->level = table->level;
    tables->count++;
    return true;
}

static unsigned
check_tables(void)
{
    struct tables tables = {0};

    check_ok(tamis_visit_tables(db, see_table, &tables, &err), err);
    return tables.count;
}

static void
count_table(void *arg, const char *name)
{
    size_t *count = arg;
    size_t length = strlen(name);

    *count += length > 4 && strcmp(name + length - 4, ".sst") == 0;
}

static size_t
count_table_files(void)
{
    size_t count = 0;

    sim_file_each(world->sim, ORACLE_DIR, count_table, &count);
    return count;
}

static tamis_stats
get_stats(void)
{
    tamis_stats stats;

    tamis_stats_init(&stats);
    check_ok(tamis_get_stats(db, &stats, &err), err);
    return stats;
}

/* ---- Sharing -------------------------------------------------------------------------------------- */

/* Load, then make everything one job; the most tables that were written at the same time by it. */
static size_t
compact_once_with(uint64_t seed, uint32_t threads)
{
    begin(seed, threads);
    put_all(1);
    check_ok(tamis_compact_range(db, NULL, NULL, &err), err);
    put_all(2);
    check_ok(tamis_wait_idle(db, &err), err);
    written_most = 0;
    check_ok(tamis_compact_range(db, NULL, NULL, &err), err);
    check_ok(tamis_wait_idle(db, &err), err);
    ck_assert_uint_eq(check_tables(), count_table_files());
    ck_assert_uint_eq(get_stats().total.entry_count, KEY_COUNT);
    check_all();
    end();
    return written_most;
}

START_TEST(threads_write_the_parts_of_one_job_at_the_same_time)
{
    uint64_t seed = rng_seed("threads_write_the_parts_of_one_job_at_the_same_time", 41);

    for (uint64_t life = 0; life < 8; life++) {
        ck_assert_uint_eq(compact_once_with(seed + life, 1), 1);
        ck_assert_uint_gt(compact_once_with(seed + life, 4), 1);
    }
}
END_TEST

START_TEST(ranges_that_reach_over_parts_are_cut_between_them_and_hide_the_same)
{
    struct rng rng = rng_from(rng_seed("ranges_that_reach_over_parts", 44));

    for (unsigned life = 0; life < 3; life++) {
        tamis_snapshot *snapshot = NULL;
        uint64_t there = 0;

        begin(rng_next(&rng), 4);
        put_all(1);
        check_ok(tamis_compact_range(db, NULL, NULL, &err), err);
        check_ok(tamis_snapshot_take(db, &snapshot, &err), err); // no table is dropped unread
        delete_numbers(50, 550);
        for (unsigned number = 0; number < KEY_COUNT; number += 1 + (unsigned)rng_below(&rng, 40))
            delete_numbers(number, number + 1);
        put_all(2);
        delete_numbers(100, 400);
        check_ok(tamis_wait_idle(db, &err), err);
        written_most = 0;
        check_ok(tamis_compact_range(db, NULL, NULL, &err), err);
        check_ok(tamis_wait_idle(db, &err), err);
        ck_assert_uint_gt(written_most, 1);
        ck_assert_uint_eq(check_tables(), count_table_files());
        ck_assert_uint_gt(get_stats().total.range_tombstone_count, 4); // cut
        check_all();
        for (unsigned number = 0; number < KEY_COUNT; number++) {
            check_key(snapshot, number, 1);
            there += versions[number] != 0;
        }
        check_ok(tamis_verify(db, NULL, NULL, &err), err);
        tamis_snapshot_release(db, snapshot);
        check_ok(tamis_compact_range(db, NULL, NULL, &err), err);
        check_ok(tamis_wait_idle(db, &err), err);
        check_all();
        ck_assert_uint_eq(get_stats().total.entry_count, there);
        ck_assert_uint_eq(get_stats().total.range_tombstone_count, 0);
        end();
    }
}
END_TEST

START_TEST(a_part_that_fails_takes_the_others_with_it_and_nothing_is_left_behind)
{
    uint64_t seed = rng_seed("a_part_that_fails_takes_the_others_with_it", 42);
    unsigned failed_count = 0;

    for (uint64_t nth = 1; nth <= 12; nth++) {
        unsigned before;

        begin(seed + nth, 3);
        put_all(1);
        check_ok(tamis_compact_range(db, NULL, NULL, &err), err);
        put_all(2);
        check_ok(tamis_wait_idle(db, &err), err);
        before = check_tables();
        failing_table = table_count + nth;
        if (tamis_compact_range(db, NULL, NULL, &err) != TAMIS_OK) {
            ck_assert_int_eq(err.code, TAMIS_NO_SPACE);
            ck_assert_uint_ge(table_count, failing_table); // it fired
            failed_count++;
            ck_assert_uint_le(check_tables(), before + 1); // as it was; level 0 may have gone down
        }
        check_all();
        check_ok(tamis_compact_range(db, NULL, NULL, &err), err);
        check_ok(tamis_wait_idle(db, &err), err);
        ck_assert_uint_eq(written_count, 0);
        ck_assert_uint_eq(check_tables(), count_table_files());
        check_all();
        end();
    }
    ck_assert_uint_gt(failed_count, 6);
}
END_TEST

START_TEST(versions_of_one_key_stay_in_one_table)
{
    enum { SNAPSHOT_COUNT = 300 };
    tamis_snapshot *snapshots[SNAPSHOT_COUNT];
    static char value[VALUE_BYTES];

    begin(43, 4);
    put_all(1);
    for (unsigned i = 0; i < SNAPSHOT_COUNT; i++) {
        check_ok(
            tamis_put(db, NULL, tamis_text("key00300"), (tamis_slice){value, sizeof value}, &err),
            err);
        check_ok(tamis_snapshot_take(db, &snapshots[i], &err), err);
    }
    check_ok(tamis_compact_range(db, NULL, NULL, &err), err);
    ck_assert_uint_ge(get_stats().total.entry_count, KEY_COUNT + SNAPSHOT_COUNT - 1);
    ck_assert_uint_gt(check_tables(), 2); // disjoint, though one key is half of the bytes
    for (unsigned i = 0; i < SNAPSHOT_COUNT; i++)
        tamis_snapshot_release(db, snapshots[i]);
    end();
}
END_TEST

/* ---- Where to cut --------------------------------------------------------------------------------- */

static struct tm_file *
open_table(uint64_t number, unsigned first, unsigned count, unsigned step)
{
    struct tm_table_options options = {.block_bytes = 256, .filter_kind = TAMIS_FILTER_PAIR512};
    struct tm_table_builder *builder = NULL;
    struct tm_file *file = tm_alloc_zeroed(&world->env, sizeof *file);
    tamis_dir *dir = NULL;
    char name[TM_NAME_BYTES_MAX];
    bool created;

    check_ok(world->env.fs->open_dir(world->env.fs->ctx, "tables", true, &created, &dir, &err),
             err);
    tm_name_make(TM_NAME_TABLE, number, name);
    check_ok(tm_table_builder_create(&world->env, dir, name, &options, &builder, &err), err);
    for (unsigned i = 0; i < count; i++) {
        char text[24];
        struct tm_entry entry = {.key = key_of(text, first + i * step),
                                 .value = tm_slice("0123456789", 10),
                                 .sequence = number,
                                 .kind = TM_KIND_PUT};

        check_ok(tm_table_builder_add(builder, &entry, &err), err);
    }
    check_ok(tm_table_builder_finish(builder, &file->facts, &err), err);
    check_ok(tm_table_open(&world->env, dir, name, NULL, NULL, NULL, &file->table, &err), err);
    world->env.fs->close_dir(world->env.fs->ctx, dir);
    file->number = number;
    return file;
}

START_TEST(cuts_ascend_and_give_parts_of_about_equal_size)
{
    struct tm_file *inputs[2];
    struct tm_file *overlaps[3];
    struct tm_compact_job job = {.input_level = 0,
                                 .output_level = 1,
                                 .inputs = inputs,
                                 .input_count = 2,
                                 .overlaps = overlaps,
                                 .overlap_count = 3};
    struct tm_compact_cuts cuts;
    uint64_t bytes = 0;

    world = world_create(1, WORLD_BATON);
    inputs[0] = open_table(1, 0, 4000, 1);
    inputs[1] = open_table(2, 5, 2000, 2);
    for (unsigned i = 0; i < 3; i++)
        overlaps[i] = open_table(3 + i, i * 1400, 1300, 1);
    for (unsigned i = 0; i < 5; i++)
        bytes += (i < 2 ? inputs[i] : overlaps[i - 2])->facts.file_bytes;

    check_ok(tm_compact_split(&world->env, &job, 1, 1, &cuts, &err), err);
    ck_assert_uint_eq(cuts.count, 0);
    check_ok(tm_compact_split(&world->env, &job, 8, bytes, &cuts, &err), err);
    ck_assert_uint_eq(cuts.count, 0);
    check_ok(tm_compact_split(&world->env, &job, 8, bytes / 3, &cuts, &err), err);
    ck_assert_uint_eq(cuts.count, 2);
    tm_compact_cuts_release(&world->env, &cuts);
    check_ok(tm_compact_split(&world->env, &job, 4, 1, &cuts, &err), err);
    ck_assert_uint_eq(cuts.count, 3);
    for (unsigned i = 0; i < 3; i++) {
        char text[24] = "key00000"; // a separator is as short as it can be
        size_t length = cuts.keys[i].length - 1;

        // All tables are even over 0..4000, so the cuts are near its quarters.
        ck_assert_uint_lt(length, sizeof text);
        memcpy(text, cuts.keys[i].data, length);
        ck_assert_uint_eq(cuts.keys[i].data[length], 0); // next to the separator
        ck_assert_int_lt(abs((int)strtoul(text + 3, NULL, 10) - (int)(i + 1) * 1000), 300);
    }
    tm_compact_cuts_release(&world->env, &cuts);
    for (unsigned i = 0; i < 5; i++)
        tm_file_destroy(&world->env, i < 2 ? inputs[i] : overlaps[i - 2]);
    world_destroy(world);
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("compact parts");
    TCase *tests = tcase_create("compact parts");

    tcase_set_timeout(tests, 0);
    tcase_add_test(tests, threads_write_the_parts_of_one_job_at_the_same_time);
    tcase_add_test(tests, ranges_that_reach_over_parts_are_cut_between_them_and_hide_the_same);
    tcase_add_test(tests, a_part_that_fails_takes_the_others_with_it_and_nothing_is_left_behind);
    tcase_add_test(tests, versions_of_one_key_stay_in_one_table);
    tcase_add_test(tests, cuts_ascend_and_give_parts_of_about_equal_size);
    suite_add_tcase(suite, tests);
    return check_run(suite);
}
