/* SPDX-License-Identifier: MIT
 *
 * tools/cli_report.c -- the levels table that stats, get --count and load print, and flat JSON.
 *
 * Not here: counting; every figure comes from tamis_get_stats().
 */
#include "cli.h"

#include <inttypes.h>
#include <math.h>

static bool json_first;

static void
print_rate(double rate)
{
    if (isfinite(rate))
        printf(" %9.4f%%", rate * 100);
    else
        printf(" %10s", "-");
}

static void
print_level(const char *name, const tamis_level_stats *level)
{
    char size[32];
    char filter[32];

    printf("%-6s %6" PRIu64 " %10s %10" PRIu64 " %8" PRIu64 " %10s %6.2f", name, level->file_count,
           cli_format_bytes(level->file_bytes, size), level->entry_count, level->tombstone_count,
           cli_format_bytes(level->filter_bytes, filter), level->bits_per_key_delivered);
    printf(" %10" PRIu64 " %10" PRIu64 " %9" PRIu64 " %9" PRIu64, level->filter_probes,
           level->filter_negatives, level->filter_true_positives, level->filter_false_positives);
    print_rate(level->false_positive_rate_measured);
    print_rate(level->false_positive_rate_theory);
    putchar('\n');
}

void
cli_report_levels(const tamis_stats *stats)
{
    printf("%-6s %6s %10s %10s %8s %10s %6s %10s %10s %9s %9s %10s %10s\n", "level", "files",
           "size", "entries", "deleted", "filters", "bits/k", "asked", "said no", "yes+there",
           "yes+not", "measured", "theory");
    for (int i = 0; i < TAMIS_LEVEL_COUNT; i++) {
        char name[16];

        if (stats->level[i].file_count == 0 && stats->level[i].filter_probes == 0)
            continue;
        snprintf(name, sizeof name, "%d", i);
        print_level(name, &stats->level[i]);
    }
    print_level("total", &stats->total);
}

static void
json_name(const char *name)
{
    printf("%s  \"%s\": ", json_first ? "" : ",\n", name);
    json_first = false;
}

void
cli_json_start(void)
{
    json_first = true;
    fputs("{\n", stdout);
}

void
cli_json_count(const char *name, uint64_t value)
{
    json_name(name);
    printf("%" PRIu64, value);
}

void
cli_json_number(const char *name, double value)
{
    json_name(name);
    if (isfinite(value))
        printf("%.9g", value);
    else
        fputs("null", stdout);
}

void
cli_json_text(const char *name, const char *value)
{
    json_name(name);
    putchar('"');
    for (const char *at = value; *at != 0; at++) {
        if (*at == '"' || *at == '\\')
            printf("\\%c", *at);
        else if ((unsigned char)*at < 0x20)
            printf("\\u%04x", (unsigned)(unsigned char)*at);
        else
            putchar(*at);
    }
    putchar('"');
}

void
cli_json_end(void)
{
    fputs("\n}\n", stdout);
}

void
cli_json_level(const char *prefix, const tamis_level_stats *level)
{
    const struct {
        const char *name;
        uint64_t value;
    } counts[] = {
        {"file_count", level->file_count},
        {"file_bytes", level->file_bytes},
        {"entry_count", level->entry_count},
        {"tombstone_count", level->tombstone_count},
        {"key_count", level->key_count},
        {"filter_bytes", level->filter_bytes},
        {"filter_probes", level->filter_probes},
        {"filter_negatives", level->filter_negatives},
        {"filter_true_positives", level->filter_true_positives},
        {"filter_false_positives", level->filter_false_positives},
    };
    const struct {
        const char *name;
        double value;
    } numbers[] = {
        {"bits_per_key_requested", level->bits_per_key_requested},
        {"bits_per_key_delivered", level->bits_per_key_delivered},
        {"false_positive_rate_measured", level->false_positive_rate_measured},
        {"false_positive_rate_theory", level->false_positive_rate_theory},
    };
    char name[96];

    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        snprintf(name, sizeof name, "%s%s", prefix, counts[i].name);
        cli_json_count(name, counts[i].value);
    }
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        snprintf(name, sizeof name, "%s%s", prefix, numbers[i].name);
        cli_json_number(name, numbers[i].value);
    }
}
