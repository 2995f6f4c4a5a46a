/* SPDX-License-Identifier: MIT
 *
 * side.h - a tree as a position in it sees it: one side behind each of its links.
 */
#ifndef PCCL_PLAN_SIDE_H
#define PCCL_PLAN_SIDE_H

#include "plan/shape.h"

/* One link of a position, and what lies on its other side. */
struct pccl__side {
    uint32_t peer;
    uint32_t first, end; /* these positions; for the link to the parent, all but these */
    bool is_parent;
    uint32_t far;  /* links from the peer to the farthest position on its side */
    uint32_t near; /* links from us to the farthest position on ours */
};

/* The parent, then the children. `side` begins with our own position as peer; false: there are no more. */
bool pccl__side_next(const struct pccl__shape *shape, uint32_t position, struct pccl__side *side);
bool pccl__side_holds(const struct pccl__side *side, uint32_t position);
/* How many positions are there. */
uint32_t pccl__side_size(const struct pccl__shape *shape, const struct pccl__side *side);

/* Links between two positions. */
uint32_t pccl__side_distance(const struct pccl__shape *shape, uint32_t a, uint32_t b);
/* Links from `position` to each position, into `distance` [size]. */
void pccl__side_distances(const struct pccl__shape *shape, uint32_t position, uint32_t *distance);

#endif
