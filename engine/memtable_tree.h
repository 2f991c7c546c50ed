/* SPDX-License-Identifier: MIT
 *
 * engine/memtable_tree.h -- records in order: a tree of nodes with 32 places, for one writer and readers that never wait.
 *
 * A record is one version of one key; the versions of a key are linked, newest first, and a leaf has a place for each key.
 *
 *     root     [ .  .  . ]                     a search in a node compares 8-byte pieces of keys, all places at once, behind
 *               |  |  |                        what the keys of the node share (sstable/pieces.h); whole keys only on ties
 *     leaves   [d a c][e g][k h]               a leaf's places fill in the order of writing
 *                 |
 *     versions    a.9 --> a.4 --> a.2
 *
 * Invariants
 *   T1  A place is filled before the node's count tells of it (release), and stays, but for two: a leaf's place moves on to a newer
 *       version of the same key, an inner node's to the left part of what it held.
 *   T2  A node that was split stays as it was, so that a reader in it finds all that was there before.
 *   T3  The right part is in the parent, and its count tells so, before the left part takes the place of what both came from. Who
 *       finds the count of an inner node unchanged after taking a child from it has the child that the count was for; else
 *       the search in that node is done again, 30 times at the very most. A bound between two leaves stays one, nothing is ever merged.
 *   T4  Pieces do not descend where keys ascend, whatever prefix a node was made with; where they are equal whole keys decide.
 *   T5  A record is complete before it can be met (release).
 *   T6  A record further back in time has the smaller sequence; jumps go back so that any version is reached in some 2 log2(n) steps.
 *
 * Source: the B+tree of Bayer and McCreight 1972, leaves unsorted as in Chen and Jin 2015 (wB+-Trees, there for other memory);
 * jumps of versions: Myers 1983, An applicative random-access stack.
 */
#ifndef TM_ENGINE_MEMTABLE_TREE_H
#define TM_ENGINE_MEMTABLE_TREE_H

#include <stdatomic.h>

#include "engine/arena.h"
#include "sstable/entry.h"
#include "sstable/pieces.h"

enum {
    // A node has 16 places filled or more, but for the last of a level: 8 levels hold 2^32 keys.
    TM_TREE_HEIGHT_MAX = 10,
};

/* One version of a key. What stands before it in memory, unless it is the oldest of its key: struct older (memtable_tree.c). */
struct tm_record {
    uint64_t sequence : TM_SEQUENCE_BITS;
    uint64_t kind : 3;
    uint64_t is_oldest : 1;
    uint32_t key_length;
    uint32_t value_length;
    _Atomic(const struct tm_record *) newer; // next version of the key; NULL: none
    uint8_t bytes[];                         // key, value
};

struct tm_tree_node;

/* Zeroed, with `order` and `arena` set, is empty. */
struct tm_tree {
    const struct tm_order *order; // borrowed
    struct tm_arena *arena;       // borrowed
    _Atomic(struct tm_tree_node *) root;
    uint64_t node_counts[TM_TREE_HEIGHT_MAX]; // writer's: nodes of each level, leaves first
    uint32_t height;                          // writer's: levels
};

static inline tamis_slice
tm_record_key(const struct tm_record *record)
{
    return tm_slice(record->bytes, record->key_length);
}

static inline tamis_slice
tm_record_value(const struct tm_record *record)
{
    return tm_slice(record->bytes + record->key_length, record->value_length);
}

/** The next older version of the same key; NULL when there is none. */
const struct tm_record *tm_record_older(const struct tm_record *record);

/** The oldest version of the same key. Cost: T6. */
const struct tm_record *tm_record_oldest(const struct tm_record *record);

/** From `record` back the first version that is not newer than `sequence`; NULL when there is none. Cost: T6. */
const struct tm_record *tm_record_at(const struct tm_record *record, uint64_t sequence);

/* ---- The writer ----------------------------------------------------------------------------------- */

/** The most that `entry_count` records with `bytes` of keys and values in all take from the arena; false: no such number. */
bool tm_tree_record_bytes_max(size_t entry_count, size_t bytes, size_t *bytes_out);
/** The most that the nodes for `entry_count` more records take. */
size_t tm_tree_node_bytes_max(const struct tm_tree *tree, size_t entry_count);

/** Copy an entry in. Its sequence is the newest of all; the arena was reserved for it. */
void tm_tree_add(struct tm_tree *tree, const struct tm_entry *entry);

/* ---- Readers: any thread ---------------------------------------------------------------------------- */

/** Newest version of `key`; NULL when there is none. */
const struct tm_record *tm_tree_find(const struct tm_tree *tree, tamis_slice key);

/* A leaf as it was when it was entered, in order. Filled by tm_leaf_enter...(). */
struct tm_leaf {
    const struct tm_tree_node *node;
    uint32_t count;
    uint64_t pieces[TM_NODE_PIECES];
    const struct tm_record *records[TM_NODE_PIECES]; // newest version of each key
};

/* Each enters a leaf; false: there is none. All of the tree is met by going from leaf to leaf. */
bool tm_leaf_enter_first(struct tm_leaf *leaf, const struct tm_tree *tree);
bool tm_leaf_enter_last(struct tm_leaf *leaf, const struct tm_tree *tree);
bool tm_leaf_enter_at(struct tm_leaf *leaf, const struct tm_tree *tree,
                      tamis_slice key); // where key is, or belongs
bool tm_leaf_enter_next(struct tm_leaf *leaf, const struct tm_tree *tree);
bool tm_leaf_enter_previous(struct tm_leaf *leaf, const struct tm_tree *tree);

/** Index of the first record whose key is at least `key`; leaf->count when there is none. */
uint32_t tm_leaf_seek(const struct tm_leaf *leaf, const struct tm_tree *tree, tamis_slice key);

/** As tm_memtable_approximate_bytes(). */
uint64_t tm_tree_approximate_bytes(const struct tm_tree *tree, const tamis_slice *from,
                                   const tamis_slice *to);

#endif
