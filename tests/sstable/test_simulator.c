/* SPDX-License-Identifier: MIT
 *
 * tests/sstable/test_simulator.c -- the judge is judged: crash policies, faults and locks of the simulator.
 *
 * A policy is tested by two questions over many seeds: is every image allowed (what was promised is there),
 * and does every kind of image that the policy is for really occur.
 */
#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/check_status.h"
#include "tests/support/rng.h"
#include "tests/support/sim_os.h"

enum { SEED_COUNT = 60, STEP = 65536, PAGE = 4096 };

static struct sim *sim;
static const struct tm_os *os;
static int dir;

static void
setup(void)
{
    sim = sim_create(1);
    os = sim_os(sim);
    ck_assert_int_eq(os->make_dir(os->ctx, "db"), 0);
    ck_assert_int_eq(os->sync_parent(os->ctx, "db"), 0);
    dir = os->open_dir(os->ctx, "db");
    ck_assert_int_ge(dir, 0);
}

static void
teardown(void)
{
    sim_destroy(sim);
}

/* ---- Small things ------------------------------------------------------------------------------------------- */

static int
create(const char *name)
{
    int fd = os->open(os->ctx, dir, name, TM_OS_CREATE_NEW, TM_OS_CLASS_LOG);

    ck_assert_int_ge(fd, 0);
    return fd;
}

static void
put(int fd, const char *text, uint64_t offset)
{
    ck_assert_int_eq(os->pwrite(os->ctx, fd, text, strlen(text), offset, TM_OS_CLASS_LOG),
                     strlen(text));
}

static void
sync_file(int fd)
{
    ck_assert_int_eq(os->sync(os->ctx, fd, TM_OS_CLASS_LOG), 0);
}

static void
sync_names(void)
{
    ck_assert_int_eq(os->sync_dir(os->ctx, dir), 0);
}

/* A file whose bytes and name are durable. */
static int
create_durably(const char *name, const char *text)
{
    int fd = create(name);

    put(fd, text, 0);
    sync_file(fd);
    sync_names();
    return fd;
}

/* Whether the image has exactly these bytes under the name; text NULL: no such name. */
static bool
image_has(struct sim *image, const char *name, const char *text)
{
    size_t size;
    uint8_t *bytes = sim_file_get(image, "db", name, &size);
    bool same = text == NULL
                    ? bytes == NULL
                    : bytes != NULL && size == strlen(text) && memcmp(bytes, text, size) == 0;

    free(bytes);
    return same;
}

/* As image_has() for the image of a policy and seed. */
static bool
crash_has(enum sim_policy policy, uint64_t seed, const char *name, const char *text)
{
    struct sim *image = sim_crash(sim, policy, seed);
    bool has = image_has(image, name, text);

    sim_destroy(image);
    return has;
}

/* In how many of the seeds the image of the policy has it. */
static int
crashes_with(enum sim_policy policy, const char *name, const char *text)
{
    int count = 0;

    for (uint64_t seed = 1; seed <= SEED_COUNT; seed++)
        count += crash_has(policy, seed, name, text);
    return count;
}

static size_t
add_fault(enum sim_op op, enum sim_effect effect, int os_error, bool sticky)
{
    return sim_fault_add(
        sim, (struct sim_fault){
                 .op = op, .nth = 1, .effect = effect, .os_error = os_error, .sticky = sticky});
}

/* ---- What is promised ------------------------------------------------------------------------------------------ */

START_TEST(synced_bytes_under_a_synced_name_survive_every_policy)
{
    create_durably("a", "durable");
    ck_assert_int_eq(crashes_with(_i, "a", "durable"), SEED_COUNT);
}
END_TEST

START_TEST(synced_bytes_survive_what_is_appended_behind_them)
{
    int fd = create_durably("a", "durable");

    for (int i = 0; i < 3000; i++)
        put(fd, "pending", 7 + 7 * (uint64_t)i);
    for (uint64_t seed = 1; seed <= SEED_COUNT; seed++) {
        struct sim *image = sim_crash(sim, _i, seed);
        size_t size;
        uint8_t *bytes = sim_file_get(image, "db", "a", &size);

        ck_assert_uint_ge(size, 7);
        ck_assert_mem_eq(bytes, "durable", 7);
        free(bytes);
        sim_destroy(image);
    }
}
END_TEST

START_TEST(a_synced_rename_is_done_in_every_policy)
{
    create_durably("old", "x");
    ck_assert_int_eq(os->rename(os->ctx, dir, "old", "new"), 0);
    sync_names();
    ck_assert_int_eq(crashes_with(_i, "new", "x"), SEED_COUNT);
    ck_assert_int_eq(crashes_with(_i, "old", NULL), SEED_COUNT);
}
END_TEST

START_TEST(a_synced_removal_is_done_in_every_policy)
{
    create_durably("a", "x");
    ck_assert_int_eq(os->remove(os->ctx, dir, "a", TM_OS_CLASS_LOG), 0);
    sync_names();
    ck_assert_int_eq(crashes_with(_i, "a", NULL), SEED_COUNT);
}
END_TEST

START_TEST(an_image_depends_on_policy_and_seed_only)
{
    int fd = create_durably("a", "durable");

    put(fd, "pending pending pending", 7);
    create("b");
    for (uint64_t seed = 1; seed <= 10; seed++) {
        struct sim *first = sim_crash(sim, _i, seed);
        struct sim *second = sim_crash(sim, _i, seed);
        size_t sizes[2];
        uint8_t *bytes[2] = {sim_file_get(first, "db", "a", &sizes[0]),
                             sim_file_get(second, "db", "a", &sizes[1])};

        ck_assert_uint_eq(sizes[0], sizes[1]);
        ck_assert(memcmp(bytes[0], bytes[1], sizes[0]) == 0);
        ck_assert(image_has(first, "b", NULL) == image_has(second, "b", NULL));
        free(bytes[0]);
        free(bytes[1]);
        sim_destroy(first);
        sim_destroy(second);
    }
    ck_assert(image_has(sim, "a", "durablepending pending pending")); // untouched by being asked
}
END_TEST

START_TEST(an_image_is_durable)
{
    int fd = create_durably("a", "durable");
    struct sim *image;
    struct sim *again;

    put(fd, "pending", 7);
    create("b");
    image = sim_crash(sim, _i, 5);
    again = sim_crash(image, SIM_P0_STRICT, 6);
    for (int i = 0; i < 2; i++) {
        const char *name = i == 0 ? "a" : "b";
        size_t size;
        uint8_t *bytes = sim_file_get(image, "db", name, &size);
        size_t size_again;
        uint8_t *bytes_again = sim_file_get(again, "db", name, &size_again);

        ck_assert_int_eq(bytes == NULL, bytes_again == NULL);
        ck_assert_uint_eq(size, size_again);
        ck_assert(size == 0 || memcmp(bytes, bytes_again, size) == 0);
        free(bytes);
        free(bytes_again);
    }
    sim_destroy(image);
    sim_destroy(again);
}
END_TEST

/* ---- What each policy is for --------------------------------------------------------------------------------------- */

START_TEST(p0_loses_a_name_without_sync_dir_though_the_file_was_synced)
{
    int fd = create("a");

    put(fd, "x", 0);
    sync_file(fd);
    ck_assert(crash_has(SIM_P0_STRICT, 1, "a", NULL));
    ck_assert(crash_has(SIM_P1_ALL, 1, "a", "x"));
    ck_assert(crash_has(SIM_P5_DATA_FIRST, 1, "a", NULL));
}
END_TEST

START_TEST(p0_keeps_a_synced_name_of_an_unsynced_file_empty)
{
    int fd = create("a");

    put(fd, "x", 0);
    sync_names();
    ck_assert(crash_has(SIM_P0_STRICT, 1, "a", ""));
    ck_assert(crash_has(SIM_P1_ALL, 1, "a", "x"));
}
END_TEST

START_TEST(p0_undoes_renames_and_removals)
{
    create_durably("current", "old");
    create_durably("temporary", "new");
    create_durably("removed", "r");
    ck_assert_int_eq(os->rename(os->ctx, dir, "temporary", "current"), 0);
    ck_assert_int_eq(os->remove(os->ctx, dir, "removed", TM_OS_CLASS_LOG), 0);
    ck_assert(image_has(sim, "current", "new") && image_has(sim, "removed", NULL));
    ck_assert(crash_has(SIM_P0_STRICT, 1, "current", "old"));
    ck_assert(crash_has(SIM_P0_STRICT, 1, "temporary", "new"));
    ck_assert(crash_has(SIM_P0_STRICT, 1, "removed", "r"));
    ck_assert(crash_has(SIM_P1_ALL, 1, "current", "new"));
    ck_assert(crash_has(SIM_P1_ALL, 1, "removed", NULL));
}
END_TEST

START_TEST(p0_loses_a_directory_whose_parent_was_not_synced)
{
    struct sim *image;
    int other;
    int fd;

    ck_assert_int_eq(os->make_dir(os->ctx, "other"), 0);
    other = os->open_dir(os->ctx, "other");
    fd = os->open(os->ctx, other, "a", TM_OS_CREATE_NEW, TM_OS_CLASS_LOG);
    sync_file(fd);
    ck_assert_int_eq(os->sync_dir(os->ctx, other), 0);
    image = sim_crash(sim, SIM_P0_STRICT, 1);
    ck_assert(!sim_dir_exists(image, "other"));
    sim_destroy(image);
    ck_assert_int_eq(os->sync_parent(os->ctx, "other"), 0);
    image = sim_crash(sim, SIM_P0_STRICT, 1);
    ck_assert(sim_dir_exists(image, "other"));
    sim_destroy(image);
}
END_TEST

START_TEST(p2_keeps_a_prefix_and_tears_the_last_write)
{
    int fd = create_durably("a", "");
    char expected[6 * PAGE];
    bool whole_page_cut = false;
    bool byte_cut = false;
    bool nothing = false;
    bool all = false;

    for (size_t i = 0; i < sizeof expected; i++)
        expected[i] = (char)('a' + i % 23);
    for (size_t at = 0; at < sizeof expected; at += PAGE)
        ck_assert_int_eq(os->pwrite(os->ctx, fd, expected + at, PAGE, at, TM_OS_CLASS_LOG), PAGE);
    for (uint64_t seed = 1; seed <= 20 * SEED_COUNT; seed++) {
        struct sim *image = sim_crash(sim, SIM_P2_PREFIX, seed);
        size_t size;
        uint8_t *bytes = sim_file_get(image, "db", "a", &size);

        ck_assert_uint_le(size, sizeof expected);
        ck_assert(memcmp(bytes, expected, size) == 0);
        nothing |= size == 0;
        all |= size == sizeof expected;
        whole_page_cut |= size != 0 && size < sizeof expected && size % PAGE == 0;
        byte_cut |= size % 512 != 0;
        free(bytes);
        sim_destroy(image);
    }
    ck_assert(nothing && all && whole_page_cut && byte_cut);
}
END_TEST

START_TEST(p3_makes_holes_of_every_kind_and_half_pages)
{
    int fd = create_durably("a", "durable");
    bool kept_after_lost = false;
    bool garbage = false;
    bool zeros = false;
    bool half = false;
    char page[PAGE];

    memset(page, 'n', sizeof page);
    put(fd, "old bytes of a page", 7);
    for (uint64_t at = PAGE; at < 9 * PAGE; at += PAGE)
        ck_assert_int_eq(os->pwrite(os->ctx, fd, page, PAGE, at, TM_OS_CLASS_LOG), PAGE);
    for (uint64_t seed = 1; seed <= 4 * SEED_COUNT; seed++) {
        struct sim *image = sim_crash(sim, SIM_P3_PAGES, seed);
        size_t size;
        uint8_t *bytes = sim_file_get(image, "db", "a", &size);
        bool lost_before = false;

        ck_assert_mem_eq(bytes, "durable", 7);
        for (size_t at = PAGE; at + PAGE <= size; at += PAGE) {
            bool first_new = memcmp(bytes + at, page, PAGE / 2) == 0;
            bool second_new = memcmp(bytes + at + PAGE / 2, page, PAGE / 2) == 0;

            half |= first_new != second_new;
            zeros |= bytes[at] == 0 && bytes[at + 1] == 0 && bytes[at + 2] == 0;
            garbage |= bytes[at] != 0 && bytes[at] != 'n';
            kept_after_lost |= lost_before && first_new && second_new;
            lost_before |= !first_new;
        }
        free(bytes);
        sim_destroy(image);
    }
    ck_assert(kept_after_lost && garbage && zeros && half);
}
END_TEST

START_TEST(p4_keeps_sizes_without_bytes_or_nothing_of_them)
{
    int fd = create("a");
    int zeros;

    put(fd, "xyz", 0);
    zeros = 0;
    for (uint64_t seed = 1; seed <= SEED_COUNT; seed++) {
        struct sim *image = sim_crash(sim, SIM_P4_METADATA_FIRST, seed);
        size_t size;
        uint8_t *bytes = sim_file_get(image, "db", "a", &size);

        ck_assert_ptr_nonnull(bytes);
        ck_assert(size == 0 || (size == 3 && memcmp(bytes, "\0\0\0", 3) == 0));
        zeros += size == 3;
        free(bytes);
        sim_destroy(image);
    }
    ck_assert_int_gt(zeros, 0);
    ck_assert_int_lt(zeros, SEED_COUNT);
}
END_TEST

START_TEST(p5_keeps_bytes_and_undoes_names)
{
    int fd = create_durably("a", "one");

    put(fd, "two", 3);
    ck_assert_int_eq(os->rename(os->ctx, dir, "a", "b"), 0);
    ck_assert_int_eq(crashes_with(SIM_P5_DATA_FIRST, "a", "onetwo"), SEED_COUNT);
    ck_assert_int_eq(crashes_with(SIM_P5_DATA_FIRST, "b", NULL), SEED_COUNT);
}
END_TEST

START_TEST(p6_shows_both_names_or_neither)
{
    int both = 0;

    create_durably("current", "old");
    create_durably("temporary", "new");
    ck_assert_int_eq(os->rename(os->ctx, dir, "temporary", "current"), 0);
    for (uint64_t seed = 1; seed <= SEED_COUNT; seed++) {
        struct sim *image = sim_crash(sim, SIM_P6_RENAME_SPLIT, seed);

        if (image_has(image, "current", "new")) {
            ck_assert(image_has(image, "temporary", "new"));
            both++;
        } else {
            ck_assert(image_has(image, "current", "old")); // what would have been replaced stays
            ck_assert(image_has(image, "temporary", NULL));
        }
        sim_destroy(image);
    }
    ck_assert_int_gt(both, 0);
    ck_assert_int_lt(both, SEED_COUNT);
}
END_TEST

START_TEST(p7_brings_removed_files_back)
{
    int back;

    create_durably("a", "x");
    ck_assert_int_eq(os->remove(os->ctx, dir, "a", TM_OS_CLASS_LOG), 0);
    back = crashes_with(SIM_P7_UNLINK_UNDONE, "a", "x");
    ck_assert_int_ge(back, SEED_COUNT / 2);
    ck_assert_int_lt(back, SEED_COUNT);
    ck_assert_int_eq(crashes_with(SIM_P1_ALL, "a", NULL), SEED_COUNT);
}
END_TEST

START_TEST(a_truncation_is_pending_like_a_write)
{
    int fd = create_durably("a", "0123456789");

    ck_assert_int_eq(os->truncate(os->ctx, fd, 4, TM_OS_CLASS_LOG), 0);
    ck_assert(image_has(sim, "a", "0123"));
    ck_assert(crash_has(SIM_P0_STRICT, 1, "a", "0123456789"));
    ck_assert(crash_has(SIM_P1_ALL, 1, "a", "0123"));
    sync_file(fd);
    ck_assert(crash_has(SIM_P0_STRICT, 1, "a", "0123"));
}
END_TEST

/* ---- Mappings ------------------------------------------------------------------------------------------------------- */

static char *
map_step(int fd)
{
    void *address = NULL;

    ck_assert_int_eq(os->allocate(os->ctx, fd, 0, STEP), 0);
    ck_assert_int_eq(os->map(os->ctx, fd, 0, STEP, &address), 0);
    return address;
}

START_TEST(stores_into_a_mapping_are_seen_and_are_pending_until_sync)
{
    int fd = create_durably("a", "");
    char *map = map_step(fd);
    struct sim *image;
    uint8_t *bytes;
    char buffer[3];
    size_t size;

    sync_file(fd);
    memcpy(map + 5000, "abc", 3);
    ck_assert_int_eq(os->pread(os->ctx, fd, buffer, 3, 5000, TM_OS_CLASS_LOG), 3);
    ck_assert_mem_eq(buffer, "abc", 3);
    for (int synced = 0; synced < 2; synced++) {
        image = sim_crash(sim, SIM_P0_STRICT, 1);
        bytes = sim_file_get(image, "db", "a", &size);
        ck_assert_uint_eq(size, STEP);
        ck_assert_int_eq(memcmp(bytes + 5000, "abc", 3) == 0, synced);
        free(bytes);
        sim_destroy(image);
        sync_file(fd);
    }
    put(fd, "xyz", 9000); // and a write is seen through the mapping
    ck_assert_mem_eq(map + 9000, "xyz", 3);
    ck_assert_int_eq(os->unmap(os->ctx, map, STEP), 0);
    ck_assert_uint_eq(sim_open_mappings(sim), 0);
}
END_TEST

START_TEST(stores_after_the_stop_do_not_count)
{
    int fd = create_durably("a", "");
    char *map = map_step(fd);
    struct sim *image;
    uint8_t *bytes;
    size_t size;

    memcpy(map, "before", 6);
    sim_stop_at(sim, sim_call_count(sim) + 1);
    ck_assert_int_eq(os->sync(os->ctx, fd, TM_OS_CLASS_LOG), -EIO);
    ck_assert(sim_stopped(sim));
    memcpy(map + 6, "after", 5);
    image = sim_crash(sim, SIM_P1_ALL, 1);
    bytes = sim_file_get(image, "db", "a", &size);
    ck_assert_mem_eq(bytes, "before\0\0\0\0\0", 11);
    free(bytes);
    sim_destroy(image);
}
END_TEST

/* ---- Stopping and cloning --------------------------------------------------------------------------------------------- */

START_TEST(from_the_stopping_call_on_nothing_happens)
{
    int fd = create_durably("a", "x");

    sim_stop_at(sim, sim_call_count(sim) + 2);
    put(fd, "y", 1);
    ck_assert(!sim_stopped(sim));
    for (int i = 0; i < 5; i++) {
        ck_assert_int_eq(os->pwrite(os->ctx, fd, "z", 1, 2, TM_OS_CLASS_LOG), -EIO);
        ck_assert_int_eq(os->remove(os->ctx, dir, "a", TM_OS_CLASS_LOG), -EIO);
        ck_assert_int_eq(os->close(os->ctx, fd, TM_OS_CLASS_LOG), -EIO);
    }
    ck_assert(sim_stopped(sim));
    ck_assert(crash_has(SIM_P1_ALL, 1, "a", "xy"));
}
END_TEST

START_TEST(a_clone_keeps_what_is_pending_pending)
{
    int fd = create_durably("a", "x");
    struct sim *clone;
    struct sim *image;

    put(fd, "y", 1);
    create("b");
    clone = sim_clone(sim);
    put(fd, "z", 2); // not in the clone
    ck_assert(image_has(clone, "a", "xy") && image_has(clone, "b", ""));
    ck_assert_uint_eq(sim_open_descriptors(clone), 0);
    image = sim_crash(clone, SIM_P0_STRICT, 1);
    ck_assert(image_has(image, "a", "x") && image_has(image, "b", NULL));
    sim_destroy(image);
    sim_destroy(clone);
}
END_TEST

/* ---- Locks and descriptors ---------------------------------------------------------------------------------------------- */

START_TEST(a_lock_excludes_until_unlock_close_or_crash)
{
    int first = os->open(os->ctx, dir, "LOCK", TM_OS_CREATE, TM_OS_CLASS_LOCK);
    int second = os->open(os->ctx, dir, "LOCK", TM_OS_CREATE, TM_OS_CLASS_LOCK);
    struct sim *clone;
    int third;

    ck_assert_int_eq(os->lock(os->ctx, first, TM_OS_LOCK_WRITER), 0);
    ck_assert_int_eq(os->lock(os->ctx, second, TM_OS_LOCK_WRITER), -EAGAIN);
    ck_assert_int_eq(os->unlock(os->ctx, first), 0);
    ck_assert_int_eq(os->lock(os->ctx, second, TM_OS_LOCK_WRITER), 0);
    ck_assert_int_eq(os->lock(os->ctx, first, TM_OS_LOCK_WRITER), -EAGAIN);
    ck_assert_int_eq(os->close(os->ctx, second, TM_OS_CLASS_LOCK), 0);
    ck_assert_int_eq(os->lock(os->ctx, first, TM_OS_LOCK_WRITER), 0);
    clone = sim_clone(sim);
    third = sim_os(clone)->open_dir(sim_os(clone)->ctx, "db");
    third = sim_os(clone)->open(sim_os(clone)->ctx, third, "LOCK", TM_OS_CREATE, TM_OS_CLASS_LOCK);
    ck_assert_int_eq(sim_os(clone)->lock(sim_os(clone)->ctx, third, TM_OS_LOCK_WRITER), 0);
    sim_destroy(clone);
}
END_TEST

START_TEST(readers_share_a_lock_that_the_writer_sees_and_that_is_not_in_its_way)
{
    int writer = os->open(os->ctx, dir, "LOCK", TM_OS_CREATE, TM_OS_CLASS_LOCK);
    int first = os->open(os->ctx, dir, "LOCK", TM_OS_READ, TM_OS_CLASS_LOCK);
    int second = os->open(os->ctx, dir, "LOCK", TM_OS_READ, TM_OS_CLASS_LOCK);

    ck_assert_int_eq(os->is_locked(os->ctx, writer, TM_OS_LOCK_READER), 0);
    ck_assert_int_eq(os->lock(os->ctx, first, TM_OS_LOCK_READER), 0);
    ck_assert_int_eq(os->lock(os->ctx, second, TM_OS_LOCK_READER), 0);
    ck_assert_int_eq(os->lock(os->ctx, writer, TM_OS_LOCK_WRITER), 0);
    ck_assert_int_eq(os->lock(os->ctx, first, TM_OS_LOCK_WRITER), -EBADF); // opened for reading
    ck_assert_int_eq(os->is_locked(os->ctx, writer, TM_OS_LOCK_READER), 1);
    ck_assert_int_eq(os->is_locked(os->ctx, writer, TM_OS_LOCK_WRITER), 0); // not by another
    ck_assert_int_eq(os->unlock(os->ctx, first), 0);
    ck_assert_int_eq(os->is_locked(os->ctx, writer, TM_OS_LOCK_READER), 1);
    ck_assert_int_eq(os->close(os->ctx, second, TM_OS_CLASS_LOCK), 0);
    ck_assert_int_eq(os->is_locked(os->ctx, writer, TM_OS_LOCK_READER), 0);
}
END_TEST

START_TEST(a_closed_descriptor_is_not_mistaken_for_another)
{
    int fd = create("a");
    char byte;

    ck_assert_uint_eq(sim_open_descriptors(sim), 2);
    ck_assert_int_eq(os->close(os->ctx, fd, TM_OS_CLASS_LOG), 0);
    create("b");
    ck_assert_int_eq(os->pread(os->ctx, fd, &byte, 1, 0, TM_OS_CLASS_LOG), -EBADF);
    ck_assert_int_eq(os->close(os->ctx, fd, TM_OS_CLASS_LOG), -EBADF);
    ck_assert_uint_eq(sim_open_descriptors(sim), 2);
}
END_TEST

START_TEST(a_removed_file_lives_while_it_is_open)
{
    struct tm_os_stat found;
    int fd = create_durably("a", "x");
    char byte;

    ck_assert_int_eq(os->remove(os->ctx, dir, "a", TM_OS_CLASS_LOG), 0);
    sync_names();
    ck_assert_int_eq(os->pread(os->ctx, fd, &byte, 1, 0, TM_OS_CLASS_LOG), 1);
    ck_assert_int_eq(os->stat(os->ctx, fd, &found), 0);
    ck_assert_uint_eq(found.link_count, 0);
}
END_TEST

/* ---- Faults ---------------------------------------------------------------------------------------------------------------- */

static bool
visit_none(void *arg, const char *name)
{
    (void)arg;
    (void)name;
    return true;
}

/* Make one call of this kind; its result. */
static int64_t
call_op(enum sim_op op, int fd)
{
    struct tm_os_stat found;
    void *address;
    char byte = 'b';

    switch (op) {
    case SIM_OPEN_DIR:
        return os->open_dir(os->ctx, "db");
    case SIM_MAKE_DIR:
        return os->make_dir(os->ctx, "made");
    case SIM_REMOVE_DIR:
        return os->remove_dir(os->ctx, "made");
    case SIM_SYNC_PARENT:
        return os->sync_parent(os->ctx, "db");
    case SIM_SYNC_DIR:
        return os->sync_dir(os->ctx, dir);
    case SIM_LIST:
        return os->list(os->ctx, dir, visit_none, NULL);
    case SIM_OPEN:
        return os->open(os->ctx, dir, "a", TM_OS_READ, TM_OS_CLASS_LOG);
    case SIM_CLOSE:
        return os->close(os->ctx, fd, TM_OS_CLASS_LOG);
    case SIM_STAT:
        return os->stat(os->ctx, fd, &found);
    case SIM_PREAD:
        return os->pread(os->ctx, fd, &byte, 1, 0, TM_OS_CLASS_LOG);
    case SIM_PWRITE:
        return os->pwrite(os->ctx, fd, &byte, 1, 0, TM_OS_CLASS_LOG);
    case SIM_SYNC:
        return os->sync(os->ctx, fd, TM_OS_CLASS_LOG);
    case SIM_START_WRITEBACK:
        return os->start_writeback(os->ctx, fd, 0, 1);
    case SIM_TRUNCATE:
        return os->truncate(os->ctx, fd, 1, TM_OS_CLASS_LOG);
    case SIM_ALLOCATE:
        return os->allocate(os->ctx, fd, 0, STEP);
    case SIM_MAP:
        return os->map(os->ctx, fd, 0, STEP, &address);
    case SIM_UNMAP:
        return os->unmap(os->ctx, NULL, 0);
    case SIM_RENAME:
        return os->rename(os->ctx, dir, "missing", "b");
    case SIM_LINK:
        return os->link(os->ctx, dir, "missing", dir, TM_OS_CLASS_TABLE);
    case SIM_REMOVE:
        return os->remove(os->ctx, dir, "missing", TM_OS_CLASS_LOG);
    case SIM_LOCK:
        return os->lock(os->ctx, fd, TM_OS_LOCK_WRITER);
    case SIM_IS_LOCKED:
        return os->is_locked(os->ctx, fd, TM_OS_LOCK_READER);
    case SIM_UNLOCK:
        return os->unlock(os->ctx, fd);
    default:
        return 0;
    }
}

START_TEST(every_call_can_be_made_to_fail)
{
    static const int os_errors[] = {EIO, ENOSPC, EINTR, EMFILE};
    int fd = create_durably("a", "x");

    for (int op = SIM_OP_ANY + 1; op < SIM_OP_COUNT; op++) {
        int os_error = os_errors[op % 4];
        size_t rule = add_fault(op, SIM_ERROR, os_error, false);

        ck_assert_int_eq(call_op(op, fd), -os_error);
        ck_assert_uint_eq(sim_fault_fired(sim, rule), 1);
        ck_assert_str_ne(sim_op_name(op), "?");
        ck_assert_int_ne(call_op(op, fd), -os_error); // once
        ck_assert_uint_eq(sim_fault_fired(sim, rule), 1);
        if (op == SIM_CLOSE)
            fd = os->open(os->ctx, dir, "a", TM_OS_CREATE, TM_OS_CLASS_LOG);
    }
}
END_TEST

START_TEST(a_fault_waits_for_its_call_and_class_and_can_stay)
{
    int fd = create("a");
    size_t rule = sim_fault_add(sim, (struct sim_fault){.op = SIM_PWRITE,
                                                        .file_class = TM_OS_CLASS_LOG,
                                                        .nth = 3,
                                                        .effect = SIM_ERROR,
                                                        .os_error = ENOSPC,
                                                        .sticky = true});
    size_t other = sim_fault_add(sim, (struct sim_fault){.op = SIM_PWRITE,
                                                         .file_class = TM_OS_CLASS_TABLE,
                                                         .nth = 1,
                                                         .effect = SIM_ERROR,
                                                         .os_error = EIO});

    for (int i = 0; i < 5; i++)
        ck_assert_int_eq(os->pwrite(os->ctx, fd, "x", 1, 0, TM_OS_CLASS_LOG), i < 2 ? 1 : -ENOSPC);
    ck_assert_uint_eq(sim_fault_fired(sim, rule), 3);
    ck_assert_uint_eq(sim_fault_matched(sim, rule), 5);
    ck_assert_uint_eq(sim_fault_fired(sim, other), 0);
    sim_fault_clear(sim);
    put(fd, "x", 0);
}
END_TEST

START_TEST(short_counts_and_flipped_bits_happen)
{
    int fd = create_durably("a", "0123456789");
    char buffer[10];
    size_t rule;
    int wrong = 0;

    rule = add_fault(SIM_PWRITE, SIM_SHORT, 0, false);
    ck_assert_int_eq(os->pwrite(os->ctx, fd, "abcdef", 6, 0, TM_OS_CLASS_LOG), 3);
    ck_assert_uint_eq(sim_fault_fired(sim, rule), 1);
    ck_assert(image_has(sim, "a", "abc3456789"));
    rule = add_fault(SIM_PREAD, SIM_SHORT, 0, false);
    ck_assert_int_eq(os->pread(os->ctx, fd, buffer, 10, 0, TM_OS_CLASS_LOG), 5);
    ck_assert_uint_eq(sim_fault_fired(sim, rule), 1);
    rule = add_fault(SIM_PREAD, SIM_FLIP, 0, false);
    ck_assert_int_eq(os->pread(os->ctx, fd, buffer, 10, 0, TM_OS_CLASS_LOG), 10);
    ck_assert_uint_eq(sim_fault_fired(sim, rule), 1);
    for (int i = 0; i < 10; i++)
        wrong += __builtin_popcount((unsigned char)(buffer[i] ^ "abc3456789"[i]));
    ck_assert_int_eq(wrong, 1);
    ck_assert(image_has(sim, "a", "abc3456789")); // the medium is right
}
END_TEST

START_TEST(f1_drops_pages_that_can_still_be_read)
{
    int fd = create_durably("a", "durable");
    size_t rule = add_fault(SIM_SYNC, SIM_SYNC_DROPS, 0, false);
    struct sim *clone;

    put(fd, "lost", 7);
    ck_assert_int_eq(os->sync(os->ctx, fd, TM_OS_CLASS_LOG), -EIO);
    ck_assert_uint_eq(sim_fault_fired(sim, rule), 1);
    sync_file(fd); // says OK and has nothing to write
    ck_assert(image_has(sim, "a", "durablelost"));
    clone = sim_clone(sim); // the program starts again: still there
    ck_assert(image_has(clone, "a", "durablelost"));
    sim_destroy(clone);
    for (int policy = 0; policy < SIM_POLICY_COUNT; policy++) // the machine starts again: gone
        ck_assert(crash_has(policy, 1, "a", "durable"));
    put(fd, "LOST", 7); // written again, it is dirty again
    sync_file(fd);
    ck_assert(crash_has(SIM_P0_STRICT, 1, "a", "durableLOST"));
}
END_TEST

START_TEST(f2_fails_although_everything_is_durable)
{
    int fd = create_durably("a", "one");
    size_t rule = add_fault(SIM_SYNC, SIM_SYNC_FAILS_DONE, 0, false);

    put(fd, "two", 3);
    ck_assert_int_eq(os->sync(os->ctx, fd, TM_OS_CLASS_LOG), -EIO);
    ck_assert_uint_eq(sim_fault_fired(sim, rule), 1);
    ck_assert(crash_has(SIM_P0_STRICT, 1, "a", "onetwo"));
}
END_TEST

START_TEST(f5_tells_at_the_next_sync)
{
    int fd = create_durably("a", "one");
    size_t rule = add_fault(SIM_SYNC, SIM_SYNC_LATE, 0, false);

    put(fd, "two", 3);
    sync_file(fd);
    ck_assert_uint_eq(sim_fault_fired(sim, rule), 1);
    ck_assert(crash_has(SIM_P1_ALL, 1, "a", "one"));
    ck_assert_int_eq(os->sync(os->ctx, fd, TM_OS_CLASS_LOG), -EIO);
    sync_file(fd);
}
END_TEST

START_TEST(a_full_medium_refuses_and_frees)
{
    int fd = create("a");

    sim_set_space(sim, 10);
    ck_assert_int_eq(os->pwrite(os->ctx, fd, "0123456789ab", 12, 0, TM_OS_CLASS_LOG), 10);
    ck_assert_int_eq(os->pwrite(os->ctx, fd, "x", 1, 10, TM_OS_CLASS_LOG), -ENOSPC);
    ck_assert_int_eq(os->pwrite(os->ctx, fd, "x", 1, 9, TM_OS_CLASS_LOG), 1); // in place
    ck_assert_int_eq(os->allocate(os->ctx, fd, 0, STEP), -ENOSPC);
    ck_assert_uint_eq(sim_space_used(sim), 10);
    ck_assert_int_eq(os->truncate(os->ctx, fd, 5, TM_OS_CLASS_LOG), 0);
    put(fd, "vwxyz", 5);
}
END_TEST

/* ---- The medium past the calls ------------------------------------------------------------------------------------------------ */

START_TEST(files_can_be_damaged_planted_and_taken_away_durably)
{
    create_durably("a", "good");
    create("pending");
    sim_file_put(sim, "db", "a", "bad!", 4);
    sim_file_put(sim, "db", "stray", "s", 1);
    ck_assert(sim_file_remove(sim, "db", "pending"));
    ck_assert(!sim_file_remove(sim, "db", "pending"));
    for (int policy = 0; policy < SIM_POLICY_COUNT; policy++) {
        ck_assert(crash_has(policy, 1, "a", "bad!"));
        ck_assert(crash_has(policy, 1, "stray", "s"));
        ck_assert(crash_has(policy, 1, "pending", NULL));
    }
    sim_dir_put(sim, "planted");
    ck_assert_int_ge(os->open_dir(os->ctx, "planted"), 0);
}
END_TEST

START_TEST(directories_follow_their_paths)
{
    ck_assert_int_eq(os->open_dir(os->ctx, "db/none"), -ENOENT);
    ck_assert_int_eq(os->make_dir(os->ctx, "none/x"), -ENOENT);
    ck_assert_int_eq(os->make_dir(os->ctx, "db"), -EEXIST);
    ck_assert_int_eq(os->make_dir(os->ctx, "db/inner"), 0);
    ck_assert_int_ge(os->open_dir(os->ctx, "db/inner/"), 0);
    ck_assert_int_eq(os->make_dir(os->ctx, "/x"), 0);
    create("a");
    ck_assert_int_eq(os->open_dir(os->ctx, "db/a"), -ENOTDIR);
    ck_assert_int_eq(os->remove_dir(os->ctx, "db"), -ENOTEMPTY);
    ck_assert_int_eq(os->remove_dir(os->ctx, "/x"), 0);
    ck_assert_int_eq(os->remove_dir(os->ctx, "/x"), -ENOENT);
}
END_TEST

int
main(void)
{
    const TTest *const in_every_policy[] = {
        synced_bytes_under_a_synced_name_survive_every_policy,
        synced_bytes_survive_what_is_appended_behind_them,
        a_synced_rename_is_done_in_every_policy,
        a_synced_removal_is_done_in_every_policy,
        an_image_depends_on_policy_and_seed_only,
        an_image_is_durable,
    };
    const TTest *const once[] = {
        p0_loses_a_name_without_sync_dir_though_the_file_was_synced,
        p0_keeps_a_synced_name_of_an_unsynced_file_empty,
        p0_undoes_renames_and_removals,
        p0_loses_a_directory_whose_parent_was_not_synced,
        p2_keeps_a_prefix_and_tears_the_last_write,
        p3_makes_holes_of_every_kind_and_half_pages,
        p4_keeps_sizes_without_bytes_or_nothing_of_them,
        p5_keeps_bytes_and_undoes_names,
        p6_shows_both_names_or_neither,
        p7_brings_removed_files_back,
        a_truncation_is_pending_like_a_write,
        stores_into_a_mapping_are_seen_and_are_pending_until_sync,
        stores_after_the_stop_do_not_count,
        from_the_stopping_call_on_nothing_happens,
        a_clone_keeps_what_is_pending_pending,
        a_lock_excludes_until_unlock_close_or_crash,
        readers_share_a_lock_that_the_writer_sees_and_that_is_not_in_its_way,
        a_closed_descriptor_is_not_mistaken_for_another,
        a_removed_file_lives_while_it_is_open,
        every_call_can_be_made_to_fail,
        a_fault_waits_for_its_call_and_class_and_can_stay,
        short_counts_and_flipped_bits_happen,
        f1_drops_pages_that_can_still_be_read,
        f2_fails_although_everything_is_durable,
        f5_tells_at_the_next_sync,
        a_full_medium_refuses_and_frees,
        files_can_be_damaged_planted_and_taken_away_durably,
        directories_follow_their_paths,
    };
    Suite *suite = suite_create("simulator");
    TCase *tests = tcase_create("simulator");

    tcase_set_timeout(tests, 0);
    tcase_add_checked_fixture(tests, setup, teardown);
    for (size_t i = 0; i < sizeof in_every_policy / sizeof in_every_policy[0]; i++)
        tcase_add_loop_test(tests, in_every_policy[i], 0, SIM_POLICY_COUNT);
    for (size_t i = 0; i < sizeof once / sizeof once[0]; i++)
        tcase_add_test(tests, once[i]);
    suite_add_tcase(suite, tests);
    return check_run(suite);
}
