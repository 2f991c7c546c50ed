/* SPDX-License-Identifier: MIT
 *
 * tests/sstable/table_test.h -- what the table tests share: a sorted list of entries as reference, a place for tables.
 *
 * A struct shelf is a simulated world with one directory in it. Identities come from a counter, so that the same
 * entries give the same file.
 */
#ifndef TAMIS_TESTS_SSTABLE_TABLE_TEST_H
#define TAMIS_TESTS_SSTABLE_TABLE_TEST_H

#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "filter/bytes.h"
#include "filter/hash.h"
#include "sstable/table_read.h"
#include "tests/support/check_status.h"
#include "tests/support/rng.h"
#include "tests/support/world.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SLOW_BUILD = 1 }; // about ten times slower: sweeps take a sample
#else
enum { SLOW_BUILD = 0 };
#endif

/* As ck_assert(), but free while it holds: for loops of millions. */
#define expect(condition)                                                                          \
    do {                                                                                           \
        if (!(condition))                                                                          \
            ck_abort_msg("expected %s", #condition);                                               \
    } while (0)

/* As check_ok(), but free while it holds. */
#define expect_ok(call, err)                                                                       \
    do {                                                                                           \
        tamis_status status_ = (call);                                                             \
        if (status_ != TAMIS_OK)                                                                   \
            ck_abort_msg("%s gives %s: %s", #call, tamis_status_name(status_), (err).message);     \
    } while (0)

/* ---- Entries --------------------------------------------------------------------------------------- */

/* Sorted by hand or by entries_sort(); owns its bytes. Zeroed is empty. */
struct entries {
    struct tm_entry *list;
    size_t count;
    size_t capacity;
    const struct tm_range *ranges; // range tombstones beside them; borrowed
    size_t range_count;
};

static inline void *
copy_bytes(const void *data, size_t length)
{
    void *copy = malloc(length + 1);

    if (copy == NULL)
        abort();
    if (length > 0)
        memcpy(copy, data, length);
    return copy;
}

static inline void
entries_add(struct entries *entries, tamis_slice key, uint64_t sequence, enum tm_kind kind,
            tamis_slice value)
{
    if (entries->count == entries->capacity) {
        entries->capacity = entries->capacity * 2 + 16;
        entries->list = realloc(entries->list, entries->capacity * sizeof *entries->list);
        if (entries->list == NULL)
            abort();
    }
    entries->list[entries->count++] = (struct tm_entry){
        .key = tm_slice(copy_bytes(key.data, key.length), key.length),
        .value = tm_slice(copy_bytes(value.data, value.length), value.length),
        .sequence = sequence,
        .kind = kind,
    };
}

static inline void
entries_put(struct entries *entries, const char *key, uint64_t sequence, const char *value)
{
    entries_add(entries, tm_slice(key, strlen(key)), sequence, TM_KIND_PUT,
                tm_slice(value, strlen(value)));
}

static inline int
entries_order(const void *a, const void *b)
{
    const struct tm_entry *p = a;
    const struct tm_entry *q = b;

    return tm_entry_compare(NULL, p->key, p->sequence, q->key, q->sequence);
}

static inline void
entries_sort(struct entries *entries)
{
    if (entries->count > 0)
        qsort(entries->list, entries->count, sizeof *entries->list, entries_order);
}

static inline void
entries_free(struct entries *entries)
{
    for (size_t i = 0; i < entries->count; i++) {
        free((void *)entries->list[i].key.data);
        free((void *)entries->list[i].value.data);
    }
    free(entries->list);
    memset(entries, 0, sizeof *entries);
}

/* The first entry at or after (key, sequence); count if there is none. */
static inline size_t
entries_seek(const struct entries *entries, tamis_slice key, uint64_t sequence)
{
    size_t low = 0;
    size_t high = entries->count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const struct tm_entry *entry = &entries->list[middle];

        if (tm_entry_compare(NULL, entry->key, entry->sequence, key, sequence) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* The newest version of `key` not above `sequence`, or NULL. */
static inline const struct tm_entry *
entries_search(const struct entries *entries, tamis_slice key, uint64_t sequence)
{
    size_t at = entries_seek(entries, key, sequence);

    if (at == entries->count || !tm_slice_equal(entries->list[at].key, key))
        return NULL;
    return &entries->list[at];
}

static inline bool
entries_hold(const struct entries *entries, tamis_slice key)
{
    return entries_search(entries, key, TM_SEQUENCE_MAX) != NULL;
}

static inline bool
same_entry(const struct tm_entry *a, const struct tm_entry *b)
{
    return tm_slice_equal(a->key, b->key) && tm_slice_equal(a->value, b->value) &&
           a->sequence == b->sequence && a->kind == b->kind;
}

/* `steps` random moves of an iterator over `entries`, both ways: after each it stands where the list says. Every seek is near
 * an entry. */
static inline void
entries_walk(const struct entries *entries, struct tm_iter *iter, struct rng *rng, unsigned steps)
{
    size_t at = 0;
    bool on = false; // the walk stands on entry `at`
    unsigned turns = 0;

    for (unsigned step = 0; step < steps; step++) {
        // Mostly steps; most of them go on in the same direction.
        unsigned move = rng_chance(rng, 1, 10) || !on ? (unsigned)rng_below(rng, 4) : 4 + turns % 2;
        const struct tm_entry *near = &entries->list[rng_below(rng, entries->count)];
        uint64_t sequence = near->sequence + rng_below(rng, 3) - (near->sequence > 0);

        turns += rng_chance(rng, 1, 4);
        switch (move) {
        case 0:
            iter->vtable->first(iter);
            at = 0;
            on = true;
            break;
        case 1:
            iter->vtable->last(iter);
            at = entries->count - 1;
            on = true;
            break;
        case 2:
            iter->vtable->seek(iter, near->key, sequence);
            at = entries_seek(entries, near->key, sequence);
            on = at < entries->count;
            break;
        case 3:
            iter->vtable->seek_for_prev(iter, near->key, sequence);
            at = entries_seek(entries, near->key, sequence);
            if (at == entries->count || entries->list[at].sequence != sequence ||
                !tm_slice_equal(entries->list[at].key, near->key))
                at--; // wraps around at the first
            on = at < entries->count;
            break;
        case 4:
            iter->vtable->next(iter);
            on = ++at < entries->count;
            break;
        default:
            iter->vtable->prev(iter);
            on = --at < entries->count;
            break;
        }
        expect(iter->status == TAMIS_OK);
        expect(iter->valid == on);
        if (on)
            expect(same_entry(&iter->entry, &entries->list[at]));
    }
}

/* `count` keys "key%06d" with step `step`, one version each, values of 20..59 bytes: words that pack, or noise. */
static inline void
entries_fill(struct entries *entries, struct rng *rng, size_t count, size_t step, bool noise)
{
    for (size_t i = 0; i < count; i++) {
        char key[24];
        uint8_t value[64];
        size_t length = 20 + (size_t)rng_below(rng, 40);

        snprintf(key, sizeof key, "key%06zu", i * step);
        rng_fill(rng, value, sizeof value);
        for (size_t at = 0; !noise && at < length; at++)
            value[at] = (uint8_t)("tamis "[at % 6] + (at == length - 1 ? value[at] % 4 : 0));
        entries_add(entries, tm_slice(key, strlen(key)), 1 + i, TM_KIND_PUT,
                    tm_slice(value, length));
    }
}

/* ---- Tables ---------------------------------------------------------------------------------------- */

enum { HASH_SEED = 7 }; // of every table here

struct shelf {
    struct world *world;
    struct tm_env env; // that of the world, with identities from a counter
    struct tm_runtime runtime;
    tamis_dir *dir;
    uint64_t identity; // the last one given
};

static inline int
shelf_random(void *ctx, void *buffer, size_t length)
{
    struct shelf *shelf = ctx;
    struct rng rng = rng_from(++shelf->identity);

    rng_fill(&rng, buffer, length);
    return 0;
}

/* `shelf` stays where it is until shelf_close(). Threads and locks are those of POSIX. */
static inline void
shelf_open(struct shelf *shelf)
{
    tamis_error err;
    bool created;

    memset(shelf, 0, sizeof *shelf);
    shelf->world = world_create(1, 0);
    shelf->env = shelf->world->env;
    shelf->runtime = *shelf->env.runtime;
    shelf->runtime.ctx = shelf; // the others of POSIX need none
    shelf->runtime.random = shelf_random;
    shelf->env.runtime = &shelf->runtime;
    expect_ok(
        shelf->env.fs->open_dir(shelf->env.fs->ctx, "tables", true, &created, &shelf->dir, &err),
        err);
}

/* Ends the test if something leaks. */
static inline void
shelf_close(struct shelf *shelf)
{
    shelf->env.fs->close_dir(shelf->env.fs->ctx, shelf->dir);
    world_destroy(shelf->world);
    shelf->world = NULL;
}

static inline struct tm_table_options
shelf_options(uint32_t block_bytes)
{
    return (struct tm_table_options){
        .block_bytes = block_bytes,
        .filter_kind = TAMIS_FILTER_PAIR512,
        .filter_bits_per_key = 10,
        .hash_seed = HASH_SEED,
    };
}

/* Write `entries` as the table `name`. On OK the facts are the caller's. */
static inline tamis_status
shelf_build(struct shelf *shelf, const char *name, const struct tm_table_options *options,
            const struct entries *entries, struct tm_table_facts *facts, tamis_error *err)
{
    struct tm_table_builder *builder;
    tamis_status status;

    status = tm_table_builder_create(&shelf->env, shelf->dir, name, options, &builder, err);
    if (status != TAMIS_OK)
        return status;
    for (size_t i = 0; i < entries->count; i++) {
        status = tm_table_builder_add(builder, &entries->list[i], err);
        if (status != TAMIS_OK) {
            tm_table_builder_abandon(builder);
            return status;
        }
    }
    for (size_t i = 0; i < entries->range_count; i++) {
        status = tm_table_builder_add_range(builder, &entries->ranges[i], err);
        if (status != TAMIS_OK) {
            tm_table_builder_abandon(builder);
            return status;
        }
    }
    return tm_table_builder_finish(builder, facts, err);
}

static inline struct tm_table_identity
identity_of(const struct tm_table_facts *facts)
{
    return (struct tm_table_identity){facts->file_bytes, facts->unique_id, facts->data_id,
                                      facts->checksum};
}

/* Build, which succeeds; the identity is all that is kept of the facts. */
static inline struct tm_table_identity
shelf_write(struct shelf *shelf, const char *name, const struct tm_table_options *options,
            const struct entries *entries)
{
    struct tm_table_facts facts;
    struct tm_table_identity identity;
    tamis_error err;

    expect_ok(shelf_build(shelf, name, options, entries, &facts, &err), err);
    identity = identity_of(&facts);
    tm_table_facts_release(&shelf->env, &facts);
    return identity;
}

/* Open, which succeeds, without a cache. */
static inline struct tm_table *
shelf_table(struct shelf *shelf, const char *name, const struct tm_table_identity *identity)
{
    struct tm_table *table = NULL;
    tamis_error err;

    expect_ok(tm_table_open(&shelf->env, shelf->dir, name, identity, NULL, NULL, &table, &err),
              err);
    return table;
}

/* Ask as the engine does: the filter first, which must never deny a key that is there. */
static inline tamis_status
table_get(struct tm_table *table, tamis_slice key, uint64_t sequence, struct tm_found *found,
          tamis_error *err)
{
    uint64_t hash = tm_hash64(key.data, key.length, tm_table_hash_seed(table));

    *found = (struct tm_found){.lookup = TM_ABSENT};
    if (!tamis_filter_may_contain(tm_table_filter(table), hash))
        return TAMIS_OK;
    return tm_table_search(table, key, hash, sequence, found, err);
}

/* Does the table answer (key, sequence) as the reference does? OK: it does; another status: that of the table. */
static inline tamis_status
table_compare(struct tm_table *table, const struct entries *entries, tamis_slice key,
              uint64_t sequence, tamis_error *err)
{
    const struct tm_entry *right = entries_search(entries, key, sequence);
    struct tm_found found;
    tamis_status status = table_get(table, key, sequence, &found, err);

    if (status != TAMIS_OK)
        return status;
    expect(found.key_present == entries_hold(entries, key));
    if (right == NULL) {
        expect(found.lookup == TM_ABSENT);
    } else if (right->kind == TM_KIND_DELETE) {
        expect(found.lookup == TM_DELETED && found.sequence == right->sequence);
    } else {
        expect(found.lookup == TM_FOUND && found.sequence == right->sequence);
        expect(tm_slice_equal(found.value, right->value));
    }
    expect((found.block != NULL) == (found.lookup == TM_FOUND));
    tm_block_unref(found.block);
    return TAMIS_OK;
}

/* Walk from the first entry: each is the reference's, up to the end or a failure, whose status is returned. */
static inline tamis_status
table_walk(struct tm_table *table, const struct entries *entries, tamis_error *err)
{
    struct tm_iter *iter;
    tamis_status status = tm_table_iter(table, true, &iter, err);
    size_t i = 0;

    if (status != TAMIS_OK)
        return status;
    for (iter->vtable->first(iter); iter->valid; iter->vtable->next(iter)) {
        expect(i < entries->count && same_entry(&iter->entry, &entries->list[i]));
        i++;
    }
    status = iter->status;
    if (status == TAMIS_OK)
        expect(i == entries->count);
    else
        *err = iter->error;
    tm_iter_close(iter);
    return status;
}

/* Every key at the newest and at its own sequence, a scan, and a whole verification succeed. */
static inline void
check_table(struct tm_table *table, const struct entries *entries)
{
    tamis_error err;

    for (size_t i = 0; i < entries->count; i++) {
        const struct tm_entry *entry = &entries->list[i];

        expect_ok(table_compare(table, entries, entry->key, TM_SEQUENCE_MAX, &err), err);
        expect_ok(table_compare(table, entries, entry->key, entry->sequence, &err), err);
    }
    expect_ok(table_walk(table, entries, &err), err);
    expect_ok(tm_table_verify(table, NULL, NULL, &err), err);
}

#endif
