/* SPDX-License-Identifier: MIT
 *
 * tests/engine/model.h -- what a store should hold: a sorted array of keys, each with all its versions.
 *
 *   key "a"   1: "x"   4: deleted   9: "y"
 *   key "b"   2: ""
 *
 * Nothing is ever forgotten, so the answer at any earlier sequence can be looked up. Linear and obvious on purpose.
 */
#ifndef TAMIS_TESTS_ENGINE_MODEL_H
#define TAMIS_TESTS_ENGINE_MODEL_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "sstable/env.h"

struct model_version {
    uint64_t sequence;
    bool deleted;
    tamis_slice value; // a copy
};

struct model_key {
    tamis_slice key;                // a copy
    struct model_version *versions; // oldest first
    size_t version_count;
};

struct model {              // zeroed is empty
    struct model_key *keys; // ascending
    size_t key_count;
    uint64_t sequence; // of the newest version
};

static inline tamis_slice
model_copy(tamis_slice slice)
{
    void *copy = malloc(slice.length + 1);

    if (copy == NULL)
        abort();
    if (slice.length != 0)
        memcpy(copy, slice.data, slice.length);
    return tm_slice(copy, slice.length);
}

/** Index of the first key at or after `key`. */
static inline size_t
model_seek(const struct model *model, tamis_slice key)
{
    size_t low = 0;
    size_t high = model->key_count;

    while (low < high) {
        size_t middle = (low + high) / 2;

        if (tm_slice_compare(model->keys[middle].key, key) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static inline void
model_add(struct model *model, tamis_slice key, const tamis_slice *value)
{
    size_t at = model_seek(model, key);
    struct model_key *entry;

    if (at == model->key_count || !tm_slice_equal(model->keys[at].key, key)) {
        model->keys = realloc(model->keys, (model->key_count + 1) * sizeof *model->keys);
        if (model->keys == NULL)
            abort();
        memmove(model->keys + at + 1, model->keys + at,
                (model->key_count - at) * sizeof *model->keys);
        model->keys[at] = (struct model_key){.key = model_copy(key)};
        model->key_count++;
    }
    entry = &model->keys[at];
    entry->versions =
        realloc(entry->versions, (entry->version_count + 1) * sizeof *entry->versions);
    if (entry->versions == NULL)
        abort();
    entry->versions[entry->version_count++] = (struct model_version){
        ++model->sequence, value == NULL, model_copy(value != NULL ? *value : tm_slice(NULL, 0))};
}

static inline void
model_put(struct model *model, tamis_slice key, tamis_slice value)
{
    model_add(model, key, &value);
}

static inline void
model_delete(struct model *model, tamis_slice key)
{
    model_add(model, key, NULL);
}

/** Every key there is from `from` on and below `to`; one sequence for all. */
static inline void
model_delete_range(struct model *model, tamis_slice from, tamis_slice to)
{
    uint64_t sequence = model->sequence + 1;

    for (size_t at = model_seek(model, from);
         at < model->key_count && tm_slice_compare(model->keys[at].key, to) < 0; at++) {
        model->sequence = sequence - 1;
        model_delete(model, model->keys[at].key);
    }
    model->sequence = sequence;
}

/** The value that key number `at` had at `sequence`; false if it had none. */
static inline bool
model_value(const struct model *model, size_t at, uint64_t sequence, tamis_slice *value)
{
    const struct model_key *entry = &model->keys[at];
    size_t i = entry->version_count;

    while (i != 0 && entry->versions[i - 1].sequence > sequence)
        i--;
    if (i == 0 || entry->versions[i - 1].deleted)
        return false;
    *value = entry->versions[i - 1].value;
    return true;
}

static inline bool
model_get(const struct model *model, tamis_slice key, uint64_t sequence, tamis_slice *value)
{
    size_t at = model_seek(model, key);

    return at < model->key_count && tm_slice_equal(model->keys[at].key, key) &&
           model_value(model, at, sequence, value);
}

/** From index *at on, the first key that had a value at `sequence` and is below `upper` (NULL: unbounded). */
static inline bool
model_visible(const struct model *model, size_t *at, uint64_t sequence, const tamis_slice *upper,
              tamis_slice *value)
{
    for (; *at < model->key_count; ++*at) {
        if (upper != NULL && tm_slice_compare(model->keys[*at].key, *upper) >= 0)
            return false;
        if (model_value(model, *at, sequence, value))
            return true;
    }
    return false;
}

/** From before index *at_end back, the last key that had a value at `sequence` and is not below `lower` (NULL: unbounded); *at_end
 * is one more than its index. */
static inline bool
model_visible_back(const struct model *model, size_t *at_end, uint64_t sequence,
                   const tamis_slice *lower, tamis_slice *value)
{
    for (; *at_end > 0; --*at_end) {
        if (lower != NULL && tm_slice_compare(model->keys[*at_end - 1].key, *lower) < 0)
            return false;
        if (model_value(model, *at_end - 1, sequence, value))
            return true;
    }
    return false;
}

static inline void
model_release(struct model *model)
{
    for (size_t i = 0; i < model->key_count; i++) {
        for (size_t j = 0; j < model->keys[i].version_count; j++)
            free((void *)model->keys[i].versions[j].value.data);
        free(model->keys[i].versions);
        free((void *)model->keys[i].key.data);
    }
    free(model->keys);
    memset(model, 0, sizeof *model);
}

#endif
