/* SPDX-License-Identifier: MIT
 *
 * work.h - what each plan costs, by formula: the same that stand in the heads of the files with the builders, so that
 * none has to be built to know it. plan_test compares them with the plans.
 *
 * Must not know: prices, bytes.
 *
 * `volume` is a multiple of the collective's total vector (size*count elements where count is that of a part, else
 * count), so `transfers` are sends (of reduce and gather: receives), one for each chunk. Where a cost depends on the
 * root it is that of the worst one.
 */
#ifndef PCCL_PLAN_WORK_H
#define PCCL_PLAN_WORK_H

#include "plan/shape.h"

struct pccl__work {
    double rounds;    /* in sequence */
    double volume;    /* that the busiest position sends (of reduce and gather: receives) */
    double transfers; /* of the busiest position; 0 where no plan with another number is a rival */
};
typedef struct pccl__work pccl__plan_work(const struct pccl__shape *shape);

/* Around a ring and through it. */
pccl__plan_work pccl__work_ring_all_reduce, pccl__work_ring, pccl__work_ring_barrier, pccl__work_chain;
pccl__plan_work pccl__work_chain_exscan, pccl__work_line_all_to_all, pccl__work_line_scan;
/* Powers of two. */
pccl__plan_work pccl__work_doubling, pccl__work_doubling_exscan, pccl__work_binomial;
pccl__plan_work pccl__work_halving_all_reduce, pccl__work_halving_reduce_scatter;
pccl__plan_work pccl__work_bruck_all_to_all, pccl__work_bruck_all_gather, pccl__work_dissemination;
/* Straight. */
pccl__plan_work pccl__work_direct_all_reduce, pccl__work_direct_reduce_scatter;
pccl__plan_work pccl__work_star_all_reduce, pccl__work_star, pccl__work_star_parts;
/* Along a tree. */
pccl__plan_work pccl__work_tree_all_reduce, pccl__work_tree, pccl__work_tree_parts, pccl__work_tree_all_gather;
pccl__plan_work pccl__work_tree_all_to_all, pccl__work_tree_scan, pccl__work_tree_barrier;

/* By host, between hosts: `volume` is what leaves (of reduce: enters) the busiest host, `transfers` are those of its
 * busiest leader. */
pccl__plan_work pccl__work_hierarchical_all_reduce, pccl__work_hierarchical_chain, pccl__work_hierarchical_parts;
pccl__plan_work pccl__work_leaders_all_reduce, pccl__work_leaders_binomial, pccl__work_leaders_barrier;
pccl__plan_work pccl__work_leaders_reduce_scatter, pccl__work_leaders_all_gather;
/* By host, inside: the sum over the rounds there of what the position moves that sends or receives most in each. */
pccl__plan_work pccl__inside_hierarchical_all_reduce, pccl__inside_hierarchical_rooted;
pccl__plan_work pccl__inside_hierarchical_scatter, pccl__inside_hierarchical_gather;
pccl__plan_work pccl__inside_leaders_all_reduce, pccl__inside_leaders_rooted, pccl__inside_leaders_barrier;
pccl__plan_work pccl__inside_leaders_scatter, pccl__inside_leaders_gather;

#endif
