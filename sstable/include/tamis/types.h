/* SPDX-License-Identifier: MIT
 *
 * <tamis/types.h> -- the vocabulary of tamis: status, error, bytes, memory, file system.
 *
 * Most programs include <tamis/tamis.h>, which pulls this in. It stands alone so that a file system or an
 * allocator can be written without the rest.
 */
#ifndef TAMIS_TYPES_H
#define TAMIS_TYPES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifndef TAMIS_API
#define TAMIS_API __attribute__((visibility("default")))
#endif
#define TAMIS_NODISCARD __attribute__((warn_unused_result))

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Limits: checked before any state changes; beyond them TAMIS_TOO_LARGE ------------------------ */

#define TAMIS_KEY_BYTES_MAX   ((size_t)1 << 20) // 1 MiB
#define TAMIS_VALUE_BYTES_MAX ((size_t)1 << 30) // 1 GiB

/* ---- Status and error ----------------------------------------------------------------------------- */

/** What a call answers. A code exists only where a caller would act differently. Values never change. */
typedef enum tamis_status {
    TAMIS_OK = 0,
    TAMIS_NOT_FOUND = 1,    // an answer, not a failure: no such key, no such store
    TAMIS_IO = 2,           // the operating system said no; error.os_error tells why
    TAMIS_NO_SPACE = 3,     // the medium or a quota is full; free space and open again
    TAMIS_NO_MEMORY = 4,    // the allocator said no; nothing changed
    TAMIS_CORRUPT = 5,      // stored bytes are not what was written
    TAMIS_INVALID = 6,      // an argument, an option or the order of calls is wrong
    TAMIS_TOO_LARGE = 7,    // a key, value or batch is beyond its limit; nothing was written
    TAMIS_BUSY = 8,         // somebody else holds it: another writer, a live iterator
    TAMIS_READ_ONLY = 9,    // a write to a store that was opened read-only
    TAMIS_UNSUPPORTED = 10, // written by a newer version, with a feature this one lacks
    TAMIS_STALE = 11,       // a read-only view whose files are gone
    TAMIS_FENCED = 12,      // another writer has taken over
} tamis_status;

enum { TAMIS_STATUS_COUNT = 13 };

/** The detail of a failure, in memory of the caller's own. Every call that takes one also takes NULL. */
typedef struct tamis_error {
    tamis_status code;
    int os_error;      // errno value, or 0
    const char *where; // "sstable/codec.c:88": where the error was born; static storage
    char message[256]; // one sentence: file name, offset, what was expected, what was found
} tamis_error;

/** "OK", "NOT_FOUND", ...; "UNKNOWN" for a value that is none of ours. Static storage; any thread. */
TAMIS_API const char *tamis_status_name(tamis_status status);

/* ---- Bytes ---------------------------------------------------------------------------------------- */

/** Borrowed bytes. Any byte is allowed; data may be NULL when length is 0. */
typedef struct tamis_slice {
    const void *data;
    size_t length; // bytes
} tamis_slice;

/* ---- Memory --------------------------------------------------------------------------------------- */

/** Where a store gets its memory. Copied at open; every function may be called from any thread. */
typedef struct tamis_allocator {
    void *ctx;
    void *(*alloc)(void *ctx, size_t size);                                   // NULL: no memory
    void *(*resize)(void *ctx, void *p, size_t size_old, size_t size_new);    // NULL: p stays valid
    void (*release)(void *ctx, void *p, size_t size);                         // size as allocated
} tamis_allocator;

/* ---- File system ---------------------------------------------------------------------------------- */

typedef struct tamis_dir tamis_dir;   // one open directory: one store
typedef struct tamis_file tamis_file; // one open file
typedef struct tamis_lock tamis_lock; // one held lock

/** Tells the file system what will be done with a file, so that it may store kinds differently. */
typedef enum tamis_file_kind {
    TAMIS_FILE_TABLE = 1,    // appended, sealed once, then immutable
    TAMIS_FILE_LOG = 2,      // appended record by record, synced when somebody asks
    TAMIS_FILE_MANIFEST = 3, // appended rarely, synced every time
    TAMIS_FILE_CURRENT = 4,  // a few bytes, replaced as a whole
} tamis_file_kind;

/**
 * The contract that a place for stores keeps. POSIX directories are one (tamis_fs_posix()); memory and object
 * stores can be others. Functions return TAMIS_OK or say in `err` (which may be NULL) what failed; all may
 * be called from any thread, but one file has one appender at a time. Names are plain file names. NO_MEMORY with
 * os_error 0 says that nothing was done; after any other failure it may have been done in part.
 *
 * Durability, in the only words that matter: after `append` returns OK the bytes survive a killed process, and
 * may be lost by a power cut until `sync` (or `seal`) of that file has returned OK.
 */
typedef struct tamis_fs {
    uint32_t struct_size; // sizeof(tamis_fs) of the caller
    void *ctx;

    /* Open the directory at `path`; create it (its parent must exist) if `create`, durably. NOT_FOUND when it
     * is missing and !create; INVALID when it is no directory. *created_out tells a rollback what to undo. */
    tamis_status (*open_dir)(void *ctx, const char *path, bool create, bool *created_out,
                             tamis_dir **dir_out, tamis_error *err);
    void (*close_dir)(void *ctx, tamis_dir *dir);
    /* Remove the directory at `path` if it is empty; leave it otherwise (OK either way). */
    tamis_status (*remove_dir)(void *ctx, const char *path, tamis_error *err);
    /* Call `visit` for each name; a false return stops the walk. */
    tamis_status (*list)(void *ctx, tamis_dir *dir, bool (*visit)(void *arg, const char *name),
                         void *arg, tamis_error *err);

    /* Become the one writer of this directory, on any path to it, in any process. BUSY when there is one. */
    tamis_status (*lock)(void *ctx, tamis_dir *dir, tamis_lock **lock_out, tamis_error *err);
    /* Become one of the readers of this directory, beside its writer and any number of others. Changes and makes
     * nothing. Where no lock can be had (a read-only copy without a lock file, say) it is OK all the same, and
     * a writer that comes later does not know of this reader. */
    tamis_status (*lock_shared)(void *ctx, tamis_dir *dir, tamis_lock **lock_out, tamis_error *err);
    /* The writer asks: is there a reader that took its lock before this call and still has it? */
    tamis_status (*has_readers)(void *ctx, tamis_lock *lock, bool *has_readers_out,
                                tamis_error *err);
    void (*unlock)(void *ctx, tamis_lock *lock);
    /* False once this process is a fork of the one that took the lock. A plain load. */
    bool (*lock_is_ours)(void *ctx, const tamis_lock *lock);

    /* Create `name` for appending; it must not exist. Waits for no disk: the name becomes durable with the contents, when
     * the file is first synced or sealed. */
    tamis_status (*create)(void *ctx, tamis_dir *dir, const char *name, tamis_file_kind kind,
                           tamis_file **file_out, tamis_error *err);
    /* Append the pieces, one after the other. On failure an unknown part of them may be in the file. */
    tamis_status (*append)(void *ctx, tamis_file *file, const tamis_slice *pieces,
                           size_t piece_count, tamis_error *err);
    /* All that was appended before the call is durable on OK, the name included. May run beside an append. */
    tamis_status (*sync)(void *ctx, tamis_file *file, tamis_error *err);
    /* Contents, length and name are durable on OK; nothing may be appended afterwards. */
    tamis_status (*seal)(void *ctx, tamis_file *file, tamis_error *err);

    /* Open `name` for reading. *size_out is its length in bytes. NOT_FOUND when it is missing. */
    tamis_status (*open)(void *ctx, tamis_dir *dir, const char *name, tamis_file_kind kind,
                         tamis_file **file_out, uint64_t *size_out, tamis_error *err);
    /* Read exactly `length` bytes at `offset`; CORRUPT when the file ends before. */
    tamis_status (*read_at)(void *ctx, tamis_file *file, uint64_t offset, void *buffer,
                            size_t length, tamis_error *err);
    /* Close either kind of file; the handle is gone whatever is returned. Trims what an appender had reserved. */
    tamis_status (*close)(void *ctx, tamis_file *file, tamis_error *err);

    /* Put `contents` under `name` as one step: after a crash either the old or the new contents are there, and
     * after OK the new. Leaves no temporary file behind unless the machine dies. */
    tamis_status (*replace)(void *ctx, tamis_dir *dir, const char *name, tamis_slice contents,
                            tamis_error *err);
    /* Make the sealed table `name` appear in `to` under the same name, which must not exist there, without copying its bytes.
     * The new name becomes durable with the next file that is first synced, or sealed, in `to`. UNSUPPORTED: not possible
     * between these two, or not once more: copy it. */
    tamis_status (*link)(void *ctx, tamis_dir *from, const char *name, tamis_dir *to,
                         tamis_error *err);
    /* Remove `name`. OK when it is already gone. A power cut may bring it back. */
    tamis_status (*remove)(void *ctx, tamis_dir *dir, const char *name, tamis_error *err);
} tamis_fs;

/** The POSIX file system (Linux). Static storage; any thread. */
TAMIS_API const tamis_fs *tamis_fs_posix(void);

#ifdef __cplusplus
}
#endif
#endif
