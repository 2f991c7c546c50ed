/* SPDX-License-Identifier: MIT
 *
 * tests/sstable/test_table_damage.c -- damaged, misplaced and forged tables: the right value or CORRUPT, nothing else.
 */
#include "sstable/block_build.h"
#include "sstable/codec.h"
#include "sstable/table.h"
#include "tests/sstable/table_test.h"

enum { KEYS = 220, BLOCK_BYTES = 512 };

/* A table, and its file in memory. */
struct sample {
    struct entries entries;
    struct tm_table_identity identity;
    struct tm_footer footer;
    uint64_t block_offsets[KEYS + 1]; // of each data block, and the end
    size_t block_count;
    uint8_t *file;
    size_t size;
};

static struct shelf shelf;
static struct sample sample;
static struct sample twin; // the same keys and lengths, other values

static void
put_file(const void *bytes, size_t size)
{
    sim_file_put(shelf.world->sim, "tables", "t.sst", bytes, size);
}

/* Keys 0, 10, 20, ...; values are noise of one length each, so that every seed gives a table of the same size. */
static void
make_sample(struct sample *made, uint64_t seed, bool with_filter)
{
    struct tm_table_options options = shelf_options(BLOCK_BYTES);
    struct rng rng = rng_from(seed);
    struct tm_table *table;
    tamis_error err;

    for (size_t i = 0; i < KEYS; i++) {
        char key[24];
        uint8_t value[60];
        bool put = i % 10 != 9;

        snprintf(key, sizeof key, "key%06zu", i * 10);
        rng_fill(&rng, value, sizeof value);
        entries_add(&made->entries, tm_slice(key, 9), 1 + i, put ? TM_KIND_PUT : TM_KIND_DELETE,
                    tm_slice(value, put ? 20 + i % 40 : 0));
    }
    if (!with_filter)
        options.filter_bits_per_key = 0;
    made->identity = shelf_write(&shelf, "t.sst", &options, &made->entries);
    table = shelf_table(&shelf, "t.sst", &made->identity);
    made->footer = table->footer;
    made->block_count = table->index.count;
    memcpy(made->block_offsets, table->index.offsets,
           (table->index.count + 1) * sizeof *made->block_offsets);
    tm_table_close(table);
    made->file = sim_file_get(shelf.world->sim, "tables", "t.sst", &made->size);
    expect_ok(shelf.env.fs->remove(shelf.env.fs->ctx, shelf.dir, "t.sst", &err), err);
}

static void
free_sample(struct sample *made)
{
    entries_free(&made->entries);
    free(made->file);
    memset(made, 0, sizeof *made);
}

static void
setup(void)
{
    shelf_open(&shelf);
    make_sample(&sample, 61, true);
    make_sample(&twin, 62, true);
    ck_assert_uint_eq(sample.size, twin.size);
    ck_assert_uint_ge(sample.size, 10000);
    ck_assert_uint_le(sample.size, 20000);
}

static void
setup_without_filter(void)
{
    shelf_open(&shelf);
    make_sample(&sample, 61, false);
}

static void
teardown(void)
{
    free_sample(&sample);
    free_sample(&twin);
    shelf_close(&shelf);
}

/* What became of a damaged file. */
struct outcome {
    bool opened;
    bool read_failed; // a get or the walk gave CORRUPT
    tamis_filter_damage filter_damage;
    tamis_status verified;
};

/* Open `bytes` as the sample, ask for every `step`-th key and some that are absent, walk, verify: right or CORRUPT. */
static struct outcome
examine(const uint8_t *bytes, size_t size, size_t first, size_t step)
{
    struct outcome outcome = {.verified = TAMIS_CORRUPT};
    struct tm_table *table;
    tamis_status status;
    tamis_error err;

    put_file(bytes, size);
    status =
        tm_table_open(&shelf.env, shelf.dir, "t.sst", &sample.identity, NULL, NULL, &table, &err);
    expect(status == TAMIS_OK || status == TAMIS_CORRUPT);
    if (status != TAMIS_OK) {
        expect(err.code == status && strstr(err.message, "t.sst") != NULL);
        return outcome;
    }
    outcome.opened = true;
    outcome.filter_damage = tm_table_filter_damage(table);
    for (size_t i = first; i < KEYS * 2; i += step) { // every other one is absent
        char key[24];

        snprintf(key, sizeof key, "key%06zu", i * 5);
        status = table_compare(table, &sample.entries, tm_slice(key, 9), TM_SEQUENCE_MAX, &err);
        expect(status == TAMIS_OK || status == TAMIS_CORRUPT);
        outcome.read_failed |= status != TAMIS_OK;
    }
    status = table_walk(table, &sample.entries, &err);
    expect(status == TAMIS_OK || status == TAMIS_CORRUPT);
    outcome.read_failed |= status != TAMIS_OK;
    outcome.verified = tm_table_verify(table, NULL, NULL, &err);
    expect(outcome.verified == TAMIS_OK || outcome.verified == TAMIS_CORRUPT);
    tm_table_close(table);
    return outcome;
}

/* ---- Damage ------------------------------------------------------------------------------------------ */

START_TEST(a_flipped_bit_anywhere_gives_the_right_value_or_corrupt)
{
    struct rng rng = rng_from(rng_seed("flipped bits", 63));
    uint8_t *file = copy_bytes(sample.file, sample.size);
    uint64_t padding = sample.footer.index_offset + sample.footer.index_bytes;
    size_t flips = SLOW_BUILD ? 1500 : sample.size;

    for (size_t i = 0; i < flips; i++) {
        size_t at = SLOW_BUILD ? (size_t)rng_below(&rng, sample.size) : i;
        uint8_t bit = (uint8_t)(1u << rng_below(&rng, 8));
        struct outcome outcome;

        file[at] ^= bit;
        outcome = examine(file, sample.size, i % 16, 16);
        file[at] ^= bit;
        expect(outcome.verified == TAMIS_CORRUPT); // nothing goes unnoticed, padding included
        if (at < sample.footer.data_bytes)
            expect(outcome.opened && outcome.read_failed &&
                   outcome.filter_damage == TAMIS_FILTER_SOUND);
        else if (at < padding)
            expect(!outcome.opened);
        else if (at < sample.footer.filter_offset)
            expect(outcome.opened && !outcome.read_failed &&
                   outcome.filter_damage == TAMIS_FILTER_SOUND);
        else if (at < sample.footer.properties_offset)
            expect(outcome.opened && !outcome.read_failed &&
                   outcome.filter_damage != TAMIS_FILTER_SOUND);
        else
            expect(!outcome.opened);
    }
    ck_assert_int_eq(examine(file, sample.size, 0, 1).verified, TAMIS_OK);
    free(file);
}
END_TEST

START_TEST(a_file_cut_anywhere_is_corrupt)
{
    for (size_t size = 0; size < sample.size; size++) {
        struct tm_table *table;
        tamis_error err;

        put_file(sample.file, size);
        expect(tm_table_open(&shelf.env, shelf.dir, "t.sst", &sample.identity, NULL, NULL, &table,
                             &err) == TAMIS_CORRUPT);
        // A tool that does not know what to expect finds no footer either.
        expect(tm_table_open(&shelf.env, shelf.dir, "t.sst", NULL, NULL, NULL, &table, &err) ==
               TAMIS_CORRUPT);
    }
}
END_TEST

START_TEST(a_file_that_grew_is_corrupt)
{
    uint8_t *file = malloc(sample.size * 2);

    memcpy(file, sample.file, sample.size);
    memcpy(file + sample.size, sample.file, sample.size); // even with a sound footer at its end
    for (size_t more = 1; more <= sample.size; more += more < 200 ? 1 : 997)
        ck_assert(!examine(file, sample.size + more, 0, 100).opened);
    ck_assert(!examine(file, sample.size * 2, 0, 100).opened);
    free(file);
}
END_TEST

START_TEST(a_zeroed_sector_gives_the_right_value_or_corrupt)
{
    for (size_t at = 0; at < sample.size; at += 512) {
        uint8_t *file = copy_bytes(sample.file, sample.size);
        struct outcome outcome;

        memset(file + at, 0, sample.size - at < 512 ? sample.size - at : 512);
        outcome = examine(file, sample.size, 0, 1);
        expect(outcome.verified == TAMIS_CORRUPT);
        free(file);
    }
}
END_TEST

START_TEST(a_sector_of_an_equal_table_gives_the_right_value_or_corrupt)
{
    for (size_t at = 0; at < sample.size; at += 512) {
        uint8_t *file = copy_bytes(sample.file, sample.size);

        memcpy(file + at, twin.file + at, sample.size - at < 512 ? sample.size - at : 512);
        expect(examine(file, sample.size, 0, 1).verified == TAMIS_CORRUPT);
        free(file);
    }
}
END_TEST

START_TEST(a_block_copied_over_another_is_corrupt)
{
    unsigned whole = 0;

    for (size_t from = 0; from < sample.block_count; from++) {
        for (size_t to = 0; to < sample.block_count; to++) {
            size_t from_bytes = sample.block_offsets[from + 1] - sample.block_offsets[from];
            size_t to_bytes = sample.block_offsets[to + 1] - sample.block_offsets[to];
            uint8_t *file;
            struct outcome outcome;

            if (from == to || from_bytes > to_bytes)
                continue;
            file = copy_bytes(sample.file, sample.size);
            memcpy(file + sample.block_offsets[to], sample.file + sample.block_offsets[from],
                   from_bytes);
            outcome = examine(file, sample.size, to % 8, 8);
            expect(outcome.opened && outcome.read_failed && outcome.verified == TAMIS_CORRUPT);
            whole +=
                from_bytes == to_bytes; // with its trailer: only the place in the checksum tells
            free(file);
        }
    }
    ck_assert_uint_gt(whole, 0);
}
END_TEST

START_TEST(a_block_of_an_equal_table_in_the_same_place_is_corrupt)
{
    for (size_t i = 0; i < sample.block_count; i++) {
        uint8_t *file = copy_bytes(sample.file, sample.size);
        struct outcome outcome;

        ck_assert_uint_eq(sample.block_offsets[i], twin.block_offsets[i]);
        memcpy(file + sample.block_offsets[i], twin.file + twin.block_offsets[i],
               sample.block_offsets[i + 1] - sample.block_offsets[i]);
        outcome = examine(file, sample.size, 0, 1);
        expect(outcome.opened && outcome.read_failed && outcome.verified == TAMIS_CORRUPT);
        free(file);
    }
}
END_TEST

START_TEST(random_damage_of_many_kinds_gives_the_right_value_or_corrupt)
{
    struct rng rng = rng_from(rng_seed("random damage", 64));

    for (unsigned round = 0; round < (SLOW_BUILD ? 300 : 3000); round++) {
        uint8_t *file = copy_bytes(sample.file, sample.size);

        for (uint64_t edits = 1 + rng_below(&rng, 4); edits > 0; edits--) {
            size_t length = 1 + (size_t)rng_below(&rng, 1000);
            size_t to = (size_t)rng_below(&rng, sample.size - length);
            size_t from = (size_t)rng_below(&rng, sample.size - length);

            switch (rng_below(&rng, 4)) {
            case 0:
                memset(file + to, rng_chance(&rng, 1, 2) ? 0 : 0xff, length);
                break;
            case 1:
                rng_fill(&rng, file + to, length);
                break;
            case 2:
                memmove(file + to, file + from, length);
                break;
            default:
                memcpy(file + to, twin.file + from, length);
            }
        }
        examine(file, sample.size, round % 8, 8);
        free(file);
    }
}
END_TEST

/* ---- The wrong file ---------------------------------------------------------------------------------- */

START_TEST(a_sound_table_in_the_place_of_another_is_corrupt)
{
    struct tm_table_identity wrong;
    struct tm_table *table;
    tamis_error err;

    ck_assert(!examine(twin.file, twin.size, 0, 100).opened);
    put_file(twin.file, twin.size);
    check_status(
        tm_table_open(&shelf.env, shelf.dir, "t.sst", &sample.identity, NULL, NULL, &table, &err),
        TAMIS_CORRUPT, err);
    ck_assert_ptr_nonnull(strstr(err.message, "another table in its place"));

    put_file(sample.file, sample.size);
    for (unsigned field = 0; field < 4; field++) { // each part of an identity counts
        wrong = sample.identity;
        wrong.file_bytes += field == 0;
        wrong.unique_id += field == 1;
        wrong.data_id += field == 2;
        wrong.checksum += field == 3;
        check_status(
            tm_table_open(&shelf.env, shelf.dir, "t.sst", &wrong, NULL, NULL, &table, &err),
            TAMIS_CORRUPT, err);
    }
}
END_TEST

START_TEST(the_filter_of_an_equal_table_is_damage_and_answers_stay_right)
{
    uint8_t *file = copy_bytes(sample.file, sample.size);
    struct outcome outcome;

    ck_assert_uint_eq(sample.footer.filter_offset, twin.footer.filter_offset);
    ck_assert_uint_eq(sample.footer.filter_bytes, twin.footer.filter_bytes);
    memcpy(file + sample.footer.filter_offset, twin.file + twin.footer.filter_offset,
           sample.footer.filter_bytes);
    outcome = examine(file, sample.size, 0, 1);
    ck_assert(outcome.opened && !outcome.read_failed);
    ck_assert_int_ne(outcome.filter_damage, TAMIS_FILTER_SOUND);
    ck_assert_int_eq(outcome.verified, TAMIS_CORRUPT);
    free(file);
}
END_TEST

START_TEST(a_damaged_filter_says_maybe_and_is_reported)
{
    uint8_t *file = copy_bytes(sample.file, sample.size);
    struct tm_table *table;
    tamis_error err;

    memset(file + sample.footer.filter_offset, 0, 64);
    put_file(file, sample.size);
    table = shelf_table(&shelf, "t.sst", &sample.identity);
    ck_assert_int_eq(tm_table_filter_damage(table), TAMIS_FILTER_BAD_BODY_CHECKSUM);
    ck_assert_int_eq(tm_table_filter(table)->kind, TAMIS_FILTER_ALWAYS_TRUE);
    ck_assert_int_eq(tm_table_filter_info(table)->geometry.kind, TAMIS_FILTER_ALWAYS_TRUE);
    ck_assert_uint_eq(tm_table_filter_bytes(table), 0);
    ck_assert(tamis_filter_may_contain(tm_table_filter(table), 12345));
    check_status(tm_table_verify(table, NULL, NULL, &err), TAMIS_CORRUPT, err);
    ck_assert_ptr_nonnull(strstr(err.message, "filter at "));
    tm_table_close(table);
    free(file);
}
END_TEST

START_TEST(damage_behind_an_open_table_is_found_by_verifying_it)
{
    const uint64_t places[] = {0, sample.footer.index_offset, sample.footer.filter_offset,
                               sample.footer.properties_offset, sample.size - 100};

    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        struct tm_cache *cache = tm_cache_create(&shelf.env, 1 << 20, 4096);
        uint8_t *file = copy_bytes(sample.file, sample.size);
        struct tm_table *table;
        tamis_error err;

        put_file(sample.file, sample.size);
        expect_ok(tm_table_open(&shelf.env, shelf.dir, "t.sst", &sample.identity, cache, NULL,
                                &table, &err),
                  err);
        expect_ok(table_walk(table, &sample.entries, &err), err); // now all of it is in the cache
        file[places[i]] ^= 1;
        put_file(file, sample.size);
        check_status(tm_table_verify(table, NULL, NULL, &err), TAMIS_CORRUPT, err);
        tm_table_close(table);
        tm_cache_destroy(cache);
        free(file);
    }
}
END_TEST

static bool
stop_after_three(void *arg, uint64_t bytes_done)
{
    uint64_t *calls = arg;

    (void)bytes_done;
    return ++*calls < 3;
}

START_TEST(verification_can_be_stopped)
{
    struct tm_table *table;
    uint64_t calls = 0;
    tamis_error err;

    put_file(sample.file, sample.size);
    table = shelf_table(&shelf, "t.sst", &sample.identity);
    check_ok(tm_table_verify(table, stop_after_three, &calls, &err), err);
    ck_assert_uint_eq(calls, 3);
    tm_table_close(table);
}
END_TEST

/* ---- Forged under correct checksums ------------------------------------------------------------------ */

/* Put `unpacked` in the place of data block `number`, checksum and all; its length must not have changed. */
static void
forge_block(uint8_t *file, size_t number, struct tm_buf *unpacked)
{
    struct tm_place place = {"t.sst", sample.footer.data_id, sample.block_offsets[number],
                             TM_BLOCK_DATA};
    tamis_slice stored;
    uint64_t checksum;
    tamis_error err;

    expect_ok(tm_block_seal(&shelf.env, &place, unpacked, NULL, false, &stored, &checksum, &err),
              err);
    expect(stored.length == sample.block_offsets[number + 1] - sample.block_offsets[number]);
    memcpy(file + place.offset, stored.data, stored.length);
}

static void
unpack_block(const uint8_t *file, size_t number, struct tm_buf *unpacked)
{
    uint64_t offset = sample.block_offsets[number];
    tamis_error err;

    unpacked->length = 0;
    expect_ok(tm_buf_append(&shelf.env, unpacked, file + offset,
                            sample.block_offsets[number + 1] - offset - TM_TRAILER_BYTES, &err),
              err);
}

/* Make the footer agree with whatever was forged before it. */
static void
forge_footer(uint8_t *file)
{
    struct tm_footer footer = sample.footer;
    uint8_t checksums[8 * KEYS];

    for (size_t i = 0; i < sample.block_count; i++)
        memcpy(checksums + 8 * i, file + sample.block_offsets[i + 1] - 8, 8);
    footer.data_checksum = tm_hash64(checksums, 8 * sample.block_count, 0);
    footer.properties_checksum =
        tm_get_u64(file + footer.properties_offset + footer.properties_bytes - 8);
    if (footer.filter_bytes > 0)
        footer.filter_checksum = tm_filter_section_checksum(
            file + footer.filter_offset + footer.filter_bytes - TAMIS_FILTER_TRAILER_BYTES);
    tm_footer_encode(&footer, file + sample.size - TM_FOOTER_BYTES);
}

/* The file opens as what it says it is, and verification says `complaint`. */
static void
check_complaint(const uint8_t *file, const char *complaint)
{
    struct tm_table *table;
    tamis_error err;

    put_file(file, sample.size);
    table = shelf_table(&shelf, "t.sst", NULL);
    check_status(tm_table_verify(table, NULL, NULL, &err), TAMIS_CORRUPT, err);
    ck_assert_msg(strstr(err.message, complaint) != NULL, "expected \"%s\", found \"%s\"",
                  complaint, err.message);
    tm_table_close(table);
}

START_TEST(randomly_forged_data_blocks_never_lead_outside)
{
    struct rng rng = rng_from(rng_seed("forged tables", 65));
    unsigned rounds = SLOW_BUILD ? 1000 : 5000;
    unsigned refused = 0;
    struct tm_buf unpacked = {0};

    for (unsigned round = 0; round < rounds; round++) {
        uint8_t *file = copy_bytes(sample.file, sample.size);
        size_t number = (size_t)rng_below(&rng, sample.block_count);
        struct tm_table *table;
        struct tm_iter *iter;
        tamis_status status;
        tamis_error err;

        unpack_block(file, number, &unpacked);
        for (uint64_t edits = 1 + rng_below(&rng, 4); edits > 0; edits--)
            unpacked.data[rng_below(&rng, rng_chance(&rng, 1, 2) ? 60 : unpacked.length)] =
                (uint8_t)rng_next(&rng);
        forge_block(file, number, &unpacked);
        put_file(file, sample.size);
        table = shelf_table(&shelf, "t.sst", &sample.identity);
        for (size_t i = 0; i < KEYS; i += 3) {
            struct tm_found found;

            status = table_get(table, sample.entries.list[i].key, TM_SEQUENCE_MAX, &found, &err);
            expect(status == TAMIS_OK || status == TAMIS_CORRUPT);
            if (status == TAMIS_OK)
                tm_block_unref(found.block);
        }
        expect_ok(tm_table_iter(table, false, &iter, &err), err);
        for (iter->vtable->first(iter); iter->valid; iter->vtable->next(iter))
            continue;
        expect(iter->status == TAMIS_OK || iter->status == TAMIS_CORRUPT);
        refused += iter->status != TAMIS_OK;
        for (size_t i = 0; i < KEYS; i += 5)
            iter->vtable->seek(iter, sample.entries.list[i].key, i);
        tm_iter_close(iter);
        if (memcmp(file, sample.file, sample.size) != 0)
            expect(tm_table_verify(table, NULL, NULL, &err) == TAMIS_CORRUPT);
        tm_table_close(table);
        free(file);
    }
    ck_assert_uint_gt(refused, rounds / 4);
    tm_buf_release(&shelf.env, &unpacked);
}
END_TEST

/* Lay out the entries of block `number` anew, changed by `edit`, and forge the file with it. */
static void
forge_entries(uint8_t *file, size_t number, void (*edit)(struct tm_entry *list, size_t count))
{
    struct tm_block_builder builder = {0};
    struct tm_buf unpacked = {0};
    struct tm_entry list[KEYS];
    size_t first = 0;
    size_t count;
    tamis_error err;

    for (size_t i = 0; i < number; i++)
        first += tm_get_u32(sample.file + sample.block_offsets[i] + TM_DATA_COUNT_AT);
    count = tm_get_u32(sample.file + sample.block_offsets[number] + TM_DATA_COUNT_AT);
    memcpy(list, sample.entries.list + first, count * sizeof *list);
    edit(list, count);
    for (size_t i = 0; i < count; i++)
        expect_ok(tm_block_builder_add(
                      &shelf.env, &builder, &list[i],
                      tm_tag_of_hash(tm_hash64(list[i].key.data, list[i].key.length, HASH_SEED)),
                      &err),
                  err);
    expect_ok(tm_block_builder_finish(&shelf.env, &builder, &unpacked, &err), err);
    forge_block(file, number, &unpacked);
    forge_footer(file);
    tm_block_builder_release(&shelf.env, &builder);
    tm_buf_release(&shelf.env, &unpacked);
}

static void
edit_nothing(struct tm_entry *list, size_t count)
{
    (void)list;
    (void)count;
}

static void
edit_order(struct tm_entry *list, size_t count)
{
    struct tm_entry swap = list[count / 2];

    list[count / 2] = list[count / 2 + 1];
    list[count / 2 + 1] = swap;
}

static char edited_key[10];

/* The last key, raised beyond what the separator behind it allows. */
static void
edit_last(struct tm_entry *list, size_t count)
{
    memcpy(edited_key, list[count - 1].key.data, 9);
    edited_key[7] = '~';
    list[count - 1].key.data = edited_key;
}

/* The first key, lowered to 1 above the last key of the block before: below the separator between them. */
static void
edit_first(struct tm_entry *list, size_t count)
{
    unsigned number;

    (void)count;
    memcpy(edited_key, list[0].key.data, 9);
    number = (unsigned)strtoul(edited_key + 3, NULL, 10);
    snprintf(edited_key + 3, 7, "%06u", number - 9);
    list[0].key.data = edited_key;
}

START_TEST(verification_finds_wrong_tags_order_and_bounds_under_correct_checksums)
{
    struct tm_buf unpacked = {0};
    uint8_t *file = copy_bytes(sample.file, sample.size);
    size_t first = 0;
    size_t number = 1;

    forge_entries(file, 2, edit_nothing);
    ck_assert_mem_eq(file, sample.file, sample.size); // the forger gives what the builder gave
    forge_entries(file, 2, edit_order);
    check_complaint(file, "ascending order");
    memcpy(file, sample.file, sample.size);
    forge_entries(file, 2, edit_last);
    check_complaint(file, "beyond the block's separator");

    // A first key that ends in xx10 has a separator above its predecessor plus one.
    for (number = 1; number < sample.block_count; number++) {
        first += tm_get_u32(sample.file + sample.block_offsets[number - 1] + TM_DATA_COUNT_AT);
        if (((const char *)sample.entries.list[first].key.data)[7] != '0')
            break;
    }
    memcpy(file, sample.file, sample.size);
    forge_entries(file, number, edit_first);
    check_complaint(file, "not above the separator before it");

    memcpy(file, sample.file, sample.size);
    unpack_block(file, 3, &unpacked);
    unpacked.data[TM_DATA_HEADER_BYTES +
                  (tm_get_u32(unpacked.data + TM_DATA_PREFIX_BYTES_AT) & 0xffffff)] ^= 1;
    forge_block(file, 3, &unpacked);
    forge_footer(file);
    check_complaint(file, "the tag is not that of its key");

    memcpy(file, sample.file, sample.size);
    file[sample.block_offsets[4] + 30] ^= 1; // sound blocks, another list of them
    unpack_block(sample.file, 4, &unpacked);
    unpacked.data[unpacked.length - 1] ^= 1;
    forge_block(file, 4, &unpacked);
    check_complaint(file, "checksum of the data section");
    tm_buf_release(&shelf.env, &unpacked);
    free(file);
}
END_TEST

/* The properties of the sample with `field` (an offset in struct tm_properties) one higher, or a key changed. */
static void
forge_properties(uint8_t *file, size_t field, tamis_slice smallest, tamis_slice largest)
{
    struct tm_place place = {"t.sst", sample.footer.unique_id, sample.footer.properties_offset,
                             TM_BLOCK_PROPERTIES};
    struct tm_table *table;
    struct tm_properties properties;
    struct tm_buf unpacked = {0};
    tamis_slice stored;
    uint64_t checksum;
    tamis_error err;

    put_file(sample.file, sample.size);
    table = shelf_table(&shelf, "t.sst", &sample.identity);
    properties = table->properties;
    if (field != 0) {
        uint64_t value;

        memcpy(&value, (char *)&properties + field, sizeof value);
        value++;
        memcpy((char *)&properties + field, &value, sizeof value);
    }
    if (smallest.length > 0)
        properties.smallest = smallest;
    if (largest.length > 0)
        properties.largest = largest;
    expect_ok(tm_properties_encode(&shelf.env, &properties, &unpacked, &err), err);
    tm_table_close(table);
    expect_ok(tm_block_seal(&shelf.env, &place, &unpacked, NULL, false, &stored, &checksum, &err),
              err);
    expect(stored.length == sample.footer.properties_bytes);
    memcpy(file, sample.file, sample.size);
    memcpy(file + place.offset, stored.data, stored.length);
    forge_footer(file);
    tm_buf_release(&shelf.env, &unpacked);
}

START_TEST(verification_finds_every_wrong_count_under_correct_checksums)
{
    static const struct {
        size_t field;
        const char *complaint;
    } cases[] = {
        {offsetof(struct tm_properties, entry_count), ": entries: expected 221, found 220"},
        {offsetof(struct tm_properties, key_count), NULL},
        {offsetof(struct tm_properties, tombstone_count), ": tombstones: expected 23, found 22"},
        {offsetof(struct tm_properties, key_bytes), ": bytes of keys: expected 1981, found 1980"},
        {offsetof(struct tm_properties, value_bytes), ": bytes of values: expected "},
        {offsetof(struct tm_properties, sequence_min), ": smallest sequence: expected 2, found 1"},
        {offsetof(struct tm_properties, sequence_max),
         ": largest sequence: expected 221, found 220"},
        {offsetof(struct tm_properties, unpacked_bytes), ": unpacked bytes: expected "},
        {offsetof(struct tm_properties, data_block_count), NULL},
    };
    tamis_slice none = {NULL, 0};
    uint8_t *file = malloc(sample.size);
    struct tm_table *table;
    tamis_error err;

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        forge_properties(file, cases[i].field, none, none);
        if (cases[i].complaint != NULL) {
            check_complaint(file, cases[i].complaint);
        } else { // more keys than entries, more blocks than in the index: noticed when opening
            put_file(file, sample.size);
            check_status(
                tm_table_open(&shelf.env, shelf.dir, "t.sst", NULL, NULL, NULL, &table, &err),
                TAMIS_CORRUPT, err);
        }
    }
    forge_properties(file, 0, tm_slice("key000001", 9), none);
    check_complaint(file, "smallest key");
    forge_properties(file, 0, none, tm_slice("kez000000", 9));
    check_complaint(file, "largest key");
    free(file);
}
END_TEST

START_TEST(verification_finds_a_sound_filter_that_denies_a_key)
{
    uint8_t *file = copy_bytes(sample.file, sample.size);
    uint64_t body_bytes = sample.footer.filter_bytes - TAMIS_FILTER_TRAILER_BYTES;
    uint64_t context = tm_place_seed(sample.footer.unique_id, sample.footer.filter_offset);
    uint64_t hashes[KEYS];
    tamis_filter filter;
    tamis_filter_info info;
    uint8_t *body = aligned_alloc(64, body_bytes);
    struct outcome outcome;

    memcpy(body, file + sample.footer.filter_offset, body_bytes);
    ck_assert_int_eq(tamis_filter_open(body, body_bytes,
                                       file + sample.footer.filter_offset + body_bytes, context,
                                       &filter, &info),
                     TAMIS_FILTER_SOUND);
    for (size_t i = 0; i < KEYS; i++) // of other keys
        hashes[i] = tm_hash64(&i, sizeof i, HASH_SEED);
    ck_assert(tamis_filter_build(&info.geometry, hashes, HASH_SEED, info.bits_per_key_requested,
                                 info.false_positive_rate_target, context, body,
                                 file + sample.footer.filter_offset + body_bytes));
    memcpy(file + sample.footer.filter_offset, body, body_bytes);
    // Sound in itself, in its place, but not the one that the footer means: it is not asked.
    outcome = examine(file, sample.size, 0, 1);
    ck_assert(outcome.opened && !outcome.read_failed);
    ck_assert_int_eq(outcome.filter_damage, TAMIS_FILTER_BAD_TRAILER_CHECKSUM);
    forge_footer(file);
    check_complaint(file, "the filter denies the key");
    free(body);
    free(file);
}
END_TEST

/* ---- Footers ----------------------------------------------------------------------------------------- */

START_TEST(a_footer_whose_sections_do_not_fit_is_corrupt)
{
    uint8_t *file = copy_bytes(sample.file, sample.size);
    struct rng rng = rng_from(rng_seed("forged footers", 66));
    struct tm_footer footer;
    struct tm_table *table;
    tamis_error err;

    for (size_t i = 0; i < sizeof footer / 8; i++) {
        const size_t at = 8 * i;
        // Bits that a reader may ignore, and an identity that only the manifest knows.
        bool free_field = at == offsetof(struct tm_footer, features_compatible) ||
                          at == offsetof(struct tm_footer, data_checksum) ||
                          at == offsetof(struct tm_footer, filter_checksum) ||
                          at == offsetof(struct tm_footer, table_checksum);

        for (unsigned round = 0; round < 40; round++) {
            const uint64_t deltas[] = {1, (uint64_t)-1, 64, (uint64_t)-64, UINT64_MAX / 2};
            uint64_t value;
            tamis_status status;

            footer = sample.footer;
            memcpy(&value, (char *)&footer + at, 8);
            value = round < 5 ? value + deltas[round] : rng_next(&rng) >> rng_below(&rng, 64);
            memcpy((char *)&footer + at, &value, 8);
            if (memcmp(&footer, &sample.footer, sizeof footer) == 0)
                continue;
            if (at == offsetof(struct tm_footer,
                               file_bytes)) // the checksum is that of the place it is read from
                footer.file_bytes = sample.size;
            tm_footer_encode(&footer, file + sample.size - TM_FOOTER_BYTES);
            put_file(file, sample.size);
            status = tm_table_open(&shelf.env, shelf.dir, "t.sst", NULL, NULL, NULL, &table, &err);
            if (free_field || at == offsetof(struct tm_footer, file_bytes))
                expect(status == TAMIS_OK);
            else if (at == offsetof(struct tm_footer, features_required))
                expect(status ==
                       (value != TM_FEATURE_RANGES ? TAMIS_UNSUPPORTED : TAMIS_CORRUPT));
            else
                expect(status == TAMIS_CORRUPT);
            if (status == TAMIS_OK)
                tm_table_close(table);
            // Whoever knows what the file must be accepts none of them but those without effect.
            status = tm_table_open(&shelf.env, shelf.dir, "t.sst", &sample.identity, NULL, NULL,
                                   &table, &err);
            if (status == TAMIS_OK) {
                expect(at == offsetof(struct tm_footer, features_compatible) ||
                       at == offsetof(struct tm_footer, table_checksum) ||
                       at == offsetof(struct tm_footer, file_bytes));
                tm_table_close(table);
            }
        }
    }
    free(file);
}
END_TEST

START_TEST(a_newer_version_or_required_feature_is_unsupported)
{
    uint8_t *file = copy_bytes(sample.file, sample.size);
    uint8_t *bytes = file + sample.size - TM_FOOTER_BYTES;
    uint64_t offset = sample.size - TM_FOOTER_BYTES;
    struct tm_footer footer = sample.footer;
    struct tm_table *table;
    tamis_error err;

    for (unsigned bit = 0; bit < 64; bit++) {
        footer.features_required = UINT64_C(1) << bit;
        tm_footer_encode(&footer, bytes);
        put_file(file, sample.size);
        // One that is known is believed: this table has no ranges, though its footer says so. An order of its own nobody knows.
        check_status(
            tm_table_open(&shelf.env, shelf.dir, "t.sst", NULL, NULL, NULL, &table, &err),
            footer.features_required == TM_FEATURE_RANGES ? TAMIS_CORRUPT : TAMIS_UNSUPPORTED, err);
    }
    footer.features_required = 0;
    footer.features_compatible = UINT64_MAX; // what every reader may ignore
    tm_footer_encode(&footer, bytes);
    put_file(file, sample.size);
    check_ok(tm_table_open(&shelf.env, shelf.dir, "t.sst", NULL, NULL, NULL, &table, &err), err);
    tm_table_close(table);
    for (uint32_t version = 0; version < 4; version++) {
        tm_footer_encode(&footer, bytes);
        tm_put_u32(bytes + TM_FOOTER_VERSION_AT, version);
        tm_put_u64(
            bytes + TM_FOOTER_CHECKSUM_AT,
            tm_hash64(bytes, TM_FOOTER_CHECKSUM_AT, tm_place_seed(footer.unique_id, offset)));
        put_file(file, sample.size);
        if (version == 1)
            continue;
        check_status(tm_table_open(&shelf.env, shelf.dir, "t.sst", NULL, NULL, NULL, &table, &err),
                     version == 0 ? TAMIS_CORRUPT : TAMIS_UNSUPPORTED, err);
    }
    free(file);
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("table_damage");
    TCase *tests = tcase_create("damage");
    TCase *plain = tcase_create("without a filter");

    tcase_set_timeout(tests, 0);
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_test(tests, a_flipped_bit_anywhere_gives_the_right_value_or_corrupt);
    tcase_add_test(tests, a_file_cut_anywhere_is_corrupt);
    tcase_add_test(tests, a_file_that_grew_is_corrupt);
    tcase_add_test(tests, a_zeroed_sector_gives_the_right_value_or_corrupt);
    tcase_add_test(tests, a_sector_of_an_equal_table_gives_the_right_value_or_corrupt);
    tcase_add_test(tests, a_block_copied_over_another_is_corrupt);
    tcase_add_test(tests, a_block_of_an_equal_table_in_the_same_place_is_corrupt);
    tcase_add_test(tests, random_damage_of_many_kinds_gives_the_right_value_or_corrupt);
    tcase_add_test(tests, a_sound_table_in_the_place_of_another_is_corrupt);
    tcase_add_test(tests, the_filter_of_an_equal_table_is_damage_and_answers_stay_right);
    tcase_add_test(tests, a_damaged_filter_says_maybe_and_is_reported);
    tcase_add_test(tests, damage_behind_an_open_table_is_found_by_verifying_it);
    tcase_add_test(tests, verification_can_be_stopped);
    tcase_add_test(tests, randomly_forged_data_blocks_never_lead_outside);
    tcase_add_test(tests, verification_finds_a_sound_filter_that_denies_a_key);
    tcase_add_test(tests, a_footer_whose_sections_do_not_fit_is_corrupt);
    tcase_add_test(tests, a_newer_version_or_required_feature_is_unsupported);
    suite_add_tcase(suite, tests);
    tcase_set_timeout(plain, 0);
    tcase_add_checked_fixture(plain, setup_without_filter, teardown);
    tcase_add_test(plain, verification_finds_wrong_tags_order_and_bounds_under_correct_checksums);
    tcase_add_test(plain, verification_finds_every_wrong_count_under_correct_checksums);
    suite_add_tcase(suite, plain);
    return check_run(suite);
}
