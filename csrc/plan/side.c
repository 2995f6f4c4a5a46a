/* SPDX-License-Identifier: MIT */
#include "plan/side.h"

bool pccl__side_next(const struct pccl__shape *shape, uint32_t position, struct pccl__side *side) {
    if (side->peer == position && position != 0 && !side->is_parent) {
        *side = (struct pccl__side){.peer = shape->parents[position],
                                    .first = position,
                                    .end = shape->ends[position],
                                    .is_parent = true,
                                    .far = shape->beyond[position],
                                    .near = shape->below[position]};
        return true;
    }
    uint32_t child = side->peer == position || side->is_parent ? pccl__shape_child(shape, position)
                                                               : pccl__shape_next_child(shape, position, side->peer);
    *side = (struct pccl__side){.peer = child,
                                .first = child,
                                .end = shape->ends[child],
                                .far = shape->below[child],
                                .near = shape->beyond[child]};
    return child != position;
}

bool pccl__side_holds(const struct pccl__side *side, uint32_t position) {
    return (position >= side->first && position < side->end) != side->is_parent;
}

uint32_t pccl__side_size(const struct pccl__shape *shape, const struct pccl__side *side) {
    uint32_t below = side->end - side->first;
    return side->is_parent ? shape->size - below : below;
}

uint32_t pccl__side_distance(const struct pccl__shape *shape, uint32_t a, uint32_t b) {
    uint32_t links = 0;
    for (; a != b; links++) {
        if (shape->depth[a] > shape->depth[b])
            a = shape->parents[a];
        else
            b = shape->parents[b];
    }
    return links;
}

void pccl__side_distances(const struct pccl__shape *shape, uint32_t position, uint32_t *distance) {
    for (uint32_t p = 0; p < shape->size; p++) distance[p] = shape->size;
    distance[position] = 0;
    for (uint32_t p = position; p != 0; p = shape->parents[p]) distance[shape->parents[p]] = distance[p] + 1;
    for (uint32_t p = 1; p < shape->size; p++)
        if (distance[p] == shape->size) distance[p] = distance[shape->parents[p]] + 1;
}
