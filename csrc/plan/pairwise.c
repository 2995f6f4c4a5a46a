/* SPDX-License-Identifier: MIT
 *
 * pairwise.c - all-to-all by direct exchange: in round k everyone sends to the position k after it and receives from
 * the one k before it. No byte moves more than once, and nobody is sent to by two at a time.
 *
 * Source: R. Thakur, R. Rabenseifner, W. Gropp (as in doubling.c), section 3.3; there for powers of two by exclusive
 * or, here by difference, which serves every size.
 *
 * Rounds: n-1. Bytes sent by each position: (n-1)/n of the vector (n parts), the lower bound.
 */
#include "plan/plan.h"

pccl_status pccl__plan_pairwise_all_to_all(uint32_t position, const struct pccl__shape *shape, uint32_t root,
                                           struct pccl__plan *plan) {
    (void)root;
    uint32_t size = shape->size;
    pccl_status status = pccl__plan_begin(plan, position, size, size * size, size - 1);
    plan->once = true;
    for (uint32_t k = 1; k < size && status == PCCL_OK; k++) {
        uint32_t to = (position + k) % size, from = (position + size - k) % size;
        status = pccl__plan_add(
            plan, (struct pccl__step){.peer = to, .chunk = position * size + to, .round = k - 1, .kind = PCCL__SEND});
        if (status == PCCL_OK)
            status = pccl__plan_add(
                plan,
                (struct pccl__step){.peer = from, .chunk = from * size + position, .round = k - 1, .kind = PCCL__COPY});
    }
    return status;
}
