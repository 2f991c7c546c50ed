/* SPDX-License-Identifier: MIT
 *
 * engine/db_internal.h -- struct tamis_db, grouped by protection, and what the files of engine/ offer one another.
 *
 * Threads of a store: those of its users, one that syncs full logs and flushes memtables, and as many as the options say
 * that compact.
 *
 * LOCK ORDER   mutex, then locks inside the cache and the descriptors. No lock is held during file I/O.
 *
 * Invariants
 *   E1  One writer at a time, the leader of the write queue, appends to the log, adds to the memtable and rotates both.
 *   E2  A write is visible to reads after it is in the log, as far as asked for, and in the memtable.
 *   E3  An immutable memtable exists from rotation until its table is in the manifest; its log is removed after that.
 *   E4  No sync of the new log is acknowledged, and no manifest edit is written, before the old log is synced (W3).
 *   E5  The first failure of log or manifest is final: nothing is written, nothing is removed, until the store is opened again.
 *   E6  A file is removed only after the manifest that no longer needs it is durable, and when nobody reads it.
 *   E7  Sequences are given out once; one that a failed write took is not given to another.
 *   E8  A file that a durable state named is removed only after the writer has asked for readers, later than the state
 *       without it was durable, and there were none. A reader has its lock before it reads CURRENT.
 */
#ifndef TM_ENGINE_DB_INTERNAL_H
#define TM_ENGINE_DB_INTERNAL_H

#include <stdatomic.h>

#include <tamis/tamis.h>

#include "engine/batch.h"
#include "engine/compact_pick.h"
#include "engine/manifest.h"
#include "engine/memtable.h"
#include "engine/names.h"
#include "engine/slots.h"
#include "engine/version.h"
#include "engine/wal.h"
#include "sstable/descriptors.h"

enum {
    // Level-0 tables at which compaction is due. Each may be asked by every lookup; four is where merging pays.
    TM_LEVEL0_TRIGGER = 4,
    // Level-0 tables beyond which writes are slowed (write.c): as many again have come as one job takes.
    TM_LEVEL0_SLOW = 8,
    // Level-0 tables at which writes wait: compaction is then a whole level behind.
    TM_LEVEL0_STOP = 20,
    TM_LEVEL_RATIO = 10,
    // Level 1 holds at most as much as level 0 does when it is due.
    TM_LEVEL_BASE_TABLES = 4,
    TM_BACKGROUND_THREADS_MAX = 32,
    // Writes that share one append of the log: large enough to share a sync widely, small enough not to delay the first.
    TM_GROUP_BYTES_MAX = 1 << 20,
    // Messages for the logger that wait for the mutex to be let go.
    TM_REPORT_COUNT_MAX = 16,
    TM_REPORT_BYTES_MAX = 512, // an error's message, and as much again around it
};

/* What reads look at: pinned as a whole, replaced as a whole. */
struct tm_view {
    _Atomic uint32_t
        references; // one of the store, as long as it is the newest or stands in a slot
    struct tm_memtable *mem;
    struct tm_memtable *imm; // NULL: none is waiting to be flushed
    struct tm_version *version;
    struct tm_view *retired_next; // guarded by the store's mutex
};

/* What a running read looks at. */
struct tm_pin {
    const struct tm_view *view; // `held`, or that of a snapshot
    struct tm_view *held;
    struct tm_slot *slot; // in which it is; NULL: all were taken, it has a counted reference
    bool moved;           // another view stood in the slot for a moment
};

struct tm_wal {
    uint64_t number; // 0: none
    tamis_file *file;
    struct tm_record_writer writer;
};

struct tamis_snapshot {
    uint64_t sequence;
    struct tm_view *
        view; // of a reader, whose newer views may lack old versions; NULL: the newest view has them
    struct tamis_snapshot *previous, *next; // in tamis_db::snapshots, ascending by sequence
};

/* A write in the queue; lives on its caller's stack. */
struct tm_write {
    struct tm_entry entry;      // a single operation ...
    const tamis_batch *batch;   // ... or a batch
    bool rotate;                // ... or a request to move on to a new memtable
    uint32_t operation_count;
    uint32_t range_count;       // of them, those that delete a range
    size_t bytes;               // keys and values
    bool sync;
    bool no_log;
    bool waiting;               // on `cond`
    bool done;
    tamis_status status;
    tamis_error *err;
    struct tm_cond cond;
    tamis_db *db;
    struct tm_write *next;
};

/* A manual compaction in the queue; lives on its caller's stack. */
struct tm_compact_request {
    const tamis_slice *from;
    const tamis_slice *to;
    uint32_t level; // where the next step looks first
    bool running;   // a step of it is
    bool
        blocked; // until a running job ends; no automatic job starts meanwhile, or it may wait long
    bool done;
    tamis_status status;
    tamis_error *err;
    struct tm_compact_request *next;
};

/* A file that nothing durable names any more, there for readers (E8). */
struct tm_kept_file {
    enum tm_name_kind kind;
    uint64_t number;
    uint64_t bytes;
};

/* Messages for the logger, oldest first. */
struct tm_report_queue {
    struct tm_report {
        tamis_log_level level;
        char text[TM_REPORT_BYTES_MAX];
    } reports[TM_REPORT_COUNT_MAX];
    uint32_t first;
    uint32_t count;
    uint32_t delivering; // calls of the logger that are running
};

struct tm_counters { // atomic, relaxed
    struct tm_read_counts reads; // without a slot
    _Atomic uint64_t user_bytes_written, log_bytes_written;
    _Atomic uint64_t flush_bytes_written, compaction_bytes_written, compaction_bytes_read;
    _Atomic uint64_t flush_count, compaction_count, move_count;
    _Atomic uint64_t slowdown_count, slowdown_ns, stall_count, stall_ns, stall_longest_ns;
    _Atomic uint64_t background_error_count, unremoved_file_count;
};

struct tamis_db {
    // Immutable after open
    struct tm_env env;           // its allocator counts into allocated_bytes
    tamis_allocator user_allocator;
    tamis_options options;
    tamis_logger logger; // log NULL: none
    char *path;
    size_t path_bytes;           // of the allocation
    tamis_dir *dir;
    tamis_lock *lock; // the writer's, or a reader's
    uint64_t hash_seed;
    struct tm_cache *cache;
    struct tm_slots slots;             // of running reads; the counts of files are guarded
    struct tm_descriptors descriptors; // of its tables; has a mutex of its own
    struct tm_table_options table_options;
    struct tm_compact_policy policy;
    struct tm_thread flush_thread, compact_threads[TM_BACKGROUND_THREADS_MAX];
    bool flush_thread_started;
    uint32_t compact_threads_started;

    // Guarded by mutex
    struct tm_mutex mutex;
    struct tm_cond changed;      // anything that somebody may wait for
    struct tm_write *writes_head, *writes_tail; // the head leads (E1)
    struct tm_memtable *mem, *imm;
    struct tm_version *version;
    struct tm_wal old_wal;       // rotated away, not yet synced; number 0: none
    struct tm_watermark synced;  // the newest completed sync
    uint64_t last_sequence;      // given out
    uint64_t imm_last_sequence;
    bool mem_has_unlogged, imm_has_unlogged; // writes that asked for no log: close flushes them
    uint64_t next_file_number;
    struct tm_manifest manifest;     // used by whoever set manifest_busy; of a reader: zeros
    bool manifest_busy;              // of a reader: a refresh is running
    uint64_t manifest_log_number;    // tag 4 as the manifest has it
    uint64_t manifest_last_sequence; // tag 3
    tamis_error failure;         // E5; code TAMIS_OK: none
    tamis_error flush_error;     // of the last flush; taken by the next write that needs room, then tried again
    tamis_error compact_error;   // stops automatic compaction
    struct tm_view *retired;     // views that stood in a slot when they were replaced (O1)
    struct tm_file *trash;       // V2
    struct tamis_snapshot snapshots; // ring head
    struct tm_compact_request *requests; // the first is served
    struct tm_compact_job *running_jobs;
    struct tm_compact_share *shares; // running jobs of which parts wait for a thread
    uint32_t compact_pressure; // of `version`
    bool compact_due; // the picker has not said "nothing" since the version changed or a job ended
    uint32_t purging;          // removals that are under way
    struct tm_kept_file *kept; // E8
    size_t kept_count, kept_capacity;
    bool kept_due;             // try to remove them
    struct tm_report_queue reports;
    uint32_t active_calls;       // flush, compact_range, wait_idle, verify: close is BUSY meanwhile

    // Owned by the leader of the write queue
    struct tm_wal wal;
    uint64_t owed_ns; // time that writers owe for what they wrote under pressure
    uint64_t skipped_count; // of the newest sequences, in no log, not yet told in `wal` (W2)

    // Atomic
    _Atomic(struct tm_view *) view;    // the newest; replaced with the mutex held
    _Atomic uint64_t visible_sequence; // newest that reads see
    _Atomic uint64_t allocated_bytes;
    _Atomic uint32_t live_handles;     // iterators, snapshots, pinned values
    _Atomic uint32_t pinned_views;     // counted references to views
    _Atomic bool closing;
    struct tm_counters counters;
};

static inline void
tm_count(_Atomic uint64_t *counter, uint64_t amount)
{
    atomic_fetch_add_explicit(counter, amount, memory_order_relaxed);
}

static inline uint64_t
tm_counted(const _Atomic uint64_t *counter)
{
    return atomic_load_explicit(counter, memory_order_relaxed);
}

static inline void
tm_lock(tamis_db *db)
{
    db->env.runtime->lock(db->env.runtime->ctx, &db->mutex);
}

/** Without the mutex: hand the reports that wait to the logger (report.c). */
void tm_report_deliver(tamis_db *db);

static inline void
tm_unlock(tamis_db *db)
{
    bool has_reports = db->reports.count != 0;

    db->env.runtime->unlock(db->env.runtime->ctx, &db->mutex);
    if (has_reports)
        tm_report_deliver(db);
}

static inline void
tm_notify(tamis_db *db)
{
    db->env.runtime->notify(db->env.runtime->ctx, &db->changed);
}

/** With the mutex held: the one place in which the engine waits, with tm_wait_until(). */
static inline void
tm_wait(tamis_db *db, struct tm_cond *cond, bool (*predicate)(void *arg), void *arg)
{
    if (db->reports.count != 0) { // the wait may be long
        tm_unlock(db);
        tm_lock(db);
    }
    db->env.runtime->wait(db->env.runtime->ctx, cond, &db->mutex, predicate, arg);
}

/** As tm_wait(), but no longer than until `deadline_ns`. */
static inline void
tm_wait_until(tamis_db *db, struct tm_cond *cond, uint64_t deadline_ns,
              bool (*predicate)(void *arg), void *arg)
{
    (void)db->env.runtime->wait_until(db->env.runtime->ctx, cond, &db->mutex, deadline_ns,
                                      predicate, arg);
}

/** There was no memory of our own, which is asked for before a file is touched: nothing happened. A system call that says
 *  ENOMEM may have happened in part. */
static inline bool
tm_is_out_of_memory(tamis_status status, const tamis_error *err)
{
    return status == TAMIS_NO_MEMORY && err->os_error == 0;
}

/** INVALID in a forked child: the parent owns the store. */
TAMIS_NODISCARD tamis_status tm_check_process(const tamis_db *db, tamis_error *err);
/** As above; READ_ONLY when the store was opened so. */
TAMIS_NODISCARD tamis_status tm_check_writable(const tamis_db *db, tamis_error *err);
/** Copy a stored failure out; returns its code. */
tamis_status tm_stored_failure(const tamis_error *stored, tamis_error *err);
/** With the mutex held: store the first failure (E5), report it and wake everybody. */
void tm_set_failure(tamis_db *db, tamis_status status, const tamis_error *err);

/* ---- report.c ------------------------------------------------------------------------------------- */

/** With the mutex held: the logger hears it when the mutex is let go. */
void tm_report(tamis_db *db, tamis_log_level level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/** Without the mutex. */
void tm_report_now(tamis_db *db, tamis_log_level level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/** Without the mutex: remove a file that nothing needs. Failing is no failure: it is reported and counted, and the next open
 *  tries again. */
void tm_remove_unneeded(tamis_db *db, enum tm_name_kind kind, uint64_t number);
/** For reports. */
double tm_seconds_since(const tamis_db *db, uint64_t begin_ns);
static inline uint64_t
tm_now_ns(const tamis_db *db)
{
    return db->env.runtime->now_ns(db->env.runtime->ctx);
}

/* ---- view.c --------------------------------------------------------------------------------------- */

/** With the mutex held: make and publish a view of mem, imm and version. Cannot fail: `view` was allocated before. */
void tm_view_publish(tamis_db *db, struct tm_view *view);
struct tm_view *tm_view_alloc(tamis_db *db); // NULL: no memory
/** Destroy the newest view, and those that were retired. No read is running. */
void tm_view_destroy_all(tamis_db *db);

/** For as long as a call runs: pin what a read with `snapshot` (NULL: the newest state) looks at, without a lock. A snapshot
 *  must not be released meanwhile. */
void tm_pin_read(tamis_db *db, const tamis_snapshot *snapshot, struct tm_pin *pin_out,
                 uint64_t *sequence_out);
void tm_unpin_read(tamis_db *db, const struct tm_pin *pin); // without the mutex

/** As tm_pin_read(), for what lives longer: a counted reference. */
struct tm_view *tm_view_pin(tamis_db *db, const tamis_snapshot *snapshot, uint64_t *sequence_out);
struct tm_view *tm_view_pin_newest_locked(tamis_db *db); // with the mutex held
void tm_view_unref(tamis_db *db, struct tm_view *view);  // without the mutex

/* ---- change.c ------------------------------------------------------------------------------------- */

/* A step from one version to the next. */
struct tm_change {
    struct tm_file **removed;
    uint32_t *removed_levels;
    size_t removed_count;
    struct tm_file_add *added; // taken: when the change fails they become garbage
    size_t added_count;
    bool drops_imm;            // the tables added hold what the immutable memtable held
};

/**
 * With the mutex held (let go during I/O): write the change to the manifest, then publish the new version. Garbage goes to the trash.
 *
 * @return TAMIS_OK; TAMIS_NO_MEMORY, TAMIS_CORRUPT: nothing happened; else the failure that is now final (E5)
 */
TAMIS_NODISCARD tamis_status tm_change_apply(tamis_db *db, struct tm_change *change,
                                             tamis_error *err);
/** The whole state as a snapshot edit; arrays in memory of the env, keys borrowed. Release with tm_snapshot_edit_release(). */
TAMIS_NODISCARD tamis_status tm_snapshot_edit(tamis_db *db, const struct tm_version *version,
                                              struct tm_edit *edit, tamis_error *err);
void tm_snapshot_edit_release(tamis_db *db, struct tm_edit *edit);

/* ---- garbage.c ------------------------------------------------------------------------------------ */

/** With the mutex held (let go during I/O): close and discard one table of the trash, unless a failure forbids it (E5). */
void tm_purge_trash(tamis_db *db);
/** Without the mutex: close the tables of the trash, and remove nothing: what a reader does with them. */
void tm_close_trash(tamis_db *db);
/** With the mutex held (let go during I/O): nothing durable names the file any more: remove it, or keep it while readers are there. */
void tm_discard_file(tamis_db *db, enum tm_name_kind kind, uint64_t number);
/** With the mutex held (let go during I/O): keep the file for readers that are there. */
void tm_keep_file(tamis_db *db, enum tm_name_kind kind, uint64_t number);
/** With the mutex held (let go during I/O): remove what was kept, if no reader is there, unless a failure forbids it (E5). */
void tm_discard_kept(tamis_db *db);
/** Without the mutex: is a reader there? True also when that cannot be told. */
bool tm_has_readers(tamis_db *db);

/* ---- flush.c, compact_run.c ----------------------------------------------------------------------- */

/** Open the table `number` and wrap it. Facts are taken (zeroed) on OK. */
TAMIS_NODISCARD tamis_status tm_file_open(tamis_db *db, uint64_t number,
                                          struct tm_table_facts *facts, struct tm_file **file_out,
                                          tamis_error *err);
/** Without the mutex: close the table of a file that no version holds, and free it. */
void tm_file_close(tamis_db *db, struct tm_file *file);

/* Tables made by a merge. Zeroed is empty. */
struct tm_outputs {
    struct tm_file_add *adds;
    size_t count;
    size_t capacity;
};

/* What a merge takes, what it may drop and where it must cut. */
struct tm_merge_rules {
    // With ranges, both are next to some key.
    const tamis_slice *from;   // first key taken; NULL: unbounded
    const tamis_slice *to;     // first key not taken; NULL: unbounded
    const uint64_t *snapshots; // ascending; the newest visible sequence last
    size_t snapshot_count;
    uint32_t level;            // of the outputs
    uint64_t table_bytes;      // close an output at about this size, between keys; UINT64_MAX: one table
    const struct tm_range_set *const
        *ranges; // range tombstones of what is merged; `next` is not followed
    size_t ranges_count;
    bool (*drops_tombstone)(void *arg, tamis_slice key); // NULL: keep all
    bool (*drops_range)(void *arg, const struct tm_range *range); // NULL: keep all
    void *arg;
};

/**
 * Write the entries of `iter` that the rules keep into new tables. Without the mutex.
 *
 * @return TAMIS_OK; TAMIS_BUSY when the store is closing; else the failure. On failure the tables made are gone.
 */
TAMIS_NODISCARD tamis_status tm_merge_write(tamis_db *db, struct tm_iter *iter,
                                            const struct tm_merge_rules *rules,
                                            struct tm_outputs *outputs, tamis_error *err);
/**
 * Is every entry of `file` hidden by the rules' ranges from every snapshot that sees it? Then nothing of it would be written, and
 * a merge whose ranges include those of the file need not read it.
 */
bool tm_merge_hides(const struct tm_merge_rules *rules, const struct tm_file *file);
/** Remove the files of outputs that no version took. */
void tm_outputs_discard(tamis_db *db, struct tm_outputs *outputs);
void tm_outputs_release(tamis_db *db, struct tm_outputs *outputs); // the array only

/** Write `mem` as a level-0 table; none when it is empty. Without the mutex. */
TAMIS_NODISCARD tamis_status tm_flush_memtable(tamis_db *db, struct tm_memtable *mem,
                                               const uint64_t *snapshots, size_t snapshot_count,
                                               struct tm_outputs *outputs, tamis_error *err);
/** With the mutex held: sequences of live snapshots, ascending, then the newest visible one. */
TAMIS_NODISCARD tamis_status tm_snapshot_list(tamis_db *db, uint64_t **list_out,
                                              size_t *count_out, tamis_error *err);

/** Run a job that was just picked, with the mutex held since (let go meanwhile). */
TAMIS_NODISCARD tamis_status tm_compact_run(tamis_db *db, struct tm_compact_job *job,
                                            tamis_error *err);

/** With the mutex held (let go meanwhile): run one part of a shared job. db->shares is not NULL. */
void tm_compact_help(tamis_db *db);

/* ---- worker.c ------------------------------------------------------------------------------------- */

void tm_flush_worker(void *db);
void tm_compact_worker(void *db);

/* ---- write.c -------------------------------------------------------------------------------------- */

/** Make the next log file and its start record, durable by name. Without the mutex. */
TAMIS_NODISCARD tamis_status tm_wal_create(tamis_db *db, uint64_t number,
                                           const struct tm_wal_start *start, struct tm_wal *wal_out,
                                           tamis_error *err);
tamis_status tm_wal_close(tamis_db *db, struct tm_wal *wal, tamis_error *err);
/** Put a write through the queue. */
TAMIS_NODISCARD tamis_status tm_write_submit(tamis_db *db, struct tm_write *write,
                                             tamis_error *err);

/* ---- recover.c ------------------------------------------------------------------------------------ */

/** Bring an existing store to life: manifest, tables, logs; write what the logs held; start a new log and manifest. */
TAMIS_NODISCARD tamis_status tm_recover(tamis_db *db, tamis_error *err);
/** Make a new store in the directory, finishing a creation that was cut short. */
TAMIS_NODISCARD tamis_status tm_create_store(tamis_db *db, tamis_error *err);

/**
 * The version that `state` describes. Tables that `base` (NULL: none) has open are shared with it. Facts of the others are
 * taken out of `state`.
 */
TAMIS_NODISCARD tamis_status tm_version_load(tamis_db *db, struct tm_edit *state,
                                             const struct tm_version *base,
                                             struct tm_version **version_out, tamis_error *err);

/* What stands in a directory. */
struct tm_listing {
    struct tm_listed {
        enum tm_name_kind kind;
        uint64_t number;
    } *files; // sorted by kind, then number
    size_t count;
    size_t capacity;
    uint64_t number_max;
    bool has[TM_NAME_LOG + 1];
};
TAMIS_NODISCARD tamis_status tm_listing_read(const struct tm_env *env, tamis_dir *dir,
                                             struct tm_listing *listing, tamis_error *err);
void tm_listing_release(const struct tm_env *env, struct tm_listing *listing);

/** For a reader: add what the logs of `state` hold to `mem`, beside a writer that may go on. Nothing is changed. */
TAMIS_NODISCARD tamis_status tm_replay_beside_writer(tamis_db *db, const struct tm_edit *state,
                                                     const struct tm_listing *listing,
                                                     struct tm_memtable *mem,
                                                     uint64_t *last_sequence_out, tamis_error *err);

/* ---- reader.c ------------------------------------------------------------------------------------- */

/** Show the store as it is now, under a reader's lock. NOT_FOUND: there is no CURRENT; else as tamis_open(). */
TAMIS_NODISCARD tamis_status tm_reader_open(tamis_db *db, tamis_error *err);

/* ---- db.c ----------------------------------------------------------------------------------------- */

/** Remove the files of a store, whoever made them, CURRENT first: what is left by a crash is no store. Under its lock. */
tamis_status tm_remove_store(const struct tm_env *env, tamis_dir *dir, tamis_error *err);

/* ---- level_iter.c --------------------------------------------------------------------------------- */

/** Walk `count` disjoint, ascending files one after the other. `files` is borrowed, and outlives the iterator. */
TAMIS_NODISCARD tamis_status tm_level_iter(const struct tm_env *env, struct tm_file *const *files,
                                           size_t count, bool fill_cache,
                                           struct tm_iter **iter_out, tamis_error *err);

/* ---- options.c ------------------------------------------------------------------------------------ */

/** Fill *options with the caller's (NULL: defaults) after checking every field. TAMIS_OK or TAMIS_INVALID. */
TAMIS_NODISCARD tamis_status tm_options_check(const tamis_options *given, tamis_options *options,
                                              tamis_error *err);

#endif
