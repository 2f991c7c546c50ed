/* SPDX-License-Identifier: MIT
 *
 * tests/sstable/test_iter_merge.c -- many iterators as one, against one sorted list.
 *
 * The sources are iterators over arrays, which can be told to fail.
 */
#include "tests/sstable/table_test.h"

static struct fault_alloc fault;
static struct tm_env env;
static struct entries all; // of all sources, sorted, equal ones once
static size_t open_count;  // sources not yet closed

static void
setup(void)
{
    fault_alloc_init(&fault);
    memset(&env, 0, sizeof env);
    env.allocator = fault_alloc_allocator(&fault);
    open_count = 0;
}

static void
teardown(void)
{
    entries_free(&all);
    ck_assert_uint_eq(open_count, 0);
    ck_assert_uint_eq(fault.live_count, 0);
}

/* ---- A source over an array ------------------------------------------------------------------------ */

struct array_iter {
    struct tm_iter base;
    struct entries entries; // owned
    size_t at;
    size_t fail_at;  // standing here is a failure; SIZE_MAX: never
    uint8_t key[64]; // like a table's, the key lives in a buffer that the next move overwrites
};

static void
array_show(struct array_iter *iter)
{
    memset(iter->key, 0xee, sizeof iter->key);
    iter->base.valid = iter->at < iter->entries.count;
    iter->base.status = TAMIS_OK;
    if (iter->at == iter->fail_at) {
        iter->base.valid = false;
        iter->base.status = TM_FAIL(&iter->base.error, TAMIS_IO, "told to fail");
    } else if (iter->base.valid) {
        const struct tm_entry *entry = &iter->entries.list[iter->at];

        iter->base.entry = *entry;
        memcpy(iter->key, entry->key.data, entry->key.length);
        iter->base.entry.key.data = iter->key;
    }
}

static void
array_first(struct tm_iter *base)
{
    struct array_iter *iter = (struct array_iter *)base;

    iter->at = 0;
    array_show(iter);
}

static void
array_seek(struct tm_iter *base, tamis_slice key, uint64_t sequence)
{
    struct array_iter *iter = (struct array_iter *)base;

    iter->at = entries_seek(&iter->entries, key, sequence);
    array_show(iter);
}

static void
array_next(struct tm_iter *base)
{
    struct array_iter *iter = (struct array_iter *)base;

    expect(base->valid);
    iter->at++;
    array_show(iter);
}

static void
array_close(struct tm_iter *base)
{
    struct array_iter *iter = (struct array_iter *)base;

    entries_free(&iter->entries);
    free(iter);
    open_count--;
}

static struct array_iter *
array_create(void)
{
    static const struct tm_iter_vtable vtable = {array_first, array_seek, array_next, array_close};
    struct array_iter *iter = calloc(1, sizeof *iter);

    iter->base.vtable = &vtable;
    iter->fail_at = SIZE_MAX;
    open_count++;
    return iter;
}

/* ---- Merging --------------------------------------------------------------------------------------- */

static struct tm_iter *
merge(struct array_iter **sources, size_t count)
{
    struct tm_iter *list[64];
    struct tm_iter *iter;
    tamis_error err;

    for (size_t i = 0; i < count; i++)
        list[i] = &sources[i]->base;
    check_ok(tm_iter_merge(&env, list, count, &iter, &err), err);
    memset(list, 0, sizeof list); // the array was copied
    return iter;
}

static void
check_walk(struct tm_iter *iter, size_t at)
{
    for (; iter->valid; iter->vtable->next(iter), at++)
        expect(at < all.count && same_entry(&iter->entry, &all.list[at]));
    ck_assert_int_eq(iter->status, TAMIS_OK);
    ck_assert_uint_eq(at, all.count);
}

static void
sort(struct entries *entries)
{
    if (entries->count > 0)
        entries_sort(entries);
}

/* Random entries dealt to `count` sources; keys of few letters, so that ties and shared first bytes abound. */
static void
deal(struct rng *rng, struct array_iter **sources, size_t count, size_t entry_count, bool long_keys)
{
    for (size_t i = 0; i < count; i++)
        sources[i] = array_create();
    for (size_t i = 0; i < entry_count; i++) {
        uint8_t key[40] = "a prefix of more than eight bytes";
        size_t begin = long_keys ? 33 : 0;
        size_t length = begin + (size_t)rng_below(rng, 4);
        struct array_iter *source = sources[rng_below(rng, count)];

        for (size_t at = begin; at < length; at++)
            key[at] = (uint8_t)(rng_chance(rng, 1, 4) ? rng_below(rng, 2) * 255
                                                      : 'a' + rng_below(rng, 3));
        entries_add(&all, tm_slice(key, length), i + 1,
                    rng_below(rng, 2) ? TM_KIND_PUT : TM_KIND_DELETE, tm_slice(NULL, 0));
        entries_add(&source->entries, tm_slice(key, length), i + 1, all.list[i].kind,
                    tm_slice(NULL, 0));
    }
    for (size_t i = 0; i < count; i++)
        sort(&sources[i]->entries);
    sort(&all);
}

START_TEST(the_merge_of_random_sources_is_their_sorted_union)
{
    struct rng rng = rng_from(rng_seed("merge", 1));

    for (size_t round = 0; round < 2000; round++) {
        struct array_iter *sources[40];
        size_t count = 1 + (size_t)rng_below(&rng, round % 10 == 0 ? 40 : 6);
        struct tm_iter *iter;

        deal(&rng, sources, count, (size_t)rng_below(&rng, 120), round % 2 == 0);
        iter = merge(sources, count);
        ck_assert(!iter->valid);
        iter->vtable->first(iter);
        check_walk(iter, 0);
        for (size_t i = 0; i < 10; i++) { // from anywhere, and again
            size_t at = (size_t)rng_below(&rng, all.count + 1);
            tamis_slice key = at < all.count ? all.list[at].key : tm_slice("\xff\xff\xff\xff", 4);
            uint64_t sequence = rng_below(&rng, 130);

            iter->vtable->seek(iter, key, sequence);
            check_walk(iter, entries_seek(&all, key, sequence));
        }
        tm_iter_close(iter);
        entries_free(&all);
    }
}
END_TEST

START_TEST(a_merge_of_nothing_is_empty)
{
    struct array_iter *sources[3];
    struct tm_iter *iter = merge(NULL, 0);

    iter->vtable->first(iter);
    check_walk(iter, 0);
    iter->vtable->seek(iter, tm_slice("k", 1), 1);
    check_walk(iter, 0);
    tm_iter_close(iter);
    for (size_t i = 0; i < 3; i++)
        sources[i] = array_create();
    iter = merge(sources, 3);
    iter->vtable->first(iter);
    check_walk(iter, 0);
    tm_iter_close(iter);
}
END_TEST

START_TEST(an_entry_in_several_sources_comes_once_from_the_first)
{
    struct rng rng = rng_from(rng_seed("merge of equals", 2));

    for (size_t round = 0; round < 1000; round++) {
        struct array_iter *sources[7];
        struct tm_iter *iter;

        for (size_t i = 0; i < 7; i++)
            sources[i] = array_create();
        for (uint64_t i = 0; i < 60; i++) {
            char key[8];
            bool first = true;

            snprintf(key, sizeof key, "k%02u", (unsigned)(i / 2));
            for (size_t at = 0; at < 7; at++) {
                char value[8];

                if (rng_chance(&rng, 1, 2))
                    continue;
                snprintf(value, sizeof value, "%zu", at);
                entries_put(&sources[at]->entries, key, 100 + i % 2, value);
                if (first)
                    entries_put(&all, key, 100 + i % 2, value);
                first = false;
            }
        }
        for (size_t i = 0; i < 7; i++)
            sort(&sources[i]->entries);
        entries_sort(&all);
        iter = merge(sources, 7);
        iter->vtable->first(iter);
        check_walk(iter, 0);
        tm_iter_close(iter);
        entries_free(&all);
    }
}
END_TEST

START_TEST(a_source_that_fails_ends_the_walk_there_and_a_seek_past_it_goes_on)
{
    struct rng rng = rng_from(rng_seed("failing merge", 3));

    for (size_t round = 0; round < 1000; round++) {
        struct array_iter *sources[5];
        struct array_iter *failing;
        struct tm_iter *iter;
        size_t at = 0;

        deal(&rng, sources, 5, 60, false);
        failing = sources[rng_below(&rng, 5)];
        failing->fail_at = (size_t)rng_below(&rng, failing->entries.count + 1);
        iter = merge(sources, 5);
        for (iter->vtable->first(iter); iter->valid; iter->vtable->next(iter), at++)
            expect(same_entry(&iter->entry, &all.list[at]));
        ck_assert_int_eq(iter->status, TAMIS_IO);
        ck_assert_str_eq(iter->error.message, "told to fail");
        // Nothing that the failing source still held was passed over.
        if (failing->fail_at < failing->entries.count) {
            const struct tm_entry *lost = &failing->entries.list[failing->fail_at];

            ck_assert_uint_le(at, entries_seek(&all, lost->key, lost->sequence));
        }
        failing->fail_at = SIZE_MAX;
        iter->vtable->first(iter);
        check_walk(iter, 0);
        tm_iter_close(iter);
        entries_free(&all);
    }
}
END_TEST

START_TEST(without_memory_the_sources_are_closed)
{
    struct array_iter *sources[3];
    struct tm_iter *list[3];
    struct tm_iter *iter = NULL;
    tamis_error err;

    for (size_t i = 0; i < 3; i++) {
        sources[i] = array_create();
        list[i] = &sources[i]->base;
    }
    fault_alloc_fail_after(&fault, 1, false);
    check_status(tm_iter_merge(&env, list, 3, &iter, &err), TAMIS_NO_MEMORY, err);
    ck_assert_ptr_null(iter);
    ck_assert_uint_eq(open_count, 0);
}
END_TEST

START_TEST(closing_nothing_is_allowed)
{
    tm_iter_close(NULL);
}
END_TEST

START_TEST(tables_merge_as_their_entries_do)
{
    static struct shelf shelf;
    struct tm_table_options options = shelf_options(256);
    struct rng rng = rng_from(rng_seed("merge of tables", 4));
    struct entries parts[4] = {0};
    struct tm_table *tables[4];
    struct tm_iter *sources[4];
    struct tm_iter *iter;
    tamis_error err;

    shelf_open(&shelf);
    for (uint64_t i = 0; i < 4000; i++) {
        char key[16];
        struct entries *part = &parts[rng_below(&rng, 4)];

        snprintf(key, sizeof key, "key%04u", (unsigned)rng_below(&rng, 1000));
        entries_put(&all, key, i + 1, key);
        entries_put(part, key, i + 1, key);
    }
    entries_sort(&all);
    for (size_t i = 0; i < 4; i++) {
        char name[16];

        snprintf(name, sizeof name, "%zu.sst", i);
        entries_sort(&parts[i]);
        (void)shelf_write(&shelf, name, &options, &parts[i]);
        entries_free(&parts[i]);
        tables[i] = shelf_table(&shelf, name, NULL);
        check_ok(tm_table_iter(tables[i], false, &sources[i], &err), err);
    }
    check_ok(tm_iter_merge(&shelf.env, sources, 4, &iter, &err), err);
    iter->vtable->first(iter);
    check_walk(iter, 0);
    for (size_t at = 0; at < all.count; at += 37) {
        iter->vtable->seek(iter, all.list[at].key, all.list[at].sequence);
        check_walk(iter, at);
    }
    tm_iter_close(iter);
    for (size_t i = 0; i < 4; i++)
        tm_table_close(tables[i]);
    shelf_close(&shelf);
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("iter_merge");
    TCase *tests = tcase_create("iter_merge");

    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_set_timeout(tests, 0);
    tcase_add_test(tests, the_merge_of_random_sources_is_their_sorted_union);
    tcase_add_test(tests, a_merge_of_nothing_is_empty);
    tcase_add_test(tests, an_entry_in_several_sources_comes_once_from_the_first);
    tcase_add_test(tests, a_source_that_fails_ends_the_walk_there_and_a_seek_past_it_goes_on);
    tcase_add_test(tests, without_memory_the_sources_are_closed);
    tcase_add_test(tests, closing_nothing_is_allowed);
    tcase_add_test(tests, tables_merge_as_their_entries_do);
    suite_add_tcase(suite, tests);
    return check_run(suite);
}
