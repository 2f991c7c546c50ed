/* SPDX-License-Identifier: MIT
 *
 * tests/sstable/test_table_golden.c -- tables of format version 1 as files, made again and opened again.
 *
 *   good_*          opens, verifies, and holds exactly the entries that it was made of
 *   bad_*           a good one after the edit that its line below describes
 *   unsupported_*   sound, from a future that this version does not understand
 *
 * Run with TAMIS_WRITE_GOLDEN=1 to write tests/golden/ anew: only ever for new names. A file that changes is a change
 * of the format.
 */
#include <stdio.h>

#include "sstable/codec.h"
#include "sstable/format.h"
#include "tests/sstable/table_test.h"

#define GOLDEN_DIR TAMIS_SOURCE_DIR "/tests/golden/"

enum { FILE_BYTES_MAX = 64 * 1024 };

struct golden {
    const char *name;
    struct tm_table_options options;
    void (*fill)(struct entries *entries);
    void (*edit)(uint8_t *bytes, size_t *size); // NULL: none
    tamis_status open;
    tamis_status walk;
    tamis_status verify;
    tamis_filter_damage damage;
    bool bytes_vary; // with the version of LZ4: contents are compared, bytes are not
};

/* ---- What the tables hold -------------------------------------------------------------------------- */

/* Puts, deletions, versions over several blocks, empty and odd keys and values. */
static void
fill_mixed(struct entries *entries)
{
    static const char *const keys[] = {"",       "\x01", "apple", "apple pie",
                                       "banana", "plum", "\xff",  "\xff\xff\xff"};

    for (uint64_t i = 0; i < 8; i++) {
        entries_put(entries, keys[i], 100 + i, i % 3 == 0 ? "" : "a value");
        if (i % 2 == 1)
            entries_add(entries, tm_slice(keys[i], strlen(keys[i])), 200 + i, TM_KIND_DELETE,
                        tm_slice(NULL, 0));
    }
    for (uint64_t sequence = 1; sequence <= 12; sequence++)
        entries_put(entries, "many versions", sequence * 1000, "a value of one of many versions");
    entries_add(entries, tm_slice("nul\0nul", 7), TM_SEQUENCE_MAX, TM_KIND_PUT,
                tm_slice("\0\0", 2));
    entries_sort(entries);
}

static void
fill_hundred(struct entries *entries)
{
    struct rng rng = rng_from(1);

    entries_fill(entries, &rng, 100, 3, false);
}

static void
fill_one(struct entries *entries)
{
    entries_put(entries, "the only key", 7, "its value");
}

/* Ranges that begin before the only key, end behind it, and overlap. */
static void
fill_ranges(struct entries *entries)
{
    static const struct tm_range ranges[] = {
        {{"", 0}, {"b", 1}, 9},
        {{"a", 1}, {"z\0", 2}, 12},
        {{"a", 1}, {"c", 1}, 3},
    };

    fill_one(entries);
    entries->ranges = ranges;
    entries->range_count = 3;
}

/* Values larger than a block, and offsets of four bytes. */
static void
fill_large(struct entries *entries)
{
    static uint8_t value[12000];
    struct rng rng = rng_from(2);

    entries_put(entries, "a", 1, "small");
    rng_fill(&rng, value, sizeof value);
    entries_add(entries, tm_slice("b", 1), 2, TM_KIND_PUT, tm_slice(value, sizeof value));
    entries_put(entries, "c", 3, "small too");
}

/* ---- Edits ----------------------------------------------------------------------------------------- */

static uint64_t
footer_field(const uint8_t *bytes, size_t size, int at)
{
    return tm_get_u64(bytes + size - TM_FOOTER_BYTES + at);
}

/* Make the footer's own checksum, and that over the sections, right again. */
static void
fix_footer(uint8_t *bytes, size_t size)
{
    uint8_t *footer = bytes + size - TM_FOOTER_BYTES;

    tm_put_u64(footer + TM_FOOTER_TABLE_CHECKSUM_AT,
               tm_hash64(footer + TM_FOOTER_DATA_CHECKSUM_AT, 32, 0));
    tm_put_u64(footer + TM_FOOTER_CHECKSUM_AT,
               tm_hash64(footer, TM_FOOTER_CHECKSUM_AT,
                         tm_place_seed(tm_get_u64(footer + TM_FOOTER_UNIQUE_ID_AT),
                                       size - TM_FOOTER_BYTES)));
}

static void
fix_block(uint8_t *bytes, uint64_t id, uint64_t offset, uint64_t stored_bytes)
{
    tm_put_u64(bytes + offset + stored_bytes - 8,
               tm_hash64(bytes + offset, stored_bytes - 8, tm_place_seed(id, offset)));
}

static void
flip_data(uint8_t *bytes, size_t *size)
{
    (void)size;
    bytes[30] ^= 0x10;
}

static void
flip_index(uint8_t *bytes, size_t *size)
{
    bytes[footer_field(bytes, *size, TM_FOOTER_INDEX_AT) + 20] ^= 0x01;
}

static void
flip_padding(uint8_t *bytes, size_t *size)
{
    uint64_t filter = footer_field(bytes, *size, TM_FOOTER_FILTER_AT);

    expect(filter > footer_field(bytes, *size, TM_FOOTER_INDEX_AT) +
                        footer_field(bytes, *size, TM_FOOTER_INDEX_BYTES_AT));
    bytes[filter - 1] = 1;
}

static void
flip_filter(uint8_t *bytes, size_t *size)
{
    bytes[footer_field(bytes, *size, TM_FOOTER_FILTER_AT) + 5] ^= 0x80;
}

static void
flip_properties(uint8_t *bytes, size_t *size)
{
    bytes[footer_field(bytes, *size, TM_FOOTER_PROPERTIES_AT) + TM_PROPERTIES_ENTRIES_AT] ^= 0x01;
}

static void
flip_footer(uint8_t *bytes, size_t *size)
{
    bytes[*size - TM_FOOTER_BYTES + TM_FOOTER_DATA_BYTES_AT] ^= 0x01;
}

static void
flip_magic(uint8_t *bytes, size_t *size)
{
    bytes[*size - 1] ^= 0x20;
}

static void
cut_short(uint8_t *bytes, size_t *size)
{
    (void)bytes;
    *size -= 1;
}

/* The first block claims more entries than it has room for; its checksum is right. */
static void
forge_count(uint8_t *bytes, size_t *size)
{
    uint64_t end = 0; // of the first block: its trailer is the first that fits in its place

    for (uint64_t stored = TM_TRAILER_BYTES; end == 0; stored++)
        if (tm_get_u64(bytes + stored - 8) ==
            tm_hash64(bytes, stored - 8,
                      tm_place_seed(footer_field(bytes, *size, TM_FOOTER_DATA_ID_AT), 0)))
            end = stored;
    tm_put_u32(bytes + TM_DATA_COUNT_AT, 0x10000000);
    fix_block(bytes, footer_field(bytes, *size, TM_FOOTER_DATA_ID_AT), 0, end);
}

/* Sections that overlap, under right checksums. */
static void
forge_sections(uint8_t *bytes, size_t *size)
{
    uint8_t *footer = bytes + *size - TM_FOOTER_BYTES;

    tm_put_u64(footer + TM_FOOTER_INDEX_AT, tm_get_u64(footer + TM_FOOTER_INDEX_AT) - 1);
    fix_footer(bytes, *size);
}

static void
future_version(uint8_t *bytes, size_t *size)
{
    tm_put_u32(bytes + *size - TM_FOOTER_BYTES + TM_FOOTER_VERSION_AT, TM_FORMAT_VERSION + 1);
    fix_footer(bytes, *size);
}

static void
future_feature(uint8_t *bytes, size_t *size)
{
    tm_put_u64(bytes + *size - TM_FOOTER_BYTES + TM_FOOTER_REQUIRED_AT, UINT64_C(1) << 63);
    fix_footer(bytes, *size);
}

/* A feature that readers may ignore. */
static void
compatible_feature(uint8_t *bytes, size_t *size)
{
    tm_put_u64(bytes + *size - TM_FOOTER_BYTES + TM_FOOTER_COMPATIBLE_AT, UINT64_C(1) << 63);
    fix_footer(bytes, *size);
}

static void
future_hash(uint8_t *bytes, size_t *size)
{
    uint64_t offset = footer_field(bytes, *size, TM_FOOTER_PROPERTIES_AT);
    uint64_t stored_bytes = footer_field(bytes, *size, TM_FOOTER_PROPERTIES_BYTES_AT);

    bytes[offset + TM_PROPERTIES_HASH_ID_AT] = 200;
    fix_block(bytes, footer_field(bytes, *size, TM_FOOTER_UNIQUE_ID_AT), offset, stored_bytes);
    tm_put_u64(bytes + *size - TM_FOOTER_BYTES + TM_FOOTER_PROPERTIES_CHECKSUM_AT,
               tm_get_u64(bytes + offset + stored_bytes - 8));
    fix_footer(bytes, *size);
}

/* ---- The files ------------------------------------------------------------------------------------- */

#define OPTIONS(kind, bits, rate, packed)                                                          \
    {                                                                                              \
        .block_bytes = 256, .compress = (packed), .filter_kind = (kind),                           \
        .filter_bits_per_key = (bits), .filter_false_positive_rate = (rate),                       \
        .hash_seed = HASH_SEED                                                                     \
    }
#define PAIR OPTIONS(TAMIS_FILTER_PAIR512, 10, 0, false)

static const struct golden goldens[] = {
    {.name = "good_mixed.sst", .options = PAIR, .fill = fill_mixed},
    {.name = "good_one.sst", .options = PAIR, .fill = fill_one},
    {.name = "good_ranges.sst", .options = PAIR, .fill = fill_ranges},
    {.name = "good_large.sst", .options = PAIR, .fill = fill_large},
    {.name = "good_standard.sst",
     .options = OPTIONS(TAMIS_FILTER_STANDARD, 12.5, 0, false),
     .fill = fill_hundred},
    {.name = "good_blk512.sst",
     .options = OPTIONS(TAMIS_FILTER_BLK512, 10, 0, false),
     .fill = fill_hundred},
    {.name = "good_rate.sst",
     .options = OPTIONS(TAMIS_FILTER_PAIR512, 0, 0.001, false),
     .fill = fill_hundred},
    {.name = "good_no_filter.sst",
     .options = OPTIONS(TAMIS_FILTER_PAIR512, 0, 0, false),
     .fill = fill_hundred},
    {.name = "good_lz4.sst",
     .options = OPTIONS(TAMIS_FILTER_PAIR512, 10, 0, true),
     .fill = fill_hundred,
     .bytes_vary = true},
    {.name = "good_compatible_feature.sst",
     .options = PAIR,
     .fill = fill_one,
     .edit = compatible_feature},
    {.name = "bad_data.sst",
     .options = PAIR,
     .fill = fill_mixed,
     .edit = flip_data,
     .walk = TAMIS_CORRUPT,
     .verify = TAMIS_CORRUPT},
    {.name = "bad_forged_count.sst",
     .options = PAIR,
     .fill = fill_mixed,
     .edit = forge_count,
     .walk = TAMIS_CORRUPT,
     .verify = TAMIS_CORRUPT},
    {.name = "bad_padding.sst",
     .options = PAIR,
     .fill = fill_mixed,
     .edit = flip_padding,
     .verify = TAMIS_CORRUPT},
    {.name = "bad_filter.sst",
     .options = PAIR,
     .fill = fill_mixed,
     .edit = flip_filter,
     .verify = TAMIS_CORRUPT,
     .damage = TAMIS_FILTER_BAD_BODY_CHECKSUM},
    {.name = "bad_index.sst",
     .options = PAIR,
     .fill = fill_mixed,
     .edit = flip_index,
     .open = TAMIS_CORRUPT},
    {.name = "bad_properties.sst",
     .options = PAIR,
     .fill = fill_mixed,
     .edit = flip_properties,
     .open = TAMIS_CORRUPT},
    {.name = "bad_footer.sst",
     .options = PAIR,
     .fill = fill_mixed,
     .edit = flip_footer,
     .open = TAMIS_CORRUPT},
    {.name = "bad_magic.sst",
     .options = PAIR,
     .fill = fill_mixed,
     .edit = flip_magic,
     .open = TAMIS_CORRUPT},
    {.name = "bad_short.sst",
     .options = PAIR,
     .fill = fill_mixed,
     .edit = cut_short,
     .open = TAMIS_CORRUPT},
    {.name = "bad_forged_sections.sst",
     .options = PAIR,
     .fill = fill_mixed,
     .edit = forge_sections,
     .open = TAMIS_CORRUPT},
    {.name = "unsupported_version.sst",
     .options = PAIR,
     .fill = fill_one,
     .edit = future_version,
     .open = TAMIS_UNSUPPORTED},
    {.name = "unsupported_feature.sst",
     .options = PAIR,
     .fill = fill_one,
     .edit = future_feature,
     .open = TAMIS_UNSUPPORTED},
    {.name = "unsupported_hash.sst",
     .options = PAIR,
     .fill = fill_one,
     .edit = future_hash,
     .open = TAMIS_UNSUPPORTED},
};
enum { GOLDEN_COUNT = sizeof goldens / sizeof *goldens };

static struct shelf shelf;

/* The bytes of a golden file, made now; malloc'ed. */
static uint8_t *
make(const struct golden *golden, size_t *size)
{
    struct entries entries = {0};
    uint8_t *bytes;

    shelf.identity = 0; // so that every file is made with the same ids, whatever was made before
    golden->fill(&entries);
    (void)shelf_write(&shelf, "made.sst", &golden->options, &entries);
    entries_free(&entries);
    bytes = sim_file_get(shelf.world->sim, "tables", "made.sst", size);
    expect(bytes != NULL);
    if (golden->edit != NULL)
        golden->edit(bytes, size);
    (void)sim_file_remove(shelf.world->sim, "tables", "made.sst");
    return bytes;
}

/* The bytes of a golden file as committed; malloc'ed. */
static uint8_t *
load(const struct golden *golden, size_t *size)
{
    uint8_t *bytes = malloc(FILE_BYTES_MAX);
    char path[512];
    FILE *file;

    snprintf(path, sizeof path, GOLDEN_DIR "%s", golden->name);
    file = fopen(path, "rb");
    ck_assert_msg(file != NULL, "%s is missing", path);
    *size = fread(bytes, 1, FILE_BYTES_MAX, file);
    fclose(file);
    expect(*size > 0 && *size < FILE_BYTES_MAX);
    return bytes;
}

START_TEST(a_golden_file_is_what_this_version_writes)
{
    const struct golden *golden = &goldens[_i];
    size_t made_size;
    size_t size;
    uint8_t *made = make(golden, &made_size);
    uint8_t *bytes = load(golden, &size);

    if (!golden->bytes_vary) {
        ck_assert_msg(size == made_size, "%s: %zu bytes, made again %zu", golden->name, size,
                      made_size);
        for (size_t i = 0; i < size; i++)
            ck_assert_msg(bytes[i] == made[i], "%s: byte %zu is %02x, made again %02x",
                          golden->name, i, bytes[i], made[i]);
    }
    free(made);
    free(bytes);
}
END_TEST

START_TEST(a_golden_file_is_read_as_its_name_says)
{
    const struct golden *golden = &goldens[_i];
    struct entries entries = {0};
    struct tm_table *table = NULL;
    tamis_error err;
    size_t size;
    uint8_t *bytes = load(golden, &size);

    golden->fill(&entries);
    sim_file_put(shelf.world->sim, "tables", golden->name, bytes, size);
    check_status(tm_table_open(&shelf.env, shelf.dir, golden->name, NULL, NULL, NULL, &table, &err),
                 golden->open, err);
    if (golden->open != TAMIS_OK) {
        ck_assert_msg(strstr(err.message, golden->name) != NULL, "no file name in: %s",
                      err.message);
    } else {
        ck_assert_int_eq(tm_table_filter_damage(table), golden->damage);
        check_status(table_walk(table, &entries, &err), golden->walk, err);
        check_status(tm_table_verify(table, NULL, NULL, &err), golden->verify, err);
        for (size_t i = 0; i < entries.count; i++) { // the right answer or CORRUPT
            const struct tm_entry *entry = &entries.list[i];
            tamis_status status = table_compare(table, &entries, entry->key, entry->sequence, &err);

            if (golden->walk == TAMIS_OK)
                check_ok(status, err);
            else
                ck_assert(status == TAMIS_OK || status == TAMIS_CORRUPT);
        }
    }
    tm_table_close(table);
    entries_free(&entries);
    free(bytes);
}
END_TEST

static void
setup(void)
{
    shelf_open(&shelf);
}

static void
teardown(void)
{
    shelf_close(&shelf);
}

static int
write_all(void)
{
    setup();
    for (size_t i = 0; i < GOLDEN_COUNT; i++) {
        char path[512];
        size_t size;
        uint8_t *bytes = make(&goldens[i], &size);
        FILE *file;

        snprintf(path, sizeof path, GOLDEN_DIR "%s", goldens[i].name);
        file = fopen(path, "wb");
        if (file == NULL || fwrite(bytes, 1, size, file) != size || fclose(file) != 0)
            return EXIT_FAILURE;
        printf("%6zu %s\n", size, goldens[i].name);
        free(bytes);
    }
    teardown();
    return EXIT_SUCCESS;
}

int
main(void)
{
    Suite *suite;
    TCase *tests;

    if (getenv("TAMIS_WRITE_GOLDEN") != NULL)
        return write_all();
    suite = suite_create("table_golden");
    tests = tcase_create("table_golden");
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_loop_test(tests, a_golden_file_is_what_this_version_writes, 0, GOLDEN_COUNT);
    tcase_add_loop_test(tests, a_golden_file_is_read_as_its_name_says, 0, GOLDEN_COUNT);
    suite_add_tcase(suite, tests);
    return check_run(suite);
}
