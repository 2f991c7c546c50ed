/* SPDX-License-Identifier: MIT
 *
 * engine/record_log.c -- write and read files of records. The format is drawn in record_log.h.
 */
#include "engine/record_log.h"

#include <assert.h>

#include "filter/bytes.h"
#include "filter/hash.h"

enum {
    FRAGMENT_WHOLE = 1,
    FRAGMENT_FIRST = 2,
    FRAGMENT_MIDDLE = 3,
    FRAGMENT_LAST = 4,

    // Two blocks: a small record or group is one append, a large one goes out in 64 KiB steps.
    STAGING_BYTES = 2 * TM_RECORD_BLOCK_BYTES,
};

/* A fragment copied to another place or file must not pass. The odd constant spreads the file number over the
 * high bits, which offsets do not reach. */
static uint64_t
fragment_seed(uint64_t number, uint64_t offset)
{
    return number * UINT64_C(0x9e3779b97f4a7c15) ^ offset;
}

/* ---- Writing -------------------------------------------------------------------------------------- */

tamis_status
tm_record_writer_init(struct tm_record_writer *writer, const struct tm_env *env, tamis_file *file,
                      uint64_t number, tamis_error *err)
{
    memset(writer, 0, sizeof *writer);
    writer->staging = tm_alloc(env, STAGING_BYTES);
    if (writer->staging == NULL)
        return TM_NO_MEMORY(err, STAGING_BYTES);
    writer->env = env;
    writer->file = file;
    writer->number = number;
    return TAMIS_OK;
}

void
tm_record_writer_deinit(struct tm_record_writer *writer)
{
    if (writer->env != NULL)
        tm_release(writer->env, writer->staging, STAGING_BYTES);
    memset(writer, 0, sizeof *writer);
}

tamis_status
tm_record_flush(struct tm_record_writer *writer, tamis_error *err)
{
    tamis_slice piece = {writer->staging, writer->staged_bytes};
    tamis_status status;

    if (writer->failed)
        return TM_FAIL(err, TAMIS_IO, "file %llu is not written any more after a failed append",
                       (unsigned long long)writer->number); // L2
    if (writer->staged_bytes == 0)
        return TAMIS_OK;
    status = writer->env->fs->append(writer->env->fs->ctx, writer->file, &piece, 1, err);
    if (status != TAMIS_OK)
        writer->failed = true;
    writer->staged_bytes = 0;
    return status;
}

/* Bytes of pieces [*index][*used...] into `out`, moving on. */
static void
take_bytes(const tamis_slice *pieces, size_t *index, size_t *used, uint8_t *out, size_t length)
{
    while (length > 0) {
        size_t left = pieces[*index].length - *used;
        size_t step = left < length ? left : length;

        if (step != 0)
            memcpy(out, (const uint8_t *)pieces[*index].data + *used, step);
        out += step;
        length -= step;
        *used += step;
        if (*used == pieces[*index].length) {
            *index += 1;
            *used = 0;
        }
    }
}

tamis_status
tm_record_add(struct tm_record_writer *writer, const tamis_slice *pieces, size_t piece_count,
              tamis_error *err)
{
    size_t left = 0;
    size_t index = 0;
    size_t used = 0;
    bool first = true;

    for (size_t i = 0; i < piece_count; i++)
        left += pieces[i].length;
    do {
        size_t room = TM_RECORD_BLOCK_BYTES - (size_t)(writer->offset % TM_RECORD_BLOCK_BYTES);
        size_t length;
        uint8_t *header;

        // A block's worth always fits behind what is kept back.
        if (writer->staged_bytes + TM_RECORD_BLOCK_BYTES > STAGING_BYTES) {
            tamis_status status = tm_record_flush(writer, err);
            if (status != TAMIS_OK)
                return status;
        }
        if (room < TM_RECORD_HEADER_BYTES) {
            memset(writer->staging + writer->staged_bytes, 0, room);
            writer->staged_bytes += room;
            writer->offset += room;
            continue;
        }
        length = room - TM_RECORD_HEADER_BYTES;
        if (length > left)
            length = left;
        header = writer->staging + writer->staged_bytes;
        tm_put_u16(header + 8, (uint16_t)length);
        if (length == left)
            header[10] = first ? FRAGMENT_WHOLE : FRAGMENT_LAST;
        else
            header[10] = first ? FRAGMENT_FIRST : FRAGMENT_MIDDLE;
        header[11] = 0;
        tm_put_u32(header + 12, (uint32_t)writer->number);
        tm_put_u64(header + 16, writer->watermark.number);
        tm_put_u64(header + 24, writer->watermark.offset);
        take_bytes(pieces, &index, &used, header + TM_RECORD_HEADER_BYTES, length);
        tm_put_u64(header, tm_hash64(header + 8, TM_RECORD_HEADER_BYTES - 8 + length,
                                     fragment_seed(writer->number, writer->offset)));
        writer->staged_bytes += TM_RECORD_HEADER_BYTES + length;
        writer->offset += TM_RECORD_HEADER_BYTES + length;
        left -= length;
        if (header[10] == FRAGMENT_WHOLE || header[10] == FRAGMENT_LAST)
            return writer->failed ? tm_record_flush(writer, err) : TAMIS_OK;
        first = false;
    } while (true);
}

/* ---- Reading -------------------------------------------------------------------------------------- */

tamis_status
tm_record_reader_init(struct tm_record_reader *reader, const struct tm_env *env, tamis_file *file,
                      const char *name, uint64_t number, uint64_t file_bytes, tamis_error *err)
{
    memset(reader, 0, sizeof *reader);
    reader->block = tm_alloc(env, TM_RECORD_BLOCK_BYTES);
    if (reader->block == NULL)
        return TM_NO_MEMORY(err, TM_RECORD_BLOCK_BYTES);
    reader->env = env;
    reader->file = file;
    reader->name = name;
    reader->number = number;
    reader->file_bytes = file_bytes;
    return TAMIS_OK;
}

void
tm_record_reader_deinit(struct tm_record_reader *reader)
{
    if (reader->env != NULL) {
        tm_release(reader->env, reader->block, TM_RECORD_BLOCK_BYTES);
        tm_buf_release(reader->env, &reader->record);
    }
    memset(reader, 0, sizeof *reader);
}

static tamis_status
read_block(struct tm_record_reader *reader, uint64_t block_offset, tamis_error *err)
{
    uint64_t left = reader->file_bytes - block_offset;
    size_t length = left < TM_RECORD_BLOCK_BYTES ? (size_t)left : TM_RECORD_BLOCK_BYTES;
    tamis_status status;

    reader->block_bytes = 0;
    status = reader->env->fs->read_at(reader->env->fs->ctx, reader->file, block_offset,
                                      reader->block, length, err);
    if (status != TAMIS_OK)
        return status;
    reader->block_offset = block_offset;
    reader->block_bytes = length;
    return TAMIS_OK;
}

/* The file ends within the block or before it, earlier than when it was opened: its writer has closed it and given back the
 * zeros it had reserved. Find the end by halving. */
static tamis_status
find_new_end(struct tm_record_reader *reader, uint64_t block_offset, tamis_error *err)
{
    const tamis_fs *fs = reader->env->fs;
    uint64_t there = block_offset;         // the block's bytes before this are there
    uint64_t missing = reader->file_bytes; // the byte before this is not

    if (missing > block_offset + TM_RECORD_BLOCK_BYTES)
        missing = block_offset + TM_RECORD_BLOCK_BYTES;
    while (missing - there > 1) {
        uint64_t middle = there + (missing - there) / 2;
        uint8_t byte;
        tamis_status status = fs->read_at(fs->ctx, reader->file, middle - 1, &byte, 1, err);

        if (status == TAMIS_OK)
            there = middle;
        else if (status == TAMIS_CORRUPT)
            missing = middle;
        else
            return status;
    }
    reader->file_bytes = there;
    return TAMIS_OK;
}

/* Have the block that holds `offset` in memory, as far as the file still goes. */
static tamis_status
load_block(struct tm_record_reader *reader, uint64_t offset, tamis_error *err)
{
    uint64_t block_offset = offset - offset % TM_RECORD_BLOCK_BYTES;
    tamis_status status;

    assert(offset < reader->file_bytes);
    if (reader->block_bytes != 0 && reader->block_offset == block_offset)
        return TAMIS_OK;
    status = read_block(reader, block_offset, err);
    if (status != TAMIS_CORRUPT)
        return status;
    status = find_new_end(reader, block_offset, err);
    return status == TAMIS_OK ? read_block(reader, block_offset, err) : status;
}

/* What is wrong with the fragment at `at` of the loaded block, or NULL; *length_out is its payload. */
static const char *
check_fragment(const struct tm_record_reader *reader, size_t at, size_t *length_out)
{
    const uint8_t *header = reader->block + at;
    size_t left = reader->block_bytes - at;
    size_t length;

    if (left < TM_RECORD_HEADER_BYTES)
        return "the file ends within a fragment header";
    length = tm_get_u16(header + 8);
    if (length > left - TM_RECORD_HEADER_BYTES)
        return "a fragment is longer than the bytes that are there";
    if (tm_get_u32(header + 12) != (uint32_t)reader->number)
        return "no fragment of this file";
    if (header[10] < FRAGMENT_WHOLE || header[10] > FRAGMENT_LAST || header[11] != 0)
        return "unknown fragment type";
    if (tm_get_u64(header) != tm_hash64(header + 8, TM_RECORD_HEADER_BYTES - 8 + length,
                                        fragment_seed(reader->number, reader->block_offset + at)))
        return "fragment checksum does not match";
    *length_out = length;
    return NULL;
}

static void
stop_at(struct tm_record_reader *reader, const char *why)
{
    reader->stop = why;
    reader->stop_offset = reader->end_offset;
}

tamis_status
tm_record_next(struct tm_record_reader *reader, tamis_slice *record_out, bool *found_out,
               tamis_error *err)
{
    bool inside = false;

    *found_out = false;
    reader->record.length = 0;
    while (reader->stop == NULL) {
        const uint8_t *header;
        const char *wrong;
        tamis_status status;
        size_t at;
        size_t length = 0;

        if (reader->offset >= reader->file_bytes) {
            if (inside)
                stop_at(reader, "the file ends within a record");
            return TAMIS_OK;
        }
        status = load_block(reader, reader->offset, err);
        if (status != TAMIS_OK)
            return status;
        if (reader->offset >= reader->file_bytes) // less than there was
            continue;
        at = (size_t)(reader->offset - reader->block_offset);
        if (TM_RECORD_BLOCK_BYTES - at < TM_RECORD_HEADER_BYTES) {
            // The filler at the end of a block: its bytes are zeros, and nothing depends on them.
            uint64_t next = reader->block_offset + TM_RECORD_BLOCK_BYTES;
            reader->offset = next < reader->file_bytes ? next : reader->file_bytes;
            continue;
        }
        wrong = check_fragment(reader, at, &length);
        header = reader->block + at;
        if (wrong == NULL) {
            bool starts = header[10] == FRAGMENT_WHOLE || header[10] == FRAGMENT_FIRST;
            if (starts == inside)
                wrong = inside ? "a record begins within another" : "a record without a beginning";
        }
        if (wrong != NULL) {
            stop_at(reader, wrong);
            return TAMIS_OK;
        }
        reader->offset += TM_RECORD_HEADER_BYTES + length;
        if (header[10] == FRAGMENT_WHOLE) {
            *record_out = tm_slice(header + TM_RECORD_HEADER_BYTES, length);
            reader->end_offset = reader->offset;
            *found_out = true;
            return TAMIS_OK;
        }
        inside = true;
        status = tm_buf_append(reader->env, &reader->record, header + TM_RECORD_HEADER_BYTES,
                               length, err);
        if (status != TAMIS_OK)
            return status;
        if (header[10] == FRAGMENT_LAST) {
            *record_out = tm_slice(reader->record.data, reader->record.length);
            reader->end_offset = reader->offset;
            *found_out = true;
            return TAMIS_OK;
        }
    }
    return TAMIS_OK;
}

tamis_status
tm_record_scan_watermarks(struct tm_record_reader *reader, uint64_t from_offset, uint64_t number,
                          uint64_t *synced_bytes, tamis_error *err)
{
    uint64_t offset = from_offset;

    while (offset < reader->file_bytes) {
        tamis_status status = load_block(reader, offset, err);
        size_t at;

        if (status != TAMIS_OK)
            return status;
        at = (size_t)(offset - reader->block_offset);
        while (at + TM_RECORD_HEADER_BYTES <= reader->block_bytes) {
            size_t length = 0;

            if (check_fragment(reader, at, &length) != NULL) {
                at++;
                continue;
            }
            if (tm_get_u64(reader->block + at + 16) > number)
                *synced_bytes = UINT64_MAX;
            else if (tm_get_u64(reader->block + at + 16) == number &&
                     tm_get_u64(reader->block + at + 24) > *synced_bytes)
                *synced_bytes = tm_get_u64(reader->block + at + 24);
            at += TM_RECORD_HEADER_BYTES + length;
        }
        offset = reader->block_offset + TM_RECORD_BLOCK_BYTES;
    }
    return TAMIS_OK;
}
