/* SPDX-License-Identifier: MIT
 *
 * sstable/read_ahead.h -- many blocks of a table with one read, for whoever walks from block to block.
 *
 *     asked for   17  18  | 19                    20  21  22  | 23
 *     read        17  18  | 19 20 21 22 as one                | 23 ... 30 as one
 *
 * Two blocks in a row are read alone: a seek and a few steps read what they need. Every further one brings a window with
 * it, in the direction of the walk; windows grow while the walk goes on, from 16 to 128 KiB.
 *
 * Invariants
 *   A1  A window is whole data blocks of the index, so it lies within the data section.
 *   A2  Reading ahead never fails a walk: without memory, or where a window cannot be read, blocks are read alone, and the
 *       one that is damaged is told when it is asked for.
 *
 * Threads  one owner.
 * Not here: what stored bytes mean (codec.h), blocks that are cached and so not asked for here (table_read.c).
 */
#ifndef TM_SSTABLE_READ_AHEAD_H
#define TM_SSTABLE_READ_AHEAD_H

#include "sstable/env.h"

struct tm_table;

/* Zeroed has read nothing. */
struct tm_read_ahead {
    uint8_t *memory; // NULL: none
    size_t capacity; // of memory, in bytes
    size_t first;    // block that memory begins with
    size_t count;    // blocks in memory
    size_t last;     // block asked for last
    size_t step;     // from the one before it: 1 or, backward, -1
    size_t run;      // blocks asked for in a row, in one direction; 0: none yet
    size_t bytes;    // of the next window, at most
};

/**
 * The stored bytes of data block `number` < index.count, valid until the next call. NULL: read it alone.
 *
 * Cost  a read for each window, up to 128 KiB of memory until tm_read_ahead_release().
 */
const uint8_t *tm_read_ahead_get(struct tm_read_ahead *ahead, struct tm_table *table,
                                 size_t number);

void tm_read_ahead_release(const struct tm_env *env, struct tm_read_ahead *ahead);

#endif
