/* SPDX-License-Identifier: MIT */
#include "engine/event.h"

#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "base/check.h"
#include "base/clock.h"

void pccl__events_init(struct pccl__events *events) {
    *events = (struct pccl__events){.tell_ns = NEVER_NS};
    list_init(&events->queue);
    list_init(&events->frozen.link);
    list_init(&events->refused.link);
}

void pccl__events_clear(struct pccl__events *events) {
    pccl_event ignored;
    while (pccl__events_take(events, &ignored)) {
    }
    free(events->tokens);
    events->tokens = NULL;
    events->tokens_count = events->tokens_reserved = events->tokens_capacity = 0;
    events->tell_ns = NEVER_NS;
}

static struct pccl__event_node *new_node(void) {
    struct pccl__event_node *node = malloc(sizeof *node);
    if (node) list_init(&node->link);
    return node;
}

bool pccl__events_add(struct pccl__events *events, const pccl_event *event) {
    struct pccl__event_node *node = event->kind == PCCL_EVENT_FROZEN    ? &events->frozen
                                    : event->kind == PCCL_EVENT_REFUSED ? &events->refused
                                                                        : new_node();
    if (!node) return false;
    node->event = *event;
    if (list_empty(&node->link)) list_push_back(&events->queue, &node->link);
    return true;
}

bool pccl__events_take(struct pccl__events *events, pccl_event *event) {
    struct list *link = list_pop_front(&events->queue);
    if (!link) return false;
    struct pccl__event_node *node = LIST_ENTRY(link, struct pccl__event_node, link);
    *event = node->event;
    if (node != &events->frozen && node != &events->refused) free(node);
    return true;
}

/* ---------------------------------------------------------------- tokens */

bool pccl__events_reserve(struct pccl__events *events) {
    size_t needed = events->tokens_count + events->tokens_reserved + 1;
    if (needed > events->tokens_capacity) {
        size_t capacity = max_u64(2 * events->tokens_capacity, PCCL__TOKENS_TOGETHER);
        uint64_t *tokens = realloc(events->tokens, capacity * sizeof *tokens);
        if (!tokens) return false;
        events->tokens = tokens;
        events->tokens_capacity = capacity;
    }
    events->tokens_reserved++;
    return true;
}

void pccl__events_end(struct pccl__events *events, uint64_t token, bool prompt, uint64_t now_ns) {
    CHECK(events->tokens_reserved > 0);
    events->tokens_reserved--;
    events->tokens[events->tokens_count++] = token;
    if (prompt || events->tokens_count >= PCCL__TOKENS_TOGETHER)
        events->tell_ns = 0;
    else
        events->tell_ns = min_u64(events->tell_ns, now_ns + PCCL__TOKENS_NS);
}

size_t pccl__events_take_tokens(struct pccl__events *events, uint64_t *tokens, size_t capacity) {
    size_t count = min_u64(events->tokens_count, capacity);
    if (count == 0) return 0;
    memcpy(tokens, events->tokens, count * sizeof *tokens);
    events->tokens_count -= count;
    memmove(events->tokens, events->tokens + count, events->tokens_count * sizeof *tokens);
    if (events->tokens_count == 0) events->tell_ns = NEVER_NS;
    return count;
}

bool pccl__events_due(const struct pccl__events *events, uint64_t now_ns) {
    return !list_empty(&events->queue) || events->tell_ns <= now_ns;
}
