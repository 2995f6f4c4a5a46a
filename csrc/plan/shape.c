/* SPDX-License-Identifier: MIT */
#include "plan/shape.h"

#include <stdlib.h>
#include <string.h>

#include "base/bits.h"

/* The parent of a position is the one before it or one above that. */
static bool is_preorder(const uint32_t *parents, uint32_t size) {
    if (!parents || parents[0] != 0) return false;
    for (uint32_t p = 1; p < size; p++) {
        uint32_t above = p - 1;
        while (above != 0 && above != parents[p]) above = parents[above];
        if (above != parents[p]) return false;
    }
    return true;
}

/* The longest way from the parent of `child` that does not lead through `child`, for all children of `position`. */
static void measure_beyond(struct pccl__shape *shape, uint32_t position) {
    uint32_t longest = position ? shape->beyond[position] + 1 : 0, second = 0, holder = position;
    for (uint32_t c = pccl__shape_child(shape, position); c != position;
         c = pccl__shape_next_child(shape, position, c)) {
        uint32_t way = shape->below[c] + 1;
        if (way > longest) {
            second = longest;
            longest = way;
            holder = c;
        } else if (way > second) {
            second = way;
        }
    }
    for (uint32_t c = pccl__shape_child(shape, position); c != position; c = pccl__shape_next_child(shape, position, c))
        shape->beyond[c] = c == holder ? second : longest;
    shape->diameter = longest > shape->diameter ? longest : shape->diameter;
}

static void measure(struct pccl__shape *shape) {
    for (uint32_t p = 0; p < shape->size; p++) {
        shape->ends[p] = p + 1;
        shape->depth[p] = p ? shape->depth[shape->parents[p]] + 1 : 0;
    }
    for (uint32_t p = shape->size; --p > 0;) {
        uint32_t parent = shape->parents[p];
        if (shape->ends[p] > shape->ends[parent]) shape->ends[parent] = shape->ends[p];
        if (shape->below[p] + 1 > shape->below[parent]) shape->below[parent] = shape->below[p] + 1;
    }
    for (uint32_t p = 0; p < shape->size; p++) {
        uint32_t links = p > 0;
        for (uint32_t c = pccl__shape_child(shape, p); c != p; c = pccl__shape_next_child(shape, p, c)) links++;
        shape->degree = links > shape->degree ? links : shape->degree;
        measure_beyond(shape, p);
    }
}

pccl_status pccl__shape_init(struct pccl__shape *shape, pccl_shape kind, uint32_t size, const uint32_t *parents) {
    if (size == 0 || (unsigned)kind >= PCCL_SHAPE_COUNT) return PCCL_INVALID;
    if (kind == PCCL_SHAPE_TREE && !is_preorder(parents, size)) return PCCL_INVALID;
    *shape = (struct pccl__shape){.kind = kind, .size = size, .host_least = size, .host_most = size};
    if (kind != PCCL_SHAPE_TREE) return PCCL_OK;
    uint32_t *arrays = calloc(size, 5 * sizeof *arrays);
    if (!arrays) return PCCL_NO_MEMORY;
    shape->parents = arrays;
    shape->ends = arrays + size;
    shape->depth = arrays + 2 * (size_t)size;
    shape->below = arrays + 3 * (size_t)size;
    shape->beyond = arrays + 4 * (size_t)size;
    memcpy(shape->parents, parents, size * sizeof *parents);
    measure(shape);
    return PCCL_OK;
}

void pccl__shape_free(struct pccl__shape *shape) {
    free(shape->parents);
    free(shape->host_begins);
    *shape = (struct pccl__shape){0};
}

pccl_status pccl__shape_set_hosts(struct pccl__shape *shape, const uint64_t *ids) {
    uint32_t *begins = malloc(((size_t)shape->size + 1) * sizeof *begins), hosts = 0;
    if (!begins) return PCCL_NO_MEMORY;
    for (uint32_t p = 0; p < shape->size; p++) {
        if (hosts && ids[begins[hosts - 1]] == ids[p]) continue;
        for (uint32_t h = 0; h < hosts; h++) {
            if (ids[begins[h]] != ids[p]) continue;
            free(begins);
            return PCCL_OK;
        }
        begins[hosts++] = p;
    }
    begins[hosts] = shape->size;
    shape->hosts = hosts;
    shape->host_begins = begins;
    shape->host_most = 0;
    for (uint32_t h = 0; h < hosts; h++) {
        uint32_t members = begins[h + 1] - begins[h];
        if (members < shape->host_least) shape->host_least = members;
        if (members > shape->host_most) shape->host_most = members;
    }
    return PCCL_OK;
}

bool pccl__shape_joins(const struct pccl__shape *shape, uint32_t a, uint32_t b) {
    if (shape->kind == PCCL_SHAPE_FULL) return true;
    if (shape->kind == PCCL_SHAPE_TREE) return shape->parents[a] == b || shape->parents[b] == a;
    return (a + 1) % shape->size == b || (b + 1) % shape->size == a;
}
