/* SPDX-License-Identifier: MIT
 *
 * tests/engine/memtable_test.h -- a memtable over an allocator that counts, for tests that look at it alone.
 *
 * Fixture: set_up() and tear_down(), which finds all memory given back.
 */
#ifndef TAMIS_TESTS_ENGINE_MEMTABLE_TEST_H
#define TAMIS_TESTS_ENGINE_MEMTABLE_TEST_H

#include <check.h>
#include <stdatomic.h>
#include <string.h>

#include "engine/memtable.h"
#include "filter/bytes.h"
#include "filter/hash.h"
#include "tests/support/check_status.h"
#include "tests/support/fault_alloc.h"
#include "tests/support/rng.h"

enum { HASH_SEED = 77 };

static tamis_error err;
static struct fault_alloc fault;
static struct tm_env env;

static inline void
set_up(void)
{
    fault_alloc_init(&fault);
    memset(&env, 0, sizeof env);
    env.allocator = fault_alloc_allocator(&fault);
}

static inline void
tear_down(void)
{
    ck_assert_uint_eq(atomic_load(&fault.live_count), 0);
    ck_assert_uint_eq(atomic_load(&fault.live_bytes), 0);
}

/* Asserts only when it must: each one of Check's is a write to its parent. */
static inline struct tm_memtable *
make_memtable(void)
{
    struct tm_memtable *memtable = tm_memtable_create(&env, HASH_SEED, 1 << 20);

    if (memtable == NULL)
        ck_abort_msg("no memory");
    return memtable;
}

static inline void
get(const struct tm_memtable *memtable, tamis_slice key, uint64_t sequence,
    struct tm_memtable_found *found)
{
    tm_memtable_get(memtable, key, tm_hash64(key.data, key.length, HASH_SEED), sequence, found);
}

#endif
