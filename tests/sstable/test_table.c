/* SPDX-License-Identifier: MIT
 *
 * tests/sstable/test_table.c -- whole tables: built, opened, searched, walked, verified; and without memory or disk.
 */
#include <math.h>

#include "sstable/cache.h"
#include "sstable/codec.h"
#include "sstable/table.h"
#include "tests/sstable/table_test.h"

static struct shelf shelf;
static struct entries entries;

static void
setup(void)
{
    shelf_open(&shelf);
}

static void
teardown(void)
{
    entries_free(&entries);
    shelf_close(&shelf);
}

/* ---- What goes in comes out -------------------------------------------------------------------------- */

/* Seek (key, sequence) and walk on for some entries: those of the reference. */
static void
check_seek(struct tm_iter *iter, tamis_slice key, uint64_t sequence)
{
    size_t at = entries_seek(&entries, key, sequence);

    iter->vtable->seek(iter, key, sequence);
    for (unsigned step = 0; step < 3; step++, at++) {
        expect(iter->status == TAMIS_OK);
        expect(iter->valid == (at < entries.count));
        if (!iter->valid)
            break;
        expect(same_entry(&iter->entry, &entries.list[at]));
        iter->vtable->next(iter);
    }
}

/* Search and seek around every key of `entries`: itself, just above, just below, shorter, at several sequences. */
static void
check_neighbourhood(struct tm_table *table)
{
    struct tm_iter *iter;
    tamis_error err;

    expect_ok(tm_table_iter(table, false, &iter, &err), err);
    for (size_t i = 0; i < entries.count; i++) {
        const struct tm_entry *entry = &entries.list[i];
        size_t length = entry->key.length;
        uint8_t *key = malloc(length + 1);
        tamis_slice near[4];

        memcpy(key, entry->key.data, length);
        key[length] = 0;
        near[0] = entry->key;
        near[1] = tm_slice(key, length + 1);
        near[2] = tm_slice(key, length > 0 ? length - 1 : 0);
        near[3] = tm_slice(copy_bytes(key, length), length);
        if (length > 0)
            ((uint8_t *)(uintptr_t)near[3].data)[length - 1]--;
        for (unsigned n = 0; n < 4; n++) {
            const uint64_t sequences[4] = {entry->sequence, TM_SEQUENCE_MAX, 0,
                                           entry->sequence > 0 ? entry->sequence - 1 : 0};

            for (unsigned s = 0; s < 4; s++) {
                expect_ok(table_compare(table, &entries, near[n], sequences[s], &err), err);
                check_seek(iter, near[n], sequences[s]);
            }
        }
        free((void *)(uintptr_t)near[3].data);
        free(key);
    }
    check_seek(iter, tm_slice(NULL, 0), TM_SEQUENCE_MAX);
    check_seek(iter, tm_slice("\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", 10), 0);
    tm_iter_close(iter);
}

static void
check_walk(struct tm_table *table)
{
    struct rng rng = rng_from(entries.count);
    struct tm_iter *iter;
    tamis_error err;

    expect_ok(tm_table_iter(table, false, &iter, &err), err);
    entries_walk(&entries, iter, &rng, 500);
    tm_iter_close(iter);
}

/* `entries` as a table with these options, all of it; with `near`, and what lies near its keys. */
static void
check_round_trip(const struct tm_table_options *options, bool near)
{
    struct tm_table_identity identity = shelf_write(&shelf, "t.sst", options, &entries);
    struct tm_table *table = shelf_table(&shelf, "t.sst", &identity);

    check_table(table, &entries);
    if (near)
        check_neighbourhood(table);
    if (entries.count != 0)
        check_walk(table);
    tm_table_close(table);
    sim_file_remove(shelf.world->sim, "tables", "t.sst");
}

START_TEST(ranges_come_back_and_the_table_reaches_over_them)
{
    static const struct tm_range ranges[] = {
        {{"a", 1}, {"k", 1}, 40},
        {{"b", 1}, {"zz\0", 3}, 90},
        {{"b", 1}, {"c", 1}, 7},
    };
    struct tm_table_options options = shelf_options(256);
    struct tm_table_identity identity;
    const struct tm_table_facts *facts;
    const struct tm_range_set *set;
    struct tm_table *table;
    tamis_error err;

    entries_put(&entries, "key", 50, "value");
    entries.ranges = ranges;
    entries.range_count = 3;
    identity = shelf_write(&shelf, "t.sst", &options, &entries);
    table = shelf_table(&shelf, "t.sst", &identity);
    set = tm_table_ranges(table);
    ck_assert_uint_eq(set->count, 3);
    for (size_t i = 0; i < 3; i++) {
        ck_assert(tm_slice_equal(set->ranges[i].from, ranges[i].from));
        ck_assert(tm_slice_equal(set->ranges[i].to, ranges[i].to));
        ck_assert_uint_eq(set->ranges[i].sequence, ranges[i].sequence);
    }
    facts = tm_table_facts(table);
    ck_assert_uint_eq(facts->range_count, 3);
    ck_assert_uint_eq(facts->entry_count, 1);
    ck_assert_uint_eq(facts->sequence_min, 7);
    ck_assert_uint_eq(facts->sequence_max, 90);
    ck_assert(tm_slice_equal(tm_slice(facts->smallest, facts->smallest_length), tm_slice("a", 1)));
    ck_assert(tm_slice_equal(tm_slice(facts->largest, facts->largest_length), tm_slice("zz", 2)));
    expect_ok(tm_table_verify(table, NULL, NULL, &err), err);
    tm_table_close(table);
    // No byte of them can change unnoticed.
    for (size_t at = 0; at < identity.file_bytes; at++) {
        size_t size;
        uint8_t *bytes = sim_file_get(shelf.world->sim, "tables", "t.sst", &size);
        tamis_status status;

        bytes[at] ^= 4;
        sim_file_put(shelf.world->sim, "tables", "t.sst", bytes, size);
        status = tm_table_open(&shelf.env, shelf.dir, "t.sst", &identity, NULL, NULL, &table, &err);
        if (status == TAMIS_OK) {
            ck_assert_uint_eq(tm_table_ranges(table)->count, 3);
            check_status(tm_table_verify(table, NULL, NULL, &err), TAMIS_CORRUPT, err);
            tm_table_close(table);
        } else {
            ck_assert_int_eq(status, TAMIS_CORRUPT);
        }
        bytes[at] ^= 4;
        sim_file_put(shelf.world->sim, "tables", "t.sst", bytes, size);
        free(bytes);
    }
}
END_TEST

static const struct wrong_ranges {
    struct tm_range ranges[2];
    const char *message;
} wrong_ranges[] = {
    {{{{"b", 1}, {"c", 1}, 3}, {{"a", 1}, {"c", 1}, 5}}, "beyond the keys"},
    {{{{"b", 1}, {"c", 1}, 3}, {{"b", 1}, {"d", 1}, 5}}, "out of order"},
};

START_TEST(ranges_that_no_builder_writes_are_corrupt_though_checksums_are_right)
{
    const struct wrong_ranges *wrong = &wrong_ranges[_i];
    struct tm_table_options options = shelf_options(256);
    struct tm_table_identity identity;
    struct tm_table *table = NULL;
    tamis_error err;

    entries_put(&entries, "key", 4, "value");
    entries.ranges = wrong->ranges;
    entries.range_count = 2;
    identity = shelf_write(&shelf, "t.sst", &options, &entries);
    check_status(tm_table_open(&shelf.env, shelf.dir, "t.sst", &identity, NULL, NULL, &table, &err),
                 TAMIS_CORRUPT, err);
    ck_assert_ptr_nonnull(strstr(err.message, wrong->message));
}
END_TEST

START_TEST(every_key_and_every_gap_of_a_table_of_tiny_blocks_is_right)
{
    struct rng rng = rng_from(rng_seed("tiny blocks", 41));
    struct tm_table_options options = shelf_options(64);
    struct tm_table_identity identity;
    struct tm_table *table;
    tamis_error err;

    entries_fill(&entries, &rng, 300, 10, false);
    check_round_trip(&options, true);
    identity = shelf_write(&shelf, "gaps.sst", &options, &entries);
    table = shelf_table(&shelf, "gaps.sst", &identity);
    for (size_t k = 0; k < 3010; k++) { // keys that are not there: between, and behind the last
        char key[24];

        snprintf(key, sizeof key, "key%06zu", k);
        expect_ok(table_compare(table, &entries, tm_slice(key, 9), TM_SEQUENCE_MAX, &err), err);
    }
    tm_table_close(table);
}
END_TEST

START_TEST(versions_of_one_key_span_blocks_and_are_right_at_each_sequence)
{
    struct tm_table_options options = shelf_options(128);
    struct tm_table_identity identity;
    struct tm_table *table;
    struct tm_iter *iter;
    tamis_error err;

    entries_put(&entries, "before", 3, "b");
    for (unsigned i = 0; i < 100; i++) {
        bool put = i % 4 != 3;
        char value[32];

        snprintf(value, sizeof value, "version %u of the key", i);
        entries_add(&entries, tm_slice("hot", 3), 1000 - 7 * i, put ? TM_KIND_PUT : TM_KIND_DELETE,
                    tm_slice(value, put ? strlen(value) : 0));
    }
    for (unsigned with_end = 0; with_end < 3; with_end++) {
        if (with_end == 1) // the next key that there can be
            entries_add(&entries, tm_slice("hot\0", 4), 900, TM_KIND_PUT, tm_slice("next", 4));
        if (with_end == 2)
            entries_put(&entries, "later", 901, "after");
        identity = shelf_write(&shelf, "t.sst", &options, &entries);
        table = shelf_table(&shelf, "t.sst", &identity);
        ck_assert_uint_ge(table->index.count, 20);
        expect_ok(tm_table_iter(table, false, &iter, &err), err);
        for (uint64_t sequence = 0; sequence <= 1010; sequence++) {
            expect_ok(table_compare(table, &entries, tm_slice("hot", 3), sequence, &err), err);
            check_seek(iter, tm_slice("hot", 3), sequence);
        }
        tm_iter_close(iter);
        check_table(table, &entries);
        tm_table_close(table);
        sim_file_remove(shelf.world->sim, "tables", "t.sst");
    }
}
END_TEST

START_TEST(a_key_whose_versions_are_all_too_new_is_present_but_absent)
{
    struct tm_table_options options = shelf_options(64);
    struct tm_table_identity identity;
    struct tm_table *table;
    struct tm_found found;
    uint64_t hash = tm_hash64("key", 3, HASH_SEED);
    tamis_error err;

    for (unsigned i = 0; i < 20; i++)
        entries_put(&entries, "key", 100 - i, "a value that fills a block");
    entries_put(&entries, "next", 5, "");
    identity = shelf_write(&shelf, "t.sst", &options, &entries);
    table = shelf_table(&shelf, "t.sst", &identity);
    for (uint64_t sequence = 0; sequence < 120; sequence++) {
        expect_ok(tm_table_search(table, tm_slice("key", 3), hash, sequence, &found, &err), err);
        ck_assert(found.key_present);
        ck_assert_int_eq(found.lookup, sequence < 81 ? TM_ABSENT : TM_FOUND);
        tm_block_unref(found.block);
    }
    hash = tm_hash64("kez", 3, HASH_SEED);
    expect_ok(tm_table_search(table, tm_slice("kez", 3), hash, 200, &found, &err), err);
    ck_assert(!found.key_present);
    tm_table_close(table);
}
END_TEST

START_TEST(random_tables_of_all_options_come_back)
{
    struct rng rng = rng_from(rng_seed("random tables", 42));

    for (unsigned round = 0; round < (SLOW_BUILD ? 30 : 200); round++) {
        struct tm_table_options options = shelf_options(64u << rng_below(&rng, 8));
        size_t count = 1 + (size_t)rng_below(&rng, 200);

        options.compress = rng_chance(&rng, 1, 2);
        options.filter_kind = (tamis_filter_kind)(1 + rng_below(&rng, 3));
        options.filter_bits_per_key = (double)rng_below(&rng, 20);
        if (rng_chance(&rng, 1, 4)) {
            options.filter_bits_per_key = 0;
            options.filter_false_positive_rate = 0.02;
        }
        for (size_t i = 0; i < count; i++) {
            uint8_t key[12];
            uint8_t value[300];
            size_t length = (size_t)rng_below(&rng, 6);
            bool put = rng_chance(&rng, 3, 4);

            for (size_t at = 0; at < length; at++)
                key[at] = (uint8_t) "\0ab\xff"[rng_below(&rng, 4)];
            rng_fill(&rng, value, sizeof value);
            entries_add(&entries, tm_slice(key, length), i * 3, put ? TM_KIND_PUT : TM_KIND_DELETE,
                        tm_slice(value, put ? (size_t)rng_below(&rng, 300) : 0));
        }
        entries_sort(&entries);
        check_round_trip(&options, true);
        entries_free(&entries);
    }
}
END_TEST

START_TEST(large_keys_and_values_come_back)
{
    struct tm_table_options options = shelf_options(4096);
    uint8_t *bytes = malloc(4 << 20);
    struct rng rng = rng_from(43);

    rng_fill(&rng, bytes, 4 << 20);
    memset(bytes, 'k', TAMIS_KEY_BYTES_MAX - 1);
    for (unsigned i = 0; i < 4; i++) {
        bytes[TAMIS_KEY_BYTES_MAX - 1] = (uint8_t)(i * 50);
        entries_add(&entries, tm_slice(bytes, TAMIS_KEY_BYTES_MAX), 10 + i, TM_KIND_PUT,
                    tm_slice(bytes + TAMIS_KEY_BYTES_MAX, i * 700000));
    }
    entries_put(&entries, "z", 1, "");
    for (unsigned compress = 0; compress < 2; compress++) {
        options.compress = compress != 0;
        check_round_trip(&options, false);
    }
    options.block_bytes = 16 << 20; // all in one block: its offsets are wide
    check_round_trip(&options, false);
    free(bytes);
}
END_TEST

START_TEST(a_single_entry_is_a_table)
{
    struct tm_table_options options = shelf_options(4096);

    for (unsigned i = 0; i < 3; i++) {
        entries_add(&entries, tm_slice("k", i % 2), i, i == 2 ? TM_KIND_DELETE : TM_KIND_PUT,
                    tm_slice("v", i % 2));
        check_round_trip(&options, true);
        entries_free(&entries);
    }
}
END_TEST

/* ---- Facts ------------------------------------------------------------------------------------------- */

START_TEST(facts_are_exact)
{
    struct rng rng = rng_from(rng_seed("facts", 44));
    struct tm_table_options options = shelf_options(256);
    struct tm_table_facts built;
    struct tm_table_identity identity;
    struct tm_table *table;
    uint64_t keys = 0;
    uint64_t tombstones = 0;
    uint64_t raw_bytes = 0;
    uint64_t sequence_min = UINT64_MAX;
    uint64_t sequence_max = 0;
    size_t size;
    uint8_t *file;
    tamis_error err;

    for (size_t i = 0; i < 1000; i++) {
        char key[24];
        bool put = rng_chance(&rng, 2, 3);

        snprintf(key, sizeof key, "k%u", (unsigned)rng_below(&rng, 300));
        entries_add(&entries, tm_slice(key, strlen(key)), 5000 + i,
                    put ? TM_KIND_PUT : TM_KIND_DELETE,
                    tm_slice("some value", put ? (size_t)rng_below(&rng, 10) : 0));
    }
    entries_sort(&entries);
    for (size_t i = 0; i < entries.count; i++) {
        const struct tm_entry *entry = &entries.list[i];

        keys += i == 0 || !tm_slice_equal(entry->key, entry[-1].key);
        tombstones += entry->kind == TM_KIND_DELETE;
        raw_bytes += entry->key.length + entry->value.length;
        sequence_min = entry->sequence < sequence_min ? entry->sequence : sequence_min;
        sequence_max = entry->sequence > sequence_max ? entry->sequence : sequence_max;
    }
    expect_ok(shelf_build(&shelf, "t.sst", &options, &entries, &built, &err), err);
    identity = identity_of(&built);
    table = shelf_table(&shelf, "t.sst", &identity);
    for (unsigned i = 0; i < 2; i++) {
        const struct tm_table_facts *facts = i == 0 ? &built : tm_table_facts(table);

        ck_assert_uint_eq(facts->entry_count, 1000);
        ck_assert_uint_eq(facts->key_count, keys);
        ck_assert_uint_eq(facts->tombstone_count, tombstones);
        ck_assert_uint_eq(facts->raw_bytes, raw_bytes);
        ck_assert_uint_eq(facts->sequence_min, sequence_min);
        ck_assert_uint_eq(facts->sequence_max, sequence_max);
        ck_assert(
            tm_slice_equal(tm_slice(facts->smallest, facts->smallest_length), entries.list[0].key));
        ck_assert(
            tm_slice_equal(tm_slice(facts->largest, facts->largest_length), entries.list[999].key));
        ck_assert_uint_eq(facts->unique_id, built.unique_id);
        ck_assert_uint_eq(facts->data_id, built.data_id);
        ck_assert_uint_ne(facts->data_id, facts->unique_id);
        ck_assert_uint_eq(facts->checksum, built.checksum);
        ck_assert_uint_eq(facts->filter_bytes, built.filter_bytes);
        ck_assert_uint_gt(facts->filter_bytes, keys * 10 / 8);
    }
    // Tombstones and versions too new for a reader are in the filter: it holds distinct keys, no more, no fewer.
    ck_assert_uint_eq(tm_table_filter_info(table)->geometry.key_count, keys);
    ck_assert_uint_eq(tm_table_filter_info(table)->hash_seed, HASH_SEED);
    ck_assert_uint_eq(tm_table_hash_seed(table), HASH_SEED);
    ck_assert_int_eq(tm_table_filter_damage(table), TAMIS_FILTER_SOUND);
    file = sim_file_get(shelf.world->sim, "tables", "t.sst", &size);
    ck_assert_uint_eq(size, built.file_bytes);
    free(file);
    ck_assert_uint_ge(tm_table_filter_bytes(table),
                      tm_table_filter_info(table)->geometry.body_bytes);
    ck_assert_uint_gt(tm_table_index_bytes(table), table->index.memory_bytes);
    tm_table_facts_release(&shelf.env, &built);
    tm_table_close(table);
}
END_TEST

START_TEST(a_builder_tells_its_size_and_entries_as_it_goes)
{
    struct rng rng = rng_from(45);
    struct tm_table_options options = shelf_options(512);
    struct tm_table_builder *builder;
    struct tm_table_facts facts;
    uint64_t before = 0;
    tamis_error err;

    entries_fill(&entries, &rng, 500, 1, true);
    expect_ok(tm_table_builder_create(&shelf.env, shelf.dir, "t.sst", &options, &builder, &err),
              err);
    ck_assert_uint_eq(tm_table_builder_bytes(builder), 0);
    for (size_t i = 0; i < entries.count; i++) {
        expect_ok(tm_table_builder_add(builder, &entries.list[i], &err), err);
        expect(tm_table_builder_entries(builder) == i + 1);
        expect(tm_table_builder_bytes(builder) + 16 > before);
        before = tm_table_builder_bytes(builder);
    }
    expect_ok(tm_table_builder_finish(builder, &facts, &err), err);
    ck_assert_uint_gt(facts.file_bytes, before);
    ck_assert_uint_lt(facts.file_bytes, before + before / 4);
    tm_table_facts_release(&shelf.env, &facts);
}
END_TEST

START_TEST(data_blocks_keep_to_their_target)
{
    struct rng rng = rng_from(46);
    struct tm_table_options options = shelf_options(1024);
    struct tm_table_identity identity;
    struct tm_table *table;
    tamis_error err;

    entries_fill(&entries, &rng, 2000, 1, true);
    identity = shelf_write(&shelf, "t.sst", &options, &entries);
    table = shelf_table(&shelf, "t.sst", &identity);
    for (size_t i = 0; i < table->index.count; i++) {
        struct tm_block *block;
        struct tm_block_view view;

        expect_ok(tm_table_load_block(table, i, false, NULL, &block, &view, &err), err);
        expect(block->length <= 1024);
        if (i + 1 < table->index.count)
            expect(block->length > 1024 - 100); // the next entry had no room
        tm_block_unref(block);
    }
    tm_table_close(table);
}
END_TEST

START_TEST(the_same_entries_and_ids_give_the_same_bytes)
{
    struct rng rng = rng_from(47);
    struct tm_table_options options = shelf_options(512);
    uint8_t *files[2];
    size_t sizes[2];

    entries_fill(&entries, &rng, 500, 1, false);
    for (unsigned i = 0; i < 2; i++) {
        shelf.identity = 0;
        shelf_write(&shelf, i == 0 ? "a.sst" : "b.sst", &options, &entries);
        files[i] = sim_file_get(shelf.world->sim, "tables", i == 0 ? "a.sst" : "b.sst", &sizes[i]);
    }
    ck_assert(tm_slice_equal(tm_slice(files[0], sizes[0]), tm_slice(files[1], sizes[1])));
    free(files[0]);
    free(files[1]);
}
END_TEST

/* ---- Filters ----------------------------------------------------------------------------------------- */

START_TEST(absent_keys_pass_the_filter_at_the_rate_of_theory)
{
    enum { PROBES = 200000 };
    struct rng rng = rng_from(rng_seed("absent keys", 48));

    for (unsigned kind = TAMIS_FILTER_STANDARD; kind <= TAMIS_FILTER_PAIR512; kind++) {
        for (unsigned bits = 5; bits <= 10; bits += 5) {
            struct tm_table_options options = shelf_options(4096);
            struct tm_table_identity identity;
            struct tm_table *table;
            const tamis_filter_geometry *geometry;
            uint64_t passed = 0;
            double rate;
            double deviation;

            options.filter_kind = (tamis_filter_kind)kind;
            options.filter_bits_per_key = bits;
            entries_fill(&entries, &rng, 5000, 1, false);
            identity = shelf_write(&shelf, "t.sst", &options, &entries);
            table = shelf_table(&shelf, "t.sst", &identity);
            geometry = &tm_table_filter_info(table)->geometry;
            ck_assert_int_eq(geometry->kind, kind);
            for (unsigned i = 0; i < PROBES; i++) {
                char key[24];
                size_t length = (size_t)snprintf(key, sizeof key, "absent%u", i);

                passed += tamis_filter_may_contain(tm_table_filter(table),
                                                   tamis_hash64(key, length, HASH_SEED));
            }
            rate = tamis_theory_false_positive_rate(geometry);
            deviation = sqrt(rate * (1 - rate) / PROBES + tamis_theory_rate_variance(geometry));
            ck_assert_double_lt(fabs((double)passed / PROBES - rate), 5 * deviation);
            tm_table_close(table);
            entries_free(&entries);
            sim_file_remove(shelf.world->sim, "tables", "t.sst");
        }
    }
}
END_TEST

START_TEST(no_filter_means_maybe)
{
    struct rng rng = rng_from(49);
    struct tm_table_options options = shelf_options(512);
    struct tm_table_identity identity;
    struct tm_table *table;

    options.filter_bits_per_key = 0;
    entries_fill(&entries, &rng, 100, 1, false);
    identity = shelf_write(&shelf, "t.sst", &options, &entries);
    table = shelf_table(&shelf, "t.sst", &identity);
    ck_assert_int_eq(tm_table_filter(table)->kind, TAMIS_FILTER_ALWAYS_TRUE);
    ck_assert_int_eq(tm_table_filter_damage(table), TAMIS_FILTER_SOUND);
    ck_assert_uint_eq(tm_table_facts(table)->filter_bytes, 0);
    check_table(table, &entries);
    tm_table_close(table);
}
END_TEST

START_TEST(a_rate_that_is_asked_for_decides_the_bits)
{
    struct rng rng = rng_from(50);
    struct tm_table_options options = shelf_options(4096);
    struct tm_table_identity identity;
    struct tm_table *table;
    double rate;

    options.filter_bits_per_key = 30; // the rate counts, not these
    options.filter_false_positive_rate = 0.02;
    entries_fill(&entries, &rng, 5000, 1, false);
    identity = shelf_write(&shelf, "t.sst", &options, &entries);
    table = shelf_table(&shelf, "t.sst", &identity);
    rate = tamis_theory_false_positive_rate(&tm_table_filter_info(table)->geometry);
    ck_assert_double_le(rate, 0.02);
    ck_assert_double_gt(rate, 0.018);
    tm_table_close(table);
}
END_TEST

/* ---- Cache and sharing ------------------------------------------------------------------------------- */

START_TEST(a_block_that_is_cached_is_not_read_again)
{
    struct rng rng = rng_from(51);
    struct tm_table_options options = shelf_options(512);
    struct tm_cache *cache = tm_cache_create(&shelf.env, 1 << 20, 4096);
    struct tm_table *table;
    uint64_t calls;
    tamis_error err;

    entries_fill(&entries, &rng, 200, 1, false);
    shelf_write(&shelf, "t.sst", &options, &entries);
    expect_ok(tm_table_open(&shelf.env, shelf.dir, "t.sst", NULL, cache, NULL, &table, &err), err);
    for (unsigned round = 0; round < 2; round++) {
        calls = sim_call_count(shelf.world->sim);
        for (size_t i = 0; i < entries.count; i++)
            expect_ok(table_compare(table, &entries, entries.list[i].key, TM_SEQUENCE_MAX, &err),
                      err);
        ck_assert_uint_eq(sim_call_count(shelf.world->sim) - calls,
                          round == 0 ? table->index.count : 0);
    }
    ck_assert_uint_eq(tm_cache_misses(cache), table->index.count);
    tm_table_close(table);
    tm_cache_destroy(cache);
}
END_TEST

START_TEST(a_walk_fills_the_cache_only_if_told_to)
{
    struct rng rng = rng_from(52);
    struct tm_table_options options = shelf_options(512);
    struct tm_cache *cache = tm_cache_create(&shelf.env, 1 << 20, 4096);
    uint64_t empty = tm_cache_bytes(cache);
    struct tm_table *table;
    tamis_error err;

    entries_fill(&entries, &rng, 200, 1, false);
    shelf_write(&shelf, "t.sst", &options, &entries);
    expect_ok(tm_table_open(&shelf.env, shelf.dir, "t.sst", NULL, cache, NULL, &table, &err), err);
    for (unsigned fill = 0; fill < 2; fill++) {
        struct tm_iter *iter;

        expect_ok(tm_table_iter(table, fill != 0, &iter, &err), err);
        for (iter->vtable->first(iter); iter->valid; iter->vtable->next(iter))
            continue;
        expect(iter->status == TAMIS_OK);
        tm_iter_close(iter);
        ck_assert_int_eq(tm_cache_bytes(cache) > empty, fill);
    }
    tm_table_close(table);
    tm_cache_destroy(cache);
}
END_TEST

START_TEST(a_value_outlives_its_table)
{
    struct tm_table_options options = shelf_options(512);
    struct tm_table_identity identity;
    struct tm_table *table;
    struct tm_found found;
    tamis_error err;

    entries_put(&entries, "key", 1, "value");
    identity = shelf_write(&shelf, "t.sst", &options, &entries);
    table = shelf_table(&shelf, "t.sst", &identity);
    expect_ok(table_get(table, tm_slice("key", 3), 1, &found, &err), err);
    tm_table_close(table);
    ck_assert(tm_slice_equal(found.value, tm_slice("value", 5)));
    tm_block_unref(found.block);
}
END_TEST

/* ---- Inspection -------------------------------------------------------------------------------------- */

struct text {
    char bytes[16384];
    size_t length;
    size_t limit; // stop after so many pieces
};

static bool
collect(void *arg, const char *piece, size_t length)
{
    struct text *text = arg;

    expect(length > 0 && text->limit > 0);
    expect(text->length + length < sizeof text->bytes);
    memcpy(text->bytes + text->length, piece, length);
    text->length += length;
    text->bytes[text->length] = 0;
    return --text->limit > 0;
}

START_TEST(inspection_names_every_section_and_entry)
{
    static struct text text;
    struct tm_table_options options = shelf_options(64);
    struct tm_table_identity identity;
    struct tm_table *table;
    tamis_error err;

    entries_put(&entries, "back\\slash", 1, "\x01\xff");
    entries_add(&entries, tm_slice("gone", 4), 2, TM_KIND_DELETE, tm_slice(NULL, 0));
    entries_put(&entries, "z", 3, "plain");
    identity = shelf_write(&shelf, "t.sst", &options, &entries);
    table = shelf_table(&shelf, "t.sst", &identity);
    text.limit = SIZE_MAX;
    expect_ok(tm_table_inspect(table, true, collect, &text, &err), err);
    ck_assert_ptr_nonnull(strstr(text.bytes, "back\\\\slash"));
    ck_assert_ptr_nonnull(strstr(text.bytes, "\\x01\\xff"));
    ck_assert_ptr_nonnull(strstr(text.bytes, "plain"));
    ck_assert_ptr_nonnull(strstr(text.bytes, "delete"));
    ck_assert_ptr_nonnull(strstr(text.bytes, "blk512"));
    for (size_t limit = 1; limit < 40; limit++) { // a sink that has had enough is not called again
        text.length = 0;
        text.limit = limit;
        expect_ok(tm_table_inspect(table, true, collect, &text, &err), err);
    }
    tm_table_close(table);
}
END_TEST

/* ---- No memory, no disk ------------------------------------------------------------------------------ */

/* Build, open, search, walk and verify; the first failure ends it. Nothing is left open. */
static tamis_status
whole_life(tamis_error *err)
{
    struct tm_table_options options = shelf_options(256);
    struct tm_table_facts facts;
    struct tm_table_identity identity;
    struct tm_cache *cache = NULL;
    struct tm_table *table = NULL;
    tamis_status status;

    options.compress = true;
    status = shelf_build(&shelf, "t.sst", &options, &entries, &facts, err);
    if (status != TAMIS_OK)
        return status;
    identity = identity_of(&facts);
    tm_table_facts_release(&shelf.env, &facts);
    cache = tm_cache_create(&shelf.env, 1 << 16, 4096);
    if (cache == NULL)
        return TAMIS_NO_MEMORY;
    status = tm_table_open(&shelf.env, shelf.dir, "t.sst", &identity, cache, NULL, &table, err);
    for (size_t i = 0; status == TAMIS_OK && i < entries.count; i += 7)
        status = table_compare(table, &entries, entries.list[i].key, TM_SEQUENCE_MAX, err);
    if (status == TAMIS_OK)
        status = table_walk(table, &entries, err);
    if (status == TAMIS_OK)
        status = tm_table_verify(table, NULL, NULL, err);
    tm_table_close(table);
    tm_cache_destroy(cache);
    return status;
}

START_TEST(without_memory_every_step_says_so_and_keeps_nothing)
{
    struct fault_alloc *alloc = &shelf.world->alloc;
    struct rng rng = rng_from(53);
    uint64_t live = alloc->live_count;
    uint64_t calls;
    uint64_t failures;
    uint64_t refused = 0;
    tamis_error err;

    entries_fill(&entries, &rng, 60, 1, false);
    calls = alloc->call_count;
    expect_ok(whole_life(&err), err);
    calls = alloc->call_count - calls;
    for (unsigned sticky = 0; sticky < 2; sticky++) {
        for (uint64_t nth = 1; nth <= calls; nth += SLOW_BUILD ? 4 : 1) {
            tamis_status status;

            sim_file_remove(shelf.world->sim, "tables", "t.sst");
            failures = alloc->failure_count;
            fault_alloc_fail_after(alloc, nth, sticky != 0);
            status = whole_life(&err);
            fault_alloc_fail_after(alloc, 0, false);
            expect(status == TAMIS_NO_MEMORY || status == TAMIS_OK); // the cache may do without
            expect(alloc->failure_count > failures || status == TAMIS_OK);
            expect(alloc->live_count == live);
            expect(sim_open_descriptors(shelf.world->sim) <= 1); // the directory
            refused += status != TAMIS_OK;
        }
    }
    ck_assert_uint_gt(refused, SLOW_BUILD ? calls / 4 : calls);
}
END_TEST

START_TEST(every_call_to_the_disk_may_fail)
{
    struct rng rng = rng_from(54);
    struct sim *sim = shelf.world->sim;
    uint64_t live = shelf.world->alloc.live_count;
    static const struct {
        enum sim_effect effect;
        int os_error;
    } faults[] = {{SIM_ERROR, 5}, {SIM_ERROR, 28}, {SIM_SHORT, 0}, {SIM_FLIP, 0}};
    uint64_t calls;
    tamis_error err;

    entries_fill(&entries, &rng, 60, 1, false);
    calls = sim_call_count(sim);
    expect_ok(whole_life(&err), err);
    calls = sim_call_count(sim) - calls;
    for (size_t f = 0; f < sizeof faults / sizeof *faults; f++) {
        uint64_t failed = 0;

        for (uint64_t nth = 1; nth <= calls; nth++) {
            tamis_status status;

            sim_file_remove(sim, "tables", "t.sst");
            sim_fault_add(sim, (struct sim_fault){.op = SIM_OP_ANY,
                                                  .nth = nth,
                                                  .effect = faults[f].effect,
                                                  .os_error = faults[f].os_error});
            status = whole_life(&err);
            // A flipped bit is damage; one in the filter is no failure until somebody verifies.
            if (faults[f].effect == SIM_FLIP)
                expect(status == TAMIS_OK || status == TAMIS_CORRUPT);
            else if (faults[f].effect == SIM_SHORT)
                expect(status == TAMIS_OK);
            else
                expect(status == TAMIS_OK || status == TAMIS_IO || status == TAMIS_NO_SPACE);
            failed += status != TAMIS_OK;
            expect(shelf.world->alloc.live_count == live);
            sim_fault_clear(sim);
        }
        if (faults[f].effect != SIM_SHORT)
            ck_assert_uint_ge(failed, 10);
    }
    sim_file_remove(sim, "tables", "t.sst");
    expect_ok(whole_life(&err), err);
}
END_TEST

START_TEST(a_builder_that_fails_or_gives_up_leaves_no_file)
{
    struct tm_table_options options = shelf_options(256);
    struct rng rng = rng_from(55);
    struct tm_table_builder *builder;
    struct tm_table_facts facts;
    size_t size;
    tamis_error err;

    entries_fill(&entries, &rng, 10, 1, false);
    expect_ok(tm_table_builder_create(&shelf.env, shelf.dir, "t.sst", &options, &builder, &err),
              err);
    expect_ok(tm_table_builder_add(builder, &entries.list[0], &err), err);
    tm_table_builder_abandon(builder);
    ck_assert_ptr_null(sim_file_get(shelf.world->sim, "tables", "t.sst", &size));
    sim_fault_add(shelf.world->sim,
                  (struct sim_fault){.op = SIM_SYNC, .nth = 1, .effect = SIM_ERROR, .os_error = 5});
    check_status(shelf_build(&shelf, "t.sst", &options, &entries, &facts, &err), TAMIS_IO, err);
    ck_assert_ptr_null(sim_file_get(shelf.world->sim, "tables", "t.sst", &size));
    sim_fault_clear(shelf.world->sim);
    tm_table_builder_abandon(NULL);
    tm_table_close(NULL);
}
END_TEST

static int
no_random(void *ctx, void *buffer, size_t length)
{
    (void)ctx;
    (void)buffer;
    (void)length;
    return 38; // ENOSYS on Linux
}

START_TEST(without_random_bytes_there_is_no_table)
{
    struct tm_table_options options = shelf_options(256);
    struct tm_table_builder *builder;
    tamis_error err;

    shelf.runtime.random = no_random;
    check_status(tm_table_builder_create(&shelf.env, shelf.dir, "t.sst", &options, &builder, &err),
                 TAMIS_IO, err);
    ck_assert_int_eq(err.os_error, 38);
}
END_TEST

START_TEST(a_missing_table_is_corrupt)
{
    struct tm_table_identity identity = {1000, 1, 2, 3};
    struct tm_table *table;
    tamis_error err;

    check_status(
        tm_table_open(&shelf.env, shelf.dir, "none.sst", &identity, NULL, NULL, &table, &err),
        TAMIS_CORRUPT, err);
    ck_assert_ptr_nonnull(strstr(err.message, "none.sst"));
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("table");
    TCase *tests = tcase_create("table");

    tcase_set_timeout(tests, 0);
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_test(tests, ranges_come_back_and_the_table_reaches_over_them);
    tcase_add_loop_test(tests, ranges_that_no_builder_writes_are_corrupt_though_checksums_are_right,
                        0, 2);
    tcase_add_test(tests, every_key_and_every_gap_of_a_table_of_tiny_blocks_is_right);
    tcase_add_test(tests, versions_of_one_key_span_blocks_and_are_right_at_each_sequence);
    tcase_add_test(tests, a_key_whose_versions_are_all_too_new_is_present_but_absent);
    tcase_add_test(tests, random_tables_of_all_options_come_back);
    tcase_add_test(tests, large_keys_and_values_come_back);
    tcase_add_test(tests, a_single_entry_is_a_table);
    tcase_add_test(tests, facts_are_exact);
    tcase_add_test(tests, a_builder_tells_its_size_and_entries_as_it_goes);
    tcase_add_test(tests, data_blocks_keep_to_their_target);
    tcase_add_test(tests, the_same_entries_and_ids_give_the_same_bytes);
    tcase_add_test(tests, absent_keys_pass_the_filter_at_the_rate_of_theory);
    tcase_add_test(tests, no_filter_means_maybe);
    tcase_add_test(tests, a_rate_that_is_asked_for_decides_the_bits);
    tcase_add_test(tests, a_block_that_is_cached_is_not_read_again);
    tcase_add_test(tests, a_walk_fills_the_cache_only_if_told_to);
    tcase_add_test(tests, a_value_outlives_its_table);
    tcase_add_test(tests, inspection_names_every_section_and_entry);
    tcase_add_test(tests, without_memory_every_step_says_so_and_keeps_nothing);
    tcase_add_test(tests, every_call_to_the_disk_may_fail);
    tcase_add_test(tests, a_builder_that_fails_or_gives_up_leaves_no_file);
    tcase_add_test(tests, without_random_bytes_there_is_no_table);
    tcase_add_test(tests, a_missing_table_is_corrupt);
    suite_add_tcase(suite, tests);
    return check_run(suite);
}
