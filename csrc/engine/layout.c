/* SPDX-License-Identifier: MIT */
#include "engine/layout.h"

#include "base/bits.h"

/* ---------------------------------------------------------------- traits */

enum trait {
    DATA = 1,
    REDUCES = 2,
    ROOT = 4,
    PARTS = 8,
    PRIVATE = 16,    /* uneven parts */
    OVERWRITES = 32, /* in place */
    PAIR = 64
};

static const uint8_t traits[PCCL_COLLECTIVE_COUNT] = {
    [PCCL_ALL_REDUCE] = DATA | REDUCES | OVERWRITES,
    [PCCL_REDUCE_SCATTER] = DATA | REDUCES | PARTS | OVERWRITES,
    [PCCL_ALL_GATHER] = DATA | PARTS,
    [PCCL_BROADCAST] = DATA | ROOT,
    [PCCL_REDUCE] = DATA | REDUCES | ROOT | OVERWRITES,
    [PCCL_GATHER] = DATA | ROOT | PARTS | PRIVATE,
    [PCCL_SCATTER] = DATA | ROOT | PARTS | PRIVATE,
    [PCCL_ALL_TO_ALL] = DATA | PARTS | PRIVATE | OVERWRITES,
    [PCCL_SCAN] = DATA | REDUCES | OVERWRITES,
    [PCCL_EXSCAN] = DATA | REDUCES | OVERWRITES,
    [PCCL_SEND] = DATA | PAIR,
    [PCCL_RECV] = DATA | PAIR,
};

static bool has(pccl_collective collective, enum trait trait) { return traits[collective] & trait; }

bool pccl__has_data(pccl_collective collective) { return has(collective, DATA); }
bool pccl__reduces(pccl_collective collective) { return has(collective, REDUCES); }
bool pccl__has_root(pccl_collective collective) { return has(collective, ROOT); }
bool pccl__is_pair(pccl_collective collective) { return has(collective, PAIR); }
bool pccl__in_parts(pccl_collective collective) { return has(collective, PARTS); }
bool pccl__parts_are_private(pccl_collective collective) { return has(collective, PRIVATE); }
bool pccl__layout_overwrites(pccl_collective collective) { return has(collective, OVERWRITES); }

/* ---------------------------------------------------------------- parts */

static uint32_t rank_at(const struct pccl__layout *layout, uint32_t position) {
    return layout->ring ? layout->ring[position] : position;
}

/* `begins` are those of a buffer that holds all parts. */
static uint64_t begin_of(const struct pccl__layout *layout, const uint64_t *begins, uint32_t rank) {
    return begins ? begins[rank] : rank * layout->count;
}

static uint64_t length_of(const struct pccl__layout *layout, const uint64_t *begins, uint32_t rank) {
    return begins ? begins[rank + 1] - begins[rank] : layout->count;
}

static uint64_t length_of_all(const struct pccl__layout *layout, const uint64_t *begins) {
    uint64_t all;
    if (begins) return begins[layout->size];
    return mul_overflows(layout->count, layout->size, &all) ? UINT64_MAX : all;
}

/* ---------------------------------------------------------------- places */

/* Of the whole vector, cut as evenly as can be. */
static struct pccl__place slice(const struct pccl__layout *layout, uint32_t chunk, bool in_input, bool in_result) {
    uint64_t unit = max_u64(layout->unit, 1), units = unit > 1 ? div_ceil(layout->count, unit) : layout->count;
    uint64_t base = units / layout->chunks, extra = units % layout->chunks; /* extras go to the first chunks */
    uint64_t begin = min_u64((chunk * base + min_u64(chunk, extra)) * unit, layout->count);
    return (struct pccl__place){.elements = min_u64((base + (chunk < extra)) * unit, layout->count - begin),
                                .input = in_input ? begin : PCCL__NOWHERE,
                                .result = in_result ? begin : PCCL__NOWHERE};
}

/* A whole vector for each position, of which the one for us is our result. */
static struct pccl__place for_each(const struct pccl__layout *layout, uint32_t chunk) {
    bool ours = chunk == layout->position && pccl__layout_output(layout) > 0;
    return (struct pccl__place){.elements = layout->count, .input = 0, .result = ours ? 0 : PCCL__NOWHERE};
}

/* The part of `rank`, which that rank has alone in one buffer, and those who `hold_all` have among all in the other. */
static struct pccl__place part(const struct pccl__layout *layout, uint32_t rank, const uint64_t *begins, bool hold_all,
                               bool all_in_input) {
    bool ours = rank == layout->rank, known = hold_all || ours || !layout->uneven;
    uint64_t alone = ours ? 0 : PCCL__NOWHERE;
    uint64_t among = hold_all ? begin_of(layout, begins, rank) : PCCL__NOWHERE;
    return (struct pccl__place){.elements = known ? length_of(layout, begins, rank) : 0,
                                .input = all_in_input ? among : alone,
                                .result = all_in_input ? alone : among};
}

static struct pccl__place passed(const struct pccl__layout *layout, uint32_t from, uint32_t to) {
    struct pccl__place place = {.elements = layout->uneven ? 0 : layout->count, PCCL__NOWHERE, PCCL__NOWHERE};
    if (from == layout->rank) {
        place.elements = length_of(layout, layout->input_begins, to);
        place.input = begin_of(layout, layout->input_begins, to);
    }
    if (to == layout->rank) {
        place.elements = length_of(layout, layout->output_begins, from);
        place.result = begin_of(layout, layout->output_begins, from);
    }
    return place;
}

struct pccl__place pccl__layout_place(const struct pccl__layout *layout, uint32_t chunk) {
    bool root = layout->rank == layout->root;
    switch (layout->collective) {
    case PCCL_ALL_REDUCE:
        return slice(layout, chunk, true, true);
    case PCCL_SCAN:
        return layout->to_each ? for_each(layout, chunk) : slice(layout, chunk, true, true);
    case PCCL_BROADCAST:
        return slice(layout, chunk, root, true);
    case PCCL_REDUCE:
        return slice(layout, chunk, true, root);
    case PCCL_SEND:
        return slice(layout, chunk, true, false);
    case PCCL_RECV:
        return slice(layout, chunk, false, true);
    case PCCL_EXSCAN:
        return layout->to_each ? for_each(layout, chunk) : slice(layout, chunk, true, layout->rank > 0);
    case PCCL_REDUCE_SCATTER:
        return part(layout, rank_at(layout, chunk), layout->input_begins, true, true);
    case PCCL_ALL_GATHER:
        return part(layout, rank_at(layout, chunk), layout->output_begins, true, false);
    case PCCL_SCATTER:
        return part(layout, rank_at(layout, chunk), layout->input_begins, root, true);
    case PCCL_GATHER:
        return part(layout, rank_at(layout, chunk), layout->output_begins, root, false);
    case PCCL_ALL_TO_ALL:
        return passed(layout, rank_at(layout, chunk / layout->size), rank_at(layout, chunk % layout->size));
    default:
        return (struct pccl__place){0, PCCL__NOWHERE, PCCL__NOWHERE};
    }
}

uint32_t pccl__layout_origin(const struct pccl__layout *layout, uint32_t chunk) {
    if (layout->collective == PCCL_SCATTER) return layout->root;
    return rank_at(layout, layout->collective == PCCL_ALL_TO_ALL ? chunk / layout->size : chunk);
}

void pccl__layout_kept(const struct pccl__layout *layout, uint32_t *first, uint32_t *end) {
    uint32_t kept = layout->position;
    if (layout->collective == PCCL_ALL_TO_ALL) kept += layout->position * layout->size;
    bool parts = pccl__in_parts(layout->collective);
    *first = parts ? kept : 0;
    *end = parts ? kept + 1 : layout->chunks;
}

static uint64_t longest_of(const struct pccl__layout *layout, const uint64_t *begins) {
    uint64_t longest = layout->uneven ? 0 : layout->count;
    for (uint32_t rank = 0; begins && rank < layout->size; rank++)
        longest = max_u64(longest, length_of(layout, begins, rank));
    return longest;
}

uint64_t pccl__layout_longest(const struct pccl__layout *layout) {
    if (!pccl__in_parts(layout->collective)) return pccl__layout_place(layout, 0).elements;
    uint64_t parts = max_u64(longest_of(layout, layout->input_begins), longest_of(layout, layout->output_begins));
    return max_u64(parts, layout->count);
}

/* ---------------------------------------------------------------- buffers */

uint64_t pccl__layout_total(const struct pccl__layout *layout) {
    if (!pccl__in_parts(layout->collective)) return layout->count;
    if (layout->uneven && pccl__parts_are_private(layout->collective)) return 0;
    return length_of_all(layout, layout->input_begins ? layout->input_begins : layout->output_begins);
}

bool pccl__layout_input_has_parts(const struct pccl__layout *layout) {
    switch (layout->collective) {
    case PCCL_REDUCE_SCATTER:
    case PCCL_ALL_TO_ALL:
        return true;
    case PCCL_SCATTER:
        return layout->rank == layout->root;
    default:
        return false;
    }
}

bool pccl__layout_output_has_parts(const struct pccl__layout *layout) {
    switch (layout->collective) {
    case PCCL_ALL_GATHER:
    case PCCL_ALL_TO_ALL:
        return true;
    case PCCL_GATHER:
        return layout->rank == layout->root;
    default:
        return false;
    }
}

uint64_t pccl__layout_input(const struct pccl__layout *layout) {
    if (pccl__layout_input_has_parts(layout)) return length_of_all(layout, layout->input_begins);
    bool elsewhere = layout->rank != layout->root;
    if (elsewhere && (layout->collective == PCCL_BROADCAST || layout->collective == PCCL_SCATTER)) return 0;
    if (layout->collective == PCCL_RECV) return 0;
    return pccl__has_data(layout->collective) ? layout->count : 0;
}

uint64_t pccl__layout_output(const struct pccl__layout *layout) {
    if (pccl__layout_output_has_parts(layout)) return length_of_all(layout, layout->output_begins);
    bool elsewhere = layout->rank != layout->root;
    if (elsewhere && (layout->collective == PCCL_REDUCE || layout->collective == PCCL_GATHER)) return 0;
    if (layout->collective == PCCL_EXSCAN && layout->rank == 0) return 0;
    if (layout->collective == PCCL_SEND) return 0;
    return pccl__has_data(layout->collective) ? layout->count : 0;
}

uint64_t pccl__layout_own(const struct pccl__layout *layout) {
    if (layout->collective == PCCL_ALL_TO_ALL) return 0;
    if (pccl__layout_input_has_parts(layout)) return begin_of(layout, layout->input_begins, layout->rank);
    if (pccl__layout_output_has_parts(layout)) return begin_of(layout, layout->output_begins, layout->rank);
    return 0;
}

bool pccl__layout_chunks_stay(const struct pccl__layout *layout) {
    return pccl__reduces(layout->collective) && layout->collective != PCCL_EXSCAN && !layout->to_each;
}

bool pccl__layout_all_in_output(pccl_collective collective) {
    return collective == PCCL_ALL_GATHER || collective == PCCL_GATHER;
}
