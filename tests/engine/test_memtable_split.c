/* SPDX-License-Identifier: MIT
 *
 * tests/engine/test_memtable_split.c -- what readers see between the two stores that put a split leaf into its parent (T3).
 *
 * The moment lasts nanoseconds and has no call in it that a test could stop at, so the steps of a split are done here, one by one,
 * with the tree's own functions; for that its source is included.
 */
#include <check.h>
#include <stdio.h>

#include "engine/memtable_tree.c"
#include "tests/support/check_status.h"

enum { KEYS = 5 * TM_NODE_PIECES }; // written in order: five full leaves below the root

static struct tm_env env;
static struct tm_arena arena;
static struct tm_tree tree;

static tamis_slice
key_of(char text[16], unsigned number)
{
    snprintf(text, 16, "%08u", number);
    return tm_slice(text, 8);
}

static void
setup(void)
{
    memset(&env, 0, sizeof env);
    memset(&arena, 0, sizeof arena);
    memset(&tree, 0, sizeof tree);
    env.allocator = tm_allocator_default();
    arena.env = &env;
    tree.order = &env.order;
    tree.arena = &arena;
    ck_assert_int_eq(tm_arena_reserve(&arena, 1 << 20, 1 << 20, NULL), TAMIS_OK);
    for (unsigned i = 0; i < KEYS; i++) {
        char text[16];
        struct tm_entry entry = {key_of(text, i), {NULL, 0}, i + 1, TM_KIND_PUT};

        tm_tree_add(&tree, &entry);
    }
}

static void
teardown(void)
{
    tm_arena_release(&arena);
}

/* Every key is found, and met exactly once, in order, both ways. */
static void
check_all(const char *when)
{
    struct tm_leaf leaf;
    char text[16];
    unsigned met = 0;
    bool there;

    for (unsigned i = 0; i < KEYS; i++)
        if (tm_tree_find(&tree, key_of(text, i)) == NULL)
            ck_abort_msg("%s: key %u is not found", when, i);
    for (there = tm_leaf_enter_first(&leaf, &tree); there; there = tm_leaf_enter_next(&leaf, &tree))
        for (uint32_t i = 0; i < leaf.count; i++, met++)
            if (!tm_slice_equal(tm_record_key(leaf.records[i]), key_of(text, met)))
                ck_abort_msg("%s: forward, at key %u", when, met);
    ck_assert_uint_eq(met, KEYS);
    for (there = tm_leaf_enter_last(&leaf, &tree); there;
         there = tm_leaf_enter_previous(&leaf, &tree))
        for (uint32_t i = leaf.count; i-- > 0; met--)
            if (met == 0 || !tm_slice_equal(tm_record_key(leaf.records[i]), key_of(text, met - 1)))
                ck_abort_msg("%s: backward, before key %u", when, met);
    ck_assert_uint_eq(met, 0);
}

/* Each leaf in turn, the first and the last among them. */
START_TEST(every_key_is_found_and_met_once_at_each_moment_of_a_split)
{
    enum { HALF = TM_NODE_PIECES / 2 };
    struct tm_tree_node *root = atomic_load(&tree.root);
    uint32_t at = (uint32_t)_i;
    uint32_t place = row_of(root, filled(root))[at];
    struct tm_tree_node *whole = child_in(root, place);
    struct tm_tree_node *left;
    struct tm_tree_node *right;
    struct tm_leaf leaf;

    ck_assert_uint_eq(root->level, 1);
    ck_assert_uint_eq(filled(root), 5);
    ck_assert_uint_eq(filled(whole), TM_NODE_PIECES);
    check_all("before");
    (void)enter(&leaf, &tree, whole);
    left = copy_leaf(&tree, &leaf, 0, HALF, whole->low, leaf.records[HALF]);
    right = copy_leaf(&tree, &leaf, HALF, TM_NODE_PIECES, leaf.records[HALF],
                      atomic_load(&whole->high));
    insert_child(root, at + 1, right);
    check_all("with the right part beside the whole");
    atomic_store(&root->children[place], left);
    check_all("with both parts");
}
END_TEST

/* The other way in which a full leaf grows: a leaf of its own for what comes behind it. */
START_TEST(every_key_is_found_and_met_once_while_a_leaf_is_put_behind_a_full_one)
{
    struct tm_tree_node *root = atomic_load(&tree.root);
    struct tm_tree_node *last = child_in(root, row_of(root, 5)[4]);
    char text[16];
    struct tm_entry entry = {key_of(text, KEYS), {NULL, 0}, KEYS + 1, TM_KIND_PUT};
    const struct tm_record *record = record_create(&tree, &entry, NULL);
    struct tm_tree_node *right = node_create(&tree, 0, record, NULL, record, record);

    append_record(right, piece_in(right, entry.key), record);
    insert_child(root, 5, right);
    ck_assert_ptr_nonnull(tm_tree_find(&tree, entry.key));
    ck_assert_ptr_null(atomic_load(&last->high)); // not told yet: a walk forward ends before it
    for (unsigned i = 0; i < KEYS; i++)
        ck_assert_ptr_nonnull(tm_tree_find(&tree, key_of(text, i)));
    atomic_store(&last->high, record);
    for (unsigned i = 0; i <= KEYS; i++)
        ck_assert_ptr_nonnull(tm_tree_find(&tree, key_of(text, i)));
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("memtable split");
    TCase *tests = tcase_create("memtable split");

    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_loop_test(tests, every_key_is_found_and_met_once_at_each_moment_of_a_split, 0, 5);
    tcase_add_test(tests, every_key_is_found_and_met_once_while_a_leaf_is_put_behind_a_full_one);
    suite_add_tcase(suite, tests);
    return check_run(suite);
}
