/* SPDX-License-Identifier: MIT
 *
 * engine/manifest.h -- which tables and logs make up the store: a file of edits, and CURRENT that names it.
 *
 * A manifest is a file of records (record_log.h). The first one is a snapshot of the whole state, each further one an edit. A
 * record is a row of fields: tag 1 byte | length varint | bytes. Integers inside are varints unless a width is given.
 *
 *     tag 1  header   format version, required features, hash seed (8 bytes), name of the key order (rest); snapshot only
 *     tag 2  next     next file number
 *     tag 3  sequence last sequence that is in tables
 *     tag 4  log      number of the oldest log that is needed; 0: none was made yet
 *     tag 5  log end  log number, its length: where a clean close left it, synced
 *     tag 6  add      level, number, file bytes, unique id (8), data id (8), checksum (8), entries, keys, tombstones, sequence min,
 *                     sequence max, raw bytes, filter bytes, smallest length, smallest, largest length, largest
 *     tag 7  remove   level, number
 *     tag >= 128      may be skipped by a reader that does not know it; any other unknown tag: UNSUPPORTED
 *
 * Invariants
 *   N1  An edit counts once its record is synced. After a failed append or sync nobody knows whether it counts: nothing is
 *       removed, no number is used again, and the file is not appended to any more.
 *   N2  A log named by tag 4 exists durably before the edit that names it.
 *   N3  CURRENT names a manifest whose snapshot is synced.
 *   N4  A killed process may leave the last record, or the switch of CURRENT, readable but not durable. What the last record
 *       makes obsolete may be needed again after a power cut, until a further record or manifest is durable; as long as
 *       there is one record only (not settled), so may all that the manifest before it needs.
 */
#ifndef TM_ENGINE_MANIFEST_H
#define TM_ENGINE_MANIFEST_H

#include "engine/record_log.h"
#include "sstable/table_build.h"

/* One table as an edit knows it. */
struct tm_edit_file {
    uint32_t level;
    uint64_t number;
    struct tm_table_facts facts;
};

struct tm_edit_removal {
    uint32_t level;
    uint64_t number;
};

struct tm_edit {
    bool is_snapshot; // carries the header
    char
        order_name[TM_ORDER_NAME_BYTES_MAX + 1]; // decoded or loaded; that of the env when encoding
    uint64_t hash_seed;
    uint64_t next_file_number; // 0: not in this edit
    uint64_t last_sequence;    // 0: not in this edit
    bool has_log_number;
    uint64_t log_number;
    uint64_t log_end_number;   // 0: not in this edit
    uint64_t log_end_bytes;
    struct tm_edit_file *added; // the arrays may be the caller's own when only encoding
    size_t added_count;
    size_t added_capacity;
    struct tm_edit_removal *removed;
    size_t removed_count;
    size_t removed_capacity;
    // Of a loaded state only (N4); `removed` then holds the removals of the last record.
    bool is_settled;
    uint64_t settled_log_number; // log_number as it was before the last record
};

/** Append the record of `edit` to `buf`. TAMIS_OK or TAMIS_NO_MEMORY. */
TAMIS_NODISCARD tamis_status tm_edit_encode(const struct tm_env *env, const struct tm_edit *edit,
                                            struct tm_buf *buf, tamis_error *err);
/** Decode a record; release with tm_edit_release(). *wrong_out says what is wrong when CORRUPT or UNSUPPORTED is returned; NO_MEMORY. */
TAMIS_NODISCARD tamis_status tm_edit_decode(const struct tm_env *env, tamis_slice record,
                                            struct tm_edit *edit, const char **wrong_out);
void tm_edit_release(const struct tm_env *env, struct tm_edit *edit); // also of a decoded or loaded one

struct tm_manifest {
    const struct tm_env *env;
    tamis_dir *dir;
    tamis_file *file;
    struct tm_record_writer writer;
    uint64_t number;
    uint64_t snapshot_bytes; // length of the file after its first record
};

/** Write a new manifest `number` with `snapshot`, sync it, and point CURRENT to it. *manifest is set on OK only. */
TAMIS_NODISCARD tamis_status tm_manifest_create(struct tm_manifest *manifest,
                                                const struct tm_env *env, tamis_dir *dir,
                                                uint64_t number, const struct tm_edit *snapshot,
                                                tamis_error *err);
/** Append the encoded edit and sync it (N1). */
TAMIS_NODISCARD tamis_status tm_manifest_append(struct tm_manifest *manifest, tamis_slice record,
                                                tamis_error *err);
/** It has grown to a few times its snapshot: time for a new one. */
bool tm_manifest_is_long(const struct tm_manifest *manifest);
void tm_manifest_close(struct tm_manifest *manifest); // zeroed allowed

/**
 * Read CURRENT and the manifest it names.
 *
 * @param state_out  [out] the state as one snapshot edit; release with tm_edit_release()
 * @param number_out [out] number of the manifest
 * @return TAMIS_OK, TAMIS_NOT_FOUND (no CURRENT), TAMIS_INVALID (keys are ordered otherwise than in `env`), TAMIS_CORRUPT,
 *         TAMIS_UNSUPPORTED, TAMIS_IO, TAMIS_NO_MEMORY
 */
TAMIS_NODISCARD tamis_status tm_manifest_load(const struct tm_env *env, tamis_dir *dir,
                                              struct tm_edit *state_out, uint64_t *number_out,
                                              tamis_error *err);

/** Read CURRENT: the number of the manifest it names. Statuses as tm_manifest_load(). */
TAMIS_NODISCARD tamis_status tm_current_read(const struct tm_env *env, tamis_dir *dir,
                                             uint64_t *number_out, tamis_error *err);

#endif
