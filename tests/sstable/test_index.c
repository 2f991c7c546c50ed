/* SPDX-License-Identifier: MIT
 *
 * tests/sstable/test_index.c -- separators, and the index: written in two levels, found again in one.
 */
#include "sstable/codec.h"
#include "sstable/format.h"
#include "sstable/index.h"
#include "tests/sstable/table_test.h"

enum { DATA_ID = 77 };

static struct shelf shelf;
static uint64_t refuse_nth; // the allocation of a load that is refused; 0: none

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

/* ---- Separators ------------------------------------------------------------------------------------- */

/* The separator of two keys, checked against what it promises (I1). */
static size_t
check_separator(tamis_slice last, tamis_slice next)
{
    struct tm_buf out = {0};
    tamis_slice separator;
    size_t length;
    tamis_error err;

    expect_ok(tm_index_separator(&shelf.env, last, next, &out, &err), err);
    separator = tm_slice(out.data, out.length);
    expect(tm_slice_compare(separator, last) >= 0);
    if (tm_slice_equal(last, next))
        expect(tm_slice_equal(separator, last));
    else
        expect(tm_slice_compare(separator, next) < 0);
    expect(separator.length <= last.length);
    length = separator.length;
    tm_buf_release(&shelf.env, &out);
    return length;
}

static size_t
separator_bytes(const char *last, const char *next)
{
    return check_separator(tm_slice(last, strlen(last)), tm_slice(next, strlen(next)));
}

START_TEST(a_separator_lies_between_and_is_short)
{
    ck_assert_uint_eq(separator_bytes("apple tree", "banana"), 1);   // "b"
    ck_assert_uint_eq(separator_bytes("key000199", "key000200"), 7); // "key0002"
    ck_assert_uint_eq(separator_bytes("abc", "abcd"), 3);
    ck_assert_uint_eq(separator_bytes("abcde", "abcde"), 5);
    ck_assert_uint_eq(separator_bytes("", "a"), 0);
    ck_assert_uint_eq(separator_bytes("", ""), 0);
    ck_assert_uint_eq(separator_bytes("a\xff\xff\xff"
                                      "bcd",
                                      "b"),
                      5);
    ck_assert_uint_eq(separator_bytes("a\xff\xff\xff", "b"), 4);
    ck_assert_uint_eq(separator_bytes("ab", "b"), 2);
    ck_assert_uint_eq(separator_bytes("abcdef", "b"), 2);
}
END_TEST

START_TEST(separators_of_random_pairs_keep_their_promise)
{
    struct rng rng = rng_from(rng_seed("separators", 31));

    for (unsigned round = 0; round < 200000; round++) {
        uint8_t a[8];
        uint8_t b[8];
        size_t a_length = (size_t)rng_below(&rng, 8);
        size_t b_length = (size_t)rng_below(&rng, 8);
        tamis_slice p = tm_slice(a, a_length);
        tamis_slice q = tm_slice(b, b_length);

        for (size_t i = 0; i < 8; i++) {
            a[i] = (uint8_t) "\0\x01\xfe\xff"[rng_below(&rng, 4)];
            b[i] = (uint8_t) "\0\x01\xfe\xff"[rng_below(&rng, 4)];
        }
        if (tm_slice_compare(p, q) <= 0)
            check_separator(p, q);
        else
            check_separator(q, p);
    }
}
END_TEST

/* ---- Round trips ------------------------------------------------------------------------------------- */

/* The section of an index whose separators are the keys of `entries`, in a file behind `data_bytes` zeros. */
static struct tm_index_place
write_index(const struct entries *entries, bool compress, struct tm_buf *section)
{
    struct tm_index_builder builder = {0};
    struct tm_index_place place = {.file = "index", .data_id = DATA_ID};
    tamis_error err;

    section->length = 0;
    for (size_t i = 0; i < entries->count; i++) {
        uint64_t stored_bytes = TM_TRAILER_BYTES + i * 37 % 500;

        expect_ok(
            tm_index_builder_add(&shelf.env, &builder, entries->list[i].key, stored_bytes, &err),
            err);
        place.data_bytes += stored_bytes;
    }
    expect_ok(tm_index_builder_finish(&shelf.env, &builder, DATA_ID, place.data_bytes, compress,
                                      section, &place.top_bytes, &place.checksum, &err),
              err);
    place.offset = place.data_bytes;
    place.bytes = section->length;
    tm_index_builder_release(&shelf.env, &builder);
    return place;
}

static tamis_status
load_index(const struct tm_index_place *place, const uint8_t *section, struct tm_index *index,
           tamis_error *err)
{
    const tamis_fs *fs = shelf.env.fs;
    uint8_t *bytes = calloc(1, (size_t)(place->offset + place->bytes + 1));
    tamis_file *file;
    tamis_error ignored;
    uint64_t size;
    tamis_status status;

    memcpy(bytes + place->offset, section, (size_t)place->bytes);
    sim_file_put(shelf.world->sim, "tables", "index", bytes,
                 (size_t)(place->offset + place->bytes));
    free(bytes);
    memset(index, 0, sizeof *index);
    expect_ok(fs->open(fs->ctx, shelf.dir, "index", TAMIS_FILE_TABLE, &file, &size, &ignored),
              ignored);
    fault_alloc_fail_after(&shelf.world->alloc, refuse_nth, false);
    status = tm_index_load(&shelf.env, file, place, index, err);
    fault_alloc_fail_after(&shelf.world->alloc, 0, false);
    expect_ok(fs->close(fs->ctx, file, &ignored), ignored);
    expect((index->memory != NULL) == (status == TAMIS_OK));
    return status;
}

/* Number of the first key at or above `key`, looked for one by one. */
static size_t
find_slowly(const struct entries *entries, tamis_slice key)
{
    size_t i = 0;

    while (i < entries->count && tm_slice_compare(entries->list[i].key, key) < 0)
        i++;
    return i;
}

static void
check_find(const struct tm_index *index, const struct entries *entries, tamis_slice key)
{
    size_t found = tm_index_find(index, key);
    size_t right = find_slowly(entries, key);

    expect(found == right);
    for (size_t i = right > 2 ? right - 2 : 0; i < entries->count && i < right + 2; i++) {
        int order = tm_slice_compare(entries->list[i].key, key);
        int said = tm_index_compare(index, i, key);

        expect((order < 0) == (said < 0) && (order > 0) == (said > 0));
        expect(tm_index_separator_is(index, i, key) == (order == 0));
    }
}

/* The keys of `entries`, sorted, are written, loaded, and found; so are their neighbours. */
static void
check_index(const struct entries *entries, bool compress)
{
    struct tm_buf section = {0};
    struct tm_index_place place = write_index(entries, compress, &section);
    struct tm_index index;
    uint64_t offset = 0;
    uint8_t key[64];
    tamis_error err;

    expect_ok(load_index(&place, section.data, &index, &err), err);
    ck_assert_uint_eq(index.count, entries->count);
    for (size_t i = 0; i < entries->count; i++) {
        tamis_slice separator = entries->list[i].key;
        tamis_slice rest = tm_index_separator_rest(&index, i);

        expect(index.offsets[i] == offset);
        offset += TM_TRAILER_BYTES + i * 37 % 500;
        expect(index.prefix.length + rest.length == separator.length);
        expect(memcmp(index.prefix.data, separator.data, index.prefix.length) == 0);
        expect(tm_slice_equal(
            rest, tm_slice((const uint8_t *)separator.data + index.prefix.length, rest.length)));
        check_find(&index, entries, separator);
        if (separator.length < sizeof key && separator.length > 0) {
            memcpy(key, separator.data, separator.length);
            key[separator.length] = 0; // just above
            check_find(&index, entries, tm_slice(key, separator.length + 1));
            check_find(&index, entries, tm_slice(key, separator.length - 1));
            key[separator.length - 1]++;
            check_find(&index, entries, tm_slice(key, separator.length));
            key[separator.length - 1] = (uint8_t)(key[separator.length - 1] - 2);
            check_find(&index, entries, tm_slice(key, separator.length));
        }
    }
    expect(index.offsets[entries->count] == offset && offset == place.data_bytes);
    check_find(&index, entries, tm_slice(NULL, 0));
    check_find(&index, entries, tm_slice("\xff\xff\xff\xff\xff\xff\xff\xff\xff", 9));
    tm_index_release(&shelf.env, &index);
    tm_buf_release(&shelf.env, &section);
}

START_TEST(one_block_is_an_index_too)
{
    struct entries entries = {0};

    entries_put(&entries, "only", 0, "");
    check_index(&entries, false);
    entries_free(&entries);
    entries_put(&entries, "", 0, "");
    check_index(&entries, true);
    entries_free(&entries);
}
END_TEST

START_TEST(random_separators_are_found_as_by_looking_one_by_one)
{
    struct rng rng = rng_from(rng_seed("indexes", 32));

    for (unsigned round = 0; round < (SLOW_BUILD ? 60 : 400); round++) {
        struct entries entries = {0};
        size_t count = 1 + (size_t)rng_below(&rng, 100);
        size_t head =
            4 * (size_t)rng_below(&rng, 6); // 0..20: pieces begin within and behind shared bytes
        size_t tail = 1 + (size_t)rng_below(&rng, 12);

        for (size_t i = 0; i < count; i++) {
            uint8_t key[40];
            size_t length = head + (size_t)rng_below(&rng, tail);

            memset(key, 'h', head);
            for (size_t at = head; at < length; at++)
                key[at] = (uint8_t) "\0\x01"
                                    "a\xff"[rng_below(&rng, round % 3 == 0 ? 2 : 4)];
            entries_add(&entries, tm_slice(key, length), i, TM_KIND_PUT, tm_slice(NULL, 0));
        }
        entries_sort(&entries); // equal ones are allowed: versions of one key over several blocks
        check_index(&entries, round % 2 == 0);
        entries_free(&entries);
    }
}
END_TEST

START_TEST(an_index_of_many_leaves_is_found_whole)
{
    struct entries entries = {0};
    struct tm_buf section = {0};
    struct tm_index_place place;
    struct tm_index index;
    struct rng rng = rng_from(33);
    tamis_error err;

    for (size_t i = 0; i < 3000; i++) {
        uint8_t key[40];

        tm_put_u64(key, __builtin_bswap64(i));
        rng_fill(&rng, key + 8, 32);
        entries_add(&entries, tm_slice(key, 40), i, TM_KIND_PUT, tm_slice(NULL, 0));
    }
    check_index(&entries, false);
    place = write_index(&entries, true, &section);
    expect_ok(load_index(&place, section.data, &index, &err), err);
    ck_assert_uint_ge(index.leaf_count, 5);
    // In memory: 24 bytes a block, and of the separators only what they do not share.
    ck_assert_uint_lt(index.memory_bytes, 3000 * (24 + 40) + 200);
    tm_index_release(&shelf.env, &index);
    tm_buf_release(&shelf.env, &section);
    entries_free(&entries);
}
END_TEST

START_TEST(long_and_equal_separators_are_found)
{
    struct entries entries = {0};
    uint8_t *key = malloc(TAMIS_KEY_BYTES_MAX);

    memset(key, 'k', TAMIS_KEY_BYTES_MAX);
    for (size_t i = 0; i < 40; i++)
        entries_add(&entries, tm_slice(key, 1000 + i / 10), i, TM_KIND_PUT, tm_slice(NULL, 0));
    entries_add(&entries, tm_slice(key, TAMIS_KEY_BYTES_MAX), 0, TM_KIND_PUT, tm_slice(NULL, 0));
    check_index(&entries, true);
    entries_free(&entries);
    free(key);
}
END_TEST

/* ---- Damage ------------------------------------------------------------------------------------------ */

START_TEST(a_byte_that_differs_in_any_index_block_is_corrupt)
{
    struct entries entries = {0};
    struct rng rng = rng_from(34);
    struct tm_buf section = {0};
    struct tm_index_place place;
    struct tm_index index;
    tamis_error err;

    entries_fill(&entries, &rng, 40, 1, false);
    place = write_index(&entries, false, &section);
    for (size_t i = 0; i < section.length; i++) {
        section.data[i] ^= 0x10;
        expect(load_index(&place, section.data, &index, &err) == TAMIS_CORRUPT);
        section.data[i] ^= 0x10;
    }
    place.checksum ^= 1;
    check_status(load_index(&place, section.data, &index, &err), TAMIS_CORRUPT, err);
    place.checksum ^= 1;
    place.data_bytes++;
    check_status(load_index(&place, section.data, &index, &err), TAMIS_CORRUPT, err);
    place.data_bytes--;
    for (uint64_t bytes = 0; bytes <= place.bytes + 1; bytes++) {
        struct tm_index_place other = place;

        other.top_bytes = bytes;
        if (bytes != place.top_bytes)
            expect(load_index(&other, section.data, &index, &err) == TAMIS_CORRUPT);
    }
    expect_ok(load_index(&place, section.data, &index, &err), err);
    tm_index_release(&shelf.env, &index);
    tm_buf_release(&shelf.env, &section);
    entries_free(&entries);
}
END_TEST

/* Seal two unpacked nodes as a section of one leaf and one top, behind `data_bytes` of data. */
static struct tm_index_place
seal_nodes(const struct tm_buf *leaf, const struct tm_buf *top, uint64_t data_bytes,
           struct tm_buf *section)
{
    struct tm_index_place place = {
        .file = "index", .data_id = DATA_ID, .data_bytes = data_bytes, .offset = data_bytes};
    const struct tm_buf *nodes[2] = {leaf, top};
    uint8_t checksums[16];
    tamis_error err;

    section->length = 0;
    for (unsigned i = 0; i < 2; i++) {
        struct tm_place at = {"index", DATA_ID, data_bytes + section->length,
                              i == 0 ? TM_BLOCK_INDEX_LEAF : TM_BLOCK_INDEX_TOP};
        struct tm_buf copy = {0};
        tamis_slice stored;
        uint64_t checksum;

        expect_ok(tm_buf_append(&shelf.env, &copy, nodes[i]->data, nodes[i]->length, &err), err);
        expect_ok(tm_block_seal(&shelf.env, &at, &copy, NULL, false, &stored, &checksum, &err),
                  err);
        expect_ok(tm_buf_append(&shelf.env, section, stored.data, stored.length, &err), err);
        tm_put_u64(checksums + 8 * i, checksum);
        place.top_bytes = stored.length;
        tm_buf_release(&shelf.env, &copy);
    }
    place.bytes = section->length;
    place.checksum = tm_hash64(checksums, sizeof checksums, 0);
    return place;
}

/* A node by hand: children are (shared, suffix, stored bytes). */
struct child {
    uint64_t shared;
    const char *suffix;
    uint64_t stored_bytes;
};

static void
make_node(struct tm_buf *node, uint64_t first, const struct child *children, uint32_t count)
{
    uint8_t bytes[512];
    uint8_t *p = bytes + TM_INDEX_HEADER_BYTES;
    tamis_error err;

    tm_put_u32(bytes + TM_INDEX_COUNT_AT, count);
    tm_put_u32(bytes + TM_INDEX_ZERO_AT, 0);
    tm_put_u64(bytes + TM_INDEX_FIRST_AT, first);
    for (uint32_t i = 0; i < count; i++) {
        size_t length = strlen(children[i].suffix);

        p = tm_put_varint64(p, children[i].shared);
        p = tm_put_varint64(p, length);
        memcpy(p, children[i].suffix, length);
        p = tm_put_varint64(p + length, children[i].stored_bytes);
    }
    node->length = 0;
    expect_ok(tm_buf_append(&shelf.env, node, bytes, (size_t)(p - bytes), &err), err);
}

/* Load an index of these two nodes. */
static tamis_status
load_nodes(const struct tm_buf *leaf, const struct tm_buf *top, tamis_error *err)
{
    struct tm_buf section = {0};
    struct tm_index_place place = seal_nodes(leaf, top, 300, &section);
    struct tm_index index;
    tamis_status status = load_index(&place, section.data, &index, err);

    tm_index_release(&shelf.env, &index);
    tm_buf_release(&shelf.env, &section);
    return status;
}

START_TEST(an_inner_number_that_is_wrong_under_a_correct_checksum_is_corrupt)
{
    static const struct child sound[3] = {{0, "ab", 100}, {1, "c", 100}, {2, "d", 100}};
    struct child children[3];
    struct tm_buf leaf = {0};
    struct tm_buf top = {0};
    struct child up = {0, "acd", 0};
    tamis_error err;

    make_node(&leaf, 0, sound, 3);
    up.stored_bytes = leaf.length + TM_TRAILER_BYTES;
    make_node(&top, 300, &up, 1);
    expect_ok(load_nodes(&leaf, &top, &err), err);

#define refuse_leaf(edit)                                                                          \
    do {                                                                                           \
        memcpy(children, sound, sizeof children);                                                  \
        edit;                                                                                      \
        make_node(&leaf, 0, children, 3);                                                          \
        up.stored_bytes = leaf.length + TM_TRAILER_BYTES;                                          \
        make_node(&top, 300, &up, 1);                                                              \
        check_status(load_nodes(&leaf, &top, &err), TAMIS_CORRUPT, err);                           \
    } while (0)
    refuse_leaf(children[0].shared = 1);          // of nothing
    refuse_leaf(children[1].shared = 3);          // more than there was
    refuse_leaf(children[1].shared = UINT64_MAX); // a sum that wraps
    // "aa" after "ab", and "acd" again: only the order is wrong.
    refuse_leaf((children[1].suffix = "a", children[2].shared = 1, children[2].suffix = "cd"));
    refuse_leaf(children[2].suffix = "c");                        // not what the top says
    refuse_leaf(children[0].stored_bytes = TM_TRAILER_BYTES - 1); // shorter than a trailer
    refuse_leaf(children[0].stored_bytes = UINT64_MAX);           // behind the data
    refuse_leaf(children[2].stored_bytes = 101);                  // one byte of the index
    refuse_leaf(children[2].stored_bytes = 99);                   // one byte left over
#undef refuse_leaf

    make_node(&leaf, 0, sound, 3);
    make_node(&top, 301, &up, 1); // the first leaf elsewhere
    check_status(load_nodes(&leaf, &top, &err), TAMIS_CORRUPT, err);
    up.stored_bytes++; // a leaf that reaches into the top
    make_node(&top, 300, &up, 1);
    check_status(load_nodes(&leaf, &top, &err), TAMIS_CORRUPT, err);
    up.stored_bytes--;
    make_node(&top, 300, &up, 1);
    make_node(&leaf, 1, sound, 3); // data that does not begin at 0
    check_status(load_nodes(&leaf, &top, &err), TAMIS_CORRUPT, err);
    make_node(&leaf, 0, sound, 3);
    tm_put_u32(leaf.data + TM_INDEX_COUNT_AT, 2); // bytes behind the last child
    check_status(load_nodes(&leaf, &top, &err), TAMIS_CORRUPT, err);
    tm_put_u32(leaf.data + TM_INDEX_COUNT_AT, 0);
    check_status(load_nodes(&leaf, &top, &err), TAMIS_CORRUPT, err);
    tm_put_u32(leaf.data + TM_INDEX_COUNT_AT, UINT32_MAX);
    check_status(load_nodes(&leaf, &top, &err), TAMIS_CORRUPT, err);
    tm_put_u32(leaf.data + TM_INDEX_COUNT_AT, 3);
    tm_put_u32(leaf.data + TM_INDEX_ZERO_AT, 1);
    check_status(load_nodes(&leaf, &top, &err), TAMIS_CORRUPT, err);
    tm_put_u32(leaf.data + TM_INDEX_ZERO_AT, 0);
    expect_ok(load_nodes(&leaf, &top, &err), err);
    tm_buf_release(&shelf.env, &leaf);
    tm_buf_release(&shelf.env, &top);
}
END_TEST

START_TEST(randomly_forged_nodes_are_an_index_or_corrupt)
{
    static const struct child sound[3] = {{0, "ab", 100}, {1, "c", 100}, {2, "d", 100}};
    struct rng rng = rng_from(rng_seed("forged nodes", 35));
    struct tm_buf leaf = {0};
    struct tm_buf top = {0};
    unsigned rounds = SLOW_BUILD ? 3000 : 30000;
    unsigned refused = 0;

    for (unsigned round = 0; round < rounds; round++) {
        struct child up = {0, "acd", 0};
        struct tm_buf *victim = rng_chance(&rng, 1, 2) ? &leaf : &top;
        tamis_error err;
        tamis_status status;

        make_node(&leaf, 0, sound, 3);
        up.stored_bytes = leaf.length + TM_TRAILER_BYTES;
        make_node(&top, 300, &up, 1);
        for (uint64_t edits = 1 + rng_below(&rng, 3); edits > 0; edits--)
            victim->data[rng_below(&rng, victim->length)] = (uint8_t)rng_next(&rng);
        if (rng_chance(&rng, 1, 4))
            victim->length = (size_t)rng_below(&rng, victim->length);
        status = load_nodes(&leaf, &top, &err);
        expect(status == TAMIS_OK || status == TAMIS_CORRUPT);
        refused += status != TAMIS_OK;
    }
    ck_assert_uint_gt(refused, rounds / 2);
    tm_buf_release(&shelf.env, &leaf);
    tm_buf_release(&shelf.env, &top);
}
END_TEST

START_TEST(without_memory_writing_and_loading_say_so_and_keep_nothing)
{
    struct entries entries = {0};
    struct rng rng = rng_from(36);
    struct tm_buf section = {0};
    struct tm_index_place place;
    uint64_t refused = 0;
    tamis_status status = TAMIS_NO_MEMORY;
    tamis_error err;

    entries_fill(&entries, &rng, 30, 1, false);
    place = write_index(&entries, true, &section);
    for (uint64_t nth = 1; status != TAMIS_OK; nth++) {
        struct tm_index index;

        refuse_nth = nth;
        status = load_index(&place, section.data, &index, &err);
        expect(status == TAMIS_OK || status == TAMIS_NO_MEMORY);
        refused += status != TAMIS_OK;
        tm_index_release(&shelf.env, &index);
    }
    ck_assert_uint_ge(refused, 8);
    refuse_nth = 0;

    status = TAMIS_NO_MEMORY;
    refused = 0;
    for (uint64_t nth = 1; status != TAMIS_OK; nth++) {
        struct tm_index_builder builder = {0};
        struct tm_buf again = {0};
        uint64_t top_bytes;
        uint64_t checksum;

        fault_alloc_fail_after(&shelf.world->alloc, nth, false);
        status = TAMIS_OK;
        for (size_t i = 0; i < entries.count && status == TAMIS_OK; i++)
            status = tm_index_builder_add(&shelf.env, &builder, entries.list[i].key,
                                          TM_TRAILER_BYTES + i * 37 % 500, &err);
        if (status == TAMIS_OK)
            status = tm_index_builder_finish(&shelf.env, &builder, DATA_ID, place.offset, true,
                                             &again, &top_bytes, &checksum, &err);
        fault_alloc_fail_after(&shelf.world->alloc, 0, false);
        expect(status == TAMIS_OK || status == TAMIS_NO_MEMORY);
        refused += status != TAMIS_OK;
        if (status == TAMIS_OK) {
            expect(checksum == place.checksum && top_bytes == place.top_bytes);
            expect(tm_slice_equal(tm_slice(again.data, again.length),
                                  tm_slice(section.data, section.length)));
        }
        tm_buf_release(&shelf.env, &again);
        tm_index_builder_release(&shelf.env, &builder);
    }
    ck_assert_uint_ge(refused, 6);
    tm_buf_release(&shelf.env, &section);
    entries_free(&entries);
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("index");
    TCase *tests = tcase_create("index");

    tcase_set_timeout(tests, 0);
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_test(tests, a_separator_lies_between_and_is_short);
    tcase_add_test(tests, separators_of_random_pairs_keep_their_promise);
    tcase_add_test(tests, one_block_is_an_index_too);
    tcase_add_test(tests, random_separators_are_found_as_by_looking_one_by_one);
    tcase_add_test(tests, an_index_of_many_leaves_is_found_whole);
    tcase_add_test(tests, long_and_equal_separators_are_found);
    tcase_add_test(tests, a_byte_that_differs_in_any_index_block_is_corrupt);
    tcase_add_test(tests, an_inner_number_that_is_wrong_under_a_correct_checksum_is_corrupt);
    tcase_add_test(tests, randomly_forged_nodes_are_an_index_or_corrupt);
    tcase_add_test(tests, without_memory_writing_and_loading_say_so_and_keep_nothing);
    suite_add_tcase(suite, tests);
    return check_run(suite);
}
