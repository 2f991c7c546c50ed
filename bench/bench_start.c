/* SPDX-License-Identifier: MIT
 *
 * bench/bench_start.c -- four phases on tamis and, where it is installed, on LevelDB, with the same keys and values
 * in one run: fillrandom, readrandom, readmissing, readseq. The method is in bench/README.md.
 *
 * Not here: latency percentiles, several threads, sync writes, other engines.
 */
#include <errno.h>
#include <ftw.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <tamis/tamis.h>

#ifdef TAMIS_BENCH_LEVELDB
#include <leveldb/c.h>
#endif

enum {
    KEY_BYTES = 16,
    POOL_BYTES =
        1 << 20, // values are slices of this; larger than any window that a compressor looks back
    POOL_PIECE_BYTES = 100,
    PHASE_COUNT = 4,
};

static const size_t buffer_bytes = (size_t)64 << 20; // write buffer and cache, both engines
static const char *const phase_names[PHASE_COUNT] = {"fillrandom", "readrandom", "readmissing",
                                                     "readseq"};

struct workload {
    uint64_t count; // distinct keys
    size_t value_bytes;
    uint64_t seed;
    uint32_t *order; // a permutation of 0..count-1
    char *pool;
    const char *parent; // directory for the stores
};

/* One engine under test. Every function ends the program with a message when something fails. */
struct engine {
    const char *name;
    void *(*open)(const char *path);
    void (*put)(void *db, const char *key, const char *value, size_t value_bytes);
    bool (*get)(void *db, const char *key, size_t *value_bytes);
    uint64_t (*scan)(void *db, uint64_t *bytes);
    void (*settle)(void *db); // return when background work is quiet
    void (*close)(void *db);
};

static void
die(const char *what, const char *why)
{
    fprintf(stderr, "tamis-bench-start: %s: %s\n", what, why);
    exit(3);
}

static double
now_seconds(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

/* splitmix64: small, seedable, and the same on every machine. */
static uint64_t
next_random(uint64_t *state)
{
    uint64_t mixed = *state += 0x9e3779b97f4a7c15u;

    mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9u;
    mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111ebu;
    return mixed ^ (mixed >> 31);
}

static uint64_t
random_below(uint64_t *state, uint64_t bound)
{
    return (uint64_t)(((unsigned __int128)next_random(state) * bound) >> 64);
}

/* ---- tamis ---------------------------------------------------------------------------------- */

static void *
open_tamis(const char *path)
{
    tamis_options options;
    tamis_error err;
    tamis_db *db = NULL;

    tamis_options_init(&options);
    options.create_if_missing = true;
    options.write_buffer_bytes = buffer_bytes;
    options.block_cache_bytes = buffer_bytes;
    options.filter_bits_per_key = 10.0;
    if (tamis_open(path, &options, &db, &err) != TAMIS_OK)
        die(path, err.message);
    return db;
}

static void
put_tamis(void *db, const char *key, const char *value, size_t value_bytes)
{
    tamis_error err;

    if (tamis_put(db, NULL, (tamis_slice){key, KEY_BYTES}, (tamis_slice){value, value_bytes},
                  &err) != TAMIS_OK)
        die("tamis_put", err.message);
}

static bool
get_tamis(void *db, const char *key, size_t *value_bytes)
{
    tamis_error err;
    tamis_pinned pinned;
    tamis_status status = tamis_get_pinned(db, NULL, (tamis_slice){key, KEY_BYTES}, &pinned, &err);

    if (status == TAMIS_NOT_FOUND)
        return false;
    if (status != TAMIS_OK)
        die("tamis_get_pinned", err.message);
    *value_bytes = pinned.value.length;
    tamis_pinned_release(&pinned);
    return true;
}

static uint64_t
scan_tamis(void *db, uint64_t *bytes)
{
    tamis_error err;
    tamis_iter *iter;
    uint64_t count = 0;

    if (tamis_iter_open(db, NULL, &iter, &err) != TAMIS_OK)
        die("tamis_iter_open", err.message);
    for (tamis_iter_first(iter); tamis_iter_valid(iter); tamis_iter_next(iter)) {
        *bytes += tamis_iter_key(iter).length + tamis_iter_value(iter).length;
        count++;
    }
    if (tamis_iter_status(iter, &err) != TAMIS_OK)
        die("scan", err.message);
    tamis_iter_close(iter);
    return count;
}

static void
settle_tamis(void *db)
{
    tamis_error err;

    if (tamis_flush(db, &err) != TAMIS_OK || tamis_wait_idle(db, &err) != TAMIS_OK)
        die("settle", err.message);
}

static void
close_tamis(void *db)
{
    tamis_error err;

    if (tamis_close(db, &err) != TAMIS_OK)
        die("tamis_close", err.message);
}

/* ---- LevelDB -------------------------------------------------------------------------------- */

#ifdef TAMIS_BENCH_LEVELDB
struct leveldb_store {
    leveldb_t *db;
    leveldb_options_t *options;
    leveldb_cache_t *cache;
    leveldb_filterpolicy_t *filter;
    leveldb_readoptions_t *read;
    leveldb_writeoptions_t *write;
};

static void *
open_leveldb(const char *path)
{
    struct leveldb_store *store = calloc(1, sizeof *store);
    char *error = NULL;

    if (store == NULL)
        die(path, "no memory");
    store->options = leveldb_options_create();
    store->cache = leveldb_cache_create_lru(buffer_bytes);
    store->filter = leveldb_filterpolicy_create_bloom(10);
    store->read = leveldb_readoptions_create();
    store->write = leveldb_writeoptions_create();
    leveldb_options_set_create_if_missing(store->options, 1);
    leveldb_options_set_write_buffer_size(store->options, buffer_bytes);
    leveldb_options_set_cache(store->options, store->cache);
    leveldb_options_set_filter_policy(store->options, store->filter);
    leveldb_options_set_compression(store->options, leveldb_snappy_compression);
    store->db = leveldb_open(store->options, path, &error);
    if (error != NULL)
        die(path, error);
    return store;
}

static void
put_leveldb(void *db, const char *key, const char *value, size_t value_bytes)
{
    struct leveldb_store *store = db;
    char *error = NULL;

    leveldb_put(store->db, store->write, key, KEY_BYTES, value, value_bytes, &error);
    if (error != NULL)
        die("leveldb_put", error);
}

static bool
get_leveldb(void *db, const char *key, size_t *value_bytes)
{
    struct leveldb_store *store = db;
    char *error = NULL;
    char *value = leveldb_get(store->db, store->read, key, KEY_BYTES, value_bytes, &error);

    if (error != NULL)
        die("leveldb_get", error);
    leveldb_free(value);
    return value != NULL;
}

static uint64_t
scan_leveldb(void *db, uint64_t *bytes)
{
    struct leveldb_store *store = db;
    leveldb_iterator_t *iter = leveldb_create_iterator(store->db, store->read);
    char *error = NULL;
    uint64_t count = 0;

    for (leveldb_iter_seek_to_first(iter); leveldb_iter_valid(iter); leveldb_iter_next(iter)) {
        size_t key_length, value_length;

        leveldb_iter_key(iter, &key_length);
        leveldb_iter_value(iter, &value_length);
        *bytes += key_length + value_length;
        count++;
    }
    leveldb_iter_get_error(iter, &error);
    if (error != NULL)
        die("scan", error);
    leveldb_iter_destroy(iter);
    return count;
}

/* LevelDB cannot be asked whether it is at work: its list of tables has to stay the same for two seconds. */
static void
settle_leveldb(void *db)
{
    struct leveldb_store *store = db;
    char *before = leveldb_property_value(store->db, "leveldb.sstables");
    int quiet = 0;

    while (quiet < 4) {
        struct timespec half_second = {0, 500000000};
        char *after;

        nanosleep(&half_second, NULL);
        after = leveldb_property_value(store->db, "leveldb.sstables");
        quiet = before != NULL && after != NULL && strcmp(before, after) == 0 ? quiet + 1 : 0;
        leveldb_free(before);
        before = after;
    }
    leveldb_free(before);
}

static void
close_leveldb(void *db)
{
    struct leveldb_store *store = db;

    leveldb_close(store->db);
    leveldb_options_destroy(store->options);
    leveldb_cache_destroy(store->cache);
    leveldb_filterpolicy_destroy(store->filter);
    leveldb_readoptions_destroy(store->read);
    leveldb_writeoptions_destroy(store->write);
    free(store);
}
#endif

static const struct engine engines[] = {
    {"tamis", open_tamis, put_tamis, get_tamis, scan_tamis, settle_tamis, close_tamis},
#ifdef TAMIS_BENCH_LEVELDB
    {"leveldb", open_leveldb, put_leveldb, get_leveldb, scan_leveldb, settle_leveldb,
     close_leveldb},
#endif
};

enum { ENGINE_COUNT = sizeof engines / sizeof engines[0] };

/* ---- The workload --------------------------------------------------------------------------- */

/* Stored keys are even numbers, so each missing key (odd) lies between two stored ones. */
static void
make_key(uint64_t number, char key[KEY_BYTES + 1])
{
    for (int at = KEY_BYTES - 1; at >= 0; at--, number /= 10)
        key[at] = (char)('0' + number % 10);
    key[KEY_BYTES] = 0;
}

static void
prepare(struct workload *work)
{
    uint64_t state = work->seed;

    work->order = malloc(work->count * sizeof *work->order);
    work->pool = malloc(POOL_BYTES + work->value_bytes);
    if (work->order == NULL || work->pool == NULL)
        die("the workload", "no memory");
    for (uint64_t i = 0; i < work->count; i++)
        work->order[i] = (uint32_t)i;
    for (uint64_t i = work->count - 1; i > 0; i--) {
        uint64_t other = random_below(&state, i + 1);
        uint32_t held = work->order[i];

        work->order[i] = work->order[other];
        work->order[other] = held;
    }
    // Half compressible: each piece is fifty random printable bytes, twice.
    for (size_t at = 0; at < POOL_BYTES + work->value_bytes; at++) {
        size_t in_piece = at % POOL_PIECE_BYTES;

        work->pool[at] = in_piece < POOL_PIECE_BYTES / 2 ? (char)(' ' + random_below(&state, 95))
                                                         : work->pool[at - POOL_PIECE_BYTES / 2];
    }
}

static double
run_phase(const struct engine *engine, void *db, int phase, const struct workload *work)
{
    uint64_t state = work->seed + 1 + (uint64_t)phase;
    uint64_t found = 0;
    uint64_t expected = phase == 2 ? 0 : work->count;
    char key[KEY_BYTES + 1];
    double start = now_seconds();
    double seconds;

    switch (phase) {
    case 0:
        for (uint64_t i = 0; i < work->count; i++) {
            make_key((uint64_t)work->order[i] * 2, key);
            engine->put(db, key, work->pool + random_below(&state, POOL_BYTES), work->value_bytes);
        }
        found = work->count;
        break;
    case 1:
    case 2:
        for (uint64_t i = 0; i < work->count; i++) {
            size_t value_bytes = 0;

            make_key(random_below(&state, work->count) * 2 + (phase == 2), key);
            if (engine->get(db, key, &value_bytes))
                found += value_bytes == work->value_bytes;
        }
        break;
    default: {
        uint64_t bytes = 0;

        found = engine->scan(db, &bytes);
        if (bytes != work->count * (KEY_BYTES + work->value_bytes))
            die(engine->name, "a scan saw other bytes than were written");
        break;
    }
    }
    seconds = now_seconds() - start;
    if (found != expected)
        die(engine->name, "a phase found other keys than were written");
    return (double)work->count / seconds;
}

/* Opening writes the last memtable out as a table, in both engines: reads then ask tables only. */
static void *
reopen(const struct engine *engine, void *db, const char *path)
{
    engine->settle(db);
    engine->close(db);
    db = engine->open(path);
    engine->settle(db);
    return db;
}

/* ---- Arguments and report ------------------------------------------------------------------- */

static void
usage(FILE *out)
{
    fputs("usage: tamis-bench-start [--num=N] [--value-size=BYTES] [--dir=DIRECTORY] [--seed=N]\n\n"
          "  --num=N             keys, 1..100000000; default 1000000\n"
          "  --value-size=BYTES  1..65536; default 100\n"
          "  --dir=DIRECTORY     where the stores are made, and removed at the end; default /tmp\n"
          "  --seed=N            of order, values and reads; default 1\n",
          out);
}

static uint64_t
parse_number(const char *name, const char *text, uint64_t low, uint64_t high)
{
    char *end;
    unsigned long long value;

    errno = 0;
    value = strtoull(text, &end, 10);
    if (errno != 0 || *text < '0' || *text > '9' || *end != 0 || value < low || value > high) {
        fprintf(stderr, "tamis-bench-start: %s takes a whole number %" PRIu64 "..%" PRIu64 "\n",
                name, low, high);
        exit(2);
    }
    return value;
}

static int
remove_entry(const char *path, const struct stat *info, int kind, struct FTW *place)
{
    (void)info;
    (void)kind;
    (void)place;
    return remove(path);
}

int
main(int argc, char **argv)
{
    static const struct option long_options[] = {
        {"num", required_argument, NULL, 'n'}, {"value-size", required_argument, NULL, 'v'},
        {"dir", required_argument, NULL, 'd'}, {"seed", required_argument, NULL, 's'},
        {"help", no_argument, NULL, 'h'},      {NULL, 0, NULL, 0},
    };
    struct workload work = {.count = 1000000, .value_bytes = 100, .seed = 1, .parent = "/tmp"};
    double rate[ENGINE_COUNT][PHASE_COUNT];
    void *db[ENGINE_COUNT];
    char path[ENGINE_COUNT][4096];
    char parent[4000];
    int option;

    while ((option = getopt_long(argc, argv, "", long_options, NULL)) != -1) {
        switch (option) {
        case 'n':
            work.count = parse_number("--num", optarg, 1, 100000000);
            break;
        case 'v':
            work.value_bytes = parse_number("--value-size", optarg, 1, 65536);
            break;
        case 'd':
            work.parent = optarg;
            break;
        case 's':
            work.seed = parse_number("--seed", optarg, 0, UINT64_MAX);
            break;
        case 'h':
            usage(stdout);
            return 0;
        default:
            usage(stderr);
            return 2;
        }
    }
    if (optind != argc) {
        usage(stderr);
        return 2;
    }
    if (snprintf(parent, sizeof parent, "%s/tamis-bench-XXXXXX", work.parent) >= (int)sizeof parent)
        die(work.parent, "this path is too long");
    if (mkdtemp(parent) == NULL)
        die(parent, strerror(errno));
    prepare(&work);

    printf("%" PRIu64 " keys of %d bytes, values of %zu bytes, seed %" PRIu64
           ", 10 bits per key, 64 MiB write buffer, 64 MiB cache\n\n",
           work.count, KEY_BYTES, work.value_bytes, work.seed);
    for (int e = 0; e < ENGINE_COUNT; e++) {
        snprintf(path[e], sizeof path[e], "%s/%s", parent, engines[e].name);
        db[e] = engines[e].open(path[e]);
    }
    printf("%-14s", "operations/s");
    for (int e = 0; e < ENGINE_COUNT; e++)
        printf("%14s", engines[e].name);
    printf("%14s\n", ENGINE_COUNT > 1 ? "ratio" : "");
    for (int phase = 0; phase < PHASE_COUNT; phase++) {
        printf("%-14s", phase_names[phase]);
        for (int e = 0; e < ENGINE_COUNT; e++) {
            rate[e][phase] = run_phase(&engines[e], db[e], phase, &work);
            if (phase == 0)
                db[e] = reopen(&engines[e], db[e], path[e]);
            printf("%14.0f", rate[e][phase]);
            fflush(stdout);
        }
        if (ENGINE_COUNT > 1)
            printf("%14.2f", rate[0][phase] / rate[ENGINE_COUNT - 1][phase]);
        printf("\n");
    }
    if (ENGINE_COUNT == 1)
        printf("\nLevelDB was not found when this was built (Debian: libleveldb-dev).\n");
    for (int e = 0; e < ENGINE_COUNT; e++)
        engines[e].close(db[e]);
    if (nftw(parent, remove_entry, 8, FTW_DEPTH | FTW_PHYS) != 0)
        die(parent, "the stores could not be removed");
    free(work.order);
    free(work.pool);
    return 0;
}
