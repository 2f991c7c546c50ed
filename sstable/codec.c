/* SPDX-License-Identifier: MIT
 *
 * sstable/codec.c -- seal and load stored blocks. The only file that includes LZ4.
 */
#include "sstable/codec.h"

#include <inttypes.h>
#include <lz4.h>

#include "filter/bytes.h"
#include "filter/hash.h"

// LZ4 finds nothing in less; its own format ends in 12 literal bytes.
enum { COMPRESS_BYTES_MIN = 32 };
// No LZ4 payload unpacks to more than this many times its size, so no forged length asks for more memory.
enum { LZ4_RATIO_MAX = 255 };

uint64_t
tm_place_seed(uint64_t id, uint64_t offset)
{
    uint8_t bytes[16];

    tm_put_u64(bytes, id);
    tm_put_u64(bytes + 8, offset);
    return tm_hash64(bytes, sizeof bytes, 0);
}

const char *
tm_block_kind_name(enum tm_block_kind kind)
{
    switch (kind) {
    case TM_BLOCK_DATA:
        return "data block";
    case TM_BLOCK_INDEX_LEAF:
        return "index leaf";
    case TM_BLOCK_INDEX_TOP:
        return "index top";
    case TM_BLOCK_PROPERTIES:
        return "properties";
    }
    return "block of unknown kind";
}

tamis_status
tm_block_seal(const struct tm_env *env, const struct tm_place *place, struct tm_buf *block,
              struct tm_buf *scratch, bool compress, tamis_slice *stored_out,
              uint64_t *checksum_out, tamis_error *err)
{
    size_t unpacked = block->length;
    enum tm_codec codec = TM_CODEC_RAW;
    struct tm_buf *stored = block;
    tamis_status status;
    uint8_t *trailer;

    assert(unpacked <= TM_BLOCK_BYTES_MAX);
    if (compress && unpacked >= COMPRESS_BYTES_MIN) {
        size_t limit = unpacked - unpacked / 8;
        int packed;

        scratch->length = 0;
        status = tm_buf_reserve(env, scratch, limit + TM_TRAILER_BYTES, err);
        if (status != TAMIS_OK)
            return status;
        packed = LZ4_compress_default((const char *)block->data, (char *)scratch->data,
                                      (int)unpacked, (int)limit);
        if (packed > 0) { // 0: does not fit below the limit, so it saves too little
            scratch->length = (size_t)packed;
            stored = scratch;
            codec = TM_CODEC_LZ4;
        }
    }
    status = tm_buf_reserve(env, stored, TM_TRAILER_BYTES, err);
    if (status != TAMIS_OK)
        return status;
    trailer = stored->data + stored->length;
    tm_put_u32(trailer + TM_TRAILER_UNPACKED_AT, (uint32_t)unpacked);
    trailer[TM_TRAILER_CODEC_AT] = (uint8_t)codec;
    trailer[TM_TRAILER_KIND_AT] = (uint8_t)place->kind;
    tm_put_u16(trailer + TM_TRAILER_ZERO_AT, 0);
    *checksum_out = tm_hash64(stored->data, stored->length + TM_TRAILER_CHECKSUM_AT,
                              tm_place_seed(place->id, place->offset));
    tm_put_u64(trailer + TM_TRAILER_CHECKSUM_AT, *checksum_out);
    stored->length += TM_TRAILER_BYTES;
    *stored_out = tm_slice(stored->data, stored->length);
    return TAMIS_OK;
}

static tamis_status
check_length(const struct tm_place *place, uint64_t stored_bytes, tamis_error *err)
{
    if (stored_bytes < TM_TRAILER_BYTES || stored_bytes > TM_BLOCK_BYTES_MAX + TM_TRAILER_BYTES)
        return TM_FAIL(err, TAMIS_CORRUPT,
                       "%s: %s at %" PRIu64 ": expected %d to %" PRIu64
                       " stored bytes, found %" PRIu64,
                       place->file, tm_block_kind_name(place->kind), place->offset,
                       TM_TRAILER_BYTES, TM_BLOCK_BYTES_MAX + TM_TRAILER_BYTES, stored_bytes);
    return TAMIS_OK;
}

/* Compare the checksum, then the trailer's fields with the place and with each other (C2). */
static tamis_status
verify_stored(const struct tm_place *place, const uint8_t *stored, uint64_t stored_bytes,
              enum tm_codec *codec_out, uint32_t *unpacked_out, tamis_error *err)
{
    uint64_t payload = stored_bytes - TM_TRAILER_BYTES;
    const uint8_t *trailer = stored + payload;
    uint64_t expected = tm_get_u64(trailer + TM_TRAILER_CHECKSUM_AT);
    uint64_t found = tm_hash64(stored, payload + TM_TRAILER_CHECKSUM_AT,
                               tm_place_seed(place->id, place->offset));
    uint32_t unpacked = tm_get_u32(trailer + TM_TRAILER_UNPACKED_AT);
    uint8_t codec = trailer[TM_TRAILER_CODEC_AT];
    uint8_t kind = trailer[TM_TRAILER_KIND_AT];

    if (found != expected)
        return TM_FAIL(err, TAMIS_CORRUPT,
                       "%s: %s at %" PRIu64 ", %" PRIu64 " bytes: checksum expected %016" PRIx64
                       ", found %016" PRIx64,
                       place->file, tm_block_kind_name(place->kind), place->offset, stored_bytes,
                       expected, found);
    if (kind != place->kind)
        return TM_FAIL(err, TAMIS_CORRUPT,
                       "%s: block at %" PRIu64 ": kind expected %u (%s), found %u", place->file,
                       place->offset, (unsigned)place->kind, tm_block_kind_name(place->kind), kind);
    if (codec > TM_CODEC_LZ4 || tm_get_u16(trailer + TM_TRAILER_ZERO_AT) != 0)
        return TM_FAIL(err, TAMIS_CORRUPT,
                       "%s: %s at %" PRIu64 ": codec expected 0 or 1 and two zeros, found %u",
                       place->file, tm_block_kind_name(place->kind), place->offset, codec);
    if (codec == TM_CODEC_RAW ? unpacked != payload
                              : unpacked > payload * LZ4_RATIO_MAX || payload > unpacked)
        return TM_FAIL(err, TAMIS_CORRUPT,
                       "%s: %s at %" PRIu64 ": codec %u, payload of %" PRIu64
                       " bytes, found an unpacked length of %" PRIu32,
                       place->file, tm_block_kind_name(place->kind), place->offset, codec, payload,
                       unpacked);
    *codec_out = (enum tm_codec)codec;
    *unpacked_out = unpacked;
    return TAMIS_OK;
}

/* The block in an LZ4 payload that was verified. */
static tamis_status
unpack(const struct tm_env *env, const struct tm_place *place, const uint8_t *stored,
       uint64_t stored_bytes, uint32_t unpacked_bytes, struct tm_block **block_out,
       tamis_error *err)
{
    struct tm_block *block = tm_block_create(env, unpacked_bytes);

    if (block == NULL)
        return TM_NO_MEMORY(err, unpacked_bytes);
    if (LZ4_decompress_safe((const char *)stored, (char *)block->data,
                            (int)(stored_bytes - TM_TRAILER_BYTES),
                            (int)unpacked_bytes) != (int)unpacked_bytes) {
        tm_block_unref(block);
        return TM_FAIL(err, TAMIS_CORRUPT,
                       "%s: %s at %" PRIu64 ": LZ4 payload expected to unpack to %" PRIu32
                       " bytes, found otherwise",
                       place->file, tm_block_kind_name(place->kind), place->offset, unpacked_bytes);
    }
    *block_out = block;
    return TAMIS_OK;
}

tamis_status
tm_block_load(const struct tm_env *env, tamis_file *file, const struct tm_place *place,
              uint64_t stored_bytes, struct tm_block **block_out, uint64_t *checksum_out,
              tamis_error *err)
{
    struct tm_block *stored = NULL; // owned until handed over
    enum tm_codec codec = TM_CODEC_RAW;
    uint32_t unpacked_bytes = 0;
    tamis_status status;

    status = check_length(place, stored_bytes, err);
    if (status != TAMIS_OK)
        return status;
    stored = tm_block_create(env, (size_t)stored_bytes);
    if (stored == NULL)
        return TM_NO_MEMORY(err, (size_t)stored_bytes);
    status = env->fs->read_at(env->fs->ctx, file, place->offset, stored->data, (size_t)stored_bytes,
                              err);
    if (status != TAMIS_OK)
        goto out;
    status = verify_stored(place, stored->data, stored_bytes, &codec, &unpacked_bytes, err);
    if (status != TAMIS_OK)
        goto out;
    if (checksum_out != NULL)
        *checksum_out = tm_get_u64(stored->data + stored_bytes - 8);

    if (codec == TM_CODEC_RAW) {
        stored->length = unpacked_bytes; // the trailer stays behind it, out of sight
        *block_out = stored;
        stored = NULL;
        goto out;
    }
    status = unpack(env, place, stored->data, stored_bytes, unpacked_bytes, block_out, err);

out:
    tm_block_unref(stored);
    return status;
}

tamis_status
tm_block_take(const struct tm_env *env, const struct tm_place *place, const uint8_t *stored,
              uint64_t stored_bytes, struct tm_block **block_out, tamis_error *err)
{
    struct tm_block *block;
    enum tm_codec codec = TM_CODEC_RAW;
    uint32_t unpacked_bytes = 0;
    tamis_status status;

    status = check_length(place, stored_bytes, err);
    if (status == TAMIS_OK)
        status = verify_stored(place, stored, stored_bytes, &codec, &unpacked_bytes, err);
    if (status != TAMIS_OK)
        return status;
    if (codec == TM_CODEC_LZ4)
        return unpack(env, place, stored, stored_bytes, unpacked_bytes, block_out, err);
    block = tm_block_create(env, unpacked_bytes);
    if (block == NULL)
        return TM_NO_MEMORY(err, unpacked_bytes);
    memcpy(block->data, stored, unpacked_bytes);
    *block_out = block;
    return TAMIS_OK;
}
