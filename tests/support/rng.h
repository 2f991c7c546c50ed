/* SPDX-License-Identifier: MIT
 *
 * tests/support/rng.h -- small seeded random numbers for tests (splitmix64).
 *
 * The same seed gives the same numbers on every machine. rng_seed() lets TAMIS_SEED replace the seed of a test and
 * prints the one in use, so that a failure can be repeated.
 *
 * Threads  one generator, one thread.
 */
#ifndef TAMIS_TESTS_SUPPORT_RNG_H
#define TAMIS_TESTS_SUPPORT_RNG_H

#include <inttypes.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

struct rng {
    uint64_t state;
};

static inline struct rng
rng_from(uint64_t seed)
{
    struct rng rng = {seed};

    return rng;
}

static inline uint64_t
rng_next(struct rng *rng)
{
    uint64_t z = rng->state += 0x9e3779b97f4a7c15u;

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/** 0 .. bound-1; bound 0 gives 0. The bias of a remainder does not matter to a test. */
static inline uint64_t
rng_below(struct rng *rng, uint64_t bound)
{
    return bound == 0 ? 0 : rng_next(rng) % bound;
}

/** True in `part` of `whole` cases. */
static inline bool
rng_chance(struct rng *rng, uint64_t part, uint64_t whole)
{
    return rng_below(rng, whole) < part;
}

static inline void
rng_fill(struct rng *rng, void *buffer, size_t length)
{
    uint8_t *next = buffer;

    for (size_t i = 0; i < length; i += 8) {
        uint64_t word = rng_next(rng);

        for (size_t at = i; at < length && at < i + 8; at++, word >>= 8)
            next[at] = (uint8_t)word;
    }
}

/** TAMIS_SEED if it is set, else `seed`; printed with `what`. */
static inline uint64_t
rng_seed(const char *what, uint64_t seed)
{
    const char *text = getenv("TAMIS_SEED");

    if (text != NULL)
        seed = strtoull(text, NULL, 0);
    printf("%s: TAMIS_SEED=%" PRIu64 "\n", what, seed);
    fflush(stdout);
    return seed;
}

#endif
