/* SPDX-License-Identifier: MIT
 *
 * tree.c - every collective along the links of a tree, for groups in which too many links are dead for a ring.
 *
 * Sums climb to the root and the result comes down: two ways of the tree's height, few rounds. What ends in blocks
 * takes the direct way instead: block c is reduced towards its owner, as if the tree hung from position c, and gathered
 * away from it. Then each link carries each block once, in one direction, which no plan on these links can undercut.
 *
 * With h the height, d the diameter (links) and g the most links of one position (its degree):
 *                    rounds   bytes sent by the busiest
 *   all_reduce       2h       g times the vector
 *   reduce_scatter   d        (n-1)/n of the vector (n blocks), as everyone
 *   all_gather       d        g - (n-1)/n of the vector (n blocks)
 *   broadcast        <= d     <= g times the vector
 *   barrier          2h       none
 * Each is a copy of one value computed in one place, so all members hold the same bits.
 */
#include "plan/plan.h"
#include "plan/side.h"

#include <stdlib.h>

static pccl_status add(struct pccl__plan *plan, uint32_t round, uint32_t peer, uint32_t chunk,
                       enum pccl__step_kind kind, bool complete) {
    return pccl__plan_add(plan, (struct pccl__step){.peer = peer,
                                                    .chunk = chunk,
                                                    .round = round,
                                                    .kind = (uint8_t)kind,
                                                    .complete = complete && kind >= PCCL__REDUCE_LEFT});
}

static pccl_status begin(struct pccl__plan *plan, uint32_t position, const struct pccl__shape *shape, uint32_t chunks,
                         uint32_t rounds) {
    if (shape->kind != PCCL_SHAPE_TREE) return PCCL_INVALID;
    return pccl__plan_begin(plan, position, shape->size, chunks, rounds);
}

/* ---------------------------------------------------------------- up and down */

/* Position p has heard all below it after `below[p]` rounds, and hears the root `depth[p]` rounds after that one has.
 */
static pccl_status up_and_down(uint32_t position, const struct pccl__shape *shape, enum pccl__step_kind up,
                               struct pccl__plan *plan) {
    if (shape->kind != PCCL_SHAPE_TREE || position >= shape->size) return PCCL_INVALID;
    uint32_t height = shape->below[0], below = shape->below[position], depth = shape->depth[position];
    uint32_t parent = shape->parents[position], last = position;
    pccl_status status = begin(plan, position, shape, 1, 2 * height);
    for (uint32_t c = pccl__shape_child(shape, position); c != position; c = pccl__shape_next_child(shape, position, c))
        if (last == position || shape->below[c] >= shape->below[last]) last = c;
    for (uint32_t round = 0; round < below; round++)
        for (uint32_t c = pccl__shape_child(shape, position); c != position && status == PCCL_OK;
             c = pccl__shape_next_child(shape, position, c))
            if (shape->below[c] == round) status = add(plan, round, c, 0, up, position == 0 && c == last);
    if (status == PCCL_OK && position) status = add(plan, below, parent, 0, PCCL__SEND, false);
    if (status == PCCL_OK && position) status = add(plan, height + depth - 1, parent, 0, PCCL__COPY, false);
    for (uint32_t c = pccl__shape_child(shape, position); c != position && status == PCCL_OK;
         c = pccl__shape_next_child(shape, position, c))
        status = add(plan, height + depth, c, 0, PCCL__SEND, false);
    return status;
}

pccl_status pccl__plan_tree_all_reduce(uint32_t position, const struct pccl__shape *shape, uint32_t root,
                                       struct pccl__plan *plan) {
    (void)root;
    return up_and_down(position, shape, PCCL__REDUCE_RIGHT, plan);
}

pccl_status pccl__plan_tree_barrier(uint32_t position, const struct pccl__shape *shape, uint32_t root,
                                    struct pccl__plan *plan) {
    (void)root;
    return up_and_down(position, shape, PCCL__COPY, plan);
}

/* ---------------------------------------------------------------- towards and away from each position */

/* The side from which our own block's last contribution comes. */
static uint32_t last_to_arrive(const struct pccl__shape *shape, uint32_t position) {
    struct pccl__side side = {.peer = position};
    uint32_t last = position, round = 0;
    while (pccl__side_next(shape, position, &side)) {
        if (last != position && side.far < round) continue;
        last = side.peer;
        round = side.far;
    }
    return last;
}

/* Over a link go the sums of one side, all at once: when its farthest position has been heard. */
static pccl_status reduce_round(uint32_t position, const struct pccl__shape *shape, uint32_t round, uint32_t last,
                                struct pccl__plan *plan) {
    pccl_status status = PCCL_OK;
    for (struct pccl__side side = {.peer = position}; pccl__side_next(shape, position, &side);) {
        for (uint32_t c = 0; side.near == round && c < shape->size && status == PCCL_OK; c++)
            if (pccl__side_holds(&side, c)) status = add(plan, round, side.peer, c, PCCL__SEND, false);
    }
    for (struct pccl__side side = {.peer = position}; pccl__side_next(shape, position, &side);) {
        for (uint32_t c = 0; side.far == round && c < shape->size && status == PCCL_OK; c++)
            if (!pccl__side_holds(&side, c))
                status = add(plan, round, side.peer, c, PCCL__REDUCE_RIGHT, c == position && side.peer == last);
    }
    return status;
}

pccl_status pccl__plan_tree_reduce_scatter(uint32_t position, const struct pccl__shape *shape, uint32_t root,
                                           struct pccl__plan *plan) {
    (void)root;
    pccl_status status = begin(plan, position, shape, shape->size, shape->diameter);
    uint32_t last = status == PCCL_OK ? last_to_arrive(shape, position) : 0;
    for (uint32_t round = 0; status == PCCL_OK && round < shape->diameter; round++)
        status = reduce_round(position, shape, round, last, plan);
    return status;
}

/* A block that is `round` links away from home goes on to all sides but the one that it came from. */
static pccl_status gather_round(uint32_t position, const struct pccl__shape *shape, uint32_t round,
                                const uint32_t *distance, struct pccl__plan *plan) {
    pccl_status status = PCCL_OK;
    for (struct pccl__side side = {.peer = position}; pccl__side_next(shape, position, &side);)
        for (uint32_t c = 0; c < shape->size && status == PCCL_OK; c++)
            if (distance[c] == round && !pccl__side_holds(&side, c))
                status = add(plan, round, side.peer, c, PCCL__SEND, false);
    for (struct pccl__side side = {.peer = position}; pccl__side_next(shape, position, &side);)
        for (uint32_t c = 0; c < shape->size && status == PCCL_OK; c++)
            if (distance[c] == round + 1 && pccl__side_holds(&side, c))
                status = add(plan, round, side.peer, c, PCCL__COPY, false);
    return status;
}

pccl_status pccl__plan_tree_all_gather(uint32_t position, const struct pccl__shape *shape, uint32_t root,
                                       struct pccl__plan *plan) {
    (void)root;
    pccl_status status = begin(plan, position, shape, shape->size, shape->diameter);
    if (status != PCCL_OK) return status;
    uint32_t *distance = malloc(shape->size * sizeof *distance);
    if (!distance) return PCCL_NO_MEMORY;
    pccl__side_distances(shape, position, distance);
    for (uint32_t round = 0; status == PCCL_OK && round < shape->diameter; round++)
        status = gather_round(position, shape, round, distance, plan);
    free(distance);
    return status;
}

pccl_status pccl__plan_tree_broadcast(uint32_t position, const struct pccl__shape *shape, uint32_t root,
                                      struct pccl__plan *plan) {
    if (root >= shape->size) return PCCL_INVALID;
    pccl_status status = begin(plan, position, shape, 1, shape->diameter);
    if (status != PCCL_OK) return status;
    uint32_t far = pccl__side_distance(shape, position, root);
    for (struct pccl__side side = {.peer = position}; pccl__side_next(shape, position, &side);)
        if (position != root && pccl__side_holds(&side, root))
            status = add(plan, far - 1, side.peer, 0, PCCL__COPY, false);
    for (struct pccl__side side = {.peer = position}; pccl__side_next(shape, position, &side) && status == PCCL_OK;)
        if (position == root || !pccl__side_holds(&side, root))
            status = add(plan, far, side.peer, 0, PCCL__SEND, false);
    return status;
}
