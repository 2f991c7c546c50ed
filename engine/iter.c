/* SPDX-License-Identifier: MIT
 *
 * engine/iter.c -- the user's iterator: one key once, in its newest version at the iterator's sequence, tombstones left out.
 *
 * Beneath it lies a merge of both memtables, each level-0 table and each deeper level. It holds its view, so that
 * writes, flushes and compactions do not change what it sees. Filters are not asked.
 */
#include "engine/db_internal.h"

struct tamis_iter {
    tamis_db *db;
    struct tm_view *view;
    struct tm_iter *merge;
    uint64_t sequence;
    struct tm_buf lower, upper;
    bool has_lower, has_upper;
    bool valid;
    struct tm_buf key; // the key to leave behind
    tamis_status status;
    tamis_error error;
};

static void
fail(tamis_iter *iter, tamis_status status)
{
    iter->status = status;
    iter->valid = false;
}

/* Stand on the first visible entry from here on; with `leave` also past every version of iter->key. */
static void
settle(tamis_iter *iter, bool leave)
{
    struct tm_iter *merge = iter->merge;

    iter->valid = false;
    for (; merge->valid; merge->vtable->next(merge)) {
        const struct tm_entry *entry = &merge->entry;

        if (iter->has_upper &&
            tm_slice_compare(entry->key, tm_slice(iter->upper.data, iter->upper.length)) >= 0)
            return;
        if (entry->sequence > iter->sequence)
            continue;
        if (leave && tm_slice_equal(entry->key, tm_slice(iter->key.data, iter->key.length)))
            continue;
        if (entry->kind == TM_KIND_PUT) {
            iter->valid = true;
            return;
        }
        iter->key.length = 0; // deleted: its older versions are not seen
        iter->status = tm_buf_append(&iter->db->env, &iter->key, entry->key.data,
                                     entry->key.length, &iter->error);
        if (iter->status != TAMIS_OK) {
            fail(iter, iter->status);
            return;
        }
        leave = true;
    }
    if (merge->status != TAMIS_OK) {
        iter->error = merge->error;
        fail(iter, merge->status);
    }
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
    if (iter->has_lower) {
        tamis_slice lower = tm_slice(iter->lower.data, iter->lower.length);

        if (tm_slice_compare(key, lower) < 0)
            key = lower;
    }
    iter->merge->vtable->seek(iter->merge, key, iter->sequence);
    settle(iter, false);
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
    settle(iter, false);
}

void
tamis_iter_next(tamis_iter *iter)
{
    if (!iter->valid || !may_move(iter))
        return;
    iter->key.length = 0;
    iter->status = tm_buf_append(&iter->db->env, &iter->key, iter->merge->entry.key.data,
                                 iter->merge->entry.key.length, &iter->error);
    if (iter->status != TAMIS_OK) {
        fail(iter, iter->status);
        return;
    }
    iter->merge->vtable->next(iter->merge);
    settle(iter, true);
}

bool
tamis_iter_valid(const tamis_iter *iter)
{
    return iter->valid;
}

tamis_slice
tamis_iter_key(const tamis_iter *iter)
{
    return iter->merge->entry.key;
}

tamis_slice
tamis_iter_value(const tamis_iter *iter)
{
    return iter->merge->entry.value;
}

tamis_status
tamis_iter_status(const tamis_iter *iter, tamis_error *err)
{
    if (iter->status != TAMIS_OK && err != NULL)
        *err = iter->error;
    return iter->status;
}

/* ---- Open and close ------------------------------------------------------------------------------- */

static tamis_status
open_sources(tamis_db *db, const struct tm_view *view, struct tm_iter **merge_out,
             tamis_error *err)
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
copy_bound(tamis_db *db, const tamis_slice *bound, struct tm_buf *buf, bool *has,
           tamis_error *err)
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
    iter->view = tm_view_pin(db, &iter->sequence);
    if (options != NULL) {
        if (options->snapshot != NULL)
            iter->sequence = options->snapshot->sequence;
        status = copy_bound(db, options->lower, &iter->lower, &iter->has_lower, err);
        if (status == TAMIS_OK)
            status = copy_bound(db, options->upper, &iter->upper, &iter->has_upper, err);
    }
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
    tm_release(&db->env, iter, sizeof *iter);
    atomic_fetch_sub_explicit(&db->live_handles, 1, memory_order_release);
}
