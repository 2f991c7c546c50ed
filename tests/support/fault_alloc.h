/* SPDX-License-Identifier: MIT
 *
 * tests/support/fault_alloc.h -- an allocator that counts, checks and fails on demand.
 *
 *   [ size, magic | bytes of the caller ... ]     the size given back is compared with the size asked for
 *
 * A size that is wrong at resize or release, and a block that is not ours, end the test (abort). Released bytes are
 * overwritten. Put a struct fault_alloc in the test's own memory; it must outlive every block.
 *
 * Threads  the allocator from any thread; counters may be read at any time.
 */
#ifndef TAMIS_TESTS_SUPPORT_FAULT_ALLOC_H
#define TAMIS_TESTS_SUPPORT_FAULT_ALLOC_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <tamis/types.h>

struct fault_alloc {
    _Atomic uint64_t call_count;    // allocations and resizes asked for; failed ones count
    _Atomic uint64_t failure_count; // those that were refused
    _Atomic uint64_t live_count;    // blocks not yet released
    _Atomic uint64_t live_bytes;
    _Atomic uint64_t peak_bytes;  // the most that was ever live
    _Atomic uint64_t fail_at;     // refuse call number fail_at (the first is 1); 0: none
    _Atomic bool sticky;          // and every later one
    _Atomic uint64_t limit_bytes; // refuse what would make more bytes live; 0: no limit
};

/** Nothing counted, nothing refused. */
void fault_alloc_init(struct fault_alloc *fault);
/** The allocator to hand to a store. */
tamis_allocator fault_alloc_allocator(struct fault_alloc *fault);
/** Refuse call `nth` from now (1 is the next one), once or from then on; 0 stops refusing. */
void fault_alloc_fail_after(struct fault_alloc *fault, uint64_t nth, bool sticky);

#endif
