/* SPDX-License-Identifier: MIT
 *
 * sstable/pieces.h -- eight bytes of a key as a number, and the search in a node of up to 32 of them.
 *
 *     key    u s e r : 0 0 0 1 2 3 4 5         piece   the 8 bytes behind what the node's keys share, as a big-endian
 *            shared   |<-- piece  -->|                 number; zeros behind a key that ends before
 *
 * Invariants
 *   P1  Of two keys with the same shared bytes, the smaller has the smaller or the same piece: where pieces differ they
 *       decide, where they are equal whole keys do.
 *   P2  All kernels give the same answers, and read nothing at or behind `count` (tests/sstable/test_pieces.c): a writer may be
 *       filling the next place meanwhile.
 *
 *   pieces.c          any machine, and the choice
 *   pieces_avx2.c     x86-64 with AVX2        compiled with their own flags, so that none of their
 *   pieces_avx512.c   x86-64 with AVX-512     instructions gets into what all machines run
 */
#ifndef TM_SSTABLE_PIECES_H
#define TM_SSTABLE_PIECES_H

#include <stdint.h>

#include <tamis/types.h>

enum { TM_NODE_PIECES = 32 }; // what one search looks at; one bit of a mask each

/** The piece of `key` behind its first `skipped` bytes, which it has. */
static inline uint64_t
tm_piece(tamis_slice key, size_t skipped)
{
    const uint8_t *p = (const uint8_t *)key.data + skipped;
    size_t length = key.length - skipped;
    uint64_t piece = 0;

    if (length >= 8) {
        for (int i = 0; i < 8; i++) // compilers make one load and a byte swap of it
            piece = piece << 8 | p[i];
        return piece;
    }
    for (size_t i = 0; i < length; i++)
        piece |= (uint64_t)p[i] << (56 - 8 * i);
    return piece;
}

/* Bit i of an answer speaks for pieces[i]; `count` is at most TM_NODE_PIECES. Alignment: that of a number. */
struct tm_pieces_kernel {
    const char *name;
    uint32_t (*equal)(const uint64_t *pieces, uint32_t count, uint64_t piece);
    uint32_t (*at_most)(const uint64_t *pieces, uint32_t count, uint64_t piece);
};

extern const struct tm_pieces_kernel tm_pieces_scalar;
#ifdef TM_SIMD_X86
extern const struct tm_pieces_kernel tm_pieces_avx2;
extern const struct tm_pieces_kernel tm_pieces_avx512;
#endif

/** The kernel in use: chosen before main(); whoever asks earlier gets the scalar one, which is right too. */
const struct tm_pieces_kernel *tm_pieces_chosen(void);

/** Kernels that this machine can run, scalar first, best last; NULL when `index` is past them. */
const struct tm_pieces_kernel *tm_pieces_usable(size_t index);

#endif
