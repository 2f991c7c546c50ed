/* SPDX-License-Identifier: MIT
 *
 * sstable/read_ahead.c -- when to read ahead, how far, and where the bytes lie.
 */
#include "sstable/read_ahead.h"

#include "sstable/table.h"

enum {
    ALONE_COUNT = 2, // blocks in a row that are read alone: two are what a seek and a step may need
    WINDOW_BYTES_MIN = 16 << 10,
    WINDOW_BYTES_MAX =
        128 << 10, // more did not measure faster, and every table of a merge takes one
};

static bool
holds(const struct tm_read_ahead *ahead, size_t number)
{
    return number >= ahead->first && number - ahead->first < ahead->count;
}

/* Does block `number` go on with the run, or does another one begin with it? */
static void
follow(struct tm_read_ahead *ahead, size_t number)
{
    size_t step = number - ahead->last;
    bool goes_on =
        ahead->run == 1 ? step == 1 || step == (size_t)-1 : ahead->run > 1 && step == ahead->step;

    if (goes_on) {
        ahead->step = step;
        ahead->run++;
    } else {
        ahead->step = 1;
        ahead->run = 1;
        ahead->bytes = WINDOW_BYTES_MIN;
    }
    ahead->last = number;
}

/* Room for a window, whose contents go. */
static bool
reserve(struct tm_read_ahead *ahead, const struct tm_table *table, size_t bytes)
{
    uint64_t data_bytes = table->index.offsets[table->index.count];

    ahead->count = 0;
    if (bytes <= ahead->capacity)
        return true;
    tm_read_ahead_release(table->env, ahead);
    ahead->capacity = data_bytes < ahead->bytes ? (size_t)data_bytes : ahead->bytes;
    ahead->memory = tm_alloc(table->env, ahead->capacity);
    if (ahead->memory == NULL)
        ahead->capacity = 0;
    return ahead->memory != NULL;
}

/* Read the window that begins with block `number` in the direction of the run, if it has more blocks than that one. */
static void
read_window(struct tm_read_ahead *ahead, struct tm_table *table, size_t number)
{
    const struct tm_env *env = table->env;
    const uint64_t *offsets = table->index.offsets;
    size_t first = number;
    size_t end = number + 1;
    size_t bytes;
    tamis_error ignored;
    tamis_file *file;
    tamis_status status;

    if (ahead->step == 1)
        while (end < table->index.count && offsets[end + 1] - offsets[first] <= ahead->bytes)
            end++;
    else
        while (first > 0 && offsets[end] - offsets[first - 1] <= ahead->bytes)
            first--;
    bytes = (size_t)(offsets[end] - offsets[first]);
    if (end - first < 2 || !reserve(ahead, table, bytes))
        return;
    status = tm_descriptor_acquire(&table->descriptor, &file, &ignored);
    if (status == TAMIS_OK) {
        status =
            env->fs->read_at(env->fs->ctx, file, offsets[first], ahead->memory, bytes, &ignored);
        tm_descriptor_release(&table->descriptor);
    }
    if (status != TAMIS_OK) { // A2
        ahead->run = 0;
        return;
    }
    ahead->first = first;
    ahead->count = end - first;
    if (ahead->bytes < WINDOW_BYTES_MAX)
        ahead->bytes *= 2;
}

const uint8_t *
tm_read_ahead_get(struct tm_read_ahead *ahead, struct tm_table *table, size_t number)
{
    const uint64_t *offsets = table->index.offsets;

    follow(ahead, number);
    if (!holds(ahead, number) && ahead->run > ALONE_COUNT)
        read_window(ahead, table, number);
    return holds(ahead, number) ? ahead->memory + (offsets[number] - offsets[ahead->first]) : NULL;
}

void
tm_read_ahead_release(const struct tm_env *env, struct tm_read_ahead *ahead)
{
    tm_release(env, ahead->memory, ahead->capacity);
    ahead->memory = NULL;
    ahead->capacity = 0;
    ahead->count = 0;
}
