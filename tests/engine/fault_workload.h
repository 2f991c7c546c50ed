/* SPDX-License-Identifier: MIT
 *
 * tests/engine/fault_workload.h -- a life of a store in which calls may fail, and what must hold all the same.
 *
 *   workload_run()     puts, deletes, batches, syncs, gets, walks, a snapshot, flushes, compactions, closing and opening;
 *        |             each answer is compared with what was acknowledged: right, or an error that the fault explains
 *        v
 *   writes    0 1 2 x 4 5 x x      x: answered with an error, so nobody knows (C5); only the first one since an open
 *                     |   |           can have reached the log, the others were refused before it
 *                     |   '-- acked: a killed process keeps these (C1)
 *                     '------ synced: a power cut keeps these (C2)
 *        |
 *        v
 *   workload_judge()   the cause is gone, the store opens: a prefix that keeps the promise, with or without an x
 *
 * Threads  one.
 */
#ifndef TAMIS_TESTS_ENGINE_FAULT_WORKLOAD_H
#define TAMIS_TESTS_ENGINE_FAULT_WORKLOAD_H

#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "tests/engine/store_oracle.h"

enum {
    WORKLOAD_WRITES_MAX = 400,
    WORKLOAD_BATCH_MAX = 5,
    WORKLOAD_VALUE_BYTES_MIN = 1 << 10,
    WORKLOAD_VALUE_BYTES_MAX = 6 << 10,
};

/* What a step does: a number below 100, each of these where its share begins; below the first a put or a delete. */
enum {
    WORKLOAD_BATCH = 62,
    WORKLOAD_GET = 74,
    WORKLOAD_LOOK_BACK = 89,
    WORKLOAD_FLUSH = 94,
    WORKLOAD_COMPACT = 96,
    WORKLOAD_WAIT = 97,
    WORKLOAD_REOPEN = 99,
};

#define WORKLOAD_BIT(status) (1u << (status))

/* What is known of a write. */
enum workload_fate {
    WORKLOAD_ACKED,
    WORKLOAD_OPEN,   // answered with an error, and may be there
    WORKLOAD_ABSENT, // answered with an error, and is not there
};

struct workload_write {
    size_t count;
    size_t key[WORKLOAD_BATCH_MAX];
    struct oracle_value value[WORKLOAD_BATCH_MAX];
    enum workload_fate fate;
};

struct workload {
    struct world *world;
    tamis_db *db; // NULL: not open
    struct rng rng;
    uint8_t bytes[WORKLOAD_VALUE_BYTES_MAX];

    struct workload_write writes[WORKLOAD_WRITES_MAX];
    size_t count;  // issued
    size_t acked;  // all acknowledged writes are below
    size_t synced; // all writes below were promised to survive a power cut
    struct oracle_state live;

    tamis_snapshot *snapshot;
    struct oracle_state snapshot_state;
    tamis_iter *iter;
    struct oracle_state iter_state;

    // What the fault explains
    unsigned tolerated;       // statuses of calls, WORKLOAD_BIT()
    unsigned reads_tolerated; // of get and of walks
    bool once;                // the next try works
    bool
        failure_is_final; // a failed write is followed by failed writes only, all with the same message

    // What came of it
    uint64_t failures;   // calls that answered an error
    bool write_failed;   // since the store was opened
    tamis_error failure; // the first of them
    bool ended;          // the store could not be opened again
};

/* Which case runs, for the one who reads an abort. */
static char workload_case[200];

static inline void
workload_show_case(int number)
{
    ssize_t ignored = write(STDERR_FILENO, workload_case, strlen(workload_case));

    (void)ignored;
    signal(number, SIG_DFL);
    raise(number);
}

static inline void
workload_init(struct workload *workload, struct world *world, uint64_t seed)
{
    memset(workload, 0, sizeof *workload);
    workload->world = world;
    workload->rng = rng_from(seed);
}

/* A call answered. True: OK. Otherwise it must be an error that the fault explains. */
static inline bool
workload_answer(struct workload *workload, const char *call, tamis_status status,
                unsigned tolerated, const tamis_error *err)
{
    if (status == TAMIS_OK)
        return true;
    ck_assert_msg((tolerated & WORKLOAD_BIT(status)) != 0, "%s: %s gives %s: %s (%s)",
                  workload_case, call, tamis_status_name(status), err->message, err->where);
    ck_assert_msg(err->code == status, "%s: %s gives %s, its message is of %s", workload_case, call,
                  tamis_status_name(status), tamis_status_name(err->code));
    workload->failures++;
    return false;
}

/* ---- Reading ---------------------------------------------------------------------------------------- */

static inline void
workload_check_get(struct workload *workload, size_t key, const tamis_snapshot *snapshot,
                   const struct oracle_value *expected)
{
    tamis_read_options options;
    tamis_pinned pinned;
    tamis_error err = {0};
    tamis_status status;
    struct oracle_value found = {0};
    char text[24];

    tamis_read_options_init(&options);
    options.snapshot = snapshot;
    status =
        tamis_get_pinned(workload->db, &options, tamis_text(oracle_key(key, text)), &pinned, &err);
    if (status != TAMIS_NOT_FOUND &&
        !workload_answer(workload, "get", status, workload->reads_tolerated, &err))
        return;
    if (status == TAMIS_OK)
        found = oracle_value_of(pinned.value);
    ck_assert_msg(oracle_value_equal(&found, expected), "%s: get of %s is wrong: %s", workload_case,
                  text, found.is_there ? "a value" : "not found");
    tamis_pinned_release(&pinned);
}

/* Walk to the end; what is shown is right, and complete unless the walk ended with an error. */
static inline void
workload_check_walk(struct workload *workload, tamis_iter *iter,
                    const struct oracle_state *expected)
{
    tamis_error err = {0};
    size_t next = 0;
    char key[24];

    for (tamis_iter_first(iter); tamis_iter_valid(iter); tamis_iter_next(iter)) {
        struct oracle_value value = oracle_value_of(tamis_iter_value(iter));

        while (next < ORACLE_KEYS && !expected->values[next].is_there)
            next++;
        ck_assert_msg(next < ORACLE_KEYS &&
                          tm_slice_equal(tamis_iter_key(iter), tamis_text(oracle_key(next, key))) &&
                          oracle_value_equal(&value, &expected->values[next]),
                      "%s: the walk shows another key or value at %zu", workload_case, next);
        next++;
    }
    if (!workload_answer(workload, "walk", tamis_iter_status(iter, &err), workload->reads_tolerated,
                         &err))
        return;
    while (next < ORACLE_KEYS && !expected->values[next].is_there)
        next++;
    ck_assert_msg(next == ORACLE_KEYS, "%s: the walk lacks key %zu", workload_case, next);
}

/** Every key by get and by walk. */
static inline void
workload_check_all(struct workload *workload)
{
    tamis_iter *iter = NULL;
    tamis_error err = {0};

    for (size_t key = 0; key < ORACLE_KEYS; key++)
        workload_check_get(workload, key, NULL, &workload->live.values[key]);
    if (!workload_answer(workload, "iter_open", tamis_iter_open(workload->db, NULL, &iter, &err),
                         workload->reads_tolerated, &err))
        return;
    workload_check_walk(workload, iter, &workload->live);
    tamis_iter_close(iter);
}

/* ---- What a store may show ---------------------------------------------------------------------------- */

/** Is `state` what the first m >= least writes give, open one number `with` included (SIZE_MAX: none)? m, or ORACLE_NONE. */
static inline size_t
workload_find_with(const struct workload *workload, const struct oracle_state *state, size_t least,
                   size_t with)
{
    struct oracle_state made = {0};
    size_t wrong = 0;

    for (size_t i = 0; i < ORACLE_KEYS; i++)
        wrong += state->values[i].is_there;
    for (size_t m = 0;; m++) {
        const struct workload_write *write = &workload->writes[m];

        if (m >= least && wrong == 0)
            return m;
        if (m == workload->count)
            return ORACLE_NONE;
        if (write->fate != WORKLOAD_ACKED && m != with)
            continue;
        for (size_t i = 0; i < write->count; i++) {
            size_t key = write->key[i];

            wrong -= !oracle_value_equal(&made.values[key], &state->values[key]);
            made.values[key] = write->value[i];
            wrong += !oracle_value_equal(&made.values[key], &state->values[key]);
        }
    }
}

/** As above, over all open writes; *with_out is the one that is there. */
static inline size_t
workload_find(const struct workload *workload, const struct oracle_state *state, size_t least,
              size_t *with_out)
{
    size_t m = workload_find_with(workload, state, least, SIZE_MAX);

    *with_out = SIZE_MAX;
    for (size_t i = 0; m == ORACLE_NONE && i < workload->count; i++)
        if (workload->writes[i].fate == WORKLOAD_OPEN) {
            *with_out = i;
            m = workload_find_with(workload, state, least, i);
        }
    return m;
}

/* Read every key, by get; false: one answered with an error. */
static inline bool
workload_read(tamis_db *db, struct oracle_state *state, tamis_error *err)
{
    char key[24];

    for (size_t i = 0; i < ORACLE_KEYS; i++) {
        tamis_pinned pinned;
        tamis_status status =
            tamis_get_pinned(db, NULL, tamis_text(oracle_key(i, key)), &pinned, err);

        state->values[i] = (struct oracle_value){0};
        if (status != TAMIS_OK && status != TAMIS_NOT_FOUND)
            return false;
        if (status == TAMIS_OK)
            state->values[i] = oracle_value_of(pinned.value);
        tamis_pinned_release(&pinned);
    }
    return true;
}

/* The store was opened after a failed write: now it is known what became of it, and stays so. */
static inline bool
workload_resolve(struct workload *workload)
{
    struct oracle_state state;
    tamis_error err = {0};
    size_t with;

    if (!workload_read(workload->db, &state, &err) && !workload_read(workload->db, &state, &err)) {
        (void)workload_answer(workload, "get", err.code, workload->reads_tolerated, &err);
        return false;
    }
    ck_assert_msg(workload_find(workload, &state, workload->acked, &with) != ORACLE_NONE,
                  "%s: opened again, the store shows no state that %zu acknowledged writes allow",
                  workload_case, workload->acked);
    for (size_t i = 0; i < workload->count; i++)
        if (workload->writes[i].fate == WORKLOAD_OPEN)
            workload->writes[i].fate = i == with ? WORKLOAD_ACKED : WORKLOAD_ABSENT;
    workload->live = state;
    workload->acked = workload->synced = workload->count;
    workload->write_failed = false;
    return true;
}

/* ---- Steps -------------------------------------------------------------------------------------------- */

static inline void
workload_write(struct workload *workload, size_t count, bool sync)
{
    struct workload_write *write = &workload->writes[workload->count];
    tamis_write_options options;
    tamis_batch *batch;
    tamis_error err = {0};
    tamis_status status;

    ck_assert_uint_lt(workload->count, WORKLOAD_WRITES_MAX);
    tamis_write_options_init(&options);
    options.sync = sync;
    write->count = count;
    check_ok(tamis_batch_create(NULL, &batch, &err), err);
    if (count > 1 && rng_chance(&workload->rng, 1, 4)) { // as one range
        size_t first = rng_below(&workload->rng, ORACLE_KEYS - count);
        char from[24], to[24];

        for (size_t i = 0; i < count; i++) {
            write->key[i] = first + i;
            write->value[i] = (struct oracle_value){0};
        }
        check_ok(tamis_batch_delete_range(batch, tamis_text(oracle_key(first, from)),
                                          tamis_text(oracle_key(first + count, to)), &err),
                 err);
    }
    for (size_t i = tamis_batch_count(batch) == 0 ? 0 : count; i < count; i++) {
        size_t length =
            WORKLOAD_VALUE_BYTES_MIN +
            rng_below(&workload->rng, WORKLOAD_VALUE_BYTES_MAX - WORKLOAD_VALUE_BYTES_MIN);
        tamis_slice value = {workload->bytes, length};
        char key[24];

        write->key[i] = rng_below(&workload->rng, ORACLE_KEYS);
        oracle_key(write->key[i], key);
        write->value[i] = (struct oracle_value){0};
        if (rng_chance(&workload->rng, 1, 5)) {
            check_ok(tamis_batch_delete(batch, tamis_text(key), &err), err);
            continue;
        }
        rng_fill(&workload->rng, workload->bytes, length);
        write->value[i] = oracle_value_of(value);
        check_ok(tamis_batch_put(batch, tamis_text(key), value, &err), err);
    }
    workload->count++;
    status = tamis_write(workload->db, &options, batch, &err);
    tamis_batch_destroy(batch);
    if (workload_answer(workload, "write", status, workload->tolerated, &err)) {
        ck_assert_msg(!workload->failure_is_final || !workload->write_failed,
                      "%s: a write is OK after the log or the manifest failed", workload_case);
        write->fate = WORKLOAD_ACKED;
        workload->acked = workload->count;
        if (sync)
            workload->synced = workload->count;
        for (size_t i = 0; i < count; i++)
            workload->live.values[write->key[i]] = write->value[i];
        return;
    }
    // The store's own memory is asked for before the log is touched.
    write->fate = workload->write_failed || (status == TAMIS_NO_MEMORY && err.os_error == 0)
                      ? WORKLOAD_ABSENT
                      : WORKLOAD_OPEN;
    if (status == TAMIS_NO_MEMORY && err.os_error == 0)
        return;
    if (!workload->write_failed)
        workload->failure = err;
    else if (workload->failure_is_final)
        ck_assert_msg(strcmp(err.message, workload->failure.message) == 0,
                      "%s: a write failed with '%s', then with '%s'", workload_case,
                      workload->failure.message, err.message);
    workload->write_failed = true;
}

static inline void
workload_release_handles(struct workload *workload)
{
    tamis_iter_close(workload->iter);
    workload->iter = NULL;
    if (workload->snapshot != NULL)
        tamis_snapshot_release(workload->db, workload->snapshot);
    workload->snapshot = NULL;
}

/** Close the store, if it is open. */
static inline void
workload_close(struct workload *workload)
{
    tamis_error err = {0};
    tamis_status status;

    if (workload->db == NULL)
        return;
    workload_release_handles(workload);
    status = tamis_close(workload->db, &err);
    workload->db = NULL;
    ck_assert_msg(status != TAMIS_BUSY, "%s: close gives BUSY: %s", workload_case, err.message);
    if (workload_answer(workload, "close", status, workload->tolerated, &err)) {
        ck_assert_msg(!workload->failure_is_final || !workload->write_failed,
                      "%s: close is OK after the log or the manifest failed", workload_case);
        workload->synced = workload->acked;
    }
}

/* Open the store; when the fault is gone after the first try, the second works. */
static inline void
workload_open(struct workload *workload)
{
    tamis_error err = {0};
    bool opened =
        workload_answer(workload, "open", oracle_open(workload->world, &workload->db, &err),
                        workload->tolerated, &err);

    if (!opened)
        opened = workload_answer(workload, "second open",
                                 oracle_open(workload->world, &workload->db, &err),
                                 workload->once ? 0 : workload->tolerated, &err);
    if (!opened) {
        ck_assert_ptr_null(workload->db);
        workload->ended = true;
    } else if (!workload_resolve(workload)) {
        workload_close(workload);
        workload->ended = true;
    }
}

/* What makes everything that was acknowledged durable. */
static inline void
workload_durable_call(struct workload *workload, const char *call, tamis_status status,
                      const tamis_error *err)
{
    if (workload_answer(workload, call, status, workload->tolerated, err))
        workload->synced = workload->acked;
}

static inline void
workload_look_back(struct workload *workload)
{
    tamis_error err = {0};

    if (workload->iter != NULL)
        workload_check_walk(workload, workload->iter, &workload->iter_state);
    for (size_t i = 0; workload->snapshot != NULL && i < 8; i++) {
        size_t key = rng_below(&workload->rng, ORACLE_KEYS);

        workload_check_get(workload, key, workload->snapshot,
                           &workload->snapshot_state.values[key]);
    }
    workload_release_handles(workload);
    if (workload_answer(workload, "snapshot_take",
                        tamis_snapshot_take(workload->db, &workload->snapshot, &err),
                        workload->reads_tolerated, &err))
        workload->snapshot_state = workload->live;
    if (workload_answer(workload, "iter_open",
                        tamis_iter_open(workload->db, NULL, &workload->iter, &err),
                        workload->reads_tolerated, &err))
        workload->iter_state = workload->live;
}

static inline void
workload_step(struct workload *workload, uint64_t what)
{
    tamis_error err = {0};
    tamis_stats stats;

    if (what < WORKLOAD_BATCH) {
        workload_write(workload, 1, rng_chance(&workload->rng, 1, 8));
    } else if (what < WORKLOAD_GET) {
        workload_write(workload, WORKLOAD_BATCH_MAX, rng_chance(&workload->rng, 1, 4));
    } else if (what < WORKLOAD_LOOK_BACK) {
        size_t key = rng_below(&workload->rng, ORACLE_KEYS);

        workload_check_get(workload, key, NULL, &workload->live.values[key]);
    } else if (what < WORKLOAD_FLUSH) {
        workload_look_back(workload);
    } else if (what < WORKLOAD_COMPACT) {
        workload_durable_call(workload, "flush", tamis_flush(workload->db, &err), &err);
    } else if (what < WORKLOAD_WAIT) {
        workload_durable_call(workload, "compact_range",
                              tamis_compact_range(workload->db, NULL, NULL, &err), &err);
    } else if (what < WORKLOAD_REOPEN) {
        tamis_stats_init(&stats);
        (void)workload_answer(workload, "get_stats", tamis_get_stats(workload->db, &stats, &err), 0,
                              &err);
        (void)workload_answer(workload, "wait_idle", tamis_wait_idle(workload->db, &err),
                              workload->tolerated, &err);
    } else {
        workload_close(workload);
        workload_open(workload);
    }
}

/** Open, take `steps` steps, check every key. The store stays open unless that was not possible. Whatever the seed, a walk
 *  and a snapshot are looked back at, the whole store is compacted, and it is opened again. */
static inline void
workload_run(struct workload *workload, size_t steps)
{
    workload_open(workload);
    for (size_t i = 0; i < steps && !workload->ended; i++) {
        uint64_t what = rng_below(&workload->rng, 100);

        if (i == steps / 4 || i == steps / 3)
            what = WORKLOAD_LOOK_BACK;
        else if (i == steps / 2)
            what = WORKLOAD_COMPACT;
        else if (i == steps - steps / 4)
            what = WORKLOAD_REOPEN;
        workload_step(workload, what);
    }
    if (!workload->ended)
        workload_check_all(workload);
}

/* ---- Judging ------------------------------------------------------------------------------------------ */

/** Nothing fails any more: what stands in the world opens, and shows a prefix of m >= least writes by get and by walk.
 *  *state_out is what it shows. The store is left open. */
static inline void
workload_judge_open(struct workload *workload, size_t least, const char *image,
                    struct oracle_state *state_out)
{
    tamis_error err = {0};
    tamis_iter *iter;
    size_t with;

    ck_assert_msg(oracle_open(workload->world, &workload->db, &err) == TAMIS_OK,
                  "%s, %s: open: %s (%s)", workload_case, image, err.message, err.where);
    ck_assert_msg(workload_read(workload->db, state_out, &err), "%s, %s: get: %s (%s)",
                  workload_case, image, err.message, err.where);
    ck_assert_msg(
        workload_find(workload, state_out, least, &with) != ORACLE_NONE,
        "%s, %s: no prefix of at least %zu writes is there (%zu issued, %zu acknowledged, "
        "%zu synced)",
        workload_case, image, least, workload->count, workload->acked, workload->synced);
    workload->reads_tolerated = 0;
    check_ok(tamis_iter_open(workload->db, NULL, &iter, &err), err);
    workload_check_walk(workload, iter, state_out);
    tamis_iter_close(iter);
}

/** As above; and after a power cut right after that the same is there (C3, C5), unless a sync lied. Takes `image_sim`. */
static inline void
workload_judge(struct workload *workload, struct sim *image_sim, size_t least, bool lied,
               const char *image)
{
    struct world *world = workload->world;
    struct oracle_state shown;
    struct oracle_state again;
    struct sim *cut;
    tamis_error err = {0};

    world_take_sim(world, image_sim);
    workload_judge_open(workload, least, image, &shown);
    if (lied) {
        check_ok(tamis_close(workload->db, &err), err);
        workload->db = NULL;
        return;
    }
    sim_stop_at(world->sim, sim_call_count(world->sim) + 1);
    (void)tamis_close(workload->db, NULL);
    cut = sim_crash(world->sim, SIM_P0_STRICT, 1);
    world_take_sim(world, cut);
    workload_judge_open(workload, least, "a power cut after that", &again);
    for (size_t key = 0; key < ORACLE_KEYS; key++)
        ck_assert_msg(oracle_value_equal(&shown.values[key], &again.values[key]),
                      "%s, %s: key %zu is not what it was before the power cut", workload_case,
                      image, key);
    check_ok(tamis_close(workload->db, &err), err);
    workload->db = NULL;
}

#endif
