/* SPDX-License-Identifier: MIT
 *
 * tests/sstable/test_read_ahead.c -- what a walk reads from the file, and that it is told what happens block by block.
 *
 * One table of a few hundred blocks, whose reads are written down.
 */
#include "sstable/format.h"
#include "sstable/table.h"
#include "tests/sstable/table_test.h"

enum {
    KEYS = 16000, // 0.9 MB
    BLOCKS_MAX = 512,
    READS_MAX = 4096,
    WINDOW_BYTES = 128 << 10, // the largest
};

static struct shelf shelf;
static struct entries entries;
static struct tm_table *table;
static size_t first_entry[BLOCKS_MAX + 1]; // of each block
static tamis_fs recording;
static const tamis_fs *real_fs;
static struct read {
    uint64_t offset;
    size_t length;
} reads[READS_MAX];
static size_t read_count;
static uint64_t bad_from, bad_to; // a read that meets these bytes fails; equal: none does
static size_t fail_read;          // that read fails; 0: none does

static tamis_status
read_at(void *ctx, tamis_file *file, uint64_t offset, void *buffer, size_t length, tamis_error *err)
{
    expect(read_count < READS_MAX);
    reads[read_count++] = (struct read){offset, length};
    if (read_count == fail_read || (offset < bad_to && offset + length > bad_from)) {
        memset(buffer, 0xee, length); // nothing is promised of what it holds then
        return TM_FAIL(err, TAMIS_IO, "no bytes at %llu", (unsigned long long)bad_from);
    }
    return real_fs->read_at(ctx, file, offset, buffer, length, err);
}

static void
open_table(struct tm_cache *cache)
{
    tamis_error err;

    expect_ok(tm_table_open(&shelf.env, shelf.dir, "t.sst", NULL, cache, NULL, &table, &err), err);
    read_count = 0;
}

static void
set_up(void)
{
    struct rng rng = rng_from(rng_seed("read ahead", 61));
    struct tm_table_options options = shelf_options(4096);

    shelf_open(&shelf);
    real_fs = shelf.env.fs;
    recording = *real_fs;
    recording.read_at = read_at;
    shelf.env.fs = &recording;
    bad_from = bad_to = fail_read = 0;
    entries_fill(&entries, &rng, KEYS, 1, true);
    shelf_write(&shelf, "t.sst", &options, &entries);
    open_table(NULL);
    expect(table->index.count < BLOCKS_MAX);
    for (size_t i = 0; i < table->index.count; i++) {
        struct tm_block *block;
        struct tm_block_view view;
        tamis_error err;

        expect_ok(tm_table_load_block(table, i, false, NULL, &block, &view, &err), err);
        first_entry[i + 1] = first_entry[i] + view.count;
        tm_block_unref(block);
    }
    expect(first_entry[table->index.count] == KEYS);
    read_count = 0;
}

static void
tear_down(void)
{
    tm_table_close(table);
    entries_free(&entries);
    shelf_close(&shelf);
}

static struct tm_iter *
walk(bool fill_cache)
{
    struct tm_iter *iter;
    tamis_error err;

    expect_ok(tm_table_iter(table, fill_cache, &iter, &err), err);
    return iter;
}

static void
go(struct tm_iter *iter, bool backward)
{
    if (backward)
        iter->vtable->prev(iter);
    else
        iter->vtable->next(iter);
}

static void
begin(struct tm_iter *iter, bool backward)
{
    if (backward)
        iter->vtable->last(iter);
    else
        iter->vtable->first(iter);
}

/* From one end on, as far as it goes: the right entries. Returns how many. */
static size_t
walk_from_end(struct tm_iter *iter, bool backward)
{
    size_t count = 0;

    for (begin(iter, backward); iter->valid; go(iter, backward)) {
        expect(same_entry(&iter->entry, &entries.list[backward ? KEYS - 1 - count : count]));
        count++;
    }
    return count;
}

/* Is the read exactly block `number`? */
static bool
is_block(const struct read *read, size_t number)
{
    return read->offset == table->index.offsets[number] &&
           read->offset + read->length == table->index.offsets[number + 1];
}

static uint64_t
data_bytes(void)
{
    return table->index.offsets[table->index.count];
}

START_TEST(a_seek_and_a_step_read_the_blocks_they_need_alone)
{
    struct tm_iter *iter = walk(true);

    for (size_t number = 1; number + 2 < table->index.count; number += 5) {
        const struct tm_entry *last = &entries.list[first_entry[number + 1] - 1];

        for (unsigned backward = 0; backward < 2; backward++) {
            const struct tm_entry *from = backward != 0 ? &entries.list[first_entry[number]] : last;

            read_count = 0;
            iter->vtable->seek(iter, from->key, from->sequence);
            expect(iter->valid && read_count == 1 && is_block(&reads[0], number));
            go(iter, backward != 0);
            expect(iter->valid && read_count == 2 &&
                   is_block(&reads[1], backward != 0 ? number - 1 : number + 1));
        }
    }
    tm_iter_close(iter);
}
END_TEST

START_TEST(a_long_walk_reads_every_byte_once_in_windows_that_grow)
{
    for (unsigned backward = 0; backward < 2; backward++) {
        struct fault_alloc *alloc = &shelf.world->alloc;
        uint64_t live = alloc->live_bytes;
        struct tm_iter *iter;
        uint64_t at = backward != 0 ? data_bytes() : 0;

        alloc->peak_bytes = live;
        read_count = 0;
        iter = walk(true);
        ck_assert_uint_eq(walk_from_end(iter, backward != 0), KEYS);
        ck_assert_int_eq(iter->status, TAMIS_OK);
        tm_iter_close(iter);
        for (size_t i = 0; i < read_count; i++) { // they lie side by side
            if (backward != 0)
                at -= reads[i].length;
            ck_assert_uint_eq(reads[i].offset, at);
            if (backward == 0)
                at += reads[i].length;
            ck_assert_uint_le(reads[i].length, WINDOW_BYTES);
            if (i >= 2 && i + 1 < read_count) // the last ends with the data section
                ck_assert_uint_gt(reads[i].length, (i < 5 ? 8u << 10 << (i - 2) : 112u << 10));
        }
        ck_assert_uint_eq(at, backward != 0 ? 0 : data_bytes());
        ck_assert_uint_lt(read_count, 6 + data_bytes() / (112 << 10));
        ck_assert_uint_eq(alloc->live_bytes, live);
        ck_assert_uint_gt(alloc->peak_bytes, live + (100 << 10));
        ck_assert_uint_lt(alloc->peak_bytes, live + WINDOW_BYTES + (16 << 10));
    }
}
END_TEST

START_TEST(a_seek_elsewhere_and_a_turn_begin_with_single_blocks_again)
{
    struct tm_iter *iter = walk(true);
    size_t far = table->index.count / 4;
    const struct tm_entry *target = &entries.list[first_entry[far]];

    ck_assert_uint_eq(walk_from_end(iter, false), KEYS);
    read_count = 0;
    iter->vtable->seek(iter, target->key, target->sequence);
    ck_assert_uint_eq(read_count, 1);
    ck_assert(is_block(&reads[0], far));
    while (read_count < 4)
        iter->vtable->next(iter); // now a window is there, which begins two blocks on
    ck_assert(is_block(&reads[1], far + 1));
    ck_assert_uint_eq(reads[2].offset, table->index.offsets[far + 2]);
    ck_assert_uint_gt(reads[2].length, 8 << 10);
    for (size_t known = read_count; read_count == known;)
        iter->vtable->prev(iter);
    ck_assert_uint_eq(read_count, 5);
    ck_assert_uint_le(reads[4].length, 5 << 10);
    tm_iter_close(iter);
}
END_TEST

START_TEST(random_walks_both_ways_stand_where_the_list_says)
{
    struct rng rng = rng_from(rng_seed("walks that read ahead", 62));

    for (unsigned round = 0; round < 2; round++) {
        struct tm_cache *cache = round == 0 ? NULL : tm_cache_create(&shelf.env, 256 << 10, 4096);
        struct tm_iter *iter;

        tm_table_close(table);
        open_table(cache);
        iter = walk(true);
        for (unsigned i = 0; i < 20; i++) {
            const struct tm_entry *from = &entries.list[rng_below(&rng, KEYS)];
            bool backward = rng_chance(&rng, 1, 2);

            read_count = 0;
            entries_walk(&entries, iter, &rng, 100);
            iter->vtable->seek(iter, from->key, from->sequence);
            for (uint64_t steps = rng_below(&rng, 2000); steps > 0 && iter->valid; steps--) {
                expect(same_entry(&iter->entry, from));
                from += backward ? -1 : 1;
                go(iter, backward);
            }
            expect(iter->status == TAMIS_OK);
        }
        tm_iter_close(iter);
        tm_table_close(table);
        tm_cache_destroy(cache);
        open_table(NULL);
    }
}
END_TEST

START_TEST(cached_blocks_are_not_read_and_blocks_of_windows_are_cached)
{
    struct tm_cache *cache = tm_cache_create(&shelf.env, 4 << 20, 4096);
    size_t half = table->index.count / 2;
    struct tm_iter *iter;

    tm_table_close(table);
    open_table(cache);
    iter = walk(true);
    iter->vtable->first(iter);
    for (size_t i = 1; i < first_entry[half]; i++)
        iter->vtable->next(iter);
    tm_iter_close(iter);
    ck_assert_uint_eq(tm_cache_misses(cache), half);
    read_count = 0;
    iter = walk(true);
    ck_assert_uint_eq(walk_from_end(iter, false), KEYS);
    ck_assert(is_block(&reads[0], half));
    ck_assert_uint_eq(tm_cache_hits(cache), half);
    read_count = 0;
    ck_assert_uint_eq(walk_from_end(iter, true), KEYS);
    ck_assert_uint_eq(read_count, 0);
    tm_iter_close(iter);
    tm_table_close(table);
    tm_cache_destroy(cache);
    open_table(NULL);
}
END_TEST

/* Both ways: everything up to block `number` comes, and then this status, which names the place. */
static void
expect_walks_to_end_at(size_t number, tamis_status status)
{
    char place[32];

    snprintf(place, sizeof place, "at %llu", (unsigned long long)table->index.offsets[number]);
    for (unsigned backward = 0; backward < 2; backward++) {
        struct tm_iter *iter = walk(true);

        ck_assert_uint_eq(walk_from_end(iter, backward != 0),
                          backward != 0 ? KEYS - first_entry[number + 1] : first_entry[number]);
        check_status(iter->status, status, iter->error);
        ck_assert_ptr_nonnull(strstr(iter->error.message, place));
        tm_iter_close(iter);
        read_count = 0;
    }
}

START_TEST(damage_within_a_window_ends_the_walk_at_exactly_that_block)
{
    for (size_t number = 0; number < table->index.count; number += SLOW_BUILD ? 41 : 7) {
        size_t size;
        uint8_t *file = sim_file_get(shelf.world->sim, "tables", "t.sst", &size);

        file[table->index.offsets[number] + 100] ^= 1;
        sim_file_put(shelf.world->sim, "tables", "t.sst", file, size);
        expect_walks_to_end_at(number, TAMIS_CORRUPT);
        file[table->index.offsets[number] + 100] ^= 1;
        sim_file_put(shelf.world->sim, "tables", "t.sst", file, size);
        free(file);
    }
}
END_TEST

START_TEST(a_place_that_cannot_be_read_ends_the_walk_at_exactly_that_block)
{
    for (size_t number = 0; number < table->index.count; number += SLOW_BUILD ? 41 : 7) {
        bad_from = table->index.offsets[number];
        bad_to = bad_from + 1;
        expect_walks_to_end_at(number, TAMIS_IO);
    }
}
END_TEST

START_TEST(a_window_that_fails_once_costs_reads_and_no_entry)
{
    for (fail_read = 3; fail_read < 12; fail_read++) {
        struct tm_iter *iter = walk(false);
        size_t at = 0;

        read_count = 0;
        for (iter->vtable->first(iter); read_count < fail_read; iter->vtable->next(iter))
            at++;
        for (size_t steps = 300; steps > 0 && at > 0; steps--) { // to what the window before held
            expect(iter->valid && same_entry(&iter->entry, &entries.list[at--]));
            iter->vtable->prev(iter);
        }
        read_count = 0;
        ck_assert_uint_eq(walk_from_end(iter, false), KEYS);
        ck_assert_int_eq(iter->status, TAMIS_OK);
        ck_assert_uint_eq(reads[fail_read].offset, reads[fail_read - 1].offset);
        for (size_t i = 0; i < 3; i++) // that block alone, and two more before the next attempt
            ck_assert_uint_lt(reads[fail_read + i].length, 5 << 10);
        ck_assert_uint_gt(reads[fail_read + 3].length, 5 << 10);
        tm_iter_close(iter);
    }
}
END_TEST

START_TEST(without_memory_for_a_window_blocks_are_read_alone)
{
    struct fault_alloc *alloc = &shelf.world->alloc;

    for (unsigned backward = 0; backward < 2; backward++) {
        struct tm_iter *iter = walk(true);

        alloc->limit_bytes = alloc->live_bytes + (14 << 10);
        read_count = 0;
        ck_assert_uint_eq(walk_from_end(iter, backward != 0), KEYS);
        ck_assert_int_eq(iter->status, TAMIS_OK);
        ck_assert_uint_eq(read_count, table->index.count);
        alloc->limit_bytes = 0;
        tm_iter_close(iter);
    }
}
END_TEST

START_TEST(a_block_larger_than_a_window_is_read_alone)
{
    struct tm_table_options options = shelf_options(4096);
    uint8_t *value = calloc(1, 300 << 10);
    size_t number;
    struct tm_iter *iter;

    free((void *)entries.list[KEYS / 2].value.data);
    entries.list[KEYS / 2].value = tm_slice(value, 300 << 10);
    tm_table_close(table);
    sim_file_remove(shelf.world->sim, "tables", "t.sst");
    shelf_write(&shelf, "t.sst", &options, &entries);
    open_table(NULL);
    number = tm_index_find(&table->index, entries.list[KEYS / 2].key);
    for (unsigned backward = 0; backward < 2; backward++) {
        bool alone = false;

        iter = walk(true);
        read_count = 0;
        ck_assert_uint_eq(walk_from_end(iter, backward != 0), KEYS);
        for (size_t i = 0; i < read_count; i++)
            alone |= is_block(&reads[i], number);
        ck_assert(alone);
        tm_iter_close(iter);
    }
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("read_ahead");
    TCase *tcase = tcase_create("read_ahead");

    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, a_seek_and_a_step_read_the_blocks_they_need_alone);
    tcase_add_test(tcase, a_long_walk_reads_every_byte_once_in_windows_that_grow);
    tcase_add_test(tcase, a_seek_elsewhere_and_a_turn_begin_with_single_blocks_again);
    tcase_add_test(tcase, random_walks_both_ways_stand_where_the_list_says);
    tcase_add_test(tcase, cached_blocks_are_not_read_and_blocks_of_windows_are_cached);
    tcase_add_test(tcase, damage_within_a_window_ends_the_walk_at_exactly_that_block);
    tcase_add_test(tcase, a_place_that_cannot_be_read_ends_the_walk_at_exactly_that_block);
    tcase_add_test(tcase, a_window_that_fails_once_costs_reads_and_no_entry);
    tcase_add_test(tcase, without_memory_for_a_window_blocks_are_read_alone);
    tcase_add_test(tcase, a_block_larger_than_a_window_is_read_alone);
    suite_add_tcase(suite, tcase);
    return check_run(suite);
}
