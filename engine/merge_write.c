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
 * version. A kept tombstone goes as well when the oldest snapshot sees it and nothing older of its key lies deeper: then
 * it hides only versions that go with it.
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
    tm_name_make(TM_NAME_TABLE, number, name);
    status = tm_table_open(&db->env, db->dir, name, &identity, db->cache, &file->table, err);
    if (status != TAMIS_OK) {
        tm_release(&db->env, file, sizeof *file);
        return status;
    }
    file->number = number;
    file->facts = *facts;
    memset(facts, 0, sizeof *facts);
    file->false_positive_rate_theory =
        tamis_theory_false_positive_rate(&tm_table_filter_info(file->table)->geometry);
    *file_out = file;
    return TAMIS_OK;
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

static void
remove_table(tamis_db *db, uint64_t number)
{
    char name[TM_NAME_BYTES_MAX];

    tm_name_make(TM_NAME_TABLE, number, name);
    // No manifest names it; if it stays, the next open removes it.
    (void)db->env.fs->remove(db->env.fs->ctx, db->dir, name, NULL);
}

void
tm_outputs_discard(tamis_db *db, struct tm_outputs *outputs)
{
    for (size_t i = 0; i < outputs->count; i++) {
        uint64_t number = outputs->adds[i].file->number;

        tm_file_destroy(&db->env, outputs->adds[i].file);
        remove_table(db, number);
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
};

static tamis_status
finish_output(struct merge *merge, tamis_error *err)
{
    tamis_db *db = merge->db;
    struct tm_table_facts facts = {0};
    struct tm_file *file = NULL;
    tamis_status status;

    status = tm_table_builder_finish(merge->builder, &facts, err);
    merge->builder = NULL;
    if (status != TAMIS_OK)
        return status;
    status = tm_file_open(db, merge->number, &facts, &file, err);
    if (status == TAMIS_OK) {
        status = outputs_add(db, merge->outputs, merge->rules->level, file, err);
        if (status != TAMIS_OK)
            tm_file_destroy(&db->env, file);
    }
    if (status != TAMIS_OK)
        remove_table(db, merge->number);
    tm_table_facts_release(&db->env, &facts);
    return status;
}

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

/* Does a snapshot (or now) see `sequence`, given that the next newer version of the key has `newer`? */
static bool
is_seen(const struct tm_merge_rules *rules, uint64_t sequence, uint64_t newer)
{
    // The smallest snapshot that is not older than the version; few snapshots are alive.
    for (size_t i = 0; i < rules->snapshot_count; i++)
        if (rules->snapshots[i] >= sequence)
            return rules->snapshots[i] < newer;
    return newer == UINT64_MAX; // newer than every snapshot: only its being the newest keeps it
}

static tamis_status
take_entry(struct merge *merge, const struct tm_entry *entry, tamis_error *err)
{
    const struct tm_merge_rules *rules = merge->rules;
    const struct tm_env *env = &merge->db->env;
    tamis_status status;
    bool same_key = merge->have_key &&
                    tm_slice_equal(entry->key, tm_slice(merge->key.data, merge->key.length));

    if (!same_key) {
        if (merge->builder != NULL && tm_table_builder_bytes(merge->builder) >= rules->table_bytes) {
            status = finish_output(merge, err); // between keys (G2)
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
    iter->vtable->first(iter);
    while (status == TAMIS_OK && iter->valid) {
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
    if (status == TAMIS_OK && merge.builder != NULL)
        status = finish_output(&merge, err);
    tm_table_builder_abandon(merge.builder);
    tm_buf_release(&db->env, &merge.key);
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
    struct tm_iter *iter = NULL;
    tamis_status status;

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
