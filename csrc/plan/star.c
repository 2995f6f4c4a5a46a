/* SPDX-License-Identifier: MIT
 *
 * star.c - everything straight from or to one position: fewest rounds, and nobody handles what does not concern it.
 *
 * gather and scatter move every part directly, which the lower bound in bytes allows: the root must receive (send) all
 * of them. So parts may have lengths that only their two ends know. For reduce, all_reduce and broadcast the hub moves
 * n-1 whole vectors: for few bytes among few members.
 *
 *                rounds   bytes moved by the hub
 *   gather       1        (n-1)/n of the vector (n parts)
 *   scatter      1        (n-1)/n of the vector (n parts)
 *   reduce       1        n-1 times the vector
 *   broadcast    1        n-1 times the vector
 *   all_reduce   2        n-1 times the vector, both ways; the hub is position 0
 *
 * Sums are made at the hub alone, from the hub onwards around the ring, so all hold the bits of one computation.
 */
#include "plan/plan.h"

static pccl_status add(struct pccl__plan *plan, uint32_t round, uint32_t peer, uint32_t chunk,
                       enum pccl__step_kind kind, bool complete) {
    return pccl__plan_add(
        plan,
        (struct pccl__step){.peer = peer, .chunk = chunk, .round = round, .kind = (uint8_t)kind, .complete = complete});
}

static pccl_status begin(struct pccl__plan *plan, uint32_t position, uint32_t size, uint32_t root, uint32_t chunks,
                         uint32_t rounds) {
    if (root >= size) return PCCL_INVALID;
    return pccl__plan_begin(plan, position, size, chunks, size > 1 ? rounds : 0);
}

/* Between the hub and each other position in turn: `of_hub` there, `of_other` here. Parts have numbers, a whole vector
 * is chunk 0. */
static pccl_status exchange(struct pccl__plan *plan, uint32_t hub, uint32_t round, enum pccl__step_kind of_hub,
                            enum pccl__step_kind of_other, bool parts) {
    uint32_t size = plan->size;
    if (plan->position != hub) return add(plan, round, hub, parts ? plan->position : 0, of_other, false);
    pccl_status status = PCCL_OK;
    for (uint32_t far = 1; far < size && status == PCCL_OK; far++) {
        uint32_t peer = (uint32_t)(((uint64_t)hub + far) % size);
        status = add(plan, round, peer, parts ? peer : 0, of_hub, of_hub >= PCCL__REDUCE_LEFT && far + 1 == size);
    }
    return status;
}

pccl_status pccl__plan_star_gather(uint32_t position, const struct pccl__shape *shape, uint32_t root,
                                   struct pccl__plan *plan) {
    pccl_status status = begin(plan, position, shape->size, root, shape->size, 1);
    return status == PCCL_OK ? exchange(plan, root, 0, PCCL__COPY, PCCL__SEND, true) : status;
}

pccl_status pccl__plan_star_scatter(uint32_t position, const struct pccl__shape *shape, uint32_t root,
                                    struct pccl__plan *plan) {
    pccl_status status = begin(plan, position, shape->size, root, shape->size, 1);
    return status == PCCL_OK ? exchange(plan, root, 0, PCCL__SEND, PCCL__COPY, true) : status;
}

pccl_status pccl__plan_star_reduce(uint32_t position, const struct pccl__shape *shape, uint32_t root,
                                   struct pccl__plan *plan) {
    pccl_status status = begin(plan, position, shape->size, root, 1, 1);
    return status == PCCL_OK ? exchange(plan, root, 0, PCCL__REDUCE_RIGHT, PCCL__SEND, false) : status;
}

pccl_status pccl__plan_star_broadcast(uint32_t position, const struct pccl__shape *shape, uint32_t root,
                                      struct pccl__plan *plan) {
    pccl_status status = begin(plan, position, shape->size, root, 1, 1);
    return status == PCCL_OK ? exchange(plan, root, 0, PCCL__SEND, PCCL__COPY, false) : status;
}

pccl_status pccl__plan_star_all_reduce(uint32_t position, const struct pccl__shape *shape, uint32_t root,
                                       struct pccl__plan *plan) {
    (void)root;
    pccl_status status = begin(plan, position, shape->size, 0, 1, 2);
    if (status == PCCL_OK) status = exchange(plan, 0, 0, PCCL__REDUCE_RIGHT, PCCL__SEND, false);
    return status == PCCL_OK ? exchange(plan, 0, 1, PCCL__SEND, PCCL__COPY, false) : status;
}
