/* SPDX-License-Identifier: MIT
 *
 * engine/compact_pick.h -- which tables to merge next. Pure: a version and a policy in, a job out; no lock, no I/O.
 *
 * Leveled: level 0 is due by its file count, level i >= 1 by its bytes against a target. The most overdue level is picked.
 *
 *     bottom level b    base_bytes * ratio^(b-1); beyond, it goes down and the tree is a level deeper
 *     level i < b       bytes of the largest level / ratio^(b-i)
 *
 * So a tree has no more levels than it needs, and, whatever its size, all above the bottom is a ninth of it: that bounds what
 * overwritten and deleted versions take. A bottom that is outgrown goes down by moves, for nothing is below it; until
 * most of it is there, the largest level is the one it leaves, so the targets do not collapse. Levels whose target is below one
 * table are passed by moves, too.
 *
 * When no level is due, a table that is mostly tombstones is, wherever it is: it goes down, and where nothing in its range lies
 * below it is rewritten in place. But not before every snapshot sees all of it: then what it says is deleted can really go, and
 * no table is rewritten for nothing or twice.
 *
 * Within a level files that are mostly tombstones go first, so that space comes back; then the file with
 * the least overlap per byte in the next level. The last level is never due.
 */
#ifndef TM_ENGINE_COMPACT_PICK_H
#define TM_ENGINE_COMPACT_PICK_H

#include "engine/version.h"

struct tm_compact_policy {
    uint32_t level0_file_count_trigger; // 4: reads ask at most a handful of overlapping files
    uint32_t level0_file_count_slow;    // 8: beyond, writers are slowed
    uint64_t level_base_bytes;          // most that level 1 holds
    uint32_t level_ratio;               // 10
    uint64_t table_bytes;               // size at which an output table is closed
};

struct tm_compact_job {
    uint32_t input_level;
    uint32_t output_level;     // input_level + 1, or input_level for a rewrite in place
    struct tm_file **inputs;   // of input_level, in the level's order
    size_t input_count;
    struct tm_file **overlaps; // of output_level, ascending; 0 when output_level == input_level
    size_t overlap_count;
    bool move;                 // one input, nothing overlaps it, nothing to gain by rewriting: change its level only
    const struct tm_order *order; // of keys; NULL: bytewise
    tamis_slice from,
        to; // the hull: all inputs, overlaps and outputs lie within; borrowed from the files

    // Owned by who runs it
    struct tm_compact_job *next_running;
};

/** How overdue a level is: >= 1.0 means a job is due. */
double tm_compact_score(const struct tm_version *version, const struct tm_compact_policy *policy,
                        uint32_t level);

/**
 * How far compaction is behind: 0 is not, and each step more should halve the speed of writers. A step is a file of
 * level 0 beyond level0_file_count_slow, or as many bytes, four times the size of level 1, as wait to be taken down beyond
 * the first sixteen of that size. The largest level does not count: what is above its target may go down by moves.
 */
uint32_t tm_compact_pressure(const struct tm_version *version,
                             const struct tm_compact_policy *policy);

/**
 * The next job that is due, or none. A job never meets a running one: where they have a level in common, their hulls are
 * apart. An answer of none may change when a running job ends, so ask again then.
 *
 * Level 0: the oldest file and every file connected with it by overlaps. Level i >= 1: one file.
 *
 * @param oldest_snapshot  every reader sees all writes up to this sequence
 * @param running the jobs that run, by next_running; their inputs and overlaps are marked `compacting`
 * @param job_out [out] *found_out true: fill it; free with tm_compact_job_release()
 * @return        TAMIS_OK, TAMIS_NO_MEMORY
 *
 * Threads  the caller keeps `compacting` and `running` still: the store's mutex.
 */
TAMIS_NODISCARD tamis_status tm_compact_pick(
    const struct tm_env *env, const struct tm_version *version,
    const struct tm_compact_policy *policy, const struct tm_compact_job *running,
    uint64_t oldest_snapshot, struct tm_compact_job *job_out, bool *found_out, tamis_error *err);

/**
 * The next step of a manual compaction of from..to (inclusive; NULL: unbounded): the uppermost level that must still be
 * pushed down. Each level is pushed to the next until the deepest level that held something in the range; there, tables
 * that still hold tombstones or more than one version of a key are rewritten in place, with what lies between them.
 * A step is one job over all that its level holds in the range, so that versions that were there at the start are
 * not missed while automatic jobs go on; it needs room on disk for what it rewrites.
 *
 * Ends after at most TAMIS_LEVEL_COUNT jobs: each step begins below the last one's level.
 *
 * @param running     as for tm_compact_pick()
 * @param level       where to look first: 0 at the start
 * @param level_out   [out] what to hand in next time, after the job has been done; when blocked, the level that waits;
 *                    TAMIS_LEVEL_COUNT when all is done
 * @param job_out     [out] *found_out true: fill it; free with tm_compact_job_release()
 * @param blocked_out [out] true: nothing found yet, because a running job must end first; ask again then, and start no
 *                    automatic jobs meanwhile, or the wait may be long. false without *found_out: all is done
 * @return            TAMIS_OK, TAMIS_NO_MEMORY
 */
TAMIS_NODISCARD tamis_status tm_compact_pick_range(const struct tm_env *env,
                                                   const struct tm_version *version,
                                                   const struct tm_compact_job *running,
                                                   const tamis_slice *from, const tamis_slice *to,
                                                   uint32_t level, uint32_t *level_out,
                                                   struct tm_compact_job *job_out, bool *found_out,
                                                   bool *blocked_out, tamis_error *err);

/** Of all its inputs and overlaps. */
uint64_t tm_compact_job_bytes(const struct tm_compact_job *job);

/** Free the lists. Zeroed is allowed, and what it is afterwards. */
void tm_compact_job_release(const struct tm_env *env, struct tm_compact_job *job);

/**
 * No file below the output level of `job` holds anything in the range of `key`: its tombstones may go. True for as long
 * as the job runs if it was true of the version from which the job was picked.
 */
bool tm_compact_is_base(const struct tm_version *version, const struct tm_compact_job *job,
                        tamis_slice key);
/** The same for all keys of a range. */
bool tm_compact_range_is_base(const struct tm_version *version, const struct tm_compact_job *job,
                              const struct tm_range *range);

#endif
