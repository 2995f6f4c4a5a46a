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
 * (PCCL__BY_HOST) pays each part of its work at the price of the links it uses, and between hosts for all bytes that
 * leave one, for its members share a wire. Any other pays the price between hosts for all it does: its slowest link
 * sets the pace. Where it joins any pairs, all members of a host may use their wire at once; around the ring only one
 * does. Near ties go to the one that knows hosts, which loses less where the wire is slower than assumed. It is
 * considered only where there are several and some have several members.
 *
 * Everyone to everyone at once (PCCL__AT_ONCE) is free by the model, but not where many streams meet in front of one
 * wire: among eight hosts with 100 Mbit/s each direct.c took a fifth longer than the ring for 1 and for 4 MiB. So it is
 * considered only within one host, where nothing is cheaper for large vectors.
 *
 * Only those are asked whose links the group's shape has. All that the choice depends on is part of the view or of the
 * call, so all members choose alike. What a planner asks is worked out once per view (pccl__offers_make).
 *
 * A new algorithm is one file with its builder, its formula in work.c, and one line here; each collective needs one for
 * each shape.
 */
#include "plan/plan.h"

#include <stdarg.h>
#include <stdio.h>

/* An earlier line of the table wins unless a later one is cheaper by more than this. */
static const double NEAR_TIE = 1.05;

/* Collective, algorithm, builder, links, traits, work; of those by host: work inside. */
static const struct pccl__planner planners[] = {
    {PCCL_ALL_REDUCE, PCCL_HIERARCHICAL, pccl__plan_hierarchical_all_reduce, PCCL_SHAPE_FULL,
     PCCL__BY_HOST | PCCL__ONE_EACH, pccl__work_hierarchical_all_reduce, pccl__inside_hierarchical_all_reduce},
    {PCCL_ALL_REDUCE, PCCL_LEADERS, pccl__plan_leaders_all_reduce, PCCL_SHAPE_FULL, PCCL__BY_HOST,
     pccl__work_leaders_all_reduce, pccl__inside_leaders_all_reduce},
    {PCCL_ALL_REDUCE, PCCL_DIRECT, pccl__plan_direct_all_reduce, PCCL_SHAPE_FULL, PCCL__AT_ONCE | PCCL__ONE_EACH,
     pccl__work_direct_all_reduce, NULL},
    {PCCL_ALL_REDUCE, PCCL_RING, pccl__plan_ring_all_reduce, PCCL_SHAPE_RING, PCCL__ONE_EACH,
     pccl__work_ring_all_reduce, NULL},
    {PCCL_ALL_REDUCE, PCCL_HALVING, pccl__plan_halving_all_reduce, PCCL_SHAPE_FULL, PCCL__FIXED_ORDER | PCCL__ONE_EACH,
     pccl__work_halving_all_reduce, NULL},
    {PCCL_ALL_REDUCE, PCCL_DOUBLING, pccl__plan_doubling_all_reduce, PCCL_SHAPE_FULL, PCCL__FIXED_ORDER,
     pccl__work_doubling, NULL},
    {PCCL_ALL_REDUCE, PCCL_STAR, pccl__plan_star_all_reduce, PCCL_SHAPE_FULL, PCCL__ONE_EACH,
     pccl__work_star_all_reduce, NULL},
    {PCCL_ALL_REDUCE, PCCL_TREE, pccl__plan_tree_all_reduce, PCCL_SHAPE_TREE, PCCL__ONE_EACH,
     pccl__work_tree_all_reduce, NULL},
    {PCCL_REDUCE_SCATTER, PCCL_HIERARCHICAL, pccl__plan_hierarchical_reduce_scatter, PCCL_SHAPE_FULL,
     PCCL__BY_HOST | PCCL__ONE_EACH, pccl__work_hierarchical_parts, pccl__inside_hierarchical_scatter},
    {PCCL_REDUCE_SCATTER, PCCL_LEADERS, pccl__plan_leaders_reduce_scatter, PCCL_SHAPE_FULL,
     PCCL__BY_HOST | PCCL__ONE_EACH, pccl__work_leaders_reduce_scatter, pccl__inside_leaders_scatter},
    {PCCL_REDUCE_SCATTER, PCCL_DIRECT, pccl__plan_direct_reduce_scatter, PCCL_SHAPE_FULL,
     PCCL__AT_ONCE | PCCL__ONE_EACH, pccl__work_direct_reduce_scatter, NULL},
    {PCCL_REDUCE_SCATTER, PCCL_RING, pccl__plan_ring_reduce_scatter, PCCL_SHAPE_RING, PCCL__ONE_EACH, pccl__work_ring,
     NULL},
    {PCCL_REDUCE_SCATTER, PCCL_HALVING, pccl__plan_halving_reduce_scatter, PCCL_SHAPE_FULL,
     PCCL__FIXED_ORDER | PCCL__ONE_EACH, pccl__work_halving_reduce_scatter, NULL},
    {PCCL_REDUCE_SCATTER, PCCL_TREE, pccl__plan_tree_reduce_scatter, PCCL_SHAPE_TREE, PCCL__ONE_EACH,
     pccl__work_tree_parts, NULL},
    {PCCL_ALL_GATHER, PCCL_HIERARCHICAL, pccl__plan_hierarchical_all_gather, PCCL_SHAPE_FULL, PCCL__BY_HOST,
     pccl__work_hierarchical_parts, pccl__inside_hierarchical_gather},
    {PCCL_ALL_GATHER, PCCL_LEADERS, pccl__plan_leaders_all_gather, PCCL_SHAPE_FULL, PCCL__BY_HOST,
     pccl__work_leaders_all_gather, pccl__inside_leaders_gather},
    {PCCL_ALL_GATHER, PCCL_RING, pccl__plan_ring_all_gather, PCCL_SHAPE_RING, 0, pccl__work_ring, NULL},
    {PCCL_ALL_GATHER, PCCL_BRUCK, pccl__plan_bruck_all_gather, PCCL_SHAPE_FULL, 0, pccl__work_bruck_all_gather, NULL},
    {PCCL_ALL_GATHER, PCCL_TREE, pccl__plan_tree_all_gather, PCCL_SHAPE_TREE, 0, pccl__work_tree_all_gather, NULL},
    {PCCL_BROADCAST, PCCL_HIERARCHICAL, pccl__plan_hierarchical_broadcast, PCCL_SHAPE_FULL, PCCL__BY_HOST,
     pccl__work_hierarchical_chain, pccl__inside_hierarchical_rooted},
    {PCCL_BROADCAST, PCCL_LEADERS, pccl__plan_leaders_broadcast, PCCL_SHAPE_FULL, PCCL__BY_HOST,
     pccl__work_leaders_binomial, pccl__inside_leaders_rooted},
    {PCCL_BROADCAST, PCCL_CHAIN, pccl__plan_chain_broadcast, PCCL_SHAPE_RING, 0, pccl__work_chain, NULL},
    {PCCL_BROADCAST, PCCL_BINOMIAL, pccl__plan_binomial_broadcast, PCCL_SHAPE_FULL, 0, pccl__work_binomial, NULL},
    {PCCL_BROADCAST, PCCL_STAR, pccl__plan_star_broadcast, PCCL_SHAPE_FULL, 0, pccl__work_star, NULL},
    {PCCL_BROADCAST, PCCL_TREE, pccl__plan_tree_broadcast, PCCL_SHAPE_TREE, 0, pccl__work_tree, NULL},
    {PCCL_REDUCE, PCCL_HIERARCHICAL, pccl__plan_hierarchical_reduce, PCCL_SHAPE_FULL, PCCL__BY_HOST | PCCL__ONE_EACH,
     pccl__work_hierarchical_chain, pccl__inside_hierarchical_rooted},
    {PCCL_REDUCE, PCCL_LEADERS, pccl__plan_leaders_reduce, PCCL_SHAPE_FULL, PCCL__BY_HOST | PCCL__ONE_EACH,
     pccl__work_leaders_binomial, pccl__inside_leaders_rooted},
    {PCCL_REDUCE, PCCL_CHAIN, pccl__plan_chain_reduce, PCCL_SHAPE_RING, PCCL__ONE_EACH, pccl__work_chain, NULL},
    {PCCL_REDUCE, PCCL_BINOMIAL, pccl__plan_binomial_reduce, PCCL_SHAPE_FULL, PCCL__FIXED_ORDER | PCCL__ONE_EACH,
     pccl__work_binomial, NULL},
    {PCCL_REDUCE, PCCL_STAR, pccl__plan_star_reduce, PCCL_SHAPE_FULL, PCCL__ONE_EACH, pccl__work_star, NULL},
    {PCCL_REDUCE, PCCL_TREE, pccl__plan_tree_reduce, PCCL_SHAPE_TREE, PCCL__ONE_EACH, pccl__work_tree, NULL},
    {PCCL_GATHER, PCCL_STAR, pccl__plan_star_gather, PCCL_SHAPE_FULL, PCCL__STRAIGHT, pccl__work_star_parts, NULL},
    {PCCL_GATHER, PCCL_LINE, pccl__plan_line_gather, PCCL_SHAPE_RING, 0, pccl__work_ring, NULL},
    {PCCL_GATHER, PCCL_TREE, pccl__plan_tree_gather, PCCL_SHAPE_TREE, 0, pccl__work_tree_parts, NULL},
    {PCCL_SCATTER, PCCL_STAR, pccl__plan_star_scatter, PCCL_SHAPE_FULL, PCCL__STRAIGHT, pccl__work_star_parts, NULL},
    {PCCL_SCATTER, PCCL_LINE, pccl__plan_line_scatter, PCCL_SHAPE_RING, 0, pccl__work_ring, NULL},
    {PCCL_SCATTER, PCCL_TREE, pccl__plan_tree_scatter, PCCL_SHAPE_TREE, 0, pccl__work_tree_parts, NULL},
    {PCCL_ALL_TO_ALL, PCCL_PAIRWISE, pccl__plan_pairwise_all_to_all, PCCL_SHAPE_FULL, PCCL__STRAIGHT, pccl__work_ring,
     NULL},
    {PCCL_ALL_TO_ALL, PCCL_BRUCK, pccl__plan_bruck_all_to_all, PCCL_SHAPE_FULL, 0, pccl__work_bruck_all_to_all, NULL},
    {PCCL_ALL_TO_ALL, PCCL_LINE, pccl__plan_line_all_to_all, PCCL_SHAPE_RING, 0, pccl__work_line_all_to_all, NULL},
    {PCCL_ALL_TO_ALL, PCCL_TREE, pccl__plan_tree_all_to_all, PCCL_SHAPE_TREE, 0, pccl__work_tree_all_to_all, NULL},
    {PCCL_SCAN, PCCL_CHAIN, pccl__plan_chain_scan, PCCL_SHAPE_FULL, PCCL__BY_RANK | PCCL__FIXED_ORDER, pccl__work_chain,
     NULL},
    {PCCL_SCAN, PCCL_DOUBLING, pccl__plan_doubling_scan, PCCL_SHAPE_FULL, PCCL__BY_RANK, pccl__work_binomial, NULL},
    {PCCL_SCAN, PCCL_LINE, pccl__plan_line_scan, PCCL_SHAPE_RING, PCCL__TO_EACH, pccl__work_line_scan, NULL},
    {PCCL_SCAN, PCCL_TREE, pccl__plan_tree_scan, PCCL_SHAPE_TREE, PCCL__TO_EACH, pccl__work_tree_scan, NULL},
    {PCCL_EXSCAN, PCCL_CHAIN, pccl__plan_chain_exscan, PCCL_SHAPE_FULL, PCCL__BY_RANK | PCCL__FIXED_ORDER,
     pccl__work_chain_exscan, NULL},
    {PCCL_EXSCAN, PCCL_DOUBLING, pccl__plan_doubling_exscan, PCCL_SHAPE_FULL, PCCL__BY_RANK, pccl__work_doubling_exscan,
     NULL},
    {PCCL_EXSCAN, PCCL_LINE, pccl__plan_line_exscan, PCCL_SHAPE_RING, PCCL__TO_EACH, pccl__work_line_scan, NULL},
    {PCCL_EXSCAN, PCCL_TREE, pccl__plan_tree_exscan, PCCL_SHAPE_TREE, PCCL__TO_EACH, pccl__work_tree_scan, NULL},
    {PCCL_BARRIER, PCCL_DISSEMINATION, pccl__plan_dissemination_barrier, PCCL_SHAPE_FULL, 0, pccl__work_dissemination,
     NULL},
    {PCCL_BARRIER, PCCL_RING, pccl__plan_ring_barrier, PCCL_SHAPE_RING, 0, pccl__work_ring_barrier, NULL},
    {PCCL_BARRIER, PCCL_TREE, pccl__plan_tree_barrier, PCCL_SHAPE_TREE, 0, pccl__work_tree_barrier, NULL},
    {PCCL_BARRIER, PCCL_LEADERS, pccl__plan_leaders_barrier, PCCL_SHAPE_FULL, PCCL__BY_HOST, pccl__work_leaders_barrier,
     pccl__inside_leaders_barrier},
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

/* ---------------------------------------------------------------- offers */

static void charge(struct pccl__offer *offer, struct pccl__work work, struct pccl__link_model link, double sharing) {
    offer->start_ns += work.rounds * link.latency_ns + work.transfers * link.overhead_ns;
    offer->byte_ns += work.volume * sharing / link.bytes_per_ns;
}

static bool considered(const struct pccl__planner *planner, const struct pccl__shape *shape) {
    if (!pccl__planner_fits(planner, shape, 0)) return false;
    if (planner->traits & PCCL__AT_ONCE) return shape->hosts == 1;
    return !(planner->traits & PCCL__BY_HOST) || (shape->hosts > 1 && shape->host_most > 1);
}

/* How many of a host use its wire at the same time, beyond what the volume between hosts says. */
static double sharing(const struct pccl__planner *planner, const struct pccl__shape *shape) {
    bool crowded = planner->links == PCCL_SHAPE_FULL && !(planner->traits & PCCL__BY_HOST);
    return crowded && shape->hosts > 1 ? shape->host_most : 1;
}

static struct pccl__offer offer_of(const struct pccl__planner *planner, const struct pccl__shape *shape,
                                   struct pccl__link_models links) {
    struct pccl__offer offer = {.planner = planner};
    charge(&offer, planner->work(shape), links.between, sharing(planner, shape));
    if (planner->inside) charge(&offer, planner->inside(shape), links.inside, 1);
    return offer;
}

void pccl__offers_make(struct pccl__offers *offers, const struct pccl__shape *shape, struct pccl__link_models links) {
    _Static_assert(sizeof planners / sizeof *planners <= PCCL__OFFERS_MAX, "offers for all planners");
    offers->links = links;
    offers->size = shape->size;
    offers->count = 0;
    const struct pccl__planner *planner;
    for (size_t i = 0; shape->size > 0 && (planner = pccl__planner_at(i)); i++) {
        if (considered(planner, shape)) offers->offer[offers->count++] = offer_of(planner, shape, links);
    }
}

static double cost_ns(const struct pccl__offer *offer, uint64_t bytes) {
    return offer->start_ns + (double)bytes * offer->byte_ns;
}

double pccl__planner_cost_ns(const struct pccl__offers *offers, const struct pccl__planner *planner,
                             const struct pccl__shape *shape, uint64_t bytes) {
    struct pccl__offer offer = offer_of(planner, shape, offers->links);
    return cost_ns(&offer, bytes);
}

static bool serves(const struct pccl__offer *offer, pccl_collective collective, uint8_t needed) {
    return offer->planner->collective == collective && (offer->planner->traits & needed) == needed;
}

const struct pccl__planner *pccl__planner_choose(const struct pccl__offers *offers, pccl_collective collective,
                                                 uint64_t bytes, uint8_t needed) {
    const struct pccl__offer *best = NULL;
    for (uint32_t i = 0; i < offers->count; i++) {
        const struct pccl__offer *offer = &offers->offer[i];
        if (!serves(offer, collective, needed)) continue;
        /* Where a host has many members messages count, not rounds: the first one has fewest, but for its leaders. */
        if (best && collective == PCCL_BARRIER && !(offer->planner->traits & PCCL__BY_HOST)) continue;
        if (!best || cost_ns(offer, bytes) * NEAR_TIE < cost_ns(best, bytes)) best = offer;
    }
    return best ? best->planner : NULL;
}

/* ---------------------------------------------------------------- in words */

struct words {
    char *text;
    size_t bytes, used;
};

static void say(struct words *words, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void say(struct words *words, const char *format, ...) {
    if (words->used >= words->bytes) return;
    va_list arguments;
    va_start(arguments, format);
    int more = vsnprintf(words->text + words->used, words->bytes - words->used, format, arguments);
    va_end(arguments);
    words->used += more > 0 ? (size_t)more : 0;
}

int pccl__duration_text(double ns, char *text, size_t text_bytes) {
    static const char *const units[] = {"ns", "us", "ms", "s"};
    uint32_t unit = 0;
    for (; ns >= 999.5 && unit < 3; unit++) ns /= 1000;
    return snprintf(text, text_bytes, "%.3g %s", ns, units[unit]);
}

static void say_time(struct words *words, double ns) {
    char text[32];
    pccl__duration_text(ns, text, sizeof text);
    say(words, "%s", text);
}

static void say_work(struct words *words, const struct pccl__planner *planner, const struct pccl__shape *shape,
                     uint64_t bytes) {
    struct pccl__work work = planner->work(shape);
    say(words, " (%g rounds, %.2f times %llu bytes", work.rounds, work.volume, (unsigned long long)bytes);
    if (planner->inside) {
        struct pccl__work inside = planner->inside(shape);
        say(words, " between hosts; %g rounds, %.2f times within", inside.rounds, inside.volume);
    }
    say(words, ")");
}

void pccl__planner_explain(const struct pccl__offers *offers, const struct pccl__planner *chosen,
                           const struct pccl__shape *shape, uint64_t bytes, uint8_t needed, char *text,
                           size_t text_bytes) {
    struct words words = {.text = text, .bytes = text_bytes};
    say(&words, "%s: ", pccl_algorithm_name(chosen->algorithm));
    say_time(&words, pccl__planner_cost_ns(offers, chosen, shape, bytes));
    say_work(&words, chosen, shape, bytes);
    for (uint32_t i = 0; i < offers->count; i++) {
        const struct pccl__offer *other = &offers->offer[i];
        if (other->planner == chosen || !serves(other, chosen->collective, needed)) continue;
        say(&words, "; %s: ", pccl_algorithm_name(other->planner->algorithm));
        say_time(&words, cost_ns(other, bytes));
    }
}
