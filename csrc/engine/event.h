/* SPDX-License-Identifier: MIT
 *
 * event.h - what the core tells the owner of the engine: a queue, oldest first.
 */
#ifndef PCCL_ENGINE_EVENT_H
#define PCCL_ENGINE_EVENT_H

#include "base/list.h"
#include "pccl.h"

struct pccl__events {
    struct list queue;
    bool lost; /* an event could not be stored for lack of memory */
};

void pccl__events_init(struct pccl__events *events);
void pccl__events_clear(struct pccl__events *events);
void pccl__events_add(struct pccl__events *events, const pccl_event *event);
bool pccl__events_take(struct pccl__events *events, pccl_event *event);
static inline bool pccl__events_empty(const struct pccl__events *events) { return list_empty(&events->queue); }

#endif
