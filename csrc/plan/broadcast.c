/* SPDX-License-Identifier: MIT
 *
 * broadcast.c - one position's vector to all: along a chain for large ones, down a binomial tree for small ones.
 *
 * Sources: the chain is the pipeline of J. Watts, R. van de Geijn, "A Pipelined Broadcast for Multidimensional Meshes",
 * Parallel Processing Letters 5(2), 1995; the executor's segments make the pipeline. The tree: R. Thakur, R.
 * Rabenseifner, W. Gropp (as in doubling.c), section 3.2.
 *
 * Both work on distances from the root around the ring; there is one chunk.
 *               rounds          sends of the busiest   its bytes
 *   chain       n-1             1                      the vector
 *   binomial    ceil(log2 n)    ceil(log2 n)           as many times the vector
 */
#include "plan/plan.h"

#include "base/bits.h"
#include "plan/around.h"

pccl_status pccl__plan_chain_broadcast(uint32_t position, const struct pccl__shape *shape, uint32_t root,
                                       struct pccl__plan *plan) {
    uint32_t size = shape->size;
    if (root >= size) return PCCL_INVALID;
    pccl_status status = pccl__plan_begin(plan, position, size, 1, size - 1);
    uint32_t far = distance(position, size, root);
    if (status == PCCL_OK && far > 0)
        status = pccl__plan_add(
            plan, (struct pccl__step){.peer = at_distance(far - 1, size, root), .round = far - 1, .kind = PCCL__COPY});
    if (status == PCCL_OK && far + 1 < size)
        status = pccl__plan_add(
            plan, (struct pccl__step){.peer = at_distance(far + 1, size, root), .round = far, .kind = PCCL__SEND});
    return status;
}

/* In round k everyone nearer than 2^k has the vector and gives it to the one 2^k farther. */
pccl_status pccl__plan_binomial_broadcast(uint32_t position, const struct pccl__shape *shape, uint32_t root,
                                          struct pccl__plan *plan) {
    uint32_t size = shape->size;
    if (root >= size) return PCCL_INVALID;
    uint32_t rounds = log2_ceil(size);
    pccl_status status = pccl__plan_begin(plan, position, size, 1, rounds);
    uint32_t far = distance(position, size, root);
    for (uint32_t k = 0; status == PCCL_OK && k < rounds; k++) {
        uint64_t step = UINT64_C(1) << k;
        if (far < step && far + step < size)
            status = pccl__plan_add(plan, (struct pccl__step){.peer = at_distance(far + (uint32_t)step, size, root),
                                                              .round = k,
                                                              .kind = PCCL__SEND});
        else if (far >= step && far < 2 * step)
            status = pccl__plan_add(plan, (struct pccl__step){.peer = at_distance(far - (uint32_t)step, size, root),
                                                              .round = k,
                                                              .kind = PCCL__COPY});
    }
    return status;
}
