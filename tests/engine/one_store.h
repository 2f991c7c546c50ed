/* SPDX-License-Identifier: MIT
 *
 * tests/engine/one_store.h -- one store in a scratch directory, its options, and short words for what tests do to it.
 *
 * Fixture: one_store_begin() and one_store_end(). Between them a test may close and open the store as it likes.
 */
#ifndef TAMIS_TESTS_ENGINE_ONE_STORE_H
#define TAMIS_TESTS_ENGINE_ONE_STORE_H

#include <check.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <tamis/tamis.h>

#include "tests/support/check_status.h"
#include "tests/support/temp_dir.h"

/* Work is divided by this where a sanitizer slows it down. */
#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
enum { ONE_STORE_DIVISOR = 8 };
#else
enum { ONE_STORE_DIVISOR = 1 };
#endif

static struct one_store {
    char *scratch;
    char *path; // of the store, in scratch
    tamis_options options;
    tamis_db *db; // NULL: closed
    tamis_error err;
} one;

static inline void
one_store_open(void)
{
    check_ok(tamis_open(one.path, &one.options, &one.db, &one.err), one.err);
}

static inline void
one_store_close(void)
{
    check_ok(tamis_close(one.db, &one.err), one.err);
    one.db = NULL;
}

static inline void
one_store_reopen(void)
{
    one_store_close();
    one_store_open();
}

/* A small write buffer and no compression, so that little data makes many tables of known size. */
static inline void
one_store_begin(void)
{
    one.scratch = temp_dir_make();
    one.path = temp_dir_path(one.scratch, "db");
    tamis_options_init(&one.options);
    one.options.create_if_missing = true;
    one.options.write_buffer_bytes = 64 << 10;
    one.options.compression = TAMIS_COMPRESSION_NONE;
    one_store_open();
}

static inline void
one_store_end(void)
{
    one_store_close();
    free(one.path);
    temp_dir_remove(one.scratch);
}

/* ---- Keys and values ------------------------------------------------------------------------------ */

static inline tamis_slice
one_key(char text[32], unsigned number)
{
    snprintf(text, 32, "k%08u", number);
    return tamis_text(text);
}

static inline void
one_put(tamis_slice key, tamis_slice value)
{
    check_ok(tamis_put(one.db, NULL, key, value, &one.err), one.err);
}

static inline void
one_delete(tamis_slice key)
{
    check_ok(tamis_delete(one.db, NULL, key, &one.err), one.err);
}

/* Key number i gets `length` bytes that begin with i and `version`. */
static inline void
one_put_number(unsigned number, unsigned version, size_t length)
{
    char text[32];
    static char value[1 << 16];

    ck_assert(length >= 2 * sizeof number && length <= sizeof value);
    memset(value, 'v', length);
    memcpy(value, &number, sizeof number);
    memcpy(value + sizeof number, &version, sizeof version);
    one_put(one_key(text, number), (tamis_slice){value, length});
}

static inline void
one_delete_number(unsigned number)
{
    char text[32];

    one_delete(one_key(text, number));
}

/* The version that key number `number` was put with; -1 when it is not there. */
static inline long
one_version_at(const tamis_snapshot *snapshot, unsigned number)
{
    char text[32];
    unsigned head[2];
    size_t length = 0;
    tamis_read_options options;
    tamis_status status;

    tamis_read_options_init(&options);
    options.snapshot = snapshot;
    status =
        tamis_get(one.db, &options, one_key(text, number), head, sizeof head, &length, &one.err);
    if (status == TAMIS_NOT_FOUND)
        return -1;
    check_ok(status, one.err);
    ck_assert_uint_ge(length, sizeof head);
    ck_assert_uint_eq(head[0], number);
    return (long)head[1];
}

static inline long
one_version(unsigned number)
{
    return one_version_at(NULL, number);
}

/* Keys in the store, by a walk; their order is checked. */
static inline uint64_t
one_count_keys(void)
{
    char last[64] = "";
    uint64_t count = 0;
    tamis_iter *iter = NULL;

    check_ok(tamis_iter_open(one.db, NULL, &iter, &one.err), one.err);
    for (tamis_iter_first(iter); tamis_iter_valid(iter); tamis_iter_next(iter), count++) {
        tamis_slice key = tamis_iter_key(iter);
        char text[64] = "";

        ck_assert_uint_lt(key.length, sizeof text);
        memcpy(text, key.data, key.length);
        ck_assert(count == 0 || strcmp(last, text) < 0);
        memcpy(last, text, sizeof last);
    }
    check_ok(tamis_iter_status(iter, &one.err), one.err);
    tamis_iter_close(iter);
    return count;
}

/* ---- Maintenance ---------------------------------------------------------------------------------- */

static inline void
one_flush(void)
{
    check_ok(tamis_flush(one.db, &one.err), one.err);
}

static inline void
one_compact(void)
{
    check_ok(tamis_compact_range(one.db, NULL, NULL, &one.err), one.err);
}

static inline void
one_wait_idle(void)
{
    check_ok(tamis_wait_idle(one.db, &one.err), one.err);
}

static inline tamis_stats
one_stats(void)
{
    tamis_stats stats;

    tamis_stats_init(&stats);
    check_ok(tamis_get_stats(one.db, &stats, &one.err), one.err);
    return stats;
}

/* ---- The directory -------------------------------------------------------------------------------- */

struct one_listing {
    unsigned file_count;
    unsigned table_count, log_count, manifest_count, current_count, lock_count, other_count;
    uint64_t bytes; // lengths of all files
    uint64_t table_bytes;
    uint64_t digest; // of names, lengths and times of change, in any order
};

static inline bool
one_ends_with(const char *name, const char *end)
{
    size_t length = strlen(name);

    return length >= strlen(end) && strcmp(name + length - strlen(end), end) == 0;
}

static inline struct one_listing
one_list(const char *path)
{
    struct one_listing listing = {0};
    DIR *directory = opendir(path);
    struct dirent *entry;

    ck_assert_ptr_nonnull(directory);
    while ((entry = readdir(directory)) != NULL) {
        char text[512];
        struct stat found;

        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        if (fstatat(dirfd(directory), entry->d_name, &found, AT_SYMLINK_NOFOLLOW) != 0)
            continue; // removed meanwhile
        listing.file_count++;
        listing.bytes += (uint64_t)found.st_size;
        snprintf(text, sizeof text, "%s %lld %lld.%09ld", entry->d_name, (long long)found.st_size,
                 (long long)found.st_mtim.tv_sec, found.st_mtim.tv_nsec);
        listing.digest += tamis_hash64(text, strlen(text), 1);
        if (one_ends_with(entry->d_name, ".sst")) {
            listing.table_count++;
            listing.table_bytes += (uint64_t)found.st_size;
        } else if (one_ends_with(entry->d_name, ".wal")) {
            listing.log_count++;
        } else if (strncmp(entry->d_name, "MANIFEST-", 9) == 0) {
            listing.manifest_count++;
        } else if (strcmp(entry->d_name, "CURRENT") == 0) {
            listing.current_count++;
        } else if (strcmp(entry->d_name, "LOCK") == 0) {
            listing.lock_count++;
        } else {
            listing.other_count++;
        }
    }
    closedir(directory);
    return listing;
}

#endif
