/* SPDX-License-Identifier: MIT
 *
 * tests/engine/test_iterator_walks.c -- every walk of up to five moves over every placement of three keys, and of six over
 * every third of them.
 *
 *     keys      b d f, seeks go to a b c d e f g
 *     a key is  absent, in level 1, in level 0, in the memtable, in all three, deleted above, or nothing but deleted
 *     moves     first, last, next, prev, seek, seek_for_prev
 *
 * What an iterator stands on is compared with an array after each move. Meanwhile the store goes on: what is written after
 * the iterator was opened is not seen.
 */
#include "tests/engine/one_store.h"

#include "sstable/env.h"

enum {
    KEYS = 3,
    STATES = 7,
    PLACEMENTS = STATES * STATES * STATES,
    MOVES = 6,
    LENGTH = 5,
    LONGEST = 6,
    LONGEST_EVERY = 3,
    BOUNDED_LENGTH = 4,
    NOWHERE = KEYS,
};

enum state { ABSENT, DEEP, FLUSHED, IN_MEMORY, EVERYWHERE, DELETED_ABOVE, ONLY_DELETED };

static const char *const key_names[KEYS] = {"b", "d", "f"};
static const char *const value_names[KEYS] = {"bb", "dd", "ff"}; // of the newest version
static enum state states[KEYS];

/* ---- The store -------------------------------------------------------------------------------------- */

static void
put(int key, bool newest)
{
    one_put(tamis_text(key_names[key]), tamis_text(newest ? value_names[key] : "old"));
}

/* Each key as `states` says; level 1 holds something in any case. */
static void
place_keys(void)
{
    one_put(tamis_text("0"), tamis_text("")); // deleted at the end
    for (int i = 0; i < KEYS; i++)
        if (states[i] == DEEP || states[i] == EVERYWHERE || states[i] == DELETED_ABOVE)
            put(i, states[i] == DEEP);
    one_compact();
    for (int i = 0; i < KEYS; i++) {
        if (states[i] == FLUSHED || states[i] == EVERYWHERE)
            put(i, states[i] == FLUSHED);
        else if (states[i] == ONLY_DELETED)
            one_delete(tamis_text(key_names[i]));
    }
    one_delete(tamis_text("z"));
    one_flush();
    for (int i = 0; i < KEYS; i++) {
        if (states[i] == IN_MEMORY || states[i] == EVERYWHERE) {
            put(i, false);
            put(i, true);
        } else if (states[i] == DELETED_ABOVE) {
            one_delete(tamis_text(key_names[i]));
        }
    }
    one_delete(tamis_text("0"));
}

/* Nothing of this is seen by an iterator that is open. */
static void
write_on(void)
{
    for (int i = 0; i < KEYS; i++) {
        if (states[i] == ABSENT || states[i] == DEEP)
            one_put(tamis_text(key_names[i]), tamis_text("later"));
        else
            one_delete(tamis_text(key_names[i]));
    }
    one_put(tamis_text("c"), tamis_text("later"));
}

/* ---- The reference ------------------------------------------------------------------------------------ */

static const char *lower, *upper; // NULL: none

static bool
is_shown(int key)
{
    return states[key] != ABSENT && states[key] != DELETED_ABOVE && states[key] != ONLY_DELETED &&
           (lower == NULL || strcmp(key_names[key], lower) >= 0) &&
           (upper == NULL || strcmp(key_names[key], upper) < 0);
}

/* The nearest key that is shown, from `key` on in steps of `step`. */
static int
nearest(int key, int step)
{
    while (key >= 0 && key < KEYS && !is_shown(key))
        key += step;
    return key >= 0 && key < KEYS ? key : NOWHERE;
}

static int
reference_move(int at, unsigned move, const char *target)
{
    int key;

    switch (move) {
    case 0:
        return nearest(0, 1);
    case 1:
        return nearest(KEYS - 1, -1);
    case 2:
        return at == NOWHERE ? NOWHERE : nearest(at + 1, 1);
    case 3:
        return at == NOWHERE ? NOWHERE : nearest(at - 1, -1);
    case 4:
        for (key = 0; key < KEYS && strcmp(key_names[key], target) < 0;)
            key++;
        return nearest(key, 1);
    default:
        for (key = KEYS - 1; key >= 0 && strcmp(key_names[key], target) > 0;)
            key--;
        return nearest(key, -1);
    }
}

/* ---- Walks ------------------------------------------------------------------------------------------ */

static uint64_t move_count;

static void
move_iter(tamis_iter *iter, unsigned move, const char *target)
{
    switch (move) {
    case 0:
        tamis_iter_first(iter);
        break;
    case 1:
        tamis_iter_last(iter);
        break;
    case 2:
        tamis_iter_next(iter);
        break;
    case 3:
        tamis_iter_prev(iter);
        break;
    case 4:
        tamis_iter_seek(iter, tamis_text(target));
        break;
    default:
        tamis_iter_seek_for_prev(iter, tamis_text(target));
        break;
    }
    move_count++;
}

static void
check_stands_on(const tamis_iter *iter, int at, unsigned walk)
{
    if (tamis_iter_valid(iter) == (at != NOWHERE) && tamis_iter_status(iter, NULL) == TAMIS_OK &&
        (at == NOWHERE || (tm_slice_equal(tamis_iter_key(iter), tamis_text(key_names[at])) &&
                           tm_slice_equal(tamis_iter_value(iter), tamis_text(value_names[at])))))
        return;
    ck_abort_msg("states %d %d %d, bounds %s %s, walk %u: expected %s, found '%.*s' (%d)",
                 states[0], states[1], states[2], lower, upper, walk,
                 at == NOWHERE ? "nothing" : key_names[at], (int)tamis_iter_key(iter).length,
                 (const char *)tamis_iter_key(iter).data, tamis_iter_valid(iter));
}

/* Every string of `length` moves, each beginning nowhere. */
static void
walk_all(tamis_iter *iter, unsigned length, const char *target)
{
    unsigned walk_count = 1;

    for (unsigned i = 0; i < length; i++)
        walk_count *= MOVES;
    for (unsigned walk = 0; walk < walk_count; walk++) {
        unsigned rest = walk;
        int at = NOWHERE;

        tamis_iter_seek(iter, tamis_text("zz"));
        for (unsigned i = 0; i < length; i++, rest /= MOVES) {
            at = reference_move(at, rest % MOVES, target);
            move_iter(iter, rest % MOVES, target);
            check_stands_on(iter, at, walk);
        }
    }
}

static tamis_iter *
open_bounded(void)
{
    tamis_slice lower_slice = tamis_text(lower != NULL ? lower : "");
    tamis_slice upper_slice = tamis_text(upper != NULL ? upper : "");
    tamis_iter_options options;
    tamis_iter *iter = NULL;

    tamis_iter_options_init(&options);
    options.lower = lower != NULL ? &lower_slice : NULL;
    options.upper = upper != NULL ? &upper_slice : NULL;
    check_ok(tamis_iter_open(one.db, &options, &iter, &one.err), one.err);
    return iter;
}

START_TEST(every_walk_over_every_placement_stands_where_an_array_does)
{
    static const char *const targets[] = {"a", "b", "c", "d", "e", "f", "g"};
    static const char *const bounds[] = {NULL, "a", "b", "c", "d", "e", "f", "g"};
    const unsigned step =
        ONE_STORE_DIVISOR == 1 ? 1 : 17; // with sanitizers a share of the placements
    unsigned placement_count = 0;

    move_count = 0;
    for (unsigned placement = 0; placement < PLACEMENTS; placement += step) {
        const char *target = targets[placement % 7];
        tamis_iter *plain, *bounded;

        for (unsigned i = 0, rest = placement; i < KEYS; i++, rest /= STATES)
            states[i] = (enum state)(rest % STATES);
        place_keys();
        lower = upper = NULL;
        plain = open_bounded();
        lower = bounds[placement % 8];
        upper = bounds[placement / 8 % 8];
        bounded = open_bounded();
        write_on();
        walk_all(bounded, BOUNDED_LENGTH, target);
        lower = upper = NULL;
        walk_all(plain, placement % LONGEST_EVERY == 0 ? LONGEST : LENGTH, target);
        tamis_iter_close(plain);
        tamis_iter_close(bounded);
        for (int i = 0; i < KEYS; i++)
            one_delete(tamis_text(key_names[i]));
        one_delete(tamis_text("c"));
        one_compact();
        ck_assert_uint_eq(one_stats().total.entry_count, 0);
        placement_count++;
    }
    printf("%u placements, %llu moves\n", placement_count, (unsigned long long)move_count);
    ck_assert_uint_eq(placement_count, (PLACEMENTS + step - 1) / step);
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("iterator walks");
    TCase *tests = tcase_create("iterator walks");

    tcase_set_timeout(tests, 0);
    tcase_add_checked_fixture(tests, one_store_begin, one_store_end);
    tcase_add_test(tests, every_walk_over_every_placement_stands_where_an_array_does);
    suite_add_tcase(suite, tests);
    return check_run(suite);
}
