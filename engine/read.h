/* SPDX-License-Identifier: MIT
 *
 * engine/read.h -- a point lookup in a pinned view, for whoever looks up one key or many.
 *
 * Not here: what a lookup does, stop by stop (read.c); many keys at once (multi_get.c).
 */
#ifndef TM_ENGINE_READ_H
#define TM_ENGINE_READ_H

#include "engine/db_internal.h"

/* What a lookup found, and what keeps its bytes where they are. */
struct tm_answer {
    enum tm_lookup lookup;
    uint64_t sequence; // unless absent
    tamis_slice value;
    struct tm_block *block;       // a reference, or NULL
    struct tm_memtable *memtable; // borrowed from the view, or NULL
};

/* Candidates whose filter lines are in flight together: more than any tree at rest has, few enough for the
 * machine's buffers of outstanding misses; a deeper level 0 takes another round. */
enum { TM_CANDIDATES_MAX = 16 };

/* The tables whose range holds a key, newest first, round by round. */
struct tm_candidates {
    const struct tm_version *version;
    tamis_slice key;
    uint64_t hash;              // under the store's seed
    uint64_t skipped_by_range;  // tables, so far
    uint32_t level, next_index; // where the next round goes on
    bool is_begun;              // there has been a round
    uint32_t count;             // of this round; less than TM_CANDIDATES_MAX: the last one
    struct tm_file *files[TM_CANDIDATES_MAX];
    uint64_t hashes[TM_CANDIDATES_MAX]; // under each table's seed
};

/** Check what a read was given, and pin what it looks at. OK: tm_unpin_read(); INVALID. */
TAMIS_NODISCARD tamis_status tm_begin_read(tamis_db *db, const tamis_read_options *options,
                                           struct tm_pin *pin_out, uint64_t *sequence_out,
                                           tamis_error *err);

/** No round yet. `hash` is the key's under the store's seed. */
void tm_candidates_init(const struct tm_pin *pin, tamis_slice key, uint64_t hash,
                        struct tm_candidates *candidates);

/** The next round: all filter lines of its tables are on their way. */
void tm_candidates_next(const tamis_db *db, struct tm_candidates *candidates);

/**
 * Look the key of `candidates` up: in the memtables, and then in these tables.
 *
 * @param candidates    of the same pin. Begun, if the lines are to be on their way while others are looked up; else they are when
 *                      no memtable knows the key. Stands somewhere else afterwards
 * @param filters_only  the first "maybe" ends the search as found
 * @param answer        [out] its block is a reference for the caller, on OK and on failure
 * @return              OK, CORRUPT, IO, NO_MEMORY, STALE
 */
TAMIS_NODISCARD tamis_status tm_look_up(tamis_db *db, const struct tm_pin *pin,
                                        struct tm_candidates *candidates, uint64_t sequence,
                                        bool filters_only, struct tm_answer *answer,
                                        tamis_error *err);

/** Count the lookup, and say what it is for the user: OK or NOT_FOUND. */
tamis_status tm_conclude(tamis_db *db, const struct tm_pin *pin, const struct tm_answer *answer);

/** Hand the answer of a lookup that found something to the user, its block's reference with it. The caller counts the handle. */
void tm_pin_answer(tamis_db *db, const struct tm_answer *answer, tamis_pinned *pinned);

#endif
