/* SPDX-License-Identifier: MIT
 *
 * tests/engine/test_walks_beside.c -- two iterators beside two writers, while memtables are flushed and tables compacted.
 *
 * Writers work on groups of GROUP_KEYS keys. A batch gives all keys of a group one new stamp, or deletes them, by keys
 * or as a range: so whoever sees a group sees all of it, with one stamp, or nothing of it.
 */
#include <pthread.h>
#include <stdatomic.h>

#include "tests/engine/one_store.h"
#include "tests/support/rng.h"

enum {
    WRITERS = 2,
    WALKERS = 2,
    GROUPS = 150,
    GROUP_KEYS = 4,
    VALUE_BYTES = 120,
    BATCHES = 4000 / ONE_STORE_DIVISOR, // of each writer
    WALKS_MIN = 12,
};

static struct {
    _Atomic unsigned writing; // writers that are not done
    uint64_t seed;
} stage;

struct worker {
    pthread_t thread;
    unsigned number;
    struct rng rng;
    uint64_t walks, turns, groups;
};

/* Check's own assertions go through a pipe to the parent: one at a time. These end the process. */
#define must(condition)                                                                            \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                        \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

static tamis_slice
member_key(char text[32], unsigned group, unsigned member)
{
    snprintf(text, 32, "group %04u member %u", group, member);
    return tamis_text(text);
}

/* ---- Writers -------------------------------------------------------------------------------------- */

static void
change_group(tamis_batch *batch, unsigned group, unsigned how, uint64_t stamp)
{
    char value[VALUE_BYTES] = {0};
    char text[32], end_text[32];
    tamis_error err;

    memcpy(value, &stamp, sizeof stamp);
    tamis_batch_clear(batch);
    if (how == 0)
        must(tamis_batch_delete_range(batch, member_key(text, group, 0),
                                      member_key(end_text, group, GROUP_KEYS), &err) == TAMIS_OK);
    for (unsigned i = 0; how != 0 && i < GROUP_KEYS; i++) {
        tamis_slice key = member_key(text, group, i);

        must((how == 1 ? tamis_batch_delete(batch, key, &err)
                       : tamis_batch_put(batch, key, (tamis_slice){value, sizeof value}, &err)) ==
             TAMIS_OK);
    }
    must(tamis_write(one.db, NULL, batch, &err) == TAMIS_OK);
}

static void *
write_on(void *arg)
{
    struct worker *worker = arg;
    tamis_batch *batch;
    tamis_error err;

    must(tamis_batch_create(NULL, &batch, &err) == TAMIS_OK);
    for (uint64_t i = 0; i < BATCHES; i++)
        change_group(batch, (unsigned)rng_below(&worker->rng, GROUPS),
                     (unsigned)rng_below(&worker->rng, 8), i * WRITERS + worker->number);
    tamis_batch_destroy(batch);
    atomic_fetch_sub(&stage.writing, 1);
    return NULL;
}

/* ---- Walkers -------------------------------------------------------------------------------------- */

/* What a walk has seen: the stamp of each group, as one number. */
struct sight {
    uint64_t digest;
    unsigned groups;
};

/* The iterator stands on a member of a group, where the walk comes to it: it sees the whole of it, and leaves it. */
static void
see_group(tamis_iter *iter, bool backward, struct sight *sight)
{
    uint64_t stamp = 0;
    unsigned group = 0;
    char text[32];

    for (unsigned i = 0; i < GROUP_KEYS; i++) {
        unsigned member = backward ? GROUP_KEYS - 1 - i : i;
        tamis_slice key;
        uint64_t found;

        must(tamis_iter_valid(iter));
        key = tamis_iter_key(iter);
        memcpy(&found, tamis_iter_value(iter).data, sizeof found);
        if (i == 0) {
            must(key.length < sizeof text);
            memcpy(text, key.data, key.length);
            text[key.length] = '\0';
            must(sscanf(text, "group %4u", &group) == 1);
            stamp = found;
        }
        must(found == stamp);
        member_key(text, group, member);
        must(key.length == strlen(text) && memcmp(key.data, text, key.length) == 0);
        if (backward)
            tamis_iter_prev(iter);
        else
            tamis_iter_next(iter);
    }
    sight->digest += (stamp + 1) * (group + 1) * UINT64_C(0x9e3779b97f4a7c15);
    sight->groups++;
}

static struct sight
see_all(struct worker *worker, tamis_iter *iter, bool backward)
{
    struct sight sight = {0};
    tamis_error err;

    if (backward)
        tamis_iter_last(iter);
    else
        tamis_iter_first(iter);
    while (tamis_iter_valid(iter)) {
        if (rng_chance(&worker->rng, 1, 16)) { // turn round, and back
            if (backward) {
                tamis_iter_next(iter);
                if (tamis_iter_valid(iter))
                    tamis_iter_prev(iter);
                else
                    tamis_iter_last(iter);
            } else {
                tamis_iter_prev(iter);
                if (tamis_iter_valid(iter))
                    tamis_iter_next(iter);
                else
                    tamis_iter_first(iter);
            }
            worker->turns++;
        }
        see_group(iter, backward, &sight);
    }
    must(tamis_iter_status(iter, &err) == TAMIS_OK);
    return sight;
}

/* A seek lands on the first or last member of a group. */
static void
seek_somewhere(struct worker *worker, tamis_iter *iter)
{
    unsigned group = (unsigned)rng_below(&worker->rng, GROUPS);
    struct sight sight = {0};
    char text[32];

    tamis_iter_seek(iter, member_key(text, group, 0));
    if (tamis_iter_valid(iter))
        see_group(iter, false, &sight);
    tamis_iter_seek_for_prev(iter, member_key(text, group, GROUP_KEYS - 1));
    if (tamis_iter_valid(iter))
        see_group(iter, true, &sight);
}

static void *
walk_on(void *arg)
{
    struct worker *worker = arg;
    bool backward_first = worker->number % 2 != 0;
    tamis_error err;

    while (atomic_load(&stage.writing) != 0 || worker->walks < WALKS_MIN) {
        struct sight one_way, other_way;
        tamis_iter *iter;

        must(tamis_iter_open(one.db, NULL, &iter, &err) == TAMIS_OK);
        one_way = see_all(worker, iter, backward_first);
        for (int i = 0; i < 10; i++)
            seek_somewhere(worker, iter);
        other_way = see_all(worker, iter, !backward_first);
        must(one_way.digest == other_way.digest && one_way.groups == other_way.groups);
        tamis_iter_close(iter);
        worker->groups += one_way.groups;
        worker->walks++;
    }
    return NULL;
}

START_TEST(a_walk_beside_writers_sees_whole_batches_of_one_moment)
{
    struct worker workers[WRITERS + WALKERS] = {0};
    tamis_stats stats;
    uint64_t turns = 0;
    tamis_batch *batch;

    stage.seed = rng_seed("a_walk_beside_writers_sees_whole_batches_of_one_moment", 19);
    check_ok(tamis_batch_create(NULL, &batch, &one.err), one.err);
    for (unsigned i = 0; i < GROUPS; i++) // all are there at first
        change_group(batch, i, 7, 0);
    tamis_batch_destroy(batch);
    atomic_store(&stage.writing, WRITERS);
    for (unsigned i = 0; i < WRITERS + WALKERS; i++) {
        workers[i].number = i;
        workers[i].rng = rng_from(stage.seed + i);
        ck_assert_int_eq(
            pthread_create(&workers[i].thread, NULL, i < WRITERS ? write_on : walk_on, &workers[i]),
            0);
    }
    for (unsigned i = 0; i < WRITERS + WALKERS; i++) {
        ck_assert_int_eq(pthread_join(workers[i].thread, NULL), 0);
        turns += workers[i].turns;
        if (i >= WRITERS) {
            printf("walker %u: %llu walks of %llu groups\n", i,
                   (unsigned long long)workers[i].walks,
                   (unsigned long long)(workers[i].groups / workers[i].walks));
            ck_assert_uint_gt(workers[i].groups, workers[i].walks * GROUPS / 4);
        }
    }
    stats = one_stats();
    ck_assert_uint_gt(turns, 100);
    ck_assert_uint_gt(stats.flush_count, 2);
    ck_assert_uint_gt(stats.compaction_count, 0);
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("walks_beside");
    TCase *tests = tcase_create("walks_beside");

    tcase_add_checked_fixture(tests, one_store_begin, one_store_end);
    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, a_walk_beside_writers_sees_whole_batches_of_one_moment);
    suite_add_tcase(suite, tests);
    return check_run(suite);
}
