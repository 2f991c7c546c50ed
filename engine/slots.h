/* SPDX-License-Identifier: MIT
 *
 * engine/slots.h -- where running reads say what they look at and count what they did, without a lock.
 *
 *     slot   | view, NULL: free | gets | ... | counts of files ----> | true, false positives, negatives | ... by tm_file.count_index
 *            one cache line, of the thread that claimed it
 *
 * A read claims a free slot by one compare-and-swap, which says at once which view it looks at, and frees it at the end: no
 * thread is registered, nothing is to be done when one ends or forks. Counts are plain loads and stores of whoever has
 * claimed the slot; they stay when it is freed, and what was counted is the sum over all slots.
 *
 * Invariants
 *   O1  A view that stands in a slot is not destroyed. The claim comes before a second look at the newest view, and whoever retires a
 *       view replaces it before looking at the slots, all of it sequentially consistent: one of the two sees the other.
 *       (Hazard pointers: Michael, "Safe memory reclamation for lock-free objects", 2004.)
 *   O2  Counts of a slot are written by whoever has claimed it; its array of files is replaced under the mutex as well, and
 *       read by others under the mutex.
 *   O3  The counts of an index are zero when a file gets it.
 *   O4  Whoever finds a retired view in a slot leaves a mark there. A read that ends without one touches nothing of the store
 *       after its slot is free: the store may be closed then.
 *
 * Threads  as said at each function.   Not here: what a view is (view.c), what is counted when (read.c).
 */
#ifndef TM_ENGINE_SLOTS_H
#define TM_ENGINE_SLOTS_H

#include <stdatomic.h>

#include "engine/version.h"

enum {
    // Reads that run at the same moment, not threads; beyond, they take counted references under the mutex.
    TM_SLOT_COUNT = 128,
    TM_CACHE_LINE_BYTES = 64,
};

struct tm_view;

struct tm_read_counts {
    _Atomic uint64_t gets, gets_found, memtable_hits, tables_skipped_by_range, tables_read;
};

struct tm_slot {
    _Atomic uintptr_t
        view; // 0: free; its lowest bit: somebody waits for the view to be let go (O4)
    struct tm_read_counts counts;
    struct tm_file_counts *files; // O2
    uint32_t file_capacity;
};
_Static_assert(sizeof(struct tm_slot) == TM_CACHE_LINE_BYTES, "a slot is one cache line");

/* Of a store. */
struct tm_slots {
    struct tm_slot *slot; // TM_SLOT_COUNT of them
    void *memory;         // of the allocation in which they stand on cache lines

    // Guarded by the store's mutex
    uint64_t *used; // bit i: some file has count_index i
    size_t used_words;
};

/** TAMIS_OK or TAMIS_NO_MEMORY. */
TAMIS_NODISCARD tamis_status tm_slots_init(struct tm_slots *slots, const struct tm_env *env,
                                           tamis_error *err);
/** No read is running. Zeroed is allowed. */
void tm_slots_deinit(struct tm_slots *slots, const struct tm_env *env);

/**
 * Claim a free slot for the newest view, which *newest names. Any thread; no lock.
 *
 * @param view_out   [out] the view
 * @param moved_out  [out] another view stood in the slot for a moment, and was marked there
 * @return           NULL: all are taken
 */
struct tm_slot *tm_slot_claim(struct tm_slots *slots, _Atomic(struct tm_view *) *newest,
                              struct tm_view **view_out, bool *moved_out);
/** Free the slot in which `view` stands, unless it is marked (O4): then false, and it stays claimed. The thread that claimed it. */
static inline bool
tm_slot_free(struct tm_slot *slot, const struct tm_view *view)
{
    uintptr_t unmarked = (uintptr_t)view;

    return atomic_compare_exchange_strong_explicit(&slot->view, &unmarked, 0, memory_order_seq_cst,
                                                   memory_order_relaxed);
}
/** Free it, marked or not. */
static inline void
tm_slot_free_marked(struct tm_slot *slot)
{
    atomic_store_explicit(&slot->view, 0, memory_order_seq_cst);
}

/** Does a read look at `view`, which is no longer the newest (O1)? Marks the slots in which it stands. */
bool tm_slots_hold(struct tm_slots *slots, const struct tm_view *view);
/** Is a slot claimed? */
bool tm_slots_are_used(const struct tm_slots *slots);

/** Room for counts of files below `count`, if memory allows. Who claimed the slot, with the mutex held. */
void tm_slot_make_room(struct tm_slot *slot, const struct tm_env *env, uint32_t count);

/** An index for the counts of a file (O3). With the mutex held. TAMIS_OK or TAMIS_NO_MEMORY. */
TAMIS_NODISCARD tamis_status tm_slots_take_index(struct tm_slots *slots, const struct tm_env *env,
                                                 uint32_t *index_out, tamis_error *err);
/** Give it back: no view has the file any more. With the mutex held. */
void tm_slots_give_index(struct tm_slots *slots, uint32_t index);

/** Add up what was counted: of reads, beside `shared`; of a file. The latter with the mutex held. */
void tm_slots_sum_reads(const struct tm_slots *slots, const struct tm_read_counts *shared,
                        struct tm_read_counts *sum);
void tm_slots_sum_file(const struct tm_slots *slots, const struct tm_file *file,
                       struct tm_file_counts *sum);

/** Count in a slot that this thread has claimed. */
static inline void
tm_slot_count(_Atomic uint64_t *counter, uint64_t amount)
{
    atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + amount,
                          memory_order_relaxed);
}

#endif
