/* SPDX-License-Identifier: MIT
 *
 * tests/sstable/test_fs_posix.c -- the tamis_fs contract, over the real system and over the simulator.
 *
 *   contract   the same tests at each place: {ext4 or what TMPDIR is, tmpfs, simulator} x {written, mapped logs}
 *   faults     every call of the simulator fails in turn
 *   crashes    the power goes at every call, under every policy
 */
#include <check.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/support/check_status.h"
#include "tests/support/rng.h"
#include "tests/support/temp_dir.h"
#include "tests/support/world.h"

/* ---- Places -------------------------------------------------------------------------------------------- */

enum { PLACE_COUNT = 6, MIB = 1 << 20 };

static const struct {
    const char *parent; // NULL: the simulator; "": what TMPDIR says
    bool map_logs;
} places[PLACE_COUNT] = {
    {"", false}, {"", true}, {"/dev/shm", false}, {"/dev/shm", true}, {NULL, false}, {NULL, true},
};

static struct world *world; // of the simulator; its allocator serves all places
static struct tm_fs_posix posix;
static const tamis_fs *fs;
static void *ctx;      // of fs
static char *scratch;  // real directory, or NULL
static char *path;     // of the store's directory
static tamis_dir *dir; // the store's directory
static tamis_error err;

static void
use_place(int which)
{
    bool created;

    world = world_create(1, places[which].map_logs ? WORLD_MAP_LOGS : 0);
    if (places[which].parent == NULL) {
        fs = world->env.fs;
        path = strdup("db");
    } else {
        scratch = places[which].parent[0] != '\0' ? temp_dir_make_under(places[which].parent)
                                                  : temp_dir_make();
        if (scratch == NULL) { // no /dev/shm: the place before it is tested twice
            scratch = temp_dir_make();
        }
        path = temp_dir_path(scratch, "db");
        tm_fs_posix_init(&posix, tm_os_posix(), world->env.allocator, places[which].map_logs);
        fs = &posix.fs;
    }
    ctx = fs->ctx;
    check_ok(fs->open_dir(ctx, path, true, &created, &dir, &err), err);
    ck_assert(created);
}

static void
use_simulator(unsigned flags, uint64_t seed)
{
    bool created;

    world = world_create(seed, flags);
    fs = world->env.fs;
    ctx = fs->ctx;
    path = strdup("db");
    check_ok(fs->open_dir(ctx, path, true, &created, &dir, &err), err);
}

static void
leave_place(void)
{
    if (dir != NULL)
        fs->close_dir(ctx, dir);
    dir = NULL;
    free(path);
    temp_dir_remove(scratch);
    scratch = NULL;
    world_destroy(world); // and nothing leaked
}

/* ---- Small things ---------------------------------------------------------------------------------------- */

static tamis_status
append(tamis_file *file, const void *data, size_t length)
{
    tamis_slice piece = {data, length};

    return fs->append(ctx, file, &piece, 1, &err);
}

static tamis_file *
create_file(const char *name, tamis_file_kind kind)
{
    tamis_file *file = NULL;

    check_ok(fs->create(ctx, dir, name, kind, &file, &err), err);
    return file;
}

/* Make a sealed table with these contents. */
static void
put_table(const char *name, const char *contents)
{
    tamis_file *file = create_file(name, TAMIS_FILE_TABLE);

    check_ok(append(file, contents, strlen(contents)), err);
    check_ok(fs->seal(ctx, file, &err), err);
    check_ok(fs->close(ctx, file, &err), err);
}

/* The whole file, malloc'ed; NULL when it is missing. */
static uint8_t *
read_whole(const char *name, uint64_t *size_out)
{
    tamis_file *file;
    uint8_t *bytes;
    tamis_status status = fs->open(ctx, dir, name, TAMIS_FILE_TABLE, &file, size_out, &err);

    if (status == TAMIS_NOT_FOUND)
        return NULL;
    check_ok(status, err);
    bytes = calloc(*size_out + 1, 1);
    check_ok(fs->read_at(ctx, file, 0, bytes, *size_out, &err), err);
    check_ok(fs->close(ctx, file, &err), err);
    return bytes;
}

static bool
file_has(const char *name, const char *contents)
{
    uint64_t size;
    uint8_t *bytes = read_whole(name, &size);
    bool same = bytes != NULL && size == strlen(contents) && memcmp(bytes, contents, size) == 0;

    free(bytes);
    return same;
}

struct names {
    size_t count;
    size_t limit; // stop after so many; 0: never
    char list[32][260];
};

static bool
collect_name(void *arg, const char *name)
{
    struct names *names = arg;

    ck_assert_uint_lt(names->count, 32);
    snprintf(names->list[names->count++], sizeof names->list[0], "%s", name);
    return names->count != names->limit;
}

static bool
name_exists(const char *name)
{
    struct names names = {0};

    check_ok(fs->list(ctx, dir, collect_name, &names, &err), err);
    for (size_t i = 0; i < names.count; i++) {
        if (strcmp(names.list[i], name) == 0)
            return true;
    }
    return false;
}

static size_t
name_count(void)
{
    struct names names = {0};

    check_ok(fs->list(ctx, dir, collect_name, &names, &err), err);
    return names.count;
}

/* ---- Contract: directories --------------------------------------------------------------------------------- */

START_TEST(missing_directory_is_not_found_and_stays_missing)
{
    tamis_dir *missing;
    bool created = true;
    char *other;

    use_place(_i);
    other = temp_dir_path(path, "absent");
    for (int i = 0; i < 2; i++)
        check_status(fs->open_dir(ctx, other, false, &created, &missing, &err), TAMIS_NOT_FOUND,
                     err);
    ck_assert(!created);
    ck_assert_ptr_null(missing);
    ck_assert_ptr_nonnull(strstr(err.message, "absent"));
    free(other);
    leave_place();
}
END_TEST

START_TEST(directory_is_created_once_and_goes_when_empty)
{
    tamis_dir *again;
    bool created;

    use_place(_i);
    check_ok(fs->open_dir(ctx, path, true, &created, &again, &err), err);
    ck_assert(!created);
    fs->close_dir(ctx, again);
    put_table("000001.sst", "x");
    check_ok(fs->remove_dir(ctx, path, &err), err); // not empty: stays
    ck_assert(name_exists("000001.sst"));
    check_ok(fs->remove(ctx, dir, "000001.sst", &err), err);
    check_ok(fs->remove_dir(ctx, path, &err), err);
    check_status(fs->open_dir(ctx, path, false, &created, &again, &err), TAMIS_NOT_FOUND, err);
    check_ok(fs->remove_dir(ctx, path, &err), err); // gone already
    leave_place();
}
END_TEST

START_TEST(directory_without_parent_is_an_error_that_says_so)
{
    tamis_dir *missing;
    bool created;
    char *other;

    use_place(_i);
    other = temp_dir_path(path, "absent/db");
    check_status(fs->open_dir(ctx, other, true, &created, &missing, &err), TAMIS_IO, err);
    ck_assert_int_eq(err.os_error, ENOENT);
    ck_assert_ptr_nonnull(strstr(err.message, "its parent must exist"));
    ck_assert(!created);
    free(other);
    leave_place();
}
END_TEST

START_TEST(file_in_place_of_a_directory_is_invalid)
{
    tamis_dir *none;
    bool created;
    char *other;

    use_place(_i);
    put_table("plain", "x");
    other = temp_dir_path(path, "plain");
    for (int create = 0; create < 2; create++)
        check_status(fs->open_dir(ctx, other, create, &created, &none, &err), TAMIS_INVALID, err);
    ck_assert(file_has("plain", "x"));
    free(other);
    leave_place();
}
END_TEST

START_TEST(paths_and_names_may_hold_any_byte)
{
    static const char *const names[] = {"a b", "a\nb", "\xff\xfe\x80", "..x", "\"'`$;"};
    char *before;

    use_place(_i);
    before = path;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        tamis_dir *outer = dir;
        bool created;

        path = temp_dir_path(before, names[i]);
        check_ok(fs->open_dir(ctx, path, true, &created, &dir, &err), err);
        put_table(names[i], "bytes");
        ck_assert(name_exists(names[i]));
        ck_assert(file_has(names[i], "bytes"));
        check_ok(fs->remove(ctx, dir, names[i], &err), err);
        fs->close_dir(ctx, dir);
        check_ok(fs->remove_dir(ctx, path, &err), err);
        free(path);
        dir = outer;
    }
    path = before;
    leave_place();
}
END_TEST

START_TEST(messages_have_no_line_breaks_and_show_the_end_of_a_long_path)
{
    char long_path[400];
    tamis_dir *none;
    bool created;

    use_place(_i);
    memset(long_path, 'p', sizeof long_path);
    snprintf(long_path + 380, sizeof long_path - 380, "\n/the-end");
    check_status(fs->open_dir(ctx, long_path, false, &created, &none, &err),
                 places[_i].parent == NULL ? TAMIS_NOT_FOUND : TAMIS_IO, err);
    ck_assert_ptr_null(strchr(err.message, '\n'));
    ck_assert_ptr_nonnull(strstr(err.message, "?/the-end'"));
    leave_place();
}
END_TEST

START_TEST(list_names_every_file_once_and_stops_when_told)
{
    struct names names = {0};

    use_place(_i);
    put_table("000001.sst", "x");
    put_table("000002.sst", "y");
    put_table("000003.sst", "z");
    check_ok(fs->list(ctx, dir, collect_name, &names, &err), err);
    ck_assert_uint_eq(names.count, 3);
    ck_assert(name_exists("000001.sst") && name_exists("000002.sst") && name_exists("000003.sst"));
    names.count = 0;
    names.limit = 2;
    check_ok(fs->list(ctx, dir, collect_name, &names, &err), err);
    ck_assert_uint_eq(names.count, 2);
    leave_place();
}
END_TEST

/* ---- Contract: files ----------------------------------------------------------------------------------------- */

START_TEST(names_that_leave_the_directory_are_invalid)
{
    static const char *const names[] = {"", ".", "..", "a/b", "/etc/passwd", "../x"};
    char too_long[300];
    tamis_file *file;
    uint64_t size;

    use_place(_i);
    memset(too_long, 'n', sizeof too_long - 1);
    too_long[sizeof too_long - 1] = '\0';
    for (size_t i = 0; i <= sizeof names / sizeof names[0]; i++) {
        const char *name = i < sizeof names / sizeof names[0] ? names[i] : too_long;

        check_status(fs->create(ctx, dir, name, TAMIS_FILE_TABLE, &file, &err), TAMIS_INVALID, err);
        check_status(fs->open(ctx, dir, name, TAMIS_FILE_TABLE, &file, &size, &err), TAMIS_INVALID,
                     err);
        check_status(fs->replace(ctx, dir, name, (tamis_slice){"x", 1}, &err), TAMIS_INVALID, err);
        check_status(fs->remove(ctx, dir, name, &err), TAMIS_INVALID, err);
    }
    ck_assert_uint_eq(name_count(), 0);
    leave_place();
}
END_TEST

START_TEST(create_refuses_a_name_that_is_taken)
{
    tamis_file *file;

    use_place(_i);
    put_table("000001.sst", "old");
    check_status(fs->create(ctx, dir, "000001.sst", TAMIS_FILE_TABLE, &file, &err), TAMIS_INVALID,
                 err);
    ck_assert_ptr_null(file);
    ck_assert(file_has("000001.sst", "old"));
    leave_place();
}
END_TEST

START_TEST(open_of_a_missing_name_is_not_found)
{
    tamis_file *file;
    uint64_t size;

    use_place(_i);
    check_status(fs->open(ctx, dir, "000009.sst", TAMIS_FILE_TABLE, &file, &size, &err),
                 TAMIS_NOT_FOUND, err);
    ck_assert_ptr_null(file);
    ck_assert_ptr_nonnull(strstr(err.message, "000009.sst"));
    leave_place();
}
END_TEST

START_TEST(read_beyond_the_end_is_corrupt_and_tells_what_was_found)
{
    tamis_file *file;
    uint64_t size;
    char buffer[64];

    use_place(_i);
    put_table("000001.sst", "0123456789");
    check_ok(fs->open(ctx, dir, "000001.sst", TAMIS_FILE_TABLE, &file, &size, &err), err);
    ck_assert_uint_eq(size, 10);
    check_ok(fs->read_at(ctx, file, 3, buffer, 7, &err), err);
    ck_assert_mem_eq(buffer, "3456789", 7);
    check_ok(fs->read_at(ctx, file, 10, buffer, 0, &err), err);
    check_status(fs->read_at(ctx, file, 4, buffer, 7, &err), TAMIS_CORRUPT, err);
    ck_assert_ptr_nonnull(strstr(err.message, "'000001.sst'"));
    ck_assert_ptr_nonnull(strstr(err.message, "expected 7 bytes at offset 4, found 6"));
    check_status(fs->read_at(ctx, file, 4000, buffer, 1, &err), TAMIS_CORRUPT, err);
    check_ok(fs->close(ctx, file, &err), err);
    leave_place();
}
END_TEST

START_TEST(files_take_appends_only_while_open_for_them)
{
    tamis_file *file;
    uint64_t size;

    use_place(_i);
    file = create_file("000001.sst", TAMIS_FILE_TABLE);
    check_ok(append(file, "abc", 3), err);
    check_ok(fs->seal(ctx, file, &err), err);
    check_status(append(file, "d", 1), TAMIS_INVALID, err);
    check_status(fs->seal(ctx, file, &err), TAMIS_INVALID, err);
    check_ok(fs->close(ctx, file, &err), err);
    check_ok(fs->open(ctx, dir, "000001.sst", TAMIS_FILE_TABLE, &file, &size, &err), err);
    check_status(append(file, "d", 1), TAMIS_INVALID, err);
    check_status(fs->sync(ctx, file, &err), TAMIS_INVALID, err);
    check_status(fs->seal(ctx, file, &err), TAMIS_INVALID, err);
    check_ok(fs->close(ctx, file, &err), err);
    ck_assert(file_has("000001.sst", "abc"));
    leave_place();
}
END_TEST

/* Lengths around every border: gathering, pages, steps, and pieces larger than any step. */
static size_t
piece_length(struct rng *rng)
{
    static const size_t borders[] = {1, 4096, 8192, 65536, 131072, 1 << 20, 3 << 20};

    switch (rng_below(rng, 8)) {
    case 0:
        return borders[rng_below(rng, 7)] + rng_below(rng, 3) - 1;
    case 1:
        return rng_below(rng, 200000);
    case 2:
        return 0;
    default:
        return rng_below(rng, 300);
    }
}

/* Random bytes for the longest piece, made once: a block of a prime length again and again, so that bytes which
 * land a step or a page away from their place differ from what belongs there. */
static const uint8_t *
random_bytes(void)
{
    enum { BLOCK_BYTES = 65521, TOTAL_BYTES = 4 * MIB };
    static uint8_t *bytes;
    struct rng rng = rng_from(1);

    if (bytes == NULL) {
        bytes = malloc(TOTAL_BYTES);
        rng_fill(&rng, bytes, BLOCK_BYTES);
        for (size_t at = BLOCK_BYTES; at < TOTAL_BYTES; at += BLOCK_BYTES)
            memcpy(bytes + at, bytes,
                   at + BLOCK_BYTES < TOTAL_BYTES ? BLOCK_BYTES : TOTAL_BYTES - at);
    }
    return bytes;
}

/* Append to a log by random pieces, until about `total` bytes; the model is what must be in it. */
static void
append_randomly(tamis_file *file, struct rng *rng, size_t total, struct tm_buf *model)
{
    const uint8_t *data = random_bytes();

    while (model->length < total) {
        tamis_slice pieces[5];
        size_t count = rng_below(rng, 6);

        for (size_t i = 0; i < count; i++) {
            pieces[i].length = piece_length(rng);
            pieces[i].data = pieces[i].length != 0 ? data + rng_below(rng, MIB / 2) : NULL;
            check_ok(tm_buf_append(&world->env, model, pieces[i].data, pieces[i].length, &err),
                     err);
        }
        check_ok(fs->append(ctx, file, pieces, count, &err), err);
        if (rng_chance(rng, 1, 40))
            check_ok(fs->sync(ctx, file, &err), err);
    }
}

START_TEST(a_log_holds_exactly_what_was_appended)
{
    struct rng rng = rng_from(rng_seed("log", 11 + (uint64_t)_i));

    use_place(_i);
    for (int round = 0; round < 4; round++) {
        tamis_file *file = create_file("000001.wal", TAMIS_FILE_LOG);
        struct tm_buf model = {0};
        tamis_file *reader;
        size_t nonzero = 0;
        uint8_t *bytes;
        uint64_t size;

        append_randomly(file, &rng, (size_t)MIB << round, &model);
        // Before it is closed: the bytes are there, and what is reserved behind them reads as zeros.
        check_ok(fs->open(ctx, dir, "000001.wal", TAMIS_FILE_LOG, &reader, &size, &err), err);
        ck_assert_uint_ge(size, model.length);
        ck_assert_uint_le(size, model.length + MIB);
        bytes = malloc(size);
        check_ok(fs->read_at(ctx, reader, 0, bytes, size, &err), err);
        ck_assert(memcmp(bytes, model.data, model.length) == 0);
        for (size_t i = model.length; i < size; i++)
            nonzero += bytes[i] != 0;
        ck_assert_uint_eq(nonzero, 0);
        free(bytes);
        check_ok(fs->close(ctx, reader, &err), err);
        // After it: exactly.
        check_ok(fs->close(ctx, file, &err), err);
        bytes = read_whole("000001.wal", &size);
        ck_assert_uint_eq(size, model.length);
        ck_assert(memcmp(bytes, model.data, model.length) == 0);
        free(bytes);
        tm_buf_release(&world->env, &model);
        check_ok(fs->remove(ctx, dir, "000001.wal", &err), err);
    }
    leave_place();
}
END_TEST

START_TEST(sealing_a_log_trims_it)
{
    tamis_file *file;

    use_place(_i);
    file = create_file("000001.wal", TAMIS_FILE_LOG);
    check_ok(append(file, "record", 6), err);
    check_ok(fs->seal(ctx, file, &err), err);
    ck_assert(file_has("000001.wal", "record"));
    check_ok(fs->close(ctx, file, &err), err);
    ck_assert(file_has("000001.wal", "record"));
    leave_place();
}
END_TEST

START_TEST(nothing_appended_is_an_empty_file)
{
    tamis_file *file;

    use_place(_i);
    file = create_file("000001.wal", TAMIS_FILE_LOG);
    check_ok(fs->append(ctx, file, NULL, 0, &err), err);
    check_ok(append(file, NULL, 0), err);
    check_ok(fs->sync(ctx, file, &err), err);
    check_ok(fs->close(ctx, file, &err), err);
    ck_assert(file_has("000001.wal", ""));
    leave_place();
}
END_TEST

struct beside {
    tamis_file *file;
    _Atomic bool stop;
    bool failed;
};

static void
sync_again_and_again(void *arg)
{
    struct beside *beside = arg;
    tamis_error sync_err;

    do {
        beside->failed |= fs->sync(ctx, beside->file, &sync_err) != TAMIS_OK;
    } while (!atomic_load(&beside->stop));
}

START_TEST(sync_runs_beside_append)
{
    const struct tm_runtime *runtime = tm_runtime_posix();
    struct rng rng = rng_from(rng_seed("beside", 5));
    struct beside beside = {0};
    struct tm_buf model = {0};
    struct tm_thread thread;
    uint8_t *bytes;
    uint64_t size;

    use_place(_i);
    beside.file = create_file("000001.wal", TAMIS_FILE_LOG);
    ck_assert_int_eq(runtime->thread_start(runtime->ctx, &thread, sync_again_and_again, &beside),
                     0);
    append_randomly(beside.file, &rng, 2 * MIB, &model);
    atomic_store(&beside.stop, true);
    runtime->thread_join(runtime->ctx, &thread);
    ck_assert(!beside.failed);
    check_ok(fs->close(ctx, beside.file, &err), err);
    bytes = read_whole("000001.wal", &size);
    ck_assert_uint_eq(size, model.length);
    ck_assert(memcmp(bytes, model.data, size) == 0);
    free(bytes);
    tm_buf_release(&world->env, &model);
    leave_place();
}
END_TEST

START_TEST(replace_puts_new_contents_and_leaves_nothing_else)
{
    char large[100000];

    use_place(_i);
    memset(large, 'L', sizeof large - 1);
    large[sizeof large - 1] = '\0';
    check_ok(fs->replace(ctx, dir, "CURRENT", (tamis_slice){"one", 3}, &err), err);
    ck_assert(file_has("CURRENT", "one"));
    check_ok(fs->replace(ctx, dir, "CURRENT", (tamis_slice){large, strlen(large)}, &err), err);
    ck_assert(file_has("CURRENT", large));
    check_ok(fs->replace(ctx, dir, "CURRENT", (tamis_slice){NULL, 0}, &err), err);
    ck_assert(file_has("CURRENT", ""));
    ck_assert_uint_eq(name_count(), 1);
    leave_place();
}
END_TEST

START_TEST(replace_overcomes_a_temporary_file_of_a_dead_machine)
{
    use_place(_i);
    put_table("CURRENT.tmp", "torn");
    check_ok(fs->replace(ctx, dir, "CURRENT", (tamis_slice){"new", 3}, &err), err);
    ck_assert(file_has("CURRENT", "new"));
    ck_assert_uint_eq(name_count(), 1);
    leave_place();
}
END_TEST

START_TEST(remove_of_a_missing_name_is_fine)
{
    use_place(_i);
    put_table("000001.sst", "x");
    check_ok(fs->remove(ctx, dir, "000001.sst", &err), err);
    check_ok(fs->remove(ctx, dir, "000001.sst", &err), err);
    ck_assert_uint_eq(name_count(), 0);
    leave_place();
}
END_TEST

START_TEST(a_linked_table_has_two_names_and_is_there_while_one_of_them_is)
{
    tamis_dir *other;
    tamis_file *file;
    char text[3];
    uint64_t size;
    bool created;
    char *path_to;

    use_place(_i);
    path_to = malloc(strlen(path) + 3);
    ck_assert_ptr_nonnull(path_to);
    sprintf(path_to, "%s-2", path);
    put_table("000001.sst", "abc");
    check_ok(fs->open_dir(ctx, path_to, true, &created, &other, &err), err);
    check_ok(fs->link(ctx, dir, "000001.sst", other, &err), err);
    check_status(fs->link(ctx, dir, "000001.sst", other, &err), TAMIS_IO, err);
    check_status(fs->link(ctx, dir, "000002.sst", other, &err), TAMIS_IO, err);
    check_status(fs->link(ctx, dir, "../000001.sst", other, &err), TAMIS_INVALID, err);
    check_ok(fs->remove(ctx, dir, "000001.sst", &err), err);
    check_ok(fs->open(ctx, other, "000001.sst", TAMIS_FILE_TABLE, &file, &size, &err), err);
    ck_assert_uint_eq(size, 3);
    check_ok(fs->read_at(ctx, file, 0, text, 3, &err), err);
    ck_assert_mem_eq(text, "abc", 3);
    check_ok(fs->close(ctx, file, &err), err);
    check_ok(fs->remove(ctx, other, "000001.sst", &err), err);
    fs->close_dir(ctx, other);
    check_ok(fs->remove_dir(ctx, path_to, &err), err);
    free(path_to);
    leave_place();
}
END_TEST

/* ---- Contract: the lock -------------------------------------------------------------------------------------- */

START_TEST(one_writer_at_a_time)
{
    tamis_lock *lock;
    tamis_lock *second;
    tamis_dir *again;
    bool created;

    use_place(_i);
    check_ok(fs->lock(ctx, dir, &lock, &err), err);
    ck_assert(fs->lock_is_ours(ctx, lock));
    check_ok(fs->open_dir(ctx, path, false, &created, &again, &err), err);
    for (int i = 0; i < 3; i++) {
        check_status(fs->lock(ctx, again, &second, &err), TAMIS_BUSY, err);
        ck_assert_ptr_null(second);
        check_status(fs->lock(ctx, dir, &second, &err), TAMIS_BUSY, err);
    }
    ck_assert(name_exists("LOCK")); // a refused lock takes nothing away
    fs->unlock(ctx, lock);
    check_ok(fs->lock(ctx, again, &second, &err), err);
    fs->unlock(ctx, second);
    fs->close_dir(ctx, again);
    leave_place();
}
END_TEST

START_TEST(lock_leaves_nothing_in_a_directory_that_stayed_empty)
{
    tamis_lock *lock;

    use_place(_i);
    check_ok(fs->lock(ctx, dir, &lock, &err), err);
    ck_assert(name_exists("LOCK"));
    fs->unlock(ctx, lock);
    ck_assert_uint_eq(name_count(), 0);
    leave_place();
}
END_TEST

START_TEST(lock_file_stays_beside_a_store_and_where_it_was)
{
    tamis_lock *lock;

    use_place(_i);
    check_ok(fs->lock(ctx, dir, &lock, &err), err);
    put_table("000001.sst", "x");
    fs->unlock(ctx, lock);
    ck_assert(name_exists("LOCK"));
    check_ok(fs->remove(ctx, dir, "000001.sst", &err), err);
    check_ok(fs->lock(ctx, dir, &lock, &err), err); // it was there before this lock
    fs->unlock(ctx, lock);
    ck_assert(name_exists("LOCK"));
    leave_place();
}
END_TEST

static bool
has_readers(tamis_lock *writer)
{
    bool found = false;

    check_ok(fs->has_readers(ctx, writer, &found, &err), err);
    return found;
}

START_TEST(readers_are_seen_by_the_writer_and_stand_in_nobodys_way)
{
    tamis_lock *before;
    tamis_lock *first;
    tamis_lock *second;
    tamis_lock *writer;
    tamis_lock *other;

    use_place(_i);
    check_ok(fs->lock(ctx, dir, &writer, &err), err);
    put_table("000001.sst", "x"); // so that LOCK stays
    fs->unlock(ctx, writer);
    check_ok(fs->lock_shared(ctx, dir, &before, &err), err);
    check_ok(fs->lock(ctx, dir, &writer, &err), err);
    ck_assert(has_readers(writer));
    check_ok(fs->lock_shared(ctx, dir, &first, &err), err);
    check_ok(fs->lock_shared(ctx, dir, &second, &err), err);
    fs->unlock(ctx, before);
    ck_assert(has_readers(writer));
    check_status(fs->lock(ctx, dir, &other, &err), TAMIS_BUSY, err);
    ck_assert(fs->lock_is_ours(ctx, first));
    fs->unlock(ctx, first);
    ck_assert(has_readers(writer));
    fs->unlock(ctx, second);
    ck_assert(!has_readers(writer));
    check_status(fs->lock(ctx, dir, &other, &err), TAMIS_BUSY,
                 err); // readers that go free nothing of the writer's
    fs->unlock(ctx, writer);
    leave_place();
}
END_TEST

START_TEST(a_reader_makes_no_lock_file_and_goes_without_where_there_is_none)
{
    tamis_lock *reader;
    tamis_lock *writer;

    use_place(_i);
    check_ok(fs->lock_shared(ctx, dir, &reader, &err), err);
    ck_assert_uint_eq(name_count(), 0);
    ck_assert(fs->lock_is_ours(ctx, reader));
    check_ok(fs->lock(ctx, dir, &writer, &err), err);
    ck_assert(!has_readers(writer)); // nobody told it
    fs->unlock(ctx, writer);
    fs->unlock(ctx, reader);
    ck_assert_uint_eq(name_count(), 0);
    leave_place();
}
END_TEST

/* ---- Memory ---------------------------------------------------------------------------------------------------- */

/* A little of everything. Stops at the first failure; whatever happens, nothing stays open. */
static tamis_status
do_everything(void)
{
    static const char log_record[5000] = "record";
    tamis_slice pieces[2] = {{log_record, 30}, {log_record, sizeof log_record}};
    struct names names = {0};
    tamis_dir *store = NULL;
    tamis_lock *lock = NULL;
    tamis_file *file = NULL;
    char buffer[5];
    tamis_status closed;
    tamis_status status;
    uint64_t size;
    bool created;

    status = fs->open_dir(ctx, "store", true, &created, &store, &err);
    if (status == TAMIS_OK)
        status = fs->lock(ctx, store, &lock, &err);
    // What an earlier run, cut short, has left.
    if (status == TAMIS_OK)
        status = fs->remove(ctx, store, "000001.wal", &err);
    if (status == TAMIS_OK)
        status = fs->remove(ctx, store, "000002.sst", &err);
    if (status == TAMIS_OK)
        status = fs->replace(ctx, store, "CURRENT", (tamis_slice){"hello", 5}, &err);
    if (status == TAMIS_OK)
        status = fs->create(ctx, store, "000001.wal", TAMIS_FILE_LOG, &file, &err);
    for (int i = 0; i < 30 && status == TAMIS_OK; i++) {
        status = fs->append(ctx, file, pieces, 2, &err);
        if (status == TAMIS_OK && i % 7 == 0)
            status = fs->sync(ctx, file, &err);
    }
    if (file != NULL) {
        closed = fs->close(ctx, file, status == TAMIS_OK ? &err : &(tamis_error){0});
        status = status == TAMIS_OK ? closed : status;
        file = NULL;
    }
    if (status == TAMIS_OK)
        status = fs->create(ctx, store, "000002.sst", TAMIS_FILE_TABLE, &file, &err);
    if (status == TAMIS_OK)
        status = fs->append(ctx, file, pieces, 2, &err);
    if (status == TAMIS_OK)
        status = fs->seal(ctx, file, &err);
    if (file != NULL) {
        closed = fs->close(ctx, file, status == TAMIS_OK ? &err : &(tamis_error){0});
        status = status == TAMIS_OK ? closed : status;
        file = NULL;
    }
    if (status == TAMIS_OK)
        status = fs->list(ctx, store, collect_name, &names, &err);
    if (status == TAMIS_OK)
        status = fs->open(ctx, store, "CURRENT", TAMIS_FILE_CURRENT, &file, &size, &err);
    if (status == TAMIS_OK) {
        status = fs->read_at(ctx, file, 0, buffer, 5, &err);
        if (status == TAMIS_OK)
            ck_assert_mem_eq(buffer, "hello", 5);
        closed = fs->close(ctx, file, status == TAMIS_OK ? &err : &(tamis_error){0});
        status = status == TAMIS_OK ? closed : status;
    }
    if (status == TAMIS_OK)
        status = fs->remove(ctx, store, "000001.wal", &err);
    if (lock != NULL)
        fs->unlock(ctx, lock);
    if (store != NULL)
        fs->close_dir(ctx, store);
    return status;
}

START_TEST(every_refused_allocation_is_no_memory_and_leaks_nothing)
{
    uint64_t total;

    use_simulator(WORLD_MAP_LOGS, 1);
    total = atomic_load(&world->alloc.call_count);
    check_ok(do_everything(), err);
    total = atomic_load(&world->alloc.call_count) - total;
    leave_place();
    ck_assert_uint_ge(total, 5);
    for (uint64_t n = 1; n <= total; n++) {
        use_simulator(WORLD_MAP_LOGS, 1);
        fault_alloc_fail_after(&world->alloc, n, false);
        check_status(do_everything(), TAMIS_NO_MEMORY, err);
        ck_assert_uint_eq(world->alloc.failure_count, 1);
        check_ok(do_everything(), err);
        leave_place();
    }
}
END_TEST

/* ---- Faults ------------------------------------------------------------------------------------------------------ */

struct leftovers {
    bool temporary;
};

static void
look_for_temporary(void *arg, const char *name)
{
    struct leftovers *found = arg;

    found->temporary |= strstr(name, ".tmp") != NULL;
}

/* How many calls of this kind do_everything() makes. */
static uint64_t
count_calls(enum sim_op op)
{
    struct sim_fault counter = {.op = op, .nth = UINT64_MAX, .effect = SIM_ERROR};
    uint64_t count;
    size_t rule;

    use_simulator(WORLD_MAP_LOGS, 1);
    rule = sim_fault_add(world->sim, counter);
    check_ok(do_everything(), err);
    count = sim_fault_matched(world->sim, rule);
    leave_place();
    return count;
}

START_TEST(every_call_that_fails_once_is_reported_or_made_up_for)
{
    static const int os_errors[] = {EIO, ENOSPC, EMFILE, EACCES, EROFS};
    uint64_t total = count_calls(SIM_OP_ANY);
    size_t reported = 0;

    for (uint64_t n = 1; n <= total; n++) {
        int os_error = os_errors[n % 5];
        struct leftovers found = {0};
        tamis_status status;
        size_t rule;

        use_simulator(WORLD_MAP_LOGS, n);
        rule = sim_fault_add(
            world->sim, (struct sim_fault){
                            .op = SIM_OP_ANY, .nth = n, .effect = SIM_ERROR, .os_error = os_error});
        memset(&err, 0, sizeof err);
        status = do_everything();
        ck_assert_uint_eq(sim_fault_fired(world->sim, rule), 1);
        if (status != TAMIS_OK) {
            ck_assert_int_eq(status, tm_status_of_errno(os_error));
            ck_assert_int_eq(err.code, status);
            ck_assert_int_eq(err.os_error, os_error);
            ck_assert_ptr_nonnull(strstr(err.message, strerror(os_error)));
            reported++;
        }
        sim_file_each(world->sim, "store", look_for_temporary, &found);
        ck_assert(!found.temporary);
        check_ok(do_everything(), err); // and nothing is in the way afterwards
        leave_place();
    }
    ck_assert_uint_ge(reported * 2, total); // most calls matter
}
END_TEST

START_TEST(every_kind_of_call_may_fail_for_good)
{
    for (int op = SIM_OP_ANY; op < SIM_OP_COUNT; op++) {
        uint64_t total = count_calls(op);

        for (uint64_t n = 1; n <= total; n += 1 + total / 10) {
            struct sim_fault fault = {
                .op = op, .nth = n, .effect = SIM_ERROR, .os_error = EIO, .sticky = true};
            tamis_status status;
            size_t rule;

            use_simulator(WORLD_MAP_LOGS, n);
            rule = sim_fault_add(world->sim, fault);
            status = do_everything();
            ck_assert(status == TAMIS_OK || status == TAMIS_IO);
            ck_assert_uint_ge(sim_fault_fired(world->sim, rule), 1);
            leave_place();
        }
    }
}
END_TEST

static const enum sim_op interruptible[] = {
    SIM_OPEN_DIR, SIM_SYNC_PARENT, SIM_SYNC_DIR, SIM_OPEN, SIM_PREAD,  SIM_PWRITE,
    SIM_SYNC,     SIM_TRUNCATE,    SIM_ALLOCATE, SIM_LOCK, SIM_RENAME, SIM_REMOVE,
};

START_TEST(an_interrupted_call_is_made_again)
{
    enum sim_op op = interruptible[_i];
    uint64_t total = count_calls(op);

    ck_assert_uint_ge(total, 1);
    for (uint64_t n = 1; n <= total; n++) {
        struct sim_fault fault = {.op = op, .nth = n, .effect = SIM_ERROR, .os_error = EINTR};
        size_t rule;

        use_simulator(WORLD_MAP_LOGS, n);
        rule = sim_fault_add(world->sim, fault);
        check_ok(do_everything(), err);
        ck_assert_uint_eq(sim_fault_fired(world->sim, rule), 1);
        leave_place();
    }
}
END_TEST

/* Each write is interrupted fifty times and then does a little: in sum far more interruptions than are borne in a
 * row. */
START_TEST(interruptions_between_progress_do_not_add_up)
{
    static const char record[1000] = "r";
    tamis_file *file;

    use_simulator(0, 1);
    for (uint64_t part = 0; part < 5; part++) {
        for (uint64_t i = 1; i <= 50; i++)
            sim_fault_add(world->sim, (struct sim_fault){.op = SIM_PWRITE,
                                                         .nth = part * 51 + i,
                                                         .effect = SIM_ERROR,
                                                         .os_error = EINTR});
        sim_fault_add(
            world->sim,
            (struct sim_fault){.op = SIM_PWRITE, .nth = part * 51 + 51, .effect = SIM_SHORT});
    }
    file = create_file("000001.sst", TAMIS_FILE_TABLE);
    check_ok(append(file, record, sizeof record), err);
    check_ok(fs->close(ctx, file, &err), err);
    for (size_t rule = 0; rule < sim_fault_count(world->sim); rule++)
        ck_assert_uint_eq(sim_fault_fired(world->sim, rule), 1);
    leave_place();
}
END_TEST

START_TEST(interruptions_without_end_are_an_error)
{
    struct sim_fault fault = {
        .op = interruptible[_i], .nth = 1, .effect = SIM_ERROR, .os_error = EINTR, .sticky = true};
    size_t rule;

    use_simulator(0, 1);
    if (fault.op == SIM_ALLOCATE)
        world->posix.map_logs = true;
    rule = sim_fault_add(world->sim, fault);
    if (fault.op == SIM_ALLOCATE || fault.op == SIM_TRUNCATE)
        (void)do_everything(); // the log is written instead, or there is nothing to trim
    else
        check_status(do_everything(), TAMIS_IO, err);
    ck_assert(sim_fault_fired(world->sim, rule) >= 1 || fault.op == SIM_TRUNCATE);
    leave_place();
}
END_TEST

START_TEST(short_counts_are_continued)
{
    struct rng rng = rng_from(3);
    struct tm_buf model = {0};
    size_t reads;
    size_t writes;
    tamis_file *file;
    uint8_t *bytes;
    uint64_t size;

    use_simulator(0, 1);
    writes = sim_fault_add(
        world->sim,
        (struct sim_fault){.op = SIM_PWRITE, .nth = 1, .effect = SIM_SHORT, .sticky = true});
    reads = sim_fault_add(
        world->sim,
        (struct sim_fault){.op = SIM_PREAD, .nth = 1, .effect = SIM_SHORT, .sticky = true});
    file = create_file("000001.wal", TAMIS_FILE_LOG);
    append_randomly(file, &rng, MIB, &model);
    check_ok(fs->close(ctx, file, &err), err);
    bytes = read_whole("000001.wal", &size);
    ck_assert_uint_eq(size, model.length);
    ck_assert(memcmp(bytes, model.data, size) == 0);
    ck_assert_uint_ge(sim_fault_fired(world->sim, writes), 1);
    ck_assert_uint_ge(sim_fault_fired(world->sim, reads), 1);
    free(bytes);
    tm_buf_release(&world->env, &model);
    leave_place();
}
END_TEST

START_TEST(a_log_that_cannot_be_mapped_is_written)
{
    enum sim_op op = _i == 0 ? SIM_ALLOCATE : SIM_MAP;

    for (uint64_t n = 1; n <= 4; n++) {
        struct rng rng = rng_from(rng_seed("fallback", n));
        struct tm_buf model = {0};
        tamis_file *file;
        uint8_t *bytes;
        uint64_t size;
        size_t rule;

        use_simulator(WORLD_MAP_LOGS, 1);
        rule = sim_fault_add(
            world->sim,
            (struct sim_fault){.op = op, .nth = n, .effect = SIM_ERROR, .os_error = EOPNOTSUPP});
        file = create_file("000001.wal", TAMIS_FILE_LOG);
        append_randomly(file, &rng, 4 * MIB, &model);
        ck_assert_uint_eq(sim_fault_fired(world->sim, rule), 1);
        ck_assert_uint_eq(sim_fault_matched(world->sim, rule), n); // and is not tried again
        check_ok(fs->close(ctx, file, &err), err);
        bytes = read_whole("000001.wal", &size);
        ck_assert_uint_eq(size, model.length);
        ck_assert(memcmp(bytes, model.data, size) == 0);
        free(bytes);
        tm_buf_release(&world->env, &model);
        leave_place();
    }
}
END_TEST

START_TEST(a_full_medium_is_no_space_and_keeps_what_was_acknowledged)
{
    static const char record[1000] = "r";
    tamis_file *file;
    size_t acknowledged = 0;
    tamis_status status;
    uint64_t size;

    use_simulator(_i == 0 ? 0 : WORLD_MAP_LOGS, 1);
    sim_set_space(world->sim, 150000); // room for the first step, not for the second
    file = create_file("000001.wal", TAMIS_FILE_LOG);
    while ((status = append(file, record, sizeof record)) == TAMIS_OK)
        acknowledged++;
    check_status(status, TAMIS_NO_SPACE, err);
    ck_assert_uint_eq(acknowledged, 150);
    ck_assert_ptr_nonnull(strstr(err.message, "'000001.wal'"));
    ck_assert_ptr_nonnull(strstr(err.message, "at offset 150000"));
    sim_set_space(world->sim, 0);
    check_status(append(file, "x", 1), TAMIS_IO, err); // final for this file
    ck_assert_ptr_nonnull(strstr(err.message, "earlier append"));
    check_ok(fs->close(ctx, file, &err), err);
    free(read_whole("000001.wal", &size));
    ck_assert_uint_eq(size, 150000);
    leave_place();
}
END_TEST

START_TEST(a_failed_sync_is_final_for_its_file)
{
    static const enum sim_effect effects[] = {SIM_ERROR, SIM_SYNC_DROPS, SIM_SYNC_FAILS_DONE};

    for (size_t i = 0; i < 3; i++) {
        struct sim_fault fault = {.op = SIM_SYNC, .nth = 1, .effect = effects[i], .os_error = EIO};
        tamis_file *file;
        size_t rule;

        use_simulator(0, 1);
        rule = sim_fault_add(world->sim, fault);
        file = create_file("000001.wal", TAMIS_FILE_LOG);
        check_ok(append(file, "abc", 3), err);
        check_status(fs->sync(ctx, file, &err), TAMIS_IO, err);
        ck_assert_uint_eq(sim_fault_fired(world->sim, rule), 1);
        check_status(fs->sync(ctx, file, &err), TAMIS_IO, err);
        ck_assert_ptr_nonnull(strstr(err.message, "earlier sync"));
        check_status(fs->seal(ctx, file, &err), TAMIS_IO, err);
        check_ok(fs->close(ctx, file, &err), err);
        leave_place();
    }
}
END_TEST

START_TEST(a_lock_that_is_refused_by_the_system_leaves_no_file)
{
    for (int sticky = 0; sticky < 2; sticky++) {
        struct sim_fault fault = {
            .op = SIM_LOCK, .nth = 1, .effect = SIM_ERROR, .os_error = ENOLCK, .sticky = sticky};
        tamis_lock *lock;
        size_t rule;

        use_simulator(0, 1);
        rule = sim_fault_add(world->sim, fault);
        check_status(fs->lock(ctx, dir, &lock, &err), TAMIS_IO, err);
        ck_assert_uint_ge(sim_fault_fired(world->sim, rule), 1);
        ck_assert_uint_eq(name_count(), 0);
        leave_place();
    }
}
END_TEST

START_TEST(a_reader_goes_without_where_the_system_has_no_locks_and_is_told_of_other_failures)
{
    static const int os_errors[] = {ENOLCK, EOPNOTSUPP, EIO};

    for (size_t i = 0; i < 3; i++) {
        struct sim_fault fault = {
            .op = SIM_LOCK, .nth = 1, .effect = SIM_ERROR, .os_error = os_errors[i]};
        tamis_lock *lock;
        size_t rule;

        use_simulator(0, 1);
        sim_file_put(world->sim, path, "LOCK", "", 0);
        rule = sim_fault_add(world->sim, fault);
        check_status(fs->lock_shared(ctx, dir, &lock, &err), i < 2 ? TAMIS_OK : TAMIS_IO, err);
        ck_assert_uint_eq(sim_fault_fired(world->sim, rule), 1);
        if (i < 2)
            fs->unlock(ctx, lock);
        else
            ck_assert_ptr_null(lock);
        leave_place();
    }
}
END_TEST

START_TEST(whether_readers_are_there_may_not_be_known)
{
    struct sim_fault fault = {.op = SIM_IS_LOCKED, .nth = 1, .effect = SIM_ERROR, .os_error = EIO};
    tamis_lock *lock;
    size_t rule;
    bool found;

    use_simulator(0, 1);
    check_ok(fs->lock(ctx, dir, &lock, &err), err);
    rule = sim_fault_add(world->sim, fault);
    check_status(fs->has_readers(ctx, lock, &found, &err), TAMIS_IO, err);
    ck_assert_uint_eq(sim_fault_fired(world->sim, rule), 1);
    ck_assert(!has_readers(lock));
    fs->unlock(ctx, lock);
    leave_place();
}
END_TEST

START_TEST(a_child_changes_nothing_through_what_it_inherited)
{
    tamis_lock *second;
    tamis_lock *lock;
    tamis_file *file;
    uint8_t *bytes;
    size_t size;

    use_simulator(WORLD_MAP_LOGS, 1);
    check_ok(fs->lock(ctx, dir, &lock, &err), err);
    file = create_file("000001.wal", TAMIS_FILE_LOG);
    check_ok(append(file, "abc", 3), err);
    sim_fork(world->sim);
    ck_assert(!fs->lock_is_ours(ctx, lock));
    check_status(append(file, "d", 1), TAMIS_INVALID, err);
    check_status(fs->sync(ctx, file, &err), TAMIS_INVALID, err);
    check_status(fs->seal(ctx, file, &err), TAMIS_INVALID, err);
    check_ok(fs->close(ctx, file, &err), err);
    fs->unlock(ctx, lock);
    check_status(fs->lock(ctx, dir, &second, &err), TAMIS_BUSY, err); // the parent has it
    bytes = sim_file_get(world->sim, "db", "000001.wal", &size);
    ck_assert_uint_ge(size, 4096); // not trimmed
    ck_assert_mem_eq(bytes, "abc\0", 4);
    free(bytes);
    sim_stop_at(world->sim, sim_call_count(world->sim) + 1); // the parent's descriptors stay open
    leave_place();
}
END_TEST

/* ---- The order of calls --------------------------------------------------------------------------------------------- */

static char calls_seen[400];

static void
note_call(void *arg, const struct sim_call *call)
{
    size_t used = strlen(calls_seen);

    (void)arg;
    snprintf(calls_seen + used, sizeof calls_seen - used, "%s ", sim_op_name(call->op));
}

START_TEST(durability_is_made_in_the_right_order)
{
    tamis_file *file;

    use_simulator(0, 1);
    sim_watch(world->sim, NULL, note_call, NULL);

    calls_seen[0] = '\0';
    check_ok(fs->replace(ctx, dir, "CURRENT", (tamis_slice){"x", 1}, &err), err);
    ck_assert_str_eq(calls_seen, "open pwrite sync close rename sync_dir ");

    calls_seen[0] = '\0';
    file = create_file("MANIFEST-000001", TAMIS_FILE_MANIFEST);
    check_ok(fs->close(ctx, file, &err), err);
    file = create_file("000001.wal", TAMIS_FILE_LOG);
    check_ok(append(file, "x", 1), err);
    check_ok(fs->sync(ctx, file, &err), err); // the name, too
    check_ok(append(file, "y", 1), err);
    check_ok(fs->sync(ctx, file, &err), err);
    check_ok(fs->close(ctx, file, &err), err);
    ck_assert_str_eq(calls_seen, "open close open pwrite sync sync_dir pwrite sync close ");

    calls_seen[0] = '\0';
    file = create_file("000001.sst", TAMIS_FILE_TABLE);
    check_ok(append(file, "x", 1), err);
    check_ok(fs->seal(ctx, file, &err), err);
    check_ok(fs->close(ctx, file, &err), err);
    ck_assert_str_eq(calls_seen, "open pwrite sync sync_dir close ");
    leave_place();
}
END_TEST

/* ---- Crashes -------------------------------------------------------------------------------------------------------- */

START_TEST(after_a_crash_a_replaced_file_is_old_or_new)
{
    enum sim_policy policy = (enum sim_policy)_i;
    bool seen_old = false;
    bool seen_new = false;

    for (uint64_t k = 1; k <= 7; k++) {
        for (uint64_t seed = 1; seed <= 10; seed++) {
            tamis_status status;
            uint8_t *bytes;
            size_t size;
            bool is_old;
            bool is_new;

            use_simulator(0, seed);
            check_ok(fs->replace(ctx, dir, "CURRENT", (tamis_slice){"old", 3}, &err), err);
            sim_stop_at(world->sim, sim_call_count(world->sim) + k);
            status = fs->replace(ctx, dir, "CURRENT", (tamis_slice){"newer", 5}, &err);
            ck_assert_int_eq(status == TAMIS_OK, k == 7); // it makes six calls
            fs->close_dir(ctx, dir);
            dir = NULL;
            world_crash(world, policy, seed);
            bytes = sim_file_get(world->sim, "db", "CURRENT", &size);
            ck_assert_ptr_nonnull(bytes);
            is_old = size == 3 && memcmp(bytes, "old", 3) == 0;
            is_new = size == 5 && memcmp(bytes, "newer", 5) == 0;
            ck_assert_msg(is_old || is_new, "%s, call %" PRIu64 ", seed %" PRIu64,
                          sim_policy_name(policy), k, seed);
            ck_assert(is_new || status != TAMIS_OK);
            seen_old |= is_old;
            seen_new |= is_new;
            free(bytes);
            leave_place();
        }
    }
    ck_assert(seen_old && seen_new);
}
END_TEST

START_TEST(after_a_crash_synced_bytes_and_sealed_tables_are_there)
{
    enum sim_policy policy = (enum sim_policy)(_i / 2);

    for (uint64_t seed = 1; seed <= 12; seed++) {
        struct rng rng = rng_from(seed);
        struct tm_buf model = {0};
        tamis_file *log;
        uint8_t *bytes;
        size_t synced;
        size_t size;

        use_simulator(_i % 2 != 0 ? WORLD_MAP_LOGS : 0, seed);
        put_table("000002.sst", "sealed");
        log = create_file("000001.wal", TAMIS_FILE_LOG);
        append_randomly(log, &rng, 100000, &model);
        check_ok(fs->sync(ctx, log, &err), err); // contents and name
        synced = model.length;
        append_randomly(log, &rng, synced + 50000, &model);
        sim_stop_at(world->sim, sim_call_count(world->sim) + 1);
        (void)fs->close(ctx, log, &err); // fails: the machine has stopped
        fs->close_dir(ctx, dir);
        dir = NULL;
        world_crash(world, policy, seed);
        bytes = sim_file_get(world->sim, "db", "000001.wal", &size);
        ck_assert_ptr_nonnull(bytes);
        ck_assert_uint_ge(size, synced);
        ck_assert(memcmp(bytes, model.data, synced) == 0);
        free(bytes);
        bytes = sim_file_get(world->sim, "db", "000002.sst", &size);
        ck_assert_ptr_nonnull(bytes);
        ck_assert_uint_eq(size, 6);
        ck_assert_mem_eq(bytes, "sealed", 6);
        free(bytes);
        tm_buf_release(&world->env, &model);
        leave_place();
    }
}
END_TEST

START_TEST(after_a_crash_a_created_directory_is_there)
{
    enum sim_policy policy = (enum sim_policy)_i;

    for (uint64_t k = 1; k <= 5; k++) {
        tamis_dir *store = NULL;
        tamis_status status;
        bool created;

        use_simulator(0, k);
        sim_stop_at(world->sim, sim_call_count(world->sim) + k);
        status = fs->open_dir(ctx, "store", true, &created, &store, &err);
        ck_assert_int_eq(created, status == TAMIS_OK);
        if (store != NULL)
            fs->close_dir(ctx, store);
        fs->close_dir(ctx, dir);
        dir = NULL;
        ck_assert(status == TAMIS_OK || k <= 4); // it makes four calls
        world_crash(world, policy, k);
        ck_assert(status != TAMIS_OK || sim_dir_exists(world->sim, "store"));
        leave_place();
    }
}
END_TEST

/* A process made the directory and died before its name was durable; the next one writes into it. */
START_TEST(a_directory_found_is_durable_before_it_is_used)
{
    bool created;

    use_simulator(0, 1);
    fs->close_dir(ctx, dir);
    ck_assert_int_eq(world->posix.os->make_dir(world->posix.os->ctx, "store"), 0);
    check_ok(fs->open_dir(ctx, "store", true, &created, &dir, &err), err);
    ck_assert(!created);
    fs->close_dir(ctx, dir);
    dir = NULL;
    world_crash(world, SIM_P0_STRICT, 1);
    ck_assert(sim_dir_exists(world->sim, "store"));
    leave_place();
}
END_TEST

int
main(void)
{
    const TTest *const contract_tests[] = {
        missing_directory_is_not_found_and_stays_missing,
        directory_is_created_once_and_goes_when_empty,
        directory_without_parent_is_an_error_that_says_so,
        file_in_place_of_a_directory_is_invalid,
        paths_and_names_may_hold_any_byte,
        messages_have_no_line_breaks_and_show_the_end_of_a_long_path,
        list_names_every_file_once_and_stops_when_told,
        names_that_leave_the_directory_are_invalid,
        create_refuses_a_name_that_is_taken,
        open_of_a_missing_name_is_not_found,
        read_beyond_the_end_is_corrupt_and_tells_what_was_found,
        files_take_appends_only_while_open_for_them,
        a_log_holds_exactly_what_was_appended,
        sealing_a_log_trims_it,
        nothing_appended_is_an_empty_file,
        sync_runs_beside_append,
        replace_puts_new_contents_and_leaves_nothing_else,
        replace_overcomes_a_temporary_file_of_a_dead_machine,
        a_linked_table_has_two_names_and_is_there_while_one_of_them_is,
        remove_of_a_missing_name_is_fine,
        one_writer_at_a_time,
        lock_leaves_nothing_in_a_directory_that_stayed_empty,
        lock_file_stays_beside_a_store_and_where_it_was,
        readers_are_seen_by_the_writer_and_stand_in_nobodys_way,
        a_reader_makes_no_lock_file_and_goes_without_where_there_is_none,
    };
    const int interruptible_count = sizeof interruptible / sizeof interruptible[0];
    Suite *suite = suite_create("fs_posix");
    TCase *contract = tcase_create("contract");
    TCase *faults = tcase_create("faults");
    TCase *crashes = tcase_create("crashes");

    tcase_set_timeout(contract, 0);
    for (size_t i = 0; i < sizeof contract_tests / sizeof contract_tests[0]; i++)
        tcase_add_loop_test(contract, contract_tests[i], 0, PLACE_COUNT);
    suite_add_tcase(suite, contract);

    tcase_set_timeout(faults, 0);
    tcase_add_test(faults, every_refused_allocation_is_no_memory_and_leaks_nothing);
    tcase_add_test(faults, every_call_that_fails_once_is_reported_or_made_up_for);
    tcase_add_test(faults, every_kind_of_call_may_fail_for_good);
    tcase_add_loop_test(faults, an_interrupted_call_is_made_again, 0, interruptible_count);
    tcase_add_test(faults, interruptions_between_progress_do_not_add_up);
    tcase_add_loop_test(faults, interruptions_without_end_are_an_error, 0, interruptible_count);
    tcase_add_test(faults, short_counts_are_continued);
    tcase_add_loop_test(faults, a_log_that_cannot_be_mapped_is_written, 0, 2);
    tcase_add_loop_test(faults, a_full_medium_is_no_space_and_keeps_what_was_acknowledged, 0, 2);
    tcase_add_test(faults, a_failed_sync_is_final_for_its_file);
    tcase_add_test(faults, a_lock_that_is_refused_by_the_system_leaves_no_file);
    tcase_add_test(
        faults, a_reader_goes_without_where_the_system_has_no_locks_and_is_told_of_other_failures);
    tcase_add_test(faults, whether_readers_are_there_may_not_be_known);
    tcase_add_test(faults, a_child_changes_nothing_through_what_it_inherited);
    tcase_add_test(faults, durability_is_made_in_the_right_order);
    suite_add_tcase(suite, faults);

    tcase_set_timeout(crashes, 0);
    tcase_add_loop_test(crashes, after_a_crash_a_replaced_file_is_old_or_new, 0, SIM_POLICY_COUNT);
    tcase_add_loop_test(crashes, after_a_crash_synced_bytes_and_sealed_tables_are_there, 0,
                        2 * SIM_POLICY_COUNT);
    tcase_add_loop_test(crashes, after_a_crash_a_created_directory_is_there, 0, SIM_POLICY_COUNT);
    tcase_add_test(crashes, a_directory_found_is_durable_before_it_is_used);
    suite_add_tcase(suite, crashes);
    return check_run(suite);
}
