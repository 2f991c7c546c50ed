/* SPDX-License-Identifier: MIT
 *
 * tools/cli.h -- what the commands of `tamis` share: the table of commands, arguments, text,
 * messages, progress.
 *
 * A command is one file, command_<name>.c, with one function that takes parsed arguments and
 * returns an exit code. It uses the public headers only: whatever the command does, an embedder can
 * do as well.
 *
 * Not here: anything about files of a store; that is behind <tamis/tamis.h>.
 */
#ifndef TAMIS_TOOLS_CLI_H
#define TAMIS_TOOLS_CLI_H

#include <stdio.h>

#include <tamis/tamis.h>

/* What scripts can rely on. */
enum cli_exit {
    CLI_OK = 0,        // done; or found
    CLI_NOT_FOUND = 1, // no such key
    CLI_USAGE = 2,     // the command line is wrong; nothing was touched
    CLI_FAILED = 3,    // no such store, I/O error, damage, bad input data, output cut short
};

/* ---- Arguments: cli_arguments.c ------------------------------------------------------------- */

/* Every option of every command, each with one meaning everywhere. A command lists those it
 * takes. */
enum cli_option {
    CLI_OPTION_END = 0,
    CLI_OPTION_BITS_PER_KEY = 256, // beyond any character, as getopt_long wants it
    CLI_OPTION_FALSE_POSITIVE_RATE,
    CLI_OPTION_FILTER_KIND,
    CLI_OPTION_BLOCK_BYTES,
    CLI_OPTION_CACHE_BYTES,
    CLI_OPTION_WRITE_BUFFER_BYTES,
    CLI_OPTION_BACKGROUND_THREADS,
    CLI_OPTION_COMPRESSION,
    CLI_OPTION_SYNC,
    CLI_OPTION_FROM,
    CLI_OPTION_TO,
    CLI_OPTION_PREFIX,
    CLI_OPTION_LIMIT,
    CLI_OPTION_KEYS_ONLY,
    CLI_OPTION_COUNT,
    CLI_OPTION_KEYS_FROM,
    CLI_OPTION_TRACE,
    CLI_OPTION_ESCAPED,
    CLI_OPTION_HEX,
    CLI_OPTION_REVERSE,
    CLI_OPTION_FILES,
    CLI_OPTION_FORMAT,
    CLI_OPTION_ENTRIES,
    CLI_OPTION_JSON,
    CLI_OPTION_YES,
    CLI_OPTION_HELP,
};

/* The options that say how a store is opened; a macro so that commands can put them into their
 * lists. */
#define CLI_STORE_OPTIONS                                                                          \
    CLI_OPTION_BITS_PER_KEY, CLI_OPTION_FALSE_POSITIVE_RATE, CLI_OPTION_FILTER_KIND,               \
        CLI_OPTION_BLOCK_BYTES, CLI_OPTION_CACHE_BYTES, CLI_OPTION_WRITE_BUFFER_BYTES,             \
        CLI_OPTION_BACKGROUND_THREADS, CLI_OPTION_COMPRESSION

/* How records stand in a file. */
enum cli_format {
    CLI_FORMAT_TSV,   // key, tab, value, with escapes (cli_text.c)
    CLI_FORMAT_CSV,   // RFC 4180: key, comma, value; bytes as they are, quoted where they must be
    CLI_FORMAT_JSONL, // an object a line: "key" and "value", or "key_hex" and "value_hex"
};

struct cli_arguments {
    tamis_options store; // create_if_missing is left to the command
    bool sync;
    bool has_from, has_to, has_prefix, has_limit;
    tamis_slice from, to, prefix;
    uint64_t limit;
    bool keys_only;
    bool count;
    const char *keys_from; // NULL: not given
    bool trace;
    bool escaped;
    bool hex;
    bool reverse;
    bool files;
    enum cli_format format;
    bool entries;
    bool json;
    bool yes;
    tamis_slice *
        operands; // what is no option: the store's path first; the others decoded if `escaped` or `hex`
    int operand_count;
};

struct cli_command {
    const char *name;
    const char *operands;           // as usage shows them
    const char *summary;            // half a line
    const char *details;            // paragraphs of --help
    const char *not_found;          // what exit code 1 means; NULL: it does not happen
    const char *examples;           // lines of --help
    const enum cli_option *options; // ends with CLI_OPTION_END
    int operand_count_min;
    int operand_count_max; // -1: any number
    bool has_file_operand; // the second operand is the path of a file
    int input_operand; // a lone - in this place is standard input, whatever the encoding; 0: in none
    int (*run)(const struct cli_arguments *arguments);
};

extern const struct cli_command command_put, command_get, command_delete, command_scan,
    command_load, command_dump, command_stats, command_inspect, command_verify, command_compact,
    command_checkpoint, command_destroy;

/** Parse argv (argv[0] is the command's name) and run the command. Returns an exit code. */
int cli_run(const struct cli_command *command, int argc, char **argv);

/** Usage, options and details of one command. */
void cli_print_help(const struct cli_command *command, FILE *out);

/** The path among the operands; it holds no NUL because it came from the command line. */
const char *cli_path(const struct cli_arguments *arguments);

/* ---- Text: cli_text.c ----------------------------------------------------------------------- */

/**
 * Write bytes so that they stay on one line and no control byte reaches a terminal: \t \n \\ and
 * \xHH for what is no text; UTF-8 passes as it is. cli_unescape() is the inverse.
 */
void cli_write_escaped(FILE *out, tamis_slice bytes);

/** The same, cut after `width_max` columns (roughly: characters) with "..." at the end. */
void cli_write_escaped_short(FILE *out, tamis_slice bytes, size_t width_max);

/**
 * Take the escapes off, in place.
 *
 * @param length    [in, out] bytes
 * @param error_at  [out] on false: offset of the backslash that starts no escape
 */
bool cli_unescape(char *text, size_t *length, size_t *error_at);

/** Pairs of hexadecimal digits, either case, become bytes, in place. As cli_unescape(). */
bool cli_unhex(char *text, size_t *length, size_t *error_at);

/** Bytes as they are; of none the data may be NULL. */
void cli_write_bytes(FILE *out, tamis_slice bytes);

/** Lower-case pairs of hexadecimal digits. */
void cli_write_hex(FILE *out, tamis_slice bytes);

/** A JSON string with its quotes; controls as \u00XX, and U+FFFD for each byte that is no UTF-8. */
void cli_write_json_string(FILE *out, tamis_slice text);

/** Whether the bytes are UTF-8: no overlong forms, no surrogates. */
bool cli_is_utf8(tamis_slice bytes);

/** The order of keys: bytewise, shorter first. Negative, 0 or positive. */
int cli_compare(tamis_slice a, tamis_slice b);

/** "12.3 MiB", in a buffer of the caller's that is returned. */
const char *cli_format_bytes(uint64_t bytes, char buffer[32]);

/* ---- Messages and the ends of a command: cli_text.c ----------------------------------------- */

extern const char *cli_command_name; // for messages: "get"

/** "tamis get: ..." on standard error, in one line. Returns CLI_FAILED. */
int cli_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
/** As cli_fail(), with the way to the help. Returns CLI_USAGE. */
int cli_fail_usage(const char *format, ...) __attribute__((format(printf, 1, 2)));

/** As cli_fail() with the path that `message` is about; once, where the message begins with it. */
int cli_fail_at(const char *path, const char *message);

/* What a command does to a store. */
enum cli_access {
    CLI_READS,  // changes no byte, is in no writer's way, and works where nothing can be written
    CLI_SHOWS,  // as CLI_WRITES, so that what the log holds becomes tables; or else as CLI_READS
    CLI_WRITES, // a store that is there
    CLI_MAKES,  // and makes one that is missing
};

/** Open the store of the first operand; says what went wrong. CLI_OK or CLI_FAILED. */
int cli_open(const struct cli_arguments *arguments, enum cli_access access, tamis_db **db_out);
/**
 * Close; returns `code`, or CLI_FAILED with a message when closing failed and all was well
 * before.
 */
int cli_close(tamis_db *db, int code);

/** Push standard output out; returns `code`, or CLI_FAILED with a message when bytes were lost. */
int cli_finish_output(int code);

/** Open an input file; "-" is standard input. NULL: a message was written. */
FILE *cli_open_input(const char *path);
/** Its name in messages. */
const char *cli_input_name(const char *path);

/* ---- Ranges and records: cli_records.c ------------------------------------------------------ */

/* The keys that --from, --to and --prefix leave. */
struct cli_range {
    tamis_slice lower, upper; // included; not included
    bool has_lower, has_upper;
    unsigned char *end_bytes; // what `upper` may point to
};

/** CLI_OK or CLI_FAILED; end with cli_range_release(). */
int cli_range_make(const struct cli_arguments *arguments, struct cli_range *range);
void cli_range_release(struct cli_range *range);

/** Open an iterator over the range. CLI_OK or CLI_FAILED. */
int cli_range_open(tamis_db *db, const struct cli_range *range, tamis_iter **iter_out);

/**
 * Write the records that `arguments` choose to `out`; `out_name` is for messages. Returns an
 * exit code.
 */
int cli_write_records(tamis_db *db, const struct cli_arguments *arguments, FILE *out,
                      const char *out_name);

/** One record as a line of the format (of more lines, where a CSV field holds newlines). */
void cli_write_record(FILE *out, const struct cli_arguments *arguments, tamis_slice key,
                      tamis_slice value);

/* ---- Reading records: cli_reader.c, cli_reader_json.c --------------------------------------- */

struct cli_reader {
    FILE *input;
    const char *path; // for messages
    enum cli_format format;
    bool hex;
    uint64_t line;       // where the record read last begins, from 1
    uint64_t line_count; // read so far
    uint64_t byte_count;
    char *text; // of that record
    size_t length;
    size_t capacity;
    void *object; // parsed JSON that key and value borrow from
    char problem[400];
};

enum cli_read {
    CLI_READ_RECORD,
    CLI_READ_END,
    CLI_READ_BAD_RECORD, // `problem` says why
    CLI_READ_FAILED,     // the input could not be read
};

/** The next record; key and value are valid until the next call. Zeroed but for the first four is ready. */
enum cli_read cli_read_record(struct cli_reader *reader, tamis_slice *key, tamis_slice *value);
void cli_reader_release(struct cli_reader *reader);

/** Whether this build can read JSON lines. */
bool cli_json_is_built(void);
/** Take reader->text apart, a line of JSON. false: `problem` says why. */
bool cli_parse_json(struct cli_reader *reader, tamis_slice *key, tamis_slice *value);
void cli_release_json(struct cli_reader *reader);

/* ---- Progress on standard error, if that is a terminal: cli_progress.c ---------------------- */

struct cli_progress {
    const char *label; // NULL: not shown
    uint64_t total;
    double started_seconds;
    double shown_seconds;
};

double cli_now_seconds(void); // monotonic

void cli_progress_start(struct cli_progress *progress, const char *label, uint64_t total);
void cli_progress_show(struct cli_progress *progress, uint64_t done); // at most ten times a second
void cli_progress_end(struct cli_progress *progress);                 // the line is empty again

/* ---- Reports: cli_report.c ------------------------------------------------------------------ */

/** What tamis_describe() says, on standard output. CLI_OK or CLI_FAILED. */
int cli_report_store(tamis_db *db, bool files);
/** One flat JSON member a line: "name": value; numbers that are none become null. */
void cli_json_start(void);
void cli_json_count(const char *name, uint64_t value);
void cli_json_number(const char *name, double value);
void cli_json_text(const char *name, const char *value);
void cli_json_end(void);
/** The members of one level, or of the total, with `prefix` before each name. */
void cli_json_level(const char *prefix, const tamis_level_stats *level);

#endif
