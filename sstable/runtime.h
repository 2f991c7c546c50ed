/* SPDX-License-Identifier: MIT
 *
 * sstable/runtime.h -- threads, waiting, clock and random bytes: everything that makes a run differ from
 * the next one, behind one table.
 *
 * The engine waits in one place only, `wait` with a predicate, or `wait_until` with a time beside it. A test puts a table in its place under which
 * one thread runs at a time and a seed chooses who is next: the same engine then runs deterministically, and a
 * moment in which nobody can run is reported as a deadlock.
 */
#ifndef TM_SSTABLE_RUNTIME_H
#define TM_SSTABLE_RUNTIME_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tm_mutex {
    pthread_mutex_t native;
    void *owner; // used by a deterministic runtime only
};

struct tm_cond {
    pthread_cond_t native;
    uint64_t notify_count; // used by a deterministic runtime only
};

/* Stays where it is between thread_start and thread_join: the new thread reads it. */
struct tm_thread {
    pthread_t native;
    void (*run)(void *arg);
    void *arg;
    void *state; // used by a deterministic runtime only
};

struct tm_runtime {
    void *ctx;
    void (*mutex_init)(void *ctx, struct tm_mutex *mutex);
    void (*mutex_deinit)(void *ctx, struct tm_mutex *mutex);
    void (*lock)(void *ctx, struct tm_mutex *mutex);
    void (*unlock)(void *ctx, struct tm_mutex *mutex);
    void (*cond_init)(void *ctx, struct tm_cond *cond);
    void (*cond_deinit)(void *ctx, struct tm_cond *cond);
    /* With `mutex` held: sleep until predicate(arg) is true, then return with it held. The predicate is called
     * with the mutex held, before sleeping and after each notification. */
    void (*wait)(void *ctx, struct tm_cond *cond, struct tm_mutex *mutex,
                 bool (*predicate)(void *arg), void *arg);
    /* As `wait`, but not beyond the moment at which now_ns() is `deadline_ns`. Returns what the predicate said last. */
    bool (*wait_until)(void *ctx, struct tm_cond *cond, struct tm_mutex *mutex,
                       uint64_t deadline_ns, bool (*predicate)(void *arg), void *arg);
    /* Wake every thread that waits on `cond`. */
    void (*notify)(void *ctx, struct tm_cond *cond);
    /* 0, or an errno value. */
    int (*thread_start)(void *ctx, struct tm_thread *thread, void (*run)(void *arg), void *arg);
    void (*thread_join)(void *ctx, struct tm_thread *thread);
    /* Monotonic nanoseconds. Behaviour never depends on the wall clock. */
    uint64_t (*now_ns)(void *ctx);
    /* Fill `buffer`; 0, or an errno value. */
    int (*random)(void *ctx, void *buffer, size_t length);
};

/** pthreads, CLOCK_MONOTONIC, getrandom. Static storage. */
const struct tm_runtime *tm_runtime_posix(void);

#endif
