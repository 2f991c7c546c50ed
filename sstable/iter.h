/* SPDX-License-Identifier: MIT
 *
 * sstable/iter.h -- the one iterator interface inside the store: entries of every version, in entry order.
 *
 * Implemented by a table, a memtable, and the merge of many. An iterator is valid exactly when it stands on
 * an entry and its status is OK; a failure ends the walk and is never skipped.
 */
#ifndef TM_SSTABLE_ITER_H
#define TM_SSTABLE_ITER_H

#include "sstable/entry.h"

struct tm_iter;

struct tm_iter_vtable {
    void (*first)(struct tm_iter *iter);
    void (*last)(struct tm_iter *iter);
    /* To the first entry at or after (key, sequence) in entry order. */
    void (*seek)(struct tm_iter *iter, tamis_slice key, uint64_t sequence);
    /* To the last entry at or before (key, sequence) in entry order. */
    void (*seek_for_prev)(struct tm_iter *iter, tamis_slice key, uint64_t sequence);
    void (*next)(struct tm_iter *iter); // only when valid
    void (*prev)(struct tm_iter *iter); // only when valid
    void (*close)(struct tm_iter *iter); // frees everything, the iterator included
};

/* Head of every implementation. `entry` is filled by every move: its slices stay valid until the next one. */
struct tm_iter {
    const struct tm_iter_vtable *vtable;
    const struct tm_order *order; // of keys; NULL: bytewise
    struct tm_entry entry;
    bool valid;
    tamis_status
        status; // OK unless the walk failed; then valid is false until first, last or a seek
    tamis_error error;
};

/** seek_for_prev of implementations that step back cheaply: there, and one back unless that is the very entry. */
static inline void
tm_iter_seek_and_step_back(struct tm_iter *iter, tamis_slice key, uint64_t sequence)
{
    iter->vtable->seek(iter, key, sequence);
    if (!iter->valid && iter->status == TAMIS_OK)
        iter->vtable->last(iter);
    else if (iter->valid && (iter->entry.sequence != sequence ||
                             tm_order_compare(iter->order, iter->entry.key, key) != 0))
        iter->vtable->prev(iter);
}

static inline void
tm_iter_close(struct tm_iter *iter)
{
    if (iter != NULL)
        iter->vtable->close(iter);
}

/**
 * Merge `count` iterators into one. Entries come in entry order; of several with equal (key, sequence), only that of
 * the first source comes. It can turn round at any entry, which seeks in every other source. A source that fails ends the walk with its error, as soon as it was moved to the failure.
 *
 * @param sources  taken, even on failure (closed then); the array itself is copied; NULL allowed when count is 0
 * @param iter_out [out] on OK; stands nowhere; close with tm_iter_close()
 * @return         TAMIS_OK or TAMIS_NO_MEMORY
 *
 * Threads  one owner, as every iterator.
 * Cost     a step is that of one source and about log2(count) comparisons, most of them of 8-byte numbers; one
 *          allocation at creation.
 */
TAMIS_NODISCARD tamis_status tm_iter_merge(const struct tm_env *env, struct tm_iter **sources,
                                           size_t count, struct tm_iter **iter_out,
                                           tamis_error *err);

/**
 * Leave entries out that need not be seen: move the sources from `first` on, as they were given, that have not reached `bound`
 * to their first entry at or behind it; walking backward, to their last entry before it. The others stay where they are. What
 * was left out is there again once the walk has turned.
 *
 * @param merge  made by tm_iter_merge(), valid
 * @param bound  stays where it is when sources move
 * @return       false: the merge still stands on its entry. true: on another one, or it has ended or failed
 *
 * Cost  a seek in each source that moves.
 */
bool tm_iter_merge_skip(struct tm_iter *merge, size_t first, tamis_slice bound);

#endif
