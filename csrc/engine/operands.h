/* SPDX-License-Identifier: MIT
 *
 * operands.h - where the input and the result of an operation lie: with the caller, or in pooled memory, so that an
 * abort finds the input again.
 *
 * Must not know: channels, when anything moves.
 */
#ifndef PCCL_ENGINE_OPERANDS_H
#define PCCL_ENGINE_OPERANDS_H

#include "engine/exec.h"
#include "engine/piece.h"

/* Takes what memory is needed, and scales the input that is to be. Before the tables are taken, which depend on it.
 * Errors: NO_MEMORY. */
pccl_status pccl__operands_place(struct pccl__exec *exec, struct pccl_operation *operation);
/* Before a piece of the result is overwritten for the first and only time. */
void pccl__operands_save(struct pccl_operation *operation, struct pccl__piece piece, uint32_t segment);
/* The input of a piece as it is saved, which it is from now on. NULL: the result does not overwrite it. */
const uint8_t *pccl__operands_back(struct pccl_operation *operation, struct pccl__piece piece, uint32_t segment);
/* What of the input lies in several tensors, brought together. */
void pccl__operands_gather(const struct pccl_operation *operation, struct pccl__piece piece, uint8_t *target);
/* The other way: into the result, once it has been saved. */
void pccl__operands_spread(const struct pccl_operation *operation, struct pccl__piece piece, const uint8_t *source);
/* What no receive writes comes from our own input: our part of an all_gather, a broadcast's root. */
void pccl__operands_keep(struct pccl_operation *operation);
/* The operation commits: the output gets the result, if it grew elsewhere. */
void pccl__operands_publish(struct pccl_operation *operation);
/* It does not, or cannot any more: the input gets back what was overwritten, `most` bytes of it, to the end of a piece.
 * After pccl__exec_cancel, so that nothing lands any more. Returns how many; 0: all is back. */
size_t pccl__operands_restore(struct pccl_operation *operation, size_t most);
void pccl__operands_release(struct pccl__exec *exec, struct pccl_operation *operation);

#endif
