/* SPDX-License-Identifier: MIT
 *
 * filter/build.c -- from hashes to a body and its trailer, asked back before it is believed.
 *
 *   hashes --insert--> body --ask back--> trailer of the kind
 *                             \--- no --> trailer of "always true", for an empty body
 *
 * Invariants
 *   U1  No trailer of a kind that can say "no" is written before every hash has been answered
 *       "maybe".
 *   U2  The bytes depend on the set of hashes only, not on their order or on the kernel.
 *
 * Threads  one owner of hashes, body and trailer during the call.
 */
#include <assert.h>
#include <string.h>

#include "filter/envelope.h"
#include "filter/geometry.h"
#include "filter/kernel.h"

bool
tamis_filter_build(const tamis_filter_geometry *geometry, uint64_t *hashes, uint64_t hash_seed,
                   double bits_per_key_requested, double false_positive_rate_target,
                   uint64_t context, uint8_t *body, uint8_t *trailer)
{
    const struct tm_kernel *kernel = tm_kernel_chosen();
    tamis_filter_info info = {
        .geometry = *geometry,
        .hash_seed = hash_seed,
        .bits_per_key_requested = bits_per_key_requested,
        .false_positive_rate_target = false_positive_rate_target,
    };
    tamis_filter filter = {
        .body = body,
        .lines_a = geometry->lines_a,
        .lines_b = geometry->lines_b,
        .kind = (uint8_t)geometry->kind,
        .probes_a = (uint8_t)geometry->probes_a,
        .probes_b = (uint8_t)geometry->probes_b,
    };
    bool sound;

    assert(tm_geometry_is_valid(geometry));
    assert(trailer != NULL && (body != NULL || geometry->body_bytes == 0));
    if (geometry->body_bytes > 0) {
        memset(body, 0, geometry->body_bytes);
        kernel->insert(&filter, body, hashes, geometry->key_count);
    }
    sound = geometry->body_bytes == 0 ||
            kernel->count_maybe(&filter, hashes, geometry->key_count) == geometry->key_count;
    if (!sound) // U1
        info.geometry = (tamis_filter_geometry){.kind = TAMIS_FILTER_ALWAYS_TRUE,
                                                .key_count = geometry->key_count};
    tm_envelope_write(&info, context, body, trailer);
    return sound;
}
