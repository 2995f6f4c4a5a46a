/* SPDX-License-Identifier: MIT
 *
 * coding.h - an operation whose payload is quantized: what goes over its links are values in a wire format (codec.h).
 *
 * Must not know: channels, when anything moves. The executor asks it wherever it would else touch values.
 *
 * So that all members end with the same bits, what others decode counts for its sender too:
 *   - A value that is sent is encoded once, and from then on its wire form stands for it, on this member as well: that
 * is sent to all who get the value, passed on as it came, and decoded where it is added to.
 *   - A sum that holds every contribution, of a collective whose results are equal, is encoded by whoever computes it,
 *     and the result is what that decodes to. So is our own part of an all_gather, and what a broadcast's root has.
 *   - A sum that is only added to is kept in float32.
 * coding_test proves for all plans that these rules make results equal.
 *
 * A value that its format cannot hold (it is no number, or too large) ends the operation on all members.
 */
#ifndef PCCL_ENGINE_CODING_H
#define PCCL_ENGINE_CODING_H

#include "engine/exec.h"
#include "engine/piece.h"

/* Which of a call's collectives have a quantized form, and what else it asks for; `planner` NULL is AUTO. Errors:
 * INVALID. */
struct pccl__planner;
pccl_status pccl__coding_check(const pccl_call *call, const struct pccl__planner *planner, pccl_error *error);
/* Bytes on the wire of the vector that a planner's volume speaks of, where `elements` are its values. */
uint64_t pccl__coding_bytes(const pccl_call *call, uint64_t elements);

/* Elements of the caller's `errors`: all that a broadcast's root may have sent, on other members, too. */
uint64_t pccl__coding_errors(const pccl_call *call, const struct pccl__layout *layout);

/* Before pieces are cut: how they are coded, and with which units. Clears the caller's `errors`. */
void pccl__coding_begin(struct pccl_operation *operation);
/* Once pieces are cut: bytes of scratch for one of them, in any form. */
void pccl__coding_measure(struct pccl_operation *operation);
/* Memory for the inputs of a window, in the tables; 0 where nothing is coded. */
size_t pccl__coding_tables_bytes(const struct pccl_operation *operation);
/* A slot has got another segment. */
void pccl__coding_admit(struct pccl_operation *operation, uint32_t slot);

/* All below: errors NO_MEMORY, and QUANTIZATION with operation->coding.unfit set. */

/* The wire form of what a send step sends. */
pccl_status pccl__coding_wire(struct pccl__exec *exec, struct pccl_operation *operation, struct pccl__task *task,
                              const uint8_t **wire);
/* A receive has come: adds it up, or takes it over. Then task->value is its value. */
pccl_status pccl__coding_combine(struct pccl__exec *exec, struct pccl_operation *operation, struct pccl__task *task);
pccl_status pccl__coding_take(struct pccl__exec *exec, struct pccl_operation *operation, struct pccl__task *task);
/* A step has read the input of a chunk. */
void pccl__coding_input_read(struct pccl__exec *exec, struct pccl_operation *operation, const struct pccl__task *task);
/* Gives back what a window holds. */
void pccl__coding_release(struct pccl__exec *exec, struct pccl_operation *operation);

#endif
