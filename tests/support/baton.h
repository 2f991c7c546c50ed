/* SPDX-License-Identifier: MIT
 *
 * tests/support/baton.h -- a deterministic tm_runtime: many threads, one of which runs.
 *
 *   main      ==lock== ...waits for the baton... ==unlock==
 *   worker 1           ==write==wait(predicate)            ....
 *   worker 2  .................................==notify==
 *             who is next: drawn from the seed at every lock, unlock, wait, notify, start, end and file call
 *
 * Invariants
 *   N1  Exactly one thread of the baton runs; the others sleep until it is passed to them.
 *   N2  The order in which it is passed depends on the seed and on what the threads do, on nothing else.
 *   N3  A waiting thread is woken by notify, or when its time is over. When nobody can run and nobody waits for a time, the list of threads and of what each
 *       waits for is printed and the process aborts: a deadlock, or a notify that is missing.
 *
 * The thread that calls baton_create() is one of them; threads that were not started through the runtime must
 * not use it. Time is virtual: it moves by a little at every step.
 *
 * Threads  baton_create() and baton_destroy() from one thread; one baton at a time in it.
 */
#ifndef TAMIS_TESTS_SUPPORT_BATON_H
#define TAMIS_TESTS_SUPPORT_BATON_H

#include <stdint.h>

#include "sstable/runtime.h"

struct baton;

struct baton *baton_create(uint64_t seed);
/** Every started thread must have been joined. NULL allowed. */
void baton_destroy(struct baton *baton);
/** The table to hand to a store. Belongs to `baton`. */
const struct tm_runtime *baton_runtime(struct baton *baton);

/** A point where another thread may go on; fits the `before` of sim_watch(). */
void baton_pass(void *baton);

/** Steps so far: points at which the baton could have been passed. */
uint64_t baton_step_count(const struct baton *baton);
/** A number made of every choice so far: equal for equal runs. */
uint64_t baton_trace(const struct baton *baton);
/** Threads started and not yet joined. */
size_t baton_thread_count(const struct baton *baton);

#endif
