/* SPDX-License-Identifier: MIT
 *
 * tests/sstable/test_iter_merge.c -- many sources as one: what sorting all of them would give.
 */
#include "sstable/iter.h"
#include "tests/sstable/table_test.h"

static struct fault_alloc fault;
static struct tm_env env;

static void
setup(void)
{
    fault_alloc_init(&fault);
    memset(&env, 0, sizeof env);
    env.allocator = fault_alloc_allocator(&fault);
}

static void
teardown(void)
{
    ck_assert_uint_eq(fault.live_count, 0);
}

/* ---- A source: a walk over a list, which can fail on demand -------------------------------------------- */

struct source {
    struct tm_iter base;
    const struct entries *entries;
    size_t at;
    size_t fail_at; // entry whose turn fails; SIZE_MAX: none
    uint8_t *key;   // what is shown lies in memory that goes away with the next move
};

static unsigned open_sources;

static void
source_show(struct source *source)
{
    free(source->key);
    source->key = NULL;
    source->base.status = TAMIS_OK;
    source->base.valid = source->at < source->entries->count;
    if (source->at >= source->fail_at && source->at != SIZE_MAX) {
        source->base.valid = false;
        source->base.status = TAMIS_CORRUPT;
        snprintf(source->base.error.message, sizeof source->base.error.message, "at entry %zu",
                 source->at);
    }
    if (source->base.valid) {
        const struct tm_entry *entry = &source->entries->list[source->at];

        source->key = malloc(entry->key.length);
        if (entry->key.length > 0)
            memcpy(source->key, entry->key.data, entry->key.length);
        source->base.entry = *entry;
        source->base.entry.key.data = source->key;
    }
}

static void
source_first(struct tm_iter *iter)
{
    ((struct source *)iter)->at = 0;
    source_show((struct source *)iter);
}

static void
source_last(struct tm_iter *iter)
{
    struct source *source = (struct source *)iter;

    source->at = source->entries->count - 1; // wraps around when there is none
    source_show(source);
}

static void
source_seek(struct tm_iter *iter, tamis_slice key, uint64_t sequence)
{
    struct source *source = (struct source *)iter;

    source->at = entries_seek(source->entries, key, sequence);
    source_show(source);
}

static void
source_next(struct tm_iter *iter)
{
    ck_assert(iter->valid);
    ((struct source *)iter)->at++;
    source_show((struct source *)iter);
}

static void
source_prev(struct tm_iter *iter)
{
    ck_assert(iter->valid);
    ((struct source *)iter)->at--; // wraps around at the first
    source_show((struct source *)iter);
}

static void
source_close(struct tm_iter *iter)
{
    free(((struct source *)iter)->key);
    free(iter);
    open_sources--;
}

static struct tm_iter *
source_open(const struct entries *entries, size_t fail_at)
{
    static const struct tm_iter_vtable vtable = {
        .first = source_first,
        .last = source_last,
        .seek = source_seek,
        .seek_for_prev = tm_iter_seek_and_step_back,
        .next = source_next,
        .prev = source_prev,
        .close = source_close,
    };
    struct source *source = calloc(1, sizeof *source);

    source->base.vtable = &vtable;
    source->entries = entries;
    source->fail_at = fail_at;
    open_sources++;
    return &source->base;
}

/* ---- Lists ------------------------------------------------------------------------------------------- */

enum { SOURCES_MAX = 40 };

struct mix {
    struct entries sources[SOURCES_MAX];
    struct entries all; // sorted, each (key, sequence) once: the first source's
    size_t count;
};

/* Spread versions of few keys over the sources; `twice` puts some of them into two, with other values. */
static void
mix_fill(struct mix *mix, struct rng *rng, size_t count, bool twice)
{
    size_t entry_count = (size_t)rng_below(rng, 200);

    memset(mix, 0, sizeof *mix);
    mix->count = count;
    for (size_t i = 0; i < entry_count && count > 0; i++) {
        uint8_t key[16];
        size_t length =
            (size_t)rng_below(rng, 12); // around the 8 bytes that decide most comparisons
        size_t first = (size_t)rng_below(rng, count);
        size_t second = (size_t)rng_below(rng, count);
        uint8_t value = (uint8_t)first;

        for (size_t at = 0; at < length; at++)
            key[at] = (uint8_t) "\0\xff"[rng_chance(rng, 1, 4)];
        entries_add(&mix->sources[first], tm_slice(key, length), i, TM_KIND_PUT,
                    tm_slice(&value, 1));
        if (twice && second != first && rng_chance(rng, 1, 2)) {
            uint8_t other = (uint8_t)second;

            entries_add(&mix->sources[second], tm_slice(key, length), i, TM_KIND_PUT,
                        tm_slice(&other, 1));
            value = second < first ? other : value;
        }
        entries_add(&mix->all, tm_slice(key, length), i, TM_KIND_PUT, tm_slice(&value, 1));
    }
    for (size_t i = 0; i < count; i++)
        entries_sort(&mix->sources[i]);
    entries_sort(&mix->all);
}

static void
mix_free(struct mix *mix)
{
    for (size_t i = 0; i < mix->count; i++)
        entries_free(&mix->sources[i]);
    entries_free(&mix->all);
}

static struct tm_iter *
mix_open(const struct mix *mix)
{
    struct tm_iter *sources[SOURCES_MAX];
    struct tm_iter *merge;
    tamis_error err;

    for (size_t i = 0; i < mix->count; i++)
        sources[i] = source_open(&mix->sources[i], SIZE_MAX);
    expect_ok(tm_iter_merge(&env, sources, mix->count, &merge, &err), err);
    memset(sources, 0, sizeof sources); // the array is copied
    return merge;
}

/* The merge stands on entry `at` of all, and goes on as they do for `steps` steps or to the end. */
static void
check_rest(struct tm_iter *merge, const struct mix *mix, size_t at, size_t steps)
{
    for (; steps > 0; steps--, at++) {
        expect(merge->status == TAMIS_OK);
        expect(merge->valid == (at < mix->all.count));
        if (!merge->valid)
            return;
        expect(same_entry(&merge->entry, &mix->all.list[at]));
        merge->vtable->next(merge);
    }
}

START_TEST(a_merge_of_0_to_40_sources_is_what_sorting_gives)
{
    struct rng rng = rng_from(rng_seed("merges", 71));

    for (size_t count = 0; count <= SOURCES_MAX; count++) {
        for (unsigned round = 0; round < 20; round++) {
            struct mix mix;
            struct tm_iter *merge;

            mix_fill(&mix, &rng, count, round % 2 == 1);
            merge = mix_open(&mix);
            ck_assert(!merge->valid && merge->status == TAMIS_OK);
            merge->vtable->first(merge);
            check_rest(merge, &mix, 0, SIZE_MAX);
            merge->vtable->first(merge); // and once more from the end
            check_rest(merge, &mix, 0, 5);
            tm_iter_close(merge);
            ck_assert_uint_eq(open_sources, 0);
            mix_free(&mix);
        }
    }
}
END_TEST

START_TEST(an_entry_in_several_sources_comes_once_from_the_first)
{
    struct rng rng = rng_from(rng_seed("equal entries", 75));

    for (unsigned round = 0; round < 300; round++) {
        struct mix mix = {.count = 7};
        struct tm_iter *merge;

        for (unsigned i = 0; i < 60; i++) {
            char key[8];
            bool first = true;

            snprintf(key, sizeof key, "k%02u", i / 2);
            for (size_t at = 0; at < mix.count; at++) {
                char value[24];

                if (rng_chance(&rng, 1, 2))
                    continue;
                snprintf(value, sizeof value, "%zu", at);
                entries_put(&mix.sources[at], key, 100 + i % 2, value);
                if (first)
                    entries_put(&mix.all, key, 100 + i % 2, value);
                first = false;
            }
        }
        for (size_t at = 0; at < mix.count; at++)
            entries_sort(&mix.sources[at]);
        entries_sort(&mix.all);
        merge = mix_open(&mix);
        merge->vtable->first(merge);
        check_rest(merge, &mix, 0, SIZE_MAX);
        tm_iter_close(merge);
        mix_free(&mix);
    }
}
END_TEST

START_TEST(seeking_anywhere_goes_on_as_the_sorted_list_does)
{
    struct rng rng = rng_from(rng_seed("seeks", 72));

    for (unsigned round = 0; round < 200; round++) {
        struct mix mix;
        struct tm_iter *merge;

        mix_fill(&mix, &rng, 1 + (size_t)rng_below(&rng, SOURCES_MAX), round % 2 == 1);
        merge = mix_open(&mix);
        for (unsigned i = 0; i < 50; i++) {
            uint8_t key[16];
            size_t length = (size_t)rng_below(&rng, 12);
            uint64_t sequence = rng_below(&rng, 200);

            for (size_t at = 0; at < length; at++)
                key[at] = (uint8_t) "\0\xff"[rng_chance(&rng, 1, 4)];
            merge->vtable->seek(merge, tm_slice(key, length), sequence);
            check_rest(merge, &mix, entries_seek(&mix.all, tm_slice(key, length), sequence),
                       (size_t)rng_below(&rng, 20));
        }
        tm_iter_close(merge);
        mix_free(&mix);
    }
}
END_TEST

START_TEST(a_walk_that_turns_anywhere_stands_where_the_sorted_list_does)
{
    struct rng rng = rng_from(rng_seed("turns", 76));

    for (unsigned round = 0; round < 400; round++) {
        struct mix mix;
        struct tm_iter *merge;

        mix_fill(&mix, &rng, 1 + (size_t)rng_below(&rng, round % 4 == 0 ? SOURCES_MAX : 5),
                 round % 2 == 1);
        merge = mix_open(&mix);
        if (mix.all.count != 0)
            entries_walk(&mix.all, merge, &rng, 300);
        tm_iter_close(merge);
        mix_free(&mix);
    }
}
END_TEST

/* What a walk leaves out that has skipped to `bound` in the sources from `first` on. */
struct skip {
    size_t first;
    tamis_slice bound;
    bool backward;
};

/* The next entry of all from `at` on that `skip` does not leave out; none: somewhere beyond their count. */
static size_t
next_kept(const struct mix *mix, size_t at, const struct skip *skip)
{
    for (; at < mix->all.count; at += skip->backward ? SIZE_MAX : 1) {
        const struct tm_entry *entry = &mix->all.list[at];
        bool before = tm_slice_compare(entry->key, skip->bound) < 0;

        if (((const uint8_t *)entry->value.data)[0] < skip->first || before == skip->backward)
            break;
    }
    return at;
}

static void
check_stands_on(const struct tm_iter *merge, const struct mix *mix, size_t at)
{
    expect(merge->status == TAMIS_OK && merge->valid == (at < mix->all.count));
    expect(!merge->valid || same_entry(&merge->entry, &mix->all.list[at]));
}

/* From entry `at` of all to a bound ahead, some steps on, and back to what was left out. */
static void
check_skip(struct tm_iter *merge, const struct mix *mix, size_t at, struct rng *rng)
{
    const struct tm_entry *from = &mix->all.list[at];
    struct skip skip = {.first = (size_t)rng_below(rng, mix->count + 1),
                        .bound = mix->all.list[rng_below(rng, mix->all.count)].key,
                        .backward = rng_chance(rng, 1, 2)};
    size_t kept = next_kept(mix, at, &skip);

    if (skip.backward)
        merge->vtable->seek_for_prev(merge, from->key, from->sequence);
    else
        merge->vtable->seek(merge, from->key, from->sequence);
    expect(tm_iter_merge_skip(merge, skip.first, skip.bound) == (kept != at));
    for (uint64_t steps = rng_below(rng, 10); steps > 0 && merge->valid; steps--) {
        check_stands_on(merge, mix, kept);
        kept = next_kept(mix, kept + (skip.backward ? SIZE_MAX : 1), &skip);
        if (skip.backward)
            merge->vtable->prev(merge);
        else
            merge->vtable->next(merge);
    }
    check_stands_on(merge, mix, kept);
    for (unsigned steps = 0; steps < 5 && merge->valid; steps++) {
        kept += skip.backward ? 1 : SIZE_MAX;
        if (skip.backward)
            merge->vtable->next(merge);
        else
            merge->vtable->prev(merge);
        check_stands_on(merge, mix, kept);
    }
}

START_TEST(a_skip_leaves_out_what_later_sources_hold_before_the_bound_until_the_walk_turns)
{
    struct rng rng = rng_from(rng_seed("skips", 77));

    for (unsigned round = 0; round < 400; round++) {
        struct mix mix;
        struct tm_iter *merge;

        mix_fill(&mix, &rng, 1 + (size_t)rng_below(&rng, round % 4 == 0 ? SOURCES_MAX : 5), false);
        merge = mix_open(&mix);
        for (unsigned i = 0; i < 20 && mix.all.count != 0; i++)
            check_skip(merge, &mix, (size_t)rng_below(&rng, mix.all.count), &rng);
        tm_iter_close(merge);
        mix_free(&mix);
    }
}
END_TEST

START_TEST(a_source_that_fails_while_it_skips_fails_the_merge)
{
    struct rng rng = rng_from(rng_seed("failing skips", 78));

    for (unsigned round = 0; round < 300; round++) {
        struct mix mix;
        struct tm_iter *sources[2];
        struct tm_iter *merge;
        tamis_error err;

        mix_fill(&mix, &rng, 2, false);
        if (mix.sources[0].count != 0 && mix.sources[1].count > 1) {
            sources[0] = source_open(&mix.sources[0], SIZE_MAX);
            sources[1] = source_open(&mix.sources[1], 1);
            expect_ok(tm_iter_merge(&env, sources, 2, &merge, &err), err);
            merge->vtable->first(merge);
            ck_assert(merge->valid);
            expect(tm_iter_merge_skip(merge, 1,
                                      tm_slice("\xff\xff\xff\xff\xff\xff\xff\xff\xff"
                                               "\xff\xff\xff\xff",
                                               13)));
            ck_assert(!merge->valid);
            ck_assert_int_eq(merge->status, TAMIS_CORRUPT);
            tm_iter_close(merge);
        }
        mix_free(&mix);
    }
}
END_TEST

START_TEST(a_source_that_fails_ends_the_walk_before_anything_could_be_missed)
{
    struct rng rng = rng_from(rng_seed("failures", 73));

    for (unsigned round = 0; round < 300; round++) {
        struct mix mix;
        struct tm_iter *sources[SOURCES_MAX];
        struct tm_iter *merge;
        size_t count = 1 + (size_t)rng_below(&rng, SOURCES_MAX);
        size_t bad = (size_t)rng_below(&rng, count);
        size_t fail_at;
        size_t at = 0;
        tamis_error err;

        mix_fill(&mix, &rng, count, round % 2 == 1);
        fail_at = (size_t)rng_below(&rng, mix.sources[bad].count + 1);
        for (size_t i = 0; i < count; i++)
            sources[i] = source_open(&mix.sources[i], i == bad ? fail_at : SIZE_MAX);
        expect_ok(tm_iter_merge(&env, sources, count, &merge, &err), err);
        for (merge->vtable->first(merge); merge->valid; merge->vtable->next(merge), at++)
            expect(same_entry(&merge->entry, &mix.all.list[at]));
        ck_assert_int_eq(merge->status, TAMIS_CORRUPT);
        ck_assert_ptr_nonnull(strstr(merge->error.message, "at entry"));
        // Nothing at or behind the entry that could not be read was shown.
        if (fail_at < mix.sources[bad].count) {
            const struct tm_entry *lost = &mix.sources[bad].list[fail_at];

            expect(at <= entries_seek(&mix.all, lost->key, lost->sequence));
        }
        // A failure does not stick: seeking anew asks the sources anew.
        ((struct source *)sources[bad])->fail_at = SIZE_MAX;
        merge->vtable->first(merge);
        check_rest(merge, &mix, 0, SIZE_MAX);
        tm_iter_close(merge);
        ck_assert_uint_eq(open_sources, 0);
        mix_free(&mix);
    }
}
END_TEST

START_TEST(without_memory_the_sources_are_closed)
{
    struct entries entries = {0};
    struct tm_iter *sources[3];
    struct tm_iter *merge;
    tamis_error err;

    for (unsigned i = 0; i < 3; i++)
        sources[i] = source_open(&entries, SIZE_MAX);
    fault_alloc_fail_after(&fault, 1, false);
    check_status(tm_iter_merge(&env, sources, 3, &merge, &err), TAMIS_NO_MEMORY, err);
    ck_assert_uint_eq(open_sources, 0);
    tm_iter_close(NULL);
}
END_TEST

START_TEST(tables_merge_as_lists_do)
{
    struct shelf shelf;
    struct rng rng = rng_from(rng_seed("merged tables", 74));
    struct tm_table_options options = shelf_options(128);
    struct tm_table *tables[8];
    struct tm_iter *sources[8];
    struct tm_iter *merge;
    struct mix mix;
    size_t count = 0;
    tamis_error err;

    shelf_open(&shelf);
    do {
        mix_fill(&mix, &rng, 8, false);
        if (mix.all.count < 100)
            mix_free(&mix);
    } while (mix.all.count < 100);
    for (size_t i = 0; i < 8; i++) {
        char name[16];

        if (mix.sources[i].count == 0)
            continue;
        snprintf(name, sizeof name, "%zu.sst", i);
        shelf_write(&shelf, name, &options, &mix.sources[i]);
        tables[count] = shelf_table(&shelf, name, NULL);
        expect_ok(tm_table_iter(tables[count], false, &sources[count], &err), err);
        count++;
    }
    expect_ok(tm_iter_merge(&shelf.env, sources, count, &merge, &err), err);
    merge->vtable->first(merge);
    check_rest(merge, &mix, 0, SIZE_MAX);
    for (size_t i = 0; i < mix.all.count; i++) {
        merge->vtable->seek(merge, mix.all.list[i].key, mix.all.list[i].sequence);
        check_rest(merge, &mix, i, 10);
    }
    tm_iter_close(merge);
    for (size_t i = 0; i < count; i++)
        tm_table_close(tables[i]);
    mix_free(&mix);
    shelf_close(&shelf);
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("iter_merge");
    TCase *tests = tcase_create("iter_merge");

    tcase_set_timeout(tests, 0);
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_test(tests, a_merge_of_0_to_40_sources_is_what_sorting_gives);
    tcase_add_test(tests, an_entry_in_several_sources_comes_once_from_the_first);
    tcase_add_test(tests, seeking_anywhere_goes_on_as_the_sorted_list_does);
    tcase_add_test(tests, a_walk_that_turns_anywhere_stands_where_the_sorted_list_does);
    tcase_add_test(tests,
                   a_skip_leaves_out_what_later_sources_hold_before_the_bound_until_the_walk_turns);
    tcase_add_test(tests, a_source_that_fails_while_it_skips_fails_the_merge);
    tcase_add_test(tests, a_source_that_fails_ends_the_walk_before_anything_could_be_missed);
    tcase_add_test(tests, without_memory_the_sources_are_closed);
    tcase_add_test(tests, tables_merge_as_lists_do);
    suite_add_tcase(suite, tests);
    return check_run(suite);
}
