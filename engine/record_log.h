/* SPDX-License-Identifier: MIT
 *
 * engine/record_log.h -- files of records: the framing that logs (*.wal) and manifests share.
 *
 * A file is a row of 32 KiB blocks. A record is cut into fragments that never cross a block border, so that reading finds
 * its feet again behind damage. Less than a header's room at the end of a block is filled with zeros.
 *
 *     fragment   0  8  checksum: XXH3-64 of bytes 8.. to the end of the payload, seeded by (file number, offset of the fragment)
 *                8  2  payload length in bytes
 *               10  1  type: 1 whole record, 2 first, 3 middle, 4 last fragment of one
 *               11  1  0
 *               12  4  file number, low 32 bits
 *               16  8  watermark: number of a file ...
 *               24  8  ... and how many bytes of it were known to be synced when this fragment was written; 0 0: nothing known
 *               32     payload
 *
 * The watermark tells a torn tail from damage. A bad spot that lies below a watermark found in any later sound fragment, of
 * this file or of a successor, was durable once and has changed since: CORRUPT. A bad spot beyond every watermark is
 * what a crash leaves, even when sound fragments follow it (the kernel writes pages in any order): the file is cut there.
 * A watermark that names a later file says that this one was synced to its end.
 *
 * Invariants
 *   L1  A record is returned only if all of its fragments are sound and adjacent.
 *   L2  After a failed append nothing is appended to the file any more.
 *
 * Threads  one owner at a time.   Not here: what records mean (wal.h, manifest.h), what to do about a bad spot (recover.c).
 */
#ifndef TM_ENGINE_RECORD_LOG_H
#define TM_ENGINE_RECORD_LOG_H

#include "sstable/env.h"

enum {
    TM_RECORD_BLOCK_BYTES = 32768,
    TM_RECORD_HEADER_BYTES = 32,
};

/* How far a file is known to be synced. */
struct tm_watermark {
    uint64_t number; // 0: nothing known
    uint64_t offset;
};

struct tm_record_writer {
    const struct tm_env *env;
    tamis_file *file; // borrowed
    uint64_t number;
    uint64_t offset;  // end of the file once the staged bytes are appended
    struct tm_watermark watermark; // goes into the fragments to come
    uint8_t *staging;
    size_t staged_bytes;
    bool failed;      // L2
};

/** Start writing a new, empty file; `file` may be set later, before the first record. TAMIS_OK or TAMIS_NO_MEMORY. */
TAMIS_NODISCARD tamis_status tm_record_writer_init(struct tm_record_writer *writer,
                                                   const struct tm_env *env, tamis_file *file,
                                                   uint64_t number, tamis_error *err);
void tm_record_writer_deinit(struct tm_record_writer *writer); // zeroed allowed
/** Add one record made of pieces. Bytes reach the file at the latest with tm_record_flush(). Status of the file's append. */
TAMIS_NODISCARD tamis_status tm_record_add(struct tm_record_writer *writer,
                                           const tamis_slice *pieces, size_t piece_count,
                                           tamis_error *err);
TAMIS_NODISCARD tamis_status tm_record_flush(struct tm_record_writer *writer, tamis_error *err);

struct tm_record_reader {
    const struct tm_env *env;
    tamis_file *file;     // borrowed
    const char *name;     // borrowed; for messages
    uint64_t number;
    uint64_t
        file_bytes; // as it was opened; less once its writer has closed it and given back what it had reserved
    uint8_t *block;
    uint64_t block_offset;
    size_t block_bytes;   // 0: none loaded
    uint64_t offset;      // of the next fragment
    uint64_t end_offset;  // behind the last whole record
    const char *stop;     // why reading ended, NULL: at the end of the file exactly
    uint64_t stop_offset; // where the first byte that does not belong to a whole record stands
    struct tm_buf record; // joined fragments
};

TAMIS_NODISCARD tamis_status tm_record_reader_init(struct tm_record_reader *reader,
                                                   const struct tm_env *env, tamis_file *file,
                                                   const char *name, uint64_t number,
                                                   uint64_t file_bytes, tamis_error *err);
void tm_record_reader_deinit(struct tm_record_reader *reader);

/**
 * The next record.
 *
 * @param record_out [out] borrowed until the next call
 * @param found_out  [out] false: the end, or a bad spot: `stop` and `stop_offset` tell. Damage is no failure here (L1)
 * @return           TAMIS_OK, TAMIS_IO, TAMIS_NO_MEMORY
 */
TAMIS_NODISCARD tamis_status tm_record_next(struct tm_record_reader *reader,
                                            tamis_slice *record_out, bool *found_out,
                                            tamis_error *err);

/**
 * Look at every sound fragment at or behind `from_offset`, wherever one can be found, and raise *synced_bytes to what their watermarks say
 * of file `number`: a number of bytes, or UINT64_MAX when one names a later file.
 */
TAMIS_NODISCARD tamis_status tm_record_scan_watermarks(struct tm_record_reader *reader,
                                                       uint64_t from_offset, uint64_t number,
                                                       uint64_t *synced_bytes, tamis_error *err);

#endif
