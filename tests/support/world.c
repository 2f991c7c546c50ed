/* SPDX-License-Identifier: MIT
 *
 * tests/support/world.c -- the simulated world that world.h describes.
 */
#include "tests/support/world.h"

#include <inttypes.h>
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

static void
require_none(uint64_t count, const char *what)
{
    if (count == 0)
        return;
    fprintf(stderr, "world: leak of %" PRIu64 " %s\n", count, what);
    abort();
}

void
world_check_leaks(const struct world *world)
{
    require_none(atomic_load(&world->alloc.live_count), "blocks of memory");
    require_none(atomic_load(&world->alloc.live_bytes), "bytes of memory");
    if (world->baton != NULL)
        require_none(baton_thread_count(world->baton), "threads");
    if (sim_stopped(world->sim))
        return; // nothing could be closed
    require_none(sim_open_descriptors(world->sim), "descriptors");
    if (sim_fault_count(world->sim) == 0)
        require_none(sim_open_mappings(world->sim), "mappings");
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
