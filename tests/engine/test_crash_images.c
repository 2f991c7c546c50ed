/* SPDX-License-Identifier: MIT
 *
 * tests/engine/test_crash_images.c -- the power goes at any call, and what was promised is there (C1, C2, C3).
 *
 * A life of a store is run once to learn how many calls it makes, then again with the machine stopped at a drawn call.
 * Each stopped machine is crashed by every policy, and killed; half of the images crash again while they are recovered.
 * Creation and recovery are stopped at every call.
 */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "tests/engine/store_oracle.h"

enum {
    KILLED = SIM_POLICY_COUNT, // the process only; the machine goes on
    ENDS,
    LIFE_STEPS = 150,
    LIVES = 60,
    STOPS = 6, // LIVES * STOPS * ENDS = 3240 images
    // Recovering a small store takes 30 to 100 calls.
    RECOVERY_CALLS = 80,
    CHAINS = 20,
    CHAIN_CRASHES = 10,
    CHAIN_STEPS = 100,
    CHAIN_CALLS = 400, // at most, between two crashes of a chain
    WRITERS = 3,
    WRITER_WRITES = 60,
    GROUP_LIVES = 60,
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
    memset(image_counts, 0, sizeof image_counts);
    second_crash_count = 0;
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

/* ---- Creation and recovery, every call ------------------------------------------------------------ */

START_TEST(a_crash_at_any_call_of_creation_leaves_nothing_or_an_empty_store)
{
    uint64_t seed = rng_seed("a_crash_at_any_call_of_creation_leaves_nothing_or_an_empty_store", 2);
    struct rng rng = rng_from(seed);
    bool finished = false;

    for (uint64_t stop = 1; !finished; stop += 1 + oracle_stride() / 8) {
        for (size_t end = 0; end < ENDS; end++) {
            struct world *world = world_create(seed, flags_of(stop));
            char what[100];

            memset(&oracle, 0, sizeof oracle);
            open_until(world, stop, "creation");
            // The store is closed as well: the sweep ends where even that is over.
            finished = !sim_stopped(world->sim);
            snprintf(what, sizeof what, "creation stopped at call %" PRIu64 ", %s", stop,
                     end_name(end));
            (void)judge_image(world, end_machine(world->sim, end, rng_next(&rng)), end, &rng, what);
            oracle_drive(&oracle, world, stop, 20);
            ck_assert_uint_eq(oracle_survivors(&oracle, world, oracle.count, what), oracle.count);
            world_destroy(world);
        }
    }
    print_counts("creation");
}
END_TEST

struct name_count {
    const char *text; // in the name
    size_t count;
};

static void
count_name(void *arg, const char *name)
{
    struct name_count *names = arg;

    names->count += strstr(name, names->text) != NULL;
}

static size_t
count_names(struct sim *sim, const char *text)
{
    struct name_count names = {text, 0};

    sim_file_each(sim, ORACLE_DIR, count_name, &names);
    return names.count;
}

static const char *const leftovers[] = {"CURRENT.tmp", "MANIFEST-000900", "000901.sst"};

/* Kill a life where two logs and some tables are there; the machine it leaves, with leftovers. */
static struct sim *
make_rich_machine(uint64_t seed)
{
    struct rng rng = rng_from(seed);
    uint64_t total = count_calls(seed);

    for (int attempt = 0; attempt < 200; attempt++) {
        struct world *world = world_create(seed, flags_of(seed));
        struct sim *machine;

        memset(&oracle, 0, sizeof oracle);
        sim_stop_at(world->sim, total / 4 + rng_below(&rng, total - total / 4));
        oracle_drive(&oracle, world, seed, LIFE_STEPS);
        if (count_names(world->sim, ".wal") >= 2 && count_names(world->sim, ".sst") >= 3 &&
            oracle.acked > oracle.synced) {
            for (size_t i = 0; i < sizeof leftovers / sizeof *leftovers; i++)
                sim_file_put(world->sim, ORACLE_DIR, leftovers[i], "left", 4);
            machine = sim_clone(world->sim);
            world_destroy(world);
            return machine;
        }
        world_destroy(world);
    }
    ck_abort_msg("life %" PRIu64 " never has two logs and three tables", seed);
}

/* Recovery of `base` is stopped at every call, and the machine crashes by every policy. `base_least` writes are in it, and
 * `durable_least` of them for good. */
static void
sweep_recovery(uint64_t seed, struct sim *base, const char *base_name, size_t base_least,
               size_t durable_least)
{
    struct rng rng = rng_from(seed);
    bool finished = false;
    uint64_t stop;

    for (stop = 1; !finished; stop += oracle_stride()) {
        struct world *world = world_create(seed, flags_of(seed));
        struct sim *images[SIM_POLICY_COUNT];

        world_take_sim(world, sim_clone(base));
        open_until(world, stop, base_name);
        finished = !sim_stopped(world->sim);
        for (size_t end = 0; end < SIM_POLICY_COUNT; end++)
            images[end] = end_machine(world->sim, end, rng_next(&rng));
        for (size_t end = 0; end < SIM_POLICY_COUNT; end++) {
            bool keeps_all = end == SIM_P1_ALL || end == SIM_P7_UNLINK_UNDONE;
            char what[120];

            snprintf(what, sizeof what,
                     "life %" PRIu64 " %s, recovery stopped at call %" PRIu64 ", %s", seed,
                     base_name, stop, end_name(end));
            world_take_sim(world, images[end]);
            (void)oracle_check(&oracle, world, keeps_all ? base_least : durable_least, what);
            for (size_t i = 0; i < sizeof leftovers / sizeof *leftovers; i++)
                ck_assert_msg(count_names(world->sim, leftovers[i]) == 0, "%s: %s is still there",
                              what, leftovers[i]);
            image_counts[end]++;
        }
        world_destroy(world);
    }
    printf("life %" PRIu64 " %s: recovery and close make %" PRIu64 " calls\n", seed, base_name,
           stop);
}

START_TEST(a_crash_at_any_call_of_recovery_loses_nothing)
{
    uint64_t seed = rng_seed("a_crash_at_any_call_of_recovery_loses_nothing", 1);

    for (uint64_t life = seed; life < seed + 2; life++) {
        struct sim *killed = make_rich_machine(life);
        struct sim *cut = sim_crash(killed, SIM_P1_ALL, life);

        sweep_recovery(life, cut, "cut", oracle.acked, oracle.acked);
        sweep_recovery(life, killed, "killed", oracle.acked, oracle.synced);
        sim_destroy(cut);
        sim_destroy(killed);
    }
    print_counts("recovery");
}
END_TEST

START_TEST(a_chain_of_crashes_loses_nothing_that_was_shown_between_them)
{
    uint64_t seed = rng_seed("a_chain_of_crashes_loses_nothing_that_was_shown_between_them", 5);
    size_t chains = oracle_scaled(CHAINS);

    for (uint64_t chain = seed; chain < seed + chains; chain++) {
        struct world *world = world_create(chain, flags_of(chain));
        struct rng rng = rng_from(chain);

        memset(&oracle, 0, sizeof oracle);
        for (int i = 0; i < CHAIN_CRASHES; i++) {
            size_t end = rng_below(&rng, ENDS);
            char what[100];

            snprintf(what, sizeof what, "chain %" PRIu64 ", crash %d, %s", chain, i, end_name(end));
            sim_stop_at(world->sim, sim_call_count(world->sim) + 1 + rng_below(&rng, CHAIN_CALLS));
            oracle_drive(&oracle, world, rng_next(&rng), CHAIN_STEPS);
            oracle_continue(
                &oracle,
                judge_image(world, end_machine(world->sim, end, rng_next(&rng)), end, &rng, what));
        }
        world_destroy(world);
    }
    print_counts("chains");
}
END_TEST

/* ---- Several writers ------------------------------------------------------------------------------ */

/* Writers have keys of their own, so the commit order shows in what each was told when: a write is before another if it
 * was answered before the other was asked for. The baton runs one thread at a time, so a plain counter is a clock. */
struct writer {
    tamis_db *db;
    struct sim *sim;
    size_t number;
    struct rng rng;
    size_t count; // asked for
    uint64_t asked[WRITER_WRITES];
    uint64_t answered[WRITER_WRITES]; // 0: no answer that counts
    bool synced[WRITER_WRITES];
    size_t survivors;
};

static struct writer writers[WRITERS];
static uint64_t writer_clock;

static const char *
writer_key(const struct writer *writer, size_t write, char half, char text[32])
{
    snprintf(text, 32, "%zu-%04zu-%c", writer->number, write, half);
    return text;
}

static void
write_until_stopped(void *arg)
{
    struct writer *writer = arg;
    char value[3000] = {0};
    char key[32];

    for (size_t i = 0; i < WRITER_WRITES && !sim_stopped(writer->sim); i++) {
        tamis_slice bytes = {value, (size_t)rng_below(&writer->rng, sizeof value)};
        tamis_write_options options;
        tamis_batch *batch;
        tamis_status status;

        tamis_write_options_init(&options);
        options.sync = writer->synced[i] = rng_chance(&writer->rng, 1, 5);
        if (tamis_batch_create(NULL, &batch, NULL) != TAMIS_OK)
            abort();
        for (char half = 'a'; half <= 'b'; half++)
            if (tamis_batch_put(batch, tamis_text(writer_key(writer, i, half, key)), bytes, NULL) !=
                TAMIS_OK)
                abort();
        writer->asked[i] = ++writer_clock;
        writer->count = i + 1;
        status = tamis_write(writer->db, &options, batch, NULL);
        tamis_batch_destroy(batch);
        if (!sim_stopped(writer->sim)) {
            if (status != TAMIS_OK)
                abort();
            writer->answered[i] = ++writer_clock;
        }
    }
}

/* Open a store, let the writers write, close it. */
static void
drive_writers(struct world *world, uint64_t seed)
{
    const struct tm_runtime *runtime = world->env.runtime;
    struct tm_thread threads[WRITERS];
    tamis_db *db = NULL;
    tamis_error err;

    memset(writers, 0, sizeof writers);
    writer_clock = 0;
    if (!oracle_went_on(world, "open", oracle_open(world, &db, &err), &err) && db == NULL)
        return;
    for (size_t i = 0; i < WRITERS; i++) {
        writers[i] = (struct writer){
            .db = db, .sim = world->sim, .number = i, .rng = rng_from(seed * WRITERS + i)};
        ck_assert_int_eq(
            runtime->thread_start(runtime->ctx, &threads[i], write_until_stopped, &writers[i]), 0);
    }
    for (size_t i = 0; i < WRITERS; i++)
        runtime->thread_join(runtime->ctx, &threads[i]);
    (void)oracle_went_on(world, "close", tamis_close(db, &err), &err);
}

/* Each writer's survivors are its first writes, batches whole. */
static void
read_survivors(struct world *world, const char *what)
{
    tamis_db *db = NULL;
    tamis_error err = {0};
    char key[32];

    ck_assert_msg(oracle_open(world, &db, &err) == TAMIS_OK, "%s: open: %s", what, err.message);
    for (size_t w = 0; w < WRITERS; w++) {
        bool lost = false;

        writers[w].survivors = 0;
        for (size_t i = 0; i < writers[w].count; i++) {
            bool halves[2];

            for (size_t half = 0; half < 2; half++)
                check_ok(
                    tamis_exists(db, NULL,
                                 tamis_text(writer_key(&writers[w], i, half == 0 ? 'a' : 'b', key)),
                                 &halves[half], &err),
                    err);
            ck_assert_msg(halves[0] == halves[1], "%s: half of the batch of %s", what, key);
            ck_assert_msg(!halves[0] || !lost, "%s: %s is there, an earlier one is not", what, key);
            lost |= !halves[0];
            writers[w].survivors += halves[0];
        }
    }
    check_ok(tamis_close(db, &err), err);
}

static void
judge_survivors(bool keeps_all, const char *what)
{
    for (size_t w = 0; w < WRITERS; w++) {
        const struct writer *loser = &writers[w];

        for (size_t i = loser->survivors; i < loser->count; i++) {
            if (loser->answered[i] == 0)
                continue;
            ck_assert_msg(!keeps_all && !loser->synced[i],
                          "%s: write %zu of writer %zu was promised and is lost", what, i, w);
            for (size_t other = 0; other < WRITERS; other++) {
                const struct writer *keeper = &writers[other];

                ck_assert_msg(
                    keeper->survivors == 0 ||
                        keeper->asked[keeper->survivors - 1] < loser->answered[i],
                    "%s: writer %zu keeps a write that came after one that writer %zu lost", what,
                    other, w);
            }
        }
    }
}

START_TEST(writers_that_share_the_log_lose_a_common_suffix)
{
    uint64_t seed = rng_seed("writers_that_share_the_log_lose_a_common_suffix", 1);
    struct rng rng = rng_from(seed);
    size_t lives = oracle_scaled(GROUP_LIVES);
    uint64_t shared = 0;

    for (uint64_t life = seed; life < seed + lives; life++) {
        struct world *world = world_create(life, flags_of(life));
        struct sim *images[ENDS];

        sim_stop_at(world->sim, 20 + rng_below(&rng, 500));
        drive_writers(world, life);
        for (size_t end = 0; end < ENDS; end++)
            images[end] = end_machine(world->sim, end, rng_next(&rng));
        for (size_t end = 0; end < ENDS; end++) {
            char what[100];

            snprintf(what, sizeof what, "life %" PRIu64 ", %s", life, end_name(end));
            world_take_sim(world, images[end]);
            read_survivors(world, what);
            judge_survivors(end == KILLED || end == SIM_P1_ALL || end == SIM_P7_UNLINK_UNDONE,
                            what);
            image_counts[end]++;
            shared += writers[0].survivors != 0 && writers[1].survivors != 0;
        }
        world_destroy(world);
    }
    ck_assert_uint_gt(shared, 0);
    print_counts("writers");
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("crash_images");
    TCase *tests = tcase_create("crash_images");

    tcase_set_timeout(tests, 0);
    tcase_add_test(tests, a_crash_leaves_a_prefix_that_holds_all_that_was_promised);
    tcase_add_test(tests, a_crash_at_any_call_of_creation_leaves_nothing_or_an_empty_store);
    tcase_add_test(tests, a_crash_at_any_call_of_recovery_loses_nothing);
    tcase_add_test(tests, a_chain_of_crashes_loses_nothing_that_was_shown_between_them);
    tcase_add_test(tests, writers_that_share_the_log_lose_a_common_suffix);
    suite_add_tcase(suite, tests);
    return check_run(suite);
}
