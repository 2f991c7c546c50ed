/* SPDX-License-Identifier: MIT
 *
 * tests/engine/test_crash_images.c -- the power goes at any call, and what was promised is there (C1, C2, C3).
 *
 * A life of a store is run once to learn how many calls it makes, then again with the machine stopped at a drawn call.
 * Each stopped machine is crashed by every policy, and killed; half of the images crash again while they are recovered.
 */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "tests/engine/store_oracle.h"

enum {
    KILLED = SIM_POLICY_COUNT, // the process only; the machine goes on
    ENDS,
    LIFE_STEPS = 150,
    LIVES = 100,
    STOPS = 6, // LIVES * STOPS * ENDS = 5400 images
    // Recovering a small store takes 30 to 100 calls.
    RECOVERY_CALLS = 80,
};

static struct oracle oracle;
static uint64_t image_counts[ENDS];
static uint64_t second_crash_count;

static const char *
end_name(size_t end)
{
    return end == KILLED ? "killed" : sim_policy_name((enum sim_policy)end);
}

static struct sim *
end_machine(struct sim *sim, size_t end, uint64_t seed)
{
    return end == KILLED ? sim_clone(sim) : sim_crash(sim, (enum sim_policy)end, seed);
}

static size_t
end_least(size_t end)
{
    return end == KILLED ? oracle.acked : oracle_least(&oracle, (enum sim_policy)end);
}

static void
print_counts(const char *what)
{
    uint64_t sum = 0;

    for (size_t end = 0; end < ENDS; end++)
        sum += image_counts[end];
    printf("%s: %" PRIu64 " images, %" PRIu64 " of them crashed twice;", what, sum,
           second_crash_count);
    for (size_t end = 0; end < ENDS; end++)
        printf(" %s %" PRIu64, end_name(end), image_counts[end]);
    printf("\n");
    fflush(stdout);
}

static unsigned
flags_of(uint64_t seed)
{
    return WORLD_BATON | (seed % 2 != 0 ? WORLD_MAP_LOGS : 0);
}

/* How many calls a life makes. */
static uint64_t
count_calls(uint64_t seed)
{
    struct world *world = world_create(seed, flags_of(seed));
    uint64_t count;

    memset(&oracle, 0, sizeof oracle);
    oracle_drive(&oracle, world, seed, LIFE_STEPS);
    count = sim_call_count(world->sim);
    world_destroy(world);
    return count;
}

/* Open the image, and stop at call `stop`. */
static void
open_until(struct world *world, uint64_t stop, const char *what)
{
    tamis_db *db = NULL;
    tamis_error err = {0};
    tamis_status status;

    sim_stop_at(world->sim, sim_call_count(world->sim) + stop);
    status = oracle_open(world, &db, &err);
    ck_assert_msg(status == TAMIS_OK || sim_stopped(world->sim), "%s: first open: %s (%s)", what,
                  err.message, err.where);
    if (status == TAMIS_OK)
        (void)tamis_close(db, NULL);
}

/* `image` replaces the machine, crashes again perhaps, and is judged. */
static size_t
judge_image(struct world *world, struct sim *image, size_t end, struct rng *rng, const char *what)
{
    size_t least = end_least(end);
    char text[200];

    world_take_sim(world, image);
    snprintf(text, sizeof text, "%s", what);
    if (rng_chance(rng, 1, 2)) {
        enum sim_policy again = (enum sim_policy)rng_below(rng, SIM_POLICY_COUNT);
        uint64_t stop = 1 + rng_below(rng, RECOVERY_CALLS);

        snprintf(text, sizeof text, "%s, then %s at call %" PRIu64 " of recovery", what,
                 sim_policy_name(again), stop);
        open_until(world, stop, text);
        world_crash(world, again, rng_next(rng));
        if (end == KILLED) // what was pending could be lost now
            least = oracle_least(&oracle, again);
        second_crash_count++;
    }
    image_counts[end]++;
    return oracle_check(&oracle, world, least, text);
}

static void
crash_life(uint64_t seed, uint64_t stop, struct rng *rng)
{
    struct world *world = world_create(seed, flags_of(seed));
    struct sim *images[ENDS];

    memset(&oracle, 0, sizeof oracle);
    sim_stop_at(world->sim, stop);
    oracle_drive(&oracle, world, seed, LIFE_STEPS);
    ck_assert(sim_stopped(world->sim));
    for (size_t end = 0; end < ENDS; end++)
        images[end] = end_machine(world->sim, end, rng_next(rng));
    for (size_t end = 0; end < ENDS; end++) {
        char what[100];

        snprintf(what, sizeof what, "life %" PRIu64 " stopped at call %" PRIu64 ", %s", seed, stop,
                 end_name(end));
        (void)judge_image(world, images[end], end, rng, what);
    }
    world_destroy(world);
}

START_TEST(a_crash_leaves_a_prefix_that_holds_all_that_was_promised)
{
    uint64_t seed = rng_seed("a_crash_leaves_a_prefix_that_holds_all_that_was_promised", 1);
    size_t lives = oracle_scaled(LIVES);

    for (uint64_t life = seed; life < seed + lives; life++) {
        struct rng rng = rng_from(life * 77);
        uint64_t total = count_calls(life);

        for (size_t i = 0; i < STOPS; i++)
            crash_life(life, 1 + rng_below(&rng, total), &rng);
    }
    print_counts("lives");
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("crash_images");
    TCase *tests = tcase_create("crash_images");

    tcase_set_timeout(tests, 0);
    tcase_add_test(tests, a_crash_leaves_a_prefix_that_holds_all_that_was_promised);
    suite_add_tcase(suite, tests);
    return check_run(suite);
}
