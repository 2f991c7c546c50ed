/* SPDX-License-Identifier: MIT
 *
 * tests/filter/test_bytes.c -- little-endian integers, varints and the cursor (filter/bytes.h,
 * B1..B4).
 */
#include "filter/bytes.h"

#include "tests/filter/filter_test.h"

START_TEST(integers_are_stored_low_byte_first_at_any_alignment)
{
    uint8_t bytes[16];

    for (size_t shift = 0; shift < 8; shift++) {
        memset(bytes, 0xee, sizeof bytes);
        tm_put_u16(bytes + shift, 0x1122);
        ck_assert_uint_eq(bytes[shift], 0x22);
        ck_assert_uint_eq(bytes[shift + 1], 0x11);
        ck_assert_uint_eq(bytes[shift + 2], 0xee);
        ck_assert_uint_eq(tm_get_u16(bytes + shift), 0x1122);
        tm_put_u32(bytes + shift, 0xf1223344);
        ck_assert_uint_eq(bytes[shift], 0x44);
        ck_assert_uint_eq(bytes[shift + 3], 0xf1);
        ck_assert_uint_eq(bytes[shift + 4], 0xee);
        ck_assert_uint_eq(tm_get_u32(bytes + shift), 0xf1223344);
        tm_put_u64(bytes + shift, UINT64_C(0xf122334455667788));
        ck_assert_uint_eq(bytes[shift], 0x88);
        ck_assert_uint_eq(bytes[shift + 7], 0xf1);
        ck_assert_uint_eq(tm_get_u64(bytes + shift), UINT64_C(0xf122334455667788));
    }
}
END_TEST

START_TEST(varints_round_trip_at_every_length)
{
    uint8_t bytes[TM_VARINT64_BYTES_MAX];

    for (int shift = 0; shift < 64; shift++) {
        for (int delta = -1; delta <= 1; delta++) {
            uint64_t number = (UINT64_C(1) << shift) + (uint64_t)delta;
            uint8_t *end = tm_put_varint64(bytes, number);
            uint64_t read = 0;
            uint32_t read32 = 0;

            ck_assert_uint_eq((size_t)(end - bytes), tm_varint64_bytes(number));
            ck_assert_ptr_eq(tm_get_varint64(bytes, end, &read), end);
            ck_assert_uint_eq(read, number);
            if (number <= UINT32_MAX) {
                ck_assert_ptr_eq(tm_get_varint32(bytes, end, &read32), end);
                ck_assert_uint_eq(read32, number);
                ck_assert_ptr_eq(tm_put_varint32(bytes, (uint32_t)number), end);
            } else {
                ck_assert_ptr_null(tm_get_varint32(bytes, end, &read32));
            }
            for (const uint8_t *cut = bytes; cut < end; cut++)
                ck_assert_ptr_null(tm_get_varint64(bytes, cut, &read)); // B2
        }
    }
    ck_assert_uint_eq(tm_varint64_bytes(UINT64_MAX), TM_VARINT64_BYTES_MAX);
}
END_TEST

START_TEST(varints_that_are_overlong_or_too_large_are_refused)
{
    static const uint8_t zero_in_two[] = {0x80, 0x00};
    static const uint8_t one_in_three[] = {0x81, 0x80, 0x00};
    static const uint8_t bits_65[] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02};
    static const uint8_t eleven[] = {0x80, 0x80, 0x80, 0x80, 0x80, 0x80,
                                     0x80, 0x80, 0x80, 0x80, 0x01};
    uint64_t untouched = 77;

    ck_assert_ptr_null(tm_get_varint64(zero_in_two, zero_in_two + 2, &untouched)); // B3
    ck_assert_ptr_null(tm_get_varint64(one_in_three, one_in_three + 3, &untouched));
    ck_assert_ptr_null(tm_get_varint64(bits_65, bits_65 + 10, &untouched));
    ck_assert_ptr_null(tm_get_varint64(eleven, eleven + 11, &untouched));
    ck_assert_uint_eq(untouched, 77);
}
END_TEST

START_TEST(whatever_a_varint_decodes_from_is_what_it_encodes_to)
{
    uint64_t state = test_seed;

    for (int round = 0; round < 200000; round++) {
        uint8_t bytes[12], again[TM_VARINT64_BYTES_MAX];
        uint64_t word = random_next(&state), number;
        size_t length = random_below(&state, sizeof bytes + 1);
        const uint8_t *end;

        memcpy(bytes, &word, 8);
        memset(bytes + 8, 0x81, 4);
        if (random_below(&state, 2) == 0)
            for (size_t i = 0; i + 1 < length; i++)
                bytes[i] |= 0x80; // long ones are rare otherwise
        end = tm_get_varint64(bytes, bytes + length, &number);
        if (end == NULL)
            continue;
        ck_assert_uint_eq((size_t)(tm_put_varint64(again, number) - again), (size_t)(end - bytes));
        ck_assert_mem_eq(again, bytes, (size_t)(end - bytes));
    }
}
END_TEST

START_TEST(cursor_reads_what_was_written_and_then_fails)
{
    uint8_t bytes[1 + 2 + 4 + 8 + 2 + 3] = {9};
    struct tm_cursor cursor = tm_cursor_over(bytes, sizeof bytes);

    tm_put_u16(bytes + 1, 0x1234);
    tm_put_u32(bytes + 3, 0x12345678);
    tm_put_u64(bytes + 7, UINT64_C(0x123456789abcdef0));
    tm_put_varint64(bytes + 15, 300);
    memcpy(bytes + 17, "abc", 3);
    ck_assert_uint_eq(tm_cursor_left(&cursor), sizeof bytes);
    ck_assert_uint_eq(tm_cursor_u8(&cursor), 9);
    ck_assert_uint_eq(tm_cursor_u16(&cursor), 0x1234);
    ck_assert_uint_eq(tm_cursor_u32(&cursor), 0x12345678);
    ck_assert_uint_eq(tm_cursor_u64(&cursor), UINT64_C(0x123456789abcdef0));
    ck_assert_uint_eq(tm_cursor_varint(&cursor), 300);
    ck_assert_mem_eq(tm_cursor_bytes(&cursor, 3), "abc", 3);
    ck_assert(!cursor.failed);
    ck_assert_uint_eq(tm_cursor_left(&cursor), 0);
    ck_assert_uint_eq(tm_cursor_u8(&cursor), 0);
    ck_assert(cursor.failed);
}
END_TEST

START_TEST(cursor_that_has_failed_gives_zeros_for_ever)
{
    static const uint8_t bytes[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    struct tm_cursor cursor = tm_cursor_over(bytes, sizeof bytes);

    ck_assert_ptr_null(tm_cursor_bytes(&cursor, UINT64_MAX)); // no sum that could wrap
    ck_assert(cursor.failed);
    ck_assert_uint_eq(tm_cursor_u8(&cursor), 0); // B4: although bytes are left
    ck_assert_uint_eq(tm_cursor_u16(&cursor), 0);
    ck_assert_uint_eq(tm_cursor_u32(&cursor), 0);
    ck_assert_uint_eq(tm_cursor_u64(&cursor), 0);
    ck_assert_uint_eq(tm_cursor_varint(&cursor), 0);
    ck_assert_ptr_null(tm_cursor_bytes(&cursor, 0));
    ck_assert_uint_eq(tm_cursor_left(&cursor), 0);
}
END_TEST

START_TEST(cursor_over_nothing_has_nothing)
{
    struct tm_cursor cursor = tm_cursor_over(NULL, 0);

    ck_assert_uint_eq(tm_cursor_left(&cursor), 0);
    ck_assert_ptr_null(tm_cursor_bytes(&cursor, 0));
    ck_assert(!cursor.failed);
    ck_assert_uint_eq(tm_cursor_u64(&cursor), 0);
    ck_assert(cursor.failed);
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("bytes");
    TCase *tcase = suite_case(suite, "bytes", 60);

    tcase_add_test(tcase, integers_are_stored_low_byte_first_at_any_alignment);
    tcase_add_test(tcase, varints_round_trip_at_every_length);
    tcase_add_test(tcase, varints_that_are_overlong_or_too_large_are_refused);
    tcase_add_test(tcase, whatever_a_varint_decodes_from_is_what_it_encodes_to);
    tcase_add_test(tcase, cursor_reads_what_was_written_and_then_fails);
    tcase_add_test(tcase, cursor_that_has_failed_gives_zeros_for_ever);
    tcase_add_test(tcase, cursor_over_nothing_has_nothing);
    return run_suite(suite);
}
