/* SPDX-License-Identifier: MIT
 *
 * engine/compact_split.c -- cut a job at separators of its tables' indexes.
 *
 * Threads  pure; the tables are read by anyone (T1).
 * Not here: who runs the parts (compact_run.c).
 */
#include "engine/compact_split.h"

#include <stdlib.h>

enum {
    SAMPLES_PER_FILE = 16, // cuts are right to a sixteenth of a table,
    SAMPLES_WANTED = 512,  // or less exact where there are so many tables that this does not matter
};

/* A separator, and the bytes of its table that it stands for. */
struct sample {
    struct tm_buf key;
    uint64_t bytes;
};

struct samples {
    struct sample *sample;
    size_t count;
    size_t capacity;
};

static int
compare_samples(const void *a_, const void *b_, void *order)
{
    const struct sample *a = a_;
    const struct sample *b = b_;

    return tm_order_compare(order, tm_slice(a->key.data, a->key.length),
                            tm_slice(b->key.data, b->key.length));
}

static void
release_samples(const struct tm_env *env, struct samples *samples)
{
    for (size_t i = 0; i < samples->count; i++)
        tm_buf_release(env, &samples->sample[i].key);
    tm_release(env, samples->sample, samples->capacity * sizeof *samples->sample);
}

static tamis_status
sample_file(const struct tm_env *env, const struct tm_file *file, size_t per_file,
            struct samples *samples, tamis_error *err)
{
    size_t block_count = tm_table_block_count(file->table);
    size_t count = per_file < block_count ? per_file : block_count;
    tamis_status status = TAMIS_OK;

    for (size_t i = 0; status == TAMIS_OK && i < count; i++) {
        struct sample *sample = &samples->sample[samples->count++];

        // In the middle of its share. 64 bits hold the product: blocks and samples are few.
        status = tm_table_separator(file->table, (2 * i + 1) * block_count / (2 * count),
                                    &sample->key, err);
        if (status == TAMIS_OK && tm_order_is_bytewise(file->order))
            status = tm_buf_append(env, &sample->key, "", 1, err); // the next key there can be
        sample->bytes = file->facts.file_bytes / count;
    }
    return status;
}

static tamis_status
sample_job(const struct tm_env *env, const struct tm_compact_job *job, struct samples *samples,
           tamis_error *err)
{
    size_t file_count = job->input_count + job->overlap_count;
    size_t per_file = SAMPLES_WANTED / file_count;
    tamis_status status = TAMIS_OK;

    if (per_file > SAMPLES_PER_FILE)
        per_file = SAMPLES_PER_FILE;
    if (per_file == 0)
        per_file = 1;
    samples->capacity = file_count * per_file;
    samples->sample = tm_alloc_zeroed(env, samples->capacity * sizeof *samples->sample);
    if (samples->sample == NULL) {
        samples->capacity = 0;
        return TM_NO_MEMORY(err, file_count * per_file * sizeof *samples->sample);
    }
    for (size_t i = 0; status == TAMIS_OK && i < job->input_count; i++)
        status = sample_file(env, job->inputs[i], per_file, samples, err);
    for (size_t i = 0; status == TAMIS_OK && i < job->overlap_count; i++)
        status = sample_file(env, job->overlaps[i], per_file, samples, err);
    if (status == TAMIS_OK)
        qsort_r(samples->sample, samples->count, sizeof *samples->sample, compare_samples,
                (void *)&env->order);
    return status;
}

/* Take the key of a sample over as a cut, unless it is the last one, or longer than keys can be. */
static void
add_cut(struct tm_compact_cuts *cuts, struct sample *sample)
{
    if (sample->key.length > TAMIS_KEY_BYTES_MAX)
        return;
    if (cuts->count > 0 && tm_slice_equal(tm_slice(cuts->keys[cuts->count - 1].data,
                                                   cuts->keys[cuts->count - 1].length),
                                          tm_slice(sample->key.data, sample->key.length)))
        return;
    cuts->keys[cuts->count++] = sample->key;
    memset(&sample->key, 0, sizeof sample->key);
}

static void
choose_cuts(struct samples *samples, uint64_t part_bytes, struct tm_compact_cuts *cuts)
{
    uint64_t bytes = 0; // up to here

    for (size_t i = 0; i < samples->count && cuts->count < cuts->capacity; i++) {
        bytes += samples->sample[i].bytes;
        if (bytes >= part_bytes) {
            add_cut(cuts, &samples->sample[i]);
            bytes = 0;
        }
    }
}

tamis_status
tm_compact_split(const struct tm_env *env, const struct tm_compact_job *job, size_t part_count_max,
                 uint64_t part_bytes_min, struct tm_compact_cuts *cuts_out, tamis_error *err)
{
    struct tm_compact_cuts cuts = {0};
    struct samples samples = {0};
    uint64_t bytes = tm_compact_job_bytes(job);
    uint64_t part_count = bytes / part_bytes_min;
    tamis_status status;

    memset(cuts_out, 0, sizeof *cuts_out);
    if (part_count > part_count_max)
        part_count = part_count_max;
    if (part_count < 2)
        return TAMIS_OK;
    status = sample_job(env, job, &samples, err);
    if (status == TAMIS_OK) {
        cuts.capacity = part_count - 1;
        cuts.keys = tm_alloc_zeroed(env, cuts.capacity * sizeof *cuts.keys);
        if (cuts.keys == NULL)
            status = TM_NO_MEMORY(err, cuts.capacity * sizeof *cuts.keys);
    }
    if (status == TAMIS_OK) {
        choose_cuts(&samples, bytes / part_count, &cuts);
        *cuts_out = cuts;
    }
    release_samples(env, &samples);
    return status;
}

void
tm_compact_cuts_release(const struct tm_env *env, struct tm_compact_cuts *cuts)
{
    for (size_t i = 0; i < cuts->count; i++)
        tm_buf_release(env, &cuts->keys[i]);
    tm_release(env, cuts->keys, cuts->capacity * sizeof *cuts->keys);
    memset(cuts, 0, sizeof *cuts);
}
