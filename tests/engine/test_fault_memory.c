/* SPDX-License-Identifier: MIT
 *
 * tests/engine/test_fault_memory.c -- each allocation is refused, once and from then on (C8).
 *
 * Every call of the store is made again and again, its 1st, 2nd, 3rd ... allocation refused, until it asks for no more.
 * It answers OK or NO_MEMORY, changes nothing in the second case, leaks nothing, and works once there is memory again.
 */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "tests/engine/fault_workload.h"

enum {
    LIFE_STEPS = 60,
    LIFE_POINTS = 700, // of one life, refused once and from then on; some seconds
    TRIES_MAX =
        3, // of a call after memory came back: background work may have failed before, which is told once
    FILL_WRITES = 24, // more than a memtable holds
};

enum base {
    BASE_NONE,   // an empty machine
    BASE_CLOSED, // a store on three levels, cleanly closed
    BASE_KILLED, // the same, with two logs to replay
    BASE_COUNT,
};

static struct workload workload;
static struct sim *bases[BASE_COUNT];
static struct oracle_state base_states[BASE_COUNT];

static bool
answered(const char *call, tamis_status status, const tamis_error *err)
{
    return workload_answer(&workload, call, status, workload.tolerated, err);
}

/* ---- The calls ------------------------------------------------------------------------------------------- */

static void
act_open(void)
{
    tamis_error err = {0};

    if (workload.db == NULL)
        (void)answered("open", oracle_open(workload.world, &workload.db, &err), &err);
}

static void
act_put(void)
{
    workload_write(&workload, 1, false);
}

static void
act_put_sync(void)
{
    workload_write(&workload, 1, true);
}

static void
act_batch(void)
{
    workload_write(&workload, WORKLOAD_BATCH_MAX, false);
}

static void
act_fill(void)
{
    tamis_error err = {0};

    for (size_t i = 0; i < FILL_WRITES; i++)
        workload_write(&workload, 1, false);
    // So that the flush is refused something, too.
    (void)answered("wait_idle", tamis_wait_idle(workload.db, &err), &err);
}

static void
act_flush(void)
{
    tamis_error err = {0};

    (void)answered("flush", tamis_flush(workload.db, &err), &err);
}

static void
act_compact(void)
{
    tamis_error err = {0};

    (void)answered("compact_range", tamis_compact_range(workload.db, NULL, NULL, &err), &err);
}

static void
act_get(void)
{
    char buffer[64];
    char text[24];

    for (size_t key = 0; key < ORACLE_KEYS; key++) {
        tamis_error err = {0};
        size_t length = 0;
        bool exists = false;
        tamis_status status = tamis_get(workload.db, NULL, tamis_text(oracle_key(key, text)),
                                        buffer, sizeof buffer, &length, &err);

        if (status == TAMIS_NOT_FOUND)
            ck_assert(!workload.live.values[key].is_there);
        else if (answered("get", status, &err))
            ck_assert_uint_eq(length, workload.live.values[key].length);
        if (answered("exists", tamis_exists(workload.db, NULL, tamis_text(text), &exists, &err),
                     &err))
            ck_assert(exists == workload.live.values[key].is_there);
    }
}

static void
act_get_pinned(void)
{
    for (size_t key = 0; key < ORACLE_KEYS; key++)
        workload_check_get(&workload, key, NULL, &workload.live.values[key]);
}

static void
act_walk(void)
{
    tamis_slice lower = tamis_text("k000");
    tamis_slice upper = tamis_text("k999");
    tamis_iter_options options;
    tamis_error err = {0};
    tamis_iter *iter;

    tamis_iter_options_init(&options);
    options.lower = &lower;
    options.upper = &upper;
    if (!answered("iter_open", tamis_iter_open(workload.db, &options, &iter, &err), &err))
        return;
    workload_check_walk(&workload, iter, &workload.live);
    workload_check_walk(&workload, iter,
                        &workload.live); // again from the first, after a failure perhaps
    tamis_iter_close(iter);
}

static void
act_snapshot(void)
{
    workload_look_back(&workload);
    workload_write(&workload, 1, false);
    workload_look_back(&workload);
    workload_release_handles(&workload);
}

static void
act_stats(void)
{
    tamis_stats stats;
    tamis_error err = {0};

    tamis_stats_init(&stats);
    (void)answered("get_stats", tamis_get_stats(workload.db, &stats, &err), &err);
}

static void
act_verify(void)
{
    tamis_error err = {0};

    (void)answered("verify", tamis_verify(workload.db, NULL, NULL, &err), &err);
}

static void
act_close(void)
{
    tamis_error err = {0};

    if (workload.db == NULL)
        return;
    (void)answered("close", tamis_close(workload.db, &err), &err);
    workload.db = NULL;
}

/* ---- One refusal ----------------------------------------------------------------------------------------- */

struct scenario {
    const char *name;
    enum base base;
    bool opened; // before the call
    void (*act)(void);
};

static const struct scenario scenarios[] = {
    {"open a new store", BASE_NONE, false, act_open},
    {"open a closed store", BASE_CLOSED, false, act_open},
    {"open a store with logs to replay", BASE_KILLED, false, act_open},
    {"put or delete", BASE_CLOSED, true, act_put},
    {"put or delete with sync", BASE_CLOSED, true, act_put_sync},
    {"batch", BASE_CLOSED, true, act_batch},
    {"fill the memtable", BASE_CLOSED, true, act_fill},
    {"flush", BASE_CLOSED, true, act_flush},
    {"compact", BASE_KILLED, true, act_compact},
    {"get and exists", BASE_CLOSED, true, act_get},
    {"get_pinned", BASE_CLOSED, true, act_get_pinned},
    {"walk", BASE_CLOSED, true, act_walk},
    {"snapshot", BASE_CLOSED, true, act_snapshot},
    {"stats", BASE_CLOSED, true, act_stats},
    {"verify", BASE_CLOSED, true, act_verify},
    {"close", BASE_CLOSED, true, act_close},
};

enum { SCENARIO_COUNT = sizeof scenarios / sizeof scenarios[0] };

static void
tolerate(unsigned statuses)
{
    workload.tolerated = workload.reads_tolerated = statuses;
}

/* A world on a base, and the store open in it if the scenario wants that. */
static struct world *
set_up(const struct scenario *scenario, uint64_t seed)
{
    struct world *world = world_create(seed, WORLD_BATON | WORLD_MAP_LOGS);
    tamis_error err;

    if (bases[scenario->base] != NULL)
        world_take_sim(world, sim_clone(bases[scenario->base]));
    workload_init(&workload, world, seed);
    tolerate(0);
    workload.live = base_states[scenario->base];
    if (!scenario->opened)
        return world;
    check_ok(oracle_open(world, &workload.db, &err), err);
    for (size_t i = 0; i < 4; i++)
        workload_write(&workload, 2, false);
    check_ok(tamis_wait_idle(workload.db, &err), err);
    return world;
}

/* Memory is back: the call works, and whatever failed in the background before is told at most once a try. */
static void
check_works_again(const struct scenario *scenario)
{
    tamis_error err = {0};
    uint64_t failures = 1;

    for (int i = 0; i < TRIES_MAX && failures != 0; i++) {
        uint64_t before = workload.failures;

        tolerate(i + 1 < TRIES_MAX ? WORKLOAD_BIT(TAMIS_NO_MEMORY) : 0);
        scenario->act();
        failures = workload.failures - before;
    }
    tolerate(0);
    act_open();
    workload_check_all(&workload);
    act_put_sync();
    check_ok(tamis_compact_range(workload.db, NULL, NULL, &err), err);
    check_ok(tamis_close(workload.db, &err), err);
    check_ok(oracle_open(workload.world, &workload.db, &err), err);
    workload_check_all(&workload);
    act_close();
}

/* Refuse allocation `nth` of the call. False: it did not ask that often. */
static bool
refuse(const struct scenario *scenario, uint64_t nth, bool sticky, uint64_t seed)
{
    struct world *world = set_up(scenario, seed);
    bool refused;

    snprintf(workload_case, sizeof workload_case, "%s, allocation %" PRIu64 " refused %s",
             scenario->name, nth, sticky ? "and all after it" : "once");
    fault_alloc_fail_after(&world->alloc, nth, sticky);
    tolerate(WORKLOAD_BIT(TAMIS_NO_MEMORY));
    scenario->act();
    if (workload.db != NULL && sticky)
        workload_check_all(&workload);
    fault_alloc_fail_after(&world->alloc, 0, false);
    tolerate(0);
    refused = atomic_load(&world->alloc.failure_count) != 0;
    if (workload.db != NULL)
        workload_check_all(&workload);
    check_works_again(scenario);
    world_destroy(world);
    return refused;
}

/* ---- Bases ------------------------------------------------------------------------------------------------ */

static void
make_bases(uint64_t seed)
{
    struct world *world = world_create(seed, WORLD_BATON | WORLD_MAP_LOGS);
    tamis_error err;

    snprintf(workload_case, sizeof workload_case, "making the stores");
    workload_init(&workload, world, seed);
    workload_open(&workload);
    for (int round = 0; round < 2; round++) {
        act_fill();
        act_flush();
        act_compact();
    }
    act_fill();
    act_flush();
    for (size_t i = 0; i < 6; i++)
        act_put();
    check_ok(tamis_wait_idle(workload.db, &err), err);
    // In the middle of another memtable, with the log before it still there.
    act_fill();
    bases[BASE_KILLED] = sim_clone(world->sim);
    base_states[BASE_KILLED] = workload.live;
    workload_close(&workload);
    bases[BASE_CLOSED] = sim_clone(world->sim);
    base_states[BASE_CLOSED] = workload.live;
    world_destroy(world);
}

static void
free_bases(void)
{
    for (size_t i = 0; i < BASE_COUNT; i++) {
        sim_destroy(bases[i]);
        bases[i] = NULL;
    }
}

START_TEST(a_call_without_memory_changes_nothing_and_works_when_there_is_some)
{
    const struct scenario *scenario = &scenarios[_i];
    uint64_t seed =
        rng_seed("a_call_without_memory_changes_nothing_and_works_when_there_is_some", 1);
    struct rng rng = rng_from(seed);
    uint64_t stride = oracle_scaled(100) >= 100 ? 1 : 100 / oracle_scaled(100);
    uint64_t points[2] = {0, 0};

    make_bases(seed);
    for (int sticky = 0; sticky < 2; sticky++)
        for (uint64_t nth = 1 + rng_below(&rng, stride); refuse(scenario, nth, sticky != 0, seed);
             nth += stride)
            points[sticky]++;
    free_bases();
    printf("  %s: %" PRIu64 " points once, %" PRIu64 " from then on, every %" PRIu64 ".\n",
           scenario->name, points[0], points[1], stride);
    fflush(stdout);
}
END_TEST

/* ---- A life ------------------------------------------------------------------------------------------------ */

static uint64_t
count_allocations(uint64_t seed, unsigned flags)
{
    struct world *world = world_create(seed, flags);
    uint64_t count;

    workload_init(&workload, world, seed);
    workload_run(&workload, LIFE_STEPS);
    count = atomic_load(&world->alloc.call_count);
    workload_close(&workload);
    world_destroy(world);
    return count;
}

static void
refuse_in_life(uint64_t nth, bool sticky, uint64_t seed, unsigned flags)
{
    struct world *world = world_create(seed, flags);
    struct sim *killed;

    snprintf(workload_case, sizeof workload_case,
             "seed %" PRIu64 ", allocation %" PRIu64 " refused %s", seed, nth,
             sticky ? "and all after it" : "once");
    fault_alloc_fail_after(&world->alloc, nth, sticky);
    workload_init(&workload, world, seed);
    tolerate(WORKLOAD_BIT(TAMIS_NO_MEMORY));
    workload.once = !sticky;
    workload_run(&workload, LIFE_STEPS);
    ck_assert_msg(atomic_load(&world->alloc.failure_count) != 0, "%s: the fault did not fire",
                  workload_case);
    fault_alloc_fail_after(&world->alloc, 0, false);
    killed = sim_clone(world->sim);
    tolerate(0);
    if (workload.db != NULL) {
        workload_check_all(&workload);
        workload_release_handles(&workload);
        check_works_again(&scenarios[6]);
    }
    workload_judge(&workload, sim_clone(world->sim), workload.acked, false,
                   "closed and opened again");
    // Writes that came after the kill are not there: no promise but that of before is checked.
    workload_judge(&workload, killed, 0, false, "killed");
    world_destroy(world);
}

START_TEST(a_life_without_memory_loses_nothing)
{
    uint64_t seed = rng_seed("a_life_without_memory_loses_nothing", 1);
    unsigned flags = WORLD_BATON | (seed % 2 != 0 ? WORLD_MAP_LOGS : 0);
    uint64_t count = count_allocations(seed, flags);
    uint64_t stride = (count + oracle_scaled(LIFE_POINTS) - 1) / oracle_scaled(LIFE_POINTS);
    struct rng rng = rng_from(seed * 31);
    uint64_t points = 0;

    for (int sticky = 0; sticky < 2; sticky++)
        for (uint64_t nth = 1 + rng_below(&rng, stride); nth <= count; nth += stride) {
            refuse_in_life(nth, sticky != 0, seed, flags);
            points++;
        }
    printf("  a life of %" PRIu64 " allocations: %" PRIu64 " points.\n", count, points);
    fflush(stdout);
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("fault_memory");
    TCase *tests = tcase_create("fault_memory");

    signal(SIGABRT, workload_show_case);
    tcase_set_timeout(tests, 0);
    tcase_add_loop_test(tests, a_call_without_memory_changes_nothing_and_works_when_there_is_some,
                        0, SCENARIO_COUNT);
    tcase_add_test(tests, a_life_without_memory_loses_nothing);
    suite_add_tcase(suite, tests);
    return check_run(suite);
}
