/* SPDX-License-Identifier: MIT
 *
 * tests/engine/test_record_log.c -- records come back as they were, or reading stops; watermarks are found behind damage.
 */
#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "engine/record_log.h"
#include "tests/support/check_status.h"
#include "tests/support/rng.h"
#include "tests/support/world.h"

#define DIR_NAME  "log"
#define FILE_NAME "file"

enum {
    NUMBER = 7,
    RECORDS_MAX = 400,
    ROOM = TM_RECORD_BLOCK_BYTES - TM_RECORD_HEADER_BYTES, // the longest record of one fragment
};

static struct world *world;
static tamis_dir *dir;
static tamis_error err;
static uint8_t source[4 * TM_RECORD_BLOCK_BYTES]; // what records are made of

static void
set_up(void)
{
    struct rng rng = rng_from(1);
    bool created;

    rng_fill(&rng, source, sizeof source);
    world = world_create(1, 0);
    check_ok(world->env.fs->open_dir(world->env.fs->ctx, DIR_NAME, true, &created, &dir, &err),
             err);
}

static void
tear_down(void)
{
    world->env.fs->close_dir(world->env.fs->ctx, dir);
    world_destroy(world);
}

/* ---- Writing -------------------------------------------------------------------------------------- */

struct writing {
    tamis_file *file;
    struct tm_record_writer writer;
};

static void
begin_file(struct writing *writing, uint64_t number)
{
    const tamis_fs *fs = world->env.fs;

    check_ok(fs->remove(fs->ctx, dir, FILE_NAME, &err), err);
    check_ok(fs->create(fs->ctx, dir, FILE_NAME, TAMIS_FILE_LOG, &writing->file, &err), err);
    check_ok(tm_record_writer_init(&writing->writer, &world->env, writing->file, number, &err),
             err);
}

static void
close_file(struct writing *writing)
{
    check_ok(world->env.fs->close(world->env.fs->ctx, writing->file, &err), err);
    tm_record_writer_deinit(&writing->writer);
}

static void
end_file(struct writing *writing)
{
    check_ok(tm_record_flush(&writing->writer, &err), err);
    close_file(writing);
}

/* Record `index` is made of bytes that no other begins with. */
static tamis_slice
record_of(size_t index, size_t length)
{
    ck_assert_uint_le(index + length, sizeof source);
    return tm_slice(source + index, length);
}

static void
add_record(struct writing *writing, size_t index, size_t length)
{
    tamis_slice record = record_of(index, length);

    check_ok(tm_record_add(&writing->writer, &record, 1, &err), err);
}

/* A file of records of these lengths; ends_out[i] is where record i ends. The bytes are malloc'ed. */
static uint8_t *
make_file(const size_t *lengths, size_t count, uint64_t *ends_out, size_t *size_out)
{
    struct writing writing;
    uint8_t *bytes;

    begin_file(&writing, NUMBER);
    for (size_t i = 0; i < count; i++) {
        add_record(&writing, i, lengths[i]);
        if (ends_out != NULL)
            ends_out[i] = writing.writer.offset;
    }
    end_file(&writing);
    bytes = sim_file_get(world->sim, DIR_NAME, FILE_NAME, size_out);
    ck_assert_ptr_nonnull(bytes);
    if (count != 0 && ends_out != NULL)
        ck_assert_uint_eq(*size_out, ends_out[count - 1]);
    return bytes;
}

/* ---- Reading -------------------------------------------------------------------------------------- */

struct reading {
    tamis_file *file;
    struct tm_record_reader reader;
};

static void
begin_reading(struct reading *reading, uint64_t number)
{
    const tamis_fs *fs = world->env.fs;
    uint64_t size;

    check_ok(fs->open(fs->ctx, dir, FILE_NAME, TAMIS_FILE_LOG, &reading->file, &size, &err), err);
    check_ok(tm_record_reader_init(&reading->reader, &world->env, reading->file, FILE_NAME, number,
                                   size, &err),
             err);
}

static void
end_reading(struct reading *reading)
{
    tm_record_reader_deinit(&reading->reader);
    check_ok(world->env.fs->close(world->env.fs->ctx, reading->file, &err), err);
}

/* Read on to the end or a bad spot: how many records, all of which are as they were written. */
static size_t
read_records(struct reading *reading, const size_t *lengths, size_t count)
{
    size_t read_count = 0;
    tamis_slice record;
    bool found;

    for (;;) {
        check_ok(tm_record_next(&reading->reader, &record, &found, &err), err);
        if (!found)
            return read_count;
        ck_assert_uint_lt(read_count, count);
        ck_assert_msg(tm_slice_equal(record, record_of(read_count, lengths[read_count])),
                      "record %zu is not what was written", read_count);
        read_count++;
    }
}

static void
put_file(const uint8_t *bytes, size_t size)
{
    sim_file_put(world->sim, DIR_NAME, FILE_NAME, bytes, size);
}

/* What is in the file now: `expected` records, and whether reading ended cleanly. */
static void
check_records(const size_t *lengths, size_t count, size_t expected, bool clean, uint64_t end)
{
    struct reading reading;

    begin_reading(&reading, NUMBER);
    ck_assert_uint_eq(read_records(&reading, lengths, count), expected);
    ck_assert_uint_eq(reading.reader.end_offset, end);
    ck_assert_msg((reading.reader.stop == NULL) == clean, "stopped by: %s",
                  reading.reader.stop != NULL ? reading.reader.stop : "nothing");
    if (reading.reader.stop != NULL)
        ck_assert_uint_eq(reading.reader.stop_offset, end);
    end_reading(&reading);
}

/* ---- Records -------------------------------------------------------------------------------------- */

START_TEST(records_of_every_length_around_the_borders_come_back)
{
    static size_t lengths[RECORDS_MAX];
    static uint64_t ends[RECORDS_MAX];
    size_t count = 0;
    size_t size;

    for (size_t length = 0; length <= 100; length++)
        lengths[count++] = length;
    for (size_t length = ROOM - 40; length <= ROOM + 40; length++)
        lengths[count++] = length;
    for (size_t length = 3 * ROOM - 2; length <= 3 * ROOM + 2; length++)
        lengths[count++] = length;
    free(make_file(lengths, count, ends, &size));
    check_records(lengths, count, count, true, ends[count - 1]);
}
END_TEST

START_TEST(a_record_may_begin_at_any_distance_from_a_border)
{
    for (size_t distance = 0; distance <= 2 * TM_RECORD_HEADER_BYTES + 6; distance++) {
        for (size_t length = 0; length < 4; length++) {
            // The first record ends `distance` bytes before the border.
            size_t lengths[] = {ROOM - distance, length, 40, 0, ROOM};
            uint64_t ends[5];
            size_t size;

            free(make_file(lengths, 5, ends, &size));
            ck_assert_uint_eq(ends[0], TM_RECORD_BLOCK_BYTES - distance);
            check_records(lengths, 5, 5, true, ends[4]);
        }
    }
}
END_TEST

START_TEST(pieces_make_the_same_file_as_the_joined_record)
{
    static const size_t cuts[] = {0, 0, 1, 33, 4000, ROOM, ROOM + 1, 2 * ROOM, 70000, 70000};
    enum { CUTS = sizeof cuts / sizeof *cuts };
    size_t length = 70000;
    tamis_slice pieces[CUTS];
    struct writing writing;
    size_t size, size_of_pieces;
    uint8_t *whole = make_file(&length, 1, NULL, &size);
    uint8_t *joined;

    for (size_t i = 0; i + 1 < CUTS; i++)
        pieces[i] = tm_slice(source + cuts[i], cuts[i + 1] - cuts[i]);
    pieces[CUTS - 1] = tm_slice(NULL, 0);
    begin_file(&writing, NUMBER);
    check_ok(tm_record_add(&writing.writer, pieces, CUTS, &err), err);
    end_file(&writing);
    joined = sim_file_get(world->sim, DIR_NAME, FILE_NAME, &size_of_pieces);
    ck_assert_uint_eq(size_of_pieces, size);
    ck_assert_mem_eq(joined, whole, size);
    free(whole);
    free(joined);
}
END_TEST

START_TEST(an_empty_file_has_no_record_and_no_bad_spot)
{
    size_t size;

    free(make_file(NULL, 0, NULL, &size));
    ck_assert_uint_eq(size, 0);
    check_records(NULL, 0, 0, true, 0);
}
END_TEST

/* ---- Damage --------------------------------------------------------------------------------------- */

static const size_t small_lengths[] = {10, 0, 33, 70, 1, 25};
enum { SMALL = sizeof small_lengths / sizeof *small_lengths };

START_TEST(every_flipped_bit_stops_reading_before_its_record)
{
    uint64_t ends[SMALL];
    size_t size;
    uint8_t *bytes = make_file(small_lengths, SMALL, ends, &size);

    for (size_t at = 0; at < size; at++) {
        size_t damaged = 0;

        while (ends[damaged] <= at)
            damaged++;
        for (int bit = 0; bit < 8; bit++) {
            bytes[at] ^= (uint8_t)(1 << bit);
            put_file(bytes, size);
            check_records(small_lengths, SMALL, damaged, false,
                          damaged != 0 ? ends[damaged - 1] : 0);
            bytes[at] ^= (uint8_t)(1 << bit);
        }
    }
    free(bytes);
}
END_TEST

START_TEST(a_flipped_bit_in_a_record_of_many_fragments_loses_it_whole)
{
    const size_t lengths[] = {100, 3 * ROOM, 50};
    uint64_t ends[3];
    size_t size;
    uint8_t *bytes = make_file(lengths, 3, ends, &size);
    struct rng rng = rng_from(rng_seed("a_flipped_bit_in_a_record_of_many_fragments", 3));

    for (int i = 0; i < 300; i++) {
        // Often in a header: those stand at the borders.
        size_t at = (size_t)ends[0] + rng_below(&rng, ends[1] - ends[0]);

        if (rng_chance(&rng, 1, 2)) {
            at = TM_RECORD_BLOCK_BYTES * (1 + rng_below(&rng, 3)) +
                 rng_below(&rng, TM_RECORD_HEADER_BYTES);
        }
        bytes[at] ^= (uint8_t)(1 << i % 8);
        put_file(bytes, size);
        check_records(lengths, 3, 1, false, ends[0]);
        bytes[at] ^= (uint8_t)(1 << i % 8);
    }
    free(bytes);
}
END_TEST

START_TEST(the_filler_before_a_border_may_be_anything)
{
    const size_t lengths[] = {ROOM - 20, 40};
    uint64_t ends[2];
    size_t size;
    uint8_t *bytes = make_file(lengths, 2, ends, &size);

    for (size_t at = (size_t)ends[0]; at < TM_RECORD_BLOCK_BYTES; at++)
        bytes[at] = 0xa5;
    put_file(bytes, size);
    check_records(lengths, 2, 2, true, ends[1]);
    free(bytes);
}
END_TEST

static void
check_truncations(const size_t *lengths, size_t count, size_t from)
{
    uint64_t ends[SMALL];
    size_t size;
    uint8_t *bytes = make_file(lengths, count, ends, &size);

    for (size_t cut = from; cut <= size; cut++) {
        size_t whole = 0;
        uint64_t end;

        while (whole < count && ends[whole] <= cut)
            whole++;
        end = whole != 0 ? ends[whole - 1] : 0;
        put_file(bytes, cut);
        check_records(lengths, count, whole, cut == end, end);
    }
    free(bytes);
}

START_TEST(a_file_cut_at_any_length_gives_the_whole_records_before)
{
    const size_t lengths[] = {ROOM + 30, 10};

    check_truncations(small_lengths, SMALL, 0);
    check_truncations(lengths, 2, TM_RECORD_BLOCK_BYTES - 40);
}
END_TEST

START_TEST(zeros_behind_the_last_record_end_the_file)
{
    uint64_t ends[SMALL];
    size_t size;
    uint8_t *bytes = make_file(small_lengths, SMALL, ends, &size);

    bytes = realloc(bytes, 3 * TM_RECORD_BLOCK_BYTES);
    ck_assert_ptr_nonnull(bytes);
    memset(bytes + size, 0, 3 * TM_RECORD_BLOCK_BYTES - size);
    for (size_t more = 1; more < 100; more++) {
        put_file(bytes, size + more);
        check_records(small_lengths, SMALL, SMALL, false, ends[SMALL - 1]);
    }
    put_file(bytes, 3 * TM_RECORD_BLOCK_BYTES); // what a mapped log leaves
    check_records(small_lengths, SMALL, SMALL, false, ends[SMALL - 1]);
    free(bytes);
}
END_TEST

START_TEST(a_sound_fragment_in_another_place_or_file_is_refused)
{
    const size_t lengths[] = {50, 50, 50};
    uint64_t ends[3];
    struct reading reading;
    size_t size;
    uint8_t *bytes = make_file(lengths, 3, ends, &size);
    size_t step = (size_t)ends[0];

    memcpy(bytes + step, bytes, step); // the first record over the second
    put_file(bytes, size);
    check_records(lengths, 3, 1, false, ends[0]);
    memcpy(bytes + step, bytes + 2 * step, step); // the third over the second
    put_file(bytes, size);
    check_records(lengths, 3, 1, false, ends[0]);
    free(bytes);

    free(make_file(lengths, 3, ends, &size));
    begin_reading(&reading, NUMBER + 1);
    ck_assert_uint_eq(read_records(&reading, lengths, 3), 0);
    ck_assert_ptr_nonnull(reading.reader.stop);
    end_reading(&reading);
    // The low half of the number stands in the fragment; the rest is in the seed of its checksum.
    begin_reading(&reading, NUMBER + ((uint64_t)1 << 32));
    ck_assert_uint_eq(read_records(&reading, lengths, 3), 0);
    ck_assert_ptr_nonnull(reading.reader.stop);
    end_reading(&reading);
}
END_TEST

/* ---- Watermarks ----------------------------------------------------------------------------------- */

static uint64_t
scan(uint64_t from, uint64_t number)
{
    struct reading reading;
    uint64_t synced_bytes = 0;

    begin_reading(&reading, NUMBER);
    check_ok(tm_record_scan_watermarks(&reading.reader, from, number, &synced_bytes, &err), err);
    end_reading(&reading);
    return synced_bytes;
}

enum { MARKED = 40, MARKED_LENGTH = 2000 };

/* MARKED records over three blocks; record i says that the file was synced up to i * 1000. */
static uint8_t *
make_marked_file(uint64_t *ends, size_t *size_out)
{
    struct writing writing;

    begin_file(&writing, NUMBER);
    for (size_t i = 0; i < MARKED; i++) {
        writing.writer.watermark.number = i != 0 ? NUMBER : 0;
        writing.writer.watermark.offset = i * 1000;
        add_record(&writing, i, MARKED_LENGTH);
        ends[i] = writing.writer.offset;
    }
    end_file(&writing);
    return sim_file_get(world->sim, DIR_NAME, FILE_NAME, size_out);
}

START_TEST(watermarks_behind_damage_are_found)
{
    uint64_t ends[MARKED];
    size_t size;
    uint8_t *bytes = make_marked_file(ends, &size);

    ck_assert_uint_eq(scan(0, NUMBER), (MARKED - 1) * 1000);
    ck_assert_uint_eq(scan(ends[MARKED - 2], NUMBER), (MARKED - 1) * 1000);
    ck_assert_uint_eq(scan(size, NUMBER), 0);
    // Damage from record `first` to before record `next`, which starts behind rubbish of any kind.
    for (size_t first = 0; first < MARKED - 1; first++) {
        uint8_t *damaged = malloc(size);
        size_t from = first != 0 ? (size_t)ends[first - 1] : 0;

        ck_assert_ptr_nonnull(damaged);
        memcpy(damaged, bytes, size);
        for (size_t at = from; at < ends[MARKED - 2]; at++)
            damaged[at] ^= 0x5a;
        put_file(damaged, size);
        ck_assert_uint_eq(scan(from, NUMBER), (MARKED - 1) * 1000);
        damaged[size - 1] ^= 1; // now the last one is damaged as well
        put_file(damaged, size);
        ck_assert_uint_eq(scan(from, NUMBER), 0);
        ck_assert_uint_eq(scan(0, NUMBER), first != 0 ? (first - 1) * 1000 : 0);
        free(damaged);
    }
    free(bytes);
}
END_TEST

START_TEST(one_damaged_record_hides_its_own_watermark_only)
{
    uint64_t ends[MARKED];
    size_t size;
    uint8_t *bytes = make_marked_file(ends, &size);

    for (size_t at = 0; at < size; at += 97) {
        size_t damaged = 0;

        while (ends[damaged] <= at)
            damaged++;
        bytes[at] ^= 0x10;
        put_file(bytes, size);
        if (damaged == MARKED - 1)
            ck_assert_uint_le(scan(0, NUMBER), (MARKED - 1) * 1000);
        else
            ck_assert_uint_eq(scan(0, NUMBER), (MARKED - 1) * 1000);
        bytes[at] ^= 0x10;
    }
    free(bytes);
}
END_TEST

START_TEST(a_watermark_of_a_later_file_says_everything_and_of_an_earlier_one_nothing)
{
    struct writing writing;

    begin_file(&writing, NUMBER);
    writing.writer.watermark = (struct tm_watermark){5, 1234};
    add_record(&writing, 0, 10);
    end_file(&writing);
    ck_assert_uint_eq(scan(0, 4), UINT64_MAX);
    ck_assert_uint_eq(scan(0, 5), 1234);
    ck_assert_uint_eq(scan(0, 6), 0);
}
END_TEST

/* ---- Failures ------------------------------------------------------------------------------------- */

START_TEST(without_memory_nothing_is_read_or_written_and_nothing_leaks)
{
    const size_t lengths[] = {3 * ROOM};
    struct tm_record_writer writer;
    struct reading reading;
    tamis_slice record;
    size_t size;
    bool found;
    uint64_t refused = 0;

    fault_alloc_fail_after(&world->alloc, 1, false);
    check_status(tm_record_writer_init(&writer, &world->env, NULL, NUMBER, &err), TAMIS_NO_MEMORY,
                 err);
    tm_record_writer_deinit(&writer);
    free(make_file(lengths, 1, NULL, &size));
    begin_reading(&reading, NUMBER);
    tm_record_reader_deinit(&reading.reader);
    fault_alloc_fail_after(&world->alloc, 1, false);
    check_status(tm_record_reader_init(&reading.reader, &world->env, reading.file, FILE_NAME,
                                       NUMBER, size, &err),
                 TAMIS_NO_MEMORY, err);
    end_reading(&reading);
    for (uint64_t nth = 1;; nth++) {
        uint64_t failures = world->alloc.failure_count;
        tamis_status status;

        begin_reading(&reading, NUMBER);
        fault_alloc_fail_after(&world->alloc, nth, false);
        status = tm_record_next(&reading.reader, &record, &found, &err);
        fault_alloc_fail_after(&world->alloc, 0, false);
        end_reading(&reading);
        if (world->alloc.failure_count == failures)
            break;
        check_status(status, TAMIS_NO_MEMORY, err);
        ck_assert(!found);
        refused++;
    }
    ck_assert_uint_gt(refused, 0);
}
END_TEST

START_TEST(after_a_failed_append_nothing_is_appended_any_more)
{
    struct writing writing;
    size_t size, size_later;
    size_t fault;

    begin_file(&writing, NUMBER);
    add_record(&writing, 0, 100);
    check_ok(tm_record_flush(&writing.writer, &err), err);
    fault = sim_fault_add(
        world->sim,
        (struct sim_fault){.op = SIM_PWRITE, .nth = 1, .effect = SIM_ERROR, .os_error = EIO});
    add_record(&writing, 1, 100);
    check_status(tm_record_flush(&writing.writer, &err), TAMIS_IO, err);
    ck_assert_uint_eq(sim_fault_fired(world->sim, fault), 1);
    sim_fault_clear(world->sim);
    free(sim_file_get(world->sim, DIR_NAME, FILE_NAME, &size));
    for (size_t length = 0; length < 2; length++) {
        tamis_slice record = record_of(2, length * 2 * TM_RECORD_BLOCK_BYTES);

        check_status(tm_record_add(&writing.writer, &record, 1, &err), TAMIS_IO, err);
        check_status(tm_record_flush(&writing.writer, &err), TAMIS_IO, err);
    }
    (void)world->env.fs->close(world->env.fs->ctx, writing.file, &err);
    tm_record_writer_deinit(&writing.writer);
    free(sim_file_get(world->sim, DIR_NAME, FILE_NAME, &size_later));
    ck_assert_uint_eq(size_later, size);
}
END_TEST

START_TEST(a_failed_read_is_an_error_and_no_end)
{
    struct reading reading;
    tamis_slice record;
    uint64_t synced_bytes = 0;
    size_t size;
    size_t fault;
    bool found;

    free(make_file(small_lengths, SMALL, NULL, &size));
    begin_reading(&reading, NUMBER);
    fault = sim_fault_add(
        world->sim,
        (struct sim_fault){
            .op = SIM_PREAD, .nth = 1, .effect = SIM_ERROR, .os_error = EIO, .sticky = true});
    check_status(tm_record_next(&reading.reader, &record, &found, &err), TAMIS_IO, err);
    ck_assert(!found);
    check_status(tm_record_scan_watermarks(&reading.reader, 0, NUMBER, &synced_bytes, &err),
                 TAMIS_IO, err);
    ck_assert_uint_eq(sim_fault_fired(world->sim, fault), 2);
    sim_fault_clear(world->sim);
    ck_assert_uint_eq(read_records(&reading, small_lengths, SMALL), SMALL);
    end_reading(&reading);
}
END_TEST

/* A log that its writer had reserved room for is read while the writer closes it: what was appended is read all the same. */
START_TEST(a_file_that_loses_its_reserve_while_it_is_read_is_read_to_its_end)
{
    enum { RESERVED = 8 * TM_RECORD_BLOCK_BYTES };
    size_t lengths[40];
    size_t size;
    uint8_t *bytes;
    uint8_t *reserved = calloc(1, RESERVED);

    for (size_t i = 0; i < 40; i++)
        lengths[i] = 2000;
    bytes = make_file(lengths, 40, NULL, &size);
    memcpy(reserved, bytes, size);
    for (size_t before = 0; before <= 40; before++) {
        struct reading reading;

        put_file(reserved, RESERVED);
        begin_reading(&reading, NUMBER);
        ck_assert_uint_eq(reading.reader.file_bytes, RESERVED);
        for (size_t i = 0; i < before; i++) {
            tamis_slice record;
            bool found;

            check_ok(tm_record_next(&reading.reader, &record, &found, &err), err);
            ck_assert(found);
        }
        put_file(bytes, size);
        for (size_t i = before;; i++) {
            tamis_slice record;
            bool found;

            check_ok(tm_record_next(&reading.reader, &record, &found, &err), err);
            if (!found) {
                ck_assert_uint_eq(i, 40);
                break;
            }
            ck_assert(tm_slice_equal(record, record_of(i, lengths[i])));
        }
        ck_assert_uint_eq(reading.reader.end_offset, size);
        end_reading(&reading);
    }
    free(reserved);
    free(bytes);
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("record_log");
    TCase *tests = tcase_create("record_log");

    tcase_set_timeout(tests, 0);
    tcase_add_checked_fixture(tests, set_up, tear_down);
    tcase_add_test(tests, records_of_every_length_around_the_borders_come_back);
    tcase_add_test(tests, a_record_may_begin_at_any_distance_from_a_border);
    tcase_add_test(tests, pieces_make_the_same_file_as_the_joined_record);
    tcase_add_test(tests, an_empty_file_has_no_record_and_no_bad_spot);
    tcase_add_test(tests, every_flipped_bit_stops_reading_before_its_record);
    tcase_add_test(tests, a_flipped_bit_in_a_record_of_many_fragments_loses_it_whole);
    tcase_add_test(tests, the_filler_before_a_border_may_be_anything);
    tcase_add_test(tests, a_file_cut_at_any_length_gives_the_whole_records_before);
    tcase_add_test(tests, zeros_behind_the_last_record_end_the_file);
    tcase_add_test(tests, a_sound_fragment_in_another_place_or_file_is_refused);
    tcase_add_test(tests, watermarks_behind_damage_are_found);
    tcase_add_test(tests, one_damaged_record_hides_its_own_watermark_only);
    tcase_add_test(tests,
                   a_watermark_of_a_later_file_says_everything_and_of_an_earlier_one_nothing);
    tcase_add_test(tests, without_memory_nothing_is_read_or_written_and_nothing_leaks);
    tcase_add_test(tests, after_a_failed_append_nothing_is_appended_any_more);
    tcase_add_test(tests, a_failed_read_is_an_error_and_no_end);
    tcase_add_test(tests, a_file_that_loses_its_reserve_while_it_is_read_is_read_to_its_end);
    suite_add_tcase(suite, tests);
    return check_run(suite);
}
