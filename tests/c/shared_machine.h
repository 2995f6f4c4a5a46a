/* SPDX-License-Identifier: MIT
 *
 * shared_machine.h - an interpreter for the plans of all positions, whose channels hold nothing.
 *
 * Zero-buffer rendezvous: a send ends only when its receive is posted, and each position has the steps of one round
 * posted at a time. What does not deadlock here does not deadlock over any channel. Values are expressions, not
 * numbers: two positions hold the same node exactly when they computed the same thing in the same order, hence the same
 * bits. Quantized values as well, whose rules (engine/coding.h) it follows when `codes` is set: what is encoded is
 * another expression.
 */
#ifndef PCCL_TESTS_SHARED_MACHINE_H
#define PCCL_TESTS_SHARED_MACHINE_H

#include <stdbool.h>
#include <stdint.h>

#include "plan/plan.h"

enum {
    NOTHING = 0,
    MACHINE_SIZES = 64, /* the largest group */
    MACHINE_NODES = 1 << 15,
    MACHINE_CHUNKS = MACHINE_SIZES * MACHINE_SIZES,
    MACHINE_STEPS = 2 * MACHINE_SIZES * MACHINE_SIZES
};

struct node {
    uint32_t left, right; /* both 0: a contribution; `right` alone: `left`, encoded */
    uint64_t positions;   /* whose contributions it holds */
    uint32_t encodings;   /* how often one of them was encoded, at most */
    uint32_t encoder;     /* 1 + the position that encoded it; 0: none has */
};

/* The only one. Tests read it; `values` are what counts at the end. */
extern struct machine {
    struct node nodes[MACHINE_NODES]; /* 1 + p is the contribution of position p, or "p has begun" */
    uint32_t nodes_count;
    const struct pccl__planner *planner;
    const struct pccl__shape *shape;
    uint32_t size, root;
    uint64_t everyone;
    struct pccl__plan plans[MACHINE_SIZES];
    uint32_t next[MACHINE_SIZES]; /* the first step of the round that is posted */
    bool ended[MACHINE_SIZES][MACHINE_STEPS];
    uint32_t receive[MACHINE_SIZES][MACHINE_CHUNKS];  /* the first receive of a chunk that has not ended */
    uint32_t following[MACHINE_SIZES][MACHINE_STEPS]; /* of a receive: the next one of its chunk */
    uint32_t values[MACHINE_SIZES][MACHINE_CHUNKS];   /* [position][chunk]: a node, NOTHING */
    uint32_t sending[MACHINE_SIZES][MACHINE_CHUNKS];  /* as they were when the round was posted */
    uint32_t matched;
    bool codes;    /* set before machine_load */
    bool repeated; /* two positions encoded one and the same sum */
} machine;

/* Builds the plans of all positions, which must be sane, and puts values where the collective has them at first.
 * `shape` is borrowed until the next call. */
void machine_load(const struct pccl__planner *planner, const struct pccl__shape *shape, uint32_t root);
/* To the end. EXPECTs that there is no deadlock, nothing is counted twice, and `complete` is said where it is true. */
void machine_run(void);
void machine_free(void);

/* Appends the contributions of an expression to `order` [MACHINE_SIZES], from left to right. */
void machine_flatten(uint32_t node, uint32_t *order, uint32_t *count);

#endif
