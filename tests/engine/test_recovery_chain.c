/* SPDX-License-Identifier: MIT
 *
 * tests/engine/test_recovery_chain.c -- logs that are missing, foreign, exchanged or damaged where one follows the other,
 * numbers at their limits, and openings that fail again and again.
 *
 * A store with two logs is one whose flush cannot make its table: what the first log holds is not in a table yet, and the
 * second one is written to. All writes ask for a sync, so a store that opens shows every one of them.
 */
#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "engine/manifest.h"
#include "engine/names.h"
#include "engine/record_log.h"
#include "engine/wal.h"
#include "tests/engine/store_oracle.h"

enum {
    OLD_WRITES = 12,
    NEW_WRITES = 9,
    NAMES_MAX = 400,
    VALUE_BYTES = 300,
    FAILING_OPENS = 40,
};

static struct world *world;
static tamis_error err;

static void
set_up(void)
{
    world = world_create(1, WORLD_BATON);
}

static void
tear_down(void)
{
    world_destroy(world);
}

/* A test that loops over both ways of writing logs takes the way as _i. */
static void
use_world(uint64_t seed, int log_mode)
{
    world_destroy(world);
    world = world_create(seed, WORLD_BATON | (log_mode != 0 ? WORLD_MAP_LOGS : 0));
}

/* ---- Files ------------------------------------------------------------------------------------------ */

struct names {
    size_t count;
    char name[NAMES_MAX][TM_NAME_BYTES_MAX];
};

static void
add_name(void *arg, const char *name)
{
    struct names *names = arg;

    ck_assert_uint_lt(names->count, NAMES_MAX);
    snprintf(names->name[names->count++], sizeof names->name[0], "%s", name);
}

static int
compare_names(const void *a, const void *b)
{
    return strcmp(a, b);
}

/* Names of a kind in order; TM_NAME_FOREIGN: all. */
static struct names
list_names(enum tm_name_kind kind)
{
    struct names all = {0};
    struct names some = {0};
    uint64_t number;

    sim_file_each(world->sim, ORACLE_DIR, add_name, &all);
    for (size_t i = 0; i < all.count; i++)
        if (kind == TM_NAME_FOREIGN || tm_name_parse(all.name[i], &number) == kind)
            add_name(&some, all.name[i]);
    qsort(some.name, some.count, sizeof some.name[0], compare_names);
    return some;
}

static uint8_t *
file_bytes(const char *name, size_t *size_out)
{
    uint8_t *bytes = sim_file_get(world->sim, ORACLE_DIR, name, size_out);

    ck_assert_msg(bytes != NULL, "%s is not there", name);
    return bytes;
}

/* A number made of every name and every byte. */
static uint64_t
directory_hash(void)
{
    struct names names = list_names(TM_NAME_FOREIGN);
    uint64_t hash = 0;

    for (size_t i = 0; i < names.count; i++) {
        size_t size;
        uint8_t *bytes = file_bytes(names.name[i], &size);

        hash = tm_hash64(names.name[i], strlen(names.name[i]), hash);
        hash = tm_hash64(bytes, size, hash);
        free(bytes);
    }
    return hash;
}

static void
flip_bit(const char *name, size_t offset)
{
    size_t size;
    uint8_t *bytes = file_bytes(name, &size);

    ck_assert_uint_lt(offset, size);
    bytes[offset] ^= 16;
    sim_file_put(world->sim, ORACLE_DIR, name, bytes, size);
    free(bytes);
}

/* ---- A store with two logs ------------------------------------------------------------------------- */

static tamis_slice
value_of(uint64_t store, size_t number, uint8_t bytes[VALUE_BYTES])
{
    struct rng rng = rng_from(store * 1000 + number);

    rng_fill(&rng, bytes, VALUE_BYTES);
    return (tamis_slice){bytes, VALUE_BYTES};
}

static void
put_number(tamis_db *db, uint64_t store, size_t number)
{
    tamis_write_options options;
    uint8_t bytes[VALUE_BYTES];
    char key[24];

    tamis_write_options_init(&options);
    options.sync = true;
    check_ok(tamis_put(db, &options, tamis_text(oracle_key(number, key)),
                       value_of(store, number, bytes), &err),
             err);
}

/* Exactly the first `count` writes are there. */
static void
check_numbers(tamis_db *db, uint64_t store, size_t count)
{
    struct oracle_state state;

    oracle_read(db, &state, "opened");
    for (size_t i = 0; i < ORACLE_KEYS; i++) {
        uint8_t bytes[VALUE_BYTES];
        struct oracle_value expected = oracle_value_of(value_of(store, i, bytes));

        ck_assert_msg(state.values[i].is_there == (i < count), "key %zu is %s", i,
                      i < count ? "missing" : "there");
        if (i < count)
            ck_assert_msg(oracle_value_equal(&state.values[i], &expected), "key %zu is wrong", i);
    }
}

static tamis_db *
open_store(void)
{
    tamis_db *db = NULL;

    check_ok(oracle_open(world, &db, &err), err);
    return db;
}

/* The process is killed; the machine goes on. */
static void
kill_store(tamis_db *db)
{
    struct sim *machine = sim_clone(world->sim);

    sim_stop_at(world->sim, sim_call_count(world->sim) + 1);
    (void)tamis_close(db, NULL);
    world_take_sim(world, machine);
}

/* OLD_WRITES in one log and `new_writes` in the next, then a kill. */
static void
make_two_logs(uint64_t store, size_t new_writes)
{
    struct sim_fault no_table = {SIM_OPEN, TM_OS_CLASS_TABLE, 1, SIM_ERROR, EIO, true};
    tamis_db *db = open_store();
    size_t fault;

    for (size_t i = 0; i < OLD_WRITES; i++)
        put_number(db, store, i);
    fault = sim_fault_add(world->sim, no_table);
    check_status(tamis_flush(db, &err), TAMIS_IO, err);
    ck_assert_uint_ne(sim_fault_fired(world->sim, fault), 0);
    for (size_t i = 0; i < new_writes; i++)
        put_number(db, store, OLD_WRITES + i);
    kill_store(db);
    ck_assert_uint_eq(list_names(TM_NAME_LOG).count, 2);
}

/* The store does not open, and nothing changes. */
static void
check_refused(tamis_status expected, const char *what)
{
    uint64_t before = directory_hash();
    tamis_db *db = NULL;
    tamis_status status = oracle_open(world, &db, &err);

    ck_assert_msg(status == expected, "%s: open gives %s", what, tamis_status_name(status));
    ck_assert_ptr_null(db);
    ck_assert_msg(directory_hash() == before, "%s: files changed", what);
}

/* ---- Logs -------------------------------------------------------------------------------------------- */

START_TEST(newest_log_file_missing_after_a_kill)
{
    struct names logs;

    use_world(1, _i);
    make_two_logs(1, NEW_WRITES);
    logs = list_names(TM_NAME_LOG);
    ck_assert(sim_file_remove(world->sim, ORACLE_DIR, logs.name[1]));
    check_refused(TAMIS_CORRUPT, "the newer log is gone");
}
END_TEST

START_TEST(two_logs_swapped_after_a_kill)
{
    struct names logs;
    uint8_t *bytes[2];
    size_t size[2];

    use_world(1, _i);
    make_two_logs(1, NEW_WRITES);
    logs = list_names(TM_NAME_LOG);
    for (size_t i = 0; i < 2; i++)
        bytes[i] = file_bytes(logs.name[i], &size[i]);
    for (size_t i = 0; i < 2; i++)
        sim_file_put(world->sim, ORACLE_DIR, logs.name[i], bytes[1 - i], size[1 - i]);
    check_refused(TAMIS_CORRUPT, "both logs are in the wrong place");
    free(bytes[0]);
    free(bytes[1]);
}
END_TEST

START_TEST(log_that_the_manifest_needs_without_its_beginning)
{
    static const size_t sizes[] = {0, 1, TM_RECORD_HEADER_BYTES,
                                   TM_RECORD_HEADER_BYTES + TM_WAL_START_BYTES - 1};
    struct names logs;
    uint8_t *bytes;
    size_t size;

    use_world(1, _i);
    make_two_logs(1, 0);
    logs = list_names(TM_NAME_LOG);
    bytes = file_bytes(logs.name[0], &size);
    ck_assert(sim_file_remove(world->sim, ORACLE_DIR, logs.name[1]));
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        sim_file_put(world->sim, ORACLE_DIR, logs.name[0], bytes, sizes[i]);
        check_refused(TAMIS_CORRUPT, "a log cut within its start record");
    }
    free(bytes);
}
END_TEST

/* The same history in two stores: numbers, lengths and sequences agree, only the values are others. */
START_TEST(log_of_another_store_under_its_name)
{
    struct names logs;
    struct sim *other;

    use_world(2, _i);
    make_two_logs(2, NEW_WRITES);
    other = sim_clone(world->sim);
    for (size_t which = 0; which < 2; which++) {
        uint8_t *bytes;
        size_t size;

        use_world(1, _i);
        make_two_logs(1, NEW_WRITES);
        logs = list_names(TM_NAME_LOG);
        bytes = sim_file_get(other, ORACLE_DIR, logs.name[which], &size);
        ck_assert_ptr_nonnull(bytes);
        sim_file_put(world->sim, ORACLE_DIR, logs.name[which], bytes, size);
        check_refused(TAMIS_CORRUPT, which == 0 ? "a foreign older log" : "a foreign newer log");
        free(bytes);
    }
    sim_destroy(other);
}
END_TEST

/* Nothing was written to the newer log; that the last write of the older one was synced is known there all the same. */
START_TEST(last_synced_write_of_the_older_log_rotten)
{
    struct names logs;
    tamis_db *db;
    size_t size;
    size_t flips = 0;

    use_world(1, _i);
    make_two_logs(1, 0);
    logs = list_names(TM_NAME_LOG);
    free(file_bytes(logs.name[0], &size));
    for (size_t offset = TM_RECORD_HEADER_BYTES + TM_WAL_START_BYTES; offset < size; offset += 37) {
        struct sim *machine = sim_clone(world->sim);

        flip_bit(logs.name[0], offset);
        if (oracle_open(world, &db, &err) ==
            TAMIS_OK) { // behind the last write: it matters to nobody
            check_numbers(db, 1, OLD_WRITES);
            check_ok(tamis_close(db, &err), err);
        } else {
            ck_assert_int_eq(err.code, TAMIS_CORRUPT);
            flips++;
        }
        world_take_sim(world, machine);
    }
    ck_assert_uint_ge(flips, (size_t)OLD_WRITES * VALUE_BYTES / 37);
    db = open_store();
    check_numbers(db, 1, OLD_WRITES);
    check_ok(tamis_close(db, &err), err);
}
END_TEST

/* Writes that were never synced, and behind them a log that was made and not begun when the process was killed. */
static void
make_unbegun_log(void)
{
    tamis_db *db = open_store();
    uint64_t number;
    char name[TM_NAME_BYTES_MAX];
    struct names logs;

    for (size_t i = 0; i < OLD_WRITES; i++) {
        uint8_t bytes[VALUE_BYTES];
        char key[24];

        check_ok(tamis_put(db, NULL, tamis_text(oracle_key(i, key)), value_of(1, i, bytes), &err),
                 err);
    }
    kill_store(db);
    logs = list_names(TM_NAME_LOG);
    ck_assert_uint_eq(logs.count, 1);
    ck_assert_int_eq(tm_name_parse(logs.name[0], &number), TM_NAME_LOG);
    sim_file_put(world->sim, ORACLE_DIR, tm_name_make(TM_NAME_LOG, number + 1, name), "", 0);
}

/* A recovery that was cut short leaves a third log, which follows the one that was not begun; then the power takes what the first
 * one held. */
START_TEST(a_log_behind_one_that_was_never_begun_does_not_count)
{
    struct sim *killed;
    bool finished = false;
    size_t with_third_log = 0;
    uint64_t stop;

    use_world(1, _i);
    make_unbegun_log();
    killed = sim_clone(world->sim);
    for (stop = 1; !finished; stop++) {
        tamis_options options = oracle_options(world);
        struct oracle_state state;
        tamis_db *db = NULL;
        size_t count = 0;

        world_take_sim(world, sim_clone(killed));
        sim_stop_at(world->sim, stop);
        if (tm_open(ORACLE_DIR, &options, world->env.runtime, &db, &err) == TAMIS_OK)
            (void)tamis_close(db, NULL);
        finished = !sim_stopped(world->sim);
        with_third_log += list_names(TM_NAME_LOG).count == 3;
        world_crash(world, SIM_P0_STRICT, stop);
        db = open_store();
        oracle_read(db, &state, "opened");
        while (count < ORACLE_KEYS && state.values[count].is_there)
            count++;
        ck_assert_uint_le(count, OLD_WRITES);
        check_numbers(db, 1, count); // a prefix
        check_ok(tamis_close(db, &err), err);
    }
    sim_destroy(killed);
    ck_assert_uint_gt(with_third_log, 3);
}
END_TEST

START_TEST(two_sound_logs_open_and_go_on)
{
    for (size_t new_writes = 0; new_writes <= NEW_WRITES; new_writes += NEW_WRITES) {
        tamis_db *db;

        use_world(1, _i);
        make_two_logs(1, new_writes);
        for (int round = 0; round < 2; round++) {
            db = open_store();
            check_numbers(db, 1, OLD_WRITES + new_writes + (size_t)round);
            put_number(db, 1, OLD_WRITES + new_writes + (size_t)round);
            kill_store(db);
        }
        db = open_store();
        check_numbers(db, 1, OLD_WRITES + new_writes + 2);
        check_ok(tamis_close(db, &err), err);
    }
}
END_TEST

/* ---- A block that is an older version of itself ---------------------------------------------------- */

enum { STALE_BLOCK_BYTES = 4096 };

/* A write never reached the medium though it said so: every block of a file in turn is what it was before. */
static size_t
put_back_stale_blocks(struct sim *early, const char *name, size_t count)
{
    size_t size;
    size_t early_size = 0;
    uint8_t *bytes = file_bytes(name, &size);
    uint8_t *before = sim_file_get(early, ORACLE_DIR, name, &early_size);
    size_t refused = 0;

    for (size_t offset = 0; offset < size; offset += STALE_BLOCK_BYTES) {
        size_t length = size - offset < STALE_BLOCK_BYTES ? size - offset : STALE_BLOCK_BYTES;
        struct sim *machine = sim_clone(world->sim);
        uint8_t *stale = malloc(size);
        tamis_db *db = NULL;

        ck_assert_ptr_nonnull(stale);
        memcpy(stale, bytes, size);
        memset(stale + offset, 0, length);
        if (before != NULL && early_size > offset)
            memcpy(stale + offset, before + offset,
                   early_size - offset < length ? early_size - offset : length);
        sim_file_put(world->sim, ORACLE_DIR, name, stale, size);
        if (oracle_open(world, &db, &err) == TAMIS_OK) {
            check_numbers(db, 1, count);
            check_ok(tamis_close(db, &err), err);
        } else {
            ck_assert_msg(err.code == TAMIS_CORRUPT, "%s, block at %zu: %s", name, offset,
                          err.message);
            refused++;
        }
        free(stale);
        world_take_sim(world, machine);
    }
    free(bytes);
    free(before);
    return refused;
}

START_TEST(stale_block_of_a_closed_store)
{
    struct names names;
    struct sim *early;
    tamis_db *db;
    size_t refused = 0;

    use_world(1, _i);
    db = open_store();
    for (size_t i = 0; i < OLD_WRITES; i++)
        put_number(db, 1, i);
    early = sim_clone(world->sim);
    for (size_t i = 0; i < NEW_WRITES; i++)
        put_number(db, 1, OLD_WRITES + i);
    check_ok(tamis_close(db, &err), err);
    names = list_names(TM_NAME_FOREIGN);
    for (size_t i = 0; i < names.count; i++)
        refused += put_back_stale_blocks(early, names.name[i], OLD_WRITES + NEW_WRITES);
    ck_assert_uint_ge(refused, 1);
    sim_destroy(early);
}
END_TEST

/* ---- Limits of numbers ------------------------------------------------------------------------------- */

START_TEST(stray_file_with_the_greatest_number)
{
    static const char *const strays[] = {
        "18446744073709551615.sst",      "18446744073709551609.sst", "18446744073709551609.wal",
        "MANIFEST-18446744073709551609", "9223372036854775807.sst",  "4611686018427387904.sst"};

    for (size_t i = 0; i < sizeof strays / sizeof strays[0]; i++) {
        tamis_db *db;

        use_world(1, 0);
        db = open_store();
        put_number(db, 1, 0);
        check_ok(tamis_close(db, &err), err);
        sim_file_put(world->sim, ORACLE_DIR, strays[i], "stray", 5);
        for (size_t round = 1; round < 10; round++) {
            tamis_status status = oracle_open(world, &db, &err);

            if (status != TAMIS_OK) { // refused, and right again without the stray
                check_status(status, TAMIS_CORRUPT, err);
                ck_assert_msg(round == 1, "%s: accepted once, then refused: %s", strays[i],
                              err.message);
                ck_assert(sim_file_remove(world->sim, ORACLE_DIR, strays[i]));
                db = open_store();
            }
            check_numbers(db, 1, round);
            put_number(db, 1, round);
            check_ok(tamis_flush(db, &err), err);
            check_ok(tamis_close(db, &err), err);
        }
    }
}
END_TEST

/* A store that has given out `last_sequence` sequences. */
static void
make_store_at(uint64_t last_sequence)
{
    struct tm_edit snapshot = {.is_snapshot = true, .has_log_number = true};
    struct tm_manifest manifest;
    const tamis_fs *fs = world->env.fs;
    tamis_dir *dir;
    bool created;

    snapshot.hash_seed = 5;
    snapshot.next_file_number = 2;
    snapshot.last_sequence = last_sequence;
    check_ok(fs->open_dir(fs->ctx, ORACLE_DIR, true, &created, &dir, &err), err);
    check_ok(tm_manifest_create(&manifest, &world->env, dir, 1, &snapshot, &err), err);
    tm_manifest_close(&manifest);
    fs->close_dir(fs->ctx, dir);
}

START_TEST(sequences_that_run_out_refuse_writes_and_lose_nothing)
{
    enum { LEFT = 7 };
    tamis_batch *batch;
    tamis_db *db;

    use_world(1, _i);
    make_store_at(TM_SEQUENCE_MAX - LEFT);
    db = open_store();
    for (size_t i = 0; i < LEFT - 2; i++) {
        put_number(db, 1, i);
        if (i == 2)
            check_ok(tamis_flush(db, &err), err);
    }
    check_ok(tamis_batch_create(NULL, &batch, &err), err);
    for (int i = 0; i < 3; i++)
        check_ok(tamis_batch_put(batch, tamis_text("beyond"), tamis_text("v"), &err), err);
    check_status(tamis_write(db, NULL, batch, &err), TAMIS_TOO_LARGE, err);
    tamis_batch_destroy(batch);
    put_number(db, 1, LEFT - 2); // one write that needs less still goes
    kill_store(db);

    db = open_store();
    check_numbers(db, 1, LEFT - 1);
    put_number(db, 1, LEFT - 1);
    for (int round = 0; round < 3; round++) {
        check_status(tamis_delete(db, NULL, tamis_text("k000"), &err), TAMIS_TOO_LARGE, err);
        check_numbers(db, 1, LEFT);
        check_ok(tamis_compact_range(db, NULL, NULL, &err), err);
        check_numbers(db, 1, LEFT);
        if (round == 1)
            kill_store(db);
        else
            check_ok(tamis_close(db, &err), err);
        db = open_store();
    }
    check_numbers(db, 1, LEFT);
    check_ok(tamis_close(db, &err), err);
}
END_TEST

START_TEST(manifest_with_a_sequence_that_cannot_be_is_corrupt)
{
    static const uint64_t sequences[] = {TM_SEQUENCE_MAX + 1, UINT64_C(1) << 60, UINT64_MAX};

    for (size_t i = 0; i < sizeof sequences / sizeof sequences[0]; i++) {
        use_world(1, 0);
        make_store_at(sequences[i]);
        sim_file_put(world->sim, ORACLE_DIR, "LOCK", "", 0);
        check_refused(TAMIS_CORRUPT, "a last sequence beyond the greatest");
    }
}
END_TEST

/* ---- Openings that fail --------------------------------------------------------------------------------- */

/* A supervisor starts the program again and again while the medium is full, or broken. How many openings failed. */
static size_t
fail_to_open(const struct sim_fault *fault, uint64_t room, const char *what)
{
    uint64_t bytes = 0;
    size_t count = 0;
    size_t rule = 0;
    size_t failures = 0;
    tamis_db *db = NULL;

    make_two_logs(1, NEW_WRITES);
    if (fault != NULL)
        rule = sim_fault_add(world->sim, *fault);
    for (int i = 0; i < FAILING_OPENS; i++) {
        tamis_status status;

        if (i == 2) { // the first one may tidy up, or leave what the second one needs
            count = list_names(TM_NAME_FOREIGN).count;
            bytes = sim_space_used(world->sim);
        }
        if (fault == NULL && i == 0)
            sim_set_space(world->sim, sim_space_used(world->sim) + room);
        status = oracle_open(world, &db, &err);
        if (status == TAMIS_OK) { // there is room enough
            check_ok(tamis_close(db, &err), err);
            break;
        }
        failures++;
        if (i >= 2) {
            ck_assert_msg(list_names(TM_NAME_FOREIGN).count <= count,
                          "%s, opening %d: %zu files, %zu before", what, i,
                          list_names(TM_NAME_FOREIGN).count, count);
            ck_assert_msg(sim_space_used(world->sim) <= bytes, "%s, opening %d: bytes grow", what,
                          i);
        }
    }
    ck_assert_msg(fault == NULL || sim_fault_fired(world->sim, rule) != 0,
                  "%s: the fault did not fire", what);
    sim_set_space(world->sim, 0);
    sim_fault_clear(world->sim);
    db = open_store();
    check_numbers(db, 1, OLD_WRITES + NEW_WRITES);
    check_ok(tamis_close(db, &err), err);
    return failures;
}

START_TEST(openings_that_fail_again_and_again_leave_no_more_files_each_time)
{
    static const struct sim_fault faults[] = {
        {SIM_PWRITE, TM_OS_CLASS_MANIFEST, 1, SIM_ERROR, EIO, true},
        {SIM_OPEN, TM_OS_CLASS_MANIFEST, 2, SIM_ERROR, EMFILE, true},
        {SIM_SYNC, TM_OS_CLASS_MANIFEST, 1, SIM_ERROR, EIO, true},
        {SIM_PWRITE, TM_OS_CLASS_CURRENT, 1, SIM_ERROR, EIO, true},
        {SIM_RENAME, 0, 1, SIM_ERROR, EIO, true},
        {SIM_SYNC, TM_OS_CLASS_TABLE, 1, SIM_ERROR, EIO, true},
    };
    size_t failures = 0;
    char what[80];

    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++) {
        use_world(1, _i);
        snprintf(what, sizeof what, "fault %zu", i);
        ck_assert_uint_eq(fail_to_open(&faults[i], 0, what), FAILING_OPENS);
        failures += FAILING_OPENS;
    }
    for (uint64_t room = 0; room < 80000; room += 499 * oracle_stride()) {
        use_world(1, _i);
        snprintf(what, sizeof what, "room for %" PRIu64 " bytes", room);
        failures += fail_to_open(NULL, room, what);
    }
    printf("openings: %zu failed\n", failures);
    fflush(stdout);
}
END_TEST

/* ---- Destroying ------------------------------------------------------------------------------------------ */

/* The machine crashed while the store was destroyed: it is whole, or refused, or not there; and can be destroyed again. */
static void
judge_destroyed(const char *what)
{
    tamis_options options = oracle_options(world);
    tamis_db *db = NULL;
    tamis_status status;

    options.create_if_missing = false;
    status = tm_open(ORACLE_DIR, &options, world->env.runtime, &db, &err);
    if (status == TAMIS_OK) {
        check_numbers(db, 1, OLD_WRITES + NEW_WRITES);
        check_ok(tamis_close(db, &err), err);
    } else {
        ck_assert_msg(status == TAMIS_CORRUPT || status == TAMIS_NOT_FOUND, "%s: open gives %s: %s",
                      what, tamis_status_name(status), err.message);
    }
    status = tamis_destroy(ORACLE_DIR, &options, &err);
    ck_assert_msg(status == TAMIS_OK || status == TAMIS_NOT_FOUND, "%s: destroy gives %s: %s", what,
                  tamis_status_name(status), err.message);
    db = open_store(); // nothing of the old one is in the way
    check_numbers(db, 1, 0);
    check_ok(tamis_close(db, &err), err);
}

START_TEST(a_crash_at_any_call_of_destroying_leaves_all_or_nothing)
{
    uint64_t seed = rng_seed("a_crash_at_any_call_of_destroying_leaves_all_or_nothing", 1);
    struct rng rng = rng_from(seed);
    struct sim *whole;
    size_t images = 0;
    bool finished = false;

    use_world(1, 0);
    make_two_logs(1, NEW_WRITES);
    whole = sim_clone(world->sim);
    for (uint64_t stop = 1; !finished; stop++)
        for (enum sim_policy policy = 0; policy < SIM_POLICY_COUNT; policy++) {
            tamis_options options;
            char what[80];

            use_world(1, 0);
            world_take_sim(world, sim_clone(whole));
            options = oracle_options(world);
            sim_stop_at(world->sim, sim_call_count(world->sim) + stop);
            (void)tamis_destroy(ORACLE_DIR, &options, &err);
            finished = !sim_stopped(world->sim);
            snprintf(what, sizeof what, "stopped at call %" PRIu64 ", %s", stop,
                     sim_policy_name(policy));
            world_crash(world, policy, rng_next(&rng));
            judge_destroyed(what);
            images++;
        }
    sim_destroy(whole);
    printf("destroying: %zu images\n", images);
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("recovery_chain");
    TCase *tests = tcase_create("recovery_chain");

    tcase_set_timeout(tests, 0);
    tcase_add_checked_fixture(tests, set_up, tear_down);
    tcase_add_loop_test(tests, two_sound_logs_open_and_go_on, 0, 2);
    tcase_add_loop_test(tests, a_log_behind_one_that_was_never_begun_does_not_count, 0, 2);
    tcase_add_loop_test(tests, newest_log_file_missing_after_a_kill, 0, 2);
    tcase_add_loop_test(tests, two_logs_swapped_after_a_kill, 0, 2);
    tcase_add_loop_test(tests, log_that_the_manifest_needs_without_its_beginning, 0, 2);
    tcase_add_loop_test(tests, log_of_another_store_under_its_name, 0, 2);
    tcase_add_loop_test(tests, last_synced_write_of_the_older_log_rotten, 0, 2);
    tcase_add_loop_test(tests, stale_block_of_a_closed_store, 0, 2);
    tcase_add_test(tests, stray_file_with_the_greatest_number);
    tcase_add_loop_test(tests, sequences_that_run_out_refuse_writes_and_lose_nothing, 0, 2);
    tcase_add_test(tests, manifest_with_a_sequence_that_cannot_be_is_corrupt);
    tcase_add_loop_test(tests, openings_that_fail_again_and_again_leave_no_more_files_each_time, 0,
                        2);
    tcase_add_test(tests, a_crash_at_any_call_of_destroying_leaves_all_or_nothing);
    suite_add_tcase(suite, tests);
    return check_run(suite);
}
