/* SPDX-License-Identifier: MIT
 *
 * tests/engine/test_memtable.c -- a memtable against a sorted array, beside readers, and without memory.
 */
#include "tests/engine/memtable_test.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>

static struct tm_entry
entry_of(tamis_slice key, tamis_slice value, uint64_t sequence, enum tm_kind kind)
{
    struct tm_entry entry = {key, value, sequence, kind};

    return entry;
}

/* Asserts only when it must: each one of Check's is a write to its parent. */
static void
add(struct tm_memtable *memtable, const struct tm_entry *entry)
{
    if (tm_memtable_reserve(memtable, 1, entry->kind == TM_KIND_DELETE_RANGE,
                            entry->key.length + entry->value.length, &err) != TAMIS_OK)
        ck_abort_msg("%s", err.message);
    tm_memtable_add(memtable, entry);
}

static void
add_text(struct tm_memtable *memtable, const char *key, const char *value, uint64_t sequence)
{
    struct tm_entry entry =
        entry_of(tm_slice(key, strlen(key)), tm_slice(value, value != NULL ? strlen(value) : 0),
                 sequence, value != NULL ? TM_KIND_PUT : TM_KIND_DELETE);

    add(memtable, &entry);
}

static struct tm_iter *
make_iter(struct tm_memtable *memtable)
{
    struct tm_iter *iter = NULL;

    check_ok(tm_memtable_iter(memtable, &iter, &err), err);
    ck_assert(!iter->valid);
    ck_assert_int_eq(iter->status, TAMIS_OK);
    return iter;
}

static void
check_lookup(const struct tm_memtable *memtable, tamis_slice key, uint64_t sequence,
             enum tm_lookup lookup, const char *value)
{
    struct tm_memtable_found found;

    get(memtable, key, sequence, &found);
    ck_assert_int_eq(found.lookup, lookup);
    if (lookup == TM_FOUND)
        ck_assert(tm_slice_equal(found.value, tm_slice(value, strlen(value))));
}

START_TEST(an_empty_memtable_holds_nothing)
{
    struct tm_memtable *memtable = make_memtable();
    struct tm_iter *iter = make_iter(memtable);

    check_lookup(memtable, tm_slice(NULL, 0), TM_SEQUENCE_MAX, TM_ABSENT, NULL);
    check_lookup(memtable, tm_slice("k", 1), TM_SEQUENCE_MAX, TM_ABSENT, NULL);
    iter->vtable->first(iter);
    ck_assert(!iter->valid);
    iter->vtable->seek(iter, tm_slice(NULL, 0), TM_SEQUENCE_MAX);
    ck_assert(!iter->valid);
    ck_assert_uint_eq(tm_memtable_entry_count(memtable), 0);
    ck_assert_uint_eq(tm_memtable_used_bytes(memtable), 0);
    tm_iter_close(iter);
    tm_memtable_unref(memtable);
    tm_memtable_unref(NULL);
}
END_TEST

START_TEST(get_returns_the_newest_version_not_newer_than_the_snapshot)
{
    struct tm_memtable *memtable = make_memtable();
    tamis_slice key = tm_slice("key", 3);

    add_text(memtable, "key", "one", 10);
    add_text(memtable, "kex", "x", 11);
    add_text(memtable, "key", "two", 20);
    add_text(memtable, "key", NULL, 30);
    add_text(memtable, "kez", "z", 31);
    add_text(memtable, "key", "", 40);
    check_lookup(memtable, key, 9, TM_ABSENT, NULL);
    check_lookup(memtable, key, 10, TM_FOUND, "one");
    check_lookup(memtable, key, 19, TM_FOUND, "one");
    check_lookup(memtable, key, 20, TM_FOUND, "two");
    check_lookup(memtable, key, 35, TM_DELETED, NULL);
    check_lookup(memtable, key, 40, TM_FOUND, "");
    check_lookup(memtable, key, TM_SEQUENCE_MAX, TM_FOUND, "");
    check_lookup(memtable, tm_slice("ke", 2), TM_SEQUENCE_MAX, TM_ABSENT, NULL);
    check_lookup(memtable, tm_slice("keya", 4), TM_SEQUENCE_MAX, TM_ABSENT, NULL);
    tm_memtable_unref(memtable);
}
END_TEST

START_TEST(keys_that_differ_in_length_or_behind_eight_bytes_stay_apart)
{
    static const tamis_slice keys[] = {
        // In order. Zeros look like the padding of a short key's piece.
        {"", 0},
        {"\0", 1},
        {"\0\0", 2},
        {"a", 1},
        {"a\0", 2},
        {"a\0\0\0\0\0\0\0", 8},
        {"a\0\0\0\0\0\0\0\0", 9},
        {"a\1", 2},
        {"abcdefg", 7},
        {"abcdefg\0", 8},
        {"abcdefgh", 8},
        {"abcdefgh\0", 9},
        {"abcdefgha", 9},
        {"abcdefghz", 9},
        {"b", 1},
        {"\xff", 1},
        {"\xff\xff\xff\xff\xff\xff\xff\xff", 8},
        {"\xff\xff\xff\xff\xff\xff\xff\xff\xff", 9},
    };
    enum { COUNT = sizeof keys / sizeof keys[0] };
    struct tm_memtable *memtable = make_memtable();
    struct tm_iter *iter = make_iter(memtable);

    for (size_t i = 0; i < COUNT; i++) { // 18 entries: 7 and 18 share no factor: a scattered order
        struct tm_entry entry =
            entry_of(keys[i * 7 % COUNT], keys[i * 7 % COUNT], i + 1, TM_KIND_PUT);
        add(memtable, &entry);
    }
    iter->vtable->first(iter);
    for (size_t i = 0; i < COUNT; i++) {
        struct tm_memtable_found found;

        ck_assert(iter->valid);
        ck_assert(tm_slice_equal(iter->entry.key, keys[i]));
        iter->vtable->next(iter);
        get(memtable, keys[i], TM_SEQUENCE_MAX, &found);
        ck_assert_int_eq(found.lookup, TM_FOUND);
        ck_assert(tm_slice_equal(found.value, keys[i]));
    }
    ck_assert(!iter->valid);
    tm_iter_close(iter);
    tm_memtable_unref(memtable);
}
END_TEST

/* ---- Against a model ------------------------------------------------------------------------------ */

enum { MODEL_MAX = 4000, KEY_MAX = 24 };

struct model_entry {
    uint8_t key[KEY_MAX];
    size_t key_length;
    uint64_t sequence;
    enum tm_kind kind;
    uint64_t value; // its eight bytes
};

struct model {
    struct model_entry entries[MODEL_MAX]; // in entry order
    size_t count;
};

static struct model model;

/* Index of the first entry at or after (key, sequence). */
static size_t
model_seek(tamis_slice key, uint64_t sequence)
{
    size_t low = 0;
    size_t high = model.count;

    while (low < high) {
        size_t middle = (low + high) / 2;
        const struct model_entry *entry = &model.entries[middle];

        if (tm_entry_compare(NULL, tm_slice(entry->key, entry->key_length), entry->sequence, key,
                             sequence) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static void
model_add(const struct model_entry *entry)
{
    size_t at = model_seek(tm_slice(entry->key, entry->key_length), entry->sequence);

    memmove(&model.entries[at + 1], &model.entries[at], (model.count - at) * sizeof *entry);
    model.entries[at] = *entry;
    model.count++;
}

/* Families of keys: short ones, ones with a shared prefix longer than a piece, ones with zeros. */
static size_t
random_key(struct rng *rng, uint8_t key[KEY_MAX])
{
    switch (rng_below(rng, 4)) {
    case 0: {
        size_t length = rng_below(rng, 3);
        for (size_t i = 0; i < length; i++)
            key[i] = (uint8_t)rng_below(rng, 4);
        return length;
    }
    case 1:
        return (size_t)snprintf((char *)key, KEY_MAX, "%016u", (unsigned)rng_below(rng, 400));
    case 2: {
        size_t length = 6 + rng_below(rng, 6);
        memset(key, 0, KEY_MAX);
        key[rng_below(rng, length)] = (uint8_t)rng_below(rng, 3);
        return length;
    }
    default:
        rng_fill(rng, key, 8);
        return 8;
    }
}

static void
check_entry(const struct tm_entry *entry, const struct model_entry *expected)
{
    ck_assert_mem_eq(entry->key.data, expected->key, expected->key_length);
    ck_assert_uint_eq(entry->key.length, expected->key_length);
    ck_assert_uint_eq(entry->sequence, expected->sequence);
    ck_assert_int_eq(entry->kind, expected->kind);
    ck_assert_uint_eq(entry->value.length, expected->kind == TM_KIND_PUT ? 8 : 0);
    if (expected->kind == TM_KIND_PUT)
        ck_assert_uint_eq(tm_get_u64(entry->value.data), expected->value);
}

static void
check_get(const struct tm_memtable *memtable, tamis_slice key, uint64_t sequence)
{
    const struct model_entry *expected = &model.entries[model_seek(key, sequence)];
    struct tm_memtable_found found;

    get(memtable, key, sequence, &found);
    if (expected == &model.entries[model.count] ||
        !tm_slice_equal(key, tm_slice(expected->key, expected->key_length))) {
        ck_assert_int_eq(found.lookup, TM_ABSENT);
        return;
    }
    ck_assert_int_eq(found.lookup, expected->kind == TM_KIND_PUT ? TM_FOUND : TM_DELETED);
    ck_assert_uint_eq(found.sequence, expected->sequence);
    if (expected->kind == TM_KIND_PUT)
        ck_assert_uint_eq(tm_get_u64(found.value.data), expected->value);
}

START_TEST(a_random_memtable_agrees_with_a_sorted_array)
{
    struct rng rng = rng_from(rng_seed("a_random_memtable_agrees_with_a_sorted_array", 5));
    struct tm_memtable *memtable = make_memtable();
    struct tm_iter *iter = make_iter(memtable);
    uint64_t sequence = 0;

    model.count = 0;
    while (model.count < MODEL_MAX - 1) {
        struct model_entry entry = {.sequence = sequence += 1 + rng_below(&rng, 3)};
        struct tm_entry added;
        uint8_t value[8];

        entry.key_length = random_key(&rng, entry.key);
        entry.kind = rng_chance(&rng, 1, 4) ? TM_KIND_DELETE : TM_KIND_PUT;
        entry.value = rng_next(&rng);
        tm_put_u64(value, entry.value);
        added = entry_of(tm_slice(entry.key, entry.key_length),
                         tm_slice(value, entry.kind == TM_KIND_PUT ? 8 : 0), entry.sequence,
                         entry.kind);
        add(memtable, &added);
        model_add(&entry);
        if (rng_chance(&rng, 1, 4)) {
            uint8_t key[KEY_MAX];
            tamis_slice target = tm_slice(key, random_key(&rng, key));
            uint64_t snapshot = rng_below(&rng, sequence + 2);
            size_t at = model_seek(target, snapshot);

            check_get(memtable, target, snapshot);
            check_get(memtable, target, TM_SEQUENCE_MAX);
            iter->vtable->seek(iter, target, snapshot);
            ck_assert_int_eq(iter->valid, at < model.count);
            if (iter->valid)
                check_entry(&iter->entry, &model.entries[at]);
        }
    }
    ck_assert_uint_eq(tm_memtable_entry_count(memtable), model.count);
    iter->vtable->first(iter);
    for (size_t i = 0; i < model.count; i++, iter->vtable->next(iter)) {
        ck_assert(iter->valid);
        check_entry(&iter->entry, &model.entries[i]);
    }
    ck_assert(!iter->valid);
    iter->vtable->last(iter);
    for (size_t i = model.count; i-- > 0; iter->vtable->prev(iter)) {
        ck_assert(iter->valid);
        check_entry(&iter->entry, &model.entries[i]);
        if (rng_chance(&rng, 1, 10)) { // turn round
            iter->vtable->next(iter);
            ck_assert_int_eq(iter->valid, i + 1 < model.count);
            if (iter->valid)
                iter->vtable->prev(iter);
            else
                iter->vtable->last(iter);
            check_entry(&iter->entry, &model.entries[i]);
        }
    }
    ck_assert(!iter->valid);
    for (unsigned i = 0; i < 1000; i++) {
        uint8_t key[KEY_MAX];
        tamis_slice target = tm_slice(key, random_key(&rng, key));
        uint64_t snapshot = rng_below(&rng, sequence + 2);
        size_t at = model_seek(target, snapshot);
        bool exact =
            at < model.count && model.entries[at].sequence == snapshot &&
            tm_slice_equal(tm_slice(model.entries[at].key, model.entries[at].key_length), target);

        iter->vtable->seek_for_prev(iter, target, snapshot);
        ck_assert_int_eq(iter->valid, exact || at > 0);
        if (iter->valid)
            check_entry(&iter->entry, &model.entries[exact ? at : at - 1]);
    }
    tm_iter_close(iter);
    tm_memtable_unref(memtable);
}
END_TEST

/* ---- Filter --------------------------------------------------------------------------------------- */

START_TEST(the_filter_has_every_key_and_few_others)
{
    enum { SIZE_BYTES = 1 << 20, KEYS = SIZE_BYTES / 200, ASKED = 100000 };
    struct rng rng = rng_from(rng_seed("the_filter_has_every_key_and_few_others", 9));
    struct tm_memtable *memtable = make_memtable(); // planned for SIZE_BYTES
    unsigned positives = 0;

    for (unsigned i = 0; i < ASKED; i++)
        positives += tm_memtable_may_contain(memtable, rng_next(&rng));
    ck_assert_uint_eq(positives, 0);
    for (uint64_t i = 0; i < KEYS; i++) {
        uint8_t key[8];
        struct tm_entry entry = entry_of(tm_slice(key, 8), tm_slice(NULL, 0), i + 1,
                                         i % 2 == 0 ? TM_KIND_PUT : TM_KIND_DELETE);

        tm_put_u64(key, i);
        add(memtable, &entry);
        if (!tm_memtable_may_contain(memtable, tm_hash64(key, 8, HASH_SEED)))
            ck_abort_msg("key %" PRIu64, i);
    }
    for (unsigned i = 0; i < ASKED; i++)
        positives += tm_memtable_may_contain(memtable, rng_next(&rng));
    printf("%u of %d\n", positives, ASKED);
    ck_assert_uint_gt(positives, ASKED / 1000);
    ck_assert_uint_lt(positives, ASKED * 2 / 100); // 0.98 % by theory at 10 bits a key
    tm_memtable_unref(memtable);
}
END_TEST

/* ---- Sizes, memory -------------------------------------------------------------------------------- */

START_TEST(keys_of_one_mebibyte_and_large_values_come_back)
{
    static uint8_t key[TAMIS_KEY_BYTES_MAX];
    static uint8_t value[5 << 20];
    struct tm_memtable *memtable = make_memtable();
    struct tm_memtable_found found;

    memset(key, 'k', sizeof key);
    memset(value, 'v', sizeof value);
    for (uint64_t i = 0; i < 6; i++) {
        struct tm_entry entry = entry_of(tm_slice(key, sizeof key),
                                         tm_slice(value, sizeof value - i), 2 * i + 1, TM_KIND_PUT);

        key[sizeof key - 1] = (uint8_t)('a' + i * 5 % 6); // they differ in the last byte
        value[0] = (uint8_t)i;
        add(memtable, &entry);
        add_text(memtable, "small", "value", 2 * i + 2);
    }
    for (uint64_t i = 0; i < 6; i++) {
        key[sizeof key - 1] = (uint8_t)('a' + i * 5 % 6);
        get(memtable, tm_slice(key, sizeof key), TM_SEQUENCE_MAX, &found);
        ck_assert_int_eq(found.lookup, TM_FOUND);
        value[0] = (uint8_t)i;
        ck_assert(tm_slice_equal(found.value, tm_slice(value, sizeof value - i)));
    }
    get(memtable, tm_slice(key, sizeof key - 1), TM_SEQUENCE_MAX, &found);
    ck_assert_int_eq(found.lookup, TM_ABSENT);
    check_lookup(memtable, tm_slice("small", 5), TM_SEQUENCE_MAX, TM_FOUND, "value");
    tm_memtable_unref(memtable);
}
END_TEST

/* Sanitizers keep up to four bytes beside each one: 64 MiB must do there. */
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
enum { BIG_VALUE_BYTES = 64 << 20 };
#else
enum { BIG_VALUE_BYTES = TAMIS_VALUE_BYTES_MAX };
#endif

START_TEST(a_value_of_one_gibibyte_comes_back)
{
    struct tm_memtable *memtable = make_memtable();
    struct tm_memtable_found found;
    struct tm_entry entry;
    const uint8_t *data;
    uint8_t *value = mmap(NULL, BIG_VALUE_BYTES, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    ck_assert_ptr_ne(value, MAP_FAILED);
    value[0] = 'a'; // all else stays the page of zeros
    value[BIG_VALUE_BYTES - 1] = 'z';
    entry = entry_of(tm_slice("big", 3), tm_slice(value, BIG_VALUE_BYTES), 1, TM_KIND_PUT);
    if (tm_memtable_reserve(memtable, 1, 0, 3 + BIG_VALUE_BYTES, &err) == TAMIS_OK) {
        tm_memtable_add(memtable, &entry);
        add_text(memtable, "bif", "before", 2);
        add_text(memtable, "bih", "behind", 3);
        get(memtable, tm_slice("big", 3), 1, &found);
        ck_assert_int_eq(found.lookup, TM_FOUND);
        ck_assert_uint_eq(found.value.length, BIG_VALUE_BYTES);
        data = found.value.data;
        ck_assert(data[0] == 'a' && data[1] == 0 && data[BIG_VALUE_BYTES / 2] == 0);
        ck_assert(data[BIG_VALUE_BYTES - 2] == 0 && data[BIG_VALUE_BYTES - 1] == 'z');
        check_lookup(memtable, tm_slice("bih", 3), 3, TM_FOUND, "behind");
    } else {
        printf("a_value_of_one_gibibyte_comes_back: not run, there is no memory for it\n");
    }
    munmap(value, BIG_VALUE_BYTES);
    tm_memtable_unref(memtable);
}
END_TEST

START_TEST(bytes_are_those_of_the_allocator_and_little_is_wasted)
{
    struct rng rng = rng_from(rng_seed("bytes_are_those_of_the_allocator_and_little_is_wasted", 6));
    static uint8_t value[600000];

    // Reservations of up to these sizes, and of any size between.
    for (uint64_t size_max = 16; size_max <= sizeof value; size_max *= 6) {
        struct tm_memtable *memtable = make_memtable();
        uint64_t used;
        uint64_t bytes;

        for (uint64_t sequence = 1; tm_memtable_used_bytes(memtable) < 8 << 20; sequence++) {
            uint8_t key[8];
            struct tm_entry entry;

            rng_fill(&rng, key, sizeof key);
            entry = entry_of(tm_slice(key, sizeof key), tm_slice(value, rng_below(&rng, size_max)),
                             sequence, TM_KIND_PUT);
            add(memtable, &entry);
        }
        used = tm_memtable_used_bytes(memtable);
        bytes = tm_memtable_bytes(memtable);
        ck_assert_uint_eq(bytes, atomic_load(&fault.live_bytes));
        ck_assert_uint_gt(bytes, used);
        // A chunk is left with less than a quarter unused, and the last one may be empty.
        ck_assert_uint_le(bytes, used + used / 3 + (1 << 20));
        tm_memtable_unref(memtable);
    }
}
END_TEST

START_TEST(a_reservation_that_fails_changes_nothing)
{
    uint64_t failure_count = 0;

    for (uint64_t nth = 1;; nth++) {
        uint64_t failures_before = atomic_load(&fault.failure_count);
        struct tm_memtable *memtable;
        struct tm_iter *iter;
        uint64_t sequence = 0;
        size_t walked_count = 0;

        fault_alloc_fail_after(&fault, nth, false);
        memtable = tm_memtable_create(&env, HASH_SEED, 1 << 20);
        if (memtable == NULL)
            memtable = make_memtable();
        for (size_t i = 0; i < 400; i++) {
            static const uint8_t value[60000];
            size_t length = i % 50 == 49 ? sizeof value : i;
            uint64_t bytes = tm_memtable_bytes(memtable);
            struct tm_entry entry;
            uint8_t key[4];

            tm_put_u32(key, (uint32_t)i * 0x9e3779b9);
            entry = entry_of(tm_slice(key, 4), tm_slice(value, length), ++sequence, TM_KIND_PUT);
            if (tm_memtable_reserve(memtable, 1, 0, 4 + length, &err) != TAMIS_OK) {
                ck_assert_int_eq(err.code, TAMIS_NO_MEMORY);
                ck_assert_uint_eq(tm_memtable_bytes(memtable), bytes);
                ck_assert_uint_eq(tm_memtable_entry_count(memtable), i);
                check_ok(tm_memtable_reserve(memtable, 1, 0, 4 + length, &err), err);
            }
            tm_memtable_add(memtable, &entry);
        }
        if (tm_memtable_iter(memtable, &iter, &err) != TAMIS_OK) {
            ck_assert_ptr_null(iter);
            check_ok(tm_memtable_iter(memtable, &iter, &err), err);
        }
        for (iter->vtable->first(iter); iter->valid; iter->vtable->next(iter))
            walked_count++;
        ck_assert_uint_eq(walked_count, 400);
        tm_iter_close(iter);
        tm_memtable_unref(memtable);
        ck_assert_uint_eq(atomic_load(&fault.live_count), 0);
        if (atomic_load(&fault.failure_count) == failures_before)
            break;
        failure_count++;
    }
    fault_alloc_fail_after(&fault, 0, false);
    ck_assert_uint_ge(failure_count, 5); // memtable, chunks, a block of its own, iterator
}
END_TEST

START_TEST(a_reservation_no_machine_can_keep_is_refused)
{
    struct tm_memtable *memtable = make_memtable();

    check_status(tm_memtable_reserve(memtable, SIZE_MAX, 0, 0, &err), TAMIS_NO_MEMORY, err);
    check_status(tm_memtable_reserve(memtable, 1, 0, SIZE_MAX, &err), TAMIS_NO_MEMORY, err);
    tm_memtable_unref(memtable);
}
END_TEST

START_TEST(what_was_reserved_for_is_added_without_memory)
{
    static const uint8_t bytes[300000];
    struct rng rng = rng_from(rng_seed("what_was_reserved_for_is_added_without_memory", 7));
    struct tm_memtable *memtable = make_memtable();
    uint64_t sequence = 0;
    uint64_t reserved_count = 0;

    for (int round = 0; round < 600; round++) {
        size_t entry_count = rng_below(&rng, rng_chance(&rng, 1, 10) ? 500 : 5);
        size_t left = rng_below(&rng, rng_chance(&rng, 1, 10) ? sizeof bytes : 2000);
        bool is_used = rng_chance(&rng, 9, 10);

        if (tm_memtable_reserve(memtable, entry_count, 0, left, &err) != TAMIS_OK)
            ck_abort_msg("%s", err.message);
        if (!is_used)
            continue; // the write failed in the log; the next reservation takes its place
        fault_alloc_fail_after(&fault, 1, true); // M2
        for (size_t i = 0; i < entry_count; i++) {
            size_t length = i + 1 == entry_count ? left : rng_below(&rng, left + 1);
            size_t key_length = rng_below(&rng, length < 100 ? length + 1 : 100);
            struct tm_entry entry =
                entry_of(tm_slice(bytes, key_length), tm_slice(bytes, length - key_length),
                         ++sequence, TM_KIND_PUT);

            tm_memtable_add(memtable, &entry);
            left -= length;
            reserved_count++;
        }
        fault_alloc_fail_after(&fault, 0, false);
    }
    ck_assert_uint_eq(tm_memtable_entry_count(memtable), reserved_count);
    tm_memtable_unref(memtable);
}
END_TEST

/* ---- Iterators and references --------------------------------------------------------------------- */

/* Newer entries may or may not appear; what was there is met once, and in order. */
START_TEST(an_iterator_goes_on_while_entries_are_added)
{
    struct tm_memtable *memtable = make_memtable();
    struct tm_iter *iter = make_iter(memtable);
    size_t old_count = 0;
    uint8_t last = 0;

    for (uint64_t i = 0; i < 100; i++) {
        char key[2] = {(char)(i * 7 % 100 + 1), 0};
        add_text(memtable, key, "old", i + 1);
    }
    iter->vtable->first(iter);
    for (uint64_t sequence = 101; iter->valid; iter->vtable->next(iter)) {
        const uint8_t *key = iter->entry.key.data;

        ck_assert_uint_ge(key[0], last); // versions of one key follow each other
        last = key[0];
        old_count += iter->entry.sequence <= 100;
        for (uint64_t i = 0; i < 5; i++, sequence++) { // behind it and before it
            char new_key[2] = {(char)(1 + sequence * 13 % 127), 0};
            if (new_key[0] > 100)
                add_text(memtable, new_key, "new", sequence);
        }
    }
    ck_assert_uint_eq(old_count, 100);
    iter->vtable->seek(iter, tm_slice("\x32", 1), 100);
    ck_assert(iter->valid);
    ck_assert(tm_slice_equal(iter->entry.value, tm_slice("old", 3)));
    tm_iter_close(iter);
    tm_memtable_unref(memtable);
}
END_TEST

START_TEST(an_iterator_goes_on_to_a_version_that_came_behind_it)
{
    struct tm_memtable *memtable = make_memtable();
    struct tm_iter *iter = make_iter(memtable);

    add_text(memtable, "a", "1", 1);
    add_text(memtable, "b", "2", 2);
    iter->vtable->last(iter);
    ck_assert_uint_eq(iter->entry.sequence, 2);
    add_text(memtable, "b", "3", 3); // newer, so before the one it stands on
    add_text(memtable, "a", "4", 4);
    ck_assert(tm_slice_equal(iter->entry.value, tm_slice("2", 1)));
    iter->vtable->seek(iter, tm_slice("a", 1), 3);
    ck_assert_uint_eq(iter->entry.sequence, 1);
    iter->vtable->prev(iter);
    ck_assert(iter->valid);
    ck_assert_uint_eq(iter->entry.sequence, 4);
    iter->vtable->prev(iter);
    ck_assert(!iter->valid);
    tm_iter_close(iter);
    tm_memtable_unref(memtable);
}
END_TEST

START_TEST(an_iterator_keeps_its_memtable_alive)
{
    struct tm_memtable *memtable = make_memtable();
    struct tm_iter *iter = make_iter(memtable);

    add_text(memtable, "key", "value", 1);
    tm_memtable_ref(memtable);
    tm_memtable_unref(memtable);
    tm_memtable_unref(memtable);
    iter->vtable->first(iter);
    ck_assert(iter->valid);
    ck_assert(tm_slice_equal(iter->entry.value, tm_slice("value", 5)));
    tm_iter_close(iter);
    ck_assert_uint_eq(atomic_load(&fault.live_count), 0);
}
END_TEST

/* ---- Beside a writer ------------------------------------------------------------------------------ */

/* The writer gives version n to key n * STRIDE % KEY_COUNT, with n as value; every fifth is a delete. So what a reader
 * must find at a sequence can be told from the key alone. */
enum { KEY_COUNT = 997, STRIDE = 331, VERSION_COUNT = 20000, READER_COUNT = 2 };

struct race {
    struct tm_memtable *memtable;
    _Atomic uint64_t published; // newest sequence that readers may ask for
    _Atomic uint64_t next_seed; // each reader takes one
    _Atomic uint32_t failure_count;
};

static void
race_key(uint8_t key[12], uint64_t index)
{
    memset(key, 'p', 4); // half of a piece is shared
    for (int i = 0; i < 8; i++)
        key[4 + i] = (uint8_t)(index * UINT64_C(0x9e3779b97f4a7c15) >> (56 - 8 * i));
}

static uint64_t
race_key_of_sequence(uint64_t sequence)
{
    return sequence * STRIDE % KEY_COUNT;
}

/* The newest sequence of key `index` not above `sequence`; 0 when there is none. */
static uint64_t
race_expected(uint64_t index, uint64_t sequence)
{
    while (sequence > 0 && race_key_of_sequence(sequence) != index)
        sequence--;
    return sequence;
}

static bool
race_check_get(struct race *race, uint64_t index, uint64_t sequence)
{
    uint64_t expected = race_expected(index, sequence);
    enum tm_lookup lookup = expected == 0 ? TM_ABSENT : expected % 5 == 0 ? TM_DELETED : TM_FOUND;
    struct tm_memtable_found found;
    uint8_t key[12];

    race_key(key, index);
    get(race->memtable, tm_slice(key, 12), sequence, &found);
    return found.lookup == lookup && (expected == 0 || found.sequence == expected) &&
           (lookup != TM_FOUND || tm_get_u64(found.value.data) == expected);
}

/* Entries ascend, and each of the first `published` ones is there. */
static bool
race_check_walk(struct race *race, uint64_t published)
{
    struct tm_iter *iter;
    uint8_t last_key[12] = {0};
    uint64_t last_sequence = 0;
    uint64_t seen_count = 0;
    bool good = true;

    if (tm_memtable_iter(race->memtable, &iter, NULL) != TAMIS_OK)
        return false;
    for (iter->vtable->first(iter); iter->valid && good; iter->vtable->next(iter)) {
        good = iter->entry.key.length == 12 &&
               (last_sequence == 0 || tm_entry_compare(NULL, tm_slice(last_key, 12), last_sequence,
                                                       iter->entry.key, iter->entry.sequence) < 0);
        if (iter->entry.kind == TM_KIND_PUT)
            good = good && tm_get_u64(iter->entry.value.data) == iter->entry.sequence;
        memcpy(last_key, iter->entry.key.data, 12);
        last_sequence = iter->entry.sequence;
        seen_count += last_sequence <= published;
    }
    tm_iter_close(iter);
    return good && seen_count == published;
}

static void *
race_read(void *arg)
{
    struct race *race = arg;
    struct rng rng = rng_from(atomic_fetch_add(&race->next_seed, 1));
    uint64_t published;
    uint64_t round = 0;

    do {
        bool good;

        published = atomic_load_explicit(&race->published, memory_order_acquire);
        good = race_check_get(race, rng_below(&rng, KEY_COUNT + 1),
                              published - rng_below(&rng, published / 2 + 1));
        if (round++ % 256 == 0)
            good = good && race_check_walk(race, published);
        if (!good)
            atomic_fetch_add(&race->failure_count, 1);
    } while (published < VERSION_COUNT);
    return NULL;
}

START_TEST(readers_beside_a_writer_see_every_published_entry_whole)
{
    struct race race = {.memtable = make_memtable()};
    pthread_t readers[READER_COUNT];

    race.next_seed = rng_seed("readers_beside_a_writer_see_every_published_entry_whole", 8);
    for (int i = 0; i < READER_COUNT; i++)
        ck_assert_int_eq(pthread_create(&readers[i], NULL, race_read, &race), 0);
    for (uint64_t sequence = 1; sequence <= VERSION_COUNT; sequence++) {
        uint8_t key[12];
        uint8_t value[8];
        bool is_delete = sequence % 5 == 0;
        struct tm_entry entry = entry_of(tm_slice(key, 12), tm_slice(value, is_delete ? 0 : 8),
                                         sequence, is_delete ? TM_KIND_DELETE : TM_KIND_PUT);

        race_key(key, race_key_of_sequence(sequence));
        tm_put_u64(value, sequence);
        if (tm_memtable_reserve(race.memtable, 1, 0, 20, NULL) != TAMIS_OK)
            ck_abort_msg("no memory");
        tm_memtable_add(race.memtable, &entry);
        atomic_store_explicit(&race.published, sequence, memory_order_release);
    }
    for (int i = 0; i < READER_COUNT; i++)
        ck_assert_int_eq(pthread_join(readers[i], NULL), 0);
    ck_assert_uint_eq(atomic_load(&race.failure_count), 0);
    ck_assert(race_check_walk(&race, VERSION_COUNT));
    tm_memtable_unref(race.memtable);
}
END_TEST

static void *
race_unref(void *arg)
{
    struct race *race = arg;

    check_lookup(race->memtable, tm_slice("key", 3), 1, TM_FOUND, "value");
    tm_memtable_unref(race->memtable);
    return NULL;
}

START_TEST(the_last_reference_may_be_dropped_by_any_thread)
{
    for (int round = 0; round < 100; round++) {
        struct race race = {.memtable = make_memtable()};
        pthread_t threads[3];

        add_text(race.memtable, "key", "value", 1);
        for (int i = 0; i < 3; i++) {
            tm_memtable_ref(race.memtable);
            ck_assert_int_eq(pthread_create(&threads[i], NULL, race_unref, &race), 0);
        }
        tm_memtable_unref(race.memtable);
        for (int i = 0; i < 3; i++)
            ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
        ck_assert_uint_eq(atomic_load(&fault.live_count), 0);
    }
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("memtable");
    TCase *tests = tcase_create("memtable");

    tcase_set_timeout(tests, 0);
    tcase_add_checked_fixture(tests, set_up, tear_down);
    tcase_add_test(tests, an_empty_memtable_holds_nothing);
    tcase_add_test(tests, get_returns_the_newest_version_not_newer_than_the_snapshot);
    tcase_add_test(tests, keys_that_differ_in_length_or_behind_eight_bytes_stay_apart);
    tcase_add_test(tests, a_random_memtable_agrees_with_a_sorted_array);
    tcase_add_test(tests, the_filter_has_every_key_and_few_others);
    tcase_add_test(tests, keys_of_one_mebibyte_and_large_values_come_back);
    tcase_add_test(tests, a_value_of_one_gibibyte_comes_back);
    tcase_add_test(tests, bytes_are_those_of_the_allocator_and_little_is_wasted);
    tcase_add_test(tests, a_reservation_that_fails_changes_nothing);
    tcase_add_test(tests, a_reservation_no_machine_can_keep_is_refused);
    tcase_add_test(tests, what_was_reserved_for_is_added_without_memory);
    tcase_add_test(tests, an_iterator_goes_on_while_entries_are_added);
    tcase_add_test(tests, an_iterator_goes_on_to_a_version_that_came_behind_it);
    tcase_add_test(tests, an_iterator_keeps_its_memtable_alive);
    tcase_add_test(tests, readers_beside_a_writer_see_every_published_entry_whole);
    tcase_add_test(tests, the_last_reference_may_be_dropped_by_any_thread);
    suite_add_tcase(suite, tests);
    return check_run(suite);
}
