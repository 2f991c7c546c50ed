/* SPDX-License-Identifier: MIT
 *
 * engine/db.c -- open, close, destroy: wiring only.
 */
#include <assert.h>

#include "engine/db_internal.h"
#include "engine/open.h"

#define TEXT_OF_(x) #x
#define TEXT_OF(x)  TEXT_OF_(x)

enum { PATH_SHOWN_BYTES = 128 }; // half of a message

const char *
tamis_version(void)
{
    return TEXT_OF(TAMIS_VERSION_MAJOR) "." TEXT_OF(TAMIS_VERSION_MINOR) "." TEXT_OF(
        TAMIS_VERSION_PATCH);
}

/* ---- Memory, counted ------------------------------------------------------------------------------ */

static void *
counted_alloc(void *ctx, size_t size)
{
    tamis_db *db = ctx;
    void *p = db->user_allocator.alloc(db->user_allocator.ctx, size);

    if (p != NULL)
        tm_count(&db->allocated_bytes, size);
    return p;
}

static void *
counted_resize(void *ctx, void *p, size_t size_old, size_t size_new)
{
    tamis_db *db = ctx;
    void *moved = db->user_allocator.resize(db->user_allocator.ctx, p, size_old, size_new);

    if (moved != NULL)
        tm_count(&db->allocated_bytes, (uint64_t)size_new - (uint64_t)size_old);
    return moved;
}

static void
counted_release(void *ctx, void *p, size_t size)
{
    tamis_db *db = ctx;

    atomic_fetch_sub_explicit(&db->allocated_bytes, size, memory_order_relaxed);
    db->user_allocator.release(db->user_allocator.ctx, p, size);
}

/* ---- Life of the handle --------------------------------------------------------------------------- */

/* The end of a path for messages: it tells more than its beginning, and leaves room for what is wrong. */
static const char *
path_end(const char *path)
{
    size_t length = strlen(path);
    return length > PATH_SHOWN_BYTES ? path + length - PATH_SHOWN_BYTES : path;
}

tamis_status
tm_check_process(const tamis_db *db, tamis_error *err)
{
    if (db->env.fs->lock_is_ours(db->env.fs->ctx, db->lock))
        return TAMIS_OK;
    return TM_FAIL(err, TAMIS_INVALID,
                   "%s was opened by another process: a child made by fork() opens it anew",
                   path_end(db->path));
}

tamis_status
tm_check_writable(const tamis_db *db, tamis_error *err)
{
    tamis_status status = tm_check_process(db, err);

    if (status == TAMIS_OK && db->options.read_only)
        status = TM_FAIL(err, TAMIS_READ_ONLY, "%s was opened with read_only", path_end(db->path));
    return status;
}

static void
init_policy(tamis_db *db)
{
    // A table is as large as a memtable, so that one flush is one table; 64 MiB bounds what one job of a deep level rewrites.
    uint64_t table_bytes = db->options.write_buffer_bytes < ((uint64_t)64 << 20)
                               ? db->options.write_buffer_bytes
                               : (uint64_t)64 << 20;

    db->policy.level0_file_count_trigger = TM_LEVEL0_TRIGGER;
    db->policy.level0_file_count_slow = TM_LEVEL0_SLOW;
    db->policy.level_base_bytes = TM_LEVEL_BASE_TABLES * table_bytes;
    db->policy.level_ratio = TM_LEVEL_RATIO;
    db->policy.table_bytes = table_bytes;

    db->table_options.block_bytes = db->options.block_bytes;
    db->table_options.compress = db->options.compression == TAMIS_COMPRESSION_LZ4;
    db->table_options.filter_kind = db->options.filter_kind;
    db->table_options.filter_bits_per_key = db->options.filter_bits_per_key;
    db->table_options.filter_false_positive_rate = db->options.filter_false_positive_rate;
}

static tamis_status
check_path(const char *path, tamis_error *err)
{
    if (path != NULL && path[0] != '\0')
        return TAMIS_OK;
    return TM_FAIL(err, TAMIS_INVALID, "path: expected the name of a directory, found none");
}

/* A handle that destroy_handle() takes, whatever comes after. */
static tamis_status
create_handle(const char *path, const tamis_options *options, const struct tm_runtime *runtime,
              tamis_db **db_out, tamis_error *err)
{
    tamis_allocator allocator =
        options->allocator != NULL ? *options->allocator : tm_allocator_default();
    tamis_db *db = allocator.alloc(allocator.ctx, sizeof *db);
    tamis_status status;

    if (db == NULL)
        return TM_NO_MEMORY(err, sizeof *db);
    memset(db, 0, sizeof *db);
    db->user_allocator = allocator;
    db->env.allocator =
        (tamis_allocator){db, counted_alloc, counted_resize, counted_release};
    db->env.fs = options->fs != NULL ? options->fs : tamis_fs_posix();
    db->env.runtime = runtime;
    db->options = *options;
    if (options->comparator != NULL) {
        const tamis_comparator *comparator = options->comparator;

        db->env.order.name = comparator->name;
        db->env.order.compare = comparator->bytewise_ordered ? NULL : comparator->compare;
        db->env.order.ctx = comparator->ctx;
        db->env.order.merges_keys = !comparator->equal_is_bytewise;
    }
    if (options->logger != NULL)
        db->logger = *options->logger;
    db->snapshots.previous = db->snapshots.next = &db->snapshots;
    runtime->mutex_init(runtime->ctx, &db->mutex);
    runtime->cond_init(runtime->ctx, &db->changed);
    tm_descriptors_init(&db->descriptors, &db->env, options->max_open_files,
                        options->read_only ? TAMIS_STALE : TAMIS_CORRUPT);
    db->path_bytes = strlen(path) + 1;
    db->path = tm_alloc(&db->env, db->path_bytes);
    *db_out = db;
    if (db->path == NULL)
        return TM_NO_MEMORY(err, db->path_bytes);
    memcpy(db->path, path, db->path_bytes);
    status = tm_slots_init(&db->slots, &db->env, err);
    if (status != TAMIS_OK)
        return status;
    db->cache = tm_cache_create(&db->env, options->block_cache_bytes, options->block_bytes);
    if (db->cache == NULL)
        return TM_NO_MEMORY(err, 1);
    init_policy(db);
    return TAMIS_OK;
}

/* Let go of everything that is there. No thread runs any more. */
static void
destroy_handle(tamis_db *db)
{
    const struct tm_runtime *runtime = db->env.runtime;
    const tamis_fs *fs = db->env.fs;
    tamis_allocator allocator = db->user_allocator;

    tm_view_destroy_all(db);
    tm_memtable_unref(db->mem);
    tm_memtable_unref(db->imm);
    if (db->version != NULL)
        tm_version_unref(&db->env, db->version, &db->trash);
    while (db->trash != NULL) { // all files of the store: closed, not removed
        struct tm_file *file = db->trash;

        db->trash = file->trash_next;
        tm_file_close(db, file);
    }
    (void)tm_wal_close(db, &db->wal, NULL); // synced before, or lost with the error that brought us here
    (void)tm_wal_close(db, &db->old_wal, NULL);
    tm_manifest_close(&db->manifest);
    tm_release(&db->env, db->kept, db->kept_capacity * sizeof *db->kept);
    tm_cache_destroy(db->cache);
    tm_slots_deinit(&db->slots, &db->env);
    tm_descriptors_deinit(&db->descriptors);
    if (db->lock != NULL)
        fs->unlock(fs->ctx, db->lock);
    if (db->dir != NULL)
        fs->close_dir(fs->ctx, db->dir);
    tm_release(&db->env, db->path, db->path_bytes);
    runtime->cond_deinit(runtime->ctx, &db->changed);
    runtime->mutex_deinit(runtime->ctx, &db->mutex);
    assert(tm_counted(&db->allocated_bytes) == 0);
    allocator.release(allocator.ctx, db, sizeof *db);
}

/* ---- Open ----------------------------------------------------------------------------------------- */

enum directory_state {
    DIRECTORY_EMPTY,    // nothing of ours, or a creation that was cut short
    DIRECTORY_STORE,    // CURRENT is there
    DIRECTORY_HEADLESS, // files of a store, but no CURRENT
};

static tamis_status
inspect_directory(const struct tm_env *env, tamis_dir *dir, enum directory_state *state_out,
                  tamis_error *err)
{
    struct tm_listing listing;
    tamis_status status = tm_listing_read(env, dir, &listing, err);

    if (status != TAMIS_OK)
        return status;
    // Creation makes LOCK, MANIFEST-000001 and CURRENT in this order, and a log only after that.
    *state_out = DIRECTORY_EMPTY;
    for (size_t i = 0; i < listing.count; i++)
        if (listing.files[i].kind == TM_NAME_TABLE || listing.files[i].kind == TM_NAME_LOG ||
            (listing.files[i].kind == TM_NAME_MANIFEST && listing.files[i].number != 1))
            *state_out = DIRECTORY_HEADLESS;
    if (listing.has[TM_NAME_CURRENT])
        *state_out = DIRECTORY_STORE;
    tm_listing_release(env, &listing);
    return TAMIS_OK;
}

/* What the directory holds against what the caller wants. */
static tamis_status
check_directory(const tamis_db *db, enum directory_state state, tamis_error *err)
{
    if (state == DIRECTORY_HEADLESS)
        return TM_FAIL(err, TAMIS_CORRUPT,
                       "%s: CURRENT is missing, but other files of a store are there",
                       path_end(db->path));
    if (state == DIRECTORY_STORE && db->options.error_if_exists)
        return TM_FAIL(err, TAMIS_INVALID, "%s: a store is there, and error_if_exists is set",
                       path_end(db->path));
    if (state == DIRECTORY_EMPTY && !db->options.create_if_missing)
        return TM_FAIL(err, TAMIS_NOT_FOUND, "%s: no store there, and create_if_missing is not set",
                       path_end(db->path));
    return TAMIS_OK;
}

static tamis_status
start_threads(tamis_db *db, tamis_error *err)
{
    const struct tm_runtime *runtime = db->env.runtime;
    int os_error;

    os_error = runtime->thread_start(runtime->ctx, &db->flush_thread, tm_flush_worker, db);
    if (os_error != 0)
        return TM_FAIL_OS(err, TAMIS_IO, os_error, "no thread for flushing");
    db->flush_thread_started = true;
    for (uint32_t i = 0; i < db->options.background_threads; i++) {
        os_error =
            runtime->thread_start(runtime->ctx, &db->compact_threads[i], tm_compact_worker, db);
        if (os_error != 0)
            return TM_FAIL_OS(err, TAMIS_IO, os_error, "no thread for compaction");
        db->compact_threads_started++;
    }
    return TAMIS_OK;
}

static void
stop_threads(tamis_db *db)
{
    const struct tm_runtime *runtime = db->env.runtime;

    tm_lock(db);
    atomic_store_explicit(&db->closing, true, memory_order_relaxed);
    tm_notify(db);
    tm_unlock(db);
    for (; db->compact_threads_started > 0; db->compact_threads_started--)
        runtime->thread_join(runtime->ctx, &db->compact_threads[db->compact_threads_started - 1]);
    if (db->flush_thread_started)
        runtime->thread_join(runtime->ctx, &db->flush_thread);
    db->flush_thread_started = false;
}

static tamis_status
open_reader(tamis_db *db, tamis_error *err)
{
    const tamis_fs *fs = db->env.fs;
    enum directory_state state;
    bool created;
    tamis_status status;

    status = fs->open_dir(fs->ctx, db->path, false, &created, &db->dir, err);
    if (status == TAMIS_OK)
        status = fs->lock_shared(fs->ctx, db->dir, &db->lock, err);
    if (status != TAMIS_OK)
        return status;
    status = tm_reader_open(db, err);
    if (status != TAMIS_NOT_FOUND)
        return status;
    // Nothing there, or a store that has lost its head? One that is being made is not there yet.
    status = inspect_directory(&db->env, db->dir, &state, err);
    if (status == TAMIS_OK)
        status = check_directory(db, state == DIRECTORY_STORE ? DIRECTORY_EMPTY : state, err);
    return status;
}

/* The store is open; no thread runs yet. */
static void
report_opened(tamis_db *db, bool was_there, uint64_t begin_ns)
{
    uint64_t file_count = 0;
    uint64_t file_bytes = 0;

    for (uint32_t level = 0; level < TAMIS_LEVEL_COUNT; level++) {
        file_count += db->version->level[level].file_count;
        file_bytes += db->version->level[level].file_bytes;
    }
    tm_report_now(db, TAMIS_LOG_INFO, "%s %s: %llu tables, %llu bytes, last sequence %llu, %.3f s",
                  was_there ? "opened" : "created", path_end(db->path),
                  (unsigned long long)file_count, (unsigned long long)file_bytes,
                  (unsigned long long)db->last_sequence, tm_seconds_since(db, begin_ns));
}

static tamis_status
open_store(tamis_db *db, bool *created_out, tamis_error *err)
{
    const tamis_fs *fs = db->env.fs;
    enum directory_state state;
    uint64_t begin_ns = tm_now_ns(db);
    tamis_status status;

    status = fs->open_dir(fs->ctx, db->path, db->options.create_if_missing, created_out, &db->dir,
                          err);
    if (status != TAMIS_OK)
        return status;
    // Look before locking: a directory without a store must stay as it is.
    status = inspect_directory(&db->env, db->dir, &state, err);
    if (status == TAMIS_OK)
        status = check_directory(db, state, err);
    if (status == TAMIS_OK)
        status = fs->lock(fs->ctx, db->dir, &db->lock, err);
    if (status != TAMIS_OK)
        return status;
    // Look again: now nobody else changes it.
    status = inspect_directory(&db->env, db->dir, &state, err);
    if (status == TAMIS_OK)
        status = check_directory(db, state, err);
    if (status == TAMIS_OK)
        status = state == DIRECTORY_STORE ? tm_recover(db, err) : tm_create_store(db, err);
    if (status != TAMIS_OK)
        return status;
    db->table_options.hash_seed = db->hash_seed;
    db->compact_due = true;
    db->compact_pressure = tm_compact_pressure(db->version, &db->policy);
    report_opened(db, state == DIRECTORY_STORE, begin_ns);
    return start_threads(db, err);
}

tamis_status
tm_open(const char *path, const tamis_options *options, const struct tm_runtime *runtime,
        tamis_db **db_out, tamis_error *err)
{
    tamis_options checked;
    tamis_db *db = NULL;
    bool created = false;
    tamis_status status;

    *db_out = NULL;
    status = check_path(path, err);
    if (status == TAMIS_OK)
        status = tm_options_check(options, &checked, err);
    if (status != TAMIS_OK)
        return status;
    status = create_handle(path, &checked, runtime, &db, err);
    if (status == TAMIS_OK)
        status = checked.read_only ? open_reader(db, err) : open_store(db, &created, err);
    if (status != TAMIS_OK) {
        if (db != NULL) {
            const tamis_fs *fs = db->env.fs;

            stop_threads(db);
            destroy_handle(db);
            if (created) // a directory that holds nothing yet; else the next open finishes the creation
                (void)fs->remove_dir(fs->ctx, path, NULL);
        }
        return status;
    }
    *db_out = db;
    return TAMIS_OK;
}

tamis_status
tamis_open(const char *path, const tamis_options *options, tamis_db **db_out, tamis_error *err)
{
    return tm_open(path, options, tm_runtime_posix(), db_out, err);
}

/* ---- Close ---------------------------------------------------------------------------------------- */

/* The last words: everything written is synced, and the manifest says where the log ends. */
static tamis_status
settle_store(tamis_db *db, tamis_error *err)
{
    const tamis_fs *fs = db->env.fs;
    struct tm_edit edit = {0};
    struct tm_buf record = {0};
    tamis_status status;

    if (db->options.read_only)
        return TAMIS_OK;
    if (db->failure.code != TAMIS_OK)
        return tm_stored_failure(&db->failure, err);
    status = fs->sync(fs->ctx, db->wal.file, err);
    if (status != TAMIS_OK)
        return status;
    edit.next_file_number = db->next_file_number;
    edit.log_end_number = db->wal.number;
    edit.log_end_bytes = db->wal.writer.offset;
    status = tm_edit_encode(&db->env, &edit, &record, err);
    if (status == TAMIS_OK)
        status = tm_manifest_append(&db->manifest, tm_slice(record.data, record.length), err);
    tm_buf_release(&db->env, &record);
    if (status == TAMIS_OK)
        status = tm_wal_close(db, &db->wal, err);
    return status;
}

static tamis_status
check_idle(tamis_db *db, tamis_error *err)
{
    uint32_t handles = atomic_load_explicit(&db->live_handles, memory_order_acquire);
    // Slots first: a read that leaves its slot for a counted reference takes that before.
    bool reads = tm_slots_are_used(&db->slots) ||
                 atomic_load_explicit(&db->pinned_views, memory_order_acquire) != 0;
    tamis_status status = TAMIS_OK;

    tm_lock(db);
    if (handles != 0)
        status = TM_FAIL(err, TAMIS_BUSY,
                         "%s: %u iterators, snapshots or pinned values are alive",
                         path_end(db->path), (unsigned)handles);
    else if (reads || db->active_calls != 0 || db->writes_head != NULL)
        status = TM_FAIL(err, TAMIS_BUSY, "%s: calls are running", path_end(db->path));
    tm_unlock(db);
    return status;
}

static bool
has_unlogged(tamis_db *db)
{
    bool has;

    tm_lock(db);
    has = db->mem_has_unlogged || (db->imm != NULL && db->imm_has_unlogged);
    tm_unlock(db);
    return has;
}

/* Writes that asked for no log are in memory only. */
static tamis_status
flush_unlogged(tamis_db *db, tamis_error *err)
{
    tamis_status status = TAMIS_OK;

    for (int tries = 0; tries < 2 && has_unlogged(db);
         tries++) // the first may only be told of an earlier failure
        status = tamis_flush(db, err);
    return status;
}

tamis_status
tamis_close(tamis_db *db, tamis_error *err)
{
    tamis_error failure = {0};
    tamis_status flush_status;
    tamis_status status;

    if (db == NULL)
        return TAMIS_OK;
    status = tm_check_process(db, err);
    if (status == TAMIS_OK)
        status = check_idle(db, err);
    if (status != TAMIS_OK)
        return status;
    flush_status = flush_unlogged(db, &failure);
    stop_threads(db);
    tm_lock(db);
    tm_discard_kept(db);
    tm_unlock(db);
    status = settle_store(db, flush_status == TAMIS_OK ? &failure : NULL);
    if (flush_status != TAMIS_OK)
        status = flush_status;
    if (status == TAMIS_OK)
        tm_report_now(db, TAMIS_LOG_INFO, "closed %s", path_end(db->path));
    else
        tm_report_now(db, TAMIS_LOG_ERROR, "closed %s, but the last writes may be lost: %s",
                      path_end(db->path), failure.message);
    if (status != TAMIS_OK && err != NULL)
        *err = failure;
    destroy_handle(db);
    return status;
}

/* ---- Destroy -------------------------------------------------------------------------------------- */

tamis_status
tm_remove_store(const struct tm_env *env, tamis_dir *dir, tamis_error *err)
{
    struct tm_listing listing;
    tamis_status status = tm_listing_read(env, dir, &listing, err);

    if (status == TAMIS_OK)
        status = env->fs->remove(env->fs->ctx, dir, "CURRENT", err);
    for (size_t i = 0; status == TAMIS_OK && i < listing.count; i++) {
        enum tm_name_kind kind = listing.files[i].kind;
        char name[TM_NAME_BYTES_MAX];

        if (kind == TM_NAME_MANIFEST || kind == TM_NAME_TABLE || kind == TM_NAME_LOG)
            status = env->fs->remove(env->fs->ctx, dir,
                                     tm_name_make(kind, listing.files[i].number, name), err);
        else if (kind == TM_NAME_TEMPORARY)
            status = env->fs->remove(env->fs->ctx, dir, "CURRENT.tmp", err);
    }
    if (status == TAMIS_OK)
        status = env->fs->remove(env->fs->ctx, dir, "LOCK", err);
    tm_listing_release(env, &listing);
    return status;
}

tamis_status
tamis_destroy(const char *path, const tamis_options *options, tamis_error *err)
{
    struct tm_env env;
    tamis_options checked;
    struct tm_listing listing = {0};
    tamis_dir *dir = NULL;
    tamis_lock *lock = NULL;
    bool created;
    bool has_readers = false;
    tamis_status status = check_path(path, err);

    if (status == TAMIS_OK)
        status = tm_options_check(options, &checked, err);
    if (status != TAMIS_OK)
        return status;
    env.allocator = checked.allocator != NULL ? *checked.allocator : tm_allocator_default();
    env.fs = checked.fs != NULL ? checked.fs : tamis_fs_posix();
    env.runtime = tm_runtime_posix();

    status = env.fs->open_dir(env.fs->ctx, path, false, &created, &dir, err);
    if (status != TAMIS_OK)
        return status;
    status = tm_listing_read(&env, dir, &listing, err);
    if (status == TAMIS_OK && listing.count == 0)
        status = TM_FAIL(err, TAMIS_NOT_FOUND, "%s: no store there", path_end(path));
    if (status == TAMIS_OK)
        status = env.fs->lock(env.fs->ctx, dir, &lock, err);
    tm_listing_release(&env, &listing);
    if (status == TAMIS_OK)
        status = env.fs->has_readers(env.fs->ctx, lock, &has_readers, err);
    if (status == TAMIS_OK && has_readers)
        status = TM_FAIL(err, TAMIS_BUSY, "%s is open for reading by somebody", path_end(path));
    if (status == TAMIS_OK) // what is there now: nobody adds to it
        status = tm_remove_store(&env, dir, err);
    if (lock != NULL)
        env.fs->unlock(env.fs->ctx, lock);
    env.fs->close_dir(env.fs->ctx, dir);
    if (status == TAMIS_OK)
        status = env.fs->remove_dir(env.fs->ctx, path, err);
    return status;
}
