/* SPDX-License-Identifier: MIT
 *
 * exec.h - runs one schedule over one group: segments, overlap, scratch, then the finish phase.
 *
 * The idea: single assignment. What a receive brings lands in fresh scratch, or in the result if it is the last write
 * of its chunk, and stays there until nobody reads it any more. So no byte that a send may still read is ever
 * overwritten. The input is only read; in place, what the result overwrites is saved first, and an abort brings it
 * back.
 *
 * Segments are the unit of progress: a window of segments is admitted, in order, and each goes through all rounds of
 * the plan by itself. That is deadlock-free because the plan is (the interpreter in plan_test proves each plan with
 * zero buffering), and it keeps a segment in the cache from its arrival to its departure. Per segment at most
 * PCCL__RECEIVES_AHEAD receives are posted, so scratch is bounded by window * (that + 1) * segment bytes; quantized,
 * the window shrinks by the wire forms of what is sent of the input. Plans with very many steps (the hub of a large
 * star) get a smaller window, and so does what begins while the windows of others hold PCCL__WINDOWS_BYTES: one segment
 * suffices to get on, and members need not agree on windows. So hundreds of large operations at a time need little more
 * memory than some.
 *
 * Per payload byte that arrives: one kernel copy out of the socket, and for reduces one pass of arithmetic that reads
 * the arrived segment while it is hot. Nothing else touches it, except, in place, the copy that saves the input.
 * PREMUL_SUM begins with a scaled copy of the whole input, which then stands for it.
 *
 * A piece that several tensors share (cuts.h) is brought together in scratch before it is sent for the first time, and
 * its last value arrives, or is finished, in scratch, too, and is spread from there. First sends that are under way
 * need so much more scratch, all in all the size of the vector at most.
 */
#ifndef PCCL_ENGINE_EXEC_H
#define PCCL_ENGINE_EXEC_H

#include "engine/group.h"
#include "engine/operation.h"
#include "engine/pool.h"
#include "kernel/kernel.h"

enum {
    PCCL__WINDOW_SEGMENTS = 16,
    PCCL__WINDOW_LEAST = 4,
    PCCL__WINDOW_CACHED = 8 * 1024 * 1024, /* bytes that all steps of a window move, where all share a host */
    PCCL__WINDOW_TASKS = 1 << 14,
    PCCL__WINDOWS_BYTES = 64 * 1024 * 1024,
    PCCL__LENT_BYTES = 64 * 1024 * 1024,
    PCCL__RECEIVES_AHEAD = 2,
    PCCL__FINISH_STEP = 1 << 30
};

/* What the executor needs of its surroundings. */
struct pccl__exec {
    struct pccl__group *group;
    struct pccl__pool *pool;
    const struct pccl__kernels *kernels;
    uint32_t segment_bytes; /* 0: chosen by size */
    uint32_t lend_least;    /* bytes of a piece that is better sent from where others have mapped it */
    uint64_t windows_bytes; /* of all operations that have begun and are not released */
    uint64_t lent_bytes;    /* of copies that were made for that */
};

/* Takes memory, copies what the plan never receives, posts the first transfers. The operation has its call, stamp,
 * name, algorithm and both schedules. Errors: NO_MEMORY, PEER_LOST (a broken channel); transfers may be posted
 * nevertheless, so cancel. */
pccl_status pccl__exec_begin(struct pccl__exec *exec, struct pccl_operation *operation);
/* A transfer of this operation completed OK. Errors as above, or MISMATCH: the length of a part has come that passes
 * through others, and it is not ours; the transfer's stamps differ in it. */
pccl_status pccl__exec_completed(struct pccl__exec *exec, struct pccl_operation *operation,
                                 struct pccl__transfer *transfer);
/* The rank that a private part comes from. */
uint32_t pccl__exec_origin(const struct pccl_operation *operation, const struct pccl__transfer *transfer);
/* The result is whole; with `sent`: and all sends have completed too. */
bool pccl__exec_data_done(const struct pccl_operation *operation, bool sent);
/* Starts the finish phase. Errors as above. */
pccl_status pccl__exec_begin_finish(struct pccl__exec *exec, struct pccl_operation *operation);
bool pccl__exec_finished(const struct pccl_operation *operation);
/* Cancels posted transfers; they complete with `why` later. All of them, or with OK, for an operation that has
 * succeeded, those that have served: its part of the finish phase others may still wait for, and that stays posted
 * until they have it, or until the epoch ends. */
void pccl__exec_cancel(struct pccl__exec *exec, struct pccl_operation *operation, pccl_status why);
/* Gives all memory back. borrowed must be 0. */
void pccl__exec_release(struct pccl__exec *exec, struct pccl_operation *operation);
/* Sets waits[rank] for each member that the operation waits for; returns how many. */
uint32_t pccl__exec_waits_for(const struct pccl__exec *exec, const struct pccl_operation *operation, uint8_t *waits);

#endif
