/* SPDX-License-Identifier: MIT
 *
 * barrier.c - nobody ends before everybody has begun: among all positions, or around a ring.
 *
 * Source of the dissemination barrier: D. Hensgen, R. Finkel, U. Manber, "Two algorithms for barrier synchronization",
 * International Journal of Parallel Programming 17(1), 1988.
 *
 * In round k each position tells the one 2^k ahead of it and hears the one 2^k behind. What it tells includes what it
 * has heard in earlier rounds, so after round k it has heard, directly or not, of the 2^(k+1) - 1 positions behind it.
 *
 * Around the ring each position tells both neighbours in each round, and so has heard of k more on either side.
 *
 *                   rounds          sends per position
 *   dissemination   ceil(log2 n)    ceil(log2 n)
 *   ring            n/2             n (of two positions: 1)
 * Bytes: none.
 */
#include "plan/plan.h"

#include "base/bits.h"

pccl_status pccl__plan_dissemination_barrier(uint32_t position, const struct pccl__shape *shape, uint32_t root,
                                             struct pccl__plan *plan) {
    (void)root;
    uint32_t size = shape->size;
    uint32_t rounds = log2_ceil(size);
    pccl_status status = pccl__plan_begin(plan, position, size, 1, rounds);
    for (uint32_t k = 0; status == PCCL_OK && k < rounds; k++) {
        uint64_t step = UINT64_C(1) << k;
        uint32_t ahead = (uint32_t)((position + step) % size);
        uint32_t behind = (uint32_t)((position + size - step) % size);
        status = pccl__plan_add(plan, (struct pccl__step){.peer = ahead, .round = k, .kind = PCCL__SEND});
        if (status == PCCL_OK)
            status = pccl__plan_add(plan, (struct pccl__step){.peer = behind, .round = k, .kind = PCCL__COPY});
    }
    return status;
}

pccl_status pccl__plan_ring_barrier(uint32_t position, const struct pccl__shape *shape, uint32_t root,
                                    struct pccl__plan *plan) {
    (void)root;
    uint32_t size = shape->size, rounds = size / 2;
    pccl_status status = pccl__plan_begin(plan, position, size, 1, rounds);
    if (status != PCCL_OK) return status;
    uint32_t neighbours[] = {(position + 1) % size, (position + size - 1) % size};
    uint32_t steps = 2 * (size > 2 ? 2 : 1); /* sends first; two positions are each other's only neighbour */
    for (uint32_t i = 0; status == PCCL_OK && i < rounds * steps; i++) {
        uint32_t step = i % steps, kind = step < steps / 2 ? PCCL__SEND : PCCL__COPY;
        status = pccl__plan_add(
            plan,
            (struct pccl__step){.peer = neighbours[step % (steps / 2)], .round = i / steps, .kind = (uint8_t)kind});
    }
    return status;
}
