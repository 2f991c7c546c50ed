/* SPDX-License-Identifier: MIT
 *
 * tools/command_compact.c -- `tamis compact`: all levels into the last one.
 *
 * tamis_compact_range() reports no progress, so a second thread looks at the counters meanwhile.
 *
 * Not here: compaction.
 */
#include "cli.h"

#include <pthread.h>
#include <time.h>

struct watch {
    tamis_db *db;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    bool done; // guarded by mutex
};

static void *
watch_counters(void *arg)
{
    struct watch *watch = arg;
    struct cli_progress progress;
    tamis_stats stats;

    tamis_stats_init(&stats);
    if (tamis_get_stats(watch->db, &stats, NULL) != TAMIS_OK)
        return NULL;
    cli_progress_start(&progress, "compacting", stats.total.file_bytes);
    pthread_mutex_lock(&watch->mutex);
    while (!watch->done) {
        struct timespec until;

        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += 200000000;
        if (until.tv_nsec >= 1000000000) {
            until.tv_nsec -= 1000000000;
            until.tv_sec++;
        }
        pthread_cond_timedwait(&watch->changed, &watch->mutex, &until);
        if (!watch->done && tamis_get_stats(watch->db, &stats, NULL) == TAMIS_OK)
            cli_progress_show(&progress, stats.compaction_bytes_read);
    }
    pthread_mutex_unlock(&watch->mutex);
    cli_progress_end(&progress);
    return NULL;
}

static int
run(const struct cli_arguments *arguments)
{
    struct watch watch = {.mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
    pthread_t watcher;
    bool watched;
    tamis_stats before;
    tamis_stats after;
    tamis_error err;
    char size_before[32];
    char size_after[32];
    int code = cli_open(arguments, CLI_WRITES, &watch.db);

    if (code != CLI_OK)
        return code;
    tamis_stats_init(&before);
    tamis_stats_init(&after);
    if (tamis_get_stats(watch.db, &before, &err) != TAMIS_OK)
        return cli_close(watch.db, cli_fail("%s", err.message));
    watched = pthread_create(&watcher, NULL, watch_counters, &watch) == 0;
    if (tamis_compact_range(watch.db, NULL, NULL, &err) != TAMIS_OK)
        code = CLI_FAILED;
    if (watched) {
        pthread_mutex_lock(&watch.mutex);
        watch.done = true;
        pthread_cond_signal(&watch.changed);
        pthread_mutex_unlock(&watch.mutex);
        pthread_join(watcher, NULL);
    }
    if (code != CLI_OK)
        (void)cli_fail("%s", err.message);
    else if (tamis_get_stats(watch.db, &after, &err) != TAMIS_OK)
        code = cli_fail("%s", err.message);
    else
        fprintf(stderr, "tables: %s before, %s after\n",
                cli_format_bytes(before.total.file_bytes, size_before),
                cli_format_bytes(after.total.file_bytes, size_after));
    return cli_close(watch.db, code);
}

static const enum cli_option options_taken[] = {CLI_STORE_OPTIONS, CLI_OPTION_END};

const struct cli_command command_compact = {
    .name = "compact",
    .operands = "DB",
    .summary = "merge everything into the last level; drops what was overwritten or deleted",
    .details = "What is merged is written anew, with the filters and blocks that the options ask for. A "
               "table that overlaps no\n"
               "other is moved or stays as it is. Sizes before and after are said on standard error.\n",
    .examples = "  tamis compact fruit.db\n"
                "  tamis compact --bits-per-key=14 fruit.db\n",
    .options = options_taken,
    .operand_count_min = 1,
    .operand_count_max = 1,
    .run = run,
};
