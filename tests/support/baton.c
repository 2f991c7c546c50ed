/* SPDX-License-Identifier: MIT
 *
 * tests/support/baton.c -- the deterministic runtime that baton.h describes.
 *
 *   RUNNABLE --lock of a taken mutex--> BLOCKED --its unlock--> RUNNABLE
 *   RUNNABLE --wait, predicate false--> WAITING --notify------> RUNNABLE (asks the predicate again)
 *                                              --deadline----> RUNNABLE; when nobody else can run, time goes on to it
 *   RUNNABLE --join of a running one--> JOINING --its end-----> RUNNABLE
 *
 * Invariants
 *   N4  All fields of the baton and of its threads, and the mutexes and conditions it stands for, are guarded by
 *       `mutex`; a thread leaves it only while it runs code of the test.
 *
 * Not here: files (sim_os.c).
 */
#include "tests/support/baton.h"

#include <assert.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/rng.h"

enum {
    STEP_NS = 1000, // virtual time of one step; behaviour must not depend on how much it is
};

enum thread_state { RUNNABLE, BLOCKED, WAITING, JOINING, FINISHED };

struct baton_thread {
    struct baton *baton;
    size_t number; // 0 is the creator; others in order of their start
    enum thread_state state;
    const void *awaited; // mutex, condition or thread it needs
    uint64_t deadline_ns; // of a wait on a condition; UINT64_MAX: none
    pthread_cond_t turn; // signalled when the baton comes to it
    void (*run)(void *arg);
    void *arg;
    struct baton_thread *next; // in baton, by number
};

struct baton {
    struct tm_runtime runtime;
    pthread_mutex_t mutex;
    struct baton_thread *threads;
    struct baton_thread *running;
    size_t thread_number_next;
    struct rng choices;  // who is next
    struct rng bytes;    // what `random` gives
    uint64_t stay_of_16; // in how many of 16 voluntary steps the runner goes on
    uint64_t now_ns;
    uint64_t step_count;
    uint64_t trace;
};

static _Thread_local struct baton_thread *self;

static const char *
state_text(enum thread_state state)
{
    static const char *const texts[] = {"can run", "needs mutex", "waits on condition",
                                        "joins thread", "has ended"};

    return texts[state];
}

/* N3 */
static void
report_deadlock(const struct baton *baton)
{
    fprintf(stderr, "baton: deadlock after %" PRIu64 " steps, no thread can run\n",
            baton->step_count);
    for (const struct baton_thread *thread = baton->threads; thread != NULL;
         thread = thread->next) {
        fprintf(stderr, "  thread %zu%s %s", thread->number, thread->number == 0 ? " (main)" : "",
                state_text(thread->state));
        if (thread->state == BLOCKED) {
            const struct tm_mutex *mutex = thread->awaited;
            const struct baton_thread *owner = mutex->owner;

            fprintf(stderr, " %p", thread->awaited);
            if (owner != NULL)
                fprintf(stderr, " held by thread %zu", owner->number);
        } else if (thread->state == WAITING) {
            fprintf(stderr, " %p", thread->awaited);
        } else if (thread->state == JOINING) {
            fprintf(stderr, " %zu", ((const struct baton_thread *)thread->awaited)->number);
        }
        fprintf(stderr, "\n");
    }
    abort();
}

/* Wake those whose time is over. How many can run? */
static uint64_t
count_runnable(struct baton *baton)
{
    uint64_t count = 0;

    for (struct baton_thread *thread = baton->threads; thread != NULL; thread = thread->next) {
        if (thread->state == WAITING && thread->deadline_ns <= baton->now_ns)
            thread->state = RUNNABLE;
        count += thread->state == RUNNABLE;
    }
    return count;
}

/* To the next moment at which somebody's time is over. */
static void
move_time_on(struct baton *baton)
{
    uint64_t next_ns = UINT64_MAX;

    for (struct baton_thread *thread = baton->threads; thread != NULL; thread = thread->next)
        if (thread->state == WAITING && thread->deadline_ns < next_ns)
            next_ns = thread->deadline_ns;
    if (next_ns == UINT64_MAX)
        report_deadlock(baton);
    baton->now_ns = next_ns;
}

/* One of those who can run. The caller is not preferred. */
static struct baton_thread *
choose_next(struct baton *baton)
{
    uint64_t count = count_runnable(baton);
    uint64_t chosen;

    if (count == 0) {
        move_time_on(baton);
        count = count_runnable(baton);
    }
    chosen = rng_below(&baton->choices, count);
    for (struct baton_thread *thread = baton->threads; thread != NULL; thread = thread->next) {
        if (thread->state == RUNNABLE && chosen-- == 0)
            return thread;
    }
    return NULL; // not reached: there are `count` of them
}

/* Hand the baton on; the caller does not hold it any more unless it was chosen. */
static void
hand_on(struct baton *baton)
{
    struct baton_thread *next = choose_next(baton);

    baton->trace = (baton->trace ^ next->number) * 0x100000001b3u + baton->step_count;
    baton->running = next;
    if (next != self)
        pthread_cond_signal(&next->turn);
}

static void
sleep_until_my_turn(struct baton *baton)
{
    while (baton->running != self)
        pthread_cond_wait(&self->turn, &baton->mutex);
}

/* A step at which the caller cannot go on (its state says why) until it is made runnable and chosen. */
static void
give_way(struct baton *baton)
{
    baton->step_count++;
    baton->now_ns += STEP_NS;
    hand_on(baton);
    sleep_until_my_turn(baton);
}

/* A step at which the caller could go on. */
static void
step(struct baton *baton)
{
    if (rng_chance(&baton->choices, baton->stay_of_16, 16)) {
        baton->step_count++;
        baton->now_ns += STEP_NS;
    } else {
        give_way(baton);
    }
}

static struct baton *
enter(void *ctx)
{
    struct baton *baton = ctx;

    pthread_mutex_lock(&baton->mutex);
    if (self == NULL || self->baton != baton || baton->running != self) {
        fprintf(stderr, "baton: used by a thread that it did not start\n");
        abort();
    }
    return baton;
}

static void
leave(struct baton *baton)
{
    pthread_mutex_unlock(&baton->mutex);
}

static void
wake(struct baton *baton, enum thread_state state, const void *awaited)
{
    for (struct baton_thread *thread = baton->threads; thread != NULL; thread = thread->next) {
        if (thread->state == state && thread->awaited == awaited)
            thread->state = RUNNABLE;
    }
}

static void
block(struct baton *baton, enum thread_state state, const void *awaited)
{
    self->state = state;
    self->awaited = awaited;
    give_way(baton);
    self->awaited = NULL;
}

static void
take(struct baton *baton, struct tm_mutex *mutex)
{
    assert(mutex->owner != self); // not recursive
    while (mutex->owner != NULL)
        block(baton, BLOCKED, mutex);
    mutex->owner = self;
}

static void
give_back(struct baton *baton, struct tm_mutex *mutex)
{
    assert(mutex->owner == self);
    mutex->owner = NULL;
    wake(baton, BLOCKED, mutex);
}

static void
baton_mutex_init(void *ctx, struct tm_mutex *mutex)
{
    (void)ctx;
    mutex->owner = NULL;
}

static void
baton_mutex_deinit(void *ctx, struct tm_mutex *mutex)
{
    (void)ctx;
    assert(mutex->owner == NULL);
    (void)mutex;
}

static void
baton_lock(void *ctx, struct tm_mutex *mutex)
{
    struct baton *baton = enter(ctx);

    step(baton);
    take(baton, mutex);
    leave(baton);
}

static void
baton_unlock(void *ctx, struct tm_mutex *mutex)
{
    struct baton *baton = enter(ctx);

    give_back(baton, mutex);
    step(baton);
    leave(baton);
}

static void
baton_cond_init(void *ctx, struct tm_cond *cond)
{
    (void)ctx;
    cond->notify_count = 0;
}

static void
baton_cond_deinit(void *ctx, struct tm_cond *cond)
{
    struct baton *baton = enter(ctx);

    for (struct baton_thread *thread = baton->threads; thread != NULL; thread = thread->next)
        assert(thread->state != WAITING || thread->awaited != cond);
    (void)cond;
    leave(baton);
}

static bool
baton_wait_until(void *ctx, struct tm_cond *cond, struct tm_mutex *mutex, uint64_t deadline_ns,
                 bool (*predicate)(void *arg), void *arg)
{
    struct baton *baton = enter(ctx);
    bool reached;

    assert(mutex->owner == self);
    for (;;) {
        leave(baton); // code of the test: it may use the runtime (N4); N1 keeps everybody else out
        reached = predicate(arg);
        enter(ctx);
        if (reached || baton->now_ns >= deadline_ns)
            break;
        give_back(baton, mutex);
        self->deadline_ns = deadline_ns;
        block(baton, WAITING, cond);
        take(baton, mutex);
    }
    leave(baton);
    return reached;
}

static void
baton_wait(void *ctx, struct tm_cond *cond, struct tm_mutex *mutex, bool (*predicate)(void *arg),
           void *arg)
{
    (void)baton_wait_until(ctx, cond, mutex, UINT64_MAX, predicate, arg);
}

static void
baton_notify(void *ctx, struct tm_cond *cond)
{
    struct baton *baton = enter(ctx);

    cond->notify_count++;
    wake(baton, WAITING, cond);
    step(baton);
    leave(baton);
}

static struct baton_thread *
add_thread(struct baton *baton)
{
    struct baton_thread **link = &baton->threads;
    struct baton_thread *thread = calloc(1, sizeof *thread);

    if (thread == NULL)
        return NULL;
    pthread_cond_init(&thread->turn, NULL);
    thread->baton = baton;
    thread->number = baton->thread_number_next++;
    while (*link != NULL)
        link = &(*link)->next;
    *link = thread;
    return thread;
}

static void
remove_thread(struct baton *baton, struct baton_thread *thread)
{
    struct baton_thread **link = &baton->threads;

    while (*link != thread)
        link = &(*link)->next;
    *link = thread->next;
    pthread_cond_destroy(&thread->turn);
    free(thread);
}

static void *
run_thread(void *arg)
{
    struct baton *baton;

    self = arg;
    baton = self->baton;
    pthread_mutex_lock(&baton->mutex);
    sleep_until_my_turn(baton);
    pthread_mutex_unlock(&baton->mutex);
    self->run(self->arg);
    enter(baton);
    self->state = FINISHED;
    wake(baton, JOINING, self);
    baton->step_count++;
    hand_on(baton);
    pthread_mutex_unlock(&baton->mutex);
    return NULL;
}

static int
baton_thread_start(void *ctx, struct tm_thread *thread, void (*run)(void *arg), void *arg)
{
    struct baton *baton = enter(ctx);
    struct baton_thread *added = add_thread(baton);
    int result = ENOMEM;

    if (added != NULL) {
        added->run = run;
        added->arg = arg;
        result = pthread_create(&thread->native, NULL, run_thread, added);
        if (result != 0)
            remove_thread(baton, added);
        else
            thread->state = added;
    }
    if (result == 0)
        step(baton);
    leave(baton);
    return result;
}

static void
baton_thread_join(void *ctx, struct tm_thread *thread)
{
    struct baton *baton = enter(ctx);
    struct baton_thread *joined = thread->state;

    step(baton);
    while (joined->state != FINISHED)
        block(baton, JOINING, joined);
    leave(baton);
    pthread_join(thread->native,
                 NULL); // it has handed on the baton for good: this waits for no turn
    enter(baton);
    remove_thread(baton, joined);
    thread->state = NULL;
    leave(baton);
}

static uint64_t
baton_now_ns(void *ctx)
{
    struct baton *baton = enter(ctx);
    uint64_t now = baton->now_ns += STEP_NS;

    leave(baton);
    return now;
}

static int
baton_random(void *ctx, void *buffer, size_t length)
{
    struct baton *baton = enter(ctx);

    rng_fill(&baton->bytes, buffer, length);
    leave(baton);
    return 0;
}

struct baton *
baton_create(uint64_t seed)
{
    // How eagerly threads change is part of the seed: long runs of one thread find other faults than short ones.
    static const uint64_t stays[] = {0, 8, 14, 15};
    struct baton *baton = calloc(1, sizeof *baton);

    if (baton == NULL || self != NULL) {
        fprintf(stderr, "baton: %s\n", self != NULL ? "one is in use already" : "no memory");
        abort();
    }
    pthread_mutex_init(&baton->mutex, NULL);
    baton->choices = rng_from(seed);
    baton->stay_of_16 = stays[rng_below(&baton->choices, sizeof stays / sizeof stays[0])];
    baton->bytes = rng_from(~seed);
    baton->runtime = (struct tm_runtime){
        .ctx = baton,
        .mutex_init = baton_mutex_init,
        .mutex_deinit = baton_mutex_deinit,
        .lock = baton_lock,
        .unlock = baton_unlock,
        .cond_init = baton_cond_init,
        .cond_deinit = baton_cond_deinit,
        .wait = baton_wait,
        .wait_until = baton_wait_until,
        .notify = baton_notify,
        .thread_start = baton_thread_start,
        .thread_join = baton_thread_join,
        .now_ns = baton_now_ns,
        .random = baton_random,
    };
    self = add_thread(baton);
    if (self == NULL)
        abort();
    baton->running = self;
    return baton;
}

void
baton_destroy(struct baton *baton)
{
    if (baton == NULL)
        return;
    assert(self != NULL && self->baton == baton && self->number == 0);
    assert(self->next == NULL); // every started thread has been joined
    remove_thread(baton, self);
    self = NULL;
    pthread_mutex_destroy(&baton->mutex);
    free(baton);
}

const struct tm_runtime *
baton_runtime(struct baton *baton)
{
    return &baton->runtime;
}

void
baton_pass(void *arg)
{
    struct baton *baton = enter(arg);

    step(baton);
    leave(baton);
}

uint64_t
baton_step_count(const struct baton *baton)
{
    return baton->step_count;
}

uint64_t
baton_trace(const struct baton *baton)
{
    return baton->trace;
}

size_t
baton_thread_count(const struct baton *baton)
{
    size_t count = 0;

    for (const struct baton_thread *thread = baton->threads; thread != NULL; thread = thread->next)
        count++;
    return count - 1;
}
