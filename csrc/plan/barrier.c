/* SPDX-License-Identifier: MIT
 *
 * barrier.c - dissemination barrier: nobody ends before everybody has begun.
 *
 * Source: D. Hensgen, R. Finkel, U. Manber, "Two algorithms for barrier synchronization", International Journal of
 * Parallel Programming 17(1), 1988.
 *
 * In round k each position tells the one 2^k ahead of it and hears the one 2^k behind. What it tells includes what it
 * has heard in earlier rounds, so after round k it has heard, directly or not, of the 2^(k+1) - 1 positions behind it.
 *
 * Rounds and sends per position: ceil(log2 n). Bytes: none.
 */
#include "plan/plan.h"

#include "base/bits.h"

pccl_status pccl__plan_dissemination_barrier(uint32_t position, uint32_t size, uint32_t root, struct pccl__plan *plan) {
    (void)root;
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
