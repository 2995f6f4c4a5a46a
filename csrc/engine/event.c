/* SPDX-License-Identifier: MIT */
#include "engine/event.h"

#include <stdlib.h>

void pccl__events_init(struct pccl__events *events) {
    list_init(&events->queue);
    list_init(&events->frozen.link);
    list_init(&events->refused.link);
}

void pccl__events_clear(struct pccl__events *events) {
    pccl_event ignored;
    while (pccl__events_take(events, &ignored)) {
    }
}

struct pccl__event_node *pccl__events_reserve(void) {
    struct pccl__event_node *node = malloc(sizeof *node);
    if (node) list_init(&node->link);
    return node;
}

void pccl__events_add_reserved(struct pccl__events *events, struct pccl__event_node *node, const pccl_event *event) {
    node->event = *event;
    if (list_empty(&node->link)) list_push_back(&events->queue, &node->link);
}

bool pccl__events_add(struct pccl__events *events, const pccl_event *event) {
    struct pccl__event_node *node = event->kind == PCCL_EVENT_FROZEN    ? &events->frozen
                                    : event->kind == PCCL_EVENT_REFUSED ? &events->refused
                                                                        : pccl__events_reserve();
    if (node) pccl__events_add_reserved(events, node, event);
    return node;
}

bool pccl__events_take(struct pccl__events *events, pccl_event *event) {
    struct list *link = list_pop_front(&events->queue);
    if (!link) return false;
    struct pccl__event_node *node = LIST_ENTRY(link, struct pccl__event_node, link);
    *event = node->event;
    if (node != &events->frozen && node != &events->refused) free(node);
    return true;
}
