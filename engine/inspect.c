/* SPDX-License-Identifier: MIT
 *
 * engine/inspect.c -- one file of a store as text that diffs well: one fact or record a line, nothing that changes by itself.
 *
 * What can be read is written before damage is reported. Keys and values are escaped as sstable/text.h says.
 */
#include "engine/db_internal.h"
#include "sstable/text.h"

/* ---- Records of both kinds ------------------------------------------------------------------------ */

static void
show_start(struct tm_text *out, const struct tm_wal_start *start)
{
    tm_text_emit(
        out, "start, after log %llu of %llu bytes, last sequence %llu, hash seed %016llx\n",
        (unsigned long long)start->predecessor_number, (unsigned long long)start->predecessor_bytes,
        (unsigned long long)start->last_sequence, (unsigned long long)start->hash_seed);
}

/* What is wrong with the operations, or NULL. */
static const char *
show_operations(struct tm_text *out, const struct tm_wal_record *record)
{
    const uint8_t *operations = record->operations.data;
    struct tm_batch_cursor cursor = {operations, operations + record->operations.length};
    uint64_t sequence = record->sequence;
    struct tm_entry entry;
    int more = 0;

    while (!out->stopped && (more = tm_batch_next(&cursor, &entry)) > 0) {
        tm_text_emit(out, "  %llu %s ", (unsigned long long)sequence++,
                     entry.kind == TM_KIND_PUT      ? "put"
                     : entry.kind == TM_KIND_DELETE ? "delete"
                                                    : "delete_range");
        tm_text_bytes(out, entry.key);
        if (tm_operation_has_value(entry.kind)) {
            tm_text_emit(out, "\t");
            tm_text_bytes(out, entry.value);
        }
        tm_text_emit(out, "\n");
    }
    return more < 0 ? "a malformed operation" : NULL;
}

static tamis_status
show_wal_record(struct tm_text *out, const char *name, tamis_slice bytes, uint64_t offset,
                bool entries, tamis_error *err)
{
    struct tm_wal_record record;
    bool unsupported;
    const char *wrong = tm_wal_decode(bytes, &record, &unsupported);

    tm_text_emit(out, "record %llu: ", (unsigned long long)offset);
    if (wrong != NULL)
        tm_text_emit(out, "%s\n", wrong);
    else if (record.kind == TM_WAL_START)
        show_start(out, &record.start);
    else if (record.kind == TM_WAL_END)
        tm_text_emit(out, "end, log %llu follows\n", (unsigned long long)record.next_number);
    else if (record.kind == TM_WAL_SKIP)
        tm_text_emit(out, "skip, sequence %llu, %llu operations that are in no log\n",
                     (unsigned long long)record.sequence, (unsigned long long)record.skipped_count);
    else {
        tm_text_emit(out, "batch, sequence %llu, %u operations, %zu bytes\n",
                     (unsigned long long)record.sequence, (unsigned)record.operation_count,
                     record.operations.length);
        if (entries)
            wrong = show_operations(out, &record);
    }
    if (wrong != NULL)
        return TM_FAIL(err, unsupported ? TAMIS_UNSUPPORTED : TAMIS_CORRUPT,
                       "%s: record at offset %llu: %s", name, (unsigned long long)offset, wrong);
    return TAMIS_OK;
}

static void
show_edit_table(struct tm_text *out, const struct tm_edit_file *file)
{
    const struct tm_table_facts *facts = &file->facts;

    tm_text_emit(
        out,
        "  add level %u table %06llu: %llu bytes, unique id %016llx, data id %016llx, checksum "
        "%016llx\n",
        (unsigned)file->level, (unsigned long long)file->number,
        (unsigned long long)facts->file_bytes, (unsigned long long)facts->unique_id,
        (unsigned long long)facts->data_id, (unsigned long long)facts->checksum);
    tm_text_emit(
        out,
        "    %llu entries, %llu keys, %llu tombstones, sequences %llu..%llu, filter %llu bytes\n",
        (unsigned long long)facts->entry_count, (unsigned long long)facts->key_count,
        (unsigned long long)facts->tombstone_count, (unsigned long long)facts->sequence_min,
        (unsigned long long)facts->sequence_max, (unsigned long long)facts->filter_bytes);
    tm_text_emit(out, "    smallest ");
    tm_text_bytes(out, tm_slice(facts->smallest, facts->smallest_length));
    tm_text_emit(out, "\n    largest ");
    tm_text_bytes(out, tm_slice(facts->largest, facts->largest_length));
    tm_text_emit(out, "\n");
}

static tamis_status
show_edit(const struct tm_env *env, struct tm_text *out, const char *name, tamis_slice bytes,
          uint64_t offset, tamis_error *err)
{
    struct tm_edit edit;
    const char *wrong = "";
    tamis_status status = tm_edit_decode(env, bytes, &edit, &wrong);

    if (status == TAMIS_NO_MEMORY)
        return TM_NO_MEMORY(err, bytes.length);
    if (status != TAMIS_OK) {
        tm_text_emit(out, "record %llu: %s\n", (unsigned long long)offset, wrong);
        return TM_FAIL(err, status, "%s: record at offset %llu: %s", name,
                       (unsigned long long)offset, wrong);
    }
    tm_text_emit(out, "record %llu: %s\n", (unsigned long long)offset,
                 edit.is_snapshot ? "snapshot" : "edit");
    if (edit.is_snapshot)
        tm_text_emit(out, "  key order %s, hash seed %016llx\n", edit.order_name,
                     (unsigned long long)edit.hash_seed);
    if (edit.next_file_number != 0)
        tm_text_emit(out, "  next file %llu\n", (unsigned long long)edit.next_file_number);
    if (edit.last_sequence != 0)
        tm_text_emit(out, "  last sequence %llu\n", (unsigned long long)edit.last_sequence);
    if (edit.has_log_number)
        tm_text_emit(out, "  log %llu\n", (unsigned long long)edit.log_number);
    if (edit.log_end_number != 0)
        tm_text_emit(out, "  log end %llu at %llu\n", (unsigned long long)edit.log_end_number,
                     (unsigned long long)edit.log_end_bytes);
    for (size_t i = 0; i < edit.removed_count; i++)
        tm_text_emit(out, "  remove level %u table %06llu\n", (unsigned)edit.removed[i].level,
                     (unsigned long long)edit.removed[i].number);
    for (size_t i = 0; i < edit.added_count; i++)
        show_edit_table(out, &edit.added[i]);
    tm_edit_release(env, &edit);
    return TAMIS_OK;
}

static tamis_status
show_records(const struct tm_env *env, tamis_dir *dir, const char *name, enum tm_name_kind kind,
             uint64_t number, bool entries, struct tm_text *out, tamis_error *err)
{
    enum tamis_file_kind file_kind = kind == TM_NAME_LOG ? TAMIS_FILE_LOG : TAMIS_FILE_MANIFEST;
    struct tm_record_reader reader = {0};
    tamis_file *file;
    uint64_t size;
    uint64_t synced_bytes = 0;
    bool found = true;
    tamis_status status;

    status = env->fs->open(env->fs->ctx, dir, name, file_kind, &file, &size, err);
    if (status != TAMIS_OK)
        return status;
    tm_text_emit(out, "%s %06llu\nbytes %llu\n", kind == TM_NAME_LOG ? "log" : "manifest",
                 (unsigned long long)number, (unsigned long long)size);
    status = tm_record_reader_init(&reader, env, file, name, number, size, err);
    while (status == TAMIS_OK && !out->stopped) {
        tamis_slice bytes;
        uint64_t offset = reader.end_offset;

        status = tm_record_next(&reader, &bytes, &found, err);
        if (status != TAMIS_OK || !found)
            break;
        if (kind == TM_NAME_LOG)
            status = show_wal_record(out, name, bytes, offset, entries, err);
        else
            status = show_edit(env, out, name, bytes, offset, err);
    }
    if (status == TAMIS_OK && !found) {
        tm_text_emit(out, "end %llu: %s\n", (unsigned long long)reader.end_offset,
                     reader.stop != NULL ? reader.stop : "end of file");
        status = tm_record_scan_watermarks(&reader, 0, number, &synced_bytes, err);
        if (status == TAMIS_OK)
            tm_text_emit(out, "synced, by its own word, at least %llu\n",
                         (unsigned long long)synced_bytes);
        if (status == TAMIS_OK && synced_bytes > reader.end_offset)
            status =
                TM_FAIL(err, TAMIS_CORRUPT, "%s: offset %llu: %s, although %llu bytes were synced",
                        name, (unsigned long long)reader.end_offset,
                        reader.stop != NULL ? reader.stop : "the file ends",
                        (unsigned long long)synced_bytes);
    }
    tm_record_reader_deinit(&reader);
    (void)env->fs->close(env->fs->ctx, file, NULL); // only read from
    return status;
}

/* ---- Public --------------------------------------------------------------------------------------- */

/* A table whose order only its store knows is shown as it stands: every key is above the one before. */
static int
compare_as_it_stands(void *ctx, tamis_slice a, tamis_slice b)
{
    (void)ctx;
    return tm_slice_equal(a, b) ? 0 : -1;
}

static tamis_status
show_table(const struct tm_env *env, tamis_dir *dir, const char *name, bool entries,
           struct tm_text *out, tamis_error *err)
{
    struct tm_env own_order = *env;
    struct tm_table *table;
    tamis_status status = tm_table_open(env, dir, name, NULL, NULL, NULL, &table, err);

    own_order.order.compare = compare_as_it_stands;
    if (status == TAMIS_UNSUPPORTED)
        status = tm_table_open(&own_order, dir, name, NULL, NULL, NULL, &table, err);
    if (status != TAMIS_OK)
        return status;
    status = tm_table_inspect(table, entries, out->sink, out->arg, err);
    tm_table_close(table);
    return status;
}

static tamis_status
show_current(const struct tm_env *env, tamis_dir *dir, struct tm_text *out, tamis_error *err)
{
    char name[TM_NAME_BYTES_MAX];
    uint64_t number;
    tamis_status status = tm_current_read(env, dir, &number, err);

    if (status == TAMIS_OK)
        tm_text_emit(out, "current %s\n", tm_name_make(TM_NAME_MANIFEST, number, name));
    return status;
}

/* NOT_FOUND for a file that is missing: to the readers of a store that is damage, as something names it. */
static tamis_status
check_there(const struct tm_env *env, tamis_dir *dir, const char *name, enum tm_name_kind kind,
            tamis_error *err)
{
    enum tamis_file_kind file_kind = kind == TM_NAME_TABLE     ? TAMIS_FILE_TABLE
                                     : kind == TM_NAME_LOG     ? TAMIS_FILE_LOG
                                     : kind == TM_NAME_CURRENT ? TAMIS_FILE_CURRENT
                                                               : TAMIS_FILE_MANIFEST;
    tamis_file *file;
    uint64_t size;
    tamis_status status = env->fs->open(env->fs->ctx, dir, name, file_kind, &file, &size, err);

    if (status == TAMIS_OK)
        (void)env->fs->close(env->fs->ctx, file, NULL); // only read from
    return status;
}

tamis_status
tamis_inspect(const char *path, bool entries,
              bool (*sink)(void *arg, const char *text, size_t length), void *arg,
              const tamis_fs *fs, tamis_error *err)
{
    struct tm_env env = {
        tm_allocator_default(), fs != NULL ? fs : tamis_fs_posix(), tm_runtime_posix(), {0}};
    struct tm_text out = {sink, arg, false};
    struct tm_buf directory = {0};
    const char *slash, *name;
    tamis_dir *dir = NULL;
    enum tm_name_kind kind;
    uint64_t number;
    bool created;
    tamis_status status;

    if (path == NULL || sink == NULL)
        return TM_FAIL(err, TAMIS_INVALID, "the path and the sink are required");
    slash = strrchr(path, '/');
    name = slash != NULL ? slash + 1 : path;
    kind = tm_name_parse(name, &number);
    if (kind != TM_NAME_CURRENT && kind != TM_NAME_MANIFEST && kind != TM_NAME_TABLE &&
        kind != TM_NAME_LOG)
        return TM_FAIL(err, TAMIS_INVALID,
                       "%s: expected a table (*.sst), a log (*.wal), a manifest or CURRENT", path);
    if (slash == NULL)
        status = tm_buf_append(&env, &directory, ".", 2, err);
    else // "/name" lies in "/"; else up to the slash
        status =
            tm_buf_append(&env, &directory, path, (size_t)(slash - path) + (slash == path), err);
    if (status == TAMIS_OK)
        status = tm_buf_append(&env, &directory, "", 1, err);
    if (status == TAMIS_OK)
        status =
            env.fs->open_dir(env.fs->ctx, (const char *)directory.data, false, &created, &dir, err);
    if (status == TAMIS_OK) {
        status = check_there(&env, dir, name, kind, err);
        if (status == TAMIS_OK && kind == TM_NAME_TABLE)
            status = show_table(&env, dir, name, entries, &out, err);
        else if (status == TAMIS_OK && kind == TM_NAME_CURRENT)
            status = show_current(&env, dir, &out, err);
        else if (status == TAMIS_OK)
            status = show_records(&env, dir, name, kind, number, entries, &out, err);
        env.fs->close_dir(env.fs->ctx, dir);
    }
    tm_buf_release(&env, &directory);
    return status;
}
