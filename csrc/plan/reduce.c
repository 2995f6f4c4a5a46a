/* SPDX-License-Identifier: MIT
 *
 * reduce.c - all vectors into one position's: along a chain for large ones, up a binomial tree for small ones. The
 * inverse of broadcast.c, whose sources it has.
 *
 * Both work on distances from the root around the ring; there is one chunk. On the chain the farthest but one, distance
 * 1, begins, and each adds its own on the right, the root last. On the tree a position at distance d adds up the 2^k
 * from itself onwards.
 *               rounds          bytes moved by the busiest
 *   chain       n-1             the vector
 *   binomial    ceil(log2 n)    as many times the vector (the root receives them)
 */
#include "plan/plan.h"

#include "base/bits.h"

static uint32_t distance(uint32_t position, uint32_t size, uint32_t root) { return (position + size - root) % size; }

static uint32_t at_distance(uint32_t far, uint32_t size, uint32_t root) {
    return (uint32_t)(((uint64_t)root + far) % size);
}

pccl_status pccl__plan_chain_reduce(uint32_t position, const struct pccl__shape *shape, uint32_t root,
                                    struct pccl__plan *plan) {
    uint32_t size = shape->size;
    if (root >= size) return PCCL_INVALID;
    pccl_status status = pccl__plan_begin(plan, position, size, 1, size - 1);
    uint32_t far = distance(position, size, root), turn = far ? far : size;
    if (status == PCCL_OK && turn > 1)
        status = pccl__plan_add(plan, (struct pccl__step){.peer = at_distance(turn - 1, size, root),
                                                          .round = turn - 2,
                                                          .kind = PCCL__REDUCE_LEFT,
                                                          .complete = far == 0});
    if (status == PCCL_OK && far > 0)
        status = pccl__plan_add(
            plan, (struct pccl__step){.peer = at_distance(far + 1, size, root), .round = far - 1, .kind = PCCL__SEND});
    return status;
}

pccl_status pccl__plan_binomial_reduce(uint32_t position, const struct pccl__shape *shape, uint32_t root,
                                       struct pccl__plan *plan) {
    uint32_t size = shape->size;
    if (root >= size) return PCCL_INVALID;
    uint32_t rounds = log2_ceil(size), far = distance(position, size, root);
    pccl_status status = pccl__plan_begin(plan, position, size, 1, rounds);
    for (uint32_t k = 0; status == PCCL_OK && k < rounds; k++) {
        uint64_t step = UINT64_C(1) << k;
        if (far & step)
            return pccl__plan_add(plan, (struct pccl__step){.peer = at_distance(far - (uint32_t)step, size, root),
                                                            .round = k,
                                                            .kind = PCCL__SEND});
        if (far + step < size)
            status = pccl__plan_add(plan, (struct pccl__step){.peer = at_distance(far + (uint32_t)step, size, root),
                                                              .round = k,
                                                              .kind = PCCL__REDUCE_RIGHT,
                                                              .complete = far == 0 && k + 1 == rounds});
    }
    return status;
}
