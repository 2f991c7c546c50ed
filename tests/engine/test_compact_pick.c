/* SPDX-License-Identifier: MIT
 *
 * tests/engine/test_compact_pick.c -- the picker: cases as text, and a store of numbers that lives by its choices.
 *
 * The simulated store keeps the entries of each table in memory and merges them for real; several jobs run at once and
 * end in any order. So every rule of the picker is checked by what it is for: no version sinks below an
 * older one, tables of a level stay apart, work ends, and a range leaves nothing behind.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/compact_pick.h"
#include "tests/support/check_status.h"
#include "tests/support/fault_alloc.h"
#include "tests/support/rng.h"

static tamis_error err;
static struct fault_alloc fault;
static struct tm_env env;

static void
set_up(void)
{
    fault_alloc_init(&fault);
    memset(&env, 0, sizeof env);
    env.allocator = fault_alloc_allocator(&fault);
}

static void
tear_down(void)
{
    ck_assert_uint_eq(atomic_load(&fault.live_count), 0);
}

static void
set_key(uint8_t **key, uint32_t *length, const char *text, size_t text_length)
{
    *length = (uint32_t)text_length;
    *key = tm_alloc(&env, text_length);
    memcpy(*key, text, text_length);
}

static struct tm_file *
make_file(uint64_t number, tamis_slice smallest, tamis_slice largest)
{
    struct tm_file *file = tm_alloc_zeroed(&env, sizeof *file);

    file->number = number;
    set_key(&file->facts.smallest, &file->facts.smallest_length, smallest.data, smallest.length);
    set_key(&file->facts.largest, &file->facts.largest_length, largest.data, largest.length);
    return file;
}

static void
unref_version(struct tm_version *version)
{
    struct tm_file *trash = NULL;

    tm_version_unref(&env, version, &trash);
    while (trash != NULL) {
        struct tm_file *next = trash->trash_next;
        tm_file_destroy(&env, trash);
        trash = next;
    }
}

/* Replace *version by the one after it. */
static void
change_version(struct tm_version **version, struct tm_file *const *removed, size_t removed_count,
               const struct tm_file_add *added, size_t added_count)
{
    struct tm_version *next;

    if (tm_version_create(&env, *version, removed, removed_count, added, added_count, &next,
                          &err) != TAMIS_OK)
        ck_abort_msg("%s", err.message);
    if (*version != NULL)
        unref_version(*version);
    *version = next;
}

/* ---- Cases as text -------------------------------------------------------------------------------- */

static const struct tm_compact_policy case_policy = {
    .level0_file_count_trigger = 4,
    .level0_file_count_slow = 8,
    .level_base_bytes = 100,
    .level_ratio = 10,
    .table_bytes = 10,
};

enum { SCRIPT_RUNNING_MAX = 4, SCRIPT_OLDEST_SNAPSHOT = 50 };

struct script {
    struct tm_version *version;
    struct tm_compact_job running[SCRIPT_RUNNING_MAX];
    char running_keys[SCRIPT_RUNNING_MAX][2][8];
    size_t running_count;
    int line_number;
    size_t expectation_count;
};

static void
script_reset(struct script *script)
{
    if (script->version != NULL)
        unref_version(script->version);
    script->version = NULL;
    script->running_count = 0;
    change_version(&script->version, NULL, 0, NULL, 0);
}

/* INPUT>OUTPUT FROM TO */
static void
script_running(struct script *script, const char *arguments)
{
    size_t index = script->running_count++;
    struct tm_compact_job *job = &script->running[index];
    char(*keys)[8] = script->running_keys[index];

    ck_assert_uint_lt(index, SCRIPT_RUNNING_MAX);
    memset(job, 0, sizeof *job);
    if (sscanf(arguments, "%u>%u %7s %7s", &job->input_level, &job->output_level, keys[0],
               keys[1]) != 4)
        ck_abort_msg("line %d: no running job: %s", script->line_number, arguments);
    job->from = tm_slice(keys[0], strlen(keys[0]));
    job->to = tm_slice(keys[1], strlen(keys[1]));
    job->next_running = index > 0 ? job - 1 : NULL;
}

/* The newest; the others follow. */
static const struct tm_compact_job *
script_running_jobs(const struct script *script)
{
    return script->running_count > 0 ? &script->running[script->running_count - 1] : NULL;
}

/* NUMBER[SMALLEST..LARGEST]BYTES and flags. */
static void
script_file(struct script *script, uint32_t level, const char *word)
{
    char smallest[32];
    char largest[32];
    unsigned long long number;
    int used = 0;
    struct tm_file_add add = {.level = level};
    const char *rest;

    if (sscanf(word, "%llu[%31[^.]..%31[^]]]%n", &number, smallest, largest, &used) != 3 ||
        used == 0)
        ck_abort_msg("line %d: no file: %s", script->line_number, word);
    add.file =
        make_file(number, tm_slice(smallest, strlen(smallest)), tm_slice(largest, strlen(largest)));
    rest = word + used;
    add.file->facts.file_bytes = 10;
    if (*rest >= '0' && *rest <= '9')
        add.file->facts.file_bytes = strtoull(rest, (char **)&rest, 10);
    add.file->facts.entry_count = 10;
    add.file->facts.key_count = 10;
    for (; *rest != 0; rest++) {
        if (*rest == 't')
            add.file->facts.tombstone_count = 1;
        else if (*rest == 'd')
            add.file->facts.tombstone_count = 6;
        else if (*rest == 'v')
            add.file->facts.key_count = 9;
        else if (*rest == 's')
            add.file->facts.sequence_max = SCRIPT_OLDEST_SNAPSHOT + 1;
        else if (*rest == '*')
            add.file->compacting = true;
        else
            ck_abort_msg("line %d: unknown flag %c", script->line_number, *rest);
    }
    change_version(&script->version, NULL, 0, &add, 1);
}

static void
describe_job(const struct tm_compact_job *job, char *text, size_t size)
{
    size_t length = (size_t)snprintf(text, size, "%u>%u:", job->input_level, job->output_level);

    for (size_t i = 0; i < job->input_count; i++)
        length +=
            (size_t)snprintf(text + length, size - length, " %d", (int)job->inputs[i]->number);
    if (job->overlap_count > 0)
        length += (size_t)snprintf(text + length, size - length, " +");
    for (size_t i = 0; i < job->overlap_count; i++)
        length +=
            (size_t)snprintf(text + length, size - length, " %d", (int)job->overlaps[i]->number);
    if (job->move)
        snprintf(text + length, size - length, " move");
}

static void
script_pick(struct script *script, char *got, size_t size)
{
    struct tm_compact_job job;
    bool found;

    check_ok(tm_compact_pick(&env, script->version, &case_policy, script_running_jobs(script),
                             SCRIPT_OLDEST_SNAPSHOT, &job, &found, &err),
             err);
    snprintf(got, size, "none");
    if (!found)
        return;
    describe_job(&job, got, size);
    tm_compact_job_release(&env, &job);
}

static const tamis_slice *
script_bound(const char *word, tamis_slice *slice)
{
    if (strcmp(word, "-") == 0)
        return NULL;
    *slice = tm_slice(word, strcmp(word, "[]") == 0 ? 0 : strlen(word));
    return slice;
}

static void
script_range(struct script *script, const char *arguments, char *got, size_t size)
{
    char from_word[32];
    char to_word[32];
    tamis_slice from;
    tamis_slice to;
    unsigned level;
    uint32_t next;
    bool found;
    bool blocked;
    struct tm_compact_job job;
    size_t length;

    if (sscanf(arguments, "%31s %31s %u", from_word, to_word, &level) != 3)
        ck_abort_msg("line %d: no range: %s", script->line_number, arguments);
    check_ok(tm_compact_pick_range(&env, script->version, script_running_jobs(script),
                                   script_bound(from_word, &from), script_bound(to_word, &to),
                                   level, &next, &job, &found, &blocked, &err),
             err);
    ck_assert(!found || !blocked);
    snprintf(got, size, "%s", blocked ? "blocked" : "none");
    if (found) {
        describe_job(&job, got, size);
        tm_compact_job_release(&env, &job);
    }
    length = strlen(got);
    snprintf(got + length, size - length, " | next %u", next);
}

static void
script_line(struct script *script, char *line)
{
    char *arrow = strstr(line, " -> ");
    char got[200];

    if (line[0] == 0 || line[0] == '#')
        return;
    if (strncmp(line, "case ", 5) == 0) {
        script_reset(script);
        return;
    }
    if (line[0] >= '0' && line[0] <= '6' && line[1] == ':') {
        for (char *word = strtok(line + 2, " "); word != NULL; word = strtok(NULL, " "))
            script_file(script, (uint32_t)(line[0] - '0'), word);
        return;
    }
    if (strncmp(line, "running ", 8) == 0) {
        script_running(script, line + 8);
        return;
    }
    if (arrow == NULL)
        ck_abort_msg("line %d: not understood: %s", script->line_number, line);
    *arrow = 0;
    if (strncmp(line, "pressure", 8) == 0)
        snprintf(got, sizeof got, "%u", tm_compact_pressure(script->version, &case_policy));
    else if (strncmp(line, "range ", 6) == 0)
        script_range(script, line + 6, got, sizeof got);
    else
        script_pick(script, got, sizeof got);
    if (strcmp(got, arrow + 4) != 0)
        ck_abort_msg("line %d: %s gives \"%s\", expected \"%s\"", script->line_number, line, got,
                     arrow + 4);
    script->expectation_count++;
}

START_TEST(every_case_gives_the_job_that_its_text_says)
{
    struct script script = {0};
    char line[300];
    FILE *file = fopen(TAMIS_SOURCE_DIR "/tests/engine/compact_pick_cases.txt", "r");

    ck_assert_ptr_nonnull(file);
    while (fgets(line, sizeof line, file) != NULL) {
        script.line_number++;
        line[strcspn(line, "\n")] = 0;
        script_line(&script, line);
    }
    fclose(file);
    unref_version(script.version);
    ck_assert_uint_ge(script.expectation_count, 60); // the file was read to its end
}
END_TEST

/* ---- Small ones ----------------------------------------------------------------------------------- */

START_TEST(scores_are_files_or_bytes_against_their_targets)
{
    struct script script = {0};

    script_reset(&script);
    for (uint32_t level = 0; level < TAMIS_LEVEL_COUNT; level++)
        ck_assert(tm_compact_score(script.version, &case_policy, level) == 0);
    script_file(&script, 0, "1[a..b]1000");
    script_file(&script, 0, "2[a..b]1000*"); // running or not: it is there
    script_file(&script, 1, "3[a..b]150");
    ck_assert(tm_compact_score(script.version, &case_policy, 0) == 0.5);
    ck_assert(tm_compact_score(script.version, &case_policy, 1) == 1.5); // the bottom: 100
    script_file(&script, 3, "4[a..b]5000");
    ck_assert(tm_compact_score(script.version, &case_policy, 1) == 3.0); // a hundredth of 5000
    ck_assert(tm_compact_score(script.version, &case_policy, 2) == 0);
    ck_assert(tm_compact_score(script.version, &case_policy, 3) == 0.5); // the bottom: 10000
    script_file(&script, 6, "5[a..b]5000000000");
    ck_assert(tm_compact_score(script.version, &case_policy, 1) == 0.003);
    ck_assert(tm_compact_score(script.version, &case_policy, 3) == 0.001);
    ck_assert(tm_compact_score(script.version, &case_policy, 6) == 0); // nowhere to go
    unref_version(script.version);
}
END_TEST

START_TEST(tombstones_may_go_only_where_no_deeper_range_holds_the_key)
{
    struct script script = {0};
    struct tm_compact_job job = {.input_level = 1, .output_level = 2};

    script_reset(&script);
    script_file(&script, 1, "1[a..z]");
    script_file(&script, 2, "2[a..z]");
    script_file(&script, 3, "3[d..f]");
    script_file(&script, 6, "4[m..m]");
    ck_assert(tm_compact_is_base(script.version, &job, tm_slice("c", 1)));
    ck_assert(!tm_compact_is_base(script.version, &job, tm_slice("d", 1)));
    ck_assert(!tm_compact_is_base(script.version, &job,
                                  tm_slice("e", 1))); // within the range, if not there
    ck_assert(tm_compact_is_base(script.version, &job, tm_slice("fa", 2)));
    ck_assert(!tm_compact_is_base(script.version, &job, tm_slice("m", 1)));
    job.input_level = job.output_level = 6;
    ck_assert(tm_compact_is_base(script.version, &job, tm_slice("m", 1)));
    unref_version(script.version);
}
END_TEST

START_TEST(without_memory_there_is_no_job_and_no_progress)
{
    struct script script = {0};
    struct tm_compact_job job;
    bool found = true;
    bool blocked = true;
    uint32_t level = 77;

    script_reset(&script);
    script_file(&script, 1, "1[a..b]100");
    script_file(&script, 2, "2[c..d]100");
    fault_alloc_fail_after(&fault, 1, true);
    check_status(tm_compact_pick(&env, script.version, &case_policy, NULL, 0, &job, &found, &err),
                 TAMIS_NO_MEMORY, err);
    ck_assert(!found);
    check_status(tm_compact_pick_range(&env, script.version, NULL, NULL, NULL, 0, &level, &job,
                                       &found, &blocked, &err),
                 TAMIS_NO_MEMORY, err);
    ck_assert(!found && !blocked);
    ck_assert_uint_eq(level, 1); // where the job would have begun
    fault_alloc_fail_after(&fault, 0, false);
    check_ok(tm_compact_pick_range(&env, script.version, NULL, NULL, NULL, level, &level, &job,
                                   &found, &blocked, &err),
             err);
    ck_assert(found);
    ck_assert_uint_eq(level, 2);
    tm_compact_job_release(&env, &job);
    ck_assert_ptr_null(job.inputs);
    tm_compact_job_release(&env, &job); // zeroed
    unref_version(script.version);
}
END_TEST

/* ---- A store of numbers --------------------------------------------------------------------------- */

enum { KEY_COUNT = 200, TABLE_MAX = 60000, RUNNING_MAX = 3, ENTRY_BYTES = 10 };

struct item {
    uint32_t key;
    uint64_t sequence;
    bool is_delete;
};

struct items {
    struct item *item;
    size_t count;
};

struct running {
    struct tm_compact_job job;
    struct tm_version *version; // from which it was picked; one reference
    uint64_t snapshot;          // oldest one alive then; UINT64_MAX: none
    bool is_manual;
};

struct manual {
    bool is_active;
    bool is_running; // one of its jobs is
    bool is_exact;   // no snapshot was alive since it began: nothing may be left
    uint32_t from;
    uint32_t to;
    uint32_t level;
    uint32_t job_count;
    uint64_t sequence; // newest entry when it began
};

struct store {
    struct rng rng;
    uint32_t width;    // keys of a narrow flush are so near; one flush in so many is wide
    uint32_t slowness; // a job ends in one of so many chances; meanwhile files arrive beside it
    struct tm_version *version;
    struct items tables[TABLE_MAX]; // by file number
    uint64_t file_number;
    uint64_t sequence;
    struct item newest[KEY_COUNT]; // sequence 0: never written
    uint64_t snapshot;             // UINT64_MAX: none
    struct item snapshot_items[KEY_COUNT];
    struct running running[RUNNING_MAX];
    size_t running_count;
    struct manual manual;
    uint64_t job_count;
    uint64_t blocked_count;
    uint64_t manual_count;
};

static struct store store;

static const struct tm_compact_policy store_policy = {
    .level0_file_count_trigger = 4,
    .level_base_bytes = 60 * ENTRY_BYTES,
    .level_ratio = 3,
    .table_bytes = 8 * ENTRY_BYTES,
};

static tamis_slice
key_text(uint32_t key, char text[8])
{
    return tm_slice(text, (size_t)snprintf(text, 8, "k%03u", key % 1000));
}

static int
compare_items(const void *a_, const void *b_)
{
    const struct item *a = a_;
    const struct item *b = b_;

    if (a->key != b->key)
        return a->key < b->key ? -1 : 1;
    return a->sequence > b->sequence ? -1 : a->sequence < b->sequence;
}

/* A table of sorted items, at least one. */
static struct tm_file *
store_table(const struct item *item, size_t count)
{
    char smallest[8];
    char largest[8];
    uint64_t number = ++store.file_number;
    struct items *items = &store.tables[number];
    struct tm_file *file =
        make_file(number, key_text(item[0].key, smallest), key_text(item[count - 1].key, largest));

    if (number + 1 >= TABLE_MAX)
        ck_abort_msg("more tables than expected: work does not end");
    items->item = malloc(count * sizeof *item);
    memcpy(items->item, item, count * sizeof *item);
    items->count = count;
    file->facts.file_bytes = count * ENTRY_BYTES;
    file->facts.entry_count = count;
    for (size_t i = 0; i < count; i++) {
        file->facts.tombstone_count += item[i].is_delete;
        if (item[i].sequence > file->facts.sequence_max)
            file->facts.sequence_max = item[i].sequence;
        file->facts.key_count += i == 0 || item[i].key != item[i - 1].key;
    }
    return file;
}

/* Write a memtable of random entries out; with `delete_all`, one that deletes every key. */
static void
store_flush(bool delete_all)
{
    struct item item[KEY_COUNT];
    size_t count = delete_all ? KEY_COUNT : 1 + rng_below(&store.rng, 30);
    uint32_t width = rng_chance(&store.rng, 1, store.width)
                         ? KEY_COUNT
                         : 1 + (uint32_t)rng_below(&store.rng, store.width);
    uint32_t start = (uint32_t)rng_below(&store.rng, KEY_COUNT);
    size_t kept_count = 0;
    struct tm_file_add add = {.level = 0};

    for (size_t i = 0; i < count; i++) {
        item[i].key =
            delete_all ? (uint32_t)i : (start + (uint32_t)rng_below(&store.rng, width)) % KEY_COUNT;
        item[i].sequence = ++store.sequence;
        item[i].is_delete = delete_all || rng_chance(&store.rng, 1, 3);
        store.newest[item[i].key] = item[i];
    }
    qsort(item, count, sizeof *item, compare_items);
    for (size_t i = 0; i < count;
         i++) { // of one key the newest: what a flush without snapshots keeps
        if (i == 0 || item[i].key != item[i - 1].key || rng_chance(&store.rng, 1, 8))
            item[kept_count++] = item[i];
    }
    add.file = store_table(item, kept_count);
    change_version(&store.version, NULL, 0, &add, 1);
}

static size_t
job_file_count(const struct tm_compact_job *job)
{
    return job->input_count + job->overlap_count;
}

static struct tm_file *
job_file(const struct tm_compact_job *job, size_t index)
{
    return index < job->input_count ? job->inputs[index] : job->overlaps[index - job->input_count];
}

static void
mark(const struct tm_compact_job *job, bool compacting)
{
    for (size_t i = 0; i < job_file_count(job); i++) {
        if (job_file(job, i)->compacting == compacting)
            ck_abort_msg("table %d is in two running jobs", (int)job_file(job, i)->number);
        job_file(job, i)->compacting = compacting;
    }
}

/* The jobs that run as the picker takes them. */
static const struct tm_compact_job *
running_jobs(void)
{
    for (size_t i = 0; i < store.running_count; i++)
        store.running[i].job.next_running = i > 0 ? &store.running[i - 1].job : NULL;
    return store.running_count > 0 ? &store.running[store.running_count - 1].job : NULL;
}

static void
store_start(const struct tm_compact_job *job, bool is_manual)
{
    struct running *running = &store.running[store.running_count++];

    mark(job, true);
    running->job = *job;
    running->version = store.version;
    running->version->references++;
    running->snapshot = store.snapshot;
    running->is_manual = is_manual;
    store.job_count++;
}

/* What the merge keeps, in order. The caller frees. */
static struct items
merge(const struct running *running)
{
    const struct tm_compact_job *job = &running->job;
    struct items merged = {0};
    size_t kept_count = 0;
    uint64_t newer = UINT64_MAX; // sequence of the next newer version of the key

    for (size_t i = 0; i < job_file_count(job); i++)
        merged.count += store.tables[job_file(job, i)->number].count;
    merged.item = malloc(merged.count * sizeof *merged.item);
    merged.count = 0;
    for (size_t i = 0; i < job_file_count(job); i++) {
        const struct items *table = &store.tables[job_file(job, i)->number];

        memcpy(merged.item + merged.count, table->item, table->count * sizeof *table->item);
        merged.count += table->count;
    }
    qsort(merged.item, merged.count, sizeof *merged.item, compare_items);
    for (size_t i = 0; i < merged.count; i++) {
        struct item item = merged.item[i];
        bool is_shadowed;
        char text[8];

        if (i == 0 || item.key != merged.item[i - 1].key)
            newer = UINT64_MAX;
        is_shadowed = newer != UINT64_MAX && newer <= running->snapshot;
        newer = item.sequence;
        if (is_shadowed || (item.is_delete && item.sequence <= running->snapshot &&
                            tm_compact_is_base(running->version, job, key_text(item.key, text))))
            continue;
        merged.item[kept_count++] = item;
    }
    merged.count = kept_count;
    return merged;
}

/* Cut into tables of random size, never within a key, and put them in the place of the inputs. */
static void
store_install(const struct running *running)
{
    const struct tm_compact_job *job = &running->job;
    struct items merged = merge(running);
    struct tm_file_add *adds = malloc((merged.count + 1) * sizeof *adds);
    struct tm_file **removed;
    size_t add_count = 0;

    for (size_t start = 0; start < merged.count;) {
        size_t end = start + 1 + rng_below(&store.rng, 14);

        while (end < merged.count && merged.item[end].key == merged.item[end - 1].key)
            end++;
        if (end > merged.count)
            end = merged.count;
        adds[add_count].level = job->output_level;
        adds[add_count++].file = store_table(merged.item + start, end - start);
        start = end;
    }
    removed = malloc(job_file_count(job) * sizeof *removed);
    for (size_t i = 0; i < job_file_count(job); i++)
        removed[i] = job_file(job, i);
    // Checks that the tables of the level stay apart.
    change_version(&store.version, removed, job_file_count(job), adds, add_count);
    free(removed);
    free(adds);
    free(merged.item);
}

static void
store_finish(size_t index)
{
    struct running running = store.running[index];
    struct tm_compact_job *job = &running.job;

    store.running[index] = store.running[--store.running_count];
    mark(job, false);
    if (job->move) {
        struct tm_file_add add = {job->output_level, job->inputs[0]};

        ck_assert(job->input_count == 1 && job->overlap_count == 0);
        change_version(&store.version, job->inputs, 1, &add, 1);
    } else {
        store_install(&running);
    }
    if (running.is_manual)
        store.manual.is_running = false;
    tm_compact_job_release(&env, job);
    unref_version(running.version);
}

/* V3, and what a reader sees: walk from the newest place to the oldest. */
static void
store_check(void)
{
    uint64_t oldest[KEY_COUNT];
    bool is_seen[KEY_COUNT] = {false};
    bool is_seen_by_snapshot[KEY_COUNT] = {false};

    memset(oldest, 0xff, sizeof oldest);
    for (uint32_t level = 0; level < TAMIS_LEVEL_COUNT; level++) {
        for (uint32_t i = 0; i < store.version->level[level].file_count; i++) {
            const struct items *table = &store.tables[store.version->level[level].files[i]->number];

            for (size_t j = 0; j < table->count; j++) {
                const struct item *item = &table->item[j];

                if (item->sequence >= oldest[item->key])
                    ck_abort_msg("key %u: %d in level %u lies below an older version", item->key,
                                 (int)item->sequence, level);
                oldest[item->key] = item->sequence;
                if (!is_seen[item->key] && item->sequence != store.newest[item->key].sequence)
                    ck_abort_msg("key %u: an old version is alive again", item->key);
                is_seen[item->key] = true;
                if (store.snapshot == UINT64_MAX || item->sequence > store.snapshot)
                    continue;
                if (!is_seen_by_snapshot[item->key] &&
                    item->sequence != store.snapshot_items[item->key].sequence)
                    ck_abort_msg("key %u: the snapshot sees another version", item->key);
                is_seen_by_snapshot[item->key] = true;
            }
        }
    }
    for (uint32_t key = 0; key < KEY_COUNT; key++) {
        if (!is_seen[key] && store.newest[key].sequence != 0 && !store.newest[key].is_delete)
            ck_abort_msg("key %u is lost", key);
        if (store.snapshot != UINT64_MAX && !is_seen_by_snapshot[key] &&
            store.snapshot_items[key].sequence != 0 && !store.snapshot_items[key].is_delete)
            ck_abort_msg("key %u is lost to the snapshot", key);
    }
}

/* Of the entries in from..to that were there at `sequence`, one a key is left, and no delete. */
static void
store_check_range(uint32_t from, uint32_t to, uint64_t sequence)
{
    uint32_t count[KEY_COUNT] = {0};

    for (uint32_t level = 0; level < TAMIS_LEVEL_COUNT; level++) {
        for (uint32_t i = 0; i < store.version->level[level].file_count; i++) {
            const struct items *table = &store.tables[store.version->level[level].files[i]->number];

            for (size_t j = 0; j < table->count; j++) {
                const struct item *item = &table->item[j];

                if (item->key < from || item->key > to || item->sequence > sequence)
                    continue;
                if (item->is_delete || ++count[item->key] > 1)
                    ck_abort_msg("key %u: %s is left in level %u", item->key,
                                 item->is_delete ? "a delete" : "an old version", level);
            }
        }
    }
}

static bool
store_pick(void)
{
    struct tm_compact_job job;
    bool found;

    if (tm_compact_pick(&env, store.version, &store_policy, running_jobs(),
                        store.snapshot < store.sequence ? store.snapshot : store.sequence, &job,
                        &found, &err) != TAMIS_OK)
        ck_abort_msg("%s", err.message);
    if (found)
        store_start(&job, false);
    return found;
}

static void
manual_begin(uint32_t from, uint32_t to)
{
    struct manual manual = {
        .is_active = true,
        .is_exact = store.snapshot == UINT64_MAX,
        .from = from,
        .to = to,
        .sequence = store.sequence,
    };

    store.manual = manual;
    store.manual_count++;
}

static void
manual_step(void)
{
    struct manual *manual = &store.manual;
    char from_text[8];
    char to_text[8];
    tamis_slice from = key_text(manual->from, from_text);
    tamis_slice to = key_text(manual->to, to_text);
    bool is_whole = manual->from == 0 && manual->to == KEY_COUNT - 1;
    uint32_t level = manual->level;
    struct tm_compact_job job;
    bool found;
    bool blocked;

    if (tm_compact_pick_range(&env, store.version, running_jobs(), is_whole ? NULL : &from,
                              is_whole ? NULL : &to, level, &manual->level, &job, &found, &blocked,
                              &err) != TAMIS_OK)
        ck_abort_msg("%s", err.message);
    if (manual->level < level || (found && manual->level == level))
        ck_abort_msg("a range goes back from level %u to %u", level, manual->level);
    if (found) {
        store_start(&job, true);
        manual->is_running = true;
        if (++manual->job_count > TAMIS_LEVEL_COUNT)
            ck_abort_msg("a range takes more jobs than there are levels");
    } else if (blocked) {
        if (store.running_count == 0)
            ck_abort_msg("a range waits for nobody");
        store.blocked_count++;
    } else {
        if (manual->is_exact)
            store_check_range(manual->from, manual->to, manual->sequence);
        manual->is_active = false;
    }
}

static void
store_snapshot(void)
{
    store.snapshot = store.snapshot == UINT64_MAX ? store.sequence : UINT64_MAX;
    memcpy(store.snapshot_items, store.newest, sizeof store.newest);
    store.manual.is_exact = false;
}

static void
store_step(void)
{
    uint64_t dice = rng_below(&store.rng, 100);

    if (dice < 15) {
        store_flush(false);
    } else if (dice < 17) {
        store_snapshot();
    } else if (dice < 50 && store.running_count < RUNNING_MAX) {
        store_pick();
    } else if (dice < 65 && store.running_count < RUNNING_MAX) {
        if (!store.manual.is_active) {
            uint32_t from = (uint32_t)rng_below(&store.rng, KEY_COUNT);
            uint32_t to = from + (uint32_t)rng_below(&store.rng, KEY_COUNT - from);

            if (rng_chance(&store.rng, 1, 3))
                manual_begin(0, KEY_COUNT - 1);
            else
                manual_begin(from, to);
        } else if (!store.manual.is_running) {
            manual_step();
        }
    } else if (store.running_count > 0 && rng_chance(&store.rng, 1, store.slowness)) {
        store_finish(rng_below(&store.rng, store.running_count));
    }
    store_check();
}

/* Tables of mostly tombstones that every reader sees. */
static size_t
store_count_droppable(void)
{
    size_t count = 0;

    for (uint32_t level = 0; level < TAMIS_LEVEL_COUNT; level++)
        for (uint32_t i = 0; i < store.version->level[level].file_count; i++) {
            const struct tm_table_facts *facts = &store.version->level[level].files[i]->facts;

            count += facts->tombstone_count > facts->entry_count / 2 &&
                     facts->sequence_max <= store.snapshot;
        }
    return count;
}

/* Run what is due until nothing is; every job takes entries down a level, or drops some in place (K3). */
static void
store_settle(void)
{
    uint64_t entry_count = 0;
    uint64_t job_count;

    while (store.running_count > 0)
        store_finish(0);
    for (uint32_t level = 0; level < TAMIS_LEVEL_COUNT; level++)
        entry_count += store.version->level[level].file_bytes / ENTRY_BYTES;
    job_count = store.job_count;
    while (store_pick()) {
        store_finish(0);
        store_check();
    }
    ck_assert_uint_le(store.job_count - job_count, entry_count * TAMIS_LEVEL_COUNT);
    ck_assert_uint_eq(store_count_droppable(), 0);
    for (uint32_t level = 0; level < TAMIS_LEVEL_COUNT; level++)
        ck_assert(tm_compact_score(store.version, &store_policy, level) < 1);
}

static void
store_compact_all(void)
{
    manual_begin(0, KEY_COUNT - 1);
    while (store.manual.is_active) {
        manual_step();
        while (store.running_count > 0)
            store_finish(0);
        store_check();
    }
}

static size_t
store_file_count(void)
{
    size_t count = 0;

    for (uint32_t level = 0; level < TAMIS_LEVEL_COUNT; level++)
        count += store.version->level[level].file_count;
    return count;
}

START_TEST(a_store_that_lives_by_the_picker_keeps_every_promise)
{
    uint64_t seed = rng_seed("a_store_that_lives_by_the_picker_keeps_every_promise", 9);
    uint64_t blocked_count = 0;

    for (uint64_t life = 0; life < 100; life++) {
        memset(&store, 0, sizeof store);
        store.rng = rng_from(seed + life);
        store.width = life % 3 == 0 ? 25 : 4;
        store.slowness = life % 2 == 0 ? 1 : 12;
        store.snapshot = UINT64_MAX;
        change_version(&store.version, NULL, 0, NULL, 0);
        for (int step = 0; step < 2500; step++)
            store_step();
        store_settle();
        store.snapshot = UINT64_MAX;
        store_compact_all();
        ck_assert(store.manual.is_exact); // so it was checked that one version a key is left
        store_flush(true);
        store_compact_all();
        ck_assert_uint_eq(store_file_count(), 0);
        ck_assert_uint_gt(store.manual_count, 2); // the two at the end, and others while jobs ran
        blocked_count += store.blocked_count;
        unref_version(store.version);
        for (uint64_t i = 0; i <= store.file_number; i++)
            free(store.tables[i].item);
    }
    ck_assert_uint_gt(blocked_count, 0);
}
END_TEST

/* A snapshot keeps deletes and old versions: a range that cannot drop them must end all the same. */
START_TEST(a_range_ends_though_a_snapshot_keeps_everything)
{
    uint64_t seed = rng_seed("a_range_ends_though_a_snapshot_keeps_everything", 10);

    memset(&store, 0, sizeof store);
    store.rng = rng_from(seed);
    store.width = 20;
    store.snapshot = UINT64_MAX;
    change_version(&store.version, NULL, 0, NULL, 0);
    for (int i = 0; i < 20; i++)
        store_flush(false);
    store_snapshot();
    store_flush(true);
    store_compact_all();
    store_compact_all();
    ck_assert_uint_gt(store_file_count(), 0);
    store_check();
    store.snapshot = UINT64_MAX;
    store_compact_all();
    ck_assert_uint_eq(store_file_count(), 0);
    unref_version(store.version);
    for (uint64_t i = 0; i <= store.file_number; i++)
        free(store.tables[i].item);
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("compact_pick");
    TCase *tests = tcase_create("compact_pick");

    tcase_set_timeout(tests, 0);
    tcase_add_checked_fixture(tests, set_up, tear_down);
    tcase_add_test(tests, every_case_gives_the_job_that_its_text_says);
    tcase_add_test(tests, scores_are_files_or_bytes_against_their_targets);
    tcase_add_test(tests, tombstones_may_go_only_where_no_deeper_range_holds_the_key);
    tcase_add_test(tests, without_memory_there_is_no_job_and_no_progress);
    tcase_add_test(tests, a_store_that_lives_by_the_picker_keeps_every_promise);
    tcase_add_test(tests, a_range_ends_though_a_snapshot_keeps_everything);
    suite_add_tcase(suite, tests);
    return check_run(suite);
}
