/* SPDX-License-Identifier: MIT
 *
 * engine/memtable_tree.c -- nodes, how they are searched, how they grow, and going from leaf to leaf.
 *
 *     node   count, level | skipped, prefix, low, high | 32 pieces | 32 places | inner: 32 lows, rows
 *
 *     rows   how the children stand in order: row n tells it for the first n of them       1 child   0
 *            (a row is written before the count that brings it into use, so that one       2         1 0
 *            number tells readers of the place and of its order)                           3         1 2 0
 *
 * What the keys of a node share is sure when both its bounds are known: all between them have it. At the ends of a level it is
 * guessed from keys that are there, and shortened; a key that has it not gets the lowest piece or the highest (T4).
 */
#include "engine/memtable_tree.h"

#include <assert.h>
#include <stdalign.h>
#include <string.h>

enum {
    ROWS_BYTES = TM_NODE_PIECES * (TM_NODE_PIECES + 1) / 2,
    // By so much a guessed prefix is shorter than what is seen: keys to come may differ earlier. A node sees some 32 times as
    // many keys as it began with before it is split, that is two decimal digits of a counter.
    GUESS_SLACK_BYTES = 2,
    // Leaves and versions by which a range's size is judged; a thousand entries lie in fewer leaves, and are counted.
    SAMPLE_LEAVES = 128,
    SAMPLE_VERSIONS = 4096,
};

enum prefix_use {
    PREFIX_SURE,    // every key that comes here has it
    PREFIX_GUESSED, // has to be looked at
    PREFIX_NONE,    // all pieces are 0: not ordered bytewise
};

struct inner_part {
    const struct tm_record *lows[TM_NODE_PIECES]; // NULL: no bound
    uint8_t rows[ROWS_BYTES];
};

struct tm_tree_node {
    _Atomic uint32_t count; // places filled (T1)
    uint8_t level;          // 0: leaf
    uint8_t prefix_use;
    uint32_t skipped;                       // key bytes before the pieces
    const uint8_t *prefix;                  // when guessed: those bytes
    const struct tm_record *low;            // no key is below; NULL: no bound
    _Atomic(const struct tm_record *) high; // all keys are below; NULL: no bound
    alignas(TM_ARENA_LINE_BYTES) uint64_t pieces[TM_NODE_PIECES];
    union {
        _Atomic(const struct tm_record *) records[TM_NODE_PIECES];
        _Atomic(struct tm_tree_node *) children[TM_NODE_PIECES];
    };
    struct inner_part inner[]; // inner nodes: one
};

enum {
    LEAF_BYTES = sizeof(struct tm_tree_node),
    INNER_BYTES =
        (sizeof(struct tm_tree_node) + sizeof(struct inner_part) + TM_ARENA_LINE_BYTES - 1) /
        TM_ARENA_LINE_BYTES * TM_ARENA_LINE_BYTES,
};

_Static_assert(LEAF_BYTES == 576, "nine lines");
_Static_assert((int)INNER_BYTES <= (int)TM_ARENA_NODE_BYTES_MAX, "the arena takes it");
_Static_assert(TM_KIND_PUT < 8, "record.kind");
_Static_assert(TAMIS_VALUE_BYTES_MAX <= UINT32_MAX, "record.value_length");

/* ---- Versions ------------------------------------------------------------------------------------- */

/* Stands before a record that is not the oldest version of its key. */
struct older {
    const struct tm_record *next;
    const struct tm_record *jump; // far back (T6)
    uint64_t count;               // versions before this one
};

_Static_assert(sizeof(struct tm_record) % TM_ARENA_ALIGNMENT == 0 &&
                   sizeof(struct older) % TM_ARENA_ALIGNMENT == 0,
               "sizes add up");

static const struct older *
older_of(const struct tm_record *record)
{
    return (const struct older *)record - 1;
}

static uint64_t
older_count(const struct tm_record *record)
{
    return record->is_oldest ? 0 : older_of(record)->count;
}

/* Where the jump from `record` goes: itself when it is the oldest. */
static const struct tm_record *
jump_of(const struct tm_record *record)
{
    return record->is_oldest ? record : older_of(record)->jump;
}

const struct tm_record *
tm_record_older(const struct tm_record *record)
{
    return record->is_oldest ? NULL : older_of(record)->next;
}

const struct tm_record *
tm_record_oldest(const struct tm_record *record)
{
    while (!record->is_oldest)
        record = older_of(record)->jump;
    return record;
}

const struct tm_record *
tm_record_at(const struct tm_record *record, uint64_t sequence)
{
    while (record->sequence > sequence) {
        if (record->is_oldest)
            return NULL;
        record = older_of(record)->jump->sequence > sequence ? older_of(record)->jump
                                                             : older_of(record)->next;
    }
    return record;
}

/* Two jumps of equal length behind each other become one of the next length, else the jump is to the next. */
static void
link_older(struct older *older, const struct tm_record *next)
{
    const struct tm_record *jump = jump_of(next);
    const struct tm_record *jump_again = jump_of(jump);

    older->next = next;
    older->count = older_count(next) + 1;
    older->jump =
        older_count(next) - older_count(jump) == older_count(jump) - older_count(jump_again)
            ? jump_again
            : next;
}

static const struct tm_record *
record_create(struct tm_tree *tree, const struct tm_entry *entry, const struct tm_record *next)
{
    size_t links_bytes = next != NULL ? sizeof(struct older) : 0;
    uint8_t *memory =
        tm_arena_take(tree->arena, tm_arena_aligned(links_bytes + sizeof(struct tm_record) +
                                                    entry->key.length + entry->value.length));
    struct tm_record *record = (struct tm_record *)(memory + links_bytes);

    if (next != NULL)
        link_older((struct older *)memory, next);
    record->sequence = entry->sequence;
    record->kind = entry->kind;
    record->is_oldest = next == NULL;
    record->key_length = (uint32_t)entry->key.length;
    record->value_length = (uint32_t)entry->value.length;
    atomic_init(&record->newer, NULL);
    if (entry->key.length != 0)
        memcpy(record->bytes, entry->key.data, entry->key.length);
    if (entry->value.length != 0)
        memcpy(record->bytes + entry->key.length, entry->value.data, entry->value.length);
    return record;
}

/* ---- Searching a node ----------------------------------------------------------------------------- */

static uint32_t
filled(const struct tm_tree_node *node)
{
    return atomic_load_explicit(&node->count, memory_order_acquire); // T1
}

static const struct tm_record *
record_in(const struct tm_tree_node *leaf, uint32_t place)
{
    return atomic_load_explicit(&leaf->records[place], memory_order_acquire); // T5
}

static struct tm_tree_node *
child_in(const struct tm_tree_node *node, uint32_t place)
{
    return atomic_load_explicit(&node->children[place], memory_order_acquire);
}

/* The places of the first `count` children, in order. */
static const uint8_t *
row_of(const struct tm_tree_node *node, uint32_t count)
{
    return node->inner->rows + (size_t)count * (count - 1) / 2;
}

/* The lowest piece for what stands before the guessed prefix, the highest for what stands behind it. */
static uint64_t
piece_of_guessed(const struct tm_tree_node *node, tamis_slice key)
{
    size_t shared = key.length < node->skipped ? key.length : node->skipped;
    int order = shared != 0 ? memcmp(key.data, node->prefix, shared) : 0;

    if (order != 0)
        return order < 0 ? 0 : UINT64_MAX;
    return key.length < node->skipped ? 0 : tm_piece(key, node->skipped);
}

static inline uint64_t
piece_in(const struct tm_tree_node *node, tamis_slice key)
{
    if (node->prefix_use == PREFIX_SURE)
        return tm_piece(key, node->skipped);
    return node->prefix_use == PREFIX_GUESSED ? piece_of_guessed(node, key) : 0;
}

/* Do all keys from `low` on stand at or behind `key` (or, unless `strictly`, behind it)? */
static bool
is_beyond(const struct tm_tree *tree, const struct tm_record *low, tamis_slice key, bool strictly)
{
    int order;

    if (low == NULL)
        return false;
    order = tm_order_compare(tree->order, tm_record_key(low), key);
    return order > 0 || (strictly && order == 0);
}

/* Among children whose pieces are that of the key, those at `begin` to before `end` of the row: where the first one beyond is. */
static uint32_t
end_of_tie(const struct tm_tree *tree, const struct tm_tree_node *node, const uint8_t *row,
           uint32_t begin, uint32_t end, tamis_slice key, bool strictly)
{
    for (uint32_t i = begin; i < end; i++)
        __builtin_prefetch(node->inner->lows[row[i]]);
    while (begin < end) {
        uint32_t middle = (begin + end) / 2;

        if (is_beyond(tree, node->inner->lows[row[middle]], key, strictly))
            end = middle;
        else
            begin = middle + 1;
    }
    return begin;
}

/* Where in the row the child stands that has `key`, or would have it; `strictly`: that has the last key before it. */
static inline uint32_t
find_child(const struct tm_tree *tree, const struct tm_pieces_kernel *kernel,
           const struct tm_tree_node *node, uint32_t count, const uint8_t *row, tamis_slice key,
           bool strictly)
{
    uint64_t piece = piece_in(node, key);
    uint32_t end = (uint32_t)__builtin_popcount(kernel->at_most(node->pieces, count, piece));

    assert(end > 0); // the first child begins where the node does
    if (node->pieces[row[end - 1]] == piece) {
        uint32_t begin =
            piece == 0
                ? 0
                : (uint32_t)__builtin_popcount(kernel->at_most(node->pieces, count, piece - 1));

        end = end_of_tie(tree, node, row, begin, end, key, strictly);
    }
    return end - 1;
}

static inline void
prefetch_node(const struct tm_tree_node *node)
{
    for (size_t line = 0; line < LEAF_BYTES; line += TM_ARENA_LINE_BYTES)
        __builtin_prefetch((const uint8_t *)node + line);
}

/* The leaf that has `key`, or would have it; `strictly`: that has the last key before it. */
static inline const struct tm_tree_node *
find_leaf(const struct tm_tree *tree, const struct tm_pieces_kernel *kernel, tamis_slice key,
          bool strictly)
{
    const struct tm_tree_node *node = atomic_load_explicit(&tree->root, memory_order_acquire);

    while (node != NULL && node->level > 0) {
        uint32_t count = filled(node);
        const uint8_t *row = row_of(node, count);
        const struct tm_tree_node *child =
            child_in(node, row[find_child(tree, kernel, node, count, row, key, strictly)]);

        prefetch_node(child);
        if (filled(node) == count) // T3
            node = child;
    }
    return node;
}

/* The place of `key`; -1 when the leaf has it not. */
static inline int
find_place(const struct tm_tree *tree, const struct tm_pieces_kernel *kernel,
           const struct tm_tree_node *leaf, uint32_t count, uint64_t piece, tamis_slice key)
{
    for (uint32_t mask = kernel->equal(leaf->pieces, count, piece); mask != 0; mask &= mask - 1) {
        int place = __builtin_ctz(mask);
        const struct tm_record *record = record_in(leaf, (uint32_t)place);

        if (tm_order_equal(tree->order, tm_record_key(record), key))
            return place;
    }
    return -1;
}

const struct tm_record *
tm_tree_find(const struct tm_tree *tree, tamis_slice key)
{
    const struct tm_pieces_kernel *kernel = tm_pieces_chosen();
    const struct tm_tree_node *leaf = find_leaf(tree, kernel, key, false);
    int place;

    if (leaf == NULL)
        return NULL;
    place = find_place(tree, kernel, leaf, filled(leaf), piece_in(leaf, key), key);
    return place < 0 ? NULL : record_in(leaf, (uint32_t)place);
}

/* ---- Going from leaf to leaf ------------------------------------------------------------------------ */

/* Fill `leaf` with what `node` has now, in order. What was written in order costs one comparison a record. */
static bool
enter(struct tm_leaf *leaf, const struct tm_tree *tree, const struct tm_tree_node *node)
{
    leaf->node = node;
    leaf->count = node != NULL ? filled(node) : 0;
    for (uint32_t i = 0; i < leaf->count; i++) {
        const struct tm_record *record = record_in(node, i);
        uint64_t piece = node->pieces[i];
        uint32_t at = i;

        __builtin_prefetch(record);
        while (at > 0 && (leaf->pieces[at - 1] > piece ||
                          (leaf->pieces[at - 1] == piece &&
                           tm_order_compare(tree->order, tm_record_key(leaf->records[at - 1]),
                                            tm_record_key(record)) > 0))) {
            leaf->pieces[at] = leaf->pieces[at - 1];
            leaf->records[at] = leaf->records[at - 1];
            at--;
        }
        leaf->pieces[at] = piece;
        leaf->records[at] = record;
    }
    return leaf->count > 0;
}

/* The leaf at one end of all that is below `node`. */
static const struct tm_tree_node *
end_leaf(const struct tm_tree_node *node, bool is_last)
{
    while (node != NULL && node->level > 0) {
        uint32_t count = filled(node);
        const struct tm_tree_node *child =
            child_in(node, row_of(node, count)[is_last ? count - 1 : 0]);

        if (filled(node) == count) // T3
            node = child;
    }
    return node;
}

bool
tm_leaf_enter_first(struct tm_leaf *leaf, const struct tm_tree *tree)
{
    return enter(leaf, tree,
                 end_leaf(atomic_load_explicit(&tree->root, memory_order_acquire), false));
}

bool
tm_leaf_enter_last(struct tm_leaf *leaf, const struct tm_tree *tree)
{
    return enter(leaf, tree,
                 end_leaf(atomic_load_explicit(&tree->root, memory_order_acquire), true));
}

bool
tm_leaf_enter_at(struct tm_leaf *leaf, const struct tm_tree *tree, tamis_slice key)
{
    return enter(leaf, tree, find_leaf(tree, tm_pieces_chosen(), key, false));
}

/* The bound is read now: keys may have come behind what was the last one on entering. */
bool
tm_leaf_enter_next(struct tm_leaf *leaf, const struct tm_tree *tree)
{
    const struct tm_record *high = atomic_load_explicit(&leaf->node->high, memory_order_acquire);

    return high != NULL && tm_leaf_enter_at(leaf, tree, tm_record_key(high)); // T3
}

/* While a leaf is being split, its right part can be met in the parent beside the whole of what both come from (T3): what the
 * right part has is left out here. */
bool
tm_leaf_enter_previous(struct tm_leaf *leaf, const struct tm_tree *tree)
{
    const struct tm_record *low = leaf->node->low;

    if (low == NULL ||
        !enter(leaf, tree, find_leaf(tree, tm_pieces_chosen(), tm_record_key(low), true)))
        return false;
    while (tm_order_compare(tree->order, tm_record_key(leaf->records[leaf->count - 1]),
                            tm_record_key(low)) >= 0)
        leaf->count--;
    return true;
}

uint32_t
tm_leaf_seek(const struct tm_leaf *leaf, const struct tm_tree *tree, tamis_slice key)
{
    uint64_t piece = piece_in(leaf->node, key);
    uint32_t at = 0;

    while (at < leaf->count &&
           (leaf->pieces[at] < piece ||
            (leaf->pieces[at] == piece &&
             tm_order_compare(tree->order, tm_record_key(leaf->records[at]), key) < 0)))
        at++;
    return at;
}

/* ---- Growing --------------------------------------------------------------------------------------- */

/* The way down to a leaf: on each level above it the node, and where in its row the child stands. */
struct way {
    struct {
        struct tm_tree_node *node;
        uint32_t at;
    } steps[TM_TREE_HEIGHT_MAX];
};

bool
tm_tree_record_bytes_max(size_t entry_count, size_t bytes, size_t *bytes_out)
{
    size_t each = sizeof(struct older) + sizeof(struct tm_record) + TM_ARENA_ALIGNMENT - 1;

    if (entry_count > SIZE_MAX / 4 / each || bytes > SIZE_MAX / 4)
        return false;
    *bytes_out = entry_count * each + bytes;
    return true;
}

/* A node that is there may be full, and split by the first record that comes; one that was split takes 16 more until it is split
 * again. Each split makes two nodes of one, and brings one more to the level above. */
size_t
tm_tree_node_bytes_max(const struct tm_tree *tree, size_t entry_count)
{
    uint64_t coming = entry_count;
    uint64_t bytes = 0;

    for (uint32_t level = 0; level < TM_TREE_HEIGHT_MAX && coming > 0; level++) {
        uint64_t splits = tree->node_counts[level] + coming / (TM_NODE_PIECES / 2);
        uint64_t node_bytes = level == 0 ? LEAF_BYTES : INNER_BYTES;

        splits = splits < coming ? splits : coming;
        bytes += 2 * splits * node_bytes;
        if (level >= tree->height) // the first one of the level
            bytes += node_bytes;
        coming = splits;
    }
    return bytes < SIZE_MAX / 4 ? (size_t)bytes : SIZE_MAX / 4;
}

/* A record somewhere at the low (high) end of what is below `node`. */
static const struct tm_record *
record_near_end(const struct tm_tree_node *node, bool is_high)
{
    const struct tm_tree_node *leaf = end_leaf(node, is_high);

    return record_in(leaf, is_high ? filled(leaf) - 1 : 0);
}

/* `first` and `last` are keys that the node will have, far from each other; the same one when there is but one. */
static struct tm_tree_node *
node_create(struct tm_tree *tree, uint32_t level, const struct tm_record *low,
            const struct tm_record *high, const struct tm_record *first,
            const struct tm_record *last)
{
    struct tm_tree_node *node =
        tm_arena_take_node(tree->arena, level == 0 ? LEAF_BYTES : INNER_BYTES);

    atomic_init(&node->count, 0);
    node->level = (uint8_t)level;
    node->low = low;
    atomic_init(&node->high, high);
    node->skipped = 0;
    node->prefix = NULL;
    if (!tm_order_is_bytewise(tree->order)) {
        node->prefix_use = PREFIX_NONE;
    } else if (low != NULL && high != NULL) {
        node->prefix_use = PREFIX_SURE;
        node->skipped = (uint32_t)tm_slice_shared(tm_record_key(low), tm_record_key(high));
    } else {
        size_t shared =
            first != last ? tm_slice_shared(tm_record_key(first), tm_record_key(last)) : 0;

        node->prefix_use = PREFIX_GUESSED;
        node->prefix = first->bytes;
        node->skipped = shared > GUESS_SLACK_BYTES ? (uint32_t)shared - GUESS_SLACK_BYTES : 0;
    }
    tree->node_counts[level]++;
    return node;
}

/* Behind the places that are filled. */
static void
append_record(struct tm_tree_node *leaf, uint64_t piece, const struct tm_record *record)
{
    uint32_t place = atomic_load_explicit(&leaf->count, memory_order_relaxed);

    leaf->pieces[place] = piece;
    atomic_store_explicit(&leaf->records[place], record, memory_order_relaxed);
    atomic_store_explicit(&leaf->count, place + 1, memory_order_release); // T1, T5
}

/* At place `at` of the row. */
static void
insert_child(struct tm_tree_node *node, uint32_t at, struct tm_tree_node *child)
{
    uint32_t count = atomic_load_explicit(&node->count, memory_order_relaxed);
    uint8_t *row = node->inner->rows + (size_t)count * (count + 1) / 2; // row_of(node, count + 1)

    if (count > 0) {
        const uint8_t *row_before = row_of(node, count);

        memcpy(row, row_before, at);
        memcpy(row + at + 1, row_before + at, count - at);
    }
    row[at] = (uint8_t)count;
    node->inner->lows[count] = child->low;
    node->pieces[count] = child->low != NULL ? piece_in(node, tm_record_key(child->low)) : 0;
    atomic_store_explicit(&node->children[count], child, memory_order_relaxed);
    atomic_store_explicit(&node->count, count + 1, memory_order_release); // T1
}

/* An inner node of `count` children, in order. */
static struct tm_tree_node *
inner_create(struct tm_tree *tree, struct tm_tree_node *const *children, uint32_t count,
             const struct tm_record *low, const struct tm_record *high)
{
    struct tm_tree_node *inner =
        node_create(tree, children[0]->level + 1U, low, high, record_near_end(children[0], false),
                    record_near_end(children[count - 1], true));

    for (uint32_t i = 0; i < count; i++)
        insert_child(inner, i, children[i]);
    return inner;
}

/* On the level above `left`: where one child was, at the way's place, there are `left`, which may be that very child, and `right`. */
static void
replace_child(struct tm_tree *tree, const struct way *way, struct tm_tree_node *left,
              struct tm_tree_node *right)
{
    uint32_t level = left->level + 1U;
    struct tm_tree_node *parent = level < tree->height ? way->steps[level].node : NULL;
    struct tm_tree_node *children[TM_NODE_PIECES + 1] = {left, right};
    struct tm_tree_node *parts[2];
    const struct tm_record *high;
    const uint8_t *row;
    uint32_t at;

    if (parent == NULL) {
        atomic_store_explicit(&tree->root, inner_create(tree, children, 2, NULL, NULL),
                              memory_order_release);
        tree->height++;
        return;
    }
    at = way->steps[level].at;
    row = row_of(parent, filled(parent));
    if (filled(parent) < TM_NODE_PIECES) {
        uint32_t place = row[at];

        insert_child(parent, at + 1, right); // T3: before the left part
        atomic_store_explicit(&parent->children[place], left, memory_order_release);
        return;
    }
    for (uint32_t i = 0; i < TM_NODE_PIECES; i++)
        children[i < at ? i : i + 1] = child_in(parent, row[i]);
    children[at] = left;
    children[at + 1] = right;
    high = atomic_load_explicit(&parent->high, memory_order_relaxed);
    parts[0] = inner_create(tree, children, TM_NODE_PIECES / 2, parent->low,
                            children[TM_NODE_PIECES / 2]->low);
    parts[1] = inner_create(tree, children + TM_NODE_PIECES / 2, TM_NODE_PIECES / 2 + 1,
                            children[TM_NODE_PIECES / 2]->low, high);
    replace_child(tree, way, parts[0], parts[1]);
    tree->node_counts[level]--;
}

/* Copy records of `leaf` from `begin` to before `end`. */
static struct tm_tree_node *
copy_leaf(struct tm_tree *tree, const struct tm_leaf *leaf, uint32_t begin, uint32_t end,
          const struct tm_record *low, const struct tm_record *high)
{
    struct tm_tree_node *node =
        node_create(tree, 0, low, high, leaf->records[begin], leaf->records[end - 1]);

    for (uint32_t i = begin; i < end; i++)
        append_record(node, piece_in(node, tm_record_key(leaf->records[i])), leaf->records[i]);
    return node;
}

/* `record` belongs into a leaf that is full. Behind all that is in it, it begins a leaf of its own, so that what comes in
 * ascending order leaves full leaves behind; else two leaves take the place of one. */
static void
split_leaf(struct tm_tree *tree, const struct way *way, struct tm_tree_node *node,
           const struct tm_record *record)
{
    enum { HALF = TM_NODE_PIECES / 2 };
    const struct tm_record *high = atomic_load_explicit(&node->high, memory_order_relaxed);
    tamis_slice key = tm_record_key(record);
    struct tm_tree_node *left;
    struct tm_tree_node *right;
    struct tm_leaf leaf;

    (void)enter(&leaf, tree, node);
    if (tm_order_compare(tree->order, tm_record_key(leaf.records[TM_NODE_PIECES - 1]), key) < 0) {
        right = node_create(tree, 0, record, high, leaf.records[0], record);
        append_record(right, piece_in(right, key), record);
        replace_child(tree, way, node, right);
        atomic_store_explicit(&node->high, record, memory_order_release);
        return;
    }
    left = copy_leaf(tree, &leaf, 0, HALF, node->low, leaf.records[HALF]);
    right = copy_leaf(tree, &leaf, HALF, TM_NODE_PIECES, leaf.records[HALF], high);
    if (tm_order_compare(tree->order, key, tm_record_key(leaf.records[HALF])) < 0)
        append_record(left, piece_in(left, key), record);
    else
        append_record(right, piece_in(right, key), record);
    replace_child(tree, way, left, right);
    tree->node_counts[0]--;
}

/* As find_leaf(), keeping the way. */
static struct tm_tree_node *
go_down(struct tm_tree *tree, const struct tm_pieces_kernel *kernel, tamis_slice key,
        struct way *way)
{
    struct tm_tree_node *node = atomic_load_explicit(&tree->root, memory_order_relaxed);

    while (node->level > 0) {
        uint32_t count = filled(node);
        const uint8_t *row = row_of(node, count);
        uint32_t at = find_child(tree, kernel, node, count, row, key, false);

        way->steps[node->level].node = node;
        way->steps[node->level].at = at;
        node = child_in(node, row[at]);
        prefetch_node(node);
    }
    return node;
}

static void
add_version(struct tm_tree *tree, struct tm_tree_node *leaf, uint32_t place,
            const struct tm_entry *entry)
{
    const struct tm_record *newest =
        atomic_load_explicit(&leaf->records[place], memory_order_relaxed);
    const struct tm_record *record = record_create(tree, entry, newest);

    atomic_store_explicit(&((struct tm_record *)newest)->newer, record, memory_order_release); // T5
    atomic_store_explicit(&leaf->records[place], record, memory_order_release);                // T5
}

void
tm_tree_add(struct tm_tree *tree, const struct tm_entry *entry)
{
    const struct tm_pieces_kernel *kernel = tm_pieces_chosen();
    const struct tm_record *record;
    struct tm_tree_node *leaf;
    struct way way;
    uint64_t piece;
    int place;

    if (tree->height == 0) {
        record = record_create(tree, entry, NULL);
        leaf = node_create(tree, 0, NULL, NULL, record, record);
        append_record(leaf, piece_in(leaf, entry->key), record);
        tree->height = 1;
        atomic_store_explicit(&tree->root, leaf, memory_order_release);
        return;
    }
    leaf = go_down(tree, kernel, entry->key, &way);
    piece = piece_in(leaf, entry->key);
    place = find_place(tree, kernel, leaf, filled(leaf), piece, entry->key);
    if (place >= 0) {
        add_version(tree, leaf, (uint32_t)place, entry);
        return;
    }
    record = record_create(tree, entry, NULL);
    if (filled(leaf) < TM_NODE_PIECES)
        append_record(leaf, piece, record);
    else
        split_leaf(tree, &way, leaf, record);
}

/* ---- Sizes ------------------------------------------------------------------------------------------ */

/* What a walk over the leaves of a range does. */
struct measure {
    const struct tm_tree *tree;
    uint64_t stride;     // one leaf in so many is looked at
    uint64_t leaf_count; // met so far
    uint64_t looked_at_count;
    uint64_t bytes;         // of the records in these
    uint64_t versions_left; // that may still be looked at one by one
};

/* Of all versions of a key: exact while there are some left to look at, then as if older ones were like those seen. */
static uint64_t
bytes_of_versions(struct measure *measure, const struct tm_record *record)
{
    uint64_t version_count = older_count(record) + 1;
    uint64_t seen_count = 0;
    uint64_t bytes = 0;

    do {
        bytes += (uint64_t)record->key_length + record->value_length;
        seen_count++;
        measure->versions_left -= measure->versions_left > 0;
        record = tm_record_older(record);
    } while (record != NULL && measure->versions_left > 0);
    return bytes * version_count / seen_count;
}

/* Leave of a range what lies between the bounds of `node`: an end that is not there is NULL. False: nothing is left. */
static bool
cut_to_node(const struct tm_order *order, const struct tm_tree_node *node, const tamis_slice **from,
            const tamis_slice **to)
{
    const struct tm_record *low = node->low;
    const struct tm_record *high = atomic_load_explicit(&node->high, memory_order_acquire);

    if ((low != NULL && *to != NULL && tm_order_compare(order, **to, tm_record_key(low)) <= 0) ||
        (high != NULL && *from != NULL &&
         tm_order_compare(order, **from, tm_record_key(high)) >= 0))
        return false;
    if (low != NULL && *from != NULL && tm_order_compare(order, **from, tm_record_key(low)) <= 0)
        *from = NULL;
    if (high != NULL && *to != NULL && tm_order_compare(order, **to, tm_record_key(high)) >= 0)
        *to = NULL;
    return true;
}

static void
measure_leaf(struct measure *measure, const struct tm_tree_node *leaf, const tamis_slice *from,
             const tamis_slice *to)
{
    const struct tm_order *order = measure->tree->order;
    uint32_t count = filled(leaf);

    measure->looked_at_count++;
    for (uint32_t i = 0; i < count; i++) {
        const struct tm_record *record = record_in(leaf, i);

        if ((from == NULL || tm_order_compare(order, tm_record_key(record), *from) >= 0) &&
            (to == NULL || tm_order_compare(order, tm_record_key(record), *to) < 0))
            measure->bytes += bytes_of_versions(measure, record);
    }
}

/* What is below `node` from `from` to before `to`. Of a leaf that is not looked at, not even the memory is. */
static void
measure_node(struct measure *measure, const struct tm_tree_node *node, const tamis_slice *from,
             const tamis_slice *to)
{
    const struct tm_pieces_kernel *kernel = tm_pieces_chosen();
    uint32_t count = filled(node);
    const uint8_t *row;
    uint32_t begin = 0;
    uint32_t last = count - 1;

    if (!cut_to_node(measure->tree->order, node, &from, &to))
        return;
    if (node->level == 0) {
        measure_leaf(measure, node, from, to);
        return;
    }
    row = row_of(node, count);
    if (from != NULL)
        begin = find_child(measure->tree, kernel, node, count, row, *from, false);
    if (to != NULL)
        last = find_child(measure->tree, kernel, node, count, row, *to, false);
    for (uint32_t i = begin; i <= last; i++)
        if (node->level > 1 || measure->leaf_count++ % measure->stride == 0)
            measure_node(measure, child_in(node, row[i]), from, to);
}

uint64_t
tm_tree_approximate_bytes(const struct tm_tree *tree, const tamis_slice *from,
                          const tamis_slice *to)
{
    const struct tm_tree_node *root = atomic_load_explicit(&tree->root, memory_order_acquire);
    struct measure count = {.tree = tree,
                            .stride = UINT64_MAX}; // leaves; looks at the first one only
    struct measure measure = {.tree = tree, .versions_left = SAMPLE_VERSIONS};

    if (root == NULL ||
        (from != NULL && to != NULL && tm_order_compare(tree->order, *from, *to) >= 0))
        return 0;
    measure_node(&count, root, from, to);
    measure.stride = 1 + count.leaf_count / SAMPLE_LEAVES;
    measure_node(&measure, root, from, to);
    if (measure.leaf_count <= measure.looked_at_count) // all of them
        return measure.bytes;
    return measure.looked_at_count > 0
               ? measure.bytes * measure.leaf_count / measure.looked_at_count
               : 0;
}
