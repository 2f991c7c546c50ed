/* SPDX-License-Identifier: MIT
 *
 * tests/engine/test_public_api.c -- opening, options, failures, closing and destroying, as <tamis/tamis.h> promises them.
 *
 * Needs a right it may not have (another user, a mount of its own) in two places, and says SKIPPED there without it.
 */
#include <check.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <tamis/tamis.h>

#include "tests/support/check_status.h"
#include "tests/support/child.h"
#include "tests/support/fault_alloc.h"
#include "tests/support/rng.h"
#include "tests/support/temp_dir.h"

static char *scratch;
static char *path; // of the store
static tamis_options options;
static tamis_db *db;
static tamis_error err;

static void
setup(void)
{
    scratch = temp_dir_make();
    path = temp_dir_path(scratch, "db");
    tamis_options_init(&options);
    options.create_if_missing = true;
    db = NULL;
}

static void
teardown(void)
{
    check_ok(tamis_close(db, &err), err);
    free(path);
    temp_dir_remove(scratch);
}

static void
open_store(void)
{
    check_ok(tamis_open(path, &options, &db, &err), err);
}

static void
close_store(void)
{
    check_ok(tamis_close(db, &err), err);
    db = NULL;
}

static void
reopen(void)
{
    close_store();
    open_store();
}

/* `count` keys with values of `value_bytes`, that pack well or not at all. */
static void
fill_store(unsigned count, size_t value_bytes, bool packs)
{
    struct rng rng = rng_from(count);
    uint8_t *bytes = calloc(1, value_bytes + 1);

    ck_assert_ptr_nonnull(bytes);
    for (unsigned i = 0; i < count; i++) {
        char key[16];
        tamis_slice value = {bytes, value_bytes};

        snprintf(key, sizeof key, "%08u", i);
        if (!packs)
            rng_fill(&rng, bytes, value_bytes);
        check_ok(tamis_put(db, NULL, tamis_text(key), value, &err), err);
    }
    free(bytes);
}

/* Read all of them; true if all are there. */
static bool
all_there(unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        char key[16];
        bool exists = false;

        snprintf(key, sizeof key, "%08u", i);
        check_ok(tamis_exists(db, NULL, tamis_text(key), &exists, &err), err);
        if (!exists)
            return false;
    }
    return true;
}

static tamis_stats
get_stats(void)
{
    tamis_stats stats;

    tamis_stats_init(&stats);
    check_ok(tamis_get_stats(db, &stats, &err), err);
    return stats;
}

static bool
take_first_table(void *arg, const tamis_table_stats *table)
{
    *(tamis_table_stats *)arg = *table;
    return false;
}

/* The one table that `count` keys make. */
static tamis_table_stats
make_table(unsigned count)
{
    tamis_table_stats table = {0};

    fill_store(count, 10, true);
    check_ok(tamis_flush(db, &err), err);
    check_ok(tamis_visit_tables(db, take_first_table, &table, &err), err);
    ck_assert_uint_eq(table.key_count, count);
    return table;
}

/* ---- What stands in a directory ------------------------------------------------------------------- */

static int
compare_names(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

/* Names, sizes and contents of what is in a directory, as one text; free() it. NULL: no directory. */
static char *
describe(const char *directory)
{
    struct dirent **entries;
    int count = scandir(directory, &entries, NULL, compare_names);
    char *text = NULL;
    size_t size;
    FILE *out;

    if (count < 0)
        return NULL;
    out = open_memstream(&text, &size);
    ck_assert_ptr_nonnull(out);
    for (int i = 0; i < count; i++) {
        char *name = temp_dir_path(directory, entries[i]->d_name);
        FILE *file = fopen(name, "r");
        uint64_t sum = 0xcbf29ce484222325u; // FNV-1a
        int c;

        while (file != NULL && (c = getc(file)) != EOF)
            sum = (sum ^ (uint64_t)c) * 0x100000001b3u;
        fprintf(out, "%s %" PRIx64 "\n", entries[i]->d_name, sum);
        if (file != NULL)
            fclose(file);
        free(name);
        free(entries[i]);
    }
    free(entries);
    fclose(out);
    return text;
}

static unsigned
count_files(const char *directory)
{
    char *text = describe(directory);
    unsigned count = 0;

    ck_assert_ptr_nonnull(text);
    for (const char *c = text; *c != '\0'; c++)
        count += *c == '\n';
    free(text);
    return count - 2; // without . and ..
}

static bool
is_there(const char *name)
{
    return access(name, F_OK) == 0;
}

static void
write_text(const char *name, const char *text)
{
    FILE *file = fopen(name, "w");

    ck_assert_ptr_nonnull(file);
    fputs(text, file);
    ck_assert_int_eq(fclose(file), 0);
}

/* Opening fails with `expected`, says why, gives no store, and leaves the parent of the path as it was. */
static void
expect_failure(const char *where, tamis_status expected)
{
    char *before = describe(scratch);
    char *inside_before = describe(where);
    tamis_db *none = (tamis_db *)&options; // anything but NULL
    char *inside_after;
    char *after;

    memset(&err, 0, sizeof err);
    check_status(tamis_open(where, &options, &none, &err), expected, err);
    ck_assert_ptr_null(none);
    ck_assert_int_eq(err.code, expected);
    ck_assert_ptr_nonnull(err.where);
    ck_assert_uint_gt(strlen(err.message), 0);
    none = (tamis_db *)&options;
    ck_assert_int_eq(tamis_open(where, &options, &none, NULL), expected);
    ck_assert_ptr_null(none);
    after = describe(scratch);
    inside_after = describe(where);
    ck_assert_str_eq(before, after);
    ck_assert((inside_before == NULL) == (inside_after == NULL));
    if (inside_before != NULL)
        ck_assert_str_eq(inside_before, inside_after);
    free(before);
    free(inside_before);
    free(after);
    free(inside_after);
}

/* ---- Opening -------------------------------------------------------------------------------------- */

START_TEST(defaults_are_what_the_header_says)
{
    tamis_write_options write_options;
    tamis_read_options read_options;
    tamis_iter_options iter_options;

    memset(&options, 0x55, sizeof options);
    tamis_options_init(&options);
    ck_assert_uint_eq(options.struct_size, sizeof options);
    ck_assert(!options.create_if_missing);
    ck_assert(!options.error_if_exists);
    ck_assert_uint_eq(options.write_buffer_bytes, 64 << 20);
    ck_assert_uint_eq(options.block_bytes, 4 << 10);
    ck_assert_uint_eq(options.block_cache_bytes, 64 << 20);
    ck_assert_uint_eq(options.background_threads, 2);
    ck_assert_int_eq(options.filter_kind, TAMIS_FILTER_PAIR512);
    ck_assert_double_eq(options.filter_bits_per_key, 10.0);
    ck_assert_double_eq(options.filter_false_positive_rate, 0.0);
    ck_assert_int_eq(options.compression, TAMIS_COMPRESSION_LZ4);
    ck_assert_ptr_null(options.allocator);
    ck_assert_ptr_null(options.fs);
    ck_assert_ptr_null(options.logger);
    tamis_write_options_init(&write_options);
    ck_assert(!write_options.sync);
    tamis_read_options_init(&read_options);
    ck_assert_ptr_null(read_options.snapshot);
    tamis_iter_options_init(&iter_options);
    ck_assert(iter_options.snapshot == NULL && iter_options.lower == NULL &&
              iter_options.upper == NULL);
    ck_assert_str_eq(tamis_version(), "0.1.0");
}
END_TEST

START_TEST(a_missing_store_is_made_only_when_asked_for)
{
    options.create_if_missing = false;
    expect_failure(path, TAMIS_NOT_FOUND); // stays missing
    ck_assert_int_eq(mkdir(path, 0755), 0);
    expect_failure(path, TAMIS_NOT_FOUND); // stays empty
    ck_assert_uint_eq(count_files(path), 0);
    ck_assert_int_eq(tamis_open(path, NULL, &db, &err), TAMIS_NOT_FOUND); // NULL: defaults
    options.create_if_missing = true;
    open_store();
    fill_store(10, 10, true);
    close_store();
    options.create_if_missing = false;
    open_store();
    ck_assert(all_there(10));
    close_store();
    check_ok(tamis_open(path, NULL, &db, &err), err);
    ck_assert(all_there(10));
}
END_TEST

START_TEST(a_directory_of_foreign_files_is_no_store_and_can_become_one)
{
    char *notes = temp_dir_path(path, "notes.txt");
    char *folder = temp_dir_path(path, "000001");

    ck_assert_int_eq(mkdir(path, 0755), 0);
    ck_assert_int_eq(mkdir(folder, 0755), 0);
    write_text(notes, "mine");
    options.create_if_missing = false;
    expect_failure(path, TAMIS_NOT_FOUND);
    options.create_if_missing = true;
    open_store();
    fill_store(10, 10, true);
    reopen();
    ck_assert(all_there(10));
    ck_assert(is_there(notes) && is_there(folder));
    free(folder);
    free(notes);
}
END_TEST

START_TEST(error_if_exists_refuses_a_store_and_changes_nothing)
{
    options.error_if_exists = true;
    open_store(); // there is none yet
    fill_store(100, 10, true);
    check_ok(tamis_flush(db, &err), err);
    fill_store(50, 20, true);
    close_store();
    expect_failure(path, TAMIS_INVALID);
    options.create_if_missing = false;
    expect_failure(path, TAMIS_INVALID);
    options.error_if_exists = false;
    open_store();
    ck_assert(all_there(100));
}
END_TEST

START_TEST(a_path_that_is_no_directory_is_refused)
{
    char *below = temp_dir_path(path, "below");
    char *dangling = temp_dir_path(scratch, "dangling");

    write_text(path, "I am a file");
    expect_failure(path, TAMIS_INVALID);
    expect_failure(below, TAMIS_INVALID);
    options.create_if_missing = false;
    expect_failure(path, TAMIS_INVALID);
    ck_assert_int_eq(tamis_open(NULL, &options, &db, &err), TAMIS_INVALID);
    ck_assert_int_eq(tamis_open("", &options, &db, &err), TAMIS_INVALID);
    ck_assert_int_eq(symlink("nowhere", dangling), 0);
    expect_failure(dangling, TAMIS_NOT_FOUND);
    free(dangling);
    free(below);
}
END_TEST

START_TEST(the_parent_of_a_new_store_must_exist)
{
    char *deep = temp_dir_path(path, "deep");

    expect_failure(deep, TAMIS_IO);
    ck_assert_int_eq(err.os_error, ENOENT);
    ck_assert(!is_there(path));
    options.create_if_missing = false;
    expect_failure(deep, TAMIS_NOT_FOUND);
    free(deep);
}
END_TEST

static int
become_nobody(void)
{
    if (geteuid() != 0)
        return 0;
    return setgid(65534) == 0 && setuid(65534) == 0 ? 0 : CHILD_SKIPPED;
}

/* Exit code: 0 if opening fails with IO and EACCES. */
static int
open_without_permission(void *arg)
{
    tamis_db *none = NULL;

    if (become_nobody() != 0)
        return CHILD_SKIPPED;
    if (tamis_open(arg, &options, &none, &err) != TAMIS_IO)
        return 1;
    if (none != NULL || err.os_error != EACCES)
        return 2;
    return strstr(err.message, "Permission denied") != NULL ? 0 : 3;
}

static void
expect_no_permission(char *where)
{
    char *before = describe(scratch);
    char *after;
    int end = child_run(open_without_permission, where, NULL, 0);

    if (end == CHILD_SKIPPED)
        fprintf(stderr, "SKIPPED: cannot become another user\n");
    else
        ck_assert_int_eq(end, 0);
    after = describe(scratch);
    ck_assert_str_eq(before, after);
    free(before);
    free(after);
}

START_TEST(missing_permission_is_an_error_that_says_so)
{
    char *before;
    char *after;

    open_store();
    fill_store(10, 10, true);
    close_store();
    before = describe(path);
    ck_assert_int_eq(chmod(scratch, 0755), 0);
    ck_assert_int_eq(chmod(path, 0555), 0);
    expect_no_permission(path); // may read, not write
    ck_assert_int_eq(chmod(path, 0700), 0);
    expect_no_permission(path); // may not even look
    after = describe(path);
    ck_assert_str_eq(before, after);
    free(before);
    free(after);
    before = temp_dir_path(scratch, "new");
    expect_no_permission(before); // may not make it
    ck_assert(!is_there(before));
    free(before);
    open_store();
    ck_assert(all_there(10));
}
END_TEST

static int
open_on_read_only_medium(void *arg)
{
    tamis_db *none = NULL;

    (void)arg;
    if (unshare(CLONE_NEWNS) != 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount(scratch, scratch, NULL, MS_BIND, NULL) != 0 ||
        mount(NULL, scratch, NULL, MS_BIND | MS_REMOUNT | MS_RDONLY, NULL) != 0)
        return CHILD_SKIPPED;
    if (tamis_open(path, &options, &none, &err) != TAMIS_IO || err.os_error != EROFS)
        return 1;
    if (none != NULL || strstr(err.message, "Read-only file system") == NULL)
        return 2;
    if (tamis_destroy(path, NULL, &err) != TAMIS_IO)
        return 3;
    return 0;
}

START_TEST(a_read_only_medium_is_an_error_that_says_so)
{
    char *before;
    char *after;
    int end;

    open_store();
    fill_store(10, 10, true);
    close_store();
    before = describe(path);
    end = child_run(open_on_read_only_medium, NULL, NULL, 0);
    if (end == CHILD_SKIPPED)
        fprintf(stderr, "SKIPPED: cannot mount\n");
    else
        ck_assert_int_eq(end, 0);
    after = describe(path);
    ck_assert_str_eq(before, after);
    free(before);
    free(after);
}
END_TEST

START_TEST(any_path_is_as_good_as_a_plain_one)
{
    static const char *const names[] = {
        "my db",  "d\xc3\xa4t\xc3\xa4 \xe6\x95\xb0\xe6\x8d\xae \xe2\x98\x83",
        "a\nb",   "-x",
        "slash/", "not \xff utf-8",
        "%s%n",   "..."};
    char longest[256];

    memset(longest, 'x', 255);
    longest[255] = '\0';
    for (size_t i = 0; i <= sizeof names / sizeof names[0]; i++) {
        const char *name = i < sizeof names / sizeof names[0] ? names[i] : longest;

        free(path);
        path = temp_dir_path(scratch, name);
        open_store();
        fill_store(1000, 10, true);
        check_ok(tamis_compact_range(db, NULL, NULL, &err), err);
        reopen();
        ck_assert(all_there(1000));
        close_store();
        check_ok(tamis_destroy(path, NULL, &err), err);
        ck_assert(!is_there(path));
    }
    free(path);
    memset(longest, 'x', 255);
    path = temp_dir_path(scratch, longest);
    path = realloc(path, strlen(path) + 2);
    strcat(path, "x");
    expect_failure(path, TAMIS_IO); // a name of 256 bytes
    ck_assert_int_eq(err.os_error, ENAMETOOLONG);
}
END_TEST

START_TEST(a_message_says_what_is_wrong_however_long_the_path)
{
    char longest[256];

    memset(longest, 'x', 255);
    longest[255] = '\0';
    free(path);
    path = temp_dir_path(scratch, longest);
    open_store();
    close_store();
    options.error_if_exists = true;
    expect_failure(path, TAMIS_INVALID);
    ck_assert_ptr_nonnull(strstr(err.message, "error_if_exists"));
    options.error_if_exists = false;
    check_ok(tamis_destroy(path, NULL, &err), err);
    ck_assert_int_eq(mkdir(path, 0755), 0);
    options.create_if_missing = false;
    expect_failure(path, TAMIS_NOT_FOUND);
    ck_assert_ptr_nonnull(strstr(err.message, "create_if_missing"));
}
END_TEST

static void
expect_plain_message(void)
{
    for (const char *c = err.message; *c != '\0'; c++)
        ck_assert(*c != 0x7f && (unsigned char)*c >= ' ');
}

START_TEST(a_message_shows_no_control_character_of_a_path)
{
    options.create_if_missing = false;
    free(path);
    path = temp_dir_path(scratch, "a\nb\033[2J");
    expect_failure(path, TAMIS_NOT_FOUND);
    expect_plain_message();
    write_text(path, "file");
    expect_failure(path, TAMIS_INVALID);
    expect_plain_message();
    ck_assert_int_eq(unlink(path), 0);
    options.create_if_missing = true;
    options.error_if_exists = true;
    open_store();
    close_store();
    expect_failure(path, TAMIS_INVALID);
    expect_plain_message();
}
END_TEST

/* ---- Options -------------------------------------------------------------------------------------- */

static tamis_fs fs;

/* Neither opening nor destroying takes the options as they are now. */
static void
expect_refused(void)
{
    expect_failure(path, TAMIS_INVALID);
    ck_assert(!is_there(path));
    check_status(tamis_destroy(path, &options, &err), TAMIS_INVALID, err);
}

/* Do `act` with each value of a field, the others as they were. */
#define with_each(act, field, ...)                                                                 \
    do {                                                                                           \
        const tamis_options good_ = options;                                                       \
        const double values_[] = {__VA_ARGS__};                                                    \
                                                                                                   \
        for (size_t i_ = 0; i_ < sizeof values_ / sizeof values_[0]; i_++) {                       \
            options.field = (__typeof__(options.field))values_[i_];                                \
            act();                                                                                 \
        }                                                                                          \
        options = good_;                                                                           \
    } while (0)

START_TEST(an_option_out_of_its_range_is_refused_and_nothing_is_made)
{
    const double nan = (double)NAN;
    const double infinity = (double)INFINITY;

    with_each(expect_refused, struct_size, 0, sizeof options - 1, sizeof options + 1);
    with_each(expect_refused, write_buffer_bytes, 0, 65535, 4294967297.0, 0x1p63);
    with_each(expect_refused, block_bytes, 0, 63, (16 << 20) + 1, UINT32_MAX);
    with_each(expect_refused, block_cache_bytes, 0x1p48 + 1, 0x1p63);
    with_each(expect_refused, background_threads, 0, 33, UINT32_MAX);
    with_each(expect_refused, filter_kind, TAMIS_FILTER_EMPTY_SET, TAMIS_FILTER_ALWAYS_TRUE, 4);
    with_each(expect_refused, filter_bits_per_key, -0.001, 32.001, 1e9, nan, infinity, -infinity);
    with_each(expect_refused, filter_false_positive_rate, -0.01, 0.9e-6, 0.51, 1, nan, infinity);
    with_each(expect_refused, compression, 2, 1000);
    open_store();
}
END_TEST

static void
hear_nothing(void *ctx, tamis_log_level level, const char *message)
{
    (void)ctx;
    (void)level;
    (void)message;
}

START_TEST(a_half_made_logger_is_refused)
{
    tamis_logger logger = {NULL, NULL, TAMIS_LOG_INFO};

    options.logger = &logger;
    expect_refused();
    logger.log = hear_nothing;
    logger.least = (tamis_log_level)(TAMIS_LOG_DEBUG + 1);
    expect_refused();
    logger.least = (tamis_log_level)-1;
    expect_refused();
    logger.least = TAMIS_LOG_DEBUG;
    open_store();
    close_store();
}
END_TEST

START_TEST(a_half_made_allocator_or_file_system_is_refused)
{
    struct fault_alloc fault;
    const tamis_allocator whole = fault_alloc_allocator(&fault);
    tamis_allocator allocator = whole;

    fault_alloc_init(&fault);
    options.allocator = &allocator;
    allocator.alloc = NULL;
    expect_refused();
    allocator = whole;
    allocator.resize = NULL;
    expect_refused();
    allocator = whole;
    allocator.release = NULL;
    expect_refused();
    allocator = whole;
    fs = *tamis_fs_posix();
    fs.struct_size--;
    options.fs = &fs;
    expect_refused();
    fs.struct_size++;
    open_store();
    close_store();
}
END_TEST

static void
use_store(void)
{
    open_store();
    fill_store(3000, 100, false);
    check_ok(tamis_flush(db, &err), err);
    ck_assert(all_there(3000));
    check_ok(tamis_compact_range(db, NULL, NULL, &err), err);
    reopen();
    ck_assert(all_there(3000));
    check_ok(tamis_verify(db, NULL, NULL, &err), err);
    close_store();
    check_ok(tamis_destroy(path, NULL, &err), err);
}

START_TEST(both_ends_of_the_range_of_an_option_work)
{
    with_each(use_store, write_buffer_bytes, 65536, 0x1p32);
    with_each(use_store, block_bytes, 64, 16 << 20);
    with_each(use_store, block_cache_bytes, 0, 1, 0x1p48);
    with_each(use_store, background_threads, 1, 32);
    with_each(use_store, filter_bits_per_key, 0, -0.0, 0.001, 32);
    with_each(use_store, filter_false_positive_rate, 1e-6, 0.5);
}
END_TEST

START_TEST(the_write_buffer_decides_how_many_tables_are_written)
{
    tamis_stats stats;

    options.write_buffer_bytes = 64 << 10;
    open_store();
    fill_store(2000, 1000, false); // 2 MB
    check_ok(tamis_wait_idle(db, &err), err);
    stats = get_stats();
    ck_assert_uint_ge(stats.flush_count, 20);
    ck_assert_uint_le(stats.flush_count, 40);
    ck_assert_uint_le(stats.memory_memtables_bytes, 4 * options.write_buffer_bytes);
    close_store();
    check_ok(tamis_destroy(path, NULL, &err), err);

    options.write_buffer_bytes = 16 << 20;
    open_store();
    fill_store(2000, 1000, false);
    check_ok(tamis_wait_idle(db, &err), err);
    ck_assert_uint_eq(get_stats().flush_count, 0);
    ck_assert_uint_eq(get_stats().total.file_count, 0);
    check_ok(tamis_flush(db, &err), err);
    ck_assert_uint_eq(get_stats().flush_count, 1);
    ck_assert_uint_eq(get_stats().total.file_count, 1);
}
END_TEST

static unsigned
count_threads(void)
{
    DIR *directory = opendir("/proc/self/task");
    struct dirent *entry;
    unsigned count = 0;

    ck_assert_ptr_nonnull(directory);
    while ((entry = readdir(directory)) != NULL)
        count += entry->d_name[0] != '.';
    closedir(directory);
    return count;
}

START_TEST(as_many_threads_compact_as_the_option_says_beside_the_one_that_flushes)
{
    unsigned before = count_threads();

    for (uint32_t count = 1; count <= 9; count += 4) {
        options.background_threads = count;
        open_store();
        ck_assert_uint_eq(count_threads(), before + count + 1);
        close_store();
    }
}
END_TEST

/* Blocks read by a walk over a table of 1 MB. */
static uint64_t
count_blocks(uint32_t block_bytes)
{
    tamis_iter *iter = NULL;
    uint64_t count;

    options.block_bytes = block_bytes;
    options.block_cache_bytes = 0;
    open_store();
    fill_store(10000, 92, false);
    check_ok(tamis_flush(db, &err), err);
    check_ok(tamis_iter_open(db, NULL, &iter, &err), err);
    for (tamis_iter_first(iter); tamis_iter_valid(iter);)
        tamis_iter_next(iter);
    check_ok(tamis_iter_status(iter, &err), err);
    tamis_iter_close(iter);
    count = get_stats().cache_misses;
    close_store();
    check_ok(tamis_destroy(path, NULL, &err), err);
    return count;
}

START_TEST(block_bytes_decides_how_many_blocks_a_table_has)
{
    uint64_t count = count_blocks(64);

    ck_assert_uint_eq(count, 10000); // one entry is more than a block
    count = count_blocks(1 << 10);
    ck_assert_uint_ge(count, 800);
    ck_assert_uint_le(count, 1300);
    count = count_blocks(64 << 10);
    ck_assert_uint_ge(count, 12);
    ck_assert_uint_le(count, 20);
    count = count_blocks(16 << 20);
    ck_assert_uint_eq(count, 1);
}
END_TEST

START_TEST(the_block_cache_keeps_to_its_size)
{
    static const uint64_t sizes[] = {0, 10000, 100000, 1 << 20, 64 << 20};

    open_store();
    fill_store(20000, 100, false); // 2 MB
    check_ok(tamis_flush(db, &err), err);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        tamis_stats once;
        tamis_stats twice;

        options.block_cache_bytes = sizes[i];
        reopen();
        ck_assert(all_there(20000));
        once = get_stats();
        ck_assert_uint_le(once.memory_cache_bytes, sizes[i]);
        ck_assert(all_there(20000));
        twice = get_stats();
        ck_assert_uint_le(twice.memory_cache_bytes, sizes[i]);
        if (sizes[i] == 0)
            ck_assert_uint_eq(twice.cache_hits, 0);
        if (sizes[i] == 1 << 20) // about half of the data
            ck_assert_uint_gt(twice.memory_cache_bytes, 1 << 19);
        if (sizes[i] == 64 << 20)
            ck_assert_uint_eq(twice.cache_misses, once.cache_misses); // all of it is there
        else
            ck_assert_uint_gt(twice.cache_misses, once.cache_misses);
        ck_assert_uint_eq(twice.cache_hits + twice.cache_misses, twice.tables_read);
    }
}
END_TEST

START_TEST(new_tables_get_the_kind_of_filter_asked_for_and_old_ones_keep_theirs)
{
    static const tamis_filter_kind kinds[] = {TAMIS_FILTER_STANDARD, TAMIS_FILTER_BLK512,
                                              TAMIS_FILTER_PAIR512};

    for (int i = 0; i < 3; i++) {
        tamis_table_stats table;

        options.filter_kind = kinds[i];
        open_store();
        table = make_table(1000);
        ck_assert_int_eq(table.filter.geometry.kind, kinds[i]);
        ck_assert_int_eq(table.filter_damage, TAMIS_FILTER_SOUND);
        ck_assert_uint_eq(table.filter.geometry.key_count, 1000);
        options.filter_kind = kinds[(i + 1) % 3];
        options.filter_bits_per_key = 20;
        reopen();
        check_ok(tamis_visit_tables(db, take_first_table, &table, &err), err);
        ck_assert_int_eq(table.filter.geometry.kind, kinds[i]);
        ck_assert_double_eq(table.filter.bits_per_key_requested, 10.0);
        ck_assert(all_there(1000));
        table = make_table(1000); // visited first: the newest of level 0
        ck_assert_int_eq(table.filter.geometry.kind, kinds[(i + 1) % 3]);
        check_ok(tamis_compact_range(db, NULL, NULL, &err), err);
        check_ok(tamis_visit_tables(db, take_first_table, &table, &err), err);
        ck_assert_int_eq(table.filter.geometry.kind, kinds[(i + 1) % 3]);
        ck_assert_double_eq(table.filter.bits_per_key_requested, 20.0);
        ck_assert(all_there(1000));
        close_store();
        check_ok(tamis_destroy(path, NULL, &err), err);
        options.filter_bits_per_key = 10;
    }
}
END_TEST

START_TEST(bits_per_key_are_honoured_with_their_fractions)
{
    static const double bits[] = {0, 0.5, 2.5, 9.9, 10.1, 20.25, 32};
    const unsigned key_count = 10000;
    uint64_t body_bytes = 0;

    for (size_t i = 0; i < sizeof bits / sizeof bits[0]; i++) {
        tamis_table_stats table;
        tamis_level_stats total;

        options.filter_bits_per_key = bits[i];
        open_store();
        table = make_table(key_count);
        total = get_stats().total;
        ck_assert_double_eq(table.filter.bits_per_key_requested, bits[i]);
        ck_assert_double_eq(total.bits_per_key_requested, bits[i]);
        ck_assert_uint_eq(total.filter_bytes, table.filter.geometry.body_bytes);
        ck_assert_double_eq_tol(total.bits_per_key_delivered, bits[i], 2 * 512.0 / key_count);
        ck_assert_double_ge(total.bits_per_key_delivered, bits[i]);
        if (i == 0) {
            ck_assert_int_eq(table.filter.geometry.kind, TAMIS_FILTER_ALWAYS_TRUE);
            ck_assert_int_eq(table.filter_damage, TAMIS_FILTER_SOUND);
            ck_assert_uint_eq(total.filter_bytes, 0);
            ck_assert_double_eq(table.false_positive_rate_theory, 1.0);
        } else {
            ck_assert_uint_gt(table.filter.geometry.body_bytes, body_bytes);
        }
        body_bytes = table.filter.geometry.body_bytes;
        ck_assert(all_there(key_count));
        close_store();
        check_ok(tamis_destroy(path, NULL, &err), err);
    }
}
END_TEST

START_TEST(a_wanted_rate_decides_the_bits_instead)
{
    static const double rates[] = {0.5, 0.01, 0.001, 1e-6};

    for (size_t i = 0; i < sizeof rates / sizeof rates[0]; i++) {
        tamis_table_stats table;

        options.filter_bits_per_key = 3; // has no say
        options.filter_false_positive_rate = rates[i];
        open_store();
        table = make_table(10000);
        ck_assert_double_eq_tol(table.filter.false_positive_rate_target, rates[i], 1e-9);
        ck_assert_double_eq(table.filter.bits_per_key_requested, 0.0);
        ck_assert_double_le(table.false_positive_rate_theory, rates[i]);
        ck_assert_double_ge(table.false_positive_rate_theory, rates[i] * 0.8);
        ck_assert(all_there(10000));
        close_store();
        check_ok(tamis_destroy(path, NULL, &err), err);
    }
}
END_TEST

static uint64_t
table_bytes(tamis_compression compression, bool packs)
{
    uint64_t bytes;

    options.compression = compression;
    open_store();
    fill_store(5000, 200, packs);
    check_ok(tamis_flush(db, &err), err);
    bytes = get_stats().total.file_bytes;
    ck_assert(all_there(5000));
    close_store();
    check_ok(tamis_destroy(path, NULL, &err), err);
    return bytes;
}

START_TEST(compression_saves_where_there_is_something_to_save)
{
    uint64_t plain = table_bytes(TAMIS_COMPRESSION_NONE, true);

    ck_assert_uint_gt(plain, 5000 * 200);
    ck_assert_uint_lt(table_bytes(TAMIS_COMPRESSION_LZ4, true), plain / 4);
    plain = table_bytes(TAMIS_COMPRESSION_NONE, false);
    // Blocks are kept as they are; the index may pack.
    ck_assert_uint_le(table_bytes(TAMIS_COMPRESSION_LZ4, false), plain);
    ck_assert_uint_ge(table_bytes(TAMIS_COMPRESSION_LZ4, false), plain - plain / 100);
}
END_TEST

START_TEST(all_memory_comes_from_the_allocator_and_goes_back)
{
    struct fault_alloc fault;
    tamis_allocator mine;
    tamis_stats stats;

    fault_alloc_init(&fault);
    mine = fault_alloc_allocator(&fault);
    options.allocator = &mine;
    options.write_buffer_bytes = 64 << 10;
    open_store();
    memset(&mine, 0, sizeof mine); // was copied
    fill_store(5000, 100, false);
    check_ok(tamis_compact_range(db, NULL, NULL, &err), err);
    ck_assert(all_there(5000));
    stats = get_stats();
    ck_assert_uint_gt(stats.memory_total_bytes, 0);
    ck_assert_uint_le(stats.memory_total_bytes, atomic_load(&fault.live_bytes));
    ck_assert_uint_ge(stats.memory_total_bytes,
                      stats.memory_memtables_bytes + stats.memory_cache_bytes +
                          stats.memory_filters_bytes + stats.memory_indexes_bytes);
    ck_assert_uint_le(atomic_load(&fault.live_bytes) - stats.memory_total_bytes, 64 << 10);
    close_store();
    ck_assert_uint_eq(atomic_load(&fault.live_count), 0);
    mine = fault_alloc_allocator(&fault);
    open_store();
    ck_assert(all_there(5000));
    close_store();
    check_ok(tamis_destroy(path, &options, &err), err);
    ck_assert_uint_eq(atomic_load(&fault.live_count), 0);
}
END_TEST

static unsigned created_count;
static char last_created[64];

static tamis_status
create_and_count(void *ctx, tamis_dir *dir, const char *name, tamis_file_kind kind,
                 tamis_file **file_out, tamis_error *error)
{
    (void)ctx;
    created_count++;
    snprintf(last_created, sizeof last_created, "%s", name);
    return tamis_fs_posix()->create(tamis_fs_posix()->ctx, dir, name, kind, file_out, error);
}

START_TEST(files_are_made_through_the_file_system_given)
{
    fs = *tamis_fs_posix();
    fs.create = create_and_count;
    options.fs = &fs;
    open_store();
    ck_assert_uint_eq(created_count, 2); // manifest and log
    fill_store(10, 10, true);
    check_ok(tamis_flush(db, &err), err);
    ck_assert_uint_eq(created_count, 4); // log and table
    ck_assert_ptr_nonnull(strstr(last_created, ".sst"));
    check_ok(tamis_inspect(path, false, NULL, NULL, &fs, &err) == TAMIS_OK ? TAMIS_INVALID
                                                                           : TAMIS_OK,
             err); // a directory is no file of ours
}
END_TEST

static tamis_status
refuse_lock(void *ctx, tamis_dir *dir, tamis_lock **lock_out, tamis_error *error)
{
    (void)ctx;
    (void)dir;
    *lock_out = NULL;
    *error = (tamis_error){.code = TAMIS_IO, .where = "here", .message = "no locks today"};
    return TAMIS_IO;
}

static tamis_status
refuse_create(void *ctx, tamis_dir *dir, const char *name, tamis_file_kind kind,
              tamis_file **file_out, tamis_error *error)
{
    (void)ctx;
    (void)dir;
    (void)name;
    (void)kind;
    *file_out = NULL;
    *error = (tamis_error){.code = TAMIS_NO_SPACE, .where = "here", .message = "no room today"};
    return TAMIS_NO_SPACE;
}

START_TEST(a_creation_that_fails_leaves_no_store_and_can_be_repeated)
{
    tamis_db *none = NULL;

    fs = *tamis_fs_posix();
    fs.lock = refuse_lock;
    options.fs = &fs;
    check_status(tamis_open(path, &options, &none, &err), TAMIS_IO, err);
    ck_assert_str_eq(err.message, "no locks today");
    ck_assert(!is_there(path)); // nothing was in it yet
    fs = *tamis_fs_posix();
    fs.create = refuse_create;
    check_status(tamis_open(path, &options, &none, &err), TAMIS_NO_SPACE, err);
    ck_assert_ptr_null(none);
    options.fs = NULL;
    options.create_if_missing = false;
    check_status(tamis_open(path, &options, &none, &err), TAMIS_NOT_FOUND, err);
    options.create_if_missing = options.error_if_exists = true; // there is none
    open_store();
    fill_store(10, 10, true);
    options.error_if_exists = false;
    reopen();
    ck_assert(all_there(10));
}
END_TEST

START_TEST(options_are_copied_at_open)
{
    open_store();
    memset(&options, 0x55, sizeof options);
    fill_store(100, 10, true);
    check_ok(tamis_compact_range(db, NULL, NULL, &err), err);
    ck_assert(all_there(100));
}
END_TEST

/* ---- Errors --------------------------------------------------------------------------------------- */

START_TEST(an_error_is_left_alone_by_ok_and_by_not_found_of_lookups)
{
    tamis_error before;
    tamis_pinned pinned;
    size_t length = 77;
    char buffer[8];
    bool exists = true;

    open_store();
    memset(&err, 0x33, sizeof err);
    before = err;
    ck_assert_int_eq(tamis_put(db, NULL, tamis_text("k"), tamis_text("v"), &err), TAMIS_OK);
    ck_assert_int_eq(tamis_get(db, NULL, tamis_text("x"), buffer, 8, &length, &err),
                     TAMIS_NOT_FOUND);
    ck_assert_int_eq(tamis_get_pinned(db, NULL, tamis_text("x"), &pinned, &err), TAMIS_NOT_FOUND);
    tamis_pinned_release(&pinned); // zeroed
    ck_assert_int_eq(tamis_exists(db, NULL, tamis_text("x"), &exists, &err), TAMIS_OK);
    ck_assert(!exists);
    ck_assert_int_eq(tamis_delete(db, NULL, tamis_text("x"), &err), TAMIS_OK);
    ck_assert_int_eq(tamis_flush(db, &err), TAMIS_OK);
    ck_assert_int_eq(tamis_wait_idle(db, &err), TAMIS_OK);
    ck_assert_mem_eq(&err, &before, sizeof err);
    ck_assert_int_eq(tamis_put(db, NULL, tamis_text("k"), tamis_text("v"), NULL), TAMIS_OK);
    ck_assert_int_eq(tamis_get(db, NULL, tamis_text("x"), NULL, 0, &length, NULL), TAMIS_NOT_FOUND);
    ck_assert_int_eq(tamis_flush(db, NULL), TAMIS_OK);
    ck_assert_int_eq(tamis_verify(db, NULL, NULL, NULL), TAMIS_OK);
}
END_TEST

START_TEST(a_wrong_struct_size_is_refused_by_every_call_that_takes_one)
{
    tamis_write_options write_options;
    tamis_read_options read_options;
    tamis_iter_options iter_options;
    tamis_batch *batch = NULL;
    tamis_pinned pinned;
    tamis_stats stats = {0};
    tamis_iter *iter = NULL;
    size_t length;
    bool exists;
    tamis_slice k = tamis_text("k");

    open_store();
    check_ok(tamis_batch_create(NULL, &batch, &err), err);
    tamis_write_options_init(&write_options);
    tamis_read_options_init(&read_options);
    tamis_iter_options_init(&iter_options);
    write_options.struct_size = read_options.struct_size = iter_options.struct_size = 0;
    check_status(tamis_put(db, &write_options, k, k, &err), TAMIS_INVALID, err);
    check_status(tamis_delete(db, &write_options, k, &err), TAMIS_INVALID, err);
    check_status(tamis_write(db, &write_options, batch, &err), TAMIS_INVALID, err);
    check_status(tamis_get(db, &read_options, k, NULL, 0, &length, &err), TAMIS_INVALID, err);
    check_status(tamis_get_pinned(db, &read_options, k, &pinned, &err), TAMIS_INVALID, err);
    check_status(tamis_exists(db, &read_options, k, &exists, &err), TAMIS_INVALID, err);
    check_status(tamis_iter_open(db, &iter_options, &iter, &err), TAMIS_INVALID, err);
    ck_assert_ptr_null(iter);
    check_status(tamis_get_stats(db, &stats, &err), TAMIS_INVALID, err);
    check_status(tamis_get(db, NULL, k, NULL, 0, &length, &err), TAMIS_NOT_FOUND, err);
    tamis_batch_destroy(batch);
}
END_TEST

/* ---- Closing and destroying ----------------------------------------------------------------------- */

START_TEST(close_is_busy_while_anything_is_alive_and_the_store_works_on)
{
    tamis_iter *iters[2] = {NULL, NULL};
    tamis_snapshot *snapshot = NULL;
    tamis_pinned pinned;
    tamis_read_options read_options;
    bool exists = false;

    open_store();
    fill_store(1000, 100, false);
    check_ok(tamis_flush(db, &err), err);
    check_ok(tamis_iter_open(db, NULL, &iters[0], &err), err);
    check_ok(tamis_iter_open(db, NULL, &iters[1], &err), err);
    tamis_iter_seek(iters[1], tamis_text("00000500"));
    check_ok(tamis_snapshot_take(db, &snapshot, &err), err);
    check_ok(tamis_get_pinned(db, NULL, tamis_text("00000007"), &pinned, &err), err);

    check_status(tamis_close(db, &err), TAMIS_BUSY, err);
    ck_assert_uint_gt(strlen(err.message), 0);
    check_ok(tamis_put(db, NULL, tamis_text("x"), tamis_text("y"), &err), err); // open still
    tamis_iter_next(iters[1]);
    ck_assert(tamis_iter_valid(iters[1]));
    ck_assert_mem_eq(tamis_iter_key(iters[1]).data, "00000501", 8);
    ck_assert_uint_eq(pinned.value.length, 100);
    tamis_read_options_init(&read_options);
    read_options.snapshot = snapshot;
    check_ok(tamis_exists(db, &read_options, tamis_text("x"), &exists, &err), err);
    ck_assert(!exists);

    tamis_iter_close(iters[0]);
    check_status(tamis_close(db, &err), TAMIS_BUSY, err);
    tamis_iter_close(iters[1]);
    check_status(tamis_close(db, &err), TAMIS_BUSY, err);
    tamis_snapshot_release(db, snapshot);
    check_status(tamis_close(db, &err), TAMIS_BUSY, err);
    tamis_pinned_release(&pinned);
    tamis_pinned_release(&pinned); // released already: allowed
    reopen();
    ck_assert(all_there(1000));
    check_ok(tamis_exists(db, NULL, tamis_text("x"), &exists, &err), err);
    ck_assert(exists);
}
END_TEST

START_TEST(null_is_allowed_where_there_is_nothing_to_let_go)
{
    tamis_pinned zeroed = {0};

    open_store();
    ck_assert_int_eq(tamis_close(NULL, NULL), TAMIS_OK);
    tamis_iter_close(NULL);
    tamis_snapshot_release(db, NULL);
    tamis_batch_destroy(NULL);
    tamis_pinned_release(&zeroed);
}
END_TEST

/* A visitor that closes the store it is looking at. */
static bool
close_meanwhile(void *arg, const tamis_table_stats *table)
{
    (void)table;
    *(tamis_status *)arg = tamis_close(db, NULL);
    return true;
}

START_TEST(close_is_busy_while_a_call_is_running)
{
    tamis_status status = TAMIS_OK;

    open_store();
    fill_store(10, 10, true);
    check_ok(tamis_flush(db, &err), err);
    check_ok(tamis_visit_tables(db, close_meanwhile, &status, &err), err);
    ck_assert_int_eq(status, TAMIS_BUSY);
    ck_assert(all_there(10));
}
END_TEST

START_TEST(destroy_removes_the_store_and_leaves_what_is_foreign)
{
    char *notes = temp_dir_path(path, "notes.txt");
    char *folder = temp_dir_path(path, "folder");
    char *inside = temp_dir_path(folder, "000001.sst");
    char *numbered = temp_dir_path(path, "1.sst"); // not a name we give

    options.write_buffer_bytes = 64 << 10;
    open_store();
    fill_store(5000, 100, false);
    close_store();
    ck_assert_int_eq(mkdir(folder, 0755), 0);
    write_text(notes, "mine");
    write_text(inside, "mine too");
    write_text(numbered, "mine three");
    check_ok(tamis_destroy(path, NULL, &err), err);
    ck_assert_uint_eq(count_files(path), 3);
    ck_assert(is_there(notes) && is_there(inside) && is_there(numbered));
    check_status(tamis_destroy(path, NULL, &err), TAMIS_NOT_FOUND, err); // no store any more
    ck_assert_uint_eq(count_files(path), 3);
    options.create_if_missing = false;
    expect_failure(path, TAMIS_NOT_FOUND);
    free(numbered);
    free(inside);
    free(folder);
    free(notes);
}
END_TEST

START_TEST(destroy_removes_the_directory_it_leaves_empty)
{
    open_store();
    fill_store(1000, 100, false);
    check_ok(tamis_flush(db, &err), err);
    close_store();
    check_ok(tamis_destroy(path, NULL, &err), err);
    ck_assert(!is_there(path));
    open_store(); // a new one, with nothing of the old
    ck_assert(!all_there(1));
}
END_TEST

START_TEST(destroy_is_refused_for_what_is_open_or_missing)
{
    char *missing = temp_dir_path(scratch, "missing");
    char *empty = temp_dir_path(scratch, "empty");
    char *file = temp_dir_path(scratch, "file");

    open_store();
    fill_store(1000, 100, false);
    check_status(tamis_destroy(path, NULL, &err), TAMIS_BUSY, err);
    ck_assert(all_there(1000));
    check_ok(tamis_flush(db, &err), err);
    check_status(tamis_destroy(path, NULL, &err), TAMIS_BUSY, err);
    reopen();
    ck_assert(all_there(1000));
    check_status(tamis_destroy(missing, NULL, &err), TAMIS_NOT_FOUND, err);
    ck_assert_int_eq(tamis_destroy(missing, NULL, NULL), TAMIS_NOT_FOUND);
    ck_assert(!is_there(missing));
    ck_assert_int_eq(mkdir(empty, 0755), 0);
    check_status(tamis_destroy(empty, NULL, &err), TAMIS_NOT_FOUND, err);
    ck_assert(is_there(empty));
    write_text(file, "file");
    ck_assert_int_ne(tamis_destroy(file, NULL, &err), TAMIS_OK);
    ck_assert(is_there(file));
    ck_assert_int_eq(tamis_destroy("", NULL, &err), TAMIS_INVALID);
    ck_assert_int_eq(tamis_destroy(NULL, NULL, &err), TAMIS_INVALID);
    free(file);
    free(empty);
    free(missing);
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("public_api");
    TCase *tests = tcase_create("public_api");

    tcase_set_timeout(tests, 0);
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_test(tests, defaults_are_what_the_header_says);
    tcase_add_test(tests, a_missing_store_is_made_only_when_asked_for);
    tcase_add_test(tests, a_directory_of_foreign_files_is_no_store_and_can_become_one);
    tcase_add_test(tests, error_if_exists_refuses_a_store_and_changes_nothing);
    tcase_add_test(tests, a_path_that_is_no_directory_is_refused);
    tcase_add_test(tests, the_parent_of_a_new_store_must_exist);
    tcase_add_test(tests, missing_permission_is_an_error_that_says_so);
    tcase_add_test(tests, a_read_only_medium_is_an_error_that_says_so);
    tcase_add_test(tests, any_path_is_as_good_as_a_plain_one);
    tcase_add_test(tests, a_message_says_what_is_wrong_however_long_the_path);
    tcase_add_test(tests, a_message_shows_no_control_character_of_a_path);
    tcase_add_test(tests, an_option_out_of_its_range_is_refused_and_nothing_is_made);
    tcase_add_test(tests, a_half_made_logger_is_refused);
    tcase_add_test(tests, a_half_made_allocator_or_file_system_is_refused);
    tcase_add_test(tests, both_ends_of_the_range_of_an_option_work);
    tcase_add_test(tests, the_write_buffer_decides_how_many_tables_are_written);
    tcase_add_test(tests, as_many_threads_compact_as_the_option_says_beside_the_one_that_flushes);
    tcase_add_test(tests, block_bytes_decides_how_many_blocks_a_table_has);
    tcase_add_test(tests, the_block_cache_keeps_to_its_size);
    tcase_add_test(tests, new_tables_get_the_kind_of_filter_asked_for_and_old_ones_keep_theirs);
    tcase_add_test(tests, bits_per_key_are_honoured_with_their_fractions);
    tcase_add_test(tests, a_wanted_rate_decides_the_bits_instead);
    tcase_add_test(tests, compression_saves_where_there_is_something_to_save);
    tcase_add_test(tests, all_memory_comes_from_the_allocator_and_goes_back);
    tcase_add_test(tests, files_are_made_through_the_file_system_given);
    tcase_add_test(tests, a_creation_that_fails_leaves_no_store_and_can_be_repeated);
    tcase_add_test(tests, options_are_copied_at_open);
    tcase_add_test(tests, an_error_is_left_alone_by_ok_and_by_not_found_of_lookups);
    tcase_add_test(tests, a_wrong_struct_size_is_refused_by_every_call_that_takes_one);
    tcase_add_test(tests, close_is_busy_while_anything_is_alive_and_the_store_works_on);
    tcase_add_test(tests, null_is_allowed_where_there_is_nothing_to_let_go);
    tcase_add_test(tests, close_is_busy_while_a_call_is_running);
    tcase_add_test(tests, destroy_removes_the_store_and_leaves_what_is_foreign);
    tcase_add_test(tests, destroy_removes_the_directory_it_leaves_empty);
    tcase_add_test(tests, destroy_is_refused_for_what_is_open_or_missing);
    suite_add_tcase(suite, tests);
    return check_run(suite);
}
