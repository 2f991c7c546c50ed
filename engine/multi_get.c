/* SPDX-License-Identifier: MIT
 *
 * engine/multi_get.c -- many lookups at one moment, whose accesses to memory overlap.
 *
 *     for a group of keys   1 hash; filter lines of memtables and tables on their way
 *                           2 the table that will be read by each key, the block's number; its place in the cache on its way
 *                           3 that block's head on its way
 *                           4 each key is looked up, as if alone: by tm_look_up(), which meets all of this in the cache
 *
 * The first three only bring memory closer. Answers and counts come from the fourth alone, so there is one way to look up a key.
 */
#include "engine/read.h"
#include "filter/hash.h"

/* Keys whose accesses are on their way together: some ten lines each, of which the processor's nearest cache holds 500 and more. */
enum { GROUP_KEYS = 32 };

/* One key of the group, and where it will probably be found. */
struct member {
    tamis_lookup *lookup;
    struct tm_candidates candidates;
    struct tm_table *table; // NULL: not in a table, as far as is known
    size_t block_number;
};

static void
begin_member(const tamis_db *db, const struct tm_pin *pin, tamis_lookup *lookup,
             struct member *member)
{
    uint64_t hash = tm_hash64(lookup->key.data, lookup->key.length, db->hash_seed);

    member->lookup = lookup;
    member->table = NULL;
    tm_memtable_prefetch(pin->view->mem, hash);
    if (pin->view->imm != NULL)
        tm_memtable_prefetch(pin->view->imm, hash);
    tm_candidates_init(pin, lookup->key, hash, &member->candidates);
    tm_candidates_next(db, &member->candidates);
}

/* The first table whose filter says "maybe", unless a memtable's does. */
static void
find_block(const struct tm_view *view, struct member *member)
{
    const struct tm_candidates *candidates = &member->candidates;

    if (tm_memtable_may_contain(view->mem, candidates->hash) ||
        (view->imm != NULL && tm_memtable_may_contain(view->imm, candidates->hash)))
        return;
    for (uint32_t i = 0; i < candidates->count && member->table == NULL; i++) {
        struct tm_table *table = candidates->files[i]->table;

        if (!tamis_filter_may_contain(tm_table_filter(table), candidates->hashes[i]))
            continue;
        member->table = table;
        member->block_number = tm_table_prefetch_place(table, candidates->key);
    }
}

/* Hand over what was found, or say why not. */
static void
answer_member(tamis_db *db, const struct tm_pin *pin, uint64_t sequence, struct member *member,
              tamis_error *err)
{
    struct tm_answer answer;
    tamis_lookup *lookup = member->lookup;

    lookup->status = tm_look_up(db, pin, &member->candidates, sequence, false, &answer, err);
    if (lookup->status == TAMIS_OK)
        lookup->status = tm_conclude(db, pin, &answer);
    if (lookup->status == TAMIS_OK)
        tm_pin_answer(db, &answer, &lookup->value);
    else
        tm_block_unref(answer.block);
}

/* `lookups`: 1 .. GROUP_KEYS of them. `err` is that of the first failure of all groups. */
static void
get_group(tamis_db *db, const struct tm_pin *pin, uint64_t sequence, tamis_lookup *lookups,
          size_t count, tamis_status *status, tamis_error *err)
{
    struct member members[GROUP_KEYS];
    size_t member_count = 0;

    for (size_t i = 0; i < count; i++) {
        lookups[i].status = tm_check_key(lookups[i].key, *status == TAMIS_OK ? err : NULL);
        if (lookups[i].status != TAMIS_OK) {
            *status = *status == TAMIS_OK ? lookups[i].status : *status;
            continue;
        }
        begin_member(db, pin, &lookups[i], &members[member_count++]);
    }
    for (size_t i = 0; i < member_count; i++)
        find_block(pin->view, &members[i]);
    for (size_t i = 0; i < member_count; i++)
        if (members[i].table != NULL)
            tm_table_prefetch_block(members[i].table, members[i].block_number);
    for (size_t i = 0; i < member_count; i++) {
        tamis_status answered;

        answer_member(db, pin, sequence, &members[i], *status == TAMIS_OK ? err : NULL);
        answered = members[i].lookup->status;
        if (*status == TAMIS_OK && answered != TAMIS_OK && answered != TAMIS_NOT_FOUND)
            *status = answered;
    }
}

tamis_status
tamis_multi_get(tamis_db *db, const tamis_read_options *options, tamis_lookup *lookups,
                size_t count, tamis_error *err)
{
    uint64_t found_count = 0;
    struct tm_pin pin;
    uint64_t sequence;
    tamis_status status = tm_begin_read(db, options, &pin, &sequence, err);

    for (size_t i = 0; i < count; i++) {
        lookups[i].status = status;
        memset(&lookups[i].value, 0, sizeof lookups[i].value);
    }
    if (status != TAMIS_OK)
        return status;
    for (size_t i = 0; i < count; i += GROUP_KEYS)
        get_group(db, &pin, sequence, lookups + i, count - i < GROUP_KEYS ? count - i : GROUP_KEYS,
                  &status, err);
    for (size_t i = 0; i < count; i++)
        found_count += lookups[i].status == TAMIS_OK;
    atomic_fetch_add_explicit(&db->live_handles, found_count, memory_order_relaxed);
    tm_unpin_read(db, &pin);
    return status;
}
