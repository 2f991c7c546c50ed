/* SPDX-License-Identifier: MIT
 *
 * tests/engine/test_seeing_inside.c -- statistics, the list of tables, verification and inspection tell the truth.
 */
#include "tests/engine/one_store.h"

#include <math.h>
#include <unistd.h>

#include "engine/record_log.h"
#include "engine/wal.h"
#include "tests/support/rng.h"

/* Three overlapping tables of level 0 over a deeper level, and a memtable. */
static void
make_layers(void)
{
    for (unsigned i = 0; i < 3000; i++)
        one_put_number(2 * i, 1, 100);
    one_compact();
    for (unsigned table = 0; table < 3; table++) {
        for (unsigned i = 0; i < 300; i++)
            one_put_number(6 * i + 2 * table, 2 + table, 100);
        one_delete_number(10 + table * 2);
        one_flush();
    }
    one_put_number(0, 9, 100);
    one_delete_number(2);
    one_wait_idle();
}

/* ---- Statistics ----------------------------------------------------------------------------------- */

static void
add_level(tamis_level_stats *sum, const tamis_level_stats *level)
{
    sum->file_count += level->file_count;
    sum->file_bytes += level->file_bytes;
    sum->entry_count += level->entry_count;
    sum->tombstone_count += level->tombstone_count;
    sum->key_count += level->key_count;
    sum->filter_bytes += level->filter_bytes;
    sum->filter_probes += level->filter_probes;
    sum->filter_negatives += level->filter_negatives;
    sum->filter_true_positives += level->filter_true_positives;
    sum->filter_false_positives += level->filter_false_positives;
}

static void
expect_same_counts(const tamis_level_stats *a, const tamis_level_stats *b)
{
    ck_assert_uint_eq(a->file_count, b->file_count);
    ck_assert_uint_eq(a->file_bytes, b->file_bytes);
    ck_assert_uint_eq(a->entry_count, b->entry_count);
    ck_assert_uint_eq(a->tombstone_count, b->tombstone_count);
    ck_assert_uint_eq(a->key_count, b->key_count);
    ck_assert_uint_eq(a->filter_bytes, b->filter_bytes);
    ck_assert_uint_eq(a->filter_probes, b->filter_probes);
    ck_assert_uint_eq(a->filter_negatives, b->filter_negatives);
    ck_assert_uint_eq(a->filter_true_positives, b->filter_true_positives);
    ck_assert_uint_eq(a->filter_false_positives, b->filter_false_positives);
}

static void
expect_consistent(const tamis_level_stats *level)
{
    double asked = (double)(level->filter_false_positives + level->filter_negatives);

    ck_assert_uint_eq(level->filter_probes, level->filter_negatives + level->filter_true_positives +
                                                level->filter_false_positives);
    if (asked == 0)
        ck_assert(isnan(level->false_positive_rate_measured));
    else
        ck_assert_double_eq_tol(level->false_positive_rate_measured,
                                (double)level->filter_false_positives / asked, 1e-12);
    ck_assert_uint_le(level->key_count, level->entry_count);
    ck_assert_uint_le(level->tombstone_count, level->entry_count);
    if (level->key_count != 0) {
        ck_assert_double_eq_tol(level->bits_per_key_requested, 10.0, 1e-9);
        ck_assert_double_eq_tol(level->bits_per_key_delivered,
                                8.0 * (double)level->filter_bytes / (double)level->key_count, 1e-9);
        ck_assert_double_ge(level->bits_per_key_delivered, 10.0);
        ck_assert_double_gt(level->false_positive_rate_theory, 0.0);
        ck_assert_double_lt(level->false_positive_rate_theory, 0.01);
    } else {
        ck_assert_double_eq(level->bits_per_key_requested, 0.0);
        ck_assert_double_eq(level->bits_per_key_delivered, 0.0);
    }
}

/* Everything that must hold of statistics at any time; returns them. */
static tamis_stats
check_stats(void)
{
    tamis_stats stats = one_stats();
    tamis_level_stats sum = {0};

    for (unsigned level = 0; level < TAMIS_LEVEL_COUNT; level++) {
        expect_consistent(&stats.level[level]);
        add_level(&sum, &stats.level[level]);
    }
    expect_consistent(&stats.total);
    expect_same_counts(&sum, &stats.total);
    ck_assert_uint_le(stats.gets_found, stats.gets);
    ck_assert_uint_le(stats.memtable_hits, stats.gets);
    ck_assert_int_eq(stats.background_status, TAMIS_OK);
    ck_assert_uint_eq(stats.filters_damaged, 0);
    return stats;
}

START_TEST(counters_of_lookups_add_up)
{
    tamis_stats before;
    tamis_stats after;
    unsigned found_count = 0;
    char text[32];

    make_layers();
    before = check_stats();
    ck_assert_uint_eq(before.level[0].file_count, 3);
    ck_assert(isnan(before.total.false_positive_rate_measured)); // nothing was asked yet
    for (unsigned i = 0; i < 8000; i++)
        found_count += one_version(i) >= 0;
    after = check_stats();
    ck_assert_uint_eq(after.gets - before.gets, 8000);
    ck_assert_uint_eq(found_count, 3000 - 3); // deleted: 2 in memory, 12 and 14 in tables
    ck_assert_uint_eq(after.gets_found - before.gets_found, found_count);
    ck_assert_uint_eq(after.memtable_hits - before.memtable_hits, 2); // found, and deleted
    ck_assert_uint_eq(after.tables_read,
                      after.total.filter_true_positives + after.total.filter_false_positives);
    // Each key of a table is found in one table or in memory.
    ck_assert_uint_eq(after.total.filter_true_positives, 3000 - 2);
    ck_assert_uint_gt(after.total.filter_negatives, 4000);
    // Keys beyond all tables are asked nowhere.
    before = after;
    for (unsigned i = 9000; i < 9100; i++)
        ck_assert_int_eq(one_version(i), -1);
    after = check_stats();
    ck_assert_uint_eq(after.total.filter_probes, before.total.filter_probes);
    ck_assert_uint_eq(after.tables_skipped_by_range - before.tables_skipped_by_range,
                      100 * after.total.file_count);
    // exists and get_pinned are lookups too.
    for (unsigned i = 0; i < 10; i++) {
        tamis_pinned pinned;
        bool there;

        check_ok(tamis_exists(one.db, NULL, one_key(text, 100), &there, &one.err), one.err);
        check_ok(tamis_get_pinned(one.db, NULL, one_key(text, 100), &pinned, &one.err), one.err);
        tamis_pinned_release(&pinned);
    }
    ck_assert_uint_eq(check_stats().gets - after.gets, 20);
}
END_TEST

START_TEST(keys_are_counted_once_and_versions_each)
{
    tamis_snapshot *snapshot = NULL;
    tamis_level_stats total;

    for (unsigned i = 0; i < 100; i++)
        one_put_number(i, 1, 100);
    check_ok(tamis_snapshot_take(one.db, &snapshot, &one.err), one.err);
    for (unsigned i = 0; i < 50; i++)
        one_put_number(i, 2, 100);
    for (unsigned i = 50; i < 60; i++)
        one_delete_number(i);
    one_flush();
    total = check_stats().total;
    ck_assert_uint_eq(total.file_count, 1);
    ck_assert_uint_eq(total.key_count, 100);
    ck_assert_uint_eq(total.entry_count, 160);
    ck_assert_uint_eq(total.tombstone_count, 10);
    tamis_snapshot_release(one.db, snapshot);
    one_compact();
    total = check_stats().total;
    ck_assert_uint_eq(total.key_count, 90);
    ck_assert_uint_eq(total.entry_count, 90);
    ck_assert_uint_eq(total.tombstone_count, 0);
}
END_TEST

START_TEST(bytes_written_are_those_of_the_files)
{
    tamis_batch *batch = NULL;
    tamis_stats stats;
    uint64_t user_bytes = 0;
    char text[32];

    one.options.write_buffer_bytes = 16 << 20;
    one_store_reopen();
    for (unsigned i = 0; i < 1000; i++) {
        one_put_number(i, 1, 100);
        user_bytes += one_key(text, i).length + 100;
    }
    one_delete_number(5);
    user_bytes += one_key(text, 5).length;
    stats = check_stats();
    ck_assert_uint_eq(stats.user_bytes_written, user_bytes);
    check_ok(tamis_batch_create(NULL, &batch, &one.err), one.err);
    check_ok(tamis_batch_put(batch, tamis_text("abc"), tamis_text("de"), &one.err), one.err);
    check_ok(tamis_batch_delete(batch, tamis_text("fgh"), &one.err), one.err);
    check_ok(tamis_write(one.db, NULL, batch, &one.err), one.err);
    tamis_batch_destroy(batch);
    user_bytes += 3 + 2 + 3;
    stats = check_stats();
    ck_assert_uint_eq(stats.user_bytes_written, user_bytes);
    ck_assert_uint_eq(stats.last_sequence, 1003);
    ck_assert_uint_gt(stats.log_bytes_written, user_bytes);
    ck_assert_uint_lt(stats.log_bytes_written, 2 * user_bytes);
    ck_assert_uint_eq(stats.flush_bytes_written, 0);
    ck_assert_uint_gt(stats.memory_memtables_bytes, user_bytes);

    one_flush();
    stats = check_stats();
    ck_assert_uint_eq(stats.flush_count, 1);
    ck_assert_uint_eq(stats.flush_bytes_written, stats.total.file_bytes);
    ck_assert_uint_eq(stats.total.file_bytes, one_list(one.path).table_bytes);
    ck_assert_uint_eq(stats.compaction_bytes_written, 0);
    ck_assert_uint_ge(stats.memory_filters_bytes, stats.total.filter_bytes);
    ck_assert_uint_le(stats.memory_filters_bytes, stats.total.filter_bytes + 1024);
    ck_assert_uint_gt(stats.memory_indexes_bytes, 0);

    one_put_number(7, 2, 100);
    one_compact();
    one_wait_idle(); // until the old table is removed
    stats = check_stats();
    ck_assert_uint_ge(stats.compaction_count, 1);
    ck_assert_uint_ge(stats.compaction_bytes_read, stats.total.file_bytes);
    ck_assert_uint_ge(stats.compaction_bytes_written, stats.total.file_bytes);
    ck_assert_uint_eq(stats.total.file_bytes, one_list(one.path).table_bytes);
    ck_assert_uint_eq(stats.total.key_count, 1000);
    ck_assert_uint_eq(stats.stall_count, 0);
}
END_TEST

START_TEST(statistics_can_be_taken_while_the_store_is_written)
{
    for (unsigned i = 0; i < 5000; i++) {
        one_put_number(i, 1, 200);
        if (i % 50 == 0) {
            tamis_stats stats = one_stats();

            ck_assert_uint_eq(stats.last_sequence, i + 1);
            ck_assert_uint_ge(stats.memory_total_bytes, stats.memory_memtables_bytes);
        }
    }
    one_wait_idle();
    (void)check_stats();
}
END_TEST

/* ---- Tables --------------------------------------------------------------------------------------- */

struct visit {
    unsigned count;
    unsigned count_max; // stop here
    tamis_level_stats levels[TAMIS_LEVEL_COUNT];
    uint32_t level;
    uint64_t number;
    char largest[64];
};

static bool
visit_table(void *arg, const tamis_table_stats *table)
{
    struct visit *visit = arg;
    tamis_level_stats one_table = {0};
    char name[32];
    char *file;

    ck_assert_uint_lt(table->level, TAMIS_LEVEL_COUNT);
    ck_assert(visit->count == 0 || table->level >= visit->level);
    if (visit->count != 0 && table->level == visit->level) {
        if (table->level == 0)
            ck_assert_uint_lt(table->number, visit->number); // newest first
        else
            ck_assert(tm_slice_compare(tamis_text(visit->largest), table->smallest) < 0);
    }
    ck_assert(tm_slice_compare(table->smallest, table->largest) <= 0);
    ck_assert_uint_lt(table->largest.length, sizeof visit->largest);
    memcpy(visit->largest, table->largest.data, table->largest.length);
    visit->largest[table->largest.length] = '\0';
    visit->level = table->level;
    visit->number = table->number;
    ck_assert_int_eq(table->filter.geometry.kind, TAMIS_FILTER_PAIR512);
    ck_assert_int_eq(table->filter_damage, TAMIS_FILTER_SOUND);
    ck_assert_uint_eq(table->filter.geometry.key_count, table->key_count);
    ck_assert_double_eq(table->false_positive_rate_theory,
                        tamis_theory_false_positive_rate(&table->filter.geometry));

    snprintf(name, sizeof name, "%06llu.sst", (unsigned long long)table->number);
    file = temp_dir_path(one.path, name);
    {
        struct stat found;

        ck_assert_int_eq(stat(file, &found), 0);
        ck_assert_uint_eq((uint64_t)found.st_size, table->file_bytes);
    }
    free(file);

    one_table.file_count = 1;
    one_table.file_bytes = table->file_bytes;
    one_table.entry_count = table->entry_count;
    one_table.tombstone_count = table->tombstone_count;
    one_table.key_count = table->key_count;
    one_table.filter_bytes = table->filter.geometry.body_bytes;
    one_table.filter_probes = table->filter_probes;
    one_table.filter_negatives = table->filter_negatives;
    one_table.filter_true_positives = table->filter_true_positives;
    one_table.filter_false_positives = table->filter_false_positives;
    add_level(&visit->levels[table->level], &one_table);
    return ++visit->count != visit->count_max;
}

START_TEST(tables_are_visited_in_the_order_in_which_they_are_asked)
{
    struct visit visit = {0};
    tamis_stats stats;

    make_layers();
    for (unsigned i = 0; i < 8000; i++)
        (void)one_version(i);
    stats = check_stats();
    check_ok(tamis_visit_tables(one.db, visit_table, &visit, &one.err), one.err);
    ck_assert_uint_eq(visit.count, stats.total.file_count);
    ck_assert_uint_gt(visit.count, 4);
    for (unsigned level = 0; level < TAMIS_LEVEL_COUNT; level++)
        expect_same_counts(&visit.levels[level], &stats.level[level]);
    memset(&visit, 0, sizeof visit);
    visit.count_max = 2;
    check_ok(tamis_visit_tables(one.db, visit_table, &visit, &one.err), one.err);
    ck_assert_uint_eq(visit.count, 2);
}
END_TEST

/* ---- Verification --------------------------------------------------------------------------------- */

struct progress {
    unsigned call_count;
    unsigned call_count_max;
    uint64_t done_bytes;
    uint64_t total_bytes;
};

static bool
take_progress(void *arg, uint64_t done_bytes, uint64_t total_bytes)
{
    struct progress *progress = arg;

    ck_assert_uint_ge(done_bytes, progress->done_bytes);
    ck_assert_uint_le(done_bytes, total_bytes);
    ck_assert(progress->call_count == 0 || total_bytes == progress->total_bytes);
    progress->done_bytes = done_bytes;
    progress->total_bytes = total_bytes;
    return ++progress->call_count != progress->call_count_max;
}

START_TEST(verification_reads_all_and_tells_how_far_it_is)
{
    struct progress progress = {0};
    tamis_stats stats;

    check_ok(tamis_verify(one.db, take_progress, &progress, &one.err), one.err); // of nothing
    make_layers();
    stats = one_stats();
    memset(&progress, 0, sizeof progress);
    check_ok(tamis_verify(one.db, take_progress, &progress, &one.err), one.err);
    ck_assert_uint_eq(progress.total_bytes, stats.total.file_bytes);
    ck_assert_uint_ge(progress.done_bytes, progress.total_bytes * 9 / 10);
    ck_assert_uint_ge(progress.call_count, stats.total.file_count);
    memset(&progress, 0, sizeof progress);
    progress.call_count_max = 2;
    check_ok(tamis_verify(one.db, take_progress, &progress, &one.err), one.err);
    ck_assert_uint_eq(progress.call_count, 2);
    ck_assert_uint_lt(progress.done_bytes, progress.total_bytes);
}
END_TEST

static bool
take_table(void *arg, const tamis_table_stats *table)
{
    *(tamis_table_stats *)arg = *table;
    return false;
}

START_TEST(verification_names_the_file_and_the_place_of_damage)
{
    tamis_table_stats table = {0};
    char name[32];
    char *file;
    FILE *stream;
    int byte;

    for (unsigned i = 0; i < 500; i++)
        one_put_number(i, 1, 100);
    one_flush();
    check_ok(tamis_visit_tables(one.db, take_table, &table, &one.err), one.err);
    snprintf(name, sizeof name, "%06llu.sst", (unsigned long long)table.number);
    file = temp_dir_path(one.path, name);
    stream = fopen(file, "r+");
    ck_assert_ptr_nonnull(stream);
    ck_assert_int_eq(fseek(stream, 100, SEEK_SET), 0);
    byte = getc(stream);
    ck_assert_int_eq(fseek(stream, 100, SEEK_SET), 0);
    putc(byte ^ 1, stream);
    fclose(stream);
    check_status(tamis_verify(one.db, NULL, NULL, &one.err), TAMIS_CORRUPT, one.err);
    ck_assert_msg(strstr(one.err.message, name) != NULL, "%s", one.err.message);
    ck_assert_msg(strstr(one.err.message, "expected") != NULL, "%s", one.err.message);
    ck_assert_msg(strstr(one.err.message, "found") != NULL, "%s", one.err.message);
    ck_assert_int_eq(tamis_verify(one.db, NULL, NULL, NULL), TAMIS_CORRUPT);
    free(file);
}
END_TEST

/* ---- Inspection ----------------------------------------------------------------------------------- */

struct text {
    char *bytes;
    size_t length;
    unsigned piece_count_max; // stop here
    unsigned piece_count;
};

static bool
take_text(void *arg, const char *piece, size_t length)
{
    struct text *text = arg;

    text->bytes = realloc(text->bytes, text->length + length + 1);
    ck_assert_ptr_nonnull(text->bytes);
    memcpy(text->bytes + text->length, piece, length);
    text->length += length;
    text->bytes[text->length] = '\0';
    return ++text->piece_count != text->piece_count_max;
}

/* The text of a file of the store; free() it. */
static char *
inspect(const char *name, bool entries)
{
    char *file = temp_dir_path(one.path, name);
    struct text text = {0};
    struct text again = {0};

    check_ok(tamis_inspect(file, entries, take_text, &text, NULL, &one.err), one.err);
    check_ok(tamis_inspect(file, entries, take_text, &again, NULL, &one.err), one.err);
    ck_assert_uint_gt(text.length, 0);
    ck_assert_int_eq(text.bytes[text.length - 1], '\n');
    ck_assert_str_eq(text.bytes, again.bytes); // nothing that changes by itself
    for (size_t i = 0; i < text.length; i++)
        ck_assert(text.bytes[i] == '\n' || text.bytes[i] == '\t' ||
                  (text.bytes[i] >= ' ' && text.bytes[i] <= '~'));
    free(again.bytes);
    free(file);
    return text.bytes;
}

static tamis_status
try_inspect(const char *name)
{
    char *file = temp_dir_path(one.path, name);
    struct text text = {0};
    tamis_status status = tamis_inspect(file, true, take_text, &text, NULL, &one.err);

    ck_assert_uint_eq(text.length, 0);
    free(file);
    return status;
}

static unsigned
count_in(const char *text, const char *what)
{
    unsigned count = 0;

    for (; (text = strstr(text, what)) != NULL; text += strlen(what))
        count++;
    return count;
}

START_TEST(every_kind_of_file_can_be_inspected_while_the_store_is_open)
{
    struct one_listing before;
    struct one_listing after;
    DIR *directory;
    struct dirent *entry;
    unsigned seen[4] = {0};

    make_layers();
    before = one_list(one.path);
    directory = opendir(one.path);
    ck_assert_ptr_nonnull(directory);
    while ((entry = readdir(directory)) != NULL) {
        const char *name = entry->d_name;
        bool ours = one_ends_with(name, ".sst") || one_ends_with(name, ".wal") ||
                    strncmp(name, "MANIFEST-", 9) == 0 || strcmp(name, "CURRENT") == 0;

        if (!ours)
            continue;
        seen[one_ends_with(name, ".sst")   ? 0
             : one_ends_with(name, ".wal") ? 1
             : name[0] == 'M'              ? 2
                                           : 3]++;
        free(inspect(name, false));
        free(inspect(name, true));
    }
    closedir(directory);
    for (int kind = 0; kind < 4; kind++)
        ck_assert_uint_ge(seen[kind], 1);
    after = one_list(one.path);
    ck_assert_uint_eq(before.digest, after.digest); // read-only
    ck_assert_int_eq(one_version(0), 9);
}
END_TEST

START_TEST(what_is_no_file_of_a_store_is_not_inspected)
{
    ck_assert_int_eq(try_inspect("LOCK"), TAMIS_INVALID);
    ck_assert_int_eq(try_inspect("notes.txt"), TAMIS_INVALID);
    ck_assert_int_eq(try_inspect("1.sst"), TAMIS_INVALID);
    ck_assert_int_eq(try_inspect(""), TAMIS_INVALID);
    ck_assert_int_eq(try_inspect("999999.sst"), TAMIS_NOT_FOUND);
    ck_assert_int_eq(try_inspect("999999.wal"), TAMIS_NOT_FOUND);
    ck_assert_int_eq(try_inspect("MANIFEST-999999"), TAMIS_NOT_FOUND);
    ck_assert_int_eq(try_inspect("missing/CURRENT"), TAMIS_NOT_FOUND);
    ck_assert_int_eq(try_inspect("../CURRENT"), TAMIS_NOT_FOUND);
    check_status(tamis_inspect(NULL, true, take_text, NULL, NULL, &one.err), TAMIS_INVALID,
                 one.err);
    check_status(tamis_inspect(one.path, true, NULL, NULL, NULL, &one.err), TAMIS_INVALID, one.err);
}
END_TEST

/* Bytes written as inspection writes them, up to `end`; returns their number. */
static size_t
unescape(const char *text, const char *end, uint8_t *bytes)
{
    size_t length = 0;

    while (text < end) {
        unsigned byte = 0;

        if (text[0] != '\\') {
            bytes[length++] = (uint8_t)*text++;
        } else if (text[1] == '\\') {
            bytes[length++] = '\\';
            text += 2;
        } else {
            ck_assert_int_eq(sscanf(text, "\\x%2x", &byte), 1);
            bytes[length++] = (uint8_t)byte;
            text += 4;
        }
    }
    return length;
}

/* Each line of an entry, read back, gives the key and the value that a walk over the store gives. */
static void
expect_entries(const char *text)
{
    static uint8_t bytes[1 << 16];
    tamis_iter *iter = NULL;
    unsigned count = 0;

    check_ok(tamis_iter_open(one.db, NULL, &iter, &one.err), one.err);
    tamis_iter_first(iter);
    for (const char *line = text; *line != '\0';) {
        const char *end = strchr(line, '\n');
        const char *put = strstr(line, " put ");

        if (line[0] == ' ' && put != NULL && put < end) {
            const char *middle = strchr(put, '\t');
            size_t length;

            ck_assert(tamis_iter_valid(iter));
            ck_assert(middle != NULL && middle < end);
            length = unescape(put + 5, middle, bytes);
            ck_assert(tm_slice_equal(tamis_iter_key(iter), tm_slice(bytes, length)));
            length = unescape(middle + 1, end, bytes);
            ck_assert(tm_slice_equal(tamis_iter_value(iter), tm_slice(bytes, length)));
            tamis_iter_next(iter);
            count++;
        }
        line = end + 1;
    }
    ck_assert(!tamis_iter_valid(iter));
    tamis_iter_close(iter);
    ck_assert_uint_eq(count, 256 + 4);
}

START_TEST(entries_are_shown_one_a_line_and_without_loss)
{
    static const char *const odd[] = {"", "back\\slash = \"quoted\"", "\x1b[31mred",
                                      "d\xc3\xa4t\xc3\xa4\n\t"};
    tamis_table_stats table = {0};
    struct rng rng = rng_from(40);
    char name[32];
    char *text;

    for (unsigned byte = 0; byte < 256; byte++) {
        const uint8_t key[] = {'k', (uint8_t)byte, 0, (uint8_t)byte};
        uint8_t value[200];

        rng_fill(&rng, value, sizeof value);
        one_put(tm_slice(key, sizeof key), tm_slice(value, byte % 200));
    }
    for (size_t i = 0; i < 4; i++)
        one_put(tamis_text(odd[i]), tamis_text(odd[3 - i]));
    one_flush();
    check_ok(tamis_visit_tables(one.db, take_table, &table, &one.err), one.err);
    snprintf(name, sizeof name, "%06llu.sst", (unsigned long long)table.number);
    text = inspect(name, true);
    expect_entries(text);
    ck_assert_uint_eq(count_in(text, "\n  "), 256 + 4);
    free(text);
    text = inspect(name, false);
    ck_assert_uint_eq(count_in(text, "\n  "), 0);
    ck_assert_uint_eq(count_in(text, "\nkeys 260\n"), 1);
    free(text);
}
END_TEST

START_TEST(a_log_shows_each_batch_and_its_operations)
{
    tamis_batch *batch = NULL;
    char name[32] = "";
    DIR *directory;
    struct dirent *entry;
    char *text;

    check_ok(tamis_batch_create(NULL, &batch, &one.err), one.err);
    check_ok(tamis_batch_put(batch, tamis_text("a\nb"), tamis_text("\x01"), &one.err), one.err);
    check_ok(tamis_batch_delete(batch, tamis_text("c"), &one.err), one.err);
    check_ok(tamis_write(one.db, NULL, batch, &one.err), one.err);
    tamis_batch_destroy(batch);
    one_put(tamis_text("d"), tamis_text(""));
    directory = opendir(one.path);
    ck_assert_ptr_nonnull(directory);
    while ((entry = readdir(directory)) != NULL)
        if (one_ends_with(entry->d_name, ".wal"))
            snprintf(name, sizeof name, "%.20s", entry->d_name);
    closedir(directory);
    text = inspect(name, true);
    ck_assert_ptr_nonnull(strstr(text, "  1 put a\\x0ab\t\\x01\n  2 delete c\n"));
    ck_assert_ptr_nonnull(strstr(text, "  3 put d\t\n"));
    free(text);
    text = inspect(name, false);
    ck_assert_uint_eq(count_in(text, ": batch, "), 2);
    ck_assert_ptr_null(strstr(text, "put"));
    free(text);
}
END_TEST

/* A file of one record. */
static void
write_record(const char *name, tamis_file_kind kind, uint64_t number, tamis_slice record)
{
    const tamis_fs *fs = tamis_fs_posix();
    struct tm_env env = {tm_allocator_default(), fs, tm_runtime_posix(), {0}};
    struct tm_record_writer writer;
    tamis_dir *dir;
    tamis_file *file;
    bool created;

    check_ok(fs->open_dir(fs->ctx, one.path, false, &created, &dir, &one.err), one.err);
    check_ok(fs->create(fs->ctx, dir, name, kind, &file, &one.err), one.err);
    check_ok(tm_record_writer_init(&writer, &env, file, number, &one.err), one.err);
    check_ok(tm_record_add(&writer, &record, 1, &one.err), one.err);
    check_ok(tm_record_flush(&writer, &one.err), one.err);
    tm_record_writer_deinit(&writer);
    check_ok(fs->close(fs->ctx, file, &one.err), one.err);
    fs->close_dir(fs->ctx, dir);
}

START_TEST(a_record_that_is_sound_but_says_nothing_we_know_is_damage)
{
    uint8_t batch[TM_WAL_BATCH_HEADER_BYTES + 1];
    tamis_slice records[] = {{"\x09", 1}, {"\x01", 1}, {batch, sizeof batch}, {"\xff\xff", 2}};
    tamis_status expected[] = {TAMIS_UNSUPPORTED, TAMIS_CORRUPT, TAMIS_CORRUPT, TAMIS_CORRUPT};

    tm_wal_encode_batch_header(batch, 1, 1);
    batch[TM_WAL_BATCH_HEADER_BYTES] = 0xff; // no operation
    for (int i = 0; i < 4; i++) {
        const char *name = i < 3 ? "900001.wal" : "MANIFEST-900001";
        char *file = temp_dir_path(one.path, name);
        struct text text = {0};

        write_record(name, i < 3 ? TAMIS_FILE_LOG : TAMIS_FILE_MANIFEST, 900001, records[i]);
        check_status(tamis_inspect(file, true, take_text, &text, NULL, &one.err), expected[i],
                     one.err);
        ck_assert_ptr_nonnull(strstr(one.err.message, name));
        ck_assert_ptr_nonnull(strstr(one.err.message, "offset 0"));
        ck_assert_ptr_nonnull(strstr(text.bytes, "record 0: "));
        ck_assert_int_eq(unlink(file), 0);
        free(text.bytes);
        free(file);
    }
}
END_TEST

START_TEST(a_sink_that_has_enough_is_left_alone)
{
    char *file = temp_dir_path(one.path, "CURRENT");
    struct text text = {.piece_count_max = 1};
    tamis_table_stats table = {0};
    char name[32];

    check_ok(tamis_inspect(file, true, take_text, &text, NULL, &one.err), one.err);
    free(file);
    make_layers();
    check_ok(tamis_visit_tables(one.db, take_table, &table, &one.err), one.err);
    snprintf(name, sizeof name, "%06llu.sst", (unsigned long long)table.number);
    file = temp_dir_path(one.path, name);
    for (unsigned most = 1; most < 40; most++) {
        free(text.bytes);
        text = (struct text){.piece_count_max = most};
        check_ok(tamis_inspect(file, true, take_text, &text, NULL, &one.err), one.err);
        ck_assert_uint_eq(text.piece_count, most);
    }
    free(text.bytes);
    free(file);
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("seeing_inside");
    TCase *tests = tcase_create("seeing_inside");

    tcase_set_timeout(tests, 0);
    tcase_add_checked_fixture(tests, one_store_begin, one_store_end);
    tcase_add_test(tests, counters_of_lookups_add_up);
    tcase_add_test(tests, keys_are_counted_once_and_versions_each);
    tcase_add_test(tests, bytes_written_are_those_of_the_files);
    tcase_add_test(tests, statistics_can_be_taken_while_the_store_is_written);
    tcase_add_test(tests, tables_are_visited_in_the_order_in_which_they_are_asked);
    tcase_add_test(tests, verification_reads_all_and_tells_how_far_it_is);
    tcase_add_test(tests, verification_names_the_file_and_the_place_of_damage);
    tcase_add_test(tests, every_kind_of_file_can_be_inspected_while_the_store_is_open);
    tcase_add_test(tests, what_is_no_file_of_a_store_is_not_inspected);
    tcase_add_test(tests, entries_are_shown_one_a_line_and_without_loss);
    tcase_add_test(tests, a_log_shows_each_batch_and_its_operations);
    tcase_add_test(tests, a_record_that_is_sound_but_says_nothing_we_know_is_damage);
    tcase_add_test(tests, a_sink_that_has_enough_is_left_alone);
    suite_add_tcase(suite, tests);
    return check_run(suite);
}
