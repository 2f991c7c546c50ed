/* SPDX-License-Identifier: MIT
 *
 * tests/sstable/test_codec.c -- stored blocks: sealed, loaded, and refused when a byte or the place is another.
 */
#include "sstable/codec.h"
#include "tests/sstable/table_test.h"

static struct shelf shelf;
static struct tm_buf payload;
static struct tm_buf scratch;

static void
setup(void)
{
    shelf_open(&shelf);
}

static void
teardown(void)
{
    tm_buf_release(&shelf.env, &payload);
    tm_buf_release(&shelf.env, &scratch);
    shelf_close(&shelf);
}

static const struct tm_place place_of_data = {"block", 0x1122334455667788, 0, TM_BLOCK_DATA};

static void
set_payload(const void *data, size_t length)
{
    tamis_error err;

    payload.length = 0;
    expect_ok(tm_buf_append(&shelf.env, &payload, data, length, &err), err);
}

/* Seal what is in `payload`; the result is valid until the next call. */
static tamis_slice
seal(const struct tm_place *place, bool compress, uint64_t *checksum)
{
    tamis_slice stored;
    tamis_error err;

    expect_ok(
        tm_block_seal(&shelf.env, place, &payload, &scratch, compress, &stored, checksum, &err),
        err);
    return stored;
}

/* Load `length` bytes that stand at the place's offset of a file, behind zeros. */
static tamis_status
load(const struct tm_place *place, const void *stored, size_t length, struct tm_block **block,
     uint64_t *checksum, tamis_error *err)
{
    const tamis_fs *fs = shelf.env.fs;
    uint8_t *file_bytes = calloc(1, (size_t)place->offset + length + 1);
    tamis_file *file;
    tamis_error ignored;
    uint64_t size;
    tamis_status status;

    memcpy(file_bytes + place->offset, stored, length);
    sim_file_put(shelf.world->sim, "tables", "block", file_bytes, (size_t)place->offset + length);
    free(file_bytes);
    expect_ok(fs->open(fs->ctx, shelf.dir, "block", TAMIS_FILE_TABLE, &file, &size, &ignored),
              ignored);
    *block = NULL;
    status = tm_block_load(&shelf.env, file, place, length, block, checksum, err);
    expect_ok(fs->close(fs->ctx, file, &ignored), ignored);
    expect((*block != NULL) == (status == TAMIS_OK));
    return status;
}

/* The trailer of stored bytes, changed by the caller, sealed again so that its checksum matches. */
static void
forge(const struct tm_place *place, uint8_t *stored, size_t length)
{
    tm_put_u64(stored + length - 8,
               tm_hash64(stored, length - 8, tm_place_seed(place->id, place->offset)));
}

START_TEST(any_bytes_come_back_packed_or_not)
{
    struct rng rng = rng_from(rng_seed("stored blocks", 21));

    for (unsigned round = 0; round < 400; round++) {
        size_t length = (size_t)rng_below(&rng, round < 100 ? 80 : 20000);
        uint8_t *bytes = malloc(length + 1);
        uint64_t kinds = 1 + rng_below(&rng, 256);
        struct tm_place place = {"block", rng_next(&rng), rng_below(&rng, 5000),
                                 (enum tm_block_kind)(1 + rng_below(&rng, 4))};
        struct tm_block *block;
        uint64_t sealed;
        uint64_t loaded;
        tamis_slice stored;
        tamis_error err;

        for (size_t i = 0; i < length; i++)
            bytes[i] = (uint8_t)rng_below(&rng, kinds);
        set_payload(bytes, length);
        stored = seal(&place, rng_chance(&rng, 2, 3), &sealed);
        expect_ok(load(&place, stored.data, stored.length, &block, &loaded, &err), err);
        expect(sealed == loaded);
        expect(tm_slice_equal(tm_slice(block->data, block->length), tm_slice(bytes, length)));
        tm_block_unref(block);
        free(bytes);
    }
}
END_TEST

START_TEST(lz4_is_kept_only_if_it_saves_an_eighth)
{
    enum { LENGTH = 4096 };
    struct rng rng = rng_from(22);
    unsigned packed = 0;
    unsigned raw = 0;

    // From all noise to all zeros: somewhere between, packing begins to pay.
    for (size_t zeros = 0; zeros <= LENGTH; zeros += 16) {
        uint8_t bytes[LENGTH] = {0};
        uint64_t checksum;
        tamis_slice stored;
        const uint8_t *trailer;

        rng_fill(&rng, bytes, LENGTH - zeros);
        set_payload(bytes, LENGTH);
        stored = seal(&place_of_data, true, &checksum);
        trailer = (const uint8_t *)stored.data + stored.length - TM_TRAILER_BYTES;
        ck_assert_uint_eq(tm_get_u32(trailer + TM_TRAILER_UNPACKED_AT), LENGTH);
        if (trailer[TM_TRAILER_CODEC_AT] == TM_CODEC_LZ4) {
            expect(stored.length - TM_TRAILER_BYTES <= LENGTH - LENGTH / 8);
            packed++;
        } else {
            expect(stored.length == LENGTH + TM_TRAILER_BYTES);
            // LZ4 needs about 20 bytes besides the noise, so that more zeros than this would pay.
            expect(zeros < LENGTH / 8 + 64);
            raw++;
        }
    }
    ck_assert_uint_gt(packed, 200);
    ck_assert_uint_gt(raw, 30);
    // Nothing is packed that nobody asked to pack.
    set_payload("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", 64);
    {
        uint64_t checksum;

        ck_assert_uint_eq(seal(&place_of_data, false, &checksum).length, 64 + TM_TRAILER_BYTES);
    }
}
END_TEST

START_TEST(the_trailer_stands_where_the_format_says)
{
    uint64_t checksum;
    tamis_slice stored;
    const uint8_t *p;

    set_payload("payload", 7);
    stored = seal(&place_of_data, true, &checksum);
    p = stored.data;
    ck_assert_uint_eq(stored.length, 7 + 16);
    ck_assert_mem_eq(p, "payload\x07\0\0\0\0\x01\0\0", 15);
    ck_assert_uint_eq(tm_get_u64(p + 15), checksum);
    // Over payload and the 8 bytes before it, seeded with the hash of id and offset.
    ck_assert_uint_eq(checksum, tm_hash64(p, 15, tm_place_seed(place_of_data.id, 0)));
    ck_assert_uint_eq(tm_place_seed(0x1122334455667788, 0),
                      tm_hash64("\x88\x77\x66\x55\x44\x33\x22\x11\0\0\0\0\0\0\0\0", 16, 0));
}
END_TEST

START_TEST(a_byte_that_differs_is_corrupt)
{
    uint8_t bytes[700] = "compressible";

    for (unsigned compress = 0; compress < 2; compress++) {
        struct tm_block *block;
        uint64_t checksum;
        tamis_slice sealed;
        uint8_t *stored;
        tamis_error err;

        set_payload(bytes, compress ? sizeof bytes : 100);
        sealed = seal(&place_of_data, compress != 0, &checksum);
        stored = copy_bytes(sealed.data, sealed.length);
        for (size_t i = 0; i < sealed.length; i++) {
            for (unsigned bit = 0; bit < 8; bit++) {
                stored[i] ^= (uint8_t)(1u << bit);
                expect(load(&place_of_data, stored, sealed.length, &block, NULL, &err) ==
                       TAMIS_CORRUPT);
                stored[i] ^= (uint8_t)(1u << bit);
            }
        }
        for (size_t length = 0; length < sealed.length; length++)
            expect(load(&place_of_data, stored, length, &block, NULL, &err) == TAMIS_CORRUPT);
        expect_ok(load(&place_of_data, stored, sealed.length, &block, NULL, &err), err);
        tm_block_unref(block);
        free(stored);
    }
}
END_TEST

START_TEST(sound_bytes_in_the_wrong_place_are_corrupt)
{
    struct tm_place place = {"block", 5, 64, TM_BLOCK_DATA};
    struct tm_place other;
    struct tm_block *block;
    uint64_t checksum;
    tamis_slice stored;
    tamis_error err;

    set_payload("whose am I?", 11);
    stored = seal(&place, false, &checksum);
    expect_ok(load(&place, stored.data, stored.length, &block, NULL, &err), err);
    tm_block_unref(block);
    other = place;
    other.id = 6;
    check_status(load(&other, stored.data, stored.length, &block, NULL, &err), TAMIS_CORRUPT, err);
    other = place;
    other.offset = 65;
    check_status(load(&other, stored.data, stored.length, &block, NULL, &err), TAMIS_CORRUPT, err);
    other = place;
    other.kind = TM_BLOCK_PROPERTIES;
    check_status(load(&other, stored.data, stored.length, &block, NULL, &err), TAMIS_CORRUPT, err);
    ck_assert_ptr_nonnull(strstr(err.message, "kind expected 4 (properties), found 1"));
}
END_TEST

START_TEST(a_report_names_file_offset_expected_and_found)
{
    struct tm_place place = {"block", 5, 64, TM_BLOCK_DATA};
    struct tm_block *block;
    uint64_t checksum;
    tamis_slice stored;
    uint8_t *copy;
    char expected[64];
    tamis_error err;

    set_payload("bytes", 5);
    stored = seal(&place, false, &checksum);
    copy = copy_bytes(stored.data, stored.length);
    copy[0] = 'B';
    check_status(load(&place, copy, stored.length, &block, NULL, &err), TAMIS_CORRUPT, err);
    snprintf(expected, sizeof expected, "checksum expected %016" PRIx64 ", found ", checksum);
    ck_assert_ptr_nonnull(strstr(err.message, expected));
    ck_assert_ptr_nonnull(strstr(err.message, "block: data block at 64, 21 bytes"));
    free(copy);
}
END_TEST

START_TEST(a_trailer_that_lies_under_a_correct_checksum_is_corrupt)
{
    static const struct {
        unsigned at; // of the trailer
        const char *bytes;
        unsigned length;
    } lies[] = {
        {TM_TRAILER_UNPACKED_AT, "\0\0\0\0", 4},
        {TM_TRAILER_UNPACKED_AT, "\xff\xff\xff\xff", 4},
        {TM_TRAILER_UNPACKED_AT, "\x01\x04\0\0", 4}, // one more than there is
        {TM_TRAILER_UNPACKED_AT, "\xff\x03\0\0", 4}, // one less
        {TM_TRAILER_CODEC_AT, "\x02", 1},
        {TM_TRAILER_CODEC_AT, "\xff", 1},
        {TM_TRAILER_KIND_AT, "\x02", 1},
        {TM_TRAILER_KIND_AT, "\0", 1},
        {TM_TRAILER_ZERO_AT, "\x01\0", 2},
        {TM_TRAILER_ZERO_AT, "\0\x01", 2},
    };
    uint8_t bytes[1024] = {0};

    for (unsigned compress = 0; compress < 2; compress++) {
        for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
            struct tm_block *block;
            uint64_t checksum;
            tamis_slice stored;
            uint8_t *copy;
            tamis_error err;

            set_payload(bytes, sizeof bytes);
            stored = seal(&place_of_data, compress != 0, &checksum);
            copy = copy_bytes(stored.data, stored.length);
            memcpy(copy + stored.length - TM_TRAILER_BYTES + lies[i].at, lies[i].bytes,
                   lies[i].length);
            forge(&place_of_data, copy, stored.length);
            check_status(load(&place_of_data, copy, stored.length, &block, NULL, &err),
                         TAMIS_CORRUPT, err);
            free(copy);
        }
        { // the other codec than that of the payload
            struct tm_block *block;
            uint64_t checksum;
            tamis_slice stored;
            uint8_t *copy;
            tamis_error err;

            set_payload(bytes, sizeof bytes);
            stored = seal(&place_of_data, compress != 0, &checksum);
            copy = copy_bytes(stored.data, stored.length);
            copy[stored.length - TM_TRAILER_BYTES + TM_TRAILER_CODEC_AT] ^= 1;
            forge(&place_of_data, copy, stored.length);
            check_status(load(&place_of_data, copy, stored.length, &block, NULL, &err),
                         TAMIS_CORRUPT, err);
            free(copy);
        }
    }
}
END_TEST

START_TEST(forged_lz4_payloads_unpack_to_the_stated_length_or_are_corrupt)
{
    struct rng rng = rng_from(rng_seed("forged payloads", 23));
    unsigned refused = 0;
    unsigned rounds = SLOW_BUILD ? 3000 : 20000;
    uint8_t bytes[2000];
    uint64_t checksum;
    tamis_slice stored;
    uint8_t *sound;
    uint8_t *copy;

    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)(i % 100 < 20 ? rng_next(&rng) : i / 100);
    set_payload(bytes, sizeof bytes);
    stored = seal(&place_of_data, true, &checksum);
    ck_assert_uint_lt(stored.length, 1800);
    sound = copy_bytes(stored.data, stored.length);
    copy = copy_bytes(stored.data, stored.length);
    for (unsigned round = 0; round < rounds; round++) {
        struct tm_block *block;
        tamis_error err;
        tamis_status status;

        memcpy(copy, sound, stored.length);
        for (uint64_t edits = 1 + rng_below(&rng, 4); edits > 0; edits--)
            copy[rng_below(&rng, stored.length - TM_TRAILER_BYTES + 4)] = (uint8_t)rng_next(&rng);
        forge(&place_of_data, copy, stored.length);
        status = load(&place_of_data, copy, stored.length, &block, NULL, &err);
        expect(status == TAMIS_OK || status == TAMIS_CORRUPT);
        if (status == TAMIS_OK)
            expect(block->length == tm_get_u32(copy + stored.length - TM_TRAILER_BYTES));
        refused += status != TAMIS_OK;
        tm_block_unref(block);
    }
    ck_assert_uint_gt(refused, rounds / 10);
    free(sound);
    free(copy);
}
END_TEST

START_TEST(no_forged_length_asks_for_more_memory_than_lz4_could_need)
{
    struct tm_block *block;
    uint8_t stored[100 + TM_TRAILER_BYTES] = {0};
    uint8_t *trailer = stored + 100;
    tamis_error err;

    trailer[TM_TRAILER_CODEC_AT] = TM_CODEC_LZ4;
    trailer[TM_TRAILER_KIND_AT] = TM_BLOCK_DATA;
    tm_put_u32(trailer + TM_TRAILER_UNPACKED_AT, UINT32_MAX);
    forge(&place_of_data, stored, sizeof stored);
    shelf.world->alloc.peak_bytes = 0;
    check_status(load(&place_of_data, stored, sizeof stored, &block, NULL, &err), TAMIS_CORRUPT,
                 err);
    ck_assert_uint_lt(shelf.world->alloc.peak_bytes, 100000);
    // A stated length that no block has is refused before anything is asked for.
    for (unsigned i = 0; i < 2; i++) {
        const uint64_t lengths[2] = {TM_TRAILER_BYTES - 1,
                                     TM_BLOCK_BYTES_MAX + TM_TRAILER_BYTES + 1};
        uint64_t calls = shelf.world->alloc.call_count;

        check_status(
            tm_block_load(&shelf.env, NULL, &place_of_data, lengths[i], &block, NULL, &err),
            TAMIS_CORRUPT, err);
        ck_assert_uint_eq(shelf.world->alloc.call_count, calls);
    }
}
END_TEST

START_TEST(without_memory_or_input_a_load_says_so_and_keeps_nothing)
{
    uint8_t bytes[2000] = {0};
    const tamis_fs *fs = shelf.env.fs;
    struct tm_block *block = NULL;
    tamis_file *file;
    uint64_t checksum;
    uint64_t size;
    tamis_slice stored;
    size_t fault;
    tamis_error err;

    set_payload(bytes, sizeof bytes);
    stored = seal(&place_of_data, true, &checksum);
    sim_file_put(shelf.world->sim, "tables", "block", stored.data, stored.length);
    expect_ok(fs->open(fs->ctx, shelf.dir, "block", TAMIS_FILE_TABLE, &file, &size, &err), err);
    for (uint64_t nth = 1; nth <= 2; nth++) {
        fault_alloc_fail_after(&shelf.world->alloc, nth, false);
        check_status(tm_block_load(&shelf.env, file, &place_of_data, size, &block, NULL, &err),
                     TAMIS_NO_MEMORY, err);
        check_status(tm_block_load(&shelf.env, file, &place_of_data, size, &block, NULL, NULL),
                     TAMIS_OK, err);
        tm_block_unref(block);
    }
    fault_alloc_fail_after(&shelf.world->alloc, 0, false);
    fault = sim_fault_add(
        shelf.world->sim,
        (struct sim_fault){.op = SIM_PREAD, .nth = 1, .effect = SIM_ERROR, .os_error = 5});
    check_status(tm_block_load(&shelf.env, file, &place_of_data, size, &block, NULL, &err),
                 TAMIS_IO, err);
    ck_assert_uint_eq(sim_fault_fired(shelf.world->sim, fault), 1);
    fault = sim_fault_add(shelf.world->sim,
                          (struct sim_fault){.op = SIM_PREAD, .nth = 1, .effect = SIM_FLIP});
    check_status(tm_block_load(&shelf.env, file, &place_of_data, size, &block, NULL, &err),
                 TAMIS_CORRUPT, err);
    ck_assert_uint_eq(sim_fault_fired(shelf.world->sim, fault), 1);
    sim_fault_clear(shelf.world->sim);
    expect_ok(fs->close(fs->ctx, file, &err), err);
}
END_TEST

START_TEST(without_memory_sealing_says_so)
{
    struct tm_buf block = {0};
    uint8_t bytes[64] = {0};
    tamis_slice stored;
    uint64_t checksum;
    uint64_t refused = 0;
    tamis_error err;

    for (uint64_t nth = 1; nth <= 3; nth++) {
        struct tm_buf packed = {0};
        tamis_status status;

        expect_ok(tm_buf_append(&shelf.env, &block, bytes, sizeof bytes, &err), err);
        fault_alloc_fail_after(&shelf.world->alloc, nth, false);
        status = tm_block_seal(&shelf.env, &place_of_data, &block, &packed, nth < 3, &stored,
                               &checksum, &err);
        fault_alloc_fail_after(&shelf.world->alloc, 0, false);
        expect(status == TAMIS_OK || status == TAMIS_NO_MEMORY);
        refused += status != TAMIS_OK;
        tm_buf_release(&shelf.env, &packed);
        tm_buf_release(&shelf.env, &block);
    }
    ck_assert_uint_ge(refused, 1);
}
END_TEST

START_TEST(kinds_have_names)
{
    ck_assert_str_eq(tm_block_kind_name(TM_BLOCK_DATA), "data block");
    ck_assert_str_eq(tm_block_kind_name(TM_BLOCK_INDEX_LEAF), "index leaf");
    ck_assert_str_eq(tm_block_kind_name(TM_BLOCK_INDEX_TOP), "index top");
    ck_assert_str_eq(tm_block_kind_name(TM_BLOCK_PROPERTIES), "properties");
    ck_assert_str_eq(tm_block_kind_name((enum tm_block_kind)77), "block of unknown kind");
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("codec");
    TCase *tests = tcase_create("codec");

    tcase_set_timeout(tests, 0);
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_test(tests, any_bytes_come_back_packed_or_not);
    tcase_add_test(tests, lz4_is_kept_only_if_it_saves_an_eighth);
    tcase_add_test(tests, the_trailer_stands_where_the_format_says);
    tcase_add_test(tests, a_byte_that_differs_is_corrupt);
    tcase_add_test(tests, sound_bytes_in_the_wrong_place_are_corrupt);
    tcase_add_test(tests, a_report_names_file_offset_expected_and_found);
    tcase_add_test(tests, a_trailer_that_lies_under_a_correct_checksum_is_corrupt);
    tcase_add_test(tests, forged_lz4_payloads_unpack_to_the_stated_length_or_are_corrupt);
    tcase_add_test(tests, no_forged_length_asks_for_more_memory_than_lz4_could_need);
    tcase_add_test(tests, without_memory_or_input_a_load_says_so_and_keeps_nothing);
    tcase_add_test(tests, without_memory_sealing_says_so);
    tcase_add_test(tests, kinds_have_names);
    suite_add_tcase(suite, tests);
    return check_run(suite);
}
