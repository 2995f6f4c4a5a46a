/* SPDX-License-Identifier: MIT
 *
 * fold.h - how algorithms for powers of two serve any size n: of the first 2r positions, r = n - m with the largest
 * power of two m <= n, each even one leaves its work to its odd neighbour. The m that go on are numbered in order.
 */
#ifndef PCCL_PLAN_FOLD_H
#define PCCL_PLAN_FOLD_H

#include <stdint.h>

/* m; of size 0, which pccl__plan_begin will refuse, 1. */
static inline uint32_t fold_power(uint32_t size) { return 1u << (31 - (uint32_t)__builtin_clz(size | 1)); }

/* The position of the one with this number; `folded` is r. */
static inline uint32_t fold_position(uint32_t number, uint32_t folded) {
    return number < folded ? 2 * number + 1 : number + folded;
}
/* The number of this position, or of its pair. */
static inline uint32_t fold_number(uint32_t position, uint32_t folded) {
    return position < 2 * folded ? position / 2 : position - folded;
}

#endif
