/* SPDX-License-Identifier: MIT
 *
 * sstable/fs_posix.c -- the tamis_fs contract, composed of the calls in a tm_os.
 *
 *   create                 open exclusively
 *   sync                   sync file; the first time the directory, too
 *   seal                   trim, sync file, sync directory
 *   replace NAME           write NAME.tmp, sync it, rename to NAME, sync directory
 *   append, written        small pieces gathered, pwrite at the known length
 *   append, mapped         copy into a mapping of the next step of the file:
 *
 *     0        64K            192K                    448K
 *     |--step--|-----step-----|---------step----------|        steps double up to 1 MiB
 *     [ appended records ......... ][ zeros           ]
 *                                   ^ length           ^ end of the allocated file, trimmed at seal and close
 *
 * Invariants
 *   F1  Bytes are with the kernel when append returns, for every kind of file: nothing is buffered here. Who
 *       wants large writes hands over many pieces, or large ones.
 *   F2  `length` counts the bytes appended; the file is longer only between map_next_step() and trim().
 *   F3  A failed append or sync is final for that file: part of the bytes may be there, and after a failed
 *       sync the kernel may forget dirty pages, so that a later success would prove nothing.
 *   F4  A piece longer than the next step is written by pwrite, also into a file that is otherwise mapped; both
 *       ways see the same page cache. After a failure to allocate or map, the rest of that log is written.
 *   F5  LOCK is removed only by the holder of its lock, and a lock counts only while LOCK still has a name.
 *       A reader makes no LOCK: where there is none there is no writer, and one that comes later is not told of it.
 *   F6  Through a file or lock that it inherited a forked child changes nothing: not a byte, not a length, not a lock.
 *
 * Threads  one appender a file; sync() of that file beside it touches only what never changes and two atomic flags.
 *          Everything else from any thread. A directory outlives its files and its lock.
 * Not here: system calls (os_posix.c); what is in the files.
 */
#include "sstable/os.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "sstable/env.h"
#include "sstable/status.h"

enum {
    /* Each doubling halves the cost of mapping again; the first is small because many stores stay small, the last
     * bounds what one log reserves, and what one sync may find dirty. A step is a multiple of any page size. */
    STEP_FIRST = 64 << 10,
    STEP_MAX = 1 << 20,
    /* Written back in the background, so that a sync finds little to do. Large enough to cost nothing. */
    PUSH_BYTES = 1 << 20,
    PAGE_BYTES = 4096, // only whole pages are pushed: the last one will be written again
    /* A record is a header and a payload; gathered they are one pwrite. Beyond this the copy costs more than a call. */
    GATHER_BYTES = 8 << 10,
    /* A profiling timer may interrupt a call several times; a hundred times in a row is a fault. */
    INTERRUPTIONS_MAX = 100,
    /* Only a store that is destroyed again and again at this very moment makes locking start over. */
    LOCK_ATTEMPTS_MAX = 16,
    NAME_BYTES_MAX = 255, // what Linux file systems take
    SHOWN_BYTES = 120,    // of a path in a message: a message has 256
};

static const char lock_name[] = "LOCK";
static const char temporary_suffix[] = ".tmp";

struct tamis_dir {
    int fd;
    char shown[SHOWN_BYTES]; // the end of its path, fit for a message
};

struct tamis_lock {
    tamis_dir *dir;
    int fd;       // -1: a reader of a directory that has no LOCK, or where nothing can be locked
    bool created; // LOCK was not there before
    uint64_t fork_generation;
};

struct tamis_file {
    // Immutable after open
    tamis_dir *dir;
    int fd;
    enum tm_os_class file_class;
    bool appending;
    uint64_t fork_generation;
    size_t struct_bytes; // of this allocation

    // Any thread
    _Atomic bool sync_failed; // F3
    _Atomic bool is_named;    // durably, in its directory

    // Owned by the appender
    uint64_t length; // bytes appended
    uint64_t pushed; // bytes given to start_writeback
    bool append_failed;
    bool sealed;
    bool map_wanted;
    bool extended; // the file may be longer than `length` (F2)
    uint8_t *map;  // NULL, or the bytes map_offset .. map_offset + map_bytes - 1 of the file
    uint64_t map_offset;
    size_t map_bytes;
    size_t step_bytes; // of the next mapping

    char name[];
};

/* ---- Calls, repeated when a signal interrupts them ---------------------------------------------------- */

static bool
interrupted(int64_t result, int *times)
{
    return result == -EINTR && ++*times < INTERRUPTIONS_MAX;
}

static int
open_directory(const struct tm_os *os, const char *path)
{
    int times = 0;
    int result;

    do {
        result = os->open_dir(os->ctx, path);
    } while (interrupted(result, &times));
    return result;
}

static int
sync_parent(const struct tm_os *os, const char *path)
{
    int times = 0;
    int result;

    do {
        result = os->sync_parent(os->ctx, path);
    } while (interrupted(result, &times));
    return result;
}

static int
open_file(const struct tm_os *os, int dir, const char *name, int flags, enum tm_os_class file_class)
{
    int times = 0;
    int result;

    do {
        result = os->open(os->ctx, dir, name, flags, file_class);
    } while (interrupted(result, &times));
    return result;
}

static int
sync_file(const struct tm_os *os, int fd, enum tm_os_class file_class)
{
    int times = 0;
    int result;

    do {
        result = os->sync(os->ctx, fd, file_class);
    } while (interrupted(result, &times));
    return result;
}

static int
sync_directory(const struct tm_os *os, int dir)
{
    int times = 0;
    int result;

    do {
        result = os->sync_dir(os->ctx, dir);
    } while (interrupted(result, &times));
    return result;
}

static int
truncate_file(const struct tm_os *os, int fd, uint64_t size, enum tm_os_class file_class)
{
    int times = 0;
    int result;

    do {
        result = os->truncate(os->ctx, fd, size, file_class);
    } while (interrupted(result, &times));
    return result;
}

static int
allocate_blocks(const struct tm_os *os, int fd, uint64_t offset, uint64_t length)
{
    int times = 0;
    int result;

    do {
        result = os->allocate(os->ctx, fd, offset, length);
    } while (interrupted(result, &times));
    return result;
}

static int
take_lock(const struct tm_os *os, int fd, enum tm_os_lock lock)
{
    int times = 0;
    int result;

    do {
        result = os->lock(os->ctx, fd, lock);
    } while (interrupted(result, &times));
    return result;
}

static int
rename_file(const struct tm_os *os, int dir, const char *from, const char *to)
{
    int times = 0;
    int result;

    do {
        result = os->rename(os->ctx, dir, from, to);
    } while (interrupted(result, &times));
    return result;
}

static int
remove_file(const struct tm_os *os, int dir, const char *name, enum tm_os_class file_class)
{
    int times = 0;
    int result;

    do {
        result = os->remove(os->ctx, dir, name, file_class);
    } while (interrupted(result, &times));
    return result;
}

/* Write all of `length` bytes. 0 or -errno; *done_out bytes were written in either case. */
static int
write_fully(const struct tm_os *os, int fd, const uint8_t *data, size_t length, uint64_t offset,
            enum tm_os_class file_class, size_t *done_out)
{
    size_t done = 0;
    int times = 0;
    int result = 0;

    while (done < length) {
        ssize_t put =
            os->pwrite(os->ctx, fd, data + done, length - done, offset + done, file_class);

        if (interrupted(put, &times))
            continue;
        if (put <= 0) {
            result = put < 0 ? (int)put : -EIO; // nothing written and no reason given
            break;
        }
        done += (size_t)put;
        times = 0;
    }
    *done_out = done;
    return result;
}

/* Read until `length` bytes are there or the file ends. 0 or -errno; *done_out bytes were read in either case. */
static int
read_fully(const struct tm_os *os, int fd, uint8_t *buffer, size_t length, uint64_t offset,
           enum tm_os_class file_class, size_t *done_out)
{
    size_t done = 0;
    int times = 0;
    int result = 0;

    while (done < length) {
        ssize_t got =
            os->pread(os->ctx, fd, buffer + done, length - done, offset + done, file_class);

        if (interrupted(got, &times))
            continue;
        if (got < 0)
            result = (int)got;
        if (got <= 0)
            break;
        done += (size_t)got;
        times = 0;
    }
    *done_out = done;
    return result;
}

/* ---- Small things ------------------------------------------------------------------------------------- */

static void *
allocate(const struct tm_fs_posix *posix, size_t size)
{
    return posix->allocator.alloc(posix->allocator.ctx, size);
}

static void
release(const struct tm_fs_posix *posix, void *p, size_t size)
{
    posix->allocator.release(posix->allocator.ctx, p, size);
}

/* The end of `path`, which tells more than its beginning, without bytes that would break a line of a log. */
static void
show_path(char shown[SHOWN_BYTES], const char *path)
{
    size_t length = strlen(path);
    size_t skipped = 0;
    char *next = shown;

    if (length >= SHOWN_BYTES) {
        skipped = length - (SHOWN_BYTES - 4);
        memcpy(next, "...", 3);
        next += 3;
    }
    for (const char *byte = path + skipped; *byte != '\0'; byte++)
        *next++ = (unsigned char)*byte < 0x20 || *byte == 0x7f ? '?' : *byte;
    *next = '\0';
}

static bool
name_is_plain(const char *name)
{
    size_t length = strlen(name);

    return length != 0 && length <= NAME_BYTES_MAX && strchr(name, '/') == NULL &&
           strcmp(name, ".") != 0 && strcmp(name, "..") != 0;
}

static tamis_status
require_plain_name(const char *name, tamis_error *err)
{
    if (name_is_plain(name))
        return TAMIS_OK;
    return TM_FAIL(err, TAMIS_INVALID, "'%.64s' is no plain file name of 1 to %d bytes", name,
                   NAME_BYTES_MAX);
}

static enum tm_os_class
class_of_kind(tamis_file_kind kind)
{
    switch (kind) {
    case TAMIS_FILE_TABLE:
        return TM_OS_CLASS_TABLE;
    case TAMIS_FILE_LOG:
        return TM_OS_CLASS_LOG;
    case TAMIS_FILE_MANIFEST:
        return TM_OS_CLASS_MANIFEST;
    case TAMIS_FILE_CURRENT:
        return TM_OS_CLASS_CURRENT;
    }
    assert(!"a kind of file");
    return TM_OS_CLASS_TABLE;
}

/* For remove(), which is told a name only. Whatever is not known counts as a table, the most common kind. */
static enum tm_os_class
class_of_name(const char *name)
{
    size_t length = strlen(name);

    if (strncmp(name, "MANIFEST", 8) == 0)
        return TM_OS_CLASS_MANIFEST;
    if (strncmp(name, "CURRENT", 7) == 0)
        return TM_OS_CLASS_CURRENT;
    if (length > 4 && strcmp(name + length - 4, ".wal") == 0)
        return TM_OS_CLASS_LOG;
    return TM_OS_CLASS_TABLE;
}

static bool
forked_since(const struct tm_os *os, uint64_t generation)
{
    return os->fork_generation(os->ctx) != generation;
}

/* ---- Directories -------------------------------------------------------------------------------------- */

/* The directory is missing: make it. Its name is not durable yet. */
static int
make_and_open(const struct tm_os *os, const char *path, bool *made_out)
{
    int result = os->make_dir(os->ctx, path);
    int fd;

    *made_out = result == 0;
    if (result != 0 && result != -EEXIST) // somebody else may have made it meanwhile
        return result;
    fd = open_directory(os, path);
    if (fd < 0 && *made_out) {
        (void)os->remove_dir(os->ctx, path); // roll back; the first error is the one to tell
        *made_out = false;
    }
    return fd;
}

static tamis_status
fs_open_dir(void *ctx, const char *path, bool create, bool *created_out, tamis_dir **dir_out,
            tamis_error *err)
{
    const struct tm_fs_posix *posix = ctx;
    const struct tm_os *os = posix->os;
    tamis_status status = TAMIS_OK;
    tamis_dir *dir = NULL;
    bool made = false;
    int result;

    *created_out = false;
    *dir_out = NULL;
    dir = allocate(posix, sizeof *dir);
    if (dir == NULL)
        return TM_NO_MEMORY(err, sizeof *dir);
    show_path(dir->shown, path);
    dir->fd = open_directory(os, path);
    if (dir->fd == -ENOENT && create) {
        dir->fd = make_and_open(os, path, &made);
        if (dir->fd == -ENOENT) {
            status = TM_FAIL_OS(err, TAMIS_IO, ENOENT,
                                "cannot create directory '%s', its parent must exist", dir->shown);
            goto out;
        }
    }
    if (dir->fd < 0) {
        tamis_status code = dir->fd == -ENOENT    ? TAMIS_NOT_FOUND
                            : dir->fd == -ENOTDIR ? TAMIS_INVALID
                                                  : tm_status_of_errno(-dir->fd);
        status = TM_FAIL_OS(err, code, -dir->fd, "cannot open directory '%s'", dir->shown);
        goto out;
    }
    if (create) {
        // Also for one that was there: who made it may have died before its name was durable.
        result = sync_parent(os, path);
        if (result != 0) {
            status = TM_FAIL_OS(err, tm_status_of_errno(-result), -result,
                                "cannot sync the parent of directory '%s'", dir->shown);
            goto out;
        }
    }
    *created_out = made;
    *dir_out = dir;
    dir = NULL;

out:
    if (dir != NULL) {
        if (dir->fd >= 0)
            (void)os->close(os->ctx, dir->fd, TM_OS_CLASS_DIR); // after a first error
        if (made)
            (void)os->remove_dir(os->ctx, path); // after a first error; only if still empty
        release(posix, dir, sizeof *dir);
    }
    return status;
}

static void
fs_close_dir(void *ctx, tamis_dir *dir)
{
    const struct tm_fs_posix *posix = ctx;

    (void)posix->os->close(posix->os->ctx, dir->fd, TM_OS_CLASS_DIR); // read-only: nothing to lose
    release(posix, dir, sizeof *dir);
}

static tamis_status
fs_remove_dir(void *ctx, const char *path, tamis_error *err)
{
    const struct tm_fs_posix *posix = ctx;
    int result = posix->os->remove_dir(posix->os->ctx, path);
    char shown[SHOWN_BYTES];

    if (result == 0 || result == -ENOTEMPTY || result == -EEXIST || result == -ENOENT)
        return TAMIS_OK;
    show_path(shown, path);
    return TM_FAIL_OS(err, result == -ENOTDIR ? TAMIS_INVALID : tm_status_of_errno(-result),
                      -result, "cannot remove directory '%s'", shown);
}

static tamis_status
fs_list(void *ctx, tamis_dir *dir, bool (*visit)(void *arg, const char *name), void *arg,
        tamis_error *err)
{
    const struct tm_fs_posix *posix = ctx;
    int result = posix->os->list(posix->os->ctx, dir->fd, visit, arg);

    if (result != 0)
        return TM_FAIL_OS(err, tm_status_of_errno(-result), -result, "cannot list directory '%s'",
                          dir->shown);
    return TAMIS_OK;
}

/* ---- The lock ----------------------------------------------------------------------------------------- */

static int
open_lock_file(const struct tm_os *os, const tamis_dir *dir, enum tm_os_lock kind,
               bool *created_out)
{
    int fd;

    *created_out = false;
    if (kind == TM_OS_LOCK_READER) // who changes nothing
        return open_file(os, dir->fd, lock_name, TM_OS_READ, TM_OS_CLASS_LOCK);
    fd = open_file(os, dir->fd, lock_name, TM_OS_CREATE_NEW, TM_OS_CLASS_LOCK);

    *created_out = fd >= 0;
    if (fd != -EEXIST)
        return fd;
    // If it is removed between these two calls, this one makes it: then we leave it behind, which is harmless.
    return open_file(os, dir->fd, lock_name, TM_OS_CREATE, TM_OS_CLASS_LOCK);
}

/* The lock on a LOCK of our making was refused, not because somebody has it. Leave no trace, but never remove a
 * file that somebody else may have locked meanwhile (F5). */
static void
remove_refused_lock_file(const struct tm_os *os, const tamis_dir *dir, int fd)
{
    int result = take_lock(os, fd, TM_OS_LOCK_WRITER);

    // With the lock in hand it is ours to remove. Refused twice for a reason that is no holder: locks do not
    // work on this file system, and nobody can hold one.
    if (result != -EAGAIN)
        (void)remove_file(os, dir->fd, lock_name, TM_OS_CLASS_LOCK); // after a first error
}

/* Open and lock LOCK. 0, -EAGAIN when somebody has it, -ESTALE when the file lost its name meanwhile (F5). */
static int
attempt_lock(const struct tm_os *os, tamis_dir *dir, enum tm_os_lock kind, int *fd_out,
             bool *created_out, const char **step_out)
{
    struct tm_os_stat found;
    bool created = false;
    int result;
    int fd;

    *step_out = "open";
    fd = open_lock_file(os, dir, kind, &created);
    if (fd < 0)
        return fd;
    *step_out = "lock";
    result = take_lock(os, fd, kind);
    if (result != 0 && result != -EAGAIN && created)
        remove_refused_lock_file(os, dir, fd);
    if (result == 0) {
        *step_out = "examine";
        result = os->stat(os->ctx, fd, &found);
        if (result != 0 && created)
            (void)remove_file(os, dir->fd, lock_name, TM_OS_CLASS_LOCK); // we hold its lock
        if (result == 0 && found.link_count == 0)
            result = -ESTALE;
        if (result == 0 && !found.is_regular)
            result = -EINVAL;
    }
    if (result != 0) {
        // Unlocked explicitly: a child forked by other means than fork(3) may share the description.
        (void)os->unlock(os->ctx, fd);
        (void)os->close(os->ctx, fd, TM_OS_CLASS_LOCK);
        return result;
    }
    *fd_out = fd;
    *created_out = created;
    return 0;
}

/* No writer can be here, or none that could be told: a reader needs no lock, and gets none. */
static bool
reader_goes_without(int result)
{
    return result == -ENOENT || result == -ENOLCK || result == -EOPNOTSUPP;
}

static tamis_status
lock_directory(const struct tm_fs_posix *posix, tamis_dir *dir, enum tm_os_lock kind,
               tamis_lock **lock_out, tamis_error *err)
{
    const struct tm_os *os = posix->os;
    const char *step = "";
    int attempts = 0;
    tamis_lock *lock;
    int result;

    *lock_out = NULL;
    lock = allocate(posix, sizeof *lock);
    if (lock == NULL)
        return TM_NO_MEMORY(err, sizeof *lock);
    lock->dir = dir;
    lock->fork_generation = os->fork_generation(os->ctx);
    do {
        result = attempt_lock(os, dir, kind, &lock->fd, &lock->created, &step);
    } while (result == -ESTALE && ++attempts < LOCK_ATTEMPTS_MAX);
    if (kind == TM_OS_LOCK_READER && reader_goes_without(result)) {
        lock->fd = -1;
        lock->created = false;
        result = 0;
    }
    if (result == 0) {
        *lock_out = lock;
        return TAMIS_OK;
    }
    release(posix, lock, sizeof *lock);
    if (result == -EAGAIN || result == -ESTALE)
        return TM_FAIL(err, TAMIS_BUSY, "'%s' is open for writing by somebody else", dir->shown);
    return TM_FAIL_OS(err, tm_status_of_errno(-result), -result, "cannot %s '%s/%s'", step,
                      dir->shown, lock_name);
}

static tamis_status
fs_lock(void *ctx, tamis_dir *dir, tamis_lock **lock_out, tamis_error *err)
{
    return lock_directory(ctx, dir, TM_OS_LOCK_WRITER, lock_out, err);
}

static tamis_status
fs_lock_shared(void *ctx, tamis_dir *dir, tamis_lock **lock_out, tamis_error *err)
{
    return lock_directory(ctx, dir, TM_OS_LOCK_READER, lock_out, err);
}

static tamis_status
fs_has_readers(void *ctx, tamis_lock *lock, bool *has_readers_out, tamis_error *err)
{
    const struct tm_fs_posix *posix = ctx;
    int result = posix->os->is_locked(posix->os->ctx, lock->fd, TM_OS_LOCK_READER);

    if (result < 0)
        return TM_FAIL_OS(err, tm_status_of_errno(-result), -result,
                          "cannot ask for readers of '%s'", lock->dir->shown);
    *has_readers_out = result != 0;
    return TAMIS_OK;
}

static bool
is_lock_file(void *arg, const char *name)
{
    bool *alone = arg;

    *alone = strcmp(name, lock_name) == 0;
    return *alone;
}

static void
fs_unlock(void *ctx, tamis_lock *lock)
{
    const struct tm_fs_posix *posix = ctx;
    const struct tm_os *os = posix->os;
    bool alone = false;

    // F6: in a child the descriptor is closed already.
    if (lock->fd >= 0 && !forked_since(os, lock->fork_generation)) {
        // A store that came to nothing leaves nothing: LOCK goes if this lock made it and no file joined it.
        if (lock->created && os->list(os->ctx, lock->dir->fd, is_lock_file, &alone) == 0 && alone)
            (void)remove_file(os, lock->dir->fd, lock_name,
                              TM_OS_CLASS_LOCK); // F5; a stray is harmless
        (void)os->unlock(os->ctx,
                         lock->fd); // closing does it too, unless a child shares the description
        (void)os->close(os->ctx, lock->fd, TM_OS_CLASS_LOCK);
    }
    release(posix, lock, sizeof *lock);
}

static bool
fs_lock_is_ours(void *ctx, const tamis_lock *lock)
{
    const struct tm_fs_posix *posix = ctx;

    return !forked_since(posix->os, lock->fork_generation);
}

/* ---- Files: making and opening ------------------------------------------------------------------------- */

static tamis_file *
make_file(const struct tm_fs_posix *posix, tamis_dir *dir, const char *name,
          enum tm_os_class file_class, tamis_error *err)
{
    size_t name_bytes = strlen(name) + 1;
    size_t struct_bytes = sizeof(tamis_file) + name_bytes;
    tamis_file *file = allocate(posix, struct_bytes);

    if (file == NULL) {
        (void)TM_NO_MEMORY(err, struct_bytes);
        return NULL;
    }
    memset(file, 0, struct_bytes);
    file->dir = dir;
    file->fd = -1;
    file->file_class = file_class;
    file->fork_generation = posix->os->fork_generation(posix->os->ctx);
    file->struct_bytes = struct_bytes;
    file->step_bytes = STEP_FIRST;
    memcpy(file->name, name, name_bytes);
    return file;
}

static tamis_status
fs_create(void *ctx, tamis_dir *dir, const char *name, tamis_file_kind kind, tamis_file **file_out,
          tamis_error *err)
{
    const struct tm_fs_posix *posix = ctx;
    const struct tm_os *os = posix->os;
    enum tm_os_class file_class = class_of_kind(kind);
    tamis_status status;
    tamis_file *file;

    *file_out = NULL;
    status = require_plain_name(name, err);
    if (status != TAMIS_OK)
        return status;
    file = make_file(posix, dir, name, file_class, err);
    if (file == NULL)
        return TAMIS_NO_MEMORY;
    file->appending = true;
    file->map_wanted = posix->map_logs && kind == TAMIS_FILE_LOG;
    file->fd = open_file(os, dir->fd, name, TM_OS_CREATE_NEW, file_class);
    if (file->fd < 0) {
        tamis_status code = file->fd == -EEXIST ? TAMIS_INVALID : tm_status_of_errno(-file->fd);
        status = TM_FAIL_OS(err, code, -file->fd, "cannot create '%s' in '%s'", name, dir->shown);
        release(posix, file, file->struct_bytes);
        return status;
    }
    *file_out = file;
    return TAMIS_OK;
}

static tamis_status
fs_open(void *ctx, tamis_dir *dir, const char *name, tamis_file_kind kind, tamis_file **file_out,
        uint64_t *size_out, tamis_error *err)
{
    const struct tm_fs_posix *posix = ctx;
    const struct tm_os *os = posix->os;
    enum tm_os_class file_class = class_of_kind(kind);
    struct tm_os_stat found;
    tamis_status status;
    tamis_file *file;
    int result;

    *file_out = NULL;
    *size_out = 0;
    status = require_plain_name(name, err);
    if (status != TAMIS_OK)
        return status;
    file = make_file(posix, dir, name, file_class, err);
    if (file == NULL)
        return TAMIS_NO_MEMORY;
    file->fd = open_file(os, dir->fd, name, TM_OS_READ, file_class);
    if (file->fd == -ELOOP) { // a link itself, as wrong as a directory in its place
        status =
            TM_FAIL(err, TAMIS_CORRUPT, "'%s' in '%s' is a symbolic link, expected a regular file",
                    name, dir->shown);
        goto out;
    }
    if (file->fd < 0) {
        tamis_status code = file->fd == -ENOENT ? TAMIS_NOT_FOUND : tm_status_of_errno(-file->fd);
        status = TM_FAIL_OS(err, code, -file->fd, "cannot open '%s' in '%s'", name, dir->shown);
        goto out;
    }
    result = os->stat(os->ctx, file->fd, &found);
    if (result != 0) {
        status = TM_FAIL_OS(err, tm_status_of_errno(-result), -result,
                            "cannot ask for the size of '%s' in '%s'", name, dir->shown);
        goto out;
    }
    if (!found.is_regular) {
        status = TM_FAIL(err, TAMIS_CORRUPT, "'%s' in '%s' is a %s, expected a regular file", name,
                         dir->shown, found.is_directory ? "directory" : "device, pipe or socket");
        goto out;
    }
    *size_out = found.size;
    *file_out = file;
    file = NULL;

out:
    if (file != NULL) {
        if (file->fd >= 0)
            (void)os->close(os->ctx, file->fd, file_class); // read-only, after a first error
        release(posix, file, file->struct_bytes);
    }
    return status;
}

static tamis_status
fs_read_at(void *ctx, tamis_file *file, uint64_t offset, void *buffer, size_t length,
           tamis_error *err)
{
    const struct tm_fs_posix *posix = ctx;
    size_t done;
    int result = read_fully(posix->os, file->fd, buffer, length, offset, file->file_class, &done);

    if (result != 0)
        return TM_FAIL_OS(err, tm_status_of_errno(-result), -result,
                          "cannot read %zu bytes at offset %" PRIu64 " of '%s' in '%s'", length,
                          offset, file->name, file->dir->shown);
    if (done != length)
        return TM_FAIL(err, TAMIS_CORRUPT,
                       "'%s' in '%s' ends too early: expected %zu bytes at offset %" PRIu64
                       ", found %zu",
                       file->name, file->dir->shown, length, offset, done);
    return TAMIS_OK;
}

/* ---- Files: appending ----------------------------------------------------------------------------------- */

static void
unmap_step(const struct tm_os *os, tamis_file *file)
{
    if (file->map == NULL)
        return;
    // Cannot fail for a mapping of ours; if it did, the bytes are in the page cache all the same.
    (void)os->unmap(os->ctx, file->map, file->map_bytes);
    file->map = NULL;
    file->map_bytes = 0;
}

/* Map the step that holds `length`. False: not possible, and this log is written from now on (F4). */
static bool
map_next_step(const struct tm_os *os, tamis_file *file)
{
    uint64_t offset = file->length - file->length % STEP_FIRST;
    void *address = NULL;

    unmap_step(os, file);
    file->extended = true; // even a failed allocation may have grown the file
    if (allocate_blocks(os, file->fd, offset, file->step_bytes) != 0 ||
        os->map(os->ctx, file->fd, offset, file->step_bytes, &address) != 0) {
        file->map_wanted = false;
        return false;
    }
    file->map = address;
    file->map_offset = offset;
    file->map_bytes = file->step_bytes;
    if (file->step_bytes < STEP_MAX)
        file->step_bytes *= 2;
    return true;
}

static size_t
mapped_room(const tamis_file *file)
{
    uint64_t end = file->map_offset + file->map_bytes;

    return file->map != NULL && file->length < end ? (size_t)(end - file->length) : 0;
}

/* Copy the front of a piece into the mapping. Returns the bytes taken: all of them, or fewer when the rest is
 * better written (F4). */
static size_t
append_mapped(const struct tm_os *os, tamis_file *file, const uint8_t *data, size_t length)
{
    size_t room = mapped_room(file);
    size_t done = 0;

    if (length > room && length - room > file->step_bytes)
        return 0;
    while (done < length) {
        size_t part;

        if (room == 0) {
            if (!map_next_step(os, file))
                break;
            room = mapped_room(file);
        }
        part = length - done < room ? length - done : room;
        memcpy(file->map + (file->length - file->map_offset), data + done, part);
        file->length += part;
        done += part;
        room -= part;
    }
    return done;
}

/* Write bytes behind `length`, which grows by what was written. 0 or -errno. */
static int
append_written(const struct tm_os *os, tamis_file *file, const uint8_t *data, size_t length)
{
    size_t done;
    int result = write_fully(os, file->fd, data, length, file->length, file->file_class, &done);

    file->length += done;
    return result;
}

/* All pieces, in order. 0 or -errno. */
static int
append_pieces(const struct tm_os *os, tamis_file *file, const tamis_slice *pieces,
              size_t piece_count)
{
    uint8_t gathered[GATHER_BYTES];
    size_t gathered_bytes = 0;
    int result = 0;

    for (size_t i = 0; i < piece_count && result == 0; i++) {
        const uint8_t *data = pieces[i].data;
        size_t length = pieces[i].length;

        if (file->map_wanted && length != 0) { // nothing is gathered while this is true
            size_t taken = append_mapped(os, file, data, length);

            data += taken;
            length -= taken;
        }
        if (length == 0)
            continue;
        if (length > GATHER_BYTES - gathered_bytes) {
            result = append_written(os, file, gathered, gathered_bytes);
            gathered_bytes = 0;
        }
        if (result == 0 && (file->map_wanted || length > GATHER_BYTES)) {
            result = append_written(os, file, data, length);
        } else if (result == 0) {
            memcpy(gathered + gathered_bytes, data, length);
            gathered_bytes += length;
        }
    }
    if (result == 0)
        result = append_written(os, file, gathered, gathered_bytes);
    return result;
}

static void
push_dirty_bytes(const struct tm_os *os, tamis_file *file)
{
    uint64_t end = file->length - file->length % PAGE_BYTES;

    if (end - file->pushed < PUSH_BYTES)
        return;
    // A hint: what it cannot do, the next sync does and reports.
    (void)os->start_writeback(os->ctx, file->fd, file->pushed, end - file->pushed);
    file->pushed = end;
}

static tamis_status
require_appendable(const struct tm_os *os, const tamis_file *file, tamis_error *err)
{
    if (!file->appending || file->sealed)
        return TM_FAIL(err, TAMIS_INVALID, "'%s' in '%s' is %s", file->name, file->dir->shown,
                       file->sealed ? "sealed" : "open for reading only");
    if (forked_since(os, file->fork_generation)) // F6
        return TM_FAIL(err, TAMIS_INVALID, "'%s' in '%s' belongs to the parent of this process",
                       file->name, file->dir->shown);
    if (file->append_failed) // F3
        return TM_FAIL(err, TAMIS_IO, "an earlier append to '%s' in '%s' failed", file->name,
                       file->dir->shown);
    return TAMIS_OK;
}

static tamis_status
fs_append(void *ctx, tamis_file *file, const tamis_slice *pieces, size_t piece_count,
          tamis_error *err)
{
    const struct tm_fs_posix *posix = ctx;
    uint64_t offset = file->length;
    tamis_status status;
    int result;

    status = require_appendable(posix->os, file, err);
    if (status != TAMIS_OK)
        return status;
    result = append_pieces(posix->os, file, pieces, piece_count);
    if (result != 0) {
        uint64_t total = 0;

        for (size_t i = 0; i < piece_count; i++)
            total += pieces[i].length;
        file->append_failed = true;
        return TM_FAIL_OS(err, tm_status_of_errno(-result), -result,
                          "cannot append %" PRIu64 " bytes at offset %" PRIu64
                          " of '%s' in '%s', %" PRIu64 " done",
                          total, offset, file->name, file->dir->shown, file->length - offset);
    }
    push_dirty_bytes(posix->os, file);
    return TAMIS_OK;
}

/* ---- Files: making durable, and closing ------------------------------------------------------------------ */

/* The parts of sync() and seal() that may run beside an append: only immutable fields and the atomic flags. */
static tamis_status
sync_contents(const struct tm_os *os, tamis_file *file, tamis_error *err)
{
    int result;

    if (forked_since(os, file->fork_generation)) // F6
        return TM_FAIL(err, TAMIS_INVALID, "'%s' in '%s' belongs to the parent of this process",
                       file->name, file->dir->shown);
    if (atomic_load_explicit(&file->sync_failed, memory_order_acquire)) // F3
        return TM_FAIL(err, TAMIS_IO, "an earlier sync of '%s' in '%s' failed", file->name,
                       file->dir->shown);
    result = sync_file(os, file->fd, file->file_class);
    if (result != 0) {
        atomic_store_explicit(&file->sync_failed, true, memory_order_release);
        return TM_FAIL_OS(err, tm_status_of_errno(-result), -result, "cannot sync '%s' in '%s'",
                          file->name, file->dir->shown);
    }
    return TAMIS_OK;
}

static tamis_status
sync_name(const struct tm_os *os, tamis_file *file, tamis_error *err)
{
    int result;

    if (atomic_load_explicit(&file->is_named, memory_order_acquire))
        return TAMIS_OK;
    result = sync_directory(os, file->dir->fd);
    if (result != 0) {
        atomic_store_explicit(&file->sync_failed, true, memory_order_release); // F3
        return TM_FAIL_OS(err, tm_status_of_errno(-result), -result,
                          "cannot sync directory '%s' after writing '%s'", file->dir->shown,
                          file->name);
    }
    atomic_store_explicit(&file->is_named, true, memory_order_release);
    return TAMIS_OK;
}

static tamis_status
fs_sync(void *ctx, tamis_file *file, tamis_error *err)
{
    const struct tm_fs_posix *posix = ctx;
    tamis_status status;

    if (!file->appending)
        return TM_FAIL(err, TAMIS_INVALID, "'%s' in '%s' is open for reading only", file->name,
                       file->dir->shown);
    status = sync_contents(posix->os, file, err);
    return status == TAMIS_OK ? sync_name(posix->os, file, err) : status;
}

/* Cut off what was allocated beyond the appended bytes (F2). */
static tamis_status
trim(const struct tm_os *os, tamis_file *file, tamis_error *err)
{
    int result;

    unmap_step(os, file);
    if (!file->extended)
        return TAMIS_OK;
    result = truncate_file(os, file->fd, file->length, file->file_class);
    if (result != 0)
        return TM_FAIL_OS(err, tm_status_of_errno(-result), -result,
                          "cannot trim '%s' in '%s' to %" PRIu64 " bytes", file->name,
                          file->dir->shown, file->length);
    file->extended = false;
    return TAMIS_OK;
}

static tamis_status
fs_seal(void *ctx, tamis_file *file, tamis_error *err)
{
    const struct tm_fs_posix *posix = ctx;
    const struct tm_os *os = posix->os;
    tamis_status status;

    status = require_appendable(os, file, err);
    if (status != TAMIS_OK)
        return status;
    file->map_wanted = false;
    status = trim(os, file, err);
    if (status != TAMIS_OK)
        return status;
    status = sync_contents(os, file, err);
    if (status != TAMIS_OK)
        return status;
    status = sync_name(os, file, err);
    if (status != TAMIS_OK)
        return status;
    file->sealed = true;
    return TAMIS_OK;
}

static tamis_status
fs_close(void *ctx, tamis_file *file, tamis_error *err)
{
    const struct tm_fs_posix *posix = ctx;
    const struct tm_os *os = posix->os;
    tamis_status status = TAMIS_OK;
    int result;

    // F6: a child has no mapping (not inherited) and must not shorten what its parent still writes.
    if (file->appending && !forked_since(os, file->fork_generation))
        status = trim(os, file, err);
    result = os->close(os->ctx, file->fd, file->file_class);
    if (result != 0 && status == TAMIS_OK)
        status = TM_FAIL_OS(err, tm_status_of_errno(-result), -result, "cannot close '%s' in '%s'",
                            file->name, file->dir->shown);
    release(posix, file, file->struct_bytes);
    return status;
}

/* ---- Names ----------------------------------------------------------------------------------------------- */

/* Make `temporary` with `contents`, durable. 0 or -errno; on failure it is gone again, as far as that is possible. */
static int
write_temporary(const struct tm_os *os, tamis_dir *dir, const char *temporary, tamis_slice contents,
                const char **step_out)
{
    size_t done;
    int closed;
    int result;
    int fd;

    *step_out = "create";
    fd = open_file(os, dir->fd, temporary, TM_OS_CREATE_NEW, TM_OS_CLASS_CURRENT);
    if (fd == -EEXIST) { // left by a machine that died
        result = remove_file(os, dir->fd, temporary, TM_OS_CLASS_CURRENT);
        if (result != 0)
            return result;
        fd = open_file(os, dir->fd, temporary, TM_OS_CREATE_NEW, TM_OS_CLASS_CURRENT);
    }
    if (fd < 0)
        return fd;
    *step_out = "write";
    result = write_fully(os, fd, contents.data, contents.length, 0, TM_OS_CLASS_CURRENT, &done);
    if (result == 0) {
        *step_out = "sync";
        result = sync_file(os, fd, TM_OS_CLASS_CURRENT);
    }
    closed = os->close(os->ctx, fd, TM_OS_CLASS_CURRENT);
    if (result == 0 && closed != 0) {
        *step_out = "close";
        result = closed;
    }
    if (result != 0)
        (void)remove_file(os, dir->fd, temporary, TM_OS_CLASS_CURRENT); // after a first error
    return result;
}

static tamis_status
fs_replace(void *ctx, tamis_dir *dir, const char *name, tamis_slice contents, tamis_error *err)
{
    const struct tm_fs_posix *posix = ctx;
    const struct tm_os *os = posix->os;
    char temporary[NAME_BYTES_MAX + sizeof temporary_suffix];
    const char *step = "";
    tamis_status status;
    int result;

    status = require_plain_name(name, err);
    if (status != TAMIS_OK)
        return status;
    snprintf(temporary, sizeof temporary, "%s%s", name, temporary_suffix);
    result = write_temporary(os, dir, temporary, contents, &step);
    if (result != 0)
        return TM_FAIL_OS(err, tm_status_of_errno(-result), -result,
                          "cannot %s '%s' (%zu bytes) in '%s'", step, temporary, contents.length,
                          dir->shown);
    result = rename_file(os, dir->fd, temporary, name);
    if (result != 0) {
        (void)remove_file(os, dir->fd, temporary, TM_OS_CLASS_CURRENT); // after a first error
        return TM_FAIL_OS(err, tm_status_of_errno(-result), -result,
                          "cannot rename '%s' to '%s' in '%s'", temporary, name, dir->shown);
    }
    result = sync_directory(os, dir->fd);
    if (result != 0)
        return TM_FAIL_OS(err, tm_status_of_errno(-result), -result,
                          "cannot sync directory '%s' after replacing '%s'", dir->shown, name);
    return TAMIS_OK;
}

/* The other directory lies on another file system, or has none of our rights, or the file has all the names it can have. */
static bool
link_is_impossible(int result)
{
    return result == -EXDEV || result == -EPERM || result == -EMLINK || result == -EOPNOTSUPP;
}

static tamis_status
fs_link(void *ctx, tamis_dir *from, const char *name, tamis_dir *to, tamis_error *err)
{
    const struct tm_fs_posix *posix = ctx;
    tamis_status status;
    int result;

    status = require_plain_name(name, err);
    if (status != TAMIS_OK)
        return status;
    result = posix->os->link(posix->os->ctx, from->fd, name, to->fd, class_of_name(name));
    if (result != 0)
        return TM_FAIL_OS(
            err, link_is_impossible(result) ? TAMIS_UNSUPPORTED : tm_status_of_errno(-result),
            -result, "cannot link '%s' in '%s' into '%s'", name, from->shown, to->shown);
    return TAMIS_OK;
}

static tamis_status
fs_remove(void *ctx, tamis_dir *dir, const char *name, tamis_error *err)
{
    const struct tm_fs_posix *posix = ctx;
    tamis_status status;
    int result;

    status = require_plain_name(name, err);
    if (status != TAMIS_OK)
        return status;
    result = remove_file(posix->os, dir->fd, name, class_of_name(name));
    if (result != 0 && result != -ENOENT)
        return TM_FAIL_OS(err, tm_status_of_errno(-result), -result, "cannot remove '%s' in '%s'",
                          name, dir->shown);
    return TAMIS_OK;
}

void
tm_fs_posix_init(struct tm_fs_posix *posix, const struct tm_os *os, tamis_allocator allocator,
                 bool map_logs)
{
    posix->os = os;
    posix->allocator = allocator;
    posix->map_logs = map_logs;
    posix->fs = (tamis_fs){
        .struct_size = sizeof(tamis_fs),
        .ctx = posix,
        .open_dir = fs_open_dir,
        .close_dir = fs_close_dir,
        .remove_dir = fs_remove_dir,
        .list = fs_list,
        .lock = fs_lock,
        .lock_shared = fs_lock_shared,
        .has_readers = fs_has_readers,
        .unlock = fs_unlock,
        .lock_is_ours = fs_lock_is_ours,
        .create = fs_create,
        .append = fs_append,
        .sync = fs_sync,
        .seal = fs_seal,
        .open = fs_open,
        .read_at = fs_read_at,
        .close = fs_close,
        .replace = fs_replace,
        .link = fs_link,
        .remove = fs_remove,
    };
}

static struct tm_fs_posix default_posix; // written once under default_once
static pthread_once_t default_once = PTHREAD_ONCE_INIT;

static void
init_default(void)
{
    tm_fs_posix_init(&default_posix, tm_os_posix(), tm_allocator_default(), true);
}

const tamis_fs *
tamis_fs_posix(void)
{
    pthread_once(&default_once, init_default);
    return &default_posix.fs;
}
