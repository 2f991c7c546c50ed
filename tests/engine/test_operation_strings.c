/* SPDX-License-Identifier: MIT
 *
 * tests/engine/test_operation_strings.c -- every string of five operations, all that can be read compared after each.
 *
 *     put            a, b and c get the number of the step
 *     delete         b
 *     delete_range   a..c: a and b
 *     flush, compact, reopen
 *     snapshot       one more, kept until the end or the next reopen
 *
 * Shorter strings are beginnings of these. The store is in a simulated machine whose threads take turns.
 */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "tests/engine/store_oracle.h"

enum { OPERATIONS = 7, LENGTH = 5, KEYS = 3, ABSENT = -1 };

#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
enum { STRIDE = 23 }; // a share of the strings
#else
enum { STRIDE = 1 };
#endif

static const char *const key_names[KEYS] = {"a", "b", "c"};

struct state {
    int value[KEYS]; // number of a step, or ABSENT
};

struct run {
    struct world *world;
    tamis_db *db;
    unsigned string;
    struct state now;
    unsigned snapshot_count;
    tamis_snapshot *snapshots[LENGTH];
    struct state seen[LENGTH]; // by each snapshot
};

static tamis_error err;

/* ---- Reading ---------------------------------------------------------------------------------------- */

static void
check_value(const struct run *run, int expected, int key, tamis_slice value)
{
    ck_assert_msg(value.length == 1 && ((const char *)value.data)[0] == 'A' + expected,
                  "string %u: key %s: expected %d, found %.*s", run->string, key_names[key],
                  expected, (int)value.length, (const char *)value.data);
}

static void
check_gets(const struct run *run, const tamis_snapshot *snapshot, const struct state *state)
{
    tamis_read_options options;

    tamis_read_options_init(&options);
    options.snapshot = snapshot;
    for (int key = 0; key < KEYS; key++) {
        char buffer[8];
        size_t length = 0;
        tamis_status status = tamis_get(run->db, &options, tamis_text(key_names[key]), buffer,
                                        sizeof buffer, &length, &err);

        ck_assert_msg(status == (state->value[key] == ABSENT ? TAMIS_NOT_FOUND : TAMIS_OK),
                      "string %u: key %s: expected %d, found %s", run->string, key_names[key],
                      state->value[key], tamis_status_name(status));
        if (status == TAMIS_OK)
            check_value(run, state->value[key], key, (tamis_slice){buffer, length});
    }
}

static void
check_walks(const struct run *run, const tamis_snapshot *snapshot, const struct state *state)
{
    tamis_iter_options options;
    tamis_iter *iter = NULL;

    tamis_iter_options_init(&options);
    options.snapshot = snapshot;
    check_ok(tamis_iter_open(run->db, &options, &iter, &err), err);
    for (int backward = 0; backward < 2; backward++) {
        if (backward)
            tamis_iter_last(iter);
        else
            tamis_iter_first(iter);
        for (int i = 0; i < KEYS; i++) {
            int key = backward ? KEYS - 1 - i : i;

            if (state->value[key] == ABSENT)
                continue;
            ck_assert_msg(tamis_iter_valid(iter) &&
                              tm_slice_equal(tamis_iter_key(iter), tamis_text(key_names[key])),
                          "string %u: walk %d lacks %s", run->string, backward, key_names[key]);
            check_value(run, state->value[key], key, tamis_iter_value(iter));
            if (backward)
                tamis_iter_prev(iter);
            else
                tamis_iter_next(iter);
        }
        ck_assert_msg(!tamis_iter_valid(iter), "string %u: walk %d goes on", run->string, backward);
        check_ok(tamis_iter_status(iter, &err), err);
    }
    tamis_iter_close(iter);
}

static void
check_all(const struct run *run)
{
    check_gets(run, NULL, &run->now);
    check_walks(run, NULL, &run->now);
    for (unsigned i = 0; i < run->snapshot_count; i++) {
        check_gets(run, run->snapshots[i], &run->seen[i]);
        check_walks(run, run->snapshots[i], &run->seen[i]);
    }
}

/* ---- Operations ------------------------------------------------------------------------------------- */

static void
release_snapshots(struct run *run)
{
    while (run->snapshot_count > 0)
        tamis_snapshot_release(run->db, run->snapshots[--run->snapshot_count]);
}

static void
operate(struct run *run, unsigned operation, int step)
{
    char value = (char)('A' + step);

    switch (operation) {
    case 0:
        for (int key = 0; key < KEYS; key++) {
            check_ok(tamis_put(run->db, NULL, tamis_text(key_names[key]), (tamis_slice){&value, 1},
                               &err),
                     err);
            run->now.value[key] = step;
        }
        break;
    case 1:
        check_ok(tamis_delete(run->db, NULL, tamis_text("b"), &err), err);
        run->now.value[1] = ABSENT;
        break;
    case 2:
        check_ok(tamis_delete_range(run->db, NULL, tamis_text("a"), tamis_text("c"), &err), err);
        run->now.value[0] = run->now.value[1] = ABSENT;
        break;
    case 3:
        check_ok(tamis_flush(run->db, &err), err);
        break;
    case 4:
        check_ok(tamis_compact_range(run->db, NULL, NULL, &err), err);
        break;
    case 5:
        check_ok(tamis_snapshot_take(run->db, &run->snapshots[run->snapshot_count], &err), err);
        run->seen[run->snapshot_count++] = run->now;
        break;
    default:
        release_snapshots(run);
        check_ok(tamis_close(run->db, &err), err);
        check_ok(oracle_open(run->world, &run->db, &err), err);
        break;
    }
}

static void
run_string(unsigned string)
{
    struct run run = {.string = string, .now = {{ABSENT, ABSENT, ABSENT}}};
    unsigned rest = string;

    run.world = world_create(1, WORLD_BATON);
    check_ok(oracle_open(run.world, &run.db, &err), err);
    for (int step = 0; step < LENGTH; step++, rest /= OPERATIONS) {
        operate(&run, rest % OPERATIONS, step);
        check_all(&run);
    }
    release_snapshots(&run);
    check_ok(tamis_close(run.db, &err), err);
    world_destroy(run.world);
}

START_TEST(every_string_of_operations_leaves_what_it_says)
{
    unsigned string_count = 1, done = 0;

    for (int i = 0; i < LENGTH; i++)
        string_count *= OPERATIONS;
    for (unsigned string = 0; string < string_count; string += STRIDE, done++)
        run_string(string);
    printf("%u of %u strings\n", done, string_count);
    ck_assert_uint_eq(done, (string_count + STRIDE - 1) / STRIDE);
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("operation strings");
    TCase *tests = tcase_create("operation strings");

    tcase_set_timeout(tests, 0);
    tcase_add_test(tests, every_string_of_operations_leaves_what_it_says);
    suite_add_tcase(suite, tests);
    return check_run(suite);
}
