/* SPDX-License-Identifier: MIT
 *
 * tests/engine/test_flush_compact.c -- flushing, compacting and being idle: what they leave on disk, what they must keep,
 * and that they end.
 */
#include "tests/engine/one_store.h"

#include <unistd.h>

#include "tests/support/child.h"
#include "tests/support/rng.h"

enum {
    LEVEL0_TRIGGER = 4,      // tables at which level 0 is due
    TABLE_BYTES = 64 << 10,  // the write buffer of these tests
    SMALL_BYTES = 256 << 10, // an emptied store on disk
};

/* ---- Tables as the store tells them ---------------------------------------------------------------- */

struct seen_tables {
    unsigned count;
    uint64_t numbers[4096];
    uint32_t levels[4096];
    uint64_t bytes;
    char largest[64];
    size_t largest_length;
};

/* Besides, every promise that holds for each table at any time. */
static bool
see_table(void *arg, const tamis_table_stats *table)
{
    struct seen_tables *seen = arg;

    ck_assert_uint_lt(seen->count, 4096);
    ck_assert_uint_lt(table->level, TAMIS_LEVEL_COUNT);
    ck_assert_uint_le(table->key_count, table->entry_count);
    ck_assert_uint_le(table->tombstone_count, table->entry_count);
    ck_assert_uint_eq(table->filter.geometry.key_count, table->key_count);
    ck_assert_int_eq(table->filter_damage, TAMIS_FILTER_SOUND);
    if (seen->count != 0) {
        uint32_t level_before = seen->levels[seen->count - 1];

        ck_assert_uint_ge(table->level, level_before);
        if (table->level == 0) // newest first
            ck_assert_uint_lt(table->number, seen->numbers[seen->count - 1]);
        else if (table->level == level_before) { // ascending and disjoint
            size_t length = table->smallest.length < seen->largest_length ? table->smallest.length
                                                                          : seen->largest_length;
            int order = memcmp(seen->largest, table->smallest.data, length);

            ck_assert(order < 0 || (order == 0 && seen->largest_length < table->smallest.length));
        }
    }
    ck_assert_uint_lt(table->largest.length, sizeof seen->largest);
    memcpy(seen->largest, table->largest.data, table->largest.length);
    seen->largest_length = table->largest.length;
    seen->numbers[seen->count] = table->number;
    seen->levels[seen->count++] = table->level;
    seen->bytes += table->file_bytes;
    return true;
}

static struct seen_tables
see_tables(void)
{
    struct seen_tables seen = {0};

    check_ok(tamis_visit_tables(one.db, see_table, &seen, &one.err), one.err);
    return seen;
}

/* At rest the directory holds the store's tables, one log, one manifest, CURRENT and LOCK, and nothing else. */
static void
check_directory_at_rest(void)
{
    struct seen_tables seen;
    struct one_listing listing;

    one_wait_idle();
    seen = see_tables();
    listing = one_list(one.path);
    ck_assert_uint_eq(listing.table_count, seen.count);
    ck_assert_uint_eq(listing.table_bytes, seen.bytes);
    ck_assert_uint_eq(listing.log_count, 1);
    ck_assert_uint_eq(listing.manifest_count, 1);
    ck_assert_uint_eq(listing.current_count, 1);
    ck_assert_uint_eq(listing.lock_count, 1);
    ck_assert_uint_eq(listing.other_count, 0);
    for (unsigned i = 0; i < seen.count; i++) {
        char name[64];
        char *path;

        snprintf(name, sizeof name, "%06llu.sst", (unsigned long long)seen.numbers[i]);
        path = temp_dir_path(one.path, name);
        ck_assert_int_eq(access(path, R_OK), 0);
        free(path);
    }
}

/* ---- Flushing ------------------------------------------------------------------------------------- */

START_TEST(a_flush_writes_the_memtable_as_one_table_and_an_empty_one_as_none)
{
    tamis_stats stats;

    one_flush();
    ck_assert_uint_eq(one_stats().total.file_count, 0);
    one_put_number(1, 1, 100);
    one_put_number(1, 2, 100); // no snapshot needs the version before
    one_delete_number(2);
    one_flush();
    stats = one_stats();
    ck_assert_uint_eq(stats.level[0].file_count, 1);
    ck_assert_uint_eq(stats.flush_count, 1);
    ck_assert_uint_eq(stats.flush_bytes_written, stats.total.file_bytes);
    ck_assert_uint_eq(stats.total.key_count, 2);
    ck_assert_uint_eq(stats.total.entry_count, 2);
    ck_assert_uint_eq(stats.total.tombstone_count, 1);
    one_flush();
    ck_assert_uint_eq(one_stats().total.file_count, 1);
    ck_assert_int_eq(one_version(1), 2);
    ck_assert_int_eq(one_version(2), -1);
    check_directory_at_rest();
}
END_TEST

START_TEST(memtables_that_reach_the_write_buffer_become_tables_by_themselves)
{
    tamis_stats stats;

    for (unsigned i = 0; i < 1000; i++)
        one_put_number(i, 0, 1000); // 1 MB: 16 write buffers
    one_wait_idle();
    stats = one_stats();
    ck_assert_uint_ge(stats.flush_count, 1000 * 1000 / TABLE_BYTES / 2);
    ck_assert_uint_le(stats.flush_count, 1000 * 1100 / TABLE_BYTES + 1);
    ck_assert_uint_le(stats.memory_memtables_bytes, 4 * TABLE_BYTES);
    check_directory_at_rest();
}
END_TEST

/* ---- The tree at rest ------------------------------------------------------------------------------ */

START_TEST(after_a_load_no_level_is_due_and_all_above_the_bottom_is_little)
{
    uint64_t seed = rng_seed("after_a_load_no_level_is_due", 4);
    struct rng rng = rng_from(seed);
    unsigned key_count = 40000 / ONE_STORE_DIVISOR;
    uint64_t level_bytes_max = (uint64_t)4 * TABLE_BYTES;
    uint64_t all_bytes = 0;
    uint64_t bottom_bytes = 0; // of the deepest level that holds anything
    tamis_stats stats;

    for (unsigned i = 0; i < key_count; i++)
        one_put_number((unsigned)rng_below(&rng, key_count), i, 150);
    one_wait_idle();
    check_directory_at_rest();
    stats = one_stats();
    ck_assert_uint_lt(stats.level[0].file_count, LEVEL0_TRIGGER);
    for (int level = 1; level < TAMIS_LEVEL_COUNT - 1; level++, level_bytes_max *= 10)
        ck_assert_uint_lt(stats.level[level].file_bytes, level_bytes_max);
    ck_assert_uint_gt(stats.level[2].file_count, 0);
    for (int level = 1; level < TAMIS_LEVEL_COUNT; level++) {
        all_bytes += stats.level[level].file_bytes;
        if (stats.level[level].file_bytes != 0)
            bottom_bytes = stats.level[level].file_bytes;
    }
    ck_assert_uint_le(all_bytes * 8, bottom_bytes * 9);
    ck_assert_uint_gt(stats.compaction_count, 0);
    one_compact();
    stats = one_stats();
    ck_assert_uint_eq(stats.total.entry_count, one_count_keys());
    ck_assert_uint_eq(stats.total.key_count, stats.total.entry_count);
    ck_assert_uint_eq(stats.level[0].file_count, 0);
    check_directory_at_rest();
}
END_TEST

START_TEST(tables_that_overlap_nothing_change_their_level_without_being_rewritten)
{
    struct seen_tables seen;
    tamis_stats stats;
    bool is_deeper = false;

    for (unsigned i = 0; i < 6000; i++)
        one_put_number(i, 7, 200); // ascending: no two tables overlap
    one_wait_idle();
    stats = one_stats();
    ck_assert_uint_gt(stats.move_count, 0);
    ck_assert_uint_eq(stats.compaction_count, 0);
    ck_assert_uint_eq(stats.compaction_bytes_written, 0);
    seen = see_tables();
    ck_assert_uint_eq(seen.count, stats.flush_count);
    for (unsigned i = 0; i < seen.count; i++)
        is_deeper |= seen.levels[i] > 0;
    ck_assert(is_deeper);
    for (unsigned i = 0; i < 6000; i++)
        ck_assert_int_eq(one_version(i), 7);
    one_store_reopen();
    ck_assert_uint_eq(one_count_keys(), 6000);
}
END_TEST

START_TEST(filters_are_rebuilt_for_what_a_compaction_keeps)
{
    tamis_stats stats;

    for (unsigned round = 0; round < 3; round++) {
        for (unsigned i = 0; i < 1000; i++)
            one_put_number(i, round, 100);
        one_flush();
    }
    for (unsigned i = 0; i < 1000; i += 2)
        one_delete_number(i);
    one_flush();
    one_compact();
    stats = one_stats();
    ck_assert_uint_eq(stats.total.key_count, 500);
    ck_assert_uint_eq(stats.total.entry_count, 500);
    ck_assert_uint_eq(stats.total.tombstone_count, 0);
    // 10 bits for each of 500 keys, up to whole lines of each table.
    ck_assert_uint_ge(stats.total.filter_bytes * 8, 500 * 10);
    ck_assert_uint_le(stats.total.filter_bytes * 8, 500 * 10 + stats.total.file_count * 2 * 8 * 64);
    (void)see_tables(); // each table's own count is that of its filter
}
END_TEST

/* ---- Manual compaction ---------------------------------------------------------------------------- */

START_TEST(one_compaction_after_deleting_everything_gives_the_space_back)
{
    struct one_listing before, after;
    tamis_batch *batch = NULL;
    char text[32];

    for (unsigned i = 0; i < 20000; i++)
        one_put_number(i, 0, 500);
    one_wait_idle();
    before = one_list(one.path);
    ck_assert_uint_gt(before.table_bytes, (uint64_t)9 * 1000 * 1000);
    check_ok(tamis_batch_create(NULL, &batch, &one.err), one.err);
    for (unsigned i = 0; i < 20000; i++) {
        check_ok(tamis_batch_delete(batch, one_key(text, i), &one.err), one.err);
        if (i % 1000 == 999) {
            check_ok(tamis_write(one.db, NULL, batch, &one.err), one.err);
            tamis_batch_clear(batch);
        }
    }
    tamis_batch_destroy(batch);
    one_compact(); // once
    ck_assert_uint_eq(one_count_keys(), 0);
    ck_assert_uint_eq(one_stats().total.file_count, 0);
    check_directory_at_rest();
    one_store_close(); // the log gives back what it had reserved
    after = one_list(one.path);
    ck_assert_uint_lt(after.bytes * 100, before.bytes);
    ck_assert_uint_le(after.bytes, SMALL_BYTES);
    one_store_open();
    ck_assert_uint_eq(one_count_keys(), 0);
}
END_TEST

START_TEST(keys_do_not_come_back_after_a_partial_compaction)
{
    unsigned key_count = 100000 / ONE_STORE_DIVISOR;
    tamis_batch *batch = NULL;
    char from_text[32], to_text[32];
    tamis_slice from = one_key(from_text, 0);
    tamis_slice to = one_key(to_text, key_count / 2 - 1);

    check_ok(tamis_batch_create(NULL, &batch, &one.err), one.err);
    for (unsigned i = 0; i < key_count; i++) {
        char text[32];

        one_put(one_key(text, i), tamis_text(""));
        if (i < key_count / 2)
            check_ok(tamis_batch_delete(batch, one_key(text, i), &one.err), one.err);
    }
    check_ok(tamis_write(one.db, NULL, batch, &one.err), one.err);
    tamis_batch_destroy(batch);
    check_ok(tamis_compact_range(one.db, &from, &to, &one.err), one.err);
    for (int round = 0; round < 2; round++) {
        tamis_iter *iter = NULL;
        unsigned expected = key_count / 2;

        check_ok(tamis_iter_open(one.db, NULL, &iter, &one.err), one.err);
        for (tamis_iter_first(iter); tamis_iter_valid(iter); tamis_iter_next(iter)) {
            char text[32];
            tamis_slice key = one_key(text, expected++);

            ck_assert_uint_eq(tamis_iter_key(iter).length, key.length);
            ck_assert_mem_eq(tamis_iter_key(iter).data, key.data, key.length);
        }
        check_ok(tamis_iter_status(iter, &one.err), one.err);
        tamis_iter_close(iter);
        ck_assert_uint_eq(expected, key_count);
        one_store_reopen();
    }
}
END_TEST

START_TEST(both_bounds_of_a_compaction_are_inclusive)
{
    char from_text[32], to_text[32];
    tamis_slice from = one_key(from_text, 1);
    tamis_slice to = one_key(to_text, 3);

    for (unsigned i = 1; i <= 3; i++)
        one_put_number(i, 0, 100);
    one_compact();
    one_delete_number(1);
    one_flush();
    check_ok(tamis_compact_range(one.db, NULL, &from, &one.err), one.err);
    ck_assert_uint_eq(one_stats().total.entry_count, 2);
    one_delete_number(3);
    one_flush();
    check_ok(tamis_compact_range(one.db, &to, &to, &one.err), one.err);
    ck_assert_uint_eq(one_stats().total.entry_count, 1);
    one_put_number(2, 1, 100);
    one_flush();
    check_ok(tamis_compact_range(one.db, &to, NULL, &one.err), one.err); // nothing there
    ck_assert_uint_eq(one_stats().total.entry_count, 2);
    check_ok(tamis_compact_range(one.db, &to, &from, &one.err),
             one.err); // an empty range, backwards
    ck_assert_int_eq(one_version(2), 1);
    ck_assert_uint_eq(one_count_keys(), 1);
}
END_TEST

START_TEST(a_compaction_refuses_a_bound_beyond_the_limit_of_keys)
{
    char *bytes = calloc(1, TAMIS_KEY_BYTES_MAX + 1);
    tamis_slice bound = {bytes, TAMIS_KEY_BYTES_MAX + 1};

    check_status(tamis_compact_range(one.db, &bound, NULL, &one.err), TAMIS_TOO_LARGE, one.err);
    check_status(tamis_compact_range(one.db, NULL, &bound, &one.err), TAMIS_TOO_LARGE, one.err);
    bound.length--;
    check_ok(tamis_compact_range(one.db, &bound, &bound, &one.err), one.err);
    free(bytes);
}
END_TEST

static int
compact_and_die(void *arg)
{
    (void)arg;
    one_store_open();
    for (unsigned i = 0; i < 100; i++)
        one_put_number(i, 1, 100);
    one_compact();
    for (unsigned i = 0; i < 100; i++)
        ck_assert_int_eq(one_version(i), 1);
    return 0; // without closing
}

START_TEST(a_compaction_takes_what_only_the_memtable_holds)
{
    one_store_close();
    one.options.write_buffer_bytes = 4 << 20;
    ck_assert_int_eq(child_run(compact_and_die, NULL, NULL, 0), 0);
    one_store_open();
    ck_assert_uint_eq(one_stats().total.entry_count, 100);
    for (unsigned i = 0; i < 100; i++)
        ck_assert_int_eq(one_version(i), 1);
}
END_TEST

START_TEST(compacting_nothing_changes_nothing)
{
    struct seen_tables before, after;

    one_compact();
    ck_assert_uint_eq(one_stats().total.file_count, 0);
    for (unsigned i = 0; i < 2000; i++)
        one_put_number(i, 0, 100);
    one_compact();
    one_wait_idle();
    before = see_tables();
    one_compact();
    one_wait_idle();
    after = see_tables();
    ck_assert_uint_eq(before.count, after.count);
    ck_assert_mem_eq(before.numbers, after.numbers, before.count * sizeof before.numbers[0]);
}
END_TEST

/* ---- Tombstones and snapshots ---------------------------------------------------------------------- */

START_TEST(a_tombstone_at_the_bottom_stays_for_as_long_as_a_snapshot_needs_what_it_hides)
{
    tamis_snapshot *snapshot = NULL;

    one_put_number(1, 1, 100);
    one_compact();
    check_ok(tamis_snapshot_take(one.db, &snapshot, &one.err), one.err);
    one_delete_number(1);
    one_flush();
    one_compact();
    ck_assert_int_eq(one_version_at(snapshot, 1), 1);
    ck_assert_int_eq(one_version(1), -1);
    ck_assert_uint_eq(one_stats().total.entry_count, 2);
    tamis_snapshot_release(one.db, snapshot);
    one_compact();
    ck_assert_int_eq(one_version(1), -1);
    ck_assert_uint_eq(one_stats().total.entry_count, 0);
    one_store_reopen();
    ck_assert_int_eq(one_version(1), -1);
    ck_assert_uint_eq(one_count_keys(), 0);
}
END_TEST

START_TEST(a_tombstone_above_a_version_is_not_dropped_before_it)
{
    char text[32];
    tamis_slice key = one_key(text, 5);

    one_put_number(5, 1, 100);
    one_compact(); // the version is deep
    one_delete_number(5);
    one_flush();
    one_put_number(5, 2, 100);
    one_flush();
    one_delete_number(5);
    one_flush();
    ck_assert_int_eq(one_version(5), -1);
    check_ok(tamis_compact_range(one.db, &key, &key, &one.err), one.err);
    ck_assert_int_eq(one_version(5), -1);
    ck_assert_uint_eq(one_stats().total.entry_count, 0);
}
END_TEST

START_TEST(a_key_behind_many_tombstones_is_found_and_compaction_clears_the_way)
{
    unsigned key_count = 100000 / ONE_STORE_DIVISOR;
    unsigned loop_count = 1000 / ONE_STORE_DIVISOR;
    tamis_iter *iter = NULL;
    char text[32];

    for (unsigned i = 0; i < key_count; i++)
        one_put_number(i, 0, 16);
    for (unsigned i = 0; i + 1 < key_count; i++)
        one_delete_number(i);
    for (int round = 0; round < 2; round++) {
        check_ok(tamis_iter_open(one.db, NULL, &iter, &one.err), one.err);
        tamis_iter_first(iter);
        ck_assert(tamis_iter_valid(iter));
        ck_assert_mem_eq(tamis_iter_key(iter).data, one_key(text, key_count - 1).data, 9);
        tamis_iter_close(iter);
        one_compact();
        ck_assert_uint_eq(one_stats().total.entry_count, 1);
    }
    for (unsigned i = 0; i < loop_count; i++) { // a queue
        one_put_number(key_count + i, 0, 16);
        check_ok(tamis_iter_open(one.db, NULL, &iter, &one.err), one.err);
        tamis_iter_first(iter);
        ck_assert(tamis_iter_valid(iter));
        ck_assert_mem_eq(tamis_iter_key(iter).data, one_key(text, key_count - 1 + i).data, 9);
        one_delete(tamis_iter_key(iter));
        tamis_iter_close(iter);
    }
    ck_assert_uint_eq(one_count_keys(), 1);
}
END_TEST

static void
delete_numbers(unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        one_delete_number(i);
    one_flush();
}

START_TEST(what_was_deleted_leaves_the_disk_without_being_asked_to)
{
    for (unsigned i = 0; i < 4000; i++)
        one_put_number(i * 7919 % 4000, 0, 500);
    one_compact();
    delete_numbers(4000);
    one_wait_idle();
    ck_assert_uint_eq(one_stats().total.file_count, 0);
    check_directory_at_rest();
    ck_assert_uint_eq(one_count_keys(), 0);
}
END_TEST

START_TEST(tombstones_that_a_snapshot_needs_are_not_rewritten_again_and_again_and_go_after_it)
{
    tamis_snapshot *snapshot = NULL;
    tamis_stats stats;

    for (unsigned i = 0; i < 4000; i++)
        one_put_number(i, 0, 500);
    one_compact();
    one_wait_idle();
    stats = one_stats();
    check_ok(tamis_snapshot_take(one.db, &snapshot, &one.err), one.err);
    delete_numbers(1000); // few enough that no level is due
    for (int i = 0; i < 3; i++) {
        one_wait_idle();
        ck_assert_uint_eq(one_stats().compaction_count, stats.compaction_count);
    }
    ck_assert_int_eq(one_version_at(snapshot, 999), 0);
    tamis_snapshot_release(one.db, snapshot);
    one_wait_idle();
    stats = one_stats();
    ck_assert_uint_eq(stats.total.tombstone_count, 0);
    ck_assert_uint_eq(stats.total.entry_count, 3000);
    ck_assert_uint_eq(one_count_keys(), 3000);
}
END_TEST

/* ---- Space and work -------------------------------------------------------------------------------- */

START_TEST(work_ends_after_every_opening)
{
    uint64_t data_bytes = (uint64_t)20000 * 200;
    uint64_t written_bytes = 0;

    for (unsigned i = 0; i < 20000; i++)
        one_put_number(i * 7919 % 20000, 3, 200);
    for (int round = 0; round < 5; round++) {
        tamis_stats stats;
        struct one_listing listing;

        one_store_reopen();
        one_wait_idle();
        stats = one_stats();
        written_bytes += stats.compaction_bytes_written + stats.flush_bytes_written;
        listing = one_list(one.path);
        one_wait_idle();
        ck_assert_uint_eq(one_stats().compaction_count, stats.compaction_count);
        ck_assert_uint_eq(one_list(one.path).digest, listing.digest);
    }
    ck_assert_uint_le(written_bytes, 2 * data_bytes);
    ck_assert_uint_eq(one_count_keys(), 20000);
    for (unsigned i = 0; i < 20000; i++)
        ck_assert_int_eq(one_version(i), 3);
}
END_TEST

START_TEST(a_queue_does_not_grow_on_disk)
{
    enum { WINDOW = 500, VALUE_BYTES = 1000 };
    unsigned step_count = ONE_STORE_DIVISOR == 1 ? 16000 : 6000;
    uint64_t live_bytes = (uint64_t)WINDOW * VALUE_BYTES;
    uint64_t most[2] = {0}; // in each half

    for (unsigned i = 0; i < step_count; i++) {
        one_put_number(i, 0, VALUE_BYTES);
        if (i >= WINDOW)
            one_delete_number(i - WINDOW);
        if (i % 500 == 499) {
            uint64_t bytes;

            one_wait_idle();
            bytes = one_list(one.path).table_bytes;
            ck_assert_uint_le(bytes, 3 * live_bytes);
            if (bytes > most[i * 2 / step_count])
                most[i * 2 / step_count] = bytes;
        }
    }
    printf("a queue of %llu bytes: at most %llu in the first half, %llu in the second\n",
           (unsigned long long)live_bytes, (unsigned long long)most[0],
           (unsigned long long)most[1]);
    // A table more or less, for the threads come as they come.
    ck_assert_uint_le(most[1] * 10, (most[0] + TABLE_BYTES) * 12);
    ck_assert_uint_eq(one_count_keys(), WINDOW);
    for (unsigned i = step_count - WINDOW; i < step_count; i++)
        one_delete_number(i);
    one_compact();
    check_directory_at_rest();
    one_store_close();
    ck_assert_uint_le(one_list(one.path).bytes, SMALL_BYTES);
    one_store_open();
}
END_TEST

START_TEST(one_key_overwritten_without_end_takes_the_space_of_one)
{
    unsigned write_count = 100000 / ONE_STORE_DIVISOR;

    for (unsigned i = 0; i < write_count; i++) {
        one_put_number(1, i, 16);
        if (i % 1000 == 0) {
            ck_assert_int_eq(one_version(1), i);
            ck_assert_uint_le(one_stats().level[0].file_count, 20); // where writes wait
        }
    }
    one_wait_idle();
    ck_assert_uint_lt(one_stats().level[0].file_count, LEVEL0_TRIGGER);
    ck_assert_uint_eq(one_stats().total.entry_count, one_stats().total.file_count); // one each
    one_compact();
    ck_assert_uint_eq(one_stats().total.entry_count, 1);
    check_directory_at_rest();
    ck_assert_int_eq(one_version(1), write_count - 1);
}
END_TEST

static unsigned
count_descriptors(void)
{
    return one_list("/proc/self/fd").file_count;
}

START_TEST(what_an_iterator_pins_is_released_with_it)
{
    enum { KEY_COUNT = 2000, VALUE_BYTES = 1000 };
    uint64_t live_bytes = (uint64_t)KEY_COUNT * VALUE_BYTES;
    unsigned round_count = ONE_STORE_DIVISOR == 1 ? 10 : 4;
    unsigned descriptors;
    tamis_iter *iter = NULL;
    unsigned number = 0;

    for (unsigned i = 0; i < KEY_COUNT; i++)
        one_put_number(i, 0, VALUE_BYTES);
    one_compact();
    one_wait_idle();
    descriptors = count_descriptors();
    check_ok(tamis_iter_open(one.db, NULL, &iter, &one.err), one.err);
    tamis_iter_first(iter);
    for (unsigned round = 1; round <= round_count; round++)
        for (unsigned i = 0; i < KEY_COUNT; i++)
            one_put_number(i, round, VALUE_BYTES);
    one_compact();
    for (; tamis_iter_valid(iter); tamis_iter_next(iter), number++) {
        unsigned head[2];

        memcpy(head, tamis_iter_value(iter).data, sizeof head);
        ck_assert_uint_eq(head[0], number);
        ck_assert_uint_eq(head[1], 0);
    }
    check_ok(tamis_iter_status(iter, &one.err), one.err);
    ck_assert_uint_eq(number, KEY_COUNT);
    tamis_iter_close(iter);
    one_compact();
    check_directory_at_rest();
    ck_assert_uint_le(one_list(one.path).table_bytes * 2, live_bytes * 3);
    ck_assert_uint_le(count_descriptors(), descriptors + 2);
    ck_assert_int_eq(one_version(0), round_count);
}
END_TEST

START_TEST(reading_writes_nothing)
{
    unsigned key_count = 100000 / ONE_STORE_DIVISOR;
    unsigned get_count = 200000 / ONE_STORE_DIVISOR;
    struct rng rng = rng_from(rng_seed("reading_writes_nothing", 8));
    struct one_listing before;
    tamis_stats stats, stats_after;

    for (unsigned i = 0; i < key_count; i++)
        one_put_number((unsigned)rng_below(&rng, key_count), 0, 60);
    one_flush();
    one_wait_idle();
    stats = one_stats();
    before = one_list(one.path);
    for (unsigned i = 0; i < get_count; i++)
        (void)one_version((unsigned)rng_below(&rng, 2 * key_count));
    for (int i = 0; i < 10; i++)
        (void)one_count_keys();
    one_wait_idle();
    stats_after = one_stats();
    ck_assert_uint_eq(one_list(one.path).digest, before.digest);
    ck_assert_uint_eq(stats_after.log_bytes_written, stats.log_bytes_written);
    ck_assert_uint_eq(stats_after.flush_count, stats.flush_count);
    ck_assert_uint_eq(stats_after.compaction_count, stats.compaction_count);
    ck_assert_uint_eq(stats_after.move_count, stats.move_count);
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("flush and compact");
    TCase *tests = tcase_create("flush and compact");

    tcase_set_timeout(tests, 0);
    tcase_add_checked_fixture(tests, one_store_begin, one_store_end);
    tcase_add_test(tests, a_flush_writes_the_memtable_as_one_table_and_an_empty_one_as_none);
    tcase_add_test(tests, memtables_that_reach_the_write_buffer_become_tables_by_themselves);
    tcase_add_test(tests, after_a_load_no_level_is_due_and_all_above_the_bottom_is_little);
    tcase_add_test(tests, tables_that_overlap_nothing_change_their_level_without_being_rewritten);
    tcase_add_test(tests, filters_are_rebuilt_for_what_a_compaction_keeps);
    tcase_add_test(tests, one_compaction_after_deleting_everything_gives_the_space_back);
    tcase_add_test(tests, keys_do_not_come_back_after_a_partial_compaction);
    tcase_add_test(tests, both_bounds_of_a_compaction_are_inclusive);
    tcase_add_test(tests, a_compaction_refuses_a_bound_beyond_the_limit_of_keys);
    tcase_add_test(tests, a_compaction_takes_what_only_the_memtable_holds);
    tcase_add_test(tests, compacting_nothing_changes_nothing);
    tcase_add_test(tests,
                   a_tombstone_at_the_bottom_stays_for_as_long_as_a_snapshot_needs_what_it_hides);
    tcase_add_test(tests, a_tombstone_above_a_version_is_not_dropped_before_it);
    tcase_add_test(tests, a_key_behind_many_tombstones_is_found_and_compaction_clears_the_way);
    tcase_add_test(tests, what_was_deleted_leaves_the_disk_without_being_asked_to);
    tcase_add_test(
        tests, tombstones_that_a_snapshot_needs_are_not_rewritten_again_and_again_and_go_after_it);
    tcase_add_test(tests, work_ends_after_every_opening);
    tcase_add_test(tests, a_queue_does_not_grow_on_disk);
    tcase_add_test(tests, one_key_overwritten_without_end_takes_the_space_of_one);
    tcase_add_test(tests, what_an_iterator_pins_is_released_with_it);
    tcase_add_test(tests, reading_writes_nothing);
    suite_add_tcase(suite, tests);
    return check_run(suite);
}
