/* SPDX-License-Identifier: MIT
 *
 * event.h - what the core tells the owner of the engine: a queue, oldest first.
 *
 * No event that somebody waits for can be lost for lack of memory. FROZEN and REFUSED have places of their own: a later
 * one takes the place of one that still waits, which nobody needs any more. DONE is reserved when its operation starts.
 * STALLED is told again later. Who tells a SUSPECT learns when it cannot be stored.
 */
#ifndef PCCL_ENGINE_EVENT_H
#define PCCL_ENGINE_EVENT_H

#include "base/list.h"
#include "pccl.h"

struct pccl__event_node {
    struct list link;
    pccl_event event;
};

struct pccl__events {
    struct list queue;
    struct pccl__event_node frozen, refused;
};

void pccl__events_init(struct pccl__events *events);
void pccl__events_clear(struct pccl__events *events);
/* False: no memory, which never befalls FROZEN and REFUSED. */
bool pccl__events_add(struct pccl__events *events, const pccl_event *event);
/* A place for an event to come; its holder adds it or gives it back with free(). NULL: no memory. */
struct pccl__event_node *pccl__events_reserve(void);
void pccl__events_add_reserved(struct pccl__events *events, struct pccl__event_node *node, const pccl_event *event);
bool pccl__events_take(struct pccl__events *events, pccl_event *event);
static inline bool pccl__events_empty(const struct pccl__events *events) { return list_empty(&events->queue); }

#endif
