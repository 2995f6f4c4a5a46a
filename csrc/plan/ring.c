/* SPDX-License-Identifier: MIT
 *
 * ring.c - all-reduce, reduce-scatter and all-gather around a ring. Bandwidth-optimal for every size, and each position
 * talks to its two neighbours only.
 *
 * Source: P. Patarasu, X. Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", Journal of
 * Parallel and Distributed Computing 69(2), 2009.
 *
 * There are n chunks. Reducing, chunk c starts at position c+1 and walks once around; every position on the way adds
 * its own contribution on the right, so the order of operands is c+1, c+2, ..., c and the walk ends at its owner,
 * position c. Gathering, it walks on from the owner to all others, who copy: so all hold the bits of one computation.
 *
 *                    rounds    sends per position   bytes sent per position
 *   reduce_scatter   n-1       n-1                  (n-1)/n of the vector (n blocks)
 *   all_gather       n-1       n-1                  (n-1)/n of the vector (n blocks)
 *   all_reduce       2(n-1)    2(n-1)               2(n-1)/n of the vector
 * which are the lower bounds in bytes for each.
 */
#include "plan/plan.h"

/* The position or chunk `back` before `from` on the ring. */
static uint32_t before(uint32_t from, uint32_t back, uint32_t size) { return (from + size - back % size) % size; }

/* One round: pass on `sent`, take `taken` from the neighbour before us. */
static pccl_status pass(struct pccl__plan *plan, uint32_t round, uint32_t sent, uint32_t taken,
                        enum pccl__step_kind kind, bool complete) {
    uint32_t next = (plan->position + 1) % plan->size, previous = before(plan->position, 1, plan->size);
    pccl_status status =
        pccl__plan_add(plan, (struct pccl__step){.peer = next, .chunk = sent, .round = round, .kind = PCCL__SEND});
    if (status != PCCL_OK) return status;
    return pccl__plan_add(
        plan, (struct pccl__step){
                  .peer = previous, .chunk = taken, .round = round, .kind = (uint8_t)kind, .complete = complete});
}

/* Ends with chunk `position` complete here. */
static pccl_status add_reduce_scatter(struct pccl__plan *plan) {
    uint32_t size = plan->size, position = plan->position;
    for (uint32_t k = 0; k + 1 < size; k++) {
        pccl_status status = pass(plan, k, before(position, k + 1, size), before(position, k + 2, size),
                                  PCCL__REDUCE_LEFT, k + 2 == size);
        if (status != PCCL_OK) return status;
    }
    return PCCL_OK;
}

/* Starts with chunk `position` here. */
static pccl_status add_all_gather(struct pccl__plan *plan, uint32_t first_round) {
    uint32_t size = plan->size, position = plan->position;
    for (uint32_t k = 0; k + 1 < size; k++) {
        pccl_status status =
            pass(plan, first_round + k, before(position, k, size), before(position, k + 1, size), PCCL__COPY, false);
        if (status != PCCL_OK) return status;
    }
    return PCCL_OK;
}

pccl_status pccl__plan_ring_reduce_scatter(uint32_t position, const struct pccl__shape *shape, uint32_t root,
                                           struct pccl__plan *plan) {
    (void)root;
    uint32_t size = shape->size;
    pccl_status status = pccl__plan_begin(plan, position, size, size, size - 1);
    return status == PCCL_OK ? add_reduce_scatter(plan) : status;
}

pccl_status pccl__plan_ring_all_gather(uint32_t position, const struct pccl__shape *shape, uint32_t root,
                                       struct pccl__plan *plan) {
    (void)root;
    uint32_t size = shape->size;
    pccl_status status = pccl__plan_begin(plan, position, size, size, size - 1);
    return status == PCCL_OK ? add_all_gather(plan, 0) : status;
}

pccl_status pccl__plan_ring_all_reduce(uint32_t position, const struct pccl__shape *shape, uint32_t root,
                                       struct pccl__plan *plan) {
    (void)root;
    uint32_t size = shape->size;
    pccl_status status = pccl__plan_begin(plan, position, size, size, 2 * (size - 1));
    if (status == PCCL_OK) status = add_reduce_scatter(plan);
    return status == PCCL_OK ? add_all_gather(plan, size - 1) : status;
}
