/* SPDX-License-Identifier: MIT
 *
 * tests/engine/test_readers.c -- read-only handles: what they show beside a writer, what they leave alone, what the writer keeps
 * for them, and what they say when a file has gone all the same.
 */
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/engine/one_store.h"
#include "tests/support/child.h"

enum { KEYS = 3000 / ONE_STORE_DIVISOR, VALUE_BYTES = 200 };

static tamis_db *reader;

static void
setup(void)
{
    one_store_begin();
}

static void
teardown(void)
{
    check_ok(tamis_close(reader, &one.err), one.err);
    reader = NULL;
    one_store_end();
}

static tamis_options
reader_options(void)
{
    tamis_options options;

    tamis_options_init(&options);
    options.read_only = true;
    options.block_cache_bytes = 0;
    return options;
}

static tamis_status
open_reader_with(uint32_t max_open_files, tamis_db **db_out, tamis_error *err)
{
    tamis_options options = reader_options();

    options.max_open_files = max_open_files;
    return tamis_open(one.path, &options, db_out, err);
}

static void
open_reader(void)
{
    check_ok(open_reader_with(1, &reader, &one.err), one.err);
}

static void
close_reader(void)
{
    check_ok(tamis_close(reader, &one.err), one.err);
    reader = NULL;
}

static void
refresh(void)
{
    check_ok(tamis_refresh(reader, &one.err), one.err);
}

/* A number made of all keys and values that `db` shows at `snapshot`; 0 and a status when it cannot be read. */
static uint64_t
contents_at(tamis_db *db, const tamis_snapshot *snapshot, tamis_status *status_out)
{
    tamis_error err = {0};
    tamis_iter_options options;
    tamis_iter *iter = NULL;
    uint64_t digest = 1;

    tamis_iter_options_init(&options);
    options.snapshot = snapshot;
    *status_out = tamis_iter_open(db, &options, &iter, &err);
    if (*status_out != TAMIS_OK)
        return 0;
    for (tamis_iter_first(iter); tamis_iter_valid(iter); tamis_iter_next(iter)) {
        tamis_slice key = tamis_iter_key(iter);
        tamis_slice value = tamis_iter_value(iter);

        digest = tamis_hash64(key.data, key.length, digest);
        digest = tamis_hash64(value.data, value.length, digest);
    }
    *status_out = tamis_iter_status(iter, &err);
    tamis_iter_close(iter);
    return *status_out == TAMIS_OK ? digest : 0;
}

static uint64_t
contents(tamis_db *db)
{
    tamis_status status;
    uint64_t digest = contents_at(db, NULL, &status);

    ck_assert_int_eq(status, TAMIS_OK);
    return digest;
}

/* Put every key in `version`: half of them in tables, half in the log only. */
static void
write_all(unsigned version)
{
    for (unsigned i = 0; i < KEYS; i++) {
        one_put_number(i, version, VALUE_BYTES);
        if (i == KEYS / 2)
            one_flush();
    }
}

/* Rewrite everything, so that no table, log or manifest entry of before is needed. */
static void
replace_all(unsigned version)
{
    write_all(version);
    one_compact();
    for (unsigned i = 0; i < KEYS; i += 3)
        one_delete_number(i);
    one_compact();
    one_put_number(KEYS, version, VALUE_BYTES);
}

/* ---- The directory, byte by byte ------------------------------------------------------------------ */

/* Of names, bytes, modes and times of all files, in any order, and of the directory's own. */
static uint64_t
directory_digest(void)
{
    DIR *directory = opendir(one.path);
    uint64_t digest = one_list(one.path).digest;
    struct dirent *entry;
    struct stat found;

    ck_assert_ptr_nonnull(directory);
    ck_assert_int_eq(fstat(dirfd(directory), &found), 0);
    digest += tamis_hash64(&found.st_mtim, sizeof found.st_mtim, found.st_mode);
    while ((entry = readdir(directory)) != NULL) {
        static char bytes[1 << 16];
        int fd = openat(dirfd(directory), entry->d_name, O_RDONLY);
        uint64_t file_digest = 0;
        ssize_t got;

        ck_assert_int_ge(fd, 0);
        while ((got = read(fd, bytes, sizeof bytes)) > 0)
            file_digest = tamis_hash64(bytes, (size_t)got, file_digest);
        close(fd);
        digest += tamis_hash64(entry->d_name, strlen(entry->d_name), file_digest);
    }
    closedir(directory);
    return digest;
}

/* ---- Another process ------------------------------------------------------------------------------ */

/* Forked before the store is opened by a test: it opens, refreshes and closes a reader when it is asked to. */
static struct helper {
    pid_t process;
    int ask;
    int answer;
} helper;

struct answer {
    tamis_status status;
    uint64_t contents; // on OK, of an open reader
};

static void
help(int ask, int answer)
{
    tamis_db *db = NULL;
    tamis_error err = {0};
    char what;

    while (read(ask, &what, 1) == 1) {
        struct answer given = {0};

        if (what == 'o')
            given.status = open_reader_with(1, &db, &err);
        else if (what == 'r')
            given.status = tamis_refresh(db, &err);
        else if (what == 'c')
            given.status = tamis_close(db, &err);
        if (what == 'c')
            db = NULL;
        if (given.status == TAMIS_OK && db != NULL)
            given.contents = contents_at(db, NULL, &given.status);
        if (write(answer, &given, sizeof given) != (ssize_t)sizeof given)
            _exit(EXIT_FAILURE);
    }
    _exit(EXIT_SUCCESS);
}

static void
start_helper(void)
{
    int ask[2];
    int answer[2];

    ck_assert(pipe(ask) == 0 && pipe(answer) == 0);
    fflush(NULL);
    one_store_close(); // no threads
    helper.process = fork();
    ck_assert_int_ge(helper.process, 0);
    if (helper.process == 0) {
        close(ask[1]);
        close(answer[0]);
        help(ask[0], answer[1]);
    }
    close(ask[0]);
    close(answer[1]);
    helper.ask = ask[1];
    helper.answer = answer[0];
    one_store_open();
}

static void
stop_helper(void)
{
    int state;

    close(helper.ask);
    close(helper.answer);
    ck_assert_int_eq(waitpid(helper.process, &state, 0), helper.process);
}

static uint64_t
ask_helper(char what)
{
    struct answer given;

    ck_assert_int_eq(write(helper.ask, &what, 1), 1);
    ck_assert_int_eq(read(helper.answer, &given, sizeof given), (ssize_t)sizeof given);
    ck_assert_int_eq(given.status, TAMIS_OK);
    return given.contents;
}

/* ---- Beside a writer ------------------------------------------------------------------------------ */

START_TEST(a_reader_shows_tables_and_log_as_they_were_at_open_and_then_at_refresh)
{
    uint64_t before;

    start_helper();
    write_all(1);
    before = contents(one.db);
    open_reader();
    ck_assert_uint_eq(contents(reader), before);
    ck_assert_uint_eq(ask_helper('o'), before);
    for (unsigned version = 2; version < 5; version++) {
        replace_all(version);
        ck_assert_uint_ne(contents(one.db), before);
        ck_assert_uint_eq(contents(reader), before);
        refresh();
        before = contents(one.db);
        ck_assert_uint_eq(contents(reader), before);
        ck_assert_uint_eq(ask_helper('r'), before);
    }
    one_store_reopen(); // the writer goes and comes
    one_put_number(1, 9, VALUE_BYTES);
    refresh();
    ck_assert_uint_eq(contents(reader), contents(one.db));
    ck_assert_uint_eq(ask_helper('r'), contents(one.db));
    check_ok(tamis_verify(reader, NULL, NULL, &one.err), one.err);
    (void)ask_helper('c');
    stop_helper();
}
END_TEST

START_TEST(each_write_is_shown_by_the_next_refresh)
{
    open_reader();
    for (unsigned i = 0; i < KEYS; i++) {
        unsigned head[2] = {0};
        char text[32];
        size_t length;

        one_put_number(i, i, VALUE_BYTES + i % 3000);
        refresh();
        check_ok(tamis_get(reader, NULL, one_key(text, i), head, sizeof head, &length, &one.err),
                 one.err);
        ck_assert_uint_eq(head[1], i);
    }
    ck_assert_uint_eq(contents(reader), contents(one.db));
}
END_TEST

START_TEST(many_readers_at_once_each_show_their_own_moment)
{
    enum { READERS = 12 };
    tamis_db *readers[READERS];
    uint64_t moments[READERS];

    for (unsigned i = 0; i < READERS; i++) {
        write_all(i);
        one_delete_number(i);
        moments[i] = contents(one.db);
        check_ok(open_reader_with(2, &readers[i], &one.err), one.err);
    }
    one_compact();
    for (unsigned i = 0; i < READERS; i++)
        ck_assert_uint_eq(contents(readers[i]), moments[i]);
    for (unsigned i = 0; i < READERS; i++) {
        check_ok(tamis_refresh(readers[i], &one.err), one.err);
        ck_assert_uint_eq(contents(readers[i]), moments[READERS - 1]);
        check_ok(tamis_close(readers[i], &one.err), one.err);
    }
}
END_TEST

START_TEST(iterators_snapshots_and_pinned_values_keep_what_they_saw)
{
    tamis_snapshot *snapshot = NULL;
    tamis_iter *iter = NULL;
    tamis_pinned in_table;
    tamis_pinned in_log;
    tamis_status status;
    unsigned head[2];
    uint64_t before;
    uint64_t count = 0;
    char text[32];

    write_all(1);
    open_reader();
    before = contents(reader);
    check_ok(tamis_snapshot_take(reader, &snapshot, &one.err), one.err);
    check_ok(tamis_iter_open(reader, NULL, &iter, &one.err), one.err);
    check_ok(tamis_get_pinned(reader, NULL, one_key(text, 1), &in_table, &one.err), one.err);
    check_ok(tamis_get_pinned(reader, NULL, one_key(text, KEYS - 1), &in_log, &one.err), one.err);
    for (unsigned version = 2; version < 5; version++) {
        replace_all(version);
        refresh();
    }
    ck_assert_uint_eq(contents(reader), contents(one.db));
    ck_assert_uint_eq(contents_at(reader, snapshot, &status), before);
    ck_assert_int_eq(status, TAMIS_OK);
    for (tamis_iter_first(iter); tamis_iter_valid(iter); tamis_iter_next(iter), count++) {
        memcpy(head, tamis_iter_value(iter).data, sizeof head);
        ck_assert_uint_eq(head[1], 1);
    }
    check_ok(tamis_iter_status(iter, &one.err), one.err);
    ck_assert_uint_eq(count, KEYS);
    memcpy(head, in_table.value.data, sizeof head);
    ck_assert_uint_eq(head[1], 1);
    memcpy(head, in_log.value.data, sizeof head);
    ck_assert_uint_eq(head[1], 1);
    check_status(tamis_close(reader, &one.err), TAMIS_BUSY, one.err);
    tamis_pinned_release(&in_log);
    tamis_pinned_release(&in_table);
    tamis_iter_close(iter);
    tamis_snapshot_release(reader, snapshot);
}
END_TEST

/* Descriptors of tables in this process. */
static unsigned
count_table_descriptors(void)
{
    DIR *directory = opendir("/proc/self/fd");
    struct dirent *entry;
    unsigned count = 0;

    ck_assert_ptr_nonnull(directory);
    while ((entry = readdir(directory)) != NULL) {
        char target[4096];
        ssize_t length = readlinkat(dirfd(directory), entry->d_name, target, sizeof target - 1);

        if (length < 0)
            continue;
        target[length] = '\0';
        count += strstr(target, ".sst") != NULL;
    }
    closedir(directory);
    return count;
}

START_TEST(tables_of_the_past_are_closed_when_the_last_iterator_on_them_goes)
{
    tamis_iter *iter = NULL;
    unsigned before;

    write_all(1);
    check_ok(open_reader_with(0, &reader, &one.err), one.err);
    check_ok(tamis_iter_open(reader, NULL, &iter, &one.err), one.err);
    replace_all(2);
    one_wait_idle();
    refresh();
    before = count_table_descriptors();
    tamis_iter_close(iter);
    ck_assert_uint_lt(count_table_descriptors(), before);
}
END_TEST

/* ---- Nothing is changed --------------------------------------------------------------------------- */

/* Leave a store behind as a killed process does: tables, and a log that nobody closed. */
static int
write_and_die(void *arg)
{
    (void)arg;
    one_store_open();
    write_all(1);
    (void)raise(SIGKILL);
    return 1;
}

static void
leave_killed_store(void)
{
    one_store_close();
    ck_assert_int_eq(child_run(write_and_die, NULL, NULL, 0), -SIGKILL);
}

START_TEST(not_one_byte_changes_by_reading)
{
    uint64_t before;

    leave_killed_store();
    before = directory_digest();
    for (int i = 0; i < 3; i++) {
        open_reader();
        (void)contents(reader);
        refresh();
        check_ok(tamis_verify(reader, NULL, NULL, &one.err), one.err);
        check_ok(tamis_wait_idle(reader, &one.err), one.err);
        ck_assert_uint_eq(directory_digest(), before);
        close_reader();
        ck_assert_uint_eq(directory_digest(), before);
    }
    open_reader();
    before = contents(reader);
    close_reader();
    one_store_open();
    ck_assert_uint_eq(contents(one.db), before);
}
END_TEST

static int
read_and_die(void *arg)
{
    (void)arg;
    if (open_reader_with(1, &reader, &one.err) != TAMIS_OK || contents(reader) == 0)
        return 1;
    (void)raise(SIGKILL);
    return 2;
}

START_TEST(a_killed_reader_has_changed_nothing_and_holds_nothing)
{
    uint64_t before;

    leave_killed_store();
    before = directory_digest();
    ck_assert_int_eq(child_run(read_and_die, NULL, NULL, 0), -SIGKILL);
    ck_assert_uint_eq(directory_digest(), before);
    one_store_open();
    replace_all(2);
    one_compact();
    one_wait_idle();
    ck_assert_uint_eq(one_stats().reader_files_kept, 0);
}
END_TEST

static int
read_as_somebody_else(void *arg)
{
    const uint64_t *expected = arg;

    if (setgid(65534) != 0 || setuid(65534) != 0)
        return CHILD_SKIPPED;
    if (access(one.path, W_OK) == 0)
        return 1;
    if (open_reader_with(1, &reader, &one.err) != TAMIS_OK)
        return 2;
    if (contents(reader) != *expected || tamis_refresh(reader, &one.err) != TAMIS_OK ||
        contents(reader) != *expected)
        return 3;
    if (tamis_put(reader, NULL, tamis_text("k"), tamis_text("v"), &one.err) != TAMIS_READ_ONLY)
        return 4;
    return (int)tamis_close(reader, &one.err);
}

START_TEST(a_directory_that_may_not_be_written_to_is_read_by_another_user)
{
    uint64_t expected;
    uint64_t before;
    int end;

    leave_killed_store();
    open_reader();
    expected = contents(reader);
    close_reader();
    ck_assert_int_eq(chmod(one.scratch, 0755), 0);
    ck_assert_int_eq(chmod(one.path, 0555), 0);
    before = directory_digest();
    end = child_run(read_as_somebody_else, &expected, NULL, 0);
    if (end == CHILD_SKIPPED)
        fprintf(stderr, "SKIPPED: only the superuser can become somebody else\n");
    else
        ck_assert_int_eq(end, 0);
    ck_assert_uint_eq(directory_digest(), before);
    ck_assert_int_eq(chmod(one.path, 0755), 0);
    one_store_open();
}
END_TEST

/* Two handles, in a mount name space of our own in which the directory cannot be written to by anybody. */
static int
read_on_read_only_medium(void *arg)
{
    const uint64_t *expected = arg;
    tamis_db *second = NULL;

    if (unshare(CLONE_NEWNS) != 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount(one.path, one.path, NULL, MS_BIND, NULL) != 0 ||
        mount(NULL, one.path, NULL, MS_BIND | MS_REMOUNT | MS_RDONLY, NULL) != 0)
        return CHILD_SKIPPED;
    if (tamis_open(one.path, &one.options, &second, &one.err) != TAMIS_IO)
        return 1; // for writing
    if (open_reader_with(1, &reader, &one.err) != TAMIS_OK ||
        open_reader_with(1, &second, &one.err) != TAMIS_OK)
        return 2;
    if (contents(reader) != *expected || contents(second) != *expected)
        return 3;
    if (tamis_put(reader, NULL, tamis_text("k"), tamis_text("v"), &one.err) != TAMIS_READ_ONLY ||
        tamis_refresh(reader, &one.err) != TAMIS_OK)
        return 4;
    return tamis_close(reader, &one.err) == TAMIS_OK && tamis_close(second, &one.err) == TAMIS_OK
               ? 0
               : 5;
}

START_TEST(a_read_only_medium_is_read)
{
    uint64_t expected;
    int end;

    leave_killed_store();
    open_reader();
    expected = contents(reader);
    close_reader();
    end = child_run(read_on_read_only_medium, &expected, NULL, 0);
    if (end == CHILD_SKIPPED)
        fprintf(stderr, "SKIPPED: cannot mount\n");
    else
        ck_assert_int_eq(end, 0);
    one_store_open();
    ck_assert_uint_eq(contents(one.db), expected);
}
END_TEST

START_TEST(a_copy_without_a_lock_file_is_read_and_gets_none)
{
    char *lock = temp_dir_path(one.path, "LOCK");
    uint64_t before;

    write_all(1);
    one_store_close();
    ck_assert_int_eq(unlink(lock), 0);
    before = directory_digest();
    open_reader();
    ck_assert_uint_ne(contents(reader), 1);
    refresh();
    close_reader();
    ck_assert_uint_eq(directory_digest(), before);
    ck_assert_int_ne(access(lock, F_OK), 0);
    one_store_open();
    free(lock);
}
END_TEST

START_TEST(whatever_would_write_is_read_only)
{
    tamis_slice key = tamis_text("key");
    tamis_batch *batch = NULL;
    tamis_stats stats;

    write_all(1);
    open_reader();
    check_ok(tamis_batch_create(NULL, &batch, &one.err), one.err);
    check_ok(tamis_batch_put(batch, key, key, &one.err), one.err);
    check_status(tamis_put(reader, NULL, key, key, &one.err), TAMIS_READ_ONLY, one.err);
    check_status(tamis_delete(reader, NULL, key, &one.err), TAMIS_READ_ONLY, one.err);
    check_status(tamis_write(reader, NULL, batch, &one.err), TAMIS_READ_ONLY, one.err);
    tamis_batch_clear(batch);
    check_status(tamis_write(reader, NULL, batch, &one.err), TAMIS_READ_ONLY, one.err);
    check_status(tamis_flush(reader, &one.err), TAMIS_READ_ONLY, one.err);
    check_status(tamis_compact_range(reader, NULL, NULL, &one.err), TAMIS_READ_ONLY, one.err);
    ck_assert_ptr_nonnull(strstr(one.err.message, "read_only"));
    check_ok(tamis_wait_idle(reader, &one.err), one.err);
    tamis_stats_init(&stats);
    check_ok(tamis_get_stats(reader, &stats, &one.err), one.err);
    ck_assert_uint_eq(stats.last_sequence, KEYS);
    ck_assert_int_eq(stats.background_status, TAMIS_OK);
    ck_assert_uint_eq(contents(reader), contents(one.db));
    check_status(tamis_refresh(one.db, &one.err), TAMIS_INVALID, one.err);
    tamis_batch_destroy(batch);
}
END_TEST

START_TEST(read_only_goes_with_no_option_that_makes_a_store)
{
    tamis_options options = reader_options();
    tamis_db *none = NULL;

    options.create_if_missing = true;
    check_status(tamis_open(one.path, &options, &none, &one.err), TAMIS_INVALID, one.err);
    options.create_if_missing = false;
    options.error_if_exists = true;
    check_status(tamis_open(one.path, &options, &none, &one.err), TAMIS_INVALID, one.err);
    ck_assert_ptr_null(none);
}
END_TEST

START_TEST(where_there_is_no_store_nothing_is_made_and_a_headless_one_is_damage)
{
    tamis_options options = reader_options();
    char *missing = temp_dir_path(one.scratch, "missing");
    char *empty = temp_dir_path(one.scratch, "empty");
    char *current = temp_dir_path(one.path, "CURRENT");
    char *aside = temp_dir_path(one.scratch, "aside");
    tamis_db *none = NULL;

    check_status(tamis_open(missing, &options, &none, &one.err), TAMIS_NOT_FOUND, one.err);
    ck_assert_int_ne(access(missing, F_OK), 0);
    ck_assert_int_eq(mkdir(empty, 0755), 0);
    check_status(tamis_open(empty, &options, &none, &one.err), TAMIS_NOT_FOUND, one.err);
    ck_assert_uint_eq(one_list(empty).file_count, 0);
    write_all(1);
    one_store_close();
    ck_assert_int_eq(rename(current, aside), 0);
    check_status(tamis_open(one.path, &options, &none, &one.err), TAMIS_CORRUPT, one.err);
    ck_assert_int_eq(rename(aside, current), 0);
    ck_assert_ptr_null(none);
    one_store_open();
    free(aside);
    free(current);
    free(empty);
    free(missing);
}
END_TEST

/* ---- What the writer keeps ------------------------------------------------------------------------ */

START_TEST(the_writer_keeps_files_for_readers_and_removes_them_after_the_last_one)
{
    tamis_db *second = NULL;
    struct one_listing listing;
    tamis_stats stats;
    uint64_t before;

    write_all(1);
    before = contents(one.db);
    open_reader();
    check_ok(open_reader_with(1, &second, &one.err), one.err);
    replace_all(2);
    one_flush();
    one_wait_idle();
    stats = one_stats();
    listing = one_list(one.path);
    ck_assert_uint_gt(stats.reader_files_kept, 2);
    ck_assert_uint_gt(stats.reader_bytes_kept, (uint64_t)KEYS * VALUE_BYTES);
    ck_assert_uint_eq(listing.table_count + listing.log_count + listing.manifest_count,
                      stats.total.file_count + 2 + stats.reader_files_kept);
    close_reader();
    one_wait_idle();
    ck_assert_uint_ge(one_stats().reader_files_kept,
                      stats.reader_files_kept); // the other one reads
    ck_assert_uint_eq(contents(second), before);
    check_ok(tamis_close(second, &one.err), one.err);
    one_wait_idle();
    ck_assert_uint_eq(one_stats().reader_files_kept, 0);
    ck_assert_uint_eq(one_stats().reader_bytes_kept, 0);
    listing = one_list(one.path);
    ck_assert_uint_eq(listing.table_count, one_stats().total.file_count);
    ck_assert_uint_eq(listing.log_count, 1);
    ck_assert_uint_eq(listing.manifest_count, 1);
}
END_TEST

START_TEST(files_kept_go_with_the_next_flush_or_at_close_as_well)
{
    write_all(1);
    open_reader();
    replace_all(2);
    one_wait_idle();
    ck_assert_uint_gt(one_stats().reader_files_kept, 0);
    close_reader();
    one_put_number(1, 3, VALUE_BYTES);
    one_flush();
    open_reader();
    replace_all(4);
    one_wait_idle();
    ck_assert_uint_gt(one_list(one.path).table_count, one_stats().total.file_count);
    close_reader();
    one_store_close();
    ck_assert_uint_eq(one_list(one.path).log_count, 1);
    ck_assert_uint_eq(one_list(one.path).manifest_count, 1);
    one_store_open();
    ck_assert_uint_eq(one_list(one.path).table_count, one_stats().total.file_count);
}
END_TEST

START_TEST(the_next_life_of_the_writer_keeps_them_too)
{
    uint64_t before;

    write_all(1);
    before = contents(one.db);
    open_reader();
    replace_all(2);
    one_store_reopen();
    ck_assert_uint_gt(one_stats().reader_files_kept, 0);
    ck_assert_uint_eq(contents(reader), before);
    replace_all(3);
    one_store_reopen();
    ck_assert_uint_eq(contents(reader), before);
    close_reader();
    one_wait_idle();
    ck_assert_uint_eq(one_stats().reader_files_kept, 0);
    ck_assert_uint_eq(one_list(one.path).table_count, one_stats().total.file_count);
    open_reader();
    replace_all(4);
    one_store_close();
    close_reader();
    one_store_open(); // nobody reads any more
    ck_assert_uint_eq(one_stats().reader_files_kept, 0);
    ck_assert_uint_eq(one_list(one.path).table_count, one_stats().total.file_count);
    ck_assert_uint_eq(one_list(one.path).manifest_count, 1);
}
END_TEST

START_TEST(a_store_that_is_read_is_not_destroyed)
{
    uint64_t before;

    write_all(1);
    before = contents(one.db);
    one_store_close();
    open_reader();
    check_status(tamis_destroy(one.path, NULL, &one.err), TAMIS_BUSY, one.err);
    ck_assert_uint_eq(contents(reader), before);
    close_reader();
    check_ok(tamis_destroy(one.path, NULL, &one.err), one.err);
    ck_assert_int_ne(access(one.path, F_OK), 0);
    one_store_open();
}
END_TEST

/* ---- Files that are gone all the same ------------------------------------------------------------- */

/* Remove the files whose names begin or end so. */
static void
remove_files(const char *part)
{
    DIR *directory = opendir(one.path);
    struct dirent *entry;
    unsigned count = 0;

    ck_assert_ptr_nonnull(directory);
    while ((entry = readdir(directory)) != NULL)
        if (entry->d_name[0] != '.' && (one_ends_with(entry->d_name, part) ||
                                        strncmp(entry->d_name, part, strlen(part)) == 0)) {
            ck_assert_int_eq(unlinkat(dirfd(directory), entry->d_name, 0), 0);
            count++;
        }
    closedir(directory);
    ck_assert_uint_gt(count, 0);
}

START_TEST(a_table_that_was_removed_behind_a_readers_back_is_stale)
{
    tamis_status status;
    unsigned stale = 0;

    write_all(1);
    one_flush();
    one_store_close();
    open_reader(); // one descriptor
    remove_files(".sst");
    ck_assert_uint_eq(contents_at(reader, NULL, &status), 0);
    ck_assert_int_eq(status, TAMIS_STALE);
    for (unsigned i = 0; i < KEYS; i++) {
        unsigned head[2] = {0};
        size_t length = 0;
        char text[32];

        status = tamis_get(reader, NULL, one_key(text, i), head, sizeof head, &length, &one.err);
        ck_assert_msg(status == TAMIS_STALE || (status == TAMIS_OK && head[0] == i && head[1] == 1),
                      "%s", tamis_status_name(status));
        stale += status == TAMIS_STALE;
    }
    ck_assert_uint_gt(stale, 0);
    ck_assert_ptr_nonnull(strstr(one.err.message, ".sst"));
    close_reader();
    check_status(open_reader_with(1, &reader, &one.err), TAMIS_CORRUPT,
                 one.err); // nobody moved on: lost
    check_ok(tamis_destroy(one.path, NULL, &one.err), one.err);
    one_store_open();
}
END_TEST

START_TEST(a_refresh_that_misses_a_file_is_stale_and_leaves_the_handle_as_it_was)
{
    static const char *const ends[] = {".sst", ".wal", "CURRENT", "MANIFEST"};

    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        uint64_t before;

        write_all(1);
        one_compact();
        before = contents(one.db);
        check_ok(open_reader_with(0, &reader, &one.err), one.err);
        ck_assert_uint_eq(contents(reader), before);
        replace_all(2);
        one_store_close();
        remove_files(ends[i]);
        check_status(tamis_refresh(reader, &one.err), TAMIS_STALE, one.err);
        ck_assert_ptr_nonnull(strstr(one.err.message, ends[i]));
        ck_assert_uint_eq(contents(reader), before);
        close_reader();
        // Who opens it anew has seen nothing of it that could have gone on: what is missing was lost.
        check_status(open_reader_with(0, &reader, &one.err), TAMIS_CORRUPT, one.err);
        ck_assert_ptr_nonnull(strstr(one.err.message, ends[i]));
        check_ok(tamis_destroy(one.path, NULL, &one.err), one.err);
        one_store_open();
    }
}
END_TEST

START_TEST(a_reader_that_no_writer_knows_of_is_stale_and_never_wrong)
{
    char *lock = temp_dir_path(one.path, "LOCK");
    uint64_t before;
    tamis_status status;
    uint64_t found;

    write_all(1);
    write_all(1); // two tables at least, of which one is open
    before = contents(one.db);
    one_store_close();
    ck_assert_int_eq(unlink(lock), 0);
    open_reader();
    ck_assert_uint_eq(contents(reader), before);
    one_store_open();
    replace_all(2);
    one_wait_idle();
    ck_assert_uint_eq(one_stats().reader_files_kept, 0);
    found = contents_at(reader, NULL, &status);
    ck_assert(status == TAMIS_STALE || (status == TAMIS_OK && found == before));
    ck_assert_int_eq(status, TAMIS_STALE);
    refresh();
    ck_assert_uint_eq(contents(reader), contents(one.db));
    free(lock);
}
END_TEST

START_TEST(another_store_in_the_place_of_the_one_opened_is_stale)
{
    uint64_t before;

    write_all(1);
    before = contents(one.db);
    one_store_close();
    check_ok(open_reader_with(0, &reader, &one.err), one.err);
    remove_files("");
    one_store_open();
    one_put_number(1, 2, VALUE_BYTES);
    check_status(tamis_refresh(reader, &one.err), TAMIS_STALE, one.err);
    ck_assert_ptr_nonnull(strstr(one.err.message, "another store"));
    ck_assert_uint_eq(contents(reader), before);
}
END_TEST

/* ---- Damage --------------------------------------------------------------------------------------- */

START_TEST(a_log_that_was_synced_and_has_changed_is_damage_to_a_reader_too)
{
    tamis_write_options options;
    char name[32];
    char *log = NULL;
    FILE *file;
    int byte;

    tamis_write_options_init(&options);
    options.sync = true;
    for (unsigned i = 0; i < 20; i++) {
        char text[32];

        check_ok(tamis_put(one.db, &options, one_key(text, i), tamis_text("value"), &one.err),
                 one.err);
    }
    snprintf(name, sizeof name, "%06u.wal", 2); // of a store that is new
    log = temp_dir_path(one.path, name);
    file = fopen(log, "r+");
    ck_assert_ptr_nonnull(file);
    ck_assert_int_eq(fseek(file, 500, SEEK_SET), 0);
    byte = fgetc(file);
    ck_assert_int_eq(fseek(file, 500, SEEK_SET), 0);
    ck_assert_int_eq(fputc(byte ^ 1, file), byte ^ 1);
    ck_assert_int_eq(fclose(file), 0);
    check_status(open_reader_with(1, &reader, &one.err), TAMIS_CORRUPT, one.err);
    ck_assert_ptr_nonnull(strstr(one.err.message, name));
    free(log);
}
END_TEST

/* ---- Forks ---------------------------------------------------------------------------------------- */

static int
use_parents_reader(void *arg)
{
    char buffer[8];
    size_t length;

    (void)arg;
    if (tamis_get(reader, NULL, tamis_text("k"), buffer, sizeof buffer, &length, &one.err) !=
        TAMIS_INVALID)
        return 1;
    if (tamis_refresh(reader, &one.err) != TAMIS_INVALID)
        return 2;
    return tamis_close(reader, &one.err) == TAMIS_INVALID ? 0 : 3;
}

START_TEST(a_forked_child_cannot_use_the_reader_and_does_not_take_its_lock_along)
{
    uint64_t before;

    write_all(1);
    before = contents(one.db);
    open_reader();
    ck_assert_int_eq(child_run(use_parents_reader, NULL, NULL, 0), 0);
    replace_all(2);
    one_wait_idle();
    ck_assert_uint_gt(one_stats().reader_files_kept, 0);
    ck_assert_uint_eq(contents(reader), before);
    refresh();
}
END_TEST

/* ---- A directory that changes while it is listed --------------------------------------------------- */

static tamis_fs torn_fs;
static unsigned listing_count;
static char second_log[32]; // hidden from the first listing

struct torn_visit {
    bool (*visit)(void *arg, const char *name);
    void *arg;
};

static bool
visit_but_one(void *arg, const char *name)
{
    const struct torn_visit *torn = arg;

    return strcmp(name, second_log) == 0 ? true : torn->visit(torn->arg, name);
}

static bool
note_second_log(void *arg, const char *name)
{
    static char first[32];

    (void)arg;
    if (!one_ends_with(name, ".wal"))
        return true;
    if (first[0] == 0 || strcmp(name, first) < 0) {
        strcpy(second_log, first);
        strcpy(first, name);
    } else if (second_log[0] == 0 || strcmp(name, second_log) < 0) {
        strcpy(second_log, name);
    }
    return true;
}

/* Before the first listing a writer opens the store and goes on by some logs, and one of them is not listed. */
static tamis_status
list_torn(void *ctx, tamis_dir *dir, bool (*visit)(void *arg, const char *name), void *arg,
          tamis_error *err)
{
    struct torn_visit torn = {visit, arg};

    if (++listing_count != 1)
        return tamis_fs_posix()->list(ctx, dir, visit, arg, err);
    one_store_open();
    for (unsigned i = 0; i < 3; i++) {
        one_put_number(100 + i, 1, 100);
        one_flush();
    }
    check_ok(tamis_fs_posix()->list(ctx, dir, note_second_log, NULL, err), *err);
    return tamis_fs_posix()->list(ctx, dir, visit_but_one, &torn, err);
}

START_TEST(a_log_that_a_listing_missed_is_looked_for_again)
{
    tamis_options options = one.options;
    char value[100];
    char text[32];
    size_t length = 0;

    one_put_number(1, 1, 100);
    one_store_close(); // the last log ends without naming a next one
    torn_fs = *tamis_fs_posix();
    torn_fs.list = list_torn;
    options.create_if_missing = false;
    options.read_only = true;
    options.fs = &torn_fs;
    check_ok(tamis_open(one.path, &options, &reader, &one.err), one.err);
    ck_assert_str_ne(second_log, "");
    ck_assert_uint_ge(listing_count, 2); // the first one did not do
    for (unsigned i = 0; i < 3; i++)
        check_ok(
            tamis_get(reader, NULL, one_key(text, 100 + i), value, sizeof value, &length, &one.err),
            one.err);
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("readers");
    TCase *tests = tcase_create("readers");

    tcase_set_timeout(tests, 0);
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_test(tests, a_reader_shows_tables_and_log_as_they_were_at_open_and_then_at_refresh);
    tcase_add_test(tests, each_write_is_shown_by_the_next_refresh);
    tcase_add_test(tests, many_readers_at_once_each_show_their_own_moment);
    tcase_add_test(tests, iterators_snapshots_and_pinned_values_keep_what_they_saw);
    tcase_add_test(tests, tables_of_the_past_are_closed_when_the_last_iterator_on_them_goes);
    tcase_add_test(tests, not_one_byte_changes_by_reading);
    tcase_add_test(tests, a_killed_reader_has_changed_nothing_and_holds_nothing);
    tcase_add_test(tests, a_directory_that_may_not_be_written_to_is_read_by_another_user);
    tcase_add_test(tests, a_read_only_medium_is_read);
    tcase_add_test(tests, a_copy_without_a_lock_file_is_read_and_gets_none);
    tcase_add_test(tests, whatever_would_write_is_read_only);
    tcase_add_test(tests, read_only_goes_with_no_option_that_makes_a_store);
    tcase_add_test(tests, where_there_is_no_store_nothing_is_made_and_a_headless_one_is_damage);
    tcase_add_test(tests, the_writer_keeps_files_for_readers_and_removes_them_after_the_last_one);
    tcase_add_test(tests, files_kept_go_with_the_next_flush_or_at_close_as_well);
    tcase_add_test(tests, the_next_life_of_the_writer_keeps_them_too);
    tcase_add_test(tests, a_store_that_is_read_is_not_destroyed);
    tcase_add_test(tests, a_table_that_was_removed_behind_a_readers_back_is_stale);
    tcase_add_test(tests, a_refresh_that_misses_a_file_is_stale_and_leaves_the_handle_as_it_was);
    tcase_add_test(tests, a_reader_that_no_writer_knows_of_is_stale_and_never_wrong);
    tcase_add_test(tests, another_store_in_the_place_of_the_one_opened_is_stale);
    tcase_add_test(tests, a_forked_child_cannot_use_the_reader_and_does_not_take_its_lock_along);
    tcase_add_test(tests, a_log_that_was_synced_and_has_changed_is_damage_to_a_reader_too);
    tcase_add_test(tests, a_log_that_a_listing_missed_is_looked_for_again);
    suite_add_tcase(suite, tests);
    return check_run(suite);
}
