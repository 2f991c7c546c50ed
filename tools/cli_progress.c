/* SPDX-License-Identifier: MIT
 *
 * tools/cli_progress.c -- one line of progress on standard error, when that is a terminal.
 *
 * Not here: what is counted; the commands know that.
 */
#include "cli.h"

#include <time.h>
#include <unistd.h>

enum { BAR_COLUMNS = 30 };

double
cli_now_seconds(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

void
cli_progress_start(struct cli_progress *progress, const char *label, uint64_t total)
{
    progress->label = isatty(STDERR_FILENO) ? label : NULL;
    progress->total = total;
    progress->started_seconds = cli_now_seconds();
    progress->shown_seconds = 0;
}

void
cli_progress_show(struct cli_progress *progress, uint64_t done)
{
    double now;
    char text[32];

    if (progress->label == NULL)
        return;
    now = cli_now_seconds();
    if (now - progress->shown_seconds < 0.1)
        return;
    progress->shown_seconds = now;
    cli_format_bytes(done, text);
    if (progress->total == 0) {
        fprintf(stderr, "\r%s  %s, %.0f s\033[K", progress->label, text,
                now - progress->started_seconds);
    } else {
        double share = (double)done / (double)progress->total;
        int columns = (int)((share > 1 ? 1 : share) * BAR_COLUMNS);

        fprintf(stderr, "\r%s  [%.*s%*s] %3.0f %%  %s, %.0f s\033[K", progress->label, columns,
                "##############################", BAR_COLUMNS - columns, "",
                (share > 1 ? 1 : share) * 100, text, now - progress->started_seconds);
    }
    fflush(stderr);
}

void
cli_progress_end(struct cli_progress *progress)
{
    if (progress->label != NULL && progress->shown_seconds > 0)
        fputs("\r\033[K", stderr);
    progress->label = NULL;
}
