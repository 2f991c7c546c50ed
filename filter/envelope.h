/* SPDX-License-Identifier: MIT
 *
 * filter/envelope.h -- the 128 bytes behind a body that say what it is and prove it.
 *
 * Invariants
 *   F1  A reader believes no field before the trailer's checksum has matched, and no body before
 *       the body's checksum has matched.
 *   F2  Whatever is odd gives "always true" and a name for the damage; emptiness is a kind of its
 *       own and is never inferred from a length.
 *   F3  Both checksums are seeded with the caller's context, so a trailer or body that belongs to
 *       another place does not match here.
 *   F4  Reserved bytes are written as 0 and refused otherwise, so that a later version may use
 *       them.
 *
 * Threads  pure functions.
 */
#ifndef TM_FILTER_ENVELOPE_H
#define TM_FILTER_ENVELOPE_H

#include <tamis/filter.h>

/** Offsets in the trailer; drawn in envelope.c. */
enum {
    TM_TRAILER_MAGIC = 0,
    TM_TRAILER_VERSION = 4,
    TM_TRAILER_KIND = 5,
    TM_TRAILER_HASH_ID = 6,
    TM_TRAILER_DOMAIN = 7,
    TM_TRAILER_HASH_SEED = 8,
    TM_TRAILER_KEY_COUNT = 16,
    TM_TRAILER_BODY_BYTES = 24,
    TM_TRAILER_LINES_A = 32,
    TM_TRAILER_LINES_B = 40,
    TM_TRAILER_PROBES_A = 48,
    TM_TRAILER_PROBES_B = 49,
    TM_TRAILER_RESERVED_1 = 50, // 2 bytes
    TM_TRAILER_RATE_PPB = 52,
    TM_TRAILER_MILLIBITS = 56,
    TM_TRAILER_RESERVED_2 = 60, // 52 bytes
    TM_TRAILER_BODY_CHECKSUM = 112,
    TM_TRAILER_CHECKSUM = 120,

    TM_FILTER_FORMAT_VERSION = 1,
    TM_FILTER_DOMAIN_WHOLE_KEY = 1, // bit 0: the hashes are of whole user keys
};

#define TM_FILTER_MAGIC UINT32_C(0x31464d54) // bytes 54 4d 46 31, "TMF1"

/** Write the trailer for a body that is complete. `info->bits_per_key_delivered` is not stored. */
void tm_envelope_write(const tamis_filter_info *info, uint64_t context, const uint8_t *body,
                       uint8_t *trailer);

#endif
