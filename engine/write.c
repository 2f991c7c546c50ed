/* SPDX-License-Identifier: MIT
 *
 * engine/write.c -- the life of a write.
 *
 *     queue -> the head leads -> pays what writers owe, in time
 *           -> room: rotate log and memtable, wait for flush or compaction
 *           -> a group from the queue -> memory for it is reserved in the memtable (nothing was written yet)
 *           -> log: append; sync when one of the group asked, not before the old log is synced (E4)
 *           -> memtable -> visible -> the group is told, the next head leads
 *
 * Writers are slowed before they must be stopped. Pressure is the larger of two: how far compaction is behind
 * (tm_compact_pressure), and how full the memtable is while the one before is still being flushed. Under it each byte costs
 * time, twice as much with each step; so writers come to the speed at which the background gets on, wherever that is. What a group
 * costs is owed by the writers that come next, and paid when a wait is worth it, a few milliseconds at a time.
 *
 * A failure before the log is touched is told to the group and nothing happened. A failure of the log is final (E5).
 */
#include <assert.h>

#include "engine/db_internal.h"

/* ---- The log file --------------------------------------------------------------------------------- */

tamis_status
tm_wal_create(tamis_db *db, uint64_t number, const struct tm_wal_start *start,
              struct tm_wal *wal_out, tamis_error *err)
{
    struct tm_wal wal = {.number = number};
    char name[TM_NAME_BYTES_MAX];
    uint8_t bytes[TM_WAL_START_BYTES];
    tamis_slice piece = {bytes, sizeof bytes};
    tamis_status status;

    status = tm_record_writer_init(&wal.writer, &db->env, NULL, number, err);
    if (status != TAMIS_OK)
        return status;
    tm_name_make(TM_NAME_LOG, number, name);
    status = db->env.fs->create(db->env.fs->ctx, db->dir, name, TAMIS_FILE_LOG, &wal.file, err);
    wal.writer.file = wal.file;
    // What was synced of the log before is told here, where it is read even if nothing else follows. Nobody changes it now:
    // the leader is here, and no old log waits for its sync.
    wal.writer.watermark = db->synced;
    tm_wal_encode_start(bytes, start);
    if (status == TAMIS_OK)
        status = tm_record_add(&wal.writer, &piece, 1, err);
    if (status == TAMIS_OK)
        status = tm_record_flush(&wal.writer, err);
    if (status != TAMIS_OK) {
        (void)tm_wal_close(db, &wal, NULL); // after the first error
        return status;
    }
    *wal_out = wal;
    return TAMIS_OK;
}

tamis_status
tm_wal_close(tamis_db *db, struct tm_wal *wal, tamis_error *err)
{
    tamis_status status = TAMIS_OK;

    if (wal->file != NULL)
        status = db->env.fs->close(db->env.fs->ctx, wal->file, err);
    tm_record_writer_deinit(&wal->writer);
    memset(wal, 0, sizeof *wal);
    return status;
}

/* ---- Pace ----------------------------------------------------------------------------------------- */

enum {
    PRESSURE_MAX = 12, // with the next one level 0 is at its limit
    // Nanoseconds a byte at the first step: 250 MB/s, more than a store takes. The last step is 120 KB/s.
    PACE_NS_PER_BYTE = 4,
    // The second half of the memtable has all the steps.
    PRESSURE_PER_MEMTABLE = 2 * PRESSURE_MAX,
    PAY_NS_MIN = 1000 * 1000,     // below, waking up would cost as much as is waited for
    PAY_NS_MAX = 4 * 1000 * 1000, // no single write waits longer
    // One huge batch does not slow all that come after it for minutes.
    OWED_NS_MAX = 1000 * 1000 * 1000,
};

/* Mutex held. */
static uint32_t
pressure(const tamis_db *db)
{
    // A compaction that cannot go on does not slow writers.
    uint64_t steps = db->compact_error.code == TAMIS_OK ? db->compact_pressure : 0;

    if (db->imm != NULL) {
        uint64_t memtable_steps = tm_memtable_used_bytes(db->mem) * PRESSURE_PER_MEMTABLE /
                                  db->options.write_buffer_bytes;

        if (memtable_steps > PRESSURE_MAX + steps)
            steps = memtable_steps - PRESSURE_MAX;
    }
    return steps < PRESSURE_MAX ? (uint32_t)steps : PRESSURE_MAX;
}

static bool
may_go_on(void *arg)
{
    const tamis_db *db = arg;
    return db->failure.code != TAMIS_OK || pressure(db) == 0;
}

/* Leader, mutex held (let go meanwhile): wait for a part of what is owed. */
static void
pay(tamis_db *db)
{
    const struct tm_runtime *runtime = db->env.runtime;
    uint64_t begin_ns, waited_ns;

    if (db->owed_ns < PAY_NS_MIN || may_go_on(db))
        return;
    begin_ns = runtime->now_ns(runtime->ctx);
    tm_wait_until(db, &db->changed,
                  begin_ns + (db->owed_ns < PAY_NS_MAX ? db->owed_ns : PAY_NS_MAX), may_go_on, db);
    waited_ns = runtime->now_ns(runtime->ctx) - begin_ns;
    db->owed_ns -= waited_ns < db->owed_ns ? waited_ns : db->owed_ns;
    tm_count(&db->counters.slowdown_count, 1);
    tm_count(&db->counters.slowdown_ns, waited_ns);
}

/* Leader, mutex held: the memtable has taken `bytes` more. */
static void
owe(tamis_db *db, uint64_t bytes)
{
    uint32_t steps = pressure(db);

    if (steps == 0) {
        db->owed_ns = 0;
        return;
    }
    db->owed_ns += bytes * PACE_NS_PER_BYTE << (steps - 1); // bytes are below 2^33 by the limits
    if (db->owed_ns > OWED_NS_MAX)
        db->owed_ns = OWED_NS_MAX;
}

/* The sequences since the last record of the log that are in no log (W2). Leader, without the mutex. */
static tamis_status
log_skipped(tamis_db *db, uint64_t next_sequence, tamis_error *err)
{
    uint8_t bytes[TM_WAL_SKIP_BYTES];
    tamis_slice piece = {bytes, sizeof bytes};
    tamis_status status;

    if (db->skipped_count == 0)
        return TAMIS_OK;
    tm_wal_encode_skip(bytes, next_sequence - db->skipped_count, db->skipped_count);
    status = tm_record_add(&db->wal.writer, &piece, 1, err);
    if (status == TAMIS_OK)
        db->skipped_count = 0;
    return status;
}

/* ---- Room ----------------------------------------------------------------------------------------- */

/* Move on to a new memtable and a new log. Leader, mutex held (let go while the file is made). */
static tamis_status
rotate(tamis_db *db, tamis_error *err)
{
    struct tm_memtable *mem =
        tm_memtable_create(&db->env, db->hash_seed, db->options.write_buffer_bytes);
    struct tm_view *view = tm_view_alloc(db);
    struct tm_wal wal;
    struct tm_wal_start start = {db->wal.number, db->wal.writer.offset, db->last_sequence,
                                 db->hash_seed};
    tamis_error failure = {0};
    uint64_t number = db->next_file_number;
    bool nothing_happened;
    tamis_status status;

    assert(db->imm == NULL && db->old_wal.number == 0); // E3, E4: the flush thread synced it before flushing
    if (mem == NULL || view == NULL) {
        status = TM_NO_MEMORY(err, sizeof *view);
        goto out;
    }
    db->next_file_number++;
    db->wal.writer.watermark = db->synced;
    tm_unlock(db);
    status = tm_wal_create(db, number, &start, &wal, &failure);
    nothing_happened = tm_is_out_of_memory(status, &failure);
    tm_lock(db);
    if (nothing_happened) {
        if (err != NULL)
            *err = failure;
        goto out;
    }
    if (status != TAMIS_OK) {
        // A half-made log may stand in the directory: the next one must be made by recovery.
        tm_set_failure(db, status, &failure);
        status = tm_stored_failure(&db->failure, err);
        goto out;
    }
    db->old_wal = db->wal;
    db->wal = wal;
    db->imm = db->mem;
    db->imm_last_sequence = db->last_sequence;
    db->imm_has_unlogged = db->mem_has_unlogged;
    db->mem_has_unlogged = false;
    tm_report(db, TAMIS_LOG_DEBUG,
              "log %06llu follows log %06llu, a memtable of %llu bytes waits to be flushed",
              (unsigned long long)number, (unsigned long long)db->old_wal.number,
              (unsigned long long)tm_memtable_bytes(db->mem));
    db->mem = mem;
    mem = NULL;
    tm_view_publish(db, view);
    view = NULL;
    tm_notify(db);

out:
    tm_memtable_unref(mem);
    tm_release(&db->env, view, sizeof *view);
    return status;
}

/* Leader, mutex held (let go meanwhile): the log is about to end, and has told of every sequence (W2). */
static tamis_status
settle_skipped(tamis_db *db, tamis_error *err)
{
    uint64_t next_sequence = db->last_sequence + 1;
    tamis_error failure = {0};
    tamis_status status;

    if (db->skipped_count == 0)
        return TAMIS_OK;
    db->wal.writer.watermark = db->synced;
    tm_unlock(db);
    status = log_skipped(db, next_sequence, &failure);
    if (status == TAMIS_OK)
        status = tm_record_flush(&db->wal.writer, &failure);
    tm_lock(db);
    if (status == TAMIS_OK)
        return TAMIS_OK;
    tm_set_failure(db, status, &failure);
    return tm_stored_failure(&db->failure, err);
}

static bool
level0_is_full(const tamis_db *db)
{
    // A compaction that cannot go on does not stop writing.
    return db->version->level[0].file_count >= TM_LEVEL0_STOP &&
           db->compact_error.code == TAMIS_OK;
}

static bool
has_room(void *arg)
{
    tamis_db *db = arg;
    return db->failure.code != TAMIS_OK || db->flush_error.code != TAMIS_OK ||
           (db->imm == NULL && db->old_wal.number == 0 && !level0_is_full(db));
}

/* Leader, mutex held. */
static void
count_stall(tamis_db *db, uint64_t ns)
{
    tm_count(&db->counters.stall_count, 1);
    tm_count(&db->counters.stall_ns, ns);
    if (ns > tm_counted(&db->counters.stall_longest_ns))
        atomic_store_explicit(&db->counters.stall_longest_ns, ns, memory_order_relaxed);
}

/* Leader, mutex held: make sure that the memtable takes the write. */
static tamis_status
make_room(tamis_db *db, const struct tm_write *write, tamis_error *err)
{
    tamis_status status = TAMIS_OK;

    if (db->failure.code != TAMIS_OK)
        return tm_stored_failure(&db->failure, err);
    if (write->rotate ? tm_memtable_entry_count(db->mem) == 0
                      : tm_memtable_used_bytes(db->mem) < db->options.write_buffer_bytes)
        return TAMIS_OK;
    if (!has_room(db)) {
        uint64_t begin_ns = db->env.runtime->now_ns(db->env.runtime->ctx);

        tm_wait(db, &db->changed, has_room, db);
        count_stall(db, db->env.runtime->now_ns(db->env.runtime->ctx) - begin_ns);
    }
    if (db->failure.code != TAMIS_OK)
        return tm_stored_failure(&db->failure, err);
    if (db->flush_error.code != TAMIS_OK) {
        status = tm_stored_failure(&db->flush_error, err);
        memset(&db->flush_error, 0, sizeof db->flush_error); // told; the flush is tried again from here
        tm_notify(db);
        return status;
    }
    status = settle_skipped(db, err);
    return status == TAMIS_OK ? rotate(db, err) : status;
}

/* ---- Log and memtable ----------------------------------------------------------------------------- */

struct group {
    struct tm_write *last; // of the queue; the head is the first
    uint64_t operation_count;
    uint64_t range_count; // of them, those that delete a range
    size_t bytes;
    bool sync;
    bool no_log; // all of them, or none
};

/* Leader, mutex held: the writes that share this turn. */
static struct group
gather(struct tm_write *head)
{
    struct group group = {.last = head,
                          .operation_count = head->operation_count,
                          .range_count = head->range_count,
                          .bytes = head->bytes,
                          .sync = head->sync,
                          .no_log = head->no_log};

    for (struct tm_write *write = head->next; write != NULL; write = write->next) {
        if (write->rotate || write->no_log != group.no_log ||
            group.bytes + write->bytes > TM_GROUP_BYTES_MAX)
            break;
        group.last = write;
        group.operation_count += write->operation_count;
        group.range_count += write->range_count;
        group.bytes += write->bytes;
        group.sync |= write->sync;
    }
    return group;
}

/* Leader, without the mutex. */
static tamis_status
log_write(tamis_db *db, const struct tm_write *write, uint64_t sequence, tamis_error *err)
{
    uint8_t header[TM_WAL_BATCH_HEADER_BYTES];
    uint8_t head[TM_OPERATION_HEADER_BYTES_MAX];
    uint8_t middle[TM_OPERATION_HEADER_BYTES_MAX];
    tamis_slice pieces[5];
    size_t count = 0;

    tm_wal_encode_batch_header(header, sequence, write->operation_count);
    pieces[count++] = tm_slice(header, sizeof header);
    if (write->batch != NULL) {
        pieces[count++] = tm_batch_operations(write->batch);
    } else {
        pieces[count++] = tm_slice(head, tm_operation_head(head, write->entry.kind,
                                                           write->entry.key.length));
        pieces[count++] = write->entry.key;
        if (tm_operation_has_value(write->entry.kind)) {
            pieces[count++] =
                tm_slice(middle, tm_operation_middle(middle, write->entry.value.length));
            pieces[count++] = write->entry.value;
        }
    }
    return tm_record_add(&db->wal.writer, pieces, count, err);
}

static bool
old_wal_is_synced(void *arg)
{
    tamis_db *db = arg;
    return db->old_wal.number == 0 || db->failure.code != TAMIS_OK;
}

/* Leader, without the mutex: everything written to the log so far becomes durable. */
static tamis_status
sync_log(tamis_db *db, tamis_error *err)
{
    tamis_status status;

    tm_lock(db);
    tm_wait(db, &db->changed, old_wal_is_synced, db); // E4
    status = tm_stored_failure(&db->failure, err);
    tm_unlock(db);
    if (status == TAMIS_OK)
        status = db->env.fs->sync(db->env.fs->ctx, db->wal.file, err);
    return status;
}

/* Leader, without the mutex: the group goes to the log. */
static tamis_status
log_group(tamis_db *db, const struct group *group, uint64_t first_sequence, tamis_error *err)
{
    uint64_t sequence = first_sequence;
    uint64_t offset = db->wal.writer.offset;
    tamis_status status;

    if (group->no_log) {
        db->skipped_count += group->operation_count;
        return TAMIS_OK;
    }
    status = log_skipped(db, first_sequence, err);
    for (const struct tm_write *write = db->writes_head; status == TAMIS_OK; write = write->next) {
        status = log_write(db, write, sequence, err);
        sequence += write->operation_count;
        if (write == group->last)
            break;
    }
    if (status == TAMIS_OK)
        status = tm_record_flush(&db->wal.writer, err);
    if (status == TAMIS_OK && group->sync)
        status = sync_log(db, err);
    if (status == TAMIS_OK)
        tm_count(&db->counters.log_bytes_written, db->wal.writer.offset - offset);
    return status;
}

/* Leader, without the mutex: the group goes into the memtable, which has room for it (M2). */
static void
apply_group(tamis_db *db, const struct group *group, uint64_t first_sequence)
{
    uint64_t sequence = first_sequence;

    for (const struct tm_write *write = db->writes_head;; write = write->next) {
        if (write->batch == NULL) {
            struct tm_entry entry = write->entry;

            entry.sequence = sequence++;
            tm_memtable_add(db->mem, &entry);
        } else {
            tamis_slice operations = tm_batch_operations(write->batch);
            struct tm_batch_cursor cursor = {operations.data,
                                             (const uint8_t *)operations.data + operations.length};
            struct tm_entry entry;

            while (tm_batch_next(&cursor, &entry) == 1) {
                entry.sequence = sequence++;
                tm_memtable_add(db->mem, &entry);
            }
        }
        if (write == group->last)
            break;
    }
    assert(sequence == first_sequence + group->operation_count);
}

/* ---- The queue ------------------------------------------------------------------------------------ */

static bool
is_done_or_leads(void *arg)
{
    const struct tm_write *write = arg;
    return write->done || write->db->writes_head == write;
}

/* Leader, mutex held: take the group off the queue, tell it, and let the next head lead. */
static void
finish_group(tamis_db *db, const struct group *group, tamis_status status, const tamis_error *err)
{
    const struct tm_runtime *runtime = db->env.runtime;
    struct tm_write *write;

    do {
        write = db->writes_head;
        db->writes_head = write->next;
        write->status = status;
        if (status != TAMIS_OK && write->err != NULL)
            *write->err = *err;
        write->done = true;
        if (write->waiting)
            runtime->notify(runtime->ctx, &write->cond);
    } while (write != group->last);
    if (db->writes_head == NULL)
        db->writes_tail = NULL;
    else if (db->writes_head->waiting)
        runtime->notify(runtime->ctx, &db->writes_head->cond);
}

/* The head's turn. Mutex held on entry and return. */
static void
lead(tamis_db *db, struct tm_write *head)
{
    struct group group = {.last = head};
    tamis_error err = {0};
    uint64_t first_sequence;
    uint64_t synced_bytes, used_bytes;
    tamis_status status;

    if (!head->rotate)
        pay(db);
    status = make_room(db, head, &err);
    if (status != TAMIS_OK || head->rotate)
        goto out;
    group = gather(head);
    first_sequence = db->last_sequence + 1;
    if (group.operation_count > TM_SEQUENCE_MAX - db->last_sequence) {
        status = TM_FAIL(&err, TAMIS_TOO_LARGE, "all %d bits of sequence numbers are used up",
                         (int)TM_SEQUENCE_BITS);
        goto out;
    }
    status =
        tm_memtable_reserve(db->mem, group.operation_count, group.range_count, group.bytes, &err);
    if (status != TAMIS_OK)
        goto out;
    db->wal.writer.watermark = db->synced;
    used_bytes = tm_memtable_used_bytes(db->mem);
    tm_unlock(db);

    status = log_group(db, &group, first_sequence, &err);
    synced_bytes = group.sync ? db->wal.writer.offset : 0;
    if (status == TAMIS_OK)
        apply_group(db, &group, first_sequence);

    tm_lock(db);
    if (status != TAMIS_OK) {
        tm_set_failure(db, status, &err);
        goto out;
    }
    db->last_sequence += group.operation_count;
    db->mem_has_unlogged |= group.no_log;
    atomic_store_explicit(&db->visible_sequence, db->last_sequence, memory_order_release); // E2
    if (synced_bytes != 0) {
        db->synced.number = db->wal.number;
        db->synced.offset = synced_bytes;
    }
    tm_count(&db->counters.user_bytes_written, group.bytes);
    owe(db, tm_memtable_used_bytes(db->mem) - used_bytes);

out:
    finish_group(db, &group, status, &err);
}

tamis_status
tm_write_submit(tamis_db *db, struct tm_write *write, tamis_error *err)
{
    const struct tm_runtime *runtime = db->env.runtime;

    write->db = db;
    write->err = err;
    tm_lock(db);
    if (db->writes_tail != NULL)
        db->writes_tail->next = write;
    else
        db->writes_head = write;
    db->writes_tail = write;
    if (!is_done_or_leads(write)) {
        runtime->cond_init(runtime->ctx, &write->cond);
        write->waiting = true;
        tm_wait(db, &write->cond, is_done_or_leads, write);
        write->waiting = false;
        runtime->cond_deinit(runtime->ctx, &write->cond);
    }
    if (!write->done)
        lead(db, write);
    tm_unlock(db);
    return write->status;
}

/* ---- Public --------------------------------------------------------------------------------------- */

static tamis_status
check_write_options(const tamis_write_options *options, struct tm_write *write, tamis_error *err)
{
    if (options == NULL)
        return TAMIS_OK;
    if (options->struct_size != sizeof *options)
        return TM_FAIL(err, TAMIS_INVALID,
                       "write options: expected struct_size %zu, found %u: use "
                       "tamis_write_options_init()",
                       sizeof *options, (unsigned)options->struct_size);
    if (options->sync && options->no_log)
        return TM_FAIL(err, TAMIS_INVALID,
                       "write options: sync and no_log: what is in no log cannot be synced");
    write->sync = options->sync;
    write->no_log = options->no_log;
    return TAMIS_OK;
}

static tamis_status
write_entry(tamis_db *db, const tamis_write_options *options, enum tm_kind kind, tamis_slice key,
            tamis_slice value, tamis_error *err)
{
    struct tm_write write = {
        .entry = {.key = key, .value = value, .kind = kind},
        .operation_count = 1,
        .range_count = kind == TM_KIND_DELETE_RANGE,
        .bytes = key.length + value.length,
    };
    tamis_status status = tm_check_key(key, err);

    if (status == TAMIS_OK)
        status = tm_check_value(value, err);
    if (status == TAMIS_OK)
        status = check_write_options(options, &write, err);
    if (status == TAMIS_OK)
        status = tm_check_writable(db, err);
    if (status != TAMIS_OK)
        return status;
    return tm_write_submit(db, &write, err);
}

tamis_status
tamis_put(tamis_db *db, const tamis_write_options *options, tamis_slice key, tamis_slice value,
          tamis_error *err)
{
    return write_entry(db, options, TM_KIND_PUT, key, value, err);
}

tamis_status
tamis_delete(tamis_db *db, const tamis_write_options *options, tamis_slice key, tamis_error *err)
{
    return write_entry(db, options, TM_KIND_DELETE, key, tm_slice(NULL, 0), err);
}

/* Ranges are cut where tables end, in front of the next key there can be, which only bytes tell. */
static tamis_status
check_range_order(const tamis_db *db, tamis_error *err)
{
    if (tm_order_is_bytewise(&db->env.order))
        return TAMIS_OK;
    return TM_FAIL(err, TAMIS_UNSUPPORTED,
                   "ranges can be deleted where keys are ordered bytewise; here they are by %s",
                   tm_order_name(&db->env.order));
}

tamis_status
tamis_delete_range(tamis_db *db, const tamis_write_options *options, tamis_slice from,
                   tamis_slice to, tamis_error *err)
{
    tamis_status status = tm_check_key(to, err);

    if (status == TAMIS_OK)
        status = tm_check_key(from, err);
    if (status == TAMIS_OK)
        status = check_range_order(db, err);
    if (status == TAMIS_OK && tm_slice_compare(from, to) >= 0) {
        struct tm_write nothing = {0};

        status = check_write_options(options, &nothing, err);
        return status == TAMIS_OK ? tm_check_process(db, err) : status;
    }
    if (status != TAMIS_OK)
        return status;
    return write_entry(db, options, TM_KIND_DELETE_RANGE, from, to, err);
}

tamis_status
tamis_write(tamis_db *db, const tamis_write_options *options, const tamis_batch *batch,
            tamis_error *err)
{
    struct tm_write write = {
        .batch = batch,
        .operation_count = (uint32_t)tamis_batch_count(batch),
        .range_count = (uint32_t)tm_batch_range_count(batch),
        .bytes = tm_batch_user_bytes(batch),
    };
    tamis_status status = check_write_options(options, &write, err);

    if (status == TAMIS_OK && tm_batch_asked_for_range(batch))
        status = check_range_order(db, err);
    if (status == TAMIS_OK)
        status = tm_check_writable(db, err);
    if (status != TAMIS_OK || write.operation_count == 0)
        return status;
    return tm_write_submit(db, &write, err);
}
