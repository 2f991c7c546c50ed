/* SPDX-License-Identifier: MIT
 *
 * tests/sstable/test_table_forged.c -- tables of packed blocks damaged, sections forged, reads that go wrong on the way.
 *
 * Not here: raw tables damaged byte by byte, blocks and files swapped, forged data blocks (test_table_damage.c).
 */
#include "sstable/codec.h"
#include "sstable/format.h"
#include "tests/sstable/table_test.h"

#define DIR "tables"

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

/* ---- The file -------------------------------------------------------------------------------------- */

struct image {
    uint8_t *bytes; // malloc'ed
    size_t size;
};

static struct image
take(const char *name)
{
    struct image image;

    image.bytes = sim_file_get(shelf.world->sim, DIR, name, &image.size);
    expect(image.bytes != NULL);
    return image;
}

static void
put(const char *name, const uint8_t *bytes, size_t size)
{
    sim_file_put(shelf.world->sim, DIR, name, bytes, size);
}

static uint64_t
field(const struct image *image, int at)
{
    return tm_get_u64(image->bytes + image->size - TM_FOOTER_BYTES + at);
}

static void
set_field(struct image *image, int at, uint64_t value)
{
    tm_put_u64(image->bytes + image->size - TM_FOOTER_BYTES + at, value);
}

/* About 20 KB: keys with gaps, some deleted, some in several versions. */
static void
fill_packable(size_t count, bool noise)
{
    struct rng rng = rng_from(3);

    entries_fill(&entries, &rng, count, 2, noise);
    for (size_t i = 0; i < count; i += 8) {
        struct tm_entry *entry = &entries.list[i];

        entries_add(&entries, entry->key, 1000 + i, i % 16 == 0 ? TM_KIND_DELETE : TM_KIND_PUT,
                    tm_slice("newer", i % 16 == 0 ? 0 : 5));
    }
    entries_sort(&entries);
}

static void
fill(void)
{
    fill_packable(340, true);
}

/* Where a byte stands. */
enum place {
    IN_DATA,
    IN_INDEX,
    IN_PADDING,
    IN_FILTER,
    IN_PROPERTIES,
    IN_FOOTER,
};

static enum place
place_of(const struct image *image, size_t at)
{
    if (at < field(image, TM_FOOTER_INDEX_AT))
        return IN_DATA;
    if (at < field(image, TM_FOOTER_INDEX_AT) + field(image, TM_FOOTER_INDEX_BYTES_AT))
        return IN_INDEX;
    if (at < field(image, TM_FOOTER_FILTER_AT))
        return IN_PADDING;
    if (at < field(image, TM_FOOTER_PROPERTIES_AT))
        return IN_FILTER;
    return at < image->size - TM_FOOTER_BYTES ? IN_PROPERTIES : IN_FOOTER;
}

/* A walk, `count` searches beginning with entry `from`, and a verification; each right or CORRUPT. */
static void
question(struct tm_table *table, size_t from, size_t count, enum place place)
{
    tamis_error err;
    tamis_status status = table_walk(table, &entries, &err);

    expect(status == (place == IN_DATA ? TAMIS_CORRUPT : TAMIS_OK));
    for (size_t i = from; i < from + count; i++) {
        tamis_slice key = entries.list[i % entries.count].key;
        uint8_t gap[32];

        status = table_compare(table, &entries, key, i % 2 == 0 ? TM_SEQUENCE_MAX : 500, &err);
        expect(status == TAMIS_OK || (status == TAMIS_CORRUPT && place == IN_DATA));
        memcpy(gap, key.data, key.length);
        gap[key.length] = 0;
        status = table_compare(table, &entries, tm_slice(gap, key.length + 1), 500, &err);
        expect(status == TAMIS_OK || (status == TAMIS_CORRUPT && place == IN_DATA));
    }
    expect(tm_table_verify(table, NULL, NULL, &err) == TAMIS_CORRUPT);
}

/* The file under "t.sst" has a change at `place`: does everybody notice who has to? */
static void
judge(const struct tm_table_identity *identity, enum place place, size_t from, size_t count)
{
    struct tm_table *table = NULL;
    tamis_error err;
    tamis_status status =
        tm_table_open(&shelf.env, shelf.dir, "t.sst", identity, NULL, NULL, &table, &err);

    if (place == IN_INDEX || place == IN_PROPERTIES || place == IN_FOOTER) {
        expect(status == TAMIS_CORRUPT);
        expect(strstr(err.message, "t.sst") != NULL);
        return;
    }
    expect(status == TAMIS_OK);
    expect((tm_table_filter_damage(table) != TAMIS_FILTER_SOUND) == (place == IN_FILTER));
    question(table, from, count, place);
    tm_table_close(table);
}

START_TEST(a_flipped_byte_of_a_packed_table_is_noticed_and_never_a_wrong_answer)
{
    struct tm_table_options options = shelf_options(512);
    struct tm_table_identity identity;
    struct image image;
    size_t step = SLOW_BUILD ? 13 : 1;
    uint64_t seen[IN_FOOTER + 1] = {0};

    options.compress = true;
    fill_packable(900, false);
    identity = shelf_write(&shelf, "t.sst", &options, &entries);
    image = take("t.sst");
    ck_assert_uint_gt(image.size, 16000);
    ck_assert_uint_lt(image.size, 24000);
    for (size_t at = 0; at < image.size; at += step) {
        enum place place = place_of(&image, at);
        uint8_t byte = image.bytes[at];

        image.bytes[at] = byte ^ (uint8_t)(at % 3 == 0 ? 0xff : 1 << at % 8);
        put("t.sst", image.bytes, image.size);
        // The place was told from the sound footer.
        judge(&identity, place, at, 4);
        image.bytes[at] = byte;
        seen[place]++;
    }
    for (enum place place = IN_DATA; place <= IN_FOOTER; place++)
        ck_assert_uint_gt(seen[place], 0);
    free(image.bytes);
}
END_TEST

/* ---- Sound bytes in the wrong place ---------------------------------------------------------------- */

/* Keys and values of equal length, one version each, values with `mark`: blocks and tables of equal sizes. */
static void
fill_even(struct entries *list, char mark)
{
    for (size_t i = 0; i < 200; i++) {
        char key[16];
        char value[40];

        snprintf(key, sizeof key, "key%05zu", i);
        memset(value, mark, sizeof value);
        snprintf(value, sizeof value, "value %zu", i);
        entries_add(list, tm_slice(key, 8), 1000 + i, TM_KIND_PUT, tm_slice(value, sizeof value));
    }
}

START_TEST(an_older_file_of_the_same_name_and_entries_is_another_table)
{
    struct tm_table_options options = shelf_options(512);
    struct tm_table_identity identity;
    struct image old;
    struct tm_table *table;
    tamis_error err;

    fill_even(&entries, 'a');
    (void)shelf_write(&shelf, "1.sst", &options, &entries);
    old = take("1.sst");
    (void)sim_file_remove(shelf.world->sim, DIR, "1.sst");
    identity = shelf_write(&shelf, "1.sst", &options, &entries);
    table = shelf_table(&shelf, "1.sst", &identity);
    tm_table_close(table);
    put("1.sst", old.bytes, old.size);
    check_status(tm_table_open(&shelf.env, shelf.dir, "1.sst", &identity, NULL, NULL, &table, &err),
                 TAMIS_CORRUPT, err);
    free(old.bytes);
}
END_TEST

/* ---- Filters --------------------------------------------------------------------------------------- */

static void
check_filter_refused(tamis_filter_damage damage)
{
    struct tm_table *table = shelf_table(&shelf, "1.sst", NULL);
    tamis_error err;

    ck_assert_int_eq(tm_table_filter_damage(table), damage);
    ck_assert_int_eq(tm_table_filter_info(table)->geometry.kind, TAMIS_FILTER_ALWAYS_TRUE);
    for (size_t i = 0; i < entries.count; i++)
        check_ok(table_compare(table, &entries, entries.list[i].key, TM_SEQUENCE_MAX, &err), err);
    check_ok(table_walk(table, &entries, &err), err);
    check_status(tm_table_verify(table, NULL, NULL, &err), TAMIS_CORRUPT, err);
    ck_assert_ptr_nonnull(strstr(err.message, "filter"));
    tm_table_close(table);
}

/* Make the checksums right that follow from the filter's trailer and from the footer. */
static void
fix_footer(struct image *image)
{
    uint8_t *footer = image->bytes + image->size - TM_FOOTER_BYTES;

    set_field(image, TM_FOOTER_TABLE_CHECKSUM_AT,
              tm_hash64(footer + TM_FOOTER_DATA_CHECKSUM_AT, 32, 0));
    set_field(image, TM_FOOTER_CHECKSUM_AT,
              tm_hash64(footer, TM_FOOTER_CHECKSUM_AT,
                        tm_place_seed(field(image, TM_FOOTER_UNIQUE_ID_AT),
                                      image->size - TM_FOOTER_BYTES)));
}

START_TEST(a_sound_filter_for_another_number_of_keys_or_another_seed_is_refused)
{
    struct tm_table_options options = shelf_options(512);
    tamis_filter_geometry geometry;
    struct image a;
    uint64_t hashes[200];
    uint64_t at;
    uint64_t bytes;
    uint8_t *body;

    fill_even(&entries, 'a');
    (void)shelf_write(&shelf, "1.sst", &options, &entries);
    a = take("1.sst");
    at = field(&a, TM_FOOTER_FILTER_AT);
    bytes = field(&a, TM_FOOTER_FILTER_BYTES_AT);
    for (unsigned round = 0; round < 2; round++) {
        uint64_t count = round == 0 ? 199 : 200;
        uint64_t seed = round == 0 ? HASH_SEED : HASH_SEED + 1;

        for (size_t i = 0; i < 200; i++)
            hashes[i] = tm_hash64(entries.list[i].key.data, entries.list[i].key.length, seed);
        ck_assert(tamis_filter_plan(TAMIS_FILTER_PAIR512, count, 10, &geometry));
        ck_assert_uint_eq(geometry.body_bytes + TAMIS_FILTER_TRAILER_BYTES, bytes);
        body = aligned_alloc(64, geometry.body_bytes);
        ck_assert(tamis_filter_build(&geometry, hashes, seed, 10, 0.01,
                                     tm_place_seed(field(&a, TM_FOOTER_UNIQUE_ID_AT), at), body,
                                     a.bytes + at + geometry.body_bytes));
        memcpy(a.bytes + at, body, geometry.body_bytes);
        free(body);
        set_field(&a, TM_FOOTER_FILTER_CHECKSUM_AT, tm_hash64(a.bytes + at + bytes - 16, 16, 0));
        fix_footer(&a);
        put("1.sst", a.bytes, a.size);
        check_filter_refused(TAMIS_FILTER_BAD_FIELD);
    }
    free(a.bytes);
}
END_TEST

/* ---- Forged, with checksums that are right --------------------------------------------------------- */

/* Make every checksum behind the data right, for a table of raw blocks with one index leaf. */
static void
fix_all(struct image *image, const uint64_t *place)
{
    uint64_t index = place[0];
    uint64_t leaf_bytes = place[1] - place[2];
    uint64_t top = index + leaf_bytes;
    uint64_t top_bytes = place[2];
    uint64_t properties = place[3];
    uint64_t properties_bytes = place[4];
    uint64_t data_id = place[5];
    uint64_t unique_id = place[6];
    uint8_t checksums[16];
    uint8_t *bytes = image->bytes;

    tm_put_u64(checksums, tm_hash64(bytes + index, leaf_bytes - 8, tm_place_seed(data_id, index)));
    memcpy(bytes + top - 8, checksums, 8);
    tm_put_u64(checksums + 8, tm_hash64(bytes + top, top_bytes - 8, tm_place_seed(data_id, top)));
    memcpy(bytes + top + top_bytes - 8, checksums + 8, 8);
    tm_put_u64(
        bytes + properties + properties_bytes - 8,
        tm_hash64(bytes + properties, properties_bytes - 8, tm_place_seed(unique_id, properties)));
    set_field(image, TM_FOOTER_INDEX_CHECKSUM_AT, tm_hash64(checksums, 16, 0));
    set_field(image, TM_FOOTER_PROPERTIES_CHECKSUM_AT,
              tm_get_u64(bytes + properties + properties_bytes - 8));
    fix_footer(image);
}

START_TEST(forged_index_properties_and_footer_are_refused_or_harmless)
{
    struct tm_table_options options = shelf_options(512);
    struct rng rng = rng_from(rng_seed("forged sections", 5));
    struct image image;
    uint64_t place[7];
    uint64_t index_end;
    size_t opened = 0;
    size_t rounds = SLOW_BUILD ? 20000 : 200000;

    fill();
    (void)shelf_write(&shelf, "t.sst", &options, &entries);
    image = take("t.sst");
    place[0] = field(&image, TM_FOOTER_INDEX_AT);
    place[1] = field(&image, TM_FOOTER_INDEX_BYTES_AT);
    place[2] = field(&image, TM_FOOTER_INDEX_TOP_BYTES_AT);
    place[3] = field(&image, TM_FOOTER_PROPERTIES_AT);
    place[4] = field(&image, TM_FOOTER_PROPERTIES_BYTES_AT);
    place[5] = field(&image, TM_FOOTER_DATA_ID_AT);
    place[6] = field(&image, TM_FOOTER_UNIQUE_ID_AT);
    index_end = place[0] + place[1];
    for (size_t round = 0; round < rounds; round++) {
        uint8_t *kept = malloc(image.size - place[0]);
        struct tm_table *table = NULL;
        tamis_error err;
        tamis_status status;

        memcpy(kept, image.bytes + place[0], image.size - place[0]);
        for (size_t changes = 1 + rng_below(&rng, 2); changes > 0; changes--) {
            size_t at;

            switch (rng_below(&rng, 3)) {
            case 0:
                at = place[0] + rng_below(&rng, index_end - place[0]);
                break;
            case 1:
                at = place[3] + rng_below(&rng, place[4]);
                break;
            default:
                at = image.size - TM_FOOTER_BYTES + rng_below(&rng, TM_FOOTER_VERSION_AT);
                break;
            }
            image.bytes[at] = rng_chance(&rng, 1, 2) ? (uint8_t)rng_next(&rng)
                                                     : image.bytes[at] ^ (1 << rng_below(&rng, 8));
        }
        fix_all(&image, place);
        put("t.sst", image.bytes, image.size);
        status = tm_table_open(&shelf.env, shelf.dir, "t.sst", NULL, NULL, NULL, &table, &err);
        if (status == TAMIS_OK) {
            struct tm_iter *iter;
            size_t shown = 0;

            opened++;
            expect_ok(tm_table_iter(table, false, &iter, &err), err);
            for (iter->vtable->first(iter); iter->valid; iter->vtable->next(iter))
                shown++;
            expect(iter->status == TAMIS_OK || iter->status == TAMIS_CORRUPT);
            expect(shown <= entries.count);
            for (size_t i = 0; i < 3; i++) {
                tamis_slice key = entries.list[rng_below(&rng, entries.count)].key;
                struct tm_found found;

                status = table_get(table, key, TM_SEQUENCE_MAX, &found, &err);
                expect(status == TAMIS_OK || status == TAMIS_CORRUPT);
                tm_block_unref(found.block);
                iter->vtable->seek(iter, key, 5);
                expect(iter->status == TAMIS_OK || iter->status == TAMIS_CORRUPT);
            }
            tm_iter_close(iter);
            status = tm_table_verify(table, NULL, NULL, &err);
            expect(status == TAMIS_OK || status == TAMIS_CORRUPT);
            tm_table_close(table);
        } else {
            expect(status == TAMIS_CORRUPT || status == TAMIS_UNSUPPORTED);
        }
        memcpy(image.bytes + place[0], kept, image.size - place[0]);
        free(kept);
    }
    printf("forged sections: %zu of %zu opened\n", opened, rounds);
    ck_assert_uint_gt(opened, 0);
    free(image.bytes);
}
END_TEST

/* ---- A file system that fails ---------------------------------------------------------------------- */

START_TEST(short_reads_are_continued)
{
    struct tm_table_options options = shelf_options(512);
    struct sim_fault fault = {SIM_PREAD, TM_OS_CLASS_TABLE, 1, SIM_SHORT, 0, true};
    struct tm_table *table;
    size_t number;

    fill();
    (void)shelf_write(&shelf, "t.sst", &options, &entries);
    number = sim_fault_add(shelf.world->sim, fault);
    table = shelf_table(&shelf, "t.sst", NULL);
    check_table(table, &entries);
    ck_assert_uint_gt(sim_fault_fired(shelf.world->sim, number), 10);
    tm_table_close(table);
    sim_fault_clear(shelf.world->sim);
}
END_TEST

START_TEST(a_flipped_bit_on_the_way_from_the_medium_is_noticed)
{
    struct tm_table_options options = shelf_options(512);
    struct sim_fault fault = {SIM_PREAD, TM_OS_CLASS_TABLE, 1, SIM_FLIP, 0, false};
    bool fired = true;

    fill();
    (void)shelf_write(&shelf, "t.sst", &options, &entries);
    for (uint64_t nth = 1; fired; nth++) {
        struct tm_table *table = NULL;
        tamis_filter_damage damage = TAMIS_FILTER_SOUND;
        tamis_error err;
        tamis_status status;
        size_t number;

        fault.nth = nth;
        number = sim_fault_add(shelf.world->sim, fault);
        status = tm_table_open(&shelf.env, shelf.dir, "t.sst", NULL, NULL, NULL, &table, &err);
        if (status == TAMIS_OK) {
            damage = tm_table_filter_damage(table);
            status = table_walk(table, &entries, &err);
        }
        fired = sim_fault_fired(shelf.world->sim, number) > 0;
        if (fired && damage == TAMIS_FILTER_SOUND)
            check_status(status, TAMIS_CORRUPT, err);
        else
            check_ok(status, err);
        tm_table_close(table);
        sim_fault_clear(shelf.world->sim);
    }
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("table_forged");
    TCase *tests = tcase_create("table_forged");

    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_set_timeout(tests, 0);
    tcase_add_test(tests, a_flipped_byte_of_a_packed_table_is_noticed_and_never_a_wrong_answer);
    tcase_add_test(tests, an_older_file_of_the_same_name_and_entries_is_another_table);
    tcase_add_test(tests, a_sound_filter_for_another_number_of_keys_or_another_seed_is_refused);
    tcase_add_test(tests, forged_index_properties_and_footer_are_refused_or_harmless);
    tcase_add_test(tests, short_reads_are_continued);
    tcase_add_test(tests, a_flipped_bit_on_the_way_from_the_medium_is_noticed);
    suite_add_tcase(suite, tests);
    return check_run(suite);
}
