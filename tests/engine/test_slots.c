/* SPDX-License-Identifier: MIT
 *
 * tests/engine/test_slots.c -- slots of running reads: claims, what they keep alive, and what is counted in them.
 */
#include <check.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

#include "engine/db_internal.h"
#include "tests/support/check_status.h"
#include "tests/support/world.h"

enum {
    READERS = 3,
    CLAIMS = 40000,
    VIEWS = 64,
    DESTROYED_LEAST = 500, // views, while readers run
    DESTROYED = 1000000,   // in `references`: readers see it
};

static struct world *world;
static struct tm_slots slots;
static tamis_error err;

static void
set_up(void)
{
    world = world_create(0, 1);
    memset(&slots, 0, sizeof slots);
    check_ok(tm_slots_init(&slots, &world->env, &err), err);
}

static void
tear_down(void)
{
    tm_slots_deinit(&slots, &world->env);
    world_destroy(world);
}

START_TEST(slots_stand_on_lines_of_their_own_and_are_claimed_once)
{
    static struct tm_view view;
    _Atomic(struct tm_view *) newest = &view;
    struct tm_slot *claimed[TM_SLOT_COUNT];
    struct tm_view *found;
    bool moved;

    ck_assert(!tm_slots_are_used(&slots));
    for (size_t i = 0; i < TM_SLOT_COUNT; i++) {
        claimed[i] = tm_slot_claim(&slots, &newest, &found, &moved);
        ck_assert_ptr_nonnull(claimed[i]);
        ck_assert_uint_eq((uintptr_t)claimed[i] % TM_CACHE_LINE_BYTES, 0);
        ck_assert_ptr_eq(found, &view);
        ck_assert(!moved);
        for (size_t j = 0; j < i; j++)
            ck_assert_ptr_ne(claimed[i], claimed[j]);
    }
    ck_assert_ptr_null(tm_slot_claim(&slots, &newest, &found, &moved)); // all are taken
    ck_assert(tm_slot_free(claimed[77], &view));
    ck_assert_ptr_eq(tm_slot_claim(&slots, &newest, &found, &moved), claimed[77]);
    for (size_t i = 0; i < TM_SLOT_COUNT; i++) {
        ck_assert(tm_slots_hold(&slots, &view));
        ck_assert(!tm_slot_free(claimed[i], &view)); // marked (O4)
        ck_assert(tm_slots_are_used(&slots));
        tm_slot_free_marked(claimed[i]);
    }
    ck_assert(!tm_slots_hold(&slots, &view));
    ck_assert(!tm_slots_are_used(&slots));
}
END_TEST

START_TEST(an_index_is_given_once_and_begins_with_zero_counts)
{
    static struct tm_view view;
    _Atomic(struct tm_view *) newest = &view;
    struct tm_file file = {0};
    struct tm_file_counts sum;
    struct tm_slot *slot;
    struct tm_view *found;
    uint32_t index;
    bool moved;

    for (uint32_t i = 0; i < 200; i++) {
        check_ok(tm_slots_take_index(&slots, &world->env, &index, &err), err);
        ck_assert_uint_eq(index, i); // the lowest that is free
    }
    slot = tm_slot_claim(&slots, &newest, &found, &moved);
    ck_assert_ptr_nonnull(slot);
    tm_slot_make_room(slot, &world->env, 10);
    ck_assert_uint_ge(slot->file_capacity, 10);
    tm_slot_count(&slot->files[7].negatives, 5);
    tm_slot_make_room(slot, &world->env, 200); // what was counted comes along
    ck_assert_uint_ge(slot->file_capacity, 200);
    tm_slot_count(&slot->files[7].negatives, 2);
    tm_slot_count(&slot->files[8].true_positives, 3);
    ck_assert(tm_slot_free(slot, found));

    file.count_index = 7;
    atomic_store(&file.counts.negatives, 100);
    tm_slots_sum_file(&slots, &file, &sum);
    ck_assert_uint_eq(atomic_load(&sum.negatives), 107);
    tm_slots_give_index(&slots, 7);
    atomic_store(&file.counts.negatives, 0);
    tm_slots_sum_file(&slots, &file, &sum);
    ck_assert_uint_eq(atomic_load(&sum.negatives), 0); // O3
    check_ok(tm_slots_take_index(&slots, &world->env, &index, &err), err);
    ck_assert_uint_eq(index, 7);
    file.count_index = 8;
    tm_slots_sum_file(&slots, &file, &sum);
    ck_assert_uint_eq(atomic_load(&sum.true_positives), 3);
}
END_TEST

/* ---- At the same time ----------------------------------------------------------------------------- */

static struct {
    _Atomic(struct tm_view *) newest;
    struct tm_view views[VIEWS];
    _Atomic uint32_t running;
    _Atomic uint64_t destroyed;
    _Atomic uint64_t told; // readers that found a mark, or might have
} stage;

struct reader {
    pthread_t thread;
    uint64_t claims, moves;
    uint64_t dead_views; // ck_assert() costs a system call, and these are many
};

/* Claim, look at the view for a while, and find it alive all the time (O1). */
static void *
claim_on(void *arg)
{
    struct reader *reader = arg;

    for (; reader->claims < CLAIMS || atomic_load(&stage.destroyed) < DESTROYED_LEAST ||
           atomic_load(&stage.told) == 0;
         reader->claims++) {
        struct tm_view *view;
        bool moved;
        struct tm_slot *slot = tm_slot_claim(&slots, &stage.newest, &view, &moved);

        reader->moves += moved;
        for (int i = 0; i < 8; i++)
            reader->dead_views +=
                atomic_load_explicit(&view->references, memory_order_relaxed) != 1;
        tm_slot_count(&slot->counts.gets, 1);
        if (moved || !tm_slot_free(slot, view)) {
            atomic_fetch_add(&stage.told, 1);
            tm_slot_free_marked(slot);
        }
    }
    atomic_fetch_sub(&stage.running, 1);
    return NULL;
}

/* Replace the newest view, and destroy those that no slot holds; a destroyed one is used again, as memory is. */
static uint64_t
replace_until_readers_end(void)
{
    struct tm_view *retired = NULL;
    struct tm_view *unused = NULL;
    uint64_t destroyed = 0;

    for (size_t i = 1; i < VIEWS; i++) {
        atomic_store(&stage.views[i].references, DESTROYED);
        stage.views[i].retired_next = unused;
        unused = &stage.views[i];
    }
    while (atomic_load(&stage.running) != 0) {
        struct tm_view **link = &retired;
        struct tm_view *old;

        if (unused != NULL) {
            struct tm_view *next = unused;

            unused = next->retired_next;
            atomic_store_explicit(&next->references, 1, memory_order_relaxed);
            old = atomic_exchange_explicit(&stage.newest, next, memory_order_seq_cst);
            old->retired_next = retired;
            retired = old;
        }
        while (*link != NULL) {
            struct tm_view *view = *link;

            if (tm_slots_hold(&slots, view)) {
                link = &view->retired_next;
                continue;
            }
            *link = view->retired_next;
            atomic_store_explicit(&view->references, DESTROYED, memory_order_relaxed);
            view->retired_next = unused;
            unused = view;
            destroyed++;
            atomic_store(&stage.destroyed, destroyed);
        }
    }
    return destroyed;
}

START_TEST(a_view_lives_as_long_as_it_stands_in_a_slot)
{
    struct reader readers[READERS] = {0};
    struct tm_read_counts shared = {0};
    struct tm_read_counts sum;
    uint64_t moves = 0;
    uint64_t claims = 0;
    uint64_t destroyed;

    atomic_store(&stage.views[0].references, 1);
    atomic_store(&stage.newest, &stage.views[0]);
    atomic_store(&stage.running, READERS);
    for (int i = 0; i < READERS; i++)
        ck_assert_int_eq(pthread_create(&readers[i].thread, NULL, claim_on, &readers[i]), 0);
    destroyed = replace_until_readers_end();
    for (int i = 0; i < READERS; i++) {
        ck_assert_int_eq(pthread_join(readers[i].thread, NULL), 0);
        moves += readers[i].moves;
        claims += readers[i].claims;
        ck_assert_uint_eq(readers[i].dead_views, 0);
    }
    printf("%llu views destroyed, %llu claims met a replacement\n", (unsigned long long)destroyed,
           (unsigned long long)moves);
    ck_assert_uint_ge(destroyed, DESTROYED_LEAST);
    ck_assert_uint_gt(atomic_load(&stage.told), 0);
    tm_slots_sum_reads(&slots, &shared, &sum);
    ck_assert_uint_eq(atomic_load(&sum.gets), claims); // none is lost
    ck_assert(!tm_slots_are_used(&slots));
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("slots");
    TCase *tests = tcase_create("slots");

    tcase_add_checked_fixture(tests, set_up, tear_down);
    tcase_add_test(tests, slots_stand_on_lines_of_their_own_and_are_claimed_once);
    tcase_add_test(tests, an_index_is_given_once_and_begins_with_zero_counts);
    tcase_add_test(tests, a_view_lives_as_long_as_it_stands_in_a_slot);
    suite_add_tcase(suite, tests);
    return check_run(suite);
}
