/* SPDX-License-Identifier: MIT
 *
 * tests/sstable/test_descriptors.c -- the bound on descriptors: who is closed, who stays, and what is noticed when a file is
 * opened again.
 */
#include "sstable/descriptors.h"

#include <errno.h>
#include <stdio.h>

#include "tests/support/check_status.h"
#include "tests/support/world.h"

enum { FILES = 8 };

static struct world *world;
static tamis_dir *dir;
static struct tm_descriptors descriptors;
static struct tm_descriptor files[FILES];
static char names[FILES][16];
static unsigned opened[FILES]; // times
static tamis_error err;

static void
count_opening(void *arg, const struct sim_call *call)
{
    (void)arg;
    for (int i = 0; i < FILES; i++)
        opened[i] += call->op == SIM_OPEN && call->result >= 0 && strcmp(call->name, names[i]) == 0;
}

static void
setup(void)
{
    bool created;

    world = world_create(1, 0);
    check_ok(world->env.fs->open_dir(world->env.fs->ctx, "db", true, &created, &dir, &err), err);
    for (int i = 0; i < FILES; i++) {
        snprintf(names[i], sizeof names[i], "%06d.sst", i);
        sim_file_put(world->sim, "db", names[i], names[i], (size_t)i + 1);
    }
    memset(opened, 0, sizeof opened);
    sim_watch(world->sim, NULL, count_opening, NULL);
}

/* At most `open_max` of the files are open. */
static void
use(uint32_t open_max, tamis_status missing)
{
    tm_descriptors_init(&descriptors, &world->env, open_max, missing);
    for (int i = 0; i < FILES; i++)
        tm_descriptor_init(&files[i], &world->env, &descriptors, dir, names[i]);
}

static void
teardown(void)
{
    for (int i = 0; i < FILES; i++)
        tm_descriptor_close(&files[i]);
    tm_descriptors_deinit(&descriptors);
    world->env.fs->close_dir(world->env.fs->ctx, dir);
    world_destroy(world);
}

static tamis_status
touch(int i)
{
    char byte = 0;
    tamis_file *file;
    tamis_status status = tm_descriptor_acquire(&files[i], &file, &err);

    if (status != TAMIS_OK)
        return status;
    status = world->env.fs->read_at(world->env.fs->ctx, file, 0, &byte, 1, &err);
    ck_assert_int_eq(byte, '0');
    tm_descriptor_release(&files[i]);
    return status;
}

static size_t
open_files(void)
{
    return sim_open_descriptors(world->sim) - 1; // the directory
}

START_TEST(no_more_are_open_than_the_bound_and_all_can_be_read)
{
    use(3, TAMIS_CORRUPT);
    for (int round = 0; round < 5; round++)
        for (int i = 0; i < FILES; i++) {
            check_ok(touch(i), err);
            ck_assert_uint_le(open_files(), 3);
        }
    ck_assert_uint_eq(open_files(), 3);
}
END_TEST

START_TEST(without_a_bound_each_is_opened_once)
{
    use(0, TAMIS_CORRUPT);
    for (int round = 0; round < 5; round++)
        for (int i = 0; i < FILES; i++)
            check_ok(touch(i), err);
    ck_assert_uint_eq(open_files(), FILES);
    for (int i = 0; i < FILES; i++)
        ck_assert_uint_eq(opened[i], 1);
}
END_TEST

START_TEST(what_is_read_again_and_again_stays_open)
{
    use(3, TAMIS_CORRUPT);
    check_ok(touch(0), err);
    for (int round = 0; round < 5; round++)
        for (int i = 1; i < FILES; i++) {
            check_ok(touch(0), err);
            check_ok(touch(i), err);
        }
    ck_assert_uint_le(opened[0],
                      2); // once more at most: a hand that finds all of them read takes the first
    ck_assert_uint_ge(opened[1], 5);
}
END_TEST

START_TEST(a_file_that_is_being_read_is_not_closed_and_may_exceed_the_bound)
{
    tamis_file *held[FILES];

    use(2, TAMIS_CORRUPT);
    for (int i = 0; i < 4; i++)
        check_ok(tm_descriptor_acquire(&files[i], &held[i], &err), err);
    ck_assert_uint_eq(open_files(), 4);
    for (int i = 4; i < FILES; i++)
        check_ok(touch(i), err);
    for (int i = 0; i < 4; i++) {
        char byte;

        check_ok(world->env.fs->read_at(world->env.fs->ctx, held[i], 0, &byte, 1, &err), err);
        ck_assert_uint_eq(opened[i], 1);
        tm_descriptor_release(&files[i]);
    }
    for (int i = 4; i < FILES; i++)
        check_ok(touch(i), err);
    ck_assert_uint_le(
        open_files(),
        5); // no read is closed to get below the bound: it is kept from being exceeded further
}
END_TEST

START_TEST(a_file_of_another_length_is_corrupt_when_it_is_opened_again)
{
    use(1, TAMIS_CORRUPT);
    check_ok(touch(0), err);
    check_ok(touch(1), err);
    sim_file_put(world->sim, "db", names[0], "0000", 4);
    check_status(touch(0), TAMIS_CORRUPT, err);
    ck_assert_ptr_nonnull(strstr(err.message, "000000.sst: expected the table of 1 bytes"));
    ck_assert_uint_eq(open_files(), 0); // room had been made for it
    check_ok(touch(1), err);
}
END_TEST

START_TEST(a_file_that_has_gone_is_what_the_owner_says)
{
    use(1, TAMIS_STALE);
    check_ok(touch(0), err);
    sim_file_remove(world->sim, "db", names[0]);
    check_ok(touch(0), err); // it is open
    check_ok(touch(1), err);
    check_status(touch(0), TAMIS_STALE, err);
    ck_assert_ptr_nonnull(strstr(err.message, "000000.sst"));
    check_ok(touch(1), err);
}
END_TEST

START_TEST(an_opening_that_fails_costs_nothing_and_is_tried_again)
{
    size_t rule;

    use(2, TAMIS_CORRUPT);
    check_ok(touch(0), err);
    rule = sim_fault_add(
        world->sim,
        (struct sim_fault){.op = SIM_OPEN, .nth = 1, .effect = SIM_ERROR, .os_error = EMFILE});
    check_status(touch(1), TAMIS_IO, err);
    ck_assert_uint_eq(sim_fault_fired(world->sim, rule), 1);
    ck_assert_uint_eq(open_files(), 1);
    sim_fault_clear(world->sim);
    for (int i = 0; i < FILES; i++)
        check_ok(touch(i), err);
    ck_assert_uint_eq(open_files(), 2);
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("descriptors");
    TCase *tests = tcase_create("descriptors");

    tcase_set_timeout(tests, 0);
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_test(tests, no_more_are_open_than_the_bound_and_all_can_be_read);
    tcase_add_test(tests, without_a_bound_each_is_opened_once);
    tcase_add_test(tests, what_is_read_again_and_again_stays_open);
    tcase_add_test(tests, a_file_that_is_being_read_is_not_closed_and_may_exceed_the_bound);
    tcase_add_test(tests, a_file_of_another_length_is_corrupt_when_it_is_opened_again);
    tcase_add_test(tests, a_file_that_has_gone_is_what_the_owner_says);
    tcase_add_test(tests, an_opening_that_fails_costs_nothing_and_is_tried_again);
    suite_add_tcase(suite, tests);
    return check_run(suite);
}
