/* SPDX-License-Identifier: MIT
 *
 * sstable/iter_merge.c -- many sorted iterators as one.
 *
 * A binary heap of the sources that stand on an entry, the one to be shown next on top: the smallest entry, or, walking
 * backward, the largest. Beside each source lie the first 8 bytes of its key as a number, which decide most comparisons
 * without touching a key. With one source left in the heap, a step is that source's step.
 *
 *     forward    every source stands on its first entry at or behind the top
 *     backward   every source stands on its last entry at or before the top
 *
 * A skip moves some sources further than that. A turn puts every source beside the top, wherever it was.
 *
 * Invariants
 *   G1  While the merge is valid, the top of the heap is the source whose entry is shown, and every source in the heap is
 *       valid. Ties are broken by the order in which the sources were given.
 *   G2  A source that fails ends the merge: what it still held is unknown, so nothing after it may be shown.
 */
#include <assert.h>

#include "sstable/iter.h"
#include "sstable/pieces.h"

struct source {
    struct tm_iter *iter;
    uint64_t
        piece; // first 8 bytes of its key, big-endian, zeros behind short keys; 0 unless keys are ordered bytewise
    size_t order;   // as given
};

struct merge_iter {
    struct tm_iter base;
    const struct tm_env *env;
    size_t source_count;
    size_t heap_count; // of the sources, those in the heap; they come first in `sources`
    bool backward;
    struct source sources[];
};

static uint64_t
piece_of(const struct merge_iter *merge, tamis_slice key)
{
    return tm_order_is_bytewise(merge->base.order) ? tm_piece(key, 0) : 0;
}

/* Is `a` to be shown before `b`? */
static bool
before(const struct merge_iter *merge, const struct source *a, const struct source *b)
{
    int order;

    if (a->piece != b->piece)
        return (a->piece < b->piece) != merge->backward;
    order = tm_entry_compare(merge->base.order, a->iter->entry.key, a->iter->entry.sequence,
                             b->iter->entry.key, b->iter->entry.sequence);
    return order != 0 ? (order < 0) != merge->backward : a->order < b->order;
}

/* Put the source at `at` in its place among its children, which are heaps. */
static void
sift_down(struct merge_iter *merge, size_t at)
{
    struct source moving = merge->sources[at];

    for (;;) {
        size_t child = 2 * at + 1;

        if (child >= merge->heap_count)
            break;
        if (child + 1 < merge->heap_count &&
            before(merge, &merge->sources[child + 1], &merge->sources[child]))
            child++;
        if (!before(merge, &merge->sources[child], &moving))
            break;
        merge->sources[at] = merge->sources[child];
        at = child;
    }
    merge->sources[at] = moving;
}

/* Take a failure over (G2). */
static void
fail(struct merge_iter *merge, const struct tm_iter *source)
{
    merge->base.valid = false;
    merge->base.status = source->status;
    merge->base.error = source->error;
}

static void
show(struct merge_iter *merge)
{
    merge->base.valid = merge->heap_count > 0;
    if (merge->base.valid)
        merge->base.entry = merge->sources[0].iter->entry;
}

/* The source at `at` has moved: put it in its place, or take it out at its end. False: it has failed. */
static bool
settle(struct merge_iter *merge, size_t at)
{
    struct source *source = &merge->sources[at];

    if (source->iter->valid) {
        source->piece = piece_of(merge, source->iter->entry.key);
    } else if (source->iter->status != TAMIS_OK) {
        fail(merge, source->iter);
        return false;
    } else {
        struct source gone = *source;

        merge->heap_count--;
        *source = merge->sources[merge->heap_count];
        merge->sources[merge->heap_count] =
            gone; // kept behind the heap, for the next seek and for closing
        if (at >= merge->heap_count)
            return true;
    }
    if (merge->heap_count > 1)
        sift_down(merge, at);
    return true;
}

/* All sources have been positioned: make a heap of those that stand on an entry. */
static void
rebuild(struct merge_iter *merge)
{
    merge->base.status = TAMIS_OK;
    merge->heap_count = 0;
    for (size_t i = 0; i < merge->source_count; i++) {
        struct source *source = &merge->sources[i];

        if (source->iter->valid) {
            struct source kept = *source;

            kept.piece = piece_of(merge, kept.iter->entry.key);
            *source = merge->sources[merge->heap_count];
            merge->sources[merge->heap_count++] = kept;
        } else if (source->iter->status != TAMIS_OK) {
            fail(merge, source->iter);
            return;
        }
    }
    for (size_t at = merge->heap_count / 2; at-- > 0;)
        sift_down(merge, at);
    show(merge);
}

static void
merge_first(struct tm_iter *base)
{
    struct merge_iter *merge = (struct merge_iter *)base;

    merge->backward = false;
    for (size_t i = 0; i < merge->source_count; i++)
        merge->sources[i].iter->vtable->first(merge->sources[i].iter);
    rebuild(merge);
}

static void
merge_last(struct tm_iter *base)
{
    struct merge_iter *merge = (struct merge_iter *)base;

    merge->backward = true;
    for (size_t i = 0; i < merge->source_count; i++)
        merge->sources[i].iter->vtable->last(merge->sources[i].iter);
    rebuild(merge);
}

static void
merge_seek(struct tm_iter *base, tamis_slice key, uint64_t sequence)
{
    struct merge_iter *merge = (struct merge_iter *)base;

    merge->backward = false;
    for (size_t i = 0; i < merge->source_count; i++)
        merge->sources[i].iter->vtable->seek(merge->sources[i].iter, key, sequence);
    rebuild(merge);
}

static void
merge_seek_for_prev(struct tm_iter *base, tamis_slice key, uint64_t sequence)
{
    struct merge_iter *merge = (struct merge_iter *)base;

    merge->backward = true;
    for (size_t i = 0; i < merge->source_count; i++)
        merge->sources[i].iter->vtable->seek_for_prev(merge->sources[i].iter, key, sequence);
    rebuild(merge);
}

static void
step(const struct merge_iter *merge, struct tm_iter *source)
{
    if (merge->backward)
        source->vtable->prev(source);
    else
        source->vtable->next(source);
}

static bool
same_entry(const struct tm_order *order, const struct tm_entry *a, const struct tm_entry *b)
{
    return a->sequence == b->sequence && tm_order_equal(order, a->key, b->key);
}

/* A child of the top that stands on the same entry; 0: none. If any source does, so does a child of the top. */
static size_t
equal_child(const struct merge_iter *merge)
{
    for (size_t child = 1; child <= 2 && child < merge->heap_count; child++)
        if (same_entry(merge->base.order, &merge->sources[child].iter->entry,
                       &merge->sources[0].iter->entry))
            return child;
    return 0;
}

/* The step after which the walk goes the other way: every source, at its end or not, goes to the other side of the top. */
static void
turn(struct merge_iter *merge)
{
    struct tm_iter *top = merge->sources[0].iter; // shown, so nothing but the last step moves it

    merge->backward = !merge->backward;
    for (size_t i = 1; i < merge->source_count; i++) {
        struct tm_iter *source = merge->sources[i].iter;

        if (merge->backward)
            source->vtable->seek_for_prev(source, top->entry.key, top->entry.sequence);
        else
            source->vtable->seek(source, top->entry.key, top->entry.sequence);
        if (source->valid && same_entry(merge->base.order, &source->entry, &top->entry))
            step(merge, source);
    }
    step(merge, top);
    rebuild(merge);
}

static void
advance(struct merge_iter *merge, bool backward)
{
    struct tm_iter *top = merge->sources[0].iter;
    size_t child;

    assert(merge->base.valid);
    if (merge->backward != backward) {
        turn(merge);
        return;
    }
    // The same entry from later sources is passed over while the top still holds the key to compare with.
    while (merge->heap_count > 1 && (child = equal_child(merge)) != 0) {
        step(merge, merge->sources[child].iter);
        if (!settle(merge, child))
            return;
    }
    step(merge, top);
    if (settle(merge, 0))
        show(merge);
}

static void
merge_next(struct tm_iter *base)
{
    advance((struct merge_iter *)base, false);
}

static void
merge_prev(struct tm_iter *base)
{
    advance((struct merge_iter *)base, true);
}

/* Has a source that stands on an entry still to come to `bound`? */
static bool
is_short_of(const struct merge_iter *merge, const struct source *source, tamis_slice bound)
{
    int order = tm_order_compare(merge->base.order, source->iter->entry.key, bound);

    return merge->backward ? order >= 0 : order < 0;
}

bool
tm_iter_merge_skip(struct tm_iter *base, size_t first, tamis_slice bound)
{
    struct merge_iter *merge = (struct merge_iter *)base;
    const struct tm_iter *top = merge->sources[0].iter;
    bool top_moves = false;

    assert(base->valid);
    for (size_t i = 0; i < merge->heap_count;
         i++) { // the others have ended, and have nothing ahead
        struct tm_iter *source = merge->sources[i].iter;

        if (merge->sources[i].order < first || !is_short_of(merge, &merge->sources[i], bound))
            continue;
        if (merge->backward) // before every version of the bound: none is so new
            source->vtable->seek_for_prev(source, bound, UINT64_MAX);
        else
            source->vtable->seek(source, bound, UINT64_MAX);
        top_moves |= source == top;
    }
    rebuild(merge);
    return top_moves || !base->valid;
}

static void
merge_close(struct tm_iter *base)
{
    struct merge_iter *merge = (struct merge_iter *)base;

    for (size_t i = 0; i < merge->source_count; i++)
        tm_iter_close(merge->sources[i].iter);
    tm_release(merge->env, merge, sizeof *merge + merge->source_count * sizeof *merge->sources);
}

tamis_status
tm_iter_merge(const struct tm_env *env, struct tm_iter **sources, size_t count,
              struct tm_iter **iter_out, tamis_error *err)
{
    static const struct tm_iter_vtable vtable = {
        .first = merge_first,
        .last = merge_last,
        .seek = merge_seek,
        .seek_for_prev = merge_seek_for_prev,
        .next = merge_next,
        .prev = merge_prev,
        .close = merge_close,
    };
    struct merge_iter *merge;
    size_t bytes = sizeof *merge + count * sizeof *merge->sources;

    merge = tm_alloc_zeroed(env, bytes);
    if (merge == NULL) {
        for (size_t i = 0; i < count; i++)
            tm_iter_close(sources[i]);
        return TM_NO_MEMORY(err, bytes);
    }
    merge->base.vtable = &vtable;
    merge->base.order = &env->order;
    merge->env = env;
    merge->source_count = count;
    for (size_t i = 0; i < count; i++)
        merge->sources[i] = (struct source){.iter = sources[i], .order = i};
    *iter_out = &merge->base;
    return TAMIS_OK;
}
