/* SPDX-License-Identifier: MIT
 *
 * tools/cli_reader_json.c -- a record as a line of JSON, by way of Jansson; the one file that knows it.
 *
 *     {"key": "apple", "value": "red"}            text
 *     {"key_hex": "00ff", "value_hex": ""}        any bytes; both forms may stand in one line
 *
 * Not here: writing JSON, which takes no library (cli_text.c).
 */
#include "cli.h"

#ifdef TAMIS_HAS_JANSSON

#include <jansson.h>

bool
cli_json_is_built(void)
{
    return true;
}

/* The member NAME or NAME_hex; of the latter the digits are decoded where Jansson keeps them. */
static bool
take_member(struct cli_reader *reader, const char *name, tamis_slice *bytes)
{
    json_t *object = reader->object;
    json_t *text = json_object_get(object, name);
    json_t *hex;
    char hex_name[16];
    size_t length;
    size_t error_at;
    char *digits;

    snprintf(hex_name, sizeof hex_name, "%s_hex", name);
    hex = json_object_get(object, hex_name);
    if ((text == NULL) == (hex == NULL) || !json_is_string(text != NULL ? text : hex)) {
        snprintf(reader->problem, sizeof reader->problem,
                 "expected a string \"%s\" or \"%s\", one of them", name, hex_name);
        return false;
    }
    if (text != NULL) {
        *bytes = (tamis_slice){json_string_value(text), json_string_length(text)};
        return true;
    }
    digits = (char *)json_string_value(hex);
    length = json_string_length(hex);
    if (!cli_unhex(digits, &length, &error_at)) {
        snprintf(reader->problem, sizeof reader->problem,
                 "\"%s\": expected pairs of hexadecimal digits, found others at digit %zu",
                 hex_name, error_at + 1);
        return false;
    }
    *bytes = (tamis_slice){digits, length};
    return true;
}

bool
cli_parse_json(struct cli_reader *reader, tamis_slice *key, tamis_slice *value)
{
    json_error_t failure;
    json_t *object =
        json_loadb(reader->text, reader->length, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &failure);

    reader->object = object;
    if (object == NULL) {
        snprintf(reader->problem, sizeof reader->problem, "expected a JSON object; %s at byte %d",
                 failure.text, failure.position);
        return false;
    }
    if (!json_is_object(object) || json_object_size(object) != 2) {
        snprintf(reader->problem, sizeof reader->problem,
                 "expected a JSON object of two members, key and value");
        return false;
    }
    return take_member(reader, "key", key) && take_member(reader, "value", value);
}

void
cli_release_json(struct cli_reader *reader)
{
    json_decref(reader->object); // NULL is allowed
    reader->object = NULL;
}

#else

bool
cli_json_is_built(void)
{
    return false;
}

bool
cli_parse_json(struct cli_reader *reader, tamis_slice *key, tamis_slice *value)
{
    (void)key;
    (void)value;
    snprintf(reader->problem, sizeof reader->problem, "this build reads no JSON");
    return false;
}

void
cli_release_json(struct cli_reader *reader)
{
    (void)reader;
}

#endif
