/* SPDX-License-Identifier: MIT
 *
 * scan.c - prefix reductions in rank order: along a chain for large vectors, by doubling distances for small ones.
 *
 * Source of the doubling: W. D. Hillis, G. L. Steele, "Data Parallel Algorithms", Communications of the ACM 29(12),
 * 1986.
 *
 * There is one chunk. What a position holds covers the ranks from some one to its own, and what it receives
 * those just before, so that is always the left operand. In exscan everyone first gives its vector to the next rank,
 * where it takes the place of the own one; then the ranks from 1 on do a scan, which brings each what all before it
 * gave.
 *
 *                     rounds              bytes sent by the busiest
 *   scan    chain     n-1                 the vector
 *   scan    doubling  ceil(log2 n)        as many times the vector
 *   exscan  chain     n-1                 twice the vector
 *   exscan  doubling  1 + ceil(log2(n-1)) as many times the vector
 */
#include "plan/plan.h"

#include "base/bits.h"

static pccl_status add(struct pccl__plan *plan, uint32_t round, uint32_t peer, enum pccl__step_kind kind) {
    return pccl__plan_add(plan, (struct pccl__step){.peer = peer, .round = round, .kind = (uint8_t)kind});
}

/* Positions from `first` on scan. */
static pccl_status chain(struct pccl__plan *plan, uint32_t first, uint32_t round) {
    uint32_t position = plan->position, turn = position - first;
    if (position < first) return PCCL_OK;
    pccl_status status = PCCL_OK;
    if (turn > 0) status = add(plan, round + turn - 1, position - 1, PCCL__REDUCE_LEFT);
    if (status == PCCL_OK && position + 1 < plan->size) status = add(plan, round + turn, position + 1, PCCL__SEND);
    return status;
}

static pccl_status doubling(struct pccl__plan *plan, uint32_t first, uint32_t round) {
    uint32_t position = plan->position;
    pccl_status status = PCCL_OK;
    for (uint32_t far = 1; position >= first && far < plan->size - first && status == PCCL_OK; far *= 2, round++) {
        if (far < plan->size - position) status = add(plan, round, position + far, PCCL__SEND);
        if (status == PCCL_OK && position - first >= far) status = add(plan, round, position - far, PCCL__REDUCE_LEFT);
    }
    return status;
}

/* exscan's first round. */
static pccl_status shift(struct pccl__plan *plan) {
    uint32_t position = plan->position;
    pccl_status status = PCCL_OK;
    if (position + 1 < plan->size) status = add(plan, 0, position + 1, PCCL__SEND);
    if (status == PCCL_OK && position > 0) status = add(plan, 0, position - 1, PCCL__COPY);
    return status;
}

pccl_status pccl__plan_chain_scan(uint32_t position, const struct pccl__shape *shape, uint32_t root,
                                  struct pccl__plan *plan) {
    (void)root;
    pccl_status status = pccl__plan_begin(plan, position, shape->size, 1, shape->size - 1);
    return status == PCCL_OK ? chain(plan, 0, 0) : status;
}

pccl_status pccl__plan_doubling_scan(uint32_t position, const struct pccl__shape *shape, uint32_t root,
                                     struct pccl__plan *plan) {
    (void)root;
    pccl_status status = pccl__plan_begin(plan, position, shape->size, 1, log2_ceil(shape->size));
    return status == PCCL_OK ? doubling(plan, 0, 0) : status;
}

pccl_status pccl__plan_chain_exscan(uint32_t position, const struct pccl__shape *shape, uint32_t root,
                                    struct pccl__plan *plan) {
    (void)root;
    pccl_status status = pccl__plan_begin(plan, position, shape->size, 1, shape->size - 1);
    if (status == PCCL_OK) status = shift(plan);
    return status == PCCL_OK ? chain(plan, 1, 1) : status;
}

pccl_status pccl__plan_doubling_exscan(uint32_t position, const struct pccl__shape *shape, uint32_t root,
                                       struct pccl__plan *plan) {
    (void)root;
    uint32_t size = shape->size, rounds = size > 1 ? 1 + log2_ceil(size - 1) : 0;
    pccl_status status = pccl__plan_begin(plan, position, size, 1, rounds);
    if (status == PCCL_OK) status = shift(plan);
    return status == PCCL_OK ? doubling(plan, 1, 1) : status;
}
