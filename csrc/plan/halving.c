/* SPDX-License-Identifier: MIT
 *
 * halving.c - all-reduce by recursive halving and doubling, and the first half of it as reduce-scatter, for any size:
 * as few bytes as the ring (for powers of two), and nearly as few rounds as recursive doubling. For the sizes between.
 *
 * Source: R. Thakur, R. Rabenseifner, W. Gropp (as in doubling.c), section 4 (Rabenseifner's algorithm).
 *
 * Folding and numbers are those of doubling.c: m is the largest power of two <= n, r = n - m, and m positions have
 * numbers. There are m chunks. Halving, who differs in bit 0, 1, 2, ... exchange the chunks whose own bit is the
 * other's, so that chunk c ends at number c; doubling, they exchange in the inverse order all that they have. Partial
 * sums cover the same ranges as in doubling.c and meet in the same order: the bits are the same.
 *
 * For reduce-scatter there are n chunks; a number stands for its own position and for the one that it speaks for, who
 * gets its chunk at the end.
 *
 *                    rounds                      bytes sent by the busiest, as a multiple of the vector
 *                    r = 0        r > 0          r = 0         r > 0
 *   all_reduce       2 log2(m)    2 log2(m)+2    2 (m-1)/m     2 (m-1)/m + 1
 *   reduce_scatter   log2(m)      log2(m)+2      (n-1)/n       1
 */
#include "plan/plan.h"

#include "base/bits.h"
#include "plan/fold.h"

static pccl_status add(struct pccl__plan *plan, uint32_t round, uint32_t peer, uint32_t chunk,
                       enum pccl__step_kind kind, bool complete) {
    return pccl__plan_add(
        plan,
        (struct pccl__step){.peer = peer, .chunk = chunk, .round = round, .kind = (uint8_t)kind, .complete = complete});
}

/* What a number ends with: of an all_reduce a chunk; of a reduce_scatter those of all positions it stands for. */
static pccl_status add_share(struct pccl__plan *plan, uint32_t round, uint32_t peer, uint32_t number,
                             enum pccl__step_kind kind, bool complete) {
    uint32_t power = fold_power(plan->size), folded = plan->size - power;
    if (plan->chunks == power) return add(plan, round, peer, number, kind, complete);
    uint32_t last = fold_position(number, folded);
    pccl_status status = PCCL_OK;
    if (number < folded) status = add(plan, round, peer, last - 1, kind, complete);
    return status == PCCL_OK ? add(plan, round, peer, last, kind, complete) : status;
}

/* The shares of numbers from `first` on, `stride` apart. */
static pccl_status add_shares(struct pccl__plan *plan, uint32_t round, uint32_t peer, uint32_t first, uint32_t stride,
                              enum pccl__step_kind kind, bool complete) {
    pccl_status status = PCCL_OK;
    for (uint32_t number = first; number < fold_power(plan->size) && status == PCCL_OK; number += stride)
        status = add_share(plan, round, peer, number, kind, complete);
    return status;
}

/* In the exchange over `bit` a number is concerned with the shares of those that agree with it in all lower bits. */
static pccl_status halve(struct pccl__plan *plan, uint32_t number, uint32_t folded, uint32_t round) {
    uint32_t power = plan->size - folded;
    pccl_status status = PCCL_OK;
    for (uint32_t bit = 1; bit < power && status == PCCL_OK; bit *= 2, round++) {
        uint32_t mask = 2 * bit - 1, peer = fold_position(number ^ bit, folded);
        enum pccl__step_kind kind = number & bit ? PCCL__REDUCE_LEFT : PCCL__REDUCE_RIGHT;
        status = add_shares(plan, round, peer, (number ^ bit) & mask, 2 * bit, PCCL__SEND, false);
        if (status == PCCL_OK) status = add_shares(plan, round, peer, number & mask, 2 * bit, kind, 2 * bit == power);
    }
    return status;
}

static pccl_status redouble(struct pccl__plan *plan, uint32_t number, uint32_t folded, uint32_t round) {
    pccl_status status = PCCL_OK;
    for (uint32_t bit = (plan->size - folded) / 2; bit > 0 && status == PCCL_OK; bit /= 2, round++) {
        uint32_t mask = 2 * bit - 1, peer = fold_position(number ^ bit, folded);
        status = add_shares(plan, round, peer, number & mask, 2 * bit, PCCL__SEND, false);
        if (status == PCCL_OK)
            status = add_shares(plan, round, peer, (number ^ bit) & mask, 2 * bit, PCCL__COPY, false);
    }
    return status;
}

pccl_status pccl__plan_halving_all_reduce(uint32_t position, const struct pccl__shape *shape, uint32_t root,
                                          struct pccl__plan *plan) {
    (void)root;
    uint32_t size = shape->size, power = fold_power(size), folded = size - power, exchanges = log2_ceil(power);
    uint32_t rounds = 2 * exchanges + (folded ? 2 : 0), first = folded ? 1 : 0;
    pccl_status status = pccl__plan_begin(plan, position, size, power, rounds);
    bool with_odd = position < 2 * folded && position % 2 == 0, with_even = position < 2 * folded && !with_odd;
    if (status == PCCL_OK && with_odd) {
        status = add_shares(plan, 0, position + 1, 0, 1, PCCL__SEND, false);
        return status == PCCL_OK ? add_shares(plan, rounds - 1, position + 1, 0, 1, PCCL__COPY, false) : status;
    }
    uint32_t number = fold_number(position, folded);
    if (status == PCCL_OK && with_even) status = add_shares(plan, 0, position - 1, 0, 1, PCCL__REDUCE_LEFT, false);
    if (status == PCCL_OK) status = halve(plan, number, folded, first);
    if (status == PCCL_OK) status = redouble(plan, number, folded, first + exchanges);
    if (status == PCCL_OK && with_even) status = add_shares(plan, rounds - 1, position - 1, 0, 1, PCCL__SEND, false);
    return status;
}

pccl_status pccl__plan_halving_reduce_scatter(uint32_t position, const struct pccl__shape *shape, uint32_t root,
                                              struct pccl__plan *plan) {
    (void)root;
    uint32_t size = shape->size, power = fold_power(size), folded = size - power;
    uint32_t rounds = log2_ceil(power) + (folded ? 2 : 0);
    pccl_status status = pccl__plan_begin(plan, position, size, size, rounds);
    bool with_odd = position < 2 * folded && position % 2 == 0, with_even = position < 2 * folded && !with_odd;
    if (status == PCCL_OK && with_odd) {
        status = add_shares(plan, 0, position + 1, 0, 1, PCCL__SEND, false);
        return status == PCCL_OK ? add(plan, rounds - 1, position + 1, position, PCCL__COPY, false) : status;
    }
    if (status == PCCL_OK && with_even) status = add_shares(plan, 0, position - 1, 0, 1, PCCL__REDUCE_LEFT, false);
    if (status == PCCL_OK) status = halve(plan, fold_number(position, folded), folded, folded ? 1 : 0);
    if (status == PCCL_OK && with_even) status = add(plan, rounds - 1, position - 1, position - 1, PCCL__SEND, false);
    return status;
}
