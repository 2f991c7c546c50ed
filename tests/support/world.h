/* SPDX-License-Identifier: MIT
 *
 * tests/support/world.h -- everything a store stands on, simulated: machine, threads, memory.
 *
 *   struct tm_env --> allocator    fault_alloc     counts, refuses
 *                 --> fs           tm_fs_posix  -->  sim_os    crashes, fails
 *                 --> runtime      baton           deterministic; or pthreads
 *
 * A test of a store opens it with &world->env, drives it, lets the machine crash, and opens it again:
 *
 *   struct world *world = world_create(seed, WORLD_BATON | WORLD_MAP_LOGS);
 *   sim_stop_at(world->sim, 120);                    // the power goes at the 120th call
 *   ... open, put until an error, close ...          // close fails, and frees all the same
 *   world_crash(world, SIM_P3_PAGES, seed);          // world->sim is the machine after it
 *   ... open, compare with what was acknowledged ...
 *   world_destroy(world);                            // ends the test (abort) if memory, files or threads leak
 *
 * An acknowledgement counts only if sim_stopped(world->sim) is false after it.
 */
#ifndef TAMIS_TESTS_SUPPORT_WORLD_H
#define TAMIS_TESTS_SUPPORT_WORLD_H

#include "sstable/env.h"
#include "sstable/os.h"
#include "tests/support/baton.h"
#include "tests/support/fault_alloc.h"
#include "tests/support/sim_os.h"

enum world_flag {
    WORLD_BATON = 1,    // deterministic threads that take turns at file calls too; else pthreads
    WORLD_MAP_LOGS = 2, // logs through mappings; else written
};

struct world {
    struct tm_env env; // hand &world->env, or its parts, to a store
    struct sim *sim;
    struct baton *baton; // NULL: pthreads
    struct fault_alloc alloc;
    struct tm_fs_posix posix;
    unsigned flags;
};

/** A new machine with nothing on it. Ends the test (abort) without memory. */
struct world *world_create(uint64_t seed, unsigned flags);

/** The power goes: `sim` is replaced by sim_crash(sim, policy, seed). No store may be open. The simulators from
 *  before are destroyed. */
void world_crash(struct world *world, enum sim_policy policy, uint64_t seed);

/** The program was killed: `sim` is replaced by sim_clone(sim). */
void world_restart(struct world *world);

/** Put another machine in its place; the old one is destroyed, `sim` is taken. */
void world_take_sim(struct world *world, struct sim *sim);

/** Abort, with a message, if memory is live or a thread runs; or, unless the machine stopped, if a descriptor is
 *  open or (unless unmapping may have been made to fail) a mapping. */
void world_check_leaks(const struct world *world);

/** world_check_leaks(), then free everything. NULL allowed. */
void world_destroy(struct world *world);

#endif
