/* SPDX-License-Identifier: MIT
 *
 * sstable/os_posix.c -- the table of system calls, over Linux.
 *
 *   process            kernel                         fork
 *   descriptor ------> open file description <------- child's copy of the descriptor
 *   (lock_fds[])         holds the lock               closed by after_fork_in_child()
 *
 * Invariants
 *   O1  Each function is one system call (or a few that cannot be told apart from one) and hides nothing: a
 *       short count and EINTR are returned as they came.
 *   O2  A descriptor of class LOCK is in lock_fds from before a fork can copy it until it is closed, so that no
 *       child keeps a lock alive after its parent.
 *   O3  A lock belongs to the open file description, which a child shares; so only the process that opened
 *       it may unlock. In a child the registry is empty, and unlock and close of class LOCK touch nothing.
 *   O4  Names are relative to a directory descriptor and never followed when they are symbolic links.
 *
 * Threads  every function from any thread.
 * Not here: retries, durability recipes, messages (fs_posix.c); threads and clock (runtime_posix.c).
 */
#include "sstable/os.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <linux/magic.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 // Linux 5.14; older kernels answer EINVAL
#endif
#ifndef XFS_SUPER_MAGIC
#define XFS_SUPER_MAGIC 0x58465342 // absent from older kernel headers
#endif

enum {
    DIRECTORY_MODE = 0755, // everybody may look, the owner may write; the umask takes away more
    FILE_MODE = 0644,
    LOCKS_MAX = 4096, // stores open in one process; 16 KiB of static memory
};

/* ---- Fork: the registry of lock descriptors --------------------------------------------------------- */

static pthread_mutex_t registry_mutex = PTHREAD_MUTEX_INITIALIZER;
static int lock_fds[LOCKS_MAX]; // guarded by registry_mutex; lock_fds[0..lock_fd_count-1] are open
static int lock_fd_count;       // guarded by registry_mutex
static _Atomic uint64_t fork_generation;

static pthread_once_t fork_handlers_once = PTHREAD_ONCE_INIT;
static int fork_handlers_error; // errno value; written once under fork_handlers_once

static void
before_fork(void)
{
    pthread_mutex_lock(&registry_mutex);
}

static void
after_fork_in_parent(void)
{
    pthread_mutex_unlock(&registry_mutex);
}

static void
after_fork_in_child(void)
{
    for (int i = 0; i < lock_fd_count; i++)
        (void)close(lock_fds[i]); // O2, O3: without unlocking; nothing could be done about an error
    lock_fd_count = 0;
    atomic_fetch_add_explicit(&fork_generation, 1, memory_order_relaxed);
    pthread_mutex_unlock(&registry_mutex);
}

static void
install_fork_handlers(void)
{
    fork_handlers_error = pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
}

static int
open_lock_file(int dir, const char *name, int open_flags)
{
    int fd = -ENOLCK;

    pthread_mutex_lock(&registry_mutex); // O2: no fork between opening and registering
    if (lock_fd_count < LOCKS_MAX) {
        fd = openat(dir, name, open_flags, FILE_MODE);
        if (fd < 0)
            fd = -errno;
        else
            lock_fds[lock_fd_count++] = fd;
    }
    pthread_mutex_unlock(&registry_mutex);
    return fd;
}

/* With registry_mutex held: the place of `fd` in lock_fds, or -1. */
static int
registered_index(int fd)
{
    for (int i = 0; i < lock_fd_count; i++) {
        if (lock_fds[i] == fd)
            return i;
    }
    return -1;
}

static int
close_lock_file(int fd)
{
    int result = 0;
    int index;

    pthread_mutex_lock(&registry_mutex);
    index = registered_index(fd);
    if (index >= 0) { // O3
        lock_fds[index] = lock_fds[--lock_fd_count];
        if (close(fd) != 0)
            result = -errno;
    }
    pthread_mutex_unlock(&registry_mutex);
    return result;
}

/* F_OFD_SETLK or F_OFD_GETLK on `fd`. */
static int
control_lock(int fd, int command, struct flock *range)
{
    bool unlocks = range->l_type == F_UNLCK;
    int result = 0;

    pthread_mutex_lock(&registry_mutex);
    if (registered_index(fd) < 0) // O3
        result = unlocks ? 0 : -EBADF;
    else if (fcntl(fd, command, range) != 0)
        result = errno == EACCES ? -EAGAIN : -errno; // POSIX allows either for "somebody has it"
    pthread_mutex_unlock(&registry_mutex);
    return result;
}

static struct flock
lock_range(enum tm_os_lock lock, short type)
{
    return (struct flock){.l_type = type, .l_whence = SEEK_SET, .l_start = (off_t)lock, .l_len = 1};
}

static int
posix_lock(void *ctx, int fd, enum tm_os_lock lock)
{
    struct flock range = lock_range(lock, lock == TM_OS_LOCK_WRITER ? F_WRLCK : F_RDLCK);

    (void)ctx;
    return control_lock(fd, F_OFD_SETLK, &range);
}

static int
posix_is_locked(void *ctx, int fd, enum tm_os_lock lock)
{
    struct flock range =
        lock_range(lock, F_WRLCK); // which every lock of somebody else would refuse
    int result = control_lock(fd, F_OFD_GETLK, &range);

    (void)ctx;
    return result != 0 ? result : range.l_type != F_UNLCK;
}

static int
posix_unlock(void *ctx, int fd)
{
    struct flock whole_file = {.l_type = F_UNLCK, .l_whence = SEEK_SET};

    (void)ctx;
    return control_lock(fd, F_OFD_SETLK, &whole_file);
}

static uint64_t
posix_fork_generation(void *ctx)
{
    (void)ctx;
    return atomic_load_explicit(&fork_generation, memory_order_relaxed);
}

/* ---- Directories ------------------------------------------------------------------------------------- */

static int
posix_open_dir(void *ctx, const char *path)
{
    int fd;

    (void)ctx;
    // Here, and not in open_lock_file(), so that read-only handles notice a fork too.
    pthread_once(&fork_handlers_once, install_fork_handlers);
    if (fork_handlers_error != 0)
        return -fork_handlers_error;
    fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return fd < 0 ? -errno : fd;
}

static int
posix_make_dir(void *ctx, const char *path)
{
    (void)ctx;
    return mkdir(path, DIRECTORY_MODE) != 0 ? -errno : 0;
}

static int
posix_remove_dir(void *ctx, const char *path)
{
    (void)ctx;
    return rmdir(path) != 0 ? -errno : 0;
}

static int
posix_sync_parent(void *ctx, const char *path)
{
    int result = 0;
    int parent = -1;
    int dir;

    (void)ctx;
    // ".." of the open directory is its parent whatever the path looks like: trailing slashes, links.
    dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0)
        return -errno;
    parent = openat(dir, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (parent < 0 && errno == EACCES) {
        // A parent that we may write but not read: sync the whole file system rather than nothing.
        if (syncfs(dir) != 0)
            result = -errno;
    } else if (parent < 0 || fsync(parent) != 0) {
        result = -errno;
    }
    if (parent >= 0)
        (void)close(parent); // read-only: no error to lose
    (void)close(dir);
    return result;
}

static int
posix_sync_dir(void *ctx, int dir)
{
    (void)ctx;
    return fsync(dir) != 0 ? -errno : 0;
}

static int
posix_list(void *ctx, int dir, bool (*visit)(void *arg, const char *name), void *arg)
{
    struct dirent *entry;
    DIR *stream;
    int result = 0;
    int fd;

    (void)ctx;
    // A description of its own: the position in `dir` would be shared with other walks.
    fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    stream = fdopendir(fd);
    if (stream == NULL) {
        result = -errno;
        (void)close(fd);
        return result;
    }
    while (errno = 0, (entry = readdir(stream)) != NULL) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        if (!visit(arg, entry->d_name))
            break;
    }
    if (entry == NULL && errno != 0)
        result = -errno;
    (void)closedir(stream);
    return result;
}

static int
posix_rename(void *ctx, int dir, const char *from, const char *to)
{
    (void)ctx;
    return renameat(dir, from, dir, to) != 0 ? -errno : 0;
}

static int
posix_link(void *ctx, int dir, const char *name, int dir_to, enum tm_os_class file_class)
{
    (void)ctx;
    (void)file_class;
    return linkat(dir, name, dir_to, name, 0) != 0 ? -errno : 0;
}

static int
posix_remove(void *ctx, int dir, const char *name, enum tm_os_class file_class)
{
    (void)ctx;
    (void)file_class;
    return unlinkat(dir, name, 0) != 0 ? -errno : 0;
}

/* ---- Files ------------------------------------------------------------------------------------------- */

static int
posix_open(void *ctx, int dir, const char *name, int flags, enum tm_os_class file_class)
{
    // O_NONBLOCK: a pipe put in place of a file must not hang us. Regular files do not know it. O4.
    int open_flags = O_CLOEXEC | O_NOFOLLOW | O_NOCTTY | O_NONBLOCK;
    int fd;

    (void)ctx;
    if (flags == TM_OS_READ)
        open_flags |= O_RDONLY;
    else
        open_flags |= O_RDWR | O_CREAT | (flags == TM_OS_CREATE_NEW ? O_EXCL : 0);
    if (file_class == TM_OS_CLASS_LOCK)
        return open_lock_file(dir, name, open_flags);
    fd = openat(dir, name, open_flags, FILE_MODE);
    return fd < 0 ? -errno : fd;
}

static int
posix_close(void *ctx, int fd, enum tm_os_class file_class)
{
    (void)ctx;
    if (file_class == TM_OS_CLASS_LOCK)
        return close_lock_file(fd);
    // Never repeated: on Linux the descriptor is gone even after EINTR.
    return close(fd) != 0 && errno != EINTR ? -errno : 0;
}

static int
posix_stat(void *ctx, int fd, struct tm_os_stat *out)
{
    struct stat found;

    (void)ctx;
    if (fstat(fd, &found) != 0)
        return -errno;
    out->size = (uint64_t)found.st_size;
    out->device = (uint64_t)found.st_dev;
    out->inode = (uint64_t)found.st_ino;
    out->link_count = (uint64_t)found.st_nlink;
    out->is_directory = S_ISDIR(found.st_mode);
    out->is_regular = S_ISREG(found.st_mode);
    return 0;
}

static ssize_t
posix_pread(void *ctx, int fd, void *buffer, size_t length, uint64_t offset,
            enum tm_os_class file_class)
{
    ssize_t got;

    (void)ctx;
    (void)file_class;
    got = pread(fd, buffer, length, (off_t)offset);
    return got < 0 ? -errno : got;
}

static ssize_t
posix_pwrite(void *ctx, int fd, const void *data, size_t length, uint64_t offset,
             enum tm_os_class file_class)
{
    ssize_t put;

    (void)ctx;
    (void)file_class;
    put = pwrite(fd, data, length, (off_t)offset);
    return put < 0 ? -errno : put;
}

static int
posix_sync(void *ctx, int fd, enum tm_os_class file_class)
{
    bool often = file_class == TM_OS_CLASS_LOG || file_class == TM_OS_CLASS_MANIFEST;

    (void)ctx;
    // fdatasync writes the size too (it is needed to find the bytes) and dirty pages of shared mappings; it
    // leaves out times. What is synced once in its life gets everything.
    return (often ? fdatasync(fd) : fsync(fd)) != 0 ? -errno : 0;
}

static int
posix_start_writeback(void *ctx, int fd, uint64_t offset, uint64_t length)
{
    (void)ctx;
    // Without the WAIT flags: it waits for nothing, and takes no error away from a later sync.
    return sync_file_range(fd, (off_t)offset, (off_t)length, SYNC_FILE_RANGE_WRITE) != 0 ? -errno
                                                                                         : 0;
}

static int
posix_truncate(void *ctx, int fd, uint64_t size, enum tm_os_class file_class)
{
    (void)ctx;
    (void)file_class;
    return ftruncate(fd, (off_t)size) != 0 ? -errno : 0;
}

static int
posix_allocate(void *ctx, int fd, uint64_t offset, uint64_t length)
{
    (void)ctx;
    // fallocate(2), not posix_fallocate(3): where blocks cannot be reserved, writing zeros buys nothing.
    return fallocate(fd, 0, (off_t)offset, (off_t)length) != 0 ? -errno : 0;
}

/* ---- Mappings ---------------------------------------------------------------------------------------- */

/* Where a store into a shared mapping is in the page cache at once, stays there when the process dies, and is
 * written by fdatasync. Copy-on-write, stacked and network file systems are left out: there a later store may
 * need new space, or reach another file than read(2) sees. */
static bool
mapping_is_kept(int fd)
{
    struct statfs found;

    if (fstatfs(fd, &found) != 0)
        return false;
    return found.f_type == EXT4_SUPER_MAGIC || found.f_type == XFS_SUPER_MAGIC ||
           found.f_type == TMPFS_MAGIC;
}

static int
posix_map(void *ctx, int fd, uint64_t offset, size_t length, void **address_out)
{
    void *address;
    int result;

    (void)ctx;
    if (!mapping_is_kept(fd))
        return -EOPNOTSUPP;
    address = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)offset);
    if (address == MAP_FAILED)
        return -errno;
    // Populating takes every page now, so that a full disk is an error here and no SIGBUS at a store.
    if (madvise(address, length, MADV_DONTFORK) != 0 ||
        madvise(address, length, MADV_POPULATE_WRITE) != 0) {
        result = -errno;
        (void)munmap(address, length);
        return result;
    }
    *address_out = address;
    return 0;
}

static int
posix_unmap(void *ctx, void *address, size_t length)
{
    (void)ctx;
    return munmap(address, length) != 0 ? -errno : 0;
}

const struct tm_os *
tm_os_posix(void)
{
    static const struct tm_os os = {
        .ctx = NULL,
        .open_dir = posix_open_dir,
        .make_dir = posix_make_dir,
        .remove_dir = posix_remove_dir,
        .sync_parent = posix_sync_parent,
        .sync_dir = posix_sync_dir,
        .list = posix_list,
        .open = posix_open,
        .close = posix_close,
        .stat = posix_stat,
        .pread = posix_pread,
        .pwrite = posix_pwrite,
        .sync = posix_sync,
        .start_writeback = posix_start_writeback,
        .truncate = posix_truncate,
        .allocate = posix_allocate,
        .map = posix_map,
        .unmap = posix_unmap,
        .rename = posix_rename,
        .link = posix_link,
        .remove = posix_remove,
        .lock = posix_lock,
        .is_locked = posix_is_locked,
        .unlock = posix_unlock,
        .fork_generation = posix_fork_generation,
    };

    return &os;
}
