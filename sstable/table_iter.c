/* SPDX-License-Identifier: MIT
 *
 * sstable/table_iter.c -- walk the entries of a table.
 *
 * Stands on entry `index` of block `number`, whose reference it holds. The key is put together in a buffer: prefix of
 * the block, then suffix of the entry; the value stays in the block.
 */
#include "sstable/table.h"

struct table_iter {
    struct tm_iter base;
    struct tm_table *table;
    bool fill_cache;
    struct tm_read_ahead ahead;
    size_t number;          // of the block in hand
    struct tm_block *block; // NULL: none
    struct tm_block_view view;
    uint32_t index;
    struct tm_buf key; // starts with the block's prefix while a block is in hand
};

static void
fail(struct table_iter *iter, tamis_status status)
{
    iter->base.valid = false;
    iter->base.status = status;
}

/* Let the block go; stand nowhere, without a failure. */
static void
leave(struct table_iter *iter)
{
    tm_block_unref(iter->block);
    iter->block = NULL;
    iter->base.valid = false;
    iter->base.status = TAMIS_OK;
}

/* Take block `number` < count in hand. */
static tamis_status
enter_block(struct table_iter *iter, size_t number)
{
    tamis_status status;

    leave(iter);
    status = tm_table_load_block(iter->table, number, iter->fill_cache, &iter->ahead, &iter->block,
                                 &iter->view, &iter->base.error);
    if (status != TAMIS_OK)
        return status;
    iter->number = number;
    iter->key.length = 0;
    return tm_buf_append(iter->table->env, &iter->key, iter->view.prefix, iter->view.prefix_length,
                         &iter->base.error);
}

/* Show entry `index` < count of the block in hand. */
static void
show(struct table_iter *iter, uint32_t index)
{
    struct tm_block_entry entry;
    tamis_status status;

    status = tm_block_entry_at(&iter->view, index, &entry, &iter->base.error);
    if (status == TAMIS_OK) {
        iter->key.length = iter->view.prefix_length;
        status = tm_buf_append(iter->table->env, &iter->key, entry.suffix.data, entry.suffix.length,
                               &iter->base.error);
    }
    if (status != TAMIS_OK) {
        fail(iter, status);
        return;
    }
    iter->index = index;
    iter->base.entry = (struct tm_entry){
        .key = tm_slice(iter->key.data, iter->key.length),
        .value = entry.value,
        .sequence = entry.sequence,
        .kind = entry.kind,
    };
    iter->base.valid = true;
}

/* Show the first entry of block `number`, or the end. */
static void
show_first_of(struct table_iter *iter, size_t number)
{
    tamis_status status;

    if (number >= iter->table->index.count) {
        leave(iter);
        return;
    }
    status = enter_block(iter, number);
    if (status != TAMIS_OK)
        fail(iter, status);
    else
        show(iter, 0); // a block has at least one entry
}

/* Show the last entry of block `end` - 1, or the end of the walk when there is none. */
static void
show_last_before(struct table_iter *iter, size_t end)
{
    tamis_status status;

    if (end == 0) {
        leave(iter);
        return;
    }
    status = enter_block(iter, end - 1);
    if (status != TAMIS_OK)
        fail(iter, status);
    else
        show(iter, iter->view.count - 1);
}

static void
iter_first(struct tm_iter *base)
{
    show_first_of((struct table_iter *)base, 0);
}

static void
iter_last(struct tm_iter *base)
{
    struct table_iter *iter = (struct table_iter *)base;

    show_last_before(iter, iter->table->index.count);
}

static void
iter_seek(struct tm_iter *base, tamis_slice key, uint64_t sequence)
{
    struct table_iter *iter = (struct table_iter *)base;
    size_t count = iter->table->index.count;
    tamis_status status;

    // More than one round only where the versions of `key` that are newer than `sequence` fill whole blocks, or
    // where `key` lies between the last key of a block and its separator.
    for (size_t number = tm_index_find(&iter->table->index, key); number < count; number++) {
        uint32_t index;

        status = enter_block(iter, number);
        if (status == TAMIS_OK)
            status = tm_block_seek(&iter->view, iter->base.order, key, sequence, &index,
                                   &iter->base.error);
        if (status != TAMIS_OK) {
            fail(iter, status);
            return;
        }
        if (index < iter->view.count) {
            show(iter, index);
            return;
        }
    }
    leave(iter);
}

static void
iter_next(struct tm_iter *base)
{
    struct table_iter *iter = (struct table_iter *)base;

    assert(base->valid);
    if (iter->index + 1 < iter->view.count)
        show(iter, iter->index + 1);
    else
        show_first_of(iter, iter->number + 1);
}

static void
iter_prev(struct tm_iter *base)
{
    struct table_iter *iter = (struct table_iter *)base;

    assert(base->valid);
    if (iter->index > 0)
        show(iter, iter->index - 1);
    else
        show_last_before(iter, iter->number);
}

static void
iter_close(struct tm_iter *base)
{
    struct table_iter *iter = (struct table_iter *)base;
    const struct tm_env *env = iter->table->env;

    tm_block_unref(iter->block);
    tm_read_ahead_release(env, &iter->ahead);
    tm_buf_release(env, &iter->key);
    tm_release(env, iter, sizeof *iter);
}

tamis_status
tm_table_iter(struct tm_table *table, bool fill_cache, struct tm_iter **iter_out, tamis_error *err)
{
    static const struct tm_iter_vtable vtable = {
        .first = iter_first,
        .last = iter_last,
        .seek = iter_seek,
        .seek_for_prev = tm_iter_seek_and_step_back,
        .next = iter_next,
        .prev = iter_prev,
        .close = iter_close,
    };
    struct table_iter *iter = tm_alloc_zeroed(table->env, sizeof *iter);

    if (iter == NULL)
        return TM_NO_MEMORY(err, sizeof *iter);
    iter->base.vtable = &vtable;
    iter->base.order = &table->env->order;
    iter->table = table;
    iter->fill_cache = fill_cache;
    *iter_out = &iter->base;
    return TAMIS_OK;
}
