/* SPDX-License-Identifier: MIT
 *
 * layout.h - what each collective has in its buffers: how long they are, and where the chunks of its plan lie in them.
 *
 * Must not know: plans, channels, operations. Everything is in elements. The only place that tells collectives apart
 * by what their buffers mean; executor and checks ask it.
 *
 * Parts may be uneven. All members know the parts of an all_gather and of a reduce_scatter; those of a gather, a
 * scatter and an all_to_all are known to the two members that they pass between.
 */
#ifndef PCCL_ENGINE_LAYOUT_H
#define PCCL_ENGINE_LAYOUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "pccl.h"

#define PCCL__NOWHERE UINT64_MAX

/* Has it any, or is it a barrier? */
bool pccl__has_data(pccl_collective collective);
/* Does it do arithmetic (`op` counts)? */
bool pccl__reduces(pccl_collective collective);
/* Has one member a role of its own (`root` counts)? */
bool pccl__has_root(pccl_collective collective);
/* Is it something between two members? */
bool pccl__is_pair(pccl_collective collective);
/* Is `count` that of one member's part, so that buffers of `size` parts occur? */
bool pccl__in_parts(pccl_collective collective);
/* Uneven parts are known to the two members only that they pass between. */
bool pccl__parts_are_private(pccl_collective collective);

struct pccl__layout {
    pccl_collective collective;
    uint32_t size, rank, position, root; /* root is a rank */
    const uint32_t *ring;                /* ranks by position; NULL: positions are ranks */
    uint32_t chunks;                     /* of the plan */
    uint64_t count;                      /* of the vector, or of a part; of uneven parts, of our own */
    uint32_t unit;                       /* slices of a vector begin at multiples of it; 0 is 1 */
    bool uneven;
    bool to_each; /* the plan's trait PCCL__TO_EACH */
    /* Where each rank's part begins in our buffers of uneven parts, and the end [size + 1]; else NULL. */
    const uint64_t *input_begins, *output_begins;
};

/* Where a chunk begins in our buffers; NOWHERE in one that does not hold it. `elements` is what the chunk has anywhere;
 * of private uneven parts that do not pass us, 0. */
struct pccl__place {
    uint64_t elements, input, result;
};
struct pccl__place pccl__layout_place(const struct pccl__layout *layout, uint32_t chunk);

/* Of private parts: the rank that a chunk comes from. */
uint32_t pccl__layout_origin(const struct pccl__layout *layout, uint32_t chunk);

/* Chunks that may be in our input and in our result, so that who receives none of them copies them: [first, end). */
void pccl__layout_kept(const struct pccl__layout *layout, uint32_t *first, uint32_t *end);
/* Elements of the longest chunk; of private uneven parts the longest of ours. */
uint64_t pccl__layout_longest(const struct pccl__layout *layout);

/* Elements of the vector that a planner's volume speaks of, as all members know it: 0 of private uneven parts. */
uint64_t pccl__layout_total(const struct pccl__layout *layout);
/* Is a buffer of ours made of the parts of all ranks? */
bool pccl__layout_input_has_parts(const struct pccl__layout *layout);
bool pccl__layout_output_has_parts(const struct pccl__layout *layout);
/* Lengths of our buffers. 0: it is not used. UINT64_MAX: more than can be counted. */
uint64_t pccl__layout_input(const struct pccl__layout *layout);
uint64_t pccl__layout_output(const struct pccl__layout *layout);

/* In place means: the shorter buffer is our own part within the longer one, which begins there; 0 for equal ones. */
uint64_t pccl__layout_own(const struct pccl__layout *layout);
/* Is the longer one the output? */
bool pccl__layout_all_in_output(pccl_collective collective);
/* In place, is the result of a chunk where its input was, and holds it the sum of that and others? */
bool pccl__layout_chunks_stay(const struct pccl__layout *layout);
/* In place, does the result overwrite what was the input? */
bool pccl__layout_overwrites(pccl_collective collective);

#endif
