/* SPDX-License-Identifier: MIT
 *
 * engine/recover.c -- make a new store, or bring back what a crash left.
 *
 *     manifest  ->  every table it lists, opened and compared  ->  logs, oldest first, into memtables and level-0 tables
 *       ->  leftovers removed (so that a full disk gets room before new files are asked for)
 *       ->  what the logs held, as tables  ->  a new log  ->  a new manifest, CURRENT  ->  old logs and manifest removed
 *
 * The chain of logs. Each names its predecessor and the length that one ended with. A log that ends earlier, in a bad spot
 * or too short, was either synced once, as watermarks of later fragments or the manifest tell, and then it is damage; or it
 * never was, and then it is where the crash cut: what follows in this log and all later logs are dropped, because the
 * survivors are a prefix of what was written. A log whose name stands in the end record of another, or in the manifest, was
 * there, so it is never the crash that took it.
 *
 * Beside a writer. A reader replays the same chain while a log may grow, lose its reserve and get a successor. It asks what
 * was synced before it reads: that much is whole when it is read, later on more may be synced than it has seen. A bad spot
 * beyond is a record that is being written, and a successor that is there but was not listed came after the moment that is
 * shown.
 *
 * Leftovers. By the time they are removed every table of the manifest and every log it needs has been seen whole, so a table
 * that the manifest does not list is the output of a job that never counted (its inputs or its log are here), and a log
 * below the manifest's log number is in tables. What only the manifest's last record makes obsolete goes when the new manifest
 * is durable: a killed process may not have synced that record, and a power cut would take it back (N4).
 *
 * Invariants
 *   Y1  Nothing is changed or removed before all that the manifest names was found sound.
 *   Y2  A recovered log is never appended to; what it held is in tables before the store is opened.
 *   Y3  A crash at any point of recovery leaves what recovery started from, or what it ends with.
 */
#include <assert.h>
#include <stdlib.h>

#include "engine/db_internal.h"

// Files that a store makes between two edits of its manifest are a handful to a few thousand.
#define NUMBER_GAP_MAX UINT64_C(0xffffffff)

/* ---- The directory -------------------------------------------------------------------------------- */

struct listing_walk {
    const struct tm_env *env;
    struct tm_listing *listing;
    tamis_status status;
    tamis_error *err;
};

static bool
visit_name(void *arg, const char *name)
{
    struct listing_walk *walk = arg;
    struct tm_listing *listing = walk->listing;
    uint64_t number;
    enum tm_name_kind kind = tm_name_parse(name, &number);

    if (kind == TM_NAME_FOREIGN)
        return true;
    if (listing->count == listing->capacity) {
        size_t capacity = listing->capacity != 0 ? listing->capacity * 2 : 32;
        void *grown = tm_resize(walk->env, listing->files,
                                listing->capacity * sizeof *listing->files,
                                capacity * sizeof *listing->files);

        if (grown == NULL) {
            walk->status = TM_NO_MEMORY(walk->err, capacity * sizeof *listing->files);
            return false;
        }
        listing->files = grown;
        listing->capacity = capacity;
    }
    listing->files[listing->count].kind = kind;
    listing->files[listing->count].number = number;
    listing->count++;
    listing->has[kind] = true;
    if (number > listing->number_max)
        listing->number_max = number;
    return true;
}

static int
compare_listed(const void *a, const void *b)
{
    const struct tm_listed *left = a;
    const struct tm_listed *right = b;

    if (left->kind != right->kind)
        return left->kind < right->kind ? -1 : 1;
    return (left->number > right->number) - (left->number < right->number);
}

tamis_status
tm_listing_read(const struct tm_env *env, tamis_dir *dir, struct tm_listing *listing,
                tamis_error *err)
{
    struct listing_walk walk = {env, listing, TAMIS_OK, err};
    tamis_status status;

    memset(listing, 0, sizeof *listing);
    status = env->fs->list(env->fs->ctx, dir, visit_name, &walk, err);
    if (status == TAMIS_OK)
        status = walk.status;
    if (status != TAMIS_OK) {
        tm_listing_release(env, listing);
        return status;
    }
    if (listing->count != 0)
        qsort(listing->files, listing->count, sizeof *listing->files, compare_listed);
    return TAMIS_OK;
}

void
tm_listing_release(const struct tm_env *env, struct tm_listing *listing)
{
    tm_release(env, listing->files, listing->capacity * sizeof *listing->files);
    memset(listing, 0, sizeof *listing);
}

/* ---- Making a store ------------------------------------------------------------------------------- */

static tamis_status
remove_named(tamis_db *db, const char *name, tamis_error *err)
{
    return db->env.fs->remove(db->env.fs->ctx, db->dir, name, err);
}

/* The first manifest of a new store, and CURRENT. */
static tamis_status
write_first_manifest(tamis_db *db, tamis_error *err)
{
    struct tm_edit snapshot = {.is_snapshot = true, .has_log_number = true};
    char name[TM_NAME_BYTES_MAX];
    int os_error;
    tamis_status status;

    os_error = db->env.runtime->random(db->env.runtime->ctx, &db->hash_seed, sizeof db->hash_seed);
    if (os_error != 0)
        return TM_FAIL_OS(err, TAMIS_IO, os_error, "no random bytes for the store's hash seed");
    // What a creation that was cut short left of the first manifest.
    status = remove_named(db, tm_name_make(TM_NAME_MANIFEST, 1, name), err);
    if (status == TAMIS_OK)
        status = remove_named(db, "CURRENT.tmp", err);
    if (status != TAMIS_OK)
        return status;
    db->next_file_number = 2;
    snapshot.hash_seed = db->hash_seed;
    snapshot.next_file_number = db->next_file_number;
    return tm_manifest_create(&db->manifest, &db->env, db->dir, 1, &snapshot, err);
}

/* Name the log in the manifest, so that a log that goes missing is missed (N2). */
static tamis_status
name_first_log(tamis_db *db, tamis_error *err)
{
    struct tm_edit edit = {.has_log_number = true};
    struct tm_buf record = {0};
    tamis_status status;

    edit.next_file_number = db->next_file_number;
    edit.log_number = db->wal.number;
    status = tm_edit_encode(&db->env, &edit, &record, err);
    if (status == TAMIS_OK)
        status = tm_manifest_append(&db->manifest, tm_slice(record.data, record.length), err);
    tm_buf_release(&db->env, &record);
    db->manifest_log_number = db->wal.number;
    return status;
}

/* An empty version, memtable and view. */
static tamis_status
publish_state(tamis_db *db, tamis_error *err)
{
    struct tm_view *view;

    db->mem = tm_memtable_create(&db->env, db->hash_seed, db->options.write_buffer_bytes);
    if (db->mem == NULL)
        return TM_NO_MEMORY(err, sizeof *view);
    view = tm_view_alloc(db);
    if (view == NULL)
        return TM_NO_MEMORY(err, sizeof *view);
    tm_view_publish(db, view);
    return TAMIS_OK;
}

tamis_status
tm_create_store(tamis_db *db, tamis_error *err)
{
    struct tm_wal_start start = {0};
    tamis_status status;

    status = tm_version_create(&db->env, NULL, NULL, 0, NULL, 0, &db->version, err);
    if (status == TAMIS_OK)
        status = write_first_manifest(db, err);
    start.hash_seed = db->hash_seed;
    if (status == TAMIS_OK)
        status = tm_wal_create(db, db->next_file_number++, &start, &db->wal, err);
    if (status == TAMIS_OK)
        status = db->env.fs->sync(db->env.fs->ctx, db->wal.file, err); // W4
    if (status == TAMIS_OK)
        status = name_first_log(db, err);
    if (status == TAMIS_OK)
        status = publish_state(db, err);
    return status;
}

/* ---- Logs ----------------------------------------------------------------------------------------- */

struct replay {
    tamis_db *db;
    const struct tm_edit *state;     // what the manifest says
    const struct tm_listing *listing;
    size_t first;                    // in listing: the logs that are needed
    size_t count;
    struct tm_memtable *mem;         // entries not yet in a table
    struct tm_outputs outputs;       // level-0 tables made meanwhile
    uint64_t last_sequence;
    struct tm_wal_start tail;        // where the last log that counts ended
    bool cut;                        // the rest of the chain is dropped
    bool beside_writer;              // a reader: the logs may grow, and all entries stay in `mem`
    uint64_t synced_bytes; // beside a writer: of the log that is read now, known before it was read
};

/* What a log is that should be there. */
static tamis_status
missing_status(const struct replay *replay)
{
    return replay->beside_writer ? TAMIS_STALE : TAMIS_CORRUPT;
}

static tamis_status
open_log(struct replay *replay, uint64_t number, char name[TM_NAME_BYTES_MAX],
         tamis_file **file_out, struct tm_record_reader *reader, tamis_error *err)
{
    const struct tm_env *env = &replay->db->env;
    uint64_t size;
    tamis_status status;

    tm_name_make(TM_NAME_LOG, number, name);
    status = env->fs->open(env->fs->ctx, replay->db->dir, name, TAMIS_FILE_LOG, file_out, &size,
                           err);
    if (status == TAMIS_NOT_FOUND)
        return TM_FAIL(err, missing_status(replay), "%s is missing", name);
    if (status != TAMIS_OK)
        return status;
    status = tm_record_reader_init(reader, env, *file_out, name, number, size, err);
    if (status != TAMIS_OK)
        (void)env->fs->close(env->fs->ctx, *file_out, NULL); // only read from
    return status;
}

static void
close_log(struct replay *replay, tamis_file *file, struct tm_record_reader *reader)
{
    tm_record_reader_deinit(reader);
    (void)replay->db->env.fs->close(replay->db->env.fs->ctx, file, NULL); // only read from
}

/* How many bytes of log `index` are known to have been synced, from all that may know: the log itself at or behind
 * `from_offset`, later logs, and the manifest. */
static tamis_status
find_synced_bytes(struct replay *replay, size_t index, uint64_t from_offset, uint64_t *synced_bytes,
                  tamis_error *err)
{
    uint64_t number = replay->listing->files[replay->first + index].number;
    tamis_status status = TAMIS_OK;

    *synced_bytes = 0;
    if (replay->state->log_end_number == number)
        *synced_bytes = replay->state->log_end_bytes;
    else if (replay->state->log_end_number > number)
        *synced_bytes = UINT64_MAX;
    for (size_t i = index; status == TAMIS_OK && i < replay->count; i++) {
        struct tm_record_reader later;
        tamis_file *file;
        char name[TM_NAME_BYTES_MAX];

        status = open_log(replay, replay->listing->files[replay->first + i].number, name, &file,
                          &later, err);
        if (status != TAMIS_OK)
            break;
        status = tm_record_scan_watermarks(&later, i == index ? from_offset : 0, number,
                                           synced_bytes, err);
        close_log(replay, file, &later);
    }
    return status;
}

/* Write the entries gathered so far as a table, to make room or at the end. */
static tamis_status
spill(struct replay *replay, tamis_error *err)
{
    tamis_db *db = replay->db;
    struct tm_outputs outputs = {0};
    tamis_status status;

    if (tm_memtable_entry_count(replay->mem) == 0)
        return TAMIS_OK;
    status = tm_flush_memtable(db, replay->mem, &replay->last_sequence, 1, &outputs, err);
    if (status != TAMIS_OK)
        return status;
    for (size_t i = 0; i < outputs.count; i++) { // one table; none if nothing of it is seen
        struct tm_file_add *grown =
            tm_resize(&db->env, replay->outputs.adds,
                      replay->outputs.capacity * sizeof *grown,
                      (replay->outputs.count + 1) * sizeof *grown);

        if (grown == NULL) {
            tm_outputs_discard(db, &outputs);
            return TM_NO_MEMORY(err, sizeof *grown);
        }
        replay->outputs.adds = grown;
        replay->outputs.capacity = replay->outputs.count + 1;
        replay->outputs.adds[replay->outputs.count++] = outputs.adds[i];
    }
    tm_outputs_release(db, &outputs);
    tm_memtable_unref(replay->mem);
    replay->mem = tm_memtable_create(&db->env, db->hash_seed, db->options.write_buffer_bytes);
    return replay->mem != NULL ? TAMIS_OK : TM_NO_MEMORY(err, 1);
}

static tamis_status
wrong_sequence(const struct replay *replay, const struct tm_wal_record *record, const char *name,
               uint64_t offset, tamis_error *err)
{
    return TM_FAIL(err, TAMIS_CORRUPT,
                   "%s: record before offset %llu: expected sequence %llu, found %llu", name,
                   (unsigned long long)offset, (unsigned long long)(replay->last_sequence + 1),
                   (unsigned long long)record->sequence);
}

static tamis_status
replay_batch(struct replay *replay, const struct tm_wal_record *record, const char *name,
             uint64_t offset, tamis_error *err)
{
    struct tm_batch_cursor cursor = {record->operations.data,
                                     (const uint8_t *)record->operations.data +
                                         record->operations.length};
    struct tm_entry entry;
    uint32_t count = 0;
    int more;
    tamis_status status;

    if (record->sequence != replay->last_sequence + 1 || record->operation_count == 0 ||
        record->operation_count > TM_SEQUENCE_MAX - replay->last_sequence) // W2
        return wrong_sequence(replay, record, name, offset, err);
    while ((more = tm_batch_next(&cursor, &entry)) == 1 && count < record->operation_count) {
        status = tm_memtable_reserve(replay->mem, 1, entry.kind == TM_KIND_DELETE_RANGE,
                                     entry.key.length + entry.value.length, err);
        if (status != TAMIS_OK)
            return status;
        entry.sequence = ++replay->last_sequence;
        tm_memtable_add(replay->mem, &entry);
        count++;
    }
    if (more != 0 || count != record->operation_count)
        return TM_FAIL(err, TAMIS_CORRUPT,
                       "%s: record before offset %llu: expected %u operations, found %s", name,
                       (unsigned long long)offset, (unsigned)record->operation_count,
                       more == -1 ? "a malformed one" : "another number");
    if (!replay->beside_writer &&
        tm_memtable_used_bytes(replay->mem) >= replay->db->options.write_buffer_bytes)
        return spill(replay, err);
    return TAMIS_OK;
}

/* Writes that are in no log: a flush has put them into a table, or they are lost. */
static tamis_status
replay_skip(struct replay *replay, const struct tm_wal_record *record, const char *name,
            uint64_t offset, tamis_error *err)
{
    if (record->sequence != replay->last_sequence + 1 || record->skipped_count == 0 ||
        record->skipped_count > TM_SEQUENCE_MAX - replay->last_sequence) // W2
        return wrong_sequence(replay, record, name, offset, err);
    replay->last_sequence += record->skipped_count;
    return TAMIS_OK;
}

/* What is wrong with the first record of a log, or NULL. */
static const char *
wrong_start(const struct replay *replay, const struct tm_wal_record *record)
{
    if (record->kind != TM_WAL_START)
        return "no start record"; // W1
    return record->start.hash_seed != replay->db->hash_seed ? "a log of another store" : NULL;
}

/* Check that the log continues where the one before it ended. Beside a writer a log between the two may be missing from the list:
 * a directory is not listed at one moment, and the writer may have gone on since the manifest was read. */
static tamis_status
check_start(struct replay *replay, size_t index, const struct tm_wal_start *start,
            const char *name, tamis_error *err)
{
    char missing[TM_NAME_BYTES_MAX];

    if (index != 0 && replay->beside_writer &&
        start->predecessor_number > replay->tail.predecessor_number)
        return TM_FAIL(err, missing_status(replay), "%s is missing: %s follows it",
                       tm_name_make(TM_NAME_LOG, start->predecessor_number, missing), name);
    if (index != 0 && (start->predecessor_number != replay->tail.predecessor_number ||
                       start->predecessor_bytes != replay->tail.predecessor_bytes))
        return TM_FAIL(err, TAMIS_CORRUPT,
                       "%s follows log %llu of %llu bytes; found log %llu of %llu bytes", name,
                       (unsigned long long)start->predecessor_number,
                       (unsigned long long)start->predecessor_bytes,
                       (unsigned long long)replay->tail.predecessor_number,
                       (unsigned long long)replay->tail.predecessor_bytes);
    if (start->last_sequence != replay->last_sequence) // W2
        return TM_FAIL(err, TAMIS_CORRUPT, "%s: expected to follow sequence %llu, found %llu",
                       name, (unsigned long long)replay->last_sequence,
                       (unsigned long long)start->last_sequence);
    return TAMIS_OK;
}

/* Read the start record of log `index`. *found_out false: it is not there whole. */
static tamis_status
peek_start(struct replay *replay, size_t index, struct tm_wal_start *start_out, bool *found_out,
           tamis_error *err)
{
    struct tm_record_reader reader;
    struct tm_wal_record record;
    tamis_file *file;
    tamis_slice bytes;
    char name[TM_NAME_BYTES_MAX];
    bool unsupported;
    tamis_status status;

    status = open_log(replay, replay->listing->files[replay->first + index].number, name, &file,
                      &reader, err);
    if (status != TAMIS_OK)
        return status;
    status = tm_record_next(&reader, &bytes, found_out, err);
    if (status == TAMIS_OK && *found_out) {
        const char *wrong = tm_wal_decode(bytes, &record, &unsupported);

        if (wrong == NULL)
            wrong = wrong_start(replay, &record);
        if (wrong != NULL)
            status = TM_FAIL(err, unsupported ? TAMIS_UNSUPPORTED : TAMIS_CORRUPT,
                             "%s: offset 0: %s", name, wrong);
        *start_out = record.start;
    }
    close_log(replay, file, &reader);
    return status;
}

static bool
log_exists(const struct replay *replay, const char *name)
{
    const tamis_fs *fs = replay->db->env.fs;
    tamis_file *file;
    uint64_t size;

    if (fs->open(fs->ctx, replay->db->dir, name, TAMIS_FILE_LOG, &file, &size, NULL) != TAMIS_OK)
        return false;
    (void)fs->close(fs->ctx, file, NULL); // not even read from
    return true;
}

/* A log says that `next_number` follows, so it was there (W4). */
static tamis_status
check_successor(struct replay *replay, size_t index, uint64_t next_number, const char *name,
                tamis_error *err)
{
    char missing[TM_NAME_BYTES_MAX];

    if (next_number == 0 ||
        (index + 1 < replay->count &&
         replay->listing->files[replay->first + index + 1].number == next_number))
        return TAMIS_OK;
    tm_name_make(TM_NAME_LOG, next_number, missing);
    if (replay->beside_writer && log_exists(replay, missing)) {
        replay->cut =
            true; // made after the directory was listed: the state at that moment ends here
        return TAMIS_OK;
    }
    return TM_FAIL(err, missing_status(replay), "%s is missing: %s says that it follows", missing,
                   name);
}

/* The log holds replay->tail.predecessor_bytes. Did the crash cut there, or is that all there was, or is it damage? */
static tamis_status
judge_end(struct replay *replay, size_t index, struct tm_record_reader *reader, tamis_error *err)
{
    uint64_t found = replay->tail.predecessor_bytes;
    uint64_t expected = found; // where the log ended, as far as anybody knows
    struct tm_wal_start next = {0};
    uint64_t synced_bytes = replay->synced_bytes;
    bool next_found = false;
    bool cuts;
    tamis_status status = TAMIS_OK;

    if (index + 1 < replay->count) {
        status = peek_start(replay, index + 1, &next, &next_found, err);
        if (status != TAMIS_OK)
            return status;
        if (next_found && next.predecessor_number == reader->number)
            expected = next.predecessor_bytes;
    }
    if (found == expected && (next_found || reader->stop == NULL) &&
        replay->state->log_end_number != reader->number) {
        // Whole. Only a recovery that was cut short goes on behind a log without a start, with one that never held a write;
        // and what it found before may be lost since.
        replay->cut |= found == 0;
        return TAMIS_OK;
    }
    if (!replay->beside_writer)
        status = find_synced_bytes(replay, index, reader->end_offset, &synced_bytes, err);
    if (status != TAMIS_OK)
        return status;
    cuts = found != expected || (index + 1 < replay->count && !next_found);
    if (reader->end_offset < synced_bytes && (synced_bytes != UINT64_MAX || cuts))
        return TM_FAIL(err, TAMIS_CORRUPT, "%s: offset %llu: %s, although %s was synced",
                       reader->name, (unsigned long long)reader->end_offset,
                       reader->stop != NULL ? reader->stop : "the file ends",
                       synced_bytes == UINT64_MAX ? "a later log" : "more of it");
    replay->cut |= cuts;
    if (cuts || reader->stop != NULL)
        tm_report_now(replay->db, cuts ? TAMIS_LOG_WARNING : TAMIS_LOG_INFO,
                      "%s: offset %llu: the crash cut here (%s); what followed was never synced",
                      reader->name, (unsigned long long)reader->end_offset,
                      reader->stop != NULL ? reader->stop : "the file ends");
    return TAMIS_OK;
}

static tamis_status
replay_log(struct replay *replay, size_t index, tamis_error *err)
{
    struct tm_record_reader reader;
    tamis_file *file;
    char name[TM_NAME_BYTES_MAX];
    uint64_t length = 0;      // up to the end record
    uint64_t next_number = 0; // what the end record says
    bool first = true;
    tamis_status status = TAMIS_OK;

    if (replay->beside_writer) // what was synced before the log is read is whole when it is read
        status = find_synced_bytes(replay, index, 0, &replay->synced_bytes, err);
    if (status == TAMIS_OK)
        status = open_log(replay, replay->listing->files[replay->first + index].number, name, &file,
                          &reader, err);
    if (status != TAMIS_OK)
        return status;
    for (;;) {
        struct tm_wal_record record;
        tamis_slice bytes;
        const char *wrong;
        bool found;
        bool unsupported;

        status = tm_record_next(&reader, &bytes, &found, err);
        if (status != TAMIS_OK || !found)
            break;
        wrong = tm_wal_decode(bytes, &record, &unsupported);
        if (wrong == NULL && first)
            wrong = wrong_start(replay, &record);
        else if (wrong == NULL && (record.kind == TM_WAL_START || next_number != 0))
            wrong = next_number != 0 ? "a record behind the end" : "a second start record"; // W1
        if (wrong != NULL) {
            status = TM_FAIL(err, unsupported ? TAMIS_UNSUPPORTED : TAMIS_CORRUPT,
                             "%s: record before offset %llu: %s", name,
                             (unsigned long long)reader.end_offset, wrong);
            break;
        }
        if (record.kind == TM_WAL_END) {
            next_number = record.next_number;
            continue;
        }
        status = first ? check_start(replay, index, &record.start, name, err)
                 : record.kind == TM_WAL_SKIP
                     ? replay_skip(replay, &record, name, reader.end_offset, err)
                     : replay_batch(replay, &record, name, reader.end_offset, err);
        if (status != TAMIS_OK)
            break;
        length = reader.end_offset;
        first = false;
    }
    if (status == TAMIS_OK && first && reader.number == replay->state->log_number)
        status = TM_FAIL(err, TAMIS_CORRUPT, "%s: offset 0: expected a start record, found %s", name,
                         reader.stop != NULL ? reader.stop : "an empty file"); // W4
    if (status == TAMIS_OK)
        status = check_successor(replay, index, next_number, name, err);
    if (status == TAMIS_OK) {
        replay->tail.predecessor_number = reader.number;
        replay->tail.predecessor_bytes = length;
        status = judge_end(replay, index, &reader, err);
    }
    close_log(replay, file, &reader);
    return status;
}

/* All logs that the manifest needs, oldest first. */
static tamis_status
replay_logs(struct replay *replay, tamis_error *err)
{
    const struct tm_listing *listing = replay->listing;
    uint64_t needed = replay->state->log_number;
    tamis_status status = TAMIS_OK;

    while (replay->first < listing->count &&
           (listing->files[replay->first].kind != TM_NAME_LOG ||
            listing->files[replay->first].number < needed))
        replay->first++;
    replay->count = listing->count - replay->first; // logs are listed last
    if (needed != 0 &&
        (replay->count == 0 || listing->files[replay->first].number != needed)) {
        char name[TM_NAME_BYTES_MAX];
        return TM_FAIL(err, missing_status(replay), "%s is missing: the manifest needs it",
                       tm_name_make(TM_NAME_LOG, needed, name));
    }
    // The newest log after a clean close: nothing that is there follows it.
    if (replay->state->log_end_number != 0 &&
        (replay->count == 0 ||
         listing->files[listing->count - 1].number < replay->state->log_end_number)) {
        char name[TM_NAME_BYTES_MAX];
        return TM_FAIL(err, missing_status(replay), "%s is missing: the store was closed with it",
                       tm_name_make(TM_NAME_LOG, replay->state->log_end_number, name));
    }
    for (size_t i = 0; status == TAMIS_OK && i < replay->count && !replay->cut; i++)
        status = replay_log(replay, i, err);
    return status;
}

tamis_status
tm_replay_beside_writer(tamis_db *db, const struct tm_edit *state, const struct tm_listing *listing,
                        struct tm_memtable *mem, uint64_t *last_sequence_out, tamis_error *err)
{
    struct replay replay = {
        .db = db, .state = state, .listing = listing, .mem = mem, .beside_writer = true};
    tamis_status status;

    replay.last_sequence = state->last_sequence;
    status = replay_logs(&replay, err);
    *last_sequence_out = replay.last_sequence;
    return status;
}

/* ---- Tables --------------------------------------------------------------------------------------- */

static struct tm_file *
find_file(const struct tm_version *version, uint64_t number)
{
    for (uint32_t level = 0; level < TAMIS_LEVEL_COUNT; level++)
        for (uint32_t i = 0; i < version->level[level].file_count; i++)
            if (version->level[level].files[i]->number == number)
                return version->level[level].files[i];
    return NULL;
}

/* The table of an edit: as `base` has it open, or opened. */
static tamis_status
find_or_open_file(tamis_db *db, struct tm_edit_file *edit, const struct tm_version *base,
                  struct tm_file **file_out, tamis_error *err)
{
    struct tm_file *file = base != NULL ? find_file(base, edit->number) : NULL;

    if (file == NULL || file->facts.unique_id != edit->facts.unique_id)
        return tm_file_open(db, edit->number, &edit->facts, file_out, err);
    *file_out = file;
    return TAMIS_OK;
}

tamis_status
tm_version_load(tamis_db *db, struct tm_edit *state, const struct tm_version *base,
                struct tm_version **version_out, tamis_error *err)
{
    struct tm_file_add *adds = tm_alloc_zeroed(&db->env, state->added_count * sizeof *adds);
    size_t count = 0;
    tamis_status status = TAMIS_OK;

    if (adds == NULL)
        return TM_NO_MEMORY(err, state->added_count * sizeof *adds);
    for (; status == TAMIS_OK && count < state->added_count; count += status == TAMIS_OK) {
        adds[count].level = state->added[count].level;
        status = find_or_open_file(db, &state->added[count], base, &adds[count].file, err);
    }
    tm_lock(db);
    if (status == TAMIS_OK)
        status = tm_version_create(&db->env, NULL, NULL, 0, adds, count, version_out, err);
    for (size_t i = 0; status != TAMIS_OK && i < count; i++)
        if (adds[i].file->version_count == 0) { // opened here
            adds[i].file->trash_next = db->trash;
            db->trash = adds[i].file;
        }
    tm_unlock(db);
    tm_release(&db->env, adds, state->added_count * sizeof *adds);
    return status;
}

static bool
was_removed_last(const struct tm_edit *state, uint64_t number)
{
    for (size_t i = 0; i < state->removed_count; i++)
        if (state->removed[i].number == number)
            return true;
    return false;
}

/* Remove what counts neither now nor if the last record of the loaded manifest is lost (N4). */
static tamis_status
remove_settled_leftovers(tamis_db *db, const struct tm_listing *listing,
                         const struct tm_edit *state, uint64_t manifest_number, tamis_error *err)
{
    tamis_status status = TAMIS_OK;

    if (!state->is_settled || tm_has_readers(db)) // E8
        return TAMIS_OK;
    for (size_t i = 0; status == TAMIS_OK && i < listing->count; i++) {
        const struct tm_listed *file = &listing->files[i];
        char name[TM_NAME_BYTES_MAX];

        if ((file->kind == TM_NAME_LOG && file->number < state->settled_log_number) ||
            (file->kind == TM_NAME_MANIFEST && file->number != manifest_number) ||
            (file->kind == TM_NAME_TABLE && find_file(db->version, file->number) == NULL &&
             !was_removed_last(state, file->number)))
            status = remove_named(db, tm_name_make(file->kind, file->number, name), err);
    }
    return status;
}

static void
keep_for_readers(tamis_db *db, const struct tm_listed *file)
{
    tm_lock(db);
    tm_keep_file(db, file->kind, file->number);
    tm_unlock(db);
}

/* Remove what no longer counts, or keep it for readers: logs below `log_number`, other manifests, tables that are not
 * listed. */
static tamis_status
remove_leftovers(tamis_db *db, const struct tm_listing *listing, uint64_t log_number,
                 uint64_t manifest_number, tamis_error *err)
{
    bool keeps = tm_has_readers(db); // E8
    tamis_status status = TAMIS_OK;

    for (size_t i = 0; status == TAMIS_OK && i < listing->count; i++) {
        const struct tm_listed *file = &listing->files[i];
        char name[TM_NAME_BYTES_MAX];
        bool obsolete =
            (file->kind == TM_NAME_LOG && file->number < log_number) ||
            (file->kind == TM_NAME_MANIFEST && file->number != manifest_number) ||
            (file->kind == TM_NAME_TABLE && find_file(db->version, file->number) == NULL);

        if (file->kind == TM_NAME_TEMPORARY)
            status = remove_named(db, "CURRENT.tmp", err);
        else if (obsolete && keeps)
            keep_for_readers(db, file);
        else if (obsolete)
            status = remove_named(db, tm_name_make(file->kind, file->number, name), err);
    }
    return status;
}

/* ---- Recovery ------------------------------------------------------------------------------------- */

static void
report_replay(const struct replay *replay, uint64_t begin_ns)
{
    uint64_t bytes = 0;

    for (size_t i = 0; i < replay->outputs.count; i++)
        bytes += replay->outputs.adds[i].file->facts.file_bytes;
    tm_report_now(
        replay->db, TAMIS_LOG_INFO,
        "recovery: %zu logs with %llu operations became %zu tables of %llu bytes, %.3f s",
        replay->count, (unsigned long long)(replay->last_sequence - replay->state->last_sequence),
        replay->outputs.count, (unsigned long long)bytes, tm_seconds_since(replay->db, begin_ns));
}

/* The recovered tables join the version. */
static tamis_status
add_outputs(tamis_db *db, struct tm_outputs *outputs, tamis_error *err)
{
    struct tm_version *next;
    tamis_status status;

    if (outputs->count == 0)
        return TAMIS_OK;
    status = tm_version_create(&db->env, db->version, NULL, 0, outputs->adds, outputs->count,
                               &next, err);
    if (status != TAMIS_OK)
        return status;
    tm_outputs_release(db, outputs);
    tm_version_unref(&db->env, db->version, &db->trash);
    db->version = next;
    return TAMIS_OK;
}

static tamis_status
start_new_manifest(tamis_db *db, tamis_error *err)
{
    struct tm_edit snapshot;
    uint64_t number = db->next_file_number++;
    tamis_status status;

    status = tm_snapshot_edit(db, db->version, &snapshot, err);
    if (status != TAMIS_OK)
        return status;
    snapshot.next_file_number = db->next_file_number;
    snapshot.last_sequence = db->last_sequence;
    snapshot.log_number = db->wal.number;
    status = tm_manifest_create(&db->manifest, &db->env, db->dir, number, &snapshot, err);
    tm_snapshot_edit_release(db, &snapshot);
    db->manifest_log_number = db->wal.number;
    db->manifest_last_sequence = db->last_sequence;
    return status;
}

/* A file whose number no life of this store can have reached would take all numbers with it. */
static tamis_status
check_numbers(const struct tm_listing *listing, const struct tm_edit *state, tamis_error *err)
{
    if (listing->number_max <= state->next_file_number ||
        listing->number_max - state->next_file_number <= NUMBER_GAP_MAX)
        return TAMIS_OK;
    return TM_FAIL(err, TAMIS_CORRUPT, "a file has number %llu, but the store is at %llu only",
                   (unsigned long long)listing->number_max,
                   (unsigned long long)state->next_file_number);
}

/* Recovery failed. Unless CURRENT names it already nobody needs what was made, and it must not pile up with each try. */
static void
remove_new_files(tamis_db *db, uint64_t first_number, uint64_t manifest_number)
{
    static const enum tm_name_kind kinds[] = {TM_NAME_MANIFEST, TM_NAME_TABLE, TM_NAME_LOG};
    uint64_t current;

    if (db->next_file_number <= first_number ||
        tm_has_readers(db) || // who may have listed the new log
        tm_current_read(&db->env, db->dir, &current, NULL) != TAMIS_OK ||
        current != manifest_number)
        return;
    for (uint64_t number = first_number; number < db->next_file_number; number++)
        for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
            tm_remove_unneeded(db, kinds[i], number);
}

tamis_status
tm_recover(tamis_db *db, tamis_error *err)
{
    struct tm_listing listing = {0};
    struct tm_edit state = {0};
    struct replay replay = {.db = db, .state = &state, .listing = &listing};
    uint64_t manifest_number;
    uint64_t first_number = UINT64_MAX; // of what is made here
    uint64_t begin_ns = tm_now_ns(db);
    tamis_status status;

    status = tm_manifest_load(&db->env, db->dir, &state, &manifest_number, err);
    if (status != TAMIS_OK)
        return status;
    status = tm_listing_read(&db->env, db->dir, &listing, err);
    if (status != TAMIS_OK)
        goto out;
    db->hash_seed = state.hash_seed;
    db->table_options.hash_seed = state.hash_seed;
    status = check_numbers(&listing, &state, err);
    if (status != TAMIS_OK)
        goto out;
    // No number that anything in the directory has is used again, whatever the manifest knows of it.
    db->next_file_number = state.next_file_number;
    if (db->next_file_number <= listing.number_max)
        db->next_file_number = listing.number_max + 1;
    first_number = db->next_file_number;
    replay.last_sequence = state.last_sequence;

    status = tm_version_load(db, &state, NULL, &db->version, err);
    if (status != TAMIS_OK)
        goto out;
    replay.mem = tm_memtable_create(&db->env, db->hash_seed, db->options.write_buffer_bytes);
    if (replay.mem == NULL) {
        status = TM_NO_MEMORY(err, 1);
        goto out;
    }
    status = replay_logs(&replay, err);
    if (status != TAMIS_OK)
        goto out;
    status = remove_settled_leftovers(db, &listing, &state, manifest_number, err); // Y1
    if (status == TAMIS_OK)
        status = spill(&replay, err);
    if (status == TAMIS_OK)
        report_replay(&replay, begin_ns);
    if (status == TAMIS_OK)
        status = add_outputs(db, &replay.outputs, err);
    if (status != TAMIS_OK)
        goto out;

    db->last_sequence = replay.last_sequence;
    atomic_store_explicit(&db->visible_sequence, db->last_sequence, memory_order_release);
    replay.tail.last_sequence = db->last_sequence;
    replay.tail.hash_seed = db->hash_seed;
    status = tm_wal_create(db, db->next_file_number++, &replay.tail, &db->wal, err);
    if (status == TAMIS_OK)
        status = db->env.fs->sync(db->env.fs->ctx, db->wal.file, err); // W4
    if (status == TAMIS_OK)
        status = start_new_manifest(db, err);
    if (status == TAMIS_OK)
        status = publish_state(db, err);
    if (status != TAMIS_OK)
        goto out;
    status = remove_leftovers(db, &listing, db->wal.number, db->manifest.number, err);

out:
    if (status != TAMIS_OK && replay.outputs.count != 0)
        tm_outputs_discard(db, &replay.outputs);
    if (status != TAMIS_OK)
        remove_new_files(db, first_number, manifest_number);
    tm_memtable_unref(replay.mem);
    tm_edit_release(&db->env, &state);
    tm_listing_release(&db->env, &listing);
    return status;
}
