/* SPDX-License-Identifier: MIT
 *
 * shape.h - which pairs of positions plans may use, since not every pair of living peers has a living link.
 *
 * Must not know: why a link is missing, ranks, channels. A shape is part of a view, so all members have the same one.
 *
 * FULL: any pair. RING: neighbours on the ring only. TREE: parent and child only. A tree's positions are numbered in
 * preorder: all that is below a position stands right behind it, so every side of every link is a range of positions,
 * and one array of parents says it all.
 *
 * A shape may also know which positions share a host, where those of each host stand together.
 */
#ifndef PCCL_PLAN_SHAPE_H
#define PCCL_PLAN_SHAPE_H

#include <stdbool.h>
#include <stdint.h>

#include "pccl.h"

struct pccl__shape {
    pccl_shape kind;
    uint32_t size;
    const uint32_t *ranks; /* by position, borrowed, for plans to which ranks matter; NULL: as positions */
    /* TREE only, else NULL and 0. Arrays by position, owned. */
    uint32_t *parents; /* the root, 0, is its own parent */
    uint32_t *ends;    /* the first position behind all that is below */
    uint32_t *depth;   /* links to the root */
    uint32_t *below;   /* links to the farthest position below */
    uint32_t *beyond;  /* links from the parent to the farthest position that is not below; 0 for the root */
    uint32_t degree;   /* the most links of one position */
    uint32_t diameter; /* links between the two farthest positions */
    /* Of any kind. */
    uint32_t hosts;                 /* 0: nothing is known of them, which plans take for one host */
    uint32_t *host_begins;          /* owned [hosts + 1]: the first position of each, and the end; NULL for 0 */
    uint32_t host_least, host_most; /* members of the smallest and of the largest one */
};

/* `shape` must be zeroed or freed. Copies `parents` (TREE; else ignored). Errors: INVALID (no such kind, no preorder),
 * NO_MEMORY; then there is nothing to free. */
pccl_status pccl__shape_init(struct pccl__shape *shape, pccl_shape kind, uint32_t size, const uint32_t *parents);
void pccl__shape_free(struct pccl__shape *shape);
/* Tells the shape its hosts: `ids` [size] by position, equal for those of one host. Where they do not stand together it
 * stays without. Errors: NO_MEMORY; then, too. */
pccl_status pccl__shape_set_hosts(struct pccl__shape *shape, const uint64_t *ids);
/* May plans use the link between these two different positions? */
bool pccl__shape_joins(const struct pccl__shape *shape, uint32_t a, uint32_t b);

/* At least 1. */
static inline uint32_t pccl__shape_hosts(const struct pccl__shape *shape) { return shape->hosts ? shape->hosts : 1; }
/* The first position on a host; of the number behind the last host, the size. */
static inline uint32_t pccl__shape_host_begin(const struct pccl__shape *shape, uint32_t host) {
    return shape->hosts ? shape->host_begins[host] : host * shape->size;
}

/* The children of `position` in a tree: from its first one to `position` itself, which means that there are no more. */
static inline uint32_t pccl__shape_child(const struct pccl__shape *shape, uint32_t position) {
    return position + 1 < shape->ends[position] ? position + 1 : position;
}
static inline uint32_t pccl__shape_next_child(const struct pccl__shape *shape, uint32_t position, uint32_t child) {
    return shape->ends[child] < shape->ends[position] ? shape->ends[child] : position;
}

#endif
