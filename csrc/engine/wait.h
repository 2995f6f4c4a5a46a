/* SPDX-License-Identifier: MIT
 *
 * wait.h - whom an operation waits for, with their last sign of life: for errors, events and the recorder.
 *
 * Must not know: timeouts, what a wait causes.
 *
 * The one idea: a member waits for its neighbours in the plan, and those may be waiting too, so their names blame the
 * innocent. Who is really missing can only be told by asking: a stalled operation announces itself to the members next
 * to it, each adds what it knows of who has started it (or has even ended it), and whoever learns something new thereby
 * tells its own neighbours. So all soon know the same set, whichever links there are, and those that are not in it are
 * the *absent*. Nothing of this costs an operation anything that does not stall.
 */
#ifndef PCCL_ENGINE_WAIT_H
#define PCCL_ENGINE_WAIT_H

#include "engine/operation.h"

enum { PCCL__WAIT_TEXT = 400 };

struct pccl__core;
struct pccl__notice;

/* Pool memory of an operation that stalled or was frozen. */
struct pccl__wait {
    uint64_t noted_ns, asked_ns; /* asked_ns 0: nobody was asked */
    bool told;                   /* the owner knows that it stalls */
    bool absent;                 /* `ranks` have not started it; else it waits for them itself */
    uint32_t count;              /* of them; the first PCCL_EVENT_RANKS are in `ranks` */
    uint32_t ranks[PCCL_EVENT_RANKS];
    uint64_t heard_ns[PCCL_EVENT_RANKS]; /* 0: never */
    uint64_t epoch;                      /* of the ranks */
    size_t bytes;                        /* of this block */
    uint8_t started[];                   /* one bit per rank: known to have started it */
};

/* Asks who has started `operation`, which stalls; the members next to us compare its stamp with theirs, too. */
void pccl__wait_ask(struct pccl__core *core, struct pccl_operation *operation);
/* A member asks, or answers. */
void pccl__wait_notice(struct pccl__core *core, uint32_t rank, const struct pccl__notice *notice);
/* Notes whom `operation` waits for at this moment: the absent, or else waits[rank] (pccl__exec_waits_for). NULL: no
 * memory. */
const struct pccl__wait *pccl__wait_note(struct pccl__core *core, struct pccl_operation *operation,
                                         const uint8_t *waits);
/* As the last note says: "not started by rank 2 (peer 0a1b2c3d at 10.0.0.1:4000, silent for 12 ms)"; empty for nobody.
 */
void pccl__wait_text(const struct pccl__core *core, const struct pccl_operation *operation, char *text, size_t bytes);
/* "rank 2 (peer 0a1b2c3d at 10.0.0.1:4000, silent for 12 ms)", by its present link. */
void pccl__wait_member_text(const struct pccl__core *core, uint32_t rank, char *text, size_t bytes);
/* Gives the memory back. */
void pccl__wait_release(struct pccl__core *core, struct pccl_operation *operation);
/* The epoch ends: forgets what was told of its operations. */
void pccl__wait_forget(struct pccl__core *core);

#endif
