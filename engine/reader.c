/* SPDX-License-Identifier: MIT
 *
 * engine/reader.c -- a store opened read-only, beside its writer or without one; and moving it forward.
 *
 *     shared lock  ->  CURRENT, manifest  ->  its tables, those that are open already as they are
 *       ->  its logs, into one memtable  ->  a view, published as a whole
 *
 * Nothing is written, made or removed, and no thread is started. What the reader saw stays open: an iterator, a snapshot or a
 * pinned value holds its view or its block, whatever comes after it.
 *
 * The writer goes on meanwhile. Its tables and manifests are there as long as the lock is held (garbage.c); what is read
 * of a file that grows is a beginning of it, because every record carries its checksum; and recover.c knows what a log may
 * look like that somebody is writing to. Where no lock could be had a file may go: that is STALE, never an answer.
 */
#include "engine/db_internal.h"

/* A state of the store, as loaded. */
struct loaded {
    struct tm_edit state;
    struct tm_version *version;
    struct tm_memtable *mem;
    uint64_t last_sequence;
};

/* With the mutex free. */
static void
release_loaded(tamis_db *db, struct loaded *loaded)
{
    tm_edit_release(&db->env, &loaded->state);
    tm_memtable_unref(loaded->mem);
    if (loaded->version != NULL) {
        tm_lock(db);
        tm_version_unref(&db->env, loaded->version, &db->trash);
        tm_unlock(db);
    }
    tm_close_trash(db);
}

static bool
manifest_is_missing(tamis_db *db, uint64_t number)
{
    const tamis_fs *fs = db->env.fs;
    char name[TM_NAME_BYTES_MAX];
    tamis_file *file;
    uint64_t size;
    tamis_status status = fs->open(fs->ctx, db->dir, tm_name_make(TM_NAME_MANIFEST, number, name),
                                   TAMIS_FILE_MANIFEST, &file, &size, NULL);

    if (status == TAMIS_OK)
        (void)fs->close(fs->ctx, file, NULL); // not even read from
    return status == TAMIS_NOT_FOUND;
}

/* The manifest as it is now, and that it belongs to the store that this handle has shown before, if it has. */
static tamis_status
load_manifest(tamis_db *db, struct tm_edit *state, tamis_error *err)
{
    uint64_t number;
    uint64_t loaded_number;
    tamis_status status = tm_current_read(&db->env, db->dir, &number, err);

    if (status == TAMIS_OK)
        status = tm_manifest_load(&db->env, db->dir, state, &loaded_number, err);
    if (status == TAMIS_NOT_FOUND && db->version != NULL)
        return TM_FAIL(err, TAMIS_STALE, "CURRENT is gone: the store was removed");
    if (status == TAMIS_CORRUPT && manifest_is_missing(db, number)) {
        char name[TM_NAME_BYTES_MAX];
        return TM_FAIL(err, TAMIS_STALE, "CURRENT names %s, which is missing",
                       tm_name_make(TM_NAME_MANIFEST, number, name));
    }
    if (status != TAMIS_OK)
        return status;
    if (db->version == NULL)
        db->hash_seed = state->hash_seed;
    else if (state->hash_seed != db->hash_seed)
        return TM_FAIL(err, TAMIS_STALE, "another store is in the place of the one opened");
    return TAMIS_OK;
}

/* Tables and logs of the loaded manifest. */
static tamis_status
load_contents(tamis_db *db, struct loaded *loaded, tamis_error *err)
{
    struct tm_listing listing;
    tamis_status status;

    status = tm_version_load(db, &loaded->state, db->version, &loaded->version, err);
    if (status != TAMIS_OK)
        return status;
    loaded->mem = tm_memtable_create(&db->env, db->hash_seed, db->options.write_buffer_bytes);
    if (loaded->mem == NULL)
        return TM_NO_MEMORY(err, 1);
    status = tm_listing_read(&db->env, db->dir, &listing, err);
    if (status != TAMIS_OK)
        return status;
    status = tm_replay_beside_writer(db, &loaded->state, &listing, loaded->mem,
                                     &loaded->last_sequence, err);
    tm_listing_release(&db->env, &listing);
    return status;
}

/* Show what was loaded. With the mutex held; takes version and memtable. */
static void
publish(tamis_db *db, struct loaded *loaded, struct tm_view *view)
{
    struct tm_version *version = db->version;
    struct tm_memtable *mem = db->mem;

    db->version = loaded->version;
    db->mem = loaded->mem;
    db->last_sequence = loaded->last_sequence;
    // Before the view: a pin may take the old view with the new sequence, which shows all of it, but not the new view with the
    // old sequence, whose versions the writer may have merged away.
    atomic_store_explicit(&db->visible_sequence, db->last_sequence, memory_order_release);
    tm_view_publish(db, view);
    loaded->version = version;
    loaded->mem = mem;
}

/* Bring the handle to the present state, or leave it as it is. One at a time. */
static tamis_status
move_forward(tamis_db *db, tamis_error *err)
{
    struct loaded loaded = {0};
    struct tm_view *view = NULL;
    tamis_status status = load_manifest(db, &loaded.state, err);

    if (status == TAMIS_OK)
        status = load_contents(db, &loaded, err);
    if (status == TAMIS_OK && loaded.last_sequence < db->last_sequence)
        status = TM_FAIL(err, TAMIS_STALE, "the store is at sequence %llu, before %llu as shown",
                         (unsigned long long)loaded.last_sequence,
                         (unsigned long long)db->last_sequence);
    if (status == TAMIS_OK && (view = tm_view_alloc(db)) == NULL)
        status = TM_NO_MEMORY(err, sizeof *view);
    if (status == TAMIS_OK) {
        tm_lock(db);
        publish(db, &loaded, view);
        tm_unlock(db);
    }
    release_loaded(db, &loaded);
    return status;
}

/* A file that is missing is looked for again from the beginning: the writer may have gone on and removed it, or made it while
 * the directory was listed. Missed once more, with nothing new said, it is missing. */
static tamis_status
move_to_present(tamis_db *db, tamis_error *err)
{
    tamis_error failure = {0};
    tamis_error before;
    tamis_status status;

    do {
        before = failure;
        status = move_forward(db, &failure);
    } while (status == TAMIS_STALE && strcmp(failure.message, before.message) != 0);
    if (status != TAMIS_OK && err != NULL)
        *err = failure;
    return status;
}

/* ---- Opening -------------------------------------------------------------------------------------- */

/* What is missing when there is nothing yet to hold on to was lost. */
tamis_status
tm_reader_open(tamis_db *db, tamis_error *err)
{
    tamis_status status = move_to_present(db, err);

    if (status != TAMIS_STALE)
        return status;
    if (err != NULL)
        err->code = TAMIS_CORRUPT;
    return TAMIS_CORRUPT;
}

/* ---- Refreshing ----------------------------------------------------------------------------------- */

static bool
nobody_refreshes(void *arg)
{
    const tamis_db *db = arg;
    return !db->manifest_busy;
}

tamis_status
tamis_refresh(tamis_db *db, tamis_error *err)
{
    tamis_status status = tm_check_process(db, err);

    if (status != TAMIS_OK)
        return status;
    if (!db->options.read_only)
        return TM_FAIL(err, TAMIS_INVALID,
                       "the store is open for writing: what is there is always what is shown");
    tm_lock(db);
    db->active_calls++;
    tm_wait(db, &db->changed, nobody_refreshes, db);
    db->manifest_busy = true;
    tm_unlock(db);
    status = move_to_present(db, err);
    tm_lock(db);
    db->manifest_busy = false;
    db->active_calls--;
    tm_notify(db);
    tm_unlock(db);
    return status;
}
