/* SPDX-License-Identifier: MIT
 *
 * tests/sstable/test_os_posix.c -- what only the real system can show: locks between processes, forks, mappings
 * of a killed process, media that are read-only or full, links and pipes in place of files.
 *
 * A test that needs a right we may not have (mount, change of user) says so on standard error and skips that part.
 */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sstable/env.h"
#include "sstable/os.h"
#include "tests/support/check_status.h"
#include "tests/support/child.h"
#include "tests/support/temp_dir.h"

static char *scratch;
static char *path; // of the store's directory
static const struct tm_os *os;
static struct tm_fs_posix posix; // mapped logs
static const tamis_fs *fs;
static void *ctx; // of fs
static tamis_dir *dir;
static tamis_error err;

static void
setup(void)
{
    bool created;

    scratch = temp_dir_make();
    path = temp_dir_path(scratch, "db");
    os = tm_os_posix();
    tm_fs_posix_init(&posix, os, tm_allocator_default(), true);
    fs = &posix.fs;
    ctx = fs->ctx;
    check_ok(fs->open_dir(ctx, path, true, &created, &dir, &err), err);
}

static void
teardown(void)
{
    fs->close_dir(ctx, dir);
    free(path);
    temp_dir_remove(scratch);
}

static tamis_status
append_text(tamis_file *file, const char *text)
{
    tamis_slice piece = {text, strlen(text)};

    return fs->append(ctx, file, &piece, 1, &err);
}

static int
skip(const char *what)
{
    fprintf(stderr, "SKIPPED: %s\n", what);
    return CHILD_SKIPPED;
}

/* ---- Locks ------------------------------------------------------------------------------------------------ */

/* Exit code of a process that tries to lock the directory at the path: its tamis_status. */
static int
try_lock_at(void *arg)
{
    tamis_dir *there;
    tamis_lock *lock;
    tamis_status status;
    bool created;

    if (fs->open_dir(ctx, arg, false, &created, &there, &err) != TAMIS_OK)
        return 99;
    status = fs->lock(ctx, there, &lock, &err);
    if (status == TAMIS_OK)
        fs->unlock(ctx, lock);
    fs->close_dir(ctx, there);
    return (int)status;
}

START_TEST(another_process_is_refused_until_unlock)
{
    tamis_lock *lock;

    check_ok(fs->lock(ctx, dir, &lock, &err), err);
    ck_assert_int_eq(child_run(try_lock_at, path, NULL, 0), TAMIS_BUSY);
    fs->unlock(ctx, lock);
    ck_assert_int_eq(child_run(try_lock_at, path, NULL, 0), TAMIS_OK);
}
END_TEST

START_TEST(an_alias_path_is_the_same_store)
{
    char *alias = temp_dir_path(scratch, "alias");
    tamis_lock *second;
    tamis_lock *lock;
    tamis_dir *there;
    bool created;

    ck_assert_int_eq(symlink("db", alias), 0);
    check_ok(fs->lock(ctx, dir, &lock, &err), err);
    check_ok(fs->open_dir(ctx, alias, true, &created, &there, &err), err);
    ck_assert(!created);
    check_status(fs->lock(ctx, there, &second, &err), TAMIS_BUSY, err);
    ck_assert_int_eq(child_run(try_lock_at, alias, NULL, 0), TAMIS_BUSY);
    fs->unlock(ctx, lock);
    check_ok(fs->lock(ctx, there, &second, &err), err);
    fs->unlock(ctx, second);
    fs->close_dir(ctx, there);
    free(alias);
}
END_TEST

/* The directory is renamed while it is open; its files are reached through the descriptor. */
START_TEST(a_renamed_directory_is_the_same_store)
{
    char *moved = temp_dir_path(scratch, "moved");
    tamis_lock *lock;
    tamis_file *file;

    check_ok(fs->lock(ctx, dir, &lock, &err), err);
    ck_assert_int_eq(rename(path, moved), 0);
    check_ok(fs->create(ctx, dir, "000001.wal", TAMIS_FILE_LOG, &file, &err), err);
    check_ok(append_text(file, "abc"), err);
    check_ok(fs->close(ctx, file, &err), err);
    ck_assert_int_eq(child_run(try_lock_at, moved, NULL, 0), TAMIS_BUSY);
    fs->unlock(ctx, lock);
    free(moved);
}
END_TEST

static uint64_t generation; // of the parent

/* In the child: nothing of the parent's is usable, and giving it back harms nobody. */
static int
use_as_child(void *arg)
{
    tamis_lock *lock = arg;
    tamis_lock *second;

    if (os->fork_generation(os->ctx) != generation + 1 || fs->lock_is_ours(ctx, lock))
        return 1;
    if (fs->lock(ctx, dir, &second, &err) != TAMIS_BUSY)
        return 2;
    fs->unlock(ctx, lock);
    if (fs->lock(ctx, dir, &second, &err) != TAMIS_BUSY)
        return 3;
    return 0;
}

START_TEST(a_child_has_no_lock_and_cannot_take_the_parents_away)
{
    tamis_lock *second;
    tamis_lock *lock;

    generation = os->fork_generation(os->ctx);
    check_ok(fs->lock(ctx, dir, &lock, &err), err);
    ck_assert_int_eq(child_run(use_as_child, lock, NULL, 0), 0);
    ck_assert(fs->lock_is_ours(ctx, lock)); // the parent's lock survives the child's end
    check_status(fs->lock(ctx, dir, &second, &err), TAMIS_BUSY, err);
    ck_assert_int_eq(child_run(try_lock_at, path, NULL, 0), TAMIS_BUSY);
    fs->unlock(ctx, lock);
    ck_assert_int_eq(child_run(try_lock_at, path, NULL, 0), TAMIS_OK);
}
END_TEST

static int
look_for_lock_descriptor(void *arg)
{
    int lock_fd = *(int *)arg;

    return fcntl(lock_fd, F_GETFD) < 0 && errno == EBADF ? 0 : 1;
}

/* Exit code of a process that is a reader of the directory when it is asked, and is killed. */
static int
read_and_die(void *arg)
{
    tamis_lock *lock;
    tamis_dir *there;
    bool created;

    if (fs->open_dir(ctx, arg, false, &created, &there, &err) != TAMIS_OK ||
        fs->lock_shared(ctx, there, &lock, &err) != TAMIS_OK)
        return 1;
    (void)raise(SIGKILL);
    return 2;
}

static int
leave_quietly(void *arg)
{
    (void)arg;
    return 0;
}

START_TEST(a_readers_lock_ends_with_its_process_and_not_with_its_child)
{
    tamis_lock *writer;
    tamis_lock *reader;
    bool found = true;

    check_ok(fs->lock(ctx, dir, &writer, &err), err);
    ck_assert_int_eq(child_run(read_and_die, path, NULL, 0), -SIGKILL);
    check_ok(fs->has_readers(ctx, writer, &found, &err), err);
    ck_assert(!found);
    check_ok(fs->lock_shared(ctx, dir, &reader, &err), err);
    ck_assert_int_eq(child_run(leave_quietly, NULL, NULL, 0), 0);
    check_ok(fs->has_readers(ctx, writer, &found, &err), err);
    ck_assert(found); // the child's end freed nothing
    fs->unlock(ctx, reader);
    check_ok(fs->has_readers(ctx, writer, &found, &err), err);
    ck_assert(!found);
    fs->unlock(ctx, writer);
}
END_TEST

START_TEST(a_child_closes_lock_descriptors_but_no_others)
{
    int dir_fd = os->open_dir(os->ctx, path);
    int lock_fd = os->open(os->ctx, dir_fd, "LOCK", TM_OS_CREATE, TM_OS_CLASS_LOCK);

    ck_assert_int_ge(lock_fd, 0);
    ck_assert_int_eq(child_run(look_for_lock_descriptor, &lock_fd, NULL, 0), 0);
    ck_assert_int_eq(child_run(look_for_lock_descriptor, &dir_fd, NULL, 0), 1);
    ck_assert_int_eq(os->lock(os->ctx, lock_fd, TM_OS_LOCK_WRITER), 0);
    ck_assert_int_eq(os->close(os->ctx, lock_fd, TM_OS_CLASS_LOCK), 0);
    ck_assert_int_eq(os->lock(os->ctx, lock_fd, TM_OS_LOCK_WRITER), -EBADF);
    ck_assert_int_eq(os->close(os->ctx, dir_fd, TM_OS_CLASS_DIR), 0);
    ck_assert_int_eq(os->remove_dir(os->ctx, path), -ENOTEMPTY);
}
END_TEST

/* The number of a descriptor that was closed at the fork may stand for something of the child's own. */
static int
reuse_lock_descriptor(void *arg)
{
    int lock_fd = *(int *)arg;

    if (dup2(STDERR_FILENO, lock_fd) != lock_fd)
        return 1;
    if (os->lock(os->ctx, lock_fd, TM_OS_LOCK_WRITER) != -EBADF ||
        os->unlock(os->ctx, lock_fd) != 0 || os->close(os->ctx, lock_fd, TM_OS_CLASS_LOCK) != 0)
        return 2;
    return fcntl(lock_fd, F_GETFD) >= 0 ? 0 : 3;
}

START_TEST(a_child_does_not_touch_what_has_the_number_of_a_lock)
{
    int dir_fd = os->open_dir(os->ctx, path);
    int lock_fd = os->open(os->ctx, dir_fd, "LOCK", TM_OS_CREATE, TM_OS_CLASS_LOCK);

    ck_assert_int_eq(child_run(reuse_lock_descriptor, &lock_fd, NULL, 0), 0);
    ck_assert_int_eq(os->close(os->ctx, lock_fd, TM_OS_CLASS_LOCK), 0);
    ck_assert_int_eq(os->close(os->ctx, dir_fd, TM_OS_CLASS_DIR), 0);
}
END_TEST

/* A process that locks, starts a child of its own that lives on, says so, and is killed. */
static void
lock_and_leave_a_grandchild(int ready, int until)
{
    tamis_lock *lock;
    char byte = 'l';

    if (fs->lock(ctx, dir, &lock, &err) != TAMIS_OK)
        _exit(1);
    if (fork() == 0) {
        if (write(ready, &byte, 1) != 1 || read(until, &byte, 1) < 0)
            _exit(1);
        _exit(0); // the test has closed its end
    }
    for (;;)
        pause();
}

START_TEST(the_end_of_a_process_frees_its_lock_though_its_child_lives)
{
    tamis_lock *lock;
    int ready[2];
    int until[2];
    int state;
    pid_t owner;
    char byte;

    ck_assert_int_eq(pipe(ready), 0);
    ck_assert_int_eq(pipe(until), 0);
    owner = fork();
    if (owner == 0) {
        close(until[1]);
        lock_and_leave_a_grandchild(ready[1], until[0]);
    }
    ck_assert_int_eq(read(ready[0], &byte, 1), 1);
    check_status(fs->lock(ctx, dir, &lock, &err), TAMIS_BUSY, err);
    ck_assert_int_eq(kill(owner, SIGKILL), 0);
    ck_assert_int_eq(waitpid(owner, &state, 0), owner);
    check_ok(fs->lock(ctx, dir, &lock, &err), err); // while the grandchild waits on `until`
    fs->unlock(ctx, lock);
    close(until[1]);
}
END_TEST

/* ---- Mappings ---------------------------------------------------------------------------------------------- */

static int
write_as_child(void *arg)
{
    tamis_file *log = arg;

    if (append_text(log, "child") != TAMIS_INVALID || fs->sync(ctx, log, &err) != TAMIS_INVALID)
        return 1;
    return fs->close(ctx, log, &err) == TAMIS_OK ? 0 : 2;
}

START_TEST(a_fork_beside_a_mapped_log_leaves_it_to_the_parent)
{
    char contents[16] = {0};
    tamis_file *log;
    uint64_t size;

    check_ok(fs->create(ctx, dir, "000001.wal", TAMIS_FILE_LOG, &log, &err), err);
    check_ok(append_text(log, "one "), err);
    ck_assert_int_eq(child_run(write_as_child, log, NULL, 0), 0);
    check_ok(append_text(log, "two"), err);
    check_ok(fs->close(ctx, log, &err), err);
    check_ok(fs->open(ctx, dir, "000001.wal", TAMIS_FILE_LOG, &log, &size, &err), err);
    ck_assert_uint_eq(size, 7);
    check_ok(fs->read_at(ctx, log, 0, contents, 7, &err), err);
    ck_assert_str_eq(contents, "one two");
    check_ok(fs->close(ctx, log, &err), err);
}
END_TEST

static int
append_and_die(void *arg)
{
    tamis_file *log;

    (void)arg;
    if (fs->create(ctx, dir, "000001.wal", TAMIS_FILE_LOG, &log, &err) != TAMIS_OK ||
        append_text(log, "kept without sync") != TAMIS_OK)
        return 1;
    raise(SIGKILL);
    return 2;
}

START_TEST(appended_bytes_survive_a_killed_process)
{
    char contents[32] = {0};
    tamis_file *log;
    uint64_t size;

    ck_assert_int_eq(child_run(append_and_die, NULL, NULL, 0), -SIGKILL);
    check_ok(fs->open(ctx, dir, "000001.wal", TAMIS_FILE_LOG, &log, &size, &err), err);
    ck_assert_uint_ge(size, 17);
    check_ok(fs->read_at(ctx, log, 0, contents, 17, &err), err);
    ck_assert_str_eq(contents, "kept without sync");
    check_ok(fs->close(ctx, log, &err), err);
}
END_TEST

struct mapping {
    void *address;
    size_t length;
};

static int
look_for_mapping(void *arg)
{
    struct mapping *mapping = arg;
    unsigned char resident[16];

    return mincore(mapping->address, mapping->length, resident) != 0 && errno == ENOMEM ? 0 : 1;
}

START_TEST(a_mapping_is_seen_by_reads_and_not_inherited)
{
    struct mapping mapping = {NULL, 65536};
    int dir_fd = os->open_dir(os->ctx, path);
    int fd = os->open(os->ctx, dir_fd, "f", TM_OS_CREATE_NEW, TM_OS_CLASS_LOG);
    char buffer[3];
    int result;

    ck_assert_int_ge(fd, 0);
    result = os->allocate(os->ctx, fd, 0, mapping.length);
    if (result == 0)
        result = os->map(os->ctx, fd, 0, mapping.length, &mapping.address);
    if (result == -EOPNOTSUPP) { // a file system that keeps no stores, or reserves no blocks
        (void)skip("mappings are not kept here");
    } else {
        ck_assert_int_eq(result, 0);
        memcpy((char *)mapping.address + 5000, "abc", 3);
        ck_assert_int_eq(os->pread(os->ctx, fd, buffer, 3, 5000, TM_OS_CLASS_LOG), 3);
        ck_assert_mem_eq(buffer, "abc", 3);
        ck_assert_int_eq(os->pwrite(os->ctx, fd, "xyz", 3, 9000, TM_OS_CLASS_LOG), 3);
        ck_assert_mem_eq((char *)mapping.address + 9000, "xyz", 3);
        ck_assert_int_eq(look_for_mapping(&mapping), 1);
        ck_assert_int_eq(child_run(look_for_mapping, &mapping, NULL, 0), 0);
        ck_assert_int_eq(os->sync(os->ctx, fd, TM_OS_CLASS_LOG), 0);
        ck_assert_int_eq(os->start_writeback(os->ctx, fd, 0, 4096), 0);
        ck_assert_int_eq(os->unmap(os->ctx, mapping.address, mapping.length), 0);
    }
    ck_assert_int_eq(os->truncate(os->ctx, fd, 3, TM_OS_CLASS_LOG), 0);
    ck_assert_int_eq(os->close(os->ctx, fd, TM_OS_CLASS_LOG), 0);
    ck_assert_int_eq(os->close(os->ctx, dir_fd, TM_OS_CLASS_DIR), 0);
}
END_TEST

/* ---- What is not a file ----------------------------------------------------------------------------------------- */

START_TEST(a_symbolic_link_is_not_followed)
{
    char *link = temp_dir_path(path, "000001.sst");
    char *lock_link = temp_dir_path(path, "LOCK");
    tamis_file *file;
    tamis_lock *lock;
    uint64_t size;

    ck_assert_int_eq(symlink("/etc/passwd", link), 0);
    check_status(fs->open(ctx, dir, "000001.sst", TAMIS_FILE_TABLE, &file, &size, &err),
                 TAMIS_CORRUPT, err);
    ck_assert_ptr_nonnull(strstr(err.message, "'000001.sst' in '"));
    ck_assert_ptr_nonnull(strstr(err.message, "' is a symbolic link, expected a regular file"));
    ck_assert_int_eq(err.os_error, 0);
    ck_assert_int_eq(symlink("elsewhere", lock_link), 0);
    check_status(fs->lock(ctx, dir, &lock, &err), TAMIS_IO, err);
    free(link);
    free(lock_link);
}
END_TEST

START_TEST(a_pipe_or_directory_in_place_of_a_file_is_reported_and_does_not_hang)
{
    char *fifo = temp_dir_path(path, "000001.sst");
    char *folder = temp_dir_path(path, "000002.sst");
    tamis_file *file;
    uint64_t size;

    ck_assert_int_eq(mkfifo(fifo, 0600), 0);
    ck_assert_int_eq(mkdir(folder, 0700), 0);
    check_status(fs->open(ctx, dir, "000001.sst", TAMIS_FILE_TABLE, &file, &size, &err),
                 TAMIS_CORRUPT, err);
    check_status(fs->open(ctx, dir, "000002.sst", TAMIS_FILE_TABLE, &file, &size, &err),
                 TAMIS_CORRUPT, err);
    ck_assert_ptr_nonnull(strstr(err.message, "is a directory, expected a regular file"));
    free(fifo);
    free(folder);
}
END_TEST

/* ---- Rights, read-only and full media ------------------------------------------------------------------------------ */

/* As a user who may do nothing here. */
static int
try_without_rights(void *arg)
{
    tamis_lock *lock;
    tamis_file *file;
    tamis_dir *there;
    bool created;
    char *inside = temp_dir_path(path, "store");

    (void)arg;
    if (geteuid() == 0 && (setgid(65534) != 0 || setuid(65534) != 0))
        return skip("cannot become another user");
    if (fs->lock(ctx, dir, &lock, &err) != TAMIS_IO || err.os_error != EACCES)
        return 1;
    if (strstr(err.message, "Permission denied") == NULL)
        return 2;
    if (fs->create(ctx, dir, "000001.sst", TAMIS_FILE_TABLE, &file, &err) != TAMIS_IO)
        return 3;
    if (fs->replace(ctx, dir, "CURRENT", (tamis_slice){"x", 1}, &err) != TAMIS_IO)
        return 4;
    if (fs->open_dir(ctx, inside, true, &created, &there, &err) != TAMIS_IO || created)
        return 5;
    free(inside);
    return 0;
}

START_TEST(missing_permission_is_an_error_that_says_so)
{
    int end;

    ck_assert_int_eq(chmod(scratch, 0755), 0);
    ck_assert_int_eq(chmod(path, 0555), 0);
    end = child_run(try_without_rights, NULL, NULL, 0);
    ck_assert(end == 0 || end == CHILD_SKIPPED);
}
END_TEST

/* A parent that may be written but not read: the name of a new directory is made durable another way. */
static int
create_in_unreadable_parent(void *arg)
{
    char *inside = temp_dir_path(path, "store");
    tamis_dir *there;
    bool created;

    (void)arg;
    if (geteuid() == 0 && (setgid(65534) != 0 || setuid(65534) != 0))
        return skip("cannot become another user");
    if (fs->open_dir(ctx, inside, true, &created, &there, &err) != TAMIS_OK || !created) {
        fprintf(stderr, "%s\n", err.message);
        return 1;
    }
    fs->close_dir(ctx, there);
    free(inside);
    return 0;
}

START_TEST(a_parent_without_read_permission_is_no_obstacle)
{
    int end;

    ck_assert_int_eq(chmod(scratch, 0755), 0);
    ck_assert_int_eq(chmod(path, 0333), 0);
    end = child_run(create_in_unreadable_parent, NULL, NULL, 0);
    ck_assert(end == 0 || end == CHILD_SKIPPED);
}
END_TEST

/* A mount name space of our own, so that mounts vanish with the process. */
static bool
own_mounts(void)
{
    return unshare(CLONE_NEWNS) == 0 && mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0;
}

static int
use_read_only_medium(void *arg)
{
    tamis_lock *lock;
    tamis_file *file;
    tamis_dir *there;
    bool created;
    uint64_t size;

    (void)arg;
    if (!own_mounts() || mount(path, path, NULL, MS_BIND, NULL) != 0 ||
        mount(NULL, path, NULL, MS_BIND | MS_REMOUNT | MS_RDONLY, NULL) != 0)
        return skip("cannot mount");
    if (fs->open_dir(ctx, path, false, &created, &there, &err) != TAMIS_OK)
        return 1;
    if (fs->lock(ctx, there, &lock, &err) != TAMIS_IO || err.os_error != EROFS)
        return 2;
    if (strstr(err.message, "Read-only file system") == NULL)
        return 3;
    if (fs->replace(ctx, there, "CURRENT", (tamis_slice){"x", 1}, &err) != TAMIS_IO)
        return 4;
    if (fs->open(ctx, there, "CURRENT", TAMIS_FILE_CURRENT, &file, &size, &err) != TAMIS_OK)
        return 5;
    if (size != 3 || fs->close(ctx, file, &err) != TAMIS_OK)
        return 6;
    fs->close_dir(ctx, there);
    return 0;
}

START_TEST(a_read_only_medium_is_an_error_that_says_so_and_can_be_read)
{
    int end;

    check_ok(fs->replace(ctx, dir, "CURRENT", (tamis_slice){"abc", 3}, &err), err);
    end = child_run(use_read_only_medium, NULL, NULL, 0);
    ck_assert(end == 0 || end == CHILD_SKIPPED);
}
END_TEST

/* Append records until there is no space; all that were acknowledged must be in the file. */
static int
fill(tamis_dir *where)
{
    static char record[1000];
    static char back[sizeof record];
    tamis_slice piece = {record, sizeof record};
    size_t acknowledged = 0;
    tamis_status status;
    tamis_file *log;
    uint64_t size;

    if (fs->create(ctx, where, "000001.wal", TAMIS_FILE_LOG, &log, &err) != TAMIS_OK)
        return 10;
    do {
        memset(record, 'a' + (int)(acknowledged % 26), sizeof record);
        status = fs->append(ctx, log, &piece, 1, &err);
        acknowledged += status == TAMIS_OK;
    } while (status == TAMIS_OK);
    if (status != TAMIS_NO_SPACE || acknowledged < 100) {
        fprintf(stderr, "%zu records, %s\n", acknowledged, err.message);
        return 11;
    }
    if (fs->close(ctx, log, &err) != TAMIS_OK)
        return 12;
    if (fs->open(ctx, where, "000001.wal", TAMIS_FILE_LOG, &log, &size, &err) != TAMIS_OK ||
        size < acknowledged * sizeof record)
        return 13;
    for (size_t i = 0; i < acknowledged; i++) {
        memset(record, 'a' + (int)(i % 26), sizeof record);
        if (fs->read_at(ctx, log, i * sizeof back, back, sizeof back, &err) != TAMIS_OK ||
            memcmp(record, back, sizeof back) != 0)
            return 14;
    }
    return fs->close(ctx, log, &err) == TAMIS_OK ? 0 : 15;
}

/* Mapping a hole larger than the medium: an error, where a later store would be a signal. */
static int
map_more_than_there_is(void)
{
    const uint64_t bytes = 4 << 20;
    int dir_fd = os->open_dir(os->ctx, path);
    int fd = os->open(os->ctx, dir_fd, "hole", TM_OS_CREATE_NEW, TM_OS_CLASS_LOG);
    void *address;
    int result = 0;

    if (os->truncate(os->ctx, fd, bytes, TM_OS_CLASS_LOG) != 0)
        result = 20;
    else if (os->map(os->ctx, fd, 0, bytes, &address) == 0)
        result = 21;
    (void)os->close(os->ctx, fd, TM_OS_CLASS_LOG);
    (void)os->remove(os->ctx, dir_fd, "hole", TM_OS_CLASS_LOG);
    (void)os->close(os->ctx, dir_fd, TM_OS_CLASS_DIR);
    return result;
}

static int
fill_a_small_medium(void *arg)
{
    tamis_file *file;
    tamis_dir *there;
    bool created;
    int result;

    (void)arg;
    if (!own_mounts() || mount("none", path, "tmpfs", 0, "size=1500k") != 0)
        return skip("cannot mount");
    if (fs->open_dir(ctx, path, false, &created, &there, &err) != TAMIS_OK)
        return 1;
    result = map_more_than_there_is();
    if (result == 0)
        result = fill(there);
    // Space freed is space again.
    if (result == 0 &&
        (fs->remove(ctx, there, "000001.wal", &err) != TAMIS_OK ||
         fs->create(ctx, there, "000002.wal", TAMIS_FILE_LOG, &file, &err) != TAMIS_OK ||
         append_text(file, "again") != TAMIS_OK || fs->close(ctx, file, &err) != TAMIS_OK))
        result = 2;
    fs->close_dir(ctx, there);
    return result;
}

START_TEST(a_full_medium_is_no_space_and_no_signal)
{
    int end = child_run(fill_a_small_medium, NULL, NULL, 0);

    ck_assert_msg(end == 0 || end == CHILD_SKIPPED, "the child ended with %d", end);
}
END_TEST

static int
fill_to_a_limit(void *arg)
{
    struct rlimit limit = {300000, 300000};

    (void)arg;
    signal(SIGXFSZ, SIG_IGN);
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0)
        return skip("cannot limit file sizes");
    return fill(dir);
}

START_TEST(a_limit_of_file_size_is_no_space)
{
    int end = child_run(fill_to_a_limit, NULL, NULL, 0);

    ck_assert_msg(end == 0 || end == CHILD_SKIPPED, "the child ended with %d", end);
}
END_TEST

static int
open_without_descriptors(void *arg)
{
    struct rlimit limit = {3, 3};
    tamis_dir *there;
    tamis_file *file;
    bool created;

    (void)arg;
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0)
        return skip("cannot limit descriptors");
    if (fs->open_dir(ctx, path, false, &created, &there, &err) != TAMIS_IO ||
        err.os_error != EMFILE)
        return 1;
    if (fs->create(ctx, dir, "000001.sst", TAMIS_FILE_TABLE, &file, &err) != TAMIS_IO ||
        err.os_error != EMFILE)
        return 2;
    return 0;
}

START_TEST(too_many_open_files_is_an_error_that_says_so)
{
    ck_assert_int_eq(child_run(open_without_descriptors, NULL, NULL, 0), 0);
}
END_TEST

START_TEST(the_default_file_system_is_ready_without_preparation)
{
    const tamis_fs *standard = tamis_fs_posix();
    tamis_dir *there;
    bool created;

    ck_assert_ptr_eq(standard, tamis_fs_posix());
    ck_assert_uint_eq(standard->struct_size, sizeof(tamis_fs));
    check_ok(standard->open_dir(standard->ctx, path, false, &created, &there, &err), err);
    standard->close_dir(standard->ctx, there);
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("os_posix");
    TCase *locks = tcase_create("locks");
    TCase *mappings = tcase_create("mappings");
    TCase *media = tcase_create("media");

    tcase_set_timeout(locks, 0);
    tcase_add_checked_fixture(locks, setup, teardown);
    tcase_add_test(locks, another_process_is_refused_until_unlock);
    tcase_add_test(locks, an_alias_path_is_the_same_store);
    tcase_add_test(locks, a_renamed_directory_is_the_same_store);
    tcase_add_test(locks, a_child_has_no_lock_and_cannot_take_the_parents_away);
    tcase_add_test(locks, a_readers_lock_ends_with_its_process_and_not_with_its_child);
    tcase_add_test(locks, a_child_closes_lock_descriptors_but_no_others);
    tcase_add_test(locks, a_child_does_not_touch_what_has_the_number_of_a_lock);
    tcase_add_test(locks, the_end_of_a_process_frees_its_lock_though_its_child_lives);
    suite_add_tcase(suite, locks);

    tcase_set_timeout(mappings, 0);
    tcase_add_checked_fixture(mappings, setup, teardown);
    tcase_add_test(mappings, a_fork_beside_a_mapped_log_leaves_it_to_the_parent);
    tcase_add_test(mappings, appended_bytes_survive_a_killed_process);
    tcase_add_test(mappings, a_mapping_is_seen_by_reads_and_not_inherited);
    suite_add_tcase(suite, mappings);

    tcase_set_timeout(media, 0);
    tcase_add_checked_fixture(media, setup, teardown);
    tcase_add_test(media, a_symbolic_link_is_not_followed);
    tcase_add_test(media, a_pipe_or_directory_in_place_of_a_file_is_reported_and_does_not_hang);
    tcase_add_test(media, missing_permission_is_an_error_that_says_so);
    tcase_add_test(media, a_parent_without_read_permission_is_no_obstacle);
    tcase_add_test(media, a_read_only_medium_is_an_error_that_says_so_and_can_be_read);
    tcase_add_test(media, a_full_medium_is_no_space_and_no_signal);
    tcase_add_test(media, a_limit_of_file_size_is_no_space);
    tcase_add_test(media, too_many_open_files_is_an_error_that_says_so);
    tcase_add_test(media, the_default_file_system_is_ready_without_preparation);
    suite_add_tcase(suite, media);
    return check_run(suite);
}
