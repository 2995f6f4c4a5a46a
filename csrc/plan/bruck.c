/* SPDX-License-Identifier: MIT
 *
 * bruck.c - all-to-all and all-gather in ceil(log2 n) rounds, for any size: for small messages.
 *
 * Source: J. Bruck, C.-T. Ho, S. Kipnis, E. Upfal, D. Weathersby, "Efficient Algorithms for All-to-All Communications
 * in Multiport Message-Passing Systems", IEEE Transactions on Parallel and Distributed Systems 8(11), 1997.
 *
 * all_to_all: a part that must go `far` positions ahead goes there by the powers of two that `far` is the sum of: in
 * round k everyone passes all parts on whose `far` has bit k to the position 2^k ahead. all_gather: in round k everyone
 * has the parts of the 2^k positions from its own onwards, and gives as many as are missing to the one 2^k behind.
 *
 *                rounds          bytes sent by each position
 *   all_to_all   ceil(log2 n)    (sum of the bits set in 1..n-1)/n of the vector (n parts)
 *   all_gather   ceil(log2 n)    (n-1)/n of the vector (n parts), the lower bound
 */
#include "plan/plan.h"

#include "base/bits.h"

/* The parts that are at `position` when round k begins and have bit k in their distance: sent on, or received by the
 * one 2^k ahead. Of such a part, position - (the lower bits of the distance) is the origin. */
static pccl_status pass_on(struct pccl__plan *plan, uint32_t position, uint32_t peer, uint32_t k,
                           enum pccl__step_kind kind) {
    uint32_t size = plan->size, bit = 1u << k;
    pccl_status status = PCCL_OK;
    for (uint32_t far = bit; far < size && status == PCCL_OK; far++) {
        if (!(far & bit)) continue;
        uint32_t done = far & (bit - 1), origin = (position + size - done) % size;
        uint32_t target = (uint32_t)(((uint64_t)origin + far) % size);
        status = pccl__plan_add(
            plan,
            (struct pccl__step){.peer = peer, .chunk = origin * size + target, .round = k, .kind = (uint8_t)kind});
    }
    return status;
}

pccl_status pccl__plan_bruck_all_to_all(uint32_t position, const struct pccl__shape *shape, uint32_t root,
                                        struct pccl__plan *plan) {
    (void)root;
    uint32_t size = shape->size, rounds = log2_ceil(size);
    pccl_status status = pccl__plan_begin(plan, position, size, size * size, rounds);
    plan->once = true;
    for (uint32_t k = 0; k < rounds && status == PCCL_OK; k++) {
        uint32_t ahead = (uint32_t)(((uint64_t)position + (1u << k)) % size),
                 behind = (position + size - (1u << k)) % size;
        status = pass_on(plan, position, ahead, k, PCCL__SEND);
        if (status == PCCL_OK) status = pass_on(plan, behind, behind, k, PCCL__COPY);
    }
    return status;
}

pccl_status pccl__plan_bruck_all_gather(uint32_t position, const struct pccl__shape *shape, uint32_t root,
                                        struct pccl__plan *plan) {
    (void)root;
    uint32_t size = shape->size, rounds = log2_ceil(size);
    pccl_status status = pccl__plan_begin(plan, position, size, size, rounds);
    for (uint32_t k = 0; k < rounds && status == PCCL_OK; k++) {
        uint32_t have = 1u << k, missing = (uint32_t)min_u64(have, size - have);
        uint32_t ahead = (uint32_t)(((uint64_t)position + have) % size), behind = (position + size - have) % size;
        for (uint32_t i = 0; i < missing && status == PCCL_OK; i++)
            status = pccl__plan_add(
                plan,
                (struct pccl__step){.peer = behind, .chunk = (position + i) % size, .round = k, .kind = PCCL__SEND});
        for (uint32_t i = 0; i < missing && status == PCCL_OK; i++)
            status = pccl__plan_add(
                plan, (struct pccl__step){.peer = ahead, .chunk = (ahead + i) % size, .round = k, .kind = PCCL__COPY});
    }
    return status;
}
