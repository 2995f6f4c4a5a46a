/* SPDX-License-Identifier: MIT
 *
 * operation.h - one collective in flight: what was called, how far it is, how it ended.
 *
 * Life: QUEUED (waits for the next epoch) -> UNMATCHED (a receive that waits for its send, match.h) -> DATA -> FINISH
 * -> ENDED. It has two owners, the caller's handle and the core; the last one frees it. While `borrowed` > 0 a channel
 * may touch its transfers, so the core keeps it.
 */
#ifndef PCCL_ENGINE_OPERATION_H
#define PCCL_ENGINE_OPERATION_H

#include <stdatomic.h>

#include "base/heap.h"
#include "channel/channel.h"
#include "engine/cuts.h"
#include "engine/descriptor.h"
#include "engine/event.h"
#include "engine/layout.h"
#include "engine/schedule.h"
#include "engine/tags.h"
#include "engine/team.h"
#include "engine/tensors.h"
#include "kernel/codec.h"
#include "pccl.h"

struct pccl__core;
struct pccl__wait;
struct pccl_operation;

enum pccl__task_state { PCCL__TASK_WAITING = 0, PCCL__TASK_POSTED, PCCL__TASK_ARRIVED, PCCL__TASK_DONE };

/* One step of the plan for one segment: exactly one transfer. */
struct pccl__task {
    struct pccl__transfer transfer; /* owner: the task's operation */
    enum pccl__task_state state;
    uint32_t step, slot;
    uint32_t readers; /* dependents that still need `value` while it is in scratch */
    bool coded;       /* `value` is in its wire form (coding.h) */
    void *scratch;    /* pool memory of scratch_bytes, or NULL */
    void *value;      /* receives: where the chunk's value is once this is DONE */
};

/* An input of a quantized operation, in its wire form. */
struct pccl__coded_input {
    uint8_t *wire; /* pool memory, or NULL: not encoded yet, or read by all */
    uint32_t readers;
};

/* What could not be quantized. */
struct pccl__unfit {
    uint64_t element; /* of our input */
    float value;
    bool is_sum;
};

/* coding.h */
struct pccl__coding {
    bool on, equal, reduces;
    struct pccl__codec codec;
    size_t wire_bytes;                /* of the longest piece */
    struct pccl__coded_input *inputs; /* [slots * schedule->inputs_sent], in the tables */
    struct pccl__unfit unfit;
};

/* How an input that the result will overwrite survives an abort (operands.c, place_result). */
enum pccl__shadow_use { PCCL__SHADOW_NONE, PCCL__SHADOW_RESULT, PCCL__SHADOW_BACKUP };

/* A segment that is under way through all rounds. */
struct pccl__slot {
    uint32_t segment;
    uint32_t open;         /* tasks not DONE */
    uint32_t next_receive; /* index into schedule.receives */
    uint32_t posted;       /* receives posted or arrived, not yet DONE */
};

/* A walk along the plan of a barrier, step by step: sends go out when it reaches them, a receive holds it until heard.
 */
struct pccl__finish {
    const struct pccl__schedule *schedule;
    const uint32_t *ranks;           /* by position in it */
    struct pccl__transfer *transfer; /* [steps] */
    uint8_t *heard;                  /* [steps], of receives */
    uint32_t steps, next;
    bool begun;
};

enum pccl__operation_state { PCCL__QUEUED, PCCL__UNMATCHED, PCCL__DATA, PCCL__FINISH, PCCL__ENDED };

struct pccl_operation {
    pccl_call call;
    struct pccl__core *core;
    void *engine;          /* pccl_engine, which lasts as long as its handles */
    struct list link;      /* in core->open or core->queued or core->ended */
    struct list unmatched; /* in core->unmatched */
    enum pccl__operation_state state;
    atomic_bool ended;
    bool handle_held, core_held;
    bool fated;             /* queued behind an open operation of its tag in a frozen epoch: aborted with it */
    bool is_fetch;          /* pccl_state_fetch: one transfer, no plan */
    uint32_t settles;       /* a commit: deferred.started when it began; later ones belong to the next step */
    uint32_t borrowed;      /* transfers that a channel holds */
    struct heap_node timer; /* stall.c: when it is looked at next */
    bool prompt;            /* PCCL_NOTIFY: somebody sleeps until its end is told */
    pccl_status status;
    uint64_t lost_epoch; /* a change of epoch made it fail: the one that ended, or that its call stood behind */
    pccl_info info;

    /* Set when it starts in an epoch. */
    struct pccl__team *team;
    pccl_operation_name name;
    struct pccl__entry *entry;
    pccl_algorithm algorithm;
    struct pccl__stamp stamp;
    bool started;
    uint64_t called_ns, started_ns, data_done_ns, progressed_ns;
    pccl_peer_id last_peer; /* whose transfer completed last */
    uint64_t next_stall_ns;
    struct pccl__wait *wait; /* once it has stalled, or was frozen */

    /* The data phase. */
    struct pccl__layout layout;
    const uint32_t *links; /* ranks of the view by position in the plan */
    uint32_t pair[2];      /* of a send or receive: the ranks at the two positions, which are source and target */
    uint64_t *begins;      /* of uneven parts: what the layout points to; malloc'ed */
    struct pccl__tensors *tensors; /* that are reduced together; else NULL */
    const struct pccl__schedule *schedule;
    struct pccl__coding coding;
    size_t element_bytes, scratch_bytes;
    uint64_t segment_elements;
    struct pccl__cuts *cuts; /* of `tensors`: instead of one after so many elements each */
    uint32_t segments, slots, admitted, finished_segments;
    bool lengths_first, lengths_known; /* piece.h */
    uint8_t *lengths;                  /* [chunks], 8 bytes of each; borrowed from the tables */
    uint32_t open_receives;            /* not yet applied, over all segments; sends are counted in the slots */
    struct pccl__slot *slot;
    struct pccl__task *task; /* [slots * steps] */
    const uint8_t *input;    /* the caller's, or `scaled`; NULL: it lies in `tensors` */
    uint8_t *scaled;         /* PREMUL_SUM: the input times the factor, in pool memory; else NULL */
    size_t scaled_bytes;
    uint8_t *result; /* the output, or the shadow; NULL: it lies in `tensors` */
    uint8_t *shadow; /* pool memory as large as the result, or NULL */
    size_t shadow_bytes;
    uint64_t shadow_begin; /* of a backup, the element of the result that it begins with */
    bool shadow_streams;   /* past the caches */
    bool lends;            /* what others of the host can map is better sent from there */
    enum pccl__shadow_use shadow_use;
    uint8_t *saved;    /* [chunks * segments], 1: this piece of the input is in the shadow and overwritten */
    uint32_t restored; /* of them, from the first, so many have been brought back */
    void *tables;      /* slots, tasks, finish transfers */
    size_t tables_bytes;
    struct pccl__finish finish;

    /* State fetch. */
    struct pccl__transfer fetch;
    pccl_peer_id fetch_peer;

    char text[PCCL_MESSAGE_BYTES]; /* why it failed. Last: an operation that begins does not clear it */
};

static inline struct pccl__task *pccl__task_at(const struct pccl_operation *op, uint32_t slot, uint32_t step) {
    return &op->task[(size_t)slot * op->schedule->plan.steps_count + step];
}

static inline const struct pccl__step *pccl__step_of(const struct pccl_operation *op, const struct pccl__task *task) {
    return &op->schedule->plan.steps[task->step];
}

#endif
