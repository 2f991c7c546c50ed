/* SPDX-License-Identifier: MIT
 *
 * engine/slots.c -- claim and free slots; add up what was counted in them.
 */
#include "engine/slots.h"

#include <assert.h>

enum {
    FILES_MIN = 64, // counts of so many files at first: 1.5 KiB
    INDEX_WORD_BITS = 64,
    MARK = 1, // O4; views are aligned
};

/* Where this thread found a free slot last: it is likely free again, and its line still here. */
static _Thread_local uint32_t slot_hint __attribute__((tls_model("initial-exec")));

tamis_status
tm_slots_init(struct tm_slots *slots, const struct tm_env *env, tamis_error *err)
{
    size_t bytes = (TM_SLOT_COUNT + 1) * sizeof *slots->slot;

    slots->memory = tm_alloc_zeroed(env, bytes);
    if (slots->memory == NULL)
        return TM_NO_MEMORY(err, bytes);
    slots->slot = (struct tm_slot *)(((uintptr_t)slots->memory + TM_CACHE_LINE_BYTES - 1) /
                                     TM_CACHE_LINE_BYTES * TM_CACHE_LINE_BYTES);
    return TAMIS_OK;
}

void
tm_slots_deinit(struct tm_slots *slots, const struct tm_env *env)
{
    if (slots->memory == NULL)
        return;
    assert(!tm_slots_are_used(slots));
    for (size_t i = 0; i < TM_SLOT_COUNT; i++)
        tm_release(env, slots->slot[i].files,
                   slots->slot[i].file_capacity * sizeof *slots->slot[i].files);
    tm_release(env, slots->used, slots->used_words * sizeof *slots->used);
    tm_release(env, slots->memory, (TM_SLOT_COUNT + 1) * sizeof *slots->slot);
    memset(slots, 0, sizeof *slots);
}

/* ---- Claims --------------------------------------------------------------------------------------- */

struct tm_slot *
tm_slot_claim(struct tm_slots *slots, _Atomic(struct tm_view *) *newest, struct tm_view **view_out,
              bool *moved_out)
{
    struct tm_view *view = atomic_load_explicit(newest, memory_order_acquire);

    for (uint32_t i = 0; i < TM_SLOT_COUNT; i++) {
        uint32_t index = (slot_hint + i) % TM_SLOT_COUNT;
        struct tm_slot *slot = &slots->slot[index];
        uintptr_t free_slot = 0;
        struct tm_view *now;

        if (atomic_load_explicit(&slot->view, memory_order_relaxed) != 0 ||
            !atomic_compare_exchange_strong_explicit(&slot->view, &free_slot, (uintptr_t)view,
                                                     memory_order_seq_cst, memory_order_relaxed))
            continue;
        slot_hint = index;
        *moved_out = false;
        while ((now = atomic_load_explicit(newest, memory_order_seq_cst)) != view) { // O1
            uintptr_t before =
                atomic_exchange_explicit(&slot->view, (uintptr_t)now, memory_order_seq_cst);

            *moved_out |= (before & MARK) != 0;
            view = now;
        }
        *view_out = view;
        return slot;
    }
    return NULL;
}

bool
tm_slots_hold(struct tm_slots *slots, const struct tm_view *view)
{
    bool holds = false;

    for (size_t i = 0; i < TM_SLOT_COUNT; i++) {
        uintptr_t held = (uintptr_t)view;

        holds |=
            atomic_compare_exchange_strong_explicit(&slots->slot[i].view, &held, held | MARK,
                                                    memory_order_seq_cst, memory_order_seq_cst) ||
            held == ((uintptr_t)view | MARK);
    }
    return holds;
}

bool
tm_slots_are_used(const struct tm_slots *slots)
{
    bool used = false;

    for (size_t i = 0; i < TM_SLOT_COUNT; i++)
        used |= atomic_load_explicit(&slots->slot[i].view, memory_order_seq_cst) != 0;
    return used;
}

/* ---- Counts --------------------------------------------------------------------------------------- */

void
tm_slot_make_room(struct tm_slot *slot, const struct tm_env *env, uint32_t count)
{
    uint32_t capacity = slot->file_capacity != 0 ? slot->file_capacity : FILES_MIN;
    struct tm_file_counts *files;

    while (capacity < count)
        capacity *= 2;
    files = tm_alloc_zeroed(env, capacity * sizeof *files);
    if (files == NULL)
        return; // counted in the file itself
    if (slot->file_capacity != 0)
        memcpy(files, slot->files, slot->file_capacity * sizeof *files);
    tm_release(env, slot->files, slot->file_capacity * sizeof *files);
    slot->files = files;
    slot->file_capacity = capacity;
}

tamis_status
tm_slots_take_index(struct tm_slots *slots, const struct tm_env *env, uint32_t *index_out,
                    tamis_error *err)
{
    size_t word = 0;
    uint32_t bit;

    while (word < slots->used_words && slots->used[word] == UINT64_MAX)
        word++;
    if (word == slots->used_words) {
        size_t words = slots->used_words != 0 ? slots->used_words * 2 : 1;
        uint64_t *used =
            tm_resize(env, slots->used, slots->used_words * sizeof *used, words * sizeof *used);

        if (used == NULL)
            return TM_NO_MEMORY(err, words * sizeof *used);
        memset(used + slots->used_words, 0, (words - slots->used_words) * sizeof *used);
        slots->used = used;
        slots->used_words = words;
    }
    bit = (uint32_t)__builtin_ctzll(~slots->used[word]);
    slots->used[word] |= UINT64_C(1) << bit;
    *index_out = (uint32_t)word * INDEX_WORD_BITS + bit;
    return TAMIS_OK;
}

void
tm_slots_give_index(struct tm_slots *slots, uint32_t index)
{
    assert((slots->used[index / INDEX_WORD_BITS] >> index % INDEX_WORD_BITS & 1) != 0);
    slots->used[index / INDEX_WORD_BITS] &= ~(UINT64_C(1) << index % INDEX_WORD_BITS);
    for (size_t i = 0; i < TM_SLOT_COUNT; i++)
        if (index < slots->slot[i].file_capacity)
            memset(&slots->slot[i].files[index], 0, sizeof *slots->slot[i].files); // O3
}

static void
add(_Atomic uint64_t *sum, const _Atomic uint64_t *counter)
{
    tm_slot_count(sum, atomic_load_explicit(counter, memory_order_relaxed));
}

static void
add_reads(struct tm_read_counts *sum, const struct tm_read_counts *counts)
{
    add(&sum->gets, &counts->gets);
    add(&sum->gets_found, &counts->gets_found);
    add(&sum->memtable_hits, &counts->memtable_hits);
    add(&sum->tables_skipped_by_range, &counts->tables_skipped_by_range);
    add(&sum->tables_read, &counts->tables_read);
}

static void
add_file(struct tm_file_counts *sum, const struct tm_file_counts *counts)
{
    add(&sum->true_positives, &counts->true_positives);
    add(&sum->false_positives, &counts->false_positives);
    add(&sum->negatives, &counts->negatives);
}

void
tm_slots_sum_reads(const struct tm_slots *slots, const struct tm_read_counts *shared,
                   struct tm_read_counts *sum)
{
    memset(sum, 0, sizeof *sum);
    add_reads(sum, shared);
    for (size_t i = 0; i < TM_SLOT_COUNT; i++)
        add_reads(sum, &slots->slot[i].counts);
}

void
tm_slots_sum_file(const struct tm_slots *slots, const struct tm_file *file,
                  struct tm_file_counts *sum)
{
    memset(sum, 0, sizeof *sum);
    add_file(sum, &file->counts);
    for (size_t i = 0; i < TM_SLOT_COUNT; i++)
        if (file->count_index < slots->slot[i].file_capacity)
            add_file(sum, &slots->slot[i].files[file->count_index]);
}
