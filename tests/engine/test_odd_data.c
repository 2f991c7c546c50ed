/* SPDX-License-Identifier: MIT
 *
 * tests/engine/test_odd_data.c -- keys and batches of an unusual shape are kept as they are.
 *
 * "At all stages" is: in the memtable, out of the log of the life before, in a table, after a compaction, and after
 * opening anew.
 */
#include "tests/engine/one_store.h"

#include <signal.h>
#include <unistd.h>

#include "sstable/env.h"
#include "tests/support/child.h"
#include "tests/support/rng.h"

static void
expect_value(tamis_slice key, tamis_slice expected)
{
    tamis_pinned pinned;
    bool there = false;

    check_ok(tamis_get_pinned(one.db, NULL, key, &pinned, &one.err), one.err);
    ck_assert(tm_slice_equal(pinned.value, expected));
    tamis_pinned_release(&pinned);
    check_ok(tamis_exists(one.db, NULL, key, &there, &one.err), one.err);
    ck_assert(there);
    check_ok(tamis_may_exist(one.db, key, &there, &one.err), one.err);
    ck_assert(there);
}

static void
expect_missing(const tamis_snapshot *snapshot, tamis_slice key)
{
    tamis_read_options options;
    bool there = true;

    tamis_read_options_init(&options);
    options.snapshot = snapshot;
    check_ok(tamis_exists(one.db, &options, key, &there, &one.err), one.err);
    ck_assert(!there);
}

static unsigned
count_keys(void)
{
    tamis_iter *iter = NULL;
    unsigned count = 0;

    check_ok(tamis_iter_open(one.db, NULL, &iter, &one.err), one.err);
    for (tamis_iter_first(iter); tamis_iter_valid(iter); tamis_iter_next(iter))
        count++;
    check_ok(tamis_iter_status(iter, &one.err), one.err);
    tamis_iter_close(iter);
    return count;
}

static void
at_all_stages(void (*look)(void))
{
    look();
    one_store_reopen();
    look();
    one_flush();
    look();
    one_compact();
    look();
    one_store_reopen();
    look();
    check_ok(tamis_verify(one.db, NULL, NULL, &one.err), one.err);
}

/* ---- Keys ----------------------------------------------------------------------------------------- */

static void
look_for_bytes(void)
{
    unsigned last = 0;
    unsigned count = 0;
    tamis_iter *iter = NULL;

    for (unsigned byte = 0; byte < 256; byte++) {
        const uint8_t key[] = {(uint8_t)byte, 'k', (uint8_t)byte};

        expect_value(tm_slice(key, 1), tm_slice(key, 1));
        expect_value(tm_slice(key, 3), tm_slice(key, 3));
        expect_missing(NULL, tm_slice(key, 2));
    }
    check_ok(tamis_iter_open(one.db, NULL, &iter, &one.err), one.err);
    for (tamis_iter_first(iter); tamis_iter_valid(iter); tamis_iter_next(iter), count++) {
        const uint8_t *key = tamis_iter_key(iter).data;

        ck_assert_uint_ge(key[0], last);
        last = key[0];
    }
    tamis_iter_close(iter);
    ck_assert_uint_eq(count, 512);
}

START_TEST(every_byte_is_allowed_and_ordered_without_sign)
{
    for (unsigned byte = 256; byte-- != 0;) {
        const uint8_t key[] = {(uint8_t)byte, 'k', (uint8_t)byte};

        one_put(tm_slice(key, 1), tm_slice(key, 1));
        one_put(tm_slice(key, 3), tm_slice(key, 3));
    }
    at_all_stages(look_for_bytes);
}
END_TEST

enum { PREFIX_KEY_COUNT = 5000, PREFIX_BYTES = 200 };

static tamis_slice
prefix_key(char text[256], unsigned number)
{
    memset(text, 'p', PREFIX_BYTES);
    snprintf(text + PREFIX_BYTES, 256 - PREFIX_BYTES, "%05u", number);
    return tm_slice(text, PREFIX_BYTES + 5);
}

static void
look_for_prefixed(void)
{
    char text[256];

    for (unsigned i = 0; i < PREFIX_KEY_COUNT; i++) {
        tamis_slice key = prefix_key(text, i);

        expect_value(key, key);
    }
    ck_assert_uint_eq(count_keys(), PREFIX_KEY_COUNT);
}

START_TEST(keys_with_a_long_shared_prefix_are_all_there)
{
    static unsigned order[PREFIX_KEY_COUNT];
    struct rng rng = rng_from(38);
    char text[256];

    one.options.block_bytes = 1024;
    one_store_reopen();
    for (unsigned i = 0; i < PREFIX_KEY_COUNT; i++) {
        unsigned at = (unsigned)rng_below(&rng, i + 1);

        order[i] = order[at];
        order[at] = i;
    }
    for (unsigned i = 0; i < PREFIX_KEY_COUNT; i++) {
        tamis_slice key = prefix_key(text, order[i]);

        one_put(key, key);
        if (i % (PREFIX_KEY_COUNT / 3) == 0)
            one_flush();
    }
    at_all_stages(look_for_prefixed);
}
END_TEST

/* Every length around the borders of blocks and pages, and keys that are prefixes of one another. */
static void
look_for_lengths(void)
{
    static char bytes[8200];

    memset(bytes, 'x', sizeof bytes);
    for (unsigned length = 0; length < 300; length++) {
        expect_value(tm_slice(bytes, length), tm_slice(bytes, 8200 - length));
        expect_value(tm_slice(bytes, 3950 + length), tm_slice(bytes, 3950 + length));
    }
    ck_assert_uint_eq(count_keys(), 600);
}

START_TEST(keys_and_values_of_every_length_around_a_block_are_kept)
{
    static char bytes[8200];

    memset(bytes, 'x', sizeof bytes);
    for (unsigned length = 0; length < 300; length++) {
        one_put(tm_slice(bytes, 3950 + length), tm_slice(bytes, 3950 + length));
        one_put(tm_slice(bytes, length), tm_slice(bytes, 8200 - length));
    }
    at_all_stages(look_for_lengths);
}
END_TEST

/* ---- Batches -------------------------------------------------------------------------------------- */

static void
look_for_duplicates(void)
{
    expect_value(tamis_text("x"), tamis_text("2"));
    expect_missing(NULL, tamis_text("y"));
    ck_assert_uint_eq(count_keys(), 1);
}

static void
write_duplicates(void)
{
    tamis_batch *batch = NULL;
    tamis_slice x = tamis_text("x");
    tamis_slice y = tamis_text("y");

    check_ok(tamis_batch_create(NULL, &batch, &one.err), one.err);
    check_ok(tamis_batch_put(batch, x, tamis_text("1"), &one.err), one.err);
    check_ok(tamis_batch_delete(batch, x, &one.err), one.err);
    check_ok(tamis_batch_put(batch, x, tamis_text("2"), &one.err), one.err);
    check_ok(tamis_batch_put(batch, y, tamis_text("1"), &one.err), one.err);
    check_ok(tamis_batch_delete(batch, y, &one.err), one.err);
    check_ok(tamis_batch_put(batch, x, tamis_text("2"), &one.err), one.err);
    check_ok(tamis_write(one.db, NULL, batch, &one.err), one.err);
    tamis_batch_destroy(batch);
}

START_TEST(the_last_of_several_operations_of_a_batch_on_one_key_counts)
{
    tamis_snapshot *before = NULL;

    check_ok(tamis_snapshot_take(one.db, &before, &one.err), one.err);
    write_duplicates();
    for (int stage = 0; stage < 3; stage++) {
        look_for_duplicates();
        expect_missing(before, tamis_text("x"));
        expect_missing(before, tamis_text("y"));
        if (stage == 0)
            one_flush();
        else
            one_compact();
    }
    tamis_snapshot_release(one.db, before);
    at_all_stages(look_for_duplicates);
}
END_TEST

static int
write_duplicates_and_die(void *arg)
{
    (void)arg;
    one_store_open();
    write_duplicates();
    (void)raise(SIGKILL);
    return EXIT_SUCCESS;
}

START_TEST(a_batch_of_a_killed_process_counts_in_its_order_too)
{
    one_store_close();
    ck_assert_int_eq(child_run(write_duplicates_and_die, NULL, NULL, 0), -SIGKILL);
    one_store_open();
    at_all_stages(look_for_duplicates);
}
END_TEST

START_TEST(an_empty_batch_is_ok_and_a_batch_can_be_written_twice)
{
    tamis_batch *batch = NULL;
    tamis_slice k = tamis_text("k");

    check_ok(tamis_batch_create(NULL, &batch, &one.err), one.err);
    check_ok(tamis_write(one.db, NULL, batch, &one.err), one.err);
    ck_assert_uint_eq(count_keys(), 0);
    check_ok(tamis_batch_put(batch, k, tamis_text("v"), &one.err), one.err);
    check_ok(tamis_write(one.db, NULL, batch, &one.err), one.err);
    ck_assert_uint_eq(tamis_batch_count(batch), 1); // borrowed and unchanged
    one_delete(k);
    ck_assert_uint_eq(count_keys(), 0);
    check_ok(tamis_write(one.db, NULL, batch, &one.err), one.err);
    tamis_batch_destroy(batch);
    expect_value(k, tamis_text("v")); // the store has its own copy
}
END_TEST

static uint64_t
resident_bytes(void)
{
    FILE *file = fopen("/proc/self/statm", "r");
    unsigned long long pages = 0;

    ck_assert_ptr_nonnull(file);
    ck_assert_int_eq(fscanf(file, "%*u %llu", &pages), 1);
    fclose(file);
    return (uint64_t)pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

START_TEST(one_large_batch_object_can_be_filled_and_written_again_and_again)
{
    const unsigned round_count = 160 / ONE_STORE_DIVISOR;
    const unsigned operation_count = 9000;
    tamis_batch *batch = NULL;
    struct rng rng = rng_from(45);

    one.options.write_buffer_bytes = 4 << 20;
    one_store_reopen();
    check_ok(tamis_batch_create(NULL, &batch, &one.err), one.err);
    for (unsigned round = 0; round < round_count; round++) {
        tamis_batch_clear(batch);
        ck_assert_uint_eq(tamis_batch_count(batch), 0);
        for (unsigned i = 0; i < operation_count; i++) {
            char text[32];
            uint8_t value[100];
            tamis_status status;

            rng_fill(&rng, value, sizeof value);
            status = tamis_batch_put(batch, one_key(text, round * operation_count + i),
                                     tm_slice(value, sizeof value), &one.err);
            if (status != TAMIS_OK)
                ck_abort_msg("operation %u: %s", i, one.err.message);
        }
        ck_assert_uint_eq(tamis_batch_count(batch), operation_count);
        check_ok(tamis_write(one.db, NULL, batch, &one.err), one.err);
    }
    tamis_batch_destroy(batch);
    if (ONE_STORE_DIVISOR == 1) // sanitizers need more
        ck_assert_uint_le(resident_bytes(), 300 << 20);
    ck_assert_uint_eq(count_keys(), round_count * operation_count);
    one_store_reopen();
    ck_assert_uint_eq(count_keys(), round_count * operation_count);
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("odd_data");
    TCase *tests = tcase_create("odd_data");

    tcase_set_timeout(tests, 0);
    tcase_add_checked_fixture(tests, one_store_begin, one_store_end);
    tcase_add_test(tests, every_byte_is_allowed_and_ordered_without_sign);
    tcase_add_test(tests, keys_with_a_long_shared_prefix_are_all_there);
    tcase_add_test(tests, keys_and_values_of_every_length_around_a_block_are_kept);
    tcase_add_test(tests, the_last_of_several_operations_of_a_batch_on_one_key_counts);
    tcase_add_test(tests, a_batch_of_a_killed_process_counts_in_its_order_too);
    tcase_add_test(tests, an_empty_batch_is_ok_and_a_batch_can_be_written_twice);
    tcase_add_test(tests, one_large_batch_object_can_be_filled_and_written_again_and_again);
    suite_add_tcase(suite, tests);
    return check_run(suite);
}
