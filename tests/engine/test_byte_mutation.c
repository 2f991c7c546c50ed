/* SPDX-License-Identifier: MIT
 *
 * tests/engine/test_byte_mutation.c -- bytes of a store change, files go missing or stand in the wrong place: never a wrong answer.
 *
 * Two small stores with tables on three levels, tombstones, old versions, many manifest edits and two logs: one killed, one
 * cleanly closed. One thing is changed; then the store is opened, every key and as many absent ones are asked for, it is
 * scanned, compacted, asked again and closed. Every answer is right, or an error.
 *
 * All writes were synced, so nothing may be lost silently, but for what nothing can prove:
 *   - the last write of the newest log of the killed store: no later fragment tells that it was synced;
 *   - the end of that log from a place on, if the rest is gone or not where it was (cut, a byte more or less, no file);
 *     and the older log, too, if the newest one, which tells how long it was, is gone at the same time.
 */
#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "engine/record_log.h"
#include "tests/engine/store_oracle.h"

enum {
    NUMBERS = 600,      // even: written at least once; odd: never
    FILLER_FIRST = 900, // keys that make tables large for a while
    FILLERS = 70,
    HISTORY_MAX = 64, // states that a cut log may leave: bits of a mask
    NAMES_MAX = 60,
    OFFSETS = 450,    // of each store, about 1 percent; each is changed in every way
    OFFSETS_MIN = 10, // of each file
    EDITS_MIN = 20,   // in the manifest
    KINDS = 7,
    OUTCOMES = 4,
};

enum kind {
    KIND_CURRENT,
    KIND_MANIFEST,
    KIND_TABLE,
    KIND_OLD_LOG,
    KIND_NEW_LOG,
    KIND_LOCK,
    KIND_MANY
};
enum outcome { AT_OPEN, AT_READ, HARMLESS, CUT };

static const char *const kind_names[KINDS] = {"CURRENT", "manifest", "table",           "old log",
                                              "new log", "LOCK",     "swapped or stray"};

enum mutation {
    FLIP_BIT,
    ZERO,
    ONES,
    PLUS_ONE,
    CUT_HERE,
    INSERT,
    DELETE,
    MUTATION_COUNT,
};

static const char *const mutation_names[MUTATION_COUNT] = {
    "a flipped bit", "0x00", "0xff", "+1", "cut here", "a byte more", "a byte less"};

struct state {
    uint32_t version[NUMBERS]; // 0: absent
};

struct store {
    struct sim *sim;
    bool killed;
    struct state states[HISTORY_MAX]; // [0]: in tables; then after each write in the logs
    size_t state_count;
    size_t new_log_count; // writes in the newest log
};

struct named {
    char name[32];
    enum kind kind;
    size_t size;
};

static struct store store; // every change starts from it
static struct named files[NAMES_MAX];
static size_t file_count;
static uint64_t counts[KINDS][OUTCOMES];
static char what[200];

/* ---- Making the stores ----------------------------------------------------------------------------------- */

static tamis_slice
key_of(size_t number, char text[24])
{
    snprintf(text, 24, "key%05zu", number);
    return tamis_text(text);
}

/* Half of the values can be compressed. */
static tamis_slice
value_of(size_t number, uint32_t version, uint8_t bytes[1024])
{
    struct rng rng = rng_from((uint64_t)number << 32 | version);
    size_t length = number >= FILLER_FIRST ? 900 : rng_below(&rng, 160);

    if (number % 4 == 0)
        memset(bytes, (int)(number + version), length);
    else
        rng_fill(&rng, bytes, length);
    snprintf((char *)bytes + length, 24, "%zu.%u", number, (unsigned)version);
    return (tamis_slice){bytes, length + strlen((char *)bytes + length)};
}

static tamis_status
open_store(struct world *world, tamis_db **db_out, tamis_error *err)
{
    tamis_options options = oracle_options(world);

    options.block_bytes = 512;
    return tm_open(ORACLE_DIR, &options, world->env.runtime, db_out, err);
}

static void
put(tamis_db *db, struct state *state, size_t number, bool remove)
{
    static uint32_t versions;
    tamis_write_options options;
    uint32_t version = ++versions;
    uint8_t bytes[1024];
    char text[24];
    tamis_error err;

    tamis_write_options_init(&options);
    options.sync = true;
    if (remove)
        check_ok(tamis_delete(db, &options, key_of(number, text), &err), err);
    else
        check_ok(
            tamis_put(db, &options, key_of(number, text), value_of(number, version, bytes), &err),
            err);
    if (number < NUMBERS)
        state->version[number] = remove ? 0 : version;
}

static void
flush(tamis_db *db)
{
    tamis_error err;

    check_ok(tamis_flush(db, &err), err);
    check_ok(tamis_wait_idle(db, &err), err);
}

/* Tables on three levels. */
static void
make_tables(tamis_db *db, struct state *state)
{
    tamis_snapshot *snapshot;
    tamis_error err;

    // Enough for a third level; then the ballast goes.
    for (size_t round = 0; round < 7; round++) {
        for (size_t i = 0; i < 20; i++)
            put(db, state, 2 * (round * 20 + i), false);
        for (size_t i = 0; i < FILLERS; i++)
            put(db, state, FILLER_FIRST + round * FILLERS + i, false);
        flush(db);
    }
    for (size_t i = 0; i < 7 * FILLERS; i++)
        put(db, state, FILLER_FIRST + i, true);
    check_ok(tamis_compact_range(db, NULL, NULL, &err), err);
    // Old versions that a snapshot keeps, tombstones, and new keys.
    check_ok(tamis_snapshot_take(db, &snapshot, &err), err);
    for (size_t round = 0; round < 12; round++) {
        for (size_t i = 0; i < 15; i++)
            put(db, state, 2 * ((round * 25 + i) % 200), false);
        for (size_t i = 0; i < 8; i++)
            put(db, state, 2 * ((round * 31 + 7 * i) % 200), i % 2 == 0);
        flush(db);
    }
    // Keys of their own: each table moves down by itself.
    for (size_t round = 0; round < 10; round++) {
        for (size_t i = 0; i < 10; i++)
            put(db, state, 2 * (200 + round * 10 + i), false);
        flush(db);
    }
    tamis_snapshot_release(db, snapshot);
}

static void
visit_file(void *arg, const char *name)
{
    struct named *file = &files[file_count++];
    size_t length = strlen(name);

    (void)arg;
    ck_assert_uint_le(file_count, NAMES_MAX);
    snprintf(file->name, sizeof file->name, "%s", name);
    file->kind = KIND_LOCK;
    if (length > 4 && strcmp(name + length - 4, ".sst") == 0)
        file->kind = KIND_TABLE;
    else if (length > 4 && strcmp(name + length - 4, ".wal") == 0)
        file->kind = KIND_NEW_LOG;
    else if (strncmp(name, "MANIFEST-", 9) == 0)
        file->kind = KIND_MANIFEST;
    else if (strcmp(name, "CURRENT") == 0)
        file->kind = KIND_CURRENT;
}

static size_t
find_files(enum kind kind, struct named *found[NAMES_MAX])
{
    size_t count = 0;

    for (size_t i = 0; i < file_count; i++)
        if (files[i].kind == kind)
            found[count++] = &files[i];
    return count;
}

static void
list_files(void)
{
    struct named *found[NAMES_MAX];
    size_t total = 0;

    file_count = 0;
    sim_file_each(store.sim, ORACLE_DIR, visit_file, NULL);
    ck_assert_uint_eq(find_files(KIND_NEW_LOG, found), 2);
    (strcmp(found[0]->name, found[1]->name) < 0 ? found[0] : found[1])->kind = KIND_OLD_LOG;
    for (size_t i = 0; i < file_count; i++) {
        free(sim_file_get(store.sim, ORACLE_DIR, files[i].name, &files[i].size));
        total += files[i].size;
    }
    ck_assert_uint_ge(find_files(KIND_TABLE, found), 6);
    ck_assert_uint_eq(find_files(KIND_MANIFEST, found), 1);
    ck_assert_uint_ge(found[0]->size,
                      EDITS_MIN * TM_RECORD_HEADER_BYTES * 3); // an edit adds a table
    printf("  %s: %zu files, %zu bytes\n", store.killed ? "killed" : "closed", file_count, total);
}

static bool
see_level(void *arg, const tamis_table_stats *table)
{
    unsigned *levels = arg;

    *levels |= 1u << table->level;
    return true;
}

static void
refuse_tables(struct world *world)
{
    (void)sim_fault_add(world->sim,
                        (struct sim_fault){SIM_OPEN, TM_OS_CLASS_TABLE, 1, SIM_ERROR, EIO, true});
}

/* A store with two logs: a flush that cannot make its table leaves the older one. */
static void
make_store(uint64_t seed, bool killed)
{
    struct world *world = world_create(seed, WORLD_BATON);
    struct state state = {0};
    unsigned levels = 0;
    tamis_db *db;
    tamis_error err;

    check_ok(open_store(world, &db, &err), err);
    make_tables(db, &state);
    store.states[0] = state;
    store.state_count = 1;
    store.new_log_count = 24;
    for (size_t i = 0; i < 20; i++) {
        put(db, &state, 2 * (i * 13 % 300), i % 5 == 0);
        store.states[store.state_count++] = state;
    }
    refuse_tables(world);
    check_status(tamis_flush(db, &err), TAMIS_IO, err);
    for (size_t i = 0; i < store.new_log_count; i++) {
        put(db, &state, 2 * (i * 11 % 300), i % 6 == 5);
        store.states[store.state_count++] = state;
    }
    check_ok(tamis_visit_tables(db, see_level, &levels, &err), err);
    ck_assert_uint_eq(levels, 7); // three levels
    store.killed = killed;
    if (killed)
        store.sim = sim_clone(world->sim);
    check_ok(tamis_close(db, &err), err);
    if (!killed)
        store.sim = sim_clone(world->sim);
    world_destroy(world);
    list_files();
}

/* ---- Judging ------------------------------------------------------------------------------------------------ */

/* What the answers so far leave possible. */
struct judge {
    uint64_t possible; // bit i: states[i]
    uint64_t error_count;
};

static void
expect_error(struct judge *judge, const char *call, tamis_status status, const tamis_error *err)
{
    ck_assert_msg(status == TAMIS_CORRUPT || status == TAMIS_UNSUPPORTED, "%s: %s gives %s: %s",
                  what, call, tamis_status_name(status), err->message);
    judge->error_count++;
}

/* The store says that the key has this version; 0: that it is absent. */
static void
learn(struct judge *judge, size_t number, uint32_t version, const char *call)
{
    for (size_t i = 0; i < store.state_count; i++)
        if (store.states[i].version[number] != version)
            judge->possible &= ~(UINT64_C(1) << i);
    ck_assert_msg(judge->possible != 0, "%s: %s of key %zu gives version %u", what, call, number,
                  (unsigned)version);
}

static uint32_t
version_in(size_t number, tamis_slice value)
{
    uint8_t bytes[1024];
    const char *dot;
    uint32_t version = 0;

    ck_assert_msg(value.length > 2 && value.length < sizeof bytes,
                  "%s: key %zu: a value of %zu bytes", what, number, value.length);
    memcpy(bytes, value.data, value.length);
    bytes[value.length] = 0;
    dot = memrchr(bytes, '.', value.length);
    if (dot != NULL)
        version = (uint32_t)strtoul(dot + 1, NULL, 10);
    ck_assert_msg(tm_slice_equal(value, value_of(number, version, bytes)),
                  "%s: a wrong value of key %zu", what, number);
    return version;
}

static void
judge_gets(struct judge *judge, tamis_db *db)
{
    for (size_t number = 0; number < NUMBERS; number++) {
        tamis_pinned pinned;
        char text[24];
        tamis_error err;
        tamis_status status = tamis_get_pinned(db, NULL, key_of(number, text), &pinned, &err);

        if (status == TAMIS_OK) {
            learn(judge, number, version_in(number, pinned.value), "get");
            tamis_pinned_release(&pinned);
        } else if (status == TAMIS_NOT_FOUND) {
            learn(judge, number, 0, "get");
        } else {
            expect_error(judge, "get", status, &err);
        }
    }
}

static void
judge_scan(struct judge *judge, tamis_db *db)
{
    size_t next = 0;
    tamis_iter *iter;
    tamis_error err;
    tamis_status status;

    check_ok(tamis_iter_open(db, NULL, &iter, &err), err);
    for (tamis_iter_first(iter); tamis_iter_valid(iter); tamis_iter_next(iter)) {
        char text[24];

        while (next < NUMBERS && !tm_slice_equal(tamis_iter_key(iter), key_of(next, text)))
            learn(judge, next++, 0, "scan");
        ck_assert_msg(next < NUMBERS, "%s: the scan shows a key that never was, or out of order",
                      what);
        learn(judge, next, version_in(next, tamis_iter_value(iter)), "scan");
        next++;
    }
    status = tamis_iter_status(iter, &err);
    if (status != TAMIS_OK)
        expect_error(judge, "scan", status, &err);
    while (status == TAMIS_OK && next < NUMBERS)
        learn(judge, next++, 0, "scan");
    tamis_iter_close(iter);
}

/* `sim` is a changed store; it is taken. `possible`: the states that it may show. */
static void
judge_changed(struct sim *sim, enum kind kind, uint64_t possible)
{
    struct world *world = world_create(1, WORLD_BATON);
    struct judge judge = {.possible = possible};
    enum outcome outcome = HARMLESS;
    tamis_db *db = NULL;
    tamis_error err;
    tamis_status status;

    world_take_sim(world, sim);
    status = open_store(world, &db, &err);
    if (status != TAMIS_OK) {
        expect_error(&judge, "open", status, &err);
        outcome = AT_OPEN;
    } else {
        judge_gets(&judge, db);
        judge_scan(&judge, db);
        status = tamis_compact_range(db, NULL, NULL, &err);
        if (status != TAMIS_OK)
            expect_error(&judge, "compact", status, &err);
        judge_gets(&judge, db);
        check_ok(tamis_close(db, &err), err);
        if (judge.error_count != 0)
            outcome = AT_READ;
        else if (judge.possible >> (store.state_count - 1) == 0)
            outcome = CUT;
    }
    counts[kind][outcome]++;
    world_destroy(world);
}

/* The newest `count` states. */
static uint64_t
last_states(size_t count)
{
    uint64_t all = (UINT64_C(1) << store.state_count) - 1;

    return all & ~((UINT64_C(1) << (store.state_count - count)) - 1);
}

/* What may be shown when a file is changed in one place, or lost from there on. */
static uint64_t
states_allowed(enum kind kind, bool rest_is_lost)
{
    if (!store.killed || kind != KIND_NEW_LOG)
        return last_states(1);
    return last_states(rest_is_lost ? store.new_log_count + 1 : 2);
}

/* ---- Changing ------------------------------------------------------------------------------------------------- */

/* `bytes` has room for one more. False: the byte was that already. */
static bool
change(uint8_t *bytes, size_t *size, size_t offset, enum mutation mutation, struct rng *rng)
{
    uint8_t before = bytes[offset];

    switch (mutation) {
    case FLIP_BIT:
        bytes[offset] ^= (uint8_t)(1u << rng_below(rng, 8));
        return true;
    case ZERO:
        bytes[offset] = 0;
        return before != 0;
    case ONES:
        bytes[offset] = 0xff;
        return before != 0xff;
    case PLUS_ONE:
        bytes[offset]++;
        return true;
    case CUT_HERE:
        *size = offset;
        return true;
    case INSERT:
        memmove(bytes + offset + 1, bytes + offset, *size - offset);
        bytes[offset] = (uint8_t)rng_next(rng);
        *size += 1;
        return true;
    case DELETE:
        memmove(bytes + offset, bytes + offset + 1, *size - offset - 1);
        *size -= 1;
        return true;
    case MUTATION_COUNT:
        break;
    }
    return false;
}

static void
change_at(const struct named *file, size_t offset, struct rng *rng)
{
    for (enum mutation mutation = 0; mutation < MUTATION_COUNT; mutation++) {
        bool rest_is_lost = mutation == CUT_HERE || mutation == INSERT || mutation == DELETE;
        size_t size;
        uint8_t *old = sim_file_get(store.sim, ORACLE_DIR, file->name, &size);
        uint8_t *bytes = malloc(size + 1);

        ck_assert(old != NULL && bytes != NULL);
        memcpy(bytes, old, size);
        snprintf(what, sizeof what, "%s store, %.31s, offset %zu of %zu, %s",
                 store.killed ? "killed" : "closed", file->name, offset, size,
                 mutation_names[mutation]);
        if (change(bytes, &size, offset, mutation, rng)) {
            struct sim *sim = sim_clone(store.sim);

            sim_file_put(sim, ORACLE_DIR, file->name, bytes, size);
            judge_changed(sim, file->kind, states_allowed(file->kind, rest_is_lost));
        }
        free(bytes);
        free(old);
    }
}

static void
change_bytes(struct rng *rng)
{
    size_t total = 0;

    for (size_t i = 0; i < file_count; i++)
        total += files[i].size;
    for (size_t i = 0; i < file_count; i++) {
        size_t wanted = oracle_scaled(OFFSETS) * files[i].size / total;

        if (wanted < oracle_scaled(OFFSETS_MIN))
            wanted = oracle_scaled(OFFSETS_MIN);
        for (size_t n = 0; n < wanted && files[i].size != 0; n++)
            change_at(&files[i], rng_below(rng, files[i].size), rng);
    }
}

static void
remove_files(void)
{
    for (size_t i = 0; i < file_count; i++) {
        struct sim *sim = sim_clone(store.sim);

        snprintf(what, sizeof what, "%s store without %.31s", store.killed ? "killed" : "closed",
                 files[i].name);
        ck_assert(sim_file_remove(sim, ORACLE_DIR, files[i].name));
        judge_changed(sim, files[i].kind, last_states(1));
    }
}

/* The bytes of `from` stand under the name `to`, too. */
static void
copy_file(struct sim *sim, const char *from, const char *to)
{
    size_t size;
    uint8_t *bytes = sim_file_get(store.sim, ORACLE_DIR, from, &size);

    ck_assert_ptr_nonnull(bytes);
    sim_file_put(sim, ORACLE_DIR, to, bytes, size);
    free(bytes);
}

static void
misplace(const struct named *file, const struct named *other)
{
    struct sim *sim = sim_clone(store.sim);

    snprintf(what, sizeof what, "%s store, %s and %s swapped", store.killed ? "killed" : "closed",
             file->name, other->name);
    copy_file(sim, file->name, other->name);
    copy_file(sim, other->name, file->name);
    judge_changed(sim, KIND_MANY, last_states(1));
    for (int way = 0; way < 2; way++) {
        const struct named *from = way == 0 ? file : other;
        const struct named *to = way == 0 ? other : file;

        snprintf(what, sizeof what, "%s store, %s in the place of %s",
                 store.killed ? "killed" : "closed", from->name, to->name);
        sim = sim_clone(store.sim);
        copy_file(sim, from->name, to->name);
        judge_changed(sim, KIND_MANY, states_allowed(to->kind, true));
    }
}

static void
misplace_files(void)
{
    struct named *tables[NAMES_MAX];
    struct named *old_log[NAMES_MAX];
    struct named *new_log[NAMES_MAX];
    size_t count = find_files(KIND_TABLE, tables);

    for (size_t i = 0; i < count; i++)
        for (size_t j = 0; j < i; j++)
            misplace(tables[i], tables[j]);
    (void)find_files(KIND_OLD_LOG, old_log);
    (void)find_files(KIND_NEW_LOG, new_log);
    misplace(old_log[0], new_log[0]);
}

static void
add_strays(void)
{
    static const char *const strays[] = {"000000.sst",      "000001.sst", "999999.sst",
                                         "000001.wal",      "999999.wal", "CURRENT.tmp",
                                         "CURRENT.bak",     "TABLES",     "MANIFEST-000002",
                                         "MANIFEST-999999", ".DS_Store",  "notes"};

    for (size_t i = 0; i < sizeof strays / sizeof strays[0]; i++)
        for (size_t j = 0; j < file_count; j++) {
            struct sim *sim = sim_clone(store.sim);

            snprintf(what, sizeof what, "%s store, a stray %s with the bytes of %s",
                     store.killed ? "killed" : "closed", strays[i], files[j].name);
            copy_file(sim, files[j].name, strays[i]);
            judge_changed(sim, KIND_MANY, last_states(1));
        }
}

static void
print_counts(void)
{
    for (size_t kind = 0; kind < KINDS; kind++)
        printf("  %s: detected at open %" PRIu64 ", at read %" PRIu64 ", harmless %" PRIu64
               ", cut %" PRIu64 "\n",
               kind_names[kind], counts[kind][AT_OPEN], counts[kind][AT_READ],
               counts[kind][HARMLESS], counts[kind][CUT]);
    fflush(stdout);
}

START_TEST(a_changed_store_gives_right_answers_or_errors)
{
    uint64_t seed = rng_seed("a_changed_store_gives_right_answers_or_errors", 1);
    struct rng rng = rng_from(seed + (uint64_t)_i);

    make_store(seed, _i == 0);
    snprintf(what, sizeof what, "nothing changed");
    judge_changed(sim_clone(store.sim), KIND_LOCK, last_states(1));
    ck_assert_uint_eq(counts[KIND_LOCK][HARMLESS], 1);
    change_bytes(&rng);
    remove_files();
    misplace_files();
    add_strays();
    sim_destroy(store.sim);
    print_counts();
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("byte_mutation");
    TCase *tests = tcase_create("byte_mutation");

    tcase_set_timeout(tests, 0);
    tcase_add_loop_test(tests, a_changed_store_gives_right_answers_or_errors, 0, 2);
    suite_add_tcase(suite, tests);
    return check_run(suite);
}
