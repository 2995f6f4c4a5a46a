/* SPDX-License-Identifier: MIT
 *
 * halving.c - all-reduce by recursive halving and doubling, for any size: as few bytes as the ring (for powers of two),
 * and nearly as few rounds as recursive doubling. For the sizes between.
 *
 * Source: R. Thakur, R. Rabenseifner, W. Gropp (as in doubling.c), section 4 (Rabenseifner's algorithm).
 *
 * Folding and numbers are those of doubling.c: m is the largest power of two <= n, r = n - m, and m positions have
 * numbers. There are m chunks. Halving, who differs in bit 0, 1, 2, ... exchange the chunks whose own bit is the
 * other's, so that chunk c ends at number c; doubling, they exchange in the inverse order all that they have. Partial
 * sums cover the same ranges as in doubling.c and meet in the same order: the bits are the same.
 *
 * Rounds: 2 log2(m), and 2 more if r > 0. Bytes sent by the busiest position: 2 (m-1)/m of the vector, and the whole
 * one more if r > 0.
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

/* Chunks from `first` on, `stride` apart. */
static pccl_status add_chunks(struct pccl__plan *plan, uint32_t round, uint32_t peer, uint32_t first, uint32_t stride,
                              enum pccl__step_kind kind, bool complete) {
    pccl_status status = PCCL_OK;
    for (uint32_t c = first; c < plan->chunks && status == PCCL_OK; c += stride)
        status = add(plan, round, peer, c, kind, complete);
    return status;
}

/* In the exchange over `bit` a number is concerned with the chunks that agree with it in all lower bits. */
static pccl_status halve(struct pccl__plan *plan, uint32_t number, uint32_t folded, uint32_t round) {
    pccl_status status = PCCL_OK;
    for (uint32_t bit = 1; bit < plan->chunks && status == PCCL_OK; bit *= 2, round++) {
        uint32_t mask = 2 * bit - 1, peer = fold_position(number ^ bit, folded);
        enum pccl__step_kind kind = number & bit ? PCCL__REDUCE_LEFT : PCCL__REDUCE_RIGHT;
        status = add_chunks(plan, round, peer, (number ^ bit) & mask, 2 * bit, PCCL__SEND, false);
        if (status == PCCL_OK)
            status = add_chunks(plan, round, peer, number & mask, 2 * bit, kind, 2 * bit == plan->chunks);
    }
    return status;
}

static pccl_status redouble(struct pccl__plan *plan, uint32_t number, uint32_t folded, uint32_t round) {
    pccl_status status = PCCL_OK;
    for (uint32_t bit = plan->chunks / 2; bit > 0 && status == PCCL_OK; bit /= 2, round++) {
        uint32_t mask = 2 * bit - 1, peer = fold_position(number ^ bit, folded);
        status = add_chunks(plan, round, peer, number & mask, 2 * bit, PCCL__SEND, false);
        if (status == PCCL_OK)
            status = add_chunks(plan, round, peer, (number ^ bit) & mask, 2 * bit, PCCL__COPY, false);
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
        status = add_chunks(plan, 0, position + 1, 0, 1, PCCL__SEND, false);
        return status == PCCL_OK ? add_chunks(plan, rounds - 1, position + 1, 0, 1, PCCL__COPY, false) : status;
    }
    uint32_t number = with_even ? position / 2 : position - folded;
    if (status == PCCL_OK && with_even) status = add_chunks(plan, 0, position - 1, 0, 1, PCCL__REDUCE_LEFT, power == 1);
    if (status == PCCL_OK) status = halve(plan, number, folded, first);
    if (status == PCCL_OK) status = redouble(plan, number, folded, first + exchanges);
    if (status == PCCL_OK && with_even) status = add_chunks(plan, rounds - 1, position - 1, 0, 1, PCCL__SEND, false);
    return status;
}
