/* SPDX-License-Identifier: MIT
 *
 * doubling.c - all-reduce by recursive doubling, for any size. Few rounds, whole vectors: for small messages.
 *
 * Source: R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of Collective Communication Operations in MPICH",
 * International Journal of High Performance Computing Applications 19(1), 2005, section 4.
 *
 * Let m be the largest power of two <= n and r = n - m. Of the first 2r positions each even one hands its contribution
 * to its odd neighbour and takes the result from it at the end. The m others are numbered in order and exchange their
 * partial results with the one whose number differs in bit 0, 1, 2, ... So a partial result always covers a contiguous
 * range of positions, two ranges that meet are adjacent, and the lower range is always the left operand: everyone
 * computes the same expression, hence the same bits, also where the operation is not associative.
 *
 * Rounds: log2(m), and 2 more if r > 0. Sends of the busiest position (odd, below 2r): log2(m), 1 more if r > 0; bytes:
 * as many times the vector.
 */
#include "plan/plan.h"

#include "base/bits.h"
#include "plan/fold.h"

static pccl_status add(struct pccl__plan *plan, uint32_t round, uint32_t peer, enum pccl__step_kind kind,
                       bool complete) {
    return pccl__plan_add(
        plan, (struct pccl__step){.peer = peer, .round = round, .kind = (uint8_t)kind, .complete = complete});
}

static pccl_status add_exchanges(struct pccl__plan *plan, uint32_t number, uint32_t folded, uint32_t round) {
    uint32_t power = plan->size - folded;
    for (uint32_t bit = 1; bit < power; bit *= 2, round++) {
        uint32_t peer = fold_position(number ^ bit, folded);
        pccl_status status = add(plan, round, peer, PCCL__SEND, false);
        if (status == PCCL_OK)
            status = add(plan, round, peer, number & bit ? PCCL__REDUCE_LEFT : PCCL__REDUCE_RIGHT, 2 * bit == power);
        if (status != PCCL_OK) return status;
    }
    return PCCL_OK;
}

pccl_status pccl__plan_doubling_all_reduce(uint32_t position, const struct pccl__shape *shape, uint32_t root,
                                           struct pccl__plan *plan) {
    (void)root;
    uint32_t size = shape->size;
    uint32_t power = fold_power(size), folded = size - power;
    uint32_t rounds = log2_ceil(power) + (folded ? 2 : 0);
    pccl_status status = pccl__plan_begin(plan, position, size, 1, rounds);
    if (status != PCCL_OK) return status;
    if (position >= 2 * folded) return add_exchanges(plan, position - folded, folded, folded ? 1 : 0);

    uint32_t neighbour = position ^ 1;
    if (position % 2 == 0) {
        status = add(plan, 0, neighbour, PCCL__SEND, false);
        return status == PCCL_OK ? add(plan, rounds - 1, neighbour, PCCL__COPY, false) : status;
    }
    status = add(plan, 0, neighbour, PCCL__REDUCE_LEFT, false);
    if (status == PCCL_OK) status = add_exchanges(plan, position / 2, folded, 1);
    return status == PCCL_OK ? add(plan, rounds - 1, neighbour, PCCL__SEND, false) : status;
}
