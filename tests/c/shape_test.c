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

/* Hosts count where each one's positions stand together, as on the ring of a master that knows no dead link. */
static void hosts(void) {
    const uint64_t together[] = {7, 7, 9, 3, 3, 3}, torn[] = {7, 9, 7, 3, 3, 3}, around[] = {7, 9, 9, 9, 9, 7};
    struct pccl__shape shape = {0};
    EXPECT(pccl__shape_init(&shape, PCCL_SHAPE_FULL, 6, NULL) == PCCL_OK);
    EXPECT(pccl__shape_hosts(&shape) == 1 && pccl__shape_host_begin(&shape, 1) == 6 && shape.host_least == 6);
    EXPECT(pccl__shape_set_hosts(&shape, torn) == PCCL_OK && shape.hosts == 0);
    EXPECT(pccl__shape_set_hosts(&shape, around) == PCCL_OK && shape.hosts == 0);
    EXPECT(pccl__shape_set_hosts(&shape, together) == PCCL_OK && shape.hosts == 3);
    EXPECT(shape.host_begins[1] == 2 && shape.host_begins[2] == 3 && shape.host_begins[3] == 6);
    EXPECT(shape.host_least == 1 && shape.host_most == 3);
    EXPECT(pccl__shape_host_begin(&shape, 2) == 3 && pccl__shape_host_begin(&shape, 3) == 6);
    pccl__shape_free(&shape);
    EXPECT(shape.host_begins == NULL && shape.hosts == 0);
}

int main(void) {
    bad_shapes();
    hosts();
    FINISH();
}
