/* SPDX-License-Identifier: MIT
 *
 * event.h - what the core tells the owner of the engine: a queue, oldest first.
 *
 * No event that somebody waits for can be lost for lack of memory. FROZEN and REFUSED have places of their own: a later
 * one takes the place of one that still waits, which nobody needs any more. STALLED is told again later. Who tells a
 * SUSPECT learns when it cannot be stored.
 *
 * That an operation has ended is no event but a token, whose place is reserved when it starts. Hundreds may end at a
 * time, and most of their owners look by themselves: so tokens are told together, unless somebody sleeps for one.
 */
#ifndef PCCL_ENGINE_EVENT_H
#define PCCL_ENGINE_EVENT_H

#include "base/list.h"
#include "pccl.h"

struct pccl__event_node {
    struct list link;
    pccl_event event;
};

enum { PCCL__TOKENS_TOGETHER = 64, PCCL__TOKENS_NS = 2 * 1000 * 1000 };

struct pccl__events {
    struct list queue;
    struct pccl__event_node frozen, refused;
    uint64_t *tokens; /* [tokens_capacity], oldest first */
    size_t tokens_count, tokens_reserved, tokens_capacity;
    uint64_t tell_ns; /* when tokens are to be told; 0: now, NEVER_NS: there are none, or they were told */
};

void pccl__events_init(struct pccl__events *events);
void pccl__events_clear(struct pccl__events *events);
/* False: no memory, which never befalls FROZEN and REFUSED. */
bool pccl__events_add(struct pccl__events *events, const pccl_event *event);
bool pccl__events_take(struct pccl__events *events, pccl_event *event);

/* A place for a token to come. False: no memory. */
bool pccl__events_reserve(struct pccl__events *events);
/* Takes a reserved place. `prompt`: to be told now. */
void pccl__events_end(struct pccl__events *events, uint64_t token, bool prompt, uint64_t now_ns);
size_t pccl__events_take_tokens(struct pccl__events *events, uint64_t *tokens, size_t capacity);

/* Is anything there to be told at this time? */
bool pccl__events_due(const struct pccl__events *events, uint64_t now_ns);
/* Is anything there at all? */
static inline bool pccl__events_empty(const struct pccl__events *events) {
    return list_empty(&events->queue) && events->tokens_count == 0;
}

#endif
