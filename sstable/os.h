/* SPDX-License-Identifier: MIT
 *
 * sstable/os.h -- the system calls beneath the POSIX file system, as a table.
 *
 * fs_posix.c composes durability out of these (temporary file, sync, rename, directory sync); the real table is
 * in os_posix.c, and the simulator of tests/support puts its own here, so that even the composition is
 * tested against crashes. All return 0 or a count on success and -errno on failure; a short read or write is
 * returned as such and is the caller's to continue; EINTR is returned as such too.
 */
#ifndef TM_SSTABLE_OS_H
#define TM_SSTABLE_OS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <tamis/types.h>

enum tm_os_open {
    TM_OS_READ = 1,       // for reading
    TM_OS_CREATE_NEW = 2, // for reading and writing; must not exist
    TM_OS_CREATE = 4,     // for reading and writing; may exist (LOCK)
};

/* What of LOCK is locked. Two bytes, so that readers and the writer do not stand in each other's way. */
enum tm_os_lock {
    TM_OS_LOCK_WRITER = 0, // byte 0, exclusively; the descriptor must be open for writing
    TM_OS_LOCK_READER = 1, // byte 1, shared by any number
};

/* What a call is for: lets a test aim a fault at one kind of file. */
enum tm_os_class {
    TM_OS_CLASS_TABLE = 1,
    TM_OS_CLASS_LOG,
    TM_OS_CLASS_MANIFEST,
    TM_OS_CLASS_CURRENT,
    TM_OS_CLASS_LOCK,
    TM_OS_CLASS_DIR,
};

struct tm_os_stat {
    uint64_t size;
    uint64_t device;
    uint64_t inode;
    uint64_t link_count; // names this file has; 0: it was removed while open
    bool is_directory;
    bool is_regular;
};

struct tm_os {
    void *ctx;
    int (*open_dir)(void *ctx, const char *path);                     // descriptor
    int (*make_dir)(void *ctx, const char *path);                     // made, not yet durable
    int (*remove_dir)(void *ctx, const char *path);                   // only an empty one
    int (*sync_parent)(void *ctx, const char *path);                  // names in path's parent become durable
    int (*sync_dir)(void *ctx, int dir);                              // names in dir become durable
    int (*list)(void *ctx, int dir, bool (*visit)(void *arg, const char *name), void *arg);
    int (*open)(void *ctx, int dir, const char *name, int flags, enum tm_os_class file_class);
    int (*close)(void *ctx, int fd, enum tm_os_class file_class);
    int (*stat)(void *ctx, int fd, struct tm_os_stat *out);
    ssize_t (*pread)(void *ctx, int fd, void *buffer, size_t length, uint64_t offset,
                     enum tm_os_class file_class);
    ssize_t (*pwrite)(void *ctx, int fd, const void *data, size_t length, uint64_t offset,
                      enum tm_os_class file_class);
    int (*sync)(void *ctx, int fd, enum tm_os_class file_class);      // contents and size become durable
    int (*start_writeback)(void *ctx, int fd, uint64_t offset, uint64_t length); // a hint; durable later
    int (*truncate)(void *ctx, int fd, uint64_t size, enum tm_os_class file_class);
    int (*allocate)(void *ctx, int fd, uint64_t offset, uint64_t length); // blocks, and size grows, reads as zeros
    /* A shared, writable mapping, populated, not inherited by fork. Stores survive a killed process.
     * -EOPNOTSUPP where a mapping cannot promise that (or at all): the caller writes instead. */
    int (*map)(void *ctx, int fd, uint64_t offset, size_t length, void **address_out);
    int (*unmap)(void *ctx, void *address, size_t length);
    int (*rename)(void *ctx, int dir, const char *from, const char *to);
    /* A second name for a file, in another directory, where it must not exist; durable with sync_dir of that one. */
    int (*link)(void *ctx, int dir, const char *name, int dir_to, enum tm_os_class file_class);
    int (*remove)(void *ctx, int dir, const char *name, enum tm_os_class file_class);
    /* -EAGAIN when another open file description has it and does not share. Descriptors opened with TM_OS_CLASS_LOCK are
     * closed in a forked child, where `fork_generation` grows and unlock and close of them do nothing. */
    int (*lock)(void *ctx, int fd, enum tm_os_lock lock);
    int (*is_locked)(void *ctx, int fd,
                     enum tm_os_lock lock); // 1: by another open file description; else 0
    int (*unlock)(void *ctx, int fd);       // all that this description has
    uint64_t (*fork_generation)(void *ctx); // 0 in the process that started; a plain load
};

/** The real one (Linux). Static storage. */
const struct tm_os *tm_os_posix(void);

/** A tamis_fs over any tm_os, in memory of the caller, which must outlive every store that uses it. */
struct tm_fs_posix {
    tamis_fs fs;          // hand &fs to a store
    const struct tm_os *os;
    tamis_allocator allocator;
    bool map_logs; // logs through shared mappings where the file system allows; false: write(2)
};
void tm_fs_posix_init(struct tm_fs_posix *posix, const struct tm_os *os, tamis_allocator allocator,
                      bool map_logs);

#endif
