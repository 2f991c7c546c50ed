/* SPDX-License-Identifier: MIT
 *
 * tests/engine/test_fault_cases.c -- known ways in which stores hang, spin, lie or lose data when the system fails them.
 *
 * One test each: a sync that fails once, a close that fails, a medium that is full and gets room again, tables that
 * cannot be made, a damaged table in the way of compaction, a manifest that cannot be replaced.
 */
#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tests/engine/store_oracle.h"

enum {
    KEYS_MAX = 4000,
    VALUE_BYTES_MAX = 8000,
    NAMES_MAX = 200,
    KEY_BYTES_MAX = 20000, // of the store whose manifest grows fast
};

/* What is known of a key. */
struct fact {
    uint32_t version; // of the last acknowledged write; 0: none, or deleted
    uint32_t length;
};

static struct world *world;
static tamis_db *db;
static tamis_error err;
static struct fact facts[KEYS_MAX];
static size_t key_bytes; // keys are filled up to this length
static uint8_t value_bytes[VALUE_BYTES_MAX];
static char key_text[KEY_BYTES_MAX + 24];

/* ---- Driving ---------------------------------------------------------------------------------------------- */

static void
begin(int mapped)
{
    world = world_create(1, WORLD_BATON | (mapped != 0 ? WORLD_MAP_LOGS : 0));
    memset(facts, 0, sizeof facts);
    key_bytes = 0;
}

static void
open_store(void)
{
    check_ok(oracle_open(world, &db, &err), err);
}

static void
close_store(void)
{
    check_ok(tamis_close(db, &err), err);
    db = NULL;
}

static void
end(void)
{
    close_store();
    world_destroy(world);
}

static tamis_slice
key_of(size_t key)
{
    int length = snprintf(key_text, sizeof key_text, "key%05zu", key);

    if ((size_t)length < key_bytes)
        memset(key_text + length, '.', key_bytes - (size_t)length);
    return (tamis_slice){key_text, (size_t)length < key_bytes ? key_bytes : (size_t)length};
}

static tamis_slice
value_of(size_t key, uint32_t version, uint32_t length)
{
    struct rng rng = rng_from((uint64_t)key << 32 | version);

    rng_fill(&rng, value_bytes, length);
    return (tamis_slice){value_bytes, length};
}

/* Set a key to its next version. The fact changes if that is acknowledged. */
static tamis_status
put(size_t key, uint32_t length, bool sync)
{
    static uint32_t versions;
    tamis_write_options options;
    uint32_t version = ++versions;
    tamis_slice value = value_of(key, version, length);
    tamis_status status;

    ck_assert_uint_lt(key, KEYS_MAX);
    tamis_write_options_init(&options);
    options.sync = sync;
    status = tamis_put(db, &options, key_of(key), value, &err);
    if (status == TAMIS_OK)
        facts[key] = (struct fact){version, length};
    return status;
}

static void
put_ok(size_t first, size_t count, uint32_t length)
{
    for (size_t key = first; key < first + count; key++)
        check_ok(put(key, length, false), err);
}

/* The store shows of the key what was acknowledged. TAMIS_OK, or the error that it answers instead. */
static tamis_status
check_key(size_t key)
{
    tamis_pinned pinned;
    tamis_status status = tamis_get_pinned(db, NULL, key_of(key), &pinned, &err);

    if (status == TAMIS_NOT_FOUND) {
        ck_assert_msg(facts[key].version == 0, "key %zu is missing", key);
        return TAMIS_OK;
    }
    if (status != TAMIS_OK)
        return status;
    ck_assert_msg(facts[key].version != 0, "key %zu was never acknowledged", key);
    ck_assert_msg(
        tm_slice_equal(pinned.value, value_of(key, facts[key].version, facts[key].length)),
        "key %zu has another value", key);
    tamis_pinned_release(&pinned);
    return TAMIS_OK;
}

static void
check_keys(size_t count)
{
    for (size_t key = 0; key < count; key++)
        check_ok(check_key(key), err);
}

static size_t
add_fault(enum sim_op op, enum tm_os_class file_class, uint64_t nth, enum sim_effect effect,
          int os_error, bool sticky)
{
    return sim_fault_add(world->sim,
                         (struct sim_fault){op, file_class, nth, effect, os_error, sticky});
}

/* The process dies: nothing is closed that the machine would notice. `next` is the machine after it. */
static void
die(struct sim *next)
{
    if (db != NULL) {
        sim_stop_at(world->sim, sim_call_count(world->sim) + 1);
        (void)tamis_close(db, NULL);
        db = NULL;
    }
    world_take_sim(world, next);
}

/* ---- Files -------------------------------------------------------------------------------------------------- */

struct names {
    char name[NAMES_MAX][32];
    size_t count;
    const char *suffix;
};

static void
visit_name(void *arg, const char *name)
{
    struct names *names = arg;
    size_t length = strlen(name);
    size_t suffix = strlen(names->suffix);

    if (length < suffix || strcmp(name + length - suffix, names->suffix) != 0)
        return;
    ck_assert_uint_lt(names->count, NAMES_MAX);
    snprintf(names->name[names->count++], sizeof names->name[0], "%s", name);
}

static struct names
list_names(const char *suffix)
{
    struct names names = {.suffix = suffix};

    sim_file_each(world->sim, ORACLE_DIR, visit_name, &names);
    return names;
}

/* ---- Watching ----------------------------------------------------------------------------------------------- */

static uint64_t seen[SIM_OP_COUNT][TM_OS_CLASS_DIR + 1];

static void
count_call(void *arg, const struct sim_call *call)
{
    (void)arg;
    seen[call->op][call->file_class]++;
}

static void
watch(void)
{
    memset(seen, 0, sizeof seen);
    sim_watch(world->sim, baton_pass, count_call, world->baton);
}

/* ---- A sync that fails ---------------------------------------------------------------------------------------- */

START_TEST(nothing_is_written_to_a_log_after_its_sync_failed)
{
    struct names logs;
    uint8_t *before;
    uint8_t *after;
    size_t before_size;
    size_t after_size;
    size_t rule;

    begin(_i);
    open_store();
    put_ok(0, 3, 100);
    rule = add_fault(SIM_SYNC, TM_OS_CLASS_LOG, 1, SIM_ERROR, EIO, false);
    check_status(put(3, 100, true), TAMIS_IO, err);
    ck_assert_uint_eq(sim_fault_fired(world->sim, rule), 1);
    logs = list_names(".wal");
    ck_assert_uint_eq(logs.count, 1);
    before = sim_file_get(world->sim, ORACLE_DIR, logs.name[0], &before_size);
    watch();
    check_status(put(4, 100, false), TAMIS_IO, err);
    check_status(put(5, 100, true), TAMIS_IO, err);
    check_status(tamis_delete(db, NULL, key_of(0), &err), TAMIS_IO, err);
    check_status(tamis_flush(db, &err), TAMIS_IO, err);
    ck_assert_uint_eq(seen[SIM_PWRITE][TM_OS_CLASS_LOG], 0);
    ck_assert_uint_eq(seen[SIM_SYNC][TM_OS_CLASS_LOG], 0);
    ck_assert_uint_eq(list_names(".wal").count, 1);
    after = sim_file_get(world->sim, ORACLE_DIR, logs.name[0], &after_size);
    ck_assert_uint_eq(before_size, after_size);
    ck_assert_mem_eq(before, after, before_size);
    free(before);
    free(after);
    check_keys(3);
    check_status(tamis_close(db, &err), TAMIS_IO, err);
    ck_assert_uint_eq(seen[SIM_PWRITE][TM_OS_CLASS_LOG], 0);
    sim_fault_clear(world->sim);
    open_store();
    check_keys(3);
    put_ok(3, 3, 100);
    check_keys(6);
    end();
}
END_TEST

START_TEST(what_an_open_shows_after_a_failed_sync_outlives_a_power_cut)
{
    for (enum sim_policy policy = 0; policy < SIM_POLICY_COUNT; policy++) {
        bool shown[2];
        size_t rule;

        begin(_i);
        open_store();
        check_ok(put(9, 100, true), err);
        rule = add_fault(SIM_SYNC, TM_OS_CLASS_LOG, 1, SIM_SYNC_DROPS, 0, false);
        check_status(put(0, 100, true), TAMIS_IO, err);
        check_status(put(1, 100, true), TAMIS_IO, err);
        ck_assert_uint_eq(sim_fault_fired(world->sim, rule), 1);
        die(sim_clone(world->sim));
        open_store();
        check_ok(check_key(9), err);
        for (size_t key = 0; key < 2; key++)
            check_ok(tamis_exists(db, NULL, key_of(key), &shown[key], &err), err);
        ck_assert(!shown[1]); // refused before the log
        die(sim_crash(world->sim, policy, 1));
        open_store();
        check_ok(check_key(9), err);
        for (size_t key = 0; key < 2; key++) {
            bool exists;

            check_ok(tamis_exists(db, NULL, key_of(key), &exists, &err), err);
            ck_assert_msg(exists == shown[key], "%s: key %zu", sim_policy_name(policy), key);
        }
        end();
    }
}
END_TEST

START_TEST(a_failed_sync_of_the_older_log_is_final)
{
    static const enum sim_effect effects[] = {SIM_ERROR, SIM_SYNC_DROPS, SIM_SYNC_FAILS_DONE};

    for (size_t e = 0; e < 3; e++)
        for (enum sim_policy policy = 0; policy < SIM_POLICY_COUNT; policy++) {
            struct sim *cut;
            struct fact synced;

            begin(_i);
            open_store();
            check_ok(put(0, 100, true), err);
            synced = facts[0];
            put_ok(1, 4, 100);
            (void)add_fault(SIM_SYNC, TM_OS_CLASS_LOG, 1, effects[e], EIO, false);
            check_status(tamis_flush(db, &err), TAMIS_IO, err);
            // A sync of the newer log would promise what the older one lost.
            check_status(put(5, 100, true), TAMIS_IO, err);
            check_status(tamis_flush(db, &err), TAMIS_IO, err);
            check_status(tamis_wait_idle(db, &err), TAMIS_IO, err);
            check_keys(5);
            ck_assert_uint_eq(list_names(".sst").count, 0);
            ck_assert_uint_eq(list_names(".wal").count, 2);
            cut = sim_crash(world->sim, policy, 1);
            check_status(tamis_close(db, &err), TAMIS_IO, err);
            db = NULL;
            world_restart(world);
            open_store();
            check_keys(6);
            close_store();
            world_take_sim(world, cut);
            facts[0] = synced;
            open_store();
            check_ok(check_key(0), err);
            end();
        }
}
END_TEST

/* ---- A table that cannot be made ------------------------------------------------------------------------------ */

START_TEST(a_failed_close_of_a_new_table_loses_nothing)
{
    for (enum sim_policy policy = 0; policy < SIM_POLICY_COUNT; policy++) {
        tamis_status status;
        size_t rule;

        begin(_i);
        open_store();
        rule = add_fault(SIM_CLOSE, TM_OS_CLASS_TABLE, 1, SIM_ERROR, EIO, false);
        put_ok(0, 12, 3000);
        status = tamis_flush(db, &err);
        ck_assert_msg(status == TAMIS_OK || status == TAMIS_IO, "%s", err.message);
        ck_assert_uint_eq(sim_fault_fired(world->sim, rule), 1);
        check_ok(tamis_flush(db, &err), err); // tried again, if it was not done
        check_keys(12);
        put_ok(12, 10, 3000);
        check_ok(put(22, 10, true), err);
        die(sim_crash(world->sim, policy, 1));
        open_store();
        check_keys(23);
        end();
    }
}
END_TEST

struct writer {
    struct tm_thread thread;
    size_t first;
    size_t refused;
};

static void
write_many(void *arg)
{
    struct writer *writer = arg;

    for (size_t key = writer->first; key < writer->first + 400; key++) {
        uint8_t value[4000];
        struct rng rng = rng_from((uint64_t)key << 32 | 1);
        char text[24];
        tamis_error failure;

        rng_fill(&rng, value, sizeof value);
        snprintf(text, sizeof text, "key%05zu", key);
        if (tamis_put(db, NULL, tamis_text(text), (tamis_slice){value, sizeof value}, &failure) ==
            TAMIS_OK) {
            facts[key] = (struct fact){1, sizeof value};
            continue;
        }
        ck_assert_int_eq(failure.code, TAMIS_IO);
        writer->refused++;
    }
}

START_TEST(writers_get_errors_and_do_not_hang_while_tables_cannot_be_made)
{
    static const int os_errors[] = {EIO, EROFS};
    const struct tm_runtime *runtime;
    struct writer writers[2] = {{.first = 0}, {.first = 400}};
    tamis_status status;
    size_t rule;

    begin(_i % 2);
    runtime = world->env.runtime;
    open_store();
    rule = add_fault(SIM_OPEN, TM_OS_CLASS_TABLE, 1, SIM_ERROR, os_errors[_i / 2], true);
    for (size_t i = 0; i < 2; i++)
        ck_assert_int_eq(
            runtime->thread_start(runtime->ctx, &writers[i].thread, write_many, &writers[i]), 0);
    for (size_t i = 0; i < 2; i++)
        runtime->thread_join(runtime->ctx, &writers[i].thread);
    for (size_t i = 0; i < 2; i++)
        ck_assert_uint_gt(writers[i].refused, 0);
    // Each refusal is one more try: nothing turns round on its own.
    ck_assert_uint_gt(sim_fault_fired(world->sim, rule), 0);
    ck_assert_uint_le(sim_fault_fired(world->sim, rule),
                      writers[0].refused + writers[1].refused + 2);
    check_keys(800);
    status = tamis_close(db, &err);
    db = NULL;
    ck_assert_msg(status == TAMIS_OK || status == TAMIS_IO, "%s", err.message);
    sim_fault_clear(world->sim);
    open_store();
    check_keys(800);
    put_ok(800, 100, 3000);
    check_ok(tamis_compact_range(db, NULL, NULL, &err), err);
    check_keys(900);
    end();
}
END_TEST

/* ---- A full medium --------------------------------------------------------------------------------------------- */

START_TEST(a_full_medium_refuses_writes_and_works_again_when_there_is_room)
{
    uint64_t places = 0;

    for (uint64_t room = 70000; room < 1000000; room += 70000 + room / 8) {
        size_t count = 0;
        tamis_status status;

        begin(_i);
        sim_set_space(world->sim, room);
        status = oracle_open(world, &db, &err);
        if (status == TAMIS_OK) {
            while (count < 3000 && (status = put(count % 500, 1000, count % 7 == 0)) == TAMIS_OK)
                count++;
            check_status(status, TAMIS_NO_SPACE, err);
            for (size_t i = 0; i < 10;
                 i++) { // a flush may have been what failed: it made room, or told it
                status = put(500 + i, 1000, false);
                ck_assert_msg(status == TAMIS_OK || status == TAMIS_NO_SPACE, "%s", err.message);
            }
            check_keys(600);
            status = tamis_close(db, &err);
            db = NULL;
        }
        ck_assert_msg(status == TAMIS_OK || status == TAMIS_NO_SPACE, "%s", err.message);
        // Still full: it opens, or says so and loses nothing.
        status = oracle_open(world, &db, &err);
        ck_assert_msg(status == TAMIS_OK || status == TAMIS_NO_SPACE, "%s", err.message);
        if (status == TAMIS_OK) {
            check_keys(600);
            (void)tamis_close(db, &err);
            db = NULL;
        }
        sim_set_space(world->sim, 0);
        open_store();
        check_keys(600);
        for (size_t key = 0; key < 500; key += 2) {
            check_ok(tamis_delete(db, NULL, key_of(key), &err), err);
            facts[key] = (struct fact){0};
        }
        check_ok(tamis_compact_range(db, NULL, NULL, &err), err);
        put_ok(1000, 200, 1000);
        check_keys(1200);
        end();
        places++;
    }
    ck_assert_uint_gt(places, 5);
}
END_TEST

START_TEST(a_flush_that_found_no_room_is_tried_again)
{
    size_t count = 0;
    tamis_status status = TAMIS_OK;
    size_t rule;

    begin(_i);
    open_store();
    rule = add_fault(SIM_PWRITE, TM_OS_CLASS_TABLE, 1, SIM_ERROR, ENOSPC, true);
    while (count < 200 && (status = put(count, 3000, false)) == TAMIS_OK)
        count++;
    check_status(status, TAMIS_NO_SPACE, err);
    ck_assert_uint_gt(sim_fault_fired(world->sim, rule), 0);
    check_keys(count);
    check_status(tamis_flush(db, &err), TAMIS_NO_SPACE, err);
    sim_fault_clear(world->sim);
    status = put(count, 3000, false); // may be told of the last try
    ck_assert_msg(status == TAMIS_OK || status == TAMIS_NO_SPACE, "%s", err.message);
    put_ok(count, 50, 3000);
    check_ok(tamis_flush(db, &err), err);
    check_ok(tamis_wait_idle(db, &err), err);
    check_keys(count + 50);
    end();
}
END_TEST

START_TEST(a_store_with_leftovers_opens_on_a_full_medium)
{
    uint64_t full;
    tamis_status status;
    struct names before;
    size_t rule;

    begin(_i);
    open_store();
    rule = add_fault(SIM_REMOVE, 0, 1, SIM_ERROR, EIO, true);
    for (int round = 0; round < 6; round++) {
        put_ok(0, 40, 3000);
        check_ok(tamis_flush(db, &err), err);
    }
    check_ok(tamis_wait_idle(db, &err), err);
    ck_assert_uint_gt(sim_fault_fired(world->sim, rule), 5);
    put_ok(0, 15, 3000);
    die(sim_clone(world->sim));
    before = list_names("");
    ck_assert_uint_gt(list_names(".wal").count, 2);
    full = sim_space_used(world->sim);
    sim_set_space(world->sim, full);
    status = oracle_open(world, &db, &err);
    if (status != TAMIS_OK) {
        check_status(status, TAMIS_NO_SPACE, err);
        ck_assert_uint_eq(list_names("").count, before.count);
        sim_set_space(world->sim, full + (256 << 10));
        open_store();
    }
    ck_assert_uint_lt(list_names(".wal").count, 2);
    check_keys(40);
    sim_set_space(world->sim, 0);
    put_ok(40, 40, 3000);
    check_keys(80);
    end();
}
END_TEST

START_TEST(a_compaction_that_finds_no_room_pauses_itself_and_not_the_writers)
{
    tamis_stats stats;
    size_t rule;

    begin(_i);
    open_store();
    for (int i = 0; i < 3; i++) {
        put_ok(0, 10, 3000);
        check_ok(tamis_flush(db, &err), err);
    }
    check_ok(tamis_wait_idle(db, &err), err);
    put_ok(0, 10, 3000);
    watch();
    check_ok(tamis_flush(db, &err), err);
    rule = add_fault(SIM_PWRITE, TM_OS_CLASS_TABLE, 1, SIM_ERROR, ENOSPC, true);
    check_status(tamis_wait_idle(db, &err), TAMIS_NO_SPACE, err);
    ck_assert_uint_eq(sim_fault_fired(world->sim, rule), 1);
    tamis_stats_init(&stats);
    check_ok(tamis_get_stats(db, &stats, &err), err);
    ck_assert_int_eq(stats.background_status, TAMIS_NO_SPACE);
    ck_assert_str_eq(stats.background_error.message, err.message);
    ck_assert_ptr_nonnull(strstr(stats.background_error.message, ".sst"));
    ck_assert_uint_eq(stats.compaction_count, 0);
    put_ok(10, 10, 3000);
    check_keys(20);
    ck_assert_uint_eq(sim_fault_fired(world->sim, rule), 1);
    sim_fault_clear(world->sim);
    check_ok(tamis_flush(db, &err), err); // room again: compaction goes on after the next flush
    check_ok(tamis_wait_idle(db, &err), err);
    check_ok(tamis_get_stats(db, &stats, &err), err);
    ck_assert_int_eq(stats.background_status, TAMIS_OK);
    ck_assert_str_eq(stats.background_error.message, "");
    ck_assert_uint_gt(stats.compaction_count, 0);
    check_keys(20);
    end();
}
END_TEST

/* ---- A damaged table in the way of compaction ------------------------------------------------------------------ */

START_TEST(a_damaged_table_stops_compaction_and_nothing_else)
{
    struct names tables;
    struct names still;
    uint8_t *bytes;
    size_t size;
    uint64_t calls;
    size_t readable = 0;

    begin(_i);
    open_store();
    for (int i = 0; i < 2; i++) {
        put_ok(0, 20, 3000);
        check_ok(tamis_flush(db, &err), err);
    }
    close_store();
    tables = list_names(".sst");
    ck_assert_uint_eq(tables.count, 2);
    bytes = sim_file_get(world->sim, ORACLE_DIR, tables.name[1], &size);
    bytes[size / 2] ^= 1;
    sim_file_put(world->sim, ORACLE_DIR, tables.name[1], bytes, size);
    free(bytes);

    open_store();
    watch();
    check_status(tamis_compact_range(db, NULL, NULL, &err), TAMIS_CORRUPT, err);
    for (int i = 0; i < 2; i++) { // level 0 becomes due, too
        put_ok(20, 20, 3000);
        check_ok(tamis_flush(db, &err), err);
    }
    check_status(tamis_wait_idle(db, &err), TAMIS_CORRUPT, err);
    ck_assert_uint_lt(seen[SIM_PREAD][TM_OS_CLASS_TABLE], 100);
    calls = sim_call_count(world->sim);
    for (int i = 0; i < 200; i++) { // other threads may run at each
        tamis_stats stats;

        tamis_stats_init(&stats);
        check_ok(tamis_get_stats(db, &stats, &err), err);
        ck_assert_int_eq(stats.background_status, TAMIS_CORRUPT);
    }
    ck_assert_uint_eq(sim_call_count(world->sim), calls);
    for (int i = 0; i < 25; i++) { // more tables than would stop writers otherwise
        put_ok(20, 5, 3000);
        check_ok(tamis_flush(db, &err), err);
    }
    still = list_names(".sst");
    for (size_t i = 0; i < tables.count; i++) {
        bool found = false;

        for (size_t j = 0; j < still.count; j++)
            found |= strcmp(tables.name[i], still.name[j]) == 0;
        ck_assert_msg(found, "%s was removed", tables.name[i]);
    }
    ck_assert_uint_eq(still.count, 2 + 2 + 25);
    for (size_t key = 0; key < 40; key++) {
        tamis_status status = check_key(key);

        ck_assert_msg(status == TAMIS_OK || (status == TAMIS_CORRUPT && key < 20), "%s",
                      err.message);
        readable += status == TAMIS_OK;
    }
    ck_assert_uint_ge(readable, 38); // all but the keys of one block
    end();
}
END_TEST

/* ---- A manifest that cannot be replaced ------------------------------------------------------------------------- */

/* A store whose next flush makes its manifest so long that it is replaced. */
static void
make_long_manifest(int mapped)
{
    begin(mapped);
    key_bytes = KEY_BYTES_MAX;
    open_store();
    put_ok(0, 3, 100);
    check_ok(tamis_flush(db, &err), err);
    put_ok(3, 3, 100);
    check_ok(put(6, 10, true), err);
    check_ok(tamis_wait_idle(db, &err), err);
}

/* The flush that replaces the manifest, call `nth` of those that the effect can hit failing. False: there are not so many. */
static bool
fail_replacement(int mapped, enum sim_effect effect, int os_error, uint64_t nth, bool sticky,
                 uint64_t *image_count)
{
    struct sim *cuts[SIM_POLICY_COUNT];
    tamis_status status;
    bool fired;
    size_t rule;

    make_long_manifest(mapped);
    rule = add_fault(SIM_OP_ANY, 0, nth, effect, os_error, sticky);
    status = tamis_flush(db, &err);
    ck_assert_msg(status == TAMIS_OK || status == TAMIS_IO || status == TAMIS_NO_SPACE ||
                      status == TAMIS_NO_MEMORY,
                  "%s", err.message);
    (void)tamis_wait_idle(db, &err);
    fired = sim_fault_fired(world->sim, rule) != 0;
    for (enum sim_policy policy = 0; policy < SIM_POLICY_COUNT; policy++)
        cuts[policy] = sim_crash(world->sim, policy, nth);
    sim_fault_clear(world->sim);
    check_keys(7);
    status = put(7, 10, true);
    (void)tamis_flush(db, &err); // one more edit, to the manifest that counts
    (void)tamis_close(db, &err);
    db = NULL;
    world_restart(world);
    open_store();
    check_keys(7);
    if (status == TAMIS_OK) // otherwise nobody knows
        check_ok(check_key(7), err);
    close_store();
    facts[7] = (struct fact){0};
    for (enum sim_policy policy = 0; policy < SIM_POLICY_COUNT; policy++) {
        world_take_sim(world, cuts[policy]);
        open_store();
        check_keys(8);
        close_store();
        *image_count += fired;
    }
    world_destroy(world);
    return fired;
}

START_TEST(a_manifest_that_cannot_be_replaced_loses_nothing)
{
    static const struct {
        enum sim_effect effect;
        int os_error;
    } effects[] = {
        {SIM_ERROR, EIO},    {SIM_ERROR, ENOSPC},      {SIM_ERROR, ENOMEM},
        {SIM_SYNC_DROPS, 0}, {SIM_SYNC_FAILS_DONE, 0},
    };
    uint64_t stride = oracle_scaled(100) < 100 ? 100 / oracle_scaled(100) : 1;
    uint64_t fault_count = 0;
    uint64_t image_count = 0;

    make_long_manifest(_i);
    watch();
    check_ok(tamis_flush(db, &err), err);
    check_ok(tamis_wait_idle(db, &err), err);
    ck_assert_uint_eq(seen[SIM_RENAME][TM_OS_CLASS_DIR] + seen[SIM_RENAME][0],
                      1); // it was replaced
    end();
    for (size_t e = 0; e < sizeof effects / sizeof effects[0]; e++)
        for (int sticky = 0; sticky < 2; sticky++)
            for (uint64_t nth = 1 + (e + (uint64_t)_i) % stride; fail_replacement(
                     _i, effects[e].effect, effects[e].os_error, nth, sticky != 0, &image_count);
                 nth += stride)
                fault_count++;
    printf("a_manifest_that_cannot_be_replaced_loses_nothing: %" PRIu64 " faults, %" PRIu64
           " images.\n",
           fault_count, image_count);
    fflush(stdout);
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("fault_cases");
    TCase *tests = tcase_create("fault_cases");

    tcase_set_timeout(tests, 0);
    tcase_add_loop_test(tests, nothing_is_written_to_a_log_after_its_sync_failed, 0, 2);
    tcase_add_loop_test(tests, what_an_open_shows_after_a_failed_sync_outlives_a_power_cut, 0, 2);
    tcase_add_loop_test(tests, a_failed_sync_of_the_older_log_is_final, 0, 2);
    tcase_add_loop_test(tests, a_failed_close_of_a_new_table_loses_nothing, 0, 2);
    tcase_add_loop_test(tests, writers_get_errors_and_do_not_hang_while_tables_cannot_be_made, 0,
                        4);
    tcase_add_loop_test(tests, a_full_medium_refuses_writes_and_works_again_when_there_is_room, 0,
                        2);
    tcase_add_loop_test(tests, a_flush_that_found_no_room_is_tried_again, 0, 2);
    tcase_add_loop_test(tests, a_store_with_leftovers_opens_on_a_full_medium, 0, 2);
    tcase_add_loop_test(tests, a_compaction_that_finds_no_room_pauses_itself_and_not_the_writers, 0,
                        2);
    tcase_add_loop_test(tests, a_damaged_table_stops_compaction_and_nothing_else, 0, 2);
    tcase_add_loop_test(tests, a_manifest_that_cannot_be_replaced_loses_nothing, 0, 2);
    suite_add_tcase(suite, tests);
    return check_run(suite);
}
