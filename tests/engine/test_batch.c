/* SPDX-License-Identifier: MIT
 *
 * tests/engine/test_batch.c -- batches give back what was put in, and bytes that are no batch are refused.
 *
 * Bytes to parse stand in blocks of exactly their size, so that the address sanitizer sees a read beyond.
 */
#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "engine/batch.h"
#include "filter/bytes.h"
#include "tests/support/check_status.h"
#include "tests/support/fault_alloc.h"
#include "tests/support/rng.h"

static tamis_error err;

static tamis_batch *
make_batch(void)
{
    tamis_batch *batch = NULL;

    check_ok(tamis_batch_create(NULL, &batch, &err), err);
    return batch;
}

static struct tm_batch_cursor
cursor_over(const uint8_t *bytes, size_t length)
{
    struct tm_batch_cursor cursor = {bytes, bytes + length};

    return cursor;
}

/* What tamis_batch_put(), tamis_batch_delete() or tamis_batch_delete_range() makes of an entry. */
static size_t
encode(const struct tm_entry *entry, uint8_t *to)
{
    size_t length = tm_operation_head(to, entry->kind, entry->key.length);

    memcpy(to + length, entry->key.data, entry->key.length);
    length += entry->key.length;
    if (tm_operation_has_value(entry->kind)) {
        length += tm_operation_middle(to + length, entry->value.length);
        memcpy(to + length, entry->value.data, entry->value.length);
        length += entry->value.length;
    }
    return length;
}

/* Parse `length` bytes; every operation taken must be one that a batch could have made (A2). Returns the last
 * answer of tm_batch_next(). */
static int
parse_all(const uint8_t *bytes, size_t length, size_t *operation_count)
{
    uint8_t *exact = malloc(length + (length == 0));
    uint8_t *again = malloc(length + TM_OPERATION_HEADER_BYTES_MAX);
    struct tm_batch_cursor cursor;
    struct tm_entry entry;
    int answer;

    ck_assert(exact != NULL && again != NULL);
    memcpy(exact, bytes, length);
    cursor = cursor_over(exact, length);
    *operation_count = 0;
    for (;;) {
        const uint8_t *start = cursor.next;

        answer = tm_batch_next(&cursor, &entry);
        if (answer != 1) {
            ck_assert_ptr_eq(cursor.next, start);
            break;
        }
        ck_assert_uint_eq(encode(&entry, again), (size_t)(cursor.next - start));
        ck_assert_mem_eq(again, start, (size_t)(cursor.next - start));
        ++*operation_count;
    }
    ck_assert_int_eq(answer == 0, cursor.next == cursor.end);
    free(exact);
    free(again);
    return answer;
}

START_TEST(a_new_batch_is_empty)
{
    tamis_batch *batch = make_batch();
    struct tm_batch_cursor cursor = {NULL, NULL};
    struct tm_entry entry;

    ck_assert_uint_eq(tamis_batch_count(batch), 0);
    ck_assert_uint_eq(tamis_batch_bytes(batch), 0);
    ck_assert_uint_eq(tm_batch_operations(batch).length, 0);
    ck_assert_int_eq(tm_batch_next(&cursor, &entry), 0);
    tamis_batch_destroy(batch);
    tamis_batch_destroy(NULL);
}
END_TEST

START_TEST(bytes_of_a_batch_never_change)
{
    static const uint8_t expected[] = {1, 2, 'a', 'b', 3, 'x', 'y', 'z', 0, 1, 'q', 1, 0, 0, 0, 0};
    tamis_batch *batch = make_batch();
    tamis_slice operations;

    check_ok(tamis_batch_put(batch, tm_slice("ab", 2), tm_slice("xyz", 3), &err), err);
    check_ok(tamis_batch_delete(batch, tm_slice("q", 1), &err), err);
    check_ok(tamis_batch_put(batch, tm_slice(NULL, 0), tm_slice(NULL, 0), &err), err);
    check_ok(tamis_batch_delete(batch, tm_slice("", 0), &err), err);
    operations = tm_batch_operations(batch);
    ck_assert_uint_eq(operations.length, sizeof expected);
    ck_assert_mem_eq(operations.data, expected, sizeof expected);
    ck_assert_uint_eq(tamis_batch_count(batch), 4);
    ck_assert_uint_eq(tamis_batch_bytes(batch), sizeof expected);
    tamis_batch_destroy(batch);
}
END_TEST

/* Fill both slices from the generator's next numbers; the same generator gives the same operation again. */
static enum tm_kind
next_operation(struct rng *rng, uint8_t *key_bytes, uint8_t *value_bytes, tamis_slice *key,
               tamis_slice *value)
{
    enum tm_kind kind = rng_chance(rng, 1, 4) ? TM_KIND_DELETE : TM_KIND_PUT;

    *key = tm_slice(key_bytes, rng_below(rng, rng_chance(rng, 1, 8) ? 300 : 20));
    *value = tm_slice(value_bytes, rng_below(rng, rng_chance(rng, 1, 8) ? 40000 : 150));
    rng_fill(rng, key_bytes, key->length);
    rng_fill(rng, value_bytes, value->length);
    return kind;
}

START_TEST(a_batch_gives_back_its_operations_in_order)
{
    enum { COUNT = 500 };
    static uint8_t key_bytes[300];
    static uint8_t value_bytes[40000];
    uint64_t seed = rng_seed("a_batch_gives_back_its_operations_in_order", 1);
    tamis_batch *batch = make_batch();

    for (uint64_t round = 0; round < 3; round++) {
        struct rng rng = rng_from(seed + round);
        struct tm_batch_cursor cursor;
        struct tm_entry entry;
        tamis_slice key;
        tamis_slice value;

        tamis_batch_clear(batch);
        ck_assert_uint_eq(tamis_batch_bytes(batch), 0);
        for (int i = 0; i < COUNT; i++) {
            if (next_operation(&rng, key_bytes, value_bytes, &key, &value) == TM_KIND_PUT)
                check_ok(tamis_batch_put(batch, key, value, &err), err);
            else
                check_ok(tamis_batch_delete(batch, key, &err), err);
        }
        ck_assert_uint_eq(tamis_batch_count(batch), COUNT);
        rng = rng_from(seed + round);
        cursor = cursor_over(tm_batch_operations(batch).data, tamis_batch_bytes(batch));
        for (int i = 0; i < COUNT; i++) {
            enum tm_kind kind = next_operation(&rng, key_bytes, value_bytes, &key, &value);

            ck_assert_int_eq(tm_batch_next(&cursor, &entry), 1);
            ck_assert_int_eq(entry.kind, kind);
            ck_assert(tm_slice_equal(entry.key, key));
            ck_assert(kind == TM_KIND_PUT ? tm_slice_equal(entry.value, value)
                                          : entry.value.length == 0);
        }
        ck_assert_int_eq(tm_batch_next(&cursor, &entry), 0);
    }
    tamis_batch_destroy(batch);
}
END_TEST

struct visit {
    struct tm_batch_cursor expected;
    size_t count;
    size_t stop_after;
};

static bool
expect_next(void *arg, const tamis_operation *operation)
{
    struct visit *visit = arg;
    struct tm_entry entry;

    ck_assert_int_eq(tm_batch_next(&visit->expected, &entry), 1);
    ck_assert_int_eq(operation->kind,
                     entry.kind == TM_KIND_PUT ? TAMIS_OPERATION_PUT : TAMIS_OPERATION_DELETE);
    ck_assert(tm_slice_equal(operation->key, entry.key));
    ck_assert(tm_slice_equal(operation->value, entry.value));
    return ++visit->count < visit->stop_after;
}

START_TEST(a_visitor_sees_the_operations_in_order_until_it_has_enough)
{
    static uint8_t key_bytes[300];
    static uint8_t value_bytes[40000];
    struct rng rng =
        rng_from(rng_seed("a_visitor_sees_the_operations_in_order_until_it_has_enough", 2));
    tamis_batch *batch = make_batch();
    struct visit visit = {.stop_after = SIZE_MAX};

    tamis_batch_visit(batch, expect_next, &visit);
    ck_assert_uint_eq(visit.count, 0);
    for (int i = 0; i < 50; i++) {
        tamis_slice key;
        tamis_slice value;

        if (next_operation(&rng, key_bytes, value_bytes, &key, &value) == TM_KIND_PUT)
            check_ok(tamis_batch_put(batch, key, value, &err), err);
        else
            check_ok(tamis_batch_delete(batch, key, &err), err);
    }
    visit.expected = cursor_over(tm_batch_operations(batch).data, tamis_batch_bytes(batch));
    tamis_batch_visit(batch, expect_next, &visit);
    ck_assert_uint_eq(visit.count, 50);
    visit = (struct visit){cursor_over(tm_batch_operations(batch).data, tamis_batch_bytes(batch)),
                           0, 7};
    tamis_batch_visit(batch, expect_next, &visit);
    ck_assert_uint_eq(visit.count, 7);
    tamis_batch_destroy(batch);
}
END_TEST

START_TEST(an_appended_batch_stands_behind_what_was_there)
{
    tamis_batch *batch = make_batch();
    tamis_batch *more = make_batch();
    tamis_batch *whole = make_batch();

    check_ok(tamis_batch_append(batch, more, &err), err); // nothing to nothing
    ck_assert_uint_eq(tamis_batch_count(batch), 0);
    check_ok(tamis_batch_put(batch, tm_slice("a", 1), tm_slice("one", 3), &err), err);
    check_ok(tamis_batch_put(more, tm_slice("a", 1), tm_slice("two", 3), &err), err);
    check_ok(tamis_batch_delete(more, tm_slice("b", 1), &err), err);
    check_ok(tamis_batch_append(batch, more, &err), err);
    check_ok(tamis_batch_append(batch, batch, &err), err); // its own
    for (int i = 0; i < 2; i++) {
        check_ok(tamis_batch_put(whole, tm_slice("a", 1), tm_slice("one", 3), &err), err);
        check_ok(tamis_batch_put(whole, tm_slice("a", 1), tm_slice("two", 3), &err), err);
        check_ok(tamis_batch_delete(whole, tm_slice("b", 1), &err), err);
    }
    ck_assert_uint_eq(tamis_batch_count(batch), 6);
    ck_assert_uint_eq(tm_batch_user_bytes(batch), tm_batch_user_bytes(whole));
    ck_assert(tm_slice_equal(tm_batch_operations(batch), tm_batch_operations(whole)));
    ck_assert_uint_eq(tamis_batch_count(more), 2);
    tamis_batch_destroy(whole);
    tamis_batch_destroy(more);
    tamis_batch_destroy(batch);
}
END_TEST

START_TEST(an_append_beyond_the_limits_leaves_the_batch_unchanged)
{
    tamis_batch *batch = make_batch();

    check_ok(tamis_batch_delete(batch, tm_slice("k", 1), &err), err);
    while (2 * tamis_batch_count(batch) <= TAMIS_BATCH_COUNT_MAX) // 2^24 of 3 bytes
        check_ok(tamis_batch_append(batch, batch, &err), err);
    ck_assert_uint_eq(tamis_batch_count(batch), TAMIS_BATCH_COUNT_MAX);
    check_status(tamis_batch_append(batch, batch, &err), TAMIS_TOO_LARGE, err);
    ck_assert_str_eq(err.message,
                     "batch of 16777216 operations and 16777216 more; the limit is 16777216");
    ck_assert_uint_eq(tamis_batch_count(batch), TAMIS_BATCH_COUNT_MAX);
    ck_assert_uint_eq(tamis_batch_bytes(batch), 3 * TAMIS_BATCH_COUNT_MAX);
    tamis_batch_destroy(batch);
}
END_TEST

START_TEST(keys_and_values_at_the_limit_pass_and_one_byte_more_does_not)
{
    // Only lengths are looked at.
    check_ok(tm_check_key(tm_slice(NULL, TAMIS_KEY_BYTES_MAX), &err), err);
    check_ok(tm_check_value(tm_slice(NULL, TAMIS_VALUE_BYTES_MAX), &err), err);
    check_status(tm_check_key(tm_slice(NULL, TAMIS_KEY_BYTES_MAX + 1), &err), TAMIS_TOO_LARGE, err);
    ck_assert_str_eq(err.message, "key of 1048577 bytes; the limit is 1048576");
    check_status(tm_check_value(tm_slice(NULL, TAMIS_VALUE_BYTES_MAX + 1), &err), TAMIS_TOO_LARGE,
                 err);
    check_status(tm_check_value(tm_slice(NULL, SIZE_MAX), NULL), TAMIS_TOO_LARGE, err);
}
END_TEST

START_TEST(an_operation_that_is_too_large_leaves_the_batch_unchanged)
{
    static uint8_t key_bytes[TAMIS_KEY_BYTES_MAX + 1];
    tamis_batch *batch = make_batch();
    size_t bytes;

    check_ok(
        tamis_batch_put(batch, tm_slice(key_bytes, TAMIS_KEY_BYTES_MAX), tm_slice("v", 1), &err),
        err);
    bytes = tamis_batch_bytes(batch);
    check_status(
        tamis_batch_put(batch, tm_slice(key_bytes, sizeof key_bytes), tm_slice("v", 1), &err),
        TAMIS_TOO_LARGE, err);
    check_status(tamis_batch_delete(batch, tm_slice(key_bytes, sizeof key_bytes), &err),
                 TAMIS_TOO_LARGE, err);
    check_status(tamis_batch_put(batch, tm_slice("k", 1),
                                 tm_slice(key_bytes, TAMIS_VALUE_BYTES_MAX + 1), &err),
                 TAMIS_TOO_LARGE, err); // refused before it is read
    ck_assert_uint_eq(tamis_batch_bytes(batch), bytes);
    ck_assert_uint_eq(tamis_batch_count(batch), 1);
    tamis_batch_destroy(batch);
}
END_TEST

START_TEST(a_batch_has_a_limit_of_operations)
{
    tamis_batch *batch = make_batch();

    for (size_t i = 0; i < TAMIS_BATCH_COUNT_MAX; i++) {
        if (tamis_batch_delete(batch, tm_slice(NULL, 0), &err) != TAMIS_OK)
            ck_abort_msg("operation %zu: %s", i, err.message);
    }
    check_status(tamis_batch_delete(batch, tm_slice(NULL, 0), &err), TAMIS_TOO_LARGE, err);
    ck_assert_uint_eq(tamis_batch_count(batch), TAMIS_BATCH_COUNT_MAX);
    ck_assert_uint_eq(tamis_batch_bytes(batch), 2 * TAMIS_BATCH_COUNT_MAX);
    tamis_batch_destroy(batch);
}
END_TEST

/* An allocator whose blocks are addresses only: many mappings of the same few pages. What is written there is
 * garbage afterwards, but 2 GiB of it take 4 MiB. */
enum { ALIAS_BYTES = 4 << 20 };

static size_t
alias_size(size_t size)
{
    return (size + ALIAS_BYTES - 1) / ALIAS_BYTES * ALIAS_BYTES;
}

static void *
alias_alloc(void *ctx, size_t size)
{
    int *descriptor = ctx;
    uint8_t *block =
        mmap(NULL, alias_size(size), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    ck_assert_ptr_ne(block, MAP_FAILED);
    for (size_t offset = 0; offset < alias_size(size); offset += ALIAS_BYTES)
        ck_assert_ptr_ne(mmap(block + offset, ALIAS_BYTES, PROT_READ | PROT_WRITE,
                              MAP_SHARED | MAP_FIXED | MAP_POPULATE, *descriptor, 0),
                         MAP_FAILED);
    return block;
}

static void
alias_release(void *ctx, void *block, size_t size)
{
    (void)ctx;
    munmap(block, alias_size(size));
}

static void *
alias_resize(void *ctx, void *block, size_t size_old, size_t size_new)
{
    alias_release(ctx, block, size_old);
    return alias_alloc(ctx, size_new);
}

static void *
only_batch_alloc(void *ctx, size_t size)
{
    return size < 4096 ? malloc(size) : alias_alloc(ctx, size);
}

static void
only_batch_release(void *ctx, void *block, size_t size)
{
    if (size < 4096)
        free(block);
    else
        alias_release(ctx, block, size);
}

START_TEST(a_batch_has_a_limit_of_bytes)
{
    int descriptor = memfd_create("test_batch", 0);
    const tamis_allocator allocator = {&descriptor, only_batch_alloc, alias_resize,
                                       only_batch_release};
    size_t value_bytes = TAMIS_VALUE_BYTES_MAX - 8; // head 2, middle 5: one byte a piece is left
    tamis_batch *batch;
    void *zeros = mmap(NULL, TAMIS_VALUE_BYTES_MAX, PROT_READ,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    ck_assert_int_ge(descriptor, 0);
    ck_assert_int_eq(ftruncate(descriptor, ALIAS_BYTES), 0);
    ck_assert_ptr_ne(zeros, MAP_FAILED);
    (void)madvise(zeros, TAMIS_VALUE_BYTES_MAX, MADV_HUGEPAGE); // only saves time
    check_ok(tamis_batch_create(&allocator, &batch, &err), err);
    check_ok(tamis_batch_put(batch, tm_slice(NULL, 0), tm_slice(zeros, value_bytes), &err), err);
    check_ok(tamis_batch_put(batch, tm_slice(NULL, 0), tm_slice(zeros, value_bytes), &err), err);
    ck_assert_uint_eq(tamis_batch_bytes(batch), TAMIS_BATCH_BYTES_MAX - 2);
    check_status(tamis_batch_delete(batch, tm_slice("k", 1), &err), TAMIS_TOO_LARGE, err);
    ck_assert_uint_eq(tamis_batch_count(batch), 2);
    check_ok(tamis_batch_delete(batch, tm_slice(NULL, 0), &err), err);
    ck_assert_uint_eq(tamis_batch_bytes(batch), TAMIS_BATCH_BYTES_MAX);
    check_status(tamis_batch_delete(batch, tm_slice(NULL, 0), &err), TAMIS_TOO_LARGE, err);
    check_status(tamis_batch_append(batch, batch, &err), TAMIS_TOO_LARGE, err);
    ck_assert_uint_eq(tamis_batch_bytes(batch), TAMIS_BATCH_BYTES_MAX);
    ck_assert_uint_eq(tamis_batch_count(batch), 3);
    tamis_batch_destroy(batch);
    munmap(zeros, TAMIS_VALUE_BYTES_MAX);
    close(descriptor);
}
END_TEST

START_TEST(without_memory_a_batch_stays_as_it_is)
{
    struct fault_alloc fault;
    tamis_allocator allocator;
    uint8_t value[100] = {0};
    uint64_t failure_count = 0;

    fault_alloc_init(&fault);
    allocator = fault_alloc_allocator(&fault);
    for (uint64_t nth = 1;; nth++) {
        tamis_batch *batch = NULL;
        uint64_t failures_before = atomic_load(&fault.failure_count);

        fault_alloc_fail_after(&fault, nth, false);
        if (tamis_batch_create(&allocator, &batch, &err) != TAMIS_OK) {
            ck_assert_ptr_null(batch);
            check_ok(tamis_batch_create(&allocator, &batch, &err), err);
        }
        for (size_t i = 0; i < 100; i++) {
            size_t bytes = tamis_batch_bytes(batch);
            tamis_status status =
                tamis_batch_put(batch, tm_slice("key", 3), tm_slice(value, i), &err);

            if (status != TAMIS_OK) {
                ck_assert_int_eq(status, TAMIS_NO_MEMORY);
                ck_assert_uint_eq(tamis_batch_bytes(batch), bytes);
                ck_assert_uint_eq(tamis_batch_count(batch), i);
                check_ok(tamis_batch_put(batch, tm_slice("key", 3), tm_slice(value, i), &err), err);
            }
        }
        ck_assert_uint_eq(tamis_batch_count(batch), 100);
        tamis_batch_destroy(batch);
        ck_assert_uint_eq(atomic_load(&fault.live_count), 0);
        if (atomic_load(&fault.failure_count) == failures_before)
            break;
        failure_count++;
    }
    fault_alloc_fail_after(&fault, 0, false);
    ck_assert_uint_ge(failure_count, 5); // the batch, and its buffer as it doubles
}
END_TEST

/* A batch of every kind of operation; *ends gets the offset behind each. */
static tamis_batch *
make_example(size_t ends[8], size_t *operation_count)
{
    static const uint8_t bytes[200] = {0x80, 0xff, 0, 1};
    static const struct {
        int key_length;
        int value_length; // -1: delete
    } operations[] = {{3, 5}, {0, 0}, {2, -1}, {0, -1}, {130, 1}, {1, 140}, {129, -1}};
    tamis_batch *batch = make_batch();

    *operation_count = sizeof operations / sizeof operations[0];
    for (size_t i = 0; i < *operation_count; i++) {
        tamis_slice key = tm_slice(bytes, (size_t)operations[i].key_length);

        if (operations[i].value_length < 0)
            check_ok(tamis_batch_delete(batch, key, &err), err);
        else
            check_ok(tamis_batch_put(batch, key,
                                     tm_slice(bytes, (size_t)operations[i].value_length), &err),
                     err);
        ends[i] = tamis_batch_bytes(batch);
    }
    return batch;
}

START_TEST(a_truncated_batch_ends_between_operations_or_is_malformed)
{
    size_t ends[8];
    size_t operation_count;
    tamis_batch *batch = make_example(ends, &operation_count);
    tamis_slice operations = tm_batch_operations(batch);

    for (size_t length = 0; length <= operations.length; length++) {
        size_t whole_count = 0;
        size_t parsed_count;
        int answer;

        while (whole_count < operation_count && ends[whole_count] <= length)
            whole_count++;
        answer = parse_all(operations.data, length, &parsed_count);
        ck_assert_uint_eq(parsed_count, whole_count);
        ck_assert_int_eq(answer, length == (whole_count == 0 ? 0 : ends[whole_count - 1]) ? 0 : -1);
    }
    tamis_batch_destroy(batch);
}
END_TEST

START_TEST(no_flipped_bit_leads_beyond_the_bytes)
{
    size_t ends[8];
    size_t operation_count;
    tamis_batch *batch = make_example(ends, &operation_count);
    tamis_slice operations = tm_batch_operations(batch);
    uint8_t *bytes = malloc(operations.length);
    size_t refused_count = 0;

    ck_assert_ptr_nonnull(bytes);
    for (size_t bit = 0; bit < operations.length * 8; bit++) {
        memcpy(bytes, operations.data, operations.length);
        bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
        refused_count += parse_all(bytes, operations.length, &operation_count) < 0;
    }
    ck_assert_uint_gt(refused_count, 0);
    free(bytes);
    tamis_batch_destroy(batch);
}
END_TEST

START_TEST(no_random_bytes_lead_beyond_their_end)
{
    struct rng rng = rng_from(rng_seed("no_random_bytes_lead_beyond_their_end", 2));
    uint8_t bytes[64];
    size_t accepted_count = 0;

    for (int round = 0; round < 50000; round++) {
        size_t length = rng_below(&rng, sizeof bytes + 1);
        size_t operation_count;

        rng_fill(&rng, bytes, length);
        for (size_t i = 0; i < length; i++) {
            if (rng_chance(&rng, 3, 4)) // small numbers look like kinds and lengths
                bytes[i] &= 3;
        }
        accepted_count += parse_all(bytes, length, &operation_count) == 0;
    }
    ck_assert_uint_gt(accepted_count, 0);
}
END_TEST

static int
parse_one(const uint8_t *bytes, size_t length)
{
    struct tm_batch_cursor cursor = cursor_over(bytes, length);
    struct tm_entry entry;

    return tm_batch_next(&cursor, &entry);
}

START_TEST(only_known_kinds_are_operations)
{
    for (int kind = 0; kind < 256; kind++) {
        const uint8_t bytes[] = {(uint8_t)kind, 0, 0};
        struct tm_batch_cursor cursor = cursor_over(bytes, 3);
        struct tm_entry entry = {.sequence = 77};
        bool known = kind == TM_KIND_PUT || kind == TM_KIND_DELETE;

        ck_assert_int_eq(tm_batch_next(&cursor, &entry), known ? 1 : -1);
        ck_assert_uint_eq(entry.sequence, 77); // not ours to set
    }
}
END_TEST

START_TEST(overlong_and_endless_lengths_are_malformed)
{
    static const uint8_t overlong[] = {0, 0x81, 0x00, 'k'};
    static const uint8_t endless[] = {0,    0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
                                      0xff, 0xff, 0xff, 0xff, 0xff, 0xff};
    static const uint8_t wraps[] = {0,    0xff, 0xff, 0xff, 0xff, 0xff,
                                    0xff, 0xff, 0xff, 0xff, 0x01, 'k'}; // 2^64 - 1

    ck_assert_int_eq(parse_one(overlong, sizeof overlong), -1);
    ck_assert_int_eq(parse_one(endless, sizeof endless), -1);
    ck_assert_int_eq(parse_one(wraps, sizeof wraps), -1);
}
END_TEST

START_TEST(lengths_beyond_the_limits_are_malformed_though_the_bytes_are_there)
{
    size_t size = TAMIS_VALUE_BYTES_MAX + 64;
    uint8_t *bytes = mmap(NULL, size, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    uint8_t *middle = bytes + 2;

    ck_assert_ptr_ne(bytes, MAP_FAILED);
    tm_operation_head(bytes, TM_KIND_DELETE, TAMIS_KEY_BYTES_MAX);
    ck_assert_int_eq(parse_one(bytes, size), 1);
    tm_operation_head(bytes, TM_KIND_DELETE, TAMIS_KEY_BYTES_MAX + 1);
    ck_assert_int_eq(parse_one(bytes, size), -1);
    ck_assert_uint_eq(tm_operation_head(bytes, TM_KIND_PUT, 0), 2);
    tm_operation_middle(middle, TAMIS_VALUE_BYTES_MAX);
    ck_assert_int_eq(parse_one(bytes, size), 1);
    tm_operation_middle(middle, TAMIS_VALUE_BYTES_MAX + 1);
    ck_assert_int_eq(parse_one(bytes, size), -1);
    munmap(bytes, size);
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("batch");
    TCase *tests = tcase_create("batch");

    tcase_set_timeout(tests, 0);
    tcase_add_test(tests, a_new_batch_is_empty);
    tcase_add_test(tests, bytes_of_a_batch_never_change);
    tcase_add_test(tests, a_batch_gives_back_its_operations_in_order);
    tcase_add_test(tests, a_visitor_sees_the_operations_in_order_until_it_has_enough);
    tcase_add_test(tests, an_appended_batch_stands_behind_what_was_there);
    tcase_add_test(tests, an_append_beyond_the_limits_leaves_the_batch_unchanged);
    tcase_add_test(tests, keys_and_values_at_the_limit_pass_and_one_byte_more_does_not);
    tcase_add_test(tests, an_operation_that_is_too_large_leaves_the_batch_unchanged);
    tcase_add_test(tests, a_batch_has_a_limit_of_operations);
    tcase_add_test(tests, a_batch_has_a_limit_of_bytes);
    tcase_add_test(tests, without_memory_a_batch_stays_as_it_is);
    tcase_add_test(tests, a_truncated_batch_ends_between_operations_or_is_malformed);
    tcase_add_test(tests, no_flipped_bit_leads_beyond_the_bytes);
    tcase_add_test(tests, no_random_bytes_lead_beyond_their_end);
    tcase_add_test(tests, only_known_kinds_are_operations);
    tcase_add_test(tests, overlong_and_endless_lengths_are_malformed);
    tcase_add_test(tests, lengths_beyond_the_limits_are_malformed_though_the_bytes_are_there);
    suite_add_tcase(suite, tests);
    return check_run(suite);
}
