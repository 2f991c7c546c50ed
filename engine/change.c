/* SPDX-License-Identifier: MIT
 *
 * engine/change.c -- from one version to the next: manifest first, then memory.
 *
 *     wait for the manifest and for the old log's sync (E4)
 *       -> next version, view and record are made in memory, all that can run out of it
 *       -> record appended and synced; a long manifest is replaced by a new one
 *       -> view published; files that no version holds go to the trash (garbage.c)
 */
#include <assert.h>

#include "engine/db_internal.h"

tamis_status
tm_stored_failure(const tamis_error *stored, tamis_error *err)
{
    if (err != NULL)
        *err = *stored;
    return stored->code;
}

void
tm_set_failure(tamis_db *db, tamis_status status, const tamis_error *err)
{
    assert(status != TAMIS_OK);
    if (db->failure.code == TAMIS_OK) {
        db->failure = *err;
        db->failure.code = status;
        tm_count(&db->counters.background_error_count, 1);
        tm_report(db, TAMIS_LOG_ERROR, "writes fail until the store is opened again: %s",
                  err->message);
    }
    tm_notify(db);
}

/* ---- The whole state as an edit ------------------------------------------------------------------- */

void
tm_snapshot_edit_release(tamis_db *db, struct tm_edit *edit)
{
    tm_release(&db->env, edit->added, edit->added_capacity * sizeof *edit->added);
    memset(edit, 0, sizeof *edit);
}

tamis_status
tm_snapshot_edit(tamis_db *db, const struct tm_version *version, struct tm_edit *edit,
                 tamis_error *err)
{
    size_t count = 0;

    memset(edit, 0, sizeof *edit);
    for (uint32_t level = 0; level < TAMIS_LEVEL_COUNT; level++)
        count += version->level[level].file_count;
    edit->added = tm_alloc(&db->env, count * sizeof *edit->added);
    if (edit->added == NULL)
        return TM_NO_MEMORY(err, count * sizeof *edit->added);
    edit->added_capacity = count;
    for (uint32_t level = 0; level < TAMIS_LEVEL_COUNT; level++)
        for (uint32_t i = 0; i < version->level[level].file_count; i++) {
            const struct tm_file *file = version->level[level].files[i];
            struct tm_edit_file *added = &edit->added[edit->added_count++];

            added->level = level;
            added->number = file->number;
            added->facts = file->facts;
        }
    edit->is_snapshot = true;
    edit->hash_seed = db->hash_seed;
    edit->has_log_number = true;
    return TAMIS_OK;
}

/* ---- Applying a change ---------------------------------------------------------------------------- */

static bool
manifest_is_free(void *arg)
{
    tamis_db *db = arg;
    return db->failure.code != TAMIS_OK || (!db->manifest_busy && db->old_wal.number == 0);
}

/* The record of the change. */
static tamis_status
encode_change(tamis_db *db, const struct tm_change *change, const struct tm_edit *scalars,
              struct tm_buf *record, tamis_error *err)
{
    struct tm_edit edit = *scalars;
    struct tm_edit_file *added = NULL;
    struct tm_edit_removal *removed = NULL;
    size_t added_bytes = change->added_count * sizeof *added;
    size_t removed_bytes = change->removed_count * sizeof *removed;
    tamis_status status;

    added = tm_alloc(&db->env, added_bytes);
    removed = tm_alloc(&db->env, removed_bytes);
    if (added == NULL || removed == NULL) {
        status = TM_NO_MEMORY(err, added_bytes + removed_bytes);
        goto out;
    }
    for (size_t i = 0; i < change->added_count; i++) {
        added[i].level = change->added[i].level;
        added[i].number = change->added[i].file->number;
        added[i].facts = change->added[i].file->facts; // keys borrowed
    }
    for (size_t i = 0; i < change->removed_count; i++) {
        removed[i].level = change->removed_levels[i];
        removed[i].number = change->removed[i]->number;
    }
    edit.added = added;
    edit.added_count = change->added_count;
    edit.removed = removed;
    edit.removed_count = change->removed_count;
    status = tm_edit_encode(&db->env, &edit, record, err);

out:
    tm_release(&db->env, added, added_bytes);
    tm_release(&db->env, removed, removed_bytes);
    return status;
}

/* Replace a long manifest by one that begins with the state as it now is. Without the mutex, with manifest_busy. */
static tamis_status
roll_manifest(tamis_db *db, const struct tm_version *version, const struct tm_edit *scalars,
              uint64_t number, tamis_error *err)
{
    struct tm_manifest next;
    struct tm_edit snapshot;
    uint64_t old_number = db->manifest.number;
    tamis_status status;

    status = tm_snapshot_edit(db, version, &snapshot, err);
    if (status != TAMIS_OK)
        return status;
    snapshot.next_file_number = scalars->next_file_number;
    snapshot.last_sequence = scalars->last_sequence;
    snapshot.log_number = scalars->log_number;
    status = tm_manifest_create(&next, &db->env, db->dir, number, &snapshot, err);
    tm_snapshot_edit_release(db, &snapshot);
    if (status != TAMIS_OK)
        return status;
    tm_manifest_close(&db->manifest);
    db->manifest = next;
    tm_lock(db);
    tm_discard_file(db, TM_NAME_MANIFEST, old_number);
    tm_unlock(db);
    return TAMIS_OK;
}

/* Give up the tables of a change that did not happen; one that only moves lives on in the version it is in. */
static void
discard_added(tamis_db *db, struct tm_change *change)
{
    for (size_t i = 0; i < change->added_count; i++) {
        struct tm_file *file = change->added[i].file;

        if (file->version_count != 0)
            continue;
        file->trash_next = db->trash;
        db->trash = file;
    }
    change->added_count = 0;
    tm_notify(db);
}

tamis_status
tm_change_apply(tamis_db *db, struct tm_change *change, tamis_error *err)
{
    struct tm_version *version = NULL;
    struct tm_view *view = NULL;
    struct tm_buf record = {0};
    struct tm_edit scalars = {0};
    uint64_t roll_number = 0;
    tamis_error failure = {0};
    tamis_status status;
    tamis_status roll_status = TAMIS_OK;

    tm_wait(db, &db->changed, manifest_is_free, db);
    if (db->failure.code != TAMIS_OK) {
        discard_added(db, change);
        return tm_stored_failure(&db->failure, err);
    }
    db->manifest_busy = true;

    scalars.next_file_number = db->next_file_number;
    scalars.has_log_number = true;
    scalars.log_number = db->manifest_log_number;
    if (change->drops_imm) {
        scalars.last_sequence = db->imm_last_sequence;
        scalars.log_number = db->wal.number; // made at the rotation that made the immutable memtable (N2)
    }
    status = tm_version_create(&db->env, db->version, change->removed, change->removed_count,
                               change->added, change->added_count, &version, err);
    if (status == TAMIS_OK)
        status = encode_change(db, change, &scalars, &record, err);
    if (status == TAMIS_OK && (view = tm_view_alloc(db)) == NULL)
        status = TM_NO_MEMORY(err, sizeof *view);
    if (status != TAMIS_OK) {
        if (version != NULL) {
            change->added_count = 0; // the version takes them along
            tm_version_unref(&db->env, version, &db->trash);
        } else {
            discard_added(db, change);
        }
        goto out;
    }

    tm_unlock(db);
    status = tm_manifest_append(&db->manifest, tm_slice(record.data, record.length), &failure);
    if (status == TAMIS_OK && tm_manifest_is_long(&db->manifest)) {
        tm_lock(db);
        roll_number = db->next_file_number++;
        scalars.next_file_number = db->next_file_number;
        if (scalars.last_sequence == 0)
            scalars.last_sequence = db->manifest_last_sequence;
        tm_unlock(db);
        roll_status = roll_manifest(db, version, &scalars, roll_number, &failure);
        if (tm_is_out_of_memory(roll_status, &failure))
            roll_status = TAMIS_OK; // nothing happened; the manifest is long, not wrong
    }
    tm_lock(db);

    change->added_count = 0;
    if (status != TAMIS_OK) { // N1: nobody knows whether it counts, so its files stay (E5)
        tm_set_failure(db, status, &failure);
        tm_version_unref(&db->env, version, &db->trash);
        tm_release(&db->env, view, sizeof *view);
        if (err != NULL)
            *err = failure;
        goto out;
    }
    if (roll_status != TAMIS_OK)
        tm_set_failure(db, roll_status, &failure);
    db->manifest_log_number = scalars.log_number;
    if (scalars.last_sequence != 0)
        db->manifest_last_sequence = scalars.last_sequence;
    if (change->drops_imm) {
        tm_memtable_unref(db->imm);
        db->imm = NULL;
    }
    tm_version_unref(&db->env, db->version, &db->trash);
    db->version = version;
    db->compact_pressure = tm_compact_pressure(version, &db->policy);
    db->compact_due = true;
    tm_view_publish(db, view);

out:
    db->manifest_busy = false;
    tm_buf_release(&db->env, &record);
    tm_notify(db);
    return status;
}
