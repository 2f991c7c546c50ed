/* SPDX-License-Identifier: MIT
 *
 * tests/engine/test_memtable_tree.c -- a memtable that grows over several levels of nodes: keys of many shapes in many orders, many
 * versions, memory that was reserved, and readers beside splits (memtable_tree.h, T1 to T6).
 */
#include "tests/engine/memtable_test.h"

#include <pthread.h>
#include <stdlib.h>

static void
add(struct tm_memtable *memtable, tamis_slice key, uint64_t sequence, bool reserve)
{
    uint8_t value[8];
    struct tm_entry entry = {key, tm_slice(value, sizeof value), sequence, TM_KIND_PUT};

    tm_put_u64(value, sequence);
    if (reserve && tm_memtable_reserve(memtable, 1, 0, key.length + sizeof value, &err) != TAMIS_OK)
        ck_abort_msg("%s", err.message);
    tm_memtable_add(memtable, &entry);
}

/* The sequence of the version found; 0: absent. */
static uint64_t
find(const struct tm_memtable *memtable, tamis_slice key, uint64_t sequence)
{
    struct tm_memtable_found found;

    get(memtable, key, sequence, &found);
    if (found.lookup == TM_FOUND && tm_get_u64(found.value.data) != found.sequence)
        ck_abort_msg("a value that is not its version's");
    return found.lookup == TM_FOUND ? found.sequence : 0;
}

/* ---- Shapes of keys ------------------------------------------------------------------------------- */

enum { KEY_COUNT = 20000, KEY_MAX = 80 };

/* Key number `i` of a shape; numbers ascend with keys but where they are random. */
static size_t
shape_random(uint8_t *key, uint64_t i)
{
    struct rng rng = rng_from(i);

    rng_fill(&rng, key, 16);
    return 16;
}

static size_t
shape_decimal(uint8_t *key, uint64_t i)
{
    return (size_t)snprintf((char *)key, KEY_MAX, "%016u", (unsigned)i);
}

static size_t
shape_two_families(uint8_t *key, uint64_t i)
{
    return (size_t)snprintf((char *)key, KEY_MAX, i < KEY_COUNT / 3 ? "order:%09u" : "user:%012u",
                            (unsigned)i);
}

static size_t
shape_url(uint8_t *key, uint64_t i)
{
    return (size_t)snprintf((char *)key, KEY_MAX,
                            "https://www.example.com/shop%02u/products/%u.html", (unsigned)(i % 17),
                            (unsigned)i);
}

/* One a prefix of the next, in runs: the longest have more than nodes share. */
static size_t
shape_nested(uint8_t *key, uint64_t i)
{
    size_t length = 4 + i % 60;

    tm_put_u32(key, (uint32_t)(i / 60) * 0x01000193);
    memset(key + 4, 0, length - 4);
    return length;
}

static const struct {
    const char *name;
    size_t (*make)(uint8_t *key, uint64_t i);
} shapes[] = {
    {"random", shape_random}, {"decimal", shape_decimal}, {"two families", shape_two_families},
    {"url", shape_url},       {"nested", shape_nested},
};

enum { SHAPE_COUNT = sizeof shapes / sizeof shapes[0] };

/* The orders in which keys are written. */
enum write_order { ASCENDING, DESCENDING, SCATTERED, ENDS_FIRST, WRITE_ORDER_COUNT };

struct shaped {
    uint8_t bytes[KEY_MAX];
    size_t length;
    uint64_t sequence;
};

static struct shaped keys[KEY_COUNT];

static tamis_slice
key_of(const struct shaped *shaped)
{
    return tm_slice(shaped->bytes, shaped->length);
}

static int
compare_shaped(const void *a, const void *b)
{
    return tm_slice_compare(key_of(a), key_of(b));
}

static size_t
written_as(enum write_order order, size_t i)
{
    switch (order) {
    case ASCENDING:
        return i;
    case DESCENDING:
        return KEY_COUNT - 1 - i;
    case SCATTERED:
        return i * 7919 % KEY_COUNT;
    default: // in turn from both ends: every key falls between two that are there
        return i % 2 == 0 ? i / 2 : KEY_COUNT - 1 - i / 2;
    }
}

static void
check_walks(struct tm_memtable *memtable)
{
    struct tm_iter *iter;
    size_t i = 0;

    check_ok(tm_memtable_iter(memtable, &iter, &err), err);
    for (iter->vtable->first(iter); iter->valid; iter->vtable->next(iter), i++)
        if (i == KEY_COUNT || !tm_slice_equal(iter->entry.key, key_of(&keys[i])) ||
            iter->entry.sequence != keys[i].sequence)
            ck_abort_msg("forward, at key %zu", i);
    ck_assert_uint_eq(i, KEY_COUNT);
    for (iter->vtable->last(iter); iter->valid; iter->vtable->prev(iter), i--)
        if (i == 0 || !tm_slice_equal(iter->entry.key, key_of(&keys[i - 1])))
            ck_abort_msg("backward, before key %zu", i);
    ck_assert_uint_eq(i, 0);
    tm_iter_close(iter);
}

/* Each key, and between it and the next one what is not there. */
static void
check_places(struct tm_memtable *memtable)
{
    struct tm_iter *iter;

    check_ok(tm_memtable_iter(memtable, &iter, &err), err);
    for (size_t i = 0; i < KEY_COUNT; i++) {
        uint8_t between[KEY_MAX + 1];
        tamis_slice behind = tm_slice(between, keys[i].length + 1);
        bool is_there;

        if (find(memtable, key_of(&keys[i]), TM_SEQUENCE_MAX) != keys[i].sequence ||
            find(memtable, key_of(&keys[i]), keys[i].sequence - 1) != 0)
            ck_abort_msg("key %zu", i);
        memcpy(between, keys[i].bytes, keys[i].length);
        between[keys[i].length] = 0; // the key right behind it
        is_there = i + 1 < KEY_COUNT && tm_slice_equal(behind, key_of(&keys[i + 1]));
        if ((find(memtable, behind, TM_SEQUENCE_MAX) != 0) != is_there)
            ck_abort_msg("behind key %zu", i);
        iter->vtable->seek(iter, behind, TM_SEQUENCE_MAX);
        if (iter->valid != (i + 1 < KEY_COUNT) ||
            (iter->valid && !tm_slice_equal(iter->entry.key, key_of(&keys[i + 1]))))
            ck_abort_msg("seek behind key %zu", i);
        if (!iter->valid)
            continue;
        iter->vtable->prev(iter);
        if (!iter->valid || !tm_slice_equal(iter->entry.key, key_of(&keys[i])))
            ck_abort_msg("back to key %zu", i);
    }
    tm_iter_close(iter);
}

START_TEST(keys_of_every_shape_written_in_every_order_are_found_and_walked)
{
    for (int which = 0; which < SHAPE_COUNT * WRITE_ORDER_COUNT; which++) {
        struct tm_memtable *memtable = make_memtable();
        enum write_order order = (enum write_order)(which % WRITE_ORDER_COUNT);

        memset(keys, 0, sizeof keys);
        for (size_t i = 0; i < KEY_COUNT; i++)
            keys[i].length = shapes[which / WRITE_ORDER_COUNT].make(keys[i].bytes, i);
        qsort(keys, KEY_COUNT, sizeof keys[0], compare_shaped);
        for (size_t i = 0; i < KEY_COUNT; i++) {
            struct shaped *next = &keys[written_as(order, i)];

            next->sequence = i + 1;
            add(memtable, key_of(next), next->sequence, true);
        }
        printf("%s, order %d: %" PRIu64 " bytes a key\n", shapes[which / WRITE_ORDER_COUNT].name,
               (int)order, tm_memtable_used_bytes(memtable) / KEY_COUNT);
        check_walks(memtable);
        check_places(memtable);
        tm_memtable_unref(memtable);
    }
}
END_TEST

/* ---- Versions ------------------------------------------------------------------------------------- */

START_TEST(each_of_many_versions_is_found_at_its_sequence_and_met_on_a_walk)
{
    enum { VERSION_COUNT = 50000 };
    struct tm_memtable *memtable = make_memtable();
    tamis_slice key = tm_slice("key", 3);
    struct tm_iter *iter;
    uint64_t sequence;

    add(memtable, tm_slice("kex", 3), 1, true);
    for (sequence = 2; sequence <= 2 * VERSION_COUNT; sequence += 2) // each second sequence
        add(memtable, key, sequence, true);
    add(memtable, tm_slice("kez", 3), sequence, true);
    ck_assert_uint_eq(find(memtable, key, 1), 0);
    for (uint64_t at = 2; at <= 2 * VERSION_COUNT + 1; at++)
        if (find(memtable, key, at) != at / 2 * 2)
            ck_abort_msg("at %" PRIu64, at);
    check_ok(tm_memtable_iter(memtable, &iter, &err), err);
    iter->vtable->seek(iter, key, TM_SEQUENCE_MAX);
    for (sequence = 2 * VERSION_COUNT; sequence > 0; sequence -= 2, iter->vtable->next(iter))
        if (!iter->valid || iter->entry.sequence != sequence)
            ck_abort_msg("forward, at %" PRIu64, sequence);
    ck_assert(tm_slice_equal(iter->entry.key, tm_slice("kez", 3)));
    for (sequence = 2; sequence <= 2 * VERSION_COUNT; sequence += 2) {
        iter->vtable->prev(iter);
        if (!iter->valid || iter->entry.sequence != sequence)
            ck_abort_msg("backward, at %" PRIu64, sequence);
    }
    iter->vtable->prev(iter);
    ck_assert(tm_slice_equal(iter->entry.key, tm_slice("kex", 3)));
    tm_iter_close(iter);
    tm_memtable_unref(memtable);
}
END_TEST

/* ---- Memory --------------------------------------------------------------------------------------- */

/* The worst that can be: all leaves are full, and each gets a key. (In builds with assertions the arena refuses what
 * was not reserved; in all, nothing may be allocated.) */
START_TEST(a_reservation_is_enough_when_every_leaf_is_split)
{
    enum { FULL_COUNT = 64 * 1024, BETWEEN_COUNT = FULL_COUNT / 32 };
    struct tm_memtable *memtable = make_memtable();
    uint64_t sequence = 0;
    uint64_t allocations;
    uint8_t key[8];

    for (uint64_t i = 0; i < FULL_COUNT; i++) {
        tm_put_u64(key, 0);
        for (int j = 0; j < 4; j++)
            key[j] = (uint8_t)(i >> (24 - 8 * j));
        add(memtable, tm_slice(key, 8), ++sequence, true);
    }
    check_ok(tm_memtable_reserve(memtable, BETWEEN_COUNT, 0, BETWEEN_COUNT * 16, &err), err);
    allocations = atomic_load(&fault.live_count);
    for (uint64_t i = 0; i < BETWEEN_COUNT; i++) {
        for (int j = 0; j < 4; j++)
            key[j] = (uint8_t)((32 * i + 7) >> (24 - 8 * j));
        key[7] = 1;
        add(memtable, tm_slice(key, 8), ++sequence, false);
    }
    ck_assert_uint_eq(atomic_load(&fault.live_count), allocations);
    ck_assert_uint_le(tm_memtable_used_bytes(memtable), tm_memtable_bytes(memtable));
    for (uint64_t i = 0; i < FULL_COUNT; i++) {
        tm_put_u64(key, 0);
        for (int j = 0; j < 4; j++)
            key[j] = (uint8_t)(i >> (24 - 8 * j));
        if (find(memtable, tm_slice(key, 8), TM_SEQUENCE_MAX) != i + 1)
            ck_abort_msg("key %" PRIu64, i);
    }
    tm_memtable_unref(memtable);
}
END_TEST

/* ---- Beside a writer ------------------------------------------------------------------------------ */

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
enum { RACE_KEY_COUNT = 20000, RACE_READERS = 2 };
#else
enum { RACE_KEY_COUNT = 100000, RACE_READERS = 2 };
#endif

struct race {
    struct tm_memtable *memtable;
    size_t (*make)(uint8_t *key, uint64_t i);
    _Atomic uint64_t published; // keys 1 .. published are there
    _Atomic uint64_t next_seed;
    _Atomic uint32_t failure_count;
    _Atomic uint64_t walk_count;
};

static tamis_slice
race_key(const struct race *race, uint8_t key[KEY_MAX], uint64_t sequence)
{
    return tm_slice(key, race->make(key, sequence * 40503 % RACE_KEY_COUNT)); // no common factor
}

/* All the way, one way or the other: entries are in order, and what was published is met. */
static bool
race_walk_is_good(const struct race *race, struct rng *rng)
{
    uint64_t published = atomic_load_explicit(&race->published, memory_order_acquire);
    bool forward = rng_chance(rng, 1, 2);
    uint64_t seen_count = 0;
    uint8_t last[KEY_MAX];
    size_t last_length = 0;
    bool is_good = true;
    struct tm_iter *iter;

    if (tm_memtable_iter(race->memtable, &iter, NULL) != TAMIS_OK)
        return false;
    forward ? iter->vtable->first(iter) : iter->vtable->last(iter);
    while (iter->valid && is_good) {
        int order = tm_slice_compare(tm_slice(last, last_length), iter->entry.key);

        is_good = (last_length == 0 || (forward ? order < 0 : order > 0)) &&
                  tm_get_u64(iter->entry.value.data) == iter->entry.sequence;
        last_length = iter->entry.key.length;
        memcpy(last, iter->entry.key.data, last_length);
        seen_count += iter->entry.sequence <= published;
        forward ? iter->vtable->next(iter) : iter->vtable->prev(iter);
    }
    tm_iter_close(iter);
    return is_good && seen_count == published;
}

static void *
race_read(void *arg)
{
    struct race *race = arg;
    struct rng rng = rng_from(atomic_fetch_add(&race->next_seed, 1));
    uint64_t published;

    do {
        bool is_good = true;

        published = atomic_load_explicit(&race->published, memory_order_acquire);
        for (int i = 0; i < 1000 && is_good && published > 0; i++) {
            uint64_t sequence = 1 + rng_below(&rng, published);
            struct tm_memtable_found found;
            uint8_t key[KEY_MAX];

            get(race->memtable, race_key(race, key, sequence), TM_SEQUENCE_MAX, &found);
            is_good = found.lookup == TM_FOUND && found.sequence == sequence;
        }
        is_good = is_good && race_walk_is_good(race, &rng);
        atomic_fetch_add(&race->walk_count, 1);
        if (!is_good)
            atomic_fetch_add(&race->failure_count, 1);
    } while (published < RACE_KEY_COUNT - 1);
    return NULL;
}

START_TEST(readers_beside_splits_find_every_published_key)
{
    struct race race = {.memtable = make_memtable(), .make = shapes[_i].make};
    pthread_t readers[RACE_READERS];

    race.next_seed = rng_seed("readers_beside_splits_find_every_published_key", 21);
    for (int i = 0; i < RACE_READERS; i++)
        if (pthread_create(&readers[i], NULL, race_read, &race) != 0)
            ck_abort_msg("no thread");
    for (uint64_t sequence = 1; sequence < RACE_KEY_COUNT; sequence++) {
        uint8_t key[KEY_MAX];

        add(race.memtable, race_key(&race, key, sequence), sequence, true);
        atomic_store_explicit(&race.published, sequence, memory_order_release);
    }
    for (int i = 0; i < RACE_READERS; i++)
        ck_assert_int_eq(pthread_join(readers[i], NULL), 0);
    ck_assert_uint_eq(atomic_load(&race.failure_count), 0);
    printf("%s: %" PRIu64 " rounds\n", shapes[_i].name, atomic_load(&race.walk_count));
    tm_memtable_unref(race.memtable);
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("memtable_tree");
    TCase *tests = tcase_create("memtable_tree");

    tcase_set_timeout(tests, 0);
    tcase_add_checked_fixture(tests, set_up, tear_down);
    tcase_add_test(tests, keys_of_every_shape_written_in_every_order_are_found_and_walked);
    tcase_add_test(tests, each_of_many_versions_is_found_at_its_sequence_and_met_on_a_walk);
    tcase_add_test(tests, a_reservation_is_enough_when_every_leaf_is_split);
    tcase_add_loop_test(tests, readers_beside_splits_find_every_published_key, 0,
                        4); // not the nested ones: 4 bytes tell 60 apart
    suite_add_tcase(suite, tests);
    return check_run(suite);
}
