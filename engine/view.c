/* SPDX-License-Identifier: MIT
 *
 * engine/view.c -- what reads look at: memtables and version, pinned as a whole and replaced as a whole.
 *
 * A pin takes view_mutex for a few instructions: the view and the sequence read beside it belong together, because
 * whoever publishes a view holds the same lock, and every write visible at that moment is in its memtable.
 */
#include <assert.h>

#include "engine/db_internal.h"

struct tm_view *
tm_view_alloc(tamis_db *db)
{
    return tm_alloc_zeroed(&db->env, sizeof(struct tm_view));
}

void
tm_view_publish(tamis_db *db, struct tm_view *view)
{
    const struct tm_runtime *runtime = db->env.runtime;
    struct tm_view *old;

    atomic_init(&view->references, 1);
    view->mem = db->mem;
    view->imm = db->imm;
    view->version = db->version;
    tm_memtable_ref(view->mem);
    if (view->imm != NULL)
        tm_memtable_ref(view->imm);
    view->version->references++;

    runtime->lock(runtime->ctx, &db->view_mutex);
    old = db->view;
    db->view = view;
    runtime->unlock(runtime->ctx, &db->view_mutex);
    if (old != NULL)
        tm_view_unref_locked(db, old);
}

struct tm_view *
tm_view_pin(tamis_db *db, uint64_t *sequence_out)
{
    const struct tm_runtime *runtime = db->env.runtime;
    struct tm_view *view;

    atomic_fetch_add_explicit(&db->pinned_views, 1, memory_order_relaxed);
    runtime->lock(runtime->ctx, &db->view_mutex);
    view = db->view;
    tm_view_ref(view);
    *sequence_out = atomic_load_explicit(&db->visible_sequence, memory_order_acquire);
    runtime->unlock(runtime->ctx, &db->view_mutex);
    return view;
}

struct tm_view *
tm_view_pin_at(tamis_db *db, const tamis_snapshot *snapshot, uint64_t *sequence_out)
{
    struct tm_view *view;

    if (snapshot == NULL || snapshot->view == NULL) {
        view = tm_view_pin(db, sequence_out);
    } else {
        atomic_fetch_add_explicit(&db->pinned_views, 1, memory_order_relaxed);
        view = snapshot->view;
        tm_view_ref(view);
    }
    if (snapshot != NULL)
        *sequence_out = snapshot->sequence;
    return view;
}

void
tm_view_ref(struct tm_view *view)
{
    atomic_fetch_add_explicit(&view->references, 1, memory_order_relaxed);
}

static bool
drop_reference(struct tm_view *view)
{
    uint32_t before = atomic_fetch_sub_explicit(&view->references, 1, memory_order_acq_rel);

    assert(before > 0);
    return before == 1;
}

static void
destroy_view(tamis_db *db, struct tm_view *view)
{
    tm_memtable_unref(view->mem);
    tm_memtable_unref(view->imm);
    tm_version_unref(&db->env, view->version, &db->trash);
    tm_release(&db->env, view, sizeof *view);
    if (db->trash != NULL)
        tm_notify(db); // the flush thread removes it
}

void
tm_view_unref(tamis_db *db, struct tm_view *view)
{
    if (drop_reference(view)) {
        tm_lock(db);
        destroy_view(db, view);
        tm_unlock(db);
        if (db->options.read_only) // which has no flush thread
            tm_close_trash(db);
    }
    atomic_fetch_sub_explicit(&db->pinned_views, 1, memory_order_release);
}

void
tm_view_unref_locked(tamis_db *db, struct tm_view *view)
{
    if (drop_reference(view))
        destroy_view(db, view);
}
