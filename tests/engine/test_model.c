/* SPDX-License-Identifier: MIT
 *
 * tests/engine/test_model.c -- random operations on a store give what a sorted array gives.
 *
 * A run is one seed: a shape of keys, and at every opening one of several sets of options. A failure names the seed
 * and the number of the operation; TAMIS_SEED repeats that run first.
 */
#include <check.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <tamis/tamis.h>

#include "tests/engine/model.h"
#include "tests/support/check_status.h"
#include "tests/support/rng.h"
#include "tests/support/temp_dir.h"

#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
enum { SEED_COUNT = 8, OPERATION_COUNT = 800, KILL_COUNT = 20 };
#else
enum { SEED_COUNT = 48, OPERATION_COUNT = 1500, KILL_COUNT = 60 };
#endif

enum {
    SNAPSHOT_MAX = 4,
    ITER_MAX = 3,
    KEY_MAX = 256,
    VALUE_MAX = 100000, // larger than the smallest write buffer
};

static const struct option_set {
    uint64_t write_buffer_bytes;
    uint32_t block_bytes;
    uint64_t block_cache_bytes;
    tamis_filter_kind kind;
    double bits_per_key;
    tamis_compression compression;
} option_sets[] = {
    {64 << 10, 64, 0, TAMIS_FILTER_PAIR512, 10, TAMIS_COMPRESSION_LZ4},
    {64 << 10, 4096, 8 << 20, TAMIS_FILTER_PAIR512, 10, TAMIS_COMPRESSION_NONE},
    {64 << 10, 256, 16 << 10, TAMIS_FILTER_BLK512, 2.5, TAMIS_COMPRESSION_LZ4},
    {80 << 10, 65536, 1 << 20, TAMIS_FILTER_STANDARD, 20, TAMIS_COMPRESSION_LZ4},
    {128 << 10, 1024, 0, TAMIS_FILTER_STANDARD, 2.5, TAMIS_COMPRESSION_NONE},
    {100 << 10, 4096, 1 << 20, TAMIS_FILTER_PAIR512, 0, TAMIS_COMPRESSION_LZ4},
    {1 << 20, 128, 1 << 20, TAMIS_FILTER_BLK512, 20, TAMIS_COMPRESSION_NONE},
};

enum key_shape {
    SHAPE_DENSE,   // few keys, many versions
    SHAPE_EXTREME, // 0x00 and 0xff
    SHAPE_PREFIX,  // a long common prefix, and pieces of it
    SHAPE_WIDE,    // many keys
    SHAPE_COUNT,
};

struct held_snapshot {
    tamis_snapshot *snapshot;
    uint64_t sequence;
};

struct held_iter {
    tamis_iter *iter;
    uint64_t sequence;
    bool has_lower, has_upper;
    tamis_slice lower, upper; // copies
    bool positioned;
    size_t at; // in the model: where it stands, or the end
};

struct run {
    uint64_t seed;
    unsigned operation;
    struct rng rng;
    enum key_shape shape;
    char *scratch;
    char *path;
    tamis_db *db; // NULL: closed; then only the model is written
    tamis_batch *batch;
    struct model model;
    struct held_snapshot snapshots[SNAPSHOT_MAX];
    struct held_iter iters[ITER_MAX];
    uint8_t value_bytes[VALUE_MAX];
    uint8_t buffer[VALUE_MAX];
};

static tamis_error err;

#define require(run, condition)                                                                    \
    ck_assert_msg((condition), "seed %" PRIu64 ", operation %u: %s", (run)->seed,                  \
                  (run)->operation, #condition)

#define require_ok(run, call)                                                                      \
    do {                                                                                           \
        tamis_status got_ = (call);                                                                \
        ck_assert_msg(got_ == TAMIS_OK, "seed %" PRIu64 ", operation %u: %s gives %s: %s",         \
                      (run)->seed, (run)->operation, #call, tamis_status_name(got_), err.message); \
    } while (0)

/* ---- Keys and values ------------------------------------------------------------------------------ */

static tamis_slice
random_key(struct run *run, uint8_t bytes[KEY_MAX])
{
    static const uint8_t extremes[] = {0x00, 0xff, 0x01, 0xfe};
    struct rng *rng = &run->rng;
    size_t length = 0;

    if (rng_chance(rng, 1, 40))
        return tm_slice(bytes, 0);
    switch (run->shape) {
    case SHAPE_DENSE:
        length = (size_t)snprintf((char *)bytes, KEY_MAX, "k%02u", (unsigned)rng_below(rng, 12));
        break;
    case SHAPE_EXTREME:
        length = rng_below(rng, 7);
        for (size_t i = 0; i < length; i++)
            bytes[i] = extremes[rng_below(rng, rng_chance(rng, 3, 4) ? 2 : 4)];
        break;
    case SHAPE_PREFIX:
        memset(bytes, 'p', 200);
        length = rng_chance(rng, 1, 8)
                     ? rng_below(rng, 201)
                     : 200 + (size_t)snprintf((char *)bytes + 200, KEY_MAX - 200, "%u",
                                              (unsigned)rng_below(rng, 300));
        break;
    case SHAPE_WIDE:
    case SHAPE_COUNT:
        length = (size_t)snprintf((char *)bytes, KEY_MAX, "%llu",
                                  (unsigned long long)(rng_below(rng, 3000) * 0x9e3779b97f4a7c15u));
        break;
    }
    return tm_slice(bytes, length);
}

/* Mostly small; some empty, some larger than a block, few larger than the write buffer. */
static tamis_slice
random_value(struct run *run)
{
    struct rng *rng = &run->rng;
    size_t length = rng_below(rng, rng_chance(rng, 1, 2) ? 40 : 1000);

    if (rng_chance(rng, 1, 20))
        length = 0;
    else if (rng_chance(rng, 1, 30))
        length = rng_below(rng, 20000);
    else if (rng_chance(rng, 1, 300))
        length = VALUE_MAX - rng_below(rng, 100);
    if (rng_chance(rng, 1, 2))
        rng_fill(rng, run->value_bytes, length);
    else
        memset(run->value_bytes, 'a' + (int)rng_below(rng, 26), length);
    return tm_slice(run->value_bytes, length);
}

/* ---- Opening and closing -------------------------------------------------------------------------- */

static void
open_store(struct run *run, struct rng *rng)
{
    const struct option_set *set =
        &option_sets[rng_below(rng, sizeof option_sets / sizeof option_sets[0])];
    tamis_options options;

    tamis_options_init(&options);
    options.create_if_missing = true;
    options.write_buffer_bytes = set->write_buffer_bytes;
    options.block_bytes = set->block_bytes;
    options.block_cache_bytes = set->block_cache_bytes;
    options.filter_kind = set->kind;
    options.filter_bits_per_key = set->bits_per_key;
    options.compression = set->compression;
    require_ok(run, tamis_open(run->path, &options, &run->db, &err));
}

static void
close_iter(struct held_iter *held)
{
    tamis_iter_close(held->iter);
    free((void *)held->lower.data);
    free((void *)held->upper.data);
    memset(held, 0, sizeof *held);
}

static void
release_snapshot(struct run *run, struct held_snapshot *held)
{
    tamis_snapshot_release(run->db, held->snapshot);
    held->snapshot = NULL;
}

static void
close_store(struct run *run)
{
    bool busy = false;

    for (size_t i = 0; i < ITER_MAX; i++)
        busy |= run->iters[i].iter != NULL;
    for (size_t i = 0; i < SNAPSHOT_MAX; i++)
        busy |= run->snapshots[i].snapshot != NULL;
    if (busy)
        require(run, tamis_close(run->db, &err) == TAMIS_BUSY);
    for (size_t i = 0; i < ITER_MAX; i++)
        close_iter(&run->iters[i]);
    for (size_t i = 0; i < SNAPSHOT_MAX; i++)
        release_snapshot(run, &run->snapshots[i]);
    require_ok(run, tamis_close(run->db, &err));
    run->db = NULL;
}

static struct run *
begin_run(uint64_t seed, const char *parent)
{
    struct run *run = calloc(1, sizeof *run);

    ck_assert_ptr_nonnull(run);
    run->seed = seed;
    run->rng = rng_from(seed);
    run->shape = (enum key_shape)(seed % SHAPE_COUNT);
    run->scratch = parent != NULL ? temp_dir_make_under(parent) : NULL;
    if (run->scratch == NULL)
        run->scratch = temp_dir_make();
    run->path = temp_dir_path(run->scratch, "db");
    require_ok(run, tamis_batch_create(NULL, &run->batch, &err));
    return run;
}

static void
end_run(struct run *run)
{
    model_release(&run->model);
    tamis_batch_destroy(run->batch);
    free(run->path);
    temp_dir_remove(run->scratch);
    free(run);
}

/* Where a range that begins at `from` ends: some keys on, or anywhere, before it too. */
static tamis_slice
random_end(struct run *run, tamis_slice from, uint8_t bytes[KEY_MAX])
{
    size_t at = model_seek(&run->model, from) + rng_below(&run->rng, 12);
    tamis_slice to;

    if (rng_chance(&run->rng, 1, 10) || at >= run->model.key_count)
        return random_key(run, bytes);
    to = run->model.keys[at].key;
    memcpy(bytes, to.data, to.length);
    return tm_slice(bytes, to.length);
}

/* ---- Writing -------------------------------------------------------------------------------------- */

static void
write_batch(struct run *run)
{
    uint8_t key_bytes[KEY_MAX];
    size_t count = rng_below(&run->rng, 20);

    tamis_batch_clear(run->batch);
    for (size_t i = 0; i < count; i++) {
        tamis_slice key = random_key(run, key_bytes);

        if (rng_chance(&run->rng, 1, 3)) {
            require_ok(run, tamis_batch_delete(run->batch, key, &err));
            model_delete(&run->model, key);
        } else if (rng_chance(&run->rng, 1, 20)) {
            uint8_t to_bytes[KEY_MAX];
            tamis_slice to = random_end(run, key, to_bytes);

            require_ok(run, tamis_batch_delete_range(run->batch, key, to, &err));
            if (tm_slice_compare(key, to) < 0)
                model_delete_range(&run->model, key, to);
        } else {
            tamis_slice value = random_value(run);

            require_ok(run, tamis_batch_put(run->batch, key, value, &err));
            model_put(&run->model, key, value);
        }
    }
}

/* One write, to the model and to the store if that is open. The random numbers taken are the same either way. */
static void
write_once(struct run *run)
{
    uint8_t key_bytes[KEY_MAX];
    tamis_write_options options;

    tamis_write_options_init(&options);
    options.sync = rng_chance(&run->rng, 1, 50);
    if (rng_chance(&run->rng, 1, 8)) {
        write_batch(run);
        if (run->db != NULL)
            require_ok(run, tamis_write(run->db, &options, run->batch, &err));
    } else {
        tamis_slice key = random_key(run, key_bytes);

        if (rng_chance(&run->rng, 1, 40)) {
            uint8_t to_bytes[KEY_MAX];
            tamis_slice to = random_end(run, key, to_bytes);

            if (tm_slice_compare(key, to) < 0)
                model_delete_range(&run->model, key, to);
            if (run->db != NULL)
                require_ok(run, tamis_delete_range(run->db, &options, key, to, &err));
        } else if (rng_chance(&run->rng, 1, 4)) {
            model_delete(&run->model, key);
            if (run->db != NULL)
                require_ok(run, tamis_delete(run->db, &options, key, &err));
        } else {
            tamis_slice value = random_value(run);

            model_put(&run->model, key, value);
            if (run->db != NULL)
                require_ok(run, tamis_put(run->db, &options, key, value, &err));
        }
    }
}

static void
compact_some(struct run *run)
{
    uint8_t from_bytes[KEY_MAX];
    uint8_t to_bytes[KEY_MAX];
    tamis_slice from = random_key(run, from_bytes);
    tamis_slice to = random_key(run, to_bytes);
    bool has_from = rng_chance(&run->rng, 2, 3);
    bool has_to = rng_chance(&run->rng, 2, 3);

    if (run->db != NULL)
        require_ok(
            run, tamis_compact_range(run->db, has_from ? &from : NULL, has_to ? &to : NULL, &err));
}

/* ---- Reading -------------------------------------------------------------------------------------- */

static void
read_key(struct run *run, tamis_slice key, const struct held_snapshot *held)
{
    uint64_t sequence = held != NULL ? held->sequence : run->model.sequence;
    tamis_read_options options;
    tamis_pinned pinned;
    tamis_slice expected = {NULL, 0};
    bool found = model_get(&run->model, key, sequence, &expected);
    bool answer = !found;
    size_t capacity = rng_below(&run->rng, 1200);
    size_t length = SIZE_MAX;
    tamis_status status;

    tamis_read_options_init(&options);
    options.snapshot = held != NULL ? held->snapshot : NULL;
    status = tamis_get(run->db, &options, key, run->buffer, capacity, &length, &err);
    require(run, status == (found ? TAMIS_OK : TAMIS_NOT_FOUND));
    if (found) {
        require(run, length == expected.length);
        require(run,
                memcmp(run->buffer, expected.data, length < capacity ? length : capacity) == 0);
    }
    status = tamis_get_pinned(run->db, &options, key, &pinned, &err);
    require(run, status == (found ? TAMIS_OK : TAMIS_NOT_FOUND));
    require(run, !found || tm_slice_equal(pinned.value, expected));
    tamis_pinned_release(&pinned);
    require_ok(run, tamis_exists(run->db, &options, key, &answer, &err));
    require(run, answer == found);
    if (held == NULL && found) {
        require_ok(run, tamis_may_exist(run->db, key, &answer, &err));
        require(run, answer);
    }
}

static struct held_snapshot *
any_snapshot(struct run *run)
{
    struct held_snapshot *held = &run->snapshots[rng_below(&run->rng, SNAPSHOT_MAX)];

    return held->snapshot != NULL ? held : NULL;
}

static void
read_once(struct run *run)
{
    uint8_t key_bytes[KEY_MAX];
    tamis_slice key = random_key(run, key_bytes);

    read_key(run, key, any_snapshot(run));
}

/* The iterator stands where the model says: index `at`, or nowhere. */
static void
check_place(struct run *run, struct held_iter *held)
{
    tamis_slice value = {NULL, 0};
    bool expected = model_visible(&run->model, &held->at, held->sequence,
                                  held->has_upper ? &held->upper : NULL, &value);

    require_ok(run, tamis_iter_status(held->iter, &err));
    require(run, tamis_iter_valid(held->iter) == expected);
    if (!expected)
        return;
    require(run, tm_slice_equal(tamis_iter_key(held->iter), run->model.keys[held->at].key));
    require(run, tm_slice_equal(tamis_iter_value(held->iter), value));
}

static void
open_iter(struct run *run, struct held_iter *held, const struct held_snapshot *at)
{
    uint8_t lower_bytes[KEY_MAX];
    uint8_t upper_bytes[KEY_MAX];
    tamis_iter_options options;

    memset(held, 0, sizeof *held);
    held->sequence = at != NULL ? at->sequence : run->model.sequence;
    held->has_lower = rng_chance(&run->rng, 1, 2);
    held->has_upper = rng_chance(&run->rng, 1, 2);
    held->lower = random_key(run, lower_bytes);
    held->upper = random_key(run, upper_bytes);
    tamis_iter_options_init(&options);
    options.snapshot = at != NULL ? at->snapshot : NULL;
    options.lower = held->has_lower ? &held->lower : NULL;
    options.upper = held->has_upper ? &held->upper : NULL;
    require_ok(run, tamis_iter_open(run->db, &options, &held->iter, &err));
    held->lower = model_copy(held->lower);
    held->upper = model_copy(held->upper);
    memset(lower_bytes, 0x55, sizeof lower_bytes); // the iterator has its own
    memset(upper_bytes, 0x55, sizeof upper_bytes);
    require(run, !tamis_iter_valid(held->iter));
}

static void
check_place_back(struct run *run, struct held_iter *held, size_t at_end)
{
    tamis_slice value = {NULL, 0};
    bool expected = model_visible_back(&run->model, &at_end, held->sequence,
                                       held->has_lower ? &held->lower : NULL, &value);

    require_ok(run, tamis_iter_status(held->iter, &err));
    require(run, tamis_iter_valid(held->iter) == expected);
    if (!expected)
        return;
    held->at = at_end - 1;
    require(run, tm_slice_equal(tamis_iter_key(held->iter), run->model.keys[held->at].key));
    require(run, tm_slice_equal(tamis_iter_value(held->iter), value));
}

/* One more than the index of the last key at or before `key`, within the upper bound. */
static size_t
model_end(const struct run *run, const struct held_iter *held, tamis_slice key)
{
    size_t end = model_seek(&run->model, key);

    if (end < run->model.key_count && tm_slice_equal(run->model.keys[end].key, key))
        end++;
    if (held->has_upper && end > model_seek(&run->model, held->upper))
        end = model_seek(&run->model, held->upper);
    return end;
}

/* To the end, or to a key from behind; then back, and now and then a step forward. */
static void
move_iter_back(struct run *run, struct held_iter *held, unsigned step_count)
{
    uint8_t key_bytes[KEY_MAX];

    if (rng_chance(&run->rng, 1, 2)) {
        tamis_iter_last(held->iter);
        check_place_back(run, held,
                         held->has_upper ? model_seek(&run->model, held->upper)
                                         : run->model.key_count);
    } else {
        tamis_slice key = random_key(run, key_bytes);

        tamis_iter_seek_for_prev(held->iter, key);
        check_place_back(run, held, model_end(run, held, key));
    }
    held->positioned = true;
    for (unsigned i = 0; i < step_count && tamis_iter_valid(held->iter); i++) {
        if (rng_chance(&run->rng, 1, 8)) {
            held->at++;
            tamis_iter_next(held->iter);
            check_place(run, held);
        } else {
            tamis_iter_prev(held->iter);
            check_place_back(run, held, held->at);
        }
    }
}

/* A held iterator is at the key it was at, whatever was written since; keys new to the model shift its index. */
static void
move_iter(struct run *run, struct held_iter *held, unsigned step_count)
{
    uint8_t key_bytes[KEY_MAX];
    unsigned way = (unsigned)rng_below(&run->rng, 4);

    if (!held->positioned || way == 0) {
        held->at = held->has_lower ? model_seek(&run->model, held->lower) : 0;
        tamis_iter_first(held->iter);
    } else if (way == 1) {
        tamis_slice key = random_key(run, key_bytes);

        if (held->has_lower && tm_slice_compare(key, held->lower) < 0)
            held->at = model_seek(&run->model, held->lower);
        else
            held->at = model_seek(&run->model, key);
        tamis_iter_seek(held->iter, key);
        memset(key_bytes, 0x55, sizeof key_bytes);
    } else if (tamis_iter_valid(held->iter)) {
        held->at = model_seek(&run->model, tamis_iter_key(held->iter));
    } else {
        tamis_iter_next(held->iter);
        require(run, !tamis_iter_valid(held->iter));
        return;
    }
    held->positioned = true;
    check_place(run, held);
    for (unsigned i = 0; i < step_count && tamis_iter_valid(held->iter); i++) {
        held->at++;
        tamis_iter_next(held->iter);
        check_place(run, held);
    }
}

static void
iterate_once(struct run *run)
{
    struct held_iter *held = &run->iters[rng_below(&run->rng, ITER_MAX)];

    if (held->iter == NULL)
        open_iter(run, held, any_snapshot(run));
    else if (rng_chance(&run->rng, 1, 4))
        close_iter(held);
    if (held->iter != NULL && rng_chance(&run->rng, 1, 3))
        move_iter_back(run, held, (unsigned)rng_below(&run->rng, 60));
    else if (held->iter != NULL)
        move_iter(run, held, (unsigned)rng_below(&run->rng, 60));
}

static void
snapshot_once(struct run *run)
{
    struct held_snapshot *held = &run->snapshots[rng_below(&run->rng, SNAPSHOT_MAX)];

    if (held->snapshot != NULL) {
        release_snapshot(run, held);
        return;
    }
    require_ok(run, tamis_snapshot_take(run->db, &held->snapshot, &err));
    held->sequence = run->model.sequence;
}

/* Whether a whole walk gives exactly what the model had at `sequence`. */
static bool
holds_model(struct run *run, const struct held_snapshot *snapshot)
{
    uint64_t sequence = snapshot != NULL ? snapshot->sequence : run->model.sequence;
    tamis_iter_options options;
    tamis_iter *iter = NULL;
    tamis_slice value = {NULL, 0};
    size_t at = 0;
    bool equal = true;

    tamis_iter_options_init(&options);
    options.snapshot = snapshot != NULL ? snapshot->snapshot : NULL;
    require_ok(run, tamis_iter_open(run->db, &options, &iter, &err));
    tamis_iter_first(iter);
    for (; equal; at++, tamis_iter_next(iter)) {
        bool expected = model_visible(&run->model, &at, sequence, NULL, &value);

        require_ok(run, tamis_iter_status(iter, &err));
        equal = tamis_iter_valid(iter) == expected;
        if (!equal || !expected)
            break;
        equal = tm_slice_equal(tamis_iter_key(iter), run->model.keys[at].key) &&
                tm_slice_equal(tamis_iter_value(iter), value);
    }
    tamis_iter_close(iter);
    return equal;
}

static void
check_everything(struct run *run)
{
    require(run, holds_model(run, NULL));
    for (size_t i = 0; i < SNAPSHOT_MAX; i++)
        require(run, run->snapshots[i].snapshot == NULL || holds_model(run, &run->snapshots[i]));
    for (size_t i = 0; i < run->model.key_count; i++)
        read_key(run, run->model.keys[i].key, NULL);
    require_ok(run, tamis_verify(run->db, NULL, NULL, &err));
}

/* ---- Runs ----------------------------------------------------------------------------------------- */

static void
operate(struct run *run)
{
    uint64_t choice = rng_below(&run->rng, 1000);

    if (choice < 550) {
        write_once(run);
    } else if (choice < 750) {
        read_once(run);
    } else if (choice < 880) {
        iterate_once(run);
    } else if (choice < 960) {
        snapshot_once(run);
    } else if (choice < 975) {
        require_ok(run, tamis_flush(run->db, &err));
    } else if (choice < 985) {
        compact_some(run);
    } else if (choice < 990) {
        require_ok(run, tamis_wait_idle(run->db, &err));
    } else if (choice < 995) {
        check_everything(run);
    } else {
        close_store(run);
        open_store(run, &run->rng);
        require(run, holds_model(run, NULL));
    }
}

START_TEST(any_operations_give_what_the_model_gives)
{
    uint64_t seed = rng_seed("any_operations_give_what_the_model_gives", 1000);

    for (unsigned i = 0; i < SEED_COUNT; i++) {
        struct run *run = begin_run(seed + i, "/dev/shm");

        open_store(run, &run->rng);
        for (run->operation = 0; run->operation < OPERATION_COUNT; run->operation++)
            operate(run);
        check_everything(run);
        require_ok(run, tamis_compact_range(run->db, NULL, NULL, &err));
        check_everything(run);
        close_store(run);
        open_store(run, &run->rng);
        check_everything(run);
        close_store(run);
        end_run(run);
    }
}
END_TEST

/* ---- Killed processes ----------------------------------------------------------------------------- */

enum { CHILD_OPERATION_MAX = 400 };

/* What the child does, and what the model does after it: both from run->rng. */
static void
operate_to_be_killed(struct run *run)
{
    uint64_t choice = rng_below(&run->rng, 100);

    if (choice < 94)
        write_once(run);
    else if (choice < 97)
        compact_some(run);
    else if (run->db != NULL)
        require_ok(run, tamis_flush(run->db, &err));
}

static void
run_child(struct run *run, struct rng open_rng, int acknowledgements)
{
    open_store(run, &open_rng);
    for (run->operation = 0; run->operation < CHILD_OPERATION_MAX; run->operation++) {
        operate_to_be_killed(run);
        if (write(acknowledgements, "+", 1) != 1)
            _exit(EXIT_FAILURE);
    }
    for (;;)
        pause(); // for the signal
}

/* Let a child work on the store and kill it; returns how many operations it has acknowledged. */
static unsigned
kill_child(struct run *run, struct rng open_rng, unsigned wanted)
{
    unsigned acknowledged = 0;
    bool killed = false;
    int ends[2];
    int state = 0;
    pid_t child;

    require(run, pipe(ends) == 0);
    fflush(NULL);
    child = fork();
    require(run, child >= 0);
    if (child == 0) {
        close(ends[0]);
        run_child(run, open_rng, ends[1]);
    }
    close(ends[1]);
    for (;;) {
        char bytes[256];
        ssize_t got;

        if (!killed && acknowledged >= wanted) {
            require(run, kill(child, SIGKILL) == 0);
            killed = true;
        }
        got = read(ends[0], bytes, killed ? sizeof bytes : 1);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            break;
        acknowledged += (unsigned)got;
    }
    close(ends[0]);
    require(run, waitpid(child, &state, 0) == child);
    require(run, WIFSIGNALED(state) && WTERMSIG(state) == SIGKILL);
    return acknowledged;
}

START_TEST(a_killed_process_leaves_every_acknowledged_operation_behind)
{
    uint64_t seed = rng_seed("a_killed_process_leaves_every_acknowledged_operation_behind", 7000);
    unsigned in_flight_count = 0;
    unsigned acknowledged_count = 0;

    for (unsigned i = 0; i < SHAPE_COUNT; i++) {
        struct run *run = begin_run(seed + i, NULL);

        for (unsigned round = 0; round < KILL_COUNT / SHAPE_COUNT; round++) {
            struct rng open_rng = rng_from(rng_next(&run->rng));
            unsigned wanted = (unsigned)rng_below(&run->rng, CHILD_OPERATION_MAX + 1);
            unsigned acknowledged;

            if (rng_chance(&run->rng, 1, 8))
                wanted = 0; // while it opens
            acknowledged = kill_child(run, open_rng, wanted);
            acknowledged_count += acknowledged;
            for (run->operation = 0; run->operation < acknowledged; run->operation++)
                operate_to_be_killed(run);
            open_store(run, &open_rng);
            if (acknowledged < CHILD_OPERATION_MAX && !holds_model(run, NULL)) {
                tamis_db *db = run->db;

                run->db = NULL; // the model alone
                operate_to_be_killed(run);
                run->db = db;
                in_flight_count++;
            }
            check_everything(run);
            for (unsigned j = 0; j < 20; j++, run->operation++)
                operate(run);
            close_store(run);
        }
        end_run(run);
    }
    printf("%u acknowledged operations, %u in flight that appeared\n", acknowledged_count,
           in_flight_count);
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("model");
    TCase *tests = tcase_create("model");

    tcase_set_timeout(tests, 0);
    tcase_add_test(tests, any_operations_give_what_the_model_gives);
    tcase_add_test(tests, a_killed_process_leaves_every_acknowledged_operation_behind);
    suite_add_tcase(suite, tests);
    return check_run(suite);
}
