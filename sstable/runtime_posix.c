/* SPDX-License-Identifier: MIT
 *
 * sstable/runtime_posix.c -- tm_runtime over pthreads, CLOCK_MONOTONIC and getrandom.
 *
 * Invariants
 *   R1  A wait returns with its mutex held, and with its predicate true unless its time was over.
 *   R2  Threads started here take no signals: those belong to the program around us.
 *
 * Threads  every function from any thread.
 * Not here: files (os_posix.c); the deterministic runtime (tests/support/baton.c).
 */
#include "sstable/runtime.h"

#include <assert.h>
#include <errno.h>
#include <signal.h>
#include <sys/random.h>
#include <time.h>

enum { NS_PER_SECOND = 1000000000 };

/* The calls below fail only when the caller breaks their rules (or on a kind of mutex we do not make). */
static void
must(int result)
{
    assert(result == 0);
    (void)result;
}

static void
posix_mutex_init(void *ctx, struct tm_mutex *mutex)
{
    (void)ctx;
    must(pthread_mutex_init(&mutex->native, NULL));
    mutex->owner = NULL;
}

static void
posix_mutex_deinit(void *ctx, struct tm_mutex *mutex)
{
    (void)ctx;
    must(pthread_mutex_destroy(&mutex->native));
}

static void
posix_lock(void *ctx, struct tm_mutex *mutex)
{
    (void)ctx;
    must(pthread_mutex_lock(&mutex->native));
}

static void
posix_unlock(void *ctx, struct tm_mutex *mutex)
{
    (void)ctx;
    must(pthread_mutex_unlock(&mutex->native));
}

static void
posix_cond_init(void *ctx, struct tm_cond *cond)
{
    pthread_condattr_t attributes;

    (void)ctx;
    must(pthread_condattr_init(&attributes));
    must(pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC)); // of posix_now_ns()
    must(pthread_cond_init(&cond->native, &attributes));
    must(pthread_condattr_destroy(&attributes));
    cond->notify_count = 0;
}

static void
posix_cond_deinit(void *ctx, struct tm_cond *cond)
{
    (void)ctx;
    must(pthread_cond_destroy(&cond->native));
}

static void
posix_wait(void *ctx, struct tm_cond *cond, struct tm_mutex *mutex, bool (*predicate)(void *arg),
           void *arg)
{
    (void)ctx;
    while (!predicate(arg)) // R1
        must(pthread_cond_wait(&cond->native, &mutex->native));
}

static bool
posix_wait_until(void *ctx, struct tm_cond *cond, struct tm_mutex *mutex, uint64_t deadline_ns,
                 bool (*predicate)(void *arg), void *arg)
{
    struct timespec deadline = {.tv_sec = (time_t)(deadline_ns / NS_PER_SECOND),
                                .tv_nsec = (long)(deadline_ns % NS_PER_SECOND)};

    (void)ctx;
    while (!predicate(arg)) {
        int result = pthread_cond_timedwait(&cond->native, &mutex->native, &deadline);

        if (result == ETIMEDOUT)
            return predicate(arg);
        must(result);
    }
    return true;
}

static void
posix_notify(void *ctx, struct tm_cond *cond)
{
    (void)ctx;
    must(pthread_cond_broadcast(&cond->native));
}

static void *
run_thread(void *arg)
{
    struct tm_thread *thread = arg;

    thread->run(thread->arg);
    return NULL;
}

static int
posix_thread_start(void *ctx, struct tm_thread *thread, void (*run)(void *arg), void *arg)
{
    sigset_t all;
    sigset_t before;
    int result;

    (void)ctx;
    thread->run = run;
    thread->arg = arg;
    thread->state = NULL;
    sigfillset(&all);
    must(pthread_sigmask(SIG_SETMASK, &all, &before)); // R2: the new thread inherits this mask
    result = pthread_create(&thread->native, NULL, run_thread, thread);
    must(pthread_sigmask(SIG_SETMASK, &before, NULL));
    return result;
}

static void
posix_thread_join(void *ctx, struct tm_thread *thread)
{
    (void)ctx;
    must(pthread_join(thread->native, NULL));
}

static uint64_t
posix_now_ns(void *ctx)
{
    struct timespec now;

    (void)ctx;
    must(clock_gettime(CLOCK_MONOTONIC, &now));
    return (uint64_t)now.tv_sec * NS_PER_SECOND + (uint64_t)now.tv_nsec;
}

static int
posix_random(void *ctx, void *buffer, size_t length)
{
    uint8_t *next = buffer;

    (void)ctx;
    while (length != 0) {
        ssize_t got = getrandom(next, length, 0);

        if (got < 0 && errno != EINTR)
            return errno;
        if (got > 0) {
            next += got;
            length -= (size_t)got;
        }
    }
    return 0;
}

const struct tm_runtime *
tm_runtime_posix(void)
{
    static const struct tm_runtime runtime = {
        .ctx = NULL,
        .mutex_init = posix_mutex_init,
        .mutex_deinit = posix_mutex_deinit,
        .lock = posix_lock,
        .unlock = posix_unlock,
        .cond_init = posix_cond_init,
        .cond_deinit = posix_cond_deinit,
        .wait = posix_wait,
        .wait_until = posix_wait_until,
        .notify = posix_notify,
        .thread_start = posix_thread_start,
        .thread_join = posix_thread_join,
        .now_ns = posix_now_ns,
        .random = posix_random,
    };

    return &runtime;
}
