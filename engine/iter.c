/* SPDX-License-Identifier: MIT
 *
 * engine/iter.c -- the user's iterator: one key once, in its newest version at the iterator's sequence, tombstones left out.
 *
 * Beneath it lies a merge of both memtables, each level-0 table and each deeper level. It holds its view, so that
 * writes, flushes and compactions do not change what it sees. Filters are not asked.
 *
 *     entries    a.9 a.4   b.7(deleted) b.2   c.5 c.3          newest version of a key first
 *     forward    ^ shown from the merge, which stands on it
 *     backward   the merge walks c.3 c.5 and stands on b.2 when it is known that c.5 is shown: from copies
 */
#include "engine/db_internal.h"

enum {
    STEPS_BEFORE_SKIP = 16, // over covered entries: about what a seek in two or three sources costs
};

struct tamis_iter {
    tamis_db *db;
    struct tm_view *view;
    struct tm_iter *merge;
    uint64_t sequence;
    struct tm_buf lower, upper;
    bool has_lower, has_upper;
    bool valid;
    bool has_ranges;                    // range tombstones that it could see
    bool backward;                      // where the merge stands: see above
    tamis_slice key_shown, value_shown; // when valid
    struct tm_buf key;                  // forward: the key to leave behind; backward: the key shown
    struct tm_buf value;                // backward: the value shown
    struct tm_buf target;               // of a seek, whose key may be one that moving overwrites
    tamis_status status;
    tamis_error error;
};

static void
fail(tamis_iter *iter, tamis_status status)
{
    iter->status = status;
    iter->valid = false;
}

static void
fail_as_merge(tamis_iter *iter)
{
    iter->error = iter->merge->error;
    fail(iter, iter->merge->status);
}

/* False: failed for want of memory. */
static bool
copy(tamis_iter *iter, struct tm_buf *buf, tamis_slice bytes)
{
    tamis_status status;

    buf->length = 0;
    status = tm_buf_append(&iter->db->env, buf, bytes.data, bytes.length, &iter->error);
    if (status != TAMIS_OK)
        fail(iter, status);
    return status == TAMIS_OK;
}

static tamis_slice
kept_key(const tamis_iter *iter)
{
    return tm_slice(iter->key.data, iter->key.length);
}

static const struct tm_order *
order_of(const tamis_iter *iter)
{
    return &iter->db->env.order;
}

static bool
is_below_lower(const tamis_iter *iter, tamis_slice key)
{
    return iter->has_lower && tm_order_compare(order_of(iter), key,
                                               tm_slice(iter->lower.data, iter->lower.length)) < 0;
}

static bool
is_beyond_upper(const tamis_iter *iter, tamis_slice key)
{
    return iter->has_upper && tm_order_compare(order_of(iter), key,
                                               tm_slice(iter->upper.data, iter->upper.length)) >= 0;
}

/* ---- Deleted ranges --------------------------------------------------------------------------------- */

/* Keys that a source has deleted: what it holds of them itself may be newer; what sources behind it hold of them is hidden (V3). */
struct cover {
    struct tm_range stretch;
    size_t source_count; // asked for it; behind the last one is all that is hidden
};

/* Ask the next source, which has these ranges around the key. */
static bool
ask_source(const tamis_iter *iter, const struct tm_range_set *ranges, tamis_slice key,
           struct cover *cover)
{
    cover->source_count++;
    if (ranges == NULL)
        return false;
    cover->stretch = tm_range_set_around(ranges, key, 0, iter->sequence);
    return cover->stretch.sequence != 0;
}

/* The newest source, in the order of open_sources(), that has deleted a range over `key`. */
static bool
find_cover(const tamis_iter *iter, tamis_slice key, struct cover *cover)
{
    const struct tm_view *view = iter->view;
    const struct tm_version *version = view->version;

    cover->source_count = 0;
    if (ask_source(iter, tm_memtable_ranges(view->mem), key, cover) ||
        (view->imm != NULL && ask_source(iter, tm_memtable_ranges(view->imm), key, cover)))
        return true;
    if (version->range_file_count == 0)
        return false;
    for (uint32_t i = 0; i < version->level[0].file_count; i++)
        if (ask_source(iter, version->level[0].files[i]->ranges, key, cover))
            return true;
    for (uint32_t i = 1; i < TAMIS_LEVEL_COUNT; i++) {
        const struct tm_file *file = tm_level_find(&version->level[i], key);

        if (version->level[i].file_count != 0 &&
            ask_source(iter, file != NULL ? file->ranges : NULL, key, cover))
            return true;
    }
    return false;
}

/* Has a range been deleted over this entry, which is visible? Then over its older versions, too. Sources that are newer than
 * that of the range hold only newer versions (V3), so the newest range over the key decides. */
static bool
is_covered(const tamis_iter *iter, const struct tm_entry *entry, struct cover *cover)
{
    return iter->has_ranges && find_cover(iter, entry->key, cover) &&
           cover->stretch.sequence > entry->sequence;
}

static void
step(const tamis_iter *iter)
{
    if (iter->backward)
        iter->merge->vtable->prev(iter->merge);
    else
        iter->merge->vtable->next(iter->merge);
}

/* Leave a covered entry behind; now and then all that is hidden with it in sources behind the cover's. A source moves once for
 * a stretch, so that a walk costs a seek for each stretch and source; what the cover's own source has hidden is stepped over. */
static void
pass_covered(const tamis_iter *iter, const struct cover *cover, size_t *passed_count)
{
    const struct tm_range *stretch = &cover->stretch;

    if (++*passed_count % STEPS_BEFORE_SKIP != 0 ||
        !tm_iter_merge_skip(iter->merge, cover->source_count,
                            iter->backward ? stretch->from : stretch->to))
        step(iter);
}

/* ---- Walks ------------------------------------------------------------------------------------------ */

/* Show the first visible entry from here on; with `leave` also past every version of the kept key. */
static void
settle_forward(tamis_iter *iter, bool leave)
{
    struct tm_iter *merge = iter->merge;
    size_t covered_count = 0;

    iter->backward = false;
    iter->valid = false;
    while (merge->valid) {
        const struct tm_entry *entry = &merge->entry;
        struct cover cover;

        if (is_beyond_upper(iter, entry->key))
            return;
        if (entry->sequence > iter->sequence ||
            (leave && tm_order_equal(order_of(iter), entry->key, kept_key(iter)))) {
            step(iter);
        } else if (is_covered(iter, entry, &cover)) {
            pass_covered(iter, &cover, &covered_count);
        } else if (entry->kind == TM_KIND_PUT) {
            iter->key_shown = entry->key;
            iter->value_shown = entry->value;
            iter->valid = true;
            return;
        } else { // deleted: its older versions are not seen
            if (!copy(iter, &iter->key, entry->key))
                return;
            leave = true;
            step(iter);
        }
    }
    if (merge->status != TAMIS_OK)
        fail_as_merge(iter);
}

/* Show the last visible key from here back. The oldest version of a key comes first, so what it is shown as is known when
 * the next key, or the end, is seen. */
static void
settle_backward(tamis_iter *iter)
{
    struct tm_iter *merge = iter->merge;
    bool found = false; // key and value are kept
    size_t covered_count = 0;

    iter->backward = true;
    iter->valid = false;
    while (merge->valid) {
        const struct tm_entry *entry = &merge->entry;
        struct cover cover;

        if (found && !tm_order_equal(order_of(iter), entry->key, kept_key(iter)))
            break;
        if (is_below_lower(iter, entry->key))
            break;
        if (entry->sequence <= iter->sequence && is_covered(iter, entry, &cover)) {
            pass_covered(iter, &cover, &covered_count);
            continue;
        }
        if (entry->sequence <= iter->sequence) {
            found = entry->kind == TM_KIND_PUT;
            if (found &&
                (!copy(iter, &iter->key, entry->key) || !copy(iter, &iter->value, entry->value)))
                return;
        }
        step(iter);
    }
    if (!merge->valid && merge->status != TAMIS_OK) { // newer versions of the kept key may be lost
        fail_as_merge(iter);
        return;
    }
    iter->valid = found;
    iter->key_shown = kept_key(iter);
    iter->value_shown = tm_slice(iter->value.data, iter->value.length);
}

static bool
may_move(tamis_iter *iter)
{
    iter->status = tm_check_process(iter->db, &iter->error);
    iter->valid = false;
    return iter->status == TAMIS_OK;
}

void
tamis_iter_seek(tamis_iter *iter, tamis_slice key)
{
    if (!may_move(iter))
        return;
    if (is_below_lower(iter, key))
        key = tm_slice(iter->lower.data, iter->lower.length);
    if (!copy(iter, &iter->target, key))
        return;
    iter->merge->vtable->seek(iter->merge, tm_slice(iter->target.data, iter->target.length),
                              iter->sequence);
    settle_forward(iter, false);
}

void
tamis_iter_seek_for_prev(tamis_iter *iter, tamis_slice key)
{
    if (is_beyond_upper(iter, key)) {
        tamis_iter_last(iter);
        return;
    }
    if (!may_move(iter) || !copy(iter, &iter->target, key))
        return;
    iter->merge->vtable->seek_for_prev( // behind every version of the key
        iter->merge, tm_slice(iter->target.data, iter->target.length), 0);
    settle_backward(iter);
}

void
tamis_iter_first(tamis_iter *iter)
{
    if (iter->has_lower) {
        tamis_iter_seek(iter, tm_slice(iter->lower.data, iter->lower.length));
        return;
    }
    if (!may_move(iter))
        return;
    iter->merge->vtable->first(iter->merge);
    settle_forward(iter, false);
}

void
tamis_iter_last(tamis_iter *iter)
{
    if (!may_move(iter))
        return;
    if (iter->has_upper) // before every version of the bound: none is so new
        iter->merge->vtable->seek_for_prev(
            iter->merge, tm_slice(iter->upper.data, iter->upper.length), UINT64_MAX);
    else
        iter->merge->vtable->last(iter->merge);
    settle_backward(iter);
}

void
tamis_iter_next(tamis_iter *iter)
{
    struct tm_iter *merge = iter->merge;

    if (!iter->valid || !may_move(iter))
        return;
    if (!iter->backward) {
        if (!copy(iter, &iter->key, merge->entry.key))
            return;
        merge->vtable->next(merge);
    } else if (merge->valid) {
        merge->vtable->next(merge); // to the versions of the key shown, which are passed over
    } else {
        merge->vtable->first(merge);
    }
    settle_forward(iter, true);
}

void
tamis_iter_prev(tamis_iter *iter)
{
    struct tm_iter *merge = iter->merge;

    if (!iter->valid || !may_move(iter))
        return;
    if (!iter->backward) { // newer versions than the one shown stand before it
        if (!copy(iter, &iter->key, merge->entry.key))
            return;
        do
            merge->vtable->prev(merge);
        while (merge->valid && tm_order_equal(order_of(iter), merge->entry.key, kept_key(iter)));
    }
    settle_backward(iter);
}

bool
tamis_iter_valid(const tamis_iter *iter)
{
    return iter->valid;
}

tamis_slice
tamis_iter_key(const tamis_iter *iter)
{
    return iter->valid ? iter->key_shown : tm_slice(NULL, 0);
}

tamis_slice
tamis_iter_value(const tamis_iter *iter)
{
    return iter->valid ? iter->value_shown : tm_slice(NULL, 0);
}

tamis_status
tamis_iter_status(const tamis_iter *iter, tamis_error *err)
{
    if (iter->status != TAMIS_OK && err != NULL)
        *err = iter->error;
    return iter->status;
}

/* ---- Open and close ------------------------------------------------------------------------------- */

static bool
has_ranges(const struct tm_view *view)
{
    return tm_memtable_ranges(view->mem) != NULL ||
           (view->imm != NULL && tm_memtable_ranges(view->imm) != NULL) ||
           view->version->range_file_count != 0;
}

static tamis_status
open_sources(tamis_db *db, const struct tm_view *view, struct tm_iter **merge_out, tamis_error *err)
{
    const struct tm_version *version = view->version;
    size_t capacity = 2 + version->level[0].file_count + TAMIS_LEVEL_COUNT - 1;
    struct tm_iter **sources = tm_alloc(&db->env, capacity * sizeof *sources);
    size_t count = 0;
    tamis_status status;

    if (sources == NULL)
        return TM_NO_MEMORY(err, capacity * sizeof *sources);
    status = tm_memtable_iter(view->mem, &sources[count], err);
    if (status == TAMIS_OK)
        count++;
    if (status == TAMIS_OK && view->imm != NULL) {
        status = tm_memtable_iter(view->imm, &sources[count], err);
        if (status == TAMIS_OK)
            count++;
    }
    for (uint32_t i = 0; status == TAMIS_OK && i < version->level[0].file_count; i++) {
        status = tm_table_iter(version->level[0].files[i]->table, true, &sources[count], err);
        if (status == TAMIS_OK)
            count++;
    }
    for (uint32_t level = 1; status == TAMIS_OK && level < TAMIS_LEVEL_COUNT; level++) {
        if (version->level[level].file_count == 0)
            continue;
        status = tm_level_iter(&db->env, version->level[level].files,
                               version->level[level].file_count, true, &sources[count], err);
        if (status == TAMIS_OK)
            count++;
    }
    if (status == TAMIS_OK)
        status = tm_iter_merge(&db->env, sources, count, merge_out, err);
    else
        for (size_t i = 0; i < count; i++)
            tm_iter_close(sources[i]);
    tm_release(&db->env, sources, capacity * sizeof *sources);
    return status;
}

static tamis_status
copy_bound(tamis_db *db, const tamis_slice *bound, struct tm_buf *buf, bool *has, tamis_error *err)
{
    tamis_status status;

    if (bound == NULL)
        return TAMIS_OK;
    status = tm_check_key(*bound, err);
    if (status == TAMIS_OK)
        status = tm_buf_append(&db->env, buf, bound->data, bound->length, err);
    *has = status == TAMIS_OK;
    return status;
}

tamis_status
tamis_iter_open(tamis_db *db, const tamis_iter_options *options, tamis_iter **iter_out,
                tamis_error *err)
{
    tamis_iter *iter;
    tamis_status status = tm_check_process(db, err);

    *iter_out = NULL;
    if (status != TAMIS_OK)
        return status;
    if (options != NULL && options->struct_size != sizeof *options)
        return TM_FAIL(err, TAMIS_INVALID,
                       "iterator options: expected struct_size %zu, found %u: use "
                       "tamis_iter_options_init()",
                       sizeof *options, (unsigned)options->struct_size);
    iter = tm_alloc_zeroed(&db->env, sizeof *iter);
    if (iter == NULL)
        return TM_NO_MEMORY(err, sizeof *iter);
    iter->db = db;
    atomic_fetch_add_explicit(&db->live_handles, 1, memory_order_relaxed);
    iter->view = tm_view_pin(db, options != NULL ? options->snapshot : NULL, &iter->sequence);
    if (options != NULL) {
        status = copy_bound(db, options->lower, &iter->lower, &iter->has_lower, err);
        if (status == TAMIS_OK)
            status = copy_bound(db, options->upper, &iter->upper, &iter->has_upper, err);
    }
    iter->has_ranges = has_ranges(iter->view);
    if (status == TAMIS_OK)
        status = open_sources(db, iter->view, &iter->merge, err);
    if (status != TAMIS_OK) {
        tamis_iter_close(iter);
        return status;
    }
    *iter_out = iter;
    return TAMIS_OK;
}

void
tamis_iter_close(tamis_iter *iter)
{
    tamis_db *db;

    if (iter == NULL || tm_check_process(iter->db, NULL) != TAMIS_OK)
        return; // a child's copy ends with the child
    db = iter->db;
    tm_iter_close(iter->merge);
    tm_view_unref(db, iter->view);
    tm_buf_release(&db->env, &iter->lower);
    tm_buf_release(&db->env, &iter->upper);
    tm_buf_release(&db->env, &iter->key);
    tm_buf_release(&db->env, &iter->value);
    tm_buf_release(&db->env, &iter->target);
    tm_release(&db->env, iter, sizeof *iter);
    atomic_fetch_sub_explicit(&db->live_handles, 1, memory_order_release);
}
