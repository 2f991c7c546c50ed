/* SPDX-License-Identifier: MIT
 *
 * engine/level_iter.c -- walk the disjoint files of a level as one sequence; opens one table's iterator at a time.
 */
#include "engine/db_internal.h"

struct level_iter {
    struct tm_iter iter; // first: an iterator is its head
    const struct tm_env *env;
    struct tm_file *const *files;
    size_t count;
    size_t index;            // of the file that `current` walks
    struct tm_iter *current; // NULL: none
    bool fill_cache;
};

static void
drop_current(struct level_iter *level)
{
    tm_iter_close(level->current);
    level->current = NULL;
    level->iter.valid = false;
}

/* Begin in file `index`, which may lie beyond either end. False: it does, or it cannot be walked. */
static bool
open_file(struct level_iter *level, size_t index)
{
    level->iter.status = TAMIS_OK;
    drop_current(level);
    level->index = index;
    if (index >= level->count) // before the first, too
        return false;
    level->iter.status = tm_table_iter(level->files[index]->table, level->fill_cache,
                                       &level->current, &level->iter.error);
    if (level->iter.status != TAMIS_OK)
        level->current = NULL;
    return level->iter.status == TAMIS_OK;
}

/* Take over what the current iterator stands on; on to the files beside it while they end. */
static void
settle(struct level_iter *level, bool backward)
{
    while (!level->current->valid) {
        if (level->current->status != TAMIS_OK) {
            level->iter.status = level->current->status;
            level->iter.error = level->current->error;
            level->iter.valid = false;
            return;
        }
        if (!open_file(level, backward ? level->index - 1 : level->index + 1))
            return;
        if (backward)
            level->current->vtable->last(level->current);
        else
            level->current->vtable->first(level->current);
    }
    level->iter.entry = level->current->entry;
    level->iter.valid = true;
}

static void
level_first(struct tm_iter *iter)
{
    struct level_iter *level = (struct level_iter *)iter;

    if (!open_file(level, 0))
        return;
    level->current->vtable->first(level->current);
    settle(level, false);
}

static void
level_last(struct tm_iter *iter)
{
    struct level_iter *level = (struct level_iter *)iter;

    if (!open_file(level, level->count - 1))
        return;
    level->current->vtable->last(level->current);
    settle(level, true);
}

static void
level_seek(struct tm_iter *iter, tamis_slice key, uint64_t sequence)
{
    struct level_iter *level = (struct level_iter *)iter;
    size_t low = 0;
    size_t high = level->count;

    while (low < high) { // the first file whose largest key is at or after `key`
        size_t middle = low + (high - low) / 2;
        if (tm_order_compare(level->iter.order, tm_file_largest(level->files[middle]), key) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    if (!open_file(level, low))
        return;
    level->current->vtable->seek(level->current, key, sequence);
    settle(level, false);
}

static void
level_next(struct tm_iter *iter)
{
    struct level_iter *level = (struct level_iter *)iter;

    level->current->vtable->next(level->current);
    settle(level, false);
}

static void
level_prev(struct tm_iter *iter)
{
    struct level_iter *level = (struct level_iter *)iter;

    level->current->vtable->prev(level->current);
    settle(level, true);
}

static void
level_close(struct tm_iter *iter)
{
    struct level_iter *level = (struct level_iter *)iter;

    tm_iter_close(level->current);
    tm_release(level->env, level, sizeof *level);
}

tamis_status
tm_level_iter(const struct tm_env *env, struct tm_file *const *files, size_t count, bool fill_cache,
              struct tm_iter **iter_out, tamis_error *err)
{
    static const struct tm_iter_vtable vtable = {
        .first = level_first,
        .last = level_last,
        .seek = level_seek,
        .seek_for_prev = tm_iter_seek_and_step_back,
        .next = level_next,
        .prev = level_prev,
        .close = level_close,
    };
    struct level_iter *level = tm_alloc_zeroed(env, sizeof *level);

    if (level == NULL)
        return TM_NO_MEMORY(err, sizeof *level);
    level->iter.vtable = &vtable;
    level->iter.order = &env->order;
    level->env = env;
    level->files = files;
    level->count = count;
    level->fill_cache = fill_cache;
    *iter_out = &level->iter;
    return TAMIS_OK;
}
