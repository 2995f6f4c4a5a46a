/* SPDX-License-Identifier: MIT */
#include "engine/urgency.h"

#include "base/check.h"
#include "base/clock.h"

enum { CALM_MS = 10 };

static uint32_t level_of(int priority) { return (uint32_t)(PCCL_PRIORITY_MAX - priority); }

void pccl__urgency_begin(struct pccl__urgency *urgency, int priority) {
    urgency->open[level_of(priority)]++;
    urgency->levels |= 1u << level_of(priority);
}

void pccl__urgency_end(struct pccl__urgency *urgency, int priority) {
    CHECK(urgency->open[level_of(priority)] > 0);
    if (--urgency->open[level_of(priority)] == 0) urgency->levels &= ~(1u << level_of(priority));
}

bool pccl__urgency_hurry(struct pccl__urgency *urgency, uint64_t now_ns) {
    bool differ = urgency->levels & (urgency->levels - 1);
    if (differ) urgency->calm_ns = now_ns + CALM_MS * NS_PER_MS;
    return now_ns < urgency->calm_ns;
}

static int priority_of(const struct list *node) { return LIST_ENTRY(node, struct pccl__transfer, link)->priority; }

void pccl__urgency_sort(struct list *transfers) {
    struct list levels[PCCL__LEVELS], *node = transfers->next;
    while (node != transfers && priority_of(node) == priority_of(transfers->next)) node = node->next;
    if (node == transfers) return;
    for (int level = 0; level < PCCL__LEVELS; level++) list_init(&levels[level]);
    while ((node = list_pop_front(transfers))) list_push_back(&levels[level_of(priority_of(node))], node);
    for (int level = 0; level < PCCL__LEVELS; level++) list_splice(transfers, &levels[level]);
}
