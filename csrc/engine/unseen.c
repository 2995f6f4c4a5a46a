/* SPDX-License-Identifier: MIT */
#include "engine/unseen.h"

#include <stdlib.h>

#include "base/bits.h"
#include "base/check.h"

struct failure {
    struct list link;
    uint64_t tag;
    bool stepwise;
    uint64_t epoch;
};

static struct failure *failure_at(struct list *node) { return LIST_ENTRY(node, struct failure, link); }

void pccl__unseen_init(struct pccl__unseen *unseen) {
    *unseen = (struct pccl__unseen){0};
    list_init(&unseen->failures);
    list_init(&unseen->spare);
}

static void put_spare(struct pccl__unseen *unseen, struct failure *failure) {
    list_init(&failure->link);
    list_push_back(&unseen->spare, &failure->link);
    unseen->spare_count++;
}

bool pccl__unseen_reserve(struct pccl__unseen *unseen, uint32_t count) {
    while (unseen->spare_count < count) {
        struct failure *failure = malloc(sizeof *failure);
        if (!failure) return false;
        put_spare(unseen, failure);
    }
    return true;
}

void pccl__unseen_add(struct pccl__unseen *unseen, uint64_t tag, bool stepwise, uint64_t epoch) {
    for (struct list *node = unseen->failures.next; node != &unseen->failures; node = node->next) {
        struct failure *noted = failure_at(node);
        if (noted->tag != tag || noted->stepwise != stepwise) continue;
        noted->epoch = max_u64(noted->epoch, epoch);
        return;
    }
    struct list *node = list_pop_front(&unseen->spare);
    CHECK(node);
    unseen->spare_count--;
    struct failure *failure = failure_at(node);
    *failure = (struct failure){.tag = tag, .stepwise = stepwise, .epoch = epoch};
    list_init(&failure->link);
    list_push_back(&unseen->failures, &failure->link);
}

bool pccl__unseen_blocks(const struct pccl__unseen *unseen, uint64_t tag, bool stepwise, uint64_t *epoch) {
    bool blocks = false;
    *epoch = 0;
    for (struct list *node = unseen->failures.next; node != &unseen->failures; node = node->next) {
        const struct failure *failure = failure_at(node);
        if (failure->tag != tag && !(stepwise && failure->stepwise)) continue;
        blocks = true;
        *epoch = max_u64(*epoch, failure->epoch);
    }
    return blocks;
}

/* `all`: of any tag. */
static void forget(struct pccl__unseen *unseen, bool all, uint64_t tag, bool steps, uint64_t epoch) {
    for (struct list *node = unseen->failures.next; node != &unseen->failures;) {
        struct failure *failure = failure_at(node);
        node = node->next;
        if (failure->epoch > epoch || !(all || failure->tag == tag || (steps && failure->stepwise))) continue;
        list_remove(&failure->link);
        put_spare(unseen, failure);
    }
}

void pccl__unseen_seen(struct pccl__unseen *unseen, uint64_t tag, uint64_t epoch) {
    bool steps = false;
    for (struct list *node = unseen->failures.next; node != &unseen->failures; node = node->next)
        steps = steps || (failure_at(node)->tag == tag && failure_at(node)->stepwise);
    forget(unseen, false, tag, steps, epoch);
}

void pccl__unseen_all_seen(struct pccl__unseen *unseen, uint64_t epoch) { forget(unseen, true, 0, false, epoch); }

void pccl__unseen_clear(struct pccl__unseen *unseen) {
    struct list *node;
    list_splice(&unseen->spare, &unseen->failures);
    while ((node = list_pop_front(&unseen->spare))) free(failure_at(node));
    unseen->spare_count = 0;
}
