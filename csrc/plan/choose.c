/* SPDX-License-Identifier: MIT
 *
 * choose.c - the table of all planners, and which of them to run.
 *
 * The model is that of A. Alexandrov, M. Ionescu, K. Schauser, C. Scheiman ("LogGP: Incorporating Long Messages into
 * the LogP Model", Journal of Parallel and Distributed Computing 44(1), 1997): a round costs its latency, a transfer
 * the work of handling it, a byte the inverse of the bandwidth. It is a coarse one: it knows neither arithmetic nor
 * memory. Hence the rule for near ties: those who spread the vector over the positions stand first in the table,
 * because they also spread the arithmetic.
 *
 * There are two classes of links, those inside a host and those between hosts. A planner that knows hosts
 * (PCCL__BY_HOST) pays each part of its work at the price of the links it uses, and all bytes that leave one host, for
 * its members share a wire. Any other pays the price between hosts for all it does: its slowest link sets the pace.
 * Near ties go to the one that knows hosts, which loses less where the wire is slower than assumed. It is considered
 * only where there are several and some have several members; within one host it would be everyone to everyone at once,
 * which the model takes for free.
 *
 * Only those are asked whose links the group's shape has. A new algorithm is one file with its builder and one line
 * here; each collective needs one for each shape.
 */
#include "plan/plan.h"

#include <stdio.h>

#include "base/bits.h"
#include "plan/side.h"

/* An earlier line of the table wins unless a later one is cheaper by more than this. */
static const double NEAR_TIE = 1.05;

typedef const struct pccl__shape *shape_ref;

static double ring_rounds(shape_ref shape) { return shape->size - 1.0; }
static double ring_volume(shape_ref shape) { return (shape->size - 1.0) / shape->size; }
static double ring_all_reduce_rounds(shape_ref shape) { return 2.0 * ring_rounds(shape); }
static double ring_all_reduce_volume(shape_ref shape) { return 2.0 * ring_volume(shape); }
static double ring_barrier_rounds(shape_ref shape) { return shape->size / 2; }

static uint32_t floor_log2(uint32_t size) { return 31 - (uint32_t)__builtin_clz(size); }
static bool is_power(uint32_t size) { return (size & (size - 1)) == 0; }
static double doubling_rounds(shape_ref shape) { return floor_log2(shape->size) + (is_power(shape->size) ? 0.0 : 2.0); }
static double doubling_volume(shape_ref shape) { return floor_log2(shape->size) + (is_power(shape->size) ? 0.0 : 1.0); }

static double chain_volume(shape_ref shape) { return shape->size > 1 ? 1.0 : 0.0; }
static double binomial_rounds(shape_ref shape) { return log2_ceil(shape->size); }
static double no_volume(shape_ref shape) { return 0.0 * shape->size; }

static double tree_rounds(shape_ref shape) { return 2.0 * shape->below[0]; }
static double tree_diameter(shape_ref shape) { return shape->diameter; }
static double tree_volume(shape_ref shape) { return shape->degree; }
static double tree_gather_volume(shape_ref shape) { return shape->degree - ring_volume(shape); }

static double one_round(shape_ref shape) { return shape->size > 1; }
static double two_rounds(shape_ref shape) { return 2.0 * one_round(shape); }
static double star_volume(shape_ref shape) { return shape->size - 1.0; }

static double halving_rounds(shape_ref shape) {
    return 2.0 * floor_log2(shape->size) + (is_power(shape->size) ? 0.0 : 2.0);
}
static double halving_volume(shape_ref shape) {
    double power = 1u << floor_log2(shape->size);
    return 2.0 * (power - 1) / power + (is_power(shape->size) ? 0.0 : 1.0);
}

static double scatter_volume(shape_ref shape) { return is_power(shape->size) ? ring_volume(shape) : 1.0; }
static double scatter_transfers(shape_ref shape) { return scatter_volume(shape) * shape->size; }

static double halving_transfers(shape_ref shape) {
    double power = 1u << floor_log2(shape->size);
    return 2.0 * (power - 1) + (is_power(shape->size) ? 0.0 : power);
}

static double bruck_transfers(shape_ref shape) {
    double bits = 0;
    for (uint32_t far = 1; far < shape->size; far++) bits += __builtin_popcount(far);
    return bits;
}
static double bruck_volume(shape_ref shape) { return bruck_transfers(shape) / shape->size; }

static double exscan_rounds(shape_ref shape) { return shape->size > 1 ? 1.0 + log2_ceil(shape->size - 1) : 0.0; }
static double chain_exscan_volume(shape_ref shape) { return shape->size > 2 ? 2.0 : shape->size - 1.0; }

/* What goes on inside hosts: giving to the leaders, and back from them. */
static double inside_rounds(shape_ref shape) { return shape->host_most > 1 ? 2.0 : 0.0; }
static double inside_volume(shape_ref shape) {
    return (shape->host_least + shape->host_most - 2.0) / shape->host_least;
}
static double inside_transfers(shape_ref shape) {
    return (shape->host_least + shape->host_most - 2.0) * pccl__shape_hosts(shape);
}
static double leaders_rounds(shape_ref shape) { return 2.0 * (pccl__shape_hosts(shape) - 1.0); }
static double leaders_volume(shape_ref shape) {
    return leaders_rounds(shape) / pccl__shape_hosts(shape) / shape->host_least;
}
static double hierarchical_rounds(shape_ref shape) { return inside_rounds(shape) + leaders_rounds(shape); }
static double hierarchical_volume(shape_ref shape) { return inside_volume(shape) + leaders_volume(shape); }
static double hierarchical_transfers(shape_ref shape) { return inside_transfers(shape) + leaders_rounds(shape); }

/* Over a link with f positions behind it go n - f parts to each of those. */
static double line_exchange_transfers(shape_ref shape) {
    double most = 0, size = shape->size;
    for (uint32_t p = 0; p < shape->size; p++) {
        double left = p, right = size - 1 - p, sent = left * (size - left) + right * (size - right);
        if (sent > most) most = sent;
    }
    return most;
}
static double line_exchange_volume(shape_ref shape) { return line_exchange_transfers(shape) / shape->size; }
static double tree_exchange_volume(shape_ref shape) {
    double most = 0, size = shape->size;
    for (uint32_t p = 0; p < shape->size; p++) {
        double sent = 0, behind;
        for (struct pccl__side side = {.peer = p}; pccl__side_next(shape, p, &side); sent += behind * (size - behind))
            behind = pccl__side_size(shape, &side);
        if (sent / size > most) most = sent / size;
    }
    return most;
}

/* Collective, algorithm, builder, links, traits, rounds, volume, transfers. */
static const struct pccl__planner planners[] = {
    {PCCL_ALL_REDUCE, PCCL_HIERARCHICAL, pccl__plan_hierarchical_all_reduce, PCCL_SHAPE_FULL, PCCL__BY_HOST,
     hierarchical_rounds, hierarchical_volume, hierarchical_transfers},
    {PCCL_ALL_REDUCE, PCCL_RING, pccl__plan_ring_all_reduce, PCCL_SHAPE_RING, 0, ring_all_reduce_rounds,
     ring_all_reduce_volume, ring_all_reduce_rounds},
    {PCCL_ALL_REDUCE, PCCL_HALVING, pccl__plan_halving_all_reduce, PCCL_SHAPE_FULL, PCCL__FIXED_ORDER, halving_rounds,
     halving_volume, halving_transfers},
    {PCCL_ALL_REDUCE, PCCL_DOUBLING, pccl__plan_doubling_all_reduce, PCCL_SHAPE_FULL, PCCL__FIXED_ORDER,
     doubling_rounds, doubling_volume, doubling_volume},
    {PCCL_ALL_REDUCE, PCCL_STAR, pccl__plan_star_all_reduce, PCCL_SHAPE_FULL, 0, two_rounds, star_volume, star_volume},
    {PCCL_ALL_REDUCE, PCCL_TREE, pccl__plan_tree_all_reduce, PCCL_SHAPE_TREE, 0, tree_rounds, tree_volume, NULL},
    {PCCL_REDUCE_SCATTER, PCCL_RING, pccl__plan_ring_reduce_scatter, PCCL_SHAPE_RING, 0, ring_rounds, ring_volume,
     ring_rounds},
    {PCCL_REDUCE_SCATTER, PCCL_HALVING, pccl__plan_halving_reduce_scatter, PCCL_SHAPE_FULL, PCCL__FIXED_ORDER,
     doubling_rounds, scatter_volume, scatter_transfers},
    {PCCL_REDUCE_SCATTER, PCCL_TREE, pccl__plan_tree_reduce_scatter, PCCL_SHAPE_TREE, 0, tree_diameter, ring_volume,
     NULL},
    {PCCL_ALL_GATHER, PCCL_RING, pccl__plan_ring_all_gather, PCCL_SHAPE_RING, 0, ring_rounds, ring_volume, ring_rounds},
    {PCCL_ALL_GATHER, PCCL_BRUCK, pccl__plan_bruck_all_gather, PCCL_SHAPE_FULL, 0, binomial_rounds, ring_volume,
     ring_rounds},
    {PCCL_ALL_GATHER, PCCL_TREE, pccl__plan_tree_all_gather, PCCL_SHAPE_TREE, 0, tree_diameter, tree_gather_volume,
     NULL},
    {PCCL_BROADCAST, PCCL_CHAIN, pccl__plan_chain_broadcast, PCCL_SHAPE_RING, 0, ring_rounds, chain_volume,
     chain_volume},
    {PCCL_BROADCAST, PCCL_BINOMIAL, pccl__plan_binomial_broadcast, PCCL_SHAPE_FULL, 0, binomial_rounds, binomial_rounds,
     binomial_rounds},
    {PCCL_BROADCAST, PCCL_STAR, pccl__plan_star_broadcast, PCCL_SHAPE_FULL, 0, one_round, star_volume, star_volume},
    {PCCL_BROADCAST, PCCL_TREE, pccl__plan_tree_broadcast, PCCL_SHAPE_TREE, 0, tree_diameter, tree_volume, NULL},
    {PCCL_REDUCE, PCCL_CHAIN, pccl__plan_chain_reduce, PCCL_SHAPE_RING, 0, ring_rounds, chain_volume, chain_volume},
    {PCCL_REDUCE, PCCL_BINOMIAL, pccl__plan_binomial_reduce, PCCL_SHAPE_FULL, PCCL__FIXED_ORDER, binomial_rounds,
     binomial_rounds, binomial_rounds},
    {PCCL_REDUCE, PCCL_STAR, pccl__plan_star_reduce, PCCL_SHAPE_FULL, 0, one_round, star_volume, star_volume},
    {PCCL_REDUCE, PCCL_TREE, pccl__plan_tree_reduce, PCCL_SHAPE_TREE, 0, tree_diameter, tree_volume, NULL},
    {PCCL_GATHER, PCCL_STAR, pccl__plan_star_gather, PCCL_SHAPE_FULL, PCCL__DIRECT, one_round, ring_volume,
     ring_rounds},
    {PCCL_GATHER, PCCL_LINE, pccl__plan_line_gather, PCCL_SHAPE_RING, 0, ring_rounds, ring_volume, ring_rounds},
    {PCCL_GATHER, PCCL_TREE, pccl__plan_tree_gather, PCCL_SHAPE_TREE, 0, tree_diameter, ring_volume, NULL},
    {PCCL_SCATTER, PCCL_STAR, pccl__plan_star_scatter, PCCL_SHAPE_FULL, PCCL__DIRECT, one_round, ring_volume,
     ring_rounds},
    {PCCL_SCATTER, PCCL_LINE, pccl__plan_line_scatter, PCCL_SHAPE_RING, 0, ring_rounds, ring_volume, ring_rounds},
    {PCCL_SCATTER, PCCL_TREE, pccl__plan_tree_scatter, PCCL_SHAPE_TREE, 0, tree_diameter, ring_volume, NULL},
    {PCCL_ALL_TO_ALL, PCCL_PAIRWISE, pccl__plan_pairwise_all_to_all, PCCL_SHAPE_FULL, PCCL__DIRECT, ring_rounds,
     ring_volume, ring_rounds},
    {PCCL_ALL_TO_ALL, PCCL_BRUCK, pccl__plan_bruck_all_to_all, PCCL_SHAPE_FULL, 0, binomial_rounds, bruck_volume,
     bruck_transfers},
    {PCCL_ALL_TO_ALL, PCCL_LINE, pccl__plan_line_all_to_all, PCCL_SHAPE_RING, 0, ring_rounds, line_exchange_volume,
     line_exchange_transfers},
    {PCCL_ALL_TO_ALL, PCCL_TREE, pccl__plan_tree_all_to_all, PCCL_SHAPE_TREE, 0, tree_diameter, tree_exchange_volume,
     NULL},
    {PCCL_SCAN, PCCL_CHAIN, pccl__plan_chain_scan, PCCL_SHAPE_FULL, PCCL__BY_RANK | PCCL__FIXED_ORDER, ring_rounds,
     chain_volume, chain_volume},
    {PCCL_SCAN, PCCL_DOUBLING, pccl__plan_doubling_scan, PCCL_SHAPE_FULL, PCCL__BY_RANK, binomial_rounds,
     binomial_rounds, binomial_rounds},
    {PCCL_SCAN, PCCL_LINE, pccl__plan_line_scan, PCCL_SHAPE_RING, PCCL__TO_EACH, ring_rounds, star_volume, ring_rounds},
    {PCCL_SCAN, PCCL_TREE, pccl__plan_tree_scan, PCCL_SHAPE_TREE, PCCL__TO_EACH, tree_diameter, star_volume, NULL},
    {PCCL_EXSCAN, PCCL_CHAIN, pccl__plan_chain_exscan, PCCL_SHAPE_FULL, PCCL__BY_RANK | PCCL__FIXED_ORDER, ring_rounds,
     chain_exscan_volume, chain_exscan_volume},
    {PCCL_EXSCAN, PCCL_DOUBLING, pccl__plan_doubling_exscan, PCCL_SHAPE_FULL, PCCL__BY_RANK, exscan_rounds,
     exscan_rounds, exscan_rounds},
    {PCCL_EXSCAN, PCCL_LINE, pccl__plan_line_exscan, PCCL_SHAPE_RING, PCCL__TO_EACH, ring_rounds, star_volume,
     ring_rounds},
    {PCCL_EXSCAN, PCCL_TREE, pccl__plan_tree_exscan, PCCL_SHAPE_TREE, PCCL__TO_EACH, tree_diameter, star_volume, NULL},
    {PCCL_BARRIER, PCCL_DISSEMINATION, pccl__plan_dissemination_barrier, PCCL_SHAPE_FULL, 0, binomial_rounds, no_volume,
     binomial_rounds},
    {PCCL_BARRIER, PCCL_RING, pccl__plan_ring_barrier, PCCL_SHAPE_RING, 0, ring_barrier_rounds, no_volume, NULL},
    {PCCL_BARRIER, PCCL_TREE, pccl__plan_tree_barrier, PCCL_SHAPE_TREE, 0, tree_rounds, no_volume, NULL},
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

bool pccl__planner_fits(const struct pccl__planner *planner, const struct pccl__shape *shape, uint8_t needed) {
    if ((planner->traits & needed) != needed) return false;
    if (shape->kind == PCCL_SHAPE_FULL) return planner->links != PCCL_SHAPE_TREE;
    return planner->links == shape->kind;
}

static double price_ns(struct pccl__link_model link, double rounds, double transfers, double bytes) {
    return rounds * link.latency_ns + transfers * link.overhead_ns + bytes / link.bytes_per_ns;
}

static double cost_ns(const struct pccl__planner *planner, shape_ref shape, uint64_t bytes,
                      struct pccl__link_models links) {
    double transfers = planner->transfers ? planner->transfers(shape) : 0, rounds = planner->rounds(shape);
    double moved = (double)bytes * planner->volume(shape);
    if (!(planner->traits & PCCL__BY_HOST)) return price_ns(links.between, rounds, transfers, moved);
    double at_home = inside_transfers(shape), within = inside_rounds(shape),
           kept = (double)bytes * inside_volume(shape);
    return price_ns(links.inside, within, at_home, kept) +
           price_ns(links.between, rounds - within, transfers - at_home, (moved - kept) * shape->host_least);
}

static bool considered(const struct pccl__planner *planner, pccl_collective collective, shape_ref shape,
                       uint8_t needed) {
    if (planner->collective != collective || !pccl__planner_fits(planner, shape, needed)) return false;
    return !(planner->traits & PCCL__BY_HOST) || (shape->hosts > 1 && shape->host_most > 1);
}

/* "ring: about 13.2 ms (6 rounds, 1.50 times 67108864 bytes); doubling: about 27.0 ms" */
static void explain(const struct pccl__planner *chosen, shape_ref shape, uint64_t bytes, uint8_t needed,
                    struct pccl__link_models links, char *why, size_t why_bytes) {
    int used = snprintf(why, why_bytes, "%s: about %.3g ms (%g rounds, %.2f times %llu bytes)",
                        pccl_algorithm_name(chosen->algorithm), cost_ns(chosen, shape, bytes, links) / 1e6,
                        chosen->rounds(shape), chosen->volume(shape), (unsigned long long)bytes);
    const struct pccl__planner *other;
    for (size_t i = 0; (other = pccl__planner_at(i)); i++) {
        if (other == chosen || !considered(other, chosen->collective, shape, needed)) continue;
        if (used < 0 || (size_t)used >= why_bytes) return;
        used += snprintf(why + used, why_bytes - (size_t)used, "; %s: about %.3g ms",
                         pccl_algorithm_name(other->algorithm), cost_ns(other, shape, bytes, links) / 1e6);
    }
}

const struct pccl__planner *pccl__planner_choose(pccl_collective collective, const struct pccl__shape *shape,
                                                 uint64_t bytes, uint8_t needed, struct pccl__link_models links,
                                                 char *why, size_t why_bytes) {
    const struct pccl__planner *planner, *best = NULL;
    for (size_t i = 0; shape->size > 0 && (planner = pccl__planner_at(i)); i++) {
        if (!considered(planner, collective, shape, needed)) continue;
        if (best && collective == PCCL_BARRIER)
            continue; /* there messages count, not rounds: the first one has fewest */
        if (!best || cost_ns(planner, shape, bytes, links) * NEAR_TIE < cost_ns(best, shape, bytes, links))
            best = planner;
    }
    if (why && why_bytes) why[0] = '\0';
    if (why && why_bytes && best) explain(best, shape, bytes, needed, links, why, why_bytes);
    return best;
}
