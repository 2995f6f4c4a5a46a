/* SPDX-License-Identifier: MIT */
#include "engine/unseen.h"

#include <stdlib.h>

struct failure {
    struct list link;
    uint64_t tag;
    bool stepwise;
};

static struct failure *failure_at(struct list *node) { return LIST_ENTRY(node, struct failure, link); }

void pccl__unseen_init(struct pccl__unseen *unseen) { list_init(&unseen->failures); }

void pccl__unseen_add(struct pccl__unseen *unseen, uint64_t tag, bool stepwise) {
    for (struct list *node = unseen->failures.next; node != &unseen->failures; node = node->next)
        if (failure_at(node)->tag == tag && failure_at(node)->stepwise == stepwise) return;
    struct failure *failure = malloc(sizeof *failure);
    if (!failure) return;
    *failure = (struct failure){.tag = tag, .stepwise = stepwise};
    list_init(&failure->link);
    list_push_back(&unseen->failures, &failure->link);
}

bool pccl__unseen_blocks(const struct pccl__unseen *unseen, uint64_t tag, bool stepwise) {
    for (struct list *node = unseen->failures.next; node != &unseen->failures; node = node->next)
        if (failure_at(node)->tag == tag || (stepwise && failure_at(node)->stepwise)) return true;
    return false;
}

static void forget(struct pccl__unseen *unseen, uint64_t tag, bool steps) {
    for (struct list *node = unseen->failures.next; node != &unseen->failures;) {
        struct failure *failure = failure_at(node);
        node = node->next;
        if (failure->tag != tag && !(steps && failure->stepwise)) continue;
        list_remove(&failure->link);
        free(failure);
    }
}

void pccl__unseen_seen(struct pccl__unseen *unseen, uint64_t tag) {
    bool steps = false;
    for (struct list *node = unseen->failures.next; node != &unseen->failures; node = node->next)
        steps = steps || (failure_at(node)->tag == tag && failure_at(node)->stepwise);
    forget(unseen, tag, steps);
}

void pccl__unseen_clear(struct pccl__unseen *unseen) {
    struct list *node;
    while ((node = list_pop_front(&unseen->failures))) free(failure_at(node));
}
