/* SPDX-License-Identifier: MIT
 *
 * engine/version.c -- make the next version from the last one and a change; let versions and files go.
 *
 *     one allocation:  struct tm_version | file pointers of level 0 | of level 1 | ...
 *
 * Invariants: V1 to V3 of version.h.
 *
 * Threads  creation and unref under the store's mutex (version_count, references); a version that somebody holds is
 *          read by anyone.
 * Not here: which change to make (flush, compact_pick.h), making it durable (manifest).
 */
#include "engine/version.h"

#include <assert.h>
#include <inttypes.h>

uint32_t
tm_level_lower_bound(const struct tm_level *level, tamis_slice key)
{
    uint32_t low = 0;
    uint32_t high = level->file_count;

    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        const struct tm_file *file = level->files[middle];

        if (tm_order_compare(file->order, tm_file_largest(file), key) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

struct tm_file *
tm_level_find(const struct tm_level *level, tamis_slice key)
{
    uint32_t index = tm_level_lower_bound(level, key);

    if (index == level->file_count ||
        tm_order_compare(level->files[index]->order, tm_file_smallest(level->files[index]), key) >
            0)
        return NULL;
    return level->files[index];
}

static size_t
version_bytes(size_t file_count)
{
    return sizeof(struct tm_version) + file_count * sizeof(struct tm_file *);
}

static size_t
version_file_count(const struct tm_version *version)
{
    size_t count = 0;

    for (uint32_t i = 0; i < TAMIS_LEVEL_COUNT; i++)
        count += version->level[i].file_count;
    return count;
}

static bool
holds_file(struct tm_file *const *files, size_t count, const struct tm_file *file)
{
    for (size_t i = 0; i < count; i++) {
        if (files[i] == file)
            return true;
    }
    return false;
}

/* Where `file` belongs in the order of its level: before every file that stands behind it. */
static uint32_t
place_in_level(const struct tm_level *level, bool newest_first, const struct tm_file *file)
{
    uint32_t low = 0;
    uint32_t high = level->file_count;

    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        const struct tm_file *other = level->files[middle];
        bool stands_before = newest_first ? other->number > file->number
                                          : tm_order_compare(file->order, tm_file_smallest(other),
                                                             tm_file_smallest(file)) < 0;

        if (stands_before)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* There is room behind the level's files. */
static void
insert_file(struct tm_level *level, bool newest_first, struct tm_file *file)
{
    uint32_t place = place_in_level(level, newest_first, file);
    uint32_t behind = level->file_count - place;

    if (behind != 0)
        memmove(level->files + place + 1, level->files + place, behind * sizeof *level->files);
    level->files[place] = file;
    level->file_count++;
    level->file_bytes += file->facts.file_bytes;
}

/* V3, as far as numbers and key ranges tell. */
static tamis_status
check_level(const struct tm_level *level, uint32_t level_index, tamis_error *err)
{
    for (uint32_t i = 0; i < level->file_count; i++) {
        const struct tm_file *file = level->files[i];
        const struct tm_file *last = i > 0 ? level->files[i - 1] : NULL;

        if (tm_order_compare(file->order, tm_file_smallest(file), tm_file_largest(file)) > 0)
            return TM_FAIL(err, TAMIS_CORRUPT,
                           "table %06" PRIu64 " in level %u ends before it begins", file->number,
                           level_index);
        if (last == NULL)
            continue;
        if (level_index == 0 && last->number == file->number)
            return TM_FAIL(err, TAMIS_CORRUPT, "two tables in level 0 have number %06" PRIu64,
                           file->number);
        if (level_index > 0 &&
            tm_order_compare(file->order, tm_file_largest(last), tm_file_smallest(file)) >= 0)
            return TM_FAIL(err, TAMIS_CORRUPT,
                           "tables %06" PRIu64 " and %06" PRIu64 " overlap in level %u",
                           last->number, file->number, level_index);
    }
    return TAMIS_OK;
}

/* What tm_version_create() was asked for. */
struct change {
    const struct tm_version *base;
    struct tm_file *const *removed;
    size_t removed_count;
    const struct tm_file_add *added;
    size_t added_count;
};

/* Lay out one level at level->files, which ends at `end`. */
static void
fill_level(struct tm_level *level, uint32_t level_index, struct tm_file *const *end,
           const struct change *change)
{
    const struct tm_level *old = change->base != NULL ? &change->base->level[level_index] : NULL;

    for (uint32_t i = 0; old != NULL && i < old->file_count; i++) {
        if (holds_file(change->removed, change->removed_count, old->files[i]))
            continue;
        assert(level->files + level->file_count < end); // every removed file stands in `base`
        level->files[level->file_count++] = old->files[i];
        level->file_bytes += old->files[i]->facts.file_bytes;
    }
    for (size_t i = 0; i < change->added_count; i++) {
        if (change->added[i].level != level_index)
            continue;
        assert(level->files + level->file_count < end);
        insert_file(level, level_index == 0, change->added[i].file);
    }
}

tamis_status
tm_version_create(const struct tm_env *env, const struct tm_version *base,
                  struct tm_file *const *removed, size_t removed_count,
                  const struct tm_file_add *added, size_t added_count,
                  struct tm_version **version_out, tamis_error *err)
{
    const struct change change = {base, removed, removed_count, added, added_count};
    size_t base_count = base != NULL ? version_file_count(base) : 0;
    size_t file_count = base_count - removed_count + added_count;
    tamis_status status = TAMIS_OK;
    struct tm_version *version;
    struct tm_file **next;
    struct tm_file **end;

    assert(removed_count <= base_count);
    *version_out = NULL;
    for (size_t i = 0; i < added_count; i++) {
        if (added[i].level >= TAMIS_LEVEL_COUNT)
            return TM_FAIL(err, TAMIS_CORRUPT, "table %06" PRIu64 " in level %" PRIu32 " of %d",
                           added[i].file->number, added[i].level, TAMIS_LEVEL_COUNT);
    }
    version = tm_alloc_zeroed(env, version_bytes(file_count));
    if (version == NULL)
        return TM_NO_MEMORY(err, version_bytes(file_count));
    version->references = 1;
    next = (struct tm_file **)(version + 1);
    end = next + file_count;
    for (uint32_t i = 0; i < TAMIS_LEVEL_COUNT; i++) {
        version->level[i].files = next;
        fill_level(&version->level[i], i, end, &change);
        next += version->level[i].file_count;
    }
    assert(next == end); // every removed file stands in `base`
    for (uint32_t i = 0; i < TAMIS_LEVEL_COUNT && status == TAMIS_OK; i++)
        status = check_level(&version->level[i], i, err);
    if (status != TAMIS_OK) {
        tm_release(env, version, version_bytes(file_count));
        return status;
    }
    for (uint32_t i = 0; i < TAMIS_LEVEL_COUNT; i++) { // V2
        for (uint32_t j = 0; j < version->level[i].file_count; j++) {
            struct tm_file *file = version->level[i].files[j];

            file->version_count++;
            version->range_file_count += file->ranges != NULL;
            if (version->count_index_end <= file->count_index)
                version->count_index_end = file->count_index + 1;
        }
    }
    *version_out = version;
    return TAMIS_OK;
}

void
tm_version_unref(const struct tm_env *env, struct tm_version *version, struct tm_file **trash)
{
    assert(version->references > 0);
    if (--version->references > 0)
        return;
    for (uint32_t i = 0; i < TAMIS_LEVEL_COUNT; i++) {
        for (uint32_t j = 0; j < version->level[i].file_count; j++) {
            struct tm_file *file = version->level[i].files[j];

            assert(file->version_count > 0);
            if (--file->version_count > 0)
                continue;
            file->trash_next = *trash; // V2
            *trash = file;
        }
    }
    tm_release(env, version, version_bytes(version_file_count(version)));
}

void
tm_file_destroy(const struct tm_env *env, struct tm_file *file)
{
    if (file == NULL)
        return;
    assert(file->version_count == 0); // V2
    tm_table_close(file->table);
    tm_table_facts_release(env, &file->facts);
    tm_release(env, file, sizeof *file);
}
