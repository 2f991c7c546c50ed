/* SPDX-License-Identifier: MIT
 *
 * tests/engine/test_kill.c -- a process that is killed while it writes, flushes, compacts or recovers loses nothing
 * that was acknowledged and leaves no batch in part.
 *
 *   parent                        child, round after round on the same store
 *   reads acknowledgements  <---  opens, checks what it finds, reports it; then four threads write batches
 *   after a random number  --->   SIGKILL
 *
 * A batch gives all the keys of a group one stamp, and stamps of a writer grow by one; so of every writer at most one
 * batch can be there that was not acknowledged, and it has the next stamp. Nothing here looks at a clock.
 */
#include <check.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <tamis/tamis.h>

#include "tests/support/check_status.h"
#include "tests/support/rng.h"
#include "tests/support/temp_dir.h"

#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
enum { MEMORY_ROUND_COUNT = 30, DISK_ROUND_COUNT = 10 };
#else
enum { MEMORY_ROUND_COUNT = 150, DISK_ROUND_COUNT = 50 };
#endif

enum {
    WRITER_COUNT = 4,
    GROUP_COUNT = 24, // of each writer
    KEY_COUNT = 8,    // of each group
    VALUE_BYTES = 160,
    ACKNOWLEDGEMENT_MAX = 1200,
};

/* What a child tells: this stamp is in the store. */
struct record {
    uint32_t writer;
    uint32_t group;
    uint64_t stamp;
};

struct store {
    char *scratch;
    char *path;
    struct rng rng;
    uint64_t known[WRITER_COUNT][GROUP_COUNT]; // newest stamp that was reported
};

struct tally {
    unsigned round_count;
    unsigned killed_opening_count; // before the child had told anything
    unsigned killed_recovering_count;
    uint64_t record_count;
};

static tamis_error err;

/* ---- Keys ----------------------------------------------------------------------------------------- */

static tamis_slice
make_key(char text[32], unsigned writer, unsigned group, unsigned number)
{
    // Neighbours belong to different writers, so that every table holds keys of all.
    snprintf(text, 32, "%02u-%u-%u", group, writer, number);
    return tamis_text(text);
}

/* Every seventh batch of a writer deletes half of its keys. */
static bool
is_deleted(uint64_t stamp, unsigned number)
{
    return stamp == 0 || (stamp % 7 == 0 && number % 2 == 1);
}

static void
fill_batch(tamis_batch *batch, unsigned writer, unsigned group, uint64_t stamp)
{
    char text[32];
    uint8_t value[VALUE_BYTES];
    struct rng noise = rng_from(stamp); // or compression would keep the tables small

    rng_fill(&noise, value, sizeof value);
    memcpy(value, &stamp, sizeof stamp);
    tamis_batch_clear(batch);
    for (unsigned number = 0; number < KEY_COUNT; number++) {
        tamis_slice key = make_key(text, writer, group, number);
        tamis_slice bytes = {value, sizeof value};

        if (is_deleted(stamp, number))
            check_ok(tamis_batch_delete(batch, key, &err), err);
        else
            check_ok(tamis_batch_put(batch, key, bytes, &err), err);
    }
}

/* ---- Checking ------------------------------------------------------------------------------------- */

static tamis_db *
open_store(const struct store *store, const tamis_allocator *allocator)
{
    tamis_options options;
    tamis_db *db = NULL;

    tamis_options_init(&options);
    options.create_if_missing = true;
    options.write_buffer_bytes = 64 << 10;
    options.block_cache_bytes = 256 << 10;
    options.allocator = allocator;
    check_ok(tamis_open(store->path, &options, &db, &err), err);
    return db;
}

/* The stamp of a group: that of its first key, which every batch puts. */
static uint64_t
read_stamp(tamis_db *db, unsigned writer, unsigned group, unsigned number)
{
    char text[32];
    uint8_t value[VALUE_BYTES];
    uint64_t stamp = 0;
    size_t length;
    tamis_status status = tamis_get(db, NULL, make_key(text, writer, group, number), value,
                                    sizeof value, &length, &err);

    if (status != TAMIS_NOT_FOUND) {
        check_ok(status, err);
        ck_assert_uint_eq(length, VALUE_BYTES);
        memcpy(&stamp, value, sizeof stamp);
        ck_assert_uint_ne(stamp, 0);
    }
    return stamp;
}

/* All groups are whole and at least as new as reported; found[][] gets their stamps. */
static void
check_store(tamis_db *db, const struct store *store, uint64_t found[WRITER_COUNT][GROUP_COUNT])
{
    size_t expected_count = 0;
    size_t walked_count = 0;
    tamis_iter *iter = NULL;

    for (unsigned writer = 0; writer < WRITER_COUNT; writer++) {
        uint64_t newest = 0;
        unsigned unreported_count = 0;

        for (unsigned group = 0; group < GROUP_COUNT; group++)
            newest = store->known[writer][group] > newest ? store->known[writer][group] : newest;
        for (unsigned group = 0; group < GROUP_COUNT; group++) {
            uint64_t stamp = read_stamp(db, writer, group, 0);

            ck_assert_uint_ge(stamp, store->known[writer][group]);
            if (stamp != store->known[writer][group]) {
                ck_assert_uint_eq(stamp, newest + 1);
                unreported_count++;
            }
            for (unsigned number = 0; number < KEY_COUNT; number++) {
                uint64_t expected = is_deleted(stamp, number) ? 0 : stamp;

                ck_assert_uint_eq(read_stamp(db, writer, group, number), expected);
                expected_count += expected != 0;
            }
            found[writer][group] = stamp;
        }
        ck_assert_uint_le(unreported_count, 1);
    }
    check_ok(tamis_iter_open(db, NULL, &iter, &err), err);
    for (tamis_iter_first(iter); tamis_iter_valid(iter); tamis_iter_next(iter))
        walked_count++;
    check_ok(tamis_iter_status(iter, &err), err);
    tamis_iter_close(iter);
    ck_assert_uint_eq(walked_count, expected_count);
}

/* ---- The child ------------------------------------------------------------------------------------ */

static struct child {
    tamis_db *db;
    int records; // the pipe
    uint64_t seed;
    uint64_t newest[WRITER_COUNT];
} child;

static void
report(unsigned writer, unsigned group, uint64_t stamp)
{
    struct record record = {writer, group, stamp};

    if (write(child.records, &record, sizeof record) != (ssize_t)sizeof record)
        _exit(EXIT_FAILURE);
}

static void
expect_ok(tamis_status status, const tamis_error *failure)
{
    if (status != TAMIS_OK) {
        fprintf(stderr, "child: %s: %s\n", tamis_status_name(status), failure->message);
        _exit(EXIT_FAILURE);
    }
}

/* Write without end. The first two writers also flush and compact, in the way of the threads that do so anyway. */
static void *
run_writer(void *arg)
{
    unsigned writer = *(unsigned *)arg;
    struct rng rng = rng_from(child.seed + writer);
    tamis_write_options options;
    tamis_batch *batch = NULL;
    tamis_error failure;

    tamis_write_options_init(&options);
    expect_ok(tamis_batch_create(NULL, &batch, &failure), &failure);
    for (uint64_t stamp = child.newest[writer] + 1;; stamp++) {
        unsigned group = (unsigned)rng_below(&rng, GROUP_COUNT);

        fill_batch(batch, writer, group, stamp);
        options.sync = stamp % 5 == 0;
        expect_ok(tamis_write(child.db, &options, batch, &failure), &failure);
        report(writer, group, stamp);
        if (writer == 0 && rng_chance(&rng, 1, 100))
            expect_ok(tamis_flush(child.db, &failure), &failure);
        if (writer == 1 && rng_chance(&rng, 1, 100)) {
            char text[32];
            tamis_slice from = make_key(text, 0, group, 0);

            expect_ok(tamis_compact_range(child.db, rng_chance(&rng, 1, 2) ? &from : NULL, NULL,
                                          &failure),
                      &failure);
        }
    }
    return NULL;
}

static void
run_child(const struct store *store, uint64_t seed, int records)
{
    uint64_t found[WRITER_COUNT][GROUP_COUNT];
    pthread_t threads[WRITER_COUNT];
    unsigned writers[WRITER_COUNT];

    child.records = records;
    child.seed = seed;
    child.db = open_store(store, NULL);
    check_store(child.db, store, found);
    for (unsigned writer = 0; writer < WRITER_COUNT; writer++) {
        for (unsigned group = 0; group < GROUP_COUNT; group++) {
            if (found[writer][group] != store->known[writer][group])
                report(writer, group, found[writer][group]);
            if (found[writer][group] > child.newest[writer])
                child.newest[writer] = found[writer][group];
        }
    }
    for (unsigned writer = 0; writer < WRITER_COUNT; writer++) {
        writers[writer] = writer;
        if (pthread_create(&threads[writer], NULL, run_writer, &writers[writer]) != 0)
            _exit(EXIT_FAILURE);
    }
    for (;;)
        pause(); // for the signal
}

/* ---- The parent ----------------------------------------------------------------------------------- */

static pid_t
start_child(void)
{
    pid_t process;

    fflush(NULL); // or both print what is buffered
    process = fork();
    ck_assert_int_ge(process, 0);
    return process;
}

static void
take_record(struct store *store, const struct record *record)
{
    ck_assert_uint_lt(record->writer, WRITER_COUNT);
    ck_assert_uint_lt(record->group, GROUP_COUNT);
    ck_assert_uint_gt(record->stamp, store->known[record->writer][record->group]);
    store->known[record->writer][record->group] = record->stamp;
}

/* Let a child write, and kill it after `wanted` records. */
static void
kill_writing(struct store *store, unsigned wanted, struct tally *tally)
{
    struct record records[64];
    uint64_t seed = rng_next(&store->rng);
    unsigned count = 0;
    bool killed = false;
    int ends[2];
    int state = 0;
    pid_t process;

    ck_assert_int_eq(pipe(ends), 0);
    process = start_child();
    if (process == 0) {
        close(ends[0]);
        run_child(store, seed, ends[1]);
    }
    close(ends[1]);
    for (;;) {
        size_t room = killed ? sizeof records : sizeof records[0];
        ssize_t got;

        if (!killed && count >= wanted) {
            ck_assert_int_eq(kill(process, SIGKILL), 0);
            killed = true;
            continue;
        }
        got = read(ends[0], records, room);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            break;
        ck_assert_uint_eq((size_t)got % sizeof records[0], 0);
        for (size_t i = 0; i < (size_t)got / sizeof records[0]; i++)
            take_record(store, &records[i]);
        count += (unsigned)((size_t)got / sizeof records[0]);
    }
    close(ends[0]);
    ck_assert_int_eq(waitpid(process, &state, 0), process);
    ck_assert_msg(WIFSIGNALED(state) && WTERMSIG(state) == SIGKILL,
                  "the child ended by itself: %#x", (unsigned)state);
    tally->round_count++;
    tally->record_count += count;
    tally->killed_opening_count += count == 0;
}

/* An allocator that ends the process at a given call: a place inside recovery that no clock decides. */
static _Atomic uint64_t calls_to_live;

static void *
mortal_alloc(void *ctx, size_t size)
{
    (void)ctx;
    if (atomic_fetch_sub(&calls_to_live, 1) == 1)
        (void)raise(SIGKILL);
    return malloc(size);
}

static void *
mortal_resize(void *ctx, void *block, size_t size_old, size_t size_new)
{
    (void)ctx;
    (void)size_old;
    if (atomic_fetch_sub(&calls_to_live, 1) == 1)
        (void)raise(SIGKILL);
    return realloc(block, size_new);
}

static void
mortal_release(void *ctx, void *block, size_t size)
{
    (void)ctx;
    (void)size;
    free(block);
}

/* Kill a child at its `calls`th allocation, most likely within the opening. */
static void
kill_recovering(struct store *store, uint64_t calls, struct tally *tally)
{
    static const tamis_allocator mortal = {NULL, mortal_alloc, mortal_resize, mortal_release};
    int state = 0;
    pid_t process = start_child();

    if (process == 0) {
        tamis_db *db;

        atomic_store(&calls_to_live, calls);
        db = open_store(store, &mortal);
        expect_ok(tamis_close(db, &err), &err);
        _exit(EXIT_SUCCESS);
    }
    ck_assert_int_eq(waitpid(process, &state, 0), process);
    ck_assert(WIFSIGNALED(state) ? WTERMSIG(state) == SIGKILL : WEXITSTATUS(state) == EXIT_SUCCESS);
    tally->killed_recovering_count += WIFSIGNALED(state);
}

static bool
take_largest_number(void *arg, const tamis_table_stats *table)
{
    uint64_t *largest = arg;

    if (table->number > *largest)
        *largest = table->number;
    return true;
}

/* Open in peace; what is found there is known from now on. Returns the largest number of a table. */
static uint64_t
check_in_peace(struct store *store)
{
    tamis_db *db = open_store(store, NULL);
    uint64_t largest = 0;

    check_store(db, store, store->known);
    check_ok(tamis_verify(db, NULL, NULL, &err), err);
    check_ok(tamis_visit_tables(db, take_largest_number, &largest, &err), err);
    check_ok(tamis_close(db, &err), err);
    return largest;
}

static void
kill_again_and_again(char *scratch, uint64_t seed, unsigned round_count)
{
    struct store store = {.scratch = scratch, .rng = rng_from(seed)};
    struct tally tally = {0};
    uint64_t number = 0;

    store.path = temp_dir_path(scratch, "db");
    while (tally.round_count < round_count) {
        unsigned wanted = (unsigned)rng_below(&store.rng, ACKNOWLEDGEMENT_MAX);

        if (rng_chance(&store.rng, 1, 10))
            wanted = 0;
        kill_writing(&store, wanted, &tally);
        while (rng_chance(&store.rng, 1, 2))
            kill_recovering(&store, 1 + rng_below(&store.rng, 150), &tally);
        if (rng_chance(&store.rng, 1, 8))
            number = check_in_peace(&store);
    }
    number = check_in_peace(&store);
    printf("%s: %u rounds, %" PRIu64 " batches acknowledged, %" PRIu64 " files numbered; killed in "
           "recovery %u times, and %u times before a word\n",
           store.path, tally.round_count, tally.record_count, number, tally.killed_recovering_count,
           tally.killed_opening_count);
    ck_assert_uint_gt(tally.killed_recovering_count, 0);
    ck_assert_uint_gt(number, 2 * (uint64_t)round_count); // flushes and compactions went on
    free(store.path);
    temp_dir_remove(scratch);
}

START_TEST(kills_lose_nothing_in_memory)
{
    uint64_t seed = rng_seed("kills_lose_nothing_in_memory", 11);
    char *scratch = temp_dir_make_under("/dev/shm");

    kill_again_and_again(scratch != NULL ? scratch : temp_dir_make(), seed, MEMORY_ROUND_COUNT);
}
END_TEST

START_TEST(kills_lose_nothing_on_a_disk)
{
    uint64_t seed = rng_seed("kills_lose_nothing_on_a_disk", 12);

    kill_again_and_again(temp_dir_make(), seed, DISK_ROUND_COUNT);
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("kill");
    TCase *tests = tcase_create("kill");

    tcase_set_timeout(tests, 0);
    tcase_add_test(tests, kills_lose_nothing_in_memory);
    tcase_add_test(tests, kills_lose_nothing_on_a_disk);
    suite_add_tcase(suite, tests);
    return check_run(suite);
}
