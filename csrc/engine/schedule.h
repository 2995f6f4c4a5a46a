/* SPDX-License-Identifier: MIT
 *
 * schedule.h - a plan made ready for the executor: who depends on whom, and which write of a chunk is its last.
 *
 * A receive step's value is what the chunk holds after it. `previous[i]` is the receive whose value step i needs (or
 * PCCL__NO_STEP: the input). Each receive knows the steps that wait for it as a linked list. Schedules are built once
 * per (collective, algorithm, root) and view, and are read-only afterwards.
 *
 * It also finds out whether a reduction may grow in the memory of its input, so that the executor knows no algorithm by
 * name. What could go wrong is that the last write of a chunk overtakes a send that still reads the input of that chunk
 * (one before which nothing was received). It cannot if the last write is a copy and the send the only one: only what
 * is whole is copied (plan_test proves it), so our contribution is in it and has arrived.
 */
#ifndef PCCL_ENGINE_SCHEDULE_H
#define PCCL_ENGINE_SCHEDULE_H

#include "plan/plan.h"

#define PCCL__NO_STEP UINT32_MAX

struct pccl__schedule {
    struct pccl__plan plan;
    uint32_t *previous;        /* [steps] */
    uint32_t *first_dependent; /* [steps], for receives */
    uint32_t *next_dependent;  /* [steps], the list's links */
    uint8_t *last;             /* [steps], 1: a receive after which nothing writes the chunk */
    uint8_t *received;         /* [chunks], 1: some step receives it */
    uint32_t *receives;        /* the receive steps in plan order */
    uint32_t receives_count;
    /* Chunks whose input is sent as it is, numbered: [chunks], NO_STEP for others; and of each how many steps read it,
     * sends and receives [inputs_sent]. */
    uint32_t *input_index, *input_readers;
    uint32_t inputs_sent;
    bool in_place; /* see above */
};

/* Builds the plan with `planner` and derives the rest. NULL planner: a schedule without steps. Errors: NO_MEMORY,
 * INVALID. */
pccl_status pccl__schedule_new(const struct pccl__planner *planner, uint32_t position, const struct pccl__shape *shape,
                               uint32_t root, struct pccl__schedule **schedule);
void pccl__schedule_free(struct pccl__schedule *schedule);

static inline bool pccl__step_is_send(const struct pccl__step *step) { return step->kind == PCCL__SEND; }

#endif
