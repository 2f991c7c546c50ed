/* SPDX-License-Identifier: MIT
 *
 * engine/worker.c -- the background threads, and waiting for them.
 *
 *     flush thread     new log: sync  ->  old log: last record, sync, close  ->  immutable memtable: table, manifest, remove its log
 *                      ->  trash: remove, and what was kept for readers (garbage.c)
 *     compact threads  a part of a running job, else a manual request's next step, else the job that is most due; jobs that
 *                      run at the same time do not meet (K2)
 *
 * A flush that fails leaves the memtable and its log where they are; the error is handed to the next write that needs the room,
 * and then the flush is tried again. A compaction that fails stops compaction, not writing: it is tried again after the next
 * flush when the cause may have passed (no space, no memory, I/O), when a file was removed if there was no space, and by every
 * manual request.
 */
#include <assert.h>

#include "engine/db_internal.h"

/* With the mutex held. A failure that is final was reported where it was stored. */
static void
report_background_error(tamis_db *db, const char *what, tamis_status status, const tamis_error *err)
{
    if (db->failure.code != TAMIS_OK)
        return;
    tm_count(&db->counters.background_error_count, 1);
    tm_report(db, TAMIS_LOG_ERROR, "%s failed: %s: %s", what, tamis_status_name(status),
              err->message);
}

/* ---- Flush ---------------------------------------------------------------------------------------- */

static bool
flush_has_work(void *arg)
{
    tamis_db *db = arg;

    if (atomic_load_explicit(&db->closing, memory_order_relaxed))
        return true;
    if (db->failure.code != TAMIS_OK)
        return false;
    return db->old_wal.number != 0 || (db->imm != NULL && db->flush_error.code == TAMIS_OK) ||
           db->trash != NULL || db->kept_due;
}

/* The log's last record: another one follows (W4). */
static tamis_status
end_log(struct tm_wal *wal, uint64_t next_number, tamis_error *err)
{
    uint8_t bytes[TM_WAL_END_BYTES];
    tamis_slice piece = {bytes, sizeof bytes};
    tamis_status status;

    tm_wal_encode_end(bytes, next_number);
    status = tm_record_add(&wal->writer, &piece, 1, err);
    if (status == TAMIS_OK)
        status = tm_record_flush(&wal->writer, err);
    return status;
}

/* Log and log: the name and the beginning of the new one become durable, the old one names it, and is synced to its end: what
 * syncs of the new log and the manifest wait for (E4). No log is rotated meanwhile, so the new one stays. */
static void
settle_logs(tamis_db *db)
{
    const tamis_fs *fs = db->env.fs;
    struct tm_wal old = db->old_wal;
    tamis_file *new_file = db->wal.file;
    uint64_t new_number = db->wal.number;
    tamis_error err;
    tamis_status status;

    old.writer.watermark = db->synced;
    tm_unlock(db);
    status = fs->sync(fs->ctx, new_file, &err);
    if (status == TAMIS_OK)
        status = end_log(&old, new_number, &err);
    if (status == TAMIS_OK)
        status = fs->sync(fs->ctx, old.file, &err);
    if (status == TAMIS_OK)
        status = fs->close(fs->ctx, old.file, &err);
    else
        (void)fs->close(fs->ctx, old.file, NULL); // after the first error
    tm_lock(db);
    if (status != TAMIS_OK) {
        tm_set_failure(db, status, &err);
    } else {
        db->synced.number = old.number;
        db->synced.offset = old.writer.offset;
    }
    old.file = NULL;
    tm_record_writer_deinit(&old.writer);
    memset(&db->old_wal, 0, sizeof db->old_wal);
    tm_notify(db);
}

/* What stopped compaction may have passed. */
static void
resume_compaction(tamis_db *db)
{
    memset(&db->compact_error, 0, sizeof db->compact_error);
    db->compact_due = true;
    tm_notify(db);
}

static void
flush_imm(tamis_db *db)
{
    struct tm_outputs outputs = {0};
    struct tm_change change = {0};
    uint64_t *snapshots = NULL;
    size_t snapshot_count = 0;
    uint64_t log_number = db->manifest_log_number;
    uint64_t begin_ns = tm_now_ns(db);
    uint64_t entry_count = tm_memtable_entry_count(db->imm);
    tamis_error err;
    tamis_status status;

    status = tm_snapshot_list(db, &snapshots, &snapshot_count, &err);
    if (status == TAMIS_OK) {
        tm_unlock(db);
        status = tm_flush_memtable(db, db->imm, snapshots, snapshot_count, &outputs, &err);
        tm_lock(db);
    }
    tm_release(&db->env, snapshots, snapshot_count * sizeof *snapshots);
    if (status == TAMIS_OK) {
        uint64_t bytes = outputs.count != 0 ? outputs.adds[0].file->facts.file_bytes : 0;

        change.added = outputs.adds;
        change.added_count = outputs.count;
        change.drops_imm = true;
        status = tm_change_apply(db, &change, &err);
        tm_outputs_release(db, &outputs);
        if (status == TAMIS_OK) {
            tm_count(&db->counters.flush_count, 1);
            tm_count(&db->counters.flush_bytes_written, bytes);
            tm_report(db, TAMIS_LOG_INFO, "flush: %llu entries, a table of %llu bytes, %.3f s",
                      (unsigned long long)entry_count, (unsigned long long)bytes,
                      tm_seconds_since(db, begin_ns));
        }
    }
    if (status != TAMIS_OK) {
        db->flush_error = err;
        db->flush_error.code = status;
        report_background_error(db, "flush", status, &err);
    } else {
        if (db->compact_error.code == TAMIS_NO_SPACE || db->compact_error.code == TAMIS_NO_MEMORY ||
            db->compact_error.code == TAMIS_IO)
            resume_compaction(db);
        if (db->failure.code == TAMIS_OK)
            tm_discard_file(db, TM_NAME_LOG, log_number); // E6
        db->kept_due = db->kept_count != 0;
    }
    tm_notify(db);
}

/* Remove garbage. What a failed compaction wrote is never among it, so this ends. */
static void
give_space_back(tamis_db *db)
{
    tm_purge_trash(db);
    if (db->compact_error.code == TAMIS_NO_SPACE)
        resume_compaction(db);
}

void
tm_flush_worker(void *arg)
{
    tamis_db *db = arg;

    tm_lock(db);
    for (;;) {
        tm_wait(db, &db->changed, flush_has_work, db);
        if (db->failure.code == TAMIS_OK && db->old_wal.number != 0)
            settle_logs(db);
        else if (db->failure.code == TAMIS_OK && db->imm != NULL &&
                 db->flush_error.code == TAMIS_OK)
            flush_imm(db);
        else if (db->failure.code == TAMIS_OK && db->trash != NULL)
            give_space_back(db);
        else if (db->failure.code == TAMIS_OK && db->kept_due)
            tm_discard_kept(db);
        else if (atomic_load_explicit(&db->closing, memory_order_relaxed))
            break;
    }
    tm_unlock(db);
}

/* ---- Compaction ----------------------------------------------------------------------------------- */

/* The first manual request waits for a thread. */
static bool
request_has_work(const tamis_db *db)
{
    return db->requests != NULL && !db->requests->running && !db->requests->blocked;
}

static bool
compact_has_work(void *arg)
{
    tamis_db *db = arg;

    if (atomic_load_explicit(&db->closing, memory_order_relaxed) || db->shares != NULL ||
        request_has_work(db))
        return true;
    return db->compact_due && db->failure.code == TAMIS_OK && db->compact_error.code == TAMIS_OK &&
           (db->requests == NULL || !db->requests->blocked);
}

static void
finish_request(tamis_db *db, tamis_status status, const tamis_error *err)
{
    struct tm_compact_request *request = db->requests;

    db->requests = request->next;
    request->status = status;
    if (status != TAMIS_OK && request->err != NULL)
        *request->err = *err;
    request->done = true;
    tm_notify(db);
}

/* One step of the first manual request. */
static void
serve_request(tamis_db *db)
{
    struct tm_compact_request *request = db->requests;
    struct tm_compact_job job;
    tamis_error err = {0};
    bool found = false;
    tamis_status status;

    if (db->failure.code != TAMIS_OK) {
        finish_request(db, tm_stored_failure(&db->failure, &err), &err);
        return;
    }
    status = tm_compact_pick_range(&db->env, db->version, db->running_jobs, request->from,
                                   request->to, request->level, &request->level, &job, &found,
                                   &request->blocked, &err);
    if (status == TAMIS_OK && request->blocked)
        return;
    if (status == TAMIS_OK && found) {
        request->running = true;
        status = tm_compact_run(db, &job, &err);
        request->running = false;
        tm_compact_job_release(&db->env, &job);
    }
    if (status != TAMIS_OK || !found) {
        if (status == TAMIS_OK && db->compact_error.code != TAMIS_OK)
            resume_compaction(db);
        else if (status != TAMIS_OK && !atomic_load_explicit(&db->closing, memory_order_relaxed))
            report_background_error(db, "compaction", status, &err);
        finish_request(db, status, &err);
    }
}

/* Every reader sees all writes up to here. */
static uint64_t
oldest_snapshot(const tamis_db *db)
{
    if (db->snapshots.next != &db->snapshots)
        return db->snapshots.next->sequence;
    return atomic_load_explicit(&db->visible_sequence, memory_order_acquire);
}

static void
compact_once(tamis_db *db)
{
    struct tm_compact_job job;
    tamis_error err = {0};
    bool found = false;
    tamis_status status;

    status = tm_compact_pick(&db->env, db->version, &db->policy, db->running_jobs,
                             oldest_snapshot(db), &job, &found, &err);
    if (status == TAMIS_OK && !found) {
        db->compact_due = false;
        tm_notify(db); // who waits for idleness
        return;
    }
    if (status == TAMIS_OK) {
        status = tm_compact_run(db, &job, &err);
        tm_compact_job_release(&db->env, &job);
    }
    if (status != TAMIS_OK && db->compact_error.code == TAMIS_OK &&
        !atomic_load_explicit(&db->closing, memory_order_relaxed)) {
        db->compact_error = err;
        db->compact_error.code = status;
        report_background_error(db, "compaction", status, &err);
        tm_notify(db);
    }
}

void
tm_compact_worker(void *arg)
{
    tamis_db *db = arg;

    tm_lock(db);
    for (;;) {
        tm_wait(db, &db->changed, compact_has_work, db);
        if (atomic_load_explicit(&db->closing, memory_order_relaxed))
            break;
        if (db->shares != NULL)
            tm_compact_help(db);
        else if (request_has_work(db))
            serve_request(db);
        else
            compact_once(db);
    }
    tm_unlock(db);
}

/* ---- What users ask of the threads ---------------------------------------------------------------- */

/* Between begin and end, close answers BUSY. */
static tamis_status
begin_call(tamis_db *db, tamis_error *err)
{
    tamis_status status = tm_check_process(db, err);

    if (status != TAMIS_OK)
        return status;
    tm_lock(db);
    db->active_calls++;
    return TAMIS_OK;
}

static void
end_call(tamis_db *db)
{
    db->active_calls--;
    tm_unlock(db);
}

static bool
flush_is_done(void *arg)
{
    tamis_db *db = arg;
    return db->imm == NULL || db->flush_error.code != TAMIS_OK || db->failure.code != TAMIS_OK;
}

/* With the mutex held: wait for the immutable memtable to become a table. */
static tamis_status
wait_for_flush(tamis_db *db, tamis_error *err)
{
    tamis_status status;

    tm_wait(db, &db->changed, flush_is_done, db);
    if (db->failure.code != TAMIS_OK)
        return tm_stored_failure(&db->failure, err);
    if (db->flush_error.code != TAMIS_OK && db->imm != NULL) {
        status = tm_stored_failure(&db->flush_error, err);
        memset(&db->flush_error, 0, sizeof db->flush_error); // told; tried again from here
        tm_notify(db);
        return status;
    }
    return TAMIS_OK;
}

static tamis_status
rotate_and_flush(tamis_db *db, tamis_error *err)
{
    struct tm_write write = {.rotate = true};
    tamis_status status;

    tm_unlock(db);
    status = tm_write_submit(db, &write, err);
    tm_lock(db);
    if (status == TAMIS_OK)
        status = wait_for_flush(db, err);
    return status;
}

tamis_status
tamis_flush(tamis_db *db, tamis_error *err)
{
    tamis_status status = tm_check_writable(db, err);

    if (status == TAMIS_OK)
        status = begin_call(db, err);

    if (status != TAMIS_OK)
        return status;
    status = rotate_and_flush(db, err);
    end_call(db);
    return status;
}

static bool
request_is_done(void *arg)
{
    const struct tm_compact_request *request = arg;
    return request->done;
}

tamis_status
tamis_compact_range(tamis_db *db, const tamis_slice *from, const tamis_slice *to,
                    tamis_error *err)
{
    struct tm_compact_request request = {.from = from, .to = to, .err = err};
    struct tm_compact_request **last;
    tamis_status status;

    if (from != NULL && (status = tm_check_key(*from, err)) != TAMIS_OK)
        return status;
    if (to != NULL && (status = tm_check_key(*to, err)) != TAMIS_OK)
        return status;
    status = tm_check_writable(db, err);
    if (status == TAMIS_OK)
        status = begin_call(db, err);
    if (status != TAMIS_OK)
        return status;
    status = rotate_and_flush(db, err);
    if (status == TAMIS_OK) {
        for (last = &db->requests; *last != NULL; last = &(*last)->next)
            ;
        *last = &request;
        tm_notify(db);
        tm_wait(db, &db->changed, request_is_done, &request);
        status = request.status;
    }
    end_call(db);
    return status;
}

static bool
is_idle(void *arg)
{
    tamis_db *db = arg;

    if (db->reports.count != 0 || db->reports.delivering != 0)
        return false; // what was done is also told
    if (db->failure.code != TAMIS_OK)
        return db->running_jobs == NULL && !db->manifest_busy;
    return db->old_wal.number == 0 && (db->imm == NULL || db->flush_error.code != TAMIS_OK) &&
           db->requests == NULL && (!db->compact_due || db->compact_error.code != TAMIS_OK) &&
           db->running_jobs == NULL && !db->manifest_busy && db->trash == NULL && !db->kept_due &&
           db->purging == 0;
}

tamis_status
tamis_wait_idle(tamis_db *db, tamis_error *err)
{
    tamis_status status = begin_call(db, err);

    if (status != TAMIS_OK)
        return status;
    if (db->kept_count != 0) { // who reads is not known to anybody else
        db->kept_due = true;
        tm_notify(db);
    }
    tm_wait(db, &db->changed, is_idle, db);
    if (db->failure.code != TAMIS_OK)
        status = tm_stored_failure(&db->failure, err);
    else if (db->flush_error.code != TAMIS_OK)
        status = tm_stored_failure(&db->flush_error, err);
    else if (db->compact_error.code != TAMIS_OK)
        status = tm_stored_failure(&db->compact_error, err);
    end_call(db);
    return status;
}
