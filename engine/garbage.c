/* SPDX-License-Identifier: MIT
 *
 * engine/garbage.c -- what becomes of files that nothing needs any more.
 *
 *     table that no version holds -> trash -> closed ---.
 *     log below the manifest's log number --------------+-> removed, or while readers are there kept -> removed later
 *     manifest that CURRENT no longer names ------------'
 *
 * A reader takes its lock before it reads CURRENT. So a writer that asks for readers after the state without the file is
 * durable, and sees none, knows: whoever comes later starts from that state and does not look for the file (E8).
 *
 * Kept files are tried again after each flush, when tables leave the trash, by tamis_wait_idle() and at close; what is there then
 * goes at the next open of the writer.
 */
#include "engine/db_internal.h"

/* ---- Readers -------------------------------------------------------------------------------------- */

bool
tm_has_readers(tamis_db *db)
{
    bool found = true;

    if (db->env.fs->has_readers(db->env.fs->ctx, db->lock, &found, NULL) != TAMIS_OK)
        return true; // not known: nothing goes
    return found;
}

static uint64_t
file_bytes(tamis_db *db, enum tm_name_kind kind, uint64_t number)
{
    const tamis_fs *fs = db->env.fs;
    tamis_file_kind file_kind = kind == TM_NAME_TABLE ? TAMIS_FILE_TABLE
                                : kind == TM_NAME_LOG ? TAMIS_FILE_LOG
                                                      : TAMIS_FILE_MANIFEST;
    char name[TM_NAME_BYTES_MAX];
    tamis_file *file;
    uint64_t bytes;

    if (fs->open(fs->ctx, db->dir, tm_name_make(kind, number, name), file_kind, &file, &bytes,
                 NULL) != TAMIS_OK)
        return 0;                         // only the statistics would know
    (void)fs->close(fs->ctx, file, NULL); // nothing was written
    return bytes;
}

void
tm_keep_file(tamis_db *db, enum tm_name_kind kind, uint64_t number)
{
    struct tm_kept_file file = {kind, number, 0};

    tm_unlock(db);
    file.bytes = file_bytes(db, kind, number);
    tm_lock(db);
    if (db->kept_count == db->kept_capacity) {
        size_t capacity = db->kept_capacity != 0 ? db->kept_capacity * 2 : 16;
        struct tm_kept_file *grown = tm_resize(
            &db->env, db->kept, db->kept_capacity * sizeof *grown, capacity * sizeof *grown);

        if (grown == NULL)
            return; // not known here any more; the next open removes it
        db->kept = grown;
        db->kept_capacity = capacity;
    }
    db->kept[db->kept_count++] = file;
}

void
tm_discard_file(tamis_db *db, enum tm_name_kind kind, uint64_t number)
{
    bool keeps;

    db->purging++; // not idle before the file is gone
    tm_unlock(db);
    keeps = tm_has_readers(db);
    if (!keeps)
        tm_remove_unneeded(db, kind, number);
    tm_lock(db);
    if (keeps)
        tm_keep_file(db, kind, number);
    db->purging--;
}

void
tm_discard_kept(tamis_db *db)
{
    size_t count = db->kept_count; // more may be added behind them meanwhile
    bool keeps = true;

    db->kept_due = false;
    db->purging++;
    if (count != 0 && db->failure.code == TAMIS_OK) { // E5
        tm_unlock(db);
        keeps = tm_has_readers(db);
        tm_lock(db);
    }
    for (; !keeps && count != 0; count--) {
        struct tm_kept_file file = db->kept[0];

        db->kept_count--;
        memmove(db->kept, db->kept + 1, db->kept_count * sizeof *db->kept);
        tm_unlock(db);
        tm_remove_unneeded(db, file.kind, file.number);
        tm_lock(db);
    }
    db->purging--;
    tm_notify(db);
}

/* ---- Tables --------------------------------------------------------------------------------------- */

void
tm_purge_trash(tamis_db *db)
{
    struct tm_file *file = db->trash;
    uint64_t number;

    if (file == NULL || db->failure.code != TAMIS_OK)
        return;
    number = file->number;
    db->trash = file->trash_next;
    db->purging++;
    tm_unlock(db);
    tm_file_close(db, file);
    tm_lock(db);
    tm_discard_file(db, TM_NAME_TABLE, number);
    db->purging--;
    db->kept_due = db->kept_count != 0;
    tm_notify(db);
}

void
tm_close_trash(tamis_db *db)
{
    struct tm_file *file;

    tm_lock(db);
    file = db->trash;
    db->trash = NULL;
    tm_unlock(db);
    while (file != NULL) {
        struct tm_file *next = file->trash_next;

        tm_file_close(db, file);
        file = next;
    }
}
