/* SPDX-License-Identifier: MIT
 *
 * engine/view.c -- what reads look at: memtables and version, pinned as a whole and replaced as a whole.
 *
 * A running read stands in a slot (slots.h), which takes no lock; what lives longer, an iterator, has a counted reference. The
 * store's own reference to a view goes when the view was replaced and stands in no slot: whoever replaces it looks, and
 * if a read is still there, that read looks again when it ends.
 *
 * First the view, then the sequence. A view that is older than the sequence shows the moment at which it was replaced, when every
 * later write went to another memtable. The other way round compaction could have dropped what the older sequence sees.
 */
#include <assert.h>

#include "engine/db_internal.h"

struct tm_view *
tm_view_alloc(tamis_db *db)
{
    return tm_alloc_zeroed(&db->env, sizeof(struct tm_view));
}

/* ---- References ----------------------------------------------------------------------------------- */

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

/* With the mutex held: let go of retired views that stand in no slot any more. */
static void
let_retired_go(tamis_db *db)
{
    struct tm_view **link = &db->retired;

    while (*link != NULL) {
        struct tm_view *view = *link;

        if (tm_slots_hold(&db->slots, view)) {
            link = &view->retired_next;
            continue;
        }
        *link = view->retired_next;
        if (drop_reference(view))
            destroy_view(db, view);
    }
}

static struct tm_view *
take_reference(tamis_db *db, struct tm_view *view)
{
    atomic_fetch_add_explicit(&view->references, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&db->pinned_views, 1, memory_order_relaxed);
    return view;
}

struct tm_view *
tm_view_pin_newest_locked(tamis_db *db)
{
    return take_reference(db, atomic_load_explicit(&db->view, memory_order_relaxed));
}

struct tm_view *
tm_view_pin(tamis_db *db, const tamis_snapshot *snapshot, uint64_t *sequence_out)
{
    struct tm_pin pin;
    struct tm_view *view;

    tm_pin_read(db, snapshot, &pin, sequence_out);
    view = take_reference(db, pin.view == pin.held ? pin.held : snapshot->view);
    tm_unpin_read(db, &pin);
    return view;
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

/* ---- Replacing ------------------------------------------------------------------------------------ */

void
tm_view_publish(tamis_db *db, struct tm_view *view)
{
    struct tm_view *old;

    atomic_init(&view->references, 1);
    view->mem = db->mem;
    view->imm = db->imm;
    view->version = db->version;
    tm_memtable_ref(view->mem);
    if (view->imm != NULL)
        tm_memtable_ref(view->imm);
    view->version->references++;

    old = atomic_exchange_explicit(&db->view, view, memory_order_seq_cst); // O1
    if (old != NULL) {
        old->retired_next = db->retired;
        db->retired = old;
    }
    let_retired_go(db);
}

void
tm_view_destroy_all(tamis_db *db)
{
    struct tm_view *view = atomic_exchange_explicit(&db->view, NULL, memory_order_seq_cst);

    let_retired_go(db);
    if (view != NULL && drop_reference(view))
        destroy_view(db, view);
}

/* ---- Running reads -------------------------------------------------------------------------------- */

void
tm_pin_read(tamis_db *db, const tamis_snapshot *snapshot, struct tm_pin *pin_out,
            uint64_t *sequence_out)
{
    pin_out->slot = tm_slot_claim(&db->slots, &db->view, &pin_out->held, &pin_out->moved);
    if (pin_out->slot == NULL) {
        tm_lock(db);
        pin_out->held = tm_view_pin_newest_locked(db);
        tm_unlock(db);
    } else if (pin_out->slot->file_capacity < pin_out->held->version->count_index_end) {
        tm_lock(db);
        tm_slot_make_room(pin_out->slot, &db->env, pin_out->held->version->count_index_end);
        tm_unlock(db);
    }
    pin_out->view = snapshot != NULL && snapshot->view != NULL ? snapshot->view : pin_out->held;
    *sequence_out = snapshot != NULL
                        ? snapshot->sequence
                        : atomic_load_explicit(&db->visible_sequence, memory_order_acquire);
}

void
tm_unpin_read(tamis_db *db, const struct tm_pin *pin)
{
    if (pin->slot == NULL) {
        tm_view_unref(db, pin->held);
        return;
    }
    if (!pin->moved && tm_slot_free(pin->slot, pin->held))
        return; // O4
    // A view was replaced meanwhile, and found here. Close sees this reference if it no longer sees the slot.
    atomic_fetch_add_explicit(&db->pinned_views, 1, memory_order_relaxed);
    tm_slot_free_marked(pin->slot);
    tm_lock(db);
    let_retired_go(db);
    tm_unlock(db);
    if (db->options.read_only)
        tm_close_trash(db);
    atomic_fetch_sub_explicit(&db->pinned_views, 1, memory_order_release);
}
