/* SPDX-License-Identifier: MIT
 *
 * call.h - what a caller asks for: is it possible, and what does it mean for the buffers?
 */
#ifndef PCCL_ENGINE_CALL_H
#define PCCL_ENGINE_CALL_H

#include "engine/layout.h"
#include "pccl.h"

/* As far as it can be told without a group. Errors: INVALID. */
pccl_status pccl__call_check(const pccl_call *call, pccl_error *error);

/* What it means for rank `rank` of `size`. `layout` lacks what the plan brings: position, ring, chunks. `*begins` is
 * what it points to, to be freed by the caller; NULL where parts are even. Errors: INVALID, NO_MEMORY. */
pccl_status pccl__call_layout(const pccl_call *call, uint32_t size, uint32_t rank, struct pccl__layout *layout,
                              uint64_t **begins, pccl_error *error);

/* Are the buffers there, do they overlap only as in place? Those of a list of tensors are judged with it (tensors.h).
 * Errors: INVALID. */
pccl_status pccl__call_check_buffers(const pccl_call *call, const struct pccl__layout *layout, pccl_error *error);

#endif
