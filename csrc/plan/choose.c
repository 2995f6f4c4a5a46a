/* SPDX-License-Identifier: MIT
 *
 * choose.c - the table of all planners, and which of them to run.
 *
 * The model is that of R. Hockney ("The communication challenge for MPP: Intel Paragon and Meiko CS-2", Parallel
 * Computing 20(3), 1994): a round costs its latency, a byte the inverse of the bandwidth. It is a coarse one: it knows
 * neither arithmetic nor memory. Hence the rule for near ties: those who spread the vector over the positions stand
 * first in the table, because they also spread the arithmetic.
 *
 * A new algorithm is one file with its builder and one line here.
 */
#include "plan/plan.h"

#include <stdio.h>

#include "base/bits.h"

/* An earlier line of the table wins unless a later one is cheaper by more than this. */
static const double NEAR_TIE = 1.05;

static double ring_rounds(uint32_t size) { return size - 1.0; }
static double ring_volume(uint32_t size) { return (size - 1.0) / size; }
static double ring_all_reduce_rounds(uint32_t size) { return 2.0 * ring_rounds(size); }
static double ring_all_reduce_volume(uint32_t size) { return 2.0 * ring_volume(size); }

static uint32_t floor_log2(uint32_t size) { return 31 - (uint32_t)__builtin_clz(size); }
static bool is_power(uint32_t size) { return (size & (size - 1)) == 0; }
static double doubling_rounds(uint32_t size) { return floor_log2(size) + (is_power(size) ? 0.0 : 2.0); }
static double doubling_volume(uint32_t size) { return floor_log2(size) + (is_power(size) ? 0.0 : 1.0); }

static double chain_rounds(uint32_t size) { return size - 1.0; }
static double chain_volume(uint32_t size) { return size > 1 ? 1.0 : 0.0; }
static double binomial_rounds(uint32_t size) { return log2_ceil(size); }
static double no_volume(uint32_t size) { return 0.0 * size; }

static const struct pccl__planner planners[] = {
    {PCCL_ALL_REDUCE, PCCL_RING, pccl__plan_ring_all_reduce, ring_all_reduce_rounds, ring_all_reduce_volume},
    {PCCL_ALL_REDUCE, PCCL_DOUBLING, pccl__plan_doubling_all_reduce, doubling_rounds, doubling_volume},
    {PCCL_REDUCE_SCATTER, PCCL_RING, pccl__plan_ring_reduce_scatter, ring_rounds, ring_volume},
    {PCCL_ALL_GATHER, PCCL_RING, pccl__plan_ring_all_gather, ring_rounds, ring_volume},
    {PCCL_BROADCAST, PCCL_CHAIN, pccl__plan_chain_broadcast, chain_rounds, chain_volume},
    {PCCL_BROADCAST, PCCL_BINOMIAL, pccl__plan_binomial_broadcast, binomial_rounds, binomial_rounds},
    {PCCL_BARRIER, PCCL_DISSEMINATION, pccl__plan_dissemination_barrier, binomial_rounds, no_volume},
};

const struct pccl__planner *pccl__planner_at(size_t index) {
    return index < sizeof planners / sizeof *planners ? &planners[index] : NULL;
}

const struct pccl__planner *pccl__planner_find(pccl_collective collective, pccl_algorithm algorithm) {
    const struct pccl__planner *planner;
    for (size_t i = 0; (planner = pccl__planner_at(i)); i++)
        if (planner->collective == collective && planner->algorithm == algorithm) return planner;
    return NULL;
}

static double cost_ns(const struct pccl__planner *planner, uint32_t size, uint64_t bytes,
                      struct pccl__link_model link) {
    return planner->rounds(size) * link.latency_ns + (double)bytes * planner->volume(size) / link.bytes_per_ns;
}

/* "ring: about 13.2 ms (6 rounds, 1.50 times 67108864 bytes); doubling: about 27.0 ms" */
static void explain(const struct pccl__planner *chosen, uint32_t size, uint64_t bytes, struct pccl__link_model link,
                    char *why, size_t why_bytes) {
    int used = snprintf(why, why_bytes, "%s: about %.3g ms (%g rounds, %.2f times %llu bytes)",
                        pccl_algorithm_name(chosen->algorithm), cost_ns(chosen, size, bytes, link) / 1e6,
                        chosen->rounds(size), chosen->volume(size), (unsigned long long)bytes);
    const struct pccl__planner *other;
    for (size_t i = 0; (other = pccl__planner_at(i)); i++) {
        if (other == chosen || other->collective != chosen->collective) continue;
        if (used < 0 || (size_t)used >= why_bytes) return;
        used += snprintf(why + used, why_bytes - (size_t)used, "; %s: about %.3g ms",
                         pccl_algorithm_name(other->algorithm), cost_ns(other, size, bytes, link) / 1e6);
    }
}

const struct pccl__planner *pccl__planner_choose(pccl_collective collective, uint32_t size, uint64_t bytes,
                                                 struct pccl__link_model link, char *why, size_t why_bytes) {
    const struct pccl__planner *planner, *best = NULL;
    for (size_t i = 0; size > 0 && (planner = pccl__planner_at(i)); i++) {
        if (planner->collective != collective) continue;
        if (!best || cost_ns(planner, size, bytes, link) * NEAR_TIE < cost_ns(best, size, bytes, link)) best = planner;
    }
    if (why && why_bytes) why[0] = '\0';
    if (why && why_bytes && best) explain(best, size, bytes, link, why, why_bytes);
    return best;
}
