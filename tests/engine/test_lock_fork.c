/* SPDX-License-Identifier: MIT
 *
 * tests/engine/test_lock_fork.c -- one process at a time has a store open, whatever the path, the failed attempts and
 * the forks; and a child made by fork() is told so instead of touching what is its parent's.
 */
#include <check.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <tamis/tamis.h>

#include "tests/support/check_status.h"
#include "tests/support/child.h"
#include "tests/support/temp_dir.h"

// A child of a process with threads may find a sanitizer's own memory locked, and not start threads.
#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
static const bool child_may_open = false;
#else
static const bool child_may_open = true;
#endif

static char *scratch;
static char *path;  // of the store
static char *alias; // a symbolic link to it
static tamis_db *db;
static tamis_error err;

/* Another process, forked before the store is opened: it tries to open what it is asked for. */
static struct opener {
    int ask;    // paths, each with its 0
    int answer; // a byte each: tamis_status
    pid_t process;
} opener;

static tamis_status
open_at(const char *where, bool create, tamis_db **db_out)
{
    tamis_options options;

    tamis_options_init(&options);
    options.create_if_missing = create;
    options.write_buffer_bytes = 64 << 10;
    return tamis_open(where, &options, db_out, &err);
}

/* Exit code of a process that tries to open the store at the path: its tamis_status. */
static int
try_open(void *arg)
{
    tamis_db *other = NULL;
    tamis_status status = open_at(arg, false, &other);

    if (status == TAMIS_OK)
        status = tamis_close(other, &err);
    return (int)status;
}

static void
run_opener(int ask, int answer)
{
    char wanted[PATH_MAX];
    ssize_t length;

    while ((length = read(ask, wanted, sizeof wanted)) > 0) {
        unsigned char status = (unsigned char)try_open(wanted);

        if (write(answer, &status, 1) != 1)
            _exit(EXIT_FAILURE);
    }
    _exit(EXIT_SUCCESS);
}

static void
start_opener(void)
{
    int ask[2];
    int answer[2];

    ck_assert(pipe(ask) == 0 && pipe(answer) == 0);
    fflush(NULL);
    opener.process = fork();
    ck_assert_int_ge(opener.process, 0);
    if (opener.process == 0) {
        close(ask[1]);
        close(answer[0]);
        if (chdir(scratch) != 0)
            _exit(EXIT_FAILURE);
        run_opener(ask[0], answer[1]);
    }
    close(ask[0]);
    close(answer[1]);
    opener.ask = ask[1];
    opener.answer = answer[0];
}

static void
stop_opener(void)
{
    int state;

    close(opener.ask);
    close(opener.answer);
    ck_assert_int_eq(waitpid(opener.process, &state, 0), opener.process);
}

/* What another process gets when it opens (and closes) the store at `where`. */
static tamis_status
open_elsewhere(const char *where)
{
    unsigned char status = 0;

    ck_assert_int_eq(write(opener.ask, where, strlen(where) + 1), (ssize_t)strlen(where) + 1);
    ck_assert_int_eq(read(opener.answer, &status, 1), 1);
    return (tamis_status)status;
}

static void
setup(void)
{
    scratch = temp_dir_make();
    start_opener();
    path = temp_dir_path(scratch, "db");
    alias = temp_dir_path(scratch, "alias");
    check_ok(open_at(path, true, &db), err);
    ck_assert_int_eq(symlink("db", alias), 0);
}

static void
teardown(void)
{
    check_ok(tamis_close(db, &err), err);
    stop_opener();
    free(alias);
    free(path);
    temp_dir_remove(scratch);
}

static void
put_number(tamis_db *to, int number)
{
    char key[16];

    snprintf(key, sizeof key, "%04d", number);
    check_ok(tamis_put(to, NULL, tamis_text(key), tamis_text("value"), &err), err);
}

static int
count_keys(tamis_db *in)
{
    tamis_iter *iter = NULL;
    int count = 0;

    check_ok(tamis_iter_open(in, NULL, &iter, &err), err);
    for (tamis_iter_first(iter); tamis_iter_valid(iter); tamis_iter_next(iter))
        count++;
    check_ok(tamis_iter_status(iter, &err), err);
    tamis_iter_close(iter);
    return count;
}

/* ---- Locks ---------------------------------------------------------------------------------------- */

static void
expect_busy_everywhere(void)
{
    char *dotted = temp_dir_path(scratch, "./db/");
    char *paths[] = {path, alias, dotted};

    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
        tamis_db *other = db;

        check_status(open_at(paths[i], true, &other), TAMIS_BUSY, err);
        ck_assert_ptr_null(other);
        ck_assert_int_eq(err.code, TAMIS_BUSY);
        ck_assert_int_eq(open_elsewhere(paths[i]), TAMIS_BUSY);
    }
    free(dotted);
}

START_TEST(a_second_opener_is_refused_by_every_path_and_does_not_weaken_the_lock)
{
    expect_busy_everywhere();
    expect_busy_everywhere(); // the failed attempts changed nothing
    for (int i = 0; i < 10; i++)
        put_number(db, i);
    check_ok(tamis_close(db, &err), err);
    db = NULL;
    ck_assert_int_eq(open_elsewhere(alias), TAMIS_OK);
    check_ok(open_at(alias, false, &db), err);
    ck_assert_int_eq(count_keys(db), 10);
    expect_busy_everywhere();
}
END_TEST

START_TEST(a_relative_path_is_the_same_store_and_a_later_working_directory_does_not_matter)
{
    ck_assert_int_eq(open_elsewhere("db"), TAMIS_BUSY); // it stands in the scratch directory
    check_ok(tamis_close(db, &err), err);
    ck_assert_int_eq(chdir(scratch), 0);
    check_ok(open_at("db", false, &db), err);
    ck_assert_int_eq(chdir("/"), 0);
    put_number(db, 1);
    check_ok(tamis_flush(db, &err), err);
    check_ok(tamis_compact_range(db, NULL, NULL, &err), err);
    ck_assert_int_eq(count_keys(db), 1);
    expect_busy_everywhere();
}
END_TEST

START_TEST(a_refused_opener_changes_nothing_of_the_open_store)
{
    put_number(db, 1);
    ck_assert_int_eq(open_elsewhere(path), TAMIS_BUSY);
    check_ok(tamis_flush(db, &err), err);
    ck_assert_int_eq(open_elsewhere(path), TAMIS_BUSY);
    put_number(db, 2);
    ck_assert_int_eq(count_keys(db), 2);
    check_ok(tamis_verify(db, NULL, NULL, &err), err);
}
END_TEST

static int
open_and_die(void *arg)
{
    tamis_db *own = NULL;

    if (open_at(arg, false, &own) != TAMIS_OK ||
        tamis_put(own, NULL, tamis_text("last"), tamis_text("word"), &err) != TAMIS_OK)
        return 1;
    (void)raise(SIGKILL);
    return 2;
}

START_TEST(the_lock_of_a_killed_process_is_free)
{
    check_ok(tamis_close(db, &err), err);
    ck_assert_int_eq(child_run(open_and_die, path, NULL, 0), -SIGKILL);
    check_ok(open_at(path, false, &db), err);
    ck_assert_int_eq(count_keys(db), 1);
}
END_TEST

/* ---- Forks ---------------------------------------------------------------------------------------- */

/* What the parent holds when it forks. */
static tamis_iter *held_iter;
static tamis_snapshot *held_snapshot;
static tamis_pinned held_value;
static tamis_batch *held_batch;

static void
hold_handles(void)
{
    put_number(db, 1);
    put_number(db, 2);
    check_ok(tamis_flush(db, &err), err);
    put_number(db, 3);
    check_ok(tamis_iter_open(db, NULL, &held_iter, &err), err);
    tamis_iter_first(held_iter);
    check_ok(tamis_snapshot_take(db, &held_snapshot, &err), err);
    check_ok(tamis_get_pinned(db, NULL, tamis_text("0001"), &held_value, &err), err);
    check_ok(tamis_batch_create(NULL, &held_batch, &err), err);
    check_ok(tamis_batch_put(held_batch, tamis_text("b"), tamis_text("v"), &err), err);
}

static void
release_handles(void)
{
    tamis_iter_close(held_iter);
    tamis_snapshot_release(db, held_snapshot);
    tamis_pinned_release(&held_value);
    tamis_batch_destroy(held_batch);
}

static bool
ignore_table(void *arg, const tamis_table_stats *table)
{
    (void)arg;
    (void)table;
    return true;
}

#define refused(call)                                                                              \
    do {                                                                                           \
        if ((call) != TAMIS_INVALID) {                                                             \
            fprintf(stderr, "not refused: %s\n", #call);                                           \
            return 1;                                                                              \
        }                                                                                          \
    } while (0)

static int
call_everything(void *arg)
{
    tamis_slice key = tamis_text("0001");
    tamis_iter *iter = NULL;
    tamis_snapshot *snapshot = NULL;
    tamis_pinned pinned;
    tamis_stats stats;
    char buffer[8];
    size_t length;
    bool answer;

    (void)arg;
    tamis_stats_init(&stats);
    refused(tamis_put(db, NULL, key, key, &err));
    refused(tamis_delete(db, NULL, key, &err));
    refused(tamis_write(db, NULL, held_batch, &err));
    refused(tamis_get(db, NULL, key, buffer, sizeof buffer, &length, &err));
    refused(tamis_get_pinned(db, NULL, key, &pinned, &err));
    refused(tamis_exists(db, NULL, key, &answer, &err));
    refused(tamis_may_exist(db, key, &answer, &err));
    refused(tamis_snapshot_take(db, &snapshot, &err));
    refused(tamis_iter_open(db, NULL, &iter, &err));
    tamis_iter_next(held_iter);
    refused(tamis_iter_status(held_iter, &err));
    tamis_iter_first(held_iter);
    refused(tamis_iter_status(held_iter, &err));
    tamis_iter_seek(held_iter, key);
    refused(tamis_iter_status(held_iter, &err));
    if (tamis_iter_valid(held_iter))
        return 2;
    refused(tamis_flush(db, &err));
    refused(tamis_compact_range(db, NULL, NULL, &err));
    refused(tamis_wait_idle(db, &err));
    refused(tamis_verify(db, NULL, NULL, &err));
    refused(tamis_checkpoint(db, "nowhere", &err));
    refused(tamis_refresh(db, &err));
    refused(tamis_get_stats(db, &stats, &err));
    refused(tamis_visit_tables(db, ignore_table, NULL, &err));
    tamis_iter_close(held_iter);
    tamis_snapshot_release(db, held_snapshot);
    tamis_pinned_release(&held_value);
    refused(tamis_close(db, &err));
    if (strstr(err.message, "fork()") == NULL)
        return 3;
    // Opening anew is what a child may do, once the parent is done.
    return !child_may_open || try_open(path) == TAMIS_BUSY ? 0 : 4;
}

START_TEST(a_forked_child_is_refused_by_every_call_and_the_parent_goes_on)
{
    hold_handles();
    ck_assert_int_eq(child_run(call_everything, NULL, NULL, 0), 0);
    expect_busy_everywhere(); // the child's end freed nothing
    ck_assert(tamis_iter_valid(held_iter));
    tamis_iter_next(held_iter);
    ck_assert(tamis_iter_valid(held_iter));
    ck_assert_mem_eq(tamis_iter_key(held_iter).data, "0002", 4);
    ck_assert_mem_eq(held_value.value.data, "value", 5);
    check_ok(tamis_write(db, NULL, held_batch, &err), err);
    release_handles();
    check_ok(tamis_compact_range(db, NULL, NULL, &err), err);
    check_ok(tamis_verify(db, NULL, NULL, &err), err);
    ck_assert_int_eq(count_keys(db), 4);
    check_ok(tamis_close(db, &err), err);
    check_ok(open_at(path, false, &db), err);
    ck_assert_int_eq(count_keys(db), 4);
}
END_TEST

static int
leave_without_a_word(void *arg)
{
    (void)arg;
    return 0;
}

START_TEST(the_exit_of_a_child_does_not_free_the_lock)
{
    for (int i = 0; i < 10; i++) {
        ck_assert_int_eq(child_run(leave_without_a_word, NULL, NULL, 0), 0);
        put_number(db, i);
    }
    expect_busy_everywhere();
    ck_assert_int_eq(count_keys(db), 10);
}
END_TEST

static int
use_own_store(void *arg)
{
    tamis_db *own = NULL;

    if (!child_may_open)
        return CHILD_SKIPPED;
    if (open_at(arg, true, &own) != TAMIS_OK)
        return 1;
    put_number(own, 1);
    if (tamis_put(db, NULL, tamis_text("k"), tamis_text("v"), &err) != TAMIS_INVALID)
        return 2;
    if (count_keys(own) != 1)
        return 3;
    return (int)tamis_close(own, &err);
}

START_TEST(a_child_can_have_a_store_of_its_own)
{
    char *other = temp_dir_path(scratch, "other");

    int end = child_run(use_own_store, other, NULL, 0);

    put_number(db, 1);
    if (end == CHILD_SKIPPED) {
        fprintf(stderr, "SKIPPED: a child cannot open a store under this sanitizer\n");
    } else {
        ck_assert_int_eq(end, 0);
        ck_assert_int_eq(open_elsewhere(other), TAMIS_OK);
    }
    free(other);
}
END_TEST

START_TEST(a_child_made_after_close_can_open_the_store)
{
    put_number(db, 1);
    check_ok(tamis_close(db, &err), err);
    ck_assert_int_eq(child_run(try_open, path, NULL, 0), TAMIS_OK);
    check_ok(open_at(path, false, &db), err);
    ck_assert_int_eq(count_keys(db), 1);
}
END_TEST

/* A process that opens the store and becomes a daemon too late: the grandchild is told, and the store is free. */
struct daemon {
    int ready; // the grandchild writes its byte here
    int until; // and lives until this ends,
    int other; // whose other end is the test's
};

static int
become_daemon(void *arg)
{
    const struct daemon *ends = arg;
    tamis_db *own = NULL;

    close(ends->other);
    if (open_at(path, false, &own) != TAMIS_OK)
        return 1;
    put_number(own, 1);
    if (fork() != 0)
        _exit(0); // without closing
    if (fork() != 0)
        _exit(0);
    {
        tamis_status status = tamis_put(own, NULL, tamis_text("k"), tamis_text("v"), &err);
        char byte = status == TAMIS_INVALID ? 'i' : 'x';

        if (write(ends->ready, &byte, 1) != 1 || read(ends->until, &byte, 1) < 0)
            _exit(1);
    }
    _exit(0);
}

START_TEST(a_process_that_opens_and_then_becomes_a_daemon_is_told_and_frees_the_store)
{
    int ready[2];
    int until[2];
    struct daemon ends;
    char byte = 0;

    check_ok(tamis_close(db, &err), err);
    db = NULL;
    ck_assert_int_eq(pipe(ready), 0);
    ck_assert_int_eq(pipe(until), 0);
    ends = (struct daemon){ready[1], until[0], until[1]};
    ck_assert_int_eq(child_run(become_daemon, &ends, NULL, 0), 0);
    ck_assert_int_eq(read(ready[0], &byte, 1), 1);
    ck_assert_int_eq(byte, 'i');
    check_ok(open_at(path, false, &db), err); // while the grandchild lives
    put_number(db, 2);
    ck_assert_int_eq(count_keys(db), 2);
    close(until[1]);
    close(until[0]);
    close(ready[0]);
    close(ready[1]);
}
END_TEST

/* ---- Forks beside work ---------------------------------------------------------------------------- */

static _Atomic bool stop_writing;

static void *
write_until_stopped(void *arg)
{
    int number = 0;
    tamis_error failure;

    (void)arg;
    while (!atomic_load(&stop_writing)) {
        char key[16];
        char value[500] = {0};
        tamis_slice bytes = {value, sizeof value};
        tamis_status status;

        snprintf(key, sizeof key, "%04d", number++ % 1000);
        status = tamis_put(db, NULL, tamis_text(key), bytes, &failure);
        ck_assert_msg(status == TAMIS_OK, "%s", failure.message);
    }
    return NULL;
}

static int
call_everything_soon(void *arg)
{
    alarm(60); // a call that waits for a lock nobody holds here would wait for ever
    return call_everything(arg);
}

START_TEST(a_child_forked_in_the_middle_of_work_does_not_wait_for_anything)
{
    pthread_t writers[2];

    hold_handles();
    for (int i = 0; i < 2; i++)
        ck_assert_int_eq(pthread_create(&writers[i], NULL, write_until_stopped, NULL), 0);
    for (int i = 0; i < 100; i++)
        ck_assert_int_eq(child_run(call_everything_soon, NULL, NULL, 0), 0);
    atomic_store(&stop_writing, true);
    for (int i = 0; i < 2; i++)
        pthread_join(writers[i], NULL);
    release_handles();
    check_ok(tamis_verify(db, NULL, NULL, &err), err);
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("lock_fork");
    TCase *tests = tcase_create("lock_fork");

    tcase_set_timeout(tests, 0);
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_test(tests, a_second_opener_is_refused_by_every_path_and_does_not_weaken_the_lock);
    tcase_add_test(tests,
                   a_relative_path_is_the_same_store_and_a_later_working_directory_does_not_matter);
    tcase_add_test(tests, a_refused_opener_changes_nothing_of_the_open_store);
    tcase_add_test(tests, the_lock_of_a_killed_process_is_free);
    tcase_add_test(tests, a_forked_child_is_refused_by_every_call_and_the_parent_goes_on);
    tcase_add_test(tests, the_exit_of_a_child_does_not_free_the_lock);
    tcase_add_test(tests, a_child_can_have_a_store_of_its_own);
    tcase_add_test(tests, a_child_made_after_close_can_open_the_store);
    tcase_add_test(tests,
                   a_process_that_opens_and_then_becomes_a_daemon_is_told_and_frees_the_store);
    tcase_add_test(tests, a_child_forked_in_the_middle_of_work_does_not_wait_for_anything);
    suite_add_tcase(suite, tests);
    return check_run(suite);
}
