/* SPDX-License-Identifier: MIT
 *
 * engine/compact_pick.c -- choose the next merge.
 *
 *     level i      ....[input].....         inputs, and everything of the output level within their hull:
 *     level i+1  [over|lap][lap].[....]     the smallest range that holds inputs and overlaps is the job's hull
 *
 * Invariants
 *   K1  With a file of level 0 every older file of level 0 that shares a key with it is an input too; the overlaps
 *       are all files of the output level within the hull. So no version sinks below an older one (V3).
 *   K2  Output tables lie anywhere within the hull. So of two jobs that run at the same time and have a level in common the
 *       hulls are apart.
 *   K3  Every job but a rewrite in place takes a file one level down, and a rewrite in place that nobody asked for leaves no
 *       tombstone; so work ends when writes do.
 *
 * Threads  pure; the caller keeps `compacting` and the list of running jobs still for the call (the store's mutex).
 * Not here: the merge (compact_run.c), who runs jobs and when (worker).
 */
#include "engine/compact_pick.h"

#include <assert.h>

/* Keys from..to, both included; borrowed from files. */
struct key_range {
    tamis_slice from;
    tamis_slice to;
};

static struct key_range
range_of_file(const struct tm_file *file)
{
    struct key_range range = {tm_file_smallest(file), tm_file_largest(file)};

    return range;
}

static bool
range_overlaps(const struct key_range *range, const struct tm_file *file)
{
    return tm_file_overlaps(file, &range->from, &range->to);
}

/* True when the range has grown. */
static bool
range_extend(struct key_range *range, const struct tm_file *file)
{
    struct key_range more = range_of_file(file);
    bool grown = false;

    if (tm_order_compare(file->order, more.from, range->from) < 0) {
        range->from = more.from;
        grown = true;
    }
    if (tm_order_compare(file->order, more.to, range->to) > 0) {
        range->to = more.to;
        grown = true;
    }
    return grown;
}

/* A job before memory is spent on it: all files of both levels that overlap a range. */
struct plan {
    uint32_t input_level;
    uint32_t output_level;
    struct key_range inputs; // all files of input_level within it
    size_t input_count;
    size_t overlap_count;
    uint64_t input_bytes;
    uint64_t overlap_bytes;
    struct key_range hull;
};

/* Count the files of `level` within `range`, and make `hull` hold them. */
static size_t
measure(const struct tm_level *level, const struct key_range *range, struct key_range *hull,
        uint64_t *bytes)
{
    size_t count = 0;

    for (uint32_t i = 0; i < level->file_count; i++) {
        if (!range_overlaps(range, level->files[i]))
            continue;
        count++;
        *bytes += level->files[i]->facts.file_bytes;
        range_extend(hull, level->files[i]);
    }
    return count;
}

/* As measure(), for a level whose files are disjoint and ascending. */
static size_t
measure_sorted(const struct tm_level *level, const struct key_range *range, struct key_range *hull,
               uint64_t *bytes)
{
    size_t count = 0;

    for (uint32_t i = tm_level_lower_bound(level, range->from);
         i < level->file_count && range_overlaps(range, level->files[i]); i++) {
        count++;
        *bytes += level->files[i]->facts.file_bytes;
        range_extend(hull, level->files[i]);
    }
    return count;
}

static void
plan_init(struct plan *plan, const struct tm_version *version, uint32_t input_level,
          uint32_t output_level, const struct key_range *inputs)
{
    memset(plan, 0, sizeof *plan);
    plan->input_level = input_level;
    plan->output_level = output_level;
    plan->inputs = *inputs;
    plan->hull = *inputs;
    if (input_level == 0)
        plan->input_count = measure(&version->level[0], inputs, &plan->hull, &plan->input_bytes);
    else
        plan->input_count =
            measure_sorted(&version->level[input_level], inputs, &plan->hull, &plan->input_bytes);
    if (output_level != input_level)
        plan->overlap_count = measure_sorted(&version->level[output_level], inputs, &plan->hull,
                                             &plan->overlap_bytes);
}

/* K2: must it wait for a running job? */
static bool
plan_is_blocked(const struct plan *plan, const struct tm_compact_job *running)
{
    for (; running != NULL; running = running->next_running) {
        if (running->input_level <= plan->output_level &&
            plan->input_level <= running->output_level &&
            tm_order_compare(running->order, running->from, plan->hull.to) <= 0 &&
            tm_order_compare(running->order, plan->hull.from, running->to) <= 0)
            return true;
    }
    return false;
}

/* No file below the output level shares a key with the hull. */
static bool
plan_is_base(const struct plan *plan, const struct tm_version *version)
{
    for (uint32_t i = plan->output_level + 1; i < TAMIS_LEVEL_COUNT; i++) {
        const struct tm_level *level = &version->level[i];
        uint32_t index = tm_level_lower_bound(level, plan->hull.from);

        if (index < level->file_count && range_overlaps(&plan->hull, level->files[index]))
            return false;
    }
    return true;
}

/* A merge could drop an entry of it once it has reached the last level that holds anything in its range. */
static bool
file_has_garbage(const struct tm_file *file)
{
    return file->facts.tombstone_count > 0 || file->facts.range_count > 0 ||
           file->facts.entry_count > file->facts.key_count;
}

static void
collect(const struct tm_level *level, const struct key_range *range, struct tm_file **files)
{
    for (uint32_t i = 0; i < level->file_count; i++) {
        if (range_overlaps(range, level->files[i]))
            *files++ = level->files[i];
    }
}

static tamis_status
job_create(const struct tm_env *env, const struct tm_version *version, const struct plan *plan,
           struct tm_compact_job *job, tamis_error *err)
{
    size_t bytes = (plan->input_count + plan->overlap_count) * sizeof *job->inputs;

    assert(plan->input_count > 0);
    memset(job, 0, sizeof *job);
    job->inputs = tm_alloc(env, bytes);
    if (job->inputs == NULL)
        return TM_NO_MEMORY(err, bytes);
    job->input_level = plan->input_level;
    job->output_level = plan->output_level;
    job->input_count = plan->input_count;
    job->overlaps = job->inputs + plan->input_count;
    job->overlap_count = plan->overlap_count;
    job->order = &env->order;
    job->from = plan->hull.from;
    job->to = plan->hull.to;
    collect(&version->level[plan->input_level], &plan->inputs, job->inputs);
    if (plan->overlap_count > 0)
        collect(&version->level[plan->output_level], &plan->inputs, job->overlaps);
    job->move = plan->output_level != plan->input_level && plan->input_count == 1 &&
                plan->overlap_count == 0 &&
                !(file_has_garbage(job->inputs[0]) && plan_is_base(plan, version));
    return TAMIS_OK;
}

uint64_t
tm_compact_job_bytes(const struct tm_compact_job *job)
{
    uint64_t bytes = 0;

    for (size_t i = 0; i < job->input_count; i++)
        bytes += job->inputs[i]->facts.file_bytes;
    for (size_t i = 0; i < job->overlap_count; i++)
        bytes += job->overlaps[i]->facts.file_bytes;
    return bytes;
}

void
tm_compact_job_release(const struct tm_env *env, struct tm_compact_job *job)
{
    // job_create() made one block of both lists.
    tm_release(env, job->inputs, (job->input_count + job->overlap_count) * sizeof *job->inputs);
    memset(job, 0, sizeof *job);
}

enum {
    // Bytes waiting below level 0, in sizes of level 1. Files of level 0 say sooner how compaction gets on; these are for work that
    // piles up further down, and stay out of the way of what one job brings.
    PENDING_FREE_BASES = 16,
    PENDING_STEP_BASES = 4,
};

/* The deepest level that holds anything; 1 when none does. */
static uint32_t
bottom_level(const struct tm_version *version)
{
    uint32_t level = TAMIS_LEVEL_COUNT - 1;

    while (level > 1 && version->level[level].file_count == 0)
        level--;
    return level;
}

static uint64_t
largest_level_bytes(const struct tm_version *version)
{
    uint64_t largest = 0;

    for (uint32_t i = 1; i < TAMIS_LEVEL_COUNT; i++)
        if (version->level[i].file_bytes > largest)
            largest = version->level[i].file_bytes;
    return largest;
}

/* See the head of compact_pick.h. */
static double
level_target_bytes(const struct tm_version *version, const struct tm_compact_policy *policy,
                   uint32_t level)
{
    uint32_t bottom = bottom_level(version);
    double target;

    if (level >= bottom) {
        target = (double)policy->level_base_bytes;
        for (uint32_t i = 1; i < level; i++)
            target *= policy->level_ratio;
    } else {
        target = (double)largest_level_bytes(version);
        for (uint32_t i = level; i < bottom; i++)
            target /= policy->level_ratio;
    }
    return target;
}

static double
level_score(const struct tm_version *version, const struct tm_compact_policy *policy,
            uint32_t level, uint32_t file_count, uint64_t file_bytes)
{
    assert(policy->level0_file_count_trigger > 0 && policy->level_base_bytes > 0 &&
           policy->level_ratio > 0);
    if (level == 0)
        return (double)file_count / policy->level0_file_count_trigger;
    if (file_bytes == 0 || level == TAMIS_LEVEL_COUNT - 1)
        return 0; // nothing to take, or nowhere to go
    return (double)file_bytes / level_target_bytes(version, policy, level);
}

uint32_t
tm_compact_pressure(const struct tm_version *version, const struct tm_compact_policy *policy)
{
    uint32_t file_count = version->level[0].file_count;
    uint32_t steps = file_count > policy->level0_file_count_slow
                         ? file_count - policy->level0_file_count_slow
                         : 0;
    uint64_t largest_bytes = largest_level_bytes(version);
    double pending_bytes = 0;
    double pending_bases;

    for (uint32_t i = 1; i < TAMIS_LEVEL_COUNT - 1; i++) {
        double beyond =
            (double)version->level[i].file_bytes - level_target_bytes(version, policy, i);

        if (version->level[i].file_bytes < largest_bytes && beyond > 0)
            pending_bytes += beyond;
    }
    pending_bases = pending_bytes / (double)policy->level_base_bytes - PENDING_FREE_BASES;
    if (pending_bases > (double)steps * PENDING_STEP_BASES)
        steps = (uint32_t)(pending_bases / PENDING_STEP_BASES);
    return steps;
}

double
tm_compact_score(const struct tm_version *version, const struct tm_compact_policy *policy,
                 uint32_t level)
{
    return level_score(version, policy, level, version->level[level].file_count,
                       version->level[level].file_bytes);
}

/* The score without what running jobs are taking away already. */
static double
score_at_rest(const struct tm_version *version, const struct tm_compact_policy *policy,
              uint32_t level)
{
    uint32_t file_count = 0;
    uint64_t file_bytes = 0;

    for (uint32_t i = 0; i < version->level[level].file_count; i++) {
        const struct tm_file *file = version->level[level].files[i];

        if (file->compacting)
            continue;
        file_count++;
        file_bytes += file->facts.file_bytes;
    }
    return level_score(version, policy, level, file_count, file_bytes);
}

/* Grow `range` until no file of level 0 stands across its ends: what is within is connected with what it
 * began with, older files included (K1). */
static void
connect_level0(const struct tm_level *level0, struct key_range *range)
{
    bool grown = true;

    while (grown) {
        grown = false;
        for (uint32_t i = 0; i < level0->file_count; i++) {
            if (range_overlaps(range, level0->files[i]) && range_extend(range, level0->files[i]))
                grown = true;
        }
    }
}

/* A file of level 0 and all that are connected with it. */
static bool
plan_level0_file(const struct tm_version *version, const struct tm_compact_job *running,
                 const struct tm_file *file, struct plan *plan)
{
    struct key_range range = range_of_file(file);

    connect_level0(&version->level[0], &range);
    plan_init(plan, version, 0, 1, &range);
    return !plan_is_blocked(plan, running);
}

/* The oldest file and all that are connected with it. The level is due, so some file is at rest. */
static bool
plan_level0(const struct tm_version *version, const struct tm_compact_job *running,
            struct plan *plan)
{
    const struct tm_level *level0 = &version->level[0];
    const struct tm_file *oldest = NULL;

    for (uint32_t i = 0; i < level0->file_count; i++) { // newest first
        if (!level0->files[i]->compacting)
            oldest = level0->files[i];
    }
    assert(oldest != NULL);
    return plan_level0_file(version, running, oldest, plan);
}

/* Fewer bytes of the next level rewritten for each byte taken down; of equals the older file. */
static bool
plan_is_cheaper(const struct plan *a, uint64_t number_a, const struct plan *b, uint64_t number_b)
{
    // A table is never empty; + 1 keeps made-up facts from dividing by zero.
    double cost_a = (double)a->overlap_bytes / ((double)a->input_bytes + 1);
    double cost_b = (double)b->overlap_bytes / ((double)b->input_bytes + 1);

    return cost_a != cost_b ? cost_a < cost_b : number_a < number_b;
}

/* Most of it says what is gone. Such a file goes first, or it would wait behind files that cost less for as long as new ones
 * come; what it deletes would sink ahead of it, level by level, and neither would ever leave the disk. */
static bool
file_is_mostly_tombstones(const struct tm_file *file)
{
    const struct tm_table_facts *facts = &file->facts;

    return facts->tombstone_count + facts->range_count >
           (facts->entry_count + facts->range_count) / 2;
}

static bool
plan_level(const struct tm_version *version, const struct tm_compact_job *running, uint32_t level,
           struct plan *plan)
{
    uint64_t best_number = 0;
    bool best_is_urgent = false;
    bool found = false;

    for (uint32_t i = 0; i < version->level[level].file_count; i++) {
        const struct tm_file *file = version->level[level].files[i];
        struct key_range range = range_of_file(file);
        bool is_urgent = file_is_mostly_tombstones(file);
        struct plan candidate;

        if (file->compacting || (best_is_urgent && !is_urgent))
            continue;
        plan_init(&candidate, version, level, level + 1, &range);
        if (found && is_urgent == best_is_urgent &&
            !plan_is_cheaper(&candidate, file->number, plan, best_number))
            continue;
        if (plan_is_blocked(&candidate, running))
            continue;
        *plan = candidate;
        best_number = file->number;
        best_is_urgent = is_urgent;
        found = true;
    }
    return found;
}

static bool
plan_tombstones_of_file(const struct tm_version *version, const struct tm_compact_job *running,
                        uint32_t level, const struct tm_file *file, struct plan *plan)
{
    struct key_range range = range_of_file(file);

    if (level == 0)
        return plan_level0_file(version, running, file, plan);
    plan_init(plan, version, level, level, &range);
    if (!plan_is_base(plan, version))
        plan_init(plan, version, level, level + 1, &range);
    return !plan_is_blocked(plan, running);
}

/* Some file of mostly tombstones that nobody needs any more; from the top, so that they meet on their way. */
static bool
plan_tombstones(const struct tm_version *version, const struct tm_compact_job *running,
                uint64_t oldest_snapshot, struct plan *plan)
{
    for (uint32_t level = 0; level < TAMIS_LEVEL_COUNT; level++) {
        for (uint32_t i = 0; i < version->level[level].file_count; i++) {
            const struct tm_file *file = version->level[level].files[i];

            if (!file->compacting && file_is_mostly_tombstones(file) &&
                file->facts.sequence_max <= oldest_snapshot &&
                plan_tombstones_of_file(version, running, level, file, plan))
                return true;
        }
    }
    return false;
}

/* A job of the most overdue level that has one that need not wait. */
static bool
plan_most_overdue(const struct tm_version *version, const struct tm_compact_policy *policy,
                  const struct tm_compact_job *running, struct plan *plan)
{
    double score[TAMIS_LEVEL_COUNT];

    for (uint32_t i = 0; i < TAMIS_LEVEL_COUNT; i++)
        score[i] = score_at_rest(version, policy, i);
    for (;;) {
        uint32_t level = 0;

        for (uint32_t i = 1; i < TAMIS_LEVEL_COUNT; i++) {
            if (score[i] > score[level])
                level = i;
        }
        if (score[level] < 1)
            return false;
        if (level == 0 ? plan_level0(version, running, plan)
                       : plan_level(version, running, level, plan))
            return true;
        score[level] = 0; // all of it must wait: on to the next most overdue
    }
}

tamis_status
tm_compact_pick(const struct tm_env *env, const struct tm_version *version,
                const struct tm_compact_policy *policy, const struct tm_compact_job *running,
                uint64_t oldest_snapshot, struct tm_compact_job *job_out, bool *found_out,
                tamis_error *err)
{
    struct plan plan;
    tamis_status status;

    *found_out = false;
    if (!plan_most_overdue(version, policy, running, &plan) &&
        !plan_tombstones(version, running, oldest_snapshot, &plan))
        return TAMIS_OK;
    status = job_create(env, version, &plan, job_out, err);
    *found_out = status == TAMIS_OK;
    return status;
}

/* The keys of all files of `level` that overlap from..to, and, with `garbage_only`, have entries to drop. */
static bool
range_of_level(const struct tm_level *level, const tamis_slice *from, const tamis_slice *to,
               bool garbage_only, struct key_range *range)
{
    bool found = false;

    for (uint32_t i = 0; i < level->file_count; i++) {
        const struct tm_file *file = level->files[i];

        if (!tm_file_overlaps(file, from, to) || (garbage_only && !file_has_garbage(file)))
            continue;
        if (!found)
            *range = range_of_file(file);
        else
            range_extend(range, file);
        found = true;
    }
    return found;
}

/* Level 0 always goes down; otherwise a level above the deepest is pushed, the deepest rewritten in place. */
static bool
plan_range_step(const struct tm_version *version, const tamis_slice *from, const tamis_slice *to,
                uint32_t level, uint32_t deepest, struct plan *plan)
{
    bool push = level < deepest || level == 0;
    struct key_range range;

    if (!range_of_level(&version->level[level], from, to, !push, &range))
        return false;
    if (level == 0)
        connect_level0(&version->level[0], &range); // K1
    plan_init(plan, version, level, push ? level + 1 : level, &range);
    return true;
}

tamis_status
tm_compact_pick_range(const struct tm_env *env, const struct tm_version *version,
                      const struct tm_compact_job *running, const tamis_slice *from,
                      const tamis_slice *to, uint32_t level, uint32_t *level_out,
                      struct tm_compact_job *job_out, bool *found_out, bool *blocked_out,
                      tamis_error *err)
{
    bool is_empty = from != NULL && to != NULL && tm_order_compare(&env->order, *from, *to) > 0;
    uint32_t deepest = 0;

    *found_out = false;
    *blocked_out = false;
    *level_out = TAMIS_LEVEL_COUNT;
    if (is_empty)
        return TAMIS_OK;
    for (uint32_t i = 1; i < TAMIS_LEVEL_COUNT; i++) {
        struct key_range range;

        if (range_of_level(&version->level[i], from, to, false, &range))
            deepest = i;
    }
    for (uint32_t i = level; i <= deepest; i++) {
        tamis_status status;
        struct plan plan;

        if (!plan_range_step(version, from, to, i, deepest, &plan))
            continue;
        if (plan_is_blocked(&plan, running)) {
            *blocked_out = true;
            *level_out = i;
            return TAMIS_OK;
        }
        status = job_create(env, version, &plan, job_out, err);
        *found_out = status == TAMIS_OK;
        *level_out = status == TAMIS_OK ? i + 1 : i;
        return status;
    }
    return TAMIS_OK;
}

bool
tm_compact_is_base(const struct tm_version *version, const struct tm_compact_job *job,
                   tamis_slice key)
{
    for (uint32_t i = job->output_level + 1; i < TAMIS_LEVEL_COUNT; i++) {
        if (tm_level_find(&version->level[i], key) != NULL)
            return false;
    }
    return true;
}

bool
tm_compact_range_is_base(const struct tm_version *version, const struct tm_compact_job *job,
                         const struct tm_range *range)
{
    for (uint32_t i = job->output_level + 1; i < TAMIS_LEVEL_COUNT; i++) {
        const struct tm_level *level = &version->level[i];
        uint32_t index = tm_level_lower_bound(level, range->from);

        if (index < level->file_count &&
            tm_slice_compare(tm_file_smallest(level->files[index]), range->to) < 0)
            return false;
    }
    return true;
}
