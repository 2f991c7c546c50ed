/* SPDX-License-Identifier: MIT
 *
 * tests/engine/test_wall_clock.c -- the wall clock may jump as it likes: the store never asks it.
 *
 * The functions that tell the time are defined here, before those of the C library: the store under test calls these. All
 * but the monotonic clock give another time with each call, a day back, ten years on, the same again or any, and are counted.
 */
#include <errno.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "tests/engine/one_store.h"
#include "tests/support/rng.h"

enum {
    KEYS = 2000,
    PUTS = 20000 / ONE_STORE_DIVISOR,
    VALUE_BYTES = 200,
    DAY_S = 24 * 3600,
    YEAR_S = 365 * DAY_S,
};

static _Atomic uint64_t wall_calls;
static _Atomic uint64_t monotonic_calls;
static _Atomic int64_t wall_s = 1700000000;

/* What a wall clock says that somebody sets again and again. */
static int64_t
jump(void)
{
    struct rng rng = rng_from(atomic_fetch_add(&wall_calls, 1));

    switch (rng_below(&rng, 4)) {
    case 0:
        return atomic_fetch_sub(&wall_s, DAY_S) - DAY_S;
    case 1:
        return atomic_fetch_add(&wall_s, 10 * YEAR_S) + 10 * YEAR_S;
    case 2:
        return atomic_load(&wall_s);
    default:
        return (int64_t)rng_below(&rng, (uint64_t)200 * YEAR_S);
    }
}

int
clock_gettime(clockid_t clock, struct timespec *now)
{
    if (clock == CLOCK_MONOTONIC) {
        atomic_fetch_add(&monotonic_calls, 1);
        return (int)syscall(SYS_clock_gettime, clock, now);
    }
    *now = (struct timespec){.tv_sec = (time_t)jump()};
    return 0;
}

int
gettimeofday(struct timeval *restrict now, void *restrict zone)
{
    (void)zone;
    *now = (struct timeval){.tv_sec = (time_t)jump()};
    return 0;
}

time_t
time(time_t *now_out)
{
    time_t now = (time_t)jump();

    if (now_out != NULL)
        *now_out = now;
    return now;
}

int
timespec_get(struct timespec *now, int base)
{
    *now = (struct timespec){.tv_sec = (time_t)jump()};
    return base;
}

/* Check asks for the time before and after a test, so what is counted is what happens between. */
static uint64_t wall_calls_before;

static void
setup(void)
{
    wall_calls_before = wall_calls;
    one_store_begin();
}

START_TEST(a_store_lives_its_life_without_asking_the_wall_clock)
{
    struct rng rng = rng_from(rng_seed("puts", 126));
    static unsigned versions[KEYS];
    tamis_stats stats;

    for (unsigned i = 1; i <= PUTS; i++) {
        unsigned number = (unsigned)rng_below(&rng, KEYS);

        one_put_number(number, i, VALUE_BYTES);
        versions[number] = i;
        if (i % (PUTS / 4) == 0) {
            one_flush();
            one_compact();
        }
    }
    stats = one_stats();
    ck_assert_uint_ge(stats.flush_count, 4);
    ck_assert_uint_ge(stats.compaction_count, 2);
    ck_assert_uint_eq(stats.background_error_count, 0);
    for (unsigned opening = 0; opening < 2; opening++) {
        uint64_t there = 0;

        for (unsigned number = 0; number < KEYS; number++) {
            ck_assert_int_eq(one_version(number),
                             versions[number] != 0 ? (long)versions[number] : -1);
            there += versions[number] != 0;
        }
        ck_assert_uint_eq(one_count_keys(), there);
        check_ok(tamis_verify(one.db, NULL, NULL, &one.err), one.err);
        one_store_reopen();
    }
    ck_assert_uint_eq(wall_calls, wall_calls_before);
    ck_assert_uint_gt(monotonic_calls, stats.flush_count); // the store's calls do come here
}
END_TEST

START_TEST(the_wall_clock_of_this_test_jumps_and_is_counted)
{
    struct timespec now;
    struct timeval then;
    time_t first = time(NULL);
    unsigned back = 0;

    for (unsigned i = 0; i < 100; i++) {
        ck_assert_int_eq(clock_gettime(CLOCK_REALTIME, &now), 0);
        back += now.tv_sec < first;
        first = now.tv_sec;
    }
    ck_assert_uint_gt(back, 10);
    ck_assert_int_eq(gettimeofday(&then, NULL), 0);
    ck_assert_int_eq(timespec_get(&now, TIME_UTC), TIME_UTC);
    ck_assert_uint_ge(wall_calls - wall_calls_before, 103);
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("wall_clock");
    TCase *tests = tcase_create("wall_clock");

    tcase_set_timeout(tests, 0);
    tcase_add_checked_fixture(tests, setup, one_store_end);
    tcase_add_test(tests, a_store_lives_its_life_without_asking_the_wall_clock);
    tcase_add_test(tests, the_wall_clock_of_this_test_jumps_and_is_counted);
    suite_add_tcase(suite, tests);
    return check_run(suite);
}
