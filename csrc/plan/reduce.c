/* SPDX-License-Identifier: MIT
 *
 * reduce.c - all vectors into one position's: along a chain for large ones, up a binomial tree for small ones. The
 * inverse of broadcast.c, whose sources it has.
 *
 * There is one chunk. The chain works on distances from the root around the ring: distance 1 begins, and each adds its
 * own on the right, the root last. The tree is the part of recursive doubling (doubling.c) that the root's result
 * depends on: whatever the root, it computes the same expression. Folded pairs (fold.h) are spoken for by the odd one,
 * the root's by the root.
 *               rounds          bytes moved by the busiest
 *   chain       n-1             the vector
 *   binomial    ceil(log2 n)    as many times the vector (the root receives them; once less if it has no pair, where
 *                               others have)
 */
#include "plan/plan.h"

#include "base/bits.h"
#include "plan/around.h"
#include "plan/fold.h"

pccl_status pccl__plan_chain_reduce(uint32_t position, const struct pccl__shape *shape, uint32_t root,
                                    struct pccl__plan *plan) {
    uint32_t size = shape->size;
    if (root >= size) return PCCL_INVALID;
    pccl_status status = pccl__plan_begin(plan, position, size, 1, size - 1);
    uint32_t far = distance(position, size, root), turn = far ? far : size;
    if (status == PCCL_OK && turn > 1)
        status = pccl__plan_add(plan, (struct pccl__step){.peer = at_distance(turn - 1, size, root),
                                                          .round = turn - 2,
                                                          .kind = PCCL__REDUCE_LEFT,
                                                          .complete = far == 0});
    if (status == PCCL_OK && far > 0)
        status = pccl__plan_add(
            plan, (struct pccl__step){.peer = at_distance(far + 1, size, root), .round = far - 1, .kind = PCCL__SEND});
    return status;
}

/* Who goes on for this number; the root does so for its pair. */
static uint32_t speaker(uint32_t number, uint32_t folded, uint32_t root) {
    return number < folded && root / 2 == number ? root : fold_position(number, folded);
}

/* From those that agree with the root's number in all bits below `bit` to those that agree in it, too. */
static pccl_status add_halves(struct pccl__plan *plan, uint32_t number, uint32_t folded, uint32_t root) {
    uint32_t power = plan->size - folded, target = fold_number(root, folded), round = folded > 0;
    for (uint32_t bit = 1; bit < power; bit *= 2, round++) {
        struct pccl__step step = {.peer = speaker(number ^ bit, folded, root), .round = round, .kind = PCCL__SEND};
        if ((number ^ target) & bit) return pccl__plan_add(plan, step);
        step.kind = number & bit ? PCCL__REDUCE_LEFT : PCCL__REDUCE_RIGHT;
        step.complete = 2 * bit == power;
        pccl_status status = pccl__plan_add(plan, step);
        if (status != PCCL_OK) return status;
    }
    return PCCL_OK;
}

pccl_status pccl__plan_binomial_reduce(uint32_t position, const struct pccl__shape *shape, uint32_t root,
                                       struct pccl__plan *plan) {
    uint32_t size = shape->size;
    if (root >= size) return PCCL_INVALID;
    pccl_status status = pccl__plan_begin(plan, position, size, 1, log2_ceil(size));
    if (status != PCCL_OK) return status;
    uint32_t folded = size - fold_power(size), number = fold_number(position, folded);
    if (number < folded) {
        bool speaks = speaker(number, folded, root) == position;
        struct pccl__step step = {.peer = position ^ 1, .kind = PCCL__SEND};
        if (speaks) step.kind = position % 2 ? PCCL__REDUCE_LEFT : PCCL__REDUCE_RIGHT;
        status = pccl__plan_add(plan, step);
        if (!speaks) return status;
    }
    return status == PCCL_OK ? add_halves(plan, number, folded, root) : status;
}
