/* SPDX-License-Identifier: MIT
 *
 * tests/engine/test_comparator.c -- stores whose keys stand in another order than that of their bytes, against a model in that
 * order: numbers by value, bytes reversed, letters of either case alike.
 *
 * Key number i of `KEYS` stands at place i in every order but the reversed one.
 */
#include <unistd.h>

#include "tests/engine/one_store.h"
#include "tests/support/rng.h"

enum {
    KEYS = 700,
    STEPS = 6000 / ONE_STORE_DIVISOR,
    VALUE_BYTES = 200,
};

/* ---- Orders --------------------------------------------------------------------------------------- */

static int
sign(int order)
{
    return (order > 0) - (order < 0);
}

static int
compare_bytes(void *ctx, tamis_slice a, tamis_slice b)
{
    size_t shared = a.length < b.length ? a.length : b.length;
    int order = shared != 0 ? memcmp(a.data, b.data, shared) : 0;

    (void)ctx;
    return order != 0 ? sign(order) : (a.length > b.length) - (a.length < b.length);
}

static int
compare_reversed(void *ctx, tamis_slice a, tamis_slice b)
{
    return compare_bytes(ctx, b, a);
}

/* Decimal numbers without leading zeros: the longer one is the larger one. */
static int
compare_numbers(void *ctx, tamis_slice a, tamis_slice b)
{
    return a.length != b.length ? (a.length > b.length) - (a.length < b.length)
                                : compare_bytes(ctx, a, b);
}

static int
lower(int letter)
{
    return letter >= 'A' && letter <= 'Z' ? letter - 'A' + 'a' : letter;
}

static int
compare_folded(void *ctx, tamis_slice a, tamis_slice b)
{
    (void)ctx;
    for (size_t i = 0; i < a.length && i < b.length; i++) {
        int order = lower(((const uint8_t *)a.data)[i]) - lower(((const uint8_t *)b.data)[i]);

        if (order != 0)
            return sign(order);
    }
    return (a.length > b.length) - (a.length < b.length);
}

static void
number_key(char text[64], unsigned number, struct rng *rng)
{
    (void)rng;
    snprintf(text, 64, "%u", 3 + 37 * number); // two to five digits
}

static void
padded_key(char text[64], unsigned number, struct rng *rng)
{
    (void)rng;
    snprintf(text, 64, "a prefix that all keys share %05u", number);
}

/* Letters of random case: equal all the same. */
static void
folded_key(char text[64], unsigned number, struct rng *rng)
{
    snprintf(text, 64, "prefix-%c%c%c-%05u", 'a' + (int)(number / 260 % 26),
             'a' + (int)(number / 26 % 10), 'a' + (int)(number % 26), number);
    for (char *p = text; *p != '\0'; p++)
        if (*p >= 'a' && *p <= 'z' && rng_chance(rng, 1, 2))
            *p = (char)(*p - 'a' + 'A');
}

static const struct order {
    tamis_comparator comparator;
    void (*make_key)(char text[64], unsigned number, struct rng *rng);
    bool reversed;
} orders[] = {
    {{NULL, "reversed-1", compare_reversed, false, true}, padded_key, true},
    {{NULL, "numbers-1", compare_numbers, false, true}, number_key, false},
    {{NULL, "either-case-1", compare_folded, false, false}, folded_key, false},
    {{NULL, "bytes-1", compare_bytes, true, true}, padded_key, false},
};
enum { ORDER_COUNT = sizeof orders / sizeof orders[0] };

/* ---- Model ---------------------------------------------------------------------------------------- */

struct model {
    unsigned versions[KEYS]; // 0: not there
    char keys[KEYS][64];     // as put last
};

static const struct order *order;
static struct model model;
static struct rng rng;

static unsigned
number_at(unsigned place)
{
    return order->reversed ? KEYS - 1 - place : place;
}

static tamis_slice
key_of(char text[64], unsigned number)
{
    order->make_key(text, number, &rng);
    return tamis_text(text);
}

static void
put(tamis_batch *batch, unsigned number, unsigned version)
{
    char text[64];
    char value[VALUE_BYTES] = {0};
    tamis_slice key = key_of(text, number);
    tamis_slice slice = {value, sizeof value};

    memcpy(value, &version, sizeof version);
    if (batch != NULL)
        check_ok(tamis_batch_put(batch, key, slice, &one.err), one.err);
    else
        one_put(key, slice);
    model.versions[number] = version;
    strcpy(model.keys[number], text);
}

static void
remove_key(tamis_batch *batch, unsigned number)
{
    char text[64];
    tamis_slice key = key_of(text, number);

    if (batch != NULL)
        check_ok(tamis_batch_delete(batch, key, &one.err), one.err);
    else
        one_delete(key);
    model.versions[number] = 0;
}

static void
check_get(const struct model *expected, const tamis_snapshot *snapshot, unsigned number)
{
    tamis_read_options options;
    unsigned version = 0;
    size_t length;
    char text[64];
    tamis_status status;

    tamis_read_options_init(&options);
    options.snapshot = snapshot;
    status = tamis_get(one.db, &options, key_of(text, number), &version, sizeof version, &length,
                       &one.err);
    check_status(status, expected->versions[number] != 0 ? TAMIS_OK : TAMIS_NOT_FOUND, one.err);
    ck_assert_uint_eq(version, expected->versions[number]);
}

/* The next place from `place` on that holds a key; KEYS: none. Backward likewise, with `step` -1. */
static unsigned
next_place(const struct model *expected, unsigned place, int step)
{
    while (place < KEYS && expected->versions[number_at(place)] == 0)
        place += (unsigned)step; // 0 - 1 is beyond KEYS
    return place < KEYS ? place : KEYS;
}

static void
check_at(const struct model *expected, const tamis_iter *iter, unsigned place)
{
    tamis_slice key = tamis_iter_key(iter);
    unsigned version;

    ck_assert_int_eq(tamis_iter_valid(iter), place != KEYS);
    check_ok(tamis_iter_status(iter, &one.err), one.err);
    if (place == KEYS)
        return;
    ck_assert_uint_eq(key.length, strlen(expected->keys[number_at(place)]));
    ck_assert_mem_eq(key.data, expected->keys[number_at(place)], key.length);
    memcpy(&version, tamis_iter_value(iter).data, sizeof version);
    ck_assert_uint_eq(version, expected->versions[number_at(place)]);
}

static void
check_walks(const struct model *expected, const tamis_snapshot *snapshot)
{
    unsigned from = (unsigned)rng_below(&rng, KEYS);
    unsigned to = from + (unsigned)rng_below(&rng, KEYS - from);
    char from_text[64], to_text[64], text[64];
    tamis_slice lower_bound = key_of(from_text, number_at(from));
    tamis_slice upper_bound = key_of(to_text, number_at(to));
    tamis_iter_options options;
    tamis_iter *iter;
    unsigned place;

    tamis_iter_options_init(&options);
    options.snapshot = snapshot;
    check_ok(tamis_iter_open(one.db, &options, &iter, &one.err), one.err);
    tamis_iter_first(iter);
    for (place = next_place(expected, 0, 1); place != KEYS;
         place = next_place(expected, place + 1, 1), tamis_iter_next(iter))
        check_at(expected, iter, place);
    check_at(expected, iter, KEYS);
    tamis_iter_last(iter);
    for (place = next_place(expected, KEYS - 1, -1); place != KEYS;
         place = next_place(expected, place - 1, -1), tamis_iter_prev(iter))
        check_at(expected, iter, place);
    check_at(expected, iter, KEYS);
    for (int i = 0; i < 20; i++) {
        place = (unsigned)rng_below(&rng, KEYS);
        tamis_iter_seek(iter, key_of(text, number_at(place)));
        check_at(expected, iter, next_place(expected, place, 1));
        tamis_iter_seek_for_prev(iter, key_of(text, number_at(place)));
        check_at(expected, iter, next_place(expected, place, -1));
        if (tamis_iter_valid(iter)) {
            place = next_place(expected, place, -1);
            tamis_iter_next(iter);
            check_at(expected, iter, next_place(expected, place + 1, 1));
        }
    }
    tamis_iter_close(iter);

    options.lower = &lower_bound;
    options.upper = &upper_bound;
    check_ok(tamis_iter_open(one.db, &options, &iter, &one.err), one.err);
    tamis_iter_first(iter);
    place = next_place(expected, from, 1);
    check_at(expected, iter, place < to ? place : KEYS);
    tamis_iter_last(iter);
    place = to == 0 ? KEYS : next_place(expected, to - 1, -1);
    check_at(expected, iter, place != KEYS && place >= from ? place : KEYS);
    tamis_iter_close(iter);
}

static void
check_all(void)
{
    for (unsigned i = 0; i < KEYS; i++)
        check_get(&model, NULL, i);
    check_walks(&model, NULL);
}

static void
use_order(int index)
{
    order = &orders[index];
    memset(&model, 0, sizeof model);
    one_store_close();
    check_ok(tamis_destroy(one.path, NULL, &one.err), one.err);
    one.options.comparator = &order->comparator;
    one_store_open();
}

static void
begin(void)
{
    one_store_begin();
    rng = rng_from(rng_seed("test_comparator", 31));
}

/* ---- Tests ---------------------------------------------------------------------------------------- */

START_TEST(a_store_in_another_order_agrees_with_a_model_in_that_order)
{
    static struct model then;
    tamis_snapshot *snapshot = NULL;
    tamis_batch *batch;

    use_order(_i);
    check_ok(tamis_batch_create(NULL, &batch, &one.err), one.err);
    for (unsigned step = 1; step <= STEPS; step++) {
        unsigned number = (unsigned)rng_below(&rng, KEYS);

        switch (rng_below(&rng, 8)) {
        case 0:
            remove_key(NULL, number);
            break;
        case 1:
            tamis_batch_clear(batch);
            for (unsigned i = 0; i < 5; i++)
                if (rng_chance(&rng, 1, 3))
                    remove_key(batch, (number + 97 * i) % KEYS);
                else
                    put(batch, (number + 97 * i) % KEYS, step);
            check_ok(tamis_write(one.db, NULL, batch, &one.err), one.err);
            break;
        default:
            put(NULL, number, step);
        }
        check_get(&model, NULL, (unsigned)rng_below(&rng, KEYS));
        if (step % (STEPS / 8) == 0) {
            if (snapshot != NULL) {
                for (unsigned i = 0; i < KEYS; i += 7)
                    check_get(&then, snapshot, i);
                check_walks(&then, snapshot);
                tamis_snapshot_release(one.db, snapshot);
                snapshot = NULL;
            } else {
                check_ok(tamis_snapshot_take(one.db, &snapshot, &one.err), one.err);
                then = model;
            }
            check_walks(&model, NULL);
        }
        if (step % (STEPS / 5) == 0 && snapshot == NULL)
            one_store_reopen();
        if (step == STEPS / 2) {
            check_ok(tamis_compact_range(one.db, NULL, NULL, &one.err), one.err);
            check_all();
        }
    }
    tamis_snapshot_release(one.db, snapshot);
    tamis_batch_destroy(batch);
    ck_assert_uint_gt(one_stats().total.file_count, 1);
    check_all();
    check_ok(tamis_verify(one.db, NULL, NULL, &one.err), one.err);
    one_store_reopen();
    check_all();
    check_ok(tamis_compact_range(one.db, NULL, NULL, &one.err), one.err);
    check_all();
    check_ok(tamis_verify(one.db, NULL, NULL, &one.err), one.err);
}
END_TEST

START_TEST(a_reader_and_a_checkpoint_stand_in_the_same_order)
{
    char *copy = temp_dir_path(one.scratch, "copy");
    tamis_db *writer;

    use_order(_i);
    for (unsigned i = 0; i < KEYS; i += 2)
        put(NULL, i, i + 1);
    check_ok(tamis_checkpoint(one.db, copy, &one.err), one.err);
    for (unsigned i = 0; i < KEYS; i += 4) // these are in the log alone
        put(NULL, i, i + 2);
    writer = one.db;
    one.options.create_if_missing = false;
    one.options.read_only = true;
    one_store_open();
    check_all();
    one_store_close();
    one.db = writer;
    for (unsigned i = 0; i < KEYS; i += 4)
        model.versions[i] = i + 1;
    one_store_close();
    one.options.read_only = false;
    free(one.path);
    one.path = copy;
    one_store_open();
    for (unsigned i = 0; i < KEYS; i++)
        check_get(&model, NULL, i);
}
END_TEST

START_TEST(filters_and_tags_serve_unless_keys_of_different_bytes_can_be_equal)
{
    tamis_stats stats;
    bool may_exist;
    char text[64];

    use_order(_i);
    for (unsigned i = 0; i < KEYS; i += 2)
        put(NULL, i, i + 1);
    check_ok(tamis_compact_range(one.db, NULL, NULL, &one.err), one.err);
    for (unsigned i = 0; i < KEYS; i++)
        check_get(&model, NULL, i);
    stats = one_stats();
    ck_assert_int_eq(stats.total.filter_bytes != 0, order->comparator.equal_is_bytewise);
    ck_assert_uint_eq(stats.total.key_count, KEYS / 2);
    if (order->comparator.equal_is_bytewise)
        ck_assert_uint_ge(stats.total.filter_negatives, KEYS / 2 * 9 / 10);
    else
        ck_assert_uint_eq(stats.total.filter_negatives, 0);
    check_ok(tamis_may_exist(one.db, key_of(text, 2), &may_exist, &one.err), one.err);
    ck_assert(may_exist);
}
END_TEST

/* google/leveldb has the name in its manifest, too; facebook/rocksdb #3741 and wbolster/plyvel #93 tell what happens where the
 * check is missing. */
START_TEST(another_comparator_is_refused_and_nothing_changes)
{
    static const tamis_comparator second = {NULL, "reversed-2", compare_reversed, false, true};
    struct one_listing before, after;
    tamis_db *db = NULL;

    use_order(0);
    for (unsigned i = 0; i < 100; i++)
        put(NULL, i, i + 1);
    one_store_close();
    before = one_list(one.path);
    for (int i = 0; i < 4; i++) {
        one.options.comparator = i % 2 == 0 ? NULL : &second;
        one.options.read_only = i >= 2;
        one.options.create_if_missing = i < 2;
        check_status(tamis_open(one.path, &one.options, &db, &one.err), TAMIS_INVALID, one.err);
        ck_assert_ptr_nonnull(strstr(one.err.message, "reversed-1"));
        ck_assert_ptr_nonnull(
            strstr(one.err.message, i % 2 == 0 ? "tamis.bytewise" : "reversed-2"));
        after = one_list(one.path);
        ck_assert_uint_eq(before.digest, after.digest);
    }
    one.options.read_only = false;
    one.options.create_if_missing = true;
    one.options.comparator = &order->comparator;
    one_store_open();
    check_all();
    one_store_close();

    // And the other way round.
    check_ok(tamis_destroy(one.path, NULL, &one.err), one.err);
    one.options.comparator = NULL;
    one_store_open();
    one_store_close();
    one.options.comparator = &second;
    check_status(tamis_open(one.path, &one.options, &db, &one.err), TAMIS_INVALID, one.err);
    one.options.comparator = NULL;
    one_store_open();
}
END_TEST

START_TEST(deleting_a_range_is_unsupported_and_changes_nothing)
{
    tamis_batch *batch;
    tamis_status expected;
    char from[64], to[64];

    use_order(_i);
    expected = order->comparator.bytewise_ordered ? TAMIS_OK : TAMIS_UNSUPPORTED;
    for (unsigned i = 0; i < 20; i++)
        put(NULL, i, i + 1);
    check_status(tamis_delete_range(one.db, NULL, key_of(from, 3), key_of(to, 3), &one.err),
                 expected, one.err);
    check_status(tamis_delete_range(one.db, NULL, key_of(from, 500), key_of(to, 600), &one.err),
                 expected, one.err);
    check_ok(tamis_batch_create(NULL, &batch, &one.err), one.err);
    check_ok(tamis_batch_delete_range(batch, key_of(from, 600), key_of(to, 500), &one.err),
             one.err); // empty bytewise, and not in every order
    check_status(tamis_write(one.db, NULL, batch, &one.err), expected, one.err);
    tamis_batch_clear(batch);
    check_ok(tamis_write(one.db, NULL, batch, &one.err), one.err);
    tamis_batch_destroy(batch);
    check_all();
}
END_TEST

START_TEST(a_comparator_that_is_none_is_refused)
{
    static const char long_name[] =
        "0123456789012345678901234567890123456789012345678901234567890123x";
    const tamis_comparator bad[] = {
        {NULL, "x", NULL, false, true},
        {NULL, NULL, compare_reversed, false, true},
        {NULL, "", compare_reversed, false, true},
        {NULL, "a name", compare_reversed, false, true},
        {NULL, "n\xc3\xa4me", compare_reversed, false, true},
        {NULL, long_name, compare_reversed, false, true},
        {NULL, "tamis.bytewise", compare_reversed, false, true},
        {NULL, "x", compare_bytes, true, false},
    };
    const tamis_comparator longest = {NULL, long_name + 1, compare_bytes, true, true};
    tamis_db *db = NULL;

    one_store_close();
    check_ok(tamis_destroy(one.path, NULL, &one.err), one.err);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        one.options.comparator = &bad[i];
        check_status(tamis_open(one.path, &one.options, &db, &one.err), TAMIS_INVALID, one.err);
        ck_assert_ptr_nonnull(strstr(one.err.message, "comparator"));
    }
    ck_assert_int_eq(access(one.path, F_OK), -1);
    one.options.comparator = &longest;
    one_store_open();
    one_store_reopen();
}
END_TEST

static bool
gather_text(void *arg, const char *text, size_t length)
{
    char *all = arg;

    strncat(all, text, length < 60000 - strlen(all) ? length : 0);
    return true;
}

START_TEST(files_are_inspected_without_their_comparator)
{
    static char text[65536];
    DIR *directory;
    struct dirent *entry;
    unsigned tables = 0;

    use_order(_i);
    for (unsigned i = 0; i < 50; i++)
        put(NULL, i, i + 1);
    check_ok(tamis_flush(one.db, &one.err), one.err);
    directory = opendir(one.path);
    ck_assert_ptr_nonnull(directory);
    while ((entry = readdir(directory)) != NULL) {
        char *path = temp_dir_path(one.path, entry->d_name);

        text[0] = '\0';
        if (one_ends_with(entry->d_name, ".sst")) {
            check_ok(tamis_inspect(path, true, gather_text, text, NULL, &one.err), one.err);
            ck_assert_ptr_nonnull(
                strstr(text, model.keys[number_at(KEYS - 1 - 10) < 50 ? 10 : 20]));
            tables++;
        } else if (strncmp(entry->d_name, "MANIFEST", 8) == 0) {
            check_ok(tamis_inspect(path, true, gather_text, text, NULL, &one.err), one.err);
            ck_assert_ptr_nonnull(strstr(text, order->comparator.name));
        }
        free(path);
    }
    closedir(directory);
    ck_assert_uint_eq(tables, 1);
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("comparator");
    TCase *tests = tcase_create("comparator");

    tcase_add_checked_fixture(tests, begin, one_store_end);
    tcase_set_timeout(tests, 60);
    tcase_add_loop_test(tests, a_store_in_another_order_agrees_with_a_model_in_that_order, 0,
                        ORDER_COUNT);
    tcase_add_loop_test(tests, a_reader_and_a_checkpoint_stand_in_the_same_order, 0, ORDER_COUNT);
    tcase_add_loop_test(tests, filters_and_tags_serve_unless_keys_of_different_bytes_can_be_equal,
                        0, ORDER_COUNT);
    tcase_add_test(tests, another_comparator_is_refused_and_nothing_changes);
    tcase_add_loop_test(tests, deleting_a_range_is_unsupported_and_changes_nothing, 0, ORDER_COUNT);
    tcase_add_test(tests, a_comparator_that_is_none_is_refused);
    tcase_add_loop_test(tests, files_are_inspected_without_their_comparator, 0, ORDER_COUNT);
    suite_add_tcase(suite, tests);
    return check_run(suite);
}
