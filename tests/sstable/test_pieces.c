/* SPDX-License-Identifier: MIT
 *
 * tests/sstable/test_pieces.c -- pieces of keys, and the kernels that search them (sstable/pieces.h, P1 and P2).
 */
#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "sstable/order.h"
#include "sstable/pieces.h"
#include "tests/support/check_status.h"
#include "tests/support/rng.h"

static uint64_t
random_piece(struct rng *rng)
{
    static const uint64_t corners[] = {
        0,         1, INT64_MAX, (uint64_t)INT64_MAX + 1, (uint64_t)INT64_MAX + 2, UINT64_MAX - 1,
        UINT64_MAX};

    return rng_chance(rng, 1, 2) ? corners[rng_below(rng, 7)] : rng_next(rng) >> rng_below(rng, 64);
}

START_TEST(every_kernel_answers_as_the_definition_does)
{
    struct rng rng = rng_from(rng_seed("every_kernel_answers_as_the_definition_does", 11));

    for (size_t which = 0; tm_pieces_usable(which) != NULL; which++) {
        const struct tm_pieces_kernel *kernel = tm_pieces_usable(which);

        printf("kernel %s\n", kernel->name);
        for (uint32_t round = 0; round < 20000; round++) {
            uint64_t pieces[TM_NODE_PIECES];
            uint32_t count = round % (TM_NODE_PIECES + 1);
            uint64_t wanted = random_piece(&rng);
            uint32_t equal = 0;
            uint32_t at_most = 0;

            for (uint32_t i = 0; i < TM_NODE_PIECES;
                 i++) { // also behind `count`: not to be looked at
                pieces[i] = rng_chance(&rng, 1, 3) ? wanted : random_piece(&rng);
                if (i < count) {
                    equal |= (uint32_t)(pieces[i] == wanted) << i;
                    at_most |= (uint32_t)(pieces[i] <= wanted) << i;
                }
            }
            if (kernel->equal(pieces, count, wanted) != equal ||
                kernel->at_most(pieces, count, wanted) != at_most)
                ck_abort_msg("%s: round %u", kernel->name, (unsigned)round);
        }
    }
}
END_TEST

START_TEST(no_kernel_reads_at_or_behind_the_count)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    uint8_t *pages =
        mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    ck_assert_ptr_ne(pages, MAP_FAILED);
    ck_assert_int_eq(mprotect(pages + page, page, PROT_NONE), 0);
    for (size_t which = 0; tm_pieces_usable(which) != NULL; which++)
        for (uint32_t count = 0; count <= TM_NODE_PIECES; count++) {
            const uint64_t *pieces =
                (const uint64_t *)(pages + page) - count; // zeros, up to the wall
            uint32_t all = count < 32 ? ((uint32_t)1 << count) - 1 : UINT32_MAX;

            ck_assert_uint_eq(tm_pieces_usable(which)->equal(pieces, count, 0), all);
            ck_assert_uint_eq(tm_pieces_usable(which)->at_most(pieces, count, 7), all);
        }
    munmap(pages, 2 * page);
}
END_TEST

START_TEST(the_best_kernel_of_the_machine_is_in_use)
{
    size_t count = 0;

    while (tm_pieces_usable(count) != NULL)
        count++;
    ck_assert_ptr_eq(tm_pieces_usable(0), &tm_pieces_scalar);
    ck_assert_ptr_eq(tm_pieces_chosen(), tm_pieces_usable(count - 1));
}
END_TEST

START_TEST(pieces_do_not_descend_where_keys_ascend)
{
    struct rng rng = rng_from(rng_seed("pieces_do_not_descend_where_keys_ascend", 12));

    for (int round = 0; round < 100000; round++) {
        uint8_t bytes[2][24];
        tamis_slice keys[2];
        size_t skipped = rng_below(&rng, 4);
        uint64_t pieces[2];

        for (int i = 0; i < 2; i++) {
            memset(bytes[i], 'p', sizeof bytes[i]);
            keys[i] = tm_slice(bytes[i], skipped + rng_below(&rng, 20));
            for (size_t j = skipped; j < keys[i].length; j++)
                bytes[i][j] = (uint8_t)(rng_below(&rng, 3) - 1); // 0, 1, 255
            pieces[i] = tm_piece(keys[i], skipped);
        }
        if (tm_slice_compare(keys[0], keys[1]) <= 0 ? pieces[0] > pieces[1] : pieces[0] < pieces[1])
            ck_abort_msg("round %d", round);
    }
    ck_assert_uint_eq(tm_piece(tm_slice("user:12345678", 13), 5), UINT64_C(0x3132333435363738));
    ck_assert_uint_eq(tm_piece(tm_slice("user:1", 6), 5), UINT64_C(0x31) << 56);
    ck_assert_uint_eq(tm_piece(tm_slice("user:", 5), 5), 0);
    ck_assert_uint_eq(tm_piece(tm_slice(NULL, 0), 0), 0);
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("pieces");
    TCase *tests = tcase_create("pieces");

    tcase_add_test(tests, every_kernel_answers_as_the_definition_does);
    tcase_add_test(tests, no_kernel_reads_at_or_behind_the_count);
    tcase_add_test(tests, the_best_kernel_of_the_machine_is_in_use);
    tcase_add_test(tests, pieces_do_not_descend_where_keys_ascend);
    suite_add_tcase(suite, tests);
    return check_run(suite);
}
