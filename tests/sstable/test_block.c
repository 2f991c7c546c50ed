/* SPDX-License-Identifier: MIT
 *
 * tests/sstable/test_block.c -- one data block: what was put in comes out, and nothing forged leads outside of it.
 */
#include "sstable/block_build.h"
#include "sstable/block_read.h"
#include "sstable/format.h"
#include "tests/sstable/table_test.h"

static struct fault_alloc fault;
static struct tm_env env;
static struct entries entries;

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
    entries_free(&entries);
    ck_assert_uint_eq(fault.live_count, 0);
}

static uint64_t
hash_of(tamis_slice key)
{
    return tm_hash64(key.data, key.length, HASH_SEED);
}

/* Exactly `length` bytes of memory, so that a sanitizer sees every step outside. */
static struct tm_block *
block_of(const void *data, size_t length)
{
    struct tm_block *block = tm_block_create(&env, length);

    ck_assert_ptr_nonnull(block);
    memcpy(block->data, data, length);
    return block;
}

/* Lay out `entries`; the size is what was foretold, or a little less. */
static struct tm_block *
build(void)
{
    struct tm_block_builder builder = {0};
    struct tm_buf out = {0};
    struct tm_block *block;
    tamis_error err;
    size_t bytes = 0;

    for (size_t i = 0; i < entries.count; i++) {
        const struct tm_entry *entry = &entries.list[i];

        bytes = tm_block_builder_bytes(&builder, entry);
        expect_ok(
            tm_block_builder_add(&env, &builder, entry, tm_tag_of_hash(hash_of(entry->key)), &err),
            err);
        expect(tm_block_builder_bytes(&builder, NULL) == bytes);
    }
    expect_ok(tm_block_builder_finish(&env, &builder, &out, &err), err);
    expect(out.length <= bytes);
    // Of two varints and an offset an entry, the foretold size takes the widest.
    expect(bytes - out.length <=
           entries.count * (TM_VARINT64_BYTES_MAX + TM_VARINT32_BYTES_MAX + 2));
    ck_assert_uint_eq(builder.count, 0);
    tm_block_builder_release(&env, &builder);
    block = block_of(out.data, out.length);
    tm_buf_release(&env, &out);
    return block;
}

static struct tm_block_view
view_of(const struct tm_block *block)
{
    struct tm_block_view view;
    tamis_error err;

    expect_ok(tm_block_view_init(&view, block, "000001.sst", 4096, &err), err);
    return view;
}

/* Is entry `index` of the block the reference's? */
static bool
holds(const struct tm_block_view *view, uint32_t index, const struct tm_entry *right)
{
    struct tm_block_entry entry;
    tamis_slice head = tm_slice(right->key.data, view->prefix_length);
    tamis_error err;

    expect_ok(tm_block_entry_at(view, index, &entry, &err), err);
    if (view->prefix_length > right->key.length)
        return false;
    return tm_slice_equal(head, tm_slice(view->prefix, view->prefix_length)) &&
           tm_slice_equal(entry.suffix,
                          tm_slice((const uint8_t *)right->key.data + view->prefix_length,
                                   right->key.length - view->prefix_length)) &&
           tm_slice_equal(entry.value, right->value) && entry.sequence == right->sequence &&
           entry.kind == right->kind;
}

/* Search for (key, sequence) and compare with the reference; what follows the block is not known here. */
static void
check_search(const struct tm_block_view *view, tamis_slice key, uint64_t sequence)
{
    const struct tm_entry *right = entries_search(&entries, key, sequence);
    const struct tm_entry *last = &entries.list[entries.count - 1];
    struct tm_block_entry entry;
    enum tm_block_verdict verdict;
    tamis_error err;

    expect_ok(tm_block_search(view, NULL, key, hash_of(key), sequence, &entry, &verdict, &err),
              err);
    if (right != NULL) {
        expect(verdict == TM_BLOCK_HIT);
        expect(entry.sequence == right->sequence && entry.kind == right->kind);
        expect(tm_slice_equal(entry.value, right->value));
    } else if (!entries_hold(&entries, key)) {
        expect(verdict == TM_BLOCK_ABSENT);
    } else {
        expect(verdict == (tm_slice_equal(last->key, key) ? TM_BLOCK_GO_ON : TM_BLOCK_TOO_NEW));
    }
}

static void
check_seek(const struct tm_block_view *view, tamis_slice key, uint64_t sequence)
{
    uint32_t index;
    tamis_error err;

    expect_ok(tm_block_seek(view, NULL, key, sequence, &index, &err), err);
    expect(index == entries_seek(&entries, key, sequence));
}

/* `entries` as a block: every entry, and every search and seek around each of them. */
static void
check_round_trip(void)
{
    struct tm_block *block = build();
    struct tm_block_view view = view_of(block);

    ck_assert_uint_eq(view.count, entries.count);
    for (uint32_t i = 0; i < view.count; i++) {
        const struct tm_entry *entry = &entries.list[i];

        expect(holds(&view, i, entry));
        expect(view.tags[i] == tm_tag_of_hash(hash_of(entry->key)));
        check_search(&view, entry->key, entry->sequence);
        check_search(&view, entry->key, TM_SEQUENCE_MAX);
        check_search(&view, entry->key, entry->sequence > 0 ? entry->sequence - 1 : 0);
        check_seek(&view, entry->key, entry->sequence);
        check_seek(&view, entry->key, TM_SEQUENCE_MAX);
        check_seek(&view, entry->key, 0);
    }
    tm_block_unref(block);
}

/* ---- Round trips ----------------------------------------------------------------------------------- */

START_TEST(keys_with_any_shared_prefix_come_back)
{
    for (size_t shared = 0; shared <= 255; shared++) {
        uint8_t key[300];

        memset(key, 'p', sizeof key);
        for (unsigned i = 0; i < 5; i++) {
            key[shared] = (uint8_t)(i * 60);
            entries_add(&entries, tm_slice(key, shared + 1 + i), 100 - i, TM_KIND_PUT,
                        tm_slice(key, i));
        }
        check_round_trip();
        {
            struct tm_block *block = build();

            ck_assert_uint_eq(view_of(block).prefix_length, shared);
            tm_block_unref(block);
        }
        entries_free(&entries);
    }
}
END_TEST

START_TEST(keys_of_0_to_70_bytes_and_of_a_mebibyte_come_back)
{
    uint8_t *key = malloc(TAMIS_KEY_BYTES_MAX);

    memset(key, 'k', TAMIS_KEY_BYTES_MAX);
    for (size_t length = 0; length <= 70; length++)
        entries_add(&entries, tm_slice(key, length), length, TM_KIND_PUT,
                    tm_slice(key, length % 3));
    entries_add(&entries, tm_slice(key, TAMIS_KEY_BYTES_MAX), 7, TM_KIND_PUT, tm_slice(key, 5));
    check_round_trip();
    entries_free(&entries);

    // Two that differ in the last byte alone: the prefix is nearly a mebibyte.
    entries_add(&entries, tm_slice(key, TAMIS_KEY_BYTES_MAX), 7, TM_KIND_PUT, tm_slice(NULL, 0));
    key[TAMIS_KEY_BYTES_MAX - 1] = 'z';
    entries_add(&entries, tm_slice(key, TAMIS_KEY_BYTES_MAX), 8, TM_KIND_DELETE, tm_slice(NULL, 0));
    check_round_trip();
    free(key);
}
END_TEST

START_TEST(one_byte_keys_of_every_value_come_back)
{
    for (unsigned byte = 0; byte < 256; byte++) {
        uint8_t key = (uint8_t)byte;

        entries_add(&entries, tm_slice(&key, 1), 1000 + byte * 7919 % 256, TM_KIND_PUT,
                    tm_slice(&key, byte % 2));
    }
    check_round_trip();
}
END_TEST

START_TEST(zero_and_255_bytes_are_bytes_like_others)
{
    static const char *const keys[] = {"",    "\0",    "\0\0", "\0\xff", "a",
                                       "a\0", "a\0\0", "\xff", "\xff\0", "\xff\xff"};
    static const size_t lengths[] = {0, 1, 2, 2, 1, 2, 3, 1, 2, 2};

    for (size_t i = 0; i < 10; i++)
        entries_add(&entries, tm_slice(keys[i], lengths[i]), 50 + i, TM_KIND_PUT,
                    tm_slice(keys[9 - i], lengths[9 - i]));
    check_round_trip();
}
END_TEST

START_TEST(a_long_value_makes_offsets_wide_at_65537_bytes_of_entries)
{
    uint8_t *value = malloc(200000);

    memset(value, 'v', 200000);
    // Two entries of 3 bytes besides the value: varints of 1 byte each and a suffix of 1.
    for (size_t bytes = 65535; bytes <= 65538; bytes++) {
        struct tm_block *block;

        entries_put(&entries, "a", 9, "");
        entries_add(&entries, tm_slice("b", 1), 9, TM_KIND_PUT, tm_slice(value, bytes - 6));
        check_round_trip();
        block = build();
        ck_assert_uint_eq(view_of(block).entries_length, bytes);
        ck_assert_int_eq(view_of(block).wide, bytes > 65536);
        tm_block_unref(block);
        entries_free(&entries);
    }
    for (size_t i = 0; i < 5; i++) {
        char key = (char)('a' + i);

        entries_add(&entries, tm_slice(&key, 1), i, TM_KIND_PUT,
                    tm_slice(value, i % 2 * 100000 + i));
    }
    check_round_trip();
    free(value);
}
END_TEST

START_TEST(a_block_for_a_single_entry_has_the_bytes_that_collecting_gives)
{
    struct rng rng = rng_from(rng_seed("single entries", 11));

    for (unsigned round = 0; round < 500; round++) {
        uint8_t bytes[400];
        size_t key_length = (size_t)rng_below(&rng, 200);
        bool put = rng_chance(&rng, 2, 3);
        struct tm_buf out = {0};
        struct tm_block *block;
        tamis_error err;

        rng_fill(&rng, bytes, sizeof bytes);
        entries_add(&entries, tm_slice(bytes, key_length), rng_below(&rng, TM_SEQUENCE_MAX + 1),
                    put ? TM_KIND_PUT : TM_KIND_DELETE,
                    tm_slice(bytes + 200, put ? (size_t)rng_below(&rng, 200) : 0));
        block = build();
        expect_ok(tm_block_build_single(&env, &entries.list[0],
                                        tm_tag_of_hash(hash_of(entries.list[0].key)), &out, &err),
                  err);
        expect(
            tm_slice_equal(tm_slice(out.data, out.length), tm_slice(block->data, block->length)));
        tm_buf_release(&env, &out);
        tm_block_unref(block);
        entries_free(&entries);
    }
}
END_TEST

START_TEST(the_extreme_sequences_stand_in_one_block)
{
    entries_put(&entries, "a", TM_SEQUENCE_MAX, "newest");
    entries_put(&entries, "a", 0, "oldest");
    entries_put(&entries, "b", TM_SEQUENCE_MAX - 1, "");
    check_round_trip();
}
END_TEST

/* ---- Search and seek -------------------------------------------------------------------------------- */

START_TEST(versions_of_a_key_are_found_at_each_sequence)
{
    entries_put(&entries, "a", 5, "before");
    for (unsigned i = 0; i < 40; i++) {
        bool put = i % 3 != 1;

        entries_add(&entries, tm_slice("key", 3), 1000 - 20 * i, put ? TM_KIND_PUT : TM_KIND_DELETE,
                    tm_slice("value", put ? 5 : 0));
    }
    for (unsigned with_end = 0; with_end < 2; with_end++) {
        struct tm_block *block;
        struct tm_block_view view;

        if (with_end == 1)
            entries_put(&entries, "z", 7, "behind");
        block = build();
        view = view_of(block);
        for (uint64_t sequence = 0; sequence < 1100; sequence++) {
            check_search(&view, tm_slice("key", 3), sequence);
            check_seek(&view, tm_slice("key", 3), sequence);
        }
        tm_block_unref(block);
    }
}
END_TEST

START_TEST(keys_that_share_their_tag_are_told_apart)
{
    struct tm_block_builder builder = {0};
    struct tm_buf out = {0};
    struct tm_block *block;
    struct tm_block_view view;
    struct tm_block_entry entry;
    enum tm_block_verdict verdict;
    tamis_error err;

    for (unsigned i = 0; i < 100; i++) {
        char key[8];

        snprintf(key, sizeof key, "k%03u", i);
        entries_put(&entries, key, i, key);
        expect_ok(tm_block_builder_add(&env, &builder, &entries.list[i], 0x5a, &err), err);
    }
    expect_ok(tm_block_builder_finish(&env, &builder, &out, &err), err);
    block = block_of(out.data, out.length);
    view = view_of(block);
    for (unsigned i = 0; i < 100; i++) {
        expect_ok(tm_block_search(&view, NULL, entries.list[i].key, (uint64_t)0x5a << 32, 1000,
                                  &entry, &verdict, &err),
                  err);
        expect(verdict == TM_BLOCK_HIT && entry.sequence == i);
    }
    expect_ok(tm_block_search(&view, NULL, tm_slice("k1000", 5), (uint64_t)0x5a << 32, 1000, &entry,
                              &verdict, &err),
              err);
    ck_assert_int_eq(verdict, TM_BLOCK_ABSENT);
    tm_block_builder_release(&env, &builder);
    tm_buf_release(&env, &out);
    tm_block_unref(block);
}
END_TEST

START_TEST(a_tag_is_seen_at_every_place_among_every_other_tag)
{
    struct tm_block_builder builder = {0};
    struct tm_buf out = {0};
    tamis_error err;

    for (unsigned count = 1; count <= 20; count++) {
        struct tm_block *block;
        struct tm_block_view view;
        uint8_t *tags;

        entries_free(&entries);
        for (unsigned i = 0; i < count; i++) {
            char key = (char)('a' + i);

            entries_add(&entries, tm_slice(&key, 1), i, TM_KIND_PUT, tm_slice(NULL, 0));
            expect_ok(tm_block_builder_add(&env, &builder, &entries.list[i], 0, &err), err);
        }
        expect_ok(tm_block_builder_finish(&env, &builder, &out, &err), err);
        block = block_of(out.data, out.length);
        view = view_of(block);
        tags = block->data + (view.tags - block->data);
        for (unsigned at = 0; at < count; at++) {
            for (unsigned tag = 0; tag < 256; tag++) {
                for (unsigned bit = 0; bit < 8; bit++) { // its neighbours are nearly the same
                    struct tm_block_entry entry;
                    enum tm_block_verdict verdict;

                    memset(tags, (int)(tag ^ 1u << bit), count);
                    tags[at] = (uint8_t)tag;
                    expect_ok(tm_block_search(&view, NULL, entries.list[at].key,
                                              (uint64_t)tag << 32, 99, &entry, &verdict, &err),
                              err);
                    expect(verdict == TM_BLOCK_HIT && entry.sequence == at);
                }
            }
        }
        tm_block_unref(block);
    }
    tm_block_builder_release(&env, &builder);
    tm_buf_release(&env, &out);
}
END_TEST

/* Keys of few letters, so that they share prefixes, stand close together and have several versions. */
static void
fill_randomly(struct rng *rng)
{
    size_t count = 1 + (size_t)rng_below(rng, 40);

    for (size_t i = 0; i < count; i++) {
        uint8_t key[12] = "pre";
        uint8_t value[64];
        size_t head = 3 * (size_t)rng_below(rng, 2);
        size_t length = head + (size_t)rng_below(rng, 5);
        bool put = rng_chance(rng, 3, 4);

        for (size_t at = head; at < length; at++)
            key[at] = "\0ab\xff"[rng_below(rng, 4)];
        rng_fill(rng, value, sizeof value);
        entries_add(&entries, tm_slice(key, length), 500 + i, put ? TM_KIND_PUT : TM_KIND_DELETE,
                    tm_slice(value, put ? (size_t)rng_below(rng, 64) : 0));
    }
    entries_sort(&entries);
}

START_TEST(search_and_seek_of_random_keys_agree_with_a_sorted_list)
{
    struct rng rng = rng_from(rng_seed("random blocks", 12));

    for (unsigned round = 0; round < (SLOW_BUILD ? 200 : 1000); round++) {
        struct tm_block *block;
        struct tm_block_view view;

        fill_randomly(&rng);
        check_round_trip();
        block = build();
        view = view_of(block);
        for (unsigned i = 0; i < 200; i++) {
            uint8_t key[12] = "pre";
            size_t head = 3 * (size_t)rng_below(&rng, 2);
            size_t length = head + (size_t)rng_below(&rng, 5);
            uint64_t sequence = 495 + rng_below(&rng, 60);

            for (size_t at = head; at < length; at++)
                key[at] = "\0ab\xff"[rng_below(&rng, 4)];
            check_search(&view, tm_slice(key, length), sequence);
            check_seek(&view, tm_slice(key, length), sequence);
        }
        check_seek(&view, tm_slice("pq", 2), 1);
        check_seek(&view, tm_slice("pr", 2), 1);
        check_seek(&view, tm_slice("prd", 3), 1);
        check_search(&view, tm_slice("prd", 3), 1);
        tm_block_unref(block);
        entries_free(&entries);
    }
}
END_TEST

/* ---- Forged blocks ---------------------------------------------------------------------------------- */

/* Everything a reader can do with a block: OK or CORRUPT, and nothing handed out lies outside of it. */
static tamis_status
read_all(const struct tm_block *block)
{
    const uint8_t *begin = block->data;
    const uint8_t *end = block->data + block->length;
    struct tm_block_view view;
    struct tm_block_entry entry;
    enum tm_block_verdict verdict;
    tamis_error err;
    tamis_status status;
    tamis_status worst;
    uint32_t index;

    status = tm_block_view_init(&view, block, "000001.sst", 4096, &err);
    expect(status == TAMIS_OK || status == TAMIS_CORRUPT);
    if (status != TAMIS_OK)
        return status;
    worst = TAMIS_OK;
    expect(view.count > 0 && view.count <= block->length);
    for (uint32_t i = 0; i < view.count; i++) {
        status = tm_block_entry_at(&view, i, &entry, &err);
        expect(status == TAMIS_OK || status == TAMIS_CORRUPT);
        if (status != TAMIS_OK) {
            worst = status;
            continue;
        }
        expect((const uint8_t *)entry.suffix.data >= begin &&
               (const uint8_t *)entry.value.data + entry.value.length <= end);
        expect(view.prefix_length + entry.suffix.length <= TAMIS_KEY_BYTES_MAX);
        expect(entry.sequence <= TM_SEQUENCE_MAX);
    }
    for (size_t i = 0; i < entries.count; i++) {
        tamis_slice key = entries.list[i].key;

        status = tm_block_search(&view, NULL, key, hash_of(key), 510, &entry, &verdict, &err);
        expect(status == TAMIS_OK || status == TAMIS_CORRUPT);
        status = tm_block_seek(&view, NULL, key, 510, &index, &err);
        expect(status == TAMIS_CORRUPT || (status == TAMIS_OK && index <= view.count));
    }
    return worst;
}

START_TEST(randomly_forged_blocks_lead_nowhere_outside)
{
    struct rng rng = rng_from(rng_seed("forged blocks", 13));
    unsigned refused = 0;
    unsigned rounds = SLOW_BUILD ? 20000 : 100000;

    for (unsigned round = 0; round < rounds; round++) {
        static struct tm_block *sound;
        struct tm_block *block;
        size_t length;

        if (round % 50 == 0) {
            tm_block_unref(sound);
            entries_free(&entries);
            fill_randomly(&rng);
            sound = build();
        }
        length =
            rng_chance(&rng, 1, 4) ? (size_t)rng_below(&rng, sound->length + 1) : sound->length;
        block = block_of(sound->data, length);
        for (unsigned edits = (unsigned)rng_below(&rng, 5); edits-- > 0 && length > 0;) {
            // The header and the offsets are what leads somewhere: half of the edits go there.
            size_t reach = rng_chance(&rng, 1, 2) && length > 40 ? 40 : length;
            size_t at = (size_t)rng_below(&rng, reach);

            block->data[at] = rng_chance(&rng, 1, 3)
                                  ? (uint8_t) "\0\x01\x7f\x80\xff"[rng_below(&rng, 5)]
                                  : (uint8_t)rng_next(&rng);
        }
        refused += read_all(block) != TAMIS_OK;
        tm_block_unref(block);
        if (round == rounds - 1)
            tm_block_unref(sound);
    }
    ck_assert_uint_gt(refused, rounds / 4); // the forging does reach what is checked
}
END_TEST

/* The block of `entries` with one part replaced must be refused. */
static void
check_refused(size_t at, const void *bytes, size_t length)
{
    struct tm_block *block = build();

    ck_assert_uint_le(at + length, block->length);
    memcpy(block->data + at, bytes, length);
    ck_assert_int_eq(read_all(block), TAMIS_CORRUPT);
    tm_block_unref(block);
}

START_TEST(each_inner_number_that_is_wrong_is_refused)
{
    // header 16, prefix "k", tags 2, offsets 0 and 8, entries: 05 01 'a' value5; 00 01 'b'
    const size_t tags = 17, offsets = 19, first = 23, second = 31;
    struct tm_block *block;

    entries_put(&entries, "ka", 510, "value");
    entries_add(&entries, tm_slice("kb", 2), 509, TM_KIND_DELETE, tm_slice(NULL, 0));
    block = build();
    ck_assert_uint_eq(block->length, 34);
    ck_assert_mem_eq(block->data + tags - 1, "k", 1);
    ck_assert_mem_eq(block->data + offsets,
                     "\0\0\x08\0\x05\x01"
                     "avalue\0\x01"
                     "b",
                     15);
    ck_assert_int_eq(read_all(block), TAMIS_OK);
    for (uint32_t length = 0; length < second;
         length++) { // shorter than its header or its second offset
        struct tm_block *cut = block_of(block->data, length);

        ck_assert_int_eq(read_all(cut), TAMIS_CORRUPT);
        tm_block_unref(cut);
    }
    tm_block_unref(block);

    check_refused(TM_DATA_COUNT_AT, "\0\0\0\0", 4);
    check_refused(TM_DATA_COUNT_AT, "\x07\0\0\0", 4);
    check_refused(TM_DATA_COUNT_AT, "\xff\xff\xff\xff", 4);
    check_refused(TM_DATA_PREFIX_BYTES_AT, "\x13\0\0", 3);   // one more than is left
    check_refused(TM_DATA_PREFIX_BYTES_AT, "\x01\0\x10", 3); // a mebibyte and one
    check_refused(TM_DATA_FLAGS_AT, "\x02", 1);              // unknown
    check_refused(TM_DATA_FLAGS_AT, "\x01", 1);              // wide: the offsets are others
    check_refused(TM_DATA_BASE_SEQUENCE_AT + 7, "\x01", 1);  // 2^56 and more
    check_refused(offsets, "\x09\0", 2);                     // begins behind its end
    check_refused(offsets + 2, "\x0c\0", 2);                 // behind all entries
    check_refused(offsets + 2, "\xff\xff", 2);
    check_refused(first, "\x06", 1);                             // kind 2
    check_refused(first, "\x07", 1);                             // kind 3
    check_refused(first, "\xff\xff\xff\xff\xff\xff\xff\xff", 8); // a varint without an end
    check_refused(first + 1, "\x07", 1);                         // a suffix longer than the entry
    check_refused(first + 1, "\x80\0", 2);                       // an overlong varint
    check_refused(second, "\x80", 1);                            // overlong and cut
    check_refused(second + 1, "\0", 1);                          // a tombstone with a value
}
END_TEST

START_TEST(a_sequence_beyond_56_bits_and_a_key_beyond_a_mebibyte_are_refused)
{
    struct tm_block *block;
    uint8_t *long_key = malloc(TAMIS_KEY_BYTES_MAX);

    entries_put(&entries, "a", TM_SEQUENCE_MAX, "");
    entries_put(&entries, "b", TM_SEQUENCE_MAX - 1, "");
    block = build();
    // The base is TM_SEQUENCE_MAX - 1, the first entry 1 above it: 5 is 1 << 2 | put. Make it 2 above.
    ck_assert_uint_eq(block->data[16 + 2 + 4], 5);
    ck_assert_int_eq(read_all(block), TAMIS_OK);
    block->data[16 + 2 + 4] = 9;
    ck_assert_int_eq(read_all(block), TAMIS_CORRUPT);
    tm_block_unref(block);
    entries_free(&entries);

    memset(long_key, 'k', TAMIS_KEY_BYTES_MAX);
    entries_add(&entries, tm_slice(long_key, TAMIS_KEY_BYTES_MAX), 1, TM_KIND_PUT,
                tm_slice("vvvv", 4));
    block = build();
    ck_assert_int_eq(read_all(block), TAMIS_OK);
    ck_assert_uint_eq(block->data[block->length - 5], 0); // length of the suffix
    block->data[block->length - 5] = 1;
    ck_assert_int_eq(read_all(block), TAMIS_CORRUPT);
    tm_block_unref(block);
    free(long_key);
}
END_TEST

/* ---- Memory ----------------------------------------------------------------------------------------- */

START_TEST(without_memory_a_builder_is_as_before)
{
    struct rng rng = rng_from(14);
    uint64_t refused = 0;

    fill_randomly(&rng);
    for (uint64_t nth = 1; nth < 30; nth++) {
        struct tm_block_builder builder = {0};
        struct tm_buf out = {0};
        struct tm_block *right = build();
        tamis_error err;
        tamis_status status;

        fault_alloc_fail_after(&fault, nth, false);
        for (size_t i = 0; i < entries.count; i++) {
            const struct tm_entry *entry = &entries.list[i];
            uint8_t tag = tm_tag_of_hash(hash_of(entry->key));

            status = tm_block_builder_add(&env, &builder, entry, tag, &err);
            if (status != TAMIS_OK) { // refused once: adding it again gives the same block
                ck_assert_int_eq(status, TAMIS_NO_MEMORY);
                refused++;
                expect_ok(tm_block_builder_add(&env, &builder, entry, tag, &err), err);
            }
        }
        status = tm_block_builder_finish(&env, &builder, &out, &err);
        if (status != TAMIS_OK) {
            ck_assert_int_eq(status, TAMIS_NO_MEMORY);
            refused++;
            expect_ok(tm_block_builder_finish(&env, &builder, &out, &err), err);
        }
        fault_alloc_fail_after(&fault, 0, false);
        expect(
            tm_slice_equal(tm_slice(out.data, out.length), tm_slice(right->data, right->length)));
        tm_block_builder_release(&env, &builder);
        tm_buf_release(&env, &out);
        tm_block_unref(right);
    }
    ck_assert_uint_ge(refused, 3);
}
END_TEST

START_TEST(without_memory_a_single_entry_makes_no_block)
{
    struct tm_buf out = {0};
    tamis_error err;

    entries_put(&entries, "key", 1, "value");
    fault_alloc_fail_after(&fault, 1, false);
    check_status(tm_block_build_single(&env, &entries.list[0], 0, &out, &err), TAMIS_NO_MEMORY,
                 err);
    expect_ok(tm_block_build_single(&env, &entries.list[0], 0, &out, &err), err);
    tm_buf_release(&env, &out);
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("block");
    TCase *tests = tcase_create("block");

    tcase_set_timeout(tests, 0);
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_test(tests, keys_with_any_shared_prefix_come_back);
    tcase_add_test(tests, keys_of_0_to_70_bytes_and_of_a_mebibyte_come_back);
    tcase_add_test(tests, one_byte_keys_of_every_value_come_back);
    tcase_add_test(tests, zero_and_255_bytes_are_bytes_like_others);
    tcase_add_test(tests, a_long_value_makes_offsets_wide_at_65537_bytes_of_entries);
    tcase_add_test(tests, a_block_for_a_single_entry_has_the_bytes_that_collecting_gives);
    tcase_add_test(tests, the_extreme_sequences_stand_in_one_block);
    tcase_add_test(tests, versions_of_a_key_are_found_at_each_sequence);
    tcase_add_test(tests, keys_that_share_their_tag_are_told_apart);
    tcase_add_test(tests, a_tag_is_seen_at_every_place_among_every_other_tag);
    tcase_add_test(tests, search_and_seek_of_random_keys_agree_with_a_sorted_list);
    tcase_add_test(tests, randomly_forged_blocks_lead_nowhere_outside);
    tcase_add_test(tests, each_inner_number_that_is_wrong_is_refused);
    tcase_add_test(tests, a_sequence_beyond_56_bits_and_a_key_beyond_a_mebibyte_are_refused);
    tcase_add_test(tests, without_memory_a_builder_is_as_before);
    tcase_add_test(tests, without_memory_a_single_entry_makes_no_block);
    suite_add_tcase(suite, tests);
    return check_run(suite);
}
