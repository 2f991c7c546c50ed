/* SPDX-License-Identifier: MIT
 *
 * tests/engine/test_many_handles.c -- hundreds of snapshots and a thousand iterators alive at once: each shows its moment, all of
 * them cost little, and what they held goes with them.
 */
#include <unistd.h>

#include "tests/engine/one_store.h"
#include "tests/support/fault_alloc.h"
#include "tests/support/rng.h"

/* ---- Snapshots ------------------------------------------------------------------------------------ */

enum {
    SNAPSHOTS = 240 / ONE_STORE_DIVISOR,
    SNAPSHOT_KEYS = 400,
    OPERATIONS_A_SNAPSHOT = 120, // about two flushes of their own in five snapshots
    SNAPSHOT_VALUE_BYTES = 200,
};

/* A moment of the store: for each key the number of the operation that it shows, below 0 for a deletion, 0 for none. */
struct moment {
    tamis_snapshot *snapshot; // NULL: released
    int shown[SNAPSHOT_KEYS];
};

static struct moment moments[SNAPSHOTS + 1]; // the last one is the present

/* One write of up to three operations, random ones, as of operation number `operation` on; the number after it. */
static int
write_at_random(struct rng *rng, tamis_batch *batch, int operation)
{
    struct moment *now = &moments[SNAPSHOTS];
    unsigned count = 1 + (unsigned)rng_below(rng, 3);

    tamis_batch_clear(batch);
    for (unsigned i = 0; i < count; i++, operation++) {
        unsigned number = (unsigned)rng_below(rng, SNAPSHOT_KEYS);
        char text[32];
        char value[SNAPSHOT_VALUE_BYTES] = {0};

        memcpy(value, &number, sizeof number);
        memcpy(value + sizeof number, &operation, sizeof operation);
        if (rng_chance(rng, 1, 3)) {
            check_ok(tamis_batch_delete(batch, one_key(text, number), &one.err), one.err);
            now->shown[number] = -operation;
        } else {
            check_ok(tamis_batch_put(batch, one_key(text, number),
                                     (tamis_slice){value, sizeof value}, &one.err),
                     one.err);
            now->shown[number] = operation;
        }
    }
    check_ok(tamis_write(one.db, NULL, batch, &one.err), one.err);
    return operation;
}

static void
check_moment_by_get(const struct moment *moment)
{
    for (unsigned number = 0; number < SNAPSHOT_KEYS; number++)
        ck_assert_int_eq(one_version_at(moment->snapshot, number),
                         moment->shown[number] > 0 ? moment->shown[number] : -1);
}

static void
check_moment_by_walk(const struct moment *moment, bool backward)
{
    tamis_iter_options options;
    tamis_iter *iter;
    unsigned number = backward ? SNAPSHOT_KEYS : 0;

    tamis_iter_options_init(&options);
    options.snapshot = moment->snapshot;
    check_ok(tamis_iter_open(one.db, &options, &iter, &one.err), one.err);
    for (backward ? tamis_iter_last(iter) : tamis_iter_first(iter);;
         backward ? tamis_iter_prev(iter) : tamis_iter_next(iter)) {
        unsigned head[2];
        char text[32];
        tamis_slice key;

        // The next key that this moment has.
        if (backward)
            while (number > 0 && moment->shown[number - 1] <= 0)
                number--;
        else
            while (number < SNAPSHOT_KEYS && moment->shown[number] <= 0)
                number++;
        if (number == (backward ? 0 : SNAPSHOT_KEYS))
            break;
        number -= backward;
        ck_assert(tamis_iter_valid(iter));
        key = one_key(text, number);
        ck_assert_uint_eq(tamis_iter_key(iter).length, key.length);
        ck_assert_mem_eq(tamis_iter_key(iter).data, key.data, key.length);
        ck_assert_uint_eq(tamis_iter_value(iter).length, SNAPSHOT_VALUE_BYTES);
        memcpy(head, tamis_iter_value(iter).data, sizeof head);
        ck_assert_uint_eq(head[0], number);
        ck_assert_int_eq((int)head[1], moment->shown[number]);
        number += !backward;
    }
    ck_assert(!tamis_iter_valid(iter));
    check_ok(tamis_iter_status(iter, &one.err), one.err);
    tamis_iter_close(iter);
}

static void
check_all_moments(void)
{
    for (unsigned i = 0; i <= SNAPSHOTS; i++) {
        if (i < SNAPSHOTS && moments[i].snapshot == NULL)
            continue;
        check_moment_by_get(&moments[i]);
        check_moment_by_walk(&moments[i], i % 2 == 1);
    }
}

/* What compaction keeps: for each key what somebody sees of it, but for the deletion that the oldest of them sees. */
static uint64_t
count_seen_versions(void)
{
    uint64_t count = 0;

    for (unsigned number = 0; number < SNAPSHOT_KEYS; number++) {
        bool oldest = true;
        int last = 0;

        for (unsigned i = 0; i <= SNAPSHOTS; i++) {
            int shown = moments[i].shown[number];

            if (i < SNAPSHOTS && moments[i].snapshot == NULL)
                continue;
            count += oldest ? shown > 0 : shown != last;
            oldest = false;
            last = shown;
        }
    }
    return count;
}

/* google/leveldb #320: what a snapshot shows changes when compaction runs below it. */
START_TEST(hundreds_of_snapshots_show_their_moments_and_compaction_keeps_what_they_see_only)
{
    struct rng rng = rng_from(rng_seed("snapshots", 320));
    tamis_batch *batch = NULL;
    int operation = 1;
    uint64_t all_bytes;

    memset(moments, 0, sizeof moments);
    check_ok(tamis_batch_create(NULL, &batch, &one.err), one.err);
    for (unsigned i = 0; i < SNAPSHOTS; i++) {
        int end = operation + OPERATIONS_A_SNAPSHOT;

        while (operation < end)
            operation = write_at_random(&rng, batch, operation);
        moments[i] = moments[SNAPSHOTS];
        check_ok(tamis_snapshot_take(one.db, &moments[i].snapshot, &one.err), one.err);
        if (i % 7 == 3)
            one_flush();
        if (i % 20 == 19) {
            char from_text[32], to_text[32];
            unsigned from = (unsigned)rng_below(&rng, SNAPSHOT_KEYS);
            tamis_slice from_key = one_key(from_text, from);
            tamis_slice to_key = one_key(to_text, from + SNAPSHOT_KEYS / 4);

            check_ok(tamis_compact_range(one.db, &from_key, &to_key, &one.err), one.err);
            check_moment_by_get(&moments[rng_below(&rng, i + 1)]);
            check_moment_by_walk(&moments[rng_below(&rng, i + 1)], i % 40 == 19);
        }
    }
    check_all_moments(); // all of them alive
    one_compact();
    check_all_moments();
    ck_assert_uint_eq(one_stats().total.entry_count, count_seen_versions());
    all_bytes = one_list(one.path).table_bytes;

    for (unsigned i = 0; i < SNAPSHOTS; i++) // in no order
        if (rng_chance(&rng, 1, 2)) {
            tamis_snapshot_release(one.db, moments[i].snapshot);
            moments[i].snapshot = NULL;
        }
    one_compact();
    check_all_moments();
    ck_assert_uint_eq(one_stats().total.entry_count, count_seen_versions());

    for (unsigned i = 0; i < SNAPSHOTS; i++) {
        tamis_snapshot_release(one.db, moments[i].snapshot);
        moments[i].snapshot = NULL;
    }
    one_compact();
    check_all_moments(); // of which the present is left
    ck_assert_uint_eq(one_stats().total.entry_count, count_seen_versions());
    ck_assert_uint_eq(one_stats().total.tombstone_count, 0);
    one_wait_idle();
    ck_assert_uint_lt(one_list(one.path).table_bytes * (SNAPSHOTS / 10), all_bytes);
    tamis_batch_destroy(batch);
}
END_TEST

/* ---- Iterators ------------------------------------------------------------------------------------ */

enum {
    ITERS = 1000,
    GROUPS = 10, // of iterators; before each a tenth of the keys is written again
    ITER_KEYS = 20000 / ONE_STORE_DIVISOR,
    ITER_VALUE_BYTES = 1000,
    STEPS = 10,
    OPEN_FILES = 30,
    OTHER_DESCRIPTORS = 16,
    BYTES_AN_ITERATOR = 64 << 10, // of the report: 150 KB
};

static struct fault_alloc memory;

static unsigned
count_descriptors(void)
{
    DIR *directory = opendir("/proc/self/fd");
    unsigned count = 0;

    ck_assert_ptr_nonnull(directory);
    while (readdir(directory) != NULL)
        count++;
    closedir(directory);
    return count - 3; // ".", ".." and the descriptor of this walk
}

/* Iterator `index` stands at key `number`, as it was when its group was opened. */
static void
check_position(const tamis_iter *iter, unsigned index, unsigned number)
{
    unsigned group = index / (ITERS / GROUPS);
    unsigned head[2];
    char text[32];
    tamis_slice key = one_key(text, number);

    ck_assert(tamis_iter_valid(iter));
    ck_assert_uint_eq(tamis_iter_key(iter).length, key.length);
    ck_assert_mem_eq(tamis_iter_key(iter).data, key.data, key.length);
    memcpy(head, tamis_iter_value(iter).data, sizeof head);
    ck_assert_uint_eq(head[0], number);
    ck_assert_uint_eq(head[1], number % GROUPS <= group ? 2 : 1);
}

static unsigned
first_number(unsigned index)
{
    return (index * 7919u) % (ITER_KEYS - 2 * STEPS - 1);
}

/* syndtr/goleveldb #281, google/leveldb #603: what many iterators take, and whether it comes back. */
START_TEST(a_thousand_iterators_stand_right_and_take_a_bounded_amount)
{
    static tamis_iter *iters[ITERS];
    tamis_allocator allocator;
    unsigned others;
    uint64_t before_bytes, table_bytes, iters_bytes = 0;

    one_store_close();
    fault_alloc_init(&memory);
    allocator = fault_alloc_allocator(&memory);
    one.options.allocator = &allocator;
    one.options.max_open_files = OPEN_FILES;
    one.options.block_cache_bytes = 1 << 20;
    one.options.write_buffer_bytes = 256 << 10;
    others = count_descriptors();
    one_store_open();
    for (unsigned i = 0; i < ITER_KEYS; i++)
        one_put_number((i * 7919u) % ITER_KEYS, 1, ITER_VALUE_BYTES);
    one_flush();
    one_wait_idle();
    ck_assert_uint_ge(one_stats().total.file_count, 50 / ONE_STORE_DIVISOR);
    ck_assert_uint_eq(one_count_keys(), ITER_KEYS); // the cache is full
    before_bytes = memory.live_bytes;
    table_bytes = one_list(one.path).table_bytes;

    for (unsigned index = 0; index < ITERS; index++) {
        unsigned number = first_number(index);
        uint64_t then_bytes;
        char text[32];

        if (index % (ITERS / GROUPS) == 0) {
            for (unsigned i = index / (ITERS / GROUPS); i < ITER_KEYS; i += GROUPS)
                one_put_number(i, 2, ITER_VALUE_BYTES);
            one_flush();
            one_wait_idle();
        }
        then_bytes = memory.live_bytes;
        check_ok(tamis_iter_open(one.db, NULL, &iters[index], &one.err), one.err);
        tamis_iter_seek(iters[index], one_key(text, number));
        for (unsigned step = 0; step < STEPS; step++) {
            check_position(iters[index], index, number + step);
            tamis_iter_next(iters[index]);
        }
        check_position(iters[index], index, number + STEPS);
        iters_bytes += memory.live_bytes - then_bytes;
        if (index % 20 == 0)
            ck_assert_uint_le(count_descriptors(), others + OPEN_FILES + OTHER_DESCRIPTORS);
    }
    one_compact();
    one_wait_idle();
    printf("a thousand iterators: %u bytes each; all with what they hold of old tables: %u\n",
           (unsigned)(iters_bytes / ITERS), (unsigned)((memory.live_bytes - before_bytes) / ITERS));
    ck_assert_uint_le(memory.live_bytes, before_bytes + (uint64_t)ITERS * BYTES_AN_ITERATOR);
    ck_assert_uint_le(one_stats().memory_total_bytes,
                      before_bytes + (uint64_t)ITERS * BYTES_AN_ITERATOR);
    for (unsigned index = 0; index < ITERS; index++) { // they stand where they stood, and go on
        unsigned number = first_number(index) + STEPS;

        for (unsigned step = 0; step < STEPS; step++, tamis_iter_next(iters[index]))
            check_position(iters[index], index, number + step);
        check_position(iters[index], index, number + STEPS);
        if (index % 20 == 0)
            ck_assert_uint_le(count_descriptors(), others + OPEN_FILES + OTHER_DESCRIPTORS);
    }
    ck_assert_uint_le(memory.live_bytes, before_bytes + (uint64_t)ITERS * BYTES_AN_ITERATOR);

    for (unsigned index = 0; index < ITERS; index++) {
        check_ok(tamis_iter_status(iters[index], &one.err), one.err);
        tamis_iter_close(iters[index]);
    }
    one_wait_idle();
    printf("before %u, after %u bytes\n", (unsigned)before_bytes, (unsigned)memory.live_bytes);
    ck_assert_uint_le(memory.live_bytes, before_bytes + before_bytes / 5);
    ck_assert_uint_le(one_list(one.path).table_bytes, table_bytes + table_bytes / 5);
    ck_assert_uint_eq(one_count_keys(), ITER_KEYS);
    one_store_close();
    ck_assert_uint_eq(memory.live_bytes, 0);
    ck_assert_uint_eq(count_descriptors(), others);
    one.options.allocator = NULL;
    one_store_open();
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("many_handles");
    TCase *tests = tcase_create("many_handles");

    tcase_set_timeout(tests, 0);
    tcase_add_checked_fixture(tests, one_store_begin, one_store_end);
    tcase_add_test(
        tests, hundreds_of_snapshots_show_their_moments_and_compaction_keeps_what_they_see_only);
    tcase_add_test(tests, a_thousand_iterators_stand_right_and_take_a_bounded_amount);
    suite_add_tcase(suite, tests);
    return check_run(suite);
}
