/* SPDX-License-Identifier: MIT
 *
 * tests/engine/store_oracle.h -- a store is driven, and what is left of it is judged against what was promised.
 *
 *   oracle_drive()   one writer: puts, deletes, batches, syncs, flushes, compactions, closing and opening anew
 *        |              every write is noted in commit order, with the two promises made so far
 *        v
 *   writes    0 1 2 3 4 5 6 7 8 9
 *                     |     |   '-- count: issued, the last one perhaps without an answer
 *                     |     '------ acked: a killed process keeps these (C1)
 *                     '------------ synced: a power cut keeps these (C2)
 *        |
 *        v
 *   oracle_check()   the store shows exactly the first m writes, batches whole, for one m that keeps the promise;
 *                    and shows the same after another power cut (C3)
 *
 * Values are kept as length and hash.
 *
 * Threads  one.
 */
#ifndef TAMIS_TESTS_ENGINE_STORE_ORACLE_H
#define TAMIS_TESTS_ENGINE_STORE_ORACLE_H

#include <stdlib.h>

#include "engine/open.h"
#include "filter/hash.h"
#include "tests/support/check_status.h"
#include "tests/support/rng.h"
#include "tests/support/world.h"

enum {
    ORACLE_KEYS = 60,
    ORACLE_BATCH_MAX = 8,
    ORACLE_WRITES_MAX = 2000,
    ORACLE_VALUE_BYTES_MAX = 70000,    // more than a memtable, and than two blocks of the log
    ORACLE_WRITE_BUFFER_BYTES = 65536, // the least: many flushes
    ORACLE_CACHE_BYTES = 1 << 18,
};

#define ORACLE_DIR  "db"
#define ORACLE_NONE SIZE_MAX

struct oracle_value {
    bool is_there;
    uint32_t length;
    uint64_t hash;
};

struct oracle_write {
    size_t count;
    size_t key[ORACLE_BATCH_MAX];
    struct oracle_value value[ORACLE_BATCH_MAX];
};

struct oracle {
    struct oracle_write writes[ORACLE_WRITES_MAX];
    size_t count;
    size_t acked;
    size_t synced;
};

/* What a store shows: a value or none for every key. */
struct oracle_state {
    struct oracle_value values[ORACLE_KEYS];
};

/** `count` times TAMIS_TEST_SCALE percent, at least 1; by default everything, a tenth or less with a sanitizer. */
static inline size_t
oracle_scaled(size_t count)
{
    const char *text = getenv("TAMIS_TEST_SCALE");
    size_t percent = 100;

#if defined(__SANITIZE_THREAD__)
    percent = 4;
#elif defined(__SANITIZE_ADDRESS__)
    percent = 10;
#endif
    if (text != NULL)
        percent = strtoull(text, NULL, 10);
    count = count * percent / 100;
    return count != 0 ? count : 1;
}

/** The step of a sweep that takes 1 by default. */
static inline size_t
oracle_stride(void)
{
    size_t percent = oracle_scaled(100);

    return 100 / (percent < 100 ? percent : 100);
}

static inline const char *
oracle_key(size_t key, char text[24])
{
    snprintf(text, 24, "k%03zu", key);
    return text;
}

static inline struct oracle_value
oracle_value_of(tamis_slice value)
{
    struct oracle_value found = {true, (uint32_t)value.length,
                                 tm_hash64(value.data, value.length, 0)};

    return found;
}

static inline bool
oracle_value_equal(const struct oracle_value *a, const struct oracle_value *b)
{
    return a->is_there == b->is_there &&
           (!a->is_there || (a->length == b->length && a->hash == b->hash));
}

static inline tamis_options
oracle_options(struct world *world)
{
    tamis_options options;

    tamis_options_init(&options);
    options.create_if_missing = true;
    options.write_buffer_bytes = ORACLE_WRITE_BUFFER_BYTES;
    options.block_cache_bytes = ORACLE_CACHE_BYTES;
    options.fs = world->env.fs;
    options.allocator = &world->env.allocator;
    return options;
}

static inline tamis_status
oracle_open(struct world *world, tamis_db **db_out, tamis_error *err)
{
    tamis_options options = oracle_options(world);

    return tm_open(ORACLE_DIR, &options, world->env.runtime, db_out, err);
}

/* ---- Driving ---------------------------------------------------------------------------------------- */

/* Keys that follow each other, deleted as one range. */
static inline void
oracle_make_range(struct rng *rng, struct oracle_write *write, tamis_batch *batch)
{
    uint64_t first = rng_below(rng, ORACLE_KEYS - ORACLE_BATCH_MAX);
    char from[24], to[24];
    tamis_error err;

    write->count = 1 + (size_t)rng_below(rng, ORACLE_BATCH_MAX);
    for (size_t i = 0; i < write->count; i++) {
        write->key[i] = first + i;
        write->value[i] = (struct oracle_value){0};
    }
    oracle_key(first, from);
    oracle_key(first + write->count, to);
    check_ok(tamis_batch_delete_range(batch, tamis_text(from), tamis_text(to), &err), err);
}

/* The next write: one put or delete, a batch, or a range. `bytes` is room for a value. */
static inline void
oracle_make_write(struct rng *rng, struct oracle_write *write, tamis_batch *batch, uint8_t *bytes)
{
    tamis_error err;

    if (rng_chance(rng, 1, 12)) {
        oracle_make_range(rng, write, batch);
        return;
    }
    write->count = rng_chance(rng, 1, 4) ? ORACLE_BATCH_MAX : 1;
    for (size_t i = 0; i < write->count; i++) {
        size_t length =
            rng_chance(rng, 1, 40) ? ORACLE_VALUE_BYTES_MAX : (size_t)rng_below(rng, 3000);
        char key[24];

        write->key[i] = rng_below(rng, ORACLE_KEYS);
        oracle_key(write->key[i], key);
        if (rng_chance(rng, 1, 5)) {
            write->value[i] = (struct oracle_value){0};
            check_ok(tamis_batch_delete(batch, tamis_text(key), &err), err);
        } else {
            rng_fill(rng, bytes, length);
            write->value[i] = oracle_value_of((tamis_slice){bytes, length});
            check_ok(tamis_batch_put(batch, tamis_text(key), (tamis_slice){bytes, length}, &err),
                     err);
        }
    }
}

/* A call of the driven store: OK, or the machine stopped. */
static inline bool
oracle_went_on(struct world *world, const char *call, tamis_status status, const tamis_error *err)
{
    if (sim_stopped(world->sim))
        return false; // S3: what it says now is no promise
    ck_assert_msg(status == TAMIS_OK, "%s gives %s: %s", call, tamis_status_name(status),
                  status == TAMIS_OK ? "no error" : err->message);
    return true;
}

/* Write once and note what was promised. */
static inline bool
oracle_write_once(struct oracle *oracle, struct world *world, tamis_db *db, struct rng *rng,
                  uint8_t *bytes)
{
    tamis_write_options options;
    tamis_batch *batch;
    tamis_error err;
    tamis_status status;

    ck_assert_uint_lt(oracle->count, ORACLE_WRITES_MAX);
    tamis_write_options_init(&options);
    options.sync = rng_chance(rng, 1, 8);
    check_ok(tamis_batch_create(NULL, &batch, &err), err);
    oracle_make_write(rng, &oracle->writes[oracle->count++], batch, bytes);
    status = tamis_write(db, &options, batch, &err);
    tamis_batch_destroy(batch);
    if (!oracle_went_on(world, "write", status, &err))
        return false;
    oracle->acked = oracle->count;
    if (options.sync)
        oracle->synced = oracle->count;
    return true;
}

/* One step of a life. *db may be closed and opened anew. false: the machine stopped. */
static inline bool
oracle_step(struct oracle *oracle, struct world *world, tamis_db **db, struct rng *rng,
            uint8_t *bytes)
{
    uint64_t what = rng_below(rng, 100);
    tamis_error err;
    tamis_status status;

    if (what == 0) {
        if (!oracle_went_on(world, "flush", tamis_flush(*db, &err), &err))
            return false;
        oracle->synced = oracle->acked;
        return true;
    }
    if (what == 1) {
        if (!oracle_went_on(world, "compact_range", tamis_compact_range(*db, NULL, NULL, &err),
                            &err))
            return false;
        oracle->synced = oracle->acked;
        return true;
    }
    if (what == 2) {
        status = tamis_close(*db, &err);
        *db = NULL;
        if (!oracle_went_on(world, "close", status, &err))
            return false;
        oracle->synced = oracle->acked;
        return oracle_went_on(world, "open", oracle_open(world, db, &err), &err);
    }
    return oracle_write_once(oracle, world, *db, rng, bytes);
}

/** Open the store, take `steps` steps or until the machine stops, and close it. */
static inline void
oracle_drive(struct oracle *oracle, struct world *world, uint64_t seed, size_t steps)
{
    struct rng rng = rng_from(seed);
    uint8_t *bytes = malloc(ORACLE_VALUE_BYTES_MAX);
    tamis_db *db = NULL;
    tamis_error err;
    bool goes_on;

    ck_assert_ptr_nonnull(bytes);
    goes_on = oracle_went_on(world, "open", oracle_open(world, &db, &err), &err);
    for (size_t i = 0; goes_on && i < steps; i++)
        goes_on = oracle_step(oracle, world, &db, &rng, bytes);
    if (db != NULL) {
        tamis_status status = tamis_close(db, &err);
        if (oracle_went_on(world, "close", status, &err))
            oracle->synced = oracle->acked;
    }
    free(bytes);
}

/* ---- Judging ---------------------------------------------------------------------------------------- */

/** Every key by get and by scan, which agree. */
static inline void
oracle_read(tamis_db *db, struct oracle_state *state, const char *what)
{
    tamis_iter *iter;
    tamis_error err = {0};
    size_t next = 0;
    char key[24];

    for (size_t i = 0; i < ORACLE_KEYS; i++) {
        tamis_pinned pinned;
        tamis_status status =
            tamis_get_pinned(db, NULL, tamis_text(oracle_key(i, key)), &pinned, &err);

        state->values[i] = (struct oracle_value){0};
        if (status == TAMIS_NOT_FOUND)
            continue;
        ck_assert_msg(status == TAMIS_OK, "%s: get of %s: %s", what, key, err.message);
        state->values[i] = oracle_value_of(pinned.value);
        tamis_pinned_release(&pinned);
    }
    check_ok(tamis_iter_open(db, NULL, &iter, &err), err);
    for (tamis_iter_first(iter); tamis_iter_valid(iter); tamis_iter_next(iter)) {
        struct oracle_value value = oracle_value_of(tamis_iter_value(iter));

        while (next < ORACLE_KEYS && !state->values[next].is_there)
            next++;
        ck_assert_msg(next < ORACLE_KEYS, "%s: the scan shows a key that get does not find", what);
        oracle_key(next, key);
        ck_assert_msg(tm_slice_equal(tamis_iter_key(iter), tamis_text(key)) &&
                          oracle_value_equal(&value, &state->values[next]),
                      "%s: scan and get differ at %s", what, key);
        next++;
    }
    check_ok(tamis_iter_status(iter, &err), err);
    tamis_iter_close(iter);
    while (next < ORACLE_KEYS && !state->values[next].is_there)
        next++;
    ck_assert_msg(next == ORACLE_KEYS, "%s: the scan lacks key %zu", what, next);
}

/** The smallest m >= least such that the first m writes give `state`; ORACLE_NONE. */
static inline size_t
oracle_find(const struct oracle *oracle, const struct oracle_state *state, size_t least)
{
    struct oracle_state made = {0};
    size_t wrong = 0;

    for (size_t i = 0; i < ORACLE_KEYS; i++)
        wrong += state->values[i].is_there;
    for (size_t m = 0;; m++) {
        if (m >= least && wrong == 0)
            return m;
        if (m == oracle->count)
            return ORACLE_NONE;
        for (size_t i = 0; i < oracle->writes[m].count; i++) {
            size_t key = oracle->writes[m].key[i];

            wrong -= !oracle_value_equal(&made.values[key], &state->values[key]);
            made.values[key] = oracle->writes[m].value[i];
            wrong += !oracle_value_equal(&made.values[key], &state->values[key]);
        }
    }
}

/* Open, read, close; how many writes it shows. */
static inline size_t
oracle_survivors(const struct oracle *oracle, struct world *world, size_t least, const char *what)
{
    struct oracle_state state;
    tamis_db *db = NULL;
    tamis_error err = {0};
    size_t survivors;

    ck_assert_msg(oracle_open(world, &db, &err) == TAMIS_OK, "%s: open: %s (%s)", what, err.message,
                  err.where);
    oracle_read(db, &state, what);
    survivors = oracle_find(oracle, &state, least);
    ck_assert_msg(
        survivors != ORACLE_NONE,
        "%s: no prefix of at least %zu writes is there (%zu issued, %zu acked, %zu synced)", what,
        least, oracle->count, oracle->acked, oracle->synced);
    check_ok(tamis_close(db, &err), err);
    return survivors;
}

/** What stands in `world` is the first m >= least writes, and stays so after a power cut right after opening (C3).
 *  Returns m. `what` says in a message which image it is. */
static inline size_t
oracle_check(const struct oracle *oracle, struct world *world, size_t least, const char *what)
{
    struct oracle_state state;
    struct sim *cut;
    tamis_db *db = NULL;
    tamis_error err = {0};
    size_t survivors;
    size_t again;

    ck_assert_msg(oracle_open(world, &db, &err) == TAMIS_OK, "%s: open: %s (%s)", what, err.message,
                  err.where);
    oracle_read(db, &state, what);
    survivors = oracle_find(oracle, &state, least);
    ck_assert_msg(
        survivors != ORACLE_NONE,
        "%s: no prefix of at least %zu writes is there (%zu issued, %zu acked, %zu synced)", what,
        least, oracle->count, oracle->acked, oracle->synced);
    sim_stop_at(world->sim, sim_call_count(world->sim) + 1);
    (void)tamis_close(db, NULL);
    cut = sim_crash(world->sim, SIM_P0_STRICT, 1);
    world_take_sim(world, cut);
    again = oracle_survivors(oracle, world, survivors, what);
    ck_assert_msg(again == survivors, "%s: %zu writes were shown, %zu after a power cut (C3)", what,
                  survivors, again);
    return survivors;
}

/** The writes that a crash by `policy` must leave. */
static inline size_t
oracle_least(const struct oracle *oracle, enum sim_policy policy)
{
    return policy == SIM_P1_ALL || policy == SIM_P7_UNLINK_UNDONE ? oracle->acked : oracle->synced;
}

/** The store was opened and shows the first `survivors` writes: history goes on from there. */
static inline void
oracle_continue(struct oracle *oracle, size_t survivors)
{
    oracle->count = oracle->acked = oracle->synced = survivors;
}

#endif
