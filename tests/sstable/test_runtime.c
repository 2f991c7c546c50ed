/* SPDX-License-Identifier: MIT
 *
 * tests/sstable/test_runtime.c -- both runtimes keep the contract of runtime.h; the baton is deterministic.
 *
 * Each contract test runs over pthreads and over the baton.
 */
#include <check.h>
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "sstable/runtime.h"
#include "tests/support/baton.h"
#include "tests/support/check_status.h"
#include "tests/support/child.h"
#include "tests/support/rng.h"
#include "tests/support/sim_os.h"

enum { PTHREADS, BATON, RUNTIME_COUNT, WORKER_COUNT = 4, ROUND_COUNT = 200 };

static struct baton *baton;
static const struct tm_runtime *runtime;

static void
use_runtime(int which)
{
    baton = which == BATON ? baton_create(rng_seed("runtime", 42)) : NULL;
    runtime = baton != NULL ? baton_runtime(baton) : tm_runtime_posix();
}

static void
drop_runtime(void)
{
    baton_destroy(baton);
    baton = NULL;
}

/* ---- A small piece of concurrent work ----------------------------------------------------------------- */

struct work {
    struct tm_mutex mutex;
    struct tm_cond cond;
    uint64_t count;      // guarded by mutex
    uint64_t turn;       // guarded by mutex
    _Atomic int inside;  // threads that hold the mutex
    uint64_t order_hash; // guarded by mutex
};

struct worker {
    struct work *work;
    uint64_t number;
    struct tm_thread thread;
};

static void
work_init(struct work *work)
{
    memset(work, 0, sizeof *work);
    runtime->mutex_init(runtime->ctx, &work->mutex);
    runtime->cond_init(runtime->ctx, &work->cond);
}

static void
work_deinit(struct work *work)
{
    runtime->cond_deinit(runtime->ctx, &work->cond);
    runtime->mutex_deinit(runtime->ctx, &work->mutex);
}

/* For threads: Check's own asserts are for the thread of the test. */
static void
require(bool condition)
{
    if (!condition)
        abort();
}

static void
count_up(void *arg)
{
    struct worker *worker = arg;
    struct work *work = worker->work;

    for (int i = 0; i < ROUND_COUNT; i++) {
        runtime->lock(runtime->ctx, &work->mutex);
        require(atomic_fetch_add(&work->inside, 1) == 0);
        work->count++;
        work->order_hash = work->order_hash * 31 + worker->number;
        require(atomic_fetch_sub(&work->inside, 1) == 1);
        runtime->notify(runtime->ctx, &work->cond);
        runtime->unlock(runtime->ctx, &work->mutex);
    }
}

static bool
all_counted(void *arg)
{
    struct work *work = arg;

    return work->count == WORKER_COUNT * ROUND_COUNT;
}

/* Start `run` in all workers; wait for the count; join. */
static void
run_workers(struct work *work, void (*run)(void *arg))
{
    struct worker workers[WORKER_COUNT];

    for (uint64_t i = 0; i < WORKER_COUNT; i++) {
        workers[i] = (struct worker){.work = work, .number = i + 1};
        ck_assert_int_eq(runtime->thread_start(runtime->ctx, &workers[i].thread, run, &workers[i]),
                         0);
    }
    runtime->lock(runtime->ctx, &work->mutex);
    runtime->wait(runtime->ctx, &work->cond, &work->mutex, all_counted, work);
    ck_assert(all_counted(work));
    runtime->unlock(runtime->ctx, &work->mutex);
    for (size_t i = 0; i < WORKER_COUNT; i++)
        runtime->thread_join(runtime->ctx, &workers[i].thread);
}

/* ---- The contract ---------------------------------------------------------------------------------------- */

START_TEST(a_mutex_admits_one_thread_and_wait_returns_with_its_predicate_true)
{
    struct work work;

    use_runtime(_i);
    work_init(&work);
    run_workers(&work, count_up);
    work_deinit(&work);
    drop_runtime();
}
END_TEST

static bool
my_turn(void *arg)
{
    struct worker *worker = arg;

    return worker->work->turn % WORKER_COUNT == worker->number - 1;
}

static void
take_turns(void *arg)
{
    struct worker *worker = arg;
    struct work *work = worker->work;

    for (int i = 0; i < ROUND_COUNT; i++) {
        runtime->lock(runtime->ctx, &work->mutex);
        runtime->wait(runtime->ctx, &work->cond, &work->mutex, my_turn, worker);
        require(my_turn(worker));
        work->turn++;
        work->count++;
        runtime->notify(runtime->ctx, &work->cond);
        runtime->unlock(runtime->ctx, &work->mutex);
    }
}

START_TEST(threads_that_wait_for_each_other_all_get_on)
{
    struct work work;

    use_runtime(_i);
    work_init(&work);
    run_workers(&work, take_turns);
    ck_assert_uint_eq(work.turn, WORKER_COUNT * ROUND_COUNT);
    work_deinit(&work);
    drop_runtime();
}
END_TEST

static bool
first_has_counted(void *arg)
{
    const struct work *work = arg;

    return work->count > 0;
}

START_TEST(a_wait_with_a_deadline_ends_when_its_predicate_is_true)
{
    struct work work;
    struct worker worker = {.work = &work, .number = 1};

    use_runtime(_i);
    work_init(&work);
    ck_assert_int_eq(runtime->thread_start(runtime->ctx, &worker.thread, count_up, &worker), 0);
    runtime->lock(runtime->ctx, &work.mutex);
    ck_assert(runtime->wait_until(runtime->ctx, &work.cond, &work.mutex, UINT64_MAX / 2,
                                  first_has_counted, &work));
    runtime->unlock(runtime->ctx, &work.mutex);
    runtime->thread_join(runtime->ctx, &worker.thread);
    runtime->lock(runtime->ctx, &work.mutex);
    ck_assert(runtime->wait_until(runtime->ctx, &work.cond, &work.mutex, 0, first_has_counted,
                                  &work)); // true at once: the time does not matter
    runtime->unlock(runtime->ctx, &work.mutex);
    work_deinit(&work);
    drop_runtime();
}
END_TEST

START_TEST(a_wait_that_nobody_ends_is_over_at_its_deadline)
{
    struct work work;

    use_runtime(_i);
    work_init(&work);
    runtime->lock(runtime->ctx, &work.mutex);
    for (uint64_t length_ns = 0; length_ns <= 2000000; length_ns += 1000000) {
        uint64_t deadline_ns = runtime->now_ns(runtime->ctx) + length_ns;

        ck_assert(!runtime->wait_until(runtime->ctx, &work.cond, &work.mutex, deadline_ns,
                                       first_has_counted, &work));
        ck_assert_uint_ge(runtime->now_ns(runtime->ctx), deadline_ns);
    }
    runtime->unlock(runtime->ctx, &work.mutex);
    work_deinit(&work);
    drop_runtime();
}
END_TEST

START_TEST(time_does_not_go_back)
{
    uint64_t before;

    use_runtime(_i);
    before = runtime->now_ns(runtime->ctx);
    for (int i = 0; i < 1000; i++) {
        uint64_t now = runtime->now_ns(runtime->ctx);

        ck_assert_uint_ge(now, before);
        before = now;
    }
    drop_runtime();
}
END_TEST

START_TEST(random_fills_the_whole_buffer)
{
    uint8_t first[300] = {0};
    uint8_t second[300] = {0};
    size_t zeros = 0;

    use_runtime(_i);
    ck_assert_int_eq(runtime->random(runtime->ctx, first, sizeof first), 0);
    ck_assert_int_eq(runtime->random(runtime->ctx, second, sizeof second), 0);
    ck_assert_int_eq(runtime->random(runtime->ctx, second, 0), 0);
    ck_assert(memcmp(first, second, sizeof first) != 0);
    for (size_t i = 200; i < sizeof first; i++)
        zeros += first[i] == 0;
    ck_assert_uint_lt(zeros, 50);
    drop_runtime();
}
END_TEST

static void
see_signals(void *arg)
{
    sigset_t blocked;

    pthread_sigmask(SIG_SETMASK, NULL, &blocked);
    *(bool *)arg = sigismember(&blocked, SIGTERM) && sigismember(&blocked, SIGALRM);
}

START_TEST(threads_of_the_library_take_no_signals)
{
    struct tm_thread thread;
    sigset_t blocked;
    bool none = false;

    use_runtime(PTHREADS);
    ck_assert_int_eq(runtime->thread_start(runtime->ctx, &thread, see_signals, &none), 0);
    runtime->thread_join(runtime->ctx, &thread);
    ck_assert(none);
    pthread_sigmask(SIG_SETMASK, NULL, &blocked);
    ck_assert(!sigismember(&blocked, SIGTERM));
}
END_TEST

/* ---- The baton --------------------------------------------------------------------------------------------- */

struct trace {
    uint64_t choices;
    uint64_t order;
    uint64_t steps;
};

static struct trace
traced_run(uint64_t seed)
{
    struct trace trace;
    struct work work;

    baton = baton_create(seed);
    runtime = baton_runtime(baton);
    work_init(&work);
    run_workers(&work, count_up);
    trace = (struct trace){baton_trace(baton), work.order_hash, baton_step_count(baton)};
    work_deinit(&work);
    drop_runtime();
    return trace;
}

START_TEST(the_same_seed_gives_the_same_run)
{
    uint64_t seed = rng_seed("baton", 7);

    for (uint64_t i = 0; i < 20; i++) {
        struct trace first = traced_run(seed + i);
        struct trace second = traced_run(seed + i);

        ck_assert_uint_eq(first.choices, second.choices);
        ck_assert_uint_eq(first.order, second.order);
        ck_assert_uint_eq(first.steps, second.steps);
    }
}
END_TEST

START_TEST(other_seeds_give_other_orders)
{
    uint64_t seed = rng_seed("baton", 7);
    size_t different = 0;

    for (uint64_t i = 0; i < 20; i++)
        different += traced_run(seed + i).order != traced_run(seed + i + 1).order;
    ck_assert_uint_ge(different, 18);
}
END_TEST

struct two_locks {
    struct tm_mutex a;
    struct tm_mutex b;
    struct tm_cond cond;
    bool a_taken; // guarded by b
};

static bool
a_is_taken(void *arg)
{
    return ((struct two_locks *)arg)->a_taken;
}

static void
lock_a_then_b(void *arg)
{
    struct two_locks *locks = arg;

    runtime->lock(runtime->ctx, &locks->a);
    runtime->lock(runtime->ctx, &locks->b);
    locks->a_taken = true;
    runtime->notify(runtime->ctx, &locks->cond);
    runtime->unlock(runtime->ctx, &locks->b);
    runtime->lock(runtime->ctx, &locks->b);
    runtime->unlock(runtime->ctx, &locks->b);
    runtime->unlock(runtime->ctx, &locks->a);
}

static int
lock_in_two_orders(void *arg)
{
    struct two_locks locks = {0};
    struct tm_thread thread;

    baton = baton_create(*(uint64_t *)arg);
    runtime = baton_runtime(baton);
    runtime->mutex_init(runtime->ctx, &locks.a);
    runtime->mutex_init(runtime->ctx, &locks.b);
    runtime->cond_init(runtime->ctx, &locks.cond);
    runtime->thread_start(runtime->ctx, &thread, lock_a_then_b, &locks);
    runtime->lock(runtime->ctx, &locks.b);
    runtime->wait(runtime->ctx, &locks.cond, &locks.b, a_is_taken, &locks);
    // Holding b, ask for a, while the other holds a and asks for b: in some order of steps for ever.
    runtime->lock(runtime->ctx, &locks.a);
    runtime->unlock(runtime->ctx, &locks.a);
    runtime->unlock(runtime->ctx, &locks.b);
    runtime->thread_join(runtime->ctx, &thread);
    return 0;
}

START_TEST(a_deadlock_is_found_and_listed)
{
    uint64_t seed = rng_seed("baton", 1);
    size_t found = 0;
    char text[1000];

    for (uint64_t i = 0; i < 30; i++) {
        uint64_t this_seed = seed + i;
        int end = child_run(lock_in_two_orders, &this_seed, text, sizeof text);

        ck_assert(end == 0 || end == -SIGABRT);
        if (end == 0)
            continue;
        found++;
        ck_assert_ptr_nonnull(strstr(text, "deadlock"));
        ck_assert_ptr_nonnull(strstr(text, "thread 0 (main) needs mutex"));
        ck_assert_ptr_nonnull(strstr(text, "held by thread 0"));
    }
    ck_assert_uint_ge(found, 1);
}
END_TEST

static bool
never(void *arg)
{
    (void)arg;
    return false;
}

static int
wait_for_nothing(void *arg)
{
    struct work work;

    (void)arg;
    baton = baton_create(1);
    runtime = baton_runtime(baton);
    work_init(&work);
    runtime->lock(runtime->ctx, &work.mutex);
    runtime->wait(runtime->ctx, &work.cond, &work.mutex, never, NULL);
    return 0;
}

START_TEST(a_wait_that_nobody_ends_is_a_deadlock)
{
    char text[1000];

    ck_assert_int_eq(child_run(wait_for_nothing, NULL, text, sizeof text), -SIGABRT);
    ck_assert_ptr_nonnull(strstr(text, "thread 0 (main) waits on condition"));
}
END_TEST

static void
call_the_machine(void *arg)
{
    const struct tm_os *os = sim_os(arg);

    for (int i = 0; i < 20; i++)
        (void)os->make_dir(os->ctx, i % 2 != 0 ? "a" : "b"); // what it answers does not matter here
}

static uint64_t
machine_run(uint64_t seed, uint64_t stop_at)
{
    struct sim *sim = sim_create(seed);
    struct tm_thread threads[3];
    uint64_t trace;

    baton = baton_create(seed);
    runtime = baton_runtime(baton);
    sim_watch(sim, baton_pass, NULL, baton);
    sim_stop_at(sim, stop_at);
    for (size_t i = 0; i < 3; i++)
        runtime->thread_start(runtime->ctx, &threads[i], call_the_machine, sim);
    for (size_t i = 0; i < 3; i++)
        runtime->thread_join(runtime->ctx, &threads[i]);
    ck_assert_uint_eq(sim_call_count(sim), 60);
    ck_assert_int_eq(sim_stopped(sim), stop_at != 0);
    trace = baton_trace(baton);
    drop_runtime();
    sim_destroy(sim);
    return trace;
}

START_TEST(the_baton_passes_at_file_calls)
{
    ck_assert_uint_eq(machine_run(3, 0), machine_run(3, 0));
    ck_assert_uint_ne(machine_run(3, 0), machine_run(4, 0));
}
END_TEST

START_TEST(threads_end_after_the_machine_has_stopped)
{
    for (uint64_t call = 1; call <= 60; call++)
        machine_run(call, call);
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("runtime");
    TCase *contract = tcase_create("contract");
    TCase *deterministic = tcase_create("baton");

    tcase_add_loop_test(contract,
                        a_mutex_admits_one_thread_and_wait_returns_with_its_predicate_true, 0,
                        RUNTIME_COUNT);
    tcase_add_loop_test(contract, threads_that_wait_for_each_other_all_get_on, 0, RUNTIME_COUNT);
    tcase_add_loop_test(contract, a_wait_with_a_deadline_ends_when_its_predicate_is_true, 0,
                        RUNTIME_COUNT);
    tcase_add_loop_test(contract, a_wait_that_nobody_ends_is_over_at_its_deadline, 0,
                        RUNTIME_COUNT);
    tcase_add_loop_test(contract, time_does_not_go_back, 0, RUNTIME_COUNT);
    tcase_add_loop_test(contract, random_fills_the_whole_buffer, 0, RUNTIME_COUNT);
    tcase_add_test(contract, threads_of_the_library_take_no_signals);
    suite_add_tcase(suite, contract);
    tcase_add_test(deterministic, the_same_seed_gives_the_same_run);
    tcase_add_test(deterministic, other_seeds_give_other_orders);
    tcase_add_test(deterministic, a_deadlock_is_found_and_listed);
    tcase_add_test(deterministic, a_wait_that_nobody_ends_is_a_deadlock);
    tcase_add_test(deterministic, the_baton_passes_at_file_calls);
    tcase_add_test(deterministic, threads_end_after_the_machine_has_stopped);
    suite_add_tcase(suite, deterministic);
    return check_run(suite);
}
