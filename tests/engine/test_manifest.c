/* SPDX-License-Identifier: MIT
 *
 * tests/engine/test_manifest.c -- edits as bytes, manifests as files, CURRENT; what is not understood changes nothing.
 */
#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "engine/manifest.h"
#include "engine/names.h"
#include "filter/bytes.h"
#include "tests/engine/store_oracle.h"

enum {
    MANIFEST = 5,
    LONG_KEY = 1 << 20,
    EDITS = 12,
    ROLL_BYTES = 70000, // a snapshot of a few tables and 64 KiB more make a manifest long
};

static struct world *world;
static tamis_dir *dir;
static tamis_error err;
static struct tm_buf record; // of the last encoded edit

static void
set_up(void)
{
    bool created;

    world = world_create(1, WORLD_BATON);
    check_ok(world->env.fs->open_dir(world->env.fs->ctx, ORACLE_DIR, true, &created, &dir, &err),
             err);
}

static void
tear_down(void)
{
    tm_buf_release(&world->env, &record);
    if (dir != NULL)
        world->env.fs->close_dir(world->env.fs->ctx, dir);
    dir = NULL;
    world_destroy(world);
}

/* ---- Edits ---------------------------------------------------------------------------------------- */

/* Facts with every field different; keys borrowed. */
static struct tm_edit_file
make_added(uint32_t level, uint64_t number, tamis_slice smallest, tamis_slice largest)
{
    struct tm_edit_file file = {.level = level, .number = number};

    file.facts = (struct tm_table_facts){
        .file_bytes = number * 1000,
        .unique_id = 0x1122334455667788u + number,
        .data_id = 0x99aabbccddeeff00u + number,
        .checksum = UINT64_MAX - number,
        .entry_count = 300 + number,
        .key_count = 200 + number,
        .tombstone_count = 100 + number,
        .sequence_min = number,
        .sequence_max = number + (UINT64_C(1) << 55),
        .raw_bytes = UINT64_C(1) << 40,
        .filter_bytes = 77 + number,
        .smallest = (uint8_t *)(uintptr_t)smallest.data,
        .largest = (uint8_t *)(uintptr_t)largest.data,
        .smallest_length = (uint32_t)smallest.length,
        .largest_length = (uint32_t)largest.length,
    };
    return file;
}

static void
check_added(const struct tm_edit_file *a, const struct tm_edit_file *b)
{
    const struct tm_table_facts *x = &a->facts;
    const struct tm_table_facts *y = &b->facts;

    ck_assert_uint_eq(a->level, b->level);
    ck_assert_uint_eq(a->number, b->number);
    ck_assert_uint_eq(x->file_bytes, y->file_bytes);
    ck_assert_uint_eq(x->unique_id, y->unique_id);
    ck_assert_uint_eq(x->data_id, y->data_id);
    ck_assert_uint_eq(x->checksum, y->checksum);
    ck_assert_uint_eq(x->entry_count, y->entry_count);
    ck_assert_uint_eq(x->key_count, y->key_count);
    ck_assert_uint_eq(x->tombstone_count, y->tombstone_count);
    ck_assert_uint_eq(x->sequence_min, y->sequence_min);
    ck_assert_uint_eq(x->sequence_max, y->sequence_max);
    ck_assert_uint_eq(x->raw_bytes, y->raw_bytes);
    ck_assert_uint_eq(x->filter_bytes, y->filter_bytes);
    ck_assert(tm_slice_equal(tm_slice(x->smallest, x->smallest_length),
                             tm_slice(y->smallest, y->smallest_length)));
    ck_assert(tm_slice_equal(tm_slice(x->largest, x->largest_length),
                             tm_slice(y->largest, y->largest_length)));
}

static tamis_slice
encode(const struct tm_edit *edit)
{
    record.length = 0;
    check_ok(tm_edit_encode(&world->env, edit, &record, &err), err);
    return tm_slice(record.data, record.length);
}

static void
check_round_trip(const struct tm_edit *edit)
{
    struct tm_edit decoded;
    const char *wrong = NULL;
    tamis_status status = tm_edit_decode(&world->env, encode(edit), &decoded, &wrong);

    ck_assert_msg(status == TAMIS_OK, "%s: %s", tamis_status_name(status), wrong);
    ck_assert_int_eq(decoded.is_snapshot, edit->is_snapshot);
    ck_assert_uint_eq(decoded.hash_seed, edit->is_snapshot ? edit->hash_seed : 0);
    ck_assert_uint_eq(decoded.next_file_number, edit->next_file_number);
    ck_assert_uint_eq(decoded.last_sequence, edit->last_sequence);
    ck_assert_int_eq(decoded.has_log_number, edit->has_log_number);
    ck_assert_uint_eq(decoded.log_number, edit->log_number);
    ck_assert_uint_eq(decoded.log_end_number, edit->log_end_number);
    ck_assert_uint_eq(decoded.log_end_bytes, edit->log_end_bytes);
    ck_assert_uint_eq(decoded.added_count, edit->added_count);
    ck_assert_uint_eq(decoded.removed_count, edit->removed_count);
    for (size_t i = 0; i < edit->added_count; i++)
        check_added(&decoded.added[i], &edit->added[i]);
    for (size_t i = 0; i < edit->removed_count; i++) {
        ck_assert_uint_eq(decoded.removed[i].level, edit->removed[i].level);
        ck_assert_uint_eq(decoded.removed[i].number, edit->removed[i].number);
    }
    tm_edit_release(&world->env, &decoded);
}

/* An edit with everything; the arrays are static. */
static struct tm_edit
full_edit(void)
{
    static struct tm_edit_file added[2];
    static struct tm_edit_removal removed[2] = {{0, 3}, {6, UINT64_C(1) << 40}};
    struct tm_edit edit = {
        .is_snapshot = true,
        .hash_seed = 0x0123456789abcdefu,
        .next_file_number = 300,
        .last_sequence = UINT64_C(1) << 50,
        .has_log_number = true,
        .log_number = 12,
        .log_end_number = 13,
        .log_end_bytes = 123456,
        .added = added,
        .added_count = 2,
        .removed = removed,
        .removed_count = 2,
    };

    added[0] = make_added(0, 7, tamis_text(""), tamis_text("m"));
    added[1] = make_added(6, 8, tamis_text("n"), tamis_text("zz"));
    return edit;
}

START_TEST(edits_come_back_as_they_were)
{
    static uint8_t key[LONG_KEY];
    struct tm_edit full = full_edit();
    struct tm_edit empty = {0};
    struct tm_edit only_log = {.has_log_number = true};
    struct tm_edit_file large =
        make_added(3, 9, tm_slice(key, LONG_KEY - 1), tm_slice(key, LONG_KEY));
    struct tm_edit with_large = {.added = &large, .added_count = 1};

    memset(key, 'k', sizeof key);
    check_round_trip(&empty);
    check_round_trip(&only_log);
    check_round_trip(&full);
    check_round_trip(&with_large);
}
END_TEST

START_TEST(an_edit_cut_anywhere_is_refused_or_a_row_of_whole_fields)
{
    struct tm_edit edit = full_edit();
    tamis_slice bytes = encode(&edit);
    size_t accepted = 0;

    for (size_t cut = 0; cut < bytes.length; cut++) {
        // A copy of its own, so that a read behind its end is seen.
        uint8_t *copy = malloc(cut + 1);
        struct tm_edit decoded;
        const char *wrong = NULL;
        tamis_status status;

        ck_assert_ptr_nonnull(copy);
        memmove(copy + 1, bytes.data, cut);
        status = tm_edit_decode(&world->env, tm_slice(copy + 1, cut), &decoded, &wrong);
        if (status == TAMIS_OK) {
            accepted++;
            tm_edit_release(&world->env, &decoded);
        } else {
            check_status(status, TAMIS_CORRUPT, err);
            ck_assert_ptr_nonnull(wrong);
            ck_assert_uint_eq(decoded.added_count, 0);
        }
        free(copy);
    }
    ck_assert_uint_eq(accepted, 9); // before each field: header, 4 numbers, 2 removals, 2 tables
}
END_TEST

START_TEST(a_changed_edit_is_refused_or_harmless)
{
    uint64_t seed = rng_seed("a_changed_edit_is_refused_or_harmless", 4);
    struct rng rng = rng_from(seed);
    struct tm_edit edit = full_edit();
    tamis_slice bytes = encode(&edit);
    uint8_t *copy = malloc(bytes.length);
    size_t refused = 0;
    size_t total = bytes.length * 8 + 20000;

    ck_assert_ptr_nonnull(copy);
    for (size_t i = 0; i < total; i++) {
        struct tm_edit decoded;
        const char *wrong = NULL;
        tamis_status status;

        memcpy(copy, bytes.data, bytes.length);
        if (i < bytes.length * 8)
            copy[i / 8] ^= (uint8_t)(1 << i % 8);
        else
            for (uint64_t times = 1 + rng_below(&rng, 4); times > 0; times--)
                copy[rng_below(&rng, bytes.length)] = (uint8_t)rng_next(&rng);
        status = tm_edit_decode(&world->env, tm_slice(copy, bytes.length), &decoded, &wrong);
        if (status == TAMIS_OK) {
            for (size_t at = 0; at < decoded.added_count; at++)
                ck_assert_uint_lt(decoded.added[at].level, TAMIS_LEVEL_COUNT);
            tm_edit_release(&world->env, &decoded);
            continue;
        }
        ck_assert(status == TAMIS_CORRUPT || status == TAMIS_UNSUPPORTED);
        ck_assert_ptr_nonnull(wrong);
        refused++;
    }
    ck_assert_uint_gt(refused, 0);
    ck_assert_uint_eq(world->alloc.live_count, 2); // the directory and the encoded record
    free(copy);
}
END_TEST

static tamis_status
decode_bytes(const void *bytes, size_t length)
{
    struct tm_edit decoded;
    const char *wrong;
    tamis_status status = tm_edit_decode(&world->env, tm_slice(bytes, length), &decoded, &wrong);

    if (status == TAMIS_OK)
        tm_edit_release(&world->env, &decoded);
    return status;
}

START_TEST(unknown_fields_from_128_are_skipped_and_others_unsupported)
{
    for (int tag = 0; tag < 256; tag++) {
        uint8_t field[] = {(uint8_t)tag, 3, 'x', 'y', 'z', 2, 1, 9}; // then: next file number 9
        tamis_status status = decode_bytes(field, sizeof field);

        if (tag >= 128)
            check_status(status, TAMIS_OK, err);
        else if (tag == 0 || tag > 7)
            check_status(status, TAMIS_UNSUPPORTED, err);
        else
            check_status(status, TAMIS_CORRUPT, err);
    }
}
END_TEST

START_TEST(fields_longer_or_shorter_than_their_contents_are_refused)
{
    static const uint8_t longer[] = {2, 2, 9, 0};
    static const uint8_t shorter[] = {5, 1, 9};
    static const uint8_t beyond[] = {2, 200, 1, 9};
    static const uint8_t level_7[] = {7, 2, 7, 9};

    check_status(decode_bytes(longer, sizeof longer), TAMIS_CORRUPT, err);
    check_status(decode_bytes(shorter, sizeof shorter), TAMIS_CORRUPT, err);
    check_status(decode_bytes(beyond, sizeof beyond), TAMIS_CORRUPT, err);
    check_status(decode_bytes(level_7, sizeof level_7), TAMIS_CORRUPT, err);
}
END_TEST

START_TEST(without_memory_an_edit_is_neither_made_nor_read)
{
    struct tm_edit edit = full_edit();
    tamis_slice bytes = encode(&edit);
    uint64_t refused = 0;

    for (int decoding = 0; decoding < 2; decoding++) {
        for (uint64_t nth = 1;; nth++) {
            uint64_t failures = world->alloc.failure_count;
            struct tm_buf buf = {0};
            tamis_status status;

            fault_alloc_fail_after(&world->alloc, nth, false);
            status = decoding ? decode_bytes(bytes.data, bytes.length)
                              : tm_edit_encode(&world->env, &edit, &buf, &err);
            fault_alloc_fail_after(&world->alloc, 0, false);
            tm_buf_release(&world->env, &buf);
            if (world->alloc.failure_count == failures)
                break;
            check_status(status, TAMIS_NO_MEMORY, err);
            ck_assert_uint_eq(world->alloc.live_count, 2);
            refused++;
        }
    }
    ck_assert_uint_ge(refused, 5);
}
END_TEST

/* ---- Manifests ------------------------------------------------------------------------------------ */

static void
create_manifest(struct tm_manifest *manifest, const struct tm_edit *snapshot)
{
    check_ok(tm_manifest_create(manifest, &world->env, dir, MANIFEST, snapshot, &err), err);
}

static void
append_edit(struct tm_manifest *manifest, const struct tm_edit *edit)
{
    check_ok(tm_manifest_append(manifest, encode(edit), &err), err);
}

static tamis_status
load(struct tm_edit *state, uint64_t *number)
{
    return tm_manifest_load(&world->env, dir, state, number, &err);
}

static void
check_load_refused(tamis_status expected)
{
    struct tm_edit state;
    uint64_t number;

    check_status(load(&state, &number), expected, err);
}

START_TEST(edits_fold_into_the_state)
{
    struct tm_manifest manifest;
    struct tm_edit snapshot = full_edit();
    struct tm_edit_file moved, deep;
    struct tm_edit_removal removal = {0, 7};
    struct tm_edit edit = {.has_log_number = true,
                           .log_number = 20,
                           .removed = &removal,
                           .removed_count = 1,
                           .added = &moved,
                           .added_count = 1};
    struct tm_edit last = {.next_file_number = 400, .added = &deep, .added_count = 1};
    struct tm_edit state;
    uint64_t number;

    snapshot.removed_count = 0;
    moved = make_added(1, 7, tamis_text(""), tamis_text("m")); // to the next level
    deep = make_added(2, 30, tamis_text("a"), tamis_text("b"));
    create_manifest(&manifest, &snapshot);
    check_ok(load(&state, &number), err);
    ck_assert_uint_eq(number, MANIFEST);
    ck_assert_uint_eq(state.log_end_number, 13);
    ck_assert(!state.is_settled);
    tm_edit_release(&world->env, &state);

    append_edit(&manifest, &edit);
    check_ok(load(&state, &number), err);
    ck_assert(state.is_settled);
    ck_assert_uint_eq(state.settled_log_number, 12); // N4
    ck_assert_uint_eq(state.log_number, 20);
    ck_assert_uint_eq(state.log_end_number, 0); // something was written since the clean close
    ck_assert_uint_eq(state.removed_count, 1);
    ck_assert_uint_eq(state.added_count, 2);
    check_added(&state.added[0], &snapshot.added[1]);
    check_added(&state.added[1], &moved);
    tm_edit_release(&world->env, &state);

    append_edit(&manifest, &last);
    tm_manifest_close(&manifest);
    check_ok(load(&state, &number), err);
    ck_assert_uint_eq(state.removed_count, 0);
    ck_assert_uint_eq(state.settled_log_number, 20);
    ck_assert_uint_eq(state.next_file_number, 400);
    ck_assert_uint_eq(state.last_sequence, snapshot.last_sequence);
    ck_assert_uint_eq(state.hash_seed, snapshot.hash_seed);
    ck_assert_uint_eq(state.added_count, 3);
    check_added(&state.added[2], &deep);
    tm_edit_release(&world->env, &state);
}
END_TEST

START_TEST(keys_of_the_greatest_length_survive_in_a_manifest)
{
    static uint8_t key[LONG_KEY];
    struct tm_edit snapshot = {.is_snapshot = true, .hash_seed = 1, .has_log_number = true};
    struct tm_edit_file large =
        make_added(0, 9, tm_slice(key, LONG_KEY - 1), tm_slice(key, LONG_KEY));
    struct tm_edit edit = {.added = &large, .added_count = 1};
    struct tm_manifest manifest;
    struct tm_edit state;
    uint64_t number;

    memset(key, 'k', sizeof key);
    create_manifest(&manifest, &snapshot);
    append_edit(&manifest, &edit);
    tm_manifest_close(&manifest);
    check_ok(load(&state, &number), err);
    ck_assert_uint_eq(state.added_count, 1);
    check_added(&state.added[0], &large);
    tm_edit_release(&world->env, &state);
}
END_TEST

START_TEST(manifests_that_make_no_sense_are_corrupt)
{
    struct tm_edit snapshot = full_edit();
    struct tm_edit_removal missing = {1, 7}; // it is in level 0
    struct tm_edit removing = {.removed = &missing, .removed_count = 1};
    struct tm_manifest manifest;

    snapshot.removed_count = 0;
    create_manifest(&manifest, &snapshot);
    append_edit(&manifest, &snapshot); // a second one
    tm_manifest_close(&manifest);
    check_load_refused(TAMIS_CORRUPT);

    check_ok(world->env.fs->remove(world->env.fs->ctx, dir, "MANIFEST-000005", &err), err);
    create_manifest(&manifest, &snapshot);
    append_edit(&manifest, &removing);
    tm_manifest_close(&manifest);
    check_load_refused(TAMIS_CORRUPT);
    sim_file_put(world->sim, ORACLE_DIR, "MANIFEST-000005", "", 0);
    check_load_refused(TAMIS_CORRUPT);
    ck_assert(sim_file_remove(world->sim, ORACLE_DIR, "MANIFEST-000005"));
    check_load_refused(TAMIS_CORRUPT);
}
END_TEST

/* A manifest of EDITS records, each adding a table; ends[i] is where record i ends. */
static uint8_t *
make_row(uint64_t ends[EDITS], size_t *size_out)
{
    struct tm_edit snapshot = {.is_snapshot = true, .hash_seed = 1, .has_log_number = true};
    struct tm_manifest manifest;

    create_manifest(&manifest, &snapshot);
    ends[0] = manifest.writer.offset;
    for (size_t i = 1; i < EDITS; i++) {
        struct tm_edit_file file = make_added(0, i, tamis_text("a"), tamis_text("b"));
        struct tm_edit edit = {.added = &file, .added_count = 1};

        append_edit(&manifest, &edit);
        ends[i] = manifest.writer.offset;
    }
    tm_manifest_close(&manifest);
    return sim_file_get(world->sim, ORACLE_DIR, "MANIFEST-000005", size_out);
}

/* Only the last record can be a crash's; before it there is a watermark behind every bad spot. */
START_TEST(a_flipped_bit_before_the_last_record_is_corrupt)
{
    uint64_t ends[EDITS];
    size_t size;
    uint8_t *bytes = make_row(ends, &size);

    for (size_t at = 0; at < size; at++) {
        struct tm_edit state;
        uint64_t number;
        tamis_status status;

        bytes[at] ^= (uint8_t)(1 << at % 8);
        sim_file_put(world->sim, ORACLE_DIR, "MANIFEST-000005", bytes, size);
        status = load(&state, &number);
        check_status(status, at < ends[EDITS - 2] ? TAMIS_CORRUPT : TAMIS_OK, err);
        if (status == TAMIS_OK) {
            ck_assert_uint_eq(state.added_count, EDITS - 2);
            tm_edit_release(&world->env, &state);
        }
        bytes[at] ^= (uint8_t)(1 << at % 8);
    }
    free(bytes);
}
END_TEST

START_TEST(a_cut_manifest_holds_the_whole_edits_before)
{
    uint64_t ends[EDITS];
    size_t size;
    uint8_t *bytes = make_row(ends, &size);

    for (size_t cut = 0; cut <= size; cut++) {
        struct tm_edit state;
        uint64_t number;
        size_t whole = 0;

        while (whole < EDITS && ends[whole] <= cut)
            whole++;
        sim_file_put(world->sim, ORACLE_DIR, "MANIFEST-000005", bytes, cut);
        check_status(load(&state, &number), whole != 0 ? TAMIS_OK : TAMIS_CORRUPT, err);
        if (whole != 0) {
            ck_assert_uint_eq(state.added_count, whole - 1);
            tm_edit_release(&world->env, &state);
        }
    }
    free(bytes);
}
END_TEST

START_TEST(after_a_failed_append_or_sync_the_manifest_is_not_written_any_more)
{
    static const enum sim_op ops[] = {SIM_PWRITE, SIM_SYNC};
    struct tm_edit snapshot = {.is_snapshot = true, .hash_seed = 1};
    struct tm_edit edit = {.next_file_number = 9};

    for (size_t i = 0; i < 2; i++) {
        struct tm_manifest manifest;
        size_t size, size_later;
        size_t fault;

        check_ok(world->env.fs->remove(world->env.fs->ctx, dir, "MANIFEST-000005", &err), err);
        create_manifest(&manifest, &snapshot);
        fault = sim_fault_add(world->sim, (struct sim_fault){.op = ops[i],
                                                             .file_class = TM_OS_CLASS_MANIFEST,
                                                             .nth = 1,
                                                             .effect = SIM_ERROR,
                                                             .os_error = EIO});
        check_status(tm_manifest_append(&manifest, encode(&edit), &err), TAMIS_IO, err);
        ck_assert_uint_eq(sim_fault_fired(world->sim, fault), 1);
        sim_fault_clear(world->sim);
        free(sim_file_get(world->sim, ORACLE_DIR, "MANIFEST-000005", &size));
        check_status(tm_manifest_append(&manifest, encode(&edit), &err), TAMIS_IO, err);
        tm_manifest_close(&manifest);
        free(sim_file_get(world->sim, ORACLE_DIR, "MANIFEST-000005", &size_later));
        ck_assert_uint_eq(size_later, size);
    }
}
END_TEST

START_TEST(a_manifest_is_long_when_its_edits_outgrow_the_snapshot)
{
    struct tm_edit snapshot = {.is_snapshot = true, .hash_seed = 1};
    struct tm_edit edit = {.next_file_number = 9};
    struct tm_manifest manifest;
    size_t count = 0;

    create_manifest(&manifest, &snapshot);
    while (!tm_manifest_is_long(&manifest)) {
        append_edit(&manifest, &edit);
        count++;
    }
    ck_assert_uint_gt(count, 1000);
    ck_assert_uint_lt(manifest.writer.offset, ROLL_BYTES);
    tm_manifest_close(&manifest);
}
END_TEST

START_TEST(current_names_a_manifest_and_nothing_else)
{
    static const struct {
        const char *text;
        uint64_t number; // 0: refused
    } cases[] = {
        {"MANIFEST-000001\n", 1},
        {"MANIFEST-1234567\n", 1234567},
        {"MANIFEST-18446744073709551615\n", 0},
        {"MANIFEST-000001", 0},
        {"MANIFEST-000001\n\n", 0},
        {"MANIFEST-000001 \n", 0},
        {" MANIFEST-000001\n", 0},
        {"MANIFEST-1\n", 0},
        {"MANIFEST-0000001\n", 0},
        {"MANIFEST-\n", 0},
        {"MANIFEST--00001\n", 0},
        {"manifest-000001\n", 0},
        {"MANIFEST-000001\r\n", 0},
        {"../MANIFEST-000001\n", 0},
        {"000001.sst\n", 0},
        {"CURRENT\n", 0},
        {"\n", 0},
        {"", 0},
    };
    static char padded[66];
    uint64_t number;

    check_status(tm_current_read(&world->env, dir, &number, &err), TAMIS_NOT_FOUND, err);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tamis_status status;

        sim_file_put(world->sim, ORACLE_DIR, "CURRENT", cases[i].text, strlen(cases[i].text));
        status = tm_current_read(&world->env, dir, &number, &err);
        ck_assert_msg(status == (cases[i].number != 0 ? TAMIS_OK : TAMIS_CORRUPT), "'%s': %s",
                      cases[i].text, tamis_status_name(status));
        if (cases[i].number != 0)
            ck_assert_uint_eq(number, cases[i].number);
    }
    memset(padded, '0', sizeof padded);
    sim_file_put(world->sim, ORACLE_DIR, "CURRENT", padded, 65);
    check_status(tm_current_read(&world->env, dir, &number, &err), TAMIS_CORRUPT, err);
    sim_file_put(world->sim, ORACLE_DIR, "CURRENT", "MANIFEST-000001\0\n", 17);
    check_status(tm_current_read(&world->env, dir, &number, &err), TAMIS_CORRUPT, err);
}
END_TEST

/* ---- Stores --------------------------------------------------------------------------------------- */

static tamis_db *
open_store(void)
{
    tamis_db *db = NULL;

    check_ok(oracle_open(world, &db, &err), err);
    return db;
}

static void
put(tamis_db *db, const char *key)
{
    check_ok(tamis_put(db, NULL, tamis_text(key), tamis_text("v"), &err), err);
}

static void
check_has(tamis_db *db, const char *key)
{
    bool exists = false;

    check_ok(tamis_exists(db, NULL, tamis_text(key), &exists, &err), err);
    ck_assert_msg(exists, "%s is lost", key);
}

static void
add_to_hash(void *arg, const char *name)
{
    uint64_t *hash = arg;
    size_t size;
    uint8_t *bytes = sim_file_get(world->sim, ORACLE_DIR, name, &size);

    *hash += tm_hash64(bytes, size, tm_hash64(name, strlen(name), 1));
    free(bytes);
}

static uint64_t
directory_hash(void)
{
    uint64_t hash = 0;

    sim_file_each(world->sim, ORACLE_DIR, add_to_hash, &hash);
    return hash;
}

static void
check_store_refused(tamis_status expected)
{
    uint64_t hash = directory_hash();
    tamis_db *db = NULL;

    check_status(oracle_open(world, &db, &err), expected, err);
    ck_assert_ptr_null(db);
    ck_assert_uint_eq(directory_hash(), hash);
}

/* A manifest of one record that was made elsewhere, soundly framed, as the store's own. */
static void
put_manifest(const char *name, uint64_t number, const uint8_t *bytes, size_t length)
{
    struct tm_manifest manifest = {.env = &world->env, .dir = dir, .number = number};
    const tamis_fs *fs = world->env.fs;

    check_ok(fs->remove(fs->ctx, dir, name, &err), err);
    check_ok(fs->create(fs->ctx, dir, name, TAMIS_FILE_MANIFEST, &manifest.file, &err), err);
    check_ok(tm_record_writer_init(&manifest.writer, &world->env, manifest.file, number, &err),
             err);
    check_ok(tm_manifest_append(&manifest, tm_slice(bytes, length), &err), err);
    tm_manifest_close(&manifest);
}

START_TEST(a_store_of_a_newer_version_or_other_key_order_is_refused_and_unchanged)
{
    static const struct {
        size_t at; // in the first record: tag, length, version, features, hash seed, key order
        uint8_t value;
        tamis_status expected;
    } changes[] = {
        {2, 2, TAMIS_UNSUPPORTED},    // format version
        {3, 1, TAMIS_UNSUPPORTED},    // a required feature
        {3, 64, TAMIS_UNSUPPORTED},   // another
        {12, 'T', TAMIS_INVALID},     // the key order's name
        {25, 'f', TAMIS_INVALID},     // its end
        {12, ' ', TAMIS_CORRUPT},     // no such name
        {25, 0, TAMIS_CORRUPT},
        {0, 9, TAMIS_UNSUPPORTED},    // an unknown field in the place of the header
        {0, 129, TAMIS_CORRUPT},      // the header skipped: no snapshot
    };
    tamis_db *db = open_store();
    uint64_t number;
    struct tm_edit state;
    char name[TM_NAME_BYTES_MAX];
    tamis_slice good;
    uint8_t *bytes;

    put(db, "a");
    check_ok(tamis_flush(db, &err), err);
    check_ok(tamis_close(db, &err), err);
    check_ok(load(&state, &number), err);
    state.removed_count = 0;
    good = encode(&state);
    tm_edit_release(&world->env, &state);
    tm_name_make(TM_NAME_MANIFEST, number, name);
    bytes = malloc(good.length);
    ck_assert_ptr_nonnull(bytes);
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        memcpy(bytes, good.data, good.length);
        ck_assert_uint_ne(bytes[changes[i].at], changes[i].value);
        bytes[changes[i].at] = changes[i].value;
        put_manifest(name, number, bytes, good.length);
        check_store_refused(changes[i].expected);
    }
    put_manifest(name, number, good.data, good.length);
    db = open_store();
    check_has(db, "a");
    check_ok(tamis_close(db, &err), err);
    free(bytes);
}
END_TEST

START_TEST(a_log_cut_at_a_record_border_after_a_clean_close_is_corrupt)
{
    tamis_db *db = open_store();
    size_t offset = 0;
    size_t size;
    size_t cut_count = 0;
    uint8_t *bytes;

    for (size_t i = 0; i < 10; i++) {
        char key[24];
        put(db, oracle_key(i, key));
    }
    check_ok(tamis_close(db, &err), err);
    bytes = sim_file_get(world->sim, ORACLE_DIR, "000002.wal", &size);
    ck_assert_ptr_nonnull(bytes);
    while (offset < size) {
        sim_file_put(world->sim, ORACLE_DIR, "000002.wal", bytes, offset);
        check_store_refused(TAMIS_CORRUPT);
        offset += TM_RECORD_HEADER_BYTES + tm_get_u16(bytes + offset + 8);
        cut_count++;
    }
    ck_assert_uint_eq(cut_count, 11);
    sim_file_put(world->sim, ORACLE_DIR, "000002.wal", bytes, size);
    db = open_store();
    for (size_t i = 0; i < 10; i++) {
        char key[24];
        check_has(db, oracle_key(i, key));
    }
    check_ok(tamis_close(db, &err), err);
    free(bytes);
}
END_TEST

/* Keys of 24 KiB stand in every table's edit twice, so that a dozen of flushes makes a manifest long. */
enum { WIDE_KEY = 24 << 10, WIDE_KEYS = 10 };

static tamis_slice
wide_key(size_t number)
{
    static uint8_t key[WIDE_KEY];

    memset(key, 'w', sizeof key);
    key[0] = (uint8_t)('a' + number);
    return tm_slice(key, sizeof key);
}

/* Put and flush WIDE_KEYS keys; how many were flushed (synced) before the machine stopped, and whether the manifest was
 * replaced meanwhile. */
static size_t
flush_wide_keys(void)
{
    tamis_db *db = NULL;
    size_t flushed = 0;

    if (oracle_open(world, &db, &err) != TAMIS_OK) {
        ck_assert(sim_stopped(world->sim));
        return 0;
    }
    while (flushed < WIDE_KEYS) {
        tamis_status status = tamis_put(db, NULL, wide_key(flushed), tamis_text("v"), &err);

        if (status == TAMIS_OK)
            status = tamis_flush(db, &err);
        if (sim_stopped(world->sim))
            break;
        check_ok(status, err);
        flushed++;
    }
    (void)tamis_close(db, NULL);
    return flushed;
}

struct roll_watch {
    uint64_t begin; // call that makes the second manifest
    uint64_t end;   // call that removes the first
};

static struct roll_watch watched;

static void
note_roll(void *arg, const struct sim_call *call)
{
    bool is_first = call->name != NULL && strcmp(call->name, "MANIFEST-000001") == 0;

    (void)arg;
    if (call->name == NULL || strncmp(call->name, "MANIFEST-", 9) != 0)
        return;
    if (call->op == SIM_OPEN && !is_first && watched.begin == 0)
        watched.begin = call->number;
    if (call->op == SIM_REMOVE && is_first && watched.begin != 0 && watched.end == 0)
        watched.end = call->number;
}

START_TEST(a_crash_at_any_call_of_a_roll_over_loses_nothing)
{
    struct rng rng = rng_from(rng_seed("a_crash_at_any_call_of_a_roll_over_loses_nothing", 6));
    uint64_t image_count = 0;

    world->env.fs->close_dir(world->env.fs->ctx, dir);
    dir = NULL;
    world_destroy(world);
    world = world_create(1, WORLD_BATON);
    memset(&watched, 0, sizeof watched);
    sim_watch(world->sim, baton_pass, note_roll, world->baton);
    ck_assert_uint_eq(flush_wide_keys(), WIDE_KEYS);
    ck_assert_uint_ne(watched.begin, 0);
    ck_assert_uint_gt(watched.end, watched.begin);
    for (uint64_t stop = watched.begin - 3; stop <= watched.end + 3; stop++) {
        struct sim *images[SIM_POLICY_COUNT];
        size_t flushed;

        world_destroy(world);
        world = world_create(1, WORLD_BATON);
        sim_stop_at(world->sim, stop);
        flushed = flush_wide_keys();
        ck_assert(sim_stopped(world->sim));
        for (int policy = 0; policy < SIM_POLICY_COUNT; policy++)
            images[policy] = sim_crash(world->sim, (enum sim_policy)policy, rng_next(&rng));
        for (int policy = 0; policy < SIM_POLICY_COUNT; policy++) {
            tamis_db *db;

            world_take_sim(world, images[policy]);
            db = open_store();
            for (size_t i = 0; i < flushed; i++) {
                bool exists = false;

                check_ok(tamis_exists(db, NULL, wide_key(i), &exists, &err), err);
                ck_assert_msg(exists, "stopped at call %" PRIu64 ", %s: key %zu is lost", stop,
                              sim_policy_name((enum sim_policy)policy), i);
            }
            check_ok(tamis_close(db, &err), err);
            image_count++;
        }
    }
    printf("roll-over: calls %" PRIu64 " to %" PRIu64 ", %" PRIu64 " images\n", watched.begin - 3,
           watched.end + 3, image_count);
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("manifest");
    TCase *tests = tcase_create("manifest");

    tcase_set_timeout(tests, 0);
    tcase_add_checked_fixture(tests, set_up, tear_down);
    tcase_add_test(tests, edits_come_back_as_they_were);
    tcase_add_test(tests, an_edit_cut_anywhere_is_refused_or_a_row_of_whole_fields);
    tcase_add_test(tests, a_changed_edit_is_refused_or_harmless);
    tcase_add_test(tests, unknown_fields_from_128_are_skipped_and_others_unsupported);
    tcase_add_test(tests, fields_longer_or_shorter_than_their_contents_are_refused);
    tcase_add_test(tests, without_memory_an_edit_is_neither_made_nor_read);
    tcase_add_test(tests, edits_fold_into_the_state);
    tcase_add_test(tests, keys_of_the_greatest_length_survive_in_a_manifest);
    tcase_add_test(tests, manifests_that_make_no_sense_are_corrupt);
    tcase_add_test(tests, a_flipped_bit_before_the_last_record_is_corrupt);
    tcase_add_test(tests, a_cut_manifest_holds_the_whole_edits_before);
    tcase_add_test(tests, after_a_failed_append_or_sync_the_manifest_is_not_written_any_more);
    tcase_add_test(tests, a_manifest_is_long_when_its_edits_outgrow_the_snapshot);
    tcase_add_test(tests, current_names_a_manifest_and_nothing_else);
    tcase_add_test(tests,
                   a_store_of_a_newer_version_or_other_key_order_is_refused_and_unchanged);
    tcase_add_test(tests, a_log_cut_at_a_record_border_after_a_clean_close_is_corrupt);
    tcase_add_test(tests, a_crash_at_any_call_of_a_roll_over_loses_nothing);
    suite_add_tcase(suite, tests);
    return check_run(suite);
}
