/* SPDX-License-Identifier: MIT
 *
 * tests/engine/test_readers_beside.c -- readers open and refresh while a writer writes, flushes, compacts, closes and opens again:
 * on the simulated machine with threads that take turns, with free threads, and in another process.
 *
 *   write n     one batch: "count" = n, key n % SLOTS = n and some bytes          acked: the last n that was answered
 *   a reader    shows count = c and in each slot the last n <= c that belongs there; c >= acked before it opened or refreshed,
 *               and never less than it showed before; no call of it fails
 */
#include <errno.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/engine/store_oracle.h"
#include "tests/support/temp_dir.h"

enum {
    SLOTS = 24,
    VALUE_BYTES_MAX = 6000,
    READERS = 2,
};

/* What the threads, or processes, of one run share. */
struct run {
    tamis_options options; // of the writer
    const struct tm_runtime *runtime;
    const char *path;
    struct sim *sim; // NULL: a real machine
    uint64_t seed;
    uint64_t writes;
    bool clean; // the writer may close and open
    _Atomic uint64_t acked;
    _Atomic uint64_t synced;
    _Atomic uint64_t refreshes; // that worked
    tamis_db *shared;           // a reader that two threads use, or NULL
    _Atomic bool done;
};

static bool
stopped(const struct run *run)
{
    return run->sim != NULL && sim_stopped(run->sim);
}

/* False: the machine stopped, and what it says means nothing. */
static bool
worked(const struct run *run, const char *call, tamis_status status, const tamis_error *err)
{
    if (stopped(run))
        return false;
    ck_assert_msg(status == TAMIS_OK, "%s gives %s: %s (%s)", call, tamis_status_name(status),
                  err->message, err->where);
    return true;
}

/* ---- The writer ----------------------------------------------------------------------------------- */

static bool
write_one(struct run *run, tamis_db *db, struct rng *rng, uint64_t number)
{
    static _Thread_local uint64_t value[VALUE_BYTES_MAX / sizeof(uint64_t)];
    tamis_write_options options;
    tamis_batch *batch = NULL;
    tamis_error err = {0};
    tamis_status status;
    char key[24];

    tamis_write_options_init(&options);
    options.sync = rng_chance(rng, 1, 10);
    rng_fill(rng, value, sizeof value);
    value[0] = number;
    check_ok(tamis_batch_create(NULL, &batch, &err), err);
    check_ok(tamis_batch_put(batch, tamis_text("count"), tm_slice(value, sizeof *value), &err),
             err);
    check_ok(tamis_batch_put(
                 batch, tamis_text(oracle_key(number % SLOTS, key)),
                 tm_slice(value, sizeof *value + rng_below(rng, sizeof value - sizeof *value)),
                 &err),
             err);
    status = tamis_write(db, &options, batch, &err);
    tamis_batch_destroy(batch);
    if (!worked(run, "write", status, &err))
        return false;
    atomic_store(&run->acked, number);
    if (options.sync)
        atomic_store(&run->synced, number);
    return true;
}

static bool
maintain(struct run *run, tamis_db **db, struct rng *rng)
{
    uint64_t what = rng_below(rng, 120);
    tamis_error err = {0};
    tamis_status status;

    if (what == 0)
        return worked(run, "flush", tamis_flush(*db, &err), &err);
    if (what == 1)
        return worked(run, "compact_range", tamis_compact_range(*db, NULL, NULL, &err), &err);
    if (what == 2 && run->clean) {
        status = tamis_close(*db, &err);
        *db = NULL;
        return worked(run, "close", status, &err) &&
               worked(run, "open", tm_open(run->path, &run->options, run->runtime, db, &err), &err);
    }
    return true;
}

static void
write_all(void *arg)
{
    struct run *run = arg;
    struct rng rng = rng_from(run->seed);
    tamis_error err = {0};
    tamis_db *db = NULL;
    bool goes_on =
        worked(run, "open", tm_open(run->path, &run->options, run->runtime, &db, &err), &err);

    for (uint64_t n = atomic_load(&run->acked) + 1; goes_on && n <= run->writes; n++)
        goes_on = write_one(run, db, &rng, n) && maintain(run, &db, &rng);
    if (db != NULL)
        (void)worked(run, "close", tamis_close(db, &err), &err);
    atomic_store(&run->done, true);
}

/* ---- A reader ------------------------------------------------------------------------------------- */

/* The number in the value of `key`; 0 when it is not there. */
static uint64_t
number_at(const struct run *run, tamis_db *db, const tamis_snapshot *snapshot, const char *key)
{
    tamis_read_options options;
    uint64_t number = 0;
    size_t length;
    tamis_error err = {0};
    tamis_status status;

    tamis_read_options_init(&options);
    options.snapshot = snapshot;
    status = tamis_get(db, &options, tamis_text(key), &number, sizeof number, &length, &err);
    if (status != TAMIS_NOT_FOUND)
        (void)worked(run, "get", status, &err);
    return status == TAMIS_OK ? number : 0;
}

/* What the reader shows is the state after some write; which one. */
static uint64_t
check_state(const struct run *run, tamis_db *db)
{
    tamis_snapshot *snapshot = NULL;
    tamis_error err = {0};
    uint64_t count;
    char key[24];

    check_ok(tamis_snapshot_take(db, &snapshot, &err), err);
    count = number_at(run, db, snapshot, "count");
    for (uint64_t slot = 0; slot < SLOTS; slot++) {
        uint64_t expected = count >= slot ? count - (count - slot) % SLOTS : 0;
        uint64_t found = number_at(run, db, snapshot, oracle_key(slot, key));

        ck_assert_msg(stopped(run) || found == expected,
                      "seed %" PRIu64 ": after write %" PRIu64 " key %s should hold %" PRIu64
                      ", found %" PRIu64,
                      run->seed, count, key, expected, found);
    }
    tamis_snapshot_release(db, snapshot);
    return count;
}

static tamis_status
open_reader(const struct run *run, tamis_db **db_out, tamis_error *err)
{
    tamis_options options = run->options;

    options.read_only = true;
    options.create_if_missing = false;
    options.max_open_files = 2;
    options.block_cache_bytes = 0;
    return tm_open(run->path, &options, run->runtime, db_out, err);
}

static void
read_all(void *arg)
{
    struct run *run = arg;
    struct rng rng = rng_from(run->seed ^ 77);
    tamis_db *db = NULL;
    tamis_error err = {0};
    uint64_t shown = 0;
    bool last_round = false;

    while (!last_round && !stopped(run)) {
        uint64_t least;
        uint64_t count;

        last_round = atomic_load(&run->done);
        least = atomic_load(&run->acked);
        if (db != NULL && rng_chance(&rng, 1, 4)) {
            check_ok(tamis_close(db, &err), err);
            db = NULL;
        }
        if (!worked(run, db == NULL ? "open a reader" : "refresh",
                    db == NULL ? open_reader(run, &db, &err) : tamis_refresh(db, &err), &err))
            break;
        count = check_state(run, db);
        if (stopped(run))
            break;
        ck_assert_msg(count >= least && count >= shown,
                      "seed %" PRIu64 ": shows %" PRIu64 " writes after %" PRIu64
                      " were answered and %" PRIu64 " shown",
                      run->seed, count, least, shown);
        shown = count;
        atomic_fetch_add(&run->refreshes, 1);
    }
    check_ok(tamis_close(db, &err), err);
}

/* ---- Runs ----------------------------------------------------------------------------------------- */

static void
create_store(struct run *run)
{
    tamis_db *db = NULL;
    tamis_error err = {0};

    check_ok(tm_open(run->path, &run->options, run->runtime, &db, &err), err);
    check_ok(tamis_close(db, &err), err);
}

static void
run_threads(struct run *run)
{
    const struct tm_runtime *runtime = run->runtime;
    struct tm_thread writer;
    struct tm_thread readers[READERS];

    ck_assert_int_eq(runtime->thread_start(runtime->ctx, &writer, write_all, run), 0);
    for (int i = 0; i < READERS; i++)
        ck_assert_int_eq(runtime->thread_start(runtime->ctx, &readers[i], read_all, run), 0);
    for (int i = 0; i < READERS; i++)
        runtime->thread_join(runtime->ctx, &readers[i]);
    runtime->thread_join(runtime->ctx, &writer);
}

static void
prepare(struct run *run, struct world *world, uint64_t seed, uint64_t writes)
{
    memset(run, 0, sizeof *run);
    run->options = oracle_options(world);
    run->runtime = world->env.runtime;
    run->path = ORACLE_DIR;
    run->sim = world->sim;
    run->seed = seed;
    run->writes = writes;
    run->clean = true;
    create_store(run);
}

static void
count_name(void *arg, const char *name)
{
    unsigned *count = arg;

    *count += strcmp(name, "LOCK") != 0 && strcmp(name, "CURRENT") != 0;
}

START_TEST(whatever_the_schedule_a_reader_shows_a_moment_of_the_writer)
{
    uint64_t first = rng_seed("schedules", 1);
    uint64_t refreshes = 0;

    for (uint64_t i = 0; i < oracle_scaled(150); i++) {
        struct world *world =
            world_create(first + i, WORLD_BATON | (i % 2 == 0 ? WORLD_MAP_LOGS : 0));
        struct run run;
        tamis_db *db = NULL;
        tamis_stats stats;
        tamis_error err = {0};
        unsigned names = 0;

        prepare(&run, world, first + i, 200);
        run_threads(&run);
        refreshes += atomic_load(&run.refreshes);
        check_ok(tm_open(run.path, &run.options, run.runtime, &db, &err), err);
        ck_assert_uint_eq(check_state(&run, db), run.writes);
        check_ok(tamis_wait_idle(db, &err), err);
        tamis_stats_init(&stats);
        check_ok(tamis_get_stats(db, &stats, &err), err);
        ck_assert_uint_eq(stats.reader_files_kept, 0);
        sim_file_each(world->sim, ORACLE_DIR, count_name, &names);
        ck_assert_uint_eq(names, stats.total.file_count + 2); // a log, a manifest
        check_ok(tamis_close(db, &err), err);
        world_destroy(world);
    }
    printf("schedules: %" PRIu64 " states compared\n", refreshes);
    ck_assert_uint_gt(refreshes, 0);
}
END_TEST

static void
refresh_shared(void *arg)
{
    struct run *run = arg;
    tamis_error err = {0};

    while (!atomic_load(&run->done))
        check_ok(tamis_refresh(run->shared, &err), err);
}

static void
read_shared(void *arg)
{
    struct run *run = arg;
    uint64_t shown = 0;

    while (!atomic_load(&run->done)) {
        uint64_t count = check_state(run, run->shared);

        ck_assert_uint_ge(count, shown);
        shown = count;
        atomic_fetch_add(&run->refreshes, 1);
    }
}

START_TEST(reads_beside_a_refresh_of_their_handle_show_one_moment_each)
{
    uint64_t first = rng_seed("shared", 2000);
    uint64_t states = 0;

    for (uint64_t i = 0; i < oracle_scaled(60); i++) {
        void (*const bodies[])(void *arg) = {write_all, refresh_shared, read_shared};
        struct world *world = world_create(first + i, WORLD_BATON);
        const struct tm_runtime *runtime = world->env.runtime;
        struct tm_thread threads[3];
        struct run run;
        tamis_error err = {0};

        prepare(&run, world, first + i, 150);
        check_ok(open_reader(&run, &run.shared, &err), err);
        for (int at = 0; at < 3; at++)
            ck_assert_int_eq(runtime->thread_start(runtime->ctx, &threads[at], bodies[at], &run),
                             0);
        for (int at = 0; at < 3; at++)
            runtime->thread_join(runtime->ctx, &threads[at]);
        states += atomic_load(&run.refreshes);
        check_ok(tamis_close(run.shared, &err), err);
        world_destroy(world);
    }
    printf("shared: %" PRIu64 " states compared\n", states);
    ck_assert_uint_gt(states, 0);
}
END_TEST

START_TEST(a_power_cut_beside_readers_takes_nothing_that_was_synced)
{
    uint64_t first = rng_seed("power cuts", 1000);
    unsigned cuts = 0;

    for (uint64_t i = 0; i < oracle_scaled(160); i++) {
        struct world *world =
            world_create(first + i, WORLD_BATON | (i % 2 == 0 ? WORLD_MAP_LOGS : 0));
        enum sim_policy policy = (enum sim_policy)(i % SIM_POLICY_COUNT);
        struct rng rng = rng_from(first + i);
        struct run run;
        tamis_db *db = NULL;
        tamis_error err = {0};

        prepare(&run, world, first + i, 120);
        sim_stop_at(world->sim, sim_call_count(world->sim) + 1 + rng_below(&rng, 3000));
        run_threads(&run);
        if (sim_stopped(world->sim)) {
            uint64_t least = policy == SIM_P1_ALL || policy == SIM_P7_UNLINK_UNDONE
                                 ? atomic_load(&run.acked)
                                 : atomic_load(&run.synced);

            cuts++;
            world_crash(world, policy, first + i);
            run.sim = world->sim;
            run.options = oracle_options(world);
            check_ok(open_reader(&run, &db, &err), err);
            ck_assert_uint_ge(check_state(&run, db), least);
            check_ok(tamis_close(db, &err), err);
            check_ok(tm_open(run.path, &run.options, run.runtime, &db, &err), err);
            ck_assert_uint_ge(check_state(&run, db), least);
            check_ok(tamis_close(db, &err), err);
        }
        world_destroy(world);
    }
    printf("power cuts: %u\n", cuts);
    ck_assert_uint_gt(cuts, 0);
}
END_TEST

START_TEST(free_threads_show_moments_too)
{
    struct world *world = world_create(3, WORLD_MAP_LOGS);
    struct run run;

    prepare(&run, world, rng_seed("free threads", 3), oracle_scaled(8000));
    run_threads(&run);
    printf("free threads: %" PRIu64 " states compared\n", atomic_load(&run.refreshes));
    ck_assert_uint_gt(atomic_load(&run.refreshes), 0);
    world_destroy(world);
}
END_TEST

/* The readers' process: forked before the threads of a writer are there. */
static pid_t
start_reading_process(struct run *run)
{
    pid_t process;

    fflush(NULL);
    process = fork();
    ck_assert_int_ge(process, 0);
    if (process == 0) {
        read_all(run);
        _exit(EXIT_SUCCESS);
    }
    return process;
}

START_TEST(readers_in_another_process_show_moments_of_a_busy_writer)
{
    char *scratch = temp_dir_make();
    char *path = temp_dir_path(scratch, "db");
    struct run *run =
        mmap(NULL, sizeof *run, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t processes[READERS];

    ck_assert(run != MAP_FAILED);
    tamis_options_init(&run->options);
    run->options.create_if_missing = true;
    run->options.write_buffer_bytes = 64 << 10;
    run->runtime = tm_runtime_posix();
    run->path = path;
    run->seed = rng_seed("processes", 4);
    run->writes = oracle_scaled(8000);
    run->clean = true;
    create_store(run);
    for (int i = 0; i < READERS; i++)
        processes[i] = start_reading_process(run);
    write_all(run);
    for (int i = 0; i < READERS; i++) {
        int state = 0;

        ck_assert_int_eq(waitpid(processes[i], &state, 0), processes[i]);
        ck_assert_msg(state == 0, "reader %d ended with state %#x", i, (unsigned)state);
    }
    printf("processes: %" PRIu64 " states compared\n", atomic_load(&run->refreshes));
    ck_assert_uint_gt(atomic_load(&run->refreshes), 0);
    munmap(run, sizeof *run);
    free(path);
    temp_dir_remove(scratch);
}
END_TEST

/* ---- Failures ------------------------------------------------------------------------------------- */

/* A store with tables, logs and a writer that is open; what the reader must show. */
static tamis_db *
open_filled(struct run *run, struct world *world)
{
    tamis_db *db = NULL;
    struct rng rng = rng_from(5);
    tamis_error err = {0};

    prepare(run, world, 5, 60);
    check_ok(tm_open(run->path, &run->options, run->runtime, &db, &err), err);
    for (uint64_t n = 1; n <= run->writes; n++)
        ck_assert(write_one(run, db, &rng, n));
    check_ok(tamis_wait_idle(db, &err), err);
    return db;
}

/* Open a reader, refresh, close; the first failure. */
static tamis_status
open_and_refresh(const struct run *run, tamis_error *err)
{
    tamis_db *db = NULL;
    tamis_status status = open_reader(run, &db, err);

    if (status != TAMIS_OK)
        return status;
    status = tamis_refresh(db, err);
    check_ok(tamis_close(db, err), *err);
    return status;
}

START_TEST(every_call_of_a_reader_may_fail_and_the_next_try_works)
{
    struct world *world = world_create(5, WORLD_BATON);
    struct run run;
    tamis_db *writer = open_filled(&run, world);
    tamis_error err = {0};
    uint64_t calls = sim_call_count(world->sim);
    uint64_t failed = 0;

    check_ok(open_and_refresh(&run, &err), err);
    calls = sim_call_count(world->sim) - calls;
    for (uint64_t n = 1; n <= calls; n++) {
        size_t rule = sim_fault_add(
            world->sim,
            (struct sim_fault){.op = SIM_OP_ANY, .nth = n, .effect = SIM_ERROR, .os_error = EIO});
        tamis_db *db = NULL;
        tamis_status status = open_and_refresh(&run, &err);

        ck_assert_uint_eq(sim_fault_fired(world->sim, rule), 1);
        ck_assert_msg(status == TAMIS_OK || status == TAMIS_IO, "call %" PRIu64 ": %s: %s", n,
                      tamis_status_name(status), err.message);
        failed += status != TAMIS_OK;
        sim_fault_clear(world->sim);
        check_ok(open_reader(&run, &db, &err), err);
        ck_assert_uint_eq(check_state(&run, db), run.writes);
        check_ok(tamis_close(db, &err), err);
    }
    printf("failures: %" PRIu64 " of %" PRIu64 " calls told\n", failed, calls);
    ck_assert_uint_gt(failed, calls / 2); // closing has nobody to tell
    check_ok(tamis_close(writer, &err), err);
    world_destroy(world);
}
END_TEST

START_TEST(a_full_medium_is_read_as_a_killed_writer_left_it)
{
    struct world *world = world_create(7, WORLD_BATON | WORLD_MAP_LOGS);
    struct run run;
    tamis_db *db = open_filled(&run, world);
    tamis_error err = {0};
    uint64_t used;

    sim_stop_at(world->sim, sim_call_count(world->sim) + 1);
    (void)tamis_close(db, NULL);
    world_restart(world);
    run.sim = world->sim;
    run.options = oracle_options(world);
    used = sim_space_used(world->sim);
    sim_set_space(world->sim, used);
    check_ok(open_reader(&run, &db, &err), err);
    ck_assert_uint_eq(check_state(&run, db), run.writes);
    check_ok(tamis_refresh(db, &err), err);
    check_ok(tamis_close(db, &err), err);
    ck_assert_uint_eq(sim_space_used(world->sim), used);
    sim_set_space(world->sim, 0);
    check_ok(tm_open(run.path, &run.options, run.runtime, &db, &err), err);
    ck_assert_uint_eq(check_state(&run, db), run.writes);
    check_ok(tamis_close(db, &err), err);
    world_destroy(world);
}
END_TEST

START_TEST(every_allocation_of_a_reader_may_fail_and_leaves_nothing)
{
    struct world *world = world_create(6, WORLD_BATON);
    struct run run;
    tamis_db *writer = open_filled(&run, world);
    tamis_error err = {0};
    uint64_t calls = atomic_load(&world->alloc.call_count);

    check_ok(open_and_refresh(&run, &err), err);
    calls = atomic_load(&world->alloc.call_count) - calls;
    for (uint64_t n = 1; n <= calls; n++) {
        uint64_t live = atomic_load(&world->alloc.live_count);
        uint64_t refused = atomic_load(&world->alloc.failure_count);
        tamis_status status;

        fault_alloc_fail_after(&world->alloc, n, false);
        status = open_and_refresh(&run, &err);
        fault_alloc_fail_after(&world->alloc, 0, false);
        ck_assert_uint_eq(atomic_load(&world->alloc.failure_count), refused + 1);
        ck_assert_msg(status == TAMIS_OK || status == TAMIS_NO_MEMORY,
                      "allocation %" PRIu64 ": %s: %s", n, tamis_status_name(status), err.message);
        ck_assert_uint_eq(atomic_load(&world->alloc.live_count), live);
    }
    check_ok(tamis_close(writer, &err), err);
    world_destroy(world);
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("readers_beside");
    TCase *tests = tcase_create("readers_beside");

    tcase_set_timeout(tests, 0);
    tcase_add_test(tests, whatever_the_schedule_a_reader_shows_a_moment_of_the_writer);
    tcase_add_test(tests, reads_beside_a_refresh_of_their_handle_show_one_moment_each);
    tcase_add_test(tests, a_power_cut_beside_readers_takes_nothing_that_was_synced);
    tcase_add_test(tests, free_threads_show_moments_too);
    tcase_add_test(tests, readers_in_another_process_show_moments_of_a_busy_writer);
    tcase_add_test(tests, every_call_of_a_reader_may_fail_and_the_next_try_works);
    tcase_add_test(tests, a_full_medium_is_read_as_a_killed_writer_left_it);
    tcase_add_test(tests, every_allocation_of_a_reader_may_fail_and_leaves_nothing);
    suite_add_tcase(suite, tests);
    return check_run(suite);
}
