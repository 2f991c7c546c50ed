/* SPDX-License-Identifier: MIT
 *
 * engine/read.c -- the life of a point lookup.
 *
 *     1 hash  2 pin a view  3 memtables  4 candidate files, their filter lines prefetched  5 filters  |  6 index and block
 *     7 search in the block (sstable/)  |  8 the answer
 *
 * `grep -rn "READ PATH" engine sstable` prints the stops in order.
 *
 * Invariants
 *   R1  Places are asked from newest to oldest; the first that knows the key, found or deleted, ends the search.
 *   R2  "no" of a filter skips its file; "maybe" is checked in the file. Snapshots do not matter to filters: a filter
 *       holds the keys of all versions, tombstones included.
 *   R3  A probe is counted by how it ended, as a negative, a true or a false positive, so that FP / (FP + TN) is the filter's rate.
 */
#include <assert.h>

#include "engine/read.h"
#include "filter/hash.h"

/* ---- Candidates ----------------------------------------------------------------------------------- */

/* The next table whose range holds the key; NULL: there are no more. */
static struct tm_file *
next_candidate(struct tm_candidates *candidates)
{
    const struct tm_level *level = &candidates->version->level[0];
    const tamis_slice *key = &candidates->key;

    while (candidates->level == 0 && candidates->next_index < level->file_count) {
        struct tm_file *file = level->files[candidates->next_index++];

        if (tm_file_overlaps(file, key, key))
            return file;
        candidates->skipped_by_range++;
    }
    while (++candidates->level < TAMIS_LEVEL_COUNT) {
        struct tm_file *file;

        level = &candidates->version->level[candidates->level];
        if (level->file_count == 0)
            continue;
        file = tm_level_find(level, *key);
        candidates->skipped_by_range += level->file_count - (file != NULL);
        if (file != NULL)
            return file;
    }
    return NULL;
}

/* The key's hash under a table's own seed: the store's, unless the table came from elsewhere. */
static uint64_t
hash_for(const tamis_db *db, const struct tm_file *file, const struct tm_candidates *candidates)
{
    uint64_t seed = tm_table_hash_seed(file->table);

    return seed == db->hash_seed ? candidates->hash
                                 : tm_hash64(candidates->key.data, candidates->key.length, seed);
}

/* READ PATH 4/8: the files whose range holds the key, newest first; all their filter lines are on the way before the first
 * is looked at. */
void
tm_candidates_next(const tamis_db *db, struct tm_candidates *candidates)
{
    uint32_t count;

    for (count = 0; count < TM_CANDIDATES_MAX; count++) {
        struct tm_file *file = next_candidate(candidates);

        if (file == NULL)
            break;
        candidates->files[count] = file;
        candidates->hashes[count] = hash_for(db, file, candidates);
        tamis_filter_prefetch(tm_table_filter(file->table), candidates->hashes[count]);
    }
    candidates->count = count;
    candidates->is_begun = true;
}

void
tm_candidates_init(const struct tm_pin *pin, tamis_slice key, uint64_t hash,
                   struct tm_candidates *candidates)
{
    candidates->version = pin->view->version;
    candidates->key = key;
    candidates->hash = hash;
    candidates->skipped_by_range = 0;
    candidates->level = 0;
    candidates->next_index = 0;
    candidates->is_begun = false;
}

/* ---- Counts --------------------------------------------------------------------------------------- */

/* Plainly in the slot of this read, or, without one, where others count at the same time. */
static void
count_read(const struct tm_pin *pin, _Atomic uint64_t *counter, uint64_t amount)
{
    if (pin->slot != NULL)
        tm_slot_count(counter, amount);
    else
        tm_count(counter, amount);
}

static struct tm_read_counts *
read_counts(tamis_db *db, const struct tm_pin *pin)
{
    return pin->slot != NULL ? &pin->slot->counts : &db->counters.reads;
}

/* How a probe of a file's filter ended. */
enum probe_end { TRUE_POSITIVE, FALSE_POSITIVE, NEGATIVE };

static void
count_probe(const struct tm_pin *pin, struct tm_file *file, enum probe_end end)
{
    bool has_room = pin->slot != NULL && file->count_index < pin->slot->file_capacity;
    struct tm_file_counts *counts = has_room ? &pin->slot->files[file->count_index] : &file->counts;
    _Atomic uint64_t *counter = end == NEGATIVE        ? &counts->negatives
                                : end == TRUE_POSITIVE ? &counts->true_positives
                                                       : &counts->false_positives;

    if (has_room)
        tm_slot_count(counter, 1);
    else
        tm_count(counter, 1);
}

/* ---- Places --------------------------------------------------------------------------------------- */

/* Search one file whose filter said "maybe"; tells whether the filter was right. */
static tamis_status
search_file(tamis_db *db, const struct tm_pin *pin, struct tm_file *file, tamis_slice key,
            uint64_t hash, uint64_t sequence, struct tm_answer *answer, tamis_error *err)
{
    struct tm_found found;
    tamis_status status;

    status = tm_table_search(file->table, key, hash, sequence, &found, err);
    if (status != TAMIS_OK)
        return status;
    count_read(pin, &read_counts(db, pin)->tables_read, 1);
    // A version that is too new for this reader is in the filter all the same (R2).
    count_probe(pin, file, found.key_present ? TRUE_POSITIVE : FALSE_POSITIVE);
    answer->lookup = found.lookup;
    answer->sequence = found.sequence;
    answer->value = found.value;
    answer->block = found.block;
    return TAMIS_OK;
}

/* A range tombstone of a place hides what the same place holds of the key before it, and all older places (R1, V3). */
static void
apply_cover(struct tm_answer *answer, uint64_t cover)
{
    if (answer->lookup != TM_ABSENT && answer->sequence > cover)
        return;
    tm_block_unref(answer->block);
    *answer = (struct tm_answer){.lookup = TM_DELETED, .sequence = cover};
}

/* Ask one candidate: its filter, then the table, and its range tombstones whatever the filter said. */
static tamis_status
ask_file(tamis_db *db, const struct tm_pin *pin, struct tm_file *file, tamis_slice key,
         uint64_t hash, uint64_t sequence, bool filters_only, struct tm_answer *answer,
         tamis_error *err)
{
    bool maybe = tamis_filter_may_contain(tm_table_filter(file->table), hash);
    uint64_t cover = tm_range_set_cover(file->ranges, key, sequence);
    tamis_status status = TAMIS_OK;

    if (filters_only) { // not counted: whether a "maybe" was right is not found out (R3)
        if (maybe)
            answer->lookup = TM_FOUND;
        else if (cover != 0)
            answer->lookup = TM_DELETED;
        return TAMIS_OK;
    }
    if (maybe)
        status = search_file(db, pin, file, key, hash, sequence, answer, err);
    else
        count_probe(pin, file, NEGATIVE);
    if (status == TAMIS_OK && cover != 0)
        apply_cover(answer, cover);
    return status;
}

/* Ask files until one knows the key. With `filters_only` the first "maybe" ends the search as FOUND. */
static tamis_status
search_files(tamis_db *db, const struct tm_pin *pin, struct tm_candidates *candidates,
             uint64_t sequence, bool filters_only, struct tm_answer *answer, tamis_error *err)
{
    tamis_status status = TAMIS_OK;

    if (!candidates->is_begun)
        tm_candidates_next(db, candidates);
    for (;;) {
        /* READ PATH 5/8: ask the filters, newest to oldest (R1, R2). */
        for (uint32_t i = 0;
             i < candidates->count && answer->lookup == TM_ABSENT && status == TAMIS_OK; i++)
            status = ask_file(db, pin, candidates->files[i], candidates->key, candidates->hashes[i],
                              sequence, filters_only, answer, err);
        if (status != TAMIS_OK || answer->lookup != TM_ABSENT ||
            candidates->count < TM_CANDIDATES_MAX)
            break;
        tm_candidates_next(db, candidates);
    }
    count_read(pin, &read_counts(db, pin)->tables_skipped_by_range, candidates->skipped_by_range);
    return status;
}

static void
search_memtables(tamis_db *db, const struct tm_pin *pin, tamis_slice key, uint64_t hash,
                 uint64_t sequence, struct tm_answer *answer)
{
    struct tm_memtable *const memtables[2] = {pin->view->mem, pin->view->imm};

    for (int i = 0; i < 2 && memtables[i] != NULL; i++)
        tm_memtable_prefetch(memtables[i], hash);
    for (int i = 0; i < 2 && memtables[i] != NULL && answer->lookup == TM_ABSENT; i++) {
        struct tm_memtable_found found;

        tm_memtable_get(memtables[i], key, hash, sequence, &found);
        answer->lookup = found.lookup;
        answer->sequence = found.sequence;
        answer->value = found.value;
        answer->memtable = memtables[i];
    }
    if (answer->lookup != TM_ABSENT)
        count_read(pin, &read_counts(db, pin)->memtable_hits, 1);
}

tamis_status
tm_look_up(tamis_db *db, const struct tm_pin *pin, struct tm_candidates *candidates,
           uint64_t sequence, bool filters_only, struct tm_answer *answer, tamis_error *err)
{
    memset(answer, 0, sizeof *answer);
    /* READ PATH 3/8: memtables, newest first. */
    search_memtables(db, pin, candidates->key, candidates->hash, sequence, answer);
    if (answer->lookup != TM_ABSENT)
        return TAMIS_OK;
    return search_files(db, pin, candidates, sequence, filters_only, answer, err);
}

tamis_status
tm_begin_read(tamis_db *db, const tamis_read_options *options, struct tm_pin *pin_out,
              uint64_t *sequence_out, tamis_error *err)
{
    tamis_status status = tm_check_process(db, err);

    if (status != TAMIS_OK)
        return status;
    if (options != NULL && options->struct_size != sizeof *options)
        return TM_FAIL(err, TAMIS_INVALID,
                       "read options: expected struct_size %zu, found %u: use "
                       "tamis_read_options_init()",
                       sizeof *options, (unsigned)options->struct_size);
    /* READ PATH 2/8: pin the memtables and the version, so that nothing of them goes away meanwhile. */
    tm_pin_read(db, options != NULL ? options->snapshot : NULL, pin_out, sequence_out);
    return TAMIS_OK;
}

/* READ PATH 8/8: the answer. DELETED in the newest place that knows the key is "not found". */
tamis_status
tm_conclude(tamis_db *db, const struct tm_pin *pin, const struct tm_answer *answer)
{
    struct tm_read_counts *counts = read_counts(db, pin);

    count_read(pin, &counts->gets, 1);
    if (answer->lookup != TM_FOUND)
        return TAMIS_NOT_FOUND;
    count_read(pin, &counts->gets_found, 1);
    return TAMIS_OK;
}

void
tm_pin_answer(tamis_db *db, const struct tm_answer *answer, tamis_pinned *pinned)
{
    pinned->value = answer->value;
    pinned->owner[0] = db;
    pinned->owner[1] = answer->block;
    pinned->owner[2] = answer->memtable;
    if (answer->memtable != NULL)
        tm_memtable_ref(answer->memtable);
}

/* One key, from its checks to its answer; unless a check fails there is a pin to give back. */
static tamis_status
read_one(tamis_db *db, const tamis_read_options *options, tamis_slice key, bool filters_only,
         struct tm_pin *pin_out, struct tm_answer *answer, tamis_error *err)
{
    struct tm_candidates candidates;
    uint64_t sequence;
    uint64_t hash;
    tamis_status status = tm_check_key(key, err);

    answer->block = NULL;
    pin_out->view = NULL;
    if (status != TAMIS_OK)
        return status;
    /* READ PATH 1/8: one hash of the key serves every filter and every tag. */
    hash = tm_hash64(key.data, key.length, db->hash_seed);
    status = tm_begin_read(db, options, pin_out, &sequence, err);
    if (status != TAMIS_OK)
        return status;
    tm_candidates_init(pin_out, key, hash, &candidates);
    return tm_look_up(db, pin_out, &candidates, sequence, filters_only, answer, err);
}

static void
end_read(tamis_db *db, const struct tm_pin *pin)
{
    if (pin->view != NULL)
        tm_unpin_read(db, pin);
}

tamis_status
tamis_get(tamis_db *db, const tamis_read_options *options, tamis_slice key, void *buffer,
          size_t capacity, size_t *length_out, tamis_error *err)
{
    struct tm_pin pin;
    struct tm_answer answer;
    tamis_status status = read_one(db, options, key, false, &pin, &answer, err);

    if (status == TAMIS_OK)
        status = tm_conclude(db, &pin, &answer);
    if (status == TAMIS_OK) {
        size_t length = answer.value.length < capacity ? answer.value.length : capacity;

        if (length != 0)
            memcpy(buffer, answer.value.data, length);
        *length_out = answer.value.length;
    }
    tm_block_unref(answer.block);
    end_read(db, &pin);
    return status;
}

tamis_status
tamis_get_pinned(tamis_db *db, const tamis_read_options *options, tamis_slice key,
                 tamis_pinned *pinned_out, tamis_error *err)
{
    struct tm_pin pin;
    struct tm_answer answer;
    tamis_status status = read_one(db, options, key, false, &pin, &answer, err);

    memset(pinned_out, 0, sizeof *pinned_out);
    if (status == TAMIS_OK)
        status = tm_conclude(db, &pin, &answer);
    if (status == TAMIS_OK) {
        tm_pin_answer(db, &answer, pinned_out);
        atomic_fetch_add_explicit(&db->live_handles, 1, memory_order_relaxed);
    } else {
        tm_block_unref(answer.block);
    }
    end_read(db, &pin);
    return status;
}

void
tamis_pinned_release(tamis_pinned *pinned)
{
    tamis_db *db = pinned->owner[0];

    if (db == NULL || tm_check_process(db, NULL) != TAMIS_OK)
        return; // a child's copy ends with the child
    tm_block_unref(pinned->owner[1]);
    tm_memtable_unref(pinned->owner[2]);
    memset(pinned, 0, sizeof *pinned);
    atomic_fetch_sub_explicit(&db->live_handles, 1, memory_order_release);
}

tamis_status
tamis_exists(tamis_db *db, const tamis_read_options *options, tamis_slice key, bool *exists_out,
             tamis_error *err)
{
    struct tm_pin pin;
    struct tm_answer answer;
    tamis_status status = read_one(db, options, key, false, &pin, &answer, err);

    if (status == TAMIS_OK)
        *exists_out = tm_conclude(db, &pin, &answer) == TAMIS_OK;
    tm_block_unref(answer.block);
    end_read(db, &pin);
    return status;
}

tamis_status
tamis_may_exist(tamis_db *db, tamis_slice key, bool *may_exist_out, tamis_error *err)
{
    struct tm_pin pin;
    struct tm_answer answer;
    tamis_status status = read_one(db, NULL, key, true, &pin, &answer, err);

    assert(answer.block == NULL);
    if (status == TAMIS_OK)
        *may_exist_out = answer.lookup == TM_FOUND;
    end_read(db, &pin);
    return status;
}

/* ---- Snapshots ------------------------------------------------------------------------------------ */

tamis_status
tamis_snapshot_take(tamis_db *db, tamis_snapshot **snapshot_out, tamis_error *err)
{
    tamis_snapshot *snapshot;
    tamis_status status = tm_check_process(db, err);

    if (status != TAMIS_OK)
        return status;
    snapshot = tm_alloc_zeroed(&db->env, sizeof *snapshot);
    if (snapshot == NULL)
        return TM_NO_MEMORY(err, sizeof *snapshot);
    if (db->options.read_only)
        snapshot->view = tm_view_pin(db, NULL, &snapshot->sequence);
    tm_lock(db);
    if (snapshot->view == NULL)
        snapshot->sequence = atomic_load_explicit(&db->visible_sequence, memory_order_acquire);
    snapshot->previous = db->snapshots.previous; // sequences only grow, so the end is its place
    snapshot->next = &db->snapshots;
    snapshot->previous->next = snapshot;
    snapshot->next->previous = snapshot;
    tm_unlock(db);
    atomic_fetch_add_explicit(&db->live_handles, 1, memory_order_relaxed);
    *snapshot_out = snapshot;
    return TAMIS_OK;
}

void
tamis_snapshot_release(tamis_db *db, tamis_snapshot *snapshot)
{
    if (snapshot == NULL || tm_check_process(db, NULL) != TAMIS_OK)
        return; // a child's copy ends with the child
    tm_lock(db);
    snapshot->previous->next = snapshot->next;
    snapshot->next->previous = snapshot->previous;
    if (snapshot->previous ==
        &db->snapshots) { // it was the oldest: tombstones that waited for it may go
        db->compact_due = true;
        tm_notify(db);
    }
    tm_unlock(db);
    if (snapshot->view != NULL)
        tm_view_unref(db, snapshot->view);
    tm_release(&db->env, snapshot, sizeof *snapshot);
    atomic_fetch_sub_explicit(&db->live_handles, 1, memory_order_release);
}
