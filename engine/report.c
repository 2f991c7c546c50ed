/* SPDX-License-Identifier: MIT
 *
 * engine/report.c -- what the store tells its logger.
 *
 * The logger is never called under a lock. What is reported with the mutex held waits in a short queue, and whoever lets go of the
 * mutex (tm_unlock, tm_wait) delivers it. So a report is made where the fact is known, whatever is held there.
 *
 * Not here: the write-ahead log (wal.h). Reads report nothing.
 */
#include <stdarg.h>
#include <stdio.h>

#include "engine/db_internal.h"

static bool
is_wanted(const tamis_db *db, tamis_log_level level)
{
    return db->logger.log != NULL && level <= db->logger.least;
}

void
tm_report(tamis_db *db, tamis_log_level level, const char *format, ...)
{
    struct tm_report_queue *queue = &db->reports;
    struct tm_report *report;
    va_list arguments;

    // A thread adds one or two before it lets go, so a full queue takes more threads than a store has.
    if (!is_wanted(db, level) || queue->count == TM_REPORT_COUNT_MAX)
        return;
    report = &queue->reports[(queue->first + queue->count++) % TM_REPORT_COUNT_MAX];
    report->level = level;
    va_start(arguments, format);
    vsnprintf(report->text, sizeof report->text, format, arguments);
    va_end(arguments);
}

void
tm_report_now(tamis_db *db, tamis_log_level level, const char *format, ...)
{
    char text[TM_REPORT_BYTES_MAX];
    va_list arguments;

    if (!is_wanted(db, level))
        return;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    db->logger.log(db->logger.ctx, level, text);
}

void
tm_report_deliver(tamis_db *db)
{
    const struct tm_runtime *runtime = db->env.runtime;
    struct tm_report_queue *queue = &db->reports;

    runtime->lock(runtime->ctx, &db->mutex);
    while (queue->count != 0) {
        struct tm_report report = queue->reports[queue->first];

        queue->first = (queue->first + 1) % TM_REPORT_COUNT_MAX;
        queue->count--;
        queue->delivering++;
        runtime->unlock(runtime->ctx, &db->mutex);
        db->logger.log(db->logger.ctx, report.level, report.text);
        runtime->lock(runtime->ctx, &db->mutex);
        queue->delivering--;
        tm_notify(db);
    }
    runtime->unlock(runtime->ctx, &db->mutex);
}

void
tm_remove_unneeded(tamis_db *db, enum tm_name_kind kind, uint64_t number)
{
    char name[TM_NAME_BYTES_MAX];
    tamis_error err;

    tm_name_make(kind, number, name);
    if (db->env.fs->remove(db->env.fs->ctx, db->dir, name, &err) == TAMIS_OK)
        return;
    tm_count(&db->counters.unremoved_file_count, 1);
    tm_report_now(db, TAMIS_LOG_WARNING,
                  "%s is not needed and could not be removed; the next open tries again: %s", name,
                  err.message);
}

double
tm_seconds_since(const tamis_db *db, uint64_t begin_ns)
{
    return 1e-9 * (double)(tm_now_ns(db) - begin_ns);
}
