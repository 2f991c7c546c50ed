/* SPDX-License-Identifier: MIT
 *
 * sstable/descriptors.h -- a bound on how many tables of a store hold a descriptor; the others open their file again
 * when they are read. Only descriptors: filters and indexes stay in memory.
 *
 *     open     T7 -> T3 -> T9 -> T4 -> (T7)     a ring; the hand closes the first table that nobody reads at this moment and
 *               ^ hand                          nobody has read since it passed (CLOCK)
 *     state    bit 31 open | bit 30 read since the hand passed | bits 0..29 reads that run now
 *
 * Invariants
 *   D1  A descriptor is closed only when no read runs on it: closing takes the state from "open, no reads" to 0 in one step.
 *   D2  More than the bound are open only while that many reads run at the same time.
 *   D3  A file that is opened again is as long as it was. Whether its bytes are the same, their checksums tell: they are
 *       seeded by ids that no other table has.
 *
 * Threads  any. A read of an open table takes one compare-and-swap; the mutex guards ring and count, never a file call.
 */
#ifndef TM_SSTABLE_DESCRIPTORS_H
#define TM_SSTABLE_DESCRIPTORS_H

#include <stdatomic.h>

#include "sstable/env.h"

struct tm_descriptors {
    // Immutable
    const struct tm_env *env;
    uint32_t open_max; // 0: no bound
    tamis_status
        missing; // what a file is that has gone: TAMIS_CORRUPT, or TAMIS_STALE for a reader beside a writer

    // Guarded by mutex
    struct tm_mutex mutex;
    struct tm_descriptor *hand; // NULL: the ring is empty
    uint32_t ring_count;
    uint32_t open_count; // of the ring, and those that are being opened
};

/* The file of one table. */
struct tm_descriptor {
    // Immutable after tm_descriptor_init()
    const struct tm_env *env;
    struct tm_descriptors *owner; // NULL: opened once, and kept open
    tamis_dir *dir;
    const char *name;

    // Set by the first opening
    uint64_t file_bytes;
    bool known;

    _Atomic uint32_t state;
    tamis_file *file; // while the state is open

    struct tm_descriptor *next, *previous; // guarded by the owner's mutex; in its ring
};

/** `env` is borrowed. Nothing is allocated. */
void tm_descriptors_init(struct tm_descriptors *descriptors, const struct tm_env *env,
                         uint32_t open_max, tamis_status missing);
void tm_descriptors_deinit(struct tm_descriptors *descriptors); // every descriptor is closed

/** `owner` (NULL: no bound), `dir` and `name` are borrowed. Opens nothing. */
void tm_descriptor_init(struct tm_descriptor *descriptor, const struct tm_env *env,
                        struct tm_descriptors *owner, tamis_dir *dir, const char *name);
/** Close it. No read runs. */
void tm_descriptor_close(struct tm_descriptor *descriptor);

/**
 * Have the file open until tm_descriptor_release(). The first call is made by one thread.
 *
 * @return TAMIS_OK; the owner's `missing` (TAMIS_CORRUPT without an owner); TAMIS_CORRUPT: another length (D3); TAMIS_IO,
 *         TAMIS_NO_MEMORY
 */
TAMIS_NODISCARD tamis_status tm_descriptor_acquire(struct tm_descriptor *descriptor,
                                                   tamis_file **file_out, tamis_error *err);
void tm_descriptor_release(struct tm_descriptor *descriptor);

#endif
