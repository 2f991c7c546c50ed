/* SPDX-License-Identifier: MIT
 *
 * bench/bench_read.c -- what one lookup costs, in nanoseconds, by where it ends.
 *
 *     miss             no table has the key; every table whose range holds it is asked through its filter
 *     cached hit       a block of the cache has it
 *     memtable hit     memory has it
 *     memtable miss    memory alone is asked, and has it not
 *
 * Hits are copied into a buffer of the reader's, and, as rows of their own, pinned and released; "many" are 32 keys at once. Each with one thread and
 * with several, on keys that are drawn beforehand, so that drawing costs nothing here; each answer is checked. Public
 * header only.
 */
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <tamis/tamis.h>

enum {
    KEY_BYTES = 16,
    VALUE_BYTES = 100,
    THREADS_MAX = 64,
    MANY_KEYS = 32, // of one tamis_multi_get()
};

static struct {
    uint64_t key_count;
    uint64_t read_count;
    uint64_t seed;
    uint64_t rounds;
    unsigned thread_count;
    const char *dir;
} settings = {4000000, 1000000, 1, 3, 2, "/tmp"};

static double
now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return 1e9 * (double)now.tv_sec + (double)now.tv_nsec;
}

/* SplitMix64 (Steele, Lea, Flood 2014). */
static uint64_t
draw(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static void
die(const tamis_error *err)
{
    fprintf(stderr, "tamis-bench-read: %s\n", err->message);
    exit(1);
}

static void
make_key(char *key, uint64_t number)
{
    char text[KEY_BYTES + 1];

    snprintf(text, sizeof text, "%016" PRIu64, number);
    memcpy(key, text, KEY_BYTES);
}

/* ---- Stores --------------------------------------------------------------------------------------- */

static tamis_db *
open_store(const char *name, uint64_t write_buffer_bytes)
{
    static char path[4096];
    tamis_options options;
    tamis_db *db;
    tamis_error err;

    snprintf(path, sizeof path, "%s/%s", settings.dir, name);
    if (tamis_destroy(path, NULL, &err) != TAMIS_OK && err.code != TAMIS_NOT_FOUND)
        die(&err);
    tamis_options_init(&options);
    options.create_if_missing = true;
    options.write_buffer_bytes = write_buffer_bytes;
    options.block_cache_bytes = UINT64_C(4) << 30;
    if (tamis_open(path, &options, &db, &err) != TAMIS_OK)
        die(&err);
    return db;
}

static void
close_store(tamis_db *db, const char *name)
{
    char path[4096];
    tamis_error err;

    snprintf(path, sizeof path, "%s/%s", settings.dir, name);
    if (tamis_close(db, &err) != TAMIS_OK || tamis_destroy(path, NULL, &err) != TAMIS_OK)
        die(&err);
}

/* Even keys, in a random order: a walk with a stride that has no factor in common with their number. */
static void
fill(tamis_db *db, uint64_t count)
{
    char key[KEY_BYTES];
    char value[VALUE_BYTES];
    uint64_t state = settings.seed;
    uint64_t stride = count / 2 + count / 8 + 1;
    tamis_error err;

    for (;; stride++) {
        uint64_t a = stride, b = count;

        while (b != 0) {
            uint64_t rest = a % b;
            a = b;
            b = rest;
        }
        if (a == 1)
            break;
    }
    for (uint64_t i = 0, at = 0; i < count; i++, at = (at + stride) % count) {
        for (size_t j = 0; j < VALUE_BYTES; j += sizeof state) {
            uint64_t bits = draw(&state);
            size_t length = VALUE_BYTES - j < sizeof bits ? VALUE_BYTES - j : sizeof bits;

            memcpy(value + j, &bits, length);
        }
        make_key(key, 2 * at);
        if (tamis_put(db, NULL, (tamis_slice){key, KEY_BYTES}, (tamis_slice){value, VALUE_BYTES},
                      &err) != TAMIS_OK)
            die(&err);
    }
}

/* ---- Reading -------------------------------------------------------------------------------------- */

enum how { COPIED, PINNED, MANY };

struct reader {
    tamis_db *db;
    char *keys;
    uint64_t count;
    tamis_status expected;
    enum how how;
    pthread_t thread;
};

/* One lookup; the length of what was found. */
static tamis_status
read_one(const struct reader *reader, tamis_slice key, size_t *length)
{
    char buffer[VALUE_BYTES];
    tamis_pinned pinned;
    tamis_status status;
    tamis_error err;

    if (reader->how == COPIED)
        return tamis_get(reader->db, NULL, key, buffer, sizeof buffer, length, &err);
    status = tamis_get_pinned(reader->db, NULL, key, &pinned, &err);
    *length = pinned.value.length;
    tamis_pinned_release(&pinned);
    return status;
}

static void
check(const struct reader *reader, tamis_status status, size_t length)
{
    if (status == reader->expected && (status != TAMIS_OK || length == VALUE_BYTES))
        return;
    fprintf(stderr, "tamis-bench-read: expected %s, found %s\n",
            tamis_status_name(reader->expected), tamis_status_name(status));
    exit(1);
}

static void
read_many(const struct reader *reader, const char *keys, size_t count)
{
    tamis_lookup lookups[MANY_KEYS];
    tamis_error err;

    for (size_t i = 0; i < count; i++)
        lookups[i].key = (tamis_slice){keys + i * KEY_BYTES, KEY_BYTES};
    if (tamis_multi_get(reader->db, NULL, lookups, count, &err) != TAMIS_OK)
        die(&err);
    for (size_t i = 0; i < count; i++) {
        check(reader, lookups[i].status, lookups[i].value.value.length);
        tamis_pinned_release(&lookups[i].value);
    }
}

static void *
read_all(void *arg)
{
    struct reader *reader = arg;
    uint64_t step = reader->how == MANY ? MANY_KEYS : 1;

    for (uint64_t i = 0; i < reader->count; i += step) {
        const char *key = reader->keys + i * KEY_BYTES;

        if (reader->how == MANY) {
            read_many(reader, key, reader->count - i < step ? reader->count - i : step);
        } else {
            size_t length = 0;
            tamis_status status = read_one(reader, (tamis_slice){key, KEY_BYTES}, &length);

            check(reader, status, length);
        }
    }
    return NULL;
}

static void
draw_keys(struct reader *reader, uint64_t key_count, bool missing, uint64_t seed)
{
    reader->count = settings.read_count;
    reader->expected = missing ? TAMIS_NOT_FOUND : TAMIS_OK;
    reader->keys = malloc(settings.read_count * KEY_BYTES);
    if (reader->keys == NULL)
        abort();
    for (uint64_t i = 0; i < settings.read_count; i++)
        make_key(reader->keys + i * KEY_BYTES, 2 * (draw(&seed) % key_count) + missing);
}

/* Nanoseconds of a lookup, as each of `thread_count` threads sees it. */
static double
measure(struct reader *readers, unsigned thread_count)
{
    double begin = now_ns();

    for (unsigned i = 0; i < thread_count; i++)
        if (pthread_create(&readers[i].thread, NULL, read_all, &readers[i]) != 0)
            abort();
    for (unsigned i = 0; i < thread_count; i++)
        pthread_join(readers[i].thread, NULL);
    return (now_ns() - begin) / (double)settings.read_count;
}

static int
compare_doubles(const void *a, const void *b)
{
    double left = *(const double *)a;
    double right = *(const double *)b;

    return (left > right) - (left < right);
}

static void
run(const char *what, tamis_db *db, uint64_t key_count, bool missing, enum how how)
{
    struct reader readers[THREADS_MAX];
    double one[64], many[64];

    for (unsigned i = 0; i < settings.thread_count; i++) {
        readers[i].db = db;
        readers[i].how = how;
        draw_keys(&readers[i], key_count, missing, settings.seed + 1000 * (i + 1));
    }
    (void)measure(readers, settings.thread_count); // what is read comes into the cache
    for (uint64_t round = 0; round < settings.rounds;
         round++) { // in turn: both meet the same machine
        one[round] = measure(readers, 1);
        many[round] = measure(readers, settings.thread_count);
    }
    qsort(one, settings.rounds, sizeof one[0], compare_doubles);
    qsort(many, settings.rounds, sizeof many[0], compare_doubles);
    printf("%-14s %8.1f ns  %8.1f ns with %u threads: %.2f times the reads of one\n", what,
           one[settings.rounds / 2], many[settings.rounds / 2], settings.thread_count,
           settings.thread_count * one[settings.rounds / 2] / many[settings.rounds / 2]);
    fflush(stdout);
    for (unsigned i = 0; i < settings.thread_count; i++)
        free(readers[i].keys);
}

static void
usage(FILE *to)
{
    fputs("usage: tamis-bench-read [--num=N] [--reads=N] [--threads=N] [--rounds=N] [--seed=N] "
          "[--dir=DIR]\n"
          "\n"
          "Nanoseconds of a lookup by where it ends, with one thread and with several; medians "
          "over the rounds.\n",
          to);
}

int
main(int argc, char **argv)
{
    uint64_t memtable_keys;
    tamis_db *db;
    tamis_error err;

    for (int i = 1; i < argc; i++) {
        char *value = strchr(argv[i], '=');
        uint64_t number = value != NULL ? strtoull(value + 1, NULL, 10) : 0;

        if (strncmp(argv[i], "--dir=", 6) == 0) {
            settings.dir = value + 1;
        } else if (strcmp(argv[i], "--help") == 0) {
            usage(stdout);
            return 0;
        } else if (number == 0) {
            usage(stderr);
            return 2;
        } else if (strncmp(argv[i], "--num=", 6) == 0) {
            settings.key_count = number;
        } else if (strncmp(argv[i], "--reads=", 8) == 0) {
            settings.read_count = number;
        } else if (strncmp(argv[i], "--threads=", 10) == 0 && number <= THREADS_MAX) {
            settings.thread_count = (unsigned)number;
        } else if (strncmp(argv[i], "--rounds=", 9) == 0 && number <= 64) {
            settings.rounds = number;
        } else if (strncmp(argv[i], "--seed=", 7) == 0) {
            settings.seed = number;
        } else {
            usage(stderr);
            return 2;
        }
    }
    printf("%" PRIu64 " keys of %d bytes, values of %d, %" PRIu64
           " reads a thread, median of %" PRIu64 " rounds, seed %" PRIu64 "\n",
           settings.key_count, KEY_BYTES, VALUE_BYTES, settings.read_count, settings.rounds,
           settings.seed);
    db = open_store("bench_read.db", UINT64_C(64) << 20);
    fill(db, settings.key_count);
    if (tamis_flush(db, &err) != TAMIS_OK || tamis_wait_idle(db, &err) != TAMIS_OK)
        die(&err);
    run("miss", db, settings.key_count, true, COPIED);
    run("   many", db, settings.key_count, true, MANY);
    run("cached hit", db, settings.key_count, false, COPIED);
    run("   pinned", db, settings.key_count, false, PINNED);
    run("   many", db, settings.key_count, false, MANY);
    close_store(db, "bench_read.db");

    memtable_keys = settings.key_count < 480000 ? settings.key_count : 480000;
    db = open_store("bench_read.db", UINT64_C(128) << 20);
    fill(db, memtable_keys);
    run("memtable hit", db, memtable_keys, false, COPIED);
    run("   pinned", db, memtable_keys, false, PINNED);
    run("   many", db, memtable_keys, false, MANY);
    run("memtable miss", db, memtable_keys, true, COPIED);
    run("   many", db, memtable_keys, true, MANY);
    close_store(db, "bench_read.db");
    return 0;
}
