/* SPDX-License-Identifier: MIT
 *
 * descriptor.h - what an operation is, packed into the stamp that each of its frames carries, and as text for errors.
 */
#ifndef PCCL_ENGINE_DESCRIPTOR_H
#define PCCL_ENGINE_DESCRIPTOR_H

#include <stddef.h>

#include "channel/channel.h"
#include "engine/layout.h"
#include "pccl.h"

enum { PCCL__DESCRIPTOR_TEXT = 320 };

/* Everything that all members must agree on. `algorithm` is the chosen one, never AUTO. Fields without a meaning for
 * the collective (the op of a broadcast, the root of an all_reduce) are zero in the stamp, and so is the length of
 * private uneven parts (layout.h). */
struct pccl__stamp pccl__stamp_pack(const pccl_call *call, const struct pccl__layout *layout, pccl_algorithm algorithm);
/* For a transfer of private uneven parts: what the two ends must agree on in addition. */
void pccl__stamp_part(struct pccl__stamp *stamp, uint64_t elements);
/* For tensors that are reduced together: their lengths, as the sums before each and of all. */
void pccl__stamp_tensors(struct pccl__stamp *stamp, const uint64_t *begins, uint32_t count);
/* "all_reduce(float32[1000], op=sum, algorithm=ring)"; never fails, whatever the bytes are. A send and its receive have
 * one stamp: `receives` tells whose call is meant. */
void pccl__stamp_text(const struct pccl__stamp *stamp, bool receives, char text[PCCL__DESCRIPTOR_TEXT]);
/* Equal stamps have equal ones, others practically never. */
uint64_t pccl__stamp_fingerprint(const struct pccl__stamp *stamp);
/* May both be of one operation? Lengths of private uneven parts are not compared. */
bool pccl__stamp_agree(const struct pccl__stamp *a, const struct pccl__stamp *b);

#endif
