/* SPDX-License-Identifier: MIT
 *
 * tools/cli_report.c -- the store's description of itself, and flat JSON.
 *
 * Not here: counting; every figure comes from tamis_get_stats().
 */
#include "cli.h"

#include <inttypes.h>
#include <math.h>

static bool json_first;

static bool
write_piece(void *arg, const char *text, size_t length)
{
    return fwrite(text, 1, length, arg) == length;
}

int
cli_report_store(tamis_db *db, bool files)
{
    tamis_error err;

    if (tamis_describe(db, files, write_piece, stdout, &err) != TAMIS_OK)
        return cli_fail("%s", err.message);
    return CLI_OK;
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
    cli_write_json_string(stdout, tamis_text(value));
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
        {"range_tombstone_count", level->range_tombstone_count},
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
