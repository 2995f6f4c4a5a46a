/* SPDX-License-Identifier: MIT */
#include "engine/cuts.h"

#include <stdlib.h>

#include "base/bits.h"

struct rule {
    const struct pccl__tensors *tensors;
    uint64_t segment;
};

/* The end of the piece that begins at `at`, in a chunk that ends at `end`. */
static uint64_t end_of(const struct rule *rule, uint64_t at, uint64_t end) {
    uint64_t full = min_u64(at + rule->segment, end);
    for (struct pccl__stretch it = {0}; pccl__tensors_next(rule->tensors, at, full, &it);) {
        uint64_t begin = at + it.offset / rule->tensors->element_bytes;
        uint64_t left = min_u64(rule->tensors->begins[it.tensor + 1], end) - begin;
        if (left >= rule->segment) return begin > at ? begin : begin + it.elements;
    }
    return full;
}

/* Cuts all chunks, and writes it down where there is room. Returns how many pieces there are. */
static uint32_t cut(const struct rule *rule, const struct pccl__layout *layout, struct pccl__cuts *cuts) {
    uint32_t pieces = 0;
    for (uint32_t chunk = 0; chunk < layout->chunks; chunk++) {
        struct pccl__place place = pccl__layout_place(layout, chunk);
        uint64_t at = place.input, end = place.input + place.elements;
        if (cuts) cuts->first[chunk] = pieces;
        for (; at < end; at = end_of(rule, at, end), pieces++)
            if (cuts) cuts->at[pieces] = at;
        if (cuts) cuts->most = (uint32_t)max_u64(cuts->most, pieces - cuts->first[chunk]);
    }
    return pieces;
}

pccl_status pccl__cuts_new(const struct pccl__tensors *tensors, const struct pccl__layout *layout, uint64_t segment,
                           struct pccl__cuts **out) {
    struct rule rule = {tensors, segment};
    uint32_t pieces = cut(&rule, layout, NULL);
    size_t places = ((size_t)pieces + 1) * sizeof(uint64_t);
    struct pccl__cuts *cuts = malloc(sizeof *cuts + places + ((size_t)layout->chunks + 1) * sizeof(uint32_t));
    if (!cuts) return PCCL_NO_MEMORY;
    *cuts = (struct pccl__cuts){.first = (uint32_t *)(cuts->at + pieces + 1)};
    cut(&rule, layout, cuts);
    cuts->first[layout->chunks] = pieces;
    cuts->at[pieces] = layout->count;
    *out = cuts;
    return PCCL_OK;
}

void pccl__cuts_free(struct pccl__cuts *cuts) { free(cuts); }
