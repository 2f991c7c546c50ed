/* SPDX-License-Identifier: MIT
 *
 * tests/engine/test_recovery_cases.c -- known ways in which stores lost data when they were opened, one test each.
 *
 * Files are cut, changed, swapped or taken away between closing (or killing) a store and opening it again. Either the
 * store shows what was promised, or it refuses and leaves every file as it was.
 */
#include <check.h>
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/names.h"
#include "engine/record_log.h"
#include "filter/bytes.h"
#include "tests/engine/store_oracle.h"
#include "tests/support/temp_dir.h"

#define DIR_NAME "db"

enum {
    RICH_KEYS = 3000,
    RICH_VALUE_BYTES = 500,
    NAMES_MAX = 200,
    SMALL_BUFFER_BYTES = 65536,
    LARGE_BUFFER_BYTES = 4 << 20,
};

static struct world *world;
static struct sim *rich; // a store with tables in levels 0, 1 and 2, closed
static tamis_error err;
static uint64_t write_buffer_bytes;

/* ---- Opening, writing, killing -------------------------------------------------------------------- */

static void
make_world(int log_mode)
{
    world = world_create(1, WORLD_BATON | (log_mode != 0 ? WORLD_MAP_LOGS : 0));
    write_buffer_bytes = LARGE_BUFFER_BYTES;
}

static void
set_up(void)
{
    make_world(0);
}

static void
tear_down(void)
{
    world_destroy(world);
}

/* Another way of writing logs: tests that loop over both take it as _i. */
static void
use_log_mode(int log_mode)
{
    world_destroy(world);
    make_world(log_mode);
}

static tamis_status
try_open(tamis_db **db_out)
{
    tamis_options options;

    tamis_options_init(&options);
    options.create_if_missing = true;
    options.write_buffer_bytes = write_buffer_bytes;
    options.fs = world->env.fs;
    options.allocator = &world->env.allocator;
    return tm_open(DIR_NAME, &options, world->env.runtime, db_out, &err);
}

static tamis_db *
open_store(void)
{
    tamis_db *db = NULL;

    check_ok(try_open(&db), err);
    return db;
}

static void
close_store(tamis_db *db)
{
    check_ok(tamis_close(db, &err), err);
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

static void
put(tamis_db *db, const char *key, const char *value, bool sync)
{
    tamis_write_options options;

    tamis_write_options_init(&options);
    options.sync = sync;
    check_ok(tamis_put(db, &options, tamis_text(key), tamis_text(value), &err), err);
}

/* `value` NULL: the key is not there. */
static void
check_value(tamis_db *db, const char *key, const char *value)
{
    char buffer[256];
    size_t length;
    tamis_status status =
        tamis_get(db, NULL, tamis_text(key), buffer, sizeof buffer, &length, &err);

    check_status(status, value != NULL ? TAMIS_OK : TAMIS_NOT_FOUND, err);
    if (value != NULL) {
        ck_assert_uint_eq(length, strlen(value));
        ck_assert_mem_eq(buffer, value, length);
    }
}

static bool
has_key(tamis_db *db, const char *key)
{
    bool exists = false;

    check_ok(tamis_exists(db, NULL, tamis_text(key), &exists, &err), err);
    return exists;
}

static const char *
number_key(size_t number, char text[32])
{
    snprintf(text, 32, "key%06zu", number);
    return text;
}

/* ---- Files ---------------------------------------------------------------------------------------- */

struct names {
    size_t count;
    char name[NAMES_MAX][64];
};

static void
add_name(void *arg, const char *name)
{
    struct names *names = arg;

    ck_assert_uint_lt(names->count, NAMES_MAX);
    snprintf(names->name[names->count++], sizeof names->name[0], "%s", name);
}

/* Names of a kind; TM_NAME_FOREIGN: all. */
static struct names
list_names(enum tm_name_kind kind)
{
    struct names all = {0};
    struct names some = {0};

    sim_file_each(world->sim, DIR_NAME, add_name, &all);
    for (size_t i = 0; i < all.count; i++) {
        uint64_t number;

        if (kind == TM_NAME_FOREIGN || tm_name_parse(all.name[i], &number) == kind)
            add_name(&some, all.name[i]);
    }
    return some;
}

/* A file's bytes, for the caller to free. */
static uint8_t *
file_bytes(const char *name, size_t *size_out)
{
    uint8_t *bytes = sim_file_get(world->sim, DIR_NAME, name, size_out);

    ck_assert_msg(bytes != NULL, "%s is not there", name);
    return bytes;
}

/* A number made of every name and every byte, whatever the order. */
static uint64_t
directory_hash(void)
{
    struct names names = list_names(TM_NAME_FOREIGN);
    uint64_t hash = 0;

    for (size_t i = 0; i < names.count; i++) {
        size_t size;
        uint8_t *bytes = file_bytes(names.name[i], &size);

        hash += tm_hash64(bytes, size, tm_hash64(names.name[i], strlen(names.name[i]), 1));
        free(bytes);
    }
    return hash;
}

/* Opening fails so, and no file is made, changed or removed. */
static void
check_refused(tamis_status expected, const char *what)
{
    uint64_t hash = directory_hash();
    tamis_db *db = NULL;
    tamis_status status = try_open(&db);

    ck_assert_msg(status == expected, "%s: open gives %s, expected %s: %s", what,
                  tamis_status_name(status), tamis_status_name(expected),
                  status == TAMIS_OK ? "no error" : err.message);
    ck_assert_ptr_null(db);
    ck_assert_msg(directory_hash() == hash, "%s: a refused store was changed", what);
}

/* The one log of a store that was killed or closed. */
static const char *
only_log(void)
{
    static struct names logs;

    logs = list_names(TM_NAME_LOG);
    ck_assert_uint_eq(logs.count, 1);
    return logs.name[0];
}

/* Where record `index` of a log or manifest begins, as long as it lies in the first block; records are whole there. */
static size_t
record_offset(const uint8_t *bytes, size_t index)
{
    size_t offset = 0;

    for (size_t i = 0; i < index; i++)
        offset += TM_RECORD_HEADER_BYTES + tm_get_u16(bytes + offset + 8);
    return offset;
}

/* ---- Logs ----------------------------------------------------------------------------------------- */

START_TEST(append_after_an_incomplete_tail)
{
    const char *name;
    uint8_t *bytes;
    struct sim *base;
    size_t begin, end, size;
    tamis_db *db;

    use_log_mode(_i);
    db = open_store();
    put(db, "a", "1", true);
    put(db, "b", "2", true);
    kill_store(db);
    name = only_log();
    bytes = file_bytes(name, &size);
    begin = record_offset(bytes, 2);
    end = record_offset(bytes, 3);
    ck_assert_uint_le(end, size);
    base = sim_clone(world->sim);
    for (size_t cut = begin; cut < end; cut += 1 + oracle_stride() / 4) {
        world_take_sim(world, sim_clone(base));
        sim_file_put(world->sim, DIR_NAME, name, bytes, cut);
        db = open_store();
        check_value(db, "a", "1");
        check_value(db, "b", NULL);
        put(db, "c", "3", true);
        kill_store(db);
        db = open_store();
        check_value(db, "a", "1");
        check_value(db, "b", NULL);
        check_value(db, "c", "3");
        close_store(db);
    }
    free(bytes);
    sim_destroy(base);
}
END_TEST

START_TEST(rotten_middle_of_the_log)
{
    enum { RECORDS = 100, RECORD = 50 };
    char value[201];
    char key[32];
    char what[64];
    const char *name;
    uint8_t *bytes;
    size_t begin, end, size;
    tamis_db *db;

    use_log_mode(_i);
    memset(value, 'v', 200);
    value[200] = '\0';
    db = open_store();
    for (size_t i = 0; i < RECORDS; i++)
        put(db, number_key(i, key), value, true);
    kill_store(db);
    name = only_log();
    bytes = file_bytes(name, &size);
    begin = record_offset(bytes, RECORD + 1); // behind the start record
    end = record_offset(bytes, RECORD + 2);
    for (size_t at = begin; at < end; at += at < begin + TM_RECORD_HEADER_BYTES ? 1 : 17) {
        for (size_t bit = at % oracle_stride(); bit < 8; bit += oracle_stride()) {
            bytes[at] ^= (uint8_t)(1 << bit);
            sim_file_put(world->sim, DIR_NAME, name, bytes, size);
            snprintf(what, sizeof what, "bit %zu of byte %zu of record 50 flipped", bit,
                     at - begin);
            check_refused(TAMIS_CORRUPT, what);
            bytes[at] ^= (uint8_t)(1 << bit);
        }
    }
    sim_file_put(world->sim, DIR_NAME, name, bytes, size);
    db = open_store();
    for (size_t i = 0; i < RECORDS; i++)
        check_value(db, number_key(i, key), value);
    close_store(db);
    free(bytes);
}
END_TEST

START_TEST(batch_over_several_pages_one_page_lost)
{
    enum { KEYS = 10, VALUE = 8192, PAGE = 4096 };
    static uint8_t value[VALUE];
    struct rng rng = rng_from(1);
    const char *name;
    uint8_t *bytes;
    uint8_t *damaged;
    struct sim *base;
    tamis_batch *batch;
    size_t begin, size;
    size_t page_count = 0;
    tamis_db *db;
    char key[32];

    use_log_mode(_i);
    rng_fill(&rng, value, sizeof value);
    db = open_store();
    put(db, "z", "1", true);
    check_ok(tamis_batch_create(NULL, &batch, &err), err);
    for (size_t i = 0; i < KEYS; i++)
        check_ok(tamis_batch_put(batch, tamis_text(number_key(i, key)),
                                 (tamis_slice){value, sizeof value}, &err),
                 err);
    check_ok(tamis_write(db, NULL, batch, &err), err);
    tamis_batch_destroy(batch);
    kill_store(db);
    name = only_log();
    bytes = file_bytes(name, &size);
    begin = record_offset(bytes, 2);
    base = sim_clone(world->sim);
    damaged = malloc(size);
    ck_assert_ptr_nonnull(damaged);
    for (size_t page = begin - begin % PAGE; page < begin + KEYS * VALUE; page += PAGE) {
        size_t from = page > begin ? page : begin;
        size_t to = page + PAGE < size ? page + PAGE : size;

        memcpy(damaged, bytes, size);
        memset(damaged + from, 0, to - from);
        world_take_sim(world, sim_clone(base));
        sim_file_put(world->sim, DIR_NAME, name, damaged, size);
        db = open_store();
        check_value(db, "z", "1");
        for (size_t i = 0; i < KEYS; i++)
            check_value(db, number_key(i, key), NULL);
        close_store(db);
        page_count++;
    }
    ck_assert_uint_ge(page_count, 20);
    free(damaged);
    free(bytes);
    sim_destroy(base);
}
END_TEST

START_TEST(second_kill_right_after_recovery)
{
    enum { ROUNDS = 30 };
    struct rng rng = rng_from(rng_seed("second_kill_right_after_recovery", 53));
    char key[32];

    use_log_mode(_i);
    for (size_t round = 0; round < ROUNDS; round++) {
        tamis_db *db = open_store();

        put(db, number_key(round, key), "n", false);
        kill_store(db);
        db = NULL;
        sim_stop_at(world->sim, 1 + rng_below(&rng, 80)); // perhaps not even opened
        if (try_open(&db) == TAMIS_OK)
            kill_store(db);
        else
            world_restart(world);
        db = open_store();
        for (size_t i = 0; i <= round; i++)
            check_value(db, number_key(i, key), "n");
        kill_store(db);
    }
}
END_TEST

START_TEST(newer_log_synced_older_not)
{
    enum { PUTS = 1500 };
    char value[101];
    char key[32];
    struct sim *base;
    struct names logs;
    tamis_db *db;

    use_log_mode(_i);
    write_buffer_bytes = SMALL_BUFFER_BYTES;
    memset(value, 'v', 100);
    value[100] = '\0';
    db = open_store();
    for (size_t i = 0; i < PUTS; i++)
        put(db, number_key(i, key), value, false);
    put(db, "y", "1", true);
    base = sim_clone(world->sim); // the machine of this moment
    kill_store(db);
    logs = list_names(TM_NAME_LOG);
    ck_assert_str_gt(logs.name[logs.count - 1], "000003.wal"); // logs were changed
    for (int policy = 0; policy < SIM_POLICY_COUNT; policy++)
        for (uint64_t seed = 0; seed < 4; seed++) {
            world_take_sim(world, sim_crash(base, (enum sim_policy)policy, seed));
            db = open_store();
            check_value(db, "y", "1");
            for (size_t i = 0; i < PUTS; i++)
                check_value(db, number_key(i, key), value);
            close_store(db);
        }
    sim_destroy(base);
}
END_TEST

/* The synced write comes right behind the change of logs, so that the older log's own sync may still be under way. */
START_TEST(newer_log_synced_while_the_older_is_being_synced)
{
    enum { LIVES = 300, VALUE = 30000 };
    static char value[VALUE + 1];
    uint64_t seed = rng_seed("newer_log_synced_while_the_older_is_being_synced", 1);
    char key[32];

    memset(value, 'v', VALUE);
    for (uint64_t life = seed; life < seed + oracle_scaled(LIVES); life++) {
        size_t count = 0;
        struct sim *image;
        struct names logs;
        tamis_db *db;

        world_destroy(world);
        world = world_create(life, WORLD_BATON | (_i != 0 ? WORLD_MAP_LOGS : 0));
        write_buffer_bytes = SMALL_BUFFER_BYTES;
        db = open_store();
        do {
            put(db, number_key(count++, key), value, false);
            logs = list_names(TM_NAME_LOG);
        } while (strcmp(logs.name[logs.count - 1], "000002.wal") == 0);
        put(db, "y", "1", true);
        image = sim_crash(world->sim, SIM_P0_STRICT, life);
        kill_store(db);
        world_take_sim(world, image);
        db = open_store();
        check_value(db, "y", "1");
        for (size_t i = 0; i < count; i++)
            ck_assert_msg(has_key(db, number_key(i, key)), "life %" PRIu64 ": %s is lost", life,
                          key);
        close_store(db);
    }
}
END_TEST

START_TEST(log_file_missing)
{
    char key[32];
    const char *name;

    for (int killed = 0; killed < 2; killed++) {
        tamis_db *db;
        size_t size;
        uint8_t *bytes;

        use_log_mode(_i);
        db = open_store();
        for (size_t i = 0; i < 20; i++)
            put(db, number_key(i, key), "v", false);
        if (killed)
            kill_store(db);
        else
            close_store(db);
        name = only_log();
        bytes = file_bytes(name, &size);
        ck_assert(sim_file_remove(world->sim, DIR_NAME, name));
        check_refused(TAMIS_CORRUPT, killed ? "killed, log removed" : "closed, log removed");
        sim_file_put(world->sim, DIR_NAME, name, bytes, size);
        db = open_store();
        for (size_t i = 0; i < 20; i++)
            check_value(db, number_key(i, key), "v");
        put(db, "n", "1", true);
        kill_store(db);
        db = open_store();
        check_value(db, "n", "1");
        close_store(db);
        free(bytes);
    }
}
END_TEST

/* Two logs are there when the table of the first could not be written. */
START_TEST(newest_log_file_missing_after_a_clean_close)
{
    struct names logs;
    tamis_db *db;
    size_t fault;

    use_log_mode(_i);
    db = open_store();
    put(db, "a", "1", false);
    fault = sim_fault_add(world->sim, (struct sim_fault){.op = SIM_OPEN,
                                                         .file_class = TM_OS_CLASS_TABLE,
                                                         .nth = 1,
                                                         .effect = SIM_ERROR,
                                                         .os_error = ENOSPC,
                                                         .sticky = true});
    check_status(tamis_flush(db, &err), TAMIS_NO_SPACE, err);
    ck_assert_uint_gt(sim_fault_fired(world->sim, fault), 0);
    put(db, "b", "2", false);
    close_store(db);
    sim_fault_clear(world->sim);
    logs = list_names(TM_NAME_LOG);
    ck_assert_uint_eq(logs.count, 2);
    ck_assert(sim_file_remove(world->sim, DIR_NAME, logs.name[1]));
    check_refused(TAMIS_CORRUPT, "the newer of two logs removed");
}
END_TEST

/* What a process sees after such a sync is in memory only: recovery must not remove what it makes obsolete (N4). */
START_TEST(manifest_sync_failed_then_restart_then_power_cut)
{
    struct sim *base;
    tamis_db *db;
    size_t fault;
    bool finished = false;

    use_log_mode(_i);
    db = open_store();
    put(db, "a", "1", true);
    fault = sim_fault_add(world->sim, (struct sim_fault){.op = SIM_SYNC,
                                                         .file_class = TM_OS_CLASS_MANIFEST,
                                                         .nth = 1,
                                                         .effect = SIM_SYNC_DROPS});
    check_status(tamis_flush(db, &err), TAMIS_IO, err);
    ck_assert_uint_eq(sim_fault_fired(world->sim, fault), 1);
    kill_store(db);
    base = sim_clone(world->sim);
    for (uint64_t stop = 1; !finished; stop++) {
        world_take_sim(world, sim_clone(base));
        sim_stop_at(world->sim, stop);
        if (try_open(&db) == TAMIS_OK)
            (void)tamis_close(db, NULL);
        finished = !sim_stopped(world->sim);
        world_crash(world, SIM_P0_STRICT, stop);
        db = open_store();
        check_value(db, "a", "1");
        close_store(db);
    }
    sim_destroy(base);
}
END_TEST

START_TEST(lost_writes_are_a_suffix)
{
    enum { PUTS = 1000, SEEDS = 8 }; // for each policy
    uint64_t seed = rng_seed("lost_writes_are_a_suffix", 62);
    char value[151];
    char key[32];
    struct sim *base;
    tamis_db *db;
    size_t fewest = PUTS;
    size_t most = 0;

    use_log_mode(_i & 1);
    write_buffer_bytes = _i & 2 ? SMALL_BUFFER_BYTES : LARGE_BUFFER_BYTES;
    memset(value, 'v', 150);
    value[150] = '\0';
    db = open_store();
    for (size_t i = 0; i < PUTS; i++)
        put(db, number_key(i, key), value, false);
    base = sim_clone(world->sim);
    kill_store(db);
    for (int policy = 0; policy < SIM_POLICY_COUNT; policy++)
        for (uint64_t i = 0; i < oracle_scaled(SEEDS); i++) {
            size_t survivors = 0;

            world_take_sim(world, sim_crash(base, (enum sim_policy)policy, seed + i));
            db = open_store();
            while (survivors < PUTS && has_key(db, number_key(survivors, key)))
                survivors++;
            for (size_t lost = survivors; lost < PUTS; lost++)
                ck_assert_msg(!has_key(db, number_key(lost, key)),
                              "%s, seed %" PRIu64 ": write %zu is lost, and %zu is there",
                              sim_policy_name((enum sim_policy)policy), seed + i, survivors, lost);
            close_store(db);
            fewest = survivors < fewest ? survivors : fewest;
            most = survivors > most ? survivors : most;
        }
    ck_assert_uint_eq(most, PUTS); // P1
    ck_assert_uint_lt(fewest, PUTS);
    sim_destroy(base);
}
END_TEST

/* ---- A rich store --------------------------------------------------------------------------------- */

static void
rich_value(size_t number, uint8_t value[RICH_VALUE_BYTES])
{
    struct rng rng = rng_from(number + 1);

    rng_fill(&rng, value, RICH_VALUE_BYTES);
}

static void
check_rich(tamis_db *db)
{
    uint8_t value[RICH_VALUE_BYTES];
    tamis_iter *iter;
    size_t count = 0;
    char key[32];

    check_ok(tamis_iter_open(db, NULL, &iter, &err), err);
    for (tamis_iter_first(iter); tamis_iter_valid(iter); tamis_iter_next(iter), count++) {
        tamis_pinned pinned;
        tamis_slice expected = tamis_text(number_key(count, key));

        rich_value(count, value);
        ck_assert(tm_slice_equal(tamis_iter_key(iter), expected));
        ck_assert(tm_slice_equal(tamis_iter_value(iter), (tamis_slice){value, sizeof value}));
        check_ok(tamis_get_pinned(db, NULL, expected, &pinned, &err), err);
        ck_assert(tm_slice_equal(pinned.value, (tamis_slice){value, sizeof value}));
        tamis_pinned_release(&pinned);
    }
    check_ok(tamis_iter_status(iter, &err), err);
    tamis_iter_close(iter);
    ck_assert_uint_eq(count, RICH_KEYS);
}

/* Fill a store in an order that the seed decides; the last keys stay in level 0 and in the log. */
static void
fill_rich(tamis_db *db, uint64_t seed)
{
    static size_t order[RICH_KEYS];
    struct rng rng = rng_from(seed);
    uint8_t value[RICH_VALUE_BYTES];
    tamis_stats stats;
    char key[32];

    for (size_t i = 0; i < RICH_KEYS; i++)
        order[i] = i;
    for (size_t i = RICH_KEYS - 1; i > 0; i--) {
        size_t other = rng_below(&rng, i + 1);
        size_t kept = order[i];

        order[i] = order[other];
        order[other] = kept;
    }
    for (size_t i = 0; i < RICH_KEYS; i++) {
        if (i == RICH_KEYS - 60)
            check_ok(tamis_wait_idle(db, &err), err);
        if (i == RICH_KEYS - 30)
            check_ok(tamis_flush(db, &err), err);
        rich_value(order[i], value);
        check_ok(tamis_put(db, NULL, tamis_text(number_key(order[i], key)),
                           (tamis_slice){value, sizeof value}, &err),
                 err);
    }
    check_ok(tamis_wait_idle(db, &err), err);
    tamis_stats_init(&stats);
    check_ok(tamis_get_stats(db, &stats, &err), err);
    for (int level = 0; level < 3; level++)
        ck_assert_msg(stats.level[level].file_count != 0, "level %d has a table", level);
}

static struct sim *
make_rich(uint64_t seed)
{
    struct sim *machine;
    tamis_db *db;

    set_up();
    write_buffer_bytes = SMALL_BUFFER_BYTES;
    db = open_store();
    fill_rich(db, seed);
    close_store(db);
    machine = sim_clone(world->sim);
    tear_down();
    return machine;
}

static void
set_up_rich_once(void)
{
    rich = make_rich(1);
}

static void
tear_down_rich_once(void)
{
    sim_destroy(rich);
}

static void
restore_rich(void)
{
    world_take_sim(world, sim_clone(rich));
}

static void
set_up_rich(void)
{
    set_up();
    write_buffer_bytes = SMALL_BUFFER_BYTES;
    restore_rich();
}

/* The name of the manifest that counts. */
static const char *
manifest_name(void)
{
    static struct names manifests;

    manifests = list_names(TM_NAME_MANIFEST);
    ck_assert_uint_eq(manifests.count, 1);
    return manifests.name[0];
}

/* The tables that are there are there still. */
static void
check_tables_kept(const struct names *tables)
{
    struct names now = list_names(TM_NAME_TABLE);

    for (size_t i = 0; i < tables->count; i++) {
        size_t at = 0;

        while (at < now.count && strcmp(now.name[at], tables->name[i]) != 0)
            at++;
        ck_assert_msg(at < now.count, "%s was deleted", tables->name[i]);
    }
}

/* Either refused without a change, or everything is there. Returns whether it opened. */
static bool
check_refused_or_whole(const char *what)
{
    struct names tables = list_names(TM_NAME_TABLE);
    uint64_t hash = directory_hash();
    tamis_db *db = NULL;
    tamis_status status = try_open(&db);

    if (status != TAMIS_OK) {
        ck_assert_msg(status == TAMIS_CORRUPT, "%s: %s: %s", what, tamis_status_name(status),
                      err.message);
        ck_assert_msg(directory_hash() == hash, "%s: a refused store was changed", what);
        return false;
    }
    check_tables_kept(&tables);
    check_rich(db);
    close_store(db);
    return true;
}

/* ---- CURRENT and the manifest --------------------------------------------------------------------- */

START_TEST(current_damaged)
{
    static const uint8_t zeros[16];
    static uint8_t noise[1 << 20];
    struct rng rng = rng_from(1);
    char name[64];
    struct {
        const void *bytes;
        size_t size;
    } variants[] = {
        {"", 0},
        {zeros, sizeof zeros},
        {name, strlen(manifest_name())}, // without its newline
        {"MANIFEST-000999\n", 16},
        {"../x\n", 5},
        {noise, sizeof noise},
        {"MANIFEST-1\n", 11},
        {"MANIFEST-000001\n\n", 17},
        {"000004.sst\n", 11},
        {"\n", 1},
    };
    tamis_db *db;

    snprintf(name, sizeof name, "%s", manifest_name());
    rng_fill(&rng, noise, sizeof noise);
    for (size_t i = 0; i < sizeof variants / sizeof *variants; i++) {
        char what[32];

        snprintf(what, sizeof what, "variant %zu of CURRENT", i);
        sim_file_put(world->sim, DIR_NAME, "CURRENT", variants[i].bytes, variants[i].size);
        check_refused(TAMIS_CORRUPT, what);
        ck_assert_msg(strstr(err.message, "CURRENT") != NULL, "%s: %s", what, err.message);
    }
    snprintf(name + strlen(name), 2, "\n");
    sim_file_put(world->sim, DIR_NAME, "CURRENT", name, strlen(name));
    db = open_store();
    check_rich(db);
    close_store(db);
}
END_TEST

/* How many names a real directory has, and the sum of the sizes. */
static uint64_t
measure_directory(const char *path)
{
    DIR *dir = opendir(path);
    struct dirent *entry;
    uint64_t sum = 0;

    ck_assert_ptr_nonnull(dir);
    while ((entry = readdir(dir)) != NULL) {
        char *file = temp_dir_path(path, entry->d_name);
        struct stat status;

        if (entry->d_name[0] != '.' && lstat(file, &status) == 0)
            sum += 1000000007u + (S_ISREG(status.st_mode) ? (uint64_t)status.st_size : 0);
        free(file);
    }
    closedir(dir);
    return sum;
}

START_TEST(current_is_a_directory_or_a_dangling_link)
{
    char *path = temp_dir_make();
    char *current = temp_dir_path(path, "CURRENT");
    char *aside = temp_dir_path(path, "aside");
    tamis_options options;
    tamis_db *db;

    tamis_options_init(&options);
    options.create_if_missing = true;
    check_ok(tamis_open(path, &options, &db, &err), err);
    put(db, "a", "1", false);
    close_store(db);
    ck_assert_int_eq(rename(current, aside), 0);
    for (int link = 0; link < 2; link++) {
        uint64_t sum;
        tamis_status status;

        if (link)
            ck_assert_int_eq(symlink("nowhere", current), 0);
        else
            ck_assert_int_eq(mkdir(current, 0700), 0);
        sum = measure_directory(path);
        status = tamis_open(path, &options, &db, &err);
        check_status(status, TAMIS_CORRUPT, err);
        ck_assert_ptr_nonnull(strstr(err.message, "'CURRENT' in '"));
        ck_assert_ptr_nonnull(
            strstr(err.message, link ? "is a symbolic link, expected a regular file"
                                     : "is a directory, expected a regular file"));
        ck_assert_uint_eq(measure_directory(path), sum);
        ck_assert_int_eq(link ? unlink(current) : rmdir(current), 0);
    }
    ck_assert_int_eq(rename(aside, current), 0);
    check_ok(tamis_open(path, &options, &db, &err), err);
    check_value(db, "a", "1");
    close_store(db);
    free(current);
    free(aside);
    temp_dir_remove(path);
}
END_TEST

START_TEST(manifest_tail_cut)
{
    const char *name = manifest_name();
    size_t size;
    uint8_t *bytes;
    size_t refused = 0;
    size_t record_count = 0;
    char what[64];

    bytes = sim_file_get(rich, DIR_NAME, name, &size);
    ck_assert_ptr_nonnull(bytes);
    for (size_t cut = 1; cut <= 40; cut++) {
        snprintf(what, sizeof what, "%zu bytes cut off the manifest", cut);
        restore_rich();
        sim_file_put(world->sim, DIR_NAME, name, bytes, size - cut);
        refused += !check_refused_or_whole(what);
    }
    ck_assert_uint_le(size, TM_RECORD_BLOCK_BYTES);
    for (size_t offset = 0; offset < size; record_count++) {
        snprintf(what, sizeof what, "manifest cut to %zu records", record_count);
        restore_rich();
        sim_file_put(world->sim, DIR_NAME, name, bytes, offset);
        refused += !check_refused_or_whole(what);
        offset += TM_RECORD_HEADER_BYTES + tm_get_u16(bytes + offset + 8);
    }
    ck_assert_uint_ge(record_count, 20);
    ck_assert_uint_gt(refused, 0);
    free(bytes);
}
END_TEST

START_TEST(current_missing_with_create_if_missing)
{
    size_t size;
    uint8_t *bytes = file_bytes("CURRENT", &size);
    tamis_db *db;

    ck_assert(sim_file_remove(world->sim, DIR_NAME, "CURRENT"));
    check_refused(TAMIS_CORRUPT, "CURRENT removed");
    sim_file_put(world->sim, DIR_NAME, "CURRENT", bytes, size);
    free(bytes);
    db = open_store();
    check_rich(db);
    close_store(db);
}
END_TEST

START_TEST(table_listed_but_missing)
{
    struct names tables = list_names(TM_NAME_TABLE);
    tamis_db *db;

    ck_assert_uint_ge(tables.count, 10);
    for (size_t i = 0; i < tables.count; i++) {
        restore_rich();
        ck_assert(sim_file_remove(world->sim, DIR_NAME, tables.name[i]));
        check_refused(TAMIS_CORRUPT, tables.name[i]);
        check_refused(TAMIS_CORRUPT, tables.name[i]); // nor does a second try pile up files
    }
    restore_rich();
    db = open_store();
    check_rich(db);
    close_store(db);
}
END_TEST

START_TEST(foreign_and_temporary_files)
{
    static const char *const foreign[] = {
        "000003.dbtmp",
        "._000012.sst",
        ".DS_Store",
        "foo.sst",
        "99999999999999999999999.sst",
        "-1.log",
        "MANIFEST-abc",
        "LOG.bak",
        "12.sst",
        "0000012.sst",
        "+00012.sst",
        "000012.SST",
        "MANIFEST-7",
        "CURRENT.bak",
        "current",
        "000012.sst.old",
        "000012.wal~",
    };
    uint8_t value[RICH_VALUE_BYTES];
    char key[32];
    tamis_db *db;

    for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++)
        sim_file_put(world->sim, DIR_NAME, foreign[i], foreign[i], strlen(foreign[i]));
    sim_file_put(world->sim, DIR_NAME, "CURRENT.tmp", "junk", 4);
    sim_file_put(world->sim, DIR_NAME, "000900.sst", "junk", 4);
    sim_file_put(world->sim, DIR_NAME, "MANIFEST-000901", "junk", 4);
    db = open_store();
    for (size_t i = 0; i < 1000; i++) {
        rich_value(i, value);
        check_ok(tamis_put(db, NULL, tamis_text(number_key(i, key)),
                           (tamis_slice){value, sizeof value}, &err),
                 err);
    }
    check_ok(tamis_compact_range(db, NULL, NULL, &err), err);
    close_store(db);
    db = open_store();
    check_rich(db);
    close_store(db);
    for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++) {
        size_t size;
        uint8_t *bytes = file_bytes(foreign[i], &size);

        ck_assert_uint_eq(size, strlen(foreign[i]));
        ck_assert_mem_eq(bytes, foreign[i], size);
        free(bytes);
    }
    ck_assert_ptr_null(sim_file_get(world->sim, DIR_NAME, "CURRENT.tmp", &(size_t){0}));
    ck_assert_ptr_null(sim_file_get(world->sim, DIR_NAME, "000900.sst", &(size_t){0}));
    ck_assert_ptr_null(sim_file_get(world->sim, DIR_NAME, "MANIFEST-000901", &(size_t){0}));
}
END_TEST

/* ---- Valid files in the wrong place --------------------------------------------------------------- */

/* Put the bytes that `from` has under `name` in their place. */
static void
copy_from(struct sim *from, const char *name, const char *name_to)
{
    size_t size;
    uint8_t *bytes = sim_file_get(from, DIR_NAME, name, &size);

    ck_assert_msg(bytes != NULL, "%s is there", name);
    sim_file_put(world->sim, DIR_NAME, name_to, bytes, size);
    free(bytes);
}

START_TEST(two_tables_swapped)
{
    struct names tables = list_names(TM_NAME_TABLE);

    for (size_t i = 0; i + 1 < tables.count; i += oracle_stride()) {
        restore_rich();
        copy_from(rich, tables.name[i], tables.name[i + 1]);
        copy_from(rich, tables.name[i + 1], tables.name[i]);
        check_refused(TAMIS_CORRUPT, tables.name[i]);
    }
}
END_TEST

/* A file of the same name from a store that lived otherwise: what a stale copy looks like. */
START_TEST(table_or_manifest_of_another_life_under_its_name)
{
    struct names names = list_names(TM_NAME_FOREIGN);
    struct sim *other;
    size_t count = 0;

    tear_down();
    other = make_rich(2);
    set_up_rich();
    for (size_t i = 0; i < names.count; i++) {
        uint64_t number;
        enum tm_name_kind kind = tm_name_parse(names.name[i], &number);
        size_t size;
        uint8_t *bytes = sim_file_get(other, DIR_NAME, names.name[i], &size);
        bool is_there = bytes != NULL;

        free(bytes);
        if (!is_there || (kind != TM_NAME_TABLE && kind != TM_NAME_MANIFEST))
            continue;
        restore_rich();
        copy_from(other, names.name[i], names.name[i]);
        check_refused(TAMIS_CORRUPT, names.name[i]);
        count++;
    }
    ck_assert_uint_ge(count, 5);
    sim_destroy(other);
}
END_TEST

START_TEST(older_version_of_a_log_under_its_name)
{
    struct sim *early;
    tamis_db *db;

    use_log_mode(_i);
    db = open_store();
    put(db, "a", "1", true);
    early = sim_clone(world->sim);
    put(db, "a", "2", true);
    close_store(db);
    copy_from(early, only_log(), only_log());
    check_refused(TAMIS_CORRUPT, "the log as it was before the last write");
    sim_destroy(early);
}
END_TEST

START_TEST(older_current_and_manifest_together)
{
    struct sim *early;
    tamis_db *db;
    char name[64];

    db = open_store();
    put(db, "a", "1", true);
    close_store(db);
    snprintf(name, sizeof name, "%s", manifest_name());
    early = sim_clone(world->sim);
    db = open_store();
    put(db, "a", "2", true);
    close_store(db);
    copy_from(early, "CURRENT", "CURRENT");
    copy_from(early, name, name);
    check_refused(TAMIS_CORRUPT, "an older manifest whose log is gone");
    sim_destroy(early);
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("recovery_cases");
    TCase *logs = tcase_create("logs");
    TCase *files = tcase_create("files");

    tcase_set_timeout(logs, 0);
    tcase_add_checked_fixture(logs, set_up, tear_down);
    tcase_add_loop_test(logs, append_after_an_incomplete_tail, 0, 2);
    tcase_add_loop_test(logs, rotten_middle_of_the_log, 0, 2);
    tcase_add_loop_test(logs, batch_over_several_pages_one_page_lost, 0, 2);
    tcase_add_loop_test(logs, second_kill_right_after_recovery, 0, 2);
    tcase_add_loop_test(logs, newer_log_synced_older_not, 0, 2);
    tcase_add_loop_test(logs, newer_log_synced_while_the_older_is_being_synced, 0, 2);
    tcase_add_loop_test(logs, log_file_missing, 0, 2);
    tcase_add_loop_test(logs, newest_log_file_missing_after_a_clean_close, 0, 2);
    tcase_add_loop_test(logs, manifest_sync_failed_then_restart_then_power_cut, 0, 2);
    tcase_add_loop_test(logs, lost_writes_are_a_suffix, 0, 4);
    tcase_add_loop_test(logs, older_version_of_a_log_under_its_name, 0, 2);
    tcase_add_test(logs, older_current_and_manifest_together);
    tcase_add_test(logs, current_is_a_directory_or_a_dangling_link);
    suite_add_tcase(suite, logs);

    tcase_set_timeout(files, 0);
    tcase_add_unchecked_fixture(files, set_up_rich_once, tear_down_rich_once);
    tcase_add_checked_fixture(files, set_up_rich, tear_down);
    tcase_add_test(files, current_damaged);
    tcase_add_test(files, manifest_tail_cut);
    tcase_add_test(files, current_missing_with_create_if_missing);
    tcase_add_test(files, table_listed_but_missing);
    tcase_add_test(files, foreign_and_temporary_files);
    tcase_add_test(files, two_tables_swapped);
    tcase_add_test(files, table_or_manifest_of_another_life_under_its_name);
    suite_add_tcase(suite, files);
    return check_run(suite);
}
