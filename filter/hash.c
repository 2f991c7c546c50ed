/* SPDX-License-Identifier: MIT
 *
 * filter/hash.c -- the hash of hash.h as an exported function, for users of the library.
 *
 * Not here: anything else. Code of the library itself calls tm_hash64() and gets it inlined.
 */
#include "filter/hash.h"

#include <tamis/filter.h>

uint64_t
tamis_hash64(const void *bytes, size_t length, uint64_t seed)
{
    return tm_hash64(bytes, length, seed);
}
