/* SPDX-License-Identifier: MIT
 *
 * tensors.h - the tensors that one all_reduce takes together, and where they lie in the vector that they make.
 *
 * Must not know: plans, channels, operations. Everything is in elements of that vector. What of it lies in several
 * tensors is worked on stretch by stretch (cuts.h says which pieces do).
 */
#ifndef PCCL_ENGINE_TENSORS_H
#define PCCL_ENGINE_TENSORS_H

#include <stdbool.h>
#include <stddef.h>

#include "pccl.h"

struct pccl__tensors {
    uint32_t count;
    bool in_place; /* one of them is: its output is its input */
    size_t element_bytes;
    const uint64_t *begins; /* [count + 1]: elements before each, and all */
    pccl_tensor tensor[];
};

/* Does the call have a list of tensors, as it should? One by one; how they lie to each other is judged below. Errors:
 * INVALID. */
pccl_status pccl__tensors_check(const pccl_call *call, pccl_error *error);
/* Elements of all of them; of a list that is as it should be. */
uint64_t pccl__tensors_total(const pccl_call *call);
/* Copies the list of such a call. Errors: INVALID (an output overlaps something without being in place), NO_MEMORY. */
pccl_status pccl__tensors_new(const pccl_call *call, struct pccl__tensors **tensors, pccl_error *error);
void pccl__tensors_free(struct pccl__tensors *tensors); /* NULL is allowed */

/* What lies together. Zeroed before the first step of a walk. */
struct pccl__stretch {
    const uint8_t *input;
    uint8_t *result;
    size_t offset; /* bytes of the walk before it */
    uint64_t elements;
    uint32_t tensor;
};
/* A walk along elements [begin, end), tensor by tensor, empty ones left out: false at its end. */
bool pccl__tensors_next(const struct pccl__tensors *tensors, uint64_t begin, uint64_t end,
                        struct pccl__stretch *stretch);

#endif
