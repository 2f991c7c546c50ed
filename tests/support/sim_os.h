/* SPDX-License-Identifier: MIT
 *
 * tests/support/sim_os.h -- a machine in memory: files, a power switch, and calls that fail on demand.
 *
 *   the program --tm_os--> current bytes, current names     what every call sees (the page cache)
 *                              |
 *                              | pending: edits of bytes since the file's sync,
 *                              |          edits of names since the directory's sync
 *                              v
 *                          durable bytes, durable names     what a power cut cannot take
 *
 *   sim_clone()  the program is killed, the machine goes on: what is pending stays pending
 *   sim_crash()  the power goes: durable state plus a choice of what was pending; the choice is the policy's
 *
 * Invariants
 *   S1  The same calls on a simulator of the same seed give the same results, images included.
 *   S2  Bytes covered by a completed sync, and names covered by a completed sync_dir, are in every image,
 *       unless a fault of the SYNC kinds made that sync a lie. A sync of a file says nothing about its name.
 *   S3  From the stopping call on nothing changes: every call fails with -EIO, and stores into mappings no longer
 *       count. An OK that a store gives after sim_stopped() is true is no promise.
 *   S4  A simulator without memory ends the test (abort): it is the judge, not the judged.
 *
 * Directories are told apart by path ("db", "/x/db"); a parent must exist unless it is "", "." or "/".
 * Files opened with a mapping may be stored into while other calls run, as on a real machine.
 *
 * Threads  every call of the tm_os from any thread; the sim_ functions when no thread is in a call, except those
 *          marked "any time". An image is a simulator of its own.
 */
#ifndef TAMIS_TESTS_SUPPORT_SIM_OS_H
#define TAMIS_TESTS_SUPPORT_SIM_OS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sstable/os.h"

struct sim;

/* ---- Life --------------------------------------------------------------------------------------------- */

/** An empty machine. */
struct sim *sim_create(uint64_t seed);
/** Frees everything, open descriptors and mappings too. NULL allowed. */
void sim_destroy(struct sim *sim);
/** The table to hand to tm_fs_posix_init(). Belongs to `sim`. */
const struct tm_os *sim_os(struct sim *sim);

/* ---- Crashes ------------------------------------------------------------------------------------------- */

enum sim_policy {
    SIM_P0_STRICT, // nothing that was pending survives
    SIM_P1_ALL,    // everything that was pending survives
    SIM_P2_PREFIX, // of each file's and directory's edits a prefix; the last write cut at a byte, 512 or 4096
    SIM_P3_PAGES, // some pages of 4096; a lost one reads as zeros, as before or as garbage; one by half
    SIM_P4_METADATA_FIRST, // names and sizes survive, the bytes are zeros; or the file keeps its durable length
    SIM_P5_DATA_FIRST, // bytes survive, edits of names do not
    SIM_P6_RENAME_SPLIT, // a renamed file has both names, or neither (what it would have replaced stays)
    SIM_P7_UNLINK_UNDONE, // everything survives, and removed files are back
    SIM_POLICY_COUNT,
};

const char *sim_policy_name(enum sim_policy policy);

/** The machine after a power cut now (or at the stopping call); `sim` itself is unchanged. No descriptors,
 *  no locks, no faults. The same policy and seed give the same image. */
struct sim *sim_crash(struct sim *sim, enum sim_policy policy, uint64_t seed);

/** The machine after the program was killed now (or at the stopping call): no descriptors, no locks, no
 *  faults; what was pending is pending still and can be lost by a later sim_crash(). */
struct sim *sim_clone(struct sim *sim);

/** Calls made so far. Any time. */
uint64_t sim_call_count(const struct sim *sim);

/** Call number `call` (the first is 1) and all later ones fail with -EIO (S3). 0: never. */
void sim_stop_at(struct sim *sim, uint64_t call);

/** Whether the stopping call has come. Any time. */
bool sim_stopped(const struct sim *sim);

/* ---- Faults --------------------------------------------------------------------------------------------- */

enum sim_op {
    SIM_OP_ANY,
    SIM_OPEN_DIR,
    SIM_MAKE_DIR,
    SIM_REMOVE_DIR,
    SIM_SYNC_PARENT,
    SIM_SYNC_DIR,
    SIM_LIST,
    SIM_OPEN,
    SIM_CLOSE,
    SIM_STAT,
    SIM_PREAD,
    SIM_PWRITE,
    SIM_SYNC,
    SIM_START_WRITEBACK,
    SIM_TRUNCATE,
    SIM_ALLOCATE,
    SIM_MAP,
    SIM_UNMAP,
    SIM_RENAME,
    SIM_LINK,
    SIM_REMOVE,
    SIM_LOCK,
    SIM_IS_LOCKED,
    SIM_UNLOCK,
    SIM_OP_COUNT,
};

const char *sim_op_name(enum sim_op op);

enum sim_effect {
    SIM_ERROR = 1,  // the call does nothing and gives -os_error (EINTR, EIO, ENOSPC, EMFILE, ...)
    SIM_SHORT,      // pread, pwrite of at least 2 bytes: half of it is done
    SIM_FLIP,       // pread of at least 1 byte: one bit of what is read is wrong
    SIM_SYNC_DROPS, // F1: sync fails; its pages are clean now: readable until a crash, never written
    SIM_SYNC_FAILS_DONE, // F2: sync fails although everything became durable
    SIM_SYNC_LATE, // F5: sync says OK and drops the pages as F1 does; the file's next sync fails
};

struct sim_fault {
    enum sim_op op;              // SIM_OP_ANY: any to which the effect applies
    enum tm_os_class file_class; // 0: any
    uint64_t nth; // the first matching call that is hit; 1 is the next one. UINT64_MAX: only count
    enum sim_effect effect;
    int os_error; // for SIM_ERROR; the SYNC kinds give EIO
    bool sticky;  // this and every later matching call, else once
};

/** Add a rule; several may be active: each counts every call that it matches, the first that hits decides what happens.
 *  Returns its number. */
size_t sim_fault_add(struct sim *sim, struct sim_fault fault);
/** How often the rule hit. A fault test asserts that this is not 0. Any time. */
uint64_t sim_fault_fired(const struct sim *sim, size_t fault);
/** How many calls matched it, hit or not: the range for a sweep over nth. Any time. */
uint64_t sim_fault_matched(const struct sim *sim, size_t fault);
/** Rules that are active. */
size_t sim_fault_count(const struct sim *sim);
/** Drop all rules. */
void sim_fault_clear(struct sim *sim);

/** The medium holds `bytes` (sum of file sizes); what would need more gets -ENOSPC, or a short count. 0: no limit.
 *  Any time. */
void sim_set_space(struct sim *sim, uint64_t bytes);
/** Sum of file sizes, removed but open files included. */
uint64_t sim_space_used(struct sim *sim);

/** From now on the program is a forked child of the one that opened its handles. */
void sim_fork(struct sim *sim);

/* ---- Watching ------------------------------------------------------------------------------------------- */

struct sim_call {
    uint64_t number;
    enum sim_op op;
    enum tm_os_class file_class; // 0: the call has none
    const char *name;            // of the file or directory; the old name of a rename
    const char *name_to;         // the new name of a rename, else NULL
    uint64_t offset;
    uint64_t length;
    int64_t result;
};

/** `before` runs at the start of each call with no lock held (a deterministic runtime switches threads there),
 *  `after` at its end, one at a time; it must not call the simulator. Either may be NULL. */
void sim_watch(struct sim *sim, void (*before)(void *arg),
               void (*after)(void *arg, const struct sim_call *call), void *arg);

/** Descriptors and mappings still open: 0 after a store is closed, or it leaks. */
size_t sim_open_descriptors(const struct sim *sim);
size_t sim_open_mappings(const struct sim *sim);

/* ---- The medium, past the calls -------------------------------------------------------------------------- */

/** The current bytes of a file, malloc'ed; NULL when there is none. */
uint8_t *sim_file_get(struct sim *sim, const char *dir, const char *name, size_t *size_out);
/** Put a file there, or other bytes under its name, durably: damage, stale copies, strays. The directory must exist. */
void sim_file_put(struct sim *sim, const char *dir, const char *name, const void *data,
                  size_t size);
/** Take a file away, durably. False when there is none. */
bool sim_file_remove(struct sim *sim, const char *dir, const char *name);
/** Current names, in order of creation. */
void sim_file_each(struct sim *sim, const char *dir, void (*visit)(void *arg, const char *name),
                   void *arg);
/** Make a directory, durably. */
void sim_dir_put(struct sim *sim, const char *dir);
/** Whether the directory is there. */
bool sim_dir_exists(struct sim *sim, const char *dir);

#endif
