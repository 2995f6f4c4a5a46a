/* SPDX-License-Identifier: MIT
 *
 * shared_shape.h - what a master does with dead links, for tests of the data plane: an order and a shape that need none
 * of them, drawn from a seed.
 */
#ifndef PCCL_TESTS_SHARED_SHAPE_H
#define PCCL_TESTS_SHARED_SHAPE_H

#include <stdbool.h>
#include <stdint.h>

#include "pccl.h"

enum { SHAPE_MEMBERS_MAX = 8 };

struct shape_draw {
    uint32_t size;
    bool dead[SHAPE_MEMBERS_MAX][SHAPE_MEMBERS_MAX]; /* by rank, symmetric */
    pccl_shape shape;
    uint32_t ring[SHAPE_MEMBERS_MAX], parents[SHAPE_MEMBERS_MAX];
};

/* Fills shape, ring and parents. Returns how many members hang together by living links; fewer than `size` of them: no
 * shape, and `ring` begins with those. */
uint32_t shape_draw(struct shape_draw *draw, uint64_t *random);

#endif
