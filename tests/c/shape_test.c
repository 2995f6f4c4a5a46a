/* SPDX-License-Identifier: MIT
 *
 * shape_test.c - what a tree must be, and what a shape knows of it.
 */
#include "plan/shape.h"

#include "check.h"

static void bad_shapes(void) {
    struct pccl__shape shape = {0};
    const uint32_t good[] = {0, 0, 1, 1, 0}, no_root[] = {1, 0, 1, 1, 0}, forward[] = {0, 2, 1, 1, 0},
                   not_above[] = {0, 0, 0, 1, 0};
    EXPECT(pccl__shape_init(&shape, PCCL_SHAPE_TREE, 5, no_root) == PCCL_INVALID);
    EXPECT(pccl__shape_init(&shape, PCCL_SHAPE_TREE, 5, forward) == PCCL_INVALID);
    EXPECT(pccl__shape_init(&shape, PCCL_SHAPE_TREE, 5, not_above) == PCCL_INVALID, "3 is no longer below 1");
    EXPECT(pccl__shape_init(&shape, PCCL_SHAPE_TREE, 5, NULL) == PCCL_INVALID);
    EXPECT(pccl__shape_init(&shape, PCCL_SHAPE_FULL, 0, NULL) == PCCL_INVALID);
    EXPECT(pccl__shape_init(&shape, PCCL_SHAPE_COUNT, 5, good) == PCCL_INVALID);
    EXPECT(pccl__shape_init(&shape, PCCL_SHAPE_TREE, 5, good) == PCCL_OK);
    EXPECT(shape.ends[0] == 5 && shape.ends[1] == 4 && shape.ends[4] == 5);
    EXPECT(shape.depth[3] == 2 && shape.below[0] == 2 && shape.below[1] == 1);
    EXPECT(shape.beyond[1] == 1 && shape.beyond[2] == 2 && shape.beyond[4] == 2);
    EXPECT(shape.degree == 3 && shape.diameter == 3);
    EXPECT(pccl__shape_joins(&shape, 1, 3) && pccl__shape_joins(&shape, 4, 0) && !pccl__shape_joins(&shape, 2, 3));
    pccl__shape_free(&shape);
    EXPECT(pccl__shape_init(&shape, PCCL_SHAPE_RING, 5, NULL) == PCCL_OK);
    EXPECT(pccl__shape_joins(&shape, 4, 0) && pccl__shape_joins(&shape, 1, 2) && !pccl__shape_joins(&shape, 0, 2));
}

int main(void) {
    bad_shapes();
    FINISH();
}
