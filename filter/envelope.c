/* SPDX-License-Identifier: MIT
 *
 * filter/envelope.c -- writes and reads the trailer; turns bytes from disk into a filter, or
 * refuses.
 *
 *   body                    trailer, 128 bytes, little-endian
 *   +---------------------+-------------------------------------------------------------+
 *   | 64 bytes x lines    | 0  magic 4 | 4 version 1 | 5 kind 1 | 6 hash id 1 | 7 domain 1
 *   | (A, then B)         | 8  hash seed 8          | 16 key count 8
 *   |                     | 24 body bytes 8         | 32 lines A 8    | 40 lines B 8
 *   |                     | 48 probes A 1 | 49 probes B 1 | 50 zero 2
 *   |                     | 52 target rate 4, parts per 10^9 | 56 requested bits 4, thousandths
 *   |                     | 60 zero 52
 *   |                     | 112 body checksum 8     | 120 checksum of 0..119, 8
 *   +---------------------+-------------------------------------------------------------+
 *
 * Invariants F1..F4: envelope.h. The name of a damage is the first of these that fails: magic,
 * trailer checksum, version, kind, hash id, other fields, geometry, body checksum.
 *
 * Not here: where a filter stands in a file and what its context is (the table layer).
 */
#include "filter/envelope.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "filter/bytes.h"
#include "filter/geometry.h"
#include "filter/hash.h"

_Static_assert(TM_TRAILER_CHECKSUM + 8 == TAMIS_FILTER_TRAILER_BYTES, "the checksum comes last");

enum {
    MILLIBITS_MAX = 32000,
    PPB = 1000000000,
};

/* Nearest whole number of `value` in 0..limit; NaN gives 0. */
static uint32_t
rounded_within(double value, uint32_t limit)
{
    if (!(value > 0))
        return 0;
    return value >= limit ? limit : (uint32_t)lround(value);
}

void
tm_envelope_write(const tamis_filter_info *info, uint64_t context, const uint8_t *body,
                  uint8_t *trailer)
{
    const tamis_filter_geometry *geometry = &info->geometry;

    memset(trailer, 0, TAMIS_FILTER_TRAILER_BYTES); // F4
    tm_put_u32(trailer + TM_TRAILER_MAGIC, TM_FILTER_MAGIC);
    trailer[TM_TRAILER_VERSION] = TM_FILTER_FORMAT_VERSION;
    trailer[TM_TRAILER_KIND] = (uint8_t)geometry->kind;
    trailer[TM_TRAILER_HASH_ID] = TM_HASH_ID_XXH3_64;
    trailer[TM_TRAILER_DOMAIN] = TM_FILTER_DOMAIN_WHOLE_KEY;
    tm_put_u64(trailer + TM_TRAILER_HASH_SEED, info->hash_seed);
    tm_put_u64(trailer + TM_TRAILER_KEY_COUNT, geometry->key_count);
    tm_put_u64(trailer + TM_TRAILER_BODY_BYTES, geometry->body_bytes);
    tm_put_u64(trailer + TM_TRAILER_LINES_A, geometry->lines_a);
    tm_put_u64(trailer + TM_TRAILER_LINES_B, geometry->lines_b);
    trailer[TM_TRAILER_PROBES_A] = (uint8_t)geometry->probes_a;
    trailer[TM_TRAILER_PROBES_B] = (uint8_t)geometry->probes_b;
    tm_put_u32(trailer + TM_TRAILER_RATE_PPB,
               rounded_within(info->false_positive_rate_target * PPB, PPB));
    tm_put_u32(trailer + TM_TRAILER_MILLIBITS,
               rounded_within(info->bits_per_key_requested * 1000, MILLIBITS_MAX));
    tm_put_u64(trailer + TM_TRAILER_BODY_CHECKSUM,
               tm_hash64(body, geometry->body_bytes, context)); // F3
    tm_put_u64(trailer + TM_TRAILER_CHECKSUM, tm_hash64(trailer, TM_TRAILER_CHECKSUM, context));
}

static bool
all_zero(const uint8_t *bytes, size_t length)
{
    uint8_t any = 0;

    for (size_t i = 0; i < length; i++)
        any |= bytes[i];
    return any == 0;
}

/* Every check but the body's; fills `info` as far as it gets. */
static tamis_filter_damage
read_trailer(const uint8_t *trailer, uint64_t body_bytes, uint64_t context, tamis_filter_info *info)
{
    tamis_filter_geometry *geometry = &info->geometry;
    uint32_t rate_ppb = tm_get_u32(trailer + TM_TRAILER_RATE_PPB);
    uint32_t millibits = tm_get_u32(trailer + TM_TRAILER_MILLIBITS);

    if (tm_get_u32(trailer + TM_TRAILER_MAGIC) != TM_FILTER_MAGIC)
        return TAMIS_FILTER_BAD_MAGIC;
    if (tm_get_u64(trailer + TM_TRAILER_CHECKSUM) !=
        tm_hash64(trailer, TM_TRAILER_CHECKSUM, context))
        return TAMIS_FILTER_BAD_TRAILER_CHECKSUM; // F1
    if (trailer[TM_TRAILER_VERSION] != TM_FILTER_FORMAT_VERSION)
        return TAMIS_FILTER_BAD_VERSION;
    switch (trailer[TM_TRAILER_KIND]) {
    case TAMIS_FILTER_EMPTY_SET:
    case TAMIS_FILTER_STANDARD:
    case TAMIS_FILTER_BLK512:
    case TAMIS_FILTER_PAIR512:
    case TAMIS_FILTER_ALWAYS_TRUE:
        break;
    default:
        return TAMIS_FILTER_BAD_KIND;
    }
    if (trailer[TM_TRAILER_HASH_ID] != TM_HASH_ID_XXH3_64)
        return TAMIS_FILTER_BAD_HASH_ID;
    if (trailer[TM_TRAILER_DOMAIN] != TM_FILTER_DOMAIN_WHOLE_KEY || rate_ppb > PPB ||
        millibits > MILLIBITS_MAX || !all_zero(trailer + TM_TRAILER_RESERVED_1, 2) ||
        !all_zero(trailer + TM_TRAILER_RESERVED_2, 52))
        return TAMIS_FILTER_BAD_FIELD; // F4

    geometry->kind = (tamis_filter_kind)trailer[TM_TRAILER_KIND];
    geometry->key_count = tm_get_u64(trailer + TM_TRAILER_KEY_COUNT);
    geometry->body_bytes = tm_get_u64(trailer + TM_TRAILER_BODY_BYTES);
    geometry->lines_a = tm_get_u64(trailer + TM_TRAILER_LINES_A);
    geometry->lines_b = tm_get_u64(trailer + TM_TRAILER_LINES_B);
    geometry->probes_a = trailer[TM_TRAILER_PROBES_A];
    geometry->probes_b = trailer[TM_TRAILER_PROBES_B];
    if (geometry->body_bytes != body_bytes || !tm_geometry_is_valid(geometry))
        return TAMIS_FILTER_BAD_GEOMETRY;

    info->hash_seed = tm_get_u64(trailer + TM_TRAILER_HASH_SEED);
    info->bits_per_key_requested = millibits / 1000.0;
    info->false_positive_rate_target = (double)rate_ppb / PPB;
    if (geometry->key_count > 0)
        info->bits_per_key_delivered =
            8.0 * (double)geometry->body_bytes / (double)geometry->key_count;
    return TAMIS_FILTER_SOUND;
}

tamis_filter_damage
tamis_filter_open(const uint8_t *body, uint64_t body_bytes, const uint8_t *trailer,
                  uint64_t context, tamis_filter *filter_out, tamis_filter_info *info_out)
{
    tamis_filter_info info = {.geometry = {.kind = TAMIS_FILTER_ALWAYS_TRUE}};
    tamis_filter_damage damage;

    assert(trailer != NULL && filter_out != NULL);
    assert(body != NULL || body_bytes == 0);
    *filter_out = tamis_filter_always_true(); // F2: what stays unless everything is right
    damage = read_trailer(trailer, body_bytes, context, &info);
    if (damage == TAMIS_FILTER_SOUND &&
        tm_get_u64(trailer + TM_TRAILER_BODY_CHECKSUM) != tm_hash64(body, body_bytes, context))
        damage = TAMIS_FILTER_BAD_BODY_CHECKSUM; // F1
    if (damage != TAMIS_FILTER_SOUND) {
        info = (tamis_filter_info){.geometry = {.kind = TAMIS_FILTER_ALWAYS_TRUE}};
    } else {
        filter_out->body = body_bytes == 0 ? NULL : body;
        filter_out->lines_a = info.geometry.lines_a;
        filter_out->lines_b = info.geometry.lines_b;
        filter_out->kind = (uint8_t)info.geometry.kind;
        filter_out->probes_a = (uint8_t)info.geometry.probes_a;
        filter_out->probes_b = (uint8_t)info.geometry.probes_b;
    }
    if (info_out != NULL)
        *info_out = info;
    return damage;
}

const char *
tamis_filter_damage_name(tamis_filter_damage damage)
{
    switch (damage) {
    case TAMIS_FILTER_SOUND:
        return "sound";
    case TAMIS_FILTER_BAD_MAGIC:
        return "bad magic";
    case TAMIS_FILTER_BAD_TRAILER_CHECKSUM:
        return "bad trailer checksum";
    case TAMIS_FILTER_BAD_VERSION:
        return "unknown version";
    case TAMIS_FILTER_BAD_KIND:
        return "unknown kind";
    case TAMIS_FILTER_BAD_HASH_ID:
        return "unknown hash";
    case TAMIS_FILTER_BAD_FIELD:
        return "bad field";
    case TAMIS_FILTER_BAD_GEOMETRY:
        return "bad geometry";
    case TAMIS_FILTER_BAD_BODY_CHECKSUM:
        return "bad body checksum";
    }
    return "unknown damage";
}
