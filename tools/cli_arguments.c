/* SPDX-License-Identifier: MIT
 *
 * tools/cli_arguments.c -- every option of every command: its name, range and help, and strict
 * parsing.
 *
 * A number is digits, with nothing before or after it but the unit; what does not fit its range is
 * refused with the option's name and that range, before anything is touched.
 *
 * Not here: what options mean for a store (engine/options.c checks them once more).
 */
#include "cli.h"

#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

struct option_row {
    enum cli_option option;
    const char *name;
    const char *argument; // as help shows it; NULL: takes none
    const char *help;
};

static const struct option_row option_rows[] = {
    {CLI_OPTION_SYNC, "sync", NULL,
     "return when the writes survive a power cut, not only a killed process"},
    {CLI_OPTION_FROM, "from", "KEY", "start at this key, included; default: the first"},
    {CLI_OPTION_TO, "to", "KEY", "stop before this key; default: after the last"},
    {CLI_OPTION_PREFIX, "prefix", "BYTES", "only keys that begin with these bytes"},
    {CLI_OPTION_LIMIT, "limit", "N", "at most N records; default: all"},
    {CLI_OPTION_KEYS_ONLY, "keys-only", NULL, "print no values"},
    {CLI_OPTION_COUNT, "count", NULL, "print how many there are, not what they are"},
    {CLI_OPTION_KEYS_FROM, "keys-from", "FILE",
     "look up every line of FILE, written as scan prints keys; -: standard input"},
    {CLI_OPTION_TRACE, "trace", NULL, "print what happened at every file instead of the value"},
    {CLI_OPTION_ESCAPED, "escaped", NULL,
     "keys and values on the command line are written as scan prints them: \\t \\n \\\\ \\xHH"},
    {CLI_OPTION_HEX, "hex", NULL,
     "keys and values are pairs of hexadecimal digits, on the command line and in files"},
    {CLI_OPTION_REVERSE, "reverse", NULL, "from the last key to the first"},
    {CLI_OPTION_FILES, "files", NULL, "a line for every table as well"},
    {CLI_OPTION_FORMAT, "format", "FORMAT", "of the file: tsv, csv or jsonl; default tsv"},
    {CLI_OPTION_ENTRIES, "entries", NULL, "every entry too, not only the structure"},
    {CLI_OPTION_JSON, "json", NULL, "print the facts as one flat JSON object"},
    {CLI_OPTION_YES, "yes", NULL, "really: without it nothing is removed"},
    {CLI_OPTION_BITS_PER_KEY, "bits-per-key", "BITS",
     "filter of new tables, 0..32 bits a key, fractions count; default 10; 0: none"},
    {CLI_OPTION_FALSE_POSITIVE_RATE, "false-positive-rate", "RATE",
     "decides the bits instead: 0.000001..0.5"},
    {CLI_OPTION_FILTER_KIND, "filter-kind", "KIND",
     "filter of new tables: standard, blk512 or pair512; default pair512"},
    {CLI_OPTION_BLOCK_BYTES, "block-bytes", "SIZE",
     "data blocks of new tables: 64..16M; default 4K"},
    {CLI_OPTION_CACHE_BYTES, "cache-bytes", "SIZE", "memory for blocks: 0..262144G; default 64M"},
    {CLI_OPTION_WRITE_BUFFER_BYTES, "write-buffer-bytes", "SIZE",
     "memory for new writes: 64K..4G; default 64M"},
    {CLI_OPTION_BACKGROUND_THREADS, "background-threads", "N",
     "threads that compact: 1..32; default 2"},
    {CLI_OPTION_COMPRESSION, "compression", "KIND", "of new tables: none or lz4; default lz4"},
    {CLI_OPTION_HELP, "help", NULL, "this text"},
};

enum { OPTION_COUNT = sizeof option_rows / sizeof option_rows[0] };

static const struct option_row *
find_row(enum cli_option option)
{
    for (int i = 0; i < OPTION_COUNT; i++) {
        if (option_rows[i].option == option)
            return &option_rows[i];
    }
    abort();
}

static bool
takes_option(const struct cli_command *command, enum cli_option option)
{
    if (option == CLI_OPTION_HELP)
        return true;
    for (const enum cli_option *at = command->options; *at != CLI_OPTION_END; at++) {
        if (*at == option)
            return true;
    }
    return false;
}

static void
print_exit_codes(const struct cli_command *command, FILE *out)
{
    fputs("\nexit codes:\n  0  done\n", out);
    if (command->not_found != NULL)
        fprintf(out, "  1  %s; nothing is said on standard error\n", command->not_found);
    fputs("  2  the command line is wrong; nothing was touched\n"
          "  3  no such store or file, open elsewhere, I/O error, damage, bad input, output cut "
          "short\n",
          out);
}

void
cli_print_help(const struct cli_command *command, FILE *out)
{
    fprintf(out, "usage: tamis %s [OPTION]... %s\n\n%s.\n\n%s\noptions:\n", command->name,
            command->operands, command->summary, command->details);
    for (int i = 0; i < OPTION_COUNT; i++) {
        const struct option_row *row = &option_rows[i];
        char left[64];

        if (!takes_option(command, row->option))
            continue;
        snprintf(left, sizeof left, "--%s%s%s", row->name, row->argument != NULL ? "=" : "",
                 row->argument != NULL ? row->argument : "");
        fprintf(out, "  %-27s %s\n", left, row->help);
    }
    print_exit_codes(command, out);
    fprintf(out, "\nexamples:\n%s", command->examples);
    if (takes_option(command, CLI_OPTION_CACHE_BYTES))
        fputs("\nSIZE is a number of bytes, or of KiB, MiB, GiB with K, M, G after it. Options "
              "hold for this run;\n"
              "tables keep the filters they were written with.\n",
              out);
}

/* Digits, then nothing. */
static bool
parse_count(const char *text, uint64_t *value_out)
{
    char *end;

    if (!isdigit((unsigned char)*text))
        return false;
    errno = 0;
    *value_out = strtoull(text, &end, 10);
    return errno == 0 && *end == 0;
}

/* Digits, then K, M, G or nothing. */
static bool
parse_size(const char *text, uint64_t low, uint64_t high, uint64_t *value_out)
{
    static const char units[] = "KMG";
    const char *unit;
    char *end;
    uint64_t value;
    unsigned shift = 0;

    if (!isdigit((unsigned char)*text))
        return false;
    errno = 0;
    value = strtoull(text, &end, 10);
    if (errno != 0)
        return false;
    if (*end != 0) {
        unit = strchr(units, *end);
        if (unit == NULL || end[1] != 0)
            return false;
        shift = 10 * (unsigned)(unit - units + 1);
    }
    if (value > UINT64_MAX >> shift)
        return false;
    *value_out = value << shift;
    return *value_out >= low && *value_out <= high;
}

/* A plain decimal number: no sign, no "nan", no "inf", no hexadecimal. */
static bool
parse_number(const char *text, double low, double high, double *value_out)
{
    char *end;

    if (*text == 0 || text[strspn(text, "0123456789.eE+-")] != 0 || *text == '-' || *text == '+')
        return false;
    *value_out = strtod(text, &end);
    return end != text && *end == 0 && isfinite(*value_out) && *value_out >= low &&
           *value_out <= high;
}

/* Bytes from the command line, decoded if so asked. They live as long as the process. */
static int
take_bytes(const char *what, char *text, const struct cli_arguments *arguments,
           tamis_slice *bytes_out)
{
    size_t length = strlen(text);
    size_t error_at;

    if (arguments->escaped && !cli_unescape(text, &length, &error_at))
        return cli_fail_usage("%s: expected \\t, \\n, \\\\ or \\xHH at byte %zu", what,
                              error_at + 1);
    if (arguments->hex && !cli_unhex(text, &length, &error_at))
        return cli_fail_usage("%s: expected pairs of hexadecimal digits at byte %zu", what,
                              error_at + 1);
    *bytes_out = (tamis_slice){text, length};
    return CLI_OK;
}

static int
take_format(const char *name, enum cli_format *format_out)
{
    static const char *const names[] = {"tsv", "csv", "jsonl"}; // in the order of enum cli_format

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strcmp(name, names[i]) == 0) {
            *format_out = (enum cli_format)i;
            return CLI_OK;
        }
    }
    return cli_fail_usage("--format takes tsv, csv or jsonl, not '%s'", name);
}

static int
take_option(enum cli_option option, char *argument, struct cli_arguments *arguments)
{
    uint64_t size, count;

    switch (option) {
    case CLI_OPTION_BITS_PER_KEY:
        if (!parse_number(argument, 0, TAMIS_FILTER_BITS_PER_KEY_MAX,
                          &arguments->store.filter_bits_per_key))
            return cli_fail_usage("--bits-per-key takes a number 0..32, not '%s'", argument);
        return CLI_OK;
    case CLI_OPTION_FALSE_POSITIVE_RATE:
        if (!parse_number(argument, 1e-6, 0.5, &arguments->store.filter_false_positive_rate))
            return cli_fail_usage("--false-positive-rate takes a number 0.000001..0.5, not '%s'",
                                  argument);
        return CLI_OK;
    case CLI_OPTION_FILTER_KIND:
        if (!tamis_filter_kind_from_name(argument, &arguments->store.filter_kind) ||
            arguments->store.filter_kind < TAMIS_FILTER_STANDARD ||
            arguments->store.filter_kind > TAMIS_FILTER_PAIR512)
            return cli_fail_usage("--filter-kind takes standard, blk512 or pair512, not '%s'",
                                  argument);
        return CLI_OK;
    case CLI_OPTION_BLOCK_BYTES:
        if (!parse_size(argument, 64, 16 << 20, &size))
            return cli_fail_usage("--block-bytes takes a size 64..16M, not '%s'", argument);
        arguments->store.block_bytes = (uint32_t)size;
        return CLI_OK;
    case CLI_OPTION_CACHE_BYTES:
        if (!parse_size(argument, 0, (uint64_t)1 << 48, &arguments->store.block_cache_bytes))
            return cli_fail_usage("--cache-bytes takes a size 0..262144G, not '%s'", argument);
        return CLI_OK;
    case CLI_OPTION_WRITE_BUFFER_BYTES:
        if (!parse_size(argument, 64 << 10, (uint64_t)4 << 30,
                        &arguments->store.write_buffer_bytes))
            return cli_fail_usage("--write-buffer-bytes takes a size 64K..4G, not '%s'", argument);
        return CLI_OK;
    case CLI_OPTION_BACKGROUND_THREADS:
        if (!parse_count(argument, &count) || count < 1 || count > 32)
            return cli_fail_usage("--background-threads takes a whole number 1..32, not '%s'",
                                  argument);
        arguments->store.background_threads = (uint32_t)count;
        return CLI_OK;
    case CLI_OPTION_COMPRESSION:
        if (strcmp(argument, "none") == 0)
            arguments->store.compression = TAMIS_COMPRESSION_NONE;
        else if (strcmp(argument, "lz4") == 0)
            arguments->store.compression = TAMIS_COMPRESSION_LZ4;
        else
            return cli_fail_usage("--compression takes none or lz4, not '%s'", argument);
        return CLI_OK;
    case CLI_OPTION_LIMIT:
        arguments->has_limit = true;
        if (!parse_count(argument, &arguments->limit))
            return cli_fail_usage("--limit takes a whole number 0..%" PRIu64 ", not '%s'",
                                  UINT64_MAX, argument);
        return CLI_OK;
    case CLI_OPTION_FORMAT:
        return take_format(argument, &arguments->format);
    case CLI_OPTION_FROM:
        arguments->has_from = true;
        arguments->from.data = argument;
        return CLI_OK;
    case CLI_OPTION_TO:
        arguments->has_to = true;
        arguments->to.data = argument;
        return CLI_OK;
    case CLI_OPTION_PREFIX:
        arguments->has_prefix = true;
        arguments->prefix.data = argument;
        return CLI_OK;
    case CLI_OPTION_KEYS_FROM:
        arguments->keys_from = argument;
        if (*argument == 0)
            return cli_fail_usage("--keys-from takes a file, or - for standard input");
        return CLI_OK;
    case CLI_OPTION_SYNC:
        arguments->sync = true;
        return CLI_OK;
    case CLI_OPTION_KEYS_ONLY:
        arguments->keys_only = true;
        return CLI_OK;
    case CLI_OPTION_COUNT:
        arguments->count = true;
        return CLI_OK;
    case CLI_OPTION_TRACE:
        arguments->trace = true;
        return CLI_OK;
    case CLI_OPTION_ESCAPED:
        arguments->escaped = true;
        return CLI_OK;
    case CLI_OPTION_HEX:
        arguments->hex = true;
        return CLI_OK;
    case CLI_OPTION_REVERSE:
        arguments->reverse = true;
        return CLI_OK;
    case CLI_OPTION_FILES:
        arguments->files = true;
        return CLI_OK;
    case CLI_OPTION_ENTRIES:
        arguments->entries = true;
        return CLI_OK;
    case CLI_OPTION_JSON:
        arguments->json = true;
        return CLI_OK;
    case CLI_OPTION_YES:
        arguments->yes = true;
        return CLI_OK;
    case CLI_OPTION_HELP:
    case CLI_OPTION_END:
        break;
    }
    abort();
}

/* Options that hold bytes are finished last: --escaped or --hex may stand after them. */
static int
take_bounds(struct cli_arguments *arguments)
{
    struct {
        const char *name;
        bool given;
        tamis_slice *bytes;
    } bounds[] = {
        {"--from", arguments->has_from, &arguments->from},
        {"--to", arguments->has_to, &arguments->to},
        {"--prefix", arguments->has_prefix, &arguments->prefix},
    };

    if (arguments->escaped && arguments->hex)
        return cli_fail_usage("--escaped or --hex, not both");
    for (size_t i = 0; i < sizeof bounds / sizeof bounds[0]; i++) {
        if (bounds[i].given && take_bytes(bounds[i].name, (char *)bounds[i].bytes->data, arguments,
                                          bounds[i].bytes) != CLI_OK)
            return CLI_USAGE;
    }
    return CLI_OK;
}

static bool
is_input(const struct cli_command *command, int index, const char *text)
{
    return command->input_operand != 0 && index == command->input_operand && strcmp(text, "-") == 0;
}

static int
take_operands(const struct cli_command *command, int count, char **texts,
              struct cli_arguments *arguments)
{
    if (count < command->operand_count_min ||
        (command->operand_count_max >= 0 && count > command->operand_count_max))
        return cli_fail_usage("expected %s, found %d operand%s", command->operands, count,
                              count == 1 ? "" : "s");
    arguments->operands = calloc((size_t)count + 1, sizeof *arguments->operands);
    if (arguments->operands == NULL)
        return cli_fail("no memory");
    arguments->operand_count = count;
    for (int i = 0; i < count; i++) {
        tamis_slice *operand = &arguments->operands[i];

        *operand = tamis_text(texts[i]);
        if (operand->length == 0 && (i == 0 || command->has_file_operand))
            return cli_fail_usage("expected %s, found an empty path", command->operands);
        // The first one is a path: bytes as they are. So is a second one where that is a file's.
        if (i == 0 || command->has_file_operand || is_input(command, i, texts[i]))
            continue;
        if (take_bytes("a key or value", texts[i], arguments, operand) != CLI_OK)
            return CLI_USAGE;
    }
    return CLI_OK;
}

const char *
cli_path(const struct cli_arguments *arguments)
{
    return arguments->operands[0].data;
}

int
cli_run(const struct cli_command *command, int argc, char **argv)
{
    struct cli_arguments arguments = {0};
    struct option long_options[OPTION_COUNT + 1] = {0};
    int taken = 0;
    int option;
    int code;

    tamis_options_init(&arguments.store);
    for (int i = 0; i < OPTION_COUNT; i++) {
        if (!takes_option(command, option_rows[i].option))
            continue;
        long_options[taken].name = option_rows[i].name;
        long_options[taken].has_arg =
            option_rows[i].argument != NULL ? required_argument : no_argument;
        long_options[taken].val = (int)option_rows[i].option;
        taken++;
    }
    opterr = 0;
    while ((option = getopt_long(argc, argv, ":h", long_options, NULL)) != -1) {
        if (option == '?' && optopt >= 256)
            return cli_fail_usage("--%s takes no value", find_row((enum cli_option)optopt)->name);
        if (option == '?' && optopt != 0)
            return cli_fail_usage(
                "there is no option -%c here; what begins with a dash comes after --", optopt);
        if (option == '?')
            return cli_fail_usage(
                "there is no option '%s' here; what begins with a dash comes after --",
                argv[optind - 1]);
        if (option == ':')
            return cli_fail_usage("--%s takes a value", find_row((enum cli_option)optopt)->name);
        if (option == 'h' || option == CLI_OPTION_HELP) {
            cli_print_help(command, stdout);
            return CLI_OK;
        }
        code = take_option((enum cli_option)option, optarg, &arguments);
        if (code != CLI_OK)
            return code;
    }
    code = take_bounds(&arguments);
    if (code == CLI_OK)
        code = take_operands(command, argc - optind, argv + optind, &arguments);
    if (code == CLI_OK)
        code = command->run(&arguments);
    free(arguments.operands);
    return code;
}
