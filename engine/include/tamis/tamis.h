/* SPDX-License-Identifier: MIT
 *
 * <tamis/tamis.h> -- an embeddable, ordered key-value store whose read path you can see.
 *
 * The whole of it in one breath (tests/engine/test_header_example.c compiles and runs this text):
 *
 *     #include <stdio.h>
 *     #include <tamis/tamis.h>
 *
 *     int main(int argc, char **argv)
 *     {
 *         tamis_error err;
 *         tamis_db *db = NULL;
 *         tamis_options options;
 *         char value[64];
 *         size_t length;
 *
 *         tamis_options_init(&options);
 *         options.create_if_missing = true;
 *         if (tamis_open(argc > 1 ? argv[1] : "fruit.db", &options, &db, &err) != TAMIS_OK)
 *             return fprintf(stderr, "%s\n", err.message), 1;
 *         if (tamis_put(db, NULL, tamis_text("apple"), tamis_text("red"), &err) != TAMIS_OK)
 *             return fprintf(stderr, "%s\n", err.message), 1;
 *         if (tamis_get(db, NULL, tamis_text("apple"), value, sizeof value, &length, &err) == TAMIS_OK)
 *             printf("apple is %.*s\n", (int)length, value);
 *         return tamis_close(db, &err) == TAMIS_OK ? 0 : 1;
 *     }
 *
 * What to know before you rely on it
 *
 *   - A write that returned OK survives a killed process at once. It survives a power cut once a later write with
 *     `sync`, a tamis_flush() or a tamis_close() has returned OK; after a power cut without that, the store
 *     holds a prefix of the writes in the order of their commits, never a later one without an earlier one.
 *     Writes that asked for `no_log` are outside of this: until a flush or a close, either may take them alone.
 *   - A batch is there as a whole or not at all.
 *   - A write that returned an error may or may not appear later, as a whole. After an I/O error of the log
 *     or the manifest, writes fail with that first error until the store is opened again; reads go on.
 *   - Bytes that changed on the medium are answered with CORRUPT, never with a wrong value and never
 *     with NOT_FOUND. One silent cut is allowed: the torn end of the newest log beyond its last sync.
 *   - One handle at a time may have a store open for writing, in whatever process. Beside it any number of others may have
 *     it open read-only. A child made by fork() cannot use the parent's handle: every call answers INVALID there.
 *   - tamis_may_exist() asks memory and filters only: "true" is a maybe. tamis_exists() is exact.
 *   - Keys are ordered bytewise, unless the store is made with a comparator. Empty keys and empty values are keys and values.
 *   - Any handle may be used from any thread, except that one iterator or batch is used by one thread at a time.
 *   - tamis_close() refuses with BUSY while iterators, snapshots or pinned values are alive.
 *
 * Every function that takes `err` takes NULL as well; it is filled exactly when a failure is returned, and left
 * alone for OK and NOT_FOUND of lookups. Structures that start with struct_size are initialised by their *_init function.
 *
 * Order of this header: version - options - opening - writing - batches - reading - snapshots - iterators -
 * maintenance - seeing inside.
 */
#ifndef TAMIS_H
#define TAMIS_H

#include <string.h>

#include <tamis/filter.h>
#include <tamis/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Version -------------------------------------------------------------------------------------- */

#define TAMIS_VERSION_MAJOR 0
#define TAMIS_VERSION_MINOR 1
#define TAMIS_VERSION_PATCH 0

/** "0.1.0" of the library that is linked. Static storage. */
TAMIS_API const char *tamis_version(void);

/** The bytes of a C string, without its NUL, borrowed. */
static inline tamis_slice
tamis_text(const char *text)
{
    tamis_slice slice = {text, strlen(text)};
    return slice;
}

/* ---- Limits --------------------------------------------------------------------------------------- */

#define TAMIS_BATCH_BYTES_MAX ((size_t)1 << 31) // keys, values and a few bytes an operation
#define TAMIS_BATCH_COUNT_MAX ((size_t)1 << 24) // operations
enum { TAMIS_LEVEL_COUNT = 7 };

/* ---- Options -------------------------------------------------------------------------------------- */

typedef enum tamis_compression {
    TAMIS_COMPRESSION_NONE = 0,
    TAMIS_COMPRESSION_LZ4 = 1, // per block, kept where it saves an eighth
} tamis_compression;

/** How much a message matters; a logger hears its least level and everything before it. */
typedef enum tamis_log_level {
    TAMIS_LOG_ERROR = 0,   // background work failed: writes, flushes or compaction stand still
    TAMIS_LOG_WARNING = 1, // the store works, but not as well or not as clean as it should
    TAMIS_LOG_INFO =
        2, // opened, closed, recovered, flushed, compacted: with tables, bytes and seconds
    TAMIS_LOG_DEBUG = 3, // a new log, a table moved without being rewritten
} tamis_log_level;

/**
 * Where a store tells what it does by itself. Reads tell nothing. A failure that a call returns is not told as well, unless it is one
 * of background work; that is in the statistics too (background_error, background_error_count).
 *
 * `log` is called from any thread, several at once, the user's in open, write and close among them; never with a lock of the store
 * held. It must not call the store, which may be waiting for it. A call that waited for background work may return a moment before
 * that is told; tamis_wait_idle() returns after. `message` is one line without its end, UTF-8 where
 * the path is, shorter than 512 bytes, borrowed for the call.
 */
typedef struct tamis_logger {
    void *ctx;
    void (*log)(void *ctx, tamis_log_level level, const char *message);
    tamis_log_level least;
} tamis_logger;

enum { TAMIS_COMPARATOR_NAME_BYTES_MAX = 64 };

/**
 * The order of a store's keys, for good: its name is kept in the store, and opening it with another one is INVALID, naming both.
 *
 * `compare` answers below, equal to or above 0 as `a` stands before, with or behind `b`. It must be a total order, and the same
 * today and always; it is called from any thread, several at once, also while a lock is held, must not call the store, and cannot
 * fail. The store trusts it: an order that contradicts itself loses keys from sight, though none from disk.
 *
 * What it costs. Bytes tell how to search, so another order is slower: whole keys are compared at every step, and blocks keep
 * them whole. Where keys of different bytes can be equal (`equal_is_bytewise` false: upper and lower case, say) tables have neither
 * filters nor tags, tamis_may_exist() knows key ranges alone, and a key is shown in the bytes with which it was put last.
 * tamis_delete_range() is UNSUPPORTED under an order that is not bytewise.
 */
typedef struct tamis_comparator {
    void *ctx;        // given to compare; used until close
    const char *name; // 1..64 printable ASCII characters without spaces; borrowed until close
    int (*compare)(void *ctx, tamis_slice a, tamis_slice b);
    bool bytewise_ordered; // it is the bytewise order: nothing is lost, and `compare` is not called
    bool equal_is_bytewise; // keys are equal only if their bytes are
} tamis_comparator;

/** How to open a store. Initialise with tamis_options_init(), change what you must. Copied at open. */
typedef struct tamis_options {
    uint32_t struct_size;

    bool create_if_missing; // default false. A missing store is made; its parent directory must exist
    bool error_if_exists;   // default false. INVALID if there is a store already

    /* Default false. Open beside a writer, or without one, and change nothing: no byte, no file, no lock that stands in
     * anybody's way; the directory and its files need not be writable. The handle shows the store as it was when it was
     * opened, what stands only in the log included, until tamis_refresh(). While it is open the writer keeps the files it needs
     * (tamis_stats.reader_files_kept), unless there is no file LOCK, as in a copy on a read-only medium. Writes,
     * tamis_flush() and tamis_compact_range() answer READ_ONLY. Not together with the two above: INVALID. */
    bool read_only;

    /* Memory for new writes, in bytes; 64 KiB..4 GiB, default 64 MiB. A memtable that has grown to this size is
     * written out as a table. Up to two are in memory. */
    uint64_t write_buffer_bytes;

    /* Target of an unpacked data block in bytes; 64..16 MiB, default 4 KiB. Smaller reads less per lookup,
     * larger packs better. */
    uint32_t block_bytes;

    /* Memory for unpacked data blocks, in bytes; 0..2^48, default 64 MiB. 0 keeps none. */
    uint64_t block_cache_bytes;

    /* Threads that compact, beside the one that flushes; 1..32, default 2. They work on different tables, or share a large
     * job; each needs memory for the table it writes. */
    uint32_t background_threads;

    /* Filter of new tables: STANDARD, BLK512 or PAIR512 (default). Files keep the kind they were written with. */
    tamis_filter_kind filter_kind;

    /* Size of the filter of new tables in bits per key (of each table's own exact count of distinct keys, not
     * for the whole store); 0..32, fractions count, default 10.0 (0.85 % false positives). 0: no filter. */
    double filter_bits_per_key;

    /* When not 0, decides the bits instead: wanted rate of false positives, 1e-6..0.5. Default 0. */
    double filter_false_positive_rate;

    tamis_compression compression; // of new tables; default LZ4

    /* Descriptors that tables may hold, 0..2^20; default 1000, 0: one a table. Beyond it the table that was read longest ago
     * (about) is closed and opens again when it is read. Filters and indexes stay in memory in any case. Reads that run at the
     * same time may hold more, one each; logs, manifest, directory and lock take five further ones. */
    uint32_t max_open_files;

    /* The order of keys; NULL (default): bytewise. The same at every opening of a store. Copied at open. */
    const tamis_comparator *comparator;

    const tamis_allocator *allocator; // NULL (default): malloc. Copied at open
    const tamis_fs *fs;               // NULL (default): tamis_fs_posix(). Borrowed until close
    const tamis_logger
        *logger; // NULL (default): nothing is told. Copied at open; its ctx is used until close
} tamis_options;

TAMIS_API void tamis_options_init(tamis_options *options);

/* ---- Opening -------------------------------------------------------------------------------------- */

typedef struct tamis_db tamis_db; // one open store

/**
 * Open the store in directory `path`, recovering what a crash left.
 *
 * @param path     directory; borrowed for the call. Later changes of the working directory do not matter
 * @param options  NULL: defaults; copied
 * @param db_out   [out] on OK; close with tamis_close(). NULL otherwise
 * @return OK; NOT_FOUND: no store there and !create_if_missing (nothing was made); INVALID: a bad option, `path` is a file,
 *         a store is there and error_if_exists, or its keys are in another order; BUSY: open already, here or in another process;
 *         CORRUPT: a file is missing or damaged (named; nothing was changed or removed);
 *         UNSUPPORTED: written by a newer version; IO, NO_SPACE, NO_MEMORY
 *
 * Threads  any.
 * Cost     reads the manifest and every table's index and filter; replays the log and writes what it held as tables.
 *          read_only: keeps what the logs hold in memory.
 * Durable  what a successful open shows stays, even after an immediate power cut.
 */
TAMIS_NODISCARD TAMIS_API tamis_status tamis_open(const char *path, const tamis_options *options,
                                                  tamis_db **db_out, tamis_error *err);

/**
 * Close the store: finish or stop background work, flush what is in no log, sync the log, let go of the lock.
 *
 * @param db  taken unless BUSY is returned; NULL is OK
 * @return OK; BUSY: iterators, snapshots or pinned values are alive, or calls are running: the store stays open;
 *         IO, NO_SPACE, NO_MEMORY: closed, but the last writes may not survive a power cut (they do survive the process, but
 *         for those with no_log);
 *         INVALID: in a forked child: nothing is touched, the child's copy of the handle ends with the child
 *
 * Durable  everything that was written, on OK.
 */
TAMIS_API tamis_status tamis_close(tamis_db *db, tamis_error *err);

/**
 * Move a handle that was opened read_only forward to the state its writer has reached by now. Iterators, snapshots and pinned
 * values that are there keep what they see.
 *
 * @return OK: everything that was written before the call is shown; INVALID: the handle is open for writing, or a forked
 *         child; STALE: a file that is needed has gone, or another store has taken the place of this one; CORRUPT,
 *         UNSUPPORTED, IO, NO_MEMORY. On failure the handle shows what it showed before
 *
 * Threads  any; one at a time, others wait.
 * Cost     reads the manifest, the index and filter of tables that are new, and the log as opening does.
 */
TAMIS_NODISCARD TAMIS_API tamis_status tamis_refresh(tamis_db *db, tamis_error *err);

/**
 * Remove the store in `path`: its own files, and the directory if that leaves it empty. Foreign files stay.
 *
 * @param options  for its fs and allocator; NULL: defaults
 * @return OK; NOT_FOUND: no such directory or no store in it; BUSY: it is open, be it read-only; IO
 */
TAMIS_API tamis_status tamis_destroy(const char *path, const tamis_options *options,
                                     tamis_error *err);

/* ---- Writing -------------------------------------------------------------------------------------- */

typedef struct tamis_write_options {
    uint32_t struct_size;
    bool sync; // default false. On OK this write and all before it survive a power cut
    /* Default false. The log is left out: the write is in memory only until the memtable is flushed (tamis_flush(), a full
     * write buffer, tamis_close()), and until then it is lost, as a whole, with the process. It stands outside the promise
     * about prefixes: a later write may survive it. For data that can be made anew. Not together with sync. */
    bool no_log;
} tamis_write_options;

TAMIS_API void tamis_write_options_init(tamis_write_options *options);

/**
 * Set `key` to `value`.
 *
 * @param options  NULL: defaults
 * @param key      0..TAMIS_KEY_BYTES_MAX bytes; copied
 * @param value    0..TAMIS_VALUE_BYTES_MAX bytes; copied
 * @return OK; TOO_LARGE: nothing was written; INVALID: sync and no_log, or a forked child; IO, NO_SPACE: the write may or may not appear later, and
 *         further writes fail with the same error; or a memtable could not be written out: then nothing of this write was
 *         written, and the next write that needs the room tries again; NO_MEMORY: nothing was written; READ_ONLY: opened so
 *
 * Threads  any. Concurrent writers share one write to the log.
 * Cost     one append to the log. While background work is behind, a few milliseconds now and then, so that writes
 *          come at the speed it goes on with; when it is far behind, until it has gone on.
 * Durable  after OK: survives a killed process; a power cut too, with `sync`; neither before a flush, with `no_log`.
 */
TAMIS_NODISCARD TAMIS_API tamis_status tamis_put(tamis_db *db, const tamis_write_options *options,
                                                 tamis_slice key, tamis_slice value,
                                                 tamis_error *err);

/** Remove `key`; OK whether it was there or not. Otherwise as tamis_put(). */
TAMIS_NODISCARD TAMIS_API tamis_status tamis_delete(tamis_db *db,
                                                    const tamis_write_options *options,
                                                    tamis_slice key, tamis_error *err);

/**
 * Remove every key k with from <= k < to, atomically; a range that is empty (from >= to) removes nothing. One entry in the
 * log, whatever the range holds. UNSUPPORTED where keys are not ordered bytewise. Otherwise as tamis_put().
 *
 * Cost  until compaction has carried it to the bottom, every read and every entry walked over is compared with the
 *       ranges that begin before its key and reach beyond it; their keys stay in memory. A walk over the range reads a few
 *       blocks of each older table, however many keys it hides there.
 */
TAMIS_NODISCARD TAMIS_API tamis_status tamis_delete_range(tamis_db *db,
                                                          const tamis_write_options *options,
                                                          tamis_slice from, tamis_slice to,
                                                          tamis_error *err);

/* ---- Batches -------------------------------------------------------------------------------------- */

/*
 * A batch holds whole operations, in their order, and belongs to one thread at a time. What is refused (TOO_LARGE, NO_MEMORY) leaves
 * it as it was. It can be written again and again, to any store, and be cleared and filled anew: clearing keeps its memory.
 */
typedef struct tamis_batch tamis_batch; // puts and deletes that take effect together, in their order

/** Make an empty batch. allocator NULL: malloc; copied. OK or NO_MEMORY; free with tamis_batch_destroy(). */
TAMIS_NODISCARD TAMIS_API tamis_status tamis_batch_create(const tamis_allocator *allocator,
                                                          tamis_batch **batch_out,
                                                          tamis_error *err);
TAMIS_API void tamis_batch_destroy(tamis_batch *batch); // NULL allowed
TAMIS_API void tamis_batch_clear(tamis_batch *batch);   // empty again; keeps its memory
/** Add an operation; bytes are copied. OK; TOO_LARGE (key, value, or the batch as a whole) or NO_MEMORY: unchanged. */
TAMIS_NODISCARD TAMIS_API tamis_status tamis_batch_put(tamis_batch *batch, tamis_slice key,
                                                       tamis_slice value, tamis_error *err);
TAMIS_NODISCARD TAMIS_API tamis_status tamis_batch_delete(tamis_batch *batch, tamis_slice key,
                                                          tamis_error *err);
/** As tamis_delete_range(): what the batch has put before goes, what it puts after stays. It is bytewise: writing the batch to a
 *  store of another order is UNSUPPORTED. */
TAMIS_NODISCARD TAMIS_API tamis_status tamis_batch_delete_range(tamis_batch *batch,
                                                                tamis_slice from, tamis_slice to,
                                                                tamis_error *err);
/**
 * Add the operations of `more` behind those of `batch`.
 *
 * @param more  borrowed, unchanged; may be `batch` itself, whose operations are then doubled
 * @return OK; TOO_LARGE (the two together), NO_MEMORY: unchanged
 */
TAMIS_NODISCARD TAMIS_API tamis_status tamis_batch_append(tamis_batch *batch,
                                                          const tamis_batch *more,
                                                          tamis_error *err);

typedef enum tamis_operation_kind {
    TAMIS_OPERATION_PUT = 1,
    TAMIS_OPERATION_DELETE = 2,       // no value
    TAMIS_OPERATION_DELETE_RANGE = 3, // from key up to value, exclusive
} tamis_operation_kind;

typedef struct tamis_operation {
    tamis_operation_kind kind;
    tamis_slice key, value; // borrowed from the batch, until it changes
} tamis_operation;

/** Call `visit` for each operation in its order; false stops. It must not change the batch. */
TAMIS_API void tamis_batch_visit(const tamis_batch *batch,
                                 bool (*visit)(void *arg, const tamis_operation *operation),
                                 void *arg);
TAMIS_API size_t tamis_batch_count(const tamis_batch *batch); // operations
TAMIS_API size_t tamis_batch_bytes(const tamis_batch *batch); // counted against TAMIS_BATCH_BYTES_MAX

/** Apply the batch, all or nothing. The batch is borrowed and unchanged; an empty one is OK. Otherwise as tamis_put(). */
TAMIS_NODISCARD TAMIS_API tamis_status tamis_write(tamis_db *db,
                                                   const tamis_write_options *options,
                                                   const tamis_batch *batch, tamis_error *err);

/* ---- Reading -------------------------------------------------------------------------------------- */

typedef struct tamis_snapshot tamis_snapshot; // the store as it was at one moment

typedef struct tamis_read_options {
    uint32_t struct_size;
    const tamis_snapshot *snapshot; // default NULL: the newest state. Of the same store; alive during the call
} tamis_read_options;

TAMIS_API void tamis_read_options_init(tamis_read_options *options);

/**
 * Look `key` up and copy its value.
 *
 * @param buffer      receives the first min(capacity, length) bytes; NULL allowed when capacity is 0
 * @param length_out  [out] on OK the whole length of the value in bytes; larger than capacity: call again with room
 * @return OK: found; NOT_FOUND; CORRUPT, IO, NO_MEMORY, TOO_LARGE (a key beyond the limit), INVALID;
 *         STALE: a read-only handle needs a table again that has gone
 *
 * Threads  any.
 * Cost     no I/O if filters and cache answer; else a block per file whose filter says "maybe".
 */
TAMIS_NODISCARD TAMIS_API tamis_status tamis_get(tamis_db *db, const tamis_read_options *options,
                                                 tamis_slice key, void *buffer, size_t capacity,
                                                 size_t *length_out, tamis_error *err);

/** A value held in the store's own memory, without a copy. */
typedef struct tamis_pinned {
    tamis_slice value; // valid until tamis_pinned_release()
    void *owner[3];    // private
} tamis_pinned;

/** As tamis_get(), without a copy: on OK the value stays readable until tamis_pinned_release(). */
TAMIS_NODISCARD TAMIS_API tamis_status tamis_get_pinned(tamis_db *db,
                                                        const tamis_read_options *options,
                                                        tamis_slice key, tamis_pinned *pinned_out,
                                                        tamis_error *err);
/** Let a pinned value go; any thread; a zeroed or released one is allowed. */
TAMIS_API void tamis_pinned_release(tamis_pinned *pinned);

/** One of the keys that tamis_multi_get() looks up. */
typedef struct tamis_lookup {
    tamis_slice key; // to be filled in: borrowed during the call
    /* OK: found; NOT_FOUND; CORRUPT, IO, NO_MEMORY, TOO_LARGE, STALE, INVALID as of tamis_get(). */
    tamis_status status;
    /* With OK: let each go with tamis_pinned_release(), which may be called with the others, too. */
    tamis_pinned value;
} tamis_lookup;

/**
 * Look many keys up, all at the same moment.
 *
 * @param lookups  `count` of them, in any order, the same key more than once if need be; status and value are written,
 *                 whatever stood there
 * @return OK: each one is OK or NOT_FOUND; INVALID: none was looked up, and each says so; else the first status that is
 *         neither, with its message in `err`: the others are answered all the same
 *
 * Threads  any.
 * Cost     a key costs less than alone, since the accesses to memory of 32 keys overlap; I/O as alone, one after the other.
 *          What is looked at stays as it is until the call ends: thousands of keys rather than millions.
 */
TAMIS_NODISCARD TAMIS_API tamis_status tamis_multi_get(tamis_db *db,
                                                       const tamis_read_options *options,
                                                       tamis_lookup *lookups, size_t count,
                                                       tamis_error *err);

/** Is `key` there? Exact. *exists_out is set on OK. Statuses and cost as tamis_get(), NOT_FOUND aside. */
TAMIS_NODISCARD TAMIS_API tamis_status tamis_exists(tamis_db *db,
                                                    const tamis_read_options *options,
                                                    tamis_slice key, bool *exists_out,
                                                    tamis_error *err);

/**
 * May `key` be there? Asks memtables, key ranges and filters only: no I/O. false is certain; true is a maybe,
 * also for keys that were deleted. Never use it where an answer matters: that is tamis_exists().
 *
 * @return OK, TOO_LARGE, INVALID
 */
TAMIS_NODISCARD TAMIS_API tamis_status tamis_may_exist(tamis_db *db, tamis_slice key,
                                                       bool *may_exist_out, tamis_error *err);

/* ---- Snapshots ------------------------------------------------------------------------------------ */

/** Remember this moment: reads with it see the store as it is now. OK, NO_MEMORY, INVALID. */
TAMIS_NODISCARD TAMIS_API tamis_status tamis_snapshot_take(tamis_db *db,
                                                           tamis_snapshot **snapshot_out,
                                                           tamis_error *err);
/** NULL allowed. Versions that only it could see are dropped by later compactions. */
TAMIS_API void tamis_snapshot_release(tamis_db *db, tamis_snapshot *snapshot);

/* ---- Iterators ------------------------------------------------------------------------------------ */

typedef struct tamis_iter tamis_iter; // a walk over the store as it was when the walk was opened

typedef struct tamis_iter_options {
    uint32_t struct_size;
    const tamis_snapshot *snapshot; // default NULL: the moment of opening
    const tamis_slice *lower;       // inclusive; default NULL: unbounded. Copied
    const tamis_slice *upper;       // exclusive; default NULL: unbounded. Copied
} tamis_iter_options;

TAMIS_API void tamis_iter_options_init(tamis_iter_options *options);

/**
 * Open an iterator. It stands nowhere until first, last or a seek. It never asks a filter.
 *
 * @return OK, TOO_LARGE (a bound beyond the key limit), NO_MEMORY, INVALID; close with tamis_iter_close()
 *
 * Cost    a long walk reads ahead: up to 128 KiB for each level and each table of level 0, until the iterator is closed.
 */
TAMIS_NODISCARD TAMIS_API tamis_status tamis_iter_open(tamis_db *db,
                                                       const tamis_iter_options *options,
                                                       tamis_iter **iter_out, tamis_error *err);
TAMIS_API void tamis_iter_close(tamis_iter *iter); // NULL allowed

/*
 * Moving. Where there is no such key within the bounds the iterator is no longer valid, and only first, last and the seeks
 * move it again. Walking backward costs a copy of each key and value; turning round costs a seek.
 */
TAMIS_API void tamis_iter_first(tamis_iter *iter);
TAMIS_API void tamis_iter_last(tamis_iter *iter);
TAMIS_API void tamis_iter_seek(tamis_iter *iter,
                               tamis_slice key); // to the first key at or after `key`
TAMIS_API void tamis_iter_seek_for_prev(tamis_iter *iter,
                                        tamis_slice key); // to the last key at or before `key`
TAMIS_API void tamis_iter_next(tamis_iter *iter);         // nothing happens when not valid
TAMIS_API void tamis_iter_prev(tamis_iter *iter);         // nothing happens when not valid

/** Stands on a key. false: the end, or a failure; tamis_iter_status() tells which. Valid means status OK. */
TAMIS_API bool tamis_iter_valid(const tamis_iter *iter);
/** Borrowed until the next move or close; empty when not valid. May be given to a seek. */
TAMIS_API tamis_slice tamis_iter_key(const tamis_iter *iter);
TAMIS_API tamis_slice tamis_iter_value(const tamis_iter *iter);
/** OK; or the failure that ended the walk (CORRUPT, IO, NO_MEMORY, STALE), until first, last or a seek is called. */
TAMIS_API tamis_status tamis_iter_status(const tamis_iter *iter, tamis_error *err);

/* ---- Maintenance ---------------------------------------------------------------------------------- */

/** Write the memtable out as tables. Returns when that is done. Durable: everything written before. OK, IO, NO_SPACE, NO_MEMORY, CORRUPT, READ_ONLY, INVALID. */
TAMIS_API tamis_status tamis_flush(tamis_db *db, tamis_error *err);

/**
 * Compact the keys from..to (inclusive; NULL is unbounded) down to the last level, the memtable included:
 * one call leaves no overwritten or deleted version that no snapshot needs.
 *
 * @return OK; TOO_LARGE (a bound beyond the key limit); CORRUPT (a damaged table: nothing was removed), IO, NO_SPACE,
 *         NO_MEMORY, READ_ONLY, INVALID
 */
TAMIS_API tamis_status tamis_compact_range(tamis_db *db, const tamis_slice *from,
                                           const tamis_slice *to, tamis_error *err);

/** Return when no flush or compaction is due or running. The status is that of background work. */
TAMIS_API tamis_status tamis_wait_idle(tamis_db *db, tamis_error *err);

/**
 * Make a copy of the store in `path`: a store of its own, which shares the bytes of its tables with this one as long as both
 * are there (by hard links; where these are not possible the tables are copied). Writing goes on meanwhile.
 *
 * @param path  a directory that is missing or empty; its parent must exist; on the store's fs
 * @return OK: everything written before the call is in it, and durable; INVALID: `path` is a file, or a directory in which
 *         something is, or a forked child; BUSY: somebody else is making a store there; READ_ONLY: this handle is;
 *         CORRUPT, IO, NO_SPACE, NO_MEMORY. On failure nothing is left in `path`, as far as it can be removed
 *
 * Threads  any.
 * Cost     a flush, a link a table (or its copy), a manifest.
 * Crash    a power cut meanwhile leaves no directory, one that is refused when it is opened, or the whole copy.
 */
TAMIS_NODISCARD TAMIS_API tamis_status tamis_checkpoint(tamis_db *db, const char *path,
                                                        tamis_error *err);

/** Work done so far and in all, in bytes (estimate). false: stop. Called from the thread that asked. */
typedef bool (*tamis_progress)(void *arg, uint64_t done_bytes, uint64_t total_bytes);

/**
 * Read every table in full: checksums, order, counts, and every filter asked for every key of its table.
 * Log and manifest were verified by opening.
 *
 * @return OK; CORRUPT: the first fault found, with file, offset, expected and found; IO, NO_MEMORY, INVALID
 */
TAMIS_API tamis_status tamis_verify(tamis_db *db, tamis_progress progress, void *arg,
                                    tamis_error *err);

/* ---- Seeing inside -------------------------------------------------------------------------------- */

typedef struct tamis_level_stats {
    uint64_t file_count;
    uint64_t file_bytes;
    uint64_t entry_count;     // versions, tombstones included
    uint64_t tombstone_count;
    uint64_t
        range_tombstone_count; // deleted ranges, beside the entries; one that reaches over several files counts in each
    uint64_t key_count;       // distinct keys of each file, added up
    uint64_t filter_bytes;
    double bits_per_key_requested; // mean over files, weighted by keys
    double bits_per_key_delivered;
    uint64_t filter_probes;          // filters asked
    uint64_t filter_negatives;       // "no": file skipped     (RocksDB: bloom.filter.useful)
    uint64_t filter_true_positives;  // "maybe", and it was    (RocksDB: bloom.filter.full.true.positive)
    uint64_t filter_false_positives; // "maybe", and it was not (RocksDB: full.positive less full.true.positive)
    double false_positive_rate_measured; // FP / (FP + TN); NaN when nothing was asked
    double false_positive_rate_theory;   // exact, mean over files weighted by keys
} tamis_level_stats;

typedef struct tamis_stats {
    uint32_t struct_size;
    tamis_level_stats level[TAMIS_LEVEL_COUNT];
    tamis_level_stats total;

    uint64_t gets, gets_found;        // tamis_get, get_pinned, exists
    uint64_t memtable_hits;           // answered (found or deleted) by a memtable
    uint64_t tables_skipped_by_range; // not asked: the key is outside the file's range
    uint64_t tables_read;             // files in which a block was searched
    uint64_t cache_hits, cache_misses; // blocks
    uint64_t filters_damaged;         // tables whose filter answers "maybe" because it is damaged
    uint64_t user_bytes_written;      // keys and values given to put, delete and write
    uint64_t log_bytes_written, flush_bytes_written, compaction_bytes_written, compaction_bytes_read;
    uint64_t flush_count, compaction_count, move_count; // move: a table changed its level without being rewritten
    uint64_t slowdown_count, slowdown_ns; // waits of a few ms, while background work is behind
    uint64_t stall_count, stall_ns, stall_longest_ns; // writes that were stopped until it went on

    double read_amplification; // files searched for each get; NaN: no gets
    double
        write_amplification; // bytes written to log and tables for each byte given; NaN: none given
    double
        space_amplification; // bytes of all tables for each byte of the deepest level, which has a key once; NaN: no tables

    uint64_t memory_memtables_bytes, memory_cache_bytes, memory_filters_bytes, memory_indexes_bytes;
    uint64_t
        memory_other_bytes; // iterators, tables being written, what old views hold, bookkeeping
    uint64_t memory_total_bytes; // all of these: what the allocator has handed out
    uint64_t
        reader_files_kept; // files that nothing needs but read-only handles that may be open somewhere
    uint64_t reader_bytes_kept; // their lengths
    uint64_t last_sequence;
    tamis_status
        background_status; // the first failure that stopped background work or writes, while it does
    tamis_error background_error; // the same, in full
    uint64_t
        background_error_count; // failures of flush, compaction, log and manifest since opening, those that passed too
    uint64_t
        unremoved_file_count; // files that nothing needs and that could not be removed; the next open tries again
} tamis_stats;

TAMIS_API void tamis_stats_init(tamis_stats *stats);
/** Fill *stats. OK or INVALID. Threads: any. Cost: walks the list of files. */
TAMIS_API tamis_status tamis_get_stats(tamis_db *db, tamis_stats *stats, tamis_error *err);

/**
 * Write the statistics as text for people: levels with their filters, memory, amplification, work done, what is wrong. It changes
 * between versions: programs take the structures.
 *
 * @param files  a line for every table as well
 * @param sink   receives pieces of text; false stops
 * @return OK, INVALID
 *
 * Threads  any.   Cost  walks the list of files; no I/O.
 */
TAMIS_API tamis_status tamis_describe(tamis_db *db, bool files,
                                      bool (*sink)(void *arg, const char *text, size_t length),
                                      void *arg, tamis_error *err);

/**
 * About how many bytes the keys from..to take: in tables by their resident indexes (to a block in each, filter and index
 * included), in memtables as keys and values. Overwritten and deleted versions count until a compaction drops them.
 *
 * @param from       included; NULL: from the first key
 * @param to         not included; NULL: to the last key
 * @param bytes_out  [out] on OK; 0 when `from` is not before `to`
 * @return OK; TOO_LARGE (a bound beyond the key limit), INVALID
 *
 * Threads  any.   Cost  two searches in the index of each table; no I/O.
 */
TAMIS_NODISCARD TAMIS_API tamis_status tamis_approximate_size(tamis_db *db, const tamis_slice *from,
                                                              const tamis_slice *to,
                                                              uint64_t *bytes_out,
                                                              tamis_error *err);

typedef struct tamis_table_stats {
    uint32_t level;
    uint64_t number; // 12 is file 000012.sst
    uint64_t file_bytes, entry_count, tombstone_count, range_tombstone_count, key_count;
    tamis_slice smallest, largest; // borrowed for the visit
    tamis_filter_info filter;      // kind ALWAYS_TRUE: none, or damaged
    tamis_filter_damage filter_damage;
    double false_positive_rate_theory;
    uint64_t filter_probes, filter_negatives, filter_true_positives, filter_false_positives;
} tamis_table_stats;

/** Call `visit` for each table, level by level, newest first in level 0, by key in the others; false stops. OK or INVALID. */
TAMIS_API tamis_status tamis_visit_tables(tamis_db *db,
                                          bool (*visit)(void *arg, const tamis_table_stats *table),
                                          void *arg, tamis_error *err);

/**
 * Write one file of a store as text that diffs well: a table (*.sst), a log (*.wal), a manifest or CURRENT. Read-only.
 *
 * @param path     of the file
 * @param entries  every entry too, not only the structure: sequence, put or delete, key, and for a put a tab and the value
 * @param sink     receives pieces of text; false stops
 * @param fs       NULL: tamis_fs_posix()
 * @return OK; NOT_FOUND; INVALID: no name of ours, or no path or sink; CORRUPT, UNSUPPORTED: what stands before the damage
 *         was written; IO, NO_MEMORY
 */
TAMIS_API tamis_status tamis_inspect(const char *path, bool entries,
                                     bool (*sink)(void *arg, const char *text, size_t length),
                                     void *arg, const tamis_fs *fs, tamis_error *err);

#ifdef __cplusplus
}
#endif
#endif
