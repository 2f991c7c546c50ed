/* SPDX-License-Identifier: MIT
 *
 * engine/merge_write.c -- entries in, tables out: what flush, compaction and recovery have in common.
 *
 * The life of one key in a merge, newest version first, cut by the snapshots that are alive (S1 < S2 < now):
 *
 *     sequence   90   75   60   40   20
 *     put/del     p    p    d    p    p          now sees 90, S2 = 70 sees 60, S1 = 30 sees 20
 *     kept        *         *         *          75 and 40 are seen by nobody
 *
 * A version is kept when it is the newest at or below some snapshot; that is, when a snapshot lies between it and the next newer
 * version. It goes all the same when a range tombstone hides it from that snapshot and so from all later ones. A kept
 * tombstone, of a key or a range, goes as well when the oldest snapshot sees it and nothing older of its key lies deeper: then
 * it hides only versions that go with it.
 *
 *     output 1            output 2             A range that reaches over several outputs is cut where they are: behind the
 *     a b c               e f g                last key that was looked at before the cut, so that outputs stay disjoint; and
 *     |------range------------|                where the merge begins and ends, when it has part of the keys only. An output of
 *     a       ]c+ c+          g                ranges alone gets a tombstone of the first one's start: tables have at least one
 *                                              entry.
 *
 * Invariants
 *   G1  For every live snapshot and for now, a read gives the same answer before and after.
 *   G2  All versions of a key that are kept stand in one output (V3).
 */
#include <assert.h>

#include "engine/db_internal.h"

/* ---- Files ---------------------------------------------------------------------------------------- */

tamis_status
tm_file_open(tamis_db *db, uint64_t number, struct tm_table_facts *facts,
             struct tm_file **file_out, tamis_error *err)
{
    struct tm_table_identity identity = {facts->file_bytes, facts->unique_id, facts->data_id,
                                         facts->checksum};
    struct tm_file *file = tm_alloc_zeroed(&db->env, sizeof *file);
    char name[TM_NAME_BYTES_MAX];
    tamis_status status;

    if (file == NULL)
        return TM_NO_MEMORY(err, sizeof *file);
    tm_lock(db);
    status = tm_slots_take_index(&db->slots, &db->env, &file->count_index, err);
    tm_unlock(db);
    if (status != TAMIS_OK) {
        tm_release(&db->env, file, sizeof *file);
        return status;
    }
    tm_name_make(TM_NAME_TABLE, number, name);
    status = tm_table_open(&db->env, db->dir, name, &identity, db->cache, &db->descriptors,
                           &file->table, err);
    if (status != TAMIS_OK) {
        tm_file_close(db, file);
        return status;
    }
    file->number = number;
    file->order = &db->env.order;
    file->ranges = tm_table_ranges(file->table);
    file->facts = *facts;
    file->facts.range_count = tm_table_facts(file->table)->range_count; // not in the manifest
    memset(facts, 0, sizeof *facts);
    if (tm_table_filter_damage(file->table) != TAMIS_FILTER_SOUND)
        tm_report_now(
            db, TAMIS_LOG_WARNING,
            "%s: filter: %s: it answers \"maybe\", and lookups read more, until the table is merged",
            name, tamis_filter_damage_name(tm_table_filter_damage(file->table)));
    file->false_positive_rate_theory =
        tamis_theory_false_positive_rate(&tm_table_filter_info(file->table)->geometry);
    *file_out = file;
    return TAMIS_OK;
}

void
tm_file_close(tamis_db *db, struct tm_file *file)
{
    tm_lock(db);
    tm_slots_give_index(&db->slots, file->count_index);
    tm_unlock(db);
    tm_file_destroy(&db->env, file);
}

static tamis_status
outputs_add(tamis_db *db, struct tm_outputs *outputs, uint32_t level, struct tm_file *file,
            tamis_error *err)
{
    if (outputs->count == outputs->capacity) {
        size_t capacity = outputs->capacity != 0 ? outputs->capacity * 2 : 4;
        struct tm_file_add *adds =
            tm_resize(&db->env, outputs->adds, outputs->capacity * sizeof *adds,
                      capacity * sizeof *adds);

        if (adds == NULL)
            return TM_NO_MEMORY(err, capacity * sizeof *adds);
        outputs->adds = adds;
        outputs->capacity = capacity;
    }
    outputs->adds[outputs->count].level = level;
    outputs->adds[outputs->count].file = file;
    outputs->count++;
    return TAMIS_OK;
}

void
tm_outputs_release(tamis_db *db, struct tm_outputs *outputs)
{
    tm_release(&db->env, outputs->adds, outputs->capacity * sizeof *outputs->adds);
    memset(outputs, 0, sizeof *outputs);
}

void
tm_outputs_discard(tamis_db *db, struct tm_outputs *outputs)
{
    for (size_t i = 0; i < outputs->count; i++) {
        uint64_t number = outputs->adds[i].file->number;

        tm_file_close(db, outputs->adds[i].file);
        tm_remove_unneeded(db, TM_NAME_TABLE, number); // no manifest names it
    }
    tm_outputs_release(db, outputs);
}

/* ---- One output after the other ------------------------------------------------------------------- */

struct merge {
    tamis_db *db;
    const struct tm_merge_rules *rules;
    struct tm_outputs *outputs;
    struct tm_table_builder *builder; // NULL: no output is open
    uint64_t number;
    struct tm_buf key;          // of the entries looked at last
    bool have_key;
    uint64_t newer_sequence;    // of the version before, of the same key
    struct tm_range_set *ranges; // all of them: what they hide goes; NULL: none
    struct tm_range *kept;       // those that outputs get, room for all of them
    size_t kept_count;
    struct tm_range *pieces; // those of one output, room for all of them
    struct tm_buf from, to;  // where the output begins and ends; ranges are cut there
    bool has_from;           // false: it begins with the first key there is
};

static tamis_status
start_output(struct merge *merge, tamis_error *err)
{
    tamis_db *db = merge->db;
    char name[TM_NAME_BYTES_MAX];

    tm_lock(db);
    merge->number = db->next_file_number++;
    tm_unlock(db);
    tm_name_make(TM_NAME_TABLE, merge->number, name);
    return tm_table_builder_create(&db->env, db->dir, name, &db->table_options, &merge->builder,
                                   err);
}

/* Fill merge->pieces with what the kept ranges have between merge->from and `to` (NULL: no bound). */
static size_t
cut_ranges(struct merge *merge, const tamis_slice *to)
{
    tamis_slice from = tm_slice(merge->from.data, merge->from.length);
    size_t count = 0;

    for (size_t i = 0; i < merge->kept_count; i++) {
        struct tm_range piece = merge->kept[i];

        if (merge->has_from && tm_slice_compare(piece.from, from) < 0)
            piece.from = from;
        if (to != NULL && tm_slice_compare(piece.to, *to) > 0)
            piece.to = *to;
        if (tm_slice_compare(piece.from, piece.to) < 0)
            merge->pieces[count++] = piece;
    }
    tm_range_sort(merge->pieces, count); // cutting made starts equal
    return count;
}

/* Give the output its ranges, up to `to`; start one for them if there are any and none is open. */
static tamis_status
write_ranges(struct merge *merge, const tamis_slice *to, tamis_error *err)
{
    size_t count = cut_ranges(merge, to);
    tamis_status status = TAMIS_OK;

    if (count != 0 && merge->builder == NULL) {
        const struct tm_entry first = {.key = merge->pieces[0].from,
                                       .sequence = merge->pieces[0].sequence,
                                       .kind = TM_KIND_DELETE};

        status = start_output(merge, err);
        if (status == TAMIS_OK)
            status = tm_table_builder_add(merge->builder, &first, err);
    }
    for (size_t i = 0; status == TAMIS_OK && i < count; i++)
        status = tm_table_builder_add_range(merge->builder, &merge->pieces[i], err);
    return status;
}

/* Seal the output, if there is one. Its ranges end at `to` (NULL: where they end). */
static tamis_status
finish_output(struct merge *merge, const tamis_slice *to, tamis_error *err)
{
    tamis_db *db = merge->db;
    struct tm_table_facts facts = {0};
    struct tm_file *file = NULL;
    tamis_status status;

    status = write_ranges(merge, to, err);
    if (status != TAMIS_OK || merge->builder == NULL)
        return status;
    status = tm_table_builder_finish(merge->builder, &facts, err);
    merge->builder = NULL;
    if (status != TAMIS_OK)
        return status;
    status = tm_file_open(db, merge->number, &facts, &file, err);
    if (status == TAMIS_OK) {
        status = outputs_add(db, merge->outputs, merge->rules->level, file, err);
        if (status != TAMIS_OK)
            tm_file_close(db, file);
    }
    if (status != TAMIS_OK)
        tm_remove_unneeded(db, TM_NAME_TABLE, merge->number);
    tm_table_facts_release(&db->env, &facts);
    return status;
}

/* Ranges cannot be cut behind a key of the greatest length, since the next key there can be is longer. */
static bool
may_cut(const struct merge *merge)
{
    return merge->kept_count == 0 || merge->key.length < TAMIS_KEY_BYTES_MAX;
}

/* End the output behind the last key that was looked at. */
static tamis_status
cut_output(struct merge *merge, tamis_error *err)
{
    const struct tm_env *env = &merge->db->env;
    struct tm_buf *to = &merge->to;
    struct tm_buf swap;
    tamis_slice bound;
    tamis_status status;

    to->length = 0;
    status = tm_buf_append(env, to, merge->key.data, merge->key.length, err);
    if (status == TAMIS_OK)
        status = tm_buf_append(env, to, "", 1, err); // the next key there can be
    if (status != TAMIS_OK)
        return status;
    bound = tm_slice(to->data, to->length);
    status = finish_output(merge, &bound, err);
    swap = merge->from;
    merge->from = merge->to;
    merge->to = swap;
    merge->has_from = true;
    return status;
}

/* The oldest snapshot that sees `sequence`; UINT64_MAX: none does yet. Few snapshots are alive. */
static uint64_t
oldest_viewer(const struct tm_merge_rules *rules, uint64_t sequence)
{
    for (size_t i = 0; i < rules->snapshot_count; i++)
        if (rules->snapshots[i] >= sequence)
            return rules->snapshots[i];
    return UINT64_MAX;
}

/* Does a snapshot (or now) see `sequence`, given that the next newer version of the key has `newer`? */
static bool
is_seen(const struct tm_merge_rules *rules, uint64_t sequence, uint64_t newer)
{
    uint64_t snapshot = oldest_viewer(rules, sequence);

    // Newer than every snapshot: only its being the newest keeps it.
    return snapshot != UINT64_MAX ? snapshot < newer : newer == UINT64_MAX;
}

/* Is the entry hidden by a range from every snapshot that sees it? */
static bool
is_covered(const struct merge *merge, const struct tm_entry *entry)
{
    uint64_t snapshot;

    if (merge->ranges == NULL)
        return false;
    snapshot = oldest_viewer(merge->rules, entry->sequence);
    return snapshot != UINT64_MAX &&
           tm_range_set_cover(merge->ranges, entry->key, snapshot) > entry->sequence;
}

bool
tm_merge_hides(const struct tm_merge_rules *rules, const struct tm_file *file)
{
    // Whoever sees a newer entry than the oldest one sees all ranges that the oldest one's first viewer does.
    uint64_t snapshot = oldest_viewer(rules, file->facts.sequence_min);

    for (size_t i = 0; snapshot != UINT64_MAX && i < rules->ranges_count; i++) {
        struct tm_range around = tm_range_set_around(rules->ranges[i], tm_file_smallest(file),
                                                     file->facts.sequence_max, snapshot);

        if (around.sequence != 0 &&
            tm_order_compare(file->order, tm_file_largest(file), around.to) < 0)
            return true;
    }
    return false;
}

/* Is the range of no use: within a newer one that every snapshot sees with it, or at the bottom and seen by all? */
static bool
is_spent(const struct merge *merge, const struct tm_range *range)
{
    const struct tm_merge_rules *rules = merge->rules;
    uint64_t snapshot = oldest_viewer(rules, range->sequence);

    if (snapshot != UINT64_MAX && tm_range_set_contains(merge->ranges, range, snapshot))
        return true;
    return rules->drops_range != NULL && range->sequence <= rules->snapshots[0] &&
           rules->drops_range(rules->arg, range);
}

static size_t
range_bytes(const struct merge *merge)
{
    return tm_range_set_bytes(merge->ranges->count) +
           2 * merge->ranges->count * sizeof *merge->kept;
}

/* One set of all ranges, and which of them stay. */
static tamis_status
take_ranges(struct merge *merge, tamis_error *err)
{
    const struct tm_merge_rules *rules = merge->rules;
    size_t count = 0;
    size_t bytes;
    void *memory;

    for (size_t i = 0; i < rules->ranges_count; i++)
        count += rules->ranges[i]->count;
    if (count == 0)
        return TAMIS_OK;
    bytes = tm_range_set_bytes(count) + 2 * count * sizeof *merge->kept;
    memory = tm_alloc(&merge->db->env, bytes);
    if (memory == NULL)
        return TM_NO_MEMORY(err, bytes);
    merge->kept = memory;
    merge->pieces = merge->kept + count;
    merge->ranges = tm_range_set_merge(merge->pieces + count, rules->ranges, rules->ranges_count);
    for (size_t i = 0; i < count; i++)
        if (!is_spent(merge, &merge->ranges->ranges[i]))
            merge->kept[merge->kept_count++] = merge->ranges->ranges[i];
    return TAMIS_OK;
}

/* To the first entry of the merge. */
static tamis_status
begin(struct merge *merge, struct tm_iter *iter, tamis_error *err)
{
    const tamis_slice *from = merge->rules->from;

    if (from == NULL) {
        iter->vtable->first(iter);
        return TAMIS_OK;
    }
    iter->vtable->seek(iter, *from, TM_SEQUENCE_MAX);
    merge->has_from = true;
    return tm_buf_append(&merge->db->env, &merge->from, from->data, from->length, err);
}

static tamis_status
take_entry(struct merge *merge, const struct tm_entry *entry, tamis_error *err)
{
    const struct tm_merge_rules *rules = merge->rules;
    const struct tm_env *env = &merge->db->env;
    tamis_status status;
    bool same_key = merge->have_key && tm_order_equal(&env->order, entry->key,
                                                      tm_slice(merge->key.data, merge->key.length));

    if (!same_key) {
        if (merge->builder != NULL && may_cut(merge) &&
            tm_table_builder_bytes(merge->builder) >= rules->table_bytes) {
            status = cut_output(merge, err); // between keys (G2)
            if (status != TAMIS_OK)
                return status;
        }
        merge->key.length = 0;
        status = tm_buf_append(env, &merge->key, entry->key.data, entry->key.length, err);
        if (status != TAMIS_OK)
            return status;
        merge->have_key = true;
        merge->newer_sequence = UINT64_MAX;
    }
    if (!is_seen(rules, entry->sequence, merge->newer_sequence)) {
        merge->newer_sequence = entry->sequence;
        return TAMIS_OK;
    }
    merge->newer_sequence = entry->sequence;
    if (is_covered(merge, entry))
        return TAMIS_OK;
    if (entry->kind == TM_KIND_DELETE && rules->drops_tombstone != NULL &&
        entry->sequence <= rules->snapshots[0] && rules->drops_tombstone(rules->arg, entry->key))
        return TAMIS_OK;
    if (merge->builder == NULL) {
        status = start_output(merge, err);
        if (status != TAMIS_OK)
            return status;
    }
    return tm_table_builder_add(merge->builder, entry, err);
}

tamis_status
tm_merge_write(tamis_db *db, struct tm_iter *iter, const struct tm_merge_rules *rules,
               struct tm_outputs *outputs, tamis_error *err)
{
    struct merge merge = {.db = db, .rules = rules, .outputs = outputs};
    tamis_status status = TAMIS_OK;

    assert(rules->snapshot_count > 0);
    status = take_ranges(&merge, err);
    if (status == TAMIS_OK)
        status = begin(&merge, iter, err);
    while (
        status == TAMIS_OK && iter->valid &&
        (rules->to == NULL || tm_order_compare(&db->env.order, iter->entry.key, *rules->to) < 0)) {
        if (atomic_load_explicit(&db->closing, memory_order_relaxed) && rules->level != 0) {
            status = TM_FAIL(err, TAMIS_BUSY, "the store is closing");
            break;
        }
        status = take_entry(&merge, &iter->entry, err);
        if (status == TAMIS_OK)
            iter->vtable->next(iter);
    }
    if (status == TAMIS_OK && iter->status != TAMIS_OK) {
        status = iter->status;
        if (err != NULL)
            *err = iter->error;
    }
    if (status == TAMIS_OK)
        status = finish_output(&merge, rules->to, err);
    tm_table_builder_abandon(merge.builder);
    tm_buf_release(&db->env, &merge.key);
    tm_buf_release(&db->env, &merge.from);
    tm_buf_release(&db->env, &merge.to);
    if (merge.ranges != NULL)
        tm_release(&db->env, merge.kept, range_bytes(&merge));
    if (status != TAMIS_OK)
        tm_outputs_discard(db, outputs);
    return status;
}

tamis_status
tm_flush_memtable(tamis_db *db, struct tm_memtable *mem, const uint64_t *snapshots,
                  size_t snapshot_count, struct tm_outputs *outputs, tamis_error *err)
{
    struct tm_merge_rules rules = {
        .snapshots = snapshots,
        .snapshot_count = snapshot_count,
        .level = 0,
        .table_bytes = UINT64_MAX,
    };
    const struct tm_range_set *sets[64]; // M3
    struct tm_iter *iter = NULL;
    tamis_status status;

    rules.ranges = sets;
    for (const struct tm_range_set *set = tm_memtable_ranges(mem); set != NULL; set = set->next)
        sets[rules.ranges_count++] = set;
    status = tm_memtable_iter(mem, &iter, err);
    if (status != TAMIS_OK)
        return status;
    status = tm_merge_write(db, iter, &rules, outputs, err);
    tm_iter_close(iter);
    return status;
}

tamis_status
tm_snapshot_list(tamis_db *db, uint64_t **list_out, size_t *count_out, tamis_error *err)
{
    size_t count = 1;
    size_t at = 0;
    uint64_t *list;

    for (struct tamis_snapshot *s = db->snapshots.next; s != &db->snapshots; s = s->next)
        count++;
    list = tm_alloc(&db->env, count * sizeof *list);
    if (list == NULL)
        return TM_NO_MEMORY(err, count * sizeof *list);
    for (struct tamis_snapshot *s = db->snapshots.next; s != &db->snapshots; s = s->next)
        list[at++] = s->sequence;
    list[at++] = atomic_load_explicit(&db->visible_sequence, memory_order_acquire);
    *list_out = list;
    *count_out = count;
    return TAMIS_OK;
}
