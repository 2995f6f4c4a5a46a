/* SPDX-License-Identifier: MIT */
#include "engine/event.h"

#include <stdlib.h>

struct node {
    struct list link;
    pccl_event event;
};

void pccl__events_init(struct pccl__events *events) {
    list_init(&events->queue);
    events->lost = false;
}

void pccl__events_clear(struct pccl__events *events) {
    pccl_event ignored;
    while (pccl__events_take(events, &ignored)) {
    }
}

void pccl__events_add(struct pccl__events *events, const pccl_event *event) {
    struct node *node = malloc(sizeof *node);
    if (!node) {
        events->lost = true;
        return;
    }
    node->event = *event;
    list_init(&node->link);
    list_push_back(&events->queue, &node->link);
}

bool pccl__events_take(struct pccl__events *events, pccl_event *event) {
    struct list *link = list_pop_front(&events->queue);
    if (!link) return false;
    struct node *node = LIST_ENTRY(link, struct node, link);
    *event = node->event;
    free(node);
    return true;
}
