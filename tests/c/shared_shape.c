/* SPDX-License-Identifier: MIT */
#include "shared_shape.h"

#include "base/prng.h"

static void shuffle(struct shape_draw *draw, uint64_t *random) {
    for (uint32_t i = 0; i < draw->size; i++) draw->ring[i] = i;
    for (uint32_t i = draw->size; i > 1; i--) {
        uint32_t j = prng_below(random, i), kept = draw->ring[i - 1];
        draw->ring[i - 1] = draw->ring[j];
        draw->ring[j] = kept;
    }
}

static bool ring_lives(const struct shape_draw *draw) {
    for (uint32_t i = 0; i < draw->size; i++)
        if (draw->dead[draw->ring[i]][draw->ring[(i + 1) % draw->size]]) return false;
    return true;
}

static bool all_live(const struct shape_draw *draw) {
    for (uint32_t a = 0; a < draw->size; a++)
        for (uint32_t b = 0; b < draw->size; b++)
            if (draw->dead[a][b]) return false;
    return true;
}

/* Depth first, which numbers in preorder. `order` says in which order neighbours are tried. */
static void grow(struct shape_draw *draw, const uint32_t *order, uint32_t rank, uint32_t parent, bool *seen,
                 uint32_t *count) {
    uint32_t place = (*count)++;
    draw->ring[place] = rank;
    draw->parents[place] = parent;
    seen[rank] = true;
    for (uint32_t i = 0; i < draw->size; i++)
        if (!seen[order[i]] && !draw->dead[rank][order[i]]) grow(draw, order, order[i], place, seen, count);
}

uint32_t shape_draw(struct shape_draw *draw, uint64_t *random) {
    shuffle(draw, random);
    draw->shape = PCCL_SHAPE_FULL;
    if (all_live(draw) && prng_below(random, 2)) return draw->size;
    draw->shape = PCCL_SHAPE_RING;
    for (uint32_t tries = prng_below(random, 2) ? 50 : 0; tries > 0; tries--) {
        if (ring_lives(draw)) return draw->size;
        shuffle(draw, random);
    }
    draw->shape = PCCL_SHAPE_TREE;
    uint32_t order[SHAPE_MEMBERS_MAX] = {0}, count = 0;
    bool seen[SHAPE_MEMBERS_MAX] = {false};
    for (uint32_t i = 0; i < draw->size; i++) order[i] = draw->ring[i];
    grow(draw, order, order[0], 0, seen, &count);
    return count;
}
