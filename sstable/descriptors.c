/* SPDX-License-Identifier: MIT
 *
 * sstable/descriptors.c -- open, share and close the files of tables. Invariants: descriptors.h.
 */
#include "sstable/descriptors.h"

#include <assert.h>
#include <inttypes.h>

#define STATE_OPEN    (UINT32_C(1) << 31)
#define STATE_TOUCHED (UINT32_C(1) << 30)

static void
lock(struct tm_descriptors *owner)
{
    owner->env->runtime->lock(owner->env->runtime->ctx, &owner->mutex);
}

static void
unlock(struct tm_descriptors *owner)
{
    owner->env->runtime->unlock(owner->env->runtime->ctx, &owner->mutex);
}

void
tm_descriptors_init(struct tm_descriptors *descriptors, const struct tm_env *env, uint32_t open_max,
                    tamis_status missing)
{
    memset(descriptors, 0, sizeof *descriptors);
    descriptors->env = env;
    descriptors->open_max = open_max;
    descriptors->missing = missing;
    env->runtime->mutex_init(env->runtime->ctx, &descriptors->mutex);
}

void
tm_descriptors_deinit(struct tm_descriptors *descriptors)
{
    const struct tm_env *env = descriptors->env;

    assert(descriptors->open_count == 0);
    env->runtime->mutex_deinit(env->runtime->ctx, &descriptors->mutex);
}

void
tm_descriptor_init(struct tm_descriptor *descriptor, const struct tm_env *env,
                   struct tm_descriptors *owner, tamis_dir *dir, const char *name)
{
    memset(descriptor, 0, sizeof *descriptor);
    descriptor->env = env;
    descriptor->owner = owner;
    descriptor->dir = dir;
    descriptor->name = name;
}

/* ---- The ring: with the owner's mutex held -------------------------------------------------------- */

/* Behind the hand: the last one that it comes to. */
static void
ring_add(struct tm_descriptors *owner, struct tm_descriptor *descriptor)
{
    if (owner->hand == NULL) {
        owner->hand = descriptor->next = descriptor->previous = descriptor;
    } else {
        descriptor->next = owner->hand;
        descriptor->previous = owner->hand->previous;
        descriptor->next->previous = descriptor;
        descriptor->previous->next = descriptor;
    }
    owner->ring_count++;
}

static void
ring_remove(struct tm_descriptors *owner, struct tm_descriptor *descriptor)
{
    descriptor->previous->next = descriptor->next;
    descriptor->next->previous = descriptor->previous;
    if (owner->hand == descriptor)
        owner->hand = descriptor->next != descriptor ? descriptor->next : NULL;
    owner->ring_count--;
}

/* Take the file of one that is open from it, for the caller to close; NULL when all of them are being read (D2). */
static tamis_file *
take_victim(struct tm_descriptors *owner)
{
    // Two rounds: the first may do no more than forget who was read.
    for (uint32_t left = 2 * owner->ring_count; left != 0; left--) {
        struct tm_descriptor *candidate = owner->hand;
        uint32_t idle = STATE_OPEN;

        owner->hand = candidate->next;
        if ((atomic_fetch_and_explicit(&candidate->state, ~STATE_TOUCHED, memory_order_relaxed) &
             STATE_TOUCHED) != 0)
            continue;
        if (!atomic_compare_exchange_strong_explicit(&candidate->state, &idle, 0,
                                                     memory_order_acquire, memory_order_relaxed))
            continue; // D1
        ring_remove(owner, candidate);
        owner->open_count--;
        return candidate->file;
    }
    return NULL;
}

/* ---- Opening and closing -------------------------------------------------------------------------- */

static void
close_file(const struct tm_env *env, tamis_file *file)
{
    if (file != NULL) // nothing was written: there is nothing that closing could lose
        (void)env->fs->close(env->fs->ctx, file, NULL);
}

static tamis_status
open_file(struct tm_descriptor *descriptor, tamis_file **file_out, tamis_error *err)
{
    const struct tm_env *env = descriptor->env;
    uint64_t bytes;
    tamis_status status = env->fs->open(env->fs->ctx, descriptor->dir, descriptor->name,
                                        TAMIS_FILE_TABLE, file_out, &bytes, err);

    if (status == TAMIS_NOT_FOUND)
        return TM_FAIL(err, descriptor->owner != NULL ? descriptor->owner->missing : TAMIS_CORRUPT,
                       "%s: expected a table, found no such file", descriptor->name);
    if (status != TAMIS_OK)
        return status;
    if (!descriptor->known) {
        descriptor->file_bytes = bytes;
        descriptor->known = true;
    }
    if (bytes == descriptor->file_bytes)
        return TAMIS_OK;
    close_file(env, *file_out);
    return TM_FAIL(err, TAMIS_CORRUPT,
                   "%s: expected the table of %" PRIu64
                   " bytes that was there, found a file of %" PRIu64,
                   descriptor->name, descriptor->file_bytes, bytes);
}

/* The file is open: it becomes that of the descriptor, unless another thread was faster; then it is given back. */
static tamis_file *
install_file(struct tm_descriptor *descriptor, tamis_file *file)
{
    struct tm_descriptors *owner = descriptor->owner;

    // The mutex is held, so nobody opens or closes it meanwhile.
    if ((atomic_load_explicit(&descriptor->state, memory_order_relaxed) & STATE_OPEN) != 0) {
        atomic_fetch_add_explicit(&descriptor->state, 1, memory_order_acquire);
        owner->open_count--;
        return file;
    }
    descriptor->file = file;
    ring_add(owner, descriptor);
    atomic_store_explicit(&descriptor->state, STATE_OPEN | STATE_TOUCHED | 1, memory_order_release);
    return NULL;
}

static tamis_status
open_within_bound(struct tm_descriptor *descriptor, tamis_error *err)
{
    struct tm_descriptors *owner = descriptor->owner;
    tamis_file *file = NULL;
    tamis_file *surplus = NULL;
    tamis_status status;

    lock(owner);
    if (owner->open_max != 0 && owner->open_count >= owner->open_max)
        surplus = take_victim(owner);
    owner->open_count++;
    unlock(owner);
    close_file(owner->env, surplus);
    status = open_file(descriptor, &file, err);
    lock(owner);
    if (status == TAMIS_OK)
        surplus = install_file(descriptor, file);
    else
        owner->open_count--;
    unlock(owner);
    if (status == TAMIS_OK)
        close_file(owner->env, surplus);
    return status;
}

static tamis_status
open_for_good(struct tm_descriptor *descriptor, tamis_error *err)
{
    tamis_status status = open_file(descriptor, &descriptor->file, err);

    if (status == TAMIS_OK)
        atomic_store_explicit(&descriptor->state, STATE_OPEN | 1, memory_order_release);
    return status;
}

tamis_status
tm_descriptor_acquire(struct tm_descriptor *descriptor, tamis_file **file_out, tamis_error *err)
{
    uint32_t state = atomic_load_explicit(&descriptor->state, memory_order_relaxed);
    bool acquired = false;
    tamis_status status = TAMIS_OK;

    while ((state & STATE_OPEN) != 0 && !acquired)
        acquired = atomic_compare_exchange_weak_explicit(
            &descriptor->state, &state, (state + 1) | STATE_TOUCHED, memory_order_acquire,
            memory_order_relaxed);
    if (!acquired)
        status = descriptor->owner != NULL ? open_within_bound(descriptor, err)
                                           : open_for_good(descriptor, err);
    if (status == TAMIS_OK)
        *file_out = descriptor->file;
    return status;
}

void
tm_descriptor_release(struct tm_descriptor *descriptor)
{
    atomic_fetch_sub_explicit(&descriptor->state, 1, memory_order_release);
}

void
tm_descriptor_close(struct tm_descriptor *descriptor)
{
    struct tm_descriptors *owner = descriptor->owner;
    bool open;

    if (owner != NULL)
        lock(owner);
    open =
        (atomic_exchange_explicit(&descriptor->state, 0, memory_order_acquire) & STATE_OPEN) != 0;
    if (open && owner != NULL) {
        ring_remove(owner, descriptor);
        owner->open_count--;
    }
    if (owner != NULL)
        unlock(owner);
    if (open)
        close_file(descriptor->env, descriptor->file);
}
