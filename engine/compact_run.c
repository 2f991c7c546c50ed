/* SPDX-License-Identifier: MIT
 *
 * engine/compact_run.c -- run one compaction job: tables in, tables with filters of their own out, one change.
 *
 * Filters are never edited: each output counts its distinct keys and builds a new one, so that what overwrites and
 * tombstones took away leaves the filter, too. A move keeps its table as it is.
 *
 * Tables that range tombstones of the job hide as a whole are not read: they go with the other inputs, and range tombstones of
 * their own take part in the merge as all others do.
 *
 * A large job is cut into key ranges (compact_split.h). Its thread puts it on db->shares and works on one part after the
 * other; threads with nothing else to do take parts as well. When all are done, their tables follow each other and are
 * installed by one edit, as if one thread had written them; a part that failed takes the others with it.
 */
#include <assert.h>

#include "engine/compact_split.h"
#include "engine/db_internal.h"

/* A job while its parts are worked on; lives on the stack of its thread. Guarded by the mutex, but for what a part writes. */
struct tm_compact_share {
    const struct tm_compact_job *job;
    const struct tm_version *version; // from which it was picked
    struct tm_merge_rules rules;      // of all parts, without their bounds
    struct tm_compact_job read;       // its levels, and of its tables those that are read
    uint64_t bytes_read;
    struct tm_compact_cuts cuts;
    struct tm_outputs *outputs; // of each part
    size_t part_count;
    size_t next_part;
    size_t running_count;
    tamis_status status; // the first failure
    tamis_error error;
    struct tm_compact_share *next;
};

static bool
drops_tombstone(void *arg, tamis_slice key)
{
    const struct tm_compact_share *share = arg;
    return tm_compact_is_base(share->version, share->job, key);
}

static bool
drops_range(void *arg, const struct tm_range *range)
{
    const struct tm_compact_share *share = arg;
    return tm_compact_range_is_base(share->version, share->job, range);
}

/* The range tombstones of some files; room for all in `sets`. */
static size_t
collect_ranges(struct tm_file *const *files, size_t count, const struct tm_range_set **sets)
{
    size_t set_count = 0;

    for (size_t i = 0; i < count; i++)
        if (files[i]->ranges != NULL)
            sets[set_count++] = files[i]->ranges;
    return set_count;
}

/* Those of some files that must be read; room for all in `read`. */
static size_t
collect_read(const struct tm_merge_rules *rules, struct tm_file *const *files, size_t count,
             struct tm_file **read)
{
    size_t read_count = 0;

    for (size_t i = 0; i < count; i++)
        if (!tm_merge_hides(rules, files[i]))
            read[read_count++] = files[i];
    return read_count;
}

static size_t
plan_bytes(const struct tm_compact_job *job)
{
    return (job->input_count + job->overlap_count) *
           (sizeof(struct tm_range_set *) + sizeof(struct tm_file *));
}

/* Which ranges take part in the merge, and which tables. Without the mutex. */
static tamis_status
plan_merge(tamis_db *db, struct tm_compact_share *share, tamis_error *err)
{
    const struct tm_compact_job *job = share->job;
    struct tm_merge_rules *rules = &share->rules;
    struct tm_compact_job *read = &share->read;
    struct tm_file **files = tm_alloc(&db->env, plan_bytes(job));
    const struct tm_range_set **sets;

    if (files == NULL)
        return TM_NO_MEMORY(err, plan_bytes(job));
    sets = (const struct tm_range_set **)(files + job->input_count + job->overlap_count);
    rules->ranges = sets;
    rules->ranges_count = collect_ranges(job->inputs, job->input_count, sets);
    rules->ranges_count +=
        collect_ranges(job->overlaps, job->overlap_count, sets + rules->ranges_count);
    read->input_level = job->input_level;
    read->output_level = job->output_level;
    read->inputs = files;
    read->input_count = collect_read(rules, job->inputs, job->input_count, read->inputs);
    read->overlaps = read->inputs + read->input_count;
    read->overlap_count = collect_read(rules, job->overlaps, job->overlap_count, read->overlaps);
    share->bytes_read = tm_compact_job_bytes(read);
    return TAMIS_OK;
}

/* One iterator over all inputs: level-0 files one by one, the files of a deeper level as one sequence. */
static tamis_status
open_inputs(tamis_db *db, const struct tm_compact_job *job, struct tm_iter **iter_out,
            tamis_error *err)
{
    size_t capacity = job->input_count + 1;
    struct tm_iter **sources = tm_alloc_zeroed(&db->env, capacity * sizeof *sources);
    size_t count = 0;
    tamis_status status = TAMIS_OK;

    if (sources == NULL)
        return TM_NO_MEMORY(err, capacity * sizeof *sources);
    if (job->input_level == 0) {
        for (size_t i = 0; status == TAMIS_OK && i < job->input_count; i++) {
            status = tm_table_iter(job->inputs[i]->table, false, &sources[count], err);
            if (status == TAMIS_OK)
                count++;
        }
    } else {
        status = tm_level_iter(&db->env, job->inputs, job->input_count, false, &sources[count],
                               err);
        if (status == TAMIS_OK)
            count++;
    }
    if (status == TAMIS_OK && job->overlap_count != 0) {
        status = tm_level_iter(&db->env, job->overlaps, job->overlap_count, false,
                               &sources[count], err);
        if (status == TAMIS_OK)
            count++;
    }
    if (status == TAMIS_OK)
        status = tm_iter_merge(&db->env, sources, count, iter_out, err);
    else
        for (size_t i = 0; i < count; i++)
            tm_iter_close(sources[i]);
    tm_release(&db->env, sources, capacity * sizeof *sources);
    return status;
}

/* Merge one key range of the inputs. Without the mutex. */
static tamis_status
merge_part(tamis_db *db, const struct tm_compact_share *share, size_t part,
           struct tm_outputs *outputs, tamis_error *err)
{
    struct tm_merge_rules rules = share->rules;
    struct tm_iter *iter = NULL;
    tamis_slice from, to;
    tamis_status status;

    if (part > 0) {
        from = tm_slice(share->cuts.keys[part - 1].data, share->cuts.keys[part - 1].length);
        rules.from = &from;
    }
    if (part + 1 < share->part_count) {
        to = tm_slice(share->cuts.keys[part].data, share->cuts.keys[part].length);
        rules.to = &to;
    }
    status = open_inputs(db, &share->read, &iter, err);
    if (status == TAMIS_OK)
        status = tm_merge_write(db, iter, &rules, outputs, err);
    tm_iter_close(iter);
    return status;
}

/* No part of it is left to take. */
static void
unlink_share(tamis_db *db, const struct tm_compact_share *share)
{
    struct tm_compact_share **link = &db->shares;

    while (*link != NULL && *link != share)
        link = &(*link)->next;
    if (*link != NULL)
        *link = share->next;
}

/* With the mutex held (let go meanwhile): the next part. */
static void
run_part(tamis_db *db, struct tm_compact_share *share)
{
    size_t part = share->next_part++;
    tamis_error err;
    tamis_status status;

    if (share->next_part == share->part_count)
        unlink_share(db, share);
    share->running_count++;
    tm_unlock(db);
    status = merge_part(db, share, part, &share->outputs[part], &err);
    tm_lock(db);
    share->running_count--;
    if (status != TAMIS_OK && share->status == TAMIS_OK) {
        share->status = status;
        share->error = err;
        share->next_part = share->part_count;
        unlink_share(db, share);
    }
    tm_notify(db);
}

void
tm_compact_help(tamis_db *db)
{
    run_part(db, db->shares);
}

static bool
nobody_works_on(void *arg)
{
    const struct tm_compact_share *share = arg;
    return share->running_count == 0;
}

/* The tables of all parts, one after the other, or none of them. */
static tamis_status
join_outputs(tamis_db *db, struct tm_compact_share *share, struct tm_outputs *joined,
             tamis_error *err)
{
    size_t count = 0;

    for (size_t i = 0; i < share->part_count; i++)
        count += share->outputs[i].count;
    if (share->status == TAMIS_OK) {
        joined->adds = tm_alloc(&db->env, count * sizeof *joined->adds);
        if (joined->adds != NULL)
            joined->capacity = count;
        else
            share->status = TM_NO_MEMORY(&share->error, count * sizeof *joined->adds);
    }
    for (size_t i = 0; i < share->part_count; i++) {
        struct tm_outputs *outputs = &share->outputs[i];

        if (share->status != TAMIS_OK) {
            tm_outputs_discard(db, outputs);
            continue;
        }
        if (outputs->count > 0)
            memcpy(joined->adds + joined->count, outputs->adds,
                   outputs->count * sizeof *outputs->adds);
        joined->count += outputs->count;
        tm_outputs_release(db, outputs);
    }
    return share->status != TAMIS_OK ? tm_stored_failure(&share->error, err) : TAMIS_OK;
}

/* With the mutex held (let go meanwhile): merge all parts, with the help of who has time. */
static tamis_status
merge_job(tamis_db *db, struct tm_compact_share *share, struct tm_outputs *outputs,
          tamis_error *err)
{
    tamis_status status;

    // A part writes a table of full size at least, so that parts do not make tables small.
    tm_unlock(db);
    status = plan_merge(db, share, err);
    if (status == TAMIS_OK)
        status = tm_compact_split(&db->env, &share->read, db->options.background_threads,
                                  2 * db->policy.table_bytes, &share->cuts, err);
    tm_lock(db);
    if (status != TAMIS_OK)
        goto out;
    share->part_count = share->cuts.count + 1;
    share->outputs = tm_alloc_zeroed(&db->env, share->part_count * sizeof *share->outputs);
    if (share->outputs == NULL) {
        status = TM_NO_MEMORY(err, share->part_count * sizeof *share->outputs);
        goto out;
    }
    share->next = db->shares;
    db->shares = share;
    tm_notify(db);
    while (share->next_part < share->part_count)
        run_part(db, share);
    tm_wait(db, &db->changed, nobody_works_on, share);
    tm_unlock(db);
    status = join_outputs(db, share, outputs, err);
    tm_lock(db);

out:
    tm_release(&db->env, share->outputs, share->part_count * sizeof *share->outputs);
    tm_compact_cuts_release(&db->env, &share->cuts);
    tm_release(&db->env, share->read.inputs, plan_bytes(share->job));
    return status;
}

static void
mark_inputs(const struct tm_compact_job *job, bool compacting)
{
    for (size_t i = 0; i < job->input_count; i++)
        job->inputs[i]->compacting = compacting;
    for (size_t i = 0; i < job->overlap_count; i++)
        job->overlaps[i]->compacting = compacting;
}

/* From here on no other job meets this one (K2). */
static void
begin_job(tamis_db *db, struct tm_compact_job *job)
{
    job->next_running = db->running_jobs;
    db->running_jobs = job;
    mark_inputs(job, true);
}

/* What had to wait for it may be picked now. */
static void
end_job(tamis_db *db, struct tm_compact_job *job)
{
    struct tm_compact_job **link = &db->running_jobs;

    while (*link != job)
        link = &(*link)->next_running;
    *link = job->next_running;
    mark_inputs(job, false);
    db->compact_due = true;
    if (db->requests != NULL)
        db->requests->blocked = false;
    tm_notify(db);
}

/* With the mutex held: the job is done. */
static void
report_job(tamis_db *db, const struct tm_compact_share *share, const struct tm_outputs *outputs,
           uint64_t begin_ns)
{
    const struct tm_compact_job *job = share->job;
    uint64_t output_bytes = 0;

    for (size_t i = 0; i < outputs->count; i++)
        output_bytes += outputs->adds[i].file->facts.file_bytes;
    tm_report(db, TAMIS_LOG_INFO,
              "compaction: %zu tables of level %u and %zu of level %u, of which %llu bytes were "
              "read, became %zu tables of %llu bytes, %.3f s",
              job->input_count, (unsigned)job->input_level, job->overlap_count,
              (unsigned)job->output_level, (unsigned long long)share->bytes_read, outputs->count,
              (unsigned long long)output_bytes, tm_seconds_since(db, begin_ns));
}

tamis_status
tm_compact_run(tamis_db *db, struct tm_compact_job *job, tamis_error *err)
{
    struct tm_version *version = db->version;
    struct tm_compact_share share;
    struct tm_outputs outputs = {0};
    struct tm_change change = {0};
    struct tm_file_add moved = {job->output_level, job->inputs[0]};
    size_t removed_count = job->input_count + job->overlap_count;
    size_t removed_bytes = removed_count * (sizeof *change.removed + sizeof *change.removed_levels);
    uint64_t *snapshots = NULL;
    size_t snapshot_count = 0;
    uint64_t begin_ns = tm_now_ns(db);
    tamis_status status;

    version->references++; // so that the inputs live, and is_base looks at what the job was picked from
    begin_job(db, job);
    change.removed = tm_alloc(&db->env, removed_bytes);
    if (change.removed == NULL) {
        status = TM_NO_MEMORY(err, removed_bytes);
        goto out;
    }
    change.removed_levels = (uint32_t *)(change.removed + removed_count);
    for (size_t i = 0; i < job->input_count; i++) {
        change.removed[change.removed_count] = job->inputs[i];
        change.removed_levels[change.removed_count++] = job->input_level;
    }
    for (size_t i = 0; i < job->overlap_count; i++) {
        change.removed[change.removed_count] = job->overlaps[i];
        change.removed_levels[change.removed_count++] = job->output_level;
    }

    if (job->move) {
        change.added = &moved;
        change.added_count = 1;
        status = tm_change_apply(db, &change, err);
        if (status == TAMIS_OK) {
            tm_count(&db->counters.move_count, 1);
            tm_report(db, TAMIS_LOG_DEBUG, "table %06llu moved from level %u to level %u",
                      (unsigned long long)moved.file->number, (unsigned)job->input_level,
                      (unsigned)job->output_level);
        }
        goto out;
    }

    status = tm_snapshot_list(db, &snapshots, &snapshot_count, err);
    if (status != TAMIS_OK)
        goto out;
    share = (struct tm_compact_share){
        .job = job,
        .version = version,
        .rules = {.snapshots = snapshots,
                  .snapshot_count = snapshot_count,
                  .level = job->output_level,
                  .table_bytes = db->policy.table_bytes,
                  .drops_tombstone = drops_tombstone,
                  .drops_range = drops_range,
                  .arg = &share},
    };
    status = merge_job(db, &share, &outputs, err);
    if (status != TAMIS_OK)
        goto out;
    tm_count(&db->counters.compaction_count, 1);
    tm_count(&db->counters.compaction_bytes_read, share.bytes_read);
    for (size_t i = 0; i < outputs.count; i++)
        tm_count(&db->counters.compaction_bytes_written, outputs.adds[i].file->facts.file_bytes);
    change.added = outputs.adds;
    change.added_count = outputs.count;
    status = tm_change_apply(db, &change, err);
    if (status == TAMIS_OK)
        report_job(db, &share, &outputs, begin_ns);
    tm_outputs_release(db, &outputs);

out:
    end_job(db, job);
    tm_version_unref(&db->env, version, &db->trash);
    tm_release(&db->env, change.removed, removed_bytes);
    tm_release(&db->env, snapshots, snapshot_count * sizeof *snapshots);
    return status;
}
