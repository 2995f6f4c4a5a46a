/* SPDX-License-Identifier: MIT
 *
 * direct.c - all-reduce in two rounds and reduce-scatter in one, for any size: everyone sends each chunk to its owner,
 * who adds up, and the sum from there to all. As few bytes as the ring, over all links at once, and nothing waits for
 * more than two hand-overs in turn, which are dear among members that share cores (docs/performance.md has figures).
 *
 * Source: R. Thakur, R. Rabenseifner, W. Gropp (as in doubling.c), for the reduce-scatter by pairwise
 * exchange: in step k of a round everyone sends to the position k after it and takes from the one k before it, so that
 * not all begin with the same one. But the steps need not wait for each other, so they are one round.
 *
 * There are n chunks; position c owns chunk c. It adds on the left what comes from c-1, c-2, ..., c+1, the order in
 * which the others come to send it. So the order of operands is c+1, c+2, ..., c, as on the ring, and all hold the bits
 * of one computation.
 *
 * Rounds: 2. Sends by each position: 2(n-1); bytes: 2(n-1)/n of the vector, the lower bound. The first round alone is a
 * reduce-scatter, for half of each.
 */
#include "plan/plan.h"

#include "plan/around.h"

/* Everyone to everyone: the chunk of the receiver, or that of the sender. */
static pccl_status exchange(struct pccl__plan *plan, uint32_t round, enum pccl__step_kind kind) {
    uint32_t size = plan->size, position = plan->position;
    pccl_status status = PCCL_OK;
    for (uint32_t k = 1; k < size && status == PCCL_OK; k++) {
        uint32_t to = at_distance(k, size, position);
        status = pccl__plan_add(
            plan, (struct pccl__step){
                      .peer = to, .chunk = kind == PCCL__COPY ? position : to, .round = round, .kind = PCCL__SEND});
    }
    for (uint32_t k = 1; k < size && status == PCCL_OK; k++) {
        uint32_t from = at_distance(size - k, size, position);
        status = pccl__plan_add(plan, (struct pccl__step){.peer = from,
                                                          .chunk = kind == PCCL__COPY ? from : position,
                                                          .round = round,
                                                          .kind = (uint8_t)kind,
                                                          .complete = kind != PCCL__COPY && k + 1 == size});
    }
    return status;
}

pccl_status pccl__plan_direct_reduce_scatter(uint32_t position, const struct pccl__shape *shape, uint32_t root,
                                             struct pccl__plan *plan) {
    (void)root;
    pccl_status status = pccl__plan_begin(plan, position, shape->size, shape->size, shape->size > 1);
    return status == PCCL_OK ? exchange(plan, 0, PCCL__REDUCE_LEFT) : status;
}

pccl_status pccl__plan_direct_all_reduce(uint32_t position, const struct pccl__shape *shape, uint32_t root,
                                         struct pccl__plan *plan) {
    (void)root;
    pccl_status status = pccl__plan_begin(plan, position, shape->size, shape->size, shape->size > 1 ? 2 : 0);
    if (status == PCCL_OK) status = exchange(plan, 0, PCCL__REDUCE_LEFT);
    return status == PCCL_OK ? exchange(plan, 1, PCCL__COPY) : status;
}
