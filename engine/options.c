/* SPDX-License-Identifier: MIT
 *
 * engine/options.c -- defaults, and the only reader of raw options.
 */
#include "engine/db_internal.h"

enum {
    WRITE_BUFFER_BYTES = 64 << 20,
    BLOCK_BYTES = 4096,
    BLOCK_CACHE_BYTES = 64 << 20,
    BACKGROUND_THREADS = 2,

    WRITE_BUFFER_BYTES_MIN = 64 << 10, // below, tables would be smaller than their own overhead
    BLOCK_BYTES_MIN = 64,
    BLOCK_BYTES_MAX = 16 << 20,

    MAX_OPEN_FILES = 1000, // most systems give a process 1024
    MAX_OPEN_FILES_MAX = 1 << 20,
};
#define WRITE_BUFFER_BYTES_MAX  ((uint64_t)4 << 30)
#define BLOCK_CACHE_BYTES_MAX   ((uint64_t)1 << 48)
#define FALSE_POSITIVE_RATE_MIN 1e-6
#define FALSE_POSITIVE_RATE_MAX 0.5

void
tamis_options_init(tamis_options *options)
{
    memset(options, 0, sizeof *options);
    options->struct_size = sizeof *options;
    options->write_buffer_bytes = WRITE_BUFFER_BYTES;
    options->block_bytes = BLOCK_BYTES;
    options->block_cache_bytes = BLOCK_CACHE_BYTES;
    options->background_threads = BACKGROUND_THREADS;
    options->filter_kind = TAMIS_FILTER_PAIR512;
    options->filter_bits_per_key = 10.0;
    options->compression = TAMIS_COMPRESSION_LZ4;
    options->max_open_files = MAX_OPEN_FILES;
}

void
tamis_write_options_init(tamis_write_options *options)
{
    memset(options, 0, sizeof *options);
    options->struct_size = sizeof *options;
}

void
tamis_read_options_init(tamis_read_options *options)
{
    memset(options, 0, sizeof *options);
    options->struct_size = sizeof *options;
}

void
tamis_iter_options_init(tamis_iter_options *options)
{
    memset(options, 0, sizeof *options);
    options->struct_size = sizeof *options;
}

void
tamis_stats_init(tamis_stats *stats)
{
    memset(stats, 0, sizeof *stats);
    stats->struct_size = sizeof *stats;
}

static tamis_status
check_range(const char *name, uint64_t value, uint64_t least, uint64_t most, tamis_error *err)
{
    if (value >= least && value <= most)
        return TAMIS_OK;
    return TM_FAIL(err, TAMIS_INVALID, "%s: expected %llu..%llu, found %llu", name,
                   (unsigned long long)least, (unsigned long long)most,
                   (unsigned long long)value);
}

tamis_status
tm_options_check(const tamis_options *given, tamis_options *options, tamis_error *err)
{
    tamis_status status;
    double bits, rate;

    tamis_options_init(options);
    if (given != NULL) {
        if (given->struct_size != sizeof *given)
            return TM_FAIL(err, TAMIS_INVALID,
                           "options: expected struct_size %zu, found %u: use tamis_options_init()",
                           sizeof *given, (unsigned)given->struct_size);
        *options = *given;
    }
    if (options->read_only && (options->create_if_missing || options->error_if_exists))
        return TM_FAIL(err, TAMIS_INVALID,
                       "read_only: expected without create_if_missing and error_if_exists, which "
                       "ask for a store to be made");
    status = check_range("write_buffer_bytes", options->write_buffer_bytes,
                         WRITE_BUFFER_BYTES_MIN, WRITE_BUFFER_BYTES_MAX, err);
    if (status == TAMIS_OK)
        status = check_range("block_bytes", options->block_bytes, BLOCK_BYTES_MIN,
                             BLOCK_BYTES_MAX, err);
    if (status == TAMIS_OK)
        status = check_range("block_cache_bytes", options->block_cache_bytes, 0,
                             BLOCK_CACHE_BYTES_MAX, err);
    if (status == TAMIS_OK)
        status = check_range("max_open_files", options->max_open_files, 0, MAX_OPEN_FILES_MAX, err);
    if (status == TAMIS_OK)
        status = check_range("background_threads", options->background_threads, 1,
                             TM_BACKGROUND_THREADS_MAX, err);
    if (status != TAMIS_OK)
        return status;
    if (options->filter_kind != TAMIS_FILTER_STANDARD &&
        options->filter_kind != TAMIS_FILTER_BLK512 && options->filter_kind != TAMIS_FILTER_PAIR512)
        return TM_FAIL(err, TAMIS_INVALID,
                       "filter_kind: expected standard, blk512 or pair512, found %d",
                       (int)options->filter_kind);
    bits = options->filter_bits_per_key;
    if (!(bits >= 0.0 && bits <= TAMIS_FILTER_BITS_PER_KEY_MAX)) // also refuses what is no number
        return TM_FAIL(err, TAMIS_INVALID, "filter_bits_per_key: expected 0..%g, found %g",
                       TAMIS_FILTER_BITS_PER_KEY_MAX, bits);
    rate = options->filter_false_positive_rate;
    if (!(rate == 0.0 || (rate >= FALSE_POSITIVE_RATE_MIN && rate <= FALSE_POSITIVE_RATE_MAX)))
        return TM_FAIL(err, TAMIS_INVALID,
                       "filter_false_positive_rate: expected 0 or %g..%g, found %g",
                       FALSE_POSITIVE_RATE_MIN, FALSE_POSITIVE_RATE_MAX, rate);
    if (options->compression != TAMIS_COMPRESSION_NONE &&
        options->compression != TAMIS_COMPRESSION_LZ4)
        return TM_FAIL(err, TAMIS_INVALID, "compression: expected none or lz4, found %d",
                       (int)options->compression);
    if (options->allocator != NULL &&
        (options->allocator->alloc == NULL || options->allocator->resize == NULL ||
         options->allocator->release == NULL))
        return TM_FAIL(err, TAMIS_INVALID, "allocator: expected three functions, found NULL");
    if (options->logger != NULL &&
        (options->logger->log == NULL || options->logger->least < TAMIS_LOG_ERROR ||
         options->logger->least > TAMIS_LOG_DEBUG))
        return TM_FAIL(err, TAMIS_INVALID,
                       "logger: expected a function and a least level 0..%d, found %s and %d",
                       (int)TAMIS_LOG_DEBUG, options->logger->log != NULL ? "one" : "NULL",
                       (int)options->logger->least);
    if (options->comparator != NULL) {
        const tamis_comparator *comparator = options->comparator;

        if (comparator->compare == NULL || comparator->name == NULL ||
            !tm_order_name_is_valid(comparator->name))
            return TM_FAIL(err, TAMIS_INVALID,
                           "comparator: expected a function and a name of 1 to %d printable ASCII "
                           "characters without spaces, found %s",
                           TM_ORDER_NAME_BYTES_MAX,
                           comparator->compare == NULL ? "no function" : "another name or none");
        if (strcmp(comparator->name, TM_ORDER_BYTEWISE_NAME) == 0 && !comparator->bytewise_ordered)
            return TM_FAIL(err, TAMIS_INVALID,
                           "comparator %s: this is the name of the bytewise order, found another "
                           "order",
                           comparator->name);
        if (comparator->bytewise_ordered && !comparator->equal_is_bytewise)
            return TM_FAIL(err, TAMIS_INVALID,
                           "comparator %s: bytewise_ordered, but not equal_is_bytewise: keys of "
                           "different bytes are expected to differ then",
                           comparator->name);
    }
    if (options->fs != NULL && options->fs->struct_size != sizeof *options->fs)
        return TM_FAIL(err, TAMIS_INVALID, "fs: expected struct_size %zu, found %u",
                       sizeof *options->fs, (unsigned)options->fs->struct_size);
    return TAMIS_OK;
}
