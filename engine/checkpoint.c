/* SPDX-License-Identifier: MIT
 *
 * engine/checkpoint.c -- a copy of the store that is a store of its own: its tables linked, its manifest new.
 *
 *     flush  ->  a version pinned  ->  directory, LOCK held  ->  its tables, linked or copied  ->  manifest, CURRENT
 *
 * Tables never change, so two stores may share their bytes; each removes its own names only. The copy needs no log: what was
 * written before the call is in tables.
 *
 * Invariants
 *   X1  CURRENT comes last, when every name before it is durable: creating the manifest makes the names of the tables so.
 *       What a crash leaves before is a directory of tables without CURRENT, which opening refuses.
 *   X2  The target is empty when it is locked, so whatever is in it afterwards is ours to remove when something fails.
 */
#include "engine/db_internal.h"

enum { COPY_BYTES = 1 << 20 }; // a piece: large enough that calls do not count

struct checkpoint {
    tamis_db *db;
    struct tm_view *view;
    uint64_t last_sequence;    // that is in the tables of the view
    uint64_t next_file_number; // above all of them
    tamis_dir *dir;            // the target
    tamis_lock *lock;
    bool created; // the directory was made here
};

/* ---- The target ----------------------------------------------------------------------------------- */

struct walk {
    bool lock_allowed;
    bool found; // something that is not allowed
};

static bool
look_at_name(void *arg, const char *name)
{
    struct walk *walk = arg;
    uint64_t number;

    walk->found = !walk->lock_allowed || tm_name_parse(name, &number) != TM_NAME_LOCK;
    return !walk->found;
}

static tamis_status
require_empty(struct checkpoint *copy, const char *path, bool lock_allowed, tamis_error *err)
{
    const tamis_fs *fs = copy->db->env.fs;
    struct walk walk = {.lock_allowed = lock_allowed};
    tamis_status status = fs->list(fs->ctx, copy->dir, look_at_name, &walk, err);

    if (status == TAMIS_OK && walk.found)
        status = TM_FAIL(err, TAMIS_INVALID,
                         "%.128s: expected a directory that is missing or empty, found files in it",
                         path);
    return status;
}

static tamis_status
enter_target(struct checkpoint *copy, const char *path, tamis_error *err)
{
    const tamis_fs *fs = copy->db->env.fs;
    tamis_status status;

    status = fs->open_dir(fs->ctx, path, true, &copy->created, &copy->dir, err);
    if (status != TAMIS_OK)
        return status;
    status = require_empty(copy, path, false, err); // before a lock file is made in it
    if (status == TAMIS_OK)
        status = fs->lock(fs->ctx, copy->dir, &copy->lock, err);
    if (status == TAMIS_OK)
        status = require_empty(copy, path, true, err); // X2
    if (status != TAMIS_OK && copy->lock != NULL) {
        fs->unlock(fs->ctx, copy->lock);
        copy->lock = NULL;
    }
    return status;
}

/* After a failure nothing stays; the first failure is the one to tell. */
static void
leave_target(struct checkpoint *copy, const char *path, tamis_status status)
{
    const tamis_fs *fs = copy->db->env.fs;

    if (copy->lock != NULL) {
        if (status != TAMIS_OK)
            (void)tm_remove_store(&copy->db->env, copy->dir, NULL);
        fs->unlock(fs->ctx, copy->lock);
    }
    if (copy->dir != NULL)
        fs->close_dir(fs->ctx, copy->dir);
    if (status != TAMIS_OK && copy->created)
        (void)fs->remove_dir(fs->ctx, path, NULL);
}

/* ---- Tables --------------------------------------------------------------------------------------- */

static tamis_status
copy_bytes(const tamis_fs *fs, tamis_file *from, tamis_file *to, uint64_t length, uint8_t *buffer,
           tamis_error *err)
{
    tamis_status status = TAMIS_OK;

    for (uint64_t offset = 0; status == TAMIS_OK && offset < length; offset += COPY_BYTES) {
        size_t part = length - offset < COPY_BYTES ? (size_t)(length - offset) : COPY_BYTES;
        tamis_slice piece = {buffer, part};

        status = fs->read_at(fs->ctx, from, offset, buffer, part, err);
        if (status == TAMIS_OK)
            status = fs->append(fs->ctx, to, &piece, 1, err);
    }
    if (status == TAMIS_OK)
        status = fs->seal(fs->ctx, to, err);
    return status;
}

static tamis_status
copy_table(struct checkpoint *copy, const char *name, tamis_error *err)
{
    const struct tm_env *env = &copy->db->env;
    const tamis_fs *fs = env->fs;
    uint8_t *buffer = tm_alloc(env, COPY_BYTES);
    tamis_file *from = NULL;
    tamis_file *to = NULL;
    uint64_t length;
    tamis_status status;
    tamis_status closed;

    if (buffer == NULL)
        return TM_NO_MEMORY(err, COPY_BYTES);
    status = fs->open(fs->ctx, copy->db->dir, name, TAMIS_FILE_TABLE, &from, &length, err);
    if (status == TAMIS_NOT_FOUND)
        status = TM_FAIL(err, TAMIS_CORRUPT, "%s: expected a table, found no such file", name);
    if (status == TAMIS_OK)
        status = fs->create(fs->ctx, copy->dir, name, TAMIS_FILE_TABLE, &to, err);
    if (status == TAMIS_OK)
        status = copy_bytes(fs, from, to, length, buffer, err);
    if (to != NULL) {
        closed = fs->close(fs->ctx, to, status == TAMIS_OK ? err : NULL);
        if (status == TAMIS_OK)
            status = closed;
    }
    if (from != NULL)
        (void)fs->close(fs->ctx, from, NULL); // only read from
    tm_release(env, buffer, COPY_BYTES);
    return status;
}

static tamis_status
add_table(struct checkpoint *copy, uint64_t number, tamis_error *err)
{
    const tamis_fs *fs = copy->db->env.fs;
    char name[TM_NAME_BYTES_MAX];
    tamis_status status;

    tm_name_make(TM_NAME_TABLE, number, name);
    status = fs->link(fs->ctx, copy->db->dir, name, copy->dir, err);
    return status == TAMIS_UNSUPPORTED ? copy_table(copy, name, err) : status;
}

static tamis_status
add_tables(struct checkpoint *copy, tamis_error *err)
{
    const struct tm_version *version = copy->view->version;
    tamis_status status = TAMIS_OK;

    for (uint32_t level = 0; level < TAMIS_LEVEL_COUNT; level++)
        for (uint32_t i = 0; status == TAMIS_OK && i < version->level[level].file_count; i++)
            status = add_table(copy, version->level[level].files[i]->number, err);
    return status;
}

/* ---- The copy ------------------------------------------------------------------------------------- */

/* Manifest, then CURRENT (X1). Its number is above 1, so that what a crash leaves of it is not taken for a creation. */
static tamis_status
add_manifest(struct checkpoint *copy, tamis_error *err)
{
    tamis_db *db = copy->db;
    struct tm_manifest manifest;
    struct tm_edit snapshot;
    tamis_status status = tm_snapshot_edit(db, copy->view->version, &snapshot, err);

    if (status != TAMIS_OK)
        return status;
    snapshot.next_file_number = copy->next_file_number + 1;
    snapshot.last_sequence = copy->last_sequence;
    status =
        tm_manifest_create(&manifest, &db->env, copy->dir, copy->next_file_number, &snapshot, err);
    tm_snapshot_edit_release(db, &snapshot);
    if (status == TAMIS_OK)
        tm_manifest_close(&manifest);
    return status;
}

/* A version, and the sequence that its tables reach: they change together, under the mutex. */
static void
pin_tables(struct checkpoint *copy)
{
    tamis_db *db = copy->db;

    tm_lock(db);
    copy->view = tm_view_pin_newest_locked(db);
    copy->last_sequence = db->manifest_last_sequence;
    copy->next_file_number = db->next_file_number;
    tm_unlock(db);
}

static tamis_status
make_copy(struct checkpoint *copy, const char *path, tamis_error *err)
{
    tamis_status status = tamis_flush(copy->db, err);

    if (status != TAMIS_OK)
        return status;
    pin_tables(copy);
    status = enter_target(copy, path, err);
    if (status == TAMIS_OK)
        status = add_tables(copy, err);
    if (status == TAMIS_OK)
        status = add_manifest(copy, err);
    leave_target(copy, path, status);
    tm_view_unref(copy->db, copy->view);
    return status;
}

tamis_status
tamis_checkpoint(tamis_db *db, const char *path, tamis_error *err)
{
    struct checkpoint copy = {.db = db};
    tamis_status status = tm_check_writable(db, err);

    if (status == TAMIS_OK && (path == NULL || path[0] == '\0'))
        status = TM_FAIL(err, TAMIS_INVALID, "path: expected the name of a directory, found none");
    if (status != TAMIS_OK)
        return status;
    tm_lock(db);
    db->active_calls++; // close is BUSY
    tm_unlock(db);
    status = make_copy(&copy, path, err);
    tm_lock(db);
    db->active_calls--;
    tm_unlock(db);
    return status;
}
