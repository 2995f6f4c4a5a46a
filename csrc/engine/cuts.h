/* SPDX-License-Identifier: MIT
 *
 * cuts.h - how a vector that is made of many tensors is cut into pieces: each chunk of it at the ends of tensors that
 * fill a piece, so that their pieces lie together and are moved as those of any vector. Shorter ones share pieces, or a
 * thousand of them would be a thousand transfers; what such a piece costs instead are copies of it (operands.h).
 *
 * Must not know: operations, what moves when. All members cut alike, since lengths are equal on all.
 */
#ifndef PCCL_ENGINE_CUTS_H
#define PCCL_ENGINE_CUTS_H

#include "engine/layout.h"
#include "engine/tensors.h"

struct pccl__cuts {
    uint32_t most;   /* pieces of one chunk */
    uint32_t *first; /* [chunks + 1]: the pieces of chunk c are first[c], ..., first[c + 1] - 1 */
    uint64_t at[];   /* [pieces + 1]: where each begins, and the vector's end */
};

/* In pieces of `segment` elements at most. Errors: NO_MEMORY. */
pccl_status pccl__cuts_new(const struct pccl__tensors *tensors, const struct pccl__layout *layout, uint64_t segment,
                           struct pccl__cuts **cuts);
void pccl__cuts_free(struct pccl__cuts *cuts); /* NULL is allowed */

#endif
