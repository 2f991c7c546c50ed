/* SPDX-License-Identifier: MIT
 *
 * engine/manifest.c -- edits as bytes, the manifest file, CURRENT. The format is drawn in manifest.h.
 */
#include "engine/manifest.h"

#include <assert.h>
#include <stdio.h>

#include <tamis/tamis.h>

#include "engine/names.h"
#include "filter/bytes.h"

enum {
    TAG_HEADER = 1,
    TAG_NEXT_FILE = 2,
    TAG_LAST_SEQUENCE = 3,
    TAG_LOG = 4,
    TAG_LOG_END = 5,
    TAG_ADD = 6,
    TAG_REMOVE = 7,
    TAG_SKIPPABLE = 128,

    FORMAT_VERSION = 1,
    CURRENT_BYTES_MAX = 64, // "MANIFEST-", 20 digits, newline, and some

    // A new manifest costs a few syncs; at 4 snapshots and 64 KiB of edits it is rare even for a store of one table.
    LONG_FACTOR = 4,
    LONG_BYTES_MIN = 65536,
};

// Out of reach, and far enough from the end that no addition overflows.
#define FILE_NUMBER_MAX (UINT64_C(1) << 63)

/* ---- Encoding ------------------------------------------------------------------------------------- */

/* The longest field without keys: a table's integers. */
enum { FIELD_INTEGERS_BYTES_MAX = 16 * TM_VARINT64_BYTES_MAX + 3 * 8 };

static tamis_status
append_field(const struct tm_env *env, struct tm_buf *buf, uint8_t tag, const uint8_t *bytes,
             size_t length, tamis_error *err)
{
    uint8_t head[1 + TM_VARINT64_BYTES_MAX];
    size_t head_bytes;
    tamis_status status;

    head[0] = tag;
    head_bytes = (size_t)(tm_put_varint64(head + 1, length) - head);
    status = tm_buf_append(env, buf, head, head_bytes, err);
    if (status == TAMIS_OK)
        status = tm_buf_append(env, buf, bytes, length, err);
    return status;
}

static tamis_status
append_integers(const struct tm_env *env, struct tm_buf *buf, uint8_t tag, uint64_t first,
                const uint64_t *second, tamis_error *err)
{
    uint8_t bytes[2 * TM_VARINT64_BYTES_MAX];
    uint8_t *end = tm_put_varint64(bytes, first);

    if (second != NULL)
        end = tm_put_varint64(end, *second);
    return append_field(env, buf, tag, bytes, (size_t)(end - bytes), err);
}

static uint8_t *
put_u64(uint8_t *p, uint64_t value)
{
    tm_put_u64(p, value);
    return p + 8;
}

static tamis_status
append_table(const struct tm_env *env, struct tm_buf *buf, const struct tm_edit_file *file,
             tamis_error *err)
{
    const struct tm_table_facts *facts = &file->facts;
    uint8_t head[1 + TM_VARINT64_BYTES_MAX];
    uint8_t bytes[FIELD_INTEGERS_BYTES_MAX];
    uint8_t largest_length[TM_VARINT64_BYTES_MAX];
    uint8_t *end = bytes;
    size_t integers, middle, total, head_bytes;
    tamis_status status;

    end = tm_put_varint64(end, file->level);
    end = tm_put_varint64(end, file->number);
    end = tm_put_varint64(end, facts->file_bytes);
    end = put_u64(end, facts->unique_id);
    end = put_u64(end, facts->data_id);
    end = put_u64(end, facts->checksum);
    end = tm_put_varint64(end, facts->entry_count);
    end = tm_put_varint64(end, facts->key_count);
    end = tm_put_varint64(end, facts->tombstone_count);
    end = tm_put_varint64(end, facts->sequence_min);
    end = tm_put_varint64(end, facts->sequence_max);
    end = tm_put_varint64(end, facts->raw_bytes);
    end = tm_put_varint64(end, facts->filter_bytes);
    end = tm_put_varint64(end, facts->smallest_length);
    integers = (size_t)(end - bytes);
    middle = (size_t)(tm_put_varint64(largest_length, facts->largest_length) - largest_length);
    total = integers + facts->smallest_length + middle + facts->largest_length;
    head[0] = TAG_ADD;
    head_bytes = (size_t)(tm_put_varint64(head + 1, total) - head);

    status = tm_buf_append(env, buf, head, head_bytes, err);
    if (status == TAMIS_OK)
        status = tm_buf_append(env, buf, bytes, integers, err);
    if (status == TAMIS_OK)
        status = tm_buf_append(env, buf, facts->smallest, facts->smallest_length, err);
    if (status == TAMIS_OK)
        status = tm_buf_append(env, buf, largest_length, middle, err);
    if (status == TAMIS_OK)
        status = tm_buf_append(env, buf, facts->largest, facts->largest_length, err);
    return status;
}

static tamis_status
append_header(const struct tm_env *env, struct tm_buf *buf, const struct tm_edit *edit,
              tamis_error *err)
{
    const char *name = tm_order_name(&env->order);
    uint8_t bytes[2 * TM_VARINT64_BYTES_MAX + 8 + TM_ORDER_NAME_BYTES_MAX];
    uint8_t *end = bytes;

    assert(strlen(name) <= TM_ORDER_NAME_BYTES_MAX); // options.c

    end = tm_put_varint64(end, FORMAT_VERSION);
    end = tm_put_varint64(end, 0); // required features
    end = put_u64(end, edit->hash_seed);
    memcpy(end, name, strlen(name));
    end += strlen(name);
    return append_field(env, buf, TAG_HEADER, bytes, (size_t)(end - bytes), err);
}

tamis_status
tm_edit_encode(const struct tm_env *env, const struct tm_edit *edit, struct tm_buf *buf,
               tamis_error *err)
{
    tamis_status status = TAMIS_OK;

    if (edit->is_snapshot)
        status = append_header(env, buf, edit, err);
    if (status == TAMIS_OK && edit->next_file_number != 0)
        status = append_integers(env, buf, TAG_NEXT_FILE, edit->next_file_number, NULL, err);
    if (status == TAMIS_OK && edit->last_sequence != 0)
        status = append_integers(env, buf, TAG_LAST_SEQUENCE, edit->last_sequence, NULL, err);
    if (status == TAMIS_OK && edit->has_log_number)
        status = append_integers(env, buf, TAG_LOG, edit->log_number, NULL, err);
    if (status == TAMIS_OK && edit->log_end_number != 0)
        status = append_integers(env, buf, TAG_LOG_END, edit->log_end_number,
                                 &edit->log_end_bytes, err);
    for (size_t i = 0; status == TAMIS_OK && i < edit->removed_count; i++)
        status = append_integers(env, buf, TAG_REMOVE, edit->removed[i].level,
                                 &edit->removed[i].number, err);
    for (size_t i = 0; status == TAMIS_OK && i < edit->added_count; i++)
        status = append_table(env, buf, &edit->added[i], err);
    return status;
}

/* ---- Decoding ------------------------------------------------------------------------------------- */

/* Room for one more element: the array, moved perhaps, or NULL (unchanged then). */
static void *
grow_by_one(const struct tm_env *env, void *array, size_t count, size_t *capacity,
            size_t element_bytes)
{
    size_t wanted = *capacity != 0 ? *capacity * 2 : 8;
    void *grown;

    if (count < *capacity)
        return array;
    grown = tm_resize(env, array, *capacity * element_bytes, wanted * element_bytes);
    if (grown != NULL)
        *capacity = wanted;
    return grown;
}

void
tm_edit_release(const struct tm_env *env, struct tm_edit *edit)
{
    for (size_t i = 0; i < edit->added_count; i++)
        tm_table_facts_release(env, &edit->added[i].facts);
    tm_release(env, edit->added, edit->added_capacity * sizeof *edit->added);
    tm_release(env, edit->removed, edit->removed_capacity * sizeof *edit->removed);
    memset(edit, 0, sizeof *edit);
}

static bool
copy_key(const struct tm_env *env, struct tm_cursor *cursor, uint8_t **key_out,
         uint32_t *length_out, bool *no_memory)
{
    uint64_t length = tm_cursor_varint(cursor);
    const uint8_t *bytes;

    if (cursor->failed || length > TAMIS_KEY_BYTES_MAX)
        return false;
    bytes = tm_cursor_bytes(cursor, length);
    if (cursor->failed)
        return false;
    *key_out = tm_alloc(env, length);
    if (*key_out == NULL) {
        *no_memory = true;
        return false;
    }
    if (length != 0)
        memcpy(*key_out, bytes, length);
    *length_out = (uint32_t)length;
    return true;
}

static const char *
decode_table(const struct tm_env *env, struct tm_cursor *cursor, struct tm_edit *edit,
             bool *no_memory)
{
    struct tm_edit_file *grown =
        grow_by_one(
        env, edit->added, edit->added_count, &edit->added_capacity, sizeof *edit->added);
    struct tm_edit_file *file;
    struct tm_table_facts *facts;
    uint64_t level;

    if (grown == NULL) {
        *no_memory = true;
        return "no memory";
    }
    edit->added = grown;
    file = &edit->added[edit->added_count++];
    memset(file, 0, sizeof *file);
    facts = &file->facts;
    level = tm_cursor_varint(cursor);
    file->level = (uint32_t)level;
    file->number = tm_cursor_varint(cursor);
    facts->file_bytes = tm_cursor_varint(cursor);
    facts->unique_id = tm_cursor_u64(cursor);
    facts->data_id = tm_cursor_u64(cursor);
    facts->checksum = tm_cursor_u64(cursor);
    facts->entry_count = tm_cursor_varint(cursor);
    facts->key_count = tm_cursor_varint(cursor);
    facts->tombstone_count = tm_cursor_varint(cursor);
    facts->sequence_min = tm_cursor_varint(cursor);
    facts->sequence_max = tm_cursor_varint(cursor);
    facts->raw_bytes = tm_cursor_varint(cursor);
    facts->filter_bytes = tm_cursor_varint(cursor);
    if (cursor->failed || level >= TAMIS_LEVEL_COUNT ||
        !copy_key(env, cursor, &facts->smallest, &facts->smallest_length, no_memory) ||
        !copy_key(env, cursor, &facts->largest, &facts->largest_length, no_memory))
        return "a table field that is malformed";
    return NULL;
}

static const char *
decode_header(struct tm_cursor *cursor, struct tm_edit *edit, bool *unsupported)
{
    uint64_t version = tm_cursor_varint(cursor);
    uint64_t features = tm_cursor_varint(cursor);
    size_t name_length;

    edit->is_snapshot = true;
    edit->hash_seed = tm_cursor_u64(cursor);
    if (cursor->failed)
        return "a header field that is malformed";
    name_length = tm_cursor_left(cursor);
    if (version != FORMAT_VERSION || features != 0) {
        *unsupported = true;
        return "a format version or feature that this version does not know";
    }
    if (name_length > TM_ORDER_NAME_BYTES_MAX)
        return "the name of a key order that is longer than any";
    memcpy(edit->order_name, tm_cursor_bytes(cursor, name_length), name_length);
    return tm_order_name_is_valid(edit->order_name) && strlen(edit->order_name) == name_length
               ? NULL
               : "the name of a key order that is none";
}

static const char *
decode_removal(const struct tm_env *env, struct tm_cursor *cursor, struct tm_edit *edit,
               bool *no_memory)
{
    struct tm_edit_removal *grown =
        grow_by_one(
        env, edit->removed, edit->removed_count, &edit->removed_capacity, sizeof *edit->removed);
    struct tm_edit_removal *removal;
    uint64_t level;

    if (grown == NULL) {
        *no_memory = true;
        return "no memory";
    }
    edit->removed = grown;
    removal = &edit->removed[edit->removed_count++];
    level = tm_cursor_varint(cursor);
    removal->level = (uint32_t)level;
    removal->number = tm_cursor_varint(cursor);
    return cursor->failed || level >= TAMIS_LEVEL_COUNT ? "a removal that is malformed" : NULL;
}

tamis_status
tm_edit_decode(const struct tm_env *env, tamis_slice record, struct tm_edit *edit,
               const char **wrong_out)
{
    struct tm_cursor cursor = tm_cursor_over(record.data, record.length);
    const char *wrong = NULL;
    bool no_memory = false;
    bool unsupported = false;

    memset(edit, 0, sizeof *edit);
    while (wrong == NULL && tm_cursor_left(&cursor) != 0) {
        uint8_t tag = tm_cursor_u8(&cursor);
        uint64_t length = tm_cursor_varint(&cursor);
        const uint8_t *bytes = tm_cursor_bytes(&cursor, length);
        struct tm_cursor field;

        if (cursor.failed) {
            wrong = "a field that is longer than its record";
            break;
        }
        field = tm_cursor_over(bytes, length);
        switch (tag) {
        case TAG_HEADER:
            wrong = decode_header(&field, edit, &unsupported);
            break;
        case TAG_NEXT_FILE:
            edit->next_file_number = tm_cursor_varint(&field);
            if (edit->next_file_number > FILE_NUMBER_MAX)
                wrong = "a file number beyond the greatest";
            break;
        case TAG_LAST_SEQUENCE:
            edit->last_sequence = tm_cursor_varint(&field);
            if (edit->last_sequence > TM_SEQUENCE_MAX)
                wrong = "a sequence beyond the greatest";
            break;
        case TAG_LOG:
            edit->has_log_number = true;
            edit->log_number = tm_cursor_varint(&field);
            break;
        case TAG_LOG_END:
            edit->log_end_number = tm_cursor_varint(&field);
            edit->log_end_bytes = tm_cursor_varint(&field);
            break;
        case TAG_ADD:
            wrong = decode_table(env, &field, edit, &no_memory);
            break;
        case TAG_REMOVE:
            wrong = decode_removal(env, &field, edit, &no_memory);
            break;
        default:
            if (tag >= TAG_SKIPPABLE)
                continue;
            unsupported = true;
            wrong = "a field that this version does not know";
            break;
        }
        if (wrong == NULL && (field.failed || tm_cursor_left(&field) != 0))
            wrong = "a field of the wrong length";
    }
    if (wrong == NULL)
        return TAMIS_OK;
    tm_edit_release(env, edit);
    *wrong_out = wrong;
    return no_memory ? TAMIS_NO_MEMORY : unsupported ? TAMIS_UNSUPPORTED : TAMIS_CORRUPT;
}

/* ---- Writing a manifest --------------------------------------------------------------------------- */

tamis_status
tm_manifest_append(struct tm_manifest *manifest, tamis_slice record, tamis_error *err)
{
    const tamis_fs *fs = manifest->env->fs;
    tamis_status status;

    status = tm_record_add(&manifest->writer, &record, 1, err);
    if (status == TAMIS_OK)
        status = tm_record_flush(&manifest->writer, err);
    if (status == TAMIS_OK)
        status = fs->sync(fs->ctx, manifest->file, err);
    if (status != TAMIS_OK) {
        manifest->writer.failed = true; // N1
        return status;
    }
    manifest->writer.watermark.number = manifest->number;
    manifest->writer.watermark.offset = manifest->writer.offset;
    return TAMIS_OK;
}

tamis_status
tm_manifest_create(struct tm_manifest *manifest, const struct tm_env *env, tamis_dir *dir,
                   uint64_t number, const struct tm_edit *snapshot, tamis_error *err)
{
    struct tm_manifest made = {.env = env, .dir = dir, .number = number};
    struct tm_buf record = {0};
    char name[TM_NAME_BYTES_MAX];
    char current[CURRENT_BYTES_MAX];
    int length;
    tamis_status status;

    assert(snapshot->is_snapshot);
    tm_name_make(TM_NAME_MANIFEST, number, name);
    status = tm_edit_encode(env, snapshot, &record, err);
    if (status != TAMIS_OK)
        goto out;
    status = tm_record_writer_init(&made.writer, env, NULL, number, err);
    if (status != TAMIS_OK)
        goto out;
    status = env->fs->create(env->fs->ctx, dir, name, TAMIS_FILE_MANIFEST, &made.file, err);
    if (status != TAMIS_OK)
        goto out;
    made.writer.file = made.file;
    status = tm_manifest_append(&made, tm_slice(record.data, record.length), err);
    if (status != TAMIS_OK)
        goto out;
    made.snapshot_bytes = made.writer.offset;
    length = snprintf(current, sizeof current, "%s\n", name);
    status = env->fs->replace(env->fs->ctx, dir, "CURRENT", tm_slice(current, (size_t)length),
                              err); // N3
    if (status != TAMIS_OK)
        goto out;
    *manifest = made;
    memset(&made, 0, sizeof made);

out:
    tm_manifest_close(&made);
    tm_buf_release(env, &record);
    return status;
}

bool
tm_manifest_is_long(const struct tm_manifest *manifest)
{
    return manifest->writer.offset > LONG_BYTES_MIN + LONG_FACTOR * manifest->snapshot_bytes;
}

void
tm_manifest_close(struct tm_manifest *manifest)
{
    if (manifest->file != NULL) // what counts was synced record by record, so closing has nothing to lose
        (void)manifest->env->fs->close(manifest->env->fs->ctx, manifest->file, NULL);
    tm_record_writer_deinit(&manifest->writer);
    memset(manifest, 0, sizeof *manifest);
}

/* ---- Reading -------------------------------------------------------------------------------------- */

tamis_status
tm_current_read(const struct tm_env *env, tamis_dir *dir, uint64_t *number_out, tamis_error *err)
{
    const tamis_fs *fs = env->fs;
    tamis_file *file = NULL;
    char text[CURRENT_BYTES_MAX + 1];
    uint64_t size;
    tamis_status status;

    status = fs->open(fs->ctx, dir, "CURRENT", TAMIS_FILE_CURRENT, &file, &size, err);
    if (status != TAMIS_OK)
        return status;
    if (size == 0 || size > CURRENT_BYTES_MAX) {
        status = TM_FAIL(err, TAMIS_CORRUPT,
                         "CURRENT: expected the name of a manifest and a newline, found %llu bytes",
                         (unsigned long long)size);
        goto out;
    }
    status = fs->read_at(fs->ctx, file, 0, text, (size_t)size, err);
    if (status != TAMIS_OK)
        goto out;
    text[size] = '\0';
    if (text[size - 1] != '\n' || memchr(text, '\0', (size_t)size) != NULL) {
        status = TM_FAIL(err, TAMIS_CORRUPT,
                         "CURRENT: expected the name of a manifest and a newline, found other bytes");
        goto out;
    }
    text[size - 1] = '\0';
    if (tm_name_parse(text, number_out) != TM_NAME_MANIFEST)
        status = TM_FAIL(err, TAMIS_CORRUPT,
                         "CURRENT: expected MANIFEST- and a number, found other text");

out:
    (void)fs->close(fs->ctx, file, NULL); // only read from
    return status;
}

/* Fold `edit` into `state`. Takes the tables of `edit`, and its removals on success. NULL, or what is wrong. */
static const char *
fold_edit(const struct tm_env *env, struct tm_edit *state, struct tm_edit *edit, bool *no_memory)
{
    struct tm_edit older = *state;

    state->is_settled = !edit->is_snapshot; // N4
    state->settled_log_number = state->log_number;
    if (edit->next_file_number != 0)
        state->next_file_number = edit->next_file_number;
    if (edit->last_sequence != 0)
        state->last_sequence = edit->last_sequence;
    if (edit->has_log_number)
        state->log_number = edit->log_number;
    // A clean close is true until the next edit, which something was written for.
    state->log_end_number = edit->log_end_number;
    state->log_end_bytes = edit->log_end_bytes;
    for (size_t i = 0; i < edit->removed_count; i++) {
        size_t at = 0;

        while (at < state->added_count && (state->added[at].number != edit->removed[i].number ||
                                           state->added[at].level != edit->removed[i].level))
            at++;
        if (at == state->added_count)
            return "an edit that removes a table which is not there";
        tm_table_facts_release(env, &state->added[at].facts);
        memmove(state->added + at, state->added + at + 1,
                (state->added_count - at - 1) * sizeof *state->added);
        state->added_count--;
    }
    for (size_t i = 0; i < edit->added_count; i++) {
        void *grown = grow_by_one(env, state->added, state->added_count, &state->added_capacity,
                                  sizeof *state->added);

        if (grown == NULL) {
            *no_memory = true;
            return "no memory";
        }
        state->added = grown;
        state->added[state->added_count++] = edit->added[i];
        memset(&edit->added[i].facts, 0, sizeof edit->added[i].facts);
    }
    state->removed = edit->removed;
    state->removed_count = edit->removed_count;
    state->removed_capacity = edit->removed_capacity;
    edit->removed = older.removed;
    edit->removed_count = older.removed_count;
    edit->removed_capacity = older.removed_capacity;
    return NULL;
}

/* The tail behind the last sound record: what a crash left, or damage? */
static tamis_status
judge_tail(struct tm_record_reader *reader, tamis_error *err)
{
    uint64_t synced_bytes = 0;
    tamis_status status;

    status = tm_record_scan_watermarks(reader, reader->stop_offset, reader->number,
                                       &synced_bytes, err);
    if (status != TAMIS_OK)
        return status;
    if (synced_bytes > reader->stop_offset)
        return TM_FAIL(err, TAMIS_CORRUPT,
                       "%s: offset %llu: %s, although %llu bytes were synced", reader->name,
                       (unsigned long long)reader->stop_offset, reader->stop,
                       (unsigned long long)synced_bytes);
    return TAMIS_OK;
}

tamis_status
tm_manifest_load(const struct tm_env *env, tamis_dir *dir, struct tm_edit *state_out,
                 uint64_t *number_out, tamis_error *err)
{
    const tamis_fs *fs = env->fs;
    struct tm_record_reader reader = {0};
    struct tm_edit state = {0};
    tamis_file *file = NULL;
    char name[TM_NAME_BYTES_MAX];
    uint64_t number;
    uint64_t size;
    bool have_snapshot = false;
    tamis_status status;

    status = tm_current_read(env, dir, &number, err);
    if (status != TAMIS_OK)
        return status;
    tm_name_make(TM_NAME_MANIFEST, number, name);
    status = fs->open(fs->ctx, dir, name, TAMIS_FILE_MANIFEST, &file, &size, err);
    if (status == TAMIS_NOT_FOUND)
        return TM_FAIL(err, TAMIS_CORRUPT, "CURRENT names %s, which is missing", name);
    if (status != TAMIS_OK)
        return status;
    status = tm_record_reader_init(&reader, env, file, name, number, size, err);
    while (status == TAMIS_OK) {
        struct tm_edit edit;
        const char *wrong = NULL;
        tamis_slice record;
        bool found;
        bool no_memory = false;
        uint64_t offset = reader.offset;

        status = tm_record_next(&reader, &record, &found, err);
        if (status != TAMIS_OK || !found)
            break;
        status = tm_edit_decode(env, record, &edit, &wrong);
        if (status == TAMIS_OK && edit.is_snapshot == have_snapshot) {
            wrong = have_snapshot ? "a second snapshot" : "an edit before the snapshot";
            status = TAMIS_CORRUPT;
        }
        if (status == TAMIS_OK && !have_snapshot) {
            state.is_snapshot = have_snapshot = true;
            state.hash_seed = edit.hash_seed;
            memcpy(state.order_name, edit.order_name, sizeof state.order_name);
            state.has_log_number = true;
        }
        if (status == TAMIS_OK) {
            wrong = fold_edit(env, &state, &edit, &no_memory);
            if (wrong != NULL)
                status = no_memory ? TAMIS_NO_MEMORY : TAMIS_CORRUPT;
        }
        if (wrong != NULL)
            status = TM_FAIL(err, status, "%s: record at offset %llu: %s", name,
                             (unsigned long long)offset, wrong);
        tm_edit_release(env, &edit);
    }
    if (status == TAMIS_OK && !have_snapshot) // N3: it was synced before CURRENT named it
        status = TM_FAIL(err, TAMIS_CORRUPT, "%s: offset 0: expected a snapshot, found %s", name,
                         reader.stop != NULL ? reader.stop : "an empty file");
    if (status == TAMIS_OK && reader.stop != NULL)
        status = judge_tail(&reader, err);
    if (status == TAMIS_OK && strcmp(state.order_name, tm_order_name(&env->order)) != 0)
        status = TM_FAIL(err, TAMIS_INVALID, "%s: comparator: keys are in the order %s, found %s",
                         name, state.order_name, tm_order_name(&env->order));
    if (status == TAMIS_OK) {
        *state_out = state;
        *number_out = number;
        memset(&state, 0, sizeof state);
    }
    tm_record_reader_deinit(&reader);
    tm_edit_release(env, &state);
    (void)fs->close(fs->ctx, file, NULL); // only read from
    return status;
}
