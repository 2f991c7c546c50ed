/* SPDX-License-Identifier: MIT
 *
 * tests/support/world.c -- the simulated world that world.h describes.
 */
#include "tests/support/world.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>

/* Connect the parts that point at the simulator. */
static void
connect_sim(struct world *world)
{
    tm_fs_posix_init(&world->posix, sim_os(world->sim), fault_alloc_allocator(&world->alloc),
                     (world->flags & WORLD_MAP_LOGS) != 0);
    world->env.fs = &world->posix.fs;
    if (world->baton != NULL)
        sim_watch(world->sim, baton_pass, NULL, world->baton);
}

struct world *
world_create(uint64_t seed, unsigned flags)
{
    struct world *world = calloc(1, sizeof *world);

    if (world == NULL)
        abort();
    world->flags = flags;
    fault_alloc_init(&world->alloc);
    world->env.allocator = fault_alloc_allocator(&world->alloc);
    world->sim = sim_create(seed);
    if ((flags & WORLD_BATON) != 0)
        world->baton = baton_create(seed);
    world->env.runtime = world->baton != NULL ? baton_runtime(world->baton) : tm_runtime_posix();
    connect_sim(world);
    return world;
}

void
world_take_sim(struct world *world, struct sim *sim)
{
    sim_destroy(world->sim);
    world->sim = sim;
    connect_sim(world);
}

void
world_crash(struct world *world, enum sim_policy policy, uint64_t seed)
{
    world_take_sim(world, sim_crash(world->sim, policy, seed));
}

void
world_restart(struct world *world)
{
    world_take_sim(world, sim_clone(world->sim));
}

void
world_check_leaks(const struct world *world)
{
    ck_assert_uint_eq(atomic_load(&world->alloc.live_count), 0);
    ck_assert_uint_eq(atomic_load(&world->alloc.live_bytes), 0);
    if (world->baton != NULL)
        ck_assert_uint_eq(baton_thread_count(world->baton), 0);
    if (sim_stopped(world->sim))
        return; // descriptors could not be closed
    ck_assert_uint_eq(sim_open_descriptors(world->sim), 0);
    if (sim_fault_count(world->sim) == 0)
        ck_assert_uint_eq(sim_open_mappings(world->sim), 0);
}

void
world_destroy(struct world *world)
{
    if (world == NULL)
        return;
    world_check_leaks(world);
    sim_destroy(world->sim);
    baton_destroy(world->baton);
    free(world);
}
