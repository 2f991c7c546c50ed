/* SPDX-License-Identifier: MIT
 *
 * tests/engine/test_checkpoint.c -- a checkpoint is whole or nothing: beside writers, where links are not possible, when a call or an
 * allocation fails, and after a power cut at any of its calls.
 */
#include <errno.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/engine/one_store.h"
#include "tests/engine/store_oracle.h"

#define COPY "copy"

enum { KEYS = 2000 / ONE_STORE_DIVISOR, VALUE_BYTES = 300 };

/* ---- On a real machine ---------------------------------------------------------------------------- */

static char *copy_path;
static tamis_db *copy;

static void
setup(void)
{
    one_store_begin();
    copy_path = temp_dir_path(one.scratch, COPY);
    for (unsigned i = 0; i < KEYS; i++)
        one_put_number(i, 1, VALUE_BYTES);
    one_compact();
    for (unsigned i = 0; i < KEYS; i += 2)
        one_put_number(i, 2, VALUE_BYTES); // some in tables above, the last ones in the log only
}

static void
teardown(void)
{
    check_ok(tamis_close(copy, &one.err), one.err);
    copy = NULL;
    free(copy_path);
    one_store_end();
}

static void
open_copy(void)
{
    tamis_options options = one.options;

    options.create_if_missing = false;
    check_ok(tamis_open(copy_path, &options, &copy, &one.err), one.err);
}

static void
close_copy(void)
{
    check_ok(tamis_close(copy, &one.err), one.err);
    copy = NULL;
}

/* The version of key `number` in `db`. */
static unsigned
version_in(tamis_db *db, unsigned number)
{
    unsigned head[2] = {0};
    size_t length = 0;
    char text[32];

    check_ok(tamis_get(db, NULL, one_key(text, number), head, sizeof head, &length, &one.err),
             one.err);
    ck_assert_uint_eq(head[0], number);
    return head[1];
}

static void
check_versions(tamis_db *db, unsigned even, unsigned odd)
{
    for (unsigned i = 0; i < KEYS; i++)
        ck_assert_uint_eq(version_in(db, i), i % 2 == 0 ? even : odd);
    check_ok(tamis_verify(db, NULL, NULL, &one.err), one.err);
}

/* Tables in `path` that have so many names. */
static unsigned
tables_with_names(const char *path, nlink_t names)
{
    DIR *directory = opendir(path);
    struct dirent *entry;
    unsigned count = 0;

    ck_assert_ptr_nonnull(directory);
    while ((entry = readdir(directory)) != NULL) {
        struct stat found;

        if (one_ends_with(entry->d_name, ".sst") &&
            fstatat(dirfd(directory), entry->d_name, &found, 0) == 0)
            count += found.st_nlink == names;
    }
    closedir(directory);
    return count;
}

START_TEST(a_checkpoint_is_a_store_of_its_own_that_shares_the_bytes_of_tables)
{
    struct one_listing listing;

    check_ok(tamis_flush(one.db, &one.err), one.err);
    check_ok(tamis_wait_idle(one.db, &one.err), one.err); // no compaction takes a name away meanwhile
    check_ok(tamis_checkpoint(one.db, copy_path, &one.err), one.err);
    listing = one_list(copy_path);
    ck_assert_uint_ge(listing.table_count, 2);
    ck_assert_uint_eq(listing.log_count, 0);
    ck_assert_uint_eq(listing.manifest_count, 1);
    ck_assert_uint_eq(listing.other_count, 0);
    ck_assert_uint_eq(tables_with_names(copy_path, 2), listing.table_count);
    open_copy();
    check_versions(copy, 2, 1);
    check_ok(tamis_put(copy, NULL, tamis_text("of the copy"), tamis_text("v"), &one.err), one.err);
    for (unsigned i = 0; i < KEYS; i++)
        one_put_number(i, 3, VALUE_BYTES);
    one_compact();
    check_versions(copy, 2, 1);
    check_versions(one.db, 3, 3);
    check_ok(tamis_compact_range(copy, NULL, NULL, &one.err), one.err);
    check_versions(copy, 2, 1);
    check_versions(one.db, 3, 3);
    ck_assert_uint_eq(one_count_keys(), KEYS);
    close_copy();
    one_store_close();
    check_ok(tamis_destroy(one.path, NULL, &one.err), one.err);
    open_copy();
    check_versions(copy, 2, 1);
    one_store_open();
}
END_TEST

START_TEST(a_checkpoint_of_an_empty_store_and_one_of_a_checkpoint_open_too)
{
    char *second = temp_dir_path(one.scratch, "second");
    char *empty = temp_dir_path(one.scratch, "empty");
    tamis_options options = one.options;
    tamis_db *db = NULL;

    check_ok(tamis_checkpoint(one.db, copy_path, &one.err), one.err);
    open_copy();
    check_ok(tamis_checkpoint(copy, second, &one.err), one.err);
    check_ok(tamis_open(second, &options, &db, &one.err), one.err);
    check_versions(db, 2, 1);
    check_ok(tamis_close(db, &one.err), one.err);
    check_ok(tamis_destroy(second, NULL, &one.err), one.err);
    check_ok(tamis_open(empty, &options, &db, &one.err), one.err);
    check_ok(tamis_checkpoint(db, second, &one.err), one.err);
    check_ok(tamis_close(db, &one.err), one.err);
    options.create_if_missing = false;
    check_ok(tamis_open(second, &options, &db, &one.err), one.err);
    check_ok(tamis_put(db, NULL, tamis_text("k"), tamis_text("v"), &one.err), one.err);
    check_ok(tamis_close(db, &one.err), one.err);
    free(empty);
    free(second);
}
END_TEST

START_TEST(only_a_missing_or_empty_directory_is_a_target)
{
    char *file = temp_dir_path(one.scratch, "file");
    char *full = temp_dir_path(one.scratch, "full");
    char *note = temp_dir_path(full, "notes.txt");
    char *orphan = temp_dir_path(one.scratch, "no/parent");
    FILE *made;
    uint64_t before;

    ck_assert_int_eq(mkdir(full, 0755), 0);
    ck_assert((made = fopen(note, "w")) != NULL && fclose(made) == 0);
    ck_assert((made = fopen(file, "w")) != NULL && fclose(made) == 0);
    before = one_list(full).digest;
    check_status(tamis_checkpoint(one.db, full, &one.err), TAMIS_INVALID, one.err);
    ck_assert_ptr_nonnull(strstr(one.err.message, "missing or empty"));
    ck_assert_uint_eq(one_list(full).digest, before);
    check_status(tamis_checkpoint(one.db, file, &one.err), TAMIS_INVALID, one.err);
    check_status(tamis_checkpoint(one.db, one.path, &one.err), TAMIS_INVALID, one.err);
    check_status(tamis_checkpoint(one.db, orphan, &one.err), TAMIS_IO, one.err);
    check_status(tamis_checkpoint(one.db, "", &one.err), TAMIS_INVALID, one.err);
    check_status(tamis_checkpoint(one.db, NULL, &one.err), TAMIS_INVALID, one.err);
    ck_assert_int_eq(mkdir(copy_path, 0755), 0);
    check_ok(tamis_checkpoint(one.db, copy_path, &one.err), one.err);
    check_status(tamis_checkpoint(one.db, copy_path, &one.err), TAMIS_INVALID, one.err);
    open_copy();
    check_versions(copy, 2, 1);
    check_versions(one.db, 2, 1);
    free(orphan);
    free(note);
    free(full);
    free(file);
}
END_TEST

START_TEST(a_reader_makes_no_checkpoint)
{
    tamis_options options;

    tamis_options_init(&options);
    options.read_only = true;
    check_ok(tamis_open(one.path, &options, &copy, &one.err), one.err);
    check_status(tamis_checkpoint(copy, copy_path, &one.err), TAMIS_READ_ONLY, one.err);
    ck_assert_int_ne(access(copy_path, F_OK), 0);
}
END_TEST

START_TEST(on_another_file_system_the_tables_are_copied)
{
    char *elsewhere = temp_dir_make_under("/dev/shm");
    struct stat here;
    struct stat there;

    if (elsewhere == NULL || stat(one.scratch, &here) != 0 || stat(elsewhere, &there) != 0 ||
        here.st_dev == there.st_dev) {
        fprintf(stderr, "SKIPPED: there is no second file system\n");
    } else {
        free(copy_path);
        copy_path = temp_dir_path(elsewhere, COPY);
        check_ok(tamis_checkpoint(one.db, copy_path, &one.err), one.err);
        ck_assert_uint_eq(tables_with_names(copy_path, 1), one_list(copy_path).table_count);
        open_copy();
        check_versions(copy, 2, 1);
        close_copy();
    }
    temp_dir_remove(elsewhere);
}
END_TEST

/* ---- On a simulated one ----------------------------------------------------------------------------- */

static struct world *world;
static tamis_db *source;
static tamis_error err;

static tamis_status
open_at(const char *path, bool create, tamis_db **db_out)
{
    tamis_options options = oracle_options(world);

    options.create_if_missing = create;
    return tm_open(path, &options, world->env.runtime, db_out, &err);
}

static void
put_world_number(tamis_db *db, unsigned number)
{
    char bytes[1500];
    char key[24];

    memset(bytes, 'a' + (int)(number % 26), sizeof bytes);
    snprintf(key, sizeof key, "%06u", number);
    check_ok(tamis_put(db, NULL, tamis_text(key), tm_slice(bytes, sizeof bytes), &err), err);
}

/* Keys 1, 2, ... without a gap; how many. */
static unsigned
count_numbers(tamis_db *db)
{
    tamis_iter *iter = NULL;
    unsigned count = 0;
    char key[24];

    check_ok(tamis_iter_open(db, NULL, &iter, &err), err);
    for (tamis_iter_first(iter); tamis_iter_valid(iter); tamis_iter_next(iter)) {
        snprintf(key, sizeof key, "%06u", ++count);
        ck_assert(tm_slice_equal(tamis_iter_key(iter), tamis_text(key)));
        ck_assert_int_eq(*(const char *)tamis_iter_value(iter).data, 'a' + (int)(count % 26));
    }
    check_ok(tamis_iter_status(iter, &err), err);
    tamis_iter_close(iter);
    return count;
}

enum { NUMBERS = 150 }; // several tables

/* A store of NUMBERS keys at rest, open. With `os_error` links fail so. */
static void
begin_world(uint64_t seed, int os_error)
{
    world = world_create(seed, WORLD_BATON);
    check_ok(open_at(ORACLE_DIR, true, &source), err);
    for (unsigned i = 1; i <= NUMBERS; i++)
        put_world_number(source, i);
    check_ok(tamis_flush(source, &err), err);
    check_ok(tamis_wait_idle(source, &err), err);
    if (os_error != 0)
        (void)sim_fault_add(world->sim, (struct sim_fault){.op = SIM_LINK,
                                                           .nth = 1,
                                                           .effect = SIM_ERROR,
                                                           .os_error = os_error,
                                                           .sticky = true});
}

static void
end_world(void)
{
    check_ok(tamis_close(source, &err), err);
    source = NULL;
    world_destroy(world);
}

static void
check_copy(unsigned least)
{
    tamis_db *db = NULL;

    check_ok(open_at(COPY, false, &db), err);
    ck_assert_uint_ge(count_numbers(db), least);
    check_ok(tamis_verify(db, NULL, NULL, &err), err);
    check_ok(tamis_close(db, &err), err);
}

/* Calls that a checkpoint makes. */
static uint64_t
count_calls(int os_error)
{
    uint64_t calls;

    begin_world(1, os_error);
    calls = sim_call_count(world->sim);
    check_ok(tamis_checkpoint(source, COPY, &err), err);
    calls = sim_call_count(world->sim) - calls;
    check_copy(NUMBERS);
    if (os_error != 0)
        ck_assert_uint_gt(sim_fault_fired(world->sim, 0), 1);
    end_world();
    return calls;
}

static const int ways[] = {0, EXDEV, EPERM, EMLINK};

START_TEST(where_links_are_refused_the_tables_are_copied)
{
    uint64_t linked = count_calls(0);

    for (size_t i = 1; i < sizeof ways / sizeof ways[0]; i++)
        ck_assert_uint_gt(count_calls(ways[i]), linked);
}
END_TEST

static void
count_name(void *arg, const char *name)
{
    (void)name;
    ++*(unsigned *)arg;
}

static void
expect_nothing_left(const char *what, uint64_t call)
{
    unsigned names = 0;

    sim_file_each(world->sim, COPY, count_name, &names);
    ck_assert_msg(names == 0, "%s %" PRIu64 ": %u files are left", what, call, names);
    ck_assert_msg(!sim_dir_exists(world->sim, COPY), "%s %" PRIu64 ": the directory is left", what,
                  call);
}

START_TEST(a_call_that_fails_leaves_nothing_and_the_store_goes_on)
{
    int os_error = ways[_i];
    uint64_t calls = count_calls(os_error);
    uint64_t failed = 0;

    for (uint64_t n = 1; n <= calls; n++) {
        tamis_status status;
        size_t rule;

        begin_world(1, os_error);
        rule = sim_fault_add(
            world->sim,
            (struct sim_fault){.op = SIM_OP_ANY, .nth = n, .effect = SIM_ERROR, .os_error = EIO});
        status = tamis_checkpoint(source, COPY, &err);
        // A call that the rule for links answers first is passed over.
        ck_assert(sim_fault_fired(world->sim, rule) == 1 || os_error != 0);
        ck_assert_msg(status == TAMIS_OK || status == TAMIS_IO, "call %" PRIu64 ": %s", n,
                      err.message);
        sim_fault_clear(world->sim);
        if (status == TAMIS_OK)
            check_copy(NUMBERS);
        else
            expect_nothing_left("call", n);
        failed += status != TAMIS_OK;
        put_world_number(source, NUMBERS + 1);
        ck_assert_uint_eq(count_numbers(source), NUMBERS + 1);
        if (status != TAMIS_OK) {
            check_ok(tamis_checkpoint(source, COPY, &err), err);
            check_copy(NUMBERS + 1);
        }
        end_world();
    }
    printf("links %s: %" PRIu64 " of %" PRIu64 " calls told\n", os_error == 0 ? "work" : "fail",
           failed, calls);
    ck_assert_uint_gt(failed, calls / 2);
}
END_TEST

START_TEST(an_allocation_that_fails_leaves_nothing)
{
    uint64_t calls;

    begin_world(1, ways[_i]);
    calls = atomic_load(&world->alloc.call_count);
    check_ok(tamis_checkpoint(source, COPY, &err), err);
    calls = atomic_load(&world->alloc.call_count) - calls;
    end_world();
    for (uint64_t n = 1; n <= calls; n++) {
        uint64_t live;
        tamis_status status;

        begin_world(1, ways[_i]);
        live = atomic_load(&world->alloc.live_count);
        fault_alloc_fail_after(&world->alloc, n, false);
        status = tamis_checkpoint(source, COPY, &err);
        ck_assert_uint_eq(atomic_load(&world->alloc.failure_count), 1);
        ck_assert_uint_eq(atomic_load(&world->alloc.live_count), live);
        ck_assert(status == TAMIS_OK || status == TAMIS_NO_MEMORY);
        if (status == TAMIS_OK)
            check_copy(NUMBERS);
        else
            expect_nothing_left("allocation", n);
        end_world();
    }
}
END_TEST

/* After a crash: the source is whole; the copy is whole, refused, or not there. */
static void
judge_crash(const char *what, bool acknowledged, unsigned counts[3])
{
    tamis_db *db = NULL;
    tamis_status status;

    check_ok(open_at(ORACLE_DIR, false, &db), err);
    ck_assert_msg(count_numbers(db) == NUMBERS, "%s: the source is not whole", what);
    check_ok(tamis_verify(db, NULL, NULL, &err), err);
    check_ok(tamis_close(db, &err), err);
    status = open_at(COPY, false, &db);
    ck_assert_msg(status == TAMIS_OK || status == TAMIS_NOT_FOUND || status == TAMIS_CORRUPT,
                  "%s: %s: %s", what, tamis_status_name(status), err.message);
    ck_assert_msg(!acknowledged || status == TAMIS_OK, "%s: an acknowledged copy: %s", what,
                  err.message);
    counts[status == TAMIS_OK ? 0 : status == TAMIS_NOT_FOUND ? 1 : 2]++;
    if (status != TAMIS_OK) {
        ck_assert_msg(status == TAMIS_NOT_FOUND ||
                          strstr(err.message, "CURRENT is missing") != NULL,
                      "%s: %s", what, err.message);
        return;
    }
    ck_assert_msg(count_numbers(db) == NUMBERS, "%s: the copy is not whole", what);
    check_ok(tamis_verify(db, NULL, NULL, &err), err);
    check_ok(tamis_close(db, &err), err);
}

START_TEST(a_power_cut_at_any_call_leaves_the_source_whole_and_the_copy_whole_or_refused)
{
    int os_error = ways[_i];
    uint64_t calls = count_calls(os_error);
    unsigned counts[3] = {0};

    for (uint64_t n = 1; n <= calls + 1;
         n += oracle_stride() / 4 + 1) // few calls: a smaller step will do
        for (int policy = 0; policy < SIM_POLICY_COUNT; policy++) {
            tamis_status status;
            char what[80];
            bool acknowledged;

            snprintf(what, sizeof what, "call %u of %u, %s", (unsigned)n, (unsigned)calls,
                     sim_policy_name((enum sim_policy)policy));
            begin_world(1, os_error);
            sim_stop_at(world->sim, sim_call_count(world->sim) + n);
            status = tamis_checkpoint(source, COPY, &err);
            acknowledged = status == TAMIS_OK && !sim_stopped(world->sim);
            ck_assert(acknowledged == (n > calls));
            sim_stop_at(world->sim, sim_call_count(world->sim) + 1);
            (void)tamis_close(source, NULL);
            source = NULL;
            world_crash(world, (enum sim_policy)policy, n);
            judge_crash(what, acknowledged, counts);
            world_destroy(world);
        }
    printf("links %s: %u copies whole, %u absent, %u refused\n", os_error == 0 ? "work" : "fail",
           counts[0], counts[1], counts[2]);
    ck_assert(counts[0] > 0 && counts[1] > 0 && counts[2] > 0);
}
END_TEST

/* ---- Beside a writer ------------------------------------------------------------------------------ */

static _Atomic unsigned acked;

static void
write_numbers(void *arg)
{
    struct rng rng = rng_from(*(const uint64_t *)arg);

    for (unsigned i = 1; i <= NUMBERS; i++) {
        put_world_number(source, i);
        atomic_store(&acked, i);
        if (rng_chance(&rng, 1, 50))
            check_ok(tamis_compact_range(source, NULL, NULL, &err), err);
    }
}

START_TEST(a_checkpoint_beside_a_writer_holds_what_was_written_before_and_no_gap)
{
    uint64_t first = rng_seed("schedules", 11);
    unsigned made = 0;

    for (uint64_t seed = first; seed < first + oracle_scaled(40); seed++) {
        const struct tm_runtime *runtime;
        struct tm_thread writer;
        tamis_options options;
        unsigned least = 0;

        world = world_create(seed, WORLD_BATON | WORLD_MAP_LOGS);
        runtime = world->env.runtime;
        options = oracle_options(world);
        check_ok(open_at(ORACLE_DIR, true, &source), err);
        atomic_store(&acked, 0);
        ck_assert_int_eq(runtime->thread_start(runtime->ctx, &writer, write_numbers, &seed), 0);
        while (least < NUMBERS) {
            tamis_error failure = {0};

            least = atomic_load(&acked);
            check_ok(tamis_checkpoint(source, COPY, &failure), failure);
            check_copy(least);
            check_ok(tamis_destroy(COPY, &options, &failure), failure);
            made++;
        }
        runtime->thread_join(runtime->ctx, &writer);
        end_world();
    }
    printf("beside a writer: %u checkpoints\n", made);
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("checkpoint");
    TCase *real = tcase_create("real");
    TCase *simulated = tcase_create("simulated");

    tcase_set_timeout(real, 0);
    tcase_add_checked_fixture(real, setup, teardown);
    tcase_add_test(real, a_checkpoint_is_a_store_of_its_own_that_shares_the_bytes_of_tables);
    tcase_add_test(real, a_checkpoint_of_an_empty_store_and_one_of_a_checkpoint_open_too);
    tcase_add_test(real, only_a_missing_or_empty_directory_is_a_target);
    tcase_add_test(real, a_reader_makes_no_checkpoint);
    tcase_add_test(real, on_another_file_system_the_tables_are_copied);
    suite_add_tcase(suite, real);
    tcase_set_timeout(simulated, 0);
    tcase_add_test(simulated, where_links_are_refused_the_tables_are_copied);
    tcase_add_loop_test(simulated, a_call_that_fails_leaves_nothing_and_the_store_goes_on, 0, 2);
    tcase_add_loop_test(simulated, an_allocation_that_fails_leaves_nothing, 0, 2);
    tcase_add_loop_test(
        simulated, a_power_cut_at_any_call_leaves_the_source_whole_and_the_copy_whole_or_refused, 0,
        2);
    tcase_add_test(simulated,
                   a_checkpoint_beside_a_writer_holds_what_was_written_before_and_no_gap);
    suite_add_tcase(suite, simulated);
    return check_run(suite);
}
